// encode.h: encodes pixels and samples, for data that is changed before it is packed and for synthetic data. The
// same input gives the same bytes with the same library.
#ifndef DT_DATA_ENCODE_H
#define DT_DATA_ENCODE_H

#include "decode.h"

// Each replaces the contents of `out`. (H,W,C) bytes, 1 or 3 channels. DT_E_DATA: the format cannot hold that
// size; DT_E_INTERNAL: out of memory.
dt_status dt_encode_jpeg(dt_buffer *out, const dt_image *m, int quality); // 1..100, 4:2:0
dt_status dt_encode_png(dt_buffer *out, const dt_image *m);
// 16-bit PCM of (channels, n) samples of -1..1, rows `stride` apart. Samples that came from 16 bits are unchanged.
dt_status dt_encode_wav(dt_buffer *out, const float *x, int channels, int64_t n, size_t stride, int rate);

#endif
