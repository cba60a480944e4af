// launch_local.c: dtrain launch local: ranks on this machine.

#include "supervise.h"
#include "target.h"

#include <stdlib.h>

enum { RANKS, RESTARTS, PRINT };
static const dt_cli_option options[] = {
    [RANKS] = {"-n", "N", "ranks (one a GPU; 1 without GPUs)"},
    [RESTARTS] = {"--restarts", "N", "start again after a lost rank, a hang or a crash (0)"},
    [PRINT] = {"--print", NULL, "print the command"},
    {NULL}};

typedef struct local {
    const char **words; // train CONFIG key=value …
    int n_ranks;
} local;

static dt_status launch_local_command(void *ctx, dt_cli_jobs *jobs, bool again, const char ***argv) {
    const local *l = ctx;
    *argv = dt_cli_rank_words(l->n_ranks, l->words);
    return DT_OK;
}

static dt_status launch_local_start(const dt_cli_words *w, const dt_config *c, int n_ranks, int restarts) {
    local l = {.words = dt_cli_train_words(w), .n_ranks = n_ranks};
    dt_status st = DT_OK;
    if (w->options[PRINT]) {
        const char **argv = dt_cli_rank_words(n_ranks, l.words);
        dt_cli_print_command(argv, n_ranks > 1);
        free(argv);
    } else {
        st = dt_cli_supervise(
            &(dt_cli_supervised){.config = c, .restarts = restarts, .command = launch_local_command, .ctx = &l});
    }
    free(l.words);
    return st;
}

static dt_status launch_local_run(const dt_cli_words *w) {
    int n_ranks, restarts;
    dt_config *c = NULL;
    DT_TRY(dt_cli_option_int(w, RESTARTS, 0, &restarts));
    DT_TRY(dt_cli_target_config(&c, "launch local", w));
    dt_status st = dt_cli_option_ranks(w, RANKS, "this machine", dt_cli_count_gpus(c), &n_ranks);
    dt_run_length length;
    if (st == DT_OK) st = dt_cli_target_ranks(c, n_ranks);
    if (st == DT_OK) st = dt_cli_target_check(c, false, 0, &length);
    if (st == DT_OK) st = launch_local_start(w, c, n_ranks, restarts);
    dt_config_destroy(c);
    return st;
}

const dt_cli_command dt_cli_on_local = {
    .options = options,
    .text = "Starts ranks on this machine, with the settings that Open MPI wants for that, and\n"
            "exits with their code. Ctrl-C and TERM save a checkpoint and exit with 75; a second\n"
            "Ctrl-C, two seconds later, does not wait for that. With --restarts a lost rank, a hang\n"
            "or a crash begins again at the newest checkpoint; what fails twice at the same step\n"
            "ends.\n\n"
            "  dtrain launch local -n 8 configs/fusion.yaml\n"
            "  dtrain launch local -n 8 --restarts 3 configs/fusion.yaml run.name=long\n",
    .run = launch_local_run};
