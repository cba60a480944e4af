// simd_bn.c: batch norm over one channel block (see simd.h: dt_bn_piece, and batch_norm_cpu.c for the
// passes). A pixel is one vector. These loops are bound by memory: each reads every tensor once, in
// order, and writes full vectors; the fused 2x2 pooling keeps the unpooled y and its gradient in
// registers. (x - mean) is formed before it is scaled: folding the mean into the shift would cancel
// when the mean is large beside the deviation.
#include "backend/cpu/simd.h"
#include "backend/cpu/simd_vec.h"

enum { FLUSH_PIXELS = 256 }; // f32 partial sums are moved to doubles after this many pixels

typedef struct sums2 {
    vd a, b;
} sums2;

INLINE void sums_store(double *out, const sums2 *s) {
    vdst(out, s->a);
    vdst(out + VW, s->b);
}

// ---- statistics ------------------------------------------------------------------------------------
INLINE void stats(const void *x, int64_t n_pixels, const float *pivot, double *sums, int bf16) {
    vf k = vld(pivot);
    sums2 total = {{0}, {0}};
    for (int64_t p = 0; p < n_pixels;) {
        int64_t end = p + FLUSH_PIXELS < n_pixels ? p + FLUSH_PIXELS : n_pixels;
        vf s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0}, q0 = {0}, q1 = {0}, q2 = {0}, q3 = {0};
        for (; p + 4 <= end; p += 4) {
            vf d0 = vload(x, p * VW, bf16) - k, d1 = vload(x, (p + 1) * VW, bf16) - k;
            vf d2 = vload(x, (p + 2) * VW, bf16) - k, d3 = vload(x, (p + 3) * VW, bf16) - k;
            s0 += d0, s1 += d1, s2 += d2, s3 += d3;
            q0 += d0 * d0, q1 += d1 * d1, q2 += d2 * d2, q3 += d3 * d3;
        }
        for (; p < end; p++) {
            vf d = vload(x, p * VW, bf16) - k;
            s0 += d, q0 += d * d;
        }
        total.a += vf_to_d((s0 + s1) + (s2 + s3));
        total.b += vf_to_d((q0 + q1) + (q2 + q3));
    }
    sums_store(sums, &total);
}

// ---- forward ---------------------------------------------------------------------------------------
INLINE void forward_plain(const dt_bn_piece *p, int bf16, int residual) {
    vf mean = vld(p->mean), gain = vld(p->gain), shift = vld(p->shift);
    vf floor = vset1(p->relu ? 0.0f : -__builtin_inff());
    const void *x = p->x, *r = p->residual;
    void *y = p->y;
    int64_t n = p->n_rows * p->width * VW;
    for (int64_t i = 0; i < n; i += VW) {
        vf v = (vload(x, i, bf16) - mean) * gain + shift;
        if (residual) v += vload(r, i, bf16);
        vstore(y, i, vfloor(v, floor), bf16);
    }
}

INLINE void forward_pool(const dt_bn_piece *p, int bf16, int residual) {
    vf mean = vld(p->mean), gain = vld(p->gain), shift = vld(p->shift);
    vf floor = vset1(p->relu ? 0.0f : -__builtin_inff());
    int64_t out_w = p->width / 2, line = p->width * VW;
    for (int64_t row = 0; row < p->n_rows / 2; row++) {
        int64_t in = 2 * row * line, out = row * out_w * VW;
        for (int64_t col = 0; col < out_w; col++, in += 2 * VW, out += VW) {
            const int64_t at[4] = {in, in + VW, in + line, in + line + VW};
            vf best;
            vi index = vseti(0);
            for (int k = 0; k < 4; k++) {
                vf v = (vload(p->x, at[k], bf16) - mean) * gain + shift;
                if (residual) v += vload(p->residual, at[k], bf16);
                if (k == 0)
                    best = v;
                else {
                    vm more = vm_gt(v, best);
                    best = vsel(more, v, best);
                    index = vseli(more, vseti(k), index);
                }
            }
            vm clipped = vm_le(best, floor);
            vstore(p->y, out, vsel(clipped, floor, best), bf16);
            if (p->argmax) {
                // without ReLU the floor is -inf: such a value still owns its gradient
                if (p->relu) index = vseli(clipped, vseti(255), index);
                vst_u8(p->argmax + out, index);
            }
        }
    }
}

