// cost.c: see cost.h.

#include "cost.h"

#include "data/source/source_parts.h"
#include "launch/targets/target.h"

#include "base/core.h"
#include "base/io.h"
#include "base/sort.h"
#include "base/text.h"
#include "store/blob.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// steps of the median; columns of machines, of stores
enum { LAST_STEPS = 1000, N_COLUMNS = 7, N_STORE = 4, MAX_RATES = 64 };
enum { MACHINE, REGION, VCPUS, GPUS, USD, SPOT, OWN_RATE }; // columns, in the order of `header`
enum { STORE, STORE_REGION, MONTH, EGRESS };                // in the order of `store_header`
// a table with other columns is refused, so that none is misread
static const char header[] = "machine,region,vcpus,gpus,usd,spot_usd,samples_per_s";
static const char store_header[] = "store,region,usd_per_gb_month,usd_per_gb_out";

typedef struct device_rate {
    char name[64];    // "A100", "cpu"
    double samples_s; // of one GPU, or one vCPU
} device_rate;
typedef struct rates {
    device_rate of[MAX_RATES];
    int n;
    // of n_machines together, of the config's kind of device; 0: there are rates of devices
    double any;
    bool on_gpus; // that kind
} rates;
typedef struct row {
    char *cells[N_COLUMNS];      // point into the text of the table
    double hours, usd, spot_usd; // of the run; NAN: not known
} row;

// ---- the rate --------------------------------------------------------------------------------------

// The median of the last steps of a run; 0: there are none.
static double measured_rate(const char *run, int *n_steps) {
    double last[LAST_STEPS];
    char *path = dt_xprintf("%s/metrics.jsonl", run), *line = NULL;
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
    qsort(last, (size_t)*n_steps, sizeof *last, dt_sort_reals);
    return *n_steps ? last[*n_steps / 2] : 0;
}

// "850", or a run.
static dt_status read_rate(const char *text, double *out) {
    char *end = NULL;
    int n_steps = 0;
    *out = strtod(text, &end);
    if (end != text && !*end && *out > 0 && !isinf(*out)) return DT_OK;
    *out = measured_rate(text, &n_steps);
    if (*out > 0) return DT_OK;
    return dt_fail(DT_E_USAGE, "--rate: '%s' is neither a rate in samples/s nor a run with steps", text);
}

// "A100:8" -> "A100", 8.
static bool read_device(const char *text, char *name, size_t cap, double *count) {
    const size_t n = strcspn(text, ":");
    char *end = NULL;
    *count = text[n] ? strtod(text + n + 1, &end) : 1;
    snprintf(name, cap, "%.*s", (int)n, text); // "A100" has count 1
    // an empty name, one that is cut, or a count with letters is refused
    return n > 0 && cap > n && *count > 0 && !(end && *end);
}

// "A100:8=7000".
static dt_status read_device_rate(char *text, rates *r) {
    char *equals = strchr(text, '=');
    double count, samples_s;
    if (r->n == MAX_RATES) return dt_fail(DT_E_USAGE, "--rate: at most %d devices", MAX_RATES);
    device_rate *d = &r->of[r->n];
    if (equals) *equals = 0; // cut: the name is in front
    if (!equals || !read_device(text, d->name, sizeof d->name, &count))
        return dt_fail(DT_E_USAGE, "--rate: '%s' is not as in A100:8=7000 or cpu:32=60", text);
    DT_TRY(read_rate(equals + 1, &samples_s));
    d->samples_s = samples_s / count; // of one GPU or vCPU
    r->n++;
    return DT_OK;
}

static dt_status read_rates(const dt_cli_cost *k, const dt_config *c, rates *r, int *n_steps) {
    r->on_gpus = c->device.kind == DT_DEVICE_cuda; // which kind of device `any` is of
    if (!k->rates) {
        // the run of the config itself, trained a few steps
        char *run = dt_xprintf("%s/%s", c->run.dir, c->run.name);
        r->any = measured_rate(run, n_steps);
        dt_status st = r->any > 0 ? DT_OK
                                  : dt_fail(DT_E_USAGE,
                                            "--cost: %s has no step yet: train a few "
                                            "(train.max_steps=50), or give --rate SAMPLES/S",
                                            run);
        free(run);
        return st;
    }
    // a sweep calls its runs seed=1,lr=1e-3
    if (!strchr(k->rates, '=') || dt_io_is_dir(k->rates)) return read_rate(k->rates, &r->any);
    char *all = dt_xstrdup(k->rates), *rest = all;
    dt_status st = DT_OK;
    for (char *one; st == DT_OK && (one = strsep(&rest, ","));) st = read_device_rate(one, r); // strsep writes zeros
    free(all);
    return st;
}

