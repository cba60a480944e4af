// custom_case.h: one row tests one kernel: forward against an fp64 reference, gradients against central
// differences of that reference, in f32 and bf16, from DENSE and BLOCKED inputs, on 1 and 2 threads
// (which must give the same bits), overwriting and adding, with canaries behind every tensor and zero
// padding channels checked. The harness calls kernels directly, without plan or reorder: it moves
// tensors between layouts element by element, on purpose not with the backend's own code.
#ifndef DT_TESTS_OPS_CUSTOM_CASE_H
#define DT_TESTS_OPS_CUSTOM_CASE_H

#include "backend/cpu/cpu_backend.h"
#include "custom_types.h"
#include "known_slopes.h"
#include "testing.h"
#ifdef DT_ROWS_CUDA
#include "cuda/device_run.h"
#endif

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CASE_IN = 8, CASE_OUT = 8 };

typedef struct custom_case custom_case;
struct custom_case {
    const char *name;
    dt_op op;
    dt_attrs attrs;
    int n_in, n_out;
    dt_shape in_shape[CASE_IN], out_shape[CASE_OUT]; // n = -1: absent
    dt_dtype in_type[CASE_IN];                       // DT_F32: follows the type under test where `follow` has its bit
    dt_dtype out_type[CASE_OUT];
    uint32_t follow_in, follow_out; // bits: f32 or bf16 as the run says
    uint32_t stat_out;              // bits: STAT outputs
    uint32_t param_in;              // bits: PARAM inputs (their gradients are GRAD)
    uint32_t grad_in;               // bits: inputs with a gradient; 0: no backward kernel
    uint32_t save_in, save_out;     // what the backward node reads
    bool is_loss;                   // gradient of out 0 times loss_scale, no dy
    bool f32_only;
    double low, high; // range of random inputs; 0, 0: -2, 2
    // Fills input i by itself (true), or leaves it to the harness.
    bool (*fill)(const custom_case *c, int i, double *x);
    // fp64 reference; out[i] is NULL where absent. Dense tensors.
    void (*reference)(const custom_case *c, double *const *in, double *const *out);
    uint32_t compare_out; // bits
    double tolerance;     // f32, relative to the largest magnitude of the tensor; 0: 2e-6
};

static const dt_step_block custom_case_step = {0x1234567890abcdefu, 17, 40, 8.0f};

// ---- tensors ---------------------------------------------------------------------------------------
static double case_get(dt_dtype t, const void *p, int64_t i) {
    uint32_t u;
    float f;
    switch (t) {
    case DT_BF16:
        u = (uint32_t)((const uint16_t *)p)[i] << 16;
        memcpy(&f, &u, 4);
        return f;
    case DT_F16:
        return test_f16_to_f64(((const uint16_t *)p)[i]);
    case DT_I32:
        return ((const int32_t *)p)[i];
    case DT_U8:
        return ((const uint8_t *)p)[i];
    default:
        return ((const float *)p)[i];
    }
}

static void case_set(dt_dtype t, void *p, int64_t i, double v) {
    switch (t) {
    case DT_BF16:
        ((uint16_t *)p)[i] = case_to_bf16(v);
        break;
    case DT_F16:
        ((uint16_t *)p)[i] = test_f64_to_f16(v);
        break;
    case DT_I32:
        ((int32_t *)p)[i] = (int32_t)v;
        break;
    case DT_U8:
        ((uint8_t *)p)[i] = (uint8_t)v;
        break;
    default:
        ((float *)p)[i] = (float)v;
    }
}

// Where logical element i of a tensor lies.
static int64_t case_place(dt_layout l, const dt_shape *s, int64_t i) {
    if (l.kind == DT_DENSE) return i;
    int64_t plane = s->d[2] * (s->n > 3 ? s->d[3] : 1), p = i % plane, c = i / plane % s->d[1];
    int64_t n = i / plane / s->d[1];
    if (l.kind == DT_NHWC) return (n * plane + p) * s->d[1] + c;
    int64_t blocks = (s->d[1] + l.block - 1) / l.block;
    return ((n * blocks + c / l.block) * plane + p) * l.block + c % l.block;
}

enum { CASE_CANARY = 64 };

