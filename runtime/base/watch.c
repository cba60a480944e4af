// watch.c: see watch.h. A slot is written by its thread and read by the watching one. Its number is odd while
// something is under way; a text is used only if the number is the same before and after it was copied.
//
// Memory order: the number's release publishes the texts to the acquire in look_around. A text's bytes are stored with
// release and loaded with acquire, so that whoever meets a byte of the next operation also sees the number behind the
// last one, and drops the copy. `peers` and `on_end` have a lock, which the watching thread holds during a heartbeat: the
// guard, which must not wait for it, gets them by heartbeat_number, counted behind the lock.
#define _GNU_SOURCE
#include "base/watch.h"

#include "base/log.h"
#include "base/os.h"
#include "base/rank_report.h"
#include "base/thread.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SLOTS = 256, PATH_BYTES = 224 }; // threads with watched operations; longer paths are cut
// seconds
#define FIRST_WARNING_S 5.0
#define END_S           2.0

typedef struct slot {
    atomic_bool taken;
    atomic_uint number;  // odd: under way
    atomic_bool is_file; // else a wait for other ranks
    _Atomic char path[PATH_BYTES];
    const char *_Atomic operation; // borrowed literal
    unsigned seen;                 // from here on the watching thread's
    dt_waited waited;              // without suspended time
    double warn_at_s;              // doubles after each warning
} slot;

// taken by compare-exchange, given back when the thread ends
static slot slots[SLOTS];
static _Thread_local slot *mine;   // this thread's slot; NULL: none yet
static _Thread_local bool watches; // the watching thread, whose own lines in the log are no progress
static pthread_key_t leaving;      // pthread key whose destructor frees the slot
// written once, before the threads start
static dt_watch_limits limits = {.io_s = INFINITY, .start_s = 30, .lost_s = 30};
static _Atomic double quiet_s = INFINITY; // written by the watching thread
static atomic_uint_fast64_t ticks;        // progress of this rank
static _Atomic int64_t steps_done = -1;   // -1: before the first
// guards peers and on_end; held during a heartbeat
static pthread_mutex_t peers_lock = PTHREAD_MUTEX_INITIALIZER;
static dt_watch_peers peers;
static dt_watch_on_end *on_end;
static void *on_end_ctx;
static atomic_int leave_code; // dt_watch_leave's
static _Atomic double leave_s;
static atomic_uint heartbeat_number; // odd while a heartbeat is under way

// ---- what threads report ------------------------------------------------------------------------------

static void watch_free_slot(void *s) {
    atomic_store(&((slot *)s)->taken, false); // the next thread may take the slot
}

static void watch_make_key(void) {
    pthread_key_create(&leaving, watch_free_slot);
}

static slot *take_slot(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_make_key);
    for (int i = 0; i < SLOTS; i++) { // first free one; once per thread
        bool is_free = false;
        if (!atomic_compare_exchange_strong(&slots[i].taken, &is_free, true)) continue;
        pthread_setspecific(leaving, &slots[i]);
        return &slots[i];
    }
    return NULL; // more threads than that: this one is not watched
}

// texts first, then the odd number: the reader sees them complete
void dt_watch_begin(const char *path, const char *operation) {
    if (!mine && !(mine = take_slot())) return;
    dt_thread_set_text(mine->path, sizeof mine->path, path ? path : "");
    atomic_store_explicit(&mine->operation, operation, memory_order_release);
    atomic_store_explicit(&mine->is_file, path != NULL, memory_order_release);
    atomic_fetch_add_explicit(&mine->number, 1, memory_order_release); // release: publishes path and operation
}

void dt_watch_end(void) {
    if (!watches) dt_watch_tick();
    if (mine) atomic_fetch_add_explicit(&mine->number, 1, memory_order_release); // even: done
}

void dt_watch_tick(void) {
    atomic_fetch_add_explicit(&ticks, 1, memory_order_relaxed); // relaxed: a count, compared only with itself
}

void dt_watch_set_step(int64_t step) {
    atomic_store_explicit(&steps_done, step, memory_order_relaxed);
}

int64_t dt_watch_get_step(void) {
    return atomic_load_explicit(&steps_done, memory_order_relaxed);
}

double dt_watch_quiet_s(void) {
    return atomic_load(&quiet_s);
}

const dt_watch_limits *dt_watch_get_limits(void) {
    return &limits;
}

void dt_watch_set_peers(const dt_watch_peers *p) {
    pthread_mutex_lock(&peers_lock);
    peers = p ? *p : (dt_watch_peers){0};
    pthread_mutex_unlock(&peers_lock);
}

void dt_watch_set_on_end(dt_watch_on_end *call, void *ctx) {
    pthread_mutex_lock(&peers_lock);
    on_end = call;
    on_end_ctx = ctx;
    pthread_mutex_unlock(&peers_lock);
}

void dt_watch_leave(int code, double within_s) {
    int none = 0;
    // async-signal-safe: lock-free atomics only
    if (!atomic_load(&leave_code)) atomic_store(&leave_s, within_s);
    atomic_compare_exchange_strong(&leave_code, &none, code); // the first code wins
}

