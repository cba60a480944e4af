// tar.h: entries of a tar file by offset, and headers to write one. Nothing is ever extracted to disk.
#ifndef DT_DATA_TAR_H
#define DT_DATA_TAR_H

#include "file.h"

enum { DT_TAR_BLOCK = 512, DT_TAR_MAX_PATH = 4096 };

typedef struct dt_tar_entry {
    char path[DT_TAR_MAX_PATH]; // NUL-terminated; "./" in front removed
    bool is_regular;
    bool is_hard;               // of a link: `link` begins at the tar's root, else at the folder of `path`
    char link[DT_TAR_MAX_PATH]; // where a link leads; "": it is none
    uint64_t offset, size;      // of the data; inside the file
} dt_tar_entry;

// What an extended header says about the files that follow.
typedef struct dt_tar_says {
    char path[DT_TAR_MAX_PATH], link[DT_TAR_MAX_PATH];
    bool has_path, has_link, has_size, is_sparse;
    uint64_t size;
} dt_tar_says;

typedef struct dt_tar {
    const dt_blob *blob;
    uint64_t at; // of the next header
    bool ended;
    bool has_end; // an end mark was there: without one, the file may have been cut between members
    dt_tar_says global;
    dt_peek peek; // headers that lie side by side (PAX before each file) are one read
} dt_tar;

// Whether the first bytes of a file are a tar header.
bool dt_tar_starts(const uint8_t *head, size_t n_bytes);
// Bytes of a path in front of ".tar", ".tar.gz", ".tgz", ".tar.zst" or ".tzst"; 0: it ends in none of them.
size_t dt_tar_stem(const char *path);
void dt_tar_begin(dt_tar *t, const dt_blob *blob);
// The next entry, or *more = false at the end. Reads USTAR, PAX (x and g: path, linkpath, size), GNU (L, K, base-256
// numbers) and old headers. DT_E_DATA with the offset when a header is wrong, data is cut, or a file is
// stored sparse or in several volumes.
dt_status dt_tar_next(dt_tar *t, dt_tar_entry *e, bool *more);
// After the last entry: warns and returns true if there is no end mark, or another tar behind it.
bool dt_tar_warn_end(const dt_tar *t);

// Where the links of a tar lead (tar.c): made by another walk over its headers, so only when a link comes. Where a
// header is wrong the walk ends, as dt_tar_next says it.
typedef struct dt_tar_links dt_tar_links;
dt_status dt_tar_links_create(dt_tar_links **out, const dt_blob *blob);
void dt_tar_links_destroy(dt_tar_links *l);
// Where the data of the file lies that a link of this path leads to, over any number of links.
bool dt_tar_links_find(const dt_tar_links *l, const char *path, uint64_t *offset, uint64_t *size);
// Calls visit for that file, named as the link; of a folder for each file in it and in folders that its links lead to.
// *any false: it leads out of the tar, in circles, or to an empty folder. DT_E_DATA: links to folders name files many
// times over, as they may without an end.
typedef void dt_tar_visit(void *arg, const char *path, uint64_t offset, uint64_t size);
dt_status dt_tar_links_visit(dt_tar_links *l, const char *path, dt_tar_visit *each, void *arg, bool *any);

// Appends a USTAR header for a regular file (mode 0644, ids and time 0) to `out`, with a PAX record in
// front where the name is too long or the size too large for USTAR. `out` has DT_TAR_MAX_HEADER bytes.
enum { DT_TAR_MAX_HEADER = 512 * 2 + DT_TAR_MAX_PATH + 512 };
dt_status dt_tar_write_header(uint8_t *out, size_t *n_bytes, const char *path, uint64_t size);
static inline uint64_t dt_tar_padded(uint64_t size) {
    return (size + 511) & ~UINT64_C(511);
}

#endif
