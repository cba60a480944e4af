// nvml.c: see nvml.h. Functions, structs and numbers are as in nvml.h of NVIDIA.

#include "base/nvml.h"

#include "base/core.h"
#include "base/os.h"
#include "base/thread.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NVML_TEMPERATURE_GPU = 0, NVML_CLOCK_SM = 1 };
#define SAMPLE_S 1.0
#define STALE_S  5.0

typedef struct nvml {
    void *library, *device;
    int (*init)(void), (*shutdown)(void), (*find)(const char *, void **), (*memory)(void *, unsigned long long[3]),
        (*util)(void *, unsigned[2]), (*power)(void *, unsigned *), (*temperature)(void *, int, unsigned *),
        (*clock)(void *, int, unsigned *);
} nvml;

static void close_library(nvml *n, bool started) {
    if (started) n->shutdown();
    if (n->library) dlclose(n->library);
    n->library = NULL;
}

static bool open_device(nvml *n, const char *pci) {
    const struct {
        void **call;
        const char *name;
    } calls[] = {{(void **)&n->init, "nvmlInit_v2"},
                 {(void **)&n->shutdown, "nvmlShutdown"},
                 {(void **)&n->find, "nvmlDeviceGetHandleByPciBusId_v2"},
                 {(void **)&n->memory, "nvmlDeviceGetMemoryInfo"},
                 {(void **)&n->util, "nvmlDeviceGetUtilizationRates"},
                 {(void **)&n->power, "nvmlDeviceGetPowerUsage"},
                 {(void **)&n->temperature, "nvmlDeviceGetTemperature"},
                 {(void **)&n->clock, "nvmlDeviceGetClockInfo"}};
    *n = (nvml){.library = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL)};
    for (size_t i = 0; n->library && i < sizeof calls / sizeof *calls; i++)
        if (!(*calls[i].call = dlsym(n->library, calls[i].name))) { // all are older than any driver that runs CUDA 12
            close_library(n, false);
            return false;
        }
    const bool started = n->library && !n->init();
    if (started && !n->find(pci, &n->device)) return true;
    close_library(n, started);
    return false;
}

size_t dt_nvml_free_bytes(const char *pci) {
    nvml n;
    unsigned long long memory[3] = {0}; // total, free, used
    if (!open_device(&n, pci)) return 0;
    if (n.memory(n.device, memory)) memory[1] = 0;
    close_library(&n, true);
    return (size_t)memory[1];
}

// ---- the sampler -----------------------------------------------------------------------------------

typedef struct gpu_watch {
    char pci[32];
    bool stop, ended; // set by the reader; by the thread, which then touches it no more
    double at_s;      // clock of the numbers; 0: there are none yet
    double now[DT_N_GPU];
} gpu_watch;

// Of gpu_watch, and what publishes its numbers. Never held during a call of the library.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static gpu_watch *current;

static void read_device(const nvml *n, double out[DT_N_GPU]) {
    unsigned long long memory[3];
    unsigned util[2], mw, celsius, mhz;
    // an error is of one number: not supported, or the GPU is lost
    out[DT_GPU_util] = n->util(n->device, util) ? NAN : util[0] / 100.0;
    out[DT_GPU_power_w] = n->power(n->device, &mw) ? NAN : mw / 1000.0;
    out[DT_GPU_temp_c] = n->temperature(n->device, NVML_TEMPERATURE_GPU, &celsius) ? NAN : celsius;
    out[DT_GPU_mem_bytes] = n->memory(n->device, memory) ? NAN : (double)memory[2];
    out[DT_GPU_sm_mhz] = n->clock(n->device, NVML_CLOCK_SM, &mhz) ? NAN : mhz;
}

static void *sample_device(void *arg) {
    gpu_watch *w = arg;
    nvml n;
    double now[DT_N_GPU];
    dt_thread_name("gpu");
    const bool is_open = open_device(&n, w->pci);
    pthread_mutex_lock(&lock);
    while (is_open && !w->stop) {
        pthread_mutex_unlock(&lock);
        read_device(&n, now);
        pthread_mutex_lock(&lock);
        memcpy(w->now, now, sizeof now);
        w->at_s = dt_clock_s();
        while (!w->stop && dt_thread_wait(&changed, &lock, w->at_s + SAMPLE_S)) continue;
    }
    pthread_mutex_unlock(&lock);
    if (is_open) close_library(&n, true);
    pthread_mutex_lock(&lock);
    w->ended = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return NULL;
}

void dt_gpu_watch_begin(const char *pci) {
    sigset_t all, old;
    pthread_t thread;
    pthread_mutex_lock(&lock);
    gpu_watch *w = current ? NULL : dt_xcalloc(1, sizeof *w);
    if (w) current = w;
    pthread_mutex_unlock(&lock);
    if (!w) return;
    snprintf(w->pci, sizeof w->pci, "%s", pci);
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old); // inherited: signals go to the trainer's threads
    if (pthread_create(&thread, NULL, sample_device, w) == 0)
        pthread_detach(thread);
    else
        w->ended = true; // nothing is known
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void dt_gpu_watch_end(void) {
    pthread_mutex_lock(&lock);
    gpu_watch *w = current;
    current = NULL;
    if (w) w->stop = true;
    pthread_cond_broadcast(&changed);
    const double until_s = dt_clock_s() + SAMPLE_S;
    while (w && !w->ended && dt_thread_wait(&changed, &lock, until_s)) continue;
    const bool ended = w && w->ended;
    pthread_mutex_unlock(&lock);
    if (ended) free(w); // else the thread hangs in the driver, and has it for good
}

bool dt_gpu_latest(double out[DT_N_GPU]) {
    pthread_mutex_lock(&lock);
    const bool known = current && current->at_s > 0 && dt_clock_s() - current->at_s < STALE_S;
    if (known) memcpy(out, current->now, sizeof current->now);
    pthread_mutex_unlock(&lock);
    return known;
}
