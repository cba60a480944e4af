// trace_report.c: see trace_report.h. The critical path is what the training's thread does on the rank whose own work
// (data, forward, backward) takes longest: all others wait for it. That thread is the one that commits.
#include "observe/trace_report.h"

#include "base/core.h"
#include "base/text.h"
#include "observe/report_internal.h"

#include <stdlib.h>
#include <string.h>

enum { N_LONGEST = 10 };

// of all spans of a name
typedef struct total {
    const char *kind, *name; // borrowed of the tree
    double us;               // microseconds, as in the trace event format
    int64_t n;               // spans
} total;

// Chrome's trace event format: "X" complete event, ts and dur in microseconds, pid the rank, tid the thread
typedef struct trace {
    const json_t *events;
    total *names;   // by kind and name
    size_t n_names; // 0 until print_longest
    int n_ranks, n_threads;
} trace;

static double trace_report_number(const json_t *event, const char *key) {
    return json_number_value(json_object_get(event, key));
}

// equal names become neighbours
static int trace_report_by_name(const void *a, const void *b) {
    const total *x = a, *y = b;
    const int kind = strcmp(x->kind, y->kind);
    return kind ? kind : strcmp(x->name, y->name);
}

static int by_time(const void *a, const void *b) {
    const total *x = a, *y = b;
    return (x->us < y->us) - (x->us > y->us); // descending
}

static void print_longest(trace *t, FILE *out) {
    size_t i, n = 0;
    json_t *e;
    t->names = dt_xcalloc(json_array_size(t->events) + 1, sizeof *t->names); // a span each; merged in place below
    // "X": with a duration; others are names of threads and counters
    json_array_foreach((json_t *)t->events, i, e) if (strcmp(dt_report_text(e, "ph"), "X") == 0) t->names[n++] =
        (total){dt_report_text(e, "cat"), dt_report_text(e, "name"), trace_report_number(e, "dur"), 1};
    qsort(t->names, n, sizeof *t->names, trace_report_by_name);
    for (i = 0; i < n; i++) {
        total *last = t->n_names ? &t->names[t->n_names - 1] : NULL; // n_names <= i: reads before it overwrites
        if (last && trace_report_by_name(last, &t->names[i]) == 0) {
            last->us += t->names[i].us;
            last->n++;
        } else {
            t->names[t->n_names++] = t->names[i];
        }
    }
    qsort(t->names, t->n_names, sizeof *t->names, by_time);
    dt_text_printf(out, "%-11s %-40s %10s %8s %10s\n", "kind", "longest", "ms", "times", "ms each");
    for (i = 0; i < t->n_names && i < N_LONGEST; i++) {
        char name[64];
        dt_text_clean(name, sizeof name, t->names[i].name); // names of layers come from configs
        dt_text_printf(out, "%-11.11s %-40.40s %10.3f %8lld %10.4f\n", t->names[i].kind, name, t->names[i].us / 1e3,
                       (long long)t->names[i].n, t->names[i].us / 1e3 / (double)t->names[i].n);
    }
    free(t->names);
}

// Of a rank: microseconds of a kind on the training's thread; NULL: of any kind.
static double time_of(const trace *t, int rank, int thread, const char *kind) { // thread < 0: all
    size_t i;
    json_t *e;
    double us = 0;
    json_array_foreach((json_t *)t->events, i, e) if ((int)trace_report_number(e, "pid") == rank &&
                                                      (thread < 0 || (int)trace_report_number(e, "tid") == thread) &&
                                                      strcmp(dt_report_text(e, "cat"), kind) == 0) us +=
        trace_report_number(e, "dur");
    return us;
}

static int training_thread(const trace *t, int rank, double *span_us) {
    size_t i;
    json_t *e;
    int thread = -1;
    double begin = 1e300, end = 0; // microseconds
    // the last one: one thread commits
    json_array_foreach((json_t *)t->events, i, e) if ((int)trace_report_number(e, "pid") == rank &&
                                                      strcmp(dt_report_text(e, "cat"), "commit") == 0) thread =
        (int)trace_report_number(e, "tid");
    json_array_foreach((json_t *)t->events, i, e) {
        if ((int)trace_report_number(e, "pid") != rank || (int)trace_report_number(e, "tid") != thread ||
            !*dt_report_text(e, "cat"))
            continue;
        const double from = trace_report_number(e, "ts"), to = from + trace_report_number(e, "dur");
        begin = from < begin ? from : begin;
        end = to > end ? to : end;
    }
    *span_us = end > begin ? end - begin : 0; // 0: the rank has none
    return thread;
}

static void print_path(const trace *t, FILE *out) {
    static const char *const kinds[] = {"data", "forward", "backward", "comm", "commit", "evaluation"};
    int slowest = 0, thread = -1;
    double most = -1, span = 0, rest, unused; // unused: only the slowest rank's span is printed
    for (int r = 0; r < t->n_ranks; r++) {
        const int main_thread = training_thread(t, r, &unused);
        double own = 0; // data, forward, backward: without waiting for others
        for (int k = 0; k < 3; k++) own += time_of(t, r, main_thread, kinds[k]);
        if (own > most) most = own, slowest = r;
    }
    thread = training_thread(t, slowest, &span); // -1: nobody committed
    rest = span;
    fprintf(out, "\ncritical path, rank %d of %d: %.3f ms", slowest, t->n_ranks, span / 1e3);
    for (int k = 0; k < 6 && span > 0; k++) {
        const double us = time_of(t, slowest, thread, kinds[k]);
        rest -= us; // what no span accounts for
        if (us > 0) dt_text_printf(out, ", %s %.1f%%", kinds[k], 100 * us / span);
    }
    // nested spans may add up to more
    fprintf(out, ", other %.1f%%\n", span > 0 ? 100 * (rest > 0 ? rest : 0) / span : 0);
    for (int r = 0; r < t->n_ranks; r++) {
        // bucket: begin to end of an all-reduce; comm: waiting for it
        const double all = time_of(t, r, -1, "bucket"), exposed = time_of(t, r, -1, "comm");
        if (all > 0)
            fprintf(out, "communication of rank %d: %.3f ms, %.1f%% of it overlapped with backward\n", r, all / 1e3,
                    100 * (exposed < all ? 1 - exposed / all : 0));
    }
}

dt_status dt_trace_report(const char *run, FILE *out) {
    json_error_t error;
    char *path = dt_xprintf("%s/trace.json", run);
    json_t *root = json_load_file(path, 0, &error), *e;
    trace t = {.events = json_object_get(root, "traceEvents")};
    dt_status st = DT_OK;
    size_t i;
    if (!json_is_array(t.events)) {
        // root: the file is JSON
        st = dt_fail(DT_E_DATA, "%s: %s; a run writes it with metrics.trace.steps=20..30, or on SIGUSR2", path,
                     root ? "no traceEvents" : error.text);
    } else {
        json_array_foreach((json_t *)t.events, i, e) {
            const int rank = (int)trace_report_number(e, "pid");
            if (rank >= t.n_ranks && rank < 1 << 20) t.n_ranks = rank + 1; // 2^20: bounds the loops below
        }
        print_longest(&t, out);
        print_path(&t, out);
    }
    json_decref(root);
    free(path);
    return st;
}
