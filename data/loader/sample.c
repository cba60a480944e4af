// sample.c: from a view index to bytes in a batch slot. It reads from the bottom up: dt_sample_fill makes each
// field's value: fetch (cache, readers, or a read), decode, augment, the last two in the slot itself where it fits.
//
// For an image: read the member, check its hash, decode, resize, augment in place or leave that to a device.
// For a sound: decode the part that is wanted, compute its features into the slot, augment before and after.
// For values: a table look-up. Nothing is allocated once a worker's buffers have grown. The three phases are
// timed, as the trainer tells the user which one holds the step back.
#include "data_parts.h"
#include "fields.h"

#include "base/log.h"
#include "base/os.h"
#include "base/rng.h"
#include "base/trace.h"
#include "batch/rotation.h"
#include "config/words.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void dt_sample_scratch_init(dt_sample_scratch *w) {
    *w = (dt_sample_scratch){
        .decoder = dt_decoder_create(), .resizer = dt_resizer_create(), .clipper = dt_clipper_create()};
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

static double lap(dt_counter *counter, const char *name, double since) {
    double now = dt_clock_s();
    dt_counter_add(counter, (uint64_t)((now - since) * 1e9));
    dt_trace_add("loader", name, since, now);
    return now;
}

// One field of one sample, on its way to its place in the batch.
typedef struct value {
    int field;
    const dt_field *f;
    const dt_field_info *info;
    uint32_t record, member;
    const dt_augment_key *key;
    bool augment;
    void *dst;
    dt_pixel_step *steps; // room for the steps that a device is to play, or NULL
} value;

// What part of a picture is resized: a random one, or what the field's fit says.
typedef struct part {
    const value *v;
    int width, height; // the field's
    bool is_random;
} part;

static void choose_box(const void *ctx, int width, int height, double box[4]) {
    const part *p = ctx;
    const dt_field *f = p->v->f;
    if (p->is_random)
        dt_augment_box(f->augment, p->v->key, width, height, box);
    else
        dt_fit_box(&f->fit, p->width, p->height, width, height, box);
}

static bool has_random_box(const value *v) {
    double box[4];
    return v->augment && v->f->augment && dt_augment_box(v->f->augment, v->key, 1, 1, box);
}

// Fills in *p, which the result points to.
static dt_image_want want_of(const value *v, part *p) {
    const int64_t *size = v->info->sample_shape.d; // H, W, C
    *p = (part){v, (int)size[1], (int)size[0], has_random_box(v)};
    return (dt_image_want){.channels = (int)size[2],
                           .height = p->height,
                           .width = p->width,
                           .dst = v->dst,
                           .box = p->is_random || v->f->fit.kind == DT_FIT_crop ? choose_box : NULL,
                           .box_ctx = p,
                           .array = &v->f->array,
                           .rows_above = DT_MAX_PIXELS,
                           .max_pixels = v->f->max_pixels,
                           .limit_hint = "; data.max_pixels sets another, data.on_error: skip leaves such records out"};
}

// ---- images ------------------------------------------------------------------------------------------
// `image` to the size of `to`: bytes or floats, as `image` has; mirrored if `to` says so.
static dt_status sample_resize(dt_sample_scratch *w, const dt_image *image, const dt_image *to) {
    // the filter of Pillow's mode F
    if (image->real) return dt_resize_real(w->resizer, image, image->box, to->real, to->height, to->width);
    return (to->mirrored ? dt_resize_mirrored : dt_resize)(w->resizer, image, image->box, to->data, to->height,
                                                           to->width);
}

