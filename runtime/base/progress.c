// progress.c: a terminal gets a line ten times a second, a pipe one every ten seconds.
#include "base/progress.h"

#include "base/clock.h"
#include "base/text.h"

#include <stdio.h>

enum { BAR = 30 };

void dt_progress_begin(dt_progress *p) {
    p->terminal = dt_text_on_terminal();
    p->begin_s = p->shown_s = dt_clock_s();
}

static void show_time(char *text, size_t cap, double s) {
    if (s < 100)
        snprintf(text, cap, "%.0f s", s);
    else if (s < 6000)
        snprintf(text, cap, "%.0f min", s / 60);
    else
        snprintf(text, cap, "%.1f h", s / 3600);
}

static void progress_show(const dt_progress *p, double now, const char *end) {
    double elapsed = now - p->begin_s > 1e-6 ? now - p->begin_s : 1e-6;
    const bool bytes = p->total_bytes > 0;
    const double done = bytes ? (double)p->n_bytes : (double)p->n_items;
    const double total = bytes ? (double)p->total_bytes : (double)p->total_items;
    double share = total > 0 ? done / total : 1;
    double left = done > 0 ? (total - done) * elapsed / done : 0;
    char bar[BAR + 1], eta[32], speed[48] = "", line[256];
    for (int i = 0; i < BAR; i++) bar[i] = i < (int)(share * BAR) ? '#' : '.';
    bar[BAR] = '\0';
    show_time(eta, sizeof eta, left);
    if (bytes) snprintf(speed, sizeof speed, "  %.0f MB/s", done / elapsed / 1e6);
    snprintf(line, sizeof line, "%s [%s] %llu/%llu %s  %.0f %s/s%s  ETA %s", p->what, bar,
             (unsigned long long)p->n_items, (unsigned long long)p->total_items, p->items, (double)p->n_items / elapsed,
             p->items, speed, eta);
    fprintf(stderr, "%s%.*s%s", p->terminal ? "\r" : "", p->terminal ? dt_text_columns() - 1 : (int)sizeof line, line,
            end);
}

void dt_progress_tick(dt_progress *p) {
    double now = dt_clock_s(), every = p->terminal ? 0.1 : 10;
    if (!p->on || now - p->shown_s < every) return;
    p->shown_s = now;
    progress_show(p, now, p->terminal ? "\033[K" : "\n");
}

void dt_progress_end(dt_progress *p) {
    if (p->on && p->terminal) progress_show(p, dt_clock_s(), "\033[K\n");
    p->on = false;
}
