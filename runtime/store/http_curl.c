// http_curl.c: one attempt of a request by libcurl (http.h). The module dtrain_http.so.
//
// Handles are kept in a list, as each keeps its connections open: a thread takes the handle that was used last, or makes
// one. Redirects: libcurl drops the password for another host, but not headers, and follows none where http.h says so.
#include "http.h"

#include <curl/curl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    CONNECT_S = 10,
    STALL_BYTES_S = 1024,
    STALL_S = 10,
    MAX_REDIRECTS = 5,
    MAX_BAD = 3, // answers that are none
    MAX_ERROR_BODY = 65536
};

// ---- handles ---------------------------------------------------------------------------------------

typedef struct handle {
    CURL *curl;
    struct handle *next;
} handle;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static handle *unused;
static pthread_once_t started = PTHREAD_ONCE_INIT;

static bool has_netrc;

static void http_curl_start(void) {
    const char *home = getenv("HOME");
    char path[4096];
    curl_global_init(CURL_GLOBAL_DEFAULT);
    snprintf(path, sizeof path, "%s/.netrc", home ? home : "");
    has_netrc = access(path, R_OK) == 0;
}

static handle *take_handle(void) {
    pthread_once(&started, http_curl_start);
    pthread_mutex_lock(&lock);
    handle *h = unused;
    if (h) unused = h->next; // the last one used, whose connection is the warmest
    pthread_mutex_unlock(&lock);
    if (h) return h;
    h = calloc(1, sizeof *h);
    if (h) h->curl = curl_easy_init();
    if (h && !h->curl) {
        free(h);
        h = NULL;
    }
    return h;
}

// ---- what arrives ----------------------------------------------------------------------------------

typedef struct transfer {
    const dt_http_request *r;
    dt_http_reply *out;
    dt_http_attempt *a;
    CURL *curl;
    uint64_t from;   // first byte of the requested range
    bool is_range;   // the answer has a Content-Range …
    bool has_from;   // … that begins at `from`
    bool has_total;  // … and says how large the object is
    bool replaced;   // it is of another object than what the attempts before got
    const char *bad; // why the body was refused
} transfer;

// The header's value if `line` is the header of that name, else NULL.
static const char *header_value(const char *line, size_t n, const char *name, char value[256]) {
    const size_t n_name = strlen(name);
    // names of headers have no case
    if (n <= n_name || strncasecmp(line, name, n_name) != 0 || line[n_name] != ':') return NULL;
    const char *begin = line + n_name + 1, *end = line + n;
    while (begin < end && (*begin == ' ' || *begin == '\t')) begin++;
    while (end > begin && (end[-1] == '\r' || end[-1] == '\n' || end[-1] == ' ')) end--;
    snprintf(value, 256, "%.*s", (int)(end - begin), begin);
    return value;
}

static double retry_after(const char *value) {
    char *end;
    const double s = strtod(value, &end);
    if (end != value) return s;
    const time_t at = curl_getdate(value, NULL); // RFC 9110: seconds, or a date
    const double wait_s = difftime(at, time(NULL));
    return at < 0 ? -1 : wait_s > 0 ? wait_s : 0;
}

static size_t take_header(char *line, size_t size, size_t n, void *ctx) {
    transfer *t = ctx;
    char v[256];
    int got;
    unsigned long long first, last, total;
    if (strncmp(line, "HTTP/", 5) == 0) { // a new answer begins, behind a redirect or a 100
        t->is_range = false;
        t->out->version[0] = '\0';
        t->out->n_total = 0;
    } else if (header_value(line, n, "ETag", v) || (!*t->out->version && header_value(line, n, "Last-Modified", v)))
        snprintf(t->out->version, sizeof t->out->version, "%.127s", v);
    else if (header_value(line, n, "Content-Range", v) &&
             (got = sscanf(v, "bytes %llu-%llu/%llu", &first, &last, &total)) >= 2) {
        t->is_range = true;
        t->has_from = first == t->from;
        t->has_total = got == 3; // else it is "bytes 0-99/*"
        t->out->n_total = t->has_total ? total : 0;
    } else if (header_value(line, n, "Content-Length", v) && t->out->n_total == 0)
        t->out->n_total = strtoull(v, NULL, 10);
    else if (header_value(line, n, "Retry-After", v))
        t->a->retry_after_s = retry_after(v);
    return size * n;
}

static size_t take_range(transfer *t, const char *data, size_t n) {
    t->replaced = t->a->n_got > 0 && strcmp(t->a->version, t->out->version) != 0;
    if (t->replaced) return 0;
    memcpy(t->a->version, t->out->version, sizeof t->a->version); // what later attempts are held against
    if (!t->has_from) t->bad = "the server sent another range than requested";
    if (!t->has_total) t->bad = "the response has no size of the object";
    if (!t->bad && n > t->r->n_range - t->a->n_got) t->bad = "the server sent more bytes than requested";
    if (t->bad) return 0;
    memcpy((char *)t->r->range + t->a->n_got, data, n);
    t->a->n_got += n;
    return n;
}

