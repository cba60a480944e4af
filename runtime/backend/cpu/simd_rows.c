// simd_rows.c: rows of softmax, attention and layer norm; transposition of a tile (see simd.h). Compiled
// once per ISA.
//
// The last vector of a row is padded with zeros, of which arithmetic may make anything, also infinity or NaN. So whatever
// goes across lanes, a maximum or a sum, takes the padding through `behind` or `term` first. VW x VW squares are transposed with Eklundh's method: log2(VW) rounds that
// swap the off-diagonal quarters of ever smaller squares.
#include "backend/cpu/simd.h"

#include "backend/cpu/simd_vec.h"

#include <math.h>

#define NEXT(i, n) ((n) - (i) < VW ? (int)((n) - (i)) : VW) // elements of the vector at i

INLINE vf get(const void *p, int64_t i, int k, int bf16) {
    return k == VW ? vload(p, i, bf16) : vload_part(p, i, k, bf16);
}
INLINE void put(void *p, int64_t i, int k, vf v, int bf16) {
    if (k == VW)
        vstore(p, i, v, bf16);
    else
        vstore_part(p, i, k, v, bf16);
}
INLINE vf behind(vf v, int k, vf fill) {
    static const float lane[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}; // lanes behind k get `fill`
    return k == VW ? v : vsel(vm_ge(vld(lane), vset1((float)k)), fill, v);
}
// v as a term of a row's sum.
INLINE vf term(vf v, int k) {
    return behind(v, k, vset1(0.0f));
}
INLINE float lanes_sum(vf v) {
    float s = 0; // lane by lane: a fixed order
    for (int i = 0; i < VW; i++) s += v[i];
    return s;
}

INLINE float row_max(const void *x, int64_t n, int bf16) {
    vf m = vset1(-INFINITY);
    for (int64_t i = 0; i < n; i += VW) {
        const int k = NEXT(i, n);
        const vf v = behind(get(x, i, k, bf16), k, m); // padding repeats the maximum so far
        m = vsel(vm_gt(m, v), m, v);                   // a NaN in v wins
    }
    float max = m[0];
    for (int i = 1; i < VW; i++) max = m[i] > max || m[i] != m[i] ? m[i] : max; // NaN wins
    return max;
}

// y = exp(x - max) and their sum, then y /= sum. The exponentials wait in e; NULL: they are made twice.
INLINE float softmax_of(void *y, const void *x, float *e, int64_t n, int from, int to, float *max_out) {
    const float max = row_max(x, n, from);
    vf sum = vset1(0.0f);
    for (int64_t i = 0; i < n; i += VW) {
        const int k = NEXT(i, n);
        const vf v = vexp(get(x, i, k, from) - max);
        sum += term(v, k);
        if (e) put(e, i, k, v, 0);
    }
    const float total = lanes_sum(sum); // 1 at least: exp(0) of the maximum
    const vf inv = vset1(1.0f / total);
    for (int64_t i = 0; i < n; i += VW) {
        const int k = NEXT(i, n);
        // the second exponential is cheaper than memory for a row
        put(y, i, k, (e ? get(e, i, k, 0) : vexp(get(x, i, k, from) - max)) * inv, to);
    }
    *max_out = max;
    return total;
}

INLINE void softmax_row(void *y, const void *x, int64_t n, int bf16) {
    float max;
    (void)softmax_of(y, x, NULL, n, bf16, bf16, &max);
}

INLINE float attend_row(void *p, float *s, int64_t n, int bf16) {
    float max;
    const float total = softmax_of(p, s, s, n, 0, bf16, &max); // s: exponentials in place of the scores
    return max + logf(total);                                  // log-sum-exp, for backward
}

INLINE void softmax_bwd_row(void *dx, const void *y, const void *dy, int64_t n, int bf16) {
    vf dot = vset1(0.0f);
    for (int64_t i = 0; i < n; i += VW) {
        const int k = NEXT(i, n);
        dot += term(get(y, i, k, bf16) * get(dy, i, k, bf16), k);
    }
    const vf d = vset1(lanes_sum(dot));
    for (int64_t i = 0; i < n; i += VW) {
        // dx = y (dy - sum(y dy))
        const int k = NEXT(i, n);
        put(dx, i, k, get(y, i, k, bf16) * (get(dy, i, k, bf16) - d), bf16);
    }
}

INLINE void attend_bwd_row(void *p, void *ds, float *s, const float *dp, float lse, int64_t n, int bf16) {
    vf dot = vset1(0.0f);
    for (int64_t i = 0; i < n; i += VW) {
        const int k = NEXT(i, n);
        const vf e = vexp(get(s, i, k, 0) - lse);
        dot += term(e * get(dp, i, k, 0), k); // rowsum(P dP) in f32
        put(s, i, k, e, 0);
        put(p, i, k, e, bf16); // P is stored in the activations' type, for dv
    }
    const vf d = vset1(lanes_sum(dot));
    for (int64_t i = 0; i < n; i += VW) {
        const int k = NEXT(i, n);
        put(ds, i, k, get(s, i, k, 0) * (get(dp, i, k, 0) - d), bf16); // dS = P (dP - d)
    }
}

