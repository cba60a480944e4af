// fields.c: what the config calls a field.
//
// A field is a member's extension, else a metadata column. A member matches when its extension is the
// name, starts with "name." (fingerprint.bmp) or ends with ".name" (seg.jpg for jpg). An image field
// whose name matches nothing takes the record's picture, else its array, so that `image:` reads any set; an
// audio field likewise.
// A real field takes a column of numbers, a vector field several (`source: [yaw, pitch, roll]`). A class
// field takes a column; if none has its name, `label` (what packing by folder writes) or `cls`
// (sets made elsewhere). Its classes are the column's distinct values in sorted order, numbers by value,
// unless they are already 0..classes-1. A run that knows its classes keeps their numbers, whatever the column has.
#include "fields.h"

#include "base/core.h"
#include "base/log.h"
#include "base/text.h"
#include "data/augment/mix.h"
#include "data/catalog/catalog.h"
#include "data/catalog/select.h"
#include "data/file/file.h"

#include <float.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct resolver {
    dt_field_keys k;
    const dt_catalog *c;
    const json_t *known; // the run's classes of this field, or NULL
    dt_field *f;
    dt_field_info *info;
} resolver;

static bool ext_matches(const char *ext, const char *name) {
    size_t n_ext = strlen(ext), n = strlen(name);
    if (n > n_ext) return false;
    // png for png.gz, fingerprint for fingerprint.bmp
    if (strncmp(ext, name, n) == 0 && (ext[n] == '\0' || ext[n] == '.')) return true;
    return strcmp(ext + n_ext - n, name) == 0 && (n == n_ext || ext[n_ext - n - 1] == '.');
}

static bool is_of_use(const char *ext, unsigned uses) {
    const dt_kind *k = dt_kind_of_name(ext);
    return k && (k->uses & uses);
}

// The extensions called `name`, or (NULL) those of kinds with `uses`; whether there are any.
static bool mark_exts(resolver *r, const char *name, unsigned uses) {
    bool any = false;
    r->f->is_ext = dt_xcalloc(r->c->n_exts + 1, sizeof(bool));
    for (uint32_t i = 0; i < r->c->n_exts; i++) {
        const char *ext = dt_catalog_str(r->c, r->c->exts[i]);
        r->f->is_ext[i] = name ? ext_matches(ext, name) : is_of_use(ext, uses);
        any = any || r->f->is_ext[i];
    }
    if (!any) {
        free(r->f->is_ext);
        r->f->is_ext = NULL;
    }
    return any;
}

// "extensions a, b; columns c, d": what the set has, for messages.
static const char *what_it_has(const dt_catalog *c, char *buf, size_t cap) {
    size_t at = (size_t)snprintf(buf, cap, "it has members");
    for (uint32_t i = 0; i < c->n_exts && i < 12 && at < cap; i++) // a dozen: a message is read in a terminal
        at += (size_t)snprintf(buf + at, cap - at, "%s .%s", i ? "," : "", dt_catalog_str(c, c->exts[i]));
    for (uint32_t i = 0, n_texts = 0, n_reals = 0; i < c->table.n_columns && at < cap; i++) {
        const bool real = c->table.columns[i].number;
        uint32_t *n = real ? &n_reals : &n_texts;
        if (*n < 12)
            at += (size_t)snprintf(buf + at, cap - at, "%s %s",
                                   *n     ? ","
                                   : real ? " and number columns"
                                          : " and columns",
                                   dt_columns_name(&c->table, (int)i));
        ++*n;
    }
    return buf;
}

// The name of item i of `source`, a word or a list; the field's own name when there is none.
static const char *source_name(resolver *r, size_t i, size_t *n) {
    const dt_cnode *given = r->k.f->source;
    bool list = given && dt_cnode_kind(given) == DT_C_LIST;
    *n = list ? dt_cnode_size(given) : 1; // an empty list: 0, which the caller refuses
    if (!given) return r->f->name;
    return dt_cnode_str(list ? dt_cnode_item(given, i) : given);
}

static dt_status no_source(resolver *r, const char *what, const char *name) {
    char has[512];
    const dt_cnode *made = r->k.c->data.columns ? dt_cnode_get(r->k.c->data.columns, name) : NULL;
    // of another set than the run's: why its expression gave no column is found again
    if (made && dt_cnode_kind(made) == DT_C_SCALAR &&
        dt_catalog_derive((dt_catalog *)(uintptr_t)r->c, name, dt_cnode_str(made)) != DT_OK) {
        const dt_error_kept why = dt_error_keep();
        return dt_config_fail(r->k.c, dt_key_of(&r->k, ""),
                              "data.columns.%s does not fit this data set: %s; make it of what the set has, behind the "
                              "command: data.columns.%s=… (%s)",
                              name, why.message, name, r->c->shards[0].path);
    }
    return dt_config_fail(r->k.c, dt_key_of(&r->k, ""), "the data set has no %s '%s': %s; name one with `source:` (%s)",
                          what, name, what_it_has(r->c, has, sizeof has), r->c->shards[0].path);
}

