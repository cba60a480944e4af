// test_metrics.c: every sink's bytes: lines of JSON, event records with their checksums, plain lines and
// the live line (on a pseudo-terminal); resuming, a full disk, no allocation in a step.
#define _GNU_SOURCE
// cmocka wants the four above
#include "base/failpoint.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/log.h"
#include "config/sink_words.h"
#include "metrics/metrics.h"
#include "testing.h"

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// The clock that sinks go by stands still unless a test moves it, so nothing depends on how fast the machine is.
static int64_t clock_ms = 1000000;

int clock_gettime(clockid_t id, struct timespec *t) {
    if (id != CLOCK_MONOTONIC) return (int)syscall(SYS_clock_gettime, id, t);
    *t = (struct timespec){clock_ms / 1000, clock_ms % 1000 * 1000000};
    return 0;
}

enum {
    TERMINAL = 1 << DT_SINK_terminal,
    JSONL = 1 << DT_SINK_jsonl,
    TENSORBOARD = 1 << DT_SINK_tensorboard,
    PROMETHEUS = 1 << DT_SINK_prometheus,
    REPORT = 1 << DT_SINK_report
};

static char run[64];
static int saved_stderr;

static int make_run(void **state) {
    strcpy(run, "/tmp/dtrain-metrics-XXXXXX");
    dt_log_set_level(DT_LOG_INFO);
    return mkdtemp(run) ? 0 : -1;
}

static int remove_run(void **state) {
    dt_failpoint_set(NULL);
    return dt_io_remove_tree(run) == DT_OK ? 0 : -1;
}

// -- helpers ---------------------------------------------------------------------------------------
static char *in_run(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", run, name);
    return path;
}

static void stderr_to(int fd) {
    fflush(stderr);
    saved_stderr = dup(STDERR_FILENO);
    dup2(fd, STDERR_FILENO);
    close(fd);
}

static void stderr_back(void) {
    fflush(stderr);
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
}

static void stderr_to_file(void) {
    int fd = open(in_run("stderr"), O_WRONLY | O_CREAT | O_APPEND, 0644);
    assert_true(fd >= 0);
    stderr_to(fd);
}

// Inlined at -O3, gcc 12 takes what it returns for a pointer to `text` itself (-Wdangling-pointer).
__attribute__((noinline)) static char *read_text(const char *name) {
    char *text;
    size_t n;
    must(dt_io_read_file(&text, &n, in_run(name), 0, DT_E_STORAGE));
    return text;
}

