// quantize: to 8 bits and back, y = round(x / scale) within the type, or y = x scale. conv2d_int8, linear_int8:
// conv2d and linear whose x, weight and residual are 8 bits (attrs.h, dt_int8_scales); y is 8 bits or f32.
//   in  0 x, f32; or u8 or i8
//   out 0 y of type attrs.to
// Only passes/int8.c makes these, in inference: the other two have no shape inference, and none has a gradient.
#include "op_util.h"

static dt_status quantize_infer(dt_graph *g, dt_node_id id) {
    const dt_shape s = dt_op_in_shape(g, id, 0);
    const dt_dtype from = dt_op_in_dtype(g, id, 0), to = g->nodes[id].attrs.quantize.to;
    const dt_dtype low = from == DT_F32 ? to : from, high = from == DT_F32 ? from : to;
    if ((low != DT_U8 && low != DT_I8) || high != DT_F32) return dt_op_fail(g, id, "converts f32 to 8 bits or back");
    dt_op_add_out(g, id, 0, NULL, to, &s);
    return g->status;
}

static dt_status no_shape(dt_graph *g, dt_node_id id) {
    return dt_op_fail(g, id, "is made of a conv2d or linear that has its shape");
}

DT_OP_DEFINE(quantize, quantize_infer, NULL);
DT_OP_DEFINE(conv2d_int8, no_shape, NULL);
DT_OP_DEFINE(linear_int8, no_shape, NULL);
