// raw.h: what there is to pack, as a list: files of a folder, a list or a tar, or records of an existing
// dataset; each with a key, and metadata columns from its name and from joined tables. `dtrain pack` reads it, and
// so does training straight from a folder.
//
// A million files take about 200 MB: 72 bytes an item, its names, and 4 or 8 bytes a column.
#ifndef DT_DATA_RAW_RAW_H
#define DT_DATA_RAW_RAW_H

#include "base/core.h"
#include "base/json.h"
#include "base/text.h"
#include "data/catalog/catalog.h"

// ---- pattern ------------------------------------------------------------------------------------------------------

// File names with named captures: "{subject}__{gender}_{hand}_{n}.BMP".

enum { DT_MAX_CAPTURES = 16, DT_MAX_CAPTURE_BYTES = 128 };

typedef struct dt_capture {
    char name[64];
    char value[DT_MAX_CAPTURE_BYTES];
} dt_capture;

// DT_E_USAGE if the text is not a pattern.
dt_status dt_pattern_check(const char *pattern);
// Matches one pattern (no '|') against as many of the last components of `path` as the pattern has. Literals
// ignore case; a capture takes one or more bytes other than '/', as few as possible. Returns the number of
// captures, or -1 if there is no match.
int dt_pattern_match(const char *pattern, const char *path, dt_capture out[DT_MAX_CAPTURES]);

// ---- raw ----------------------------------------------------------------------------------------------------------

struct dt_table;
struct dt_columnar;

typedef enum dt_raw_kind {
    DT_RAW_FOLDER,
    DT_RAW_LIST,
    DT_RAW_TAR,
    DT_RAW_ROWS,    // of a table of numbers
    DT_RAW_MEMBERS, // rows of files of columns (data/file/columnar.h)
    DT_RAW_SET
} dt_raw_kind;

typedef struct dt_raw_item {
    const char *name; // relative to the source, for messages; of a set: the key
    const char *key;
    const char *ext;       // in lower case, with the field's name in front if it has one; of a set: NULL
    uint64_t offset, size; // of DT_RAW_MEMBERS: the number of its file (upper half), and its place in its page
    int64_t mtime_ns;
    uint32_t row;    // of the columns
    uint32_t record; // of a set; of DT_RAW_MEMBERS: the page
    // Of a record of several files: the files, by ext; `size` is their sum, the other members are the first file's.
    const struct dt_raw_item *parts;
    uint32_t n_parts; // 0: one file
    int label;        // index of the class where there are n_classes, or -1
} dt_raw_item;

typedef struct dt_raw_join {
    size_t n_with;                          // items with a row
    dt_examples without;                    // items without
    dt_examples unused;                     // rows without an item
    dt_examples shared;                     // rows of several items that have one stem
    dt_examples odd, duplicates, ambiguous; // rows that were left out: see dt_raw_opts.skip_bad
    const char *on;                         // what was compared, a word for each table
    bool label_only;                        // folders could be classes, but a table has a column `label`
} dt_raw_join;

// Of two rows for one item: neither, or which one.
typedef enum dt_join_duplicates { DT_JOIN_ERROR, DT_JOIN_FIRST, DT_JOIN_LAST } dt_join_duplicates;

// Why files and folders of a source are left out.
typedef enum dt_raw_reason {
    DT_RAW_HIDDEN,      // and what is in a hidden folder, which counts once
    DT_RAW_NO_SAMPLE,   // licences, notes
    DT_RAW_UNREAD_KIND, // files of known kinds that dtrain cannot read (file.h)
    DT_RAW_EMPTY,
    DT_RAW_DANGLING, // links that lead to no file
    DT_RAW_OUTSIDE,  // of a tar: links that lead out of it, or in circles
    DT_RAW_N_REASONS
} dt_raw_reason;

