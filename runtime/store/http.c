// http.c: loads the module and repeats what fails.
#include "http.h"

#include "base/hash.h"
#include "base/log.h"
#include "base/os.h"
#include "base/rng.h"

#include <dlfcn.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static dt_http_try try_once;
static char missing[512]; // why there is no module
static pthread_once_t loaded = PTHREAD_ONCE_INIT;

static void http_load(void) {
    char path[PATH_MAX];
    if (dt_module_find("dtrain_http.so", path, sizeof path) != DT_OK || !*path) {
        snprintf(missing, sizeof missing,
                 "dtrain_http.so is not beside the program: install libcurl4-openssl-dev and build "
                 "again");
        return;
    }
    // now: a missing libcurl is a message here, and no crash at a call
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *symbol = module ? dlsym(module, DT_HTTP_MODULE_SYMBOL) : NULL;
    if (!symbol) snprintf(missing, sizeof missing, "%s", dlerror());
    memcpy(&try_once, &symbol, sizeof symbol); // ISO C converts no object pointer to a function's
}

bool dt_http_is_url(const char *path) {
    return strncmp(path, "http://", 7) == 0 || strncmp(path, "https://", 8) == 0;
}

static bool is_passing(int status) {
    return status == 408 || status == 429 || status == 500 || status == 502 || status == 503 || status == 504;
}

enum {
    PROGRESS_BYTES = 65536,
    OUTAGE_S = 30, // attempts that are further apart are of two outages
    WARN_S = 5     // then a line says so, and again after 10, 20 … s
};

// Between half and all of 0.2, 0.4, … 5 s, so that clients which failed together do not come back together.
static double pause_s(int attempt) {
    static _Atomic uint32_t count;
    const double most = attempt < 6 ? 0.1 * (double)(1 << attempt) : 5; // 1 << 6 would be more than 5 s
    const uint32_t counter[4] = {++count};
    uint32_t x[4];
    dt_philox4x32((uint64_t)(dt_clock_s() * 1e9), counter, x);
    return most * (0.5 + 0.5 * (double)x[0] / 4294967296.0);
}

static void http_sleep_s(double s) {
    struct timespec t = {(time_t)s, (long)((s - (double)(time_t)s) * 1e9)};
    nanosleep(&t, NULL);
}

// Servers of which requests failed, of all threads: what one has waited for, no other waits for again.
static pthread_mutex_t outages_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct outage {
    uint64_t server;
    double begun, since, last, warn_at; // begun, since: the first attempt that failed, and its end
} outages[16];

// Notes whether the server has answered. Returns since when it has not; *warn_s: the seconds that a line is due for, or 0.
static double note_attempt(const dt_http_request *r, bool good, double begun, double *warn_s) {
    const char *colon = strstr(r->url, "://"), *host = colon ? colon + 3 : r->url;
    const uint64_t server = dt_hash64(r->url, (size_t)(host - r->url) + strcspn(host, "/"));
    const double now = dt_clock_s();
    pthread_mutex_lock(&outages_mutex);
    struct outage *o = &outages[server % 16]; // of two servers in one place the later one counts
    // an answer ends the server's outage; a failure after OUTAGE_S begins another
    if (good ? server == o->server : server != o->server || now > o->last + OUTAGE_S) {
        o->server = good ? 0 : server;
        o->begun = begun;
        o->since = now;
        o->warn_at = WARN_S;
    }
    if (!good) o->last = now;
    const double since = o->since;
    const bool warn = !good && !r->once && now - o->begun >= o->warn_at;
    *warn_s = warn ? now - o->begun : 0;
    if (warn) o->warn_at *= 2; // 5, 10, 20 … s, whichever thread comes
    pthread_mutex_unlock(&outages_mutex);
    return since;
}

dt_status dt_http_do(dt_http_reply *out, const dt_http_request *r) {
    *out = (dt_http_reply){0};
    pthread_once(&loaded, http_load);
    if (!try_once) return dt_fail(DT_E_USAGE, "%s: %s", r->url, missing);
    const double begin = dt_clock_s(), limit_s = r->limit_s > 0 ? r->limit_s : 60;
    double since = begin; // the limit counts from here
    dt_http_attempt a = {0};
    for (int n = 1;; n++) {
        const size_t had = a.n_got;
        a.retry_after_s = -1;
        a.again = false;
        dt_http_reply_fini(out);
        const double begun = dt_clock_s();
        const bool answered = try_once(out, r, &a);
        const bool done = answered && !is_passing(out->status);
        if (answered) snprintf(a.cause, sizeof a.cause, "the server returned %d", out->status);
        const double now = dt_clock_s();
        const bool progress = a.n_got >= had + PROGRESS_BYTES;
        const bool is_fault = !done && !progress && (answered || a.again);
        double warn_s;
        const double gone = note_attempt(r, !is_fault, begun, &warn_s);
        if (done) return DT_OK;
        if (progress || (n == 1 && a.sent)) since = now;     // a first attempt that a slow server took does not count
        if (is_fault) since = fmin(since, gone);             // other requests have waited for this server already
        const double pause = a.n_got > had ? 0 : pause_s(n); // a body that was cut goes on at once
        const double wait_s = a.retry_after_s > pause ? a.retry_after_s : pause;
        const bool stalled = !answered && r->stall_s > 0 && now - begun >= r->stall_s;
        if ((!answered && !a.again) || stalled || r->once || now - since + wait_s > limit_s || (r->stop && *r->stop)) {
            char later[64] = "", longer[64] = "";
            if (a.retry_after_s > 0) snprintf(later, sizeof later, " and wants %.0f s of rest", a.retry_after_s);
            if (begin - since > 1)
                snprintf(longer, sizeof longer, "; no other request succeeded for %.0f s", now - since);
            dt_http_reply_fini(out);
            return dt_fail(a.again || answered ? DT_E_STORAGE : DT_E_DATA, "%s: %s%s (%d attempt%s in %.1f s%s)",
                           r->url, a.cause, later, n, n == 1 ? "" : "s", now - begin, longer);
        }
        if (warn_s > 0) // urgent: no log line while a request is watched
            dt_log_urgent(DT_LOG_WARN, false, "%s: %s: no response for %.0f s; retrying", r->url, a.cause, warn_s);
        const double end = dt_clock_s() + wait_s;
        // in steps, so that a signal stops it
        while (dt_clock_s() < end && !(r->stop && *r->stop)) http_sleep_s(fmin(0.1, end - dt_clock_s()));
    }
}

void dt_http_reply_fini(dt_http_reply *r) {
    free(r->body);
    *r = (dt_http_reply){0};
}
