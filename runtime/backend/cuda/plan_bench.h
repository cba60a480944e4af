// plan_bench.h: times plans of cuDNN and cuBLASLt on memory of its own, for cuda_plans.c.
//
// The memory holds random values around ±1 of whatever type is read: on zeros a device draws less power and clocks
// higher, which favours some engines. The device does nothing else meanwhile. Each plan runs once to load its kernels
// and once between two events. That says how many runs take half a millisecond, one to twenty, which are then captured
// as one graph, like a step's: launched one by one, runs of a few microseconds would time the host. The better of two
// replays counts. A plan that cannot be captured fails.
#ifndef DT_BACKEND_CUDA_PLAN_BENCH_H
#define DT_BACKEND_CUDA_PLAN_BENCH_H

#include "backend/cuda/cuda_api.h"

// The description of one library's plan, so that choosing is written once.
typedef struct dt_plan_kind {
    bool gemm;
    const dt_dnn_desc *dnn;
    const dt_gemm_desc *mul;
} dt_plan_kind;

typedef struct dt_plan_bench {
    dt_cuda_api *api;
    const dt_plan_kind *kind; // borrowed
    void *memory, *workspace, *stream, *event[2];
    void *ptr[DT_DNN_POINTERS]; // in the order of the description
    size_t n_bytes[DT_DNN_POINTERS];
    bool uncaptured;
} dt_plan_bench;

// uncaptured: runs are launched one by one, as steps are. Returns the table's error codes. Call close after a failure
// too.
int dt_plan_bench_open(dt_plan_bench *b, dt_cuda_api *api, const dt_plan_kind *k, size_t workspace_bytes,
                       bool uncaptured);
void dt_plan_bench_close(dt_plan_bench *b);
// Milliseconds that a plan takes; its workspace must fit.
int dt_plan_bench_time(const dt_plan_bench *b, void *plan, float *ms);
// Milliseconds that filling pointer `at` with zeros takes, which stands for a pass over it. Comes after all plans.
int dt_plan_bench_fill(const dt_plan_bench *b, int at, float *ms);

#endif
