// cmd_train.c: dtrain [train] CONFIG.yaml [key=value …]

#include "launch.h"

#include "run/signals.h"

static dt_status train_body(const dt_trainer_args *a, void *ctx) {
    return dt_trainer_train(a);
}

static dt_status train_run(const dt_cli_words *w) {
    dt_config *c = NULL;
    dt_signals_starting();
    dt_signals_install(); // ahead of all else; one that comes while the ranks connect is kept for the first step
    DT_TRY(dt_cli_load_config(&c, "train", w));
    dt_signals_set_grace(c->run.grace);
    dt_status st = dt_cli_with_comm(c, NULL, train_body, NULL);
    dt_config_destroy(c);
    return st;
}

const dt_cli_command dt_cli_train = {
    .text = "Trains what the config describes, saves checkpoints in run.dir/run.name, evaluates, and\n"
            "prints the test metrics as JSON lines to stdout, but for confusion matrices: the run's\n"
            "result.json has them (metrics.print_confusion). Run the same command again to go on "
            "after\n"
            "an interruption; a finished run says so. key=value overrides a key of the config (dtrain\n"
            "keys lists them).\n\n"
            "  dtrain configs/fusion.yaml\n"
            "  dtrain launch local -n 8 configs/fusion.yaml run.name=long train.epochs=20\n"
            "  dtrain configs/fusion.yaml model.fusion=cross_attention run.name=cross\n",
    .run = train_run};