static dt_status find_class(resolver *r, const char *name, bool given) {
    const char *const names[] = {name, "label", "cls"};
    for (int i = 0; i < (given ? 1 : 3); i++) { // the first that has values
        const int k = dt_catalog_find_column(r->c, names[i]), have = r->f->column;
        if (k >= 0 && (have < 0 || r->c->table.columns[have].n_values == 0)) r->f->column = k;
    }
    if (r->f->column >= 0) return DT_OK;
    if (dt_catalog_find_real(r->c, name) < 0) return no_source(r, "column", name);
    return dt_config_fail(r->k.c, dt_key_of(&r->k, ""),
                          "column '%s' holds numbers with a point, which are no classes; "
                          "data.columns makes some, such as {%s_class: floor(%s)}",
                          name, name, name);
}

// A real takes one column; a vector as many as `source` lists.
static dt_status find_number(resolver *r, const char *name, const char *what, dt_number_source *s) {
    s->column = dt_columns_find(&r->c->table, name, DT_TEXT_COLUMN | DT_NUMBER_COLUMN);
    return s->column < 0 ? no_source(r, what, name) : DT_OK;
}

static dt_status find_numbers(resolver *r, size_t n) {
    r->f->numbers = dt_xcalloc(n, sizeof *r->f->numbers);
    r->f->n_numbers = (int)n;
    for (size_t i = 0; i < n; i++) {
        const char *name = source_name(r, i, &n);
        DT_TRY(find_number(r, name, n == 1 ? "member or column" : "column", &r->f->numbers[i]));
    }
    return DT_OK;
}

static dt_status fields_find_source(resolver *r) {
    size_t n;
    const bool given = r->k.f->source != NULL;
    const char *name = source_name(r, 0, &n);
    r->f->column = -1;
    if (n == 0 || (n > 1 && r->f->kind != DT_FIELD_vector))
        return dt_config_fail(r->k.c, dt_key_of(&r->k, "source"),
                              "a list of columns makes a vector field; here expected one name");
    if (!r->c) { // numbers without a size are of columns
        r->f->n_numbers = n > 1 || !r->k.f->size ? (int)n : 0;
        return DT_OK;
    }
    if (r->f->kind == DT_FIELD_class) return find_class(r, name, given);
    if (n == 1 && mark_exts(r, name, 0)) return DT_OK; // a member goes before a column of the same name
    if (r->f->kind == DT_FIELD_image) {
        bool any = !given && (mark_exts(r, NULL, DT_KIND_PICTURE) || mark_exts(r, NULL, DT_KIND_ARRAY));
        return any ? DT_OK : no_source(r, "images", name);
    }
    if (r->f->kind == DT_FIELD_audio) {
        // series, too, but no txt, which may be anything: `source: txt` names one
        static const char *const EXTS[] = {DT_SERIES_EXTS};
        bool any = !given && mark_exts(r, NULL, DT_KIND_AUDIO);
        for (size_t i = 0; i < sizeof EXTS / sizeof *EXTS && !given && !any; i++) any = mark_exts(r, EXTS[i], 0);
        return any ? DT_OK : no_source(r, "sounds", name);
    }
    return find_numbers(r, n);
}

static dt_status read_reals(resolver *r, const dt_cnode *list, const char *what, int n, double *out) {
    bool ok =
        list && dt_cnode_kind(list) == DT_C_LIST && (dt_cnode_size(list) == (size_t)n || dt_cnode_size(list) == 1);
    for (int i = 0; i < n && ok; i++) {
        out[i] = 0;
        ok = dt_cnode_real(dt_cnode_item(list, dt_cnode_size(list) == 1 ? 0 : (size_t)i), &out[i]);
    }
    return ok ? DT_OK
              : dt_config_fail(r->k.c, dt_key_of(&r->k, "normalize"), "%s: expected a list of %d numbers", what, n);
}

