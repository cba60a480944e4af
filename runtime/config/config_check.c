// config_check.c: checks the tree against the table.
//
// Three walks. First, every key must be known and have a value of its type; shorthands are expanded (`size: 64`
// becomes [64, 64], `normalize: imagenet` its numbers, one path a list). Second, every absent key gets its default, or
// an error if it is required. Third come the few rules between keys. After that the getters cannot fail.
#include "config/param_groups.h"
#include "config/words.h"
#include "config_internal.h"
#include "store/s3.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static dt_status check_map(dt_config *c, const char *prefix, dt_cnode *map);

// -- what is expected, in words --------------------------------------------------------------
// a noun phrase behind "expected"
static const char *const TYPE_WORDS[] = {[DT_T_INT] = "a whole number",
                                         [DT_T_REAL] = "a number",
                                         [DT_T_BOOL] = "true or false",
                                         [DT_T_STR] = "text",
                                         [DT_T_ENUM] = "one of ",
                                         [DT_T_TIME] = "a time such as 10s, 500ms, 2m or 1h",
                                         [DT_T_BYTES] = "a size such as 500MiB, 20GB or a number of bytes",
                                         [DT_T_AMOUNT] = "an amount such as 10 steps, 1 epoch or 5%",
                                         [DT_T_SIZE_HW] = "[height, width] or one whole number",
                                         [DT_T_NORM] = "{mean: [...], std: [...]} or imagenet",
                                         [DT_T_STRS] = "text or a list of texts",
                                         [DT_T_SETS] = "a path, or a list of paths and {path: …, weight: …, name: …}",
                                         [DT_T_WEIGHTS] = "{name: number, …}, a list of numbers, or balanced",
                                         [DT_T_PART] = "a share in 0..1, or an expression such as \"part = 'test'\"",
                                         [DT_T_LIST] = "a list",
                                         [DT_T_WORDS] = "a list of ",
                                         [DT_T_MAP] = "a map"};

static const char *config_check_expectation(dt_config *c, const dt_config_key *row) {
    const char *range = row->range, *text = TYPE_WORDS[row->kind]; // "lo..hi", "a|b|c" or "auto|lo..hi"
    double lo, hi;
    if (row->kind == DT_T_ENUM || row->kind == DT_T_WORDS) {
        for (const char *p = range; *p; p += strcspn(p, "|"), p += *p == '|') // words in the order of the .def file
            text = dt_arena_printf(&c->arena, "%s%s%.*s", text, p > range ? ", " : "", (int)strcspn(p, "|"), p);
        return text;
    }
    if (dt_config_range_bounds(range, &lo, &hi)) {
        if (hi >= 1e308) // no upper bound
            // %.15g: as many digits as a person writes
            text = dt_arena_printf(&c->arena, "%s of at least %.15g", text, lo);
        else
            text = dt_arena_printf(&c->arena, "%s in %.15g..%.15g", text, lo, hi);
    }
    // the word that stands instead of a number
    const char *word = dt_arena_printf(&c->arena, "%.*s", (int)strcspn(range, "|"), range);
    if (*word && dt_config_is_instead(range, word)) text = dt_arena_printf(&c->arena, "%s, or %s", text, word);
    return text;
}

static dt_status config_check_fail_value(dt_config *c, const dt_config_key *row, const char *path, const dt_cnode *n) {
    dt_arena *a = &c->arena;
    const char *got = n->kind == DT_C_LIST   ? "a list" // kinds that no scalar key takes
                      : n->kind == DT_C_MAP  ? "a map"
                      : dt_config_is_null(n) ? "empty"
                                             : NULL;
    const char *near = NULL;
    if (!got) {
        // distinguishes 8 from '8'
        got = dt_arena_printf(a, n->quoted ? "the text '%s'" : "'%s'", dt_config_shown(a, n->text));
        if (row->kind == DT_T_ENUM || row->kind == DT_T_WORDS) near = dt_config_nearest_word(a, row->range, n->text);
    }
    return dt_fail(DT_E_USAGE, "%s: %s is %s; expected %s%s%s%s", n->where, dt_config_shown(a, path), got,
                   config_check_expectation(c, row), near ? "; did you mean '" : "", near ? near : "",
                   near ? "'?" : "");
}

