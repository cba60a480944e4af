// transform.c: changes pictures and recordings before they are stored, if that was asked for.
//
// Every record gets columns for its shape: width, height and channels of images; channels, samples, rate and
// seconds of audio. If files are stored as they are, the shape comes from the first member whose header tells it.
// A damaged or unknown header is not an error then. Files that are changed or measured for quality are decoded,
// and one that cannot be decoded is an error.
#include "transform.h"
#include "media_info.h"
#include "transform_parts.h"

#include "base/arena.h"
#include "config/words.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- options -----------------------------------------------------------------------------------------
static dt_status read_encoding(dt_transform *t) {
    const char *text = t->o->encode;
    if (!text) return DT_OK;
    int n = 0;
    t->jpeg_quality = 90;
    if (strcmp(text, "png") == 0)
        t->encoding = DT_ENCODE_PNG;
    else if (strcmp(text, "jpeg") == 0 || (sscanf(text, "jpeg:%d%n", &t->jpeg_quality, &n) == 1 && !text[n] &&
                                           t->jpeg_quality >= 1 && t->jpeg_quality <= 100))
        t->encoding = DT_ENCODE_JPEG;
    else
        return dt_fail(DT_E_USAGE, "--encode: '%s' is not jpeg:1..100 or png", text);
    return DT_OK;
}

static dt_status check_options(const dt_pack_opts *o) {
    if (o->resize < 0 || o->resize > 16384) return dt_fail(DT_E_USAGE, "--resize: expected 1..16384 pixels");
    if (o->rate != 0 && (o->rate < 1000 || o->rate > 768000))
        return dt_fail(DT_E_USAGE, "--rate: expected 1000..768000 samples/s");
    if (o->segment_s < 0 || o->segment_s > 3600 || o->hop_s < 0 || o->hop_s > 3600)
        return dt_fail(DT_E_USAGE, "--segment and --hop: expected up to 3600 seconds");
    if (o->segment_s == 0 && (o->hop_s > 0 || o->drop_tail))
        return dt_fail(DT_E_USAGE, "--hop and --tail say how to --segment, which is missing");
    return DT_OK;
}

static char *transform_describe(const dt_transform *t) {
    const dt_pack_opts *o = t->o;
    char text[256] = "";
    size_t n = 0;
#define ADD(...) n += (size_t)snprintf(text + n, sizeof text - n, __VA_ARGS__)
    if (o->resize) ADD(", resize %d", o->resize);
    if (t->encoding == DT_ENCODE_JPEG) ADD(", encode jpeg:%d", t->jpeg_quality);
    if (t->encoding == DT_ENCODE_PNG) ADD(", encode png");
    if (o->mono) ADD(", mono");
    if (o->rate) ADD(", rate %d", o->rate);
    if (o->segment_s > 0)
        ADD(", segment %.9g hop %.9g tail %s", o->segment_s, o->hop_s > 0 ? o->hop_s : o->segment_s,
            o->drop_tail ? "drop" : "pad");
    if (o->quality) ADD(", quality");
#undef ADD
    return dt_xstrdup(n ? text + 2 : "store as is");
}

dt_status dt_transform_create(dt_transform **out, const dt_pack_opts *o) {
    dt_transform *t = dt_xcalloc(1, sizeof *t);
    t->o = o;
    dt_status st = read_encoding(t);
    if (st == DT_OK) st = check_options(o);
    if (st != DT_OK) {
        free(t);
        return st;
    }
    t->description = transform_describe(t);
    *out = t;
    return DT_OK;
}

void dt_transform_destroy(dt_transform *t) {
    if (!t) return;
    free(t->description);
    free(t);
}

const char *dt_transform_describe(const dt_transform *t) {
    return t->description;
}

bool dt_transform_keeps_bytes(const dt_transform *t) {
    return !t->o->quality && t->o->resize == 0 && t->encoding == DT_ENCODE_KEEP && !dt_transform_changes_recordings(t);
}

