// rows_elementwise.h: ReLU, GELU, scale, dropout, cast and add.
#ifndef DT_TESTS_OPS_ROWS_ELEMENTWISE_H
#define DT_TESTS_OPS_ROWS_ELEMENTWISE_H

#include "custom_rows.h"

#include "base/hash.h"
#include "base/rng.h"
#include "graph/activation_words.h"

// ---- references of activations.def ------------------------------------------------------------------
static double ref_relu(double x) {
    return x > 0 ? x : 0;
}
static double ref_gelu(double x) {
    return 0.5 * x * erfc(-x / sqrt(2));
}
static double ref_gelu_tanh(double x) {
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
static double ref_sigmoid(double x) {
    return 1 / (1 + exp(-x));
}
static double ref_hardsigmoid(double x) {
    return fmin(fmax(x / 6 + 0.5, 0), 1);
}
static double ref_silu(double x) {
    return x * ref_sigmoid(x);
}
static double ref_hardswish(double x) {
    return x * ref_hardsigmoid(x);
}
static double ref_relu6(double x) {
    return fmin(fmax(x, 0), 6);
}
static double ref_tanh(double x) {
    return tanh(x);
}
static double ref_softplus(double x) {
    return log1p(exp(x));
}
static double ref_erf(double x) {
    return erf(x);
}
static double ref_heaviside(double x) {
    return x > 0;
}
static const double ref_number = 0.375; // of those that have one
static double ref_leaky_relu(double x) {
    return x > 0 ? x : ref_number * x;
}
static double ref_elu(double x) {
    return x > 0 ? x : ref_number * expm1(x);
}
static void ref_activation(const custom_case *c, double *const *in, double *const *out) {
    static double (*const of[DT_N_ACTIVATIONS])(double x) = {
#define ACTIVATION(id, op, at_zero, help) [DT_ACTIVATION_##id] = ref_##id,
#include "graph/activations.def"
#undef ACTIVATION
    };
    for (int64_t i = 0; i < count(&c->in_shape[0]); i++) out[0][i] = of[c->attrs.activation.kind](in[0][i]);
}
static void ref_scale(const custom_case *c, double *const *in, double *const *out) {
    for (int64_t i = 0; i < count(&c->in_shape[0]); i++) out[0][i] = in[0][i] * (double)c->attrs.scale.alpha;
}
static void ref_add(const custom_case *c, double *const *in, double *const *out) {
    int64_t n = count(&c->in_shape[0]), inner = count(&c->in_shape[1]);
    for (int64_t i = 0; i < n; i++) out[0][i] = in[0][i] + in[1][i % inner];
}
static void ref_dropout(const custom_case *c, double *const *in, double *const *out) {
    int64_t n = count(&c->in_shape[0]), per = n / c->in_shape[0].d[0];
    for (int64_t i = 0; i < n; i++) {
        dt_rng r = {custom_case_step.seed, custom_case_step.slot + (uint32_t)(i / per), custom_case_step.step,
                    dt_hash32(c->name)};
        const uint32_t element = c->attrs.dropout.whole ? 0 : (uint32_t)(i % per);
        bool keep = dt_rng_uniform(&r, element) >= c->attrs.dropout.p;
        out[0][i] = keep ? in[0][i] / (1 - (double)c->attrs.dropout.p) : 0;
    }
}

// One input, one output of the same shape.
static void run_unary(custom_case c) {
    const dt_shape shapes[] = {S4(2, 20, 5, 7), S4(1, 32, 4, 4), S2(3, 45), S3(2, 3, 129), S1(7)};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        custom_case row = one_to_one(c);
        row.in_shape[0] = row.out_shape[0] = shapes[i];
        custom_case_run(&row);
    }
}

// Away from their kinks: multiples of 1/4 plus 1/8.
static bool fill_between(const custom_case *c, int i, double *x) {
    uint64_t seed = 7;
    for (int64_t e = 0; e < count(&c->in_shape[i]); e++) x[e] = -8.875 + 0.25 * (double)(case_next(&seed) % 72);
    return true;
}
TEST(test_activation) {
    static const dt_op ops[DT_N_ACTIVATIONS] = {
#define ACTIVATION(id, op, at_zero, help) [DT_ACTIVATION_##id] = DT_OP_##op,
#include "graph/activations.def"
#undef ACTIVATION
    };
    for (int k = DT_ACTIVATION_none + 1; k < DT_N_ACTIVATIONS; k++)
        run_unary((custom_case){.name = dt_activation_name((dt_activation)k),
                                .op = ops[k],
                                .attrs = {.activation = {(dt_activation)k, (float)ref_number}},
                                .grad_in = 1,
                                .save_in = ops[k] != DT_OP_relu,
                                .save_out = ops[k] == DT_OP_relu,
                                .fill = fill_between,
                                .reference = ref_activation});
}

