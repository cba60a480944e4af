// conv.c: convolutions, pooling and resizing: shape inference, gradient, builder call.

#include "op_util.h"

#include <math.h>

// ---- conv2d -------------------------------------------------------------------------------------------------------

// conv2d: two-dimensional convolution (cross-correlation), with groups and dilation.
//   in  0 x (N,C,H,W)   1 weight (K,C/groups,R,S)   2 bias (K), optional
//       3 residual like y, added before the activation: only in inference, by dt_pass_fuse_residual
//   out 0 y (N,K,H',W')
// Backward reads x and weight; gives dx, dweight, dbias.

static dt_status conv2d_infer(dt_graph *g, dt_node_id id) {
    dt_shape x = dt_op_in_shape(g, id, 0), w = dt_op_in_shape(g, id, 1);
    dt_attrs a = g->nodes[id].attrs;
    const dt_window *win = &a.conv2d.win;
    int groups = a.conv2d.groups;
    if (x.n != 4 || w.n != 4) return dt_op_fail(g, id, "wants x (N,C,H,W), weight (K,C/groups,R,S)");
    if (groups < 1 || x.d[1] % groups || w.d[0] % groups || w.d[1] != x.d[1] / groups) {
        return dt_op_fail(g, id, "channels do not fit with %d groups", groups);
    }
    if (w.d[2] != win->kernel[0] || w.d[3] != win->kernel[1]) {
        return dt_op_fail(g, id, "window is %dx%d, weight's is not", win->kernel[0], win->kernel[1]);
    }
    if (dt_op_has_in(g, id, 2)) {
        dt_shape b = dt_op_in_shape(g, id, 2);
        if (b.n != 1 || b.d[0] != w.d[0]) return dt_op_fail(g, id, "bias must be (K)");
    }
    int64_t h = dt_op_window_out(win, 0, x.d[2]), wd = dt_op_window_out(win, 1, x.d[3]);
    if (h < 1 || wd < 1) return dt_op_fail(g, id, "the window is larger than the padded image");
    dt_shape y = dt_shape4(x.d[0], w.d[0], h, wd);
    return dt_op_shaped(g, id, &y);
}

// A multiplication and an addition for each weight of a channel's window.
double dt_op_conv2d_flops(const dt_graph *g, const dt_node *n) {
    const dt_shape *w = &dt_info_of(g, n->in[1])->shape;
    return 2.0 * (double)(w->d[1] * w->d[2] * w->d[3]);
}

void dt_op_conv2d_print(const dt_node *n, FILE *out) {
    dt_op_print_window(&n->attrs.conv2d.win, out);
    if (n->attrs.conv2d.groups > 1) fprintf(out, " groups %d", n->attrs.conv2d.groups);
    if (n->attrs.conv2d.fold_bn) fprintf(out, " bn");
    dt_op_print_act(n->attrs.conv2d.act, out);
}

DT_OP_DEFINE(conv2d, .infer = conv2d_infer, .grad = dt_grad_saved, .save_in = 3, .flops = dt_op_conv2d_flops,
             .print = dt_op_conv2d_print);

static bool conv2d_window_of(const dt_conv2d_opts *o, dt_window *win) {
    *win = dt_op_window_square(o->kernel, o->stride, o->pad);
    if (o->dilation > 1) win->dilation[0] = win->dilation[1] = o->dilation;
    if (o->window) *win = *o->window;
    for (int d = 0; d < 2; d++) {
        if (win->kernel[d] < 1 || win->stride[d] < 1 || win->dilation[d] < 1) return false;
        if (win->pad_begin[d] < 0 || win->pad_end[d] < 0) return false;
    }
    return true;
}

