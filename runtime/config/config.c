// config.c: loading (file, then overrides, then the check), and the typed getters.
//
// Getters parse the scalar's text each time: they are for set-up, never for a step. A key that the
// table does not have is a programming error and ends the program with its name, also in a release
// build: a mistyped key must not read as zero.
#include "config/config.h"
#include "base/io.h"
#include "config_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// -- nodes -----------------------------------------------------------------------------------
dt_ckind dt_cnode_kind(const dt_cnode *n) {
    return n->kind;
}
size_t dt_cnode_size(const dt_cnode *n) {
    return n->n;
}
const dt_cnode *dt_cnode_item(const dt_cnode *n, size_t i) {
    return i < n->n ? n->items[i] : NULL;
}
const char *dt_cnode_where(const dt_cnode *n) {
    return n->where;
}

const char *dt_cnode_key(const dt_cnode *n, size_t i) {
    return n->kind == DT_C_MAP && i < n->n ? n->keys[i] : NULL;
}

static dt_cnode *get(const dt_cnode *n, const char *key, size_t length) {
    if (n->kind != DT_C_MAP) return NULL;
    for (size_t i = 0; i < n->n; i++)
        if (strlen(n->keys[i]) == length && memcmp(n->keys[i], key, length) == 0)
            return n->items[i];
    return NULL;
}

const dt_cnode *dt_cnode_get(const dt_cnode *n, const char *key) {
    return get(n, key, strlen(key));
}

// A list's text is that of its first item, so that a STRS of one path reads like a STR.
const char *dt_cnode_str(const dt_cnode *n) {
    if (n->kind == DT_C_LIST && n->n > 0) n = n->items[0];
    return n->kind == DT_C_SCALAR ? n->text : NULL;
}

bool dt_cnode_real(const dt_cnode *n, double *out) {
    return n->kind == DT_C_SCALAR && !n->quoted && config_parse_real(n->text, out);
}

dt_cnode *config_find(const dt_config *c, const char *path) {
    dt_cnode *n = c->root;
    while (n && *path) {
        size_t length = strcspn(path, ".");
        n = get(n, path, length);
        path += length + (path[length] == '.');
    }
    return n;
}

const dt_cnode *config_find_nearest(const dt_config *c, const char *path) {
    char part[256];
    const dt_cnode *n;
    snprintf(part, sizeof part, "%s", path);
    while (!(n = config_find(c, part)) && strrchr(part, '.')) *strrchr(part, '.') = '\0';
    return n;
}

static void set_item(dt_config *c, dt_cnode *map, const char *key, dt_cnode *item) {
    for (size_t i = 0; i < map->n; i++)
        if (strcmp(map->keys[i], key) == 0) {
            map->items[i] = item;
            return;
        }
    config_add_item(&c->arena, map, key, item);
}

dt_status config_put(dt_config *c, const char *path, dt_cnode *item) {
    dt_cnode *n = c->root;
    const char *p = path;
    for (;;) {
        const char *key = dt_arena_printf(&c->arena, "%.*s", (int)strcspn(p, "."), p);
        p += strlen(key);
        if (*p == '\0') {
            set_item(c, n, key, item);
            return DT_OK;
        }
        p++;
        dt_cnode *child = get(n, key, strlen(key));
        if (!child || config_is_null(child)) {
            child = config_new_node(&c->arena, DT_C_MAP, item->where);
            set_item(c, n, key, child);
        }
        if (child->kind != DT_C_MAP)
            return dt_fail(DT_E_USAGE, "%s: cannot set %s: '%s' is not a map at %s", item->where,
                           config_shown(&c->arena, path), key, child->where);
        n = child;
    }
}

// -- loading ---------------------------------------------------------------------------------
// An override that is a map is merged into the map at its path, as deep as the table goes. Any other value replaces.
static dt_status merge(dt_config *c, const char *path, dt_cnode *item) {
    const dt_cnode *old = config_find(c, path);
    if (!old || old->kind != DT_C_MAP || item->kind != DT_C_MAP ||
        config_match_path(path, NULL) != MATCH_INNER)
        return config_put(c, path, item);
    for (size_t i = 0; i < item->n; i++)
        DT_TRY(merge(c, dt_arena_printf(&c->arena, "%s.%s", path, item->keys[i]), item->items[i]));
    return DT_OK;
}

