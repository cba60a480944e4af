// cuda_real.c: the table of cuda_api.h from the CUDA runtime, and what the module dtrain_cuda.so exports.
//
// The runtime is linked in (it loads the driver itself). cuDNN, cuBLASLt and NCCL are the system's, and NCCL may be
// absent (nccl_api_real.c). A process has one table. Streams do not wait for the default stream. Captures are relaxed,
// because libraries may allocate for themselves while a step is recorded. The runtime remembers an error that a call
// returned; it is cleared, so that no later call reports it again. Errors that end the context come back anyway.

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_dnn.h"
#include "backend/cuda/cuda_real_parts.h"
#include "backend/cuda/device.h"
#include "base/log.h"
#include "base/nvml.h"

#include <ctype.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int done(cudaError_t e) {
    if (e != cudaSuccess) cudaGetLastError(); // clears the runtime's memory of it
    return (int)e;
}

// Defines a function of the table that makes one call of the runtime.
#define CALL(name, call, ...)                                                                                          \
    static int name(dt_cuda_api *a, __VA_ARGS__) {                                                                     \
        return done(call);                                                                                             \
    }

static const char *error_text(dt_cuda_api *a, int error) {
    const char *text = dt_cuda_real_library_error(error);
    return text ? text : cudaGetErrorString((cudaError_t)error);
}

static const char *versions(dt_cuda_api *a) {
    static char text[160]; // static: one table per process
    char libraries[80], nccl[32] = "no NCCL";
    const int version = dt_cuda_real_nccl_version();
    int runtime = 0;
    cudaRuntimeGetVersion(&runtime);
    dt_cuda_real_library_versions(libraries, sizeof libraries);
    if (version) snprintf(nccl, sizeof nccl, "NCCL %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    snprintf(text, sizeof text, "CUDA %d.%d, %s, %s", runtime / 1000, runtime % 1000 / 10, libraries, nccl);
    return text;
}

// ---- devices ---------------------------------------------------------------------------------------
CALL(device_count, cudaGetDeviceCount(n), int *n)

static int used = -1; // a process has one device, once it has chosen
static int device_use(dt_cuda_api *a, int index) {
    const int e = done(cudaSetDevice(index)); // creates the context
    if (!e) used = index;
    return e;
}

// The first line of a PCI device's file in /sys, without its line end; "" if there is none.
static const char *read_sys(const char *pci, const char *name, char *text, int cap) {
    char path[128];
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/%s", pci, name);
    FILE *f = fopen(path, "r");
    text[0] = 0;
    if (f && !fgets(text, cap, f)) text[0] = 0;
    if (f) fclose(f);
    text[strcspn(text, "\n")] = 0;
    return text;
}

// Only NVLink carries atomics on another device's memory.
static int device_link(dt_cuda_api *a, int from, int to, dt_cuda_link *out) {
    int peer = 0, atomics = 0;
    // peer access, and atomics over NVLink
    int e = done(cudaDeviceGetP2PAttribute(&peer, cudaDevP2PAttrAccessSupported, from, to));
    if (!e) e = done(cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, from, to));
    *out = (dt_cuda_link){.peer = peer != 0, .nvlink = atomics != 0};
    return e;
}

// The path of the driver's library, links followed; "" if unknown. path: PATH_MAX bytes.
static const char *driver_path(char *path) {
    struct link_map *map = NULL;
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD); // NOLOAD: only returns what is loaded
    if (!library || dlinfo(library, RTLD_DI_LINKMAP, &map) || !realpath(map->l_name, path)) path[0] = 0;
    if (library) dlclose(library);
    return path;
}

