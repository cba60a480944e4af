// device_choice.h: which of the visible devices a process uses, and the cores that are nearest to it.
#ifndef DT_BACKEND_CUDA_DEVICE_CHOICE_H
#define DT_BACKEND_CUDA_DEVICE_CHOICE_H

#include "base/status.h"

#include <stdbool.h>

// One rank a device, by local rank. `visible` is CUDA_VISIBLE_DEVICES or NULL. A launcher that binds each rank
// (Slurm's --gpus-per-task, Kubernetes) shows every rank one device: then it is that. More ranks than devices
// is DT_E_USAGE. local_size 0 counts as 1.
dt_status dt_cuda_choose_device(int *index, int n_devices, int local_rank, int local_size,
                                const char *visible);

// Binds the calling thread, and so those that it starts, to the cores that /sys names as local to the PCI
// device, if it may use more than those now and at least one of them. false: left as it was.
bool dt_cuda_bind_cores(const char *pci);

#endif
