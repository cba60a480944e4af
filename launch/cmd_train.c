// cmd_train.c: dtrain [train] CONFIG.yaml [key=value …]

#include "launch.h"

#include "run/signals.h"

static dt_status train_body(const dt_trainer_args *a, void *ctx) {
    // results go to stdout, as JSON lines
    return dt_trainer_train(a);
}

static dt_status train_run(const dt_cli_words *w) {
    dt_config *c = NULL;
    dt_signals_starting();
    dt_signals_install(); // ahead of all else; one that comes while the ranks connect is kept for the first step
    DT_TRY(dt_cli_load_config(&c, "train", w));
    dt_signals_set_grace(c->run.grace);                         // until here the default counts
    dt_status st = dt_cli_with_comm(c, NULL, train_body, NULL); // body runs on every rank
    dt_config_destroy(c);
    return st;
}

const dt_cli_command dt_cli_train = {
    .text = "Trains the network of the config, evaluates it, saves checkpoints in run.dir/run.name and prints the test "
            "metrics as JSON lines on stdout. The same command resumes an interrupted run from its newest checkpoint; "
            "a finished run prints its results again. key=value overrides a key of the config (dtrain keys lists "
            "keys). `mpirun -np N` in front starts N ranks.\n\n"
            "  dtrain configs/fusion.yaml\n"
            "  mpirun -np 8 dtrain configs/fusion.yaml\n"
            "  dtrain launch local -n 8 configs/fusion.yaml run.name=long train.epochs=20\n"
            "  dtrain configs/fusion.yaml model.fusion=cross_attention run.name=cross\n",
    .run = train_run};
