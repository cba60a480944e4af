// fuzz_image.h: what the fuzz targets of image formats share: any bytes through one kind's decoder must give
// pixels within the limits, all of them written (their sum is read, for the memory sanitizers), or DT_E_DATA.
#ifndef DT_FUZZ_IMAGE_H
#define DT_FUZZ_IMAGE_H

#include "data/decode/array.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static inline void fuzz_check(const dt_image *m) {
    static volatile double total;
    double sum = 0;
    if (m->width <= 0 || m->height <= 0 ||
        (int64_t)m->width * m->height > (m->next ? DT_MAX_ROWS_PIXELS : DT_MAX_PIXELS) || m->left < 0 || m->top < 0 ||
        m->left + m->width > m->full_width || m->top + m->height > m->full_height ||
        (m->data != NULL) + (m->real != NULL) + (m->next != NULL) != 1)
        abort();
    if (m->next) return;
    size_t n = (size_t)m->width * (size_t)m->height * (size_t)m->channels;
    for (size_t i = 0; i < n; i++) sum += m->real ? (double)m->real[i] : m->data[i];
    total = sum;
    (void)total;
}

// One decode with a want; true if there was an image.
static inline bool fuzz_decode(const dt_image_driver *driver, const uint8_t *data, size_t n_bytes,
                               const dt_image_want *want) {
    static dt_buffer scratch, work[DT_IMAGE_WORK];
    static void *state;
    static unsigned n_decodes;
    if (n_decodes++ % 1024 == 0) { // one state serves many files
        if (state) driver->destroy(state);
        state = driver->create ? driver->create() : NULL;
    }
    dt_image image = {.data = NULL};
    dt_image_sink sink = {want, &scratch, work};
    static dt_resizer *resizer;
    static uint8_t out[8 * 8 * 3];
    dt_status st = driver->decode(state, (dt_span){data, n_bytes}, &sink, &image);
    if (!resizer) resizer = dt_resizer_create();
    // a resize reads all rows
    if (st == DT_OK && image.next) st = dt_resize(resizer, &image, image.box, out, 8, 8);
    if (st != DT_OK && st != DT_E_DATA) abort();
    if (st == DT_OK) fuzz_check(&image);
    return st == DT_OK;
}

// Grey and colour, as bytes and as floats.
static inline void fuzz_picture(const dt_image_driver *driver, const uint8_t *data, size_t n_bytes) {
    for (int channels = 1; channels <= 3; channels += 2) {
        dt_image_want want = {.channels = channels, .max_pixels = 1 << 18}; // a few bytes may be 64 or 1024 Mi, seconds
        fuzz_decode(driver, data, n_bytes, &want);
        want.rows_above = 1;
        fuzz_decode(driver, data, n_bytes, &want);
        want.array = &(dt_array_spec){.f32 = true, .origin = {1, 2, 3}};
        fuzz_decode(driver, data, n_bytes, &want);
    }
}

#endif