// -- one value -------------------------------------------------------------------------------
static bool in_range(const char *range, double v) {
    // no bounds: any value
    double lo, hi;
    return !dt_config_range_bounds(range, &lo, &hi) || (v >= lo && v <= hi); // v is never NaN: parsing refuses NaN
}

bool dt_config_in_range(dt_key key, double value) {
    return in_range(dt_config_row_of(key)->range, value);
}

static bool scalar_fits(const dt_config_key *row, const dt_cnode *n) {
    const char *text = n->text, *range = row->range; // a quoted number is text, as in YAML
    int64_t i;
    double v;
    bool b;
    dt_amount amount;
    if (dt_config_is_null(n)) return false;
    switch (row->kind) {
    case DT_T_INT:
        // a double holds the bounds exactly
        return !n->quoted && dt_config_parse_int(text, &i) && in_range(range, (double)i);
    case DT_T_REAL:
        return !n->quoted && dt_config_parse_real(text, &v) && in_range(range, v);
    case DT_T_PART: // a share or an expression
        if (dt_cnode_real(n, &v)) return v >= 0 && v <= 1;
        return *text && text[strlen(text) - 1] != '%'; // 20% is neither
    case DT_T_BOOL:
        return !n->quoted && dt_config_parse_bool(text, &b);
    case DT_T_STR: // any text, quoted or not
        return true;
    case DT_T_ENUM:
        return dt_word_index(range, text) >= 0;
    case DT_T_TIME:
        return dt_config_parse_time(text, &v) && in_range(range, v);
    case DT_T_BYTES:
        return dt_config_parse_bytes(text, &v) && in_range(range, v);
    case DT_T_AMOUNT:
        return dt_config_parse_amount(text, &amount); // without a unit: steps
    case DT_T_SIZE_HW:                                // no scalars
    case DT_T_NORM:
    case DT_T_STRS:
    case DT_T_SETS:
    case DT_T_WEIGHTS:
    case DT_T_LIST:
    case DT_T_WORDS:
    case DT_T_MAP:
        break;
    }
    return false;
}

static bool is_count(const char *range, const dt_cnode *n) {
    int64_t i;
    return n->kind == DT_C_SCALAR && !n->quoted && dt_config_parse_int(n->text, &i) && in_range(range, (double)i);
}

// Makes a scalar a list of one.
static void wrap_in_list(dt_config *c, dt_cnode *n) {
    dt_cnode *item = dt_config_new_node(&c->arena, DT_C_SCALAR, n->where);
    item->text = n->text;
    item->quoted = n->quoted;
    n->kind = DT_C_LIST;
    n->text = NULL;
    dt_config_add_item(&c->arena, n, NULL, item);
}

static dt_status config_check_size_of(dt_config *c, const dt_config_key *row, const char *path, dt_cnode *n) {
    const char *range = row->range;
    if (n->kind == DT_C_SCALAR && is_count(range, n)) wrap_in_list(c, n);
    if (n->kind != DT_C_LIST || n->n < 1 || n->n > 2) return config_check_fail_value(c, row, path, n);
    for (size_t i = 0; i < n->n; i++)
        if (!is_count(range, n->items[i])) return config_check_fail_value(c, row, path, n->items[i]);
    return DT_OK;
}

// one data set as a map; other keys would be ignored silently, so they are errors
static dt_status check_set(dt_config *c, const dt_config_key *row, const char *path, const dt_cnode *n) {
    bool has_path = false;
    double v;
    for (size_t i = 0; i < n->n; i++) { // three keys: order does not matter
        const dt_cnode *item = n->items[i];
        bool is_path = strcmp(n->keys[i], "path") == 0, text = item->kind == DT_C_SCALAR;
        if (strcmp(n->keys[i], "weight") == 0) {
            if (!dt_cnode_real(item, &v) || !(v > 0) || v > 1e9) // !(v > 0): also NaN
                return dt_fail(DT_E_USAGE, "%s: weight of %s: expected a number above 0", item->where,
                               dt_config_shown(&c->arena, path));
        } else if (!is_path && strcmp(n->keys[i], "name") != 0) {
            return dt_fail(DT_E_USAGE, "%s: unknown key '%s' in %s; expected path, weight, name", item->key_where,
                           dt_config_shown(&c->arena, n->keys[i]), dt_config_shown(&c->arena, path));
        } else if (!text || dt_config_is_null(item)) {
            return config_check_fail_value(c, row, path, item);
        }
        has_path = has_path || is_path; // {weight: 2} alone names nothing
    }
    return has_path ? DT_OK : config_check_fail_value(c, row, path, n);
}