// The whole of `image` in the middle of `to`, bars of the field's mean where it does not reach.
static dt_status frame(dt_sample_scratch *w, const dt_image *image, const dt_field_info *info, dt_image *to) {
    dt_rect at = dt_fit_place(to->width, to->height, image->full_width, image->full_height);
    dt_image small = {.width = at.w, .height = at.h, .channels = to->channels};
    size_t n = (size_t)at.w * (size_t)at.h * (size_t)to->channels;
    small.data = dt_buffer_reserve(&w->augment, n * (image->real ? sizeof(float) : 1));
    if (!small.data) return dt_fail(DT_E_INTERNAL, "out of memory");
    if (image->real) small.real = (float *)small.data;
    DT_TRY(sample_resize(w, image, &small));
    dt_fit_frame(&small, at, info->mean, info->dtype == DT_F32 ? 1 : 255, to);
    return DT_OK;
}

// Once a field: bytes keep little of what its files hold.
static void sample_warn_of_bytes(const dt_data *d, const value *v, const dt_image *image) {
    static _Atomic uint32_t warned;
    const uint32_t bit = (uint32_t)1 << v->field;
    // a load first: an exchange by each worker for each sample would move the line about
    if (atomic_load(&warned) & bit || atomic_fetch_or(&warned, bit) & bit) return;
    const dt_catalog *c = d->reader->catalog;
    dt_warn_alike("data.fields.%s: values of %g to %g (record %s) are rounded or cut to the bytes of dtype: "
                  "u8; dtype: f32 "
                  "takes them as they are, stretch: linear with range: [%g, %g] spreads them over the bytes",
                  v->f->name, image->least, image->greatest, dt_catalog_str(c, c->records[v->record].key), image->least,
                  image->greatest);
}

// Makes pixels of the field's size, before augmentation (except for a flip: to->mirrored), in to->data or, where an
// array gives floats, in to->real; the other of the two becomes NULL.
static dt_status decode_pixels(const dt_data *d, dt_sample_scratch *w, const value *v, dt_span bytes, dt_image *to) {
    double t = dt_clock_s();
    float *real = to->real;
    part p;
    dt_image_want want = want_of(v, &p);
    dt_image image;
    DT_TRY(dt_decode_image_part(w->decoder, bytes, &want, &image));
    to->real = image.real ? real : NULL;
    // the decoder wrote to the slot: the size is the field's
    bool is_there = to->real ? image.real == real : image.data == to->data;
    if (!is_there && v->f->fit.kind == DT_FIT_pad && !p.is_random) {
        DT_TRY(frame(w, &image, v->info, to));
    } else if (!is_there) {
        to->mirrored = !to->real && v->augment && v->f->augment &&
                       !(dt_is_kept(d, v->field) && d->cache.pixels[v->field]) &&
                       dt_augment_mirrors(v->f->augment, v->key);
        DT_TRY(sample_resize(w, &image, to));
    }
    if (image.greatest > image.least) sample_warn_of_bytes(d, v, &image); // of an image in rows known now
    if (to->real) to->data = NULL;
    lap(&w->decode_ns, "decode", t);
    return DT_OK;
}

static dt_status augment_image(dt_sample_scratch *w, const value *v, dt_image image) {
    if (!v->augment || !v->f->augment) return DT_OK;
    double t = dt_clock_s();
    dt_counter_add(&w->n_augmented, 1);
    dt_status st = v->steps ? dt_augment_split(v->f->augment, v->key, &image, &w->augment, v->steps)
                            : dt_augment_apply(v->f->augment, v->key, &image, &w->augment);
    lap(&w->augment_ns, "augment", t);
    return st;
}

