// bucket.c: see bucket.h.
//
// Gradients lie in the order in which backward finishes, so a bucket is a slice of the flat buffer, and in
// nearly all graphs bucket k is complete before bucket k + 1. Replicas count down an atomic per bucket. The
// comm's thread starts buckets strictly in order, even if a later one is ready first, so all ranks enter the
// same collectives in the same order without negotiation.
//
// What lies behind the last gradient (statistics that are summed along) belongs to the last bucket, or is a
// bucket of its own where gradients are sent as bf16 or summed at their owners. Nothing reports it ready, so a bucket with such a tail
// starts in dt_buckets_finish, after the replicas have ended. Finish takes all other buckets as ready too: a
// gradient that nothing flows into never reports.
//
// Bucket sizes do not change any bits: comm sums every element in the same order.
//
// All-reduces advance only when a thread calls the comm. The comm's thread calls it between the nodes of backward, and
// where a node takes longer than DT_BUCKETS_PROGRESS_S a progress thread calls it meanwhile; a thread that calls holds
// `turn`. On four hosts, with 20 nodes of 50 ms and links of 1 Gbit/s, a step takes 1.21 s with that thread and 1.40 s
// without (medians; NODE_MS=50 tests/bench/bench_hosts.sh). On one host copying needs the cores that compute, so there
// is no progress thread.
#include "comm/bucket.h"
#include "base/bits.h"
#include "base/core.h"
#include "base/os.h"
#include "base/rank_report.h"
#include "base/sort.h"
#include "base/thread.h"
#include "base/trace.h"

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
    // counts of one step:
    int n_reports;         // gradients * replicas
    atomic_int missing;    // reports still to come in this step
    bool rounded;          // sent as bf16
    dt_reduce_steps steps; // all-reduce, or the reduce-scatter alone where owners hold the sum
    dt_request request;    // id -1: not started, or complete on return
    double traced_s;       // since when it is reduced
} bucket;

enum { STATE_IDLE, STATE_STEP, STATE_QUIT };

struct dt_buckets {
    dt_comm *comm;
    int n_replicas; // worker groups of this rank
    bucket *buckets;
    int n_buckets;
    int *bucket_of; // by gradient index
    bool has_tail;  // statistics behind the gradients, which no report covers
    uint16_t *bf16; // by element; NULL: nothing is sent as bf16
    float **flats;  // gradient buffers of this step, by worker group or tree slot
    // n_flats: buffers of the tree, else one per worker group
    int n_flats, n_merges;
    dt_tree_merge *merges; // make flats[0] of all
    bool tree;
    int n_started; // buckets 0 … n_started - 1 are with the comm; under `turn`
    bool reducing; // some request may be in flight
    // CUDA adds on its stream; NULL: the CPU's loop
    void (*add)(void *ctx, float *dst, const float *src, int64_t begin, int64_t end);
    void *add_ctx;

    pthread_mutex_t turn; // held by the thread that calls the comm
    double moved_s;       // when the comm was called last; under `turn`
    dt_status status;     // of this step; under `turn`
    dt_error_kept why;    // message of `status`; the caller's thread restores it
    bool threaded;        // there is a progress thread
    pthread_t thread;
    pthread_mutex_t lock; // guards writes of `state` for the condition
    pthread_cond_t changed;
    atomic_int state; // written under lock, read by the progress thread between naps without it
};

// -- plan ----------------------------------------------------------------------------------------

static void close_bucket(dt_buckets *b, int64_t begin, int64_t end) {
    b->buckets[b->n_buckets++] = (bucket){.begin = begin, .end = end, .steps = DT_ALL_REDUCE, .request = {.id = -1}};
}

// A bucket ends where a gradient ends at or beyond the bucket's size.
static void cut_flat(dt_buckets *b, const dt_buckets_opts *o, const int64_t *ends) {
    // a small first bucket starts the network early, while most of backward is still to come
    const int64_t later = o->bucket_bytes, first = later < MIB ? later : MIB;
    int64_t begin = 0;
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
    // zeros of frozen parameters between gradients and statistics are not sent
    const int64_t tail = begin < o->sums_at ? o->sums_at : begin;
    b->has_tail = tail < o->n_elements;
    for (int k = 0; k < b->n_buckets; k++) {
        b->buckets[k].rounded = o->bf16 != NULL; // statistics stay f32: a running variance loses too much in bf16
        // statistics are needed on every rank, so their bucket keeps the all-reduce
        if (o->scatter) b->buckets[k].steps = DT_REDUCE_SCATTER;
    }
    // a bucket of its own where type, steps or place differ from the last gradients'
    if (b->n_buckets == 0 || ((o->bf16 || o->scatter || tail > begin) && b->has_tail))
        close_bucket(b, tail, o->n_elements);
    else if (b->has_tail)
        b->buckets[b->n_buckets - 1].end = o->n_elements;
}

static void *make_progress(void *arg);

