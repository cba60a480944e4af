// cmd_watch.c: dtrain watch RUN…: runs live in a terminal, from any machine that sees their directories.
//
// Once a second it reads what the runs have written and draws the screen again, on the terminal's second screen, so
// that what was there before comes back at the end. In a pipe it prints the same once, without colours. Names go
// through dt_text_clean: a terminal gets no sequence of theirs.
#include "launch.h"

#include "base/core.h"
#include "base/text.h"
#include "config/words.h"
#include "observe/run_log.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

// milliseconds; columns of a number; metrics of a run that are shown; bytes of a label, of a whole line
enum { REFRESH_MS = 1000, VALUE = 10, MOST_METRICS = 6, TEXT = 160, LONG_TEXT = 1024 };

typedef struct screen {
    FILE *out;                // of what is drawn: memory in a terminal, of which a window is shown
    bool live;                // a terminal
    int columns, rows, label; // label: columns of it
    int top;                  // the first line that is shown
    int line;                 // lines so far
    int left;                 // columns of this line
} screen;

// ---- drawing ---------------------------------------------------------------------------------------

static void watch_begin_line(screen *s) {
    s->left = s->live ? s->columns : LONG_TEXT; // in a pipe nothing is cut that says why
}
// Ends a line; the next begins.
static void watch_end_line(screen *s) {
    fputs(s->live ? "\033[0m\033[K\n" : "\n", s->out); // \033[K: clears what an earlier, longer line left
    s->line++;
    watch_begin_line(s);
}

static void style(screen *s, const char *code) {
    if (s->live) fprintf(s->out, "\033[%sm", code); // SGR codes: 2 faint, 31 red, 32 green, 33 yellow, 34 blue
}

// At most `most` columns of text, filled up to them where asked for. What is written in East Asia, and emoji, takes two.
static void watch_put_text(screen *s, const char *text, int most, bool fill) {
    char clean[LONG_TEXT];
    int n = 0;
    if (most > s->left) most = s->left;                   // never wraps: a wrapped line would shift those below
    dt_text_clean(clean, sizeof clean, text ? text : ""); // no control characters from files of others
    for (const char *at = clean; *at;) {
        const size_t size = dt_text_utf8_length(at);
        n += (unsigned char)*at >= 0xE3 ? 2 : 1; // lead byte of U+3000 and up in UTF-8
        if (n > most) break;
        fwrite(at, 1, size ? size : 1, s->out); // 0: no whole letter; one byte, so that the loop ends
        at += size ? size : 1;
    }
    for (; fill && n < most; n++) fputc(' ', s->out);
    s->left -= n < most ? n : most;
}

static __attribute__((format(printf, 2, 3))) void watch_put(screen *s, const char *format, ...) {
    char text[TEXT]; // cut where longer
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    watch_put_text(s, text, s->left, false);
}

static void put_styled(screen *s, const char *code, const char *text, int most, bool fill) {
    style(s, code);
    watch_put_text(s, text, most, fill);
    style(s, "0");
}

// eighths of a line's height: U+2581 to U+2588
static const char *const blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};

// Means of the points in `columns` parts of the steps, as eight heights between the least and the greatest.
// `columns` bins of equal width in steps
static void put_sparkline(screen *s, const dt_series *series, int columns) {
    // sums, then counts, in one allocation
    double *sums = dt_xcalloc((size_t)columns * 2, sizeof *sums), *n = sums + columns, least = INFINITY,
           most = -INFINITY;
    const int64_t first = series->n ? series->points[0].first : 0;
    const int64_t span = series->n ? series->points[series->n - 1].last - first + 1 : 1; // at least 1: no division by 0
    for (int i = 0; i < series->n; i++) {
        const dt_series_point *p = &series->points[i];
        // below columns: last <= the last point's last
        const int at = (int)((double)(p->last - first) / (double)span * columns);
        sums[at] += dt_series_mean(p);
        n[at]++;
    }
    for (int i = 0; i < columns; i++) {
        if (n[i] == 0) continue;
        sums[i] /= n[i];
        least = fmin(least, sums[i]);
        most = fmax(most, sums[i]);
    }
    for (int i = 0, level = -1; i < columns; i++) {
        // 7.999: the greatest value is in block 7; a constant curve lies in the middle
        if (n[i] > 0) level = most > least ? (int)((sums[i] - least) / (most - least) * 7.999) : 3;
        // a bin without a point repeats the one before: a gap is no zero
        fputs(level < 0 ? " " : blocks[level], s->out);
    }
    free(sums);
}

