// cmd_pack.c: dtrain pack SRC OUT

#include "launch.h"

#include "data/data.h"

#include <unistd.h>

enum { PATTERN, OVERWRITE };
static const launch_option options[] = {
    [PATTERN] = {"--pattern", "P[|P…]", "paths with {captures} that become metadata"},
    [OVERWRITE] = {"--overwrite", NULL, "replace OUT"},
    {NULL}};

static dt_status run(const launch_words *w) {
    DT_TRY(launch_expect_words(w, "pack", 2, 2, "SRC OUT"));
    dt_pack_opts o = {.source = w->words[0],
                      .out = w->words[1],
                      .pattern = w->options[PATTERN],
                      .progress = isatty(2),
                      .overwrite = w->options[OVERWRITE] != NULL};
    return dt_data_pack(&o);
}

const launch_command launch_pack = {
    .options = options,
    .text =
        "Raw files (a folder or a tar) into LMDB (OUT ends in .lmdb) or WebDataset shards (OUT is\n"
        "a pattern of .tar files), with metadata from the paths and a hash of every record.\n\n"
        "  dtrain pack datasets/biometric-raw datasets/biometric.lmdb\n"
        "  dtrain pack datasets/biometric-raw 'datasets/biometric-{000000..000003}.tar'\n"
        "  dtrain pack photos 'photos-{000000..000003}.tar' --pattern '{class}/{name}.jpg'\n",
    .run = run};
