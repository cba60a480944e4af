// plan_bench.h: times plans of cuDNN and cuBLASLt on memory of its own. For cuda_plans.c, which chooses by it.
//
// The memory is filled with zeros: engines do the same work whatever the values. Between engines nothing else is on
// the device. Each runs once to warm up and three times between two events; the least of three rounds counts.
#ifndef DT_BACKEND_CUDA_PLAN_BENCH_H
#define DT_BACKEND_CUDA_PLAN_BENCH_H

#include "backend/cuda/cuda_api.h"

// One library's half of the table, so that choosing is written once.
typedef struct dt_plan_kind {
    bool gemm;
    const dt_dnn_desc *dnn;
    const dt_gemm_desc *mul;
} dt_plan_kind;

typedef struct dt_plan_bench {
    dt_cuda_api *api;
    const dt_plan_kind *kind; // borrowed
    void *memory, *workspace, *stream, *event[2];
    void *ptr[DT_DNN_POINTERS]; // as the description lists them
    size_t n_bytes[DT_DNN_POINTERS];
} dt_plan_bench;

// Codes are the table's. Closed either way.
int dt_plan_bench_open(dt_plan_bench *b, dt_cuda_api *api, const dt_plan_kind *k,
                       size_t workspace_bytes);
void dt_plan_bench_close(dt_plan_bench *b);
// Milliseconds of a plan whose workspace fits.
int dt_plan_bench_time(const dt_plan_bench *b, void *plan, float *ms);
// Of filling what pointer `at` names: stands for a pass over it.
int dt_plan_bench_fill(const dt_plan_bench *b, int at, float *ms);

#endif
