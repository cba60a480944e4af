// pack_parts.h: what the files of pack/ share.
#ifndef DT_DATA_PACK_PACK_PARTS_H
#define DT_DATA_PACK_PACK_PARTS_H

#include "pack.h"
#include "transform.h"

#include "base/log.h"
#include "data/catalog/catalog.h"
#include "data/raw/raw.h"
#include "data/source/source.h"

// ---- pack format --------------------------------------------------------------------------------------------------

// The formats that `dtrain pack` writes.

// A data file that is being written: the format's own.
typedef struct dt_pack_writer dt_pack_writer;

// One thread writes a file, members in order, so its bytes depend on the members alone.
typedef struct dt_pack_format {
    const char *name;
    bool one_file; // the dataset is one file in a folder of its own; else one file a shard
    bool (*accepts)(const char *out);
    // About how many bytes a record takes; exact for records with ordinary names.
    uint64_t (*estimate)(uint64_t member_bytes, bool has_cls);
    // Creates `path`, or empties it.
    dt_status (*open)(dt_pack_writer **out, const char *path);
    // Begins a member; its bytes follow in one or more calls of `put`. *offset: in the file, if already known.
    // DT_E_DATA: the format cannot hold it.
    dt_status (*begin)(dt_pack_writer *w, const char *name, uint64_t size, uint64_t *offset);
    dt_status (*put)(dt_pack_writer *w, const void *data, size_t n_bytes);
    // Completes the file and syncs it. Sets the offsets of c's members where `begin` could not.
    dt_status (*end)(dt_pack_writer *w, dt_catalog *c);
    void (*close)(dt_pack_writer *w); // NULL is fine
} dt_pack_format;

extern const dt_pack_format dt_pack_lmdb, dt_pack_wds;

// ---- pack plan ----------------------------------------------------------------------------------------------------

// Which record goes into which file, and in which chunks the work is done. A function of the list and
// the options alone, so that the bytes do not depend on threads and ranks.

typedef struct dt_plan_chunk {
    size_t first, n; // items
    bool is_large;   // the chunk's one item goes from file to file, never as a whole through memory
    uint64_t size;   // estimated
} dt_plan_chunk;

typedef struct dt_plan {
    const dt_pack_format *format;
    char *folder;     // where the dataset's files go
    char **name;      // of the files, without folder
    size_t n_shards;  // 1 for a format of one file
    size_t *chunk_at; // n_shards + 1: chunks of shard s are [chunk_at[s], chunk_at[s + 1])
    dt_plan_chunk *chunks;
    size_t n_chunks;
    char *out;     // without a '/' at its end
    char *pattern; // as data.path names the shards: "photos-{000000..000039}.tar"
    char *partial; // folder of unfinished work
} dt_plan;

// keeps_bytes: large members need not be in memory. DT_E_USAGE: OUT, or contradicting options.
dt_status dt_plan_make(dt_plan *out, const dt_raw *raw, const dt_pack_opts *o, bool keeps_bytes);
void dt_plan_fini(dt_plan *p);
// Sets what follows from OUT alone and is needed before the source is read: format, out, folder, partial,
// and names if the number of shards is known. dt_plan_make sets the rest.
dt_status dt_plan_name(dt_plan *out, const char *path);
// Lists the files in the folder that belong to a dataset of this name, whichever pack made them. Heap.
dt_status dt_plan_existing(const dt_plan *p, char ***names, size_t *n);
// Whether a dataset of this name has such a data file.
bool dt_plan_belongs(const dt_plan *p, const char *name);
// Whether an existing file is an index or a lock: worthless without the data.
bool dt_plan_is_companion(const dt_plan *p, const char *name);
// Whether a dataset that shares OUT.partial with this one may have such a file.
bool dt_plan_may_name(const dt_plan *p, const char *name);

// ---- work ---------------------------------------------------------------------------------------------------------

// The folder of unfinished work, OUT.partial, beside the dataset that is being made.
//
//   OUT.partial/lock        held while a pack works here
//              /made-from   of which source, by which command: only the same may go on
//              /set/…       the dataset's files under their final names
//              /rows-N      rows of shard N, which is whole
//              /publish     names of the dataset's files, once all are whole and on the disk
//              /old/…       files of the dataset that is being replaced, until the new ones are in place
//
// Pack works only in a folder that it made: one with an entry of another name or kind (a folder, a link), or with more
// than a lock and no made-from, is refused. Only such entries are ever removed, and no link is followed.

typedef struct dt_work {
    const dt_plan *plan;
    char *set;           // folder
    int lock_fd, dir_fd; // dir_fd: OUT.partial
} dt_work;

