// cmd_synth.c: dtrain synth KIND OUT

#include "launch.h"

#include "data/data.h"

#include <stdio.h>
#include <unistd.h>

enum { SUBJECTS, IMPRESSIONS, SEED, KINDS };
static const launch_option options[] = {
    [SUBJECTS] = {"--subjects", "N", "how many people (45)"},
    [IMPRESSIONS] = {"--impressions", "N", "images of each kind a person (10)"},
    [SEED] = {"--seed", "N", "equal seeds make equal files (1)"},
    [KINDS] = {"--kinds", NULL, "list what can be made"},
    {NULL}};

extern const launch_command launch_synth;

static dt_status run(const launch_words *w) {
    if (w->options[KINDS]) {
        for (const char *const *k = dt_data_synth_kinds(); *k; k += 2)
            printf("%-12s %s\n", k[0], k[1]);
        return DT_OK;
    }
    DT_TRY(launch_expect_words(w, "synth", 2, 2, "KIND OUT (dtrain synth --kinds lists kinds)"));
    int seed = 1;
    dt_synth_opts o = {.kind = w->words[0], .out = w->words[1], .progress = isatty(2)};
    DT_TRY(launch_option_int(w, &launch_synth, SUBJECTS, 0, &o.subjects));
    DT_TRY(launch_option_int(w, &launch_synth, IMPRESSIONS, 0, &o.impressions));
    DT_TRY(launch_option_int(w, &launch_synth, SEED, 1, &seed));
    o.seed = (uint64_t)seed;
    return dt_data_synth(&o);
}

const launch_command launch_synth = {
    .options = options,
    .text =
        "Makes a data set of raw files from nothing but a seed: something to train on when the\n"
        "real images may not leave the hospital.\n\n"
        "  dtrain synth biometric datasets/biometric-raw\n"
        "  dtrain synth biometric /tmp/small --subjects 6 --impressions 5\n",
    .run = run};
