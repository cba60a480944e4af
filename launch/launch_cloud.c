// launch_cloud.c: dtrain launch cloud

#include "target.h"

enum { PRINT, TEMPLATE };
static const launch_option options[] = {
    [PRINT] = {"--print", NULL, "print what would be submitted"},
    [TEMPLATE] = {"--template", "FILE", "instead of the one that comes with dtrain"},
    {NULL}};

static dt_status run(const launch_words *w) {
    dt_config *c = NULL;
    DT_TRY(launch_target_config(&c, "launch cloud", w, true));
    dt_config_destroy(c);
    return dt_fail(DT_E_USAGE, "dtrain launch cloud is not written yet");
}

const launch_command launch_on_cloud = {
    .options = options,
    .text = "Submits the job.\n\n  dtrain launch cloud configs/fusion.yaml\n",
    .run = run};
