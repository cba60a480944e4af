// raw.c: finding raw files and naming their records.
//
// Files come from a folder (walked in sorted order, no symlinks followed to directories) or from a tar
// file, which is only listed, never unpacked. Files of kinds that hold no samples (licences, notes) are
// counted and left out.
//
// Two ways to read meaning from names. By pattern: "{subject}__{gender}_…" gives metadata columns, and
// the first folder names the field, so that fingerprint/7/7__M_Left_index_finger.BMP becomes record
// "fingerprint/7/7__M_Left_index_finger" with member "fingerprint.bmp". The patterns of known data sets
// are tried when none is given. By folder: the folder right above a file is its class: columns
// `label` (its name), and a member `cls` with its number.
//
// Records are sorted by key followed by '.', which is also the order of "key.ext" names: so LMDB, tar
// and folder give the same records in the same order. A dot inside a stem would end the key early, so it
// becomes '-'.
#include "raw.h"

#include "data/decode/kinds.h"
#include "data/source/blob.h"
#include "data/source/tar.h"

#include "base/hash.h"
#include "base/io.h"
#include "base/json.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

static const char *const KNOWN_PATTERNS =
    "{subject}__{gender}_{hand}_{finger}_finger.BMP|"
    "{subject}__{gender}_{hand}_{finger}_finger_{n}.BMP|{subject}_{gender}_{hand}_{n}.bmp";

enum { MAX_DEPTH = 32 };

typedef struct lister {
    dt_raw *raw;
    size_t cap;
    dt_hash_stream *hash;
    const char *tar_path;
    size_t n_strip; // of names: the folders that all files of a tar share
} lister;

static bool is_data_ext(const char *ext) {
    const dt_kind *k = dt_kind_of_ext(ext);
    return k && k->uses;
}

static void add_file(lister *l, const char *path, const char *name, uint64_t offset, uint64_t size,
                     int64_t mtime_ns) {
    const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name;
    const char *dot = strrchr(base, '.');
    if (base[0] == '.') return;
    if (!dot || !is_data_ext(dot + 1)) {
        l->raw->n_ignored++;
        return;
    }
    uint64_t numbers[3] = {offset, size, (uint64_t)mtime_ns};
    dt_hash_stream_update(l->hash, name, strlen(name) + 1);
    dt_hash_stream_update(l->hash, numbers, sizeof numbers);
    if (l->raw->n == l->cap) {
        l->cap = l->cap ? l->cap * 2 : 256;
        l->raw->items = dt_xrealloc(l->raw->items, l->cap * sizeof *l->raw->items);
    }
    l->raw->items[l->raw->n++] = (dt_raw_item){.path = path,
                                               .name = dt_arena_strdup(&l->raw->arena, name),
                                               .label = -1,
                                               .offset = offset,
                                               .size = size};
}

static dt_status walk(lister *l, const char *dir, const char *prefix, int depth) {
    char **names;
    size_t n;
    dt_status st = DT_OK;
    if (depth > MAX_DEPTH) return dt_fail(DT_E_DATA, "%s: folders nested too deeply", dir);
    DT_TRY(dt_io_list_dir(&names, &n, dir, DT_E_DATA));
    for (size_t i = 0; i < n && st == DT_OK; i++) {
        const char *path = dt_arena_printf(&l->raw->arena, "%s/%s", dir, names[i]);
        const char *name = dt_arena_printf(&l->raw->arena, "%s%s", prefix, names[i]);
        struct stat s, link;
        if (lstat(path, &link) != 0 || stat(path, &s) != 0)
            st = dt_fail(DT_E_DATA, "%s: %s", path, strerror(errno));
        else if (S_ISDIR(s.st_mode) && !S_ISLNK(link.st_mode) && names[i][0] != '.')
            st = walk(l, path, dt_arena_printf(&l->raw->arena, "%s/", name), depth + 1);
        else if (S_ISREG(s.st_mode))
            add_file(l, path, name, 0, (uint64_t)s.st_size,
                     (int64_t)s.st_mtim.tv_sec * 1000000000 + s.st_mtim.tv_nsec);
    }
    dt_io_free_list(names, n);
    return st;
}

static dt_status list_tar(lister *l, const char *path) {
    dt_blob blob;
    dt_tar tar;
    dt_tar_entry *e = dt_xcalloc(1, sizeof *e);
    struct stat s;
    bool more = true;
    dt_status st = dt_blob_open(&blob, path);
    int64_t mtime = stat(path, &s) == 0 ? (int64_t)s.st_mtim.tv_sec : 0;
    l->tar_path = dt_arena_strdup(&l->raw->arena, path);
    l->raw->is_tar = true;
    dt_tar_begin(&tar, &blob);
    while (st == DT_OK && more) {
        st = dt_tar_next(&tar, e, &more);
        if (st == DT_OK && more && e->is_regular)
            add_file(l, l->tar_path, e->path, e->offset, e->size, mtime);
    }
    if (st == DT_OK) dt_tar_warn_end(&tar);
    dt_blob_close(&blob);
    free(e);
    return st;
}

