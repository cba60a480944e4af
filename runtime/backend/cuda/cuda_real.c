// cuda_real.c: the table of cuda_api.h from the CUDA runtime, and what the module dtrain_cuda.so exports.
//
// The runtime is linked in (it loads the driver itself); cuDNN, cuBLASLt and NCCL are the system's. A process
// has one table. Streams do not wait for the default stream; captures are relaxed, because libraries may
// allocate for themselves while a step is recorded. An error that a call returned is taken off the runtime's
// own memory of it, so that no later call reports it again; those that end the context come back anyway.
#include "backend/cuda/cuda_real.h"

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/device_choice.h"
#include "backend/cuda/device_near.h"
#include "base/log.h"

#include <ctype.h>
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const dt_nccl_api *dt_nccl_api_real(void); // nccl_api_real.c

static int done(cudaError_t e) {
    if (e != cudaSuccess) cudaGetLastError();
    return (int)e;
}

static const char *error_text(dt_cuda_api *a, int error) {
    (void)a;
    const char *text = dt_cuda_real_library_error(error);
    return text ? text : cudaGetErrorString((cudaError_t)error);
}

static const char *versions(dt_cuda_api *a) {
    static char text[160];
    char libraries[80];
    int runtime = 0, nccl = 0;
    (void)a;
    cudaRuntimeGetVersion(&runtime);
    ncclGetVersion(&nccl);
    dt_cuda_real_library_versions(libraries, sizeof libraries);
    snprintf(text, sizeof text, "CUDA %d.%d, %s, NCCL %d.%d.%d", runtime / 1000,
             runtime % 1000 / 10, libraries, nccl / 10000, nccl / 100 % 100, nccl % 100);
    return text;
}

// ---- devices ---------------------------------------------------------------------------------------
static int device_count(dt_cuda_api *a, int *n) {
    (void)a;
    return done(cudaGetDeviceCount(n));
}

static int used; // the process has one device
static int device_use(dt_cuda_api *a, int index) {
    (void)a;
    used = index;
    return done(cudaSetDevice(index));
}

static int read_numa_node(const char *pci) {
    char path[96], text[16] = "-1";
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/numa_node", pci);
    FILE *f = fopen(path, "r");
    if (!f) return -1;
    const bool read = fgets(text, sizeof text, f) != NULL;
    fclose(f);
    return read ? atoi(text) : -1;
}

// Atomics on a neighbour's memory go over NVLink only.
static bool has_nvlink(int index) {
    int n = 0, native = 0;
    if (done(cudaGetDeviceCount(&n))) return false;
    for (int i = 0; i < n; i++)
        if (i != index &&
            !done(cudaDeviceGetP2PAttribute(&native, cudaDevP2PAttrNativeAtomicSupported, index,
                                            i)) &&
            native)
            return true;
    return false;
}

static int device_info(dt_cuda_api *a, int index, dt_cuda_device_info *out) {
    struct cudaDeviceProp p;
    (void)a;
    int current = 0, e = done(cudaGetDeviceProperties(&p, index));
    if (e) return e;
    *out = (dt_cuda_device_info){.major = p.major,
                                 .minor = p.minor,
                                 .n_sm = p.multiProcessorCount,
                                 .total_bytes = p.totalGlobalMem};
    snprintf(out->name, sizeof out->name, "%.*s", (int)sizeof out->name - 1, p.name);
    cudaDriverGetVersion(&out->driver);
    cudaRuntimeGetVersion(&out->runtime);
    if (!done(cudaDeviceGetPCIBusId(out->pci, sizeof out->pci, index)))
        for (char *c = out->pci; *c; c++) *c = (char)tolower((unsigned char)*c);
    out->numa_node = read_numa_node(out->pci);
    out->nvlink = has_nvlink(index);
    e = done(cudaGetDevice(&current));
    if (!e && current == index) e = done(cudaMemGetInfo(&out->free_bytes, &out->total_bytes));
    return e;
}

// ---- memory ----------------------------------------------------------------------------------------
static int alloc(dt_cuda_api *a, void **p, size_t n_bytes) {
    (void)a;
    return done(cudaMalloc(p, n_bytes));
}
static int free_device(dt_cuda_api *a, void *p) {
    (void)a;
    return done(cudaFree(p));
}
// A thread begins on device 0 whatever the others use, and would open that one for the sake of a pinned page.
static int alloc_host(dt_cuda_api *a, void **p, size_t n_bytes) {
    (void)a;
    const int e = done(cudaSetDevice(used));
    return e ? e : done(cudaHostAlloc(p, n_bytes, cudaHostAllocPortable));
}
static int free_host(dt_cuda_api *a, void *p) {
    (void)a;
    return done(cudaFreeHost(p));
}

