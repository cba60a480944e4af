// augment.h: random changes to training images: a list of operations, parsed once from the config. What a
// sample gets is a function of (seed, epoch, sample or draw, operation), never of the thread.
#ifndef DT_DATA_AUGMENT_H
#define DT_DATA_AUGMENT_H

#include "data/decode/decode.h"

#include "batch/pixel_steps.h"
#include "config/config.h"

#include <stdint.h>

typedef struct dt_augment dt_augment; // immutable: shared by workers

// data.augment names images and sounds of data.fields, or DT_E_USAGE with the place in the file.
dt_status dt_augment_check_fields(const dt_config *c);
// `list`: the list under data.augment.<field>. DT_E_USAGE with the place in the file.
dt_status dt_augment_parse(dt_augment **out, const dt_cnode *list, const char *field);
void dt_augment_destroy(dt_augment *a);

typedef struct dt_augment_key {
    uint64_t seed;
    // sample: its view index, or its position in the epoch where it may be drawn several times
    uint32_t sample, epoch;
} dt_augment_key;

// Whether the list starts with random_resized_crop.
bool dt_augment_crops(const dt_augment *a);
// The part of the decoded image to resize from, {left, top, right, bottom}. False: there is no such operation,
// or it does not happen (p).
bool dt_augment_box(const dt_augment *a, const dt_augment_key *k, int width, int height, double box[4]);
// The first operation that cannot change floats (dt_image.real), or NULL. Operations that only move pixels can.
const char *dt_augment_of_bytes(const dt_augment *a);
// Whether this sample begins with a left-right flip that the resize may do (dt_resize_mirrored,
// image->mirrored). The resulting bytes are the same either way.
bool dt_augment_mirrors(const dt_augment *a, const dt_augment_key *k);
// Whether its flips together turn left and right.
bool dt_augment_flips(const dt_augment *a, const dt_augment_key *k);
// Applies the other operations in place to (H,W,C) bytes or floats, through `scratch`; without that flip if
// image->mirrored.
dt_status dt_augment_apply(const dt_augment *a, const dt_augment_key *k, dt_image *image, dt_buffer *scratch);

// dt_augment_apply for bytes only, but leaves the tail of the list to a device: `steps` receives
// dt_augment_device_steps steps for it (batch/pixel_steps.h), unused ones DT_PIXEL_END. Host and device
// together give the same bytes. 0: nothing can be left.
int dt_augment_device_steps(const dt_augment *a);
dt_status dt_augment_split(const dt_augment *a, const dt_augment_key *k, dt_image *image, dt_buffer *scratch,
                           dt_pixel_step *steps);

// The i-th operation of the table with its parameters, as a line of a Markdown table or as plain text, into
// buf; NULL beyond the last.
const char *dt_augment_describe(int i, bool markdown, char *buf, size_t cap);

#endif
