// loss_kernels.h: device kernels of losses.
#ifndef DT_BACKEND_CUDA_KERNELS_LOSS_KERNELS_H
#define DT_BACKEND_CUDA_KERNELS_LOSS_KERNELS_H

#include "backend/cuda/kernels/rows_kernels.h"
#include "graph/arc_margin.h"

// ---- loss ---------------------------------------------------------------------------------------------------------

// The losses of batch/losses.h, in f32 over DENSE rows of one sample each. For the meaning of targets,
// weights and smoothing see cpu/loss_cpu.c.
//
//   loss_rows    each sample's weighted loss -> scratch (double)
//   loss_finish  STAT sums of losses and weights over the samples, in one block
//   loss_bwd     dx times weight and loss scale, which is read from the step block on the device
//
// Samples of weight 0 are not read. A class outside 0..K-1 gives NaN.
// Moves: forward 4nK, + 4nK with distributions; backward 8nK (+ 4nK). Class weights stay in the cache.

#define DT_LOSS_REAL float
#include "batch/losses.h"

enum { // kinds of target; the first two are for losses over classes
    DT_LOSS_CLASSES,
    DT_LOSS_SHARES,
    DT_LOSS_ELEMENTS,
    DT_LOSS_ROTATION // of a row, which one lane computes
};

typedef struct dt_loss_args {
    dt_rows r;                        // a group of threads for each sample
    const float *x, *target, *weight; // f32: (rows, n); a weight per sample
    const float *class_weights,
        *factors;           // class_weights: or parameters of the elements; factors of samples, by class
    const int32_t *classes; // classes of the samples
    float *dx;
    double *losses;           // weighted losses of the samples, in scratch
    float *loss, *weight_sum; // STAT, may be NULL
    const dt_step_block *step;
    int id, kind, add_loss, add_weight; // kind: of targets
    float smoothing, param, share;      // share: factor of this loss in the sum of all
} dt_loss_args;

// What a group sums over a row: maximum and sum of exponentials, sums of x, of the target, of target * x and of 1, each
// times the class weights. The mean losses use sum_x only.
typedef struct dt_loss_sums {
    float max, z, x, q, qx, u;
} dt_loss_sums;

// Weights of the classes i to i + 7; 0 for those that there are not.
DT_FN void dt_loss_weights(const dt_loss_args *a, int V, int64_t i, float w[8]) {
    for (int k = 0; k < 8; k++) w[k] = 1.0f; // no class weights: ones
    if (a->class_weights) dt_get8_row(a->class_weights, DT_F32, V, i, a->r.n - i, w);
}
// What attrs.loss.by_sample multiplies a row by.
DT_FN float dt_loss_factor(const dt_loss_args *a, int64_t row) {
    if (!a->factors) return 1.0f;
    const int32_t y = a->classes[row];
    return y < 0 || y >= a->r.n ? 1.0f : a->factors[y]; // an invalid class: the loss is NaN anyway
}
// The weight of the row's class, which the row's own weight or dt_loss_factor contains already; sums over the classes of a
// row are divided by it.
DT_FN float dt_loss_class_weight(const dt_loss_args *a, int64_t row) {
    if (!a->class_weights || a->kind != DT_LOSS_CLASSES) return 1.0f;
    const int32_t y = a->classes[row];
    return y < 0 || y >= a->r.n ? 1.0f : a->class_weights[y];
}

