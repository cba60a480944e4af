// catalog_tree.c: the pages of sorted rows, from the bottom up.
//
// A catalog of 40,000 records has 200,000 rows. SQLite puts each into its tree by a statement that it
// interprets, which took three times as long as making the index. The rows are sorted and known,
// so the pages are laid out in one pass, as pack_lmdb.c does with its own: a leaf takes rows until the next
// does not fit; then it has its number and its parent an entry, and so on upwards. Pages are written in the
// order of their numbers, in blocks; the topmost of a tree goes to the page that the schema names.
//
// Format: "Database File Format" of SQLite (sqlite.org/fileformat2.html), which is fixed for good. What it
// asks for here: a page other than an empty table's leaf has a cell, so a page that is closed gives its last
// entry to its parent (a row, where rows are keys) rather than the one that did not fit, and the next begins
// with that; and the page at 1 GiB holds nothing. Each page ends in our checksum (catalog_vfs.c).
#include "catalog_tree.h"
#include "catalog_vfs.h"

#include "base/arena.h"
#include "base/io.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    TABLE_LEAF = 13,
    TABLE_BRANCH = 5,
    KEY_LEAF = 10,
    KEY_BRANCH = 2,
    LEAF_HEADER = 8,
    BRANCH_HEADER = 12,
    BLOCK_BYTES = 1 << 20,
    ALIGNED = 4096,
    PENDING_BYTE = 1 << 30
};

// Big-endian; eight bytes are written, n count.
static void put_wide(uint8_t *p, uint64_t v, int n) {
    uint8_t bytes[8];
    v <<= 8 * (8 - n);
    for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)(v >> (56 - 8 * i));
    memcpy(p, bytes, 8);
}

static void put_be(uint8_t *p, uint64_t v, int n) {
    for (int i = n; i-- > 0; v >>= 8) p[i] = (uint8_t)v;
}

static uint32_t get_be(const uint8_t *p, int n) {
    uint32_t v = 0;
    for (int i = 0; i < n; i++) v = v << 8 | p[i];
    return v;
}

// SQLite's varint: 7 bits a byte, the highest first; a ninth byte has 8.
static int put_varint(uint8_t *p, uint64_t v) {
    if (v < 0x80) {
        p[0] = (uint8_t)v;
        return 1;
    }
    if (v >> 56) {
        p[8] = (uint8_t)v;
        v >>= 8;
        for (int i = 7; i >= 0; i--, v >>= 7) p[i] = (uint8_t)(v | 0x80);
        return 9;
    }
    int n = 1;
    while (v >> (7 * n)) n++;
    for (int i = n - 1; i >= 0; i--, v >>= 7) p[i] = (uint8_t)((v & 0x7f) | 0x80);
    p[n - 1] &= 0x7f;
    return n;
}

static void append_varint(dt_buffer *b, uint64_t v) {
    uint8_t bytes[9];
    int n = put_varint(bytes, v);
    dt_buffer_append(b, bytes, (size_t)n);
}

// ---- rows ---------------------------------------------------------------------------------------------
void dt_tree_row_reset(dt_tree_row *r) {
    r->n_head = r->body.n_bytes = 0;
}

void dt_tree_row_fini(dt_tree_row *r) {
    dt_buffer_fini(&r->body);
}

static void put_type(dt_tree_row *r, uint64_t type) {
    assert(r->n_head + 9 <= sizeof r->head);
    r->n_head += (size_t)put_varint(r->head + r->n_head, type);
}

// n bytes of the body.
static uint8_t *extend(dt_buffer *b, size_t n) {
    if (b->n_bytes + n + 8 > b->cap_bytes && !dt_buffer_reserve(b, b->n_bytes + n + 8)) abort();
    b->n_bytes += n;
    return b->data + b->n_bytes - n;
}

void dt_tree_put_null(dt_tree_row *r) {
    put_type(r, 0);
}

