// progress.c: a terminal gets a line ten times a second, a pipe one every ten seconds.
#include "progress.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { BAR = 30 };

void dt_progress_begin(dt_progress *p, const dt_raw *raw, bool on, const char *shared, int rank,
                       int world_size) {
    *p = (dt_progress){.on = on,
                       .terminal = isatty(STDERR_FILENO),
                       .total = raw->n,
                       .shared_fd = -1,
                       .rank = rank,
                       .world_size = world_size};
    for (size_t i = 0; i < raw->n; i++) p->total_bytes += raw->items[i].size;
    p->begin_s = p->shown_s = dt_clock_s();
    if (!shared || !on) return;
    p->shared = dt_xstrdup(shared);
    if (dt_io_open_update(&p->shared_fd, shared) != DT_OK) dt_error_clear(); // it is only a display
}

static void share(dt_progress *p, uint64_t *n, uint64_t *n_bytes) {
    uint64_t mine[2] = {*n, *n_bytes}, theirs[2];
    if (p->shared_fd < 0 || *dt_error_message()) return; // a failure on its way up keeps its words
    if (dt_io_pwrite(p->shared_fd, p->shared, mine, sizeof mine, (off_t)p->rank * 16) != DT_OK)
        dt_error_clear(); // it is only a display
    for (int r = 0; r < p->world_size; r++)
        if (r != p->rank && pread(p->shared_fd, theirs, sizeof theirs, (off_t)r * 16) == 16) {
            *n += theirs[0];
            *n_bytes += theirs[1];
        }
}

static void show_time(char *text, size_t cap, double s) {
    if (s < 100)
        snprintf(text, cap, "%.0f s", s);
    else if (s < 6000)
        snprintf(text, cap, "%.0f min", s / 60);
    else
        snprintf(text, cap, "%.1f h", s / 3600);
}

static void show(dt_progress *p, uint64_t n, uint64_t n_bytes, double now, const char *end) {
    double elapsed = now - p->begin_s > 1e-6 ? now - p->begin_s : 1e-6;
    double share_done = p->total_bytes ? (double)n_bytes / (double)p->total_bytes : 1;
    double rate = (double)(n_bytes - p->kept_bytes) / elapsed;
    double left = rate > 0 ? (double)(p->total_bytes - n_bytes) / rate : 0;
    char bar[BAR + 1], eta[32], line[256];
    for (int i = 0; i < BAR; i++) bar[i] = i < (int)(share_done * BAR) ? '#' : '.';
    bar[BAR] = '\0';
    show_time(eta, sizeof eta, left);
    snprintf(line, sizeof line, "pack [%s] %llu/%zu files  %.0f files/s  %.0f MB/s  ETA %s", bar,
             (unsigned long long)n, p->total, (double)(n - p->kept) / elapsed, rate / 1e6, eta);
    fprintf(stderr, "%s%.*s%s", p->terminal ? "\r" : "",
            p->terminal ? dt_text_columns() - 1 : (int)sizeof line, line, end);
}

static void update(dt_progress *p, bool last) {
    double now = dt_clock_s(), every = p->terminal ? 0.1 : 10;
    if (!p->on || (now - p->shown_s < every && !last)) return;
    p->shown_s = now;
    uint64_t n = p->n_items, n_bytes = p->n_bytes;
    share(p, &n, &n_bytes);
    if (p->rank != 0 || (last && !p->terminal)) return;
    show(p, n, n_bytes, now, !p->terminal ? "\n" : last ? "\033[K\n" : "\033[K");
}

void dt_progress_tick(dt_progress *p) {
    update(p, false);
}

void dt_progress_end(dt_progress *p) {
    update(p, true);
    if (p->shared_fd >= 0) close(p->shared_fd);
    free(p->shared);
    p->shared = NULL;
    p->shared_fd = -1;
    p->on = false;
}
