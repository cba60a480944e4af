// onnx_import_ops.c: nodes of an ONNX file as calls of the graph API, a function an op
// (https://github.com/onnx/onnx/blob/main/docs/Operators.md).
#include "graph/activation_words.h"
#include "onnx_reader.h"

#include <math.h>
#include <string.h>

dt_value dt_onnx_input_value(dt_onnx_importer *r, int i) {
    return dt_onnx_as_value(r, dt_onnx_in(r, i), ONNX_AS_IS);
}
dt_shape dt_onnx_shape(const dt_onnx_importer *r, dt_value v) {
    return v == DT_NONE ? dt_shape0() : dt_info_of(r->g, v)->shape;
}
const char *dt_onnx_name(const dt_onnx_importer *r) {
    return r->node->name && *r->node->name ? dt_graph_unique_name(r->g, r->node->name) : NULL;
}

// ---- windows ---------------------------------------------------------------------------------------
// size: what it goes over, (height, width), for padding that keeps the size; NULL: such padding is not read.
static bool onnx_import_ops_read_window(dt_onnx_importer *r, const int64_t *kernel, int n, const int64_t *size,
                                        dt_window *w) {
    int64_t stride[DT_MAX_DIMS] = {1, 1}, dilation[DT_MAX_DIMS] = {1, 1}, pads[DT_MAX_DIMS] = {0};
    const char *how = dt_onnx_read_text(r, "auto_pad", "NOTSET");
    const bool upper = strcmp(how, "SAME_UPPER") == 0;                   // what is odd goes behind
    const bool same = size && (upper || strcmp(how, "SAME_LOWER") == 0); // as TensorFlow pads
    if (n != 1 && n != 2) return dt_onnx_fail(r, "only windows of one or two dimensions are read");
    if (!same && strcmp(how, "NOTSET") != 0 && strcmp(how, "VALID") != 0)
        return dt_onnx_fail(r, "its padding, auto_pad %s, is not read: export explicit pads", how);
    dt_onnx_integers(r, -1, "strides", stride); // left out: ones
    dt_onnx_integers(r, -1, "dilations", dilation);
    dt_onnx_integers(r, -1, "pads", pads); // all begins, then all ends
    *w = (dt_window){.kernel = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}};
    for (int i = 0; i < n; i++) {
        const int64_t all[] = {kernel[i], stride[i], dilation[i]};
        const int d = 2 - n + i; // of one dimension: the width
        // 2^20: so that products below stay within an int64, and ints of a window
        for (int k = 0; k < 3; k++)
            if (all[k] < 1 || all[k] > 1 << 20) return dt_onnx_fail(r, "has an impossible window");
        if (pads[i] < 0 || pads[n + i] < 0 || pads[i] > 1 << 20 || pads[n + i] > 1 << 20)
            return dt_onnx_fail(r, "has impossible padding");
        w->kernel[d] = (int)kernel[i], w->stride[d] = (int)stride[i];
        w->dilation[d] = (int)dilation[i];
        w->pad_begin[d] = (int)pads[i], w->pad_end[d] = (int)pads[n + i];
        if (!same) continue;
        const int64_t span = dilation[i] * (kernel[i] - 1) + 1; // elements from a window's first to its last
        // ceil(size / stride) windows: what they cover beyond the image
        const int64_t room = ((size[d] + stride[i] - 1) / stride[i] - 1) * stride[i] + span - size[d];
        if (room > 1 << 20) return dt_onnx_fail(r, "has an impossible window");
        const int half = room > 0 ? (int)(room / 2) : 0, rest = room > 0 ? (int)room - half : 0;
        w->pad_begin[d] = upper ? half : rest;
        w->pad_end[d] = upper ? rest : half;
    }
    return true;
}

// (N,C,L) as the image (N,C,1,L). *was: the shape that it had.
static dt_value onnx_import_ops_as_image(dt_onnx_importer *r, dt_value x, dt_shape *was) {
    *was = dt_onnx_shape(r, x);
    if (was->n != 3) return x;
    return dt_reshape(r->g, x, dt_shape4(was->d[0], was->d[1], 1, was->d[2]));
}
static void give_image(dt_onnx_importer *r, dt_value x, const dt_shape *was) {
    const dt_shape s = dt_onnx_shape(r, x);
    // (N,C,1,L) back to (N,C,L)
    if (was->n == 3 && x != DT_NONE) x = dt_reshape(r->g, x, dt_shape3(s.d[0], s.d[1], s.d[3]));
    dt_onnx_give(r, 0, x);
}

