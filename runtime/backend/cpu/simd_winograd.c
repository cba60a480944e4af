// simd_winograd.c: the parts of Winograd's convolution (own_conv.h), each on one thread: the five transforms of
// F(2x2, 3x3) and F(4x4, 3x3), a vector of channels at a time, and the products between them.
//
// With A^T, B^T, G of Lavin & Gray 2016: input B^T d B, filter G g G^T, output A^T m A, and for gradients their
// transposes: of the output A dy A^T, of the filter G^T u G. A map of two dimensions is one of one dimension on the
// columns, then on the rows.
//
// F(2x2) interpolates at 0, 1, -1 and infinity. F(4x4) takes 0, +-5/8, +-3/2 and infinity: of the points whose powers are
// exact in f32 they round least, half as much as the usual 0, +-1, +-2.
//
// With AVX512_BF16 the products may be of bf16, which takes half the time: two numbers that are summed one after the other
// share 32 bits, channels of a tile or, in a weight gradient, tiles of a channel. Only what is HALVES or PAIRS uses those
// instructions.
#if defined(DT_ISA_avx512) && defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512bf16"))), apply_to = function)
#elif defined(DT_ISA_avx512)
#pragma GCC target("avx512bf16")
#endif
#include "backend/cpu/simd.h"
#include "backend/cpu/simd_vec.h"

enum { MOST_SIDE = 6 };                                   // 4 + 2
enum { INPUT, OUTPUT, OUTPUT_GRAD, FILTER, FILTER_GRAD }; // kinds of transforms

#define UNROLL _Pragma("GCC unroll 16")

static const float P = 0.625f, P2 = 0.625f * 0.625f, P3 = 0.625f * 0.625f * 0.625f;
static const float Q = 1.5f, Q2 = 1.5f * 1.5f, Q3 = 1.5f * 1.5f * 1.5f;
static const float P2Q2 = 225.0f / 256, P2_PLUS_Q2 = 169.0f / 64; // P^2 Q^2, P^2 + Q^2
// 1 / product of (point - other points)
static const float N0 = 256.0f / 225, NP = -4096.0f / 5950, NQ = 256.0f / 2142;

// ---- one dimension ---------------------------------------------------------------------------------
INLINE void input4(const vf *d, vf *o) {
    const vf ep = d[4] - Q2 * d[2], op = P * (d[3] - Q2 * d[1]); // even and odd parts: points +-p share both
    const vf eq = d[4] - P2 * d[2], oq = Q * (d[3] - P2 * d[1]);
    o[0] = P2Q2 * d[0] + (d[4] - P2_PLUS_Q2 * d[2]);
    o[1] = ep + op;
    o[2] = ep - op;
    o[3] = eq + oq;
    o[4] = eq - oq;
    o[5] = P2Q2 * d[1] + (d[5] - P2_PLUS_Q2 * d[3]);
}

INLINE void output4(const vf *m, vf *o) {
    // sums and differences of the pairs +-P, +-Q
    const vf sp = m[1] + m[2], dp = m[1] - m[2], sq = m[3] + m[4], dq = m[3] - m[4];
    o[0] = m[0] + sp + sq;
    o[1] = P * dp + Q * dq;
    o[2] = P2 * sp + Q2 * sq;
    o[3] = m[5] + (P3 * dp + Q3 * dq);
}

INLINE void output_grad4(const vf *y, vf *o) {
    const vf ep = y[0] + P2 * y[2], op = P * y[1] + P3 * y[3];
    const vf eq = y[0] + Q2 * y[2], oq = Q * y[1] + Q3 * y[3];
    o[0] = y[0];
    o[1] = ep + op;
    o[2] = ep - op;
    o[3] = eq + oq;
    o[4] = eq - oq;
    o[5] = y[3];
}

INLINE void filter4(const vf *g, vf *o) {
    const vf ep = NP * (g[0] + P2 * g[2]), op = NP * (P * g[1]);
    const vf eq = NQ * (g[0] + Q2 * g[2]), oq = NQ * (Q * g[1]);
    o[0] = N0 * g[0];
    o[1] = ep + op;
    o[2] = ep - op;
    o[3] = eq + oq;
    o[4] = eq - oq;
    o[5] = g[2];
}

