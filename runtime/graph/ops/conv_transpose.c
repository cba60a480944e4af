// conv_transpose: transposed convolution, which is the gradient of a convolution's input.
//   in  0 x (N,I,H,W)   1 weight (I,O/groups,R,S)
//   out 0 y (N,O,H',W'), H' = (H - 1) stride - pads + dilation (R - 1) + 1 + attrs.conv2d.more
// Gradients: of x, a convolution of dy; of the weight, that of this convolution.
#include "op_util.h"

#include <math.h>

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

DT_OP_DEFINE(conv_transpose, conv_transpose_infer, conv_transpose_grad);

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
