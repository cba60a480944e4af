// device.c: see device.h.
#define _GNU_SOURCE // sched_setaffinity
#include "backend/cuda/device.h"

#include "base/core.h"
#include "base/log.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

// ---- which device ----------------------------------------------------------------------------------
dt_status dt_cuda_choose_device(int *index, int n_devices, int local_rank, int local_size, const char *visible) {
    *index = 0;
    if (n_devices < 1)
        return dt_fail(DT_E_USAGE,
                       "device.kind: cuda: the driver shows no device%s%s: check nvidia-smi, or use "
                       "device.kind=cpu",
                       visible ? "; CUDA_VISIBLE_DEVICES is " : "", visible ? visible : "");
    if (local_size <= 1) return DT_OK; // one rank per host: device 0
    if (local_size <= n_devices) {
        *index = local_rank; // rank i takes device i
        return DT_OK;
    }
    if (n_devices == 1 && visible && *visible && !strchr(visible, ',')) return DT_OK; // bound
    return dt_fail(DT_E_USAGE,
                   "device.kind: cuda: %d ranks on this host, but %d GPU%s%s%s: start one rank per GPU (mpirun -np %d)",
                   local_size, n_devices, n_devices == 1 ? "" : "s", visible ? " visible, CUDA_VISIBLE_DEVICES=" : "",
                   visible ? visible : "", n_devices);
}

// ---- binding ---------------------------------------------------------------------------------------
// text: "0-15,64-79". Returns false if it names no core.
static bool parse_cores(const char *text, cpu_set_t *set) {
    CPU_ZERO(set);
    while (*text) {
        char *end;
        const long first = strtol(text, &end, 10); // "a-b,c"
        long last = first;
        if (end == text || first < 0) break;
        if (*end == '-') {
            text = end + 1;
            last = strtol(text, &end, 10);
            if (end == text) break;
        }
        // larger numbers do not fit the set
        for (long k = first; k <= last && k < CPU_SETSIZE; k++) CPU_SET((int)k, set);
        text = *end == ',' ? end + 1 : end;
        if (*end != ',') break;
    }
    return CPU_COUNT(set) > 0;
}

static bool read_line(const char *folder, const char *name, char *text, int cap) {
    char path[320];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "r");
    const bool read = f && fgets(text, cap, f);
    if (f) fclose(f);
    if (read) text[strcspn(text, "\n")] = 0;
    return read;
}

static bool bind_cores(const char *device, char *text, int cap) {
    cpu_set_t near, mine, both;
    if (!read_line(device, "local_cpulist", text, cap) || !parse_cores(text, &near) ||
        sched_getaffinity(0, sizeof mine, &mine)) // 0: the calling thread
        return false;
    CPU_AND(&both, &near, &mine);
    if (!CPU_COUNT(&both))
        dt_warn("no core of this rank is near its GPU (%s), as its launcher has bound it elsewhere: start the ranks "
                "unbound (mpirun --bind-to none, srun --cpu-bind=none), and each takes the cores near its GPU",
                text);
    return CPU_COUNT(&both) && !CPU_EQUAL(&both, &mine) && !sched_setaffinity(0, sizeof both, &both);
}

// Preferred, not strict: when that memory is full, the kernel takes the other.
static bool bind_memory(const char *sys, const char *device, long *node) {
    char text[256], folder[256];
    cpu_set_t cores;
    int policy = MPOL_DEFAULT;
    if (!read_line(device, "numa_node", text, sizeof text)) return false;
    *node = strtol(text, NULL, 10); // -1: the firmware names none, as where there is one node
    snprintf(folder, sizeof folder, "%s/devices/system/node/node%ld", sys, *node);
    // no cores: a GPU's own memory (GH200), in which the host's data must not lie
    if (!read_line(folder, "cpulist", text, sizeof text) || !parse_cores(text, &cores)) return false;
    // a policy that the user set (numactl) stays
    if (*node < 0 || *node >= 63 || syscall(SYS_get_mempolicy, &policy, NULL, 0, NULL, 0) || policy != MPOL_DEFAULT)
        return false;
    const unsigned long mask = 1ul << *node;                       // one bit per node
    return !syscall(SYS_set_mempolicy, MPOL_PREFERRED, &mask, 64); // 64: bits of the mask
}

bool dt_cuda_bind_near(const char *sys, const char *pci, char *text, size_t cap) {
    char device[256], cores[256], memory[64] = "";
    snprintf(device, sizeof device, "%s/bus/pci/devices/%s", sys, pci);
    long node = -1;
    const bool by_cores = bind_cores(device, cores, sizeof cores), by_node = bind_memory(sys, device, &node);
    if (by_node) snprintf(memory, sizeof memory, "memory of NUMA node %ld", node);
    snprintf(text, cap, "%s%s%s%s", by_cores ? "cores " : "", by_cores ? cores : "", by_cores && by_node ? ", " : "",
             memory);
    return by_cores || by_node;
}

// ---- the driver's release --------------------------------------------------------------------------
// Length of a version such as "580.65.06" or "535.104"; 0 without a dot.
static size_t version_length(const char *text) {
    static const char digits[] = "0123456789";
    size_t n = strspn(text, digits); // digits, then groups of a dot and digits
    int groups = n > 0;
    while (n && text[n] == '.' && strspn(text + n + 1, digits)) {
        n += 1 + strspn(text + n + 1, digits);
        groups++;
    }
    return groups > 1 ? n : 0; // at least one dot
}

bool dt_cuda_driver_version(const char *library, char *out, size_t cap) {
    const char *end = strstr(library, ".so."); // libcuda.so.580.65.06
    const size_t n = end ? version_length(end + 4) : 0;
    snprintf(out, cap, "%s", n && !end[4 + n] ? end + 4 : ""); // nothing may follow the version
    return *out != 0;
}

