// test_ops_dnnl.c: rows for the ops that oneDNN computes or that lean on it: convolution, linear, matmul,
// attention, softmax, layer norm; and all reorders. Once an ISA that the machine has, in child
// processes, because the ISA is fixed at its first use.
#include "each_isa.h"
#include "op_test.inc"
#include "testing.h"

#include "backend/cpu/own_conv.h"
#include "graph/activation_words.h"
#include "graph/passes/passes.h"

// ---- convolution -----------------------------------------------------------------------------------
typedef struct conv_arg {
    int n, c, h, w, out, groups;
    dt_window win;
    bool bias, fold;
    dt_activation act;
    bool residual, winograd;
    unsigned frozen; // bits of inputs
} conv_arg;

static dt_value add_buffer(dt_graph *g, const char *name, int64_t n) {
    const dt_shape s = dt_shape1(n);
    return dt_graph_add_value(g, DT_V_BUFFER, name, DT_F32, &s);
}

static dt_value build_conv(dt_graph *g, dt_dtype t, const void *arg) {
    const conv_arg *a = arg;
    const dt_value x = dt_input(g, "x", t, dt_shape4(a->n, a->c, a->h, a->w));
    const dt_value y = dt_conv2d(
        g, "conv", x, &(dt_conv2d_opts){.out = a->out, .groups = a->groups, .bias = a->bias, .window = &a->win});
    if (y == DT_NONE) return y;
    const dt_init one = {DT_INIT_CONSTANT, 1};
    const dt_value scale = a->fold ? dt_param(g, "bn.weight", dt_shape1(a->out), one, false) : DT_NONE;
    const dt_value shift = a->fold ? dt_param(g, "bn.bias", dt_shape1(a->out), one, false) : DT_NONE;
    const dt_value mean = a->fold ? add_buffer(g, "bn.mean", a->out) : DT_NONE;
    const dt_value var = a->fold ? add_buffer(g, "bn.var", a->out) : DT_NONE;
    if (a->residual) {
        const dt_shape shape = g->values[y].shape;
        const dt_value r = dt_input(g, "residual", t, shape);
        dt_node *n = &g->nodes[g->values[y].producer];
        const dt_value in[] = {n->in[0], n->in[1], a->bias ? n->in[2] : DT_NONE, r};
        n->in = dt_arena_alloc(&g->arena, sizeof in);
        memcpy(n->in, in, sizeof in);
        n->n_in = 4;
    }
    dt_attrs *at = &g->nodes[g->values[y].producer].attrs;
    at->conv2d.act = a->act;
    at->conv2d.fold_bn = a->fold;
    at->conv2d.bn_scale = scale;
    at->conv2d.bn_shift = shift;
    at->conv2d.bn_mean = mean;
    at->conv2d.bn_var = var;
    at->conv2d.bn_eps = 1e-5f;
    return y;
}

// Not looked at by sanitizers, where it took two thirds of the time: the kernels are what is tested.
__attribute__((no_sanitize("address"), no_sanitize("undefined"))) static double
conv_at(const op_data *d, int64_t n, int64_t k, int64_t oh, int64_t ow) {
    const dt_shape *x = op_in_shape(d, 0), *w = op_in_shape(d, 1);
    const dt_window *win = &d->node->attrs.conv2d.win;
    const int64_t per_group = w->d[0] / d->node->attrs.conv2d.groups, c0 = k / per_group * w->d[1];
    const double *pixel = op_in(d, 0), *weight = op_in(d, 1);
    double sum = 0;
    for (int64_t c = 0; c < w->d[1]; c++) {
        for (int64_t r = 0; r < w->d[2]; r++) {
            for (int64_t s = 0; s < w->d[3]; s++) {
                const int64_t h = oh * win->stride[0] - win->pad_begin[0] + r * win->dilation[0];
                const int64_t q = ow * win->stride[1] - win->pad_begin[1] + s * win->dilation[1];
                if (h < 0 || h >= x->d[2] || q < 0 || q >= x->d[3]) continue;
                sum += pixel[((n * x->d[1] + c0 + c) * x->d[2] + h) * x->d[3] + q] *
                       weight[((k * w->d[1] + c) * w->d[2] + r) * w->d[3] + s];
            }
        }
    }
    return sum;
}

