// bucket.h: sums the gradients over the ranks while backward still runs. Buckets are slices of the flat gradient
// buffer in the order in which backward finishes. Each starts when its last gradient of the last micro-batch
// is ready. dt_buckets_poll advances them between nodes, and a helper thread while a node takes long.
//
// With several replicas in a rank a bucket is ready when every replica has finished it. The thread that
// starts it adds the replicas' buffers in their order (buffer 0 += buffer 1 …), or in that of the fixed tree, and then
// reduces the sum.
#ifndef DT_COMM_BUCKET_H
#define DT_COMM_BUCKET_H

#include "comm/comm.h"
#include "comm/tree.h"

typedef struct dt_buckets dt_buckets;

#define DT_BUCKETS_HELP_S 2e-3 // how long nobody has called the comm when the helper does

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
    // Sums over replicas and ranks follow comm/tree.h: merges make one flat buffer, 0, of the n_flats that there are.
    bool tree;
    const dt_tree_merge *merges;
    int n_merges, n_flats;
    bool helper; // there are several hosts: a helper thread advances the all-reduces, too
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

#endif
