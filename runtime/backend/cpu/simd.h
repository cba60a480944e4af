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
typedef void (*dt_activation_fn)(void *y, const void *x, float number, int64_t n);
typedef void (*dt_activation_slope_fn)(void *dx, const void *x, const void *dy, float number, int64_t n);
typedef struct dt_simd_elementwise {
    void (*to_bf16)(void *y, const void *x, int64_t n);
    void (*to_f32)(void *y, const void *x, int64_t n);
    // by dt_activation; ReLU's backward reads y for x
    const dt_activation_fn (*activation)[DT_ROW_TYPES];
    const dt_activation_slope_fn (*activation_bwd)[DT_ROW_TYPES];
    void (*mul[DT_ROW_TYPES])(void *y, const void *a, const void *b, int64_t n);
    // (rows, cols): y = x * factor of the column; sum += a * b, row after row
    void (*mul_rows[DT_ROW_TYPES])(void *y, const void *x, const float *factor, int64_t rows, int64_t cols);
    void (*mul_rows_sum[DT_ROW_TYPES])(float *sum, const void *a, const void *b, int64_t rows, int64_t cols);
    void (*add[DT_ROW_TYPES])(void *y, const void *a, const void *b, int64_t n);
    void (*add_wide[DT_ROW_TYPES])(void *y, const void *a, const float *b, int64_t n); // b is f32
    void (*accumulate[DT_ROW_TYPES])(float *sum, const void *x, int64_t n);            // sum += x
    void (*scale[DT_ROW_TYPES])(void *y, const void *x, float alpha, int64_t n);
    // Elements [first, first + n) of one sample; first is a multiple of 4. Kept where uniform >= p.
    void (*dropout[DT_ROW_TYPES])(void *y, const void *x, const dt_rng *r, float p, uint32_t first, int64_t n);
    // n_pixels of (C) bytes -> one plane of channel c: x * scale + shift
    void (*u8_plane[DT_ROW_TYPES])(void *y, const uint8_t *x, int channels, int c, float scale, float shift,
                                   int64_t n_pixels);
    // The same from floats: (x - mean) * scale
    void (*f32_plane[DT_ROW_TYPES])(void *y, const float *x, int channels, int c, float mean, float scale,
                                    int64_t n_pixels);
    // All three channels of RGB bytes -> planes y, y + plane, y + 2 plane (elements)
    void (*u8_rgb[DT_ROW_TYPES])(void *y, int64_t plane, const uint8_t *x, const float *scale, const float *shift,
                                 int64_t n_pixels);
} dt_simd_elementwise;

// ---- batch norm: one channel block, `n_rows` whole rows of `width` pixels --------------------------
// With `pool` (2x2, stride 2) n_rows is even except in an image's last chunk; y, dy and argmax hold
// floor(n_rows/2) rows of floor(width/2) pixels. A channel block is as wide as the vector, in NHWC (bf16 alone)
// twice as wide: a register of bf16. Channel constants and sums are arrays of that width.
typedef struct dt_bn_chunk {
    int64_t n_rows, width;
    int64_t nhwc; // 0: BLOCKED; else elements between pixels
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
    double *sums;         // backward sums: (g), (g (x - mean)), an array of that width each
} dt_bn_chunk;
typedef struct dt_simd_bn {
    // sums[0..w) = sum(x - pivot), sums[w..2w) = sum((x - pivot)^2) over n_pixels; nhwc as in a chunk
    void (*stats)(const void *x, int64_t n_pixels, int64_t nhwc, const float *pivot, double *sums);
    void (*forward)(const dt_bn_chunk *p);
    void (*backward_sums)(const dt_bn_chunk *p);
    void (*backward)(const dt_bn_chunk *p);
} dt_simd_bn;

// ---- pooling: one channel block of one image (BLOCKED), or all blocks of one (NHWC) -----------------
typedef struct dt_pool_image {
    int64_t in_h, in_w, out_h, out_w;
    int64_t n_blocks, pixel; // elements between pixels of x, y and argmax: n_blocks vectors
    const dt_window *win;
    bool count_include_pad;
    const void *x; // in: forward x, backward dy
    void *y;       // out: forward y, backward dx (wholly written)
    uint8_t *argmax;
} dt_pool_image;
typedef struct dt_simd_pool {
    void (*max[DT_ROW_TYPES])(const dt_pool_image *p);
    void (*max_bwd[DT_ROW_TYPES])(const dt_pool_image *p);
    void (*avg[DT_ROW_TYPES])(const dt_pool_image *p);
    void (*avg_bwd[DT_ROW_TYPES])(const dt_pool_image *p);
    void (*mean[DT_ROW_TYPES])(float *y, const void *x, int64_t n_pixels,
                               int64_t pixel);                             // y: a vector
    void (*fill[DT_ROW_TYPES])(void *y, const float *v, int64_t n_pixels); // y[p] = v
} dt_simd_pool;

