// test_fused_cuda.c: what passes merge after differentiation, compared with separate nodes. Gradients of a small
// network have the same bits on the CPU and are close on the fake device. Covers the tanh form of GELU inside the
// neighbouring matmuls (dt_pass_fuse_gelu), with cuBLASLt's epilogues and without; additions inside layer norms
// (dt_pass_fuse_norm_add), which keep the bits on both; activations inside batch norms (dt_pass_fuse_norm_act), which
// keep them too; layer scale, drop path and addition as one node (add_branch), which keep them as well; and the
// sums that an fp16 convolution makes for its batch norm, if cuDNN can get aligned memory for them. The fake device's log
// shows what ran.
#include "base/rng.h"
#include "config/words.h"
#include "exec/exec.h"
#include "fake_cuda.h"
#include "graph/activation_words.h"
#include "graph/autodiff.h"
#include "graph/build.h"
#include "graph/passes/passes.h"
#include "testing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 6, IN = 24, WIDE = 40, CLASSES = 8, TALL = 40 };

typedef struct setting {
    bool fused, added, device,
        exact;    // fused, added: GELU's pass, the layer norm's or dt_add_branch
    int norms;    // width of a residual stream; 0: none
    int channels; // of a convolution in front of a batch norm; 0: none
    bool acts, tall,
        again;     // behind it each activation, merged on the device if `fused`; more pixels; recomputed
    bool branches; // of residual blocks
    dt_dtype low;
} setting;

typedef struct outcome {
    float *grad;
    int64_t n;
    int n_fwd, n_bwd, n_aux, n_dgelu, n_bgrad, n_add, n_stats, n_acts, n_apart,
        n_branch[2]; // what ran on the device
} outcome;

// A transformer's encoder without its attention; nothing is added to the last norm's gradient.
static dt_value residual_layers(dt_graph *g, dt_value x, int width) {
    for (int i = 0; i < 2; i++) {
        dt_value y = dt_linear(g, i ? "c" : "a", dt_layer_norm(g, NULL, x, 1e-6f), WIDE, true);
        y = dt_linear(g, i ? "d" : "b", dt_gelu_tanh(g, y), width, true);
        x = i ? dt_add(g, y, x) : dt_add(g, x, y);
    }
    return dt_linear(g, "head", dt_layer_norm(g, NULL, x, 1e-6f), CLASSES, true);
}

static dt_value conv_and_norm(dt_graph *g, dt_value x, int channels) {
    x = dt_conv2d(g, "conv", x, &(dt_conv2d_opts){.out = channels, .kernel = 3, .pad = 1});
    x = dt_global_pool(g, dt_relu(g, dt_batch_norm(g, "norm", x)));
    return dt_linear(g, "head", x, CLASSES, true);
}

// Two blocks of convolution, and a batch norm with each second activation, whose result has two readers. What heaviside
// takes has three, and stays.
static dt_value every_activation(dt_graph *g, dt_value x, int channels) {
    for (int block = 0; block < 2; block++) {
        const dt_conv2d_opts o = {.out = channels, .kernel = 3, .pad = 1};
        const dt_value y = dt_conv2d(g, NULL, x, &o);
        x = dt_relu(g, dt_batch_norm(g, NULL, y));
        for (int k = DT_ACTIVATION_relu + 1; k < DT_N_ACTIVATIONS; k++) {
            if (k % 2 != block) continue;
            const dt_value z = dt_batch_norm(g, dt_activation_name((dt_activation)k), y);
            const dt_value v = dt_activate_with(g, (dt_activation)k, z, 0.3f);
            x = dt_add(g, dt_add(g, x, v), dt_scale(g, dt_mul(g, v, v), 0.1f));
            if (k == DT_ACTIVATION_heaviside) x = dt_add(g, x, z);
        }
    }
    return dt_linear(g, "head", dt_global_pool(g, x), CLASSES, true);
}

