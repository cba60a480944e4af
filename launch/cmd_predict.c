// cmd_predict.c: dtrain predict RUN… SET [key=value …]: what runs say of any data set, labelled or not.

#include "launch.h"

#include "base/core.h"
#include "base/io.h"
#include "config/words.h"
#include "eval/predict.h"

#include <stdlib.h>
#include <string.h>

enum { OUT, WHICH, SPLIT, TOP, COLUMNS, LOGITS, EMBEDDINGS, RAW, WEIGHTS, MC, TTA };
static const dt_cli_option options[] = {
    [OUT] = {"-o", "FILE", "write FILE.csv, FILE.jsonl or FILE.npy (default: CSV on stdout)"},
    [WHICH] = LAUNCH_WHICH,
    [SPLIT] = {"--split", "train|val|test", "predict this split of the run's own data; SET may be left out"},
    [TOP] = {"--top", "N", "classes per row, the most probable first (default 5)"},
    [COLUMNS] = {"--columns", "NAME[,NAME]", "also write these columns of the set"},
    [LOGITS] = {"--logits", NULL, "also write the network's raw outputs"},
    [EMBEDDINGS] = {"--embeddings", NULL, "also write the input of the last layer"},
    [RAW] = {"--raw", NULL, "with train.ema: use the trained weights instead of their EMA"},
    [WEIGHTS] = {"--weights", "equal|uncertainty", "weight of each run of an ensemble, per sample (default equal)"},
    [MC] = {"--mc", "N", "Monte Carlo dropout: mean and variance of N passes with dropout"},
    [TTA] = {"--tta", "flip,scale",
             "test-time augmentation: average over the image, its mirror image and 1.15 times its size"},
    {NULL}};

enum { MOST = 256 }; // runs of an ensemble
typedef struct job {
    dt_predict_request r;
    dt_config *configs[MOST]; // of each run
    int n;
    bool flips; // --tta
} job;

static dt_status predict_body(const dt_trainer_args *a, void *ctx) {
    const job *j = ctx;
    // heap: a dt_trainer_args each, as many as runs
    dt_trainer_args *members = dt_xcalloc((size_t)j->n, sizeof *members);
    for (int i = 0; i < j->n; i++) {
        members[i] = *a;
        members[i].config = j->configs[i];
    }
    dt_status st = dt_trainer_predict(members, j->n, &j->r);
    free(members);
    return st;
}