// ---- the thread ------------------------------------------------------------------------------------

// The launcher's processes on this host that are stopped: where MPI does not report one, the system may.
static void name_stopped(char *text, size_t cap) {
    char path[64], state = 0;
    size_t used = 0;
    int pid = 0;
    text[0] = '\0';
    // children of mpirun's process: the ranks on this host
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)getppid(), (int)getppid());
    FILE *all = fopen(path, "re");
    while (all && fscanf(all, "%d", &pid) == 1 && used < cap - 48) {
        snprintf(path, sizeof path, "/proc/%d/stat", pid);
        FILE *one = fopen(path, "re");
        if (one && fscanf(one, "%*d (%*[^)]) %c", &state) == 1 && state == 'T') // T: stopped by a signal
            used += (size_t)snprintf(text + used, cap - used, "%s %d", used ? "," : " (here: process", pid);
        if (one) fclose(one);
    }
    if (all) fclose(all);
    if (used) snprintf(text + used, cap - used, ")");
}

static dt_status watch_check(slot *s, double waited_s) {
    char path[PATH_BYTES];
    dt_thread_get_text(path, s->path, sizeof path);
    const char *operation = atomic_load(&s->operation);
    const bool is_file = atomic_load(&s->is_file);
    const double limit_s = is_file ? limits.io_s : limits.start_s;
    if (atomic_load(&s->number) != s->seen) return DT_OK; // it came back just now
    if (waited_s >= limit_s && is_file)
        return dt_fail(DT_E_STORAGE,
                       "%s: cannot %s: no response for %.0f s; check the disk or the server of this file system, then "
                       "run the same command again (run.io_timeout: wait longer)",
                       path, operation, waited_s);
    if (waited_s >= limit_s) {
        name_stopped(path, sizeof path);
        return dt_fail(DT_E_PEER,
                       "%s has waited %.0f s for the other ranks: one of them, or its host, is "
                       "stopped or lost%s; look for it, then run again (comm.timeout: wait longer)",
                       operation, waited_s, path);
    }
    if (waited_s < s->warn_at_s || strstr(path, "://")) return DT_OK; // http.c warns itself
    s->warn_at_s *= is_file ? 2 : INFINITY;                           // a wait for ranks warns once
    if (!is_file && dt_launcher_rank() > 0) return DT_OK;             // all ranks wait alike: one line
    dt_log_urgent(DT_LOG_WARN, false, "%s%s%s: no response for %.0f s; waiting up to %.0f s (%s)", path,
                  is_file ? ": " : "", operation, waited_s, limit_s, is_file ? "run.io_timeout" : "comm.timeout");
    return DT_OK;
}

// Looks at what is under way. *files: there is a file operation; the longest, if it takes long.
static dt_status look_around(double now_s, bool *files, char longest[PATH_BYTES], double *longest_s) {
    for (slot *s = slots; s < slots + SLOTS; s++) {
        // acquire: pairs with the release of begin
        unsigned number = atomic_load_explicit(&s->number, memory_order_acquire);
        if (number % 2 == 0) continue; // even: nothing under way
        if (number != s->seen) {       // another operation than at the last look
            s->seen = number;
            s->waited = (dt_waited){0};
            s->warn_at_s = FIRST_WARNING_S;
        }
        *files |= atomic_load(&s->is_file); // progress: files have their own limit
        double waited_s = dt_clock_waited_s(&s->waited, now_s);
        if (waited_s > *longest_s && atomic_load(&s->is_file)) {
            char path[PATH_BYTES];
            dt_thread_get_text(path, s->path, PATH_BYTES);
            if (atomic_load(&s->number) == s->seen) { // else it is another operation's path
                memcpy(longest, path, PATH_BYTES);
                *longest_s = waited_s;
            }
        }
        // the smallest limit may be below FIRST_WARNING_S
        if (waited_s >= FIRST_WARNING_S || waited_s >= limits.start_s || waited_s >= limits.io_s)
            DT_TRY(watch_check(s, waited_s));
    }
    return DT_OK;
}

typedef struct ending {
    dt_status st;
    char message[DT_ERROR_BYTES];
    pthread_mutex_t lock;
    pthread_cond_t heard;
    bool is_heard;
} ending;

