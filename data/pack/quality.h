// quality.h: how good a picture or a recording is, as numbers for the catalog: `data.where: quality > 0.4` leaves
// out what is blurred, flat or silent.
//
// Pictures, of the luma Y (0..255) of (H,W,C) bytes:
//   brightness  mean of Y / 255
//   contrast    standard deviation of Y / 255 (RMS contrast)
//   sharpness   variance of the 4-neighbour Laplacian of Y, inside (Pech-Pacheco et al., 2000); pictures
//               out of focus have less than about 100
//   entropy     bits of the histogram of Y, 0..8
//   clipping    share of pixels that are 0 or 255
//   snr         20 log10(standard deviation of Y / noise) in dB, noise by Immerkaer's estimate (1996),
//               at most 99
//   quality     0..1: fourth root of sharpness/(sharpness+100) * min(1, contrast/0.25) * entropy/8 *
//               (1 - clipping)
// Recordings, of samples in -1..1:
//   level       RMS in dB below full scale, not below -99
//   peak        largest absolute sample
//   clipping    share of samples of at least 0.999
//   silence     share of 20 ms frames below -60 dB; all of it when it is shorter than one
//   snr         10 log10 of the 95th over the 10th percentile of the frames' power, 0..99 dB
//   quality     0..1: cube root of (1 - silence) * (1 - clipping) * snr/(snr+10)
#ifndef DT_DATA_QUALITY_H
#define DT_DATA_QUALITY_H

#include "data/decode/decode.h"

typedef struct dt_image_quality {
    double brightness, contrast, sharpness, entropy, clipping, snr, quality;
} dt_image_quality;
// Bytes, 1 or 3 channels, at least 3 x 3 for sharpness and snr (else 0). `scratch` takes Y.
dt_status dt_quality_of_image(dt_image_quality *out, const dt_image *image, dt_buffer *scratch);

typedef struct dt_audio_quality {
    double level, peak, clipping, silence, snr, quality;
} dt_audio_quality;
// (channels, n), a channel after the other; frames count over all. `scratch` takes the frames' power.
dt_status dt_quality_of_audio(dt_audio_quality *out, const float *x, int channels, int64_t n, int rate,
                              dt_buffer *scratch);

#endif
