// test_int8.c: inference in int8 (passes/int8.c, int8_cpu.c) against the same in integers, computed here: one convolution
// exactly, and a network of folded batch norms, a residual, a max-pool, GELU and linear layers, whose chains stay in 8
// bits, within the rounding of single values. Once for each ISA.
#include "each_isa.h"
#include "testing.h"

#include "backend/cpu/dnnl_shim.h"
#include "base/core.h"
#include "exec/exec.h"
#include "graph/build.h"
#include "graph/passes/passes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 2, C = 20, K = 24, H = 9, W = 7, POOL_H = 5, POOL_W = 4, WIDE = 32, CLASSES = 5 };
enum { IMAGES = 5, MOST_CHANNELS = 72, MOST_SIZE = 8, OUT = 24 };
enum { MOST = IMAGES * MOST_CHANNELS * MOST_SIZE * MOST_SIZE };

static float uniform(uint32_t *state) { // -1..1
    *state = *state * 1664525u + 1013904223u;
    return (float)(int32_t)*state * 0x1p-31f;
}

// ---- the network -----------------------------------------------------------------------------------
typedef struct rig {
    dt_graph *g;
    dt_backend *backend;
    dt_params *params;
    dt_plan *plan;
    dt_exec *exec;
    float x[MOST];
} rig;

static dt_graph *build(bool whole) {
    dt_graph *g = dt_graph_create("int8", false);
    const dt_conv2d_opts three = {.out = K, .kernel = 3, .pad = 1, .bias = true};
    dt_value x = dt_input(g, "x", DT_F32, dt_shape4(N, C, H, W));
    x = dt_relu(g, dt_batch_norm(g, "bn1", dt_conv2d(g, "a", x, &three)));
    if (whole) {
        const dt_value y = dt_batch_norm(g, "bn2", dt_conv2d(g, "b", x, &three));
        x = dt_max_pool(g, dt_relu(g, dt_add(g, y, x)), 3, 2, 1);
        x = dt_conv2d(g, "c", x, &(dt_conv2d_opts){.out = K, .kernel = 1, .groups = K});
        x = dt_gelu(g, dt_linear(g, "l1", dt_global_pool(g, x), WIDE, true));
        x = dt_linear(g, "l2", x, CLASSES, true);
    }
    dt_output(g, "y", x);
    must(dt_pass_fold_bn(g));
    must(dt_pass_fuse(g));
    must(dt_pass_dead_code(g));
    must(dt_pass_fuse_residual(g));
    return g;
}

// Channels differ in size by as much as 16 times; variances are positive.
static void fill_params(dt_params *p) {
    for (int k = 0; k < p->n_entries + p->n_buffers; k++) {
        const dt_param_entry *e = k < p->n_entries ? &p->entries[k] : &p->buffers[k - p->n_entries];
        float *to = (k < p->n_entries ? p->master : p->buffer) + e->offset;
        uint32_t seed = (uint32_t)strlen(e->name) * 77 + (uint32_t)e->name[0];
        const int64_t each = e->count / e->shape.d[0];
        for (int64_t i = 0; i < e->count; i++) {
            to[i] = uniform(&seed) * (e->shape.n > 1 ? ldexpf(0.2f, -(int)(i / each % 5)) : 0.3f);
            if (strstr(e->name, "var")) to[i] = 1 + to[i];
        }
    }
}

// r->g is given
static void rig_make(rig *r, int threads, const dt_int8 *q) {
    uint32_t seed = 3;
    must(dt_backend_create_cpu(&r->backend, &(dt_backend_opts){.threads = threads}));
    if (q) must(dt_pass_int8(r->g, q));
    must(dt_params_create(&r->params, r->g, r->backend, 0, 1));
    must(dt_plan_create(&r->plan, r->g, r->params, &(dt_plan_opts){.threads = threads}));
    must(dt_exec_create(&r->exec, r->plan, 0));
    fill_params(r->params);
    dt_params_repack(r->params);
    for (int i = 0; i < MOST; i++) r->x[i] = uniform(&seed);
    dt_exec_bind(r->exec, "x", r->x);
}

