// cmd_pack.c: dtrain pack SRC OUT, alone or on the ranks of mpirun.

#include "base/core.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/json.h"
#include "base/log.h"
#include "base/os.h"
#include "base/text.h"
#include "base/thread.h"
#include "base/watch.h"
#include "comm/comm.h"
#include "data/pack/pack.h"
#include "data/pack/pack_parts.h"
#include "data/source/source.h"
#include "launch/launch.h"
#include "store/blob.h"
#include "store/s3.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

// ---- pack bucket --------------------------------------------------------------------------------------------------

// Dtrain pack SRC s3://…: packed on this host, then uploaded.
//
// The set is packed into <cache>/packing/<command>, with a list of its shards, NAME.json, which is written when all of them
// are whole. Then each file is uploaded, an index in front of its shard, and removed here; the list comes last. So the same
// command goes on wherever it was killed, and who reads the list's URL finds a whole set. An LMDB needs no list.
// Of a set that is replaced the list (of an LMDB the data) goes before anything comes, and shards that the new one has
// not go at the end.

// "photos-%06d.tar" -> "photos", as the set is named.
static char *pack_bucket_name_of(const char *base) {
    size_t n = strcspn(base, ".{%");
    while (n > 1 && strchr("-_", base[n - 1])) n--;
    return dt_xprintf("%.*s", (int)n, base);
}

// wids' list of the shards in `dir`.
static dt_status pack_bucket_write_list(const char *dir, const char *list) {
    dt_reader *s;
    DT_TRY(dt_reader_open(&s, &dir, 1));
    const dt_catalog *c = s->catalog;
    uint64_t *n = dt_xcalloc(c->n_shards + 1, sizeof *n);
    dt_json j;
    dt_json_init(&j);
    for (uint32_t r = 0; r < c->n_records; r++) n[c->records[r].shard]++;
    dt_json_begin_object(&j, NULL);
    dt_json_string(&j, "__kind__", "wids-shard-index-v1");
    dt_json_int(&j, "wids_version", 1);
    dt_json_begin_array(&j, "shardlist");
    for (uint32_t i = 0; i < c->n_shards; i++) {
        dt_json_begin_object(&j, NULL);
        dt_json_string(&j, "url", dt_path_base(c->shards[i].path));
        dt_json_int(&j, "nsamples", (int64_t)n[i]);
        dt_json_end_object(&j);
    }
    dt_json_end_array(&j);
    dt_json_end_object(&j);
    const dt_status st = dt_io_write_file(list, j.data, j.n_bytes);
    dt_json_fini(&j);
    free(n);
    dt_reader_close(s);
    return st;
}

// The files of a folder, and of an LMDB's folder in it, but for the list: indexes in front of their shards.
static dt_status upload_all(const char *dir, const char *to, const char *list) {
    char **names;
    size_t n;
    dt_status st = DT_OK;
    DT_TRY(dt_io_list_dir(&names, &n, dir, DT_E_STORAGE));
    for (size_t i = 0; i < n && st == DT_OK; i++) {
        char *path = dt_xprintf("%s/%s", dir, names[i]), *index = dt_xprintf("%s.index", names[i]);
        char *index_path = dt_xprintf("%s/%s", dir, index);
        if (dt_io_is_dir(path)) {
            char *below = dt_xprintf("%s/%s", to, names[i]);
            st = upload_all(path, below, list);
            free(below);
        } else if (!dt_text_ends(path, ".index|/lock.mdb") && strcmp(path, list) != 0) {
            dt_info("%s/%s: uploading", to, names[i]);
            const char *const files[] = {index, names[i]};
            const size_t skip = !dt_io_exists(index_path);
            st = dt_s3_put_files(to, dir, files + skip, 2 - skip, true, NULL);
        }
        free(index_path);
        free(index);
        free(path);
    }
    dt_io_free_list(names, n);
    return st;
}

// An older set of that name is replaced only by --overwrite.
static dt_status refuse_older(const dt_pack_opts *o, const char *url) {
    dt_blob b;
    int absent;
    if (o->overwrite) return DT_OK;
    const dt_status st = dt_blob_open_url(&b, url, &absent);
    if (st == DT_OK) {
        dt_blob_close(&b);
        return dt_fail(DT_E_USAGE, "%s: is there already; --overwrite replaces the set", url);
    }
    if (!absent) return st;
    dt_error_clear();
    return DT_OK;
}