// The bias of a convolution: exporters write one of zeros where there is none.
static dt_value conv_bias(dt_onnx_importer *r) {
    dt_onnx_slot *s = dt_onnx_in(r, 2);
    // an initialiser is a bias to be trained, even of zeros
    const dt_onnx_const *c = s && s->kind == ONNX_CONST ? s->c : NULL;
    int64_t n = 0;
    while (c && n < c->count && c->v[n] == 0) n++;
    return !s || (c && n == c->count) ? DT_NONE : dt_onnx_input_value(r, 2);
}

static void read_conv(dt_onnx_importer *r, bool transposed) {
    dt_value x, w, b;
    dt_window win;
    dt_shape was;
    int64_t more[DT_MAX_DIMS] = {0};
    dt_onnx_slot *weight = dt_onnx_in(r, 1);
    x = onnx_import_ops_as_image(r, dt_onnx_input_value(r, 0), &was);
    if (!weight || weight->kind != ONNX_WEIGHT) {
        dt_onnx_fail(r, "only convolutions with an initialiser as weight are read");
        return;
    }
    w = dt_onnx_as_value(r, weight, was.n == 3 ? ONNX_IMAGE : ONNX_AS_IS); // (O,I/groups,K) as (O,I/groups,1,K)
    b = conv_bias(r);
    const dt_shape s = dt_onnx_shape(r, w), image = dt_onnx_shape(r, x);
    const int64_t groups = dt_onnx_read_int(r, "group", 1);
    const int n = was.n - 2, skip = 4 - was.n; // dimensions of the window; of the image that it lacks
    if (s.n != 4 || (was.n != 3 && was.n != 4) || groups < 1 || groups > s.d[0]) {
        dt_onnx_fail(r, "only convolutions of (N,C,H,W) or (N,C,L) are read");
        return;
    }
    // the weight's own sizes are the kernel's: kernel_shape may be left out
    if (!onnx_import_ops_read_window(r, s.d + 2 + skip, n, transposed ? NULL : image.d + 2, &win)) return;
    if (!transposed) {
        x = dt_conv2d_with(r->g, dt_onnx_name(r), x, w, b, (int)groups, &win);
        // it would set the pads, by a rule that PyTorch does not have
    } else if (dt_onnx_attribute(r->node, "output_shape")) {
        dt_onnx_fail(r, "output_shape is not read: export output_padding");
        return;
    } else {
        dt_onnx_integers(r, -1, "output_padding", more);
        const int behind[2] = {skip ? 0 : (int)more[0], (int)more[skip ? 0 : 1]}; // height, width
        x = dt_conv_transpose_with(r->g, dt_onnx_name(r), x, w, b, (int)groups, &win, behind);
    }
    give_image(r, x, &was);
}
void dt_onnx_read_Conv(dt_onnx_importer *r) {
    read_conv(r, false);
}
void dt_onnx_read_ConvTranspose(dt_onnx_importer *r) {
    read_conv(r, true);
}

