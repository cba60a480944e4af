// media_info.h: what the header of an image or a recording says of its shape, without decoding it.
#ifndef DT_DATA_MEDIA_INFO_H
#define DT_DATA_MEDIA_INFO_H

#include "data/file/bytes.h"

#include <stdbool.h>

typedef struct dt_media_info { // NaN: there is no such thing, or the header does not say
    double width, height, channels, samples, rate;
} dt_media_info;

// JPEG, PNG, BMP, PBM/PGM/PPM, WAV, FLAC and FITS, told by their first bytes. `head`: the member or its
// beginning; `size`: all of it. False: none of these, or cut before the shape. Any bytes are safe.
bool dt_media_info_read(dt_media_info *out, dt_span head, uint64_t size);

#endif
