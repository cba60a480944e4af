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

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const SHAPE[] = {"width", "height", "channels", "samples", "rate", "seconds"};
static const char *const QUALITY[] = {"brightness", "contrast", "sharpness", "entropy", "clipping",
                                      "snr",        "level",    "peak",      "silence", "quality"};
enum { N_SHAPE = sizeof SHAPE / sizeof *SHAPE, N_QUALITY = sizeof QUALITY / sizeof *QUALITY };

struct dt_transform {
    dt_transform_spec spec;
    char *description;
    const char *columns[N_SHAPE + N_QUALITY + 2];
};

struct dt_transform_scratch {
    dt_transform_record record;
    dt_picture_scratch *pictures;
    dt_recording_scratch *recordings;
};

// ---- options -----------------------------------------------------------------------------------------
static dt_status read_encoding(const char *text, dt_transform_spec *s) {
    if (!text) return DT_OK;
    int n = 0;
    s->jpeg_quality = 90;
    if (strcmp(text, "png") == 0)
        s->encoding = DT_ENCODE_PNG;
    else if (strcmp(text, "jpeg") == 0 ||
             (sscanf(text, "jpeg:%d%n", &s->jpeg_quality, &n) == 1 && !text[n] &&
              s->jpeg_quality >= 1 && s->jpeg_quality <= 100))
        s->encoding = DT_ENCODE_JPEG;
    else
        return dt_fail(DT_E_USAGE, "--encode: '%s' is not jpeg:1..100 or png", text);
    return DT_OK;
}

static dt_status read_spec(const dt_pack_opts *o, dt_transform_spec *s) {
    *s = (dt_transform_spec){.quality = o->quality,
                             .resize = o->resize,
                             .segment_s = o->segment_s,
                             .hop_s = o->hop_s,
                             .drop_tail = o->drop_tail,
                             .rate = o->rate,
                             .mono = o->mono};
    DT_TRY(read_encoding(o->encode, s));
    if (s->resize < 0 || s->resize > 16384)
        return dt_fail(DT_E_USAGE, "--resize: expected 1..16384 pixels");
    if (s->rate != 0 && (s->rate < 1000 || s->rate > 768000))
        return dt_fail(DT_E_USAGE, "--rate: expected 1000..768000 samples/s");
    if (s->segment_s < 0 || s->segment_s > 3600 || s->hop_s < 0 || s->hop_s > 3600)
        return dt_fail(DT_E_USAGE, "--segment and --hop: expected up to 3600 seconds");
    if (s->segment_s == 0 && (s->hop_s > 0 || s->drop_tail))
        return dt_fail(DT_E_USAGE, "--hop and --tail say how to --segment, which is missing");
    return DT_OK;
}

static char *describe(const dt_transform_spec *s) {
    char text[256] = "";
    size_t n = 0;
#define ADD(...) n += (size_t)snprintf(text + n, sizeof text - n, __VA_ARGS__)
    if (s->resize) ADD(", resize %d", s->resize);
    if (s->encoding == DT_ENCODE_JPEG) ADD(", encode jpeg:%d", s->jpeg_quality);
    if (s->encoding == DT_ENCODE_PNG) ADD(", encode png");
    if (s->mono) ADD(", mono");
    if (s->rate) ADD(", rate %d", s->rate);
    if (s->segment_s > 0)
        ADD(", segment %.9g hop %.9g tail %s", s->segment_s, s->hop_s > 0 ? s->hop_s : s->segment_s,
            s->drop_tail ? "drop" : "pad");
    if (s->quality) ADD(", quality");
#undef ADD
    return dt_xstrdup(n ? text + 2 : "store as is");
}

dt_status dt_transform_create(dt_transform **out, const dt_pack_opts *o) {
    dt_transform *t = dt_xcalloc(1, sizeof *t);
    dt_status st = read_spec(o, &t->spec);
    if (st != DT_OK) {
        free(t);
        return st;
    }
    t->description = describe(&t->spec);
    int n = N_SHAPE;
    memcpy(t->columns, SHAPE, sizeof SHAPE);
    for (int i = 0; i < N_QUALITY && o->quality; i++) t->columns[n++] = QUALITY[i];
    if (t->spec.segment_s > 0) t->columns[n++] = "begin_s";
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

static bool decodes(const dt_transform_spec *s) {
    return s->quality || dt_transform_changes_pictures(s) || dt_transform_changes_recordings(s);
}

bool dt_transform_keeps_bytes(const dt_transform *t) {
    return !decodes(&t->spec);
}

bool dt_transform_divides(const dt_transform *t) {
    return t->spec.segment_s > 0;
}

const char *const *dt_transform_columns(const dt_transform *t) {
    return t->columns;
}

dt_transform_scratch *dt_transform_scratch_create(void) {
    dt_transform_scratch *s = dt_xcalloc(1, sizeof *s);
    s->pictures = dt_picture_scratch_create();
    s->recordings = dt_recording_scratch_create();
    return s;
}

void dt_transform_scratch_destroy(dt_transform_scratch *s) {
    if (!s) return;
    dt_picture_scratch_destroy(s->pictures);
    dt_recording_scratch_destroy(s->recordings);
    free(s);
}

void dt_transform_add_number(dt_transform_record *r, const char *name, double v) {
    assert(r->n_columns < DT_TRANSFORM_MAX_COLUMNS);
    if (!isnan(v)) r->column[r->n_columns++] = (dt_transform_column){.name = name, .number = v};
}

static void add_shape(dt_transform_record *r) {
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

dt_status dt_transform_apply(const dt_transform *t, dt_transform_scratch *s,
                             const dt_transform_item *item, dt_transform_emit emit, void *arg) {
    dt_transform_record *r = &s->record;
    r->suffix = "";
    r->n_columns = 0;
    r->n_members = item->n_members;
    for (int i = 0; i < item->n_members; i++) r->member[i] = item->member[i];
    if (!decodes(&t->spec)) {
        add_shape(r);
        return emit(arg, r);
    }
    DT_TRY(dt_transform_pictures(&t->spec, s->pictures, r));
    if (dt_transform_has_recording(r))
        return dt_transform_recording(&t->spec, s->recordings, r, emit, arg);
    if (r->n_columns == 0) add_shape(r);
    return emit(arg, r);
}