static void read_pool(dt_onnx_importer *r, bool max) {
    int64_t kernel[DT_MAX_DIMS];
    dt_window w;
    dt_shape was;
    dt_value x = onnx_import_ops_as_image(r, dt_onnx_input_value(r, 0), &was);
    if (dt_onnx_shape(r, x).n != 4) dt_onnx_fail(r, "only pooling of (N,C,H,W) or (N,C,L) is read");
    const dt_shape s = dt_onnx_shape(r, x);
    if (!onnx_import_ops_read_window(r, kernel, dt_onnx_integers(r, -1, "kernel_shape", kernel), s.d + 2, &w) ||
        x == DT_NONE)
        return;
    // without padding both means are the same: false lets more windows through below
    bool include = dt_onnx_read_int(r, "count_include_pad", 0) != 0, over_end = false;
    include = include && w.pad_begin[0] + w.pad_begin[1] + w.pad_end[0] + w.pad_end[1] > 0;
    // ceil_mode: the last window may hang over the end, which never counts; one that begins behind the image is none
    for (int d = 0; d < 2 && dt_onnx_read_int(r, "ceil_mode", 0); d++) {
        const int64_t span = w.dilation[d] * (w.kernel[d] - 1) + 1;
        const int64_t room = dt_onnx_shape(r, x).d[2 + d] + w.pad_begin[d] + w.pad_end[d] - span;
        const int64_t over = room < 0 ? 0 : room % w.stride[d]; // elements that no window covers
        if (over == 0 || w.pad_end[d] + w.stride[d] - over >= span) continue;
        w.pad_end[d] += (int)(w.stride[d] - over);
        over_end = true;
    }
    if (!max && include && over_end)
        dt_onnx_fail(r, "count_include_pad with a ceil_mode whose last window hangs over the end is not read: "
                        "export it with count_include_pad=False");
    // exporters write adaptive pooling as windows side by side; max_pool takes less than 256 places
    const int64_t h = dt_onnx_shape(r, x).d[2], width = dt_onnx_shape(r, x).d[3];
    // each element in one window: adaptive pooling gives the same, of any size
    const bool tiles = w.kernel[0] * w.kernel[1] > 255 && w.stride[0] == w.kernel[0] && w.stride[1] == w.kernel[1] &&
                       h % w.kernel[0] == 0 && width % w.kernel[1] == 0 &&
                       w.pad_begin[0] + w.pad_begin[1] + w.pad_end[0] + w.pad_end[1] == 0 &&
                       w.dilation[0] * w.dilation[1] == 1;
    if (max && tiles)
        x = dt_adaptive_pool(r->g, x, h / w.kernel[0], width / w.kernel[1], true);
    else
        x = max ? dt_max_pool_window(r->g, x, &w) : dt_avg_pool_window(r->g, x, &w, include);
    give_image(r, x, &was);
}
void dt_onnx_read_MaxPool(dt_onnx_importer *r) {
    read_pool(r, true);
}
void dt_onnx_read_AveragePool(dt_onnx_importer *r) {
    read_pool(r, false);
}

void dt_onnx_read_BatchNormalization(dt_onnx_importer *r) {
    dt_shape was;
    dt_value x = onnx_import_ops_as_image(r, dt_onnx_input_value(r, 0), &was), p[4];
    for (int i = 0; i < 2; i++) p[i] = dt_onnx_input_value(r, 1 + i);              // scale, shift
    for (int i = 2; i < 4; i++) p[i] = dt_onnx_as_buffer(r, dt_onnx_in(r, 1 + i)); // running mean, variance
    x = dt_batch_norm_with(r->g, dt_onnx_name(r), x, p, dt_onnx_read_float(r, "epsilon", 1e-5f),
                           // ONNX's momentum is the share of the old value, PyTorch's that of the new
                           1 - dt_onnx_read_float(r, "momentum", 0.9f));
    give_image(r, x, &was);
}

// Whether the slot is known and all its elements are this number.
static bool is_all(dt_onnx_importer *r, dt_onnx_slot *s, double v) {
    const dt_onnx_const *c = dt_onnx_as_const(r, s);
    int64_t n = 0;
    while (c && n < c->count && c->v[n] == v) n++; // also true of no elements
    return c && n == c->count;
}
// Exporters write a group norm as the instance norm of reshaped groups, with factors 1 and summands 0 that are no
// weights.
void dt_onnx_read_InstanceNormalization(dt_onnx_importer *r) {
    dt_onnx_slot *from = dt_onnx_in(r, 0), *scale = dt_onnx_in(r, 1), *shift = dt_onnx_in(r, 2);
    // a group norm's own factors follow as Mul and Add
    const bool groups = from && from->producer && strcmp(from->producer->op_type, "Reshape") == 0;
    const bool constant = scale && shift && scale->kind == ONNX_CONST && shift->kind == ONNX_CONST;
    dt_value x = dt_onnx_input_value(r, 0), w = DT_NONE, b = DT_NONE;
    if (!((groups || constant) && is_all(r, scale, 1) && is_all(r, shift, 0))) {
        w = dt_onnx_input_value(r, 1);
        b = dt_onnx_input_value(r, 2);
    }
    if (x != DT_NONE)
        dt_onnx_give(r, 0,
                     // an instance norm is a group norm with a group for each channel
                     dt_group_norm_with(r->g, dt_onnx_name(r), x, dt_onnx_shape(r, x).d[1], w, b,
                                        dt_onnx_read_float(r, "epsilon", 1e-5f)));
}
// Until operator set 21 factors and summands are of groups, as PyTorch's never are.
void dt_onnx_read_GroupNormalization(dt_onnx_importer *r) {
    const int64_t groups = dt_onnx_read_int(r, "num_groups", 1);
    dt_value x = dt_onnx_input_value(r, 0), w, b;
    w = dt_onnx_input_value(r, 1);
    b = dt_onnx_input_value(r, 2);
    const dt_shape s = dt_onnx_shape(r, x), each = dt_onnx_shape(r, w); // (N,C,…); (C)
    if (s.n > 1 && each.n == 1 && each.d[0] == s.d[1])
        dt_onnx_give(
            r, 0, dt_group_norm_with(r->g, dt_onnx_name(r), x, groups, w, b, dt_onnx_read_float(r, "epsilon", 1e-5f)));
    else
        dt_onnx_fail(r, "only a scale and bias of each channel are read");
}

