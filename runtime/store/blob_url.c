// blob_url.c: ranges of remote objects.
#include "blob_url.h"

#include "base/arena.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/url.h"
#include "s3.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
static dt_status blob_url_ask(dt_http_reply *out, const char *path, uint64_t at, const dt_http_part part[2],
                              const char *unchanged, double limit_s) {
    return dt_s3_do(out, &(dt_http_request){.ranged = true, .from = at, .part = {part[0], part[1]}, .limit_s = limit_s},
                    path, NULL, unchanged);
}

// ---- the store -------------------------------------------------------------------------------------

static dt_status read_url(const dt_blob *b, uint64_t at, void *head, size_t n_head, void *dst, size_t n_bytes) {
    const struct dt_blob_object *o = b->u.object;
    if (at + n_head + n_bytes <= o->n_head) {
        if (n_head) memcpy(head, o->head + at, n_head);
        memcpy(dst, o->head + at + n_head, n_bytes);
        return DT_OK;
    }
    char header[160];
    const bool is_weak = strncmp(o->version, "W/", 2) == 0; // such an ETag matches none
    snprintf(header, sizeof header, "%s: %s", *o->version == '"' ? "If-Match" : "If-Unmodified-Since", o->version);
    dt_http_reply r;
    DT_TRY(blob_url_ask(&r, b->path, at, (dt_http_part[2]){{head, n_head}, {dst, n_bytes}},
                        is_weak || !*o->version ? NULL : header, 0));
    dt_status st = DT_OK;
    if (r.status == 416 || (r.status == 206 && r.n_total != b->n_bytes))
        st = dt_fail(DT_E_DATA, "%s: changed while it was read: it had %llu bytes; start again", b->path,
                     (unsigned long long)b->n_bytes);
    else if (r.status == 412 || (r.status == 206 && strcmp(r.version, o->version) != 0))
        st = dt_fail(DT_E_DATA, "%s: changed while it was read: its version was %s and is %s; start again", b->path,
                     o->version, *r.version ? r.version : "another");
    else if (r.status != 206 && dt_s3_refused(b->path, &r, "s3:GetObject") != DT_OK)
        st = r.status == 404 ? DT_E_DATA : DT_E_STORAGE;
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
    dt_status st = blob_url_ask(&r, path, 0, (dt_http_part[2]){{o->head, DT_BLOB_HEAD_BYTES}}, NULL,
                                atomic_load(&has_answered) ? 0 : OPEN_S);
    if (st == DT_OK) atomic_store(&has_answered, true);
    if (st == DT_OK && dt_s3_absent(&r)) *absent = r.status;
    const bool empty = r.status == 416 || (r.status == 200 && r.n_total == 0);
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
    if (listed && st == DT_E_DATA && absent != 404) return DT_E_STORAGE;
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
