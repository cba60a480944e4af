// config_tree.c: parses YAML text into a tree whose nodes know their place in the file.
//
// libyaml takes quadratic time in nesting depth and in %-directives. So a cheap scan of the bytes caps both before it
// runs (brackets inside quotes count too: nobody opens 64 of them), and the depth is checked again event by event.
// Anchors, aliases and tags are errors: an alias bomb cannot happen, and a config has one meaning.

#include "config_internal.h"

#include "base/io.h"
#include "base/url.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <yaml.h>

dt_cnode *dt_config_new_node(dt_arena *a, dt_ckind kind, const char *where) {
    dt_cnode *n = dt_arena_alloc(a, sizeof *n);
    n->kind = kind;
    n->where = n->key_where = where; // values of maps get key_where from read_map
    return n;
}

void dt_config_add_item(dt_arena *a, dt_cnode *parent, const char *key, dt_cnode *item) {
    if (parent->n == parent->cap) {
        size_t cap = parent->cap ? 2 * parent->cap : 4;
        // the old array stays in the arena: at most as much again
        dt_cnode **items = dt_arena_alloc(a, cap * sizeof *items);
        if (parent->n) memcpy(items, parent->items, parent->n * sizeof *items);
        parent->items = items;
        if (parent->kind == DT_C_MAP) { // lists have no keys
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
           // YAML 1.2 core schema
           (!*n->text || !strcmp(n->text, "~") || !strcmp(n->text, "null") || !strcmp(n->text, "Null") ||
            !strcmp(n->text, "NULL"));
}

bool dt_config_node_is_auto(const dt_cnode *n) {
    return n && n->kind == DT_C_SCALAR && strcmp(n->text, "auto") == 0; // also in quotes
}

const char *dt_config_shown(dt_arena *a, const char *text) {
    // 60 bytes are enough to find the place
    char *s = dt_arena_printf(a, "%.60s%s", text, strlen(text) > 60 ? "..." : "");
    for (char *p = s; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7F) *p = '?'; // also newlines: a message is one line
    return s;
}

// -- what must not reach libyaml -------------------------------------------------------------
// both count from 1, columns in bytes
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
    // s[-1] exists for i > 0
    return i == 0 || s[-1] == '\n' || s[-1] == '\r' || (i >= 2 && s[-2] == 0xC2 && s[-1] == 0x85) ||
           (i >= 3 && s[-3] == 0xE2 && s[-2] == 0x80 && (s[-1] == 0xA8 || s[-1] == 0xA9));
}

static dt_status check_bytes(const char *name, const char *text, size_t n_bytes) {
    enum { MAX_DIRECTIVES = 8 };
    size_t depth = 0, directives = 0, line, column;
    if (n_bytes > CONFIG_MAX_BYTES) // first: everything below is linear in the text
        return dt_fail(DT_E_USAGE, "%s:1:1: %zu bytes; a config has at most %d", name, n_bytes, CONFIG_MAX_BYTES);
    for (size_t i = 0; i < n_bytes; i++) {
        const char *what = NULL;
        if (text[i] == '[' || text[i] == '{') {
            if (++depth > CONFIG_MAX_DEPTH) what = "more than 64 open brackets";
        } else if ((text[i] == ']' || text[i] == '}') && depth > 0) { // unbalanced brackets are libyaml's to report
            depth--;
        } else if (text[i] == '%' && starts_line(text, i)) {
            if (++directives > MAX_DIRECTIVES) what = "too many lines that start with %";
        } else if (text[i] == '\0') {
            what = "a NUL byte; this is not YAML text";
        }
        if (!what) continue;
        line_and_column(text, i, &line, &column); // only for the message
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
    if (r->place) return r->place; // defaults and overrides have no line
    return dt_arena_printf(r->arena, "%s:%zu:%zu", r->name, mark.line + 1, mark.column + 1); // marks count from 0
}

static dt_status config_tree_fail_here(reader *r, const char *what) {
    return dt_fail(DT_E_USAGE, "%s: %s", config_tree_place_of(r, r->event.start_mark), what);
}

static dt_status fail_syntax(reader *r) {
    const yaml_parser_t *p = &r->parser;
    const char *problem = p->problem ? p->problem : "cannot be parsed";
    yaml_mark_t mark = p->problem_mark;
    // bytes that are no UTF-8
    if (p->error == YAML_READER_ERROR) { // has a byte offset only
        line_and_column(r->text, p->problem_offset, &mark.line, &mark.column);
        mark.line--;
        mark.column--;
    }
    return dt_fail(DT_E_USAGE, "%s: not YAML: %s%s%s; check indentation, quotes and brackets",
                   config_tree_place_of(r, mark), p->context ? p->context : "", p->context ? ": " : "", problem);
}

static dt_status next(reader *r) {
    yaml_event_delete(&r->event); // deletes an event of zeros, too
    if (!yaml_parser_parse(&r->parser, &r->event)) return fail_syntax(r);
    return DT_OK;
}

static dt_status check_scalar(reader *r) {
    const char *text = (const char *)r->event.data.scalar.value;
    // an escaped \0 in double quotes
    if (strlen(text) != r->event.data.scalar.length) return config_tree_fail_here(r, "a NUL character inside text");
    if (dt_url_check(text) != DT_OK) // names and passwords in URLs, before they reach a log
        return dt_fail_context(DT_E_USAGE, "%s", config_tree_place_of(r, r->event.start_mark));
    return DT_OK;
}

static dt_status check_plain_node(reader *r) {
    const yaml_event_t *e = &r->event;
    const yaml_char_t *anchor = NULL, *tag = NULL; // of the event's own struct
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
        return config_tree_fail_here(r, "expected a value"); // a document's end, for example
    }
    if (anchor)
        return config_tree_fail_here(r, "anchors (&) and aliases (*) are not supported; write the value out "
                                        "(or quote text that starts with & or *)");
    if (tag)
        return config_tree_fail_here(r, "tags (!) are not supported; write the plain value (or quote text "
                                        "that starts with !)");
    // counted also inside values that no key takes
    if (++r->n_nodes > CONFIG_MAX_NODES) return config_tree_fail_here(r, "more than 100000 values");
    return DT_OK;
}

static dt_status config_tree_read_key(reader *r, const dt_cnode *map, const char **key) {
    if (r->event.type != YAML_SCALAR_EVENT) {
        DT_TRY(check_plain_node(r)); // anchors first: their message is more useful
        return config_tree_fail_here(r, "a list or map cannot be a key; expected a name");
    }
    DT_TRY(check_plain_node(r));
    DT_TRY(check_scalar(r));
    const char *text = (const char *)r->event.data.scalar.value;
    if (*text == '\0') return config_tree_fail_here(r, "an empty key; expected a name");
    if (strlen(text) > CONFIG_MAX_KEY_BYTES) return config_tree_fail_here(r, "a key longer than 100 bytes");
    for (size_t i = 0; i < map->n; i++) // quadratic, over CONFIG_MAX_KEYS at most
        if (strcmp(map->keys[i], text) == 0)
            return dt_fail(DT_E_USAGE, "%s: duplicate key '%s'; first at %s: keep one of them",
                           config_tree_place_of(r, r->event.start_mark), dt_config_shown(r->arena, text),
                           map->items[i]->key_where);
    // bounds the quadratic search
    if (map->n == CONFIG_MAX_KEYS) return config_tree_fail_here(r, "more than 512 keys in one map");
    *key = dt_arena_strdup(r->arena, text); // the event's text is freed with it
    return DT_OK;
}

static dt_status read_node(reader *r, dt_cnode **out, int depth);

static dt_status config_tree_read_list(reader *r, dt_cnode *list, int depth) {
    DT_TRY(next(r)); // past the start
    while (r->event.type != YAML_SEQUENCE_END_EVENT) {
        dt_cnode *item = NULL;
        DT_TRY(read_node(r, &item, depth));
        dt_config_add_item(r->arena, list, NULL, item);
    }
    return next(r);
}

static dt_status read_map(reader *r, dt_cnode *map, int depth) {
    DT_TRY(next(r)); // past the start
    while (r->event.type != YAML_MAPPING_END_EVENT) {
        // before the event is deleted
        const char *key = NULL, *key_where = config_tree_place_of(r, r->event.start_mark);
        const size_t key_at = r->event.start_mark.index;
        dt_cnode *item;
        DT_TRY(config_tree_read_key(r, map, &key));
        DT_TRY(next(r));
        DT_TRY(read_node(r, &item, depth));
        item->key_at = key_at;
        item->key_where = key_where; // place of the key; `where` is the value's
        dt_config_add_item(r->arena, map, key, item);
    }
    return next(r);
}

// Reads the node that begins at the current event, and leaves the event after it as the current one.
static dt_status read_node(reader *r, dt_cnode **out, int depth) {
    DT_TRY(check_plain_node(r));
    // recursion is bounded before it grows
    if (depth > CONFIG_MAX_DEPTH) return config_tree_fail_here(r, "nested more than 64 deep");
    const char *where = config_tree_place_of(r, r->event.start_mark);
    const size_t at = r->event.start_mark.index;
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
    n->at = at;
    n->quoted = r->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE; // plain null and "null" differ
    return next(r);
}

static dt_status read_document(reader *r, dt_cnode **out) {
    DT_TRY(next(r));
    assert(r->event.type == YAML_STREAM_START_EVENT); // libyaml's first event
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
    if (r->event.type != YAML_STREAM_END_EVENT) // "---" again
        return config_tree_fail_here(r, "a second document; a config is one document");
    return DT_OK;
}

dt_status dt_config_read_yaml(dt_cnode **out, dt_arena *a, const char *name, const char *place, const char *text,
                              size_t n_bytes) {
    if (n_bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) text += 3, n_bytes -= 3; // Windows
    DT_TRY(check_bytes(name, text, n_bytes));
    reader r = {.arena = a, .name = name, .place = place, .text = text};
    if (!yaml_parser_initialize(&r.parser)) return dt_fail(DT_E_INTERNAL, "libyaml: no memory for a parser");
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING); // else a byte order mark could choose UTF-16
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, n_bytes);
    dt_status st = read_document(&r, out);
    yaml_event_delete(&r.event); // the last event
    yaml_parser_delete(&r.parser);
    return st;
}

