// finish.c: what is done once, by one process, after all chunks are written.
//
// The rows come back from the journals and fill the catalog. Only then it is known what repeats what; where
// anything does, the catalog is filled once more, as if it had been known. From the catalog come the
// indexes and the database.
#include "finish.h"
#include "data/catalog/catalog_db.h"
#include "data/catalog/index_file.h"
#include "data/source/blob.h"
#include "data/source/source.h"
#include "duplicates.h"

#include "base/arena.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/json.h"
#include "base/thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COPY_BYTES = 4 << 20, MESSAGE = 2048 };

// ---- ends of files ------------------------------------------------------------------------------------
static dt_status put(void *arg, const void *data, size_t n_bytes, uint64_t at) {
    return dt_outfile_write(arg, data, n_bytes, at);
}

// Marks and sizes of all frames.
static dt_status gather(dt_pack_file *f, dt_buffer *marks, char *const *journals, size_t n) {
    for (size_t i = 0; i < n; i++) {
        dt_journal j;
        DT_TRY(dt_journal_read(&j, journals[i]));
        for (size_t k = 0; k < j.n_frames; k++) {
            dt_buffer_append(marks, j.frames[k].marks, j.frames[k].n_marks);
            f->n_members += j.frames[k].n_members;
            f->n_bytes = j.frames[k].base + j.frames[k].n_bytes;
        }
        dt_journal_fini(&j);
    }
    f->marks = marks->data;
    f->n_marks = marks->n_bytes;
    return DT_OK;
}

dt_status dt_finish_file(const dt_plan *plan, const char *path, char *const *journals,
                         size_t n_journals) {
    dt_pack_file f = {.path = path, .n_bytes = plan->format->head_bytes};
    dt_buffer marks = {0};
    dt_outfile out = {.fd = -1, .direct_fd = -1};
    uint64_t n_bytes = 0;
    dt_status st = gather(&f, &marks, journals, n_journals);
    if (st == DT_OK) st = dt_outfile_open(&out, path);
    if (st == DT_OK) st = plan->format->finish(&f, put, &out, &n_bytes);
    if (st == DT_OK) st = dt_io_truncate(path, (off_t)n_bytes);
    if (st == DT_OK) st = dt_outfile_sync(&out);
    dt_status closed = dt_outfile_close(&out);
    dt_buffer_fini(&marks);
    return st != DT_OK ? st : closed;
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
        st = dt_journal_append(fd, rows_path, &c);
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
    uint64_t *hash;       // by item
    uint32_t *first;      // by item: what it repeats; NULL: not known yet
    const char **sources; // by record
    size_t cap_sources;
    dt_buffer key, last; // of the record; of the one before
    dt_finish_counts *counts;
} filler;

static dt_status damaged(const char *path) {
    return dt_fail(DT_E_STORAGE, "%s: damaged; remove its folder and pack again", path);
}

static const char *make_key(filler *f, const dt_raw_item *item, const char *suffix) {
    dt_buffer swap = f->last;
    f->last = f->key;
    f->key = swap;
    f->key.n_bytes = 0;
    dt_buffer_append(&f->key, item->key, strlen(item->key));
    dt_buffer_append(&f->key, suffix, strlen(suffix));
    dt_buffer_append(&f->key, ".", 2);
    f->key.data[f->key.n_bytes - 2] = '\0';
    return (const char *)f->key.data;
}

// In an LMDB entries are in the order of their names, or nobody finds them.
static dt_status check_order(const filler *f) {
    if (!f->w->plan->format->one_file || f->last.n_bytes == 0) return DT_OK;
    const char *a = (const char *)f->last.data, *b = (const char *)f->key.data;
    size_t n = 0;
    while (a[n] && a[n] == b[n]) n++;
    int x = a[n] ? (unsigned char)a[n] : '.', y = b[n] ? (unsigned char)b[n] : '.';
    if (x < y || (x == y && !a[n])) return DT_OK;
    return dt_fail(
        DT_E_DATA,
        "records %s and %s: their names interleave once pieces are numbered, which an LMDB "
        "does not allow: rename one, or pack to .tar",
        a, b);
}

static void add_source(filler *f, const char *name) {
    if (f->catalog->n_records > f->cap_sources) {
        f->cap_sources = 2 * f->cap_sources + 1024;
        f->sources = dt_xrealloc(f->sources, f->cap_sources * sizeof *f->sources);
    }
    f->sources[f->catalog->n_records - 1] = name;
}

static dt_status fill_row(filler *f, const dt_row *r, uint64_t base, uint32_t shard) {
    const dt_raw *raw = f->c->raw;
    const dt_raw_item *item = &raw->items[r->item];
    const char *key = make_key(f, item, r->suffix);
    DT_TRY(check_order(f));
    DT_TRY(dt_catalog_add_record(f->catalog, shard, key));
    add_source(f, item->name);
    for (int i = 0; i < r->n_members; i++) {
        const dt_row_member *m = &r->member[i];
        DT_TRY(dt_catalog_add_member(f->catalog, m->ext, base + m->offset, m->size, &m->hash));
        f->counts->n_bytes += m->size;
    }
    DT_TRY(dt_raw_put_row(raw, item, f->catalog));
    for (int i = 0; i < r->n_columns; i++) {
        const dt_transform_column *x = &r->column[i];
        DT_TRY(x->text ? dt_catalog_set(f->catalog, x->name, x->text)
                       : dt_catalog_set_real(f->catalog, x->name, x->number));
    }
    f->counts->n_items += f->hash[r->item] == 0;
    f->hash[r->item] = r->source_hash | (r->source_hash == 0); // 0: gave no record
    uint32_t first = f->first ? f->first[r->item] : DT_NO_DUPLICATE;
    if (first != DT_NO_DUPLICATE)
        DT_TRY(dt_catalog_set(f->catalog, "duplicate_of", raw->items[first].key));
    return DT_OK;
}