// Memory for a tensor in a layout, filled with NaN (so that what a kernel leaves out shows), with a
// canary behind it.
static char *case_alloc(dt_layout l, dt_dtype t, const dt_shape *s) {
    size_t n = dt_layout_bytes(l, t, s);
    char *p = aligned_alloc(64, (n + CASE_CANARY + 63) / 64 * 64);
    memset(p, 0xff, n);
    memset(p + n, 0xa5, CASE_CANARY);
    return p;
}

static void case_check_edges(const char *name, dt_layout l, dt_dtype t, const dt_shape *s, const char *p) {
    size_t n = dt_layout_bytes(l, t, s);
    for (int i = 0; i < CASE_CANARY; i++)
        if ((unsigned char)p[n + (size_t)i] != 0xa5) fail_msg("%s: wrote behind a tensor", name);
    if (l.kind != DT_BLOCKED) return;
    int64_t logical = dt_shape_elements(s), stored = dt_layout_elements(l, s);
    bool *used = calloc((size_t)stored, 1);
    for (int64_t i = 0; i < logical; i++) used[case_place(l, s, i)] = true;
    for (int64_t i = 0; i < stored && t != DT_U8; i++)
        if (!used[i] && case_get(t, p, i) != 0) fail_msg("%s: padding channel is not zero", name);
    free(used);
}

static char *case_lay(const double *dense, dt_layout l, dt_dtype t, const dt_shape *s) {
    char *p = case_alloc(l, t, s);
    memset(p, 0, dt_layout_bytes(l, t, s));
    for (int64_t i = 0; i < dt_shape_elements(s); i++) case_set(t, p, case_place(l, s, i), dense[i]);
    return p;
}

static double *case_unlay(const char *p, dt_layout l, dt_dtype t, const dt_shape *s) {
    int64_t n = dt_shape_elements(s);
    double *dense = malloc((size_t)n * sizeof *dense);
    for (int64_t i = 0; i < n; i++) dense[i] = case_get(t, p, case_place(l, s, i));
    return dense;
}

#ifdef DT_ROWS_CUDA
static dt_backend *case_backend; // device_run.h's
enum { CASE_THREADS = 1 };       // device_run.h runs each kernel twice anyway
#else
enum { CASE_THREADS = 2 };
#endif

// ---- one call of one kernel ------------------------------------------------------------------------
enum { CASE_MAX = 24 };
typedef struct case_call {
    dt_graph *graph;
    dt_node_id node;
    dt_layout in_layout[CASE_MAX], out_layout[CASE_MAX];
    dt_kernel_instance instance;
    char *in[CASE_MAX], *out[CASE_MAX];
    void *scratch;
} case_call;

static dt_value case_value(dt_graph *g, dt_value_kind kind, const char *what, int i, dt_dtype t, const dt_shape *s) {
    char name[64];
    snprintf(name, sizeof name, "%s%d.%d", what, i, g->n_values);
    return dt_graph_add_value(g, kind, name, t, s);
}

// What a gradient finds where it adds: large and odd, so that adding rounds, and an order shows.
static const float case_there = 1e6f / 3;

