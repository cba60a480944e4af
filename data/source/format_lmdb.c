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
// The tree is walked once, and its entries are gathered, 24 bytes and the key each. Values are
// read only where the layout needs them.

#include "source.h"
#include "source_parts.h"

#include "base/bits.h"
#include "base/core.h"
#include "base/text.h"
#include "data/file/datum.h"
#include "data/file/file.h"

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
    // behind the page header of 16 bytes
    return (n_bytes >= 24 && memcmp(head + 16, magic, 4) == 0) || dt_text_ends(path, ".lmdb|.mdb");
}

static dt_status lmdb_gather(void *arg, const char *key, size_t n_key, uint64_t offset, uint64_t size) {
    entries *l = arg;
    if (l->keys.n_bytes > UINT32_MAX - 2 * MAX_KEY) // offsets of keys have 32 bits
        return dt_fail(DT_E_DATA, "%s: more than 4 GiB of keys", l->s->blob->path);
    bool text = n_key > 0;
    // bytes above 127 are UTF-8
    for (size_t i = 0; i < n_key && text; i++) text = !iscntrl((unsigned char)key[i]) || (unsigned char)key[i] > 127;
    l->n_odd += !text;
    l->has_nul = l->has_nul || memchr(key, '\0', n_key);
    l->e = dt_xgrow(l->e, l->n, sizeof *l->e);
    l->e[l->n++] = (entry){offset, size, (uint32_t)l->keys.n_bytes, (uint32_t)n_key};
    dt_buffer_append(&l->keys, key, n_key);
    dt_buffer_append(&l->keys, "", 1); // NUL: keys are compared as texts, too
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
    // whether all of the value parses, not its first bytes
    bool yes = dt_datum_read(l->s->blob, e->offset, e->size, &d) == DT_OK;
    dt_error_clear();
    return yes;
}

