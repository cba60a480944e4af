// failpoint.c: makes the n-th I/O call, or the n-th visit of a named point, fail.
//
// Without failpoints a visit costs one atomic load. With them a mutex guards a short table of points, each
// with its own counter, so the n-th visit is one exact call, whichever thread makes it.
#define _GNU_SOURCE
#include "failpoint.h"
#include "base/log.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_POINTS = 8, MAX_SCOPES = 8, NAME_BYTES = 32 };
typedef enum action {
    ACT_EIO,
    ACT_ENOSPC,
    ACT_SHORT,
    ACT_KILL,
    ACT_COUNT,
    ACT_STOP,
    ACT_HANG,
    ACT_SLOW,
    ACT_NAP,
    N_ACTIONS
} action;
// by enum action
static const char *const action_names[] = {"eio", "enospc", "short", "kill", "count", "stop", "hang", "slow", "nap"};

typedef struct point {
    char name[NAME_BYTES];
    uint64_t at, visits; // fires at visit `at`, counted from 1
    action what;
} point;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; // guards points and n_points
static pthread_once_t from_env = PTHREAD_ONCE_INIT;
static point points[MAX_POINTS];
static int n_points;
static atomic_bool armed; // lets a visit skip the mutex

// innermost last; borrowed literals
static _Thread_local const char *scopes[MAX_SCOPES];
static _Thread_local int n_scopes;

// One "name:N:ACTION" of n bytes.
static dt_status parse_point(point *p, const char *spec, size_t n) {
    char text[128], *end;
    *p = (point){0};
    if (n >= sizeof text) goto bad; // 127 bytes are more than any valid spec
    memcpy(text, spec, n);
    text[n] = '\0';
    char *number = strchr(text, ':');
    char *word = number ? strchr(number + 1, ':') : NULL; // the third field
    if (!word || number == text || (size_t)(number - text) >= NAME_BYTES) goto bad;
    *number++ = '\0';
    *word++ = '\0';
    memcpy(p->name, text, strlen(text) + 1);
    p->at = strtoull(number, &end, 10);
    if (end == number || *end) goto bad;
    for (int i = 0; i < N_ACTIONS; i++)
        if (strcmp(word, action_names[i]) == 0) {
            p->what = (action)i;
            return DT_OK;
        }
bad:
    return dt_fail(DT_E_USAGE,
                   "failpoint '%.*s': expected NAME:N:ACTION with ACTION one of eio, enospc, short, "
                   "kill, count, stop, hang, slow, nap",
                   (int)(n < 100 ? n : 100), spec);
}

static dt_status set_points(const char *spec) {
    // parsed as a whole first: an error leaves the old points
    point parsed[MAX_POINTS];
    int n = 0;
    while (spec && *spec) {
        size_t len = strcspn(spec, ",");
        if (n == MAX_POINTS) return dt_fail(DT_E_USAGE, "more than %d failpoints", (int)MAX_POINTS);
        DT_TRY(parse_point(&parsed[n++], spec, len));
        spec += len + (spec[len] == ','); // skips the comma, if there is one
    }
    pthread_mutex_lock(&mutex);
    memcpy(points, parsed, (size_t)n * sizeof *points);
    n_points = n;
    atomic_store(&armed, n > 0);
    pthread_mutex_unlock(&mutex);
    return DT_OK;
}

static void read_environment(void) {
    const char *spec = getenv("DTRAIN_FAILPOINT");
    // no abort: the program runs without failpoints
    if (spec && set_points(spec) != DT_OK) dt_error("DTRAIN_FAILPOINT: %s", dt_error_message());
}

dt_status dt_failpoint_set(const char *spec) {
    pthread_once(&from_env, read_environment); // so that it cannot overwrite these points later
    return set_points(spec);
}

// Counts one visit of `p`. Returns the action if this is the n-th, else -1.
static int failpoint_visit(point *p) {
    // nap delays each visit from the n-th on
    const bool is_due = ++p->visits == p->at || (p->what == ACT_NAP && p->visits > p->at);
    if (!is_due || p->what == ACT_COUNT) return -1; // count never fires
    if (p->what == ACT_KILL) {
        kill(getpid(), SIGKILL);
        for (;;) pause(); // SIGKILL is delivered asynchronously
    }
    if (p->what == ACT_STOP) {
        raise(SIGSTOP); // until the test sends SIGCONT
        nanosleep(&(struct timespec){.tv_nsec = 200000000},
                  NULL); // signals sent meanwhile come first
    }
    return (int)p->what;
}

static bool in_scope(const char *name) {
    if (strcmp(name, "io") == 0) return true; // every I/O call
    for (int i = 0; i < n_scopes && i < MAX_SCOPES; i++)
        if (strcmp(name, scopes[i]) == 0) return true;
    return false;
}

// Visits the points called `name`, or (NULL) those whose scope this I/O call is in. Returns the action that
// fires, or -1.
static int visit_all(const char *name) {
    pthread_once(&from_env, read_environment);
    // relaxed: set before threads start, or by a test
    if (!atomic_load_explicit(&armed, memory_order_relaxed)) return -1;
    int fired = -1;
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < n_points; i++) {
        bool is_meant = name ? strcmp(points[i].name, name) == 0 : in_scope(points[i].name);
        int act = is_meant ? failpoint_visit(&points[i]) : -1;
        if (act >= 0) fired = act; // the last one counts
    }
    pthread_mutex_unlock(&mutex);
    while (fired == ACT_HANG) pause(); // outside the lock: other threads go on
    if (fired == ACT_SLOW) sleep(7);   // seconds: longer than the warning of base/watch.h
    if (fired == ACT_NAP) nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL); // 0.1 s
    return fired;
}

int dt_failpoint_visit_io(void) {
    switch (visit_all(NULL)) {
    case ACT_EIO:
        return EIO; // errno, as a system call would set it
    case ACT_ENOSPC:
        return ENOSPC;
    case ACT_SHORT:
        return FAILPOINT_SHORT;
    default: // delays and named actions fail nothing
        return 0;
    }
}

bool dt_failpoint(const char *name) {
    return visit_all(name) >= 0;
}

uint64_t dt_failpoint_count(void) {
    pthread_mutex_lock(&mutex);
    uint64_t n = n_points ? points[0].visits : 0; // of the first point only
    pthread_mutex_unlock(&mutex);
    return n;
}

void dt_io_scope_push(const char *name) {
    assert(n_scopes < MAX_SCOPES);
    if (n_scopes < MAX_SCOPES) scopes[n_scopes] = name; // NDEBUG: counted, not stored, so that pop stays balanced
    n_scopes++;
}

void dt_io_scope_pop(void) {
    assert(n_scopes > 0);
    n_scopes--;
}
