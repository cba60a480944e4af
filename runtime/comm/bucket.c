// bucket.c: see bucket.h.
//
// Gradients lie in the order in which backward finishes, so a bucket is a slice of the flat buffer, and in
// nearly all graphs bucket k is complete before bucket k + 1. Replicas count down an atomic per bucket. The
// comm's thread starts buckets strictly in order, even if a later one is ready first, so all ranks enter the
// same collectives in the same order without negotiation.
//
// What lies behind the last gradient (statistics that are summed along) belongs to the last bucket, or is a
// bucket of its own where gradients are sent as bf16. Nothing reports it ready, so a bucket with such a tail
// starts in dt_buckets_finish, after the replicas have ended. Finish takes all other buckets as ready too: a
// gradient that nothing flows into never reports.
//
// Bucket sizes do not change any bits: comm sums every element in rank order.
//
// Polling or a thread (tests/mpi/test_comm_mpi bench; np=2 on 2 cores, 50 ms of fixed work in 40 nodes,
// 1.3 M floats, buckets of 1 MiB, lower quartile of 31 steps): all-reduce at the end 52.4 ms, of which 1.75
// exposed; polling 52.7 and 0.20; a thread 55.5 and 0.73 with sleeps of 0.5 ms, 60.4 and 0.68 with sleeps of
// 0.1 ms. Where all cores compute, a thread's wake-ups cost more than polling, so polling is the default.
// Over shared memory neither shortens the step, because copying and adding need the same cores. The thread is
// for fast links and long nodes.
#include "comm/bucket.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/thread.h"
#include "base/vectorize.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MIB = 1 << 20 };

typedef struct bucket {
    int64_t begin, end; // elements of the flat buffer
    int n_reports;      // gradients * replicas
    atomic_int missing; // reports still to come in this step
    bool low;           // sent as bf16
    dt_request request;
} bucket;

enum { STATE_IDLE, STATE_STEP, STATE_FINISH, STATE_QUIT };

struct dt_buckets {
    dt_comm *comm;
    int n_replicas;
    bucket *buckets;
    int n_buckets;
    int *bucket_of; // by gradient index
    bool has_tail;
    uint16_t *low; // by element; NULL: none
    float **flats;
    int n_started;
    bool reducing; // some request may be in flight
    void (*add)(void *ctx, float *dst, const float *src, int64_t begin, int64_t end);
    void *add_ctx;

    bool threaded;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    atomic_int state; // written under lock, read by the thread between polls without it
    dt_status status; // of the thread's step
    char message[512];
};

// -- plan ----------------------------------------------------------------------------------------

