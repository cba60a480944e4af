// simd_bn_bf16.c: batch norm over one channel block of bf16, BLOCKED or NHWC; simd_bn.c has the f32 kernels and
// says what they do.
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

// A register holds two pixels of a BLOCKED tensor, or one pixel of an NHWC tensor. `wide` (a literal): the tensor is
// NHWC. `one` (a literal): only the first of the two pixels exists.
typedef struct layout {
    int64_t pixel; // elements between pixels
    int64_t line;  // and between rows
} layout;

INLINE layout layout_of(const dt_bn_chunk *p) {
    const int64_t pixel = p->nhwc ? p->nhwc : VW; // 0: BLOCKED
    return (layout){pixel, p->width * pixel};
}
INLINE pair constants(const float *c, int wide) {
    return wide ? pair_constants_wide(c) : pair_constants(c);
}

typedef struct sums2 {
    vd a[2], b[2]; // the second of each: of the upper channels, if wide
} sums2;

INLINE void flush_into(vd *total, pair p, int wide) {
    if (wide) {
        total[0] += vf_to_d(PAIR_ZIP(p.even, p.odd)); // back to the order of channels
        total[1] += vf_to_d(PAIR_ZIP_HIGH(p.even, p.odd));
    } else {
        total[0] += vf_to_d(pair_fold(p)); // both halves are the same channels: pixels added
    }
}
INLINE void sums_flush(sums2 *total, pair a, pair b, int wide) {
    flush_into(total->a, a, wide);
    flush_into(total->b, b, wide);
}
INLINE void sums_store(double *out, const sums2 *s, int wide) {
    for (int i = 0; i <= wide; i++) {
        vdst(out + i * VW, s->a[i]);
        vdst(out + (wide + 1 + i) * VW, s->b[i]); // second sums behind the first, of all channels
    }
}

// ---- statistics ------------------------------------------------------------------------------------
INLINE void stats_of(const void *x, int64_t n_pixels, int64_t pixel, const float *pivot, double *sums, int wide) {
    const pair k = constants(pivot, wide);
    // literal arguments make two functions of each loop
    const int each = wide ? 1 : 2; // pixels of a unit
    sums2 total = {0};
    for (int64_t p = 0; p < n_pixels;) {
        int64_t end = p + FLUSH_PIXELS < n_pixels ? p + FLUSH_PIXELS : n_pixels;
        pair s[2] = {{{0}, {0}}, {{0}, {0}}}, q[2] = {{{0}, {0}}, {{0}, {0}}};
        for (; p + 2 * each <= end; p += 2 * each)
            for (int i = 0; i < 2; i++) {
                pair d = pair_sub(pair_widen(vs_load(x, (p + each * i) * pixel, 0)), k);
                s[i] = pair_add(s[i], d), q[i] = pair_mul_add(d, d, q[i]);
            }
        for (; p < end; p++) { // the last, odd pixels
            pair d = wide ? pair_sub(pair_widen(vs_load(x, p * pixel, 0)), k)
                          // the register's second pixel does not exist
                          : pair_first(pair_sub(pair_widen(vs_load(x, p * pixel, 1)), k));
            s[0] = pair_add(s[0], d), q[0] = pair_mul_add(d, d, q[0]);
        }
        sums_flush(&total, pair_add(s[0], s[1]), pair_add(q[0], q[1]), wide);
    }
    sums_store(sums, &total, wide);
}

static void stats(const void *x, int64_t n_pixels, int64_t nhwc, const float *pivot, double *sums) {
    if (nhwc)
        stats_of(x, n_pixels, nhwc, pivot, sums, 1);
    else
        stats_of(x, n_pixels, VW, pivot, sums, 0);
}

// ---- forward ---------------------------------------------------------------------------------------
typedef struct forward_consts {
    pair mean, gain, shift;
    vf floor;
} forward_consts;

INLINE pair normalise(const forward_consts *k, vs x) {
    return pair_mul_add(pair_sub(pair_widen(x), k->mean), k->gain, k->shift);
}

INLINE void forward_pixels(const dt_bn_chunk *p, const forward_consts *k, int64_t i, int residual, int one) {
    pair v = normalise(k, vs_load(p->x, i, one));
    if (residual) v = pair_add(v, pair_widen(vs_load(p->residual, i, one)));
    vs_store(p->y, i, pair_narrow(pair_floor(v, k->floor)), one);
}

