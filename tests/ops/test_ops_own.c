// test_ops_own.c: rows for the CPU backend's own kernels (see own_case.h), once an ISA that the machine
// has (each_isa.h). What is about the CPU alone, slabs and values at the edges, is in test_ops_cpu.c.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "each_isa.h"
#include "own_case.h"

#include "backend/cpu/simd.h"
#include "base/hash.h"
#include "base/rng.h"
#include "graph/mix_plan.h"

#define S0() ((dt_shape){.n = 0})
#define S1   dt_shape1
#define S2   dt_shape2
#define S3   dt_shape3
#define S4   dt_shape4
#define ABSENT                                                                                     \
    { .n = -1 }
#define WINDOW(kh, kw, sh, sw, p0, p1, q0, q1)                                                     \
    {                                                                                              \
        .kernel = {kh, kw}, .stride = {sh, sw}, .dilation = {1, 1}, .pad_begin = {p0, p1},         \
        .pad_end = {                                                                               \
            q0,                                                                                    \
            q1                                                                                     \
        }                                                                                          \
    }

static int64_t count(const dt_shape *s) {
    return dt_shape_elements(s);
}

// ---- elementwise -----------------------------------------------------------------------------------
static void ref_relu(const own_case *c, double *const *in, double *const *out) {
    for (int64_t i = 0; i < count(&c->in_shape[0]); i++) out[0][i] = in[0][i] > 0 ? in[0][i] : 0;
}
static void ref_gelu(const own_case *c, double *const *in, double *const *out) {
    for (int64_t i = 0; i < count(&c->in_shape[0]); i++)
        out[0][i] = 0.5 * in[0][i] * erfc(-in[0][i] / sqrt(2));
}
static void ref_gelu_tanh(const own_case *c, double *const *in, double *const *out) {
    for (int64_t i = 0; i < count(&c->in_shape[0]); i++) {
        const double x = in[0][i];
        out[0][i] = 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    }
}
static void ref_scale(const own_case *c, double *const *in, double *const *out) {
    for (int64_t i = 0; i < count(&c->in_shape[0]); i++)
        out[0][i] = in[0][i] * (double)c->attrs.scale.alpha;
}
static void ref_copy(const own_case *c, double *const *in, double *const *out) {
    memcpy(out[0], in[0], (size_t)count(&c->in_shape[0]) * sizeof(double));
}
static void ref_add(const own_case *c, double *const *in, double *const *out) {
    int64_t n = count(&c->in_shape[0]), inner = count(&c->in_shape[1]);
    for (int64_t i = 0; i < n; i++) out[0][i] = in[0][i] + in[1][i % inner];
}
static void ref_dropout(const own_case *c, double *const *in, double *const *out) {
    int64_t n = count(&c->in_shape[0]), per = n / c->in_shape[0].d[0];
    for (int64_t i = 0; i < n; i++) {
        dt_rng r = {own_case_step.seed, own_case_step.slot + (uint32_t)(i / per),
                    own_case_step.step, dt_hash32(c->name)};
        bool keep = dt_rng_uniform(&r, (uint32_t)(i % per)) >= c->attrs.dropout.p;
        out[0][i] = keep ? in[0][i] / (1 - (double)c->attrs.dropout.p) : 0;
    }
}
static void ref_normalize(const own_case *c, double *const *in, double *const *out) {
    const dt_shape *s = &c->in_shape[0];
    int64_t plane = s->d[1] * s->d[2], ch = s->d[3];
    for (int64_t n = 0; n < s->d[0]; n++)
        for (int64_t p = 0; p < plane; p++)
            for (int64_t k = 0; k < ch; k++)
                out[0][(n * ch + k) * plane + p] =
                    (in[0][(n * plane + p) * ch + k] / (c->in_type[0] == DT_U8 ? 255 : 1) -
                     (double)c->attrs.image_normalize.mean[k]) /
                    (double)c->attrs.image_normalize.std[k];
}

