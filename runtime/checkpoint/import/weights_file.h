// weights_file.h: the tensors of a file that any program wrote: safetensors (ckpt.h) or PyTorch's zip (torch_pickle.h),
// which differ in their first bytes. Values of every type are read as f32.
#ifndef DT_CKPT_WEIGHTS_FILE_H
#define DT_CKPT_WEIGHTS_FILE_H

#include "base/core.h"

typedef struct dt_weights dt_weights;

// A file, or an object by its URL (store/blob.h), which is copied into memory and has max_bytes at most. DT_E_CKPT;
// DT_E_USAGE: a URL that is not read; DT_E_STORAGE: no response.
dt_status dt_weights_open(dt_weights **out, const char *path, uint64_t max_bytes);
void dt_weights_close(dt_weights *w);
int dt_weights_count(const dt_weights *w);
const char *dt_weights_name(const dt_weights *w, int i);
void dt_weights_shape(const dt_weights *w, int i, dt_shape *out);
// Of a safetensors file; else, or where there is none, NULL.
const char *dt_weights_metadata(const dt_weights *w, const char *key);
// Fails where the element type is none that is read, such as a complex or 8-bit float; nothing is read.
dt_status dt_weights_check(const dt_weights *w, int i);
// All elements, row-major. `to` has room for them.
dt_status dt_weights_read(dt_weights *w, int i, float *to);

// Whether a file that begins with these bytes is PyTorch's, of any format.
bool dt_torch_file_is(const void *head, size_t n_bytes);

#endif