INLINE void filter_grad4(const vf *u, vf *o) {
    const vf sp = NP * (u[1] + u[2]), dp = NP * (u[1] - u[2]);
    const vf sq = NQ * (u[3] + u[4]), dq = NQ * (u[3] - u[4]);
    o[0] = N0 * u[0] + (sp + sq);
    o[1] = P * dp + Q * dq;
    o[2] = u[5] + (P2 * sp + Q2 * sq);
}

INLINE void map_of_2(int kind, const vf *d, vf *o) {
    switch (kind) {
    case INPUT:
        o[0] = d[0] - d[2], o[1] = d[2] + d[1], o[2] = d[2] - d[1], o[3] = d[3] - d[1]; // points 0, 1, -1, infinity
        return;
    case OUTPUT:
        o[0] = d[0] + (d[1] + d[2]), o[1] = d[3] + (d[1] - d[2]);
        return;
    case OUTPUT_GRAD:
        o[0] = d[0], o[1] = d[0] + d[1], o[2] = d[0] - d[1], o[3] = d[1];
        return;
    case FILTER:
        o[0] = d[0], o[3] = d[2];
        o[1] = 0.5f * (d[0] + d[2] + d[1]), o[2] = 0.5f * (d[0] + d[2] - d[1]);
        return;
    default: // FILTER_GRAD
        o[1] = 0.5f * (d[1] - d[2]);
        o[0] = d[0] + 0.5f * (d[1] + d[2]), o[2] = d[3] + 0.5f * (d[1] + d[2]);
    }
}

INLINE void map_of_4(int kind, const vf *d, vf *o) {
    switch (kind) {
    case INPUT:
        input4(d, o);
        return;
    case OUTPUT:
        output4(d, o);
        return;
    case OUTPUT_GRAD:
        output_grad4(d, o);
        return;
    case FILTER:
        filter4(d, o);
        return;
    default: // FILTER_GRAD
        filter_grad4(d, o);
    }
}

// ---- two dimensions --------------------------------------------------------------------------------
// How vectors lie in memory; a literal. HALVES: bf16 for products. PAIRS: every number is half of 32 bits, by `odd`.
enum { F32, BF16, HALVES, PAIRS };

// A square of vectors: element (i, j) is at + i * row + j * col.
typedef struct square {
    void *at;
    int64_t row, col;
    int as;
    bool odd;
} square;

// An even half clears the odd one, which may never come.
INLINE void put(square to, int64_t i, vf v) {
#ifdef DT_ISA_avx512
    if (to.as == PAIRS) {
        uint32_t *at = (uint32_t *)to.at + i;
        const __m512i half = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh((__m512)v));
        const __m512i low = _mm512_loadu_si512(at);
        // the odd half is added to the even one's zeros
        _mm512_storeu_si512(at, to.odd ? _mm512_or_si512(low, _mm512_slli_epi32(half, 16)) : half);
        return;
    }
    if (to.as == HALVES) {
        _mm256_storeu_si256((__m256i *)((uint16_t *)to.at + i), (__m256i)_mm512_cvtneps_pbh((__m512)v));
        return;
    }
#endif
    vstore(to.at, i, v, to.as == BF16);
}

// OUTPUT: afterwards max(v + bias, floor).
INLINE void map(int kind, int tile, square from, square to, vf bias, vf floor) {
    const int side = tile + 2;
    const int n_in = kind == OUTPUT_GRAD ? tile : kind == FILTER ? 3 : side;
    const int n_out = kind == OUTPUT ? tile : kind == FILTER_GRAD ? 3 : side;
    vf t[MOST_SIDE][MOST_SIDE];             // after the first dimension
    UNROLL for (int j = 0; j < n_in; j++) { // columns
        vf d[MOST_SIDE], o[MOST_SIDE];
        UNROLL for (int i = 0; i < n_in; i++) d[i] = vload(from.at, i * from.row + j * from.col, from.as == BF16);
        if (tile == 2)
            map_of_2(kind, d, o);
        else
            map_of_4(kind, d, o);
        UNROLL for (int i = 0; i < n_out; i++) t[i][j] = o[i];
    }
    UNROLL for (int i = 0; i < n_out; i++) { // rows
        vf o[MOST_SIDE];
        if (tile == 2)
            map_of_2(kind, t[i], o);
        else
            map_of_4(kind, t[i], o);
        UNROLL for (int j = 0; j < n_out; j++)
            put(to, i * to.row + j * to.col, kind == OUTPUT ? vfloor(o[j] + bias, floor) : o[j]);
    }
}