// What the loader did to a batch before it was the network's: in place, bytes in whole numbers, floats in
// single precision. Row j of the plan: see fill_mix.
static double mixed_value(const own_case *c, const double *x, const dt_mix_row *m, int64_t j,
                          int64_t pixel, int64_t k) {
    const dt_shape *s = &c->in_shape[0];
    int64_t w = s->d[2], ch = s->d[3], next = j + 1 < s->d[0] ? j + 1 : 0;
    int64_t sample = s->d[1] * w * ch, at = pixel * ch + k, row = pixel / w, col = pixel % w;
    double a = x[j * sample + at], b = x[next * sample + at];
    if (row >= m->y0 && row < m->y1 && col >= m->x0 && col < m->x1) return b;
    if (m->own == 65536) return a;
    if (c->in_type[0] == DT_U8)
        return (double)(((uint32_t)a * (uint32_t)m->own + (uint32_t)b * (65536 - (uint32_t)m->own) +
                         32768) >>
                        16);
    volatile float own = (float)m->own / 65536, mine = (float)a * own,
                   other = (float)b * (1 - own); // each rounded
    return (double)(mine + other);
}
static dt_mix_row plan_row(const double *plan, int64_t j) {
    const double *p = plan + j * DT_MIX_COLUMNS;
    return (dt_mix_row){(int32_t)p[0], (int32_t)p[1], (int32_t)p[2], (int32_t)p[3], (int32_t)p[4]};
}
static void ref_normalize_mixed(const own_case *c, double *const *in, double *const *out) {
    const dt_shape *s = &c->in_shape[0];
    int64_t plane = s->d[1] * s->d[2], ch = s->d[3];
    double *x = malloc((size_t)count(s) * sizeof *x), *mixed[] = {x};
    for (int64_t n = 0; n < s->d[0]; n++) {
        dt_mix_row m = plan_row(in[1], n);
        for (int64_t p = 0; p < plane; p++)
            for (int64_t k = 0; k < ch; k++)
                x[(n * plane + p) * ch + k] = mixed_value(c, in[0], &m, n, p, k);
    }
    ref_normalize(c, mixed, out);
    free(x);
}
// As it is, blended, a rectangle, a blend with a rectangle within, all of the next, a rectangle of everything;
// the last one takes the first.
static bool fill_mix(const own_case *c, int i, double *x) {
    const int32_t h = (int32_t)c->in_shape[0].d[1], w = (int32_t)c->in_shape[0].d[2];
    const dt_mix_row rows[] = {
        {65536, 0, 0, 0, 0}, {40001, 0, 0, 0, 0}, {65536, h / 4, h, 3, w - 2}, {123, 1, 2, 0, w},
        {0, 0, 0, 0, 0},     {65536, 0, h, 0, w}, {32768, 5, 5, 2, 9}};
    for (int64_t j = 0; i == 1 && j < c->in_shape[1].d[0]; j++) {
        const dt_mix_row *m = &rows[j % 7];
        const int32_t v[] = {m->own, m->y0, m->y1, m->x0, m->x1};
        for (int k = 0; k < DT_MIX_COLUMNS; k++) x[j * DT_MIX_COLUMNS + k] = v[k];
    }
    return i == 1;
}

// One input, one output of the same shape.
static void run_unary(own_case c) {
    const dt_shape shapes[] = {S4(2, 20, 5, 7), S4(1, 32, 4, 4), S2(3, 45), S3(2, 3, 129), S1(7)};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        c.n_in = c.n_out = 1;
        c.in_shape[0] = c.out_shape[0] = shapes[i];
        c.follow_in = c.follow_out = c.compare_out = 1;
        own_case_run(&c);
    }
}