static int device_info(dt_cuda_api *a, int index, dt_cuda_device_info *out) {
    struct cudaDeviceProp p;
    const int e = done(cudaGetDeviceProperties(&p, index));
    if (e) return e;
    *out = (dt_cuda_device_info){
        .major = p.major, .minor = p.minor, .n_sm = p.multiProcessorCount, .total_bytes = p.totalGlobalMem};
    snprintf(out->name, sizeof out->name, "%.*s", (int)sizeof out->name - 1, p.name);
    int khz = 0, memory_khz = 0, bits = 0;
    // attributes that newer CUDA versions removed from the struct
    done(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, index));
    done(cudaDeviceGetAttribute(&memory_khz, cudaDevAttrMemoryClockRate, index));
    done(cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, index));
    out->clock_hz = 1e3 * khz;
    out->bytes_s = 2e3 * memory_khz * bits / 8; // twice a clock
    cudaDriverGetVersion(&out->driver);
    cudaRuntimeGetVersion(&out->runtime);
    if (!done(cudaDeviceGetPCIBusId(out->pci, sizeof out->pci, index)))
        for (char *c = out->pci; *c; c++) *c = (char)tolower((unsigned char)*c); // /sys has lower-case digits
    char node[16], path[PATH_MAX];
    out->numa_node = *read_sys(out->pci, "numa_node", node, sizeof node) ? atoi(node) : -1;
    read_sys(out->pci, "local_cpulist", out->cores, sizeof out->cores);
    dt_cuda_driver_version(driver_path(path), out->driver_version, sizeof out->driver_version);
    // needs a context, which only the chosen device has
    if (used == index) return done(cudaMemGetInfo(&out->free_bytes, &out->total_bytes));
    out->free_bytes = dt_nvml_free_bytes(out->pci); // which needs no context
    return 0;
}

// ---- memory ----------------------------------------------------------------------------------------
CALL(alloc, cudaMalloc(p, n_bytes), void **p, size_t n_bytes)
CALL(free_device, cudaFree(p), void *p)
// A new thread starts on device 0, whatever other threads use, and would open that device only to pin pages.
static int alloc_host(dt_cuda_api *a, void **p, size_t n_bytes) {
    const int e = used < 0 ? 0 : done(cudaSetDevice(used));
    return e ? e : done(cudaHostAlloc(p, n_bytes, cudaHostAllocPortable)); // portable: pinned for all contexts
}
CALL(free_host, cudaFreeHost(p), void *p)

static int copy(dt_cuda_api *a, void *dst, const void *src, size_t n_bytes, int direction, void *stream) {
    static const enum cudaMemcpyKind kinds[] = {cudaMemcpyDeviceToHost, cudaMemcpyHostToDevice,
                                                // by direction: 0 to host, 1 to device, 2 on the device
                                                cudaMemcpyDeviceToDevice};
    int e = done(cudaMemcpyAsync(dst, src, n_bytes, kinds[direction], stream));
    // Not cudaMemcpy: it returns when pageable memory was read, which may be before the destination is written.
    // Streams that do not wait for the default stream could then see the old content.
    if (!e && !stream) e = done(cudaStreamSynchronize(NULL));
    return e;
}
CALL(zero, cudaMemsetAsync(dst, 0, n_bytes, stream), void *dst, size_t n_bytes, void *stream) // bytes of 0

// ---- streams and events ----------------------------------------------------------------------------
static int stream_create(dt_cuda_api *a, void **stream, bool urgent) {
    int least = 0, greatest = 0; // a smaller number is more urgent
    const cudaError_t e = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    if (e) return done(e);
    return done(cudaStreamCreateWithPriority((cudaStream_t *)stream, cudaStreamNonBlocking, urgent ? greatest : least));
}
CALL(stream_destroy, cudaStreamDestroy(stream), void *stream)
// NULL: everything on the device
CALL(stream_synchronize, stream ? cudaStreamSynchronize(stream) : cudaDeviceSynchronize(), void *stream)
static int stream_query(dt_cuda_api *a, void *stream, bool *is_done) {
    const cudaError_t e = cudaStreamQuery(stream);
    *is_done = e == cudaSuccess;
    return done(e) == (int)cudaErrorNotReady ? 0 : (int)e; // the runtime remembers "not ready" too
}
CALL(event_create, cudaEventCreateWithFlags((cudaEvent_t *)event, timed ? cudaEventDefault : cudaEventDisableTiming),
     void **event, bool timed)
CALL(event_destroy, cudaEventDestroy(event), void *event)
CALL(event_record, cudaEventRecord(event, stream), void *event, void *stream)
CALL(event_wait, cudaStreamWaitEvent(stream, event, 0), void *event, void *stream)
CALL(event_ms, cudaEventElapsedTime(ms, begin, end), void *begin, void *end, float *ms)

// ---- graphs ----------------------------------------------------------------------------------------
CALL(capture_begin, cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), void *stream)
static int capture_end(dt_cuda_api *a, void *stream, void **graph) {
    cudaGraph_t recorded = NULL;
    *graph = NULL;
    int e = done(cudaStreamEndCapture(stream, &recorded));
    if (!e) e = done(cudaGraphInstantiate((cudaGraphExec_t *)graph, recorded, 0));
    if (recorded) cudaGraphDestroy(recorded);
    return e;
}
CALL(graph_launch, cudaGraphLaunch(graph, stream), void *graph, void *stream)
CALL(graph_destroy, cudaGraphExecDestroy(graph), void *graph)

