// test_trainer_cuda.c: the trainer on a fake device: evaluation, checkpoints, stopping and resuming although a
// step's numbers come one step late. Losses are the CPU's but for rounding; the weights in the last checkpoint are those
// of a run that did not stop, byte for byte.
#include "fake_cuda.h"
#include "folder.h"
#include "testing.h"
#include "unit/memory_data.h"

#include "base/failpoint.h"
#include "base/io.h"
#include "base/log.h"
#include "checkpoint/ckpt.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char yaml[] = "run: {name: device, seed: 3}\n" MEMORY_YAML
                           "train: {global_batch: 8, micro_batch: 4, epochs: 3, precision: fp32}\n"
                           "eval: {every: 1 epoch}\n"
                           "checkpoint: {every: 2 steps, keep: 9}\n"
                           "metrics: {sinks: [jsonl]}\n";

static int64_t spoiled_step = -1; // whose update overflows
static dt_device real;
static void copy_in(dt_backend *b, void *dst, const void *src, size_t n_bytes, void *stream) {
    dt_device_step *step = (dt_device_step *)src;
    if (n_bytes == DT_HOST_STEP_BYTES && step->step == spoiled_step) step->lr = INFINITY;
    real.copy_in(b, dst, src, n_bytes, stream);
}

static int n_sent; // large copies to the device that wait
static void (*copy_over)(dt_backend *b, void *dst, const void *src, size_t n_bytes);
static void copy_to_device(dt_backend *b, void *dst, const void *src, size_t n_bytes) {
    n_sent += n_bytes > 1 << 14;
    copy_over(b, dst, src, n_bytes);
}

static int n_taken;
static dt_status (*take)(dt_backend *b, void **p, size_t n_bytes, const char *what);
static dt_status alloc(dt_backend *b, void **p, size_t n_bytes, const char *what) {
    n_taken++;
    return take(b, p, n_bytes, what);
}

// What a run asked of the driver and the libraries, noted at its end.
enum { MOST_CALLS = 64 };
static struct {
    const char *name;
    int n;
} calls[MOST_CALLS];
static int n_calls;
static void (*end_device)(dt_backend *b);
static void destroy(dt_backend *b) {
    size_t n = 0;
    const fake_cuda_call *log = fake_cuda_log(dt_cuda_self(b)->api, &n);
    for (size_t i = 0; i < n; i++) {
        int k = 0;
        while (k < n_calls && strcmp(calls[k].name, log[i].call) != 0) k++;
        assert_true(k < MOST_CALLS);
        if (k == n_calls) calls[n_calls++].name = log[i].call;
        calls[k].n++;
    }
    end_device(b);
}

static const char *failing; // the call that fails, once; NULL: none
static int fails_after, fails_with;
static bool fails_once; // on the first device alone

// Stands before the library's own function of that name (tests/CMakeLists.txt).
static bool on_device;
dt_status dt_backend_create(dt_backend **out, dt_device_kind kind, const dt_backend_opts *opts) {
    if (!on_device) return dt_backend_create_cpu(out, opts);
    dt_backend_opts untimed = *opts;
    untimed.timed = false;
    DT_TRY(fake_cuda_backend(out, &untimed));
    real = dt_cuda_self(*out)->device;
    dt_cuda_self(*out)->device.copy_in = copy_in;
    copy_over = (*out)->copy_to_device;
    (*out)->copy_to_device = copy_to_device;
    take = (*out)->alloc;
    (*out)->alloc = alloc;
    end_device = (*out)->destroy;
    (*out)->destroy = destroy;
    if (failing) fake_cuda_fail(dt_cuda_self(*out)->api, failing, fails_after, fails_with);
    if (fails_once) failing = NULL;
    return DT_OK;
}

// ---- runs ------------------------------------------------------------------------------------------

static dt_status run_more(bool device, const char *name, const char *extra, const char *more) {
    char where[300], named[64];
    snprintf(where, sizeof where, "run.dir=%s", folder_path);
    snprintf(named, sizeof named, "run.name=%s", name);
    const char *overrides[] = {where, named, extra, more};
    on_device = device;
    return train_in_memory(yaml, overrides, 2 + (extra != NULL) + (more != NULL));
}

static dt_status run(bool device, const char *name, const char *extra) {
    return run_more(device, name, extra, NULL);
}

