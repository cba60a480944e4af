// augment_audio.h: random changes to training sounds: to their samples (noise, gain, time_shift) before
// features are computed, and to their features after (freq_mask, time_mask). What a sample gets is a
// function of (seed, epoch, sample, operation), never of the thread, as with images (augment.h).
#ifndef DT_DATA_AUGMENT_AUDIO_H
#define DT_DATA_AUGMENT_AUDIO_H

#include "augment.h"

// `list`: the list under data.augment.<field>; masks: whether there are features to mask. DT_E_USAGE with
// the place in the file. dt_augment_destroy frees it.
dt_status dt_audio_augment_parse(dt_augment **out, const dt_cnode *list, const char *field, bool masks);

// Rows of n samples, stride apart, in place.
dt_status dt_audio_augment_samples(const dt_augment *a, const dt_augment_key *k, float *x, size_t n, size_t n_channels,
                                   size_t stride, dt_buffer *scratch);
// Features (rows, columns, channels), in place.
void dt_audio_augment_features(const dt_augment *a, const dt_augment_key *k, float *x, size_t n_rows, size_t n_columns,
                               size_t n_channels);

#endif
