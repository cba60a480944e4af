// cmd_synth.c: dtrain synth KIND OUT

#include "launch.h"

#include "base/text.h"

#include "data/synth/synth.h"

#include <stdio.h>
#include <string.h>

enum { N, SUBJECTS, IMPRESSIONS, SEED, KINDS };
static const dt_cli_option options[] = {
    [N] = {"--n", "N", "number of records, or of subjects (defaults: --kinds)"},
    [SUBJECTS] = {"--subjects", "N", "biometric: another name of --n"},
    [IMPRESSIONS] = {"--impressions", "N", "biometric: images of each kind per subject (default 10)"},
    [SEED] = {"--seed", "N", "random seed; equal seeds make equal files (default 1)"},
    [KINDS] = {"--kinds", NULL, "list the kinds of data sets"},
    {NULL}};

// --subjects is another word for --n where it is true of what is made.
static dt_status check_subjects(const dt_cli_words *w) {
    const dt_synth_kind *k;
    if (!w->options[SUBJECTS]) return DT_OK;
    if (w->options[N]) return dt_fail(DT_E_USAGE, "synth: --subjects is the same as --n; give one of them");
    // an unknown kind is reported by dt_data_synth
    for (int i = 0; (k = dt_data_synth_kind(i)); i++)
        if (strcmp(k->name, w->words[0]) == 0 && !k->of_people)
            return dt_fail(DT_E_USAGE, "synth %s: no subjects in this kind: --n is the number of %s", k->name, k->unit);
    return DT_OK;
}

static dt_status synth_run(const dt_cli_words *w) {
    if (w->options[KINDS]) {
        const dt_synth_kind *k;
        for (int i = 0; (k = dt_data_synth_kind(i)); i++)
            printf("%-10s %6u %-8s %s\n", k->name, k->default_n, k->unit, k->help); // default_n in units
        return DT_OK;
    }
    DT_TRY(dt_cli_expect_words(w, "synth", 2, 2, "KIND OUT (dtrain synth --kinds lists kinds)"));
    int seed = 1;
    // no progress bar in a log file
    dt_synth_opts o = {.kind = w->words[0], .out = w->words[1], .progress = dt_text_on_terminal()};
    DT_TRY(check_subjects(w));
    DT_TRY(dt_cli_option_int(w, N, 0, &o.n));          // 0: the kind's own default
    DT_TRY(dt_cli_option_int(w, SUBJECTS, o.n, &o.n)); // after --n, which check_subjects excludes
    DT_TRY(dt_cli_option_int(w, IMPRESSIONS, 0, &o.impressions));
    DT_TRY(dt_cli_option_int(w, SEED, 1, &seed));
    o.seed = (uint64_t)seed;
    return dt_data_synth(&o);
}

const dt_cli_command dt_cli_synth = {.options = options,
                                     .text =
                                         "Makes a synthetic data set of raw files from a seed, for training and tests "
                                         "where real images and recordings are not at hand or may not be shared.\n\n"
                                         "  dtrain synth biometric datasets/biometric-raw\n"
                                         "  dtrain synth biometric datasets/small --subjects 6 --impressions 5\n"
                                         "  dtrain synth lens datasets/lens --n 2000\n"
                                         "  dtrain synth acoustic datasets/acoustic --n 4000\n"
                                         "  dtrain synth pose datasets/pose --n 5000\n"
                                         "  dtrain synth photos datasets/photos --n 1000\n",
                                     .run = synth_run};
