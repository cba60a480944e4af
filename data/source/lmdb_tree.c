// lmdb_tree.c: a reader of LMDB's B+tree that a damaged file cannot crash.
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
#include "lmdb_tree.h"

#include "base/arena.h"
#include "base/endian.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    if (w->n_left-- == 0) return lmdb_tree_damaged(w, number, "the tree has a cycle");
    DT_TRY(dt_blob_read(w->blob, number * w->page_bytes, p, w->page_bytes));
    if (dt_le64(p) != number) return lmdb_tree_damaged(w, number, "a page that is not where it says");
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
    uint64_t stored = flags & F_BIGDATA ? 8 : size, offset = 0;
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
    if (lower < PAGE_HEADER || lower > w->page_bytes || !(flags & (P_BRANCH | P_LEAF)))
        return lmdb_tree_damaged(w, number, "neither a branch nor a leaf");
    for (uint32_t i = 0; i < (lower - PAGE_HEADER) / 2u; i++) {
        uint32_t at = dt_le16(p + PAGE_HEADER + 2 * i);
        if (at < lower || at + NODE_HEADER > w->page_bytes)
            return lmdb_tree_damaged(w, number, "an entry that leaves its page");
        if (flags & P_LEAF) {
            DT_TRY(visit_leaf(w, number, p, at));
        } else {
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
    bool ok1 = read_meta(b, ok0 ? m[0].page_bytes : 4096, &m[1]);
    if (!ok0 && !ok1) return dt_fail(DT_E_DATA, "%s: not an LMDB file (or cut before its second page)", b->path);
    const meta *newest = !ok1 || (ok0 && m[0].txn > m[1].txn) ? &m[0] : &m[1];
    if (newest->last_page >= b->n_bytes / newest->page_bytes)
        return dt_fail(DT_E_DATA, "%s: cut: it has %llu bytes and its header says %llu; copy it again", b->path,
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
