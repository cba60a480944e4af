// onnx_import_ops.c: nodes of an ONNX file as calls of the graph API, a function an op
// (https://github.com/onnx/onnx/blob/main/docs/Operators.md).
#include "graph/activation_words.h"
#include "onnx_reader.h"

#include <math.h>
#include <string.h>

static dt_value value(onnx_reader *r, int i) {
    return onnx_as_value(r, onnx_in(r, i), false);
}
static dt_shape shape_of(const onnx_reader *r, dt_value v) {
    return v == DT_NONE ? dt_shape0() : dt_info_of(r->g, v)->shape;
}
static const char *name_of(const onnx_reader *r) {
    return r->node->name && *r->node->name ? dt_graph_unique_name(r->g, r->node->name) : NULL;
}
static int64_t axis_of(onnx_reader *r, int64_t axis, int n) {
    if (axis < 0) axis += n;
    if (axis >= 0 && axis < n) return axis;
    onnx_fail(r, "has an axis that its input lacks");
    return 0;
}
// Integers of input i or, before it became one, of an attribute. Returns how many, -1: not given.
static int integers(onnx_reader *r, int i, const char *attribute, int64_t *out) {
    const onnx_const *c = i >= 0 ? onnx_as_const(r, onnx_in(r, i)) : NULL;
    const Onnx__AttributeProto *a = attribute ? onnx_attribute(r->node, attribute) : NULL;
    const int64_t n = c ? c->count : a ? (int64_t)a->n_ints : -1;
    if (!c && i >= 0 && onnx_in(r, i)) {
        onnx_fail(r, "input %d must be known when the graph is built", i);
        return -1;
    }
    if (n > ONNX_MAX_DIMS) {
        onnx_fail(r, "has more than %d integers", ONNX_MAX_DIMS);
        return -1;
    }
    for (int64_t k = 0; k < n; k++)
        out[k] = c ? (int64_t)fmin(fmax(c->v[k], -9e15), 9e15) : a->ints[k];
    return (int)n;
}
static dt_value reshape(onnx_reader *r, dt_value x, int n, const int64_t *d) {
    dt_shape s = {.n = n};
    if (n > DT_MAX_DIMS) {
        onnx_fail(r, "has more than %d dimensions", DT_MAX_DIMS);
        return DT_NONE;
    }
    for (int i = 0; i < n; i++) s.d[i] = d[i];
    return x == DT_NONE ? x : dt_reshape(r->g, x, s);
}

// ---- windows ---------------------------------------------------------------------------------------
static bool read_window(onnx_reader *r, const int64_t *kernel, int n, dt_window *w) {
    int64_t stride[ONNX_MAX_DIMS] = {1, 1}, dilation[ONNX_MAX_DIMS] = {1, 1},
            pads[ONNX_MAX_DIMS] = {0};
    const Onnx__AttributeProto *automatic = onnx_attribute(r->node, "auto_pad");
    if (n != 2) return onnx_fail(r, "only windows of two dimensions are read");
    if (automatic && automatic->s.len > 0 && memcmp(automatic->s.data, "NOTSET", 6) != 0 &&
        memcmp(automatic->s.data, "VALID", 5) != 0)
        return onnx_fail(r, "auto_pad is not read: export explicit pads");
    integers(r, -1, "strides", stride);
    integers(r, -1, "dilations", dilation);
    integers(r, -1, "pads", pads);
    for (int d = 0; d < 2; d++) {
        const int64_t all[] = {kernel[d], stride[d], dilation[d]};
        for (int k = 0; k < 3; k++)
            if (all[k] < 1 || all[k] > 1 << 20) return onnx_fail(r, "has an impossible window");
        if (pads[d] < 0 || pads[2 + d] < 0 || pads[d] > 1 << 20 || pads[2 + d] > 1 << 20)
            return onnx_fail(r, "has impossible pads");
        w->kernel[d] = (int)kernel[d], w->stride[d] = (int)stride[d];
        w->dilation[d] = (int)dilation[d];
        w->pad_begin[d] = (int)pads[d], w->pad_end[d] = (int)pads[2 + d];
    }
    return true;
}

