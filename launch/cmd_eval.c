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
    [CALIBRATE] = {"--calibrate", NULL,
                   "instead: fits the temperature of probabilities on the validation part, for "
                   "dtrain predict"},
    {NULL}};

static dt_status calibrate(const dt_trainer_args *a, bool *agreed, void *ctx) {
    const dt_eval_request *r = ctx;
    return dt_trainer_calibrate(a, r->which, agreed);
}

static dt_status body(const dt_trainer_args *a, bool *agreed, void *ctx) {
    return dt_trainer_eval(a, ctx, agreed);
}

// People of another set need not be those that the run knows where it is judged by how well it tells people apart.
static dt_status open_set(void *ctx, const dt_config *c, dt_backend *b, int workers,
                          const char *skip_log, const char *classes, dt_dataset **out) {
    const int best = c->eval.best - 1; // behind `auto`
    const bool pairs = best >= 0 && (dt_metrics_table[best]->of & DT_OF_PAIRS);
    return launch_open_for_set(ctx, c, b, workers, skip_log, classes,
                               pairs ? DT_USE_IDENTITY : DT_USE_VALUE, out);
}

static dt_status body_of_set(const dt_trainer_args *a, bool *agreed, void *ctx) {
    dt_trainer_args args = *a;
    args.open_data = open_set;
    return dt_trainer_eval(&args, ctx, agreed);
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
    dt_eval_request r = {
        .which = w->options[WHICH], .csv = w->options[CSV], .raw = w->options[RAW]};
    if (fits && (w->options[SPLIT] || w->options[SET] || w->options[CSV] || r.raw))
        return dt_fail(DT_E_USAGE, "--calibrate takes the validation part of the run's own data, "
                                   "and neither --split, --set, --csv nor --raw");
    DT_TRY(read_split(w, &r.split));
    dt_config *c = NULL;
    DT_TRY(load(&c, w));
    dt_status st = launch_with_comm(c, fits ? calibrate : w->options[SET] ? body_of_set : body, &r);
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