static void ref_conv(const op_data *d) {
    const dt_shape *y = op_out_shape(d, 0);
    const dt_attrs *a = &d->node->attrs;
    int64_t i = 0;
    for (int64_t n = 0; n < y->d[0]; n++) {
        for (int64_t k = 0; k < y->d[1]; k++) {
            for (int64_t p = 0; p < y->d[2] * y->d[3]; p++, i++) {
                double v = conv_at(d, n, k, p / y->d[3], p % y->d[3]);
                if (op_in(d, 2)) v += op_in(d, 2)[k];
                if (a->conv2d.fold_bn) {
                    const double inv = 1 / sqrt(d->data[a->conv2d.bn_var][k] + (double)a->conv2d.bn_eps);
                    v = (v - d->data[a->conv2d.bn_mean][k]) * inv * d->data[a->conv2d.bn_scale][k] +
                        d->data[a->conv2d.bn_shift][k];
                }
                if (op_in(d, 3)) v += op_in(d, 3)[i];
                op_out(d, 0)[i] = a->conv2d.act == DT_ACTIVATION_relu ? fmax(v, 0) : v;
            }
        }
    }
}

#define WIN(k, s, d, p0, p1)                                                                                           \
    {                                                                                                                  \
        .kernel = {k, k}, .stride = {s, s}, .dilation = {d, d}, .pad_begin = {p0, p0}, .pad_end = { p1, p1 }           \
    }
static void check_conv(const char *name, conv_arg a) {
    const op_row row = {.name = name,
                        .arg = &a,
                        .build = build_conv,
                        .reference = ref_conv,
                        .training = !a.fold && !a.residual,
                        .winograd = a.winograd,
                        .frozen = a.frozen,
                        .tol_bf16 = a.winograd ? 1e-2 : 0, // of weight gradients too
                        .forward_only = a.fold || a.residual || a.act != DT_ACTIVATION_none};
    op_row_check(&row);
}

static dt_value build_transposed(dt_graph *g, dt_dtype t, const void *arg) {
    const conv_arg *a = arg;
    const dt_value x = dt_input(g, "x", t, dt_shape4(a->n, a->c, a->h, a->w));
    return dt_conv_transpose(g, "conv", x, &(dt_conv2d_opts){.out = a->out, .groups = a->groups, .window = &a->win},
                             (const int[]){0, a->win.stride[1] - 1});
}
// Each pixel of x adds its window to y.
static void ref_transposed(const op_data *d) {
    const dt_shape *x = op_in_shape(d, 0), *w = op_in_shape(d, 1), *y = op_out_shape(d, 0);
    const dt_window *win = &d->node->attrs.conv2d.win;
    const int64_t c_group = x->d[1] / d->node->attrs.conv2d.groups;
    memset(op_out(d, 0), 0, (size_t)dt_shape_elements(y) * sizeof(double));
    for (int64_t i = 0; i < dt_shape_elements(x); i++) {
        const int64_t q = i % x->d[3], p = i / x->d[3] % x->d[2], plane = i / (x->d[3] * x->d[2]);
        const int64_t c = plane % x->d[1], n = plane / x->d[1];
        for (int64_t k = 0; k < w->d[1] * w->d[2] * w->d[3]; k++) {
            const int64_t col = k % w->d[3], row = k / w->d[3] % w->d[2];
            const int64_t o = c / c_group * w->d[1] + k / (w->d[3] * w->d[2]);
            const int64_t to_row = p * win->stride[0] - win->pad_begin[0] + row * win->dilation[0];
            const int64_t to_col = q * win->stride[1] - win->pad_begin[1] + col * win->dilation[1];
            if (to_row < 0 || to_col < 0 || to_row >= y->d[2] || to_col >= y->d[3]) continue;
            op_out(d, 0)[((n * y->d[1] + o) * y->d[2] + to_row) * y->d[3] + to_col] +=
                op_in(d, 0)[i] * op_in(d, 1)[c * w->d[1] * w->d[2] * w->d[3] + k];
        }
    }
}
// Its gradients are other ops (test_golden_ops).
static void check_transposed(const char *name, conv_arg a) {
    op_row_check(&(op_row){.name = name,
                           .arg = &a,
                           .build = build_transposed,
                           .reference = ref_transposed,
                           .training = true,
                           .forward_only = true});
}
TEST(test_conv_transpose) {
    check_transposed("2x2 stride 2, 32 to 16", (conv_arg){2, 32, 5, 7, 16, 1, WIN(2, 2, 1, 0, 0)});
    check_transposed("4x4 stride 2, 6 to 9", (conv_arg){2, 6, 5, 7, 9, 3, WIN(4, 2, 1, 1, 1)});
    check_transposed("3x3 dilated", (conv_arg){1, 16, 6, 5, 24, 1, WIN(3, 1, 2, 2, 2)});
}

