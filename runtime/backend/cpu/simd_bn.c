// simd_bn.c: batch norm over one channel block of f32 (see simd.h: dt_bn_chunk, and norm_cpu.c
// for the passes; simd_bn_bf16.c for bf16). A pixel is one vector. These loops are bound by memory: each reads
// every tensor once, in order, and writes full vectors. Fused 2x2 pooling keeps the unpooled y and its gradient
// in registers. The mean is subtracted before scaling: folded into the shift it would cause cancellation where
// it is large beside the deviation.
#include "backend/cpu/simd.h"
#include "backend/cpu/simd_vec.h"

enum { FLUSH_PIXELS = 256 }; // f32 partial sums are moved to doubles after this many pixels

typedef struct sums2 {
    vd a, b; // sums and second sums, in double
} sums2;

INLINE vf at(const void *base, int64_t i) {
    return vld((const float *)base + i);
}
INLINE void store(void *base, int64_t i, vf v) {
    vst((float *)base + i, v);
}
INLINE void sums_store(double *out, const sums2 *s) {
    vdst(out, s->a);
    vdst(out + VW, s->b);
}

// ---- statistics ------------------------------------------------------------------------------------
static void stats(const void *x, int64_t n_pixels, int64_t nhwc, const float *pivot, double *sums) {
    (void)nhwc; // BLOCKED alone
    vf k = vld(pivot);
    sums2 total = {{0}, {0}};
    for (int64_t p = 0; p < n_pixels;) {
        int64_t end = p + FLUSH_PIXELS < n_pixels ? p + FLUSH_PIXELS : n_pixels;
        // four accumulators hide the latency of additions
        vf s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0}, q0 = {0}, q1 = {0}, q2 = {0}, q3 = {0};
        for (; p + 4 <= end; p += 4) {
            vf d0 = at(x, p * VW) - k, d1 = at(x, (p + 1) * VW) - k;
            vf d2 = at(x, (p + 2) * VW) - k, d3 = at(x, (p + 3) * VW) - k;
            s0 += d0, s1 += d1, s2 += d2, s3 += d3;
            q0 += d0 * d0, q1 += d1 * d1, q2 += d2 * d2, q3 += d3 * d3;
        }
        for (; p < end; p++) {
            vf d = at(x, p * VW) - k;
            s0 += d, q0 += d * d;
        }
        total.a += vf_to_d((s0 + s1) + (s2 + s3));
        total.b += vf_to_d((q0 + q1) + (q2 + q3)); // widened every FLUSH_PIXELS: f32 sums stay short
    }
    sums_store(sums, &total);
}

// ---- forward ---------------------------------------------------------------------------------------
INLINE void forward_plain(const dt_bn_chunk *p, int residual) {
    vf mean = vld(p->mean), gain = vld(p->gain), shift = vld(p->shift);
    vf floor = vset1(p->relu ? 0.0f : -__builtin_inff()); // -inf: no ReLU
    const void *x = p->x, *r = p->residual;
    void *y = p->y;
    int64_t n = p->n_rows * p->width * VW;
    for (int64_t i = 0; i < n; i += VW) {
        vf v = (at(x, i) - mean) * gain + shift;
        if (residual) v += at(r, i);
        store(y, i, vfloor(v, floor));
    }
}

static void forward_pool(const dt_bn_chunk *p) { // and ReLU
    vf mean = vld(p->mean), gain = vld(p->gain), shift = vld(p->shift);
    int64_t out_w = p->width / 2, line = p->width * VW; // an odd column is dropped, as in PyTorch
    for (int64_t row = 0; row < p->n_rows / 2; row++) {
        int64_t in = 2 * row * line, out = row * out_w * VW;
        for (int64_t col = 0; col < out_w; col++, in += 2 * VW, out += VW) {
            const int64_t from[4] = {in, in + VW, in + line, in + line + VW}; // corners: 0 1 / 2 3
            vf best;
            vi index = vseti(0);
            for (int k = 0; k < 4; k++) {
                vf v = (at(p->x, from[k]) - mean) * gain + shift;
                if (k == 0)
                    best = v;
                else {
                    vm more = vm_gt(v, best); // > keeps the first of equal corners
                    best = vsel(more, v, best);
                    index = vseli(more, vseti(k), index);
                }
            }
            vm clipped = vm_le(best, vset1(0)); // ReLU: no gradient passes
            store(p->y, out, vsel(clipped, vset1(0), best));
            if (p->argmax) vst_u8(p->argmax + out, vseli(clipped, vseti(255), index)); // 255: none
        }
    }
}

static void forward(const dt_bn_chunk *p) {
    if (p->pool)
        forward_pool(p);
    else if (p->residual)
        forward_plain(p, 1);
    else
        forward_plain(p, 0);
}