// Of all machines of the row together; 0: not known.
static double cost_rate_of(const row *m, const rates *r, double own, int n_machines) {
    char name[64] = "cpu";
    double count = atof(m->cells[VCPUS]);
    const bool gpus = *m->cells[GPUS];
    if (own > 0) return own * n_machines;                   // a row's own rate has priority
    if (r->any > 0) return gpus == r->on_gpus ? r->any : 0; // unknown for the other kind of device
    // "A100:8": name and count; else vCPUs
    if (gpus && !read_device(m->cells[GPUS], name, sizeof name, &count)) return 0;
    for (int i = 0; i < r->n; i++) // linear in the number of devices: an upper bound
        if (strcmp(r->of[i].name, name) == 0) return r->of[i].samples_s * count * n_machines;
    return 0;
}

// ---- prices ----------------------------------------------------------------------------------------

// A number from 0, or NAN for an empty cell.
static dt_status cost_read_number(const char *cell, const char *path, int line, double *out) {
    char *end = NULL;
    *out = NAN;
    if (!*cell) return DT_OK;
    *out = strtod(cell, &end);
    // !(>= 0): NaN too
    if (*end || !(*out >= 0) || isinf(*out))
        return dt_fail(DT_E_USAGE, "%s:%d: '%s' is not a number", path, line, cell);
    return DT_OK;
}

static dt_status split(char *text, char **cells, int n_cells, const char *columns, const char *path, int line) {
    char *rest = text;
    int n = 0;
    for (char *cell; (cell = strsep(&rest, ",")); n++)
        if (n < n_cells) cells[n] = cell; // counts all, keeps those that fit
    if (n == n_cells) return DT_OK;
    return dt_fail(DT_E_USAGE, "%s:%d: %d columns, not the %d of '%s'", path, line, n, n_cells, columns);
}

static void print_money(double usd, FILE *out) {
    if (isnan(usd))
        dt_text_printf(out, " %12s", "-");
    else
        fprintf(out, " %11.2f$", usd);
}

// In samples that are trained on: evaluation has no backward pass.
double dt_cli_cost_work(const dt_run_length *l) {
    return (double)l->n_trained + (double)l->n_evaluated / 3; // forward and backward take about three times a forward
}

// What the run costs on such machines.
static dt_status cost_read_row(row *m, char *text, const dt_cli_cost *k, const rates *r, const char *path, int line) {
    double usd, spot, own;
    DT_TRY(split(text, m->cells, N_COLUMNS, header, path, line));
    DT_TRY(cost_read_number(m->cells[USD], path, line, &usd));
    DT_TRY(cost_read_number(m->cells[SPOT], path, line, &spot));
    DT_TRY(cost_read_number(m->cells[OWN_RATE], path, line, &own));
    const double rate = cost_rate_of(m, r, own, k->n_machines);
    m->hours = rate > 0 ? dt_cli_cost_work(&k->length) / rate / 3600 : NAN; // seconds to hours
    m->usd = m->hours * k->n_machines * usd;
    m->spot_usd = m->hours * k->n_machines * spot;
    return DT_OK;
}

// The cheapest first; what is not known comes last.
static int by_cost(const void *a, const void *b) {
    const double x = ((const row *)a)->usd, y = ((const row *)b)->usd;
    // NAN ties: compared as known before unknown
    return isnan(x) || isnan(y) ? (isnan(x) != 0) - (isnan(y) != 0) : (x > y) - (x < y);
}

