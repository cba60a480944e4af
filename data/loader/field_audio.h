// field_audio.h: a field of kind audio: the part of a sound and the features that its keys ask for.
#ifndef DT_DATA_FIELD_AUDIO_H
#define DT_DATA_FIELD_AUDIO_H

#include "data/augment/augment_audio.h"
#include "data/decode/audio.h"

#include "batch/batch_source.h"
#include "config/config.h"

typedef struct dt_audio_field { // immutable: shared by workers
    dt_audio_clip clip;
    dt_features *features;
    dt_augment *augment;   // or NULL
    uint32_t crop_purpose; // of the draw that places the clip
} dt_audio_field;

// From the config alone. DT_E_USAGE with the place in the file.
dt_status dt_audio_field_create(dt_audio_field **out, const dt_config *c, const dt_config_field *keys);
void dt_audio_field_destroy(dt_audio_field *f);
// dtype and shape in a batch: f32 (rows, columns, channels), an image to the network.
void dt_audio_field_describe(const dt_audio_field *f, dt_field_info *out);

#endif
