// index_file.c: the rows of a data file on disk.
//
//   "DTINDEX" and its version, "1"  u64 payload bytes  u64 XXH3(payload)  payload
//   payload: u64 data_bytes, stamp, source_hash
//            u32 n_string_bytes, n_exts, n_columns, n_records, n_members, n_reals
//            strings (each NUL-terminated), padded to 8
//            u32 ext[n_exts]
//            a column: u32 name, n_values, values[n_values], cells[n_records] (index or 0xffffffff)
//            a number column: u32 name, 0, f64 value[n_records] (NaN: none)
//            a record: u32 key, n_members
//            a member: u32 ext, flags (1 = has a hash), u64 offset, size, hash
// All little-endian. data_bytes and stamp tell whether the data file is the one described. An index that
// packing wrote (source_hash is not 0) is used as long as the file's size fits: it has the hash of every
// member, so damage is found record by record, where a new scan would take the bytes as they are.
//
// The reader trusts nothing: it checks every count against the bytes that are left, every string against
// the string buffer, and every member against the data file.
#include "index_file.h"

#include "base/bits.h"
#include "base/core.h"
#include "base/formats.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/log.h"
#include "store/blob.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char MAGIC[8] = {'D', 'T', 'I', 'N', 'D', 'E', 'X', '0' + DT_FORMAT_INDEX};
enum { HEADER_BYTES = 24 };

// ---- writing -------------------------------------------------------------------------------------
static void index_file_put_u32(dt_buffer *b, uint32_t v) {
    dt_buffer_append(b, &v, sizeof v);
}

typedef struct writer {
    const dt_catalog *c;
    dt_buffer strings, rows;
    uint32_t first, n_records, n_members, n_columns, n_reals;
} writer;

static uint32_t index_file_put_string(writer *w, uint32_t s) {
    const char *text = dt_catalog_str(w->c, s);
    uint32_t at = (uint32_t)w->strings.n_bytes;
    dt_buffer_append(&w->strings, text, strlen(text) + 1);
    return at;
}

// The values that these records have, in order: each in the upper half of a word above its record's number.
// The cost does not depend on how many values other shards have.
static uint64_t *sorted_cells(const writer *w, const dt_column *col, uint32_t *n_out) {
    uint64_t *from = dt_xcalloc((size_t)w->n_records + 1, sizeof *from),
             *to = dt_xcalloc((size_t)w->n_records + 1, sizeof *to);
    uint32_t n = 0;
    for (uint32_t r = 0; r < w->n_records; r++) {
        uint32_t v = col->cell[w->first + r];
        if (v != DT_NO_VALUE) from[n++] = (uint64_t)v << 32 | r;
    }
    uint64_t *sorted = dt_radix_sort(from, to, n, sizeof *from, 4, 4); // by the upper half
    free(sorted == from ? to : from);
    *n_out = n;
    return sorted;
}

// Only the values that these records use.
static void put_column(writer *w, const dt_column *col) {
    uint32_t n, n_values = 0, *cell;
    uint64_t *sorted = sorted_cells(w, col, &n);
    if (n > 0) {
        w->n_columns++;
        index_file_put_u32(&w->rows, index_file_put_string(w, col->name));
        cell = dt_xcalloc(w->n_records, sizeof *cell);
        memset(cell, 0xff, w->n_records * sizeof *cell);
        for (uint32_t i = 0; i < n; i++) {
            assert(i == 0 || sorted[i - 1] < sorted[i]);
            if (i > 0 && sorted[i] >> 32 != sorted[i - 1] >> 32) n_values++;
            cell[(uint32_t)sorted[i]] = n_values;
        }
        index_file_put_u32(&w->rows, ++n_values);
        for (uint32_t i = 0; i < n; i++)
            if (i == 0 || sorted[i] >> 32 != sorted[i - 1] >> 32)
                index_file_put_u32(&w->rows, index_file_put_string(w, col->values[sorted[i] >> 32]));
        dt_buffer_append(&w->rows, cell, w->n_records * sizeof *cell);
        free(cell);
    }
    free(sorted);
}