static bool pack_bucket_is_listed(const json_t *list, const char *name) {
    const size_t n = strlen(name) - (dt_text_ends(name, ".index") ? strlen(".index") : 0);
    const json_t *shard;
    size_t i;
    json_array_foreach(json_object_get(list, "shardlist"), i, shard) {
        const char *url = json_string_value(json_object_get(shard, "url"));
        if (url && strlen(url) == n && strncmp(url, name, n) == 0) return true;
    }
    return false;
}

// Removes shards and indexes of an older set of this name.
static dt_status remove_surplus(const char *out, const char *to, const char *list) {
    dt_plan plan = {0};
    char **names = NULL, *prefix = dt_xprintf("%s/", to);
    size_t n = 0;
    json_t *l = json_load_file(list, 0, NULL);
    dt_status st = dt_plan_name(&plan, out);
    if (st == DT_OK && !l) st = dt_fail(DT_E_STORAGE, "%s: cannot be read, or is no JSON", list);
    if (st == DT_OK) st = dt_s3_list(&names, &n, prefix);
    for (size_t i = 0; i < n && st == DT_OK; i++) {
        const bool own = dt_plan_belongs(&plan, names[i]) || dt_plan_is_companion(&plan, names[i]);
        if (!own || pack_bucket_is_listed(l, names[i])) continue;
        char *url = dt_xprintf("%s%s", prefix, names[i]);
        st = dt_s3_remove(url, NULL);
        free(url);
    }
    json_decref(l);
    dt_io_free_list(names, n);
    dt_plan_fini(&plan);
    free(prefix);
    return st;
}

// Packs into a folder of data.cache_dir's default, uploads what came of it, and removes it. o->out is the URL; `command`: a
// hash of all that was asked for, by which the same command goes on after a kill.
static dt_status pack_to_bucket(const dt_pack_opts *o, uint64_t command) {
    const char *base = dt_path_base(o->out);
    char hex[17], below[40];
    dt_hash_hex(command, hex);
    snprintf(below, sizeof below, "/packing/%s", hex);
    if (dt_launcher_rank() >= 0)
        return dt_fail(DT_E_USAGE, "%s: one process packs into a bucket, without mpirun", o->out);
    char *dir = dt_io_cache_folder(NULL, below);
    if (!dir) return dt_fail(DT_E_STORAGE, "no home folder to pack in: set XDG_CACHE_HOME");
    char *name = pack_bucket_name_of(base), *to = dt_xprintf("%.*s", (int)(base - 1 - o->out), o->out);
    const bool lmdb = dt_text_ends(base, ".lmdb");
    char *list = dt_xprintf("%s/%s.json", dir, name);
    char *last = lmdb ? dt_xprintf("%s/data.mdb", o->out) : dt_xprintf("%s/%s.json", to, name);
    dt_pack_opts here = *o;
    char *out = dt_xprintf("%s/%s", dir, base);
    here.out = out;
    here.overwrite = true;
    dt_status st = dt_io_exists(list) ? DT_OK : refuse_older(o, last); // there: goes on
    if (st == DT_OK) st = dt_io_mkdir_all(dir);
    if (st == DT_OK && !dt_io_exists(list)) {
        st = dt_data_pack(&here);
        if (st == DT_OK) st = lmdb ? dt_io_write_file(list, "", 0) : pack_bucket_write_list(dir, list);
    }
    if (st == DT_OK) st = dt_io_remove_leftovers(dir, NULL); // no file of the set
    if (st == DT_OK && o->overwrite) st = dt_s3_remove(last, NULL);
    if (st == DT_OK) st = upload_all(dir, to, list);
    if (st == DT_OK && !lmdb) st = dt_s3_put(last, list, NULL);
    if (st == DT_OK && !lmdb && o->overwrite) st = remove_surplus(o->out, to, list);
    if (st == DT_OK) st = dt_io_remove_tree(dir);
    if (st == DT_OK) dt_info("%s: uploaded; data.path: %s", o->out, lmdb ? o->out : last);
    free(out);
    free(last);
    free(list);
    free(to);
    free(name);
    free(dir);
    return st;
}

// ---- pack fetch ---------------------------------------------------------------------------------------------------

enum { FETCHERS = 32 };

typedef struct fetching {
    const char *url, *dir;
    char **names; // of the objects, behind the URL
    size_t n;
    _Atomic size_t next;
    _Atomic int failed; // the first status that is none
    char message[1024]; // its
} fetching;

// An object may be named as no file can be, or as one outside of the folder.
static bool pack_fetch_is_path(const char *name) {
    char *slashed = dt_xprintf("/%s/", name);
    const bool ok = !strstr(slashed, "//") && !strstr(slashed, "/./") && !strstr(slashed, "/../");
    free(slashed);
    return ok;
}

