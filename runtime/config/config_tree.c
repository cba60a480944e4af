// config_tree.c: parses YAML text into a tree whose nodes know their place in the file.
//
// libyaml takes quadratic time in nesting depth and in %-directives. So a cheap scan of the bytes caps both before it
// runs (brackets inside quotes count too: nobody opens 64 of them), and the depth is checked again event by event.
// Anchors, aliases and tags are errors: an alias bomb cannot happen, and a config means what it says.
#include "config_internal.h"

#include "base/io.h"
#include "base/url.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

dt_cnode *dt_config_new_node(dt_arena *a, dt_ckind kind, const char *where) {
    dt_cnode *n = dt_arena_alloc(a, sizeof *n);
    n->kind = kind;
    n->where = n->key_where = where;
    return n;
}

void dt_config_add_item(dt_arena *a, dt_cnode *parent, const char *key, dt_cnode *item) {
    if (parent->n == parent->cap) {
        size_t cap = parent->cap ? 2 * parent->cap : 4;
        dt_cnode **items = dt_arena_alloc(a, cap * sizeof *items);
        if (parent->n) memcpy(items, parent->items, parent->n * sizeof *items);
        parent->items = items;
        if (parent->kind == DT_C_MAP) {
            const char **keys = dt_arena_alloc(a, cap * sizeof *keys);
            if (parent->n) memcpy(keys, parent->keys, parent->n * sizeof *keys);
            parent->keys = keys;
        }
        parent->cap = cap;
    }
    if (parent->kind == DT_C_MAP) parent->keys[parent->n] = key;
    parent->items[parent->n++] = item;
}

bool dt_config_is_null(const dt_cnode *n) {
    return n->kind == DT_C_SCALAR && !n->quoted &&
           (!*n->text || !strcmp(n->text, "~") || !strcmp(n->text, "null") || !strcmp(n->text, "Null") ||
            !strcmp(n->text, "NULL"));
}

bool dt_config_node_is_auto(const dt_cnode *n) {
    return n && n->kind == DT_C_SCALAR && strcmp(n->text, "auto") == 0; // also in quotes
}

const char *dt_config_shown(dt_arena *a, const char *text) {
    char *s = dt_arena_printf(a, "%.60s%s", text, strlen(text) > 60 ? "..." : "");
    for (char *p = s; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7F) *p = '?';
    return s;
}

// -- what must not reach libyaml -------------------------------------------------------------
static void line_and_column(const char *text, size_t offset, size_t *line, size_t *column) {
    *line = *column = 1;
    for (size_t i = 0; i < offset; i++) {
        bool newline = text[i] == '\n';
        *line += newline;
        *column = newline ? 1 : *column + 1;
    }
}

// YAML's line breaks: LF, CR, NEL (C2 85), LS and PS (E2 80 A8 / A9).
static bool starts_line(const char *text, size_t i) {
    const unsigned char *s = (const unsigned char *)text + i;
    return i == 0 || s[-1] == '\n' || s[-1] == '\r' || (i >= 2 && s[-2] == 0xC2 && s[-1] == 0x85) ||
           (i >= 3 && s[-3] == 0xE2 && s[-2] == 0x80 && (s[-1] == 0xA8 || s[-1] == 0xA9));
}

static dt_status check_bytes(const char *name, const char *text, size_t n_bytes) {
    enum { MAX_DIRECTIVES = 8 };
    size_t depth = 0, directives = 0, line, column;
    if (n_bytes > CONFIG_MAX_BYTES)
        return dt_fail(DT_E_USAGE, "%s:1:1: %zu bytes; a config has at most %d", name, n_bytes, CONFIG_MAX_BYTES);
    for (size_t i = 0; i < n_bytes; i++) {
        const char *what = NULL;
        if (text[i] == '[' || text[i] == '{') {
            if (++depth > CONFIG_MAX_DEPTH) what = "more than 64 open brackets";
        } else if ((text[i] == ']' || text[i] == '}') && depth > 0) {
            depth--;
        } else if (text[i] == '%' && starts_line(text, i)) {
            if (++directives > MAX_DIRECTIVES) what = "too many lines that start with %";
        } else if (text[i] == '\0') {
            what = "a NUL byte; this is not YAML text";
        }
        if (!what) continue;
        line_and_column(text, i, &line, &column);
        return dt_fail(DT_E_USAGE, "%s:%zu:%zu: %s", name, line, column, what);
    }
    return DT_OK;
}