DT_FN void dt_loss_take(const dt_loss_args *a, const dt_rows_share *s, dt_loss_sums *m, int V) {
    float x[8], q[8], w[8];
    m->max = -INFINITY; // an empty part: dt_join_exp skips -inf
    m->z = m->x = m->q = m->qx = m->u = 0.0f;
    if (s->row < 0 || a->weight[s->row] == 0.0f) return; // weight 0: padding rows of the last batch
    if (a->dx && a->kind >= DT_LOSS_ELEMENTS) return;    // its gradient needs no sums
    if (a->kind == DT_LOSS_ROTATION) {
        const int64_t at = s->row * a->r.n;
        if (s->lane == 0)
            // in double, by one lane: rows have six or nine elements
            m->x = (float)dt_rotation_loss(a->x + at, a->target + at, (int)a->r.n, (double)a->param, NULL);
        return;
    }
    for (int64_t i = s->lane * 8; i < a->r.n; i += a->r.group * 8) {
        const int64_t at = s->row * a->r.n + i, left = a->r.n - i;
        dt_get8_row(a->x, DT_F32, V, at, left, x);
        if (a->kind != DT_LOSS_CLASSES) dt_get8_row(a->target, DT_F32, V, at, left, q);
        dt_loss_weights(a, V, i, w);
        if (a->kind == DT_LOSS_ELEMENTS) {
            for (int k = 0; k < 8; k++)
                // padding columns contribute nothing
                if (k < left) m->x += dt_loss_value(a->id, x[k], q[k], a->class_weights ? w[k] : a->param);
            continue;
        }
        dt_take_exp(&m->max, &m->z, x, left); // log-sum-exp in one pass
        for (int k = 0; k < 8; k++) m->x += w[k] * x[k];
        for (int k = 0; k < 8 && a->class_weights; k++) m->u += w[k]; // sum of weights, for smoothing
        for (int k = 0; k < 8 && a->kind == DT_LOSS_SHARES; k++) m->q += w[k] * q[k], m->qx += w[k] * q[k] * x[k];
    }
}
DT_FN void dt_loss_join(dt_loss_sums *m, const dt_loss_sums *o) {
    dt_join_exp(&m->max, &m->z, o->max, o->z);
    m->x += o->x, m->q += o->q, m->qx += o->qx, m->u += o->u;
}
DT_FN dt_loss_parts dt_loss_parts_of(const dt_loss_args *a, int64_t row, const dt_loss_sums *m) {
    const double by = (double)a->r.n * (double)dt_loss_class_weight(a, row);
    dt_loss_parts p;
    p.lse = (double)m->max + log((double)m->z); // log-sum-exp: max + log z
    p.q = (double)m->q, p.qx = (double)m->qx;
    p.u = a->class_weights ? (double)m->u / by : 1, p.ux = (double)m->x / by; // the mean over classes, weighted
    if (a->kind == DT_LOSS_SHARES) return p;
    const int32_t y = a->classes[row];
    p.q = 1;                                                                    // a class is a distribution with one 1
    p.qx = y < 0 || y >= a->r.n ? (double)NAN : (double)a->x[row * a->r.n + y]; // an invalid class
    return p;
}
DT_FN double dt_loss_of(const dt_loss_args *a, int64_t row, const dt_loss_sums *m) {
    if (a->kind == DT_LOSS_ELEMENTS) return (double)m->x / (double)a->r.n; // mean over a row's elements
    if (a->kind == DT_LOSS_ROTATION) return (double)m->x;
    // label smoothing, as in PyTorch: (1 - s) H(q, p) + s H(u, p)
    const double entropy = dt_loss_cross_entropy(dt_loss_parts_of(a, row, m), (double)a->smoothing);
    return dt_loss_value(a->id, (float)entropy, 0, a->param); // focal and others are functions of the cross-entropy
}

#define DT_LOSS_SUM_ROWS(sums)                                                                                         \
    DT_SHARED(dt_loss_sums, sums, 256);                                                                                \
    DT_THREADS(t) {                                                                                                    \
        const dt_rows_share s = dt_rows_of(&a->r, DT_BLOCK, DT_BLOCK_DIM, t);                                          \
        if (a->r.whole)                                                                                                \
            dt_loss_take(a, &s, &sums[t], 1);                                                                          \
        else                                                                                                           \
            dt_loss_take(a, &s, &sums[t], 0);                                                                          \
    }                                                                                                                  \
    DT_TREE(t, half, a->r.group, 1, dt_loss_join(&sums[t], &sums[t + half]))

DT_KERNEL(loss_rows, dt_loss_args) {
    DT_LOSS_SUM_ROWS(sums);
    DT_THREADS(t) {
        const dt_rows_share s = dt_rows_of(&a->r, DT_BLOCK, DT_BLOCK_DIM, t);
        if (s.lane == 0 && s.row >= 0) {
            const double w = (double)a->weight[s.row];
            // weight 0: not 0 * NaN
            a->losses[s.row] = w == 0 ? 0 : w * (double)dt_loss_factor(a, s.row) * dt_loss_of(a, s.row, &sums[t]);
        }
    }
}

