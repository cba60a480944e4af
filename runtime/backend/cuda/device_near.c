// device_near.c: see the header. hwloc is loaded and not linked: the module must also start on machines
// without it (Open MPI's packages bring it). HWLOC_XMLFILE gives it another machine's topology: then it binds
// nothing and only says what it would.
#define _GNU_SOURCE
#include "backend/cuda/device_near.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- /sys ------------------------------------------------------------------------------------------
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

static bool bind_by_sys(const char *pci, char *out, size_t cap) {
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
    if (sched_setaffinity(0, sizeof both, &both)) return false;
    text[strcspn(text, "\n")] = 0;
    snprintf(out, cap, "those of cores %s that it may use", text);
    return true;
}

#ifdef DTRAIN_HAVE_HWLOC
// ---- hwloc -----------------------------------------------------------------------------------------
#include <dlfcn.h>
#include <hwloc.h>

#define HWLOC_CALLS(X)                                                                             \
    X(topology_init)                                                                               \
    X(topology_set_io_types_filter)                                                                \
    X(topology_load)                                                                               \
    X(topology_destroy)                                                                            \
    X(get_obj_by_depth)                                                                            \
    X(bitmap_alloc)                                                                                \
    X(bitmap_free)                                                                                 \
    X(bitmap_and)                                                                                  \
    X(bitmap_iszero)                                                                               \
    X(bitmap_isequal)                                                                              \
    X(bitmap_list_snprintf)                                                                        \
    X(get_cpubind)                                                                                 \
    X(set_cpubind)                                                                                 \
    X(get_membind)                                                                                 \
    X(set_membind)

typedef struct hwloc_calls {
#define HWLOC_CALL(name) __typeof__(hwloc_##name) *name;
    HWLOC_CALLS(HWLOC_CALL)
#undef HWLOC_CALL
} hwloc_calls;

static void *open_hwloc(hwloc_calls *h) {
    void *library = dlopen("libhwloc.so.15", RTLD_NOW | RTLD_LOCAL);
    if (!library) return NULL;
#define HWLOC_CALL(name)                                                                           \
    *(void **)&h->name = dlsym(library, "hwloc_" #name);                                           \
    if (!h->name) return dlclose(library), NULL;
    HWLOC_CALLS(HWLOC_CALL)
#undef HWLOC_CALL
    return library;
}

// What holds the device and has cores; NULL when the topology does not show the device.
static hwloc_obj_t find_place(const hwloc_calls *h, hwloc_topology_t t, const char *pci) {
    unsigned domain, bus, device, function;
    if (sscanf(pci, "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4) return NULL;
    hwloc_obj_t o;
    for (unsigned i = 0; (o = h->get_obj_by_depth(t, HWLOC_TYPE_DEPTH_PCI_DEVICE, i)); i++) {
        const struct hwloc_pcidev_attr_s *a = &o->attr->pcidev;
        if (a->domain == domain && a->bus == bus && a->dev == device && a->func == function) break;
    }
    while (o && !o->cpuset) o = o->parent;
    return o;
}

static bool bind_cores(const hwloc_calls *h, hwloc_topology_t t, hwloc_obj_t place, char *text,
                       size_t cap) {
    hwloc_bitmap_t mine = h->bitmap_alloc(), both = h->bitmap_alloc();
    bool bound = !h->get_cpubind(t, mine, HWLOC_CPUBIND_THREAD) &&
                 !h->bitmap_and(both, mine, place->cpuset) && !h->bitmap_iszero(both) &&
                 !h->bitmap_isequal(both, mine) && !h->set_cpubind(t, both, HWLOC_CPUBIND_THREAD);
    if (bound) h->bitmap_list_snprintf(text, cap, both);
    h->bitmap_free(mine);
    h->bitmap_free(both);
    return bound;
}

// Not strict: when that memory is full, the other is taken.
static bool bind_memory(const hwloc_calls *h, hwloc_topology_t t, hwloc_obj_t place, char *text,
                        size_t cap) {
    hwloc_bitmap_t now = h->bitmap_alloc();
    hwloc_membind_policy_t policy = HWLOC_MEMBIND_DEFAULT;
    const hwloc_obj_t machine = h->get_obj_by_depth(t, 0, 0);
    bool bound = !h->get_membind(t, now, &policy, HWLOC_MEMBIND_THREAD | HWLOC_MEMBIND_BYNODESET) &&
                 policy != HWLOC_MEMBIND_BIND && policy != HWLOC_MEMBIND_INTERLEAVE &&
                 !h->bitmap_isequal(place->nodeset, machine->nodeset) &&
                 !h->set_membind(t, place->nodeset, HWLOC_MEMBIND_BIND,
                                 HWLOC_MEMBIND_THREAD | HWLOC_MEMBIND_BYNODESET);
    if (bound) h->bitmap_list_snprintf(text, cap, place->nodeset);
    h->bitmap_free(now);
    return bound;
}

// true: hwloc knows the device, whatever there was to bind.
static bool bind_by_hwloc(const char *pci, char *text, size_t cap) {
    hwloc_calls h;
    hwloc_topology_t t;
    char cores[256], nodes[128];
    void *library = open_hwloc(&h);
    if (!library) return false;
    hwloc_obj_t place = NULL;
    if (!h.topology_init(&t)) {
        h.topology_set_io_types_filter(t, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
        if (!h.topology_load(t)) place = find_place(&h, t, pci);
        const bool by_cores = place && bind_cores(&h, t, place, cores, sizeof cores);
        const bool by_nodes = place && bind_memory(&h, t, place, nodes, sizeof nodes);
        snprintf(text, cap, "%s%s%s%s%s", by_cores ? "cores " : "", by_cores ? cores : "",
                 by_cores && by_nodes ? ", " : "", by_nodes ? "memory of NUMA node " : "",
                 by_nodes ? nodes : "");
        h.topology_destroy(t);
    }
    dlclose(library);
    return place != NULL;
}
#else
static bool bind_by_hwloc(const char *pci, char *text, size_t cap) {
    (void)pci, (void)text, (void)cap;
    return false;
}
#endif

bool dt_cuda_bind_near(const char *pci, char *text, size_t cap) {
    text[0] = 0;
    if (bind_by_hwloc(pci, text, cap)) return text[0] != 0;
    return bind_by_sys(pci, text, cap);
}