static char *read_file(const char *name, const char *file, size_t *n) {
    char *text = NULL;
    must(dt_io_read_file(&text, n, in_folder("%s/%s", name, file), 0, DT_E_CKPT));
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

static dt_safetensors *open_step(const char *name, int step, const char *file) {
    dt_safetensors *s = NULL;
    must(dt_safetensors_open(&s, in_folder("%s/checkpoints/step-%08d/%s.safetensors", name, step, file)));
    return s;
}

// Whether a tensor is the same after two steps of a run.
static void assert_kept(const char *name, const char *tensor, int from, int to, bool kept) {
    dt_safetensors *a = open_step(name, from, "model"), *b = open_step(name, to, "model");
    size_t n = 0;
    const void *x = dt_safetensors_data(a, dt_safetensors_find(a, tensor), &n);
    const void *y = dt_safetensors_data(b, dt_safetensors_find(b, tensor), &n);
    if ((memcmp(x, y, n) == 0) != kept) fail_msg("%s between steps %d and %d", tensor, from, to);
    dt_safetensors_close(a);
    dt_safetensors_close(b);
}

static void assert_no_moments(const char *name, int step, const char *tensor) {
    char moment[128];
    dt_safetensors *s = open_step(name, step, "optimizer");
    snprintf(moment, sizeof moment, "moment1.%s", tensor);
    assert_int_equal(dt_safetensors_find(s, moment), -1);
    assert_true(dt_safetensors_find(s, "moment1.left.4.weight") >= 0);
    dt_safetensors_close(s);
}

// 25 samples in batches of 8: 3 steps an epoch, 9 in all; saved at 2, 4, 6, 8 and at evaluations.
TEST(test_losses_of_the_cpu) {
    bad_step = -1;
    must(run(false, "cpu", NULL));
    assert_int_equal(most_held, 1);
    must(run(true, "whole", NULL));
    assert_int_equal(most_held, 2); // one is computed while the next arrives
    size_t n;
    char *cpu = read_file("cpu", "metrics.jsonl", &n), *whole = read_file("whole", "metrics.jsonl", &n);
    const char *x = cpu, *y = whole;
    int n_losses = 0;
    for (; (x = strstr(x, "\"loss\":")) && (y = strstr(y, "\"loss\":")); x++, y++, n_losses++)
        assert_float_equal(atof(x + 7), atof(y + 7), 1e-4);
    assert_int_equal(n_losses, 9 + 5); // steps, evaluations
    free(cpu);
    free(whole);
}

TEST(test_stop_and_resume) {
    bad_step = -1;
    assert_int_equal(run(true, "stopped", "run.stop_at=4"), DT_E_PREEMPTED);
    assert_int_equal(run(true, "stopped", "run.stop_at=5"), DT_E_PREEMPTED);
    must(run(true, "stopped", NULL));
    assert_same_run("whole", "stopped", 9);
    assert_same_file("whole", "stopped", "result.json");
}

// Phases begin at steps 3 (an epoch) and 5; one tensor stays as it is. A run that stops in front of, at and behind
// a boundary ends with the same bytes as one that does not.
static const char groups[] = "train.groups=[{match: 'left.(0|1)[.].*', freeze: true}, {match: "
                             "'left.*', freeze_until: 1 epoch}"
                             ", {match: 'right.*', freeze_until: 5 steps, lr: 0.5, decay: 0}]";

TEST(test_groups) {
    static const char *const stops[] = {"run.stop_at=2", "run.stop_at=3", "run.stop_at=4", "run.stop_at=5", NULL};
    bad_step = -1;
    must(run_more(true, "frozen", groups, NULL));
    for (int i = 0; i < 5; i++)
        assert_int_equal(run_more(true, "frozen_stopped", groups, stops[i]), stops[i] ? DT_E_PREEMPTED : DT_OK);
    assert_same_run("frozen", "frozen_stopped", 9);
    assert_kept("frozen", "left.0.weight", 2, 9, true);
    assert_kept("frozen", "left.1.running_mean", 2, 9, true);
    assert_kept("frozen", "left.4.weight", 2, 4, false);
    assert_kept("frozen", "right.4.weight", 2, 4, true);
    assert_kept("frozen", "right.5.running_var", 2, 4, true);
    assert_kept("frozen", "right.4.weight", 4, 6, false);
    assert_kept("frozen", "right.5.running_var", 4, 6, false);
    assert_kept("frozen", "head.3.weight", 2, 4, false);
    assert_no_moments("frozen", 9, "left.0.weight");
    must_fail(DT_E_USAGE, "train.groups was",
              run_more(true, "frozen", "train.groups=[{match: 'left.*', lr: 2}]", NULL));
}

// Losses of evaluations in a run's metrics.
static int read_evaluations(const char *name, double *losses) {
    size_t n;
    int count = 0;
    char *text = read_file(name, "metrics.jsonl", &n);
    for (const char *c = text; (c = strstr(c, "\"kind\":\"eval\"")); c++)
        losses[count++] = atof(strstr(c, "\"loss\":") + 7);
    free(text);
    return count;
}

// With averages of the weights an evaluation has the CPU's losses, and exchanges them on the device: one more sends no
// weights there.
TEST(test_averages) {
    double cpu[16], device[16];
    bad_step = -1;
    must(run(false, "cpu_average", "train.ema=0.5"));
    n_sent = 0;
    must(run(true, "average", "train.ema=0.5"));
    const int sent = n_sent;
    n_sent = 0;
    must(run_more(true, "average_once", "train.ema=0.5", "eval.every=3 epochs"));
    const int n = read_evaluations("average", device);
    assert_int_equal(read_evaluations("cpu_average", cpu), n);
    assert_true(n > read_evaluations("average_once", cpu + n));
    for (int i = 0; i < n; i++) assert_float_equal(cpu[i], device[i], 1e-4);
    assert_true(sent <= n_sent + 1); // at the end the best checkpoint, where it is not the last
    assert_same_run("average", "average_once", 9);
}

// Running statistics anew before evaluations: the CPU's losses; other losses than without.
TEST(test_recalibrated) {
    double cpu[16], device[16], plain[16];
    bad_step = -1;
    must(run_more(false, "cpu_again", "eval.recalibrate_bn=2", "train.epochs=1"));
    must(run_more(true, "again", "eval.recalibrate_bn=2", "train.epochs=1"));
    must(run(true, "once", "train.epochs=1"));
    const int n = read_evaluations("again", device);
    assert_int_equal(read_evaluations("cpu_again", cpu), n);
    assert_int_equal(read_evaluations("once", plain), n);
    for (int i = 0; i < n; i++) assert_float_equal(cpu[i], device[i], 1e-4);
    assert_true(fabs(device[0] - plain[0]) > 1e-3);
}

// Adafactor's factored moments: the CPU's losses, and nothing raced for.
TEST(test_factored) {
    static const char adafactor[] = "train.optimizer={name: adafactor, lr: 0.01}";
    double cpu[16], device[16];
    bad_step = -1;
    must(run_more(false, "cpu_factored", adafactor, "train.epochs=1"));
    fake_cuda_races(1);
    must(run_more(true, "factored", adafactor, "train.epochs=1"));
    fake_cuda_races(0);
    const int n = read_evaluations("factored", device);
    assert_int_equal(read_evaluations("cpu_factored", cpu), n);
    for (int i = 0; i < n; i++) assert_float_equal(cpu[i], device[i], 1e-3);
}

TEST(test_bad_step_is_named) {
    bad_step = 7;
    must_fail(DT_E_NUMERIC, "step 7:", run(true, "bad", NULL));
    assert_non_null(strstr(dt_error_message(), "'loss'"));
    assert_same_run("whole", "bad", 6);
    bad_step = -1;
    must(run(true, "bad", NULL));
    assert_same_run("whole", "bad", 9);
}

// Metrics that cannot be written and whatever else fails behind it do not take the place of the first error.
TEST(test_first_error_stays) {
    char failpoint[64];
    bad_step = 1;
    dt_log_set_level((dt_log_level)-1);
    must(dt_failpoint_set("io:0:count"));
    assert_int_equal(run(true, "first", NULL), DT_E_NUMERIC);
    const int n = (int)dt_failpoint_count();
    for (int behind = 0; behind < 4; behind++) {
        must(dt_io_remove_tree(in_folder("first")));
        snprintf(failpoint, sizeof failpoint, "io:%d:enospc", n - behind);
        must(dt_failpoint_set(failpoint));
        must_fail(DT_E_NUMERIC, "'loss'", run(true, "first", NULL));
        dt_failpoint_set(NULL); // a run with fewer calls has not met it
    }
    dt_log_set_level(DT_LOG_ERROR);
    bad_step = -1;
}

// An update that is not finite is never saved: not at a step that saves (6 steps are done), where the run waits for it,
// and not when the step behind it finds out.
TEST(test_spoiled_step_is_not_saved) {
    for (spoiled_step = 4; spoiled_step < 6; spoiled_step++) {
        char step[64], name[16];
        snprintf(step, sizeof step, "step %d: its gradients were finite", (int)spoiled_step);
        snprintf(name, sizeof name, "spoiled%d", (int)spoiled_step);
        must_fail(DT_E_NUMERIC, step, run(true, name, NULL));
        assert_non_null(strstr(dt_error_message(), ".weight' holds NaN"));
        assert_same_run("whole", name, 4);
        assert_false(dt_io_exists(in_folder("%s/checkpoints/step-%08d", name, 6)));
    }
    spoiled_step = -1;
    must(run(true, "spoiled5", NULL));
    assert_same_run("whole", "spoiled5", 9);
}

TEST(test_too_large) {
    double need = 0;
    char bytes[32];
    setenv("FAKE_CUDA_BYTES", "1000", 1);
    assert_int_equal(run(true, "large", NULL), DT_E_USAGE);
    const char *sum = strstr(dt_error_message(), "together ");
    assert_true(sum && sscanf(sum, "together %lf", &need) == 1 && need > 1);
    assert_non_null(strstr(dt_error_message(), "less state (train.optimizer.name)"));
    snprintf(bytes, sizeof bytes, "%.0f", (need + 0.3) * 1048576); // parameters fit, and no more
    setenv("FAKE_CUDA_BYTES", bytes, 1);
    n_taken = 0;
    assert_int_equal(run(true, "large", NULL), DT_E_USAGE);
    assert_int_equal(n_taken, 0);
    unsetenv("FAKE_CUDA_BYTES");
    static const char *const words[] = {"packed weights", "activations", "batches", "reserve", "train.micro_batch"};
    for (int i = 0; i < 5; i++) assert_non_null(strstr(dt_error_message(), words[i]));
}

// Each call of the driver and of its libraries fails once, with an error that passes (memory is short) or one that stays.
// The run ends with one line and an exit code of its own, or is as if nothing had been; the same command then goes on to
// the result of a run that met no error.
static dt_status run_small(const char *name) {
    char where[300], named[64];
    snprintf(where, sizeof where, "run.dir=%s", folder_path);
    snprintf(named, sizeof named, "run.name=%s", name);
    const char *overrides[] = {where, named, "train.epochs=1", "eval.every=1000 steps",
                               "model={name: fusion, encoders: {left: {name: resnet, depth: 10, width: 4}, "
                               "right: {name: vit, dim: 16, heads: 2, blocks: 1, patch: 8}}}"};
    on_device = true;
    return train_in_memory(yaml, overrides, 5);
}
static void end_with(const char *call, int after, int error) {
    must(dt_io_remove_tree(in_folder("driver")));
    failing = call, fails_after = after, fails_with = error;
    const dt_status st = run_small("driver");
    failing = NULL;
    const char *said = st == DT_OK ? "" : dt_error_message();
    print_message("%s %d, %d: %d %s\n", call, after, error, (int)st, said);
    if (st != DT_OK &&
        (!*said || strchr(said, '\n') || (st != DT_E_INTERNAL && !(st == DT_E_USAGE && error == FAKE_OUT_OF_MEMORY))))
        fail_msg("%s %d fails with %d: exit %d, \"%s\"", call, after, error, (int)st, said);
    if (st != DT_OK) must(run_small("driver"));
    assert_same_run("undisturbed", "driver", 3);
}
TEST(test_every_call_fails_once) {
    bad_step = -1;
    n_calls = 0;
    memset(calls, 0, sizeof calls);
    must(run_small("undisturbed"));
    const int n = n_calls;
    assert_true(n > 15);
    const bool full = getenv("FULL");
    int seen[MOST_CALLS];
    for (int k = 0; k < n; k++) seen[k] = calls[k].n;
    for (int k = 0; k < n; k++)
        for (int i = full ? 0 : 2 + k % 2; i < (full ? 6 : 3 + k % 2); i++) // first, middle, last
            end_with(calls[k].name, i / 2 * (seen[k] - 1) / 2, i % 2 ? FAKE_ILLEGAL_ADDRESS : FAKE_OUT_OF_MEMORY);
}

// Another process takes memory: the run begins once more with recomputed activations, which give the same bits, or ends
// with the keys that take less.
TEST(test_memory_that_is_taken) {
    enum { TRIED = 6 };
    int n_same = 0;
    dt_log_set_level((dt_log_level)-1);
    for (fails_once = true, fails_after = 0; fails_after < TRIED; fails_after++) {
        must(dt_io_remove_tree(in_folder("taken")));
        failing = "alloc", fails_with = FAKE_OUT_OF_MEMORY;
        if (run(true, "taken", NULL) != DT_OK) continue; // of what comes before the network
        assert_same_run("whole", "taken", 9);
        size_t n = 0;
        char *text = read_file("taken", "config.yaml", &n);
        const char *at = strstr(text, "recompute:");
        assert_true(at && strncmp(at + 10 + strspn(at + 10, " [-\n\""), "auto", 4) == 0);
        free(text);
        n_same++;
    }
    assert_true(n_same >= TRIED - 1);
    must(dt_io_remove_tree(in_folder("taken")));
    fails_once = false, failing = "alloc", fails_after = 2;
    must_fail(DT_E_INTERNAL, "train.recompute: auto takes less", run(true, "taken", NULL));
    assert_non_null(strstr(dt_error_message(), "lower train.micro_batch"));
    failing = NULL;
    dt_log_set_level(DT_LOG_ERROR);
}

// ---- other networks ----------------------------------------------------------------------------------
// Losses of a run's three steps.
static int run_network(bool device, const char *name, const char *model, const char *a, const char *b, double *losses) {
    char where[300], named[64];
    snprintf(where, sizeof where, "run.dir=%s", folder_path);
    snprintf(named, sizeof named, "run.name=%s", name);
    const char *overrides[] = {
        where, named, model, "train.epochs=1", "eval.every=1000 steps", "train.optimizer={name: sgd, lr: 0.01}", a, b};
    on_device = device;
    must(train_in_memory(yaml, overrides, 8));
    size_t n_bytes;
    int n = 0;
    char *text = read_file(name, "metrics.jsonl", &n_bytes);
    for (const char *c = text; (c = strstr(c, "\"kind\":\"step\"")); c++)
        losses[n++] = atof(strstr(c, "\"loss\":") + 7);
    free(text);
    return n;
}

static void assert_near(const char *model, const char *what, const double *a, const double *b, int n, double most) {
    for (int i = 0; i < n; i++)
        if (!(fabs(a[i] - b[i]) <= most)) fail_msg("%s: %s: step %d: %.9g, %.9g", model, what, i, a[i], b[i]);
}

// Networks of the trunks beside the CPU: fp32, bf16 and fp16, with averages, stochastic depth and dropout; captured or
// not, and with activations that are made again, the bits are the same.
TEST(test_networks) {
    static const struct {
        const char *model, *extra;
        bool brief; // fp32 and fp16 alone
    } nets[] = {
        {"model={name: fusion, drop_path: 0.2, encoders: {left: {name: resnet, depth: 10, width: "
         "8, "
         "se: true, stem: deep, avg_down: true}, right: {name: vit, dim: 24, heads: 3, blocks: 2, "
         "patch: 8}}}",
         "train.ema=0.5"},
        {"model={name: fusion, encoders: {left: {name: cnn}, right: {name: mobilenet_v3, size: "
         "s}}}",
         "train.clip_norm=0.5"},
        // EfficientNet's last batch norms see four values a channel here: with the usual bn_eps two orders of summing on
        // the CPU are 2e-2 apart in the second step, with this one they agree to 1e-7.
        {"model={name: fusion, drop_path: 0.2, encoders: {left: {name: audio_cnn}, right: {name: "
         "efficientnet, bn_eps: 0.1}}}",
         "train.max_steps=2", true},
    };
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++) {
        double cpu[8], x[8];
        const char *m = nets[i].model, *e = nets[i].extra;
        bad_step = -1;
        const int n = run_network(false, "net_cpu", m, e, "train.precision=fp32", cpu);
        assert_int_equal(n, nets[i].brief ? 2 : 3);
        run_network(true, "net", m, e, "train.precision=fp32", x);
        assert_near(m, "fp32", cpu, x, n, nets[i].brief ? 1e-5 : 2e-3);
        run_network(true, "net_fp16", m, e, "train.precision=fp16", x);
        assert_near(m, "fp16", cpu, x, n, 0.05);
        if (nets[i].brief) continue;
        run_network(true, "net_plain", m, e, "device.capture=false", x);
        assert_same_run("net", "net_plain", 3);
        run_network(true, "net_again", m, e, "train.recompute=auto", x);
        assert_same_run("net", "net_again", 3);
        run_network(true, "net_bf16", m, e, "train.precision=bf16", x);
        assert_near(m, "bf16", cpu, x, n, 0.1);
        static const char *const runs[] = {"net_cpu", "net", "net_plain", "net_again", "net_bf16", "net_fp16"};
        for (int k = 0; k < 6; k++) must(dt_io_remove_tree(in_folder("%s", runs[k])));
    }
}

static int set_up(void **state) {
    dt_log_set_level(DT_LOG_ERROR);
    return folder_make(state);
}

TEST_MAIN(set_up, folder_remove)
