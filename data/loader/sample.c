// sample.c: from a view index to bytes in a batch slot.
//
// For an image: read the member, check its hash, decode (into the slot itself when the size is right),
// resize, augment in place. For a sound: decode the part that is wanted, compute its features into the
// slot, augment before and after. For values: a table look-up. Nothing is allocated once a worker's buffers
// have grown; the three phases are timed, as the trainer tells the user which one holds the step back.
#include "data/dataset.h"

#include "base/clock.h"
#include "base/rng.h"

#include <stdlib.h>
#include <string.h>

void dt_sample_scratch_init(dt_sample_scratch *w) {
    *w = (dt_sample_scratch){.decoder = dt_decoder_create(),
                             .resizer = dt_resizer_create(),
                             .clipper = dt_clipper_create()};
}

void dt_sample_scratch_fini(dt_sample_scratch *w) {
    dt_decoder_destroy(w->decoder);
    dt_resizer_destroy(w->resizer);
    dt_clipper_destroy(w->clipper);
    dt_feature_scratch_fini(&w->features);
    dt_buffer_fini(&w->bytes);
    dt_buffer_fini(&w->augment);
    dt_buffer_fini(&w->pixels);
}

static double lap(uint64_t *counter, double since) {
    double now = dt_clock_s();
    dt_counter_add(counter, (uint64_t)((now - since) * 1e9));
    return now;
}

typedef struct box_choice {
    const dt_augment *augment;
    const dt_augment_key *key;
} box_choice;

static void choose_box(const void *ctx, int width, int height, double box[4]) {
    const box_choice *c = ctx;
    dt_augment_box(c->augment, c->key, width, height, box);
}

// Pixels of the field's size, before augmentation. 0 bytes: they are pixels already, from the cache.
static dt_status decode_pixels(const dt_data *d, dt_sample_scratch *w, int i, dt_span bytes,
                               const dt_augment_key *key, bool augment, uint8_t *dst) {
    const dt_field *f = &d->fields.f[i];
    const int64_t *size = d->fields.info[i].sample_shape.d; // H, W, C
    int h = (int)size[0], wd = (int)size[1], c = (int)size[2];
    dt_image image;
    double box[4];
    if (bytes.n_bytes == 0) {
        memcpy(dst, bytes.data, (size_t)h * (size_t)wd * (size_t)c);
        return DT_OK;
    }
    box_choice choice = {f->augment, key};
    bool crops = augment && f->augment && dt_augment_box(f->augment, key, 1, 1, box);
    dt_image_want want = {.channels = c,
                          .height = h,
                          .width = wd,
                          .dst = dst,
                          .box = crops ? choose_box : NULL,
                          .box_ctx = &choice};
    DT_TRY(dt_decode_image_part(w->decoder, bytes, &want, &image));
    if (image.data != dst) DT_TRY(dt_resize(w->resizer, &image, image.box, dst, h, wd));
    dt_keep_pixels(d, i, w->bad_record, dst);
    return DT_OK;
}

static dt_status decode_bytes(const dt_data *d, dt_sample_scratch *w, int i, dt_span bytes,
                              const dt_augment_key *key, bool augment, uint8_t *dst) {
    const dt_field *f = &d->fields.f[i];
    const int64_t *size = d->fields.info[i].sample_shape.d;
    double t = dt_clock_s();
    DT_TRY(decode_pixels(d, w, i, bytes, key, augment, dst));
    t = lap(&w->decode_ns, t);
    if (!augment || !f->augment) return DT_OK;
    dt_counter_add(&w->n_augmented, 1);
    dt_image image = {dst, (int)size[1], (int)size[0], (int)size[2]};
    dt_status st = dt_augment_apply(f->augment, key, &image, &w->augment);
    lap(&w->augment_ns, t);
    return st;
}

// An f32 field of a picture of bytes: changed as bytes, then widened.
static dt_status decode_image(const dt_data *d, dt_sample_scratch *w, int i, dt_span bytes,
                              const dt_augment_key *key, bool augment, void *dst) {
    if (d->fields.info[i].dtype == DT_U8) return decode_bytes(d, w, i, bytes, key, augment, dst);
    size_t n = (size_t)dt_shape_elements(&d->fields.info[i].sample_shape);
    uint8_t *pixels = dt_buffer_reserve(&w->pixels, n);
    if (!pixels) return dt_fail(DT_E_INTERNAL, "out of memory");
    DT_TRY(decode_bytes(d, w, i, bytes, key, augment, pixels));
    float *out = dst;
    for (size_t k = 0; k < n; k++) out[k] = pixels[k];
    return DT_OK;
}