static void ref_mul(const custom_case *c, double *const *in, double *const *out) {
    dt_times t;
    assert_true(dt_times_of(&c->in_shape[0], &c->in_shape[1], &t));
    const int64_t area = t.channels ? t.rows : 1;
    for (int64_t i = 0; i < count(&c->in_shape[0]); i++) {
        const int64_t column = i / area % t.cols, image = t.each ? i / (area * t.cols) : 0;
        out[0][i] = in[0][i] * in[1][t.same ? i : image * t.cols + column];
    }
}
TEST(test_mul) {
    custom_case c = {.name = "mul",
                     .op = DT_OP_mul,
                     .n_in = 2,
                     .n_out = 1,
                     .follow_in = 3,
                     .follow_out = 1,
                     .compare_out = 1,
                     .reference = ref_mul};
    const dt_shape image = S4(3, 20, 5, 7);
    c.in_shape[0] = c.in_shape[1] = c.out_shape[0] = image;
    custom_case_run(&c);
    c.grad_in = 2, c.save_in = 1;
    const dt_shape factors[] = {S4(3, 20, 1, 1), S3(20, 1, 1), S4(1, 20, 1, 1)};
    for (int i = 0; i < 3; i++) {
        c.in_shape[1] = factors[i];
        custom_case_run(&c);
    }
    c.in_shape[0] = c.out_shape[0] = S3(33, 50, 20), c.in_shape[1] = S1(20); // many rows
    custom_case_run(&c);
    c.follow_in = 1, c.param_in = 2; // an f32 parameter beside bf16 activations
    custom_case_run(&c);
    c.in_shape[0] = c.out_shape[0] = image, c.in_shape[1] = S3(20, 1, 1);
    custom_case_run(&c);
    c.follow_in = c.follow_out = 0,
    c.param_in = 3; // what lies DENSE elsewhere, as the network's input
    custom_case_run(&c);
}
TEST(test_scale) {
    run_unary((custom_case){.name = "scale", .op = DT_OP_scale, .attrs = {.scale = {0.37f}}, .reference = ref_scale});
}
TEST(test_drop_path) {
    run_unary((custom_case){.name = "drop.3",
                            .op = DT_OP_dropout,
                            .attrs = {.dropout = {0.4f, 1}},
                            .grad_in = 1,
                            .reference = ref_dropout});
    custom_case c = one_to_one((custom_case){.name = "drop.4",
                                             .op = DT_OP_dropout,
                                             .attrs = {.dropout = {0.5f, 1}},
                                             .in_shape = {S2(7, 16391)},
                                             .out_shape = {S2(7, 16391)},
                                             .reference = ref_dropout});
    custom_case_run(&c);
}
#ifdef DT_ROWS_CUDA // the CPU has none: it multiplies, drops and adds
static void ref_add_branch(const custom_case *c, double *const *in, double *const *out) {
    ref_dropout(c, in, out);
    const int64_t n = count(&c->in_shape[0]), area = c->in_shape[0].n == 4 ? 35 : 1;
    for (int64_t i = 0; i < n; i++)
        out[0][i] = in[1][i] + out[0][i] * (c->in_shape[2].n < 0 ? 1 : in[2][i / area % 20]);
}
TEST(test_add_branch) {
    custom_case c = {.name = "drop.5",
                     .op = DT_OP_add_branch,
                     .attrs = {.dropout = {0.4f, 1}},
                     .n_in = 3,
                     .n_out = 1,
                     .follow_in = 3,
                     .follow_out = 1,
                     .param_in = 4,
                     .compare_out = 1,
                     .reference = ref_add_branch};
    for (int k = 0; k < 4; k++) { // many rows or an image; with or without a factor
        const bool image = k % 2, scaled = k < 2;
        c.in_shape[0] = c.in_shape[1] = c.out_shape[0] = image ? S4(3, 20, 5, 7) : S3(33, 50, 20);
        c.in_shape[2] = !scaled ? (dt_shape){.n = -1} : image ? S3(20, 1, 1) : S1(20);
        c.grad_in = scaled ? 5 : 1;
        c.save_in = scaled ? 5 : 0;
        custom_case_run(&c);
    }
}
#endif
TEST(test_dropout) {
    run_unary((custom_case){
        .name = "drop.1", .op = DT_OP_dropout, .attrs = {.dropout = {0.3f}}, .grad_in = 1, .reference = ref_dropout});
    // odd samples that cross the ranges of two threads
    custom_case c = one_to_one((custom_case){.name = "drop.2",
                                             .op = DT_OP_dropout,
                                             .attrs = {.dropout = {0.5f}},
                                             .in_shape = {S2(3, 16391)},
                                             .out_shape = {S2(3, 16391)},
                                             .reference = ref_dropout});
    custom_case_run(&c);
}
TEST(test_cast) {
    custom_case c = {.name = "cast",
                     .op = DT_OP_cast,
                     .n_in = 1,
                     .n_out = 1,
                     .compare_out = 1,
                     .in_shape = {S4(2, 20, 3, 7)},
                     .out_shape = {S4(2, 20, 3, 7)},
                     .reference = ref_copy,
                     .tolerance = 4e-3,
                     .f32_only = true};
    c.out_type[0] = DT_BF16;
    custom_case_run(&c);
    c.in_type[0] = DT_BF16, c.out_type[0] = DT_F32;
    custom_case_run(&c);
}
TEST(test_add) {
    custom_case c = {.name = "add",
                     .op = DT_OP_add,
                     .n_in = 2,
                     .n_out = 1,
                     .follow_in = 3,
                     .follow_out = 1,
                     .compare_out = 1,
                     .reference = ref_add};
    c.in_shape[0] = c.in_shape[1] = c.out_shape[0] = S4(2, 20, 5, 7);
    custom_case_run(&c);
    c.in_shape[0] = c.out_shape[0] = S3(3, 17, 20), c.in_shape[1] = S2(17, 20);
    c.grad_in = 2;
    custom_case_run(&c);
    c.follow_in = 1, c.param_in = 2; // an f32 parameter beside bf16 activations
    custom_case_run(&c);
    c.in_shape[1] = S3(1, 17, 20);
    custom_case_run(&c);
    c.in_shape[0] = c.out_shape[0] = S3(33, 50, 16), c.in_shape[1] = S1(16); // many rows
    custom_case_run(&c);
}

#endif
