// raw_columns.c: the metadata columns of a list of raw items.
//
// The values of a table's column decide its kind. Numbers of which at least one has a point or an exponent make a
// column of numbers. Everything else is text, whole numbers too, as they may be classes or persons (007). Among numbers NA,
// NaN and their like are no value. The
// json member of a record follows the same rule, so the kinds can be found again without the index.

#include "raw.h"
#include "table.h"

#include "data/catalog/select.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void dt_raw_sort_columns(dt_raw *r) {
    const dt_columns *t = &r->table;
    for (int i = 0; i < (int)t->n_columns; i++) {
        int at = i;
        for (; at > 0 && strcmp(dt_columns_name(t, r->by_name[at - 1]), dt_columns_name(t, i)) > 0; at--)
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
static bool is_number_column(const dt_table *t, int column, bool *numbers) {
    bool any = false, any_real = false;
    double v;
    *numbers = false;
    for (size_t i = 0; i < t->cells.n_rows; i++) {
        const char *s = dt_table_cell(t, i, column);
        if (!s || is_missing(s)) continue;
        if (!parse_real(s, &v)) return false;
        any = true;
        any_real = any_real || !is_digits(s);
    }
    *numbers = any;
    return any_real;
}

static dt_status raw_columns_add_column(dt_raw *r, const dt_table *t, int column) {
    const char *name = dt_columns_name(&t->cells, column);
    bool numbers = false;
    dt_column_kind kind = t->cells.columns[column].kind;
    if (kind == DT_TEXT_COLUMN && is_number_column(t, column, &numbers)) kind = DT_NUMBER_COLUMN;
    const int had = dt_columns_find(&r->table, name, ~0u), own = had < 0 ? (int)r->table.n_columns : had;
    dt_column *c;
    if (had >= 0 && r->table.columns[had].kind != kind)
        return dt_fail(DT_E_DATA, "%s: %s: column '%s' comes from two places, as a number and as text: rename one",
                       t->path, r->source, name);
    DT_TRY(dt_columns_need(&r->table, t->path, name, kind, &c));
    if (had < 0) c->not_in_json = t->cells.columns[column].not_in_json;
    const int old = r->catalog ? dt_columns_find(&r->catalog->table, name, ~0u) : -1;
    size_t n = 0;
    bool replaces = false;
    for (size_t i = 0; i < r->n; i++) {
        const uint32_t row = r->items[i].row;
        const char *s = dt_table_cell(t, row, column);
        if (!s || (numbers && is_missing(s))) continue;
        n++;
        replaces = replaces || dt_columns_has(&r->table, own, row) ||
                   (old >= 0 && dt_columns_has(&r->catalog->table, old, r->items[i].record));
        if (kind == DT_NUMBER_COLUMN)
            parse_real(s, &c->number[row]);
        else
            DT_TRY(dt_columns_intern(&r->table, t->path, s, &c->cell[row]));
    }
    if (replaces) dt_examples_add(&r->replaced, "column %s in %zu of %zu records", name, n, r->n);
    return DT_OK;
}

dt_status dt_raw_add_table(dt_raw *r, const dt_table *t, int skip) {
    for (int k = 0; k < (int)t->cells.n_columns; k++)
        if (k != skip) DT_TRY(raw_columns_add_column(r, t, k));
    return DT_OK;
}

// ---- what is written ----------------------------------------------------------------------------------
static bool has_member(const dt_catalog *c, const dt_record *r, const char *ext) {
    for (uint32_t i = 0; i < r->n_members; i++)
        if (strcmp(dt_catalog_str(c, c->exts[c->members[r->first_member + i].ext]), ext) == 0) return true;
    return false;
}

bool dt_raw_has_value(const dt_raw *r, const dt_raw_item *item, const char *name) {
    const int k = dt_columns_find(&r->table, name, ~0u);
    return k >= 0 && dt_columns_has(&r->table, k, item->row);
}

// Numbers with a point keep the point.
static void put_cell_json(dt_json *j, const dt_columns *t, int k, uint32_t row) {
    const dt_column *col = &t->columns[k];
    const char *name = dt_columns_name(t, k), *text = dt_columns_text(t, k, row);
    char point[32];
    const double v = col->number ? col->number[row] : NAN;
    if (isfinite(v) && (v != floor(v) || fabs(v) >= 1e15)) {
        dt_json_real(j, name, v);
    } else if (isfinite(v)) {
        snprintf(point, sizeof point, "%.1f", v);
        dt_json_raw(j, name, point);
    } else if (text && col->kind == DT_JSON_COLUMN) {
        dt_json_raw(j, name, text);
    } else if (text && dt_text_is_decimal(text) && !strchr(text, '.')) {
        dt_json_int(j, name, atoll(text));
    } else if (text) {
        dt_json_string(j, name, text);
    }
}

void dt_raw_put_set_json(const dt_raw *r, const dt_raw_item *item, dt_json *j) {
    const dt_catalog *c = r->catalog;
    const dt_record *record = &c->records[item->record];
    if (c->shards[record->shard].source_hash != 0) return; // pack has found it out
    for (int k = 0; k < (int)c->table.n_columns; k++) {
        const char *name = dt_columns_name(&c->table, k);
        const bool told = c->table.columns[k].cell && (strcmp(name, "set") == 0 || has_member(c, record, name));
        if (!told && !dt_raw_has_value(r, item, name)) put_cell_json(j, &c->table, k, item->record);
    }
}

void dt_raw_put_json(const dt_raw *r, const dt_raw_item *item, dt_json *j) {
    for (uint32_t k = 0; k < r->table.n_columns; k++)
        if (!r->table.columns[r->by_name[k]].not_in_json) put_cell_json(j, &r->table, r->by_name[k], item->row);
}

static dt_status copy_cell(dt_catalog *c, const dt_columns *t, int k, uint32_t row) {
    if (!dt_columns_has(t, k, row) || t->columns[k].kind == DT_JSON_COLUMN) return DT_OK;
    const char *name = dt_columns_name(t, k), *text = dt_columns_text(t, k, row);
    return text ? dt_catalog_set(c, name, text) : dt_catalog_set_real(c, name, t->columns[k].number[row]);
}

// What the set gives, but for duplicate_of, which is about its other records; then names and tables.
dt_status dt_raw_put_row(const dt_raw *r, const dt_raw_item *item, dt_catalog *c) {
    const dt_columns *set = r->catalog ? &r->catalog->table : NULL;
    char cls[DT_INT_CHARS];
    for (int k = 0; set && k < (int)set->n_columns; k++) {
        const char *name = dt_columns_name(set, k);
        if (strcmp(name, "duplicate_of") == 0 || dt_raw_has_value(r, item, name)) continue;
        if (r->n_classes && set->columns[k].cell && strcmp(name, "cls") == 0) {
            if (item->label >= 0) DT_TRY(dt_catalog_set(c, name, dt_int_text(cls, item->label)));
        } else {
            DT_TRY(copy_cell(c, set, k, item->record));
        }
    }
    for (uint32_t k = 0; k < r->table.n_columns; k++) DT_TRY(copy_cell(c, &r->table, r->by_name[k], item->row));
    return DT_OK;
}

// ---- derived columns ----------------------------------------------------------------------------------
// dtrain pack --column. The same text means the same here as in `dtrain data query` on the finished dataset. For that a
// column's kind must be known before its values are: numbers if all values in the list are plain decimals, else text.

enum { KEY, SOURCE, N_GIVEN };
static const char *const GIVEN[N_GIVEN] = {"key", "source"};

static const void *item_at(void *records, size_t i, uint32_t row[2]) {
    const dt_raw_item *item = &((const dt_raw *)records)->items[i];
    row[0] = item->row;
    row[1] = item->record;
    return item;
}

static dt_cell raw_value_of(const void *record, int given) {
    const dt_raw_item *item = record;
    return dt_cell_text(given == KEY ? item->key : item->name);
}

static dt_status derive(dt_raw *r, const char *name, const char *expression) {
    const dt_query_scope scope = {.table = {&r->table, r->catalog ? &r->catalog->table : NULL},
                                  .given = GIVEN,
                                  .n_given = N_GIVEN,
                                  .missing =
                                      "it is neither in names, tables or the set that is packed, nor key or source "
                                      "(width, seconds and the like are known to --where and data.columns)",
                                  .value = raw_value_of};
    bool known = strcmp(name, GIVEN[SOURCE]) == 0 || dt_catalog_has_name(NULL, name), any = false;
    for (int k = 0; k < 2 && scope.table[k]; k++)
        known = known || dt_columns_find(scope.table[k], name, DT_TEXT_COLUMN | DT_NUMBER_COLUMN) >= 0;
    if (known) return dt_fail(DT_E_USAGE, "there is a column '%s' already: choose another name", name);
    DT_TRY(dt_query_derive(&r->table, name, expression, &scope, r->n, item_at, r, &any));
    return any ? DT_OK : dt_fail(DT_E_DATA, "%s gives no record a value", expression);
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
        const int k = dt_columns_find(&r->table, name, DT_TEXT_COLUMN);
        if (k < 0) return dt_fail(DT_E_USAGE, "--group %s: the pattern captures no {%s}", group, name);
        const char *value = dt_columns_text(&r->table, k, item->row);
        if (!value)
            return dt_fail(DT_E_USAGE,
                           "--group %s: %s has no {%s}: every alternative of the "
                           "pattern must capture it",
                           group, item->name, name);
        key = key ? dt_arena_printf(&r->arena, "%s/%s", key, value) : value;
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
    for (uint32_t k = 0; k < r->table.n_columns; k++) {
        uint32_t *cell = r->table.columns[k].cell;
        for (size_t i = 1; i < n && cell; i++)
            if (cell[part[i].row] != cell[part[0].row]) cell[part[0].row] = DT_NO_VALUE;
    }
}

static dt_status raw_group_merge(dt_raw *r, const dt_raw_item *part, size_t n, dt_raw_item *out) {
    for (size_t i = 1; i < n; i++)
        if (strcmp(part[i - 1].ext, part[i].ext) == 0)
            return dt_fail(DT_E_DATA,
                           "%s: %s and %s would both be member %s of record %s: capture their difference as {member}",
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
