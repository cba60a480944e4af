// arrow_ipc.c: reads Arrow's IPC streams, as Hugging Face's datasets keeps its sets, and files, which are a stream between a
// magic word and a footer that is not needed.
//
//   a message: 0xffffffff, i32 length of the head, the head (a FlatBuffer, padded), the body
//   a schema, then record batches, whose head lists where each buffer of each column lies in the body
//
// A column's buffers are found by counting: those of a type are always the same. A batch is read as the pages of Parquet
// are, a buffer at a time, but none is packed. Columns of lists, dictionaries, decimals and the like are counted over and
// left out. Unions, views, packed buffers and big-endian numbers are refused by name.
//
// Each offset of a FlatBuffer is checked against the head's bytes before it is followed, and as many may lead to one place,
// fields are counted.
//
// Format: Arrow columnar format 1.5 (Message.fbs, Schema.fbs).
#include "columnar.h"

#include "base/bits.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_HEAD_BYTES = 1 << 28, MAX_FIELDS = 1 << 14, MAX_DEPTH = 16 };

// ---- FlatBuffers --------------------------------------------------------------------------------------
typedef struct flat { // a table, or with `at` 0 none
    const uint8_t *bytes;
    uint64_t n, at;
} flat;

static uint64_t flat_number(flat t, uint64_t at, int width, uint64_t none) {
    if (at == 0 || at > t.n || t.n - at < (uint64_t)width) return none;
    const uint8_t *p = t.bytes + at;
    return width == 1 ? *p : width == 2 ? dt_le16(p) : width == 4 ? dt_le32(p) : dt_le64(p);
}

// Where field `id` of a table lies; 0: it has none.
static uint64_t flat_field(flat t, int id) {
    const uint64_t table = t.at - (uint64_t)(int64_t)(int32_t)flat_number(t, t.at, 4, 0); // of offsets
    const uint64_t at =
        flat_number(t, table, 2, 0) >= 6 + 2 * (uint64_t)id ? flat_number(t, table + 4 + 2 * (uint64_t)id, 2, 0) : 0;
    return t.at > 0 && table > 0 && table < t.n && at > 0 ? t.at + at : 0;
}

static uint64_t flat_int(flat t, int id, int width, uint64_t none) {
    return flat_number(t, flat_field(t, id), width, none);
}

// What the offset at `at` leads to.
static flat flat_follow(flat t, uint64_t at) {
    const uint64_t offset = flat_number(t, at, 4, 0);
    return (flat){t.bytes, t.n, offset > 0 && at + offset < t.n ? at + offset : 0};
}

static flat flat_table(flat t, int id) {
    return flat_follow(t, flat_field(t, id));
}

// A vector of elements of `width` bytes: their number; *first: where they begin.
static uint64_t flat_vector(flat t, int id, uint64_t width, uint64_t *first) {
    const flat v = flat_table(t, id);
    const uint64_t n = flat_number(v, v.at, 4, 0);
    *first = v.at + 4;
    return n <= (v.n - *first) / width ? n : 0;
}

static dt_span flat_text(flat t, int id) {
    uint64_t first;
    const uint64_t n = flat_vector(t, id, 1, &first);
    return (dt_span){n > 0 ? t.bytes + first : t.bytes, (size_t)n};
}

// ---- schema -------------------------------------------------------------------------------------------
enum { A_NULL = 1, A_INT, A_FLOAT, A_BINARY, A_UTF8, A_BOOL, A_DATE = 8, A_TIMESTAMP = 10, A_STRUCT = 13 };
enum { A_LARGE_BINARY = 19, A_LARGE_UTF8, HEAD_SCHEMA = 1, HEAD_BATCH = 3 };
// How many buffers a type has of its own (0: that of a column with a dictionary); -1: that varies.
static const int8_t N_BUFFERS[] = {2, 0, 2, 2, 3, 3, 2, 2, 2, 2, 2, 2, 2, 1, -1, 2, 1, 2, 2, 3, 3, 2};

