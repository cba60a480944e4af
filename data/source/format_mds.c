// format_mds.c: shards of MosaicML Streaming ("MDS", version 2).
//
//   u32 n, u32 offset[n + 1], JSON of the columns, samples
//   a sample: u32 size of each column that has no fixed one, then the columns' bytes in that order
//
// Numbers, short texts and the top level of `json` columns become metadata columns. What is stored as bytes
// becomes a member, a byte range of the shard: column `image` is member image.jpg if its encoding is jpeg,
// image.<kind, by its first bytes> if it is bytes, and image.<type>, without the header, if it is an array.
// A sample has no name: its key is the shard's name and its number. Pickles are left out: reading one runs
// the code in it.
// Format: mosaicml-streaming, streaming/base/format/mds.
#include "data/file/columnar.h"
#include "source.h"

#include "base/bits.h"
#include "base/core.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_COLUMNS = 256, MAX_CONFIG_BYTES = 1 << 20, MAX_PART_BYTES = 1 << 30, MAX_TEXT = 1024, MAX_NAME = 200 };

typedef struct column {
    char name[MAX_NAME];
    char encoding[MAX_NAME];
    uint32_t size; // 0: each sample says
} column;

typedef struct shard {
    dt_scan *s;
    dt_peek peek;
    uint32_t n_samples, number, n_columns;
    column *columns;
    char *stem; // of the keys
} shard;

static bool mds_accepts(const char *path, const uint8_t *head, size_t n_bytes) {
    return dt_text_ends(path, ".mds");
}

static dt_status mds_damaged(const shard *d, const char *what) {
    return dt_fail(DT_E_DATA, "%s: not a whole MDS shard: %s", d->s->blob->path, what);
}

static dt_status read_u32(shard *d, uint64_t at, uint32_t *out) {
    *out = 0;
    return dt_peek_read(&d->peek, at, out, sizeof *out);
}

// ---- columns ---------------------------------------------------------------------------------------
static dt_status read_column(shard *d, json_t *root, size_t i) {
    column *c = &d->columns[i];
    json_t *name = json_array_get(json_object_get(root, "column_names"), i);
    json_t *encoding = json_array_get(json_object_get(root, "column_encodings"), i);
    json_t *size = json_array_get(json_object_get(root, "column_sizes"), i);
    if (!json_is_string(name) || !json_is_string(encoding) || json_string_length(name) >= MAX_NAME ||
        json_string_length(encoding) >= MAX_NAME)
        return mds_damaged(d, "a column without name or encoding");
    snprintf(c->name, sizeof c->name, "%s", json_string_value(name));
    snprintf(c->encoding, sizeof c->encoding, "%s", json_string_value(encoding));
    json_int_t v = json_is_integer(size) ? json_integer_value(size) : 0;
    if (v < 0 || v > UINT32_MAX) return mds_damaged(d, "a column size that is none");
    c->size = (uint32_t)v;
    return DT_OK;
}

static dt_status read_columns(shard *d, const char *text, size_t n_bytes) {
    json_error_t error;
    json_t *root = json_loadb(text, n_bytes, 0, &error);
    if (!root) return mds_damaged(d, "its list of columns is not JSON");
    size_t n = json_array_size(json_object_get(root, "column_names"));
    dt_status st = n > 0 && n <= MAX_COLUMNS ? DT_OK : mds_damaged(d, "no columns, or more than 256");
    d->columns = dt_xcalloc(n + 1, sizeof *d->columns);
    d->n_columns = (uint32_t)n;
    for (size_t i = 0; i < n && st == DT_OK; i++) st = read_column(d, root, i);
    json_decref(root);
    return st;
}

static dt_status read_head(shard *d) {
    uint32_t first = 0;
    const dt_blob *b = d->s->blob;
    DT_TRY(read_u32(d, 0, &d->n_samples));
    // layout: number of samples, their offsets and the end, the columns as JSON, the samples
    uint64_t config_at = 4 + 4 * ((uint64_t)d->n_samples + 1);
    if (config_at > b->n_bytes) return mds_damaged(d, "cut in its offsets");
    DT_TRY(read_u32(d, 4, &first));
    if (first < config_at || first - config_at > MAX_CONFIG_BYTES)
        return mds_damaged(d, "its first sample is not behind its list of columns");
    char *text;
    DT_TRY(dt_blob_load(&text, b, config_at, first - config_at, MAX_CONFIG_BYTES));
    dt_status st = read_columns(d, text, first - config_at);
    free(text);
    return st;
}