static void test_relu(void **state) {
    run_unary((own_case){
        .name = "relu", .op = DT_OP_relu, .grad_in = 1, .save_out = 1, .reference = ref_relu});
}
static void test_gelu(void **state) {
    run_unary((own_case){.name = "gelu",
                         .op = DT_OP_gelu,
                         .grad_in = 1,
                         .save_in = 1,
                         .low = -9,
                         .high = 9,
                         .reference = ref_gelu});
    run_unary((own_case){.name = "gelu tanh",
                         .op = DT_OP_gelu,
                         .attrs = {.gelu = {1}},
                         .grad_in = 1,
                         .save_in = 1,
                         .low = -9,
                         .high = 9,
                         .reference = ref_gelu_tanh});
}
static void test_scale(void **state) {
    run_unary((own_case){
        .name = "scale", .op = DT_OP_scale, .attrs = {.scale = {0.37f}}, .reference = ref_scale});
}
static void test_dropout(void **state) {
    run_unary((own_case){.name = "drop.1",
                         .op = DT_OP_dropout,
                         .attrs = {.dropout = {0.3f}},
                         .grad_in = 1,
                         .reference = ref_dropout});
    // odd samples that cross the ranges of two threads
    own_case c = {.name = "drop.2",
                  .op = DT_OP_dropout,
                  .attrs = {.dropout = {0.5f}},
                  .n_in = 1,
                  .n_out = 1,
                  .in_shape = {S2(3, 16391)},
                  .out_shape = {S2(3, 16391)},
                  .follow_in = 1,
                  .follow_out = 1,
                  .compare_out = 1,
                  .reference = ref_dropout};
    own_case_run(&c);
}
static void test_cast(void **state) {
    own_case c = {.name = "cast",
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
    own_case_run(&c);
    c.in_type[0] = DT_BF16, c.out_type[0] = DT_F32;
    own_case_run(&c);
    c.in_type[0] = DT_U8, c.low = 0, c.high = 255;
    own_case_run(&c);
}
static void test_add(void **state) {
    own_case c = {.name = "add",
                  .op = DT_OP_add,
                  .n_in = 2,
                  .n_out = 1,
                  .follow_in = 3,
                  .follow_out = 1,
                  .compare_out = 1,
                  .reference = ref_add};
    c.in_shape[0] = c.in_shape[1] = c.out_shape[0] = S4(2, 20, 5, 7);
    own_case_run(&c);
    c.in_shape[0] = c.out_shape[0] = S3(3, 17, 20), c.in_shape[1] = S2(17, 20);
    c.grad_in = 2;
    own_case_run(&c);
    c.follow_in = 1, c.param_in = 2; // an f32 parameter beside bf16 activations
    own_case_run(&c);
    c.in_shape[1] = S3(1, 17, 20);
    own_case_run(&c);
    c.in_shape[0] = c.out_shape[0] = S3(33, 50, 16), c.in_shape[1] = S1(16); // many rows
    own_case_run(&c);
}
static void test_normalize(void **state) {
    const int channels[] = {1, 3, 4};
    for (int i = 0; i < 3; i++) {
        int64_t ch = channels[i];
        own_case c = {.name = "normalize",
                      .op = DT_OP_image_normalize,
                      .n_in = 1,
                      .n_out = 1,
                      .in_shape = {S4(2, 37, 29, ch)},
                      .out_shape = {S4(2, ch, 37, 29)},
                      .in_type = {DT_U8},
                      .follow_out = 1,
                      .compare_out = 1,
                      .low = 0,
                      .high = 255,
                      .reference = ref_normalize};
        for (int k = 0; k < 4; k++) {
            c.attrs.image_normalize.mean[k] = 0.4f + 0.05f * (float)k;
            c.attrs.image_normalize.std[k] = 0.2f + 0.03f * (float)k;
        }
        own_case_run(&c);
        c.in_type[0] = DT_F32; // raw values, far from zero
        for (int k = 0; k < 4; k++) c.attrs.image_normalize.mean[k] = 1000 + (float)k;
        c.low = 990, c.high = 1010;
        own_case_run(&c);
    }
}
// The same bits as from pixels that were mixed before: the two runs differ in nothing but where.
static void expect_mixed_bits(const own_case *c) {
    own_case plain = *c;
    case_data d = {0}, e = {0};
    const dt_kernel *k = own_case_kernel(c, false);
    const dt_shape *s = &c->in_shape[0];
    const int64_t plane = s->d[1] * s->d[2], ch = s->d[3], n = count(s);
    plain.n_in = 1;
    for (int t = 0; t < OWN_CASE_TYPES; t++) {
        case_call mixed = {0}, before = {0};
        case_fill(c, &d, (dt_dtype)t);
        case_fill(&plain, &e, (dt_dtype)t);
        for (int64_t i = 0; i < n; i++) {
            dt_mix_row m = plan_row(d.in[1], i / (plane * ch));
            e.in[0][i] = mixed_value(c, d.in[0], &m, i / (plane * ch), i / ch % plane, i % ch);
        }
        case_build_forward(c, &d, &mixed);
        case_build_forward(&plain, &e, &before);
        case_run_kernel(&mixed, c, k, 2, false, d.in, 0);
        case_run_kernel(&before, &plain, k, 1, false, e.in, 0);
        assert_memory_equal(mixed.out[0], before.out[0], (size_t)n * dt_dtype_size(d.out_type[0]));
        case_call_end(&mixed, k);
        case_call_end(&before, k);
        dt_graph_destroy(mixed.graph);
        dt_graph_destroy(before.graph);
        case_data_free(&d);
        case_data_free(&e);
        d = e = (case_data){0};
    }
}
static void test_normalize_mixed(void **state) {
    // whole and odd pieces of eight elements; more than a part, a buffer and a block
    const dt_shape shapes[] = {S4(7, 9, 16, 3), S4(7, 37, 29, 3),   S4(7, 13, 11, 1),
                               S4(1, 8, 8, 4),  S4(2, 140, 131, 3), S4(7, 12, 10, 5)};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const dt_shape *s = &shapes[i];
        own_case c = {.name = "normalize mixed",
                      .op = DT_OP_image_normalize,
                      .n_in = 2,
                      .n_out = 1,
                      .in_shape = {*s, S2(s->d[0], DT_MIX_COLUMNS)},
                      .out_shape = {S4(s->d[0], s->d[3], s->d[1], s->d[2])},
                      .in_type = {DT_U8, DT_I32},
                      .follow_out = 1,
                      .compare_out = 1,
                      .low = 0,
                      .high = 255.99,
                      .fill = fill_mix,
                      .reference = ref_normalize_mixed};
        for (int k = 0; k < 5; k++) {
            c.attrs.image_normalize.mean[k] = 0.4f + 0.05f * (float)k;
            c.attrs.image_normalize.std[k] = 0.2f + 0.03f * (float)k;
        }
        own_case_run(&c);
        expect_mixed_bits(&c);
        c.in_type[0] = DT_F32;
        c.low = -30, c.high = 20;
        own_case_run(&c);
        expect_mixed_bits(&c);
    }
}

