// aws_credentials.c: the chain of providers. Formats: the AWS SDKs and Tools Reference Guide (shared config files,
// container provider, IMDS version 2, AssumeRoleWithWebIdentity).
#define _GNU_SOURCE // strptime
#include "s3.h"

#include "base/core.h"
#include "base/io.h"
#include "base/url.h"
#include "http.h"
#include "ini.h"

#include <arpa/inet.h>
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
    const int n = strcmp(profile, "default") == 0 ? 3 : 2; // only [default] needs no "profile "
    char *found = NULL;
    for (int i = 0; i < n && !found; i++) {
        const char *given = env(FILES[i][0]);
        char *path = given ? dt_xstrdup(given) : dt_xprintf("%s/.aws/%s", home ? home : "", FILES[i][1]);
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
    // not a time: the credentials are fetched at each use
    return text && strptime(text, "%Y-%m-%dT%H:%M:%S", &t) ? (double)timegm(&t) : 1;
}

// Frees a secret.
static void wipe(char *s) {
    if (s) explicit_bzero(s, strlen(s)); // a memset in front of free is optimised away
    free(s);
}

static char *aws_credentials_copy(const char *s) {
    return s && *s ? dt_xstrdup(s) : NULL;
}

static bool from_environment(found *f) {
    const char *key = env("AWS_ACCESS_KEY_ID"), *secret = env("AWS_SECRET_ACCESS_KEY");
    if (!key || !secret) return false; // one without the other is no credential
    f->c = (dt_aws_credentials){dt_xstrdup(key), dt_xstrdup(secret), aws_credentials_copy(env("AWS_SESSION_TOKEN"))};
    return true;
}

static bool from_profile(found *f) {
    f->c = (dt_aws_credentials){dt_aws_profile_get("aws_access_key_id"), dt_aws_profile_get("aws_secret_access_key"),
                                dt_aws_profile_get("aws_session_token")};
    return f->c.key && f->c.secret;
}

// GET, or POST of a form, with one more header or NULL. The caller frees the reply, also of an error.
static dt_status aws_credentials_ask(dt_http_reply *out, const char *url, const char *header, const char *form,
                                     const char *what) {
    const char *headers[] = {header, NULL};
    const dt_http_request r = {.url = url,
                               .headers = headers,
                               .method = form ? "POST" : NULL,
                               .body = form,
                               .n_body = form ? strlen(form) : 0,
                               .max_body = ANSWER_BYTES,
                               .limit_s = FETCH_S};
    *out = (dt_http_reply){0};
    dt_status st = dt_url_check(url); // it comes from the environment: no secret may stand in messages
    if (st == DT_OK) st = dt_http_do(out, &r);
    if (st == DT_OK && out->status != 200) st = dt_fail(DT_E_STORAGE, "%s: the server returned %d", url, out->status);
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
                                    aws_credentials_copy(json_string_value(json_object_get(root, "Token")))};
        f->until = parse_time(json_string_value(json_object_get(root, "Expiration")));
    } else
        st = dt_fail(DT_E_STORAGE, "%s: the response has no AccessKeyId", what);
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

// The SDKs' rule (AWS SDKs and Tools Reference Guide, "Container credential provider"): https, or a host that is this
// machine or the agent of ECS or EKS, so that the token goes to nobody else.
static bool is_agent(const char *url) {
    static const char *const HOSTS[] = {"localhost",      "[::1]",          "169.254.170.2",
                                        "169.254.170.23", "[fd00:ec2::23]", NULL};
    char host[64];
    struct in_addr a;
    if (strncmp(url, "http://", 7) != 0) return strncmp(url, "https://", 8) == 0;
    url += 7;
    // the brackets of IPv6 belong to the host
    snprintf(host, sizeof host, "%.*s", (int)(*url == '[' ? strcspn(url, "]/") + 1 : strcspn(url, ":/?#")), url);
    for (int i = 0; HOSTS[i]; i++)
        if (strcmp(host, HOSTS[i]) == 0) return true;
    return inet_pton(AF_INET, host, &a) == 1 && ntohl(a.s_addr) >> 24 == 127; // 127.0.0.0/8
}

