// thread.c: a team of worker threads; usable cores.
//
// A team has one generation counter under one mutex. dt_team_run publishes (fn, arg), increments the
// generation, runs share 0 itself and waits for the others. Workers block all signals, so a signal always
// reaches the thread that handles it.
#define _GNU_SOURCE
#include "base/thread.h"
#include "base/core.h"
#include "base/os.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

// -- team ------------------------------------------------------------------------------------
typedef struct member {
    dt_team *team;
    pthread_t thread;
    int index; // share of the work; 0 is the caller
} member;

struct dt_team {
    // mutex guards all members from here to arg
    pthread_mutex_t mutex;
    pthread_cond_t start, done;
    uint64_t generation;         // increments once per dt_team_run
    int n, n_started, n_running; // threads of the team; created ones and the caller; still at work
    bool quit;
    void (*fn)(void *, int); // what the current generation runs
    void *arg;
    char name[16];
    member members[];
};

static void *thread_run_member(void *p) {
    member *m = p;
    dt_team *t = m->team;
    char name[32];
    snprintf(name, sizeof name, "%.10s-%d", t->name, m->index); // 15 characters are the kernel's limit
    dt_thread_name(name);
    uint64_t seen = 0; // generation that this worker has done
    pthread_mutex_lock(&t->mutex);
    for (;;) {
        // predicate: a signal may come before the wait
        while (t->generation == seen && !t->quit) pthread_cond_wait(&t->start, &t->mutex);
        if (t->quit) break;
        seen = t->generation;
        void (*fn)(void *, int) = t->fn; // copied under the lock
        void *arg = t->arg;
        pthread_mutex_unlock(&t->mutex);
        fn(arg, m->index);
        pthread_mutex_lock(&t->mutex);
        if (--t->n_running == 0) pthread_cond_signal(&t->done); // the last one wakes the caller
    }
    pthread_mutex_unlock(&t->mutex);
    return NULL;
}

bool dt_thread_wait(pthread_cond_t *c, pthread_mutex_t *m, double until_s) {
    if (isinf(until_s)) return pthread_cond_wait(c, m) == 0;
    const struct timespec until = {(time_t)until_s, (long)(1e9 * (until_s - floor(until_s)))};
    // CLOCK_MONOTONIC: setting the time does not end a wait
    return pthread_cond_clockwait(c, m, CLOCK_MONOTONIC, &until) != ETIMEDOUT;
}

