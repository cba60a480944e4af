// data_stat.c: dtrain data stat SET: what is in a set, from its catalog alone.

#include "launch/launch.h"

#include "base/arena.h"
#include "base/json.h"
#include "base/text.h"
#include "data/catalog/select.h"
#include "data/source/source.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { COUNTS };
static const dt_cli_option data_stat_options[] = {
    [COUNTS] = {"--counts", "COLUMN", "all values of a column, each with how many records have it"}, {NULL}};

static uint32_t *data_stat_count_values(const dt_catalog *c, uint32_t column) {
    uint32_t *n = dt_xcalloc((size_t)c->columns[column].n_values + 1, sizeof *n);
    for (uint32_t r = 0; r < c->n_records; r++) {
        uint32_t v = dt_catalog_cell(c, (int)column, r);
        if (v != DT_NO_VALUE) n[v]++;
    }
    return n;
}

static int data_stat_compare(const void *pa, const void *pb) {
    const long double a = *(const long double *)pa, b = *(const long double *)pb;
    return (a > b) - (a < b);
}

// Between neighbours on a line, as numpy.quantile.
static double quantile(const long double *sorted, uint32_t n, double share) {
    const double at = share * (n - 1);
    const uint32_t i = (uint32_t)at;
    const long double next = i + 1 < n ? sorted[i + 1] : sorted[i];
    return (double)(sorted[i] + (at - i) * (next - sorted[i]));
}

// Exact where it is whole.
static const char *data_stat_number_text(char buffer[DT_REAL_CHARS], long double v) {
    return dt_cell_string(&(dt_cell){.kind = DT_CELL_NUMBER, .number = v}, buffer);
}

// "1..45, mean 23, deviation 13, quartiles 12, 23, 34": of the numbers of a column; the deviation is divided by n. Sums
// are of distances from the least, so that whole numbers above 2^53 lose nothing.
static void print_distribution(const dt_catalog *c, int column) {
    dt_column_reader r;
    char a[DT_REAL_CHARS], b[DT_REAL_CHARS];
    long double *v = dt_xcalloc((size_t)c->n_records + 1, sizeof *v), sum = 0, square = 0;
    uint32_t n = 0;
    dt_column_reader_init(&r, c, column);
    for (uint32_t i = 0; i < c->n_records; i++) {
        const dt_cell cell = dt_column_reader_get(&r, i);
        if (cell.kind != DT_CELL_NULL) v[n++] = cell.number;
    }
    dt_column_reader_fini(&r);
    qsort(v, n, sizeof *v, data_stat_compare);
    for (uint32_t i = 0; i < n; i++) sum += v[i] - v[0];
    for (uint32_t i = 0; i < n; i++) square += powl(v[i] - v[0] - sum / n, 2);
    if (n == 0)
        printf("no values");
    else
        printf("%s..%s, mean %.6g, deviation %.6g, quartiles %.6g, %.6g, %.6g", data_stat_number_text(a, v[0]),
               data_stat_number_text(b, v[n - 1]), (double)(v[0] + sum / n), sqrt((double)square / n),
               quantile(v, n, 0.25), quantile(v, n, 0.5), quantile(v, n, 0.75));
    if (n > 0 && column >= DT_N_FIXED_COLUMNS + (int)c->n_columns) printf(", of %u records", n);
    free(v);
}

static bool are_numbers(const dt_catalog *c, uint32_t column) {
    dt_column_reader r;
    dt_column_reader_init(&r, c, DT_N_FIXED_COLUMNS + (int)column);
    const bool yes = r.is_number;
    dt_column_reader_fini(&r);
    return yes;
}

static void print_columns(const dt_catalog *c) {
    for (uint32_t k = 0; k < c->n_columns; k++) {
        const dt_column *col = &c->columns[k];
        printf("column ");
        dt_text_print(stdout, dt_catalog_str(c, col->name));
        printf(": %u value%s:", col->n_values, col->n_values == 1 ? "" : "s");
        uint32_t *n = data_stat_count_values(c, k);
        for (uint32_t v = 0; v < col->n_values && v < 8; v++) {
            putchar(' ');
            dt_text_print(stdout, dt_catalog_str(c, col->values[v]));
            printf(" (%u)", n[v]);
        }
        printf("%s", col->n_values > 8 ? " …" : "");
        free(n);
        if (col->n_values > 1 && are_numbers(c, k)) {
            printf("; as numbers ");
            print_distribution(c, DT_N_FIXED_COLUMNS + (int)k);
        }
        printf("\n");
    }
}

// Each value of one column with its count.
static dt_status data_stat_print_counts(const dt_catalog *c, const char *name) {
    int k = dt_catalog_find_column(c, name);
    if (k < 0)
        return dt_fail(DT_E_USAGE,
                       "--counts %s: the set has no such metadata column; `dtrain data "
                       "stat SET` lists them",
                       name);
    uint32_t *n = data_stat_count_values(c, (uint32_t)k), n_with = 0;
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
        printf("number ");
        dt_text_print(stdout, dt_catalog_str(c, c->reals[k].name));
        printf(": ");
        print_distribution(c, DT_N_FIXED_COLUMNS + (int)(c->n_columns + k));
        printf("\n");
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
    printf("%s: %u records, %u members, %.1f MiB in %u file%s\n", s->kind, c->n_records, c->n_members,
           (double)n_bytes / 1048576.0, c->n_shards, c->n_shards == 1 ? "" : "s");
    for (uint32_t e = 0; e < c->n_exts; e++) {
        printf("member ");
        dt_text_print(stdout, dt_catalog_str(c, c->exts[e]));
        printf(": %" PRIu64 ", %.1f MiB\n", count[e], (double)by_ext[e] / 1048576.0);
    }
    print_columns(c);
    print_numbers(c);
}

static dt_status data_stat_run(const dt_cli_words *w) {
    DT_TRY(dt_cli_expect_words(w, "data stat", 1, 1000000, "SET"));
    dt_reader *s = NULL;
    DT_TRY(dt_reader_open(&s, w->words, (size_t)w->n_words));
    dt_status st = DT_OK;
    if (w->options[COUNTS]) {
        st = data_stat_print_counts(s->catalog, w->options[COUNTS]);
    } else {
        print_statistics(s);
    }
    dt_reader_close(s);
    return st;
}

const dt_cli_command dt_cli_data_stat = {
    .options = data_stat_options,
    .text = "How many records, members of which kind, and the columns with their values, each with\n"
            "its number of records; of numbers range, mean, deviation and quartiles.\n\n"
            "  dtrain data stat datasets/biometric.lmdb\n"
            "  dtrain data stat datasets/acoustic.lmdb --counts digit\n",
    .run = data_stat_run};
