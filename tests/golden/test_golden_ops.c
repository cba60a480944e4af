// test_golden_ops.c: every op, forward and backward, against PyTorch (make_ops.py). One row a case;
// each row runs unfused and fused, in f32 and in bf16, through the graph, the plan and the backend:
// the same way that training goes.

#include "config/loss_words.h"
#include "golden.h"

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
static dt_value conv_pad1(const golden_case *c) {
    return conv(c, (dt_conv2d_opts){.pad = 1});
}
static dt_value conv_bias(const golden_case *c) {
    return conv(c, (dt_conv2d_opts){.pad = 1, .bias = true});
}
static dt_value conv_stem(const golden_case *c) {
    return conv(c, (dt_conv2d_opts){.stride = 2, .pad = 3});
}
static dt_value conv_1x1(const golden_case *c) {
    return conv(c, (dt_conv2d_opts){.stride = 2});
}
static dt_value conv_groups(const golden_case *c) {
    return conv(c, (dt_conv2d_opts){.pad = 1, .groups = 2});
}
static dt_value conv_dilated(const golden_case *c) {
    return conv(c, (dt_conv2d_opts){.pad = 2, .dilation = 2});
}
static dt_value conv_asymmetric(const golden_case *c) {
    static const dt_window w = {{3, 3}, {1, 1}, {1, 1}, {1, 0}, {2, 1}};
    return conv(c, (dt_conv2d_opts){.window = &w});
}
static dt_value linear_bias(const golden_case *c) {
    return dt_linear(c->g, "op", in(c, "x"), out_channels(c), true);
}
static dt_value linear_plain(const golden_case *c) {
    return dt_linear(c->g, "op", in(c, "x"), out_channels(c), false);
}
static dt_value linear_relu(const golden_case *c) {
    return dt_relu(c->g, linear_bias(c));
}
static dt_value matmul(const golden_case *c) {
    return dt_matmul(c->g, in(c, "a"), in(c, "b"), false, false, 1);
}
static dt_value matmul_nt(const golden_case *c) {
    return dt_matmul(c->g, in(c, "a"), in(c, "b"), false, true, 0.5f);
}
static dt_value bn(const golden_case *c) {
    return dt_batch_norm(c->g, "op", in(c, "x"));
}
static dt_value bn_relu(const golden_case *c) {
    return dt_relu(c->g, bn(c));
}
static dt_value bn_add_relu(const golden_case *c) {
    return dt_relu(c->g, dt_add(c->g, bn(c), in(c, "r")));
}
static dt_value bn_relu_pool(const golden_case *c) {
    return dt_max_pool(c->g, bn_relu(c), 2, 2, 0);
}
static dt_value layer_norm(const golden_case *c) {
    return dt_layer_norm(c->g, "op", in(c, "x"), 1e-5f);
}
static dt_value relu(const golden_case *c) {
    return dt_relu(c->g, in(c, "x"));
}
static dt_value gelu(const golden_case *c) {
    return dt_gelu(c->g, in(c, "x"));
}
static dt_value gelu_tanh(const golden_case *c) {
    return dt_gelu_tanh(c->g, in(c, "x"));
}
static dt_value max_pool(const golden_case *c) {
    return dt_max_pool(c->g, in(c, "x"), 3, 2, 1);
}
static dt_value max_pool2(const golden_case *c) {
    return dt_max_pool(c->g, in(c, "x"), 2, 2, 0);
}
static dt_value avg_pool(const golden_case *c) {
    return dt_avg_pool(c->g, in(c, "x"), 2, 2, 0);
}
static dt_value global_pool(const golden_case *c) {
    return dt_global_pool(c->g, in(c, "x"));
}
static dt_value add(const golden_case *c) {
    return dt_add(c->g, in(c, "a"), in(c, "b"));
}
static dt_value scale(const golden_case *c) {
    return dt_scale(c->g, in(c, "x"), 0.25f);
}
static dt_value concat(const golden_case *c) {
    return dt_concat(c->g, (dt_value[]){in(c, "a"), in(c, "b")}, 2, 1);
}
static dt_value slice(const golden_case *c) {
    return dt_slice(c->g, in(c, "x"), 1, 1, 4);
}
static dt_value transpose(const golden_case *c) {
    return dt_transpose(c->g, in(c, "x"), (int[]){0, 2, 1, 3});
}
static dt_value reshape(const golden_case *c) {
    return dt_reshape(c->g, in(c, "x"), dt_shape2(2, -1));
}
static dt_value softmax(const golden_case *c) {
    return dt_softmax(c->g, in(c, "x"));
}
static dt_value sdpa(const golden_case *c) {
    return dt_sdpa(c->g, in(c, "q"), in(c, "k"), in(c, "v"), 0.35f);
}
static dt_value ce_hard(const golden_case *c) {
    return dt_loss(c->g, DT_LOSS_cross_entropy, in(c, "x"), constant(c, "target", DT_I32),
                   constant(c, "weight", DT_F32), 0, 0);
}
static dt_value ce_smooth(const golden_case *c) {
    return dt_loss(c->g, DT_LOSS_cross_entropy, in(c, "x"), constant(c, "target", DT_I32),
                   constant(c, "weight", DT_F32), 0.1f, 0);
}
static dt_value ce_soft(const golden_case *c) {
    return dt_loss(c->g, DT_LOSS_cross_entropy, in(c, "x"), constant(c, "target", DT_F32),
                   constant(c, "weight", DT_F32), 0, 0);
}
static dt_value ce_weights(const golden_case *c) {
    return dt_loss_share(c->g, "loss", DT_LOSS_cross_entropy, in(c, "x"),
                         constant(c, "target", DT_I32), constant(c, "weight", DT_F32),
                         constant(c, "of_class", DT_F32), 0.1f, 0, 1);
}
static dt_value ce_weights_soft(const golden_case *c) {
    return dt_loss_share(c->g, "loss", DT_LOSS_cross_entropy, in(c, "x"),
                         constant(c, "target", DT_F32), constant(c, "weight", DT_F32),
                         constant(c, "of_class", DT_F32), 0.2f, 0, 1);
}
static dt_value bce(const golden_case *c) {
    return dt_loss(c->g, DT_LOSS_bce, in(c, "x"), constant(c, "target", DT_F32),
                   constant(c, "weight", DT_F32), 0, 0);
}
static dt_value mse(const golden_case *c) {
    return dt_loss(c->g, DT_LOSS_mse, in(c, "x"), constant(c, "target", DT_F32),
                   constant(c, "weight", DT_F32), 0, 0);
}
static dt_value smooth_l1(const golden_case *c) {
    return dt_loss(c->g, DT_LOSS_smooth_l1, in(c, "x"), constant(c, "target", DT_F32),
                   constant(c, "weight", DT_F32), 0, 0.5f);
}