static void print_rows(row *rows, size_t n, FILE *out) {
    bool unknown = false;
    qsort(rows, n, sizeof *rows, by_cost);
    dt_text_printf(out, "%-22s %-14s %6s %-12s %11s %12s %12s\n", "machine", "region", "vcpus", "gpus", "time",
                   "on demand", "spot");
    for (size_t i = 0; i < n; i++) {
        const row *m = &rows[i];
        dt_text_printf(out, "%-22s %-14s %6s %-12s", m->cells[MACHINE], m->cells[REGION], m->cells[VCPUS],
                       *m->cells[GPUS] ? m->cells[GPUS] : "-");
        unknown = unknown || isnan(m->hours);
        if (isnan(m->hours))
            dt_text_printf(out, " %11s", "-");
        else
            fprintf(out, " %9.2f h", m->hours);
        print_money(m->usd, out);
        print_money(m->spot_usd, out);
        fputc('\n', out);
    }
    if (unknown) fprintf(out, "-: no rate is known for that device: --rate DEVICE=SAMPLES/S,…\n");
}

static double file_bytes(const char *path) {
    dt_blob b;
    double n = 0;
    if (dt_blob_open(&b, path) == DT_OK)
        n = (double)b.n_bytes; // bytes
    else
        dt_error_clear(); // the set was opened by the check
    dt_blob_close(&b);
    return n;
}

// Of an object, or of all that a prefix, a list or an LMDB's folder stands for.
static double object_bytes(const char *url) {
    dt_found_list found = {.quiet = true};
    double n = 0;
    // quiet: what is not found was reported by the check
    if (dt_collect(&found, &(dt_reader_item){.path = url}, 0) != DT_OK) dt_error_clear();
    for (size_t i = 0; i < found.n; i++) n += file_bytes(found.f[i].path);
    dt_found_fini(&found);
    return n;
}

static double data_bytes(const dt_config *c) {
    dt_names files = {0}; // files of data.path, as the run opens them
    double n = 0;
    dt_cli_list_data(c, &files);
    for (size_t i = 0; i < files.n; i++)
        n += dt_blob_is_url(files.name[i]) ? object_bytes(files.name[i]) : file_bytes(files.name[i]);
    dt_names_fini(&files);
    return n;
}

static dt_status print_store(char *text, double gb, const char *path, int line, FILE *out) {
    char *cells[N_STORE];
    double month, egress;
    DT_TRY(split(text, cells, N_STORE, store_header, path, line)); // dollars per GB and month; per GB out
    DT_TRY(cost_read_number(cells[MONTH], path, line, &month));
    DT_TRY(cost_read_number(cells[EGRESS], path, line, &egress));
    dt_text_printf(out, "%-22s %-14s", cells[STORE], cells[STORE_REGION]);
    print_money(gb * month, out);
    print_money(gb * egress, out);
    fputc('\n', out);
    return DT_OK;
}

// Machines, and behind them stores, where the table has them.
static dt_status print_table(char *text, const dt_cli_cost *k, const dt_config *c, const rates *r, const char *path,
                             FILE *out) {
    // upper bound: a row has at least N_COLUMNS bytes
    row *rows = dt_xcalloc(strlen(text) / N_COLUMNS + 1, sizeof *rows);
    size_t n = 0;
    enum { NOTHING, MACHINES, STORES } part = NOTHING;
    int number = 0;
    const double gb = data_bytes(c) / 1e9; // decimal, as providers bill
    dt_status st = DT_OK;
    for (char *line; st == DT_OK && (line = strsep(&text, "\n"));) {
        number++;
        line[strcspn(line, "\r")] = 0; // files from Windows
        if (*line == '#' || !*line) {
            if (strncmp(line, "# Source:", 9) == 0) dt_text_printf(out, "prices: %s\n", line + 10);
        } else if (part == NOTHING && strcmp(line, header) == 0) {
            part = MACHINES;
        } else if (part == NOTHING) {
            st = dt_fail(DT_E_USAGE, "%s:%d: the first line must be '%s'", path, number, header);
        } else if (part == MACHINES && strcmp(line, store_header) == 0) {
            part = STORES;
            // machines are sorted: printed once the last is read
            print_rows(rows, n, out);
            dt_text_printf(out, "%-22s %-14s %12s %12s   of %.3g GB of data\n", "store", "region", "a month",
                           "out, once", gb);
        } else if (part == MACHINES) {
            st = cost_read_row(&rows[n++], line, k, r, path, number);
        } else {
            st = print_store(line, gb, path, number, out);
        }
    }
    if (st == DT_OK && part == MACHINES) print_rows(rows, n, out);
    free(rows);
    if (st != DT_OK || part != NOTHING) return st;
    return dt_fail(DT_E_USAGE, "%s has no line '%s'", path, header);
}