// ---- values ----------------------------------------------------------------------------------------
static const struct type {
    const char *name, *tail;
    uint8_t code, size; // of an array's header; of a number
    char kind;          // unsigned, integer, float
} TYPES[] = {{"uint8", "u8", 8, 1, 'u'},   {"int8", "i8", 9, 1, 'i'},      {"uint16", "u16", 16, 2, 'u'},
             {"int16", "i16", 17, 2, 'i'}, {"float16", "f16", 18, 2, 'f'}, {"uint32", "u32", 32, 4, 'u'},
             {"int32", "i32", 33, 4, 'i'}, {"float32", "f32", 34, 4, 'f'}, {"uint64", "u64", 64, 8, 'u'},
             {"int64", "i64", 65, 8, 'i'}, {"float64", "f64", 66, 8, 'f'}};
enum { N_TYPES = sizeof TYPES / sizeof *TYPES };

// The element type of a name of n bytes, or (NULL) of a code.
static const struct type *mds_type_of(const char *name, size_t n, uint8_t code) {
    for (const struct type *t = TYPES; t < TYPES + N_TYPES; t++)
        if (name ? strlen(t->name) == n && memcmp(t->name, name, n) == 0 : t->code == code) return t;
    return NULL;
}

static dt_status set_number(shard *d, const column *c, const struct type *t, const uint8_t *p) {
    uint64_t u = 0;
    int unused = 64 - 8 * t->size; // bits
    float f;
    double v;
    memcpy(&u, p, t->size);
    memcpy(&f, p, sizeof f);
    memcpy(&v, p, sizeof v);
    char text[24];
    if (t->kind == 'u') snprintf(text, sizeof text, "%llu", (unsigned long long)u);
    if (t->kind == 'i') snprintf(text, sizeof text, "%lld", (long long)((int64_t)(u << unused) >> unused));
    if (t->kind != 'f') return dt_catalog_set(d->s->c, c->name, text);
    if (t->size == 2) v = dt_f16_value((uint16_t)u);
    if (t->size == 4) v = f;
    return dt_catalog_set_real(d->s->c, c->name, v);
}

// A number of fixed size. *done = false: the encoding is none of those.
static dt_status add_number(shard *d, const column *c, uint64_t at, uint32_t n, bool *done) {
    const char *name = strcmp(c->encoding, "int") == 0 ? "int64" : c->encoding;
    const struct type *t = mds_type_of(name, strlen(name), 0);
    uint8_t bytes[8] = {0};
    *done = t && t->size == n;
    if (!*done) return DT_OK;
    DT_TRY(dt_peek_read(&d->peek, at, bytes, n));
    return set_number(d, c, t, bytes);
}

static dt_status add_member(shard *d, const column *c, const char *tail, uint64_t at, uint64_t n) {
    char ext[2 * MAX_NAME + 2];
    snprintf(ext, sizeof ext, *tail ? "%s.%s" : "%s", c->name, tail);
    return dt_catalog_add_member(d->s->c, ext, at, n, NULL);
}

static dt_status mds_add_text(shard *d, const column *c, uint64_t at, uint32_t n) {
    char text[MAX_TEXT + 1], *end;
    if (n > MAX_TEXT) return add_member(d, c, "txt", at, n);
    DT_TRY(dt_peek_read(&d->peek, at, text, n));
    text[n] = '\0';
    if (strlen(text) != n) return add_member(d, c, "txt", at, n);
    bool real = strcmp(c->encoding, "str_float") == 0 || strcmp(c->encoding, "str_decimal") == 0;
    double v = real ? strtod(text, &end) : 0;
    return real && end > text && *end == '\0' ? dt_catalog_set_real(d->s->c, c->name, v)
                                              : dt_catalog_set(d->s->c, c->name, text);
}

static dt_status add_bytes(shard *d, const column *c, uint64_t at, uint32_t n) {
    uint8_t head[32] = {0};
    uint32_t k = n < sizeof head ? n : (uint32_t)sizeof head;
    DT_TRY(dt_peek_read(&d->peek, at, head, k));
    const char *ext = dt_image_extension(head, k);
    return add_member(d, c, ext ? ext : "", at, n);
}

static dt_status add_json(shard *d, const column *c, uint64_t at, uint32_t n) {
    char *text;
    DT_TRY(dt_blob_load(&text, d->s->blob, at, n, MAX_PART_BYTES));
    dt_status st = DT_OK;
    if (n > 0 && text[strspn(text, " \t\r\n") % n] == '{') st = dt_scan_json(d->s, text, n);
    free(text);
    return st == DT_OK ? add_member(d, c, "json", at, n) : st;
}

