// cuda_real.h: what the parts of the real table hand to each other (kernels.cu, cuda_real.c, cuda_dnn.c,
// cuda_gemm.c): functions with the signatures of cuda_api.h. Only these files know CUDA's headers.
#ifndef DT_BACKEND_CUDA_REAL_H
#define DT_BACKEND_CUDA_REAL_H

#include "backend/cuda/cuda_api.h"

#ifdef __cplusplus
extern "C" {
#endif

// kernels.cu
int dt_cuda_real_launch(dt_cuda_api *a, dt_cuda_kernel k, dt_cuda_grid g, const void *args,
                        void *stream);

#ifdef __cplusplus
}
#endif

#endif
