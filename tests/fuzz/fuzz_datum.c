// fuzz_datum.c: any bytes as a Caffe Datum, read and decoded. Must answer, never crash; data and floats of
// what it accepts lie inside the message.
// Parser: data/file/datum.c data/decode/decode_simple.c
#include "data/decode/decode.h"
#include "data/file/datum.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    dt_blob b;
    dt_datum d;
    dt_blob_from_memory(&b, "fuzz", data, n_bytes);
    if (dt_datum_read(&b, 0, n_bytes, &d) != DT_OK) return 0;
    if (d.n_data > n_bytes || d.data_at > n_bytes - d.n_data) abort();
    uint64_t n_floats = d.n_floats * (d.packed ? 4 : 5);
    if (d.n_floats > n_bytes || n_floats > n_bytes || d.float_at > n_bytes - n_floats) abort();
    if (!d.encoded && (d.channels < 1 || d.height < 1 || d.width < 1)) abort();
    dt_decoder *decoder = dt_decoder_create();
    dt_image image;
    for (int channels = 1; channels <= 3; channels += 2)
        dt_decode_image(decoder, (dt_span){data, n_bytes}, channels, 0, 0, NULL, &image);
    dt_decoder_destroy(decoder);
    return 0;
}
