// cost.c: see cost.h.

#include "cost.h"

#include "target.h"

#include "base/arena.h"
#include "base/io.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LAST_STEPS = 1000, N_COLUMNS = 7 };
enum { MACHINE, REGION, VCPUS, GPUS, USD, SPOT, OWN_RATE };
static const char header[] = "machine,region,vcpus,gpus,usd,spot_usd,samples_per_s";

// ---- the rate --------------------------------------------------------------------------------------

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// The median of the last steps; 0: there are none.
static double measured_rate(const dt_config *c, int *n_steps) {
    double last[LAST_STEPS];
    char *path = dt_xprintf("%s/%s/metrics.jsonl", dt_config_str(c, "run.dir"),
                            dt_config_str(c, "run.name"));
    char *line = NULL;
    size_t cap = 0;
    int n = 0;
    FILE *f = fopen(path, "re");
    while (f && getline(&line, &cap, f) > 0) {
        json_t *o = json_loads(line, 0, NULL);
        const json_t *rate = json_object_get(o, "samples_per_s");
        if (json_number_value(rate) > 0) last[n++ % LAST_STEPS] = json_number_value(rate);
        json_decref(o);
    }
    if (f) fclose(f);
    free(line);
    free(path);
    *n_steps = n < LAST_STEPS ? n : LAST_STEPS;
    qsort(last, (size_t)*n_steps, sizeof *last, by_value);
    return *n_steps ? last[*n_steps / 2] : 0;
}

// ---- prices ----------------------------------------------------------------------------------------

// A number from 0, or NAN for an empty cell.
static dt_status read_number(const char *cell, const char *path, int line, double *out) {
    char *end = NULL;
    *out = NAN;
    if (!*cell) return DT_OK;
    *out = strtod(cell, &end);
    if (*end || !(*out >= 0) || isinf(*out))
        return dt_fail(DT_E_USAGE, "%s:%d: '%s' is no number", path, line, cell);
    return DT_OK;
}

static void print_money(double usd, FILE *out) {
    if (isnan(usd))
        fprintf(out, " %12s", "-");
    else
        fprintf(out, " %11.2f$", usd);
}

// One row: what the run costs on such machines.
static dt_status print_row(char *text, const launch_cost *k, double work, const char *path,
                           int line, FILE *out) {
    char *cells[N_COLUMNS], *rest = text;
    double usd, spot, rate;
    int n = 0;
    for (char *cell; (cell = strsep(&rest, ",")); n++)
        if (n < N_COLUMNS) cells[n] = cell;
    if (n != N_COLUMNS)
        return dt_fail(DT_E_USAGE, "%s:%d: %d columns, not the %d of '%s'", path, line, n,
                       N_COLUMNS, header);
    DT_TRY(read_number(cells[USD], path, line, &usd));
    DT_TRY(read_number(cells[SPOT], path, line, &spot));
    DT_TRY(read_number(cells[OWN_RATE], path, line, &rate));
    const double hours = work / (rate > 0 ? rate * k->n_machines : k->rate) / 3600;
    fprintf(out, "%-20s %-14s %6s %-12s %9.2f h", cells[MACHINE], cells[REGION], cells[VCPUS],
            *cells[GPUS] ? cells[GPUS] : "-", hours);
    print_money(hours * k->n_machines * usd, out);
    print_money(hours * k->n_machines * spot, out);
    fputc('\n', out);
    return DT_OK;
}

static dt_status print_table(char *text, const launch_cost *k, double work, const char *path,
                             FILE *out) {
    bool begun = false;
    int number = 0;
    for (char *line; (line = strsep(&text, "\n"));) {
        number++;
        line[strcspn(line, "\r")] = 0;
        if (*line == '#' || !*line) {
            if (strncmp(line, "# Source:", 9) == 0) fprintf(out, "prices: %s\n", line + 10);
        } else if (begun) {
            DT_TRY(print_row(line, k, work, path, number, out));
        } else if (strcmp(line, header) == 0) {
            begun = true;
            fprintf(out, "%-20s %-14s %6s %-12s %11s %12s %12s\n", "machine", "region", "vcpus",
                    "gpus", "time", "on demand", "spot");
        } else {
            return dt_fail(DT_E_USAGE, "%s:%d: the first line must be '%s'", path, number, header);
        }
    }
    return begun ? DT_OK : dt_fail(DT_E_USAGE, "%s has no line '%s'", path, header);
}

dt_status launch_print_cost(const launch_cost *given, const dt_config *c, FILE *out) {
    launch_cost k = *given;
    int n_steps = 0;
    if (k.length.n_trained == 0)
        return dt_fail(DT_E_USAGE,
                       "--cost: without the data set the number of samples is not known");
    if (k.rate == 0) k.rate = measured_rate(c, &n_steps);
    if (k.rate == 0)
        return dt_fail(DT_E_USAGE,
                       "--cost: %s/%s has no step yet: train a few (train.max_steps=50), or give "
                       "--rate SAMPLES/S",
                       dt_config_str(c, "run.dir"), dt_config_str(c, "run.name"));
    const double work = (double)k.length.n_trained + (double)k.length.n_evaluated / 3;
    fprintf(out, "cost: %lld samples to train on, %lld to evaluate; at %.6g samples/s",
            (long long)k.length.n_trained, (long long)k.length.n_evaluated, k.rate);
    if (n_steps) fprintf(out, " (measured: median of %d steps)", n_steps);
    fprintf(out, ": %.2f hours on %d machine%s\n", work / k.rate / 3600, k.n_machines,
            k.n_machines == 1 ? "" : "s");
    char *path = NULL, *text = NULL;
    size_t n_bytes;
    dt_status st = DT_OK;
    if (k.prices)
        path = dt_xstrdup(k.prices);
    else
        st = launch_find_template(&path, "launch/cloud/prices.csv");
    if (st == DT_OK) st = dt_io_read_file(&text, &n_bytes, path, 1 << 20, DT_E_USAGE);
    if (st == DT_OK) st = print_table(text, &k, work, path, out);
    free(text);
    free(path);
    return st;
}
