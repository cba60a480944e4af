// cuda_gemm.h: turns dt_gemm_desc into plans of cuBLASLt, for the real table.
//
// Errors are 0 or DT_CUBLAS_ERROR + cuBLAS's status. A context belongs to one thread at a time.
#ifndef DT_BACKEND_CUDA_GEMM_H
#define DT_BACKEND_CUDA_GEMM_H

#include "backend/cuda/cuda_api.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DT_CUBLAS_ERROR = 0x200000 };

typedef struct dt_cublas dt_cublas;
typedef struct dt_cublas_plan dt_cublas_plan;

int dt_cublas_open(dt_cublas **out); // on the current device
void dt_cublas_close(dt_cublas *c);  // NULL is allowed; all plans must be destroyed
const char *dt_cublas_error_text(int error);
int dt_cublas_version(void);          // 130100
bool dt_cublas_is_refusal(int error); // true: no algorithm; false: something is broken

// The number of algorithms that the heuristics offer, the favourite first.
int dt_cublas_choices(dt_cublas *c, const dt_gemm_desc *d, int *n);
int dt_cublas_plan_create(dt_cublas *c, const dt_gemm_desc *d, int choice, dt_cublas_plan **out,
                          size_t *workspace_bytes);
void dt_cublas_plan_destroy(dt_cublas_plan *p);
// Queues the plan on the stream. add: to D. bias, aux: NULL if the epilogue has none.
int dt_cublas_run(dt_cublas *c, dt_cublas_plan *p, const void *A, const void *B, void *D, bool add, void *bias,
                  void *aux, void *workspace, void *stream);

#ifdef __cplusplus
}
#endif

#endif
