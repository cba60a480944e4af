// raw_columns.c: the metadata columns of a list of raw items: text as indexes into a shared dictionary, numbers
// as doubles.
//
// The values of a table's column decide its kind. Numbers of which at least one has a point or an exponent make a
// NUMBER column. Everything else is TEXT, whole numbers too, as they may be classes or persons (007). Among numbers NA,
// NaN and their like are no value. The
// json member of a record follows the same rule, so the kinds can be found again without the index.

#include "raw.h"
#include "raw_expression.h"
#include "table.h"

#include "base/hash.h"
#include "data/catalog/select.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t *value_slot(dt_raw *r, const char *text) {
    uint32_t mask = r->cap_table - 1, i = (uint32_t)dt_hash64(text, strlen(text)) & mask;
    while (r->value_table[i] && strcmp(r->values[r->value_table[i] - 1], text) != 0) i = (i + 1) & mask;
    return &r->value_table[i];
}

static void grow_table(dt_raw *r) {
    r->cap_table = r->cap_table ? 2 * r->cap_table : 256;
    free(r->value_table);
    r->value_table = dt_xcalloc(r->cap_table, sizeof *r->value_table);
    for (uint32_t i = 0; i < r->n_values; i++) *value_slot(r, r->values[i]) = i + 1;
}

uint32_t dt_raw_value(dt_raw *r, const char *text) {
    if (r->n_values * 2 >= r->cap_table) grow_table(r);
    uint32_t *slot = value_slot(r, text);
    if (*slot) return *slot - 1;
    r->values = dt_xgrow(r->values, r->n_values, sizeof *r->values);
    r->values[r->n_values] = dt_arena_strdup(&r->arena, text);
    *slot = ++r->n_values;
    return *slot - 1;
}

const char *dt_raw_shared(dt_raw *r, const char *text) {
    uint32_t v = dt_raw_value(r, text); // may move `values`
    return r->values[v];
}

dt_status dt_raw_column_of(dt_raw *r, const char *name, dt_raw_column_kind kind, bool in_json, dt_raw_column **out) {
    for (int i = 0; i < r->n_columns; i++)
        if (strcmp(r->columns[i].name, name) == 0) {
            *out = &r->columns[i];
            if ((*out)->kind == kind) return DT_OK;
            return dt_fail(DT_E_DATA,
                           "%s: column '%s' comes from two places, as a number and as text: rename "
                           "one",
                           r->source, name);
        }
    if (r->n_columns == DT_MAX_COLUMNS)
        return dt_fail(DT_E_DATA, "%s: more than %d metadata columns ('%s' is one too many)", r->source, DT_MAX_COLUMNS,
                       name);
    dt_raw_column *c = &r->columns[r->n_columns++];
    *c = (dt_raw_column){.name = dt_arena_strdup(&r->arena, name), .kind = kind, .in_json = in_json};
    if (kind == DT_RAW_NUMBER) {
        c->number = dt_xcalloc(r->n_rows, sizeof *c->number);
        for (size_t i = 0; i < r->n_rows; i++) c->number[i] = NAN;
    } else {
        c->cell = dt_xcalloc(r->n_rows, sizeof *c->cell);
        memset(c->cell, 0xff, r->n_rows * sizeof *c->cell);
    }
    *out = c;
    return DT_OK;
}

void dt_raw_sort_columns(dt_raw *r) {
    for (int i = 0; i < r->n_columns; i++) {
        int at = i;
        for (; at > 0 && strcmp(r->columns[r->by_name[at - 1]].name, r->columns[i].name) > 0; at--)
            r->by_name[at] = r->by_name[at - 1];
        r->by_name[at] = i;
    }
}

// ---- tables -------------------------------------------------------------------------------------------
// Digits behind an optional sign, of any length: a number, or the name of a person or file (007).
static bool is_digits(const char *s) {
    s += *s == '-' || *s == '+';
    return *s && s[strspn(s, "0123456789")] == '\0';
}

static bool parse_real(const char *s, double *out) {
    char *end;
    if (s[strspn(s, "0123456789+-.eE")]) return false; // words, and hexadecimal
    *out = strtod(s, &end);
    return end > s && *end == '\0' && isfinite(*out);
}