// The mean of the newest points, as far as they are of one twentieth of the steps.
static double recent(const dt_series *s) {
    double sum = 0, n = 0;
    // at least five points: smooth, yet a change of speed shows
    for (int i = s->n - 1; i >= 0 && (i >= s->n - 5 || i > s->n - s->n / 20); i--) {
        sum += s->points[i].sum; // sums and counts, as a point may stand for several steps
        n += (double)s->points[i].n;
    }
    return n > 0 ? sum / n : NAN;
}

// The beginning of a line: its faint label.
static void put_label(screen *s, const char *label) {
    put_styled(s, "2", label, s->label, true);
}

static void draw_series(screen *s, const char *split, const char *name, const char *style_code, double value,
                        const dt_series *series) {
    const int room = s->columns - s->label - VALUE - 4; // for the sparkline: behind label, number and gaps
    char label[TEXT];
    if (series->n == 0) return; // a metric that the run has not written yet
    snprintf(label, sizeof label, "%s%s%s", split, *split ? " " : "", name);
    put_label(s, label);
    watch_put(s, " %*.4g  ", VALUE, value);
    style(s, style_code);
    // no shorter, it would say nothing; 100: points are few
    if (room > 8) put_sparkline(s, series, room < 100 ? room : 100);
    watch_end_line(s);
}

static const char *const watch_colours[] = {[DT_RUN_GOES_ON] = "34",
                                            [DT_RUN_SILENT] = "33",
                                            [DT_RUN_FINISHED] = "32",
                                            [DT_RUN_STOPPED] = "33",
                                            [DT_RUN_FAILED] = "31"};

static void watch_draw_head(screen *s, const dt_run_log *r, dt_run_status is, const char *state) {
    const int room = s->columns / 2; // half for the name, half for the state
    put_styled(s, "1", r->name, room, false);
    watch_put(s, "  ");
    put_styled(s, watch_colours[is], state, s->left, false);
    watch_end_line(s);
}

static double seconds_left(const dt_run_log *r, dt_run_status is) {
    const double step_s = recent(&r->numbers[DT_RUN_STEP_S]);
    const int64_t left = dt_run_log_total_steps(r) - r->step;
    return left > 0 && isfinite(step_s) && is == DT_RUN_GOES_ON ? (double)left * step_s : NAN;
}

static void draw_progress(screen *s, const dt_run_log *r, dt_run_status is) {
    const int64_t total = dt_run_log_total_steps(r);
    const double left_s = seconds_left(r, is); // NAN: a stopped run has no time left
    char left[32];
    watch_put(s, "step %" PRId64, r->step);
    // 0: not known, as of a run without metadata
    if (total > 0) watch_put(s, " of %" PRId64 " (%.0f %%)", total, 100 * (double)r->step / (double)total);
    if (isfinite(r->epoch)) watch_put(s, ", epoch %.2f", r->epoch);
    if (isfinite(left_s)) {
        dt_text_duration(left, sizeof left, left_s);
        watch_put(s, ", %s to go", left);
    }
    watch_end_line(s);
}

