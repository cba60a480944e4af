// raw_columns.c: the metadata columns of a list of raw items: text as indexes into a shared dictionary, numbers
// as doubles.
//
// The values of a table's column decide its kind. Numbers of which at least one has a point or an exponent make a
// NUMBER column. Everything else is TEXT, whole numbers too, as they may be classes or persons (007). Among numbers NA,
// NaN and their like are no value. The
// json member of a record follows the same rule, so the kinds can be found again without the index.
#include "data/catalog/select.h"
#include "raw.h"
#include "table.h"

#include "base/hash.h"

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
    for (uint32_t k = 0; k < c->n_columns; k++) {
        const char *v = dt_catalog_value(c, (int)k, item->record);
        const char *name = dt_catalog_str(c, c->columns[k].name);
        if (v && strcmp(name, "set") != 0 && !has_member(c, record, name) && !dt_raw_has_value(r, item, name))
            raw_columns_put_text(j, name, v);
    }
    for (uint32_t k = 0; k < c->n_reals; k++) {
        double v = dt_catalog_real(c, (int)k, item->record);
        const char *name = dt_catalog_str(c, c->reals[k].name);
        if (isfinite(v) && !dt_raw_has_value(r, item, name)) raw_columns_put_number(j, name, v);
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
    for (uint32_t k = 0; k < from->n_columns; k++) {
        const char *v = dt_catalog_value(from, (int)k, item->record);
        const char *name = dt_catalog_str(from, from->columns[k].name);
        if (r->n_classes && strcmp(name, "cls") == 0) v = item->label >= 0 ? dt_int_text(cls, item->label) : NULL;
        if (v && strcmp(name, "duplicate_of") != 0 && !dt_raw_has_value(r, item, name))
            DT_TRY(dt_catalog_set(c, name, v));
    }
    for (uint32_t k = 0; k < from->n_reals; k++) {
        double v = dt_catalog_real(from, (int)k, item->record);
        const char *name = dt_catalog_str(from, from->reals[k].name);
        if (!isnan(v) && !dt_raw_has_value(r, item, name)) DT_TRY(dt_catalog_set_real(c, name, v));
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