static dt_status read_normalize(resolver *r, int channels) {
    for (int i = 0; i < DT_MAX_NORMALIZE; i++) r->info->std[i] = 1; // mean 0, std 1: values as they are
    const dt_cnode *n = r->k.f->normalize;
    const char *key = dt_key_of(&r->k, "normalize");
    if (!n) return DT_OK;
    if (dt_cnode_kind(n) != DT_C_MAP) {
        const bool numbers = r->f->kind == DT_FIELD_real || r->f->kind == DT_FIELD_vector;
        r->info->normalize_auto = numbers && dt_shape_elements(&r->info->sample_shape) <= DT_MAX_NORMALIZE;
        if (r->info->normalize_auto) return DT_OK;
        return dt_config_fail(r->k.c, key,
                              "%s: auto is for numbers, at most %d in a vector; here expected "
                              "{mean: [...], std: [...]}",
                              key, DT_MAX_NORMALIZE);
    }
    if (dt_cnode_get(n, "mean")) DT_TRY(read_reals(r, dt_cnode_get(n, "mean"), "mean", channels, r->info->mean));
    if (dt_cnode_get(n, "std")) DT_TRY(read_reals(r, dt_cnode_get(n, "std"), "std", channels, r->info->std));
    for (int i = 0; i < channels; i++)
        if (!(r->info->std[i] > 0)) return dt_config_fail(r->k.c, key, "%s: std: expected above 0", key);
    return DT_OK;
}

static dt_status fields_read_size(resolver *r, int n, int64_t *out) {
    const dt_cnode *s = r->k.f->size;
    size_t have = s && dt_cnode_kind(s) == DT_C_LIST ? dt_cnode_size(s) : 0;
    bool ok = have == (size_t)n || have == 1; // one number: square
    for (int i = 0; i < n && ok; i++) {
        double v;
        // 16384: a side's square fits 2^28 pixels
        ok = dt_cnode_real(dt_cnode_item(s, have == 1 ? 0 : (size_t)i), &v) && v >= 1 && v <= 16384 && v == floor(v);
        out[i] = ok ? (int64_t)v : 0;
    }
    if (ok) return DT_OK;
    return dt_config_fail(r->k.c, dt_key_of(&r->k, s ? "size" : ""),
                          n == 2 ? "an image field needs size: [height, width]"
                                 : "a vector field needs size: [length]");
}

// Whether the members are arrays, as far as their extensions tell.
static bool is_of_arrays(const resolver *r) {
    bool any = false;
    for (uint32_t i = 0; r->c && i < r->c->n_exts; i++)
        any = any || (r->f->is_ext[i] && is_of_use(dt_catalog_str(r->c, r->c->exts[i]), DT_KIND_ARRAY));
    return any;
}

static dt_status read_bands(dt_field_keys *k, dt_array_spec *s, int channels) {
    const dt_cnode *list = k->f->bands;
    size_t n = list ? dt_cnode_size(list) : 0;
    if (!list) return DT_OK;
    for (size_t i = 0; i < n && i < DT_MAX_CHANNELS; i++) {
        double v;
        if (!dt_cnode_real(dt_cnode_item(list, i), &v) || v < 0 || v > 1e6 || v != floor(v))
            return dt_config_fail(k->c, dt_key_of(k, "bands"), "expected whole numbers, counted from 0");
        s->bands[i] = (int)v;
    }
    if (n != (size_t)channels)
        return dt_config_fail(k->c, dt_key_of(k, "bands"), "%zu bands, but channels: %d", n, channels);
    s->n_bands = (int)n;
    return DT_OK;
}

static dt_status read_hdus(dt_field_keys *k, dt_array_spec *s) {
    const dt_cnode *list = k->f->hdu;
    size_t n = list ? dt_cnode_size(list) : 0;
    if (n > DT_MAX_HDUS)
        return dt_config_fail(k->c, dt_key_of(k, "hdu"), "expected at most %d names or numbers", DT_MAX_HDUS);
    for (size_t i = 0; i < n; i++) s->hdus[s->n_hdus++] = dt_cnode_str(dt_cnode_item(list, i));
    return DT_OK;
}

static dt_status fields_read_range(dt_field_keys *k, dt_array_spec *s) {
    const dt_cnode *n = k->f->range;
    if (!n) return DT_OK;
    size_t n_items = dt_cnode_size(n); // a word alone is a list of one
    int i = n_items == 1 ? dt_word_index(DT_WORDS(DT_RANGE_WORDS), dt_cnode_str(dt_cnode_item(n, 0))) : -1;
    s->range = i < 0 ? DT_RANGE_given : (dt_range)i;
    if (i >= 0) return DT_OK;
    bool ok = n_items == 2 && dt_cnode_real(dt_cnode_item(n, 0), &s->low) &&
              dt_cnode_real(dt_cnode_item(n, 1), &s->high) && s->low < s->high;
    return ok ? DT_OK
              : dt_config_fail(k->c, dt_key_of(k, "range"), "expected zscale, minmax or [low, high], low first");
}

