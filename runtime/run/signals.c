// signals.c: one flag, and one thread that takes signals. _exit in the handler is the only way out of a program
// that does not answer.
//
// No thread that computes may run a handler: up to 3.11, oneDNN's generated matmuls for AVX2
// and AVX-512 use the stack pointer as one more register and let it point into the heap (oneDNN issue
// 4845), and there the kernel would write the handler's frame. So the calling thread blocks these
// signals, all threads that it makes inherit that, and the one that does not only waits for them.

#define _GNU_SOURCE
#include "run/signals.h"

#include "base/core.h"
#include "base/io.h"
#include "base/log.h"
#include "base/os.h"
#include "base/thread.h"
#include "base/watch.h"

#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static const struct {
    int sig;
    const char *name;
} TAKEN[] = {{SIGTERM, "SIGTERM"}, {SIGINT, "SIGINT"}, {SIGUSR1, "SIGUSR1"}, {SIGHUP, "SIGHUP"}, {SIGUSR2, "SIGUSR2"}};
enum { N_TAKEN = sizeof TAKEN / sizeof *TAKEN };

// The number of the first signal; written before `pending`, once.
static struct timespec since;
static atomic_int pending, n_signals, n_heeded; // n_heeded: signals because of which the run ends
static atomic_bool interrupted;                 // by a SIGINT
static atomic_bool trace;
static _Atomic double grace_s;      // seconds from the first signal on
enum { RUNNING, STARTING, ENDING }; // of the process: STARTING has nothing to save
static atomic_int phase;            // the trainer and the signal thread change it by compare-and-swap

static double seconds(const struct timespec *t) {
    return (double)t->tv_sec + 1e-9 * (double)t->tv_nsec;
}

// Open MPI's mpirun kills the ranks so long after it has sent them SIGTERM. Half of that is left for saving.
static double grace(void) {
    const double s = atomic_load(&grace_s);
    const char *given = getenv("OMPI_MCA_odls_base_sigkill_timeout");
    if (!getenv("OMPI_COMM_WORLD_RANK") || atomic_load(&pending) != SIGTERM) return s;
    return fmin(s, 0.5 * (given && *given ? atof(given) : 1.0));
}

// A SIGINT that comes with the first one is dropped after a sleep. A clock would not do: two that came at once would
// look apart when this thread was not scheduled between them.
static void on_signal(int sig) {
    if (sig == SIGUSR2) {
        atomic_store(&trace, true);
        return;
    }
    atomic_fetch_add(&n_signals, 1);
    if (!atomic_load(&pending)) {
        clock_gettime(CLOCK_MONOTONIC, &since);
        atomic_store(&pending, sig);
    }
    if (sig != SIGINT) return; // other signals may repeat: schedulers send them more than once
    if (atomic_exchange(&interrupted, true)) {
        dt_watch_leave(128 + SIGINT, DT_WATCH_LEAVE_S); // the disk may hang
        dt_io_remove_unfinished();                      // temporary files of this process
        _exit(128 + SIGINT);
    }
    struct timespec rest = {.tv_nsec = (long)(DT_SIGNALS_APART_S * 1e9)};
    while (nanosleep(&rest, &rest) != 0) continue; // an interrupted sleep goes on for the rest
    struct sigaction a;
    sigaction(SIGINT, NULL, &a);
    signal(SIGINT, SIG_IGN); // and what is pending is none
    sigaction(SIGINT, &a, NULL);
}

static void end_start(void) {
    // one side wins: the start that just ended, or the signal
    int was = STARTING;
    if (!atomic_compare_exchange_strong(&phase, &was, ENDING)) return;
    dt_watch_leave(DT_E_PREEMPTED, DT_WATCH_LEAVE_S);
    dt_warn("stopped by %s with nothing to save: run the same command again", dt_signals_name());
    dt_io_remove_unfinished();
    _exit(DT_E_PREEMPTED);
}

// Signals come while this thread waits, and only then.
static void *take_signals(void *set) {
    sigset_t open;
    dt_thread_name("signals");
    pthread_sigmask(SIG_BLOCK, NULL, &open);
    for (int i = 0; i < N_TAKEN; i++) sigdelset(&open, TAKEN[i].sig);
    for (;;) {
        const double left = grace() - (dt_clock_s() - seconds(&since)); // of the grace period
        const bool ends = atomic_load(&pending) && atomic_load(&phase) == STARTING;
        if (ends && left <= 0.0) end_start();
        const struct timespec rest = {.tv_sec = (time_t)(left + 1)}; // seldom looked at: no hurry
        ppoll(NULL, 0, ends ? &rest : NULL, &open);
    }
    return NULL;
}

static void install(void) {
    static sigset_t set; // read by the thread when it starts
    struct sigaction before;
    sigemptyset(&set);
    for (int i = 0; i < N_TAKEN; i++) sigaddset(&set, TAKEN[i].sig);
    // two at once run one after the other
    struct sigaction a = {.sa_handler = on_signal, .sa_flags = SA_RESTART, .sa_mask = set};
    for (int i = 0; i < N_TAKEN; i++) {
        sigaction(TAKEN[i].sig, NULL, &before);
        // nohup(1): the run outlives its terminal. SIGINT is ignored behind every `&` of a script
        if (TAKEN[i].sig == SIGHUP && before.sa_handler == SIG_IGN) continue;
        sigaction(TAKEN[i].sig, &a, NULL);
    }
    signal(SIGPIPE, SIG_IGN); // whoever reads the output may leave first
    pthread_t thread;
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    if (pthread_create(&thread, NULL, take_signals, &set) == 0)
        pthread_detach(thread);
    else
        pthread_sigmask(SIG_UNBLOCK, &set, NULL); // better here than not at all
}

void dt_signals_install(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install);
}

bool dt_signals_pending(void) {
    return atomic_load(&pending) != 0;
}

void dt_signals_set_grace(double seconds) {
    atomic_store(&grace_s, seconds);
}

bool dt_signals_grace_is_over(void) {
    // on CLOCK_MONOTONIC, as dt_clock_s
    return atomic_load(&pending) && dt_clock_s() - seconds(&since) > grace();
}

void dt_signals_saved(bool stopped) {
    // a run that ends for another reason has heeded none
    atomic_store(&n_heeded, stopped ? atomic_load(&n_signals) : 0);
    atomic_store(&interrupted, false);
}

bool dt_signals_again(void) {
    return atomic_load(&n_signals) > atomic_load(&n_heeded);
}

void dt_signals_starting(void) {
    atomic_store(&phase, STARTING);
}

void dt_signals_started(void) {
    int was = STARTING;
    atomic_compare_exchange_strong(&phase, &was, RUNNING);
    // the signal thread ends the process: this one must not write any more
    while (was == ENDING) pause();
}

bool dt_signals_take_trace(void) {
    // relaxed first: called every step
    return atomic_load_explicit(&trace, memory_order_relaxed) && atomic_exchange(&trace, false);
}

const char *dt_signals_name(void) {
    int sig = atomic_load(&pending);
    for (int i = 0; i < N_TAKEN; i++)
        if (TAKEN[i].sig == sig) return TAKEN[i].name;
    return "";
}
