// fake_math.c: the fake device's convolution, attention and matmul. Operands are first widened to f32, so that the inner
// loops run over contiguous floats and a whole small network trains in seconds.
#include "fake_math.h"

#include "backend/cuda/kernels/elementwise_kernels.h"
#include "base/core.h"
#include "graph/activation_words.h"

#include <stdlib.h>

static float *widen(const void *p, int type, int64_t n) {
    float *x = dt_xcalloc((size_t)n + 1, sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = dt_get(p, type, i);
    return x;
}

static float activate(dt_activation act, float x) {
    if (act == DT_ACTIVATION_relu) return x < 0 ? 0 : x;
    if (act == DT_ACTIVATION_gelu) return 0.5f * x * erfcf(-x * 0.70710678f);
    return x;
}

// ---- convolution: x (n,h,w,c), w (k,r,s,c/groups), y (n,oh,ow,k) -----------------------------------
typedef struct conv {
    const dt_dnn_desc *d;
    int64_t kg, cg; // channels of a group
    int64_t taps;
} conv;

// The row and column of the input that output (o) and tap (t) combine; false if outside.
static bool meets(const dt_window *w, int axis, int64_t out, int64_t tap, int64_t size, int64_t *in) {
    *in = out * w->stride[axis] - w->pad_begin[axis] + tap * w->dilation[axis];
    return *in >= 0 && *in < size;
}

typedef void (*conv_fn)(const conv *c, int64_t x_at, int64_t y_at, int64_t tap, float *const *t);

static void visit(const conv *c, conv_fn fn, float *const *t) {
    const dt_dnn_desc *d = c->d;
    for (int64_t n = 0; n < d->n; n++)
        for (int64_t p = 0; p < d->out_h; p++)
            for (int64_t q = 0; q < d->out_w; q++)
                for (int64_t r = 0; r < d->win.kernel[0]; r++)
                    for (int64_t s = 0; s < d->win.kernel[1]; s++) {
                        int64_t h, w;
                        if (!meets(&d->win, 0, p, r, d->h, &h) || !meets(&d->win, 1, q, s, d->w, &w)) continue;
                        fn(c, ((n * d->h + h) * d->w + w) * d->c, ((n * d->out_h + p) * d->out_w + q) * d->k,
                           r * d->win.kernel[1] + s, t);
                    }
}

// t: x, w as (tap, c/groups, k), y
static void tap_forward(const conv *c, int64_t x_at, int64_t y_at, int64_t tap, float *const *t) {
    for (int64_t g = 0; g < c->d->groups; g++)
        for (int64_t i = 0; i < c->cg; i++) {
            const float x = t[0][x_at + g * c->cg + i];
            const float *w = t[1] + (tap * c->cg + i) * c->d->k + g * c->kg;
            float *y = t[2] + y_at + g * c->kg;
            for (int64_t k = 0; k < c->kg; k++) y[k] += x * w[k];
        }
}
// t: dx, w as it is (k, tap, c/groups), dy
static void tap_dgrad(const conv *c, int64_t x_at, int64_t y_at, int64_t tap, float *const *t) {
    for (int64_t k = 0; k < c->d->k; k++) {
        const float dy = t[2][y_at + k];
        const float *w = t[1] + (k * c->taps + tap) * c->cg;
        float *dx = t[0] + x_at + k / c->kg * c->cg;
        for (int64_t i = 0; i < c->cg; i++) dx[i] += w[i] * dy;
    }
}
// t: x, dw as it is, dy
static void tap_wgrad(const conv *c, int64_t x_at, int64_t y_at, int64_t tap, float *const *t) {
    for (int64_t k = 0; k < c->d->k; k++) {
        const float dy = t[2][y_at + k];
        const float *x = t[0] + x_at + k / c->kg * c->cg;
        float *dw = t[1] + (k * c->taps + tap) * c->cg;
        for (int64_t i = 0; i < c->cg; i++) dw[i] += x[i] * dy;
    }
}

// Sums of y as it was written, in tiles of pixels as engines do.
static void sum_channels(const dt_dnn_desc *d, void *const *ptr) {
    enum { TILE = 128 };
    const int64_t pixels = d->n * d->out_h * d->out_w;
    for (int64_t k = 0; k < d->k; k++) {
        float all = 0, squares = 0;
        for (int64_t tile = 0; tile < pixels; tile += TILE) {
            float sum = 0, square = 0;
            for (int64_t i = tile; i < pixels && i < tile + TILE; i++) {
                const float y = dt_get(ptr[2], d->type, i * d->k + k);
                sum += y, square += y * y;
            }
            all += sum, squares += square;
        }
        ((float *)ptr[3])[k] = all, ((float *)ptr[4])[k] = squares;
    }
}

// relu(x gain + shift), rounded to the type at the end.
static void norm(const dt_dnn_desc *d, float *x, int64_t n, void *const *gain_shift) {
    uint32_t cell = 0;
    for (int64_t i = 0; i < n; i++) {
        const float gain = dt_get(gain_shift[0], d->type, i % d->c);
        const float shift = dt_get(gain_shift[1], d->type, i % d->c);
        dt_put(&cell, d->type, 0, activate(DT_ACTIVATION_relu, x[i] * gain + shift));
        x[i] = dt_get(&cell, d->type, 0);
    }
}

static void run_conv(const dt_dnn_desc *d, void *const *ptr) {
    const int64_t taps = (int64_t)d->win.kernel[0] * d->win.kernel[1];
    const conv c = {d, d->k / d->groups, d->c / d->groups, taps};
    const int64_t nx = d->n * d->h * d->w * d->c, ny = d->n * d->out_h * d->out_w * d->k;
    const int64_t per_k = taps * c.cg, nw = d->k * per_k;
    const bool fwd = d->kind == DT_DNN_CONV_FWD, dgrad = d->kind == DT_DNN_CONV_DGRAD;
    const void *x = dgrad ? NULL : ptr[0], *w = dgrad ? ptr[1] : NULL;
    const void *dy = fwd ? NULL : dgrad ? ptr[0] : ptr[1];
    float *t[3] = {x ? widen(x, d->type, nx) : dt_xcalloc((size_t)nx + 1, sizeof(float)),
                   w ? widen(w, d->type, nw) : dt_xcalloc((size_t)nw + 1, sizeof(float)),
                   dy ? widen(dy, d->type, ny) : dt_xcalloc((size_t)ny + 1, sizeof(float))};
    if (d->normed) norm(d, t[0], nx, ptr + (fwd ? 5 : 3));
    for (int64_t k = 0; fwd && k < d->k; k++)
        for (int64_t i = 0; i < per_k; i++) t[1][i * d->k + k] = dt_get(ptr[1], d->type, k * per_k + i);
    visit(&c, fwd ? tap_forward : dgrad ? tap_dgrad : tap_wgrad, t);
    if (fwd)
        for (int64_t i = 0; i < ny; i++) {
            const float b = d->bias ? dt_get(ptr[3], d->type, i % d->k) : 0;
            dt_put(ptr[2], d->type, i, activate(d->act, t[2][i] + b));
        }
    else
        for (int64_t i = 0; i < (dgrad ? nx : nw); i++) dt_put(ptr[2], d->type, i, t[dgrad ? 0 : 1][i]);
    if (d->sums) sum_channels(d, ptr);
    for (int i = 0; i < 3; i++) free(t[i]);
}

// ---- attention -------------------------------------------------------------------------------------
static int64_t at(const int64_t *stride, int64_t n, int64_t h, int64_t t) {
    return n * stride[0] + h * stride[1] + t * stride[2];
}

// p = softmax(scale q k^T) of one query; returns log of the sum of exponentials.
static float attend(const dt_dnn_desc *d, const void *q, const void *k, int64_t n, int64_t h, int64_t i, float *p) {
    float top = -INFINITY, sum = 0;
    for (int64_t j = 0; j < d->tk; j++) {
        float s = 0;
        for (int64_t e = 0; e < d->d; e++)
            s += dt_get(q, d->type, at(d->stride_q, n, h, i) + e) * dt_get(k, d->type, at(d->stride_k, n, h, j) + e);
        p[j] = s * d->scale;
        top = fmaxf(top, p[j]);
    }
    for (int64_t j = 0; j < d->tk; j++) sum += p[j] = expf(p[j] - top);
    for (int64_t j = 0; j < d->tk; j++) p[j] /= sum;
    return top + logf(sum);
}

static void sdpa_forward(const dt_dnn_desc *d, void *const *ptr) { // q k v y lse
    float *p = dt_xcalloc((size_t)d->tk + 1, sizeof *p);
    for (int64_t row = 0; row < d->n * d->heads * d->tq; row++) {
        const int64_t i = row % d->tq, h = row / d->tq % d->heads, n = row / d->tq / d->heads;
        const float lse = attend(d, ptr[0], ptr[1], n, h, i, p);
        if (ptr[4]) ((float *)ptr[4])[row] = lse;
        for (int64_t e = 0; e < d->d; e++) {
            float y = 0;
            for (int64_t j = 0; j < d->tk; j++) y += p[j] * dt_get(ptr[2], d->type, at(d->stride_v, n, h, j) + e);
            dt_put(ptr[3], d->type, at(d->stride_y, n, h, i) + e, y);
        }
    }
    free(p);
}

// One head: dq, dk, dv as dense floats (t, d).
static void sdpa_head(const dt_dnn_desc *d, void *const *ptr, int64_t n, int64_t h, float *dq, float *dk, float *dv,
                      float *p) {
    for (int64_t i = 0; i < d->tq; i++) {
        attend(d, ptr[0], ptr[1], n, h, i, p);
        float dot = 0; // sum of dy * y = sum of p * dp
        for (int64_t e = 0; e < d->d; e++)
            dot += dt_get(ptr[4], d->type, at(d->stride_y, n, h, i) + e) *
                   dt_get(ptr[3], d->type, at(d->stride_y, n, h, i) + e);
        for (int64_t j = 0; j < d->tk; j++) {
            float dp = 0;
            for (int64_t e = 0; e < d->d; e++) {
                const float g = dt_get(ptr[4], d->type, at(d->stride_y, n, h, i) + e);
                dp += g * dt_get(ptr[2], d->type, at(d->stride_v, n, h, j) + e);
                dv[j * d->d + e] += p[j] * g;
            }
            const float ds = p[j] * (dp - dot) * d->scale;
            for (int64_t e = 0; e < d->d; e++) {
                dq[i * d->d + e] += ds * dt_get(ptr[1], d->type, at(d->stride_k, n, h, j) + e);
                dk[j * d->d + e] += ds * dt_get(ptr[0], d->type, at(d->stride_q, n, h, i) + e);
            }
        }
    }
}

static void sdpa_backward(const dt_dnn_desc *d,
                          void *const *ptr) { // q k v y dy lse dq dk dv dq32 sum
    float *p = dt_xcalloc((size_t)d->tk + 1, sizeof *p);
    for (int64_t n = 0; n < d->n; n++)
        for (int64_t h = 0; h < d->heads; h++) {
            float *dq = dt_xcalloc((size_t)(d->tq * d->d) + 1, sizeof *dq);
            float *dk = dt_xcalloc((size_t)(d->tk * d->d) + 1, sizeof *dk);
            float *dv = dt_xcalloc((size_t)(d->tk * d->d) + 1, sizeof *dv);
            sdpa_head(d, ptr, n, h, dq, dk, dv, p);
            for (int64_t i = 0; i < d->tq * d->d; i++)
                dt_put(ptr[6], d->type, at(d->stride_q, n, h, i / d->d) + i % d->d, dq[i]);
            for (int64_t i = 0; i < d->tk * d->d; i++) {
                dt_put(ptr[7], d->type, at(d->stride_k, n, h, i / d->d) + i % d->d, dk[i]);
                dt_put(ptr[8], d->type, at(d->stride_v, n, h, i / d->d) + i % d->d, dv[i]);
            }
            free(dq), free(dk), free(dv);
        }
    free(p);
}

const char *fake_dnn_name(const fake_plan *p) {
    static const char *const names[] = {[DT_DNN_CONV_FWD] = "conv_fwd",
                                        [DT_DNN_CONV_DGRAD] = "conv_dgrad",
                                        [DT_DNN_CONV_WGRAD] = "conv_wgrad",
                                        [DT_DNN_SDPA_FWD] = "sdpa_fwd",
                                        [DT_DNN_SDPA_BWD] = "sdpa_bwd"};
    return names[p->dnn.kind];
}

void fake_dnn_run(const fake_plan *p, void *const *ptr) {
    if (p->dnn.kind == DT_DNN_SDPA_FWD)
        sdpa_forward(&p->dnn, ptr);
    else if (p->dnn.kind == DT_DNN_SDPA_BWD)
        sdpa_backward(&p->dnn, ptr);
    else
        run_conv(&p->dnn, ptr);
}

// ---- matmul --------------------------------------------------------------------------------
const char *fake_gemm_name(dt_gemm_epilogue e) {
    static const char *const names[] = {
        "gemm", "gemm bias", "gemm bias relu", "gemm bias gelu", "gemm bias gelu aux", "gemm dgelu", "gemm bgrad"};
    return names[e];
}

static float epilogue(const dt_gemm_desc *g, float x, int64_t j, int64_t at, void *const *ptr) {
    if (dt_gemm_has_bias(g->epilogue) && g->epilogue != DT_GEMM_BGRAD) x += dt_get(ptr[3], g->bias_type, j);
    switch (g->epilogue) {
    case DT_GEMM_BIAS_RELU:
        return x < 0 ? 0 : x;
    case DT_GEMM_BIAS_GELU_AUX:
        dt_put(ptr[4], g->out_type, at, x);
        return dt_gelu_tanh(x);
    case DT_GEMM_BIAS_GELU:
        return dt_gelu_tanh(x);
    case DT_GEMM_DGELU:
        return x * dt_gelu_tanh_slope(dt_get(ptr[4], g->out_type, at));
    default:
        return x;
    }
}

static void gemm_one(const dt_gemm_desc *g, bool add, int64_t batch, void *const *ptr, float *row) {
    const int64_t a0 = batch * g->stride_a, b0 = batch * g->stride_b, d0 = batch * g->stride_d;
    float *b = dt_xcalloc((size_t)(g->k * g->n) + 1, sizeof *b);
    for (int64_t k = 0; k < g->k; k++)
        for (int64_t j = 0; j < g->n; j++)
            b[k * g->n + j] = dt_get(ptr[1], g->type, b0 + (g->trans_b ? j * g->ldb + k : k * g->ldb + j));
    for (int64_t i = 0; i < g->m; i++) {
        float sum = 0;
        memset(row, 0, (size_t)g->n * sizeof *row);
        for (int64_t k = 0; k < g->k; k++) {
            const float a = dt_get(ptr[0], g->type, a0 + (g->trans_a ? k * g->lda + i : i * g->lda + k));
            for (int64_t j = 0; j < g->n; j++) row[j] += a * b[k * g->n + j];
            sum += a;
        }
        if (g->epilogue == DT_GEMM_BGRAD) dt_put(ptr[3], g->bias_type, i, sum);
        for (int64_t j = 0; j < g->n; j++) {
            float x = g->alpha * row[j];
            const int64_t at = d0 + i * g->ldd + j;
            if (add) x += dt_get(ptr[2], g->out_type, at);
            dt_put(ptr[2], g->out_type, at, epilogue(g, x, j, at, ptr));
        }
    }
    free(b);
}

void fake_gemm_run(const fake_plan *p, void *const *ptr) {
    float *row = dt_xcalloc((size_t)p->gemm.n + 1, sizeof *row);
    for (int64_t i = 0; i < (p->gemm.batch ? p->gemm.batch : 1); i++) gemm_one(&p->gemm, p->add, i, ptr, row);
    free(row);
}
