// fit.h: how a picture of another aspect ratio becomes an image of the field's size where no random crop
// applies: in evaluation, and in training without random_resized_crop.
#ifndef DT_DATA_FIT_H
#define DT_DATA_FIT_H

#include "augment.h"

#include "config/config.h"

typedef struct dt_fit {
    dt_fit_kind kind;
    int short_side; // crop: the shorter side is resized to this first; 0: as far as the part goes
} dt_fit;

// data.fields.<name>.fit and short_side, for an image of w x h. DT_E_USAGE with the place.
dt_status dt_fit_read(dt_fit *out, const dt_config *c, const dt_config_field *f, int w, int h);

// Crop: the part {left, top, right, bottom} of a width x height picture that is resized to w x h. Gives the
// pixels of torchvision's Resize(short_side) and CenterCrop((h, w)). The whole picture otherwise.
void dt_fit_box(const dt_fit *f, int w, int h, int width, int height, double box[4]);
// Pad: where the whole picture goes within w x h: centred, its aspect ratio kept.
dt_rect dt_fit_place(int w, int h, int width, int height);
// Pad: copies `small` (at.w x at.h, bytes or floats) to `at` of `to`, and fills the rest with fill[channel] *
// scale.
void dt_fit_frame(const dt_image *small, dt_rect at, const double *fill, float scale, dt_image *to);

#endif