TEST(test_conv) {
    check_conv("3x3, C=1", (conv_arg){2, 1, 9, 11, 32, 1, WIN(3, 1, 1, 1, 1)});
    check_conv("3x3, C=3, bias", (conv_arg){2, 3, 10, 8, 16, 1, WIN(3, 1, 1, 1, 1), true});
    check_conv("7x7 stride 2, C=3", (conv_arg){1, 3, 21, 20, 32, 1, WIN(7, 2, 1, 3, 3)});
    check_conv("3x3, 32 to 64", (conv_arg){2, 32, 7, 9, 64, 1, WIN(3, 1, 1, 1, 1), true});
    check_conv("1x1 stride 2, 32 to 16", (conv_arg){2, 32, 7, 7, 16, 1, WIN(1, 2, 1, 0, 0)});
    check_conv("16x16 stride 16 patches", (conv_arg){1, 3, 32, 48, 32, 1, WIN(16, 16, 1, 0, 0), true});
}

// A bias alone is trained, with and without what lies in front.
TEST(test_conv_frozen) {
    conv_arg a[] = {{2, 3, 10, 8, 16, 1, WIN(3, 1, 1, 1, 1), true},
                    {2, 20, 7, 9, 24, 1, WIN(3, 1, 1, 1, 1), true},
                    {1, 32, 6, 6, 64, 2, WIN(3, 1, 1, 1, 1), true},
                    {2, 12, 5, 6, 18, 2, WIN(3, 1, 1, 1, 1), true},
                    {2, 20, 9, 16, 20, 20, WIN(5, 1, 1, 2, 2), true}};
    for (int i = 0; i < 10; i++) {
        a[i / 2].frozen = i % 2 ? 3 : 2;
        check_conv(i % 2 ? "bias alone" : "weight frozen", a[i / 2]);
    }
}

#ifndef DT_ROWS_CUDA
TEST(test_conv_residual) {
    conv_arg a = {2, 20, 6, 5, 24, 1, WIN(3, 1, 1, 1, 1), true, true, DT_ACTIVATION_relu, true};
    check_conv("residual, folded, ReLU", a);
    a.fold = a.bias = false;
    a.act = DT_ACTIVATION_none;
    check_conv("residual", a);
    check_conv("residual, 1x1", (conv_arg){2, 40, 6, 5, 24, 1, WIN(1, 1, 1, 0, 0), .residual = true});
    a = (conv_arg){3, 32, 4, 4, 16, 1, WIN(1, 1, 1, 0, 0), true, true, DT_ACTIVATION_none, true};
    check_conv("residual, 1x1, folded", a);
    a.bias = false;
    check_conv("residual, 1x1, folded, no bias", a);
    a = (conv_arg){
        2, 32, 9, 11, 48, 1, WIN(3, 1, 1, 1, 1), true, .act = DT_ACTIVATION_relu, .residual = true, .winograd = true};
    check_conv("residual, Winograd", a);
}
#endif

TEST(test_conv_odd) {
    check_conv("C=20 to 24, bias", (conv_arg){2, 20, 6, 5, 24, 1, WIN(3, 1, 1, 1, 1), true});
    check_conv("C=5 to 3", (conv_arg){1, 5, 6, 5, 3, 1, WIN(3, 1, 1, 1, 1), true});
    check_conv("dilation 2", (conv_arg){1, 16, 9, 9, 16, 1, WIN(3, 1, 2, 2, 2)});
    check_conv("asymmetric padding", (conv_arg){2, 16, 8, 9, 16, 1, WIN(3, 2, 1, 0, 1), true});
    check_conv("asymmetric padding, C=3", (conv_arg){1, 3, 8, 9, 20, 1, WIN(4, 1, 1, 1, 2)});
    check_conv("images of one pixel", (conv_arg){8, 64, 1, 1, 128, 1, WIN(3, 2, 1, 1, 1)});
    check_conv("floor leaves a rest", (conv_arg){1, 16, 8, 10, 32, 1, WIN(3, 3, 1, 0, 0)});
}

TEST(test_conv_groups) {
    check_conv("groups of 16", (conv_arg){1, 32, 6, 6, 64, 2, WIN(3, 1, 1, 1, 1), true});
    check_conv("groups of 6", (conv_arg){2, 12, 5, 6, 18, 2, WIN(3, 1, 1, 1, 1), true});
}

