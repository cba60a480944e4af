// cuda_real_libs.c: the table's dnn_* and gemm_* over cuda_dnn.h and cuda_gemm.h (see cuda_real_parts.h).
//
// One context of each library, opened for the first plan on the device in use. A process has one device and one table.
// Each run names its stream, so one context serves all streams.
#include "backend/cuda/cuda_dnn.h"
#include "backend/cuda/cuda_gemm.h"
#include "backend/cuda/cuda_real_parts.h"

#include <stdio.h>

static dt_cudnn *dnn;
static dt_cublas *blas;

static int open_dnn(void) {
    return dnn ? 0 : dt_cudnn_open(&dnn, NULL);
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
    static _Thread_local char text[600];
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
