// columnar.c: what is not a matter of the format: opening, unpacking pages, values as text, reading bytes again.
//
// Whatever a file states is checked before it is added, multiplied or allocated. A page states its size unpacked: a page
// of more than FREE_BYTES that claims to be MOST_RATIO times as large as its packed bytes is taken for a decompression
// bomb, and memory is taken as dt_buffer takes it, with an error where there is none.
//
// Members are read again by threads that go through a file in nearly one order, so pages are kept unpacked: the KEPT_PAGES
// that were used last, and more up to KEPT_BYTES. Pages that are not packed are read from the file as they are.
#include "columnar.h"

#include "base/bits.h"
#include "base/json.h"
#include "base/text.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <snappy-c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zlib.h>
#include <zstd.h>

enum { FREE_BYTES = 64 << 20, MOST_RATIO = 1024, TEXT_BYTES = 96, MAX_WIDTH = 16, KEPT_PAGES = 4 };
static const uint64_t KEPT_BYTES = 128 << 20, MAX_ROWS = 1 << 28, FREE_CELLS = 1 << 24, MAX_CELLS_PER_BYTE = 1 << 11;

bool dt_columnar_is_name(const char *path) {
    return dt_text_ends(path, ".parquet|.pq|.arrow|.feather");
}

dt_status dt_columnar_damaged(const dt_columnar *t, const char *what) {
    return dt_fail(DT_E_DATA, "%s: damaged: %s", t->blob.path, what);
}

// ---- opening ------------------------------------------------------------------------------------------
dt_status dt_columnar_open_blob(dt_columnar **out, const dt_blob *blob) {
    dt_columnar *t = dt_xcalloc(1, sizeof *t);
    *out = NULL;
    dt_arena_init(&t->arena);
    pthread_mutex_init(&t->lock, NULL);
    t->blob = *blob;
    t->blob.path = dt_arena_strdup(&t->arena, blob->path);
    dt_status st = dt_parquet_open(t);
    for (uint32_t i = 0; i < t->n_columns && st == DT_OK; i++)
        for (uint32_t k = 0; k < i && st == DT_OK; k++)
            if (strcmp(t->columns[i].name, t->columns[k].name) == 0)
                st = dt_fail(DT_E_DATA, "%s: two columns are called '%s'", t->blob.path, t->columns[i].name);
    if (st != DT_OK)
        dt_columnar_close(t);
    else
        *out = t;
    return st;
}

dt_status dt_columnar_open(dt_columnar **out, const char *path) {
    dt_blob blob;
    *out = NULL;
    const dt_kind *kind = dt_kind_unread(path);
    if (kind && kind->id == DT_KIND_ID_arrow)
        return dt_fail(DT_E_DATA, "%s: Arrow IPC, which is not read: %s", path, kind->tool);
    DT_TRY(dt_blob_open(&blob, path));
    return dt_columnar_open_blob(out, &blob);
}

void dt_columnar_close(dt_columnar *t) {
    if (!t) return;
    for (int i = 0; i < DT_COLUMNAR_SLOTS; i++) dt_buffer_fini(&t->slot[i].bytes);
    dt_blob_close(&t->blob);
    pthread_mutex_destroy(&t->lock);
    free(t->columns);
    free(t->pages);
    dt_arena_fini(&t->arena);
    free(t);
}

dt_columnar_column *dt_columnar_add(dt_columnar *t, dt_span name, const dt_span *field) {
    t->columns = dt_xgrow(t->columns, t->n_columns, sizeof *t->columns);
    dt_columnar_column *c = &t->columns[t->n_columns++];
    *c = (dt_columnar_column){
        .name = dt_arena_printf(&t->arena, "%.*s%s%.*s", (int)name.n_bytes, (const char *)name.data, field ? "." : "",
                                field ? (int)field->n_bytes : 0, field ? (const char *)field->data : "")};
    return c;
}

