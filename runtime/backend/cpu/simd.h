// simd.h: the table of custom vector kernels, one for each ISA.
//
// simd_<part>.c is compiled once per ISA and exports dt_simd_<part>_<isa>; dt_simd_get picks the table for
// dt_cpu_isa_get. A kernel runs on one thread over contiguous memory; the <op>_cpu.c files divide tensors among
// threads. A kernel for both element types has two entries, indexed by DT_ROW_F32 / DT_ROW_BF16. `width` is
// the vector's number of f32 elements, and also the channel block of the BLOCKED tensors that kernels read.
//
// Pointers only need their element's alignment. Sums that leave a kernel are doubles, in an order that depends
// only on the length of the data. So bits depend on the ISA and on how tensors are divided, never on threads.
#ifndef DT_BACKEND_CPU_SIMD_H
#define DT_BACKEND_CPU_SIMD_H

#include "backend/cpu/cpu_backend.h"
#include "base/rng.h"

enum { DT_ROW_F32, DT_ROW_BF16, DT_ROW_TYPES };
enum { DT_SIMD_MAX_WIDTH = 16 };

// ---- elementwise: n elements; outputs may be their inputs ------------------------------------------
typedef struct dt_simd_elementwise {
    void (*to_bf16)(void *y, const void *x, int64_t n);
    void (*to_f32)(void *y, const void *x, int64_t n);
    void (*relu[DT_ROW_TYPES])(void *y, const void *x, int64_t n);
    void (*relu_bwd[DT_ROW_TYPES])(void *dx, const void *y, const void *dy, int64_t n);
    void (*gelu[DT_ROW_TYPES])(void *y, const void *x, int64_t n);
    void (*gelu_bwd[DT_ROW_TYPES])(void *dx, const void *x, const void *dy, int64_t n);
    void (*gelu_tanh[DT_ROW_TYPES])(void *y, const void *x, int64_t n);
    void (*gelu_tanh_bwd[DT_ROW_TYPES])(void *dx, const void *x, const void *dy, int64_t n);
    void (*activation[DT_N_ACTIVATIONS][DT_ROW_TYPES])(void *y, const void *x, int64_t n);
    void (*activation_bwd[DT_N_ACTIVATIONS][DT_ROW_TYPES])(void *dx, const void *x, const void *dy,
                                                           int64_t n);
    void (*mul[DT_ROW_TYPES])(void *y, const void *a, const void *b, int64_t n);
    // (rows, cols): y = x * factor of the column; sum += a * b, row after row
    void (*mul_rows[DT_ROW_TYPES])(void *y, const void *x, const float *factor, int64_t rows,
                                   int64_t cols);
    void (*mul_rows_sum[DT_ROW_TYPES])(float *sum, const void *a, const void *b, int64_t rows,
                                       int64_t cols);
    void (*add[DT_ROW_TYPES])(void *y, const void *a, const void *b, int64_t n);
    void (*add_wide[DT_ROW_TYPES])(void *y, const void *a, const float *b, int64_t n); // b is f32
    void (*accumulate[DT_ROW_TYPES])(float *sum, const void *x, int64_t n);            // sum += x
    void (*scale[DT_ROW_TYPES])(void *y, const void *x, float alpha, int64_t n);
    // Elements [first, first + n) of one sample; first is a multiple of 4. Kept where uniform >= p.
    void (*dropout[DT_ROW_TYPES])(void *y, const void *x, const dt_rng *r, float p, uint32_t first,
                                  int64_t n);
    // n_pixels of (C) bytes -> one plane of channel c: x * scale + shift
    void (*u8_plane[DT_ROW_TYPES])(void *y, const uint8_t *x, int channels, int c, float scale,
                                   float shift, int64_t n_pixels);
    // The same from floats: (x - mean) * scale
    void (*f32_plane[DT_ROW_TYPES])(void *y, const float *x, int channels, int c, float mean,
                                    float scale, int64_t n_pixels);
    // All three channels of RGB bytes -> planes y, y + plane, y + 2 plane (elements)
    void (*u8_rgb[DT_ROW_TYPES])(void *y, int64_t plane, const uint8_t *x, const float *scale,
                                 const float *shift, int64_t n_pixels);
} dt_simd_elementwise;