static void rig_init(rig *r, bool whole, const dt_int8 *q) {
    r->g = build(whole);
    rig_make(r, 2, q);
}

static void rig_run(rig *r, float *y, int64_t n) {
    const dt_exec_args a = {.step = {.loss_scale = 1}};
    dt_exec_run(r->exec, &a);
    assert_int_equal(dt_exec_output(r->exec, "y", y, n), n);
}

static void rig_fini(rig *r) {
    dt_exec_destroy(r->exec);
    dt_params_destroy(r->params);
    dt_plan_destroy(r->plan);
    dt_graph_destroy(r->g);
    r->backend->destroy(r->backend);
}

static const float *find(const rig *r, const char *name, bool buffer) {
    const int i = dt_params_find(r->params, name, buffer);
    assert_true(i >= 0);
    return buffer ? r->params->buffer + r->params->buffers[i].offset : r->params->master + r->params->entries[i].offset;
}

// ---- in integers -----------------------------------------------------------------------------------
typedef struct layer {
    const char *name, *bn;
    int out, in, kernel, groups;
    bool bias;
} layer;
static const layer layers[] = {{"a", "bn1", K, C, 3, 1, true},
                               {"b", "bn2", K, K, 3, 1, true},
                               {"c", NULL, K, K, 1, K, false},
                               {"l1", NULL, WIDE, K, 1, 1, true},
                               {"l2", NULL, CLASSES, WIDE, 1, 1, true}};

typedef struct folded {
    float gain[WIDE], bias[WIDE], scale[WIDE];
} folded;

static void fold(const rig *r, const layer *l, folded *f) {
    char name[32];
    const int each = l->in / l->groups * l->kernel * l->kernel;
    snprintf(name, sizeof name, "%s.weight", l->name);
    const float *w = find(r, name, false);
    for (int o = 0; o < l->out; o++) {
        snprintf(name, sizeof name, "%s.bias", l->name);
        f->gain[o] = 1;
        f->bias[o] = l->bias ? find(r, name, false)[o] : 0;
        if (l->bn) {
            const char *parts[] = {"weight", "bias", "running_mean", "running_var"};
            float v[4];
            for (int i = 0; i < 4; i++) {
                snprintf(name, sizeof name, "%s.%s", l->bn, parts[i]);
                v[i] = find(r, name, i > 1)[o];
            }
            f->gain[o] = v[0] / sqrtf(v[3] + 1e-5f);
            f->bias[o] = (f->bias[o] - v[2]) * f->gain[o] + v[1];
        }
        float most = 0;
        for (int i = 0; i < each; i++) most = fmaxf(most, fabsf(w[o * each + i]));
        f->scale[o] = most * fabsf(f->gain[o]) / 127;
    }
}

static int rounded(float x, float by, bool negative) {
    const float y = rintf(x * by), low = negative ? -127 : 0, high = negative ? 127 : 255;
    return (int)fminf(fmaxf(y, low), high);
}

// y (N,out,h,w) = layer of stored x (N,in,h,w), real; padding keeps the size.
static void compute(const rig *r, const layer *l, const int *x, float x_scale, bool negative, int h, int w, double *y) {
    char name[32];
    folded f;
    fold(r, l, &f);
    snprintf(name, sizeof name, "%s.weight", l->name);
    const float *weight = find(r, name, false);
    const int in = l->in / l->groups, k = l->kernel, pad = k / 2;
    const bool seven = !dt_dnnl_isa_vnni() && (!negative || l->name[0] == 'l');
    for (int n = 0; n < N; n++)
        for (int o = 0; o < l->out; o++)
            for (int p = 0; p < h * w; p++) {
                const float scale = f.scale[o] * (seven ? 2 : 1);
                int64_t sum = 0;
                for (int c = 0; c < in; c++)
                    for (int t = 0; t < k * k; t++) {
                        const int i = p / w + t / k - pad, j = p % w + t % k - pad;
                        if (i < 0 || i >= h || j < 0 || j >= w) continue;
                        const int from = o / (l->out / l->groups) * in + c;
                        sum += (int64_t)x[((n * l->in + from) * h + i) * w + j] *
                               rounded(weight[(o * in + c) * k * k + t], f.gain[o] / scale, true);
                    }
                y[(n * l->out + o) * h * w + p] = (double)sum * (double)x_scale * (double)scale + (double)f.bias[o];
            }
}

