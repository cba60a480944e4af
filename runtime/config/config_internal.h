// config_internal.h: what the files of runtime/config share. Not for others.
#ifndef DT_CONFIG_INTERNAL_H
#define DT_CONFIG_INTERNAL_H

#include "config/config.h"

#include <stdio.h>

enum {
    CONFIG_MAX_BYTES = 1 << 20,
    CONFIG_MAX_DEPTH = 64,
    CONFIG_MAX_NODES = 100000,
    CONFIG_MAX_KEYS = 512,     // of one map: duplicates are searched linearly
    CONFIG_MAX_KEY_BYTES = 100 // even escaped it fits YAML's 1024 bytes for a key on one line
};

struct dt_cnode {
    dt_ckind kind;
    bool quoted;           // scalar in quotes: text, never a number, auto or null
    const char *text;      // scalar
    const char *where;     // "file:line:column", "command line", "default"
    const char *key_where; // place of its key in the map that holds it
    size_t at, key_at;     // the same, in characters from the text's begin
    const char **keys;     // map
    dt_cnode **items;      // list, map
    size_t n, cap;
};

// -- tree (config_tree.c) --------------------------------------------------------------------
dt_cnode *dt_config_new_node(dt_arena *a, dt_ckind kind, const char *where);
void dt_config_add_item(dt_arena *a, dt_cnode *parent, const char *key, dt_cnode *item);
// YAML text -> tree. Nodes hold name:line:column, or `place` if it is not NULL.
dt_status dt_config_read_yaml(dt_cnode **out, dt_arena *a, const char *name, const char *place, const char *text,
                              size_t n_bytes);
dt_cnode *dt_config_copy_node(dt_arena *a, const dt_cnode *n);
bool dt_config_is_null(const dt_cnode *n);
bool dt_config_node_is_auto(const dt_cnode *n); // NULL: false
// The user's text for a message: shortened, control characters shown as ?. Lives in the arena.
const char *dt_config_shown(dt_arena *a, const char *text);

// -- table (config_table.c) ------------------------------------------------------------------
typedef enum dt_config_match {
    MATCH_NONE,
    MATCH_LEAF,  // a row of the table
    MATCH_INNER, // leads to rows
    MATCH_BELOW  // inside a LIST or MAP row, whose reader checks it
} dt_config_match;

// What `path` is to the table; for MATCH_LEAF and MATCH_BELOW also the row.
dt_config_match dt_config_match_path(const char *path, const dt_config_key **row);
bool dt_config_has_default(const dt_config_key *k);
bool dt_config_is_required(const dt_config_key *k);
bool dt_config_path_matches(const char *pattern, const char *path); // a `*` of the pattern is any one segment
// The key beside `k` whose words own `k` (see field_kinds.def), or NULL if `k` belongs to all; whether `word` owns `k`.
const dt_config_key *dt_config_owner_key(const dt_config_key *k);
bool dt_config_owns(const dt_config_key *owner, const char *word, const dt_config_key *k);
// The segments that may follow `parent`, as "a|b|c"; "" where the user chooses them.
const char *dt_config_words_at(dt_arena *a, const char *parent);
// What to write instead of the unknown `path`: "; did you mean …" or "; expected one of …".
const char *dt_config_suggest_key(dt_arena *a, const char *path);
// The word of "a|b|c" nearest to `text`, or NULL.
const char *dt_config_nearest_word(dt_arena *a, const char *words, const char *text);
bool dt_config_range_bounds(const char *range, double *lo, double *hi); // false: none given
// Whether text is the word in front of a range, "auto|1..", which stands instead of a value.
bool dt_config_is_instead(const char *range, const char *text);

// The C type of a key's field.
typedef enum dt_config_form {
    FORM_INT,
    FORM_OPT_INT,
    FORM_AUTO_INT,
    FORM_REAL,
    FORM_OPT_REAL,
    FORM_AUTO_REAL,
    FORM_BOOL,
    FORM_TEXT,
    FORM_NODE,
    FORM_AMOUNT,
    FORM_WORDS,
    FORM_WORD // an enum, or dt_word
} dt_config_form;
// The struct that the field lies in: dt_config itself, or an element of an array.
typedef enum dt_config_each_kind { EACH_NONE, EACH_field, EACH_encoder, EACH_target } dt_config_each_kind;
const dt_config_key *dt_config_row_of(dt_key key); // by its place in dt_config

// -- values (config_values.c) ------------------------------------------------------------------
// Copies the values of the tree, which has been checked, into the fields of `c`.
void dt_config_fill(dt_config *c);
void dt_config_programming_error(const char *key, const char *what) __attribute__((noreturn));

// -- scalars (config_values.c) ---------------------------------------------------------------
bool dt_config_parse_int(const char *text, int64_t *out);
bool dt_config_parse_real(const char *text, double *out);
bool dt_config_parse_bool(const char *text, bool *out);
bool dt_config_parse_time(const char *text, double *seconds);
bool dt_config_parse_amount(const char *text, dt_amount *out);
// Whether two values of a row are equal, however they are written: 1.0e-3 and 0.001, 1m and 60s.
bool dt_config_same_value(dt_config_type type, const dt_cnode *x, const dt_cnode *y);

// -- keys and words of earlier releases (config_rename.c) -------------------------------------
// Renames what is in the tree. warns: a line for each.
void dt_config_rename(dt_config *c, bool warns);
bool dt_config_is_renamed(const char *path);
// The path of an override as it is now; renames what is in `item`, and warns.
const char *dt_config_rename_override(dt_config *c, const char *path, dt_cnode *item);

// -- check (config_check.c) ------------------------------------------------------------------
// Checks every node against the table, brings shorthands into one form, fills in defaults.
dt_status dt_config_check_tree(dt_config *c);
// Checks one value of a row.
dt_status dt_config_check_value(dt_config *c, const dt_config_key *row, const char *path, dt_cnode *n);

// -- access (config.c) -----------------------------------------------------------------------
dt_cnode *dt_config_find(const dt_config *c, const char *path);
// The node at `path`, or of the nearest key above it that is there; NULL: there is none.
const dt_cnode *dt_config_find_nearest(const dt_config *c, const char *path);
// Puts `item` at `path`, making maps on the way; DT_E_USAGE when a scalar or list is in the way.
dt_status dt_config_put(dt_config *c, const char *path, dt_cnode *item);
void dt_config_remove(dt_config *c, const char *path);

#endif