// A picture for an f32 field is augmented as bytes, then widened; an array is augmented as floats.
static dt_status fill_image(const dt_data *d, dt_sample_scratch *w, const value *v, dt_span bytes, bool are_pixels) {
    const int64_t *size = v->info->sample_shape.d; // H, W, C
    size_t n = (size_t)(size[0] * size[1] * size[2]);
    bool f32 = v->f->array.f32;
    uint8_t *pixels = f32 ? dt_buffer_reserve(&w->pixels, n) : v->dst; // augmentation of pictures works on bytes
    if (!pixels) return dt_fail(DT_E_INTERNAL, "out of memory");
    dt_image image = {pixels, (int)size[1], (int)size[0], (int)size[2], .real = f32 ? v->dst : NULL};
    if (are_pixels)
        memcpy(pixels, bytes.data, bytes.n_bytes);
    else
        DT_TRY(decode_pixels(d, w, v, bytes, &image));
    // before augmentation, which differs in each epoch
    if (!image.real) dt_keep_pixels(d, v->field, v->record, image.data);
    DT_TRY(augment_image(w, v, image));
    float *out = v->dst;
    for (size_t k = 0; f32 && !image.real && k < n; k++)
        out[k] = (float)(pixels[k] - v->f->array.origin[k % (size_t)size[2]]);
    return DT_OK;
}

// ---- sounds and numbers ------------------------------------------------------------------------------
// A training sample is a random part of a longer sound, otherwise it is the middle.
static dt_status fill_audio(const dt_data *d, dt_sample_scratch *w, const value *v, dt_span bytes) {
    const dt_audio_field *f = v->f->audio;
    const dt_audio_clip *c = &f->clip;
    dt_audio_clip stated;
    if (v->f->rate.column >= 0) {
        stated = *c;
        stated.stated_rate = dt_field_rate(v->f, d->reader->catalog, v->record);
        c = &stated;
    }
    const dt_augment_key *key = v->key;
    double t = dt_clock_s();
    float *samples;
    size_t stride;
    // the crop has draws of its own: a change of the list does not move it
    dt_rng r = {key->seed, key->sample, key->epoch, f->crop_purpose};
    DT_TRY(dt_features_begin(f->features, &w->features, &samples, &stride));
    DT_TRY(dt_clipper_run(w->clipper, bytes, c, v->augment ? dt_rng_u32(&r, 0) : DT_CLIP_CENTRE, samples, stride));
    if (!v->augment || !f->augment) {
        DT_TRY(dt_features_run(f->features, &w->features, v->dst));
        lap(&w->decode_ns, "decode", t);
        return DT_OK;
    }
    int64_t rows, columns;
    size_t channels = (size_t)c->channels;
    t = lap(&w->decode_ns, "decode", t);
    DT_TRY(dt_audio_augment_samples(f->augment, key, samples, (size_t)c->n_samples, channels, stride, &w->augment));
    t = lap(&w->augment_ns, "augment", t);
    DT_TRY(dt_features_run(f->features, &w->features, v->dst));
    t = lap(&w->decode_ns, "decode", t);
    dt_features_shape(f->features, &rows, &columns);
    dt_audio_augment_features(f->augment, key, v->dst, (size_t)rows, (size_t)columns, channels);
    lap(&w->augment_ns, "augment", t);
    return DT_OK;
}

dt_status dt_sample_not_finite(int64_t i, double x) {
    return dt_fail(DT_E_DATA, "number %lld is %g, and numbers are finite", (long long)i + 1, x);
}

// Doubles until they are normalised: numbers may be times in seconds. A ReLU on the CPU makes 0 of NaN, so the network's
// output would not show it.
static dt_status fill_numbers(dt_sample_scratch *w, const value *v, dt_span bytes) {
    const dt_field_info *f = v->info;
    float *dst = v->dst;
    int64_t n = dt_shape_elements(&f->sample_shape);
    double *x = (double *)dt_buffer_reserve(&w->pixels, (size_t)n * sizeof *x);
    if (!x) return dt_fail(DT_E_INTERNAL, "out of memory");
    DT_TRY(dt_decode_numbers(bytes, n, x, &w->augment));
    for (int64_t i = 0; i < n; i++) {
        const double centred = x[i] - dt_field_mean(f, i), std = dt_field_std(f, i);
        dst[i] = (float)(std == 1 ? centred : centred / std); // a division takes longer than all else here
        if (!isfinite(dst[i])) return dt_sample_not_finite(i, x[i]);
    }
    return DT_OK;
}

