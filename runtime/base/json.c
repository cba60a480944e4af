// json.c: the writer. Two fields track commas and nesting. A reset keeps the buffer, so a steady stream
// of records of the same size allocates nothing.
#include "base/json.h"
#include "base/core.h"
#include "base/text.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void json_reserve(dt_json *j, size_t n) {
    if (j->n_bytes + n + 1 <= j->cap_bytes) return; // + 1: the NUL
    size_t cap = j->cap_bytes ? j->cap_bytes : 256;
    while (cap < j->n_bytes + n + 1) cap *= 2; // doubles: amortized constant time per byte
    j->data = dt_xrealloc(j->data, cap);
    j->cap_bytes = cap;
}

static void json_put(dt_json *j, const char *s, size_t n) {
    json_reserve(j, n);
    memcpy(j->data + j->n_bytes, s, n); // s may hold any bytes but not point into j
    j->n_bytes += n;
    j->data[j->n_bytes] = '\0'; // a C string at any time
}

static void json_put_text(dt_json *j, const char *s) {
    json_put(j, s, strlen(s));
}

// One letter. DEL and C1 (U+0080..U+009F), which terminals obey, as escapes.
static void put_shown(dt_json *j, const char *letter, size_t n) {
    char escape[8]; // \u0080 and the NUL fit
    const unsigned char last = (unsigned char)letter[n - 1];
    // U+0080 to U+009F are 0xC2 0x80 to 0xC2 0x9F in UTF-8; DEL is one byte
    if (n > 2 || last < 0x7f || last > 0x9f || (n == 2 && (unsigned char)letter[0] != 0xc2)) {
        json_put(j, letter, n);
        return;
    }
    snprintf(escape, sizeof escape, "\\u%04x", last);
    json_put_text(j, escape);
}

static void json_put_string(dt_json *j, const char *text) {
    const unsigned char *s = (const unsigned char *)text;
    json_put(j, "\"", 1);
    for (;;) {
        char escape[8];
        size_t n_plain = 0; // leading characters that need no escape
        while (s[n_plain] >= 0x20 && s[n_plain] < 0x7f && s[n_plain] != '"' && s[n_plain] != '\\') n_plain++;
        json_put(j, (const char *)s, n_plain);
        s += n_plain;
        if (!*s) break; // end of text
        size_t n = dt_text_utf8_length((const char *)s);
        if (n == 0) {
            json_put_text(j, "\xEF\xBF\xBD"); // U+FFFD for a byte that is no UTF-8
            s++;
        } else if (*s == '"' || *s == '\\') {
            snprintf(escape, sizeof escape, "\\%c", *s++);
            json_put_text(j, escape);
        } else if (*s < 0x20) {
            const char *known = strchr("\nn\tt\rr", *s); // pairs: character, letter of its escape
            if (known)
                snprintf(escape, sizeof escape, "\\%c", known[1]);
            else
                snprintf(escape, sizeof escape, "\\u%04x", *s);
            json_put_text(j, escape);
            s++;
        } else {
            put_shown(j, (const char *)s, n);
            s += n;
        }
    }
    json_put(j, "\"", 1);
}

static void begin_value(dt_json *j, const char *key) {
    if (j->need_comma) json_put(j, ",", 1);
    if (key) { // NULL: an element of an array, or the root
        json_put_string(j, key);
        json_put(j, ":", 1);
    }
    j->need_comma = true;
}

static void open_bracket(dt_json *j, const char *key, const char *bracket) {
    begin_value(j, key);
    json_put(j, bracket, 1);
    j->depth++;
    j->need_comma = false; // no comma before the first member
}

static void close_bracket(dt_json *j, const char *bracket) {
    assert(j->depth > 0);
    json_put(j, bracket, 1);
    j->depth--;
    j->need_comma = true; // the bracket ends a value
}

void dt_json_init(dt_json *j) {
    *j = (dt_json){0};
    json_reserve(j, 255); // one allocation for most lines
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
    json_put_string(j, value);
}

void dt_json_int(dt_json *j, const char *key, int64_t value) {
    // no locale: digits and a minus only
    char text[DT_INT_CHARS];
    begin_value(j, key);
    json_put_text(j, dt_int_text(text, value));
}

const char *dt_int_text(char out[DT_INT_CHARS], int64_t value) {
    snprintf(out, DT_INT_CHARS, "%" PRId64, value);
    return out;
}

const char *dt_real_text(char out[DT_REAL_CHARS], double value) {
    // %g drops trailing zeros, so the first precision that reads back is the shortest text
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(out, DT_REAL_CHARS, "%.*g", digits, value);
        if (strtod(out, NULL) == value) break;
    }
    return out;
}

void dt_json_real(dt_json *j, const char *key, double value) {
    char text[DT_REAL_CHARS];
    if (!isfinite(value)) { // JSON has no NaN or infinity
        dt_json_null(j, key);
        return;
    }
    begin_value(j, key);
    json_put_text(j, dt_real_text(text, value));
}

void dt_json_seconds(dt_json *j, const char *key, double s) {
    char text[DT_INT_CHARS], fraction[] = ".000000000"; // ns have nine digits
    if (!(s >= 0 && s < 1e9)) {                         // also NaN: the comparison is false
        dt_json_real(j, key, s);
        return;
    }
    const uint64_t ns = (uint64_t)(s * 1e9 + 0.5); // rounded to ns once, so no digit is lost later
    int n = 9;
    uint64_t rest = ns % 1000000000;
    for (; n > 0 && rest % 10 == 0; n--) rest /= 10;                               // drops trailing zeros
    fraction[n > 0 ? n + 1 : 0] = '\0';                                            // no fraction for whole seconds
    for (int i = n; i > 0; i--, rest /= 10) fraction[i] = (char)('0' + rest % 10); // digits from the last to the first
    begin_value(j, key);
    json_put_text(j, dt_int_text(text, (int64_t)(ns / 1000000000)));
    json_put_text(j, fraction);
}

void dt_json_bool(dt_json *j, const char *key, bool value) {
    begin_value(j, key);
    json_put_text(j, value ? "true" : "false");
}

void dt_json_null(dt_json *j, const char *key) {
    begin_value(j, key);
    json_put_text(j, "null");
}

void dt_json_raw(dt_json *j, const char *key, const char *json) {
    begin_value(j, key);
    for (size_t n; *json; json += n ? n : 1) // as it is, but for what no terminal may get
        if ((n = dt_text_utf8_length(json)) == 0)
            json_put_text(j, "\xEF\xBF\xBD");
        else if ((unsigned char)*json < 0x20 && !strchr("\n\t\r", *json))
            json_put_text(j, " ");
        else
            put_shown(j, json, n);
}

void dt_json_newline(dt_json *j) {
    assert(j->depth == 0); // one document per line (JSON lines)
    json_put(j, "\n", 1);
    j->need_comma = false;
}