_Static_assert(DT_CUDA_OUT_OF_MEMORY == (int)cudaErrorMemoryAllocation &&
                   DT_CUDA_NO_CODE == (int)cudaErrorNoKernelImageForDevice &&
                   DT_CUDA_NO_PTX_COMPILER == (int)cudaErrorJitCompilerNotFound &&
                   DT_CUDA_PTX_TOO_NEW == (int)cudaErrorUnsupportedPtxVersion &&
                   DT_CUDA_DEVICE_BUSY == (int)cudaErrorDevicesUnavailable &&
                   DT_CUDA_DEVICE_IN_USE == (int)cudaErrorDeviceAlreadyInUse,
               "CUDA's numbers in cuda_api.h");

static dt_cuda_api *real_api(void) {
    static dt_cuda_api api = {.error_text = error_text,
                              .versions = versions,
                              .device_count = device_count,
                              .device_use = device_use,
                              .device_info = device_info,
                              .device_link = device_link,
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
    dt_cuda_real_libraries(&api); // cuDNN and cuBLASLt
    return &api;
}

// ---- the module ------------------------------------------------------------------------------------
static dt_status count_devices(int *n) {
    int driver = 0, runtime = 0;
    *n = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (!driver)
        return dt_fail(DT_E_USAGE, "device.kind: cuda: libcuda.so.1 is there but does not start: is "
                                   "the driver's kernel module loaded (nvidia-smi)?");
    if (driver / 1000 < runtime / 1000) // minor versions are compatible within a major one
        return dt_fail(DT_E_USAGE,
                       "device.kind: cuda: the driver is for CUDA %d.%d, this module needs %d.0 or "
                       "newer: update the driver, or build with CUDA %d",
                       driver / 1000, driver % 1000 / 10, runtime / 1000, driver / 1000);
    const int e = done(cudaGetDeviceCount(n));
    if (e && e != (int)cudaErrorNoDevice) // no device is a count of 0
        return dt_fail(DT_E_USAGE, "device.kind: cuda: the driver does not start: %s",
                       cudaGetErrorString((cudaError_t)e));
    return DT_OK;
}

static void (*destroy_backend)(dt_backend *b);
static int n_backends;
static void destroy_with_libraries(dt_backend *b) {
    destroy_backend(b);
    if (--n_backends == 0) dt_cuda_real_libraries_close(); // the last backend closes the libraries
}

static const char *cuda_text(int error) {
    return cudaGetErrorString((cudaError_t)error);
}
static const dt_kernel_loader loader = {dt_cuda_real_load, cuda_text, DTRAIN_CUDA_BUILT_FOR};

static dt_status module_create(dt_backend **out, const dt_backend_opts *opts) {
    int n, index;
    char near[400];
    dt_cuda_device_info info;
    DT_TRY(count_devices(&n));
    DT_TRY(dt_cuda_choose_device(&index, n, opts->local_rank, opts->local_size, getenv("CUDA_VISIBLE_DEVICES")));
    if (!device_info(NULL, index, &info)) { // before the device is used: pages of pinned memory then come near
        if (dt_cuda_bind_near("/sys", info.pci, near, sizeof near)) // the process
            dt_info("cuda %d (PCI %s): bound to %s", index, info.pci, near);
        if (!device_use(NULL, index)) DT_TRY(dt_cuda_load_kernels(&loader, &info));
    }
    DT_TRY(dt_cuda_backend_create(out, real_api(), dt_nccl_api_real(), index, opts));
    destroy_backend = (*out)->destroy; // wrapped: the module's own clean-up follows
    n_backends++;
    (*out)->destroy = destroy_with_libraries;
    return DT_OK;
}

static dt_status print_devices(void (*print)(const char *line)) {
    int n;
    DT_TRY(count_devices(&n));
    dt_cuda_list_devices(real_api(), print);
    return DT_OK;
}

extern const dt_cuda_module dt_cuda_module_table __attribute__((visibility("default")));
const dt_cuda_module dt_cuda_module_table = {
    .abi = DT_CUDA_MODULE_ABI, .create = module_create, .print_devices = print_devices};
#undef CALL

// ---- cuda real libs -----------------------------------------------------------------------------------------------

// The table's dnn_* and gemm_* over cuda_dnn.h and cuda_dnn.h (see cuda_real_parts.h).
//
// One context of each library, opened for the first plan on the device in use. A process has one device and one table.
// Each run names its stream, so one context serves all streams.

static dt_cudnn *dnn;
static dt_cublas *blas;

static int open_dnn(void) {
    return dnn ? 0 : dt_cudnn_open(&dnn, NULL); // on first use: a network without convolutions needs no cuDNN
}
static int open_blas(void) {
    return blas ? 0 : dt_cublas_open(&blas);
}

// Defines a function of the table that opens a library first.
#define CALL(name, library, call, ...)                                                                                 \
    static int name(dt_cuda_api *a, __VA_ARGS__) {                                                                     \
        const int e = open_##library();                                                                                \
        return e ? e : call;                                                                                           \
    }

CALL(dnn_choices, dnn, dt_cudnn_choices(dnn, d, n), const dt_dnn_desc *d, int *n)
static int dnn_compiled(dt_cuda_api *a, const dt_dnn_desc *d) {
    return dnn ? dt_cudnn_compiled(dnn, d) : 0;
}
CALL(dnn_plan, dnn, dt_cudnn_plan_create(dnn, d, choice, (dt_cudnn_plan **)plan, workspace_bytes), const dt_dnn_desc *d,
     int choice, void **plan, size_t *workspace_bytes)
static int dnn_run(dt_cuda_api *a, void *plan, void *const *ptr, void *workspace, void *stream) {
    return dt_cudnn_run(dnn, plan, ptr, workspace, stream);
}
static int dnn_destroy(dt_cuda_api *a, void *plan) {
    dt_cudnn_plan_destroy(plan);
    return 0;
}
CALL(gemm_choices, blas, dt_cublas_choices(blas, d, n), const dt_gemm_desc *d, int *n)
CALL(gemm_plan, blas, dt_cublas_plan_create(blas, d, choice, (dt_cublas_plan **)plan, workspace_bytes),
     const dt_gemm_desc *d, int choice, void **plan, size_t *workspace_bytes)
static int gemm_run(dt_cuda_api *a, void *plan, const void *A, const void *B, void *D, bool add, void *bias, void *aux,
                    void *workspace, void *stream) {
    return dt_cublas_run(blas, plan, A, B, D, add, bias, aux, workspace, stream);
}
static int gemm_destroy(dt_cuda_api *a, void *plan) {
    dt_cublas_plan_destroy(plan);
    return 0;
}

static bool is_refusal(dt_cuda_api *a, int error) {
    if (error >= DT_CUBLAS_ERROR) return dt_cublas_is_refusal(error);
    return error >= DT_CUDNN_ERROR && dt_cudnn_is_refusal(error);
}

void dt_cuda_real_libraries(dt_cuda_api *a) {
    a->is_refusal = is_refusal;
    a->dnn_compiled = dnn_compiled;
    a->dnn_choices = dnn_choices;
    a->dnn_plan = dnn_plan;
    a->dnn_run = dnn_run;
    a->dnn_destroy = dnn_destroy;
    a->gemm_choices = gemm_choices;
    a->gemm_plan = gemm_plan;
    a->gemm_run = gemm_run;
    a->gemm_destroy = gemm_destroy;
}

void dt_cuda_real_libraries_close(void) {
    dt_cudnn_close(dnn);
    dt_cublas_close(blas);
    dnn = NULL;
    blas = NULL;
}

const char *dt_cuda_real_library_error(int error) {
    static _Thread_local char text[600]; // per thread, as errors are
    if (error < DT_CUDNN_ERROR) return NULL;
    if (error >= DT_CUBLAS_ERROR)
        snprintf(text, sizeof text, "cuBLASLt: %s", dt_cublas_error_text(error));
    else
        snprintf(text, sizeof text, "cuDNN: %s (%s)", dt_cudnn_error_text(error), dt_cudnn_last_error());
    return text;
}

void dt_cuda_real_library_versions(char *text, size_t cap) {
    const int d = dt_cudnn_version(), b = dt_cublas_version();
    snprintf(text, cap, "cuDNN %d.%d.%d, cuBLASLt %d.%d.%d", d / 10000, d / 100 % 100, d % 100, b / 10000,
             b / 100 % 100, b % 100);
}