void dt_tree_put_int(dt_tree_row *r, int64_t v) {
    static const int BYTES[] = {0, 1, 2, 3, 4, 6, 8}; // of types 1 to 6
    uint64_t size = (uint64_t)(v < 0 ? ~v : v);
    if (v == 0 || v == 1) { // types of their own
        put_type(r, 8 + (uint64_t)v);
        return;
    }
    int type = size < 0x80         ? 1
               : size < 0x8000     ? 2
               : size < 0x800000   ? 3
               : size < 0x80000000 ? 4
               : size < 1ull << 47 ? 5
                                   : 6;
    put_type(r, (uint64_t)type);
    put_wide(extend(&r->body, (size_t)BYTES[type]), (uint64_t)v, BYTES[type]);
}

void dt_tree_put_real(dt_tree_row *r, double v) {
    uint64_t bits;
    if (isnan(v)) {
        dt_tree_put_null(r);
    } else if (v > -0x1p63 && v < 0x1p63 && v == (double)(int64_t)v) {
        dt_tree_put_int(r, (int64_t)v);
    } else {
        memcpy(&bits, &v, sizeof bits);
        put_type(r, 7);
        put_wide(extend(&r->body, 8), bits, 8);
    }
}

void dt_tree_put_text(dt_tree_row *r, const char *text, size_t n_bytes, bool is_utf8) {
    put_type(r, 2 * (uint64_t)n_bytes + (is_utf8 ? 13 : 12));
    memcpy(extend(&r->body, n_bytes), text, n_bytes);
}

// ---- pages --------------------------------------------------------------------------------------------
static void flush(dt_tree_file *f) {
    uint64_t at = (uint64_t)(f->n_pages - f->n_block) * f->page_bytes;
    if (f->status == DT_OK && f->n_block > 0)
        f->status =
            dt_io_pwrite(f->fd, f->path, f->block, (size_t)f->n_block * f->page_bytes, (off_t)at);
    dt_io_begin_sync(f->fd, (off_t)at, (size_t)f->n_block * f->page_bytes);
    f->n_block = 0;
}

static uint32_t after(const dt_tree_file *f, uint32_t number) {
    bool nothing = (uint64_t)number * f->page_bytes == PENDING_BYTE;
    return number + 1 + nothing;
}

// The next page, zeroed, and its number. It is written as it is by then once the block is full.
static uint8_t *next_page(dt_tree_file *f, uint32_t *number) {
    *number = after(f, f->n_pages);
    while (f->n_pages < *number) {
        if ((size_t)(f->n_block + 1) * f->page_bytes > BLOCK_BYTES) flush(f);
        memset(f->block + (size_t)f->n_block * f->page_bytes, 0, f->page_bytes);
        f->n_block++;
        f->n_pages++;
    }
    return f->block + (size_t)(f->n_block - 1) * f->page_bytes;
}

static void seal(const dt_tree_file *f, uint8_t *page, uint32_t number) {
    dt_catalog_vfs_seal(page, (int)f->page_bytes, (sqlite3_int64)(number - 1) * f->page_bytes);
}

// A full page to its place: a number of its own, or the root's.
static uint32_t write_page(dt_tree_file *f, uint8_t *bytes, uint32_t root) {
    uint32_t number = root;
    if (!root) {
        uint8_t *to = next_page(f, &number);
        memcpy(to, bytes, f->page_bytes);
        seal(f, to, number);
        return number;
    }
    seal(f, bytes, root);
    if (f->status == DT_OK)
        f->status =
            dt_io_pwrite(f->fd, f->path, bytes, f->page_bytes, (off_t)(root - 1) * f->page_bytes);
    return number;
}

dt_status dt_tree_file_open(dt_tree_file *f, const char *path) {
    uint8_t head[100];
    *f = (dt_tree_file){.path = path, .fd = -1};
    DT_TRY(dt_io_open_update(&f->fd, path));
    dt_status st = dt_io_pread(f->fd, path, head, sizeof head, 0, DT_E_STORAGE);
    f->page_bytes = get_be(head + 16, 2);
    f->usable = f->page_bytes - head[20];
    f->n_pages = get_be(head + 28, 4);
    f->block = aligned_alloc(ALIGNED, BLOCK_BYTES);
    if (!f->block) abort();
    if (st != DT_OK) dt_io_close(f->fd, path);
    return st;
}

