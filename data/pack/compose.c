// compose.c: reads items, applies the transform, and lays records out in a chunk.
//
// A record's members are in the order of their extensions: the item's own, `json` with its metadata if there is
// any, `cls` with the number of its class. A raw file is read straight to its place in the chunk, and is copied
// only if the transform changes it.
#include "data/file/file.h"
#include "pack_parts.h"

#include "data/file/json_data.h"

#include "base/core.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/os.h"
#include "config/words.h"

#include <jansson.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

enum {
    HEAD_BYTES = 1 << 20, // HEAD_BYTES: of a very large file, enough for every header that is read
    ALIGN = 64            // the kernel copies to such places several times as fast as to others
};

typedef struct dt_chunk_block {
    struct dt_chunk_block *next;
    alignas(ALIGN) uint8_t data[];
} dt_chunk_block;

struct dt_composer {
    const dt_compose *c;
    // out: the chunk under way, which owns all memory that is taken
    dt_chunk *out;
    dt_transform_scratch *scratch;
    dt_buffer member[DT_TRANSFORM_MAX_MEMBERS]; // of a record of a dataset
    dt_buffer json_of_set;
    dt_json json;
    char cls[DT_INT_CHARS];
    // of the item at hand
    const dt_raw_item *item;
    dt_transform_record in;
    uint64_t source_hash;
    const uint8_t *own; // the item's bytes, if they are in the chunk already
    bool is_large;      // only the head of the item is in memory
    double read_s;      // spent on reading so far
};