static void give_norm(dt_onnx_importer *r, dt_value x, dt_onnx_slot *weight, dt_onnx_slot *bias, float eps) {
    dt_value w, b;
    w = dt_onnx_as_value(r, weight, ONNX_AS_IS);
    // LayerNorm(bias=False): the op has always a bias
    b = bias ? dt_onnx_as_value(r, bias, ONNX_AS_IS) : dt_full(r->g, dt_onnx_shape(r, w), 0);
    if (dt_onnx_shape(r, w).n != 1)
        dt_onnx_fail(r, "only layer norms of the last dimension are read");
    else
        dt_onnx_give(r, 0, dt_layer_norm_with(r->g, dt_onnx_name(r), x, w, b, eps));
}
void dt_onnx_read_LayerNormalization(dt_onnx_importer *r) {
    dt_value x = dt_onnx_input_value(r, 0);
    const int n = dt_onnx_shape(r, x).n; // axis: the first of those that are normalized
    if (dt_onnx_axis(r, dt_onnx_read_int(r, "axis", -1), n) != n - 1)
        dt_onnx_fail(r, "only layer norms of the last dimension are read");
    give_norm(r, x, dt_onnx_in(r, 1), dt_onnx_in(r, 2), dt_onnx_read_float(r, "epsilon", 1e-5f));
}

// ---- linear algebra --------------------------------------------------------------------------------
static void give_linear(dt_onnx_importer *r, dt_value x, dt_onnx_slot *weight, bool swapped, dt_onnx_slot *bias) {
    dt_value w, b;
    // a linear layer has (O,I); MatMul reads (I,O)
    w = dt_onnx_as_value(r, weight, swapped ? ONNX_SWAPPED : ONNX_AS_IS);
    b = bias ? dt_onnx_as_value(r, bias, ONNX_AS_IS) : DT_NONE;
    if (x != DT_NONE && w != DT_NONE)
        dt_onnx_give(
            r, 0,
            dt_linear_with(r->g, dt_onnx_name(r) ? dt_onnx_name(r) : dt_graph_unique_name(r->g, "linear"), x, w, b));
}
void dt_onnx_read_Gemm(dt_onnx_importer *r) {
    dt_onnx_slot *w = dt_onnx_in(r, 1);
    if (dt_onnx_read_int(r, "transA", 0) || dt_onnx_read_float(r, "alpha", 1) != 1 ||
        // alpha A B + beta C of other factors: no layer is written so
        dt_onnx_read_float(r, "beta", 1) != 1 || !w || w->kind != ONNX_WEIGHT)
        dt_onnx_fail(r, "only x W^T + b with weights is read");
    else
        give_linear(r, dt_onnx_input_value(r, 0), w, !dt_onnx_read_int(r, "transB", 0), dt_onnx_in(r, 2));
}
void dt_onnx_read_MatMul(dt_onnx_importer *r) {
    dt_onnx_slot *b = dt_onnx_in(r, 1);
    dt_value x = dt_onnx_input_value(r, 0);
    if (b && b->kind == ONNX_WEIGHT && b->t->n_dims == 2) { // a linear layer without a bias
        give_linear(r, x, b, true, NULL);
        return;
    }
    dt_value y = dt_onnx_input_value(r, 1);
    // leading dimensions that differ fail there
    if (x != DT_NONE && y != DT_NONE) dt_onnx_give(r, 0, dt_matmul(r->g, x, y, false, false, 1));
}

