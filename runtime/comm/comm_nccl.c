// comm_nccl.c: see the header.
//
// Communicators are non-blocking, so a peer that never comes runs into a deadline instead of a hang: after
// every call the library is polled until the call is complete. Queueing takes microseconds. Only the first
// call between two ranks takes long, and the self-test makes those.
//
// A call that cannot be captured leaves the communicator in an error for good. One captured sum finds that out before
// any step, and ends the start with a line of advice how to do without.
//
// Only give_up frees a communicator that was not finalized. It clears the pointer first, then releases the
// graphs with its collectives, then aborts. So no later call uses it, and it is aborted once. Abort and destroy
// block although the communicator is non-blocking (NCCL 2.14 to 2.28: the caller's thread does their work, also
// after a finalize). The communicator is gone whatever they return, so they are never repeated, and a failure
// is only reported.

#include "comm/comm_nccl.h"

#include "backend/cuda/nccl_api.h"
#include "base/core.h"
#include "base/log.h"
#include "base/os.h"
#include "base/watch.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

enum { MAX_REGISTERED = 4, MOST_TESTED = 64 << 20 }; // bytes of the self-test
// Chunks that all ranks divide, where each gets one at least; calls of a group, of which NCCL takes 2,048
enum { RUN_CHUNKS = 32, MOST_GROUPED = 1024 };

typedef struct nccl_self {
    const dt_nccl_api *api;
    void *comm;        // NULL after finalize or abort
    dt_backend *b;     // borrowed, like `api`
    void *main, *side; // streams; main computes, side reduces
    struct {
        void *data, *handle; // NULL: free
    } registered[MAX_REGISTERED];
    void (*release)(void *ctx); // see dt_comm_device.attach
    void *release_ctx;
    bool forked;    // the main stream does not yet wait for work on the side stream
    int64_t n_test; // elements of the self-test's sums
    double deadline_s;
    dt_comm_device device;
} nccl_self;

// ---- errors ----------------------------------------------------------------------------------------

static void comm_nccl_give_up(nccl_self *n) {
    void *comm = n->comm;
    n->comm = NULL; // first: callbacks below must not use it again
    if (!comm) return;
    if (n->release) n->release(n->release_ctx);
    n->release = NULL;
    dt_watch_begin(NULL, "NCCL's abort"); // NCCL's abort blocks
    const int error = n->api->abort(n->api, comm);
    dt_watch_end();
    if (error != DT_NCCL_OK)
        dt_warn("NCCL abort failed: %s; kernels that wait for another rank may hang",
                n->api->error_text(n->api, NULL, error));
}

static dt_status fail_call(dt_comm *c, const char *what, int error) {
    nccl_self *n = c->self;
    char why[400]; // the text may be the communicator's
    snprintf(why, sizeof why, "%s", n->api->error_text(n->api, n->comm, error));
    comm_nccl_give_up(n);
    // not retried: NCCL's communicator is in an error for good
    return dt_fail(DT_E_PEER, "rank %d: NCCL %s failed: %s", c->rank, what, why);
}

static dt_status fail_deadline(dt_comm *c, const char *what, double waited_s) {
    comm_nccl_give_up(c->self);
    return dt_fail(DT_E_PEER,
                   "rank %d: %s did not finish within %.0f s: another rank is gone or hangs (see its own message). The "
                   "same command resumes from the last checkpoint",
                   c->rank, what, waited_s);
}

