// onnx_import_ops.c: nodes of an ONNX file as calls of the graph API, a function an op
// (https://github.com/onnx/onnx/blob/main/docs/Operators.md).
#include "graph/activation_words.h"
#include "onnx_reader.h"

#include <math.h>
#include <string.h>

dt_value onnx_value(onnx_reader *r, int i) {
    return onnx_as_value(r, onnx_in(r, i), ONNX_AS_IS);
}
dt_shape onnx_shape(const onnx_reader *r, dt_value v) {
    return v == DT_NONE ? dt_shape0() : dt_info_of(r->g, v)->shape;
}
const char *onnx_name(const onnx_reader *r) {
    return r->node->name && *r->node->name ? dt_graph_unique_name(r->g, r->node->name) : NULL;
}
int64_t onnx_axis(onnx_reader *r, int64_t axis, int n) {
    if (axis < 0) axis += n;
    if (axis >= 0 && axis < n) return axis;
    onnx_fail(r, "has an axis that its input lacks");
    return 0;
}
// Integers of input i or, before it became one, of an attribute. Returns how many, -1: not given.
int onnx_integers(onnx_reader *r, int i, const char *attribute, int64_t *out) {
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
dt_value onnx_reshape(onnx_reader *r, dt_value x, int n, const int64_t *d) {
    dt_shape s = {.n = n};
    if (n > DT_MAX_DIMS) {
        onnx_fail(r, "has more than %d dimensions", DT_MAX_DIMS);
        return DT_NONE;
    }
    for (int i = 0; i < n; i++) s.d[i] = d[i];
    return x == DT_NONE ? x : dt_reshape(r->g, x, s);
}

// ---- windows ---------------------------------------------------------------------------------------
// size: what it goes over, (height, width), for padding that keeps the size; NULL: such padding is not read.
static bool read_window(onnx_reader *r, const int64_t *kernel, int n, const int64_t *size,
                        dt_window *w) {
    int64_t stride[ONNX_MAX_DIMS] = {1, 1}, dilation[ONNX_MAX_DIMS] = {1, 1},
            pads[ONNX_MAX_DIMS] = {0};
    const Onnx__AttributeProto *automatic = onnx_attribute(r->node, "auto_pad");
    const char *how = automatic && automatic->s.len ? (const char *)automatic->s.data : "NOTSET";
    const size_t length = automatic && automatic->s.len ? automatic->s.len : 6;
    const bool same = length == 10 && memcmp(how, "SAME_", 5) == 0 && size;
    if (n != 1 && n != 2) return onnx_fail(r, "only windows of one or two dimensions are read");
    if (!same && !(length == 6 && memcmp(how, "NOTSET", 6) == 0) &&
        !(length == 5 && memcmp(how, "VALID", 5) == 0))
        return onnx_fail(r, "its padding, auto_pad %.*s, is not read: export explicit pads",
                         (int)length, how);
    onnx_integers(r, -1, "strides", stride);
    onnx_integers(r, -1, "dilations", dilation);
    onnx_integers(r, -1, "pads", pads);
    *w = (dt_window){.kernel = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}};
    for (int i = 0; i < n; i++) {
        const int64_t all[] = {kernel[i], stride[i], dilation[i]};
        const int d = 2 - n + i; // of one dimension: the width
        for (int k = 0; k < 3; k++)
            if (all[k] < 1 || all[k] > 1 << 20) return onnx_fail(r, "has an impossible window");
        if (pads[i] < 0 || pads[n + i] < 0 || pads[i] > 1 << 20 || pads[n + i] > 1 << 20)
            return onnx_fail(r, "has impossible padding");
        w->kernel[d] = (int)kernel[i], w->stride[d] = (int)stride[i];
        w->dilation[d] = (int)dilation[i];
        w->pad_begin[d] = (int)pads[i], w->pad_end[d] = (int)pads[n + i];
        if (!same) continue;
        const int64_t span = dilation[i] * (kernel[i] - 1) + 1;
        const int64_t room =
            ((size[d] + stride[i] - 1) / stride[i] - 1) * stride[i] + span - size[d];
        if (room > 1 << 20) return onnx_fail(r, "has an impossible window");
        const int half = room > 0 ? (int)(room / 2) : 0, rest = room > 0 ? (int)room - half : 0;
        w->pad_begin[d] = how[5] == 'U' ? half : rest; // SAME_UPPER: what is odd goes behind
        w->pad_end[d] = how[5] == 'U' ? rest : half;
    }
    return true;
}