// ---- batch norm ------------------------------------------------------------------------------------
static void ref_bn(const own_case *c, double *const *in, double *const *out) {
    const dt_shape *s = &c->in_shape[0];
    int64_t n = s->d[0], ch = s->d[1], h = s->n == 4 ? s->d[2] : 1, w = s->n == 4 ? s->d[3] : 1;
    bool pool = c->attrs.batch_norm.pool, relu = c->attrs.batch_norm.relu;
    double m = (double)(n * h * w);
    double *v = malloc((size_t)count(s) * sizeof *v);
    for (int64_t k = 0; k < ch; k++) {
        double mean = 0, var = 0;
#define EACH(i, j)                                                                                 \
    for (int64_t i = 0; i < n; i++)                                                                \
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
        }
        for (int64_t i = 0; pool && i < n; i++)
            for (int64_t r = 0; r < h / 2; r++)
                for (int64_t q = 0; q < w / 2; q++) {
                    double best = -INFINITY;
                    for (int t = 0; t < 4; t++)
                        best = fmax(best, v[AT(i, (2 * r + t / 2) * w + 2 * q + t % 2)]);
                    int64_t o = ((i * ch + k) * (h / 2) + r) * (w / 2) + q;
                    out[0][o] = relu && best < 0 ? 0 : best;
                }
    }
    free(v);
}

static bool fill_bn(const own_case *c, int i, double *x) {
    int64_t ch = c->in_shape[0].d[1];
    for (int64_t k = 0; i >= 1 && i <= 4 && k < ch; k++)
        x[k] = i == 4 ? 0.5 + 0.01 * (double)k : 0.3 * sin((double)(k * 5 + i)) + (i == 1);
    if (i == 1) x[0] = -0.7; // a negative scale
    return i >= 1 && i <= 4;
}

