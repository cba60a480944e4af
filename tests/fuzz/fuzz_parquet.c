// fuzz_parquet.c: any bytes as Parquet. Must answer, never crash, visit each row of a column once, in order, and read each
// value of bytes again as it was.
// Parser: data/file/parquet.c
#include "base/log.h"
#include "data/file/columnar.h"
#include "data/raw/table.h"

#include <stdlib.h>

typedef struct walk {
    dt_columnar *t;
    const dt_columnar_column *c;
    uint64_t row;
    dt_buffer text, again;
} walk;

static dt_status visit(void *arg, uint64_t row, const dt_columnar_value *v) {
    walk *w = arg;
    const char *text;
    if (row != w->row++) abort();
    if (w->c->type == DT_COLUMNAR_BYTES && v->data) {
        if (!dt_buffer_reserve(&w->again, v->n_bytes + 1)) abort();
        if (dt_columnar_read(w->t, v->page, v->at, w->again.data, v->n_bytes) != DT_OK) abort();
        if (memcmp(w->again.data, v->data, v->n_bytes) != 0) abort();
    }
    return dt_columnar_text(w->t, w->c, v, &w->text, &text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    dt_columnar *t;
    dt_blob b;
    if (n_bytes > 1 << 16) return 0;
    dt_log_set_level(DT_LOG_ERROR);
    dt_blob_from_memory(&b, "t.parquet", data, n_bytes);
    if (dt_columnar_open_blob(&t, &b) != DT_OK) {
        if (!strstr(dt_error_message(), "t.parquet")) abort();
        return 0;
    }
    for (uint32_t i = 0; i < t->n_columns && t->n_rows < 1 << 18; i++) {
        walk w = {.t = t, .c = &t->columns[i]};
        const dt_status st = dt_columnar_each(t, w.c, visit, &w);
        if (st == DT_OK && w.row != t->n_rows && w.row != 0) abort();
        if (st != DT_OK && !strstr(dt_error_message(), "t.parquet")) abort();
        dt_buffer_fini(&w.text);
        dt_buffer_fini(&w.again);
    }
    dt_table table;
    dt_table_init(&table, "t.parquet");
    if (t->n_rows < 1 << 14) dt_table_add_columnar(&table, t);
    dt_table_fini(&table);
    dt_columnar_close(t);
    return 0;
}