// What R, pandas and databases write where there is no value.
static bool is_missing(const char *s) {
    static const char *const WORDS[] = {"NA", "N/A", "NaN", "nan", "NULL", "null", "None", "<NA>"};
    for (size_t i = 0; i < sizeof WORDS / sizeof *WORDS; i++)
        if (strcmp(s, WORDS[i]) == 0) return true;
    return false;
}

// *numbers: all values are, but for words of missing ones.
static bool is_number_column(const dt_table *t, size_t column, bool *numbers) {
    bool any = false, any_real = false;
    double v;
    *numbers = false;
    for (size_t i = 0; i < t->n_rows; i++) {
        const char *s = t->cell[i * t->n_columns + column];
        if (!s || is_missing(s)) continue;
        if (!parse_real(s, &v)) return false;
        any = true;
        any_real = any_real || !is_digits(s);
    }
    *numbers = any;
    return any_real;
}

static dt_status raw_columns_add_column(dt_raw *r, const dt_table *t, size_t column, const uint32_t *table_row) {
    bool nested = t->kind[column] == DT_TABLE_NESTED;
    bool numbers = false;
    dt_raw_column_kind kind = nested                                  ? DT_RAW_JSON
                              : is_number_column(t, column, &numbers) ? DT_RAW_NUMBER
                                                                      : DT_RAW_TEXT;
    dt_raw_column *c;
    dt_status st = dt_raw_column_of(r, t->column[column], kind, t->kind[column] != DT_TABLE_FLAT, &c);
    if (st != DT_OK) return dt_fail_context(st, "%s", t->path);
    const int text = r->catalog ? dt_catalog_find_column(r->catalog, c->name) : -1;
    const int real = r->catalog ? dt_catalog_find_real(r->catalog, c->name) : -1;
    size_t n = 0;
    bool replaces = false;
    for (size_t i = 0; i < r->n; i++) {
        uint32_t row = r->items[i].row, from = table_row[row];
        const char *s = from == UINT32_MAX ? NULL : t->cell[from * t->n_columns + column];
        if (!s || (numbers && is_missing(s))) continue;
        n++;
        const uint32_t record = r->items[i].record;
        replaces = replaces || (c->number ? !isnan(c->number[row]) : c->cell[row] != DT_NO_VALUE) ||
                   (text >= 0 && dt_catalog_value(r->catalog, text, record)) ||
                   (real >= 0 && !isnan(dt_catalog_real(r->catalog, real, record)));
        if (kind == DT_RAW_NUMBER)
            parse_real(s, &c->number[row]);
        else
            c->cell[row] = dt_raw_value(r, s);
    }
    if (replaces) dt_examples_add(&r->replaced, "column %s in %zu of %zu records", c->name, n, r->n);
    return DT_OK;
}

dt_status dt_raw_add_table(dt_raw *r, const dt_table *t, const uint32_t *table_row, int skip) {
    for (size_t k = 0; k < t->n_columns; k++)
        if ((int)k != skip) DT_TRY(raw_columns_add_column(r, t, k, table_row));
    return DT_OK;
}

// ---- what is written ----------------------------------------------------------------------------------
static void raw_columns_put_number(dt_json *j, const char *name, double v) {
    char text[32];
    if (v != floor(v) || fabs(v) >= 1e15) {
        dt_json_real(j, name, v);
        return;
    }
    snprintf(text, sizeof text, "%.1f", v); // keeps the point
    dt_json_raw(j, name, text);
}

static void raw_columns_put_text(dt_json *j, const char *name, const char *value) {
    if (dt_text_is_decimal(value) && !strchr(value, '.'))
        dt_json_int(j, name, atoll(value));
    else
        dt_json_string(j, name, value);
}

static bool has_member(const dt_catalog *c, const dt_record *r, const char *ext) {
    for (uint32_t i = 0; i < r->n_members; i++)
        if (strcmp(dt_catalog_str(c, c->exts[c->members[r->first_member + i].ext]), ext) == 0) return true;
    return false;
}

bool dt_raw_has_value(const dt_raw *r, const dt_raw_item *item, const char *name) {
    for (int k = 0; k < r->n_columns; k++) {
        const dt_raw_column *c = &r->columns[k];
        if (strcmp(c->name, name) == 0)
            return c->number ? !isnan(c->number[item->row]) : c->cell[item->row] != DT_NO_VALUE;
    }
    return false;
}