// {"info": {"features": {"label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}}}. What is none of that names nothing.
bool dt_columnar_name_classes(dt_columnar *t, dt_span key, dt_span text) {
    if (key.n_bytes != 11 || memcmp(key.data, "huggingface", 11) != 0) return false;
    json_t *root = json_loadb((const char *)text.data, text.n_bytes, 0, NULL);
    json_t *features = json_object_get(json_object_get(root, "info"), "features"), *name;
    for (uint32_t i = 0; i < t->n_columns; i++) {
        dt_columnar_column *c = &t->columns[i];
        json_t *feature = json_object_get(features, c->name), *names = json_object_get(feature, "names");
        const char *type = json_string_value(json_object_get(feature, "_type"));
        size_t k;
        if (c->type != DT_COLUMNAR_INT || !type || strcmp(type, "ClassLabel") != 0) continue;
        c->classes = dt_arena_alloc(&t->arena, (json_array_size(names) + 1) * sizeof *c->classes);
        c->n_classes = (uint32_t)json_array_size(names);
        json_array_foreach(names, k, name) {
            c->classes[k] = dt_arena_strdup(&t->arena, json_is_string(name) ? json_string_value(name) : "");
        }
    }
    json_decref(root);
    return true;
}

dt_status dt_columnar_add_rows(dt_columnar *t, uint64_t n) {
    t->n_rows += n <= MAX_ROWS ? n : MAX_ROWS + 1;
    const uint64_t n_cells = t->n_rows * t->n_columns; // 32 bits each
    if (t->n_rows <= MAX_ROWS && (n_cells <= FREE_CELLS || n_cells / MAX_CELLS_PER_BYTE <= t->blob.n_bytes))
        return DT_OK;
    return dt_fail(DT_E_DATA, "%s: claims more than %" PRIu64 " rows, or %" PRIu64 " values for each of its bytes",
                   t->blob.path, MAX_ROWS, MAX_CELLS_PER_BYTE);
}

// ---- pages --------------------------------------------------------------------------------------------
static bool inflate_page(const dt_columnar_page *p, const uint8_t *from, uint8_t *to) {
    z_stream z = {0};
    if (inflateInit2(&z, 15 + 32) != Z_OK) return false; // gzip or zlib
    z.next_in = (uint8_t *)(uintptr_t)from;
    z.avail_in = p->n_packed;
    z.next_out = to;
    z.avail_out = p->n_bytes;
    const bool whole = inflate(&z, Z_FINISH) == Z_STREAM_END && z.avail_out == 0;
    inflateEnd(&z);
    return whole;
}

static bool unpack_page(const dt_columnar_page *p, const uint8_t *from, uint8_t *to) {
    size_t n = p->n_bytes;
    switch (p->codec) {
    case DT_CODEC_NONE:
        return false; // read as it is
    case DT_CODEC_SNAPPY:
        return snappy_uncompressed_length((const char *)from, p->n_packed, &n) == SNAPPY_OK && n == p->n_bytes &&
               snappy_uncompress((const char *)from, p->n_packed, (char *)to, &n) == SNAPPY_OK;
    case DT_CODEC_GZIP:
        return inflate_page(p, from, to);
    case DT_CODEC_ZSTD:
        return ZSTD_decompress(to, n, from, p->n_packed) == n;
    }
    return false;
}

dt_status dt_columnar_load(const dt_columnar *t, const dt_columnar_page *p, dt_buffer *out) {
    const bool packed = p->codec != DT_CODEC_NONE;
    dt_buffer from = {0};
    if (packed ? p->n_bytes > FREE_BYTES && p->n_bytes / MOST_RATIO > p->n_packed : p->n_bytes != p->n_packed)
        return dt_fail(DT_E_DATA, "%s: a page of %u bytes at byte %" PRIu64 " claims to hold %u", t->blob.path,
                       p->n_packed, p->at, p->n_bytes);
    if (!dt_buffer_reserve(out, (size_t)p->n_bytes + 1) ||
        (packed && !dt_buffer_reserve(&from, (size_t)p->n_packed + 1)))
        return dt_fail(DT_E_INTERNAL, "%s: no memory for a page of %u bytes", t->blob.path, p->n_bytes);
    out->n_bytes = p->n_bytes;
    dt_status st = DT_OK;
    if (p->n_packed > 0) st = dt_blob_read(&t->blob, p->at, packed ? from.data : out->data, p->n_packed);
    if (st == DT_OK && packed && p->n_bytes > 0 && !unpack_page(p, from.data, out->data))
        st = dt_fail(DT_E_DATA, "%s: damaged: the page at byte %" PRIu64 " cannot be unpacked", t->blob.path, p->at);
    dt_buffer_fini(&from);
    return st;
}

