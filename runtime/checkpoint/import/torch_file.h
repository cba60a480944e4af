// torch_file.h: a .pth or .pt file of PyTorch: a zip with a pickle (data.pkl) that describes tensors, and their storages
// (data/0, data/1, …), which are stored as they are. minizip reads the zip and checks its CRCs, torch_pickle.h the
// pickle. One storage is in memory at a time.
//
// Refused, with what to do: the format before PyTorch 1.6, which is no zip, and TorchScript archives.
#ifndef DT_CKPT_TORCH_FILE_H
#define DT_CKPT_TORCH_FILE_H

#include "torch_pickle.h"

typedef struct dt_torch_file dt_torch_file;

// Whether a file that begins with these bytes is PyTorch's, of any format.
bool dt_torch_file_is(const void *head, size_t n_bytes);
// `path` names the file in messages.
dt_status dt_torch_file_open(dt_torch_file **out, const char *file, const char *path);
void dt_torch_file_close(dt_torch_file *f);
int dt_torch_file_count(const dt_torch_file *f);
const dt_torch_tensor *dt_torch_file_tensor(const dt_torch_file *f, int i);
// The storage of tensor i, all of it; valid until the next call.
dt_status dt_torch_file_storage(dt_torch_file *f, int i, const void **data);

#endif
