// bucket.h: overlapped all-reduce of a gradient slab. Buckets are slices of the slab in the order in
// which backward finishes; each starts when its last gradient is ready on the last micro-batch, and
// is moved on by dt_buckets_poll between nodes (or by a progress thread: comm.progress).
//
// Lanes: with several lanes in a rank a bucket is ready when every lane has finished it; the lanes'
// slabs are added in lane order by the thread that starts it (slab 0 += slab 1 …), then reduced.
#ifndef DT_COMM_BUCKET_H
#define DT_COMM_BUCKET_H

#include "comm/comm.h"

typedef struct dt_buckets dt_buckets;

typedef struct dt_buckets_opts {
    const int64_t *grad_end; // by gradient index: end offset of its entry in the slab, with the gap
    int n_grads;
    int64_t n_elements; // of the slab (with stats behind the gradients: the last bucket)
    // 0 = auto: an eighth of the slab within 256 KiB .. 25 MiB, the first at most 1 MiB. Sizes change
    // no bits.
    int64_t first_bytes, bucket_bytes;
    // NULL: all of it travels as f32. Else gradients travel as bf16, through this memory for one of each
    // element up to the last gradient's end; what lies behind stays f32. The comm must have such sums.
    uint16_t *low;
    int n_lanes;
    bool thread; // a progress thread instead of polling
    void (*add)(void *ctx, float *dst, const float *src, int64_t begin, int64_t end);
    void *add_ctx;
} dt_buckets_opts;

dt_status dt_buckets_create(dt_buckets **out, dt_comm *c, const dt_buckets_opts *opts);
void dt_buckets_destroy(dt_buckets *b);
// A new step: slabs[l] is lane l's gradient slab. The sum ends in slabs[0] on every rank.
void dt_buckets_begin(dt_buckets *b, float *const *slabs);
// From lane `lane`, any thread: gradient `grad_index` of its last micro-batch is in its slab.
void dt_buckets_ready(dt_buckets *b, int lane, int grad_index);
// From the comm's thread only: starts what is ready and progresses what runs.
dt_status dt_buckets_poll(dt_buckets *b);
// From the comm's thread, after all lanes have finished: completes everything.
// exposed_s: time spent here, not hidden by computing.
dt_status dt_buckets_finish(dt_buckets *b, double *exposed_s);

#endif
