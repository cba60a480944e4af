// cmd_eval.c: dtrain eval CONFIG.yaml|RUN [key=value …]

#include "launch.h"

#include "base/arena.h"
#include "base/json.h"
#include "train/calibrate.h"

#include <stdlib.h>
#include <string.h>

enum { WHICH, SPLIT, SET, CSV, RAW, CALIBRATE };
static const launch_option options[] = {
    [WHICH] = {"--which", "latest|best|STEP", "which checkpoint (latest)"},
    [SPLIT] = {"--split", "train|val|test", "which samples (test)"},
    [SET] = {"--set", "PATH",
             "all samples of this data set instead; its classes are found by name"},
    [CSV] = {"--csv", "FILE", "the figures as a table, too"},
    [RAW] = {"--raw", NULL, "with train.ema: the trained weights, not their average"},
    [CALIBRATE] = {"--calibrate", NULL,
                   "instead: fits the temperature of probabilities on the validation part, for "
                   "dtrain predict (--which best)"},
    {NULL}};

static dt_status calibrate(const dt_trainer_args *a, bool *agreed, void *ctx) {
    const dt_eval_request *r = ctx;
    return dt_trainer_calibrate(a, r->which, agreed);
}

static dt_status body(const dt_trainer_args *a, bool *agreed, void *ctx) {
    return dt_trainer_eval(a, ctx, agreed);
}

static dt_status read_split(const launch_words *w, dt_split *out) {
    const char *name = w->options[SPLIT] ? w->options[SPLIT] : "test";
    int i = dt_word_index("train|val|test", name);
    if (i < 0) return dt_fail(DT_E_USAGE, "--split: '%s' is none of train, val, test", name);
    if (w->options[SET] && w->options[SPLIT])
        return dt_fail(DT_E_USAGE, "--split divides the run's own data, and all of --set is "
                                   "evaluated: take one of both");
    *out = (dt_split)i;
    return DT_OK;
}

// The keys that say which samples of its own data a run takes mean nothing of another set. What the user gives comes
// behind them.
static dt_status load(dt_config **out, const launch_words *w) {
    static const char *const whole[] = {"data.where=null", "data.balance=null", "data.weight=null",
                                        "data.split=null", "data.split.test=1"};
    enum { N = sizeof whole / sizeof *whole };
    if (!w->options[SET] || w->n_words < 1) return launch_load_config(out, "eval", w);
    const char **words = dt_xcalloc((size_t)w->n_words + N + 1, sizeof *words);
    launch_words all = {.words = words, .n_words = w->n_words + N + 1};
    dt_json j;
    dt_json_init(&j);
    dt_json_string(&j, NULL, w->options[SET]); // quoted, so that it is one value
    char *path = dt_xprintf("data.path=%s", j.data);
    words[0] = w->words[0];
    words[1] = path;
    memcpy(words + 2, whole, sizeof whole);
    for (int i = 1; i < w->n_words; i++) words[1 + N + i] = w->words[i];
    dt_status st = launch_load_config(out, "eval", &all);
    dt_json_fini(&j);
    free(path);
    free(words);
    return st;
}

static dt_status run(const launch_words *w) {
    const bool fits = w->options[CALIBRATE] != NULL;
    dt_eval_request r = {.which = w->options[WHICH] ? w->options[WHICH]
                                  : fits            ? "best"
                                                    : "latest",
                         .csv = w->options[CSV],
                         .raw = w->options[RAW]};
    if (fits && (w->options[SPLIT] || w->options[SET] || w->options[CSV] || r.raw))
        return dt_fail(DT_E_USAGE, "--calibrate takes the validation part of the run's own data, "
                                   "and neither --split, --set, --csv nor --raw");
    DT_TRY(read_split(w, &r.split));
    dt_config *c = NULL;
    DT_TRY(load(&c, w));
    dt_status st = launch_with_comm(c, fits ? calibrate : body, &r);
    dt_config_destroy(c);
    return st;
}

const launch_command launch_eval = {
    .options = options,
    .text =
        "Metrics of a checkpoint on one split, or on another data set, as a JSON line on "
        "stdout.\n\n"
        "  dtrain eval runs/fusion --which best\n"
        "  dtrain eval runs/photos --set new.lmdb 'eval.by=[camera]' eval.bootstrap=1000 --csv "
        "new.csv\n"
        "  mpirun -np 2 dtrain eval configs/fusion.yaml --split val 'eval.metrics=[confusion]'\n",
    .run = run};
