// bucket.h: sums the gradients over the ranks while backward still runs. Buckets are slices of the flat gradient
// buffer in the order in which backward finishes. Each starts when its last gradient of the last micro-batch
// is ready. dt_buckets_poll advances them between nodes, and a progress thread while a node takes long.
//
// With several replicas in a rank a bucket is ready when every replica has finished it. The thread that
// starts it adds the replicas' buffers in their order (buffer 0 += buffer 1 …), or in that of the fixed tree, and then
// reduces the sum.
#ifndef DT_COMM_BUCKET_H
#define DT_COMM_BUCKET_H

#include "backend/step_block.h"
#include "base/core.h"
#include "comm/comm.h"

// ---- tree ---------------------------------------------------------------------------------------------------------

// The fixed binary tree that sums the gradients of a step's M micro-batches, so that the bits are
// the same for any world size.
//
// The leaves are micro-batches 0..M-1; a node of n leaves splits at the largest power of two below n.
// Replica r of W (over all ranks) computes micro-batches [rM/W, (r+1)M/W). It adds two children as soon as
// both are complete, like a binary counter. That takes log2(M/W)+1 flat buffers where its range is one node
// of the tree, and at most 2 log2(M/W)+1 otherwise. What remains are the largest nodes inside each range.
// They are added across replicas in tree order: the owner of the right child sends, the owner of the left
// child adds. The root's owner broadcasts.
//
// The functions are pure: they make a list of actions, which the trainer and the comm carry out.

static inline int dt_micro_begin(int replica, int n_replicas, int n_micro) {
    return (int)((int64_t)replica * n_micro / n_replicas);
}

// Of a node's n leaves the left child takes the largest power of two below n.
static inline int dt_tree_split(int n) {
    int left = 1;
    while (2 * left < n) left *= 2;
    return left;
}

// One action of a replica, in order.
typedef enum dt_tree_kind {
    DT_TREE_LEAF, // compute leaf `leaf` into flat buffer `a` (overwriting)
    DT_TREE_ADD,  // flat buffer a += flat buffer b; b is free afterwards
    DT_TREE_SEND, // send flat buffer a to replica `peer`; a is free afterwards
    DT_TREE_RECV  // receive from replica `peer` into flat buffer b, then flat buffer a += flat buffer b
} dt_tree_kind;
typedef struct dt_tree_action {
    dt_tree_kind kind;
    int micro, a, b, peer;
    int64_t order; // behind the leaves: of all merges across replicas, the same on all of them
} dt_tree_action;

// Flat buffer `to` += flat buffer `from`.
typedef struct dt_tree_merge {
    int to, from;
} dt_tree_merge;

// The actions of `replica`; after them the sum is in flat buffer 0 of replica 0 (the owner of leaf 0).
// Heap array, caller frees. n_flats: how many flat buffers the replica needs (>= 1).
dt_status dt_tree_plan(dt_tree_action **actions, int *n_actions, int *n_flats, int replica, int n_replicas,
                       int n_micro);

// ---- bucket -------------------------------------------------------------------------------------------------------

typedef struct dt_buckets dt_buckets;

#define DT_BUCKETS_PROGRESS_S 2e-3 // how long nobody has called the comm when the progress thread does

typedef struct dt_buckets_opts {
    const int64_t *grad_end; // by gradient index: end of its entry in the flat buffer, padding included
    int n_grads;
    int64_t n_elements; // of the flat buffer, with the statistics behind the gradients
    // Where the statistics begin. Gradients that end before it leave a gap of zeros (frozen ones), which does not travel.
    int64_t sums_at;
    int64_t bucket_bytes; // the first has 1 MiB at most; sizes do not change any bits
    // NULL: everything is sent as f32. Else gradients are sent as bf16 through this buffer, which has an
    // element for each up to the last gradient's end; what lies behind stays f32. The comm must support it.
    uint16_t *bf16;
    // Gradients are only summed where their owners are (dt_comm.own_part); what lies behind them is summed everywhere.
    bool scatter;
    int n_replicas;
    // Sums over replicas and ranks follow the fixed tree: merges make one flat buffer, 0, of the n_flats that there are.
    bool tree;
    const dt_tree_merge *merges;
    int n_merges, n_flats;
    bool progress_thread; // several hosts: a thread advances the all-reduces, too
    void (*add)(void *ctx, float *dst, const float *src, int64_t begin, int64_t end);
    void *add_ctx;
} dt_buckets_opts;

