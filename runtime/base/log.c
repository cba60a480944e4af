// log.c: one line, one write(2), to stderr and the run's log file.
//
// A mutex keeps lines whole and in the same order in both places, and holds back the terminal's live
// line while one is printed. The file's lines carry UTC time and level; stderr's carry the rank.
// A failed write is ignored: training outlives its log.

#include "base/log.h"

#include "base/os.h"
#include "base/text.h"
#include "base/thread.h"
#include "base/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LINE_BYTES = 4096 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int threshold = DT_LOG_INFO;      // read without the lock on each call
static int log_rank, log_world = 1, log_fd = -1; // under `mutex`; -1: no file
// of the terminal's live line; under `mutex`
static void (*hook_before)(void), (*hook_after)(void);

static void write_line(int fd, const char *line, size_t n) {
    while (write(fd, line, n) < 0 && errno == EINTR) { // EINTR only: other failures are ignored, a partial line too
    }
}

// Joins head and text, truncated to fit, and ends the line. Names of others in the text can neither end it nor
// reach the terminal as a sequence.
static size_t make_line(char out[LINE_BYTES], const char *head, const char *text) {
    size_t n = (size_t)snprintf(out, LINE_BYTES, "%s", head);
    n += dt_text_clean(out + n, LINE_BYTES - 1 - n, text); // - 1: room for the newline
    out[n++] = '\n';
    return n;
}

static void to_stderr(dt_log_level level, const char *text) {
    static const char *const kind[] = {"error: ", "warning: ", "", "debug: "}; // by dt_log_level
    char head[64], line[LINE_BYTES];
    if (log_world > 1)
        snprintf(head, sizeof head, "dtrain[%d]: %s", log_rank, kind[level]);
    else
        snprintf(head, sizeof head, "dtrain: %s", kind[level]);
    size_t n = make_line(line, head, text);
    if (hook_before) hook_before(); // clears the live line
    write_line(STDERR_FILENO, line, n);
    if (hook_after) hook_after(); // draws it again
}

static void to_file(dt_log_level level, const char *text) {
    char head[64], stamp[32], line[LINE_BYTES];
    struct tm tm;
    time_t now = time(NULL);
    gmtime_r(&now, &tm); // not gmtime: other threads
    strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%SZ", &tm);
    snprintf(head, sizeof head, "%s %c ", stamp, "EWID"[level]); // one letter per level, so that grep finds errors
    dt_watch_begin("the log of the run", "write");               // the disk may hang: the watch names the log
    write_line(log_fd, line, make_line(line, head, text));
    dt_watch_end();
}

void dt_log(dt_log_level level, const char *fmt, ...) {
    if ((int)level > atomic_load(&threshold)) return; // before formatting: a filtered line costs a load
    char text[LINE_BYTES];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    for (size_t n = strlen(text); n && text[n - 1] == '\n'; n--) text[n - 1] = '\0'; // a library's
    pthread_mutex_lock(&mutex);
    if (level < DT_LOG_INFO || log_rank == 0) { // errors and warnings from every rank, the rest from rank 0
        to_stderr(level, text);
        if (log_fd >= 0) to_file(level, text);
    }
    pthread_mutex_unlock(&mutex);
}

void dt_log_urgent(dt_log_level level, bool disk_answers, const char *fmt, ...) {
    char text[LINE_BYTES];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const bool locked = dt_thread_lock(&mutex, 1); // seconds: the holder may hang in a write
    to_stderr(level, text);                        // even without the lock: a torn line is better than none
    if (locked && disk_answers && log_fd >= 0) to_file(level, text); // log_fd belongs to the lock
    if (locked) pthread_mutex_unlock(&mutex);
}

dt_log_level dt_log_set_level(dt_log_level level) {
    return (dt_log_level)atomic_exchange(&threshold, (int)level);
}

void dt_log_set_rank(int rank, int world_size) {
    pthread_mutex_lock(&mutex);
    log_rank = rank;
    log_world = world_size;
    pthread_mutex_unlock(&mutex);
}

int dt_log_rank(void) {
    pthread_mutex_lock(&mutex);
    int rank = log_rank;
    pthread_mutex_unlock(&mutex);
    return rank;
}

dt_status dt_log_open(const char *path) {
    dt_watch_begin(path, "open");
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
    dt_watch_end();
    if (fd < 0) return dt_fail(DT_E_STORAGE, "%s: cannot open the log: %s", path, strerror(errno));
    dt_log_close(); // a second run of this process
    pthread_mutex_lock(&mutex);
    log_fd = fd;
    pthread_mutex_unlock(&mutex);
    return DT_OK;
}

void dt_log_close(void) {
    pthread_mutex_lock(&mutex);
    if (log_fd >= 0) close(log_fd);
    log_fd = -1;
    pthread_mutex_unlock(&mutex);
}

void dt_log_set_hooks(void (*before)(void), void (*after)(void)) {
    pthread_mutex_lock(&mutex);
    hook_before = before;
    hook_after = after;
    pthread_mutex_unlock(&mutex);
}

// ---- progress -----------------------------------------------------------------------------------------------------

// A terminal gets a line ten times a second, a pipe one every ten seconds.

enum { BAR = 30 }; // characters between the brackets

void dt_progress_begin(dt_progress *p) {
    p->terminal = dt_text_on_terminal();
    p->begin_s = p->shown_s = dt_clock_s(); // now: the first line comes after one interval
}

static void progress_show(const dt_progress *p, double now, const char *end) {
    double elapsed = now - p->begin_s > 1e-6 ? now - p->begin_s : 1e-6; // no division by zero at the first tick
    const bool bytes = p->total_bytes > 0;
    const double done = bytes ? (double)p->n_bytes : (double)p->n_items;
    const double total = bytes ? (double)p->total_bytes : (double)p->total_items;
    double share = total > 0 ? done / total : 1;
    double left = done > 0 ? (total - done) * elapsed / done : 0; // linear extrapolation of what is left
    char bar[BAR + 1], eta[32], speed[48] = "", line[256];
    for (int i = 0; i < BAR; i++) bar[i] = i < (int)(share * BAR) ? '#' : '.';
    bar[BAR] = '\0';
    if (left < 100)
        snprintf(eta, sizeof eta, "%.0f s", left);
    else if (left < 6000)
        snprintf(eta, sizeof eta, "%.0f min", left / 60);
    else
        snprintf(eta, sizeof eta, "%.1f h", left / 3600);
    if (bytes) snprintf(speed, sizeof speed, "  %.0f MB/s", done / elapsed / 1e6);
    snprintf(line, sizeof line, "%s [%s] %llu/%llu %s  %.0f %s/s%s  ETA %s", p->what, bar,
             (unsigned long long)p->n_items, (unsigned long long)p->total_items, p->items, (double)p->n_items / elapsed,
             p->items, speed, eta);
    // a terminal's line must not wrap: \r could not overwrite it
    fprintf(stderr, "%s%.*s%s", p->terminal ? "\r" : "", p->terminal ? dt_text_columns() - 1 : (int)sizeof line, line,
            end);
}

void dt_progress_tick(dt_progress *p) {
    double now = dt_clock_s(), every = p->terminal ? 0.1 : 10;
    if (!p->on || now - p->shown_s < every) return;
    p->shown_s = now;
    progress_show(p, now, p->terminal ? "\033[K" : "\n"); // clears the rest of an older, longer line
}

void dt_progress_end(dt_progress *p) {
    if (p->on && p->terminal) progress_show(p, dt_clock_s(), "\033[K\n");
    p->on = false;
}