// Texts. Where the row takes datasets, they may be maps too.
static dt_status check_texts(dt_config *c, const dt_config_key *row, const char *path, dt_cnode *n) {
    const bool sets = row->kind == DT_T_SETS;
    if (n->kind == DT_C_SCALAR && !dt_config_is_null(n)) wrap_in_list(c, n); // a single path
    if (sets && n->kind == DT_C_MAP) return check_set(c, row, path, n);
    if (row->kind == DT_T_WEIGHTS && n->kind == DT_C_MAP && n->n > 0) return DT_OK; // its reader knows the names
    const bool may_be_empty = dt_word_index(row->range, "auto") >= 0;               // none, and not auto
    if (n->kind != DT_C_LIST || (n->n == 0 && !may_be_empty)) return config_check_fail_value(c, row, path, n);
    for (size_t i = 0; i < n->n; i++) {
        const dt_cnode *item = n->items[i];
        if (sets && item->kind == DT_C_MAP)
            DT_TRY(check_set(c, row, path, item));
        else if (item->kind != DT_C_SCALAR || dt_config_is_null(item))
            return config_check_fail_value(c, row, path, item);
    }
    return DT_OK;
}

// A list of words; one word is a list of one.
static dt_status check_words(dt_config *c, const dt_config_key *row, const char *path, dt_cnode *n) {
    // [accuracy, auc] or accuracy
    if (n->kind == DT_C_SCALAR && !dt_config_is_null(n)) wrap_in_list(c, n);
    if (n->kind != DT_C_LIST) return config_check_fail_value(c, row, path, n);
    for (size_t i = 0; i < n->n; i++) {
        const dt_cnode *item = n->items[i];
        if (item->kind != DT_C_SCALAR || dt_word_index(row->range, item->text) < 0) // also an empty item
            return config_check_fail_value(c, row, path, item);
    }
    return DT_OK;
}

static dt_status check_moments(dt_config *c, const dt_config_key *row, const char *path, dt_cnode *list,
                               bool positive) {
    double v;
    // one number for all channels
    if (list->kind == DT_C_SCALAR && !list->quoted && dt_config_parse_real(list->text, &v)) wrap_in_list(c, list);
    if (list->kind != DT_C_LIST || list->n == 0) return config_check_fail_value(c, row, path, list);
    for (size_t i = 0; i < list->n; i++) {
        const dt_cnode *item = list->items[i];
        // item->quoted: "0.5" in quotes is a mistake here
        if (!dt_cnode_real(item, &v) || item->quoted) return config_check_fail_value(c, row, path, item);
        if (positive && v <= 0) // std divides
            return dt_fail(DT_E_USAGE, "%s: %s: std is %s; expected numbers above 0", item->where,
                           dt_config_shown(&c->arena, path), item->text);
    }
    return DT_OK;
}

static dt_status check_normalize(dt_config *c, const dt_config_key *row, const char *path, dt_cnode *n) {
    // torchvision's numbers, RGB, for pixels in 0..1
    static const char imagenet[] = "{mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}";
    if (n->kind == DT_C_SCALAR && strcmp(n->text, "imagenet") == 0) {
        dt_cnode *full;
        // n->where: messages name the word imagenet
        DT_TRY(dt_config_read_yaml(&full, &c->arena, c->file, n->where, imagenet, sizeof imagenet - 1));
        full->key_where = n->key_where;
        *n = *full; // the word is replaced, so the dump shows numbers
    }
    if (n->kind != DT_C_MAP || n->n == 0) return config_check_fail_value(c, row, path, n);
    for (size_t i = 0; i < n->n; i++) {
        bool std = strcmp(n->keys[i], "std") == 0;
        if (!std && strcmp(n->keys[i], "mean") != 0)
            return dt_fail(DT_E_USAGE, "%s: unknown key '%s.%s'; expected mean or std", n->items[i]->key_where,
                           dt_config_shown(&c->arena, path), dt_config_shown(&c->arena, n->keys[i]));
        DT_TRY(check_moments(c, row, path, n->items[i], std));
    }
    return DT_OK;
}