static void draw_phases(screen *s, const dt_run_log *r) {
    static const char *const names[] = {
        [DT_RUN_DATA_S] = "data", [DT_RUN_COMPUTE_S] = "compute", [DT_RUN_COMM_S] = "comm", [DT_RUN_OTHER_S] = "other"};
    const double all = recent(&r->numbers[DT_RUN_STEP_S]);
    if (!(all > 0)) return; // NAN: no step yet
    put_label(s, "time of a step");
    watch_put(s, " %*.4g ms ", VALUE - 3, 1e3 * all);
    for (int i = DT_RUN_DATA_S; i <= DT_RUN_OTHER_S; i++)
        // shares of a whole step
        watch_put(s, " %s %.0f %%", names[i], 100 * recent(&r->numbers[i]) / all);
    watch_end_line(s);
}

// Each rank's own time of a step as a block; the slowest is marked.
static void draw_each_rank(screen *s, const json_t *ranks) {
    const json_t *data = json_object_get(ranks, "data_s"), *compute = json_object_get(ranks, "compute_s");
    const int slowest = (int)json_integer_value(json_object_get(ranks, "slowest"));
    // 34: columns of the words behind the bars
    const int n = (int)json_array_size(compute), room = s->columns - s->label - VALUE - 34;
    double most = 0;
    if (n < 2) return; // one rank: nothing to compare
    for (int i = 0; i < n; i++) most = fmax(most, dt_run_own_s(data, compute, i));
    put_label(s, "ranks");
    watch_put(s, " %*d  ", VALUE, n);
    // ranks that do not fit are left out; the slowest is named in words
    for (int i = 0; i < n && i < room && most > 0; i++) // yellow, others blue
        put_styled(s, i == slowest ? "33" : "34", blocks[(int)(dt_run_own_s(data, compute, i) / most * 7.999)], 1,
                   false);
    watch_put(s, "  slowest %d, %.2f times the mean", slowest, json_number_value(json_object_get(ranks, "imbalance")));
    watch_end_line(s);
}

// A rank is named once; how it does since then, the newest record of all ranks says.
static void draw_ranks(screen *s, const dt_run_log *r) {
    const json_t *slow = dt_run_log_event(r, "slow_rank"), *ranks = dt_run_log_event(r, "ranks");
    // an older warning: the ranks were compared again since
    if (!slow || json_integer_value(json_object_get(slow, "step")) < json_integer_value(json_object_get(ranks, "step")))
        return;
    style(s, "33");
    watch_put(s, "rank %" JSON_INTEGER_FORMAT " on ", json_integer_value(json_object_get(slow, "rank")));
    watch_put_text(s, json_string_value(json_object_get(slow, "host")), s->columns / 3, false);
    watch_put(s, " is slow: %.1f times the median, most of it ", json_number_value(json_object_get(slow, "times")));
    watch_put_text(s, json_string_value(json_object_get(slow, "phase")), 12, false);
    watch_end_line(s);
}

// The best value so far of what chooses the best checkpoint.
static double best_so_far(const dt_run_log *r, const char **name, int64_t *step) {
    const json_t *lower = dt_run_log_is_lower(r);
    *name = dt_run_log_chosen_by(r);
    return *name && lower ? dt_run_log_best_value(r, *name, lower, step) : NAN;
}

static void draw_best(screen *s, const dt_run_log *r) {
    const char *name;
    int64_t step;
    const double best = best_so_far(r, &name, &step);
    if (!isfinite(best)) return;
    put_label(s, "best so far");
    watch_put(s, " %*.4g  val %.*s at step %" PRId64, VALUE, best, s->columns / 3, name, step);
    watch_end_line(s);
}

