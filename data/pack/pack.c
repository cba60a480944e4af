// pack.c: `dtrain pack`: files -> one dataset that is read fast, checked by hash, and complete.
//
//   list (raw.c)           what there is, named, with its metadata: the same list on every rank
//   plan (pack_plan.c)     which record goes to which file, and chunks of work: a function of list and options
//   build (pack_build.c)   chunks into files, by threads; shard s by rank s mod N
//   finish (pack_build.c)      rows of all shards, duplicates, indexes, database: by rank 0
//   publish (shard_rows.c)       everything to its place
//
// The bytes are a function of source and options. A chunk is composed of its own items only, and files are
// written in the order of the plan; so threads, ranks, kills and resumes leave no trace. There is no time and no
// name of a machine in any file.
//
// Until it is published a dataset lives in OUT.partial (pack_parts.h). An output that exists is left alone: if it was made
// of just these files in just this way, the work is done already and that is success; otherwise it is an error,
// unless overwriting was asked for, and then the old dataset stays until the new one is whole.
#include "pack_parts.h"

#include "data/catalog/index_file.h"
#include "data/file/columnar.h"

#include "base/core.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/log.h"
#include "base/os.h"
#include "base/text.h"
#include "base/thread.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// LAYOUT_VERSION: raised whenever the same source would give other bytes
enum { LAYOUT_VERSION = 2 /* of the bytes that are written */, MAX_THREADS = 256 };

typedef struct packing {
    const dt_pack_opts *o;
    int rank, world_size, n_threads; // ranks of the pack, threads of this one
    dt_reader *reader;               // the source, if it is a dataset
    dt_names files;                  // the source, if it is files of columns
    bool published;                  // rank 0: an earlier pack's files have been put in place
    bool published_by_the_same;      // the earlier pack had this command
    dt_raw raw;
    dt_plan plan;
    dt_transform *transform;
    dt_where *where;
    dt_compose compose;
    uint8_t *drop; // by item; NULL: none is dropped
    size_t n_dropped;
    uint64_t fingerprint; // of source, options and layout: two packs with the same one write the same bytes
    dt_work work;         // the folder OUT.partial
    dt_progress progress;
    double begin_s;
    dt_pack_times times; // of this rank
} packing;

// ---- agreement ----------------------------------------------------------------------------------------
// Called by all ranks. If one has failed, all fail, each with its own message or none.
static dt_status agree_value(const packing *p, dt_status mine, int64_t *value) {
    if (p->world_size <= 1) return mine; // the status of a lone process is final
    return p->o->agree(p->o->ctx, mine, value);
}

static dt_status pack_agree(const packing *p, dt_status mine) {
    int64_t nothing = 0;
    return agree_value(p, mine, &nothing);
}

// ---- what is to be made -------------------------------------------------------------------------------
// The options that change bytes. Duplicates that are reported or fatal give the same dataset.
static char *pack_describe(const packing *p) {
    const dt_pack_opts *o = p->o;
    return dt_xprintf("layout %d, %s, %zu files, %zu chunks, limit %llu bytes %llu records, %s, "
                      "pattern '%s', duplicates %s, where '%s'",
                      // what changes neither bytes nor their files is not part of it: threads, ranks, --overwrite
                      LAYOUT_VERSION, p->plan.format->name, p->plan.n_shards, p->plan.n_chunks,
                      (unsigned long long)o->shard_bytes, (unsigned long long)o->shard_records,
                      dt_transform_describe(p->transform), o->pattern ? o->pattern : "",
                      o->duplicates == DT_DUPLICATES_DROP ? "dropped" : "kept", o->where ? o->where : "");
}

