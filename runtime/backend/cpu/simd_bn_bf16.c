// simd_bn_bf16.c: batch norm over one channel block of bf16; simd_bn.c has the f32 kernels and says
// what they do.
//
// In bf16 these loops are bound by instructions, not by memory, until a tensor is far larger than the caches:
// there are half the bytes, but each value is widened and narrowed. So two pixels are processed at a time
// (simd_pair.h), and 16-bit values decide what they can: ReLU's mask, the winner of a pool, the gradient that is
// kept. The pool looks for the largest x (the smallest if the gain is negative) and normalizes only that one.
// Batch norm is monotone, so it gives the largest y. If the gain is zero all four y are equal, and the gradient
// of the largest x is zero anyway.
#include "backend/cpu/simd.h"
#include "backend/cpu/simd_pair.h"

enum { FLUSH_PIXELS = 256 }; // f32 partial sums are moved to doubles after this many pixels

typedef struct sums2 {
    vd a, b;
} sums2;

INLINE void sums_flush(sums2 *total, pair a, pair b) {
    total->a += vf_to_d(pair_fold(a));
    total->b += vf_to_d(pair_fold(b));
}
INLINE void sums_store(double *out, const sums2 *s) {
    vdst(out, s->a);
    vdst(out + VW, s->b);
}

// ---- statistics ------------------------------------------------------------------------------------
static void stats(const void *x, int64_t n_pixels, const float *pivot, double *sums) {
    const pair k = pair_constants(pivot);
    sums2 total = {{0}, {0}};
    for (int64_t p = 0; p < n_pixels;) {
        int64_t end = p + FLUSH_PIXELS < n_pixels ? p + FLUSH_PIXELS : n_pixels;
        pair s[2] = {{{0}, {0}}, {{0}, {0}}}, q[2] = {{{0}, {0}}, {{0}, {0}}};
        for (; p + 4 <= end; p += 4)
            for (int i = 0; i < 2; i++) {
                pair d = pair_sub(pair_widen(vs_load(x, (p + 2 * i) * VW, 0)), k);
                s[i] = pair_add(s[i], d), q[i] = pair_mul_add(d, d, q[i]);
            }
        for (; p < end; p++) {
            pair d = pair_first(pair_sub(pair_widen(vs_load(x, p * VW, 1)), k));
            s[0] = pair_add(s[0], d), q[0] = pair_mul_add(d, d, q[0]);
        }
        sums_flush(&total, pair_add(s[0], s[1]), pair_add(q[0], q[1]));
    }
    sums_store(sums, &total);
}

// ---- forward ---------------------------------------------------------------------------------------
typedef struct forward_consts {
    pair mean, gain, shift;
    vf floor;
} forward_consts;

INLINE pair normalise(const forward_consts *k, vs x) {
    return pair_mul_add(pair_sub(pair_widen(x), k->mean), k->gain, k->shift);
}

INLINE void forward_pixels(const dt_bn_piece *p, const forward_consts *k, int64_t i, int residual,
                           int one) {
    pair v = normalise(k, vs_load(p->x, i, one));
    if (residual) v = pair_add(v, pair_widen(vs_load(p->residual, i, one)));
    vs_store(p->y, i, pair_narrow(pair_floor(v, k->floor)), one);
}

INLINE void forward_plain(const dt_bn_piece *p, const forward_consts *k, int residual) {
    int64_t n = p->n_rows * p->width * VW, i = 0;
    for (; i + 2 * VW <= n; i += 2 * VW) forward_pixels(p, k, i, residual, 0);
    if (i < n) forward_pixels(p, k, i, residual, 1);
}

// bf16 as integers of the same order, and back; the bits of `flip` turn the order round.
INLINE vs ordered(vs x, vs flip) {
    x ^= flip;
    return x ^ ((x >> 15) & 0x7fff);
}
INLINE vs from_ordered(vs s, vs flip) {
    return s ^ ((s >> 15) & 0x7fff) ^ flip;
}