// Each kernel of depthwise.c at sizes with edges only, with whole tiles of seven between them, and with a rest.
TEST(test_conv_depthwise) {
    const int kernels[] = {3, 5, 7}, sizes[][2] = {{2, 3}, {9, 16}, {6, 25}};
    for (int k = 0; k < 3; k++)
        for (int stride = 1; stride <= 2; stride++)
            for (int i = 0; i < 3; i++) {
                char name[64];
                snprintf(name, sizeof name, "depthwise %d, stride %d, %dx%d", kernels[k], stride, sizes[i][0],
                         sizes[i][1]);
                check_conv(name,
                           (conv_arg){2, 20, sizes[i][0], sizes[i][1], 20, 20,
                                      WIN(kernels[k], stride, 1, kernels[k] / 2, kernels[k] / 2), .bias = i == 1});
            }
    check_conv("depthwise, asymmetric padding", (conv_arg){2, 16, 8, 17, 16, 16, WIN(3, 2, 1, 0, 1), true});
    check_conv("depthwise 5, no padding", (conv_arg){1, 16, 8, 19, 16, 16, WIN(5, 1, 1, 0, 0)});
    check_conv("depthwise 5, wide padding", (conv_arg){1, 16, 5, 6, 16, 16, WIN(5, 2, 1, 4, 4)});
    conv_arg a = {2, 24, 9, 17, 24, 24, WIN(5, 1, 1, 2, 2)};
    a.win.kernel[0] = 3;
    a.win.stride[0] = 2;
    check_conv("depthwise 3x5, strides 2 and 1", a);
    check_conv("depthwise, dilation 2", (conv_arg){1, 16, 9, 9, 16, 16, WIN(3, 1, 2, 2, 2)});
    check_conv("depthwise, stride 3", (conv_arg){1, 16, 9, 9, 16, 16, WIN(3, 3, 1, 1, 1)});
}

#ifndef DT_ROWS_CUDA
TEST(test_conv_depthwise_fused) {
    conv_arg a = {2, 20, 9, 16, 20, 20, WIN(3, 1, 1, 1, 1), true, false, DT_ACTIVATION_relu};
    check_conv("depthwise, relu", a);
    a.fold = true;
    check_conv("depthwise, bn folded, relu", a);
    a.bias = false;
    a.act = DT_ACTIVATION_none;
    check_conv("depthwise, bn folded", a);
    a.residual = true;
    check_conv("depthwise, bn folded, residual", a);
    check_conv("depthwise 5, stride 2, bn folded",
               (conv_arg){2, 20, 9, 16, 20, 20, WIN(5, 2, 1, 2, 2), true, true, DT_ACTIVATION_relu});
}

// All three directions on so many threads, to `out`: y, dx, dw, db.
static void run_depthwise(const dt_dnnl_conv *conv, int threads, float *out, int64_t each) {
    dt_depthwise_conv d;
    assert_int_equal(dt_depthwise_init(&d, conv, threads) >> DT_DNNL_BACKWARD_WEIGHTS, 1);
    float *x = dt_xcalloc((size_t)(3 * each), sizeof *x), *dy = x + each, *w = dy + each;
    for (int64_t i = 0; i < 3 * each; i++) x[i] = (float)(i * 37 % 101) * 0.01f - 0.5f;
    dt_depthwise_run(&d, DT_DNNL_FORWARD, x, w, NULL, out);
    dt_depthwise_run(&d, DT_DNNL_BACKWARD_DATA, dy, w, NULL, out + each);
    dt_depthwise_run_weights(&d, x, dy, out + 2 * each, out + 3 * each, 0);
    free(x);
}

TEST(test_conv_depthwise_threads) {
    if (dt_cpu_isa_get() == DT_CPU_GENERIC) skip(); // oneDNN's alone
    const dt_shape x = dt_shape4(2, 96, 9, 16), y = dt_shape4(2, 96, 5, 8);
    const dt_dnnl_conv conv = {.src = dt_dnnl_laid_out(DT_F32, &x, dt_blocked(dt_cpu_block())),
                               .dst = dt_dnnl_laid_out(DT_F32, &y, dt_blocked(dt_cpu_block())),
                               .weights = dt_dnnl_any(DT_F32, 5, (int64_t[]){96, 1, 1, 5, 5}),
                               .stride = {2, 2},
                               .dilation = {1, 1},
                               .pad_begin = {2, 2},
                               .pad_end = {2, 2}};
    const int64_t each = dt_shape_elements(&x);
    float *one = dt_xcalloc((size_t)(4 * each), sizeof *one);
    float *many = dt_xcalloc((size_t)(4 * each), sizeof *many);
    run_depthwise(&conv, 1, one, each);
    for (int threads = 2; threads <= 5; threads++) {
        run_depthwise(&conv, threads, many, each);
        assert_memory_equal(one, many, (size_t)(4 * each) * sizeof *one);
    }
    free(one);
    free(many);
}
#endif