static void *say_end(void *arg) {
    ending *e = arg;
    // in a thread of its own: on_end may hang
    on_end(on_end_ctx, e->st, e->message);
    pthread_mutex_lock(&e->lock);
    e->is_heard = true;
    pthread_cond_signal(&e->heard);
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

// The launcher ends the other ranks. A comm that cannot is no reason to stay.
static void end_process(dt_status st, bool disk_answers) {
    dt_watch_leave(st, DT_WATCH_LEAVE_S);
    if (dt_watch_get_step() >= 0) dt_fail_context(st, "after step %lld", (long long)dt_watch_get_step());
    dt_log_urgent(DT_LOG_ERROR, disk_answers, "%s", dt_error_message());
    pthread_t thread;
    const double until_s = dt_clock_s() + END_S;
    // static: outlives a thread that is late
    static ending e = {.lock = PTHREAD_MUTEX_INITIALIZER, .heard = PTHREAD_COND_INITIALIZER};
    e.st = st;
    snprintf(e.message, sizeof e.message, "%s", dt_error_message());
    pthread_mutex_lock(&e.lock);
    if (on_end && pthread_create(&thread, NULL, say_end, &e) == 0)
        while (!e.is_heard && dt_thread_wait(&e.heard, &e.lock, until_s)) continue; // two seconds at most
    pthread_mutex_unlock(&e.lock);
    if (peers.abort) peers.abort(peers.ctx, st); // no return from MPI_Abort
    _exit(st);                                   // without atexit handlers, which may hang
}

static void *watch_loop(void *unused) {
    const struct timespec rest = {.tv_nsec = 200 * 1000 * 1000}; // 0.2 s
    dt_waited quiet = {0};
    uint64_t before = 0;
    watches = true;
    dt_thread_name("watch");
    for (;;) {
        bool files = false;
        char path[PATH_BYTES] = "";
        double path_s = 1; // what takes no longer is not worth a word
        nanosleep(&rest, NULL);
        double now_s = dt_clock_s();
        dt_status st = look_around(now_s, &files, path, &path_s);
        dt_rank_look(path_s > 1 ? path : NULL, path_s, now_s);
        if (files) dt_watch_tick();
        uint64_t sum = atomic_load(&ticks);
        // heartbeat: MPI under its own lock (comm_mpi_heartbeat.c)
        pthread_mutex_lock(&peers_lock); // not given back by who ends the process
        if (st == DT_OK && peers.heartbeat) {
            atomic_fetch_add(&heartbeat_number, 1); // odd: guard() measures how long
            st = peers.heartbeat(peers.ctx, &sum);
            atomic_fetch_add(&heartbeat_number, 1);
        }
        if (st != DT_OK) end_process(st, !files); // files hang: the log on disk is not written
        pthread_mutex_unlock(&peers_lock);
        if (sum != before) quiet = (dt_waited){0}; // any rank's progress
        before = sum;
        atomic_store(&quiet_s, dt_clock_waited_s(&quiet, now_s));
        dt_rank_quiet(atomic_load(&quiet_s)); // reports of all ranks, once per silence
    }
    return NULL;
}

// ---- the thread that looks at the thread -----------------------------------------------------------

static void *end_stuck(void *unused) {
    dt_rank_report own;
    char at[DT_RANK_TEXT];
    // own position, as of now
    dt_rank_look(NULL, 0, dt_clock_s()); // the watching thread does not
    dt_rank_own(&own);
    if (own.since_s < limits.lost_s) own.since_s = limits.lost_s;
    end_process(dt_fail(DT_E_PEER,
                        "a call of MPI has not returned for %.0f s (last position of this rank on "
                        "%s: %s): another rank was killed, or its host or link is gone; look for "
                        "it, then run again (comm.timeout: wait longer)",
                        limits.lost_s, own.host, dt_rank_text(at, &own)),
                true);
    return unused; // not reached
}

static void *guard(void *unused) {
    dt_waited leave = {0}, heartbeat = {0};
    unsigned seen = 0;
    pthread_t thread;
    dt_thread_name("watch-guard");
    for (;;) {
        nanosleep(&(struct timespec){.tv_nsec = 200 * 1000 * 1000}, NULL);
        const double now_s = dt_clock_s();
        const int code = atomic_load(&leave_code);
        const unsigned number = atomic_load(&heartbeat_number);
        if (code && dt_clock_waited_s(&leave, now_s) >= atomic_load(&leave_s)) _exit(code); // an exit that hangs
        // even: no heartbeat under way; another number: a new one
        if (number % 2 == 0 || number != seen) heartbeat = (dt_waited){0};
        seen = number;
        if (code || dt_clock_waited_s(&heartbeat, now_s) < limits.lost_s) continue;
        dt_watch_leave(DT_E_PEER, DT_WATCH_LEAVE_S); // then `leave` bounds the thread below
        if (pthread_create(&thread, NULL, end_stuck, NULL) != 0) _exit(DT_E_PEER); // no memory for a thread: at once
    }
    return unused;
}

void dt_watch_start(const dt_watch_limits *l) {
    sigset_t all, old;
    pthread_t thread;
    limits = *l;
    dt_rank_begin(); // the calling thread is the main one
    // inherited: signals go to the trainer's threads
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    if (pthread_create(&thread, NULL, watch_loop, NULL) == 0) {
        pthread_detach(thread);
        atomic_store(&quiet_s, 0.0); // quiet time counts from here on
        if (pthread_create(&thread, NULL, guard, NULL) == 0)
            pthread_detach(thread);
        else
            dt_warn("no second thread behind the watch: a rank that hangs in MPI's abort is not ended");
    } else {
        dt_warn("cannot start the watchdog thread: a hang of files or other ranks is not detected");
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}