// A training sample is a random part of a longer sound, otherwise it is the middle.
static dt_status decode_audio(const dt_audio_field *f, dt_sample_scratch *w, dt_span bytes,
                              const dt_augment_key *key, bool augment, float *dst) {
    const dt_audio_clip *c = &f->clip;
    double t = dt_clock_s();
    float *samples;
    size_t stride;
    dt_rng r = {key->seed, key->sample, key->epoch, f->crop_purpose};
    DT_TRY(dt_features_begin(f->features, &w->features, &samples, &stride));
    DT_TRY(dt_clipper_run(w->clipper, bytes, c, augment ? dt_rng_u32(&r, 0) : DT_CLIP_CENTRE,
                          samples, stride));
    if (!augment || !f->augment) {
        DT_TRY(dt_features_run(f->features, &w->features, dst));
        lap(&w->decode_ns, t);
        return DT_OK;
    }
    int64_t rows, columns;
    size_t channels = (size_t)c->channels;
    t = lap(&w->decode_ns, t);
    DT_TRY(dt_audio_augment_samples(f->augment, key, samples, (size_t)c->n_samples, channels,
                                    stride, &w->augment));
    t = lap(&w->augment_ns, t);
    DT_TRY(dt_features_run(f->features, &w->features, dst));
    t = lap(&w->decode_ns, t);
    dt_features_shape(f->features, &rows, &columns);
    dt_audio_augment_features(f->augment, key, dst, (size_t)rows, (size_t)columns, channels);
    lap(&w->augment_ns, t);
    return DT_OK;
}

// Raw f32 would have to look like digits in every byte to pass for text: "200 -20\n" is text.
static bool is_number_text(dt_span bytes) {
    for (size_t i = 0; i < bytes.n_bytes; i++)
        if (!bytes.data[i] || !strchr("0123456789+-.eE \t\r\n,[]naifNAIF", bytes.data[i]))
            return false;
    return true;
}

// Numbers as text (separated by spaces, commas, brackets) or, when the size says so, as raw f32.
static dt_status parse_numbers(dt_sample_scratch *w, dt_span bytes, int64_t n, float *out) {
    if (bytes.n_bytes == (size_t)n * sizeof(float) && !is_number_text(bytes)) {
        memcpy(out, bytes.data, bytes.n_bytes);
        return DT_OK;
    }
    char *text = (char *)dt_buffer_reserve(&w->augment, bytes.n_bytes + 1), *end;
    if (!text) return dt_fail(DT_E_INTERNAL, "out of memory");
    memcpy(text, bytes.data, bytes.n_bytes);
    text[bytes.n_bytes] = '\0';
    for (int64_t i = 0; i < n; i++) {
        text += strspn(text, " \t\r\n,[]");
        out[i] = strtof(text, &end);
        if (end == text)
            return dt_fail(DT_E_DATA, "%lld numbers wanted, %lld found", (long long)n,
                           (long long)i);
        text = end;
    }
    return DT_OK;
}

static dt_status fill_numbers(dt_sample_scratch *w, dt_span bytes, const dt_field_info *f,
                              float *dst) {
    int64_t n = dt_shape_elements(&f->sample_shape);
    DT_TRY(parse_numbers(w, bytes, n, dst));
    for (int64_t i = 0; i < n; i++) dst[i] = (dst[i] - dt_field_mean(f, i)) / dt_field_std(f, i);
    return DT_OK;
}

static dt_status fill_member(const dt_data *d, dt_sample_scratch *w, int i, uint32_t record,
                             const dt_augment_key *key, bool augment, void *dst) {
    const dt_field *f = &d->fields.f[i];
    int64_t member = dt_field_member(f, d->set->catalog, record);
    w->bad_member = (uint32_t)member;
    dt_span bytes = {dt_fetch_pixels(d, w, i, record), 0};
    if (!bytes.data) DT_TRY(dt_fetch(d, w, i, record, (uint32_t)member, &bytes));
    dt_counter_add(&w->n_decoded, 1);
    dt_status st = f->kind == DT_FIELD_IMAGE   ? decode_image(d, w, i, bytes, key, augment, dst)
                   : f->kind == DT_FIELD_AUDIO ? decode_audio(f->audio, w, bytes, key, augment, dst)
                                               : fill_numbers(w, bytes, &d->fields.info[i], dst);
    return st == DT_OK ? st : dt_set_context(d->set, record, (uint32_t)member, st);
}

dt_status dt_sample_fill(const dt_data *d, dt_sample_scratch *w, uint32_t sample, uint32_t epoch,
                         bool augment, void *const *field, int j) {
    const dt_catalog *c = d->set->catalog;
    const uint32_t *records = d->view.record + (size_t)sample * (size_t)d->view.width;
    dt_augment_key key = {d->seed, sample, epoch};
    for (int i = 0; i < d->fields.n; i++) {
        const dt_field *f = &d->fields.f[i];
        uint32_t record = records[f->part];
        void *dst = (uint8_t *)field[i] + (size_t)j * f->sample_bytes;
        __atomic_store_n(&w->bad_record, record, __ATOMIC_RELAXED);
        w->bad_member = UINT32_MAX;
        for (int k = 0; k < f->n_numbers; k++)
            ((float *)dst)[k] = dt_field_number(&d->fields, i, k, c, record);
        if (f->column >= 0)
            *(int32_t *)dst = f->label[dt_catalog_cell(c, f->column, record)];
        else if (!f->numbers)
            DT_TRY(fill_member(d, w, i, record, &key, augment, dst));
    }
    return DT_OK;
}
