// nccl_api_real.c: the table of nccl_api.h from NCCL itself. Part of dtrain_cuda.so, not of the program.
//
// The library is not linked, because one rank needs none: it is loaded when the table is requested. A library without
// the functions of 2.19 works without them.
#include "backend/cuda/cuda_real_parts.h"
#include "backend/cuda/nccl_api.h"
#include "base/log.h"
#include "base/os.h"

#include <dlfcn.h>
#include <nccl.h>
#include <string.h>

#define NCCL_FUNCTIONS(f)                                                                                              \
    f(ncclGetVersion) f(ncclGetLastError) f(ncclGetErrorString) f(ncclGetUniqueId) f(ncclCommInitRankConfig)           \
        f(ncclCommGetAsyncError) f(ncclAllReduce) f(ncclReduceScatter) f(ncclReduce) f(ncclAllGather)                  \
            f(ncclGroupStart) f(ncclGroupEnd) f(ncclBroadcast) f(ncclSend) f(ncclRecv) f(ncclCommFinalize)             \
                f(ncclCommDestroy) f(ncclCommAbort)
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
// optional: NULL where the library lacks them
#define NCCL_NEWER_FUNCTIONS(f) f(ncclMemAlloc) f(ncclMemFree) f(ncclCommRegister) f(ncclCommDeregister)
#else
#define NCCL_NEWER_FUNCTIONS(f)
#endif

#define FIELD(name) __typeof__(&name) name;
static struct {
    NCCL_FUNCTIONS(FIELD)
    NCCL_NEWER_FUNCTIONS(FIELD)
} lib;
#undef FIELD

static bool load_library(void) {
    static bool tried, loaded; // once per process
    if (tried) return loaded;
    tried = true;
    void *so = dt_wheel_library("nccl/lib/libnccl.so.2");
    // LOCAL: PyTorch's own NCCL in the process must not clash
    if (!so) so = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    const char *missing = NULL;
    if (!so) {
        dt_log(DT_LOG_DEBUG, "no NCCL: %s", dlerror());
        return false;
    }
#define FIND(name)                                                                                                     \
    *(void **)&lib.name = dlsym(so, #name);                                                                            \
    if (!lib.name) missing = #name; // without any of these the library is not used
    NCCL_FUNCTIONS(FIND)
#undef FIND
#define FIND(name) *(void **)&lib.name = dlsym(so, #name);
    NCCL_NEWER_FUNCTIONS(FIND)
#undef FIND
    if (missing) dt_warn("libnccl.so.2 is too old and not used: it has no %s", missing);
    return loaded = !missing;
}

int dt_cuda_real_nccl_version(void) {
    int version = 0;
    if (load_library()) lib.ncclGetVersion(&version);
    return version;
}

_Static_assert(DT_NCCL_ID_BYTES == sizeof(ncclUniqueId), "NCCL's id has another size");
_Static_assert((int)DT_NCCL_OK == (int)ncclSuccess && (int)DT_NCCL_BUSY == (int)ncclInProgress,
               "NCCL's codes have changed");

// Defines a function of the table that makes one call of the library.
#define CALL(name, call, ...)                                                                                          \
    static int name(const dt_nccl_api *a, __VA_ARGS__) {                                                               \
        return (int)lib.nccl##call;                                                                                    \
    }

static const char *error_text(const dt_nccl_api *a, void *comm, int error) {
    const char *last = lib.ncclGetLastError(comm); // more specific
    return last && *last ? last : lib.ncclGetErrorString((ncclResult_t)error);
}

static int unique_id(const dt_nccl_api *a, void *id) {
    ncclUniqueId u;
    ncclResult_t r = lib.ncclGetUniqueId(&u);
    if (r == ncclSuccess) memcpy(id, &u, sizeof u);
    return (int)r;
}

static int init(const dt_nccl_api *a, void **comm, int world_size, const void *id, int rank) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId u;
    config.blocking = 0; // non-blocking: comm_nccl.c polls
    memcpy(&u, id, sizeof u);
    return (int)lib.ncclCommInitRankConfig((ncclComm_t *)comm, world_size, u, rank, &config);
}

