// simd_depthwise.c: depthwise convolutions (see simd.h: dt_depthwise_pass). A vector is a channel block of a pixel.
// Seven outputs of a row are computed at once: each value of the source is loaded (and widened) once for all taps of a
// row of the kernel, whose weights stay in registers. Seven outputs are what 16 registers hold beside seven weights, and
// divide the usual widths: 7, 14, 28, 56, 112. At the edges, values outside the source are left out one by one.
#include "backend/cpu/simd.h"
#include "backend/cpu/simd_vec.h"

enum { MOST = DT_DEPTHWISE_MOST, TILE = 7 }; // MOST: taps of a row of the kernel

// Loads, and keeps the compiler from loading again for each product: there are as many loads as products in a cycle.
INLINE vf load_once(const void *base, int64_t i, int bf16) {
    vf v = vload(base, i, bf16);
#ifdef DT_ISA_avx512
    __asm__("" : "+v"(v)); // an empty instruction that claims to change v
#elif defined(DT_ISA_avx2)
    __asm__("" : "+x"(v));
#elif defined(__aarch64__)
    __asm__("" : "+w"(v));
#endif
    return v;
}

// Outputs [at, at + TILE) of a row, as far as they exist, and rows [begin, end) of the kernel.
typedef struct tile {
    int64_t row, at, begin, end;
} tile;

// Whether all outputs of a tile exist and only need the source.
INLINE bool is_inside(const dt_depthwise_pass *p, int64_t at, int taps, int stride) {
    const int64_t left = p->first[1] + at * stride; // negative: padding
    return left >= 0 && left + (TILE - 1) * stride + taps <= p->src[1] && at + TILE <= p->n[1];
}

// The rows of the kernel that lie in the source.
INLINE tile tile_of(const dt_depthwise_pass *p, int64_t row) {
    const int64_t top = p->first[0] + row * p->stride, rest = p->src[0] - top;
    // rows of the kernel above and below the source are left out
    return (tile){row, 0, top < 0 ? -top : 0, rest < p->taps ? rest : p->taps};
}

// Element of the source at the first column of a tile's row r of the kernel.
INLINE int64_t source_of(const dt_depthwise_pass *p, const tile *t, int64_t r, int stride) {
    const int64_t row = p->first[0] + t->row * p->stride + r;
    return (row * p->src[1] + p->first[1] + t->at * stride) * VW;
}

INLINE void conv_tile(const dt_depthwise_pass *p, tile at, int taps, int stride, int bf16, int inside) {
    const int64_t left = p->first[1] + at.at * stride, most = p->n[1] - at.at; // most: outputs that exist
    const vf floor = vset1(p->relu ? 0.0f : -__builtin_inff());
    vf sum[TILE];
    for (int t = 0; t < TILE; t++) sum[t] = vld(p->start); // the bias, or zeros
    for (int64_t r = at.begin; r < at.end; r++) {
        const int64_t x = source_of(p, &at, r, stride);
        vf w[MOST];
        for (int k = 0; k < taps; k++) w[k] = vld(p->w + (r * p->w_step[0] + k * p->w_step[1]) * VW);
#pragma GCC unroll 32
        for (int i = 0; i < (TILE - 1) * stride + taps; i++) {
            // unsigned: negative columns are large
            if (!inside && (uint64_t)(left + i) >= (uint64_t)p->src[1]) continue;
            const vf v = load_once(p->x, x + i * VW, bf16);
#pragma GCC unroll 8
            for (int k = 0; k < taps; k++) {
                const int t = (i - k) / stride; // the output whose tap k reads column i
                if (i >= k && (i - k) % stride == 0 && t < TILE) sum[t] += v * w[k];
            }
        }
    }
    const int64_t y = (at.row * p->y_step[0] + at.at * p->y_step[1]) * VW, step = p->y_step[1] * VW;
#pragma GCC unroll 8
    for (int t = 0; t < TILE; t++)
        // outputs behind the row's end are not stored
        if (inside || t < most) vstore(p->y, y + t * step, vfloor(sum[t], floor), bf16);
}

INLINE void conv(const dt_depthwise_pass *p, int taps, int stride, int bf16) {
    for (int64_t row = 0; row < p->n[0]; row++)
        for (tile at = tile_of(p, row); at.at < p->n[1]; at.at += TILE)
            if (is_inside(p, at.at, taps, stride))
                conv_tile(p, at, taps, stride, bf16, 1);
            else
                conv_tile(p, at, taps, stride, bf16, 0);
}

