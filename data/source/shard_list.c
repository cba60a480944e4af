// shard_list.c: two JSON files that list shards.
//
//   wids   {"wids_version": 1, "shardlist": [{"url": "a.tar", "nsamples": 100}, …],
//           "datasets": [{"name": "x", "base": "dir", "shardlist": […]}, …]}
//   MDS    {"version": 2, "shards": [{"format": "mds", "samples": 100,
//           "raw_data": {"basename": …, "hashes": {"xxh64": …}}, "zip_data": {"basename": …} or null}, …]}
// If an MDS shard is there both compressed and not, the latter is read.

#include "source.h"
#include "source_parts.h"

#include "base/core.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/text.h"
#include "config/words.h"
#include "data/file/file.h"
#include "store/blob.h"
#include "store/s3.h"

#include <ctype.h>
#include <fnmatch.h>
#include <glob.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LIST_BYTES = 256 << 20 };

static char *beside(const char *list, const char *base, const char *name) {
    const char *slash = strrchr(list, '/');
    int n = slash ? (int)(slash - list) + 1 : 0;
    if (name[0] == '/' || dt_blob_is_url(name)) return dt_xstrdup(name); // a name of its own, whatever the list's place
    if (base && (base[0] == '/' || dt_blob_is_url(base))) return dt_xprintf("%s/%s", base, name);
    return base && *base ? dt_xprintf("%.*s%s/%s", n, list, base, name) : dt_xprintf("%.*s%s", n, list, name);
}

// Takes `path` over. A list that a server has may not lead to files of this machine, nor to another server.
static dt_status shard_list_push(dt_listing *l, const char *list, char *path, const char *set, json_t *count) {
    const char *host = dt_blob_is_url(list) ? strstr(list, "://") + 3 : NULL;
    const size_t n = host ? (size_t)(host - list) + strcspn(host, "/") + 1 : 0; // scheme, host and the slash behind it
    if (strncmp(list, path, n) != 0) {
        free(path);
        return dt_fail(DT_E_DATA,
                       "%s: shard %zu is a file of this machine or of another server: only those "
                       "of the list's own server are read; copy the list here to read it",
                       list, l->n);
    }
    l->shard = dt_xgrow(l->shard, l->n, sizeof *l->shard);
    l->shard[l->n++] = (dt_listed){.path = path,
                                   .set = set ? dt_xstrdup(set) : NULL,
                                   .n_records = json_is_integer(count) ? (int64_t)json_integer_value(count) : -1};
    return DT_OK;
}

// ---- wids ------------------------------------------------------------------------------------------
static const char *without_scheme(const char *url) {
    return strncmp(url, "file://", 7) == 0 ? url + 7 : strncmp(url, "file:", 5) == 0 ? url + 5 : url;
}

static dt_status add_wids(dt_listing *l, const char *path, json_t *spec, const char *set) {
    const char *base = json_string_value(json_object_get(spec, "base"));
    json_t *list = json_object_get(spec, "shardlist"), *item;
    size_t i;
    base = base ? without_scheme(base) : NULL; // wids writes file: URLs
    json_array_foreach(list, i, item) {
        const char *url = json_string_value(json_object_get(item, "url"));
        if (!url) return dt_fail(DT_E_DATA, "%s: shard %zu has no url", path, i);
        url = without_scheme(url);
        DT_TRY(shard_list_push(l, path, beside(path, base, url), set, json_object_get(item, "nsamples")));
    }
    return DT_OK;
}

static dt_status parse_wids(dt_listing *l, const char *path, json_t *root) {
    json_t *sets = json_object_get(root, "datasets"), *item;
    size_t i;
    DT_TRY(add_wids(l, path, root, NULL));
    json_array_foreach(sets, i, item) {
        if (!json_is_array(json_object_get(item, "shardlist")))
            return dt_fail(DT_E_DATA,
                           "%s: data set %zu is in another file, which is not followed: "
                           "name that file in data.path",
                           path, i);
        DT_TRY(add_wids(l, path, item, json_string_value(json_object_get(item, "name"))));
    }
    return DT_OK;
}

// ---- MDS -------------------------------------------------------------------------------------------
static const char *basename_of(json_t *shard, const char *which) {
    return json_string_value(json_object_get(json_object_get(shard, which), "basename"));
}