INLINE void forward(const dt_bn_piece *p, int bf16) {
    if (p->pool) {
        if (p->residual)
            forward_pool(p, bf16, 1);
        else
            forward_pool(p, bf16, 0);
    } else if (p->residual)
        forward_plain(p, bf16, 1);
    else
        forward_plain(p, bf16, 0);
}

// ---- backward, first pass: sum(g) and sum(g (x - mean)) --------------------------------------------
INLINE void sums_plain(const dt_bn_piece *p, int bf16, int relu) {
    vf mean = vld(p->mean);
    sums2 total = {{0}, {0}};
    int64_t n = p->n_rows * p->width;
    for (int64_t i = 0; i < n;) {
        int64_t end = i + FLUSH_PIXELS < n ? i + FLUSH_PIXELS : n;
        vf s[2] = {{0}, {0}}, q[2] = {{0}, {0}};
        for (; i + 2 <= end; i += 2)
            for (int k = 0; k < 2; k++) {
                int64_t at = (i + k) * VW;
                vf g = vload(p->dy, at, bf16);
                if (relu) g = vkeep(vm_gt(vload(p->y, at, bf16), vset1(0)), g);
                s[k] += g, q[k] += g * (vload(p->x, at, bf16) - mean);
            }
        for (; i < end; i++) {
            vf g = vload(p->dy, i * VW, bf16);
            if (relu) g = vkeep(vm_gt(vload(p->y, i * VW, bf16), vset1(0)), g);
            s[0] += g, q[0] += g * (vload(p->x, i * VW, bf16) - mean);
        }
        total.a += vf_to_d(s[0] + s[1]);
        total.b += vf_to_d(q[0] + q[1]);
    }
    sums_store(p->sums, &total);
}

INLINE void sums_pool(const dt_bn_piece *p, int bf16) {
    vf mean = vld(p->mean);
    sums2 total = {{0}, {0}};
    int64_t out_w = p->width / 2, line = p->width * VW;
    for (int64_t row = 0; row < p->n_rows / 2; row++)
        for (int64_t col = 0; col < out_w;) {
            int64_t end = col + FLUSH_PIXELS < out_w ? col + FLUSH_PIXELS : out_w;
            vf s = {0}, q = {0};
            for (; col < end; col++) {
                int64_t in = 2 * row * line + 2 * col * VW, out = (row * out_w + col) * VW;
                vi index = vld_u8(p->argmax + out);
                vf g = vload(p->dy, out, bf16), x = vload(p->x, in, bf16);
                g = vsel(vm_eqi(index, vseti(255)), vset1(0), g);
                x = vsel(vm_eqi(index, vseti(1)), vload(p->x, in + VW, bf16), x);
                x = vsel(vm_eqi(index, vseti(2)), vload(p->x, in + line, bf16), x);
                x = vsel(vm_eqi(index, vseti(3)), vload(p->x, in + line + VW, bf16), x);
                s += g, q += g * (x - mean);
            }
            total.a += vf_to_d(s);
            total.b += vf_to_d(q);
        }
    sums_store(p->sums, &total);
}

INLINE void backward_sums(const dt_bn_piece *p, int bf16) {
    if (p->pool)
        sums_pool(p, bf16);
    else if (p->relu)
        sums_plain(p, bf16, 1);
    else
        sums_plain(p, bf16, 0);
}

// ---- backward, second pass: dx (which may be x's memory) -------------------------------------------
INLINE void backward_plain(const dt_bn_piece *p, int bf16, int relu, int dresidual) {
    vf mean = vld(p->mean), gain = vld(p->gain), k1 = vld(p->k1), k2 = vld(p->k2);
    int64_t n = p->n_rows * p->width * VW;
    for (int64_t i = 0; i < n; i += VW) {
        vf g = vload(p->dy, i, bf16);
        if (relu) g = vkeep(vm_gt(vload(p->y, i, bf16), vset1(0)), g);
        vf d = vload(p->x, i, bf16) - mean;
        if (dresidual) vstore(p->dresidual, i, g, bf16);
        vstore(p->dx, i, gain * g - k1 - k2 * d, bf16);
    }
}