// Polls until the call that returned *result is complete, or the deadline passes.
static dt_status comm_nccl_await(dt_comm *c, const char *what, int *result) {
    nccl_self *n = c->self;
    dt_waited waited = {0}; // wall time, without suspended intervals
    while (*result == DT_NCCL_BUSY) {
        int state = DT_NCCL_OK; // the communicator's state, beside the call's own result
        *result = n->api->async_error(n->api, n->comm, &state);
        if (*result == DT_NCCL_OK) *result = state;
        double waited_s = dt_clock_waited_s(&waited, dt_clock_s());
        if (*result != DT_NCCL_BUSY) break;
        if (waited_s > n->deadline_s) return fail_deadline(c, what, waited_s);
        // short waits spin: most calls end within microseconds
        if (waited_s > 1e-3) nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    return DT_OK;
}

static dt_status settle(dt_comm *c, const char *what, int result) {
    DT_TRY(comm_nccl_await(c, what, &result));
    return result == DT_NCCL_OK ? DT_OK : fail_call(c, what, result);
}

static dt_status check_alive(dt_comm *c) {
    if (((nccl_self *)c->self)->comm) return DT_OK; // NULL: aborted before, by a deadline or an error
    return dt_fail(DT_E_PEER, "rank %d: the GPUs' communicator was aborted", c->rank);
}

static dt_status comm_nccl_watch(dt_comm *c, const char *what, double waited_s) {
    nccl_self *n = c->self;
    char doing[48];
    snprintf(doing, sizeof doing, "while %s runs", what);
    DT_TRY(check_alive(c));
    int state = DT_NCCL_OK, error = n->api->async_error(n->api, n->comm, &state);
    if (error != DT_NCCL_OK) return fail_call(c, doing, error);
    if (state != DT_NCCL_OK && state != DT_NCCL_BUSY) return fail_call(c, doing, state);
    // both: no step here, and no progress on any rank
    const bool late = waited_s > n->deadline_s && dt_watch_quiet_s() > n->deadline_s;
    return late ? fail_deadline(c, what, waited_s) : DT_OK;
}

static dt_status watch_step(dt_comm *c, double waited_s) {
    return comm_nccl_watch(c, "a step", waited_s);
}

// Waits until the main stream is empty. A peer that does not come must not hang the device and the host.
static dt_status comm_nccl_drain(dt_comm *c, const char *what) {
    nccl_self *n = c->self;
    dt_waited waited = {0};
    while (!n->b->device->stream_done(n->b, n->main)) {
        DT_TRY(comm_nccl_watch(c, what, dt_clock_waited_s(&waited, dt_clock_s())));
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL); // 0.1 ms: a step takes longer
    }
    return n->b->device->synchronize(n->b, n->main); // the device's error
}

// ---- the table -------------------------------------------------------------------------------------

static dt_status nccl_progress(dt_comm *c) {
    return watch_step(c, 0);
}

// Elements that a rank owns of a run: part p of the vector, from p * part_size on, is rank p % world_size's.
static int64_t part_size(const dt_comm *c) {
    // chunks of a part: a run has about RUN_CHUNKS of them
    return (int64_t)DT_CHUNK * (c->world_size < RUN_CHUNKS ? RUN_CHUNKS / c->world_size : 1);
}

static bool nccl_own_part(const dt_comm *c, int64_t n, int k, int64_t *begin, int64_t *end) {
    const int64_t size = part_size(c);
    *begin = ((int64_t)k * c->world_size + c->rank) * size; // parts are dealt round-robin
    *end = *begin + size < n ? *begin + size : n;
    return *begin < n;
}

// Of elements [at, end) at data: the runs that are whole in one call each, of others each rank's part. *at moves on.
static int queue_part(dt_comm *c, dt_reduce_steps step, char *data, dt_dtype type, int64_t *at, int64_t end,
                      void *stream) {
    const nccl_self *n = c->self;
    const dt_nccl_api *a = n->api;
    // elements of a run: one part of each rank
    const int64_t size = part_size(c), run = size * c->world_size, from = *at;
    const bool whole = from % run == 0 && end - from >= run; // aligned and complete: one reduce-scatter or all-gather
    const int64_t to = whole ? from + run : (from / size + 1) * size;
    const int owner = (int)(from / size % c->world_size);
    const size_t n_bytes = dt_dtype_size(type);
    const int64_t count = whole ? size : (to < end ? to : end) - from;
    char *own = data + (size_t)(c->rank * size) * n_bytes; // in place, as NCCL wants it: at rank * count
    *at = to < end ? to : end;                             // moved before the call: `from` keeps the old place
    if (step == DT_REDUCE_SCATTER)
        return whole ? a->reduce_scatter(a, n->comm, data, own, count, type, stream)
                     : a->reduce(a, n->comm, data, count, type, owner, stream);
    return whole ? a->all_gather(a, n->comm, data, own, (size_t)count * n_bytes, stream)
                 : a->broadcast(a, n->comm, data, (size_t)count * n_bytes, owner, stream);
}

