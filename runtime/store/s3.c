// s3.c: from s3://BUCKET/KEY to a signed request. Format: the Amazon S3 API Reference; path style where an endpoint is
// given or the bucket's name has dots, which a certificate's wildcard does not cover.
#include "s3.h"

#include "aws_credentials.h"
#include "base/arena.h"
#include "base/text.h"
#include "base/url.h"
#include "base/watch.h"

#include <pthread.h>
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
    options.found = false;
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
    if (!options.found && !options.endpoint) options.endpoint = first_of(ENDPOINTS, "endpoint_url");
    if (!options.found && !options.region) options.region = first_of(REGIONS, "region");
    options.found = true;
}

char *dt_s3_encode(const char *text, bool is_key) {
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    static const char hex[] = "0123456789ABCDEF";
    char *out = dt_xcalloc(3 * strlen(text) + 1, 1), *p = out;
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        if (strchr(plain, c) || (is_key && c == '/'))
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
        out = dt_xprintf("%.*s/%.*s/%s", (int)strlen(endpoint) - (endpoint[strlen(endpoint) - 1] == '/'), endpoint, n,
                         bucket, key);
    else if (memchr(bucket, '.', (size_t)n))
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
    const dt_status st = dt_aws_credentials_get(&c);
    if (st != DT_OK) return dt_fail_context(st, "%s", url);
    r->user = dt_xprintf("%s:%s", c.key, c.secret);
    r->http.sign = r->scope;
    r->http.user = r->user;
    r->headers[n++] = "x-amz-content-sha256: UNSIGNED-PAYLOAD";
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
    const char *region = options.region ? options.region : url[0] == 'g' ? "auto" : "us-east-1";
    char *object = st == DT_OK ? make_url(url, options.endpoint, region) : NULL;
    r->scope = dt_xprintf("aws:amz:%s:s3", region);
    const bool anonymous = options.anonymous;
    pthread_mutex_unlock(&lock);
    DT_TRY(st);
    r->http.url = r->url = query ? dt_xprintf("%s?%s", object, query) : dt_xstrdup(object);
    free(object);
    return anonymous ? DT_OK : sign(r, url, header != NULL);
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
        dt_aws_credentials_forget();
        if (!again) return st;
        dt_http_reply_fini(out);
    }
}

bool dt_s3_absent(const dt_http_reply *r) {
    static const char *const OTHERS[] = {"NoSuchBucket", "SignatureDoesNotMatch", "InvalidAccessKeyId",
                                         "RequestTimeTooSkewed"};
    const char *at = r->body ? r->body : "";
    char *code = dt_s3_element(&at, "Code");
    bool absent = r->status == 404 || r->status == 403;
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
    const dt_status st = dt_fail(DT_E_DATA, "%s: the server says %d%s%s%s%.200s%s", path, r->status, code ? " " : "",
                                 code ? code : "", why ? ": " : "", why ? why : "", advice);
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