static void read_Conv(onnx_reader *r) {
    dt_value x, w, b;
    dt_window win;
    x = value(r, 0);
    w = value(r, 1);
    b = onnx_in(r, 2) ? value(r, 2) : DT_NONE;
    const dt_shape s = shape_of(r, w);
    const int64_t groups = onnx_int(r, "group", 1);
    if (s.n != 4 || shape_of(r, x).n != 4 || groups < 1 || groups > s.d[0])
        onnx_fail(r, "only convolutions of images, (N,C,H,W), are read");
    else if (read_window(r, s.d + 2, 2, &win))
        onnx_give(r, 0, dt_conv2d_with(r->g, name_of(r), x, w, b, (int)groups, &win));
}

static void read_pool(onnx_reader *r, bool max) {
    int64_t kernel[ONNX_MAX_DIMS];
    dt_window w;
    dt_value x = value(r, 0);
    if (shape_of(r, x).n != 4) onnx_fail(r, "only pooling of images, (N,C,H,W), is read");
    if (!read_window(r, kernel, integers(r, -1, "kernel_shape", kernel), &w) || x == DT_NONE)
        return;
    bool include = onnx_int(r, "count_include_pad", 0) != 0, over_end = false;
    include = include && w.pad_begin[0] + w.pad_begin[1] + w.pad_end[0] + w.pad_end[1] > 0;
    // ceil_mode: the last window may hang over the end, which never counts
    for (int d = 0; d < 2 && onnx_int(r, "ceil_mode", 0); d++) {
        const int64_t span = w.dilation[d] * (w.kernel[d] - 1) + 1;
        const int64_t room = shape_of(r, x).d[2 + d] + w.pad_begin[d] + w.pad_end[d] - span;
        const int64_t over = room < 0 ? 0 : room % w.stride[d];
        if (over > 0) w.pad_end[d] += (int)(w.stride[d] - over);
        over_end |= over > 0;
    }
    if (!max && include && over_end)
        onnx_fail(
            r,
            "count_include_pad with a ceil_mode whose last window hangs over the end is not read: "
            "export it with count_include_pad=False");
    onnx_give(r, 0,
              max ? dt_max_pool_window(r->g, x, &w) : dt_avg_pool_window(r->g, x, &w, include));
}
static void read_MaxPool(onnx_reader *r) {
    read_pool(r, true);
}
static void read_AveragePool(onnx_reader *r) {
    read_pool(r, false);
}

static void read_BatchNormalization(onnx_reader *r) {
    dt_value x = value(r, 0), p[4];
    for (int i = 0; i < 2; i++) p[i] = value(r, 1 + i);
    for (int i = 2; i < 4; i++) p[i] = onnx_as_buffer(r, onnx_in(r, 1 + i));
    onnx_give(r, 0,
              dt_batch_norm_with(r->g, name_of(r), x, p, onnx_float(r, "epsilon", 1e-5f),
                                 1 - onnx_float(r, "momentum", 0.9f)));
}

static void give_norm(onnx_reader *r, dt_value x, onnx_slot *weight, onnx_slot *bias, float eps) {
    dt_value w, b;
    w = onnx_as_value(r, weight, false);
    b = onnx_as_value(r, bias, false);
    if (shape_of(r, w).n != 1)
        onnx_fail(r, "only layer norms of the last dimension are read");
    else
        onnx_give(r, 0, dt_layer_norm_with(r->g, name_of(r), x, w, b, eps));
}
static void read_LayerNormalization(onnx_reader *r) {
    dt_value x = value(r, 0);
    const int n = shape_of(r, x).n;
    if (axis_of(r, onnx_int(r, "axis", -1), n) != n - 1)
        onnx_fail(r, "only layer norms of the last dimension are read");
    give_norm(r, x, onnx_in(r, 1), onnx_in(r, 2), onnx_float(r, "epsilon", 1e-5f));
}

