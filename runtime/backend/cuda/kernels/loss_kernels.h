// loss_kernels.h: the losses of graph/losses.h, in f32 over DENSE rows of one sample each. For the meaning of targets,
// weights and smoothing see cpu/loss_cpu.c.
//
//   loss_rows    each sample's weighted loss -> scratch (double)
//   loss_finish  STAT sums of losses and weights over the samples, in one block
//   loss_bwd     dx times weight and loss scale, which is read from the step block on the device
//
// Samples of weight 0 are not read. A class outside 0..K-1 gives NaN.
// Moves: forward 4nK, + 4nK with distributions; backward 8nK (+ 4nK).
#ifndef DT_LOSS_KERNELS_H
#define DT_LOSS_KERNELS_H

#include "backend/cuda/kernels/softmax_kernels.h"

#define DT_LOSS_REAL float
#include "graph/losses.h"
#include "graph/rotation.h"

enum { // kinds of target; the first two are for losses over classes
    DT_LOSS_CLASSES,
    DT_LOSS_SHARES,
    DT_LOSS_ELEMENTS,
    DT_LOSS_ROTATION // of a row, which one lane computes
};

typedef struct dt_loss_args {
    dt_rows r;
    const float *x, *target, *weight;
    const int32_t *classes;
    float *dx;
    double *losses;
    float *loss, *weight_sum; // STAT, may be NULL
    const dt_step_block *step;
    int id, kind, add_loss, add_weight; // kind: of targets
    float smoothing, param, share;
} dt_loss_args;

// What a group sums over a row: maximum and sum of exponentials, sums of x, of the target and of target * x. The mean
// losses use sum_x only.
typedef struct dt_loss_sums {
    float max, z, x, q, qx;
} dt_loss_sums;

DT_FN void dt_loss_take(const dt_loss_args *a, const dt_rows_share *s, dt_loss_sums *m, int V) {
    float x[8], q[8];
    m->max = -INFINITY;
    m->z = m->x = m->q = m->qx = 0.0f;
    if (s->row < 0 || a->weight[s->row] == 0.0f) return;
    if (a->dx && a->kind >= DT_LOSS_ELEMENTS) return; // its gradient needs no sums
    if (a->kind == DT_LOSS_ROTATION) {
        const int64_t at = s->row * a->r.n;
        if (s->lane == 0)
            m->x = (float)dt_rotation_loss(a->x + at, a->target + at, (int)a->r.n, (double)a->param,
                                           NULL);
        return;
    }
    for (int64_t i = s->lane * 8; i < a->r.n; i += a->r.group * 8) {
        const int64_t at = s->row * a->r.n + i, left = a->r.n - i;
        dt_get8_row(a->x, DT_F32, V, at, left, x);
        if (a->kind != DT_LOSS_CLASSES) dt_get8_row(a->target, DT_F32, V, at, left, q);
        if (a->kind == DT_LOSS_ELEMENTS) {
            for (int k = 0; k < 8; k++)
                if (k < left) m->x += dt_loss_value(a->id, x[k], q[k], a->param);
            continue;
        }
        dt_take_exp(&m->max, &m->z, x, left);
        for (int k = 0; k < 8; k++) m->x += x[k];
        for (int k = 0; k < 8 && a->kind == DT_LOSS_SHARES; k++) m->q += q[k], m->qx += q[k] * x[k];
    }
}
DT_FN void dt_loss_join(dt_loss_sums *m, const dt_loss_sums *o) {
    dt_join_exp(&m->max, &m->z, o->max, o->z);
    m->x += o->x, m->q += o->q, m->qx += o->qx;
}
DT_FN double dt_loss_cross_entropy(const dt_loss_args *a, int64_t row, const dt_loss_sums *m) {
    const double s = (double)a->smoothing, k = (double)a->r.n;
    const double lse = (double)m->max + log((double)m->z);
    if (a->kind == DT_LOSS_SHARES)
        return lse * ((1 - s) * (double)m->q + s) - (1 - s) * (double)m->qx - s / k * (double)m->x;
    const int32_t y = a->classes[row];
    if (y < 0 || y >= a->r.n) return (double)NAN;
    return lse - (1 - s) * (double)a->x[row * a->r.n + y] - s / k * (double)m->x;
}
DT_FN double dt_loss_of(const dt_loss_args *a, int64_t row, const dt_loss_sums *m) {
    if (a->kind == DT_LOSS_ELEMENTS) return (double)m->x / (double)a->r.n;
    if (a->kind == DT_LOSS_ROTATION) return (double)m->x;
    return dt_loss_value(a->id, (float)dt_loss_cross_entropy(a, row, m), 0, a->param);
}