static size_t http_curl_take_text(transfer *t, const char *data, size_t n, size_t most) {
    dt_http_reply *out = t->out;
    if (out->n_body + n > most) {
        t->bad = "the body is larger than it may be";
        return 0;
    }
    char *body = realloc(out->body, out->n_body + n + 1);
    if (!body) return 0; // libcurl ends the transfer: CURLE_WRITE_ERROR
    memcpy(body + out->n_body, data, n);
    out->body = body;
    out->n_body += n;
    body[out->n_body] = '\0';
    return n;
}

static size_t take_body(char *data, size_t size, size_t n, void *ctx) {
    transfer *t = ctx;
    long status = 0;
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &status);
    // some servers (rclone) say 200 with a Content-Range
    if (t->r->range && t->is_range && status < 300) return take_range(t, data, size * n);
    if (t->r->range && (status == 200 || status == 206)) {
        t->bad = status == 206 ? "the server sends a range, but not which one"
                               : "the server sends whole files only, no ranges of them";
        return 0;
    }
    if (status < 300) return http_curl_take_text(t, data, size * n, t->r->max_body);
    // an error's beginning says enough
    return t->out->n_body + size * n > MAX_ERROR_BODY ? size * n
                                                      : http_curl_take_text(t, data, size * n, MAX_ERROR_BODY);
}

// ---- one attempt -----------------------------------------------------------------------------------

// libcurl calls it once a second, or more often.
static int should_stop(void *r, curl_off_t n, curl_off_t got, curl_off_t m, curl_off_t sent) {
    return *((const dt_http_request *)r)->stop;
}

// The variable that names the file of certificates, as for AWS's tools, curl and OpenSSL; NULL: none.
static const char *authority(void) {
    static const char *const NAMES[] = {"AWS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"};
    for (int i = 0; i < 3; i++)
        if (getenv(NAMES[i]) && *getenv(NAMES[i])) return NAMES[i];
    return NULL;
}

// NULL: libcurl's own file is there. A wheel's libcurl has the path of the system that built it.
static const char *system_authority(CURL *c) {
    static const char *const FILES[] = {
        "/etc/pki/tls/certs/ca-bundle.crt",                 // Fedora, Rocky
        "/etc/ssl/ca-bundle.pem",                           // openSUSE
        "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem" // newer Fedora
    };
    const char *own = NULL;
#if LIBCURL_VERSION_NUM >= 0x075400
    curl_easy_getinfo(c, CURLINFO_CAINFO, &own);
#endif
    for (size_t i = 0; own && access(own, R_OK) != 0 && i < sizeof FILES / sizeof *FILES; i++)
        if (access(FILES[i], R_OK) == 0) return FILES[i];
    return NULL;
}

static void set_security(CURL *c, const dt_http_request *r) {
    const bool tls = strncmp(r->url, "https:", 6) == 0;
    const long all = CURLPROTO_HTTP | CURLPROTO_HTTPS;
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c, CURLOPT_REDIR_PROTOCOLS_STR, tls ? "https" : "http,https");
    (void)all;
#else
    curl_easy_setopt(c, CURLOPT_PROTOCOLS, all);
    curl_easy_setopt(c, CURLOPT_REDIR_PROTOCOLS, tls ? CURLPROTO_HTTPS : all);
#endif
    // never with credentials: another host would get them
    curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, (long)(r->range && !r->sign && !r->user));
    curl_easy_setopt(c, CURLOPT_MAXREDIRS, (long)MAX_REDIRECTS);
    const char *file = authority() ? getenv(authority()) : tls ? system_authority(c) : NULL;
    if (file) curl_easy_setopt(c, CURLOPT_CAINFO, file);
    if (r->sign) curl_easy_setopt(c, CURLOPT_AWS_SIGV4, r->sign);
    if (r->user) curl_easy_setopt(c, CURLOPT_USERPWD, r->user);
    // which libcurl reads for each request
    if (!r->user && has_netrc) curl_easy_setopt(c, CURLOPT_NETRC, (long)CURL_NETRC_OPTIONAL);
    if (r->user && !r->sign) curl_easy_setopt(c, CURLOPT_HTTPAUTH, (long)CURLAUTH_BASIC);
}

// Blocks SIGPIPE, which libcurl's writes may raise and which would end the program.
static CURLcode perform(CURL *c) {
    sigset_t pipe, old, pending;
    const struct timespec now = {0};
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, &old);
    const CURLcode code = curl_easy_perform(c);
    sigpending(&pending);
    // what was raised meanwhile is taken, or it would come at unblocking
    if (!sigismember(&old, SIGPIPE) && sigismember(&pending, SIGPIPE)) sigtimedwait(&pipe, NULL, &now);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return code;
}

static bool may_pass(CURLcode code) {
    switch (code) {
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
    case CURLE_TOO_MANY_REDIRECTS:
    case CURLE_WRITE_ERROR: // take_body refused the body, see transfer.bad
    case CURLE_OUT_OF_MEMORY:
    case CURLE_ABORTED_BY_CALLBACK:
        return false;
    default:
        return true; // libcurl's list grows
    }
}

__attribute__((visibility("default"))) bool dt_http_module_try(dt_http_reply *out, const dt_http_request *r,
                                                               dt_http_attempt *a);