static int copy(dt_cuda_api *a, void *dst, const void *src, size_t n_bytes, int direction,
                void *stream) {
    static const enum cudaMemcpyKind kinds[] = {cudaMemcpyDeviceToHost, cudaMemcpyHostToDevice,
                                                cudaMemcpyDeviceToDevice};
    (void)a;
    int e = done(cudaMemcpyAsync(dst, src, n_bytes, kinds[direction], (cudaStream_t)stream));
    // cudaMemcpy would not do: it returns when pageable memory has been read, which may be before it has been
    // written, and streams that do not wait for the default stream would see what was there before.
    if (!e && !stream) e = done(cudaStreamSynchronize(NULL));
    return e;
}
static int zero(dt_cuda_api *a, void *dst, size_t n_bytes, void *stream) {
    (void)a;
    return done(cudaMemsetAsync(dst, 0, n_bytes, (cudaStream_t)stream));
}

// ---- streams and events ----------------------------------------------------------------------------
static int stream_create(dt_cuda_api *a, void **stream) {
    (void)a;
    return done(cudaStreamCreateWithFlags((cudaStream_t *)stream, cudaStreamNonBlocking));
}
static int stream_destroy(dt_cuda_api *a, void *stream) {
    (void)a;
    return done(cudaStreamDestroy((cudaStream_t)stream));
}
static int stream_synchronize(dt_cuda_api *a, void *stream) {
    (void)a;
    return done(stream ? cudaStreamSynchronize((cudaStream_t)stream) : cudaDeviceSynchronize());
}
static int stream_query(dt_cuda_api *a, void *stream, bool *is_done) {
    const cudaError_t e = cudaStreamQuery((cudaStream_t)stream);
    (void)a;
    *is_done = e == cudaSuccess;
    return e == cudaErrorNotReady ? 0 : done(e);
}
static int event_create(dt_cuda_api *a, void **event, bool timed) {
    (void)a;
    return done(cudaEventCreateWithFlags((cudaEvent_t *)event,
                                         timed ? cudaEventDefault : cudaEventDisableTiming));
}
static int event_destroy(dt_cuda_api *a, void *event) {
    (void)a;
    return done(cudaEventDestroy((cudaEvent_t)event));
}
static int event_record(dt_cuda_api *a, void *event, void *stream) {
    (void)a;
    return done(cudaEventRecord((cudaEvent_t)event, (cudaStream_t)stream));
}
static int event_wait(dt_cuda_api *a, void *event, void *stream) {
    (void)a;
    return done(cudaStreamWaitEvent((cudaStream_t)stream, (cudaEvent_t)event, 0));
}
static int event_ms(dt_cuda_api *a, void *begin, void *end, float *ms) {
    (void)a;
    return done(cudaEventElapsedTime(ms, (cudaEvent_t)begin, (cudaEvent_t)end));
}

// ---- graphs ----------------------------------------------------------------------------------------
static int capture_begin(dt_cuda_api *a, void *stream) {
    (void)a;
    return done(cudaStreamBeginCapture((cudaStream_t)stream, cudaStreamCaptureModeRelaxed));
}
static int capture_end(dt_cuda_api *a, void *stream, void **graph) {
    cudaGraph_t recorded = NULL;
    (void)a;
    *graph = NULL;
    int e = done(cudaStreamEndCapture((cudaStream_t)stream, &recorded));
    if (!e) e = done(cudaGraphInstantiate((cudaGraphExec_t *)graph, recorded, 0));
    if (recorded) cudaGraphDestroy(recorded);
    return e;
}
static int graph_launch(dt_cuda_api *a, void *graph, void *stream) {
    (void)a;
    return done(cudaGraphLaunch((cudaGraphExec_t)graph, (cudaStream_t)stream));
}
static int graph_destroy(dt_cuda_api *a, void *graph) {
    (void)a;
    return done(cudaGraphExecDestroy((cudaGraphExec_t)graph));
}

