// cmd_data.c: dtrain data ls|stat SET: what is in a set, from its catalog alone.

#include "launch.h"

#include "data/source/source.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { LIMIT };
static const launch_option options[] = {[LIMIT] = {"--limit", "N", "ls: how many records (all)"},
                                        {NULL}};

extern const launch_command launch_data;

static void list_records(const dt_catalog *c, int limit) {
    for (uint32_t r = 0; r < c->n_records && r < (uint32_t)limit; r++) {
        const dt_record *rec = &c->records[r];
        printf("%s", dt_catalog_str(c, rec->key));
        for (uint32_t m = 0; m < rec->n_members; m++) {
            const dt_member *member = &c->members[rec->first_member + m];
            printf("\t%s:%" PRIu64, dt_catalog_str(c, c->exts[member->ext]), member->size);
        }
        for (uint32_t k = 0; k < c->n_columns; k++) {
            const char *value = dt_catalog_value(c, (int)k, r);
            if (value) printf("\t%s=%s", dt_catalog_str(c, c->columns[k].name), value);
        }
        printf("\n");
    }
}

static void print_columns(const dt_catalog *c) {
    for (uint32_t k = 0; k < c->n_columns; k++) {
        const dt_column *col = &c->columns[k];
        printf("column %-16s %u values:", dt_catalog_str(c, col->name), col->n_values);
        for (uint32_t v = 0; v < col->n_values && v < 8; v++)
            printf(" %s", dt_catalog_str(c, col->values[v]));
        printf("%s\n", col->n_values > 8 ? " …" : "");
    }
}

static void print_statistics(const dt_set *s) {
    const dt_catalog *c = s->catalog;
    uint64_t n_bytes = 0, by_ext[DT_MAX_EXTENSIONS] = {0}, count[DT_MAX_EXTENSIONS] = {0};
    for (uint32_t m = 0; m < c->n_members; m++) {
        n_bytes += c->members[m].size;
        by_ext[c->members[m].ext] += c->members[m].size;
        count[c->members[m].ext]++;
    }
    printf("%s: %u records, %u members, %.1f MiB in %u file%s\n", s->kind, c->n_records,
           c->n_members, (double)n_bytes / 1048576.0, c->n_shards, c->n_shards == 1 ? "" : "s");
    for (uint32_t e = 0; e < c->n_exts; e++)
        printf("member %-16s %" PRIu64 ", %.1f MiB\n", dt_catalog_str(c, c->exts[e]), count[e],
               (double)by_ext[e] / 1048576.0);
    print_columns(c);
}

static dt_status run(const launch_words *w) {
    DT_TRY(launch_expect_words(w, "data", 2, 1000, "ls|stat SET"));
    bool ls = strcmp(w->words[0], "ls") == 0;
    if (!ls && strcmp(w->words[0], "stat") != 0)
        return dt_fail(DT_E_USAGE, "dtrain data %s: expected ls or stat", w->words[0]);
    int limit = 0;
    DT_TRY(launch_option_int(w, &launch_data, LIMIT, 1000000000, &limit));
    dt_set *s = NULL;
    DT_TRY(dt_set_open(&s, w->words + 1, (size_t)w->n_words - 1));
    if (ls)
        list_records(s->catalog, limit);
    else
        print_statistics(s);
    dt_set_close(s);
    return DT_OK;
}

const launch_command launch_data = {
    .options = options,
    .text =
        "What is in a data set: its records (ls), or its counts, members and columns (stat).\n\n"
        "  dtrain data stat datasets/biometric.lmdb\n"
        "  dtrain data ls 'datasets/biometric-{000000..000003}.tar' --limit 5\n",
    .run = run};