// ---- shapes ----------------------------------------------------------------------------------------
void dt_onnx_read_Reshape(dt_onnx_importer *r) {
    dt_value x = dt_onnx_input_value(r, 0);
    const dt_shape s = dt_onnx_shape(r, x);
    dt_shape to;
    if (x == DT_NONE || !dt_onnx_reshaped(r, &s, &to)) return;
    const bool unsqueezed = to.n > 1 && to.d[1] == s.d[0]; // in front, of what may be no sample
    // traced with one sample, the exporter has frozen N: every batch but 1 would be refused, or mixed
    if (to.n > 0 && to.d[0] == 1 && s.n > 0 && s.d[0] > 1 && !unsqueezed && dt_info_of(r->g, x)->kind == DT_V_TEMP &&
        strcmp(r->node->op_type, "Reshape") == 0)
        dt_onnx_fail(r, "has a batch of 1 in it: export with a dynamic first dimension");
    dt_onnx_give(r, 0, dt_reshape(r->g, x, to));
}
void dt_onnx_read_Transpose(dt_onnx_importer *r) {
    int order[DT_MAX_DIMS];
    if (dt_onnx_out(r, 0) && dt_onnx_out(r, 0)->kind == ONNX_WEIGHT) return; // another name (list_names)
    dt_value x = dt_onnx_input_value(r, 0);
    if (x != DT_NONE && dt_onnx_order(r, dt_onnx_shape(r, x).n, order))
        dt_onnx_give(r, 0, dt_transpose(r->g, x, order));
}
void dt_onnx_read_Concat(dt_onnx_importer *r) {
    enum { MAX = 64 }; // ops.def
    dt_value x[MAX];
    const int n = (int)r->node->n_input;
    if (n < 1 || n > MAX) {
        dt_onnx_fail(r, "joins more than %d values", MAX);
        return;
    }
    for (int i = 0; i < n; i++) x[i] = dt_onnx_input_value(r, i);
    // of the first input: all have as many dimensions
    const int64_t axis = dt_onnx_axis(r, dt_onnx_read_int(r, "axis", 0), dt_onnx_shape(r, x[0]).n);
    if (r->g->status == DT_OK) dt_onnx_give(r, 0, dt_concat(r->g, x, n, (int)axis));
}
// x[…, begin:end, …]
static dt_value onnx_import_ops_cut(dt_onnx_importer *r, dt_value x, int64_t axis, int64_t begin, int64_t end) {
    if (x == DT_NONE || r->g->status != DT_OK) return DT_NONE;
    const dt_shape s = dt_onnx_shape(r, x);
    return begin == 0 && end == s.d[axis] ? x : dt_slice(r->g, x, (int)axis, begin, end); // all of it: no node
}
void dt_onnx_read_Slice(dt_onnx_importer *r) {
    int64_t begin[DT_MAX_DIMS], step[DT_MAX_DIMS];
    dt_value x = dt_onnx_input_value(r, 0);
    const dt_shape s = dt_onnx_shape(r, x);
    dt_shape to;
    if (x == DT_NONE || !dt_onnx_sliced(r, &s, begin, step, &to)) return; // of all dimensions, named or not
    for (int k = 0; k < to.n; k++) {
        // the op slice has no step
        if (to.d[k] < 1 || step[k] != 1) {
            dt_onnx_fail(r, "takes nothing, or not every element");
            return;
        }
        x = onnx_import_ops_cut(r, x, k, begin[k], begin[k] + to.d[k]);
    }
    dt_onnx_give(r, 0, x);
}
void dt_onnx_read_Split(dt_onnx_importer *r) {
    int64_t at = 0;
    dt_value x = dt_onnx_input_value(r, 0);
    const int64_t axis = dt_onnx_axis(r, dt_onnx_read_int(r, "axis", 0), dt_onnx_shape(r, x).n);
    const int n_out = (int)r->node->n_output;
    // sizes are input 1; without them parts are even
    const dt_onnx_const *parts = dt_onnx_as_const(r, dt_onnx_in(r, 1));
    if (dt_onnx_in(r, 1) && !parts) dt_onnx_fail(r, "input 1 must be known when the graph is built");
    if (x == DT_NONE || n_out < 1) return;
    const int64_t size = dt_onnx_shape(r, x).d[axis], each = (size + n_out - 1) / n_out; // the last may be smaller
    for (int i = 0; i < n_out && r->g->status == DT_OK; i++) {
        const double left = (double)(size - at); // of the axis
        const double part = !parts ? fmin((double)each, left) : i < parts->count ? parts->v[i] : 0;
        if (!(part >= 1 && part <= left)) {
            dt_onnx_fail(r, "has parts that do not fit");
            return;
        }
        dt_onnx_give(r, i, onnx_import_ops_cut(r, x, axis, at, at + (int64_t)part));
        at += (int64_t)part;
    }
}
// Rows of a table in any order: a product with a matrix that has a 1 in each row.
static dt_value onnx_import_ops_pick(dt_onnx_importer *r, dt_value x, const dt_onnx_const *at, int axis) {
    const dt_shape s = dt_onnx_shape(r, x);
    if (!at || axis != 0 || s.n != 2 || at->shape.n < 1 || at->shape.n - 1 + s.n > DT_MAX_DIMS ||
        // 64 MiB at most: for positions of attention windows, not for vocabularies
        at->count * s.d[0] > (int64_t)1 << 24) {
        dt_onnx_fail(r, "only known elements are taken, neighbours or rows of a table");
        return DT_NONE;
    }
    float *one = dt_arena_alloc(&r->g->arena, (size_t)(at->count * s.d[0]) * sizeof *one);
    memset(one, 0, (size_t)(at->count * s.d[0]) * sizeof *one);
    for (int64_t i = 0; i < at->count; i++) {
        const double k = at->v[i] + (at->v[i] < 0 ? (double)s.d[0] : 0); // from the end
        if (!(k >= 0 && k < (double)s.d[0])) {
            dt_onnx_fail(r, "takes elements that are not there");
            return DT_NONE;
        }
        one[i * s.d[0] + (int64_t)k] = 1;
    }
    dt_value rows = dt_constant(r->g, NULL, DT_F32, dt_shape2(at->count, s.d[0]), one);
    if (r->g->values[x].kind == DT_V_PARAM) x = dt_reshape(r->g, x, s); // matmuls read activations
    x = dt_matmul(r->g, rows, x, false, false, 1);
    dt_shape to = at->shape;
    to.d[to.n++] = s.d[1]; // (indices…, columns)
    return dt_reshape(r->g, x, to);
}
void dt_onnx_read_Gather(dt_onnx_importer *r) {
    const dt_onnx_const *at = dt_onnx_as_const(r, dt_onnx_in(r, 1));
    dt_value x = dt_onnx_input_value(r, 0);
    dt_shape s = dt_onnx_shape(r, x);
    const int64_t axis = dt_onnx_axis(r, dt_onnx_read_int(r, "axis", 0), s.n);
    if (x == DT_NONE || r->g->status != DT_OK) return;
    // numbers in a row are a slice, which costs no product
    bool run = at && (at->shape.n <= 1 || s.n == 1) && at->count > 0;
    const double first = run ? (at->v[0] < 0 ? at->v[0] + (double)s.d[axis] : at->v[0]) : 0;
    for (int64_t i = 1; run && i < at->count; i++) run = at->v[i] == at->v[i - 1] + 1;
    if (!run) {
        dt_onnx_give(r, 0, onnx_import_ops_pick(r, x, at, (int)axis));
        return;
    }
    if (!(first >= 0) || first + (double)at->count > (double)s.d[axis]) {
        dt_onnx_fail(r, "takes elements that are not there");
        return;
    }
    x = onnx_import_ops_cut(r, x, axis, (int64_t)first, (int64_t)first + at->count);
    // a lone number drops the dimension, a list of one keeps it
    if (at->shape.n == 0) {
        for (int i = (int)axis; i < s.n - 1; i++) s.d[i] = s.d[i + 1];
        s.n--;
        x = dt_reshape(r->g, x, s);
    } else if (at->shape.n > 1) {
        x = dt_reshape(r->g, x, at->shape);
    }
    dt_onnx_give(r, 0, x);
}
void dt_onnx_read_Pad(dt_onnx_importer *r) {
    int64_t pads[2 * DT_MAX_DIMS], axes[DT_MAX_DIMS];
    const char *const mode = dt_onnx_read_text(r, "mode", "constant");
    // all begins, then all ends; what is put there; axes since set 18
    const dt_onnx_const *sizes = dt_onnx_as_const(r, dt_onnx_in(r, 1)), *with = dt_onnx_as_const(r, dt_onnx_in(r, 2));
    const int n_axes = dt_onnx_in(r, 3) ? dt_onnx_integers(r, 3, NULL, axes) : -1;
    dt_value x = dt_onnx_input_value(r, 0);
    const int n_dims = dt_onnx_shape(r, x).n, n = n_axes < 0 ? n_dims : n_axes;
    const dt_pad_mode how = strcmp(mode, "edge") == 0      ? DT_PAD_REPLICATE
                            : strcmp(mode, "reflect") == 0 ? DT_PAD_REFLECT
                                                           : DT_PAD_CONSTANT;
    if (!sizes || sizes->count != 2 * n || (dt_onnx_in(r, 2) && !with)) {
        dt_onnx_fail(r, "its padding must be known when the graph is built");
        return;
    }
    if (how == DT_PAD_CONSTANT && strcmp(mode, "constant") != 0) {
        dt_onnx_fail(r, "padding of mode %s is not read", mode);
        return;
    }
    for (int i = 0; i < 2 * n; i++) {
        // also NaN; below 0 cuts
        if (!(fabs(sizes->v[i]) <= 1 << 20)) {
            dt_onnx_fail(r, "has impossible padding");
            return;
        }
        pads[i] = (int64_t)sizes->v[i];
    }
    for (int i = 0; i < n; i++)
        x = dt_pad(r->g, x, (int)(n_axes < 0 ? i : dt_onnx_axis(r, axes[i], n_dims)), pads[i], pads[n + i], how,
                   with && with->count ? (float)with->v[0] : 0);
    dt_onnx_give(r, 0, x);
}

