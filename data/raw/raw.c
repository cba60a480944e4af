// raw.c: lists what there is to pack.
//
// raw_walk.c finds the files, raw_name.c derives keys and metadata from their names, raw_join.c adds metadata from
// tables; raw_columns.c holds the metadata columns; raw_rows.c and raw_members.c make records of rows.
//
// Records are sorted by key followed by '.', which is the order of "key.ext" names, so LMDB, tar and folder give
// the same records in the same order. The list depends on names, sizes and tables alone, so each rank of a
// parallel pack makes the same list.
#define _GNU_SOURCE
#include "raw.h"
#include "data/file/columnar.h"
#include "data/file/tar.h"
#include "table.h"

#include "base/hash.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text.h"
#include "config/words.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void dt_raw_add(dt_raw_found *f, const char *name, uint64_t offset, uint64_t size, int64_t mtime_ns) {
    dt_raw *r = f->raw; // the list under construction
    r->items = dt_xgrow(r->items, r->n, sizeof *r->items);
    // label -1: no class yet; row: index of metadata, which sorting does not change
    r->items[r->n] = (dt_raw_item){
        .name = name, .label = -1, .offset = offset, .size = size, .mtime_ns = mtime_ns, .row = (uint32_t)r->n};
    r->n++;
}

// why and an example are printed: the least name is the same in whatever order folders are listed
void dt_raw_leave_out(dt_raw *r, dt_raw_reason why, const char *name) {
    const char **first = &r->left_out[why].first;
    if (r->left_out[why].n++ == 0 || strcmp(name, *first) < 0) *first = name;
}

char *dt_raw_describe_left_out(const dt_raw *r) {
    static const char *const WORDS[DT_RAW_N_REASONS] = {[DT_RAW_HIDDEN] = "hidden",
                                                        [DT_RAW_NO_SAMPLE] = "no samples",
                                                        [DT_RAW_UNREAD_KIND] = "of kinds that are not read",
                                                        [DT_RAW_EMPTY] = "empty",
                                                        [DT_RAW_DANGLING] = "links that lead to no file",
                                                        [DT_RAW_OUTSIDE] =
                                                            "links that lead out of the tar, or in circles"};
    char *text;
    size_t n = 0;
    // in memory, as the length is not known
    FILE *f = open_memstream(&text, &n);
    for (int i = 0; i < DT_RAW_N_REASONS; i++) {
        if (r->left_out[i].n == 0) continue;
        // ftell: a reason is there already
        fprintf(f, "%s%zu %s (%s", ftell(f) > 0 ? ", " : "", r->left_out[i].n, WORDS[i], r->left_out[i].first);
        // kinds that a tool converts: named with the tool
        for (int k = 0; i == DT_RAW_UNREAD_KIND && k < DT_RAW_UNREAD && r->unread[k]; k++)
            fprintf(f, "; %s: %s", r->unread[k]->name, r->unread[k]->tool);
        fputc(')', f);
    }
    fclose(f);
    return text;
}

// the reasons from DT_RAW_UNREAD_KIND on are losses, the others are expected
bool dt_raw_lost_samples(const dt_raw *r) {
    size_t n = 0;
    for (int i = DT_RAW_UNREAD_KIND; i < DT_RAW_N_REASONS; i++) n += r->left_out[i].n;
    return n > 0;
}

char *dt_raw_path(const dt_raw *r, const dt_raw_item *item) {
    // inside a container: the name is no path of its own
    if (r->kind == DT_RAW_TAR || r->kind == DT_RAW_SET || r->kind == DT_RAW_ROWS || r->kind == DT_RAW_MEMBERS)
        return dt_xprintf("%s: %s", r->root, item->name);
    // a list may have absolute paths
    return item->name[0] == '/' ? dt_xstrdup(item->name) : dt_xprintf("%s/%s", r->root, item->name);
}

// ---- reading ------------------------------------------------------------------------------------------
dt_status dt_raw_cannot(const dt_raw *r, const dt_raw_item *item, const char *what, int err) {
    char *path = dt_raw_path(r, item);
    dt_status st = dt_io_read_error(path, what, err, DT_E_DATA);
    free(path);
    return st;
}