// grouped calls become one launch
static dt_status queue_step(dt_comm *c, dt_reduce_steps step, const dt_reduction *x, void *stream) {
    const dt_nccl_api *a = ((nccl_self *)c->self)->api;
    const dt_dtype type = x->bf16 ? DT_BF16 : DT_F32;
    char *data = x->bf16 ? (char *)x->bf16 : (char *)x->data;
    const char *what = step == DT_REDUCE_SCATTER ? "reduce-scatter" : "all-gather";
    for (int64_t at = x->at, end = x->at + x->n; at < end;) {
        int result = a->group_start(a);
        for (int i = 0; i < MOST_GROUPED && at < end && result == DT_NCCL_OK; i++) {
            char *from = data + (size_t)(at - x->at) * dt_dtype_size(type);
            result = queue_part(c, step, from, type, &at, end, stream);
            if (result == DT_NCCL_BUSY) result = DT_NCCL_OK; // the group is, when it ends
        }
        const int ended = a->group_end(a); // also after a failure, as the group must be closed
        DT_TRY(settle(c, what, result == DT_NCCL_OK ? ended : result));
    }
    return DT_OK;
}

static dt_status queue_sum(dt_comm *c, const dt_reduction *x, void *stream) {
    const nccl_self *n = c->self;
    if (x->steps != DT_ALL_REDUCE) return queue_step(c, x->steps, x, stream); // reduce-scatter or all-gather alone
    return settle(c, "all-reduce",
                  n->api->all_reduce(n->api, n->comm, x->bf16 ? (void *)x->bf16 : x->data, x->n,
                                     x->bf16 ? DT_BF16 : DT_F32, stream));
}

static dt_status nccl_reduce_start(dt_comm *c, const dt_reduction *x, dt_request *r) {
    nccl_self *n = c->self;
    dt_backend *b = n->b;
    const dt_shape shape = dt_shape1(x->n);
    r->id = -1;
    DT_TRY(check_alive(c));
    b->device->stream_wait(b, n->side, n->main); // side waits for gradients that main has written
    n->forked = true;                            // main must not read the sums before nccl_wait
    r->id = 0;
    // f32 to bf16 on the device, to nearest even
    if (x->bf16 && x->data)
        b->reorder(b, 1, &shape, x->data, DT_F32, dt_dense(), x->bf16, DT_BF16, dt_dense(), n->side);
    DT_TRY(queue_sum(c, x, n->side));
    if (x->bf16 && x->data)
        b->reorder(b, 1, &shape, x->bf16, DT_BF16, dt_dense(), x->data, DT_F32, dt_dense(), n->side);
    return DT_OK;
}

static dt_status nccl_wait(dt_comm *c, dt_request *r) {
    nccl_self *n = c->self;
    r->id = -1;
    if (n->forked) n->b->device->stream_wait(n->b, n->main, n->side); // an event, not a host wait
    n->forked = false;
    return DT_OK;
}

static dt_status nccl_all_reduce_f32(dt_comm *c, float *data, int64_t count) {
    nccl_self *n = c->self;
    DT_TRY(check_alive(c));
    return settle(c, "all-reduce", n->api->all_reduce(n->api, n->comm, data, count, DT_F32, n->main));
}

static dt_status nccl_all_reduce_f64(dt_comm *c, double *data, int64_t count) {
    nccl_self *n = c->self;
    DT_TRY(check_alive(c));
    return settle(c, "all-reduce", n->api->all_reduce_f64(n->api, n->comm, data, count, n->main));
}

