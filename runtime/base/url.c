// url.c: see url.h. Format: RFC 3986, and what people write where a password has the characters that end one there.
#define _GNU_SOURCE // memrchr, strcasestr
#include "url.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

// Whether a parameter of this name, which may be percent-encoded, may be a secret.
static bool is_secret(const char *text, size_t n) {
    static const char *const PARTS[] = {"sig",  "token", "key", "auth", "secret", // parts of names, anywhere, any case
                                        "pass", "cred",  "pwd", "jwt",  "session"};
    char *name = dt_xcalloc(n + 1, 1);
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned c = (unsigned char)text[i];
        if (c == '%' && i + 2 < n && isxdigit((unsigned char)text[i + 1]) && isxdigit((unsigned char)text[i + 2])) {
            sscanf(text + i + 1, "%2x", &c); // %41 is A
            i += 2;
        }
        name[k++] = c ? (char)c : '?'; // a 0 would end it
    }
    bool secret = strcasecmp(name, "code") == 0 || strcasecmp(name, "pw") == 0; // short names: whole
    for (size_t i = 0; i < sizeof PARTS / sizeof *PARTS; i++) secret = secret || strcasestr(name, PARTS[i]);
    free(name);
    return secret;
}

// The parameters behind ?, &, ; and #, up to `end`. shown: what of the URL may be printed.
static dt_status check_parameters(const char *p, const char *end, int n_shown, const char *shown) {
    while ((p += strcspn(p, "?&;#")) < end) {
        const size_t n = strcspn(++p, "=?&;#");            // name up to = or the next parameter
        if (p[n] == '=' && p + n < end && is_secret(p, n)) // without a value no secret
            return dt_fail(DT_E_USAGE,
                           "%.*s?…: the parameter %.*s in a path would stand in logs: name the object "
                           "without it, and give credentials (s3://, gs://, or ~/.netrc for a web "
                           "server)",
                           n_shown, shown, (int)(n < 64 ? n : 64),
                           p); // encoded, so that no control character is printed
    }
    return DT_OK;
}

static dt_status check_one(const char *url, const char *host) {
    // authority: up to the first /, ? or #; userinfo before its last @
    const size_t n_scheme = (size_t)(host - url), n_until = strcspn(host, "@");
    // a password may have blanks
    // user:password@ without a separator in between
    const bool split = memchr(host, ':', n_until) && n_until < strcspn(host, "/?#\r\n");
    const char *from = split ? host + n_until : host;
    const size_t n = (size_t)(from - host) + strcspn(from, " \t\r\n");
    const size_t n_host = (size_t)(from - host) + strcspn(from, "/?# \t\r\n");
    // the last @ of the authority; one behind it
    const char *at = memrchr(host, '@', n_host), *rest = memchr(host + n_host, '@', n - n_host);
    const bool is_bucket = strncasecmp(url, "s3:", 3) == 0 || strncasecmp(url, "gs:", 3) == 0;
    if (rest && (at || memchr(host, ':', n_host))) // unescaped / or ? in a password
        return dt_fail(DT_E_USAGE,
                       "%.*s…: an @ behind what may be a name and a password, which would stand in "
                       "logs: put these into ~/.netrc, and write an @ of a path as %%40",
                       (int)n_scheme, url);
    if (at)
        return dt_fail(DT_E_USAGE,
                       "%.*s…%.*s: a name and a password in a path would stand in logs: put them "
                       "into ~/.netrc",
                       (int)n_scheme, url, (int)(host + n_host - at), at);
    const size_t n_path = strcspn(host, "?&;# \t\r\n");
    // s3:// and gs:// names may hold any character
    return is_bucket ? DT_OK : check_parameters(host + n_path, host + n, (int)(n_scheme + n_path), url);
}

dt_status dt_url_check(const char *text) {
    for (const char *at = text; (at = strstr(at, "://")); at += 3) { // URLs inside a longer text, too
        const char *url = at;
        // RFC 3986's scheme characters, backwards
        while (url > text && (isalnum((unsigned char)url[-1]) || strchr("+-.", url[-1]))) url--;
        if (url < at) DT_TRY(check_one(url, at + 3)); // no scheme: not a URL
    }
    return DT_OK;
}
