// kernels.cu: all custom kernels for the device, and how one is launched by number (cuda_real_parts.h).
#include "backend/cuda/cuda_real_parts.h"
#include "backend/cuda/kernels/all_kernels.h"

#include <cuda_runtime.h>

static const void *const kernels[] = {
#define CUDA_CUSTOM_KERNEL(name, args_t) (const void *)name,
#include "backend/cuda/cuda_custom_kernels.def"
#undef CUDA_CUSTOM_KERNEL
};

extern "C" int dt_cuda_real_launch(dt_cuda_api *a, dt_cuda_kernel k, dt_cuda_grid g, const void *args, void *stream) {
    void *params[] = {(void *)args};
    const cudaError_t e = cudaLaunchKernel(kernels[k], dim3((unsigned)g.blocks), dim3((unsigned)g.threads), params, 0,
                                           (cudaStream_t)stream);
    if (e != cudaSuccess) cudaGetLastError(); // as all calls of cuda_real.c
    return e;
}

extern "C" int dt_cuda_real_load(dt_cuda_kernel k) {
    cudaFuncAttributes about;
    const cudaError_t e = cudaFuncGetAttributes(&about, kernels[k]);
    if (e != cudaSuccess) cudaGetLastError();
    return e;
}
