// compose.c: reading items, applying the transform, and laying records out.
//
// A record's members are written in the order of their extensions: the item's own, `json` with its
// metadata if there is any, `cls` with the number of its class. There are two ways to come by the item's
// bytes. If the transform keeps them, all are wanted, and the item is a raw file, it is read straight to its place in the
// chunk, hashed there and never copied. Otherwise the members are read into scratch, transformed, and
// copied. Both write the same bytes for the same record.
#include "compose.h"
#include "journal.h"

#include "base/arena.h"
#include "base/hash.h"

#include <assert.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_MEMBERS = DT_ROW_MAX_MEMBERS, HEAD_BYTES = 1 << 20 };

// A member about to be written. data NULL: the item's file, to be read in place.
typedef struct part {
    const char *ext;
    const uint8_t *data;
    uint64_t size;
} part;

struct dt_composer {
    const dt_compose *c;
    dt_chunk *out;
    dt_transform_scratch *scratch;
    dt_where_scratch *where;
    dt_buffer member[DT_TRANSFORM_MAX_MEMBERS]; // of sets, and of raw files that are transformed
    dt_buffer name, json_of_set;
    dt_json json;
    char cls[DT_INT_CHARS];
    // of the item at hand
    const dt_raw_item *item;
    dt_transform_item in;
    uint64_t source_hash;
    bool in_place;
    int gap_member; // of the row, or -1
    dt_row row;
};

dt_composer *dt_composer_create(const dt_compose *c) {
    dt_composer *w = dt_xcalloc(1, sizeof *w);
    w->c = c;
    w->scratch = dt_transform_scratch_create();
    w->where = dt_where_scratch_create(c->where);
    dt_json_init(&w->json);
    return w;
}

void dt_composer_destroy(dt_composer *w) {
    if (!w) return;
    dt_transform_scratch_destroy(w->scratch);
    dt_where_scratch_destroy(w->where);
    for (int i = 0; i < DT_TRANSFORM_MAX_MEMBERS; i++) dt_buffer_fini(&w->member[i]);
    dt_buffer_fini(&w->name);
    dt_buffer_fini(&w->json_of_set);
    dt_json_fini(&w->json);
    free(w);
}

// ---- metadata -----------------------------------------------------------------------------------------
static void put_columns(dt_composer *w, const dt_transform_record *r) {
    for (int i = 0; r && i < r->n_columns; i++) {
        const dt_transform_column *x = &r->column[i];
        if (x->in_json && x->text)
            dt_json_string(&w->json, x->name, x->text);
        else if (x->in_json)
            dt_json_real(&w->json, x->name, x->number);
    }
}

static void make_json(dt_composer *w, const dt_transform_record *r) {
    dt_json_reset(&w->json);
    dt_json_begin_object(&w->json, NULL);
    dt_raw_put_json(w->c->raw, w->item, &w->json);
    if (w->c->raw->kind == DT_RAW_SET && w->json_of_set.n_bytes == 0)
        dt_raw_put_set_json(w->c->raw, w->item, &w->json);
    put_columns(w, r);
    dt_json_end_object(&w->json);
}

