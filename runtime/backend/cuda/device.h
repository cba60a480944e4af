// device.h: which GPU a process uses, the cores and memory beside it, and the list that `dtrain info` prints.
#ifndef DT_BACKEND_CUDA_DEVICE_H
#define DT_BACKEND_CUDA_DEVICE_H

#include "backend/cuda/cuda_api.h"
#include "base/core.h"

// Assigns one rank to one device, by local rank. `visible` is CUDA_VISIBLE_DEVICES or NULL. A launcher that binds
// each rank (Slurm's --gpus-per-task, Kubernetes) shows each rank a single device, which is then taken. More ranks
// than devices is DT_E_USAGE. local_size 0 counts as 1.
dt_status dt_cuda_choose_device(int *index, int n_devices, int local_rank, int local_size, const char *visible);

// Binds the calling thread, and the threads that it starts, to the cores nearest to a PCI device, and makes it
// prefer the memory of the device's NUMA node, unless the node has no cores: on GH200 the memory of a GPU is such a node.
// `sys`: "/sys"; `pci`: "0000:1b:00.0". Only narrows what a launcher has bound: it adds no cores, and it keeps a memory policy that is already set. Warns where
// a launcher has bound the process to cores of which none is near.
// text: what was bound, for the log ("cores 0-15, memory of NUMA node 0"). Returns false, with an empty text, if
// nothing was bound.
bool dt_cuda_bind_near(const char *sys, const char *pci, char *text, size_t cap);

// The release of NVIDIA's driver, taken from the path of its library ("…/libcuda.so.580.65.06" -> "580.65.06").
// cudaDriverGetVersion does not suffice: it returns the version of an interface that many releases share.
// Returns false, with an empty `out`, if the path names no release.
bool dt_cuda_driver_version(const char *library, char *out, size_t cap);

// Loading a kernel: `load` loads it on the device in use and returns 0 or CUDA's error. `architectures` are those
// that the module was built for, as CMake has them: "80-real, 90".
typedef struct dt_kernel_loader {
    int (*load)(dt_cuda_kernel k);
    const char *(*error_text)(int error);
    const char *architectures;
} dt_kernel_loader;

// Loads all kernels when a device is opened. Left alone, CUDA would load a kernel at its first launch, which may be
// inside a capture. DT_E_USAGE names the first kernel that does not load, the module's architectures, the device and
// the remedy, which follows from the error: no machine code for the device, PTX that its driver is too old for or
// cannot compile, no memory; anything else is a damaged module or a broken device.
dt_status dt_cuda_load_kernels(const dt_kernel_loader *l, const dt_cuda_device_info *device);

// Prints one line for each device (memory, PCI address, NUMA node, nearest cores), one for each pair of devices
// (what links them, and whether they share a NUMA node), and one for the driver and the libraries. It uses no
// device: that would take time and some hundred MB, and would fail where another process owns the device.
void dt_cuda_list_devices(dt_cuda_api *api, void (*print)(const char *line));

#endif