// What becomes of arrays (FITS, NPY). How many bands a file has is checked when it is decoded.
static dt_status read_array_spec(dt_field_keys *k, dt_array_spec *out, int channels) {
    *out = (dt_array_spec){.f32 = k->f->dtype == DT_PIXEL_f32,
                           .chw = k->f->layout == DT_LAYOUT_chw,
                           .stretch = k->f->stretch,
                           .softening = k->f->softening};
    if (!out->f32 && channels != 1 && channels != 3)
        return dt_config_fail(k->c, dt_key_of(k, "channels"),
                              "images of bytes have 1 (grey) or 3 channels; arrays of another "
                              "number want dtype: f32");
    if (out->stretch == DT_STRETCH_none && k->f->range)
        return dt_config_fail(k->c, dt_key_of(k, "range"), "a range is for stretch: linear or asinh");
    DT_TRY(read_hdus(k, out));
    DT_TRY(fields_read_range(k, out));
    return read_bands(k, out, channels);
}

// Floats of values whose mean is far above their deviation (metres of a map projection) would be rounded to few levels, and
// again where the network subtracts the mean: it is subtracted first, in double.
static void take_origin(resolver *r, int64_t channels, double *out) {
    enum { FAR = 10000 };
    dt_field_info *info = r->info;
    for (int64_t c = 0; c < channels; c++) {
        if (fabs(info->mean[c]) < FAR * info->std[c]) continue;
        out[c] = info->origin[c] = info->mean[c];
        info->mean[c] = 0; // decoding subtracts it, in double
    }
}

static dt_status resolve_image(resolver *r) {
    int64_t size[2];
    DT_TRY(fields_read_size(r, 2, size)); // height, width
    const int64_t channels = dt_answer_or(r->k.f->channels, 3);
    DT_TRY(read_array_spec(&r->k, &r->f->array, (int)channels));
    r->info->is_image = true;
    r->info->dtype = r->f->array.f32 ? DT_F32 : DT_U8;
    r->info->sample_shape = dt_shape3(size[0], size[1], channels);
    DT_TRY(read_normalize(r, (int)channels));
    if (r->f->array.f32 && r->f->array.stretch == DT_STRETCH_none) take_origin(r, channels, r->f->array.origin);
    r->f->max_pixels = dt_answer_or(r->k.c->data.max_pixels, 0);
    DT_TRY(dt_fit_read(&r->f->fit, r->k.c, r->k.f, (int)size[1], (int)size[0]));
    char key[320];
    snprintf(key, sizeof key, "data.augment.%s", r->f->name);
    const dt_cnode *list = dt_key_augment(&r->k);
    if (!list) return DT_OK;
    DT_TRY(dt_augment_parse(&r->f->augment, list, r->f->name));
    const char *of_bytes = dt_augment_of_bytes(r->f->augment);
    if (!of_bytes || !r->f->array.f32 || !is_of_arrays(r)) return DT_OK;
    return dt_config_fail(r->k.c, key,
                          "%s works on bytes; an array of floats (dtype: f32) can be moved, not "
                          "recoloured: flip, crop, shift, zoom, rotate, affine, perspective",
                          of_bytes);
}

static dt_status fields_read_numbers(resolver *r, dt_number_source *s);

static dt_status resolve_audio(resolver *r) {
    r->f->rate.column = -1;
    if (r->c && r->k.f->rate_column) {
        DT_TRY(find_number(r, r->k.f->rate_column, "column", &r->f->rate));
        DT_TRY(fields_read_numbers(r, &r->f->rate));
    }
    DT_TRY(dt_audio_field_create(&r->f->audio, r->k.c, r->k.f));
    dt_audio_field_describe(r->f->audio, r->info);
    const int64_t channels = r->info->sample_shape.d[2];
    DT_TRY(read_normalize(r, (int)channels));
    if (r->k.f->features == DT_FEATURE_waveform) take_origin(r, channels, r->f->audio->clip.origin);
    return DT_OK;
}

// Already 0..classes-1? Then the value is the label.
static bool is_label(const char *text, int64_t n_classes, int32_t *out) {
    char *end;
    long v = strtol(text, &end, 10);
    if (end == text || *end || v < 0 || v >= n_classes) return false; // strtol's limits are outside, too
    *out = (int32_t)v;
    return true;
}

