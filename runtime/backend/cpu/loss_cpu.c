// loss_cpu.c: the losses of batch/losses.h, in f32.
//
//   forward   in  x (N,…), target, weight (N), class weights or elements' parameters (K) or none
//                                                   out STAT share * sum weight[n] loss_n, STAT sum weight[n]
//   backward  in  the same, …                        out dx, the gradient of the first times loss_scale
//
// Samples of weight 0 are padding: neither x nor target is read, and the gradient is 0. A class outside 0..K-1
// with a weight makes the loss NaN, and the step reports it. Losses over classes take classes, i32 (N), or
// distributions, f32 (N,K), which need not sum to 1; smoothing and class weights as in losses.h. Other losses average
// over a sample's elements.
#include "backend/cpu/custom_kernel.h"
#include "batch/losses.h"

#include <math.h>
#include <string.h>

typedef struct loss_state {
    dt_loss_id id;
    bool rotation;                 // a rotation's angle: needs its own gradient
    bool softmax, soft;            // soft: over classes, with distributions
    bool weighs;                   // in[3] is there: weights of classes, or the loss's numbers
    bool by_class;                 // they weigh each class within the sums of a row
    bool by_sample;                // they are a factor of the row's loss
    int64_t n, k;                  // samples; elements or classes per sample
    float smoothing, param, share; // share: weight of this loss in the total
    const dt_simd_flat *simd;
} loss_state;

static dt_status loss_cpu_prepare(dt_kernel_instance *s) {
    loss_state *st = dt_custom_prepare(s, sizeof(*st));
    const dt_value_info *x = dt_instance_in(s, 0), *target = dt_instance_in(s, 1), *w = dt_instance_in(s, 2);
    st->id = s->node->attrs.loss.id;
    st->softmax = dt_losses[st->id].softmax;
    st->rotation = dt_losses[st->id].rotation;
    const bool classes = st->softmax && target && target->dtype == DT_I32; // class numbers; else distributions
    if (!x || !target || !w || x->dtype != DT_F32 || w->dtype != DT_F32 || x->shape.n < 1 ||
        dt_shape_elements(&w->shape) != x->shape.d[0])
        return dt_custom_fail(s, "wants f32 values (N,...) and f32 weights (N)");
    st->n = x->shape.d[0];
    st->k = st->n ? dt_shape_elements(&x->shape) / st->n : 0; // 0 samples: no division
    st->soft = target->dtype == DT_F32;
    st->weighs = s->node->n_in > 3 && dt_instance_in(s, 3);
    st->by_class = st->weighs && dt_losses[st->id].by_class;
    st->by_sample = st->weighs && s->node->attrs.loss.by_sample && classes;
    int64_t want = classes ? st->n : st->n * st->k; // elements of the target
    if ((!st->soft && !classes) || dt_shape_elements(&target->shape) != want)
        return dt_custom_fail(s, "the target %s has the wrong type or shape", target->name);
    st->smoothing = s->node->attrs.loss.smoothing;
    st->param = s->node->attrs.loss.param;
    st->share = s->node->attrs.loss.share;
    st->simd = dt_simd_get()->flat;
    // a double per sample, added in order afterwards
    if (!s->node->backward) s->scratch_bytes = (size_t)st->n * sizeof(double);
    return DT_OK;
}

typedef struct loss_call {
    const loss_state *st;
    const float *x, *target, *weight;
    const float *class_weights, *factors,
        *params; // of classes, of samples by class, of elements; or NULL
    const int32_t *classes;
    float *dx;      // backward only
    double *losses; // forward only
    float loss_scale;
} loss_call;

// ---- one sample ------------------------------------------------------------------------------------
// What cross-entropy and its gradient need to know of a row of logits.
typedef struct row_sums {
    float max;
    double z;            // sum of exp(x - max)
    double mass;         // of the distribution
    double class_weight; // that the sample's weight holds, by which class weights are divided
    double cross_entropy;
} row_sums;

