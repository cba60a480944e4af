// sample.c: from a view index to bytes in a batch slot.
//
// For an image: read the member, check its hash, decode (into the slot itself when the size is right),
// resize, augment in place or leave that to a device. For a sound: decode the part that is wanted, compute its
// features into the slot, augment before and after. For values: a table look-up. Nothing is allocated once a
// worker's buffers have grown; the three phases are timed, as the trainer tells the user which one holds the step back.
#include "data_parts.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/rng.h"

#include <stdlib.h>
#include <string.h>

void dt_sample_scratch_init(dt_sample_scratch *w) {
    *w = (dt_sample_scratch){.decoder = dt_decoder_create(),
                             .resizer = dt_resizer_create(),
                             .clipper = dt_clipper_create(),
                             .hash = dt_hash_stream_create()};
}

void dt_sample_scratch_fini(dt_sample_scratch *w) {
    dt_decoder_destroy(w->decoder);
    dt_resizer_destroy(w->resizer);
    dt_clipper_destroy(w->clipper);
    dt_hash_stream_destroy(w->hash);
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

// What part of a picture is resized: a random one, or what the field's fit says.
typedef struct part {
    const dt_field *f;
    const dt_augment_key *key; // NULL: nothing random
    int width, height;         // of the field
    bool is_random;
} part;

static void choose_box(const void *ctx, int width, int height, double box[4]) {
    const part *p = ctx;
    if (p->is_random)
        dt_augment_box(p->f->augment, p->key, width, height, box);
    else
        dt_fit_box(&p->f->fit, p->width, p->height, width, height, box);
}

static dt_status augment_image(dt_sample_scratch *w, const dt_field *f, dt_image image,
                               const dt_augment_key *key, dt_pixel_step *steps) {
    if (!key || !f->augment) return DT_OK;
    double t = dt_clock_s();
    dt_counter_add(&w->n_augmented, 1);
    dt_status st = steps ? dt_augment_split(f->augment, key, &image, &w->augment, steps)
                         : dt_augment_apply(f->augment, key, &image, &w->augment);
    lap(&w->augment_ns, t);
    return st;
}

// `image` to the size of `to`: bytes or floats, as `image` has; mirrored if `to` says so.
static dt_status resize(dt_sample_scratch *w, const dt_image *image, const dt_image *to) {
    if (image->real)
        return dt_resize_real(w->resizer, image, image->box, to->real, to->height, to->width);
    return (to->mirrored ? dt_resize_mirrored : dt_resize)(w->resizer, image, image->box, to->data,
                                                           to->height, to->width);
}

// The whole of `image` in the middle of `to`, bars of the field's mean where it does not reach.
static dt_status frame(dt_sample_scratch *w, const dt_image *image, const dt_field_info *info,
                       dt_image *to) {
    dt_rect at = dt_fit_place(to->width, to->height, image->full_width, image->full_height);
    dt_image small = {.width = at.w, .height = at.h, .channels = to->channels};
    size_t n = (size_t)at.w * (size_t)at.h * (size_t)to->channels;
    small.data = dt_buffer_reserve(&w->augment, n * (image->real ? sizeof(float) : 1));
    if (!small.data) return dt_fail(DT_E_INTERNAL, "out of memory");
    if (image->real) small.real = (float *)small.data;
    DT_TRY(resize(w, image, &small));
    dt_fit_frame(&small, at, info->mean, info->dtype == DT_F32 ? 1 : 255, to);
    return DT_OK;
}

// Pixels of the field's size, before augmentation (but for a flip: to->mirrored): in to->data, or, where an
// array gives floats, in to->real; what is not used becomes NULL. No bytes in: they are pixels already, from
// the cache or in their place.
static dt_status decode_pixels(const dt_data *d, dt_sample_scratch *w, int i, dt_span in,
                               dt_image_want *want, dt_image *to) {
    double t = dt_clock_s();
    const part *p = want->box_ctx;
    float *real = to->real;
    dt_image image;
    to->real = NULL;
    if (in.n_bytes == 0) {
        if (in.data != to->data) memcpy(to->data, in.data, dt_data_pixel_bytes(d, i));
        lap(&w->decode_ns, t);
        return DT_OK;
    }
    DT_TRY(dt_decode_image_part(w->decoder, in, want, &image));
    if (image.real) to->real = real;
    bool is_there = to->real ? image.real == real : image.data == to->data;
    if (!is_there && p->f->fit.kind == DT_FIT_pad && !p->is_random)
        DT_TRY(frame(w, &image, &d->fields.info[i], to));
    else if (!is_there) {
        to->mirrored = !to->real && p->key && p->f->augment && !dt_keeps_pixels(d, i) &&
                       dt_augment_mirrors(p->f->augment, p->key);
        DT_TRY(resize(w, &image, to));
    }
    if (to->real)
        to->data = NULL;
    else
        dt_keep_pixels(d, i, w->bad_record, to->data);
    lap(&w->decode_ns, t);
    return DT_OK;
}

// A picture of an f32 field is changed as bytes, then widened; an array is changed as floats. `key` NULL:
// not augmented.
static dt_status decode_image(const dt_data *d, dt_sample_scratch *w, int i, dt_span in,
                              const dt_augment_key *key, void *dst, dt_pixel_step *steps) {
    const dt_field *f = &d->fields.f[i];
    const int64_t *size = d->fields.info[i].sample_shape.d; // H, W, C
    size_t n = (size_t)(size[0] * size[1] * size[2]);
    double box[4];
    part p = {f, key, (int)size[1], (int)size[0], false};
    p.is_random = key && f->augment && dt_augment_box(f->augment, key, 1, 1, box);
    dt_image_want want = {.channels = (int)size[2],
                          .height = (int)size[0],
                          .width = (int)size[1],
                          .dst = dst,
                          .box = p.is_random || f->fit.kind == DT_FIT_crop ? choose_box : NULL,
                          .box_ctx = &p,
                          .array = &f->array};
    uint8_t *bytes = f->array.f32 ? dt_buffer_reserve(&w->pixels, n) : dst;
    if (!bytes) return dt_fail(DT_E_INTERNAL, "out of memory");
    dt_image image = {bytes, want.width, want.height, want.channels,
                      .real = f->array.f32 ? dst : NULL};
    DT_TRY(decode_pixels(d, w, i, in, &want, &image));
    DT_TRY(augment_image(w, f, image, key, steps));
    float *out = dst;
    for (size_t k = 0; f->array.f32 && !image.real && k < n; k++) out[k] = bytes[k];
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

static dt_status fill_numbers(dt_sample_scratch *w, dt_span bytes, const dt_field_info *f,
                              float *dst) {
    int64_t n = dt_shape_elements(&f->sample_shape);
    if (bytes.n_bytes > 0) DT_TRY(dt_decode_numbers(bytes, n, dst, &w->augment));
    bool plain = true;
    for (int64_t i = 0; i < n && i < DT_MAX_NORMALIZE; i++)
        plain = plain && f->mean[i] == 0 && f->std[i] == 1;
    for (int64_t i = 0; i < n && !plain; i++)
        dst[i] = (dst[i] - dt_field_mean(f, i)) / dt_field_std(f, i);
    return DT_OK;
}

// Whether the member's bytes may be, behind a short head, those of the batch, and can be read to `dst` well.
static bool may_be_raw(const dt_data *d, const dt_sample_scratch *w, int i, const dt_member *m,
                       const dt_augment_key *key, bool augment, const void *dst) {
    enum { MAX_HEAD = 4096 };
    const dt_field *f = &d->fields.f[i];
    double box[4];
    if (m->size < f->sample_bytes || m->size - f->sample_bytes > MAX_HEAD ||
        !dt_can_fetch_apart(d, w, i) ||
        dt_place_is_slow(m->offset + (m->size - f->sample_bytes), dst))
        return false;
    if (f->kind != DT_FIELD_image) return f->kind != DT_FIELD_audio;
    bool crops = augment && f->augment && dt_augment_box(f->augment, key, 1, 1, box);
    return !f->array.f32 && !crops && f->fit.kind != DT_FIT_crop;
}

// bytes->n_bytes 0: what is wanted lies in dst already.
static dt_status fetch_raw(const dt_data *d, dt_sample_scratch *w, int i, uint32_t record,
                           uint32_t member, void *dst, dt_span *bytes) {
    const dt_field *f = &d->fields.f[i];
    const int64_t *size = d->fields.info[i].sample_shape.d;
    size_t n_head;
    DT_TRY(dt_fetch_apart(d, w, record, member, dst, f->sample_bytes, &n_head));
    *bytes = (dt_span){w->bytes.data, n_head + f->sample_bytes}; // only the head is there
    dt_image_want want = {.channels = (int)size[2],
                          .height = (int)size[0],
                          .width = (int)size[1],
                          .dst = dst,
                          .array = &f->array};
    bool raw = f->kind == DT_FIELD_image ? dt_image_is_raw(*bytes, n_head, &want)
                                         : dt_numbers_are_raw(*bytes, n_head, dst);
    if (!raw) {
        memcpy(w->bytes.data + n_head, dst, f->sample_bytes);
        return DT_OK;
    }
    *bytes = (dt_span){dst, 0};
    if (f->kind == DT_FIELD_image) dt_keep_pixels(d, i, record, dst);
    return DT_OK;
}

static dt_status fetch(const dt_data *d, dt_sample_scratch *w, int i, uint32_t record,
                       uint32_t member, const dt_augment_key *key, bool augment, void *dst,
                       dt_span *bytes) {
    *bytes = (dt_span){dt_fetch_pixels(d, w, i, record), 0};
    if (bytes->data) return DT_OK;
    if (may_be_raw(d, w, i, &d->set->catalog->members[member], key, augment, dst))
        return fetch_raw(d, w, i, record, member, dst, bytes);
    return dt_fetch(d, w, i, record, member, bytes);
}

static dt_status fill_member(const dt_data *d, dt_sample_scratch *w, int i, uint32_t record,
                             const dt_augment_key *key, bool augment, void *dst,
                             dt_pixel_step *steps) {
    const dt_field *f = &d->fields.f[i];
    int64_t member = dt_field_member(f, d->set->catalog, record);
    w->bad_member = (uint32_t)member;
    dt_span bytes;
    DT_TRY(fetch(d, w, i, record, (uint32_t)member, key, augment, dst, &bytes));
    dt_counter_add(&w->n_decoded, 1);
    dt_status st = f->kind == DT_FIELD_image
                       ? decode_image(d, w, i, bytes, augment ? key : NULL, dst, steps)
                   : f->kind == DT_FIELD_audio ? decode_audio(f->audio, w, bytes, key, augment, dst)
                                               : fill_numbers(w, bytes, &d->fields.info[i], dst);
    return st == DT_OK ? st : dt_set_context(d->set, record, (uint32_t)member, st);
}

dt_status dt_sample_fill(const dt_data *d, dt_sample_scratch *w, uint32_t sample, uint32_t epoch,
                         bool augment, void *const *field, dt_pixel_step *const *steps, int j) {
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
            DT_TRY(
                fill_member(d, w, i, record, &key, augment, dst,
                            steps && steps[i] ? steps[i] + j * d->fields.info[i].n_steps : NULL));
    }
    return DT_OK;
}
