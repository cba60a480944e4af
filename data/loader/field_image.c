// field_image.c: see field_image.h. What only the file can tell (how many bands there are) is checked when
// it is decoded; what the config alone can tell is checked here.
#include "field_image.h"

#include <math.h>
#include <stdio.h>

typedef struct reader {
    const dt_config *c;
    const char *name;
    char key[320];
} reader;

static const char *key_of(reader *r, const char *leaf) {
    snprintf(r->key, sizeof r->key, "data.fields.%s.%s", r->name, leaf);
    return r->key;
}

static int word(reader *r, const char *leaf) {
    return dt_config_enum(r->c, key_of(r, leaf));
}

static dt_status read_bands(reader *r, dt_array_spec *s, int channels) {
    const dt_cnode *list = dt_config_node(r->c, key_of(r, "bands"));
    size_t n = list ? dt_cnode_size(list) : 0;
    if (!list) return DT_OK;
    for (size_t i = 0; i < n && i < DT_MAX_CHANNELS; i++) {
        double v;
        if (!dt_cnode_real(dt_cnode_item(list, i), &v) || v < 0 || v > 1e6 || v != floor(v))
            return dt_config_fail(r->c, r->key, "expected whole numbers, counted from 0");
        s->bands[i] = (int)v;
    }
    if (n != (size_t)channels)
        return dt_config_fail(r->c, r->key, "%zu bands, but channels: %d", n, channels);
    s->n_bands = (int)n;
    return DT_OK;
}

static dt_status read_range(reader *r, dt_array_spec *s) {
    const dt_cnode *n = dt_config_node(r->c, key_of(r, "range"));
    if (!n) return DT_OK;
    size_t n_items = dt_cnode_size(n); // a word alone is a list of one
    int i = n_items == 1
                ? dt_word_index(DT_WORDS(DT_RANGE_WORDS), dt_cnode_str(dt_cnode_item(n, 0)))
                : -1;
    s->range = i < 0 ? DT_RANGE_given : (dt_range)i;
    if (i >= 0) return DT_OK;
    bool ok = n_items == 2 && dt_cnode_real(dt_cnode_item(n, 0), &s->low) &&
              dt_cnode_real(dt_cnode_item(n, 1), &s->high) && s->low < s->high;
    return ok ? DT_OK
              : dt_config_fail(r->c, r->key, "expected zscale, minmax or [low, high], low first");
}

dt_status dt_array_spec_read(dt_array_spec *out, const dt_config *c, const char *name,
                             int channels) {
    reader r = {c, name, ""};
    *out = (dt_array_spec){.f32 = word(&r, "dtype") == DT_PIXEL_f32,
                           .chw = word(&r, "layout") == DT_LAYOUT_chw,
                           .stretch = word(&r, "stretch")};
    out->softening = dt_config_real(c, key_of(&r, "softening"));
    if (!out->f32 && channels != 1 && channels != 3)
        return dt_config_fail(c, key_of(&r, "channels"),
                              "images of bytes have 1 (grey) or 3 channels; arrays of another "
                              "number want dtype: f32");
    if (out->stretch == DT_STRETCH_none && dt_config_has(c, key_of(&r, "range")))
        return dt_config_fail(c, r.key, "a range is for stretch: linear or asinh");
    DT_TRY(read_range(&r, out));
    return read_bands(&r, out, channels);
}