// ---- linear algebra --------------------------------------------------------------------------------
static void give_linear(onnx_reader *r, dt_value x, onnx_slot *weight, bool swapped,
                        onnx_slot *bias) {
    dt_value w, b;
    w = onnx_as_value(r, weight, swapped);
    b = bias ? onnx_as_value(r, bias, false) : DT_NONE;
    if (x != DT_NONE && w != DT_NONE)
        onnx_give(r, 0,
                  dt_linear_with(r->g,
                                 name_of(r) ? name_of(r) : dt_graph_unique_name(r->g, "linear"), x,
                                 w, b));
}
static void read_Gemm(onnx_reader *r) {
    onnx_slot *w = onnx_in(r, 1);
    if (onnx_int(r, "transA", 0) || onnx_float(r, "alpha", 1) != 1 ||
        onnx_float(r, "beta", 1) != 1 || !w || w->kind != ONNX_WEIGHT)
        onnx_fail(r, "only x W^T + b with weights is read");
    else
        give_linear(r, value(r, 0), w, !onnx_int(r, "transB", 0), onnx_in(r, 2));
}
static void read_MatMul(onnx_reader *r) {
    onnx_slot *b = onnx_in(r, 1);
    dt_value x = value(r, 0);
    if (b && b->kind == ONNX_WEIGHT && b->t->n_dims == 2) {
        give_linear(r, x, b, true, NULL);
        return;
    }
    dt_value y = value(r, 1);
    if (x != DT_NONE && y != DT_NONE) onnx_give(r, 0, dt_matmul(r->g, x, y, false, false, 1));
}

// ---- elementwise -----------------------------------------------------------------------------------
static void read_Relu(onnx_reader *r) {
    onnx_give(r, 0, dt_relu(r->g, value(r, 0)));
}
static void read_Sigmoid(onnx_reader *r) {
    onnx_give(r, 0, dt_activate(r->g, DT_ACTIVATION_sigmoid, value(r, 0)));
}
static void read_HardSwish(onnx_reader *r) {
    onnx_give(r, 0, dt_activate(r->g, DT_ACTIVATION_hardswish, value(r, 0)));
}
static void read_HardSigmoid(onnx_reader *r) {
    if (fabsf(onnx_float(r, "alpha", 0.2f) - 1.0f / 6) > 1e-5f ||
        onnx_float(r, "beta", 0.5f) != 0.5f)
        onnx_fail(r, "only alpha 1/6 and beta 1/2, as PyTorch's, are read");
    else
        onnx_give(r, 0, dt_activate(r->g, DT_ACTIVATION_hardsigmoid, value(r, 0)));
}
static void read_Gelu(onnx_reader *r) {
    const Onnx__AttributeProto *a = onnx_attribute(r->node, "approximate");
    const bool tanh = a && a->s.len == 4 && memcmp(a->s.data, "tanh", 4) == 0;
    dt_value x = value(r, 0);
    onnx_give(r, 0, tanh ? dt_gelu_tanh(r->g, x) : dt_gelu(r->g, x));
}
static void read_Clip(onnx_reader *r) {
    const onnx_const *low = onnx_as_const(r, onnx_in(r, 1)),
                     *high = onnx_as_const(r, onnx_in(r, 2));
    dt_value x = value(r, 0);
    const bool from_0 = low && low->count == 1 && low->v[0] == 0;
    if (from_0 && !onnx_in(r, 2))
        onnx_give(r, 0, dt_relu(r->g, x));
    else if (from_0 && high && high->count == 1 && high->v[0] == 6)
        onnx_give(r, 0, dt_activate(r->g, DT_ACTIVATION_relu6, x));
    else
        onnx_fail(r, "only bounds 0 and 6, or 0 alone, are read");
}
static void read_Softmax(onnx_reader *r) {
    dt_value x = value(r, 0);
    const int n = shape_of(r, x).n;
    if (axis_of(r, onnx_int(r, "axis", -1), n) != n - 1)
        onnx_fail(r, "only the softmax over the last dimension is read");
    else
        onnx_give(r, 0, dt_softmax(r->g, x));
}
static void read_Identity(onnx_reader *r) {
    onnx_slot *from = onnx_in(r, 0), *to = onnx_out(r, 0);
    if (from && to) onnx_alias(to, from);
}
static void read_Dropout(onnx_reader *r) { // as it is in evaluation; model.dropout is another
    read_Identity(r);
}

