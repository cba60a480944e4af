// config.h: one YAML file and key=value overrides in, one validated struct out.
//
// How it works: the text is at most 1 MiB and 64 levels deep. It becomes a tree whose nodes remember file:line:column;
// overrides are merged in, the tree is checked against config.def, the one table of keys, and defaults are filled in.
// Then every value goes, parsed once, into the field of its key: c->train.optimizer.lr is train.optimizer.lr. The tree
// stays for what is written again (dt_config_dump) and for the places that messages name.
//
// Invariants: after dt_config_load every field holds a value of its type and range. A key that is optional without a
// default is NULL, 0, or `has` false; one that belongs to another word (train.optimizer.momentum for adamw) holds its
// default. An array such as data.fields has one item more, of the defaults: what a name has that is not in the file.
// `auto` of a number is no number: dt_answer ends the program until dt_config_set_… has resolved it.
// So is another word that a range begins with instead: f1 of eval.threshold.
//
// Errors: DT_E_USAGE, one line "file:line:column: what; expected …; did you mean …".
// Threads: read-only after load; set before sharing.
#ifndef DT_CONFIG_CONFIG_H
#define DT_CONFIG_CONFIG_H

#include "base/core.h"
#include "config/words.h"

typedef struct dt_cnode dt_cnode; // a node of the tree; borrowed, lives as long as its config

// ---- values ------------------------------------------------------------------------------------------
// "10 steps", "1 epoch", "5%" and the like: a number and a unit. DT_UNIT_NONE: the key is absent.
typedef enum dt_unit { DT_UNIT_NONE, DT_UNIT_STEPS, DT_UNIT_EPOCHS, DT_UNIT_PERCENT } dt_unit;
typedef struct dt_amount {
    double value;
    dt_unit unit;
} dt_amount;
typedef struct dt_opt_int {
    bool has;
    int64_t value;
} dt_opt_int;
typedef struct dt_opt_real {
    bool has;
    double value;
} dt_opt_real;
// Read with dt_answer or dt_answer_or only. An absent key is auto, too.
typedef struct dt_auto_int {
    bool is_auto;
    int64_t answer;
} dt_auto_int;
typedef struct dt_auto_real {
    bool is_auto;
    double answer;
} dt_auto_real;
typedef struct dt_words { // in the order of the file
    const dt_word *items;
    int n;
} dt_words;

// The value of an opt, or `otherwise`.
#define dt_value_or(opt, otherwise) ((opt).has ? (opt).value : (otherwise))
// The number of an auto. One that is not resolved is a programming error and ends the program.
#define dt_answer(a)               _Generic((a), dt_auto_int : dt_answer_int, dt_auto_real : dt_answer_real)((a), #a)
#define dt_answer_or(a, otherwise) ((a).is_auto ? (otherwise) : (a).answer)
int64_t dt_answer_int(dt_auto_int a, const char *name);
double dt_answer_real(dt_auto_real a, const char *name);
bool dt_words_have(const dt_words *w, dt_word word);

// ---- the struct --------------------------------------------------------------------------------------
// The C type of each type of config.def. TIME is in seconds, BYTES in bytes; const dt_cnode * is NULL when absent.
#define DT_TYPE_INT        int64_t
#define DT_TYPE_REAL       double
#define DT_TYPE_BOOL       bool
#define DT_TYPE_STR        const char *
#define DT_TYPE_TIME       double
#define DT_TYPE_BYTES      int64_t
#define DT_TYPE_AMOUNT     dt_amount
#define DT_TYPE_WORDS      dt_words
#define DT_TYPE_SIZE_HW    const dt_cnode *
#define DT_TYPE_NORM       const dt_cnode *
#define DT_TYPE_STRS       const dt_cnode *
#define DT_TYPE_SETS       const dt_cnode *
#define DT_TYPE_WEIGHTS    const dt_cnode *
#define DT_TYPE_PART       const dt_cnode *
#define DT_TYPE_LIST       const dt_cnode *
#define DT_TYPE_MAP        const dt_cnode *
#define DT_TYPE_ENUM(type) type
#define DT_TYPE_OPT(type)  DT_TYPE_OPT_##type
#define DT_TYPE_OPT_INT    dt_opt_int
#define DT_TYPE_OPT_REAL   dt_opt_real
#define DT_TYPE_AUTO(type) DT_TYPE_AUTO_##type
#define DT_TYPE_AUTO_INT   dt_auto_int
#define DT_TYPE_AUTO_REAL  dt_auto_real
#define DT_TYPE_AUTO_BYTES dt_auto_int
#define DT_TYPE_AUTO_TIME  dt_auto_real

#define AT(name, type, ...) DT_TYPE_##type name;
typedef struct dt_config_backbone {
#include "config/backbone_keys.def"
} dt_config_backbone;
#undef AT

