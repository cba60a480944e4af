// shard_names.c: from what a user writes to names of files, and from names of members to records.
//
// "::" joins several paths. Braces stand for ranges ({000000..000127}) and alternatives ({a,b}), nested as in a
// shell. *, ? and [ ] match existing files and, in a URL's last name, objects of a bucket, sorted by their bytes whatever the locale, as the order of shards
// is the order of records. A path that exists as it is written is taken as it is: names may have braces.
#include "data/file/kept_names.h"
#include "source.h"

#include "base/arena.h"
#include "base/io.h"
#include "base/text.h"
#include "store/blob_url.h"
#include "store/s3.h"
#include "store/s3_objects.h"

#include <ctype.h>
#include <fnmatch.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SHARDS = 1000000, MAX_NESTING = 64 };

void dt_names_add(dt_names *l, const char *name) {
    l->name = dt_xgrow(l->name, l->n, sizeof *l->name);
    l->name[l->n++] = dt_xstrdup(name);
}

void dt_names_fini(dt_names *l) {
    dt_io_free_list(l->name, l->n);
    *l = (dt_names){0};
}

// ---- braces --------------------------------------------------------------------------------------
// The } that ends the { at `open`, or NULL. *comma: there is a comma between them, outside of inner pairs.
static const char *closing(const char *open, bool *comma) {
    int depth = 0;
    *comma = false;
    for (const char *p = open; *p; p++) {
        depth += (*p == '{') - (*p == '}');
        if (depth == 0) return p;
        if (depth == 1 && *p == ',') *comma = true;
    }
    return NULL;
}

static dt_status expand(const char *text, int nesting, dt_names *out);

// Expands a pair of braces that was replaced by one of its values. Frees `text`.
static dt_status expand_one(char *text, int nesting, dt_names *out) {
    dt_status st = expand(text, nesting + 1, out);
    free(text);
    return st;
}

static dt_status expand_alternatives(const char *text, const char *open, const char *close, int nesting,
                                     dt_names *out) {
    const char *begin = open + 1;
    int depth = 0;
    for (const char *p = begin; p <= close; p++) {
        if (p == close || (depth == 0 && *p == ',')) {
            DT_TRY(expand_one(dt_xprintf("%.*s%.*s%s", (int)(open - text), text, (int)(p - begin), begin, close + 1),
                              nesting, out));
            begin = p + 1;
        }
        depth += (*p == '{') - (*p == '}');
    }
    return DT_OK;
}

static dt_status expand_range(const char *text, const char *open, const char *close, int nesting, dt_names *out) {
    unsigned long long first, last;
    int n_first = 0, n_all = 0;
    if (!isdigit((unsigned char)open[1]) || sscanf(open, "{%llu%n..%llu}%n", &first, &n_first, &last, &n_all) != 2 ||
        open + n_all != close + 1 || last < first || last - first >= MAX_SHARDS)
        return dt_fail(DT_E_USAGE,
                       "%s: a brace pattern looks like name-{000000..000127}.tar (ascending) or "
                       "name-{a,b}.tar",
                       text);
    for (unsigned long long i = first; i <= last; i++)
        DT_TRY(
            expand_one(dt_xprintf("%.*s%0*llu%s", (int)(open - text), text, n_first - 1, i, close + 1), nesting, out));
    return DT_OK;
}

static dt_status expand(const char *text, int nesting, dt_names *out) {
    const char *open = strchr(text, '{');
    bool comma;
    if (!open) {
        dt_names_add(out, text);
        return out->n <= MAX_SHARDS ? DT_OK : dt_fail(DT_E_USAGE, "%s: more than %d shards", text, MAX_SHARDS);
    }
    const char *close = closing(open, &comma);
    if (!close || nesting == MAX_NESTING)
        return dt_fail(DT_E_USAGE, "%s: %s", text, close ? "too many braces" : "a { without its }");
    return comma ? expand_alternatives(text, open, close, nesting, out) : expand_range(text, open, close, nesting, out);
}

// ---- files that are there ------------------------------------------------------------------------
static _Thread_local dt_status unlisted; // of the folders of a pattern

static int note_unlisted(const char *folder, int err) {
    if (dt_name_is_hidden(dt_path_base(folder), true)) return 0;
    unlisted = dt_io_read_error(folder, "list", err, DT_E_DATA);
    return -1;
}

