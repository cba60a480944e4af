// test_metrics.c: the bytes that sinks write: lines of JSON, event records with their checksums, the page; resuming, a full
// disk, no allocation in a step. The endpoint has test_prometheus.c, the terminal test_terminal.c.
#define _GNU_SOURCE
#include "metrics_case.h"

#include "base/hash.h"

#include <jansson.h>
#include <math.h>
#include <sys/stat.h>

// Lines of steps, evaluations and the end in metrics.jsonl; the others are counted by tests of their own.
static int count_lines(void) {
    char *text = read_text("metrics.jsonl");
    int n = 0;
    for (char *line = text; *line; line = strchrnul(line, '\n') + 1)
        n += strncmp(line, "{\"kind\":\"step\"", 14) == 0 || strncmp(line, "{\"kind\":\"eval\"", 14) == 0 ||
             strncmp(line, "{\"kind\":\"end\"", 13) == 0;
    free(text);
    return n;
}

static const char *find_kind(const char *text, const char *kind) {
    char begin[64];
    snprintf(begin, sizeof begin, "{\"kind\":\"%s\"", kind);
    const char *line = strstr(text, begin);
    assert_non_null(line);
    return line;
}

// -- jsonl -----------------------------------------------------------------------------------------
TEST_WITH(test_jsonl, folder_make, folder_remove) {
    dt_metric_value v[] = {{"accuracy", 0.75}, {"loss", NAN}};
    dt_metrics *m = open_metrics((dt_metrics_opts){.sinks = JSONL, .truncate_to = -1});
    run_steps(m, 1, 1);
    for (int i = 0; count_lines() == 0 && i < 500; i++) usleep(20000);
    assert_int_equal(count_lines(), 1); // who watches the file soon sees that steps run
    run_steps(m, 2, 3);
    dt_metrics_eval(m, "val", 3, v, 2, "\"confusion\":[[1,2],[3,4]]");
    int64_t n = dt_metrics_flush(m);
    char *text = read_text("metrics.jsonl"), *line = (char *)find_kind(text, "step");
    assert_int_equal(n, strlen(text));
    for (int i = 1; i <= 4; i++) {
        char *end = strchr(line, '\n');
        assert_non_null(end);
        json_t *j = json_loadb(line, (size_t)(end - line), JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(j);
        if (i == 4) {
            assert_string_equal(json_string_value(json_object_get(j, "kind")), "eval");
            assert_string_equal(json_string_value(json_object_get(j, "split")), "val");
            assert_true(json_real_value(json_object_get(j, "accuracy")) == 0.75);
            assert_true(json_is_null(json_object_get(j, "loss")));
            assert_int_equal(json_array_size(json_object_get(j, "confusion")), 2);
        } else {
            assert_int_equal(json_integer_value(json_object_get(j, "step")), i);
            assert_int_equal(json_integer_value(json_object_get(j, "samples")), 32 * i);
            assert_true(json_number_value(json_object_get(j, "loss")) == 1.0 / i); // to the bit
            assert_true(json_number_value(json_object_get(j, "samples_per_s")) == 64);
            const json_t *seconds = json_object_get(j, "seconds");
            assert_true(json_number_value(json_object_get(seconds, "comm")) == 0.03);
            assert_true(json_integer_value(json_object_get(j, "rss")) > 100000);
        }
        json_decref(j);
        line = end + 1;
    }
    // what a repeated run repeats comes first
    assert_memory_equal(find_kind(text, "step"),
                        "{\"kind\":\"step\",\"step\":1,\"epoch\":0.04,\"samples\":32,\"loss\":1,"
                        "\"lr\":0.001,\"grad_norm\":1.1,\"samples_per_s\"",
                        95);
    free(text);
    dt_metrics_close(m, NULL);
}

// In fp16 a line says with which scale the run goes on, and one of a skipped step that it was.
// The wall clock was an hour ahead when the sinks began to wait, and was set right then.
TEST_WITH(test_the_wall_clock_is_set_back, folder_make, folder_remove) {
    wall_ahead_s = 3600;
    dt_metrics *m = open_metrics((dt_metrics_opts){.sinks = JSONL, .truncate_to = -1});
    usleep(500000);
    wall_ahead_s = 0;
    run_steps(m, 1, 1);
    for (int i = 0; count_lines() == 0 && i < 500; i++) usleep(20000);
    assert_int_equal(count_lines(), 1);
    dt_metrics_close(m, NULL);
}

TEST_WITH(test_skipped_steps, folder_make, folder_remove) {
    dt_metrics *m = open_metrics((dt_metrics_opts){.sinks = JSONL, .truncate_to = -1});
    dt_step_line r = record(1);
    r.loss_scale = 65536;
    dt_metrics_step(m, &r);
    r = record(2);
    r.loss = INFINITY;
    r.skipped = true;
    r.loss_scale = 32768;
    dt_metrics_step(m, &r);
    dt_metrics_flush(m);
    char *text = read_text("metrics.jsonl");
    char *first = (char *)find_kind(text, "step");
    size_t first_bytes = strcspn(first, "\n");
    const char *second = first + first_bytes + 1;
    first[first_bytes] = 0;
    assert_non_null(strstr(first, "\"loss_scale\":65536,"));
    assert_null(strstr(first, "skipped"));
    assert_non_null(strstr(second, "\"loss\":null,"));
    assert_non_null(strstr(second, "\"skipped\":true,\"loss_scale\":32768,\"samples_per_s\":0,"));
    free(text);
    dt_metrics_close(m, NULL);
}

TEST_WITH(test_resume_truncates, folder_make, folder_remove) {
    dt_metrics *m = open_metrics((dt_metrics_opts){.sinks = JSONL, .truncate_to = -1});
    run_steps(m, 1, 10);
    int64_t at = dt_metrics_flush(m);
    char *before = read_text("metrics.jsonl");
    run_steps(m, 11, 15);
    dt_metrics_close(m, &(dt_run_end){15, DT_E_PREEMPTED, "stopped by \"TERM\""});
    assert_int_equal(count_lines(), 16);
    char *ended = read_text("metrics.jsonl");
    assert_non_null(strstr(ended, "}\n{\"kind\":\"end\",\"step\":15,\"status\":75,"
                                  "\"message\":\"stopped by \\\"TERM\\\"\",\"time\":"));
    free(ended);

    m = open_metrics((dt_metrics_opts){.sinks = JSONL, .truncate_to = at});
    run_steps(m, 11, 12);
    dt_metrics_close(m, NULL);
    assert_int_equal(count_lines(), 12);
    char *after = read_text("metrics.jsonl");
    assert_memory_equal(after, before, at);
    free(after);

    // shorter than the checkpoint knows, in the middle of a line: whole lines stay
    char *ledger = strstr(before, "{\"kind\":\"goodput\"");
    at = ledger - before; // the last line is that of step 10
    assert_int_equal(truncate(in_folder("metrics.jsonl"), at - 5), 0);
    stderr_to_file();
    m = open_metrics((dt_metrics_opts){.sinks = JSONL, .truncate_to = at});
    stderr_back();
    run_steps(m, 11, 11);
    dt_metrics_close(m, NULL);
    assert_int_equal(count_lines(), 10);
    after = read_text("metrics.jsonl");
    assert_null(strstr(after, "\"step\":10,")); // the torn line
    assert_non_null(strstr(after, "}\n{\"kind\":\"step\",\"step\":11,"));
    free(after);
    free(before);

    m = open_metrics((dt_metrics_opts){.sinks = JSONL, .truncate_to = -1});
    dt_metrics_close(m, NULL);
    assert_int_equal(count_lines(), 0);
}

// What was kept is `n_bytes` long: there the resumed run began to write.
static void assert_begins_with_start(int64_t n_bytes) {
    char *text = read_text("metrics.jsonl");
    assert_memory_equal(text + n_bytes, "{\"kind\":\"start\"", 15);
    free(text);
}

// A block of zeros, as a power cut leaves it, between lines that are whole.
TEST_WITH(test_resume_zeros, folder_make, folder_remove) {
    static const char zeros[100];
    dt_metrics *m = open_metrics((dt_metrics_opts){.sinks = JSONL, .truncate_to = -1});
    run_steps(m, 1, 3);
    int64_t before = dt_metrics_flush(m);
    run_steps(m, 4, 9);
    int64_t at = dt_metrics_flush(m);
    dt_metrics_close(m, NULL);
    int fd = open(in_folder("metrics.jsonl"), O_WRONLY);
    assert_int_equal(pwrite(fd, zeros, sizeof zeros, before + 30), sizeof zeros);
    close(fd);
    stderr_to_file();
    m = open_metrics((dt_metrics_opts){.sinks = JSONL, .truncate_to = at});
    stderr_back();
    dt_metrics_close(m, NULL);
    assert_begins_with_start(before);
}

// A torn line that is longer than what is read of the file at a time.
TEST_WITH(test_resume_long_line, folder_make, folder_remove) {
    char extra[20000] = "\"x\":\"";
    dt_metrics *m = open_metrics((dt_metrics_opts){.sinks = JSONL, .truncate_to = -1});
    run_steps(m, 1, 3);
    int64_t before = dt_metrics_flush(m);
    memset(extra + 5, 'x', sizeof extra - 7);
    extra[sizeof extra - 2] = '"';
    dt_metrics_eval(m, "val", 3, NULL, 0, extra);
    dt_metrics_flush(m);
    dt_metrics_close(m, NULL);
    char *text = read_text("metrics.jsonl");
    const int64_t at = strchr(find_kind(text, "eval"), '\n') + 1 - text;
    free(text);
    assert_int_equal(truncate(in_folder("metrics.jsonl"), at - 1), 0);
    stderr_to_file();
    m = open_metrics((dt_metrics_opts){.sinks = JSONL, .truncate_to = at});
    stderr_back();
    dt_metrics_close(m, NULL);
    assert_begins_with_start(before);
}

// A write that fails drops records, leaves whole lines only, and the next flush works.
TEST_WITH(test_full_disk, folder_make, folder_remove) {
    dt_metrics *m = open_metrics((dt_metrics_opts){.sinks = JSONL | TENSORBOARD, .truncate_to = -1});
    run_steps(m, 1, 2);
    dt_metrics_flush(m);
    stderr_to_file();
    must(dt_failpoint_set("io:1:short"));
    run_steps(m, 3, 5);
    int64_t size = dt_metrics_flush(m);
    must(dt_failpoint_set(NULL));
    const int n_written = count_lines(); // the thread may have written one of them alone
    assert_in_range(n_written, 2, 4);
    run_steps(m, 6, 6);
    assert_true(dt_metrics_flush(m) > size);
    dt_metrics_summary(m, NULL);
    stderr_back();
    dt_metrics_close(m, NULL);
    assert_int_equal(count_lines(), n_written + 1);
    char *text = read_text("stderr");
    assert_non_null(strstr(text, "metrics are lost, training continues"));
    assert_non_null(strstr(text, "records of the jsonl sink were lost to a failing disk"));
    free(text);
}

// A disk that does not answer holds no step up: the queue takes records until it is full, and drops the rest.
TEST_WITH(test_slow_disk, folder_make, folder_remove) {
    struct timespec begin, end;
    dt_metrics *m = open_metrics((dt_metrics_opts){.sinks = JSONL, .truncate_to = -1});
    dt_metrics_flush(m);
    must(dt_failpoint_set("io:1:slow")); // seven seconds
    run_steps(m, 1, 1);
    usleep(1000000); // the thread takes it, and hangs
    clock_gettime(CLOCK_REALTIME, &begin);
    run_steps(m, 2, 5001);
    clock_gettime(CLOCK_REALTIME, &end);
    assert_in_range(end.tv_sec - begin.tv_sec, 0, 3);
    stderr_to_file();
    dt_metrics_summary(m, NULL);
    stderr_back();
    dt_metrics_close(m, NULL);
    must(dt_failpoint_set(NULL));
    assert_int_equal(count_lines(), 1 + 4096);
    char *text = read_text("stderr");
    assert_non_null(strstr(text, "records of the jsonl sink were dropped: it could not keep up"));
    free(text);
}

static json_t *last_of(const char *kind) {
    char *text = read_text("metrics.jsonl"), begin[64];
    const char *last = NULL;
    snprintf(begin, sizeof begin, "{\"kind\":\"%s\"", kind);
    for (char *at = text; (at = strstr(at, begin)); at++) last = at;
    assert_non_null(last);
    json_t *object = json_loadb(last, strcspn(last, "\n"), 0, NULL);
    assert_non_null(object);
    free(text);
    return object;
}

static double number_of(const json_t *line, const char *name) {
    const json_t *seconds = json_object_get(line, "seconds"), *in = json_object_get(seconds, name);
    const json_t *v = in ? in : json_object_get(line, name);
    assert_true(json_is_number(v));
    return json_number_value(v);
}

// Of three attempts: one is killed (its last line has no ledger), one goes on from step 6 of its 10.
TEST_WITH(test_goodput, folder_make, folder_remove) {
    dt_metrics *m = open_metrics((dt_metrics_opts){.sinks = JSONL, .truncate_to = -1});
    clock_ms += 2000; // starting
    for (int step = 1; step <= 6; step++) {
        clock_ms += 500;
        run_steps(m, step, step);
    }
    const dt_activity before = dt_metrics_activity(m, DT_ACTIVITY_evaluating);
    assert_int_equal(before, DT_ACTIVITY_training);
    clock_ms += 4000000;
    dt_metrics_activity(m, before);
    const int64_t at = dt_metrics_flush(m);
    dt_metrics_activity(m, DT_ACTIVITY_saving);
    clock_ms += 1000;
    dt_metrics_activity(m, before);
    json_t *line = last_of("goodput");
    assert_float_equal(number_of(line, "steps"), 6 * 0.46, 1e-9);
    assert_float_equal(number_of(line, "data"), 6 * 0.01, 1e-9);
    assert_float_equal(number_of(line, "comm"), 6 * 0.03, 1e-9);
    assert_float_equal(number_of(line, "evaluation"), 4000, 1e-9);
    assert_true(number_of(line, "startup") >= 2);
    assert_string_equal(json_string_value(json_object_get(line, "raise")), "evaluation");
    json_decref(line);
    clock_ms += 500;
    run_steps(m, 7, 7);
    dt_metrics_flush(m);
    for (int step = 8; step <= 10; step++) {
        clock_ms += 500;
        run_steps(m, step, step);
    }
    for (int i = 0; count_lines() < 10 && i < 500; i++) usleep(20000);
    char *killed = read_text("metrics.jsonl");
    dt_metrics_close(m, NULL);
    must(dt_io_write_file(in_folder("metrics.jsonl"), killed, strlen(killed)));
    free(killed);

    m = open_metrics((dt_metrics_opts){.sinks = JSONL, .truncate_to = at, .first_step = 6});
    dt_metrics_flush(m);
    line = last_of("start");
    assert_int_equal(number_of(line, "from_step"), 6);
    assert_int_equal(number_of(line, "attempt"), 2);
    assert_int_equal(number_of(line, "lost_steps"), 4);
    assert_float_equal(number_of(line, "lost"), 4 * 0.5, 1e-9);
    assert_float_equal(number_of(line, "steps"), 6 * 0.46, 1e-9);
    assert_float_equal(number_of(line, "data"), 6 * 0.01, 1e-9);
    assert_float_equal(number_of(line, "checkpoint"), 1, 1e-9);
    json_decref(line);
    dt_step_line skipped = record(7);
    skipped.skipped = true;
    clock_ms += 500;
    dt_metrics_step(m, &skipped);
    dt_metrics_close(m, &(dt_run_end){7, DT_E_PREEMPTED, "stopped"});

    // the file of an attempt that ended an hour ago
    const struct timespec ago = {time(NULL) - 3600, 0}, times[] = {ago, ago};
    char *text = read_text("metrics.jsonl"), *time_of = text;
    while ((time_of = strstr(time_of, "\"time\":"))) memcpy(time_of, "\"gone", 5);
    must(dt_io_write_file(in_folder("metrics.jsonl"), text, strlen(text)));
    free(text);
    assert_int_equal(utimensat(AT_FDCWD, in_folder("metrics.jsonl"), times, 0), 0);
    stderr_to_file();
    m = open_metrics((dt_metrics_opts){.sinks = JSONL, .truncate_to = -1}); // no checkpoint
    clock_ms += 500;
    run_steps(m, 1, 1);
    dt_metrics_summary(m, NULL);
    stderr_back();
    line = last_of("goodput");
    const double said = number_of(line, "goodput");
    json_decref(line);
    clock_ms += 100000;
    dt_metrics_close(m, &(dt_run_end){7, DT_OK, ""});
    line = last_of("goodput"); // what the summary said
    assert_float_equal(number_of(line, "goodput"), said, 0);
    assert_int_equal(number_of(line, "attempt"), 3);
    assert_int_equal(number_of(line, "lost_steps"), 4 + 6);
    assert_float_equal(number_of(line, "lost"), 10 * 0.5 + 0.5, 1e-9); // and the skipped one
    assert_float_equal(number_of(line, "steps"), 0.46, 1e-9);
    assert_in_range((int)number_of(line, "waiting"), 3500, 3700);
    json_decref(line);
    text = read_text("stderr");
    assert_non_null(strstr(text, "attempt 3, 10 steps repeated after restarts"));
    assert_non_null(strstr(text, "in evaluation (validation and test); to reduce it: a longer"));
    free(text);
}

TEST_WITH(test_unwritable_directory, folder_make, folder_remove) {
    dt_metrics *m;
    dt_metrics_opts o = {.run_dir = "/proc/none", .sinks = JSONL, .truncate_to = -1};
    assert_int_equal(dt_metrics_open(&m, &o), DT_E_STORAGE);
    assert_null(m);
}

// -- tfevents --------------------------------------------------------------------------------------
static uint64_t fixed(const unsigned char *p, int n) {
    uint64_t v = 0;
    for (int i = n - 1; i >= 0; i--) v = v << 8 | p[i];
    return v;
}

static uint32_t masked(const void *data, size_t n) {
    uint32_t crc = dt_crc32c(0, data, n);
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

static char *events_file(int which) {
    char **names, *found = NULL;
    size_t n;
    must(dt_io_list_dir(&names, &n, folder_path, DT_E_STORAGE));
    for (size_t i = 0; i < n; i++)
        if (strncmp(names[i], "events.out.tfevents.", 20) == 0 && which-- == 0) found = strdup(names[i]);
    dt_io_free_list(names, n);
    assert_non_null(found);
    return found;
}

static bool holds(const unsigned char *data, size_t n, const char *text) {
    return memmem(data, n, text, strlen(text)) != NULL;
}

TEST_WITH(test_tfevents, folder_make, folder_remove) {
    dt_metric_value v[] = {{"accuracy", 0.75}};
    dt_metrics *m = open_metrics((dt_metrics_opts){.sinks = TENSORBOARD, .truncate_to = -1});
    run_steps(m, 1, 26); // 10, 20 and the epoch's end
    dt_metrics_eval(m, "val", 26, v, 1, NULL);
    dt_metrics_close(m, NULL);
    char *name = events_file(0), *data;
    size_t n, at = 0;
    int n_events = 0;
    must(dt_io_read_file(&data, &n, in_folder(name), 0, DT_E_STORAGE));
    const unsigned char *p = (const unsigned char *)data;
    while (at < n) {
        size_t size = (size_t)fixed(p + at, 8);
        assert_int_equal(fixed(p + at + 8, 4), masked(p + at, 8));
        assert_true(at + 12 + size + 4 <= n);
        assert_int_equal(fixed(p + at + 12 + size, 4), masked(p + at + 12, size));
        const unsigned char *event = p + at + 12;
        assert_int_equal(event[0], 1 << 3 | 1); // wall_time
        if (n_events == 0) assert_true(holds(event, size, "brain.Event:2"));
        if (n_events == 1) assert_true(holds(event, size, "\x3a\x02\x08\x01")); // session START
        if (n_events == 2) assert_int_equal(event[10], 10);                     // the step's varint
        if (n_events == 2) assert_true(holds(event, size, "train/loss"));
        if (n_events == 5) assert_true(holds(event, size, "eval/val/accuracy"));
        at += 12 + size + 4;
        n_events++;
    }
    assert_int_equal(n_events, 6);
    free(data);
    free(name);
}

// -- the page --------------------------------------------------------------------------------------
static bool page_has(const char *words) {
    if (!dt_io_exists(in_folder("report.html"))) return false;
    char *text = read_text("report.html");
    const bool has = strstr(text, words) != NULL;
    free(text);
    return has;
}

static void wait_for_page(const char *words) { // minutes are for what hangs
    for (int i = 0; i < 10000 && !page_has(words); i++) usleep(10000);
    assert_true(page_has(words));
}

TEST_WITH(test_report_page, folder_make, folder_remove) {
    dt_metrics *m = open_metrics((dt_metrics_opts){.sinks = JSONL | REPORT,
                                                   .truncate_to = -1,
                                                   .chosen_by = "accuracy",
                                                   .data = "lmdb <photos>",
                                                   .n_samples = {280, 60, 61}});
    for (int step = 1; step <= 2; step++) {
        char value[16];
        dt_step_line r = record(step);
        dt_metric_value v = {"accuracy", 0.8 + 0.0125 * step};
        dt_metrics_step(m, &r);
        dt_metrics_eval(m, "val", step, &v, 1, NULL);
        snprintf(value, sizeof value, ">%.4f<", v.value);
        wait_for_page(value);
    }
    assert_true(page_has("280 training, 60 validation, 61 test"));
    assert_true(page_has("lmdb &lt;photos&gt;"));
    assert_true(page_has("steps of 100"));
    dt_metrics_summary(m, NULL);
    dt_metrics_close(m, &(dt_run_end){2, DT_E_NUMERIC, "loss is <nan>"});
    assert_true(page_has("Failed: loss is &lt;nan&gt;"));
    assert_true(page_has("limited by compute"));
    // without its source it says so and leaves the run alone
    must(dt_io_unlink(in_folder("report.html")));
    stderr_to_file();
    m = open_metrics((dt_metrics_opts){.sinks = REPORT, .truncate_to = -1});
    dt_metrics_close(m, &(dt_run_end){0});
    stderr_back();
    char *said = read_text("stderr");
    assert_non_null(strstr(said, "report without jsonl"));
    assert_false(dt_io_exists(in_folder("report.html")));
    free(said);
}

// -- no allocation -----------------------------------------------------------------------------------
static _Thread_local bool counting;
static _Thread_local int n_allocations;

// the program's own definitions come before libc's; sanitizers need theirs
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);

void *malloc(size_t n) {
    n_allocations += counting;
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size) {
    n_allocations += counting;
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n) {
    n_allocations += counting;
    return __libc_realloc(p, n);
}
#endif

TEST_WITH(test_a_step_allocates_nothing, folder_make, folder_remove) {
    stderr_to_file();
    dt_metrics *m =
        open_metrics((dt_metrics_opts){.sinks = TERMINAL | JSONL | TENSORBOARD, .every_steps = 1, .truncate_to = -1});
    run_steps(m, 1, 2);
    counting = true;
    run_steps(m, 3, 400); // past several flushes of the buffer
    clock_ms += 1100;     // and of the clock, and a look at the memory
    run_steps(m, 401, 410);
    counting = false;
    dt_metrics_close(m, NULL);
    stderr_back();
    assert_int_equal(n_allocations, 0);
}

// `test_metrics write DIR`: a run and its resumption, for TensorBoard's own reader to read.
static int write_example(const char *dir) {
    char wide[281] = "";
    dt_metric_value v[] = {{"accuracy", 0.75}, {"loss", 0.5}, {"recall.\xff\n", 0.25}, {wide, 0.125}};
    snprintf(folder_path, sizeof folder_path, "%s", dir);
    for (int i = 0; i < 280; i++) wide[i] = "\xc3\xa9"[i % 2];
    dt_metrics *m = open_metrics((dt_metrics_opts){.sinks = TENSORBOARD, .truncate_to = -1});
    run_steps(m, 1, 50);
    dt_metrics_eval(m, "val", 50, v, 4, NULL);
    dt_metrics_close(m, NULL);
    m = open_metrics((dt_metrics_opts){.sinks = TENSORBOARD, .truncate_to = 0});
    run_steps(m, 31, 60); // resumed from step 30: 40 and 50 happen again
    dt_metrics_close(m, NULL);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "write") == 0) return write_example(argv[2]);
    return run_all_tests(NULL, NULL);
}