static dt_status nccl_broadcast_bytes(dt_comm *c, void *data, size_t n_bytes, int root) {
    nccl_self *n = c->self;
    DT_TRY(check_alive(c));
    return settle(c, "broadcast", n->api->broadcast(n->api, n->comm, data, n_bytes, root, n->main));
}

static dt_status nccl_send_f32(dt_comm *c, const float *data, int64_t count, int to) {
    nccl_self *n = c->self;
    DT_TRY(check_alive(c));
    return settle(c, "send", n->api->send(n->api, n->comm, data, count, to, n->main));
}

static dt_status nccl_recv_f32(dt_comm *c, float *data, int64_t count, int from) {
    nccl_self *n = c->self;
    DT_TRY(check_alive(c));
    return settle(c, "receive", n->api->recv(n->api, n->comm, data, count, from, n->main));
}

static void nccl_set_deadline(dt_comm *c, double seconds) {
    ((nccl_self *)c->self)->deadline_s = seconds;
}

static void nccl_abort(dt_comm *c, int exit_code) {
    comm_nccl_give_up(c->self);
}

static void comm_nccl_attach(dt_comm *c, void *main, void *side, void (*release)(void *ctx), void *ctx) {
    nccl_self *n = c->self;
    n->main = main;
    n->side = side;
    n->release = release;
    n->release_ctx = ctx;
}

static dt_status register_memory(dt_comm *c, void *data, size_t n_bytes) {
    nccl_self *n = c->self;
    DT_TRY(check_alive(c));
    int i = 0;
    while (i < MAX_REGISTERED && n->registered[i].data && n->registered[i].data != data) i++;
    // table full, registered before, or NCCL older than 2.19: works without
    if (i == MAX_REGISTERED || n->registered[i].data || !n->api->comm_register || !n->api->comm_deregister)
        return DT_OK;
    void *handle = NULL;
    int result = n->api->comm_register(n->api, n->comm, data, n_bytes, &handle);
    // registration too may still be running
    if (result == DT_NCCL_BUSY) DT_TRY(settle(c, "registration of memory", result));
    // optional: NCCL then copies through its own buffers
    if (result != DT_NCCL_BUSY && result != DT_NCCL_OK) return DT_OK;
    n->registered[i].data = data;
    n->registered[i].handle = handle;
    return DT_OK;
}

static void deregister_memory(dt_comm *c, void *data) {
    nccl_self *n = c->self;
    for (int i = 0; n->comm && i < MAX_REGISTERED; i++) { // after an abort there is nothing to deregister
        if (n->registered[i].data != data) continue;
        const int error = n->api->comm_deregister(n->api, n->comm, n->registered[i].handle);
        if (error != DT_NCCL_OK)
            dt_warn("NCCL does not deregister memory: %s", n->api->error_text(n->api, n->comm, error));
        n->registered[i].data = NULL; // free, even if NCCL failed: it is not tried again
    }
}

static dt_status nccl_finalize(dt_comm *c) {
    nccl_self *n = c->self;
    DT_TRY(check_alive(c));
    for (int i = 0; i < MAX_REGISTERED; i++)
        if (n->registered[i].data) deregister_memory(c, n->registered[i].data);
    DT_TRY(settle(c, "finalize", n->api->finalize(n->api, n->comm)));
    dt_watch_begin(NULL, "NCCL's destroy");
    int error = n->api->destroy(n->api, n->comm); // once, whatever it returns
    dt_watch_end();
    n->comm = NULL;
    return error == DT_NCCL_OK ? DT_OK
                               : dt_fail(DT_E_PEER, "rank %d: NCCL destroy failed: %s", c->rank,
                                         n->api->error_text(n->api, NULL, error));
}

// ---- the self-test ---------------------------------------------------------------------------------

// Small integers: every order of addition gives the same f32, on up to 160,000 ranks.
static float test_value(int rank, int64_t i) {
    return (float)((rank % 8 + 1) * (1 + i % 13));
}

