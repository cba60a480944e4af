// crash.c: see crash.h.
#define _GNU_SOURCE // gethostname
#include "base/crash.h"

#include "base/watch.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

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
static struct sigaction before[N_CRASHES];
static char who[32], host[64];

static void on_crash(int sig) {
    char line[320];
    int k = 0;
    dt_watch_leave(128 + sig, HANDLER_S);
    while (k < N_CRASHES - 1 && CRASHES[k].sig != sig) k++;
    // formats numbers and copies text: allocates nothing
    const int n = snprintf(line, sizeof line,
                           "dtrain%s: error: after step %lld: %s on %s; the same command goes on "
                           "from the last checkpoint. Please report it\n",
                           who, (long long)dt_watch_get_step(), CRASHES[k].what, host);
    if (n > 0 && write(STDERR_FILENO, line, (size_t)n) < 0) line[0] = 0; // nobody reads it
    sigaction(sig, &before[k], NULL);
    raise(sig); // taken when this returns
}

void dt_crash_install(int rank) {
    struct sigaction a = {.sa_handler = on_crash};
    sigemptyset(&a.sa_mask);
    if (rank >= 0) snprintf(who, sizeof who, "[%d]", rank);
    gethostname(host, sizeof host - 1);
    for (int k = 0; k < N_CRASHES; k++) {
        struct sigaction now;
        sigaction(CRASHES[k].sig, &a, &now);
        if (now.sa_handler != on_crash) before[k] = now; // else a second run of this process
    }
}
