// fuzz_csv.c: any bytes as a CSV or a JSON table. Must answer, never crash, and give a full rectangle of
// readable cells or an error with the file's name.
#include "base/core.h"
#include "data/raw/table.h"

#include <stdlib.h>
#include <string.h>

static void look(dt_table *t, dt_status st) {
    size_t n = 0;
    if (st != DT_OK) {
        if (!strstr(dt_error_message(), "t.csv")) abort();
        return;
    }
    for (size_t i = 0; i < t->n_columns; i++) {
        n += strlen(t->column[i]);
        if (dt_table_find(t, t->column[i]) != (int)i) abort();
    }
    for (size_t i = 0; i < t->n_rows * t->n_columns; i++)
        if (t->cell[i]) n += strlen(t->cell[i]);
    for (size_t i = 0; i < t->n_rows; i++)
        if (t->line[i] == 0) abort();
    dt_table_fini(t);
    if (n == SIZE_MAX) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    dt_table t;
    const char *text = (const char *)data;
    if (n_bytes > 1 << 16) return 0;
    look(&t, dt_table_parse_csv(&t, "t.csv", text, n_bytes, 0));
    look(&t, dt_table_parse_csv(&t, "t.csv", text, n_bytes, '\t'));
    look(&t, dt_table_parse_json(&t, "t.csv", text, n_bytes, false));
    look(&t, dt_table_parse_json(&t, "t.csv", text, n_bytes, true));
    return 0;
}
