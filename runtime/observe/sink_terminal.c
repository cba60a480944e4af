// sink_terminal.c: what a person sees. A terminal gets one live line, a pipe gets plain lines.
//
// The live line is redrawn at most ten times a second and always fits the window: the epoch and step first, then loss,
// learning rate, rate, time to go, and where the step's time goes; what does not fit is left out from the end, and the
// epoch's bar takes the cells that are left. Log lines print above it: log.c calls `before`, which erases the line and holds the lock so
// that nobody redraws, and `after`, which draws it again. Nothing here may log while it holds that lock.
// Plain lines (every `every_steps`, also at most ten a second, at epoch ends, evaluations) go through the log and so into
// the run's log file too; a terminal gets those of epochs and evaluations.
#include "metrics_internal.h"

#include "base/core.h"
#include "base/log.h"
#include "base/os.h"
#include "base/text.h"
#include "observe/report.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// bytes of a line; cells of the longest and of the shortest bar
enum { MAX_WIDTH = 256, BAR_CELLS = 24, LEAST_CELLS = 8 };
#define REDRAW_S 0.1 // seconds

typedef struct terminal {
    dt_metrics_opts o;
    bool live;      // stderr is a terminal
    double drawn_s; // clock of the last line
    char phase[32]; // what the run does other than training; "" while it trains
    dt_step_line r; // newest, for redrawing; its loss is of the newest that counted
    bool has_loss;  // some step has counted
    bool ended;     // results follow on stdout, which no line may stand in front of
    dt_step_stats s;
} terminal;

// What the log's hooks need; they may run on any thread.
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char shown[MAX_WIDTH * 2]; // the live line; "" when none is on the screen
static size_t n_shown;            // 0: no line is on the screen

// -- the live line -----------------------------------------------------------------------------------
static void to_screen(const char *text, size_t n) {
    // a terminal that went away must not stop training
    if (write(STDERR_FILENO, text, n) < 0) return; // the result is used so that the compiler does not warn
}

static void before_log(void) {
    pthread_mutex_lock(&mutex);            // held until after_log
    if (n_shown) to_screen("\r\033[K", 4); // \033[K: clears to the end of the line
}

static void after_log(void) {
    if (n_shown) to_screen(shown, n_shown);
    pthread_mutex_unlock(&mutex);
}

// line and screen change under one lock: a log line between them would erase another
static void sink_terminal_show(const char *text) {
    pthread_mutex_lock(&mutex);
    n_shown = (size_t)snprintf(shown, sizeof shown, "\r%s\033[K", text); // \r first: over the line before
    if (n_shown >= sizeof shown) n_shown = sizeof shown - 1; // cut: snprintf returns what it would have written
    to_screen(shown, n_shown);
    pthread_mutex_unlock(&mutex);
}

static void erase(void) {
    pthread_mutex_lock(&mutex);
    if (n_shown) to_screen("\r\033[K", 4);
    n_shown = 0; // from here on hooks draw nothing
    pthread_mutex_unlock(&mutex);
}

// Appends a part when the whole of it fits.
static void sink_terminal_append(char *line, int width, const char *part) {
    size_t n = strlen(line), extra = strlen(part);
    if (n + extra < (size_t)width) memcpy(line + n, part, extra + 1); // shorter parts behind it may still fit
}

// Puts a bar of the fraction between head and tail, where the window has cells left for one.
static void insert_bar(char *line, size_t head, int width, double fraction) { // head: bytes in front of the bar
    // 1: the last cell stays free, or terminals wrap; 2: brackets
    const int room = width - 1 - (int)strlen(line) - 2, cells = room < BAR_CELLS ? room : BAR_CELLS;
    if (cells < LEAST_CELLS) return;                                        // no bar rather than one that says nothing
    memmove(line + head + cells + 2, line + head, strlen(line + head) + 1); // + 1: with the 0
    const int full = (int)(fraction * cells + 0.5);
    line[head] = '[';
    // the arrow stands in the first cell that is not full
    for (int i = 0; i < cells; i++) line[head + 1 + (size_t)i] = i < full ? '=' : i == full ? '>' : ' ';
    line[head + 1 + (size_t)cells] = ']';
}

// "-" as long as every step has overflowed, while the loss scale is being found.
static void print_loss(char *out, size_t cap, const terminal *t, bool is_short) {
    if (t->has_loss)
        snprintf(out, cap, is_short ? "%.4g" : "%.4f", t->r.loss);
    else
        snprintf(out, cap, "-");
}

