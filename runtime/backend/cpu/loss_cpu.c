// loss_cpu.c: cross-entropy, BCE with logits, MSE and smooth L1, in f32.
//
//   forward   in  x (N,…), target, weight (N)       out STAT sum weight[n] loss_n, STAT sum weight[n]
//   backward  in  x, target, weight, …              out dx, the gradient of the sum times loss_scale
//
// Samples of weight 0 are padding: neither their x nor their target is read, and their gradient is 0.
// A class outside 0..K-1 with a weight makes the loss NaN: the step names it instead of hiding it.
// Cross-entropy takes classes, i32 (N), or distributions, f32 (N,K), which need not sum to 1; with
// smoothing s the distribution is (1-s) q + s/K, as PyTorch's. The others average a sample's elements.
#include "backend/cpu/own_kernel.h"

#include <math.h>
#include <string.h>

typedef struct loss_state {
    dt_op op;
    bool soft; // cross-entropy with distributions
    int64_t n, k;
    float smoothing, beta;
    const dt_simd_slab *simd;
} loss_state;

static dt_status read(dt_site *s, loss_state *st) {
    const dt_value_info *x = dt_site_in(s, 0), *target = dt_site_in(s, 1), *w = dt_site_in(s, 2);
    st->op = s->node->op;
    if (!x || !target || !w || x->dtype != DT_F32 || w->dtype != DT_F32 || x->shape.n < 1 ||
        dt_shape_elements(&w->shape) != x->shape.d[0])
        return dt_own_fail(s, "wants f32 values (N,...) and f32 weights (N)");
    st->n = x->shape.d[0];
    st->k = st->n ? dt_shape_elements(&x->shape) / st->n : 0;
    st->soft = target->dtype == DT_F32;
    bool classes = st->op == DT_OP_cross_entropy && target->dtype == DT_I32;
    int64_t want = classes ? st->n : st->n * st->k;
    if ((!st->soft && !classes) || dt_shape_elements(&target->shape) != want)
        return dt_own_fail(s, "the target %s has the wrong type or shape", target->name);
    st->smoothing = s->node->attrs.loss.smoothing;
    st->beta = s->node->attrs.loss.beta;
    st->simd = dt_simd_get()->slab;
    return DT_OK;
}

static dt_status prepare_forward(dt_site *s) {
    loss_state *st = dt_own_prepare(s, sizeof(*st));
    DT_TRY(read(s, st));
    s->scratch_bytes = (size_t)st->n * sizeof(double);
    return DT_OK;
}

static dt_status prepare_backward(dt_site *s) {
    loss_state *st = dt_own_prepare(s, sizeof(*st));
    return read(s, st);
}

typedef struct loss_call {
    const loss_state *st;
    const float *x, *target, *weight;
    const int32_t *classes;
    float *dx;
    double *losses;
    float loss_scale;
} loss_call;

// ---- one sample ------------------------------------------------------------------------------------
static double cross_entropy_of(const loss_call *c, int64_t n) {
    const loss_state *st = c->st;
    const float *x = c->x + n * st->k;
    double s = st->smoothing, share = s / (double)st->k;
    float max = st->simd->row_max(x, st->k);
    double lse = max + log(st->simd->row_sum_exp(x, max, st->k));
    double sum_x = s != 0 ? st->simd->row_sum(x, st->k) : 0;
    if (!st->soft) {
        int32_t y = c->classes[n];
        if (y < 0 || y >= st->k) return NAN;
        return lse - (1 - s) * x[y] - share * sum_x;
    }
    const float *q = c->target + n * st->k;
    double mass = (1 - s) * st->simd->row_sum(q, st->k) + s;
    return lse * mass - (1 - s) * st->simd->row_dot(q, x, st->k) - share * sum_x;
}

static void cross_entropy_bwd_of(const loss_call *c, int64_t n, float g) {
    const loss_state *st = c->st;
    const float *x = c->x + n * st->k, *q = c->target + n * st->k;
    float *dx = c->dx + n * st->k;
    float s = st->smoothing, max = st->simd->row_max(x, st->k);
    double z = st->simd->row_sum_exp(x, max, st->k);
    double mass = st->soft ? (1 - s) * st->simd->row_sum(q, st->k) + s : 1;
    st->simd->row_softmax(dx, x, max, (float)(g * mass / z), -g * s / (float)st->k, st->k);
    if (!st->soft) {
        int32_t y = c->classes[n];
        if (y < 0 || y >= st->k)
            dx[0] = NAN;
        else
            dx[y] -= g * (1 - s);
        return;
    }
    for (int64_t k = 0; k < st->k; k++) dx[k] -= g * (1 - s) * q[k];
}

