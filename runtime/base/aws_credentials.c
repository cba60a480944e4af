// aws_credentials.c: the chain of providers. Formats: the AWS SDKs and Tools Reference Guide (shared config files,
// container provider, IMDS version 2, AssumeRoleWithWebIdentity).
#include "aws_credentials.h"

#include "arena.h"
#include "clock.h"
#include "http.h"
#include "ini.h"
#include "io.h"
#include "s3.h"

#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { EARLY_S = 300, ANSWER_BYTES = 65536 };
static const double FETCH_S = 10, METADATA_S = 2; // a machine without metadata does not answer

static const char *env(const char *name) {
    const char *v = getenv(name);
    return v && *v ? v : NULL;
}

// ---- the shared files ------------------------------------------------------------------------------

// A profile's section is [NAME] in `credentials`, and [profile NAME], or [default], in `config`.
char *dt_aws_profile_get(const char *name) {
    static const char *const FILES[][3] = {
        {"AWS_SHARED_CREDENTIALS_FILE", "credentials", ""},
        {"AWS_CONFIG_FILE", "config", "profile "},
        {"AWS_CONFIG_FILE", "config", ""},
    };
    const char *profile = env("AWS_PROFILE") ? env("AWS_PROFILE") : "default", *home = env("HOME");
    const int n = strcmp(profile, "default") == 0 ? 3 : 2;
    char *found = NULL;
    for (int i = 0; i < n && !found; i++) {
        const char *given = env(FILES[i][0]);
        char *path =
            given ? dt_xstrdup(given) : dt_xprintf("%s/.aws/%s", home ? home : "", FILES[i][1]);
        char *section = dt_xprintf("%s%s", FILES[i][2], profile);
        found = dt_ini_get(path, section, name);
        free(section);
        free(path);
    }
    return found;
}

// ---- providers -------------------------------------------------------------------------------------

typedef struct found {
    dt_aws_credentials c;
    double until; // seconds since 1970; 0: for ever
} found;

// "2026-11-25T12:00:00Z"
static double parse_time(const char *text) {
    struct tm t = {0};
    if (!text || sscanf(text, "%d-%d-%dT%d:%d:%d", &t.tm_year, &t.tm_mon, &t.tm_mday, &t.tm_hour,
                        &t.tm_min, &t.tm_sec) != 6)
        return 1; // not a time: the credentials are fetched at each use
    t.tm_year -= 1900;
    t.tm_mon -= 1;
    return (double)timegm(&t);
}

static char *copy(const char *s) {
    return s && *s ? dt_xstrdup(s) : NULL;
}

static bool from_environment(found *f) {
    const char *key = env("AWS_ACCESS_KEY_ID"), *secret = env("AWS_SECRET_ACCESS_KEY");
    if (!key || !secret) return false;
    f->c =
        (dt_aws_credentials){dt_xstrdup(key), dt_xstrdup(secret), copy(env("AWS_SESSION_TOKEN"))};
    return true;
}

static bool from_profile(found *f) {
    f->c = (dt_aws_credentials){dt_aws_profile_get("aws_access_key_id"),
                                dt_aws_profile_get("aws_secret_access_key"),
                                dt_aws_profile_get("aws_session_token")};
    return f->c.key && f->c.secret;
}

static dt_status ask(dt_http_reply *out, const dt_http_request *r, const char *what) {
    dt_status st = dt_http_do(out, r);
    if (st == DT_OK && out->status != 200)
        st = dt_fail(DT_E_STORAGE, "%.*s: the server says %d", dt_http_shown(r->url), r->url,
                     out->status);
    return st == DT_OK ? DT_OK : dt_fail_context(st, "%s", what);
}