bool dt_http_module_try(dt_http_reply *out, const dt_http_request *r, dt_http_attempt *a) {
    for (int i = 0; r->headers && r->headers[i]; i++)
        if (strpbrk(r->headers[i], "\r\n")) { // from the environment: a second header could hide in it
            snprintf(a->cause, sizeof a->cause, "the value of the header %.*s has a line break in it",
                     (int)strcspn(r->headers[i], ":\r\n"), r->headers[i]);
            return false;
        }
    handle *h = take_handle();
    if (!h) {
        snprintf(a->cause, sizeof a->cause, "no memory for libcurl");
        return false;
    }
    CURL *c = h->curl;
    char range[64], error[CURL_ERROR_SIZE] = "";
    transfer t = {.r = r, .out = out, .a = a, .curl = c, .from = r->from + a->n_got};
    struct curl_slist *headers = NULL;
    for (int i = 0; r->headers && r->headers[i]; i++) headers = curl_slist_append(headers, r->headers[i]);
    curl_easy_setopt(c, CURLOPT_URL, r->url);
    curl_easy_setopt(c, CURLOPT_PATH_AS_IS, 1L); // keys may hold /../
    if (r->body) {
        curl_easy_setopt(c, CURLOPT_POSTFIELDS, r->body);
        curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)r->n_body);
    }
    if (r->method) curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, r->method);
    if (r->method && strcmp(r->method, "HEAD") == 0) curl_easy_setopt(c, CURLOPT_NOBODY, 1L);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(c, CURLOPT_USERAGENT, "dtrain");
    set_security(c, r);
    if (r->range) {
        snprintf(range, sizeof range, "%llu-%llu", (unsigned long long)t.from,
                 (unsigned long long)(r->from + r->n_range - 1));
        curl_easy_setopt(c, CURLOPT_RANGE, range);
    }
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    // on a connection that ends, libcurl sends a request again by itself, unless the connection is new
    curl_easy_setopt(c, CURLOPT_FRESH_CONNECT, (long)r->once);
    if (r->stop) {
        curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, should_stop);
        curl_easy_setopt(c, CURLOPT_XFERINFODATA, r);
        curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
    }
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, (long)STALL_BYTES_S);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, (long)(r->stall_s ? r->stall_s : STALL_S));
    curl_easy_setopt(c, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, error);
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, take_header);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, &t);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, &t);
    const CURLcode code = perform(c);
    long status = 0, n_sent = 0;
    curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(c, CURLINFO_REQUEST_SIZE, &n_sent);
    a->sent = n_sent > 0;
    out->status = status == 200 && t.is_range ? 206 : (int)status;
    curl_easy_reset(c); // keeps connections
    curl_slist_free_all(headers);
    pthread_mutex_lock(&lock);
    h->next = unused;
    unused = h;
    pthread_mutex_unlock(&lock);
    if (t.replaced || (out->status == 416 && a->n_got > 0)) { // by a shorter one
        snprintf(a->cause, sizeof a->cause, "the object was replaced while it was read");
        a->n_got = 0;
        a->again = true;
        return false;
    }
    // where the object ends inside the range, its bytes up to there are the answer
    const uint64_t left = out->n_total > r->from ? out->n_total - r->from : 0;
    const bool is_part = r->range && out->status == 206;
    const bool cut = is_part && a->n_got < (r->n_range < left ? r->n_range : left);
    // a connection that fails behind the last byte took nothing
    if (!cut && !t.bad && (code == CURLE_OK || (is_part && a->n_got > 0))) return true;
    if (code == CURLE_UNSUPPORTED_PROTOCOL && status == 0) t.bad = "the response is not HTTP";
    if (t.bad) a->n_got = 0;
    a->again = t.bad ? ++a->n_bad < MAX_BAD : may_pass(code);
    const int n = snprintf(a->cause, sizeof a->cause, "%s",
                           t.bad                                ? t.bad
                           : code == CURLE_ABORTED_BY_CALLBACK  ? "no answer yet"
                           : code == CURLE_UNSUPPORTED_PROTOCOL ? "it redirects from https to http: not followed"
                           : *error                             ? error
                           : cut                                ? "the response ended early"
                                                                : curl_easy_strerror(code));
    const bool trusts = code != CURLE_PEER_FAILED_VERIFICATION && code != CURLE_SSL_CACERT_BADFILE;
    if (!trusts && (strstr(error, "expired") || strstr(error, "not yet valid"))) {
        const time_t now = time(NULL);
        struct tm day;
        if (n > 0 && (size_t)n < sizeof a->cause)
            strftime(a->cause + n, sizeof a->cause - (size_t)n,
                     ", or this machine's clock is wrong: it shows %F %R UTC", gmtime_r(&now, &day));
    } else if (!trusts && n > 0 && (size_t)n < sizeof a->cause)
        snprintf(a->cause + n, sizeof a->cause - (size_t)n, "; trusted are those of %s%s%s",
                 authority() ? authority() : "this system, or of the file that AWS_CA_BUNDLE names",
                 authority() ? "=" : "", authority() ? getenv(authority()) : "");
    return false;
}
