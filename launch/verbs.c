// verbs.c: the tables of verbs, as the .def files list them.

#include "launch.h"

#include <string.h>

#define VERB(id, words, summary) extern const launch_command launch_##id;
#include "cmds.def"
#undef VERB
#define VERB(id, words, summary) extern const launch_command launch_data_##id;
#include "launch/data/data_cmds.def"
#undef VERB
#define VERB(id, words, summary) extern const launch_command launch_on_##id;
#include "launch/targets/launch_targets.def"
#undef VERB
extern const launch_command launch_comm_bench;

const launch_verb launch_verbs[] = {
#define VERB(id, words, summary) {#id, words, summary, &launch_##id},
#include "cmds.def"
#undef VERB
    {NULL}};

static const launch_verb data_verbs[] = {
#define VERB(id, words, summary) {#id, words, summary, &launch_data_##id},
#include "launch/data/data_cmds.def"
#undef VERB
    {NULL}};

static const launch_verb targets[] = {
#define VERB(id, words, summary) {#id, words, summary, &launch_on_##id},
#include "launch/targets/launch_targets.def"
#undef VERB
    {NULL}};

static const launch_verb comm_verbs[] = {
    {"bench", "[--size MIB]", "how fast ranks exchange gradients, and which link is the slowest", &launch_comm_bench},
    {NULL}};

const launch_verb *launch_find_verb(const launch_verb *table, const char *name) {
    for (const launch_verb *v = table; v->name; v++)
        if (strcmp(v->name, name) == 0) return v;
    return NULL;
}

const launch_command launch_data = {
    .verbs = data_verbs,
    .text = "SET is what data.path takes: an LMDB directory, shards, a folder; several make one\n"
            "set. Every verb has --help.\n"};

const launch_command launch_launch = {
    .verbs = targets,
    .text = "Checks the config first, as dtrain check does, and then starts or submits the job.\n"
            "--print shows what would be run and runs nothing. Every target has --help.\n"};

const launch_command launch_comm = {.verbs = comm_verbs, .text = "Every verb has --help.\n"};