static dt_status pack_prepare(packing *p) {
    const dt_pack_opts *o = p->o;
    DT_TRY(dt_transform_create(&p->transform, o));
    dt_raw_opts r = {.pattern = o->pattern,
                     .group = o->group,
                     .rows = o->rows,
                     .join = o->join,
                     .join_on = o->join_on,
                     .join_strict = o->join_strict,
                     .join_duplicates = o->join_duplicates,
                     .columns = o->columns,
                     .skip_bad = o->skip_bad,
                     .key_by_shard = o->key_by_shard,
                     .sorted = p->plan.format->one_file,
                     // the first character behind a key decides how keys sort: '-' before a segment's number, '.'
                     // before an extension
                     .tail = dt_transform_divides(p->transform) ? "-00000." : "."};
    if (dt_columnar_is_name(o->source)) DT_TRY(dt_expand_files(o->source, &p->files));
    r.files = p->files.name;
    r.n_files = p->files.n;
    if (!r.files) DT_TRY(dt_pack_source_open(&p->reader, o->source, &p->plan));
    DT_TRY(dt_raw_list(&p->raw, o->source, p->reader ? p->reader->catalog : NULL, &r));
    if (o->where) DT_TRY(dt_where_create(&p->where, o->where, &p->raw, p->transform));
    // where and transforms need the bytes: files cannot be copied through
    bool in_place = dt_transform_keeps_bytes(p->transform) && !p->where;
    DT_TRY(dt_plan_make(&p->plan, &p->raw, o, in_place));
    char *described = pack_describe(p);
    uint64_t parts[2] = {p->raw.hash, dt_hash64(described, strlen(described))};
    free(described);
    p->fingerprint = dt_hash64(parts, sizeof parts) | 1; // 0 stands for unknown
    p->compose = (dt_compose){.raw = &p->raw,
                              .reader = p->reader,
                              .plan = &p->plan,
                              .transform = p->transform,
                              .where = p->where,
                              .skip_bad = o->skip_bad};
    // the list is made, so that the message can name the first
    if (p->raw.left_out[DT_RAW_EMPTY].n == 0 || o->skip_bad) return DT_OK;
    return dt_fail(DT_E_DATA,
                   "%s: %zu files are empty, the first is %s: remove them, or leave them out with "
                   "--on-error skip",
                   o->source, p->raw.left_out[DT_RAW_EMPTY].n, p->raw.left_out[DT_RAW_EMPTY].first);
}

static void pack_log_join(const packing *p, const dt_raw_join *j) {
    char *of = dt_xstrdup(p->o->join);
    dt_examples replaced = p->raw.replaced;
    for (char *at; (at = strchr(of, '\n'));) *at = ',';
    dt_info("%s: %zu of %zu files have a row, by %s", of, j->n_with, p->raw.n, j->on);
    for (int k = 0; k < (int)p->raw.table.n_columns && !p->reader; k++) {
        const char *name = dt_columns_name(&p->raw.table, k);
        if (dt_transform_has_column(p->transform, name))
            dt_examples_add(&replaced, "column %s, which headers give too", name);
    }
    if (replaced.n) dt_info("%s: replaces %s", of, replaced.text);
    if (!p->reader && p->raw.n_classes && !j->label_only)
        dt_info("%s: folders are taken as %d classes, as no table has a column label", of, p->raw.n_classes);
    if (j->label_only) dt_info("%s: column label is the table's, so folders are not taken as classes", of);
    if (p->reader && p->raw.n_classes)
        dt_info("%s: member cls is numbered anew, in the order of labels: %d classes", of, p->raw.n_classes);
    if (j->odd.n)
        dt_warn("%s: rows of another number of fields than the first line were left out: %s", of, j->odd.text);
    if (j->duplicates.n)
        dt_warn("%s: %zu rows are a second one for a file, of which the %s was taken: %s", of, j->duplicates.n,
                p->o->join_duplicates == DT_JOIN_LAST ? "last" : "first", j->duplicates.text);
    if (j->ambiguous.n)
        dt_warn("%s: %zu rows fit several files and were left out: %s", of, j->ambiguous.n, j->ambiguous.text);
    if (j->without.n)
        dt_warn("%s: %zu files have no row: %s (--join-strict makes this an error)", of, j->without.n, j->without.text);
    if (j->unused.n)
        dt_warn("%s: %zu rows have no file: %s (--join-strict makes this an error)", of, j->unused.n, j->unused.text);
    if (j->shared.n)
        dt_warn("%s: %zu rows went to several files: %s (--join-strict makes this an error)", of, j->shared.n,
                j->shared.text);
    free(of);
}