bool dt_transform_divides(const dt_transform *t) {
    return t->o->segment_s > 0;
}

bool dt_transform_has_column(const dt_transform *t, const char *name) {
    static const char shape[] = "width|height|channels|samples|rate|seconds",
                      quality[] = "brightness|contrast|sharpness|entropy|clipping|snr|level|peak|"
                                  "silence|quality";
    return dt_word_index(shape, name) >= 0 || (t->o->quality && dt_word_index(quality, name) >= 0) ||
           (dt_transform_changes_recordings(t) && strcmp(name, "clipped") == 0) ||
           (dt_transform_divides(t) && strcmp(name, "begin_s") == 0);
}

dt_transform_scratch *dt_transform_scratch_create(void) {
    dt_transform_scratch *s = dt_xcalloc(1, sizeof *s);
    s->decoder = dt_decoder_create();
    s->resizer = dt_resizer_create();
    s->file = dt_audio_file_create();
    return s;
}

void dt_transform_scratch_destroy(dt_transform_scratch *s) {
    if (!s) return;
    dt_decoder_destroy(s->decoder);
    dt_resizer_destroy(s->resizer);
    dt_audio_file_destroy(s->file);
    dt_resampler_destroy(s->resampler);
    dt_buffer_fini(&s->small);
    dt_buffer_fini(&s->luma);
    dt_buffer_fini(&s->decoded);
    dt_buffer_fini(&s->resampled);
    dt_buffer_fini(&s->segment);
    dt_buffer_fini(&s->power);
    for (int i = 0; i < DT_TRANSFORM_MAX_MEMBERS; i++) dt_buffer_fini(&s->encoded[i]);
    free(s);
}

void dt_transform_add_number(dt_transform_record *r, const char *name, double v) {
    assert(r->n_columns < DT_TRANSFORM_MAX_COLUMNS);
    if (!isnan(v)) r->column[r->n_columns++] = (dt_transform_column){.name = name, .number = v};
}

void dt_transform_replace(dt_transform_scratch *s, dt_transform_record *r, int i, const char *kind) {
    dt_transform_member *m = &r->member[i];
    const dt_buffer *bytes = &s->encoded[i];
    char *ext = s->ext[i];
    if (m->ext != ext) { // else an earlier segment has renamed it
        const char *dot = strrchr(m->ext, '.');
        snprintf(ext, sizeof s->ext[i], "%.*s%s", dot ? (int)(dot + 1 - m->ext) : 0, m->ext, kind);
    }
    *m = (dt_transform_member){ext, {bytes->data, bytes->n_bytes}, bytes->n_bytes};
}

static void transform_add_shape(dt_transform_record *r) {
    dt_media_info m;
    for (int i = 0; i < r->n_members; i++) {
        if (!dt_media_info_read(&m, r->member[i].bytes, r->member[i].size)) continue;
        dt_transform_add_number(r, "width", m.width);
        dt_transform_add_number(r, "height", m.height);
        dt_transform_add_number(r, "channels", m.channels);
        dt_transform_add_number(r, "samples", m.samples);
        dt_transform_add_number(r, "rate", m.rate);
        dt_transform_add_number(r, "seconds", m.samples / m.rate);
        return;
    }
}

dt_status dt_transform_apply(const dt_transform *t, dt_transform_scratch *s, dt_transform_record *r,
                             dt_transform_emit emit, void *arg) {
    r->suffix = "";
    r->n_columns = 0;
    if (dt_transform_keeps_bytes(t)) {
        transform_add_shape(r);
        return emit(arg, r);
    }
    DT_TRY(dt_transform_pictures(t, s, r));
    int recording = dt_transform_find_recording(r);
    if (recording >= 0) return dt_transform_recording(t, s, r, recording, emit, arg);
    if (r->n_columns == 0) transform_add_shape(r);
    return emit(arg, r);
}
