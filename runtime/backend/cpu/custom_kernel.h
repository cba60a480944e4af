// custom_kernel.h: what the <op>_cpu.c files share: positions of a backward node's tensors, the start of prepare,
// dividing elements among OpenMP threads.
//
// Elementwise kernels accept any layout. Padding channels are zero and stay zero, since f(0) = 0 for all of
// them. Kernels on images want BLOCKED with the vector's width as block, whatever the number of channels; the
// plan inserts reorders where a tensor lies differently.
#ifndef DT_BACKEND_CPU_CUSTOM_KERNEL_H
#define DT_BACKEND_CPU_CUSTOM_KERNEL_H

#include "backend/cpu/simd.h"

#include <stdlib.h>

// DT_ROW_F32, DT_ROW_BF16 or -1.
static inline int dt_row_type(dt_dtype t) {
    return t == DT_F32 ? DT_ROW_F32 : t == DT_BF16 ? DT_ROW_BF16 : -1;
}
static inline size_t dt_row_size(int type) {
    return type == DT_ROW_BF16 ? 2 : 4;
}
static inline const void *dt_row_at(int type, const void *p, int64_t i) {
    return (const char *)p + i * (int64_t)dt_row_size(type);
}
static inline void *dt_row_at_mut(int type, void *p, int64_t i) {
    return (char *)p + i * (int64_t)dt_row_size(type);
}
static inline float dt_row_get(int type, const void *p, int64_t i) {
    if (type == DT_ROW_F32) return ((const float *)p)[i];
    const union {
        uint32_t bits;
        float value;
    } wide = {(uint32_t)((const uint16_t *)p)[i] << 16};
    return wide.value;
}

// Positions among a backward node's inputs: of forward output i, and of its gradient.
static inline int dt_pos_out(const dt_kernel_instance *s, int i) {
    return s->node->n_fwd_in + i;
}
static inline int dt_pos_grad(const dt_kernel_instance *s, int i) {
    return s->node->n_fwd_in + s->node->n_fwd_out + i;
}

// Element i of output `out` becomes the value, or the sum with it where the run adds. Without the output nothing.
static inline void dt_custom_put(const dt_run *r, int out, int64_t i, double value) {
    float *to = r->out[out];
    if (to) to[i] = r->accumulate >> out & 1 ? to[i] + (float)value : (float)value;
}

// Start of prepare: everything DENSE, no scratch, nothing in place; zeroed state of n_state_bytes.
void *dt_custom_prepare(dt_kernel_instance *s, size_t n_state_bytes);
void dt_custom_destroy(dt_kernel_instance *s); // frees the state
// Frees the state and fails like dt_instance_fail: destroy is not called if prepare fails.
#define dt_custom_fail(s, ...) (dt_custom_destroy(s), dt_instance_fail(s, __VA_ARGS__))
// Row type of values that must all be f32 or all bf16; NULL infos are skipped.
dt_status dt_custom_type(dt_kernel_instance *s, int *type, const dt_value_info *const *infos, int n);
// BLOCKED with blocks of dt_cpu_block(); a 4-dimensional tensor is required.
dt_layout dt_custom_blocked(void);

// Divides [0, n) into one range per thread at multiples of 64 elements; a small n stays one range.
typedef void (*dt_range_fn)(const void *ctx, int64_t begin, int64_t end);
void dt_custom_ranges(int threads, int64_t n, dt_range_fn fn, const void *ctx);
// A run of a kernel that reads one tensor, for its threads.
typedef struct dt_one_to_one {
    const void *state;
    void *y;
    const void *x;
} dt_one_to_one;
// y = unary(x), or y = binary(x, d) where that is given, for n elements; y may be x or d. An activation and its slope, or
// a scale.
typedef struct dt_map {
    int type; // row type of all tensors
    void (*unary)(void *y, const void *x, float number, int64_t n);
    void (*binary)(void *y, const void *x, const void *d, float number, int64_t n);
    void *y;
    const void *x, *d;
    float number;
} dt_map;
void dt_custom_map(int threads, int64_t n, const dt_map *m);
// What a kernel adds to lies in output 0 already, or is copied there from input 3.
void dt_custom_copy_residual(const dt_kernel_instance *s, const dt_run *r);
// Calls fn(ctx, i, i + 1) for each of n big items; each thread gets consecutive items.
void dt_custom_items(int threads, int64_t n, dt_range_fn fn, const void *ctx);

#endif