static int64_t test_factor(int world_size) { // of a sum of all ranks' values
    const int64_t n = world_size / 8, rest = world_size % 8;
    return 36 * n + rest * (rest + 1) / 2;
}

static dt_status compare_test(dt_comm *c, const float *x, int64_t factor, const char *what) {
    for (int64_t i = 0; i < ((nccl_self *)c->self)->n_test; i++) {
        float want = (float)(factor * (1 + i % 13)); // exact in f32: below 2^24
        if (x[i] != want)
            return dt_fail(DT_E_PEER,
                           "rank %d: the GPUs' %s gave %g where %g was sent: NCCL or a link between "
                           "GPUs is broken (NCCL_DEBUG=INFO shows which it took)",
                           c->rank, what, (double)x[i], (double)want);
    }
    return DT_OK;
}

// The sum of all ranks, in one step or in two.
static dt_status queue_test(dt_comm *c, bool in_steps, float *device) {
    nccl_self *n = c->self;
    const dt_reduction x = {.steps = DT_ALL_REDUCE, .data = device, .n = n->n_test};
    if (!in_steps) return queue_sum(c, &x, n->main);
    DT_TRY(queue_step(c, DT_REDUCE_SCATTER, &x, n->main));
    return queue_step(c, DT_ALL_GATHER, &x, n->main);
}

static dt_status test_sum(dt_comm *c, float *device, float *host, bool in_steps) {
    nccl_self *n = c->self;
    dt_backend *b = n->b;
    const size_t n_bytes = (size_t)n->n_test * sizeof(float);
    for (int64_t i = 0; i < n->n_test; i++) host[i] = test_value(c->rank, i);
    b->copy_to_device(b, device, host, n_bytes); // synchronous, from pageable memory
    DT_TRY(queue_test(c, in_steps, device));
    DT_TRY(comm_nccl_drain(c, "the test of NCCL"));
    b->copy_to_host(b, host, device, n_bytes);
    return compare_test(c, host, test_factor(c->world_size), in_steps ? "sum by reduce-scatter and all-gather" : "sum");
}

// Of small integers, one rank's for each element: 8 bits of mantissa hold every partial sum.
static dt_status test_bf16(dt_comm *c, float *device, float *host) {
    nccl_self *n = c->self;
    dt_backend *b = n->b;
    const dt_reduction x = {.steps = DT_ALL_REDUCE, .bf16 = (uint16_t *)device, .n = n->n_test};
    const size_t n_bytes = (size_t)n->n_test * sizeof(uint16_t);
    uint16_t *halves = (uint16_t *)host;
    if (!b->supports_dtype(b, DT_BF16)) return DT_OK;
    for (int64_t i = 0; i < n->n_test; i++) { // bf16 is the upper half of an f32
        const float value = i % c->world_size == c->rank ? test_value(0, i) : 0.0f;
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        halves[i] = (uint16_t)(bits >> 16);
    }
    b->copy_to_device(b, device, host, n_bytes);
    DT_TRY(queue_sum(c, &x, n->main));
    DT_TRY(comm_nccl_drain(c, "the test of NCCL"));
    b->copy_to_host(b, host, device, n_bytes);
    for (int64_t i = n->n_test; i-- > 0;) { // in place, from behind
        const uint32_t bits = (uint32_t)halves[i] << 16;
        memcpy(host + i, &bits, sizeof bits);
    }
    return compare_test(c, host, 1, "sum in bf16");
}

// NCCL's algorithm and protocol depend on the size of a sum, and take memory when they are first used: all kinds are
// tried before memory is counted.
static dt_status test_sums(dt_comm *c, int64_t least, bool in_steps, float *device, float *host) {
    nccl_self *n = c->self;
    const int64_t largest = n->n_test;
    dt_status st = DT_OK;
    for (; st == DT_OK && n->n_test >= least; n->n_test /= 8) {
        for (int i = 0; st == DT_OK && i <= in_steps; i++) st = test_sum(c, device, host, i > 0);
        if (st == DT_OK) st = test_bf16(c, device, host);
    }
    n->n_test = largest;
    return st;
}