// Where the patch of a tile lies in its image, and whether wholly inside.
typedef struct patch {
    void *plane;
    int64_t h, w;
    bool inside;
} patch;

INLINE patch patch_of(const dt_winograd_image *im, const void *x, int bf16, int64_t block, const dt_winograd_tiles *t,
                      int64_t k, int tile, int size) {
    const int64_t at = t->first + k, image = at / (t->rows * t->cols);
    const int64_t row = at / t->cols % t->rows, col = at % t->cols;
    // im->top and left: minus the padding
    patch p = {.plane = vat_mut((void *)x, (image * im->blocks + block) * im->h * im->w * VW, bf16),
               .h = row * tile + im->top,
               .w = col * tile + im->left};
    p.inside = p.h >= 0 && p.w >= 0 && p.h + size <= im->h && p.w + size <= im->w;
    return p;
}

INLINE square square_of(const dt_winograd_image *im, const patch *p, int bf16) {
    return (square){vat_mut(p->plane, (p->h * im->w + p->w) * VW, bf16), im->w * VW, VW, bf16, false};
}

// The patch with zeros outside the image.
INLINE void fetch(const dt_winograd_image *im, const patch *p, int bf16, int size, void *to) {
    for (int i = 0; i < size; i++)
        for (int j = 0; j < size; j++) {
            const int64_t h = p->h + i, w = p->w + j;
            const bool inside = h >= 0 && w >= 0 && h < im->h && w < im->w;
            const vf v = inside ? vload(p->plane, (h * im->w + w) * VW, bf16) : vset1(0);
            vstore(to, (i * size + j) * VW, v, bf16);
        }
}

// Patch, or row of a filter, i of those that begin at `at`.
INLINE square nth(float *at, int64_t i, int64_t row, int64_t col, int as) {
    const int64_t step = as == HALVES ? VW / 2 : VW, unit = as == PAIRS ? i / 2 : i;
    const int64_t in = as == HALVES ? 2 : 1; // from one position to the next is in floats
    return (square){at + unit * step, row * in, col * in, as, i & 1};
}

INLINE void map_patches(int kind, int tile, int bf16, int as, float *to, const void *x, const dt_winograd_image *im,
                        int64_t block, const dt_winograd_tiles *t) {
    const int side = tile + 2, size = kind == INPUT ? side : tile;
    float edge[MOST_SIDE * MOST_SIDE * VW] __attribute__((aligned(64)));
    const vf none = {0};
    for (int64_t k = 0; k < t->n; k++) {
        const patch p = patch_of(im, x, bf16, block, t, k, tile, size);
        square from = {edge, size * VW, VW, bf16, false}; // a copy with zeros, in L1
        if (p.inside)
            from = square_of(im, &p, bf16);
        else
            fetch(im, &p, bf16, size, edge);
        map(kind, tile, from, nth(to, k, side * t->position, t->position, as), none, none);
    }
}

INLINE void map_output(int tile, int bf16, void *y, const float *m, const dt_winograd_image *im, int64_t block,
                       const dt_winograd_tiles *t, const float *bias, bool adds, bool relu) {
    const int side = tile + 2;
    float edge[4 * 4 * VW] __attribute__((aligned(64)));
    const vf add = vld(bias), none = vset1(-__builtin_inff()), floor = relu ? vset1(0) : none;
    for (int64_t k = 0; k < t->n; k++) {
        const patch p = patch_of(im, y, bf16, block, t, k, tile, tile);
        const square from = nth((float *)m, k, side * t->position, t->position, F32);
        if (p.inside && !adds) {
            map(OUTPUT, tile, from, square_of(im, &p, bf16), add, floor);
            continue;
        }
        map(OUTPUT, tile, from, (square){edge, tile * VW, VW, F32, false}, add, none);
        for (int64_t i = 0; i < tile && p.h + i < im->h; i++)
            for (int64_t j = 0; j < tile && p.w + j < im->w; j++) { // tiles at the edge reach beyond the image
                const int64_t at = ((p.h + i) * im->w + p.w + j) * VW;
                const vf v = vld(edge + (i * tile + j) * VW);
                vstore(p.plane, at, vfloor(adds ? v + vload(p.plane, at, bf16) : v, floor), bf16);
            }
    }
}

