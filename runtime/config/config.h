// config.h: one YAML file and key=value overrides in, one validated, typed, immutable tree out.
//
// How it works: the text is at most 1 MiB and 64 levels deep. It becomes a tree whose nodes remember file:line:column;
// overrides are merged in, and the tree is checked against config.def, the one table of keys. A segment `*` in the
// table stands for a name that the user chooses (a field). Defaults are filled in, so a getter never fails: asking for
// a key that the table does not have is a programming error and ends the program.
//
// Invariants: after dt_config_load every key of the table has a value of its type, or is absent (dt_config_has) because
// it is optional without a default, or belongs to another word. `auto` is a value like any other where the table
// allows it. Whoever resolves it writes the answer with dt_config_resolve; the run directory and the checkpoint keep
// the resolved tree.
//
// Errors: DT_E_USAGE, one line "file:line:column: what; expected …; did you mean …".
// Threads: read-only after load; resolve before sharing.
#ifndef DT_CONFIG_CONFIG_H
#define DT_CONFIG_CONFIG_H

#include "base/status.h"
#include "config/words.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct dt_config dt_config;
typedef struct dt_cnode dt_cnode; // a node of the tree; borrowed, lives as long as its config

// Reads `path` ("-" = stdin) and applies overrides "key=value" (value parsed as YAML flow text).
dt_status dt_config_load(dt_config **out, const char *path, const char *const *overrides,
                         size_t n_overrides);
// The same from memory; `name` stands for the file in messages. For tests, fuzzing, checkpoints.
dt_status dt_config_parse(dt_config **out, const char *name, const char *text, size_t n_bytes,
                          const char *const *overrides, size_t n_overrides);
void dt_config_destroy(dt_config *c);

// ---- values, by full dotted path -----------------------------------------------------------------
bool dt_config_has(const dt_config *c, const char *key);
bool dt_config_is_auto(const dt_config *c, const char *key);
const char *dt_config_str(const dt_config *c, const char *key); // text of a scalar
// An ENUM's value as its enum of words.h: the place of the word in the key's range, from 0.
int dt_config_enum(const dt_config *c, const char *key);
// A LIST of words: whether `word` (a constant as above) is in it.
bool dt_config_lists(const dt_config *c, const char *key, int word);
int64_t dt_config_int(const dt_config *c, const char *key);
double dt_config_real(const dt_config *c, const char *key); // true and false as 1 and 0
bool dt_config_bool(const dt_config *c, const char *key);
double dt_config_seconds(const dt_config *c,
                         const char *key); // "10s", "500ms", "2m", "1h", plain = s

int64_t dt_config_bytes(const dt_config *c, const char *key); // "500MiB", "20GB", plain = bytes

// "10 steps", "1 epoch", "5%" and the like: a number and a unit.
typedef enum dt_unit { DT_UNIT_NONE, DT_UNIT_STEPS, DT_UNIT_EPOCHS, DT_UNIT_PERCENT } dt_unit;
typedef struct dt_amount {
    double value;
    dt_unit unit;
} dt_amount;
dt_amount dt_config_amount(const dt_config *c, const char *key);
// An amount as steps: percent of total_steps, epochs of steps_per_epoch; 0 only if the amount is,
// as 1% of a short run must not mean never.
int64_t dt_amount_steps(dt_amount a, int64_t total_steps, int64_t steps_per_epoch);

// Writes a resolved value over `auto` (or a default). `text` is YAML flow text.
void dt_config_resolve(dt_config *c, const char *key, const char *text);

// ---- walking lists and maps (fields, augment, view) ----------------------------------------------
typedef enum dt_ckind { DT_C_SCALAR, DT_C_LIST, DT_C_MAP } dt_ckind;
const dt_cnode *dt_config_node(const dt_config *c, const char *key); // NULL when absent
dt_ckind dt_cnode_kind(const dt_cnode *n);
size_t dt_cnode_size(const dt_cnode *n);                          // items of a list or map
const dt_cnode *dt_cnode_item(const dt_cnode *n, size_t i);       // list item or map value
const char *dt_cnode_key(const dt_cnode *n, size_t i);            // map key, in file order
const dt_cnode *dt_cnode_get(const dt_cnode *n, const char *key); // map value or NULL
const char *dt_cnode_str(const dt_cnode *n);                      // scalar text
bool dt_cnode_real(const dt_cnode *n, double *out);               // false when not a number
// "file:line:column" of the node, for messages about what the table cannot check.
const char *dt_cnode_where(const dt_cnode *n);
// dt_fail(DT_E_USAGE) with the place of `key` in front.
dt_status dt_config_fail(const dt_config *c, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

// ---- the whole ------------------------------------------------------------------------------------
// A size as a key of type BYTES takes it: "4GiB".
bool dt_config_parse_bytes(const char *text, double *bytes);
// YAML text of the resolved tree, keys in table order; heap, caller frees.
char *dt_config_dump(const dt_config *c);
// The first key that changes numbers (flag N in config.def) and differs between two configs, or NULL. `a` is what the
// run has, `b` what is asked for; an `auto` in b takes a's answer and never differs. Key and values live as long as
// the configs.
const char *dt_config_first_numeric_difference(const dt_config *a, const dt_config *b,
                                               const char **value_a, const char **value_b);

// The same for the keys below data.fields.<field> alone, but for where the values lie.
const char *dt_config_field_difference(const dt_config *a, const dt_config *b, const char *field,
                                       const char **value_a, const char **value_b);

// The table, for `dtrain keys` and docs/reference/keys.md.
typedef enum dt_config_type {
    DT_T_INT,
    DT_T_REAL,
    DT_T_BOOL,
    DT_T_STR,
    DT_T_ENUM,
    DT_T_TIME,
    DT_T_BYTES,
    DT_T_AMOUNT,
    DT_T_SIZE_HW,
    DT_T_NORM,
    DT_T_STRS,
    DT_T_SETS,
    DT_T_PART,
    DT_T_LIST,
    DT_T_MAP
} dt_config_type;
typedef struct dt_config_key {
    const char *path, *type;
    dt_config_type kind; // `type` as an enum
    const char *default_text, *range, *help;
    bool numeric; // changes numbers
} dt_config_key;
const dt_config_key *dt_config_keys(size_t *n);
// What each word of the key means, ended by {NULL}; NULL: the key has no such list.
typedef struct dt_config_word {
    const char *id, *help;
    const char *
        keys; // the keys beside this one that only such words read, separated by blanks; NULL: none
} dt_config_word;
const dt_config_word *dt_config_words(const dt_config_key *k);
// Key i of those that only some words of the ENUM `key` read and that the chosen one does; NULL: there are no more.
const dt_config_key *dt_config_owned(const dt_config *c, const char *key, int i);
// The words that read the key, as "adamw, lamb"; "" if it belongs to all. Heap, caller frees.
char *dt_config_owners(const dt_config_key *k);

#endif
