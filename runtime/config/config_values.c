// config_values.c: the tree's values into the fields of dt_config, and what the program itself sets.
//
// Each row of the table knows its field's place and C type. A key that is set goes into the tree first and is checked there
// like the user's, so that the dump, the fields and the messages are always equal.

#include "config_internal.h"

#include "base/json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void dt_config_programming_error(const char *key, const char *what) {
    fprintf(stderr, "dtrain: config key '%s': %s\n", key, what);
    abort(); // a bug of the program: a core dump shows where
}

// -- filling ---------------------------------------------------------------------------------
static int64_t int_of(const dt_config_key *row, const char *text) {
    int64_t v = 0;
    double bytes = 0;
    // checked before: the else branch is a bug
    if (row->kind == DT_T_BYTES ? dt_config_parse_bytes(text, &bytes) : dt_config_parse_int(text, &v))
        return row->kind == DT_T_BYTES ? (int64_t)bytes : v; // up to 2^53, exact
    dt_config_programming_error(row->path, "not a whole number");
}

static double real_of(const dt_config_key *row, const char *text) {
    double v = 0;
    if (row->kind == DT_T_TIME ? dt_config_parse_time(text, &v) : dt_config_parse_real(text, &v)) return v; // seconds
    dt_config_programming_error(row->path, "not a number");
}

static dt_word config_values_word_of(const dt_config_key *row, const char *text) {
    const int i = dt_word_index(row->range, text); // index in the range, which is the enum's value
    if (i < 0) dt_config_programming_error(row->path, "not one of its words");
    return i;
}

static dt_words words_of(dt_config *c, const dt_config_key *row, const dt_cnode *n) {
    dt_word *items = dt_arena_alloc(&c->arena, (n->n + 1) * sizeof *items); // arena zeroes; at least one element
    for (size_t i = 0; i < n->n; i++) items[i] = config_values_word_of(row, n->items[i]->text);
    return (dt_words){items, (int)n->n};
}

// n: the key's node, or NULL where the key is absent. The field of an absent key that belongs to another word holds the
// key's default.
static void fill_field(dt_config *c, const dt_config_key *row, void *field, const dt_cnode *n) {
    // lists give their first item
    const char *text = n ? dt_cnode_str(n) : dt_config_has_default(row) ? row->default_text : NULL;
    const bool is_auto = !text || dt_config_is_instead(row->range, text); // of a number
    bool truth = false;
    switch ((dt_config_form)row->form) {
    case FORM_INT:
        *(int64_t *)field = text ? int_of(row, text) : 0;
        break;
    case FORM_OPT_INT:
        // absent: all zeros
        *(dt_opt_int *)field = text ? (dt_opt_int){true, int_of(row, text)} : (dt_opt_int){0};
        break;
    case FORM_AUTO_INT:
        // stays auto until dt_config_set_int writes the resolved value
        *(dt_auto_int *)field = is_auto ? (dt_auto_int){true, 0} : (dt_auto_int){false, int_of(row, text)};
        break;
    case FORM_REAL:
        *(double *)field = text ? real_of(row, text) : 0;
        break;
    case FORM_OPT_REAL:
        *(dt_opt_real *)field = text ? (dt_opt_real){true, real_of(row, text)} : (dt_opt_real){0};
        break;
    case FORM_AUTO_REAL:
        *(dt_auto_real *)field = is_auto ? (dt_auto_real){true, 0} : (dt_auto_real){false, real_of(row, text)};
        break;
    case FORM_BOOL:
        *(bool *)field = text && dt_config_parse_bool(text, &truth) && truth; // absent: false
        break;
    case FORM_TEXT:
        *(const char **)field = text; // borrowed from the tree
        break;
    case FORM_NODE:
        *(const dt_cnode **)field = n; // NULL: absent
        break;
    case FORM_AMOUNT:
        *(dt_amount *)field = (dt_amount){0}; // unit DT_UNIT_NONE: absent
        if (text && !dt_config_parse_amount(text, field)) dt_config_programming_error(row->path, "not an amount");
        break;
    case FORM_WORDS:
        *(dt_words *)field = n ? words_of(c, row, n) : (dt_words){0};
        break;
    case FORM_WORD:
        *(dt_word *)field = text ? config_values_word_of(row, text) : 0; // a dt_word has the size of each enum
        break;
    }
}