// Whatever is faster.
#ifndef DT_ROWS_CUDA
TEST(test_conv_winograd) {
    check_conv("Winograd, 32 to 48", (conv_arg){2, 32, 9, 11, 48, 1, WIN(3, 1, 1, 1, 1), .winograd = true});
    check_conv("Winograd, C=20 to 24, bias",
               (conv_arg){2, 20, 6, 5, 24, 1, WIN(3, 1, 1, 1, 1), true, .winograd = true});
    check_conv("Winograd, no padding", (conv_arg){1, 16, 14, 9, 16, 1, WIN(3, 1, 1, 0, 0), .winograd = true});
    check_conv("Winograd, relu",
               (conv_arg){1, 24, 9, 5, 20, 1, WIN(3, 1, 1, 1, 1), true, false, DT_ACTIVATION_relu, true});
    check_conv("Winograd, bn folded",
               (conv_arg){1, 20, 6, 7, 24, 1, WIN(3, 1, 1, 1, 1), true, true, DT_ACTIVATION_none, true});
}
#endif

TEST(test_conv_fused) {
    check_conv("relu", (conv_arg){2, 16, 6, 7, 32, 1, WIN(3, 1, 1, 1, 1), true, false, DT_ACTIVATION_relu});
    check_conv("bn folded", (conv_arg){2, 3, 6, 7, 32, 1, WIN(3, 1, 1, 1, 1), false, true, DT_ACTIVATION_relu});
    check_conv("bn folded into a bias",
               (conv_arg){1, 20, 6, 7, 24, 1, WIN(3, 1, 1, 1, 1), true, true, DT_ACTIVATION_none});
}

// ---- linear ----------------------------------------------------------------------------------------
typedef struct linear_arg {
    dt_shape x;
    int64_t out;
    bool bias;
    dt_activation act;
} linear_arg;

static dt_value build_linear(dt_graph *g, dt_dtype t, const void *arg) {
    const linear_arg *a = arg;
    const dt_value y = dt_linear(g, "linear", dt_input(g, "x", t, a->x), a->out, a->bias);
    if (y != DT_NONE) g->nodes[g->values[y].producer].attrs.linear.act = a->act;
    return y;
}

static void ref_linear(const op_data *d) {
    const dt_shape *w = op_in_shape(d, 1);
    const int64_t rows = dt_shape_elements(op_in_shape(d, 0)) / w->d[1];
    const dt_activation act = d->node->attrs.linear.act;
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t o = 0; o < w->d[0]; o++) {
            double v = op_in(d, 2) ? op_in(d, 2)[o] : 0;
            for (int64_t k = 0; k < w->d[1]; k++) v += op_in(d, 0)[i * w->d[1] + k] * op_in(d, 1)[o * w->d[1] + k];
            if (act == DT_ACTIVATION_relu) v = fmax(v, 0);
            if (act == DT_ACTIVATION_gelu) v = 0.5 * v * erfc(-v / sqrt(2));
            if (act == DT_ACTIVATION_gelu_tanh) v = 0.5 * v * (1 + tanh(sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
            op_out(d, 0)[i * w->d[0] + o] = v;
        }
    }
}

static void check_linear(const char *name, linear_arg a) {
    const op_row row = {.name = name,
                        .arg = &a,
                        .build = build_linear,
                        .reference = ref_linear,
                        .training = true,
                        .forward_only = a.act > DT_ACTIVATION_relu};
    op_row_check(&row);
}

TEST(test_linear) {
    check_linear("4x256 to 384", (linear_arg){dt_shape2(4, 256), 384, true});
    check_linear("odd, no bias", (linear_arg){dt_shape2(3, 37), 45, false});
    check_linear("one row", (linear_arg){dt_shape2(1, 64), 10, true});
    check_linear("(2,7,48)", (linear_arg){dt_shape3(2, 7, 48), 96, true});
    check_linear("relu", (linear_arg){dt_shape2(5, 33), 50, true, DT_ACTIVATION_relu});
    check_linear("gelu", (linear_arg){dt_shape2(5, 32), 48, true, DT_ACTIVATION_gelu});
    check_linear("gelu tanh", (linear_arg){dt_shape2(5, 32), 48, true, DT_ACTIVATION_gelu_tanh});
    check_linear("gelu tanh, no bias", (linear_arg){dt_shape2(5, 32), 48, false, DT_ACTIVATION_gelu_tanh});
}

// ---- matmul ----------------------------------------------------------------------------------------
typedef struct matmul_arg {
    dt_shape a, b;
    bool ta, tb;
    float alpha;
} matmul_arg;

static dt_value build_matmul(dt_graph *g, dt_dtype t, const void *arg) {
    const matmul_arg *m = arg;
    return dt_matmul(g, dt_input(g, "a", t, m->a), dt_input(g, "b", t, m->b), m->ta, m->tb, m->alpha);
}