// (N,C,L) as the image (N,C,1,L). *was: the shape that it had.
static dt_value as_image(onnx_reader *r, dt_value x, dt_shape *was) {
    *was = onnx_shape(r, x);
    if (was->n != 3) return x;
    return onnx_reshape(r, x, 4, (const int64_t[]){was->d[0], was->d[1], 1, was->d[2]});
}
static void give_image(onnx_reader *r, dt_value x, const dt_shape *was) {
    const dt_shape s = onnx_shape(r, x);
    if (was->n == 3) x = onnx_reshape(r, x, 3, (const int64_t[]){s.d[0], s.d[1], s.d[3]});
    onnx_give(r, 0, x);
}

// The bias of a convolution: exporters write one of zeros where there is none.
static dt_value conv_bias(onnx_reader *r) {
    onnx_slot *s = onnx_in(r, 2);
    const onnx_const *c = s && s->kind == ONNX_CONST ? s->c : NULL;
    int64_t n = 0;
    while (c && n < c->count && c->v[n] == 0) n++;
    return !s || (c && n == c->count) ? DT_NONE : onnx_value(r, 2);
}

static void read_conv(onnx_reader *r, bool transposed) {
    dt_value x, w, b;
    dt_window win;
    dt_shape was;
    int64_t more[ONNX_MAX_DIMS] = {0};
    onnx_slot *weight = onnx_in(r, 1);
    x = as_image(r, onnx_value(r, 0), &was);
    if (!weight || weight->kind != ONNX_WEIGHT) {
        onnx_fail(r, "only convolutions with an initialiser as weight are read");
        return;
    }
    w = onnx_as_value(r, weight, was.n == 3 ? ONNX_IMAGE : ONNX_AS_IS);
    b = conv_bias(r);
    const dt_shape s = onnx_shape(r, w), image = onnx_shape(r, x);
    const int64_t groups = onnx_int(r, "group", 1);
    const int n = was.n - 2, skip = 4 - was.n;
    if (s.n != 4 || (was.n != 3 && was.n != 4) || groups < 1 || groups > s.d[0]) {
        onnx_fail(r, "only convolutions of (N,C,H,W) or (N,C,L) are read");
        return;
    }
    if (!read_window(r, s.d + 2 + skip, n, transposed ? NULL : image.d + 2, &win)) return;
    if (!transposed) {
        x = dt_conv2d_with(r->g, onnx_name(r), x, w, b, (int)groups, &win);
    } else if (onnx_attribute(r->node, "output_shape")) {
        onnx_fail(r, "output_shape is not read: export output_padding");
        return;
    } else {
        onnx_integers(r, -1, "output_padding", more);
        const int behind[2] = {skip ? 0 : (int)more[0], (int)more[skip ? 0 : 1]};
        x = dt_conv_transpose_with(r->g, onnx_name(r), x, w, b, (int)groups, &win, behind);
    }
    give_image(r, x, &was);
}
void onnx_read_Conv(onnx_reader *r) {
    read_conv(r, false);
}
void onnx_read_ConvTranspose(onnx_reader *r) {
    read_conv(r, true);
}

static void read_pool(onnx_reader *r, bool max) {
    int64_t kernel[ONNX_MAX_DIMS];
    dt_window w;
    dt_shape was;
    dt_value x = as_image(r, onnx_value(r, 0), &was);
    if (onnx_shape(r, x).n != 4) onnx_fail(r, "only pooling of (N,C,H,W) or (N,C,L) is read");
    const dt_shape s = onnx_shape(r, x);
    if (!read_window(r, kernel, onnx_integers(r, -1, "kernel_shape", kernel), s.d + 2, &w) ||
        x == DT_NONE)
        return;
    bool include = onnx_int(r, "count_include_pad", 0) != 0, over_end = false;
    include = include && w.pad_begin[0] + w.pad_begin[1] + w.pad_end[0] + w.pad_end[1] > 0;
    // ceil_mode: the last window may hang over the end, which never counts
    for (int d = 0; d < 2 && onnx_int(r, "ceil_mode", 0); d++) {
        const int64_t span = w.dilation[d] * (w.kernel[d] - 1) + 1;
        const int64_t room = onnx_shape(r, x).d[2 + d] + w.pad_begin[d] + w.pad_end[d] - span;
        const int64_t over = room < 0 ? 0 : room % w.stride[d];
        if (over > 0) w.pad_end[d] += (int)(w.stride[d] - over);
        over_end |= over > 0;
    }
    if (!max && include && over_end)
        onnx_fail(
            r,
            "count_include_pad with a ceil_mode whose last window hangs over the end is not read: "
            "export it with count_include_pad=False");
    x = max ? dt_max_pool_window(r->g, x, &w) : dt_avg_pool_window(r->g, x, &w, include);
    give_image(r, x, &was);
}
void onnx_read_MaxPool(onnx_reader *r) {
    read_pool(r, true);
}
void onnx_read_AveragePool(onnx_reader *r) {
    read_pool(r, false);
}