// "  gpu 97% 412 W 61 C 23.1 GiB", less what the GPU does not report; what limits the steps of one that is not busy; ""
// without one.
static void print_gpu(char *out, size_t cap, const dt_step_stats *s) {
    static const char *const words[] = {DT_BOUND_WORDS(DT_WORD_QUOTED)};
    const double *g = s->gpu;
    int n = snprintf(out, cap, "%s", s->has_gpu ? "  gpu" : "");
    if (!s->has_gpu) return;
    if (!isnan(g[DT_GPU_util])) n += snprintf(out + n, cap - (size_t)n, " %.0f%%", 100 * g[DT_GPU_util]);
    if (g[DT_GPU_util] < DT_GPU_BUSY)
        n += snprintf(out + n, cap - (size_t)n, " (%s)",
                      words[dt_report_bound(s->data_share, s->comm_share, g[DT_GPU_util])]);
    if (!isnan(g[DT_GPU_power_w])) n += snprintf(out + n, cap - (size_t)n, " %.0f W", g[DT_GPU_power_w]);
    if (!isnan(g[DT_GPU_temp_c])) n += snprintf(out + n, cap - (size_t)n, " %.0f C", g[DT_GPU_temp_c]);
    if (!isnan(g[DT_GPU_mem_bytes])) snprintf(out + n, cap - (size_t)n, " %.1f GiB", g[DT_GPU_mem_bytes] / 1073741824);
}

static void append_numbers(const terminal *t, char *line, int width) {
    char part[128], eta[32], loss[64];
    print_loss(loss, sizeof loss, t, true);
    snprintf(part, sizeof part, "  loss %s", loss);
    sink_terminal_append(line, width, part);
    snprintf(part, sizeof part, "  lr %.2e", t->r.lr);
    sink_terminal_append(line, width, part);
    // a decimal for slow runs
    snprintf(part, sizeof part, "  %.*f/s", t->s.smooth_samples_per_s < 100 ? 1 : 0, t->s.smooth_samples_per_s);
    sink_terminal_append(line, width, part);
    dt_text_duration(eta, sizeof eta, t->s.eta_s);
    snprintf(part, sizeof part, "  ETA %s", eta);
    sink_terminal_append(line, width, part);
    snprintf(part, sizeof part, "  data %.0f%% compute %.0f%% comm %.0f%%", 100 * t->s.data_share,
             100 * t->s.compute_share, 100 * t->s.comm_share);
    sink_terminal_append(line, width, part);
    print_gpu(part, sizeof part, &t->s);
    sink_terminal_append(line, width, part);
}

// Whether a line may follow the last one.
static bool is_time(terminal *t) {
    const double clock = dt_clock_s(); // monotonic
    if (clock - t->drawn_s < REDRAW_S) return false;
    t->drawn_s = clock;
    return true;
}

static void sink_terminal_draw(terminal *t, bool now) {
    char line[MAX_WIDTH] = "", part[128];
    if (!t->live || t->ended || (!is_time(t) && !now)) return; // is_time first: now counts as a redraw too
    int width = dt_text_columns();
    if (width >= MAX_WIDTH) width = MAX_WIDTH - 1; // wider windows have an empty rest
    // step 0: nothing was trained; steps count from 1
    const int64_t per = t->o.steps_per_epoch, done = t->r.step > 0 ? (t->r.step - 1) / per : 0;
    const double fraction = (double)(t->r.step - done * per) / (double)per; // of this epoch, 1 at its end
    snprintf(part, sizeof part, "epoch %" PRId64 "/%d ", done + 1, t->o.n_epochs);
    sink_terminal_append(line, width, part);
    const size_t head = strlen(line); // the bar is inserted here, last, as it takes what is left
    snprintf(part, sizeof part, " %3.0f%%  step %" PRId64 "/%" PRId64, 100 * fraction, t->r.step, t->o.total_steps);
    sink_terminal_append(line, width, part);
    if (t->phase[0]) {
        snprintf(part, sizeof part, "  %s", t->phase);
        sink_terminal_append(line, width, part);
    }
    if (t->r.step > 0) append_numbers(t, line, width); // before the first step no numbers
    insert_bar(line, head, width, fraction);
    sink_terminal_show(line);
}

// -- the sink ----------------------------------------------------------------------------------------
static dt_status open_terminal(void **state, const dt_metrics_opts *o) {
    terminal *t = dt_xcalloc(1, sizeof *t);
    const char *term = getenv("TERM");
    t->o = *o;
    t->live = dt_text_on_terminal() && term && strcmp(term, "dumb") != 0; // "dumb": Emacs and CI have no cursor
    if (t->live) dt_log_set_hooks(before_log, after_log);                 // log lines then print above the live line
    *state = t;
    return DT_OK;
}

