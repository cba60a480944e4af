// rank_report.c: see rank_report.h. The place is written by its thread and read by the watch's: its number is odd while
// it changes, and the text counts only if the number is the same before and after it was copied. The second count
// publishes the text to the acquire in dt_rank_look; a byte of a later text (release, acquire) shows the later number.

#include "base/rank_report.h"

#include "base/core.h"
#include "base/log.h"
#include "base/os.h"
#include "base/thread.h"
#include "base/watch.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static _Thread_local bool is_main;
// seqlock: one writer, the main thread; readers retry on the next look
static struct {
    atomic_uint number;
    const char *_Atomic what;
    _Atomic char name[64];
} place;
// written by the main thread, read by the watch's; independent values
static _Atomic double mean_data_s, mean_compute_s, deadline_s = INFINITY;
static const double keep = 0.95; // of a moving average over about 20 steps
#define SILENT_S 3.0             // heartbeats come five times a second, and those of thousands of ranks in turn

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;    // of what follows
static dt_rank_report own = {.step = -1, .at = "starting"}; // step -1: before the first step
static dt_rank_report *ranks;                               // on rank 0
static int n_ranks;
static bool logged;

void dt_rank_begin(void) {
    is_main = true;
}

void dt_rank_at(const char *what, const char *name) {
    if (!is_main) return; // other threads' waits are not the rank's position
    // odd: changing; acquire keeps the stores behind it
    atomic_fetch_add_explicit(&place.number, 1, memory_order_acquire);
    atomic_store_explicit(&place.what, what, memory_order_release);
    dt_thread_set_text(place.name, sizeof place.name, name);
    atomic_fetch_add_explicit(&place.number, 1, memory_order_release); // even: complete
}

void dt_rank_set_times(double data_s, double compute_s) {
    const bool first = mean_data_s == 0 && mean_compute_s == 0; // the first step, or no time so far
    mean_data_s = first ? data_s : keep * mean_data_s + (1 - keep) * data_s;
    mean_compute_s = first ? compute_s : keep * mean_compute_s + (1 - keep) * compute_s;
}

void dt_rank_set_deadline(double seconds) {
    deadline_s = seconds;
}

void dt_rank_look(const char *path, double file_s, double now_s) {
    static unsigned
        seen; // the watch's thread alone, or the guard's once that one is stuck (heartbeat_number of watch.c)
    static double came_s, rss_s = -10;
    static uint64_t rss_bytes;
    char at[sizeof own.at], name[sizeof place.name];
    // acquire: pairs with the release in dt_rank_at
    const unsigned number = atomic_load_explicit(&place.number, memory_order_acquire);
    const char *what = atomic_load_explicit(&place.what, memory_order_acquire);
    dt_thread_get_text(name, place.name, sizeof name);
    snprintf(at, sizeof at, "%s%s%s", what ? what : "starting", *name ? " " : "", name);
    const bool same =
        number % 2 == 0 &&
        number == atomic_load(&place.number); // else the position changes just now, and is taken at the next look
    if (now_s - rss_s >= 1) {                 // once a second: reading /proc costs more than the rest
        rss_bytes = dt_rss_bytes();
        rss_s = now_s;
    }
    if (number != seen || came_s == 0) came_s = now_s; // a new position: time starts
    seen = number;
    pthread_mutex_lock(&lock);
    if (!*own.host) gethostname(own.host, sizeof own.host - 1);
    if (same) memcpy(own.at, at, sizeof at);
    // before the first step the report is there, but counts no step
    own.step = dt_watch_get_step() > 0 ? dt_watch_get_step() : 0;
    own.data_s = mean_data_s;
    own.compute_s = mean_compute_s;
    own.rss_bytes = rss_bytes;
    own.has_gpu = dt_gpu_latest(own.gpu);
    own.since_s = now_s - came_s;
    own.file_s = path ? file_s : 0;
    snprintf(own.file, sizeof own.file, "%s", path ? path : "");
    pthread_mutex_unlock(&lock);
}

void dt_rank_own(dt_rank_report *out) {
    pthread_mutex_lock(&lock);
    *out = own;
    pthread_mutex_unlock(&lock);
}

void dt_rank_hear(int rank, const dt_rank_report *r) {
    pthread_mutex_lock(&lock);
    if (rank >= n_ranks) {
        ranks = dt_xrealloc(ranks, (size_t)(rank + 1) * sizeof *ranks); // rank 0 only; grows to the world size
        for (; n_ranks <= rank; n_ranks++) ranks[n_ranks] = (dt_rank_report){.step = -1};
    }
    ranks[rank] = *r;
    ranks[rank].heard_s = dt_clock_s() - r->heard_s; // heard_s arrives as an age
    // texts of another process end
    // bytes come from another rank: a missing NUL must not be read past
    ranks[rank].at[sizeof r->at - 1] = ranks[rank].file[sizeof r->file - 1] = ranks[rank].host[sizeof r->host - 1] =
        '\0';
    pthread_mutex_unlock(&lock);
}

