// s3.c: from s3://BUCKET/KEY to a signed request. Format: the Amazon S3 API Reference; path style where an endpoint is
// given or the bucket's name has dots, which a certificate's wildcard does not cover.

#include "s3.h"

#include "blob.h"

#include "base/core.h"
#include "base/failpoint.h"
#include "base/io.h"
#include "base/sort.h"
#include "base/text.h"
#include "base/thread.h"
#include "base/url.h"
#include "base/watch.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    char *endpoint, *region; // NULL: none
    bool anonymous;
    bool found; // what the config leaves out was looked for
} options;      // under `lock`

static void replace(char **old, char *text) {
    free(*old);
    *old = text;
}

void dt_s3_configure(const dt_s3_options *o) {
    pthread_mutex_lock(&lock);
    replace(&options.endpoint, o->endpoint ? dt_xstrdup(o->endpoint) : NULL);
    replace(&options.region, o->region ? dt_xstrdup(o->region) : NULL);
    options.anonymous = o->anonymous;
    options.found = false; // what is not given is looked for again
    pthread_mutex_unlock(&lock);
}

bool dt_s3_is_url(const char *path) {
    return strncmp(path, "s3://", 5) == 0 || strncmp(path, "gs://", 5) == 0;
}

static char *first_of(const char *const *names, const char *setting) {
    for (; *names; names++)
        if (getenv(*names) && *getenv(*names)) return dt_xstrdup(getenv(*names));
    return dt_aws_profile_get(setting);
}

static void find_options(void) {
    static const char *const ENDPOINTS[] = {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", NULL};
    static const char *const REGIONS[] = {"AWS_REGION", "AWS_DEFAULT_REGION", NULL};
    // the config wins over the environment, and that over the profile
    if (!options.found && !options.endpoint) options.endpoint = first_of(ENDPOINTS, "endpoint_url");
    if (!options.found && !options.region) options.region = first_of(REGIONS, "region");
    options.found = true;
}

char *dt_s3_encode(const char *text, bool is_key) {
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    static const char hex[] = "0123456789ABCDEF";
    char *out = dt_xcalloc(3 * strlen(text) + 1, 1), *p = out; // each byte becomes three at most
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        if (strchr(plain, c) || (is_key && c == '/')) // RFC 3986's unreserved characters, as Signature Version 4 wants
            *p++ = (char)c;
        else {
            *p++ = '%';
            *p++ = hex[c >> 4];
            *p++ = hex[c & 15];
        }
    }
    return out;
}

static char *make_url(const char *url, const char *endpoint, const char *region) {
    const char *bucket = url + 5, *slash = strchr(bucket, '/');
    const int n = slash ? (int)(slash - bucket) : (int)strlen(bucket);
    char *key = dt_s3_encode(slash ? slash + 1 : "", true), *out;
    if (!endpoint && url[0] == 'g') endpoint = "https://storage.googleapis.com";
    if (endpoint)
        // path style: every server of one's own has it
        out = dt_xprintf("%.*s/%.*s/%s", (int)strlen(endpoint) - (endpoint[strlen(endpoint) - 1] == '/'), endpoint, n,
                         bucket, key);
    else if (memchr(bucket, '.', (size_t)n)) // a dot in the host fits no wildcard certificate
        out = dt_xprintf("https://s3.%s.amazonaws.com/%.*s/%s", region, n, bucket, key);
    else
        out = dt_xprintf("https://%.*s.s3.%s.amazonaws.com/%s", n, bucket, region, key);
    free(key);
    return out;
}

// Under `lock`. An endpoint stands in messages.
static dt_status check_endpoint(const char *url) {
    const char *e = options.endpoint;
    const char *what = "the endpoint (data.s3.endpoint, AWS_ENDPOINT_URL or endpoint_url of the profile)";
    if (!e) return DT_OK;
    if (dt_url_check(e) != DT_OK) return dt_fail_context(DT_E_USAGE, "%s: %s", url, what);
    if (dt_http_is_url(e)) return DT_OK;
    return dt_fail(DT_E_USAGE, "%s: %s is '%s'; expected https://HOST or http://HOST", url, what,
                   strchr(e, '@') ? "…@…" : e);
}

