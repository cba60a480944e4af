// device_bench.h: a network at a small size (fusion, or BENCH_GRAPH), a source of known images and a stepper, on the CPU
// or on a device that the including test makes. Trains some steps and keeps losses, norms and weights.
#ifndef DT_TESTS_DEVICE_BENCH_H
#define DT_TESTS_DEVICE_BENCH_H

#include "comm/comm_nccl.h"
#include "config/words.h"
#include "data/augment/augment.h"
#include "models/models.h"
#include "run/nets.h"
#include "testing.h"
#include "train/step.h"
#include "unit/memory_data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifndef STEPS
#define STEPS   6
#define MICRO   2
#define N_MICRO 4
#define RATE    0.003
#endif
enum { PIXEL_STEPS = 4 };

// Random changes to the right image: none, left to the network, or done by the source.
typedef enum pixel_changes { UNCHANGED, CHANGED_BY_NETWORK, CHANGED_BY_SOURCE } pixel_changes;

static const char yaml[] = "run: {name: device}\n" MEMORY_YAML "train: {global_batch: 8, micro_batch: 2}\n";

// The end of a BENCH_GRAPH: the head "fc" on features x (N,D), and the config's losses.
static inline dt_status bench_head(dt_graph *g, const dt_model_args *args, dt_value x) {
    dt_targets targets;
    dt_model_args with = *args;
    with.targets = &targets;
    DT_TRY(dt_targets_read(&targets, args->config, args->fields, args->n_fields, true));
    dt_model_heads(g, &with, "fc", x, NULL);
    return dt_graph_check(g);
}

// ---- a source of known images ----------------------------------------------------------------------

// A flip or a turn by half a pixel, contrast, bytes at random, and in every other sample less than that.
static void change_sample(bool now, uint8_t *pixels, dt_pixel_step *steps, int64_t step, int at) {
    dt_pixel_step list[PIXEL_STEPS] = {{.kind = at % 2 ? DT_PIXEL_MOVE : DT_PIXEL_WARP},
                                       {.kind = DT_PIXEL_CONTRAST},
                                       {.kind = step % 2 ? DT_PIXEL_PATCH : DT_PIXEL_END}};
    dt_image image = {.data = pixels, .width = W, .height = H, .channels = 3};
    dt_map flip = dt_map_flip(true, false, W, H), shift = dt_map_shift(0.5, 0.25);
    dt_buffer scratch = {0};
    list[0] = dt_map_step(at % 2 ? &flip : &shift, (dt_border){-1, false}, at % 2);
    list[1].as.factor = 0.5f + 0.01f * (float)(at + step);
    list[2].as.patch.w = 5, list[2].as.patch.h = 7, list[2].as.patch.x = at;
    list[2].as.patch.with = DT_PATCH_RANDOM;
    list[2].as.patch.r = (dt_rng){.seed = 3, .slot = (uint32_t)at, .step = (uint32_t)step};
    for (int k = 0; now && k < PIXEL_STEPS; k++) assert_int_equal(dt_pixels_play(&image, &list[k], &scratch), DT_OK);
    dt_buffer_fini(&scratch);
    memcpy(steps, list, sizeof list);
}

// Other images and classes in each step, of which nothing can be learned.
static void fill_batch(memory_source *s, dt_batch *b) {
    for (int f = 0; f < 2; f++) {
        const dt_rng r = {
            .seed = 5, .step = (uint32_t)b->step, .slot = (uint32_t)b->micro, .purpose = 1u + (uint32_t)f};
        for (size_t i = 0; i < MICRO * sample_bytes[f]; i++)
            ((uint8_t *)b->field[f])[i] = (uint8_t)(dt_rng_uniform(&r, (uint32_t)i) * 255);
    }
    for (int i = 0; i < MICRO; i++) {
        ((int32_t *)b->field[2])[i] = (int32_t)((b->step * 7 + b->micro * 3 + i) % CLASSES);
        if (s->changes)
            change_sample(s->changes == CHANGED_BY_SOURCE, (uint8_t *)b->field[1] + i * H * W * 3,
                          b->steps[1] + i * PIXEL_STEPS, b->step, b->micro * MICRO + i);
    }
}

static memory_source *make_source(dt_backend *b, pixel_changes changes) {
    const dt_source_request r = {
        .split = DT_SPLIT_TRAIN, .global_batch = MICRO * N_MICRO, .micro_batch = MICRO, .augment = true};
    static dt_batch_memory memory; // sources keep its address
    dt_batch_source *base = NULL;
    memory = dt_backend_batch_memory(b);
    assert_int_equal(open_split(&(dt_dataset){.self = &memory}, &r, &base), DT_OK);
    memory_source *s = base->self;
    s->fill = fill_batch;
    s->changes = (int)changes;
    for (int i = 0; i < SLOTS; i++)
        b->alloc_host(b, (void **)&s->batch[i].steps[1], MICRO * PIXEL_STEPS * sizeof(dt_pixel_step), "batch");
    return s;
}

