// finish.c: what is done once, by one process, after all chunks are written.
//
// The rows have come from the journals into the catalog (gather.c). Only now it is known what repeats what:
// those records say so. From the catalog come the indexes and the database.
#include "finish.h"
#include "data/catalog/catalog_db.h"
#include "data/catalog/index_file.h"
#include "data/file/blob.h"
#include "duplicates.h"

#include "base/arena.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/json.h"
#include "base/thread.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COPY_BYTES = 4 << 20, MESSAGE = 2048 };

// ---- ends of files ------------------------------------------------------------------------------------
static dt_status put(void *arg, const void *data, size_t n_bytes, uint64_t at) {
    return dt_outfile_write(arg, data, n_bytes, at);
}

static dt_status end_file(const dt_plan *plan, const dt_pack_file *f) {
    dt_outfile out = {.fd = -1, .direct_fd = -1};
    uint64_t n_bytes = 0;
    dt_status st = dt_outfile_open(&out, f->path);
    if (st == DT_OK) st = plan->format->finish(f, put, &out, &n_bytes);
    if (st == DT_OK) st = dt_io_truncate(f->path, (off_t)n_bytes);
    if (st == DT_OK) st = dt_outfile_sync(&out);
    dt_status closed = dt_outfile_close(&out);
    return st != DT_OK ? st : closed;
}

dt_status dt_finish_shard(const dt_plan *plan, const dt_build_file *f) {
    dt_pack_file end = {.path = f->path, .n_bytes = f->n_chunks > 0 ? f->end : f->base};
    assert(!plan->format->one_file); // whose end is made of all its marks
    return end_file(plan, &end);
}

dt_status dt_finish_parts(const dt_plan *plan, const char *path, const dt_gathered *g) {
    dt_pack_file f = {.path = path,
                      .n_bytes = g->end > 0 ? g->end : plan->format->head_bytes,
                      .n_members = g->catalog->n_members,
                      .marks = g->marks.data,
                      .n_marks = g->marks.n_bytes};
    return end_file(plan, &f);
}

dt_status dt_finish_end_of(const char *rows_path, uint64_t *end) {
    dt_journal j;
    DT_TRY(dt_journal_read(&j, rows_path));
    *end = j.n_frames ? j.frames[j.n_frames - 1].base + j.frames[j.n_frames - 1].n_bytes : 0;
    dt_journal_fini(&j);
    return DT_OK;
}

// ---- parts --------------------------------------------------------------------------------------------
static dt_status copy_bytes(const dt_plan *plan, const dt_build_file *f, const dt_outfile *out,
                            uint64_t n_bytes, uint64_t base) {
    int fd;
    uint64_t state = 0;
    uint8_t *piece = aligned_alloc(DT_PACK_PAGE, COPY_BYTES);
    if (!piece) return dt_fail(DT_E_INTERNAL, "out of memory");
    dt_status st = dt_io_open_update(&fd, f->path);
    for (uint64_t at = 0; at < n_bytes && st == DT_OK; at += COPY_BYTES) {
        size_t n = n_bytes - at < COPY_BYTES ? (size_t)(n_bytes - at) : COPY_BYTES;
        st = dt_io_pread(fd, f->path, piece, n, (off_t)at, DT_E_STORAGE);
        if (st == DT_OK) plan->format->move(piece, n, base, &state);
        if (st == DT_OK) st = dt_outfile_write(out, piece, n, base + at);
    }
    if (fd >= 0) close(fd);
    free(piece);
    return st;
}

