// nccl_api.h: the table of everything that comm_nccl.c calls of NCCL. The module dtrain_cuda.so fills it with the
// library (nccl_api_real.c); tests fill it with a fake.
//
// Communicators are non-blocking. A call may return DT_NCCL_BUSY; async_error then returns BUSY until the library has
// finished it. Work is queued on the given stream. All sums are in place. Calls between group_start and group_end are one
// call, which group_end makes.
#ifndef DT_BACKEND_CUDA_NCCL_API_H
#define DT_BACKEND_CUDA_NCCL_API_H

#include "base/core.h"

#include <stddef.h>
#include <stdint.h>

enum { DT_NCCL_OK = 0, DT_NCCL_BUSY = 7, DT_NCCL_ID_BYTES = 128 };

typedef struct dt_nccl_api dt_nccl_api;
struct dt_nccl_api {
    void *self;
    const char *(*error_text)(const dt_nccl_api *a, void *comm, int error); // comm may be NULL
    int (*unique_id)(const dt_nccl_api *a, void *id);                       // DT_NCCL_ID_BYTES
    // Uses the calling thread's device. *comm is set at once, and usable when async_error returns OK.
    int (*init)(const dt_nccl_api *a, void **comm, int world_size, const void *id, int rank);
    int (*async_error)(const dt_nccl_api *a, void *comm, int *state);
    int (*all_reduce)(const dt_nccl_api *a, void *comm, void *data, int64_t n,
                      dt_dtype type, // DT_F32, DT_BF16
                      void *stream);
    int (*all_reduce_f64)(const dt_nccl_api *a, void *comm, double *data, int64_t n, void *stream);
    // Sums of n elements for each rank, which rank r gets in its part: from data + r * n on, its `own`. The other parts
    // stay as they are.
    int (*reduce_scatter)(const dt_nccl_api *a, void *comm, void *data, void *own, int64_t n, dt_dtype type,
                          void *stream);
    // A sum that the root alone gets.
    int (*reduce)(const dt_nccl_api *a, void *comm, void *data, int64_t n, dt_dtype type, int root, void *stream);
    // All parts, of n_bytes each, of which this rank has its `own`
    int (*all_gather)(const dt_nccl_api *a, void *comm, void *data, const void *own, size_t n_bytes, void *stream);
    int (*group_start)(const dt_nccl_api *a);
    int (*group_end)(const dt_nccl_api *a);
    int (*broadcast)(const dt_nccl_api *a, void *comm, void *data, size_t n_bytes, int root, void *stream);
    int (*send)(const dt_nccl_api *a, void *comm, const float *data, int64_t n, int to, void *stream);
    int (*recv)(const dt_nccl_api *a, void *comm, float *data, int64_t n, int from, void *stream);
    int (*finalize)(const dt_nccl_api *a, void *comm); // BUSY until queued work is done
    int (*destroy)(const dt_nccl_api *a, void *comm);  // after finalize
    int (*abort)(const dt_nccl_api *a, void *comm);    // ends waiting kernels, then frees
    // NULL before NCCL 2.19. Memory that every GPU of a host can reach, and memory that collectives use directly
    // instead of copying through NCCL's own buffers.
    int (*mem_alloc)(const dt_nccl_api *a, void **p, size_t n_bytes);
    int (*mem_free)(const dt_nccl_api *a, void *p);
    int (*comm_register)(const dt_nccl_api *a, void *comm, void *p, size_t n_bytes, void **handle);
    int (*comm_deregister)(const dt_nccl_api *a, void *comm, void *handle);
};

#endif
