// source_parts.h: what the files of source/ share.
#ifndef DT_DATA_SOURCE_SOURCE_PARTS_H
#define DT_DATA_SOURCE_SOURCE_PARTS_H

#include "source.h"

#include "store/blob.h"

// ---- collection ---------------------------------------------------------------------------------------------------

// Which data files a path of the user stands for.

// A data file; or raw files: of a folder, of a list, or one.
typedef struct dt_found {
    char *path;
    char *name;    // of the set it belongs to, for the column `set`
    uint32_t item; // of data.path
    bool is_raw;
    int64_t n_records; // that the list of shards says it has; -1: it does not say
} dt_found;

typedef struct dt_found_list {
    dt_found *f;
    size_t n;
    bool quiet; // does not log what folders are read as
} dt_found_list;

// Appends the files that item number `i` of data.path stands for. DT_E_DATA / DT_E_USAGE.
dt_status dt_collect(dt_found_list *l, const dt_reader_item *item, uint32_t i);
// A file of raw data in `folder` or below it, beside shards or LMDBs; heap, or NULL. Looks into a few hundred
// folders at most.
char *dt_collect_beside(const char *folder);
// DT_E_USAGE when a file is there twice.
dt_status dt_found_check(const dt_found_list *l);
void dt_found_fini(dt_found_list *l);

// ---- shard list ---------------------------------------------------------------------------------------------------

// Lists of shards that other programs keep beside them: wids JSON, MDS index.json.

typedef struct dt_listed {
    char *path;        // heap: relative ones are from the list's folder
    char *set;         // heap, or NULL: the name of the data set that it is of
    int64_t n_records; // -1: the list does not say
    // The hash of the shard's bytes, unpacked: what index.json says. Heap; NULL: nothing. hash NULL: only of kinds that
    // base/hash.h does not know, of which hash_name is one.
    char *hash_name, *hash;
} dt_listed;

typedef struct dt_listing {
    dt_listed *shard;
    size_t n;
} dt_listing;

// Appends the shards that `text`, from file `path`, lists. *is_list = false: it is neither of the two formats.
// DT_E_DATA: not JSON, or a shard is compressed in a way that is not read, or not on the server that has the list.
dt_status dt_shard_list_parse(dt_listing *l, const char *path, const char *text, size_t n_bytes, bool *is_list);
dt_status dt_shard_list_read(dt_listing *l, const char *path, bool *is_list);
void dt_shard_list_fini(dt_listing *l);

// ---- unpack -------------------------------------------------------------------------------------------------------

// Data files that are compressed as a whole (gzip, zstd), unpacked once a host into a cache
// so that members can be read by offset.

typedef enum dt_packing { DT_PACKING_NONE, DT_PACKING_GZIP, DT_PACKING_ZSTD } dt_packing;
// Recognised by the first bytes, never by the name.
dt_packing dt_packing_of(const uint8_t *head, size_t n_bytes);

// Unpacks all members or frames of `b` and hands the bytes to `sink`, block by block. DT_E_DATA: the stream is
// damaged or cut, or more than max_bytes come out (a bomb, or the limit is too low).
typedef dt_status (*dt_unpack_sink)(void *arg, const void *data, size_t n_bytes);
dt_status dt_unpack(const dt_blob *b, uint64_t max_bytes, dt_unpack_sink sink, void *arg);

typedef struct dt_unpack_cache {
    const char *dir;                   // or NULL: dt_io_cache_folder
    uint64_t max_bytes;                // of the host's cache (store/blob_cache.h)
    _Atomic uint64_t n_files, n_bytes; // that this process unpacked
} dt_unpack_cache;

// Gives the unpacked copy of `path`: *file (heap) and *out, which must stay open as long as the file is read, as
// it keeps others from removing it; its path is borrowed from *file. Makes the copy if it is not there, or waits for a process that makes it.
// Any thread. DT_E_DATA: damaged, or over the limit; DT_E_STORAGE: no folder to put it, disk full.
dt_status dt_unpack_open(dt_unpack_cache *c, const char *path, char **file, dt_blob *out);

// ---- shard load ---------------------------------------------------------------------------------------------------

// The rows of many data files, loaded by threads.

// A data file on its way into the catalog.
typedef struct dt_shard_job {
    const char *path;
    // out
    char *file;   // where its bytes are, if not at path
    dt_blob kept; // to read from: an unpacked copy, which must stay open, or an object of a URL; else closed
    const char *format;
    uint64_t n_bytes, version, stamp; // of what is read
    dt_buffer index;                  // its rows as index_file.h has them
    uint32_t n_bad;                   // see dt_scan
    char first_bad[256];
    dt_status status;
    char message[1024];
} dt_shard_job;

// Gets all jobs ready, by several threads. What fails is the first file, in order, that cannot be loaded.
dt_status dt_shards_load(dt_shard_job *jobs, size_t n, dt_unpack_cache *cache, const dt_reader_options *o);
void dt_shard_job_fini(dt_shard_job *j); // closes fd

// ---- lmdb tree ----------------------------------------------------------------------------------------------------

// The entries of an LMDB file, in key order, by offset.

// Called for each entry in key order. `key` is NUL-terminated and borrowed for the call; the value is
// `size` bytes at `offset` of the file. A status other than DT_OK stops the walk.
typedef dt_status (*dt_lmdb_visit)(void *arg, const char *key, size_t n_key, uint64_t offset, uint64_t size);
// DT_E_DATA when it is no LMDB file, is cut, or its tree is damaged.
dt_status dt_lmdb_walk(const dt_blob *blob, dt_lmdb_visit visit, void *arg);

#endif