// -- events into nodes -----------------------------------------------------------------------
typedef struct reader {
    yaml_parser_t parser;
    yaml_event_t event; // the current one
    dt_arena *arena;
    const char *name, *place, *text;
    size_t n_nodes;
} reader;

static const char *config_tree_place_of(reader *r, yaml_mark_t mark) {
    if (r->place) return r->place;
    return dt_arena_printf(r->arena, "%s:%zu:%zu", r->name, mark.line + 1, mark.column + 1);
}

static dt_status config_tree_fail_here(reader *r, const char *what) {
    return dt_fail(DT_E_USAGE, "%s: %s", config_tree_place_of(r, r->event.start_mark), what);
}

static dt_status fail_syntax(reader *r) {
    const yaml_parser_t *p = &r->parser;
    const char *problem = p->problem ? p->problem : "cannot be parsed";
    yaml_mark_t mark = p->problem_mark;
    if (p->error == YAML_READER_ERROR) { // has a byte offset only
        line_and_column(r->text, p->problem_offset, &mark.line, &mark.column);
        mark.line--;
        mark.column--;
    }
    return dt_fail(DT_E_USAGE, "%s: not YAML: %s%s%s; check indentation, quotes and brackets",
                   config_tree_place_of(r, mark), p->context ? p->context : "", p->context ? ": " : "", problem);
}

static dt_status next(reader *r) {
    yaml_event_delete(&r->event);
    if (!yaml_parser_parse(&r->parser, &r->event)) return fail_syntax(r);
    return DT_OK;
}

static dt_status check_scalar(reader *r) {
    const char *text = (const char *)r->event.data.scalar.value;
    if (strlen(text) != r->event.data.scalar.length) return config_tree_fail_here(r, "a NUL character inside text");
    if (dt_url_check(text) != DT_OK)
        return dt_fail_context(DT_E_USAGE, "%s", config_tree_place_of(r, r->event.start_mark));
    return DT_OK;
}

static dt_status check_plain_node(reader *r) {
    const yaml_event_t *e = &r->event;
    const yaml_char_t *anchor = NULL, *tag = NULL;
    switch (e->type) {
    case YAML_ALIAS_EVENT:
        anchor = e->data.alias.anchor;
        break;
    case YAML_SCALAR_EVENT:
        anchor = e->data.scalar.anchor, tag = e->data.scalar.tag;
        break;
    case YAML_SEQUENCE_START_EVENT:
        anchor = e->data.sequence_start.anchor, tag = e->data.sequence_start.tag;
        break;
    case YAML_MAPPING_START_EVENT:
        anchor = e->data.mapping_start.anchor, tag = e->data.mapping_start.tag;
        break;
    default:
        return config_tree_fail_here(r, "expected a value");
    }
    if (anchor)
        return config_tree_fail_here(r, "anchors (&) and aliases (*) are not supported; write the value out "
                                        "(or quote text that starts with & or *)");
    if (tag)
        return config_tree_fail_here(r, "tags (!) are not supported; write the plain value (or quote text "
                                        "that starts with !)");
    if (++r->n_nodes > CONFIG_MAX_NODES) return config_tree_fail_here(r, "more than 100000 values");
    return DT_OK;
}

static dt_status config_tree_read_key(reader *r, const dt_cnode *map, const char **key) {
    if (r->event.type != YAML_SCALAR_EVENT) {
        DT_TRY(check_plain_node(r));
        return config_tree_fail_here(r, "a list or map cannot be a key; expected a name");
    }
    DT_TRY(check_plain_node(r));
    DT_TRY(check_scalar(r));
    const char *text = (const char *)r->event.data.scalar.value;
    if (*text == '\0') return config_tree_fail_here(r, "an empty key; expected a name");
    if (strlen(text) > CONFIG_MAX_KEY_BYTES) return config_tree_fail_here(r, "a key longer than 100 bytes");
    for (size_t i = 0; i < map->n; i++)
        if (strcmp(map->keys[i], text) == 0)
            return dt_fail(DT_E_USAGE, "%s: duplicate key '%s'; first at %s: keep one of them",
                           config_tree_place_of(r, r->event.start_mark), dt_config_shown(r->arena, text),
                           map->items[i]->key_where);
    if (map->n == CONFIG_MAX_KEYS) return config_tree_fail_here(r, "more than 512 keys in one map");
    *key = dt_arena_strdup(r->arena, text);
    return DT_OK;
}