static void pack_log_list(const packing *p) {
    const dt_raw_join *j = &p->raw.join;
    if (p->rank != 0) return;
    char *left_out = dt_raw_describe_left_out(&p->raw);
    if (*left_out)
        dt_log(dt_raw_lost_samples(&p->raw) ? DT_LOG_WARN : DT_LOG_INFO, "%s: left out: %s", p->o->source, left_out);
    free(left_out);
    if (p->raw.n_incomplete)
        dt_warn("%s: %zu of %zu records have fewer than %u files, the first is %s", p->o->source, p->raw.n_incomplete,
                p->raw.n, p->raw.n_parts, p->raw.first_incomplete);
    if (p->raw.unfit.n)
        dt_warn("%s: %zu files whose names do not fit the pattern were left out: %s", p->o->source, p->raw.unfit.n,
                p->raw.unfit.text);
    if (p->raw.bad_rows.n)
        dt_warn("%s: %zu rows were left out: %s", p->o->source, p->raw.bad_rows.n, p->raw.bad_rows.text);
    if (j->on) pack_log_join(p, j);
}

// ---- what is there already ------------------------------------------------------------------------------
// Why a shard is not the one that this fingerprint stands for, as far as stamps tell; NULL: it is. Heap.
static char *pack_find_fault(const packing *p, const char *name, uint64_t fingerprint) {
    dt_catalog *c = dt_catalog_create();
    char *path = dt_xprintf("%s/%s", p->plan.folder, name), *why = NULL;
    bool found = false, stale = false;
    // stamps, not hashes: a file that was changed has another size or time
    if (!dt_io_exists(path))
        why = dt_xprintf("is not complete: %s is not there", name);
    else if (dt_index_load(c, path, &found, &stale) != DT_OK || !found)
        why = dt_xprintf("%s has no index that `dtrain pack` wrote", name);
    else if (stale || c->shards[c->n_shards - 1].changed)
        why = dt_xprintf("%s was changed since it was packed", name);
    else if (c->shards[c->n_shards - 1].source_hash != fingerprint)
        why = dt_xprintf("was packed by another command or version of dtrain, or the files of %s, "
                         "or what is joined to them, changed since",
                         p->o->source);
    dt_error_clear();
    free(path);
    dt_catalog_destroy(c);
    return why;
}

// Why OUT is not the dataset that this fingerprint stands for; NULL: it is. Heap.
static char *pack_find_difference(const packing *p, uint64_t fingerprint) {
    char *why = p->plan.n_shards > 0 ? NULL : dt_xstrdup("has no shards");
    for (size_t i = 0; i < p->plan.n_shards && !why; i++) why = pack_find_fault(p, p->plan.name[i], fingerprint);
    return why;
}

static bool pack_is_made(const packing *p, uint64_t fingerprint) {
    char *why = pack_find_difference(p, fingerprint);
    free(why);
    return !why;
}

// *any: OUT has data files. *same: all data files are there and were made in just this way. An index whose data file
// is gone is worth nothing, and is replaced.
static dt_status inspect(const packing *p, bool *any, bool *same) {
    char **names;
    size_t n = 0, n_data = 0;
    DT_TRY(dt_plan_existing(&p->plan, &names, &n));
    // indexes and locks alone are no dataset
    for (size_t i = 0; i < n; i++) n_data += !dt_plan_is_companion(&p->plan, names[i]);
    dt_io_free_list(names, n);
    *any = n_data > 0;
    *same = *any && pack_is_made(p, p->fingerprint);
    return DT_OK;
}

// Whether nothing is left to do. A dataset that was renewed in place cannot be compared with its source, which is gone.
static bool is_done(const packing *p, bool any, bool same) {
    if (!any) return false;
    if (same) return !p->o->overwrite || p->published; // without --overwrite a dataset that is the same stays
    return p->published_by_the_same && p->reader && dt_pack_source_is_out(p->reader, &p->plan);
}

