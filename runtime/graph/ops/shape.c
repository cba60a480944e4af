// shape.c: ops that move elements: shape inference, gradient, builder call.

#include "op_util.h"

#include <inttypes.h>
#include <string.h>

// ---- concat -------------------------------------------------------------------------------------------------------

// concat: joins tensors along an axis; the other dimensions are equal.
//   in  0… x_i
//   out 0 (…, sum of the x_i along axis, …)
// Gradient: a slice for each input.

static dt_status concat_infer(dt_graph *g, dt_node_id id) {
    dt_shape y = dt_op_in_shape(g, id, 0);
    int axis = g->nodes[id].attrs.concat.axis;
    if (axis < 0 || axis >= y.n) return dt_op_fail(g, id, "has no axis %d", axis);
    for (int i = 1; i < g->nodes[id].n_in; i++) {
        if (!dt_op_has_in(g, id, i)) return dt_op_fail(g, id, "input %d is missing", i);
        dt_shape x = dt_op_in_shape(g, id, i);
        bool fits = x.n == y.n;
        for (int d = 0; fits && d < x.n; d++) fits = d == axis || x.d[d] == y.d[d];
        if (!fits) return dt_op_fail(g, id, "shapes differ outside axis %d", axis);
        y.d[axis] += x.d[axis];
    }
    return dt_op_shaped(g, id, &y);
}

static dt_status concat_grad(dt_grad_ctx *ctx, dt_node_id id) {
    dt_graph *g = ctx->g;
    dt_node n = g->nodes[id];
    dt_value dy = dt_grad_get(ctx, n.out[0]);
    int axis = n.attrs.concat.axis;
    int64_t at = 0;
    for (int i = 0; i < n.n_in; i++) {
        int64_t size = g->values[n.in[i]].shape.d[axis];
        if (dt_grad_wanted(ctx, n.in[i])) {
            dt_grad_give(ctx, n.in[i], dt_slice(g, dy, axis, at, at + size));
        }
        at += size;
    }
    return g->status;
}

static void concat_print(const dt_node *n, FILE *out) {
    fprintf(out, " axis %d", n->attrs.concat.axis);
}

DT_OP_DEFINE(concat, .infer = concat_infer, .grad = concat_grad, .flops = dt_op_no_flops, .print = concat_print);

dt_value dt_concat(dt_graph *g, const dt_value *x, int n, int axis) {
    for (int i = 0; i < n; i++) {
        if (x[i] == DT_NONE) return DT_NONE;
    }
    dt_attrs a = {.concat = {axis}};
    return dt_graph_apply(g, DT_OP_concat, NULL, x, n, &a);
}

// ---- slice --------------------------------------------------------------------------------------------------------

// slice: elements [begin, end) of an axis.
//   in  0 x
//   out 0 (…, end - begin, …)
// Backward reads only the gradient; gives dx, zero outside the slice.

static dt_status slice_infer(dt_graph *g, dt_node_id id) {
    dt_shape x = dt_op_in_shape(g, id, 0);
    dt_attrs a = g->nodes[id].attrs;
    int axis = a.slice.axis;
    if (axis < 0 || axis >= x.n) return dt_op_fail(g, id, "has no axis %d", axis);
    if (a.slice.begin < 0 || a.slice.end <= a.slice.begin || a.slice.end > x.d[axis]) {
        return dt_op_fail(g, id, "[%lld, %lld) is not inside axis %d", (long long)a.slice.begin, (long long)a.slice.end,
                          axis);
    }
    x.d[axis] = a.slice.end - a.slice.begin;
    return dt_op_shaped(g, id, &x);
}

static void slice_print(const dt_node *n, FILE *out) {
    fprintf(out, " axis %d [%" PRId64 ",%" PRId64 ")", n->attrs.slice.axis, n->attrs.slice.begin, n->attrs.slice.end);
}

DT_OP_DEFINE(slice, .infer = slice_infer, .grad = dt_grad_saved, .flops = dt_op_no_flops, .print = slice_print);

dt_value dt_slice(dt_graph *g, dt_value x, int axis, int64_t begin, int64_t end) {
    dt_attrs a = {.slice = {axis, begin, end}};
    return dt_graph_apply(g, DT_OP_slice, NULL, &x, 1, &a);
}

// ---- transpose ----------------------------------------------------------------------------------------------------

// transpose: dimension i of the output is dimension perm[i] of the input.
//   in  0 x
//   out 0 permuted
// Gradient: transpose by the inverse permutation.

static dt_status transpose_infer(dt_graph *g, dt_node_id id) {
    dt_shape x = dt_op_in_shape(g, id, 0), y = x;
    dt_attrs a = g->nodes[id].attrs;
    unsigned seen = 0;
    for (int i = 0; i < x.n; i++) {
        int from = a.transpose.perm[i];
        if (from < 0 || from >= x.n || seen >> from & 1) return dt_op_fail(g, id, "bad permutation");
        seen |= 1u << from;
        y.d[i] = x.d[from];
    }
    return dt_op_shaped(g, id, &y);
}

static dt_status transpose_grad(dt_grad_ctx *ctx, dt_node_id id) {
    dt_graph *g = ctx->g;
    dt_node n = g->nodes[id];
    int inverse[DT_MAX_DIMS] = {0};
    for (int i = 0; i < g->values[n.in[0]].shape.n; i++) inverse[n.attrs.transpose.perm[i]] = i;
    dt_grad_give(ctx, n.in[0], dt_transpose(g, dt_grad_get(ctx, n.out[0]), inverse));
    return g->status;
}