static double element_loss(const loss_state *st, float x, float t) {
    double d = (double)x - t, a = fabs(d);
    switch (st->op) {
    case DT_OP_bce:
        return (x > 0 ? x : 0) - (double)x * t + log1p(exp(-fabs((double)x)));
    case DT_OP_mse:
        return d * d;
    default:
        return a < st->beta ? 0.5 * d * d / st->beta : a - 0.5 * st->beta;
    }
}

static double element_slope(const loss_state *st, float x, float t) {
    double d = (double)x - t;
    switch (st->op) {
    case DT_OP_bce:
        return 1 / (1 + exp(-(double)x)) - t;
    case DT_OP_mse:
        return 2 * d;
    default:
        if (fabs(d) < st->beta) return d / st->beta;
        return d > 0 ? 1 : d < 0 ? -1 : d; // d: 0 or NaN
    }
}

static double mean_loss_of(const loss_call *c, int64_t n) {
    double sum = 0;
    int64_t k = c->st->k;
    for (int64_t i = n * k; i < (n + 1) * k; i++) sum += element_loss(c->st, c->x[i], c->target[i]);
    return sum / (double)k;
}

static void mean_loss_bwd_of(const loss_call *c, int64_t n, float g) {
    int64_t k = c->st->k;
    for (int64_t i = n * k; i < (n + 1) * k; i++)
        c->dx[i] = (float)(g * element_slope(c->st, c->x[i], c->target[i]) / (double)k);
}

// ---- all samples -----------------------------------------------------------------------------------
static void forward_sample(const void *ctx, int64_t n, int64_t end) {
    const loss_call *c = ctx;
    double w = c->weight[n];
    if (w == 0)
        c->losses[n] = 0;
    else if (c->st->op == DT_OP_cross_entropy)
        c->losses[n] = w * cross_entropy_of(c, n);
    else
        c->losses[n] = w * mean_loss_of(c, n);
}

static void backward_sample(const void *ctx, int64_t n, int64_t end) {
    const loss_call *c = ctx;
    float g = c->weight[n] * c->loss_scale;
    if (c->weight[n] == 0)
        memset(c->dx + n * c->st->k, 0, (size_t)c->st->k * sizeof(float));
    else if (c->st->op == DT_OP_cross_entropy)
        cross_entropy_bwd_of(c, n, g);
    else
        mean_loss_bwd_of(c, n, g);
}

// Small losses are cheaper than a fork.
static int threads_for(const dt_site *s, const loss_state *st) {
    return st->n * st->k >= 16384 ? s->threads : 1;
}

static void store(const dt_run *r, int out, double value) {
    float *to = r->out[out];
    if (to) *to = r->accumulate >> out & 1 ? *to + (float)value : (float)value;
}

static void run_forward(const dt_site *s, const dt_run *r) {
    const loss_state *st = s->state;
    loss_call c = {st,   r->in[0],   r->in[1], r->in[2], (const int32_t *)r->in[1],
                   NULL, r->scratch, 1.0f};
    dt_own_items(threads_for(s, st), st->n, forward_sample, &c);
    double loss = 0, weight = 0;
    for (int64_t n = 0; n < st->n; n++) loss += c.losses[n], weight += c.weight[n];
    store(r, 0, loss);
    store(r, 1, weight);
}

static void run_backward(const dt_site *s, const dt_run *r) {
    const loss_state *st = s->state;
    loss_call c = {st,        r->in[0], r->in[1],           r->in[2], (const int32_t *)r->in[1],
                   r->out[0], NULL,     r->step->loss_scale};
    dt_own_items(threads_for(s, st), st->n, backward_sample, &c);
}

#define LOSS(name)                                                                                 \
    const dt_kernel dt_cpu_##name = {prepare_forward, run_forward, dt_own_destroy};                \
    const dt_kernel dt_cpu_##name##_bwd = {prepare_backward, run_backward, dt_own_destroy}
LOSS(cross_entropy);
LOSS(bce);
LOSS(mse);
LOSS(smooth_l1);