// ---- depthwise convolution (own_conv.h): one channel block of one image, f32 or bf16 -------------------
enum { DT_DEPTHWISE_MOST = 7 }; // of a kernel's sides
// Places are rows and columns of the source, a vector each. Output (i, j) is made of `taps` rows of them from
// first[0] + i stride on, and columns from first[1] + j stride on; what lies outside the source is zero.
typedef struct dt_depthwise_pass {
    int64_t src[2], n[2], first[2]; // of the source; of outputs
    int64_t stride, taps;           // rows
    int64_t y_step[2];              // vectors between outputs
    int64_t w_step[2];              // and between weights
    const void *x;
    void *y;            // in weights: dy
    float *w;           // of the first tap of both; in weights: sums
    const float *start; // a vector, of which y is the sum with all products
    bool relu;
} dt_depthwise_pass;
typedef void (*dt_depthwise_fn)(const dt_depthwise_pass *p);
typedef struct dt_simd_depthwise { // by columns of taps and their stride; NULL: there is none
    dt_depthwise_fn conv[DT_DEPTHWISE_MOST + 1][3][DT_ROW_TYPES];
    dt_depthwise_fn weights[DT_DEPTHWISE_MOST + 1][3][DT_ROW_TYPES]; // w += x dy
} dt_simd_depthwise;

