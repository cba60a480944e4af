// fields.h: the config's data.fields, resolved against a catalog: where each field's bytes or value
// comes from and what it looks like in a batch.
#ifndef DT_DATA_FIELDS_H
#define DT_DATA_FIELDS_H

#include "data/augment/augment.h"
#include "data/augment/fit.h"
#include "data/catalog/catalog.h"
#include "data/decode/array.h"
#include "field_audio.h"

#include "batch/batch_source.h"
#include "config/config.h"
#include "config/field_words.h"

// A column that a number comes from: a number column, or a metadata column whose values are numbers.
typedef struct dt_number_source {
    int column, real; // one of them is -1
    double *by_value; // of the metadata column
} dt_number_source;

typedef struct dt_field {
    dt_field_kind kind;
    const char *name;
    bool absent;               // it has no value: zeros
    bool tells_apart;          // class: it has values that the run does not know
    int part;                  // which record of a sample (pairs: 0 or 1)
    int column;                // class: metadata column; else -1
    int32_t *label;            // class: by value of the column
    const char **class_names;  // by label; NULL: the values are the labels
    bool *is_ext;              // member: by extension of the catalog
    dt_number_source *numbers; // real and vector from columns: one an element; NULL: a member
    int n_numbers;
    const char **element_names; // numbers, by element; NULL: they have none
    bool rotation;              // six numbers of a target whose loss takes rotations
    float *mirror;              // numbers: factors of a flipped image's (field_mirror.h); or NULL
    int mirror_of;              // the field of that image
    size_t sample_bytes;
    dt_augment *augment;   // image; or NULL
    dt_array_spec array;   // image
    dt_fit fit;            // image
    dt_audio_field *audio; // audio
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
// Whether the record can give this field.
bool dt_field_present(const dt_field *f, const dt_catalog *c, uint32_t record);

#endif
