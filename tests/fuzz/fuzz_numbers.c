// fuzz_numbers.c: any bytes as a vector of 1 to 8 numbers: text, raw floats or NPY.
// Parser: data/decode/decode_simple.c
#include "data/decode/array.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    static dt_buffer scratch;
    for (int64_t n = 1; n <= 8; n++) {
        double *out = malloc((size_t)n * sizeof *out); // exact, so that a write behind it is seen
        dt_status st = dt_decode_numbers((dt_span){data, n_bytes}, n, out, &scratch);
        if (st != DT_OK && st != DT_E_DATA) abort();
        free(out);
    }
    return 0;
}