static dt_status fetch_one(const fetching *f, const char *name) {
    if (dt_text_ends(name, "/")) return DT_OK; // it marks a folder
    char *url = dt_xprintf("%s%s", f->url, name), *path = dt_xprintf("%s/%s", f->dir, name);
    char *folder = dt_io_parent(path);
    dt_status st =
        pack_fetch_is_path(name) ? dt_io_mkdir_all(folder) : dt_fail(DT_E_DATA, "%s: no file can be named so", url);
    if (st == DT_OK) st = dt_s3_get(path, url);
    free(folder);
    free(path);
    free(url);
    return st;
}

static void fetch_some(void *arg, int index) {
    fetching *f = arg;
    for (size_t i; !f->failed && (i = f->next++) < f->n;) {
        int none = DT_OK;
        const dt_status st = fetch_one(f, f->names[i]);
        if (st != DT_OK && atomic_compare_exchange_strong(&f->failed, &none, st))
            snprintf(f->message, sizeof f->message, "%s", dt_error_message());
    }
}

// Waits until no other process has what it fetched of this URL, where the file system has locks. The lock goes with the
// process.
static dt_status lock_folder(const char *cache, const char *url, uint64_t key) {
    int fd;
    char *path = dt_xprintf("%s/packing.lock", cache);
    dt_status st = dt_io_mkdir_all(cache);
    if (st == DT_OK) st = dt_io_open_update(&fd, path);
    if (st == DT_OK && !dt_io_lock_byte(fd, (off_t)(key >> 2), F_WRLCK, false) &&
        (errno == EAGAIN || errno == EACCES)) {
        dt_info("%s: another process packs it: waiting", url);
        (void)dt_io_lock_byte(fd, (off_t)(key >> 2), F_WRLCK, true);
    }
    free(path);
    return st;
}

// Fetches all objects whose keys begin as the URL does, which ends with '/', into a folder of data.cache_dir's default, *out
// (heap, also after an error), which the caller removes.
static dt_status fetch_folder(char **out, const char *url) {
    char hex[17], *cache = dt_io_cache_folder(NULL, "");
    const uint64_t key = dt_hash64(url, strlen(url));
    if (!cache) return dt_fail(DT_E_STORAGE, "no home folder to fetch to: set XDG_CACHE_HOME");
    dt_hash_hex(key, hex);
    dt_status st = lock_folder(cache, url, key);
    if (st == DT_OK) *out = dt_xprintf("%s/packing/raw-%s", cache, hex);
    free(cache);
    DT_TRY(st);
    fetching f = {.url = url, .dir = *out};
    dt_team *team;
    if (dt_io_is_dir(*out)) DT_TRY(dt_io_remove_tree(*out)); // of a fetch that was killed
    st = dt_s3_list_below(&f.names, &f.n, url);
    if (st == DT_OK && f.n == 0) st = dt_fail(DT_E_DATA, "%s: there are no objects below it", url);
    if (st == DT_OK) dt_info("%s: fetching %zu objects to %s", url, f.n, *out);
    if (st == DT_OK) st = dt_team_create(&team, f.n < FETCHERS ? (int)f.n : FETCHERS, "dt-fetch");
    if (st == DT_OK) {
        dt_team_run(team, fetch_some, &f);
        dt_team_destroy(team);
        if (f.failed) st = dt_fail((dt_status)f.failed, "%s", f.message);
    }
    dt_io_free_list(f.names, f.n);
    return st;
}