static dt_status read_node(reader *r, dt_cnode **out, int depth);

static dt_status config_tree_read_list(reader *r, dt_cnode *list, int depth) {
    DT_TRY(next(r));
    while (r->event.type != YAML_SEQUENCE_END_EVENT) {
        dt_cnode *item = NULL;
        DT_TRY(read_node(r, &item, depth));
        dt_config_add_item(r->arena, list, NULL, item);
    }
    return next(r);
}

static dt_status read_map(reader *r, dt_cnode *map, int depth) {
    DT_TRY(next(r));
    while (r->event.type != YAML_MAPPING_END_EVENT) {
        const char *key = NULL, *key_where = config_tree_place_of(r, r->event.start_mark);
        dt_cnode *item;
        DT_TRY(config_tree_read_key(r, map, &key));
        DT_TRY(next(r));
        DT_TRY(read_node(r, &item, depth));
        item->key_where = key_where;
        dt_config_add_item(r->arena, map, key, item);
    }
    return next(r);
}

// Reads the node that begins at the current event, and leaves the event after it as the current one.
static dt_status read_node(reader *r, dt_cnode **out, int depth) {
    DT_TRY(check_plain_node(r));
    if (depth > CONFIG_MAX_DEPTH) return config_tree_fail_here(r, "nested more than 64 deep");
    const char *where = config_tree_place_of(r, r->event.start_mark);
    if (r->event.type == YAML_SEQUENCE_START_EVENT) {
        *out = dt_config_new_node(r->arena, DT_C_LIST, where);
        return config_tree_read_list(r, *out, depth + 1);
    }
    if (r->event.type == YAML_MAPPING_START_EVENT) {
        *out = dt_config_new_node(r->arena, DT_C_MAP, where);
        return read_map(r, *out, depth + 1);
    }
    DT_TRY(check_scalar(r));
    dt_cnode *n = *out = dt_config_new_node(r->arena, DT_C_SCALAR, where);
    n->text = dt_arena_strdup(r->arena, (const char *)r->event.data.scalar.value);
    n->quoted = r->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    return next(r);
}

static dt_status read_document(reader *r, dt_cnode **out) {
    DT_TRY(next(r));
    assert(r->event.type == YAML_STREAM_START_EVENT);
    DT_TRY(next(r));
    if (r->event.type == YAML_STREAM_END_EVENT) { // nothing there: a null
        *out = dt_config_new_node(r->arena, DT_C_SCALAR, config_tree_place_of(r, (yaml_mark_t){0}));
        (*out)->text = "";
        return DT_OK;
    }
    DT_TRY(next(r)); // past the document's start
    DT_TRY(read_node(r, out, 0));
    assert(r->event.type == YAML_DOCUMENT_END_EVENT);
    DT_TRY(next(r));
    if (r->event.type != YAML_STREAM_END_EVENT)
        return config_tree_fail_here(r, "a second document; a config is one document");
    return DT_OK;
}

dt_status dt_config_read_yaml(dt_cnode **out, dt_arena *a, const char *name, const char *place, const char *text,
                              size_t n_bytes) {
    if (n_bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) text += 3, n_bytes -= 3; // Windows
    DT_TRY(check_bytes(name, text, n_bytes));
    reader r = {.arena = a, .name = name, .place = place, .text = text};
    if (!yaml_parser_initialize(&r.parser)) return dt_fail(DT_E_INTERNAL, "libyaml: no memory for a parser");
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, n_bytes);
    dt_status st = read_document(&r, out);
    yaml_event_delete(&r.event);
    yaml_parser_delete(&r.parser);
    return st;
}

dt_status dt_config_read_tree(const dt_cnode **out, dt_arena *a, const char *path) {
    char *text = NULL;
    size_t n = 0;
    dt_cnode *root = NULL;
    DT_TRY(dt_io_read_file(&text, &n, path, CONFIG_MAX_BYTES, DT_E_USAGE));
    const dt_status st = dt_config_read_yaml(&root, a, path, NULL, text, n);
    free(text);
    *out = root;
    return st;
}