// The set's own metadata, with ours put over it.
static dt_status merge_json(dt_composer *w) {
    json_error_t error;
    json_t *own = json_loadb((char *)w->json_of_set.data, w->json_of_set.n_bytes, 0, &error);
    json_t *ours = json_loadb(w->json.data, w->json.n_bytes, 0, &error);
    dt_status st = DT_OK;
    if (!json_is_object(own))
        st = dt_fail(DT_E_DATA, "its metadata is no JSON object, so nothing can be added to it");
    if (st == DT_OK) {
        json_object_update(own, ours);
        char *text = json_dumps(own, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
        w->json_of_set.n_bytes = 0;
        dt_buffer_append(&w->json_of_set, text, strlen(text));
        free(text);
    }
    json_decref(own);
    json_decref(ours);
    return st;
}

// *data NULL: the record has no metadata, and so no json member.
static dt_status find_json(dt_composer *w, const dt_transform_record *r, part *out) {
    make_json(w, r);
    bool any = w->json.n_bytes > 2; // more than {}
    *out = (part){"json", any ? (const uint8_t *)w->json.data : NULL, w->json.n_bytes};
    if (w->c->raw->kind != DT_RAW_SET || w->json_of_set.n_bytes == 0) return DT_OK;
    if (any) DT_TRY(merge_json(w));
    *out = (part){"json", w->json_of_set.data, w->json_of_set.n_bytes};
    return DT_OK;
}

// ---- writing a record ---------------------------------------------------------------------------------
static void insert(part *parts, int *n, part p) {
    int at = (*n)++;
    for (; at > 0 && strcmp(parts[at - 1].ext, p.ext) > 0; at--) parts[at] = parts[at - 1];
    parts[at] = p;
}

static const char *full_name(dt_composer *w, const char *suffix, const char *ext, size_t *n) {
    w->name.n_bytes = 0;
    dt_buffer_append(&w->name, w->item->key, strlen(w->item->key));
    dt_buffer_append(&w->name, suffix, strlen(suffix));
    dt_buffer_append(&w->name, ".", 1);
    dt_buffer_append(&w->name, ext, strlen(ext) + 1);
    *n = w->name.n_bytes - 1;
    return (const char *)w->name.data;
}

static dt_status write_part(dt_composer *w, const part *p, const char *suffix, bool gap,
                            dt_row_member *out) {
    size_t n_name;
    const char *name = full_name(w, suffix, p->ext, &n_name);
    uint8_t *place = NULL;
    *out = (dt_row_member){.ext = p->ext, .size = p->size};
    DT_TRY(w->c->plan->format->add(w->out, name, n_name, p->size, !gap, &out->offset, &place));
    if (gap) return DT_OK;
    if (p->data)
        memcpy(place, p->data, (size_t)p->size);
    else
        DT_TRY(dt_raw_read(w->c->raw, w->item, 0, place, (size_t)p->size));
    out->hash = dt_hash64(place, (size_t)p->size);
    if (!p->data) { // what the transform looks at
        w->in.member[0].bytes = (dt_span){place, (size_t)p->size};
        w->source_hash = out->hash;
    }
    return DT_OK;
}

// Parts in order into the chunk, their places into the row. gap: the part without data is not read.
static dt_status write_parts(dt_composer *w, const part *parts, int n, const char *suffix,
                             bool gap) {
    size_t most = 0, n_key = strlen(w->item->key) + strlen(suffix);
    for (int i = 0; i < n; i++)
        most += w->c->plan->format->most(n_key + strlen(parts[i].ext) + 1,
                                         parts[i].data || !gap ? parts[i].size : 0);
    DT_TRY(dt_chunk_reserve(w->out, most));
    w->row.n_members = n;
    for (int i = 0; i < n; i++)
        DT_TRY(write_part(w, &parts[i], suffix, gap && !parts[i].data, &w->row.member[i]));
    return DT_OK;
}

static dt_status put_row(dt_composer *w, const dt_transform_record *r) {
    w->row.item = (uint64_t)(w->item - w->c->raw->items);
    w->row.source_hash = w->source_hash;
    w->row.suffix = r->suffix;
    w->row.n_columns = r->n_columns;
    memcpy(w->row.column, r->column, (size_t)r->n_columns * sizeof *r->column);
    return dt_row_put(w->out, &w->row, w->gap_member);
}

// json and cls, as they go with every record of the item.
static dt_status add_metadata(dt_composer *w, const dt_transform_record *r, part *parts, int *n) {
    part json;
    DT_TRY(find_json(w, r, &json));
    if (json.data) insert(parts, n, json);
    if (w->item->label >= 0) {
        const char *text = dt_int_text(w->cls, w->item->label);
        insert(parts, n, (part){"cls", (const uint8_t *)text, strlen(text)});
    }
    return DT_OK;
}

static dt_status emit(void *arg, const dt_transform_record *r) {
    dt_composer *w = arg;
    part parts[MAX_MEMBERS];
    int n = 0;
    if (w->in_place) return put_row(w, r);
    for (int i = 0; i < r->n_members; i++)
        insert(parts, &n,
               (part){r->member[i].ext, r->member[i].bytes.data, r->member[i].bytes.n_bytes});
    DT_TRY(add_metadata(w, r, parts, &n));
    bool keep = true;
    uint64_t n_bytes = 0;
    for (int i = 0; i < n; i++) n_bytes += parts[i].size;
    if (w->where) DT_TRY(dt_where_keeps(w->where, w->item, r, n_bytes, &keep));
    if (!keep) return DT_OK;
    DT_TRY(write_parts(w, parts, n, r->suffix, false));
    return put_row(w, r);
}

// ---- reading an item ----------------------------------------------------------------------------------
static dt_status read_set_item(dt_composer *w) {
    dt_set *s = w->c->set;
    const dt_catalog *c = s->catalog;
    const dt_record *rec = &c->records[w->item->record];
    dt_span bytes;
    w->json_of_set.n_bytes = 0;
    for (uint32_t m = rec->first_member; m < rec->first_member + rec->n_members; m++) {
        const char *ext = dt_catalog_str(c, c->exts[c->members[m].ext]);
        bool is_json = strcmp(ext, "json") == 0;
        dt_buffer *to = is_json ? &w->json_of_set : &w->member[w->in.n_members];
        if (!is_json && w->in.n_members == DT_TRANSFORM_MAX_MEMBERS)
            return dt_fail(DT_E_DATA, "more than %d members", DT_TRANSFORM_MAX_MEMBERS);
        bytes = (dt_span){(const uint8_t *)"", 0};
        if (c->members[m].size > 0) DT_TRY(dt_set_read(s, w->item->record, m, true, to, &bytes));
        to->n_bytes = bytes.n_bytes;
        if (is_json && bytes.n_bytes > 0) memmove(to->data, bytes.data, bytes.n_bytes);
        if (!is_json)
            w->in.member[w->in.n_members++] = (dt_transform_member){ext, bytes, bytes.n_bytes};
    }
    return DT_OK;
}

static dt_status read_raw_item(dt_composer *w) {
    uint8_t *p = dt_buffer_reserve(&w->member[0], (size_t)w->item->size + 1);
    if (!p)
        return dt_fail(DT_E_INTERNAL, "no memory for its %llu bytes",
                       (unsigned long long)w->item->size);
    DT_TRY(dt_raw_read(w->c->raw, w->item, 0, p, (size_t)w->item->size));
    w->in.n_members = 1;
    w->in.member[0] =
        (dt_transform_member){w->item->ext, {p, (size_t)w->item->size}, w->item->size};
    return DT_OK;
}

// Of one member its hash; of several, a hash over extensions and hashes.
static uint64_t hash_members(const dt_transform_item *in, bool is_set) {
    if (!is_set) return dt_hash64(in->member[0].bytes.data, in->member[0].bytes.n_bytes);
    uint64_t sum = 0;
    for (int i = 0; i < in->n_members; i++) {
        const dt_transform_member *m = &in->member[i];
        uint64_t parts[2] = {dt_hash64(m->ext, strlen(m->ext)),
                             dt_hash64(m->bytes.data, m->bytes.n_bytes)};
        sum += dt_hash64(parts, sizeof parts); // members have no order in a record
    }
    return sum;
}

static void begin_item(dt_composer *w, size_t i) {
    w->item = &w->c->raw->items[i];
    w->in.name = w->item->name;
    w->in.key = w->item->key;
    w->in.n_members = 0;
    w->in_place = false;
    w->gap_member = -1;
}

static dt_status read_item(dt_composer *w) {
    bool is_set = w->c->raw->kind == DT_RAW_SET;
    DT_TRY(is_set ? read_set_item(w) : read_raw_item(w));
    w->source_hash = hash_members(&w->in, is_set);
    return DT_OK;
}

// The file goes straight to its place; of a very large one only the beginning is looked at.
static dt_status compose_in_place(dt_composer *w, bool gap) {
    part parts[MAX_MEMBERS];
    int n = 0;
    w->in.n_members = 1;
    w->in.member[0] = (dt_transform_member){.ext = w->item->ext, .size = w->item->size};
    if (gap) {
        uint8_t *p = dt_buffer_reserve(&w->member[0], HEAD_BYTES + 1);
        if (!p) return dt_fail(DT_E_INTERNAL, "out of memory");
        size_t n_head = w->item->size < HEAD_BYTES ? (size_t)w->item->size : HEAD_BYTES;
        DT_TRY(dt_raw_read(w->c->raw, w->item, 0, p, n_head));
        w->in.member[0].bytes = (dt_span){p, n_head};
        w->out->gap_item = (size_t)(w->item - w->c->raw->items);
        w->source_hash = 0; // comes with the gap
    }
    insert(parts, &n, (part){w->item->ext, NULL, w->item->size});
    DT_TRY(add_metadata(w, NULL, parts, &n));
    DT_TRY(write_parts(w, parts, n, "", gap));
    w->in_place = true;
    for (int i = 0; i < n && gap; i++)
        if (!parts[i].data) w->gap_member = i;
    return dt_transform_apply(w->c->transform, w->scratch, &w->in, emit, w);
}

static dt_status compose_item(dt_composer *w, size_t i, bool gap) {
    begin_item(w, i);
    bool is_raw = w->c->raw->kind != DT_RAW_SET;
    if (is_raw && !w->where && dt_transform_keeps_bytes(w->c->transform))
        return compose_in_place(w, gap);
    DT_TRY(read_item(w));
    return dt_transform_apply(w->c->transform, w->scratch, &w->in, emit, w);
}

// Messages of reading name the file already; others do not.
static dt_status name_item(const dt_composer *w, dt_status st) {
    char *path = dt_raw_path(w->c->raw, w->item);
    if (!strstr(dt_error_message(), w->item->name)) dt_fail_context(st, "%s", path);
    free(path);
    return st;
}

dt_status dt_compose_chunk(dt_composer *w, size_t index, dt_chunk *out) {
    const dt_plan_chunk *p = &w->c->plan->chunks[index];
    dt_chunk_reset(out, p->guess);
    w->out = out;
    out->index = index;
    for (size_t i = p->first; i < p->first + p->n; i++) {
        if (w->c->drop && w->c->drop[i]) continue;
        dt_status st = compose_item(w, i, p->has_gap);
        if (st != DT_OK) return name_item(w, st);
    }
    return DT_OK;
}

dt_status dt_compose_hash(dt_composer *w, size_t item, uint64_t *out) {
    begin_item(w, item);
    dt_status st = read_item(w);
    if (st != DT_OK) return name_item(w, st);
    *out = w->source_hash;
    return DT_OK;
}