// Lays the inputs out as the kernel wants them, runs it, adds where `accumulate` says (to case_there).
static void case_run_kernel(case_call *c, const custom_case *row, const dt_kernel *k, int threads, int lie,
                            double *const *in, uint64_t accumulate) {
    const dt_node *n = &c->graph->nodes[c->node];
    c->instance = (dt_kernel_instance){.graph = c->graph,
                                       .node = n,
                                       .threads = threads,
                                       .in_layout = c->in_layout,
                                       .out_layout = c->out_layout,
                                       .inplace_in = -1};
#ifdef DT_ROWS_CUDA
    c->instance.backend = case_backend;
    const dt_layout image_layout = {.kind = DT_NHWC};
    const int image_dims = 3; // dimension 1 innermost: tokens may lie so
#else
    const int image_dims = 4;
    const dt_layout image_layout =
        lie == 2 ? (dt_layout){.kind = DT_NHWC} : dt_blocked(dt_cpu_block() ? dt_cpu_block() : 8);
#endif
    for (int i = 0; i < n->n_in; i++) {
        const dt_value_info *v = dt_instance_in(&c->instance, i);
        bool image = v && v->kind == DT_V_TEMP && v->shape.n >= image_dims && v->shape.n <= 4;
        c->in_layout[i] = lie && image ? image_layout : dt_dense();
    }
    if (k->prepare(&c->instance) != DT_OK) fail_msg("%s: %s", row->name, dt_error_message());
    for (int i = 0; i < n->n_in; i++) {
        const dt_value_info *v = dt_instance_in(&c->instance, i);
        c->in[i] = v ? case_lay(in[i], c->in_layout[i], v->dtype, &v->shape) : NULL;
    }
    for (int i = 0; i < n->n_out; i++) {
        const dt_value_info *v = dt_instance_out(&c->instance, i);
        c->out[i] = v ? case_alloc(c->out_layout[i], v->dtype, &v->shape) : NULL;
        for (int64_t e = 0; v && (accumulate >> i & 1) && e < dt_shape_elements(&v->shape); e++)
            ((float *)c->out[i])[e] = case_there;
    }
    size_t scratch = (c->instance.scratch_bytes + 63) / 64 * 64;
    c->scratch = aligned_alloc(64, scratch + 64);
    memset(c->scratch, 0xff, scratch + 64); // NaN
    dt_run r = {.in = (const void *const *)c->in,
                .out = (void *const *)c->out,
                .scratch = c->scratch,
                .accumulate = accumulate,
                .step = &custom_case_step};
#ifdef DT_ROWS_CUDA
    const char *wrong = device_run_kernel(case_backend, k, &c->instance, &r, scratch + 64);
    if (wrong) fail_msg("%s: %s", row->name, wrong);
#else
    k->run(&c->instance, &r);
#endif
    for (int i = 0; i < 64; i++)
        if (((unsigned char *)c->scratch)[scratch + (size_t)i] != 0xff)
            fail_msg("%s: wrote behind the scratch", row->name);
    for (int i = 0; i < n->n_out; i++) {
        const dt_value_info *v = dt_instance_out(&c->instance, i);
        if (v) case_check_edges(row->name, c->out_layout[i], v->dtype, &v->shape, c->out[i]);
    }
}

static double *case_out(const case_call *c, int i) {
    const dt_value_info *v = dt_instance_out(&c->instance, i);
    return v ? case_unlay(c->out[i], c->out_layout[i], v->dtype, &v->shape) : NULL;
}

static void case_call_end(case_call *c, const dt_kernel *k) {
    for (int i = 0; i < c->instance.node->n_in; i++) free(c->in[i]);
    for (int i = 0; i < c->instance.node->n_out; i++) free(c->out[i]);
    free(c->scratch);
    if (k->destroy) k->destroy(&c->instance);
}

// ---- comparing -------------------------------------------------------------------------------------
static void case_compare(const custom_case *c, const char *what, int i, const double *got, const double *want,
                         int64_t n, double tolerance) {
    double top = 1e-3;
    for (int64_t e = 0; e < n; e++) top = fmax(top, fabs(want[e]));
    for (int64_t e = 0; e < n; e++)
        if (!(fabs(got[e] - want[e]) <= tolerance * top))
            fail_msg("%s: %s %d, element %ld of %ld: %.9g, expected %.9g (largest %g)", c->name, what, i, (long)e,
                     (long)n, got[e], want[e], top);
}

typedef struct case_data {
    double *in[CASE_IN], *out[CASE_OUT];
    dt_dtype in_type[CASE_IN], out_type[CASE_OUT];
} case_data;

static void case_fill(const custom_case *c, case_data *d, dt_dtype type) {
    uint64_t seed = 42;
    for (int i = 0; i < c->n_in; i++) {
        if (c->in_shape[i].n < 0) continue;
        d->in_type[i] = c->follow_in >> i & 1 ? type : c->in_type[i];
        int64_t n = dt_shape_elements(&c->in_shape[i]);
        double low = c->low == c->high ? -2 : c->low, high = c->low == c->high ? 2 : c->high;
        d->in[i] = malloc((size_t)n * sizeof(double));
        if (!c->fill || !c->fill(c, i, d->in[i]))
            for (int64_t e = 0; e < n; e++)
                d->in[i][e] = low + (high - low) * (double)(case_next(&seed) >> 11) * 0x1p-53;
        char *rounded = case_lay(d->in[i], dt_dense(), d->in_type[i], &c->in_shape[i]);
        free(d->in[i]);
        d->in[i] = case_unlay(rounded, dt_dense(), d->in_type[i], &c->in_shape[i]);
        free(rounded);
    }
    for (int i = 0; i < c->n_out; i++) {
        if (c->out_shape[i].n < 0) continue;
        d->out_type[i] = c->follow_out >> i & 1 ? type : c->out_type[i];
        d->out[i] = calloc((size_t)dt_shape_elements(&c->out_shape[i]), sizeof(double));
    }
}