void onnx_read_BatchNormalization(onnx_reader *r) {
    dt_shape was;
    dt_value x = as_image(r, onnx_value(r, 0), &was), p[4];
    for (int i = 0; i < 2; i++) p[i] = onnx_value(r, 1 + i);
    for (int i = 2; i < 4; i++) p[i] = onnx_as_buffer(r, onnx_in(r, 1 + i));
    x = dt_batch_norm_with(r->g, onnx_name(r), x, p, onnx_float(r, "epsilon", 1e-5f),
                           1 - onnx_float(r, "momentum", 0.9f));
    give_image(r, x, &was);
}

// Whether the slot is known and all its elements are this number.
static bool is_all(onnx_reader *r, onnx_slot *s, double v) {
    const onnx_const *c = onnx_as_const(r, s);
    int64_t n = 0;
    while (c && n < c->count && c->v[n] == v) n++;
    return c && n == c->count;
}
// Exporters write a group norm as the instance norm of reshaped groups, with factors 1 and summands 0 that are no weights.
void onnx_read_InstanceNormalization(onnx_reader *r) {
    onnx_slot *from = onnx_in(r, 0), *scale = onnx_in(r, 1), *shift = onnx_in(r, 2);
    const bool groups = from && from->producer && strcmp(from->producer->op_type, "Reshape") == 0;
    const bool constant = scale && shift && scale->kind == ONNX_CONST && shift->kind == ONNX_CONST;
    dt_value x = onnx_value(r, 0), w = DT_NONE, b = DT_NONE;
    if (!((groups || constant) && is_all(r, scale, 1) && is_all(r, shift, 0))) {
        w = onnx_value(r, 1);
        b = onnx_value(r, 2);
    }
    if (x != DT_NONE)
        onnx_give(r, 0,
                  dt_group_norm_with(r->g, onnx_name(r), x, onnx_shape(r, x).d[1], w, b,
                                     onnx_float(r, "epsilon", 1e-5f)));
}
// Until operator set 21 factors and summands are of groups, as PyTorch's never are.
void onnx_read_GroupNormalization(onnx_reader *r) {
    const int64_t groups = onnx_int(r, "num_groups", 1);
    dt_value x = onnx_value(r, 0), w, b;
    w = onnx_value(r, 1);
    b = onnx_value(r, 2);
    const dt_shape s = onnx_shape(r, x), each = onnx_shape(r, w);
    if (s.n > 1 && each.n == 1 && each.d[0] == s.d[1])
        onnx_give(r, 0,
                  dt_group_norm_with(r->g, onnx_name(r), x, groups, w, b,
                                     onnx_float(r, "epsilon", 1e-5f)));
    else
        onnx_fail(r, "only a scale and bias of each channel are read");
}

static void give_norm(onnx_reader *r, dt_value x, onnx_slot *weight, onnx_slot *bias, float eps) {
    dt_value w, b;
    w = onnx_as_value(r, weight, ONNX_AS_IS);
    b = onnx_as_value(r, bias, ONNX_AS_IS);
    if (onnx_shape(r, w).n != 1)
        onnx_fail(r, "only layer norms of the last dimension are read");
    else
        onnx_give(r, 0, dt_layer_norm_with(r->g, onnx_name(r), x, w, b, eps));
}
void onnx_read_LayerNormalization(onnx_reader *r) {
    dt_value x = onnx_value(r, 0);
    const int n = onnx_shape(r, x).n;
    if (onnx_axis(r, onnx_int(r, "axis", -1), n) != n - 1)
        onnx_fail(r, "only layer norms of the last dimension are read");
    give_norm(r, x, onnx_in(r, 1), onnx_in(r, 2), onnx_float(r, "epsilon", 1e-5f));
}