static dt_status move_journal(const dt_plan *plan, const dt_journal *j, uint64_t base,
                              const char *rows_path) {
    int fd;
    dt_chunk c;
    uint64_t n_bytes = 0;
    dt_chunk_init(&c);
    if (dt_io_exists(rows_path)) DT_TRY(dt_io_unlink(rows_path)); // of a kill in between
    dt_status st = dt_io_open_append(&fd, rows_path);
    for (size_t i = 0; i < j->n_frames && st == DT_OK; i++) {
        const dt_frame *f = &j->frames[i];
        c.rows.n_bytes = c.marks.n_bytes = 0;
        dt_buffer_append(&c.rows, f->rows, f->n_rows);
        dt_buffer_append(&c.marks, f->marks, f->n_marks);
        plan->format->move_marks(c.marks.data, c.marks.n_bytes, base);
        c.index = (size_t)f->chunk;
        c.base = f->base + base;
        c.n_bytes = (size_t)f->n_bytes;
        c.n_records = (uint32_t)f->n_records;
        c.n_members = (uint32_t)f->n_members;
        st = dt_journal_append(fd, rows_path, &c, &n_bytes);
    }
    dt_chunk_fini(&c);
    dt_status closed = fd >= 0 ? dt_io_close(fd, rows_path) : DT_OK;
    return st != DT_OK ? st : closed;
}

dt_status dt_finish_move_part(const dt_plan *plan, const dt_build_file *f, const char *path,
                              uint64_t base, const char *rows_path) {
    dt_journal j;
    dt_outfile out = {.fd = -1, .direct_fd = -1};
    DT_TRY(dt_journal_read(&j, f->rows_path));
    uint64_t n_bytes =
        j.n_frames ? j.frames[j.n_frames - 1].base + j.frames[j.n_frames - 1].n_bytes : 0;
    dt_status st = dt_outfile_open(&out, path);
    if (st == DT_OK) st = copy_bytes(plan, f, &out, n_bytes, base);
    if (st == DT_OK) st = dt_outfile_sync(&out);
    dt_status closed = dt_outfile_close(&out);
    if (st == DT_OK) st = closed;
    if (st == DT_OK) st = move_journal(plan, &j, base, rows_path);
    dt_journal_fini(&j);
    return st;
}

// ---- catalog ------------------------------------------------------------------------------------------
typedef struct filler {
    const dt_work *w;
    const dt_compose *c;
    dt_catalog *catalog;
    const char **sources; // by record
    uint32_t *first;      // by item: what it repeats
    dt_finish_counts *counts;
} filler;

// Rows that repeat others say which, if there is a column for it: the set is good without.
static dt_status name_duplicates(const filler *f, const uint32_t *item) {
    const dt_raw *raw = f->c->raw;
    f->counts->named = f->catalog->n_columns < DT_MAX_COLUMNS ||
                       dt_catalog_find_column(f->catalog, "duplicate_of") >= 0;
    if (!f->counts->named) return DT_OK;
    for (uint32_t r = 0; r < f->catalog->n_records && f->counts->n_duplicates; r++)
        if (f->first[item[r]] != DT_NO_DUPLICATE)
            DT_TRY(dt_catalog_set_at(f->catalog, r, "duplicate_of",
                                     raw->items[f->first[item[r]]].key));
    return DT_OK;
}

// Figures are made of pictures of bytes and of sounds; who asked for them is told what has none.
static void count_plain(const filler *f, const uint32_t *item) {
    int k = dt_catalog_find_real(f->catalog, "clipping"); // both kinds have it
    for (uint32_t r = 0; r < f->catalog->n_records; r++) {
        if (k >= 0 && !isnan(dt_catalog_real(f->catalog, k, r))) continue;
        if (f->counts->n_plain++ == 0) f->counts->first_plain = item[r];
    }
}

static void name_sources(filler *f, const uint32_t *item) {
    f->sources = dt_xcalloc(f->catalog->n_records + 1, sizeof *f->sources);
    for (uint32_t r = 0; r < f->catalog->n_records; r++)
        f->sources[r] = f->c->raw->items[item[r]].name;
}

static dt_status find_stamps(const filler *f, uint64_t fingerprint) {
    for (uint32_t s = 0; s < f->catalog->n_shards; s++) {
        dt_blob blob;
        dt_shard *shard = &f->catalog->shards[s];
        DT_TRY(dt_blob_open(&blob, shard->path));
        dt_status st = dt_blob_stamp(&blob, &shard->stamp);
        shard->n_bytes = blob.n_bytes;
        shard->source_hash = fingerprint;
        dt_blob_close(&blob);
        DT_TRY(st);
    }
    return DT_OK;
}