// ---- the verb --------------------------------------------------------------------------------------
enum {
    PATTERN,
    GROUP,
    ROWS,
    JOIN,
    JOIN_ON,
    JOIN_STRICT,
    JOIN_DUPLICATES,
    COLUMN,
    KEY_BY_SHARD,
    DUPLICATES,
    WHERE,
    ON_ERROR,
    SHARD_SIZE,
    SHARD_RECORDS,
    QUALITY,
    RESIZE,
    ENCODE,
    MAX_PIXELS,
    SEGMENT,
    HOP,
    TAIL,
    RATE,
    MONO,
    SLICES,
    THREADS,
    OVERWRITE
};
static const dt_cli_option options[] = {
    [PATTERN] = {"--pattern", "P[|P…]", "pattern of paths; each {capture} becomes a metadata column"},
    [GROUP] = {"--group", "A,B", "files with equal values of these captures become members of one record"},
    [ROWS] = {"--rows", "A,B|-",
              "SRC is a table: each row becomes a vector of its numbers; columns A,B become metadata (-: none)"},
    [JOIN] = {"--join", "FILE …",
              "a CSV, JSON or Parquet with a row per file: labels, angles, boxes, any metadata; may be repeated"},
    [JOIN_ON] = {"--join-on", "WHAT",
                 "match rows and files by name, stem, key or a column (default: the one that fits)"},
    [JOIN_STRICT] = {"--join-strict", NULL,
                     "fail on a file without a row, a row without a file, and a row that matches several files"},
    [JOIN_DUPLICATES] = {"--join-duplicates", "error|first|last",
                         "two rows for one file: fail, or take the first or the last row (default error)"},
    [COLUMN] = {"--column", "NAME=EXPR …",
                "a computed metadata column, such as \"covid=finding like '%COVID%'\"; may be repeated"},
    [KEY_BY_SHARD] = {"--key-by-shard", NULL,
                      "prefix keys with the shard's name, such as photos-000003/000017, where shards repeat keys"},
    [DUPLICATES] = {"--duplicates", "report|drop|fail", "records of equal content (default report)"},
    [WHERE] = {"--where", "EXPR", "keep only the records that match, such as \"seconds >= 0.5 and label != 'noise'\""},
    [ON_ERROR] = {"--on-error", "fail|skip",
                  "files that are empty or unreadable, or that fail in a transform or join (default fail)"},
    [SHARD_SIZE] = {"--shard-size", "1GB", "maximum size of a shard, for OUT such as name-%06d.tar"},
    [SHARD_RECORDS] = {"--shard-records", "N", "maximum records per shard, for OUT such as name-%06d.tar"},
    [QUALITY] = {"--quality", NULL, "add columns for sharpness, contrast, entropy, SNR, clipping and silence"},
    [RESIZE] = {"--resize", "PX", "images: downscale the shorter side to this"},
    [ENCODE] = {"--encode", "jpeg[:Q]|png", "images: encode as this format (default quality 90)"},
    [MAX_PIXELS] = {"--max-pixels", "N",
                    "images: maximum number of pixels of a file that is decoded (data.max_pixels)"},
    [SEGMENT] = {"--segment", "S", "audio and series: cut into segments of S seconds"},
    [HOP] = {"--hop", "S", "seconds between the starts of segments (default: --segment)"},
    [TAIL] = {"--tail", "pad|drop", "audio: the rest at the end: pad with zeros or drop (default pad)"},
    [RATE] = {"--rate", "HZ", "audio: resample; series: the rate that they have, for --segment"},
    [MONO] = {"--mono", NULL, "audio: mix channels down to one"},
    [SLICES] = {"--slices", NULL, "FITS cubes: each slice along the last axis (objects) becomes a record"},
    [THREADS] = {"--threads", "N", "threads that read and transform (default: one per core)"},
    [OVERWRITE] = {"--overwrite", NULL, "replace OUT once the new set is complete"},
    {NULL}};

// "64MB", "1GiB", "1000000".
static dt_status option_bytes(const dt_cli_words *w, int option, uint64_t *out) {
    static const struct {
        const char *name;
        double factor;
    } UNITS[] = {{"", 1},      {"B", 1},      {"kB", 1e3},        {"MB", 1e6},          {"GB", 1e9},
                 {"TB", 1e12}, {"KiB", 1024}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}};
    const char *text = w->options[option];
    char *end = NULL;
    if (!text) return DT_OK;
    double v = strtod(text, &end);
    while (*end == ' ') end++;
    for (size_t i = 0; i < sizeof UNITS / sizeof *UNITS && end > text; i++)
        if (strcasecmp(end, UNITS[i].name) == 0 && v * UNITS[i].factor >= 1 && v < 1e15) {
            *out = (uint64_t)(v * UNITS[i].factor);
            return DT_OK;
        }
    return dt_fail(DT_E_USAGE, "%s: '%s' is no size like 64MB or 1GiB", options[option].name, text);
}

static dt_status option_number(const dt_cli_words *w, int option, const char *what, double *out) {
    const char *text = w->options[option];
    char *end = NULL;
    if (!text) return DT_OK;
    *out = strtod(text, &end);
    if (end > text && *end == 's' && option != RATE) end++;
    return end > text && !*end && *out > 0
               ? DT_OK
               : dt_fail(DT_E_USAGE, "%s: '%s' is not %s", options[option].name, text, what);
}