// An array of structs in dt_config, one for each name at `path`, and one more that holds the defaults. Every such struct
// begins with its id.
typedef struct array {
    const char *path;            // in dt_config: "data.fields", …
    size_t items, n_items, size; // places of pointer and count in dt_config; bytes of a struct
} array;
// from EACH of config.def only
#define SECTION(name)
#define END(name)
#define END_EACH(many)
#define MEMBER(...)
#define KEY(...)
#define KEY_AS(...)
#define KEY_IN(...)
#define OF(...)
#define OF_IN(...)
#define EACH(one, section, many)                                                                                       \
    [EACH_##one] = {#section "." #many, offsetof(dt_config, section.many), offsetof(dt_config, section.n_##many),      \
                    sizeof(dt_config_##one)},
static const array arrays[] = {
#include "config.def"
};

static void fill_array(dt_config *c, const array *a, int each) {
    const dt_cnode *map = dt_config_find(c, a->path);
    const size_t n = map ? map->n : 0;
    char *items = dt_arena_alloc(&c->arena, (n + 1) * a->size); // n + 1: the last element holds defaults
    size_t n_rows;
    const dt_config_key *rows = dt_config_keys(&n_rows);
    for (size_t i = 0; i <= n; i++) {
        char *item = items + i * a->size;
        *(const char **)item = i < n ? map->keys[i] : NULL; // the id, the struct's first member
        for (size_t k = 0; k < n_rows; k++)
            if (rows[k].each == each)
                fill_field(c, &rows[k], item + rows[k].offset, // offset in the struct
                           i < n ? dt_cnode_get(map->items[i], strrchr(rows[k].path, '.') + 1) : NULL);
    }
    // fields hold pointers of their own type; all object pointers have one representation here
    *(char **)((char *)c + a->items) = items;
    *(int *)((char *)c + a->n_items) = (int)n;
}

void dt_config_fill(dt_config *c) {
    size_t n_rows;
    const dt_config_key *rows = dt_config_keys(&n_rows);
    for (size_t k = 0; k < n_rows; k++)
        if (rows[k].each == EACH_NONE)
            fill_field(c, &rows[k], (char *)c + rows[k].offset, dt_config_find(c, rows[k].path));
    for (int each = EACH_NONE + 1; each < (int)(sizeof arrays / sizeof *arrays); each++) // EACH_NONE is not an array
        fill_array(c, &arrays[each], each);
}

// -- reading ---------------------------------------------------------------------------------
int64_t dt_answer_int(dt_auto_int a, const char *name) {
    // reading auto before run_open resolved the value is a bug
    if (a.is_auto) dt_config_programming_error(name, "is auto and was not resolved");
    return a.answer;
}

double dt_answer_real(dt_auto_real a, const char *name) {
    if (a.is_auto) dt_config_programming_error(name, "is auto and was not resolved");
    return a.answer;
}

bool dt_words_have(const dt_words *w, dt_word word) {
    for (int i = 0; i < w->n; i++)
        if (w->items[i] == word) return true;
    return false;
}

bool dt_config_is_auto(const dt_config *c, dt_key key) {
    return dt_config_node_is_auto(dt_config_find(c, dt_config_row_of(key)->path));
}

const char *dt_config_text(const dt_config *c, dt_key key) {
    const dt_cnode *n = dt_config_find(c, dt_config_row_of(key)->path);
    return n ? dt_cnode_str(n) : NULL;
}

const char *dt_config_where(const dt_config *c, dt_key key) {
    const dt_cnode *n = dt_config_find_nearest(c, dt_config_row_of(key)->path);
    return n ? n->where : c->file;
}

static const char *text_at(const dt_config *c, const char *path, const dt_config_key **row) {
    // a path composed by the program: a wrong one is a bug
    if (dt_config_match_path(path, row) != MATCH_LEAF) dt_config_programming_error(path, "not in config.def");
    const dt_cnode *n = dt_config_find(c, path);
    return n ? dt_cnode_str(n) : NULL;
}

bool dt_config_number(const dt_config *c, const char *path, double *out) {
    const dt_config_key *row;
    const char *text = text_at(c, path, &row);
    bool truth = false;
    if (text && dt_config_parse_bool(text, &truth)) // true counts as 1
        *out = truth;
    else if (text)
        *out = real_of(row, text);
    return text != NULL;
}

dt_amount dt_config_amount(const dt_config *c, const char *path) {
    const dt_config_key *row;
    const char *text = text_at(c, path, &row);
    dt_amount v = {0};
    if (text && !dt_config_parse_amount(text, &v)) dt_config_programming_error(path, "not an amount");
    return v;
}

const dt_config_key *dt_config_owned(const dt_config *c, dt_key key, int i) {
    const dt_config_key *row = dt_config_row_of(key), *owned;
    // keys that the chosen word owns
    const char *name = dt_config_words(row)[config_values_word_of(row, dt_config_text(c, key))].keys;
    for (; name && *name; name += strcspn(name, " "), name += *name == ' ') {
        if (i-- > 0) continue; // the i-th
        const int parent = (int)(strrchr(row->path, '.') - row->path);
        char *path = dt_xprintf("%.*s.%.*s", parent, row->path, (int)strcspn(name, " "), name);
        if (dt_config_match_path(path, &owned) != MATCH_LEAF) dt_config_programming_error(path, "not in config.def");
        free(path);
        return owned;
    }
    return NULL;
}

// -- setting ---------------------------------------------------------------------------------
static void config_values_put(dt_config *c, const dt_config_key *row, dt_cnode *n) {
    // the same checks as for the user's values
    if (dt_config_check_value(c, row, row->path, n) != DT_OK || dt_config_put(c, row->path, n) != DT_OK)
        dt_config_programming_error(row->path, dt_error_message());
    fill_field(c, row, (char *)c + row->offset, n);
}

void dt_config_set_text(dt_config *c, dt_key key, const char *text) {
    dt_cnode *n = dt_config_new_node(&c->arena, DT_C_SCALAR, "set by dtrain");
    n->text = dt_arena_strdup(&c->arena, text);              // the caller's text may go
    const dt_config_type kind = dt_config_row_of(key)->kind; // a name such as 7 or null stays a name
    // numbers must stay plain to read back as such
    n->quoted = kind == DT_T_STR || kind == DT_T_STRS || kind == DT_T_SETS;
    config_values_put(c, dt_config_row_of(key), n);
}

void dt_config_set_entry(dt_config *c, dt_key key, const char *name, const char *yaml) {
    const dt_config_key *row = dt_config_row_of(key);
    dt_cnode *n;
    if (dt_config_read_yaml(&n, &c->arena, "dtrain", "set by dtrain", yaml, strlen(yaml)) != DT_OK ||
        dt_config_put(c, dt_arena_printf(&c->arena, "%s.%s", row->path, name), n) != DT_OK) // below the map of the row
        dt_config_programming_error(row->path, dt_error_message());
    config_values_put(c, row, dt_config_find(c, row->path));
}

static void add_numbers(dt_config *c, dt_cnode *map, const char *key, const double *v, int n) {
    dt_cnode *list = dt_config_new_node(&c->arena, DT_C_LIST, "set by dtrain");
    for (int i = 0; i < n; i++) {
        char text[DT_REAL_CHARS];
        dt_cnode *item = dt_config_new_node(&c->arena, DT_C_SCALAR, "set by dtrain");
        // the shortest text that reads back to the same double
        item->text = dt_arena_strdup(&c->arena, dt_real_text(text, v[i]));
        dt_config_add_item(&c->arena, list, NULL, item);
    }
    dt_config_add_item(&c->arena, map, key, list); // list of f64, one per channel
}

void dt_config_set_moments(dt_config *c, int field, const double *mean, const double *std, int n) {
    dt_config_field *f = &c->data.fields[field];
    dt_cnode *map = dt_config_new_node(&c->arena, DT_C_MAP, "set by dtrain");
    add_numbers(c, map, "mean", mean, n);
    add_numbers(c, map, "std", std, n);
    // as if written in the file, so the dump has the numbers
    if (dt_config_put(c, dt_arena_printf(&c->arena, "data.fields.%s.normalize", f->id), map) != DT_OK)
        dt_config_programming_error("data.fields.*.normalize", dt_error_message());
    f->normalize = map; // the field follows the tree
}

void dt_config_take_moments(dt_config *c, const dt_config *from, bool any_source) {
    for (int i = 0; i < c->data.n_fields; i++) {
        const char *id = c->data.fields[i].id;
        // normalize: auto of this config takes the other's numbers
        const char *path = dt_arena_printf(&c->arena, "data.fields.%s.normalize", id);
        bool numeric;
        if (!any_source && // another column has other statistics
            !dt_config_same_at(c, from, dt_arena_printf(&c->arena, "data.fields.%s.source", id), &numeric))
            continue;
        const dt_cnode *mine = dt_config_find(c, path), *is = dt_config_find(from, path);
        // this one auto, the other one resolved
        if (!mine || !is || !dt_config_node_is_auto(mine) || dt_config_node_is_auto(is)) continue;
        dt_cnode *n = dt_config_copy_node(&c->arena, is);
        if (dt_config_put(c, path, n) == DT_OK) c->data.fields[i].normalize = n;
    }
}

void dt_config_set_int(dt_config *c, dt_key key, int64_t value) {
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    dt_config_set_text(c, key, text);
}

void dt_config_set_word(dt_config *c, dt_key key, dt_word word) {
    const char *p = dt_config_row_of(key)->range;
    for (; word > 0 && *p; word--) p += strcspn(p, "|"), p += *p == '|'; // the word-th alternative
    dt_config_set_text(c, key, dt_arena_printf(&c->arena, "%.*s", (int)strcspn(p, "|"), p));
}

void dt_config_set_same(dt_config *c, dt_key key, const dt_config *from) {
    const dt_cnode *n = dt_config_find(from, dt_config_row_of(key)->path); // NULL: absent there, so absent here
    if (n)
        config_values_put(c, dt_config_row_of(key), dt_config_copy_node(&c->arena, n));
    else
        dt_config_unset(c, key);
}

void dt_config_unset(dt_config *c, dt_key key) {
    const dt_config_key *row = dt_config_row_of(key);
    if (dt_config_find(c, row->path)) dt_config_remove(c, row->path); // removed from the tree: the dump lacks the key
    fill_field(c, row, (char *)c + row->offset, NULL);
}

void dt_config_unset_section(dt_config *c, const char *section) {
    const size_t n = strlen(section);
    size_t n_rows;
    const dt_config_key *rows = dt_config_keys(&n_rows);
    for (size_t k = 0; k < n_rows; k++)
        // whole segments: "data" is not "database"
        if (strncmp(rows[k].path, section, n) == 0 && rows[k].path[n] == '.') dt_config_unset(c, rows[k].offset);
}

// ---- config scalar ------------------------------------------------------------------------------------------------

// Parses scalars, and compares values.
//
// Parsing is strict: the whole text must be the value, without hexadecimal, NaN, infinity or "yes".

bool dt_config_parse_int(const char *text, int64_t *out) {
    const char *p = text + (*text == '-' || *text == '+'); // one sign
    if (!*p || strspn(p, "0123456789") != strlen(p)) return false;
    errno = 0; // strtoll reports overflow through errno only
    *out = strtoll(text, NULL, 10);
    return errno == 0;
}

bool dt_config_parse_range(const char *text, int64_t *first, int64_t *last) {
    char *end;
    errno = 0;
    *first = strtoll(text, &end, 10);
    if (end == text || strncmp(end, "..", 2) != 0) return false; // FROM..TO
    const char *second = end + 2;
    *last = strtoll(second, &end, 10);
    return end > second && *end == 0 && errno == 0; // nothing behind
}

// A decimal number at the start of `text`; sets *end behind it.
static bool leading_number(const char *text, double *out, const char **end) {
    const char *p = text + (*text == '-' || *text == '+');
    size_t whole = strspn(p, "0123456789"), part = 0;
    p += whole;
    if (*p == '.') { // ".5" and "5." are numbers
        part = strspn(p + 1, "0123456789");
        p += 1 + part;
    }
    if (whole + part == 0) return false; // "." alone
    if (*p == 'e' || *p == 'E') {
        const char *q = p + 1 + (p[1] == '-' || p[1] == '+'); // "1e" is a number and a rest
        size_t digits = strspn(q, "0123456789");
        if (digits) p = q + digits;
    }
    char *stop;
    *out = strtod(text, &stop);
    *end = p;
    return stop == p && isfinite(*out); // strtod must return the same; a locale with a comma would not
}

bool dt_config_parse_real(const char *text, double *out) {
    const char *end;
    return leading_number(text, out, &end) && *end == '\0';
}

bool dt_config_parse_bool(const char *text, bool *out) {
    static const char *const words[] = {"false", "true", "False", "True", "FALSE", "TRUE"};
    for (int i = 0; i < 6; i++)
        if (strcmp(text, words[i]) == 0) { // odd: true
            *out = i % 2;
            return true;
        }
    return false;
}

// The unit behind a number, spaces skipped.
static bool number_and_unit(const char *text, double *value, const char **unit) {
    if (!leading_number(text, value, unit)) return false;
    while (**unit == ' ') ++*unit; // "10 steps" and "10steps"
    return true;
}

bool dt_config_parse_time(const char *text, double *seconds) {
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"", 1}, {"s", 1}, {"ms", 1e-3}, {"m", 60}, {"min", 60}, {"h", 3600}, {"d", 86400}};
    double value;
    const char *unit;
    if (!number_and_unit(text, &value, &unit)) return false;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(unit, units[i].unit) == 0) {
            *seconds = value * units[i].seconds;
            return isfinite(*seconds); // 1e308h overflows
        }
    return false;
}

