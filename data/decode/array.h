// array.h: arrays of numbers (NPY, FITS) as images and as vectors. A decoder says which planes it has and reads
// one at a time; choosing bands, stretching, converting and placing them is common.
#ifndef DT_DATA_ARRAY_H
#define DT_DATA_ARRAY_H

#include "decode.h"

#include "config/words.h"

typedef enum dt_range { DT_RANGE_WORDS(DT_WORD_CONSTANT) DT_RANGE_given } dt_range;

enum { DT_MAX_HDUS = 16 };

// What a field makes of an array.
typedef struct dt_array_spec {
    bool f32;                      // pixels as floats; else bytes: stretched values times 255, others as they are, both
                                   // rounded and cut to 0..255
    bool chw;                      // NPY of three axes: channels first; else last
    int n_hdus;                    // FITS: units whose planes are taken, one after another; 0: the first image
    const char *hdus[DT_MAX_HDUS]; // EXTNAME, or number from 0 (the primary one); borrowed
    int n_bands, bands[DT_MAX_CHANNELS]; // planes to take, in this order; 0: all as they come
    dt_stretch stretch;                  // to 0..1, each channel by itself
    dt_range range;                      // the values that become 0 and 1
    double low, high;                    // DT_RANGE_given
    double softening;                    // asinh: share of the range below which it is about linear
    double origin[DT_MAX_CHANNELS];      // f32 unstretched: by channel, subtracted from values before they are rounded
} dt_array_spec;

// ---- planes ----------------------------------------------------------------------------------------
typedef struct dt_planes {
    const char *format; // for messages
    int64_t width, height, n;
    // Plane i of n as width x height floats less `origin`, rows dense; NaN where the file has no value.
    dt_status (*read)(void *ctx, int64_t i, double origin, float *out);
    void *ctx;
} dt_planes;

// The spec that a want implies.
const dt_array_spec *dt_array_spec_of(const dt_image_want *w);
// DT_E_DATA if the bands are not there or do not make want->channels.
dt_status dt_planes_to_image(const dt_image_sink *sink, const dt_planes *p, dt_image *out);

// ---- FITS ------------------------------------------------------------------------------------------
// Slices along the last axis (NumPy's first) of the first image of three or four axes: how many there are; and slice k as
// a file of its own, with its numbers as they are and their scale. DT_E_DATA: no such image, or a damaged one.
dt_status dt_fits_count_slices(dt_span bytes, int64_t *n);
dt_status dt_fits_take_slice(dt_span bytes, int64_t k, dt_buffer *out);

// ---- NPY -------------------------------------------------------------------------------------------
enum { DT_NPY_MAX_AXES = 32 };
typedef struct dt_npy {
    char kind;    // b, i, u or f
    int size;     // bytes an element: 1, 2, 4 or 8
    bool swapped; // the file is big endian
    int n_axes;
    int64_t shape[DT_NPY_MAX_AXES], stride[DT_NPY_MAX_AXES]; // stride in elements
    int64_t n;                                               // elements, all there
    const uint8_t *data;
} dt_npy;

bool dt_npy_is(dt_span bytes);
// Versions 1 to 3; numbers only: object arrays (pickles), records and text are refused.
dt_status dt_npy_read(dt_span bytes, dt_npy *out);
// Element at `at` (in elements).
double dt_npy_get(const dt_npy *a, int64_t at);

// ---- vectors ---------------------------------------------------------------------------------------
// Exactly n numbers: an NPY array, text (separated by white space, commas, semicolons, brackets), or n raw
// little-endian floats. DT_E_DATA: other bytes, another count, or several rows of several numbers.
dt_status dt_decode_numbers(dt_span bytes, int64_t n, double *out, dt_buffer *scratch);

// ---- series ----------------------------------------------------------------------------------------
// Extensions of series; text of other ones may be anything.
#define DT_SERIES_EXTS "npy", "csv", "tsv", "edf", "bdf", "mat"
// What to take of a file with several series, in this order; n 0: all.
typedef struct dt_series_names {
    int n;
    const char *name[64]; // borrowed
} dt_series_names;
// Whether the bytes are an NPY array, text of numbers, EDF, BDF or MATLAB's; then the array of two axes, samples and channels, which
// they are: NPY of (T, C) or (T), text with a row a sample, signals by label. *rate: Hz, or 0 where the file has none.
// `scratch` keeps numbers that do not lie in the file. DT_E_DATA: more axes, rows that differ in length, no such signal.
bool dt_series_is(dt_span bytes);
dt_status dt_series_read(dt_span bytes, const dt_series_names *names, dt_npy *out, double *rate, dt_buffer *scratch);
// decode_edf.c, decode_mat.c
bool dt_edf_is(dt_span bytes);
dt_status dt_edf_read(dt_span bytes, const dt_series_names *names, dt_npy *out, double *rate, dt_buffer *scratch);
bool dt_mat_is(dt_span bytes);
dt_status dt_mat_read(dt_span bytes, const dt_series_names *names, dt_npy *out, dt_buffer *scratch);

#endif
