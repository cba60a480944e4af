// config_table.c: config.def as a table: finds rows by path, reads ranges, suggests the key nearest to a wrong one.
//
// The table is small (a little over a hundred rows), so every search is linear.
#include "config_internal.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

// The lists that grow. Each is a range string "|a|b", used from its second byte on, and a table of words.
#define WORD(id, ...) "|" #id
// X-macros: each .def file gives a string of words and a table
static const char optimizers[] =
#include "optimizers.def"
    ;
static const char schedules[] =
#include "schedules.def"
    ;
static const char losses[] =
#include "losses.def"
    ;
static const char metrics[] =
#include "metrics.def"
    ;
static const char best_metrics[] = "auto"
#include "metrics.def"
    ;
static const char sinks[] =
#include "sinks.def"
    ;
static const char kinds[] =
#include "field_kinds.def"
    ;
static const char models[] =
#include "models.def"
    ;
#undef WORD
#define WORD(id, ...) {#id, __VA_ARGS__},
static const dt_config_word optimizer_words[] = {
#include "optimizers.def"
    {NULL}};
static const dt_config_word schedule_words[] = {
#include "schedules.def"
    {NULL}};
static const dt_config_word loss_words[] = {
#include "losses.def"
    {NULL}};
static const dt_config_word metric_words[] = {
#include "metrics.def"
    {NULL}};
static const dt_config_word sink_words[] = {
#include "sinks.def"
    {NULL}};
static const dt_config_word kind_words[] = {
#include "field_kinds.def"
    {NULL}};
static const dt_config_word model_words[] = {
#include "models.def"
    {NULL}};
#undef WORD
#define OPTIMIZERS &optimizers[1]
#define SCHEDULES  &schedules[1]
#define LOSSES     &losses[1]
#define METRICS    &metrics[1]
#define BEST       best_metrics
#define SINKS      &sinks[1]
#define KINDS      &kinds[1]
#define MODELS     &models[1]

static const char absent[] = "none"; // no default; its address differs from a default that reads `none`
// short names for config.def; undefined below
#define N               DT_KEY_NUMERIC
#define X               DT_KEY_EXCHANGED
#define NONE            absent
#define REQUIRED        "required"
#define DT_T_ENUM(type) DT_T_ENUM
#define DT_T_OPT(type)  DT_T_##type
#define DT_T_AUTO(type) DT_T_##type
// the field's C type selects how fill_field stores the value
#define FORM(field)                                                                                                    \
    _Generic((field), int64_t : FORM_INT, dt_opt_int : FORM_OPT_INT, dt_auto_int : FORM_AUTO_INT,  \
             double : FORM_REAL, dt_opt_real : FORM_OPT_REAL, dt_auto_real : FORM_AUTO_REAL,       \
             bool : FORM_BOOL, const char * : FORM_TEXT, const dt_cnode * : FORM_NODE,             \
             dt_amount : FORM_AMOUNT, dt_words : FORM_WORDS, default : FORM_WORD)
