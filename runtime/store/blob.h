// blob.h: a named object whose bytes are read by range, each range checked against the size.
//
// A store says how: files here, bytes in memory for tests and fuzzing. Data files are read through blobs alone, so another
// store is one file: it fills a dt_blob_store and dt_blob_open asks it for the names that it takes.
#ifndef DT_STORE_BLOB_H
#define DT_STORE_BLOB_H

#include "base/core.h"

struct dt_blob_store;
enum { DT_BLOB_HEAD_BYTES = 8192 };
// Of an object: more than servers take (50 TB), and offsets and sizes in one add up without a wrap.
#define DT_BLOB_MAX_BYTES (UINT64_C(1) << 46)

typedef struct dt_blob {
    const struct dt_blob_store *store; // NULL: closed
    const char *path;                  // borrowed
    uint64_t n_bytes;
    uint64_t version; // changes with the content, as the store knows it (files: the time of change in ns)
    union {
        int fd;
        const uint8_t *bytes;
        struct dt_blob_object *object; // blob.c
        struct dt_blob_window *window;
        struct dt_blob_copy *copy; // blob_cache.c
    } u;                           // private to the store
} dt_blob;

// Functions of a store. Ranges lie inside the object. Any thread, several at once.
typedef struct dt_blob_store {
    // n_bytes > 0 at `at`. DT_E_DATA.
    dt_status (*read)(const dt_blob *b, uint64_t at, void *dst, size_t n_bytes);
    void (*close)(dt_blob *b);
    bool remote; // a read takes a round trip over the network
} dt_blob_store;

// A file, or an object by its URL. DT_E_DATA; as dt_io_open_error.
dt_status dt_blob_open(dt_blob *b, const char *path);
// Takes fd over; path names it in messages.
dt_status dt_blob_from_fd(dt_blob *b, const char *path, int fd);
void dt_blob_from_memory(dt_blob *b, const char *name, const void *data, size_t n_bytes);
// The same object read by windows of 256 KiB, for one thread that goes through it in small steps. `of` must stay open.
void dt_blob_by_window(dt_blob *b, const dt_blob *of);
void dt_blob_close(dt_blob *b); // does nothing to a closed blob
// Exactly n_bytes at `at`, or DT_E_DATA that says what the object has.
dt_status dt_blob_read(const dt_blob *b, uint64_t at, void *dst, size_t n_bytes);
// The same to the heap, NUL behind it. DT_E_DATA also where n_bytes is above max_bytes, or more than memory there is.
dt_status dt_blob_load(char **out, const dt_blob *b, uint64_t at, uint64_t n_bytes, uint64_t max_bytes);
// A cheap identity of an object: XXH3 of its size, its first 8 KiB (what a remote object keeps of its opening) and its
// last 12 KiB. An index stores it, and so finds that its file was replaced, or a tar appended to within its padding.
// Hashes of members find other changes.
dt_status dt_blob_stamp(const dt_blob *b, uint64_t *out);

// ---- blob url -----------------------------------------------------------------------------------------------------

// Blobs of objects that an HTTP server or an object store has: http://, https://, s3://, gs:// (store/s3.h).
//
// Opening asks for the first 8 KiB, with which size and version come (the ETag, else Last-Modified); these bytes are kept.
// Each read is a request for a range that must still have this version and size: an object that changed is an error. What
// fails on the way is tried again (store/http.h). A secret in a path is refused (url.h).

// SCHEME://…, of any scheme; opening refuses others than those above.
bool dt_blob_is_url(const char *path);
// *absent: the status of an answer that the server may give where it has no such object (dt_s3_absent), else 0. `path` is
// borrowed.
dt_status dt_blob_open_url(dt_blob *b, const char *path, int *absent);
// Whether the blob is an object whose version is a strong ETag: as long as it is the same, so are the bytes.
bool dt_blob_has_etag(const dt_blob *b);
// All bytes of a file or object, heap, NUL behind them; *text NULL: it is not there. DT_E_DATA: more than max_bytes, which is
// above 0.
// listed: the server has named the object. An answer other than 404 is then a refusal, not an object that is missing:
// DT_E_STORAGE.
dt_status dt_blob_read_all(char **text, size_t *n_bytes, const char *path, size_t max_bytes, bool listed);

#endif
