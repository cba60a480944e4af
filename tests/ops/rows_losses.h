// rows_losses.h: the losses, with classes and with soft targets, weights of samples and classes, and smoothing.
#ifndef DT_TESTS_OPS_ROWS_LOSSES_H
#define DT_TESTS_OPS_ROWS_LOSSES_H

#include "config/words.h"
#include "custom_rows.h"

#include "batch/losses.h"

// Columns of the rotation that n numbers stand for, by turning the axes one after the other.
static void turn_about(double v[3], int axis, double angle) {
    const int i = (axis + 1) % 3, k = (axis + 2) % 3;
    const double a = v[i], b = v[k];
    v[i] = a * cos(angle) - b * sin(angle);
    v[k] = a * sin(angle) + b * cos(angle);
}
static void columns_of(const double *x, int64_t n, double unit, double m[3][3]) {
    double dot = 0, n1 = 0, n2 = 0;
    for (int c = 0; c < 3; c++)
        for (int i = 0; i < 3; i++) m[c][i] = c == i;
    for (int c = 0; c < 3 && n == 3; c++)
        for (int axis = 0; axis < 3; axis++) turn_about(m[c], axis, x[axis] * unit);
    if (n == 3) return;
    for (int i = 0; i < 3; i++) n1 += x[i] * x[i];
    for (int i = 0; i < 3; i++) m[0][i] = x[i] / sqrt(n1), dot += m[0][i] * x[3 + i];
    for (int i = 0; i < 3; i++) m[1][i] = x[3 + i] - dot * m[0][i], n2 += m[1][i] * m[1][i];
    for (int i = 0; i < 3; i++) m[1][i] /= sqrt(n2);
    for (int i = 0; i < 3; i++) m[2][i] = m[0][(i + 1) % 3] * m[1][(i + 2) % 3] - m[0][(i + 2) % 3] * m[1][(i + 1) % 3];
}
static double angle_of(const double *x, const double *t, int64_t n, double unit) {
    double p[3][3], q[3][3], trace = 0;
    columns_of(x, n, unit, p);
    columns_of(t, n, unit, q);
    for (int c = 0; c < 3; c++)
        for (int i = 0; i < 3; i++) trace += p[c][i] * q[c][i];
    return acos((trace - 1) / 2);
}
static void ref_loss(const custom_case *c, double *const *in, double *const *out) {
    int64_t n = c->in_shape[0].d[0], k = count(&c->in_shape[0]) / n;
    bool hard = c->in_type[1] == DT_I32;
    const double *weights = c->in_shape[3].n < 0 ? NULL : in[3];
    double s = (double)c->attrs.loss.smoothing, param = (double)c->attrs.loss.param;
    out[0][0] = out[1][0] = 0;
    for (int64_t i = 0; i < n; i++) {
        const double *x = in[0] + i * k;
        double loss = 0, z = 0, w = in[2][i];
        for (int64_t j = 0; j < k; j++) z += exp(x[j]);
        for (int64_t j = 0; j < k; j++) {
            double t = hard ? in[1][i] == (double)j : in[1][i * k + j], d = x[j] - t;
            switch ((dt_loss_id)c->attrs.loss.id) {
            case DT_LOSS_cross_entropy:
            case DT_LOSS_focal:
                loss -= ((1 - s) * t + s / (double)k) * (x[j] - log(z)) *
                        (weights && c->attrs.loss.id == DT_LOSS_cross_entropy ? weights[j] : 1) /
                        (weights && hard && !c->attrs.loss.by_sample && c->attrs.loss.id == DT_LOSS_cross_entropy
                             ? weights[(int64_t)in[1][i]]
                             : 1);
                break;
            case DT_LOSS_bce: {
                const double positive = weights ? weights[j] : param;
                loss += ((1 - t) * log1p(exp(x[j])) + positive * t * log1p(exp(-x[j]))) / (double)k;
                break;
            }
            case DT_LOSS_l1:
                loss += fabs(d) / (double)k;
                break;
            case DT_LOSS_huber:
                loss += (fabs(d) < param ? d * d / 2 : param * (fabs(d) - param / 2)) / (double)k;
                break;
            case DT_LOSS_poisson:
                loss += (exp(x[j]) - t * x[j]) / (double)k;
                break;
            case DT_LOSS_mse:
                loss += d * d / (double)k;
                break;
            case DT_LOSS_arcface:
            case DT_LOSS_geodesic: // below
            case DT_N_LOSSES:
                break;
            case DT_LOSS_smooth_l1:
                loss += (fabs(d) < param ? d * d / 2 / param : fabs(d) - param / 2) / (double)k;
            }
        }
        if (c->attrs.loss.id == DT_LOSS_geodesic) loss = angle_of(x, in[1] + i * k, k, param);
        if (c->attrs.loss.id == DT_LOSS_focal) loss *= pow(1 - exp(-loss), param);
        if (c->attrs.loss.by_sample && c->attrs.loss.id == DT_LOSS_focal) loss *= weights[(int64_t)in[1][i]];
        out[0][0] += (double)c->attrs.loss.share * w * loss;
        out[1][0] += w;
    }
}
static bool fill_loss(const custom_case *c, int i, double *x) {
    if (i == 1 && c->in_type[1] == DT_I32) {
        for (int64_t n = 0; n < c->in_shape[1].d[0]; n++) x[n] = (double)(n * 11 % c->in_shape[0].d[1]);
        return true;
    }
    for (int64_t n = 0; i == 2 && n < c->in_shape[2].d[0]; n++) x[n] = n % 3 == 1 ? 0 : 0.5 + (double)n;
    for (int64_t n = 0; i == 3 && n < c->in_shape[3].d[0]; n++) x[n] = 0.25 + (double)(n % 4);
    return i >= 2;
}
static void run_loss_weighing(dt_loss_id id, dt_shape x, bool hard, float smoothing, float param, bool weights,
                              bool by_sample) {
    custom_case c = {.name = dt_losses[id].id,
                     .op = DT_OP_loss,
                     .n_in = 4,
                     .n_out = 2,
                     .in_shape = {x, hard ? S1(x.d[0]) : x, S1(x.d[0]), weights ? S1(x.d[1]) : (dt_shape){.n = -1}},
                     .out_shape = {S0(), S0()},
                     .in_type = {DT_F32, hard ? DT_I32 : DT_F32},
                     .stat_out = 3,
                     .compare_out = 3,
                     .grad_in = 1,
                     .save_in = 15,
                     .is_loss = true,
                     .f32_only = true,
                     .low = -4,
                     .high = 4,
                     .fill = fill_loss,
                     .reference = ref_loss};
    c.attrs.loss.id = id, c.attrs.loss.smoothing = smoothing, c.attrs.loss.param = param;
    c.attrs.loss.share = 0.75f; // of several losses
    c.attrs.loss.by_sample = by_sample;
    custom_case_run(&c);
}
static void run_loss(dt_loss_id id, dt_shape x, bool hard, float smoothing, float param) {
    run_loss_weighing(id, x, hard, smoothing, param, false, false);
}
TEST(test_class_weights) {
    run_loss_weighing(DT_LOSS_cross_entropy, S2(5, 7), true, 0.1f, 0, true, false);
    run_loss_weighing(DT_LOSS_cross_entropy, S2(4, 1000), true, 0.3f, 0, true, false);
    run_loss_weighing(DT_LOSS_cross_entropy, S2(4, 19), false, 0, 0, true, false);
    run_loss_weighing(DT_LOSS_cross_entropy, S2(5, 48), false, 0.2f, 0, true, false);
    run_loss_weighing(DT_LOSS_cross_entropy, S2(5, 7), true, 0, 0, true, true);
    run_loss_weighing(DT_LOSS_cross_entropy, S2(5, 33), true, 0.2f, 0, true, true);
    run_loss_weighing(DT_LOSS_focal, S2(5, 7), true, 0, 2, true, true);
    run_loss_weighing(DT_LOSS_bce, S2(5, 7), false, 0, 0, true, false);
    run_loss_weighing(DT_LOSS_bce, S2(3, 33), false, 0, 0, true, false);
}
TEST(test_losses) {
    run_loss(DT_LOSS_cross_entropy, S2(5, 45), true, 0, 0);
    run_loss(DT_LOSS_cross_entropy, S2(5, 7), true, 0.1f, 0);
    run_loss(DT_LOSS_cross_entropy, S2(4, 19), false, 0.2f, 0);
    run_loss(DT_LOSS_cross_entropy, S2(3, 1000), true, 0.1f, 0);
    run_loss(DT_LOSS_cross_entropy, S2(2, 9000), false, 0.1f, 0);
    run_loss(DT_LOSS_focal, S2(5, 45), true, 0, 2);
    run_loss(DT_LOSS_focal, S2(4, 19), true, 0.1f, 0.5f);
    run_loss(DT_LOSS_focal, S2(3, 19), false, 0.2f, 3);
    run_loss(DT_LOSS_mse, S2(3, 64), false, 0, 0);
    run_loss(DT_LOSS_bce, S2(4, 19), false, 0, 1);
    run_loss(DT_LOSS_bce, S2(4, 19), false, 0, 2.5f);
    run_loss(DT_LOSS_l1, S2(4, 19), false, 0, 0);
    run_loss(DT_LOSS_huber, S2(4, 19), false, 0, 1.5f);
    run_loss(DT_LOSS_poisson, S2(4, 19), false, 0, 0);
    run_loss(DT_LOSS_mse, S3(4, 3, 6), false, 0, 0);
    run_loss(DT_LOSS_smooth_l1, S2(4, 19), false, 0, 1.5f);
    run_loss(DT_LOSS_geodesic, S2(5, 6), false, 0, 1);
    run_loss(DT_LOSS_geodesic, S2(5, 3), false, 0, 1);
    run_loss(DT_LOSS_geodesic, S2(5, 3), false, 0, 0.3f);
}