// owner: dt_config, or the struct of a name
#define ROW(path, owner, field, each, type, def, range, flags, help)                                                   \
    {path, DT_T_##type, def, range, help, flags, offsetof(owner, field), FORM(((owner *)0)->field), each},
#define SECTION(name)
#define END(name)
#define EACH(one, section, many)
#define END_EACH(many)
#define MEMBER(...)
#define KEY(section, name, ...)           ROW(#section "." #name, dt_config, section.name, EACH_NONE, __VA_ARGS__)
#define KEY_AS(section, key, name, ...)   ROW(#section "." #key, dt_config, section.name, EACH_NONE, __VA_ARGS__)
#define KEY_IN(section, part, name, ...)  ROW(#section "." #name, dt_config, section.part.name, EACH_NONE, __VA_ARGS__)
#define OF(one, many, name, ...)          ROW(#many ".*." #name, dt_config_##one, name, EACH_##one, __VA_ARGS__)
#define OF_IN(one, many, part, name, ...) ROW(#many ".*." #name, dt_config_##one, part.name, EACH_##one, __VA_ARGS__)
static const dt_config_key keys[] = {
#include "config.def"
};
#undef KEY
#undef KEY_AS
#undef KEY_IN
#undef OF
#undef OF_IN
#undef N
#undef X
#undef NONE
#undef REQUIRED

enum { N_ROWS = sizeof keys / sizeof *keys }; // a little over a hundred

// for `dtrain keys` and the docs
const char *dt_config_type_name(dt_config_type kind) {
    static const char *const names[] = {
        [DT_T_INT] = "INT",         [DT_T_REAL] = "REAL", [DT_T_BOOL] = "BOOL",   [DT_T_STR] = "STR",
        [DT_T_ENUM] = "ENUM",       [DT_T_TIME] = "TIME", [DT_T_BYTES] = "BYTES", [DT_T_AMOUNT] = "AMOUNT",
        [DT_T_SIZE_HW] = "SIZE_HW", [DT_T_NORM] = "NORM", [DT_T_STRS] = "STRS",   [DT_T_SETS] = "SETS",
        [DT_T_WEIGHTS] = "WEIGHTS", [DT_T_PART] = "PART", [DT_T_LIST] = "LIST",   [DT_T_WORDS] = "LIST",
        [DT_T_MAP] = "MAP"};
    return names[kind];
}

const dt_config_word *dt_config_words(const dt_config_key *k) {
    static const struct {
        const char *range;
        const dt_config_word *words;
    } lists[] = {{OPTIMIZERS, optimizer_words}, {SCHEDULES, schedule_words}, {LOSSES, loss_words},
                 {METRICS, metric_words},       {SINKS, sink_words},         {KINDS, kind_words},
                 {MODELS, model_words}};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (k->range == lists[i].range) return lists[i].words; // by address: the macros give each list one range
    return NULL;
}

const dt_config_key *dt_config_keys(size_t *n) {
    *n = N_ROWS;
    return keys;
}

const dt_config_key *dt_config_row_of(dt_key key) {
    // an offset is unique among keys of dt_config itself
    for (size_t i = 0; i < N_ROWS; i++)
        // offsets inside array structs may coincide
        if (keys[i].each == EACH_NONE && keys[i].offset == key) return &keys[i];
    dt_config_programming_error("?", "no key lies there");
}

bool dt_config_has_default(const dt_config_key *k) {
    // address, not text: a key may have the default "none"
    return k->default_text != absent && !dt_config_is_required(k);
}

bool dt_config_is_required(const dt_config_key *k) {
    return strcmp(k->default_text, "required") == 0;
}

// -- paths -----------------------------------------------------------------------------------
static size_t segment_length(const char *path) {
    return strcspn(path, ".");
}

static bool same_segment(const char *pattern, const char *path) {
    if (*pattern != *path && *pattern != '*') return false; // most rows of the table
    size_t n = segment_length(pattern), m = segment_length(path);
    return (n == 1 && *pattern == '*' && m > 0) || (n == m && memcmp(pattern, path, n) == 0); // * takes any one segment
}

// Advances both while their segments match. Afterwards *pattern and *path point at the rest ("": nothing left).
static void config_table_walk(const char **pattern, const char **path) {
    while (**pattern && **path && same_segment(*pattern, *path)) {
        *pattern += segment_length(*pattern);
        *path += segment_length(*path);
        *pattern += **pattern == '.'; // past the dots
        *path += **path == '.';
    }
}

bool dt_config_path_matches(const char *pattern, const char *path) {
    config_table_walk(&pattern, &path);
    return *pattern == '\0' && *path == '\0';
}

dt_config_match dt_config_match_path(const char *path, const dt_config_key **row) {
    dt_config_match best = MATCH_NONE;
    for (size_t i = 0; i < N_ROWS; i++) {
        const char *rest = keys[i].path, *left = path;
        config_table_walk(&rest, &left); // afterwards: what neither has in common
        dt_config_match m = MATCH_NONE;
        if (*rest == '\0' && *left == '\0') // both used up
            m = MATCH_LEAF;
        else if (*left == '\0') // the path ends above a row
            m = MATCH_INNER;
        // the row ends above the path: inside a value
        else if (*rest == '\0' &&
                 (keys[i].kind == DT_T_MAP || keys[i].kind == DT_T_LIST || keys[i].kind == DT_T_WORDS ||
                  keys[i].kind == DT_T_NORM || keys[i].kind == DT_T_WEIGHTS))
            m = MATCH_BELOW;
        // a leaf or a value wins over an inner node
        if (m == MATCH_NONE || (best != MATCH_NONE && m == MATCH_INNER)) continue;
        best = m;
        if (row) *row = &keys[i];
        if (m == MATCH_LEAF) break; // no better match
    }
    return best;
}

// -- owners ----------------------------------------------------------------------------------
// Length of the path up to its last dot, the dot included.
static size_t parent_length(const char *path) {
    const char *dot = strrchr(path, '.');
    return dot ? (size_t)(dot + 1 - path) : 0; // 0: a top-level key
}

// Whether `word` is among `words`, which blanks separate.
static bool lists_word(const char *words, const char *word) {
    const size_t n = strlen(word);
    for (const char *p = words; p && *p; p += strcspn(p, " "), p += *p == ' ')
        if (strcspn(p, " ") == n && memcmp(p, word, n) == 0) return true;
    return false;
}

const dt_config_key *dt_config_owner_key(const dt_config_key *k) {
    // siblings of k: same parent
    const size_t n = parent_length(k->path);
    for (size_t i = 0; i < N_ROWS; i++) {
        if (parent_length(keys[i].path) != n || memcmp(keys[i].path, k->path, n) != 0) continue;
        for (const dt_config_word *w = dt_config_words(&keys[i]); w && w->id; w++)
            if (lists_word(w->keys, k->path + n)) return &keys[i]; // a word of the sibling lists k
    }
    return NULL;
}

bool dt_config_owns(const dt_config_key *owner, const char *word, const dt_config_key *k) {
    for (const dt_config_word *w = dt_config_words(owner); w && w->id; w++)
        // the word's own list of keys
        if (strcmp(w->id, word) == 0) return lists_word(w->keys, k->path + parent_length(k->path));
    return false;
}

char *dt_config_owners(const dt_config_key *k) {
    const dt_config_key *owner = dt_config_owner_key(k);
    char *text = dt_xstrdup(""); // heap, as callers free it
    for (const dt_config_word *w = owner ? dt_config_words(owner) : NULL; w && w->id; w++) {
        if (!dt_config_owns(owner, w->id, k)) continue;
        char *longer = dt_xprintf("%s%s%s", text, *text ? ", " : "", w->id); // quadratic, over ten words at most
        free(text);
        text = longer;
    }
    return text;
}

// -- ranges ----------------------------------------------------------------------------------
int dt_word_index(const char *range, const char *word) {
    size_t n = strlen(word);
    int i = 0;
    for (const char *p = range; *p; p += strcspn(p, "|"), p += *p == '|', i++)
        if (strcspn(p, "|") == n && memcmp(p, word, n) == 0) return i; // same length and bytes
    return -1;
}

bool dt_config_range_bounds(const char *range, double *lo, double *hi) {
    for (const char *p = range; *p; p += strcspn(p, "|"), p += *p == '|') {
        const char *dots = strstr(p, "..");
        if (!dots || dots > p + strcspn(p, "|")) continue; // dots belong to a later alternative
        *lo = dots > p ? strtod(p, NULL) : -1e308;         // open below, open above
        *hi = dots[2] && dots[2] != '|' ? strtod(dots + 2, NULL) : 1e308;
        return true;
    }
    return false;
}

bool dt_config_is_instead(const char *range, const char *text) {
    return dt_word_index(range, text) == 0 && !strstr(text, ".."); // only the first alternative, and no range
}

// -- the nearest -----------------------------------------------------------------------------
const char *dt_config_nearest_word(dt_arena *a, const char *words, const char *text) {
    static const char *const FOREIGN_WORDS[][2] = {
// words of PyTorch, timm and Keras, and what they are here
#define FOREIGN(name, here)
#define FOREIGN_WORD(name, here) {#name, #here},
#include "foreign_keys.def"
#undef FOREIGN
#undef FOREIGN_WORD
    };
    const char *best = NULL, *known = NULL;
    int least = DT_TEXT_FAR;
    for (size_t i = 0; i < sizeof FOREIGN_WORDS / sizeof *FOREIGN_WORDS; i++) {
        const char *here = FOREIGN_WORDS[i][1];
        // only where the word fits this key
        if (strcasecmp(FOREIGN_WORDS[i][0], text) != 0 || dt_word_index(words, here) < 0) continue;
        known = known ? dt_arena_printf(a, "%s' or '%s", known, here) : here; // several may fit: "a' or 'b"
    }
    if (known) return known; // an exact foreign word beats a similar one
    for (const char *p = words; *p; p += strcspn(p, "|"), p += *p == '|') {
        int d = dt_text_closeness(p, strcspn(p, "|"), text);
        if (d < least) least = d, best = p; // distance; DT_TEXT_FAR is never nearest
    }
    return best ? dt_arena_printf(a, "%.*s", (int)strcspn(best, "|"), best) : NULL;
}

const char *dt_config_words_at(dt_arena *a, const char *parent) {
    const char *words = "";
    for (size_t i = 0; i < N_ROWS; i++) {
        // rows below `parent`: their next segment
        const char *rest = keys[i].path, *left = parent;
        config_table_walk(&rest, &left);
        if (*left || !*rest || *rest == '*') continue; // not below parent, at it, or a name that the user chooses
        const char *word = dt_arena_printf(a, "%.*s", (int)segment_length(rest), rest);
        // once each
        if (dt_word_index(words, word) < 0) words = dt_arena_printf(a, "%s%s%s", words, *words ? "|" : "", word);
    }
    return words;
}

// What a key of another program is here, or NULL.
static const char *foreign_key(const char *name) {
    // names of keys in other programs
    static const char *const KEYS[][2] = {
#define FOREIGN(name, here) {#name, here},
#define FOREIGN_WORD(name, here)
#include "foreign_keys.def"
#undef FOREIGN
#undef FOREIGN_WORD
    };
    for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS; i++)
        if (strcasecmp(KEYS[i][0], name) == 0) return KEYS[i][1];
    return NULL;
}