static dt_status run_test(dt_comm *c, int64_t least, bool in_steps, float *device, float *host) {
    nccl_self *n = c->self;
    dt_backend *b = n->b;
    const int64_t n_test = n->n_test;
    const size_t n_bytes = (size_t)n_test * sizeof(float);
    DT_TRY(test_sums(c, least, in_steps, device, host));
    // from rank to rank down the line, then from the last to all
    // others start from zeros, so a lost message shows
    for (int64_t i = 0; i < n_test; i++) host[i] = c->rank ? 0.0f : test_value(0, i);
    b->copy_to_device(b, device, host, n_bytes);
    if (c->rank > 0) DT_TRY(nccl_recv_f32(c, device, n_test, c->rank - 1));
    if (c->rank + 1 < c->world_size) DT_TRY(nccl_send_f32(c, device, n_test, c->rank + 1));
    DT_TRY(nccl_broadcast_bytes(c, device, n_bytes, c->world_size - 1));
    DT_TRY(comm_nccl_drain(c, "the test of NCCL"));
    b->copy_to_host(b, host, device, n_bytes);
    return compare_test(c, host, 1, "send and broadcast");
}

typedef struct test_graph {
    nccl_self *n;
    bool capturing;
    void *graph; // NULL: none
} test_graph;

static dt_status comm_nccl_end_capture(test_graph *t) {
    if (!t->capturing) return DT_OK; // also from drop_test_graph, when the sum failed
    t->capturing = false;
    return t->n->b->device->capture_end(t->n->b, t->n->main, &t->graph);
}

static void drop_test_graph(void *ctx) {
    test_graph *t = ctx;
    comm_nccl_end_capture(t);
    if (t->graph) t->n->b->device->graph_destroy(t->n->b, t->graph);
    t->graph = NULL;
}

static dt_status play_sum(dt_comm *c, void *graph, float *device, float *host) {
    nccl_self *n = c->self;
    dt_backend *b = n->b;
    const size_t n_bytes = (size_t)n->n_test * sizeof(float);
    // fresh input: a result left from run_test would pass
    for (int64_t i = 0; i < n->n_test; i++) host[i] = test_value(c->rank, i);
    b->copy_to_device(b, device, host, n_bytes);
    b->device->graph_launch(b, graph, n->main);
    DT_TRY(comm_nccl_drain(c, "the test of NCCL in a graph"));
    b->copy_to_host(b, host, device, n_bytes);
    return compare_test(c, host, test_factor(c->world_size), "sum in a graph");
}

static dt_status test_capture(dt_comm *c, bool in_steps, float *device, float *host) {
    nccl_self *n = c->self;
    test_graph t = {.n = n};
    comm_nccl_attach(c, n->main, n->side, drop_test_graph, &t); // an abort inside releases the graph first
    dt_status st = n->b->device->capture_begin(n->b, n->main);
    t.capturing = st == DT_OK; // drop_test_graph ends a capture that began
    if (st == DT_OK) st = queue_test(c, in_steps, device);
    if (st == DT_OK) st = comm_nccl_end_capture(&t);
    if (st != DT_OK) st = dt_fail_context(st, "a captured sum (device.capture: false goes without)");
    if (st == DT_OK) st = play_sum(c, t.graph, device, host);
    drop_test_graph(&t);
    comm_nccl_attach(c, n->main, n->side, NULL, NULL); // `t` is gone after this function
    return st;
}

