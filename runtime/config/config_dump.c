// config_dump.c: the tree as YAML that reads back to the same tree, and the difference between two configs.
//
// Keys that nest become blocks, each value one line. Text is written plain only if YAML cannot read it as anything
// else; all other text is in double quotes.
#include "config_internal.h"

#include "base/io.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// -- scalars ---------------------------------------------------------------------------------
static bool config_dump_is_plain(const char *s) {
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                               "_./+-%";
    size_t n = strlen(s);
    if (n == 0 || n > 200) return false;
    if (*s == '%') return false;
    if (strchr("-+.", *s) && (!s[1] || !strchr("0123456789.", s[1]))) return false; // but -1, .5
    if (strncmp(s, "..", 2) == 0 || strncmp(s, "---", 3) == 0) return false;
    for (size_t i = 0; i < n; i++) {
        bool inner_space = s[i] == ' ' && i > 0 && i + 1 < n;
        if (!inner_space && !strchr(safe, s[i])) return false;
    }
    return true;
}

// Code point of the UTF-8 sequence at s (libyaml has checked it); *n = its length.
static unsigned code_point(const unsigned char *s, int *n) {
    *n = *s < 0x80 ? 1 : *s < 0xE0 ? 2 : *s < 0xF0 ? 3 : 4;
    unsigned c = *n == 1 ? *s : *s & (0xFFu >> (*n + 1));
    for (int i = 1; i < *n; i++) c = c << 6 | (s[i] & 0x3F);
    return c;
}

static void config_dump_write_quoted(FILE *out, const char *text) {
    fputc('"', out);
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        int n;
        unsigned c = code_point(s, &n);
        bool odd =
            c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x2028 || c == 0x2029 || c == 0xFEFF || (c & 0xFFFE) == 0xFFFE;
        if (c == '"' || c == '\\')
            fprintf(out, "\\%c", (int)c);
        else if (odd)
            fprintf(out, c > 0xFFFF ? "\\U%08x" : "\\u%04x", c);
        else
            fwrite(s, 1, (size_t)n, out);
        s += n;
    }
    fputc('"', out);
}

static void config_dump_write_text(FILE *out, const char *text, bool quoted) {
    if (!quoted && *text == '\0')
        fputs("null", out);
    else if (!quoted && config_dump_is_plain(text))
        fputs(text, out);
    else if (!quoted && strcmp(text, "~") == 0)
        fputs("~", out);
    else
        config_dump_write_quoted(out, text);
}

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
    const char *words = dt_config_words_at(&a, prefix), *at = words;
    for (size_t i = 0; *words ? *at != '\0' : i < map->n; i++) {
        const int n = (int)strcspn(at, "|");
        const char *key = *words ? dt_arena_printf(&a, "%.*s", n, at) : map->keys[i];
        const dt_cnode *item = *words ? dt_cnode_get(map, key) : map->items[i];
        at += n + (at[n] == '|');
        if (!item) continue;
        const char *path = dt_arena_printf(&a, "%s%s%s", prefix, *prefix ? "." : "", key);
        const bool inner = dt_config_match_path(path, NULL) == MATCH_INNER && item->n > 0;
        visit(ctx, path, key, item, depth, inner);
        if (inner) config_dump_walk(path, item, depth + 1, visit, ctx);
    }
    dt_arena_fini(&a);
}

static void write_entry(void *out, const char *path, const char *key, const dt_cnode *n, int depth, bool inner) {
    fprintf(out, "%*s", 2 * depth, "");
    config_dump_write_text(out, key, false);
    fputs(inner ? ":" : ": ", out);
    if (!inner) write_flow(out, n);
    fputc('\n', out);
}

static FILE *open_text(char **text, size_t *n) {
    FILE *out = open_memstream(text, n);
    if (!out) abort(); // no memory for a stream
    return out;
}

char *dt_config_dump(const dt_config *c) {
    char *text = NULL;
    size_t n;
    FILE *out = open_text(&text, &n);
    config_dump_walk("", c->root, 0, write_entry, out);
    fclose(out);
    return text;
}

// Whether the lines of a are all those of b, or may_lack: some of them, in their order.
static bool has_lines_of(const char *a, const char *b, bool may_lack) {
    if (!may_lack) return strcmp(a, b) == 0;
    while (*a && *b) {
        const size_t n = strcspn(a, "\n") + 1, m = strcspn(b, "\n") + 1;
        if (strncmp(a, b, n) == 0) a += n;
        b += m;
    }
    return *a == '\0';
}

