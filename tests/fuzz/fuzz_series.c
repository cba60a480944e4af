// fuzz_series.c: any bytes as a series (NPY, text, EDF, MATLAB): all values are there and can be read, or DT_E_DATA.
// Parser: data/decode/decode_edf.c data/decode/decode_mat.c
#include "data/decode/array.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    static const dt_series_names NAMES[] = {{0}, {1, {"EEG 1"}}, {1, {"x"}}, {2, {"EEG 2", "EEG 0"}}};
    static dt_buffer scratch;
    static volatile double sum;
    for (int k = 0; k < 4; k++) {
        dt_npy a;
        double rate;
        const dt_status st = dt_series_read((dt_span){data, n_bytes}, &NAMES[k], &a, &rate, &scratch);
        if (st != DT_OK && st != DT_E_DATA) abort();
        for (int64_t i = 0; st == DT_OK && i < a.shape[0]; i++)
            for (int64_t c = 0; c < a.shape[1]; c++) sum += dt_npy_get(&a, i * a.stride[0] + c * a.stride[1]);
    }
    (void)sum;
    return 0;
}