dt_status dt_buckets_create(dt_buckets **out, dt_comm *c, const dt_buckets_opts *opts);
void dt_buckets_destroy(dt_buckets *b);
// Begins a step: flats[l] is the gradient buffer of replica l, or one of n_flats. The sum ends in flats[0], on every rank or its owner.
void dt_buckets_begin(dt_buckets *b, float *const *flats);
// From any thread: gradient `grad_index` of the last micro-batch of replica `replica` is in its buffer.
void dt_buckets_ready(dt_buckets *b, int replica, int grad_index);
// From the comm's thread only: starts buckets that are ready and advances those that run. finish reports what failed.
void dt_buckets_poll(dt_buckets *b);
// From the comm's thread, after all replicas have finished: completes everything. exposed_s: time spent here,
// that is, not hidden behind backward.
dt_status dt_buckets_finish(dt_buckets *b, double *exposed_s);

// ---- reduce shape -------------------------------------------------------------------------------------------------

// How an all-reduce over MPI is cut: segments, slots, messages. comm_mpi_reduce.c works by it, and so does
// comm_model.c, which predicts how long an all-reduce takes on other hosts.

enum {
    // Up to this, world_size * size is exchanged in one phase.
    DT_REDUCE_SMALL_BYTES = 64 * 1024,
    // Elements of 4 bytes reduced at a time. On one host that shares memory a segment is shorter, so that all areas of all
    // its ranks take about 64 MiB. On many hosts it is longer, so that a rank's part has 4096 elements, unless the areas of
    // a host's ranks would then take more than 256 MiB. It is whole chunks of the parameters.
    DT_REDUCE_SEGMENT = 1 << 18,
    DT_REDUCE_LEAST_SEGMENT = DT_CHUNK,
    DT_REDUCE_LEAST_PART = 1 << 12,
    DT_REDUCE_HOST_SEGMENTS = 1 << 20,  // on one host: a segment times its ranks
    DT_REDUCE_HOSTS_SEGMENTS = 1 << 24, // on several: times the ranks of the largest
    // Less than what Open MPI sends at once over TCP (btl_tcp_eager_limit).
    DT_REDUCE_MESSAGE_BYTES = 60 * 1024,
    DT_REDUCE_SLOTS = 16 // segments under way
};

// Elements of a segment. n_columns, most_ranks: ranks of the smallest host, and of the largest.
static inline int64_t dt_reduce_segment(int n_hosts, int n_columns, int most_ranks) {
    const bool one_host = n_hosts == 1;
    const int64_t all = one_host ? DT_REDUCE_HOST_SEGMENTS : DT_REDUCE_HOSTS_SEGMENTS;
    const int64_t most = all / most_ranks;
    const int64_t parts = (int64_t)DT_REDUCE_LEAST_PART * n_columns * n_hosts;
    const int64_t wanted = one_host || parts < DT_REDUCE_SEGMENT ? DT_REDUCE_SEGMENT : parts;
    const int64_t n = (wanted < most ? wanted : most) / DT_REDUCE_LEAST_SEGMENT;
    return (n < 1 ? 1 : n) * DT_REDUCE_LEAST_SEGMENT;
}

// Whether a whole all-reduce is exchanged in one phase.
static inline bool dt_reduce_is_small(int64_t n_bytes, int world_size) {
    return n_bytes * world_size <= DT_REDUCE_SMALL_BYTES;
}

#endif
