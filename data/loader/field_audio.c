// field_audio.c: the keys of an audio field, and what depends on the rate when they are left out: the
// transform is the power of two from 25 ms on (32 to 51 ms for the common rates), the hop a quarter of it,
// bands reach up to half the rate.
#include "fields.h"

#include "base/core.h"
#include "base/hash.h"
#include "base/log.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void read_features(const dt_config_field *f, dt_feature_opts *o) {
    o->kind = f->features;
    int n_fft = 2;
    while (n_fft < o->rate / 40.0) n_fft *= 2; // 25 ms, up to a power of two
    o->n_fft = (int)dt_answer_or(f->n_fft, n_fft);
    o->window = (int)dt_answer_or(f->window, o->n_fft);
    o->hop = (int)dt_answer_or(f->hop, o->n_fft >= 4 ? o->n_fft / 4 : 1);
    o->center = f->center;
    o->reflect = f->edges == DT_EDGES_reflect;
    o->power = (int)f->power;
    o->n_mels = (int)f->n_mels;
    o->f_min = f->f_min;
    o->f_max = dt_value_or(f->f_max, o->rate / 2.0);
    o->htk = f->mel_scale == DT_MEL_SCALE_htk;
    o->slaney_norm = f->mel_norm == DT_MEL_NORM_slaney;
    o->decibel = f->log == DT_LOG_db;
    o->floor = dt_value_or(f->floor, o->decibel ? 1e-10 : 1e-6);
    o->top_db = f->top_db;
    o->n_mfcc = (int)f->n_mfcc;
}

// What is slower than any sound has no usual length of a transform.
static dt_status check_transform(dt_field_keys *r, const dt_feature_opts *o) {
    if (o->rate >= 1000 || o->kind == DT_FEATURE_waveform || dt_answer_or(r->f->n_fft, 0) > 0) return DT_OK;
    return dt_config_fail(r->c, dt_key_of(r, "n_fft"),
                          "below 1000 Hz n_fft: auto, which is 25 ms, means nothing: give the samples of a transform "
                          "(at %g Hz n_fft: 64 takes %.3g s), or features: waveform",
                          o->rate, 64 / o->rate);
}

static dt_status field_audio_read_all(dt_field_keys *r, dt_audio_field *f) {
    if (!r->f->rate.has) return dt_config_fail(r->c, dt_key_of(r, ""), "an audio field needs rate: (Hz)");
    if (!r->f->seconds.has)
        return dt_config_fail(r->c, dt_key_of(r, ""), "an audio field needs seconds: (of a sample)");
    f->clip.rate = r->f->rate.value;
    f->clip.n_samples = llround(r->f->seconds.value * f->clip.rate); // whole samples: the network's shape is fixed
    f->clip.channels = (int)dt_answer_or(r->f->channels, 1);
    f->clip.pad = r->f->pad;
    const dt_cnode *names = r->f->variable;
    const size_t n = names ? dt_cnode_size(names) : 0;
    if (n > DT_AUDIO_MAX_CHANNELS)
        return dt_config_fail(r->c, dt_key_of(r, "variable"), "expected at most %d names", DT_AUDIO_MAX_CHANNELS);
    for (size_t i = 0; i < n; i++) f->clip.names.name[f->clip.names.n++] = dt_cnode_str(dt_cnode_item(names, i));
    dt_feature_opts o = {.rate = f->clip.rate, .channels = f->clip.channels, .n_samples = f->clip.n_samples};
    read_features(r->f, &o);
    DT_TRY(check_transform(r, &o));
    if (dt_features_create(&f->features, &o) != DT_OK)
        return dt_config_fail(r->c, dt_key_of(r, ""), "%s", dt_error_message());
    int n_empty = dt_features_empty_bands(f->features);
    if (n_empty > 0)
        dt_warn("data.fields.%s: %d of %d mel bands are so narrow that no frequency of a transform of "
                "%d lies in them; they stay empty: take fewer n_mels or a larger n_fft",
                r->f->id, n_empty, o.n_mels, o.n_fft);
    const dt_cnode *list = dt_key_augment(r);
    return list ? dt_audio_augment_parse(&f->augment, list, r->f->id, o.kind != DT_FEATURE_waveform) : DT_OK;
}

dt_status dt_audio_field_create(dt_audio_field **out, const dt_config *c, const dt_config_field *keys) {
    dt_field_keys r = {c, keys, ""};
    dt_audio_field *f = dt_xcalloc(1, sizeof *f);
    char purpose[256];
    snprintf(purpose, sizeof purpose, "augment.%s.clip", keys->id);
    f->crop_purpose = dt_hash32(purpose); // the crop's own stream of random numbers, by the field's name
    dt_status st = field_audio_read_all(&r, f);
    if (st != DT_OK) {
        dt_audio_field_destroy(f);
        return st;
    }
    *out = f;
    return DT_OK;
}

void dt_audio_field_destroy(dt_audio_field *f) {
    if (!f) return;
    dt_features_destroy(f->features);
    dt_augment_destroy(f->augment);
    free(f);
}

void dt_audio_field_describe(const dt_audio_field *f, dt_field_info *out) {
    int64_t rows, columns;
    dt_features_shape(f->features, &rows, &columns);
    out->is_image = true; // (bins, frames, channels), as an image's (height, width, channels)
    out->dtype = DT_F32;
    out->sample_shape = dt_shape3(rows, columns, f->clip.channels);
}