static dt_status read_transform(const dt_cli_words *w, dt_pack_opts *o) {
    int tail;
    o->quality = w->options[QUALITY] != NULL;
    o->mono = w->options[MONO] != NULL;
    o->slices = w->options[SLICES] != NULL;
    o->encode = w->options[ENCODE];
    DT_TRY(dt_cli_option_word(w, TAIL, 0, &tail));
    o->drop_tail = tail == 1;
    DT_TRY(dt_cli_option_int(w, RESIZE, 0, &o->resize));
    DT_TRY(dt_cli_option_int(w, MAX_PIXELS, 0, &o->max_pixels));
    DT_TRY(option_number(w, RATE, "a rate like 16000 (Hz)", &o->rate));
    DT_TRY(option_number(w, SEGMENT, "a length like 1.5 (seconds)", &o->segment_s));
    return option_number(w, HOP, "a length like 1.5 (seconds)", &o->hop_s);
}

static dt_status pack_read_options(const dt_cli_words *w, dt_pack_opts *o) {
    int records, duplicates, on_error, of_join;
    if (dt_blob_is_url(w->words[1]) && !dt_s3_is_url(w->words[1]))
        return dt_fail(DT_E_USAGE, "%s: dtrain pack writes files, and into buckets (s3://, gs://)", w->words[1]);
    DT_TRY(dt_cli_option_int(w, THREADS, 0, &o->n_threads));
    DT_TRY(dt_cli_option_int(w, SHARD_RECORDS, 0, &records));
    o->shard_records = (uint64_t)records;
    DT_TRY(option_bytes(w, SHARD_SIZE, &o->shard_bytes));
    DT_TRY(dt_cli_option_word(w, DUPLICATES, DT_DUPLICATES_REPORT, &duplicates));
    o->duplicates = (dt_pack_duplicates)duplicates;
    DT_TRY(read_transform(w, o));
    DT_TRY(dt_cli_option_word(w, ON_ERROR, 0, &on_error));
    o->skip_bad = on_error == 1;
    DT_TRY(dt_cli_option_word(w, JOIN_DUPLICATES, DT_JOIN_ERROR, &of_join));
    o->join_duplicates = (dt_join_duplicates)of_join;
    if (!o->join && (o->join_on || o->join_strict || w->options[JOIN_DUPLICATES]))
        return dt_fail(DT_E_USAGE, "--join-on, --join-strict and --join-duplicates need --join FILE");
    return DT_OK;
}

// ---- ranks --------------------------------------------------------------------------------------------
// The worst status of all ranks. Of the ranks that failed only the first reports, as messages are mostly the same;
// for rank 0 main does.
static dt_status cmd_pack_agree(void *ctx, dt_status mine, int64_t *value) {
    dt_comm *c = ctx;
    int64_t all[3] = {mine, *value, mine == DT_OK ? 0 : c->world_size - c->rank};
    DT_TRY(c->all_reduce_max_i64(c, all, 3));
    *value = all[1];
    if (all[0] == DT_OK) return DT_OK;
    bool speaks = c->world_size - c->rank == all[2];
    if (speaks && c->rank > 0) dt_cli_print_error(mine);
    if (!speaks) dt_error_clear();
    return (dt_status)all[0];
}

// One file operation; no rank reads or writes anything (SQLite sorts, a library writes its files).
enum { IO_S = 600, IDLE_S = 3600 };

static dt_status pack_on_ranks(dt_pack_opts *o) {
    dt_comm *c = NULL;
    dt_watch_start(&(dt_watch_limits){IO_S, DT_START_TIMEOUT_S, DT_LOST_TIMEOUT_S});
    DT_TRY(dt_comm_create(&c));
    dt_log_set_rank(c->rank, c->world_size);
    c->set_deadline(c, IDLE_S);
    o->rank = c->rank;
    o->world_size = c->world_size;
    o->agree = cmd_pack_agree;
    o->ctx = c;
    dt_status st = dt_data_pack(o);
    if (c->rank == 0) dt_cli_print_error(st); // before the last barrier: see wire.c
    dt_status last = c->finalize(c);
    dt_comm_destroy(c);
    if (st == DT_OK) return last;
    dt_error_clear();
    return st;
}

// Of all that the command says.
static uint64_t hash_words(const dt_cli_words *w) {
    uint64_t h = 0;
    for (int i = 0; i < w->n_words + OVERWRITE; i++) {
        const char *word = i < w->n_words ? w->words[i] : w->options[i - w->n_words];
        const uint64_t both[] = {h, word ? dt_hash64(word, strlen(word)) : 0};
        h = dt_hash64(both, sizeof both);
    }
    return h;
}

