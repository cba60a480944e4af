// image_augment: random changes to images of bytes, as the batch's maker drew them (batch/pixel_steps.h): colour,
// geometry, erasing and so on, before anything else is done to them.
//   in  0 x u8 (N,H,W,C), C 1 or 3
//       1 steps i32 (N, k * DT_PIXEL_STEP_WORDS): a list of dt_pixel_step a sample
//   out 0 u8 (N,H,W,C)
// No gradient. Only devices have it: on the CPU the loader's threads play the same steps, to the same bits, and the
// graph has no such op.
#include "batch/pixel_steps.h"
#include "op_util.h"

static dt_status image_augment_infer(dt_graph *g, dt_node_id id) {
    dt_shape x = dt_op_in_shape(g, id, 0), steps = dt_op_in_shape(g, id, 1);
    if (x.n != 4 || dt_op_in_dtype(g, id, 0) != DT_U8 || (x.d[3] != 1 && x.d[3] != 3))
        return dt_op_fail(g, id, "wants u8 images (N,H,W,C) with 1 or 3 channels");
    if (dt_op_in_dtype(g, id, 1) != DT_I32 || steps.n != 2 || steps.d[0] != x.d[0] || steps.d[1] % DT_PIXEL_STEP_WORDS)
        return dt_op_fail(g, id, "wants steps i32 (N, k * %d)", DT_PIXEL_STEP_WORDS);
    dt_op_add_out(g, id, 0, NULL, DT_U8, &x);
    return g->status;
}

DT_OP_DEFINE(image_augment, image_augment_infer, NULL);

dt_value dt_image_augment(dt_graph *g, dt_value x, dt_value steps) {
    return dt_graph_apply(g, DT_OP_image_augment, NULL, (dt_value[]){x, steps}, 2, NULL);
}