static dt_value factors(dt_graph *g, const char *name, const dt_shape *s) {
    return dt_param(g, name, *s, (dt_init){DT_INIT_UNIFORM, 1}, false);
}

// Blocks on tokens and on images: with a factor of each channel, with samples that are dropped, with both. The factors
// of the last are frozen.
static dt_value branch_layers(dt_graph *g, dt_value x, int channels) {
    static const int to_rows[] = {0, 2, 3, 1}, to_image[] = {0, 3, 1, 2};
    const dt_shape row = dt_shape1(channels), plane = dt_shape3(channels, 1, 1);
    const dt_conv2d_opts conv = {.out = channels, .kernel = 1};
    x = dt_transpose(g, dt_conv2d(g, "in", x, &conv), to_rows);
    x = dt_reshape(g, x, dt_shape3(ROWS, IN, channels));
    x = dt_add_branch(g, "a", x, dt_linear(g, "a.fc", x, channels, true), factors(g, "a.s", &row), 0.3f);
    x = dt_add_branch(g, "b", x, dt_linear(g, "b.fc", x, channels, true), DT_NONE, 0.4f);
    x = dt_transpose(g, dt_reshape(g, x, dt_shape4(ROWS, 4, IN / 4, channels)), to_image);
    x = dt_add_branch(g, "c", x, dt_conv2d(g, "c.conv", x, &conv), factors(g, "c.s", &plane), 0.3f);
    x = dt_add_branch(g, "d", x, dt_conv2d(g, "d.conv", x, &conv), DT_NONE, 0.4f);
    x = dt_add_branch(g, "e", x, dt_conv2d(g, "e.conv", x, &conv), factors(g, "e.s", &plane), 0);
    x = dt_add_branch(g, "f", x, dt_conv2d(g, "f.conv", x, &conv), factors(g, "f.s", &plane), 0.3f);
    return dt_linear(g, "head", dt_global_pool(g, x), CLASSES, true);
}

static bool is_frozen(const void *ctx, const char *name) {
    return strcmp(name, "f.s") == 0;
}

static dt_graph *make_graph(const setting *s) {
    dt_graph *g = dt_graph_create("mlp", true);
    dt_graph_freeze(g, is_frozen, NULL);
    g->drops = true;
    g->adds_branches = s->added;
    dt_value x =
        dt_input(g, "x", DT_F32,
                 s->channels ? dt_shape4(ROWS, 1, s->tall ? TALL : 4, s->tall ? IN : IN / 4) : dt_shape2(ROWS, IN));
    dt_value target = dt_input(g, "target", DT_I32, dt_shape1(ROWS));
    dt_value weight = dt_input(g, "weight", DT_F32, dt_shape1(ROWS));
    if (s->acts)
        x = every_activation(g, x, s->channels);
    else if (s->branches)
        x = branch_layers(g, x, s->channels);
    else if (s->channels)
        x = conv_and_norm(g, x, s->channels);
    else
        x = dt_linear(g, "in", x, s->norms ? s->norms : IN, true);
    if (s->norms) x = residual_layers(g, x, s->norms);
    for (int i = 0; i < 2 && !s->norms && !s->channels; i++) { // the second without a bias before the GELU
        x = dt_linear(g, i ? "b" : "a", x, WIDE, i == 0);
        x = s->exact ? dt_gelu(g, x) : dt_gelu_tanh(g, x);
        x = dt_linear(g, i ? "d" : "c", x, i ? CLASSES : IN, true);
    }
    dt_loss(g, DT_LOSS_cross_entropy, x, target, weight, 0.0f, 0);
    must(dt_pass_fuse(g));
    must(dt_graph_differentiate(g));
    must(dt_pass_amp(g, s->low));
    if (s->fused) must(dt_pass_fuse_gelu(g));
    for (int i = 0; i < 2 && s->added; i++) must(dt_pass_fuse_norm_add(g)); // once more changes nothing
    must(dt_pass_dead_code(g));
    if (s->again) must(dt_pass_recompute(g, &(dt_recompute_opts){.limit = 0}));
    if (s->again) assert_true(g->recompute.bytes_after < g->recompute.bytes_before);
    return g;
}