enum { DT_RAW_UNREAD = 4, DT_RAW_MOST_PARTS = 32 };
typedef struct dt_raw {
    dt_arena arena;
    dt_raw_kind kind;
    const char *source;        // as given
    const char *root;          // what names are relative to: the folder; of a tar: the tar
    int root_fd;               // of the folder or the tar, or -1
    const dt_catalog *catalog; // of the set whose records these are, borrowed; else NULL
    dt_raw_item *items;        // sorted by key; those of a set in its own order unless sorted was asked for
    size_t n;
    struct {
        size_t n;
        const char *first; // by name
    } left_out[DT_RAW_N_REASONS];
    const struct dt_kind *unread[DT_RAW_UNREAD]; // the kinds of DT_RAW_UNREAD_KIND
    size_t n_incomplete; // --group: records with fewer files than n_parts, which the fullest has
    uint32_t n_parts;
    const char *first_incomplete;
    dt_examples unfit;               // files whose names do not fit the pattern, left out
    dt_examples bad_rows;            // of a list or a table of numbers: those without a file or a number, left out
    int n_classes;                   // class by folder, or of a set whose labels a table changed; else 0
    bool by_known_pattern;           // names fit a pattern that nobody gave
    dt_columns table;                // of an item: row `row`
    int by_name[3 * DT_MAX_COLUMNS]; // columns in the order of their names
    dt_raw_join join;
    dt_examples replaced; // columns of a table that names or the set give too
    uint64_t hash;        // of names, sizes, times and columns: tells whether a pack was made of this source. Never 0
    double *numbers;      // DT_RAW_ROWS: (items, row_length), by item.offset
    bool wide;            // of them float32 would lose digits
    size_t row_length;
    struct dt_columnar **files; // DT_RAW_MEMBERS: open
    size_t n_files;
} dt_raw;

typedef struct dt_raw_opts { // see dt_pack_opts
    const char *pattern;
    const char *group;  // captures, "id,eye": files that agree in them are one record
    char *const *files; // what SRC stands for, of files of columns (dt_columnar_is_name); NULL: SRC itself
    size_t n_files;
    const char *rows; // SRC is a table whose rows are records: columns "a,b" that are metadata, "-": none
    const char *join; // tables, a line each
    const char *join_on;
    // DT_E_DATA: a file without row, a row without file or of several files with one stem.
    bool join_strict;
    dt_join_duplicates join_duplicates;
    // Rows that cannot be joined, or lack their file or a number, and files whose names do not fit the pattern are left
    // out and counted, else DT_E_DATA.
    // Of two rows for one file the first is taken then, unless join_duplicates says which.
    bool skip_bad;
    const char *columns; // columns made of others, "NAME=EXPRESSION", a line each
    bool sorted;         // records of a set by key too
    bool keep_empty;     // empty files are records, which fail when they are read; else they are left out and counted
    bool as_listed;      // the files of a list in its order
    bool key_by_shard;   // of a set: each key gets its shard's name in front, "photos-000003/000017"
    const char *tail;    // what follows a key in the names that are written, for the order; NULL: "."
} dt_raw_opts;

// The records of an open dataset, whose catalog must outlive the list; set NULL: the raw files of a folder, a list or
// a tar. o NULL: all defaults. DT_E_DATA / DT_E_USAGE.
dt_status dt_raw_list(dt_raw *out, const char *source, const dt_catalog *set, const dt_raw_opts *o);
void dt_raw_fini(dt_raw *r);
// Appends the files of a folder or of a list, or one file, to a catalog, each as a shard with one record that is named
// as `dtrain pack` would name it. Handy for a first look. A packed dataset is faster to read, and its records are
// checked by hash. As dt_raw_list.
dt_status dt_raw_load(dt_catalog *c, const char *path);
// "2 hidden (.git), 1 empty (a/b.jpg)": what was left out, by reason, with the first of each; "" for nothing. Heap.
char *dt_raw_describe_left_out(const dt_raw *r);
// Whether files may have been meant to be samples that were left out.
bool dt_raw_lost_samples(const dt_raw *r);
// Whether the name is that of a list of files; of a picture, a sound or an array.
bool dt_raw_is_list(const char *path);
bool dt_raw_is_file(const char *path);
// Whether a folder holds any raw files.
dt_status dt_raw_holds_files(const char *folder, bool *yes);

// Where the item is, for messages and `source` of --where: "folder/a/b.jpg", "set.tar: a/b.jpg". Heap.
char *dt_raw_path(const dt_raw *r, const dt_raw_item *item);
// Reads n_bytes of an item of a folder, list or tar from `at` on into dst, which must have room for one byte more.
// When the whole file is read, a file that has become longer or shorter is DT_E_DATA. Any thread.
dt_status dt_raw_read(const dt_raw *r, const dt_raw_item *item, uint64_t at, void *dst, size_t n_bytes);

