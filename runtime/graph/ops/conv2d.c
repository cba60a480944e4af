// conv2d: two-dimensional convolution (cross-correlation), with groups and dilation.
//   in  0 x (N,C,H,W)   1 weight (K,C/groups,R,S)   2 bias (K), optional
//       3 residual like y, added before the activation: only in inference, by dt_pass_fuse_residual
//   out 0 y (N,K,H',W')
// Backward reads x and weight; gives dx, dweight, dbias.
#include "op_util.h"

#include <math.h>

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

static dt_status conv2d_grad(dt_grad_ctx *ctx, dt_node_id id) {
    return dt_grad_default(ctx, id, 3, 0, 0);
}

DT_OP_DEFINE(conv2d, conv2d_infer, conv2d_grad);

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