// The words of --tta.
// cuts `words` at commas
static dt_status read_changes(job *j, char *words) {
    static const char *const NAMES[DT_PREDICT_CHANGES] = {"flip", "scale"};
    // augmentations of probability 1 and a range of one value: every sample gets just the same change
    static const char *const LISTS[DT_PREDICT_CHANGES] = {"[{flip: {axis: horizontal, p: 1}}]",
                                                          "[{affine: {degrees: 0, scale: [1.15, 1.15]}}]"};
    char *rest = NULL;
    for (char *word = strtok_r(words, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        int i = 0;
        while (i < DT_PREDICT_CHANGES && strcmp(NAMES[i], word) != 0) i++;
        if (i == DT_PREDICT_CHANGES) return dt_fail(DT_E_USAGE, "--tta: '%s' is not one of flip, scale", word);
        for (int k = 0; k < j->r.n_changes; k++)
            // pointers into LISTS: equal where the words are
            if (j->r.changes[k] == LISTS[i]) return dt_fail(DT_E_USAGE, "--tta: '%s' is there twice", word);
        j->r.changes[j->r.n_changes++] = LISTS[i];
        j->flips |= i == 0;
    }
    return DT_OK;
}

// Whether all its images can be changed so. A mean over an image and its mirror image says nothing of numbers that
// change sign between them.
static dt_status check_changes(const job *j, const dt_config *c) {
    int n_images = 0; // counts over all fields; without one --tta would have no effect
    for (int i = 0; i < c->data.n_fields; i++) {
        n_images += c->data.fields[i].kind == DT_FIELD_image;
        if (j->flips && c->data.fields[i].mirror)
            return dt_fail(DT_E_USAGE,
                           "--tta flip: field %s changes sign with the image "
                           "(data.fields.%s.mirror): take scale alone",
                           c->data.fields[i].id, c->data.fields[i].id);
    }
    return n_images || j->r.n_changes == 0 ? DT_OK
                                           : dt_fail(DT_E_USAGE, "--tta changes images, and %s has none", c->run.name);
}

// a data set may be a directory too: config.yaml tells them apart
static bool is_run(const char *path) {
    char *config = dt_xprintf("%s/config.yaml", path);
    const bool found = dt_io_exists(config);
    free(config);
    return found;
}

// The set is the last path; with --split it may be missing.
static dt_status load_all(job *j, const dt_cli_words *w, int n_paths) {
    // all paths are runs: their own data
    const bool own = j->r.own_data && n_paths > 0 && is_run(w->words[n_paths - 1]);
    const int n_runs = own ? n_paths : n_paths - 1;
    if (n_runs < 1 && n_paths > 0 && j->r.own_data)
        return dt_fail(DT_E_USAGE, "%s: no run, which is a directory with a config.yaml", w->words[0]);
    if (n_runs < 1)
        return dt_fail(DT_E_USAGE, "dtrain predict expects a run, or several, and a data set (or --split of the run's "
                                   "own); see dtrain predict --help");
    for (int i = 0; i < n_runs; i++) {
        if (j->n == MOST) return dt_fail(DT_E_USAGE, "more than %d runs", MOST);
        // damaged samples are skipped
        DT_TRY(dt_cli_load_for_set(&j->configs[j->n], w->words[i], own ? NULL : w->words[n_runs],
                                   j->r.own_data ? LAUNCH_PART_OF_RUN : LAUNCH_WHERE_OF_RUN, w->words + n_paths,
                                   w->n_words - n_paths));
        DT_TRY(check_changes(j, j->configs[j->n++])); // counts first: freed even where the check fails
    }
    const bool several = j->n > 1 || j->r.mc > 1 || j->r.n_changes > 0; // a mean over passes
    // an ensemble has a mean of probabilities, and no logits
    if (several && (j->r.logits || j->r.embeddings))
        return dt_fail(DT_E_USAGE, "--logits and --embeddings are of one pass of one run");
    if (j->r.by_uncertainty && !several) return dt_fail(DT_E_USAGE, "--weights is for several runs, or --mc, or --tta");
    return DT_OK;
}

static dt_status predict_read_options(job *j, const dt_cli_words *w) {
    const char *weights = w->options[WEIGHTS];
    j->r = (dt_predict_request){.which = w->options[WHICH],
                                .out = w->options[OUT],
                                .columns = w->options[COLUMNS],
                                .logits = w->options[LOGITS],
                                .embeddings = w->options[EMBEDDINGS],
                                .raw = w->options[RAW],
                                .by_uncertainty = weights && strcmp(weights, "uncertainty") == 0};
    if (weights && !j->r.by_uncertainty && strcmp(weights, "equal") != 0)
        return dt_fail(DT_E_USAGE, "--weights: '%s' is not one of equal, uncertainty", weights);
    j->r.own_data = w->options[SPLIT] != NULL;          // before load_all, which reads it
    DT_TRY(dt_cli_option_split(w, SPLIT, &j->r.split)); // another set is all in its test part
    DT_TRY(dt_cli_option_int(w, TOP, 5, &j->r.top));
    DT_TRY(dt_cli_option_int(w, MC, 0, &j->r.mc));
    // a copy: the words are cut
    char *changes = dt_xstrdup(w->options[TTA] ? w->options[TTA] : "");
    const dt_status st = read_changes(j, changes);
    free(changes);
    DT_TRY(st);
    // the file's ending, and what the format can hold
    return dt_predict_check(j->r.out, 1, j->r.logits, j->r.embeddings);
}

static dt_status predict_run(const dt_cli_words *w) {
    job *j = dt_xcalloc(1, sizeof *j); // heap: 256 pointers and the request
    int n = 0;
    dt_status st = predict_read_options(j, w);
    // a path may have '=' in its name, as a sweep's runs have: the file decides
    while (n < w->n_words && (!strchr(w->words[n], '=') || dt_io_exists(w->words[n]))) n++;
    if (st == DT_OK) st = load_all(j, w, n);
    const dt_field_use use = DT_USE_NOTHING; // what is predicted need not be there
    // ranks share the samples; configs[0] has the device, the comm's limits and the data
    if (st == DT_OK) st = dt_cli_with_comm(j->configs[0], j->r.own_data ? NULL : &use, predict_body, j);
    for (int i = 0; i < j->n; i++) dt_config_destroy(j->configs[i]);
    free(j);
    return st;
}

const dt_cli_command dt_cli_predict = {
    .options = options,
    .text = "Writes a prediction for each sample of SET, in the order of SET. SET is a data set, a folder, a list of "
            "files or one file, labelled or not; where it has what is predicted, FIELD.truth has the true value. "
            "Several runs form an ensemble: the prediction is the mean of their "
            "probabilities.\n\n"
            "  dtrain predict runs/photos new_photos -o new.csv\n"
            "  dtrain predict runs/photos photo.jpg\n"
            "  dtrain predict runs/photos --split test -o test.csv\n"
            "  dtrain predict runs/a runs/b runs/c test.lmdb --weights uncertainty\n"
            "  mpirun -np 2 dtrain predict runs/fusion test.lmdb -o logits.npy --logits\n",
    .run = predict_run};