static void keep_hash(dt_listed *s, json_t *hashes) {
    const char *name;
    json_t *v;
    json_object_foreach(hashes, name, v) {
        bool known = json_is_string(v) && dt_named_hash_is_known(name);
        if (s->hash_name && !known) continue; // the first name stands, unless one can be checked
        free(s->hash_name);
        s->hash_name = dt_xstrdup(name);
        if (known) s->hash = dt_xstrdup(json_string_value(v));
        if (known) return;
    }
}

static dt_status add_mds(dt_listing *l, const char *path, json_t *shard, size_t i) {
    const char *format = json_string_value(json_object_get(shard, "format"));
    const char *raw = basename_of(shard, "raw_data"), *zip = basename_of(shard, "zip_data");
    const char *compression = json_string_value(json_object_get(shard, "compression"));
    if (!format || strcmp(format, "mds") != 0)
        return dt_fail(DT_E_DATA, "%s: shard %zu is of format %s; only mds is read", path, i, format ? format : "?");
    if (!raw) return dt_fail(DT_E_DATA, "%s: shard %zu has no name", path, i);
    char *file = beside(path, NULL, raw);
    if (zip && !dt_io_exists(file)) { // streaming keeps either: unpacked shards go first
        free(file);
        if (compression && strncmp(compression, "zstd", 4) != 0 && strncmp(compression, "gz", 2) != 0)
            return dt_fail(DT_E_DATA,
                           "%s: %s is compressed with %s; zstd and gz are read: write the set with "
                           "one of those, or unpack it",
                           path, zip, compression);
        file = beside(path, NULL, zip);
    }
    DT_TRY(shard_list_push(l, path, file, NULL, json_object_get(shard, "samples")));
    keep_hash(&l->shard[l->n - 1], json_object_get(json_object_get(shard, "raw_data"), "hashes"));
    return DT_OK;
}

static dt_status parse_mds(dt_listing *l, const char *path, json_t *root) {
    json_t *shard;
    size_t i;
    json_array_foreach(json_object_get(root, "shards"), i, shard) {
        DT_TRY(add_mds(l, path, shard, i));
    }
    return DT_OK;
}

// ---- either ----------------------------------------------------------------------------------------
dt_status dt_shard_list_parse(dt_listing *l, const char *path, const char *text, size_t n_bytes, bool *is_list) {
    json_error_t error;
    json_t *root = json_loadb(text, n_bytes, 0, &error);
    dt_status st = DT_OK;
    *is_list = true;
    if (!root) return dt_fail(DT_E_DATA, "%s:%d: not JSON: %s", path, error.line, error.text);
    if (json_is_array(json_object_get(root, "shards")))
        st = parse_mds(l, path, root);
    else if (json_is_array(json_object_get(root, "shardlist")) || json_is_array(json_object_get(root, "datasets")))
        st = parse_wids(l, path, root);
    else
        *is_list = false;
    json_decref(root);
    return st;
}

dt_status dt_shard_list_read(dt_listing *l, const char *path, bool *is_list) {
    char *text = NULL;
    size_t n = 0;
    DT_TRY(dt_blob_read_all(&text, &n, path, MAX_LIST_BYTES, false));
    if (!text) return dt_fail(DT_E_DATA, "%s: is not there", path);
    dt_status st = dt_shard_list_parse(l, path, text, n, is_list);
    free(text);
    return st;
}

void dt_shard_list_fini(dt_listing *l) {
    for (size_t i = 0; i < l->n; i++) {
        free(l->shard[i].path);
        free(l->shard[i].set);
        free(l->shard[i].hash_name);
        free(l->shard[i].hash);
    }
    free(l->shard);
    *l = (dt_listing){0};
}

// ---- shard names --------------------------------------------------------------------------------------------------

// From what a user writes to names of files, and from names of members to records.
//
// "::" joins several paths. Braces stand for ranges ({000000..000127}) and alternatives ({a,b}), nested as in a
// shell. *, ? and [ ] match existing files and, in a URL's last name, objects of a bucket, sorted by their bytes whatever the locale, as the order of shards
// is the order of records. A path that exists as it is written is taken as it is: names may have braces.

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
        if (depth == 1 && *p == ',') *comma = true; // {a,b} rather than a range
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
    // sscanf would take blanks and signs
    if (!isdigit((unsigned char)open[1]) || sscanf(open, "{%llu%n..%llu}%n", &first, &n_first, &last, &n_all) != 2 ||
        open + n_all != close + 1 || last < first || last - first >= MAX_SHARDS)
        return dt_fail(DT_E_USAGE,
                       "%s: a brace pattern looks like name-{000000..000127}.tar (ascending) or "
                       "name-{a,b}.tar",
                       text);
    for (unsigned long long i = first; i <= last; i++)
        DT_TRY(
            // as wide as the first number was written
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
    if (dt_name_is_hidden(dt_path_base(folder), true)) return 0; // lost+found may be root's
    unlisted = dt_io_read_error(folder, "list", err, DT_E_DATA);
    return -1; // ends the glob
}