static void run_bn(dt_shape x, bool relu, bool pool, bool residual, bool training) {
    char name[96];
    snprintf(name, sizeof name, "bn %ldx%ldx%ldx%ld%s%s%s%s", x.d[0], x.d[1], x.d[2], x.d[3],
             relu ? " relu" : "", pool ? " pool" : "", residual ? " residual" : "",
             training ? "" : " inference");
    dt_shape ch = S1(x.d[1]), y = x;
    if (pool) y.d[2] /= 2, y.d[3] /= 2;
    own_case c = {.name = name,
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
    if (!training) {
        for (int i = 1; i < 6; i++) c.out_shape[i].n = -1;
        c.compare_out = 1;
    } else {
        c.grad_in = 7u | (residual ? 32 : 0);
        c.save_in = 7, c.save_out = 6u | (pool ? 8 : relu ? 1 : 0);
    }
    own_case_run(&c);
}

static void test_bn(void **state) {
    for (int mode = 0; mode < 16; mode++) {
        bool relu = mode & 1, pool = mode & 2, residual = mode & 4, training = !(mode & 8);
        if (pool && residual) continue; // never fused
        run_bn(S4(2, 20, 5, 7), relu, pool, residual, training);
        if (!pool) run_bn(S2(6, 20), relu, false, residual, training);
    }
    run_bn(S4(2, 3, 2, 2), true, true, false, true);
    run_bn(S4(3, 32, 1, 2), true, false, false, true);
    run_bn(S4(2, 16, 6, 4), true, true, false, true);
#ifdef DT_ROWS_CUDA // more pixels than one block takes (batch_norm_cuda.c); without kinks, which many pixels meet
    run_bn(S4(2, 16, 61, 43), false, false, true, true);
    run_bn(S4(1, 20, 61, 85), false, false, false, true);
#endif
}

// Several pieces an image, an odd last row after them, and both ways of sharing work (bits compared).
static void test_bn_big(void **state) {
    own_case c = {
        .name = "bn big",
        .op = DT_OP_batch_norm,
        .n_in = 5,
        .n_out = 6,
        .in_shape = {S4(2, 16, 129, 66), S1(16), S1(16), S1(16), S1(16)},
        .out_shape = {S4(2, 16, 64, 33), S1(16), S1(16), S4(2, 16, 64, 33), S1(16), S1(16)},
        .out_type = {[3] = DT_U8},
        .follow_in = 1,
        .follow_out = 1,
        .stat_out = 48,
        .param_in = 2 | 4,
        .compare_out = 1 | 2 | 4 | 16 | 32,
        .fill = fill_bn,
        .reference = ref_bn,
        .tolerance = 1e-5};
    c.attrs.batch_norm.eps = 1e-5f, c.attrs.batch_norm.training = 1;
    c.attrs.batch_norm.relu = c.attrs.batch_norm.pool = 1;
    c.attrs.batch_norm.win = (dt_window)WINDOW(2, 2, 2, 2, 0, 0, 0, 0);
    c.grad_in = 7, c.save_in = 7, c.save_out = 14;
    own_case_run(&c);
    c.in_shape[0] = S4(1, 16, 61, 66), c.out_shape[0] = c.out_shape[3] = S4(1, 16, 30, 33);
    own_case_run(&c);
}

static bool fill_far(const own_case *c, int i, double *x) {
    if (i != 0) return fill_bn(c, i, x);
    for (int64_t k = 0; k < count(&c->in_shape[0]); k++) x[k] = 4096 + sin((double)k * 12.9898);
    return true;
}

// A mean 4096 times the deviation: plain f32 sums of squares would lose all digits of the variance.
static void test_bn_far_mean(void **state) {
    own_case c = {.name = "bn far",
                  .op = DT_OP_batch_norm,
                  .n_in = 5,
                  .n_out = 6,
                  .f32_only = true,
                  .in_shape = {S4(2, 16, 40, 40), S1(16), S1(16), S1(16), S1(16)},
                  .out_shape = {S4(2, 16, 40, 40), S1(16), S1(16), ABSENT, S1(16), S1(16)},
                  .follow_in = 1,
                  .follow_out = 1,
                  .stat_out = 48,
                  .param_in = 2 | 4,
                  .compare_out = 1 | 2 | 4 | 16 | 32,
                  .fill = fill_far,
                  .reference = ref_bn,
                  .tolerance = 1e-5};
    c.attrs.batch_norm.eps = 1e-5f, c.attrs.batch_norm.training = 1;
    own_case_run(&c);
}

// ---- pooling ---------------------------------------------------------------------------------------
// Not looked at by sanitizers, where it took two fifths of the time: the kernels are what is tested.
__attribute__((no_sanitize("address"), no_sanitize("undefined"))) static void
ref_pool(const own_case *c, double *const *in, double *const *out) {
    const dt_shape *s = &c->in_shape[0], *o = &c->out_shape[0];
    const dt_window *w = &c->attrs.pool.win;
    bool max = c->op == DT_OP_max_pool;
    for (int64_t p = 0; p < o->d[0] * o->d[1]; p++)
        for (int64_t r = 0; r < o->d[2]; r++)
            for (int64_t q = 0; q < o->d[3]; q++) {
                double best = -INFINITY, sum = 0;
                int inside = 0, padded = 0;
                for (int a = 0; a < w->kernel[0]; a++)
                    for (int b = 0; b < w->kernel[1]; b++) {
                        int64_t y = r * w->stride[0] - w->pad_begin[0] + a;
                        int64_t x = q * w->stride[1] - w->pad_begin[1] + b;
                        padded += y < s->d[2] + w->pad_end[0] && x < s->d[3] + w->pad_end[1];
                        if (y < 0 || x < 0 || y >= s->d[2] || x >= s->d[3]) continue;
                        double v = in[0][(p * s->d[2] + y) * s->d[3] + x];
                        best = fmax(best, v), sum += v, inside++;
                    }
                out[0][(p * o->d[2] + r) * o->d[3] + q] =
                    max ? best : sum / (c->attrs.pool.count_include_pad ? padded : inside);
            }
}
static void ref_global(const own_case *c, double *const *in, double *const *out) {
    int64_t plane = c->in_shape[0].d[2] * c->in_shape[0].d[3];
    for (int64_t p = 0; p < count(&c->out_shape[0]); p++) {
        double sum = 0;
        for (int64_t i = 0; i < plane; i++) sum += in[0][p * plane + i];
        out[0][p] = sum / (double)plane;
    }
}

// Distinct within each plane of 9x11, and exact in bf16: a tie has no gradient.
static bool fill_distinct(const own_case *c, int i, double *x) {
    for (int64_t k = 0; k < count(&c->in_shape[0]); k++) x[k] = (double)(k * 37 % 99 - 49) / 16;
    return true;
}

static void run_pool(dt_op op, int64_t channels, dt_window w, bool include_pad) {
    dt_shape x = S4(2, channels, 9, 11), y = x;
    for (int i = 0; i < 2; i++)
        y.d[2 + i] = (x.d[2 + i] + w.pad_begin[i] + w.pad_end[i] - w.kernel[i]) / w.stride[i] + 1;
    own_case c = {.name = op == DT_OP_max_pool ? "max_pool" : "avg_pool",
                  .op = op,
                  .n_in = 1,
                  .n_out = op == DT_OP_max_pool ? 2 : 1,
                  .in_shape = {x},
                  .out_shape = {y, y},
                  .out_type = {[1] = DT_U8},
                  .follow_in = 1,
                  .follow_out = 1,
                  .compare_out = 1,
                  .grad_in = 1,
                  .save_out = op == DT_OP_max_pool ? 2 : 0,
                  .fill = fill_distinct,
                  .reference = ref_pool};
    c.attrs.pool.win = w;
    c.attrs.pool.count_include_pad = include_pad;
    own_case_run(&c);
}

static void test_pool(void **state) {
    const dt_window windows[] = {WINDOW(2, 2, 2, 2, 0, 0, 0, 0), WINDOW(3, 3, 2, 2, 1, 1, 1, 1),
                                 WINDOW(3, 2, 1, 1, 1, 0, 0, 1), WINDOW(9, 11, 1, 1, 0, 0, 0, 0),
                                 WINDOW(5, 3, 3, 2, 2, 1, 1, 0)};
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        run_pool(DT_OP_max_pool, 20, windows[i], false);
        run_pool(DT_OP_avg_pool, 20, windows[i], false);
        run_pool(DT_OP_avg_pool, 20, windows[i], true);
        run_pool(DT_OP_max_pool, 16, windows[i], false);
        run_pool(DT_OP_avg_pool, 16, windows[i], false);
    }
}