static void sum_target(const loss_call *c, int64_t n, row_sums *r, dt_loss_parts *m) {
    const loss_state *st = c->st;
    const float *x = c->x + n * st->k, *q = c->target + n * st->k, *w = c->class_weights;
    if (!st->soft) {
        const int32_t y = c->classes[n];
        const bool known = y >= 0 && y < st->k; // -1 and K are beyond a class
        if (w && known) r->class_weight = (double)w[y];
        m->qx = known ? (double)x[y] : NAN; // NaN: the step reports a class outside 0 … K - 1
    } else if (w) {
        m->q = 0;
        for (int64_t k = 0; k < st->k; k++) {
            m->q += (double)w[k] * (double)q[k]; // mass and dot product of the weighted distribution
            m->qx += (double)w[k] * (double)q[k] * (double)x[k];
        }
    } else {
        m->q = st->simd->row_sum(q, st->k);
        m->qx = st->simd->row_dot(q, x, st->k);
    }
}

static row_sums sum_row(const loss_call *c, int64_t n) {
    const loss_state *st = c->st;
    const dt_simd_flat *simd = st->simd;
    const float *x = c->x + n * st->k, *w = c->class_weights;
    const double s = st->smoothing;
    row_sums r = {.max = simd->row_max(x, st->k), .class_weight = 1};
    dt_loss_parts m = {.q = 1, .u = 1}; // a class number is a distribution of mass 1
    r.z = simd->row_sum_exp(x, r.max, st->k);
    m.lse = r.max + log(r.z); // log-sum-exp without overflow
    sum_target(c, n, &r, &m);
    const double by = (double)st->k * r.class_weight; // smoothing spreads over K classes
    if (w) m.u = simd->row_sum(w, st->k) / by;
    // only where smoothing needs the term
    if (s != 0) m.ux = (w ? simd->row_dot(w, x, st->k) : simd->row_sum(x, st->k)) / by;
    r.mass = dt_loss_mass(m, s);
    r.cross_entropy = dt_loss_cross_entropy(m, s);
    return r;
}

static void classes_bwd_of(const loss_call *c, int64_t n, float g) {
    const loss_state *st = c->st;
    const float *x = c->x + n * st->k, *q = c->target + n * st->k, *w = c->class_weights;
    float *dx = c->dx + n * st->k, s = st->smoothing;
    const row_sums r = sum_row(c, n);
    // chain rule: focal loss and others are functions of cross-entropy
    g *= (float)dt_loss_slope(st->id, r.cross_entropy, 0, st->param);
    const float even = g * s / (float)st->k;                                              // smoothing's share per class
    st->simd->row_softmax(dx, x, r.max, (float)(g * r.mass / r.z), w ? 0 : -even, st->k); // g * mass * softmax - even
    const float share = even / (float)r.class_weight; // with class weights each class has its own share
    for (int64_t k = 0; w && k < st->k; k++) dx[k] -= share * w[k];
    if (!st->soft) {
        int32_t y = c->classes[n];
        if (y < 0 || y >= st->k)
            dx[0] = NAN;
        else
            dx[y] -= g * (1 - s); // the target class itself
        return;
    }
    for (int64_t k = 0; k < st->k; k++) dx[k] -= g * (1 - s) * (w ? w[k] * q[k] : q[k]); // soft targets
}

static double loss_cpu_of(const loss_call *c, int64_t n) {
    const loss_state *st = c->st;
    if (st->softmax) return dt_loss_value(st->id, sum_row(c, n).cross_entropy, 0, st->param);
    return dt_loss_of_elements(st->id, c->x + n * st->k, c->target + n * st->k, st->k, (double)st->param, c->params);
}

static void rotation_bwd_of(const loss_call *c, int64_t n, float g) {
    const int k = (int)c->st->k;
    double dx[6]; // three angles or six numbers
    (void)dt_rotation_loss(c->x + n * k, c->target + n * k, k, (double)c->st->param, dx);
    for (int i = 0; i < k; i++) c->dx[n * k + i] = (float)((double)g * dx[i]);
}