// dt_io_read_error for the item.
dt_status dt_raw_cannot(const dt_raw *r, const dt_raw_item *item, const char *operation, int err);

// The item's metadata as members of a JSON object, keys in order; appended to j.
void dt_raw_put_json(const dt_raw *r, const dt_raw_item *item, dt_json *j);

// DT_RAW_SET, for a record without json member: the columns that its format keeps elsewhere (Datum, OCR, MDS) and
// that would otherwise be in the index only. Appends nothing for a dataset that pack has written.
void dt_raw_put_set_json(const dt_raw *r, const dt_raw_item *item, dt_json *j);
// Whether a name or a table gives the item a value of this name, which goes before any other.
bool dt_raw_has_value(const dt_raw *r, const dt_raw_item *item, const char *name);
// Sets the item's metadata on the record added last: the list's values, and those that the set has of other names.
dt_status dt_raw_put_row(const dt_raw *r, const dt_raw_item *item, dt_catalog *c);

// ---- for the files that make the list --------------------------------------------------------------
typedef struct dt_raw_found {
    dt_raw *raw;
    bool keep_empty, skip_bad;
    const char *join;            // tables, a line each: no data where they lie in the folder
    int64_t tar_mtime_ns;        // of all files of a tar
    const char *hidden;          // the last that was left out of it as such
    size_t n_strip;              // bytes of names: the folders that all files share
    const struct dt_table *list; // of a list file: its table, and the column with paths
    int list_column;
} dt_raw_found;

void dt_raw_add(dt_raw_found *f, const char *name, uint64_t offset, uint64_t size, int64_t mtime_ns);
void dt_raw_leave_out(dt_raw *r, dt_raw_reason why, const char *name);
dt_status dt_raw_find_folder(dt_raw_found *f, const char *path);
dt_status dt_raw_find_file(dt_raw_found *f, const char *path);
dt_status dt_raw_find_tar(dt_raw_found *f, const char *path);
dt_status dt_raw_find_list(dt_raw_found *f, const char *path, struct dt_table *table);
// Time of change in ns since 1970.
struct stat;
int64_t dt_raw_mtime_ns(const struct stat *s);
dt_status dt_raw_find_rows(dt_raw_found *f, const char *path, const char *metadata, struct dt_table *table);
dt_status dt_raw_find_records(dt_raw_found *f, const dt_catalog *set, bool by_shard);
// Rows of files of columns: bytes are members, other columns metadata. *any = false: no column holds bytes.
dt_status dt_raw_find_members(dt_raw_found *f, char *const *files, size_t n_files, struct dt_table *table, bool *any);

// Sets keys, extensions and the columns that come from names. `by_class`: folders may be classes.
dt_status dt_raw_name_items(dt_raw_found *f, const dt_raw_opts *o, bool by_class);
// After a join: folders are classes if every file lies in one (`by_class`) and no table has a column `label`; the member
// `cls` of a set's records follows a label that a table changes.
dt_status dt_raw_class_joined(dt_raw_found *f, bool by_class);
// A table that may have no line of names (raw_rows.c), and bytes of the NPY file that a row of it is.
dt_status dt_raw_read_numbers(struct dt_table *t, const char *path);
void dt_raw_read_row(const dt_raw *r, const dt_raw_item *item, uint64_t at, void *dst, size_t n_bytes);
// Makes records of items that agree in the captures of `group`.
dt_status dt_raw_group(dt_raw *r, const char *group);
// Whether a list "a,b" has the name.
bool dt_raw_is_listed(const char *list, const char *name);

void dt_raw_sort_columns(dt_raw *r);
// Adds the columns of a table but `skip`, whose rows are those of the items. A column of
// numbers that are not all whole becomes a column of numbers; whole numbers and words become text.
dt_status dt_raw_add_table(dt_raw *r, const struct dt_table *t, int skip);
// Adds columns, "NAME=EXPRESSION" a line; NULL: none. DT_E_USAGE.
dt_status dt_raw_derive(dt_raw *r, const char *columns);
// Joins the tables of o->join, and counts.
dt_status dt_raw_join_tables(dt_raw *r, const dt_raw_opts *o);

#endif
