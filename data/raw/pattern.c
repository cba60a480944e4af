// pattern.c: matches by backtracking, shortest capture first. The worst case is exponential in the number of
// captures, but that is capped, and names and patterns are short.
#include "pattern.h"

#include <ctype.h>
#include <string.h>

dt_status dt_pattern_check(const char *p) {
    const char *whole = p;
    const char *name[DT_MAX_CAPTURES];
    int n = 0;
    for (; *p; p++) {
        if (*p == '}') return dt_fail(DT_E_USAGE, "pattern '%s': a } without {", whole);
        if (*p == '|') n = 0;
        if (*p != '{') continue;
        const char *end = strpbrk(p + 1, "{}|/");
        if (!end || *end != '}' || end == p + 1 || end - p > 63)
            return dt_fail(DT_E_USAGE, "pattern '%s': expected {name}", whole);
        if (end[1] == '{') return dt_fail(DT_E_USAGE, "pattern '%s': two captures need text between them", whole);
        if (n == DT_MAX_CAPTURES)
            return dt_fail(DT_E_USAGE, "pattern '%s': more than %d captures", whole, DT_MAX_CAPTURES);
        size_t bytes = (size_t)(end + 1 - p); // with the brackets
        for (int i = 0; i < n; i++)
            if (strncmp(name[i], p, bytes) == 0)
                return dt_fail(DT_E_USAGE, "pattern '%s': two captures are called %.*s", whole, (int)bytes, p);
        name[n++] = p;
        p = end;
    }
    return DT_OK;
}

static int match(const char *p, const char *s, dt_capture *out, int n) {
    while (*p && *p != '{') {
        if (tolower((unsigned char)*p) != tolower((unsigned char)*s)) return -1;
        p++, s++;
    }
    if (!*p) return *s ? -1 : n;
    const char *close = strchr(p, '}');
    size_t n_name = (size_t)(close - p - 1);
    for (size_t length = 1; length < DT_MAX_CAPTURE_BYTES; length++) {
        if (s[length - 1] == '\0' || s[length - 1] == '/') return -1;
        int got = match(close + 1, s + length, out, n + 1);
        if (got < 0) continue;
        memcpy(out[n].name, p + 1, n_name);
        out[n].name[n_name] = '\0';
        memcpy(out[n].value, s, length);
        out[n].value[length] = '\0';
        return got;
    }
    return -1;
}

int dt_pattern_match(const char *pattern, const char *path, dt_capture out[DT_MAX_CAPTURES]) {
    int slashes = 0;
    for (const char *p = pattern; *p; p++) slashes += *p == '/';
    const char *s = path + strlen(path);
    while (s > path && (s[-1] != '/' || slashes-- > 0)) s--;
    return match(pattern, s, out, 0);
}
