// format_lmdb.c: records in an LMDB.
//
// An LMDB does not say what its entries mean. The keys and the first value do:
//   keys "<record>.<extension>"            ours: members of a record lie together, `json` is metadata
//   keys image-%09d, label-%09d            OCR sets: each number a record, texts are columns
//   values that are Datum messages         Caffe: the key is the record, `label` a column; an encoded
//                                          image is a member inside the message, raw pixels are the
//                                          message itself (member .datum, which the decoder knows)
//   anything else                          LSUN, BasicSR: the key is the record, the value one file,
//                                          its extension found by its first bytes
// Most keys decide the layout: a single odd one (a file name with a line break in it) must not change what the
// others mean. Keys that are binary numbers become hexadecimal text, where the key is the whole name of the
// record. LMDBs of pickles (folder2lmdb) are refused: reading a pickle runs the code in it.
//
// The tree is walked once (lmdb_tree.c), and its entries are gathered, 24 bytes and the key each. Values are
// read only where the layout needs them.
#include "data/file/datum.h"
#include "data/file/kinds.h"
#include "lmdb_tree.h"
#include "source.h"

#include "base/arena.h"
#include "base/text.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TEXT_BYTES = 4096, MAX_KEY = 511 };

typedef struct entry {
    uint64_t offset, size;
    uint32_t key, n_key; // in `keys`, NUL-terminated there
} entry;

typedef struct entries {
    dt_scan *s;
    uint32_t shard;
    entry *e;
    size_t n;
    dt_buffer keys;
    size_t n_odd; // keys with control characters
    bool has_nul; // some key has a NUL, which no text has
} entries;

static const char *lmdb_key_of(const entries *l, const entry *e) {
    return (const char *)l->keys.data + e->key;
}

static bool format_lmdb_accepts(const char *path, const uint8_t *head, size_t n_bytes) {
    static const uint8_t magic[4] = {0xde, 0xc0, 0xef, 0xbe};
    return (n_bytes >= 24 && memcmp(head + 16, magic, 4) == 0) || dt_text_ends(path, ".lmdb|.mdb");
}

static dt_status lmdb_gather(void *arg, const char *key, size_t n_key, uint64_t offset, uint64_t size) {
    entries *l = arg;
    if (l->keys.n_bytes > UINT32_MAX - 2 * MAX_KEY)
        return dt_fail(DT_E_DATA, "%s: more than 4 GiB of keys", l->s->blob->path);
    bool text = n_key > 0;
    for (size_t i = 0; i < n_key && text; i++) text = !iscntrl((unsigned char)key[i]) || key[i] < 0;
    l->n_odd += !text;
    l->has_nul = l->has_nul || memchr(key, '\0', n_key);
    l->e = dt_xgrow(l->e, l->n, sizeof *l->e);
    l->e[l->n++] = (entry){offset, size, (uint32_t)l->keys.n_bytes, (uint32_t)n_key};
    dt_buffer_append(&l->keys, key, n_key);
    dt_buffer_append(&l->keys, "", 1);
    return DT_OK;
}

// ---- what a value is -------------------------------------------------------------------------------
static dt_status lmdb_sniff(const entries *l, uint64_t offset, uint64_t size, const char **ext) {
    uint8_t head[32] = {0};
    size_t n = size < sizeof head ? (size_t)size : sizeof head;
    DT_TRY(dt_blob_read(l->s->blob, offset, head, n));
    *ext = dt_image_extension(head, n);
    return DT_OK;
}

static bool is_datum(const entries *l, const entry *e) {
    dt_datum d;
    bool yes = dt_datum_read(l->s->blob, e->offset, e->size, &d) == DT_OK;
    dt_error_clear();
    return yes;
}

static bool lmdb_numbered(const char *key, const char *name) {
    size_t n = strlen(name);
    return strncmp(key, name, n) == 0 && key[n] == '-' && strspn(key + n + 1, "0123456789") >= 5 &&
           key[n + 1 + strspn(key + n + 1, "0123456789")] == '\0';
}

