// table.c: parses CSV as RFC 4180 says, and JSON with jansson.
//
// What the RFC forbids is an error with its line, never a guess: text behind a closing quote, a quote that is never
// closed, a row with more or fewer fields than the header. A slightly wrong table gives entirely wrong labels, and
// no loss curve shows it. Some liberties are common in practice: lines end in LF, CRLF or CR, the separator may
// be ';' or a tab if the first line has no ',', a column may have no name (the index that pandas writes, a comma at the
// end of the line), and a row may end in a comma too many.
//
// Arrays and objects in JSON stay JSON text. If all rows of such a column are arrays of the same few numbers, or objects
// of plain values, columns that are not in the json member hold these one by one.
#define _GNU_SOURCE
#include "table.h"

#include "data/file/columnar.h"
#include "data/file/json_data.h"

#include "base/io.h"
#include "base/log.h"
#include "base/text.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_COLUMNS = 4096, MAX_FLAT = 16 };
static const size_t MAX_BYTES = (size_t)4 << 30;

void dt_table_fini(dt_table *t) {
    dt_columns_fini(&t->cells);
    free(t->line);
    dt_arena_fini(&t->arena);
    *t = (dt_table){0};
}

void dt_table_init(dt_table *t, const char *path) {
    *t = (dt_table){0};
    dt_arena_init(&t->arena);
    dt_columns_init(&t->cells, MAX_COLUMNS, false);
    t->path = dt_arena_strdup(&t->arena, path);
}

static dt_status table_add_column(dt_table *t, const char *name, bool is_part) {
    dt_column *col;
    if (!*name) name = dt_arena_printf(&t->arena, "column%u", t->cells.n_columns + 1);
    if (dt_table_find(t, name) >= 0) return dt_fail(DT_E_DATA, "%s: two columns are called '%s'", t->path, name);
    DT_TRY(dt_columns_need(&t->cells, t->path, name, DT_TEXT_COLUMN, &col));
    col->not_in_json = is_part;
    return DT_OK;
}

// Adds a row without values.
static void table_add_row(dt_table *t, uint32_t line) {
    dt_columns *c = &t->cells;
    t->line = dt_xgrow(t->line, c->n_rows, sizeof *t->line);
    t->line[c->n_rows++] = line;
    if (c->n_rows <= c->cap_rows) return;
    c->cap_rows = c->n_rows < UINT32_MAX / 2 ? 2 * c->n_rows : UINT32_MAX;
    dt_columns_fit(c);
}

// Into the last row.
static dt_status table_put(dt_table *t, size_t column, const char *text) {
    return dt_columns_intern(&t->cells, t->path, text, &t->cells.columns[column].cell[t->cells.n_rows - 1]);
}

// ---- CSV ----------------------------------------------------------------------------------------------
typedef struct csv {
    dt_table *t;
    const char *at, *end;
    char separator;
    uint32_t line;
    dt_buffer field; // the one being read
} csv;

static bool at_line_end(const csv *c) {
    return c->at == c->end || *c->at == '\n' || *c->at == '\r';
}

static dt_status table_read_quoted(csv *c) {
    uint32_t begin = c->line;
    c->at++;
    for (;;) {
        if (c->at == c->end) return dt_fail(DT_E_DATA, "%s:%u: a quote that is never closed", c->t->path, begin);
        if (*c->at == '"' && c->at + 1 < c->end && c->at[1] == '"')
            c->at++;
        else if (*c->at == '"')
            break;
        if (*c->at == '\n') c->line++;
        dt_buffer_append(&c->field, c->at++, 1);
    }
    c->at++;
    if (!at_line_end(c) && *c->at != c->separator)
        return dt_fail(DT_E_DATA, "%s:%u: text behind a closing quote (a quote inside is doubled)", c->t->path,
                       c->line);
    return DT_OK;
}