static dt_status pack_run(const dt_cli_words *w) {
    DT_TRY(dt_cli_expect_words(w, "pack", 2, 2, "SRC OUT"));
    dt_pack_opts o = {.source = w->words[0],
                      .out = w->words[1],
                      .pattern = w->options[PATTERN],
                      .group = w->options[GROUP],
                      .rows = w->options[ROWS],
                      .join = w->options[JOIN],
                      .join_on = w->options[JOIN_ON],
                      .columns = w->options[COLUMN],
                      .where = w->options[WHERE],
                      .join_strict = w->options[JOIN_STRICT] != NULL,
                      .key_by_shard = w->options[KEY_BY_SHARD] != NULL,
                      .progress = true,
                      .overwrite = w->options[OVERWRITE] != NULL};
    DT_TRY(pack_read_options(w, &o));
    const bool fetches = dt_s3_is_url(o.source) && dt_text_ends(o.source, "/");
    char *fetched = NULL;
    dt_status st = DT_OK;
    if (fetches && dt_launcher_rank() >= 0)
        return dt_fail(DT_E_USAGE, "%s: one process fetches from a bucket, without mpirun", o.source);
    if (fetches) st = fetch_folder(&fetched, o.source);
    if (fetches) o.source = fetched;
    if (st == DT_OK)
        st = dt_s3_is_url(o.out)       ? pack_to_bucket(&o, hash_words(w))
             : dt_launcher_rank() >= 0 ? pack_on_ranks(&o)
                                       : dt_data_pack(&o);
    const dt_error_kept why = dt_error_keep();
    if (fetched && dt_io_remove_tree(fetched) != DT_OK) dt_error_clear();
    dt_error_restore(&why);
    free(fetched);
    return st;
}

const dt_cli_command dt_cli_pack = {
    .options = options,
    .text = "Packs files into a data set that is fast to read and checked by hashes: one LMDB (OUT ends in .lmdb) or "
            "WebDataset shards (OUT is a .tar or a pattern of them). SRC is a folder, a list of files (one path per "
            "line, or a CSV whose other columns become metadata), a tar, Parquet files whose columns of bytes are "
            "images or "
            "audio, or a data set, which is converted or resharded. With OUT in a bucket (s3://bucket/photos-%06d.tar) "
            "the set is packed here and uploaded; with "
            "SRC in a bucket (s3://bucket/raw/) the files are downloaded first.\n\n"
            "People: subject, gender, hand and finger, or eye, from the file names\n"
            "  dtrain pack raw/biometric datasets/biometric.lmdb\n"
            "Lenses: FITS, label from the folder, Einstein radius from a table, 500 MB per shard\n"
            "  dtrain pack raw/lens 'datasets/lens-%06d.tar' --pattern '{label}/{id}.fits' \\\n"
            "      --join raw/lens/lens.csv --shard-size 500MB\n"
            "Pipes: 40,000 WAVs with metadata in their names, on four processes\n"
            "  mpirun -np 4 dtrain pack raw/acoustic 'datasets/acoustic-{000000..000015}.tar' \\\n"
            "      --pattern 'leak{leak}_pipe{pipe}_{hz}_{n}.wav'\n"
            "Pipes: segments of half a second at 16 kHz without silent ones\n"
            "  dtrain pack raw/acoustic pipes.lmdb --segment 0.5 --rate 16000 --mono --quality \\\n"
            "      --where 'silence < 0.5'\n"
            "Photographs at the size used in training, which halves the decoding time\n"
            "  dtrain pack photos 'photos-%06d.tar' --resize 256 --encode jpeg:90 --shard-size 1GB\n"
            "Heads: photographs with yaw, pitch and roll in a CSV, without duplicates\n"
            "  dtrain pack raw/pose datasets/pose.lmdb --join raw/pose/pose.csv --duplicates drop\n"
            "Another tool's shards to an LMDB with their metadata\n"
            "  dtrain pack 'other-{000000..000127}.tar' datasets/other.lmdb\n"
            "The same where keys start again in every shard\n"
            "  dtrain pack 'other-{000000..000127}.tar' datasets/other.lmdb --key-by-shard\n\n"
            "The output does not depend on the number of threads or ranks. Ranks share the shards; rank 0 writes an "
            "LMDB. After a kill the same command keeps the finished shards. An unfinished set lies in OUT.partial.\n",
    .run = pack_run};