// Two windows (one: one) whose upper left pixels are at `in` and in + 2 VW.
INLINE void forward_windows(const dt_bn_piece *p, const forward_consts *k, vs flip, int64_t in,
                            int64_t line, int64_t out, int one) {
    vs a = ordered(vs_join(p->x, in, in + 2 * VW, one), flip);
    vs b = ordered(vs_join(p->x, in + VW, in + 3 * VW, one), flip);
    vs c = ordered(vs_join(p->x, in + line, in + line + 2 * VW, one), flip);
    vs d = ordered(vs_join(p->x, in + line + VW, in + line + 3 * VW, one), flip);
    vs ab = vs_max(a, b), cd = vs_max(c, d);
    vsm b_wins = vsm_gt(b, a), d_wins = vsm_gt(d, c), cd_wins = vsm_gt(cd, ab);
    vs best = from_ordered(vs_max(ab, cd), flip);
    vs y = pair_narrow(pair_floor(normalise(k, best), k->floor));
    vs_store(p->y, out, y, one);
    if (!p->argmax) return;
    vs index = vs_sel(cd_wins, vs_sel(d_wins, vs_set1(3), vs_set1(2)), vs_keep(b_wins, vs_set1(1)));
    // without ReLU such a value still owns its gradient
    if (p->relu) index = vs_sel(vsm_eq(y & vs_set1(0x7fff), vs_set1(0)), vs_set1(255), index);
    vs_store_u8(p->argmax + out, index, one);
}

static void forward_pool(const dt_bn_piece *p, const forward_consts *k) {
    int64_t out_w = p->width / 2, line = p->width * VW;
    uint16_t signs[2 * VW];
    for (int i = 0; i < 2 * VW; i++) signs[i] = p->gain[i % VW] < 0 ? 0x8000 : 0;
    vs flip = vs_load(signs, 0, 0);
    for (int64_t row = 0; row < p->n_rows / 2; row++) {
        int64_t in = 2 * row * line, out = row * out_w * VW, end = out + out_w * VW;
        for (; out + 2 * VW <= end; in += 4 * VW, out += 2 * VW)
            forward_windows(p, k, flip, in, line, out, 0);
        if (out < end) forward_windows(p, k, flip, in, line, out, 1);
    }
}

static void forward(const dt_bn_piece *p) {
    const forward_consts k = {pair_constants(p->mean), pair_constants(p->gain),
                              pair_constants(p->shift), vset1(p->relu ? 0.0f : -__builtin_inff())};
    if (p->pool)
        forward_pool(p, &k);
    else if (p->residual)
        forward_plain(p, &k, 1);
    else
        forward_plain(p, &k, 0);
}

// ---- backward, first pass: sum(g) and sum(g (x - mean)) --------------------------------------------
INLINE vs kept_gradient(const dt_bn_piece *p, int64_t i, int relu, int one) {
    vs g = vs_load(p->dy, i, one);
    return relu ? vs_keep(vsm_gt(vs_load(p->y, i, one), vs_set1(0)), g) : g;
}

INLINE void sums_plain(const dt_bn_piece *p, int relu) {
    const pair mean = pair_constants(p->mean);
    sums2 total = {{0}, {0}};
    int64_t n = p->n_rows * p->width;
    for (int64_t i = 0; i < n;) {
        int64_t end = i + FLUSH_PIXELS < n ? i + FLUSH_PIXELS : n;
        pair s = {{0}, {0}}, q = {{0}, {0}};
        for (; i + 2 <= end; i += 2) {
            pair g = pair_widen(kept_gradient(p, i * VW, relu, 0));
            s = pair_add(s, g);
            q = pair_mul_add(g, pair_sub(pair_widen(vs_load(p->x, i * VW, 0)), mean), q);
        }
        if (i < end) { // the piece's last pixel: FLUSH_PIXELS is even
            pair g = pair_widen(kept_gradient(p, i * VW, relu, 1));
            s = pair_add(s, g);
            q = pair_mul_add(g, pair_sub(pair_widen(vs_load(p->x, i * VW, 1)), mean), q);
            i++;
        }
        sums_flush(&total, s, q);
    }
    sums_store(p->sums, &total);
}

INLINE void sums_windows(const dt_bn_piece *p, pair mean, int64_t in, int64_t line, int64_t out,
                         int one, pair *s, pair *q) {
    vs index = vs_load_u8(p->argmax + out, one), x = vs_join(p->x, in, in + 2 * VW, one);
    x = vs_sel(vsm_eq(index, vs_set1(1)), vs_join(p->x, in + VW, in + 3 * VW, one), x);
    x = vs_sel(vsm_eq(index, vs_set1(2)), vs_join(p->x, in + line, in + line + 2 * VW, one), x);
    x = vs_sel(vsm_eq(index, vs_set1(3)), vs_join(p->x, in + line + VW, in + line + 3 * VW, one),
               x);
    pair g = pair_widen(vs_drop(vsm_eq(index, vs_set1(255)), vs_load(p->dy, out, one)));
    *s = pair_add(*s, g);
    *q = pair_mul_add(g, pair_sub(pair_widen(x), mean), *q);
}

