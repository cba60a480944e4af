// cuda_dnn.h: turns dt_dnn_desc into plans of cuDNN. Used by the real table, and by the test that queries cuDNN what it
// supports on devices that are not there.
//
// Needs cuDNN 9.5 or newer. Errors are 0 or a code that dt_cudnn_error_text explains. A cuDNN status becomes
// DT_CUDNN_ERROR + status, so that one int covers the errors of all libraries. A context belongs to one thread at a
// time.
#ifndef DT_BACKEND_CUDA_CUDA_DNN_H
#define DT_BACKEND_CUDA_CUDA_DNN_H

#include "backend/cuda/cuda_api.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DT_CUDNN_ERROR = 0x100000 };

typedef struct dt_cudnn dt_cudnn;
typedef struct dt_cudnn_plan dt_cudnn_plan;

// device_json NULL: opens the current device. Otherwise it describes one (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION):
// plans can be made and return their workspace's size, but cannot run.
int dt_cudnn_open(dt_cudnn **out, const char *device_json);
void dt_cudnn_close(dt_cudnn *c); // NULL is allowed; all plans must be destroyed
const char *dt_cudnn_error_text(int error);
const char *dt_cudnn_last_error(void); // cuDNN's message of this thread's last failure; "" without one
int dt_cudnn_version(void);            // 91900

// The number of engine configurations that meet the description's demands, cuDNN's favourite first. 0 is not an error:
// cuDNN does not support the description.
int dt_cudnn_choices(dt_cudnn *c, const dt_dnn_desc *d, int *n);
// How many of them, at the end, compile when a plan is made; and whether a given one does.
int dt_cudnn_compiled(dt_cudnn *c, const dt_dnn_desc *d);
bool dt_cudnn_compiles(dt_cudnn *c, const dt_dnn_desc *d, int choice);
// True: there is no engine. False: a library is missing, memory is short, ...
bool dt_cudnn_is_refusal(int error);
int dt_cudnn_plan_create(dt_cudnn *c, const dt_dnn_desc *d, int choice, dt_cudnn_plan **out, size_t *workspace_bytes);
void dt_cudnn_plan_destroy(dt_cudnn_plan *p);
// Queues the plan on the stream. ptr: as dt_dnn_kind lists them.
int dt_cudnn_run(dt_cudnn *c, dt_cudnn_plan *p, void *const *ptr, void *workspace, void *stream);

#ifdef __cplusplus
}
#endif

// ---- cuda gemm ----------------------------------------------------------------------------------------------------

// Turns dt_gemm_desc into plans of cuBLASLt, for the real table.
//
// Errors are 0 or DT_CUBLAS_ERROR + cuBLAS's status. A context belongs to one thread at a time.

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