// The objects that a pattern of their names in one prefix matches.
static dt_status expand_objects(const char *pattern, dt_names *out, bool *matched) {
    const char *base = dt_path_base(pattern);
    char *prefix = dt_xprintf("%.*s", (int)(base - pattern), pattern), **names;
    size_t n = 0;
    *matched = false;
    const dt_status st = dt_s3_list(&names, &n, prefix);
    for (size_t i = 0; i < n; i++) {
        // a name with brackets in it matches itself
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
    // the first dot, as in WebDataset: 001.seg.png is 001's seg.png
    const char *base = dt_path_base(path), *dot = strchr(base, '.');
    if (!dot || dot == base || !dot[1] || strlen(dot + 1) >= cap_ext || dt_name_is_private(path)) return false;
    *n_key = (size_t)(dot - path);
    size_t i = 0;
    for (; dot[1 + i]; i++) ext[i] = (char)tolower((unsigned char)dot[1 + i]);
    ext[i] = '\0';
    return true;
}

// ---- scan ---------------------------------------------------------------------------------------------------------

// What the scanners of all formats do with metadata.
//
// A record whose metadata cannot be read is still a record: it is listed without those columns and counted.
// One warning tells for the whole dataset.

enum { MAX_JSON_BYTES = 65536, MAX_CLS_BYTES = 20 };

// The error set says what is wrong.
static dt_status count_bad(dt_scan *s) {
    // one line for all of them
    if (s->n_bad++ == 0) snprintf(s->first_bad, sizeof s->first_bad, "%s", dt_error_message());
    dt_error_clear();
    return DT_OK;
}

dt_status dt_scan_json(dt_scan *s, const char *json, size_t n_bytes) {
    dt_status st = dt_catalog_set_json(s->c, json, n_bytes);
    if (st != DT_E_DATA) return st;
    s->partial = true; // so that the next opening warns again
    return count_bad(s);
}

static dt_status scan_read_member(const dt_scan *s, uint64_t offset, void *dst, uint64_t size) {
    return s->peek ? dt_peek_read(s->peek, offset, dst, (size_t)size)
                   : dt_blob_read(s->blob, offset, dst, (size_t)size);
}

static dt_status json_member(dt_scan *s, uint64_t offset, uint64_t size) {
    char text[MAX_JSON_BYTES];
    if (size > sizeof text) {
        const dt_record *r = &s->c->records[s->c->n_records - 1];
        dt_fail(DT_E_DATA,
                "%s: record %s: member json has %llu bytes; above %d it is taken for data, not for "
                "metadata",
                s->c->shards[r->shard].path, dt_catalog_str(s->c, r->key), (unsigned long long)size, MAX_JSON_BYTES);
        return count_bad(s); // the rows are kept
    }
    DT_TRY(scan_read_member(s, offset, text, size));
    return dt_scan_json(s, text, (size_t)size);
}

dt_status dt_scan_member(dt_scan *s, const char *ext, uint64_t offset, uint64_t size) {
    char text[MAX_CLS_BYTES + 1];
    const char *dot = strrchr(ext, '.'); // "seg.cls" is a class as "cls" is
    const bool is_class = dt_word_index("cls|cls2|index|inx|id", dot ? dot + 1 : ext) >= 0;
    if (strcmp(ext, "json") == 0) return json_member(s, offset, size);
    if (!is_class || size > MAX_CLS_BYTES) return DT_OK; // longer: an array or a text under the same extension
    DT_TRY(scan_read_member(s, offset, text, size));
    text[size] = '\0';
    char *end = text + strlen(text);
    while (end > text && strchr(" \t\r\n", end[-1])) *--end = '\0';
    return dt_catalog_set(s->c, ext, text + strspn(text, " \t\r\n"));
}