static void plain_line(const terminal *t) {
    char eta[32], loss[64], gpu[96];
    const dt_step_stats *s = &t->s;
    dt_text_duration(eta, sizeof eta, s->eta_s);
    print_gpu(gpu, sizeof gpu, s);
    print_loss(loss, sizeof loss, t, false);
    dt_info("step %" PRId64 "/%" PRId64 "  epoch %.2f  loss %s  lr %.2e  %.1f samples/s  ETA %s  data %.0f%% "
            "compute %.0f%% comm %.0f%%%s",
            t->r.step, t->o.total_steps, t->r.epoch, loss, t->r.lr, s->smooth_samples_per_s, eta, 100 * s->data_share,
            100 * s->compute_share, 100 * s->comm_share, gpu);
}

static void show_step(terminal *t, const dt_step_line *r, const dt_step_stats *s) {
    const double loss = r->skipped ? t->r.loss : r->loss; // the loss of an overflowed step says nothing
    t->r = *r;
    t->r.loss = loss;
    t->has_loss |= !r->skipped;
    t->s = *s;
    sink_terminal_draw(t, s->epoch_ends); // an epoch's end is drawn at once
    // a terminal has the live line instead
    const bool wanted = !t->live && r->step % t->o.every_steps == 0 && is_time(t);
    if (s->epoch_ends || wanted) plain_line(t);
}

// "recall.cat", or "pose.recall.left" of one of several targets: a metric's name in front of a class.
static bool is_of_one_class(const char *name) {
    static const char *const metrics[] = {
#define WORD(id, ...) #id, // names of metrics, in any order
#include "config/metrics.def"
#undef WORD
    };
    for (const char *dot; (dot = strchr(name, '.')); name = dot + 1)
        // a name between dots: a target may be called as its user likes
        for (size_t i = 0; i < sizeof metrics / sizeof *metrics; i++)
            if (strlen(metrics[i]) == (size_t)(dot - name) && strncmp(metrics[i], name, strlen(metrics[i])) == 0)
                return true;
    return false;
}

// The metric that chooses the best checkpoint comes first; those of one class are for the files.
static void show_eval(const terminal *t, const dt_eval_line *r, int64_t step) {
    char text[1024] = "";
    size_t at = 0;
    for (int rest = 0; rest < 2; rest++) // first pass: the one that chooses; second: the others
        for (int i = 0; i < r->n_values && at < sizeof text; i++) { // snprintf may have wanted more
            const dt_metric_value *v = &r->values[i];
            const bool chooses = t->o.chosen_by && strcmp(v->name, t->o.chosen_by) == 0;
            // exactly one of both passes prints a metric
            if (chooses == (rest == 0) && (chooses || !is_of_one_class(v->name)))
                at += (size_t)snprintf(text + at, sizeof text - at, "  %s %.4f", v->name, v->value);
        }
    dt_info("%s at step %" PRId64 ":%s", r->split, step, text);
}

static void show_activity(terminal *t, dt_activity a) {
    static const char *const words[] = {DT_ACTIVITY_WORDS(DT_WORD_QUOTED)};
    // waiting is for a save that is in flight
    const char *what = a == DT_ACTIVITY_training ? "" : a == DT_ACTIVITY_waiting ? "saving" : words[a];
    if (a == DT_ACTIVITY_ending) {
        t->ended = true;
        if (t->live) erase();
        return;
    }
    bool changed = strcmp(t->phase, what) != 0;
    snprintf(t->phase, sizeof t->phase, "%s", what);
    if (changed) sink_terminal_draw(t, true);
}

static void sink_terminal_take(void *state, const dt_metrics_line *r) {
    if (r->kind == DT_LINE_step) show_step(state, &r->of.step.r, &r->of.step.s);
    if (r->kind == DT_LINE_eval) show_eval(state, &r->of.eval, r->step);
    if (r->kind == DT_LINE_activity) show_activity(state, r->of.activity);
}

static void close_terminal(void *state) {
    terminal *t = state;
    if (t->live) {
        dt_log_set_hooks(NULL, NULL); // before erase: a log line would draw again
        erase();
    }
    free(t);
}

const dt_metrics_sink dt_sink_terminal = {
    .open = open_terminal,
    .take = sink_terminal_take,
    .close = close_terminal,
};