// One field into c->field; *more: another follows in this row.
static dt_status table_read_field(csv *c, bool *more) {
    c->field.n_bytes = 0;
    if (c->at < c->end && *c->at == '"') {
        DT_TRY(table_read_quoted(c));
    } else {
        const char *begin = c->at;
        while (!at_line_end(c) && *c->at != c->separator) c->at++;
        dt_buffer_append(&c->field, begin, (size_t)(c->at - begin));
    }
    dt_buffer_append(&c->field, "", 1);
    if (memchr(c->field.data, 0, c->field.n_bytes - 1))
        return dt_fail(DT_E_DATA, "%s:%u: a zero byte: not a text file", c->t->path, c->line);
    if (*dt_text_utf8_end((const char *)c->field.data))
        return dt_fail(DT_E_DATA, "%s:%u: '%s' is not UTF-8: save the table as UTF-8", c->t->path, c->line,
                       (const char *)c->field.data);
    *more = c->at < c->end && *c->at == c->separator;
    if (*more) c->at++;
    return DT_OK;
}

static dt_status table_read_row(csv *c) {
    dt_table *t = c->t;
    const size_t n_columns = t->cells.n_columns;
    size_t n = 0, n_values = 0; // fields up to the last that is not empty
    uint32_t line = c->line;
    bool more = true;
    table_add_row(t, line);
    while (more) {
        DT_TRY(table_read_field(c, &more));
        const bool is_empty = c->field.n_bytes == 1;
        if (!is_empty && n < n_columns) DT_TRY(table_put(t, n, (const char *)c->field.data));
        n++;
        if (!is_empty || n <= n_columns) n_values = n;
    }
    if (n_values == n_columns) return DT_OK;
    t->cells.n_rows--;
    for (size_t i = 0; i < n_columns; i++) t->cells.columns[i].cell[t->cells.n_rows] = DT_NO_VALUE;
    dt_examples_add(&t->odd, "line %u has %zu", line, n);
    return DT_OK;
}

dt_status dt_table_check(dt_table *t) {
    if (t->odd.n == 0) return DT_OK;
    dt_fail(DT_E_DATA, "%s: %zu rows do not have %u fields as the first line: %s", t->path, t->odd.n,
            t->cells.n_columns, t->odd.text);
    dt_table_fini(t);
    return DT_E_DATA;
}

static char find_separator(const char *data, size_t n) {
    static const char CHOICES[] = {',', ';', '\t'};
    size_t line = 0;
    while (line < n && data[line] != '\n' && data[line] != '\r') line++;
    for (size_t i = 0; i < sizeof CHOICES; i++)
        if (memchr(data, CHOICES[i], line)) return CHOICES[i];
    return ',';
}

static dt_status table_read_all(csv *c) {
    bool more = true;
    while (more) {
        DT_TRY(table_read_field(c, &more));
        DT_TRY(table_add_column(c->t, (const char *)c->field.data, false));
    }
    while (c->at < c->end) {
        if (*c->at++ == '\r' && c->at < c->end && *c->at == '\n') c->at++; // CR LF is one line end
        c->line++;
        if (!at_line_end(c)) DT_TRY(table_read_row(c));
    }
    return DT_OK;
}

dt_status dt_table_parse_csv(dt_table *t, const char *path, const char *data, size_t n_bytes, char separator) {
    dt_table_init(t, path);
    if (n_bytes >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0) data += 3, n_bytes -= 3;
    csv c = {.t = t, .at = data, .end = data + n_bytes, .line = 1};
    c.separator = separator ? separator : find_separator(data, n_bytes);
    dt_status st = n_bytes > 0 ? table_read_all(&c) : dt_fail(DT_E_DATA, "%s: empty", path);
    dt_buffer_fini(&c.field);
    if (st != DT_OK) dt_table_fini(t);
    return st;
}

// ---- JSON ---------------------------------------------------------------------------------------------
typedef struct rows {
    size_t n;
    json_t **object; // borrowed from the document
    const char **key;
} rows;

static bool is_nested(const json_t *v) {
    return json_is_array(v) || json_is_object(v);
}