// Also CastLike, as weights and what is computed are f32.
void dt_onnx_read_Identity(dt_onnx_importer *r) {
    dt_onnx_slot *from = dt_onnx_in(r, 0), *to = dt_onnx_out(r, 0);
    // no node: an alias costs nothing, and a weight stays a weight
    if (from && to) dt_onnx_alias(to, from);
}
// Rows of a table, whose numbers have a last dimension of one.
void dt_onnx_read_GatherND(dt_onnx_importer *r) {
    const dt_onnx_const *at = dt_onnx_as_const(r, dt_onnx_in(r, 1));
    dt_value x = dt_onnx_input_value(r, 0);
    if (!at || at->shape.n < 2 || at->shape.d[at->shape.n - 1] != 1 || dt_onnx_read_int(r, "batch_dims", 0)) {
        dt_onnx_fail(r, "only known rows of a table are taken");
        return;
    }
    dt_onnx_const rows = *at;
    rows.shape.n--; // indices (…,1) as (…)
    if (x != DT_NONE) dt_onnx_give(r, 0, onnx_import_ops_pick(r, x, &rows, 0));
}

// ---- the tables ------------------------------------------------------------------------------------
// Of ops that are only computed on constants: their inputs are not known.
static void read_folded(dt_onnx_importer *r) {
    // dt_onnx_fold has had it and found an input that is a value
    dt_onnx_fail(r, "is read for constants only, and here depends on the network's input");
}

