// transform.c: the transform that stores records as they are, and notes what their headers say.
//
// Columns of shape: width, height and channels of images; channels, samples, rate and seconds of audio.
// They come from the first member that has them; a header that is cut or of another kind gives none,
// as packing does not judge files that it stores unchanged.
#include "transform.h"
#include "media_info.h"

#include "base/arena.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

struct dt_transform {
    char *description;
};

struct dt_transform_scratch {
    dt_transform_record record;
};

dt_status dt_transform_create(dt_transform **out, const dt_pack_opts *o) {
    dt_transform *t = dt_xcalloc(1, sizeof *t);
    t->description = dt_xstrdup("store as is");
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
    return true;
}

bool dt_transform_divides(const dt_transform *t) {
    return false;
}

const char *const *dt_transform_columns(const dt_transform *t) {
    static const char *const NAMES[] = {"width", "height",  "channels", "samples",
                                        "rate",  "seconds", NULL};
    return NAMES;
}

dt_transform_scratch *dt_transform_scratch_create(void) {
    return dt_xcalloc(1, sizeof(dt_transform_scratch));
}

void dt_transform_scratch_destroy(dt_transform_scratch *s) {
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
    add_shape(r);
    return emit(arg, r);
}
