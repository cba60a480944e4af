// launch_cloud.c: dtrain launch cloud: fills launch/cloud/sky.yaml and gives it to SkyPilot.

#include "target.h"

#include "base/core.h"
#include "base/io.h"
#include "config/words.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CLOUD, NODES, RANKS, GPUS, CPUS, MEMORY, SPOT, DATA, RUNS, IMAGE, PRINT, TEMPLATE };
static const dt_cli_option options[] = {
    [CLOUD] = {"--cloud", "aws|gcp|azure",
               "cloud, with or without a region, such as aws/us-east-1 (default: the cheapest)"},
    [NODES] = {"--nodes", "N", "machines (default 1)"},
    [RANKS] = {"-n", "N", "ranks per machine (default: one per GPU; 1 without GPUs)"},
    [GPUS] = {"--gpus", "NAME:N", "GPUs per machine, such as A100:8"},
    [CPUS] = {"--cpus", "N+", "cores per machine, such as 16+"},
    [MEMORY] = {"--memory", "GB+", "memory per machine, such as 64+"},
    [SPOT] = {"--spot", NULL, "use spot machines: cheaper, may be preempted"},
    [DATA] = {"--data", "URL", "bucket with the data set: s3://…, gs://…, https://… of Azure"},
    [RUNS] = {"--runs", "URL", "bucket for runs and checkpoints; not with checkpoint.mirror"},
    [IMAGE] = {"--image", "IMAGE", "container image with dtrain (default: built on each machine from this folder)"},
    [PRINT] = {"--print", NULL, "print the task and submit nothing"},
    [TEMPLATE] = {"--template", "FILE", "your own copy of launch/cloud/sky.yaml"},
    {NULL}};

typedef struct cloud {
    const dt_cli_words *w;
    dt_config *config;
    int n_nodes, n_ranks_node;
    char *name;
    dt_cli_values values;
} cloud;

// ---- what is asked for -----------------------------------------------------------------------------

static dt_status check_cloud(const char *given) {
    static const char *const clouds[] = {"aws", "gcp", "azure"};
    const size_t n = given ? strcspn(given, "/") : 0;
    for (size_t i = 0; given && i < sizeof clouds / sizeof *clouds; i++)
        if (strlen(clouds[i]) == n && strncmp(given, clouds[i], n) == 0) return DT_OK;
    return given ? dt_fail(DT_E_USAGE, "--cloud: '%s' is not one of aws, gcp, azure", given) : DT_OK;
}

// "A100:8" -> 8.
static dt_status count_gpus(const char *given, int *n) {
    const char *colon = given ? strchr(given, ':') : NULL;
    char *end = NULL;
    const long count = colon ? strtol(colon + 1, &end, 10) : given ? 1 : 0;
    if (given && (colon == given || count < 1 || count > 64 || (end && *end)))
        return dt_fail(DT_E_USAGE, "--gpus: '%s' is not as in A100:8", given);
    *n = (int)count;
    return DT_OK;
}

static dt_status launch_cloud_read_options(cloud *k) {
    const dt_cli_words *w = k->w;
    int n_gpus = 0;
    DT_TRY(check_cloud(w->options[CLOUD]));
    DT_TRY(count_gpus(w->options[GPUS], &n_gpus));
    DT_TRY(dt_cli_option_int(w, NODES, 1, &k->n_nodes));
    DT_TRY(dt_cli_option_ranks(w, RANKS, "a machine", n_gpus, &k->n_ranks_node));
    if (!w->options[DATA])
        return dt_fail(DT_E_USAGE, "--data is missing: a bucket for the data set, such as "
                                   "s3://name/folder");
    if (w->n_words > 0 && *w->words[0] == '/')
        return dt_fail(DT_E_USAGE,
                       "%s: the config must lie below this folder, which is copied to "
                       "the machines: give a relative path",
                       w->words[0]);
    return DT_OK;
}

// What is on a machine goes with it.
static dt_status launch_cloud_check_runs(const cloud *k) {
    if (k->w->options[RUNS] || k->config->checkpoint.mirror) return DT_OK;
    return dt_fail(DT_E_USAGE, "--runs is missing: a bucket for the runs, such as s3://name/folder; "
                               "or set checkpoint.mirror");
}

// A set of the bucket, where the machines have it. Of several sets only a template can say where they are.
static dt_status data_word(const cloud *k, char **out) {
    const char *path = dt_cli_only_set(k->config);
    if (!path)
        return dt_config_fail(k->config, "data.path",
                              "--data takes one set, without a name; for others, edit a copy of "
                              "the template");
    *out = dt_xprintf("data.path=/dtrain/data/%s", dt_path_base(path));
    return DT_OK;
}

// ---- the task --------------------------------------------------------------------------------------

