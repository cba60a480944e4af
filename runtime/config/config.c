// config.c: nodes, and loading: file, then overrides, then the check, then the values into their fields.
#include "config/config.h"
#include "base/io.h"
#include "base/text.h"
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
    return i < n->n ? n->items[i] : NULL; // NULL past the end
}
const char *dt_cnode_where(const dt_cnode *n) {
    return n->where;
}

const char *dt_cnode_key(const dt_cnode *n, size_t i) {
    return n->kind == DT_C_MAP && i < n->n ? n->keys[i] : NULL; // borrowed; lists have no keys
}

static dt_cnode *config_get(const dt_cnode *n, const char *key, size_t length) {
    if (n->kind != DT_C_MAP) return NULL;
    for (size_t i = 0; i < n->n; i++)
        // length, as key may end at a dot of a path
        if (strlen(n->keys[i]) == length && memcmp(n->keys[i], key, length) == 0) return n->items[i];
    return NULL;
}

const dt_cnode *dt_cnode_get(const dt_cnode *n, const char *key) {
    return config_get(n, key, strlen(key));
}

// A list's text is that of its first item, so that a STRS of one path reads like a STR.
const char *dt_cnode_str(const dt_cnode *n) {
    // also the way to a single path of data.path
    if (n->kind == DT_C_LIST && n->n > 0) n = n->items[0];
    return n->kind == DT_C_SCALAR ? n->text : NULL;
}

bool dt_cnode_real(const dt_cnode *n, double *out) {
    return n->kind == DT_C_SCALAR && !n->quoted && dt_config_parse_real(n->text, out); // "0.5" in quotes is text
}

dt_cnode *dt_config_find(const dt_config *c, const char *path) {
    dt_cnode *n = c->root; // "": the root itself
    while (n && *path) {
        size_t length = strcspn(path, "."); // keys have no dots
        n = config_get(n, path, length);
        path += length + (path[length] == '.'); // past the dot, if there is one
    }
    return n;
}

const dt_cnode *dt_config_find_nearest(const dt_config *c, const char *path) {
    char part[256]; // checked paths are shorter; a longer one is cut and finds a parent
    const dt_cnode *n;
    snprintf(part, sizeof part, "%s", path);
    // drops the last part until something is there
    while (!(n = dt_config_find(c, part)) && strrchr(part, '.')) *strrchr(part, '.') = '\0';
    return n;
}

static void set_item(dt_config *c, dt_cnode *map, const char *key, dt_cnode *item) {
    for (size_t i = 0; i < map->n; i++)
        if (strcmp(map->keys[i], key) == 0) {
            map->items[i] = item; // in place: the dump keeps the file's order
            return;
        }
    dt_config_add_item(&c->arena, map, key, item);
}

dt_status dt_config_put(dt_config *c, const char *path, dt_cnode *item) {
    dt_cnode *n = c->root;
    const char *p = path;
    for (;;) {
        const char *key = dt_arena_printf(&c->arena, "%.*s", (int)strcspn(p, "."), p); // the arena keeps it for the map
        p += strlen(key);
        if (*p == '\0') {
            set_item(c, n, key, item);
            return DT_OK;
        }
        p++;
        dt_cnode *child = config_get(n, key, strlen(key));
        if (!child || dt_config_is_null(child)) { // "data:" with nothing behind is an empty map
            // places in messages are those of the new value
            child = dt_config_new_node(&c->arena, DT_C_MAP, item->where);
            set_item(c, n, key, child);
        }
        if (child->kind != DT_C_MAP)
            // a scalar or list of the user must not vanish silently
            return dt_fail(DT_E_USAGE, "%s: cannot set %s: '%s' is not a map at %s", item->where,
                           dt_config_shown(&c->arena, path), key, child->where);
        n = child;
    }
}

void dt_config_remove(dt_config *c, const char *path) {
    const char *dot = strrchr(path, '.'); // every key of the table lies in a section
    dt_cnode *map = dt_config_find(c, dt_arena_printf(&c->arena, "%.*s", (int)(dot - path), path));
    for (size_t i = 0; map && i < map->n; i++) { // absent: nothing to do
        if (strcmp(map->keys[i], dot + 1) != 0) continue;
        memmove(&map->keys[i], &map->keys[i + 1], (map->n - i - 1) * sizeof *map->keys); // order stays
        memmove(&map->items[i], &map->items[i + 1], (map->n - i - 1) * sizeof *map->items);
        map->n--;
        return;
    }
}