// Bytes of the folders that all names share, up to a '/'.
static size_t common_folders(const dt_raw *r) {
    size_t n = 0;
    for (size_t i = 0; i < r->n; i++) {
        const char *a = r->items[0].name, *b = r->items[i].name;
        size_t same = 0, slash = 0;
        while (a[same] && a[same] == b[same]) {
            same++;
            if (a[same - 1] == '/') slash = same;
        }
        if (i == 0 || slash < n) n = slash;
    }
    return n;
}

// ---- naming ------------------------------------------------------------------------------------------
static const char *lower(dt_arena *a, const char *s) {
    char *out = dt_arena_strdup(a, s);
    for (char *p = out; *p; p++) *p = (char)tolower((unsigned char)*p);
    return out;
}

// The name without extension, dots in its last component replaced.
static char *stem(dt_arena *a, const char *name) {
    char *out = dt_arena_strdup(a, name);
    *strrchr(out, '.') = '\0';
    char *slash = strrchr(out, '/');
    for (char *p = slash ? slash + 1 : out; *p; p++)
        if (*p == '.') *p = '-';
    return out;
}

static bool is_canonical_int(const char *s) {
    size_t n = strlen(s);
    if (n == 0 || n > 15 || (s[0] == '0' && n > 1)) return false;
    for (; *s; s++)
        if (!isdigit((unsigned char)*s)) return false;
    return true;
}

static int compare_captures(const void *a, const void *b) {
    return strcmp(((const dt_capture *)a)->name, ((const dt_capture *)b)->name);
}

static void set_meta(dt_raw *r, dt_raw_item *item, dt_capture *cap, int n) {
    const char **column = dt_arena_alloc(&r->arena, (size_t)n * sizeof *column + 1);
    const char **value = dt_arena_alloc(&r->arena, (size_t)n * sizeof *value + 1);
    dt_json j;
    qsort(cap, (size_t)n, sizeof *cap, compare_captures);
    dt_json_init(&j);
    dt_json_begin_object(&j, NULL);
    for (int i = 0; i < n; i++) {
        column[i] = dt_arena_strdup(&r->arena, cap[i].name);
        value[i] = dt_arena_strdup(&r->arena, cap[i].value);
        if (is_canonical_int(value[i]))
            dt_json_int(&j, column[i], atoll(value[i]));
        else
            dt_json_string(&j, column[i], value[i]);
    }
    dt_json_end_object(&j);
    item->meta = dt_arena_strdup(&r->arena, j.data);
    item->column = column;
    item->value = value;
    item->n_meta = n;
    dt_json_fini(&j);
}

// Tries the alternatives of `patterns` in order.
static int match_any(dt_raw *r, const char *patterns, const char *name, dt_capture *cap) {
    char *copy = dt_arena_strdup(&r->arena, patterns), *save = NULL;
    for (char *p = strtok_r(copy, "|", &save); p; p = strtok_r(NULL, "|", &save)) {
        int n = dt_pattern_match(p, name, cap);
        if (n >= 0) return n;
    }
    return -1;
}

static bool all_match(dt_raw *r, const char *patterns) {
    dt_capture cap[DT_MAX_CAPTURES];
    for (size_t i = 0; i < r->n; i++)
        if (match_any(r, patterns, r->items[i].name, cap) < 0) return false;
    return r->n > 0;
}

static dt_status name_by_pattern(lister *l, const char *patterns) {
    dt_capture cap[DT_MAX_CAPTURES];
    dt_raw *r = l->raw;
    for (size_t i = 0; i < r->n; i++) {
        dt_raw_item *item = &r->items[i];
        const char *name = item->name + l->n_strip, *slash = strchr(name, '/');
        int n = match_any(r, patterns, name, cap);
        if (n < 0)
            return dt_fail(DT_E_USAGE, "%s: does not match the pattern '%s'", item->name, patterns);
        const char *ext = lower(&r->arena, strrchr(name, '.') + 1);
        if (slash) {
            const char *field = dt_arena_printf(&r->arena, "%.*s", (int)(slash - name), name);
            ext = dt_arena_printf(&r->arena, "%s.%s", lower(&r->arena, field), ext);
        }
        item->ext = ext;
        item->key = stem(&r->arena, name);
        set_meta(r, item, cap, n);
    }
    return DT_OK;
}

