// cmd_eval.c: dtrain eval CONFIG.yaml|RUN … [key=value …]

#include "launch.h"

#include "base/core.h"
#include "base/io.h"
#include "eval/predict.h"
#include "metrics/metric.h"

#include <stdlib.h>
#include <string.h>

enum { WHICH, SPLIT, SET, CSV, RAW, CALIBRATE };
static const dt_cli_option options[] = {
    [WHICH] = LAUNCH_WHICH,
    [SPLIT] = {"--split", "train|val|test", "the split to evaluate (default test)"},
    [SET] = {"--set", "PATH", "evaluate all samples of this data set; classes are matched by name"},
    [CSV] = {"--csv", "FILE", "also write the metrics as a table"},
    [RAW] = {"--raw", NULL, "with train.ema: evaluate the trained weights instead of their EMA"},
    [CALIBRATE] = {"--calibrate", NULL,
                   "fit the softmax temperature on the validation split and, with eval.threshold: f1, a threshold for "
                   "each label; dtrain predict uses both, dtrain eval does not"},
    {NULL}};

enum { MOST = 256 }; // runs of an ensemble
typedef struct job {
    dt_eval_request r;
    dt_config *configs[MOST]; // of each run
} job;

// a dt_cli_with_comm body: every rank runs it
static dt_status eval_calibrate(const dt_trainer_args *a, void *ctx) {
    const job *j = ctx;
    return dt_trainer_calibrate(a, j->r.which);
}

static dt_status eval_body(const dt_trainer_args *a, void *ctx) {
    job *j = ctx;
    dt_trainer_args members[MOST]; // on the stack: dt_trainer_eval returns before it goes
    for (int i = 0; i < j->r.n_members; i++) {
        members[i] = *a; // comm, callbacks and streams are those of all
        members[i].config = j->configs[i];
    }
    j->r.members = members;
    return dt_trainer_eval(a, &j->r);
}

// People of another set need not be those that the run knows where it is judged by how well it distinguishes people.
static dt_field_use use_of(const dt_config *c) {
    const int best = dt_metric_of_best(c->eval.best);
    // AUTO is resolved when targets are known: no metric of pairs
    const bool pairs = best != DT_METRIC_AUTO && (dt_metrics_table[best]->of & DT_OF_PAIRS);
    // IDENTITY: labels are compared with each other only, so names that the run does not know are no errors
    return pairs ? DT_USE_IDENTITY : DT_USE_VALUE;
}

// Overrides are of all runs, and come behind the last.
static dt_status eval_load(job *j, const dt_cli_words *w) {
    int n = 1;
    dt_status st = DT_OK;
    if (w->n_words < 1) return dt_cli_load_config(&j->configs[0], "eval", w); // says what is wanted
    // a path may have '=' in its name, as a sweep's runs have: seed=1,lr=1e-3
    while (n < w->n_words && (!strchr(w->words[n], '=') || dt_io_exists(w->words[n]))) n++;
    if (n > MOST) return dt_fail(DT_E_USAGE, "more than %d runs", MOST);
    if (n > 1 && w->options[CALIBRATE])
        return dt_fail(DT_E_USAGE, "--calibrate is of one run: each has its own temperature");
    const char **words = dt_xcalloc((size_t)w->n_words, sizeof *words);
    // one run's words: the run, and all overrides
    const dt_cli_words one = {.words = words, .n_words = 1 + w->n_words - n};
    memcpy(words + 1, w->words + n, (size_t)(w->n_words - n) * sizeof *words); // words[0] is set for each run
    for (int i = 0; i < n && st == DT_OK; i++) {
        dt_config **out = &j->configs[i];
        words[0] = w->words[i];
        // behind --set all samples count, whatever data.split and data.where of the run say
        st = w->options[SET]
                 ? dt_cli_load_for_set(out, words[0], w->options[SET], LAUNCH_ALL_RECORDS, words + 1, one.n_words - 1)
                 : dt_cli_load_config(out, "eval", &one);
        j->r.n_members += st == DT_OK; // so many configs are freed at the end
    }
    free(words);
    return st;
}

static dt_status eval_run(const dt_cli_words *w) {
    const bool fits = w->options[CALIBRATE] != NULL; // another body: the run is changed, not measured
    job j = {
        .r = {
            .which = w->options[WHICH], .csv = w->options[CSV], .raw = w->options[RAW], .own_data = !w->options[SET]}};
    if (fits && (w->options[SPLIT] || w->options[SET] || w->options[CSV] || j.r.raw))
        return dt_fail(DT_E_USAGE, "--calibrate takes the validation split of the run's own data, and neither --split, "
                                   "--set, --csv nor --raw");
    if (w->options[SET] && w->options[SPLIT])
        return dt_fail(DT_E_USAGE, "--split divides the run's own data, and all of --set is "
                                   "evaluated: take one of both");
    DT_TRY(dt_cli_option_split(w, SPLIT, &j.r.split));
    dt_status st = eval_load(&j, w);
    if (st == DT_OK) {
        // of the first run: an ensemble's runs have the same targets
        const dt_field_use use = use_of(j.configs[0]);
        st = dt_cli_with_comm(j.configs[0], w->options[SET] ? &use : NULL, fits ? eval_calibrate : eval_body, &j);
    }
    for (int i = 0; i < j.r.n_members; i++) dt_config_destroy(j.configs[i]); // those loaded, also after an error
    return st;
}

const dt_cli_command dt_cli_eval = {
    .options = options,
    .text = "Evaluates a checkpoint on one split or on another data set and prints the metrics as a JSON line on "
            "stdout. The default is the test split; a run without one needs --split or --set. Several runs are "
            "evaluated as an ensemble: the mean of their predictions, as in dtrain predict.\n\n"
            "  dtrain eval runs/fusion --which latest\n"
            "  dtrain eval runs/a runs/b runs/c --split test 'eval.metrics=[accuracy, roc_auc]'\n"
            "  dtrain eval runs/photos --set new.lmdb 'eval.by=[camera]' eval.bootstrap=1000 --csv new.csv\n"
            "  mpirun -np 2 dtrain eval configs/fusion.yaml --split val 'eval.metrics=[confusion]'\n",
    .run = eval_run};
