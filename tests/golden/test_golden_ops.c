// test_golden_ops.c: every op, forward and backward, against PyTorch (make_ops.py). One row a case;
// each row runs unfused and fused, in f32 and in bf16, through the graph, the plan and the backend:
// the same way that training goes.

#include "config/words.h"
#include "golden.h"
#include "graph/activation_words.h"

typedef struct golden_case {
    dt_graph *g;
    const dt_safetensors *file;
    const char *name;
} golden_case;

// A differentiable input: a parameter behind an identity, so that ops see an activation.
static dt_value in(const golden_case *c, const char *name) {
    dt_shape s = golden_shape(c->file, c->name, name);
    dt_value p = dt_param(c->g, name, s, (dt_init){DT_INIT_ZERO, 0}, true);
    return dt_reshape(c->g, p, s);
}
static dt_value constant(const golden_case *c, const char *name, dt_dtype type) {
    return dt_constant(c->g, name, type, golden_shape(c->file, c->name, name),
                       golden_find(c->file, c->name, name, NULL));
}
static int out_channels(const golden_case *c) {
    return (int)golden_shape(c->file, c->name, "w").d[0];
}

static dt_value conv(const golden_case *c, dt_conv2d_opts o) {
    o.out = out_channels(c);
    o.kernel = (int)golden_shape(c->file, c->name, "w").d[2];
    return dt_conv2d(c->g, "op", in(c, "x"), &o);
}
static dt_value bn(const golden_case *c) {
    return dt_batch_norm(c->g, "op", in(c, "x"));
}
static dt_value loss(const golden_case *c, dt_loss_id kind, dt_dtype target, float smoothing, float beta) {
    return dt_loss(c->g, kind, in(c, "x"), constant(c, "target", target), constant(c, "weight", DT_F32), smoothing,
                   beta);
}
static dt_value weighing(const golden_case *c, dt_loss_id kind, dt_dtype target, float smoothing, const char *by) {
    return dt_loss_share(c->g, "loss", kind, in(c, "x"), constant(c, "target", target), constant(c, "weight", DT_F32),
                         constant(c, by, DT_F32), false, smoothing, 0, 1);
}

typedef struct golden_row {
    const char *name;
    dt_value (*build)(const golden_case *c);
    bool is_loss;
} golden_row;

static dt_safetensors *file;
static bool bf16; // the backend computes in it natively

// The golden tensor of a parameter: "op.weight" is "w" or "s", "op.bias" is "b", others their own
// name.
static const float *golden_of(const char *row, const char *param, const char *suffix, int64_t *n) {
    char name[128];
    const char *base = param;
    if (strcmp(param, "op.weight") == 0) {
        snprintf(name, sizeof name, "w%s", suffix);
        const float *w = golden_find(file, row, name, n);
        if (w) return w;
        base = "s";
    } else if (strcmp(param, "op.bias") == 0) {
        base = "b";
    }
    snprintf(name, sizeof name, "%s%s", base, suffix);
    return golden_find(file, row, name, n);
}