// type and tile as literals: all loops unroll
#define PATCHES(name, kind, tile, type, bf16, as)                                                                      \
    static void name##_##tile##_##type(float *to, const void *x, const dt_winograd_image *im, int64_t block,           \
                                       const dt_winograd_tiles *t) {                                                   \
        map_patches(kind, tile, bf16, as, to, x, im, block, t);                                                        \
    }
#define OUTPUTS(tile, type, bf16)                                                                                      \
    static void output_##tile##_##type(void *y, const float *m, const dt_winograd_image *im, int64_t block,            \
                                       const dt_winograd_tiles *t, const float *bias, bool adds, bool relu) {          \
        map_output(tile, bf16, y, m, im, block, t, bias, adds, relu);                                                  \
    }
#define FILTERS(name, tile, as)                                                                                        \
    static void name##_##tile(float *u, int64_t position, int64_t i, const float *w) {                                 \
        map(FILTER, tile, (square){(float *)w, 3 * VW, VW, F32, false},                                                \
            nth(u, i, (tile + 2) * position, position, as), (vf){0}, (vf){0});                                         \
    }
#define TRANSFORMS(tile)                                                                                               \
    PATCHES(input, INPUT, tile, f32, 0, F32)                                                                           \
    PATCHES(input, INPUT, tile, bf16, 1, F32)                                                                          \
    PATCHES(output_grad, OUTPUT_GRAD, tile, f32, 0, F32)                                                               \
    PATCHES(output_grad, OUTPUT_GRAD, tile, bf16, 1, F32)                                                              \
    OUTPUTS(tile, f32, 0)                                                                                              \
    OUTPUTS(tile, bf16, 1)                                                                                             \
    FILTERS(filter, tile, F32)                                                                                         \
    static void filter_grad_##tile(float *w, const float *u, int64_t position) {                                       \
        map(FILTER_GRAD, tile, nth((float *)u, 0, (tile + 2) * position, position, F32),                               \
            (square){w, 3 * VW, VW, F32, false}, (vf){0}, (vf){0});                                                    \
    }
TRANSFORMS(2)
TRANSFORMS(4)
#ifdef DT_ISA_avx512
PATCHES(halves, INPUT, 2, bf16, 1, HALVES)
PATCHES(pairs, INPUT, 2, bf16, 1, PAIRS)
PATCHES(output_grad_pairs, OUTPUT_GRAD, 2, bf16, 1, PAIRS)
FILTERS(filter_pairs, 2, PAIRS)
#endif

// ---- products --------------------------------------------------------------------------------------
// Accumulators in registers: of 32 with AVX-512, of 16 with AVX2.
#ifdef DT_ISA_avx512
enum { TILE_ROWS = 14, CHANNEL_ROWS = 8 }; // TILE_ROWS x TILE_COLS accumulators, the rest holds operands
#else
enum { TILE_ROWS = 6, CHANNEL_ROWS = 4 };
#endif
enum { MOST_ROWS = 14, TILE_COLS = 2, CHANNEL_COLS = 3 };

// sum + what `a` points to, for all channels, times b.
INLINE vf add_product(int paired, vf sum, const float *a, vf b) {
#ifdef DT_ISA_avx512
    if (paired) { // two bf16 products per lane: a pair of numbers, summed in f32
        int32_t two;
        memcpy(&two, a, sizeof two);
        return (vf)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_epi32(two), (__m512bh)b);
    }
#endif
    return sum + vset1(*a) * b;
}

// R rows times C vectors. Of `a`, row r's element i is a[r * a_row + i % per_block * a_step] behind i / per_block whole
// blocks. paired: elements are pairs.
INLINE void product(int R, int C, int a_row, int a_step, int paired, const dt_winograd_product *p, const float *a,
                    float *out) {
    vf sum[MOST_ROWS][CHANNEL_COLS];
    const float *b = p->b;
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < C; c++) sum[r][c] = (vf){0};
    // whole vectors of channels, then the next block
    for (int64_t left = p->n; left > 0; left -= p->per_block, a += p->a_block) {
        const int64_t n = left < p->per_block ? left : p->per_block;
        for (int64_t i = 0; i < n; i++, b += VW) {
            vf v[CHANNEL_COLS];
            UNROLL for (int c = 0; c < C; c++) v[c] = vld(b + c * p->b_col);
            UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < C; c++) sum[r][c] =
                add_product(paired, sum[r][c], a + r * a_row + i * a_step, v[c]);
        }
    }
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < C; c++) {
        float *to = out + r * VW + c * p->out_col;
        vst(to, p->add ? vld(to) + sum[r][c] : sum[r][c]); // later sums are added to the first
    }
}

