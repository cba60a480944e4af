// cmd_comm.c: dtrain comm …: looks at the network between ranks.

#include "launch.h"

extern const launch_command launch_comm_bench;

static const launch_verb verbs[] = {
    {"bench", "[--size MIB]", "how fast ranks exchange gradients, and which link is the slowest",
     &launch_comm_bench},
    {NULL}};

const launch_command launch_comm = {.verbs = verbs, .text = "Every verb has --help.\n"};
