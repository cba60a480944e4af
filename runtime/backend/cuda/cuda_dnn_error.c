// cuda_dnn_error.c: see cuda_dnn_error.h. cuDNN forgets its text with the next call, so it is kept at once.
#include "backend/cuda/cuda_dnn_error.h"

#include <stdio.h>

static _Thread_local char last_error[512];

cudnnStatus_t dt_dnn_note(cudnnStatus_t s, const char *doing) {
    if (s == CUDNN_STATUS_SUCCESS) return s;
    char text[400] = "";
    cudnnGetLastErrorString(text, sizeof text);
    snprintf(last_error, sizeof last_error, "%s: %s%s%s", doing, cudnnGetErrorString(s),
             text[0] ? ": " : "", text);
    return s;
}

void dt_dnn_note_text(const char *text) {
    snprintf(last_error, sizeof last_error, "%s", text);
}

const char *dt_cudnn_last_error(void) {
    return last_error;
}
