// progress.c: a terminal gets a line ten times a second, a pipe one every ten seconds.
#include "progress.h"

#include "base/clock.h"
#include "base/text.h"

#include <stdio.h>
#include <unistd.h>

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

static void show(const dt_progress *p, double now, const char *end) {
    double elapsed = now - p->begin_s > 1e-6 ? now - p->begin_s : 1e-6;
    double share = p->total_bytes ? (double)p->n_bytes / (double)p->total_bytes : 1;
    double rate = (double)p->n_bytes / elapsed;
    double left = rate > 0 ? (double)(p->total_bytes - p->n_bytes) / rate : 0;
    char bar[BAR + 1], eta[32], line[256];
    for (int i = 0; i < BAR; i++) bar[i] = i < (int)(share * BAR) ? '#' : '.';
    bar[BAR] = '\0';
    show_time(eta, sizeof eta, left);
    snprintf(line, sizeof line, "pack [%s] %llu/%llu files  %.0f files/s  %.0f MB/s  ETA %s", bar,
             (unsigned long long)p->n_items, (unsigned long long)p->total_items,
             (double)p->n_items / elapsed, rate / 1e6, eta);
    fprintf(stderr, "%s%.*s%s", p->terminal ? "\r" : "",
            p->terminal ? dt_text_columns() - 1 : (int)sizeof line, line, end);
}

void dt_progress_tick(dt_progress *p) {
    double now = dt_clock_s(), every = p->terminal ? 0.1 : 10;
    if (!p->on || now - p->shown_s < every) return;
    p->shown_s = now;
    show(p, now, p->terminal ? "\033[K" : "\n");
}

void dt_progress_end(dt_progress *p) {
    if (p->on && p->terminal) show(p, dt_clock_s(), "\033[K\n");
    p->on = false;
}