static void drop_source(memory_source *s) {
    for (int i = 0; i < SLOTS; i++)
        s->memory.free(s->memory.owner, s->batch[i].steps[1], MICRO * PIXEL_STEPS * sizeof(dt_pixel_step));
    s->base.close(&s->base);
}

// ---- a stepper -------------------------------------------------------------------------------------

typedef struct setting {
    bool cpu, elastic, uncaptured, scaled, one_micro, bf16_gradients;
    dt_dtype low; // F32 unless said otherwise
    pixel_changes changes;
    float clip;
    float scale;        // of the loss, to begin with; 0: the usual
    int n_steps;        // 0: STEPS
    const char *groups; // train.groups=…, or NULL
    dt_comm *ranks;     // this rank's host comm among several; NULL: one rank
} setting;

typedef struct bench {
    dt_config *config;
    dt_param_groups groups;
    dt_phase phases[DT_MAX_PHASES];
    int n_phases;
    dt_graph *graph; // of the last phase
    dt_backend *b;
    dt_comm *self, *comm, *device_comm; // comm: self, or the setting's
    dt_replica_plan *replicas;
    dt_params *params;
    dt_plan *plan;
    dt_stepper *stepper;
    memory_source *source;
} bench;

// The device under test, given by the file that includes this one.
static dt_status create_device(bench *b, const setting *s);

static __thread int micro_left; // micro-batches until a step is given up

static bool give_up(void) {
    return micro_left-- <= 0;
}

static void make_graph(bench *b, const setting *s) {
    dt_field_info known[3];
    memcpy(known, known_fields(), sizeof known);
    known[1].n_steps = s->changes == CHANGED_BY_NETWORK ? PIXEL_STEPS : 0;
    must(dt_config_parse(&b->config, "test", yaml, sizeof yaml - 1, &s->groups, s->groups != NULL));
    must(dt_param_groups_read(&b->groups, b->config));
    b->n_phases = dt_phases_list(b->phases, &b->groups, &(dt_scales){.n = 0}, 100, 10);
    for (int i = 0; i < b->n_phases; i++) {
        dt_model_args a = {b->config, known, 3, MICRO, true, &b->groups, b->phases[i].begin};
#ifdef BENCH_GRAPH // a network of the including test's own
        must(BENCH_GRAPH(&b->phases[i].train.graph, &a, s->low));
#else
        must(dt_model_graph(&b->phases[i].train.graph, &a, s->low));
#endif
        b->graph = b->phases[i].train.graph;
    }
}

static void make_bench(bench *b, const setting *s) {
    *b = (bench){0};
    make_graph(b, s);
    dt_backend_opts o = {.threads = 1, .deterministic = true};
    must(s->cpu ? dt_backend_create_cpu(&b->b, &o) : create_device(b, s));
    must(dt_comm_create_self(&b->self));
    b->comm = s->ranks ? s->ranks : b->self;
    if (s->ranks) must(dt_comm_create_nccl(&b->device_comm, b->b, b->comm, !s->uncaptured, false, 1 << 14, 600));
    int n_micro = s->one_micro ? 1 : N_MICRO;
    must(dt_replica_plan_create(&b->replicas, s->elastic, b->comm->rank, b->comm->world_size, 1, n_micro));
    must(dt_params_create(&b->params, b->graph, b->b, 2, b->replicas->n_flats));
    dt_plan_opts plan = {.threads = 1, .n_replicas = 1};
    dt_phases_apply(&b->groups, b->params);
    for (int i = 0; i < b->n_phases; i++) {
        dt_phase *phase = &b->phases[i];
        must(dt_plan_create(&phase->train.plan, phase->train.graph, b->params, &plan));
        b->plan = phase->train.plan;
    }
    dt_stepper_opts so = {.comm = b->comm,
                          .graph = b->phases[0].train.graph,
                          .plan = b->phases[0].train.plan,
                          .params = b->params,
                          .replicas = b->replicas,
                          .replica_threads = 1,
                          .team_threads = 1,
                          .micro_batch = MICRO,
                          .seed = 11,
                          .clip_norm = s->clip,
                          .weight_decay = 0.01f,
                          .optimizer = {.kind = DT_OPTIMIZER_adamw, .hyper = {0.9f, 0.999f, 1e-8f}},
                          .bucket_bytes = 1 << 20,
                          .device_comm = b->device_comm,
                          .loss_scaling = s->scaled,
                          .bf16_gradients = s->bf16_gradients,
                          .uncaptured = s->uncaptured,
                          .give_up = give_up};
    micro_left = 1 << 30;
    must(dt_stepper_create(&b->stepper, &so));
    if (s->scale > 0) must(dt_stepper_set_scaler(b->stepper, &(dt_scaler){.scale = s->scale}));
    dt_params_init(b->params, 3);
    dt_params_repack(b->params);
    b->source = make_source(b->b, s->changes);
    must(dt_stepper_set_source(b->stepper, &b->source->base));
}

