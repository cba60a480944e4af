// cmd_quantize.c: dtrain quantize RUN [SET] -o RUN.int8 [key=value …]: a run that computes in int8.

#include "launch.h"

#include "base/core.h"
#include "base/io.h"
#include "eval/quantizer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { OUT, WHICH, SPLIT, CALIBRATE, PERCENTILE, TOLERANCE, RAW }; // indices into options
static const dt_cli_option options[] = {
    [OUT] = {"-o", "RUN.int8", "directory of the new run"},
    [WHICH] = LAUNCH_WHICH,
    [SPLIT] = {"--split", "train|val|test", "calibrate on this split of the run's own data, without SET"},
    [CALIBRATE] = {"--calibrate", "mse|minmax|percentile",
                   "range of activations: least squared error, full range, or --percentile (default mse)"},
    [PERCENTILE] = {"--percentile", "P", "percentage of activations inside the range (default 99.99)"},
    [TOLERANCE] = {"--tolerance", "E",
                   "a layer stays fp32 if int8 in this layer alone changes the outputs by a larger relative error than "
                   "E (default 0.1)"},
    [RAW] = {"--raw", NULL, "with train.ema: quantize the trained weights instead of their EMA"},
    {NULL}};

static dt_status quantize_body(const dt_trainer_args *a, void *ctx) {
    return dt_trainer_quantize(a, ctx);
}

static dt_status quantize_read_real(const dt_cli_words *w, int option, double fallback, double low, double high,
                                    double *out) {
    const char *text = w->options[option];
    char *end = NULL;
    *out = fallback; // without the option
    if (!text) return DT_OK;
    *out = strtod(text, &end);
    // !*end: nothing behind the number; NaN fails both comparisons
    if (*text && !*end && *out >= low && *out <= high) return DT_OK;
    return dt_fail(DT_E_USAGE, "%s: '%s' is not a number from %g to %g", options[option].name, text, low, high);
}

static dt_status quantize_read_options(const dt_cli_words *w, dt_quantize_request *r) {
    const char *how = w->options[CALIBRATE] ? w->options[CALIBRATE] : "mse";
    const int word = dt_word_index(DT_WORDS(DT_OBSERVE_WORDS), how); // < 0: no such word, reported below
    DT_TRY(dt_cli_option_split(w, SPLIT, &r->split));                // another set is all in its test part
    r->which = w->options[WHICH];
    r->out = w->options[OUT];
    r->raw = w->options[RAW] != NULL;
    r->how = (dt_observe)word;
    if (!r->out) return dt_fail(DT_E_USAGE, "dtrain quantize expects -o RUN.int8, the new run");
    // the table's own words
    if (word < 0) return dt_fail(DT_E_USAGE, "--calibrate: '%s' is not one of %s", how, DT_WORDS(DT_OBSERVE_WORDS));
    if (w->options[PERCENTILE] && r->how != DT_OBSERVE_percentile)
        return dt_fail(DT_E_USAGE, "--percentile is for --calibrate percentile");
    // never replaced: the new run may be the one in use
    if (dt_io_exists(r->out)) return dt_fail(DT_E_USAGE, "%s: is there already: remove it, or give another -o", r->out);
    // at 50 % half of the activations saturate already
    DT_TRY(quantize_read_real(w, PERCENTILE, 99.99, 50, 100, &r->percentile));
    return quantize_read_real(w, TOLERANCE, 0.1, 0, 1e30, &r->tolerance); // 1e30: no layer stays in fp32
}

// The run's own config, and that it is in int8; the overrides of the command line are for the set only.
static dt_status new_config(const char *run, char **text) {
    const dt_cli_words w = {.words = &run, .n_words = 1};
    dt_config *c = NULL;
    DT_TRY(dt_cli_load_config(&c, "quantize", &w));
    dt_config_set_text(c, DT_KEY(model.int8), "true"); // eval and predict read it from the config alone
    dt_config_set_word(c, DT_KEY(train.precision), DT_PRECISION_fp32);
    dt_config_set_word(c, DT_KEY(device.kind), DT_DEVICE_cpu); // int8 kernels are of the CPU
    *text = dt_config_dump(c);
    dt_config_destroy(c);
    return DT_OK;
}

static dt_status quantize_run(const dt_cli_words *w) {
    dt_quantize_request r = {0};
    dt_config *c = NULL;
    char *text = NULL;
    r.own_data = w->options[SPLIT] != NULL;
    const int n_paths = r.own_data ? 1 : 2; // plain words: overrides come behind
    if (w->n_words < n_paths)
        return dt_fail(DT_E_USAGE, "dtrain quantize expects a run and a data set (or --split of the run's own); see "
                                   "dtrain quantize --help");
    const char *dir = w->words[0], *set = r.own_data ? NULL : w->words[1];
    if (r.own_data && w->n_words > 1 && !strchr(w->words[1], '='))
        return dt_fail(DT_E_USAGE, "--split divides the run's own data, and all of a set calibrates: take one of both");
    DT_TRY(quantize_read_options(w, &r));
    // a config file would have no weights
    if (!dt_io_is_dir(dir))
        return dt_fail(DT_E_USAGE, "%s: no run's directory%s", dir, dt_io_exists(dir) ? "" : ": it does not exist");
    DT_TRY(dt_cli_load_for_set(&c, dir, set, r.own_data ? LAUNCH_PART_OF_RUN : LAUNCH_ALL_RECORDS, w->words + n_paths,
                               w->n_words - n_paths));
    // activations are observed in fp32, whatever the run was trained in
    dt_config_set_word(c, DT_KEY(train.precision), DT_PRECISION_fp32);
    dt_status st = new_config(dir, &text);
    r.config = text;
    // labels have to be there: accuracy is measured
    if (st == DT_OK) st = dt_cli_with_comm(c, r.own_data ? NULL : &(dt_field_use){DT_USE_VALUE}, quantize_body, &r);
    dt_config_destroy(c);
    free(text);
    return st;
}

const dt_cli_command dt_cli_quantize = {
    .options = options,
    .text =
        "Makes an int8 run from a trained one (post-training quantization of convolutions and linear layers). SET is a "
        "labelled data set of a few hundred samples or more: it calibrates the ranges of activations and measures "
        "accuracy and speed of int8 beside fp32. dtrain eval and dtrain predict read the new run as any other.\n\n"
        "  dtrain quantize runs/photos val.lmdb -o runs/photos.int8\n"
        "  dtrain quantize runs/photos --split val -o runs/photos.int8\n"
        "  dtrain quantize runs/vit val.lmdb -o runs/vit.int8 --calibrate percentile --tolerance 0.02\n"
        "  dtrain predict runs/photos.int8 new_photos -o new.csv\n",
    .run = quantize_run};