// ---- linear algebra --------------------------------------------------------------------------------
static void give_linear(onnx_reader *r, dt_value x, onnx_slot *weight, bool swapped,
                        onnx_slot *bias) {
    dt_value w, b;
    w = onnx_as_value(r, weight, swapped ? ONNX_SWAPPED : ONNX_AS_IS);
    b = bias ? onnx_as_value(r, bias, ONNX_AS_IS) : DT_NONE;
    if (x != DT_NONE && w != DT_NONE)
        onnx_give(r, 0,
                  dt_linear_with(r->g,
                                 onnx_name(r) ? onnx_name(r) : dt_graph_unique_name(r->g, "linear"),
                                 x, w, b));
}
void onnx_read_Gemm(onnx_reader *r) {
    onnx_slot *w = onnx_in(r, 1);
    if (onnx_int(r, "transA", 0) || onnx_float(r, "alpha", 1) != 1 ||
        onnx_float(r, "beta", 1) != 1 || !w || w->kind != ONNX_WEIGHT)
        onnx_fail(r, "only x W^T + b with weights is read");
    else
        give_linear(r, onnx_value(r, 0), w, !onnx_int(r, "transB", 0), onnx_in(r, 2));
}
void onnx_read_MatMul(onnx_reader *r) {
    onnx_slot *b = onnx_in(r, 1);
    dt_value x = onnx_value(r, 0);
    if (b && b->kind == ONNX_WEIGHT && b->t->n_dims == 2) {
        give_linear(r, x, b, true, NULL);
        return;
    }
    dt_value y = onnx_value(r, 1);
    if (x != DT_NONE && y != DT_NONE) onnx_give(r, 0, dt_matmul(r->g, x, y, false, false, 1));
}