static const struct {
    const char *type;
    onnx_op_fn fn;
} ops[] = {
#define IMPORT_OP(op)       {#op, dt_onnx_read_##op},
#define IMPORT_AS(op, like) {#op, dt_onnx_read_##like},
#define FOLD_OP(op)         {#op, read_folded},
#include "onnx_import_ops.def"
#undef IMPORT_OP
#undef IMPORT_AS
#undef FOLD_OP
};

onnx_op_fn dt_onnx_op_of(const char *type) {
    // a few dozen names, once for each node
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (strcmp(ops[i].type, type) == 0) return ops[i].fn;
    return NULL;
}

// One literal, put together by the preprocessor: names with a space behind each.
const char *dt_onnx_import_ops(void) {
    return
#define IMPORT_OP(op)       #op " "
#define IMPORT_AS(op, like) #op " "
#define FOLD_OP(op)         #op " "
#include "onnx_import_ops.def"
#undef IMPORT_OP
#undef IMPORT_AS
#undef FOLD_OP
        ;
}

void dt_onnx_build_group(dt_onnx_importer *r, const dt_onnx_group *g) {
    dt_value x = dt_onnx_as_value(r, g->x, ONNX_AS_IS);
    // the node's output stands for the group's
    if (g->kind == ONNX_SAME)
        dt_onnx_give(r, 0, x);
    else if (g->kind == ONNX_GELU)
        dt_onnx_give(r, 0, dt_gelu(r->g, x));
    else if (g->kind == ONNX_NORM)
        give_norm(r, x, g->weight, g->bias, (float)g->eps);
    else
        give_linear(r, x, g->weight, true, g->bias);
}
