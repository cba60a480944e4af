// launch_hosts.c: dtrain launch hosts: ranks on hosts that ssh reaches.

#include "target.h"

enum { HOSTS, PRINT };
static const launch_option options[] = {
    [HOSTS] = {"--hosts", "a:8,b:8", "hosts and the ranks of each"},
    [PRINT] = {"--print", NULL, "print the command"},
    {NULL}};

static dt_status run(const launch_words *w) {
    dt_config *c = NULL;
    DT_TRY(launch_target_config(&c, "launch hosts", w, true));
    dt_config_destroy(c);
    return dt_fail(DT_E_USAGE, "dtrain launch hosts is not written yet");
}

const launch_command launch_on_hosts = {
    .options = options,
    .text = "Starts ranks on hosts.\n\n  dtrain launch hosts --hosts a:8,b:8 configs/fusion.yaml\n",
    .run = run};
