// cmd_eval.c: dtrain eval CONFIG.yaml|RUN [key=value …]

#include "launch.h"

#include "train/calibrate.h"
#include "train/metric.h"

enum { WHICH, SPLIT, SET, CSV, RAW, CALIBRATE };
static const launch_option options[] = {
    [WHICH] = LAUNCH_WHICH,
    [SPLIT] = {"--split", "train|val|test", "which samples (test)"},
    [SET] = {"--set", "PATH",
             "all samples of this data set instead; its classes are found by name"},
    [CSV] = {"--csv", "FILE", "the figures as a table, too"},
    [RAW] = {"--raw", NULL, "with train.ema: the trained weights, not their average"},
    [CALIBRATE] =
        {"--calibrate", NULL,
         "instead: fits the temperature of probabilities on the validation part, and with "
         "eval.threshold: f1 the thresholds of labels, for dtrain predict; dtrain eval leaves "
         "probabilities as they are"},
    {NULL}};

static dt_status calibrate(const dt_trainer_args *a, void *ctx) {
    const dt_eval_request *r = ctx;
    return dt_trainer_calibrate(a, r->which);
}

static dt_status body(const dt_trainer_args *a, void *ctx) {
    return dt_trainer_eval(a, ctx);
}

// People of another set need not be those that the run knows where it is judged by how well it distinguishes people.
static dt_field_use use_of(const dt_config *c) {
    const int best = dt_metric_of_best(c->eval.best);
    const bool pairs = best != DT_METRIC_AUTO && (dt_metrics_table[best]->of & DT_OF_PAIRS);
    return pairs ? DT_USE_IDENTITY : DT_USE_VALUE;
}

static dt_status read_split(const launch_words *w, dt_split *out) {
    if (w->options[SET] && w->options[SPLIT])
        return dt_fail(DT_E_USAGE, "--split divides the run's own data, and all of --set is "
                                   "evaluated: take one of both");
    return launch_option_split(w, SPLIT, out);
}

static dt_status load(dt_config **out, const launch_words *w) {
    if (!w->options[SET] || w->n_words < 1) return launch_load_config(out, "eval", w);
    return launch_load_for_set(out, w->words[0], w->options[SET], LAUNCH_ALL_RECORDS, w->words + 1,
                               w->n_words - 1);
}

static dt_status run(const launch_words *w) {
    const bool fits = w->options[CALIBRATE] != NULL;
    dt_eval_request r = {.which = w->options[WHICH],
                         .csv = w->options[CSV],
                         .raw = w->options[RAW],
                         .own_data = !w->options[SET]};
    if (fits && (w->options[SPLIT] || w->options[SET] || w->options[CSV] || r.raw))
        return dt_fail(DT_E_USAGE, "--calibrate takes the validation part of the run's own data, "
                                   "and neither --split, --set, --csv nor --raw");
    DT_TRY(read_split(w, &r.split));
    dt_config *c = NULL;
    DT_TRY(load(&c, w));
    const dt_field_use use = use_of(c);
    dt_status st = launch_with_comm(c, w->options[SET] ? &use : NULL, fits ? calibrate : body, &r);
    dt_config_destroy(c);
    return st;
}

const launch_command launch_eval = {
    .options = options,
    .text =
        "Metrics of a checkpoint on one split, or on another data set, as a JSON line on "
        "stdout.\n\n"
        "  dtrain eval runs/fusion --which latest\n"
        "  dtrain eval runs/photos --set new.lmdb 'eval.by=[camera]' eval.bootstrap=1000 --csv "
        "new.csv\n"
        "  mpirun -np 2 dtrain eval configs/fusion.yaml --split val 'eval.metrics=[confusion]'\n",
    .run = run};
