// data_ls.c: dtrain data ls SET: the records of a set, from its catalog alone.

#include "launch/launch.h"

#include "base/json.h"
#include "base/text.h"
#include "data/source/source.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { LIMIT };
static const dt_cli_option options[] = {[LIMIT] = {"--limit", "N", "how many records (all)"}, {NULL}};

static void data_ls_print_cell(const char *column, const char *value) {
    putchar('\t');
    dt_text_print(stdout, column);
    putchar('=');
    dt_text_print(stdout, value);
}

static void print_record(const dt_catalog *c, uint32_t r) {
    const dt_record *rec = &c->records[r];
    char text[DT_REAL_CHARS];
    dt_text_print(stdout, dt_catalog_str(c, rec->key));
    for (uint32_t m = 0; m < rec->n_members; m++) {
        const dt_member *member = &c->members[rec->first_member + m];
        putchar('\t');
        dt_text_print(stdout, dt_catalog_str(c, c->exts[member->ext]));
        printf(":%" PRIu64, member->size);
    }
    for (uint32_t k = 0; k < c->n_columns; k++) {
        const char *value = dt_catalog_value(c, (int)k, r);
        if (value) data_ls_print_cell(dt_catalog_str(c, c->columns[k].name), value);
    }
    for (uint32_t k = 0; k < c->n_reals; k++) {
        double v = dt_catalog_real(c, (int)k, r);
        if (!isnan(v)) data_ls_print_cell(dt_catalog_str(c, c->reals[k].name), dt_real_text(text, v));
    }
    putchar('\n');
}

static dt_status data_ls_run(const dt_cli_words *w) {
    int limit = 0;
    DT_TRY(dt_cli_expect_words(w, "data ls", 1, 1000000, "SET"));
    DT_TRY(dt_cli_option_int(w, LIMIT, 1000000000, &limit));
    dt_reader *s = NULL;
    DT_TRY(dt_reader_open(&s, w->words, (size_t)w->n_words));
    for (uint32_t r = 0; r < s->catalog->n_records && r < (uint32_t)limit; r++) print_record(s->catalog, r);
    dt_reader_close(s);
    return DT_OK;
}

const dt_cli_command dt_cli_data_ls = {
    .options = options,
    .text = "Key, members with their sizes, and columns of each record, separated by tabs.\n\n"
            "  dtrain data ls 'datasets/biometric-{000000..000003}.tar' --limit 5\n",
    .run = data_ls_run};