dt_status dt_config_read_tree(const dt_cnode **out, dt_arena *a, const char *path) {
    char *text = NULL;
    size_t n = 0;
    dt_cnode *root = NULL;
    DT_TRY(dt_io_read_file(&text, &n, path, CONFIG_MAX_BYTES, DT_E_USAGE));
    const dt_status st = dt_config_read_yaml(&root, a, path, NULL, text, n); // place NULL: file, line and column
    free(text);
    *out = root;
    return st;
}

// ---- config dump --------------------------------------------------------------------------------------------------

// The tree as YAML that reads back to the same tree, and the difference between two configs.
//
// Keys that nest become blocks, each value one line. Text is written plain only if YAML cannot read it as anything
// else; all other text is in double quotes.

// -- scalars ---------------------------------------------------------------------------------
static bool config_dump_is_plain(const char *s) {
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                               "_./+-%";
    size_t n = strlen(s);
    if (n == 0 || n > 200) return false;
    if (*s == '%') return false;                                                    // a directive at a line's begin
    if (strchr("-+.", *s) && (!s[1] || !strchr("0123456789.", s[1]))) return false; // but -1, .5
    // the dump's own lines must not look like a document marker
    if (strncmp(s, "..", 2) == 0 || strncmp(s, "---", 3) == 0) return false;
    for (size_t i = 0; i < n; i++) {
        bool inner_space = s[i] == ' ' && i > 0 && i + 1 < n; // not at either end: YAML strips blanks
        if (!inner_space && !strchr(safe, s[i])) return false;
    }
    return true;
}