dt_value dt_conv2d(dt_graph *g, const char *name, dt_value x, const dt_conv2d_opts *o) {
    if (x == DT_NONE || g->status != DT_OK) return DT_NONE;
    dt_attrs a = {.conv2d = {.groups = o->groups > 0 ? o->groups : 1}};
    dt_shape s = dt_info_of(g, x)->shape;
    if (s.n != 4 || o->out < 1 || s.d[1] % a.conv2d.groups || !conv2d_window_of(o, &a.conv2d.win)) {
        char text[96];
        return dt_graph_fail(g,
                             "conv2d %s on %s: wants (N,C,H,W), C a multiple of %d groups, and a "
                             "window of positive sizes",
                             name, dt_shape_print(&s, text, sizeof text), a.conv2d.groups);
    }
    if (!name) name = dt_graph_unique_name(g, "conv2d");
    const int *kernel = a.conv2d.win.kernel;
    int64_t per_group = s.d[1] / a.conv2d.groups, area = (int64_t)kernel[0] * kernel[1];
    dt_init he = {DT_INIT_NORMAL, (float)sqrt(2.0 / ((double)o->out * (double)area))};
    dt_init uniform = {DT_INIT_UNIFORM, (float)(1.0 / sqrt((double)per_group * (double)area))};
    dt_value in[3] = {x, DT_NONE, DT_NONE};
    in[1] = dt_param(g, dt_arena_printf(&g->arena, "%s.weight", name),
                     dt_shape4(o->out, per_group, kernel[0], kernel[1]), he, true);
    if (o->bias) {
        in[2] = dt_param(g, dt_arena_printf(&g->arena, "%s.bias", name), dt_shape1(o->out), uniform, false);
    }
    return dt_graph_apply(g, DT_OP_conv2d, name, in, o->bias ? 3 : 2, &a);
}

dt_value dt_conv2d_with(dt_graph *g, const char *name, dt_value x, dt_value weight, dt_value bias, int groups,
                        const dt_window *window) {
    const dt_attrs a = {.conv2d = {.win = *window, .groups = groups}};
    return dt_graph_apply(g, DT_OP_conv2d, name, (dt_value[]){x, weight, bias}, bias == DT_NONE ? 2 : 3, &a);
}

// ---- conv transpose -----------------------------------------------------------------------------------------------

// conv_transpose: transposed convolution, which is the gradient of a convolution's input.
//   in  0 x (N,I,H,W)   1 weight (I,O/groups,R,S)
//   out 0 y (N,O,H',W'), H' = (H - 1) stride - pads + dilation (R - 1) + 1 + attrs.conv2d.more
// Gradients: of x, a convolution of dy; of the weight, that of this convolution.

static dt_status conv_transpose_infer(dt_graph *g, dt_node_id id) {
    const dt_shape x = dt_op_in_shape(g, id, 0), w = dt_op_in_shape(g, id, 1);
    const dt_attrs a = g->nodes[id].attrs;
    const dt_window *win = &a.conv2d.win;
    const int groups = a.conv2d.groups;
    dt_shape y = x;
    if (x.n != 4 || w.n != 4 || groups < 1 || x.d[1] % groups || w.d[0] != x.d[1])
        return dt_op_fail(g, id, "wants x (N,I,H,W), weight (I,O/groups,R,S), I in %d groups", groups);
    y.d[1] = w.d[1] * groups;
    for (int d = 0; d < 2; d++) {
        if (w.d[2 + d] != win->kernel[d]) return dt_op_fail(g, id, "weight is of another window");
        if (a.conv2d.more[d] < 0 || a.conv2d.more[d] >= win->stride[d])
            return dt_op_fail(g, id, "output padding must be below the stride");
        y.d[2 + d] = (x.d[2 + d] - 1) * win->stride[d] - win->pad_begin[d] - win->pad_end[d] +
                     (int64_t)win->dilation[d] * (win->kernel[d] - 1) + 1 + a.conv2d.more[d];
        if (y.d[2 + d] < 1 || dt_op_window_out(win, d, y.d[2 + d]) != x.d[2 + d])
            return dt_op_fail(g, id, "padding leaves no image");
    }
    return dt_op_shaped(g, id, &y);
}

static dt_status conv_transpose_grad(dt_grad_ctx *ctx, dt_node_id id) {
    dt_graph *g = ctx->g;
    const dt_node n = g->nodes[id];
    const dt_value dy = dt_grad_get(ctx, n.out[0]);
    if (dt_grad_wanted(ctx, n.in[0]))
        dt_grad_give(ctx, n.in[0],
                     dt_conv2d_with(g, NULL, dy, n.in[1], DT_NONE, n.attrs.conv2d.groups, &n.attrs.conv2d.win));
    if (!dt_grad_wanted(ctx, n.in[1])) return g->status;
    const dt_value in[] = {dy, DT_NONE, DT_NONE, n.in[0]}; // x, weight, y, its gradient
    return dt_grad_by(ctx, id, DT_OP_conv2d, in, 2, 1, n.in[1]);
}