static dt_status from_container(found *f) {
    static const char what[] = "credentials of the container (AWS_CONTAINER_CREDENTIALS_*)";
    const char *full = env("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    const char *relative = env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *file = env("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    if (full) DT_TRY(dt_url_check(full));
    if (full && !is_agent(full))
        return dt_fail(DT_E_USAGE,
                       "AWS_CONTAINER_CREDENTIALS_FULL_URI is %s; expected https://, or http:// of "
                       "this machine or of the agent of ECS or EKS",
                       full);
    char *token = file ? read_token(file) : aws_credentials_copy(env("AWS_CONTAINER_AUTHORIZATION_TOKEN"));
    if (file && !token) return dt_fail_context(DT_E_USAGE, "%s", what);
    char *url = full ? dt_xstrdup(full) : dt_xprintf("http://169.254.170.2%s", relative);
    char *header = token ? dt_xprintf("Authorization: %s", token) : NULL;
    dt_http_reply reply;
    dt_status st = aws_credentials_ask(&reply, url, header, NULL, what);
    if (st == DT_OK) st = take_json(f, &reply, what);
    dt_http_reply_fini(&reply);
    free(url);
    wipe(header);
    wipe(token);
    return st;
}

// The text of an element, whatever stands in front of it; heap or NULL.
static char *aws_credentials_element(const dt_http_reply *r, const char *name) {
    const char *at = r->body ? r->body : "";
    return dt_s3_element(&at, name);
}

static dt_status from_web_identity(found *f) {
    static const char what[] = "credentials by AWS_WEB_IDENTITY_TOKEN_FILE";
    char *token = read_token(env("AWS_WEB_IDENTITY_TOKEN_FILE"));
    if (!token) return dt_fail_context(DT_E_USAGE, "%s", what);
    const char *region = env("AWS_REGION") ? env("AWS_REGION") : env("AWS_DEFAULT_REGION");
    const char *session = env("AWS_ROLE_SESSION_NAME"), *endpoint = env("AWS_ENDPOINT_URL_STS");
    char *url = endpoint ? dt_xstrdup(endpoint)
                : region ? dt_xprintf("https://sts.%s.amazonaws.com", region)
                         : dt_xstrdup("https://sts.amazonaws.com");
    char *role = dt_s3_encode(env("AWS_ROLE_ARN"), true), *encoded = dt_s3_encode(token, true);
    char *name = dt_s3_encode(session ? session : "dtrain", true);
    char *form = dt_xprintf("Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=%s"
                            "&RoleSessionName=%s&WebIdentityToken=%s",
                            role, name, encoded);
    dt_http_reply reply;
    dt_status st = aws_credentials_ask(&reply, url, NULL, form, what);
    if (st == DT_OK) {
        f->c = (dt_aws_credentials){aws_credentials_element(&reply, "AccessKeyId"),
                                    aws_credentials_element(&reply, "SecretAccessKey"),
                                    aws_credentials_element(&reply, "SessionToken")};
        char *until = aws_credentials_element(&reply, "Expiration");
        f->until = parse_time(until);
        free(until);
        if (!f->c.key || !f->c.secret) st = dt_fail(DT_E_STORAGE, "%s: the response has no key", what);
    }
    dt_http_reply_fini(&reply);
    free(url);
    free(role);
    free(name);
    wipe(encoded);
    wipe(form);
    wipe(token);
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
    const dt_http_request begin = {.url = url,
                                   .method = "PUT",
                                   .headers = (const char *const[]){"X-aws-ec2-metadata-token-ttl-seconds: 300", NULL},
                                   .max_body = ANSWER_BYTES,
                                   .limit_s = METADATA_S};
    dt_http_reply reply;
    dt_status st = DT_OK;
    *is_there = dt_http_do(&reply, &begin) == DT_OK && reply.status == 200; // a proxy may answer for it
    dt_error_clear();
    if (*is_there) header = dt_xprintf("X-aws-ec2-metadata-token: %s", reply.body ? reply.body : "");
    for (int i = 0; i < 2 && *is_there && st == DT_OK; i++) { // the role's name, its credentials
        free(url);
        url = dt_xprintf("%s/latest/meta-data/iam/security-credentials/%s", base, role ? role : "");
        dt_http_reply_fini(&reply);
        st = aws_credentials_ask(&reply, url, header, NULL, what);
        if (st == DT_OK && i == 0) {
            role = dt_xstrdup(reply.body ? reply.body : "");
            role[strcspn(role, "\r\n")] = '\0';
        } else if (st == DT_OK)
            st = take_json(f, &reply, what);
    }
    dt_http_reply_fini(&reply);
    free(url);
    wipe(header);
    free(role);
    return st;
}

static dt_status aws_credentials_find(found *f) {
    bool is_there = false;
    *f = (found){0};
    if (from_environment(f)) return DT_OK;
    if (env("AWS_WEB_IDENTITY_TOKEN_FILE") && env("AWS_ROLE_ARN")) return from_web_identity(f);
    if (from_profile(f)) return DT_OK;
    dt_aws_credentials_fini(&f->c);
    if (env("AWS_CONTAINER_CREDENTIALS_FULL_URI") || env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"))
        return from_container(f);
    DT_TRY(from_instance(f, &is_there));
    // what AWS's tools know beyond: the message names their way out
    if (is_there) return DT_OK;
    const char *profile = env("AWS_PROFILE") ? env("AWS_PROFILE") : "default";
    static const char *const OTHERS[] = {"role_arn", "credential_process", "sso_session", "sso_start_url",
                                         "login_session"};
    for (size_t i = 0; i < sizeof OTHERS / sizeof *OTHERS; i++) {
        char *value = dt_aws_profile_get(OTHERS[i]);
        free(value);
        if (value)
            return dt_fail(DT_E_USAGE,
                           "no credentials: those of the profile '%s' are found by %s, which "
                           "dtrain leaves to AWS's tool: eval \"$(aws configure "
                           "export-credentials --profile %s --format env)\"",
                           profile, OTHERS[i], profile);
    }
    return dt_fail(DT_E_USAGE,
                   "no credentials: none in AWS_ACCESS_KEY_ID, in the profile '%s' of ~/.aws, from a "
                   "web identity, a container or the instance; set them as for AWS's own tools, or "
                   "data.s3.anonymous=true for what everybody may read",
                   profile);
}

// ---- kept ------------------------------------------------------------------------------------------

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static found kept; // under `lock`

void dt_aws_credentials_forget(void) {
    pthread_mutex_lock(&lock);
    kept.until = 1; // long past
    pthread_mutex_unlock(&lock);
}

dt_status dt_aws_credentials_get(dt_aws_credentials *out) {
    dt_status st = DT_OK;
    pthread_mutex_lock(&lock);
    const double now = (double)time(NULL);
    // EARLY_S: a request that is signed now arrives later
    if (!kept.c.key || (kept.until > 0 && now > kept.until - EARLY_S)) {
        found f;
        st = aws_credentials_find(&f);
        if (st == DT_OK) {
            dt_aws_credentials_fini(&kept.c);
            kept = f;
        } else {
            dt_aws_credentials_fini(&f.c);
            if (kept.c.key && now < kept.until) { // the kept credentials are still valid
                dt_error_clear();
                st = DT_OK;
            }
        }
    }
    if (st == DT_OK)
        *out =
            (dt_aws_credentials){dt_xstrdup(kept.c.key), dt_xstrdup(kept.c.secret), aws_credentials_copy(kept.c.token)};
    pthread_mutex_unlock(&lock);
    return st;
}

void dt_aws_credentials_fini(dt_aws_credentials *c) {
    wipe(c->key);
    wipe(c->secret);
    wipe(c->token);
    *c = (dt_aws_credentials){0};
}
