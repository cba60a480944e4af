// thread_nccl.h: an NCCL that pretends between the threads of one process, each a rank with a device of
// lazy_device.h, and the part of the host's comm that connecting needs.
//
// Sums are in rank order. A rank's part of a collective waits, when its stream runs it, until all have come
// (60 s, then the test ends). It ends the test where NCCL would hang: an abort beside graphs that hold collectives,
// an abort of what is gone, a sum that is captured on some ranks only. It can be told to fail, to be silent and to add in
// another order where it is not captured.
#ifndef DT_TESTS_THREAD_NCCL_H
#define DT_TESTS_THREAD_NCCL_H

#include "lazy_device.h"

#include "backend/cuda/kernels/kernel_math.h"
#include "backend/cuda/nccl_api.h"
#include "comm/comm.h"

#include <pthread.h>
#include <stdio.h>
#include <time.h>

enum { MAX_RANKS = 4 };

typedef struct message {
    float *data;
    int64_t n;
    struct message *next;
} message;

typedef struct group {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int world_size, n_arrived;
    int64_t round;
    float *data[MAX_RANKS];
    bool captured[MAX_RANKS]; // as this round's sum was asked for: NCCL wants the same of all
    message *box[MAX_RANKS][MAX_RANKS]; // [from][to], oldest first
    char card[256];                     // boot's broadcast
    int64_t cards;
    int n_voted; // boot's maximum
    int64_t votes, max;
    bool silent;      // nobody ever connects
    bool other_order; // of a sum that is not captured: NCCL promises the same bits for neither
} group;

typedef struct fake_nccl {
    dt_nccl_api api; // first
    group *g;
    int rank;
    dt_backend *b;
    bool aborted, destroyed; // the communicator is gone
    bool fails_captured;     // the library, once a stream is captured
    int n_failures;          // told
    int finalize_answer, destroy_answer, abort_answer;
    int n_busy; // times that it is not through with finalize, once that has answered so
} fake_nccl;

static fake_nccl *nccl_of(const dt_nccl_api *a) {
    return (fake_nccl *)a;
}

static void group_wait(group *g) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 600;
    if (pthread_cond_timedwait(&g->changed, &g->lock, &until)) abort();
}

// In rank order, rounded after each addition.
static void sum_bf16(const group *g, int64_t i) {
    float sum = dt_bf16_to_f32(((uint16_t *)g->data[0])[i]);
    uint16_t low = 0;
    for (int r = 1; r < g->world_size; r++) {
        low = dt_f32_to_bf16(sum + dt_bf16_to_f32(((uint16_t *)g->data[r])[i]));
        sum = dt_bf16_to_f32(low);
    }
    for (int r = 0; r < g->world_size; r++) ((uint16_t *)g->data[r])[i] = low;
}

// The last to arrive does the work.
static void meet(fake_nccl *f, void *data, int64_t n, bool bf16, int root, bool captured) {
    group *g = f->g;
    if (f->aborted) return; // ends what waits
    pthread_mutex_lock(&g->lock);
    g->data[f->rank] = data;
    g->captured[f->rank] = captured;
    int64_t round = g->round;
    if (++g->n_arrived == g->world_size) {
        for (int r = 0; r < g->world_size; r++)
            if (g->captured[r] != captured) {
                fprintf(stderr, "a sum is captured on some ranks only\n");
                abort();
            }
        for (int64_t i = 0; bf16 && i < n; i++) sum_bf16(g, i);
        for (int64_t i = 0; !bf16 && i < n; i++) {
            const int n_ranks = g->world_size, turn = g->other_order && !captured;
            float sum = g->data[turn ? n_ranks - 1 : 0][i];
            for (int r = 1; r < n_ranks; r++) sum += g->data[turn ? n_ranks - 1 - r : r][i];
            if (root >= 0) sum = g->data[root][i];
            for (int r = 0; r < g->world_size; r++) g->data[r][i] = sum;
        }
        g->n_arrived = 0;
        g->round++;
        pthread_cond_broadcast(&g->changed);
    }
    while (g->round == round) group_wait(g);
    pthread_mutex_unlock(&g->lock);
}

typedef struct nccl_call {
    fake_nccl *f;
    float *data;
    int64_t n;
    int root, peer;
    bool bf16, captured;
} nccl_call;

static void run_meet(dt_backend *b, void *arg) {
    const nccl_call *c = arg;
    meet(c->f, c->data, c->n, c->bf16, c->root, c->captured);
}