static dt_status write_indexes(const filler *f) {
    dt_status st = DT_OK;
    for (uint32_t s = 0; s < f->catalog->n_shards && st == DT_OK; s++) {
        char *path = dt_xprintf("%s.index", f->catalog->shards[s].path);
        st = dt_index_save(f->catalog, s, f->catalog->shards[s].stamp, path);
        free(path);
    }
    return st;
}

// ---- where it comes from ------------------------------------------------------------------------------
static void put_option(dt_json *j, dt_buffer *command, const char *name, const char *value) {
    char *word = dt_xprintf(" --%s '%s'", name, value);
    dt_json_string(j, name, value);
    dt_buffer_append(command, word, strlen(word));
    free(word);
}

static void put_number(dt_json *j, dt_buffer *command, const char *name, double value) {
    char text[DT_REAL_CHARS];
    if (value != 0) put_option(j, command, name, dt_real_text(text, value));
}

static void put_flag(dt_json *j, dt_buffer *command, const char *name, bool value) {
    if (!value) return;
    dt_json_bool(j, name, true);
    dt_buffer_append(command, " --", 3);
    dt_buffer_append(command, name, strlen(name));
}

// What is done to the files: the options of transform.h.
static void put_transform(dt_json *j, dt_buffer *command, const dt_pack_opts *o) {
    put_number(j, command, "resize", o->resize);
    if (o->encode) put_option(j, command, "encode", o->encode);
    put_number(j, command, "segment", o->segment_s);
    put_number(j, command, "hop", o->hop_s);
    if (o->drop_tail) put_option(j, command, "tail", "drop");
    put_number(j, command, "rate", o->rate);
    put_flag(j, command, "mono", o->mono);
    put_flag(j, command, "quality", o->quality);
}

// Both have room; the command ends in a NUL.
static void put_options(dt_json *j, dt_buffer *command, const dt_pack_opts *o) {
    static const char *const DUPLICATES[] = {"report", "drop", "report"};
    char number[32];
    dt_buffer_append(command, "dtrain pack ", 12);
    dt_buffer_append(command, o->source, strlen(o->source));
    if (o->pattern) put_option(j, command, "pattern", o->pattern);
    if (o->join) put_option(j, command, "join", o->join);
    if (o->join_on) put_option(j, command, "join-on", o->join_on);
    put_flag(j, command, "key-by-shard", o->key_by_shard);
    put_transform(j, command, o);
    if (o->where) put_option(j, command, "where", o->where);
    if (o->duplicates == DT_DUPLICATES_DROP)
        put_option(j, command, "duplicates", DUPLICATES[o->duplicates]);
    snprintf(number, sizeof number, "%llu", (unsigned long long)o->shard_bytes);
    if (o->shard_bytes) put_option(j, command, "shard-size", number);
    snprintf(number, sizeof number, "%llu", (unsigned long long)o->shard_records);
    if (o->shard_records) put_option(j, command, "shard-records", number);
    dt_buffer_append(command, "", 1);
}

uint64_t dt_finish_hash_command(const dt_pack_opts *o) {
    dt_buffer command = {0};
    dt_json j;
    dt_json_init(&j);
    dt_json_begin_object(&j, NULL);
    put_options(&j, &command, o);
    uint64_t hash = dt_hash64(command.data, command.n_bytes);
    dt_json_fini(&j);
    dt_buffer_fini(&command);
    return hash;
}

