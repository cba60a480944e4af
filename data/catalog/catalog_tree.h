// catalog_tree.h: tables of an SQLite file written page by page, from sorted rows. Private to data/catalog.
//
// SQLite makes the file with its tables empty; the pages of the large ones are put behind what it wrote.
//
//   dt_tree_file_open     how large a page is, how many there are
//   dt_tree_begin … dt_tree_add … dt_tree_end     a table at a time, rows in order
//   dt_tree_file_close    page 1 says how many there are now; synced
//
// A failure is kept: what comes after does nothing, and dt_tree_file_close returns it.
#ifndef DT_DATA_CATALOG_TREE_H
#define DT_DATA_CATALOG_TREE_H

#include "data/file/bytes.h"

#include "base/status.h"

#include <stdbool.h>

typedef struct dt_tree_file {
    const char *path; // borrowed
    int fd;
    dt_status status; // first failure; its message is that of the thread
    uint32_t page_bytes, usable, n_pages;
    uint8_t *block; // pages that are not written yet
    uint32_t n_block;
} dt_tree_file;

dt_status dt_tree_file_open(dt_tree_file *f, const char *path);
dt_status dt_tree_file_close(dt_tree_file *f);

// A row in SQLite's record format: columns in the order of the table.
enum { DT_TREE_MAX_COLUMNS = 160 };
typedef struct dt_tree_row {
    uint8_t head[9 * DT_TREE_MAX_COLUMNS];
    size_t n_head;
    dt_buffer body;
} dt_tree_row;

void dt_tree_row_reset(dt_tree_row *r);
void dt_tree_row_fini(dt_tree_row *r);
void dt_tree_put_null(dt_tree_row *r);
void dt_tree_put_int(dt_tree_row *r, int64_t v);
// As a NUMERIC column keeps it: whole numbers as integers. NaN: NULL.
void dt_tree_put_real(dt_tree_row *r, double v);
void dt_tree_put_text(dt_tree_row *r, const char *text, size_t n_bytes,
                      bool is_utf8); // else a BLOB

enum { DT_TREE_LEVELS = 20 };

// A page that is still being filled: cells from its end downwards, their places from its beginning.
typedef struct dt_tree_page {
    uint8_t *bytes;
    uint32_t n_cells, begin; // of the cells
} dt_tree_page;

typedef struct dt_tree {
    dt_tree_file *f;
    uint32_t root; // page that SQLite made
    bool by_key;   // a table WITHOUT ROWID: rows are keys, and lie in all pages
    int n_levels;
    dt_tree_page level[DT_TREE_LEVELS]; // the leaf first
    int64_t last;                       // rowid
    dt_buffer cell, split;
} dt_tree;

void dt_tree_begin(dt_tree *t, dt_tree_file *f, uint32_t root, bool by_key);
// rowid grows; of a table by key it is not looked at, and rows come in the order of their keys.
void dt_tree_add(dt_tree *t, int64_t rowid, const dt_tree_row *row);
void dt_tree_end(dt_tree *t);

#endif
