// parquet.c: reads Parquet as pyarrow, pandas, polars, DuckDB and Hugging Face's datasets write it unless told otherwise.
//
//   PAR1, column chunks, footer (FileMetaData in Thrift's compact protocol), u32 length of the footer, PAR1
//   a chunk: for one column of one row group, a page of the dictionary if there is one, then pages of values
//   a page: header (Thrift), then levels and values, packed: in version 2 the levels lie in front, not packed
//
// A value is there where its definition level is the greatest: one for each optional field on the way to it. Levels and
// indexes into the dictionary are runs (RLE) and groups of eight (bit-packed). Encodings are PLAIN, dictionaries and, of
// booleans, RLE; codecs snappy, zstd, gzip and none. DELTA_* and BYTE_STREAM_SPLIT, which no writer takes by itself,
// LZ4, brotli, LZO, encrypted files, columns in other files and values with repetition levels are refused by name.
//
// Every number of the file is untrusted: a list is as long as its bytes allow, a chunk lies in the file, a page in its
// chunk, a value in its page, and the rows of a file in proportion to its size. Checksums of pages are not read: a
// packed page has its own, or is hashed when it is packed here.
//
// Format: parquet-format 2.10 (parquet.thrift, Encodings.md).
#include "columnar.h"

#include "base/bits.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FOOTER_BYTES = 1 << 28, MAX_HEADER_BYTES = 1 << 20, HEADER_BYTES = 4096, MAX_COLUMNS = 4096 };
enum { MAX_DEPTH = 32, MAX_SCALE = 38, MAX_FIXED_BYTES = 1 << 20 };

// ---- Thrift's compact protocol -----------------------------------------------------------------------
// A footer or header is skipped as a whole first, which finds out whether it is cut. Its fields are then looked up by
// their numbers, from the first on: structs are short. A field of another type than expected counts as missing.
enum { T_STOP, T_TRUE, T_FALSE, T_I8, T_I16, T_I32, T_I64, T_DOUBLE, T_BINARY, T_LIST, T_SET, T_MAP, T_STRUCT };

typedef struct thrift {
    const uint8_t *at, *end; // of a struct: at its first field
    bool bad;                // cut; then `at` is `end`
} thrift;

static const uint8_t NO_FIELDS[] = {T_STOP};

static void thrift_fail(thrift *t) {
    t->bad = true;
    t->at = t->end;
}

static uint8_t get_byte(thrift *t) {
    if (t->at < t->end) return *t->at++;
    thrift_fail(t);
    return 0;
}

static uint64_t get_varint(thrift *t) {
    uint64_t v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        const uint8_t b = get_byte(t);
        v |= (uint64_t)(b & 127) << shift;
        if (b < 128) return v;
    }
    thrift_fail(t);
    return 0;
}

