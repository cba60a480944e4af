// fuzz_safetensors.c: any bytes as a safetensors file. Opening must refuse or give tensors whose data
// lie inside the bytes; every byte that a tensor claims is read, so that a sanitizer sees a lie.
// Parser: runtime/checkpoint/safetensors.c!safetensors_write_by_name|tensor_bytes|print_header|put_tensors|dt_safetensors_(layout_.*|write)
#include "checkpoint/ckpt.h"
#include "checkpoint/ckpt_internal.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static volatile unsigned sink;
    dt_safetensors *s;
    if (dt_safetensors_open_memory(&s, data, size, "fuzz") != DT_OK) return 0;
    for (int i = 0; i < dt_safetensors_count(s); i++) {
        size_t n_bytes;
        const uint8_t *p = dt_safetensors_data(s, i, &n_bytes);
        if (p < data || n_bytes > size || p + n_bytes > data + size) abort();
        if (dt_safetensors_dtype(s, i) > DT_DTYPE_COUNT) abort();
        if (dt_safetensors_find(s, dt_safetensors_name(s, i)) != i) abort();
        for (size_t k = 0; k < n_bytes; k++) sink += p[k];
    }
    (void)sink;
    dt_safetensors_close(s);
    return 0;
}