// ", a, b": the first few classes by name, or by number where they have none.
static void list_class(const resolver *r, int64_t k, int *n_listed, char *buf, size_t cap) {
    enum { MOST = 10 };
    const size_t at = strlen(buf);
    const char *name = r->f->class_names ? r->f->class_names[k] : NULL;
    if (*n_listed < MOST && name)
        snprintf(buf + at, cap - at, "%s%s", at ? ", " : "", name);
    else if (*n_listed < MOST)
        snprintf(buf + at, cap - at, "%s%lld", at ? ", " : "", (long long)k);
    else if (*n_listed == MOST)
        snprintf(buf + at, cap - at, ", …");
    ++*n_listed;
}

static dt_status unknown_class(resolver *r, const char *value) {
    char list[512] = "";
    int n_listed = 0;
    for (int64_t k = 0; k < r->info->n_classes; k++) list_class(r, k, &n_listed, list, sizeof list);
    return dt_config_fail(r->k.c, dt_key_of(&r->k, ""),
                          "column %s has class '%s', which this run does not know: its %d classes "
                          "are %s%s. Leave such records out with data.where, or rename the class",
                          dt_columns_name(&r->c->table, r->f->column), value, r->info->n_classes,
                          r->f->class_names ? "" : "the numbers ", list);
}

static void name_as_known(resolver *r) {
    const int n = r->info->n_classes;
    if (!json_is_array(r->known)) return;
    r->f->class_names = dt_xcalloc((size_t)n + 1, sizeof(char *));
    for (int k = 0; k < n; k++) r->f->class_names[k] = json_string_value(json_array_get(r->known, (size_t)k));
}

// As the run has numbered them.
static dt_status number_as_known(resolver *r, const dt_column *col) {
    const int n = r->info->n_classes;
    const char *first = NULL;
    int n_unknown = 0;
    for (uint32_t v = 0; v < col->n_values; v++) {
        const char *value = dt_catalog_str(r->c, col->values[v]);
        int k = 0;
        while (r->f->class_names && k < n && (!r->f->class_names[k] || strcmp(r->f->class_names[k], value) != 0)) k++;
        r->f->label[v] = k;
        if (k < n && (r->f->class_names || is_label(value, n, &r->f->label[v]))) continue;
        if (r->k.f->input) r->f->label[v] = n; // a row of zeros
        if (r->k.f->input && n_unknown++ == 0) first = value;
        if (r->k.f->input) continue;
        if (!r->f->tells_apart) return unknown_class(r, value);
        r->f->label[v] = n + r->info->n_strangers++; // embeddings tell classes apart that training has not seen
    }
    if (n_unknown > 0)
        dt_warn_alike("field %s: %d value%s of no class that this run knows, such as '%s', are zeros", r->f->name,
                      n_unknown, n_unknown == 1 ? "" : "s", first);
    return DT_OK;
}

// Sorted values, or numbers that are labels already.
static dt_status number_anew(resolver *r, const dt_column *col) {
    const int n = r->info->n_classes;
    bool plain = true;
    for (uint32_t v = 0; v < col->n_values && plain; v++)
        plain = is_label(dt_catalog_str(r->c, col->values[v]), n, &r->f->label[v]);
    if (plain) return DT_OK;
    r->f->class_names = dt_xcalloc((size_t)n + 1, sizeof(char *));
    for (uint32_t v = 0; v < col->n_values; v++) {
        const char *name = dt_catalog_str(r->c, col->values[v]);
        if (*dt_text_utf8_end(name)) // which the checkpoint's JSON could not hold
            return dt_config_fail(r->k.c, dt_key_of(&r->k, ""),
                                  "column %s has class '%s', which is not UTF-8: rename it, or "
                                  "save its table as UTF-8 and pack again",
                                  dt_catalog_str(r->c, col->name), name);
        r->f->label[v] = (int32_t)v;
        r->f->class_names[v] = name;
    }
    return DT_OK;
}

// Those that no record has, or, where they have no name, those that there are.
static void warn_missing_classes(const resolver *r, const dt_column *col) {
    const int n = r->info->n_classes;
    bool *there = dt_xcalloc((size_t)(n + r->info->n_strangers) + 1, sizeof *there), anonymous = false;
    char missing[512] = "", present[512] = "";
    int n_missing = 0, n_present = 0;
    for (uint32_t v = 0; v < col->n_values; v++) there[r->f->label[v]] = true;
    for (int k = 0; k < n; k++) {
        anonymous |= r->f->class_names && !r->f->class_names[k];
        if (there[k])
            list_class(r, k, &n_present, present, sizeof present);
        else
            list_class(r, k, &n_missing, missing, sizeof missing);
    }
    free(there);
    if (n_missing > 0)
        dt_warn_alike("field %s: %d of %d classes have no record: %s %s", r->f->name, n_missing, n,
                      anonymous ? "there are only" : "there is no", anonymous ? present : missing);
}