// COCO and the like hold several tables, none of them keyed by file name.
static dt_status no_row(const dt_table *t, const rows *r, size_t i) {
    bool images = false, annotations = false;
    for (size_t k = 0; k < r->n && r->key[k]; k++) {
        images = images || strcmp(r->key[k], "images") == 0;
        annotations = annotations || strcmp(r->key[k], "annotations") == 0;
    }
    if (!r->key[i]) return dt_fail(DT_E_DATA, "%s: row %zu is no object", t->path, i + 1);
    return dt_fail(DT_E_DATA,
                   "%s: '%s' is no row, which is an object a file: expected [{\"file_name\": …}, …], "
                   "{\"NAME\": {…}, …} or .jsonl%s",
                   t->path, r->key[i],
                   images && annotations ? "; this looks like COCO, of which jq makes one: the line "
                                           "is in docs/how-to/pack.md"
                                         : "");
}

// Columns in the order in which they are first met.
static dt_status table_find_columns(dt_table *t, const rows *r) {
    const char *name;
    json_t *v;
    if (r->key[0]) DT_TRY(table_add_column(t, "name", false));
    for (size_t i = 0; i < r->n; i++) {
        if (!json_is_object(r->object[i])) return no_row(t, r, i);
        json_object_foreach(r->object[i], name, v) {
            int c = dt_table_find(t, name);
            if (c == 0 && r->key[0])
                return dt_fail(DT_E_DATA, "%s: row %zu has a member 'name' beside the name that is its key", t->path,
                               i + 1);
            if (c < 0) {
                c = (int)t->cells.n_columns;
                DT_TRY(table_add_column(t, name, false));
            }
            if (is_nested(v)) t->cells.columns[c].kind = DT_JSON_COLUMN;
        }
    }
    return DT_OK;
}

// The common length, if all are arrays of as many numbers; else 0.
static size_t common_array(const rows *r, const char *name) {
    size_t n = 0;
    for (size_t i = 0; i < r->n; i++) {
        const json_t *v = json_object_get(r->object[i], name);
        if (!v || json_is_null(v)) continue;
        if (!json_is_array(v) || json_array_size(v) > MAX_FLAT) return 0;
        if (n > 0 && json_array_size(v) != n) return 0;
        n = json_array_size(v);
        for (size_t k = 0; k < n; k++)
            if (!json_is_number(json_array_get(v, k))) return 0;
    }
    return n;
}

static dt_status add_members(dt_table *t, const rows *r, const char *name) {
    for (size_t i = 0; i < r->n; i++) {
        json_t *object = json_object_get(r->object[i], name), *v;
        const char *member;
        if (object && !json_is_null(object) && !json_is_object(object)) return DT_OK;
        json_object_foreach(object, member, v) {
            const char *flat = dt_arena_printf(&t->arena, "%s.%s", name, member);
            if (!is_nested(v) && dt_table_find(t, flat) < 0) DT_TRY(table_add_column(t, flat, true));
        }
    }
    return DT_OK;
}

static dt_status find_flat_columns(dt_table *t, const rows *r) {
    int n = (int)t->cells.n_columns;
    for (int c = 0; c < n; c++) {
        if (t->cells.columns[c].kind != DT_JSON_COLUMN) continue;
        const char *name = dt_arena_strdup(&t->arena, dt_columns_name(&t->cells, c));
        size_t length = common_array(r, name);
        for (size_t k = 0; k < length; k++)
            DT_TRY(table_add_column(t, dt_arena_printf(&t->arena, "%s.%zu", name, k), true));
        if (length == 0) DT_TRY(add_members(t, r, name));
    }
    return DT_OK;
}

static dt_status put_json(dt_table *t, size_t column, const json_t *v) {
    if (!v || json_is_null(v)) return DT_OK;
    if (t->cells.columns[column].kind != DT_JSON_COLUMN && json_is_string(v))
        return *json_string_value(v) ? table_put(t, column, json_string_value(v)) : DT_OK;
    char *s = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(17));
    const dt_status st = s ? table_put(t, column, s) : DT_OK;
    free(s);
    return st;
}

// "box.2" is item 2 of array box, "angles.yaw" a member of object angles.
static json_t *flat_value(const json_t *row, const char *name) {
    for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.')) {
        json_t *parent = json_object_getn(row, name, (size_t)(dot - name));
        if (json_is_array(parent)) return json_array_get(parent, (size_t)atoi(dot + 1));
        if (json_is_object(parent)) return json_object_get(parent, dot + 1);
    }
    return NULL;
}