// ---- shapes ----------------------------------------------------------------------------------------
void onnx_read_Reshape(onnx_reader *r) {
    int64_t d[ONNX_MAX_DIMS];
    dt_value x = onnx_value(r, 0);
    const dt_shape s = onnx_shape(r, x);
    const int n = onnx_integers(r, 1, NULL, d);
    if (n > 0 && n <= DT_MAX_DIMS && d[0] == 1 && s.n > 0 && s.d[0] > 1 &&
        dt_info_of(r->g, x)->kind == DT_V_TEMP)
        onnx_fail(r, "has a batch of 1 in it: export with a dynamic first dimension");
    for (int i = 0; i < n; i++)
        if (d[i] == 0 && i < s.n && !onnx_int(r, "allowzero", 0)) d[i] = s.d[i];
    if (n >= 0) onnx_give(r, 0, onnx_reshape(r, x, n, d));
}
void onnx_read_Flatten(onnx_reader *r) {
    dt_value x = onnx_value(r, 0);
    const dt_shape s = onnx_shape(r, x);
    const int64_t axis =
        onnx_int(r, "axis", 1) == s.n ? s.n : onnx_axis(r, onnx_int(r, "axis", 1), s.n);
    int64_t d[2] = {1, 1};
    for (int i = 0; i < s.n; i++) d[i >= axis] *= s.d[i];
    onnx_give(r, 0, onnx_reshape(r, x, 2, d));
}
void onnx_read_Squeeze(onnx_reader *r) {
    int64_t axes[ONNX_MAX_DIMS], d[ONNX_MAX_DIMS];
    dt_value x = onnx_value(r, 0);
    const dt_shape s = onnx_shape(r, x);
    int n_axes = onnx_integers(r, r->node->n_input > 1 ? 1 : -1, "axes", axes), n = 0;
    for (int i = 0; i < n_axes; i++) axes[i] = onnx_axis(r, axes[i], s.n);
    for (int i = 0; i < s.n; i++) {
        bool gone = n_axes < 0 && s.d[i] == 1;
        for (int k = 0; k < n_axes; k++) gone |= axes[k] == i;
        if (!gone) d[n++] = s.d[i];
    }
    onnx_give(r, 0, onnx_reshape(r, x, n, d));
}
void onnx_read_Unsqueeze(onnx_reader *r) {
    int64_t axes[ONNX_MAX_DIMS], d[ONNX_MAX_DIMS];
    dt_value x = onnx_value(r, 0);
    const dt_shape s = onnx_shape(r, x);
    const int n_axes = onnx_integers(r, 1, "axes", axes), n = s.n + (n_axes > 0 ? n_axes : 0);
    if (n > DT_MAX_DIMS) {
        onnx_fail(r, "has more than %d dimensions", DT_MAX_DIMS);
        return;
    }
    for (int i = 0; i < n_axes; i++) axes[i] = onnx_axis(r, axes[i], n);
    for (int i = 0, from = 0; i < n; i++) {
        bool one = false;
        for (int k = 0; k < n_axes; k++) one |= axes[k] == i;
        d[i] = one || from >= s.n ? 1 : s.d[from++];
    }
    onnx_give(r, 0, onnx_reshape(r, x, n, d));
}
void onnx_read_Transpose(onnx_reader *r) {
    int64_t d[ONNX_MAX_DIMS];
    int perm[DT_MAX_DIMS];
    unsigned seen = 0;
    if (onnx_out(r, 0) && onnx_out(r, 0)->kind == ONNX_WEIGHT) return; // another name (list_names)
    dt_value x = onnx_value(r, 0);
    const int n_dims = onnx_shape(r, x).n, n = onnx_integers(r, -1, "perm", d);
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
void onnx_read_Concat(onnx_reader *r) {
    enum { MAX = 64 };
    dt_value x[MAX];
    const int n = (int)r->node->n_input;
    if (n < 1 || n > MAX) {
        onnx_fail(r, "joins more than %d values", MAX);
        return;
    }
    for (int i = 0; i < n; i++) x[i] = onnx_value(r, i);
    const int64_t axis = onnx_axis(r, onnx_int(r, "axis", 0), onnx_shape(r, x[0]).n);
    if (r->g->status == DT_OK) onnx_give(r, 0, dt_concat(r->g, x, n, (int)axis));
}
// x[…, begin:end, …]
static dt_value cut(onnx_reader *r, dt_value x, int64_t axis, int64_t begin, int64_t end) {
    if (x == DT_NONE || r->g->status != DT_OK) return DT_NONE;
    const dt_shape s = onnx_shape(r, x);
    return begin == 0 && end == s.d[axis] ? x : dt_slice(r->g, x, (int)axis, begin, end);
}
void onnx_read_Slice(onnx_reader *r) {
    int64_t begin[ONNX_MAX_DIMS], end[ONNX_MAX_DIMS], axes[ONNX_MAX_DIMS], steps[ONNX_MAX_DIMS];
    dt_value x = onnx_value(r, 0);
    const int n = onnx_integers(r, 1, NULL, begin), n_end = onnx_integers(r, 2, NULL, end);
    const int n_axes = onnx_integers(r, 3, NULL, axes), n_steps = onnx_integers(r, 4, NULL, steps);
    if (n < 0 || n_end != n || (n_axes >= 0 && n_axes != n) || (n_steps >= 0 && n_steps != n)) {
        onnx_fail(r, "has lists of different lengths");
        return;
    }
    for (int i = 0; i < n; i++) {
        const int64_t axis = onnx_axis(r, n_axes < 0 ? i : axes[i], onnx_shape(r, x).n);
        const int64_t size = x == DT_NONE ? 0 : onnx_shape(r, x).d[axis];
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
void onnx_read_Split(onnx_reader *r) {
    int64_t parts[ONNX_MAX_DIMS], at = 0;
    dt_value x = onnx_value(r, 0);
    const int64_t axis = onnx_axis(r, onnx_int(r, "axis", 0), onnx_shape(r, x).n);
    const int n_out = (int)r->node->n_output,
              n = onnx_integers(r, r->node->n_input > 1 ? 1 : -1, "split", parts);
    if (x == DT_NONE || n_out < 1) return;
    const int64_t size = onnx_shape(r, x).d[axis], each = (size + n_out - 1) / n_out;
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
// Rows of a table in any order: a product with a matrix that has a 1 in each row.
static dt_value pick(onnx_reader *r, dt_value x, const onnx_const *at, int axis) {
    const dt_shape s = onnx_shape(r, x);
    dt_shape to = s;
    if (!at || axis != 0 || s.n != 2 || at->n < 1 || at->n - 1 + s.n > DT_MAX_DIMS ||
        at->count * s.d[0] > (int64_t)1 << 24) {
        onnx_fail(r, "only known elements are taken, neighbours or rows of a table");
        return DT_NONE;
    }
    float *one = dt_arena_alloc(&r->g->arena, (size_t)(at->count * s.d[0]) * sizeof *one);
    memset(one, 0, (size_t)(at->count * s.d[0]) * sizeof *one);
    for (int64_t i = 0; i < at->count; i++) {
        const double k = at->v[i] + (at->v[i] < 0 ? (double)s.d[0] : 0);
        if (!(k >= 0 && k < (double)s.d[0])) {
            onnx_fail(r, "takes elements that are not there");
            return DT_NONE;
        }
        one[i * s.d[0] + (int64_t)k] = 1;
    }
    dt_value rows = dt_constant(r->g, NULL, DT_F32, dt_shape2(at->count, s.d[0]), one);
    if (r->g->values[x].kind == DT_V_PARAM) x = dt_reshape(r->g, x, s); // matmuls read activations
    x = dt_matmul(r->g, rows, x, false, false, 1);
    for (int i = 0; i < at->n; i++) to.d[i] = at->d[i];
    to.d[at->n] = s.d[1];
    return onnx_reshape(r, x, at->n + 1, to.d);
}
void onnx_read_Gather(onnx_reader *r) {
    const onnx_const *at = onnx_as_const(r, onnx_in(r, 1));
    dt_value x = onnx_value(r, 0);
    dt_shape s = onnx_shape(r, x);
    const int64_t axis = onnx_axis(r, onnx_int(r, "axis", 0), s.n);
    if (x == DT_NONE || r->g->status != DT_OK) return;
    bool run = at && (at->n <= 1 || s.n == 1) && at->n <= DT_MAX_DIMS && at->count > 0;
    const double first = run ? (at->v[0] < 0 ? at->v[0] + (double)s.d[axis] : at->v[0]) : 0;
    for (int64_t i = 1; run && i < at->count; i++) run = at->v[i] == at->v[i - 1] + 1;
    if (!run) {
        onnx_give(r, 0, pick(r, x, at, (int)axis));
        return;
    }
    if (!(first >= 0) || first + (double)at->count > (double)s.d[axis]) {
        onnx_fail(r, "takes elements that are not there");
        return;
    }
    x = cut(r, x, axis, (int64_t)first, (int64_t)first + at->count);
    if (at->n == 0) {
        for (int i = (int)axis; i < s.n - 1; i++) s.d[i] = s.d[i + 1];
        x = onnx_reshape(r, x, s.n - 1, s.d);
    } else if (at->n > 1) {
        x = onnx_reshape(r, x, at->n, at->d);
    }
    onnx_give(r, 0, x);
}
// The first dimension of samples is repeated by adding to zeros, which `dtrain export` writes for any number of them.
void onnx_read_Expand(onnx_reader *r) {
    int64_t d[ONNX_MAX_DIMS];
    dt_value x = onnx_value(r, 0);
    const int n_given = onnx_integers(r, 1, NULL, d);
    const dt_shape s = onnx_shape(r, x);
    dt_shape to = {.n = n_given > s.n ? n_given : s.n}, own = to;
    if (x == DT_NONE || n_given < 0) return;
    if (to.n > DT_MAX_DIMS) {
        onnx_fail(r, "has more than %d dimensions", DT_MAX_DIMS);
        return;
    }
    for (int i = 0; i < to.n; i++) {
        const int mine = i - (to.n - s.n), other = i - (to.n - n_given);
        own.d[i] = mine < 0 ? 1 : s.d[mine];
        to.d[i] = other < 0 || d[other] == 1 || d[other] == -1 ? own.d[i] : d[other];
    }
    if (!dt_shape_is_sound(&to)) {
        onnx_fail(r, "has an impossible shape");
        return;
    }
    x = onnx_reshape(r, x, own.n, own.d);
    const int64_t first = to.d[0];
    if (own.d[0] == 1) to.d[0] = 1;
    x = dt_expand(r->g, x, to);
    if (first != to.d[0]) {
        dt_value row = to.n > 1 ? onnx_reshape(r, x, to.n - 1, to.d + 1) : x;
        to.d[0] = first;
        float *zeros = dt_arena_alloc(&r->g->arena, (size_t)dt_shape_elements(&to) * sizeof *zeros);
        memset(zeros, 0, (size_t)dt_shape_elements(&to) * sizeof *zeros);
        x = dt_add(r->g, dt_constant(r->g, NULL, DT_F32, to, zeros), row);
    }
    onnx_give(r, 0, x);
}
void onnx_read_Pad(onnx_reader *r) {
    int64_t pads[2 * ONNX_MAX_DIMS], axes[ONNX_MAX_DIMS];
    const Onnx__AttributeProto *mode = onnx_attribute(r->node, "mode");
    const char *kind = mode ? (const char *)mode->s.data : "constant";
    const size_t length = mode ? mode->s.len : 8;
    const onnx_const *sizes = onnx_as_const(r, onnx_in(r, 1)),
                     *with = onnx_as_const(r, onnx_in(r, 2));
    const int n_axes = onnx_in(r, 3) ? onnx_integers(r, 3, NULL, axes) : -1;
    dt_value x = onnx_value(r, 0);
    const int n_dims = onnx_shape(r, x).n, n = n_axes < 0 ? n_dims : n_axes;
    const dt_pad_mode how = length == 4   ? DT_PAD_REPLICATE
                            : length == 7 ? DT_PAD_REFLECT
                                          : DT_PAD_CONSTANT;
    if (!sizes || sizes->count != 2 * n || (onnx_in(r, 2) && !with)) {
        onnx_fail(r, "its padding must be known when the graph is built");
        return;
    }
    if (how == DT_PAD_REFLECT     ? memcmp(kind, "reflect", 7)
        : how == DT_PAD_REPLICATE ? memcmp(kind, "edge", 4)
                                  : memcmp(kind, "constant", 8)) {
        onnx_fail(r, "padding of mode %.*s is not read", (int)length, kind);
        return;
    }
    for (int i = 0; i < 2 * n; i++) {
        if (!(fabs(sizes->v[i]) <= 1 << 20)) {
            onnx_fail(r, "has impossible padding");
            return;
        }
        pads[i] = (int64_t)sizes->v[i];
    }
    for (int i = 0; i < n; i++)
        x = dt_pad(r->g, x, (int)(n_axes < 0 ? i : onnx_axis(r, axes[i], n_dims)), pads[i],
                   pads[n + i], how, with && with->count ? (float)with->v[0] : 0);
    onnx_give(r, 0, x);
}

void onnx_read_Identity(onnx_reader *r) {
    onnx_slot *from = onnx_in(r, 0), *to = onnx_out(r, 0);
    if (from && to) onnx_alias(to, from);
}
void onnx_read_CastLike(onnx_reader *r) { // weights and what is computed are f32
    onnx_read_Identity(r);
}
void onnx_read_Dropout(onnx_reader *r) { // as it is in evaluation; model.dropout is another
    onnx_read_Identity(r);
}

// Rows of a table, whose numbers have a last dimension of one.
void onnx_read_GatherND(onnx_reader *r) {
    const onnx_const *at = onnx_as_const(r, onnx_in(r, 1));
    dt_value x = onnx_value(r, 0);
    if (!at || at->n < 2 || at->d[at->n - 1] != 1 || onnx_int(r, "batch_dims", 0)) {
        onnx_fail(r, "only known rows of a table are taken");
        return;
    }
    onnx_const rows = *at;
    rows.n--;
    if (x != DT_NONE) onnx_give(r, 0, pick(r, x, &rows, 0));
}

// ---- the tables ------------------------------------------------------------------------------------
// Of ops that are only computed on constants: their inputs are not known.
static void read_folded(onnx_reader *r) {
    const bool cast = strcmp(r->node->op_type, "Cast") == 0;
    if (cast && onnx_int(r, "to", 0) == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT)
        onnx_read_Identity(r);
    else
        onnx_fail(r, "is read for constants only, and here depends on the network's input");
}

static const struct {
    const char *type;
    onnx_op_fn fn;
} ops[] = {
#define IMPORT_OP(op) {#op, onnx_read_##op},
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
    dt_value x = onnx_as_value(r, g->x, ONNX_AS_IS);
    if (g->kind == ONNX_SAME)
        onnx_give(r, 0, x);
    else if (g->kind == ONNX_GELU)
        onnx_give(r, 0, dt_gelu(r->g, x));
    else if (g->kind == ONNX_NORM)
        give_norm(r, x, g->weight, g->bias, (float)g->eps);
    else
        give_linear(r, x, g->weight, true, g->bias);
}
