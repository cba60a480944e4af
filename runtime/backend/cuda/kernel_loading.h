// kernel_loading.h: all own kernels are loaded when a device is opened, and what is said where some are not.
//
// A kernel that is loaded later would be loaded by its first launch, which may be in a capture. So that one line tells
// everything, loading goes on behind one that fails. Which remedy there is follows from the error: no machine code
// for the device, PTX that its driver is too old for or cannot compile, a device without memory; all else is a damaged
// module or a broken device.
#ifndef DT_BACKEND_CUDA_KERNEL_LOADING_H
#define DT_BACKEND_CUDA_KERNEL_LOADING_H

#include "backend/cuda/cuda_api.h"
#include "base/status.h"

typedef struct dt_kernel_loader {
    int (*load)(dt_cuda_kernel k); // on the device in use; 0 or CUDA's error
    const char *(*error_text)(int error);
    const char *architectures; // that the module was built for, as CMake has them: "80-real, 90"
} dt_kernel_loader;

// DT_E_USAGE: names the first kernels that are missing, the module's architectures, the device and what to do.
dt_status dt_cuda_load_kernels(const dt_kernel_loader *l, const dt_cuda_device_info *device);

#endif
