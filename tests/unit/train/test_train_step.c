// One step on a small network with a source made here: any number of replicas gives the same bits under
// elastic; what comes out equals a gradient step written down by hand; a bad step commits nothing and
// names its tensor.
#include "base/core.h"
#include "base/rng.h"
#include "config/words.h"
#include "graph/autodiff.h"
#include "graph/build.h"
#include "graph/passes/passes.h"
#include "testing.h"
#include "train/step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MICRO = 2, N_MICRO = 6, INPUTS = 3, OUTPUTS = 2 };

// ---- a source of known numbers ---------------------------------------------------------------------

typedef struct known_source {
    dt_batch_source base;
    dt_field_info fields[2];
    float x[N_MICRO][MICRO * INPUTS], y[N_MICRO][MICRO * OUTPUTS], w[N_MICRO][MICRO];
    dt_batch batch[N_MICRO];
    int sought;
} known_source;

static dt_status get(dt_batch_source *b, int64_t step, int micro, const dt_batch **out, double *wait_s) {
    known_source *s = b->self;
    s->batch[micro].step = step;
    *out = &s->batch[micro];
    *wait_s = 0;
    return DT_OK;
}

static void release(dt_batch_source *s, const dt_batch *b) {}

static dt_status seek(dt_batch_source *b, int64_t step) {
    ((known_source *)b->self)->sought++;
    return DT_OK;
}

static known_source *make_source(void) {
    known_source *s = dt_xcalloc(1, sizeof *s);
    dt_rng r = {.seed = 1};
    s->fields[0] = (dt_field_info){.name = "x", .dtype = DT_F32, .sample_shape = dt_shape1(INPUTS)};
    s->fields[1] = (dt_field_info){.name = "y", .dtype = DT_F32, .sample_shape = dt_shape1(OUTPUTS)};
    s->base =
        (dt_batch_source){.self = s, .n_fields = 2, .fields = s->fields, .get = get, .release = release, .seek = seek};
    for (int l = 0; l < N_MICRO; l++) {
        r.slot = (uint32_t)l;
        for (uint32_t i = 0; i < MICRO * INPUTS; i++) s->x[l][i] = dt_rng_normal(&r, i);
        for (uint32_t i = 0; i < MICRO * OUTPUTS; i++) s->y[l][i] = dt_rng_normal(&r, 100 + i);
        for (int i = 0; i < MICRO; i++) s->w[l][i] = 1.0f;
        s->batch[l] =
            (dt_batch){.micro = l, .n = MICRO, .n_valid = MICRO, .field = {s->x[l], s->y[l]}, .weight = s->w[l]};
    }
    return s;
}

// ---- a stepper -------------------------------------------------------------------------------------

typedef struct bench {
    dt_graph *graph;
    dt_backend *backend;
    dt_comm *comm;
    dt_replica_plan *replicas;
    dt_params *params;
    dt_plan *plan;
    dt_stepper *stepper;
    known_source *source;
} bench;

// Two nodes read the bias as plain data.
static dt_graph *make_graph(void) {
    dt_graph *g = dt_graph_create("linear", true);
    dt_value x = dt_input(g, "x", DT_F32, dt_shape2(MICRO, INPUTS));
    dt_value y = dt_input(g, "y", DT_F32, dt_shape2(MICRO, OUTPUTS));
    dt_value w = dt_input(g, "weight", DT_F32, dt_shape1(MICRO));
    const dt_value bias = dt_param(g, "fc.bias", dt_shape1(OUTPUTS), (dt_init){DT_INIT_ZERO, 0}, false);
    const dt_value parts[OUTPUTS] = {dt_slice(g, bias, 0, 0, 1), dt_slice(g, bias, 0, 1, 2)};
    x = dt_add(g, dt_linear(g, "fc", x, OUTPUTS, false), dt_concat(g, parts, OUTPUTS, 0));
    dt_loss(g, DT_LOSS_mse, x, y, w, 0, 0);
    must(dt_graph_check(g));
    must(dt_graph_differentiate(g));
    return g;
}

static int micro_left; // micro-batches until the step is given up

static bool give_up(void) {
    return __atomic_fetch_sub(&micro_left, 1, __ATOMIC_RELAXED) <= 0;
}

