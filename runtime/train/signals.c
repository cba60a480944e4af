// signals.c: one flag, and one thread that signals come to. _exit in the handler is the only way out
// of a program that does not answer.
//
// No thread that computes may run a handler: up to 3.11, oneDNN's generated matrix products for AVX2
// and AVX-512 use the stack pointer as one more register and let it point into the heap (oneDNN issue
// 4845), and there the kernel would write the handler's frame. So the calling thread blocks the three
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

static atomic_int pending;
static struct timespec since; // written before `pending`, once

static void on_signal(int sig) {
    int before = atomic_load(&pending);
    if (sig == SIGINT && before == SIGINT) _exit(128 + SIGINT);
    if (!before) clock_gettime(CLOCK_MONOTONIC, &since);
    atomic_store(&pending, sig);
}

static void *take_signals(void *set) {
    dt_thread_name("signals");
    pthread_sigmask(SIG_UNBLOCK, set, NULL);
    for (;;) pause();
    return NULL;
}

static void install(void) {
    static sigset_t set; // read by the thread when it starts
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGUSR1);
    // two at once run one after the other
    struct sigaction a = {.sa_handler = on_signal, .sa_flags = SA_RESTART, .sa_mask = set};
    sigaction(SIGTERM, &a, NULL);
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGUSR1, &a, NULL);
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
    if (!atomic_load(&pending)) return 0.0;
    return dt_clock_s() - ((double)since.tv_sec + 1e-9 * (double)since.tv_nsec);
}

const char *dt_signals_name(void) {
    switch (atomic_load(&pending)) {
    case SIGTERM:
        return "SIGTERM";
    case SIGINT:
        return "SIGINT";
    case SIGUSR1:
        return "SIGUSR1";
    default:
        return "";
    }
}