// Reads the credentials that a container's agent or the instance's metadata answer with.
static dt_status take_json(found *f, const dt_http_reply *r, const char *what) {
    json_t *root = json_loadb(r->body ? r->body : "", r->n_body, 0, NULL);
    const char *key = json_string_value(json_object_get(root, "AccessKeyId"));
    const char *secret = json_string_value(json_object_get(root, "SecretAccessKey"));
    dt_status st = DT_OK;
    if (key && secret) {
        f->c = (dt_aws_credentials){dt_xstrdup(key), dt_xstrdup(secret),
                                    copy(json_string_value(json_object_get(root, "Token")))};
        f->until = parse_time(json_string_value(json_object_get(root, "Expiration")));
    } else
        st = dt_fail(DT_E_STORAGE, "%s: its answer has no AccessKeyId", what);
    json_decref(root);
    return st;
}

static char *read_token(const char *path) {
    char *text = NULL;
    size_t n;
    if (dt_io_read_file(&text, &n, path, ANSWER_BYTES, DT_E_USAGE) != DT_OK) return NULL;
    text[strcspn(text, "\r\n")] = '\0';
    return text;
}

static dt_status from_container(found *f) {
    static const char what[] = "credentials of the container (AWS_CONTAINER_CREDENTIALS_*)";
    const char *full = env("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    const char *relative = env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *file = env("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    char *token = file ? read_token(file) : copy(env("AWS_CONTAINER_AUTHORIZATION_TOKEN"));
    if (file && !token) return dt_fail_context(DT_E_USAGE, "%s", what);
    char *url = full ? dt_xstrdup(full) : dt_xprintf("http://169.254.170.2%s", relative);
    char *header = token ? dt_xprintf("Authorization: %s", token) : NULL;
    const char *headers[] = {header, NULL};
    dt_http_reply reply;
    dt_status st =
        ask(&reply,
            &(dt_http_request){
                .url = url, .headers = headers, .max_body = ANSWER_BYTES, .limit_s = FETCH_S},
            what);
    if (st == DT_OK) st = take_json(f, &reply, what);
    dt_http_reply_fini(&reply);
    free(url);
    free(header);
    free(token);
    return st;
}

static dt_status from_web_identity(found *f) {
    static const char what[] = "credentials by AWS_WEB_IDENTITY_TOKEN_FILE";
    char *token = read_token(env("AWS_WEB_IDENTITY_TOKEN_FILE"));
    if (!token) return dt_fail_context(DT_E_USAGE, "%s", what);
    const char *region = env("AWS_REGION") ? env("AWS_REGION") : env("AWS_DEFAULT_REGION");
    const char *session = env("AWS_ROLE_SESSION_NAME"), *endpoint = env("AWS_ENDPOINT_URL_STS");
    char *host = endpoint ? dt_xstrdup(endpoint)
                 : region ? dt_xprintf("https://sts.%s.amazonaws.com", region)
                          : dt_xstrdup("https://sts.amazonaws.com");
    // the token is base64url with dots, an ARN has colons and slashes: both may stand in a form as they are
    char *body = dt_xprintf("Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=%s"
                            "&RoleSessionName=%s&WebIdentityToken=%s",
                            env("AWS_ROLE_ARN"), session ? session : "dtrain", token);
    dt_http_reply reply;
    dt_status st = ask(&reply,
                       &(dt_http_request){.url = host,
                                          .method = "POST",
                                          .body = body,
                                          .n_body = strlen(body),
                                          .max_body = ANSWER_BYTES,
                                          .limit_s = FETCH_S},
                       what);
    if (st == DT_OK) {
        const char *at = reply.body ? reply.body : "";
        const char *const start = at;
        f->c.key = dt_s3_element(&at, "AccessKeyId");
        at = start;
        f->c.secret = dt_s3_element(&at, "SecretAccessKey");
        at = start;
        f->c.token = dt_s3_element(&at, "SessionToken");
        at = start;
        char *until = dt_s3_element(&at, "Expiration");
        f->until = parse_time(until);
        free(until);
        if (!f->c.key || !f->c.secret)
            st = dt_fail(DT_E_STORAGE, "%s: its answer has no key", what);
    }
    dt_http_reply_fini(&reply);
    memset(body, 0, strlen(body));
    free(body);
    free(host);
    free(token);
    return st;
}

// IMDS version 2: a session's token, the role's name, its credentials. No answer: this machine is no instance.
static dt_status from_instance(found *f, bool *is_there) {
    static const char what[] = "credentials of the instance (metadata service)";
    const char *endpoint = env("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    const char *base = endpoint ? endpoint : "http://169.254.169.254";
    const char *disabled = env("AWS_EC2_METADATA_DISABLED");
    *is_there = false;
    if (disabled && strcasecmp(disabled, "true") == 0) return DT_OK;
    char *url = dt_xprintf("%s/latest/api/token", base), *header = NULL, *role = NULL;
    const char *headers[] = {"X-aws-ec2-metadata-token-ttl-seconds: 300", NULL};
    dt_http_request r = {.url = url,
                         .method = "PUT",
                         .headers = headers,
                         .max_body = ANSWER_BYTES,
                         .limit_s = METADATA_S};
    dt_http_reply reply;
    dt_status st = dt_http_do(&reply, &r);
    if (st != DT_OK || reply.status != 200) {
        dt_error_clear();
        st = DT_OK;
        goto out;
    }
    *is_there = true;
    header = dt_xprintf("X-aws-ec2-metadata-token: %s", reply.body ? reply.body : "");
    headers[0] = header;
    r = (dt_http_request){.headers = headers, .max_body = ANSWER_BYTES, .limit_s = FETCH_S};
    for (int i = 0; i < 2 && st == DT_OK; i++) { // first the role's name, then its credentials
        free(url);
        url = dt_xprintf("%s/latest/meta-data/iam/security-credentials/%s", base, role ? role : "");
        dt_http_reply_fini(&reply);
        r.url = url;
        st = ask(&reply, &r, what);
        if (st == DT_OK && i == 0) {
            role = dt_xstrdup(reply.body ? reply.body : "");
            role[strcspn(role, "\r\n")] = '\0';
        } else if (st == DT_OK)
            st = take_json(f, &reply, what);
    }
out:
    dt_http_reply_fini(&reply);
    free(url);
    free(header);
    free(role);
    return st;
}

static dt_status find(found *f) {
    bool is_there = false;
    *f = (found){0};
    if (from_environment(f)) return DT_OK;
    if (env("AWS_WEB_IDENTITY_TOKEN_FILE") && env("AWS_ROLE_ARN")) return from_web_identity(f);
    if (from_profile(f)) return DT_OK;
    dt_aws_credentials_fini(&f->c);
    if (env("AWS_CONTAINER_CREDENTIALS_FULL_URI") || env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"))
        return from_container(f);
    DT_TRY(from_instance(f, &is_there));
    if (is_there) return DT_OK;
    return dt_fail(
        DT_E_USAGE,
        "no credentials: none in AWS_ACCESS_KEY_ID, in the profile '%s' of ~/.aws, from a "
        "web identity, a container or the instance; set them as for AWS's own tools, or "
        "data.s3.anonymous=true for what everybody may read",
        env("AWS_PROFILE") ? env("AWS_PROFILE") : "default");
}

// ---- kept ------------------------------------------------------------------------------------------

dt_status dt_aws_credentials_get(dt_aws_credentials *out) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static found kept;
    dt_status st = DT_OK;
    pthread_mutex_lock(&lock);
    const double now = (double)time(NULL);
    if (!kept.c.key || (kept.until > 0 && now > kept.until - EARLY_S)) {
        found f;
        st = find(&f);
        if (st == DT_OK) {
            dt_aws_credentials_fini(&kept.c);
            kept = f;
        } else if (kept.c.key && now < kept.until) { // the kept credentials are still valid
            dt_error_clear();
            st = DT_OK;
        }
    }
    if (st == DT_OK)
        *out = (dt_aws_credentials){dt_xstrdup(kept.c.key), dt_xstrdup(kept.c.secret),
                                    copy(kept.c.token)};
    pthread_mutex_unlock(&lock);
    return st;
}

static void wipe(char *s) {
    if (s) explicit_bzero(s, strlen(s));
    free(s);
}

void dt_aws_credentials_fini(dt_aws_credentials *c) {
    wipe(c->key);
    wipe(c->secret);
    wipe(c->token);
    *c = (dt_aws_credentials){0};
}
