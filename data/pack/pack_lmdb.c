// pack_lmdb.c: writes LMDB files.
//
// The library puts entries into a tree one by one: each is copied into a page in memory, and each page
// written when a transaction ends, by calls that nobody else can check or make fail. Ours are sorted and
// known, so the tree is laid out from the bottom up in one pass, as a bulk loader does it:
//
//   page 0, 1   the two meta pages; both describe the finished tree
//   chunks      leaf pages, each followed by the overflow pages of the large values in it
//   branches    one level after the other, the root last
//
// A leaf takes entries until the next does not fit; a chunk ends its leaf, so chunks are independent of
// each other, are built by any thread or rank, and read straight into place: only their page numbers
// have to be moved once it is known how many pages lie before them. Page size is 4096 whatever the
// machine's. Keys are ordered by bytes, as the library compares them.
//
// Not taken: mdb_put with MDB_APPEND (one thread, two copies, and a file that depends on the version of
// the library). The library, its tools and Python's lmdb read the files; tests see to it.
//
// Format: LMDB 0.9 (data version 1), lmdb.h and mdb.c; also lmdb_tree.c, which reads it.
#include "pack_format.h"

#include "base/arena.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    PAGE = DT_PACK_PAGE,
    PAGE_HEADER = 16,
    NODE_HEADER = 8,
    MAX_KEY = 511,
    // what fits twice into a page stays in its leaf (mdb.c: me_nodemax)
    NODE_MAX = (((PAGE - PAGE_HEADER) / 2) & -2) - 2,
    HEAD_PAGES = 2,
    P_BRANCH = 0x01,
    P_LEAF = 0x02,
    P_OVERFLOW = 0x04,
    P_META = 0x08,
    F_BIGDATA = 0x01
};

static uint16_t u16_at(const uint8_t *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}
static void put_u16(uint8_t *p, uint32_t v) {
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}
static uint32_t u32_at(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}
static void put_u32(uint8_t *p, uint32_t v) {
    memcpy(p, &v, 4);
}
static uint64_t u64_at(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}
static void put_u64(uint8_t *p, uint64_t v) {
    memcpy(p, &v, 8);
}

static bool lmdb_accepts(const char *out) {
    size_t n = strlen(out);
    return n > 5 && strcmp(out + n - 5, ".lmdb") == 0;
}

static uint64_t lmdb_estimate(uint64_t member_bytes, bool has_cls) {
    return (member_bytes + PAGE_HEADER + PAGE - 1) / PAGE * PAGE + 256;
}

static size_t lmdb_most(size_t n_name, uint64_t in_memory) {
    return (size_t)in_memory + 3 * PAGE;
}

static size_t even(size_t n) {
    return (n + 1) & ~(size_t)1;
}

// ---- chunks -------------------------------------------------------------------------------------------
// Marks: for each leaf its page (from the chunk's beginning, later of the file), the length of its first
// key, the key.
static void open_leaf(dt_chunk *c, const char *name, size_t n_name) {
    uint64_t number = dt_chunk_end(c) / PAGE;
    uint8_t n[2], at[8];
    c->leaf = c->n_bytes;
    c->has_leaf = true;
    uint8_t *p = dt_chunk_extend(c, PAGE, true);
    put_u64(p, number);
    put_u16(p + 10, P_LEAF);
    put_u16(p + 12, PAGE_HEADER);
    put_u16(p + 14, PAGE);
    put_u64(at, number);
    put_u16(n, (uint32_t)n_name);
    dt_buffer_append(&c->marks, at, sizeof at);
    dt_buffer_append(&c->marks, n, sizeof n);
    dt_buffer_append(&c->marks, name, n_name);
}

// The node's place in the open leaf.
static uint8_t *new_node(dt_chunk *c, const char *name, size_t n_name, uint64_t size, bool big) {
    size_t n_node = even(NODE_HEADER + n_name + (big ? 8 : (size_t)size));
    uint8_t *p = c->has_leaf ? dt_chunk_data(c, c->leaf) : NULL;
    if (!p || (size_t)(u16_at(p + 14) - u16_at(p + 12)) < n_node + 2) {
        open_leaf(c, name, n_name);
        p = dt_chunk_data(c, c->leaf);
    }
    uint32_t lower = u16_at(p + 12), upper = u16_at(p + 14) - (uint32_t)n_node;
    put_u16(p + lower, upper);
    put_u16(p + 12, lower + 2);
    put_u16(p + 14, upper);
    uint8_t *node = p + upper;
    put_u32(node, (uint32_t)size);
    put_u16(node + 4, big ? F_BIGDATA : 0);
    put_u16(node + 6, (uint32_t)n_name);
    memcpy(node + NODE_HEADER, name, n_name);
    return node + NODE_HEADER + n_name;
}