typedef struct golden_row {
    const char *name;
    dt_value (*build)(const golden_case *c);
    bool is_loss;
} golden_row;

static const golden_row rows[] = {
    {"conv_c1", conv_pad1},
    {"conv_c3", conv_pad1},
    {"conv_block", conv_pad1},
    {"conv_odd", conv_bias},
    {"conv_stride", conv_stem},
    {"conv_1x1", conv_1x1},
    {"conv_groups", conv_groups},
    {"conv_dilated", conv_dilated},
    {"conv_asymmetric", conv_asymmetric},
    {"linear", linear_bias},
    {"linear_3d", linear_plain},
    {"linear_relu", linear_relu},
    {"matmul", matmul},
    {"matmul_nt", matmul_nt},
    {"batch_norm", bn},
    {"batch_norm_odd", bn},
    {"batch_norm_relu", bn_relu},
    {"batch_norm_add_relu", bn_add_relu},
    {"batch_norm_relu_pool", bn_relu_pool},
    {"layer_norm", layer_norm},
    {"relu", relu},
    {"gelu", gelu},
    {"gelu_tanh", gelu_tanh},
    {"max_pool", max_pool},
    {"max_pool_odd", max_pool2},
    {"avg_pool", avg_pool},
    {"global_pool", global_pool},
    {"add", add},
    {"add_broadcast", add},
    {"scale", scale},
    {"concat", concat},
    {"concat_tokens", concat},
    {"slice", slice},
    {"transpose", transpose},
    {"reshape", reshape},
    {"softmax", softmax},
    {"sdpa", sdpa},
    {"cross_entropy", ce_hard, true},
    {"cross_entropy_smooth", ce_smooth, true},
    {"cross_entropy_soft", ce_soft, true},
    {"cross_entropy_weights", ce_weights, true},
    {"cross_entropy_weights_soft", ce_weights_soft, true},
    {"bce", bce, true},
    {"mse", mse, true},
    {"smooth_l1", smooth_l1, true},
};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

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
    must(dt_backend_create(&b, DT_DEVICE_cpu,
                           &(dt_backend_opts){.threads = threads, .deterministic = true}));
    dt_params *p = NULL;
    must(dt_params_create(&p, g, b, 0, 1));
    for (int i = 0; i < p->n_entries; i++) {
        int64_t n = 0;
        const float *x = golden_of(row->name, p->entries[i].name, "", &n);
        if (!x || n != p->entries[i].count)
            fail_msg("%s: no golden value of %s", row->name, p->entries[i].name);
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
        snprintf(what, sizeof what, "%s %s%s grad of %s", row->name, kind, fuse ? " fused" : "",
                 p->entries[i].name);
        golden_compare(what, half, want, n, tol);
        free(half);
    }
    dt_exec_destroy(e);
    dt_plan_destroy(plan);
    dt_params_destroy(p);
    b->destroy(b);
    dt_graph_destroy(g);
}

static void test_row(void **state) {
    const golden_row *row = *state;
    check_row(row, false, DT_F32, 1);
    check_row(row, true, DT_F32, 2);
    if (bf16) check_row(row, true, DT_BF16, 1);
}

int main(void) {
    file = golden_open("ops.safetensors");
    dt_backend *b = NULL;
    must(dt_backend_create(&b, DT_DEVICE_cpu, &(dt_backend_opts){.threads = 1}));
    bf16 = b->supports_dtype(b, DT_BF16);
    printf("%s\n", b->describe(b));
    b->destroy(b);
    static struct CMUnitTest tests[N_ROWS];
    for (int i = 0; i < N_ROWS; i++)
        tests[i] = (struct CMUnitTest){rows[i].name, test_row, NULL, NULL, (void *)&rows[i]};
    int failed = _cmocka_run_group_tests("golden ops", tests, N_ROWS, NULL, NULL);
    dt_safetensors_close(file);
    return failed;
}