dt_status dt_tree_file_close(dt_tree_file *f) {
    uint8_t *first = f->block;
    flush(f);
    if (f->status == DT_OK)
        f->status = dt_io_pread(f->fd, f->path, first, f->page_bytes, 0, DT_E_STORAGE);
    put_be(first + 28, f->n_pages, 4);
    seal(f, first, 1);
    if (f->status == DT_OK) f->status = dt_io_pwrite(f->fd, f->path, first, f->page_bytes, 0);
    if (f->status == DT_OK) f->status = dt_io_fsync(f->fd, f->path);
    free(f->block);
    if (f->status != DT_OK) { // whose message stays
        close(f->fd);
        return f->status;
    }
    return dt_io_close(f->fd, f->path);
}

// ---- trees --------------------------------------------------------------------------------------------
static bool is_leaf(const dt_tree *t, const dt_tree_page *p) {
    return p == &t->level[0];
}

static uint32_t header_bytes(const dt_tree *t, const dt_tree_page *p) {
    return is_leaf(t, p) ? LEAF_HEADER : BRANCH_HEADER;
}

static void open_page(const dt_tree *t, dt_tree_page *p) {
    if (!p->bytes) p->bytes = aligned_alloc(ALIGNED, t->f->page_bytes);
    if (!p->bytes) abort();
    memset(p->bytes, 0, t->f->page_bytes);
    p->n_cells = 0;
    p->begin = t->f->usable;
}

static bool fits(const dt_tree *t, const dt_tree_page *p, size_t n) {
    return header_bytes(t, p) + 2 * (p->n_cells + 1) + n <= p->begin;
}

static void push_cell(const dt_tree *t, dt_tree_page *p, const uint8_t *cell, size_t n) {
    p->begin -= (uint32_t)n;
    memcpy(p->bytes + p->begin, cell, n);
    put_be(p->bytes + header_bytes(t, p) + 2 * p->n_cells, p->begin, 2);
    p->n_cells++;
}

// Takes the last cell out again, into `out`.
static void pop_cell(const dt_tree *t, dt_tree_page *p, dt_buffer *out) {
    assert(p->n_cells >= 2);
    uint32_t places = header_bytes(t, p), end = get_be(p->bytes + places + 2 * (p->n_cells - 2), 2);
    out->n_bytes = 0;
    dt_buffer_append(out, p->bytes + p->begin, end - p->begin);
    memset(p->bytes + p->begin, 0, end - p->begin);
    p->begin = end;
    p->n_cells--;
    put_be(p->bytes + places + 2 * p->n_cells, 0, 2);
}

// right: the last child of a branch.
static uint32_t close_page(const dt_tree *t, dt_tree_page *p, uint32_t right, uint32_t root) {
    uint8_t *b = p->bytes;
    if (is_leaf(t, p)) {
        b[0] = t->by_key ? KEY_LEAF : TABLE_LEAF;
    } else {
        b[0] = t->by_key ? KEY_BRANCH : TABLE_BRANCH;
        put_be(b + 8, right, 4);
    }
    put_be(b + 3, p->n_cells, 2);
    put_be(b + 5, p->begin, 2);
    return write_page(t->f, b, root);
}

