// norm_tails.h: what convolutions and batch norms leave for each other behind the elements of an NHWC tensor.
//
//   nhwc+sums     f32 (2, C): each channel's sum and sum of squares over all pixels (dt_cuda_sums_at). A convolution that
//                 has them at hand offers them to batch norms that would compute them again.
//   nhwc+norm     the same of x where a batch norm with ReLU leaves its work to its readers. Behind the sums lie each
//                 channel's gain and shift in x's type (dt_cuda_norm_at). Readers compute y = relu(x gain + shift).
//                 Offered only if all readers take it; there is no reorder from it.
#ifndef DT_BACKEND_CUDA_NORM_TAILS_H
#define DT_BACKEND_CUDA_NORM_TAILS_H

#include "backend/backend.h"

extern const dt_layout_tail dt_cuda_sums, dt_cuda_norm;

// Byte offsets. Of the sums, in nhwc+sums and nhwc+norm:
size_t dt_cuda_sums_at(dt_dtype t, const dt_shape *s);
// Of the gains (0) and the shifts (1):
size_t dt_cuda_norm_at(dt_dtype t, const dt_shape *s, int which);

#endif
