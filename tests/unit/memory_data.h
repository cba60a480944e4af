// memory_data.h: a data set of known images in memory and a network for it, for tests that run the whole trainer, or a
// stepper (tests/cuda/device_bench.h): two images and a class (MEMORY_YAML). 25 samples to train on, 7 to validate, 5 to
// test.
#ifndef DT_TESTS_MEMORY_DATA_H
#define DT_TESTS_MEMORY_DATA_H

#include "base/core.h"
#include "base/rng.h"
#include "eval/evaluate.h"
#include "models/models.h"
#include "testing.h"
#include "train/trainer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { H = 16, W = 16, CLASSES = 5, MAX_BATCH = 8, SLOTS = 2 };

// The part of the config that says so; on one thread.
#define MEMORY_YAML                                                                                                    \
    "device: {threads: 1, replicas: 1}\n"                                                                              \
    "data: {path: none, fields: {left: {kind: image, channels: 1, size: [16, 16]},\n"                                  \
    "  right: {kind: image, channels: 3, size: [16, 16]}, who: {kind: class, classes: 5}}}\n"                          \
    "model: {name: fusion}\n"

static const int64_t n_samples[] = {[DT_SPLIT_TRAIN] = 25, [DT_SPLIT_VAL] = 7, [DT_SPLIT_TEST] = 5};

static dt_field_info fields[3] = {
    {.name = "left", .dtype = DT_U8, .sample_shape = {3, {H, W, 1}}, .is_image = true},
    {.name = "right", .dtype = DT_U8, .sample_shape = {3, {H, W, 3}}, .is_image = true, .mixed = true},
    {.name = "who", .dtype = DT_I32, .n_classes = CLASSES}};
// Of this step of the training split the weights of one micro-batch, or of all (-1), are infinite.
static int64_t bad_step = -1, bad_micro = -1; // no step: -1

static int most_held; // batches of the validation at once

typedef struct memory_source memory_source;
struct memory_source {
    dt_batch_source base;
    dt_source_request r;
    dt_batch_memory memory; // a copy: a source may outlive its set
    dt_batch batch[SLOTS];
    bool held[SLOTS];
    int n_gets;
    void (*fill)(memory_source *s, dt_batch *b); // NULL, or puts other images into a batch
    int changes;                                 // its own
};

static const size_t sample_bytes[3] = {H * W, H *W * 3, sizeof(int32_t)};

static void fill_sample(memory_source *s, dt_batch *b, int i, int64_t sample) {
    uint32_t who = (uint32_t)sample % CLASSES;
    for (int f = 0; f < 2; f++) {
        uint8_t *x = (uint8_t *)b->field[f] + (size_t)i * sample_bytes[f];
        dt_rng r = {.seed = 5 + (uint64_t)s->r.split, .slot = (uint32_t)sample, .purpose = who};
        for (size_t k = 0; k < sample_bytes[f]; k++)
            x[k] = (uint8_t)(dt_rng_uniform(&r, (uint32_t)k) * 100 + (double)(who * 30));
    }
    ((int32_t *)b->field[2])[i] = (int32_t)who;
    if (b->mix[1]) { // a share, and in every other step a rectangle
        const int at = b->step % 2 ? 0 : 2 + i + b->micro % 2;
        b->mix[1][i] = (dt_mix_row){40000 + 997 * (i + b->micro), 1, at, at / 2, at};
    }
    b->weight[i] = sample < n_samples[s->r.split] ? 1.0f : 0.0f;
    const bool bad = b->step == bad_step && (bad_micro < 0 || b->micro == bad_micro);
    if (s->r.split == DT_SPLIT_TRAIN) b->weight[i] = bad ? INFINITY : 1.0f;
}

static dt_status get(dt_batch_source *base, int64_t step, int micro, const dt_batch **out, double *wait_s) {
    memory_source *s = base->self;
    int k = 0;
    s->n_gets++;
    while (k < SLOTS && s->held[k]) k++;
    assert_true(k < SLOTS); // who holds all slots would wait for ever
    s->held[k] = true;
    int n_held = 0;
    for (int i = 0; i < SLOTS; i++) n_held += s->held[i];
    if (s->r.split == DT_SPLIT_VAL && n_held > most_held) most_held = n_held;
    dt_batch *b = &s->batch[k];
    b->step = step;
    b->micro = micro;
    int64_t first = step * s->r.global_batch + (int64_t)micro * s->r.micro_batch;
    for (int i = 0; i < s->r.micro_batch; i++) fill_sample(s, b, i, first + i);
    if (s->fill) s->fill(s, b);
    *out = b;
    *wait_s = 0;
    return DT_OK;
}

static void release(dt_batch_source *base, const dt_batch *b) {
    memory_source *s = base->self;
    s->held[b - s->batch] = false;
    for (int f = 0; f < 2; f++) // whoever still reads
        memset(b->field[f], 0xee, (size_t)s->r.micro_batch * sample_bytes[f]);
    if (b->mix[1]) memset(b->mix[1], 0x7f, (size_t)s->r.micro_batch * sizeof(dt_mix_row));
}