void dt_raw_put_set_json(const dt_raw *r, const dt_raw_item *item, dt_json *j) {
    const dt_catalog *c = r->catalog;
    const dt_record *record = &c->records[item->record];
    if (c->shards[record->shard].source_hash != 0) return; // pack has found it out
    for (int k = 0; k < (int)c->table.n_columns; k++) {
        const char *v = dt_catalog_value(c, k, item->record), *name = dt_columns_name(&c->table, k);
        if (!dt_columns_has(&c->table, k, item->record) || dt_raw_has_value(r, item, name)) continue;
        if (!v && isfinite(dt_catalog_real(c, k, item->record)))
            raw_columns_put_number(j, name, dt_catalog_real(c, k, item->record));
        else if (v && strcmp(name, "set") != 0 && !has_member(c, record, name))
            raw_columns_put_text(j, name, v);
    }
}

void dt_raw_put_json(const dt_raw *r, const dt_raw_item *item, dt_json *j) {
    for (int k = 0; k < r->n_columns; k++) {
        const dt_raw_column *c = &r->columns[r->by_name[k]];
        if (!c->in_json) continue;
        if (c->kind == DT_RAW_NUMBER) {
            double v = c->number[item->row];
            if (!isnan(v)) raw_columns_put_number(j, c->name, v);
            continue;
        }
        uint32_t v = c->cell[item->row];
        if (v == DT_NO_VALUE) continue;
        if (c->kind == DT_RAW_JSON)
            dt_json_raw(j, c->name, r->values[v]);
        else
            raw_columns_put_text(j, c->name, r->values[v]);
    }
}

// Leaves out duplicate_of, which is about other records of the old dataset.
static dt_status copy_row(const dt_raw *r, const dt_raw_item *item, dt_catalog *c) {
    const dt_catalog *from = r->catalog;
    char cls[DT_INT_CHARS];
    for (int k = 0; k < (int)from->table.n_columns; k++) {
        const char *v = dt_catalog_value(from, k, item->record), *name = dt_columns_name(&from->table, k);
        const bool real = from->table.columns[k].number;
        if (r->n_classes && !real && strcmp(name, "cls") == 0)
            v = item->label >= 0 ? dt_int_text(cls, item->label) : NULL;
        if (strcmp(name, "duplicate_of") == 0 || dt_raw_has_value(r, item, name)) continue;
        if (v) DT_TRY(dt_catalog_set(c, name, v));
        if (real && dt_columns_has(&from->table, k, item->record))
            DT_TRY(dt_catalog_set_real(c, name, dt_catalog_real(from, k, item->record)));
    }
    return DT_OK;
}

dt_status dt_raw_put_row(const dt_raw *r, const dt_raw_item *item, dt_catalog *c) {
    if (r->catalog) DT_TRY(copy_row(r, item, c));
    for (int k = 0; k < r->n_columns; k++) {
        const dt_raw_column *col = &r->columns[r->by_name[k]];
        if (col->kind == DT_RAW_NUMBER && !isnan(col->number[item->row]))
            DT_TRY(dt_catalog_set_real(c, col->name, col->number[item->row]));
        if (col->kind == DT_RAW_TEXT && col->cell[item->row] != DT_NO_VALUE)
            DT_TRY(dt_catalog_set(c, col->name, r->values[col->cell[item->row]]));
    }
    return DT_OK;
}

// ---- raw expression -----------------------------------------------------------------------------------------------

// The names of expressions in a list of raw items, and columns that are made of others (dtrain pack
// --column).
//
// The same text means the same here as in `dtrain data query` on the finished dataset. For that a column's
// kind must be known before its values are: numbers if all values in the list are plain decimals, else text.

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

// ---- raw group ----------------------------------------------------------------------------------------------------

// Records of several files: those that agree in the captures of --group become the members of one record.
//
// Band1/img-7.fits … Band4/img-7.fits with {id} in common are record "7" with members band1.fits … band4.fits. What
// the files of a record do not agree in (the band) is a column of none of them.

bool dt_raw_is_listed(const char *list, const char *name) {
    size_t n = strlen(name);
    for (const char *p = list; p; p = strchr(p, ',')) {
        p += *p == ',';
        if (strncmp(p, name, n) == 0 && (p[n] == ',' || p[n] == '\0')) return true;
    }
    return false;
}

