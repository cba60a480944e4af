// catalog.h: the records of a dataset, as rows: key, metadata columns, and for each member its
// extension, offset, size and hash. Everything that chooses samples (view, split, query, shuffle) reads
// the catalog and never the data files.
//
// There are two kinds of columns. Metadata columns are dictionary-encoded: a column holds its distinct
// values, sorted (numbers by value, then text by bytes), and each record holds an index into them or
// DT_NO_VALUE. So a class label is a cell, and grouping by a column is counting. Measurements (quality,
// angles, durations, sizes of images) differ in each record: number columns hold a double per record, NaN
// where there is no value. A name belongs to one kind; where shards disagree, numbers become text.
//
// On disk the rows of each data file lie beside it, in its index (index_file.h): opening a dataset reads
// these indexes. For other programs the whole catalog can be written as a database (select.h).
//
// To build one: add_shard, then for each record add_record, add_member…, set…; then finish. From then on
// it is read-only and shared by threads. It holds fewer than 2^32 records, members and bytes of strings:
// beyond that every call returns DT_E_DATA, and the catalog can only be destroyed.
#ifndef DT_DATA_CATALOG_H
#define DT_DATA_CATALOG_H

#include "data/file/file.h"

#include "base/core.h"

#include <stdbool.h>

#define DT_NO_VALUE UINT32_MAX // the cell of a record without a value

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

enum { DT_MAX_COLUMNS = 64, DT_MAX_EXTENSIONS = 1024 };

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

typedef struct dt_column {
    uint32_t name; // string
    uint32_t n_values;
    uint32_t *values; // strings, distinct, sorted (after finish)
    uint32_t *cell;   // by record
    uint32_t cap_cells;
} dt_column;

typedef struct dt_real_column {
    uint32_t name; // string
    double *value; // by record; NaN: no value
    uint32_t cap_cells;
} dt_real_column;

typedef struct dt_catalog {
    dt_shard *shards;
    dt_record *records;
    dt_member *members;
    uint32_t n_shards, n_records, n_members, n_exts, n_columns, n_reals;
    uint32_t exts[DT_MAX_EXTENSIONS]; // strings
    dt_column columns[DT_MAX_COLUMNS];
    dt_real_column reals[DT_MAX_COLUMNS];
    dt_buffer strings; // NUL-terminated, one after another
    // building only
    uint32_t cap_shards, cap_records, cap_members;
    uint32_t *interned; // strings by id
    uint32_t *intern;   // hash table of ids + 1
    uint32_t n_interned, cap_interned, cap_intern;
    uint32_t most; // records, members, bytes of strings; below 2^32 - 1 only in tests
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

// Building by columns instead of record by record, for the reader of indexes. `path`: the file that they come from, for
// the message of DT_E_DATA when there are too many. Before finish, a cell is the number of its interned text.
dt_status dt_catalog_need_room(const dt_catalog *c, const char *path, uint64_t n_records, uint64_t n_members,
                               uint64_t n_string_bytes);
// Room for n more, to be filled before anything else is added, and strings, each NUL-terminated, of which the
// place of the first is returned. The caller has checked that they fit.
dt_record *dt_catalog_new_records(dt_catalog *c, uint32_t n);
dt_member *dt_catalog_new_members(dt_catalog *c, uint32_t n);
uint32_t dt_catalog_add_strings(dt_catalog *c, const char *strings, size_t n_bytes);
dt_status dt_catalog_intern(dt_catalog *c, const char *path, const char *text, uint32_t *id);
dt_status dt_catalog_ext(dt_catalog *c, const char *path, const char *ext, uint32_t *out);
dt_status dt_catalog_cells(dt_catalog *c, const char *path, const char *column, uint32_t **out);
dt_status dt_catalog_numbers(dt_catalog *c, const char *path, const char *column, double **out);

// After finish: one more column, of texts by record (NULL: no value; copied), or of numbers. `values` becomes the
// catalog's. DT_E_DATA beyond DT_MAX_COLUMNS. The name must be new.
dt_status dt_catalog_add_texts(dt_catalog *c, const char *name, const char *const *text);
dt_status dt_catalog_add_numbers(dt_catalog *c, const char *name, double *values);

// After finish: drops the records with !keep[r], and the values that no record has then. The others keep their order
// and get new numbers. Columns stay, also without values.
void dt_catalog_keep(dt_catalog *c, const bool *keep);

// ---- reading -------------------------------------------------------------------------------------
static inline const char *dt_catalog_str(const dt_catalog *c, uint32_t s) {
    return (const char *)c->strings.data + s;
}
int dt_catalog_find_column(const dt_catalog *c, const char *name); // -1: none
int dt_catalog_find_real(const dt_catalog *c, const char *name);   // number columns; -1: none
static inline uint32_t dt_catalog_cell(const dt_catalog *c, int column, uint32_t record) {
    return c->columns[column].cell[record];
}
// Whether any record of [first, end) has a value; also before finish.
bool dt_catalog_has(const dt_catalog *c, int column, uint32_t first, uint32_t end);
const char *dt_catalog_value(const dt_catalog *c, int column, uint32_t record); // NULL: no value
static inline double dt_catalog_real(const dt_catalog *c, int real, uint32_t record) {
    return c->reals[real].value[record];
}
// XXH3 of keys, extensions, sizes, hashes, cells and numbers, but not of offsets, shards or paths: equal
// records have an equal hash however they are packed.
uint64_t dt_catalog_hash(const dt_catalog *c);

#endif