dt_status dt_buckets_create(dt_buckets **out, dt_comm *c, const dt_buckets_opts *o) {
    // callers are in the program, not a user's input: a wrong size is a bug
    assert(o->n_replicas >= 1 && o->n_elements >= 0);
    dt_buckets *b = dt_xcalloc(1, sizeof *b);
    b->comm = c;
    b->n_replicas = o->n_replicas;
    b->add = o->add;
    b->add_ctx = o->add_ctx;
    b->bf16 = o->bf16;
    b->buckets = dt_xcalloc((size_t)o->n_grads + 1, sizeof *b->buckets);
    b->bucket_of = dt_xcalloc((size_t)o->n_grads + 1, sizeof *b->bucket_of);
    b->tree = o->tree;
    // without a tree: worker group i + 1 is added to buffer 0, in order
    b->n_flats = o->tree ? o->n_flats : o->n_replicas;
    b->n_merges = o->tree ? o->n_merges : o->n_replicas - 1;
    b->flats = dt_xcalloc((size_t)b->n_flats, sizeof *b->flats);
    b->merges = dt_xcalloc((size_t)b->n_merges + 1, sizeof *b->merges);
    for (int i = 0; i < b->n_merges; i++) b->merges[i] = o->tree ? o->merges[i] : (dt_tree_merge){0, i + 1};
    int64_t *ends = dt_xcalloc((size_t)o->n_grads + 1, sizeof *ends);
    // gradients may be listed in another order than they lie
    if (o->n_grads > 0) memcpy(ends, o->grad_end, (size_t)o->n_grads * sizeof *ends);
    qsort(ends, (size_t)o->n_grads, sizeof *ends, dt_sort_ints);
    assert(o->n_grads == 0 || ends[o->n_grads - 1] <= o->n_elements);
    cut_flat(b, o, ends);
    for (int g = 0; g < o->n_grads; g++) {
        int k = 0;
        while (o->grad_end[g] > b->buckets[k].end) k++; // few buckets: a linear search at creation
        b->bucket_of[g] = k;
        b->buckets[k].n_reports += b->n_replicas;
    }
    free(ends);
    pthread_mutex_init(&b->turn, NULL);
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->changed, NULL);
    b->threaded = o->progress_thread; // one thread per process at most: several hosts only
    if (b->threaded && pthread_create(&b->thread, NULL, make_progress, b) != 0) {
        b->threaded = false; // destroy must not join a thread that never started
        dt_buckets_destroy(b);
        return dt_fail(DT_E_INTERNAL, "a thread that moves gradients cannot be started");
    }
    *out = b;
    return DT_OK;
}

static void set_state(dt_buckets *b, int state) {
    if (!b->threaded) return;     // nobody waits: the mutex would cost a step for nothing
    pthread_mutex_lock(&b->lock); // with the lock, a wakeup between test and wait is not lost
    atomic_store(&b->state, state);
    pthread_cond_signal(&b->changed);
    pthread_mutex_unlock(&b->lock);
}

void dt_buckets_destroy(dt_buckets *b) {
    if (!b) return;
    set_state(b, STATE_QUIT); // before the join, while the condition still exists
    if (b->threaded) pthread_join(b->thread, NULL);
    pthread_mutex_destroy(&b->turn);
    pthread_mutex_destroy(&b->lock);
    pthread_cond_destroy(&b->changed);
    free(b->buckets);
    free(b->bucket_of);
    free(b->flats);
    free(b->merges);
    free(b);
}

// -- a step --------------------------------------------------------------------------------------

void dt_buckets_begin(dt_buckets *b, float *const *flats) {
    for (int l = 0; l < b->n_flats; l++) b->flats[l] = flats[l];
    for (int k = 0; k < b->n_buckets; k++) {
        int n = b->buckets[k].n_reports;
        bool waits = n == 0 || (k == b->n_buckets - 1 && b->has_tail);
        atomic_store(&b->buckets[k].missing,
                     n + waits); // one report that only finish supplies; stored before the caller starts backward
    }
    pthread_mutex_lock(&b->turn); // the progress thread reads what follows
    b->n_started = 0;
    b->reducing = false;
    b->status = DT_OK;
    pthread_mutex_unlock(&b->turn);
}

void dt_buckets_ready(dt_buckets *b, int replica, int grad_index) {
    // release: the gradient is written before the count shows it; acquire, in poll_buckets, by whoever finds 0. Of several
    // worker groups each count continues the release of the one before
    int before = atomic_fetch_sub_explicit(&b->buckets[b->bucket_of[grad_index]].missing, 1, memory_order_acq_rel);
    (void)before;
    assert(before > 0); // a gradient reported twice would start its bucket too early
}

VECTORIZED static void bucket_add_range(float *restrict sum, const float *restrict x, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) sum[i] += x[i];
}