static void print_length(const dt_cli_cost *k, const rates *r, int n_steps, FILE *out) {
    fprintf(out, "cost: %lld samples to train on, %lld to evaluate", (long long)k->length.n_trained,
            (long long)k->length.n_evaluated);
    if (r->any > 0) {
        fprintf(out, "; at %.6g samples/s", r->any);
        if (n_steps) fprintf(out, " (measured: median of %d steps)", n_steps);
        dt_text_printf(out, ": %.2f hours on %d machine%s", dt_cli_cost_work(&k->length) / r->any / 3600, k->n_machines,
                       k->n_machines == 1 ? "" : "s");
    }
    fputc('\n', out);
}

static dt_status read_prices(const dt_cli_cost *k, char **path, char **text) {
    size_t n_bytes;
    *path = *text = NULL;
    if (k->prices)
        *path = dt_xstrdup(k->prices);
    else
        DT_TRY(dt_cli_find_template(path, "launch/cloud/prices.csv"));
    return dt_io_read_file(text, &n_bytes, *path, 1 << 20, DT_E_USAGE);
}

dt_status dt_cli_rank_rate(const char *text, double *samples_s, char device[64], double *count) {
    rates r = {0};
    *device = 0;
    *count = 1;
    // a rate without a device: nothing to price
    if (!strchr(text, '=') || dt_io_is_dir(text)) return read_rate(text, samples_s);
    char *first = dt_xstrdup(text);
    first[strcspn(first, ",")] = 0; // the first device of a list
    const dt_status st = read_device_rate(first, &r);
    if (st == DT_OK) {
        const char *colon = strchr(first, ':'); // read_device_rate has cut the text at '='
        snprintf(device, 64, "%s", r.of[0].name);
        if (strcmp(device, "cpu") == 0 && colon) *count = atof(colon + 1); // a rank is a GPU, but a whole host of vCPUs
        *samples_s = r.of[0].samples_s * *count;
    }
    free(first);
    return st;
}

dt_status dt_cli_device_price(const dt_cli_cost *k, const char *device, double count, double *usd) {
    char *path, *text, *cells[N_COLUMNS];
    *usd = NAN;
    dt_status st = read_prices(k, &path, &text);
    int number = 0;
    char *rest = text;
    bool machines = false;
    for (char *line; st == DT_OK && (line = strsep(&rest, "\n"));) {
        char name[64] = "cpu";
        double price, has;
        number++;
        line[strcspn(line, "\r")] = 0;
        if (strcmp(line, store_header) == 0) break; // stores follow machines
        if (*line == '#' || !*line || strcmp(line, header) == 0) {
            machines |= strcmp(line, header) == 0;
            continue;
        }
        if (machines) st = split(line, cells, N_COLUMNS, header, path, number);
        if (!machines || st != DT_OK) continue;
        st = cost_read_number(cells[USD], path, number, &price);
        has = atof(cells[VCPUS]);
        // a machine without readable GPUs has no price
        if (*cells[GPUS] && !read_device(cells[GPUS], name, sizeof name, &has)) continue;
        if (st == DT_OK && strcmp(name, device) == 0 && has > 0)
            *usd = fmin(isnan(*usd) ? INFINITY : *usd, price / has * count); // the cheapest machine, per device
    }
    free(text);
    free(path);
    return st;
}

dt_status dt_cli_print_cost(const dt_cli_cost *k, const dt_config *c, FILE *out) {
    rates r = {0};
    int n_steps = 0;
    // hours are samples over a rate
    if (k->length.n_trained == 0)
        return dt_fail(DT_E_USAGE, "--cost: without the data set the number of samples is not known");
    DT_TRY(read_rates(k, c, &r, &n_steps));
    print_length(k, &r, n_steps, out);
    char *path, *text;
    dt_status st = read_prices(k, &path, &text);
    if (st == DT_OK) st = print_table(text, k, c, &r, path, out);
    free(text);
    free(path);
    return st;
}