static void case_data_free(case_data *d) {
    for (int i = 0; i < CASE_IN; i++) free(d->in[i]);
    for (int i = 0; i < CASE_OUT; i++) free(d->out[i]);
}

static double case_tolerance(const custom_case *c, dt_dtype type) {
    return (c->tolerance != 0 ? c->tolerance : 2e-6) + (type != DT_F32 ? 1e-2 : 0);
}

// ---- forward ---------------------------------------------------------------------------------------
static void case_build_forward(const custom_case *c, const case_data *d, case_call *call) {
    dt_value in[CASE_IN], out[CASE_OUT];
    dt_graph *g = call->graph = dt_graph_create("case", true);
    for (int i = 0; i < c->n_in; i++) {
        dt_value_kind kind = c->param_in >> i & 1 ? DT_V_PARAM : DT_V_TEMP;
        in[i] = c->in_shape[i].n < 0 ? DT_NONE : case_value(g, kind, "in", i, d->in_type[i], &c->in_shape[i]);
    }
    for (int i = 0; i < c->n_out; i++) {
        dt_value_kind kind = c->stat_out >> i & 1 ? DT_V_STAT : DT_V_TEMP;
        out[i] = c->out_shape[i].n < 0 ? DT_NONE : case_value(g, kind, "out", i, d->out_type[i], &c->out_shape[i]);
    }
    dt_node *n = dt_graph_add_node(g, c->op, c->name, in, c->n_in, c->n_out, &c->attrs);
    memcpy(n->out, out, (size_t)c->n_out * sizeof *out);
    call->node = 0;
}

// One that adds gives what was there and what it gives alone, added: the bits of two micro-batches added.
static void case_check_accumulated(const custom_case *c, const dt_kernel *k, const case_data *d, case_call *call,
                                   uint64_t bits, double *const *plain) {
    case_call again = {.graph = call->graph, .node = call->node};
    double *in[CASE_MAX];
    for (int i = 0; i < call->instance.node->n_in; i++)
        in[i] = dt_instance_in(&call->instance, i)
                    ? case_unlay(call->in[i], call->in_layout[i], dt_instance_in(&call->instance, i)->dtype,
                                 &dt_instance_in(&call->instance, i)->shape)
                    : NULL;
    case_run_kernel(&again, c, k, 1, 0, in, bits);
    for (int i = 0; i < call->instance.node->n_out; i++) {
        double *got = case_out(&again, i);
        for (int64_t e = 0;
             got && (bits >> i & 1) && e < dt_shape_elements(&dt_instance_out(&again.instance, i)->shape); e++)
            if (got[e] != (double)(case_there + (float)plain[i][e]))
                fail_msg("%s: output %d does not add: %g after %g", c->name, i, got[e], plain[i][e]);
        free(got);
    }
    for (int i = 0; i < call->instance.node->n_in; i++) free(in[i]);
    case_call_end(&again, k);
}

// Two threads give the bits of one, `got`.
static void case_check_threads(const custom_case *c, const dt_kernel *k, const case_call *call, int lie,
                               double *const *in, double *const *got) {
    if (CASE_THREADS == 1) return;
    case_call other = {.graph = call->graph, .node = call->node};
    case_run_kernel(&other, c, k, CASE_THREADS, lie, in, 0);
    for (int i = 0; i < call->instance.node->n_out; i++) {
        double *same = case_out(&other, i);
        for (int64_t e = 0; same && e < dt_shape_elements(&dt_instance_out(&other.instance, i)->shape); e++)
            if (!(same[e] == got[i][e])) fail_msg("%s: 2 threads change output %d", c->name, i);
        free(same);
    }
    case_call_end(&other, k);
}