// ---- tests -----------------------------------------------------------------------------------------
enum { X, A, B, MAX_POOL, POOLED, L1, N_VALUES };
static dt_int8_value values[N_VALUES] = {{"x", 1.0f / 127, true},       {"a", 0.02f, false},
                                         {"b", 0.02f, false},           {"max_pool", 0.02f, false},
                                         {"global_pool", 0.004f, true}, {"l1", 0.004f, true}};

// Scales of the weights, as rig r has them; `kept` stays f32.
static void make_scales(const rig *r, dt_int8 *q, const char *kept) {
    static folded f[5];
    static dt_int8_layer list[5];
    for (int i = 0; i < 5; i++) {
        list[i] = (dt_int8_layer){.name = layers[i].name, .n = layers[i].out};
        if (kept && strcmp(kept, layers[i].name) == 0) continue;
        if (dt_graph_find_node(r->g, layers[i].name) < 0) continue;
        fold(r, &layers[i], &f[i]);
        list[i].weight = f[i].scale;
    }
    *q = (dt_int8){.values = values, .n_values = N_VALUES, .layers = list, .n_layers = 5};
}

static void store(const double *x, int n, int value, int *out) {
    for (int i = 0; i < n; i++) out[i] = rounded((float)x[i], 1 / values[value].scale, values[value].negative);
}

TEST(test_one_convolution) {
    enum { SIZE = N * K * H * W };
    static float y[SIZE];
    static int x[N * C * H * W];
    static double want[SIZE];
    rig plain = {0}, r = {0};
    dt_int8 q;
    rig_init(&plain, false, NULL);
    make_scales(&plain, &q, NULL);
    rig_init(&r, false, &q);
    assert_true(dt_graph_find_node(r.g, "a") >= 0);
    assert_int_equal(r.g->nodes[dt_graph_find_node(r.g, "a")].op, DT_OP_conv2d_int8);
    rig_run(&r, y, SIZE);
    for (int i = 0; i < N * C * H * W; i++) x[i] = rounded(r.x[i], 127, true);
    compute(&r, &layers[0], x, values[X].scale, true, H, W, want);
    for (int i = 0; i < SIZE; i++) {
        const double w = fmax(want[i], 0);
        // s8 x s8 without VNNI: the library halves the weights itself
        const double tolerance = dt_dnnl_isa_vnni() ? 1e-5 : 0.02;
        if (fabs((double)y[i] - w) > tolerance) fail_msg("element %d: %g, not %g", i, (double)y[i], w);
    }
    rig_fini(&plain);
    rig_fini(&r);
}