static void elements_bwd_of(const loss_call *c, int64_t n, float g) {
    const loss_state *st = c->st;
    const float *x = c->x + n * st->k, *t = c->target + n * st->k;
    for (int64_t i = 0; i < st->k; i++) {
        const float p = c->params ? c->params[i] : st->param;
        // mean over the sample's elements
        c->dx[n * st->k + i] = (float)(g * dt_loss_slope(st->id, x[i], t[i], p) / (double)st->k);
    }
}

// ---- all samples -----------------------------------------------------------------------------------
static float factor_of(const loss_call *c, int64_t n) {
    // padding and unknown classes: 1, so that no table is read outside
    if (!c->factors || c->weight[n] == 0 || c->classes[n] < 0 || c->classes[n] >= c->st->k) return 1;
    return c->factors[c->classes[n]];
}

static void forward_sample(const void *ctx, int64_t n, int64_t end) {
    const loss_call *c = ctx;
    double w = c->weight[n];
    c->losses[n] = w == 0 ? 0 : w * (double)factor_of(c, n) * loss_cpu_of(c, n); // padding is not even read
}

static void backward_sample(const void *ctx, int64_t n, int64_t end) {
    const loss_call *c = ctx;
    // loss_scale: mixed precision's factor times the loss's share
    const float g = c->weight[n] * c->loss_scale * factor_of(c, n);
    if (c->weight[n] == 0)
        memset(c->dx + n * c->st->k, 0, (size_t)c->st->k * sizeof(float));
    else if (c->st->softmax)
        classes_bwd_of(c, n, g);
    else if (c->st->rotation)
        rotation_bwd_of(c, n, g);
    else
        elements_bwd_of(c, n, g);
}

// Small losses are cheaper than a fork.
static int loss_cpu_threads_for(const dt_kernel_instance *s, const loss_state *st) {
    return st->n * st->k >= 16384 ? s->threads : 1; // elements that pay for a fork
}

static loss_call call_of(const loss_state *st, const dt_run *r) {
    return (loss_call){.st = st,
                       .x = r->in[0],
                       .target = r->in[1],
                       .weight = r->in[2],
                       .class_weights = st->by_class ? r->in[3] : NULL,
                       .factors = st->by_sample ? r->in[3] : NULL,
                       .params = st->weighs && !st->softmax ? r->in[3] : NULL,
                       .classes = r->in[1],
                       .loss_scale = 1};
}

static void loss_cpu_run_forward(const dt_kernel_instance *s, const dt_run *r) {
    const loss_state *st = s->state;
    loss_call c = call_of(st, r);
    c.losses = r->scratch;
    dt_custom_items(loss_cpu_threads_for(s, st), st->n, forward_sample, &c);
    double loss = 0, weight = 0;
    // in sample order: bits do not depend on threads
    for (int64_t n = 0; n < st->n; n++) loss += c.losses[n], weight += c.weight[n];
    dt_custom_put(r, 0, 0, loss * (double)st->share); // STAT outputs: sums over micro-batches and ranks
    dt_custom_put(r, 1, 0, weight);
}

static void loss_cpu_run_backward(const dt_kernel_instance *s, const dt_run *r) {
    const loss_state *st = s->state;
    loss_call c = call_of(st, r);
    c.dx = r->out[0];
    c.loss_scale = r->step->loss_scale * st->share;
    dt_custom_items(loss_cpu_threads_for(s, st), st->n, backward_sample, &c);
}

const dt_kernel dt_cpu_loss = {loss_cpu_prepare, loss_cpu_run_forward, dt_custom_destroy};
const dt_kernel dt_cpu_loss_bwd = {loss_cpu_prepare, loss_cpu_run_backward, dt_custom_destroy};
