// guard.c: a SIGBUS in a range that a thread said it would read ends that read, not the process.
//
// A page of a mapped file that is not there when it is touched (the file was cut, the disk or the server
// failed, the memory under it did) is a SIGBUS, sent to the thread that touched it, at that instruction.
// The handler looks whether its thread is inside a guard and whether the address is one of the guard's: if
// so, it jumps back to where the guard began. Any other SIGBUS is none of ours, and goes on to the handler
// that was there before (Open MPI's, which prints a trace; a sanitizer's), or else to the system's answer,
// which is the end of the process: with SIG_DFL restored the instruction runs again and faults again.
//
// What makes that sound: the signal is synchronous, so nothing is interrupted but the access itself; what a
// guard runs holds no lock and owns nothing. The guard is found by a thread-local of the executable, whose
// address needs no call and no allocation. sigsetjmp keeps no mask, so that a guard costs no system call; the
// handler puts back the one that the signal found (ThreadSanitizer blocks all signals in handlers).
//
// A fault whose signal is blocked ends the process at once, without a handler; so a thread's first guard lets
// SIGBUS through. A handler that was there for one signal only (SA_RESETHAND) gets one: it may return and expect
// that the instruction then ends the process, and would be asked for ever.
//
// The handler is installed when the first file is mapped: after MPI_Init, and Open MPI leaves a handler alone
// that it finds, so either order works. If with a later file another one is found in its place, ours goes on
// top of it. That one may pass on to ours, as the one that it had found: so each time that the handler is
// entered again by the one it passed to, it passes to an older one, and at last to the system.
//
// Rejected: putting a page of zeros in the place of the one that is gone and going on: zeros are data.
#include "guard.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <ucontext.h>
#include <unistd.h>

typedef struct guard {
    sigjmp_buf back;
    uintptr_t begin, end;
} guard;

static _Thread_local guard *volatile inside; // of this thread
static _Thread_local int depth;              // handlers that were passed to and have not returned
static _Thread_local bool is_let_through;    // SIGBUS, to this thread
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction
    before[8]; // that ours was put on top of, oldest first; never changed once counted
static int n_before;

static void pass_on(int sig, siginfo_t *info, void *context) {
    static const struct sigaction END = {.sa_handler = SIG_DFL};
    int i = __atomic_load_n(&n_before, __ATOMIC_ACQUIRE) - ++depth;
    const struct sigaction *a = i >= 0 ? &before[i] : &END;
    // and not somebody's kill(), nor word of memory that nobody has touched yet
    bool is_fault = info->si_code > 0 && info->si_code != BUS_MCEERR_AO;
    if (a->sa_flags & SA_RESETHAND) signal(sig, SIG_DFL);
    if (a->sa_flags & SA_SIGINFO) {
        a->sa_sigaction(sig, info, context);
    } else if (a->sa_handler != SIG_DFL && a->sa_handler != SIG_IGN) {
        a->sa_handler(sig);
    } else if (is_fault || a->sa_handler == SIG_DFL) {
        signal(sig, SIG_DFL);
        if (!is_fault) raise(sig); // no instruction will
    }
    depth--;
}

static void on_bus(int sig, siginfo_t *info, void *context) {
    guard *g = inside;
    uintptr_t at = (uintptr_t)info->si_addr;
    if (g && info->si_code > 0 && at >= g->begin && at < g->end) {
        pthread_sigmask(SIG_SETMASK, &((ucontext_t *)context)->uc_sigmask, NULL);
        siglongjmp(g->back, 1);
    }
    pass_on(sig, info, context);
}

static bool is_ours(const struct sigaction *a) {
    return (a->sa_flags & SA_SIGINFO) && a->sa_sigaction == on_bus;
}

bool dt_guard_arm(void) {
    struct sigaction ours = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO | SA_NODEFER}, there;
    bool ok = false;
    sigemptyset(&ours.sa_mask);
    pthread_mutex_lock(&lock);
    if (sigaction(SIGBUS, NULL, &there) == 0) {
        ok = is_ours(&there);
        if (!ok && n_before < (int)(sizeof before / sizeof *before)) {
            before[n_before] = there;
            __atomic_store_n(&n_before, n_before + 1, __ATOMIC_RELEASE);
            // libraries exist (UCX) whose own sigaction() takes no handler of others and says it did
            ok = sigaction(SIGBUS, &ours, NULL) == 0 && sigaction(SIGBUS, NULL, &there) == 0 &&
                 is_ours(&there);
        }
    }
    pthread_mutex_unlock(&lock);
    return ok;
}

static void let_through(void) {
    sigset_t bus;
    sigemptyset(&bus);
    sigaddset(&bus, SIGBUS);
    is_let_through = pthread_sigmask(SIG_UNBLOCK, &bus, NULL) == 0;
}

bool dt_guard_run(void (*run)(void *ctx), void *ctx, const void *at, size_t n_bytes) {
    if (!is_let_through) let_through();
    // some machines tell the page, not the byte
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    guard g = {.begin = (uintptr_t)at / page * page, .end = (uintptr_t)at + n_bytes};
    if (sigsetjmp(g.back, 0) != 0) {
        inside = NULL;
        return false;
    }
    inside = &g;
    atomic_signal_fence(
        memory_order_seq_cst); // no access of run() before this, none after the next
    run(ctx);
    atomic_signal_fence(memory_order_seq_cst);
    inside = NULL;
    return true;
}
