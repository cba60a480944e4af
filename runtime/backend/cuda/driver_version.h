// driver_version.h: which release of NVIDIA's driver runs here ("580.65.06"). CUDA's own number for it
// (cudaDriverGetVersion) is that of an interface, and stays the same over many releases.
#ifndef DT_BACKEND_CUDA_DRIVER_VERSION_H
#define DT_BACKEND_CUDA_DRIVER_VERSION_H

#include <stdbool.h>
#include <stddef.h>

// The first word of the kernel module's own file (proc: "/proc/driver/nvidia/version") that is a version; where a
// container does not show that file, the ending of the driver's library as it is loaded (libcuda.so.580.65.06).
// false: neither says, and out is empty.
bool dt_cuda_driver_version(const char *proc, char *out, size_t cap);
// The two halves. text: of the file; path: of the library.
bool dt_cuda_driver_version_of_text(const char *text, char *out, size_t cap);
bool dt_cuda_driver_version_of_path(const char *path, char *out, size_t cap);

#endif