typedef struct batch {
    struct batch *next;
    uint64_t body, n_body, n_rows;
    uint64_t *buffers; // (n_buffers, 2): offset and length
} batch;

typedef struct arrow {
    uint32_t n_buffers, n_fields;
    bool has_schema;
    batch *first, **last;
} arrow;

static dt_status refuse(const dt_columnar *t, const char *what) {
    return dt_fail(DT_E_DATA, "%s: has %s, which are not read", t->blob.path, what);
}

static void name_type(uint64_t type, flat of, dt_columnar_column *c) {
    const uint64_t unit = flat_int(of, 0, 2, type == A_DATE), bits = flat_int(of, 0, 4, 0);
    c->type = type == A_NULL                               ? DT_COLUMNAR_NULL
              : type == A_INT                              ? flat_int(of, 1, 1, 0) ? DT_COLUMNAR_INT : DT_COLUMNAR_UINT
              : type == A_FLOAT                            ? DT_COLUMNAR_FLOAT
              : type == A_BINARY || type == A_LARGE_BINARY ? DT_COLUMNAR_BYTES
              : type == A_UTF8 || type == A_LARGE_UTF8     ? DT_COLUMNAR_TEXT
              : type == A_BOOL                             ? DT_COLUMNAR_BOOL
              : type == A_DATE && unit == 0                ? DT_COLUMNAR_DATE
              : type == A_TIMESTAMP                        ? DT_COLUMNAR_TIMESTAMP
                                                           : DT_COLUMNAR_UNREAD;
    c->what = "a list, nested, or of another type that is not read of Arrow files";
    c->width = N_BUFFERS[type] == 3 ? 0 : type == A_BOOL ? 1 : type == A_DATE || (type == A_FLOAT && unit == 1) ? 4 : 8;
    if (type == A_INT && bits < 64) c->width = bits < 16 ? 1 : (uint32_t)bits / 8;
    if (type == A_FLOAT && unit == 0) c->width = 2;
    if (type == A_TIMESTAMP) c->scale = unit < 3 ? 3 * (int)unit : 9;
    c->utc = type == A_TIMESTAMP && flat_field(of, 1) > 0;
    c->offset_bytes = N_BUFFERS[type] < 3 ? 0 : type < A_STRUCT ? 4 : 8;
}

// A column, or a field of the struct `of`; `parent`: the buffer with the struct's validity. What lies in lists and deeper is
// counted only.
static dt_status add_field(dt_columnar *t, flat f, const dt_span *of, uint32_t parent, bool counts, int depth) {
    arrow *a = t->format;
    const bool indexed = flat_field(f, 4) > 0;
    const uint64_t type = indexed ? 0 : flat_int(f, 2, 1, UINT64_MAX);
    const dt_span name = flat_text(f, 0);
    uint64_t first, n = indexed ? 0 : flat_vector(f, 5, 4, &first);
    if (type >= sizeof N_BUFFERS || N_BUFFERS[type] < 0) return refuse(t, "unions, views, or newer types");
    if (depth > MAX_DEPTH || a->n_fields++ > MAX_FIELDS) return refuse(t, "too many columns, or too deep ones");
    const bool is_pair = type == A_STRUCT && !of && !counts;
    const uint32_t at = a->n_buffers;
    a->n_buffers += (uint32_t)N_BUFFERS[type];
    if (!counts && !is_pair) {
        dt_columnar_column *c = dt_columnar_add(t, of ? *of : name, of ? &name : NULL);
        c->leaf = at;
        c->parent = parent;
        name_type(type, flat_table(f, 3), c);
    }
    for (uint64_t i = 0; i < n; i++)
        DT_TRY(add_field(t, flat_follow(f, first + 4 * i), &name, is_pair ? at : UINT32_MAX, !is_pair, depth + 1));
    return DT_OK;
}