// Code point of the UTF-8 sequence at s (libyaml has checked it); *n = its length.
static unsigned code_point(const unsigned char *s, int *n) {
    *n = *s < 0x80 ? 1 : *s < 0xE0 ? 2 : *s < 0xF0 ? 3 : 4;  // by the leading byte
    unsigned c = *n == 1 ? *s : *s & (0xFFu >> (*n + 1));    // payload bits of the leading byte
    for (int i = 1; i < *n; i++) c = c << 6 | (s[i] & 0x3F); // six bits each
    return c;
}

static void config_dump_write_quoted(FILE *out, const char *text) {
    fputc('"', out);
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        int n;
        unsigned c = code_point(s, &n);
        // C0, C1, line separators, byte order mark, noncharacters
        bool odd =
            c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x2028 || c == 0x2029 || c == 0xFEFF || (c & 0xFFFE) == 0xFFFE;
        if (c == '"' || c == '\\')
            fprintf(out, "\\%c", (int)c);
        else if (odd)
            fprintf(out, c > 0xFFFF ? "\\U%08x" : "\\u%04x", c); // 32-bit escapes beyond the basic plane
        else
            fwrite(s, 1, (size_t)n, out);
        s += n;
    }
    fputc('"', out);
}

static void config_dump_write_text(FILE *out, const char *text, bool quoted) {
    if (!quoted && *text == '\0') // null and "" differ
        fputs("null", out);
    else if (!quoted && config_dump_is_plain(text))
        fputs(text, out);
    else if (!quoted && strcmp(text, "~") == 0)
        fputs("~", out);
    else // quoted stays quoted: '8' is no number
        config_dump_write_quoted(out, text);
}

