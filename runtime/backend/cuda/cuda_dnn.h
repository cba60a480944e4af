// cuda_dnn.h: dt_dnn_desc as a plan of cuDNN. For the real table, and for asking cuDNN what it supports on a
// device that is not there.
//
// Needs cuDNN 9.5 or newer. Errors are 0 or a code that dt_cudnn_error_text explains; codes of cuDNN are
// DT_CUDNN_ERROR + its status, so that one int names the errors of all libraries. A context belongs to one
// thread at a time.
#ifndef DT_BACKEND_CUDA_DNN_H
#define DT_BACKEND_CUDA_DNN_H

#include "backend/cuda/cuda_api.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DT_CUDNN_ERROR = 0x100000 };

typedef struct dt_cudnn dt_cudnn;
typedef struct dt_cudnn_plan dt_cudnn_plan;

// device_json NULL: the current device. Else a description of one (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION):
// plans can be made and asked for their workspace, not run.
int dt_cudnn_open(dt_cudnn **out, const char *device_json);
void dt_cudnn_close(dt_cudnn *c); // NULL is fine; plans must be gone
const char *dt_cudnn_error_text(int error);
const char *
dt_cudnn_last_error(void);  // what cuDNN said of this thread's last failure; "" without one
int dt_cudnn_version(void); // 91900

// How many engine configurations are offered that obey the description's demands, cuDNN's favourite first.
// 0 is no error: nothing supports it.
int dt_cudnn_choices(dt_cudnn *c, const dt_dnn_desc *d, int *n);
// How many of them, the last ones, are compiled when a plan is made; whether one of them is.
int dt_cudnn_compiled(dt_cudnn *c, const dt_dnn_desc *d);
bool dt_cudnn_compiles(dt_cudnn *c, const dt_dnn_desc *d, int choice);
// Whether an error says that there is no engine; false: a library is missing, memory is short, …
bool dt_cudnn_is_refusal(int error);
int dt_cudnn_plan_create(dt_cudnn *c, const dt_dnn_desc *d, int choice, dt_cudnn_plan **out,
                         size_t *workspace_bytes);
void dt_cudnn_plan_destroy(dt_cudnn_plan *p);
// What a plan is made of, heap: one line of text without NUL, 2 KB, or 70-110 KB with compiled code in it. And
// the plan again, in this or another process, without asking for choices and without compiling; refused for
// another graph than d's, another version of cuDNN or another kind of device.
int dt_cudnn_plan_text(const dt_cudnn_plan *p, char **text);
int dt_cudnn_plan_restore(dt_cudnn *c, const dt_dnn_desc *d, const char *text, dt_cudnn_plan **out,
                          size_t *workspace_bytes);
// Queues on the stream. ptr: as dt_dnn_kind lists them.
int dt_cudnn_run(dt_cudnn *c, dt_cudnn_plan *p, void *const *ptr, void *workspace, void *stream);

#ifdef __cplusplus
}
#endif

#endif