// Rank 0: makes the folder and takes its lock. DT_E_USAGE: another pack works there, or it is not pack's.
dt_status dt_work_open(dt_work *w, const dt_plan *plan);
// Other ranks: sets the paths only.
void dt_work_attach(dt_work *w, const dt_plan *plan);
void dt_work_close(dt_work *w);
// partial/NAME. Heap.
char *dt_work_path(const dt_work *w, const char *name);

// What was given to dt_work_claim, by whoever works here; NULL: cannot be read. Heap.
char *dt_work_made_from(const dt_work *w);
// Keeps what pack left there if it was made for `text`, and removes it otherwise.
dt_status dt_work_claim(const dt_work *w, const char *text);
// Puts the dataset's files in their places and the old ones away. Goes on where a kill has stopped it: every step
// can be repeated. In between, files are missing but never mixed.
dt_status dt_work_publish(const dt_work *w);
// Whether a publish was begun; it must be completed before anything else.
bool dt_work_is_publishing(const dt_work *w);
// Removes the folder, and the lock with it. Files that others put there meanwhile stay.
dt_status dt_work_remove(dt_work *w);

// ---- where --------------------------------------------------------------------------------------------------------

// Dropping records by an expression while a set is packed, after their transform.

typedef struct dt_where dt_where; // shared by threads

// The names of the expression are metadata columns of the list, columns of the transform, or key, bytes
// and source. DT_E_USAGE with the place of what is wrong. raw outlives it.
dt_status dt_where_create(dt_where **out, const char *text, const dt_raw *raw, const dt_transform *t);
void dt_where_destroy(dt_where *w);

// Whether the record is kept. n_bytes: of all its members.
dt_status dt_where_keeps(const dt_where *w, const dt_raw_item *item, const dt_transform_record *r, uint64_t n_bytes,
                         bool *yes);

// ---- compose ------------------------------------------------------------------------------------------------------

// Source items into the records of a chunk, in memory, by one thread.

enum { DT_CHUNK_MAX_MEMBERS = DT_TRANSFORM_MAX_MEMBERS + 2 }; // of a record, with json and cls

typedef struct dt_chunk_member {
    const char *ext;
    const uint8_t *data; // NULL: the item's file itself, which is too large to be read as a whole
    uint64_t size, hash; // without data the hash is not known yet
} dt_chunk_member;

typedef struct dt_chunk_record {
    struct dt_chunk_record *next;
    uint32_t item;        // of the list
    uint64_t source_hash; // of the item before any transform; as `hash`
    const char *suffix;
    int n_members, n_columns;
    dt_chunk_member *member;
    dt_transform_column *column;
} dt_chunk_record;

// Records of consecutive items, with everything that they point to.
typedef struct dt_chunk {
    struct dt_chunk_block *blocks;
    dt_chunk_record *first, **last;
} dt_chunk;
void dt_chunk_fini(dt_chunk *c);

// What does not change while a dataset is packed; shared by all threads.
typedef struct dt_compose {
    const dt_raw *raw;
    dt_reader *reader; // DT_RAW_SET: whose records the list holds
    const dt_plan *plan;
    const dt_transform *transform;
    bool skip_bad;         // items that fail with DT_E_DATA give no record, with a warning
    const uint8_t *drop;   // by item: left out (duplicates); or NULL
    const dt_where *where; // records that are kept; or NULL: all
} dt_compose;

// Seconds of the builder, summed over the threads that compose; write_s and wall_s of the one that writes.
typedef struct dt_pack_times {
    double read_s, decode_s, encode_s, rest_s; // rest: hashes, copies, --quality
    double write_s, wall_s;
} dt_pack_times;

typedef struct dt_composer dt_composer; // a thread's scratch
dt_composer *dt_composer_create(const dt_compose *c);
void dt_composer_destroy(dt_composer *w);
// Adds what the composer has spent to `out`; all_s: on its chunks.
void dt_composer_add_times(const dt_composer *w, double all_s, dt_pack_times *out);

// Reads the items of chunk `index` of the plan and replaces `out`. DT_E_DATA names the item, unless skip_bad.
dt_status dt_compose_chunk(dt_composer *w, size_t index, dt_chunk *out);
// XXH3 over an item's members as they are in the source (of a raw file: of its bytes), for duplicates.
dt_status dt_compose_hash(dt_composer *w, size_t item, uint64_t *out);

// ---- pack steps ---------------------------------------------------------------------------------------------------

// The steps of pack.c: what is packed, duplicates, building, finishing.

