// catalog_db.h: the catalog of a set as an SQLite database beside its data: what answers questions.
//
// Training opens the index of each file (index_file.h), which is smaller and faster to read whole. The
// database holds the same rows for those who ask: `dtrain data query`, `data.where`, and anything else
// that speaks SQL. It is one file a set:
//
//   OUT.lmdb/catalog.sqlite                     beside data.mdb
//   photos-{000000..000003}.tar                 -> photos.catalog.sqlite
//   photos.tar                                  -> photos.catalog.sqlite
//   train/{000..031}.tar                        -> train/catalog.sqlite
//
// Tables (version 1, in user_version; application_id is "DTca"):
//   shards(id, path, bytes, stamp, first_record, n_records)   path from the database's folder; stamp is
//                                     dt_blob_stamp in hex: whether the file is still the one described
//   records(id, key, shard, row, bytes, hash, source)         id = number in set order from 0; row = number
//                                     in its shard; hash = XXH3-64 over its members' extension, size and
//                                     hash (NULL if a member has none); source = raw file it was made of
//   members(record, ext, offset, bytes, hash)                 bytes at offset of the record's shard;
//                                     hash = XXH3-64 as a signed integer: printf('%016x', hash)
//   metadata(id, …)                   a column for each metadata and number column, NULL = no value
//   columns(name, column_name, kind)  which column of `metadata` has which name: they differ where two
//                                     names differ by case alone, or a name is "id". kind: text, number
//   lineage(step, made_by, command, options, version, parent, parent_hash)   oldest first: where the set
//                                     comes from, with the lineage of a parent that is itself a set
//   facts(name, value)                n_records, n_shards, hash (dt_catalog_hash in hex)
//   catalog                           a view: records, shard paths and metadata in one
//
// A column of text whose values are all plain decimal numbers (-12, 0.5; not 007, 1e5) is stored as
// numbers, so that comparing does what one means. Text that is not UTF-8 is a BLOB.
//
// Each page ends in a checksum, in bytes that SQLite reserves (catalog_vfs.c): damage is told when a page
// is read. Columns may be added with any program; the file is then one without checksums.
//
// The same rows and lineage give the same bytes (with one version of SQLite): page size, order of
// insertion and everything else is fixed, and there is no time in it. The file's own times say when.
#ifndef DT_DATA_CATALOG_DB_H
#define DT_DATA_CATALOG_DB_H

#include "catalog.h"

#include <sqlite3.h>

// Where a set comes from. State what determines the set and leave out what does not (threads, ranks,
// where it is written), or equal sets get unequal catalogs.
typedef struct dt_lineage {
    const char *made_by;  // "pack"
    const char *command;  // "dtrain pack raw --pattern '{class}/{name}.jpg'"
    const char *options;  // JSON object
    const char *version;  // of dtrain
    const char *parent;   // what it was made from, as given; NULL: nothing
    uint64_t parent_hash; // identity of that; 0 = unknown
} dt_lineage;

// Bytes of a path before ".tar", ".tar.gz" and the like, or 0: no shard.
size_t dt_catalog_shard_stem(const char *path);
// Where the database of a set lies or will: `set` is an LMDB directory (existing or not: anything that
// does not end in .tar and the like) or a pattern of shards. Heap.
char *dt_catalog_db_path(const char *set);
// The database that may describe data file `shard` (an existing file that catalog_db_path would name).
// Heap, or NULL when there is none.
char *dt_catalog_db_find(const char *shard);

// Writes the database to `path`, through a temporary beside it: written, fsynced, renamed, folder
// synced. The catalog is finished and its shards have their stamps (dt_index_save sets them). sources:
// by record, or NULL. DT_E_STORAGE; nothing is left then.
dt_status dt_catalog_db_write(const char *path, const dt_catalog *c, const dt_lineage *l,
                              const char *const *sources);

// Opens a database for reading. DT_E_DATA when it is damaged, of another kind or version. Close with
// sqlite3_close.
dt_status dt_catalog_db_open(sqlite3 **out, const char *path);
// The data files that the database names, first those that are in its folder: *n_there. Heap list, for
// dt_io_free_list. DT_E_DATA as with opening.
dt_status dt_catalog_db_list_data(const char *path, char ***names, size_t *n, size_t *n_there);
// The same tables without members and facts for a catalog's shards with use[i], read from the catalog
// itself, which outlives the connection.
dt_status dt_catalog_db_in_memory(sqlite3 **out, const dt_catalog *c, const bool *use);

// Whether a text is one of the plain decimals that become numbers.
bool dt_catalog_is_decimal(const char *s);

// ---- for the files of data/catalog ---------------------------------------------------------------------
// A statement's text and place bound by whether it is UTF-8.
void dt_catalog_db_bind(sqlite3_stmt *s, int i, const char *text);
// dt_fail with SQLite's message, or the file's when that was the cause.
dt_status dt_catalog_db_fail(sqlite3 *db, const char *path, dt_status code, const char *doing);

#endif
