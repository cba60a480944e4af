// nvml.h: what NVIDIA's management library (NVML) reports of a GPU: that of nvidia-smi, without a context on the device.
//
// The library comes with the driver and is loaded at run time; where it is missing, as in a container without the
// driver capability `utility`, nothing is known. A call into a driver that hangs does not return, so a thread of its own
// makes them, once a second, and nobody waits for it.
#ifndef DT_BASE_NVML_H
#define DT_BASE_NVML_H

#include <stdbool.h>
#include <stddef.h>

// Names as in metrics.jsonl. util: part of the last second in which a kernel ran, 0 to 1.
#define DT_GPU_NUMBERS(N)   N(util) N(power_w) N(temp_c) N(mem_bytes) N(sm_mhz)
#define DT_GPU_CONSTANT(id) DT_GPU_##id,
enum { DT_GPU_NUMBERS(DT_GPU_CONSTANT) DT_N_GPU };

// pci: "0000:1b:00.0". 0: unknown. The call may take as long as the driver does.
size_t dt_nvml_free_bytes(const char *pci);

// Begins to sample this GPU; one at a time, else without effect. end: waits at most a second for the thread.
void dt_gpu_watch_begin(const char *pci);
void dt_gpu_watch_end(void);
// The newest numbers; NaN: this GPU does not report one (utilization of a MIG instance). false: nothing is known, or
// nothing has come for 5 s. Any thread; never waits for the driver.
bool dt_gpu_latest(double out[DT_N_GPU]);

#endif