// Each element of x meets the window of each output channel of its group.
static double conv_transpose_flops(const dt_graph *g, const dt_node *n) {
    return dt_op_conv2d_flops(g, n) * dt_op_elements(g, n->in[0]) / dt_op_elements(g, n->out[0]);
}

DT_OP_DEFINE(conv_transpose, .infer = conv_transpose_infer, .grad = conv_transpose_grad, .flops = conv_transpose_flops,
             .print = dt_op_conv2d_print);

dt_value dt_conv_transpose_with(dt_graph *g, const char *name, dt_value x, dt_value weight, dt_value bias, int groups,
                                const dt_window *window, const int more[2]) {
    const dt_attrs a = {.conv2d = {.win = *window, .groups = groups, .more = {more[0], more[1]}}};
    x = dt_graph_apply(g, DT_OP_conv_transpose, name, (dt_value[]){x, weight}, 2, &a);
    return bias == DT_NONE ? x : dt_add_channels(g, x, bias);
}

dt_value dt_conv_transpose(dt_graph *g, const char *name, dt_value x, const dt_conv2d_opts *o, const int more[2]) {
    if (x == DT_NONE || g->status != DT_OK) return DT_NONE;
    const dt_shape s = dt_info_of(g, x)->shape;
    const dt_window *w = o->window;
    const int groups = o->groups > 0 ? o->groups : 1;
    if (s.n != 4 || o->out % groups)
        return dt_graph_fail(g, "conv_transpose %s: wants (N,C,H,W), and out a multiple of groups", name);
    const int64_t each = o->out / groups;
    const dt_init init = {DT_INIT_UNIFORM,
                          (float)(1 / sqrt((double)each * (double)w->kernel[0] * (double)w->kernel[1]))};
    dt_value weight, bias = DT_NONE;
    weight = dt_param(g, dt_arena_printf(&g->arena, "%s.weight", name),
                      dt_shape4(s.d[1], each, w->kernel[0], w->kernel[1]), init, true);
    if (o->bias) bias = dt_param(g, dt_arena_printf(&g->arena, "%s.bias", name), dt_shape1(o->out), init, false);
    return dt_conv_transpose_with(g, name, x, weight, bias, groups, w, more);
}

// ---- max pool -----------------------------------------------------------------------------------------------------

// max_pool: largest value of each window; padding counts as minus infinity.
//   in  0 x (N,C,H,W)
//   out 0 y (N,C,H',W')   1 argmax u8 (N,C,H',W'): position in the window, row * kernel_w + column
// Backward reads argmax only (x's shape is that of the output); gives dx.

static dt_status max_pool_infer(dt_graph *g, dt_node_id id) {
    dt_shape y;
    DT_TRY(dt_op_infer_pool(g, id, &y));
    const dt_window w = g->nodes[id].attrs.pool.win;
    if ((int64_t)w.kernel[0] * w.kernel[1] > 255) // argmax is u8
        return dt_op_fail(g, id, "a window holds at most 255 places");
    dt_op_add_out(g, id, 0, NULL, dt_op_in_dtype(g, id, 0), &y);
    dt_op_add_out(g, id, 1, "argmax", DT_U8, &y);
    return g->status;
}

static double pool_flops(const dt_graph *g, const dt_node *n) {
    return (double)n->attrs.pool.win.kernel[0] * n->attrs.pool.win.kernel[1];
}

static void pool_print(const dt_node *n, FILE *out) {
    dt_op_print_window(&n->attrs.pool.win, out);
}

DT_OP_DEFINE(max_pool, .infer = max_pool_infer, .grad = dt_grad_saved, .save_out = 2, .flops = pool_flops,
             .print = pool_print);

dt_value dt_max_pool(dt_graph *g, dt_value x, int kernel, int stride, int pad) {
    dt_attrs a = {.pool = {.win = dt_op_window_square(kernel, stride, pad)}};
    return dt_graph_apply(g, DT_OP_max_pool, NULL, &x, 1, &a);
}