// ---- batch norm: one channel block, `n_rows` whole rows of `width` pixels --------------------------
// With `pool` (2x2, stride 2) n_rows is even except in an image's last piece; y, dy and argmax hold
// floor(n_rows/2) rows of floor(width/2) pixels. Channel constants are arrays of the vector's width.
typedef struct dt_bn_piece {
    int64_t n_rows, width;
    bool relu, pool;
    const void *x, *residual; // residual NULL: none
    void *y;
    uint8_t *argmax; // pool: out forward (may be NULL), in backward
    const void *dy;
    void *dx, *dresidual; // dresidual NULL: not wanted
    const float *mean;    // forward and backward
    const float *gain;    // scale * invstd
    const float *shift;   // forward
    const float *k1, *k2; // backward: dx = gain g - k1 - k2 (x - mean)
    double *sums;         // backward sums: (g), (g (x - mean)), one array of `width` lanes each
} dt_bn_piece;
typedef struct dt_simd_bn {
    // sums[0..w) = sum(x - pivot), sums[w..2w) = sum((x - pivot)^2) over n_pixels
    void (*stats)(const void *x, int64_t n_pixels, const float *pivot, double *sums);
    void (*forward)(const dt_bn_piece *p);
    void (*backward_sums)(const dt_bn_piece *p);
    void (*backward)(const dt_bn_piece *p);
} dt_simd_bn;

// ---- pooling: one channel block of one image -------------------------------------------------------
typedef struct dt_pool_image {
    int64_t in_h, in_w, out_h, out_w;
    const dt_window *win;
    bool count_include_pad;
    const void *x; // in: forward x, backward dy
    void *y;       // out: forward y, backward dx (wholly written)
    uint8_t *argmax;
    float *row_sums; // backward scratch: in_h * in_w * width floats
} dt_pool_image;
typedef struct dt_simd_pool {
    void (*max[DT_ROW_TYPES])(const dt_pool_image *p);
    void (*max_bwd[DT_ROW_TYPES])(const dt_pool_image *p);
    void (*avg[DT_ROW_TYPES])(const dt_pool_image *p);
    void (*avg_bwd[DT_ROW_TYPES])(const dt_pool_image *p);
    void (*mean[DT_ROW_TYPES])(float *y, const void *x, int64_t n_pixels); // y: width lanes
    void (*fill[DT_ROW_TYPES])(void *y, const float *v, int64_t n_pixels); // y[p] = v
} dt_simd_pool;

// ---- the optimizer over flat buffers, by dt_optimizer_id: elements [at, at + n) of one segment ------
typedef struct dt_simd_optimizer {
    // Whether everything that it wrote is finite
    bool (*update)(const dt_optimizer_args *a, int64_t at, int64_t n, const dt_update *u);
    // sums[0], [1] = sums of squares of weights and direction
    void (*measure)(const dt_optimizer_args *a, int64_t at, int64_t n, const dt_update *u,
                    double *sums);
} dt_simd_optimizer;

// ---- flat buffers and losses -----------------------------------------------------------------------
typedef struct dt_simd_flat {
    double (*sum_squares)(const float *x, int64_t n);
    // rows of logits
    float (*row_max)(const float *x, int64_t n);
    double (*row_sum_exp)(const float *x, float max, int64_t n); // sum of exp(x - max)
    double (*row_sum)(const float *x, int64_t n);
    double (*row_dot)(const float *a, const float *b, int64_t n);
    // dx = coef * exp(x - max) + base
    void (*row_softmax)(float *dx, const float *x, float max, float coef, float base, int64_t n);
} dt_simd_flat;

typedef struct dt_simd {
    int width;
    const struct dt_simd_rows *rows; // simd_rows.h
    const dt_simd_elementwise *elementwise;
    const dt_simd_bn *bn[DT_ROW_TYPES];
    const dt_simd_pool *pool;
    const dt_simd_flat *flat;
    const dt_simd_optimizer *optimizers;
} dt_simd;

const dt_simd *dt_simd_get(void);

#define DT_SIMD_DECLARE(isa)                                                                       \
    extern const dt_simd_elementwise dt_simd_elementwise_##isa;                                    \
    extern const struct dt_simd_rows dt_simd_rows_##isa;                                           \
    extern const dt_simd_bn dt_simd_bn_f32_##isa, dt_simd_bn_bf16_##isa;                           \
    extern const dt_simd_pool dt_simd_pool_##isa;                                                  \
    extern const dt_simd_flat dt_simd_flat_##isa;                                                  \
    extern const dt_simd_optimizer dt_simd_optimizer_##isa[DT_N_OPTIMIZERS];
DT_SIMD_DECLARE(generic)
DT_SIMD_DECLARE(avx2)
DT_SIMD_DECLARE(avx512)

#endif