dt_status dt_config_check_value(dt_config *c, const dt_config_key *row, const char *path, dt_cnode *n) {
    // the word in front of a range, such as auto
    if (n->kind == DT_C_SCALAR && row->kind != DT_T_WORDS && dt_config_is_instead(row->range, n->text)) return DT_OK;
    switch (row->kind) {
    case DT_T_SIZE_HW:
        return config_check_size_of(c, row, path, n);
    case DT_T_STRS:
    case DT_T_SETS:
    case DT_T_WEIGHTS:
        return check_texts(c, row, path, n);
    case DT_T_NORM:
        return check_normalize(c, row, path, n);
    case DT_T_WORDS:
        return check_words(c, row, path, n);
    case DT_T_LIST:
        // the reader of the key checks its items
        return n->kind == DT_C_LIST ? DT_OK : config_check_fail_value(c, row, path, n);
    case DT_T_MAP:
        return n->kind == DT_C_MAP ? DT_OK : config_check_fail_value(c, row, path, n);
    case DT_T_INT:
    case DT_T_REAL:
    case DT_T_BOOL:
    case DT_T_STR:
    case DT_T_ENUM:
    case DT_T_TIME:
    case DT_T_BYTES:
    case DT_T_AMOUNT:
    case DT_T_PART:
        break;
    }
    bool ok = n->kind == DT_C_SCALAR && scalar_fits(row, n); // all other kinds are scalars
    return ok ? DT_OK : config_check_fail_value(c, row, path, n);
}

// -- every key that is there -----------------------------------------------------------------
// A name that the user chooses becomes a path segment and a tensor's name.
static bool config_check_is_name(const char *s) {
    // also safe in file names and JSON
    return *s && strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == strlen(s);
}

// recall.leak is recall, and best_class: leak beside it.
static dt_status split_best(dt_config *c, dt_cnode *n) {
    const char *dot = n->kind == DT_C_SCALAR && n->text ? strchr(n->text, '.') : NULL;
    if (!dot) return DT_OK;
    dt_cnode *class = dt_config_new_node(&c->arena, DT_C_SCALAR, n->where);
    class->text = dt_arena_strdup(&c->arena, dot + 1);
    class->quoted = true;
    n->text = dt_arena_printf(&c->arena, "%.*s", (int)(dot - n->text), n->text);
    return dt_config_put(c, "eval.best_class", class);
}

static dt_status check_entry(dt_config *c, const char *path, const char *key, dt_cnode *n) {
    const dt_config_key *row;
    dt_config_match m = dt_config_match_path(path, &row);
    // a dot in a key would look like nesting
    if (strchr(key, '.') || (m == MATCH_INNER && !config_check_is_name(key))) m = MATCH_NONE;
    if (m == MATCH_LEAF && strcmp(path, "eval.best") == 0) DT_TRY(split_best(c, n));
    if (m == MATCH_LEAF) return dt_config_check_value(c, row, path, n);
    if (m == MATCH_INNER && n->kind == DT_C_MAP) return check_map(c, path, n);
    if (m == MATCH_INNER) {
        const char *name = dt_arena_printf(&c->arena, "%s.name", path), *word = NULL;
        // train.optimizer=adam means its name
        if (n->kind == DT_C_SCALAR && dt_config_match_path(name, &row) == MATCH_LEAF && row->kind == DT_T_ENUM)
            word = dt_config_nearest_word(&c->arena, row->range, n->text);
        return dt_fail(DT_E_USAGE, "%s: %s is %s; expected a map of keys%s", n->where, dt_config_shown(&c->arena, path),
                       // a scalar where a section is expected
                       n->kind == DT_C_LIST ? "a list" : "a value",
                       word ? dt_arena_printf(&c->arena, "; did you mean '%s=%s'?", name, word)
                            // "?": what may follow the section
                            : dt_config_suggest_key(&c->arena, dt_arena_printf(&c->arena, "%s.?", path)));
    }
    return dt_fail(DT_E_USAGE, "%s: unknown key '%s'%s", n->key_where, dt_config_shown(&c->arena, path),
                   dt_config_suggest_key(&c->arena, path));
}