static void ref_matmul(const op_data *d) {
    const dt_shape *a = op_in_shape(d, 0), *b = op_in_shape(d, 1), *c = op_out_shape(d, 0);
    const dt_attrs *at = &d->node->attrs;
    const int64_t m = c->d[c->n - 2], n = c->d[c->n - 1], a1 = a->d[a->n - 1], b1 = b->d[b->n - 1];
    const int64_t inner = at->matmul.trans_a ? a->d[a->n - 2] : a1, batch = dt_shape_elements(c) / m / n;
    for (int64_t i = 0; i < batch * m * n; i++) {
        const int64_t q = i / (m * n), row = i / n % m, col = i % n;
        const double *pa = op_in(d, 0) + q * m * inner, *pb = op_in(d, 1) + q * n * inner;
        double v = 0;
        for (int64_t k = 0; k < inner; k++)
            v += pa[at->matmul.trans_a ? k * a1 + row : row * a1 + k] *
                 pb[at->matmul.trans_b ? col * b1 + k : k * b1 + col];
        op_out(d, 0)[i] = v * (double)at->matmul.alpha;
    }
}

static void check_matmul(const char *name, matmul_arg a) {
    const op_row row = {.name = name, .arg = &a, .build = build_matmul, .reference = ref_matmul, .forward_only = true};
    op_row_check(&row);
}

TEST(test_matmul) {
    check_matmul("plain", (matmul_arg){dt_shape2(5, 19), dt_shape2(19, 23), false, false, 1});
    check_matmul("b transposed", (matmul_arg){dt_shape3(3, 8, 16), dt_shape3(3, 24, 16), false, true, 0.5f});
    check_matmul("a transposed", (matmul_arg){dt_shape3(3, 16, 8), dt_shape3(3, 16, 24), true, false, 1});
    check_matmul("both", (matmul_arg){dt_shape4(2, 3, 16, 8), dt_shape4(2, 3, 5, 16), true, true, 2});
}

// ---- attention -------------------------------------------------------------------------------------
typedef struct sdpa_arg {
    dt_shape q, k;
    bool packed; // q = k, in one tensor (N,T,3*H*D)
} sdpa_arg;

static dt_value build_sdpa(dt_graph *g, dt_dtype t, const void *arg) {
    const sdpa_arg *a = arg;
    const float scale = 1.7f / sqrtf((float)a->q.d[3]);
    if (a->packed) {
        const dt_shape s = dt_shape3(a->q.d[0], a->q.d[2], 3 * a->q.d[1] * a->q.d[3]);
        return dt_sdpa_packed(g, "sdpa", dt_input(g, "qkv", t, s), (int)a->q.d[1], scale);
    }
    return dt_sdpa(g, dt_input(g, "q", t, a->q), dt_input(g, "k", t, a->k), dt_input(g, "v", t, a->k), scale);
}

// One head of one sample; rows are ld elements apart.
static void ref_head(const double *q, const double *k, const double *v, double *y, double *lse, const int64_t size[3],
                     const int64_t ld[3], double scale) {
    const int64_t tq = size[0], tk = size[1], dim = size[2];
    double *s = dt_xcalloc((size_t)tk, sizeof *s);
    for (int64_t i = 0; i < tq; i++) {
        double sum = 0;
        for (int64_t j = 0; j < tk; j++) {
            s[j] = 0;
            for (int64_t e = 0; e < dim; e++) s[j] += q[i * ld[0] + e] * k[j * ld[1] + e];
            s[j] = exp(s[j] * scale);
            sum += s[j];
        }
        for (int64_t e = 0; e < dim; e++) {
            y[i * ld[2] + e] = 0;
            for (int64_t j = 0; j < tk; j++) y[i * ld[2] + e] += s[j] / sum * v[j * ld[1] + e];
        }
        lse[i] = log(sum);
    }
    free(s);
}

static void ref_sdpa(const op_data *d) {
    const dt_shape *q = op_in_shape(d, 0);
    const double scale = (double)d->node->attrs.sdpa.scale;
    const int64_t packed = d->node->attrs.sdpa.heads, n = q->d[0];
    if (packed) {
        const int64_t t = q->d[1], row = q->d[2], all = row / 3, dim = all / packed;
        for (int64_t i = 0; i < n * packed; i++) {
            const double *x = op_in(d, 0) + i / packed * t * row + i % packed * dim;
            ref_head(x, x + all, x + 2 * all, op_out(d, 0) + i / packed * t * all + i % packed * dim,
                     op_out(d, 1) + i * t, (int64_t[]){t, t, dim}, (int64_t[]){row, row, all}, scale);
        }
        return;
    }
    const int64_t tq = q->d[2], tk = op_in_shape(d, 1)->d[2], dim = q->d[3];
    for (int64_t i = 0; i < n * q->d[1]; i++) {
        ref_head(op_in(d, 0) + i * tq * dim, op_in(d, 1) + i * tk * dim, op_in(d, 2) + i * tk * dim,
                 op_out(d, 0) + i * tq * dim, op_out(d, 1) + i * tq, (int64_t[]){tq, tk, dim},
                 (int64_t[]){dim, dim, dim}, scale);
    }
}

