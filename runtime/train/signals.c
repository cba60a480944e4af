// signals.c: one flag, and one thread that takes signals. _exit in the handler is the only way out of a program
// that does not answer.
//
// No thread that computes may run a handler: up to 3.11, oneDNN's generated matmuls for AVX2
// and AVX-512 use the stack pointer as one more register and let it point into the heap (oneDNN issue
// 4845), and there the kernel would write the handler's frame. So the calling thread blocks these
// signals, all threads that it makes inherit that, and the one that does not only waits for them.

#include "train/signals.h"

#include "base/clock.h"
#include "base/thread.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <time.h>
#include <unistd.h>

static const struct {
    int sig;
    const char *name;
} TAKEN[] = {{SIGTERM, "SIGTERM"}, {SIGINT, "SIGINT"}, {SIGUSR1, "SIGUSR1"}, {SIGHUP, "SIGHUP"}};
enum { N_TAKEN = sizeof TAKEN / sizeof *TAKEN };

// Of the first signal; written before `pending`, once.
static struct timespec since;
static atomic_int pending;

static double seconds(const struct timespec *t) {
    return (double)t->tv_sec + 1e-9 * (double)t->tv_nsec;
}

// A SIGINT that comes with the first one is dropped after a sleep. A clock would not do: two that came at once would
// look apart when this thread was not scheduled between them.
static void on_signal(int sig) {
    static bool interrupted;
    if (!atomic_load(&pending)) {
        clock_gettime(CLOCK_MONOTONIC, &since);
        atomic_store(&pending, sig);
    }
    if (sig != SIGINT) return;
    if (interrupted) _exit(128 + SIGINT);
    interrupted = true;
    struct timespec rest = {.tv_nsec = (long)(DT_SIGNALS_APART_S * 1e9)};
    while (nanosleep(&rest, &rest) != 0) continue;
    struct sigaction a;
    sigaction(SIGINT, NULL, &a);
    signal(SIGINT, SIG_IGN); // and what is pending is none
    sigaction(SIGINT, &a, NULL);
}

static void *take_signals(void *set) {
    dt_thread_name("signals");
    pthread_sigmask(SIG_UNBLOCK, set, NULL);
    for (;;) pause();
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

double dt_signals_age_s(void) {
    return atomic_load(&pending) ? dt_clock_s() - seconds(&since) : 0.0;
}

const char *dt_signals_name(void) {
    int sig = atomic_load(&pending);
    for (int i = 0; i < N_TAKEN; i++)
        if (TAKEN[i].sig == sig) return TAKEN[i].name;
    return "";
}
