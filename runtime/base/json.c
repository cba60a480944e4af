// json.c: the writer. Commas and nesting are kept by two fields; text grows in one buffer that a
// reset keeps, so a steady stream of records of the same size allocates nothing.
#include "base/json.h"
#include "base/arena.h"
#include "base/text.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void reserve(dt_json *j, size_t n) {
    if (j->n_bytes + n + 1 <= j->cap_bytes) return;
    size_t cap = j->cap_bytes ? j->cap_bytes : 256;
    while (cap < j->n_bytes + n + 1) cap *= 2;
    j->data = dt_xrealloc(j->data, cap);
    j->cap_bytes = cap;
}

static void put(dt_json *j, const char *s, size_t n) {
    reserve(j, n);
    memcpy(j->data + j->n_bytes, s, n);
    j->n_bytes += n;
    j->data[j->n_bytes] = '\0';
}

static void put_text(dt_json *j, const char *s) {
    put(j, s, strlen(s));
}

// Letters that stand for themselves, from s on.
static size_t plain_length(const unsigned char *s) {
    size_t n = 0;
    while (s[n] >= 0x20 && s[n] < 0x7f && s[n] != '"' && s[n] != '\\') n++;
    return n;
}

static void put_string(dt_json *j, const char *text) {
    const unsigned char *s = (const unsigned char *)text;
    put(j, "\"", 1);
    for (;;) {
        char escape[8];
        size_t n_plain = plain_length(s);
        put(j, (const char *)s, n_plain);
        s += n_plain;
        if (!*s) break;
        size_t n = dt_text_utf8_length((const char *)s);
        if (n == 0) {
            put_text(j, "\xEF\xBF\xBD");
            s++;
        } else if (*s == '"' || *s == '\\') {
            snprintf(escape, sizeof escape, "\\%c", *s++);
            put_text(j, escape);
        } else if (*s < 0x20) {
            const char *known = strchr("\nn\tt\rr", *s);
            if (known)
                snprintf(escape, sizeof escape, "\\%c", known[1]);
            else
                snprintf(escape, sizeof escape, "\\u%04x", *s);
            put_text(j, escape);
            s++;
        } else {
            put(j, (const char *)s, n);
            s += n;
        }
    }
    put(j, "\"", 1);
}

static void begin_value(dt_json *j, const char *key) {
    if (j->need_comma) put(j, ",", 1);
    if (key) {
        put_string(j, key);
        put(j, ":", 1);
    }
    j->need_comma = true;
}

static void open_bracket(dt_json *j, const char *key, const char *bracket) {
    begin_value(j, key);
    put(j, bracket, 1);
    j->depth++;
    j->need_comma = false;
}

static void close_bracket(dt_json *j, const char *bracket) {
    assert(j->depth > 0);
    put(j, bracket, 1);
    j->depth--;
    j->need_comma = true;
}

void dt_json_init(dt_json *j) {
    *j = (dt_json){0};
    reserve(j, 255);
    j->data[0] = '\0';
}

void dt_json_fini(dt_json *j) {
    free(j->data);
    *j = (dt_json){0};
}

void dt_json_reset(dt_json *j) {
    j->n_bytes = 0;
    j->depth = 0;
    j->need_comma = false;
    if (j->data) j->data[0] = '\0';
}

void dt_json_begin_object(dt_json *j, const char *key) {
    open_bracket(j, key, "{");
}
void dt_json_end_object(dt_json *j) {
    close_bracket(j, "}");
}
void dt_json_begin_array(dt_json *j, const char *key) {
    open_bracket(j, key, "[");
}
void dt_json_end_array(dt_json *j) {
    close_bracket(j, "]");
}

void dt_json_string(dt_json *j, const char *key, const char *value) {
    begin_value(j, key);
    put_string(j, value);
}

void dt_json_int(dt_json *j, const char *key, int64_t value) {
    char text[DT_INT_CHARS];
    begin_value(j, key);
    put_text(j, dt_int_text(text, value));
}

const char *dt_int_text(char out[DT_INT_CHARS], int64_t value) {
    uint64_t v = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    char *p = out + DT_INT_CHARS - 1;
    *p = '\0';
    do *--p = (char)('0' + v % 10);
    while ((v /= 10) > 0);
    if (value < 0) *--p = '-';
    return p;
}

