// cmd_predict.c: dtrain predict RUN SET [key=value …]: what a run says of any data set, labelled or not.

#include "launch.h"

#include "base/arena.h"
#include "base/io.h"
#include "base/json.h"
#include "data/data.h"
#include "graph/targets.h"
#include "train/predict.h"
#include "train/predict_write.h"

#include <stdlib.h>
#include <string.h>

enum { OUT, WHICH, TOP, LOGITS, EMBEDDINGS };
static const launch_option options[] = {
    [OUT] = {"-o", "FILE", "FILE.csv, FILE.jsonl or FILE.npy (CSV on stdout)"},
    [WHICH] = {"--which", "best|latest|STEP", "which checkpoint (best)"},
    [TOP] = {"--top", "N", "classes of a row, the most probable first (5)"},
    [LOGITS] = {"--logits", NULL, "the network's outputs, too"},
    [EMBEDDINGS] = {"--embeddings", NULL, "what the network's last layer gets, too"},
    {NULL}};

extern const launch_command launch_predict;

// Fields that are predicted need no values.
static dt_status open_data(void *ctx, const dt_config *c, dt_backend *b, int workers,
                           const char *skip_log, const char *classes, dt_dataset **out) {
    dt_field_info fields[DT_MAX_FIELDS];
    dt_targets targets;
    bool absent[DT_MAX_FIELDS] = {false};
    const dt_comm *comm = ctx;
    int n;
    DT_TRY(dt_data_describe_fields(c, classes, fields, &n));
    DT_TRY(dt_targets_read(&targets, c, fields, n, false));
    for (int i = 0; i < targets.n; i++) absent[targets.items[i].index] = true;
    DT_TRY(dt_data_open_as(out, c, b, workers, skip_log, classes, absent));
    dt_data_set_processes(*out, comm->local_size);
    return DT_OK;
}

static dt_status body(const dt_trainer_args *a, bool *agreed, void *ctx) {
    dt_trainer_args args = *a;
    args.open_data = open_data;
    return dt_trainer_predict(&args, ctx, agreed);
}

// The run's config, for all of another set: the keys that choose from its own data, and those that need columns of it,
// mean nothing there. What the user gives comes behind them.
static dt_status load(dt_config **out, const char *run, const char *set, const char **more, int n) {
    static const char *const whole[] = {
        "data.where=null",   "data.balance=null",  "data.weight=null", "data.split=null",
        "data.split.test=1", "data.on_error=skip", "eval.by=null",     "data.mix=null"};
    enum { N = sizeof whole / sizeof *whole };
    const char **words = dt_xcalloc((size_t)n + N + 2, sizeof *words);
    launch_words all = {.words = words, .n_words = n + N + 2};
    dt_json j;
    dt_json_init(&j);
    dt_json_string(&j, NULL, set); // quoted, so that it is one value
    char *path = dt_xprintf("data.path=%s", j.data);
    words[0] = run;
    words[1] = path;
    memcpy(words + 2, whole, sizeof whole);
    for (int i = 0; i < n; i++) words[2 + N + i] = more[i];
    dt_status st = launch_load_config(out, "predict", &all);
    dt_json_fini(&j);
    free(path);
    free(words);
    return st;
}

static dt_status run(const launch_words *w) {
    dt_predict_request r = {.which = w->options[WHICH] ? w->options[WHICH] : "best",
                            .out = w->options[OUT],
                            .logits = w->options[LOGITS],
                            .embeddings = w->options[EMBEDDINGS]};
    int n = 0;
    while (n < w->n_words && (!strchr(w->words[n], '=') || dt_io_exists(w->words[n]))) n++;
    if (n != 2)
        return dt_fail(DT_E_USAGE, "dtrain predict wants a run and a data set; see dtrain predict "
                                   "--help");
    DT_TRY(launch_option_int(w, &launch_predict, TOP, 5, &r.top));
    DT_TRY(dt_predict_check(r.out, 1, r.logits, r.embeddings));
    dt_config *c = NULL;
    DT_TRY(load(&c, w->words[0], w->words[1], w->words + n, w->n_words - n));
    dt_status st = launch_with_comm(c, body, &r);
    dt_config_destroy(c);
    return st;
}

const launch_command launch_predict = {
    .options = options,
    .text = "What a run says of the samples of SET: a data set, a folder, a list of files or one "
            "file, labelled or not. A row a sample, in the order of the set.\n\n"
            "  dtrain predict runs/photos new_photos -o new.csv\n"
            "  dtrain predict runs/photos photo.jpg\n"
            "  mpirun -np 2 dtrain predict runs/fusion test.lmdb -o logits.npy --logits\n",
    .run = run};
