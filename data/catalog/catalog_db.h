// catalog_db.h: the catalog of a dataset as an SQLite database beside its data, for people and their tools.
//
// dtrain itself reads the index of each file (index_file.h), to train and to query. The database holds the
// same rows for anything that speaks SQL. `dtrain pack` writes it, and `dtrain data export --sqlite` writes one
// for any dataset. It is one file per dataset:
//
//   OUT.lmdb/catalog.sqlite                     beside data.mdb
//   photos-{000000..000003}.tar                 -> photos.catalog.sqlite
//   photos.tar                                  -> photos.catalog.sqlite
//   train/{000..031}.tar                        -> train/catalog.sqlite
//
// docs/reference/catalog.md describes the tables. What it leaves out: user_version is 1, application_id "DTca";
// shards.path is relative to the database's folder, and shards.stamp is dt_blob_stamp in hex; records.hash is
// XXH3-64 over the members' extension, size and hash (NULL if a member has none).
//
// The same rows and lineage give the same bytes (with one version of SQLite): page size and order of
// insertion are fixed, and no time is stored.
#ifndef DT_DATA_CATALOG_DB_H
#define DT_DATA_CATALOG_DB_H

#include "catalog.h"

// Where a dataset comes from. State what determines it and leave out what does not (threads, ranks,
// where it is written), or equal datasets get unequal catalogs.
typedef struct dt_lineage {
    const char *made_by;  // "pack"
    const char *command;  // "dtrain pack raw --pattern '{class}/{name}.jpg'"
    const char *options;  // JSON object
    const char *version;  // of dtrain
    const char *parent;   // what it was made from, as given; NULL: nothing
    uint64_t parent_hash; // identity of that; 0 = unknown
} dt_lineage;

// Bytes of a path before ".tar", ".tar.gz" and the like; 0 if it is not a shard.
size_t dt_catalog_shard_stem(const char *path);
// Where the database of a dataset lies or will lie: `set` is an LMDB directory (existing or not: anything
// that does not end in .tar and the like) or a pattern of shards. Heap.
char *dt_catalog_db_path(const char *set);
// The database that may describe data file `shard` (an existing file that catalog_db_path would name).
// Heap, or NULL when there is none.
char *dt_catalog_db_find(const char *shard);

// Writes the database to `path`: to a temporary file beside it, which is synced and renamed. The catalog is
// finished. l: or NULL. sources: by record, or NULL. DT_E_STORAGE; no file is left then.
dt_status dt_catalog_db_write(const char *path, const dt_catalog *c, const dt_lineage *l,
                              const char *const *sources);

// The lineage in a database, oldest step first. DT_E_DATA when the file is damaged, of another kind or
// version. Free with dt_lineage_free.
dt_status dt_catalog_db_lineage(const char *path, dt_lineage **steps, int *n);
void dt_lineage_free(dt_lineage *steps, int n);

// Whether the databases beside the catalog's shards are whole and hold the same records and columns.
// DT_E_DATA names the first difference, or a column that somebody added to a database. Shards without database are
// left out.
dt_status dt_catalog_db_check(const dt_catalog *c);

// Whether another program added this column to the database beside the first shard: for the message that the set does
// not have it.
bool dt_catalog_db_has_added(const dt_catalog *c, const char *column);
#define DT_ADDED_COLUMN                                                                            \
    "dtrain reads the index and not the catalog; to add a column, pack the set again with --join " \
    "TABLE.csv (columns key and the new one)"

// The data files that a database names and that lie beside it. Heap list, for dt_io_free_list.
dt_status dt_catalog_db_list_data(const char *path, char ***names, size_t *n);

#endif