const char *dt_config_suggest_key(dt_arena *a, const char *path) {
    if (dt_config_match_path(path, NULL) == MATCH_LEAF) // a known key, but with its dots in the file
        return dt_arena_printf(a, "; write it nested, one map per dot");
    const char *dot = strrchr(path, '.'), *last = dot ? dot + 1 : path;
    const char *parent = dt_arena_printf(a, "%.*s", dot ? (int)(dot - path) : 0, path);
    // by the last segment: other programs nest otherwise
    const char *here = foreign_key(last), *words = dt_config_words_at(a, parent);
    const char *above = strrchr(parent, '.');
    if (!here && dt_config_match_path(parent, NULL) == MATCH_NONE) // a section of another program: wandb.project
        here = foreign_key(above ? above + 1 : parent);
    if (here) return dt_arena_printf(a, "; in dtrain: %s", here);
    const char *near = dt_config_nearest_word(a, words, last);
    if (near) return dt_arena_printf(a, "; did you mean '%s%s%s'?", parent, *parent ? "." : "", near);
    for (size_t i = 0; i < N_ROWS; i++) { // the right name in the wrong place
        const char *d = strrchr(keys[i].path, '.');
        if (d && strcmp(d + 1, last) == 0) return dt_arena_printf(a, "; did you mean '%s'?", keys[i].path);
    }
    // "": nothing is known there
    const char *list = ""; // words with commas between them
    for (const char *p = words; *p; p += strcspn(p, "|"), p += *p == '|')
        list = dt_arena_printf(a, "%s%s%.*s", list, *list ? ", " : "", (int)strcspn(p, "|"), p);
    return *words ? dt_arena_printf(a, "; expected one of %s", list) : "";
}
