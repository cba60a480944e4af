// scaling_table.c: see scaling_table.h.
#include "scaling_table.h"

#include "launch/targets/target.h"

#include "base/core.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text.h"
#include "observe/page.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- what is asked for -------------------------------------------------------------------------------

static dt_status scaling_table_read_count(const char *text, size_t n, int *out) {
    char *end = NULL;
    const long v = strtol(text, &end, 10); // checked below, where it is beyond int too
    *out = (int)v;                         // used only when in range
    // end: no other character in the number; 2^20 ranks
    if (n > 0 && end == text + n && v >= 1 && v <= 1 << 20) return DT_OK;
    return dt_fail(DT_E_USAGE, "--ranks: '%.*s' is not a number of ranks, as in 8..4096 or 1,2,6", (int)n, text);
}

static dt_status scaling_table_add_row(dt_scaling *s, int fabric, int world_size) {
    // a row for each fabric and number of ranks
    if (s->n == DT_SCALING_ROWS) return dt_fail(DT_E_USAGE, "--ranks: more than %d rows", DT_SCALING_ROWS);
    s->rows[s->n++] = (dt_scaling_row){.fabric = fabric, .world_size = world_size};
    return DT_OK;
}

static dt_status read_ranks(dt_scaling *s, int fabric, const char *text) {
    const char *dots = strstr(text, ".."); // "8..4096"
    int n, most;
    if (dots) {
        DT_TRY(scaling_table_read_count(text, (size_t)(dots - text), &n));
        DT_TRY(scaling_table_read_count(dots + 2, strlen(dots + 2), &most));
        if (n > most) return dt_fail(DT_E_USAGE, "--ranks: %d..%d has no ranks", n, most);
        // powers of two times the first
        for (; n <= most; n *= 2) DT_TRY(scaling_table_add_row(s, fabric, n));
        return DT_OK;
    }
    // `length` behind the loop's end is the item that was read: the next begins behind its comma
    for (size_t length;; text += length + 1) {
        length = strcspn(text, ",");
        DT_TRY(scaling_table_read_count(text, length, &n));
        DT_TRY(scaling_table_add_row(s, fabric, n));
        if (!text[length]) return DT_OK;
    }
}

typedef struct fabric_key {
    const char *name;
    size_t at;   // offset in dt_fabric
    double unit; // 0: text of `size` bytes
    size_t size;
} fabric_key;
#define NUMBER(name, field, unit)                                                                                      \
    { name, offsetof(dt_fabric, field), unit, 0 }