// Whole bytes up to 2^53, which a double holds exactly.
bool dt_config_parse_bytes(const char *text, double *bytes) {
    static const struct {
        const char *unit;
        double bytes;
    } units[] = {{"", 1},
                 {"B", 1},
                 {"kB", 1e3},
                 {"KB", 1e3},
                 {"MB", 1e6},
                 {"GB", 1e9},
                 {"TB", 1e12},
                 {"KiB", 1024},
                 {"K", 1024},
                 {"MiB", 1048576},
                 {"M", 1048576},
                 {"GiB", 1073741824},
                 {"G", 1073741824},
                 {"TiB", 1099511627776},
                 {"T", 1099511627776}};
    // K, M, G alone are powers of two, as in dd and Slurm
    double value;
    const char *unit;
    if (!number_and_unit(text, &value, &unit)) return false;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(unit, units[i].unit) == 0) {
            *bytes = floor(value * units[i].bytes); // "1.5KiB" is 1,536
            return *bytes >= 0 && *bytes <= 0x1p53;
        }
    return false;
}

bool dt_config_parse_amount(const char *text, dt_amount *out) {
    const char *unit;
    if (!number_and_unit(text, &out->value, &unit) || out->value < 0) return false; // "-1 step" is none
    if (!*unit || !strcmp(unit, "step") || !strcmp(unit, "steps"))
        out->unit = DT_UNIT_STEPS;
    else if (!strcmp(unit, "epoch") || !strcmp(unit, "epochs"))
        out->unit = DT_UNIT_EPOCHS;
    else if (!strcmp(unit, "%"))
        out->unit = DT_UNIT_PERCENT;
    else
        return false;
    // whole steps below 2^50
    if (out->unit == DT_UNIT_STEPS) return out->value == floor(out->value) && out->value < 1e15;
    return out->unit != DT_UNIT_PERCENT || out->value <= 100; // at most the whole run
}