static void test_global_pool(void **state) {
    own_case c = {.name = "global_pool",
                  .op = DT_OP_global_pool,
                  .n_in = 1,
                  .n_out = 1,
                  .in_shape = {S4(3, 20, 5, 7)},
                  .out_shape = {S2(3, 20)},
                  .follow_in = 1,
                  .follow_out = 1,
                  .compare_out = 1,
                  .grad_in = 1,
                  .reference = ref_global};
    own_case_run(&c);
    c.in_shape[0] = S4(2, 32, 12, 13), c.out_shape[0] = S2(2, 32);
    own_case_run(&c);
}

// ---- shapes ----------------------------------------------------------------------------------------
// Index of element i of `s` after permuting by perm: y index -> x index.
static void ref_transpose(const own_case *c, double *const *in, double *const *out) {
    const dt_shape *x = &c->in_shape[0], *y = &c->out_shape[0];
    for (int64_t i = 0; i < count(y); i++) {
        int64_t at[DT_MAX_DIMS], rest = i, from = 0;
        for (int d = y->n - 1; d >= 0; d--)
            at[c->attrs.transpose.perm[d]] = rest % y->d[d], rest /= y->d[d];
        for (int d = 0; d < x->n; d++) from = from * x->d[d] + at[d];
        out[0][i] = in[0][from];
    }
}
static void ref_slice(const own_case *c, double *const *in, double *const *out) {
    const dt_shape *x = &c->in_shape[0];
    int axis = c->attrs.slice.axis;
    int64_t inner = 1, n = 0;
    for (int d = axis + 1; d < x->n; d++) inner *= x->d[d];
    for (int64_t i = 0; i < count(x); i++) {
        int64_t a = i / inner % x->d[axis];
        if (a >= c->attrs.slice.begin && a < c->attrs.slice.end) out[0][n++] = in[0][i];
    }
}
static void ref_concat(const own_case *c, double *const *in, double *const *out) {
    int axis = c->attrs.concat.axis;
    const dt_shape *y = &c->out_shape[0];
    int64_t outer = 1, n = 0;
    for (int d = 0; d < axis; d++) outer *= y->d[d];
    for (int64_t o = 0; o < outer; o++)
        for (int k = 0; k < c->n_in; k++) {
            int64_t run = count(&c->in_shape[k]) / outer;
            for (int64_t i = 0; i < run; i++) out[0][n++] = in[k][o * run + i];
        }
}

