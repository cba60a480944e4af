// config_scalar.c: parses scalars, and writes values as one canonical text.
//
// Parsing is strict: the whole text must be the value, without hexadecimal, NaN, infinity or "yes". Two configs are
// compared by their canonical texts: 1.0e-3 equals 0.001, and 1m equals 60s.
#include "config_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool config_parse_int(const char *text, int64_t *out) {
    const char *p = text + (*text == '-' || *text == '+');
    if (!*p || strspn(p, "0123456789") != strlen(p)) return false;
    errno = 0;
    *out = strtoll(text, NULL, 10);
    return errno == 0;
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

bool config_parse_real(const char *text, double *out) {
    const char *end;
    return leading_number(text, out, &end) && *end == '\0';
}

bool config_parse_bool(const char *text, bool *out) {
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

bool config_parse_time(const char *text, double *seconds) {
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"", 1},     {"s", 1},    {"ms", 1e-3}, {"m", 60},
                 {"min", 60}, {"h", 3600}, {"d", 86400}};
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
bool config_parse_bytes(const char *text, double *bytes) {
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

bool config_parse_amount(const char *text, dt_amount *out) {
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

// -- canonical text --------------------------------------------------------------------------
static void write_any(FILE *out, const dt_cnode *n);

static int by_key(const void *x, const void *y) {
    return strcmp(**(const char **const *)x, **(const char **const *)y);
}

// The length comes first, so that no two values have the same canonical text.
static void write_text(FILE *out, const char *text) {
    fprintf(out, "%zu:%s,", strlen(text), text);
}

// Maps are sorted by key: the order in the file does not matter.
static void write_map(FILE *out, const dt_cnode *n) {
    const char ***order = dt_xcalloc(n->n, sizeof *order);
    for (size_t i = 0; i < n->n; i++) order[i] = &n->keys[i];
    if (n->n) qsort(order, n->n, sizeof *order, by_key);
    fputc('{', out);
    for (size_t i = 0; i < n->n; i++) {
        write_text(out, *order[i]);
        write_any(out, n->items[order[i] - n->keys]);
    }
    fputc('}', out);
    free(order);
}

static bool write_number(FILE *out, const char *text) {
    int64_t i;
    double v;
    if (config_parse_int(text, &i)) // seeds need all 64 bits
        fprintf(out, "%" PRId64 ",", i);
    else if (config_parse_real(text, &v))
        fprintf(out, "%.17g,", v == 0 ? 0.0 : v); // -0 is 0
    else
        return false;
    return true;
}

static void write_any(FILE *out, const dt_cnode *n) {
    if (n->kind == DT_C_MAP) {
        write_map(out, n);
    } else if (n->kind == DT_C_LIST) {
        fputc('[', out);
        for (size_t i = 0; i < n->n; i++) write_any(out, n->items[i]);
        fputc(']', out);
    } else if (config_is_null(n)) {
        fputs("null,", out); // however it is written
    } else if (n->quoted || !write_number(out, n->text)) {
        write_text(out, n->text);
    }
}

void config_write_canonical(FILE *out, config_type type, const dt_cnode *n) {
    double v;
    bool yes;
    dt_amount amount;
    if (n->kind != DT_C_SCALAR)
        write_any(out, n);
    else if (type == T_TIME && config_parse_time(n->text, &v))
        fprintf(out, "%.17g,", v);
    else if (type == T_BYTES && config_parse_bytes(n->text, &v))
        fprintf(out, "%.17g,", v);
    else if (type == T_BOOL && config_parse_bool(n->text, &yes))
        fputs(yes ? "true," : "false,", out);
    else if (type == T_AMOUNT && config_parse_amount(n->text, &amount))
        fprintf(out, "%.17g unit %d,", amount.value, (int)amount.unit);
    else if ((type != T_INT && type != T_REAL) || !write_number(out, n->text))
        write_text(out, n->text);
}