static dt_status fill_cells(dt_table *t, const rows *r) {
    for (size_t i = 0; i < r->n; i++) {
        table_add_row(t, (uint32_t)(i + 1));
        for (size_t c = 0; c < t->cells.n_columns; c++) {
            const char *name = dt_columns_name(&t->cells, (int)c);
            if (c == 0 && r->key[i])
                DT_TRY(table_put(t, c, r->key[i]));
            else if (t->cells.columns[c].not_in_json)
                DT_TRY(put_json(t, c, flat_value(r->object[i], name)));
            else
                DT_TRY(put_json(t, c, json_object_get(r->object[i], name)));
        }
    }
    return DT_OK;
}

static dt_status table_list_rows(dt_table *t, rows *r, json_t *root) {
    const char *key;
    json_t *v;
    size_t i;
    r->object = dt_xcalloc(json_array_size(root) + json_object_size(root) + 1, sizeof *r->object);
    r->key = dt_xcalloc(json_array_size(root) + json_object_size(root) + 1, sizeof *r->key);
    json_array_foreach(root, i, v) r->object[r->n++] = v;
    json_object_foreach(root, key, v) {
        r->key[r->n] = key;
        r->object[r->n++] = v;
    }
    if (r->n == 0)
        return dt_fail(DT_E_DATA, "%s: no rows: expected an array of objects, or an object of objects by name",
                       t->path);
    DT_TRY(table_find_columns(t, r));
    DT_TRY(find_flat_columns(t, r));
    return fill_cells(t, r);
}

// One object a line, as one array.
static json_t *load_lines(const char *data, size_t n_bytes, json_error_t *error) {
    json_t *all = json_array();
    for (size_t at = 0; at < n_bytes;) {
        const char *end = memchr(data + at, '\n', n_bytes - at);
        size_t n = end ? (size_t)(end - data) - at : n_bytes - at;
        json_t *v = n > 1 ? dt_json_load(data + at, n, JSON_REJECT_DUPLICATES, error) : NULL;
        if (v) json_array_append_new(all, v);
        if (!v && n > 1) {
            error->line = (int)json_array_size(all) + 1;
            json_decref(all);
            return NULL;
        }
        at += n + 1;
    }
    return all;
}

dt_status dt_table_parse_json(dt_table *t, const char *path, const char *data, size_t n_bytes, bool lines) {
    json_error_t error;
    rows r = {0};
    dt_table_init(t, path);
    if (n_bytes >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0) data += 3, n_bytes -= 3;
    json_t *root =
        lines ? load_lines(data, n_bytes, &error) : dt_json_load(data, n_bytes, JSON_REJECT_DUPLICATES, &error);
    dt_status st =
        root ? table_list_rows(t, &r, root) : dt_fail(DT_E_DATA, "%s:%d: not JSON: %s", path, error.line, error.text);
    json_decref(root);
    free(r.object);
    free(r.key);
    if (st != DT_OK) dt_table_fini(t);
    return st;
}

// ---- columns ------------------------------------------------------------------------------------------
typedef struct columnar_fill {
    dt_table *t;
    const dt_columnar *from;
    const dt_columnar_column *column;
    int to; // column of the table
    uint32_t first_row;
    dt_buffer text;
} columnar_fill;

static dt_status put_value(void *arg, uint64_t row, const dt_columnar_value *v) {
    columnar_fill *f = arg;
    const char *text;
    DT_TRY(dt_columnar_text(f->from, f->column, v, &f->text, &text));
    return text
               ? dt_columns_intern(&f->t->cells, f->t->path, text, &f->t->cells.columns[f->to].cell[f->first_row + row])
               : DT_OK;
}