// The other operand as one that add and mul repeat: leading ones go.
static dt_value repeated(onnx_reader *r, dt_value v, int n_of_other) {
    const dt_shape s = shape_of(r, v);
    int skip = 0;
    while (skip < s.n - 1 && s.d[skip] == 1 &&
           (s.n > n_of_other || r->g->values[v].kind != DT_V_TEMP))
        skip++;
    return skip ? reshape(r, v, s.n - skip, s.d + skip) : v;
}

// x + number, as a row of numbers
static dt_value shifted(onnx_reader *r, dt_value x, double by) {
    const dt_shape s = shape_of(r, x);
    if (x == DT_NONE || s.n < 1 || by == 0) return x;
    const int64_t n = s.d[s.n - 1];
    float *row = dt_arena_alloc(&r->g->arena, ((size_t)n + 1) * sizeof *row);
    for (int64_t i = 0; i < n; i++) row[i] = (float)by;
    return dt_add(r->g, x, dt_constant(r->g, NULL, DT_F32, dt_shape1(n), row));
}

static bool one_number(onnx_reader *r, int i, double *v) {
    const onnx_const *c = onnx_as_const(r, onnx_in(r, i));
    if (!c || c->count != 1) return false;
    *v = c->v[0];
    return true;
}

static void read_sum(onnx_reader *r, bool minus) {
    double v;
    if (one_number(r, 1, &v)) {
        onnx_give(r, 0, shifted(r, value(r, 0), minus ? -v : v));
        return;
    }
    if (one_number(r, 0, &v)) {
        dt_value x = value(r, 1);
        onnx_give(r, 0, shifted(r, minus ? dt_scale(r->g, x, -1) : x, v));
        return;
    }
    dt_value a = value(r, 0), b = value(r, 1);
    if (a == DT_NONE || b == DT_NONE) return;
    if (minus) b = dt_scale(r->g, b, -1);
    const dt_shape sa = shape_of(r, a), sb = shape_of(r, b);
    const bool swap = dt_shape_elements(&sb) > dt_shape_elements(&sa);
    dt_value big = swap ? b : a, small = swap ? a : b;
    onnx_give(r, 0, dt_add(r->g, big, repeated(r, small, shape_of(r, big).n)));
}
static void read_Add(onnx_reader *r) {
    read_sum(r, false);
}
static void read_Sub(onnx_reader *r) {
    read_sum(r, true);
}
static void read_Mul(onnx_reader *r) {
    double v;
    for (int i = 0; i < 2; i++)
        if (one_number(r, i, &v)) {
            onnx_give(r, 0, dt_scale(r->g, value(r, 1 - i), (float)v));
            return;
        }
    dt_value a = value(r, 0), b = value(r, 1);
    if (a == DT_NONE || b == DT_NONE) return;
    const dt_shape sa = shape_of(r, a), sb = shape_of(r, b);
    const bool swap = dt_shape_elements(&sb) > dt_shape_elements(&sa);
    dt_value big = swap ? b : a, small = swap ? a : b;
    onnx_give(r, 0, dt_mul(r->g, big, repeated(r, small, shape_of(r, big).n)));
}
static void read_Div(onnx_reader *r) {
    double v;
    if (!one_number(r, 1, &v) || v == 0)
        onnx_fail(r, "only division by a number is read");
    else
        onnx_give(r, 0, dt_scale(r->g, value(r, 0), (float)(1 / v)));
}

