// test_engines_cuda.c: the trainer on the fake device, whose fastest engine changes between starts. A resumed run keeps
// the engines of its checkpoint, without timing and without the cache. With another version of the libraries or of the
// driver it chooses anew and says so in one line.
#include "fake_cuda.h"
#include "folder.h"
#include "testing.h"
#include "unit/memory_data.h"

#include "base/io.h"
#include "base/log.h"
#include "run/run_state.h"

#include <stdio.h>
#include <unistd.h>

static const char yaml[] = "run: {name: engines, seed: 3}\n" MEMORY_YAML
                           "train: {global_batch: 2, micro_batch: 2, max_steps: 9, precision: fp32}\n"
                           "eval: {every: 9 steps}\n"
                           "metrics: {sinks: [jsonl]}\n";

// Stands before the library's own function of that name (tests/CMakeLists.txt).
static dt_cuda_api *api;
dt_status dt_backend_create(dt_backend **out, dt_device_kind kind, const dt_backend_opts *opts) {
    return dt_cuda_backend_create(out, api, NULL, 0, opts);
}

typedef struct start_report {
    bool timed;
    char *engines; // in the checkpoint
    int n_lines;   // of the log that speak of another environment
} start_report;

static int count_text(const char *text, const char *what) {
    int n = 0;
    for (const char *c = text; (c = strstr(c, what)); c++) n++;
    return n;
}

static char *read_file(const char *path, size_t *n) {
    char *text = NULL;
    must(dt_io_read_file(&text, n, path, 0, DT_E_DATA));
    return text;
}

static dt_run_state read_record(const char *run, int step) {
    const char *path = in_folder("%s/checkpoints/step-%08d/state.json", run, step);
    size_t n = 0;
    dt_run_state record;
    char *text = read_file(path, &n);
    dt_run_state_init(&record);
    must(dt_run_state_parse(&record, path, text));
    free(text);
    return record;
}

// Goes on with the run up to `step`, with `fastest` the fastest engine.
static start_report go_on(int step, const char *fastest, const char *versions) {
    char where[300], until[64];
    snprintf(where, sizeof where, "run.dir=%s", folder_path);
    snprintf(until, sizeof until, "run.stop_at=%d", step);
    const char *overrides[] = {where, until};
    setenv("FAKE_CUDA_FASTEST", fastest, 1);
    setenv("FAKE_CUDA_VERSIONS", versions, 1);
    api = fake_cuda_create(NULL);
    const dt_status st = train_in_memory(yaml, overrides, 2);
    if (st != DT_E_PREEMPTED) fail_msg("%d: %s", (int)st, dt_error_message());
    start_report r = {.timed = fake_cuda_count(api, "event_ms") > 0};
    size_t n = 0;
    assert_int_equal(fake_cuda_destroy(api), 0);

    dt_run_state state = read_record("engines", step);
    assert_non_null(state.engines);
    r.engines = dt_xstrdup(state.engines);
    dt_run_state_fini(&state);
    char *text = read_file(in_folder("engines/log"), &n);
    r.n_lines = count_text(text, "this run began on 'cuda: fake GPU");
    assert_int_equal(r.n_lines, count_text(text, ": bits will differ, and engines are chosen anew"));
    free(text);
    return r;
}

static int n_choices(const char *engines, char which) {
    int n = engines[0] == which;
    for (const char *c = engines; *c; c++) n += c[0] == '\n' && c[1] == which;
    return n;
}

TEST(test_resuming_keeps_the_engines) {
    start_report first = go_on(1, "1", "cuDNN 9.19");
    assert_true(first.timed);
    assert_true(n_choices(first.engines, '1') > 10);
    assert_int_equal(n_choices(first.engines, '1'), count_text(first.engines, "\n"));
    must(dt_io_remove_tree(in_folder("cache")));
    start_report second = go_on(2, "2", "cuDNN 9.19");
    assert_false(second.timed);
    assert_string_equal(first.engines, second.engines);
    assert_int_equal(second.n_lines, 0);
    start_report third = go_on(3, "2", "cuDNN 9.20");
    assert_true(third.timed);
    assert_int_equal(n_choices(third.engines, '2'), n_choices(first.engines, '1'));
    assert_int_equal(third.n_lines, 1);
    setenv("FAKE_CUDA_DRIVER", "580.82.07", 1);
    start_report fourth = go_on(4, "1", "cuDNN 9.20");
    unsetenv("FAKE_CUDA_DRIVER");
    assert_true(fourth.timed);
    assert_int_equal(fourth.n_lines, 2);
    free(fourth.engines);
    free(first.engines);
    free(second.engines);
    free(third.engines);
}

// Runs a step, and returns how often engines were timed. Nothing is captured with capture: "device.capture=false".
static int count_timed(const char *name, const char *micro, const char *capture) {
    char where[300], named[64];
    snprintf(where, sizeof where, "run.dir=%s", folder_path);
    snprintf(named, sizeof named, "run.name=%s", name);
    const char *overrides[] = {where, named,   "train.global_batch=8", "train.max_steps=1",
                               micro, capture, "train.memory=28180KiB"};
    must(dt_io_remove_tree(in_folder("cache")));
    api = fake_cuda_create(NULL);
    must(train_in_memory(yaml, overrides, 7));
    const int n = fake_cuda_count(api, "event_ms");
    const int n_captured = fake_cuda_count(api, "capture_begin");
    if (strstr(capture, "false"))
        assert_int_equal(n_captured, 0);
    else
        assert_true(n_captured > n / 3); // of three times of an engine two are of a graph, and steps are graphs
    assert_int_equal(fake_cuda_destroy(api), 0);
    return n;
}

// train.micro_batch: auto times engines for the size that it takes, and for no other that it looks at.
TEST(test_sizes_are_not_timed) {
    const int fixed = count_timed("fixed", "train.micro_batch=2", "device.capture=false");
    assert_int_equal(count_timed("auto", "train.micro_batch=auto", "device.capture=true"), fixed);
    dt_run_state record = read_record("auto", 1);
    assert_int_equal(record.resolved.micro_batch, 2);
    dt_run_state_fini(&record);
    static const char model[] = "checkpoints/step-00000001/model.safetensors";
    size_t n, m;
    char *text = read_file(in_folder("fixed/%s", model), &n);
    char *again = read_file(in_folder("auto/%s", model), &m);
    assert_int_equal(n, m);
    assert_memory_equal(text, again, n);
    free(text);
    free(again);
}

static int set_up(void **state) {
    dt_log_set_level(DT_LOG_WARN);
    folder_make(state);
    return setenv("XDG_CACHE_HOME", in_folder("cache"), 1);
}

TEST_MAIN(set_up, folder_remove)