// Losses of embeddings.
static void ref_l2(const custom_case *c, double *const *in, double *const *out) {
    const dt_shape *s = &c->in_shape[0];
    const int64_t n = s->d[s->n - 1];
    for (int64_t i = 0; i < count(s); i += n) {
        double sum = 0;
        for (int64_t k = i; k < i + n; k++) sum += in[0][k] * in[0][k];
        for (int64_t k = i; k < i + n; k++) out[0][k] = in[0][k] / sqrt(sum);
    }
}
TEST(test_l2_normalize) {
    const dt_shape shapes[] = {S2(5, 45), S2(3, 7), S3(2, 3, 64), S2(2, 2000), S1(9)};
    for (int k = 0; k < 5; k++) {
        custom_case c = one_to_one((custom_case){.name = "l2_normalize",
                                                 .op = DT_OP_l2_normalize,
                                                 .grad_in = 1,
                                                 .save_in = 1,
                                                 .f32_only = true,
                                                 .reference = ref_l2});
        c.in_shape[0] = c.out_shape[0] = shapes[k];
        custom_case_run(&c);
    }
}

static void ref_arc_margin(const custom_case *c, double *const *in, double *const *out) {
    const int64_t n = c->in_shape[0].d[1];
    const double m = (double)c->attrs.arc_margin.margin, s = (double)c->attrs.arc_margin.scale;
    for (int64_t i = 0; i < count(&c->in_shape[0]); i++) {
        const double angle = acos(in[0][i] / s);
        out[0][i] = in[0][i];
        if (in[1][i / n] != (double)(i % n)) continue;
        out[0][i] = s * (angle + m > M_PI ? cos(angle) - m * sin(m) : cos(angle + m));
    }
}
static bool fill_arc(const custom_case *c, int i, double *x) {
    for (int64_t n = 0; i == 1 && n < c->in_shape[1].d[0]; n++) x[n] = (double)(n * 5 % c->in_shape[0].d[1]);
    if (i == 0) x[0] = -0.99 * (double)c->attrs.arc_margin.scale; // beyond pi
    for (int64_t n = 1; i == 0 && n < count(&c->in_shape[0]); n++)
        x[n] = (double)c->attrs.arc_margin.scale * cos(0.3 + 0.37 * (double)(n % 7));
    return true;
}
TEST(test_arc_margin) {
    for (int k = 0; k < 3; k++) {
        custom_case c = {.name = "arc_margin",
                         .op = DT_OP_arc_margin,
                         .n_in = 2,
                         .n_out = 1,
                         .in_shape = {S2(6, 11), S1(6)},
                         .out_shape = {S2(6, 11)},
                         .in_type = {DT_F32, DT_I32},
                         .compare_out = 1,
                         .grad_in = 1,
                         .save_in = 3,
                         .f32_only = true,
                         .fill = fill_arc,
                         .reference = ref_arc_margin};
        c.attrs.arc_margin.margin = 0.25f * (float)k, c.attrs.arc_margin.scale = k ? 16 : 1;
        custom_case_run(&c);
    }
}