// ---- reductions ------------------------------------------------------------------------------------
static void read_GlobalAveragePool(onnx_reader *r) {
    dt_value x = value(r, 0);
    const dt_shape s = shape_of(r, x);
    const int64_t d[] = {s.d[0], s.d[1], 1, 1};
    if (s.n == 4)
        onnx_give(r, 0, reshape(r, dt_global_pool(r->g, x), 4, d));
    else
        onnx_fail(r, "only pooling of images, (N,C,H,W), is read");
}
static void read_ReduceMean(onnx_reader *r) {
    int64_t axes[ONNX_MAX_DIMS];
    dt_value x = value(r, 0);
    const dt_shape s = shape_of(r, x);
    const int n = integers(r, r->node->n_input > 1 ? 1 : -1, "axes", axes);
    for (int i = 0; i < n; i++) axes[i] = axis_of(r, axes[i], s.n);
    if (x == DT_NONE || r->g->status != DT_OK) return;
    const bool image = s.n == 4 && n == 2 && axes[0] + axes[1] == 5;
    const bool tokens = s.n == 3 && n == 1 && axes[0] == 1;
    if (!image && !tokens) {
        onnx_fail(r, "only the mean of (N,C,H,W) over H and W, or of (N,T,D) over T, is read");
        return;
    }
    if (tokens) {
        x = dt_transpose(r->g, x, (const int[]){0, 2, 1});
        x = reshape(r, x, 4, (const int64_t[]){s.d[0], s.d[2], s.d[1], 1});
    }
    x = dt_global_pool(r->g, x);
    if (onnx_int(r, "keepdims", 1))
        x = image ? reshape(r, x, 4, (const int64_t[]){s.d[0], s.d[1], 1, 1})
                  : reshape(r, x, 3, (const int64_t[]){s.d[0], 1, s.d[2]});
    onnx_give(r, 0, x);
}

