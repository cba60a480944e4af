// raw_members.c: rows of files of columns (Parquet) as records.
//
// A column of bytes is a member of its name, and so is field `bytes` of a struct, as Hugging Face keeps images and audio
// ({bytes, path}); its kind is that of the first bytes, else of `path`. Other columns are metadata. A key is the number
// of the row in its file; of several files it has the file's name in front, so that it does not depend on the others.
//
// Members are visited once, for their sizes, kinds and places; pack reads them again by their place.

#include "raw.h"
#include "table.h"

#include "base/io.h"
#include "data/file/columnar.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

typedef struct members {
    dt_raw *r;
    dt_table *t;
    const dt_columnar *from;
    dt_raw_item *parts; // the file's values that are there, by column; then by row, with `row` that of the table
    size_t n_parts;
    uint32_t file, first_row;
    const char *prefix; // of keys
    const char *of;     // of the names of rows
    const char *name;   // of the column's members, in lower case
    const char *ext;    // of the last
    int path;           // the table's column with file names, or -1
} members;

static dt_status add_part(void *arg, uint64_t row, const dt_columnar_value *v) {
    enum { FREE_VALUES = 1 << 20, MAX_PER_BYTE = 64 };
    members *m = arg;
    const char *path = dt_table_cell(m->t, m->first_row + row, m->path),
               *dot = path ? strrchr(dt_path_base(path), '.') : NULL;
    const dt_kind *kind = v->data ? dt_kind_of_bytes(v->data, v->n_bytes) : NULL;
    if (!v->data) return DT_OK;
    if (m->n_parts > FREE_VALUES && m->n_parts / MAX_PER_BYTE > m->from->blob.n_bytes)
        return dt_fail(DT_E_DATA, "%s: column %s: more than %d values for each byte of the file", m->from->blob.path,
                       m->name, MAX_PER_BYTE);
    if (!kind && dot) kind = dt_kind_of_ext(dot + 1);
    char *ext = dt_xprintf("%s.%s", m->name, kind && kind->exts[0] ? kind->name : "bin");
    if (!m->ext || strcmp(m->ext, ext) != 0) m->ext = dt_arena_strdup(&m->r->arena, ext);
    free(ext);
    m->parts = dt_xgrow(m->parts, m->n_parts, sizeof *m->parts);
    m->parts[m->n_parts++] = (dt_raw_item){.ext = m->ext,
                                           .label = -1,
                                           .row = m->first_row + (uint32_t)row,
                                           .size = v->n_bytes,
                                           .offset = (uint64_t)m->file << 32 | v->at,
                                           .record = v->page,
                                           .mtime_ns = (int64_t)m->from->blob.version};
    return DT_OK;
}

// "image" of "image.bytes", as a name of a member: in lower case and without slashes.
static char *member_name(dt_arena *a, const char *column) {
    char *name = dt_arena_strdup(a, column);
    const size_t n = strlen(name);
    if (n > 6 && strcmp(name + n - 6, ".bytes") == 0) name[n - 6] = '\0';
    for (char *p = name; *p; p++) *p = (char)(*p == '/' || (p == name && *p == '.') ? '_' : tolower((unsigned char)*p));
    return name;
}

// By row, in a row by extension.
static int raw_members_compare(const void *pa, const void *pb) {
    const dt_raw_item *a = pa, *b = pb;
    return a->row != b->row ? (a->row > b->row) - (a->row < b->row) : strcmp(a->ext, b->ext);
}

// A row's n values become an item.
static dt_status raw_members_add_row(dt_raw_found *f, const members *m, dt_raw_item *part, uint32_t n) {
    dt_raw *r = m->r;
    uint64_t size = 0;
    const uint32_t row = part->row - m->first_row;
    const char *name = dt_arena_printf(&r->arena, "%srow %u", m->of, row + 1);
    for (uint32_t k = 0; k < n; k++) {
        if (k > 0 && strcmp(part[k - 1].ext, part[k].ext) == 0)
            return dt_fail(DT_E_DATA, "%s: two columns would be member %s: rename one", m->from->blob.path,
                           part[k].ext);
        part[k].name = name;
        size += part[k].size;
    }
    dt_raw_add(f, name, part->offset, size, part->mtime_ns);
    dt_raw_item *item = &r->items[r->n - 1];
    item->ext = part->ext;
    item->record = part->record;
    item->row = part->row;
    item->key = dt_arena_printf(&r->arena, "%s%07u", m->prefix, row);
    if (n == 1) return DT_OK;
    dt_raw_item *kept = dt_arena_alloc(&r->arena, n * sizeof *kept);
    memcpy(kept, part, n * sizeof *kept);
    item->parts = kept;
    item->n_parts = n;
    return DT_OK;
}