static void count_calls(outcome *o, dt_backend *b) {
    size_t n;
    const fake_cuda_call *log = fake_cuda_log(dt_cuda_self(b)->api, &n);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(log[i].call, "launch") && strcmp(log[i].call, "gemm_run")) continue;
        o->n_fwd += strcmp(log[i].what, "gelu_tanh_fwd") == 0;
        o->n_bwd += strcmp(log[i].what, "gelu_tanh_bwd") == 0;
        o->n_aux += strcmp(log[i].what, "gemm bias gelu aux") == 0;
        o->n_dgelu += strcmp(log[i].what, "gemm dgelu") == 0;
        o->n_bgrad += strcmp(log[i].what, "gemm bgrad") == 0;
        o->n_add += strcmp(log[i].what, "add_same") == 0;
        o->n_stats += strcmp(log[i].what, "bn_small") == 0;
        for (int k = DT_ACTIVATION_relu + 1; k < DT_N_ACTIVATIONS; k++) {
            const char *name = dt_activation_name((dt_activation)k);
            o->n_acts +=
                strncmp(log[i].what, name, strlen(name)) == 0 && strlen(log[i].what) == strlen(name) + strlen("_fwd");
        }
        o->n_apart += !strncmp(log[i].what, "dropout", 7) || !strncmp(log[i].what, "mul_", 4);
        o->n_branch[0] += strcmp(log[i].what, "branch_fwd") == 0;
        o->n_branch[1] += strcmp(log[i].what, "branch_bwd") == 0;
    }
}

static void *on_device(dt_backend *b, const void *from, size_t n_bytes) {
    void *p = NULL;
    assert_int_equal(b->alloc(b, &p, n_bytes, "input"), DT_OK);
    b->copy_to_device(b, p, from, n_bytes);
    return p;
}

// Gradients of two micro-batches: the second adds.
static outcome run(const setting *s) {
    const dt_backend_opts opts = {.threads = 2, .deterministic = true};
    float x[ROWS * IN * TALL], weight[ROWS];
    int32_t target[ROWS];
    const dt_rng r = {.seed = 9};
    for (int i = 0; i < ROWS * IN * TALL; i++) x[i] = 4 * dt_rng_uniform(&r, (uint32_t)i) - 2;
    for (int i = 0; i < ROWS; i++) weight[i] = 1, target[i] = i % CLASSES;
    dt_backend *b = NULL;
    assert_int_equal(s->device ? fake_cuda_backend(&b, &opts) : dt_backend_create_cpu(&b, &opts), DT_OK);
    static const dt_pass apart[] = {dt_pass_relu_bits, NULL};
    if (s->acts && !s->fused) b->passes = apart;
    dt_graph *g = make_graph(s);
    dt_params *p = NULL;
    dt_plan *plan = NULL;
    dt_exec *e = NULL;
    must(dt_params_create(&p, g, b, 0, 1));
    must(dt_plan_create(&plan, g, p, &(dt_plan_opts){.threads = 2, .n_replicas = 1}));
    must(dt_exec_create(&e, plan, 0));
    dt_params_init(p, 3);
    dt_params_repack(p);
    void *in[3] = {on_device(b, x, sizeof x), on_device(b, target, sizeof target), on_device(b, weight, sizeof weight)};
    assert_true(dt_exec_bind(e, "x", in[0]) && dt_exec_bind(e, "target", in[1]) && dt_exec_bind(e, "weight", in[2]));
    if (s->device) fake_cuda_log_clear(dt_cuda_self(b)->api);
    dt_exec_args a = {.step = {.seed = 1, .loss_scale = 1}, .grad = p->grads[0]};
    for (int i = 0; i < 2; i++, a.accumulate = true) dt_exec_run(e, &a);
    if (s->device) assert_int_equal(b->device->synchronize(b, b->device->stream), DT_OK);
    outcome o = {.n = p->n_grad, .grad = malloc(sizeof(float) * (size_t)p->n_grad)};
    if (s->device) count_calls(&o, b);
    b->copy_to_host(b, o.grad, p->grads[0], sizeof(float) * (size_t)p->n_grad);
    dt_exec_destroy(e);
    dt_params_destroy(p);
    dt_plan_destroy(plan);
    b->free(b, in[0], sizeof x);
    b->free(b, in[1], sizeof target);
    b->free(b, in[2], sizeof weight);
    b->destroy(b);
    dt_graph_destroy(g);
    return o;
}

