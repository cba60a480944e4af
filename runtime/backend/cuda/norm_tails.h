// norm_tails.h: what convolutions and batch norms leave for each other behind the elements of an NHWC tensor.
//
//   nhwc+sums     f32 (2, C): each channel's sum and sum of squares over all pixels (dt_cuda_sums_at). A convolution that
//                 has them at hand offers them to batch norms that would compute them again.
//   nhwc+norm     the same of x where a batch norm with ReLU leaves its work to its readers. Behind the sums lie each
//                 channel's gain and shift in x's type, and its mean, 1/std, scale and shift in f32 (dt_cuda_norm_at).
//                 Readers compute y = relu(x gain + shift). Offered only if all readers take it; there is no reorder
//                 from it.
//   nhwc+masked   the gradient of such a y, zero where y is. Then f32 (2, C), the batch norm's gradients of scale and
//                 shift, and 3 C unused floats (dt_cuda_masked_at).
#ifndef DT_BACKEND_CUDA_NORM_TAILS_H
#define DT_BACKEND_CUDA_NORM_TAILS_H

#include "backend/backend.h"

extern const dt_layout_tail dt_cuda_sums, dt_cuda_norm, dt_cuda_masked;

enum { DT_NORM_PARTS = 6, DT_MASKED_PARTS = 5 };
// Byte offsets. Of the sums, in nhwc+sums and nhwc+norm:
size_t dt_cuda_sums_at(dt_dtype t, const dt_shape *s);
// Of the gains (0), the shifts (1), and in f32 means, 1/std, scales, shifts (2 to 5):
size_t dt_cuda_norm_at(dt_dtype t, const dt_shape *s, int which);
// Of the gradients of scales (0) and shifts (1); 2 to 4 are unused:
size_t dt_cuda_masked_at(dt_dtype t, const dt_shape *s, int which);

#endif