typedef struct request {
    dt_http_request http;
    const char *headers[4];
    char *url, *user, *token, *scope;
} request;

static void request_fini(request *r) {
    if (r->user) explicit_bzero(r->user, strlen(r->user));
    if (r->token) explicit_bzero(r->token, strlen(r->token));
    free(r->url);
    free(r->user);
    free(r->token);
    free(r->scope);
}

// n: headers that are there.
static dt_status sign(request *r, const char *url, int n) {
    dt_aws_credentials c = {0};
    const dt_status st = dt_aws_credentials_get(&c); // kept, or fetched anew shortly before their end
    if (st != DT_OK) return dt_fail_context(st, "%s", url);
    r->user = dt_xprintf("%s:%s", c.key, c.secret);
    r->http.sign = r->scope;
    r->http.user = r->user;
    r->headers[n++] = "x-amz-content-sha256: UNSIGNED-PAYLOAD"; // hashing would read each body twice
    if (c.token) r->headers[n++] = r->token = dt_xprintf("x-amz-security-token: %s", c.token);
    dt_aws_credentials_fini(&c);
    return DT_OK;
}

static dt_status s3_prepare(request *r, const char *url, const char *query, const char *header) {
    const char *slash = strchr(url + 5, '/');
    r->http.headers = r->headers;
    r->headers[0] = header;
    r->http.url = url;
    if (!dt_s3_is_url(url)) return DT_OK;
    if (url[5] == '/' || !slash || (!slash[1] && !query))
        return dt_fail(DT_E_USAGE,
                       "%s: an object is named like s3://BUCKET/KEY, and all of a bucket like "
                       "s3://BUCKET/",
                       url);
    pthread_mutex_lock(&lock);
    find_options();
    const dt_status st = check_endpoint(url);
    // what the signature names where nothing is set
    const char *region = options.region ? options.region : url[0] == 'g' ? "auto" : "us-east-1";
    char *object = st == DT_OK ? make_url(url, options.endpoint, region) : NULL;
    r->scope = dt_xprintf("aws:amz:%s:s3", region);
    const bool anonymous = options.anonymous;
    pthread_mutex_unlock(&lock);
    DT_TRY(st);
    r->http.url = r->url = query ? dt_xprintf("%s?%s", object, query) : dt_xstrdup(object);
    free(object);
    return anonymous ? DT_OK : sign(r, url, header != NULL); // outside of the lock: credentials may take a request
}

// Whether the server refused credentials that have ended.
static bool has_expired(const dt_http_reply *r) {
    return (r->status == 400 || r->status == 403) && r->body && strstr(r->body, "<Code>ExpiredToken</Code>");
}

dt_status dt_s3_do(dt_http_reply *out, const dt_http_request *r, const char *url, const char *query,
                   const char *header) {
    for (bool again = dt_s3_is_url(url);; again = false) {
        request q = {.http = *r};
        *out = (dt_http_reply){0};
        dt_status st = s3_prepare(&q, url, query, header);
        if (st == DT_OK) {
            dt_watch_begin(url, r->body ? "write" : "read");
            st = dt_http_do(out, &q.http);
            dt_watch_end();
        }
        request_fini(&q);
        if (st != DT_OK || !has_expired(out)) return st;
        dt_aws_credentials_forget(); // once: what is fetched anew is not refused for its age
        if (!again) return st;
        dt_http_reply_fini(out);
    }
}

bool dt_s3_absent(const dt_http_reply *r) {
    static const char *const OTHERS[] = {"NoSuchBucket", "SignatureDoesNotMatch", "InvalidAccessKeyId",
                                         "RequestTimeTooSkewed"};
    const char *at = r->body ? r->body : "";
    char *code = dt_s3_element(&at, "Code");
    bool absent = r->status == 404 || r->status == 403; // 403: without s3:ListBucket a server does not tell
    for (size_t i = 0; code && i < sizeof OTHERS / sizeof *OTHERS; i++) absent = absent && strcmp(code, OTHERS[i]) != 0;
    free(code);
    return absent;
}