static dt_status add_file(dt_raw_found *f, members *m, dt_columnar *c) {
    dt_status st = DT_OK;
    uint32_t n_columns = 0;
    m->from = c;
    m->first_row = m->t->cells.n_rows;
    m->n_parts = 0;
    DT_TRY(dt_table_add_columnar(m->t, c));
    for (uint32_t i = 0; i < c->n_columns && st == DT_OK; i++) {
        if (c->columns[i].type != DT_COLUMNAR_BYTES) continue;
        if (++n_columns > DT_RAW_MOST_PARTS)
            return dt_fail(DT_E_DATA, "%s: more than %d columns hold bytes", c->blob.path, DT_RAW_MOST_PARTS);
        m->name = member_name(&m->r->arena, c->columns[i].name);
        const char *path = dt_arena_printf(&m->r->arena, "%s.path", m->name);
        m->path = dt_table_find(m->t, path);
        m->ext = NULL;
        st = dt_columnar_each(c, &c->columns[i], add_part, m);
    }
    if (m->n_parts > 1) qsort(m->parts, m->n_parts, sizeof *m->parts, raw_members_compare);
    for (uint64_t row = 0, at = 0; row < c->n_rows && st == DT_OK; row++) {
        uint32_t n = 0;
        while (at + n < m->n_parts && m->parts[at + n].row == m->first_row + row) n++;
        if (n > 0)
            st = raw_members_add_row(f, m, &m->parts[at], n);
        else
            dt_examples_add(&m->r->bad_rows, "%srow %zu has no bytes", m->of, (size_t)row + 1);
        at += n;
    }
    return st;
}

dt_status dt_raw_find_members(dt_raw_found *f, char *const *files, size_t n_files, dt_table *t, bool *any) {
    dt_raw *r = f->raw;
    members m = {.r = r, .t = t};
    dt_status st = DT_OK;
    *any = false;
    r->files = dt_xcalloc(n_files + 1, sizeof *r->files);
    for (; r->n_files < n_files; r->n_files++) {
        DT_TRY(dt_columnar_open(&r->files[r->n_files], files[r->n_files]));
        for (uint32_t i = 0; i < r->files[r->n_files]->n_columns; i++)
            *any = *any || r->files[r->n_files]->columns[i].type == DT_COLUMNAR_BYTES;
    }
    if (!*any) return DT_OK;
    r->kind = DT_RAW_MEMBERS;
    r->root = r->source;
    dt_table_init(t, r->source);
    f->list = t;
    f->list_column = -1; // no column of paths
    for (; m.file < n_files && st == DT_OK; m.file++) {
        const char *base = dt_path_base(files[m.file]);
        char *prefix = dt_arena_printf(&r->arena, "%.*s%s", n_files > 1 ? (int)(strrchr(base, '.') - base) : 0, base,
                                       n_files > 1 ? "/" : "");
        for (char *p = prefix; *p; p++)
            if (*p == '.') *p = '-';
        m.prefix = prefix;
        m.of = *prefix ? dt_arena_printf(&r->arena, "%s ", base) : "";
        st = add_file(f, &m, r->files[m.file]);
    }
    free(m.parts);
    DT_TRY(st);
    if (r->bad_rows.n == 0 || f->skip_bad) return DT_OK;
    return dt_fail(
        DT_E_DATA,
        "%s: %zu rows have no bytes, as where they only name files: %s; dtrain pack --on-error skip leaves them out",
        r->source, r->bad_rows.n, r->bad_rows.text);
}
