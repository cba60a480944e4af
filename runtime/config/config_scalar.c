// config_scalar.c: parses scalars, and compares values.
//
// Parsing is strict: the whole text must be the value, without hexadecimal, NaN, infinity or "yes".
#include "config_internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool dt_config_parse_int(const char *text, int64_t *out) {
    const char *p = text + (*text == '-' || *text == '+');
    if (!*p || strspn(p, "0123456789") != strlen(p)) return false;
    errno = 0;
    *out = strtoll(text, NULL, 10);
    return errno == 0;
}

bool dt_config_parse_range(const char *text, int64_t *first, int64_t *last) {
    char *end;
    errno = 0;
    *first = strtoll(text, &end, 10);
    if (end == text || strncmp(end, "..", 2) != 0) return false;
    const char *second = end + 2;
    *last = strtoll(second, &end, 10);
    return end > second && *end == 0 && errno == 0;
}

// A decimal number at the start of `text`; sets *end behind it.
static bool leading_number(const char *text, double *out, const char **end) {
    const char *p = text + (*text == '-' || *text == '+');
    size_t whole = strspn(p, "0123456789"), part = 0;
    p += whole;
    if (*p == '.') {
        part = strspn(p + 1, "0123456789");
        p += 1 + part;
    }
    if (whole + part == 0) return false;
    if (*p == 'e' || *p == 'E') {
        const char *q = p + 1 + (p[1] == '-' || p[1] == '+');
        size_t digits = strspn(q, "0123456789");
        if (digits) p = q + digits;
    }
    char *stop;
    *out = strtod(text, &stop);
    *end = p;
    return stop == p && isfinite(*out);
}

bool dt_config_parse_real(const char *text, double *out) {
    const char *end;
    return leading_number(text, out, &end) && *end == '\0';
}

bool dt_config_parse_bool(const char *text, bool *out) {
    static const char *const words[] = {"false", "true", "False", "True", "FALSE", "TRUE"};
    for (int i = 0; i < 6; i++)
        if (strcmp(text, words[i]) == 0) {
            *out = i % 2;
            return true;
        }
    return false;
}

// The unit behind a number, spaces skipped.
static bool number_and_unit(const char *text, double *value, const char **unit) {
    if (!leading_number(text, value, unit)) return false;
    while (**unit == ' ') ++*unit;
    return true;
}

bool dt_config_parse_time(const char *text, double *seconds) {
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"", 1}, {"s", 1}, {"ms", 1e-3}, {"m", 60}, {"min", 60}, {"h", 3600}, {"d", 86400}};
    double value;
    const char *unit;
    if (!number_and_unit(text, &value, &unit)) return false;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(unit, units[i].unit) == 0) {
            *seconds = value * units[i].seconds;
            return isfinite(*seconds);
        }
    return false;
}

// Whole bytes up to 2^53, which a double holds exactly.
bool dt_config_parse_bytes(const char *text, double *bytes) {
    static const struct {
        const char *unit;
        double bytes;
    } units[] = {{"", 1},
                 {"B", 1},
                 {"kB", 1e3},
                 {"KB", 1e3},
                 {"MB", 1e6},
                 {"GB", 1e9},
                 {"TB", 1e12},
                 {"KiB", 1024},
                 {"K", 1024},
                 {"MiB", 1048576},
                 {"M", 1048576},
                 {"GiB", 1073741824},
                 {"G", 1073741824},
                 {"TiB", 1099511627776},
                 {"T", 1099511627776}};
    double value;
    const char *unit;
    if (!number_and_unit(text, &value, &unit)) return false;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(unit, units[i].unit) == 0) {
            *bytes = floor(value * units[i].bytes);
            return *bytes >= 0 && *bytes <= 0x1p53;
        }
    return false;
}

bool dt_config_parse_amount(const char *text, dt_amount *out) {
    const char *unit;
    if (!number_and_unit(text, &out->value, &unit) || out->value < 0) return false;
    if (!*unit || !strcmp(unit, "step") || !strcmp(unit, "steps"))
        out->unit = DT_UNIT_STEPS;
    else if (!strcmp(unit, "epoch") || !strcmp(unit, "epochs"))
        out->unit = DT_UNIT_EPOCHS;
    else if (!strcmp(unit, "%"))
        out->unit = DT_UNIT_PERCENT;
    else
        return false;
    if (out->unit == DT_UNIT_STEPS) return out->value == floor(out->value) && out->value < 1e15;
    return out->unit != DT_UNIT_PERCENT || out->value <= 100;
}

