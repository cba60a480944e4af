// nccl_api_real.c: the table of nccl_api.h from NCCL itself. Part of dtrain_cuda.so, not of the program.
#include "backend/cuda/nccl_api.h"

#include <nccl.h>
#include <string.h>

_Static_assert(DT_NCCL_ID_BYTES == sizeof(ncclUniqueId), "NCCL's id has another size");
_Static_assert((int)DT_NCCL_OK == (int)ncclSuccess && (int)DT_NCCL_BUSY == (int)ncclInProgress,
               "NCCL's codes have changed");

static const char *error_text(const dt_nccl_api *a, void *comm, int error) {
    (void)a;
    const char *last = ncclGetLastError((ncclComm_t)comm); // what the library was about
    return last && *last ? last : ncclGetErrorString((ncclResult_t)error);
}

static int unique_id(const dt_nccl_api *a, void *id) {
    ncclUniqueId u;
    ncclResult_t r = ncclGetUniqueId(&u);
    (void)a;
    if (r == ncclSuccess) memcpy(id, &u, sizeof u);
    return (int)r;
}

static int init(const dt_nccl_api *a, void **comm, int world_size, const void *id, int rank) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId u;
    (void)a;
    config.blocking = 0;
    memcpy(&u, id, sizeof u);
    return (int)ncclCommInitRankConfig((ncclComm_t *)comm, world_size, u, rank, &config);
}

static int async_error(const dt_nccl_api *a, void *comm, int *state) {
    ncclResult_t s = ncclSuccess, r = ncclCommGetAsyncError((ncclComm_t)comm, &s);
    (void)a;
    *state = (int)s;
    return (int)r;
}

static int all_reduce(const dt_nccl_api *a, void *comm, void *data, int64_t n, dt_dtype type,
                      void *stream) {
    (void)a;
    return (int)ncclAllReduce(data, data, (size_t)n, type == DT_BF16 ? ncclBfloat16 : ncclFloat32,
                              ncclSum, (ncclComm_t)comm, (cudaStream_t)stream);
}

static int broadcast(const dt_nccl_api *a, void *comm, void *data, size_t n_bytes, int root,
                     void *stream) {
    (void)a;
    return (int)ncclBroadcast(data, data, n_bytes, ncclUint8, root, (ncclComm_t)comm,
                              (cudaStream_t)stream);
}

static int send(const dt_nccl_api *a, void *comm, const float *data, int64_t n, int to,
                void *stream) {
    (void)a;
    return (int)ncclSend(data, (size_t)n, ncclFloat32, to, (ncclComm_t)comm, (cudaStream_t)stream);
}

static int recv(const dt_nccl_api *a, void *comm, float *data, int64_t n, int from, void *stream) {
    (void)a;
    return (int)ncclRecv(data, (size_t)n, ncclFloat32, from, (ncclComm_t)comm,
                         (cudaStream_t)stream);
}

static int finalize(const dt_nccl_api *a, void *comm) {
    (void)a;
    return (int)ncclCommFinalize((ncclComm_t)comm);
}

static int destroy(const dt_nccl_api *a, void *comm) {
    (void)a;
    return (int)ncclCommDestroy((ncclComm_t)comm);
}

static int abort_comm(const dt_nccl_api *a, void *comm) {
    (void)a;
    return (int)ncclCommAbort((ncclComm_t)comm);
}

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
#define HAS_REGISTERED_MEMORY
// an older library at run time lacks them, and the module loads all the same
#pragma weak ncclMemAlloc
#pragma weak ncclMemFree
#pragma weak ncclCommRegister
#pragma weak ncclCommDeregister

static int mem_alloc(const dt_nccl_api *a, void **p, size_t n_bytes) {
    (void)a;
    return (int)ncclMemAlloc(p, n_bytes);
}

static int mem_free(const dt_nccl_api *a, void *p) {
    (void)a;
    return (int)ncclMemFree(p);
}

static int comm_register(const dt_nccl_api *a, void *comm, void *p, size_t n_bytes, void **handle) {
    (void)a;
    return (int)ncclCommRegister((ncclComm_t)comm, p, n_bytes, handle);
}

static int comm_deregister(const dt_nccl_api *a, void *comm, void *handle) {
    (void)a;
    return (int)ncclCommDeregister((ncclComm_t)comm, handle);
}
#endif

const dt_nccl_api *dt_nccl_api_real(void);
const dt_nccl_api *dt_nccl_api_real(void) {
    static dt_nccl_api api = {.error_text = error_text,
                              .unique_id = unique_id,
                              .init = init,
                              .async_error = async_error,
                              .all_reduce = all_reduce,
                              .broadcast = broadcast,
                              .send = send,
                              .recv = recv,
                              .finalize = finalize,
                              .destroy = destroy,
                              .abort = abort_comm};
#ifdef HAS_REGISTERED_MEMORY
    if (ncclMemAlloc && ncclMemFree) {
        api.mem_alloc = mem_alloc;
        api.mem_free = mem_free;
    }
    if (ncclCommRegister && ncclCommDeregister) {
        api.comm_register = comm_register;
        api.comm_deregister = comm_deregister;
    }
#endif
    return &api;
}