// The whole network from x to the classes.
static void compute_all(const rig *r, double *logits) {
    static double y[N * K * H * W];
    static int x[N * C * H * W], a[N * K * H * W], pooled[N * K * POOL_H * POOL_W];
    int row[N * WIDE];
    for (int i = 0; i < N * C * H * W; i++) x[i] = rounded(r->x[i], 127, true);
    compute(r, &layers[0], x, values[X].scale, true, H, W, y);
    store(y, N * K * H * W, A, a); // ReLU: below 0 is 0
    compute(r, &layers[1], a, values[A].scale, false, H, W, y);
    for (int i = 0; i < N * K * H * W; i++) y[i] += (double)((float)a[i] * values[A].scale);
    for (int i = 0; i < N * K * POOL_H * POOL_W; i++) {
        const int top = i / POOL_W % POOL_H * 2 - 1, left = i % POOL_W * 2 - 1;
        double most = 0;
        for (int t = 0; t < 9; t++) {
            const int h = top + t / 3, w = left + t % 3;
            if (h >= 0 && h < H && w >= 0 && w < W) most = fmax(most, y[i / POOL_W / POOL_H * H * W + h * W + w]);
        }
        store(&most, 1, B, &pooled[i]);
    }
    compute(r, &layers[2], pooled, values[B].scale, false, POOL_H, POOL_W, y);
    for (int i = 0; i < N * K; i++) {
        double sum = 0;
        for (int p = 0; p < POOL_H * POOL_W; p++) sum += y[i * POOL_H * POOL_W + p];
        y[i] = sum / (POOL_H * POOL_W);
    }
    store(y, N * K, POOLED, row);
    compute(r, &layers[3], row, values[POOLED].scale, true, 1, 1, y);
    for (int i = 0; i < N * WIDE; i++) y[i] *= 0.5 * (1 + erf(y[i] / sqrt(2)));
    store(y, N * WIDE, L1, row);
    compute(r, &layers[4], row, values[L1].scale, true, 1, 1, logits);
}

static double distance(const float *a, const double *b, int n) {
    double noise = 0, signal = 0;
    for (int i = 0; i < n; i++) {
        noise += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        signal += b[i] * b[i];
    }
    return sqrt(noise / signal);
}

TEST(test_network) {
    float fp32[N * CLASSES], y[N * CLASSES];
    double want[N * CLASSES];
    rig plain = {0}, r = {0}, mixed = {0};
    dt_int8 q;
    rig_init(&plain, true, NULL);
    rig_run(&plain, fp32, N * CLASSES);
    make_scales(&plain, &q, NULL);
    rig_init(&r, true, &q);
    int n_quantize = 0;
    for (int i = 0; i < r.g->n_nodes; i++) n_quantize += !r.g->nodes[i].dead && r.g->nodes[i].op == DT_OP_quantize;
    assert_int_equal(n_quantize, 2); // x and what the global pool gives: the rest stays in 8 bits
    rig_run(&r, y, N * CLASSES);
    compute_all(&r, want);
    print_message("int8: %.2g from the same in integers, ", distance(y, want, N * CLASSES));
    assert_true(distance(y, want, N * CLASSES) < (dt_dnnl_isa_vnni() ? 0.0005 : 0.01));
    for (int i = 0; i < N * CLASSES; i++) want[i] = (double)fp32[i];
    print_message("%.2g from fp32\n", distance(y, want, N * CLASSES));
    assert_true(distance(y, want, N * CLASSES) < 0.01);

    make_scales(&plain, &q, "b"); // a layer between others stays f32
    rig_init(&mixed, true, &q);
    rig_run(&mixed, y, N * CLASSES);
    assert_true(distance(y, want, N * CLASSES) < 0.01);
    rig_fini(&mixed);
    rig_fini(&plain);
    rig_fini(&r);
}

TEST(test_wrong_scales) {
    rig plain = {0};
    dt_int8 q;
    rig_init(&plain, true, NULL);
    make_scales(&plain, &q, NULL);
    dt_graph *g = build(true);
    q.n_layers = 4;
    must_fail(DT_E_USAGE, "'l2'", dt_pass_int8(g, &q));
    q.n_layers = 5;
    q.layers[1].n++;
    must_fail(DT_E_USAGE, "'b'", dt_pass_int8(g, &q));
    q.layers[1].n--;
    q.n_values--;
    must_fail(DT_E_USAGE, "'l1'", dt_pass_int8(g, &q));
    dt_graph_destroy(g);
    rig_fini(&plain);
}