// Memory and input queue, and the GPU where there is one.
static void draw_machine(screen *s, const dt_run_log *r) {
    static const struct {
        dt_run_number of;
        double scale;
        const char *unit;
    } gpu[] = {{DT_RUN_GPU_UTIL, 100, "% busy"},
               {DT_RUN_GPU_POWER, 1, "W"},
               {DT_RUN_GPU_TEMP, 1, "°C"},
               {DT_RUN_GPU_CLOCK, 1, "MHz"}};
    const dt_series *of = r->numbers;
    char size[DT_SIZE_CHARS];
    if (of[DT_RUN_RSS].n == 0) return;
    put_label(s, "memory");
    watch_put(s, " %*s ", VALUE, dt_size_text(size, of[DT_RUN_RSS].newest));
    if (of[DT_RUN_QUEUE_SLOTS].newest > 0 && of[DT_RUN_QUEUE_SLOTS].n > 0)
        watch_put(s, " queue %.0f of %.0f batches", of[DT_RUN_QUEUE].newest, of[DT_RUN_QUEUE_SLOTS].newest);
    watch_end_line(s);
    if (of[DT_RUN_GPU_POWER].n + of[DT_RUN_GPU_MEM].n == 0) return;
    put_label(s, "GPU");
    watch_put(s, " %*s ", VALUE, of[DT_RUN_GPU_MEM].n > 0 ? dt_size_text(size, of[DT_RUN_GPU_MEM].newest) : "");
    for (int i = 0; i < 4; i++) // a GPU may not report one, as a part of one its utilization
        if (of[gpu[i].of].n > 0) watch_put(s, " %.0f %s", gpu[i].scale * recent(&of[gpu[i].of]), gpu[i].unit);
    watch_end_line(s);
}

// Of several runs: a line each.
static void draw_table(screen *s, dt_run_log *const *runs, int n) {
    static const char *const words[] = {[DT_RUN_GOES_ON] = "training",
                                        [DT_RUN_SILENT] = "silent",
                                        [DT_RUN_FINISHED] = "finished",
                                        [DT_RUN_STOPPED] = "stopped",
                                        [DT_RUN_FAILED] = "failed"};
    int widest = 4, room = s->columns - 56;
    for (int i = 0; i < n; i++) widest = (int)strlen(runs[i]->name) > widest ? (int)strlen(runs[i]->name) : widest;
    if (widest < room || !s->live) room = widest;
    if (room < 12) room = 12;
    style(s, "2");
    watch_put_text(s, "run", room, true);
    watch_put(s, "  %-8s %15s %9s %9s %8s", "state", "step", "loss", "best", "left");
    watch_end_line(s);
    for (int i = 0; i < n; i++) {
        const dt_run_log *r = runs[i];
        char state[LONG_TEXT], steps[48], left[32] = "", best[32] = "";
        const dt_run_status is = dt_run_log_state(r, state, sizeof state);
        const double left_s = seconds_left(r, is);
        const char *name;
        int64_t step;
        const double value = best_so_far(r, &name, &step);
        snprintf(steps, sizeof steps, "%" PRId64 "/%" PRId64, r->step, dt_run_log_total_steps(r));
        if (isfinite(left_s)) dt_text_duration(left, sizeof left, left_s);
        if (isfinite(value)) snprintf(best, sizeof best, "%.4g", value);
        watch_put_text(s, r->name, room, true);
        watch_put(s, "  ");
        put_styled(s, watch_colours[is], words[is], 8, true);
        watch_put(s, " %15s %9.4g %9s %8s", steps, r->numbers[DT_RUN_LOSS].newest, best, left);
        watch_end_line(s);
    }
    watch_end_line(s);
}

static void draw_busy(screen *s, const json_t *goodput) {
    const json_t *cores = json_object_get(goodput, "cores_usable");
    if (!cores) return; // there only where the machine is busy
    style(s, "33");
    watch_put(s, "the machine is busy: this process got %.1f of %d cores",
              json_number_value(json_object_get(goodput, "cores_got")), (int)json_integer_value(cores));
    watch_end_line(s);
}