// -- loading ---------------------------------------------------------------------------------
// An override that is a map is merged into the map at its path, as deep as the table goes. Any other value replaces.
static dt_status config_merge(dt_config *c, const char *path, dt_cnode *item) {
    const dt_cnode *old = dt_config_find(c, path);
    // a map below a LIST or MAP row is one value
    if (!old || old->kind != DT_C_MAP || item->kind != DT_C_MAP || dt_config_match_path(path, NULL) != MATCH_INNER)
        return dt_config_put(c, path, item);
    for (size_t i = 0; i < item->n; i++)
        // depth is bounded by CONFIG_MAX_DEPTH of the override's own YAML
        DT_TRY(config_merge(c, dt_arena_printf(&c->arena, "%s.%s", path, item->keys[i]), item->items[i]));
    return DT_OK;
}

static bool config_is_path(const char *s) {
    // bounds depth and length before any node is made
    size_t segments = 1;
    for (const char *p = s; *p; p++) {
        if (*p == '.' && ++segments > CONFIG_MAX_DEPTH) return false;
        if (*p == '.' && (p == s || p[1] == '.' || p[1] == '\0')) return false; // an empty segment
        if ((unsigned char)*p <= ' ') return false;                             // blanks and control characters
    }
    return *s && strlen(s) <= 10 * CONFIG_MAX_KEY_BYTES; // ten keys of the longest length
}

static dt_status apply_override(dt_config *c, const char *text) {
    static const char place[] = "command line";
    const char *equals = strchr(text, '='); // the first: values may hold =
    const char *path = dt_arena_printf(&c->arena, "%.*s", equals ? (int)(equals - text) : 0, text);
    if (!config_is_path(path)) // no "=": the empty path fails here
        return dt_fail(DT_E_USAGE,
                       "%s: '%s' is not an override; expected key=value, such as "
                       "train.epochs=2",
                       place, dt_config_shown(&c->arena, text));
    // known before the value is parsed: a typo in a key is the likelier error
    if (dt_config_match_path(path, NULL) == MATCH_NONE && !dt_config_is_renamed(path))
        return dt_fail(DT_E_USAGE, "%s: unknown key '%s'%s", place, dt_config_shown(&c->arena, path),
                       dt_config_suggest_key(&c->arena, path));
    dt_cnode *item;
    // YAML, so lists and maps can be given: train.betas=[0.9, 0.99]
    dt_status st = dt_config_read_yaml(&item, &c->arena, place, place, equals + 1, strlen(equals + 1));
    if (st != DT_OK) return dt_fail_context(st, "override %s", dt_config_shown(&c->arena, path));
    return config_merge(c, dt_config_rename_override(c, path, item), item);
}

dt_status dt_config_override(dt_config *c, const char *const *overrides, size_t n_overrides) {
    for (size_t i = 0; i < n_overrides; i++) DT_TRY(apply_override(c, overrides[i]));
    return dt_config_check_tree(c); // the whole tree again: an override may make another key wrong
}

// run.name of a file is that of the file, without its folder and ".yaml".
static void name_run(dt_config *c) {
    const char *slash = strrchr(c->file, '/'), *name = slash ? slash + 1 : c->file, *dot = strrchr(name, '.');
    if (!dot || dot == name || (strcmp(dot, ".yaml") != 0 && strcmp(dot, ".yml") != 0)) return;
    dt_cnode *n = dt_config_new_node(&c->arena, DT_C_SCALAR, c->file);
    n->text = dt_arena_printf(&c->arena, "%.*s", (int)(dot - name), name);
    n->quoted = true;                                               // text, also where it looks like a number
    if (dt_config_put(c, "run.name", n) != DT_OK) dt_error_clear(); // run is no map: the check of it says so
}

static dt_status config_build(dt_config *c, bool warns, const char *text, size_t n_bytes, const char *const *overrides,
                              size_t n_overrides) {
    DT_TRY(dt_config_read_yaml(&c->root, &c->arena, c->file, NULL, text, n_bytes)); // place NULL: file, line and column
    if (dt_config_is_null(c->root)) // an empty file: overrides may still set everything
        c->root = dt_config_new_node(&c->arena, DT_C_MAP, c->root->where);
    dt_config_rename(c, warns);
    if (c->root->kind == DT_C_MAP && !dt_config_find(c, "run.name")) name_run(c); // an override comes later
    if (c->root->kind != DT_C_MAP)
        return dt_fail(DT_E_USAGE, "%s: not a config; expected a map with %s", c->root->where,
                       "run, data, model and train");
    return dt_config_override(c, overrides, n_overrides); // also checks a config without overrides
}

