// sim_threads.c: threads that take turns, and a clock that stands still while one runs. See sim.h.
//
// Each thread has a semaphore; the one that runs hands over by posting another's. Mutexes are the real ones, only
// tried: their state needs no copy. Threads outside the simulation get the real functions.
#define _GNU_SOURCE
#include "sim.h"

#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MAX_TASKS = 64 };
static const double WALL_S = 1.7e9, BOOT_S = 1000; // the clocks at 0

typedef struct task {
    int rank;
    bool ready, timed_out, done;
    double wake_s;
    const void *on;
    const char *what;
    sem_t go;
    pthread_t thread;
    void *(*fn)(void *);
    void *arg;
} task;

static task tasks[MAX_TASKS];
static int n_tasks;
static double now_s, frozen_until[SIM_RANKS];
static uint64_t random_state;
static _Thread_local task *me;

#define REAL_COND(name, version) /* dlsym may find those of an older ABI */                                            \
    static __typeof__(&name) real;                                                                                     \
    if (!real) *(void **)&real = dlvsym(RTLD_NEXT, #name, version)

double sim_now(void) {
    return now_s;
}
int sim_rank(void) {
    return me ? me->rank : -1;
}

void sim_seed(uint64_t seed) {
    random_state = seed * 0xd1342543de82ef95u;
}

uint64_t sim_random(void) { // splitmix64
    uint64_t z = (random_state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

double sim_uniform(double low, double high) {
    return low + (high - low) * (double)(sim_random() >> 11) * 0x1p-53;
}

// ---- who goes on -----------------------------------------------------------------------------------
static void violate(const char *what) {
    char *v = sim_world->violation;
    size_t cap = sizeof sim_world->violation, n = (size_t)snprintf(v, cap, "%s:", what);
    for (int i = 0; i < n_tasks && n < cap; i++)
        if (!tasks[i].done && tasks[i].rank < SIM_RANKS && !isinf(frozen_until[tasks[i].rank]))
            n += (size_t)snprintf(v + n, cap - n, " rank %d in %s;", tasks[i].rank, tasks[i].what);
    sim_end(-1);
}

// The time at which t can run; INFINITY: when somebody wakes it.
static double due(const task *t) {
    if (t->done) return INFINITY;
    double at = t->ready ? 0 : t->wake_s;
    double frozen = t->rank < SIM_RANKS ? frozen_until[t->rank] : 0;
    return at > frozen ? at : frozen;
}

static task *choose(void) {
    for (;;) {
        task *ready[MAX_TASKS];
        int n = 0;
        double soonest = INFINITY;
        for (int i = 0; i < n_tasks; i++) {
            double at = due(&tasks[i]);
            if (at <= now_s) ready[n++] = &tasks[i];
            if (at < soonest) soonest = at;
        }
        if (n) return ready[sim_random() % (uint64_t)n];
        if (isinf(soonest)) violate("nobody can go on");
        if (soonest > sim_world->limit_s) violate("too late");
        now_s = soonest;
    }
}

static void switch_task(void) {
    task *self = me, *next = choose();
    if (!next->ready) {
        next->ready = next->timed_out = true;
        next->on = NULL;
    }
    if (next == self) return;
    sem_post(&next->go);
    if (self->done) return;
    while (sem_wait(&self->go) != 0) continue;
}

bool sim_wait(const void *on, double until_s, const char *what) {
    me->ready = me->timed_out = false;
    me->on = on;
    me->wake_s = until_s;
    me->what = what;
    switch_task();
    me->what = "computing";
    return !me->timed_out;
}

void sim_sleep(double s) {
    sim_wait(NULL, now_s + s, "a sleep");
}

void sim_wake(const void *on) {
    for (int i = 0; i < n_tasks; i++)
        if (!tasks[i].ready && tasks[i].on == on) {
            tasks[i].ready = true;
            tasks[i].on = NULL;
        }
}

void sim_freeze(int rank, double seconds) {
    frozen_until[rank] = now_s + seconds;
    if (me->rank == rank) sim_sleep(0);
}

int sim_n_lost(void) {
    int n = 0;
    for (int r = 0; r < SIM_RANKS; r++) n += isinf(frozen_until[r]) != 0;
    return n;
}

void sim_bury(int rank) {
    sim_freeze(rank, INFINITY);
}

static void *run_task(void *arg) {
    me = arg;
    while (sem_wait(&me->go) != 0) continue;
    void *result = me->fn(me->arg);
    me->done = true;
    sim_wake(me);
    switch_task();
    return result;
}

static int spawn(pthread_t *out, int rank, void *(*fn)(void *), void *arg) {
    REAL(pthread_create);
    if (n_tasks == MAX_TASKS) return EAGAIN;
    task *t = &tasks[n_tasks++];
    *t = (task){.rank = rank, .ready = true, .what = "its start", .fn = fn, .arg = arg};
    sem_init(&t->go, 0, 0);
    int err = real(&t->thread, NULL, run_task, t);
    if (out) *out = t->thread;
    return err;
}

void sim_spawn(int rank, void *(*fn)(void *), void *arg) {
    if (!me) { // the first call makes its caller the launcher
        me = &tasks[n_tasks++];
        *me = (task){.rank = SIM_RANKS, .ready = true, .what = "the launcher", .thread = pthread_self()};
        sem_init(&me->go, 0, 0);
    }
    if (spawn(NULL, rank, fn, arg) != 0) sim_end(-1);
}

void sim_end(int code) {
    sim_world->code = code;
    sim_world->end_s = now_s;
    syscall(SYS_exit_group, 0);
    abort();
}

void _exit(int code) {
    if (me && me->rank < SIM_RANKS) {
        sim_job_over(code, "_exit");
        sim_bury(me->rank);
    }
    for (;;) syscall(SYS_exit_group, code);
}

void sim_say(const char *fmt, ...) {
    char line[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    if (sim_world->verbose) fprintf(stderr, "%9.3f [%d] %s\n", now_s, sim_rank(), line);
}

// ---- pthreads --------------------------------------------------------------------------------------
int pthread_create(pthread_t *out, const pthread_attr_t *a, void *(*fn)(void *), void *arg) {
    REAL(pthread_create);
    return me ? spawn(out, me->rank, fn, arg) : real(out, a, fn, arg);
}

int pthread_join(pthread_t thread, void **result) {
    REAL(pthread_join);
    for (int i = 0; me && i < n_tasks; i++)
        while (pthread_equal(tasks[i].thread, thread) && !tasks[i].done) sim_wait(&tasks[i], INFINITY, "pthread_join");
    return real(thread, result);
}

int pthread_mutex_lock(pthread_mutex_t *m) {
    REAL(pthread_mutex_lock);
    if (!me) return real(m);
    int err;
    while ((err = pthread_mutex_trylock(m)) == EBUSY) sim_wait(m, INFINITY, "a mutex");
    return err;
}

int pthread_mutex_unlock(pthread_mutex_t *m) {
    REAL(pthread_mutex_unlock);
    int err = real(m);
    if (me) sim_wake(m);
    return err;
}

static int wait_cond(pthread_cond_t *c, pthread_mutex_t *m, double until_s) {
    pthread_mutex_unlock(m);
    bool woken = sim_wait(c, until_s, "a condition");
    pthread_mutex_lock(m);
    return woken ? 0 : ETIMEDOUT;
}

int pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m) {
    REAL_COND(pthread_cond_wait, "GLIBC_2.3.2");
    return me ? wait_cond(c, m, INFINITY) : real(c, m);
}

int pthread_cond_clockwait(pthread_cond_t *c, pthread_mutex_t *m, clockid_t clock, const struct timespec *until) {
    REAL_COND(pthread_cond_clockwait, "GLIBC_2.30");
    if (!me) return real(c, m, clock, until);
    return wait_cond(c, m, (double)until->tv_sec + 1e-9 * (double)until->tv_nsec - BOOT_S);
}

int pthread_cond_signal(pthread_cond_t *c) {
    REAL_COND(pthread_cond_signal, "GLIBC_2.3.2");
    if (me) sim_wake(c); // waking all is allowed, and who waits checks again
    return me ? 0 : real(c);
}

int pthread_cond_broadcast(pthread_cond_t *c) {
    REAL_COND(pthread_cond_broadcast, "GLIBC_2.3.2");
    if (me) sim_wake(c);
    return me ? 0 : real(c);
}

// ---- time ------------------------------------------------------------------------------------------
int clock_gettime(clockid_t id, struct timespec *t) {
    if (!me) return (int)syscall(SYS_clock_gettime, id, t);
    double s = now_s + (id == CLOCK_REALTIME ? WALL_S : BOOT_S);
    *t = (struct timespec){(time_t)s, (long)(1e9 * (s - floor(s)))};
    return 0;
}

int clock_nanosleep(clockid_t id, int flags, const struct timespec *t, struct timespec *rest) {
    double s = (double)t->tv_sec + 1e-9 * (double)t->tv_nsec;
    if (!me) return syscall(SYS_clock_nanosleep, id, flags, t, rest) == 0 ? 0 : errno;
    if (flags & TIMER_ABSTIME) s -= now_s + (id == CLOCK_REALTIME ? WALL_S : BOOT_S);
    sim_sleep(s > 0 ? s : 0);
    return 0;
}

int nanosleep(const struct timespec *t, struct timespec *rest) {
    errno = clock_nanosleep(CLOCK_MONOTONIC, 0, t, rest);
    return errno ? -1 : 0;
}

int usleep(useconds_t us) {
    return nanosleep(&(struct timespec){us / 1000000, (long)(us % 1000000) * 1000}, NULL);
}

unsigned sleep(unsigned s) {
    nanosleep(&(struct timespec){s, 0}, NULL);
    return 0;
}
