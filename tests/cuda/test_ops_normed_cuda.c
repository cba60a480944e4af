// test_ops_normed_cuda.c: under fp16 a batch norm with ReLU may leave its work to the one convolution behind it. Tests which batch norms do and which do not (two
// readers, a residual, a pool, no ReLU). The curve is, up to rounding, that of the CPU and that of the same network
// without this. The bits repeat, captured or not, recomputed or not. What nobody reads is not written, so activations
// take less memory. With DTRAIN_TEST_DEVICE=real the curves are the GPU's.
#include "backend/cuda/cuda_desc.h"
#include "exec/plan_internal.h"
#include "fake_cuda.h"
#include "folder.h"
#include "graph/autodiff.h"
#include "graph/passes/passes.h"
#include "models/models.h"

#define STEPS   6
#define MICRO   4
#define N_MICRO 2
#define RATE    0.002
static dt_status bench_graph(dt_graph **out, const dt_model_args *a, dt_dtype low);
#define BENCH_GRAPH bench_graph
#include "device_bench.h"

typedef enum answer { BY_THE_CLOCK, LEAVE, KEEP } answer;
static answer answers; // what choices say of batch norms that could be left

static bool is_real(void) {
    const char *device = getenv("DTRAIN_TEST_DEVICE");
    return device && strcmp(device, "real") == 0;
}

// Choices as a checkpoint would bring them: the favourite engine of what applies a batch norm, or that nothing does.
static void answer_for(const bench *b) {
    const dt_cuda_demands demands = {.deterministic = true};
    for (int i = 0; i < b->graph->n_nodes; i++) {
        dt_cuda_normed asks;
        char line[DT_DESC_TEXT + 8], desc[DT_DESC_TEXT];
        if (b->graph->nodes[i].dead || !dt_cuda_normed_of(b->graph, &b->graph->nodes[i], demands, &asks)) continue;
        snprintf(line, sizeof line, "%d\t%s\n", answers == KEEP ? -1 : 0, dt_dnn_desc_print(&asks.forward, desc));
        b->b->take_choices(b->b, line);
    }
}

static bool again; // the graph recomputes what it can

static dt_status create_device(bench *b, const setting *s) {
    const dt_backend_opts opts = {.threads = 1,
                                  .deterministic = true,
                                  .timed = answers == BY_THE_CLOCK,
                                  .cache_folder = answers == BY_THE_CLOCK ? folder_path : NULL};
    DT_TRY(is_real() ? dt_backend_create(&b->b, DT_DEVICE_cuda, &opts) : fake_cuda_backend(&b->b, &opts));
    if (answers != BY_THE_CLOCK) answer_for(b);
    return DT_OK;
}

static dt_value conv_bn(dt_graph *g, const char *name, dt_value x, int out, int kernel, int stride) {
    const dt_conv2d_opts o = {.out = out, .kernel = kernel, .stride = stride, .pad = kernel / 2};
    char conv[32], norm[32];
    snprintf(conv, sizeof conv, "%s.conv", name);
    snprintf(norm, sizeof norm, "%s.bn", name);
    return dt_batch_norm(g, norm, dt_conv2d(g, conv, x, &o));
}

// a, b and f are read by one convolution each; c has no ReLU, d a residual, e two readers, h a pool behind it.
enum { LEFT = 3, NORMS = 9 };
static dt_status bench_graph(dt_graph **out, const dt_model_args *args, dt_dtype low) {
    dt_graph *g = *out = dt_graph_create("normed", true);
    dt_value x = dt_relu(g, conv_bn(g, "a", dt_model_image(g, args, &args->fields[1]), 16, 3, 1));
    x = dt_relu(g, conv_bn(g, "b", x, 16, 3, 1));
    const dt_value c = conv_bn(g, "c", x, 24, 1, 2);
    const dt_value d0 = conv_bn(g, "d", c, 24, 3, 1);
    const dt_value e = dt_relu(g, conv_bn(g, "e", dt_relu(g, dt_add(g, d0, c)), 16, 3, 1));
    x = dt_relu(g, conv_bn(g, "f", e, 16, 3, 1));
    const dt_value f = conv_bn(g, "g", x, 16, 3, 2);
    const dt_value s = conv_bn(g, "s", e, 16, 1, 2);
    x = dt_relu(g, conv_bn(g, "h", dt_relu(g, dt_add(g, f, s)), 16, 3, 1));
    x = dt_global_pool(g, dt_max_pool(g, x, 2, 2, 0));
    DT_TRY(bench_head(g, args, x));
    DT_TRY(dt_pass_fuse(g));
    DT_TRY(dt_graph_differentiate(g));
    DT_TRY(dt_pass_amp(g, low));
    DT_TRY(dt_pass_fuse_gelu(g));
    DT_TRY(dt_pass_fuse_norm_add(g));
    if (again) {
        DT_TRY(dt_pass_recompute(g, &(dt_recompute_opts){.limit = 0}));
        assert_true(g->recompute.bytes_after < g->recompute.bytes_before);
    }
    return dt_pass_dead_code(g);
}

