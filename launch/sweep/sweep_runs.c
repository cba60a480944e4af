// sweep_runs.c: see sweep_table.h.
//
// Values that are drawn are a function of their key and place, so that the same command finds its runs again. All keys
// that are drawn go together, n runs and not n * n: a random search is a list of points and no grid.

#include "sweep_table.h"

#include "base/core.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/rng.h"
#include "base/text.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RUNS = 100000, MAX_RANGE = 10000 };

// ---- key=a,b,c -------------------------------------------------------------------------------------

// The comma that ends the value at text, or the end of the text. Commas within brackets or quotes do not count.
static const char *value_end(const char *text) {
    int depth = 0;
    char quote = 0;
    for (; *text; text++) {
        if (quote) {
            if (*text == quote) quote = 0;
        } else if (*text == '\'' || *text == '"') {
            quote = *text;
        } else if (strchr("[{(", *text)) {
            depth++;
        } else if (strchr("]})", *text)) {
            depth--;
        } else if (*text == ',' && depth == 0) {
            break;
        }
    }
    return text;
}

static void sweep_runs_add_value(dt_sweep_variable *v, char *value) {
    v->values = dt_xrealloc(v->values, sizeof *v->values * (size_t)(v->n + 1));
    v->values[v->n++] = value;
}

// 0..4 stands for 0,1,2,3,4.
static dt_status sweep_runs_add_range(dt_sweep_variable *v, int64_t first, int64_t last) {
    const uint64_t n_more = (uint64_t)last - (uint64_t)first; // the difference may be no int64_t
    if (first > last || n_more >= MAX_RANGE)
        return dt_fail(DT_E_USAGE,
                       "%s=%" PRId64 "..%" PRId64 ": expected a range such as 0..4, of at most %d "
                       "values",
                       v->key, first, last, MAX_RANGE);
    for (uint64_t i = 0; i <= n_more; i++) sweep_runs_add_value(v, dt_xprintf("%" PRId64, first + (int64_t)i));
    return DT_OK;
}

// log(1e-4,1e-2,8): draws 8 values between the ends with uniform logarithms; uniform(…): uniform values.
static dt_status add_drawn(dt_sweep_variable *v, const char *text) {
    const bool log_scale = *text == 'l';
    double low, high;
    int n, end = 0;
    if (sscanf(strchr(text, '('), "( %lf , %lf , %d ) %n", &low, &high, &n, &end) != 3 || end == 0 ||
        strchr(text, '(')[end] || !(low < high) || n < 1 || n > MAX_RANGE || (log_scale && low <= 0))
        return dt_fail(DT_E_USAGE,
                       "%s=%s: expected log(low,high,n) with ends above 0, or uniform(low,high,n), of "
                       "at most %d values",
                       v->key, text, MAX_RANGE);
    for (int i = 0; i < n; i++) {
        const dt_rng rng = {0, 0, 0, dt_hash32(v->key)};
        const double u = (double)dt_rng_below(&rng, (uint32_t)i, 1u << 24) / (1 << 24);
        const double x = log_scale ? exp(log(low) + u * (log(high) - log(low))) : low + u * (high - low);
        sweep_runs_add_value(v, dt_xprintf("%.4g", x));
    }
    v->drawn = true;
    return DT_OK;
}

static bool is_drawn(const char *text) {
    return strncmp(text, "log(", 4) == 0 || strncmp(text, "uniform(", 8) == 0;
}

static dt_status split_values(dt_sweep_variable *v, const char *text) {
    if (is_drawn(text)) return add_drawn(v, text);
    for (const char *end;; text = end + 1) {
        end = value_end(text);
        char *value = dt_xprintf("%.*s", (int)(end - text), text);
        int64_t first, last;
        if (dt_config_parse_range(value, &first, &last)) {
            free(value);
            DT_TRY(sweep_runs_add_range(v, first, last));
        } else {
            sweep_runs_add_value(v, value);
            if (*value == 0 && (v->n > 1 || *end))
                return dt_fail(DT_E_USAGE, "%s: a value between commas is empty", v->key);
        }
        if (*end == 0) return DT_OK;
    }
}

// What the key is called in names of runs: its last part, or all of it where two keys end alike.
static void name_variables(sweep *s) {
    for (int i = 0; i < s->n_variables; i++) {
        const char *dot = strrchr(s->variables[i].key, '.');
        s->variables[i].name = dot ? dot + 1 : s->variables[i].key;
    }
    for (int i = 0; i < s->n_variables; i++)
        for (int k = 0; k < s->n_variables; k++)
            if (k != i && strcmp(s->variables[i].name, s->variables[k].name) == 0)
                s->variables[i].name = s->variables[i].key;
}