static void draw_run(screen *s, const dt_run_log *r) {
    const char *val = dt_split_name(DT_SPLIT_VAL);
    char state[LONG_TEXT];
    const dt_run_status is = dt_run_log_state(r, state, sizeof state);
    int n = 0;
    watch_draw_head(s, r, is, state);
    draw_progress(s, r, is);
    draw_series(s, "", "loss", "34", r->numbers[DT_RUN_LOSS].newest, &r->numbers[DT_RUN_LOSS]);
    for (int i = 0; i < r->n_metrics && n < MOST_METRICS; i++) {
        const dt_run_metric *m = &r->metrics[i];
        if (strcmp(m->split, val) != 0 || dt_run_is_detail(r, m->name)) continue;
        draw_series(s, val, m->name, "33", m->series.newest, &m->series);
        n++;
    }
    draw_best(s, r);
    draw_series(s, "", "gradient norm", "32", r->numbers[DT_RUN_GRAD_NORM].newest, &r->numbers[DT_RUN_GRAD_NORM]);
    draw_series(s, "", "samples/s", "36", recent(&r->numbers[DT_RUN_RATE]), &r->numbers[DT_RUN_RATE]);
    draw_phases(s, r);
    draw_machine(s, r);
    draw_each_rank(s, dt_run_log_event(r, "ranks"));
    draw_ranks(s, r);
    if (is == DT_RUN_GOES_ON) draw_busy(s, dt_run_log_event(r, "goodput"));
}

// Running runs first, others as they were given.
static void order_runs(dt_run_log **runs, int n) {
    for (int i = 1; i < n; i++) {
        char text[LONG_TEXT];
        dt_run_log *r = runs[i];
        int at = i;
        if (dt_run_log_state(r, text, sizeof text) > DT_RUN_SILENT) continue;
        for (; at > 0 && dt_run_log_state(runs[at - 1], text, sizeof text) > DT_RUN_SILENT; at--)
            runs[at] = runs[at - 1];
        runs[at] = r;
    }
}

// Draws all lines into memory; a terminal gets those of its window.
static void watch_draw(screen *s, dt_run_log **runs, int n) {
    struct winsize w;
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *const terminal = s->out;
    s->columns = 100;
    s->line = 0;
    // each time: the window may have been resized
    if (s->live && ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0) {
        s->columns = w.ws_col;
        s->rows = w.ws_row;
    }
    // narrow windows have more of the number
    s->label = s->columns < 60 ? 16 : 18;
    if (s->live && (s->out = open_memstream(&text, &n_bytes)) == NULL) s->out = terminal;
    watch_begin_line(s);
    order_runs(runs, n);
    if (n > 1) draw_table(s, runs, n);
    for (int i = 0; i < n; i++) {
        if (i > 0) watch_end_line(s); // an empty line between runs
        draw_run(s, runs[i]);
    }
    if (s->out != terminal) fclose(s->out);
    s->out = terminal;
    const int room = s->rows - 1; // the last row is for the keys
    if (s->top > s->line - room) s->top = s->line - room;
    if (s->top < 0) s->top = 0;
    if (s->live) fputs("\033[H", s->out); // to the top left: overwriting does not flicker, clearing does
    int k = 0;
    for (char *at = text, *end; at && (end = strchr(at, '\n')); at = end + 1, k++)
        if (k >= s->top && k < s->top + room) fwrite(at, 1, (size_t)(end + 1 - at), s->out);
    free(text);
    if (s->live) fputs("\033[J\033[2mq leaves", s->out); // clears below; last row
    if (s->live && s->line > room && s->columns > 40)
        fprintf(s->out, ", arrows scroll: %d to %d of %d", s->top + 1, s->top + room, s->line);
    if (s->live) fputs("\033[0m", s->out);
    fflush(s->out);
}

// ---- the terminal ----------------------------------------------------------------------------------

// written by the handler, read by watch_follow
static volatile sig_atomic_t stop_signal; // to end
static void watch_stop(int signal) {
    stop_signal = signal;
}