// ---- threads ---------------------------------------------------------------------------------------
typedef struct shape_of_layer {
    int channels, kernel, stride, groups, size;
} shape_of_layer;

static dt_graph *build_shape(const shape_of_layer *s) {
    dt_graph *g = dt_graph_create("int8", false);
    const bool depthwise = s->groups > 1;
    dt_value x = dt_input(g, "x", DT_F32, dt_shape4(IMAGES, s->channels, s->size, s->size));
    x = dt_conv2d(g, "b", x,
                  &(dt_conv2d_opts){.out = depthwise ? s->channels : OUT,
                                    .kernel = s->kernel,
                                    .stride = s->stride,
                                    .pad = s->kernel / 2,
                                    .groups = s->groups,
                                    .bias = true});
    dt_output(g, "y", x);
    return g;
}

// Sets y to the first run's output; returns how many runs gave another. In f32 for 0 threads.
static int run_shape(const shape_of_layer *s, int threads, float *y, int64_t n) {
    static float again[MOST], scales[MOST_CHANNELS];
    static dt_int8_value stored = {.name = "x", .scale = 1.0f / 127};
    for (int i = 0; i < MOST_CHANNELS; i++) scales[i] = 0.2f / 127;
    stored.negative = s->size % 2;
    dt_int8_layer b = {.name = "b", .n = s->groups > 1 ? s->channels : OUT, .weight = scales};
    const dt_int8 q = {.values = &stored, .n_values = 1, .layers = &b, .n_layers = 1};
    rig r = {.g = build_shape(s)};
    rig_make(&r, threads ? threads : 1, threads ? &q : NULL);
    for (int i = 0; i < MOST && !stored.negative; i++) r.x[i] = fabsf(r.x[i]);
    rig_run(&r, y, n);
    int other = 0;
    // left alone, oneDNN copies what such a convolution reads for each thread
    const bool copies = s->kernel == 1 && s->groups == 1 && s->size % s->stride == 0;
    const int runs = copies && s->stride > 1 ? 200 : 4;
    for (int i = 1; threads && i < runs; i++) {
        rig_run(&r, again, n);
        other += memcmp(y, again, (size_t)n * sizeof *y) != 0;
    }
    rig_fini(&r);
    return other;
}

static void one_shape(const shape_of_layer *s) {
    static float fp32[MOST], one[MOST], many[MOST];
    static double want[MOST];
    const int side = (s->size - 1) / s->stride + 1;
    const int64_t n = (int64_t)IMAGES * (s->groups > 1 ? s->groups : OUT) * side * side;
    run_shape(s, 0, fp32, n);
    for (int64_t i = 0; i < n; i++) want[i] = (double)fp32[i];
    for (int threads = 1; threads <= 4; threads++) {
        float *y = threads == 1 ? one : many;
        const int other = run_shape(s, threads, y, n);
        const double far = distance(y, want, (int)n);
        if (other || far > 0.03 || (threads > 1 && memcmp(one, many, (size_t)n * sizeof *one) != 0))
            fail_msg("%d channels, %d groups, kernel %d, stride %d, size %d, %d threads: not as on "
                     "one thread, %d runs not as the first, %.2g from fp32",
                     s->channels, s->groups, s->kernel, s->stride, s->size, threads, other, far);
    }
}

// Each shape gives equal bits on 1 to 4 threads, each time: none writes where another one reads.
TEST(test_threads) {
    static const int channels[] = {4, 8, 12, 16, 24, 28, 40, 56, 64, 72};
    for (int i = 0; i < 240; i++) {
        const int wide = channels[i % 10], depthwise = i / 60 % 2;
        one_shape(&(shape_of_layer){.channels = wide,
                                    .kernel = i / 10 % 2 ? 3 : 1,
                                    .stride = 1 + i / 20 % 3,
                                    .groups = depthwise ? wide : 1,
                                    .size = MOST_SIZE - i / 120});
    }
}

int main(void) {
    return run_isas(true);
}
