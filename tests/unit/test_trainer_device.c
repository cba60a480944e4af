// The trainer on a device (the CPU's kernels dressed up as one, lazy_device.h): evaluation, checkpoints,
// stopping and resuming although a step's numbers come one step late. The weights in the last checkpoint
// are those of the CPU's run, byte for byte.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lazy_device.h"

#include "base/io.h"
#include "base/log.h"
#include "base/rng.h"
#include "models/models.h"
#include "train/trainer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { H = 16, W = 16, CLASSES = 5, MAX_BATCH = 8, SLOTS = 4 };

static const char yaml[] =
    "run: {name: device, seed: 3}\n"
    "device: {threads: 1, lanes: 1}\n"
    "data: {path: none, fields: {left: {kind: image, channels: 1, size: [16, 16]},\n"
    "  right: {kind: image, channels: 3, size: [16, 16]}, who: {kind: class, classes: 5}}}\n"
    "model: {name: fusion}\n"
    "train: {global_batch: 8, micro_batch: 2, epochs: 3, precision: fp32}\n"
    "eval: {every: 1 epoch}\n"
    "checkpoint: {every: 2 steps, keep: 9}\n"
    "metrics: {sinks: [jsonl]}\n";

// ---- a data set in memory --------------------------------------------------------------------------

static const int64_t n_samples[] = {[DT_SPLIT_TRAIN] = 25, [DT_SPLIT_VAL] = 7, [DT_SPLIT_TEST] = 5};

static dt_field_info fields[3] = {
    {.name = "left", .dtype = DT_U8, .sample_shape = {3, {H, W, 1}}, .is_image = true},
    {.name = "right", .dtype = DT_U8, .sample_shape = {3, {H, W, 3}}, .is_image = true},
    {.name = "who", .dtype = DT_I32, .n_classes = CLASSES}};
static int64_t bad_step; // of the training split; -1: none

typedef struct memory_source {
    dt_batch_source base;
    dt_source_request r;
    dt_backend *b;
    dt_batch batch[SLOTS];
    bool held[SLOTS];
} memory_source;

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
    b->weight[i] = sample < n_samples[s->r.split] ? 1.0f : 0.0f;
    if (s->r.split == DT_SPLIT_TRAIN) b->weight[i] = b->step == bad_step ? INFINITY : 1.0f;
}

static dt_status get(dt_batch_source *base, int64_t step, int leaf, const dt_batch **out,
                     double *wait_s) {
    memory_source *s = base->self;
    int k = 0;
    while (k < SLOTS && s->held[k]) k++;
    assert_true(k < SLOTS);
    s->held[k] = true;
    dt_batch *b = &s->batch[k];
    b->step = step;
    b->leaf = leaf;
    int64_t first = step * s->r.global_batch + (int64_t)leaf * s->r.micro_batch;
    for (int i = 0; i < s->r.micro_batch; i++) fill_sample(s, b, i, first + i);
    *out = b;
    *wait_s = 0;
    return DT_OK;
}

static void release(dt_batch_source *base, const dt_batch *b) {
    memory_source *s = base->self;
    s->held[b - s->batch] = false;
    memset(b->field[0], 0xee, (size_t)s->r.micro_batch * sample_bytes[0]);
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
        for (int f = 0; f < 3; f++)
            s->b->free_host(s->b, s->batch[k].field[f], MAX_BATCH * sample_bytes[f]);
        s->b->free_host(s->b, s->batch[k].weight, MAX_BATCH * sizeof(float));
    }
    free(s);
}

static dt_status open_split(dt_dataset *d, const dt_source_request *r, dt_batch_source **out) {
    memory_source *s = dt_xcalloc(1, sizeof *s);
    s->r = *r;
    s->b = d->self;
    for (int k = 0; k < SLOTS; k++) {
        for (int f = 0; f < 3; f++)
            DT_TRY(s->b->alloc_host(s->b, &s->batch[k].field[f], MAX_BATCH * sample_bytes[f],
                                    "batch"));
        DT_TRY(s->b->alloc_host(s->b, (void **)&s->batch[k].weight, MAX_BATCH * sizeof(float),
                                "batch"));
        s->batch[k].n = s->batch[k].n_valid = r->micro_batch;
    }
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
    free(d);
}

static dt_status open_data(void *ctx, const dt_config *c, dt_backend *b, int workers,
                           const char *skip_log, dt_dataset **out) {
    dt_dataset *d = dt_xcalloc(1, sizeof *d);
    *d = (dt_dataset){.self = b,
                      .n_fields = 3,
                      .fields = fields,
                      .fingerprint = 7,
                      .n_samples = count_samples,
                      .open = open_split,
                      .describe = describe,
                      .close = close_data};
    *out = d;
    return DT_OK;
}

static dt_status build_graph(void *ctx, const dt_graph_request *r, dt_graph **out) {
    dt_model_field f[3];
    for (int i = 0; i < 3; i++)
        f[i] = (dt_model_field){.name = fields[i].name,
                                .sample_shape = fields[i].sample_shape,
                                .dtype = fields[i].dtype,
                                .is_image = fields[i].is_image,
                                .n_classes = fields[i].n_classes};
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 64; k++) {
            f[i].mean[k] = 0.5f;
            f[i].std[k] = 0.25f;
        }
    dt_model_args a = {.config = r->config,
                       .fields = f,
                       .n_fields = 3,
                       .batch = r->batch,
                       .training = r->training};
    return dt_model_graph(out, &a, r->low);
}