// Losses, and the first step's gradient.
static void compare_curves(const char *what, const outcome *a, const outcome *b, double loss, double norm) {
    double most = 0;
    const double off = fabs(a->norm[0] / b->norm[0] - 1);
    for (int i = 0; i < STEPS; i++) most = fmax(most, fabs(a->loss[i] - b->loss[i]));
    print_message("%s: curves within %.2g, the first gradient within %.2g\n", what, most, off);
    if (!(most <= loss) || !(off <= norm)) fail_msg("%s", what);
}

static int n_calls(dt_cuda_api *api, const char *call, const char *what) {
    size_t n = 0;
    int count = 0;
    const fake_cuda_call *log = fake_cuda_log(api, &n);
    for (size_t i = 0; i < n; i++)
        count += strcmp(log[i].call, call) == 0 && strncmp(log[i].what, what, strlen(what)) == 0;
    return count;
}

typedef struct shape {
    int left, applied, dnn, reorders;
    size_t bytes;
} shape;
static shape shape_of(const setting *s) {
    bench b;
    dt_step_result r;
    dt_plan_report report;
    make_bench(&b, s);
    dt_cuda_api *api = dt_cuda_self(b.b)->api;
    fake_cuda_log_clear(api);
    assert_int_equal(dt_stepper_run(b.stepper, 0, RATE, false, &r), DT_OK);
    dt_plan_report_get(b.plan, &report);
    const shape out = {.left = n_calls(api, "launch", "bn_leave"),
                       .applied = n_calls(api, "launch", "bn_apply") + n_calls(api, "launch", "bn_small"),
                       .dnn = n_calls(api, "dnn_run", ""),
                       .reorders = report.n_reorders,
                       .bytes = report.activation_bytes};
    assert_int_equal(dt_stepper_drain(b.stepper, &r), DT_OK);
    drop_bench(&b);
    return out;
}

TEST(test_which_are_left) {
    if (is_real()) skip(); // it looks into the fake GPU's log
    setting s = {.low = DT_F16, .scaled = true, .one_micro = true, .uncaptured = true};
    answers = BY_THE_CLOCK;
    const shape fused = shape_of(&s);
    answers = KEEP;
    const shape apart = shape_of(&s);
    answers = BY_THE_CLOCK;
    s.low = DT_BF16;
    s.scaled = false;
    const shape bf16 = shape_of(&s);
    print_message("activations %zu bytes, %zu apart\n", fused.bytes, apart.bytes);
    assert_int_equal(fused.left, LEFT);
    assert_int_equal(fused.applied, NORMS - LEFT);
    assert_int_equal(apart.left, 0);
    assert_int_equal(apart.applied, NORMS);
    assert_int_equal(bf16.left, 0);
    assert_int_equal(fused.dnn, apart.dnn);
    assert_int_equal(fused.reorders, apart.reorders);
    assert_true(fused.bytes < apart.bytes);
}

// Without an engine nothing is left, whatever the choices say.
TEST(test_without_engines) {
    if (is_real()) skip();
    const setting s = {.low = DT_F16, .scaled = true, .one_micro = true, .uncaptured = true};
    answers = LEAVE;
    assert_int_equal(shape_of(&s).left, LEFT);
    assert_int_equal(setenv("FAKE_CUDA_NO_NORMED", "1", 1), 0);
    const shape none = shape_of(&s);
    assert_int_equal(none.left, 0);
    assert_int_equal(unsetenv("FAKE_CUDA_NO_NORMED"), 0);
}

TEST(test_curves) {
    setting s = {.low = DT_F16, .scaled = true, .scale = 256, .clip = 0.5f};
    answers = LEAVE;
    outcome fused = train(&s);
    s.uncaptured = true;
    outcome plain = train(&s);
    assert_same(&fused, &plain);
    s.uncaptured = false;
    answers = KEEP;
    outcome apart = train(&s);
    s.low = DT_F32;
    s.scaled = false;
    s.scale = 0;
    s.cpu = true;
    outcome cpu = train(&s);
    compare_curves("left or not", &fused, &apart, 0.01, 0.002);
    compare_curves("not left, and the CPU in fp32", &apart, &cpu, 0.02, 0.002);
    compare_curves("left, and the CPU in fp32", &fused, &cpu, 0.02, 0.002);
    drop(&fused);
    drop(&plain);
    drop(&apart);
    drop(&cpu);
}

// Copies that are computed again are decided as their originals: the same bits.
TEST(test_recomputed) {
    const setting s = {.low = DT_F16, .scaled = true, .scale = 256, .n_steps = 2};
    for (answers = LEAVE; answers <= KEEP; answers++) {
        outcome plain = train(&s);
        again = true;
        outcome recomputed = train(&s);
        again = false;
        assert_same(&plain, &recomputed);
        drop(&plain);
        drop(&recomputed);
    }
}

static int set_up(void **state) {
    return fake_cuda_race(state) || folder_make(state);
}

TEST_MAIN(set_up, folder_remove)
