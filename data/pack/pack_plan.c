// pack_plan.c: divides the list into shards and chunks.
//
// The number of shards comes from a brace pattern, and then all get about as many records; or from a limit of
// records or bytes, for a pattern with one number to fill in: photos-%06d.tar or photos-{}.tar. Bytes are those of
// the source, with what the format adds. The sizes of records that a transform shrinks are not known
// beforehand, so their shards are smaller.
//
// A chunk is what one thread composes at a time: 1 MiB of members or 4096 records. A member of 32 MiB or more that is
// stored as it is gets a chunk of its own.

#include "pack_parts.h"

#include "base/core.h"
#include "base/io.h"
#include "base/text.h"
#include "config/words.h"
#include "data/catalog/index_file.h"
#include "data/file/tar.h"
#include "data/source/source.h"
#include "data/source/source_parts.h"
#include "store/blob.h"
#include "store/blob_cache.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { CHUNK_BYTES = 1 << 20, CHUNK_ITEMS = 4096, LARGE_BYTES = 32 << 20, MAX_SHARDS = 1000000 };
static const uint64_t DEFAULT_SHARD_BYTES = 1000000000;

static const dt_pack_format *const FORMATS[] = {&dt_pack_lmdb, &dt_pack_wds};

// ---- names --------------------------------------------------------------------------------------------
// The number in a pattern. digits 0: there is none.
typedef struct number_place {
    size_t at, length; // in the pattern
    int digits;
    bool is_range;
} number_place;

static number_place find_number(const char *out) {
    const char *brace = strchr(out, '{'), *percent = strchr(out, '%');
    number_place p = {0};
    if (brace && brace[1] == '}') return (number_place){(size_t)(brace - out), 2, 6, false}; // {}: six digits
    if (brace) {
        const char *end = strchr(brace, '}');
        // a range without an end is an error of name_files
        return (number_place){(size_t)(brace - out), end ? (size_t)(end - brace) + 1 : 1, 1, true};
    }
    int digits = 0, n = 0;
    // %06d; at most two digits, so that the width is bounded
    if (percent && sscanf(percent, "%%0%2dd%n", &digits, &n) == 1 && n > 0 && digits > 0)
        p = (number_place){(size_t)(percent - out), (size_t)n, digits, false};
    else if (percent && percent[1] == 'd') // %d: no leading zeros
        p = (number_place){(size_t)(percent - out), 2, 1, false};
    return p;
}

// "dir/photos-%06d.tar" -> "dir/photos.tar.partial"
static char *partial_of(const char *out) {
    const char *base = dt_path_base(out); // a folder may have such characters in its name
    size_t n = (size_t)(base - out) + strcspn(base, "{%");
    if (!out[n]) return dt_xprintf("%s.partial", out);
    while (n > 0 && strchr("-_.", out[n - 1])) n--; // the number's separator goes, too
    bool bare = n == 0 || out[n - 1] == '/';        // nothing is left of the name
    return dt_xprintf("%.*s%s.tar.partial", (int)n, out, bare ? "shards" : "");
}

// Sets the names that follow from OUT alone: not those of shards whose number is not known yet.
static dt_status name_files(dt_plan *p, const number_place *number) {
    // how many: the list decides (dt_plan_make)
    if (number->digits > 0 && !number->is_range && !p->format->one_file) return DT_OK;
    p->pattern = dt_xstrdup(p->out);
    if (number->is_range && !p->format->one_file) {
        DT_TRY(dt_expand_shards(p->out, &p->name, &p->n_shards));
        for (size_t i = 0; i < p->n_shards; i++) {
            char *full = p->name[i];
            p->name[i] = dt_xstrdup(dt_path_base(full));
            free(full);
        }
        return DT_OK;
    }
    p->name = dt_xcalloc(1, sizeof *p->name);
    // liblmdb's name of the file in a folder
    p->name[0] = dt_xstrdup(p->format->one_file ? "data.mdb" : dt_path_base(p->out));
    p->n_shards = 1;
    return DT_OK;
}