static void make_bench_with(bench *b, bool elastic, int n_replicas, float clip, bool packs_at_use) {
    dt_backend_opts backend = {.threads = 1, .deterministic = true};
    b->graph = make_graph();
    must(dt_backend_create_cpu(&b->backend, &backend));
    must(dt_comm_create_self(&b->comm));
    must(dt_replica_plan_create(&b->replicas, elastic, 0, 1, n_replicas, N_MICRO));
    must(dt_params_create(&b->params, b->graph, b->backend, 1, b->replicas->n_flats));
    dt_plan_opts plan = {.threads = 1, .n_replicas = n_replicas, .packs_at_use = packs_at_use};
    must(dt_plan_create(&b->plan, b->graph, b->params, &plan));
    dt_stepper_opts o = {.comm = b->comm,
                         .graph = b->graph,
                         .plan = b->plan,
                         .params = b->params,
                         .replicas = b->replicas,
                         .replica_threads = 1,
                         .team_threads = n_replicas,
                         .micro_batch = MICRO,
                         .clip_norm = clip,
                         .optimizer = {.kind = DT_OPTIMIZER_sgd},
                         .bucket_bytes = 1 << 20,
                         .give_up = give_up};
    micro_left = 1000000;
    must(dt_stepper_create(&b->stepper, &o));
    dt_params_init(b->params, 3);
    dt_params_repack(b->params);
    b->source = make_source();
    dt_stepper_set_source(b->stepper, &b->source->base);
}

static void make_bench(bench *b, bool elastic, int n_replicas, float clip) {
    make_bench_with(b, elastic, n_replicas, clip, false);
}

static void drop_bench(bench *b) {
    dt_stepper_destroy(b->stepper);
    dt_params_destroy(b->params);
    dt_plan_destroy(b->plan);
    dt_replica_plan_destroy(b->replicas);
    dt_comm_destroy(b->comm);
    b->backend->destroy(b->backend);
    dt_graph_destroy(b->graph);
    free(b->source);
}

static float *entry(const bench *b, const char *name) {
    int id = dt_params_find(b->params, name, false);
    assert_true(id >= 0);
    return b->params->master + b->params->entries[id].offset;
}

// ---- tests -----------------------------------------------------------------------------------------

// Loss and gradient of the mean over samples of the mean over outputs of squares, in double.
static double reference(const bench *b, double gw[OUTPUTS][INPUTS], double gb[OUTPUTS]) {
    const float *w = entry(b, "fc.weight"), *bias = entry(b, "fc.bias");
    double loss = 0;
    memset(gw, 0, sizeof(double) * OUTPUTS * INPUTS);
    memset(gb, 0, sizeof(double) * OUTPUTS);
    for (int l = 0; l < N_MICRO; l++)
        for (int i = 0; i < MICRO; i++)
            for (int o = 0; o < OUTPUTS; o++) {
                const float *x = &b->source->x[l][i * INPUTS];
                double e = (double)bias[o] - (double)b->source->y[l][i * OUTPUTS + o];
                for (int k = 0; k < INPUTS; k++) e += (double)w[o * INPUTS + k] * (double)x[k];
                loss += e * e / OUTPUTS;
                gb[o] += 2 * e / OUTPUTS;
                for (int k = 0; k < INPUTS; k++) gw[o][k] += 2 * e / OUTPUTS * (double)x[k];
            }
    return loss / (N_MICRO * MICRO);
}

static void check_against_reference(bool elastic, int n_replicas, float clip) {
    bench b = {0};
    make_bench(&b, elastic, n_replicas, clip);
    double gw[OUTPUTS][INPUTS], gb[OUTPUTS], sum = 0;
    double loss = reference(&b, gw, gb);
    float before[OUTPUTS * INPUTS];
    memcpy(before, entry(&b, "fc.weight"), sizeof before);
    for (int o = 0; o < OUTPUTS; o++) {
        sum += gb[o] * gb[o];
        for (int k = 0; k < INPUTS; k++) sum += gw[o][k] * gw[o][k];
    }
    double norm = sqrt(sum) / (N_MICRO * MICRO);
    dt_step_result r;
    must(dt_stepper_run(b.stepper, 0, 0.1, false, &r));
    assert_true(r.finite);
    assert_false(r.stop);
    assert_float_equal(r.loss, loss, 1e-5 * loss);
    assert_float_equal(r.grad_norm, norm, 1e-5 * norm);
    double scale = 0.1 / (N_MICRO * MICRO);
    if (clip > 0 && norm > (double)clip) scale *= (double)clip / norm;
    for (int o = 0; o < OUTPUTS; o++)
        for (int k = 0; k < INPUTS; k++)
            assert_float_equal(entry(&b, "fc.weight")[o * INPUTS + k],
                               (double)before[o * INPUTS + k] - scale * gw[o][k], 1e-6);
    drop_bench(&b);
}

