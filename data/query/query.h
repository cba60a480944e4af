// query.h: which records of a set an expression (expression.h) chooses, and what is known of them.
//
// A query runs in SQLite on the databases that lie beside the data (catalog_db.h): the data files are
// not read, nor their indexes. Shards without one (sets made by others) are put into a database in
// memory from the catalog that opening them gave. Each shard is found in its database by name, and its
// stamp says whether the database is of these bytes: one that is not is refused. Its pages have
// checksums; where those do not hold because somebody changed it, its rows are compared with the set's.
//
// One thread. Several sets may be asked together: a column that only some of them have is null in the
// others, and `set` names the set of each record, as it does in the catalog of an open set.
#ifndef DT_DATA_QUERY_H
#define DT_DATA_QUERY_H

#include "data/catalog/catalog.h"

typedef struct dt_query dt_query;

// On the records of an open set, whose catalog outlives the query.
dt_status dt_query_open(dt_query **out, const dt_catalog *c);
// On data files by path (LMDB folders, shards), if every one has a database with checksums; *out = NULL
// when one has not, and the set must be opened for the above. `tell`: what folders are read as, when the answer
// is theirs; false for who has opened the set, which said it.
dt_status dt_query_open_files(dt_query **out, const char *const *paths, size_t n_paths, bool tell);
void dt_query_close(dt_query *q);
uint64_t dt_query_n_records(const dt_query *q);

// keep[i], i in order of files and rows (a catalog's record number): whether record i is chosen. *n = how
// many. DT_E_USAGE for an expression that is none or names no column; DT_E_DATA for a damaged database.
dt_status dt_query_select(dt_query *q, const char *expression, bool *keep, uint64_t *n);

// ---- rows ----------------------------------------------------------------------------------------
typedef enum dt_cell_kind { DT_CELL_NULL, DT_CELL_INT, DT_CELL_REAL, DT_CELL_TEXT } dt_cell_kind;
typedef struct dt_cell {
    dt_cell_kind kind;
    int64_t integer;
    double real;
    const char *text; // NUL-terminated
} dt_cell;

// Column names: metadata and number columns of any of the sets in their order, and these four that each
// record has: key, shard (its file's name), bytes (of its members), source (file it was packed from).
// A metadata column of such a name hides it. Borrowed.
enum { DT_QUERY_FIXED = 4 };
int dt_query_n_columns(const dt_query *q); // the fixed ones come first
const char *dt_query_column(const dt_query *q, int i);
// -1 with DT_E_USAGE's message (and the nearest name) when there is no such column.
int dt_query_find_column(const dt_query *q, const char *name);

// Calls row() for each chosen record in order (expression NULL: for all), at most `limit` of them
// (0: no limit), with the cells of columns[]; ends early when row() fails.
typedef dt_status (*dt_query_row)(void *ctx, const dt_cell *cells, int n);
dt_status dt_query_rows(dt_query *q, const char *expression, const int *columns, int n,
                        uint64_t limit, dt_query_row row, void *ctx);
dt_status dt_query_count(dt_query *q, const char *expression, uint64_t *n);

// Whether the databases are whole and say of each record what the catalog says, which the query was
// opened with. DT_E_DATA names the first difference.
dt_status dt_query_check(dt_query *q, const dt_catalog *c);

// Where the first set comes from, oldest step first; *n = 0 where that is not known.
typedef struct dt_query_step {
    char *made_by, *command, *options, *version, *parent, *parent_hash; // or NULL
} dt_query_step;
dt_status dt_query_lineage(dt_query *q, dt_query_step **out, int *n);
void dt_query_free_lineage(dt_query_step *steps, int n);

#endif