// ---- backward, first pass: sum(g) and sum(g (x - mean)) --------------------------------------------
INLINE void sums_plain(const dt_bn_chunk *p, int relu) {
    vf mean = vld(p->mean);
    sums2 total = {{0}, {0}};
    int64_t n = p->n_rows * p->width;
    for (int64_t i = 0; i < n;) {
        int64_t end = i + FLUSH_PIXELS < n ? i + FLUSH_PIXELS : n;
        vf s[2] = {{0}, {0}}, q[2] = {{0}, {0}};
        for (; i + 2 <= end; i += 2)
            for (int k = 0; k < 2; k++) {
                int64_t j = (i + k) * VW;
                vf g = at(p->dy, j);
                if (relu) g = vkeep(vm_gt(at(p->y, j), vset1(0)), g); // the gradient where y > 0
                s[k] += g, q[k] += g * (at(p->x, j) - mean);
            }
        for (; i < end; i++) {
            vf g = at(p->dy, i * VW);
            if (relu) g = vkeep(vm_gt(at(p->y, i * VW), vset1(0)), g);
            s[0] += g, q[0] += g * (at(p->x, i * VW) - mean);
        }
        total.a += vf_to_d(s[0] + s[1]);
        total.b += vf_to_d(q[0] + q[1]);
    }
    sums_store(p->sums, &total);
}

static void sums_pool(const dt_bn_chunk *p) {
    vf mean = vld(p->mean);
    sums2 total = {{0}, {0}};
    int64_t out_w = p->width / 2, line = p->width * VW;
    for (int64_t row = 0; row < p->n_rows / 2; row++)
        for (int64_t col = 0; col < out_w;) {
            int64_t end = col + FLUSH_PIXELS < out_w ? col + FLUSH_PIXELS : out_w;
            vf s = {0}, q = {0}; // a row of windows at most between flushes
            for (; col < end; col++) {
                int64_t in = 2 * row * line + 2 * col * VW, out = (row * out_w + col) * VW;
                vi index = vld_u8(p->argmax + out);
                vf g = at(p->dy, out), x = at(p->x, in);
                g = vsel(vm_eqi(index, vseti(255)), vset1(0), g);        // clipped windows
                x = vsel(vm_eqi(index, vseti(1)), at(p->x, in + VW), x); // x of the winning corner
                x = vsel(vm_eqi(index, vseti(2)), at(p->x, in + line), x);
                x = vsel(vm_eqi(index, vseti(3)), at(p->x, in + line + VW), x);
                s += g, q += g * (x - mean);
            }
            total.a += vf_to_d(s);
            total.b += vf_to_d(q);
        }
    sums_store(p->sums, &total);
}

static void backward_sums(const dt_bn_chunk *p) {
    if (p->pool)
        sums_pool(p);
    else if (p->relu)
        sums_plain(p, 1);
    else
        sums_plain(p, 0);
}

// ---- backward, second pass: dx (which may be x's memory; NULL: nobody wants it) ---------------------
INLINE void backward_plain(const dt_bn_chunk *p, int relu, int dresidual, int dx) {
    vf mean = vld(p->mean), gain = vld(p->gain), k1 = vld(p->k1), k2 = vld(p->k2);
    int64_t n = p->n_rows * p->width * VW;
    for (int64_t i = 0; i < n; i += VW) {
        vf g = at(p->dy, i);
        if (relu) g = vkeep(vm_gt(at(p->y, i), vset1(0)), g);
        vf d = at(p->x, i) - mean;
        if (dresidual) store(p->dresidual, i, g);
        if (dx) store(p->dx, i, gain * g - k1 - k2 * d); // k1, k2: the parts of the gradient through mean and variance
    }
}

typedef struct bn_consts {
    vf mean, gain, k1, k2;
} bn_consts;

INLINE void put(const dt_bn_chunk *p, const bn_consts *k, int64_t i, vf g) {
    store(p->dx, i, k->gain * g - k->k1 - k->k2 * (at(p->x, i) - k->mean));
}

static void backward_pool(const dt_bn_chunk *p) {
    bn_consts k = {vld(p->mean), vld(p->gain), vld(p->k1), vld(p->k2)};
    int64_t out_w = p->width / 2, line = p->width * VW;
    for (int64_t row = 0; row < p->n_rows / 2; row++) {
        int64_t in = 2 * row * line, out = row * out_w * VW;
        for (int64_t col = 0; col < out_w; col++, in += 2 * VW, out += VW) {
            vi index = vld_u8(p->argmax + out);
            vf g = at(p->dy, out);
            put(p, &k, in, vkeep(vm_eqi(index, vseti(0)), g)); // one corner of the window has the gradient
            put(p, &k, in + VW, vkeep(vm_eqi(index, vseti(1)), g));
            put(p, &k, in + line, vkeep(vm_eqi(index, vseti(2)), g));
            put(p, &k, in + line + VW, vkeep(vm_eqi(index, vseti(3)), g));
        }
        if (p->width % 2) { // the odd column takes part in the statistics only
            put(p, &k, in, vset1(0));
            put(p, &k, in + line, vset1(0));
        }
    }
    if (p->n_rows % 2) // and the odd row
        for (int64_t col = 0; col < p->width; col++) put(p, &k, (p->n_rows - 1) * line + col * VW, vset1(0));
}

static void backward(const dt_bn_chunk *p) {
    if (!p->dx && !p->dresidual) return;
    if (p->pool)
        backward_pool(p);
    else if (!p->dx)
        backward_plain(p, p->relu, 1, 0);
    else if (p->relu) {
        if (p->dresidual)
            backward_plain(p, 1, 1, 1);
        else
            backward_plain(p, 1, 0, 1);
    } else {
        if (p->dresidual)
            backward_plain(p, 0, 1, 1);
        else
            backward_plain(p, 0, 0, 1);
    }
}

const dt_simd_bn DT_SIMD(dt_simd_bn_f32) = {stats, forward, backward_sums, backward};
