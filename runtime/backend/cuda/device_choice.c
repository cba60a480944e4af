// device_choice.c: see device_choice.h.
#include "backend/cuda/device_choice.h"

#include <string.h>

dt_status dt_cuda_choose_device(int *index, int n_devices, int local_rank, int local_size,
                                const char *visible) {
    *index = 0;
    if (n_devices < 1)
        return dt_fail(
            DT_E_USAGE,
            "device.kind: cuda: the driver shows no device%s%s: check nvidia-smi, or use "
            "device.kind=cpu",
            visible ? "; CUDA_VISIBLE_DEVICES is " : "", visible ? visible : "");
    if (local_size <= 1) return DT_OK;
    if (local_size <= n_devices) {
        *index = local_rank;
        return DT_OK;
    }
    if (n_devices == 1 && visible && *visible && !strchr(visible, ',')) return DT_OK; // bound
    return dt_fail(DT_E_USAGE,
                   "device.kind: cuda: %d ranks on this host, but %d GPU%s%s%s: start one rank a "
                   "GPU (mpirun -np %d)",
                   local_size, n_devices, n_devices == 1 ? "" : "s",
                   visible ? " visible, CUDA_VISIBLE_DEVICES=" : "", visible ? visible : "",
                   n_devices);
}