// Asks for one byte more than the file should have, so that a file that has grown shows in the same call.
static dt_status raw_read_file(const dt_raw *r, const dt_raw_item *item, int fd, uint8_t *dst, size_t n_bytes) {
    size_t n = 0; // bytes so far
    for (;;) {
        // dst has room for n_bytes + 1
        size_t wanted = n_bytes - n + 1;
        ssize_t got = read(fd, dst + n, wanted);
        if (got < 0 && errno == EINTR) continue;                   // a signal: again
        if (got < 0) return dt_raw_cannot(r, item, "read", errno); // errno of the read
        n += (size_t)got;
        // longer or shorter than listed: the catalog's sizes would be wrong
        if (n > n_bytes || (got == 0 && n < n_bytes)) {
            char *path = dt_raw_path(r, item);
            dt_status st = dt_fail(DT_E_DATA, "%s: changed while it was packed", path);
            free(path);
            return st;
        }
        if (n == n_bytes) return DT_OK; // a short read of a regular file means its end
    }
}

static dt_status raw_read_range(const dt_raw *r, const dt_raw_item *item, int fd, uint64_t at, void *dst,
                                size_t n_bytes) {
    dt_status st = dt_io_pread(fd, item->name, dst, n_bytes, (off_t)at, DT_E_DATA);
    return st == DT_OK ? st : dt_fail_context(st, "%s", r->root); // dt_io_pread has named the member only
}