// ---- the list of devices ---------------------------------------------------------------------------
static void print_device(dt_cuda_api *api, int i, int error, const dt_cuda_device_info *d,
                         void (*print)(const char *line)) {
    char line[400], memory[64], place[128] = "";
    if (error) {
        snprintf(line, sizeof line, "cuda %d: %s", i, api->error_text(api, error));
        print(line);
        return;
    }
    const double total = (double)d->total_bytes / 1e9;
    if (d->free_bytes) // 0: unknown without a context
        snprintf(memory, sizeof memory, "%.1f of %.1f GB free", (double)d->free_bytes / 1e9, total);
    else
        snprintf(memory, sizeof memory, "%.1f GB", total);
    if (d->numa_node >= 0)
        snprintf(place, sizeof place, ", NUMA node %d%s%s", d->numa_node, d->cores[0] ? ", near cores " : "", d->cores);
    snprintf(line, sizeof line, "cuda %d: %s, sm_%d%d, %d SMs, %s, PCI %s%s", i, d->name, d->major, d->minor, d->n_sm,
             memory, d->pci[0] ? d->pci : "unknown", place);
    print(line);
}

static void print_pair(dt_cuda_api *api, int i, int k, const dt_cuda_device_info *d, void (*print)(const char *line)) {
    char line[200], nodes[64] = "";
    dt_cuda_link link = {0};
    const int a = d[i].numa_node, b = d[k].numa_node;
    const int e = api->device_link(api, i, k, &link);
    if (a >= 0 && a == b)
        snprintf(nodes, sizeof nodes, ", neighbours on NUMA node %d", a);
    else if (a >= 0 && b >= 0)
        snprintf(nodes, sizeof nodes, ", on NUMA nodes %d and %d", a, b);
    snprintf(line, sizeof line, "cuda %d and %d: %s%s", i, k,
             e             ? api->error_text(api, e)
             : link.nvlink ? "NVLink"
             : link.peer   ? "PCIe"
                           : "PCIe, through the host's memory",
             nodes);
    print(line);
}

void dt_cuda_list_devices(dt_cuda_api *api, void (*print)(const char *line)) {
    int n = 0;
    char line[400];
    if (api->device_count(api, &n)) n = 0; // an error counts as none
    if (!n) print("cuda: the driver shows no device");
    dt_cuda_device_info *d = dt_xcalloc((size_t)n + 1, sizeof *d);
    int driver = 0;
    const char *version = "";
    for (int i = 0; i < n; i++) {
        const int e = api->device_info(api, i, &d[i]);
        if (e) d[i] = (dt_cuda_device_info){.numa_node = -1};
        print_device(api, i, e, &d[i], print);
        if (d[i].driver) driver = d[i].driver, version = d[i].driver_version; // all devices have one driver
    }
    for (int i = 0; i < n; i++)
        for (int k = i + 1; k < n; k++) print_pair(api, i, k, d, print); // each pair once
    if (driver)
        snprintf(line, sizeof line, "cuda: driver %s, for CUDA %d.%d; module: %s",
                 version[0] ? version : "of unknown version", driver / 1000, driver % 1000 / 10, api->versions(api));
    else
        snprintf(line, sizeof line, "cuda: module: %s", api->versions(api));
    print(line);
    free(d);
}

// ---- kernels ---------------------------------------------------------------------------------------
static const char *remedy(int error, const dt_cuda_device_info *d, char *text, size_t cap) {
    switch (error) {
    case DT_CUDA_NO_CODE:
        snprintf(text, cap, "build with -DDTRAIN_CUDA_ARCHITECTURES=%d%d", d->major, d->minor);
        return text;
    case DT_CUDA_PTX_TOO_NEW:
    case DT_CUDA_NO_PTX_COMPILER:
        snprintf(text, cap,
                 "the driver (%s) does not compile the module's PTX: update it, or build with "
                 "-DDTRAIN_CUDA_ARCHITECTURES=%d%d-real",
                 d->driver_version[0] ? d->driver_version : "unknown", d->major, d->minor);
        return text;
    case DT_CUDA_OUT_OF_MEMORY:
        return "another program has the device's memory (nvidia-smi lists them)";
    default:
        return "unpack the bundle or build again, all of it; if that does not help, the device is broken: nvidia-smi "
               "and the kernel's log (dmesg, lines with Xid) have details";
    }
}

dt_status dt_cuda_load_kernels(const dt_kernel_loader *l, const dt_cuda_device_info *device) {
    int n = 0, first = 0, error = 0;
    char what[160];
    for (int k = 0; k < DT_K_COUNT; k++) {
        const int e = l->load((dt_cuda_kernel)k);
        if (e && !n++) first = k, error = e; // counts all, keeps the first
    }
    if (!n) return DT_OK;
    const char *remedy_text = remedy(error, device, what, sizeof what);
    if (error == DT_CUDA_NO_CODE && n == DT_K_COUNT)
        return dt_fail(DT_E_USAGE,
                       "device.kind: cuda: %s is sm_%d%d, for which this module (dtrain_cuda.so, "
                       "of %s) has no code: %s",
                       device->name, device->major, device->minor, l->architectures, remedy_text);
    return dt_fail(DT_E_USAGE,
                   "device.kind: cuda: %d of the %d kernels of dtrain_cuda.so (of %s) do not load "
                   "on %s, sm_%d%d, first %s: %s; %s",
                   n, (int)DT_K_COUNT, l->architectures, device->name, device->major, device->minor,
                   dt_cuda_kernel_names[first], l->error_text(error), remedy_text);
}