// ---- the optimizer over flat buffers, by dt_optimizer_id: elements [at, at + n) of one segment ------
typedef struct dt_simd_optimizer {
    // Whether everything that it wrote is finite
    bool (*update)(const dt_optimizer_args *a, int64_t at, int64_t n, const dt_update *u);
    // sums[0], [1] = sums of squares of weights and direction
    void (*measure)(const dt_optimizer_args *a, int64_t at, int64_t n, const dt_update *u, double *sums);
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

// ---- Winograd (own_conv.h): [0] F(2x2, 3x3), [1] F(4x4, 3x3); what reads or writes tensors also by row type --------
// A BLOCKED tensor (N, blocks, h, w, vector) and where the patch of an image's first tile begins in it.
typedef struct dt_winograd_image {
    int64_t blocks, h, w, top, left;
} dt_winograd_image;
// Tiles [first, first + n) of all images, `rows` x `cols` in each. Transformed, the elements of a patch lie `position`
// floats apart, and those of the next tile follow. With products in bf16 a float holds two that are summed one after the
// other.
typedef struct dt_winograd_tiles {
    int64_t rows, cols, first, n, position;
} dt_winograd_tiles;
// out = a b, or added to it: n_rows x n_cols vectors, out_col apart, from n rows of b, b_col apart.
typedef struct dt_winograd_product {
    float *out;
    const float *a, *b;
    int64_t out_col, b_col, n_rows, n_cols, n;
    int64_t a_block, per_block;
    bool add;
} dt_winograd_product;
typedef void (*dt_winograd_patches)(float *to, const void *x, const dt_winograd_image *im, int64_t block,
                                    const dt_winograd_tiles *t);
typedef struct dt_simd_winograd {
    // one channel block of tiles; outside the image is zero; summed: of a weight gradient
    dt_winograd_patches input[DT_ROW_TYPES][2], input_summed[DT_ROW_TYPES][2];
    dt_winograd_patches output_grad[DT_ROW_TYPES][2];
    // y = transformed + bias (a vector), plus what y holds (adds), then ReLU
    void (*output[DT_ROW_TYPES][2])(void *y, const float *m, const dt_winograd_image *im, int64_t block,
                                    const dt_winograd_tiles *t, const float *bias, bool adds, bool relu);
    // (3, 3, vector) filters of channel i to their positions and, of gradients, back
    void (*filter[2])(float *u, int64_t position, int64_t i, const float *w);
    void (*filter_grad[2])(float *w, const float *u, int64_t position);
    // Rows are tiles: a is (n / vector, tiles, vector), per_block the vector's width. Rounds n_rows up to even.
    void (*product_tiles)(const dt_winograd_product *p);
    // Rows are channels: a is (n_rows / vector, n = per_block tiles, vector).
    void (*product_channels)(const dt_winograd_product *p);
    int tile_rows;                       // that product_tiles takes at once
    int tile_cols, channel_cols;         // the most n_cols of each
    int per_float;                       // numbers that a float of a product holds
    const struct dt_simd_winograd *bf16; // with products in bf16, of tensors in it: where dt_cpu_has_bf16
} dt_simd_winograd;
// ---- 8 bits: 0..255, or `negative` -127..127 -------------------------------------------------------
typedef struct dt_simd_int8 {
    void (*quantize)(void *y, const float *x, float inverse, bool negative, int64_t n);
    void (*dequantize)(float *y, const void *x, float scale, bool negative, int64_t n);
    void (*max[2])(void *y, const void *x, int64_t n); // y = max(y, x), by `negative`
} dt_simd_int8;

typedef struct dt_simd {
    int width;
    const struct dt_simd_rows *rows; // of one row: softmax, attention, layer norm
    const dt_simd_elementwise *elementwise;
    const dt_simd_bn *bn[DT_ROW_TYPES];
    const dt_simd_pool *pool;
    const dt_simd_depthwise *depthwise; // NULL, as winograd: with GENERIC
    const dt_simd_flat *flat;
    const dt_simd_optimizer *optimizers;
    const dt_simd_winograd *winograd;
    const dt_simd_int8 *int8;
} dt_simd;

const dt_simd *dt_simd_get(void);

#define DT_SIMD_DECLARE(isa)                                                                                           \
    extern const dt_simd_elementwise dt_simd_elementwise_##isa;                                                        \
    extern const struct dt_simd_rows dt_simd_rows_##isa;                                                               \
    extern const dt_simd_bn dt_simd_bn_f32_##isa, dt_simd_bn_bf16_##isa;                                               \
    extern const dt_simd_pool dt_simd_pool_##isa;                                                                      \
    extern const dt_simd_depthwise dt_simd_depthwise_##isa;                                                            \
    extern const dt_simd_flat dt_simd_flat_##isa;                                                                      \
    extern const dt_simd_winograd dt_simd_winograd_##isa;                                                              \
    extern const dt_simd_int8 dt_simd_int8_##isa;                                                                      \
    extern const dt_simd_optimizer dt_simd_optimizer_##isa[];
DT_SIMD_DECLARE(generic)
DT_SIMD_DECLARE(avx2)
DT_SIMD_DECLARE(avx512)
DT_SIMD_DECLARE(neon)
DT_SIMD_DECLARE(sve256)

// ---- simd rows ----------------------------------------------------------------------------------------------------

// Vector kernels over one row (softmax, attention, layer norm) and over one tile of a reorder,
// with the rules above. Rows have any length. Sums are f32.

typedef struct dt_norm_row {
    int64_t n;
    const void *x, *dy; // dy: backward
    void *y;            // forward: y; backward: dx (NULL: not wanted)
    const float *scale, *shift;
    float eps;
    float mean, rstd;       // out forward, in backward
    float *dscale, *dshift; // backward: added to; NULL: not wanted
} dt_norm_row;

// A tile of pixels by at most `width` channels, to copy between two layouts. On each side element (channel c,
// pixel p) is at c * channel_stride + p * pixel_stride (in elements). A side of pixels has channel stride 1, a
// side of planes has pixel stride 1.
typedef struct dt_reorder_tile {
    const void *src;
    void *dst;
    int64_t src_stride, dst_stride; // planes: channel stride; pixels: pixel stride
    int n_channels;                 // read
    int n_stored;                   // pixels written: channels written, the rest of them zero
    int64_t n_pixels;
} dt_reorder_tile;

typedef struct dt_simd_rows {
    void (*softmax[DT_ROW_TYPES])(void *y, const void *x, int64_t n);
    void (*softmax_bwd[DT_ROW_TYPES])(void *dx, const void *y, const void *dy, int64_t n);
    // p = softmax(s); returns log(sum(exp(s))); s is overwritten
    float (*attend[DT_ROW_TYPES])(void *p, float *s, int64_t n);
    // p = exp(s - lse), ds = p (dp - sum(p dp)); s is overwritten
    void (*attend_bwd[DT_ROW_TYPES])(void *p, void *ds, float *s, const float *dp, float lse, int64_t n);
    void (*norm[DT_ROW_TYPES])(dt_norm_row *r);
    void (*norm_bwd[DT_ROW_TYPES])(const dt_norm_row *r);
    // [source type][destination type]
    void (*planes_to_pixels[DT_ROW_TYPES][DT_ROW_TYPES])(const dt_reorder_tile *t);
    void (*pixels_to_planes[DT_ROW_TYPES][DT_ROW_TYPES])(const dt_reorder_tile *t);
    void (*pixels_to_pixels[DT_ROW_TYPES][DT_ROW_TYPES])(const dt_reorder_tile *t);
    // k rows, an even number, of 64 columns as bf16, two rows element by element: a column of oneDNN's BA16a64b2a.
    // Rows of `from` lie `stride` apart.
    void (*pack_pairs)(uint16_t *to, const float *from, int64_t k, int64_t stride);
} dt_simd_rows;

#endif
