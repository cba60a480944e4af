// catalog_rows.c: rows as SQLite's INSERT would store them: text as it is, BLOBs for what is not UTF-8,
// numbers in number columns, whole ones as integers. catalog_db.h has the tables.
#include "catalog_rows.h"
#include "catalog_tree.h"
#include "catalog_value.h"

#include "base/arena.h"
#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

typedef struct filler {
    const dt_catalog *c;
    const dt_sql_columns *columns;
    const char *const *sources;
    uint32_t *first;                      // record, by shard
    dt_sql_value *values[DT_MAX_COLUMNS]; // of text columns, by distinct value
    dt_sql_value ext[DT_MAX_EXTENSIONS];
    dt_tree_row row;
    dt_buffer scratch;
} filler;

static void put_value(dt_tree_row *row, const char *text, const dt_sql_value *v) {
    if (v->kind == DT_SQL_INT)
        dt_tree_put_int(row, v->integer);
    else if (v->kind == DT_SQL_REAL)
        dt_tree_put_real(row, v->real);
    else
        dt_tree_put_text(row, text, (size_t)v->n_bytes, v->kind == DT_SQL_TEXT);
}

static void put_text(dt_tree_row *row, const char *text) {
    dt_sql_value v = dt_sql_text_value(text);
    put_value(row, text, &v);
}

static const char *ext_of(const filler *f, const dt_member *m) {
    return dt_catalog_str(f->c, f->c->exts[m->ext]);
}

// XXH3 over members' extension, size and hash; NULL if one has none.
static void put_record_hash(filler *f, const dt_record *r) {
    bool all = r->n_members > 0;
    f->scratch.n_bytes = 0;
    for (uint32_t i = 0; i < r->n_members; i++) {
        const dt_member *m = &f->c->members[r->first_member + i];
        uint64_t numbers[2] = {m->size, m->hash};
        all = all && m->has_hash;
        dt_buffer_append(&f->scratch, ext_of(f, m), (size_t)f->ext[m->ext].n_bytes + 1);
        dt_buffer_append(&f->scratch, numbers, sizeof numbers);
    }
    if (all)
        dt_tree_put_int(&f->row, (int64_t)dt_hash64(f->scratch.data, f->scratch.n_bytes));
    else
        dt_tree_put_null(&f->row);
}

static void fill_record(filler *f, uint32_t record) {
    const dt_record *r = &f->c->records[record];
    uint64_t n_bytes = 0;
    for (uint32_t m = 0; m < r->n_members; m++) n_bytes += f->c->members[r->first_member + m].size;
    dt_tree_put_null(&f->row); // id: the rowid
    put_text(&f->row, dt_catalog_str(f->c, r->key));
    dt_tree_put_int(&f->row, r->shard);
    dt_tree_put_int(&f->row, record - f->first[r->shard]);
    dt_tree_put_int(&f->row, (int64_t)n_bytes);
    put_record_hash(f, r);
    if (f->sources)
        put_text(&f->row, f->sources[record]);
    else
        dt_tree_put_null(&f->row);
}

static void fill_metadata(filler *f, uint32_t record) {
    dt_tree_put_null(&f->row); // id
    for (int k = 0; k < f->columns->n_text; k++) {
        uint32_t cell = dt_catalog_cell(f->c, k, record);
        if (cell == DT_NO_VALUE)
            dt_tree_put_null(&f->row);
        else
            put_value(&f->row, dt_catalog_str(f->c, f->c->columns[k].values[cell]),
                      &f->values[k][cell]);
    }
    for (int k = f->columns->n_text; k < f->columns->n; k++)
        dt_tree_put_real(&f->row, dt_catalog_real(f->c, k - f->columns->n_text, record));
}

static void fill_member(filler *f, uint32_t record, const dt_member *m) {
    dt_tree_put_int(&f->row, record);
    put_value(&f->row, ext_of(f, m), &f->ext[m->ext]);
    dt_tree_put_int(&f->row, (int64_t)m->offset);
    dt_tree_put_int(&f->row, (int64_t)m->size);
    if (m->has_hash)
        dt_tree_put_int(&f->row, (int64_t)m->hash);
    else
        dt_tree_put_null(&f->row);
}

static void write_rows(filler *f, dt_tree_file *file, uint32_t root,
                       void (*fill)(filler *f, uint32_t record)) {
    dt_tree t;
    dt_tree_begin(&t, file, root, false);
    for (uint32_t r = 0; r < f->c->n_records; r++) {
        dt_tree_row_reset(&f->row);
        fill(f, r);
        dt_tree_add(&t, r, &f->row);
    }
    dt_tree_end(&t);
}

// As SQLite orders them: text before BLOBs, then by bytes.
static bool comes_before(const filler *f, const dt_member *a, const dt_member *b) {
    const dt_sql_value *x = &f->ext[a->ext], *y = &f->ext[b->ext];
    if (x->kind != y->kind) return x->kind == DT_SQL_TEXT;
    return strcmp(ext_of(f, a), ext_of(f, b)) < 0; // as bytes, and they hold no NUL
}

// Rows are in the order of their keys, (record, ext); members of a record may lie otherwise.
static void write_members(filler *f, dt_tree_file *file, uint32_t root) {
    const dt_member *sorted[DT_MAX_EXTENSIONS];
    dt_tree t;
    dt_tree_begin(&t, file, root, true);
    for (uint32_t r = 0; r < f->c->n_records; r++) {
        const dt_record *rec = &f->c->records[r];
        for (uint32_t i = 0; i < rec->n_members; i++) {
            const dt_member *m = &f->c->members[rec->first_member + i];
            uint32_t at = i;
            for (; at > 0 && comes_before(f, m, sorted[at - 1]); at--) sorted[at] = sorted[at - 1];
            sorted[at] = m;
        }
        for (uint32_t i = 0; i < rec->n_members; i++) {
            dt_tree_row_reset(&f->row);
            fill_member(f, r, sorted[i]);
            dt_tree_add(&t, 0, &f->row);
        }
    }
    dt_tree_end(&t);
}

dt_status dt_catalog_rows_write(const char *path, const dt_catalog_roots *roots,
                                const dt_catalog *c, const dt_sql_columns *columns,
                                const char *const *sources) {
    dt_tree_file file;
    DT_TRY(dt_tree_file_open(&file, path));
    filler *f = dt_xcalloc(1, sizeof *f);
    f->c = c;
    f->columns = columns;
    f->sources = sources;
    f->first = dt_xcalloc(c->n_shards + 1, sizeof *f->first);
    for (uint32_t r = c->n_records; r-- > 0;) f->first[c->records[r].shard] = r;
    for (int k = 0; k < columns->n_text; k++)
        f->values[k] = dt_sql_values_make(c, &c->columns[k], columns->column[k].is_number);
    for (uint32_t e = 0; e < c->n_exts; e++)
        f->ext[e] = dt_sql_text_value(dt_catalog_str(c, c->exts[e]));
    write_rows(f, &file, roots->records, fill_record);
    write_rows(f, &file, roots->metadata, fill_metadata);
    write_members(f, &file, roots->members);
    dt_status st = dt_tree_file_close(&file);
    for (int k = 0; k < columns->n_text; k++) free(f->values[k]);
    free(f->first);
    dt_tree_row_fini(&f->row);
    dt_buffer_fini(&f->scratch);
    free(f);
    return st;
}