static int compare_ends(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static void close_bucket(dt_buckets *b, int64_t begin, int64_t end) {
    b->buckets[b->n_buckets++] = (bucket){.begin = begin, .end = end, .request = {.id = -1}};
}

// Large enough that starting one costs little beside its transfer; small enough that a small network has
// several to overlap.
static int64_t auto_bytes(int64_t n_elements) {
    int64_t bytes = n_elements * (int64_t)sizeof(float) / 8;
    return bytes < MIB / 4 ? MIB / 4 : bytes > 25 * MIB ? 25 * MIB : bytes;
}

// A bucket ends where a gradient ends at or beyond the bucket's size.
static void cut_flat(dt_buckets *b, const dt_buckets_opts *o, const int64_t *ends) {
    int64_t begin = 0, later = o->bucket_bytes > 0 ? o->bucket_bytes : auto_bytes(o->n_elements);
    int64_t first = o->first_bytes > 0 ? o->first_bytes : later < MIB ? later : MIB;
    for (int i = 0; i < o->n_grads; i++) {
        int64_t limit = b->n_buckets == 0 ? first : later;
        if (ends[i] > begin && (ends[i] - begin) * (int64_t)sizeof(float) >= limit) {
            close_bucket(b, begin, ends[i]);
            begin = ends[i];
        }
    }
    if (o->n_grads > 0 && ends[o->n_grads - 1] > begin) {
        close_bucket(b, begin, ends[o->n_grads - 1]);
        begin = ends[o->n_grads - 1];
    }
    b->has_tail = begin < o->n_elements;
    for (int k = 0; k < b->n_buckets; k++) b->buckets[k].low = o->low != NULL;
    if (b->n_buckets == 0 || (o->low && b->has_tail)) close_bucket(b, begin, o->n_elements);
    b->buckets[b->n_buckets - 1].end = o->n_elements;
}

static void assign_gradients(dt_buckets *b, const dt_buckets_opts *o) {
    for (int g = 0; g < o->n_grads; g++) {
        int k = 0;
        while (o->grad_end[g] > b->buckets[k].end) k++;
        b->bucket_of[g] = k;
        b->buckets[k].n_reports += b->n_replicas;
    }
}

static void *progress_main(void *arg);

dt_status dt_buckets_create(dt_buckets **out, dt_comm *c, const dt_buckets_opts *o) {
    assert(o->n_replicas >= 1 && o->n_elements >= 0);
    dt_buckets *b = dt_xcalloc(1, sizeof *b);
    b->comm = c;
    b->n_replicas = o->n_replicas;
    b->add = o->add;
    b->add_ctx = o->add_ctx;
    b->low = o->low;
    b->buckets = dt_xcalloc((size_t)o->n_grads + 1, sizeof *b->buckets);
    b->bucket_of = dt_xcalloc((size_t)o->n_grads + 1, sizeof *b->bucket_of);
    b->flats = dt_xcalloc((size_t)o->n_replicas, sizeof *b->flats);
    int64_t *ends = dt_xcalloc((size_t)o->n_grads + 1, sizeof *ends);
    if (o->n_grads > 0) memcpy(ends, o->grad_end, (size_t)o->n_grads * sizeof *ends);
    qsort(ends, (size_t)o->n_grads, sizeof *ends, compare_ends);
    assert(o->n_grads == 0 || ends[o->n_grads - 1] <= o->n_elements);
    cut_flat(b, o, ends);
    assign_gradients(b, o);
    free(ends);
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->changed, NULL);
    b->threaded = o->thread;
    if (b->threaded && pthread_create(&b->thread, NULL, progress_main, b) != 0) {
        b->threaded = false;
        dt_buckets_destroy(b);
        return dt_fail(DT_E_INTERNAL,
                       "the comm's progress thread cannot be started: use comm.progress=poll");
    }
    *out = b;
    return DT_OK;
}

static void set_state(dt_buckets *b, int state) {
    pthread_mutex_lock(&b->lock);
    atomic_store(&b->state, state);
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
}

void dt_buckets_destroy(dt_buckets *b) {
    if (!b) return;
    if (b->threaded) {
        set_state(b, STATE_QUIT);
        pthread_join(b->thread, NULL);
    }
    pthread_mutex_destroy(&b->lock);
    pthread_cond_destroy(&b->changed);
    free(b->buckets);
    free(b->bucket_of);
    free(b->flats);
    free(b);
}

// -- a step --------------------------------------------------------------------------------------

void dt_buckets_begin(dt_buckets *b, float *const *flats) {
    for (int l = 0; l < b->n_replicas; l++) b->flats[l] = flats[l];
    for (int k = 0; k < b->n_buckets; k++) {
        int n = b->buckets[k].n_reports;
        bool waits = n == 0 || (k == b->n_buckets - 1 && b->has_tail);
        atomic_store(&b->buckets[k].missing, n + waits); // one report that only finish supplies
    }
    b->n_started = 0;
    b->reducing = false;
    b->status = DT_OK;
    if (b->threaded) set_state(b, STATE_STEP);
}

void dt_buckets_ready(dt_buckets *b, int replica, int grad_index) {
    // release: the gradient is written before the count tells so
    int before = atomic_fetch_sub_explicit(&b->buckets[b->bucket_of[grad_index]].missing, 1,
                                           memory_order_acq_rel);
    (void)before;
    assert(before > 0);
}

VECTORIZED static void add_range(float *restrict sum, const float *restrict x, int64_t begin,
                                 int64_t end) {
    for (int64_t i = begin; i < end; i++) sum[i] += x[i];
}