static dt_status read_schema(dt_columnar *t, flat schema) {
    uint64_t first, n = flat_vector(schema, 1, 4, &first);
    if (flat_int(schema, 0, 2, 0) != 0) return refuse(t, "big-endian numbers");
    for (uint64_t i = 0; i < n; i++)
        DT_TRY(add_field(t, flat_follow(schema, first + 4 * i), NULL, UINT32_MAX, false, 0));
    n = flat_vector(schema, 2, 4, &first);
    for (uint64_t i = 0; i < n; i++) {
        const flat pair = flat_follow(schema, first + 4 * i);
        if (dt_columnar_name_classes(t, flat_text(pair, 0), flat_text(pair, 1))) break;
    }
    return DT_OK;
}

static dt_status add_batch(dt_columnar *t, arrow *a, flat head, uint64_t body, uint64_t n_body) {
    uint64_t first;
    const uint64_t n = flat_vector(head, 2, 16, &first), n_rows = flat_int(head, 0, 8, 0);
    if (!a->has_schema) return dt_columnar_damaged(t, "a record batch without a schema before it");
    if (flat_field(head, 3)) return refuse(t, "packed buffers (compression)");
    if (n != a->n_buffers) return dt_columnar_damaged(t, "a record batch has other columns than the schema");
    batch *b = *a->last = dt_arena_alloc(&t->arena, sizeof *b);
    *b = (batch){NULL, body, n_body, n_rows, dt_arena_alloc(&t->arena, (n + 1) * 2 * sizeof *b->buffers)};
    a->last = &b->next;
    for (uint64_t i = 0; i < 2 * n; i++) b->buffers[i] = flat_number(head, first + 8 * i, 8, UINT64_MAX);
    return dt_columnar_add_rows(t, n_rows);
}

// ---- values -------------------------------------------------------------------------------------------
// Buffer `i` of a batch, which has at least n_bytes.
static dt_status load_buffer(dt_columnar *t, const batch *b, uint64_t i, uint64_t n_bytes, dt_buffer *out,
                             dt_columnar_page *page) {
    const uint64_t at = b->buffers[2 * i], n = b->buffers[2 * i + 1];
    if (at > b->n_body || n > b->n_body - at || n > UINT32_MAX / 2 || n < n_bytes)
        return dt_columnar_damaged(t, "a buffer of a record batch lies outside of it, or is cut");
    *page = (dt_columnar_page){b->body + at, (uint32_t)n, (uint32_t)n, DT_CODEC_NONE};
    return dt_columnar_load(t, page, out);
}

static dt_status visit_batch(dt_columnar *t, const dt_columnar_column *c, const batch *b, dt_buffer buffer[4],
                             uint64_t row, dt_columnar_visit visit, void *arg) {
    const uint64_t n_bits = (b->n_rows + 7) / 8, n = b->n_rows;
    const bool truths = c->type == DT_COLUMNAR_BOOL;
    dt_columnar_page page;
    for (int i = 0; i < 2; i++) { // validity: its own and the struct's; none where every value is there
        const uint64_t at = i ? c->parent : c->leaf;
        buffer[i].n_bytes = 0;
        if (at < UINT32_MAX && b->buffers[2 * at + 1] > 0) DT_TRY(load_buffer(t, b, at, n_bits, &buffer[i], &page));
    }
    if (n == 0) return DT_OK;
    if (c->offset_bytes) DT_TRY(load_buffer(t, b, c->leaf + 1, (n + 1) * (uint64_t)c->offset_bytes, &buffer[2], &page));
    const uint64_t n_least = truths ? n_bits : n * c->width; // of texts and bytes 0
    DT_TRY(load_buffer(t, b, c->leaf + 1 + (c->offset_bytes > 0), n_least, &buffer[3], &page));
    const uint32_t number = c->type == DT_COLUMNAR_BYTES ? dt_columnar_keep(t, &page) : 0;
    for (uint64_t i = 0; i < n; i++) {
        const uint8_t *offsets = buffer[2].data, *data = buffer[3].data;
        uint64_t begin = i * c->width, end = begin + c->width;
        bool is_there = true;
        uint8_t truth;
        for (int k = 0; k < 2; k++) is_there &= buffer[k].n_bytes == 0 || buffer[k].data[i / 8] >> i % 8 & 1;
        if (c->offset_bytes == 4) begin = dt_le32(&offsets[4 * i]), end = dt_le32(&offsets[4 * i + 4]);
        if (c->offset_bytes == 8) begin = dt_le64(&offsets[8 * i]), end = dt_le64(&offsets[8 * i + 8]);
        if (c->offset_bytes && (begin > end || end > buffer[3].n_bytes))
            return dt_columnar_damaged(t, "a value lies outside of its buffer");
        if (truths) truth = data[i / 8] >> i % 8 & 1;
        data = truths ? &truth : data + begin;
        const dt_columnar_value v = {is_there ? data : NULL, truths ? 1 : end - begin, number, (uint32_t)begin};
        DT_TRY(visit(arg, row + i, &v));
    }
    return DT_OK;
}