// ---- shapes ----------------------------------------------------------------------------------------
static void read_Reshape(onnx_reader *r) {
    int64_t d[ONNX_MAX_DIMS];
    dt_value x = value(r, 0);
    const dt_shape s = shape_of(r, x);
    const int n = integers(r, 1, NULL, d);
    if (n > 0 && n <= DT_MAX_DIMS && d[0] == 1 && s.n > 0 && s.d[0] > 1 &&
        dt_info_of(r->g, x)->kind == DT_V_TEMP)
        onnx_fail(r, "has a batch of 1 in it: export with a dynamic first dimension");
    for (int i = 0; i < n; i++)
        if (d[i] == 0 && i < s.n && !onnx_int(r, "allowzero", 0)) d[i] = s.d[i];
    if (n >= 0) onnx_give(r, 0, reshape(r, x, n, d));
}
static void read_Flatten(onnx_reader *r) {
    dt_value x = value(r, 0);
    const dt_shape s = shape_of(r, x);
    const int64_t axis =
        onnx_int(r, "axis", 1) == s.n ? s.n : axis_of(r, onnx_int(r, "axis", 1), s.n);
    int64_t d[2] = {1, 1};
    for (int i = 0; i < s.n; i++) d[i >= axis] *= s.d[i];
    onnx_give(r, 0, reshape(r, x, 2, d));
}
static void read_Squeeze(onnx_reader *r) {
    int64_t axes[ONNX_MAX_DIMS], d[ONNX_MAX_DIMS];
    dt_value x = value(r, 0);
    const dt_shape s = shape_of(r, x);
    int n_axes = integers(r, r->node->n_input > 1 ? 1 : -1, "axes", axes), n = 0;
    for (int i = 0; i < n_axes; i++) axes[i] = axis_of(r, axes[i], s.n);
    for (int i = 0; i < s.n; i++) {
        bool gone = n_axes < 0 && s.d[i] == 1;
        for (int k = 0; k < n_axes; k++) gone |= axes[k] == i;
        if (!gone) d[n++] = s.d[i];
    }
    onnx_give(r, 0, reshape(r, x, n, d));
}
static void read_Unsqueeze(onnx_reader *r) {
    int64_t axes[ONNX_MAX_DIMS], d[ONNX_MAX_DIMS];
    dt_value x = value(r, 0);
    const dt_shape s = shape_of(r, x);
    const int n_axes = integers(r, 1, "axes", axes), n = s.n + (n_axes > 0 ? n_axes : 0);
    if (n > DT_MAX_DIMS) {
        onnx_fail(r, "has more than %d dimensions", DT_MAX_DIMS);
        return;
    }
    for (int i = 0; i < n_axes; i++) axes[i] = axis_of(r, axes[i], n);
    for (int i = 0, from = 0; i < n; i++) {
        bool one = false;
        for (int k = 0; k < n_axes; k++) one |= axes[k] == i;
        d[i] = one || from >= s.n ? 1 : s.d[from++];
    }
    onnx_give(r, 0, reshape(r, x, n, d));
}
static void read_Transpose(onnx_reader *r) {
    int64_t d[ONNX_MAX_DIMS];
    int perm[DT_MAX_DIMS];
    unsigned seen = 0;
    dt_value x = value(r, 0);
    const int n_dims = shape_of(r, x).n, n = integers(r, -1, "perm", d);
    if (x == DT_NONE) return;
    for (int i = 0; i < n_dims; i++) {
        if (n < 0) d[i] = n_dims - 1 - i;
        if (i < (n < 0 ? n_dims : n) && d[i] >= 0 && d[i] < n_dims) seen |= 1u << d[i];
        perm[i] = (int)d[i];
    }
    if ((n >= 0 && n != n_dims) || seen != (1u << n_dims) - 1)
        onnx_fail(r, "has an order that is none");
    else
        onnx_give(r, 0, dt_transpose(r->g, x, perm));
}
static void read_Concat(onnx_reader *r) {
    enum { MAX = 64 };
    dt_value x[MAX];
    const int n = (int)r->node->n_input;
    if (n < 1 || n > MAX) {
        onnx_fail(r, "joins more than %d values", MAX);
        return;
    }
    for (int i = 0; i < n; i++) x[i] = value(r, i);
    const int64_t axis = axis_of(r, onnx_int(r, "axis", 0), shape_of(r, x[0]).n);
    if (r->g->status == DT_OK) onnx_give(r, 0, dt_concat(r->g, x, n, (int)axis));
}
// x[…, begin:end, …]
static dt_value cut(onnx_reader *r, dt_value x, int64_t axis, int64_t begin, int64_t end) {
    if (x == DT_NONE || r->g->status != DT_OK) return DT_NONE;
    const dt_shape s = shape_of(r, x);
    return begin == 0 && end == s.d[axis] ? x : dt_slice(r->g, x, (int)axis, begin, end);
}
static void read_Slice(onnx_reader *r) {
    int64_t begin[ONNX_MAX_DIMS], end[ONNX_MAX_DIMS], axes[ONNX_MAX_DIMS], steps[ONNX_MAX_DIMS];
    dt_value x = value(r, 0);
    const int n = integers(r, 1, NULL, begin), n_end = integers(r, 2, NULL, end);
    const int n_axes = integers(r, 3, NULL, axes), n_steps = integers(r, 4, NULL, steps);
    if (n < 0 || n_end != n || (n_axes >= 0 && n_axes != n) || (n_steps >= 0 && n_steps != n)) {
        onnx_fail(r, "has lists of different lengths");
        return;
    }
    for (int i = 0; i < n; i++) {
        const int64_t axis = axis_of(r, n_axes < 0 ? i : axes[i], shape_of(r, x).n);
        const int64_t size = x == DT_NONE ? 0 : shape_of(r, x).d[axis];
        int64_t from = begin[i] < 0 ? begin[i] + size : begin[i],
                to = end[i] < 0 ? end[i] + size : end[i];
        from = from < 0 ? 0 : from, to = to > size ? size : to;
        if (from >= to || (n_steps >= 0 && steps[i] != 1)) {
            onnx_fail(r, "takes nothing, or not every element");
            return;
        }
        x = cut(r, x, axis, from, to);
    }
    onnx_give(r, 0, x);
}
static void read_Split(onnx_reader *r) {
    int64_t parts[ONNX_MAX_DIMS], at = 0;
    dt_value x = value(r, 0);
    const int64_t axis = axis_of(r, onnx_int(r, "axis", 0), shape_of(r, x).n);
    const int n_out = (int)r->node->n_output,
              n = integers(r, r->node->n_input > 1 ? 1 : -1, "split", parts);
    if (x == DT_NONE || n_out < 1) return;
    const int64_t size = shape_of(r, x).d[axis], each = (size + n_out - 1) / n_out;
    for (int i = 0; i < n_out && r->g->status == DT_OK; i++) {
        const int64_t part = n < 0 ? (size - at < each ? size - at : each) : i < n ? parts[i] : 0;
        if (part < 1 || part > size - at) {
            onnx_fail(r, "has parts that do not fit");
            return;
        }
        onnx_give(r, i, cut(r, x, axis, at, at + part));
        at += part;
    }
}
static void read_Gather(onnx_reader *r) {
    const onnx_const *at = onnx_as_const(r, onnx_in(r, 1));
    dt_value x = value(r, 0);
    dt_shape s = shape_of(r, x);
    const int64_t axis = axis_of(r, onnx_int(r, "axis", 0), s.n);
    if (x == DT_NONE || r->g->status != DT_OK) return;
    bool run = at && (at->n <= 1 || s.n == 1) && at->n <= DT_MAX_DIMS && at->count > 0;
    const double first = run ? (at->v[0] < 0 ? at->v[0] + (double)s.d[axis] : at->v[0]) : 0;
    for (int64_t i = 1; run && i < at->count; i++) run = at->v[i] == at->v[i - 1] + 1;
    if (!run || !(first >= 0) || first + (double)at->count > (double)s.d[axis]) {
        onnx_fail(r, "only known neighbouring elements that are there can be taken");
        return;
    }
    x = cut(r, x, axis, (int64_t)first, (int64_t)first + at->count);
    if (at->n == 0) {
        for (int i = (int)axis; i < s.n - 1; i++) s.d[i] = s.d[i + 1];
        x = reshape(r, x, s.n - 1, s.d);
    } else if (at->n > 1) {
        x = reshape(r, x, at->n, at->d);
    }
    onnx_give(r, 0, x);
}
// Repeats over the batch, by adding to zeros.
static void read_Expand(onnx_reader *r) {
    int64_t d[ONNX_MAX_DIMS];
    dt_value x = value(r, 0);
    const int n = integers(r, 1, NULL, d);
    const dt_shape s = shape_of(r, x);
    dt_shape to = {.n = n};
    bool fits = n == s.n && n > 0 && n <= DT_MAX_DIMS;
    for (int i = 0; fits && i < n; i++) {
        to.d[i] = d[i] == 1 || d[i] == -1 ? s.d[i] : d[i];
        fits = to.d[i] == s.d[i] || (i == 0 && s.d[0] == 1 && to.d[0] > 0);
    }
    if (!fits || !dt_shape_is_sound(&to)) {
        onnx_fail(r, "only the first dimension can be repeated");
        return;
    }
    if (to.d[0] != s.d[0]) {
        float *zeros = dt_arena_alloc(&r->g->arena, (size_t)dt_shape_elements(&to) * sizeof *zeros);
        dt_value row = n > 1 ? reshape(r, x, n - 1, s.d + 1) : x;
        x = dt_add(r->g, dt_constant(r->g, NULL, DT_F32, to, zeros), row);
    }
    onnx_give(r, 0, x);
}