static double distance_of(const double *a, const double *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (a[i] - b[i]) * (a[i] - b[i]);
    return sqrt(sum);
}
static void ref_triplet(const custom_case *c, double *const *in, double *const *out) {
    const int64_t rows = c->in_shape[0].d[0], n = c->in_shape[0].d[1];
    out[0][0] = out[1][0] = 0;
    for (int64_t i = 0; i < rows; i++) {
        double far = -1, near = INFINITY;
        out[1][0] += in[2][i];
        for (int64_t k = 0; k < rows; k++)
            if (k != i && in[2][k] != 0 && in[1][k] == in[1][i])
                far = fmax(far, distance_of(in[0] + i * n, in[0] + k * n, n));
        for (int64_t k = 0; k < rows; k++) {
            const double d = distance_of(in[0] + i * n, in[0] + k * n, n);
            if (in[2][k] == 0 || in[1][k] == in[1][i]) continue;
            if (d > far || !c->attrs.triplet.semihard) near = fmin(near, d);
        }
        if (far < 0 || isinf(near)) continue;
        out[0][0] += in[2][i] * (double)c->attrs.triplet.share * fmax(0, (double)c->attrs.triplet.margin + far - near);
    }
}
static bool fill_triplet(const custom_case *c, int i, double *x) {
    for (int64_t n = 0; i == 1 && n < c->in_shape[1].d[0]; n++) x[n] = (double)(n / 4 % 3);
    for (int64_t n = 0; i == 2 && n < c->in_shape[2].d[0]; n++) x[n] = n == 2 ? 0 : 1 + 0.5 * (n % 3);
    return i > 0;
}
TEST(test_triplet) {
    const dt_shape shapes[] = {S2(12, 5), S2(13, 33), S2(3, 4), S2(40, 200)};
    for (int k = 0; k < 8; k++) {
        const dt_shape *shape = &shapes[k / 2];
        custom_case c = {.name = "triplet",
                         .op = DT_OP_triplet,
                         .n_in = 3,
                         .n_out = 2,
                         .in_shape = {*shape, S1(shape->d[0]), S1(shape->d[0])},
                         .out_shape = {S0(), S0()},
                         .in_type = {DT_F32, DT_I32},
                         .stat_out = 3,
                         .compare_out = 3,
                         .grad_in = 1,
                         .save_in = 7,
                         .is_loss = true,
                         .f32_only = true,
                         .fill = fill_triplet,
                         .reference = ref_triplet};
        c.attrs.triplet.semihard = k & 1; // whose distances differ little
        c.attrs.triplet.margin = k & 1 ? 2 : 0.2f, c.attrs.triplet.share = 0.75f;
        custom_case_run(&c);
    }
}

#endif