// ---- backward --------------------------------------------------------------------------------------
// d sum(dy * out 0) / d in[i][e], by central differences of the reference.
static double case_slope(const custom_case *c, const case_data *d, const double *dy, int i, int64_t e) {
    const double h = 1e-5;
    double *out[CASE_OUT] = {0}, sum = 0, keep = d->in[i][e];
    int64_t n = dt_shape_elements(&c->out_shape[0]);
    for (int o = 0; o < c->n_out; o++)
        if (d->out[o]) out[o] = calloc((size_t)dt_shape_elements(&c->out_shape[o]), sizeof(double));
    for (int side = -1; side <= 1; side += 2) {
        d->in[i][e] = keep + side * h;
        c->reference(c, d->in, out);
        for (int64_t o = 0; o < n; o++)
            sum += side * out[0][o] * (c->is_loss ? (double)custom_case_step.loss_scale : dy[o]);
    }
    d->in[i][e] = keep;
    for (int o = 0; o < c->n_out; o++) free(out[o]);
    return sum / (2 * h);
}

static void case_build_backward(const custom_case *c, const case_data *d, case_call *call) {
    dt_graph *g = call->graph;
    dt_node f = g->nodes[0];
    dt_value in[CASE_MAX], out[CASE_IN];
    int n = 0;
    for (int i = 0; i < c->n_in; i++) in[n++] = c->save_in >> i & 1 ? f.in[i] : DT_NONE;
    for (int i = 0; i < c->n_out; i++) in[n++] = c->save_out >> i & 1 ? f.out[i] : DT_NONE;
    for (int i = 0; i < c->n_out; i++)
        in[n++] = i || c->is_loss ? DT_NONE : case_value(g, DT_V_TEMP, "dy", i, d->out_type[0], &c->out_shape[0]);
    for (int i = 0; i < c->n_in; i++) {
        dt_value_kind kind = c->param_in >> i & 1 ? DT_V_GRAD : DT_V_TEMP;
        out[i] = c->grad_in >> i & 1 ? case_value(g, kind, "grad", i, d->in_type[i], &c->in_shape[i]) : DT_NONE;
    }
    dt_node *b = dt_graph_add_node(g, c->op, "case.bwd", in, n, c->n_in, &c->attrs);
    memcpy(b->out, out, (size_t)c->n_in * sizeof *out);
    b->backward = true;
    b->n_fwd_in = c->n_in, b->n_fwd_out = c->n_out;
    b->forward = 0;
    call->node = 1;
}

// What the slopes of input i are made of.
static uint64_t case_slope_key(const custom_case *c, const case_data *d, const double *dy, int i) {
    uint64_t key = slope_key((uint64_t)(i + 64 * (int)c->op), c->name, strlen(c->name));
    key = slope_key(key, &c->attrs, sizeof c->attrs);
    key = slope_key(key, dy, (size_t)dt_shape_elements(&c->out_shape[0]) * sizeof *dy);
    for (int k = 0; k < c->n_in; k++)
        if (d->in[k]) key = slope_key(key, d->in[k], (size_t)dt_shape_elements(&c->in_shape[k]) * sizeof(double));
    return key;
}

// At most about 400 elements of each gradient are checked, evenly spread.
static void case_check_gradients(const custom_case *c, const case_data *d, const double *dy, double *const *got,
                                 double tolerance) {
    for (int i = 0; i < c->n_in; i++) {
        if (!(c->grad_in >> i & 1)) continue;
        int64_t n = dt_shape_elements(&c->in_shape[i]), m = 0;
        int64_t work = n + dt_shape_elements(&c->out_shape[0]);
        int64_t step = 1 + n / (work > 20000 ? 16 : 400);
        double *want = malloc((size_t)n * sizeof *want), *have = malloc((size_t)n * sizeof *have);
        const uint64_t key = case_slope_key(c, d, dy, i);
        for (int64_t e = 0; e < n; e += step) {
            bool known;
            double *place = slope_at(key + (uint64_t)e * 0x9e3779b97f4a7c15u, &known);
            if (!known) *place = case_slope(c, d, dy, i, e);
            want[m] = *place;
            have[m++] = got[i][e];
        }
        case_compare(c, "gradient of input", i, have, want, m, tolerance);
        free(want);
        free(have);
    }
}

