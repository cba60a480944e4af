// rows_batch_norm.h: batch norm: training, inference and frozen in training, with ReLU, with a 2x2 pool, with a residual;
// on CUDA with another activation.
#ifndef DT_TESTS_OPS_ROWS_BATCH_NORM_H
#define DT_TESTS_OPS_ROWS_BATCH_NORM_H

#include "rows_elementwise.h"

static void ref_bn(const custom_case *c, double *const *in, double *const *out) {
    const dt_shape *s = &c->in_shape[0];
    int64_t n = s->d[0], ch = s->d[1], h = s->n == 4 ? s->d[2] : 1, w = s->n == 4 ? s->d[3] : 1;
    bool pool = c->attrs.batch_norm.pool, relu = c->attrs.batch_norm.relu;
    double m = (double)(n * h * w);
    double *v = malloc((size_t)count(s) * sizeof *v);
    for (int64_t k = 0; k < ch; k++) {
        double mean = 0, var = 0;
#define EACH(i, j)                                                                                                     \
    for (int64_t i = 0; i < n; i++)                                                                                    \
        for (int64_t j = 0; j < h * w; j++)
#define AT(i, j) (((i)*ch + k) * h * w + (j))
        EACH(i, j) mean += in[0][AT(i, j)] / m;
        EACH(i, j) var += pow(in[0][AT(i, j)] - mean, 2) / m;
        if (out[4]) out[4][k] = mean, out[5][k] = var * m / (m - 1);
        if (!c->attrs.batch_norm.training) mean = in[3][k], var = in[4][k];
        double invstd = 1 / sqrt(var + (double)c->attrs.batch_norm.eps);
        if (out[1]) out[1][k] = mean, out[2][k] = invstd;
        EACH(i, j) {
            double y = (in[0][AT(i, j)] - mean) * invstd * in[1][k] + in[2][k];
            if (c->n_in > 5) y += in[5][AT(i, j)];
            v[AT(i, j)] = y;
            if (!pool) out[0][AT(i, j)] = relu && y < 0 ? 0 : y;
            if (!pool && out[3] && c->n_in > 5 && y > 0) out[3][(i * h * w + j) * ((ch + 7) / 8) + k / 8] += 1 << k % 8;
        }
        for (int64_t i = 0; pool && i < n; i++)
            for (int64_t r = 0; r < h / 2; r++)
                for (int64_t q = 0; q < w / 2; q++) {
                    double best = -INFINITY;
                    for (int t = 0; t < 4; t++) best = fmax(best, v[AT(i, (2 * r + t / 2) * w + 2 * q + t % 2)]);
                    int64_t o = ((i * ch + k) * (h / 2) + r) * (w / 2) + q;
                    out[0][o] = relu && best < 0 ? 0 : best;
                }
    }
    free(v);
    if (!c->attrs.batch_norm.act) return;
    custom_case act = *c;
    act.attrs.activation.kind = c->attrs.batch_norm.act;
    ref_activation(&act, out, out);
    memcpy(out[3], in[2], (size_t)ch * sizeof *v); // the shift, up to the mean's rounding
}

static bool fill_bn(const custom_case *c, int i, double *x) {
    int64_t ch = c->in_shape[0].d[1];
    for (int64_t k = 0; i >= 1 && i <= 4 && k < ch; k++)
        x[k] = i == 4 ? 0.5 + 0.01 * (double)k : 0.3 * sin((double)(k * 5 + i)) + (i == 1);
    if (i == 1) x[0] = -0.7; // a negative scale
    return i >= 1 && i <= 4;
}

// FROZEN: a training graph with running statistics, which wants gradients of x and of the residual alone.
typedef enum bn_mode { TRAINING, INFERENCE, FROZEN } bn_mode;

static void run_bn(dt_shape x, bool relu, bool pool, bool residual, bn_mode mode) {
    static const char *const modes[] = {"", " inference", " frozen"};
    const bool training = mode == TRAINING;
    char name[96];
    snprintf(name, sizeof name, "bn %ldx%ldx%ldx%ld%s%s%s%s", x.d[0], x.d[1], x.d[2], x.d[3], relu ? " relu" : "",
             pool ? " pool" : "", residual ? " residual" : "", modes[mode]);
    dt_shape ch = S1(x.d[1]), y = x;
    if (pool) y.d[2] /= 2, y.d[3] /= 2;
    custom_case c = {.name = name,
                     .op = DT_OP_batch_norm,
                     .n_in = residual ? 6 : 5,
                     .n_out = 6,
                     .in_shape = {x, ch, ch, ch, ch, x},
                     .out_shape = {y, ch, ch, y, ch, ch},
                     .out_type = {[3] = DT_U8},
                     .follow_in = 1 | 32,
                     .follow_out = 1,
                     .stat_out = 48,
                     .param_in = 2 | 4,
                     .compare_out = 1 | 2 | 4 | 16 | 32,
                     .fill = fill_bn,
                     .reference = ref_bn,
                     .tolerance = 1e-5};
    c.attrs.batch_norm.eps = 1e-5f;
    c.attrs.batch_norm.relu = relu, c.attrs.batch_norm.pool = pool;
    c.attrs.batch_norm.training = training;
    c.attrs.batch_norm.win = (dt_window)WINDOW(2, 2, 2, 2, 0, 0, 0, 0);
    if (!pool) c.out_shape[3].n = -1;
    if (mode == INFERENCE) {
        for (int i = 1; i < 6; i++) c.out_shape[i].n = -1;
        c.compare_out = 1;
    } else {
        c.grad_in = (training ? 7u : 1u) | (residual ? 32 : 0);
        c.save_in = 7, c.save_out = 6u | (pool ? 8 : relu ? 1 : 0);
        if (!training) c.out_shape[4].n = c.out_shape[5].n = -1, c.compare_out = 7;
    }
#ifdef DT_ROWS_CUDA // bits instead of y, as dt_pass_relu_bits has it
    if (mode != INFERENCE && residual && relu) {
        c.out_shape[3] = S2(count(&x) / x.d[1], (x.d[1] + 7) / 8);
        c.compare_out |= 8, c.save_out = 6 | 8;
    } else if (mode != INFERENCE && !pool) {
        c.save_out = 6; // made again from x
    }
#endif
    custom_case_run(&c);
}

