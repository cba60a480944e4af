// signals.c: one flag. _exit in the handler is the only way out of a program that does not answer.

#include "train/signals.h"

#include "base/clock.h"

#include <signal.h>
#include <stddef.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t pending;
static struct timespec since; // written before `pending`, once

static void on_signal(int sig) {
    if (sig == SIGINT && pending == SIGINT) _exit(128 + SIGINT);
    if (!pending) clock_gettime(CLOCK_MONOTONIC, &since);
    pending = sig;
}

void dt_signals_install(void) {
    struct sigaction a = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&a.sa_mask);
    sigaction(SIGTERM, &a, NULL);
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGUSR1, &a, NULL);
}

bool dt_signals_pending(void) {
    return pending != 0;
}

double dt_signals_age_s(void) {
    if (!pending) return 0.0;
    return dt_clock_s() - ((double)since.tv_sec + 1e-9 * (double)since.tv_nsec);
}

const char *dt_signals_name(void) {
    switch (pending) {
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
