// s3_objects.c: see s3_objects.h. Format: the Amazon S3 API Reference (ListObjectsV2, PutObject, multipart uploads).
#include "s3_objects.h"

#include "base/arena.h"
#include "base/failpoint.h"
#include "base/io.h"
#include "base/thread.h"
#include "blob_url.h"
#include "s3.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PART_BYTES = 8 << 20, MAX_PARTS = 10000, SENDERS = 8, MAX_REPLY = 8 << 20 };

// One request; its parameters stand in `query` in the order of their names, as they are signed. `right`: what it needs.
// `stop`: as in a dt_http_request.
static dt_status s3_objects_ask(dt_http_reply *out, const char *method, const char *url, const char *query,
                                const void *body, size_t n_body, const char *right, const atomic_bool *stop) {
    const dt_http_request r = {.method = method,
                               .body = body,
                               .n_body = n_body,
                               .max_body = MAX_REPLY,
                               .limit_s = 60 + (double)n_body / 1e5,
                               .stop = stop};
    (void)dt_failpoint("s3");
    dt_status st = dt_s3_do(out, &r, url, query, body ? "Content-Type: application/octet-stream" : NULL);
    if (st == DT_OK && (out->status / 100 != 2 || (out->body && strstr(out->body, "<Error>"))))
        st = dt_s3_refused(url, out, right);
    if (st != DT_OK) dt_http_reply_fini(out);
    return st;
}

// ---- listings --------------------------------------------------------------------------------------

// The character of "&#39;" or "&#x27;" at `from`, as UTF-8; *end: behind it. 0 bytes: there is none.
static size_t s3_objects_numbered(const char *from, char to[4], char **end) {
    const bool is_hex = from[2] == 'x';
    const unsigned long c = strtoul(from + 2 + is_hex, end, is_hex ? 16 : 10);
    if (*(*end)++ != ';' || c == 0 || c > 0x10ffff) return 0;
    const size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = 0; i < n; i++) to[i] = (char)(0x80 | (c >> 6 * (n - 1 - i) & 0x3f));
    to[0] = (char)(n == 1 ? c : (0xf0u << (4 - n) & 0xf0) | c >> 6 * (n - 1));
    return n;
}

// XML's five entities, and characters by their number.
static void unescape(char *text) {
    static const char *const ENTITIES[][2] = {
        {"&amp;", "&"}, {"&lt;", "<"}, {"&gt;", ">"}, {"&quot;", "\""}, {"&apos;", "'"}};
    char *to = text;
    for (const char *p = text; *p;) {
        size_t n = 1;
        char c[4], *end;
        const size_t n_c = strncmp(p, "&#", 2) == 0 ? s3_objects_numbered(p, c, &end) : 0;
        if (n_c > 0) {
            memcpy(to, c, n_c);
            to += n_c;
            p = end;
            continue;
        }
        *to = *p;
        for (size_t i = 0; *p == '&' && i < sizeof ENTITIES / sizeof *ENTITIES; i++)
            if (strncmp(p, ENTITIES[i][0], strlen(ENTITIES[i][0])) == 0) {
                *to = *ENTITIES[i][1];
                n = strlen(ENTITIES[i][0]);
                break;
            }
        to++;
        p += n;
    }
    *to = '\0';
}

// Adds what stands behind the prefix in each <element><inner>…</inner></element>.
static void take_names(char ***names, size_t *n, const char *body, const char *element, const char *inner,
                       size_t n_prefix) {
    char *one;
    for (const char *at = body; (one = dt_s3_element(&at, element)); free(one)) {
        const char *in = one;
        char *key = dt_s3_element(&in, inner);
        if (!key) continue;
        unescape(key);
        if (strlen(key) > n_prefix) {
            *names = dt_xgrow(*names, *n, sizeof **names);
            (*names)[(*n)++] = dt_xstrdup(key + n_prefix);
        }
        free(key);
    }
}

