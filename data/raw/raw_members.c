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
    dt_raw_item *parts; // (rows of the file, n_columns); ext NULL: no value
    uint32_t n_columns, column, file, first_row;
    const char *name; // of the column's members, in lower case
    const char *ext;  // of the last
    int path;         // the table's column with file names, or -1
} members;

static dt_status add_part(void *arg, uint64_t row, const dt_columnar_value *v) {
    members *m = arg;
    const char *path = dt_table_cell(m->t, m->first_row + row, m->path),
               *dot = path ? strrchr(dt_path_base(path), '.') : NULL;
    const dt_kind *kind = v->data ? dt_kind_of_bytes(v->data, v->n_bytes) : NULL;
    if (!v->data) return DT_OK;
    if (!kind && dot) kind = dt_kind_of_ext(dot + 1);
    char *ext = dt_xprintf("%s.%s", m->name, kind && kind->exts[0] ? kind->name : "bin");
    if (!m->ext || strcmp(m->ext, ext) != 0) m->ext = dt_arena_strdup(&m->r->arena, ext);
    free(ext);
    m->parts[row * m->n_columns + m->column] = (dt_raw_item){
        .ext = m->ext, .label = -1, .size = v->n_bytes, .offset = (uint64_t)m->file << 32 | v->at, .record = v->page};
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

// A row's members become an item, its first members those that it has.
static dt_status raw_members_add_row(dt_raw_found *f, members *m, const dt_columnar *c, const char *prefix,
                                     uint64_t row) {
    dt_raw *r = m->r;
    dt_raw_item *part = &m->parts[row * m->n_columns];
    uint32_t n = 0;
    uint64_t size = 0;
    for (uint32_t k = 0; k < m->n_columns; k++)
        if (part[k].ext) part[n++] = part[k];
    const char *name = dt_arena_printf(&r->arena, "%s%srow %zu", *prefix ? dt_path_base(c->blob.path) : "",
                                       *prefix ? " " : "", (size_t)row + 1);
    if (n == 0) dt_examples_add(&r->bad_rows, "%s has no bytes", name);
    if (n == 0) return DT_OK;
    for (uint32_t k = 0; k < n; k++) {
        for (uint32_t i = 0; i < k; i++)
            if (strcmp(part[i].ext, part[k].ext) == 0)
                return dt_fail(DT_E_DATA, "%s: two columns would be member %s: rename one", c->blob.path, part[k].ext);
        part[k].name = name;
        part[k].mtime_ns = (int64_t)c->blob.version;
        size += part[k].size;
    }
    dt_raw_add(f, name, part->offset, size, part->mtime_ns);
    dt_raw_item *item = &r->items[r->n - 1];
    item->ext = part->ext;
    item->record = part->record;
    item->row = m->first_row + (uint32_t)row;
    item->key = dt_arena_printf(&r->arena, "%s%07zu", prefix, (size_t)row);
    if (n == 1) return DT_OK;
    item->parts = part;
    item->n_parts = n;
    return DT_OK;
}

static dt_status add_file(dt_raw_found *f, members *m, dt_columnar *c, const char *prefix) {
    dt_status st = DT_OK;
    m->first_row = m->t->cells.n_rows;
    m->n_columns = m->column = 0;
    DT_TRY(dt_table_add_columnar(m->t, c));
    for (uint32_t i = 0; i < c->n_columns; i++) m->n_columns += c->columns[i].type == DT_COLUMNAR_BYTES;
    if (m->n_columns > DT_RAW_MOST_PARTS)
        return dt_fail(DT_E_DATA, "%s: %u columns hold bytes; at most %d fit a record", c->blob.path, m->n_columns,
                       DT_RAW_MOST_PARTS);
    m->parts = dt_arena_alloc(&m->r->arena, (c->n_rows * m->n_columns + 1) * sizeof *m->parts);
    for (uint32_t i = 0; i < c->n_columns && st == DT_OK; i++) {
        if (c->columns[i].type != DT_COLUMNAR_BYTES) continue;
        m->name = member_name(&m->r->arena, c->columns[i].name);
        const char *path = dt_arena_printf(&m->r->arena, "%s.path", m->name);
        m->path = dt_table_find(m->t, path);
        m->ext = NULL;
        st = dt_columnar_each(c, &c->columns[i], add_part, m);
        m->column++;
    }
    for (uint64_t row = 0; row < c->n_rows && st == DT_OK; row++) st = raw_members_add_row(f, m, c, prefix, row);
    return st;
}

dt_status dt_raw_find_members(dt_raw_found *f, char *const *files, size_t n_files, dt_table *t, bool *any) {
    dt_raw *r = f->raw;
    members m = {.r = r, .t = t};
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
    for (; m.file < n_files; m.file++) {
        const char *base = dt_path_base(files[m.file]);
        char *prefix = dt_arena_printf(&r->arena, n_files > 1 ? "%.*s/" : "", (int)(strrchr(base, '.') - base), base);
        for (char *p = prefix; *p; p++)
            if (*p == '.') *p = '-';
        DT_TRY(add_file(f, &m, r->files[m.file], prefix));
    }
    if (r->bad_rows.n == 0 || f->skip_bad) return DT_OK;
    return dt_fail(
        DT_E_DATA,
        "%s: %zu rows have no bytes, as where they only name files: %s; dtrain pack --on-error skip leaves them out",
        r->source, r->bad_rows.n, r->bad_rows.text);
}