TEST(test_bn) {
    for (int i = 0; i < 24; i++) {
        bool relu = i & 1, pool = i & 2, residual = i & 4;
        bn_mode mode = (bn_mode)(i >> 3);
        if (pool && (residual || !relu)) continue; // never fused
        run_bn(S4(2, 20, 5, 7), relu, pool, residual, mode);
        if (!pool) run_bn(S2(6, 20), relu, false, residual, mode);
        run_bn(S4(2, 64, 5, 3), relu, pool, residual, mode); // NHWC: two blocks side by side
    }
    run_bn(S4(1, 512, 21, 4), true, false, true, TRAINING); // and several tiles
    run_bn(S4(2, 3, 2, 2), true, true, false, TRAINING);
    run_bn(S4(3, 32, 1, 2), true, false, false, TRAINING);
    run_bn(S4(2, 16, 6, 4), true, true, false, TRAINING);
#ifdef DT_ROWS_CUDA // more pixels than one block takes (batch_norm_cuda.c); without kinks, which many pixels meet
    for (int mode = TRAINING; mode <= FROZEN; mode += FROZEN) {
        run_bn(S4(2, 16, 61, 43), false, false, true, (bn_mode)mode);
        run_bn(S4(1, 20, 61, 85), false, false, false, (bn_mode)mode);
    }
#endif
}

// What rows of a shape of their own have in common.
static custom_case bn_in_training(custom_case c) {
    c.op = DT_OP_batch_norm;
    c.n_in = 5, c.n_out = 6;
    c.follow_in = c.follow_out = 1;
    c.stat_out = 48;
    c.param_in = 2 | 4;
    c.compare_out = 1 | 2 | 4 | 16 | 32;
    c.reference = ref_bn;
    c.tolerance = 1e-5;
    c.attrs.batch_norm.eps = 1e-5f, c.attrs.batch_norm.training = 1;
    return c;
}

#ifdef DT_ROWS_CUDA // smooth ones; test_fused_cuda.c has all
TEST(test_bn_activation) {
    const dt_shape shapes[] = {S4(2, 20, 5, 7), S4(2, 64, 5, 3), S2(6, 20), S4(2, 16, 61, 43)};
    for (int i = 0; i < 5; i++) {
        const dt_shape x = shapes[i % 4], ch = S1(x.d[1]);
        custom_case c = bn_in_training((custom_case){.name = "bn activation",
                                                     .in_shape = {x, ch, ch, ch, ch},
                                                     .out_shape = {x, ch, ch, ch, ch, ch},
                                                     .fill = fill_bn});
        c.attrs.batch_norm.act = i < 4 ? DT_ACTIVATION_silu : DT_ACTIVATION_gelu;
        c.compare_out |= 8;
        c.grad_in = c.save_in = 7, c.save_out = 6 | 8;
        custom_case_run(&c);
    }
}
#endif

// Several pieces an image, an odd last row after them, and both ways of sharing work (bits compared).
TEST(test_bn_big) {
    custom_case c = bn_in_training(
        (custom_case){.name = "bn big",
                      .in_shape = {S4(2, 16, 129, 66), S1(16), S1(16), S1(16), S1(16)},
                      .out_shape = {S4(2, 16, 64, 33), S1(16), S1(16), S4(2, 16, 64, 33), S1(16), S1(16)},
                      .out_type = {[3] = DT_U8},
                      .fill = fill_bn});
    c.attrs.batch_norm.relu = c.attrs.batch_norm.pool = 1;
    c.attrs.batch_norm.win = (dt_window)WINDOW(2, 2, 2, 2, 0, 0, 0, 0);
    c.grad_in = 7, c.save_in = 7, c.save_out = 14;
    custom_case_run(&c);
    c.in_shape[0] = S4(1, 16, 61, 66), c.out_shape[0] = c.out_shape[3] = S4(1, 16, 30, 33);
    custom_case_run(&c);
}

static bool fill_far(const custom_case *c, int i, double *x) {
    if (i != 0) return fill_bn(c, i, x);
    for (int64_t k = 0; k < count(&c->in_shape[0]); k++) x[k] = 4096 + sin((double)k * 12.9898);
    return true;
}

// A mean 4096 times the deviation: plain f32 sums of squares would lose all digits of the variance.
TEST(test_bn_far_mean) {
    custom_case c =
        bn_in_training((custom_case){.name = "bn far",
                                     .f32_only = true,
                                     .in_shape = {S4(2, 16, 40, 40), S1(16), S1(16), S1(16), S1(16)},
                                     .out_shape = {S4(2, 16, 40, 40), S1(16), S1(16), ABSENT, S1(16), S1(16)},
                                     .fill = fill_far});
    custom_case_run(&c);
}

#endif