// The objects that a pattern of their names in one prefix matches.
static dt_status expand_objects(const char *pattern, dt_names *out, bool *matched) {
    const char *base = dt_path_base(pattern);
    char *prefix = dt_xprintf("%.*s", (int)(base - pattern), pattern), **names;
    size_t n = 0;
    *matched = false;
    const dt_status st = dt_s3_list(&names, &n, prefix);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(base, names[i]) != 0 && fnmatch(base, names[i], FNM_PERIOD) != 0) continue;
        char *url = dt_xprintf("%s%s", prefix, names[i]);
        dt_names_add(out, url);
        free(url);
        *matched = true;
    }
    if (st == DT_OK) dt_io_free_list(names, n);
    free(prefix);
    return st;
}

static dt_status expand_glob(const char *pattern, dt_names *out, bool *matched) {
    *matched = true;
    if (dt_s3_is_url(pattern) && strpbrk(dt_path_base(pattern), "*?[")) return expand_objects(pattern, out, matched);
    // a ? in a URL begins its query
    if (dt_blob_is_url(pattern) || dt_io_exists(pattern) || !strpbrk(pattern, "*?[")) {
        dt_names_add(out, pattern);
        return DT_OK;
    }
    glob_t g;
    unlisted = DT_OK;
    *matched = glob(pattern, GLOB_NOSORT, note_unlisted, &g) == 0;
    if (*matched) qsort(g.gl_pathv, g.gl_pathc, sizeof *g.gl_pathv, dt_text_compare);
    for (size_t i = 0; *matched && i < g.gl_pathc; i++) dt_names_add(out, g.gl_pathv[i]);
    globfree(&g);
    return unlisted;
}

// Every alternative must match something, or a missing part of the data would go unnoticed. The list has what the
// others match all the same, so that a caller can tell a part from nothing.
static dt_status expand_globs(const char *whole, const dt_names *patterns, dt_names *out) {
    const char *none = NULL;
    for (size_t i = 0; i < patterns->n; i++) {
        bool matched;
        DT_TRY(expand_glob(patterns->name[i], out, &matched));
        if (!matched && !none) none = patterns->name[i];
    }
    if (!none) return DT_OK;
    if (strcmp(none, whole) == 0) return dt_fail(DT_E_DATA, "%s: no file matches", none);
    return dt_fail(DT_E_DATA, "%s (of %s): no file matches", none, whole);
}

// Expands the braces of each path between "::". `files`: a path that exists stays as it is written.
static dt_status expand_joined(const char *pattern, bool files, dt_names *out) {
    char *copy = dt_xstrdup(pattern), *at = copy;
    dt_status st = DT_OK;
    while (at && st == DT_OK) {
        char *next = strstr(at, "::");
        if (next) *next = '\0';
        if (files && dt_io_exists(at))
            dt_names_add(out, at);
        else
            st = expand(at, 0, out);
        at = next ? next + 2 : NULL;
    }
    free(copy);
    return st;
}

dt_status dt_expand_files(const char *pattern, dt_names *out) {
    dt_names patterns = {0};
    dt_status st = DT_OK;
    if (dt_io_exists(pattern))
        dt_names_add(out, pattern);
    else
        st = expand_joined(pattern, true, &patterns);
    if (st == DT_OK) st = expand_globs(pattern, &patterns, out);
    dt_names_fini(&patterns);
    return st;
}

dt_status dt_expand_shards(const char *pattern, char ***out, size_t *n) {
    dt_names l = {0};
    dt_status st = expand_joined(pattern, false, &l);
    if (st != DT_OK) dt_names_fini(&l);
    *out = l.name;
    *n = l.n;
    return st;
}

// ---- members -------------------------------------------------------------------------------------
bool dt_split_key(const char *path, size_t *n_key, char *ext, size_t cap_ext) {
    const char *base = dt_path_base(path), *dot = strchr(base, '.');
    if (!dot || dot == base || !dot[1] || strlen(dot + 1) >= cap_ext || dt_name_is_private(path)) return false;
    *n_key = (size_t)(dot - path);
    size_t i = 0;
    for (; dot[1 + i]; i++) ext[i] = (char)tolower((unsigned char)dot[1 + i]);
    ext[i] = '\0';
    return true;
}
