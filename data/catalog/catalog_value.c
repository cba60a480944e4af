// catalog_value.c: found once a distinct value, as columns are dictionary-encoded.
#include "catalog_value.h"

#include "base/arena.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

dt_sql_value dt_sql_text_value(const char *text) {
    const char *p = text;
    size_t n;
    while ((signed char)*p > 0) p++; // ASCII
    while (*p && (n = dt_text_utf8_length(p)) > 0) p += n;
    if (*p) return (dt_sql_value){.kind = DT_SQL_BLOB, .n_bytes = (int)strlen(text)};
    return (dt_sql_value){.kind = DT_SQL_TEXT, .n_bytes = (int)(p - text)};
}

static dt_sql_value number_value(const char *text) {
    return strchr(text, '.')
               ? (dt_sql_value){.kind = DT_SQL_REAL, .real = strtod(text, NULL)}
               : (dt_sql_value){.kind = DT_SQL_INT, .integer = strtoll(text, NULL, 10)};
}

dt_sql_value *dt_sql_values_make(const dt_catalog *c, const dt_column *col, bool is_number) {
    dt_sql_value *v = dt_xcalloc(col->n_values + 1, sizeof *v);
    for (uint32_t i = 0; i < col->n_values; i++) {
        const char *text = dt_catalog_str(c, col->values[i]);
        v[i] = is_number ? number_value(text) : dt_sql_text_value(text);
    }
    return v;
}
