// catalog.h: the records of a dataset, as rows: key, metadata columns, and for each member its
// extension, offset, size and hash. Everything that chooses samples (view, split, query, shuffle) reads
// the catalog and never the data files.
//
// Its columns are those of a table in memory (columns.h), a row a record. A name belongs to one kind; where shards
// disagree, numbers become text. Columns of text come first.
//
// On disk the rows of each data file lie beside it, in its index (index_file.h): opening a dataset reads
// these indexes. For other programs the whole catalog can be written as a database (select.h).
//
// To build one: add_shard, then for each record add_record, add_member…, set…; then finish. From then on
// it is read-only and shared by threads. It holds fewer than 2^32 records, members and bytes of strings:
// beyond that every call returns DT_E_DATA, and the catalog can only be destroyed.
#ifndef DT_DATA_CATALOG_H
#define DT_DATA_CATALOG_H

#include "columns.h"

#include "base/core.h"

// A member's bytes: `size` bytes at `offset` of the record's shard.
typedef struct dt_member {
    uint32_t ext;  // index into the catalog's extensions
    bool has_hash; // false if another program made the dataset
    uint64_t offset, size;
    uint64_t hash; // XXH3-64 of the bytes
} dt_member;

// One stored item: a key, members (extension -> bytes in a file) and a row of metadata columns. source.h
// reads its bytes.
typedef struct dt_record {
    uint32_t key; // string of the catalog
    uint32_t shard;
    uint32_t first_member, n_members; // in the order of storage
    uint64_t key_hash;                // XXH3-64 of the key; splits use it
} dt_record;

enum { DT_MAX_EXTENSIONS = 1024 };

typedef struct dt_shard {
    char *path;           // as the user knows it
    char *file;           // where its bytes are read, if not at path: the unpacked copy
    uint32_t set;         // which item of data.path it came from
    uint64_t n_bytes;     // of the file that is read
    uint64_t version;     // dt_blob.version of it when it was opened
    uint64_t source_hash; // of what it was packed from; 0 = unknown
    bool changed;         // since it was packed, but of the same size
    uint64_t stamp;       // dt_blob_stamp of the file; 0 = not known (no index)
} dt_shard;

typedef struct dt_catalog {
    dt_shard *shards;
    dt_record *records;
    dt_member *members;
    uint32_t n_shards, n_records, n_members, n_exts;
    uint32_t exts[DT_MAX_EXTENSIONS]; // strings
    dt_columns table;                 // row r: record r; its strings are those of the catalog
    // building only
    uint32_t cap_records, cap_members;
    bool finished;
} dt_catalog;

dt_catalog *dt_catalog_create(void);
void dt_catalog_destroy(dt_catalog *c);

// ---- building ------------------------------------------------------------------------------------
uint32_t dt_catalog_add_shard(dt_catalog *c, const char *path, uint64_t n_bytes);
// Records come in the order of their shards.
dt_status dt_catalog_add_record(dt_catalog *c, uint32_t shard, const char *key);
// To the record added last. DT_E_DATA when it already has a member of that extension.
dt_status dt_catalog_add_member(dt_catalog *c, const char *ext, uint64_t offset, uint64_t size, const uint64_t *hash);
// Sets a metadata cell of the record added last. DT_E_DATA beyond DT_MAX_COLUMNS.
dt_status dt_catalog_set(dt_catalog *c, const char *column, const char *value);
// Sets a metadata cell of a record that was added before.
dt_status dt_catalog_set_at(dt_catalog *c, uint32_t record, const char *column, const char *value);
// Sets a number of the record added last; NaN takes the value away.
dt_status dt_catalog_set_real(dt_catalog *c, const char *column, double value);
// Top-level strings, integers and booleans of a JSON object become metadata cells; numbers with a point
// or an exponent become numbers. Other values are ignored.
dt_status dt_catalog_set_json(dt_catalog *c, const char *json, size_t n_bytes);
// Sets a cell of all records from `first` on.
dt_status dt_catalog_set_from(dt_catalog *c, uint32_t first, const char *column, const char *value);
dt_status dt_catalog_finish(dt_catalog *c);

// For the reader of indexes, which builds the table by columns. `path`: the file that they come from, for the message of
// DT_E_DATA when there are too many.
dt_status dt_catalog_need_room(const dt_catalog *c, const char *path, uint64_t n_records, uint64_t n_members,
                               uint64_t n_string_bytes);
// Room for n more, to be filled before anything else is added. The caller has checked that they fit.
dt_record *dt_catalog_new_records(dt_catalog *c, uint32_t n);
dt_member *dt_catalog_new_members(dt_catalog *c, uint32_t n);
dt_status dt_catalog_ext(dt_catalog *c, const char *path, const char *ext, uint32_t *out);

// After finish: drops the records with !keep[r], and the values that no record has then. The others keep their order
// and get new numbers. Columns stay, also without values.
void dt_catalog_keep(dt_catalog *c, const bool *keep);

// ---- reading -------------------------------------------------------------------------------------
static inline const char *dt_catalog_str(const dt_catalog *c, uint32_t s) {
    return dt_columns_str(&c->table, s);
}
static inline int dt_catalog_find_column(const dt_catalog *c, const char *name) { // metadata columns; -1: none
    return dt_columns_find(&c->table, name, DT_TEXT_COLUMN);
}
static inline int dt_catalog_find_real(const dt_catalog *c, const char *name) { // number columns; -1: none
    return dt_columns_find(&c->table, name, DT_NUMBER_COLUMN);
}
static inline uint32_t dt_catalog_cell(const dt_catalog *c, int column, uint32_t record) {
    return c->table.columns[column].cell[record];
}
static inline const char *dt_catalog_value(const dt_catalog *c, int column, uint32_t record) { // NULL: no value
    return dt_columns_text(&c->table, column, record);
}
static inline double dt_catalog_real(const dt_catalog *c, int column, uint32_t record) {
    return c->table.columns[column].number[record];
}
// Whether any record of [first, end) has a value; also before finish.
bool dt_catalog_has(const dt_catalog *c, int column, uint32_t first, uint32_t end);
// XXH3 of keys, extensions, sizes, hashes, cells and numbers, but not of offsets, shards or paths: equal
// records have an equal hash however they are packed.
uint64_t dt_catalog_hash(const dt_catalog *c);

#endif
