// fake_nvml.c: a libnvidia-ml.so.1 that reports what a test has put into fake_nvml, or FAKE_NVML=error|hang says.
#include "fake_nvml.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern struct fake_nvml fake_nvml __attribute__((visibility("default")));
struct fake_nvml fake_nvml = FAKE_NVML;

static int answer(void) {
    const char *mode = getenv("FAKE_NVML");
    const char m = mode ? *mode : fake_nvml.mode;
    while (m == 'h') pause();
    return m == 'e' ? 15 : 0; // NVML_ERROR_GPU_IS_LOST
}

#define API __attribute__((visibility("default")))
API int nvmlInit_v2(void);
API int nvmlShutdown(void);
API int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, void **device);
API int nvmlDeviceGetMemoryInfo(void *device, unsigned long long out[3]);
API int nvmlDeviceGetUtilizationRates(void *device, unsigned out[2]);
API int nvmlDeviceGetPowerUsage(void *device, unsigned *out);
API int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *out);
API int nvmlDeviceGetClockInfo(void *device, int type, unsigned *out);

int nvmlInit_v2(void) {
    fake_nvml.n_open++;
    return 0;
}
int nvmlShutdown(void) {
    fake_nvml.n_open--;
    return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, void **device) {
    *device = (void *)pci;
    return strlen(pci) == 12 ? 0 : 2;
}
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long out[3]) {
    out[0] = fake_nvml.total;
    out[1] = out[0] - fake_nvml.used;
    out[2] = fake_nvml.used;
    return answer();
}
int nvmlDeviceGetUtilizationRates(void *device, unsigned out[2]) {
    out[0] = fake_nvml.util;
    return fake_nvml.util_error ? fake_nvml.util_error : answer();
}
int nvmlDeviceGetPowerUsage(void *device, unsigned *out) {
    *out = fake_nvml.mw;
    return answer();
}
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *out) {
    *out = fake_nvml.celsius;
    return sensor ? 2 : answer();
}
int nvmlDeviceGetClockInfo(void *device, int type, unsigned *out) {
    *out = fake_nvml.mhz;
    return type != 1 ? 2 : answer();
}