// By a line, a window, or to an end; keys as terminals send them, and those of less.
static void scroll(screen *s, const char *key) {
    static const struct {
        const char *key, *other;
        int lines; // 0: a window
        int direction;
    } keys[] = {{"\033[A", "k", 1, -1}, {"\033[B", "j", 1, 1},        {"\033[5~", "b", 0, -1},
                {"\033[6~", " ", 0, 1}, {"\033[H", "g", 1 << 20, -1}, {"\033[F", "G", 1 << 20, 1}};
    while (*key) { // several may come at once
        size_t n = 1;
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
            const bool is_first = strncmp(key, keys[i].key, strlen(keys[i].key)) == 0;
            if (!is_first && *key != *keys[i].other) continue;
            s->top += keys[i].direction * (keys[i].lines ? keys[i].lines : s->rows - 2); // watch_draw keeps it in range
            n = is_first ? strlen(keys[i].key) : 1;
            break;
        }
        key += n;
    }
}

static void watch_follow(screen *s, dt_run_log ***runs, int *n, const dt_cli_words *paths) {
    struct termios before, raw;
    struct sigaction act = {.sa_handler = watch_stop};
    // stdin is a terminal: keys can be read; else Ctrl-C alone ends
    const bool keys = tcgetattr(STDIN_FILENO, &before) == 0;
    // the terminal's state is restored below, so signals must not end the process
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    sigaction(SIGHUP, &act, NULL);
    if (keys) {
        raw = before;
        raw.c_lflag &= (tcflag_t) ~(ICANON | ECHO); // each key at once, not echoed
        tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    fputs("\033[?1049h\033[?25l\033[2J", s->out); // alternate screen, no cursor, cleared
    for (bool leave = false; !leave && !stop_signal;) {
        // fd -1: poll ignores the entry and just waits
        struct pollfd wait = {.fd = keys ? STDIN_FILENO : -1, .events = POLLIN};
        char key[64] = "";
        // what was written since; an unfinished line waits
        for (int i = 0; i < *n; i++) dt_run_log_read_on((*runs)[i]);
        if (dt_run_log_open_new(runs, n, paths->words, paths->n_words) != DT_OK) dt_error_clear(); // a path was removed
        watch_draw(s, *runs, *n);
        if (poll(&wait, 1, REFRESH_MS) > 0) { // a signal ends the wait too
            const ssize_t got = read(STDIN_FILENO, key, sizeof key - 1);
            // end of input or an error: poll would return at once for ever
            leave = got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN) || (got > 0 && strpbrk(key, "qQ"));
            scroll(s, key);
        }
    }
    fputs("\033[?25h\033[?1049l", s->out); // cursor, then the first screen as it was
    fflush(s->out);
    if (keys) tcsetattr(STDIN_FILENO, TCSANOW, &before);
}

static dt_status watch_run(const dt_cli_words *w) {
    if (w->n_words < 1) return dt_fail(DT_E_USAGE, "dtrain watch expects a run, or several: dtrain watch runs/photos");
    // rows: without a terminal never used, else from the window
    screen s = {.out = stdout, .live = isatty(STDOUT_FILENO), .rows = 24};
    dt_run_log **runs;
    int n;
    const dt_status st = dt_run_log_open_all(&runs, &n, w->words, w->n_words);
    if (st == DT_OK && s.live) watch_follow(&s, &runs, &n, w);
    if (st == DT_OK && !s.live) watch_draw(&s, runs, n);
    dt_run_log_close_all(runs, n);
    return st;
}

const dt_cli_command dt_cli_watch = {
    .text =
        "Shows runs live in the terminal: loss and metrics as sparklines, samples/s, the time budget of a step, "
        "the remaining time, the best value, memory, the input queue, the GPU, and a straggling rank. Of several runs "
        "a table comes first, those that run on top. Arrows, Page Up and Page Down scroll. `watch` reads the runs' "
        "directories, so it works on any "
        "machine that can read them. Press q to quit. In a pipe `watch` prints the state once.\n\n"
        "  dtrain watch runs/photos\n"
        "  dtrain watch runs/sweep\n"
        "  dtrain watch runs/sweep | cat\n",
    .run = watch_run};