INLINE void norm_row(dt_norm_row *r, int bf16) {
    const float inv_n = 1.0f / (float)r->n;
    vf sum = vset1(0.0f), sq = vset1(0.0f);
    for (int64_t i = 0; i < r->n; i += VW) sum += get(r->x, i, NEXT(i, r->n), bf16);
    const float mean = lanes_sum(sum) / (float)r->n; // exact for a constant row, where rstd is large
    for (int64_t i = 0; i < r->n; i += VW) {
        const int k = NEXT(i, r->n);
        const vf d = term(get(r->x, i, k, bf16) - mean, k); // two passes: no cancellation of E[x^2] - mean^2
        sq += d * d;
    }
    const float rstd = 1.0f / sqrtf(lanes_sum(sq) * inv_n + r->eps);
    for (int64_t i = 0; i < r->n; i += VW) {
        const int k = NEXT(i, r->n);
        const vf xhat = (get(r->x, i, k, bf16) - mean) * rstd;
        // (x - mean) * rstd * scale + shift
        put(r->y, i, k, xhat * get(r->scale, i, k, 0) + get(r->shift, i, k, 0), bf16);
    }
    r->mean = mean;
    r->rstd = rstd;
}

// dx = rstd (g - mean(g) - xhat mean(g xhat)) with g = dy scale
INLINE void norm_bwd_row(const dt_norm_row *r, int bf16) {
    const float inv_n = 1.0f / (float)r->n;
    vf s1 = vset1(0.0f), s2 = vset1(0.0f);
    for (int64_t i = 0; i < r->n; i += VW) {
        const int k = NEXT(i, r->n);
        const vf dy = get(r->dy, i, k, bf16);
        const vf xhat = (get(r->x, i, k, bf16) - r->mean) * r->rstd;
        const vf g = dy * get(r->scale, i, k, 0);
        s1 += term(g, k);
        s2 += term(g * xhat, k);
        // the thread's own sums over its rows
        if (r->dscale) put(r->dscale, i, k, get(r->dscale, i, k, 0) + dy * xhat, 0);
        if (r->dshift) put(r->dshift, i, k, get(r->dshift, i, k, 0) + dy, 0);
    }
    if (!r->y) return; // gradients of scale and shift alone
    const vf c1 = vset1(lanes_sum(s1) * inv_n), c2 = vset1(lanes_sum(s2) * inv_n);
    for (int64_t i = 0; i < r->n; i += VW) {
        const int k = NEXT(i, r->n);
        const vf xhat = (get(r->x, i, k, bf16) - r->mean) * r->rstd;
        const vf g = get(r->dy, i, k, bf16) * get(r->scale, i, k, 0);
        put(r->y, i, k, (g - c1 - xhat * c2) * r->rstd, bf16);
    }
}

// ---- tiles of a reorder ----------------------------------------------------------------------------
#if defined(DT_ISA_avx512)
#define LANES(f) f(0), f(1), f(2), f(3), f(4), f(5), f(6), f(7), f(8), f(9), f(10), f(11), f(12), f(13), f(14), f(15)
#elif defined(DT_ISA_neon)
#define LANES(f) f(0), f(1), f(2), f(3)
#else
#define LANES(f) f(0), f(1), f(2), f(3), f(4), f(5), f(6), f(7)
#endif