#define TEXT(field)                                                                                                    \
    { #field, offsetof(dt_fabric, field), 0, sizeof(((dt_fabric *)0)->field) }
static const fabric_key keys[] = {NUMBER("cores", cores, 1),
                                  // Gbit/s as links are sold, bytes/s as they are computed with
                                  NUMBER("host_gbit_s", host_bytes_s, 1e9 / 8), NUMBER("gpu_gb_s", gpu_bytes_s, 1e9),
                                  NUMBER("copy_gb_s", copy_bytes_s, 1e9), NUMBER("tcp_gb_s", tcp_bytes_s, 1e9),
                                  NUMBER("latency_us", latency_s, 1e-6), TEXT(what), TEXT(source), TEXT(date)};
enum { N_KEYS = sizeof keys / sizeof *keys };

static dt_status scaling_table_read_key(dt_fabric *f, const char *key, const dt_cnode *value) {
    double v = 0;
    const char *text = dt_cnode_kind(value) == DT_C_SCALAR ? dt_cnode_str(value) : ""; // "": a list or map is no text
    for (int i = 0; i < N_KEYS; i++) {
        if (strcmp(keys[i].name, key) != 0) continue;
        if (keys[i].size) {
            snprintf((char *)f + keys[i].at, keys[i].size, "%s", text);
            return DT_OK;
        }
        if (!dt_cnode_real(value, &v) || !(v > 0) || isinf(v)) break;   // refused below, as an unknown key is
        *(double *)(void *)((char *)f + keys[i].at) = v * keys[i].unit; // offsets are of doubles
        return DT_OK;
    }
    if (strcmp(key, "gpus") == 0 && (strcmp(text, "true") == 0 || strcmp(text, "false") == 0)) {
        f->gpus = *text == 't'; // 't' of true
        return DT_OK;
    }
    // 4096: bounds a typing error
    if (strcmp(key, "ranks_per_host") == 0 && dt_cnode_real(value, &v) && v >= 1 && v <= 4096) {
        f->ranks_per_host = (int)v;
        return DT_OK;
    }
    return dt_fail(DT_E_USAGE, "%s: '%s' is no key of a fabric, or its value is none", dt_cnode_where(value), key);
}

static dt_status read_fabric(dt_fabric *f, const char *name, const dt_cnode *node) {
    // numbers that the file leaves out are 0: not known
    *f = (dt_fabric){0};
    snprintf(f->name, sizeof f->name, "%s", name);
    if (dt_cnode_kind(node) != DT_C_MAP) return dt_fail(DT_E_USAGE, "%s: a fabric is a map", dt_cnode_where(node));
    for (size_t i = 0; i < dt_cnode_size(node); i++)
        DT_TRY(scaling_table_read_key(f, dt_cnode_key(node, i), dt_cnode_item(node, i)));
    // GPUs need the rate among them, CPUs the latency between hosts
    const bool complete =
        f->ranks_per_host > 0 && f->host_bytes_s > 0 && (f->gpus ? f->gpu_bytes_s > 0 : f->latency_s > 0);
    if (complete) return DT_OK;
    return dt_fail(DT_E_USAGE, "%s: fabric '%s' needs ranks_per_host, host_gbit_s, and %s", dt_cnode_where(node), name,
                   f->gpus ? "gpu_gb_s" : "latency_us (or gpus: true and gpu_gb_s)");
}

// A name of the known fabrics, or a file: then all of it.
static dt_status read_fabrics(dt_scaling *s, const char *name, const char *ranks, int *n) {
    char *path = NULL;
    const bool own = strchr(name, '/') || strchr(name, '.'); // a path has a slash or an ending; names of ours have none
    dt_arena a;
    const dt_cnode *root = NULL;
    if (own) // the user's own file: all its fabrics are taken
        path = dt_xstrdup(name);
    else
        DT_TRY(dt_cli_find_template(&path, "launch/cloud/fabrics.yaml"));
    dt_arena_init(&a);
    dt_status st = dt_config_read_tree(&root, &a, path);
    if (st == DT_OK && dt_cnode_kind(root) != DT_C_MAP) st = dt_fail(DT_E_USAGE, "%s: no map of fabrics", path);
    bool found = false;
    for (size_t i = 0; st == DT_OK && i < dt_cnode_size(root); i++) {
        const char *key = dt_cnode_key(root, i);
        if (!own && strcmp(key, name) != 0) continue; // one of ours: by name alone
        found = true;
        // before the element is written
        if (*n == DT_SCALING_FABRICS) st = dt_fail(DT_E_USAGE, "--fabric: at most %d", DT_SCALING_FABRICS);
        if (st == DT_OK) st = read_fabric(&s->fabrics[*n], key, dt_cnode_item(root, i));
        if (st == DT_OK) st = read_ranks(s, *n, ranks);
        ++*n;
    }
    if (st == DT_OK && !found) st = dt_fail(DT_E_USAGE, "--fabric: %s has no '%s'", path, name);
    dt_arena_fini(&a);
    free(path);
    return st;
}

dt_status dt_cli_read_scaling(dt_scaling *s, const char *ranks, const char *fabrics, const char *rates) {
    char device[64];
    double count;
    int n = 0;
    *s = (dt_scaling){0};
    // device and count are of no use here: no price is asked for
    if (rates) DT_TRY(dt_cli_rank_rate(rates, &s->rate, device, &count));
    if (!fabrics) { // without a network: shared memory of this machine
        s->fabrics[0] = (dt_fabric){.name = "this machine", .what = "all ranks on this machine"};
        return read_ranks(s, 0, ranks);
    }
    char *all = dt_xstrdup(fabrics), *rest = all; // strsep writes zeros
    dt_status st = DT_OK;
    for (char *one; st == DT_OK && (one = strsep(&rest, ","));) st = read_fabrics(s, one, ranks, &n);
    free(all);
    return st;
}

// ---- the answer --------------------------------------------------------------------------------------

static void scaling_table_print_number(FILE *out, const char *format, double x) {
    if (isfinite(x)) // NAN: not known, as a price without rates
        fprintf(out, format, x);
    else
        dt_text_printf(out, " %9s", "-");
}

// a rank's own work over the whole step: what communication and waiting do not take
static double efficiency(const dt_scaling_row *r) {
    return (r->compute_s + r->commit_s) / r->step_s;
}

static void print_fabric(const dt_fabric *f, FILE *out) {
    dt_text_printf(out, "\nfabric %s: %s", f->name, f->what);
    if (*f->source) dt_text_printf(out, " (%s%s%s)", f->source, *f->date ? "; " : "", f->date);
    dt_text_printf(out, "\n%7s %6s %8s %10s %10s %10s %10s %10s %8s %8s %9s %9s\n", "ranks", "hosts", "batch",
                   "step ms", "exposed ms", "efficiency", "samples/s", "MiB a rank", "start s", "save s", "hours",
                   "dollars");
}

static void scaling_table_print_row(const dt_scaling_row *r, int64_t safe, double hours, double usd_hour, FILE *out) {
    // "!": larger than the largest batch that is known to keep accuracy
    dt_text_printf(out, "%7d %6d %7lld%s %10.2f %10.2f %10.3f %10.1f %10.1f %8.1f %8.2f", r->world_size, r->n_hosts,
                   (long long)r->batch, r->batch > safe ? "!" : " ", 1e3 * r->step_s, 1e3 * r->exposed_s, efficiency(r),
                   r->samples_s, (double)r->rank_bytes / 1048576.0, r->start_s, r->save_s);
    scaling_table_print_number(out, " %9.2f", hours);
    // all ranks, each at the price of its device
    scaling_table_print_number(out, " %9.2f", hours * usd_hour * r->world_size);
    fputc('\n', out);
}

static dt_status write_plot(const dt_scaling *s, const dt_config *c, const char *path) {
    char *text = NULL, *title = dt_xprintf("%s: efficiency by ranks", c->run.name);
    size_t n_bytes = 0;
    // efficiency of 0 is in the plot: no cut axis
    dt_chart chart = {.title = title, .x = "ranks", .powers = true, .from_zero = true};
    dt_curve *k = NULL;
    for (int i = 0; i < s->n; i++) {
        const dt_scaling_row *r = &s->rows[i];
        // rows of a fabric are neighbours: a curve each
        if (i == 0 || r->fabric != r[-1].fabric) {
            k = dt_chart_add(&chart, s->fabrics[r->fabric].name, s->n, r->fabric);
            k->n = 0;
        }
        const double y = efficiency(r);
        // powers: x is the exponent of 2; one value, so no band
        k->points[k->n++] = (dt_xy){log2(r->world_size), y, y, y};
    }
    FILE *f = open_memstream(&text, &n_bytes); // in memory: the file is written whole or not at all
    if (f) {
        dt_chart_write_file(f, &chart); // flushes text and n_bytes
        fclose(f);
    }
    const dt_status st = f ? dt_io_write_file(path, text, n_bytes) : dt_fail(DT_E_INTERNAL, "%s: out of memory", path);
    free(text);
    free(title);
    return st;
}

dt_status dt_cli_print_scaling(const dt_scaling *s, const dt_cli_cost *k, const dt_config *c, const char *plot,
                               FILE *out) {
    const char *source;
    char device[64] = "";
    double rate, count = 1, usd_hour = NAN; // usd_hour: of one device; NAN prints "-"
    const int64_t safe = dt_scaling_safe_batch((dt_optimizer_id)c->train.optimizer.name, &source);
    bool risky = false;
    // read again, now for the device's price
    if (k->rates) DT_TRY(dt_cli_rank_rate(k->rates, &rate, device, &count));
    if (*device) DT_TRY(dt_cli_device_price(k, device, count, &usd_hour));
    // ms: measured here, or of --rate
    fprintf(out, "scaling: predicted; micro-batches of %d take a rank %.3g ms", s->micro_batch, 1e3 * s->micro_s);
    if (s->rate > 0)
        fprintf(out, " at %.6g samples/s, divided among its nodes by what they compute and move\n", s->rate);
    else
        fprintf(out,
                " of a core, their data %.3g, an optimizer step %.3g (measured here); all ranks share cores evenly\n",
                1e3 * s->load_s, 1e3 * s->commit_s);
    for (int i = 0; i < s->n; i++) {
        const dt_scaling_row *r = &s->rows[i];
        const double work = dt_cli_cost_work(&k->length);
        if (i == 0 || r->fabric != r[-1].fabric) print_fabric(&s->fabrics[r->fabric], out);
        // hours: NAN without the data set
        scaling_table_print_row(r, safe, work > 0 ? work / r->samples_s / 3600 : NAN, usd_hour, out);
        risky |= r->batch > safe;
    }
    // once, for the first such row: the others are larger
    for (int i = 0; i < s->n; i++) {
        if (s->n_samples == 0 || s->rows[i].batch <= s->n_samples) continue;
        dt_warn("a step of %d ranks takes %lld samples, and there are %lld to train on: no epoch "
                "has a step then",
                s->rows[i].world_size, (long long)s->rows[i].batch, (long long)s->n_samples);
        break;
    }
    if (risky)
        dt_text_printf(out, "!: beyond a batch of %lld accuracy is at risk: the largest that kept it (%s)\n",
                       (long long)safe, source);
    return plot ? write_plot(s, c, plot) : DT_OK; // after the table: a failed write loses nothing of it
}