// step: elements of a unit
INLINE void forward_plain(const dt_bn_chunk *p, const forward_consts *k, int residual, int wide) {
    const int64_t step = wide ? p->nhwc : 2 * VW;
    int64_t n = p->n_rows * layout_of(p).line, i = 0;
    for (; i + step <= n; i += step) forward_pixels(p, k, i, residual, 0);
    if (i < n) forward_pixels(p, k, i, residual, 1); // an odd number of pixels
}

// bf16 as integers of the same order, and back; the bits of `flip` turn the order round.
INLINE vs ordered(vs x, vs flip) {
    x ^= flip;
    // negative: the magnitude's bits are inverted, so that integers compare as the values do
    return x ^ ((x >> 15) & 0x7fff);
}
INLINE vs from_ordered(vs s, vs flip) {
    return s ^ ((s >> 15) & 0x7fff) ^ flip;
}

// One corner of a unit's windows: of two neighbouring ones, or (wide) of one.
INLINE vs corner(const void *x, int64_t at, int wide, int one) {
    // corners of windows side by side are two pixels apart
    return wide ? vs_load(x, at, 0) : vs_join(x, at, at + 2 * VW, one);
}

// A unit of windows, the first of which has its upper left pixel at `in`.
INLINE void forward_windows(const dt_bn_chunk *p, const forward_consts *k, vs flip, int64_t in, int64_t out, int wide,
                            int one) {
    const layout l = layout_of(p);
    vs a = ordered(corner(p->x, in, wide, one), flip);
    vs b = ordered(corner(p->x, in + l.pixel, wide, one), flip);
    vs c = ordered(corner(p->x, in + l.line, wide, one), flip);
    vs d = ordered(corner(p->x, in + l.line + l.pixel, wide, one), flip);
    vs ab = vs_max(a, b), cd = vs_max(c, d);
    vsm b_wins = vsm_gt(b, a), d_wins = vsm_gt(d, c), cd_wins = vsm_gt(cd, ab);
    vs best = from_ordered(vs_max(ab, cd), flip);
    vs y = pair_narrow(pair_floor(normalise(k, best), k->floor)); // only the winner is normalized
    vs_store(p->y, out, y, one);
    if (!p->argmax) return;
    vs index = vs_sel(cd_wins, vs_sel(d_wins, vs_set1(3), vs_set1(2)), vs_keep(b_wins, vs_set1(1)));
    index = vs_sel(vsm_eq(y & vs_set1(0x7fff), vs_set1(0)), vs_set1(255), index); // y is 0 or -0: clipped
    vs_store_u8(p->argmax + out, index, one);
}

INLINE void forward_pool(const dt_bn_chunk *p, const forward_consts *k, int wide) {
    const layout l = layout_of(p);
    const int64_t step = wide ? l.pixel : 2 * VW, row_out = p->width / 2 * l.pixel;
    uint16_t signs[2 * VW];
    // a negative gain turns the order round
    for (int i = 0; i < 2 * VW; i++) signs[i] = p->gain[wide ? i : i % VW] < 0 ? 0x8000 : 0;
    vs flip = vs_load(signs, 0, 0);
    for (int64_t row = 0; row < p->n_rows / 2; row++) {
        int64_t in = 2 * row * l.line, out = row * row_out, end = out + row_out;
        for (; out + step <= end; in += 2 * step, out += step) forward_windows(p, k, flip, in, out, wide, 0);
        if (out < end) forward_windows(p, k, flip, in, out, wide, 1);
    }
}

INLINE void forward_of(const dt_bn_chunk *p, int wide) {
    const forward_consts k = {constants(p->mean, wide), constants(p->gain, wide), constants(p->shift, wide),
                              vset1(p->relu ? 0.0f : -__builtin_inff())};
    if (p->pool)
        forward_pool(p, &k, wide);
    else if (p->residual)
        forward_plain(p, &k, 1, wide);
    else
        forward_plain(p, &k, 0, wide);
}

static void forward(const dt_bn_chunk *p) {
    if (p->nhwc)
        forward_of(p, 1);
    else
        forward_of(p, 0);
}

// ---- backward, first pass: sum(g) and sum(g (x - mean)) --------------------------------------------
INLINE vs kept_gradient(const dt_bn_chunk *p, int64_t i, int relu, int one) {
    vs g = vs_load(p->dy, i, one);
    return relu ? vs_keep(vsm_gt(vs_load(p->y, i, one), vs_set1(0)), g) : g; // ReLU's mask from 16-bit values
}