static dt_status start_bucket(dt_buckets *b, int k) {
    bucket *u = &b->buckets[k];
    float *sum = b->flats[0]; // sums of all worker groups end in buffer 0
    for (int i = 0; i < b->n_merges; i++) {
        float *to = b->flats[b->merges[i].to], *from = b->flats[b->merges[i].from];
        if (b->add)
            b->add(b->add_ctx, to, from, u->begin, u->end);
        else
            bucket_add_range(to, from, u->begin, u->end);
    }
    const dt_reduction x = {.steps = u->steps,
                            .data = sum + u->begin,
                            .n = u->end - u->begin,
                            .at = u->begin,
                            .tree = b->tree,
                            .bf16 = u->rounded ? b->bf16 + u->begin : NULL};
    u->traced_s = dt_trace_begin();
    const dt_status st = b->comm->reduce_start(b->comm, &x, &u->request);
    if (st != DT_OK) return dt_fail_context(st, "gradient bucket %d of %d", k + 1, b->n_buckets);
    b->n_started++; // only now: a failed start leaves the bucket out of the waits
    // -1: complete at once, nothing to advance
    b->reducing |= u->request.id >= 0;
    return DT_OK;
}

static dt_status poll_buckets(dt_buckets *b) {
    while (b->n_started < b->n_buckets &&
           // acquire: pairs with dt_buckets_ready
           atomic_load_explicit(&b->buckets[b->n_started].missing, memory_order_acquire) == 0)
        DT_TRY(start_bucket(b, b->n_started));
    return b->reducing ? b->comm->progress(b->comm) : DT_OK;
}

static dt_status complete_buckets(dt_buckets *b) {
    // gradients that no path reaches stay zero and are summed as such
    while (b->n_started < b->n_buckets) DT_TRY(start_bucket(b, b->n_started));
    for (int k = 0; k < b->n_buckets; k++) {
        char name[32];
        snprintf(name, sizeof name, "%d of %d", k + 1, b->n_buckets); // 1-based, as in messages and the trace
        dt_rank_at("waiting for gradient bucket", name); // heartbeats carry the position to the other ranks' messages
        dt_status st = b->comm->wait(b->comm, &b->buckets[k].request);
        if (st != DT_OK) return dt_fail_context(st, "gradient bucket %d of %d", k + 1, b->n_buckets);
        dt_trace_end("bucket", name, b->buckets[k].traced_s);
    }
    return DT_OK;
}

// Does nothing while the other thread calls the comm.
static void poll_in_turn(dt_buckets *b, double rest_s) {
    if (pthread_mutex_trylock(&b->turn) != 0) return; // never blocks: backward goes on, and the holder polls anyway
    // a progress thread that comes late finds the step finished, and the other thread in another collective
    // dt_buckets_finish leaves STATE_STEP before it takes `turn`
    const bool late = rest_s > 0 && atomic_load(&b->state) != STATE_STEP;
    // after a failure nothing more is sent; finish returns the error
    if (!late && b->status == DT_OK && dt_clock_s() - b->moved_s >= rest_s) {
        const bool reduced = b->reducing; // before this poll, to see the first request
        b->status = poll_buckets(b);
        if (b->status != DT_OK) b->why = dt_error_keep(); // errors are per thread: finish may run in the other
        // wakes the progress thread only once there is something to move
        if (b->reducing && !reduced) set_state(b, STATE_STEP);
        b->moved_s = dt_clock_s();
    }
    pthread_mutex_unlock(&b->turn);
}

void dt_buckets_poll(dt_buckets *b) {
    poll_in_turn(b, 0);
}

dt_status dt_buckets_finish(dt_buckets *b, double *exposed_s) {
    double begin = dt_clock_s();
    set_state(b, STATE_IDLE); // before `turn`: the progress thread that gets the mutex afterwards sees the end
    pthread_mutex_lock(&b->turn);
    dt_status st = b->status;
    if (st == DT_OK)
        st = complete_buckets(b);
    else
        dt_error_restore(&b->why);
    pthread_mutex_unlock(&b->turn);
    *exposed_s = dt_clock_s() - begin; // wall time not hidden behind backward, seconds
    dt_trace_add("comm", "exposed", begin, begin + *exposed_s);
    return st;
}

// -- the progress thread ---------------------------------------------------------------------------

static int await_step(dt_buckets *b) {
    pthread_mutex_lock(&b->lock);
    // loop: condition variables wake without a signal
    while (atomic_load(&b->state) == STATE_IDLE) pthread_cond_wait(&b->changed, &b->lock);
    int state = atomic_load(&b->state);
    pthread_mutex_unlock(&b->lock);
    return state;
}

static void *make_progress(void *arg) {
    dt_buckets *b = arg;
    const struct timespec nap = {.tv_nsec = (long)(DT_BUCKETS_PROGRESS_S * 1e9)};
    dt_thread_name("dt-comm");
    while (await_step(b) != STATE_QUIT) {
        nanosleep(&nap, NULL); // the cores belong to the kernels
        // unlocked read: poll_in_turn tests again under `turn`
        if (atomic_load(&b->state) == STATE_STEP) poll_in_turn(b, DT_BUCKETS_PROGRESS_S);
    }
    return NULL;
}