static dt_status seek(dt_batch_source *s, int64_t step) {
    return DT_OK;
}
static void stats(dt_batch_source *s, dt_source_stats *out) {
    *out = (dt_source_stats){.n_workers = 1, .max_workers = 1};
}
static void tune(dt_batch_source *s, const dt_source_tuning *t) {}

static void close_source(dt_batch_source *base) {
    memory_source *s = base->self;
    for (int k = 0; k < SLOTS; k++) {
        assert_false(s->held[k]);
        for (int f = 0; f < 3; f++) s->memory.free(s->memory.owner, s->batch[k].field[f], MAX_BATCH * sample_bytes[f]);
        s->memory.free(s->memory.owner, s->batch[k].weight, MAX_BATCH * sizeof(float));
        if (s->r.augment) s->memory.free(s->memory.owner, s->batch[k].mix[1], MAX_BATCH * sizeof(dt_mix_row));
    }
    free(s);
}

static dt_status open_split(dt_dataset *d, const dt_source_request *r, dt_batch_source **out) {
    memory_source *s = dt_xcalloc(1, sizeof *s);
    s->r = *r;
    s->memory = *(const dt_batch_memory *)d->self;
    s->base.self = s;
    dt_status st = DT_OK;
    for (int k = 0; k < SLOTS && st == DT_OK; k++) {
        dt_batch *b = &s->batch[k];
        for (int f = 0; f < 3 && st == DT_OK; f++)
            st = s->memory.alloc(s->memory.owner, &b->field[f], MAX_BATCH * sample_bytes[f], "batch");
        if (st == DT_OK) st = s->memory.alloc(s->memory.owner, (void **)&b->weight, MAX_BATCH * sizeof(float), "batch");
        if (st == DT_OK && r->augment)
            st = s->memory.alloc(s->memory.owner, (void **)&b->mix[1], MAX_BATCH * sizeof(dt_mix_row), "batch");
        b->n = b->n_valid = r->micro_batch;
    }
    if (st != DT_OK) close_source(&s->base);
    DT_TRY(st);
    s->base = (dt_batch_source){.self = s,
                                .n_fields = 3,
                                .fields = fields,
                                .n_samples = n_samples[r->split],
                                .steps_per_epoch = n_samples[r->split] / r->global_batch,
                                .get = get,
                                .release = release,
                                .seek = seek,
                                .stats = stats,
                                .tune = tune,
                                .close = close_source};
    *out = &s->base;
    return DT_OK;
}

static int64_t count_samples(const dt_dataset *d, dt_split split) {
    return n_samples[split];
}
static const char *describe(const dt_dataset *d) {
    return "known images";
}
static void close_data(dt_dataset *d) {
    free(d->self);
    free(d);
}

static dt_field_info *known_fields(void) {
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < DT_MAX_NORMALIZE; k++) fields[i].mean[k] = 0.5f, fields[i].std[k] = 0.25f;
    return fields;
}

static dt_status open_data(void *ctx, const dt_config *c, const dt_batch_memory *memory, int workers,
                           const char *skip_log, const char *classes, dt_dataset **out) {
    dt_dataset *d = dt_xcalloc(1, sizeof *d);
    dt_batch_memory *copy = dt_xcalloc(1, sizeof *copy);
    *copy = *memory;
    *d = (dt_dataset){.self = copy,
                      .n_fields = 3,
                      .fields = known_fields(),
                      .fingerprint = 7,
                      .n_samples = count_samples,
                      .open = open_split,
                      .describe = describe,
                      .close = close_data};
    *out = d;
    return DT_OK;
}

// What one process's training, or the evaluation that `request` asks for, gives on the backend that dt_backend_create
// makes. job: open_data, and results where it prints.
static inline dt_status job_in_memory(dt_trainer_args job, const dt_eval_request *request, const char *yaml,
                                      const char *const *overrides, int n_overrides) {
    dt_config *c = NULL;
    assert_int_equal(dt_config_parse(&c, "test", yaml, strlen(yaml), overrides, n_overrides), DT_OK);
    assert_int_equal(dt_comm_create_self(&job.comm), DT_OK);
    job.config = c, job.version = "test", job.build_graph = dt_model_graph;
    const dt_status st = request ? dt_trainer_eval(&job, request) : dt_trainer_train(&job);
    dt_comm_destroy(job.comm);
    dt_config_destroy(c);
    return st;
}

static inline dt_status train_in_memory(const char *yaml, const char *const *overrides, int n_overrides) {
    FILE *results = tmpfile();
    const dt_trainer_args job = {.results = results, .open_data = open_data};
    const dt_status st = job_in_memory(job, NULL, yaml, overrides, n_overrides);
    fclose(results);
    return st;
}

#endif