static void check_row(const golden_row *row, bool fuse, dt_dtype type, int threads) {
    double tol = type == DT_F32 ? 2e-5 : 4e-2;
    dt_graph *g = dt_graph_create(row->name, true);
    golden_case c = {g, file, row->name};
    dt_value y = row->build(&c);
    if (!row->is_loss) {
        dt_output(g, "y", y);
        dt_shape t = golden_shape(file, row->name, "t");
        static const float ones[64] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
        dt_value weight = dt_constant(g, "unit_weight", DT_F32, dt_shape1(t.d[0]), ones);
        dt_loss(g, DT_LOSS_mse, y, constant(&c, "t", DT_F32), weight, 0, 0);
    }
    must(dt_graph_check(g));
    if (fuse) must(dt_pass_fuse(g));
    must(dt_graph_differentiate(g));
    must(dt_pass_amp(g, type));
    must(dt_pass_dead_code(g));

    dt_backend *b = NULL;
    must(dt_backend_create(&b, DT_DEVICE_cpu, &(dt_backend_opts){.threads = threads, .deterministic = true}));
    dt_params *p = NULL;
    must(dt_params_create(&p, g, b, 0, 1));
    for (int i = 0; i < p->n_entries; i++) {
        int64_t n = 0;
        const float *x = golden_of(row->name, p->entries[i].name, "", &n);
        if (!x || n != p->entries[i].count) fail_msg("%s: no golden value of %s", row->name, p->entries[i].name);
        memcpy(p->master + p->entries[i].offset, x, (size_t)n * sizeof(float));
    }
    dt_plan *plan = NULL;
    must(dt_plan_create(&plan, g, p, &(dt_plan_opts){.threads = threads, .n_replicas = 1}));
    dt_params_repack(p);
    dt_exec *e = NULL;
    must(dt_exec_create(&e, plan, 0));
    // twice, adding: the flat buffer then holds twice the gradient, which shows that both ways are right
    dt_exec_args args = {.step = {.seed = 1, .loss_scale = 1}, .grad = p->grads[0]};
    dt_exec_run(e, &args);
    args.accumulate = true;
    dt_exec_run(e, &args);

    char what[256];
    int64_t n = 0;
    const char *kind = type == DT_F32 ? "f32" : "bf16";
    const float *want = golden_find(file, row->name, "y", &n);
    float *got = calloc((size_t)n + 1, sizeof(float));
    if (row->is_loss)
        got[0] = p->grads[0][p->stats[dt_params_find_stat(p, "loss")].offset] / 2;
    else
        assert_int_equal(dt_exec_output(e, "y", got, n), n);
    snprintf(what, sizeof what, "%s %s y", row->name, kind);
    golden_compare(what, got, want, n, tol);
    free(got);
    for (int i = 0; i < p->n_entries; i++) {
        want = golden_of(row->name, p->entries[i].name, ".grad", &n);
        if (!want) fail_msg("%s: no golden gradient of %s", row->name, p->entries[i].name);
        float *half = calloc((size_t)n, sizeof(float));
        for (int64_t k = 0; k < n; k++) half[k] = p->grads[0][p->entries[i].offset + k] / 2;
        snprintf(what, sizeof what, "%s %s%s grad of %s", row->name, kind, fuse ? " fused" : "", p->entries[i].name);
        golden_compare(what, half, want, n, tol);
        free(half);
    }
    dt_exec_destroy(e);
    dt_plan_destroy(plan);
    dt_params_destroy(p);
    b->destroy(b);
    dt_graph_destroy(g);
}

static void check(const golden_row *row) {
    check_row(row, false, DT_F32, 1);
    check_row(row, true, DT_F32, 2);
    if (bf16) check_row(row, true, DT_BF16, 1);
}

