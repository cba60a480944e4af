// sweep_halving.c: dtrain sweep --early-stop halving: most of the training goes to the settings that do well.
//
// The rungs are those of ASHA (Li et al., "A system for massively parallel hyperparameter tuning", MLSys 2020, with
// factor 3, scikit-learn's): a third, a ninth, … of each run's steps, as far as an epoch and the number of configurations
// allow. All runs come to a rung, the best third of the configurations goes on, by the mean over folds and seeds of
// --metric at the rung. A run pauses there as at a signal (run.stop_at), so its learning rates are those of the whole run.
// What goes on is a function of the runs' metrics.jsonl: the same command finds its way again after any kill.

#include "sweep_table.h"

#include "base/arena.h"
#include "base/log.h"
#include "data/data.h"
#include "run/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FACTOR = 3 };

dt_status dt_sweep_check_halving(const sweep *s) {
    if (s->metric && s->metric_part == DT_SPLIT_VAL) return DT_OK;
    return dt_fail(DT_E_USAGE, "--early-stop halving wants --metric val.NAME, such as val.accuracy: "
                               "what says which runs go on");
}

typedef struct length {
    int64_t steps, epoch; // of the run; in an epoch
} length;

static dt_status find_length(const sweep *s, int run, length *out) {
    dt_config *c = NULL;
    dt_dataset *data = NULL;
    DT_TRY(dt_sweep_load_config(s, run, &c));
    dt_status st = dt_data_open(&data, c, NULL, 1, NULL);
    if (st == DT_OK) {
        out->epoch = data->n_samples(data, DT_SPLIT_TRAIN) / c->train.global_batch;
        out->steps = dt_run_steps(c, out->epoch);
        if (out->epoch < 1 || out->steps < out->epoch)
            st = dt_config_fail(c, "train.epochs",
                                "--early-stop: train.max_steps ends the run within "
                                "its first epoch");
        data->close(data);
    }
    dt_config_destroy(c);
    return st;
}

// The metric of the validation at the run's rung; NaN: the run has not reached the rung.
static double sweep_halving_value_at(const sweep *s, int run) {
    json_t *line = dt_sweep_validation_at(s, run, s->runs[run].stop_at);
    const json_t *v = json_object_get(line, s->metric);
    const double value = json_is_number(v) ? json_number_value(v) : NAN;
    json_decref(line);
    return value;
}

dt_status dt_sweep_check_metric(sweep *s) {
    dt_status st = DT_OK;
    for (int r = 0; r < s->n_runs && !s->metric_is_there && st == DT_OK; r++) {
        if (s->runs[r].phase != SWEEP_RUNS) continue;
        json_t *line = dt_sweep_validation_at(s, r, -1);
        const bool is_new = dt_sweep_step_of(line) > s->runs[r].old_step;
        s->metric_is_there = is_new && json_object_get(line, s->metric);
        if (is_new && !s->metric_is_there) st = dt_sweep_fail_metric(s, line);
        json_decref(line);
    }
    return st;
}

bool dt_sweep_is_at_rung(const sweep *s, int run) {
    return s->runs[run].stop_at > 0 && !isnan(sweep_halving_value_at(s, run));
}

typedef struct standing {
    int first; // run of the configuration
    double mean;
} standing;

// The largest first; configurations without a value last, equal ones in their order.
static int sweep_halving_compare(const void *pa, const void *pb) {
    const standing *a = pa, *b = pb;
    if (isnan(a->mean) != isnan(b->mean)) return isnan(a->mean) ? 1 : -1;
    if (a->mean != b->mean && !isnan(a->mean)) return a->mean > b->mean ? -1 : 1;
    return a->first - b->first;
}

// Ends the configurations that are not among the best third of those that came to the rung.
static dt_status drop_rest(sweep *s, int *n_stay) {
    const bool lower = dt_sweep_metric_is_lower(s->metric);
    standing *all = dt_xcalloc((size_t)s->n_runs + 1, sizeof *all);
    int n = 0;
    for (int r = 0; r < s->n_runs; r++) {
        if (s->runs[r].dropped || !dt_sweep_is_first(s, r)) continue;
        double sum = 0;
        int n_runs = 0;
        for (int k = r; k < s->n_runs; k++)
            if (dt_sweep_same_configuration(s, r, k)) sum += sweep_halving_value_at(s, k), n_runs++;
        all[n++] = (standing){r, lower ? -sum / n_runs : sum / n_runs};
    }
    qsort(all, (size_t)n, sizeof *all, sweep_halving_compare);
    *n_stay = n / FACTOR > 0 ? n / FACTOR : 1;
    const bool none = n == 0 || isnan(all[0].mean);
    for (int i = *n_stay; i < n && !none; i++)
        for (int k = 0; k < s->n_runs; k++)
            if (dt_sweep_same_configuration(s, all[i].first, k)) s->runs[k].dropped = true;
    free(all);
    return none ? dt_fail(DT_E_USAGE,
                          "--early-stop: no run has evaluated %s where it pauses: it must be a "
                          "metric of eval.metrics, and eval.every: 1 epoch",
                          s->metric)
                : DT_OK;
}

dt_status dt_sweep_halve(sweep *s, dt_status (*train)(sweep *s, void *ctx), void *ctx) {
    length *all = dt_xcalloc((size_t)s->n_runs + 1, sizeof *all);
    int64_t epochs = INT64_MAX; // of the shortest run
    int n = 0, n_rungs = 0;
    dt_status st = DT_OK;
    for (int r = 0; r < s->n_runs && st == DT_OK; r++) {
        st = find_length(s, r, &all[r]);
        if (st == DT_OK && all[r].steps / all[r].epoch < epochs) epochs = all[r].steps / all[r].epoch;
        n += dt_sweep_is_first(s, r);
    }
    for (int64_t e = st == DT_OK ? epochs / FACTOR : 0, k = n / FACTOR; e > 0 && k > 0; e /= FACTOR, k /= FACTOR)
        n_rungs++;
    for (int rung = n_rungs; rung > 0 && st == DT_OK; rung--) {
        int64_t part = 1;
        for (int k = 0; k < rung; k++) part *= FACTOR;
        for (int r = 0; r < s->n_runs; r++) { // whole epochs, at whose ends runs evaluate
            s->runs[r].stop_at = all[r].steps / part / all[r].epoch * all[r].epoch;
            s->runs[r].phase = s->runs[r].dropped ? SWEEP_ENDED : SWEEP_WAITS;
        }
        st = train(s, ctx);
        if (st != DT_OK) break;
        int n_stay = 0;
        st = drop_rest(s, &n_stay);
        if (st != DT_OK) break;
        dt_info("%s: after 1/%lld of the epochs %d of %d configurations go on", s->dir, (long long)part, n_stay, n);
    }
    for (int r = 0; r < s->n_runs && st == DT_OK; r++) {
        s->runs[r].stop_at = 0;
        s->runs[r].phase = s->runs[r].dropped ? SWEEP_ENDED : SWEEP_WAITS;
    }
    free(all);
    return st == DT_OK ? train(s, ctx) : st;
}