static dt_status find_classes(resolver *r) {
    const dt_column *col = r->c ? &r->c->table.columns[r->f->column] : NULL; // NULL: the config alone, without the data
    const json_t *known = r->known;
    int64_t n = col ? col->n_values : 0,
            n_known = json_is_array(known) ? (int64_t)json_array_size(known) : json_integer_value(known);
    if (known) n = n_known;
    if (r->k.f->classes.has)
        n = r->k.f->classes.value;
    else if (!col && !known)
        return dt_config_fail(r->k.c, dt_key_of(&r->k, ""), "without the data set, field '%s' needs classes: N",
                              r->f->name);
    if (known && n != n_known)
        return dt_config_fail(r->k.c, dt_key_of(&r->k, "classes"), "this run has %lld classes, and `classes` is %lld",
                              (long long)n_known, (long long)n);
    if (!known && col && col->n_values > n)
        return dt_config_fail(r->k.c, dt_key_of(&r->k, "classes"),
                              "the data set has %u classes (column %s), and `classes` is %lld", col->n_values,
                              dt_catalog_str(r->c, col->name), (long long)n);
    r->info->dtype = DT_I32;
    r->info->sample_shape = dt_shape0();
    r->info->n_classes = (int)n;
    r->info->soft = dt_mix_wanted(r->k.c);
    if (r->f->absent || (known && col)) name_as_known(r); // the run's names, whatever the column has
    r->info->class_names = r->f->class_names;
    if (!col) return DT_OK;
    r->f->label = dt_xcalloc(col->n_values + 1, sizeof(int32_t));
    if (known)
        DT_TRY(number_as_known(r, col));
    else
        DT_TRY(number_anew(r, col));
    r->info->class_names = r->f->class_names;
    if (!r->k.f->input) warn_missing_classes(r, col); // a house to predict has one postcode
    return DT_OK;
}

// Of a class that is an input the batch holds a row of numbers, 1 at its class.
static dt_status resolve_class(resolver *r) {
    enum { MOST = 65536 }; // a row a sample
    DT_TRY(find_classes(r));
    const int n = r->info->n_classes;
    const bool embeds = r->k.f->input == DT_CLASS_INPUT_embedding;
    if (r->k.f->embedding_dim.has && !embeds)
        return dt_config_fail(r->k.c, dt_key_of(&r->k, "embedding_dim"),
                              "embedding_dim has no effect without input: "
                              "embedding");
    if (!r->k.f->input) return DT_OK;
    if (n > MOST)
        return dt_config_fail(r->k.c, dt_key_of(&r->k, "input"),
                              "%d classes; an input has at most %d: put rare ones "
                              "together in data.columns",
                              n, MOST);
    if (embeds) r->info->embedding = (int)dt_value_or(r->k.f->embedding_dim, n < 99 ? (n + 1) / 2 : 50);
    r->info->n_categories = n;
    r->info->n_classes = 0;
    r->info->soft = false;
    r->info->dtype = DT_F32;
    r->info->sample_shape = dt_shape1(n);
    r->f->is_input = true;
    for (int i = 0; i < DT_MAX_NORMALIZE; i++) r->info->std[i] = 1;
    return DT_OK;
}

#define BAD_NUMBER "correct it, or leave such records out with data.where"

// Every value of a metadata column as a number.
static dt_status fields_read_values(resolver *r, dt_number_source *s) {
    const dt_column *col = &r->c->table.columns[s->column];
    s->by_value = dt_xcalloc(col->n_values + 1, sizeof *s->by_value);
    for (uint32_t v = 0; v < col->n_values; v++) {
        const char *text = dt_catalog_str(r->c, col->values[v]);
        char *end;
        const double x = s->by_value[v] = strtod(text, &end);
        if (end == text || *end)
            return dt_config_fail(r->k.c, dt_key_of(&r->k, ""), "column %s holds '%s', which is not a number",
                                  dt_catalog_str(r->c, col->name), text);
        if (!(fabs(x) <= FLT_MAX)) // NaN, too
            return dt_config_fail(r->k.c, dt_key_of(&r->k, ""),
                                  "column %s holds '%s', which is no finite float: " BAD_NUMBER,
                                  dt_catalog_str(r->c, col->name), text);
    }
    return DT_OK;
}

