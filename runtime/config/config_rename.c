// config_rename.c: keys and words of earlier releases (renamed_keys.def), where a config is read and for
// `dtrain check --upgrade`.
//
// A tree is renamed right after its text is parsed, before anything is checked, and each change is noted by its place in
// the text. So --upgrade changes these words alone: comments, order and blanks stay.
#include "config_internal.h"

#include "base/io.h"
#include "base/log.h"
#include "base/os.h"

#include <stdlib.h>
#include <string.h>

typedef struct renaming {
    const char *path, *word; // word: of the value; NULL: any, the key is renamed
    const char *now, *unit;  // now NULL: the key is gone
} renaming;
#define RENAMED(path, name, unit, since)     {path, NULL, #name, unit},
#define RENAMED_WORD(path, word, now, since) {path, #word, #now, NULL},
#define REMOVED(path, value)                 {path, value, NULL, NULL},
static const renaming RENAMINGS[] = {
#include "renamed_keys.def"
};
#undef RENAMED
#undef RENAMED_WORD
#undef REMOVED

// A word at a character of the text; now NULL: its line is left out.
typedef struct edit {
    size_t at;
    const char *old, *now;
} edit;

typedef struct renamer {
    dt_arena *arena;
    const char *file; // of which it warns; NULL: it does not
    edit *edits;      // heap
    size_t n_edits;
} renamer;

static void note(renamer *r, size_t at, const char *old, const char *now) {
    r->edits = dt_xgrow(r->edits, r->n_edits, sizeof *r->edits);
    r->edits[r->n_edits++] = (edit){at, old, now};
}

static const renaming *find_renaming(const char *path, const char *word) {
    for (size_t i = 0; i < sizeof RENAMINGS / sizeof *RENAMINGS; i++) {
        const renaming *x = &RENAMINGS[i];
        const bool fits = word ? x->word && strcmp(x->word, word) == 0 : !x->word;
        if (fits && dt_config_path_matches(x->path, path)) return x;
    }
    return NULL;
}

// taken: the map has the new key, too.
static void warn(const renamer *r, const char *where, const char *old, const char *now, bool taken) {
    if (r->file && dt_launcher_rank() <= 0) // before ranks know of each other; -1: without a launcher
        dt_warn("%s: '%s' is '%s' now%s, and goes with the next major release; "
                "dtrain check CONFIG --upgrade prints the config in the new spelling",
                where, old, now, taken ? ", which has a value of its own: it is ignored" : "");
}

static void rename_word(renamer *r, const char *path, dt_cnode *n) {
    for (size_t i = 0; n->kind == DT_C_LIST && i < n->n; i++) rename_word(r, path, n->items[i]);
    const renaming *x = n->kind == DT_C_SCALAR ? find_renaming(path, n->text) : NULL;
    if (!x || !x->now) return;
    warn(r, n->where, n->text, x->now, false);
    note(r, n->at, n->text, x->now);
    n->text = x->now;
}

static void rename_map(renamer *r, const char *prefix, dt_cnode *map);

// The key of `item` at `path` as it is now; NULL: `map`, which the item is in, has this key, too.
static const char *rename_entry(renamer *r, const char *path, dt_cnode *item, const dt_cnode *map) {
    const char *dot = strrchr(path, '.'), *key = dot ? dot + 1 : path;
    const renaming *x = find_renaming(path, NULL);
    if (x) {
        const bool taken = map && dt_cnode_get(map, x->now);
        const char *old = key;
        key = x->now;
        path = dt_arena_printf(r->arena, "%.*s%s", (int)(old - path), path, key);
        warn(r, item->key_where, x->path, path, taken);
        note(r, item->key_at, old, taken ? NULL : key);
        if (taken) return NULL; // the new key has the value
        if (item->kind == DT_C_SCALAR && *x->unit && !dt_config_is_null(item)) {
            const char *text = dt_arena_printf(r->arena, "%s%s", item->text, x->unit);
            note(r, item->at, item->text, text);
            item->text = text;
        }
    }
    if (item->kind == DT_C_MAP)
        rename_map(r, path, item);
    else
        rename_word(r, path, item);
    return key;
}