// ---- memory -------------------------------------------------------------------------------------------
void dt_chunk_fini(dt_chunk *c) {
    for (dt_chunk_block *b = c->blocks, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    *c = (dt_chunk){0};
}

// NULL: the error is set.
static void *compose_take(dt_composer *w, uint64_t n_bytes) {
    // rounded up: aligned_alloc wants a multiple of the alignment
    dt_chunk_block *b = aligned_alloc(ALIGN, dt_align_up(sizeof *b + (size_t)n_bytes, ALIGN));
    if (!b) {
        dt_fail(DT_E_INTERNAL, "no memory for its %llu bytes", (unsigned long long)n_bytes);
        return NULL;
    }
    b->next = w->out->blocks;
    w->out->blocks = b;
    return b->data;
}

dt_composer *dt_composer_create(const dt_compose *c) {
    dt_composer *w = dt_xcalloc(1, sizeof *w);
    w->c = c;
    w->scratch = dt_transform_scratch_create();
    dt_json_init(&w->json);
    return w;
}

void dt_composer_destroy(dt_composer *w) {
    if (!w) return;
    dt_transform_scratch_destroy(w->scratch);
    for (int i = 0; i < DT_TRANSFORM_MAX_MEMBERS; i++) dt_buffer_fini(&w->member[i]);
    dt_buffer_fini(&w->json_of_set);
    dt_json_fini(&w->json);
    free(w);
}

// ---- metadata -----------------------------------------------------------------------------------------
void dt_composer_add_times(const dt_composer *w, double all_s, dt_pack_times *out) {
    out->read_s += w->read_s;
    out->decode_s += w->scratch->decode_s;
    out->encode_s += w->scratch->encode_s;
    out->rest_s += all_s - w->read_s - w->scratch->decode_s - w->scratch->encode_s;
}

static void make_json(dt_composer *w, const dt_transform_record *r) {
    dt_json_reset(&w->json);
    dt_json_begin_object(&w->json, NULL);
    dt_raw_put_json(w->c->raw, w->item, &w->json);
    if (w->c->raw->kind == DT_RAW_SET && w->json_of_set.n_bytes == 0) dt_raw_put_set_json(w->c->raw, w->item, &w->json);
    for (int i = 0; i < r->n_columns; i++)
        if (r->column[i].in_json) dt_json_real(&w->json, r->column[i].name, r->column[i].number);
    dt_json_end_object(&w->json);
}

// The metadata that the record has already, with ours put over it.
static dt_status merge_json(dt_composer *w) {
    json_error_t error;
    json_t *own = dt_json_load((char *)w->json_of_set.data, w->json_of_set.n_bytes, 0, &error);
    json_t *ours = json_loadb(w->json.data, w->json.n_bytes, 0, &error);
    dt_status st = DT_OK;
    if (!json_is_object(own)) st = dt_fail(DT_E_DATA, "its metadata is no JSON object, so nothing can be added to it");
    if (st == DT_OK) {
        json_object_update(own, ours); // ours wins where both have a key
        // sorted: the bytes do not depend on a hash table's order
        char *text = json_dumps(own, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
        w->json_of_set.n_bytes = 0;
        dt_buffer_append(&w->json_of_set, text, strlen(text));
        free(text);
    }
    json_decref(own);
    json_decref(ours);
    return st;
}

// size 0: the record has no metadata, and so no json member.
static dt_status find_json(dt_composer *w, const dt_transform_record *r, dt_chunk_member *out) {
    make_json(w, r);
    bool any = w->json.n_bytes > 2; // more than {}
    *out = (dt_chunk_member){.ext = "json", .data = (const uint8_t *)w->json.data, .size = any ? w->json.n_bytes : 0};
    if (w->c->raw->kind != DT_RAW_SET || w->json_of_set.n_bytes == 0) return DT_OK;
    if (any) DT_TRY(merge_json(w));
    out->data = w->json_of_set.data;
    out->size = w->json_of_set.n_bytes;
    return DT_OK;
}

// ---- writing a record ---------------------------------------------------------------------------------
typedef struct member_list {
    dt_chunk_member m[DT_CHUNK_MAX_MEMBERS];
    int n;
    uint64_t n_bytes; // of all members
} member_list;

static void insert(member_list *l, dt_chunk_member m) {
    int at = l->n++;
    // few members: insertion keeps the order of extensions
    for (; at > 0 && strcmp(l->m[at - 1].ext, m.ext) > 0; at--) l->m[at] = l->m[at - 1];
    l->m[at] = m;
    l->n_bytes += m.size;
}

static dt_status list_members(dt_composer *w, const dt_transform_record *r, member_list *l) {
    l->n = 0;
    l->n_bytes = 0;
    for (int i = 0; i < r->n_members; i++)
        insert(l, (dt_chunk_member){.ext = r->member[i].ext,
                                    // NULL: the writer copies the file itself (copy_large)
                                    .data = w->is_large ? NULL : r->member[i].bytes.data,
                                    .size = r->member[i].size});
    dt_chunk_member json;
    DT_TRY(find_json(w, r, &json));
    if (json.size > 0) insert(l, json);
    if (w->item->label >= 0) {
        const char *text = dt_int_text(w->cls, w->item->label);
        insert(l, (dt_chunk_member){.ext = "cls", .data = (const uint8_t *)text, .size = strlen(text)});
    }
    return DT_OK;
}

// Copies the bytes into the chunk unless they are there already.
static dt_status keep_member(dt_composer *w, dt_chunk_member *m) {
    if (!m->data) return DT_OK; // a large file, hashed while it is copied
    if (m->data == w->own) {    // stored as it was read
        m->hash = w->source_hash;
        return DT_OK;
    }
    uint8_t *copy = compose_take(w, m->size);
    if (!copy) return DT_E_INTERNAL;
    memcpy(copy, m->data, (size_t)m->size);
    m->data = copy;
    m->hash = dt_hash64(copy, (size_t)m->size);
    return DT_OK;
}

static const char *keep_text(char **at, const char *s) {
    size_t n = strlen(s) + 1;
    const char *out = memcpy(*at, s, n);
    *at += n;
    return out;
}

static dt_status compose_emit(void *arg, const dt_transform_record *r) {
    dt_composer *w = arg;
    member_list l;
    DT_TRY(list_members(w, r, &l));
    bool kept = true;
    if (w->c->where) DT_TRY(dt_where_keeps(w->c->where, w->item, r, l.n_bytes, &kept));
    if (!kept) return DT_OK;
    for (int i = 0; i < l.n; i++) DT_TRY(keep_member(w, &l.m[i]));
    size_t members = (size_t)l.n * sizeof *l.m, columns = (size_t)r->n_columns * sizeof *r->column;
    size_t n_text = strlen(r->suffix) + 1;
    for (int i = 0; i < l.n; i++) n_text += strlen(l.m[i].ext) + 1;
    // one block: the record, its members, its columns, then all texts
    dt_chunk_record *out = compose_take(w, sizeof *out + members + columns + n_text);
    if (!out) return DT_E_INTERNAL;
    // the item's number in the list
    *out = (dt_chunk_record){.item = (uint32_t)(w->item - w->c->raw->items),
                             .source_hash = w->source_hash,
                             .n_members = l.n,
                             .n_columns = r->n_columns};
    out->member = memcpy(out + 1, l.m, members);
    out->column = memcpy((uint8_t *)(out + 1) + members, r->column, columns);
    char *text = (char *)(out + 1) + members + columns;
    for (int i = 0; i < l.n; i++) out->member[i].ext = keep_text(&text, l.m[i].ext);
    out->suffix = keep_text(&text, r->suffix);
    // records in the order of the items; `last` points to the link to set
    *w->out->last = out;
    w->out->last = &out->next;
    return DT_OK;
}

// ---- reading an item ----------------------------------------------------------------------------------
static dt_status read_set_item(dt_composer *w) {
    dt_reader *s = w->c->reader;
    const dt_catalog *c = s->catalog;
    const dt_record *rec = &c->records[w->item->record];
    dt_span bytes;
    w->json_of_set.n_bytes = 0;
    for (uint32_t m = rec->first_member; m < rec->first_member + rec->n_members; m++) {
        const char *ext = dt_catalog_str(c, c->exts[c->members[m].ext]);
        bool is_json = strcmp(ext, "json") == 0;
        if (w->c->raw->n_classes && strcmp(ext, "cls") == 0) continue; // made anew
        dt_buffer *to = is_json ? &w->json_of_set : &w->member[w->in.n_members];
        if (!is_json && w->in.n_members == DT_TRANSFORM_MAX_MEMBERS)
            return dt_fail(DT_E_DATA, "more than %d members", DT_TRANSFORM_MAX_MEMBERS);
        bytes = (dt_span){(const uint8_t *)"", 0}; // an empty member needs no read
        if (c->members[m].size > 0) DT_TRY(dt_reader_read(s, w->item->record, m, true, to, &bytes));
        to->n_bytes = bytes.n_bytes;
        // kept apart from the members: dt_reader_read may have lent a mapping
        if (is_json && bytes.n_bytes > 0) memmove(to->data, bytes.data, bytes.n_bytes);
        if (!is_json) w->in.member[w->in.n_members++] = (dt_transform_member){ext, bytes, bytes.n_bytes};
    }
    return DT_OK;
}

// A record of several raw files: one member each.
static dt_status compose_read_parts(dt_composer *w) {
    for (uint32_t k = 0; k < w->item->n_parts; k++) {
        const dt_raw_item *part = &w->item->parts[k];
        dt_buffer *to = &w->member[k];
        if (!dt_buffer_reserve(to, (size_t)part->size + 1))
            return dt_fail(DT_E_INTERNAL, "%s: no memory for its bytes", part->name);
        DT_TRY(dt_raw_read(w->c->raw, part, 0, to->data, (size_t)part->size));
        w->in.member[w->in.n_members++] = (dt_transform_member){part->ext, {to->data, (size_t)part->size}, part->size};
    }
    return DT_OK;
}

// Reads a raw file straight to its place in the chunk; of a very large file only the head.
static dt_status read_raw_item(dt_composer *w) {
    size_t n = (size_t)w->item->size;
    if (w->is_large && n > HEAD_BYTES) n = HEAD_BYTES;
    uint8_t *p = compose_take(w, n + 1); // + 1: never an allocation of 0 bytes
    if (!p) return DT_E_INTERNAL;
    DT_TRY(dt_raw_read(w->c->raw, w->item, 0, p, n));
    w->own = p; // keep_member sees by the address that the bytes are in place
    w->in.n_members = 1;
    w->in.member[0] = (dt_transform_member){w->item->ext, {p, n}, w->item->size};
    return DT_OK;
}

// The hash of a raw file. For a record of several files or of a dataset: a hash over the members' extensions and
// hashes.
static uint64_t hash_members(const dt_transform_record *in, bool is_set) {
    if (!is_set) return dt_hash64(in->member[0].bytes.data, in->member[0].bytes.n_bytes);
    uint64_t sum = 0;
    for (int i = 0; i < in->n_members; i++) {
        const dt_transform_member *m = &in->member[i];
        uint64_t parts[2] = {dt_hash64(m->ext, strlen(m->ext)), dt_hash64(m->bytes.data, m->bytes.n_bytes)};
        sum += dt_hash64(parts, sizeof parts); // members have no order in a record
    }
    return sum;
}

// Whether a record of a set has more than its class and its metadata.
static bool has_data(const dt_transform_record *in) {
    int i = 0;
    while (i < in->n_members && dt_word_index("cls|cls2|index", in->member[i].ext) >= 0) i++;
    return i < in->n_members;
}

// A file whose name promises a sample and whose first bytes are of a kind that is not read: training would fail on it.
static dt_status compose_check_kind(const dt_transform_member *m) {
    const dt_kind *named = dt_kind_of_name(m->ext), *k;
    if (!named || !named->uses) return DT_OK;
    k = dt_kind_of_bytes(m->bytes.data, m->bytes.n_bytes);
    if (!k || k->uses) return DT_OK;
    return dt_fail(DT_E_DATA, "begins like kind %s, not like %s: %s", k->name, named->name, k->tool);
}

static dt_status compose_read_item(dt_composer *w, size_t i, bool is_large) {
    bool is_set = w->c->raw->kind == DT_RAW_SET;
    w->item = &w->c->raw->items[i];
    w->in.n_members = 0;
    w->own = NULL;
    w->is_large = is_large;
    const double begin_s = dt_clock_s();
    DT_TRY(is_set ? read_set_item(w) : w->item->n_parts ? compose_read_parts(w) : read_raw_item(w));
    w->read_s += dt_clock_s() - begin_s;
    // a dataset's members were checked when they were packed
    for (int m = 0; m < w->in.n_members && !is_set; m++) DT_TRY(compose_check_kind(&w->in.member[m]));
    w->source_hash = is_large ? 0 : hash_members(&w->in, is_set || w->item->n_parts > 0); // hashed while it is copied
    if (is_set && !is_large && !has_data(&w->in)) // a table's row: its numbers are what it holds
        w->source_hash += dt_hash64(w->json_of_set.data, w->json_of_set.n_bytes);
    return DT_OK;
}

// Puts the file in front of messages that do not name it, and the way on behind those of an unfit file that ends the pack.
static dt_status name_item(const dt_composer *w, dt_status st) {
    char *path = dt_raw_path(w->c->raw, w->item);
    if (!strstr(dt_error_message(), w->item->name)) dt_fail_context(st, "%s", path);
    free(path);
    if (st != DT_E_DATA || w->c->skip_bad) return st;
    char *text = dt_xstrdup(dt_error_message());
    dt_fail(st, "%s; --on-error skip leaves such files out", text);
    free(text);
    return st;
}

dt_status dt_compose_chunk(dt_composer *w, size_t index, dt_chunk *out) {
    const dt_plan_chunk *p = &w->c->plan->chunks[index];
    w->out = out;
    dt_chunk_fini(out); // frees the records of the chunk that was in the slot before
    out->last = &out->first;
    for (size_t i = p->first; i < p->first + p->n; i++) {
        if (w->c->drop && w->c->drop[i]) continue;
        // where the item's records begin
        dt_chunk_record **last = out->last;
        dt_status st = compose_read_item(w, i, p->is_large);
        if (st == DT_OK) st = dt_transform_apply(w->c->transform, w->scratch, &w->in, compose_emit, w);
        if (st == DT_OK) continue;
        name_item(w, st);
        if (st != DT_E_DATA || !w->c->skip_bad) return st;
        // its records go from the list; their memory goes with the chunk
        dt_warn("%s: left out", dt_error_message());
        *last = NULL;
        out->last = last;
    }
    return DT_OK;
}

dt_status dt_compose_hash(dt_composer *w, size_t item, uint64_t *out) {
    // one item without a chunk: a scratch chunk for its bytes
    dt_chunk scratch = {0};
    w->out = &scratch;
    dt_status st = compose_read_item(w, item, false);
    if (st != DT_OK) name_item(w, st);
    *out = w->source_hash;
    dt_chunk_fini(&scratch);
    return st;
}
