// fake_kernels.c: all custom kernels, compiled for the host (see kernel.h).
#include "fake_kernels.h"

#include "backend/cuda/kernels/all_kernels.h"

#define CUDA_CUSTOM_KERNEL(name, args_t)                                                                               \
    static void run_##name(const void *args, const dt_host_block *b) {                                                 \
        name##_host((const args_t *)args, b);                                                                          \
    }
#include "backend/cuda/cuda_custom_kernels.def"
#undef CUDA_CUSTOM_KERNEL
const fake_kernel fake_kernels[] = {
#define CUDA_CUSTOM_KERNEL(name, args_t) {#name, sizeof(args_t), name##_most_threads, run_##name},
#include "backend/cuda/cuda_custom_kernels.def"
#undef CUDA_CUSTOM_KERNEL
};
