// batch_source.h: the table that data/ fills and the trainer drains. The trainer knows steps and
// leaves (micro-batches); the source knows samples, files and decoding.
//
// Leaf l of step s holds global-batch slots [l*micro, (l+1)*micro) of that step. A source is opened
// with the leaves that this rank will take in each step, in the order in which its lanes will want
// them, and prefetches in that order from the cursor on. Which samples are in a slot is a pure function
// of (seed, epoch, slot): never of rank, worker or history.
//
// Memory of a batch: one slot of the ring, from the backend's host allocator; fields dense: images u8
// or f32 (n,H,W,C), class i32 (n), real and vector f32. Slots beyond n_valid (evaluation's tail) repeat the
// last valid sample and have weight 0.
#ifndef DT_TRAIN_BATCH_SOURCE_H
#define DT_TRAIN_BATCH_SOURCE_H

#include "base/status.h"
#include "graph/tensor.h"

#include <stdbool.h>

enum { DT_MAX_FIELDS = 16, DT_MAX_WIDTH = 2, DT_MAX_NORMALIZE = 64 }; // width: records a sample

typedef struct dt_field_info {
    const char *name;
    dt_dtype dtype;
    dt_shape sample_shape; // without N: (H,W,C), () for a class
    bool is_image;
    // Images, by channel: u8 of values in 0..1, f32 of values as they are; the network applies them.
    // Numbers, by element (those after the 64th share its): the batch holds (x - mean) / std, and
    // metrics are scaled back.
    float mean[DT_MAX_NORMALIZE], std[DT_MAX_NORMALIZE];
    int n_classes; // class fields, else 0
} dt_field_info;

static inline float dt_field_mean(const dt_field_info *f, int64_t element) {
    return f->mean[element < DT_MAX_NORMALIZE ? element : DT_MAX_NORMALIZE - 1];
}
static inline float dt_field_std(const dt_field_info *f, int64_t element) {
    return f->std[element < DT_MAX_NORMALIZE ? element : DT_MAX_NORMALIZE - 1];
}

typedef struct dt_batch {
    int64_t step; // or index of the evaluation batch
    int leaf;
    int n, n_valid;
    void *field[DT_MAX_FIELDS];
    float *weight;   // (n)
    int64_t *sample; // (n) view index, for reports
} dt_batch;

typedef struct dt_source_stats {
    uint64_t n_batches, n_samples, n_skipped, n_bytes_read;
    double read_s, decode_s, augment_s; // summed over workers
    // How often and how long get() had to wait, by what the pipeline was doing then.
    uint64_t n_waits;
    double wait_s, wait_read_s, wait_decode_s;
    int n_workers, ring_slots;
    size_t ring_bytes;
} dt_source_stats;

typedef struct dt_batch_source dt_batch_source;
struct dt_batch_source {
    void *self;
    int n_fields;
    const dt_field_info *fields;
    int64_t n_samples;       // in this split (per epoch)
    int64_t steps_per_epoch; // training: whole global batches; evaluation: batches, the tail padded
    // Blocks until the batch is ready. From the lane that computes the leaf; several lanes at once.
    dt_status (*get)(dt_batch_source *s, int64_t step, int leaf, const dt_batch **out,
                     double *wait_s);
    void (*release)(dt_batch_source *s, const dt_batch *b); // any order; frees the slot
    // Starts prefetching at `step` (drops what is in flight).
    dt_status (*seek)(dt_batch_source *s, int64_t step);
    void (*stats)(dt_batch_source *s, dt_source_stats *out);
    void (*close)(dt_batch_source *s);
};

typedef enum dt_split { DT_SPLIT_TRAIN, DT_SPLIT_VAL, DT_SPLIT_TEST } dt_split;

typedef struct dt_source_request {
    dt_split split;
    bool augment;
    int global_batch, micro_batch; // evaluation: global_batch = batches of all ranks together
    const int *leaves;             // this rank's leaves within a step, in the order wanted
    int n_leaves;
    int64_t start_step, end_step; // [start, end): prefetching stops there; end < 0: never
} dt_source_request;

// A data set that is open: made by data/ from the config, handed to the trainer by launch/.
typedef struct dt_dataset dt_dataset;
struct dt_dataset {
    void *self;
    int n_fields;
    const dt_field_info *fields;
    uint64_t fingerprint; // of records, view and split: stored in the checkpoint
    int64_t (*n_samples)(const dt_dataset *d, dt_split split);
    // The records that sample i of a split (as evaluation numbers them) is made of; how many. May be
    // NULL: then no two samples share one.
    int (*records)(const dt_dataset *d, dt_split split, int64_t i, uint32_t out[DT_MAX_WIDTH]);
    dt_status (*open)(dt_dataset *d, const dt_source_request *r, dt_batch_source **out);
    const char *(*describe)(const dt_dataset *d); // one line for the log
    void (*close)(dt_dataset *d);
};

#endif