#define ROUND(r, half)                                                                                                 \
    do {                                                                                                               \
        _Pragma("GCC unroll 16") for (int i = 0; i < VW; i++) {                                                        \
            if (i & (half)) continue;                                                                                  \
            const vf a = (r)[i], b = (r)[i + (half)];                                                                  \
            (r)[i] = __builtin_shufflevector(a, b, LANES(LOW_##half));                                                 \
            (r)[i + (half)] = __builtin_shufflevector(a, b, LANES(HIGH_##half));                                       \
        }                                                                                                              \
    } while (0)
#define LOW_1(j)  ((j)&1 ? VW + (j)-1 : (j))
#define HIGH_1(j) ((j)&1 ? VW + (j) : (j) + 1)
#define LOW_2(j)  ((j)&2 ? VW + (j)-2 : (j))
#define HIGH_2(j) ((j)&2 ? VW + (j) : (j) + 2)
#define LOW_4(j)  ((j)&4 ? VW + (j)-4 : (j))
#define HIGH_4(j) ((j)&4 ? VW + (j) : (j) + 4)
#define LOW_8(j)  ((j)&8 ? VW + (j)-8 : (j))
#define HIGH_8(j) ((j)&8 ? VW + (j) : (j) + 8)

INLINE void transpose(vf *r) {
#ifdef DT_ISA_avx512
    ROUND(r, 8);
#endif
#ifndef DT_ISA_neon
    ROUND(r, 4);
#endif
    ROUND(r, 2);
    ROUND(r, 1);
}

INLINE void planes_to_pixels(const dt_reorder_tile *t, int from, int to) {
    for (int64_t p = 0; p < t->n_pixels; p += VW) {
        const int k = NEXT(p, t->n_pixels);
        vf r[VW];
        for (int c = 0; c < VW; c++) {
            // channels that do not exist are 0
            r[c] = c < t->n_channels ? get(t->src, c * t->src_stride + p, k, from) : vset1(0.0f);
        }
        transpose(r);
        for (int i = 0; i < k; i++) put(t->dst, (p + i) * t->dst_stride, t->n_stored, r[i], to);
    }
}

INLINE void pixels_to_planes(const dt_reorder_tile *t, int from, int to) {
    for (int64_t p = 0; p < t->n_pixels; p += VW) {
        const int k = NEXT(p, t->n_pixels);
        vf r[VW];
        for (int i = 0; i < VW; i++) {
            // pixels behind the tile are 0
            r[i] = i < k ? get(t->src, (p + i) * t->src_stride, t->n_channels, from) : vset1(0.0f);
        }
        transpose(r);
        for (int c = 0; c < t->n_channels; c++) put(t->dst, c * t->dst_stride + p, k, r[c], to);
    }
}

INLINE void pixels_to_pixels(const dt_reorder_tile *t, int from, int to) {
    for (int64_t p = 0; p < t->n_pixels; p++) {
        put(t->dst, p * t->dst_stride, t->n_stored, get(t->src, p * t->src_stride, t->n_channels, from), to);
    }
}

// ---- weights of a matmul -----------------------------------------------------------------------------
static void pack_pairs(uint16_t *to, const float *from, int64_t k, int64_t stride) {
    // two rows of B in one 32-bit lane, the even one below
    for (int64_t i = 0; i < k; i += 2, from += 2 * stride)
        for (int j = 0; j < 64; j += VW, to += 2 * VW) {
            // bf16 in the upper half of each lane
            const vu even = vround_bf16(vld(from + j)), odd = vround_bf16(vld(from + stride + j));
            vst((float *)to, (vf)(even >> 16 | (odd & 0xffff0000u)));
        }
}

// ---- the table -------------------------------------------------------------------------------------
static void softmax_f32(void *y, const void *x, int64_t n) {
    softmax_row(y, x, n, 0);
}
static void softmax_bf16(void *y, const void *x, int64_t n) {
    softmax_row(y, x, n, 1);
}
static void softmax_bwd_f32(void *dx, const void *y, const void *dy, int64_t n) {
    softmax_bwd_row(dx, y, dy, n, 0);
}
static void softmax_bwd_bf16(void *dx, const void *y, const void *dy, int64_t n) {
    softmax_bwd_row(dx, y, dy, n, 1);
}
static float attend_f32(void *p, float *s, int64_t n) {
    return attend_row(p, s, n, 0);
}
static float attend_bf16(void *p, float *s, int64_t n) {
    return attend_row(p, s, n, 1);
}
static void attend_bwd_f32(void *p, void *ds, float *s, const float *dp, float lse, int64_t n) {
    attend_bwd_row(p, ds, s, dp, lse, n, 0);
}
static void attend_bwd_bf16(void *p, void *ds, float *s, const float *dp, float lse, int64_t n) {
    attend_bwd_row(p, ds, s, dp, lse, n, 1);
}
static void norm_f32(dt_norm_row *r) {
    norm_row(r, 0);
}
static void norm_bf16(dt_norm_row *r) {
    norm_row(r, 1);
}
static void norm_bwd_f32(const dt_norm_row *r) {
    norm_bwd_row(r, 0);
}
static void norm_bwd_bf16(const dt_norm_row *r) {
    norm_bwd_row(r, 1);
}

#define TILES(name)                                                                                                    \
    static void name##_ff(const dt_reorder_tile *t) {                                                                  \
        name(t, 0, 0);                                                                                                 \
    }                                                                                                                  \
    static void name##_fb(const dt_reorder_tile *t) {                                                                  \
        name(t, 0, 1);                                                                                                 \
    }                                                                                                                  \
    static void name##_bf(const dt_reorder_tile *t) {                                                                  \
        name(t, 1, 0);                                                                                                 \
    }                                                                                                                  \
    static void name##_bb(const dt_reorder_tile *t) {                                                                  \
        name(t, 1, 1);                                                                                                 \
    }
TILES(planes_to_pixels)
TILES(pixels_to_planes)
TILES(pixels_to_pixels)
#define TILE_TABLE(name)                                                                                               \
    {                                                                                                                  \
        {name##_ff, name##_fb}, {                                                                                      \
            name##_bf, name##_bb                                                                                       \
        }                                                                                                              \
    }

const dt_simd_rows DT_SIMD(dt_simd_rows) = {
    .softmax = {softmax_f32, softmax_bf16},
    .softmax_bwd = {softmax_bwd_f32, softmax_bwd_bf16},
    .attend = {attend_f32, attend_bf16},
    .attend_bwd = {attend_bwd_f32, attend_bwd_bf16},
    .norm = {norm_f32, norm_bf16},
    .norm_bwd = {norm_bwd_f32, norm_bwd_bf16},
    .planes_to_pixels = TILE_TABLE(planes_to_pixels),
    .pixels_to_planes = TILE_TABLE(pixels_to_planes),
    .pixels_to_pixels = TILE_TABLE(pixels_to_pixels),
    .pack_pairs = pack_pairs,
};
