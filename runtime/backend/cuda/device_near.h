// device_near.h: the cores and the memory that are nearest to a device.
#ifndef DT_BACKEND_CUDA_DEVICE_NEAR_H
#define DT_BACKEND_CUDA_DEVICE_NEAR_H

#include <stdbool.h>
#include <stddef.h>

// Binds the calling thread, and so those that it starts, to the cores nearest to the PCI device
// ("0000:1b:00.0"), and lets it prefer the memory beside them. What a launcher has bound is only ever narrowed:
// cores outside the present binding are not taken, and a memory policy that is there already stays. With
// libhwloc where it can be loaded; else by /sys, and then memory is left alone.
// text: what was bound, for the log ("cores 0-15, memory of NUMA node 0"). false: nothing, text is empty.
bool dt_cuda_bind_near(const char *pci, char *text, size_t cap);

#endif