dt_status dt_plan_name(dt_plan *p, const char *path) {
    *p = (dt_plan){.out = dt_xstrdup(path)};
    // "out/" and "out" are the same output
    for (size_t n = strlen(p->out); n > 1 && p->out[n - 1] == '/'; n--) p->out[n - 1] = '\0';
    for (size_t i = 0; i < sizeof FORMATS / sizeof *FORMATS; i++)
        if (FORMATS[i]->accepts(p->out)) p->format = FORMATS[i];
    if (!p->format)
        return dt_fail(DT_E_USAGE,
                       "%s: the output ends in .lmdb, or in .tar (with a pattern for several shards: "
                       "name-{000000..000003}.tar, or name-%%06d.tar with --shard-size)",
                       p->out);
    p->partial = partial_of(p->out);
    p->folder = p->format->one_file ? dt_xstrdup(p->out) : dt_io_parent(p->out);
    const char *base = dt_path_base(p->out);
    // the number is in the file's name; another pattern beside it would be ambiguous
    number_place number = find_number(base);
    bool more =
        number.digits > 0 && (strcspn(base, "{%") < number.at || strpbrk(base + number.at + number.length, "{%"));
    if (!p->format->one_file && strpbrk(p->out, "{%") && (number.digits == 0 || more))
        return dt_fail(DT_E_USAGE,
                       "%s: a pattern has one number, in the file's name: "
                       "name-{000000..000003}.tar, name-%%06d.tar or name-{}.tar",
                       p->out);
    DT_TRY(name_files(p, &number));
    return DT_OK;
}

// Whether the name is one of the plan with any number of shards: {0..5} for {0..2}.
static bool plan_resembles(const dt_plan *p, const char *name) {
    if (p->format->one_file) return strcmp(name, "data.mdb") == 0;
    const char *base = dt_path_base(p->out);
    number_place number = find_number(base);
    if (number.digits == 0) return strcmp(name, base) == 0;
    const char *tail = base + number.at + number.length;
    size_t n = strlen(name), n_tail = strlen(tail);
    if (n <= number.at + n_tail || strncmp(name, base, number.at) != 0) return false;
    if (strcmp(name + n - n_tail, tail) != 0) return false;
    for (size_t i = number.at; i < n - n_tail; i++) // a number of any width: earlier packs may have had more shards
        if (!isdigit((unsigned char)name[i])) return false;
    return true;
}

bool dt_plan_belongs(const dt_plan *p, const char *name) {
    if (p->format->one_file || !find_number(dt_path_base(p->out)).is_range) return plan_resembles(p, name);
    for (size_t i = 0; i < p->n_shards; i++)
        if (strcmp(name, p->name[i]) == 0) return true;
    return false;
}

bool dt_plan_is_companion(const dt_plan *p, const char *name) {
    // an index belongs to its data file
    if (dt_text_ends(name, ".index")) {
        char *data = dt_xprintf("%.*s", (int)(strlen(name) - strlen(".index")), name);
        bool yes = dt_plan_belongs(p, data);
        free(data);
        return yes;
    }
    // what a reader makes; what earlier versions packed along
    return p->format->one_file && (strcmp(name, "lock.mdb") == 0 || strcmp(name, "catalog.sqlite") == 0);
}

// a.tar and a-{0..9}.tar share a.tar.partial, and {0..9}.tar has shards.tar.partial (partial_of).
bool dt_plan_may_name(const dt_plan *p, const char *name) {
    if (p->format->one_file) return dt_plan_belongs(p, name) || dt_plan_is_companion(p, name);
    // length of the stem in front of ".tar.partial"
    const char *stem = dt_path_base(p->partial);
    const size_t n = strlen(stem) - strlen(".tar.partial");
    return (strcmp(stem, "shards.tar.partial") == 0 || strncmp(name, stem, n) == 0) &&
           dt_text_ends(name, ".tar|.tar.index");
}

dt_status dt_plan_existing(const dt_plan *p, char ***names, size_t *n) {
    char **all;
    size_t n_all, kept = 0;
    *names = NULL;
    *n = 0;
    if (!dt_io_is_dir(p->folder)) return DT_OK; // nothing has been written there yet
    DT_TRY(dt_io_list_dir(&all, &n_all, p->folder, DT_E_STORAGE));
    for (size_t i = 0; i < n_all; i++) {
        if (dt_plan_belongs(p, all[i]) || dt_plan_is_companion(p, all[i]))
            all[kept++] = all[i];
        else
            free(all[i]);
    }
    *names = all;
    *n = kept;
    return DT_OK;
}

// ---- shards -------------------------------------------------------------------------------------------
static uint64_t estimate(const dt_plan *p, const dt_raw *raw, size_t i) {
    const dt_raw_item *item = &raw->items[i];
    return p->format->estimate(item->size, item->label >= 0);
}