INLINE void add_pixels(const dt_bn_chunk *p, pair mean, int64_t i, int relu, int one, pair *s, pair *q) {
    pair g = pair_widen(kept_gradient(p, i, relu, one));
    *s = pair_add(*s, g);
    *q = pair_mul_add(g, pair_sub(pair_widen(vs_load(p->x, i, one)), mean), *q);
}

INLINE void sums_plain(const dt_bn_chunk *p, int relu, int wide) {
    const pair mean = constants(p->mean, wide);
    const int each = wide ? 1 : 2;
    const int64_t pixel = layout_of(p).pixel, n = p->n_rows * p->width;
    sums2 total = {0};
    for (int64_t i = 0; i < n;) {
        int64_t end = i + FLUSH_PIXELS < n ? i + FLUSH_PIXELS : n;
        pair s = {{0}, {0}}, q = {{0}, {0}};
        for (; i + each <= end; i += each) add_pixels(p, mean, i * pixel, relu, 0, &s, &q);
        if (i < end) { // the chunk's last pixel: FLUSH_PIXELS is even
            add_pixels(p, mean, i * pixel, relu, 1, &s, &q);
            i++;
        }
        sums_flush(&total, s, q, wide);
    }
    sums_store(p->sums, &total, wide);
}

INLINE void sums_windows(const dt_bn_chunk *p, pair mean, int64_t in, int64_t out, int wide, int one, pair *s,
                         pair *q) {
    const layout l = layout_of(p);
    vs index = vs_load_u8(p->argmax + out, one), x = corner(p->x, in, wide, one);
    x = vs_sel(vsm_eq(index, vs_set1(1)), corner(p->x, in + l.pixel, wide, one), x);
    x = vs_sel(vsm_eq(index, vs_set1(2)), corner(p->x, in + l.line, wide, one), x);
    x = vs_sel(vsm_eq(index, vs_set1(3)), corner(p->x, in + l.line + l.pixel, wide, one), x);
    pair g = pair_widen(vs_drop(vsm_eq(index, vs_set1(255)), vs_load(p->dy, out, one))); // 255: the gradient is dropped
    *s = pair_add(*s, g);
    *q = pair_mul_add(g, pair_sub(pair_widen(x), mean), *q);
}

INLINE void sums_pool(const dt_bn_chunk *p, int wide) {
    const pair mean = constants(p->mean, wide);
    const layout l = layout_of(p);
    const int each = wide ? 1 : 2;
    sums2 total = {0};
    int64_t out_w = p->width / 2;
    for (int64_t row = 0; row < p->n_rows / 2; row++)
        for (int64_t col = 0; col < out_w;) {
            int64_t end = col + FLUSH_PIXELS < out_w ? col + FLUSH_PIXELS : out_w;
            int64_t in = 2 * (row * l.line + col * l.pixel), out = (row * out_w + col) * l.pixel;
            pair s = {{0}, {0}}, q = {{0}, {0}};
            for (; col + each <= end; col += each) {
                sums_windows(p, mean, in, out, wide, 0, &s, &q);
                in += 2 * each * l.pixel, out += each * l.pixel;
            }
            if (col < end) sums_windows(p, mean, in, out, wide, 1, &s, &q), col++;
            sums_flush(&total, s, q, wide);
        }
    sums_store(p->sums, &total, wide);
}

INLINE void backward_sums_of(const dt_bn_chunk *p, int wide) {
    if (p->pool)
        sums_pool(p, wide);
    else if (p->relu)
        sums_plain(p, 1, wide);
    else
        sums_plain(p, 0, wide);
}

static void backward_sums(const dt_bn_chunk *p) {
    if (p->nhwc)
        backward_sums_of(p, 1);
    else
        backward_sums_of(p, 0);
}

// ---- backward, second pass: dx (which may be x's memory; NULL: nobody wants it) ---------------------
typedef struct backward_consts {
    pair mean, gain, k1, k2;
} backward_consts;

INLINE void put(const dt_bn_chunk *p, const backward_consts *k, int64_t i, vs g, int one) {
    pair d = pair_sub(pair_widen(vs_load(p->x, i, one)), k->mean); // x - mean
    pair t = pair_mul_add(d, k->k2, k->k1);
    vs_store(p->dx, i, pair_narrow(pair_mul_sub(pair_widen(g), k->gain, t)), one);
}

