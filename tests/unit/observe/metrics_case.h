// metrics_case.h: a run's directory and made-up steps, for the tests of sinks. The clock stands still unless a test moves it.
#ifndef DT_TESTS_METRICS_CASE_H
#define DT_TESTS_METRICS_CASE_H

#ifndef _GNU_SOURCE
#error "define _GNU_SOURCE first"
#endif
#include "base/log.h"
#include "config/words.h"
#include "folder.h"
#include "observe/metrics.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// The clock that sinks go by stands still unless a test moves it, so nothing depends on how fast the machine is.
static int64_t clock_ms = 1000000;
static _Atomic int wall_ahead_s; // of the wall clock

int clock_gettime(clockid_t id, struct timespec *t) {
    const int err = (int)syscall(SYS_clock_gettime, id, t);
    if (id == CLOCK_REALTIME) t->tv_sec += wall_ahead_s;
    if (id == CLOCK_MONOTONIC) *t = (struct timespec){clock_ms / 1000, clock_ms % 1000 * 1000000};
    return err;
}

// Threads that wait for others do so by the machine's clock.
int pthread_cond_clockwait(pthread_cond_t *c, pthread_mutex_t *m, clockid_t clock, const struct timespec *until) {
    struct timespec now, t;
    clock_gettime(clock, &now);
    syscall(SYS_clock_gettime, CLOCK_REALTIME, &t);
    int64_t ns = (until->tv_sec - now.tv_sec) * 1000000000 + until->tv_nsec - now.tv_nsec;
    ns += t.tv_nsec;
    t = (struct timespec){t.tv_sec + ns / 1000000000, ns % 1000000000};
    return pthread_cond_timedwait(c, m, &t);
}

enum {
    TERMINAL = 1 << DT_SINK_terminal,
    JSONL = 1 << DT_SINK_jsonl,
    TENSORBOARD = 1 << DT_SINK_tensorboard,
    PROMETHEUS = 1 << DT_SINK_prometheus,
    REPORT = 1 << DT_SINK_report
};

static int saved_stderr;

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
    int fd = open(in_folder("stderr"), O_WRONLY | O_CREAT | O_APPEND, 0644);
    assert_true(fd >= 0);
    stderr_to(fd);
}

// Inlined at -O3, gcc 12 takes what it returns for a pointer to `text` itself (-Wdangling-pointer).
__attribute__((noinline)) static char *read_text(const char *name) {
    char *text;
    size_t n;
    must(dt_io_read_file(&text, &n, in_folder(name), 0, DT_E_STORAGE));
    return text;
}

static dt_metrics *open_metrics(dt_metrics_opts o) {
    dt_metrics *m;
    o.run_dir = folder_path;
    o.run_name = "test";
    if (o.every_steps == 0) o.every_steps = 10;
    o.total_steps = 100;
    o.steps_per_epoch = 25;
    o.n_epochs = 4;
    must(dt_metrics_open(&m, &o));
    return m;
}

static dt_step_line record(int64_t step) {
    return (dt_step_line){.step = step,
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
        dt_step_line r = record(s);
        dt_metrics_step(m, &r);
    }
}

#endif