// The linker puts this in the place of dt_backend_create (tests/CMakeLists.txt).
static bool on_device;
dt_status __wrap_dt_backend_create(dt_backend **out, const char *kind, const dt_backend_opts *opts);
dt_status __wrap_dt_backend_create(dt_backend **out, const char *kind,
                                   const dt_backend_opts *opts) {
    return on_device ? lazy_backend_create(out, NULL) : dt_backend_create_cpu(out, opts);
}

// ---- runs ------------------------------------------------------------------------------------------

static char dir[64];

static dt_status run(bool device, const char *name, const char *extra) {
    char where[128], named[64];
    snprintf(where, sizeof where, "run.dir=%s", dir);
    snprintf(named, sizeof named, "run.name=%s", name);
    const char *overrides[] = {where, named, extra};
    dt_config *c = NULL;
    assert_int_equal(dt_config_parse(&c, "test", yaml, sizeof yaml - 1, overrides, extra ? 3 : 2),
                     DT_OK);
    dt_comm *comm = NULL;
    assert_int_equal(dt_comm_create_self(&comm), DT_OK);
    FILE *results = tmpfile();
    dt_trainer_args a = {.config = c,
                         .comm = comm,
                         .version = "test",
                         .results = results,
                         .build_graph = build_graph,
                         .open_data = open_data};
    on_device = device;
    dt_trainer_outcome outcome;
    dt_status st = dt_trainer_train(&a, &outcome);
    fclose(results);
    dt_comm_destroy(comm);
    dt_config_destroy(c);
    return st;
}

static char *read_file(const char *name, const char *file, size_t *n) {
    char path[256], *text = NULL;
    snprintf(path, sizeof path, "%s/%s/%s", dir, name, file);
    assert_int_equal(dt_io_read_file(&text, n, path, 0, DT_E_CKPT), DT_OK);
    return text;
}

static void assert_same_file(const char *a, const char *b, const char *file) {
    size_t n = 0, m = 0;
    char *x = read_file(a, file, &n), *y = read_file(b, file, &m);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    free(x);
    free(y);
}

static void assert_same_run(const char *a, const char *b, int step) {
    char file[128];
    snprintf(file, sizeof file, "checkpoints/step-%08d/model.safetensors", step);
    assert_same_file(a, b, file);
    snprintf(file, sizeof file, "checkpoints/step-%08d/optimizer.safetensors", step);
    assert_same_file(a, b, file);
}

// 25 samples in batches of 8: 3 steps an epoch, 9 in all; saved at 2, 4, 6, 8 and at evaluations.
static void test_run_of_the_cpu(void **state) {
    bad_step = -1;
    assert_int_equal(run(false, "cpu", NULL), DT_OK);
    assert_int_equal(run(true, "device", NULL), DT_OK);
    for (int step = 2; step <= 8; step += 2) assert_same_run("cpu", "device", step);
    assert_same_run("cpu", "device", 9);
    assert_same_file("cpu", "device", "result.json");
}

static void test_stop_and_resume(void **state) {
    bad_step = -1;
    assert_int_equal(run(true, "stopped", "run.stop_at=4"), DT_E_PREEMPTED);
    assert_int_equal(run(true, "stopped", "run.stop_at=5"), DT_E_PREEMPTED);
    assert_int_equal(run(true, "stopped", NULL), DT_OK);
    assert_same_run("cpu", "stopped", 9);
    assert_same_file("cpu", "stopped", "result.json");
}

static void test_bad_step_is_named(void **state) {
    bad_step = 7;
    assert_int_equal(run(true, "bad", NULL), DT_E_NUMERIC);
    assert_non_null(strstr(dt_error_message(), "step 7:"));
    assert_non_null(strstr(dt_error_message(), "'loss'"));
    assert_same_run("cpu", "bad", 6);
    bad_step = -1;
    assert_int_equal(run(true, "bad", NULL), DT_OK);
    assert_same_run("cpu", "bad", 9);
}

static void test_too_large(void **state) {
    lazy_free_bytes = 1000;
    assert_int_equal(run(true, "large", NULL), DT_E_USAGE);
    lazy_free_bytes = (size_t)1 << 40;
    static const char *const words[] = {"activations", "batches", "train.micro_batch"};
    for (int i = 0; i < 3; i++) assert_non_null(strstr(dt_error_message(), words[i]));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run_of_the_cpu), cmocka_unit_test(test_stop_and_resume),
        cmocka_unit_test(test_bad_step_is_named), cmocka_unit_test(test_too_large)};
    snprintf(dir, sizeof dir, "/tmp/dtrain-device-XXXXXX");
    if (!mkdtemp(dir)) return 1;
    dt_log_set_level(DT_LOG_ERROR);
    int n = cmocka_run_group_tests(tests, NULL, NULL);
    dt_io_remove_tree(dir);
    return n;
}