// A number column's; NaN stands for no value.
static dt_status check_numbers(resolver *r, int column) {
    for (uint32_t i = 0; i < r->c->n_records; i++) {
        double v = dt_catalog_real(r->c, column, i);
        if (fabs(v) > FLT_MAX) // NaN, no value, passes
            return dt_config_fail(r->k.c, dt_key_of(&r->k, ""),
                                  "column %s holds %g (record %s), which no float can: " BAD_NUMBER,
                                  dt_columns_name(&r->c->table, column), v, dt_catalog_str(r->c, r->c->records[i].key));
    }
    return DT_OK;
}

static dt_status fields_read_numbers(resolver *r, dt_number_source *s) {
    return r->c->table.columns[s->column].number ? check_numbers(r, s->column) : fields_read_values(r, s);
}

// The names of a number's elements: the columns of its list, or the field's own name for a single number. A vector that is
// stored as one member has none.
static void name_elements(resolver *r, size_t n) {
    const dt_cnode *given = r->k.f->source;
    const bool list = given && dt_cnode_kind(given) == DT_C_LIST && dt_cnode_size(given) == n;
    if (n > 1 && !list) return;
    r->f->element_names = dt_xcalloc(n, sizeof *r->f->element_names);
    for (size_t k = 0; k < n; k++) r->f->element_names[k] = list ? dt_cnode_str(dt_cnode_item(given, k)) : r->f->name;
    r->info->element_names = r->f->element_names;
}

static dt_status resolve_number(resolver *r) {
    int64_t n = 1;
    bool from_columns = r->f->n_numbers > 0, vector = r->f->kind == DT_FIELD_vector;
    const bool sized = r->k.f->size != NULL;
    if (from_columns) n = r->f->n_numbers; // the list says how many; size may say it again
    if (vector && (!from_columns || sized)) DT_TRY(fields_read_size(r, 1, &n));
    if (from_columns && n != r->f->n_numbers)
        return dt_config_fail(r->k.c, dt_key_of(&r->k, "size"), "`source:` names %d columns", r->f->n_numbers);
    r->info->dtype = DT_F32;
    r->info->sample_shape = vector ? dt_shape1(n) : dt_shape0(); // a vector of one is no scalar: its batch is (N, 1)
    name_elements(r, (size_t)n);
    DT_TRY(read_normalize(r, n < DT_MAX_NORMALIZE ? (int)n : DT_MAX_NORMALIZE)); // elements beyond have the last one's
    for (int i = 0; r->f->numbers && i < r->f->n_numbers; i++) DT_TRY(fields_read_numbers(r, &r->f->numbers[i]));
    return DT_OK;
}

static dt_status resolve_field(resolver *r) {
    r->f->kind = r->k.f->kind;
    DT_TRY(fields_find_source(r));
    if (r->f->kind == DT_FIELD_image)
        DT_TRY(resolve_image(r));
    else if (r->f->kind == DT_FIELD_audio)
        DT_TRY(resolve_audio(r));
    else if (r->f->kind == DT_FIELD_class)
        DT_TRY(resolve_class(r));
    else
        DT_TRY(resolve_number(r));
    r->info->name = r->f->name;
    r->info->mixed = r->info->is_image && dt_mix_takes(r->k.c, r->f->name);
    r->f->sample_bytes = (size_t)dt_shape_elements(&r->info->sample_shape) * dt_dtype_size(r->info->dtype);
    return DT_OK;
}

static double number_at(const dt_number_source *s, const dt_catalog *c, uint32_t record) {
    return s->by_value ? s->by_value[dt_catalog_cell(c, s->column, record)] : dt_catalog_real(c, s->column, record);
}

double dt_field_rate(const dt_field *f, const dt_catalog *c, uint32_t record) {
    if (f->rate.column < 0 || !dt_columns_has(&c->table, f->rate.column, record)) return 0;
    return number_at(&f->rate, c, record);
}

// In doubles: of 1700000003, a time in seconds, a float has no seconds.
static double fields_number_of(const dt_fields *f, int field, int i, const dt_catalog *c, uint32_t record) {
    const dt_field_info *info = &f->info[field];
    const double x = number_at(&f->f[field].numbers[i], c, record);
    return (x - dt_field_mean(info, i)) / dt_field_std(info, i);
}

float dt_field_number(const dt_fields *f, int field, int i, const dt_catalog *c, uint32_t record) {
    return (float)fields_number_of(f, field, i, c, record);
}