static size_t *limited_shards(const dt_plan *p, const dt_raw *raw, uint64_t max_bytes, uint64_t max_records,
                              size_t *count) {
    size_t *first = NULL;
    uint64_t bytes = 0, records = 0;
    *count = 0;
    for (size_t i = 0; i < raw->n; i++) {
        uint64_t size = estimate(p, raw, i);
        // max_records 0: no such limit, as records is 1 or more here
        if (i == 0 || records == max_records || bytes + size > max_bytes) {
            first = dt_xgrow(first, *count, sizeof *first);
            first[(*count)++] = i;
            bytes = records = 0;
        }
        bytes += size;
        records++;
    }
    first = dt_xgrow(first, *count, sizeof *first); // the end, so that shard s is first[s]..first[s + 1]
    first[*count] = raw->n;
    return first;
}

// Only where the number of shards is given already.
static dt_status check_limits(const dt_plan *p, const dt_raw *raw, const dt_pack_opts *o, bool is_range) {
    if ((o->shard_bytes || o->shard_records) && is_range)
        return dt_fail(DT_E_USAGE,
                       "%s: the pattern says how many shards; with --shard-size or --shard-records "
                       "write name-%%06d.tar",
                       p->out);
    if (o->shard_bytes || o->shard_records)
        return dt_fail(DT_E_USAGE, "%s: one file; --shard-size and --shard-records want a pattern, name-%%06d.tar",
                       p->out);
    if (is_range && p->n_shards > raw->n)
        return dt_fail(DT_E_USAGE, "%s: %zu shards for %zu records", p->out, p->n_shards, raw->n);
    return DT_OK;
}

static void name_numbered(dt_plan *p, const number_place *number) {
    const char *base = dt_path_base(p->out);
    p->name = dt_xcalloc(p->n_shards, sizeof *p->name);
    for (size_t i = 0; i < p->n_shards; i++)
        p->name[i] =
            dt_xprintf("%.*s%0*zu%s", (int)number->at, base, number->digits, i, base + number->at + number->length);
    // brace pattern of all shards, as data.path takes it
    char range[64];
    snprintf(range, sizeof range, "{%0*d..%0*zu}", number->digits, 0, number->digits, p->n_shards - 1);
    size_t at = (size_t)(base - p->out) + number->at;
    p->pattern = dt_xprintf("%.*s%s%s", (int)at, p->out, range, base + number->at + number->length);
}

// *first: the first item of each shard, and the end.
static dt_status make_shards(dt_plan *p, const dt_raw *raw, const dt_pack_opts *o, size_t **first) {
    number_place number = find_number(dt_path_base(p->out));
    if (p->n_shards > 0) {
        DT_TRY(check_limits(p, raw, o, number.is_range && !p->format->one_file));
        const size_t n = raw->n, count = p->n_shards;
        *first = dt_xcalloc(count + 1, sizeof **first);
        // even shares without overflow: the first of shard s
        for (size_t s = 0; s <= count; s++) (*first)[s] = n / count * s + n % count * s / count;
        return DT_OK;
    }
    // records alone: no limit of bytes
    uint64_t bytes = o->shard_bytes ? o->shard_bytes : o->shard_records ? UINT64_MAX : DEFAULT_SHARD_BYTES;
    *first = limited_shards(p, raw, bytes, o->shard_records, &p->n_shards);
    if (p->n_shards > MAX_SHARDS)
        return dt_fail(DT_E_USAGE, "%s: %zu shards, more than %d", p->out, p->n_shards, MAX_SHARDS);
    name_numbered(p, &number);
    return DT_OK;
}

// ---- chunks -------------------------------------------------------------------------------------------
static void add_chunk(dt_plan *p, const dt_plan_chunk *c) {
    p->chunks = dt_xgrow(p->chunks, p->n_chunks, sizeof *p->chunks);
    p->chunks[p->n_chunks++] = *c;
}

static void make_chunks(dt_plan *p, const dt_raw *raw, const size_t *first, bool keeps_bytes) {
    p->chunk_at = dt_xcalloc(p->n_shards + 1, sizeof *p->chunk_at);
    for (size_t s = 0; s < p->n_shards; s++) {
        p->chunk_at[s] = p->n_chunks;
        dt_plan_chunk c = {.first = first[s]};
        for (size_t i = first[s]; i < first[s + 1]; i++) {
            uint64_t size = estimate(p, raw, i);
            // records of a dataset or of several parts are composed in memory
            bool large = keeps_bytes && raw->kind != DT_RAW_SET && raw->items[i].n_parts == 0 &&
                         raw->items[i].size >= LARGE_BYTES;
            bool full = c.n > 0 && (large || c.is_large || c.size + size > CHUNK_BYTES || c.n == CHUNK_ITEMS);
            if (full) { // a large item has its chunk for itself
                add_chunk(p, &c);
                c = (dt_plan_chunk){.first = i};
            }
            c.n++;
            c.size += size;
            c.is_large = large;
        }
        if (c.n > 0) add_chunk(p, &c);
    }
    p->chunk_at[p->n_shards] = p->n_chunks; // the end
}