static void rename_map(renamer *r, const char *prefix, dt_cnode *map) {
    size_t kept = 0;
    for (size_t i = 0; i < map->n; i++) {
        dt_cnode *item = map->items[i];
        const char *path = dt_arena_printf(r->arena, "%s%s%s", prefix, *prefix ? "." : "", map->keys[i]);
        const renaming *gone = item->kind == DT_C_SCALAR ? find_renaming(path, item->text) : NULL;
        if (gone && !gone->now) {
            note(r, item->key_at, map->keys[i], NULL);
            continue;
        }
        const bool is_name = !strchr(map->keys[i], '.'); // else it is refused: a dot is no nesting
        const char *key = is_name ? rename_entry(r, path, item, map) : map->keys[i];
        if (!key) continue;
        map->keys[kept] = key;
        map->items[kept++] = item;
    }
    map->n = kept;
}

void dt_config_rename(dt_config *c, bool warns) {
    renamer r = {.arena = &c->arena, .file = warns ? c->file : NULL};
    if (c->root->kind == DT_C_MAP) rename_map(&r, "", c->root);
    free(r.edits);
}

bool dt_config_is_renamed(const char *path) {
    return find_renaming(path, NULL) != NULL;
}

const char *dt_config_rename_override(dt_config *c, const char *path, dt_cnode *item) {
    renamer r = {.arena = &c->arena, .file = c->file};
    const char *dot = strrchr(path, '.'), *key = rename_entry(&r, path, item, NULL);
    free(r.edits);
    return dt_arena_printf(&c->arena, "%.*s%s", dot ? (int)(dot + 1 - path) : 0, path, key);
}

const char *dt_config_renamed_word(const char *path, const char *word) {
    const renaming *x = find_renaming(path, word);
    return x && x->now ? x->now : word;
}

// ---- upgrade ---------------------------------------------------------------------------------------

// Writes the text up to an edit and what stands there now. *at: how far the text is written. False: the word does not
// stand there as it is, or its line holds more.
static bool write_edit(FILE *out, const char *text, const char **at, const char *place, const edit *e) {
    const size_t n = strlen(e->old);
    place += *place == '"' || *place == '\'';
    if (strncmp(place, e->old, n) != 0) return false;
    if (e->now) {
        fwrite(*at, 1, (size_t)(place - *at), out);
        fputs(e->now, out);
        *at = place + n;
        return true;
    }
    const char *begin = place;
    while (begin > text && (begin[-1] == ' ' || begin[-1] == '"' || begin[-1] == '\'')) begin--;
    if (begin > text && begin[-1] != '\n') return false;
    fwrite(*at, 1, (size_t)(begin - *at), out);
    *at = place + strcspn(place, "\n");
    *at += **at == '\n';
    return true;
}

static dt_status upgrade_text(char **out, const char *name, const char *text, const renamer *r) {
    const char *at = text, *p = text + (strncmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0);
    size_t n = 0, n_characters = 0;
    FILE *file = open_memstream(out, &n);
    dt_status st = DT_OK;
    for (size_t i = 0; i < r->n_edits && st == DT_OK; i++) {                         // in the order of the text
        while (n_characters < r->edits[i].at) n_characters += (*++p & 0xC0) != 0x80; // places count characters of UTF-8
        if (!write_edit(file, text, &at, p, &r->edits[i]))
            st = dt_fail(DT_E_USAGE,
                         "%s: '%s' of an earlier release cannot be replaced as it is written: write it on a "
                         "line of its own, or change it by hand",
                         name, r->edits[i].old);
    }
    fputs(at, file);
    fclose(file);
    return st;
}

dt_status dt_config_upgrade(char **out, const char *path) {
    char *text = NULL;
    size_t n;
    dt_arena arena;
    dt_cnode *root;
    dt_config *c = NULL;
    *out = NULL;
    DT_TRY(dt_io_read_file(&text, &n, path, CONFIG_MAX_BYTES, DT_E_USAGE));
    dt_arena_init(&arena);
    renamer r = {.arena = &arena};
    dt_status st = dt_config_read_yaml(&root, &arena, path, NULL, text, n);
    if (st == DT_OK && root->kind == DT_C_MAP) rename_map(&r, "", root);
    if (st == DT_OK) st = upgrade_text(out, path, text, &r);
    if (st == DT_OK) st = dt_config_parse(&c, path, *out, strlen(*out), NULL, 0); // what is printed is a config
    if (st != DT_OK) {
        free(*out);
        *out = NULL;
    }
    dt_config_destroy(c);
    free(r.edits);
    dt_arena_fini(&arena);
    free(text);
    return st;
}