static int64_t get_zigzag(thrift *t) {
    const uint64_t v = get_varint(t);
    return (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
}

// A length: no more than there are bytes.
static uint64_t get_length(thrift *t, uint64_t n) {
    if (n > (uint64_t)(t->end - t->at)) thrift_fail(t);
    return t->bad ? 0 : n;
}

static uint64_t get_list(thrift *t, uint8_t *element) {
    const uint8_t b = get_byte(t);
    *element = b & 15;
    return get_length(t, b >> 4 == 15 ? get_varint(t) : b >> 4);
}

// The next field of a struct, T_STOP behind the last, and its number.
static uint8_t next_field(thrift *t, int *id) {
    const uint8_t b = get_byte(t), type = t->bad ? T_STOP : b & 15;
    if (type != T_STOP) *id = b >> 4 ? *id + (b >> 4) : (int16_t)get_zigzag(t);
    return type;
}

// In lists and maps a boolean takes a byte; in a struct the type is the value.
static uint8_t type_in_list(uint8_t type) {
    return type == T_TRUE || type == T_FALSE ? T_I8 : type;
}

static void skip(thrift *t, uint8_t type, int depth) {
    uint8_t element = 0, other;
    uint64_t n;
    int id = 0;
    if (depth > MAX_DEPTH) thrift_fail(t);
    switch (type) {
    case T_TRUE:
    case T_FALSE:
        break; // the type is the value
    case T_I8:
        get_byte(t);
        break;
    case T_I16:
    case T_I32:
    case T_I64:
        get_varint(t);
        break;
    case T_DOUBLE:
        t->at += get_length(t, 8);
        break;
    case T_BINARY:
        n = get_varint(t), t->at += get_length(t, n);
        break;
    case T_LIST:
    case T_SET:
        n = get_list(t, &element);
        for (; n > 0 && !t->bad; n--) skip(t, type_in_list(element), depth + 1);
        break;
    case T_MAP:
        n = get_varint(t);
        element = n > 0 ? get_byte(t) : 0;
        for (; n > 0 && !t->bad; n--) {
            skip(t, type_in_list(element >> 4), depth + 1);
            skip(t, type_in_list(element & 15), depth + 1);
        }
        break;
    case T_STRUCT:
        while ((other = next_field(t, &id)) != T_STOP) skip(t, other, depth + 1);
        break;
    default:
        thrift_fail(t);
    }
}

// The type of field `id` of a struct, whose value `s` is at then; T_STOP: there is none.
static uint8_t find_field(thrift *s, int id) {
    uint8_t type;
    for (int at = 0; (type = next_field(s, &at)) != T_STOP && at != id;) skip(s, type, 0);
    return type;
}

static int64_t int_of(thrift s, int id, int64_t none) {
    const uint8_t type = find_field(&s, id);
    if (type == T_TRUE || type == T_FALSE) return type == T_TRUE;
    return type == T_I8 ? (int8_t)get_byte(&s) : type >= T_I16 && type <= T_I64 ? get_zigzag(&s) : none;
}

static dt_span binary_of(thrift s, int id) {
    const uint64_t n = find_field(&s, id) == T_BINARY ? get_varint(&s) : 0;
    return (dt_span){s.at, (size_t)n};
}

static thrift struct_of(thrift s, int id) {
    return find_field(&s, id) == T_STRUCT ? s : (thrift){NO_FIELDS, NO_FIELDS + 1, false};
}

// How many structs a list has; `*first` is at its first, and skip moves it to the next.
static uint64_t list_of(thrift s, int id, thrift *first) {
    uint8_t element = 0;
    const uint64_t n = find_field(&s, id) == T_LIST ? get_list(&s, &element) : 0;
    *first = s;
    return element == T_STRUCT ? n : 0;
}

// ---- schema -------------------------------------------------------------------------------------------
enum { P_BOOLEAN, P_INT32, P_INT64, P_INT96, P_FLOAT, P_DOUBLE, P_BYTES, P_FIXED, P_NONE };
// The numbers of the union LogicalType.
enum { L_NONE, L_STRING, L_MAP, L_LIST, L_ENUM, L_DECIMAL, L_DATE, L_TIME, L_TIMESTAMP, L_INTERVAL };
enum { L_INTEGER = 10, L_NULL, L_JSON, L_BSON, L_UUID, L_FLOAT16 };

typedef struct element { // of the schema
    dt_span name;
    int64_t physical, length, repetition, n_children, scale;
    int logical, unit; // of a time: 1 ms, 2 us, 3 ns
    bool is_signed, utc;
} element;

typedef struct chunk { // of a column in a row group
    int64_t codec;
    uint64_t n_values, at, n_bytes;
} chunk;

typedef struct parquet {
    dt_columnar *t;
    element *elements;
    uint32_t n_elements, n_leaves, n_groups;
    uint64_t *n_rows; // by row group
    chunk *chunks;    // (n_groups, n_leaves)
} parquet;

static element read_element(thrift s) {
    // logical types by the older ConvertedType, where there is no LogicalType
    static const uint8_t OLD[] = {L_STRING,  L_MAP,     L_MAP,     L_LIST,      L_ENUM,      L_DECIMAL,
                                  L_DATE,    L_TIME,    L_TIME,    L_TIMESTAMP, L_TIMESTAMP, L_INTEGER,
                                  L_INTEGER, L_INTEGER, L_INTEGER, L_INTEGER,   L_INTEGER,   L_INTEGER,
                                  L_INTEGER, L_JSON,    L_BSON,    L_INTERVAL};
    enum { FIRST_TIME = 7, FIRST_UNSIGNED = 11, FIRST_SIGNED = 15 };
    thrift logical = struct_of(s, 10), type, unit;
    const int64_t old = int_of(s, 6, -1);
    element e = {binary_of(s, 4), int_of(s, 1, P_NONE), int_of(s, 2, 0),
                 int_of(s, 3, 0), int_of(s, 5, 0),      int_of(s, 7, 0)};
    e.is_signed = true;
    if (next_field(&logical, &e.logical) == T_STRUCT) {
        type = logical;
        unit = struct_of(type, 2);
        if (e.logical == L_DECIMAL) e.scale = int_of(type, 1, 0);
        if (e.logical == L_INTEGER) e.is_signed = int_of(type, 2, 1) != 0;
        if (e.logical == L_TIME || e.logical == L_TIMESTAMP)
            e.utc = int_of(type, 1, 0) != 0, next_field(&unit, &e.unit);
    } else if (old >= 0 && old < (int64_t)sizeof OLD) {
        e.logical = OLD[old];
        e.is_signed = old < FIRST_UNSIGNED || old >= FIRST_SIGNED;
        e.utc = e.logical == L_TIME || e.logical == L_TIMESTAMP;
        if (e.utc) e.unit = 1 + (old - FIRST_TIME) % 2;
    }
    return e;
}

// What a leaf's values are. UNREAD with `what` NULL: the file is damaged.
static void name_type(const element *e, dt_columnar_column *c) {
    static const uint8_t WIDTH[] = {1, 4, 8, 12, 4, 8, 0, 0};
    const bool fixed = e->physical == P_FIXED, whole = e->physical == P_INT32 || e->physical == P_INT64;
    const bool timed = e->logical == L_TIME || e->logical == L_TIMESTAMP;
    c->type = DT_COLUMNAR_UNREAD;
    if (e->physical < 0 || e->physical >= P_NONE || e->scale < 0 || e->scale > MAX_SCALE) return;
    if (fixed && (e->length <= 0 || e->length > MAX_FIXED_BYTES)) return;
    c->width = fixed ? (uint32_t)e->length : WIDTH[e->physical];
    c->utc = e->utc;
    c->big_endian = fixed && e->logical == L_DECIMAL;
    c->what = e->physical == P_INT96                                           ? "INT96 timestamps"
              : e->repetition == 2                                             ? "a list"
              : e->logical == L_UUID                                           ? "UUIDs"
              : e->logical == L_BSON                                           ? "BSON"
              : e->logical == L_INTERVAL                                       ? "intervals"
              : e->logical == L_DECIMAL && !whole && (!fixed || c->width > 16) ? "decimals of more than 38 digits"
                                                                               : NULL;
    if (c->what) return;
    if (e->logical == L_DECIMAL) c->scale = (int)e->scale;
    if (timed && whole && e->unit >= 1 && e->unit <= 3) c->scale = 3 * e->unit;
    c->type = e->logical == L_NULL                             ? DT_COLUMNAR_NULL
              : e->logical == L_DECIMAL                        ? DT_COLUMNAR_DECIMAL
              : e->logical == L_DATE && e->physical == P_INT32 ? DT_COLUMNAR_DATE
              : c->scale > 0 && e->logical == L_TIME           ? DT_COLUMNAR_TIME
              : c->scale > 0                                   ? DT_COLUMNAR_TIMESTAMP
              : whole                                          ? e->is_signed ? DT_COLUMNAR_INT : DT_COLUMNAR_UINT
              : e->physical == P_BOOLEAN                       ? DT_COLUMNAR_BOOL
              : e->logical == L_FLOAT16 && c->width == 2       ? DT_COLUMNAR_FLOAT
              : !fixed && e->physical != P_BYTES               ? DT_COLUMNAR_FLOAT
              : e->logical == L_STRING || e->logical == L_ENUM || e->logical == L_JSON ? DT_COLUMNAR_TEXT
                                                                                       : DT_COLUMNAR_BYTES;
}

// Whether a column that has children is one level of a struct; else what it is.
static const char *group_kind(const parquet *p, uint32_t at) {
    const element *e = &p->elements[at];
    if (e->logical == L_LIST || e->repetition == 2) return "a list";
    if (e->logical == L_MAP) return "a map";
    for (int64_t i = 1; i <= e->n_children; i++)
        if (p->elements[at + i].n_children > 0) return "nested more than one level deep";
    return NULL;
}

// Counts the leaves of an element, and moves behind it.
static dt_status walk_leaves(parquet *p, uint32_t *at, int depth) {
    if (*at >= p->n_elements || depth > MAX_DEPTH) return dt_columnar_damaged(p->t, "its schema is cut, or too deep");
    const element *e = &p->elements[(*at)++];
    for (int64_t i = 0; i < e->n_children; i++) DT_TRY(walk_leaves(p, at, depth + 1));
    p->n_leaves += e->n_children <= 0;
    return DT_OK;
}

static void add_leaf(parquet *p, const element *e, const element *of, uint32_t number) {
    dt_columnar_column *c = dt_columnar_add(p->t, of ? of->name : e->name, of ? &e->name : NULL);
    name_type(e, c);
    c->leaf = number;
    c->levels = (e->repetition != 0) + (of && of->repetition != 0);
}

static dt_status read_schema(parquet *p) {
    dt_columnar *t = p->t;
    uint32_t at = 1;
    if (p->n_elements == 0 || p->n_elements > 4 * MAX_COLUMNS || p->elements->n_children > MAX_COLUMNS)
        return dt_columnar_damaged(t, "it has no schema, or more than 4096 columns");
    for (int64_t i = 0; i < p->elements->n_children; i++) {
        const element *e = &p->elements[at];
        const uint32_t first = at, first_leaf = p->n_leaves;
        DT_TRY(walk_leaves(p, &at, 0));
        const char *what = e->n_children > 0 ? group_kind(p, first) : NULL;
        for (uint32_t k = 0; k < at - first - 1 && !what; k++) add_leaf(p, e + 1 + k, e, first_leaf + k);
        if (e->n_children <= 0) add_leaf(p, e, NULL, first_leaf);
        if (!what) continue;
        dt_columnar_column *c = dt_columnar_add(t, e->name, NULL);
        c->type = DT_COLUMNAR_UNREAD;
        c->what = what;
    }
    for (uint32_t i = 0; i < t->n_columns; i++)
        if (t->columns[i].type == DT_COLUMNAR_UNREAD && !t->columns[i].what)
            return dt_columnar_damaged(t, "its schema has a type that there is not");
    return DT_OK;
}

// ---- footer -------------------------------------------------------------------------------------------
static dt_status read_group(parquet *p, thrift s, uint32_t group) {
    dt_columnar *t = p->t;
    thrift column;
    const int64_t n_rows = int_of(s, 3, -1);
    const uint64_t n = list_of(s, 1, &column);
    if (n != p->n_leaves || n_rows < 0) return dt_columnar_damaged(t, "a row group has other columns than the schema");
    for (uint64_t i = 0; i < n; i++, skip(&column, T_STRUCT, 0)) {
        const thrift meta = struct_of(column, 3);
        const int64_t pages = int_of(meta, 9, -1), dictionary = int_of(meta, 11, 0);
        if (binary_of(column, 1).n_bytes > 0)
            return dt_fail(DT_E_DATA, "%s: its columns lie in other files, which are not read", t->blob.path);
        if (pages < 0) return dt_fail(DT_E_DATA, "%s: is encrypted, which is not read, or damaged", t->blob.path);
        // what is negative is too large
        p->chunks[group * p->n_leaves + i] = (chunk){
            int_of(meta, 4, -1), (uint64_t)int_of(meta, 5, -1),
            (uint64_t)(dictionary > 0 && dictionary < pages ? dictionary : pages), (uint64_t)int_of(meta, 7, -1)};
    }
    p->n_rows[group] = (uint64_t)n_rows;
    return dt_columnar_add_rows(t, p->n_rows[group]);
}

static dt_status read_footer(parquet *p, thrift s) {
    thrift whole = s, item;
    dt_columnar *t = p->t;
    uint64_t n;
    skip(&whole, T_STRUCT, 0);
    if (whole.bad) return dt_columnar_damaged(t, "its footer is cut");
    p->n_elements = (uint32_t)(n = list_of(s, 2, &item));
    p->elements = dt_arena_alloc(&t->arena, (n + 1) * sizeof *p->elements);
    for (uint64_t i = 0; i < n; i++, skip(&item, T_STRUCT, 0)) p->elements[i] = read_element(item);
    DT_TRY(read_schema(p));
    n = list_of(s, 4, &item);
    // a chunk takes more than a byte of the footer
    if (n * p->n_leaves > (uint64_t)(s.end - s.at))
        return dt_columnar_damaged(t, "a row group has other columns than the schema");
    p->n_rows = dt_arena_alloc(&t->arena, (n + 1) * sizeof *p->n_rows);
    p->chunks = dt_arena_alloc(&t->arena, (n * p->n_leaves + 1) * sizeof *p->chunks);
    for (; p->n_groups < n; p->n_groups++, skip(&item, T_STRUCT, 0)) DT_TRY(read_group(p, item, p->n_groups));
    n = list_of(s, 5, &item);
    for (uint64_t i = 0; i < n; i++, skip(&item, T_STRUCT, 0))
        if (dt_columnar_name_classes(t, binary_of(item, 1), binary_of(item, 2))) break;
    return DT_OK;
}

// ---- runs of small numbers ----------------------------------------------------------------------------
typedef struct runs {
    const uint8_t *at, *end; // what follows the run at hand
    int width;               // bits of a number
    uint64_t left;           // of the run
    const uint8_t *packed;   // of a group: the bits, up to packed_end; else NULL
    const uint8_t *packed_end;
    uint64_t bit;
    uint32_t value;
} runs;

// False: the bytes end before.
static bool runs_next(runs *r, uint32_t *out) {
    while (r->left == 0) {
        thrift t = {r->at, r->end, false};
        const uint64_t head = get_varint(&t), n_bytes = (uint64_t)(r->width + 7) / 8, room = (uint64_t)(t.end - t.at);
        if (t.bad) return false;
        r->at = t.at;
        if (head & 1) { // groups of 8 numbers
            if (head >> 1 > UINT32_MAX) return false;
            const uint64_t n = (head >> 1) * (uint64_t)r->width;
            r->packed = r->at;
            r->at = r->packed_end = r->at + (n < room ? n : room);
            r->bit = 0;
            r->left = (head >> 1) * 8;
        } else {
            if (n_bytes > room) return false;
            r->packed = NULL;
            r->value = 0;
            for (uint64_t i = 0; i < n_bytes; i++) r->value |= (uint32_t)r->at[i] << 8 * i;
            r->at += n_bytes;
            r->left = head >> 1;
        }
    }
    r->left--;
    *out = r->value;
    if (!r->packed) return true;
    const uint64_t n_left = (uint64_t)(r->packed_end - r->packed);
    if (r->bit + (uint64_t)r->width > 8 * n_left) return false;
    uint64_t v = 0;
    for (uint64_t k = r->bit / 8, i = 0; i < 5 && k + i < n_left; i++) v |= (uint64_t)r->packed[k + i] << 8 * i;
    *out = (uint32_t)(v >> r->bit % 8 & ((UINT64_C(1) << r->width) - 1));
    r->bit += (uint64_t)r->width;
    return true;
}

// ---- pages --------------------------------------------------------------------------------------------
enum { PAGE_V1, PAGE_INDEX, PAGE_DICTIONARY, PAGE_V2 };
enum { E_PLAIN, E_PLAIN_DICTIONARY = 2, E_RLE, E_RLE_DICTIONARY = 8 };

typedef struct header {
    int64_t type, n_bytes, n_packed, n_values, encoding, level_encoding, n_def, n_rep;
    bool is_packed;
} header;

// False: cut. *t moves behind it.
static bool read_header(thrift *t, header *h) {
    const thrift s = *t;
    skip(t, T_STRUCT, 0);
    if (t->bad) return false;
    *h = (header){.type = int_of(s, 1, -1), .n_bytes = int_of(s, 2, -1), .n_packed = int_of(s, 3, -1)};
    const bool v2 = h->type == PAGE_V2;
    const thrift of = struct_of(s, v2 ? 8 : h->type == PAGE_DICTIONARY ? 7 : 5);
    h->n_values = int_of(of, 1, -1);
    h->encoding = int_of(of, v2 ? 4 : 2, -1);
    h->level_encoding = int_of(of, 3, -1);
    h->n_def = int_of(of, 5, -1);
    h->n_rep = int_of(of, 6, -1);
    h->is_packed = int_of(of, 7, 1) != 0;
    return true;
}

typedef struct reading { // a column, from its first row group to the last
    const parquet *p;
    const dt_columnar_column *c;
    const chunk *chunk;
    dt_columnar_visit visit;
    void *arg;
    uint64_t row;
    dt_buffer page, dictionary, head;
    uint32_t dictionary_page, n_entries;
    struct {
        uint32_t at, n;
    } * entry; // of the dictionary
} reading;

static dt_status page_damaged(const reading *r, const char *what) {
    return dt_fail(DT_E_DATA, "%s: damaged: column %s, near row %" PRIu64 ": %s", r->p->t->blob.path, r->c->name,
                   r->row, what);
}

// The header at byte `at` of the file, in front of `end`; *n: its bytes.
static dt_status load_header(reading *r, uint64_t at, uint64_t end, header *h, uint64_t *n) {
    for (uint64_t most = HEADER_BYTES; most <= MAX_HEADER_BYTES; most *= 16) { // longer ones have long statistics
        const size_t want = (size_t)(end - at < most ? end - at : most);
        if (!dt_buffer_reserve(&r->head, want + 1)) return dt_fail(DT_E_INTERNAL, "no memory for a page's header");
        DT_TRY(dt_blob_read(&r->p->t->blob, at, r->head.data, want));
        thrift t = {r->head.data, r->head.data + want, false};
        if (read_header(&t, h)) {
            *n = (uint64_t)(t.at - r->head.data);
            return DT_OK;
        }
    }
    return page_damaged(r, "the header of a page");
}

// The place and length of the value at `at`, and behind it the next. False: the page ends before.
static bool plain_next(const reading *r, const uint8_t *page, size_t n_page, size_t *at, uint32_t *begin, uint32_t *n) {
    uint32_t length = r->c->width;
    if (length == 0) { // it stands in front
        if (n_page - *at < 4) return false;
        length = dt_le32(page + *at);
        *at += 4;
    }
    if (n_page - *at < length) return false;
    *begin = (uint32_t)*at;
    *n = length;
    *at += length;
    return true;
}

static dt_status read_dictionary(reading *r, const header *h, const dt_columnar_page *page) {
    size_t at = 0;
    if (h->encoding != E_PLAIN && h->encoding != E_PLAIN_DICTIONARY)
        return page_damaged(r, "the encoding of its dictionary");
    DT_TRY(dt_columnar_load(r->p->t, page, &r->dictionary));
    if (r->c->type == DT_COLUMNAR_BYTES) r->dictionary_page = dt_columnar_keep(r->p->t, page);
    if (h->n_values < 0 || (uint64_t)h->n_values > r->dictionary.n_bytes / (r->c->width ? r->c->width : 4))
        return page_damaged(r, "its dictionary is cut");
    r->entry = dt_xrealloc(r->entry, ((size_t)h->n_values + 1) * sizeof *r->entry);
    for (r->n_entries = 0; r->n_entries < (uint32_t)h->n_values; r->n_entries++)
        if (!plain_next(r, r->dictionary.data, r->dictionary.n_bytes, &at, &r->entry[r->n_entries].at,
                        &r->entry[r->n_entries].n))
            return page_damaged(r, "its dictionary is cut");
    return DT_OK;
}

static dt_status refuse_encoding(const reading *r, int64_t id) {
    static const char *const DELTA[] = {"DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"};
    return dt_fail(DT_E_DATA,
                   "%s: column %s has encoding %s (%lld), which is not read: write the file with plain or dictionary "
                   "encoding (the default of pyarrow, pandas, polars and DuckDB)",
                   r->p->t->blob.path, r->c->name,
                   id >= 5 && id <= 7 ? DELTA[id - 5]
                   : id == 9          ? "BYTE_STREAM_SPLIT"
                                      : "of a number",
                   (long long)id);
}

// Values of a data page: `at` is where they begin in r->page.
static dt_status visit_values(reading *r, const header *h, runs *def, size_t at, uint32_t number) {
    const bool indexed = h->encoding == E_RLE_DICTIONARY || h->encoding == E_PLAIN_DICTIONARY;
    const bool is_bit = r->c->type == DT_COLUMNAR_BOOL, is_run = is_bit && h->encoding == E_RLE;
    const uint8_t *page = r->page.data, *end = page + r->page.n_bytes;
    const uint32_t most = r->c->levels;
    runs index = {page + at, end, 0};
    uint64_t bit = 0;
    if (!indexed && !is_run && h->encoding != E_PLAIN) return refuse_encoding(r, h->encoding);
    if (is_run) { // u32 length, then runs of a bit
        if (end - index.at >= 4) index.at += 4;
        index.width = 1;
    } else if (indexed && index.at < end) {
        index.width = *index.at++;
    }
    if (index.width > 32) return page_damaged(r, "the width of its indexes");
    for (int64_t i = 0; i < h->n_values; i++, r->row++) {
        dt_columnar_value v = {.page = number};
        uint32_t level = most, k = 0, n = 0;
        uint8_t truth;
        if (most > 0 && !runs_next(def, &level)) return page_damaged(r, "its levels are cut");
        if (level > most) return page_damaged(r, "a level that there is not");
        if (level == most) {
            if ((indexed || is_run) && !runs_next(&index, &k)) return page_damaged(r, "its values are cut");
            if (indexed) {
                if (k >= r->n_entries) return page_damaged(r, "an index outside of its dictionary");
                v.page = r->dictionary_page;
                v.at = r->entry[k].at;
                v.data = r->dictionary.data + v.at;
                n = r->entry[k].n;
            } else if (is_bit) {
                if (!is_run && bit / 8 >= (uint64_t)(end - page) - at) return page_damaged(r, "its values are cut");
                truth = is_run ? (uint8_t)k : page[at + bit / 8] >> bit % 8 & 1;
                bit++;
                v.data = &truth;
                n = 1;
            } else {
                if (!plain_next(r, page, r->page.n_bytes, &at, &v.at, &n)) return page_damaged(r, "its values are cut");
                v.data = page + v.at;
            }
            v.n_bytes = n;
        }
        DT_TRY(r->visit(r->arg, r->row, &v));
    }
    return DT_OK;
}

// A page of version 1 has its levels, behind their u32 length, in front of the values; of version 2 they are not packed.
static dt_status read_data(reading *r, const header *h, dt_columnar_page *page) {
    runs def = {.width = r->c->levels > 1 ? 2 : 1};
    uint8_t *levels_v2 = NULL;
    size_t at = 0;
    dt_status st = DT_OK;
    if (h->type == PAGE_V2) {
        if (h->n_rep != 0 || h->n_def < 0 || h->n_def > page->n_packed || h->n_def > page->n_bytes)
            return page_damaged(r, "the lengths of its levels");
        levels_v2 = dt_xcalloc((size_t)h->n_def + 1, 1);
        st = dt_blob_read(&r->p->t->blob, page->at, levels_v2, (size_t)h->n_def);
        def.at = levels_v2;
        def.end = levels_v2 + h->n_def;
        page->at += (uint64_t)h->n_def;
        page->n_packed -= (uint32_t)h->n_def;
        page->n_bytes -= (uint32_t)h->n_def;
        if (!h->is_packed) page->codec = DT_CODEC_NONE;
    }
    if (st == DT_OK) st = dt_columnar_load(r->p->t, page, &r->page);
    if (st == DT_OK && h->type == PAGE_V1 && r->c->levels > 0) {
        if (h->level_encoding != E_RLE) return refuse_encoding(r, h->level_encoding);
        if (r->page.n_bytes < 4 || dt_le32(r->page.data) > r->page.n_bytes - 4)
            return page_damaged(r, "its levels are cut");
        at = 4 + dt_le32(r->page.data);
        def.at = r->page.data + 4;
        def.end = r->page.data + at;
    }
    const uint32_t number = st == DT_OK && r->c->type == DT_COLUMNAR_BYTES ? dt_columnar_keep(r->p->t, page) : 0;
    if (st == DT_OK) st = visit_values(r, h, &def, at, number);
    free(levels_v2);
    return st;
}

static dt_status read_pages(reading *r, uint64_t n_rows) {
    static const dt_columnar_codec CODECS[] = {
        [0] = DT_CODEC_NONE, [1] = DT_CODEC_SNAPPY, [2] = DT_CODEC_GZIP, [6] = DT_CODEC_ZSTD};
    static const char *const NAMES[] = {"", "", "", "LZO", "brotli", "LZ4", "", "LZ4"};
    const chunk *c = r->chunk;
    const uint64_t end = c->at + c->n_bytes, first = r->row;
    const bool known = c->codec >= 0 && c->codec < (int64_t)(sizeof NAMES / sizeof *NAMES);
    uint64_t at = c->at, n_header = 0;
    header h = {0};
    if (!known || *NAMES[c->codec])
        return dt_fail(DT_E_DATA,
                       "%s: column %s is packed with %s, which is not read: write it with snappy, zstd or gzip",
                       r->p->t->blob.path, r->c->name, known ? NAMES[c->codec] : "an unknown codec");
    if (c->at > r->p->t->blob.n_bytes || c->n_bytes > r->p->t->blob.n_bytes - c->at || c->n_values != n_rows)
        return page_damaged(r, "its place in the file, or its number of values");
    r->n_entries = 0;
    while (r->row - first < n_rows) {
        DT_TRY(load_header(r, at, end, &h, &n_header));
        at += n_header;
        if (h.n_packed < 0 || h.n_bytes < 0 || h.n_bytes > INT32_MAX || (uint64_t)h.n_packed > end - at)
            return page_damaged(r, "the size of a page");
        dt_columnar_page page = {at, (uint32_t)h.n_packed, (uint32_t)h.n_bytes, CODECS[c->codec]};
        if (h.type == PAGE_DICTIONARY) {
            DT_TRY(read_dictionary(r, &h, &page));
        } else if (h.type == PAGE_V1 || h.type == PAGE_V2) {
            if (h.n_values < 0 || (uint64_t)h.n_values > n_rows - (r->row - first))
                return page_damaged(r, "a page has more values than its row group");
            DT_TRY(read_data(r, &h, &page));
        }
        at += (uint64_t)h.n_packed;
    }
    return DT_OK;
}

dt_status dt_parquet_each(dt_columnar *t, const dt_columnar_column *c, dt_columnar_visit visit, void *arg) {
    const parquet *p = t->format;
    reading r = {.p = p, .c = c, .visit = visit, .arg = arg};
    dt_status st = DT_OK;
    for (uint32_t g = 0; g < p->n_groups && st == DT_OK; g++) {
        r.chunk = &p->chunks[g * p->n_leaves + c->leaf];
        st = read_pages(&r, p->n_rows[g]);
    }
    dt_buffer_fini(&r.page);
    dt_buffer_fini(&r.dictionary);
    dt_buffer_fini(&r.head);
    free(r.entry);
    return st;
}

dt_status dt_parquet_open(dt_columnar *t) {
    uint8_t tail[8];
    char *footer;
    const uint64_t n = t->blob.n_bytes;
    if (n < 12) return dt_fail(DT_E_DATA, "%s: no Parquet file: too short", t->blob.path);
    DT_TRY(dt_blob_read(&t->blob, n - 8, tail, 8));
    const uint32_t n_footer = dt_le32(tail);
    if (memcmp(tail + 4, "PARE", 4) == 0)
        return dt_fail(DT_E_DATA, "%s: is encrypted, which is not read", t->blob.path);
    if (memcmp(tail + 4, "PAR1", 4) != 0 || n_footer > n - 12)
        return dt_fail(DT_E_DATA, "%s: no whole Parquet file: it does not end as one", t->blob.path);
    DT_TRY(dt_blob_load(&footer, &t->blob, n - 8 - n_footer, n_footer, MAX_FOOTER_BYTES));
    parquet *p = t->format = dt_arena_alloc(&t->arena, sizeof *p);
    thrift bytes = {(const uint8_t *)footer, (const uint8_t *)footer + n_footer, false};
    *p = (parquet){.t = t};
    const dt_status st = read_footer(p, bytes);
    free(footer); // the names of elements were copied
    return st;
}