static void run_send(dt_backend *b, void *arg) {
    const nccl_call *c = arg;
    group *g = c->f->g;
    message *m = dt_xcalloc(1, sizeof *m);
    m->n = c->n;
    m->data = malloc(sizeof(float) * (size_t)c->n);
    memcpy(m->data, c->data, sizeof(float) * (size_t)c->n);
    pthread_mutex_lock(&g->lock);
    message **at = &g->box[c->f->rank][c->peer];
    while (*at) at = &(*at)->next;
    *at = m;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

static void run_recv(dt_backend *b, void *arg) {
    const nccl_call *c = arg;
    group *g = c->f->g;
    pthread_mutex_lock(&g->lock);
    message **at = &g->box[c->peer][c->f->rank];
    while (!*at) group_wait(g);
    message *m = *at;
    *at = m->next;
    pthread_mutex_unlock(&g->lock);
    if (m->n != c->n) abort();
    memcpy(c->data, m->data, sizeof(float) * (size_t)c->n);
    free(m->data);
    free(m);
}

static const char *nccl_error_text(const dt_nccl_api *a, void *comm, int error) {
    return "pretended error";
}
static int nccl_unique_id(const dt_nccl_api *a, void *id) {
    memset(id, 7, DT_NCCL_ID_BYTES);
    return DT_NCCL_OK;
}
static int nccl_init(const dt_nccl_api *a, void **comm, int world_size, const void *id, int rank) {
    assert_int_equal(((const char *)id)[3], 7);
    *comm = nccl_of(a);
    nccl_of(a)->aborted = nccl_of(a)->destroyed = false;
    return DT_NCCL_BUSY;
}
static int nccl_async_error(const dt_nccl_api *a, void *comm, int *state) {
    fake_nccl *f = nccl_of(a);
    if (comm != f || f->aborted || f->destroyed) abort(); // freed
    *state = f->g->silent || f->n_busy ? DT_NCCL_BUSY : DT_NCCL_OK;
    f->n_busy -= f->n_busy > 0;
    if (f->fails_captured && lazy(f->b)->graph) *state = 6, f->n_failures++;
    return DT_NCCL_OK;
}
static int nccl_all_reduce(const dt_nccl_api *a, void *comm, void *data, int64_t n, dt_dtype type,
                           void *stream) {
    nccl_call c = {.f = nccl_of(a),
                   .data = data,
                   .n = n,
                   .root = -1,
                   .bf16 = type == DT_BF16,
                   .captured = ((lazy_stream *)stream)->captured};
    lazy_queue(c.f->b, stream, run_meet, &c, sizeof c);
    return DT_NCCL_BUSY;
}
static int nccl_broadcast(const dt_nccl_api *a, void *comm, void *data, size_t n_bytes, int root,
                          void *stream) {
    nccl_call c = {.f = nccl_of(a), .data = data, .n = (int64_t)n_bytes / 4, .root = root};
    lazy_queue(c.f->b, stream, run_meet, &c, sizeof c);
    return DT_NCCL_OK;
}
static int nccl_send(const dt_nccl_api *a, void *comm, const float *data, int64_t n, int to,
                     void *stream) {
    nccl_call c = {.f = nccl_of(a), .data = (float *)data, .n = n, .peer = to};
    lazy_queue(c.f->b, stream, run_send, &c, sizeof c);
    return DT_NCCL_OK;
}
static int nccl_recv(const dt_nccl_api *a, void *comm, float *data, int64_t n, int from,
                     void *stream) {
    nccl_call c = {.f = nccl_of(a), .data = data, .n = n, .peer = from};
    lazy_queue(c.f->b, stream, run_recv, &c, sizeof c);
    return DT_NCCL_OK;
}
static int nccl_finalize(const dt_nccl_api *a, void *comm) {
    fake_nccl *f = nccl_of(a);
    if (f->finalize_answer == DT_NCCL_BUSY) f->n_busy = 3;
    return f->finalize_answer;
}
static int nccl_destroy(const dt_nccl_api *a, void *comm) {
    fake_nccl *f = nccl_of(a);
    if (comm != f || f->n_busy || f->aborted || f->destroyed) abort(); // a mistake, or freed
    f->destroyed = true;                                               // whatever it answers
    return f->destroy_answer;
}
// NCCL waits in it for the end of the graphs that have captured collectives.
static int nccl_abort(const dt_nccl_api *a, void *comm) {
    fake_nccl *f = nccl_of(a);
    if (comm != f || f->aborted || f->destroyed || lazy(f->b)->n_graphs) {
        fprintf(stderr, "an abort that would not end: %d graphs%s\n", lazy(f->b)->n_graphs,
                f->aborted || f->destroyed ? ", of what is gone" : "");
        abort();
    }
    f->aborted = true;
    return f->abort_answer;
}

static void fake_nccl_init(fake_nccl *f, group *g, int rank) {
    *f = (fake_nccl){.api = {.error_text = nccl_error_text,
                             .unique_id = nccl_unique_id,
                             .init = nccl_init,
                             .async_error = nccl_async_error,
                             .all_reduce = nccl_all_reduce,
                             .broadcast = nccl_broadcast,
                             .send = nccl_send,
                             .recv = nccl_recv,
                             .finalize = nccl_finalize,
                             .destroy = nccl_destroy,
                             .abort = nccl_abort},
                     .g = g,
                     .rank = rank};
}

// The host's comm: only what connecting needs.
static dt_status boot_broadcast(dt_comm *c, void *data, size_t n_bytes, int root) {
    group *g = c->self;
    assert_true(n_bytes <= sizeof g->card && root == 0);
    pthread_mutex_lock(&g->lock);
    if (c->rank == 0) {
        memcpy(g->card, data, n_bytes);
        g->cards++;
        pthread_cond_broadcast(&g->changed);
    }
    while (!g->cards) group_wait(g);
    memcpy(data, g->card, n_bytes);
    pthread_mutex_unlock(&g->lock);
    return DT_OK;
}

static dt_status boot_max(dt_comm *c, int64_t *data, int64_t n) {
    group *g = c->self;
    assert_int_equal(n, 1);
    pthread_mutex_lock(&g->lock);
    const int64_t vote = g->votes;
    if (!g->n_voted || *data > g->max) g->max = *data;
    if (++g->n_voted == g->world_size) {
        g->n_voted = 0;
        g->votes++;
        pthread_cond_broadcast(&g->changed);
    }
    while (g->votes == vote) group_wait(g);
    *data = g->max; // nobody votes again before all have read: the next sum lies between
    pthread_mutex_unlock(&g->lock);
    return DT_OK;
}

#endif
