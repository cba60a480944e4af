// fuzz_pickle.c: any bytes as data.pkl of a PyTorch file. Reading must refuse, or give tensors that lie within what they
// say of their storage: first and last element are worked out here by other means.
// Parser: runtime/checkpoint/import/torch_pickle.c
#include "checkpoint/import/torch_pickle.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    dt_torch_tensor *tensors;
    dt_arena arena;
    int n;
    dt_arena_init(&arena);
    if (dt_torch_pickle_read(&tensors, &n, &arena, data, size, "fuzz") == DT_OK) {
        for (int i = 0; i < n; i++) {
            const dt_torch_tensor *t = &tensors[i];
            __int128 last = t->offset;
            bool empty = false;
            for (int d = 0; d < t->shape.n; d++) {
                empty |= t->shape.d[d] == 0;
                last += (__int128)(t->shape.d[d] - 1) * t->stride[d];
            }
            if (!empty && (t->offset < 0 || last >= t->storage_elements)) abort();
            if (!*t->type || !t->storage || !t->name) abort();
        }
    }
    dt_arena_fini(&arena);
    return 0;
}