// Sums of row r of the kernel: one of each of seven weights, else two, for outputs of even and odd columns, as fewer
// would wait for each other.
INLINE void weights_tile(const dt_depthwise_pass *p, tile at, int64_t r, vf sum[2][MOST], int taps, int stride,
                         int bf16, int inside) {
    const int64_t left = p->first[1] + at.at * stride, most = p->n[1] - at.at;
    const int64_t x = source_of(p, &at, r, stride), y = (at.row * p->n[1] + at.at) * VW;
    vf dy[TILE];
#pragma GCC unroll 8
    // outputs that do not exist contribute 0
    for (int t = 0; t < TILE; t++) dy[t] = inside || t < most ? vload(p->y, y + t * VW, bf16) : (vf){0};
#pragma GCC unroll 32
    for (int i = 0; i < (TILE - 1) * stride + taps; i++) {
        if (!inside && (uint64_t)(left + i) >= (uint64_t)p->src[1]) continue;
        const vf v = load_once(p->x, x + i * VW, bf16);
#pragma GCC unroll 8
        for (int k = 0; k < taps; k++) {
            const int t = (i - k) / stride;
            // two sums: additions of one sum would wait for each other
            if (i >= k && (i - k) % stride == 0 && t < TILE) sum[taps < MOST ? t % 2 : 0][k] += v * dy[t];
        }
    }
}

// Adds outputs of rows [row, end) to the weights of row r of the kernel.
INLINE void weights_row(const dt_depthwise_pass *p, int64_t row, int64_t end, int64_t r, int taps, int stride,
                        int bf16) {
    vf sum[2][MOST];
    for (int k = 0; k < taps; k++) sum[0][k] = sum[1][k] = (vf){0};
    for (; row < end; row++) {
        tile at = tile_of(p, row);
        if (r < at.begin || r >= at.end) continue; // this row of the kernel is in the padding here
        for (; at.at < p->n[1]; at.at += TILE)
            if (is_inside(p, at.at, taps, stride))
                weights_tile(p, at, r, sum, taps, stride, bf16, 1);
            else
                weights_tile(p, at, r, sum, taps, stride, bf16, 0);
    }
    for (int k = 0; k < taps; k++) {
        float *w = p->w + (r * taps + k) * VW;
        vst(w, vld(w) + (sum[0][k] + sum[1][k])); // w is the sum over all calls
    }
}

// Eight rows of outputs at a time: what they need stays in the cache for all rows of the kernel.
INLINE void weights(const dt_depthwise_pass *p, int taps, int stride, int bf16) {
    for (int64_t row = 0; row < p->n[0]; row += 8)
        for (int64_t r = 0; r < p->taps; r++)
            weights_row(p, row, row + 8 < p->n[0] ? row + 8 : p->n[0], r, taps, stride, bf16);
}

#define KERNEL(what, taps, stride, bf16)                                                                               \
    static void what##taps##_##stride##_##bf16(const dt_depthwise_pass *pass) {                                        \
        const dt_depthwise_pass p = *pass; /* that no store can change */                                              \
        what(&p, taps, stride, bf16);                                                                                  \
    }
#define KERNELS(what, taps, stride)                                                                                    \
    KERNEL(what, taps, stride, 0)                                                                                      \
    KERNEL(what, taps, stride, 1)
KERNELS(conv, 1, 1)
KERNELS(conv, 2, 1)
KERNELS(conv, 3, 1)
KERNELS(conv, 4, 1)
KERNELS(conv, 5, 1)
KERNELS(conv, 7, 1)
KERNELS(conv, 3, 2)
KERNELS(conv, 5, 2)
KERNELS(conv, 7, 2)
KERNELS(weights, 5, 1)
KERNELS(weights, 7, 1)
KERNELS(weights, 5, 2)
KERNELS(weights, 7, 2)

#define ROW(what, taps, stride)                                                                                        \
    { what##taps##_##stride##_0, what##taps##_##stride##_1 }
const dt_simd_depthwise DT_SIMD(dt_simd_depthwise) = {
    .conv[1] = {[1] = ROW(conv, 1, 1)},
    .conv[2] = {[1] = ROW(conv, 2, 1)},
    .conv[3] = {[1] = ROW(conv, 3, 1), [2] = ROW(conv, 3, 2)},
    .conv[4] = {[1] = ROW(conv, 4, 1)},
    .conv[5] = {[1] = ROW(conv, 5, 1), [2] = ROW(conv, 5, 2)},
    .conv[7] = {[1] = ROW(conv, 7, 1), [2] = ROW(conv, 7, 2)},
    .weights[5] = {[1] = ROW(weights, 5, 1), [2] = ROW(weights, 5, 2)},
    .weights[7] = {[1] = ROW(weights, 7, 1), [2] = ROW(weights, 7, 2)}};