// The hash of the source and the options that change what is written: without OUT, threads and ranks, and whatever
// the source holds.
static uint64_t hash_command(const dt_pack_opts *o) {
    const char *words[] = {o->source,  o->pattern, o->group, o->rows,   o->join,
                           o->join_on, o->encode,  o->where, o->columns};
    const double numbers[] = {o->key_by_shard,
                              o->resize,
                              o->segment_s,
                              o->hop_s,
                              o->drop_tail,
                              o->rate,
                              o->mono,
                              o->quality,
                              o->skip_bad,
                              o->duplicates == DT_DUPLICATES_DROP,
                              o->join_duplicates,
                              o->slices};
    const uint64_t limits[] = {o->shard_bytes, o->shard_records};
    dt_buffer text = {0};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        // NULL and "" differ: each text has a sign in front
        dt_buffer_append(&text, words[i] ? "+" : "-", 1);
        if (words[i]) dt_buffer_append(&text, words[i], strlen(words[i]) + 1);
    }
    // doubles: every number and flag is exact in one
    dt_buffer_append(&text, numbers, sizeof numbers);
    dt_buffer_append(&text, limits, sizeof limits);
    const uint64_t hash = dt_hash64(text.data, text.n_bytes);
    dt_buffer_fini(&text);
    return hash;
}

static char *made_from(const packing *p) {
    return dt_xprintf("%016llx\n%016llx\n", (unsigned long long)p->fingerprint, (unsigned long long)hash_command(p->o));
}

// Whether the unfinished work was begun by the same command, whatever the source was then. *fingerprint: of that work.
static bool is_by_the_same(const packing *p, uint64_t *fingerprint) {
    // two lines of as many digits: fingerprint and command
    char *have = dt_work_made_from(&p->work), *want = made_from(p);
    size_t n = strlen(want);
    // the second line alone: the command, whatever the source was
    bool same = have && strlen(have) == n && strcmp(have + n / 2, want + n / 2) == 0;
    if (same) *fingerprint = strtoull(have, NULL, 16);
    free(have);
    free(want);
    return same;
}

// Rank 0, before the source is read, which may be OUT itself. A pack that was killed while it put its files in place
// is completed first: until then OUT has neither all old nor all new files.
static dt_status finish_earlier(packing *p) {
    uint64_t fingerprint = 0;
    if (!dt_io_exists(p->plan.partial)) return DT_OK; // nothing was begun
    DT_TRY(dt_work_open(&p->work, &p->plan));
    const bool same = is_by_the_same(p, &fingerprint), half = dt_work_is_publishing(&p->work);
    p->published_by_the_same = same && (half || pack_is_made(p, fingerprint));
    if (half) {
        dt_info("%s: an earlier pack was stopped while it put its files in place: doing that first", p->plan.out);
        DT_TRY(dt_work_publish(&p->work));
        DT_TRY(dt_work_remove(&p->work));
        p->published = true; // the old dataset is gone: what follows packs over a whole one
    }
    dt_work_close(&p->work);
    return DT_OK;
}

// Whether there is work to do. DT_E_USAGE: what is there must stay.
static dt_status pack_decide(const packing *p, bool *go) {
    bool any, same;
    DT_TRY(inspect(p, &any, &same));
    // inspected twice: before the lock and with it
    *go = !is_done(p, any, same);
    if (!*go) {
        dt_info("%s is already packed from %s: nothing to do", p->plan.out, p->o->source);
        return DT_OK;
    }
    if (p->plan.format->one_file && dt_io_exists(p->plan.out) && !dt_io_is_dir(p->plan.out))
        return dt_fail(DT_E_USAGE, "%s: is no folder, so no LMDB: not overwritten", p->plan.out);
    if (!any || p->o->overwrite) return DT_OK;
    char *why = pack_find_difference(p, p->fingerprint);
    dt_status st = dt_fail(DT_E_USAGE, "%s exists, and %s: remove it, or pack with --overwrite", p->plan.out, why);
    free(why);
    return st;
}