DT_OP_DEFINE(transpose, .infer = transpose_infer, .grad = transpose_grad, .flops = dt_op_no_flops);

dt_value dt_transpose(dt_graph *g, dt_value x, const int *perm) {
    if (x == DT_NONE) return DT_NONE;
    dt_attrs a = {0};
    memcpy(a.transpose.perm, perm, (size_t)dt_info_of(g, x)->shape.n * sizeof *perm);
    return dt_graph_apply(g, DT_OP_transpose, NULL, &x, 1, &a);
}

// ---- reshape ------------------------------------------------------------------------------------------------------

// reshape: the same elements, in row-major order, under another shape.
//   in  0 x
//   out 0 attrs.reshape.shape (a single -1 is worked out)
// Gradient: reshape back.

static dt_status reshape_infer(dt_graph *g, dt_node_id id) {
    dt_shape x = dt_op_in_shape(g, id, 0), y = g->nodes[id].attrs.reshape.shape;
    int64_t known = 1;
    int open = -1;
    for (int i = 0; i < y.n; i++) {
        if (y.d[i] == -1 && open < 0) {
            open = i;
        } else if (y.d[i] < 1 || __builtin_mul_overflow(known, y.d[i], &known)) {
            return dt_op_fail(g, id, "sizes must be positive, one may be -1");
        }
    }
    int64_t n = dt_shape_elements(&x);
    if (open >= 0) y.d[open] = n / known; // a remainder shows in the comparison below
    if (dt_shape_elements(&y) != n) {
        char text[96];
        return dt_op_fail(g, id, "does not fit into %s", dt_shape_print(&y, text, sizeof text));
    }
    g->nodes[id].attrs.reshape.shape = y; // without -1, for kernels and the export
    return dt_op_shaped(g, id, &y);
}

static dt_status reshape_grad(dt_grad_ctx *ctx, dt_node_id id) {
    dt_graph *g = ctx->g;
    dt_node n = g->nodes[id];
    dt_shape x = g->values[n.in[0]].shape;
    dt_grad_give(ctx, n.in[0], dt_reshape(g, dt_grad_get(ctx, n.out[0]), x));
    return g->status;
}

DT_OP_DEFINE(reshape, .infer = reshape_infer, .grad = reshape_grad, .flops = dt_op_no_flops);

dt_value dt_reshape(dt_graph *g, dt_value x, dt_shape shape) {
    dt_attrs a = {.reshape = {shape}};
    return dt_graph_apply(g, DT_OP_reshape, NULL, &x, 1, &a);
}

// ---- expand -------------------------------------------------------------------------------------------------------

// expand: repeats x along dimensions in which it has one element.   sum: adds x up along dimensions.
//   in  0 x
//   out 0 attrs.reshape.shape: of as many dimensions; expand: x's sizes where those are not 1; sum: x's sizes, or 1
// Each is the other's gradient.

static dt_status expand_infer(dt_graph *g, dt_node_id id) {
    const bool widens = g->nodes[id].op == DT_OP_expand;
    const dt_shape x = dt_op_in_shape(g, id, 0), y = g->nodes[id].attrs.reshape.shape;
    bool fits = x.n == y.n;
    for (int i = 0; fits && i < x.n; i++) fits = x.d[i] == y.d[i] || (widens ? x.d[i] : y.d[i]) == 1;
    if (fits && dt_dtype_is_float(dt_op_in_dtype(g, id, 0))) return dt_op_shaped(g, id, &y);
    char text[96];
    return dt_op_fail(g, id, "does not fit %s", dt_shape_print(&y, text, sizeof text));
}

static dt_status expand_grad(dt_grad_ctx *ctx, dt_node_id id) {
    const dt_node n = ctx->g->nodes[id];
    const dt_shape x = ctx->g->values[n.in[0]].shape;
    dt_value (*inverse)(dt_graph *, dt_value, dt_shape) = n.op == DT_OP_expand ? dt_sum : dt_expand;
    dt_grad_give(ctx, n.in[0], inverse(ctx->g, dt_grad_get(ctx, n.out[0]), x));
    return ctx->g->status;
}

// The elements that are added up into one.
double dt_op_sum_flops(const dt_graph *g, const dt_node *n) {
    return dt_op_elements(g, n->in[0]) / dt_op_elements(g, n->out[0]);
}

DT_OP_DEFINE(expand, .infer = expand_infer, .grad = expand_grad, .flops = dt_op_no_flops);
DT_OP_DEFINE(sum, .infer = expand_infer, .grad = expand_grad, .flops = dt_op_sum_flops);

static dt_value expand_apply(dt_graph *g, dt_op op, dt_value x, const dt_shape *shape) {
    const dt_attrs a = {.reshape = {*shape}};
    if (x == DT_NONE || dt_shape_equal(&dt_info_of(g, x)->shape, shape)) return x;
    return dt_graph_apply(g, op, NULL, &x, 1, &a);
}
dt_value dt_expand(dt_graph *g, dt_value x, dt_shape shape) {
    return expand_apply(g, DT_OP_expand, x, &shape);
}
dt_value dt_sum(dt_graph *g, dt_value x, dt_shape shape) {
    return expand_apply(g, DT_OP_sum, x, &shape);
}