static int compare_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static dt_status name_by_folder(lister *l) {
    dt_raw *r = l->raw;
    const char **labels = dt_arena_alloc(&r->arena, (r->n + 1) * sizeof *labels);
    const char **sorted = dt_arena_alloc(&r->arena, (r->n + 1) * sizeof *sorted);
    for (size_t i = 0; i < r->n; i++) {
        const char *name = r->items[i].name + l->n_strip, *slash = strrchr(name, '/');
        if (!slash)
            return dt_fail(
                DT_E_USAGE,
                "%s: lies in no class folder; put files in a folder for each class, or give "
                "--pattern '{label}_{n}.jpg'",
                r->items[i].name);
        const char *begin = slash;
        while (begin > name && begin[-1] != '/') begin--;
        sorted[i] = labels[i] = dt_arena_printf(&r->arena, "%.*s", (int)(slash - begin), begin);
    }
    qsort(sorted, r->n, sizeof *sorted, compare_text);
    size_t n_classes = 0;
    for (size_t i = 0; i < r->n; i++)
        if (i == 0 || strcmp(sorted[i], sorted[n_classes - 1]) != 0)
            sorted[n_classes++] = sorted[i];
    r->n_classes = (int)n_classes;
    for (size_t i = 0; i < r->n; i++) {
        dt_raw_item *item = &r->items[i];
        const char **at = bsearch(&labels[i], sorted, n_classes, sizeof *sorted, compare_text);
        dt_capture cap = {.name = "label"};
        if (strlen(labels[i]) >= sizeof cap.value)
            return dt_fail(DT_E_USAGE, "%s: a folder name of more than %d bytes", item->name,
                           DT_MAX_CAPTURE_BYTES - 1);
        memcpy(cap.value, labels[i], strlen(labels[i]) + 1);
        item->label = (int)(at - sorted);
        item->key = stem(&r->arena, item->name + l->n_strip);
        item->ext = lower(&r->arena, strrchr(item->name, '.') + 1);
        set_meta(r, item, &cap, 1);
    }
    return DT_OK;
}

// As "key." would sort: see the top.
static int compare_items(const void *pa, const void *pb) {
    const unsigned char *a = (const unsigned char *)((const dt_raw_item *)pa)->key;
    const unsigned char *b = (const unsigned char *)((const dt_raw_item *)pb)->key;
    while (*a && *a == *b) a++, b++;
    int x = *a ? *a : '.', y = *b ? *b : '.';
    if (x != y) return x - y;
    return (*a != 0) - (*b != 0);
}

static dt_status check_keys(const dt_raw *r) {
    for (size_t i = 1; i < r->n; i++)
        if (strcmp(r->items[i - 1].key, r->items[i].key) == 0)
            return dt_fail(DT_E_DATA, "%s and %s would both be record %s: rename one",
                           r->items[i - 1].name, r->items[i].name, r->items[i].key);
    return DT_OK;
}

// Where all files are of one class, its folder is common to them but must stay.
static void keep_class_folder(lister *l) {
    const char *name = l->raw->items[0].name;
    if (l->n_strip == 0 || strchr(name + l->n_strip, '/')) return;
    l->n_strip--;
    while (l->n_strip > 0 && name[l->n_strip - 1] != '/') l->n_strip--;
}

dt_status dt_raw_list(dt_raw *out, const char *source, const char *pattern) {
    *out = (dt_raw){0};
    dt_arena_init(&out->arena);
    lister l = {.raw = out, .hash = dt_hash_stream_create()};
    const char *patterns = pattern ? pattern : KNOWN_PATTERNS;
    dt_status st = pattern ? dt_pattern_check(pattern) : DT_OK;
    if (st != DT_OK) goto out;
    if (!dt_io_exists(source))
        st = dt_fail(DT_E_DATA, "%s: no such folder or tar file", source);
    else
        st = dt_io_is_dir(source) ? walk(&l, source, "", 0) : list_tar(&l, source);
    if (st == DT_OK && out->n == 0)
        st = dt_fail(DT_E_DATA, "%s: holds no data files (%zu others)", source, out->n_ignored);
    if (st != DT_OK) goto out;
    bool by_pattern = pattern || all_match(out, patterns);
    if (out->is_tar || !by_pattern) l.n_strip = common_folders(out);
    if (!by_pattern) keep_class_folder(&l);
    st = by_pattern ? name_by_pattern(&l, patterns) : name_by_folder(&l);
    if (st == DT_OK) {
        qsort(out->items, out->n, sizeof *out->items, compare_items);
        st = check_keys(out);
    }
    if (by_pattern) dt_hash_stream_update(l.hash, patterns, strlen(patterns));
    out->hash = dt_hash_stream_digest(l.hash) | 1; // 0 stands for unknown
out:
    dt_hash_stream_destroy(l.hash);
    if (st != DT_OK) dt_raw_fini(out);
    return st;
}

void dt_raw_fini(dt_raw *r) {
    free(r->items);
    dt_arena_fini(&r->arena);
    *r = (dt_raw){0};
}
