// device_list.c: see device_list.h. To use a device costs its time and some hundred MB of its memory, and fails where
// another process has it for itself: so a list of devices must not.
#include "backend/cuda/device_list.h"

#include "base/arena.h"

#include <stdio.h>
#include <stdlib.h>

static void print_device(dt_cuda_api *api, int i, int error, const dt_cuda_device_info *d,
                         void (*print)(const char *line)) {
    char line[400], memory[64], place[128] = "";
    if (error) {
        snprintf(line, sizeof line, "cuda %d: %s", i, api->error_text(api, error));
        print(line);
        return;
    }
    const double total = (double)d->total_bytes / 1e9;
    if (d->free_bytes)
        snprintf(memory, sizeof memory, "%.1f of %.1f GB free", (double)d->free_bytes / 1e9, total);
    else
        snprintf(memory, sizeof memory, "%.1f GB", total);
    if (d->numa_node >= 0)
        snprintf(place, sizeof place, ", NUMA node %d%s%s", d->numa_node,
                 d->cores[0] ? ", near cores " : "", d->cores);
    snprintf(line, sizeof line, "cuda %d: %s, sm_%d%d, %d SMs, %s, PCI %s%s", i, d->name, d->major,
             d->minor, d->n_sm, memory, d->pci[0] ? d->pci : "unknown", place);
    print(line);
}

static void print_pair(dt_cuda_api *api, int i, int k, const dt_cuda_device_info *d,
                       void (*print)(const char *line)) {
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
    if (api->device_count(api, &n)) n = 0;
    if (!n) print("cuda: the driver shows no device");
    dt_cuda_device_info *d = dt_xcalloc((size_t)n + 1, sizeof *d);
    int driver = 0;
    const char *version = "";
    for (int i = 0; i < n; i++) {
        const int e = api->device_info(api, i, &d[i]);
        if (e) d[i] = (dt_cuda_device_info){.numa_node = -1};
        print_device(api, i, e, &d[i], print);
        if (d[i].driver) driver = d[i].driver, version = d[i].driver_version;
    }
    for (int i = 0; i < n; i++)
        for (int k = i + 1; k < n; k++) print_pair(api, i, k, d, print);
    if (driver)
        snprintf(line, sizeof line, "cuda: driver %s, for CUDA %d.%d; module: %s",
                 version[0] ? version : "of unknown version", driver / 1000, driver % 1000 / 10,
                 api->versions(api));
    else
        snprintf(line, sizeof line, "cuda: module: %s", api->versions(api));
    print(line);
    free(d);
}
