// resize: an image in another size, as nn.Upsample gives it (resize_taps.h says which pixels a new one is made of).
//   in  0 x (N,C,H,W)
//   out 0 y (N,C,attrs.resize.size)
// Backward reads only the gradient; gives dx.
#include "op_util.h"

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

static dt_status resize_image_grad(dt_grad_ctx *ctx, dt_node_id id) {
    return dt_grad_default(ctx, id, 0, 0, 0);
}

DT_OP_DEFINE(resize, resize_image_infer, resize_image_grad);

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