uint32_t dt_columnar_keep(dt_columnar *t, const dt_columnar_page *p) {
    t->pages = dt_xgrow(t->pages, t->n_pages, sizeof *t->pages);
    t->pages[t->n_pages] = *p;
    return t->n_pages++;
}

// The slot that holds the page, which is loaded if none does. Those used longest ago are emptied until it fits.
static dt_status find_slot(dt_columnar *t, uint32_t page, int *slot) {
    for (*slot = 0; *slot < DT_COLUMNAR_SLOTS; ++*slot)
        if (t->slot[*slot].used > 0 && t->slot[*slot].page == page) return DT_OK;
    while (*slot == DT_COLUMNAR_SLOTS) {
        uint64_t kept = t->pages[page].n_bytes;
        int oldest = 0, n = 0;
        for (int i = 0; i < DT_COLUMNAR_SLOTS; i++) {
            n += t->slot[i].used > 0;
            kept += t->slot[i].used > 0 ? t->slot[i].bytes.n_bytes : 0;
            if (t->slot[i].used == 0) *slot = i;
            if (t->slot[i].used > 0 && (t->slot[oldest].used == 0 || t->slot[i].used < t->slot[oldest].used))
                oldest = i;
        }
        if (*slot < DT_COLUMNAR_SLOTS && (kept <= KEPT_BYTES || n < KEPT_PAGES)) break;
        t->slot[oldest].used = 0;
        dt_buffer_fini(&t->slot[oldest].bytes);
        *slot = DT_COLUMNAR_SLOTS;
    }
    DT_TRY(dt_columnar_load(t, &t->pages[page], &t->slot[*slot].bytes));
    t->slot[*slot].page = page;
    return DT_OK;
}

dt_status dt_columnar_read(dt_columnar *t, uint32_t page, uint64_t at, void *dst, size_t n_bytes) {
    const dt_columnar_page *p = &t->pages[page];
    int slot;
    if (p->codec == DT_CODEC_NONE) return dt_blob_read(&t->blob, p->at + at, dst, n_bytes);
    pthread_mutex_lock(&t->lock);
    const dt_status st = find_slot(t, page, &slot);
    if (st == DT_OK) {
        t->slot[slot].used = ++t->n_used;
        memcpy(dst, t->slot[slot].bytes.data + at, n_bytes);
    }
    pthread_mutex_unlock(&t->lock);
    return st;
}

// ---- values as text -----------------------------------------------------------------------------------
double dt_f16_value(uint16_t h) {
    int exponent = h >> 10 & 31, fraction = h & 1023; // IEEE 754 binary16: 1, 5 and 10 bits
    double v = exponent == 31  ? (fraction ? NAN : INFINITY)
               : exponent == 0 ? ldexp(fraction, -24)
                               : ldexp(1024 + fraction, exponent - 25);
    return h >> 15 ? -v : v;
}

// A whole number of c->width bytes, signed unless `is_unsigned`.
static __int128 whole_of(const dt_columnar_column *c, const uint8_t *p, bool is_unsigned) {
    const uint8_t top = p[c->big_endian ? 0 : c->width - 1];
    unsigned __int128 v = !is_unsigned && top >> 7 ? ~(unsigned __int128)0 : 0;
    for (uint32_t i = 0; i < c->width; i++) v = v << 8 | p[c->big_endian ? i : c->width - 1 - i];
    return (__int128)v;
}

// "-12.50": v / 10^scale, every digit of the scale. The begin of what is written, which ends at `end`.
static char *print_decimal(__int128 v, int scale, char *end) {
    unsigned __int128 u = v < 0 ? -(unsigned __int128)v : (unsigned __int128)v;
    char *at = end;
    *--at = '\0';
    for (int digits = 0; u > 0 || digits <= scale; digits++) {
        if (digits == scale && scale > 0) *--at = '.';
        *--at = (char)('0' + (int)(u % 10));
        u /= 10;
    }
    if (v < 0) *--at = '-';
    return at;
}

// False: not finite.
static bool print_float(uint32_t width, const uint8_t *p, char *out) {
    double v = dt_f16_value(dt_le16(p));
    float f = (float)v;
    if (width == sizeof f) memcpy(&f, p, sizeof f);
    if (width == sizeof v) memcpy(&v, p, sizeof v);
    if (!isfinite(width == sizeof v ? v : f)) return false;
    if (width == sizeof v)
        dt_real_text(out, v);
    else // as few digits as give the float back
        for (int digits = 6; snprintf(out, TEXT_BYTES, "%.*g", digits, f), strtof(out, NULL) != f;) digits++;
    if (!strpbrk(out, ".e")) strcat(out, ".0");
    return true;
}

