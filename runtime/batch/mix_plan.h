// mix_plan.h: how a sample of a batch is mixed with the next one (mixup, CutMix): a row of the plan that
// image_normalize takes as i32 (N, DT_MIX_COLUMNS). data/augment draws it; the network carries it out.
//
//   v = in the rectangle ? next : (own * x + (DT_MIX_ONE - own) * next) / DT_MIX_ONE
//
// `next` is the sample after this one before mixing; after the last comes the first. Bytes round to the
// nearest, halves up; floats are two products and a sum, each rounded. own = DT_MIX_ONE leaves x as it is, bit
// for bit.
#ifndef DT_BATCH_MIX_PLAN_H
#define DT_BATCH_MIX_PLAN_H

#include <stdint.h>

enum { DT_MIX_ONE = 65536, DT_MIX_COLUMNS = 5 };

typedef struct dt_mix_row {
    int32_t own;            // share of the sample itself, of DT_MIX_ONE
    int32_t y0, y1, x0, x1; // pixels [y0, y1) x [x0, x1), within the image or empty
} dt_mix_row;

#endif
