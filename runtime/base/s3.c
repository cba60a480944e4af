// s3.c: from s3://BUCKET/KEY to a signed request. Format: the Amazon S3 API Reference; path style where an endpoint is
// given or the bucket's name has dots, which a certificate's wildcard does not cover.
#include "s3.h"

#include "arena.h"
#include "aws_credentials.h"

#include <stdlib.h>
#include <string.h>

static struct {
    char *endpoint, *region;
    bool anonymous;
} options;

static void replace(char **old, const char *text) {
    free(*old);
    *old = text ? dt_xstrdup(text) : NULL;
}

void dt_s3_configure(const dt_s3_options *o) {
    replace(&options.endpoint, o->endpoint);
    replace(&options.region, o->region);
    options.anonymous = o->anonymous;
}

bool dt_s3_is_url(const char *path) {
    return strncmp(path, "s3://", 5) == 0 || strncmp(path, "gs://", 5) == 0;
}

static char *first_of(const char *given, const char *const *names, const char *setting) {
    if (given) return dt_xstrdup(given);
    for (; *names; names++)
        if (getenv(*names) && *getenv(*names)) return dt_xstrdup(getenv(*names));
    return dt_aws_profile_get(setting);
}

// Percent-encodes a key in the form that is signed: all characters but letters, digits, -._~ and the slashes.
static char *encode(const char *key) {
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/";
    static const char hex[] = "0123456789ABCDEF";
    char *out = dt_xcalloc(3 * strlen(key) + 1, 1), *p = out;
    for (; *key; key++) {
        const unsigned char c = (unsigned char)*key;
        if (strchr(plain, c))
            *p++ = (char)c;
        else {
            *p++ = '%';
            *p++ = hex[c >> 4];
            *p++ = hex[c & 15];
        }
    }
    return out;
}

static char *make_url(const char *url, const char *endpoint, const char *region,
                      const char *query) {
    const char *bucket = url + 5, *slash = strchr(bucket, '/');
    const int n = slash ? (int)(slash - bucket) : (int)strlen(bucket);
    char *key = encode(slash ? slash + 1 : ""), *out;
    const char *mark = query ? "?" : "";
    if (!query) query = "";
    if (!endpoint && url[0] == 'g') endpoint = "https://storage.googleapis.com";
    if (endpoint)
        out = dt_xprintf("%.*s/%.*s/%s%s%s",
                         (int)strlen(endpoint) - (endpoint[strlen(endpoint) - 1] == '/'), endpoint,
                         n, bucket, key, mark, query);
    else if (memchr(bucket, '.', (size_t)n))
        out = dt_xprintf("https://s3.%s.amazonaws.com/%.*s/%s%s%s", region, n, bucket, key, mark,
                         query);
    else
        out = dt_xprintf("https://%.*s.s3.%s.amazonaws.com/%s%s%s", n, bucket, region, key, mark,
                         query);
    free(key);
    return out;
}

dt_status dt_s3_prepare(dt_s3_request *r, const char *url, const char *query, const char *extra) {
    static const char *const ENDPOINTS[] = {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", NULL};
    static const char *const REGIONS[] = {"AWS_REGION", "AWS_DEFAULT_REGION", NULL};
    const char *slash = strchr(url + 5, '/');
    if (url[5] == '/' || (!query && (!slash || !slash[1])))
        return dt_fail(DT_E_USAGE, "%s: an object is named like s3://BUCKET/KEY", url);
    char *endpoint = first_of(options.endpoint, ENDPOINTS, "endpoint_url");
    char *region = first_of(options.region, REGIONS, "region");
    if (!region) region = dt_xstrdup(url[0] == 'g' ? "auto" : "us-east-1");
    int n = 0;
    r->url = make_url(url, endpoint, region, query);
    r->http.url = r->url;
    free(endpoint);
    dt_aws_credentials c = {0};
    dt_status st = options.anonymous ? DT_OK : dt_aws_credentials_get(&c);
    if (st != DT_OK) st = dt_fail_context(st, "%s", url);
    if (st == DT_OK && !options.anonymous) {
        r->scope = dt_xprintf("aws:amz:%s:s3", region);
        r->user = dt_xprintf("%s:%s", c.key, c.secret);
        r->http.sign = r->scope;
        r->http.user = r->user;
        r->headers[n++] = "x-amz-content-sha256: UNSIGNED-PAYLOAD";
        if (c.token) r->headers[n++] = r->token = dt_xprintf("x-amz-security-token: %s", c.token);
    }
    if (extra) r->headers[n++] = extra;
    r->headers[n] = NULL;
    r->http.headers = r->headers;
    dt_aws_credentials_fini(&c);
    free(region);
    return st;
}

void dt_s3_request_fini(dt_s3_request *r) {
    if (r->user) explicit_bzero(r->user, strlen(r->user));
    if (r->token) explicit_bzero(r->token, strlen(r->token));
    free(r->url);
    free(r->user);
    free(r->token);
    free(r->scope);
    r->url = r->user = r->token = r->scope = NULL;
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
