// blob.c: files and memory by range.
//
// Datasets are read with pread and not through a map. A map would save one copy (10 us for a 230 KB
// image, where decoding takes 40 us and more), but a file that is cut or a disk that fails while it is
// mapped is a SIGBUS that names nothing, and mapped pages count as this process's memory. With pread
// both are an error with file and offset, and the copy leaves the bytes in the cache for the hash and the decoder.

#include "blob.h"

#include "s3.h"

#include "base/core.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/stated.h"
#include "base/url.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- files -----------------------------------------------------------------------------------------

static dt_status blob_read_file(const dt_blob *b, uint64_t at, void *dst, size_t n_bytes) {
    return dt_io_pread(b->u.fd, b->path, dst, n_bytes, (off_t)at, DT_E_DATA);
}

static void blob_close_file(dt_blob *b) {
    close(b->u.fd);
}

static const dt_blob_store FILES = {blob_read_file, blob_close_file, false};

dt_status dt_blob_from_fd(dt_blob *b, const char *path, int fd) {
    struct stat st;
    *b = (dt_blob){.store = &FILES, .path = path, .u.fd = fd};
    dt_status failed = DT_OK;
    if (fstat(fd, &st) != 0)
        failed = dt_io_read_error(path, "look at", errno, DT_E_DATA);
    else if (!S_ISREG(st.st_mode)) // a folder, a pipe: no size, no ranges
        failed = dt_fail(DT_E_DATA, "%s: not a regular file", path);
    else if ((uint64_t)st.st_size > DT_BLOB_MAX_BYTES)
        failed = dt_fail(DT_E_DATA, "%s: %lld bytes, more than a data file can have", path, (long long)st.st_size);
    else {
        b->n_bytes = (uint64_t)st.st_size;
        b->version = (uint64_t)st.st_mtim.tv_sec * 1000000000 + (uint64_t)st.st_mtim.tv_nsec; // wraps in the year 2554
    }
    if (failed != DT_OK) dt_blob_close(b);
    return failed;
}

dt_status dt_blob_open(dt_blob *b, const char *path) {
    *b = (dt_blob){.path = path};
    int absent;
    if (dt_blob_is_url(path)) return dt_blob_open_url(b, path, &absent);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // or a pipe would wait for its writer
    if (fd < 0) return dt_io_read_error(path, "open", errno, DT_E_DATA);
    return dt_blob_from_fd(b, path, fd);
}

// ---- memory ----------------------------------------------------------------------------------------

static dt_status read_memory(const dt_blob *b, uint64_t at, void *dst, size_t n_bytes) {
    memcpy(dst, b->u.bytes + at, n_bytes);
    return DT_OK;
}

static void forget_memory(dt_blob *b) {
    b->u.bytes = NULL; // the caller owns the memory
}

static const dt_blob_store MEMORY = {read_memory, forget_memory, false};

void dt_blob_from_memory(dt_blob *b, const char *name, const void *data, size_t n_bytes) {
    *b = (dt_blob){.store = &MEMORY, .path = name, .n_bytes = n_bytes, .u.bytes = data};
}

// ---- windows ---------------------------------------------------------------------------------------

enum { WINDOW_BYTES = 256 << 10 };

struct dt_blob_window {
    const dt_blob *of;
    uint64_t at;
    size_t n;
    uint8_t bytes[WINDOW_BYTES];
};

static dt_status blob_read_window(const dt_blob *b, uint64_t at, void *dst, size_t n_bytes) {
    struct dt_blob_window *w = b->u.window;
    if (n_bytes > WINDOW_BYTES) return dt_blob_read(w->of, at, dst, n_bytes); // larger than the window: no use of it
    if (at < w->at || at + n_bytes > w->at + w->n) {
        w->n = 0; // a read that fails leaves nothing behind
        w->at = at;
        const size_t n = b->n_bytes - at < WINDOW_BYTES ? (size_t)(b->n_bytes - at) : WINDOW_BYTES;
        DT_TRY(dt_blob_read(w->of, at, w->bytes, n));
        w->n = n;
    }
    memcpy(dst, w->bytes + (at - w->at), n_bytes);
    return DT_OK;
}

static void close_window(dt_blob *b) {
    free(b->u.window);
}

static const dt_blob_store WINDOWS = {blob_read_window, close_window, false};

void dt_blob_by_window(dt_blob *b, const dt_blob *of) {
    *b = *of; // size, path and version are the same
    b->store = &WINDOWS;
    b->u.window = dt_xcalloc(1, sizeof *b->u.window);
    b->u.window->of = of;
}