// Lines of steps, evaluations and the end in metrics.jsonl; the others are counted by tests of their own.
static int count_lines(void) {
    char *text = read_text("metrics.jsonl");
    int n = 0;
    for (char *line = text; *line; line = strchrnul(line, '\n') + 1)
        n += strncmp(line, "{\"kind\":\"step\"", 14) == 0 ||
             strncmp(line, "{\"kind\":\"eval\"", 14) == 0 ||
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

static dt_metrics *open_metrics(dt_metrics_opts o) {
    dt_metrics *m;
    o.run_dir = run;
    o.run_name = "test";
    if (o.every_steps == 0) o.every_steps = 10;
    o.total_steps = 100;
    o.steps_per_epoch = 25;
    o.n_epochs = 4;
    must(dt_metrics_open(&m, &o));
    return m;
}

static dt_step_record record(int64_t step) {
    return (dt_step_record){.step = step,
                            .epoch = (double)step / 25,
                            .samples = 32 * step,
                            .loss = 1.0 / (double)step,
                            .lr = 1e-3,
                            .grad_norm = 0.1 + (double)step,
                            .step_s = 0.5,
                            .data_s = 0.01,
                            .compute_s = 0.45,
                            .comm_s = 0.03,
                            .other_s = 0.01,
                            .global_batch = 32};
}

static void run_steps(dt_metrics *m, int64_t from, int64_t to) {
    for (int64_t s = from; s <= to; s++) {
        dt_step_record r = record(s);
        dt_metrics_step(m, &r);
    }
}

// -- jsonl -----------------------------------------------------------------------------------------
TEST_WITH(test_jsonl, make_run, remove_run) {
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
TEST_WITH(test_skipped_steps, make_run, remove_run) {
    dt_metrics *m = open_metrics((dt_metrics_opts){.sinks = JSONL, .truncate_to = -1});
    dt_step_record r = record(1);
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

TEST_WITH(test_resume_truncates, make_run, remove_run) {
    dt_metrics *m = open_metrics((dt_metrics_opts){.sinks = JSONL, .truncate_to = -1});
    run_steps(m, 1, 10);
    int64_t at = dt_metrics_flush(m);
    char *before = read_text("metrics.jsonl");
    run_steps(m, 11, 15);
    dt_metrics_close(m, &(dt_run_end){15, DT_E_PREEMPTED, "stopped by \"TERM\""});
    assert_int_equal(count_lines(), 16);
    char *ended = read_text("metrics.jsonl");
    assert_non_null(strstr(ended, "}\n{\"kind\":\"end\",\"step\":15,\"status\":75,"
                                  "\"message\":\"stopped by \\\"TERM\\\"\"}\n"));
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
    assert_int_equal(truncate(in_run("metrics.jsonl"), at - 5), 0);
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
TEST_WITH(test_resume_zeros, make_run, remove_run) {
    static const char zeros[100];
    dt_metrics *m = open_metrics((dt_metrics_opts){.sinks = JSONL, .truncate_to = -1});
    run_steps(m, 1, 3);
    int64_t before = dt_metrics_flush(m);
    run_steps(m, 4, 9);
    int64_t at = dt_metrics_flush(m);
    dt_metrics_close(m, NULL);
    int fd = open(in_run("metrics.jsonl"), O_WRONLY);
    assert_int_equal(pwrite(fd, zeros, sizeof zeros, before + 30), sizeof zeros);
    close(fd);
    stderr_to_file();
    m = open_metrics((dt_metrics_opts){.sinks = JSONL, .truncate_to = at});
    stderr_back();
    dt_metrics_close(m, NULL);
    assert_begins_with_start(before);
}

// A torn line that is longer than what is read of the file at a time.
TEST_WITH(test_resume_long_line, make_run, remove_run) {
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
    assert_int_equal(truncate(in_run("metrics.jsonl"), at - 1), 0);
    stderr_to_file();
    m = open_metrics((dt_metrics_opts){.sinks = JSONL, .truncate_to = at});
    stderr_back();
    dt_metrics_close(m, NULL);
    assert_begins_with_start(before);
}

// A write that fails drops records, leaves whole lines only, and the next flush works.
TEST_WITH(test_full_disk, make_run, remove_run) {
    dt_metrics *m =
        open_metrics((dt_metrics_opts){.sinks = JSONL | TENSORBOARD, .truncate_to = -1});
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
    assert_non_null(strstr(text, "metrics are lost, training goes on"));
    assert_non_null(strstr(text, "records of the jsonl sink were lost to a failing disk"));
    free(text);
}

// A disk that does not answer holds no step up: the queue takes records until it is full, and drops the rest.
TEST_WITH(test_slow_disk, make_run, remove_run) {
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
TEST_WITH(test_goodput, make_run, remove_run) {
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
    must(dt_io_write_file(in_run("metrics.jsonl"), killed, strlen(killed)));
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
    dt_step_record skipped = record(7);
    skipped.skipped = true;
    clock_ms += 500;
    dt_metrics_step(m, &skipped);
    dt_metrics_close(m, &(dt_run_end){7, DT_E_PREEMPTED, "stopped"});

    // the file of an attempt that ended an hour ago
    const struct timespec ago = {time(NULL) - 3600, 0}, times[] = {ago, ago};
    char *text = read_text("metrics.jsonl"), *time_of = text;
    while ((time_of = strstr(time_of, "\"time\":"))) memcpy(time_of, "\"gone", 5);
    must(dt_io_write_file(in_run("metrics.jsonl"), text, strlen(text)));
    free(text);
    assert_int_equal(utimensat(AT_FDCWD, in_run("metrics.jsonl"), times, 0), 0);
    stderr_to_file();
    m = open_metrics((dt_metrics_opts){.sinks = JSONL, .truncate_to = -1}); // no checkpoint
    clock_ms += 500;
    run_steps(m, 1, 1);
    dt_metrics_summary(m, NULL);
    stderr_back();
    line = last_of("goodput");
    dt_metrics_close(m, NULL);
    assert_int_equal(number_of(line, "attempt"), 3);
    assert_int_equal(number_of(line, "lost_steps"), 4 + 6);
    assert_float_equal(number_of(line, "lost"), 10 * 0.5 + 0.5, 1e-9); // and the skipped one
    assert_float_equal(number_of(line, "steps"), 0.46, 1e-9);
    assert_in_range((int)number_of(line, "waiting"), 3500, 3700);
    json_decref(line);
    text = read_text("stderr");
    assert_non_null(strstr(text, "attempt 3, 10 steps were done twice"));
    assert_non_null(
        strstr(text, "went into evaluation (validation and test); less of it by a longer"));
    free(text);
}

TEST_WITH(test_unwritable_directory, make_run, remove_run) {
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
    must(dt_io_list_dir(&names, &n, run, DT_E_STORAGE));
    for (size_t i = 0; i < n; i++)
        if (strncmp(names[i], "events.out.tfevents.", 20) == 0 && which-- == 0)
            found = strdup(names[i]);
    dt_io_free_list(names, n);
    assert_non_null(found);
    return found;
}

static bool holds(const unsigned char *data, size_t n, const char *text) {
    return memmem(data, n, text, strlen(text)) != NULL;
}

TEST_WITH(test_tfevents, make_run, remove_run) {
    dt_metric_value v[] = {{"accuracy", 0.75}};
    dt_metrics *m = open_metrics((dt_metrics_opts){.sinks = TENSORBOARD, .truncate_to = -1});
    run_steps(m, 1, 26); // 10, 20 and the epoch's end
    dt_metrics_eval(m, "val", 26, v, 1, NULL);
    dt_metrics_close(m, NULL);
    char *name = events_file(0), *data;
    size_t n, at = 0;
    int n_events = 0;
    must(dt_io_read_file(&data, &n, in_run(name), 0, DT_E_STORAGE));
    const unsigned char *p = (const unsigned char *)data;
    while (at < n) {
        size_t size = (size_t)fixed(p + at, 8);
        assert_int_equal(fixed(p + at + 8, 4), masked(p + at, 8));
        assert_true(at + 12 + size + 4 <= n);
        assert_int_equal(fixed(p + at + 12 + size, 4), masked(p + at + 12, size));
        const unsigned char *event = p + at + 12;
        assert_int_equal(event[0], 1 << 3 | 1); // wall_time
        if (n_events == 0) assert_true(holds(event, size, "brain.Event:2"));
        if (n_events == 1) assert_int_equal(event[10], 10); // the step's varint
        if (n_events == 1) assert_true(holds(event, size, "train/loss"));
        if (n_events == 4) assert_true(holds(event, size, "eval/val/accuracy"));
        at += 12 + size + 4;
        n_events++;
    }
    assert_int_equal(n_events, 5);
    free(data);
    free(name);
}

// -- prometheus --------------------------------------------------------------------------------------
static int free_port(void) {
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (const void *)&a, sizeof a), 0);
    assert_int_equal(getsockname(fd, (void *)&a, &n), 0);
    close(fd);
    return ntohs(a.sin_port);
}

static dt_listen loopback(int port) {
    return (dt_listen){.v4 = {.sin_family = AF_INET,
                              .sin_port = htons((uint16_t)port),
                              .sin_addr = {htonl(INADDR_LOOPBACK)}}};
}

static int connect_to(int port) { // < 0: nobody listens
    const dt_listen a = loopback(port);
    const struct timeval limit = {.tv_sec = 20}; // a server that never answers
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (connect(fd, &a.any, sizeof a.v4) == 0) return fd;
    close(fd);
    return -1;
}

// Sends (the rest of) a request: what is answered. heap
static char *finish(int fd, const char *request) {
    size_t at = 0;
    char *text = calloc(1, 65536);
    for (const char *p = request; *p; p++)
        assert_int_equal(send(fd, p, 1, MSG_NOSIGNAL), 1); // in pieces
    for (ssize_t m; (m = recv(fd, text + at, 65535 - at, 0)) > 0;) at += (size_t)m;
    close(fd);
    return text;
}

// What the endpoint answers; NULL: nobody listens. heap
static char *ask(int port, const char *request) {
    const int fd = connect_to(port);
    return fd < 0 ? NULL : finish(fd, request);
}

static const char get[] = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

TEST_WITH(test_prometheus, make_run, remove_run) {
    const dt_metric_value v[] = {{"accuracy", 0.75}, {"recall.a \"b\"\\\n<\xff\xc3\xa9>", NAN}};
    const int port = free_port();
    dt_metrics *m = open_metrics((dt_metrics_opts){.sinks = PROMETHEUS, .listen = loopback(port)});
    run_steps(m, 1, 3);
    dt_metrics_eval(m, "val", 2, v, 1, NULL);
    dt_metrics_eval(m, "val", 3, v, 2, NULL);
    char *text = ask(port, get);
    assert_non_null(text);
    assert_ptr_equal(strstr(text, "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"),
                     text);
    char *body = strstr(text, "\r\n\r\n") + 4;
    assert_int_equal(atoi(strstr(text, "Content-Length: ") + 16), strlen(body));
    assert_non_null(strstr(body, "# TYPE dtrain_step gauge\ndtrain_step{run=\"test\"} 3\n"));
    assert_non_null(strstr(body, "\ndtrain_steps{run=\"test\"} 100\n"));
    assert_non_null(strstr(body, "\ndtrain_samples_per_second{run=\"test\"} 64\n"));
    char *data = strstr(body, "_sum{run=\"test\",phase=\"data\"} ");
    assert_true(data && fabs(atof(strchr(data, ' ')) - 0.03) < 1e-12);
    assert_non_null(
        strstr(body, "dtrain_eval{run=\"test\",split=\"val\",metric=\"accuracy\"} 0.75\n"));
    assert_non_null(
        strstr(body, "metric=\"recall.a \\\"b\\\"\\\\\\n<\xEF\xBF\xBD\xc3\xa9>\"} NaN\n"));
    assert_null(strstr(strstr(body, "\"accuracy\"") + 1, "\"accuracy\"")); // the last one only
    free(text);
    text = ask(port, "GET /healthz HTTP/1.1\r\n\r\n");
    assert_non_null(strstr(text, "HTTP/1.1 200 OK"));
    free(text);
    text = ask(port, "GET /readyz HTTP/1.1\r\n\r\n");
    assert_non_null(strstr(text, "HTTP/1.1 200 OK"));
    free(text);
    text = ask(port, "GET /secret HTTP/1.1\r\n\r\n");
    assert_ptr_equal(strstr(text, "HTTP/1.1 404 "), text);
    free(text);

    // a port that is taken is a warning
    stderr_to_file();
    dt_metrics *other =
        open_metrics((dt_metrics_opts){.sinks = PROMETHEUS, .listen = loopback(port)});
    stderr_back();
    run_steps(other, 1, 1);
    dt_metrics_close(other, NULL);
    char *said = read_text("stderr");
    assert_non_null(strstr(said, "Address already in use: Prometheus sees nothing of this run"));
    free(said);
    dt_metrics_close(m, NULL);
    assert_null(ask(port, get));
}

// What the run does, its checkpoints and its end; the last scrape is waited for, and the file holds what it said.
TEST_WITH(test_prometheus_end, make_run, remove_run) {
    const int port = free_port();
    dt_metrics *m = open_metrics((dt_metrics_opts){.sinks = PROMETHEUS,
                                                   .listen = loopback(port),
                                                   .version = "1 \"x\"",
                                                   .world_size = 3,
                                                   .first_step = 4,
                                                   .textfile = run,
                                                   .linger_s = 0.1});
    char *text = ask(port, "GET /readyz HTTP/1.1\r\n\r\n");
    assert_non_null(strstr(text, "HTTP/1.1 503 "));
    free(text);
    text = ask(port, get);
    assert_non_null(strstr(text, "dtrain_activity{run=\"test\",activity=\"starting\"} 1\n"));
    assert_non_null(strstr(text, "dtrain_build_info{run=\"test\",version=\"1 \\\"x\\\"\"} 1\n"));
    assert_non_null(strstr(text, "\ndtrain_world_size{run=\"test\"} 3\n"));
    assert_non_null(strstr(text, "\ndtrain_step{run=\"test\"} 4\n"));
    assert_null(strstr(text, "dtrain_exit_status{"));
    free(text);
    run_steps(m, 5, 6);
    dt_metrics_activity(m, DT_ACTIVITY_saving);
    dt_metrics_checkpoint(m, 6, 1.5, true);
    dt_metrics_checkpoint(m, 7, 2.5, false);
    text = ask(port, get);
    assert_non_null(strstr(text, "dtrain_activity{run=\"test\",activity=\"saving\"} 1\n"));
    assert_non_null(strstr(text, "dtrain_activity{run=\"test\",activity=\"training\"} 0\n"));
    assert_non_null(strstr(text, "dtrain_checkpoint_step{run=\"test\"} 6\n"));
    assert_non_null(strstr(text, "dtrain_checkpoint_duration_seconds{run=\"test\"} 2.5\n"));
    assert_non_null(strstr(text, "dtrain_checkpoint_failures_total{run=\"test\"} 1\n"));
    const char *buckets[] = {"0.25\"} 0\n", "0.5\"} 2\n", "+Inf\"} 2\n"};
    for (int i = 0; i < 3; i++) { // two steps of half a second
        char want[96];
        snprintf(want, sizeof want,
                 "dtrain_phase_seconds_bucket{run=\"test\",phase=\"step\",le=\"%s", buckets[i]);
        assert_non_null(strstr(text, want));
    }
    free(text);
    dt_metrics_close(m, &(dt_run_end){6, DT_E_NUMERIC, "not finite"});
    text = read_text("dtrain-test.prom");
    assert_non_null(strstr(text, "\ndtrain_exit_status{run=\"test\",reason=\"numeric\"} 6\n"));
    assert_non_null(strstr(text, "activity=\"ending\"} 1\n"));
    free(text);
}

// Clients that connect and send nothing more, a request that never ends or never read keep nobody out.
TEST_WITH(test_prometheus_slow_clients, make_run, remove_run) {
    enum { N = 60 };
    int fds[N];
    const int port = free_port();
    dt_metrics *m = open_metrics((dt_metrics_opts){.sinks = PROMETHEUS, .listen = loopback(port)});
    for (int i = 0; i < N; i++) {
        const char *begin = i % 3 == 0 ? "" : i % 3 == 1 ? "GET /met" : get;
        fds[i] = connect_to(port);
        assert_true(fds[i] >= 0);
        assert_int_equal(send(fds[i], begin, strlen(begin), 0), strlen(begin));
    }
    char *text = ask(port, get);
    assert_true(text && strncmp(text, "HTTP/1.1 200 OK", 15) == 0);
    free(text);
    text = finish(fds[N - 2], get + 8); // "GET /met" came long ago; it was not forgotten meanwhile
    assert_true(strncmp(text, "HTTP/1.1 200 OK", 15) == 0);
    free(text);
    fds[N - 2] = fds[N - 1];
    for (int i = 0; i < N - 1; i++) close(fds[i]);
    dt_metrics_close(m, NULL);
}

// -- terminal ----------------------------------------------------------------------------------------
TEST_WITH(test_skipped_on_the_terminal, make_run, remove_run) {
    stderr_to_file();
    dt_metrics *m =
        open_metrics((dt_metrics_opts){.sinks = TERMINAL, .every_steps = 1, .truncate_to = -1});
    dt_step_record r = record(1);
    dt_metrics_step(m, &r);
    r = record(2);
    r.loss = INFINITY;
    r.skipped = true;
    dt_metrics_step(m, &r);
    dt_metrics_summary(m, NULL);
    dt_metrics_close(m, NULL);
    stderr_back();
    char *text = read_text("stderr");
    assert_non_null(strstr(text, "step 2/100  epoch 0.08  loss 1.0000"));
    assert_non_null(strstr(text, "1 steps were skipped (overflow)"));
    free(text);
}

// Until a step counts there is no loss, and an epoch whose last step is skipped ends all the same.
TEST_WITH(test_skipped_first_and_last, make_run, remove_run) {
    stderr_to_file();
    dt_metrics *m = open_metrics((dt_metrics_opts){.sinks = TERMINAL, .truncate_to = -1});
    for (int step = 1; step <= 25; step++) {
        dt_step_record r = record(step);
        r.skipped = step <= 10 || step == 25;
        if (r.skipped) r.loss = NAN;
        dt_metrics_step(m, &r);
    }
    dt_metrics_close(m, NULL);
    stderr_back();
    char *text = read_text("stderr");
    assert_non_null(strstr(text, "step 10/100  epoch 0.40  loss -  lr"));
    assert_non_null(strstr(text, "step 20/100  epoch 0.80  loss 0.0500  lr"));
    assert_non_null(strstr(text, "step 25/100  epoch 1.00  loss 0.0417  lr"));
    assert_null(strstr(text, "nan"));
    free(text);
}

// -- the page --------------------------------------------------------------------------------------
static bool page_has(const char *words) {
    if (!dt_io_exists(in_run("report.html"))) return false;
    char *text = read_text("report.html");
    const bool has = strstr(text, words) != NULL;
    free(text);
    return has;
}

static void wait_for_page(const char *words) { // minutes are for what hangs
    for (int i = 0; i < 10000 && !page_has(words); i++) usleep(10000);
    assert_true(page_has(words));
}

TEST_WITH(test_report_page, make_run, remove_run) {
    dt_metrics *m = open_metrics((dt_metrics_opts){.sinks = JSONL | REPORT,
                                                   .truncate_to = -1,
                                                   .chosen_by = "accuracy",
                                                   .data = "lmdb <photos>",
                                                   .n_samples = {280, 60, 61}});
    for (int step = 1; step <= 2; step++) {
        char value[16];
        dt_step_record r = record(step);
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
    must(dt_io_unlink(in_run("report.html")));
    stderr_to_file();
    m = open_metrics((dt_metrics_opts){.sinks = REPORT, .truncate_to = -1});
    dt_metrics_close(m, &(dt_run_end){0});
    stderr_back();
    char *said = read_text("stderr");
    assert_non_null(strstr(said, "report without jsonl"));
    assert_false(dt_io_exists(in_run("report.html")));
    free(said);
}

TEST_WITH(test_plain_lines, make_run, remove_run) {
    dt_metric_value v[] = {{"accuracy", 0.9125}};
    stderr_to_file();
    dt_metrics *m = open_metrics((dt_metrics_opts){.sinks = TERMINAL, .truncate_to = -1});
    run_steps(m, 1, 25);
    dt_metrics_eval(m, "val", 25, v, 1, NULL);
    dt_metrics_activity(m, DT_ACTIVITY_saving);
    dt_metrics_summary(m, NULL);
    dt_metrics_close(m, NULL);
    stderr_back();
    char *text = read_text("stderr");
    assert_non_null(strstr(text, "step 10/100  epoch 0.40  loss 0.1000  lr 1.00e-03  64.0 samples/s"
                                 "  ETA 0:45  data 2% compute 90% comm 6%\n"));
    assert_non_null(strstr(text, "step 20/100"));
    assert_non_null(strstr(text, "step 25/100"));
    assert_null(strstr(text, "step 15/100"));
    assert_non_null(strstr(text, "val at step 25:  accuracy 0.9125\n"));
    assert_null(strstr(text, "saving"));
    assert_null(strchr(text, '\r'));
    assert_non_null(strstr(text, "25 steps to step 25, 800 samples"));
    assert_non_null(strstr(text, "limited by compute"));
    free(text);
}

static char *verdict(double data_s, double comm_s) {
    stderr_to_file();
    dt_metrics *m = open_metrics((dt_metrics_opts){.truncate_to = -1});
    for (int i = 1; i <= 10; i++) {
        dt_step_record r = record(i);
        r.data_s = data_s;
        r.comm_s = comm_s;
        if (i == 1) r.data_s = r.step_s = 60; // the first step says nothing
        dt_metrics_step(m, &r);
    }
    dt_metrics_summary(m, NULL);
    dt_metrics_close(m, NULL);
    stderr_back();
    char *text = read_text("stderr");
    unlink(in_run("stderr"));
    return text;
}

TEST_WITH(test_verdict, make_run, remove_run) {
    char *text = verdict(0.06, 0.01);
    assert_non_null(strstr(text, "limited by data"));
    free(text);
    text = verdict(0.04, 0.1);
    assert_non_null(strstr(text, "limited by communication"));
    free(text);
    text = verdict(0.04, 0.05);
    assert_non_null(strstr(text, "limited by compute"));
    assert_non_null(strstr(text, "5.0 samples/s in steps, 64.0 without the first,"));
    free(text);
}

// Everything written to the pseudo-terminal `master` so far.
static void read_screen(int master, char *out, size_t cap) {
    size_t n = 0;
    fcntl(master, F_SETFL, O_NONBLOCK);
    for (;;) {
        ssize_t r = read(master, out + n, cap - 1 - n);
        if (r <= 0) break;
        n += (size_t)r;
    }
    out[n] = '\0';
}

TEST_WITH(test_live_line, make_run, remove_run) {
    static char screen[65536];
    struct winsize window = {.ws_row = 24, .ws_col = 120};
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0) skip();
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    if (slave < 0) skip();
    ioctl(slave, TIOCSWINSZ, &window);
    setenv("TERM", "xterm", 1);
    stderr_to(slave);
    dt_metrics *m = open_metrics((dt_metrics_opts){.sinks = TERMINAL, .truncate_to = -1});
    dt_step_record skipped = record(1);
    skipped.skipped = true;
    dt_metrics_step(m, &skipped);
    run_steps(m, 2, 24); // in an instant: drawn once
    dt_info("a line of the log");
    dt_metrics_activity(m, DT_ACTIVITY_evaluating);
    run_steps(m, 25, 25);
    dt_metrics_close(m, NULL);
    stderr_back();
    read_screen(master, screen, sizeof screen);
    close(master);
    int n_draws = 0;
    for (char *p = screen; (p = strstr(p, "\repoch ")); p++) n_draws++;
    assert_int_equal(n_draws, 6); // not 25
    assert_non_null(strstr(screen, "\repoch 1/4 [=>"));
    assert_non_null(strstr(screen, "step 1/100  loss -  lr 1.00e-03  0.0/s  ETA 0:50"));
    // the log line erases the live line and has it drawn again below
    char *line = strstr(screen, "\r\033[Kdtrain: a line of the log\r\n\repoch 1/4");
    assert_non_null(line);
    assert_non_null(strstr(line, "  evaluating  loss"));
    assert_non_null(strstr(line, "step 25/100  epoch 1.00"));
    for (char *p = screen; (p = strstr(p, "\repoch ")); p++)
        assert_true(strcspn(p + 1, "\033") < 120); // fits the window
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

TEST_WITH(test_a_step_allocates_nothing, make_run, remove_run) {
    stderr_to_file();
    dt_metrics *m = open_metrics((dt_metrics_opts){
        .sinks = TERMINAL | JSONL | TENSORBOARD, .every_steps = 1, .truncate_to = -1});
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
    dt_metric_value v[] = {{"accuracy", 0.75}, {"loss", 0.5}};
    snprintf(run, sizeof run, "%s", dir);
    dt_metrics *m = open_metrics((dt_metrics_opts){.sinks = TENSORBOARD, .truncate_to = -1});
    run_steps(m, 1, 50);
    dt_metrics_eval(m, "val", 50, v, 2, NULL);
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