// False: a year that has no four digits.
static bool print_time(const dt_columnar_column *c, int64_t v, char *out) {
    int64_t unit = 1;
    for (int i = 0; i < c->scale; i++) unit *= 10;
    const int64_t rest = (v % unit + unit) % unit;
    const time_t s = c->type == DT_COLUMNAR_DATE ? (time_t)v * 86400 : (time_t)(v / unit - (v % unit < 0));
    struct tm at;
    if (s < -62135596800 || s > 253402300799 || !gmtime_r(&s, &at)) return false; // years 1 to 9999
    const char *format = c->type == DT_COLUMNAR_DATE ? "%F" : c->type == DT_COLUMNAR_TIME ? "%T" : "%FT%T";
    int n = (int)strftime(out, TEXT_BYTES, format, &at);
    if (rest) n += snprintf(out + n, (size_t)(TEXT_BYTES - n), ".%0*lld", c->scale, (long long)rest);
    if (c->utc) strcpy(out + n, "Z");
    return true;
}

dt_status dt_columnar_text(const dt_columnar *t, const dt_columnar_column *c, const dt_columnar_value *v,
                           dt_buffer *out, const char **text) {
    const bool any = v->data && (v->n_bytes > 0 || c->width > 0);
    char *to = any ? (char *)dt_buffer_reserve(out, v->n_bytes + TEXT_BYTES) : NULL;
    *text = NULL;
    if (!any) return DT_OK;
    if (!to) return dt_fail(DT_E_INTERNAL, "%s: column %s: no memory for a text", t->blob.path, c->name);
    const __int128 whole =
        c->width > 0 && c->width <= MAX_WIDTH ? whole_of(c, v->data, c->type == DT_COLUMNAR_UINT) : 0;
    switch (c->type) {
    case DT_COLUMNAR_BOOL:
        *text = *v->data ? "true" : "false";
        return DT_OK;
    case DT_COLUMNAR_INT:
        if (c->classes && whole < 0) return DT_OK; // Hugging Face's -1: no label
        if (c->classes && whole >= c->n_classes)
            return dt_fail(DT_E_DATA, "%s: column %s: %lld is none of its %u classes", t->blob.path, c->name,
                           (long long)whole, c->n_classes);
        *text = c->classes ? c->classes[whole] : print_decimal(whole, 0, to + TEXT_BYTES);
        return DT_OK;
    case DT_COLUMNAR_UINT:
    case DT_COLUMNAR_DECIMAL:
        *text = print_decimal(whole, c->scale, to + TEXT_BYTES);
        return DT_OK;
    case DT_COLUMNAR_FLOAT:
        *text = print_float(c->width, v->data, to) ? to : NULL;
        return DT_OK;
    case DT_COLUMNAR_DATE:
    case DT_COLUMNAR_TIME:
    case DT_COLUMNAR_TIMESTAMP:
        *text = to;
        return print_time(c, (int64_t)whole, to)
                   ? DT_OK
                   : dt_fail(DT_E_DATA, "%s: column %s: a time outside of the years 1 to 9999", t->blob.path, c->name);
    case DT_COLUMNAR_TEXT:
        memcpy(to, v->data, v->n_bytes);
        to[v->n_bytes] = '\0';
        *text = to;
        if (strlen(to) == v->n_bytes && !*dt_text_utf8_end(to)) return DT_OK;
        return dt_fail(DT_E_DATA, "%s: column %s: a text that is not UTF-8, or has a zero byte", t->blob.path, c->name);
    case DT_COLUMNAR_BYTES:
    case DT_COLUMNAR_NULL:
    case DT_COLUMNAR_UNREAD:
        return DT_OK;
    }
    return DT_OK;
}

dt_status dt_columnar_each(dt_columnar *t, const dt_columnar_column *c, dt_columnar_visit visit, void *arg) {
    if (c->type == DT_COLUMNAR_NULL || c->type == DT_COLUMNAR_UNREAD) return DT_OK;
    return dt_parquet_each(t, c, visit, arg);
}