// `where`: what a 301 says beside the message, or NULL.
static void advise(char out[256], const char *path, int status, const char *code, const char *where,
                   const char *right) {
    const bool is_s3 = dt_s3_is_url(path);
    *out = '\0';
    if (code && strcmp(code, "RequestTimeTooSkewed") == 0)
        snprintf(out, 256, "; this machine's clock is wrong: set it");
    else if (code && strcmp(code, "ExpiredToken") == 0)
        snprintf(out, 256, "; the credentials have ended: get new ones, and run the same command again");
    else if (code && strcmp(code, "NoSuchBucket") == 0)
        snprintf(out, 256, "; check the bucket's name, and data.s3.endpoint");
    else if (is_s3 && (status == 301 || status == 307))
        snprintf(out, 256, "; the bucket is in another region%s%.100s%s: set data.s3.region", where ? " (" : "",
                 where ? where : "", where ? ")" : "");
    else if (is_s3 && (status == 403 || status == 401))
        snprintf(out, 256,
                 "; check the credentials and what they may do (%s), or data.s3.anonymous=true for "
                 "what everybody may read",
                 right);
    else if (status == 403 || status == 401)
        snprintf(out, 256, "; a name and a password for this server belong in ~/.netrc");
    else if (status == 404)
        snprintf(out, 256, "; check its name, which must be an object's and no folder's%s",
                 is_s3 ? " (a prefix ends with a slash)" : "");
}

dt_status dt_s3_refused(const char *path, const dt_http_reply *r, const char *right) {
    char advice[256];
    const char *at = r->body ? r->body : "", *begin = at;
    char *code = dt_s3_element(&at, "Code"), *why = dt_s3_element(&at, "Message");
    if (why && dt_text_ends(why, ".")) why[strlen(why) - 1] = '\0';
    char *where = dt_s3_element(&begin, "Endpoint");
    advise(advice, path, r->status, code, where, right);
    const dt_status st = dt_fail(DT_E_DATA, "%s: the server returned %d%s%s%s%.200s%s", path, r->status,
                                 code ? " " : "", code ? code : "", why ? ": " : "", why ? why : "", advice);
    free(code);
    free(why);
    free(where);
    return st;
}

char *dt_s3_element(const char **at, const char *name) {
    char *open = dt_xprintf("<%s>", name), *close = dt_xprintf("</%s>", name), *out = NULL;
    const char *begin = strstr(*at, open);
    const char *end = begin ? strstr(begin, close) : NULL;
    if (end) {
        begin += strlen(open);
        out = dt_xprintf("%.*s", (int)(end - begin), begin);
        *at = end + strlen(close);
    }
    free(open);
    free(close);
    return out;
}

// ---- s3 objects ---------------------------------------------------------------------------------------------------

enum { PART_BYTES = 8 << 20, MAX_PARTS = 10000, SENDERS = 8, MAX_REPLY = 8 << 20 };