static int s3_objects_compare_names(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

// Whether it is a ListBucketResult, whole: each element ends, the last one with the text.
static bool s3_objects_is_whole(const char *body) {
    enum { MAX_DEPTH = 8 };
    const char *open[MAX_DEPTH], *end;
    size_t depth = 0;
    for (const char *p = strchr(body, '<'); p; p = strchr(end, '<')) {
        const char *name = p + 1 + (p[1] == '/');
        const size_t n = strcspn(name, " \t\r\n/>");
        if (!(end = strchr(p, '>'))) return false;
        if (p[1] == '?' || p[1] == '!') continue;
        if (p[1] == '/') {
            if (depth == 0 || strncmp(open[--depth], name, n) != 0) return false;
            if (depth == 0) return end[1 + strspn(end + 1, " \t\r\n")] == '\0';
        } else if (end[-1] != '/') {
            if (depth == MAX_DEPTH) return false;
            if (depth == 0 && strncmp(name, "ListBucketResult", n) != 0) return false;
            open[depth++] = name;
        }
    }
    return false;
}

// Asks for a listing or its next part; *next: the token of what follows then, heap, or NULL; `earlier` is one that came
// before, or NULL. What is none may be a proxy's or a login page, and an end that is not there other objects: it is asked
// for again, and then an error.
static dt_status ask_listing(dt_http_reply *out, const char *root, const char *query, const char *earlier,
                             char **next) {
    enum { ATTEMPTS = 3 };
    *next = NULL;
    for (int i = 0; i < ATTEMPTS; i++) {
        DT_TRY(s3_objects_ask(out, NULL, root, query, NULL, 0, "s3:ListBucket", NULL));
        const char *body = out->body ? out->body : "", *at = body;
        char *more = s3_objects_is_whole(body) ? dt_s3_element(&at, "IsTruncated") : NULL;
        at = body;
        *next = more && strcmp(more, "true") == 0 ? dt_s3_element(&at, "NextContinuationToken") : NULL;
        if (*next) unescape(*next);
        const bool ends = more && strcmp(more, "false") == 0;
        free(more);
        if (ends || (*next && !(earlier && strcmp(earlier, *next) == 0))) return DT_OK;
        free(*next);
        *next = NULL;
        dt_http_reply_fini(out);
    }
    return dt_fail(DT_E_STORAGE,
                   "%s: the answer is no listing of the bucket, or not all of it (a proxy or a "
                   "login page in between?): nothing was done by it",
                   root);
}

static dt_status s3_objects_list(char ***names, size_t *n, const char *prefix, const char *delimiter) {
    const char *bucket = prefix + 5, *slash = strchr(bucket, '/');
    dt_status st = DT_OK;
    size_t n_parts = 0;
    char *token = NULL, *earlier = NULL, *encoded = dt_s3_encode(slash ? slash + 1 : "", false);
    char *root = dt_xprintf("%.*s/", (int)((slash ? slash : bucket + strlen(bucket)) - prefix), prefix);
    *names = NULL;
    *n = 0;
    do {
        char *after = token ? dt_s3_encode(token, false) : NULL;
        char *query = dt_xprintf("%s%s%s%slist-type=2&prefix=%s", after ? "continuation-token=" : "",
                                 after ? after : "", after ? "&" : "", delimiter, encoded);
        dt_http_reply r = {0};
        char *next = NULL;
        st = ask_listing(&r, root, query, earlier, &next);
        if (st == DT_OK) {
            const size_t n_prefix = slash ? strlen(slash + 1) : 0;
            take_names(names, n, r.body, "Contents", "Key", n_prefix);
            take_names(names, n, r.body, "CommonPrefixes", "Prefix", n_prefix);
        }
        free(token);
        token = next;
        n_parts++;
        if (token && (n_parts & (n_parts - 1)) == 0) { // tokens that go round come to it again
            free(earlier);
            earlier = dt_xstrdup(token);
        }
        dt_http_reply_fini(&r);
        free(after);
        free(query);
    } while (st == DT_OK && token);
    if (*n > 0) qsort(*names, *n, sizeof **names, s3_objects_compare_names);
    if (st != DT_OK) {
        dt_io_free_list(*names, *n);
        *names = NULL;
        *n = 0;
    }
    free(earlier);
    free(encoded);
    free(root);
    return st;
}

dt_status dt_s3_list(char ***names, size_t *n, const char *prefix) {
    return s3_objects_list(names, n, prefix, "delimiter=%2F&");
}

dt_status dt_s3_list_below(char ***names, size_t *n, const char *prefix) {
    return s3_objects_list(names, n, prefix, "");
}

// ---- objects and files -----------------------------------------------------------------------------

// A file on its way to an object, or back, in parts that several threads take in turn.
typedef struct transfer {
    const char *url, *path;
    const dt_blob *from, *other; // other: of the same bytes, perhaps
    int fd;                      // of a file that is written
    const atomic_bool *stop;
    char *id; // of an upload in parts
    uint64_t part_bytes;
    uint32_t n_parts;
    char (*tags)[128]; // the parts' ETags
    dt_status (*take_part)(struct transfer *t, uint32_t i, uint64_t at, uint8_t *bytes, size_t n);
    _Atomic uint32_t next;
    _Atomic int failed; // the first status that is none
    char message[1024]; // its
} transfer;

static dt_status send_part(transfer *t, uint32_t i, uint64_t at, uint8_t *bytes, size_t n) {
    dt_http_reply r;
    char *query = t->id ? dt_xprintf("partNumber=%u&uploadId=%s", i + 1, t->id) : NULL;
    const dt_status st = s3_objects_ask(&r, "PUT", t->url, query, bytes, n, "s3:PutObject", t->stop);
    if (st == DT_OK) snprintf(t->tags[i], sizeof t->tags[i], "%s", r.version);
    dt_http_reply_fini(&r);
    free(query);
    return st;
}

static dt_status write_part(transfer *t, uint32_t i, uint64_t at, uint8_t *bytes, size_t n) {
    return dt_io_pwrite(t->fd, t->path, bytes, n, (off_t)at);
}

static dt_status compare_part(transfer *t, uint32_t i, uint64_t at, uint8_t *bytes, size_t n) {
    if (t->stop && *t->stop) return dt_fail(DT_E_STORAGE, "%s: no answer yet", t->url);
    uint8_t *others = dt_xrealloc(NULL, n);
    dt_status st = dt_blob_read(t->other, at, others, n);
    if (st == DT_OK && memcmp(bytes, others, n) != 0)
        st = dt_fail(DT_E_DATA, "%s: other bytes at %llu", t->url, (unsigned long long)at);
    free(others);
    return st;
}

static void take_parts(void *arg, int index) {
    transfer *t = arg;
    uint8_t *bytes = dt_xrealloc(NULL, (size_t)t->part_bytes);
    for (uint32_t i; !t->failed && (i = t->next++) < t->n_parts;) {
        const uint64_t at = i * t->part_bytes, left = t->from->n_bytes - at;
        const size_t n = left < t->part_bytes ? (size_t)left : (size_t)t->part_bytes;
        int none = DT_OK;
        dt_status st = dt_blob_read(t->from, at, bytes, n);
        if (st == DT_OK) st = t->take_part(t, i, at, bytes, n);
        if (st != DT_OK && atomic_compare_exchange_strong(&t->failed, &none, st))
            snprintf(t->message, sizeof t->message, "%s", dt_error_message());
    }
    free(bytes);
}

static dt_status take_all_parts(transfer *t) {
    dt_team *team = NULL;
    DT_TRY(dt_team_create(&team, t->n_parts < SENDERS ? (int)t->n_parts : SENDERS, "dt-s3"));
    dt_team_run(team, take_parts, t);
    dt_team_destroy(team);
    return t->failed ? dt_fail((dt_status)t->failed, "%s", t->message) : DT_OK;
}

// Divides t->from into parts, one at least, and of what is sent no more than a server takes.
static void s3_objects_divide(transfer *t, uint64_t most) {
    t->part_bytes = PART_BYTES;
    while (t->from->n_bytes / t->part_bytes >= most) t->part_bytes *= 2;
    t->n_parts = (uint32_t)((t->from->n_bytes + t->part_bytes - 1) / t->part_bytes);
    t->n_parts += t->n_parts == 0;
}

static dt_status begin_upload(transfer *t) {
    dt_http_reply r;
    DT_TRY(s3_objects_ask(&r, "POST", t->url, "uploads=", "", 0, "s3:PutObject", t->stop));
    const char *at = r.body ? r.body : "";
    char *id = dt_s3_element(&at, "UploadId");
    if (id) unescape(id);
    t->id = id ? dt_s3_encode(id, false) : NULL;
    free(id);
    dt_http_reply_fini(&r);
    return t->id ? DT_OK : dt_fail(DT_E_DATA, "%s: the server begins no upload in parts", t->url);
}

// Whether all bytes that were sent are there.
static bool has_arrived(const transfer *sent) {
    dt_blob object;
    transfer t = {
        .url = sent->url, .from = sent->from, .other = &object, .stop = sent->stop, .take_part = compare_part};
    if (dt_blob_open(&object, sent->url) != DT_OK) return false;
    s3_objects_divide(&t, MAX_PARTS);
    const bool same = object.n_bytes == t.from->n_bytes && take_all_parts(&t) == DT_OK;
    dt_blob_close(&object);
    return same;
}

// All parts are there, or nothing of them stays. Where the answer is lost, the same request is refused: there is no such
// upload any more.
static dt_status end_upload(const transfer *t, dt_status st) {
    char *query = dt_xprintf("uploadId=%s", t->id), *body = NULL;
    size_t n = 0;
    dt_http_reply r = {0};
    if (st == DT_OK) {
        FILE *f = open_memstream(&body, &n);
        fputs("<CompleteMultipartUpload>", f);
        for (uint32_t i = 0; i < t->n_parts; i++)
            fprintf(f, "<Part><PartNumber>%u</PartNumber><ETag>%s</ETag></Part>", i + 1, t->tags[i]);
        fputs("</CompleteMultipartUpload>", f);
        fclose(f);
        st = s3_objects_ask(&r, "POST", t->url, query, body, n, "s3:PutObject", t->stop);
        dt_http_reply_fini(&r);
    }
    if (st != DT_OK) {
        const dt_error_kept why = dt_error_keep();
        if (s3_objects_ask(&r, "DELETE", t->url, query, NULL, 0, "s3:AbortMultipartUpload", t->stop) == DT_OK)
            dt_http_reply_fini(&r);
        if (st == DT_E_DATA && body && has_arrived(t)) st = DT_OK;
        if (st == DT_OK)
            dt_error_clear();
        else
            dt_error_restore(&why);
    }
    free(query);
    free(body);
    return st;
}

static dt_status s3_objects_send_file(const char *url, const dt_blob *file, const atomic_bool *stop) {
    transfer t = {.url = url, .from = file, .stop = stop, .take_part = send_part};
    s3_objects_divide(&t, MAX_PARTS);
    t.tags = dt_xcalloc(t.n_parts, sizeof *t.tags);
    dt_status st = t.n_parts > 1 ? begin_upload(&t) : DT_OK;
    if (st == DT_OK) st = take_all_parts(&t);
    if (t.id) st = end_upload(&t, st);
    free(t.id);
    free(t.tags);
    return st;
}

dt_status dt_s3_put(const char *url, const char *path, const atomic_bool *stop) {
    dt_blob file = {.store = NULL}, object = {.store = NULL};
    uint64_t mine = 0, theirs = 0;
    dt_status st = dt_blob_open(&file, path);
    if (st == DT_OK) st = dt_blob_stamp(&file, &mine);
    if (st == DT_OK) st = s3_objects_send_file(url, &file, stop);
    if (st == DT_OK) st = dt_blob_open(&object, url);
    if (st == DT_OK) st = dt_blob_stamp(&object, &theirs);
    if (st == DT_OK && mine != theirs)
        st = dt_fail(DT_E_STORAGE, "%s: the server has something else than %s: send it again", url, path);
    dt_blob_close(&object);
    dt_blob_close(&file);
    return st;
}

dt_status dt_s3_put_first(const char *url, const char *text, const atomic_bool *stop) {
    const char *header = url[0] == 'g' ? "x-goog-if-generation-match: 0" : "If-None-Match: *";
    const dt_http_request put = {
        .method = "PUT", .body = text, .n_body = strlen(text), .max_body = MAX_REPLY, .stop = stop};
    dt_http_reply r;
    char *there = NULL;
    size_t n;
    (void)dt_failpoint("s3");
    DT_TRY(dt_s3_do(&r, &put, url, NULL, header));
    if (r.status == 501) { // the server knows no such header
        dt_http_reply_fini(&r);
        DT_TRY(dt_s3_do(&r, &put, url, NULL, NULL));
    }
    dt_status st = DT_OK;
    const bool has_one = r.status == 412 || r.status == 409;
    if (has_one) st = dt_blob_read_all(&there, &n, url, MAX_REPLY, true);
    if (has_one && st == DT_OK && !(there && strcmp(there, text) == 0)) // else an answer was lost
        st = dt_fail(DT_E_STORAGE,
                     "%s: is there, but was not listed: the listing was not this bucket's, or "
                     "another process has begun meanwhile; run the same command again",
                     url);
    if (!has_one && r.status / 100 != 2) st = dt_s3_refused(url, &r, "s3:PutObject");
    free(there);
    dt_http_reply_fini(&r);
    return st;
}

dt_status dt_s3_put_files(const char *url, const char *dir, const char *const *names, size_t n, bool move,
                          const atomic_bool *stop) {
    dt_status st = DT_OK;
    for (size_t i = 0; i < n && st == DT_OK; i++) {
        char *path = dt_xprintf("%s/%s", dir, names[i]), *to = dt_xprintf("%s/%s", url, names[i]);
        st = dt_s3_put(to, path, stop);
        if (st == DT_OK && move) st = dt_io_unlink(path);
        free(path);
        free(to);
    }
    return st;
}

dt_status dt_s3_get(const char *path, const char *url) {
    dt_blob object;
    dt_io_file file;
    int absent;
    const dt_status opened = dt_blob_open_url(&object, url, &absent);
    if (opened != DT_OK) return opened == DT_E_DATA && absent != 404 ? DT_E_STORAGE : opened;
    transfer t = {.url = url, .path = path, .from = &object, .take_part = write_part};
    dt_status st = dt_io_begin(&file, path);
    s3_objects_divide(&t, UINT32_MAX);
    t.fd = file.fd;
    if (st == DT_OK && object.n_bytes > 0) st = take_all_parts(&t);
    st = dt_io_end(&file, st);
    dt_blob_close(&object);
    return st;
}

dt_status dt_s3_remove(const char *url, const atomic_bool *stop) {
    dt_http_reply r;
    DT_TRY(s3_objects_ask(&r, "DELETE", url, NULL, NULL, 0, "s3:DeleteObject", stop));
    dt_http_reply_fini(&r);
    return DT_OK;
}