// Strings of YAML; numbers, and what an image may be, have an alphabet.
static dt_status put_options(cloud *k) {
    dt_cli_values *v = &k->values;
    const char *const *given = k->w->options;
    DT_TRY(dt_cli_put_yaml(v, "CLOUD", "--cloud", given[CLOUD]));
    DT_TRY(dt_cli_put_yaml(v, "GPUS", "--gpus", given[GPUS]));
    DT_TRY(dt_cli_put_yaml(v, "DATA", "--data", given[DATA]));
    DT_TRY(dt_cli_put_yaml(v, "RUNS", "--runs", given[RUNS]));
    dt_cli_put_copy(v, "CPUS", given[CPUS]);
    dt_cli_put_copy(v, "MEMORY", given[MEMORY]);
    dt_cli_put_copy(v, "IMAGE", given[IMAGE]);
    dt_cli_put_copy(v, "SPOT", given[SPOT] ? "true" : NULL);
    for (int i = CPUS; i <= MEMORY; i++) {
        const size_t n = given[i] ? strspn(given[i], "0123456789.") : 1;
        if (n == 0 || (given[i] && given[i][n] && strcmp(given[i] + n, "+") != 0))
            return dt_fail(DT_E_USAGE, "%s: '%s' is not as in %s", options[i].name, given[i],
                           i == CPUS ? "16+" : "64+");
    }
    const char *image = given[IMAGE];
    for (const char *p = image; p && *p; p++)
        if (!isalnum((unsigned char)*p) && !strchr("._/:@-", *p))
            return dt_fail(DT_E_USAGE, "--image: '%s' is no name of an image", image);
    return DT_OK;
}

static dt_status fill_task(char **out, cloud *k) {
    char *data = NULL;
    DT_TRY(put_options(k));
    DT_TRY(dt_cli_put_yaml(&k->values, "NAME", "run.name",
                           k->name)); // a run called "no" stays a string
    DT_TRY(data_word(k, &data));
    char *words = dt_cli_quote_config(k->w), *quoted = dt_cli_quote(data);
    dt_cli_put(&k->values, "WORDS",
               dt_xprintf("%s %s%s", words, quoted, k->w->options[RUNS] ? " run.dir=/dtrain/runs" : ""));
    dt_cli_put(&k->values, "NODES", dt_xprintf("%d", k->n_nodes));
    dt_cli_put(&k->values, "RANKS", dt_xprintf("%d", k->n_ranks_node));
    // a run that stops itself with 75 would be recovered for ever
    dt_cli_put(&k->values, "RECOVER",
               dt_cli_exit_codes(k->config->run.stop_at.has ? LAUNCH_LOST : LAUNCH_SAVED, LAUNCH_LOST, ", "));
    free(quoted);
    free(words);
    free(data);
    return dt_cli_fill_template(out, "launch/cloud/sky.yaml", k->w->options[TEMPLATE], &k->values);
}

// SkyPilot asks before it costs money, so it gets the terminal.
static dt_status launch_cloud_submit(const cloud *k, const char *task) {
    char *file = dt_xprintf("%s.sky.yaml", k->name);
    const char *argv[] = {"sky", "jobs", "launch", "-n", k->name, file, NULL};
    dt_status st = dt_io_write_file(file, task, strlen(task));
    if (st == DT_OK) {
        execvp(argv[0], (char *const *)argv);
        st = dt_fail(DT_E_USAGE,
                     "sky cannot be started (%s): pip install skypilot; the task is in %s, submit "
                     "it with sky jobs launch %s",
                     strerror(errno), file, file);
    }
    free(file);
    return st;
}

static dt_status launch_cloud_run(const dt_cli_words *w) {
    cloud k = {.w = w};
    char *task = NULL;
    DT_TRY(launch_cloud_read_options(&k));
    dt_run_length length;
    dt_status st = dt_cli_target_config(&k.config, "launch cloud", w);
    if (st == DT_OK) st = launch_cloud_check_runs(&k);
    if (st == DT_OK) st = dt_cli_target_ranks(k.config, k.n_nodes * k.n_ranks_node);
    if (st == DT_OK) st = dt_cli_target_check(k.config, true, 0, &length);
    if (st == DT_OK) {
        k.name = dt_cli_task_name(k.config->run.name);
        st = fill_task(&task, &k);
    }
    if (st == DT_OK && w->options[PRINT])
        fputs(task, stdout);
    else if (st == DT_OK)
        st = launch_cloud_submit(&k, task);
    free(task);
    free(k.name);
    dt_cli_values_fini(&k.values);
    dt_config_destroy(k.config);
    return st;
}

const dt_cli_command dt_cli_on_cloud = {
    .options = options,
    .text = "Writes a SkyPilot task and submits it with `sky jobs launch`, which shows the price for confirmation, "
            "starts machines and replaces preempted spot machines. The data set is copied from a bucket; runs and "
            "checkpoints are kept in a bucket. dtrain check --cost estimates the price.\n\n"
            "  dtrain launch cloud --cloud aws --gpus A100:8 --spot --data s3://my/data \\\n"
            "      --runs s3://my/runs configs/fusion.yaml\n",
    .run = launch_cloud_run};
