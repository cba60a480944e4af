// weights_cuda.h: parameters on their way between dense f32 flat buffers and what convolutions and matmuls use on the
// device: packed copies, weight gradients, bias gradients. For the <op>_cuda.c files.
//
// Packed copies have the activations' type: weights as KRSC (a linear layer's as they are), and biases too, because
// cuDNN and cuBLASLt have engines for nothing else. Requests for the same form of the same parameters share a copy.
#ifndef DT_BACKEND_CUDA_WEIGHTS_H
#define DT_BACKEND_CUDA_WEIGHTS_H

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_plans.h"
#include "backend/cuda/kernels/weights_kernels.h"
#include "backend/fold.h"

typedef struct dt_cuda_pack dt_cuda_pack; // context of a request; dt_cuda_destroy frees it
// The weight (O, I, ...) as (O, taps, I) of `type`; the bias (n) of `type`, where DT_NONE means zeros. Each call fills
// the kernel instance's next request.
// tap_fold: or NULL.
dt_cuda_pack *dt_cuda_pack_weight(dt_kernel_instance *s, dt_value weight, dt_dtype type, const dt_fold *fold,
                                  const dt_tap_fold *tap_fold);
dt_cuda_pack *dt_cuda_pack_bias(dt_kernel_instance *s, dt_value bias, int64_t n, dt_dtype type, const dt_fold *fold);
// Returns whether a packed copy would have the same bytes as the parameter.
bool dt_cuda_pack_is_copy(const dt_value_info *weight, dt_dtype type);

// Writes a packed weight gradient of `type` into the flat buffer, in the shape of the weight. tap_fold: or NULL.
void dt_cuda_store_weight_grad(dt_cuda *c, const dt_shape *weight, const dt_tap_fold *tap_fold, const void *packed,
                               dt_dtype type, float *flat, bool add, void *stream);
// A weight (O, I, R, S) as that of a convolution folded by `stride`.
dt_tap_fold dt_cuda_tap_fold(const dt_shape *weight, int stride);
// out[c] (+)= sum over the rows of x (rows, cols). scratch: dt_cuda_column_bytes.
size_t dt_cuda_column_bytes(int64_t n_rows, int64_t n_cols);
void dt_cuda_sum_columns(dt_cuda *c, const void *x, dt_dtype type, int64_t n_rows, int64_t n_cols, float *out, bool add,
                         void *scratch, void *stream);

// Queues a plan of cuDNN or cuBLASLt, with the kernel instance's scratch as its workspace.
void dt_cuda_run_dnn(const dt_kernel_instance *s, const dt_cuda_plan *p, void *const *ptr, const dt_run *r);
void dt_cuda_run_gemm(const dt_kernel_instance *s, const dt_cuda_plan *p, const void *a, const void *b, void *d,
                      bool add, const void *bias, void *aux, const dt_run *r);

static inline size_t dt_cuda_align(size_t n) {
    return (n + 255) / 256 * 256;
}

#endif
