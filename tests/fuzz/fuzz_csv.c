// fuzz_csv.c: any bytes as a CSV or a JSON table. Must answer, never crash, and give a full rectangle of
// readable cells or an error with the file's name.
// Parser: data/raw/table.c
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
    for (int k = 0; k < (int)t->cells.n_columns; k++) {
        n += strlen(dt_columns_name(&t->cells, k));
        if (dt_table_find(t, dt_columns_name(&t->cells, k)) != k) abort();
        for (size_t i = 0; i < t->cells.n_rows; i++)
            if (dt_table_cell(t, i, k)) n += strlen(dt_table_cell(t, i, k));
    }
    for (size_t i = 0; i < t->cells.n_rows; i++)
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
