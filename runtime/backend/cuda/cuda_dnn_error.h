// cuda_dnn_error.h: cuDNN's words about a failure, a thread's last ones.
#ifndef DT_BACKEND_CUDA_DNN_ERROR_H
#define DT_BACKEND_CUDA_DNN_ERROR_H

#include <cudnn.h>

// Keeps them, with what was being done; returns s. Nothing of a success.
cudnnStatus_t dt_dnn_note(cudnnStatus_t s, const char *doing);
void dt_dnn_note_text(const char *text); // of a failure that is not cuDNN's
// "" without a failure.
const char *dt_cudnn_last_error(void);

#endif
