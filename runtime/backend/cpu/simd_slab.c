// simd_slab.c: the optimizer over slabs, sums of squares, and rows of logits (see simd.h).
//
// The optimizers are one pass: each element of parameter, gradient and moments is read and written
// once. AdamW follows torch.optim.AdamW (decoupled decay first, eps outside the bias-corrected root);
// SGD follows torch.optim.SGD (decay as L2 in the gradient, first step sets the momentum buffer).
#include "backend/cpu/simd.h"
#include "backend/cpu/simd_vec.h"

INLINE void adamw_one(vf *p, vf *m, vf *v, vf g, const dt_adamw_consts *k) {
    g = g * k->grad_scale;
    *m = *m + (g - *m) * (1.0f - k->beta1);
    *v = *v * k->beta2 + (g * g) * (1.0f - k->beta2);
    vf root = vsqrt(*v) * k->inv_sqrt_c2 + k->eps;
    *p = *p * k->keep - (*m * k->step_size) / root;
}

static void adamw(float *p, float *m, float *v, const float *g, int64_t n,
                  const dt_adamw_consts *k) {
    const dt_adamw_consts c = *k;
    int64_t i = 0;
    for (; i + VW <= n; i += VW) {
        vf pv = vld(p + i), mv = vld(m + i), vv = vld(v + i);
        adamw_one(&pv, &mv, &vv, vld(g + i), &c);
        vst(p + i, pv), vst(m + i, mv), vst(v + i, vv);
    }
    int part = (int)(n - i);
    if (part) {
        vf pv = vload_part(p, i, part, 0), mv = vload_part(m, i, part, 0);
        vf vv = vload_part(v, i, part, 0);
        adamw_one(&pv, &mv, &vv, vload_part(g, i, part, 0), &c);
        vstore_part(p, i, part, pv, 0), vstore_part(m, i, part, mv, 0);
        vstore_part(v, i, part, vv, 0);
    }
}

INLINE void sgd_one(vf *p, vf *m, vf g, const dt_sgd_consts *k, int momentum) {
    g = g * k->grad_scale + *p * k->decay;
    if (momentum) {
        *m = k->first ? g : *m * k->momentum + g;
        g = k->nesterov ? g + *m * k->momentum : *m;
    }
    *p = *p - g * k->lr;
}

INLINE void sgd_run(float *p, float *m, const float *g, int64_t n, const dt_sgd_consts *k,
                    int momentum) {
    const dt_sgd_consts c = *k;
    int64_t i = 0;
    for (; i + VW <= n; i += VW) {
        vf pv = vld(p + i), mv = momentum ? vld(m + i) : vset1(0);
        sgd_one(&pv, &mv, vld(g + i), &c, momentum);
        vst(p + i, pv);
        if (momentum) vst(m + i, mv);
    }
    int part = (int)(n - i);
    if (part) {
        vf pv = vload_part(p, i, part, 0), mv = momentum ? vload_part(m, i, part, 0) : vset1(0);
        sgd_one(&pv, &mv, vload_part(g, i, part, 0), &c, momentum);
        vstore_part(p, i, part, pv, 0);
        if (momentum) vstore_part(m, i, part, mv, 0);
    }
}

static void sgd(float *p, float *m, const float *g, int64_t n, const dt_sgd_consts *k) {
    if (m)
        sgd_run(p, m, g, n, k, 1);
    else
        sgd_run(p, NULL, g, n, k, 0);
}

INLINE double dot(const float *a, const float *b, int64_t n) {
    vd s0 = {0}, s1 = {0};
    int64_t i = 0;
    for (; i + 2 * VW <= n; i += 2 * VW) {
        s0 += vf_to_d(vld(a + i)) * vf_to_d(vld(b + i));
        s1 += vf_to_d(vld(a + i + VW)) * vf_to_d(vld(b + i + VW));
    }
    double tail = 0;
    for (; i < n; i++) tail += (double)a[i] * b[i];
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
    float best = x[0];
    int64_t i = 0;
    if (n >= VW) {
        vf m = vld(x);
        for (i = VW; i + VW <= n; i += VW) {
            vf v = vld(x + i);
            m = vsel(vm_or(vm_gt(v, m), vm_nan(v)), v, m);
        }
        for (int l = 0; l < VW; l++)
            if (m[l] > best || m[l] != m[l]) best = m[l];
    }
    for (; i < n; i++)
        if (x[i] > best || x[i] != x[i]) best = x[i];
    return best;
}

static double row_sum_exp(const float *x, float max, int64_t n) {
    vd s = {0};
    int64_t i = 0;
    for (; i + VW <= n; i += VW) s += vf_to_d(vexp(vld(x + i) - max));
    int part = (int)(n - i);
    double tail = 0;
    if (part) {
        vf e = vexp(vload_part(x, i, part, 0) - max);
        for (int l = 0; l < part; l++) tail += e[l];
    }
    return vd_sum(s) + tail;
}

static void row_softmax(float *dx, const float *x, float max, float coef, float base, int64_t n) {
    int64_t i = 0;
    for (; i + VW <= n; i += VW) vst(dx + i, vexp(vld(x + i) - max) * coef + base);
    int part = (int)(n - i);
    if (part) vstore_part(dx, i, part, vexp(vload_part(x, i, part, 0) - max) * coef + base, 0);
}

const dt_simd_slab DT_SIMD(dt_simd_slab) = {
    .adamw = adamw,
    .sgd = sgd,
    .sum_squares = sum_squares,
    .row_max = row_max,
    .row_sum_exp = row_sum_exp,
    .row_sum = row_sum,
    .row_dot = row_dot,
    .row_softmax = row_softmax,
};