static void put_real_column(writer *w, const dt_column *col) {
    const double *v = col->number + w->first;
    bool any = false;
    for (uint32_t r = 0; r < w->n_records && !any; r++) any = !isnan(v[r]);
    if (!any) return;
    w->n_reals++;
    index_file_put_u32(&w->rows, index_file_put_string(w, col->name));
    index_file_put_u32(&w->rows, 0);
    dt_buffer_append(&w->rows, v, w->n_records * sizeof *v);
}

static void index_file_put_rows(writer *w) {
    const dt_catalog *c = w->c;
    for (uint32_t i = 0; i < c->n_exts; i++) index_file_put_u32(&w->rows, index_file_put_string(w, c->exts[i]));
    for (uint32_t i = 0; i < c->table.n_columns; i++) // of text first
        (c->table.columns[i].number ? put_real_column : put_column)(w, &c->table.columns[i]);
    for (uint32_t i = 0; i < w->n_records; i++) {
        const dt_record *r = &c->records[w->first + i];
        uint32_t row[2] = {index_file_put_string(w, r->key), r->n_members};
        dt_buffer_append(&w->rows, row, sizeof row);
    }
    for (uint32_t i = 0; i < w->n_members; i++) {
        const dt_member *m = &c->members[c->records[w->first].first_member + i];
        uint64_t row[4] = {m->ext | (uint64_t)m->has_hash << 32, m->offset, m->size, m->hash};
        dt_buffer_append(&w->rows, row, sizeof row);
    }
}