#define SECTION(name) struct {
#define END(name)                                                                                                      \
    }                                                                                                                  \
    name;
#define EACH(one, section, many)                                                                                       \
    struct dt_config_##one {                                                                                           \
        const char *id;
#define END_EACH(many)                                                                                                 \
    }                                                                                                                  \
    *many;                                                                                                             \
    int n_##many;
#define MEMBER(...)                           __VA_ARGS__
#define KEY(section, name, type, ...)         DT_TYPE_##type name;
#define KEY_AS(section, key, name, type, ...) DT_TYPE_##type name;
#define OF(one, many, name, type, ...)        DT_TYPE_##type name;
#define KEY_IN(...)
#define OF_IN(...)
typedef struct dt_config {
#include "config/config.def"
    // For runtime/config alone: the tree.
    dt_arena arena;
    const char *file;
    dt_cnode *root; // a map
} dt_config;
#undef SECTION
#undef END
#undef EACH
#undef END_EACH
#undef MEMBER
#undef KEY
#undef KEY_AS
#undef OF
#undef KEY_IN
#undef OF_IN
typedef struct dt_config_field dt_config_field;
typedef struct dt_config_encoder dt_config_encoder;
typedef struct dt_config_target dt_config_target;

// A key, for those who name one instead of reading it: DT_KEY(train.micro_batch).
typedef size_t dt_key;
#define DT_KEY(path) offsetof(dt_config, path)
// The key's name, "train.micro_batch", which the compiler checks.
#define DT_KEY_NAME(path) ((void)DT_KEY(path), #path)

// ---- loading -----------------------------------------------------------------------------------------
// Reads `path` ("-" = stdin) and applies overrides "key=value" (value parsed as YAML flow text).
dt_status dt_config_load(dt_config **out, const char *path, const char *const *overrides, size_t n_overrides);
// The same from memory; `name` stands for the file in messages. For tests, fuzzing, checkpoints.
dt_status dt_config_parse(dt_config **out, const char *name, const char *text, size_t n_bytes,
                          const char *const *overrides, size_t n_overrides);
// The file's text with keys and words of earlier releases as they are now, and nothing else changed; heap. DT_E_USAGE: one
// cannot be replaced where it stands, or what comes of it is no config.
dt_status dt_config_upgrade(char **out, const char *path);
// The word of a key as it is now, where earlier releases had another: "auc" of eval.best. Else `word` itself.
const char *dt_config_renamed_word(const char *path, const char *word);
// More overrides on a loaded config. After an error the config is good for nothing.
dt_status dt_config_override(dt_config *c, const char *const *overrides, size_t n_overrides);
// A config of its own with the same values, as it would be read from dt_config_dump's text.
dt_config *dt_config_copy(const dt_config *c);
void dt_config_destroy(dt_config *c);

// ---- resolved values, and what the program itself sets ---------------------------------------------------------
// A value that does not fit the key is a programming error and ends the program. Words are constants of their enum.
void dt_config_set_int(dt_config *c, dt_key key, int64_t value);
void dt_config_set_word(dt_config *c, dt_key key, dt_word word);
void dt_config_set_text(dt_config *c, dt_key key, const char *text); // also auto, where it may be
// One entry of a MAP: DT_KEY(data.augment), "iris", a constant of YAML.
void dt_config_set_entry(dt_config *c, dt_key key, const char *name, const char *yaml);
// data.fields[field].normalize: {mean: …, std: …} of n numbers.
void dt_config_set_moments(dt_config *c, int field, const double *mean, const double *std, int n);
// Where `c` has normalize: auto and `from` numbers, as a run's own config.yaml has them, `c` takes these; those of a field
// with another `source` only with any_source.
void dt_config_take_moments(dt_config *c, const dt_config *from, bool any_source);
// The value that `from` has, or none.
void dt_config_set_same(dt_config *c, dt_key key, const dt_config *from);
void dt_config_unset(dt_config *c, dt_key key);
void dt_config_unset_section(dt_config *c,
                             const char *section); // every key below it, as "data.split"
bool dt_config_is_auto(const dt_config *c, dt_key key);
bool dt_config_in_range(dt_key key,
                        double value); // whether the key of a number may have this value
// The key's one value as text: an ENUM's word, a number as it is written; NULL: absent, or no single value.
const char *dt_config_text(const dt_config *c, dt_key key);
// "file:line:column" of the key or the nearest one above it that is there.
const char *dt_config_where(const dt_config *c, dt_key key);
// The number of a REAL, INT, BOOL or TIME whose name a table gives, as "train.focal_gamma"; false: it is absent.
bool dt_config_number(const dt_config *c, const char *path, double *out);
dt_amount dt_config_amount(const dt_config *c, const char *path); // likewise

