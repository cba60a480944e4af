// config_dump.c: the tree as YAML that reads back to the same tree, and the difference between two configs.
//
// Keys that nest become blocks, each value one line. Text is written plain only if YAML cannot read it as anything
// else; all other text is in double quotes.
#include "config_internal.h"

#include <stdlib.h>
#include <string.h>

// -- scalars ---------------------------------------------------------------------------------
static bool is_plain(const char *s) {
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

static void write_quoted(FILE *out, const char *text) {
    fputc('"', out);
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        int n;
        unsigned c = code_point(s, &n);
        bool odd = c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x2028 || c == 0x2029 ||
                   c == 0xFEFF || (c & 0xFFFE) == 0xFFFE;
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

static void write_text(FILE *out, const char *text, bool quoted) {
    if (!quoted && *text == '\0')
        fputs("null", out);
    else if (!quoted && is_plain(text))
        fputs(text, out);
    else if (!quoted && strcmp(text, "~") == 0)
        fputs("~", out);
    else
        write_quoted(out, text);
}

void config_write_flow(FILE *out, const dt_cnode *n) {
    if (n->kind == DT_C_SCALAR) {
        write_text(out, n->text, n->quoted);
        return;
    }
    fputc(n->kind == DT_C_MAP ? '{' : '[', out);
    for (size_t i = 0; i < n->n; i++) {
        if (i) fputs(", ", out);
        if (n->kind == DT_C_MAP) {
            write_text(out, n->keys[i], false);
            fputs(": ", out);
        }
        config_write_flow(out, n->items[i]);
    }
    fputc(n->kind == DT_C_MAP ? '}' : ']', out);
}

// -- the whole -------------------------------------------------------------------------------
static void write_map(FILE *out, const char *prefix, const dt_cnode *map, int indent);

static void write_entry(FILE *out, const char *path, const char *key, const dt_cnode *n,
                        int indent) {
    fprintf(out, "%*s", indent, "");
    write_text(out, key, false);
    if (config_match_path(path, NULL) == MATCH_INNER && n->n > 0) {
        fputs(":\n", out);
        write_map(out, path, n, indent + 2);
        return;
    }
    fputs(": ", out);
    config_write_flow(out, n);
    fputc('\n', out);
}

// The first row of the table that a path leads to: keys are written in that order.
static size_t table_order(const char *path) {
    size_t n = strlen(path);
    for (size_t i = 0; i < config_n_rows(); i++) {
        const char *row = config_get_row(i).key->path;
        if (strncmp(row, path, n) == 0 && (row[n] == '\0' || row[n] == '.')) return i;
    }
    // below a `*` only the last segment counts
    const char *dot = strrchr(path, '.');
    for (size_t i = 0; dot && i < config_n_rows(); i++) {
        const char *row = config_get_row(i).key->path, *last = strrchr(row, '.');
        if (strstr(row, ".*.") && last && strcmp(last, dot) == 0) return i;
    }
    return config_n_rows();
}

static void write_map(FILE *out, const char *prefix, const dt_cnode *map, int indent) {
    bool *done = dt_xcalloc(map->n, sizeof *done);
    char **paths = dt_xcalloc(map->n, sizeof *paths);
    size_t *order = dt_xcalloc(map->n, sizeof *order);
    for (size_t i = 0; i < map->n; i++) {
        paths[i] = dt_xprintf("%s%s%s", prefix, *prefix ? "." : "", map->keys[i]);
        order[i] = table_order(paths[i]);
    }
    for (size_t k = 0; k < map->n; k++) { // names that the user chose keep the order of the file
        size_t best = map->n;
        for (size_t i = 0; i < map->n; i++)
            if (!done[i] && (best == map->n || order[i] < order[best])) best = i;
        done[best] = true;
        write_entry(out, paths[best], map->keys[best], map->items[best], indent);
    }
    for (size_t i = 0; i < map->n; i++) free(paths[i]);
    free(paths);
    free(order);
    free(done);
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
    write_map(out, "", c->root, 0);
    fclose(out);
    return text;
}

// -- difference ------------------------------------------------------------------------------
static char *canonical(config_type type, const dt_cnode *n) {
    char *text = NULL;
    size_t size;
    FILE *out = open_text(&text, &size);
    if (n) config_write_canonical(out, type, n);
    fclose(out);
    return text;
}

static bool differs(const dt_config *a, const dt_config *b, config_type type, const char *path) {
    const dt_cnode *x = config_find(a, path), *y = config_find(b, path);
    if (config_is_auto(y)) return false; // it takes the value of a
    char *p = canonical(type, x), *q = canonical(type, y);
    bool same = strcmp(p, q) == 0;
    free(p);
    free(q);
    return !same;
}

// The path at which the two differ in this row (heap), or NULL. A `*` is tried with each name that `named` has there.
static char *find_difference(const dt_config *a, const dt_config *b, const dt_config *named,
                             config_row row) {
    const char *key = row.key->path, *star = strstr(key, ".*.");
    if (!star) return differs(a, b, row.type, key) ? dt_xstrdup(key) : NULL;
    char *parent = dt_xprintf("%.*s", (int)(star - key), key), *found = NULL;
    const dt_cnode *map = config_find(named, parent);
    for (size_t i = 0; map && i < map->n && !found; i++) {
        found = dt_xprintf("%s.%s%s", parent, map->keys[i], star + 2);
        if (differs(a, b, row.type, found)) break;
        free(found);
        found = NULL;
    }
    free(parent);
    return found;
}

// The value as YAML, in the arena of its config.
static const char *value_text(const dt_config *c, const char *path) {
    const dt_cnode *n = config_find(c, path);
    if (!n) return "(absent)";
    char *text = NULL;
    size_t size;
    FILE *out = open_text(&text, &size);
    config_write_flow(out, n);
    fclose(out);
    const char *kept = dt_arena_strdup((dt_arena *)&c->arena, text);
    free(text);
    return kept;
}

const char *dt_config_first_numeric_difference(const dt_config *a, const dt_config *b,
                                               const char **value_a, const char **value_b) {
    char *found = NULL;
    for (size_t i = 0; i < config_n_rows() && !found; i++) {
        config_row row = config_get_row(i);
        if (!row.key->numeric) continue;
        found = find_difference(a, b, a, row);
        if (!found) found = find_difference(a, b, b, row); // names that only b has
    }
    if (!found) return NULL;
    const char *path = dt_arena_strdup((dt_arena *)&b->arena, found);
    free(found);
    *value_a = value_text(a, path);
    *value_b = value_text(b, path);
    return path;
}
