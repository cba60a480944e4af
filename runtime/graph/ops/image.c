// image.c: input work on images: shape inference and builder call.

#include "op_util.h"

#include "batch/mix_plan.h"
#include "batch/pixel_steps.h"

#include <string.h>

// ---- image normalize ----------------------------------------------------------------------------------------------

// image_normalize: pixels of an image to normalised floats, channels first.
//   in  0 x u8 or f32 (N,H,W,C)
//       1 plan i32 (N,DT_MIX_COLUMNS), or absent: samples are mixed with their neighbours first (mix_plan.h)
//   out 0 (v - mean[c]) / std[c], (N,C,H,W), where v = x/255 for bytes and v = x for f32, which is what
//         an instrument or a spectrogram gives: no range that could be scaled away
// No gradient.
//
// Mixing is an input of this op and not an op before it: what it would write, mixed pixels, is used once and
// here, so a pass over the batch and the memory for it are saved, and there is one kernel a backend that knows
// how images come.

static dt_status image_normalize_infer(dt_graph *g, dt_node_id id) {
    dt_shape x = dt_op_in_shape(g, id, 0);
    dt_dtype type = dt_op_in_dtype(g, id, 0);
    if (x.n != 4 || (type != DT_U8 && type != DT_F32)) {
        return dt_op_fail(g, id, "wants u8 or f32 images (N,H,W,C)");
    }
    if (dt_op_has_in(g, id, 1)) {
        dt_shape plan = dt_op_in_shape(g, id, 1), want = dt_shape2(x.d[0], DT_MIX_COLUMNS);
        if (dt_op_in_dtype(g, id, 1) != DT_I32 || !dt_shape_equal(&plan, &want))
            return dt_op_fail(g, id, "wants a plan i32 (N,%d)", DT_MIX_COLUMNS);
    }
    dt_shape y = dt_shape4(x.d[0], x.d[3], x.d[1], x.d[2]);
    dt_op_add_out(g, id, 0, NULL, DT_F32, &y);
    return g->status;
}

DT_OP_DEFINE(image_normalize, .infer = image_normalize_infer);

dt_value dt_image_normalize(dt_graph *g, dt_value x, dt_value plan, const float *mean, const float *std) {
    if (x == DT_NONE) return DT_NONE;
    dt_attrs a = {0};
    dt_shape s = dt_info_of(g, x)->shape;
    int64_t channels = s.n == 4 ? s.d[3] : 0;
    const int64_t cap = (int64_t)(sizeof a.image_normalize.mean / sizeof(float));
    if (channels < 1 || channels > cap) {
        return dt_graph_fail(g, "image_normalize of %s: wants (N,H,W,C) with 1 to %d channels", dt_info_of(g, x)->name,
                             (int)cap);
    }
    a.image_normalize.channels = (int)channels;
    memcpy(a.image_normalize.mean, mean, (size_t)channels * sizeof *mean);
    memcpy(a.image_normalize.std, std, (size_t)channels * sizeof *std);
    return dt_graph_apply(g, DT_OP_image_normalize, NULL, (dt_value[]){x, plan}, plan == DT_NONE ? 1 : 2, &a);
}

// ---- image augment ------------------------------------------------------------------------------------------------

// image_augment: random changes to images of bytes, as the batch's maker drew them (batch/pixel_steps.h): colour,
// geometry, erasing and so on, before anything else is done to them.
//   in  0 x u8 (N,H,W,C), C 1 or 3
//       1 steps i32 (N, k * DT_PIXEL_STEP_WORDS): a list of dt_pixel_step a sample
//   out 0 u8 (N,H,W,C)
// No gradient. Only devices have it: on the CPU the loader's threads play the same steps, to the same bits, and the
// graph has no such op.

static dt_status image_augment_infer(dt_graph *g, dt_node_id id) {
    dt_shape x = dt_op_in_shape(g, id, 0), steps = dt_op_in_shape(g, id, 1);
    if (x.n != 4 || dt_op_in_dtype(g, id, 0) != DT_U8 || (x.d[3] != 1 && x.d[3] != 3))
        return dt_op_fail(g, id, "wants u8 images (N,H,W,C) with 1 or 3 channels");
    if (dt_op_in_dtype(g, id, 1) != DT_I32 || steps.n != 2 || steps.d[0] != x.d[0] || steps.d[1] % DT_PIXEL_STEP_WORDS)
        return dt_op_fail(g, id, "wants steps i32 (N, k * %d)", DT_PIXEL_STEP_WORDS);
    dt_op_add_out(g, id, 0, NULL, DT_U8, &x);
    return g->status;
}

DT_OP_DEFINE(image_augment, .infer = image_augment_infer);

dt_value dt_image_augment(dt_graph *g, dt_value x, dt_value steps) {
    return dt_graph_apply(g, DT_OP_image_augment, NULL, (dt_value[]){x, steps}, 2, NULL);
}