// Makes the last variable, if its values are drawn, vary with the first drawn variable.
static dt_status join_drawn(sweep *s) {
    dt_sweep_variable *v = &s->variables[s->n_variables - 1];
    v->with = s->n_variables - 1;
    for (int i = s->n_variables - 1; i >= 0 && v->drawn; i--)
        if (s->variables[i].drawn) v->with = i;
    const dt_sweep_variable *first = &s->variables[v->with];
    if (first->n == v->n) return DT_OK;
    return dt_fail(DT_E_USAGE,
                   "%s has %d values and %s %d: values that are drawn go together, as many "
                   "of each",
                   first->key, first->n, v->key, v->n);
}

static dt_status read_words(sweep *s, const dt_cli_words *w) {
    s->n_runs = 1;
    for (int i = 1; i < w->n_words; i++) {
        const char *equals = strchr(w->words[i], '=');
        if (!equals) return dt_fail(DT_E_USAGE, "'%s': after the config come key=value and key=a,b,c", w->words[i]);
        dt_sweep_variable v = {.key = dt_xprintf("%.*s", (int)(equals - w->words[i]), w->words[i])};
        dt_status st = split_values(&v, equals + 1);
        s->variables = dt_xrealloc(s->variables, sizeof v * (size_t)(s->n_variables + 1));
        s->variables[s->n_variables++] = v;
        DT_TRY(st);
        for (int k = 0; k < s->n_variables - 1; k++)
            if (strcmp(s->variables[k].key, v.key) == 0 && (s->variables[k].n > 1 || v.n > 1))
                return dt_fail(DT_E_USAGE, "%s is given twice: put all of its values in one list", v.key);
        DT_TRY(join_drawn(s));
        if (s->variables[s->n_variables - 1].with != s->n_variables - 1) continue;
        if (v.n > MAX_RUNS / s->n_runs)
            return dt_fail(DT_E_USAGE, "the lists have more than %d combinations", MAX_RUNS);
        s->n_runs *= v.n;
    }
    name_variables(s);
    return DT_OK;
}

// ---- the runs --------------------------------------------------------------------------------------

static bool sweep_runs_is_plain(char c) {
    return isalnum((unsigned char)c) || (c && strchr(".+-_", c));
}

// "fold=0,lr=1e-3": what the run's directory is called. Where a value has other letters, or all are too long, the
// values' hash tells it from others: "mean=_0.5,0.5_-1f0c9b3a27de". The hash is a function of the run alone, so that a
// sweep of more values finds its runs.
static char *sweep_runs_run_name(const sweep *s, int run) {
    enum { MOST_BYTES = 100, HASH_DIGITS = 12 };
    bool odd = false;
    char *name = dt_xstrdup(""), *values = dt_xstrdup(""), hex[17];
    for (int i = 0; i < s->n_variables; i++) {
        if (s->variables[i].n < 2) continue;
        const char *value = dt_sweep_value(s, run, i), *comma = *name ? "," : "";
        dt_xappend(&name, "%s%s=%s", comma, s->variables[i].name, value);
        for (const char *p = value; *p; p++) odd = odd || !sweep_runs_is_plain(*p);
        dt_xappend(&values, "%s=%s\n", s->variables[i].key, value);
    }
    if (odd || strlen(name) > MOST_BYTES) {
        dt_hash_hex(dt_hash64(values, strlen(values)), hex);
        name[strnlen(name, MOST_BYTES - HASH_DIGITS - 1)] = 0;
        dt_xappend(&name, "-%.*s", HASH_DIGITS, hex);
    }
    for (char *p = name; *p; p++)
        if (!sweep_runs_is_plain(*p) && !strchr("=,", *p)) *p = '_';
    free(values);
    return name;
}

// The words behind `dtrain` that make the run: train CONFIG key=value … run.dir=… run.name=…
char **dt_sweep_run_words(const sweep *s, int run) {
    char **words = dt_xcalloc((size_t)s->n_variables + 7, sizeof *words);
    int n = 0;
    words[n++] = dt_xprintf("train");
    words[n++] = dt_xprintf("%s", s->config);
    for (int i = 0; i < s->n_variables; i++)
        words[n++] = dt_xprintf("%s=%s", s->variables[i].key, dt_sweep_value(s, run, i));
    words[n++] = dt_cli_override("run.dir", s->dir);
    if (s->mirror) words[n++] = dt_cli_override("checkpoint.mirror", s->mirror);
    if (s->runs[run].stop_at > 0) words[n++] = dt_xprintf("run.stop_at=%" PRId64, s->runs[run].stop_at);
    words[n] = dt_cli_override("run.name", s->runs[run].name);
    return words;
}

