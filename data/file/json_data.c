#include "json_data.h"

#include "base/core.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// The bytes of a number that Python writes and JSON does not know; 0: none.
static size_t length_of_word(const char *p, size_t n) {
    static const char *const WORDS[] = {"NaN", "Infinity", "-Infinity"};
    for (size_t i = 0; i < sizeof WORDS / sizeof *WORDS; i++)
        if (n >= strlen(WORDS[i]) && memcmp(p, WORDS[i], strlen(WORDS[i])) == 0) return strlen(WORDS[i]);
    return 0;
}

static size_t length_of_string(const char *p, size_t n) {
    size_t k = 1;
    while (k < n && p[k] != '"') k += p[k] == '\\' ? 2 : 1; // an escaped quote does not end the string
    return k < n ? k + 1 : n;
}

// The number's k bytes to out, or what stands for them; at most 2 k bytes.
static size_t json_data_put_number(const char *p, size_t k, char *out) {
    memcpy(out, p, k);
    out[k] = '\0';
    const bool whole = strcspn(out, ".eE") == k;
    errno = 0;
    const bool fits = whole ? (strtoll(out, NULL, 10), errno != ERANGE) : isfinite(strtod(out, NULL));
    if (fits) return k;
    if (!whole) return (size_t)(stpcpy(out, "null") - out); // 1e999: no double
    memmove(out + 1, out, k);
    out[0] = out[k + 1] = '"';
    return k + 2;
}

json_t *dt_json_load(const char *text, size_t n_bytes, size_t flags, json_error_t *error) {
    json_t *root = json_loadb(text, n_bytes, flags, error);
    if (root || n_bytes == 0) return root;    // plain JSON in the usual case: the text is parsed once
    char *plain = dt_xcalloc(n_bytes + 1, 2); // a number of k digits takes 2 k: quotes around one digit
    size_t n = 0;
    for (size_t at = 0, k; at < n_bytes; at += k) {
        const char *p = text + at;
        const size_t left = n_bytes - at;
        if ((k = length_of_word(p, left)) > 0) {
            n += (size_t)(stpcpy(plain + n, "null") - (plain + n));
        } else if (*p == '-' || (*p >= '0' && *p <= '9')) {
            for (k = 1; k < left && p[k] && strchr("+-.eE0123456789", p[k]);) k++;
            n += json_data_put_number(p, k, plain + n);
        } else {
            k = *p == '"' ? length_of_string(p, left) : 1;
            memcpy(plain + n, p, k);
            n += k;
        }
    }
    root = json_loadb(plain, n, flags, error);
    free(plain);
    return root;
}