static dt_status visit_journal(filler *f, const char *path, uint32_t shard) {
    dt_journal j;
    dt_row row;
    DT_TRY(dt_journal_read(&j, path));
    dt_status st = DT_OK;
    for (size_t i = 0; i < j.n_frames && st == DT_OK; i++) {
        const dt_frame *x = &j.frames[i];
        size_t at = 0;
        while (st == DT_OK && dt_row_next(x->rows, x->n_rows, &at, &row))
            st = row.item < f->c->raw->n ? fill_row(f, &row, x->base, shard) : damaged(path);
        if (st == DT_OK && at != x->n_rows) st = damaged(path);
    }
    dt_journal_fini(&j);
    return st;
}

static dt_status visit_all(filler *f, char *const *journals, const size_t *n_of,
                           uint64_t fingerprint) {
    size_t at = 0;
    for (uint32_t s = 0; s < f->w->plan->n_shards; s++) {
        dt_blob blob;
        char *path = dt_xprintf("%s/%s", f->w->set, f->w->plan->name[s]);
        dt_status st = dt_blob_open(&blob, path);
        if (st == DT_OK) {
            dt_catalog_add_shard(f->catalog, path, blob.n_bytes);
            f->catalog->shards[s].source_hash = fingerprint;
            dt_blob_close(&blob);
        }
        free(path);
        DT_TRY(st);
        for (size_t i = 0; i < n_of[s]; i++) DT_TRY(visit_journal(f, journals[at++], s));
    }
    return DT_OK;
}

static void start_over(filler *f) {
    dt_catalog_destroy(f->catalog);
    f->catalog = dt_catalog_create();
    memset(f->hash, 0, f->c->raw->n * sizeof *f->hash);
    f->key.n_bytes = f->last.n_bytes = 0;
    f->counts->n_items = f->counts->n_bytes = 0;
}

static dt_status find_stamps(const filler *f) {
    for (uint32_t s = 0; s < f->catalog->n_shards; s++) {
        dt_blob blob;
        DT_TRY(dt_blob_open(&blob, f->catalog->shards[s].path));
        dt_status st = dt_blob_stamp(&blob, &f->catalog->shards[s].stamp);
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

static dt_status write_database(const filler *f, const dt_pack_opts *o, uint64_t fingerprint) {
    static const char *const DUPLICATES[] = {"report", "drop", "report"};
    const char *slash = strrchr(f->w->plan->catalog, '/');
    char *path = dt_xprintf("%s%s", f->w->set, slash);
    char number[32];
    dt_json j;
    dt_buffer command = {0};
    dt_buffer_append(&command, "dtrain pack ", 12);
    dt_buffer_append(&command, o->source, strlen(o->source));
    dt_json_init(&j);
    dt_json_begin_object(&j, NULL);
    if (o->pattern) put_option(&j, &command, "pattern", o->pattern);
    if (o->join) put_option(&j, &command, "join", o->join);
    if (o->join_on) put_option(&j, &command, "join-on", o->join_on);
    put_transform(&j, &command, o);
    if (o->where) put_option(&j, &command, "where", o->where);
    if (o->duplicates == DT_DUPLICATES_DROP)
        put_option(&j, &command, "duplicates", DUPLICATES[o->duplicates]);
    snprintf(number, sizeof number, "%llu", (unsigned long long)o->shard_bytes);
    if (o->shard_bytes) put_option(&j, &command, "shard-size", number);
    snprintf(number, sizeof number, "%llu", (unsigned long long)o->shard_records);
    if (o->shard_records) put_option(&j, &command, "shard-records", number);
    dt_json_string(&j, "transform", dt_transform_describe(f->c->transform));
    dt_json_string(&j, "format", f->w->plan->format->name);
    dt_json_end_object(&j);
    dt_buffer_append(&command, "", 1);
    dt_lineage l = {.made_by = "pack",
                    .command = (char *)command.data,
                    .options = j.data,
                    .version = o->version,
                    .parent = o->source,
                    .parent_hash = f->c->raw->set ? dt_catalog_hash(f->c->raw->set->catalog)
                                                  : f->c->raw->hash};
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
    DT_TRY(find_stamps(f));
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
                            char *const *journals, const size_t *n_of, uint64_t fingerprint,
                            dt_finish_counts *out) {
    filler f = {.w = w, .c = c, .catalog = dt_catalog_create(), .counts = out};
    *out = (dt_finish_counts){0};
    f.hash = dt_xcalloc(c->raw->n + 1, sizeof *f.hash);
    dt_status st = visit_all(&f, journals, n_of, fingerprint);
    out->n_duplicates = dt_duplicates_find(f.hash, c->raw, &f.first);
    if (st == DT_OK) st = check_duplicates(&f, o);
    if (st == DT_OK && out->n_duplicates) {
        start_over(&f);
        st = visit_all(&f, journals, n_of, fingerprint);
    }
    out->n_records = f.catalog->n_records;
    if (st == DT_OK && out->n_records == 0)
        st = dt_fail(DT_E_DATA, "%s: all %zu records were left out: nothing to pack", o->source,
                     c->raw->n);
    dt_catalog_finish(f.catalog);
    if (st == DT_OK) st = save(&f, o, fingerprint);
    dt_catalog_destroy(f.catalog);
    dt_buffer_fini(&f.key);
    dt_buffer_fini(&f.last);
    free(f.sources);
    free(f.hash);
    free(f.first);
    return st;
}