// ---- numbers with a point ------------------------------------------------------------------------
// The text of a double is the one of fewest digits, of 15 to 17, that reads back as it. printf and strtod
// find it in 1 to 2 us; exact arithmetic in 128 bits does for ordinary values in a tenth of that:
// |value| = m 2^-s is to be D 10^-k with D of n digits. D = m 10^k / 2^s rounded (ties to even, as printf does), and
// it reads back if it is within half a unit of m: 2 |D 2^s - m 10^k| <= 10^k, or < where m is odd.
typedef unsigned __int128 u128;
enum { LEAST_DIGITS = 15, MOST_DIGITS = 17 };

static u128 power10(int n) {
    u128 p = 1;
    while (n-- > 0) p *= 10;
    return p;
}

// D of n digits; 0: it does not read back.
static uint64_t find_digits(uint64_t m, int s, int k, int n) {
    u128 scale = power10(k), exact = m * scale, one = (u128)1 << s;
    uint64_t d = (uint64_t)(exact >> s);
    u128 rest = exact - ((u128)d << s);
    if (2 * rest > one || (2 * rest == one && d % 2)) d++;
    u128 back = (u128)d << s, off = 2 * (back > exact ? back - exact : exact - back);
    bool near = off < scale || (off == scale && m % 2 == 0);
    return near && d < (uint64_t)power10(n) ? d : 0;
}

// D 10^-k without trailing zeros behind the point.
static void write_digits(char *out, bool negative, uint64_t d, int k) {
    char text[DT_INT_CHARS];
    while (k > 0 && d % 10 == 0) d /= 10, k--;
    const char *p = dt_int_text(text, (int64_t)d);
    int n = (int)strlen(p);
    if (negative) *out++ = '-';
    if (n <= k) *out++ = '0';
    for (int i = 0; i < n - k; i++) *out++ = p[i];
    if (k > 0) *out++ = '.';
    for (int i = n; i < k; i++) *out++ = '0';
    for (int i = n > k ? n - k : 0; i < n; i++) *out++ = p[i];
    *out = '\0';
}

// Values whose text has no exponent and for which 128 bits suffice.
static bool write_ordinary(char *out, double value) {
    double v = fabs(value);
    int e, before = 1; // digits before the point: 1 for [1, 10), 0 for [0.1, 1)
    if (!(v >= 1e-4 && v < 1e14)) return false;
    if (v == floor(v)) {
        write_digits(out, value < 0, (uint64_t)v, 0);
        return true;
    }
    double fraction = frexp(v, &e); // [0.5, 1)
    uint64_t m = (uint64_t)ldexp(fraction, 53);
    int s = 53 - e;
    if (fraction == 0.5) return false; // the gap below is half of that above
    for (double p = 10; v >= p; p *= 10) before++;
    for (double p = 1; v < p; p /= 10) before--;
    for (int n = LEAST_DIGITS; n <= MOST_DIGITS; n++) {
        int k = n - before;
        uint64_t d = k <= 22 ? find_digits(m, s, k, n) : 0;
        if (d == 0) continue;
        write_digits(out, value < 0, d, k);
        return true;
    }
    return false;
}

const char *dt_real_text(char out[DT_REAL_CHARS], double value) {
    if (write_ordinary(out, value)) return out;
    // %g drops trailing zeros, so the first precision that reads back is the shortest text
    for (int digits = LEAST_DIGITS; digits <= MOST_DIGITS; digits++) {
        snprintf(out, DT_REAL_CHARS, "%.*g", digits, value);
        if (strtod(out, NULL) == value) break;
    }
    return out;
}

void dt_json_real(dt_json *j, const char *key, double value) {
    char text[DT_REAL_CHARS];
    if (!isfinite(value)) {
        dt_json_null(j, key);
        return;
    }
    begin_value(j, key);
    put_text(j, dt_real_text(text, value));
}

void dt_json_bool(dt_json *j, const char *key, bool value) {
    begin_value(j, key);
    put_text(j, value ? "true" : "false");
}

void dt_json_null(dt_json *j, const char *key) {
    begin_value(j, key);
    put_text(j, "null");
}

void dt_json_raw(dt_json *j, const char *key, const char *json) {
    begin_value(j, key);
    put_text(j, json);
}

void dt_json_newline(dt_json *j) {
    assert(j->depth == 0);
    put(j, "\n", 1);
    j->need_comma = false;
}