// `key: null` leaves an optional key out. So a command line that chooses another word can drop the keys of the file's
// word: model.name=vit model.depth=
static bool is_left_out(const char *path, const dt_cnode *n) {
    const dt_config_key *row;
    if (!dt_config_is_null(n)) return false; // only nulls can be left out
    dt_config_match m = dt_config_match_path(path, &row);
    if (m != MATCH_LEAF) return m == MATCH_INNER;            // an empty section is left out, too
    if (strcmp(row->default_text, "auto") == 0) return true; // auto is what the absent key means
    // a key that only some words own may always be left out
    return dt_config_owner_key(row) || (!dt_config_has_default(row) && !dt_config_is_required(row));
}

static dt_status check_map(dt_config *c, const char *prefix, dt_cnode *map) {
    size_t kept = 0;
    for (size_t i = 0; i < map->n; i++) {
        const char *path = dt_arena_printf(&c->arena, "%s%s%s", prefix, *prefix ? "." : "", map->keys[i]);
        if (is_left_out(path, map->items[i])) continue; // dropped from the map
        DT_TRY(check_entry(c, path, map->keys[i], map->items[i]));
        map->keys[kept] = map->keys[i]; // compacts in place; kept <= i
        map->items[kept++] = map->items[i];
    }
    map->n = kept;
    return DT_OK;
}

// -- every row that is not -------------------------------------------------------------------
// A required word that is not given, but a key beside it that only one word has, is that word: model: {layers: [...]}.
static bool put_only_word(dt_config *c, const dt_config_key *row, const char *path) {
    const char *dot = strrchr(path, '.');
    // words of the row's .def file, with the keys that each owns
    for (const dt_config_word *w = dt_config_words(row); w && w->id; w++) {
        const char *key = w->keys ? w->keys : "";
        for (; *key; key += strcspn(key, " "), key += *key == ' ') {
            const int n = (int)strcspn(key, " ");
            // key beside the row: same parent
            const char *beside = dt_arena_printf(&c->arena, "%.*s.%.*s", (int)(dot - path), path, n, key);
            const dt_config_key *found;
            // not given, or no key
            if (!dt_config_find(c, beside) || dt_config_match_path(beside, &found) != MATCH_LEAF) continue;
            char *owners = dt_config_owners(found); // "layers" belongs to one word; a key of several decides nothing
            const bool only = strcmp(owners, w->id) == 0;
            free(owners);
            if (!only) continue;
            // messages point to the key that decided
            dt_cnode *word = dt_config_new_node(&c->arena, DT_C_SCALAR, dt_config_find(c, beside)->where);
            word->text = w->id;
            return dt_config_put(c, path, word) == DT_OK;
        }
    }
    return false;
}

static dt_status fill_path(dt_config *c, const dt_config_key *row, const char *path) {
    if (dt_config_find(c, path)) return DT_OK; // given, or put by an earlier row
    if (dt_config_is_required(row) && put_only_word(c, row, path)) return DT_OK;
    if (dt_config_is_required(row)) {
        const dt_cnode *parent = dt_config_find_nearest(c, path);
        // the section's place, else the file's first character: a section of defaults or of overrides stands in no file
        const char *where =
            parent && strcmp(parent->key_where, "default") != 0 && strcmp(parent->key_where, "command line") != 0
                ? parent->key_where
                : dt_arena_printf(&c->arena, "%s:1:1", c->file);
        return dt_fail(DT_E_USAGE, "%s: required key '%s' is missing; expected %s (%s)", where, path,
                       config_check_expectation(c, row), row->help);
    }
    if (!dt_config_has_default(row)) return DT_OK;
    dt_cnode *n;
    const char *text = row->default_text;
    // defaults are YAML too, so one parser reads both
    DT_TRY(dt_config_read_yaml(&n, &c->arena, "config.def", "default", text, strlen(text)));
    DT_TRY(dt_config_check_value(c, row, path, n)); // a default that does not fit its own row is found at the first run
    return dt_config_put(c, path, n);
}