// Mean and standard deviation, divided by n, of an element over n samples.
static void fields_measure(const dt_fields *f, int field, int element, const dt_catalog *c, const uint32_t *records,
                           uint32_t n, double *mean, double *std) {
    double sum = 0, square = 0;
    // two passes: a sum of squares alone loses the digits of numbers far from 0
    for (uint32_t i = 0; i < n; i++) sum += fields_number_of(f, field, element, c, records[i]);
    *mean = n ? sum / n : 0;
    for (uint32_t i = 0; i < n; i++) {
        const double x = fields_number_of(f, field, element, c, records[i]) - *mean;
        square += x * x;
    }
    // the mean of equal numbers is not quite theirs
    *std = n && square / n > pow(n * *mean * DBL_EPSILON, 2) ? sqrt(square / n) : 0;
}

void dt_fields_measure(dt_fields *f, int field, const dt_catalog *c, const uint32_t *records, uint32_t n) {
    dt_field *of = &f->f[field];
    dt_field_info *info = &f->info[field];
    double mean[DT_MAX_NORMALIZE], std[DT_MAX_NORMALIZE];
    for (int k = 0; k < of->n_numbers && k < DT_MAX_NORMALIZE; k++) {
        double m, s;
        fields_measure(f, field, k, c, records, n, &m, &s);
        info->mean_or_std = fmaxf(info->mean_or_std, (float)fmax(fabs(m), s));
        mean[k] = m;
        std[k] = s > 0 ? s : 1; // as scikit-learn's StandardScaler
    }
    if (!info->normalize_auto) return;
    info->mean_or_std = 1;                    // of the normalised numbers
    for (int k = 0; k < of->n_numbers; k++) { // until now mean 0 and std 1
        info->mean[k] = mean[k];
        info->std[k] = std[k];
    }
}

dt_status dt_fields_resolve(dt_fields *out, const dt_config *config, const dt_catalog *c, const char *classes,
                            const dt_field_use *uses) {
    *out = (dt_fields){.classes = classes ? json_loads(classes, 0, NULL) : NULL};
    const int n = config->data.n_fields;
    if (n == 0 || n > DT_MAX_FIELDS)
        return dt_config_fail(config, n ? "data.fields" : "data", "data.fields: expected 1 to %d fields",
                              DT_MAX_FIELDS);
    dt_status st = dt_augment_check_fields(config);
    for (int i = 0; i < n && st == DT_OK; i++) {
        const dt_config_field *keys = &config->data.fields[i];
        resolver r = {.k = {config, keys, ""},
                      .c = uses && uses[i] == DT_USE_NOTHING ? NULL : c,
                      .known = json_object_get(out->classes, keys->id),
                      .f = &out->f[i],
                      .info = &out->info[i]};
        out->n++;
        r.f->name = keys->id;
        r.f->absent = uses && uses[i] == DT_USE_NOTHING; // a set met after training that lacks the field
        r.f->tells_apart = uses && uses[i] == DT_USE_IDENTITY;
        st = resolve_field(&r);
    }
    if (st == DT_OK) st = dt_field_mirrors_read(out, config);
    if (st != DT_OK) dt_fields_fini(out);
    return st;
}

void dt_fields_fini(dt_fields *f) {
    for (int i = 0; i < f->n; i++) {
        free(f->f[i].is_ext);
        free(f->f[i].label);
        free(f->f[i].class_names);
        free(f->f[i].element_names);
        for (int k = 0; f->f[i].numbers && k < f->f[i].n_numbers; k++) free(f->f[i].numbers[k].by_value);
        free(f->f[i].numbers);
        free(f->f[i].rate.by_value);
        free(f->f[i].mirror);
        dt_augment_destroy(f->f[i].augment);
        dt_audio_field_destroy(f->f[i].audio);
    }
    json_decref(f->classes);
    *f = (dt_fields){0};
}

int dt_fields_find(const dt_fields *f, const char *name) {
    for (int i = 0; i < f->n; i++)
        if (strcmp(f->f[i].name, name) == 0) return i;
    return -1;
}

int64_t dt_field_member(const dt_field *f, const dt_catalog *c, uint32_t record) {
    const dt_record *r = &c->records[record];
    for (uint32_t i = 0; f->is_ext && i < r->n_members; i++)
        // the first in the record, where several match
        if (f->is_ext[c->members[r->first_member + i].ext]) return (int64_t)r->first_member + i;
    return -1;
}

bool dt_field_present(const dt_field *f, const dt_catalog *c, uint32_t record) {
    if (f->absent || f->is_input) return true;
    if (f->column >= 0) return dt_catalog_cell(c, f->column, record) != DT_NO_VALUE;
    if (!f->numbers) return dt_field_member(f, c, record) >= 0;
    for (int i = 0; i < f->n_numbers; i++) {
        if (!dt_columns_has(&c->table, f->numbers[i].column, record)) return false;
    }
    return true;
}