// ---- any store -------------------------------------------------------------------------------------

void dt_blob_close(dt_blob *b) {
    if (b->store) b->store->close(b);
    b->store = NULL;
}

static dt_status check_range(const dt_blob *b, uint64_t at, uint64_t n_bytes) {
    if (at <= b->n_bytes && n_bytes <= b->n_bytes - at) return DT_OK; // no sum that may wrap
    return dt_fail(DT_E_DATA, "%s: %llu bytes wanted at offset %llu, but the file ends at %llu", b->path,
                   (unsigned long long)n_bytes, (unsigned long long)at, (unsigned long long)b->n_bytes);
}

dt_status dt_blob_read(const dt_blob *b, uint64_t at, void *dst, size_t n_bytes) {
    DT_TRY(check_range(b, at, n_bytes));
    return n_bytes == 0 ? DT_OK : b->store->read(b, at, dst, n_bytes);
}

dt_status dt_blob_load(char **out, const dt_blob *b, uint64_t at, uint64_t n_bytes, uint64_t max_bytes) {
    size_t n;
    *out = NULL;
    DT_TRY(check_range(b, at, n_bytes));
    if (!dt_stated_size(n_bytes, 1, max_bytes, &n))
        return dt_fail(DT_E_DATA, "%s: %llu bytes, more than the limit of %llu", b->path, (unsigned long long)n_bytes,
                       (unsigned long long)max_bytes);
    char *data = malloc(n + 1); // the size is stated by a file: too much is an error of the data
    if (!data) return dt_fail(DT_E_DATA, "%s: no memory for %zu bytes", b->path, n);
    data[n] = '\0';
    const dt_status st = dt_blob_read(b, at, data, n);
    if (st == DT_OK)
        *out = data;
    else
        free(data);
    return st;
}

// A tar ends in zeros, up to 20 blocks of them. `tar -r` writes over them, so what it adds to a small shard may leave
// the size unchanged. But the added bytes begin in the last 21 blocks, which the stamp covers.
enum { HEAD_BYTES = DT_BLOB_HEAD_BYTES, TAIL_BYTES = 12288 };

dt_status dt_blob_stamp(const dt_blob *b, uint64_t *out) {
    uint8_t buf[8 + HEAD_BYTES + TAIL_BYTES];
    size_t head = b->n_bytes < HEAD_BYTES ? (size_t)b->n_bytes : HEAD_BYTES;
    size_t tail = b->n_bytes < TAIL_BYTES ? (size_t)b->n_bytes : TAIL_BYTES;
    memcpy(buf, &b->n_bytes, 8); // 8 bytes of size, head, tail: they overlap in a small file
    DT_TRY(dt_blob_read(b, 0, buf + 8, head));
    DT_TRY(dt_blob_read(b, b->n_bytes - tail, buf + 8 + head, tail));
    *out = dt_hash64(buf, 8 + head + tail);
    return DT_OK;
}

// ---- blob url -----------------------------------------------------------------------------------------------------

// Ranges of remote objects.

struct dt_blob_object {
    char version[sizeof((dt_http_reply *)0)->version];
    size_t n_head;
    uint8_t head[DT_BLOB_HEAD_BYTES];
};

bool dt_blob_is_url(const char *path) {
    return strncmp(path + strcspn(path, ":/"), "://", 3) == 0;
}

// ---- requests --------------------------------------------------------------------------------------

// A server that does not answer while an object is opened may be a name that is wrong, until one has answered.
enum { OPEN_S = 15 };
static atomic_bool has_answered;

// Requests a range of the object; `unchanged`: a header that wants its version, or NULL.
static dt_status blob_url_ask(dt_http_reply *out, const char *path, uint64_t at, void *dst, size_t n_bytes,
                              const char *unchanged, double limit_s) {
    return dt_s3_do(out, &(dt_http_request){.range = dst, .from = at, .n_range = n_bytes, .limit_s = limit_s}, path,
                    NULL, unchanged);
}

// ---- the store -------------------------------------------------------------------------------------