INLINE void backward_pixels(const dt_bn_chunk *p, const backward_consts *k, int64_t i, int relu, int dresidual, int dx,
                            int one) {
    vs g = kept_gradient(p, i, relu, one);
    if (dresidual) vs_store(p->dresidual, i, g, one);
    if (dx) put(p, k, i, g, one);
}

INLINE void backward_plain(const dt_bn_chunk *p, const backward_consts *k, int relu, int dresidual, int dx, int wide) {
    const int64_t step = wide ? p->nhwc : 2 * VW;
    int64_t n = p->n_rows * layout_of(p).line, i = 0;
    for (; i + step <= n; i += step) backward_pixels(p, k, i, relu, dresidual, dx, 0);
    if (i < n) backward_pixels(p, k, i, relu, dresidual, dx, 1);
}

// The gradient of the windows whose gradient is at `out`, two pixels of a row of each at a time.
INLINE void put_window(const dt_bn_chunk *p, const backward_consts *k, int64_t in, int64_t out, int wide) {
    const layout l = layout_of(p);
    if (wide) {
        vs index = vs_load_u8(p->argmax + out, 0), g = vs_load(p->dy, out, 0);
        put(p, k, in, vs_keep(vsm_eq(index, vs_set1(0)), g), 0);
        put(p, k, in + l.pixel, vs_keep(vsm_eq(index, vs_set1(1)), g), 0);
        put(p, k, in + l.line, vs_keep(vsm_eq(index, vs_set1(2)), g), 0);
        put(p, k, in + l.line + l.pixel, vs_keep(vsm_eq(index, vs_set1(3)), g), 0);
        return;
    }
    vs column;
    // corner index of each lane: 0 for the left pixel, 1 for the right
    for (int i = 0; i < 2 * VW; i++) column[i] = i / VW;
    // index and gradient twice: for both pixels of a row
    vs index = vs_double_u8(p->argmax + out), g = vs_join(p->dy, out, out, 0);
    put(p, k, in, vs_keep(vsm_eq(index, column), g), 0);
    put(p, k, in + l.line, vs_keep(vsm_eq(index, column + 2), g), 0); // lower row: corners 2 and 3
}

// Pixels from i on that no window has: they take part in the statistics only.
INLINE void put_rest(const dt_bn_chunk *p, const backward_consts *k, int64_t i, int64_t n_pixels, int wide) {
    const int64_t pixel = layout_of(p).pixel;
    // !wide: one pixel in a register
    for (int64_t c = 0; c < n_pixels; c++) put(p, k, i + c * pixel, vs_set1(0), !wide);
}

INLINE void backward_pool(const dt_bn_chunk *p, const backward_consts *k, int wide) {
    const layout l = layout_of(p);
    const int64_t out_w = p->width / 2;
    for (int64_t row = 0; row < p->n_rows / 2; row++) {
        int64_t in = 2 * row * l.line, out = row * out_w * l.pixel;
        for (int64_t col = 0; col < out_w; col++, in += 2 * l.pixel, out += l.pixel) put_window(p, k, in, out, wide);
        if (p->width % 2) {
            put_rest(p, k, in, 1, wide);
            put_rest(p, k, in + l.line, 1, wide);
        }
    }
    if (p->n_rows % 2) put_rest(p, k, (p->n_rows - 1) * l.line, p->width, wide);
}

INLINE void backward_of(const dt_bn_chunk *p, int wide) {
    const backward_consts k = {constants(p->mean, wide), constants(p->gain, wide), constants(p->k1, wide),
                               constants(p->k2, wide)};
    if (p->pool)
        backward_pool(p, &k, wide);
    else if (!p->dx)
        backward_plain(p, &k, p->relu, 1, 0, wide);
    else if (p->relu) {
        if (p->dresidual)
            backward_plain(p, &k, 1, 1, 1, wide);
        else
            backward_plain(p, &k, 1, 0, 1, wide);
    } else {
        if (p->dresidual)
            backward_plain(p, &k, 0, 1, 1, wide);
        else
            backward_plain(p, &k, 0, 0, 1, wide);
    }
}

static void backward(const dt_bn_chunk *p) {
    if (!p->dx && !p->dresidual) return;
    if (p->nhwc)
        backward_of(p, 1);
    else
        backward_of(p, 0);
}

const dt_simd_bn DT_SIMD(dt_simd_bn_bf16) = {stats, forward, backward_sums, backward};
