// cmd_launch.c: dtrain launch TARGET …: starts or submits a training. launch_targets.def lists the
// targets; each is a file.

#include "launch.h"

#define VERB(id, words, summary) extern const launch_command launch_on_##id;
#include "launch_targets.def"
#undef VERB

static const launch_verb targets[] = {
#define VERB(id, words, summary) {#id, words, summary, &launch_on_##id},
#include "launch_targets.def"
#undef VERB
    {NULL}};

const launch_command launch_launch = {
    .verbs = targets,
    .text = "Checks the config first, as dtrain check does, and then starts or submits the job.\n"
            "--print shows what would be run and runs nothing. Every target has --help.\n"};