static dt_status lmdb_add(dt_chunk *c, const char *name, size_t n_name, uint64_t size,
                          bool in_memory, uint64_t *offset, uint8_t **place) {
    if (n_name > MAX_KEY)
        return dt_fail(
            DT_E_DATA,
            "%.60s…: a name of %zu bytes; LMDB holds keys of %d: shorten it or pack to .tar", name,
            n_name, MAX_KEY);
    if (size > UINT32_MAX)
        return dt_fail(DT_E_DATA, "%s: LMDB holds no values of 4 GiB or more: pack to .tar", name);
    if (NODE_HEADER + n_name + size <= NODE_MAX) {
        uint8_t *value = new_node(c, name, n_name, size, false);
        *offset = dt_chunk_end(c) - (uint64_t)(dt_chunk_data(c, c->n_bytes) - value);
        if (c->has_gap && value < dt_chunk_data(c, c->gap_at)) *offset -= c->gap_bytes;
        *place = value;
        return DT_OK;
    }
    uint8_t *node = new_node(c, name, n_name, size, true);
    uint64_t number = dt_chunk_end(c) / PAGE, n_pages = (PAGE_HEADER - 1 + size) / PAGE + 1;
    put_u64(node, number);
    uint8_t *head = dt_chunk_extend(c, PAGE_HEADER, true);
    put_u64(head, number);
    put_u16(head + 10, P_OVERFLOW);
    put_u32(head + 12, (uint32_t)n_pages);
    *offset = dt_chunk_end(c);
    if (in_memory) {
        *place = dt_chunk_extend(c, (size_t)size, false);
    } else {
        *place = NULL;
        c->has_gap = true;
        c->gap_at = c->n_bytes;
        c->gap_bytes = size;
    }
    dt_chunk_extend(c, (size_t)(n_pages * PAGE - PAGE_HEADER - size), true);
    return DT_OK;
}

// Moves a page's own number and those it names; the pages of an overflow run behind its first are data.
static uint64_t move_page(uint8_t *p, uint64_t delta_pages) {
    put_u64(p, u64_at(p) + delta_pages);
    if (u16_at(p + 10) & P_OVERFLOW) return u32_at(p + 12);
    for (uint32_t at = PAGE_HEADER; at < u16_at(p + 12); at += 2) {
        uint8_t *node = p + u16_at(p + at), *number = node + NODE_HEADER + u16_at(node + 6);
        if (u16_at(node + 4) & F_BIGDATA) put_u64(number, u64_at(number) + delta_pages);
    }
    return 1;
}

static void lmdb_move_marks(uint8_t *marks, size_t n_bytes, uint64_t delta) {
    for (size_t at = 0; at < n_bytes; at += 10 + (size_t)u16_at(marks + at + 8))
        put_u64(marks + at, u64_at(marks + at) + delta / PAGE);
}

static void lmdb_relocate(dt_chunk *c) {
    assert(c->base % PAGE == 0);
    for (size_t at = 0; at < c->n_bytes;) {
        size_t n = (size_t)move_page(dt_chunk_data(c, at), c->base / PAGE) * PAGE;
        bool over_gap = c->has_gap && at < c->gap_at && at + n > c->gap_at;
        at += over_gap ? n - (size_t)c->gap_bytes : n;
    }
    lmdb_move_marks(c->marks.data, c->marks.n_bytes, c->base);
}

static void lmdb_move(uint8_t *data, size_t n_bytes, uint64_t delta, uint64_t *state) {
    for (size_t at = 0; at < n_bytes; at += PAGE) {
        if (*state == 0) *state = move_page(data + at, delta / PAGE);
        (*state)--;
    }
}

// ---- branches and meta pages --------------------------------------------------------------------------
// An entry of a branch: a page, and the first key in or below it.
typedef struct entry {
    uint64_t page;
    const uint8_t *key; // borrowed from the marks
    uint32_t n_key;
} entry;

typedef struct level {
    entry *e;
    size_t n;
} level;

static level leaves_of(const dt_pack_file *f) {
    level l = {0};
    size_t cap = 0;
    for (size_t at = 0; at < f->n_marks;) {
        if (l.n == cap) l.e = dt_xrealloc(l.e, (cap = 2 * cap + 64) * sizeof *l.e);
        const uint8_t *m = f->marks + at;
        l.e[l.n++] = (entry){u64_at(m), m + 10, u16_at(m + 8)};
        at += 10 + (size_t)u16_at(m + 8);
    }
    return l;
}