static dt_status read_url(const dt_blob *b, uint64_t at, void *dst, size_t n_bytes) {
    const struct dt_blob_object *o = b->u.object;
    if (at + n_bytes <= o->n_head) { // opening has fetched it
        memcpy(dst, o->head + at, n_bytes);
        return DT_OK;
    }
    char header[160];
    const bool is_weak = strncmp(o->version, "W/", 2) == 0; // such an ETag matches none
    // the server itself refuses a range of another version
    snprintf(header, sizeof header, "%s: %s", *o->version == '"' ? "If-Match" : "If-Unmodified-Since", o->version);
    dt_http_reply r;
    DT_TRY(blob_url_ask(&r, b->path, at, dst, n_bytes, is_weak || !*o->version ? NULL : header, 0));
    dt_status st = DT_OK;
    // no condition covers a weak ETag or none: size and version are compared here, too
    if (r.status == 416 || (r.status == 206 && r.n_total != b->n_bytes))
        st = dt_fail(DT_E_DATA, "%s: changed while it was read: it had %llu bytes; start again", b->path,
                     (unsigned long long)b->n_bytes);
    else if (r.status == 412 || (r.status == 206 && strcmp(r.version, o->version) != 0)) // 412: If-Match failed
        st = dt_fail(DT_E_DATA, "%s: changed while it was read: its version was %s and is %s; start again", b->path,
                     o->version, *r.version ? r.version : "another");
    else if (r.status != 206 && dt_s3_refused(b->path, &r, "s3:GetObject") != DT_OK)
        st = r.status == 404 ? DT_E_DATA : DT_E_STORAGE; // 404: it is gone; else the server will not give it
    dt_http_reply_fini(&r);
    return st;
}

static void close_url(dt_blob *b) {
    free(b->u.object);
}

static const dt_blob_store URLS = {read_url, close_url, true};

bool dt_blob_has_etag(const dt_blob *b) {
    return b->store == &URLS && *b->u.object->version == '"';
}

dt_status dt_blob_open_url(dt_blob *b, const char *path, int *absent) {
    *absent = 0;
    *b = (dt_blob){.path = path};
    DT_TRY(dt_url_check(path));
    if (!dt_http_is_url(path) && !dt_s3_is_url(path))
        return dt_fail(DT_E_USAGE,
                       "%s: only files, by their path, and http://, https://, s3:// and gs:// are "
                       "read; copy the data here, or name it so",
                       path);
    dt_http_reply r = {0};
    struct dt_blob_object *o = dt_xcalloc(1, sizeof *o);
    dt_status st =
        blob_url_ask(&r, path, 0, o->head, DT_BLOB_HEAD_BYTES, NULL, atomic_load(&has_answered) ? 0 : OPEN_S);
    if (st == DT_OK) atomic_store(&has_answered, true);
    if (st == DT_OK && dt_s3_absent(&r)) *absent = r.status;
    const bool empty = r.status == 416 || (r.status == 200 && r.n_total == 0); // no range lies inside 0 bytes
    if (st == DT_OK && r.status != 206 && !empty) st = dt_s3_refused(path, &r, "s3:GetObject");
    if (st == DT_OK && !empty && r.n_total > DT_BLOB_MAX_BYTES)
        st = dt_fail(DT_E_DATA, "%s: the server states %llu bytes, more than an object can have", path,
                     (unsigned long long)r.n_total);
    if (st == DT_OK) {
        o->n_head = empty ? 0 : r.n_total < DT_BLOB_HEAD_BYTES ? (size_t)r.n_total : DT_BLOB_HEAD_BYTES;
        memcpy(o->version, r.version, sizeof o->version);
        *b = (dt_blob){.store = &URLS,
                       .path = path,
                       .n_bytes = empty ? 0 : r.n_total,
                       .version = dt_hash64(o->version, strlen(o->version)),
                       .u.object = o};
    } else
        free(o);
    dt_http_reply_fini(&r);
    return st;
}

dt_status dt_blob_read_all(char **text, size_t *n_bytes, const char *path, size_t max_bytes, bool listed) {
    *text = NULL;
    *n_bytes = 0;
    if (!dt_blob_is_url(path))
        return dt_io_exists(path) ? dt_io_read_file(text, n_bytes, path, max_bytes, DT_E_DATA) : DT_OK;
    dt_blob b;
    int absent;
    dt_status st = dt_blob_open_url(&b, path, &absent);
    if (listed && st == DT_E_DATA && absent != 404) return DT_E_STORAGE; // 403 would else pass for "not there"
    if (st != DT_OK && absent) {
        dt_error_clear();
        return DT_OK;
    }
    DT_TRY(st);
    st = dt_blob_load(text, &b, 0, b.n_bytes, max_bytes);
    if (st == DT_OK) *n_bytes = (size_t)b.n_bytes;
    dt_blob_close(&b);
    return st;
}
