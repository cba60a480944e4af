// optimizer.h: the table of optimizers. An optimizer is a header in optimizers/ (see optimizer_update.h) and a
// line in config/optimizers.def. Everything else, here, in the CPU's vector loops (cpu/simd_optimizer.c) and in
// the GPU's kernels (cuda/kernels/commit_kernels.h), follows from that list.
#ifndef DT_BACKEND_OPTIMIZER_H
#define DT_BACKEND_OPTIMIZER_H

#include "backend/optimizers/optimizer_update.h"
#include "backend/step_block.h"
#include "config/words.h"

#include <math.h>
#include <stdbool.h>

typedef struct dt_optimizer {
    const char *id;
    int n_slots;              // state slots of a parameter
    const char *const *slots; // their names in a checkpoint
    bool factored;            // two slots of rows and columns: n_slots is 0
    bool norms;               // scales its update by norms of each tensor
    void (*begin)(dt_update *u, int64_t t);
    float (*ratio)(double weights, double direction, const dt_update *u);
} dt_optimizer;

// By dt_optimizer_id.
extern const dt_optimizer dt_optimizers[];

// Elements that a tensor of n takes in a flat buffer: each begins at a multiple of 16, behind a gap of zeros.
static inline int64_t dt_flat_extent(int64_t n) {
    return (n + 15) / 16 * 16;
}

// Adjacent parameters that are updated alike. Offset and length in elements.
typedef struct dt_segment {
    int64_t offset, length;
    float lr_scale;
    float decay; // weight decay of this segment (0 for norms and biases)
    bool frozen;
    bool scaled;   // one tensor whose update is scaled by norms (optimizers with norms)
    int64_t start; // the 0-based step at which its training and its slots begin
} dt_segment;

// The rows of a tensor, whose gradient train.clip_agc clips.
typedef struct dt_clip_tensor {
    int64_t offset, length, first, n; // length: of a row; first: number of its first row among all
} dt_clip_tensor;

// A tensor of a factored optimizer, rows by cols; a vector has one row, and only slot 0.
typedef struct dt_factored {
    int64_t offset, rows, cols;
    int64_t at[DT_MAX_SLOTS]; // offset of its state in each slot's flat buffer
    int64_t sums;             // offset of its columns' sums in column_sums
    float lr_scale;
    bool vector, frozen;
    int64_t start; // see dt_segment
} dt_factored;

typedef struct dt_optimizer_args {
    dt_word kind;               // dt_optimizer_id
    const dt_segment *segments; // ascending, disjoint
    int n_segments;
    float *master, *slots[DT_MAX_SLOTS]; // flat buffers
    const float *grad;
    // Moves towards each updated parameter by this share; NULL: there is no average.
    float *average, average_rate;
    int64_t state_at; // the element whose state slots and average begin with; on a device 0
    // Optimizers with norms: two sums of squares per chunk of the scaled segments, in order; a ratio per segment.
    double *norms;
    float *ratios;
    // 1/weight · 1/loss_scale · clip coefficient, applied to each gradient element
    float grad_scale;
    float clip_value; // of an element of the gradient, after grad_scale; 0: none
    // Adaptive clipping (Brock et al. 2021): the gradient of a row of a tensor, of all of a vector, has at most this
    // share of the row's norm, which counts as at least 1e-3. 0: none.
    float clip_agc;
    const dt_clip_tensor *tensors; // with clip_agc
    int n_tensors;
    const dt_factored *factored; // factored optimizers
    int n_factored;
    double *column_sums; // scratch, (of all tensors)
    float lr, hyper[DT_MAX_HYPER];
    // 1 at the first step. A segment's own (bias correction) is t - start, or t - n_skipped where it starts with the run.
    int64_t t, n_skipped;
} dt_optimizer_args;

// What a gradient is clipped to before grad_scale.
static inline float dt_clip_limit(float clip_value, float grad_scale) {
    return clip_value > 0 ? clip_value / grad_scale : HUGE_VALF;
}
// Which tensors an optimizer with norms scales: those that decay, as in timm and Apex; with train.optimizer.always_adapt all.
static inline bool dt_optimizer_scales(float decay, bool always) {
    return always || decay != 0;
}
// Chunks that a segment's norms are summed over.
static inline int64_t dt_segment_chunks(int64_t offset, int64_t length, bool scaled) {
    return scaled && length > 0 ? (offset + length - 1) / DT_CHUNK - offset / DT_CHUNK + 1 : 0;
}
int64_t dt_optimizer_n_norms(const dt_optimizer_args *a); // chunks of all segments
// Constants of the update of segment i.
dt_update dt_optimizer_segment(const dt_optimizer_args *a, int i);
// Computes a->ratios from a->norms.
void dt_optimizer_find_ratios(const dt_optimizer_args *a);

#endif