// By trying: ThreadSanitizer of GCC 12 does not know pthread_mutex_clocklock.
bool dt_thread_lock(pthread_mutex_t *m, double seconds) {
    const double until_s = dt_clock_s() + seconds;
    while (pthread_mutex_trylock(m) != 0) {
        if (dt_clock_s() >= until_s) return false;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return true;
}

dt_status dt_team_create(dt_team **out, int n_workers, const char *name) {
    assert(n_workers > 0);
    dt_team *t = dt_xcalloc(1, sizeof *t + (size_t)n_workers * sizeof t->members[0]);
    pthread_mutex_init(&t->mutex, NULL);
    pthread_cond_init(&t->start, NULL);
    pthread_cond_init(&t->done, NULL);
    t->n = n_workers;
    t->n_started = 1; // the caller is worker 0
    snprintf(t->name, sizeof t->name, "%s", name);
    sigset_t all, old;
    // inherited by the workers
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int err = 0;
    while (t->n_started < n_workers && err == 0) {
        member *m = &t->members[t->n_started];
        *m = (member){.team = t, .index = t->n_started};
        err = pthread_create(&m->thread, NULL, thread_run_member, m);
        if (err == 0) t->n_started++;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (err) {
        dt_status st = dt_fail(DT_E_INTERNAL,
                               "cannot start thread %d of %d for %s: %s; lower device.threads or "
                               "data.workers, or raise the limits on processes and memory (ulimit -u, -v)",
                               t->n_started, n_workers, name, strerror(err));
        dt_team_destroy(t); // joins those that started
        return st;
    }
    *out = t;
    return DT_OK;
}

void dt_team_run(dt_team *t, void (*fn)(void *arg, int worker), void *arg) {
    if (t->n == 1) {
        // no thread, no lock
        fn(arg, 0);
        return;
    }
    pthread_mutex_lock(&t->mutex);
    assert(t->n_running == 0); // not reentrant: one run at a time
    t->fn = fn;
    t->arg = arg;
    t->n_running = t->n - 1;
    t->generation++; // under the mutex: a worker sees fn and arg with it
    pthread_cond_broadcast(&t->start);
    pthread_mutex_unlock(&t->mutex);
    fn(arg, 0);
    pthread_mutex_lock(&t->mutex);
    while (t->n_running > 0) pthread_cond_wait(&t->done, &t->mutex); // a barrier: all writes of the workers are visible
    pthread_mutex_unlock(&t->mutex);
}

int dt_team_size(const dt_team *t) {
    return t->n;
}

void dt_team_destroy(dt_team *t) {
    if (!t) return;
    pthread_mutex_lock(&t->mutex);
    t->quit = true;
    pthread_cond_broadcast(&t->start);
    pthread_mutex_unlock(&t->mutex);
    for (int i = 1; i < t->n_started; i++) pthread_join(t->members[i].thread, NULL);
    pthread_cond_destroy(&t->done);
    pthread_cond_destroy(&t->start);
    pthread_mutex_destroy(&t->mutex);
    free(t);
}

// -- cores -----------------------------------------------------------------------------------
static int affinity_cores(void) {
    for (int cpus = 1024; cpus <= 1 << 20; cpus *= 4) { // grows until the kernel's mask fits
        cpu_set_t *set = CPU_ALLOC((size_t)cpus);
        if (!set) break;
        size_t size = CPU_ALLOC_SIZE((size_t)cpus);
        // EINVAL: the mask is larger than the set
        int n = sched_getaffinity(0, size, set) == 0 ? CPU_COUNT_S(size, set) : -errno;
        CPU_FREE(set);
        if (n != -EINVAL) return n > 0 ? n : 1; // another error: one core is safe
    }
    return 1;
}

// Reads one or two numbers ("max" = -1) from a cgroup's file; false if it cannot be read.
static bool thread_read_numbers(const char *dir, const char *file, double *a, double *b) {
    char path[4500], first[32] = "", second[32] = "";
    snprintf(path, sizeof path, "%s/%s", dir, file);
    FILE *f = fopen(path, "re");
    if (!f) return false;
    int n = fscanf(f, "%31s %31s", first, second);
    fclose(f);
    *a = strcmp(first, "max") == 0 ? -1 : atof(first); // no quota
    if (b && n == 2) *b = atof(second);
    return n >= 1;
}

static void take_quota(void *cores, const char *dir, bool v2) {
    double quota = -1, period = 100000, *least = cores; // microseconds; 100 ms is the kernel's default period
    if (v2)
        thread_read_numbers(dir, "cpu.max", &quota, &period);
    else if (thread_read_numbers(dir, "cpu.cfs_quota_us", &quota, NULL))
        thread_read_numbers(dir, "cpu.cfs_period_us", &period, NULL);
    if (quota > 0 && period > 0 && quota / period < *least) *least = quota / period; // in cores
}

int dt_usable_cores(void) {
    int cores = affinity_cores();
    double quota = 1e9; // in cores: the tightest
    dt_cgroup_walk("cpu", take_quota, &quota);
    if (quota < cores) cores = quota <= 1 ? 1 : (int)(quota + 0.999); // a fraction of a core rounds up
    return cores;
}

uint64_t dt_thread_waits(void) {
    struct rusage u;
    // voluntary context switches: waits for locks, I/O and sleeps
    return getrusage(RUSAGE_THREAD, &u) == 0 ? (uint64_t)u.ru_nvcsw : 0;
}

void dt_thread_name(const char *name) {
    char text[16]; // the kernel refuses longer names
    snprintf(text, sizeof text, "%.15s", name);
    pthread_setname_np(pthread_self(), text);
}

// Who reads a new byte sees what the writer did before, too, such as counting.
void dt_thread_set_text(_Atomic char *to, size_t cap, const char *text) {
    for (; *text && cap > 1; cap--) atomic_store_explicit(to++, *text++, memory_order_release);
    atomic_store_explicit(to, '\0', memory_order_release);
}

void dt_thread_get_text(char *out, const _Atomic char *from, size_t cap) {
    for (; cap > 0; cap--) *out++ = atomic_load_explicit(from++, memory_order_acquire);
}