// "ndarray", "ndarray:float32", "ndarray:float32:3,4": a header has what the encoding leaves out.
static dt_status add_array(shard *d, const column *c, uint64_t at, uint32_t n) {
    const char *type = strchr(c->encoding, ':'), *dims = type ? strchr(type + 1, ':') : NULL;
    size_t n_type = !type ? 0 : dims ? (size_t)(dims - type - 1) : strlen(type + 1);
    uint32_t skip = 0;
    uint8_t b = 0;
    if (!type) DT_TRY(dt_peek_read(&d->peek, at + skip++, &b, n > 0));
    const struct type *t = mds_type_of(type ? type + 1 : NULL, n_type, b);
    if (!dims && skip < n) {
        DT_TRY(dt_peek_read(&d->peek, at + skip++, &b, 1));
        skip += (uint32_t)(b >> 2) << (b & 3);
    }
    if (!t || skip > n) return mds_damaged(d, "an array that is none");
    return add_member(d, c, t->tail, at + skip, n - skip);
}

static dt_status mds_add_value(shard *d, const column *c, uint64_t at, uint32_t n) {
    const char *e = c->encoding;
    bool done;
    DT_TRY(add_number(d, c, at, n, &done));
    if (done) return DT_OK;
    if (strcmp(e, "str") == 0 || strncmp(e, "str_", 4) == 0) return mds_add_text(d, c, at, n);
    if (strcmp(e, "jpeg") == 0) return add_member(d, c, "jpg", at, n);
    if (strcmp(e, "png") == 0) return add_member(d, c, "png", at, n);
    if (strcmp(e, "bytes") == 0) return add_bytes(d, c, at, n);
    if (strcmp(e, "json") == 0) return add_json(d, c, at, n);
    if (strncmp(e, "ndarray", 7) == 0) return add_array(d, c, at, n);
    return strcmp(e, "pkl") == 0 ? DT_OK : add_member(d, c, e, at, n); // a pickle may run code: never read
}

// ---- samples ---------------------------------------------------------------------------------------
static dt_status add_sample(shard *d, uint64_t begin, uint64_t end) {
    char key[1024];
    uint64_t sizes_at = begin, at = begin;
    // a sample begins with the sizes of its columns that vary
    for (uint32_t i = 0; i < d->n_columns; i++) at += d->columns[i].size ? 0 : 4;
    if (at > end) return mds_damaged(d, "a sample that is cut");
    snprintf(key, sizeof key, "%s/%06u", d->stem, d->number);
    DT_TRY(dt_catalog_add_record(d->s->c, 0, key));
    for (uint32_t i = 0; i < d->n_columns; i++) {
        uint32_t n = d->columns[i].size;
        if (n == 0) {
            DT_TRY(read_u32(d, sizes_at, &n));
            sizes_at += 4;
        }
        if (n > end - at) return mds_damaged(d, "a sample that is cut"); // at <= end: no sum that may wrap
        DT_TRY(mds_add_value(d, &d->columns[i], at, n));
        at += n;
    }
    return at == end ? DT_OK : mds_damaged(d, "a sample that is longer than its columns");
}

static dt_status add_samples(shard *d) {
    char *offsets;
    dt_status st = DT_OK;
    DT_TRY(dt_blob_load(&offsets, d->s->blob, 4, 4 * ((uint64_t)d->n_samples + 1), MAX_PART_BYTES));
    for (; st == DT_OK && d->number < d->n_samples; d->number++) {
        const uint8_t *p = (const uint8_t *)offsets + 4 * (size_t)d->number;
        const uint32_t begin = dt_le32(p), end = dt_le32(p + 4);
        st =
            end < begin || end > d->s->blob->n_bytes ? mds_damaged(d, "cut in its samples") : add_sample(d, begin, end);
    }
    free(offsets);
    return st;
}

static dt_status mds_scan(dt_scan *s) {
    const char *base = dt_path_base(s->blob->path), *dot = strstr(base, ".mds");
    shard d = {.s = s};
    dt_peek_init(&d.peek, s->blob);
    d.stem = dt_xprintf("%.*s", dot ? (int)(dot - base) : (int)strlen(base), base);
    dt_catalog_add_shard(s->c, s->blob->path, s->blob->n_bytes);
    dt_status st = read_head(&d);
    for (uint32_t i = 0; st == DT_OK && i < d.n_columns; i++)
        if (strcmp(d.columns[i].encoding, "pkl") == 0) // skipped unread
            dt_warn("%s: column %s holds pickles and is left out", s->blob->path, d.columns[i].name);
    if (st == DT_OK) st = add_samples(&d);
    free(d.columns);
    free(d.stem);
    return st;
}

const dt_file_format dt_format_mds = {"mds", mds_accepts, mds_scan};
