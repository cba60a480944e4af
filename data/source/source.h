// source.h: a dataset on disk: the records of one or several data files, behind one catalog. A format (tar, LMDB,
// MDS) makes rows of a file, a collection (a folder, a list of shards) makes files of a path. Reading a
// member is then the same for all: a byte range of a file.
#ifndef DT_DATA_SOURCE_H
#define DT_DATA_SOURCE_H

#include "data/catalog/catalog.h"
#include "data/file/file.h"

#include "base/hash.h"
#include "store/blob_cache.h"

// ---- names ---------------------------------------------------------------------------------------
typedef struct dt_names {
    char **name; // heap, each
    size_t n;
} dt_names;
void dt_names_add(dt_names *l, const char *name);
void dt_names_fini(dt_names *l);

// "a-{00..02}.tar::b-{x,y}.tar" -> 5 heap strings. DT_E_USAGE for a brace that is no pattern.
dt_status dt_expand_shards(const char *pattern, char ***out, size_t *n);
// Expands *, ? and [ ] too, which match existing files, sorted by their bytes. Appends. DT_E_DATA: an alternative
// or a path between "::" matches none; what the others match is appended all the same.
dt_status dt_expand_files(const char *pattern, dt_names *out);

// WebDataset's rule: the key is everything before the first dot of the basename, the extension what
// follows, lower-cased into ext. false: skip (no extension, dotfile, top-level __x__).
bool dt_split_key(const char *path, size_t *n_key, char *ext, size_t cap_ext);

// ---- formats of one file -------------------------------------------------------------------------
typedef struct dt_scan {
    dt_catalog *c;
    const dt_blob *blob;
    bool lenient;  // what lies before a damaged place is used, with a warning
    dt_peek *peek; // of the blob, if the scanner has one: metadata members often lie in it
    // out
    bool partial;        // something was left out, so that the rows are not kept as an index
    uint32_t n_bad;      // records whose metadata could not be read
    char first_bad[256]; // what was wrong with the first
} dt_scan;

typedef struct dt_file_format {
    const char *name;
    // Known by the first bytes (up to 512) and, where those do not tell, the name (of the unpacked file).
    bool (*accepts)(const char *path, const uint8_t *head, size_t n_bytes);
    // Appends the file as one shard with its records. Any thread.
    dt_status (*scan)(dt_scan *s);
} dt_file_format;

extern const dt_file_format dt_format_lmdb, dt_format_tar, dt_format_mds;

// dt_catalog_set_json for the record added last; a text that is no JSON is counted in `s`.
dt_status dt_scan_json(dt_scan *s, const char *json, size_t n_bytes);
// What a member adds to the columns of the record added last: the top level of `json` (one over 64 KiB is
// taken for data, and counted), the text of `cls` and the like.
dt_status dt_scan_member(dt_scan *s, const char *ext, uint64_t offset, uint64_t size);

// ---- sets ----------------------------------------------------------------------------------------
// One item of data.path.
typedef struct dt_reader_item {
    const char *path;
    const char *name; // in the column `set`; NULL: by the path
    double weight;    // its share of an epoch, relative to the other items'; 0: none was given
} dt_reader_item;

typedef struct dt_reader_options {
    const char *cache_dir; // see source_parts.h
    uint64_t cache_bytes;  // 0: DT_CACHE_AUTO_BYTES
    bool write_index;      // beside data files that have none, if their folder lets us
    bool lenient;          // see dt_scan
} dt_reader_options;

typedef struct dt_reader {
    dt_catalog *catalog;
    _Atomic(dt_blob *) *blobs; // by shard: NULL until first read
    uint32_t max_files;        // that may be open
    uint32_t max_kept;         // shards before this one stay open
    dt_blob_cache *cache;      // or NULL; dt_reader_keep
    bool keeps_files;
    const char *kind;
    uint32_t n_items;
    bool is_weighted; // some item has a weight; those without then have 1
    double *weight;   // by item of data.path: dt_shard.set
} dt_reader;

// Paths may hold braces, "::" and wildcards; several items mix several sets, and a column `set` then
// tells them apart. options NULL: the defaults of config.def. DT_E_DATA: a missing or damaged shard, a
// shard that is listed twice.
dt_status dt_reader_open_items(dt_reader **out, const dt_reader_item *items, size_t n_items,
                               const dt_reader_options *options);
// dt_reader_open_items without weights and with default options.
dt_status dt_reader_open(dt_reader **out, const char *const *paths, size_t n_paths);
void dt_reader_close(dt_reader *s);
// From now on objects are read through the host's cache, which is the reader's from now on; `files`: files, too, where they
// stay open. No other thread may read meanwhile.
void dt_reader_keep(dt_reader *s, dt_blob_cache *cache, bool files);

// Reads member `member` (index into catalog->members) of `record` into `scratch` (not always at its start).
// `verify` checks the stored hash. Any thread, each with its own scratch. DT_E_DATA names file, record and
// member.
dt_status dt_reader_read(dt_reader *s, uint32_t record, uint32_t member, bool verify, dt_buffer *scratch, dt_span *out);
// Reads n_bytes at `offset` of a shard. The message names no record: see dt_set_context. DT_E_STORAGE: an object that changed
// since it was opened, or that its server refuses.
dt_status dt_reader_read_range(dt_reader *s, uint32_t shard, uint64_t offset, void *dst, size_t n_bytes);
// Checks bytes that came another way as dt_reader_read does: not empty, and the stored hash.
dt_status dt_reader_check(const dt_reader *s, uint32_t record, uint32_t member, bool verify, dt_span bytes);
// Drops the cache's copy of a member whose hash differs, so that it is fetched again. false: there is none.
bool dt_reader_forget(const dt_reader *s, uint32_t record, uint32_t member);
// Of a record that cannot be read: DT_E_DATA, and the message stays, or DT_E_STORAGE where it is not damaged, but its file is
// another one than when it was opened, or than its index describes.
dt_status dt_reader_blame(dt_reader *s, uint32_t record);
// dt_fail_context with file, record, and the member's extension and offset.
dt_status dt_set_context(const dt_reader *s, uint32_t record, uint32_t member, dt_status code);

#endif