static bool lmdb_numbered(const char *key, const char *name) {
    size_t n = strlen(name);
    // %09d in the programs that write it; five digits at least
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
        if (c < 0 || (c == 0 && e->n_key < n_key)) // a prefix comes first, as in LMDB's own order
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
        // members of a record lie side by side: keys are sorted
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
    if (e->size > MAX_TEXT_BYTES) return DT_OK; // no label
    DT_TRY(dt_blob_read(l->s->blob, e->offset, text, (size_t)e->size));
    text[e->size] = '\0';
    return strlen(text) == e->size ? dt_catalog_set(l->s->c, column, text) : DT_OK; // a NUL: binary
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
    // evidence, not proof: 64 values are read quickly over a network
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
    // two, as one value may parse by chance
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

// ---- lmdb tree ----------------------------------------------------------------------------------------------------

// A reader of LMDB's B+tree that a damaged file cannot crash.
//
// liblmdb maps the file and follows its page numbers unchecked: a cut file is a SIGBUS, and a changed byte is
// wrong data or a crash. Training reads a finished dataset. It needs neither transactions nor locks, but the
// offset of each value. So this file walks the tree itself: the newer of the two meta pages has the root,
// branch pages have children, and leaf nodes have keys and values; large values lie on overflow pages. Every
// page number, node offset and length is checked. Depth and the number of pages are bounded, so a cycle ends.
//
// A file whose main database holds only one named database is read as that one. Several are an error that
// lists them. Duplicate values (dupsort) are not read, as datasets of records do not use them.
// Format: lmdb.h and mdb.c of LMDB 0.9 (data version 1), 64-bit little-endian.

enum {
    MAGIC = (int)0xBEEFC0DE,
    PAGE_HEADER = 16,
    NODE_HEADER = 8,
    LMDB_TREE_MAX_KEY = 511,
    MAX_DEPTH = 32,
    P_BRANCH = 0x01,
    P_LEAF = 0x02,
    P_OVERFLOW = 0x04,
    P_META = 0x08,
    F_BIGDATA = 0x01,
    F_SUBDATA = 0x02,
    F_DUPDATA = 0x04,
    DB_BYTES = 48, // what a named database's entry holds
    DB_ROOT = 40
};

typedef struct walk {
    const dt_blob *blob;
    uint64_t page_bytes, n_pages, n_left; // pages that may still be visited
    dt_lmdb_visit visit;
    void *arg;
    uint8_t *pages; // one a level
    uint64_t n_entries;
    uint32_t n_named; // databases; their names, and the root of the last
    uint64_t named_root;
    char names[256];
} walk;

static dt_status lmdb_tree_damaged(const walk *w, uint64_t page, const char *what) {
    return dt_fail(DT_E_DATA, "%s: page %llu: %s; the file is damaged, copy or pack it again", w->blob->path,
                   (unsigned long long)page, what);
}

static dt_status lmdb_tree_read_page(walk *w, uint64_t number, int level, const uint8_t **out) {
    uint8_t *p = w->pages + (size_t)level * w->page_bytes;
    if (number >= w->n_pages) return lmdb_tree_damaged(w, number, "a page number beyond the end of the file");
    // no tree has more pages than the file: bounded, and so is a cycle
    if (w->n_left-- == 0) return lmdb_tree_damaged(w, number, "the tree has a cycle");
    DT_TRY(dt_blob_read(w->blob, number * w->page_bytes, p, w->page_bytes));
    // every page states its own number
    if (dt_le64(p) != number) return lmdb_tree_damaged(w, number, "a page with another page's number");
    *out = p;
    return DT_OK;
}

// Where an overflow value lies. Its first page has the number of pages.
static dt_status overflow_value(walk *w, uint64_t number, uint64_t size, uint64_t *offset) {
    uint8_t head[PAGE_HEADER];
    if (number >= w->n_pages || size > w->blob->n_bytes)
        return lmdb_tree_damaged(w, number, "a value beyond the end of the file");
    DT_TRY(dt_blob_read(w->blob, number * w->page_bytes, head, sizeof head));
    uint32_t n = dt_le32(head + 12);
    // n pages: number, flags and count stand in the first one's header alone
    if (!(dt_le16(head + 10) & P_OVERFLOW) || n > w->n_pages - number || size + PAGE_HEADER > n * w->page_bytes)
        return lmdb_tree_damaged(w, number, "overflow pages that do not hold their value");
    *offset = number * w->page_bytes + PAGE_HEADER;
    return DT_OK;
}

static dt_status note_named(walk *w, uint64_t number, const char *name, const uint8_t *db, uint64_t size) {
    size_t at = strlen(w->names);
    if (size != DB_BYTES) return lmdb_tree_damaged(w, number, "a named database that is none");
    snprintf(w->names + at, sizeof w->names - at, "%s%s", w->n_named ? ", " : "", name);
    w->named_root = dt_le64(db + DB_ROOT);
    w->n_named++;
    return DT_OK;
}

static dt_status visit_leaf(walk *w, uint64_t number, const uint8_t *page, uint32_t at) {
    const uint8_t *node = page + at;
    uint16_t flags = dt_le16(node + 4), n_key = dt_le16(node + 6);
    uint64_t size = dt_le32(node);
    uint64_t stored = flags & F_BIGDATA ? 8 : size, offset = 0; // of a large value the leaf has the page number
    char key[LMDB_TREE_MAX_KEY + 1];
    if (flags & F_DUPDATA)
        return dt_fail(DT_E_DATA, "%s: has several values a key (dupsort), which are not read", w->blob->path);
    if (n_key > LMDB_TREE_MAX_KEY || at + NODE_HEADER + n_key + stored > w->page_bytes)
        return lmdb_tree_damaged(w, number, "an entry that leaves its page");
    memcpy(key, node + NODE_HEADER, n_key);
    key[n_key] = '\0';
    if (flags & F_SUBDATA) return note_named(w, number, key, node + NODE_HEADER + n_key, stored);
    w->n_entries++;
    if (flags & F_BIGDATA)
        DT_TRY(overflow_value(w, dt_le64(node + NODE_HEADER + n_key), size, &offset));
    else
        offset = number * w->page_bytes + at + NODE_HEADER + n_key;
    return w->visit(w->arg, key, n_key, offset, size);
}

static dt_status walk_page(walk *w, uint64_t number, int level) {
    const uint8_t *p = NULL;
    if (level == MAX_DEPTH) return lmdb_tree_damaged(w, number, "the tree is too deep");
    DT_TRY(lmdb_tree_read_page(w, number, level, &p));
    uint16_t flags = dt_le16(p + 10), lower = dt_le16(p + 12);
    // lower: where the list of nodes ends
    if (lower < PAGE_HEADER || lower > w->page_bytes || !(flags & (P_BRANCH | P_LEAF)))
        return lmdb_tree_damaged(w, number, "neither a branch nor a leaf");
    for (uint32_t i = 0; i < (lower - PAGE_HEADER) / 2u; i++) {
        uint32_t at = dt_le16(p + PAGE_HEADER + 2 * i);
        if (at < lower || at + NODE_HEADER > w->page_bytes) // nodes lie behind the list
            return lmdb_tree_damaged(w, number, "an entry that leaves its page");
        if (flags & P_LEAF) {
            DT_TRY(visit_leaf(w, number, p, at));
        } else {
            // 48 bits: low 32, then the field that flags have in a leaf
            uint64_t child = dt_le32(p + at) | (uint64_t)dt_le16(p + at + 4) << 32;
            DT_TRY(walk_page(w, child, level + 1));
        }
    }
    return DT_OK;
}

// The one named database that stands for the file.
static dt_status walk_named(walk *w) {
    if (w->n_named > 1 || w->n_entries > 0)
        return dt_fail(DT_E_DATA, "%s: has named databases (%s)%s: copy the one you mean into a file of its own",
                       w->blob->path, w->names, w->n_entries ? " beside other entries" : "");
    if (w->named_root == UINT64_MAX) return DT_OK; // empty
    w->n_named = 0;
    DT_TRY(walk_page(w, w->named_root, 0));
    return w->n_named == 0 ? DT_OK : lmdb_tree_damaged(w, w->named_root, "databases within a database");
}

typedef struct meta {
    uint64_t page_bytes, root, last_page, txn;
    uint16_t db_flags;
} meta;

static bool read_meta(const dt_blob *b, uint64_t at, meta *m) {
    uint8_t p[152];
    if (at > b->n_bytes || b->n_bytes - at < sizeof p || dt_blob_read(b, at, p, sizeof p) != DT_OK) return false;
    uint32_t page_bytes = dt_le32(p + 40); // of the free list's record
    if ((int)dt_le32(p + 16) != MAGIC || dt_le32(p + 20) != 1 || !(dt_le16(p + 10) & P_META)) return false;
    if (page_bytes < 256 || page_bytes > 65536 || (page_bytes & (page_bytes - 1))) return false;
    *m = (meta){.page_bytes = page_bytes,
                .db_flags = dt_le16(p + 88 + 4),
                .root = dt_le64(p + 88 + 40),
                .last_page = dt_le64(p + 136),
                .txn = dt_le64(p + 144)};
    return true;
}

dt_status dt_lmdb_walk(const dt_blob *b, dt_lmdb_visit visit, void *arg) {
    meta m[2];
    bool ok0 = read_meta(b, 0, &m[0]);
    bool ok1 = read_meta(b, ok0 ? m[0].page_bytes : 4096, &m[1]); // where the first is broken, the usual page size
    if (!ok0 && !ok1) return dt_fail(DT_E_DATA, "%s: not an LMDB file (or cut before its second page)", b->path);
    // a transaction writes the older one: after a power cut the other is whole
    const meta *newest = !ok1 || (ok0 && m[0].txn > m[1].txn) ? &m[0] : &m[1];
    if (newest->last_page >= b->n_bytes / newest->page_bytes)
        return dt_fail(DT_E_DATA, "%s: truncated: it has %llu bytes and its header states %llu; copy it again", b->path,
                       (unsigned long long)b->n_bytes,
                       (unsigned long long)((newest->last_page + 1) * newest->page_bytes));
    if (newest->root == UINT64_MAX) return DT_OK; // empty
    walk w = {.blob = b, .page_bytes = newest->page_bytes, .visit = visit, .arg = arg};
    w.n_pages = newest->last_page + 1;
    w.n_left = w.n_pages;
    w.pages = dt_xcalloc(MAX_DEPTH, w.page_bytes);
    dt_status st = walk_page(&w, newest->root, 0);
    if (st == DT_OK && w.n_named > 0) st = walk_named(&w);
    free(w.pages);
    return st;
}
