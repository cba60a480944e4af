// cuda_real_parts.h: what the parts of the real table (kernels.cu, cuda_real.c, cuda_dnn.c, cuda_gemm.c) offer each
// other: functions with the signatures of cuda_api.h. Only these files include CUDA's headers.
#ifndef DT_BACKEND_CUDA_REAL_PARTS_H
#define DT_BACKEND_CUDA_REAL_PARTS_H

#include "backend/cuda/cuda_api.h"
#include "backend/cuda/nccl_api.h"

#ifdef __cplusplus
extern "C" {
#endif

// kernels.cu
int dt_cuda_real_launch(dt_cuda_api *a, dt_cuda_kernel k, dt_cuda_grid g, const void *args, void *stream);
// Loads a kernel on the device in use by asking for its attributes. 0 or CUDA's error.
int dt_cuda_real_load(dt_cuda_kernel k);

// cuda_real.c: fills dnn_* and gemm_*. The libraries are opened with the first plan, on the device in use. Close
// them after the last plan is destroyed.
void dt_cuda_real_libraries(dt_cuda_api *a);
void dt_cuda_real_libraries_close(void);
// The text of an error of these libraries, NULL for others; "cuDNN 9.19.0, cuBLASLt 13.1.0".
const char *dt_cuda_real_library_error(int error);
void dt_cuda_real_library_versions(char *text, size_t cap);

// nccl_api_real.c. NULL and 0 if libnccl.so.2 does not load; only several ranks need it.
const dt_nccl_api *dt_nccl_api_real(void);
int dt_cuda_real_nccl_version(void);

#ifdef __cplusplus
}
#endif

#endif