static dt_status arrow_each(dt_columnar *t, const dt_columnar_column *c, dt_columnar_visit visit, void *arg) {
    const arrow *a = t->format;
    dt_buffer buffer[4] = {{0}};
    dt_status st = DT_OK;
    uint64_t row = 0;
    for (const batch *b = a->first; b && st == DT_OK; row += b->n_rows, b = b->next)
        st = visit_batch(t, c, b, buffer, row, visit, arg);
    for (int i = 0; i < 4; i++) dt_buffer_fini(&buffer[i]);
    return st;
}

// ---- messages -----------------------------------------------------------------------------------------
// The message at *at, and behind it the next. *more = false: the stream ends there.
static dt_status read_message(dt_columnar *t, arrow *a, uint64_t *at, bool *more) {
    const uint64_t n_file = t->blob.n_bytes;
    uint8_t mark[8];
    char *bytes;
    *more = n_file - *at >= 8;
    if (!*more) return *at == n_file ? DT_OK : dt_columnar_damaged(t, "the stream is cut");
    DT_TRY(dt_blob_read(&t->blob, *at, mark, sizeof mark));
    const uint32_t n_head = dt_le32(mark + 4);
    *more = n_head > 0;
    if (dt_le32(mark) != UINT32_MAX)
        return dt_fail(DT_E_DATA, "%s: no stream of Arrow's messages, as of polars: write Parquet", t->blob.path);
    if (n_head == 0) return DT_OK;
    if (n_head > n_file - *at - 8) return dt_columnar_damaged(t, "the stream is cut");
    DT_TRY(dt_blob_load(&bytes, &t->blob, *at + 8, n_head, MAX_HEAD_BYTES));
    const flat message = {(const uint8_t *)bytes, n_head, n_head < 4 ? 0 : dt_le32((const uint8_t *)bytes)};
    const uint64_t kind = flat_int(message, 1, 1, 0), n_body = flat_int(message, 3, 8, 0), body = *at + 8 + n_head;
    dt_status st = n_body <= n_file - body ? DT_OK : dt_columnar_damaged(t, "the stream is cut");
    if (st == DT_OK && kind == HEAD_SCHEMA && !a->has_schema) st = read_schema(t, flat_table(message, 2));
    if (st == DT_OK && kind == HEAD_BATCH) st = add_batch(t, a, flat_table(message, 2), body, n_body);
    a->has_schema |= kind == HEAD_SCHEMA;
    free(bytes);
    *at = body + n_body;
    return st;
}

dt_status dt_arrow_open(dt_columnar *t, uint64_t at) {
    arrow *a = t->format = dt_arena_alloc(&t->arena, sizeof *a);
    dt_status st = DT_OK;
    a->last = &a->first;
    t->each = arrow_each;
    for (bool more = true; more && st == DT_OK;) st = read_message(t, a, &at, &more);
    return st;
}