static void sums_pool(const dt_bn_piece *p) {
    const pair mean = pair_constants(p->mean);
    sums2 total = {{0}, {0}};
    int64_t out_w = p->width / 2, line = p->width * VW;
    for (int64_t row = 0; row < p->n_rows / 2; row++)
        for (int64_t col = 0; col < out_w;) {
            int64_t end = col + FLUSH_PIXELS < out_w ? col + FLUSH_PIXELS : out_w;
            int64_t in = 2 * (row * line + col * VW), out = (row * out_w + col) * VW;
            pair s = {{0}, {0}}, q = {{0}, {0}};
            for (; col + 2 <= end; col += 2, in += 4 * VW, out += 2 * VW)
                sums_windows(p, mean, in, line, out, 0, &s, &q);
            if (col < end) sums_windows(p, mean, in, line, out, 1, &s, &q), col++;
            sums_flush(&total, s, q);
        }
    sums_store(p->sums, &total);
}

static void backward_sums(const dt_bn_piece *p) {
    if (p->pool)
        sums_pool(p);
    else if (p->relu)
        sums_plain(p, 1);
    else
        sums_plain(p, 0);
}

// ---- backward, second pass: dx (which may be x's memory; NULL: nobody wants it) ---------------------
typedef struct backward_consts {
    pair mean, gain, k1, k2;
} backward_consts;

INLINE void put(const dt_bn_piece *p, const backward_consts *k, int64_t i, vs g, int one) {
    pair d = pair_sub(pair_widen(vs_load(p->x, i, one)), k->mean);
    pair t = pair_mul_add(d, k->k2, k->k1);
    vs_store(p->dx, i, pair_narrow(pair_mul_sub(pair_widen(g), k->gain, t)), one);
}

INLINE void backward_plain(const dt_bn_piece *p, const backward_consts *k, int relu, int dresidual,
                           int dx) {
    int64_t n = p->n_rows * p->width * VW, i = 0;
    for (; i + 2 * VW <= n; i += 2 * VW) {
        vs g = kept_gradient(p, i, relu, 0);
        if (dresidual) vs_store(p->dresidual, i, g, 0);
        if (dx) put(p, k, i, g, 0);
    }
    if (i < n) {
        vs g = kept_gradient(p, i, relu, 1);
        if (dresidual) vs_store(p->dresidual, i, g, 1);
        if (dx) put(p, k, i, g, 1);
    }
}

static void backward_pool(const dt_bn_piece *p, const backward_consts *k) {
    int64_t out_w = p->width / 2, line = p->width * VW;
    vs zero = vs_set1(0), column;
    for (int i = 0; i < 2 * VW; i++) column[i] = i / VW;
    for (int64_t row = 0; row < p->n_rows / 2; row++) {
        int64_t in = 2 * row * line, out = row * out_w * VW;
        for (int64_t col = 0; col < out_w; col++, in += 2 * VW, out += VW) {
            vs index = vs_double_u8(p->argmax + out), g = vs_join(p->dy, out, out, 0);
            put(p, k, in, vs_keep(vsm_eq(index, column), g), 0);
            put(p, k, in + line, vs_keep(vsm_eq(index, column + 2), g), 0);
        }
        if (p->width % 2) { // the odd column takes part in the statistics only
            put(p, k, in, zero, 1);
            put(p, k, in + line, zero, 1);
        }
    }
    if (p->n_rows % 2) {
        int64_t i = (p->n_rows - 1) * line, end = p->n_rows * line;
        for (; i + 2 * VW <= end; i += 2 * VW) put(p, k, i, zero, 0);
        if (i < end) put(p, k, i, zero, 1);
    }
}

static void backward(const dt_bn_piece *p) {
    if (!p->dx && !p->dresidual) return;
    const backward_consts k = {pair_constants(p->mean), pair_constants(p->gain),
                               pair_constants(p->k1), pair_constants(p->k2)};
    if (p->pool)
        backward_pool(p, &k);
    else if (!p->dx)
        backward_plain(p, &k, p->relu, 1, 0);
    else if (p->relu) {
        if (p->dresidual)
            backward_plain(p, &k, 1, 1, 1);
        else
            backward_plain(p, &k, 1, 0, 1);
    } else {
        if (p->dresidual)
            backward_plain(p, &k, 0, 1, 1);
        else
            backward_plain(p, &k, 0, 0, 1);
    }
}

const dt_simd_bn DT_SIMD(dt_simd_bn_bf16) = {stats, forward, backward_sums, backward};
