// decode_fits.c: FITS images through cfitsio, from memory.
//
// The first header unit that holds an image of two or three axes counts, whether plain or compressed by tiles
// (.fz). The library applies BSCALE, BZERO and BLANK, and converts every BITPIX to floats. The third axis is
// bands; further axes must have length 1. The first row of the array is the first row of the image, as in
// astropy and NumPy (so pictures stand on their head for who displays the origin at the bottom; networks do
// not care, and augmentation flips).
//
// The library allocates for every file it opens. Where it is built without thread support, one lock goes
// around it. Its messages gather in a list of the process, which is emptied after an error.
#include "array.h"

#include "base/arena.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <fitsio.h>

enum { MAX_AXES = 8, MAX_UNITS = 64, BLOCK = 2880 };

typedef struct fits_view {
    fitsfile *file;
    int n_axes;
    LONGLONG size[MAX_AXES];
} fits_view;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static dt_status fail(int status) {
    char text[FLEN_STATUS] = "";
    fits_get_errstatus(status, text);
    fits_clear_errmsg();
    return dt_fail(DT_E_DATA, "FITS: %s", text);
}

// A sane header's start, so that the library is asked about nothing else.
static dt_status check_start(dt_span s) {
    if (s.n_bytes < BLOCK) return dt_fail(DT_E_DATA, "FITS: cut in its header");
    for (size_t i = 0; i < BLOCK; i++)
        if (s.data[i] < ' ' || s.data[i] > '~')
            return dt_fail(DT_E_DATA, "FITS: byte 0x%02x in its header", s.data[i]);
    return DT_OK;
}

static dt_status find_image(fits_view *v) {
    int status = 0, n_units = 0, bits, n;
    fits_get_num_hdus(v->file, &n_units, &status);
    for (int unit = 1; unit <= n_units && unit <= MAX_UNITS && status == 0; unit++) {
        int type = 0;
        fits_movabs_hdu(v->file, unit, &type, &status);
        if (status || type != IMAGE_HDU) continue;
        fits_get_img_paramll(v->file, MAX_AXES, &bits, &n, v->size, &status);
        if (status || n < 2 || n > MAX_AXES) continue;
        while (n > 2 && v->size[n - 1] == 1) n--;
        v->n_axes = n;
        if (n <= 3) return DT_OK;
    }
    return status ? fail(status)
                  : dt_fail(DT_E_DATA, "FITS: no image of two or three axes in its first %d units",
                            MAX_UNITS);
}

static dt_status read_plane(void *ctx, int64_t i, float *out) {
    const fits_view *v = ctx;
    LONGLONG first[MAX_AXES] = {1, 1, 1, 1, 1, 1, 1, 1};
    float none = NAN;
    int status = 0, any;
    first[2] = i + 1;
    fits_read_pixll(v->file, TFLOAT, first, v->size[0] * v->size[1], &none, out, &any, &status);
    if (status == NUM_OVERFLOW) status = 0; // a double beyond floats: the greatest float
    return status ? fail(status) : DT_OK;
}

static dt_status decode_open(fits_view *v, const dt_image_sink *sink, dt_array_scratch *scratch,
                             dt_image *out) {
    DT_TRY(find_image(v));
    dt_planes p = {"FITS", v->size[0], v->size[1], v->n_axes > 2 ? v->size[2] : 1, read_plane, v};
    return dt_planes_to_image(sink, &p, scratch, out);
}

static dt_status decode(dt_array_scratch *scratch, dt_span bytes, const dt_image_sink *sink,
                        dt_image *out) {
    fits_view v = {.file = NULL};
    void *memory = (void *)bytes.data; // opened for reading: never written, never moved
    size_t n = bytes.n_bytes;
    int status = 0;
    DT_TRY(check_start(bytes));
    if (fits_open_memfile(&v.file, "member.fits", READONLY, &memory, &n, 0, NULL, &status))
        return fail(status);
    dt_status st = decode_open(&v, sink, scratch, out);
    status = 0;
    fits_close_file(v.file, &status);
    if (status) fits_clear_errmsg();
    return st;
}

static void *fits_create(void) {
    return dt_xcalloc(1, sizeof(dt_array_scratch));
}

static void fits_destroy(void *state) {
    dt_array_scratch_fini(state);
    free(state);
}

static dt_status fits_decode(void *state, dt_span bytes, const dt_image_sink *sink, dt_image *out) {
    bool alone = !fits_is_reentrant();
    if (alone) pthread_mutex_lock(&lock);
    dt_status st = decode(state, bytes, sink, out);
    if (alone) pthread_mutex_unlock(&lock);
    return st;
}

const dt_image_driver dt_image_fits = {fits_decode, fits_create, fits_destroy};
