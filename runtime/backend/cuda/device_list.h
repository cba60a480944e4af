// device_list.h: the devices of a table as lines to print, for `dtrain info`.
#ifndef DT_BACKEND_CUDA_DEVICE_LIST_H
#define DT_BACKEND_CUDA_DEVICE_LIST_H

#include "backend/cuda/cuda_api.h"

// A line for each device (memory, PCI place, NUMA node and the cores beside it), one for each pair of devices (what
// is between them, and whether they are on one NUMA node), one for driver and libraries. Uses none of the devices.
void dt_cuda_list_devices(dt_cuda_api *api, void (*print)(const char *line));

#endif