// ---- the tables ------------------------------------------------------------------------------------
// Of ops that are only computed on constants: their inputs are not known.
static void read_folded(onnx_reader *r) {
    dt_value x = strcmp(r->node->op_type, "Cast") == 0 ? value(r, 0) : DT_NONE;
    if (x != DT_NONE && onnx_int(r, "to", 0) == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT)
        onnx_give(r, 0, x);
    else
        onnx_fail(r, "is read for constants only, and here depends on the network's input");
}

static const struct {
    const char *type;
    onnx_op_fn fn;
} ops[] = {
#define IMPORT_OP(op) {#op, read_##op},
#define FOLD_OP(op)   {#op, read_folded},
#include "onnx_import_ops.def"
#undef IMPORT_OP
#undef FOLD_OP
};

onnx_op_fn onnx_op_of(const char *type) {
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (strcmp(ops[i].type, type) == 0) return ops[i].fn;
    return NULL;
}

const char *dt_onnx_import_ops(void) {
    return
#define IMPORT_OP(op) #op " "
#define FOLD_OP(op)   #op " "
#include "onnx_import_ops.def"
#undef IMPORT_OP
#undef FOLD_OP
        ;
}

void onnx_build_group(onnx_reader *r, const onnx_group *g) {
    dt_value x = onnx_as_value(r, g->x, false);
    if (g->kind == ONNX_GELU)
        onnx_give(r, 0, dt_gelu(r->g, x));
    else if (g->kind == ONNX_NORM)
        give_norm(r, x, g->weight, g->bias, (float)g->eps);
    else
        give_linear(r, x, g->weight, true, g->bias);
}