// -- equal values ----------------------------------------------------------------------------
static bool same_number(const char *x, const char *y) {
    int64_t i, j;
    double v, w;
    if (dt_config_parse_int(x, &i) && dt_config_parse_int(y, &j)) return i == j; // all 64 bits of seeds
    return dt_config_parse_real(x, &v) && dt_config_parse_real(y, &w) && v == w;
}

static bool same_scalar(dt_config_type type, const char *x, const char *y) {
    double v, w;
    bool b, d;
    dt_amount m, n;
    if (type == DT_T_INT || type == DT_T_REAL || type == DT_T_PART) return same_number(x, y);
    if (type == DT_T_TIME && dt_config_parse_time(x, &v) && dt_config_parse_time(y, &w)) return v == w;
    if (type == DT_T_BYTES && dt_config_parse_bytes(x, &v) && dt_config_parse_bytes(y, &w)) return v == w;
    if (type == DT_T_BOOL && dt_config_parse_bool(x, &b) && dt_config_parse_bool(y, &d)) return b == d;
    if (type == DT_T_AMOUNT && dt_config_parse_amount(x, &m) && dt_config_parse_amount(y, &n))
        return m.value == n.value && m.unit == n.unit;
    return false;
}

// Inside lists and maps no row gives a type: text that reads as a number is one, unless it is in quotes.
static bool same_item(const dt_cnode *x, const dt_cnode *y) {
    double v;
    if (!y || x->kind != y->kind || x->n != y->n) return false;
    if (x->kind == DT_C_SCALAR) {
        // null equals null, in any spelling
        if (dt_config_is_null(x) || dt_config_is_null(y)) return dt_config_is_null(x) && dt_config_is_null(y);
        if (!x->quoted && !y->quoted && same_number(x->text, y->text)) return true;    // 1.0 and 1
        if (x->quoted != y->quoted && dt_config_parse_real(x->text, &v)) return false; // 1 and "1" differ
        return strcmp(x->text, y->text) == 0;
    }
    for (size_t i = 0; i < x->n; i++)
        // maps: in any order
        if (!same_item(x->items[i], x->kind == DT_C_MAP ? dt_cnode_get(y, x->keys[i]) : y->items[i])) return false;
    return true;
}