// ---- the source (pack_plan.c) ----------------------------------------------------------------------
// Opens the dataset at a path. *out NULL: there are raw files, or nothing. Needs of `plan` what dt_plan_name sets.
// The output of an earlier pack into the folder that is packed is not part of the source, unless it is all there
// is. DT_E_DATA, also if a folder holds a dataset and other data; DT_E_USAGE if OUT would replace a part of a dataset.
dt_status dt_pack_source_open(dt_reader **out, const char *path, const dt_plan *plan);
// Whether files of the plan replace files of the dataset.
bool dt_pack_source_is_out(const dt_reader *s, const dt_plan *plan);

// ---- records whose source has the same content as an earlier one's (pack_build.c) --------------------
enum { DT_NO_DUPLICATE = UINT32_MAX };
// Before anything is written: hashes the items whose size another item has; the hashes of the others stay 0.
dt_status dt_duplicates_hash(const dt_compose *c, int n_threads, uint64_t *hash);
// first[i] = the first item of the list that item i repeats, or DT_NO_DUPLICATE. Heap. hash[i] 0: not known, so not a
// duplicate. Returns how many items repeat another.
size_t dt_duplicates_find(const uint64_t *hash, const dt_raw *raw, uint32_t **first);

// ---- a plan's chunks into data files: composed by several threads, written by one (pack_build.c) -----
typedef struct dt_build {
    const dt_compose *compose;
    const dt_work *work;
    uint64_t fingerprint; // of source and options
    const size_t *shards; // to be made, in this order
    size_t n_shards;
    int n_threads;
    dt_progress *progress;
    dt_pack_times *times; // set by dt_build_run
} dt_build;
// Each shard is whole and on the disk, with its rows (rows-N above), before the next one is begun. The first error ends
// all threads and is returned; shards that are whole stay.
dt_status dt_build_run(const dt_build *b);

// ---- from whole shards to a dataset (pack_build.c) -------------------------------------------------------
typedef struct dt_finish_counts {
    size_t n_records, n_duplicates;
    uint64_t n_bytes;        // of members
    uint32_t twin_a, twin_b; // items of the first duplicate, if there is one
    size_t n_without;        // items that gave no record, not counting duplicates that were dropped
    uint32_t first_without;
    bool named;           // each record that repeats another has the other's key in a column
    size_t n_plain;       // records that have none of the figures that were asked for
    uint32_t first_plain; // the item of the first of them
    size_t n_clipped;     // recordings of which samples were cut at full scale
    uint32_t first_clipped;
} dt_finish_counts;
// Writes the index of each shard into w->set. DT_E_DATA: duplicates that are not
// allowed, or no record at all.
dt_status dt_finish_catalog(const dt_work *w, const dt_compose *c, const dt_pack_opts *o, dt_finish_counts *out);

// ---- shard rows ---------------------------------------------------------------------------------------------------

// What is known of the records of one shard, and that the shard is whole.
//
// While a shard is written its rows are in memory. Once it is on the disk they are saved as rows-N in the folder of
// unfinished work. That file is the sign that the shard is whole: after a kill such shards are kept, and all
// others are made again. When all shards are whole, one process reads the rows of all, whoever made them.

typedef struct dt_shard_rows dt_shard_rows;
// path: of the data file.
dt_shard_rows *dt_shard_rows_create(const dt_compose *c, size_t shard, const char *path);
void dt_shard_rows_destroy(dt_shard_rows *r); // NULL is fine
// offset: of each member in the file.
dt_status dt_shard_rows_add(dt_shard_rows *r, const dt_chunk_record *x, const uint64_t *offset);
dt_catalog *dt_shard_rows_catalog(dt_shard_rows *r); // borrowed
// The data file is whole and synced. fingerprint: of source and options.
dt_status dt_shard_rows_save(dt_shard_rows *r, const dt_work *w, uint64_t fingerprint);

// Whether the shard is whole, made of the same source in the same way.
bool dt_shard_rows_are_there(const dt_compose *c, const dt_work *w, size_t shard, uint64_t fingerprint);

// The rows of all shards so far.
typedef struct dt_all_rows {
    dt_catalog *catalog;
    uint32_t *item;   // by record: its item of the list
    uint64_t *hash;   // by item: hash of its source; 0: the item gave no record
    uint64_t n_bytes; // of all members
} dt_all_rows;
void dt_all_rows_init(dt_all_rows *a, const dt_raw *raw);
void dt_all_rows_fini(dt_all_rows *a);
// Appends the rows of a shard. DT_E_STORAGE: the rows are not there, or are damaged.
dt_status dt_all_rows_load(dt_all_rows *a, const dt_compose *c, const dt_work *w, size_t shard);

#endif