// Lets the CUDA backend's attention do a few heads after one another where it uses no cuDNN; false on CPUs.
static bool few_matrices_at_a_time(void) {
#ifdef DT_ROWS_CUDA
    dt_backend *b = NULL;
    must(device_backend(&b));
    dt_cuda_self(b)->attention_bytes = 1000;
    return true;
#else
    return false;
#endif
}

TEST(test_sdpa) {
    const sdpa_arg args[] = {{dt_shape4(2, 3, 7, 16), dt_shape4(2, 3, 7, 16)},
                             {dt_shape4(1, 2, 5, 8), dt_shape4(1, 2, 37, 8)},
                             {dt_shape4(1, 1, 1, 64), dt_shape4(1, 1, 3, 64)},
                             {dt_shape4(1, 2, 33, 12), dt_shape4(1, 2, 33, 12)},
                             {dt_shape4(2, 3, 7, 16), dt_shape4(2, 3, 7, 16), true},
                             {dt_shape4(1, 2, 33, 12), dt_shape4(1, 2, 33, 12), true},
                             {dt_shape4(3, 1, 17, 64), dt_shape4(3, 1, 17, 64), true},
                             {dt_shape4(4, 4, 17, 16), dt_shape4(4, 4, 17, 16), true},
                             {dt_shape4(5, 2, 7, 5), dt_shape4(5, 2, 7, 5), true}};
    const size_t n_args = sizeof args / sizeof *args;
    for (size_t k = 0; k < 2 * n_args; k++) {
        const size_t i = k % n_args;
        if (k == n_args && !few_matrices_at_a_time()) break;
        const op_row row = {.name = "sdpa",
                            .arg = &args[i],
                            .build = build_sdpa,
                            .reference = ref_sdpa,
                            .training = true,
                            .tol_bf16 = 2e-2};
        op_row_check(&row);
    }
}

// ---- rows ------------------------------------------------------------------------------------------
static dt_value build_softmax(dt_graph *g, dt_dtype t, const void *arg) {
    return dt_softmax(g, dt_input(g, "x", t, *(const dt_shape *)arg));
}
static dt_value build_layer_norm(dt_graph *g, dt_dtype t, const void *arg) {
    return dt_layer_norm(g, "norm", dt_input(g, "x", t, *(const dt_shape *)arg), 1e-5f);
}

// The layer norm that adds first; its gradient is held to that of two nodes by cuda/test_fused_cuda.c.
static dt_value build_norm_add(dt_graph *g, dt_dtype t, const void *arg) {
    const dt_shape s = *(const dt_shape *)arg;
    const dt_value sum = dt_add(g, dt_input(g, "x", t, s), dt_input(g, "residual", t, s));
    const dt_value y = dt_layer_norm(g, "norm", sum, 1e-5f);
    return dt_pass_fuse_norm_add(g) == DT_OK ? y : DT_NONE;
}

static void ref_softmax(const op_data *d) {
    const dt_shape *x = op_in_shape(d, 0);
    const int64_t n = x->d[x->n - 1], rows = dt_shape_elements(x) / n;
    for (int64_t i = 0; i < rows; i++) {
        double sum = 0;
        for (int64_t k = 0; k < n; k++) sum += exp(op_in(d, 0)[i * n + k]);
        for (int64_t k = 0; k < n; k++) op_out(d, 0)[i * n + k] = exp(op_in(d, 0)[i * n + k]) / sum;
    }
}

static void ref_layer_norm(const op_data *d) {
    const dt_shape *x = op_in_shape(d, 0);
    const int64_t n = x->d[x->n - 1], rows = dt_shape_elements(x) / n;
    for (int64_t i = 0; i < rows; i++) {
        double row[5000], mean = 0, var = 0;
        for (int64_t k = 0; k < n; k++) row[k] = op_in(d, 0)[i * n + k] + (op_in(d, 3) ? op_in(d, 3)[i * n + k] : 0);
        if (op_in(d, 3)) memcpy(op_out(d, 3) + i * n, row, (size_t)n * sizeof *row);
        for (int64_t k = 0; k < n; k++) mean += row[k] / (double)n;
        for (int64_t k = 0; k < n; k++) var += (row[k] - mean) * (row[k] - mean) / (double)n;
        const double inv = 1 / sqrt(var + (double)d->node->attrs.layer_norm.eps);
        for (int64_t k = 0; k < n; k++)
            op_out(d, 0)[i * n + k] = (row[k] - mean) * inv * op_in(d, 1)[k] + op_in(d, 2)[k];
        op_out(d, 1)[i] = mean;
        op_out(d, 2)[i] = inv;
    }
}