#define DT_LOSS_SUM_ROWS(sums)                                                                     \
    DT_SHARED(dt_loss_sums, sums, 256);                                                            \
    DT_THREADS(t) {                                                                                \
        const dt_rows_share s = dt_rows_of(&a->r, DT_BLOCK, DT_BLOCK_DIM, t);                      \
        if (a->r.whole)                                                                            \
            dt_loss_take(a, &s, &sums[t], 1);                                                      \
        else                                                                                       \
            dt_loss_take(a, &s, &sums[t], 0);                                                      \
    }                                                                                              \
    DT_TREE(t, half, a->r.group, 1, dt_loss_join(&sums[t], &sums[t + half]))

DT_KERNEL(loss_rows, dt_loss_args) {
    DT_LOSS_SUM_ROWS(sums);
    DT_THREADS(t) {
        const dt_rows_share s = dt_rows_of(&a->r, DT_BLOCK, DT_BLOCK_DIM, t);
        if (s.lane == 0 && s.row >= 0) {
            const double w = (double)a->weight[s.row];
            a->losses[s.row] = w == 0 ? 0 : w * dt_loss_of(a, s.row, &sums[t]);
        }
    }
}

// One block of 1024 threads.
DT_KERNEL_BOUND(loss_finish, dt_loss_args, 1024, 1) {
    DT_SHARED(double, loss, 1024);
    DT_SHARED(double, weight, 1024);
    DT_THREADS(t) {
        double l = 0, w = 0;
        for (int64_t i = t; i < a->r.rows; i += 1024) l += a->losses[i], w += (double)a->weight[i];
        loss[t] = l, weight[t] = w;
    }
    DT_TREE(t, half, 1024, 1, loss[t] += loss[t + half]; weight[t] += weight[t + half]);
    DT_THREADS(t) {
        if (t == 0 && a->loss) dt_store_sum(a->loss, 0, a->add_loss, loss[0] * (double)a->share);
        if (t == 0 && a->weight_sum) dt_store_sum(a->weight_sum, 0, a->add_weight, weight[0]);
    }
}

DT_FN void dt_loss_write(const dt_loss_args *a, const dt_rows_share *s, const dt_loss_sums *m,
                         int V) {
    float x[8], q[8];
    if (s->row < 0) return;
    const float w = a->weight[s->row];
    float g = w * a->step->loss_scale * a->share;
    if (a->kind == DT_LOSS_ROTATION && w != 0.0f) {
        double dx[6];
        const int64_t at = s->row * a->r.n;
        if (s->lane) return;
        (void)dt_rotation_loss(a->x + at, a->target + at, (int)a->r.n, (double)a->param, dx);
        for (int k = 0; k < (int)a->r.n; k++) a->dx[at + k] = (float)((double)g * dx[k]);
        return;
    }
    if (w != 0.0f && a->kind < DT_LOSS_ELEMENTS)
        g *= dt_loss_slope(a->id, (float)dt_loss_cross_entropy(a, s->row, m), 0, a->param);
    const float k_inv = 1.0f / (float)a->r.n, smooth = a->smoothing;
    const float mass = a->kind == DT_LOSS_CLASSES ? 1.0f : (1.0f - smooth) * m->q + smooth;
    const int32_t y = a->kind == DT_LOSS_CLASSES && w != 0.0f ? a->classes[s->row] : 0;
    for (int64_t i = s->lane * 8; i < a->r.n; i += a->r.group * 8) {
        const int64_t at = s->row * a->r.n + i, left = a->r.n - i;
        for (int k = 0; k < 8; k++) q[k] = 0.0f;
        if (w == 0.0f) {
            dt_put8_row(a->dx, DT_F32, V, at, left, q);
            continue;
        }
        dt_get8_row(a->x, DT_F32, V, at, left, x);
        if (a->kind != DT_LOSS_CLASSES) dt_get8_row(a->target, DT_F32, V, at, left, q);
        for (int k = 0; k < 8; k++) {
            if (a->kind == DT_LOSS_ELEMENTS) {
                x[k] = g * dt_loss_slope(a->id, x[k], q[k], a->param) * k_inv;
                continue;
            }
            if (a->kind == DT_LOSS_CLASSES) q[k] = i + k == y ? 1.0f : 0.0f;
            x[k] = expf(x[k] - m->max) * (mass / m->z) - smooth * k_inv - (1.0f - smooth) * q[k];
            x[k] *= g;
        }
        if (i == 0 && (y < 0 || y >= a->r.n)) x[0] = NAN;
        dt_put8_row(a->dx, DT_F32, V, at, left, x);
    }
}
DT_KERNEL(loss_bwd, dt_loss_args) {
    DT_LOSS_SUM_ROWS(sums);
    DT_THREADS(t) {
        const dt_rows_share s = dt_rows_of(&a->r, DT_BLOCK, DT_BLOCK_DIM, t);
        if (a->r.whole)
            dt_loss_write(a, &s, &sums[t - s.lane], 1);
        else
            dt_loss_write(a, &s, &sums[t - s.lane], 0);
    }
}

#endif