bool dt_config_is_users_file(const dt_config *c, const char *path, bool may_lack) {
    struct stat from, to;
    if (stat(c->file, &from) != 0 || stat(path, &to) != 0 || from.st_dev != to.st_dev || from.st_ino != to.st_ino)
        return false;
    dt_config *said = NULL;
    char *text = NULL, *dump = NULL;
    size_t n;
    bool own =
        dt_config_load(&said, path, NULL, 0) == DT_OK && dt_io_read_file(&text, &n, path, 0, DT_E_USAGE) == DT_OK;
    if (own) {
        dump = dt_config_dump(said);
        own = has_lines_of(text, dump, may_lack);
    }
    free(dump);
    free(text);
    dt_config_destroy(said);
    return !own;
}

// -- difference ------------------------------------------------------------------------------
static bool differs(const dt_config *a, const dt_config *b, dt_config_type type, const char *path) {
    const dt_cnode *x = dt_config_find(a, path), *y = dt_config_find(b, path);
    if (dt_config_node_is_auto(y)) return false; // it takes the value of a
    return x && y ? !dt_config_same_value(type, x, y) : x != y;
}

bool dt_config_is_repeat(const char *path) {
    return strcmp(path, DT_KEY_NAME(data.split.fold)) == 0 || strcmp(path, DT_KEY_NAME(data.split.seed)) == 0 ||
           strcmp(path, DT_KEY_NAME(run.seed)) == 0;
}

bool dt_config_same_at(const dt_config *a, const dt_config *b, const char *path, bool *numeric) {
    const dt_cnode *x = dt_config_find(a, path), *y = dt_config_find(b, path);
    const dt_config_key *row = NULL;
    const bool known = dt_config_match_path(path, &row) == MATCH_LEAF;
    *numeric = known && row->flags & DT_KEY_NUMERIC;
    return x && y && known ? dt_config_same_value(row->kind, x, y) : x == y;
}

// The path at which the two configs differ in this row (heap), or NULL. A `*` is each name that `named` has there.
static char *config_dump_find_difference(const dt_config *a, const dt_config *b, const dt_config *named,
                                         const dt_config_key *row) {
    const char *key = row->path, *star = strstr(key, ".*.");
    if (!star) return differs(a, b, row->kind, key) ? dt_xstrdup(key) : NULL;
    char *parent = dt_xprintf("%.*s", (int)(star - key), key), *found = NULL;
    const dt_cnode *map = dt_config_find(named, parent);
    for (size_t i = 0; map && i < map->n && !found; i++) {
        found = dt_xprintf("%s.%s%s", parent, map->keys[i], star + 2);
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
    size_t size;
    FILE *out = open_text(&text, &size);
    write_flow(out, n);
    fclose(out);
    const char *kept = dt_arena_strdup((dt_arena *)&c->arena, text);
    free(text);
    return kept;
}

static const char *value_text(const dt_config *c, const char *path) {
    const dt_cnode *n = dt_config_find(c, path);
    return n ? node_text(c, n) : "(absent)";
}

// Hands over `found` (heap, or NULL) with the values there.
static const char *tell_difference(const dt_config *a, const dt_config *b, char *found, const char **value_a,
                                   const char **value_b) {
    if (!found) return NULL;
    const char *path = dt_arena_strdup((dt_arena *)&b->arena, found);
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
        if (!(rows[i].flags & DT_KEY_NUMERIC) || strncmp(rows[i].path, below, sizeof below - 1) != 0) continue;
        const char *key = rows[i].path + sizeof below - 1;
        if (strcmp(key, "source") == 0) continue;
        found = dt_xprintf("data.fields.%s.%s", field, key);
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
    if (text && (dt_config_read_yaml(&usual, &e->c->arena, "config.def", "default", text, strlen(text)) != DT_OK ||
                 dt_config_check_value(e->c, row, path, usual) != DT_OK))
        usual = NULL;
    e->visit(e->ctx, path, node_text(e->c, n), text, usual && dt_config_same_value(row->kind, n, usual));
}

void dt_config_each(dt_config *c, dt_config_visit visit, void *ctx) {
    each_value e = {c, visit, ctx};
    config_dump_walk("", c->root, 0, visit_value, &e);
}