// One block of 1024 threads.
DT_KERNEL_BOUND(loss_finish, dt_loss_args, 1024, 1) {
    DT_SHARED(double, loss, 1024);
    DT_SHARED(double, weight, 1024);
    DT_THREADS(t) {
        double l = 0, w = 0;
        // a thread's samples in order
        for (int64_t i = t; i < a->r.rows; i += 1024) l += a->losses[i], w += (double)a->weight[i];
        loss[t] = l, weight[t] = w;
    }
    DT_TREE(t, half, 1024, 1, loss[t] += loss[t + half]; weight[t] += weight[t + half]);
    DT_THREADS(t) {
        if (t == 0 && a->loss) dt_store_sum(a->loss, 0, a->add_loss, loss[0] * (double)a->share);
        if (t == 0 && a->weight_sum) dt_store_sum(a->weight_sum, 0, a->add_weight, weight[0]);
    }
}

DT_FN void dt_loss_write(const dt_loss_args *a, const dt_rows_share *s, const dt_loss_sums *m, int V) {
    float x[8], q[8], weights[8];
    if (s->row < 0) return;
    const float w = a->weight[s->row];
    float g = w * a->step->loss_scale * a->share; // dx carries the loss scale
    if (a->kind == DT_LOSS_ROTATION && w != 0.0f) {
        double dx[6];
        const int64_t at = s->row * a->r.n;
        if (s->lane) return; // one lane writes the row
        (void)dt_rotation_loss(a->x + at, a->target + at, (int)a->r.n, (double)a->param, dx);
        for (int k = 0; k < (int)a->r.n; k++) a->dx[at + k] = (float)((double)g * dx[k]);
        return;
    }
    const float k_inv = 1.0f / (float)a->r.n, smooth = a->smoothing;
    float mass = 0.0f, share = 0.0f;
    if (w != 0.0f && a->kind < DT_LOSS_ELEMENTS) {
        g *= dt_loss_factor(a, s->row);
        const dt_loss_parts p = dt_loss_parts_of(a, s->row, m);
        const double entropy = dt_loss_cross_entropy(p, (double)smooth);
        g *= dt_loss_slope(a->id, (float)entropy, 0, a->param);   // the chain rule over the cross-entropy
        mass = (float)dt_loss_mass(p, (double)smooth);            // sum of the target's weights: softmax's factor
        share = smooth * k_inv / dt_loss_class_weight(a, s->row); // smoothing's part of each class
    }
    const int32_t y = a->kind == DT_LOSS_CLASSES && w != 0.0f ? a->classes[s->row] : 0;
    for (int64_t i = s->lane * 8; i < a->r.n; i += a->r.group * 8) {
        const int64_t at = s->row * a->r.n + i, left = a->r.n - i;
        for (int k = 0; k < 8; k++) q[k] = 0.0f;
        if (w == 0.0f) { // unread rows get zero gradients
            dt_put8_row(a->dx, DT_F32, V, at, left, q);
            continue;
        }
        dt_get8_row(a->x, DT_F32, V, at, left, x);
        if (a->kind != DT_LOSS_CLASSES) dt_get8_row(a->target, DT_F32, V, at, left, q);
        dt_loss_weights(a, V, i, weights);
        for (int k = 0; k < 8; k++) {
            if (a->kind == DT_LOSS_ELEMENTS) {
                x[k] = g * k_inv * dt_loss_slope(a->id, x[k], q[k], a->class_weights ? weights[k] : a->param);
                continue;
            }
            // one-hot, or weighted shares
            q[k] = a->kind == DT_LOSS_CLASSES ? (i + k == y ? 1.0f : 0.0f) : q[k] * weights[k];
            // softmax - target
            x[k] = expf(x[k] - m->max) * (mass / m->z) - share * weights[k] - (1.0f - smooth) * q[k];
            x[k] *= g;
        }
        if (i == 0 && (y < 0 || y >= a->r.n)) x[0] = NAN; // an invalid class shows in the gradient too
        dt_put8_row(a->dx, DT_F32, V, at, left, x);
    }
}
DT_KERNEL(loss_bwd, dt_loss_args) {
    DT_LOSS_SUM_ROWS(sums);
    DT_THREADS(t) {
        const dt_rows_share s = dt_rows_of(&a->r, DT_BLOCK, DT_BLOCK_DIM, t);
        if (a->r.whole)
            dt_loss_write(a, &s, &sums[t - s.lane], 1); // sums lie with lane 0 of the group
        else
            dt_loss_write(a, &s, &sums[t - s.lane], 0);
    }
}

// ---- embedding loss -----------------------------------------------------------------------------------------------

