// datum.h: Caffe's Datum, a protobuf message: an image as raw pixels (channel by channel, blue first), as
// floats, or as an encoded file, with an integer label.
#ifndef DT_DATA_DATUM_H
#define DT_DATA_DATUM_H

#include "store/blob.h"

typedef struct dt_datum {
    int64_t channels, height, width, label;
    bool has_label, encoded;
    uint64_t data_at, n_data; // the bytes of `data`, in the blob
    uint64_t float_at;        // of the first float's tag, or of the packed floats
    uint64_t n_floats;
    bool packed; // floats lie one after another; else each has a tag byte in front
} dt_datum;

// Reads the message of n_bytes at `at`, but not its pixels. DT_E_DATA: it is not a Datum (it has another field, or
// a field exceeds the message).
dt_status dt_datum_read(const dt_blob *b, uint64_t at, uint64_t n_bytes, dt_datum *out);

#endif