static dt_status config_create(dt_config **out, const char *name, bool warns, const char *text, size_t n_bytes,
                               const char *const *overrides, size_t n_overrides) {
    dt_config *c = dt_xcalloc(1, sizeof *c);
    dt_arena_init(&c->arena);
    c->file = dt_arena_strdup(&c->arena, name); // borrowed name may go
    *out = NULL;
    dt_status st = config_build(c, warns, text, n_bytes, overrides, n_overrides);
    if (st == DT_OK)
        *out = c; // c belongs to the caller from here on
    else
        dt_config_destroy(c);
    return st;
}

// Without warnings: people edit files, and not the configs in checkpoints.
dt_status dt_config_parse(dt_config **out, const char *name, const char *text, size_t n_bytes,
                          const char *const *overrides, size_t n_overrides) {
    return config_create(out, name, false, text, n_bytes, overrides, n_overrides);
}

dt_status dt_config_load(dt_config **out, const char *path, const char *const *overrides, size_t n_overrides) {
    bool is_stdin = strcmp(path, "-") == 0;
    char *text;
    size_t n;
    *out = NULL;
    // limited, since libyaml's memory is a multiple of the text
    DT_TRY(dt_io_read_file(&text, &n, is_stdin ? "/dev/stdin" : path, CONFIG_MAX_BYTES, DT_E_USAGE));
    // both names of the stream in messages
    dt_status st = config_create(out, is_stdin ? "stdin" : path, true, text, n, overrides, n_overrides);
    free(text);
    return st;
}

static const char *copy_text(dt_arena *a, const char *text) {
    return text ? dt_arena_strdup(a, text) : NULL; // arenas differ: texts are copied, too
}

dt_cnode *dt_config_copy_node(dt_arena *a, const dt_cnode *n) {
    dt_cnode *copy = dt_config_new_node(a, n->kind, copy_text(a, n->where));
    copy->key_where = copy_text(a, n->key_where); // where the key stands, and where the value does
    copy->text = copy_text(a, n->text);
    copy->quoted = n->quoted;
    for (size_t i = 0; i < n->n; i++)
        // NULL key: an item of a list
        dt_config_add_item(a, copy, n->kind == DT_C_MAP ? copy_text(a, n->keys[i]) : NULL,
                           dt_config_copy_node(a, n->items[i]));
    return copy;
}

dt_config *dt_config_copy(const dt_config *c) {
    dt_config *copy = dt_xcalloc(1, sizeof *copy);
    dt_arena_init(&copy->arena);
    copy->file = dt_arena_strdup(&copy->arena, c->file);
    copy->root = dt_config_copy_node(&copy->arena, c->root);
    dt_config_fill(copy); // fields point into the copy's arena
    return copy;
}

void dt_config_destroy(dt_config *c) {
    if (!c) return;
    dt_arena_fini(&c->arena); // nodes, texts and filled arrays
    free(c);
}

dt_status dt_config_fail(const dt_config *c, const char *key, const char *fmt, ...) {
    char text[1024];
    const dt_cnode *n = dt_config_find_nearest(c, key); // the key may be absent: the message then points to its section
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return dt_fail(DT_E_USAGE, "%s: %s", n ? n->where : c->file, text); // the file's name alone where the tree is empty
}

dt_status dt_config_fail_name(const dt_config *c, const char *key, const char *name, const char *what,
                              const char *names) {
    const char *near = NULL;
    int least = DT_TEXT_FAR;
    for (const char *p = names; *p; p += strcspn(p, ","), p += strspn(p, ", ")) { // names: "a, b, c"
        const int d = dt_text_closeness(p, strcspn(p, ","), name);
        if (d < least) least = d, near = p; // case and transpositions: see dt_text_closeness
    }
    if (near) // no list: the right name is likely among hundreds
        return dt_config_fail(c, key, "%s: '%s' is no %s; did you mean '%.*s'?", key, name, what,
                              (int)strcspn(near, ","), near);
    return dt_config_fail(c, key, "%s: '%s' is no %s; expected one of %s", key, name, what,
                          *names ? names : "none, as there are none"); // a data set without columns, for example
}