// The page `child` of the level below, and what divides it from the next: a key's cell, or a rowid.
static void add_entry(dt_tree *t, int level, uint32_t child, const uint8_t *key, size_t n_key) {
    assert(level < DT_TREE_LEVELS);
    dt_tree_page *p = &t->level[level];
    if (level == t->n_levels) {
        open_page(t, p);
        t->n_levels++;
    }
    dt_buffer entry = {0}, last = {0};
    uint8_t number[4];
    put_be(number, child, 4);
    dt_buffer_append(&entry, number, 4);
    dt_buffer_append(&entry, key, n_key);
    if (!fits(t, p, entry.n_bytes)) {
        pop_cell(t, p, &last);
        uint32_t full = close_page(t, p, get_be(last.data, 4), 0);
        add_entry(t, level + 1, full, last.data + 4, last.n_bytes - 4);
        open_page(t, p);
    }
    push_cell(t, p, entry.data, entry.n_bytes);
    dt_buffer_fini(&entry);
    dt_buffer_fini(&last);
}

void dt_tree_begin(dt_tree *t, dt_tree_file *f, uint32_t root, bool by_key) {
    *t = (dt_tree){.f = f, .root = root, .by_key = by_key, .n_levels = 1};
    open_page(t, &t->level[0]);
}

// How much of a row of n bytes lies in its page; the rest goes to pages of its own.
static size_t local_bytes(const dt_tree *t, size_t n) {
    size_t u = t->f->usable, most = t->by_key ? (u - 12) * 64 / 255 - 23 : u - 35;
    if (n <= most) return n;
    size_t least = (u - 12) * 32 / 255 - 23, k = least + (n - least) % (u - 4);
    return k <= most ? k : least;
}

// A chain of pages, each with the number of the next in front. Returns the first.
static uint32_t write_overflow(dt_tree_file *f, const uint8_t *data, size_t n) {
    uint32_t first = 0, number;
    for (size_t at = 0, piece; at < n; at += piece) {
        uint8_t *page = next_page(f, &number);
        if (!first) first = number;
        piece = n - at < f->usable - 4 ? n - at : f->usable - 4;
        memcpy(page + 4, data + at, piece);
        if (at + piece < n) put_be(page, after(f, number), 4);
        seal(f, page, number);
    }
    return first;
}

static void make_cell(dt_tree *t, int64_t rowid, const dt_tree_row *row) {
    enum { VARINTS = 3 * 9 };
    dt_buffer *c = &t->cell;
    // the header begins with its length, which counts itself
    size_t n_head = row->n_head + 1 < 0x80 ? row->n_head + 1 : row->n_head + 2;
    size_t n = n_head + row->body.n_bytes, local = local_bytes(t, n);
    c->n_bytes = 0;
    uint8_t *begin = extend(c, n + VARINTS), *p = begin;
    p += put_varint(p, n);
    if (!t->by_key) p += put_varint(p, (uint64_t)rowid);
    uint8_t *payload = p;
    p += put_varint(p, n_head);
    memcpy(p, row->head, row->n_head);
    if (row->body.n_bytes > 0) memcpy(p + row->n_head, row->body.data, row->body.n_bytes);
    if (local < n) put_be(payload + local, write_overflow(t->f, payload + local, n - local), 4);
    c->n_bytes = (size_t)(payload - begin) + (local < n ? local + 4 : n);
}

void dt_tree_add(dt_tree *t, int64_t rowid, const dt_tree_row *row) {
    dt_tree_page *leaf = &t->level[0];
    make_cell(t, rowid, row);
    if (!fits(t, leaf, t->cell.n_bytes)) {
        t->split.n_bytes = 0;
        if (t->by_key)
            pop_cell(t, leaf, &t->split);
        else
            append_varint(&t->split, (uint64_t)t->last);
        uint32_t number = close_page(t, leaf, 0, 0);
        add_entry(t, 1, number, t->split.data, t->split.n_bytes);
        open_page(t, leaf);
    }
    push_cell(t, leaf, t->cell.data, t->cell.n_bytes);
    t->last = rowid;
}

void dt_tree_end(dt_tree *t) {
    uint32_t child = 0;
    for (int i = 0; i < t->n_levels; i++) {
        child = close_page(t, &t->level[i], child, i == t->n_levels - 1 ? t->root : 0);
        free(t->level[i].bytes);
    }
    dt_buffer_fini(&t->cell);
    dt_buffer_fini(&t->split);
}
