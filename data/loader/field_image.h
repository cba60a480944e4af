// field_image.h: the keys of an image field that say what becomes of arrays (FITS, NPY).
#ifndef DT_DATA_FIELD_IMAGE_H
#define DT_DATA_FIELD_IMAGE_H

#include "data/decode/array.h"

#include "config/config.h"

// bands, layout, stretch, range, softening and dtype of data.fields.<name>. DT_E_USAGE with the place.
dt_status dt_array_spec_read(dt_array_spec *out, const dt_config *c, const char *name,
                             int channels);

#endif
