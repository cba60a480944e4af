// fake_races.c: all custom kernels once more, for fibers (fake_fibers.h). Compiled with -fsanitize=thread.
#define DT_HOST_FIBERS
#include "fake_fibers.h"

#include "backend/cuda/kernels/all_kernels.h"

#define CUDA_CUSTOM_KERNEL(name, args_t)                                                                               \
    static void run_##name(const void *args) {                                                                         \
        name##_fiber((const args_t *)args);                                                                            \
    }
#include "backend/cuda/cuda_custom_kernels.def"
#undef CUDA_CUSTOM_KERNEL
fake_fiber_kernel *const fake_fiber_kernels[] = {
#define CUDA_CUSTOM_KERNEL(name, args_t) run_##name,
#include "backend/cuda/cuda_custom_kernels.def"
#undef CUDA_CUSTOM_KERNEL
};