dt_status dt_plan_make(dt_plan *p, const dt_raw *raw, const dt_pack_opts *o, bool keeps_bytes) {
    size_t *first = NULL;
    DT_TRY(make_shards(p, raw, o, &first));
    make_chunks(p, raw, first, keeps_bytes);
    free(first);
    return DT_OK;
}

void dt_plan_fini(dt_plan *p) {
    for (size_t i = 0; p->name && i < p->n_shards; i++) free(p->name[i]);
    free(p->name);
    free(p->folder);
    free(p->chunk_at);
    free(p->chunks);
    free(p->out);
    free(p->pattern);
    free(p->partial);
    *p = (dt_plan){0};
}

// ---- pack source --------------------------------------------------------------------------------------------------

// Tells datasets from raw files. The records of a dataset keep their members and metadata when they
// are converted or go to other shards.
//
// A tar may be a dataset or a collection of raw files. It is a dataset if pack has written it, if consecutive entries
// share a key (a.jpg, a.json), or if it has members that only datasets have (cls, json); otherwise each entry is a
// raw file. A JSON file is a dataset if it lists shards (wids, MDS). Patterns of shards, LMDBs and the like always are.

// An index that scanning has left proves nothing; one that pack has written does.
static bool has_own_index(const char *path) {
    dt_catalog *c = dt_catalog_create();
    bool found = false, stale = false;
    // raw tars and indexes of a scan have source_hash 0
    bool own = dt_index_load(c, path, &found, &stale) == DT_OK && found && !stale && c->n_shards > 0 &&
               c->shards[0].source_hash != 0;
    dt_catalog_destroy(c);
    dt_error_clear();
    return own;
}

// Looks at the first entries only.
static dt_status tar_is_set(const char *path, bool *out) {
    enum { LOOK = 64 };
    dt_blob blob;
    dt_tar tar;
    char last[DT_TAR_MAX_PATH] = "", ext[64];
    bool more = true;
    DT_TRY(dt_blob_open(&blob, path));
    dt_tar_entry *e = dt_xcalloc(1, sizeof *e);
    dt_status st = DT_OK;
    dt_tar_begin(&tar, &blob);
    for (int n = 0; n < LOOK && st == DT_OK && more && !*out; n++) {
        size_t n_key;
        st = dt_tar_next(&tar, e, &more);
        // directories and links to nothing have no key
        if (st != DT_OK || !more || (!e->is_regular && !*e->link)) continue;
        if (!dt_split_key(e->path, &n_key, ext, sizeof ext)) continue;
        // two entries in a row with one key are a record of two members
        *out = dt_word_index("cls|cls2|json|index|__key__", ext) >= 0 ||
               (strlen(last) == n_key && memcmp(last, e->path, n_key) == 0);
        memcpy(last, e->path, n_key);
        last[n_key] = '\0';
    }
    dt_blob_close(&blob);
    free(e);
    return st;
}

// Whether the file is what an earlier pack has made of this folder, in this folder.
static bool is_of_out(const dt_plan *out, const char *path) {
    const char *base = dt_path_base(path);
    struct stat a, b;
    if (!plan_resembles(out, base)) return false;
    char *folder = dt_xprintf("%.*s.", (int)(base - path), path); // "folder/.": the folder itself, also behind a link
    bool same = stat(folder, &a) == 0 && stat(out->folder, &b) == 0 && a.st_ino == b.st_ino && a.st_dev == b.st_dev;
    free(folder);
    return same;
}

static dt_status check_alone(const char *folder, const char *shard) {
    char *beside = dt_collect_beside(folder);
    if (!beside) return DT_OK;
    dt_fail(DT_E_DATA,
            "%s: holds a set (%s) and other data (%s): give what is meant, the set by its name or "
            "its pattern, or a folder that has nothing else in it",
            folder, shard, beside);
    free(beside);
    return DT_E_DATA;
}

