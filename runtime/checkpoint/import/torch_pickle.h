// torch_pickle.h: the tensors that PyTorch's pickle (data.pkl of a .pth file) describes, without running anything of it.
//
// A pickle is a program. This reader knows only what the pickle of a state dict consists of: numbers, texts, tuples,
// lists and dicts, a reference to a storage, and the few functions that make a tensor of one, which it does not call
// but understands. Any other opcode or global is refused by its name.
//
// Names are the keys of the dicts on the way, joined by dots: {"state_dict": {"fc.weight": …}} gives
// "state_dict.fc.weight". Tensors in lists and tuples have no name and are left out.
#ifndef DT_CKPT_TORCH_PICKLE_H
#define DT_CKPT_TORCH_PICKLE_H

#include "base/core.h"

// A view of a storage: element (i, j, …) is storage[offset + i * stride[0] + j * stride[1] + …].
typedef struct dt_torch_tensor {
    const char *name;
    const char *type;         // as safetensors calls it: "F32"
    const char *storage;      // the file in the archive: data/<storage>
    int64_t storage_elements; // by the pickle
    dt_shape shape;
    int64_t offset, stride[DT_MAX_DIMS]; // none negative, all within storage_elements
} dt_torch_tensor;

// All of it lies in the arena. `where` stands for the file in messages. DT_E_CKPT.
dt_status dt_torch_pickle_read(dt_torch_tensor **tensors, int *n, dt_arena *arena, const void *data, size_t n_bytes,
                               const char *where);

#endif
