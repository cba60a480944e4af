// media_info.h: the shape of an image or a recording from its header, without decoding.
#ifndef DT_DATA_MEDIA_INFO_H
#define DT_DATA_MEDIA_INFO_H

#include "data/file/bytes.h"

#include <stdbool.h>

typedef struct dt_media_info { // NaN: does not apply, or the header does not say
    double width, height, channels, samples, rate;
} dt_media_info;

// JPEG, PNG, WebP, BMP, PBM/PGM/PPM, WAV, FLAC, Ogg (Vorbis, Opus) and FITS, known by their first bytes. `head`: the
// member or its beginning; `size`: of the whole member. False: another format, or a cut header. Any bytes are safe.
bool dt_media_info_read(dt_media_info *out, dt_span head, uint64_t size);

#endif