static bool is_path(const char *s) {
    size_t segments = 1;
    for (const char *p = s; *p; p++) {
        if (*p == '.' && ++segments > CONFIG_MAX_DEPTH) return false;
        if (*p == '.' && (p == s || p[1] == '.' || p[1] == '\0')) return false;
        if ((unsigned char)*p <= ' ') return false;
    }
    return *s && strlen(s) <= 10 * CONFIG_MAX_KEY_BYTES;
}

static dt_status apply_override(dt_config *c, const char *text) {
    static const char place[] = "command line";
    const char *equals = strchr(text, '=');
    char *path = dt_arena_printf(&c->arena, "%.*s", equals ? (int)(equals - text) : 0, text);
    if (!is_path(path))
        return dt_fail(DT_E_USAGE,
                       "%s: '%s' is not an override; expected key=value, such as "
                       "train.epochs=2",
                       place, config_shown(&c->arena, text));
    if (config_match_path(path, NULL) == MATCH_NONE)
        return dt_fail(DT_E_USAGE, "%s: unknown key '%s'%s", place, config_shown(&c->arena, path),
                       config_suggest_key(&c->arena, path));
    dt_cnode *item;
    dt_status st = config_read_yaml(&item, &c->arena, place, place, equals + 1, strlen(equals + 1));
    if (st != DT_OK) return dt_fail_context(st, "override %s", config_shown(&c->arena, path));
    return merge(c, path, item);
}

static dt_status build(dt_config *c, const char *text, size_t n_bytes, const char *const *overrides,
                       size_t n_overrides) {
    DT_TRY(config_read_yaml(&c->root, &c->arena, c->name, NULL, text, n_bytes));
    if (config_is_null(c->root)) // an empty file: overrides may still say everything
        c->root = config_new_node(&c->arena, DT_C_MAP, c->root->where);
    if (c->root->kind != DT_C_MAP)
        return dt_fail(DT_E_USAGE, "%s: not a config; expected a map with %s", c->root->where,
                       "run, data, model and train");
    for (size_t i = 0; i < n_overrides; i++) DT_TRY(apply_override(c, overrides[i]));
    return config_check_tree(c);
}

dt_status dt_config_parse(dt_config **out, const char *name, const char *text, size_t n_bytes,
                          const char *const *overrides, size_t n_overrides) {
    dt_config *c = dt_xcalloc(1, sizeof *c);
    dt_arena_init(&c->arena);
    c->name = dt_arena_strdup(&c->arena, name);
    *out = NULL;
    dt_status st = build(c, text, n_bytes, overrides, n_overrides);
    if (st == DT_OK)
        *out = c;
    else
        dt_config_destroy(c);
    return st;
}

dt_status dt_config_load(dt_config **out, const char *path, const char *const *overrides,
                         size_t n_overrides) {
    bool is_stdin = strcmp(path, "-") == 0;
    char *text;
    size_t n;
    *out = NULL;
    DT_TRY(
        dt_io_read_file(&text, &n, is_stdin ? "/dev/stdin" : path, CONFIG_MAX_BYTES, DT_E_USAGE));
    dt_status st = dt_config_parse(out, is_stdin ? "stdin" : path, text, n, overrides, n_overrides);
    free(text);
    return st;
}

void dt_config_destroy(dt_config *c) {
    if (!c) return;
    dt_arena_fini(&c->arena);
    free(c);
}

// -- getters ---------------------------------------------------------------------------------
static void programming_error(const char *key, const char *what) {
    fprintf(stderr, "dtrain: config key '%s': %s\n", key, what);
    abort();
}

static const dt_cnode *lookup(const dt_config *c, const char *key) {
    if (config_match_path(key, NULL) == MATCH_NONE) programming_error(key, "not in config.def");
    return config_find(c, key);
}