static dt_status start_bucket(dt_buckets *b, int k) {
    bucket *u = &b->buckets[k];
    float *sum = b->flats[0];
    for (int l = 1; l < b->n_replicas; l++) {
        if (b->add)
            b->add(b->add_ctx, sum, b->flats[l], u->begin, u->end);
        else
            add_range(sum, b->flats[l], u->begin, u->end);
    }
    const int64_t n = u->end - u->begin;
    dt_status st = u->low ? b->comm->all_reduce_bf16_start(b->comm, sum + u->begin,
                                                           b->low + u->begin, n, &u->request)
                          : b->comm->all_reduce_start(b->comm, sum + u->begin, n, &u->request);
    if (st != DT_OK) return dt_fail_context(st, "gradient bucket %d of %d", k + 1, b->n_buckets);
    b->n_started++;
    b->reducing |= u->request.id >= 0;
    return DT_OK;
}

static dt_status poll_buckets(dt_buckets *b) {
    while (b->n_started < b->n_buckets &&
           atomic_load_explicit(&b->buckets[b->n_started].missing, memory_order_acquire) == 0)
        DT_TRY(start_bucket(b, b->n_started));
    return b->reducing ? b->comm->progress(b->comm) : DT_OK;
}

static dt_status complete_buckets(dt_buckets *b) {
    while (b->n_started < b->n_buckets) DT_TRY(start_bucket(b, b->n_started));
    for (int k = 0; k < b->n_buckets; k++) {
        dt_status st = b->comm->wait(b->comm, &b->buckets[k].request);
        if (st != DT_OK)
            return dt_fail_context(st, "gradient bucket %d of %d", k + 1, b->n_buckets);
    }
    return DT_OK;
}

dt_status dt_buckets_poll(dt_buckets *b) {
    return b->threaded ? DT_OK : poll_buckets(b);
}

static dt_status wait_for_thread(dt_buckets *b) {
    set_state(b, STATE_FINISH);
    pthread_mutex_lock(&b->lock);
    while (atomic_load(&b->state) != STATE_IDLE) pthread_cond_wait(&b->changed, &b->lock);
    pthread_mutex_unlock(&b->lock);
    return b->status == DT_OK ? DT_OK : dt_fail(b->status, "%s", b->message);
}

dt_status dt_buckets_finish(dt_buckets *b, double *exposed_s) {
    double begin = dt_clock_s();
    dt_status st = b->threaded ? wait_for_thread(b) : complete_buckets(b);
    *exposed_s = dt_clock_s() - begin;
    return st;
}

// -- the progress thread -------------------------------------------------------------------------

static int await_work(dt_buckets *b) {
    pthread_mutex_lock(&b->lock);
    while (atomic_load(&b->state) == STATE_IDLE) pthread_cond_wait(&b->changed, &b->lock);
    int state = atomic_load(&b->state);
    pthread_mutex_unlock(&b->lock);
    return state;
}

static void *progress_main(void *arg) {
    dt_buckets *b = arg;
    const struct timespec nap = {.tv_nsec = 500000};
    dt_thread_name("dt-comm");
    for (;;) {
        int state = await_work(b);
        if (state == STATE_QUIT) return NULL;
        dt_status st = DT_OK;
        while (st == DT_OK && atomic_load(&b->state) == STATE_STEP) {
            st = poll_buckets(b);
            nanosleep(&nap, NULL); // the cores belong to the kernels
        }
        if (st == DT_OK && atomic_load(&b->state) == STATE_FINISH) st = complete_buckets(b);
        b->status = st;
        if (st != DT_OK) snprintf(b->message, sizeof b->message, "%s", dt_error_message());
        // finish reports a failed step: wait for it
        pthread_mutex_lock(&b->lock);
        while (atomic_load(&b->state) == STATE_STEP) pthread_cond_wait(&b->changed, &b->lock);
        bool quit = atomic_load(&b->state) == STATE_QUIT;
        if (!quit) atomic_store(&b->state, STATE_IDLE);
        pthread_cond_broadcast(&b->changed);
        pthread_mutex_unlock(&b->lock);
        if (quit) return NULL;
    }
}
