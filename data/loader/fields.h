// fields.h: the config's data.fields, resolved against a catalog: where each field's bytes or value
// comes from and what it looks like in a batch.
#ifndef DT_DATA_LOADER_FIELDS_H
#define DT_DATA_LOADER_FIELDS_H

#include "batch/batch_source.h"
#include "config/config.h"
#include "config/words.h"
#include "data/augment/augment.h"
#include "data/augment/augment_audio.h"
#include "data/augment/fit.h"
#include "data/catalog/catalog.h"
#include "data/decode/array.h"
#include "data/decode/audio.h"

#include <stdio.h>

// ---- field audio --------------------------------------------------------------------------------------------------

// A field of kind audio: the part of a sound and the features that its keys ask for.

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

// ---- fields -------------------------------------------------------------------------------------------------------

// A column that a number comes from: a number column, or a metadata column whose values are numbers.
typedef struct dt_number_source {
    int column;
    double *by_value; // of a metadata column; of a number column NULL
} dt_number_source;

typedef struct dt_field {
    dt_field_kind kind;
    const char *name;
    bool absent;               // it has no value: zeros
    bool tells_apart;          // class: it has values that the run does not know
    int part;                  // which record of a sample (pairs: 0 or 1)
    int column;                // class: metadata column; else -1
    int32_t *label;            // class: by value of the column
    bool is_input;             // class: a row of its info's n_categories numbers, zeros for other labels and no value
    const char **class_names;  // by label; NULL: the values are the labels
    bool *is_ext;              // member: by extension of the catalog
    dt_number_source *numbers; // real and vector from columns: one an element; NULL: a member
    int n_numbers;
    const char **element_names; // numbers, by element; NULL: they have none
    bool rotation;              // six numbers of a target whose loss takes rotations
    float *mirror;              // numbers: factors where the image is flipped; or NULL
    int mirror_of;              // the field of that image
    size_t sample_bytes;
    dt_augment *augment;   // image; or NULL
    dt_array_spec array;   // image
    dt_fit fit;            // image
    int64_t max_pixels;    // image: of a file; 0: the decoder's limits
    dt_audio_field *audio; // audio
    dt_number_source rate; // audio: column of a series' rate; -1: none
} dt_field;

typedef struct dt_fields {
    struct json_t *classes; // of the run, or NULL
    int n;
    dt_field f[DT_MAX_FIELDS];
    dt_field_info info[DT_MAX_FIELDS];
} dt_fields;

// Names are borrowed from the config, which must outlive it. Without a catalog (NULL) only `info` and what else the
// config alone says is filled in. classes, uses: see dt_data_open_as, or NULL. DT_E_USAGE with file:line:column.
dt_status dt_fields_resolve(dt_fields *out, const dt_config *config, const dt_catalog *c, const char *classes,
                            const dt_field_use *uses);
void dt_fields_fini(dt_fields *f);
int dt_fields_find(const dt_fields *f, const char *name); // -1: none
// Index into catalog->members of the record's member for this field, or -1.
int64_t dt_field_member(const dt_field *f, const dt_catalog *c, uint32_t record);
// Measures a field of numbers from columns over the records of the training part: sets info.mean_or_std and, where
// normalize is auto, info.mean and info.std. Call it before numbers of the field are read.
void dt_fields_measure(dt_fields *f, int field, const dt_catalog *c, const uint32_t *records, uint32_t n);
// Element i of a real or vector field that comes from columns, normalised.
float dt_field_number(const dt_fields *f, int field, int i, const dt_catalog *c, uint32_t record);
// The rate in Hz that the field's column states of a record's series; 0: none.
double dt_field_rate(const dt_field *f, const dt_catalog *c, uint32_t record);
// Whether the record can give this field.
bool dt_field_present(const dt_field *f, const dt_catalog *c, uint32_t record);

// ---- field keys ---------------------------------------------------------------------------------------------------

// The config of one field, and its keys' paths for messages.

typedef struct dt_field_keys {
    const dt_config *c;
    const dt_config_field *f;
    char path[320]; // the last one that was asked for
} dt_field_keys;

// "data.fields.<name>.<leaf>"; the field itself for leaf "". Valid until the next call.
static inline const char *dt_key_of(dt_field_keys *k, const char *leaf) {
    snprintf(k->path, sizeof k->path, "data.fields.%s%s%s", k->f->id, *leaf ? "." : "", leaf);
    return k->path;
}

// The steps that data.augment lists for the field, or NULL.
static inline const dt_cnode *dt_key_augment(const dt_field_keys *k) {
    const dt_cnode *all = k->c->data.augment;
    return all && dt_cnode_kind(all) == DT_C_MAP ? dt_cnode_get(all, k->f->id) : NULL;
}

// ---- field mirror -------------------------------------------------------------------------------------------------

// Numbers that change where their sample's image is flipped left-right (data.fields.*.mirror): each is
// multiplied by 1 or -1. Of a pose as yaw, pitch and roll it is [-1, 1, -1]; of a rotation as the first two columns of
// its matrix R, which becomes M R M with M = diag(-1, 1, 1), it is [1, -1, -1, -1, 1, 1].

// Of all fields. DT_E_USAGE with the place: not one factor an element, another number, not one image.
dt_status dt_field_mirrors_read(dt_fields *f, const dt_config *c);
// In place: a training sample's values of the field, normalised.
void dt_field_mirror(const dt_fields *f, int field, const dt_augment_key *k, float *x);

#endif