// one line, as deep as the value goes
static void write_flow(FILE *out, const dt_cnode *n) {
    if (n->kind == DT_C_SCALAR) {
        config_dump_write_text(out, n->text, n->quoted);
        return;
    }
    fputc(n->kind == DT_C_MAP ? '{' : '[', out);
    for (size_t i = 0; i < n->n; i++) {
        if (i) fputs(", ", out);
        if (n->kind == DT_C_MAP) {
            config_dump_write_text(out, n->keys[i], false);
            fputs(": ", out);
        }
        write_flow(out, n->items[i]);
    }
    fputc(n->kind == DT_C_MAP ? '}' : ']', out);
}

// -- the whole -------------------------------------------------------------------------------
// An entry of a map; inner: its value is a map of keys, whose entries follow.
typedef void (*visit_entry)(void *ctx, const char *path, const char *key, const dt_cnode *n, int depth, bool inner);

// Keys of the table in its order. Names that the user chose keep the order of the file.
static void config_dump_walk(const char *prefix, const dt_cnode *map, int depth, visit_entry visit, void *ctx) {
    dt_arena a;
    dt_arena_init(&a);
    const char *words = dt_config_words_at(&a, prefix), *at = words; // "": names are the user's
    for (size_t i = 0; *words ? *at != '\0' : i < map->n; i++) {
        const int n = (int)strcspn(at, "|");
        const char *key = *words ? dt_arena_printf(&a, "%.*s", n, at) : map->keys[i];
        const dt_cnode *item = *words ? dt_cnode_get(map, key) : map->items[i]; // NULL: absent key of the table
        at += n + (at[n] == '|');                                               // past the separator
        if (!item) continue;                                                    // keys of another word
        const char *path = dt_arena_printf(&a, "%s%s%s", prefix, *prefix ? "." : "", key);
        // an empty map is written as {}
        const bool inner = dt_config_match_path(path, NULL) == MATCH_INNER && item->n > 0;
        visit(ctx, path, key, item, depth, inner);
        if (inner) config_dump_walk(path, item, depth + 1, visit, ctx);
    }
    dt_arena_fini(&a);
}

static void write_entry(void *out, const char *path, const char *key, const dt_cnode *n, int depth, bool inner) {
    fprintf(out, "%*s", 2 * depth, ""); // two blanks per level
    config_dump_write_text(out, key, false);
    fputs(inner ? ":" : ": ", out);
    if (!inner) write_flow(out, n);
    fputc('\n', out);
}