static void compare(const outcome *a, const outcome *b, double tolerance) {
    double most = 0;
    assert_int_equal(a->n, b->n);
    for (int64_t i = 0; i < a->n; i++) most = fmax(most, fabs((double)b->grad[i]));
    for (int64_t i = 0; i < a->n; i++)
        if (!(fabs((double)a->grad[i] - (double)b->grad[i]) <= tolerance * most))
            fail_msg("element %ld: %.9g, %.9g", (long)i, (double)a->grad[i], (double)b->grad[i]);
}

static bool cpu_computes_bf16(void) {
    dt_backend *b = NULL;
    must(dt_backend_create_cpu(&b, &(dt_backend_opts){.threads = 1}));
    const bool computes = b->computes_dtype(b, DT_BF16);
    b->destroy(b);
    return computes;
}

TEST(test_cpu) {
    for (int bf16 = 0; bf16 <= cpu_computes_bf16(); bf16++) {
        setting s = {.low = bf16 ? DT_BF16 : DT_F32};
        outcome apart = run(&s);
        s.fused = true;
        outcome fused = run(&s);
        assert_memory_equal(apart.grad, fused.grad, sizeof(float) * (size_t)apart.n);
        s.exact = true; // another function
        outcome exact = run(&s);
        assert_memory_not_equal(exact.grad, fused.grad, sizeof(float) * (size_t)apart.n);
        free(apart.grad);
        free(fused.grad);
        free(exact.grad);
    }
}

TEST(test_device) {
    for (int bf16 = 0; bf16 < 2; bf16++) {
        const double tolerance = bf16 ? 2e-2 : 1e-5;
        setting s = {.low = DT_F32};
        outcome cpu = run(&s);
        s.low = bf16 ? DT_BF16 : DT_F32;
        s.device = true;
        outcome apart = run(&s);
        assert_true(apart.n_fwd == 4 && apart.n_bwd == 4 && apart.n_aux == 0 && apart.n_dgelu == 0);
        assert_int_equal(apart.n_bgrad, 2 * 4); // one has no bias
        s.fused = true;
        outcome fused = run(&s);
        assert_true(fused.n_fwd == 2 && fused.n_bwd == 0 && fused.n_aux == 2 && fused.n_dgelu == 4);
        setenv("FAKE_CUDA_NO_EPILOGUE", "1", 1);
        outcome pieces = run(&s);
        unsetenv("FAKE_CUDA_NO_EPILOGUE");
        assert_true(pieces.n_fwd == 4 && pieces.n_bwd == 4 && pieces.n_bgrad == 0);
        compare(&apart, &cpu, tolerance);
        compare(&fused, &apart, tolerance);
        compare(&pieces, &apart, tolerance);
        free(cpu.grad);
        free(apart.grad);
        free(fused.grad);
        free(pieces.grad);
    }
}