static dt_status self_test(dt_comm *c, bool captured, int64_t least, bool in_steps) {
    nccl_self *n = c->self;
    dt_backend *b = n->b;
    const size_t n_bytes = (size_t)n->n_test * sizeof(float);
    float *device = NULL, *host = dt_xcalloc(n_bytes, 1);
    dt_status st = b->alloc(b, (void **)&device, n_bytes, "NCCL test");
    if (st == DT_OK) st = b->device->stream_create(b, &n->main, false);
    if (st == DT_OK) st = run_test(c, least, in_steps, device, host);
    // main is the test's own stream, of which graphs are captured
    if (st == DT_OK && captured) st = test_capture(c, in_steps, device, host);
    if (n->main) b->device->stream_destroy(b, n->main);
    n->main = NULL;
    if (device) b->free(b, device, n_bytes);
    free(host);
    return st;
}

// ---- algorithms ------------------------------------------------------------------------------------

// Of `[FUNCTION:]NAME,NAME…` or `[FUNCTION:]^NAME,NAME…`, of which NCCL_ALGO has one or several, divided by semicolons.
static bool allows_nvls(const char *part, size_t n) {
    const char *colon = memchr(part, ':', n), *end = part + n;
    const char *at = colon ? colon + 1 : part;
    const bool without = at < end && *at == '^';
    int named = 0; // 1: NVLS, 2: NVLSTree
    for (at += without; at < end;) {
        const char *comma = memchr(at, ',', (size_t)(end - at)), *stop = comma ? comma : end;
        if (stop - at == 4 && strncasecmp(at, "NVLS", 4) == 0) named |= 1;
        if (stop - at == 8 && strncasecmp(at, "NVLSTree", 8) == 0) named |= 2;
        at = stop + 1;
    }
    return without ? named != 3 : named != 0;
}

bool dt_nccl_repeats(void) {
    const char *enable = getenv("NCCL_NVLS_ENABLE"), *algo = getenv("NCCL_ALGO");
    if (enable && strcmp(enable, "0") == 0) return true;
    bool allowed = !algo || !*algo;
    for (const char *at = algo; at && *at;) {
        const size_t n = strcspn(at, ";");
        allowed |= allows_nvls(at, n);
        at += n + (at[n] == ';');
    }
    return !allowed;
}

// ---- interfaces ------------------------------------------------------------------------------------

// Whether an IPv4 interface is named, or lies in the named network, "a.b.c.d/bits", by n characters.
static bool is_included(const struct ifaddrs *i, const char *name, size_t n) {
    char text[INET_ADDRSTRLEN];
    struct in_addr network;
    const char *slash = memchr(name, '/', n);
    if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET) return false;
    if (!slash) return strlen(i->ifa_name) == n && strncmp(i->ifa_name, name, n) == 0;
    const long bits = strtol(slash + 1, NULL, 10);
    snprintf(text, sizeof text, "%.*s", (int)(slash - name), name);
    if (bits < 1 || bits > 32 || inet_pton(AF_INET, text, &network) != 1) return false;
    const struct sockaddr_in *own = (const struct sockaddr_in *)(const void *)i->ifa_addr;
    return ntohl(own->sin_addr.s_addr ^ network.s_addr) >> (32 - bits) == 0;
}

bool dt_nccl_interfaces(const char *include, char *out, size_t cap) {
    struct ifaddrs *all = NULL;
    size_t used = 0, n;
    if (getifaddrs(&all)) return false;
    for (const char *at = include; *at && used < cap; at += n + (at[n] == ',')) {
        n = strcspn(at, ",");
        for (const struct ifaddrs *i = all; i && used < cap; i = i->ifa_next)
            if (is_included(i, at, n)) // "=": NCCL takes names for prefixes
                used += (size_t)snprintf(out + used, cap - used, "%s%s", used ? "," : "=", i->ifa_name);
    }
    freeifaddrs(all);
    return used > 0 && used < cap;
}

// NCCL takes the first interface that it finds, which on hosts with containers may reach no other host.
static void choose_interface(const dt_comm *c) {
    const char *include = getenv("OMPI_MCA_btl_tcp_if_include");
    char names[256];
    if (c->local_size < c->world_size && include && !getenv("NCCL_SOCKET_IFNAME") &&
        dt_nccl_interfaces(include, names, sizeof names))
        setenv("NCCL_SOCKET_IFNAME", names, 0);
}

