// where.c: an expression (catalog/expression.h) on one record at a time, while packing.
#include "where.h"
#include "data/raw/raw_expression.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_NAMES = 512 };

// Where a name's value comes from: names and tables, then what a transform found out, then the set's metadata.
typedef struct name_use {
    const char *name;
    dt_raw_name of;
    bool of_transform;
    bool is_bytes; // bytes of the record's members
} name_use;

struct dt_where {
    dt_expr *e;
    const dt_raw *raw;
    int n;
    name_use use[MAX_NAMES];
};

struct dt_where_scratch {
    const dt_where *w;
    dt_cell value[MAX_NAMES];
    char text[MAX_NAMES][DT_REAL_CHARS]; // of numbers in columns of text
    dt_buffer key;
};

// ---- names --------------------------------------------------------------------------------------------
static dt_status where_resolve(dt_where *w, const dt_transform *t) {
    w->n = dt_expr_n_names(w->e);
    if (w->n > MAX_NAMES) return dt_fail(DT_E_USAGE, "--where: more than %d names", MAX_NAMES);
    for (int i = 0; i < w->n; i++) {
        name_use *u = &w->use[i];
        *u = (name_use){.name = dt_expr_name(w->e, i)};
        u->of_transform = dt_transform_has_column(t, u->name);
        const bool of_item = dt_raw_find_name(&u->of, w->raw, u->name);
        u->is_bytes = !u->of_transform && !of_item && strcmp(u->name, "bytes") == 0;
        if (!u->of_transform && !of_item && !u->is_bytes)
            return dt_expr_fail_name(w->e, i,
                                     "no record has a column '%s': it is neither in names, tables or "
                                     "the set that is packed, nor found out while packing",
                                     u->name);
    }
    return DT_OK;
}

dt_status dt_where_create(dt_where **out, const char *text, const dt_raw *raw, const dt_transform *t) {
    dt_where *w = dt_xcalloc(1, sizeof *w);
    w->raw = raw;
    dt_status st = dt_expr_parse(&w->e, text);
    if (st == DT_OK) st = where_resolve(w, t);
    if (st != DT_OK) {
        dt_where_destroy(w);
        return dt_fail_context(st, "--where");
    }
    *out = w;
    return DT_OK;
}

void dt_where_destroy(dt_where *w) {
    if (!w) return;
    dt_expr_destroy(w->e);
    free(w);
}

// ---- one record ---------------------------------------------------------------------------------------
dt_where_scratch *dt_where_scratch_create(const dt_where *w) {
    if (!w) return NULL;
    dt_where_scratch *s = dt_xcalloc(1, sizeof *s);
    s->w = w;
    return s;
}

void dt_where_scratch_destroy(dt_where_scratch *s) {
    if (!s) return;
    dt_buffer_fini(&s->key);
    free(s);
}

static dt_cell where_value_of(dt_where_scratch *s, int i, const dt_raw_item *item, const dt_transform_record *r,
                              uint64_t n_bytes) {
    const name_use *u = &s->w->use[i];
    if (u->is_bytes) return dt_cell_real((double)n_bytes);
    for (int k = 0; u->of_transform && k < r->n_columns; k++)
        if (strcmp(r->column[k].name, u->name) == 0 && !dt_raw_has_value(s->w->raw, item, u->name))
            return dt_raw_number(&u->of, r->column[k].number, s->text[i]);
    if (u->of.of == DT_RAW_KEY) return dt_cell_text((const char *)s->key.data);
    return dt_raw_cell(&u->of, s->w->raw, item, s->text[i]);
}

bool dt_where_keeps(dt_where_scratch *s, const dt_raw_item *item, const dt_transform_record *r, uint64_t n_bytes) {
    s->key.n_bytes = 0;
    dt_buffer_append(&s->key, item->key, strlen(item->key));
    dt_buffer_append(&s->key, r->suffix, strlen(r->suffix) + 1);
    for (int i = 0; i < s->w->n; i++) s->value[i] = where_value_of(s, i, item, r, n_bytes);
    return dt_expr_is_true(s->w->e, s->value);
}