// L2_normalize, arc_margin and triplet (graph/ops), in f32 over DENSE rows; the contract is that
// of cpu/loss_cpu.c.
//
//   l2_rows            a group of threads shares a row; with dy the gradient
//   arc_rows           elements; that of the sample's class has the margin; with dy the gradient
//   triplet_rows       a group shares a sample and divides the others -> its hardest two and its weighted loss, in scratch;
//                      loss_finish adds the losses up
//   triplet_bwd        a thread has an element of dx, and walks the samples in order

typedef struct dt_l2_args {
    dt_rows r;
    const float *x, *dy;
    float *out;
} dt_l2_args;
typedef struct dt_l2_sums {
    float xx, xd; // x.x; x.dy
} dt_l2_sums;

DT_FN void dt_l2_take(const dt_l2_args *a, const dt_rows_share *s, dt_l2_sums *m) {
    m->xx = m->xd = 0.0f;
    // threads without a row still take part in the tree
    for (int64_t i = s->lane; s->row >= 0 && i < a->r.n; i += a->r.group) {
        const float x = a->x[s->row * a->r.n + i];
        m->xx += x * x;
        if (a->dy) m->xd += x * a->dy[s->row * a->r.n + i];
    }
}
DT_FN void dt_l2_join(dt_l2_sums *m, const dt_l2_sums *o) {
    m->xx += o->xx, m->xd += o->xd;
}
DT_FN void dt_l2_write(const dt_l2_args *a, const dt_rows_share *s, const dt_l2_sums *m) {
    const float by = 1.0f / fmaxf(sqrtf(m->xx), 1e-12f);       // norms below 1e-12 count as 1e-12, as in PyTorch
    const float along = m->xx > 1e-24f ? m->xd / m->xx : 0.0f; // at a norm below 1e-12 the divisor is constant
    for (int64_t i = s->lane; s->row >= 0 && i < a->r.n; i += a->r.group) {
        const int64_t at = s->row * a->r.n + i;
        const float x = a->x[at];
        a->out[at] = a->dy ? (a->dy[at] - x * along) * by : x * by; // dy less its part along x
    }
}
DT_KERNEL(l2_rows, dt_l2_args) {
    DT_SHARED(dt_l2_sums, sums, 256);
    DT_THREADS(t) {
        const dt_rows_share s = dt_rows_of(&a->r, DT_BLOCK, DT_BLOCK_DIM, t);
        dt_l2_take(a, &s, &sums[t]);
    }
    DT_TREE(t, half, a->r.group, 1, dt_l2_join(&sums[t], &sums[t + half]));
    DT_THREADS(t) {
        const dt_rows_share s = dt_rows_of(&a->r, DT_BLOCK, DT_BLOCK_DIM, t);
        dt_l2_write(a, &s, &sums[t - s.lane]);
    }
}

typedef struct dt_arc_args {
    dt_rows r;
    const float *x, *dy; // forward: dy is NULL
    const int32_t *target;
    float *out;
    float margin, scale;
} dt_arc_args;

DT_KERNEL(arc_rows, dt_arc_args) {
    DT_THREADS(t) {
        const dt_rows_share s = dt_rows_of(&a->r, DT_BLOCK, DT_BLOCK_DIM, t);
        for (int64_t i = s.lane; s.row >= 0 && i < a->r.n; i += a->r.group) {
            const int64_t at = s.row * a->r.n + i;
            float slope = 1.0f, y = a->x[at];
            // slope 1 for other classes
            if (i == a->target[s.row]) y = dt_arc_margin_of(y, a->margin, a->scale, &slope);
            a->out[at] = a->dy ? a->dy[at] * slope : y;
        }
    }
}

typedef struct dt_hardest {
    int64_t positive, negative; // -1: none
    float far, near;            // distances
    int active;                 // its loss is above 0
} dt_hardest;
typedef struct dt_triplet_args {
    dt_rows r; // of rows candidates
    int64_t n; // elements of an embedding
    const float *x, *weight;
    const int32_t *target;
    const dt_step_block *step;
    dt_hardest *hardest;
    double *losses;
    float *dx;
    float margin, share;
    int semihard;
} dt_triplet_args;

