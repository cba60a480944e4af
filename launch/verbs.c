// verbs.c: the tables of verbs, as the .def files list them.

#include "launch.h"

#include <string.h>

#define VERB(id, words, summary) extern const dt_cli_command dt_cli_##id;
#include "cmds.def"
#undef VERB
#define VERB(id, words, summary) extern const dt_cli_command dt_cli_data_##id;
#include "launch/data/data_cmds.def"
#undef VERB
#define VERB(id, words, summary) extern const dt_cli_command dt_cli_on_##id;
#include "launch/targets/launch_targets.def"
#undef VERB
extern const dt_cli_command dt_cli_comm_bench;

const dt_cli_verb dt_cli_verbs[] = {
#define VERB(id, words, summary) {#id, words, summary, &dt_cli_##id},
#include "cmds.def"
#undef VERB
    {NULL}};

static const dt_cli_verb data_verbs[] = {
#define VERB(id, words, summary) {#id, words, summary, &dt_cli_data_##id},
#include "launch/data/data_cmds.def"
#undef VERB
    {NULL}};

static const dt_cli_verb targets[] = {
#define VERB(id, words, summary) {#id, words, summary, &dt_cli_on_##id},
#include "launch/targets/launch_targets.def"
#undef VERB
    {NULL}};

static const dt_cli_verb comm_verbs[] = {
    {"bench", "[--size MIB]", "how fast ranks exchange gradients, and which link is the slowest", &dt_cli_comm_bench},
    {NULL}};

const dt_cli_verb *dt_cli_find_verb(const dt_cli_verb *table, const char *name) {
    for (const dt_cli_verb *v = table; v->name; v++)
        if (strcmp(v->name, name) == 0) return v;
    return NULL;
}

const dt_cli_command dt_cli_data = {
    .verbs = data_verbs,
    .text = "SET is what data.path takes: an LMDB directory, shards, a folder; several make one\n"
            "set. Every verb has --help.\n"};

const dt_cli_command dt_cli_launch = {
    .verbs = targets,
    .text = "Checks the config first, as dtrain check does, and then starts or submits the job.\n"
            "--print shows what would be run and runs nothing. Every target has --help.\n"};

const dt_cli_command dt_cli_comm = {.verbs = comm_verbs, .text = "Every verb has --help.\n"};
