// cmd_eval.c: dtrain eval CONFIG.yaml|RUN [key=value …]

#include "launch.h"

enum { WHICH, SPLIT };
static const launch_option options[] = {
    [WHICH] = {"--which", "latest|best|STEP", "which checkpoint (latest)"},
    [SPLIT] = {"--split", "train|val|test", "which samples (test)"},
    {NULL}};

typedef struct request {
    const char *which;
    dt_split split;
} request;

static dt_status body(const dt_trainer_args *a, bool *agreed, void *ctx) {
    const request *r = ctx;
    return dt_trainer_eval(a, r->which, r->split, agreed);
}

static dt_status read_split(const char *name, dt_split *out) {
    int i = dt_word_index("train|val|test", name);
    if (i < 0) return dt_fail(DT_E_USAGE, "--split: '%s' is none of train, val, test", name);
    *out = (dt_split)i;
    return DT_OK;
}

static dt_status run(const launch_words *w) {
    request r = {.which = w->options[WHICH] ? w->options[WHICH] : "latest"};
    DT_TRY(read_split(w->options[SPLIT] ? w->options[SPLIT] : "test", &r.split));
    dt_config *c = NULL;
    DT_TRY(launch_load_config(&c, "eval", w));
    dt_status st = launch_with_comm(c, body, &r);
    dt_config_destroy(c);
    return st;
}

const launch_command launch_eval = {
    .options = options,
    .text =
        "Metrics of a checkpoint on one split, as a JSON line on stdout.\n\n"
        "  dtrain eval runs/fusion --which best\n"
        "  mpirun -np 2 dtrain eval configs/fusion.yaml --split val 'eval.metrics=[confusion]'\n",
    .run = run};