// A key of another word (train.optimizer.momentum for adamw) is an error if it is given, and gets no default.
static dt_status config_check_check_owner(dt_config *c, const dt_config_key *row, const char *path, bool *mine) {
    const dt_config_key *owner = dt_config_owner_key(row); // NULL: the key belongs to all words
    *mine = true;
    // the path differs from the row's where names are the user's (*)
    if (!owner) return DT_OK;
    const char *dot = strrchr(path, '.'), *last = strrchr(owner->path, '.');
    // ".name" behind the same parent
    const char *owner_path = dt_arena_printf(&c->arena, "%.*s%s", (int)(dot - path), path, last);
    const dt_cnode *n = dt_config_find(c, owner_path), *given = dt_config_find(c, path);
    const char *word = n ? n->text : owner->default_text; // the owner's word, or its default
    *mine = dt_config_owns(owner, word, row);
    if (*mine || !given) return DT_OK;
    // has no effect, and stands in configs of runs that began when other words had the key
    if (strcmp(row->default_text, "auto") == 0 && given->text && strcmp(given->text, "auto") == 0) return DT_OK;
    char *owners = dt_config_owners(row);
    // from the command line: dropping the file's key is the likely wish
    const bool chosen = n && strcmp(n->where, "command line") == 0;
    const dt_status st =
        dt_fail(DT_E_USAGE, "%s: %s is a key of %s, but %s is %s%s%s%s", given->key_where, path, owners, owner_path,
                word, chosen ? "; leave it out: " : "", chosen ? path : "", chosen ? "=" : "");
    free(owners);
    return st;
}

static dt_status fill_owned(dt_config *c, const dt_config_key *row, const char *path) {
    bool mine;
    DT_TRY(config_check_check_owner(c, row, path, &mine));
    return mine ? fill_path(c, row, path) : DT_OK;
}

// A row with a `*` is filled in for every name that the user chose; the map itself may belong to a word, too.
static dt_status config_check_fill_row(dt_config *c, const dt_config_key *row) {
    const char *star = strstr(row->path, ".*.");
    if (!star) return fill_owned(c, row, row->path);
    const char *parent = dt_arena_printf(&c->arena, "%.*s", (int)(star - row->path), row->path);
    const dt_cnode *names = dt_config_find(c, parent);
    bool mine;
    const dt_config_key map = {.path = parent, .default_text = ""}; // a row made for the map itself
    DT_TRY(config_check_check_owner(c, &map, parent, &mine));
    for (size_t i = 0; names && i < names->n; i++)
        // star + 2: ".key"
        DT_TRY(fill_owned(c, row, dt_arena_printf(&c->arena, "%s.%s%s", parent, names->keys[i], star + 2)));
    return DT_OK;
}

// -- rules between keys ----------------------------------------------------------------------
static dt_status check_batches(dt_config *c) {
    const int64_t global = c->train.global_batch;
    if (c->train.micro_batch.is_auto) {
        if (c->run.reproducible != DT_REPRODUCIBLE_elastic) return DT_OK;
        return dt_config_fail(
            c, "train.micro_batch",
            "train.micro_batch: auto depends on the machine and the number of ranks, and run.reproducible=elastic "
            "promises bits that do not: give a number (dtrain check prints the value of auto under resume)");
    }
    const int64_t micro = dt_answer(c->train.micro_batch); // number: resolved, as auto was handled above
    if (global % micro == 0) return DT_OK;
    int64_t down = global < micro ? global : micro; // the largest divisor up to micro; 1 always divides
    while (global % down) down--;
    return dt_config_fail(c, "train.micro_batch",
                          "train.micro_batch is %" PRId64
                          "; expected a divisor of train.global_batch, which is %" PRId64
                          " (the next smaller one is %" PRId64 ")",
                          micro, global, down);
}

