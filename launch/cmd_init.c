// cmd_init.c: dtrain init CONFIG.yaml RUN [key=value …]: a run that has trained nothing, so that weights of another library
// can be evaluated, predict and be exported.

#include "launch.h"

#include "base/core.h"

#include <stdlib.h>
#include <string.h>

static dt_status init_body(const dt_trainer_args *a, void *ctx) {
    return dt_trainer_init(a);
}

static dt_status init_run(const dt_cli_words *w) {
    dt_config *c = NULL;
    DT_TRY(dt_cli_expect_words(w, "init", 2, 1000, "CONFIG.yaml RUN [key=value …]")); // 1000: any command line
    // a forgotten RUN: the override would become a directory's name
    if (strchr(w->words[1], '='))
        return dt_fail(DT_E_USAGE,
                       "dtrain init CONFIG.yaml RUN [key=value …]: '%s' stands where RUN, the new "
                       "run's directory, belongs",
                       w->words[1]);
    const char **words = dt_xcalloc((size_t)w->n_words, sizeof *words);
    dt_cli_words config = {.words = words};
    for (int i = 0; i < w->n_words; i++)
        // all but RUN: what dt_cli_load_config expects
        if (i != 1) words[config.n_words++] = w->words[i];
    dt_status st = dt_cli_load_config(&c, "init", &config);
    free(words);
    DT_TRY(st);
    dt_cli_set_run(c, w->words[1]); // behind the overrides: RUN has the last say over run.name and run.dir
    st = dt_cli_with_comm(c, NULL, init_body, NULL);
    dt_config_destroy(c);
    return st;
}

const dt_cli_command dt_cli_init = {
    .text = "Makes a run whose only checkpoint is at step 0, with the weights of model.init or, without model.init, "
            "random weights. dtrain eval, predict, quantize and export read the run as any other; dtrain CONFIG.yaml "
            "run.name=… continues training from it.\n\n"
            "  dtrain init photos.yaml runs/timm model.init=resnet18.safetensors model.depth=18\n"
            "  dtrain eval runs/timm\n",
    .run = init_run};