static void case_run_backward(const custom_case *c, const dt_kernel *k, const case_data *d, const case_call *fwd,
                              dt_dtype type, int lie) {
    case_call call = {.graph = fwd->graph};
    double *in[CASE_MAX] = {0}, *got[CASE_IN], *fwd_out[CASE_OUT];
    uint64_t seed = 7;
    case_build_backward(c, d, &call);
    int64_t n = dt_shape_elements(&c->out_shape[0]);
    double *dy = malloc((size_t)n * sizeof *dy);
    for (int64_t e = 0; e < n; e++) {
        uint16_t b = case_to_bf16((double)(int64_t)case_next(&seed) * 0x1p-63); // exact in both types
        dy[e] = case_get(DT_BF16, &b, 0);
    }
    for (int i = 0; i < c->n_in; i++) in[i] = d->in[i];
    for (int i = 0; i < c->n_out; i++) in[c->n_in + i] = fwd_out[i] = case_out(fwd, i);
    in[c->n_in + c->n_out] = dy;
    case_run_kernel(&call, c, k, 1, lie, in, 0);
    for (int i = 0; i < c->n_in; i++) got[i] = case_out(&call, i);
    case_check_gradients(c, d, dy, got, 3 * case_tolerance(c, type));
    case_check_threads(c, k, &call, lie, in, got);
    case_check_accumulated(c, k, d, &call, c->param_in & c->grad_in, got);
    for (int i = 0; i < c->n_in; i++) free(got[i]);
    for (int i = 0; i < c->n_out; i++) free(fwd_out[i]);
    free(dy);
    case_call_end(&call, k);
    call.graph->n_nodes = 1;
}

// ---- a row -----------------------------------------------------------------------------------------
static void case_run_typed(const custom_case *c, const dt_kernel *fwd, const dt_kernel *bwd, dt_dtype type, int lie) {
    case_data d = {0};
    case_call call = {0};
    double *got[CASE_OUT];
    case_fill(c, &d, type);
    case_build_forward(c, &d, &call);
    c->reference(c, d.in, d.out);
    case_run_kernel(&call, c, fwd, 1, lie, d.in, 0);
    for (int i = 0; i < c->n_out; i++) {
        int64_t n = d.out[i] ? dt_shape_elements(&c->out_shape[i]) : 0;
        got[i] = case_out(&call, i);
        if (c->compare_out >> i & 1) case_compare(c, "output", i, got[i], d.out[i], n, case_tolerance(c, type));
    }
    case_check_threads(c, fwd, &call, lie, d.in, got);
    if (c->stat_out) {
        uint64_t bits = 0;
        for (int i = 0; i < c->n_out; i++) bits |= (uint64_t)(d.out[i] != NULL) << i;
        case_check_accumulated(c, fwd, &d, &call, c->stat_out & bits, got);
    }
    if (c->grad_in) case_run_backward(c, bwd, &d, &call, type, lie);
    for (int i = 0; i < c->n_out; i++) free(got[i]);
    case_call_end(&call, fwd);
    dt_graph_destroy(call.graph);
    case_data_free(&d);
}

#ifdef DT_ROWS_CUDA
enum { CUSTOM_CASE_TYPES = 3, CUSTOM_CASE_LAYOUTS = 2 }; // f32, bf16, f16; DENSE, NHWC
#else
enum { CUSTOM_CASE_TYPES = 2, CUSTOM_CASE_LAYOUTS = 3 }; // DENSE, BLOCKED, NHWC
#endif

static const dt_kernel *custom_case_kernel(const custom_case *c, bool backward) {
#ifdef DT_ROWS_CUDA
    must(device_backend(&case_backend));
    const dt_kernel *k = case_backend->kernel(case_backend, c->op, backward);
    if (!k && (c->grad_in || !backward)) fail_msg("%s has no kernel on CUDA", c->name);
    return k;
#else
    return dt_cpu_kernel(NULL, c->op, backward);
#endif
}

// Runs the row on the current ISA; fails the cmocka test on a difference.
static void custom_case_run(const custom_case *c) {
    const dt_kernel *fwd = custom_case_kernel(c, false), *bwd = custom_case_kernel(c, true);
    for (int t = 0; t < (c->f32_only ? 1 : CUSTOM_CASE_TYPES); t++)
        for (int lie = 0; lie < CUSTOM_CASE_LAYOUTS; lie++) case_run_typed(c, fwd, bwd, (dt_dtype)t, lie);
}

#endif