static dt_status write_database(const filler *f, const dt_pack_opts *o, uint64_t fingerprint) {
    const char *slash = strrchr(f->w->plan->catalog, '/');
    char *path = dt_xprintf("%s%s", f->w->set, slash);
    dt_json j;
    dt_buffer command = {0};
    dt_json_init(&j);
    dt_json_begin_object(&j, NULL);
    put_options(&j, &command, o);
    dt_json_string(&j, "transform", dt_transform_describe(f->c->transform));
    dt_json_string(&j, "format", f->w->plan->format->name);
    dt_json_end_object(&j);
    dt_lineage l = {.made_by = "pack",
                    .command = (char *)command.data,
                    .options = j.data,
                    .version = o->version,
                    .parent = o->source,
                    .parent_hash =
                        f->c->raw->catalog ? dt_catalog_hash(f->c->raw->catalog) : f->c->raw->hash};
    dt_status st = dt_catalog_db_write(path, f->catalog, &l, f->sources);
    dt_buffer_fini(&command);
    dt_json_fini(&j);
    free(path);
    return st;
}

// Indexes and database both hold all rows and need nothing of each other: side by side.
typedef struct saving {
    const filler *f;
    const dt_pack_opts *o;
    uint64_t fingerprint;
    dt_status status[2];
    char message[2][MESSAGE];
} saving;

static void save_one(void *arg, int worker) {
    saving *s = arg;
    s->status[worker] =
        worker == 0 ? write_database(s->f, s->o, s->fingerprint) : write_indexes(s->f);
    if (s->status[worker] != DT_OK) snprintf(s->message[worker], MESSAGE, "%s", dt_error_message());
}

static dt_status save(const filler *f, const dt_pack_opts *o, uint64_t fingerprint) {
    saving s = {.f = f, .o = o, .fingerprint = fingerprint};
    dt_team *team = NULL;
    DT_TRY(find_stamps(f, fingerprint));
    DT_TRY(dt_team_create(&team, 2, "dt-pack-index"));
    dt_team_run(team, save_one, &s);
    dt_team_destroy(team);
    for (int i = 0; i < 2; i++)
        if (s.status[i] != DT_OK) return dt_fail(s.status[i], "%s", s.message[i]);
    return DT_OK;
}

static dt_status check_duplicates(const filler *f, const dt_pack_opts *o) {
    const dt_raw *raw = f->c->raw;
    dt_finish_counts *n = f->counts;
    for (uint32_t i = 0; i < raw->n && n->n_duplicates; i++)
        if (f->first[i] != DT_NO_DUPLICATE) {
            n->twin_a = f->first[i];
            n->twin_b = i;
            break;
        }
    if (n->n_duplicates == 0 || o->duplicates != DT_DUPLICATES_FAIL) return DT_OK;
    return dt_fail(DT_E_DATA, "%zu records repeat others; the first: %s is the same as %s",
                   n->n_duplicates, raw->items[n->twin_b].name, raw->items[n->twin_a].name);
}

dt_status dt_finish_catalog(const dt_work *w, const dt_compose *c, const dt_pack_opts *o,
                            const dt_gathered *g, uint64_t fingerprint, dt_finish_counts *out) {
    filler f = {.w = w, .c = c, .catalog = g->catalog, .counts = out};
    *out = (dt_finish_counts){.n_records = g->catalog->n_records, .n_bytes = g->n_bytes};
    if (out->n_records == 0)
        return dt_fail(DT_E_DATA, "%s: all %zu records were left out: nothing to pack", o->source,
                       c->raw->n);
    for (uint32_t i = 0; i < c->raw->n; i++)
        if (g->hash[i] == 0 && !(c->drop && c->drop[i]) && out->n_without++ == 0)
            out->first_without = i;
    out->n_duplicates = dt_duplicates_find(g->hash, c->raw, &f.first);
    dt_status st = check_duplicates(&f, o);
    if (st == DT_OK) st = name_duplicates(&f, g->item);
    if (st == DT_OK) {
        name_sources(&f, g->item);
        st = dt_catalog_finish(f.catalog);
        if (st == DT_OK && o->quality) count_plain(&f, g->item);
        if (st == DT_OK) st = save(&f, o, fingerprint);
    }
    free(f.sources);
    free(f.first);
    return st;
}