// Records lie in the order of their shards.
static uint32_t first_of_shard(const dt_catalog *c, uint32_t shard) {
    uint32_t low = 0, high = c->n_records;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (c->records[middle].shard < shard)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

dt_status dt_index_make(const dt_catalog *c, uint32_t shard, uint64_t stamp, dt_buffer *out) {
    const dt_shard *x = &c->shards[shard];
    writer w = {.c = c, .first = first_of_shard(c, shard)};
    assert(c->finished);
    w.n_records = first_of_shard(c, shard + 1) - w.first;
    for (uint32_t i = 0; i < w.n_records; i++) w.n_members += c->records[w.first + i].n_members;
    index_file_put_rows(&w);
    while (w.strings.n_bytes % 8) dt_buffer_append(&w.strings, "", 1);
    const size_t n_strings = w.strings.n_bytes;
    uint64_t head[5] = {0, 0, x->n_bytes, stamp, x->source_hash};
    uint32_t counts[6] = {(uint32_t)n_strings, c->n_exts, w.n_columns, w.n_records, w.n_members, w.n_reals};
    out->n_bytes = 0;
    dt_buffer_append(out, MAGIC, sizeof MAGIC);
    dt_buffer_append(out, head, sizeof head);
    dt_buffer_append(out, counts, sizeof counts);
    dt_buffer_append(out, w.strings.data, n_strings);
    dt_buffer_append(out, w.rows.data, w.rows.n_bytes);
    dt_buffer_fini(&w.strings);
    dt_buffer_fini(&w.rows);
    head[0] = out->n_bytes - HEADER_BYTES;
    head[1] = dt_hash64(out->data + HEADER_BYTES, out->n_bytes - HEADER_BYTES);
    memcpy(out->data + sizeof MAGIC, head, 2 * sizeof *head);
    if (n_strings <= c->table.most) return DT_OK; // each column has its own copy of a value
    return dt_fail(DT_E_DATA,
                   "%s: its index would have %zu bytes of keys and values, and holds %u: divide "
                   "it into several shards, or use fewer text columns",
                   x->path, n_strings, c->table.most);
}

dt_status dt_index_save(dt_catalog *c, uint32_t shard, uint64_t stamp, const char *path) {
    dt_buffer index = {0};
    if (c->shards[shard].stamp != stamp) c->shards[shard].stamp = stamp; // else others may read it
    dt_status st = dt_index_make(c, shard, stamp, &index);
    if (st == DT_OK) st = dt_io_write_file(path, index.data, index.n_bytes);
    dt_buffer_fini(&index);
    return st;
}

// ---- reading -------------------------------------------------------------------------------------
typedef struct reader {
    dt_catalog *c;
    const char *path, *data_path;
    const uint8_t *at, *end;
    const char *strings;
    uint32_t n_string_bytes, n_exts, n_columns, n_records, n_members, n_reals;
    uint64_t data_bytes;
} reader;

static dt_status index_file_damaged(const reader *r, const char *what) {
    return dt_fail(DT_E_DATA, "%s: damaged index: %s; remove it (the data is then scanned) or pack again", r->path,
                   what);
}

static const uint8_t *index_file_take(reader *r, uint64_t n_bytes) {
    if (n_bytes > (uint64_t)(r->end - r->at)) return NULL;
    const uint8_t *p = r->at;
    r->at += n_bytes;
    return p;
}

static uint32_t u32_at(const uint8_t *p, uint64_t i) {
    return dt_le32(p + 4 * i);
}

static uint64_t u64_at(const uint8_t *p, uint64_t i) {
    return dt_le64(p + 8 * i);
}

static const char *string_at(const reader *r, uint32_t s) {
    return s < r->n_string_bytes ? r->strings + s : NULL;
}

// A column without any value is left out.
static dt_status append_cells(reader *r, const char *name, const uint8_t *values, uint32_t n_values,
                              const uint8_t *cells, uint32_t *id, uint32_t first) {
    dt_column *to = NULL;
    for (uint32_t i = 0; i < r->n_records; i++) {
        uint32_t v = u32_at(cells, i);
        if (v == DT_NO_VALUE) continue;
        const char *text = v < n_values ? string_at(r, u32_at(values, v)) : NULL;
        if (!text) return index_file_damaged(r, "a cell is outside its column");
        if (!to) DT_TRY(dt_columns_need(&r->c->table, r->data_path, name, DT_TEXT_COLUMN, &to));
        if (id[v] == DT_NO_VALUE) DT_TRY(dt_columns_intern(&r->c->table, r->data_path, text, &id[v]));
        to->cell[first + i] = id[v];
    }
    return DT_OK;
}

static dt_status append_numbers(reader *r, const char *name, const uint8_t *numbers, uint32_t first) {
    dt_column *to = NULL;
    double v;
    for (uint32_t i = 0; i < r->n_records; i++) {
        memcpy(&v, numbers + 8 * (uint64_t)i, 8);
        if (isnan(v)) continue;
        if (!to) DT_TRY(dt_columns_need(&r->c->table, r->data_path, name, DT_NUMBER_COLUMN, &to));
        to->number[first + i] = v == 0 ? 0 : v; // one zero
    }
    return DT_OK;
}

static dt_status append_column(reader *r, uint32_t first, bool real) {
    const uint8_t *p = index_file_take(r, 8);
    if (!p) return index_file_damaged(r, "cut in a column");
    const char *name = string_at(r, u32_at(p, 0));
    const uint32_t n_values = real ? 0 : u32_at(p, 1);
    const uint8_t *values = index_file_take(r, 4 * (uint64_t)n_values);
    const uint8_t *cells = values ? index_file_take(r, (real ? 8 : 4) * (uint64_t)r->n_records) : NULL;
    if (!name || !cells) return index_file_damaged(r, "cut in a column");
    if (real) return append_numbers(r, name, cells, first);
    uint32_t *id = dt_xcalloc((size_t)n_values + 1, sizeof *id);
    memset(id, 0xff, n_values * sizeof *id); // DT_NO_VALUE
    dt_status st = append_cells(r, name, values, n_values, cells, id, first);
    free(id);
    return st;
}

// The catalog's number of each extension in the file, once a member has used it.
typedef struct ext_map {
    const uint8_t *exts;
    uint32_t to[DT_MAX_EXTENSIONS];
} ext_map;

static dt_status map_ext(reader *r, ext_map *map, uint32_t e, uint32_t *out) {
    const char *ext = e < r->n_exts ? string_at(r, u32_at(map->exts, e)) : NULL;
    if (!ext) return index_file_damaged(r, "a member without extension");
    if (map->to[e] == UINT32_MAX) DT_TRY(dt_catalog_ext(r->c, r->data_path, ext, &map->to[e]));
    *out = map->to[e];
    return DT_OK;
}

static dt_status append_members(reader *r, ext_map *map, const dt_record *rec, const uint8_t *p, dt_member *to) {
    for (uint32_t m = 0; m < rec->n_members; m++, p += 32) {
        uint32_t ext = 0;
        uint64_t offset = u64_at(p, 1), size = u64_at(p, 2);
        bool has_hash = u32_at(p, 1) & 1;
        DT_TRY(map_ext(r, map, u32_at(p, 0), &ext));
        if (offset > r->data_bytes || size > r->data_bytes - offset)
            return index_file_damaged(r, "a member is outside the data file");
        for (uint32_t i = 0; i < m; i++)
            if (to[i].ext == ext)
                return dt_fail(DT_E_DATA, "%s: record %s has two members .%s", r->data_path,
                               dt_catalog_str(r->c, rec->key), dt_catalog_str(r->c, r->c->exts[ext]));
        to[m] = (dt_member){
            .ext = ext, .has_hash = has_hash, .offset = offset, .size = size, .hash = has_hash ? u64_at(p, 3) : 0};
    }
    return DT_OK;
}

// Fills the records from `first` on, and their members.
static dt_status fill_records(reader *r, ext_map *map, uint32_t shard, uint32_t first, uint32_t first_string) {
    dt_catalog *c = r->c;
    const uint8_t *rec = index_file_take(r, 8 * (uint64_t)r->n_records);
    const uint8_t *mem = rec ? index_file_take(r, 32 * (uint64_t)r->n_members) : NULL;
    if (!mem || r->at != r->end) return index_file_damaged(r, "its length does not fit its counts");
    uint32_t first_member = c->n_members, used = 0;
    dt_member *members = dt_catalog_new_members(c, r->n_members);
    for (uint32_t i = 0; i < r->n_records; i++, rec += 8) {
        uint32_t key = u32_at(rec, 0), n = u32_at(rec, 1);
        const char *text = string_at(r, key);
        if (!text) return index_file_damaged(r, "a key is outside the strings");
        if (n > r->n_members - used) return index_file_damaged(r, "more members than its header states");
        dt_record *to = &c->records[first + i];
        *to = (dt_record){.key = first_string + key,
                          .shard = shard,
                          .first_member = first_member + used,
                          .n_members = n,
                          .key_hash = dt_hash64(text, strlen(text))};
        DT_TRY(append_members(r, map, to, mem + 32 * (uint64_t)used, members ? members + used : NULL));
        used += n;
    }
    return used == r->n_members ? DT_OK : index_file_damaged(r, "members that belong to no record");
}

// If this fails half-way, the caller throws the whole catalog away. fixed: the first bytes of the payload; stamp:
// of the data file as it is.
static dt_status append_rows(reader *r, const uint8_t *fixed, uint64_t stamp) {
    dt_catalog *c = r->c;
    ext_map map = {.exts = index_file_take(r, 4 * (uint64_t)r->n_exts)};
    if (!map.exts) return index_file_damaged(r, "cut in the extensions");
    memset(map.to, 0xff, sizeof map.to);
    uint64_t n_rows = 8 * (uint64_t)r->n_records + 32 * (uint64_t)r->n_members;
    if (n_rows > (uint64_t)(r->end - r->at)) // before there is room for so many
        return index_file_damaged(r, "its length does not fit its counts");
    DT_TRY(dt_catalog_need_room(c, r->data_path, r->n_records, r->n_members, r->n_string_bytes));
    uint32_t shard = dt_catalog_add_shard(c, r->data_path, r->data_bytes), first = c->n_records;
    c->shards[shard].source_hash = u64_at(fixed, 2);
    c->shards[shard].stamp = stamp;
    c->shards[shard].changed = stamp != u64_at(fixed, 1);
    uint32_t first_string = dt_columns_add_strings(&c->table, r->strings, r->n_string_bytes);
    dt_record *records = dt_catalog_new_records(c, r->n_records);
    for (uint32_t i = 0; i < r->n_records; i++) records[i] = (dt_record){.shard = shard};
    for (uint32_t k = 0; k < r->n_columns; k++) DT_TRY(append_column(r, first, false));
    for (uint32_t k = 0; k < r->n_reals; k++) DT_TRY(append_column(r, first, true));
    return fill_records(r, &map, shard, first, first_string);
}

// Checks header and hash, and whether the index describes this data file.
static dt_status open_index(reader *r, const uint8_t *p, size_t n_bytes, uint64_t n_data, uint64_t stamp,
                            const uint8_t **fixed, bool *stale) {
    *stale = false;
    const bool begins = n_bytes >= HEADER_BYTES && memcmp(p, MAGIC, 7) == 0 && p[7] > '0';
    if (begins) DT_TRY(dt_format_check(r->path, p[7] - '0', DT_FORMAT_INDEX, NULL));
    if (!begins) return index_file_damaged(r, "it does not start like one");
    if (u64_at(p, 1) != n_bytes - HEADER_BYTES) return index_file_damaged(r, "cut");
    r->at = p + HEADER_BYTES;
    r->end = p + n_bytes;
    if (dt_hash64(r->at, n_bytes - HEADER_BYTES) != u64_at(p, 2)) return index_file_damaged(r, "its hash does not fit");
    *fixed = index_file_take(r, 48);
    if (!*fixed) return index_file_damaged(r, "cut");
    r->data_bytes = u64_at(*fixed, 0);
    if (n_data < r->data_bytes && u64_at(*fixed, 2) != 0) // packing wrote more: the file is cut
        return dt_fail(DT_E_DATA, "%s: truncated: it has %llu bytes and its index states %llu; copy or pack it again",
                       r->data_path, (unsigned long long)n_data, (unsigned long long)r->data_bytes);
    bool packed = u64_at(*fixed, 2) != 0;
    *stale = n_data != r->data_bytes || (!packed && stamp != u64_at(*fixed, 1));
    return DT_OK;
}

dt_status dt_index_check(const char *data_path, const char *index_path, const void *data, size_t n_bytes,
                         uint64_t n_data, uint64_t *stamp, bool *stale, uint64_t *source_hash) {
    reader r = {.path = index_path, .data_path = data_path};
    const uint8_t *fixed = NULL;
    const uint64_t of_data = *stamp;
    DT_TRY(open_index(&r, data, n_bytes, n_data, of_data, &fixed, stale));
    *source_hash = u64_at(fixed, 2);
    *stamp = u64_at(fixed, 1);
    if (of_data == 0)
        *stale = n_data != r.data_bytes;
    else if (!*stale && of_data != *stamp)
        dt_warn("%s: changed since it was packed: records that are not as they were are refused; "
                "pack it again, or remove %s to take them as they are",
                data_path, index_path);
    return DT_OK;
}

dt_status dt_index_parse(dt_catalog *c, const char *data_path, const char *index_path, const void *data, size_t n_bytes,
                         uint64_t n_data, uint64_t stamp, bool *stale) {
    reader r = {.c = c, .path = index_path, .data_path = data_path};
    const uint8_t *fixed = NULL;
    DT_TRY(open_index(&r, data, n_bytes, n_data, stamp, &fixed, stale));
    if (*stale) return DT_OK;
    r.n_string_bytes = u32_at(fixed, 6);
    r.n_exts = u32_at(fixed, 7);
    r.n_columns = u32_at(fixed, 8);
    r.n_records = u32_at(fixed, 9);
    r.n_members = u32_at(fixed, 10);
    r.n_reals = u32_at(fixed, 11);
    r.strings = (const char *)index_file_take(&r, r.n_string_bytes);
    if (!r.strings || (r.n_string_bytes > 0 && r.strings[r.n_string_bytes - 1] != '\0'))
        return index_file_damaged(&r, "cut in the strings");
    if (r.n_columns > DT_MAX_COLUMNS || r.n_reals > DT_MAX_COLUMNS || r.n_exts > DT_MAX_EXTENSIONS)
        return index_file_damaged(&r, "too many columns or extensions");
    return append_rows(&r, fixed, stamp);
}

dt_status dt_index_load(dt_catalog *c, const char *data_path, bool *found, bool *stale) {
    char *path = dt_xprintf("%s.index", data_path), *data = NULL;
    size_t n_bytes = 0;
    uint64_t stamp = 0;
    *found = dt_io_exists(path);
    *stale = false;
    dt_blob blob = {.store = NULL};
    dt_status st = DT_OK;
    if (!*found) goto out;
    DT_TRY_GOTO(st, dt_blob_open(&blob, data_path), out);
    DT_TRY_GOTO(st, dt_blob_stamp(&blob, &stamp), out);
    DT_TRY_GOTO(st, dt_io_read_file(&data, &n_bytes, path, 0, DT_E_DATA), out);
    st = dt_index_parse(c, data_path, path, data, n_bytes, blob.n_bytes, stamp, stale);
out:
    dt_blob_close(&blob);
    free(data);
    free(path);
    return st;
}