// Rank 0. *go: there is work to do, and we hold the folder for it.
static dt_status pack_claim(packing *p, bool *go) {
    const bool has_work = dt_io_exists(p->plan.partial); // of an earlier run
    *go = true;
    if (!has_work) DT_TRY(pack_decide(p, go)); // nothing is touched
    if (!*go) return DT_OK;
    DT_TRY(dt_work_open(&p->work, &p->plan));
    if (dt_work_is_publishing(&p->work)) // since the source was read
        return dt_fail(DT_E_USAGE,
                       "%s: another pack was stopped while it put its files in place: run this "
                       "again",
                       p->plan.out);
    dt_status st = pack_decide(p, go); // another pack may have ended in between
    if (st == DT_OK && !*go) return dt_work_remove(&p->work);
    if (st != DT_OK && has_work) dt_work_close(&p->work); // what is refused removes nothing
    DT_TRY(st);
    char *text = made_from(p);
    st = dt_work_claim(&p->work, text);
    free(text);
    return st;
}

// Other ranks: the folder for the work must be there, and must have been made for the same list.
// attached, not opened: rank 0 holds the lock
static dt_status pack_attach(packing *p) {
    dt_work_attach(&p->work, &p->plan);
    // the fingerprint stands for what this rank has listed
    char *have = dt_work_made_from(&p->work), *text = made_from(p);
    dt_status st = DT_OK;
    if (!have)
        st = dt_fail(DT_E_USAGE,
                     "%s: not seen by rank %d: ranks on several hosts need OUT on a file system that "
                     "all share",
                     p->plan.partial, p->rank);
    else if (strcmp(have, text) != 0)
        st = dt_fail(DT_E_DATA, "%s: rank %d sees other files there than rank 0", p->o->source, p->rank);
    free(have);
    free(text);
    return st;
}

// ---- duplicates -----------------------------------------------------------------------------------------
// Rank 0: sets p->drop for items that repeat others.
static dt_status find_duplicates(packing *p) {
    uint64_t *hash = dt_xcalloc(p->raw.n, sizeof *hash);
    uint32_t *first = NULL;
    // only items whose size occurs twice are read
    dt_status st = dt_duplicates_hash(&p->compose, p->n_threads, hash);
    if (st == DT_OK) {
        // hash 0: of a size that no other item has
        p->n_dropped = dt_duplicates_find(hash, &p->raw, &first);
        for (size_t i = 0; i < p->raw.n; i++) p->drop[i] = first[i] != DT_NO_DUPLICATE;
    }
    free(first);
    free(hash);
    return st;
}

// Leaves out all but the first of equal records. Rank 0 tells the other ranks through a file.
static dt_status drop_duplicates(packing *p) {
    dt_status st = DT_OK;
    char *path = dt_work_path(&p->work, "drop"), *data = NULL;
    size_t n = 0;
    p->drop = dt_xcalloc(p->raw.n, 1);
    p->compose.drop = p->drop; // composers read it through the pointer
    if (p->rank == 0) st = find_duplicates(p);
    if (p->world_size > 1) {
        if (st == DT_OK && p->rank == 0) st = dt_io_write_file(path, p->drop, p->raw.n);
        st = pack_agree(p, st); // collective; also orders the write before the reads
        if (st == DT_OK) st = dt_io_read_file(&data, &n, path, 0, DT_E_STORAGE);
        if (st == DT_OK && n != p->raw.n) st = dt_fail(DT_E_STORAGE, "%s: cut", path);
        if (st == DT_OK) memcpy(p->drop, data, n);
    }
    free(data);
    free(path);
    return st;
}

