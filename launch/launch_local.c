// launch_local.c: dtrain launch local: ranks on this machine.

#include "job.h"
#include "target.h"

extern const launch_command launch_on_local;
enum { RANKS, PRINT };
static const launch_option options[] = {
    [RANKS] = {"-n", "N", "ranks (1)"}, [PRINT] = {"--print", NULL, "print the command"}, {NULL}};

static dt_status run(const launch_words *w) {
    int n_ranks;
    dt_config *c = NULL;
    DT_TRY(launch_option_int(w, &launch_on_local, RANKS, 1, &n_ranks));
    DT_TRY(launch_target_config(&c, "launch local", w, false));
    dt_status st = launch_check_ranks(c, n_ranks);
    dt_config_destroy(c);
    DT_TRY(st);
    return dt_fail(DT_E_USAGE, "dtrain launch local is not written yet");
}

const launch_command launch_on_local = {
    .options = options,
    .text = "Starts ranks on this machine.\n\n  dtrain launch local -n 8 configs/fusion.yaml\n",
    .run = run};