TEST(test_step_by_hand) {
    check_against_reference(false, 1, 0);
    check_against_reference(false, 2, 0);
    check_against_reference(true, 1, 0);
    check_against_reference(true, 3, 0.05f);
}

TEST(test_elastic_bits) {
    float reference_bits[64];
    for (int n_replicas = 0; n_replicas <= 6; n_replicas++) { // 0: one that packs weights at use
        bench b = {0};
        make_bench_with(&b, true, n_replicas ? n_replicas : 1, 1.0f, n_replicas == 0);
        assert_true((dt_params_packed_bytes(b.params) == 0) == (n_replicas == 0));
        dt_step_result r;
        for (int step = 0; step < 5; step++) must(dt_stepper_run(b.stepper, step, 0.05, false, &r));
        size_t n_bytes = sizeof(float) * (size_t)b.params->n_trained;
        assert_true(n_bytes <= sizeof reference_bits);
        if (n_replicas == 0) memcpy(reference_bits, b.params->master, n_bytes);
        assert_memory_equal(b.params->master, reference_bits, n_bytes);
        drop_bench(&b);
    }
}

TEST(test_stop_is_seen_once) {
    for (int elastic = 0; elastic < 2; elastic++) {
        bench b = {0};
        make_bench(&b, elastic, 2, 0);
        dt_step_result r;
        must(dt_stepper_run(b.stepper, 0, 0.1, true, &r));
        assert_true(r.stop);
        must(dt_stepper_run(b.stepper, 1, 0.1, false, &r));
        assert_false(r.stop);
        drop_bench(&b);
    }
}

TEST(test_bad_step) {
    bench b = {0};
    make_bench(&b, false, 2, 1.0f);
    b.source->x[4][1] = INFINITY;
    size_t n_bytes = sizeof(float) * (size_t)b.params->n_trained;
    float before[64];
    memcpy(before, b.params->master, n_bytes);
    dt_step_result r;
    must(dt_stepper_run(b.stepper, 7, 0.1, false, &r));
    assert_false(r.finite);
    assert_memory_equal(b.params->master, before, n_bytes);
    int micro = -1;
    char name[64];
    must(dt_stepper_find_bad(b.stepper, 7, &micro, name, sizeof name));
    assert_int_equal(micro, 4);
    assert_string_equal(name, "fc");
    assert_int_equal(b.source->sought, 1);
    drop_bench(&b);
}

// Gradients are finite, the update is not: it has been written, and the result says never to save it.
TEST(test_spoiled_step) {
    bench b = {0};
    make_bench(&b, false, 2, 0);
    b.source->y[0][0] = 1e4f;
    dt_step_result r;
    must(dt_stepper_run(b.stepper, 0, 1e-4, false, &r));
    assert_true(r.finite && !r.spoiled);
    must(dt_stepper_run(b.stepper, 1, 3e38, false, &r));
    assert_true(isfinite(r.loss) && isfinite(r.grad_norm));
    assert_true(r.spoiled && !r.finite && r.step == 1);
    drop_bench(&b);
}

TEST(test_dropped_step) {
    for (int k = 0; k < 8; k++) {
        bench b = {0}, whole = {0};
        make_bench(&whole, k % 2, 2, 0);
        make_bench(&b, k % 2, 2, 0);
        size_t n_bytes = sizeof(float) * (size_t)b.params->n_trained;
        dt_step_result r;
        micro_left = k / 2 * (N_MICRO - 1) / 3; // 0, 1, 3, 5 of the 6 micro-batches
        must(dt_stepper_run(b.stepper, 0, 0.1, false, &r));
        assert_true(r.dropped && r.stop);
        assert_memory_equal(b.params->master, whole.params->master, n_bytes);
        micro_left = 1000000; // done again, it is as if nothing had been
        must(dt_stepper_run(b.stepper, 0, 0.1, false, &r));
        assert_false(r.dropped || r.stop);
        must(dt_stepper_run(whole.stepper, 0, 0.1, false, &r));
        assert_memory_equal(b.params->master, whole.params->master, n_bytes);
        drop_bench(&b);
        drop_bench(&whole);
    }
}

TEST_MAIN(NULL, NULL)