void dt_rank_list(dt_rank_report *out, int n) {
    pthread_mutex_lock(&lock);
    for (int r = 0; r < n; r++) out[r] = r < n_ranks ? ranks[r] : (dt_rank_report){.step = -1};
    if (n > 0) out[0] = own; // rank 0's own is always newest
    pthread_mutex_unlock(&lock);
}

const char *dt_rank_text(char out[DT_RANK_TEXT], const dt_rank_report *r) {
    if (r->step < 0) {
        snprintf(out, DT_RANK_TEXT, "an unknown position");
        return out;
    }
    int n = snprintf(out, DT_RANK_TEXT, "step %lld, %s, for %.0f s", (long long)r->step, r->at, r->since_s);
    if (*r->file) snprintf(out + n, DT_RANK_TEXT - (size_t)n, "; %s for %.0f s", r->file, r->file_s);
    return out;
}

void dt_rank_quiet(double quiet_s) {
    char text[DT_RANK_TEXT];
    const bool due = quiet_s >= deadline_s / 2; // half of the deadline: early enough to look
    pthread_mutex_lock(&lock);
    const bool report = due && !logged && n_ranks > 1;
    logged = due;                    // once per silence
    const dt_rank_report mine = own; // copied: logging below may wait
    pthread_mutex_unlock(&lock);
    if (!report) return;
    dt_log_urgent(DT_LOG_WARN, true,
                  "no progress for %.0f s; after %.0f s the job ends (comm.timeout). Positions of the ranks:", quiet_s,
                  deadline_s);
    dt_log_urgent(DT_LOG_WARN, true, "  rank 0 on %s: %s", mine.host, dt_rank_text(text, &mine));
    // rank 0's watch thread is the only writer of the list
    for (int r = 1; r < n_ranks; r++) { // nobody else changes the list
        const dt_rank_report one = ranks[r];
        const double silent_s = dt_clock_s() - one.heard_s;
        char silent[48] = "";
        if (silent_s >= SILENT_S) snprintf(silent, sizeof silent, ", no heartbeat for %.0f s", silent_s);
        dt_log_urgent(DT_LOG_WARN, true, "  rank %d on %s: %s%s", r, one.step < 0 ? "?" : one.host,
                      one.step < 0 ? "nothing is known" : dt_rank_text(text, &one), one.step < 0 ? "" : silent);
    }
}

// ---- crash --------------------------------------------------------------------------------------------------------

static const struct {
    int sig;
    const char *what;
} CRASHES[] = {{SIGSEGV, "a segmentation fault"},
               {SIGBUS, "a bus error (a mapped file was cut, or memory is broken)"},
               {SIGILL, "an illegal instruction"},
               {SIGFPE, "an arithmetic fault"},
               {SIGABRT, "an abort"}};
enum { N_CRASHES = sizeof CRASHES / sizeof *CRASHES };
// Of the handler that took the signal before: it may symbolize a stack, or wait for a lock that this thread holds.
#define HANDLER_S 30.0
// restored by the handler; filled once
static struct sigaction before[N_CRASHES];
static char who[32], host[64];

static void on_crash(int sig) {
    char line[320];
    int k = 0;
    dt_watch_leave(128 + sig, HANDLER_S);                   // 128 + n, as a shell reports signals
    while (k < N_CRASHES - 1 && CRASHES[k].sig != sig) k++; // the last entry stands for any other signal
    // formats numbers and copies text: allocates nothing
    const int n = snprintf(line, sizeof line,
                           "dtrain%s: error: after step %lld: %s on %s; the same command resumes from the last "
                           "checkpoint. Please report it\n",
                           who, (long long)dt_watch_get_step(), CRASHES[k].what, host);
    if (n > 0 && write(STDERR_FILENO, line, (size_t)n) < 0) line[0] = 0; // nobody reads it
    sigaction(sig, &before[k], NULL); // the earlier handler, or the default: core dump
    raise(sig);                       // taken when this returns
}

void dt_crash_install(int rank) {
    struct sigaction a = {.sa_handler = on_crash};
    sigemptyset(&a.sa_mask);
    if (rank >= 0) snprintf(who, sizeof who, "[%d]", rank);
    gethostname(host, sizeof host - 1);
    // a handler on the faulting thread's stack: a stack overflow is not reported
    for (int k = 0; k < N_CRASHES; k++) {
        struct sigaction now;
        sigaction(CRASHES[k].sig, &a, &now);
        if (now.sa_handler != on_crash) before[k] = now; // else a second run of this process
    }
}