static void drop_bench(bench *b) {
    if (b->stepper) dt_stepper_set_source(b->stepper, NULL);
    drop_source(b->source);
    dt_stepper_destroy(b->stepper);
    if (b->device_comm) {
        const dt_status alive = b->device_comm->device->watch(b->device_comm, 0);
        assert_int_equal(b->device_comm->finalize(b->device_comm), alive);
        dt_comm_destroy_nccl(b->device_comm);
    }
    dt_params_destroy(b->params);
    for (int i = 0; i < b->n_phases; i++) dt_plan_destroy(b->phases[i].train.plan);
    dt_replica_plan_destroy(b->replicas);
    dt_comm_destroy(b->self);
    b->b->destroy(b->b);
    for (int i = 0; i < b->n_phases; i++) dt_graph_destroy(b->phases[i].train.graph);
    dt_param_groups_fini(&b->groups);
    dt_config_destroy(b->config);
}

// All numbers of the steps [first, end), in order.
static void run_steps(bench *b, int64_t first, int64_t end, dt_step_result *out) {
    int64_t known = first;
    for (int64_t step = first; step <= end; step++) {
        dt_step_result r;
        if (step < end)
            assert_int_equal(dt_stepper_run(b->stepper, step, RATE, false, &r), DT_OK);
        else
            assert_int_equal(dt_stepper_drain(b->stepper, &r), DT_OK);
        if (r.step < 0) continue;
        assert_int_equal(r.step, known);
        out[known++ - first] = r;
    }
    assert_int_equal(known, end);
}

typedef struct outcome {
    double loss[STEPS], norm[STEPS];
    float *master, *buffer;
    size_t n_master, n_buffer;
} outcome;

static float *read_flat(const bench *b, const float *flat, size_t n_bytes) {
    float *x = malloc(n_bytes);
    b->b->copy_to_host(b->b, x, flat, n_bytes);
    return x;
}

// The other's weights, moments and statistics.
static inline void take_up(bench *to, const bench *from) {
    dt_params *p = to->params, *q = from->params;
    struct {
        float *to;
        const float *from;
        int64_t n;
    } flats[] = {{p->master, q->master, p->n_trained},
                 {p->slots[0], q->slots[0], p->n_trained},
                 {p->slots[1], q->slots[1], p->n_trained},
                 {p->buffer, q->buffer, p->n_buffer}};
    for (int i = 0; i < 4; i++) {
        const size_t n_bytes = sizeof(float) * (size_t)flats[i].n;
        float *x = read_flat(from, flats[i].from, n_bytes);
        to->b->copy_to_device(to->b, flats[i].to, x, n_bytes);
        free(x);
    }
    dt_params_repack(p);
}

static void keep(outcome *o, const bench *b, const dt_step_result *r, int n) {
    for (int i = 0; i < n; i++) {
        assert_true(r[i].finite);
        o->loss[i] = r[i].loss;
        o->norm[i] = r[i].grad_norm;
    }
    o->n_master = sizeof(float) * (size_t)b->params->n_master;
    o->n_buffer = sizeof(float) * (size_t)b->params->n_buffer;
    o->master = read_flat(b, b->params->master, o->n_master);
    o->buffer = read_flat(b, b->params->buffer, o->n_buffer);
}

static outcome train(const setting *s) {
    bench b;
    outcome o = {0};
    dt_step_result r[STEPS];
    make_bench(&b, s);
    int n = s->n_steps ? s->n_steps : STEPS;
    for (int i = 0; i < b.n_phases; i++) {
        const dt_phase *phase = &b.phases[i];
        const int64_t end = i + 1 < b.n_phases ? phase[1].begin : n;
        if (i > 0)
            assert_int_equal(dt_stepper_set_plan(b.stepper, phase->train.graph, phase->train.plan, phase->begin),
                             DT_OK);
        run_steps(&b, phase->begin, end, r + phase->begin);
    }
    keep(&o, &b, r, n);
    drop_bench(&b);
    return o;
}

static void drop(outcome *o) {
    free(o->master);
    free(o->buffer);
}

static void assert_same(const outcome *a, const outcome *b) {
    assert_memory_equal(a->loss, b->loss, sizeof a->loss);
    assert_memory_equal(a->norm, b->norm, sizeof a->norm);
    assert_memory_equal(a->master, b->master, a->n_master);
    assert_memory_equal(a->buffer, b->buffer, a->n_buffer);
}

#endif