#define TILE_CASE(R)                                                                                                   \
    case R:                                                                                                            \
        if (p->n_cols == 2)                                                                                            \
            product(R, 2, paired ? VW / 2 : VW, 1, paired, p, a, out);                                                 \
        else                                                                                                           \
            product(R, 1, paired ? VW / 2 : VW, 1, paired, p, a, out);                                                 \
        break;

// Rows are tiles.
INLINE void of_tiles(int paired, const dt_winograd_product *p) {
    const int64_t n_groups = (p->n_rows + TILE_ROWS - 1) / TILE_ROWS; // groups of equal size, even
    const int64_t rows = ((p->n_rows + n_groups - 1) / n_groups + 1) / 2 * 2;
    for (int64_t at = 0; at < p->n_rows; at += rows) {
        const float *a = p->a + at * (paired ? VW / 2 : VW);
        float *out = p->out + at * VW;
        switch (rows) {
            TILE_CASE(2)
            TILE_CASE(4)
            TILE_CASE(6)
#ifdef DT_ISA_avx512
            TILE_CASE(8)
            TILE_CASE(10)
            TILE_CASE(12)
            TILE_CASE(14)
#endif
        }
    }
}

// Rows are channels.
INLINE void of_channels(int paired, const dt_winograd_product *p) {
    for (int64_t at = 0; at < p->n_rows; at += CHANNEL_ROWS) {
        const float *a = p->a + at / VW * p->a_block + at % VW; // rows of channels inside a vector's block
        float *out = p->out + at * VW;
        if (p->n_cols == 3)
            product(CHANNEL_ROWS, 3, 1, VW, paired, p, a, out);
        else if (p->n_cols == 2)
            product(CHANNEL_ROWS, 2, 1, VW, paired, p, a, out);
        else
            product(CHANNEL_ROWS, 1, 1, VW, paired, p, a, out);
    }
}

static void product_tiles(const dt_winograd_product *p) {
    of_tiles(0, p);
}

static void product_channels(const dt_winograd_product *p) {
    of_channels(0, p);
}

#ifdef DT_ISA_avx512
static void product_tiles_paired(const dt_winograd_product *p) {
    of_tiles(1, p);
}

static void product_channels_paired(const dt_winograd_product *p) {
    of_channels(1, p);
}
#endif

#define INPUTS                                                                                                         \
    {                                                                                                                  \
        {input_2_f32, input_4_f32}, {                                                                                  \
            input_2_bf16, input_4_bf16                                                                                 \
        }                                                                                                              \
    }
#define SHARED                                                                                                         \
    .output = {{output_2_f32, output_4_f32}, {output_2_bf16, output_4_bf16}},                                          \
    .filter_grad = {filter_grad_2, filter_grad_4}, .tile_rows = TILE_ROWS, .tile_cols = TILE_COLS,                     \
    .channel_cols = CHANNEL_COLS

#ifdef DT_ISA_avx512
static const dt_simd_winograd in_bf16 = {
    SHARED,
    .input = {[DT_ROW_BF16] = {halves_2_bf16}},
    .input_summed = {[DT_ROW_BF16] = {pairs_2_bf16}},
    .output_grad = {[DT_ROW_BF16] = {output_grad_pairs_2_bf16}},
    .filter = {filter_pairs_2},
    .product_tiles = product_tiles_paired,
    .product_channels = product_channels_paired,
    .per_float = 2,
};
#endif

const dt_simd_winograd DT_SIMD(dt_simd_winograd) = {
    SHARED,
    .input = INPUTS,
    .input_summed = INPUTS,
    .output_grad = {{output_grad_2_f32, output_grad_4_f32}, {output_grad_2_bf16, output_grad_4_bf16}},
    .filter = {filter_2, filter_4},
    .product_tiles = product_tiles,
    .product_channels = product_channels,
    .per_float = 1,
#ifdef DT_ISA_avx512
    .bf16 = &in_bf16,
#endif
};

#if defined(DT_ISA_avx512) && defined(__clang__)
#pragma clang attribute pop
#endif