// ---- stopped by hand ------------------------------------------------------------------------------------
// The handler may only call what is async-signal-safe: the text is made before.
// A pack may be killed at any time, so a signal ends it at once; a line says what stays.
static char farewell[1024];
static const int STOPS[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
enum { N_STOPS = sizeof STOPS / sizeof *STOPS };

static void end_on_signal(int signal) {
    if (write(STDERR_FILENO, farewell, strlen(farewell)) < 0) _exit(DT_E_STORAGE);
    _exit(DT_E_PREEMPTED);
}

// Called when the folder for the work is this process's: prepares what a signal says. Before, a signal leaves nothing
// behind that was not there.
static void prepare_farewell(const packing *p) {
    const char *again = p->plan.format->one_file ? "an LMDB is made as a whole, so the same command begins it again"
                                                 : "the same command resumes with the shards that are complete";
    if (p->rank != 0) return; // one line, of rank 0
    snprintf(farewell, sizeof farewell, "\ndtrain: stopped: %s stays; %s; or remove it\n", p->plan.partial, again);
    for (size_t i = 0; i < N_STOPS; i++) // what is ignored (nohup, a script's background) stays so
        if (signal(STOPS[i], end_on_signal) == SIG_IGN) signal(STOPS[i], SIG_IGN);
}

static void end_farewell(void) {
    for (size_t i = 0; i < N_STOPS; i++)
        if (signal(STOPS[i], SIG_DFL) == SIG_IGN) signal(STOPS[i], SIG_IGN); // as it was: ignored before, ignored again
}

// ---- the whole ------------------------------------------------------------------------------------------
// Folders of persons whose files are called "walk_3.csv": of each folder and all of them, several names begin alike.
static void pack_log_classes_in_names(const dt_raw *r) {
    enum { MOST = 50, BYTES = 32 };
    char word[MOST][BYTES], list[256] = "";
    bool *seen = dt_xcalloc((size_t)r->n_classes * MOST, sizeof *seen);
    int n_words = 0, n_seen = 0;
    const char *base = "", *separator = base;
    for (size_t i = 0; i < r->n && n_words < MOST; i++) {
        base = dt_path_base(r->items[i].name);
        const int n = (int)strspn(base, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz");
        separator = base + n;
        int k = n == 0 || n >= BYTES || (*separator != '_' && *separator != '-') ? MOST : 0;
        while (k < n_words && (strncmp(word[k], base, (size_t)n) != 0 || word[k][n])) k++;
        if (k >= n_words) n_words = k < MOST ? k + 1 : MOST;
        if (k == MOST) break;
        snprintf(word[k], BYTES, "%.*s", n, base);
        bool *of = &seen[r->items[i].label * MOST + k];
        n_seen += !*of;
        *of = true;
    }
    for (int k = 0; k < n_words && n_words < MOST; k++) dt_text_list(list, sizeof list, word[k]);
    if (n_words > 1 && n_words < MOST && n_seen > n_words && n_seen > r->n_classes)
        dt_info("names begin with %s: where these are the classes, and folders persons or places, pack with --pattern "
                "'{person}/{label}%c{n}%s'",
                list, *separator, strrchr(base, '.') ? strrchr(base, '.') : "");
    free(seen);
}

// Says where columns come from, if the user has not said it.
static void pack_log_names(const packing *p) {
    const dt_raw *r = &p->raw;
    char columns[256] = "";
    if (r->kind == DT_RAW_SET || r->kind == DT_RAW_ROWS || r->kind == DT_RAW_MEMBERS || p->o->pattern) return;
    for (int i = 0; i < (int)r->table.n_columns; i++)
        dt_text_list(columns, sizeof columns, dt_columns_name(&r->table, i));
    if (r->by_known_pattern)
        dt_info("columns from file names: %s", columns);
    else if (r->n_classes)
        dt_info("classes from folders: column label, %d classes", r->n_classes), pack_log_classes_in_names(r);
    else if (r->table.n_columns == 0 && r->n == 1 && dt_text_ends(r->items->name, ".csv|.tsv"))
        dt_info(
            "%s is one record, a series; to make records of its rows, name the column of their label: --rows COLUMN, "
            "or --rows - where there is none",
            r->items->name);
    else if (r->table.n_columns == 0)
        dt_info("no file lies in a folder of a class, so records have no label; add columns with --pattern or --join");
}

// What the builder spent its time on, what limits it, and what would help.
static void pack_log_times(const packing *p) {
    const dt_pack_times *t = &p->times;
    const double all_s = t->wall_s * p->n_threads, share = all_s > 0 ? 100 / all_s : 0;
    const struct {
        double s;
        const char *name, *help;
    } stages[] = {{t->read_s, "reading", "a faster or nearer source, or --threads for more reads at once"},
                  {t->decode_s, "decoding", "more cores, or ranks on more hosts (mpirun -np N dtrain pack)"},
                  {t->encode_s, "encoding",
                   p->o->encode && strncmp(p->o->encode, "jpeg", 4) != 0 ? "--encode jpeg:90, which is faster than PNG"
                                                                         : "more cores, or ranks on more hosts"},
                  {t->rest_s, "hashes and copies", "more cores, or ranks on more hosts"}};
    int most = 0;
    for (int i = 1; i < 4; i++) most = stages[i].s > stages[most].s ? i : most;
    if (t->wall_s <= 0) return; // all shards were there
    dt_info("thread time: read %.0f%%, decode %.0f%%, encode %.0f%%, hash and copy %.0f%% of %d threads; write "
            "%.0f%% of one",
            share * t->read_s, share * t->decode_s, share * t->encode_s, share * t->rest_s, p->n_threads,
            100 * t->write_s / t->wall_s);
    const double busy_s = t->read_s + t->decode_s + t->encode_s + t->rest_s; // of all threads that compose
    if (t->write_s * p->n_threads > busy_s)
        dt_info("limited by writing: a faster disk, %sor fewer bytes (--resize, --encode jpeg:90)",
                p->plan.format->one_file ? "shards written by several ranks (.tar), " : "ranks on more hosts, ");
    else
        dt_info("limited by %s: %s", stages[most].name, stages[most].help);
}

static void pack_log_done(const packing *p, const dt_finish_counts *n) {
    double s = dt_clock_s() - p->begin_s;
    char why[64] = "";
    if (p->o->where) dt_text_list(why, sizeof why, "--where");
    if (p->o->drop_tail) dt_text_list(why, sizeof why, "--tail drop");
    if (p->o->skip_bad) dt_text_list(why, sizeof why, "--on-error skip");
    pack_log_names(p);
    pack_log_times(p);
    char size[DT_SIZE_CHARS];
    dt_info("packed %zu records, %s, into %s in %.1f s (%.0f files/s)", n->n_records,
            dt_size_text(size, (double)n->n_bytes), p->plan.pattern, s, (double)p->raw.n / s);
    if (n->n_without)
        dt_info("%zu of %zu files gave no record (%s), the first is %s", n->n_without, p->raw.n, why,
                p->raw.items[n->first_without].name);
    if (n->n_plain)
        dt_warn("%zu of %zu records have no columns of --quality (they are neither 8-bit images nor audio), the "
                "first is of %s",
                n->n_plain, n->n_records, p->raw.items[n->first_plain].name);
    if (n->n_clipped)
        dt_warn("%zu of %zu records have samples beyond full scale, where a resampled peak may lie, "
                "and were cut there (column clipped counts the samples), the first is of %s: lower "
                "the level of such files first",
                n->n_clipped, n->n_records, p->raw.items[n->first_clipped].name);
    if (p->n_dropped) dt_info("%zu records repeated others and were dropped", p->n_dropped);
    if (n->n_duplicates)
        dt_warn("%zu records repeat others, the first: %s is the same as %s; %s, --duplicates "
                "drop leaves them out",
                n->n_duplicates, p->raw.items[n->twin_b].name, p->raw.items[n->twin_a].name,
                n->named ? "column duplicate_of names them" : "there is no column left to name them in");
}

// The shards of this rank that are not whole yet. An LMDB is one shard, so rank 0 makes it.
static size_t *list_shards(packing *p, size_t *n) {
    const dt_plan *plan = &p->plan;
    size_t *shards = dt_xcalloc(plan->n_shards + 1, sizeof *shards), n_whole = 0;
    *n = 0;
    for (size_t s = (size_t)p->rank; s < plan->n_shards; s += (size_t)p->world_size) { // shard s by rank s mod N
        if (dt_shard_rows_are_there(&p->compose, &p->work, s, p->fingerprint)) {       // from before a kill
            n_whole++;
            continue;
        }
        shards[(*n)++] = s;
        // of the shards still to make, for the progress line
        for (size_t c = plan->chunk_at[s]; c < plan->chunk_at[s + 1]; c++) {
            const dt_plan_chunk *k = &plan->chunks[c];
            p->progress.total_items += k->n;
            for (size_t i = k->first; i < k->first + k->n; i++) p->progress.total_bytes += p->raw.items[i].size;
        }
    }
    if (n_whole) dt_info("%s: resuming: %zu shards are complete", plan->out, n_whole);
    return shards;
}

static dt_status pack_pack_build(packing *p) {
    dt_build b = {.compose = &p->compose,
                  .work = &p->work,
                  .fingerprint = p->fingerprint,
                  .n_threads = p->n_threads,
                  .progress = &p->progress,
                  .times = &p->times};
    size_t *shards = list_shards(p, &b.n_shards);
    b.shards = shards;
    p->progress.on = p->o->progress && p->rank == 0;
    p->progress.what = "pack";
    p->progress.items = "files";
    dt_progress_begin(&p->progress);
    dt_status st = dt_build_run(&b);
    dt_progress_end(&p->progress);
    free(shards);
    return st;
}

// After a failure of the disk or a lack of memory, the same command can go on with what is done. After a failure
// of the source it cannot: a mended source is another source.
static dt_status clean_up(packing *p, dt_status st) {
    if (p->rank != 0 || p->work.lock_fd < 0) return st;
    const dt_error_kept first = dt_error_keep();
    // nothing of a failed source can be used again
    if ((st == DT_E_DATA || st == DT_E_USAGE) && !dt_work_is_publishing(&p->work)) {
        dt_work_remove(&p->work);
        dt_error_restore(&first);
        return st;
    }
    return dt_fail(st, "%s; the same command resumes with the shards that are complete in %s, or remove that",
                   *first.message ? first.message : "another rank failed", p->plan.partial);
}

static dt_status pack_all(packing *p) {
    bool go = false;
    int64_t value = 0;
    dt_finish_counts counts = {0};
    dt_status st = dt_plan_name(&p->plan, p->o->out);
    // collective from here: each step ends in an exchange of status
    if (st == DT_OK && p->rank == 0) st = finish_earlier(p);
    DT_TRY(pack_agree(p, st));
    // every rank lists and plans by itself, from the same source
    st = pack_prepare(p);
    if (st == DT_OK) pack_log_list(p);
    if (st == DT_OK && p->rank == 0) st = pack_claim(p, &go);
    value = go; // 0: nothing to do, on all ranks
    DT_TRY(agree_value(p, st, &value));
    if (!value) return DT_OK;
    prepare_farewell(p); // from here a signal leaves OUT.partial
    if (p->rank != 0) st = pack_attach(p);
    DT_TRY(pack_agree(p, st));
    if (p->o->duplicates == DT_DUPLICATES_DROP) DT_TRY(pack_agree(p, drop_duplicates(p)));
    DT_TRY(pack_agree(p, pack_pack_build(p)));
    // shards of all ranks are whole
    if (p->rank == 0) {
        st = dt_finish_catalog(&p->work, &p->compose, p->o, &counts);
        if (st == DT_OK) st = dt_work_publish(&p->work);
        if (st == DT_OK) st = dt_work_remove(&p->work);
    }
    DT_TRY(pack_agree(p, st));
    if (p->rank == 0) pack_log_done(p, &counts);
    return DT_OK;
}

dt_status dt_data_pack(const dt_pack_opts *o) {
    packing p = {.o = o, .raw = {.root_fd = -1}, .work = {.lock_fd = -1}, .rank = o->rank}; // -1: not open
    p.world_size = o->world_size > 0 ? o->world_size : 1;
    p.n_threads = o->n_threads > 0 ? o->n_threads : dt_usable_cores();
    if (p.n_threads > MAX_THREADS) p.n_threads = MAX_THREADS;
    p.begin_s = dt_clock_s();
    dt_status st = pack_all(&p);
    end_farewell();
    if (st != DT_OK) st = clean_up(&p, st);
    free(p.drop);
    dt_work_close(&p.work);
    dt_where_destroy(p.where);
    dt_transform_destroy(p.transform);
    dt_plan_fini(&p.plan);
    dt_raw_fini(&p.raw);
    dt_reader_close(p.reader);
    dt_names_fini(&p.files);
    return st;
}