dt_status dt_table_add_columnar(dt_table *t, dt_columnar *from) {
    columnar_fill f = {.t = t, .from = from, .first_row = t->cells.n_rows};
    dt_examples unread = {0};
    dt_status st = DT_OK;
    if (from->n_rows > UINT32_MAX / 2 - t->cells.n_rows) return dt_fail(DT_E_DATA, "%s: too many rows", t->path);
    for (uint64_t i = 0; i < from->n_rows; i++) table_add_row(t, (uint32_t)i + 1);
    for (uint32_t i = 0; i < from->n_columns && st == DT_OK; i++) {
        const dt_columnar_column *c = f.column = &from->columns[i];
        if (c->type == DT_COLUMNAR_UNREAD) dt_examples_add(&unread, "%s (%s)", c->name, c->what);
        if (c->type == DT_COLUMNAR_UNREAD || c->type == DT_COLUMNAR_BYTES || c->type == DT_COLUMNAR_NULL) continue;
        f.to = dt_table_find(t, c->name);
        if (f.to < 0) {
            f.to = (int)t->cells.n_columns;
            st = table_add_column(t, c->name, false);
        }
        if (st == DT_OK) st = dt_columnar_each(from, c, put_value, &f);
    }
    if (unread.n) dt_warn("%s: columns that cannot be read are left out: %s", from->blob.path, unread.text);
    dt_buffer_fini(&f.text);
    return st;
}

static dt_status table_read_columnar(dt_table *t, const char *path) {
    dt_columnar *from;
    DT_TRY(dt_columnar_open(&from, path));
    dt_table_init(t, path);
    const dt_status st = dt_table_add_columnar(t, from);
    for (uint32_t i = 0; i < from->n_columns && st == DT_OK; i++)
        if (from->columns[i].type == DT_COLUMNAR_BYTES)
            dt_warn("%s: column %s holds bytes, which are no metadata: it is left out", path, from->columns[i].name);
    dt_columnar_close(from);
    if (st != DT_OK) dt_table_fini(t);
    return st;
}

dt_status dt_table_read(dt_table *t, const char *path) {
    DT_TRY(dt_table_read_lenient(t, path));
    return dt_table_check(t);
}

// Files that are no text, by their first bytes, and what makes text of them.
static dt_status check_text(const char *path, const char *data, size_t n) {
    static const struct {
        const char *head, *what;
    } KINDS[] = {{"\x1f\x8b", "compressed: gunzip it"},
                 {"PK\x03\x04", "a workbook or a ZIP: save it as CSV"},
                 {"\xff\xfe", "UTF-16: save it as UTF-8"},
                 {"\xfe\xff", "UTF-16: save it as UTF-8"}};
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++) {
        const size_t length = strlen(KINDS[i].head);
        if (n >= length && memcmp(data, KINDS[i].head, length) == 0)
            return dt_fail(DT_E_DATA, "%s: this table is %s", path, KINDS[i].what);
    }
    return DT_OK;
}

dt_status dt_table_read_lenient(dt_table *t, const char *path) {
    char *data = NULL;
    size_t n = 0;
    bool is_there;
    DT_TRY(dt_io_find(&is_there, path, DT_E_DATA));
    if (!is_there) return dt_fail(DT_E_USAGE, "%s: no such table", path);
    if (dt_columnar_is_name(path)) return table_read_columnar(t, path);
    DT_TRY(dt_io_read_file(&data, &n, path, MAX_BYTES, DT_E_DATA));
    dt_status st = check_text(path, data, n);
    if (st != DT_OK)
        *t = (dt_table){0};
    else if (dt_text_ends(path, ".json|.jsonl"))
        st = dt_table_parse_json(t, path, data, n, dt_text_ends(path, ".jsonl"));
    else
        st = dt_table_parse_csv(t, path, data, n, dt_text_ends(path, ".tsv") ? '\t' : 0);
    free(data);
    return st;
}

dt_status dt_table_read_lines(dt_table *t, const char *path) {
    char *data = NULL;
    size_t n = 0;
    DT_TRY(dt_io_read_file(&data, &n, path, 0, DT_E_DATA));
    dt_table_init(t, path);
    dt_status st = table_add_column(t, "path", false);
    uint32_t line = 0;
    for (char *rest = data, *at; st == DT_OK && (at = strsep(&rest, "\n"));) {
        size_t length = strlen(at);
        if (length > 0 && at[length - 1] == '\r') at[length - 1] = '\0';
        line++;
        if (!*at) continue;
        table_add_row(t, line);
        st = table_put(t, 0, at);
    }
    free(data);
    return st;
}