// The values of the group's columns, in their order in the list.
static dt_status raw_group_make_key(dt_raw *r, dt_raw_item *item, const char *group) {
    char *list = dt_arena_strdup(&r->arena, group), *save = NULL;
    const char *key = NULL;
    for (char *name = strtok_r(list, ",", &save); name; name = strtok_r(NULL, ",", &save)) {
        const dt_raw_column *c = NULL;
        for (int k = 0; k < r->n_columns; k++)
            if (strcmp(r->columns[k].name, name) == 0) c = &r->columns[k];
        if (!c) return dt_fail(DT_E_USAGE, "--group %s: the pattern captures no {%s}", group, name);
        uint32_t v = c->cell[item->row];
        if (v == DT_NO_VALUE)
            return dt_fail(DT_E_USAGE,
                           "--group %s: %s has no {%s}: every alternative of the "
                           "pattern must capture it",
                           group, item->name, name);
        key = key ? dt_arena_printf(&r->arena, "%s/%s", key, r->values[v]) : r->values[v];
    }
    if (!key) return dt_fail(DT_E_USAGE, "--group: expected names of captures: id,eye");
    char *out = dt_arena_strdup(&r->arena, key);
    for (char *p = out; *p; p++)
        if (*p == '.') *p = '-';
    item->key = out;
    return DT_OK;
}

static int compare_parts(const void *pa, const void *pb) {
    const dt_raw_item *a = pa, *b = pb;
    int order = strcmp(a->key, b->key);
    if (order == 0) order = strcmp(a->ext, b->ext);
    return order ? order : strcmp(a->name, b->name);
}

static void keep_common(dt_raw *r, const dt_raw_item *part, size_t n) {
    for (int k = 0; k < r->n_columns; k++) {
        uint32_t *cell = r->columns[k].cell;
        for (size_t i = 1; i < n && cell; i++)
            if (cell[part[i].row] != cell[part[0].row]) cell[part[0].row] = DT_NO_VALUE;
    }
}

static dt_status raw_group_merge(dt_raw *r, const dt_raw_item *part, size_t n, dt_raw_item *out) {
    for (size_t i = 1; i < n; i++)
        if (strcmp(part[i - 1].ext, part[i].ext) == 0)
            return dt_fail(DT_E_DATA,
                           "%s: %s and %s would both be member %s of record %s: capture what tells "
                           "them apart as {member}",
                           r->source, part[i - 1].name, part[i].name, part[i].ext, part[i].key);
    if (n > DT_RAW_MOST_PARTS)
        return dt_fail(DT_E_DATA, "%s: record %s has %zu files, the first is %s; at most %d fit", r->source, part->key,
                       n, part->name, DT_RAW_MOST_PARTS);
    dt_raw_item *kept = dt_arena_alloc(&r->arena, n * sizeof *kept);
    memcpy(kept, part, n * sizeof *kept);
    keep_common(r, kept, n);
    *out = kept[0];
    out->parts = kept;
    out->n_parts = (uint32_t)n;
    for (size_t i = 1; i < n; i++) out->size += kept[i].size;
    return DT_OK;
}

static void count_incomplete(dt_raw *r) {
    uint32_t most = 0;
    for (size_t i = 0; i < r->n; i++)
        if (r->items[i].n_parts > most) most = r->items[i].n_parts;
    for (size_t i = 0; i < r->n; i++)
        if (r->items[i].n_parts < most && r->n_incomplete++ == 0) r->first_incomplete = r->items[i].key;
    r->n_parts = most;
}

dt_status dt_raw_group(dt_raw *r, const char *group) {
    size_t n = 0;
    for (size_t i = 0; i < r->n; i++) DT_TRY(raw_group_make_key(r, &r->items[i], group));
    qsort(r->items, r->n, sizeof *r->items, compare_parts);
    for (size_t i = 0, end; i < r->n; i = end) {
        for (end = i + 1; end < r->n && strcmp(r->items[i].key, r->items[end].key) == 0;) end++;
        dt_raw_item whole;
        DT_TRY(raw_group_merge(r, &r->items[i], end - i, &whole));
        r->items[n++] = whole;
    }
    r->n = n;
    count_incomplete(r);
    return DT_OK;
}
