// raw_expression.c: the names of expressions in a list of raw items, and columns that are made of others (dtrain pack
// --column).
//
// The same text means the same here as in `dtrain data query` on the finished dataset. For that a column's
// kind must be known before its values are: numbers if all values in the list are plain decimals, else text.
#include "raw_expression.h"
#include "data/catalog/select.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- names --------------------------------------------------------------------------------------------
static bool all_decimal(const char *const *values, const uint32_t *cell, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (cell[i] != DT_NO_VALUE && !dt_text_is_decimal(values[cell[i]])) return false;
    return true;
}

bool dt_raw_find_name(dt_raw_name *u, const dt_raw *raw, const char *name) {
    *u = (dt_raw_name){.column = -1, .text = -1, .real = -1};
    for (int k = 0; k < raw->n_columns; k++) {
        const dt_raw_column *c = &raw->columns[k];
        if (c->kind == DT_RAW_JSON || strcmp(c->name, name) != 0) continue;
        u->column = k;
        u->is_text = u->is_text || (c->cell && !all_decimal(raw->values, c->cell, raw->n_rows));
    }
    if (raw->catalog) {
        const dt_catalog *c = raw->catalog;
        u->text = dt_catalog_find_column(c, name);
        u->real = dt_catalog_find_real(c, name);
        u->is_text = u->is_text || (u->text >= 0 && !dt_catalog_is_decimal(c, u->text));
    }
    if (u->column >= 0 || u->text >= 0 || u->real >= 0) return true;
    u->of = strcmp(name, "key") == 0 ? DT_RAW_KEY : strcmp(name, "source") == 0 ? DT_RAW_SOURCE : DT_RAW_COLUMN;
    u->is_text = u->is_text || u->of != DT_RAW_COLUMN;
    return u->of != DT_RAW_COLUMN;
}

// ---- values -------------------------------------------------------------------------------------------
static dt_cell text_value(const dt_raw_name *u, const char *text) {
    return u->is_text ? dt_cell_text(text) : dt_cell_decimal(text);
}

dt_cell dt_raw_number(const dt_raw_name *u, double v, char buffer[DT_REAL_CHARS]) {
    if (!u->is_text || isnan(v)) return dt_cell_real(v);
    return dt_cell_text(dt_real_text(buffer, v));
}

dt_cell dt_raw_cell(const dt_raw_name *u, const dt_raw *raw, const dt_raw_item *item, char buffer[DT_REAL_CHARS]) {
    if (u->of != DT_RAW_COLUMN) return dt_cell_text(u->of == DT_RAW_KEY ? item->key : item->name);
    if (u->column >= 0) { // what gives the item no value leaves it that of the set
        const dt_raw_column *c = &raw->columns[u->column];
        if (c->number && !isnan(c->number[item->row])) return dt_raw_number(u, c->number[item->row], buffer);
        if (c->cell && c->cell[item->row] != DT_NO_VALUE) return text_value(u, raw->values[c->cell[item->row]]);
    }
    const char *text = u->text >= 0 ? dt_catalog_value(raw->catalog, u->text, item->record) : NULL;
    if (text || u->real < 0) return text_value(u, text);
    return dt_raw_number(u, dt_catalog_real(raw->catalog, u->real, item->record), buffer);
}

// ---- derived columns ----------------------------------------------------------------------------------
// An expression, and for each of its names where the value comes from.
typedef struct derivation {
    dt_raw *r;
    dt_expr *e;
    int n;
    dt_raw_name *name;
    dt_cell *value;
    char (*text)[DT_REAL_CHARS];
} derivation;

static dt_status find_names(derivation *d) {
    d->n = dt_expr_n_names(d->e);
    d->name = dt_xcalloc((size_t)d->n + 1, sizeof *d->name);
    d->value = dt_xcalloc((size_t)d->n + 1, sizeof *d->value);
    d->text = dt_xcalloc((size_t)d->n + 1, sizeof *d->text);
    for (int i = 0; i < d->n; i++)
        if (!dt_raw_find_name(&d->name[i], d->r, dt_expr_name(d->e, i)))
            return dt_expr_fail_name(d->e, i,
                                     "no record has a column '%s': it is neither in names, tables "
                                     "or the set that is packed, nor key or source (width, seconds "
                                     "and the like are known to --where and data.columns)",
                                     dt_expr_name(d->e, i));
    return DT_OK;
}

static dt_cell raw_expression_value_of(derivation *d, const dt_raw_item *item, dt_arena *arena) {
    for (int i = 0; i < d->n; i++) d->value[i] = dt_raw_cell(&d->name[i], d->r, item, d->text[i]);
    dt_cell v = dt_expr_value(d->e, d->value, arena);
    for (int i = 0; i < d->n; i++) // the next item overwrites the buffers
        if (v.text == d->text[i]) v.text = dt_arena_strdup(arena, v.text);
    return v;
}

static dt_status raw_expression_add_cells(dt_raw *r, const char *name, const dt_cell *v, dt_arena *arena) {
    const bool reals = dt_cells_are_reals(v, r->n);
    dt_raw_column *c;
    DT_TRY(dt_raw_column_of(r, name, reals ? DT_RAW_NUMBER : DT_RAW_TEXT, true, &c));
    for (size_t i = 0; i < r->n; i++) {
        const uint32_t row = r->items[i].row;
        if (v[i].kind == DT_CELL_NULL) continue;
        if (reals)
            c->number[row] = (double)v[i].number;
        else
            c->cell[row] = dt_raw_value(r, dt_cell_kept(&v[i], arena));
    }
    return DT_OK;
}

static dt_status derive(dt_raw *r, const char *name, const char *expression) {
    derivation d = {.r = r};
    dt_arena arena;
    dt_raw_name known;
    if (dt_raw_find_name(&known, r, name) || dt_catalog_has_name(NULL, name))
        return dt_fail(DT_E_USAGE, "there is a column '%s' already: choose another name", name);
    DT_TRY(dt_expr_parse_value(&d.e, expression));
    dt_arena_init(&arena);
    dt_cell *v = dt_xcalloc(r->n + 1, sizeof *v);
    dt_status st = find_names(&d);
    bool any = false;
    for (size_t i = 0; i < r->n && st == DT_OK; i++) {
        v[i] = raw_expression_value_of(&d, &r->items[i], &arena);
        any |= v[i].kind != DT_CELL_NULL;
    }
    if (st == DT_OK && !any) st = dt_fail(DT_E_DATA, "%s gives no record a value", expression);
    if (st == DT_OK) st = raw_expression_add_cells(r, name, v, &arena);
    dt_expr_destroy(d.e);
    free(d.name);
    free(d.value);
    free(d.text);
    free(v);
    dt_arena_fini(&arena);
    return st;
}

dt_status dt_raw_derive(dt_raw *r, const char *columns) {
    char *all = dt_xstrdup(columns ? columns : ""), *save = NULL;
    dt_status st = DT_OK;
    for (char *name = strtok_r(all, "\n", &save); name && st == DT_OK; name = strtok_r(NULL, "\n", &save)) {
        char *equals = strchr(name, '=');
        if (!equals || equals == name) {
            st = dt_fail(DT_E_USAGE, "--column %s: expected NAME=EXPRESSION", name);
            break;
        }
        *equals = '\0';
        st = derive(r, name, equals + 1);
        if (st != DT_OK) st = dt_fail_context(st, "--column %s", name);
    }
    free(all);
    return st;
}