static void test_transpose(void **state) {
    const struct {
        dt_shape x;
        int perm[4];
    } rows[] = {
        {S4(2, 9, 3, 16), {0, 2, 1, 3}},
        {S4(2, 3, 9, 20), {0, 1, 3, 2}},
        {S4(2, 3, 4, 5), {3, 1, 0, 2}},
        {S4(2, 3, 4, 5), {0, 1, 2, 3}},
        {S2(33, 17), {1, 0}},
        {S4(2, 20, 5, 7), {0, 2, 3, 1}},
        {S4(3, 1, 1, 20), {3, 2, 1, 0}},
        {S4(2, 3, 32, 8), {2, 0, 1, 3}},
        {S3(3, 40, 70), {0, 2, 1}},
        {S3(3, 6, 70), {2, 1, 0}},
        {S4(2, 5, 7, 20), {0, 3, 1, 2}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        own_case c = {.name = "transpose",
                      .op = DT_OP_transpose,
                      .n_in = 1,
                      .n_out = 1,
                      .in_shape = {rows[i].x},
                      .out_shape = {rows[i].x},
                      .follow_in = 1,
                      .follow_out = 1,
                      .compare_out = 1,
                      .reference = ref_transpose};
        for (int d = 0; d < rows[i].x.n; d++) {
            c.attrs.transpose.perm[d] = rows[i].perm[d];
            c.out_shape[0].d[d] = rows[i].x.d[rows[i].perm[d]];
        }
        own_case_run(&c);
    }
}
static void test_reshape(void **state) {
    own_case c = {.name = "reshape",
                  .op = DT_OP_reshape,
                  .n_in = 1,
                  .n_out = 1,
                  .in_shape = {S4(2, 20, 5, 7)},
                  .out_shape = {S2(2, 700)},
                  .follow_in = 1,
                  .follow_out = 1,
                  .compare_out = 1,
                  .reference = ref_copy};
    own_case_run(&c);
    c.out_shape[0] = S3(2, 20, 35);
    own_case_run(&c);
    c.in_shape[0] = S3(2, 20, 35), c.out_shape[0] = S4(2, 20, 7, 5);
    own_case_run(&c);
    c.in_shape[0] = S4(5, 7, 1, 1), c.out_shape[0] = S2(5, 7);
    own_case_run(&c);
}
static void test_concat_slice(void **state) {
    own_case c = {.name = "concat",
                  .op = DT_OP_concat,
                  .n_in = 3,
                  .n_out = 1,
                  .follow_in = 7,
                  .follow_out = 1,
                  .compare_out = 1,
                  .reference = ref_concat};
    c.attrs.concat.axis = 1;
    c.in_shape[0] = S4(2, 16, 3, 5), c.in_shape[1] = S4(2, 32, 3, 5),
    c.in_shape[2] = S4(2, 16, 3, 5);
    c.out_shape[0] = S4(2, 64, 3, 5);
    own_case_run(&c);
    c.in_shape[1] = S4(2, 7, 3, 5), c.out_shape[0] = S4(2, 39, 3, 5);
    own_case_run(&c);
    c.n_in = 2, c.attrs.concat.axis = 0;
    c.in_shape[0] = S3(2, 3, 5), c.in_shape[1] = S3(4, 3, 5), c.out_shape[0] = S3(6, 3, 5);
    own_case_run(&c);

    const struct {
        dt_shape x;
        int axis;
        int64_t begin, end;
    } rows[] = {
        {S4(2, 48, 3, 5), 1, 16, 32}, {S4(2, 20, 3, 5), 1, 3, 9}, {S4(4, 32, 3, 5), 0, 1, 3},
        {S2(3, 10), 1, 0, 10},        {S3(3, 4, 5), 2, 4, 5},     {S4(2, 20, 6, 5), 2, 1, 4},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        own_case s = {.name = "slice",
                      .op = DT_OP_slice,
                      .n_in = 1,
                      .n_out = 1,
                      .in_shape = {rows[i].x},
                      .out_shape = {rows[i].x},
                      .follow_in = 1,
                      .follow_out = 1,
                      .compare_out = 1,
                      .grad_in = 1,
                      .reference = ref_slice};
        s.attrs.slice.axis = rows[i].axis;
        s.attrs.slice.begin = rows[i].begin, s.attrs.slice.end = rows[i].end;
        s.out_shape[0].d[rows[i].axis] = rows[i].end - rows[i].begin;
        own_case_run(&s);
    }
}

static bool fill_ids(const own_case *c, int i, double *x) {
    for (int64_t k = 0; i == 0 && k < count(&c->in_shape[0]); k++) x[k] = (double)(k * 7 % 5);
    return i == 0;
}
static void ref_embedding(const own_case *c, double *const *in, double *const *out) {
    int64_t width = c->in_shape[1].d[1];
    for (int64_t i = 0; i < count(&c->in_shape[0]); i++)
        for (int64_t k = 0; k < width; k++)
            out[0][i * width + k] = in[1][(int64_t)in[0][i] * width + k];
}
static void test_embedding(void **state) {
    own_case c = {.name = "embedding",
                  .op = DT_OP_embedding,
                  .n_in = 2,
                  .n_out = 1,
                  .in_shape = {S2(3, 4), S2(6, 21)},
                  .out_shape = {S3(3, 4, 21)},
                  .in_type = {DT_I32},
                  .follow_out = 1,
                  .param_in = 2,
                  .compare_out = 1,
                  .grad_in = 2,
                  .save_in = 1,
                  .fill = fill_ids,
                  .reference = ref_embedding};
    own_case_run(&c);
    c.in_shape[0] = S2(3, 200), c.out_shape[0] = S3(3, 200, 21);
    own_case_run(&c);
}

// ---- losses ----------------------------------------------------------------------------------------
static void ref_loss(const own_case *c, double *const *in, double *const *out) {
    int64_t n = c->in_shape[0].d[0], k = count(&c->in_shape[0]) / n;
    bool hard = c->in_type[1] == DT_I32;
    double s = (double)c->attrs.loss.smoothing, beta = (double)c->attrs.loss.beta;
    out[0][0] = out[1][0] = 0;
    for (int64_t i = 0; i < n; i++) {
        const double *x = in[0] + i * k;
        double loss = 0, z = 0, w = in[2][i];
        for (int64_t j = 0; j < k; j++) z += exp(x[j]);
        for (int64_t j = 0; j < k; j++) {
            double t = hard ? in[1][i] == (double)j : in[1][i * k + j], d = x[j] - t;
            switch (c->op) {
            case DT_OP_cross_entropy:
                loss -= ((1 - s) * t + s / (double)k) * (x[j] - log(z));
                break;
            case DT_OP_bce:
                loss += (log1p(exp(x[j])) - t * x[j]) / (double)k;
                break;
            case DT_OP_mse:
                loss += d * d / (double)k;
                break;
            default:
                loss += (fabs(d) < beta ? d * d / 2 / beta : fabs(d) - beta / 2) / (double)k;
            }
        }
        out[0][0] += w * loss;
        out[1][0] += w;
    }
}
static bool fill_loss(const own_case *c, int i, double *x) {
    if (i == 1 && c->in_type[1] == DT_I32) {
        for (int64_t n = 0; n < c->in_shape[1].d[0]; n++)
            x[n] = (double)(n * 11 % c->in_shape[0].d[1]);
        return true;
    }
    for (int64_t n = 0; i == 2 && n < c->in_shape[2].d[0]; n++)
        x[n] = n % 3 == 1 ? 0 : 0.5 + (double)n;
    return i == 2;
}
static void run_loss(dt_op op, dt_shape x, bool hard, float smoothing, float beta) {
    own_case c = {.name = dt_op_name(op),
                  .op = op,
                  .n_in = 3,
                  .n_out = 2,
                  .in_shape = {x, hard ? S1(x.d[0]) : x, S1(x.d[0])},
                  .out_shape = {S0(), S0()},
                  .in_type = {DT_F32, hard ? DT_I32 : DT_F32},
                  .stat_out = 3,
                  .compare_out = 3,
                  .grad_in = 1,
                  .save_in = 7,
                  .is_loss = true,
                  .f32_only = true,
                  .low = -4,
                  .high = 4,
                  .fill = fill_loss,
                  .reference = ref_loss};
    c.attrs.loss.smoothing = smoothing, c.attrs.loss.beta = beta;
    own_case_run(&c);
}
static void test_losses(void **state) {
    run_loss(DT_OP_cross_entropy, S2(5, 45), true, 0, 0);
    run_loss(DT_OP_cross_entropy, S2(5, 7), true, 0.1f, 0);
    run_loss(DT_OP_cross_entropy, S2(4, 19), false, 0.2f, 0);
    run_loss(DT_OP_cross_entropy, S2(3, 1000), true, 0.1f, 0);
    run_loss(DT_OP_cross_entropy, S2(2, 9000), false, 0.1f, 0);
    run_loss(DT_OP_mse, S2(3, 64), false, 0, 0);
    run_loss(DT_OP_bce, S2(4, 19), false, 0, 0);
    run_loss(DT_OP_mse, S3(4, 3, 6), false, 0, 0);
    run_loss(DT_OP_smooth_l1, S2(4, 19), false, 0, 1.5f);
}

static int run_all(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_relu),        cmocka_unit_test(test_gelu),
        cmocka_unit_test(test_scale),       cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_cast),        cmocka_unit_test(test_add),
        cmocka_unit_test(test_normalize),   cmocka_unit_test(test_normalize_mixed),
        cmocka_unit_test(test_bn),          cmocka_unit_test(test_bn_big),
        cmocka_unit_test(test_bn_far_mean), cmocka_unit_test(test_pool),
        cmocka_unit_test(test_global_pool), cmocka_unit_test(test_transpose),
        cmocka_unit_test(test_reshape),     cmocka_unit_test(test_concat_slice),
        cmocka_unit_test(test_embedding),   cmocka_unit_test(test_losses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#ifdef DT_ROWS_CUDA
int main(void) {
    const int rc = run_all();
    device_close();
    return rc;
}
#else
int main(void) {
    return run_each_isa(run_all);
}
#endif