// One addition of the stream and two of its gradient lie beside a norm, in each of two micro-batches. The GELUs
// between them are in the products all the same.
TEST(test_norms) {
    static const dt_dtype types[] = {DT_F32, DT_BF16, DT_F16};
    static const int widths[] = {24, 21, 200}; // whole pieces of eight or not; more than one a thread
    for (int k = 0; k < 6; k++)
        for (int t = 0; t < (k < 3 ? 3 : 1 + cpu_computes_bf16()); t++) {
            const bool device = k < 3;
            setting s = {.low = types[t], .device = device, .norms = widths[k % 3], .fused = true};
            outcome apart = run(&s);
            s.added = true;
            outcome merged = run(&s);
            assert_memory_equal(apart.grad, merged.grad, sizeof(float) * (size_t)apart.n);
            if (device) assert_int_equal(apart.n_add, 2 * 4);
            if (device) assert_int_equal(merged.n_add, 0);
            if (device) assert_true(merged.n_aux == 2 * 2 && merged.n_dgelu == 2 * 2);
            free(apart.grad);
            free(merged.grad);
        }
}

// In each of two micro-batches. The sums of 136 channels are made in several chunks; of 10 channels no row but the first
// begins at a multiple of 16 bytes.
TEST(test_branches) {
    static const dt_dtype types[] = {DT_F32, DT_BF16, DT_F16};
    static const double tolerance[] = {1e-5, 5e-2, 1e-2};
    static const int channels[] = {16, 10, 136};
    for (int k = 0; k < 3; k++) {
        setting s = {.low = DT_F32, .channels = channels[k], .branches = true};
        outcome cpu = run(&s);
        s.device = true;
        for (int t = 0; t < 3; t++) {
            s.low = types[t];
            s.added = s.again = false;
            outcome apart = run(&s);
            assert_true(apart.n_branch[0] == 0 && apart.n_apart > 0);
            compare(&apart, &cpu, tolerance[t]);
            s.added = true;
            for (int again = 0; again < 2; again++) {
                s.again = again;
                outcome merged = run(&s);
                assert_memory_equal(apart.grad, merged.grad, sizeof(float) * (size_t)apart.n);
                assert_true(merged.n_apart == 0 && merged.n_branch[1] == 2 * 6);
                assert_true(again ? merged.n_branch[0] > 2 * 6 : merged.n_branch[0] == 2 * 6);
                free(merged.grad);
            }
            free(apart.grad);
        }
        free(cpu.grad);
    }
}

// The sums of squares lie behind the sums: with 10 channels not at a multiple of 16 bytes, as cuDNN was told they
// are, so that such a batch norm makes its own.
TEST(test_sums_of_channels) {
    for (int channels = 10; channels <= 12; channels += 2) {
        setting s = {.low = DT_F32, .channels = channels};
        outcome cpu = run(&s);
        s.low = DT_F16;
        s.device = true;
        outcome device = run(&s);
        compare(&device, &cpu, 2e-2);
        assert_int_equal(device.n_stats, channels == 10 ? 2 : 0);
        free(cpu.grad);
        free(device.grad);
    }
}

// In one kernel (bn_small), with the sums of a convolution (fp16, 16 channels) and in three; rows of eight or not.
TEST(test_activations) {
    static const dt_dtype types[] = {DT_F32, DT_BF16, DT_F16};
    for (int i = 0; i < 9; i++) {
        setting s = {.low = types[i % 3], .device = true, .acts = true, .tall = i >= 6, .channels = i < 3 ? 13 : 16};
        outcome apart = run(&s);
        s.fused = true;
        outcome fused = run(&s);
        assert_memory_equal(apart.grad, fused.grad, sizeof(float) * (size_t)apart.n);
        assert_int_equal(apart.n_acts, 2 * 2 * (DT_N_ACTIVATIONS - 2));
        assert_int_equal(fused.n_acts, 2 * 2);
        s.again = true;
        outcome again = i < 6 ? run(&s) : (outcome){0};
        if (i < 6) assert_memory_equal(apart.grad, again.grad, sizeof(float) * (size_t)apart.n);
        free(apart.grad);
        free(fused.grad);
        free(again.grad);
    }
}

TEST_MAIN(NULL, NULL)
