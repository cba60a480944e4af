// sink_report.c: report.html of the run, made anew at each evaluation and at the end.
//
// An evaluation only wakes this sink's thread. The thread reads what metrics.jsonl has got since the last page, waits for
// the evaluation's line, which comes a moment later, and writes the page. Then the thread rests for REST times as long as
// the page took, so that a run which evaluates all the time loses nothing to its pages. A failure is a warning, once.
#include "metrics_internal.h"

#include "base/core.h"
#include "base/log.h"
#include "base/os.h"
#include "base/thread.h"
#include "config/words.h"
#include "observe/report.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { REST = 20 };    // times as long as a page took
#define PATIENCE_S 2.0 // for the line of an evaluation: it was dropped

typedef struct report {
    char *dir;
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    // by `lock`:
    bool due, stop;
    char split[64]; // of the newest evaluation
    int64_t step;
} report;

// Waits until `due` or `stop`; no longer than `seconds`, unless that is 0.
static void pause_for(report *s, double seconds, bool until_due) {
    const double until_s = seconds > 0 ? dt_clock_s() + seconds : INFINITY;
    while (!s->stop && !(until_due && s->due))
        if (!dt_thread_wait(&s->wake, &s->lock, until_s)) break;
}

// Writes the page from the run's files; false: the page could not be written.
static bool write_page(const report *s, dt_run_log **r, const char *split, int64_t step, bool ends) {
    const double begin = dt_clock_s();
    dt_status st = *r ? DT_OK : dt_run_log_open(r, s->dir);
    if (st != DT_OK) {
        dt_run_log_close(*r);
        *r = NULL;
        return false;
    }
    for (; !ends && dt_clock_s() - begin < PATIENCE_S; nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL)) {
        dt_run_log_read_on(*r);
        if (json_integer_value(json_object_get(dt_run_log_eval(*r, split), "step")) >= step) break;
    }
    dt_run_log_read_on(*r);
    char *path = dt_xprintf("%s/report.html", s->dir);
    st = dt_report_write(*r, path);
    if (st == DT_OK && ends) dt_info("report: %s", path);
    free(path);
    return st == DT_OK;
}

static void *sink_report_work(void *state) {
    report *s = state;
    dt_run_log *r = NULL;
    bool warned = false;
    dt_thread_name("report");
    pthread_mutex_lock(&s->lock);
    for (bool ends = false; !ends;) {
        pause_for(s, 0, true);
        char split[sizeof s->split];
        memcpy(split, s->split, sizeof split);
        const int64_t step = s->step;
        ends = s->stop;
        s->due = false;
        pthread_mutex_unlock(&s->lock);
        const double begin = dt_clock_s();
        if (!write_page(s, &r, split, step, ends) && !warned) {
            dt_warn("report.html is not written: %s. Training continues", dt_error_message());
            warned = true;
        }
        dt_error_clear();
        pthread_mutex_lock(&s->lock);
        pause_for(s, 1e-3 + REST * (dt_clock_s() - begin), false);
    }
    pthread_mutex_unlock(&s->lock);
    dt_run_log_close(r);
    return NULL;
}

static dt_status open_report(void **state, const dt_metrics_opts *o) {
    report *s = dt_xcalloc(1, sizeof *s);
    *state = s;
    s->dir = dt_xstrdup(o->run_dir);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake, NULL);
    if (!(o->sinks >> DT_SINK_jsonl & 1))
        dt_warn("metrics.sinks has report without jsonl, from which it is made: there is no "
                "report.html");
    else
        s->has_thread = pthread_create(&s->thread, NULL, sink_report_work, s) == 0;
    return DT_OK;
}

static void sink_report_take(void *state, const dt_metrics_line *r) {
    report *s = state;
    if (r->kind != DT_LINE_eval) return;
    pthread_mutex_lock(&s->lock);
    snprintf(s->split, sizeof s->split, "%s", r->of.eval.split);
    s->step = r->step;
    s->due = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

static void close_report(void *state) {
    report *s = state;
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    if (s->has_thread) pthread_join(s->thread, NULL);
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->lock);
    free(s->dir);
    free(s);
}

const dt_metrics_sink dt_sink_report = {.open = open_report, .take = sink_report_take, .close = close_report};