// One request; its parameters stand in `query` in the order of their names, as they are signed. `right`: what it needs.
// `stop`: as in a dt_http_request.
static dt_status s3_objects_ask(dt_http_reply *out, const char *method, const char *url, const char *query,
                                const void *body, size_t n_body, const char *right, const atomic_bool *stop) {
    const dt_http_request r = {.method = method,
                               .body = body,
                               .n_body = n_body,
                               .max_body = MAX_REPLY,
                               .limit_s = 60 + (double)n_body / 1e5, // a body at 100 kB/s is in time
                               .stop = stop};
    (void)dt_failpoint("s3");
    dt_status st = dt_s3_do(out, &r, url, query, body ? "Content-Type: application/octet-stream" : NULL);
    // CompleteMultipartUpload may fail with status 200
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
    if (*(*end)++ != ';' || c == 0 || c > 0x10ffff) return 0; // beyond Unicode
    const size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = 0; i < n; i++) to[i] = (char)(0x80 | (c >> 6 * (n - 1 - i) & 0x3f));
    // the first byte has as many leading ones as there are bytes
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
        if (strlen(key) > n_prefix) { // the prefix itself may be an object: a folder's mark
            *names = dt_xgrow(*names, *n, sizeof **names);
            (*names)[(*n)++] = dt_xstrdup(key + n_prefix);
        }
        free(key);
    }
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
        if (p[1] == '?' || p[1] == '!') continue; // the declaration, a comment
        if (p[1] == '/') {
            if (depth == 0 || strncmp(open[--depth], name, n) != 0) return false;
            if (depth == 0) return end[1 + strspn(end + 1, " \t\r\n")] == '\0';
        } else if (end[-1] != '/') { // <Key/> opens nothing
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
                   "%s: the response is not a complete listing of the bucket (a proxy or a login page in between?): "
                   "nothing was changed",
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
    if (*n > 0) qsort(*names, *n, sizeof **names, dt_sort_strings);
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
    // the end of the upload names each part by its ETag
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
    for (uint32_t i; !t->failed && (i = t->next++) < t->n_parts;) { // the first failure ends all threads
        const uint64_t at = i * t->part_bytes, left = t->from->n_bytes - at;
        const size_t n = left < t->part_bytes ? (size_t)left : (size_t)t->part_bytes;
        int none = DT_OK;
        dt_status st = dt_blob_read(t->from, at, bytes, n);
        if (st == DT_OK) st = t->take_part(t, i, at, bytes, n);
        // the first error alone: others follow from it
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
    while (t->from->n_bytes / t->part_bytes >= most) t->part_bytes *= 2; // S3 takes 10,000 parts of an upload
    t->n_parts = (uint32_t)((t->from->n_bytes + t->part_bytes - 1) / t->part_bytes);
    t->n_parts += t->n_parts == 0; // an empty object is a part of 0 bytes
}

static dt_status begin_upload(transfer *t) {
    dt_http_reply r;
    DT_TRY(s3_objects_ask(&r, "POST", t->url, "uploads=", "", 0, "s3:PutObject", t->stop));
    const char *at = r.body ? r.body : "";
    char *id = dt_s3_element(&at, "UploadId");
    if (id) unescape(id); // XML first, then the query's own escapes
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
    if (dt_blob_open(&object, sent->url) != DT_OK) return false; // the caller keeps its own error
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
        const dt_error_kept why = dt_error_keep(); // what follows may fail, too
        // parts that stay are paid for
        if (s3_objects_ask(&r, "DELETE", t->url, query, NULL, 0, "s3:AbortMultipartUpload", t->stop) == DT_OK)
            dt_http_reply_fini(&r);
        if (st == DT_E_DATA && body && has_arrived(t)) st = DT_OK; // the upload had ended: the answer was lost
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
    dt_status st = t.n_parts > 1 ? begin_upload(&t) : DT_OK; // one part is a plain PUT
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
    if (st == DT_OK) st = dt_blob_open(&object, url); // read back: a proxy's 200 is no stored object
    if (st == DT_OK) st = dt_blob_stamp(&object, &theirs);
    if (st == DT_OK && mine != theirs)
        st = dt_fail(DT_E_STORAGE, "%s: the server has something else than %s: send it again", url, path);
    dt_blob_close(&object);
    dt_blob_close(&file);
    return st;
}

dt_status dt_s3_put_first(const char *url, const char *text, const atomic_bool *stop) {
    // GCS has its own condition for "only if there is none"
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
    const bool has_one = r.status == 412 || r.status == 409; // 412: there is one; 409: another PUT is under way
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
        if (st == DT_OK && move) st = dt_io_unlink(path); // only what the server has is removed here
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
    // the object was listed: but for 404 the server refuses it
    if (opened != DT_OK) return opened == DT_E_DATA && absent != 404 ? DT_E_STORAGE : opened;
    transfer t = {.url = url, .path = path, .from = &object, .take_part = write_part};
    dt_status st = dt_io_begin(&file, path);
    s3_objects_divide(&t, UINT32_MAX); // ranges that are read have no limit
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