// A test of each case of the file: how the graph of case `c` is built.
#define CASE(id, loss, graph)                                                                                          \
    static dt_value build_##id(const golden_case *c) {                                                                 \
        return graph;                                                                                                  \
    }                                                                                                                  \
    TEST(id) {                                                                                                         \
        check(&(golden_row){#id, build_##id, loss});                                                                   \
    }
#define OP(id, ...)   CASE(id, false, (__VA_ARGS__))
#define LOSS(id, ...) CASE(id, true, (__VA_ARGS__))

static const dt_window asymmetric = {{3, 3}, {1, 1}, {1, 1}, {1, 0}, {2, 1}};
OP(conv_c1, conv(c, (dt_conv2d_opts){.pad = 1}))
OP(conv_c3, conv(c, (dt_conv2d_opts){.pad = 1}))
OP(conv_block, conv(c, (dt_conv2d_opts){.pad = 1}))
OP(conv_odd, conv(c, (dt_conv2d_opts){.pad = 1, .bias = true}))
OP(conv_stride, conv(c, (dt_conv2d_opts){.stride = 2, .pad = 3}))
OP(conv_1x1, conv(c, (dt_conv2d_opts){.stride = 2}))
OP(conv_groups, conv(c, (dt_conv2d_opts){.pad = 1, .groups = 2}))
OP(conv_dilated, conv(c, (dt_conv2d_opts){.pad = 2, .dilation = 2}))
OP(conv_asymmetric, conv(c, (dt_conv2d_opts){.window = &asymmetric}))
OP(linear, dt_linear(c->g, "op", in(c, "x"), out_channels(c), true))
OP(linear_3d, dt_linear(c->g, "op", in(c, "x"), out_channels(c), false))
OP(linear_relu, dt_relu(c->g, dt_linear(c->g, "op", in(c, "x"), out_channels(c), true)))
OP(matmul, dt_matmul(c->g, in(c, "a"), in(c, "b"), false, false, 1))
OP(matmul_nt, dt_matmul(c->g, in(c, "a"), in(c, "b"), false, true, 0.5f))
OP(batch_norm, bn(c))
OP(batch_norm_odd, bn(c))
OP(batch_norm_relu, dt_relu(c->g, bn(c)))
OP(batch_norm_add_relu, dt_relu(c->g, dt_add(c->g, bn(c), in(c, "r"))))
OP(batch_norm_relu_pool, dt_max_pool(c->g, dt_relu(c->g, bn(c)), 2, 2, 0))
OP(layer_norm, dt_layer_norm(c->g, "op", in(c, "x"), 1e-5f))
OP(relu, dt_relu(c->g, in(c, "x")))
OP(gelu, dt_gelu(c->g, in(c, "x")))
OP(gelu_tanh, dt_gelu_tanh(c->g, in(c, "x")))
OP(max_pool, dt_max_pool(c->g, in(c, "x"), 3, 2, 1))
OP(max_pool_odd, dt_max_pool(c->g, in(c, "x"), 2, 2, 0))
OP(avg_pool, dt_avg_pool(c->g, in(c, "x"), 2, 2, 0))
OP(global_pool, dt_global_pool(c->g, in(c, "x")))
OP(add, dt_add(c->g, in(c, "a"), in(c, "b")))
OP(add_broadcast, dt_add(c->g, in(c, "a"), in(c, "b")))
OP(scale, dt_scale(c->g, in(c, "x"), 0.25f))
OP(concat, dt_concat(c->g, (dt_value[]){in(c, "a"), in(c, "b")}, 2, 1))
OP(concat_tokens, dt_concat(c->g, (dt_value[]){in(c, "a"), in(c, "b")}, 2, 1))
OP(slice, dt_slice(c->g, in(c, "x"), 1, 1, 4))
OP(transpose, dt_transpose(c->g, in(c, "x"), (int[]){0, 2, 1, 3}))
OP(reshape, dt_reshape(c->g, in(c, "x"), dt_shape2(2, -1)))
OP(softmax, dt_softmax(c->g, in(c, "x")))
OP(sdpa, dt_sdpa(c->g, in(c, "q"), in(c, "k"), in(c, "v"), 0.35f))
static const dt_window four = {{4, 4}, {2, 2}, {1, 1}, {1, 1}, {1, 1}};
static const dt_window uneven = {{2, 3}, {3, 2}, {1, 2}, {0, 1}, {0, 1}};
static const int none[2] = {0, 0}, more[2] = {2, 1};
static const int64_t size[2] = {9, 4}, scaled[2] = {10, 14};
OP(conv_transpose, dt_conv_transpose(c->g, "op", in(c, "x"), &(dt_conv2d_opts){.out = 24, .window = &four}, none))
OP(conv_transpose_keys,
   dt_conv_transpose(c->g, "op", in(c, "x"), &(dt_conv2d_opts){.out = 4, .groups = 2, .bias = true, .window = &uneven},
                     more))
OP(group_norm, dt_group_norm(c->g, "op", in(c, "x"), 4, 1e-5f, true))
OP(instance_norm, dt_group_norm(c->g, "op", in(c, "x"), 5, 1e-5f, false))
OP(prelu, dt_prelu(c->g, "op", in(c, "x"), true, 0))
OP(prelu_one, dt_prelu(c->g, "op", in(c, "x"), false, 0))
OP(pad, dt_pad(c->g, dt_pad(c->g, in(c, "x"), 3, 2, -1, DT_PAD_CONSTANT, -0.5f), 2, 0, 3, DT_PAD_CONSTANT, -0.5f))
OP(pad_reflect, dt_pad(c->g, dt_pad(c->g, in(c, "x"), 3, 2, 1, DT_PAD_REFLECT, 0), 2, 0, 3, DT_PAD_REFLECT, 0))
OP(adaptive_max_pool, dt_adaptive_pool(c->g, in(c, "x"), 3, 7, true))
OP(adaptive_avg_pool, dt_adaptive_pool(c->g, in(c, "x"), 4, 3, false))
OP(resize, dt_resize2d(c->g, in(c, "x"), DT_RESIZE_BILINEAR, size, NULL))
OP(resize_corners, dt_resize2d(c->g, in(c, "x"), DT_RESIZE_BILINEAR_CORNERS, size, NULL))
OP(resize_nearest, dt_resize2d(c->g, in(c, "x"), DT_RESIZE_NEAREST, scaled, (const double[]){1.7, 2}))
OP(sum_axes, dt_reduce(c->g, in(c, "x"), DT_REDUCE_SUM, 1 << 1 | 1 << 3, false))
OP(mean_axes, dt_reduce(c->g, in(c, "x"), DT_REDUCE_MEAN, 1 << 1, true))
OP(max_axes, dt_reduce(c->g, in(c, "x"), DT_REDUCE_MAX, 1 << 1 | 1 << 3, false))
OP(expand, dt_expand(c->g, in(c, "x"), dt_shape3(3, 5, 6)))
OP(act_tanh, dt_activate(c->g, DT_ACTIVATION_tanh, in(c, "x")))
OP(act_softplus, dt_activate(c->g, DT_ACTIVATION_softplus, in(c, "x")))
OP(act_erf, dt_activate(c->g, DT_ACTIVATION_erf, in(c, "x")))
OP(act_leaky_relu, dt_activate_with(c->g, DT_ACTIVATION_leaky_relu, in(c, "x"), 0.3f))
OP(act_elu, dt_activate_with(c->g, DT_ACTIVATION_elu, in(c, "x"), 0.4f))
LOSS(cross_entropy, loss(c, DT_LOSS_cross_entropy, DT_I32, 0, 0))
LOSS(cross_entropy_smooth, loss(c, DT_LOSS_cross_entropy, DT_I32, 0.1f, 0))
LOSS(cross_entropy_soft, loss(c, DT_LOSS_cross_entropy, DT_F32, 0, 0))
LOSS(cross_entropy_weights, weighing(c, DT_LOSS_cross_entropy, DT_I32, 0.1f, "of_class"))
LOSS(cross_entropy_weights_soft, weighing(c, DT_LOSS_cross_entropy, DT_F32, 0.2f, "of_class"))
LOSS(bce, loss(c, DT_LOSS_bce, DT_F32, 0, 1))
LOSS(bce_positives, weighing(c, DT_LOSS_bce, DT_F32, 0, "positives"))
LOSS(mse, loss(c, DT_LOSS_mse, DT_F32, 0, 0))
LOSS(smooth_l1, loss(c, DT_LOSS_smooth_l1, DT_F32, 0, 0.5f))
LOSS(l1, loss(c, DT_LOSS_l1, DT_F32, 0, 0))
LOSS(huber, loss(c, DT_LOSS_huber, DT_F32, 0, 0.7f))
LOSS(poisson, loss(c, DT_LOSS_poisson, DT_F32, 0, 0))

static int set_up(void **state) {
    dt_backend *b = NULL;
    file = golden_open("ops.safetensors");
    must(dt_backend_create(&b, DT_DEVICE_cpu, &(dt_backend_opts){.threads = 1}));
    bf16 = b->supports_dtype(b, DT_BF16);
    printf("%s\n", b->describe(b));
    b->destroy(b);
    return 0;
}

static int tear_down(void **state) {
    dt_safetensors_close(file);
    return 0;
}

TEST_MAIN(set_up, tear_down)