static const char *scalar(const dt_config *c, const char *key) {
    const dt_cnode *n = lookup(c, key);
    const char *text = n ? dt_cnode_str(n) : NULL;
    if (!text) programming_error(key, "asked for, but absent (dt_config_has) or not one value");
    return text;
}

bool dt_config_has(const dt_config *c, const char *key) {
    return lookup(c, key) != NULL;
}
const dt_cnode *dt_config_node(const dt_config *c, const char *key) {
    return lookup(c, key);
}
const char *dt_config_str(const dt_config *c, const char *key) {
    return scalar(c, key);
}

bool dt_config_is_auto(const dt_config *c, const char *key) {
    return config_is_auto(lookup(c, key));
}

// The word's place in the range of the key's row. Loading has checked the value, so it is there.
static int word_index(const char *key, const char *word) {
    const dt_config_key *row;
    if (config_match_path(key, &row) != MATCH_LEAF) programming_error(key, "not in config.def");
    int i = dt_word_index(row->range, word);
    if (i < 0) programming_error(key, "is no list of words");
    return i;
}

int dt_config_enum(const dt_config *c, const char *key) {
    return word_index(key, scalar(c, key));
}

const dt_config_key *dt_config_owned(const dt_config *c, const char *key, int i) {
    const dt_config_key *row;
    const int word = dt_config_enum(c, key);
    config_match_path(key, &row);
    const char *name = dt_config_words(row)[word].keys;
    for (; name && *name; name += strcspn(name, " "), name += *name == ' ') {
        if (i-- > 0) continue;
        const int parent = (int)(strrchr(key, '.') - key);
        char *path = dt_xprintf("%.*s.%.*s", parent, key, (int)strcspn(name, " "), name);
        if (config_match_path(path, &row) != MATCH_LEAF)
            programming_error(path, "not in config.def");
        free(path);
        return row;
    }
    return NULL;
}

bool dt_config_lists(const dt_config *c, const char *key, int word) {
    const dt_cnode *list = lookup(c, key);
    for (size_t i = 0; list && i < list->n; i++)
        if (word_index(key, list->items[i]->text) == word) return true;
    return false;
}

int64_t dt_config_int(const dt_config *c, const char *key) {
    int64_t v = 0;
    if (!config_parse_int(scalar(c, key), &v)) programming_error(key, "not a whole number");
    return v;
}

double dt_config_real(const dt_config *c, const char *key) {
    double v = 0;
    bool yes = false;
    if (config_parse_bool(scalar(c, key), &yes)) return yes;
    if (!config_parse_real(scalar(c, key), &v)) programming_error(key, "not a number");
    return v;
}

bool dt_config_bool(const dt_config *c, const char *key) {
    bool v = false;
    if (!config_parse_bool(scalar(c, key), &v)) programming_error(key, "not true or false");
    return v;
}

double dt_config_seconds(const dt_config *c, const char *key) {
    double v = 0;
    if (!config_parse_time(scalar(c, key), &v)) programming_error(key, "not a time");
    return v;
}

int64_t dt_config_bytes(const dt_config *c, const char *key) {
    double v = 0;
    if (!dt_config_parse_bytes(scalar(c, key), &v)) programming_error(key, "not a size");
    return (int64_t)v;
}

dt_amount dt_config_amount(const dt_config *c, const char *key) {
    dt_amount v = {0};
    if (!config_parse_amount(scalar(c, key), &v)) programming_error(key, "not an amount");
    return v;
}

void dt_config_resolve(dt_config *c, const char *key, const char *text) {
    const dt_config_key *row;
    dt_cnode *n;
    if (config_match_path(key, &row) != MATCH_LEAF) programming_error(key, "not in config.def");
    if (config_read_yaml(&n, &c->arena, "resolved", "resolved", text, strlen(text)) != DT_OK ||
        config_check_value(c, row, key, n) != DT_OK || config_put(c, key, n) != DT_OK)
        programming_error(key, dt_error_message());
}

dt_status dt_config_fail(const dt_config *c, const char *key, const char *fmt, ...) {
    char text[1024];
    const dt_cnode *n = config_find_nearest(c, key);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return dt_fail(DT_E_USAGE, "%s: %s", n ? n->where : c->name, text);
}