// f32 sum in element order
DT_FN float dt_triplet_distance(const dt_triplet_args *a, int64_t i, int64_t k) {
    float sum = 0.0f;
    for (int64_t e = 0; e < a->n; e++) {
        const float d = a->x[i * a->n + e] - a->x[k * a->n + e];
        sum += d * d;
    }
    return sqrtf(sum);
}
// Of two equal ones the first.
DT_FN void dt_take_positive(dt_hardest *h, int64_t k, float d) {
    if (k < 0) return;
    if (h->positive < 0 || d > h->far || (d == h->far && k < h->positive)) h->positive = k, h->far = d;
}
DT_FN void dt_take_negative(dt_hardest *h, int64_t k, float d) {
    if (k < 0) return;
    if (h->negative < 0 || d < h->near || (d == h->near && k < h->negative)) h->negative = k, h->near = d;
}
// Of the samples of its class, or (other) of those of other classes that are further than `beyond`.
DT_FN void dt_triplet_take(const dt_triplet_args *a, const dt_rows_share *s, dt_hardest *h, int other, float beyond) {
    if (s->row < 0 || a->weight[s->row] == 0.0f) return;
    for (int64_t k = s->lane; k < a->r.rows; k += a->r.group) {
        if (k == s->row || a->weight[k] == 0.0f) continue;          // a sample is no partner of its own
        if ((a->target[k] != a->target[s->row]) != other) continue; // other: samples of other classes
        const float d = dt_triplet_distance(a, s->row, k);
        if (!other)
            dt_take_positive(h, k, d);
        else if (d > beyond) // semi-hard: further than the hardest positive
            dt_take_negative(h, k, d);
    }
}
DT_FN void dt_triplet_join(dt_hardest *h, const dt_hardest *o) {
    dt_take_positive(h, o->positive, o->far);
    dt_take_negative(h, o->negative, o->near);
}
DT_KERNEL(triplet_rows, dt_triplet_args) {
    DT_SHARED(dt_hardest, all, 256);
    DT_THREADS(t) {
        const dt_rows_share s = dt_rows_of(&a->r, DT_BLOCK, DT_BLOCK_DIM, t);
        const dt_hardest none = {-1, -1, 0.0f, 0.0f, 0};
        all[t] = none;
        dt_triplet_take(a, &s, &all[t], 0, 0.0f);
    }
    DT_TREE(t, half, a->r.group, 1, dt_triplet_join(&all[t], &all[t + half]));
    DT_THREADS(t) {
        const dt_rows_share s = dt_rows_of(&a->r, DT_BLOCK, DT_BLOCK_DIM, t);
        dt_triplet_take(a, &s, &all[t], 1, a->semihard ? all[t - s.lane].far : -1.0f); // -1: all distances
    }
    DT_TREE(t, half, a->r.group, 1, dt_triplet_join(&all[t], &all[t + half]));
    DT_THREADS(t) {
        const dt_rows_share s = dt_rows_of(&a->r, DT_BLOCK, DT_BLOCK_DIM, t);
        if (s.lane == 0 && s.row >= 0) {
            dt_hardest h = all[t];
            float loss = a->margin + h.far - h.near;
            if (h.positive < 0 || h.negative < 0 || loss < 0.0f) loss = 0.0f; // no partner, or no violation
            h.active = loss != 0.0f;
            a->hardest[s.row] = h;
            a->losses[s.row] = (double)a->weight[s.row] * (double)loss; // loss_finish adds them up
        }
    }
}

// How dx of sample i at element e changes with the distance between samples i and k.
DT_FN float dt_triplet_pull(const dt_triplet_args *a, int64_t i, int64_t k, int64_t e, float d) {
    // coinciding points: subgradient 0, no division by 0
    return d > 0.0f ? (a->x[i * a->n + e] - a->x[k * a->n + e]) / d : 0.0f;
}
DT_KERNEL(triplet_bwd, dt_triplet_args) {
    DT_THREADS(t) {
        const int64_t at = (int64_t)DT_BLOCK * DT_BLOCK_DIM + t;
        const int64_t i = at / a->n, e = at % a->n;
        float sum = 0.0f;
        for (int64_t s = 0; s < a->r.rows && i < a->r.rows; s++) {
            const dt_hardest *h = &a->hardest[s];
            const float w = a->weight[s];
            if (!h->active) continue; // no gradient
            if (i == s)               // i is the anchor
                sum += w *
                       (dt_triplet_pull(a, i, h->positive, e, h->far) - dt_triplet_pull(a, i, h->negative, e, h->near));
            if (i == h->positive) sum += w * dt_triplet_pull(a, i, s, e, h->far); // i is the positive of s
            if (i == h->negative) sum -= w * dt_triplet_pull(a, i, s, e, h->near);
        }
        if (i < a->r.rows) a->dx[at] = sum * a->share * a->step->loss_scale;
    }
}

#endif