static const entry *lmdb_find(const entries *l, const char *key) { // keys are in order of bytes
    size_t low = 0, high = l->n, n_key = strlen(key);
    while (low < high) {
        size_t mid = (low + high) / 2;
        const entry *e = &l->e[mid];
        int c = memcmp(lmdb_key_of(l, e), key, e->n_key < n_key ? e->n_key : n_key);
        if (c == 0 && e->n_key == n_key) return e;
        if (c < 0 || (c == 0 && e->n_key < n_key))
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

// ---- layouts ---------------------------------------------------------------------------------------
static dt_status add_text_key(entries *l, const entry *e, size_t n_key) {
    char text[MAX_KEY + 1];
    snprintf(text, sizeof text, "%.*s", (int)n_key, lmdb_key_of(l, e));
    return dt_catalog_add_record(l->s->c, l->shard, text);
}

// The key is the whole name. If most keys are no text, all names are the keys' bytes in hexadecimal.
static dt_status add_whole_key(entries *l, const entry *e) {
    char text[2 * MAX_KEY + 3];
    const char *key = lmdb_key_of(l, e);
    size_t at = 0;
    if (!l->has_nul && 2 * l->n_odd <= l->n) return add_text_key(l, e, e->n_key);
    for (uint32_t i = 0; i < e->n_key; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%02x", (unsigned char)key[i]);
    text[at] = '\0';
    return dt_catalog_add_record(l->s->c, l->shard, text);
}

// "<record>.<extension>"; false for others, and for keys with a NUL.
static bool split_key(const entries *l, const entry *e, size_t *n_key, char *ext, size_t cap_ext) {
    const char *key = lmdb_key_of(l, e);
    return strlen(key) == e->n_key && dt_split_key(key, n_key, ext, cap_ext);
}

static dt_status add_named(entries *l) {
    const char *last = "";
    size_t n_last = SIZE_MAX;
    for (size_t i = 0; i < l->n; i++) {
        const entry *e = &l->e[i];
        const char *key = lmdb_key_of(l, e);
        char ext[64];
        size_t n_key;
        if (!split_key(l, e, &n_key, ext, sizeof ext)) continue;
        if (n_last != n_key || memcmp(last, key, n_key) != 0) DT_TRY(add_text_key(l, e, n_key));
        last = key;
        n_last = n_key;
        DT_TRY(dt_catalog_add_member(l->s->c, ext, e->offset, e->size, NULL));
        DT_TRY(dt_scan_member(l->s, ext, e->offset, e->size));
    }
    return DT_OK;
}

static dt_status add_opaque(entries *l) {
    for (size_t i = 0; i < l->n; i++) {
        const entry *e = &l->e[i];
        const char *ext = NULL;
        DT_TRY(lmdb_sniff(l, e->offset, e->size, &ext));
        DT_TRY(add_whole_key(l, e));
        DT_TRY(dt_catalog_add_member(l->s->c, ext ? ext : "bin", e->offset, e->size, NULL));
    }
    return DT_OK;
}

static dt_status add_datums(entries *l) {
    for (size_t i = 0; i < l->n; i++) {
        const entry *e = &l->e[i];
        const char *ext = NULL;
        dt_datum d;
        char label[24];
        DT_TRY(dt_datum_read(l->s->blob, e->offset, e->size, &d));
        DT_TRY(add_whole_key(l, e));
        if (d.encoded) DT_TRY(lmdb_sniff(l, d.data_at, d.n_data, &ext));
        if (d.encoded)
            DT_TRY(dt_catalog_add_member(l->s->c, ext ? ext : "bin", d.data_at, d.n_data, NULL));
        else
            DT_TRY(dt_catalog_add_member(l->s->c, "datum", e->offset, e->size, NULL));
        if (!d.has_label) continue;
        snprintf(label, sizeof label, "%lld", (long long)d.label);
        DT_TRY(dt_catalog_set(l->s->c, "label", label));
    }
    return DT_OK;
}

static dt_status lmdb_add_text(entries *l, const char *column, const entry *e) {
    char text[MAX_TEXT_BYTES + 1];
    if (e->size > MAX_TEXT_BYTES) return DT_OK;
    DT_TRY(dt_blob_read(l->s->blob, e->offset, text, (size_t)e->size));
    text[e->size] = '\0';
    return strlen(text) == e->size ? dt_catalog_set(l->s->c, column, text) : DT_OK;
}

// "image-000000001" and, by the same number, "label-000000001" and others ("path-", "lexicon-").
static dt_status add_numbered(entries *l) {
    static const char *const COLUMNS[] = {"label", "path", "lexicon"};
    for (size_t i = 0; i < l->n; i++) {
        const entry *e = &l->e[i];
        const char *key = lmdb_key_of(l, e), *ext = NULL;
        char other[MAX_KEY + 16];
        if (!lmdb_numbered(key, "image")) continue;
        DT_TRY(lmdb_sniff(l, e->offset, e->size, &ext));
        DT_TRY(add_text_key(l, e, e->n_key));
        DT_TRY(dt_catalog_add_member(l->s->c, ext ? ext : "bin", e->offset, e->size, NULL));
        for (size_t k = 0; k < sizeof COLUMNS / sizeof *COLUMNS; k++) {
            snprintf(other, sizeof other, "%s%s", COLUMNS[k], key + strlen("image"));
            const entry *text = lmdb_find(l, other);
            if (text) DT_TRY(lmdb_add_text(l, COLUMNS[k], text));
        }
    }
    return DT_OK;
}

// ---- which -----------------------------------------------------------------------------------------
// Whether the keys end in extensions, as ours do. Names with a dot in them (BasicSR) do not: there the values
// are of known kinds, and what follows the dots is not.
static bool has_extensions(const entries *l) {
    char ext[64];
    size_t n_key, n_named = 0, n_stems = 0, n_seen = l->n < 64 ? l->n : 64;
    for (size_t i = 0; i < n_seen; i++) {
        const char *found = NULL;
        if (!split_key(l, &l->e[i], &n_key, ext, sizeof ext)) continue;
        n_named++;
        if (lmdb_sniff(l, l->e[i].offset, l->e[i].size, &found) == DT_OK && found) n_stems += !dt_kind_of_name(ext);
    }
    return n_named > n_stems && 2 * n_named > n_seen;
}

static dt_status add_all(entries *l) {
    if (l->n == 0) return DT_OK;
    if (lmdb_find(l, "__keys__") || lmdb_find(l, "__len__"))
        return dt_fail(DT_E_DATA,
                       "%s: made by folder2lmdb: its values are pickles, which are not read; run "
                       "`dtrain pack` on the folder that it was made from",
                       l->s->blob->path);
    if (lmdb_find(l, "num-samples")) return add_numbered(l);
    if (is_datum(l, &l->e[0]) && is_datum(l, &l->e[l->n - 1])) return add_datums(l);
    return has_extensions(l) ? add_named(l) : add_opaque(l);
}

static dt_status lmdb_scan(dt_scan *s) {
    entries l = {.s = s, .shard = dt_catalog_add_shard(s->c, s->blob->path, s->blob->n_bytes)};
    dt_status st = dt_lmdb_walk(s->blob, lmdb_gather, &l);
    if (st == DT_OK) st = add_all(&l);
    free(l.e);
    dt_buffer_fini(&l.keys);
    return st;
}

const dt_file_format dt_format_lmdb = {"lmdb", format_lmdb_accepts, lmdb_scan};