static dt_cuda_api *real_api(void) {
    static dt_cuda_api api = {.error_text = error_text,
                              .versions = versions,
                              .device_count = device_count,
                              .device_use = device_use,
                              .device_info = device_info,
                              .alloc = alloc,
                              .free = free_device,
                              .alloc_host = alloc_host,
                              .free_host = free_host,
                              .copy = copy,
                              .zero = zero,
                              .stream_create = stream_create,
                              .stream_destroy = stream_destroy,
                              .stream_synchronize = stream_synchronize,
                              .stream_query = stream_query,
                              .event_create = event_create,
                              .event_destroy = event_destroy,
                              .event_record = event_record,
                              .event_wait = event_wait,
                              .event_ms = event_ms,
                              .capture_begin = capture_begin,
                              .capture_end = capture_end,
                              .graph_launch = graph_launch,
                              .graph_destroy = graph_destroy,
                              .launch = dt_cuda_real_launch};
    dt_cuda_real_libraries(&api);
    return &api;
}

// ---- the module ------------------------------------------------------------------------------------
static dt_status count_devices(int *n) {
    int driver = 0, runtime = 0;
    *n = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (!driver)
        return dt_fail(DT_E_USAGE,
                       "device.kind: cuda: libcuda.so.1 is there but does not start: is "
                       "the driver's kernel module loaded (nvidia-smi)?");
    if (driver / 1000 < runtime / 1000)
        return dt_fail(DT_E_USAGE,
                       "device.kind: cuda: the driver is for CUDA %d.%d, this module needs %d.0 or "
                       "newer: update the driver, or build with CUDA %d",
                       driver / 1000, driver % 1000 / 10, runtime / 1000, driver / 1000);
    const int e = done(cudaGetDeviceCount(n));
    if (e && e != (int)cudaErrorNoDevice)
        return dt_fail(DT_E_USAGE, "device.kind: cuda: the driver does not start: %s",
                       cudaGetErrorString((cudaError_t)e));
    return DT_OK;
}

static void (*destroy_backend)(dt_backend *b);
static int n_backends;
static void destroy_with_libraries(dt_backend *b) {
    destroy_backend(b);
    if (--n_backends == 0) dt_cuda_real_libraries_close();
}

static dt_status module_create(dt_backend **out, const dt_backend_opts *opts) {
    int n, index;
    char near[400];
    dt_cuda_device_info info;
    DT_TRY(count_devices(&n));
    DT_TRY(dt_cuda_choose_device(&index, n, opts->local_rank, opts->local_size,
                                 getenv("CUDA_VISIBLE_DEVICES")));
    if (!device_info(NULL, index, &info)) {
        if (dt_cuda_bind_near(info.pci, near, sizeof near))
            dt_info("cuda %d (PCI %s): bound to %s", index, info.pci, near);
        if (!device_use(NULL, index) &&
            dt_cuda_real_kernel_missing() == cudaErrorNoKernelImageForDevice)
            return dt_fail(
                DT_E_USAGE,
                "device.kind: cuda: %s is sm_%d%d, for which this module has no code: build with "
                "-DDTRAIN_CUDA_ARCHITECTURES=%d%d",
                info.name, info.major, info.minor, info.major, info.minor);
    }
    DT_TRY(dt_cuda_backend_create(out, real_api(), dt_nccl_api_real(), index, opts));
    destroy_backend = (*out)->destroy;
    n_backends++;
    (*out)->destroy = destroy_with_libraries;
    return DT_OK;
}

static dt_status print_devices(void (*print)(const char *line)) {
    int n;
    char line[400];
    DT_TRY(count_devices(&n));
    if (!n) print("cuda: the driver shows no device");
    for (int i = 0; i < n; i++) {
        dt_cuda_device_info d;
        size_t free_bytes = 0, total_bytes = 0;
        const int e = device_info(NULL, i, &d);
        if (!e && !cudaSetDevice(i)) cudaMemGetInfo(&free_bytes, &total_bytes);
        if (e)
            snprintf(line, sizeof line, "cuda %d: %s", i, error_text(NULL, e));
        else
            snprintf(line, sizeof line,
                     "cuda %d: %s, sm_%d%d, %d SMs, %.1f of %.1f GB free, PCI %s, NUMA node %d, %s",
                     i, d.name, d.major, d.minor, d.n_sm, (double)free_bytes / 1e9,
                     (double)d.total_bytes / 1e9, d.pci, d.numa_node,
                     d.nvlink ? "NVLink" : "PCIe only");
        print(line);
    }
    int driver = 0;
    cudaDriverGetVersion(&driver);
    snprintf(line, sizeof line, "cuda: driver for CUDA %d.%d; module: %s", driver / 1000,
             driver % 1000 / 10, versions(NULL));
    print(line);
    return DT_OK;
}

extern const dt_cuda_module dt_cuda_module_table __attribute__((visibility("default")));
const dt_cuda_module dt_cuda_module_table = {
    .abi = DT_CUDA_MODULE_ABI, .create = module_create, .print_devices = print_devices};