typedef struct bn_consts {
    vf mean, gain, k1, k2;
} bn_consts;

INLINE void put(const dt_bn_piece *p, const bn_consts *k, int64_t at, vf g, int bf16,
                int dresidual) {
    vf d = vload(p->x, at, bf16) - k->mean;
    if (dresidual) vstore(p->dresidual, at, g, bf16);
    vstore(p->dx, at, k->gain * g - k->k1 - k->k2 * d, bf16);
}

INLINE void backward_pool(const dt_bn_piece *p, int bf16, int dresidual) {
    bn_consts k = {vld(p->mean), vld(p->gain), vld(p->k1), vld(p->k2)};
    int64_t out_w = p->width / 2, line = p->width * VW;
    for (int64_t row = 0; row < p->n_rows / 2; row++) {
        int64_t in = 2 * row * line, out = row * out_w * VW;
        for (int64_t col = 0; col < out_w; col++, in += 2 * VW, out += VW) {
            vi index = vld_u8(p->argmax + out);
            vf g = vload(p->dy, out, bf16);
            put(p, &k, in, vkeep(vm_eqi(index, vseti(0)), g), bf16, dresidual);
            put(p, &k, in + VW, vkeep(vm_eqi(index, vseti(1)), g), bf16, dresidual);
            put(p, &k, in + line, vkeep(vm_eqi(index, vseti(2)), g), bf16, dresidual);
            put(p, &k, in + line + VW, vkeep(vm_eqi(index, vseti(3)), g), bf16, dresidual);
        }
        if (p->width % 2) { // the odd column takes part in the statistics only
            put(p, &k, in, vset1(0), bf16, dresidual);
            put(p, &k, in + line, vset1(0), bf16, dresidual);
        }
    }
    if (p->n_rows % 2)
        for (int64_t col = 0; col < p->width; col++)
            put(p, &k, (p->n_rows - 1) * line + col * VW, vset1(0), bf16, dresidual);
}

INLINE void backward(const dt_bn_piece *p, int bf16) {
    if (p->pool) {
        if (p->dresidual)
            backward_pool(p, bf16, 1);
        else
            backward_pool(p, bf16, 0);
    } else if (p->relu) {
        if (p->dresidual)
            backward_plain(p, bf16, 1, 1);
        else
            backward_plain(p, bf16, 1, 0);
    } else {
        if (p->dresidual)
            backward_plain(p, bf16, 0, 1);
        else
            backward_plain(p, bf16, 0, 0);
    }
}

// ---- table -----------------------------------------------------------------------------------------
static void stats_f32(const void *x, int64_t n, const float *pivot, double *sums) {
    stats(x, n, pivot, sums, 0);
}
static void stats_bf16(const void *x, int64_t n, const float *pivot, double *sums) {
    stats(x, n, pivot, sums, 1);
}
static void forward_f32(const dt_bn_piece *p) {
    forward(p, 0);
}
static void forward_bf16(const dt_bn_piece *p) {
    forward(p, 1);
}
static void backward_sums_f32(const dt_bn_piece *p) {
    backward_sums(p, 0);
}
static void backward_sums_bf16(const dt_bn_piece *p) {
    backward_sums(p, 1);
}
static void backward_f32(const dt_bn_piece *p) {
    backward(p, 0);
}
static void backward_bf16(const dt_bn_piece *p) {
    backward(p, 1);
}

const dt_simd_bn DT_SIMD(dt_simd_bn) = {
    .stats = {stats_f32, stats_bf16},
    .forward = {forward_f32, forward_bf16},
    .backward_sums = {backward_sums_f32, backward_sums_bf16},
    .backward = {backward_f32, backward_bf16},
};