dt_status dt_raw_read(const dt_raw *r, const dt_raw_item *item, uint64_t at, void *dst, size_t n_bytes) {
    // rows of a table lie in memory
    if (r->kind == DT_RAW_ROWS) {
        dt_raw_read_row(r, item, at, dst, n_bytes);
        return DT_OK;
    }
    if (r->kind == DT_RAW_MEMBERS)
        return dt_columnar_read(r->files[item->offset >> 32], item->record, (uint32_t)item->offset + at, dst, n_bytes);
    // offset in the tar
    if (r->kind == DT_RAW_TAR) return raw_read_range(r, item, r->root_fd, item->offset + at, dst, n_bytes);
    // relative to root_fd: the folder may be moved meanwhile
    int fd = openat(r->root_fd, item->name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return dt_raw_cannot(r, item, "open", errno);
    // a whole file is checked for growth, a part is not
    dt_status st = at == 0 && n_bytes == item->size ? raw_read_file(r, item, fd, dst, n_bytes)
                                                    : raw_read_range(r, item, fd, at, dst, n_bytes);
    close(fd);
    return st;
}

// ---- order --------------------------------------------------------------------------------------------
// Compares key + tail: see the top.
// tail: "." or what stands behind the key in the order that is wanted
static int compare_items(const void *pa, const void *pb, void *tail_of_all) {
    const char *a = ((const dt_raw_item *)pa)->key, *b = ((const dt_raw_item *)pb)->key;
    const char *tail = tail_of_all;
    while (*a && *a == *b) a++, b++;
    if ((*a && *b) || *a == *b) return (unsigned char)*a - (unsigned char)*b; // neither ends, or both do: plain order
    // one key is the beginning of the other: its tail stands against the rest of that
    const char *rest = *a ? a : b;
    size_t n = strlen(rest);
    int order = strncmp(tail, rest, n);
    if (order == 0) order = strcmp(tail + n, tail); // tail equals the beginning of rest: the rest of rest against tail
    return *a ? -order : order;                     // swapped, as rest is of a
}

static dt_status same_key(const dt_raw *r, const dt_raw_item *a, const dt_raw_item *b) {
    // files: names differ, keys do not, as a.jpg and a.png
    if (r->kind != DT_RAW_SET)
        return dt_fail(DT_E_DATA, "%s: %s and %s would both be record %s: rename one", r->source, a->name, b->name,
                       a->key);
    const dt_catalog *c = r->catalog;
    uint32_t of_a = c->records[a->record].shard, of_b = c->records[b->record].shard;
    // a tar with the members of a record apart: two records for its readers
    if (of_a == of_b)
        return dt_fail(DT_E_DATA, "%s: two records %s, whose members lie apart: rename them", c->shards[of_a].path,
                       a->key);
    return dt_fail(DT_E_DATA,
                   "%s and %s both have a record %s: --key-by-shard puts the shard's name in front "
                   "of each key",
                   c->shards[of_a].path, c->shards[of_b].path, a->key);
}

static int raw_compare_keys(const void *pa, const void *pb) {
    return strcmp((*(const dt_raw_item *const *)pa)->key, (*(const dt_raw_item *const *)pb)->key);
}

static dt_status raw_check_keys(const dt_raw *r) {
    const dt_raw_item **by_key = dt_xcalloc(r->n + 1, sizeof *by_key); // + 1: none of 0 bytes
    dt_status st = DT_OK;
    for (size_t i = 0; i < r->n; i++) {
        by_key[i] = &r->items[i];
        // the rule of private names is WebDataset's own
        if (dt_name_is_private(r->items[i].key) && st == DT_OK) // all readers, ours too, skip it
            st = dt_fail(DT_E_DATA,
                         "%s: record %s: readers of WebDataset skip keys that begin with __…__: "
                         "rename it",
                         r->source, r->items[i].key);
    }
    // equal keys become neighbours; the sort of items goes by key + tail
    qsort(by_key, r->n, sizeof *by_key, raw_compare_keys);
    for (size_t i = 1; i < r->n && st == DT_OK; i++)
        if (strcmp(by_key[i - 1]->key, by_key[i]->key) == 0) st = same_key(r, by_key[i - 1], by_key[i]);
    free(by_key);
    return st;
}

// content is not read: names, sizes and times tell a changed source, as make does
static uint64_t hash_list(const dt_raw *r) {
    dt_hash_stream *h = dt_hash_stream_create(); // streaming: the list may be long
    for (size_t i = 0; i < r->n; i++) {
        const dt_raw_item *item = &r->items[i];
        uint64_t numbers[3] = {item->offset, item->size, (uint64_t)item->mtime_ns};
        dt_hash_stream_update(h, item->key, strlen(item->key) + 1); // + 1: the 0 separates strings
        dt_hash_stream_update(h, item->name, strlen(item->name) + 1);
        if (item->ext) dt_hash_stream_update(h, item->ext, strlen(item->ext) + 1);
        dt_hash_stream_update(h, numbers, sizeof numbers);
        for (uint32_t k = 0; k < item->n_parts; k++) {
            const dt_raw_item *part = &item->parts[k];
            // of_part: no offset, as parts are files
            uint64_t of_part[2] = {part->size, (uint64_t)part->mtime_ns};
            dt_hash_stream_update(h, part->name, strlen(part->name) + 1);
            dt_hash_stream_update(h, part->ext, strlen(part->ext) + 1);
            dt_hash_stream_update(h, of_part, sizeof of_part);
        }
        // by_name: order of columns by name, whatever order tables had
        for (uint32_t k = 0; k < r->table.n_columns; k++) {
            const double *number = r->table.columns[r->by_name[k]].number;
            const char *text = dt_columns_text(&r->table, r->by_name[k], item->row); // NULL: no value
            if (number) dt_hash_stream_update(h, &number[item->row], sizeof *number);
            // a missing text is hashed as an empty one
            dt_hash_stream_update(h, text ? text : "", text ? strlen(text) + 1 : 1);
        }
    }
    for (uint32_t k = 0; k < r->table.n_columns; k++) {
        const char *name = dt_columns_name(&r->table, r->by_name[k]);
        dt_hash_stream_update(h, name, strlen(name) + 1);
    }
    if (r->catalog) {
        // the set's own hash, and classes that follow from the keys
        uint64_t of_set = dt_catalog_hash(r->catalog) + (uint64_t)r->n_classes;
        dt_hash_stream_update(h, &of_set, sizeof of_set);
    }
    uint64_t out = dt_hash_stream_digest(h) | 1; // 0 means unknown
    dt_hash_stream_destroy(h);
    return out;
}

// ---- the whole ----------------------------------------------------------------------------------------
bool dt_raw_is_list(const char *path) {
    // endings of tables that list files
    return dt_text_ends(path, ".csv|.tsv|.txt|.lst|.json|.jsonl");
}

bool dt_raw_is_file(const char *path) {
    // a data file by its extension: a list of one
    const char *base = dt_path_base(path), *dot = strrchr(base, '.');
    const dt_kind *k = dot ? dt_kind_of_ext(dot + 1) : NULL;
    return k && k->uses;
}

// Judges a file by its first bytes, unless it is called .tar: a damaged tar must be reported as such.
static dt_status check_tar(const char *path) {
    enum { HEAD_BYTES = 512 }; // bytes: a header of tar
    uint8_t head[HEAD_BYTES];
    dt_blob b;
    if (dt_text_ends(path, ".tar")) return DT_OK; // by name: its errors are those of a tar
    DT_TRY(dt_blob_open(&b, path));
    size_t n = b.n_bytes < sizeof head ? (size_t)b.n_bytes : sizeof head; // b.n_bytes may be 0
    dt_status st = dt_blob_read(&b, 0, head, n);
    dt_blob_close(&b);
    DT_TRY(st);
    if (dt_tar_starts(head, n)) return DT_OK;
    const dt_kind *k = dt_kind_of_bytes(head, n), *unread = dt_kind_unread(path);
    // first bytes have priority over the extension
    if (k && k->tool) unread = k;
    if (unread)
        return dt_fail(DT_E_DATA, "%s: one file of kind %s, which is not read: %s", path, unread->name, unread->tool);
    return dt_fail(DT_E_DATA,
                   "%s: %s%s (by its first bytes): what is packed is a folder, a list of files (.txt, "
                   ".csv, .tsv, .json, .jsonl), a tar or a set; give its folder or a list that names it",
                   path, k ? "one file of kind " : "no tar", k ? k->name : "");
}

static dt_status find_items(dt_raw_found *f, const char *source, const dt_raw_opts *o, dt_table *table) {
    bool is_there, any = false;
    if (dt_columnar_is_name(source)) {
        char *one = (char *)(uintptr_t)source;
        DT_TRY(dt_raw_find_members(f, o->files ? o->files : &one, o->files ? o->n_files : 1, table, &any));
        if (any) return DT_OK;
        if (o->n_files > 1) return dt_fail(DT_E_DATA, "%s: no column holds bytes", source);
        return dt_raw_find_list(f, o->files ? o->files[0] : source, table);
    }
    DT_TRY(dt_io_find(&is_there, source, DT_E_DATA)); // a folder that may not be entered is an error of its own
    if (!is_there) return dt_fail(DT_E_DATA, "%s: no such folder, list, tar file or data set", source);
    // in this order: a folder may be called photos.csv
    if (dt_io_is_dir(source)) return dt_raw_find_folder(f, source);
    if (dt_raw_is_list(source)) return dt_raw_find_list(f, source, table);
    if (dt_raw_is_file(source)) return dt_raw_find_file(f, source);
    DT_TRY(check_tar(source));
    return dt_raw_find_tar(f, source);
}

// Tables of rows, by their names: as series each would be one record.
static dt_status check_tables(const dt_raw *r) {
    static const char PARTS[] = "train|test|val|valid|validation|dev";
    for (size_t i = 0; i < r->n; i++) {
        const char *base = dt_path_base(r->items[i].name);
        char stem[16];
        snprintf(stem, sizeof stem, "%.*s", (int)strcspn(base, "."), base);
        if (dt_word_index(PARTS, stem) < 0 || !dt_text_ends(base, ".csv|.tsv|.txt")) return DT_OK;
    }
    char *path = dt_raw_path(r, r->items);
    dt_fail(DT_E_USAGE, "%s: a table of rows, by its name: `dtrain pack %s OUT --rows COLUMN` makes its rows records",
            path, path);
    free(path);
    return DT_E_USAGE;
}

static dt_status make_list(dt_raw_found *f, const char *source, const dt_catalog *set, const dt_raw_opts *o,
                           dt_table *table) {
    dt_raw *r = f->raw;
    // before anything is walked, which may take minutes
    if (o->pattern) DT_TRY(dt_pattern_check(o->pattern));
    if (!set && o->key_by_shard) return dt_fail(DT_E_USAGE, "%s: --key-by-shard is for a set of shards", source);
    // a table of numbers has no file names
    if (o->rows && (set || o->pattern))
        return dt_fail(DT_E_USAGE, "--rows is for a table of numbers, and without --pattern");
    DT_TRY(set       ? dt_raw_find_records(f, set, o->key_by_shard)
           : o->rows ? dt_raw_find_rows(f, source, o->rows, table)
                     : find_items(f, source, o, table));
    // all rows were left out: another message than for no files
    if (r->n == 0 && r->bad_rows.n > 0)
        return dt_fail(DT_E_DATA, "%s: no row is left; left out are %zu: %s", source, r->bad_rows.n, r->bad_rows.text);
    // the reasons why files were left out are the help
    if (r->n == 0) {
        char *left_out = dt_raw_describe_left_out(r);
        dt_fail(DT_E_DATA, "%s: holds no data files%s%s", source, *left_out ? "; left out: " : "", left_out);
        free(left_out);
        return DT_E_DATA;
    }
    if (r->kind == DT_RAW_FOLDER) DT_TRY(check_tables(r));
    // UINT32_MAX marks a row that is left out, and row is 32 bits
    if (r->n >= UINT32_MAX - 1) return dt_fail(DT_E_DATA, "%s: too many files", source);
    // items of a list have the rows of their table
    r->table.n_rows = r->table.cap_rows = f->list ? f->list->cells.n_rows : (uint32_t)r->n;
    const bool is_files = r->kind != DT_RAW_SET && r->kind != DT_RAW_ROWS && r->kind != DT_RAW_MEMBERS;
    // a list with more columns says what files are: folders are no classes then
    const bool by_class = is_files && !o->pattern && !(f->list && f->list->cells.n_columns > 1);
    if (r->kind == DT_RAW_MEMBERS && (o->pattern || o->group))
        return dt_fail(DT_E_USAGE, "%s: --pattern and --group are for names of files, and these are rows", source);
    // with --join folders are looked at after the tables, which may have a label
    if (is_files) DT_TRY(dt_raw_name_items(f, o, by_class && !o->join));
    // also where --pattern is not given, as captures are what is grouped by
    if (o->group && (set || !o->pattern)) return dt_fail(DT_E_USAGE, "--group is for files with captures of --pattern");
    if (o->group) DT_TRY(dt_raw_group(r, o->group));
    // a set keeps its own order unless sorted is wanted; a list keeps its lines' where as_listed
    if (r->kind == DT_RAW_SET ? o->sorted : !(r->kind == DT_RAW_LIST && o->as_listed))
        qsort_r(r->items, r->n, sizeof *r->items, compare_items, (void *)(uintptr_t)(o->tail ? o->tail : "."));
    DT_TRY(raw_check_keys(r));
    if (f->list) DT_TRY(dt_raw_add_table(r, f->list, f->list_column));
    if (o->join) DT_TRY(dt_raw_join_tables(r, o));
    // after joins, as a joined label has priority
    if (o->join) DT_TRY(dt_raw_class_joined(f, by_class));
    DT_TRY(dt_raw_derive(r, o->columns)); // from columns that are known by now
    dt_raw_sort_columns(r);
    r->hash = hash_list(r); // after sorting, so that it does not depend on the order of tables
    return DT_OK;
}

dt_status dt_raw_list(dt_raw *out, const char *source, const dt_catalog *set, const dt_raw_opts *o) {
    static const dt_raw_opts DEFAULTS = {0}; // options that are not given
    dt_table table = {0};
    *out = (dt_raw){.root_fd = -1}; // fini closes no descriptor
    dt_arena_init(&out->arena);
    dt_columns_init(&out->table, DT_MAX_COLUMNS, true); // true: equal texts are stored once
    out->source = dt_arena_strdup(&out->arena, source);
    if (!o) o = &DEFAULTS;
    dt_raw_found f = {.raw = out, .keep_empty = o->keep_empty, .skip_bad = o->skip_bad, .join = o->join};
    dt_status st = make_list(&f, source, set, o, &table);
    dt_table_fini(&table);
    if (st != DT_OK) dt_raw_fini(out); // an error leaves nothing to free
    return st;
}

dt_status dt_raw_holds_files(const char *folder, bool *yes) {
    dt_raw r = {.root_fd = -1}; // no names, no columns: only whether files are there
    dt_raw_found f = {.raw = &r};
    dt_arena_init(&r.arena);
    dt_status st = dt_raw_find_folder(&f, folder);
    *yes = r.n > 0;
    dt_raw_fini(&r);
    return st;
}

void dt_raw_fini(dt_raw *r) {
    if (r->root_fd >= 0) close(r->root_fd);
    for (size_t i = 0; i < r->n_files; i++) dt_columnar_close(r->files[i]);
    free(r->files);
    free(r->numbers);
    free(r->items);
    dt_columns_fini(&r->table);
    dt_arena_fini(&r->arena);
    *r = (dt_raw){.root_fd = -1}; // may be called again
}

// ---- without packing ------------------------------------------------------------------------------------
static dt_status raw_add_item(dt_catalog *c, const dt_raw *raw, const dt_raw_item *item) {
    char *path = dt_raw_path(raw, item);
    uint32_t shard = dt_catalog_add_shard(c, path, item->size); // one file is one shard with one record
    free(path);
    // key, then its only member, then metadata: the order that the catalog wants
    DT_TRY(dt_catalog_add_record(c, shard, item->key));
    DT_TRY(dt_catalog_add_member(c, item->ext, item->offset, item->size, NULL));
    return dt_raw_put_row(raw, item, c);
}

dt_status dt_raw_load(dt_catalog *c, const char *path) {
    // no copy of files: the catalog points into the folder
    static const dt_raw_opts ALL = {.keep_empty = true, // data.on_error decides, as of any record
                                    .as_listed = true};
    dt_raw raw;
    dt_status st = DT_OK;
    DT_TRY(dt_raw_list(&raw, path, NULL, &ALL));
    // counted as kept: no warning
    raw.left_out[DT_RAW_EMPTY].n = 0; // they are kept
    char *left_out = dt_raw_describe_left_out(&raw);
    if (dt_raw_lost_samples(&raw)) dt_warn_alike("%s: left out: %s", path, left_out); // once for equal ranks
    free(left_out);
    for (size_t i = 0; i < raw.n && st == DT_OK; i++) st = raw_add_item(c, &raw, &raw.items[i]);
    dt_raw_fini(&raw);
    return st;
}
