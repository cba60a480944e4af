// query_internal.h: what query_open.c (which databases a set has) and query.c (asking them) share. Not for
// others.
//
// A query is groups and parts. A group is a database: beside the data, or in memory for the files that none
// describes. A part is a data file, or rather its run of ids in a group. Parts keep the order in which the
// files were given, so that record i of all parts is record i of the catalog that opens the same files;
// groups have no order. Three sets of which two were packed by others are two groups and as many parts as
// there are files.
//
// Columns are looked up group by group, as one name may be text in one database, a number in another, and
// unknown to a third; dt_query.columns is the union of their names. `set`, which says of what set a record
// is, is in no database of a set that was packed alone: a part knows it, or a group's runs of ids do.
//
// query_open.c fills everything and query.c only reads it, but for SQLite's own state. One thread.
#ifndef DT_CATALOG_QUERY_INTERNAL_H
#define DT_CATALOG_QUERY_INTERNAL_H

#include "query.h"

#include <sqlite3.h>

typedef struct group_shard {
    char *name;
    uint64_t n_bytes;
    char stamp[17];
    int64_t first, n;
} group_shard;

typedef struct group_column {
    char *name, *sql; // "m.""name"""
    bool is_text;
} group_column;

// Where several sets are mixed, the runs of ids that are of one.
typedef struct set_run {
    int64_t first, end;
    const char *name;
} set_run;

typedef struct set_runs {
    set_run *run; // sorted
    int n;
} set_runs;

typedef struct group {
    char *path; // of the database; NULL: in memory
    sqlite3 *db;
    group_shard *shards; // sorted by name
    group_column *columns;
    int n_shards, n_columns;
    int64_t n_ids;   // above all ids
    bool is_checked; // its pages are held against checksums; always so in memory
    set_runs *sets;  // or NULL
} group;

typedef struct part {
    int group;
    int64_t first, n; // ids
    char *set;        // its value in the column `set`, if that is not in the database; or NULL
} part;

struct dt_query {
    group *groups;
    part *parts;
    char **columns; // names of all groups, the fixed ones first
    int n_groups, n_parts, n_columns;
    uint64_t n_records;
    bool has_sets; // some part has `set`
};

// Columns that every record has, in the table of records.
typedef struct query_fixed {
    const char *name, *sql;
    bool is_text;
} query_fixed;
extern const query_fixed QUERY_FIXED[DT_QUERY_FIXED];

// ---- query_open.c --------------------------------------------------------------------------------
// Fails with what SQLite says of the group's database.
dt_status query_damaged(const group *g);
dt_status query_prepare(group *g, sqlite3_stmt **s, const char *sql);
char *query_text(sqlite3_stmt *s, int i); // of a row's column; heap, or NULL
// Whether the columns from the given one on have that name.
bool query_has_column(const dt_query *q, const char *name, int from);

#endif
