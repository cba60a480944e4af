// data_stat.c: dtrain data stat SET: what is in a set, from its catalog alone.

#include "launch.h"

#include "base/arena.h"
#include "base/json.h"
#include "base/text.h"
#include "data/source/source.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { COUNTS };
static const launch_option options[] = {
    [COUNTS] = {"--counts", "COLUMN", "all values of a column, each with how many records have it"},
    {NULL}};

static uint32_t *count_values(const dt_catalog *c, uint32_t column) {
    uint32_t *n = dt_xcalloc((size_t)c->columns[column].n_values + 1, sizeof *n);
    for (uint32_t r = 0; r < c->n_records; r++) {
        uint32_t v = dt_catalog_cell(c, (int)column, r);
        if (v != DT_NO_VALUE) n[v]++;
    }
    return n;
}

static void print_columns(const dt_catalog *c) {
    for (uint32_t k = 0; k < c->n_columns; k++) {
        const dt_column *col = &c->columns[k];
        printf("column ");
        dt_text_print(stdout, dt_catalog_str(c, col->name));
        printf(": %u value%s:", col->n_values, col->n_values == 1 ? "" : "s");
        uint32_t *n = count_values(c, k);
        for (uint32_t v = 0; v < col->n_values && v < 8; v++) {
            putchar(' ');
            dt_text_print(stdout, dt_catalog_str(c, col->values[v]));
            printf(" (%u)", n[v]);
        }
        printf("%s\n", col->n_values > 8 ? " …" : "");
        free(n);
    }
}

// Each value of one column with its count.
static dt_status print_counts(const dt_catalog *c, const char *name) {
    int k = dt_catalog_find_column(c, name);
    if (k < 0)
        return dt_fail(DT_E_USAGE,
                       "--counts %s: the set has no such metadata column; `dtrain data "
                       "stat SET` lists them",
                       name);
    uint32_t *n = count_values(c, (uint32_t)k), n_with = 0;
    for (uint32_t v = 0; v < c->columns[k].n_values; v++) {
        dt_text_print(stdout, dt_catalog_str(c, c->columns[k].values[v]));
        printf("\t%u\n", n[v]);
        n_with += n[v];
    }
    if (n_with < c->n_records) printf("(no value)\t%u\n", c->n_records - n_with);
    free(n);
    return DT_OK;
}

static void print_numbers(const dt_catalog *c) {
    for (uint32_t k = 0; k < c->n_reals; k++) {
        double low = INFINITY, high = -INFINITY, sum = 0;
        char a[DT_REAL_CHARS], b[DT_REAL_CHARS];
        uint32_t n = 0;
        for (uint32_t r = 0; r < c->n_records; r++) {
            double v = dt_catalog_real(c, (int)k, r);
            if (isnan(v)) continue;
            low = fmin(low, v);
            high = fmax(high, v);
            sum += v;
            n++;
        }
        printf("number ");
        dt_text_print(stdout, dt_catalog_str(c, c->reals[k].name));
        if (n == 0)
            printf(": no values\n");
        else
            printf(": %s..%s, mean %.6g, of %u records\n", dt_real_text(a, low),
                   dt_real_text(b, high), sum / n, n);
    }
}

static void print_statistics(const dt_reader *s) {
    const dt_catalog *c = s->catalog;
    uint64_t n_bytes = 0, by_ext[DT_MAX_EXTENSIONS] = {0}, count[DT_MAX_EXTENSIONS] = {0};
    for (uint32_t m = 0; m < c->n_members; m++) {
        n_bytes += c->members[m].size;
        by_ext[c->members[m].ext] += c->members[m].size;
        count[c->members[m].ext]++;
    }
    printf("%s: %u records, %u members, %.1f MiB in %u file%s\n", s->kind, c->n_records,
           c->n_members, (double)n_bytes / 1048576.0, c->n_shards, c->n_shards == 1 ? "" : "s");
    for (uint32_t e = 0; e < c->n_exts; e++) {
        printf("member ");
        dt_text_print(stdout, dt_catalog_str(c, c->exts[e]));
        printf(": %" PRIu64 ", %.1f MiB\n", count[e], (double)by_ext[e] / 1048576.0);
    }
    print_columns(c);
    print_numbers(c);
}

static dt_status run(const launch_words *w) {
    DT_TRY(launch_expect_words(w, "data stat", 1, 1000000, "SET"));
    dt_reader *s = NULL;
    DT_TRY(dt_reader_open(&s, w->words, (size_t)w->n_words));
    dt_status st = DT_OK;
    if (w->options[COUNTS]) {
        st = print_counts(s->catalog, w->options[COUNTS]);
    } else {
        print_statistics(s);
    }
    dt_reader_close(s);
    return st;
}

const launch_command launch_data_stat = {
    .options = options,
    .text =
        "How many records, members of which kind, and the columns with their values, each with\n"
        "its number of records, or range.\n\n"
        "  dtrain data stat datasets/biometric.lmdb\n"
        "  dtrain data stat datasets/acoustic.lmdb --counts digit\n",
    .run = run};