// How many entries from `from` on fit a page; never so that one would be left over for the next.
static size_t fit(const level *l, size_t from) {
    size_t room = PAGE - PAGE_HEADER, n = 0;
    while (from + n < l->n) {
        size_t need = even(NODE_HEADER + (n ? l->e[from + n].n_key : 0)) + 2;
        if (need > room) break;
        room -= need;
        n++;
    }
    return from + n + 1 == l->n ? n - 1 : n;
}

static void fill_branch(uint8_t *p, uint64_t number, const entry *e, size_t n) {
    uint32_t upper = PAGE;
    memset(p, 0, PAGE);
    put_u64(p, number);
    put_u16(p + 10, P_BRANCH);
    put_u16(p + 12, PAGE_HEADER + 2 * (uint32_t)n);
    for (size_t i = 0; i < n; i++) {
        uint32_t n_key = i ? e[i].n_key : 0; // the first stands for everything before the second
        upper -= (uint32_t)even(NODE_HEADER + n_key);
        uint8_t *node = p + upper;
        put_u16(p + PAGE_HEADER + 2 * i, upper);
        put_u32(node, (uint32_t)e[i].page);
        put_u16(node + 4, (uint32_t)(e[i].page >> 32));
        put_u16(node + 6, n_key);
        memcpy(node + NODE_HEADER, e[i].key, n_key);
    }
    put_u16(p + 14, upper);
}

// Writes the level above `l` and makes it the level.
static dt_status write_level(level *l, dt_pack_put put, void *arg, uint64_t *next_page) {
    uint8_t page[PAGE];
    level up = {dt_xcalloc(l->n / 2 + 1, sizeof *up.e), 0};
    dt_status st = DT_OK;
    for (size_t i = 0, n; i < l->n && st == DT_OK; i += n) {
        n = fit(l, i);
        assert(n >= 2);
        fill_branch(page, *next_page, l->e + i, n);
        st = put(arg, page, sizeof page, *next_page * PAGE);
        up.e[up.n++] = (entry){(*next_page)++, l->e[i].key, l->e[i].n_key};
    }
    free(l->e);
    *l = up;
    return st;
}

typedef struct tree {
    uint64_t root, n_pages, n_branches, n_leaves, n_overflow, n_entries;
    uint32_t depth;
} tree;

// MDB_db of the free list (empty, its page size in the pad) and of the tree, last page, transaction.
static void fill_meta(uint8_t *p, uint64_t number, const tree *t) {
    memset(p, 0, PAGE);
    put_u64(p, number);
    put_u16(p + 10, P_META);
    put_u32(p + 16, 0xBEEFC0DE);
    put_u32(p + 20, 1);
    put_u64(p + 32, t->n_pages * PAGE); // map size
    put_u32(p + 40, PAGE);
    put_u16(p + 44, 0x08); // MDB_INTEGERKEY
    put_u64(p + 80, UINT64_MAX);
    put_u16(p + 94, t->depth);
    put_u64(p + 96, t->n_branches);
    put_u64(p + 104, t->n_leaves);
    put_u64(p + 112, t->n_overflow);
    put_u64(p + 120, t->n_entries);
    put_u64(p + 128, t->root);
    put_u64(p + 136, t->n_pages - 1);
    put_u64(p + 144, number); // transaction 1 is in page 1
}

static dt_status lmdb_finish(const dt_pack_file *f, dt_pack_put put, void *arg, uint64_t *n_bytes) {
    uint8_t meta[HEAD_PAGES * PAGE];
    level l = leaves_of(f);
    tree t = {.n_leaves = l.n, .n_entries = f->n_members, .depth = l.n ? 1 : 0};
    uint64_t next = f->n_bytes / PAGE;
    t.n_overflow = next - HEAD_PAGES - l.n;
    dt_status st = DT_OK;
    while (l.n > 1 && st == DT_OK) {
        st = write_level(&l, put, arg, &next);
        t.depth++;
    }
    t.root = l.n ? l.e[0].page : UINT64_MAX;
    t.n_branches = next - f->n_bytes / PAGE;
    t.n_pages = next;
    free(l.e);
    DT_TRY(st);
    for (uint64_t i = 0; i < HEAD_PAGES; i++) fill_meta(meta + i * PAGE, i, &t);
    *n_bytes = next * PAGE;
    return put(arg, meta, sizeof meta, 0);
}

const dt_pack_format dt_pack_lmdb = {.name = "lmdb",
                                     .one_file = true,
                                     .head_bytes = HEAD_PAGES * PAGE,
                                     .accepts = lmdb_accepts,
                                     .estimate = lmdb_estimate,
                                     .most = lmdb_most,
                                     .add = lmdb_add,
                                     .relocate = lmdb_relocate,
                                     .finish = lmdb_finish,
                                     .move = lmdb_move,
                                     .move_marks = lmdb_move_marks};