TEST(test_rows) {
    const dt_shape shapes[] = {dt_shape2(3, 5),  dt_shape3(2, 3, 64), dt_shape2(7, 197),
                               dt_shape2(1, 16), dt_shape2(2, 5000),  dt_shape2(8500, 16)};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const op_row softmax = {.name = "softmax",
                                .arg = &shapes[i],
                                .build = build_softmax,
                                .reference = ref_softmax,
                                .training = true,
                                .tol_bf16 = 3e-2}; // the gradient reads the rounded output
        op_row_check(&softmax);
        const op_row norm = {.name = "layer_norm",
                             .arg = &shapes[i],
                             .build = build_layer_norm,
                             .reference = ref_layer_norm,
                             .training = true,
                             .tol_f32 = 5e-5};
        op_row_check(&norm);
        const op_row add = {.name = "layer_norm + residual",
                            .arg = &shapes[i],
                            .build = build_norm_add,
                            .reference = ref_layer_norm,
                            .forward_only = true,
                            .tol_bf16 = 2e-2}; // the moments are the rounded sum's
        op_row_check(&add);
    }
}

#ifndef DT_ROWS_CUDA // what follows is about the CPU
// ---- reorders --------------------------------------------------------------------------------------
static void check_reorder(dt_backend *b, dt_shape s, dt_layout from, dt_dtype ft, dt_layout to, dt_dtype tt) {
    const op_row row = {.name = "reorder"};
    const op_run o = {.row = &row, .type = ft};
    const int64_t n = dt_shape_elements(&s);
    const size_t bytes = dt_layout_bytes(to, tt, &s);
    double *x = dt_xcalloc((size_t)n, sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = (double)(i % 255 - 127); // exact in bf16
    void *src = op_alloc(dt_layout_bytes(from, ft, &s)), *dst = op_alloc(bytes);
    void *want = dt_xcalloc(bytes, 1);
    op_store(src, ft, from, &s, x);
    op_store(want, tt, to, &s, x);
    for (int threads = 1; threads <= 2; threads++) {
        memset(dst, 0x5a, bytes);
        b->reorder(b, threads, &s, src, ft, from, dst, tt, to, NULL);
        assert_memory_equal(dst, want, bytes); // padding channels included
        op_check_canary(&o, dst, bytes, "reorder");
    }
    free(x);
    free(src);
    free(dst);
    free(want);
}

TEST(test_reorder) {
    dt_backend *b;
    must(dt_backend_create(&b, DT_DEVICE_auto, &(dt_backend_opts){.threads = 2}));
    const dt_layout layouts[] = {dt_dense(), {.kind = DT_NHWC}, dt_blocked(dt_cpu_block())};
    const dt_dtype types[] = {DT_F32, DT_BF16};
    const dt_shape shapes[] = {dt_shape4(2, 20, 5, 7), dt_shape4(1, 32, 40, 41), dt_shape4(3, 1, 4, 4),
                               dt_shape4(2, 3, 9, 13), dt_shape4(2, 48, 1, 1)};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        for (int i = 0; i < 36; i++) {
            check_reorder(b, shapes[s], layouts[i % 3], types[i / 9 % 2], layouts[i / 3 % 3], types[i / 18 % 2]);
        }
    }
    b->destroy(b);
}

TEST(test_backend) {
    dt_backend *b;
    const dt_backend_opts opts = {.threads = 1};
    must(dt_backend_create(&b, DT_DEVICE_cpu, &opts));
    assert_string_equal(b->name, "cpu");
    assert_true(b->supports_dtype(b, DT_F32) && !b->supports_dtype(b, DT_F16));
    const size_t sizes[] = {0, 1, 4096, 1 << 20, 5 << 20};
    for (int i = 0; i < 5; i++) {
        char *p;
        must(b->alloc(b, (void **)&p, sizes[i], "test"));
        assert_int_equal((uintptr_t)p % 64, 0);
        for (size_t k = 0; k < sizes[i]; k += 997) assert_int_equal(p[k], 0);
        memset(p, 1, sizes[i]);
        b->free(b, p, sizes[i]);
    }
    b->destroy(b);
}

#endif

int main(void) {
    return run_rows();
}