// The output of an earlier pack is a dataset that is renewed in place, unless its source lies beside it.
static dt_status open_folder(dt_reader **out, const char *path, const dt_plan *plan) {
    dt_found_list l = {.quiet = true}; // opening the set tells
    dt_reader_item item = {.path = path, .weight = 1};
    dt_status st = dt_collect(&l, &item, 0);
    dt_reader_item *items = dt_xcalloc(l.n + 1, sizeof *items);
    size_t n = 0, n_out = 0;
    for (size_t i = 0; st == DT_OK && i < l.n; i++) {
        if (l.f[i].is_raw) continue; // files that are no shards
        if (is_of_out(plan, l.f[i].path))
            n_out++;
        else
            items[n++] = (dt_reader_item){.path = l.f[i].path, .name = l.f[i].name};
    }
    // no set beside OUT: raw files are the source, or OUT itself if there are none
    bool has_files = true;
    if (st == DT_OK && n == 0 && n_out > 0) st = dt_raw_holds_files(path, &has_files);
    if (st == DT_OK && !has_files) st = dt_reader_open(out, &path, 1);
    if (st == DT_OK && n > 0) st = check_alone(path, items[0].path);
    if (st == DT_OK && n > 0) st = n_out ? dt_reader_open_items(out, items, n, NULL) : dt_reader_open(out, &path, 1);
    free(items);
    dt_found_fini(&l);
    return st;
}

// Whether the JSON file is a list of shards (wids, MDS) and not a list of files.
static dt_status json_is_set(const char *path, bool *out) {
    dt_listing shards = {0};
    dt_status st = dt_shard_list_read(&shards, path, out);
    dt_shard_list_fini(&shards);
    if (st == DT_OK || *out) return st;
    dt_error_clear(); // too large for a list of shards
    return DT_OK;
}

static dt_status path_is_set(const char *path, bool *out) {
    // URLs and names that exist only as patterns
    *out = dt_blob_is_url(path) || dt_text_ends(path, ".lmdb|.lmdb/|.mdb|.tgz|.tar.gz|.tar.zst") ||
           (!dt_io_exists(path) && (strstr(path, "::") || strpbrk(path, "{*?[")));
    if (*out || !dt_io_exists(path) || dt_io_is_dir(path)) return DT_OK;
    if (dt_text_ends(path, ".json")) return json_is_set(path, out);
    if (!dt_text_ends(path, ".tar")) return DT_OK;
    *out = has_own_index(path);
    if (*out || tar_is_set(path, out) == DT_OK) return DT_OK;
    *out = true; // who opens it as one says what it is
    dt_error_clear();
    return DT_OK;
}

// A dataset that is renewed in place must be replaced as a whole: whoever reads the folder or a pattern would see the
// records of a shard that stays twice.
static dt_status check_replaced(const dt_reader *s, const dt_plan *plan, bool is_folder) {
    const char *stays = NULL;
    bool any = is_folder; // a folder is read as a whole, so every shard in it counts
    for (uint32_t i = 0; i < s->catalog->n_shards; i++) {
        const char *path = s->catalog->shards[i].path;
        if (!is_of_out(plan, path)) continue;
        if (dt_plan_belongs(plan, dt_path_base(path)))
            any = true;
        else if (!stays)
            stays = path;
    }
    if (!any || !stays) return DT_OK;
    return dt_fail(DT_E_USAGE,
                   "%s: %s is of what it is made of and would stay beside it, and its records "
                   "would be there twice: give OUT as many shards or a number to be filled in "
                   "(name-%%06d.tar), or choose another folder",
                   plan->out, stays);
}

bool dt_pack_source_is_out(const dt_reader *s, const dt_plan *plan) {
    for (uint32_t i = 0; i < s->catalog->n_shards; i++)
        if (is_of_out(plan, s->catalog->shards[i].path)) return true;
    return false;
}

// Records are read one by one, and of a URL by blocks, which the host keeps.
static void keep_blocks(dt_reader *s) {
    char *dir = dt_io_cache_folder(NULL, "");
    dt_blob_cache *cache;
    if (dir && dt_blob_cache_open(&cache, dir, 0) == DT_OK) // 0: the cache's own limit
        dt_reader_keep(s, cache, false);
    else
        dt_error_clear();
    free(dir);
}

dt_status dt_pack_source_open(dt_reader **out, const char *path, const dt_plan *plan) {
    bool is_set = false;
    *out = NULL;
    DT_TRY(path_is_set(path, &is_set));
    const bool is_folder = !is_set && dt_io_is_dir(path);
    if (is_set) DT_TRY(dt_reader_open(out, &path, 1));
    if (is_set && dt_blob_is_url(path)) keep_blocks(*out); // a fetched block holds many records
    if (is_folder) DT_TRY(open_folder(out, path, plan));
    return *out ? check_replaced(*out, plan, is_folder) : DT_OK;
}