void dt_sweep_free_words(char **words) {
    for (int i = 0; words[i]; i++) free(words[i]);
    free(words);
}

static dt_status name_runs(sweep *s) {
    s->runs = dt_xcalloc((size_t)s->n_runs, sizeof *s->runs);
    char **names = dt_xcalloc((size_t)s->n_runs, sizeof *names);
    for (int r = 0; r < s->n_runs; r++) names[r] = s->runs[r].name = sweep_runs_run_name(s, r);
    qsort(names, (size_t)s->n_runs, sizeof *names, dt_text_compare);
    dt_status st = DT_OK;
    for (int r = 1; r < s->n_runs && st == DT_OK; r++)
        if (strcmp(names[r], names[r - 1]) == 0)
            st = dt_fail(DT_E_USAGE, "two runs would be called %s: a value is given twice", names[r]);
    free(names);
    return st;
}

dt_status dt_sweep_load_config(const sweep *s, int run, dt_config **out) {
    char **words = dt_sweep_run_words(s, run);
    size_t n = 0;
    while (words[2 + n]) n++;
    const dt_status st = dt_config_load(out, s->config, (const char *const *)words + 2, n);
    dt_sweep_free_words(words);
    return st;
}

// A mistake in any combination is found before the first run starts.
static dt_status sweep_check_runs(sweep *s) {
    for (int r = 0; r < s->n_runs; r++) {
        dt_config *c = NULL;
        const dt_status st = dt_sweep_load_config(s, r, &c);
        if (st != DT_OK) return dt_fail_context(st, "run %s", s->runs[r].name);
        dt_config_destroy(c);
    }
    return DT_OK;
}

static dt_status find_directory(sweep *s) {
    dt_config *c = NULL;
    // lists are no values of their keys, so only what does not vary is read here
    const char **fixed = dt_xcalloc((size_t)s->n_variables + 1, sizeof *fixed);
    size_t n = 0;
    for (int i = 0; i < s->n_variables; i++)
        fixed[n++] = dt_xprintf("%s=%s", s->variables[i].key, s->variables[i].values[0]);
    dt_status st = dt_config_load(&c, s->config, fixed, n);
    for (size_t i = 0; i < n; i++) free((char *)fixed[i]);
    free(fixed);
    DT_TRY(st);
    s->dir = dt_xprintf("%s/%s", c->run.dir, c->run.name);
    if (c->checkpoint.mirror && !dt_text_ends(c->checkpoint.mirror, "/"))
        st = dt_config_fail(c, "checkpoint.mirror",
                            "checkpoint.mirror is one run's folder, and a sweep has several runs: "
                            "with a / behind it each has a folder below");
    else if (c->checkpoint.mirror)
        s->mirror = dt_xprintf("%s%s/", c->checkpoint.mirror, c->run.name);
    dt_config_destroy(c);
    char *own = dt_xprintf("%s/config.yaml", s->dir);
    if (st == DT_OK && dt_io_exists(own))
        st = dt_fail(DT_E_USAGE, "%s is a run, not a sweep: give the sweep another run.name", s->dir);
    free(own);
    return st;
}

dt_status dt_sweep_read(sweep *s, const dt_cli_words *w) {
    if (w->n_words < 1) return dt_fail(DT_E_USAGE, "a sweep expects a config; see dtrain sweep --help");
    s->config = w->words[0];
    DT_TRY(read_words(s, w));
    if (s->n_runs < 2)
        return dt_fail(DT_E_USAGE, "nothing varies: give a key several values, as in "
                                   "train.optimizer.lr=1e-3,3e-4 or run.seed=0..4");
    DT_TRY(find_directory(s));
    DT_TRY(name_runs(s));
    return sweep_check_runs(s);
}

void dt_sweep_fini(sweep *s) {
    free(s->mirror);
    for (int i = 0; i < s->n_variables; i++) {
        for (int k = 0; k < s->variables[i].n; k++) free(s->variables[i].values[k]);
        free(s->variables[i].values);
        free(s->variables[i].key);
    }
    for (int r = 0; s->runs && r < s->n_runs; r++) {
        free(s->runs[r].name);
        for (int p = DT_SPLIT_VAL; p <= DT_SPLIT_TEST; p++) json_decref(s->runs[r].lines[p]);
        json_decref(s->runs[r].pooled);
        free(s->runs[r].best);
    }
    free(s->variables);
    free(s->runs);
    free(s->dir);
}
