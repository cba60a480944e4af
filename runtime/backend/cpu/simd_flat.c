// simd_flat.c: sums of squares over flat buffers, and rows of logits (see simd.h).
#include "backend/cpu/simd.h"
#include "backend/cpu/simd_vec.h"

INLINE double dot(const float *a, const float *b, int64_t n) {
    vd s0 = {0}, s1 = {0}; // two sums hide the latency; products of f32 are exact in double
    int64_t i = 0;
    for (; i + 2 * VW <= n; i += 2 * VW) {
        s0 += vf_to_d(vld(a + i)) * vf_to_d(vld(b + i));
        s1 += vf_to_d(vld(a + i + VW)) * vf_to_d(vld(b + i + VW));
    }
    double tail = 0;
    for (; i < n; i++) tail += (double)a[i] * b[i]; // in order, behind the vectors
    return vd_sum(s0 + s1) + tail;
}

static double sum_squares(const float *x, int64_t n) {
    return dot(x, x, n);
}
static double row_dot(const float *a, const float *b, int64_t n) {
    return dot(a, b, n);
}

static double row_sum(const float *x, int64_t n) {
    vd s = {0};
    int64_t i = 0;
    for (; i + VW <= n; i += VW) s += vf_to_d(vld(x + i));
    double tail = 0;
    for (; i < n; i++) tail += x[i];
    return vd_sum(s) + tail;
}

// NaN anywhere gives NaN.
static float row_max(const float *x, int64_t n) {
    float best = x[0]; // n >= 1
    int64_t i = 0;
    if (n >= VW) {
        vf m = vld(x);
        for (i = VW; i + VW <= n; i += VW) {
            vf v = vld(x + i);
            m = vsel(vm_or(vm_gt(v, m), vm_nan(v)), v, m); // a NaN replaces m, and stays: nothing is greater
        }
        for (int l = 0; l < VW; l++)
            if (m[l] > best || m[l] != m[l]) best = m[l]; // NaN is unequal to itself
    }
    for (; i < n; i++)
        if (x[i] > best || x[i] != x[i]) best = x[i];
    return best;
}

static double row_sum_exp(const float *x, float max, int64_t n) {
    vd s = {0};
    int64_t i = 0;
    for (; i + VW <= n; i += VW) s += vf_to_d(vexp(vld(x + i) - max)); // exponents are f32, their sum double
    int part = (int)(n - i);
    double tail = 0;
    if (part) {
        vf e = vexp(vload_part(x, i, part, 0) - max); // padding lanes are left out below
        for (int l = 0; l < part; l++) tail += e[l];
    }
    return vd_sum(s) + tail;
}

static void row_softmax(float *dx, const float *x, float max, float coef, float base, int64_t n) {
    int64_t i = 0;
    for (; i + VW <= n; i += VW) vst(dx + i, vexp(vld(x + i) - max) * coef + base); // coef exp(x - max) + base
    int part = (int)(n - i);
    if (part) vstore_part(dx, i, part, vexp(vload_part(x, i, part, 0) - max) * coef + base, 0);
}

const dt_simd_flat DT_SIMD(dt_simd_flat) = {
    .sum_squares = sum_squares,
    .row_max = row_max,
    .row_sum_exp = row_sum_exp,
    .row_sum = row_sum,
    .row_dot = row_dot,
    .row_softmax = row_softmax,
};
