// catalog_columns.c: names and types of a catalog's columns in SQL.
#include "catalog_columns.h"
#include "catalog_db.h"

#include "base/text.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

// -?(0|[1-9][0-9]*)([.][0-9]+)? of at most 15 digits: nothing is lost when it becomes a number, but a
// trailing zero.
bool dt_catalog_is_decimal(const char *s) {
    size_t n = strspn(s + (*s == '-'), "0123456789");
    const char *digits = s + (*s == '-'), *p = digits + n;
    if (n == 0 || (*digits == '0' && n > 1) || strcmp(s, "-0") == 0) return false;
    if (*p == '.') {
        size_t m = strspn(p + 1, "0123456789");
        if (m == 0) return false;
        n += m;
        p += 1 + m;
    }
    return *p == '\0' && n <= 15;
}

static bool is_taken(const dt_sql_columns *all, const char *name) {
    if (strcasecmp(name, "id") == 0) return true;
    for (int i = 0; i < all->n; i++)
        if (strcasecmp(all->column[i].sql, name) == 0) return true;
    return false;
}

// SQL names know no case and must be UTF-8; a number behind them makes them distinct.
static void name_column(dt_sql_columns *all, dt_sql_column *c) {
    char base[DT_SQL_NAME_BYTES - 20], *to = base;
    for (const char *p = c->name; *p && to + 5 < base + sizeof base;) {
        size_t n = dt_text_utf8_length(p);
        if (n == 0) {
            *to++ = '?';
            p++;
        } else {
            memcpy(to, p, n);
            to += n;
            p += n;
        }
    }
    *to = '\0';
    if (to == base) snprintf(base, sizeof base, "column");
    snprintf(c->sql, sizeof c->sql, "%s", base);
    for (int k = 2; is_taken(all, c->sql); k++) snprintf(c->sql, sizeof c->sql, "%s_%d", base, k);
}

void dt_sql_columns_make(dt_sql_columns *out, const dt_catalog *c) {
    out->n = 0;
    out->n_text = (int)c->n_columns;
    for (uint32_t k = 0; k < c->n_columns + c->n_reals; k++) {
        dt_sql_column *x = &out->column[k];
        const dt_column *text = k < c->n_columns ? &c->columns[k] : NULL;
        x->name = dt_catalog_str(c, text ? text->name : c->reals[k - c->n_columns].name);
        x->is_number = true;
        for (uint32_t v = 0; text && v < text->n_values && x->is_number; v++)
            x->is_number = dt_catalog_is_decimal(dt_catalog_str(c, text->values[v]));
        name_column(out, x);
        out->n++;
    }
}