static int async_error(const dt_nccl_api *a, void *comm, int *state) {
    ncclResult_t s = ncclSuccess, r = lib.ncclCommGetAsyncError(comm, &s);
    *state = (int)s;
    return (int)r;
}

static ncclDataType_t type_of(dt_dtype type) {
    return type == DT_BF16 ? ncclBfloat16 : ncclFloat32; // no other type is sent
}

static int group_start(const dt_nccl_api *a) {
    return (int)lib.ncclGroupStart();
}
static int group_end(const dt_nccl_api *a) {
    return (int)lib.ncclGroupEnd();
}

CALL(all_reduce, AllReduce(data, data, (size_t)n, type_of(type), ncclSum, comm, stream), void *comm, void *data,
     int64_t n, dt_dtype type, void *stream)
CALL(reduce_scatter, ReduceScatter(data, own, (size_t)n, type_of(type), ncclSum, comm, stream), void *comm, void *data,
     void *own, int64_t n, dt_dtype type, void *stream)
CALL(reduce, Reduce(data, data, (size_t)n, type_of(type), ncclSum, root, comm, stream), void *comm, void *data,
     int64_t n, dt_dtype type, int root, void *stream)
CALL(all_gather, AllGather(own, data, n_bytes, ncclUint8, comm, stream), void *comm, void *data, const void *own,
     size_t n_bytes, void *stream)
CALL(all_reduce_f64, AllReduce(data, data, (size_t)n, ncclFloat64, ncclSum, comm, stream), void *comm, double *data,
     int64_t n, void *stream)
CALL(broadcast, Broadcast(data, data, n_bytes, ncclUint8, root, comm, stream), void *comm, void *data, size_t n_bytes,
     int root, void *stream)
CALL(send, Send(data, (size_t)n, ncclFloat32, to, comm, stream), void *comm, const float *data, int64_t n, int to,
     void *stream)
CALL(recv, Recv(data, (size_t)n, ncclFloat32, from, comm, stream), void *comm, float *data, int64_t n, int from,
     void *stream)
CALL(finalize, CommFinalize(comm), void *comm)
CALL(destroy, CommDestroy(comm), void *comm)
CALL(abort_comm, CommAbort(comm), void *comm)
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
CALL(mem_alloc, MemAlloc(p, n_bytes), void **p, size_t n_bytes)
CALL(mem_free, MemFree(p), void *p)
CALL(comm_register, CommRegister(comm, p, n_bytes, handle), void *comm, void *p, size_t n_bytes, void **handle)
CALL(comm_deregister, CommDeregister(comm, handle), void *comm, void *handle)
#endif

const dt_nccl_api *dt_nccl_api_real(void) {
    static dt_nccl_api api = {.error_text = error_text,
                              .unique_id = unique_id,
                              .init = init,
                              .async_error = async_error,
                              .all_reduce = all_reduce,
                              .all_reduce_f64 = all_reduce_f64,
                              .reduce_scatter = reduce_scatter,
                              .reduce = reduce,
                              .all_gather = all_gather,
                              .group_start = group_start,
                              .group_end = group_end,
                              .broadcast = broadcast,
                              .send = send,
                              .recv = recv,
                              .finalize = finalize,
                              .destroy = destroy,
                              .abort = abort_comm};
    if (!load_library()) return NULL; // NULL: comm_nccl.c prints what to install
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
    if (lib.ncclMemAlloc && lib.ncclMemFree) {
        api.mem_alloc = mem_alloc;
        api.mem_free = mem_free;
    }
    if (lib.ncclCommRegister && lib.ncclCommDeregister) {
        api.comm_register = comm_register;
        api.comm_deregister = comm_deregister;
    }
#endif
    return &api;
}
