// cmd_data.c: dtrain data …: looks into data sets. data_cmds.def lists the verbs; each is a file.

#include "launch.h"

#define VERB(id, words, summary) extern const launch_command launch_data_##id;
#include "data_cmds.def"
#undef VERB

static const launch_verb verbs[] = {
#define VERB(id, words, summary) {#id, words, summary, &launch_data_##id},
#include "data_cmds.def"
#undef VERB
    {NULL}};

const launch_command launch_data = {
    .verbs = verbs,
    .text =
        "SET is what data.path takes: an LMDB directory, shards, a folder; several make one set.\n"
        "Every verb has --help.\n"};