// -- equal values ----------------------------------------------------------------------------
static bool same_number(const char *x, const char *y) {
    int64_t i, j;
    double v, w;
    if (dt_config_parse_int(x, &i) && dt_config_parse_int(y, &j)) return i == j; // all 64 bits of seeds
    return dt_config_parse_real(x, &v) && dt_config_parse_real(y, &w) && v == w;
}

static bool same_scalar(dt_config_type type, const char *x, const char *y) {
    double v, w;
    bool b, d;
    dt_amount m, n;
    if (type == DT_T_INT || type == DT_T_REAL || type == DT_T_PART) return same_number(x, y);
    if (type == DT_T_TIME && dt_config_parse_time(x, &v) && dt_config_parse_time(y, &w)) return v == w;
    if (type == DT_T_BYTES && dt_config_parse_bytes(x, &v) && dt_config_parse_bytes(y, &w)) return v == w;
    if (type == DT_T_BOOL && dt_config_parse_bool(x, &b) && dt_config_parse_bool(y, &d)) return b == d;
    if (type == DT_T_AMOUNT && dt_config_parse_amount(x, &m) && dt_config_parse_amount(y, &n))
        return m.value == n.value && m.unit == n.unit;
    return false;
}

// Inside lists and maps no row gives a type: text that reads as a number is one, unless it is in quotes.
static bool same_item(const dt_cnode *x, const dt_cnode *y) {
    double v;
    if (!y || x->kind != y->kind || x->n != y->n) return false;
    if (x->kind == DT_C_SCALAR) {
        if (dt_config_is_null(x) || dt_config_is_null(y)) return dt_config_is_null(x) && dt_config_is_null(y);
        if (!x->quoted && !y->quoted && same_number(x->text, y->text)) return true;
        if (x->quoted != y->quoted && dt_config_parse_real(x->text, &v)) return false;
        return strcmp(x->text, y->text) == 0;
    }
    for (size_t i = 0; i < x->n; i++)
        if (!same_item(x->items[i], x->kind == DT_C_MAP ? dt_cnode_get(y, x->keys[i]) : y->items[i])) return false;
    return true;
}

bool dt_config_same_value(dt_config_type type, const dt_cnode *x, const dt_cnode *y) {
    if (x->kind != DT_C_SCALAR || y->kind != DT_C_SCALAR) return same_item(x, y);
    return strcmp(x->text, y->text) == 0 || same_scalar(type, x->text, y->text);
}

static bool same_but_paths(const dt_cnode *x, const dt_cnode *y) {
    bool same = x->kind == y->kind && x->n == y->n;
    for (size_t i = 0; same && i < x->n; i++) {
        const bool map = x->kind == DT_C_MAP;
        const dt_cnode *b = map ? dt_cnode_get(y, x->keys[i]) : y->items[i];
        if (map && b && strcmp(x->keys[i], "path") == 0) continue;
        same = map ? same_item(x->items[i], b) : same_but_paths(x->items[i], b);
    }
    return same;
}

bool dt_config_moved(const dt_config *a, const dt_config *b, const char *key) {
    const dt_cnode *x = dt_config_find(a, key), *y = dt_config_find(b, key);
    return x && y && !same_item(x, y) && same_but_paths(x, y);
}

double dt_amount_exact(dt_amount a, int64_t total_steps, int64_t steps_per_epoch) {
    if (a.unit == DT_UNIT_EPOCHS) return a.value * (double)steps_per_epoch;
    if (a.unit == DT_UNIT_PERCENT) return a.value / 100.0 * (double)total_steps;
    return a.value;
}

int64_t dt_amount_steps(dt_amount a, int64_t total_steps, int64_t steps_per_epoch) {
    const double steps = dt_amount_exact(a, total_steps, steps_per_epoch);
    if (!(steps > 0.0)) return 0;
    return steps < 1.0 ? 1 : (int64_t)llround(fmin(steps, 9e18));
}
