// encode.h: pixels and samples -> the bytes of a file, for what is changed before it is packed and for
// what is invented. The same input gives the same bytes with the same library.
#ifndef DT_DATA_ENCODE_H
#define DT_DATA_ENCODE_H

#include "data/decode/decode.h"

// Each replaces the contents of `out`. (H,W,C) bytes, 1 or 3 channels. DT_E_DATA: a size that the format
// cannot hold; DT_E_INTERNAL: out of memory.
dt_status dt_encode_jpeg(dt_buffer *out, const dt_image *m, int quality); // 1..100, 4:2:0
dt_status dt_encode_png(dt_buffer *out, const dt_image *m);
// 16-bit PCM of (channels, n) samples of -1..1, rows `stride` apart; what was 16 bits before is unchanged.
dt_status dt_encode_wav(dt_buffer *out, const float *x, int channels, int64_t n, size_t stride,
                        int rate);

#endif