// ---- the sample --------------------------------------------------------------------------------------
static dt_status fill_member(const dt_data *d, dt_sample_scratch *w, const value *v) {
    dt_fetch f = {.field = v->field, .record = v->record, .member = v->member};
    DT_TRY(dt_fetch_member(d, w, &f));
    dt_counter_add(&w->n_decoded, 1);
    dt_status st = v->f->kind == DT_FIELD_image   ? fill_image(d, w, v, f.bytes, f.are_pixels)
                   : v->f->kind == DT_FIELD_audio ? fill_audio(d, w, v, f.bytes)
                                                  : fill_numbers(w, v, f.bytes);
    return st == DT_OK ? st : dt_set_context(d->reader, v->record, v->member, st);
}

// A class that is an input: 1 at its place, zeros if the run does not know it or the record has none.
static void fill_category(const dt_data *d, int field, uint32_t record, float *dst) {
    const dt_field *f = &d->fields.f[field];
    const int n = d->fields.info[field].n_categories;
    const uint32_t v = dt_catalog_cell(d->reader->catalog, f->column, record);
    memset(dst, 0, (size_t)n * sizeof *dst);
    if (v != DT_NO_VALUE && f->label[v] < n) dst[f->label[v]] = 1;
}

static dt_status sample_check_rotation(const dt_data *d, const dt_field *f, uint32_t record, const float *x) {
    const dt_catalog *c = d->reader->catalog;
    if (dt_is_rotation(x)) return DT_OK;
    return dt_fail(DT_E_DATA,
                   "%s: record %s: field %s (%g %g %g, %g %g %g) is no rotation: six numbers are "
                   "its first two columns, neither zero nor parallel",
                   c->shards[c->records[record].shard].path, dt_catalog_str(c, c->records[record].key), f->name,
                   (double)x[0], (double)x[1], (double)x[2], (double)x[3], (double)x[4], (double)x[5]);
}

dt_status dt_sample_fill(const dt_data *d, dt_sample_scratch *w, const dt_sample_place *p, dt_bad_sample *bad) {
    const dt_catalog *c = d->reader->catalog;
    const uint32_t *records = d->view.record + (size_t)p->sample * (size_t)d->view.width;
    dt_augment_key key = {d->seed, p->draw, p->epoch};
    for (int i = 0; i < d->fields.n; i++) {
        const dt_field *f = &d->fields.f[i];
        if (f->absent) continue; // as the ring was made
        uint32_t record = records[f->part];
        void *dst = (uint8_t *)p->field[i] + (size_t)p->j * f->sample_bytes;
        w->record = record;
        for (int k = 0; k < f->n_numbers; k++) ((float *)dst)[k] = dt_field_number(&d->fields, i, k, c, record);
        if (f->is_input)
            fill_category(d, i, record, dst);
        else if (f->column >= 0)
            *(int32_t *)dst = f->label[dt_catalog_cell(c, f->column, record)];
        if (f->mirror && f->numbers && p->augment) dt_field_mirror(&d->fields, i, &key, dst);
        if (f->rotation && f->numbers) {
            *bad = (dt_bad_sample){record, UINT32_MAX};
            DT_TRY(sample_check_rotation(d, f, record, dst));
        }
        if (f->column >= 0 || f->numbers) continue;
        value v = {i,   f,   &d->fields.info[i], record, (uint32_t)dt_field_member(f, c, record), &key, p->augment,
                   dst, NULL};
        if (p->steps && p->steps[i]) v.steps = p->steps[i] + p->j * d->fields.info[i].n_steps;
        *bad = (dt_bad_sample){record, v.member};
        DT_TRY(fill_member(d, w, &v));
        if (f->rotation) DT_TRY(sample_check_rotation(d, f, record, dst));
        if (f->mirror && p->augment) dt_field_mirror(&d->fields, i, &key, dst);
    }
    return DT_OK;
}
