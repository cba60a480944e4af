// device_choice.h: which of the visible devices a process uses.
#ifndef DT_BACKEND_CUDA_DEVICE_CHOICE_H
#define DT_BACKEND_CUDA_DEVICE_CHOICE_H

#include "base/status.h"

// One rank a device, by local rank. `visible` is CUDA_VISIBLE_DEVICES or NULL. A launcher that binds each rank
// (Slurm's --gpus-per-task, Kubernetes) shows every rank one device: then it is that. More ranks than devices
// is DT_E_USAGE. local_size 0 counts as 1.
dt_status dt_cuda_choose_device(int *index, int n_devices, int local_rank, int local_size,
                                const char *visible);

#endif
