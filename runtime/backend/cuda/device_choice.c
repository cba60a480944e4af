// device_choice.c: see device_choice.h. The kernel's own list of a PCI device's cores is all that is needed
// here; it is what hwloc reads too.
#define _GNU_SOURCE
#include "backend/cuda/device_choice.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
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

// "0-15,64-79"
static bool parse_cores(const char *text, cpu_set_t *set) {
    CPU_ZERO(set);
    while (*text) {
        char *end;
        const long first = strtol(text, &end, 10);
        long last = first;
        if (end == text || first < 0) break;
        if (*end == '-') {
            text = end + 1;
            last = strtol(text, &end, 10);
            if (end == text) break;
        }
        for (long k = first; k <= last && k < CPU_SETSIZE; k++) CPU_SET((int)k, set);
        text = *end == ',' ? end + 1 : end;
        if (*end != ',') break;
    }
    return CPU_COUNT(set) > 0;
}

bool dt_cuda_bind_cores(const char *pci) {
    char path[96], text[1024];
    cpu_set_t near, mine, both;
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/local_cpulist", pci);
    FILE *f = fopen(path, "r");
    if (!f) return false;
    const bool read = fgets(text, sizeof text, f) != NULL;
    fclose(f);
    if (!read || !parse_cores(text, &near) || sched_getaffinity(0, sizeof mine, &mine))
        return false;
    CPU_AND(&both, &near, &mine);
    if (!CPU_COUNT(&both) || CPU_EQUAL(&both, &mine)) return false;
    return sched_setaffinity(0, sizeof both, &both) == 0;
}