// An amount as steps: percent of total_steps, epochs of steps_per_epoch; 0 only if the amount is,
// as 1% of a short run must not mean never.
int64_t dt_amount_steps(dt_amount a, int64_t total_steps, int64_t steps_per_epoch);
double dt_amount_exact(dt_amount a, int64_t total_steps, int64_t steps_per_epoch); // not rounded
// metrics.trace.steps, "20..30": the traced steps are begin to end - 1. Without the key both are 0. False: malformed.
bool dt_config_trace_steps(const dt_config *c, int64_t *begin, int64_t *end);

// ---- walking lists and maps (fields, augment, view) ----------------------------------------------
// The tree of a YAML file that is no config; lives as long as the arena.
dt_status dt_config_read_tree(const dt_cnode **out, dt_arena *a, const char *path);
typedef enum dt_ckind { DT_C_SCALAR, DT_C_LIST, DT_C_MAP } dt_ckind;
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
// The same where a name that the user wrote at `key` is no `what` ("field"); names: "a, b", those that are. The message has
// the nearest, else all.
dt_status dt_config_fail_name(const dt_config *c, const char *key, const char *name, const char *what,
                              const char *names);

// ---- the whole ------------------------------------------------------------------------------------
// A size as a key of type BYTES takes it: "4GiB".
bool dt_config_parse_bytes(const char *text, double *bytes);
// Two whole numbers, as "0..4".
bool dt_config_parse_range(const char *text, int64_t *first, int64_t *last);
// YAML text of the resolved tree, keys in table order; heap, caller frees.
char *dt_config_dump(const dt_config *c);
// Whether `path` is the file that c was loaded from and dt_config_dump did not write it: a dump of c there loses what
// only the user has, such as comments. may_lack: a file of other keys, as an earlier version's is, counts as written.
bool dt_config_is_users_file(const dt_config *c, const char *path, bool may_lack);
// Every value of the resolved tree, in that order: the key's path, the value as YAML, and the default's text (NULL: it
// has none), equal to the value if `is_default`. The texts live as long as the config.
typedef void (*dt_config_visit)(void *ctx, const char *path, const char *value, const char *default_text,
                                bool is_default);
void dt_config_each(dt_config *c, dt_config_visit visit, void *ctx);
// Whether runs that differ in this key alone repeat a configuration: folds and seeds.
bool dt_config_is_repeat(const char *path);
// Whether two configs have the same value at the path of a key, or both none: 3.0e-3 is 0.003, 1m is 60s. *numeric: the
// key changes numbers.
bool dt_config_same_at(const dt_config *a, const dt_config *b, const char *path, bool *numeric);
// Whether paths at `key` differ between two configs (of sets: neither names, weights nor their number), and nothing else.
bool dt_config_moved(const dt_config *a, const dt_config *b, const char *key);
// The first key with one of these dt_key_flags that differs between two configs, or NULL. `a` is what the run has, `b`
// what is requested; an `auto` in b takes a's value and never differs. Key and values live as long as the configs.
const char *dt_config_first_difference(const dt_config *a, const dt_config *b, int flags, const char **value_a,
                                       const char **value_b);

// The same for the keys below data.fields.<field> alone, but for where the values lie.
const char *dt_config_field_difference(const dt_config *a, const dt_config *b, const char *field, const char **value_a,
                                       const char **value_b);

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
    DT_T_WEIGHTS,
    DT_T_PART,
    DT_T_LIST,
    DT_T_WORDS,
    DT_T_MAP
} dt_config_type;
typedef enum dt_key_flags {
    DT_KEY_NUMERIC = 1,  // N in config.def
    DT_KEY_EXCHANGED = 2 // X
} dt_key_flags;
typedef struct dt_config_key {
    const char *path; // a segment `*` stands for a name that the user chooses
    dt_config_type kind;
    const char *default_text, *range, *help;
    int flags; // dt_key_flags
    // For runtime/config alone: the field's place in its struct, its C type, and whose struct it is.
    size_t offset;
    int form, each;
} dt_config_key;
const char *dt_config_type_name(dt_config_type kind);
const dt_config_key *dt_config_keys(size_t *n);
// What each word of the key means, ended by {NULL}; NULL: the key has no such list.
typedef struct dt_config_word {
    const char *id, *help;
    const char *keys; // the keys beside this one that only such words read, separated by blanks; NULL: none
} dt_config_word;
const dt_config_word *dt_config_words(const dt_config_key *k);
// Key i of those that only some words of the ENUM `key` read and that the chosen one does; NULL: there are no more.
const dt_config_key *dt_config_owned(const dt_config *c, dt_key key, int i);
// The words that read the key, as "adamw, lamb"; "" if it belongs to all. Heap, caller frees.
char *dt_config_owners(const dt_config_key *k);

#endif