static FILE *open_text(char **text, size_t *n) {
    FILE *out = open_memstream(text, n);
    // abort: as dt_xcalloc without memory
    if (!out) abort(); // no memory for a stream
    return out;
}

char *dt_config_dump(const dt_config *c) {
    char *text = NULL;
    size_t n;
    FILE *out = open_text(&text, &n);
    config_dump_walk("", c->root, 0, write_entry, out);
    fclose(out); // completes text and n
    return text;
}

// Whether the lines of a are all those of b, or may_lack: some of them, in their order.
static bool has_lines_of(const char *a, const char *b, bool may_lack) {
    if (!may_lack) return strcmp(a, b) == 0; // without may_lack the texts must be equal
    while (*a && *b) {
        // newline included, so a prefix of a line does not count
        const size_t n = strcspn(a, "\n") + 1, m = strcspn(b, "\n") + 1;
        if (strncmp(a, b, n) == 0) a += n; // else the line of b is one that a lacks
        b += m;
    }
    return *a == '\0';
}

bool dt_config_is_users_file(const dt_config *c, const char *path, bool may_lack) {
    struct stat from, to;
    // another file than the one of this config
    if (stat(c->file, &from) != 0 || stat(path, &to) != 0 || from.st_dev != to.st_dev || from.st_ino != to.st_ino)
        return false;
    dt_config *loaded = NULL;
    char *text = NULL, *dump = NULL;
    // as it is on disk now, without overrides; an earlier release may have written it
    bool own =
        dt_config_upgrade(&text, path) == DT_OK && dt_config_parse(&loaded, path, text, strlen(text), NULL, 0) == DT_OK;
    if (own) {
        dump = dt_config_dump(loaded);
        own = has_lines_of(text, dump, may_lack); // a file that dtrain wrote reads back to its own dump
    }
    free(dump);
    free(text);
    dt_config_destroy(loaded);
    return !own; // a person's file has comments, other order or shorthands
}

// -- difference ------------------------------------------------------------------------------
static bool differs(const dt_config *a, const dt_config *b, dt_config_type type, const char *path) {
    const dt_cnode *x = dt_config_find(a, path), *y = dt_config_find(b, path); // NULL: absent
    if (dt_config_node_is_auto(y)) return false;                               // it takes the value of a
    return x && y ? !dt_config_same_value(type, x, y) : x != y;                // both absent: equal
}

bool dt_config_is_repeat(const char *path) {
    return strcmp(path, DT_KEY_NAME(data.split.fold)) == 0 || strcmp(path, DT_KEY_NAME(data.split.seed)) == 0 ||
           strcmp(path, DT_KEY_NAME(run.seed)) == 0;
}

bool dt_config_same_at(const dt_config *a, const dt_config *b, const char *path, bool *numeric) {
    const dt_cnode *x = dt_config_find(a, path), *y = dt_config_find(b, path);
    const dt_config_key *row = NULL;
    const bool known = dt_config_match_path(path, &row) == MATCH_LEAF;
    *numeric = known && row->flags & DT_KEY_NUMERIC; // DT_KEY_NUMERIC: affects results
    return x && y && known ? dt_config_same_value(row->kind, x, y) : x == y;
}

// The path at which the two configs differ in this row (heap), or NULL. A `*` is each name that `named` has there.
static char *config_dump_find_difference(const dt_config *a, const dt_config *b, const dt_config *named,
                                         const dt_config_key *row) {
    const char *key = row->path, *star = strstr(key, ".*."); // "data.fields.*.size"
    if (!star) return differs(a, b, row->kind, key) ? dt_xstrdup(key) : NULL;
    char *parent = dt_xprintf("%.*s", (int)(star - key), key), *found = NULL;
    const dt_cnode *map = dt_config_find(named, parent);
    for (size_t i = 0; map && i < map->n && !found; i++) {
        found = dt_xprintf("%s.%s%s", parent, map->keys[i], star + 2); // ".size" behind the name
        if (differs(a, b, row->kind, found)) break;
        free(found);
        found = NULL;
    }
    free(parent);
    return found;
}