// ---- life ------------------------------------------------------------------------------------------

static dt_status connect_ranks(dt_comm *c, dt_comm *boot) {
    nccl_self *n = c->self;
    // with the id goes rank 0's error, so that the others do not wait for it in vain
    struct {
        int error;
        char id[DT_NCCL_ID_BYTES];
    } card = {0};
    if (c->rank == 0) card.error = n->api->unique_id(n->api, card.id);
    DT_TRY(boot->broadcast_bytes(boot, &card, sizeof card, 0));
    // rank 0's message names the error; others print it too
    if (card.error) return fail_call(c, "unique id", card.error);
    int result = n->api->init(n->api, &n->comm, c->world_size, card.id, c->rank);
    return settle(c, "init", result); // collective: returns when all ranks have come
}

dt_status dt_comm_create_nccl(dt_comm **out, dt_backend *b, dt_comm *boot, bool captured, bool in_steps,
                              int64_t sum_bytes, double deadline_s) {
    *out = NULL;
    if (!b->device || !b->device->nccl)
        return dt_fail(DT_E_USAGE,
                       "%d ranks with a GPU each need NCCL, and libnccl.so.2 does not load: install "
                       "libnccl2 or put its folder into LD_LIBRARY_PATH, or run one rank",
                       boot->world_size);
    dt_comm *c = dt_xcalloc(1, sizeof *c);
    nccl_self *n = dt_xcalloc(1, sizeof *n);
    *n = (nccl_self){.api = b->device->nccl,
                     .b = b,
                     // seldom divisible by the ranks
                     // + 3: a tail behind whole vectors and whole runs
                     .n_test = (sum_bytes < MOST_TESTED ? sum_bytes : MOST_TESTED) / (int64_t)sizeof(float) + 3,
                     .deadline_s = deadline_s,
                     .device = {.attach = comm_nccl_attach,
                                .register_memory = register_memory,
                                .deregister_memory = deregister_memory,
                                .watch = watch_step,
                                .drain = comm_nccl_drain}};
    *c = (dt_comm){.name = "nccl",
                   .device = &n->device,
                   .self = n,
                   .rank = boot->rank,
                   .world_size = boot->world_size,
                   .local_rank = boot->local_rank,
                   .local_size = boot->local_size,
                   .broadcast_bytes = nccl_broadcast_bytes,
                   .all_reduce_f32 = nccl_all_reduce_f32,
                   .all_reduce_f64 = nccl_all_reduce_f64,
                   .reduce_start = nccl_reduce_start,
                   .own_part = nccl_own_part,
                   .progress = nccl_progress,
                   .wait = nccl_wait,
                   .send_f32 = nccl_send_f32,
                   .recv_f32 = nccl_recv_f32,
                   .set_deadline = nccl_set_deadline,
                   .abort = nccl_abort,
                   .finalize = nccl_finalize};
    // in two steps: runs that are whole, and one that is not
    const int64_t least = in_steps ? 2 * part_size(c) * c->world_size + 3 : 1024;
    if (n->n_test < least) n->n_test = least;
    choose_interface(c);
    dt_status st = connect_ranks(c, boot);
    if (st == DT_OK) st = self_test(c, captured, least, in_steps);
    if (st != DT_OK) {
        const char *interface = getenv("NCCL_SOCKET_IFNAME");
        if (c->local_size < c->world_size)
            dt_fail(st,
                    "%s. Between hosts: NCCL_SOCKET_IFNAME (here: %s) names the interface of their network, where NCCL "
                    "may have taken docker0 or cni0 (NCCL_DEBUG=INFO shows which)",
                    dt_error_message(), interface ? interface : "unset");
        dt_comm_destroy_nccl(c);
        return st;
    }
    *out = c;
    return DT_OK;
}

void dt_comm_destroy_nccl(dt_comm *c) {
    if (!c) return;
    comm_nccl_give_up(c->self);
    free(c->self);
    free(c);
}