bool dt_config_same_value(dt_config_type type, const dt_cnode *x, const dt_cnode *y) {
    // [8] and 8 were brought into one form before
    if (x->kind != DT_C_SCALAR || y->kind != DT_C_SCALAR) return same_item(x, y);
    return strcmp(x->text, y->text) == 0 || same_scalar(type, x->text, y->text); // equal text is equal
}

static bool same_but_paths(const dt_cnode *x, const dt_cnode *y) {
    bool same = x->kind == y->kind && x->n == y->n;
    for (size_t i = 0; same && i < x->n; i++) {
        const bool map = x->kind == DT_C_MAP;
        const dt_cnode *b = map ? dt_cnode_get(y, x->keys[i]) : y->items[i];
        if (map && b && strcmp(x->keys[i], "path") == 0) continue;               // the path of a data set may differ
        same = map ? same_item(x->items[i], b) : same_but_paths(x->items[i], b); // y may lack the key: b is NULL
    }
    return same;
}

bool dt_config_moved(const dt_config *a, const dt_config *b, const char *key) {
    const dt_cnode *x = dt_config_find(a, key), *y = dt_config_find(b, key);
    return x && y && !same_item(x, y) && same_but_paths(x, y); // the only difference is paths
}

double dt_amount_exact(dt_amount a, int64_t total_steps, int64_t steps_per_epoch) {
    if (a.unit == DT_UNIT_EPOCHS) return a.value * (double)steps_per_epoch; // fractions of an epoch stay fractions
    if (a.unit == DT_UNIT_PERCENT) return a.value / 100.0 * (double)total_steps;
    return a.value;
}

int64_t dt_amount_steps(dt_amount a, int64_t total_steps, int64_t steps_per_epoch) {
    const double steps = dt_amount_exact(a, total_steps, steps_per_epoch);
    if (!(steps > 0.0)) return 0;                                 // also NaN
    return steps < 1.0 ? 1 : (int64_t)llround(fmin(steps, 9e18)); // at least one step; clamped below INT64_MAX
}