dt_value dt_max_pool_window(dt_graph *g, dt_value x, const dt_window *w) {
    const dt_attrs a = {.pool = {.win = *w}};
    return dt_graph_apply(g, DT_OP_max_pool, NULL, &x, 1, &a);
}

// ---- avg pool -----------------------------------------------------------------------------------------------------

// avg_pool: mean of each window; with attrs.pool.count_include_pad padding counts as zeros that are part of the mean.
//   in  0 x (N,C,H,W)
//   out 0 y (N,C,H',W')
// Backward reads only the gradient; gives dx.

static dt_status avg_pool_infer(dt_graph *g, dt_node_id id) {
    dt_shape y;
    DT_TRY(dt_op_infer_pool(g, id, &y));
    return dt_op_shaped(g, id, &y);
}

DT_OP_DEFINE(avg_pool, .infer = avg_pool_infer, .grad = dt_grad_saved, .flops = pool_flops, .print = pool_print);

dt_value dt_avg_pool(dt_graph *g, dt_value x, int kernel, int stride, int pad) {
    const dt_window w = dt_op_window_square(kernel, stride, pad);
    return dt_avg_pool_window(g, x, &w, true);
}

dt_value dt_avg_pool_window(dt_graph *g, dt_value x, const dt_window *w, bool count_include_pad) {
    const dt_attrs a = {.pool = {.win = *w, .count_include_pad = count_include_pad}};
    return dt_graph_apply(g, DT_OP_avg_pool, NULL, &x, 1, &a);
}

// ---- global pool --------------------------------------------------------------------------------------------------

// global_pool: mean over the image.
//   in  0 x (N,C,H,W)
//   out 0 y (N,C)
// Backward reads only the gradient; gives dx.

static dt_status global_pool_infer(dt_graph *g, dt_node_id id) {
    dt_shape x = dt_op_in_shape(g, id, 0);
    if (x.n != 4) return dt_op_fail(g, id, "wants (N,C,H,W)");
    dt_shape y = dt_shape2(x.d[0], x.d[1]);
    return dt_op_shaped(g, id, &y);
}

DT_OP_DEFINE(global_pool, .infer = global_pool_infer, .grad = dt_grad_saved, .flops = dt_op_sum_flops);

dt_value dt_global_pool(dt_graph *g, dt_value x) {
    return dt_graph_apply(g, DT_OP_global_pool, NULL, &x, 1, NULL);
}

// ---- resize image -------------------------------------------------------------------------------------------------

// resize: an image in another size, as nn.Upsample gives it (resize_taps.h: which pixels a new one is made of).
//   in  0 x (N,C,H,W)
//   out 0 y (N,C,attrs.resize.size)
// Backward reads only the gradient; gives dx.

static dt_status resize_image_infer(dt_graph *g, dt_node_id id) {
    dt_shape y = dt_op_in_shape(g, id, 0);
    const dt_attrs a = g->nodes[id].attrs;
    if (y.n != 4) return dt_op_fail(g, id, "wants (N,C,H,W)");
    for (int d = 0; d < 2; d++) {
        y.d[2 + d] = a.resize.size[d];
        if (a.resize.size[d] < 1 || a.resize.size[d] > 1 << 20 || !(a.resize.step[d] >= 0))
            return dt_op_fail(g, id, "has an impossible size");
    }
    return dt_op_shaped(g, id, &y);
}

DT_OP_DEFINE(resize, .infer = resize_image_infer, .grad = dt_grad_saved);

dt_value dt_resize2d(dt_graph *g, dt_value x, dt_resize_mode mode, const int64_t size[2], const double scale[2]) {
    if (x == DT_NONE) return x;
    const dt_shape s = dt_info_of(g, x)->shape;
    dt_attrs a = {.resize = {.mode = mode, .size = {size[0], size[1]}}};
    for (int d = 0; s.n == 4 && d < 2; d++) {
        const double from = (double)s.d[2 + d], to = (double)size[d];
        const bool whole = mode == DT_RESIZE_BILINEAR_CORNERS;
        a.resize.step[d] = (float)(whole               ? (to > 1 ? (from - 1) / (to - 1) : 0)
                                   : scale && scale[d] ? 1 / scale[d]
                                                       : from / to);
    }
    return dt_graph_apply(g, DT_OP_resize, NULL, &x, 1, &a);
}