static dt_status check_run_name(dt_config *c) {
    const char *name = c->run.name;
    if (strstr(c->run.dir, "://"))
        return dt_config_fail(c, "run.dir",
                              "run.dir is '%s'; expected a folder: runs are written to files, which "
                              "rclone or a cloud's own tool copies to a bucket",
                              dt_config_shown(&c->arena, c->run.dir));
    // the name is a folder below run.dir
    if (*name && *name != '.' && !strchr(name, '/') && strlen(name) <= 200) return DT_OK;
    return dt_config_fail(c, "run.name",
                          "run.name is '%s'; expected a name for a directory, without /, of at "
                          "most 200 bytes and not beginning with a dot",
                          dt_config_shown(&c->arena, name));
}

static dt_status check_mirror(dt_config *c) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_";
    const char *url = c->checkpoint.mirror;
    if (!url && c->checkpoint.mirror_wait)
        return dt_config_fail(c, "checkpoint.mirror_wait",
                              "checkpoint.mirror_wait waits for checkpoint.mirror: set it");
    if (!url) return DT_OK;
    const char *bucket = url + 5, *key = bucket;           // "s3://" and "gs://" have five characters
    if (dt_s3_is_url(url)) key += strspn(bucket, letters); // no URL: key stays at bucket, and the test below fails
    if (key > bucket && *key == '/') return DT_OK;         // a bucket's root would mix runs
    return dt_config_fail(c, "checkpoint.mirror",
                          "checkpoint.mirror is '%s'; expected a folder in a bucket, such as "
                          "s3://bucket/runs/%s",
                          dt_config_shown(&c->arena, url), c->run.name);
}

// Each of these keys is a way to clip; together they would hide each other.
static dt_status check_clipping(dt_config *c) {
    const struct {
        const char *key;
        double limit;
    } ways[] = {{"train.clip_norm", dt_value_or(c->train.clip_norm, 0)},
                {"train.clip_value", dt_value_or(c->train.clip_value, 0)},
                {"train.clip_agc", dt_value_or(c->train.clip_agc, 0)}};
    const char *first = NULL;
    for (int i = 0; i < 3; i++) {
        if (ways[i].limit == 0) continue; // 0: off
        if (first) return dt_config_fail(c, ways[i].key, "%s: %s is given, too; take one of them", ways[i].key, first);
        first = ways[i].key;
    }
    return DT_OK;
}

// Keys that have no effect without another one.
static dt_status check_company(dt_config *c) {
    // key, and the key that gives it a meaning
    static const char *const PAIRS[][2] = {{"train.teacher_temperature", "train.teacher"},
                                           {"train.teacher_alpha", "train.teacher"},
                                           {"train.triplet_margin", "train.triplet_weight"},
                                           {"data.m_per_class", "data.balance"}};
    for (size_t i = 0; i < sizeof PAIRS / sizeof *PAIRS; i++)
        // a default would be there always: these keys have none
        if (dt_config_find(c, PAIRS[i][0]) && !dt_config_find(c, PAIRS[i][1]))
            return dt_config_fail(c, PAIRS[i][0], "%s has no effect without %s: set both", PAIRS[i][0], PAIRS[i][1]);
    return DT_OK;
}

// A schedule's lengths are above 0, and its lowest rate is not above train.optimizer.lr.
static dt_status check_schedule(dt_config *c) {
    const struct {
        const char *key;
        dt_amount length;
    } lengths[] = {{"train.schedule.every", c->train.schedule.every},
                   {"train.schedule.decay", c->train.schedule.decay},
                   {"train.schedule.rise", c->train.schedule.rise}};
    const double lr = c->train.optimizer.lr, min_lr = c->train.schedule.min_lr;
    for (int i = 0; i < 3; i++)
        if (lengths[i].length.unit != DT_UNIT_NONE && !(lengths[i].length.value > 0)) // unit NONE: not given
            return dt_config_fail(c, lengths[i].key,
                                  "%s is 0; expected an amount above 0, or another "
                                  "train.schedule.name (constant never falls)",
                                  lengths[i].key);
    if (min_lr > lr) // cosine would rise
        return dt_config_fail(c, "train.schedule.min_lr",
                              "train.schedule.min_lr is %g, above train.optimizer.lr, which is %g", min_lr, lr);
    return DT_OK;
}