// The node as YAML, in the arena of its config.
static const char *node_text(const dt_config *c, const dt_cnode *n) {
    char *text = NULL;
    // freed after the copy
    size_t size;
    FILE *out = open_text(&text, &size);
    write_flow(out, n);
    fclose(out);
    const char *kept = dt_arena_strdup((dt_arena *)&c->arena, text); // the config's arena outlives the caller's use
    free(text);
    return kept;
}

static const char *value_text(const dt_config *c, const char *path) {
    const dt_cnode *n = dt_config_find(c, path);
    return n ? node_text(c, n) : "not set"; // as text in a message
}

// Hands over `found` (heap, or NULL) with the values there.
static const char *tell_difference(const dt_config *a, const dt_config *b, char *found, const char **value_a,
                                   const char **value_b) {
    if (!found) return NULL;
    const char *path = dt_arena_strdup((dt_arena *)&b->arena, found); // callers keep the path as long as b
    free(found);
    *value_a = value_text(a, path);
    *value_b = value_text(b, path);
    return path;
}

const char *dt_config_first_difference(const dt_config *a, const dt_config *b, int flags, const char **value_a,
                                       const char **value_b) {
    char *found = NULL;
    size_t n_rows;
    const dt_config_key *rows = dt_config_keys(&n_rows);
    for (size_t i = 0; i < n_rows && !found; i++) {
        if (!(rows[i].flags & flags)) continue;
        found = config_dump_find_difference(a, b, a, &rows[i]);
        if (!found) found = config_dump_find_difference(a, b, b, &rows[i]); // names that only b has
    }
    return tell_difference(a, b, found, value_a, value_b);
}

const char *dt_config_field_difference(const dt_config *a, const dt_config *b, const char *field, const char **value_a,
                                       const char **value_b) {
    static const char below[] = "data.fields.*.";
    char *found = NULL;
    size_t n_rows;
    const dt_config_key *rows = dt_config_keys(&n_rows);
    for (size_t i = 0; i < n_rows; i++) {
        // keys of fields that affect results
        if (!(rows[i].flags & DT_KEY_NUMERIC) || strncmp(rows[i].path, below, sizeof below - 1) != 0) continue;
        const char *key = rows[i].path + sizeof below - 1;
        if (strcmp(key, "source") == 0) continue; // a renamed column keeps its values
        found = dt_xprintf("data.fields.%s.%s", field, key);
        // auto takes what the other has
        if (!dt_config_node_is_auto(dt_config_find(a, found)) && differs(a, b, rows[i].kind, found)) break;
        free(found);
        found = NULL;
    }
    return tell_difference(a, b, found, value_a, value_b);
}

// -- every value -----------------------------------------------------------------------------
typedef struct each_value {
    dt_config *c;
    dt_config_visit visit;
    void *ctx;
} each_value;

static void visit_value(void *ctx, const char *path, const char *key, const dt_cnode *n, int depth, bool inner) {
    const each_value *e = ctx;
    const dt_config_key *row = NULL;
    dt_cnode *usual = NULL;
    if (inner || dt_config_match_path(path, &row) != MATCH_LEAF) return;
    const char *text = dt_config_has_default(row) ? row->default_text : NULL;
    // the default goes through the same shorthands
    if (text && (dt_config_read_yaml(&usual, &e->c->arena, "config.def", "default", text, strlen(text)) != DT_OK ||
                 dt_config_check_value(e->c, row, path, usual) != DT_OK))
        usual = NULL;
    // whether the value is the default
    e->visit(e->ctx, path, node_text(e->c, n), text, usual && dt_config_same_value(row->kind, n, usual));
}

void dt_config_each(dt_config *c, dt_config_visit visit, void *ctx) {
    each_value e = {c, visit, ctx};
    config_dump_walk("", c->root, 0, visit_value, &e);
}