// Images: one number as size means a square; normalize has one number for each channel, or one for all.
static dt_status check_field(dt_config *c, const dt_config_field *f) {
    dt_cnode *size = (dt_cnode *)f->size; // the tree is ours: expands the shorthand
    const dt_cnode *norm = f->normalize;
    const int64_t channels = dt_answer_or(f->channels, 3); // auto: taken as 3 here
    if (f->kind != DT_FIELD_image) return DT_OK;           // sounds and numbers have no size here
    // [64] becomes [64, 64], both the same node
    if (size && size->n == 1) dt_config_add_item(&c->arena, size, NULL, size->items[0]);
    for (size_t i = 0; norm && i < norm->n; i++)
        if (norm->items[i]->n != 1 && norm->items[i]->n != (size_t)channels)
            return dt_fail(DT_E_USAGE,
                           "%s: data.fields.%s.normalize.%s has %zu numbers; expected %" PRId64 " (channels) or 1",
                           norm->items[i]->where, f->id, norm->keys[i], norm->items[i]->n, channels);
    return DT_OK;
}

bool dt_config_trace_steps(const dt_config *c, int64_t *begin, int64_t *end) {
    const char *steps = c->metrics.trace.steps;
    *begin = *end = 0;
    // FROM < TO
    return !steps || (dt_config_parse_range(steps, begin, end) && *begin >= 0 && *end > *begin);
}

static dt_status check_mlflow(const dt_config *c) {
    const char *uri = c->metrics.mlflow.uri;
    if (!dt_words_have(&c->metrics.sinks, DT_SINK_mlflow)) return DT_OK;
    if (!dt_words_have(&c->metrics.sinks, DT_SINK_jsonl))
        return dt_config_fail(c, "metrics.sinks",
                              "the mlflow sink sends the lines of metrics.jsonl: metrics.sinks needs jsonl too");
    if (!uri || (strncmp(uri, "http://", 7) != 0 && strncmp(uri, "https://", 8) != 0))
        return dt_config_fail(c, "metrics.mlflow.uri",
                              "metrics.mlflow.uri is %s%s%s; expected the tracking server's URL, as "
                              "in http://host:5000",
                              uri ? "'" : "", uri ? uri : "not given", uri ? "'" : "");
    const char *host = strchr(uri, ':') + 3; // "://" is there
    if (strpbrk(host, "?#"))
        return dt_config_fail(c, "metrics.mlflow.uri",
                              "metrics.mlflow.uri has a query in it; set MLFLOW_TRACKING_USERNAME "
                              "and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN, in the "
                              "environment");
    return DT_OK;
}

dt_status dt_config_check_tree(dt_config *c) {
    DT_TRY(check_map(c, "", c->root)); // 1. what is given
    size_t n_rows;
    const dt_config_key *rows = dt_config_keys(&n_rows);
    for (size_t i = 0; i < n_rows; i++) DT_TRY(config_check_fill_row(c, &rows[i])); // 2. what is absent
    dt_config_fill(c);                                                              // from here on fields may be read
    DT_TRY(check_run_name(c));
    DT_TRY(check_mirror(c));
    DT_TRY(check_batches(c));
    DT_TRY(check_schedule(c));
    DT_TRY(check_clipping(c));
    DT_TRY(check_company(c));
    int64_t begin, end;
    if (!dt_config_trace_steps(c, &begin, &end))
        return dt_config_fail(c, "metrics.trace.steps", "metrics.trace.steps is '%s'; expected FROM..TO, as in 20..30",
                              c->metrics.trace.steps);
    const char *file = c->metrics.textfile ? "metrics.textfile" : c->metrics.file_sd ? "metrics.file_sd" : NULL;
    if (file && !dt_words_have(&c->metrics.sinks, DT_SINK_prometheus))
        return dt_config_fail(c, file, "%s is written by the prometheus sink: metrics.sinks needs prometheus too",
                              file);
    DT_TRY(check_mlflow(c));
    dt_listen listen;
    DT_TRY(dt_listen_read(&listen, c)); // an address is checked before a port is opened
    // needs names that the user chose
    for (int i = 0; i < c->data.n_fields; i++) DT_TRY(check_field(c, &c->data.fields[i]));
    return DT_OK;
}
