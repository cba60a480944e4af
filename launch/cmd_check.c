// cmd_check.c: dtrain check CONFIG: checks data, graph, plan and memory without training. A config may be checked
// before its data exists. Once any file of data.path exists, a fault in the data is an error.

#include "launch.h"

#include "base/log.h"
#include "data/data.h"

#include <stdio.h>

enum { GRAPH, KERNELS };
static const launch_option options[] = {
    [GRAPH] = {"--graph", NULL, "print graph and plan"},
    [KERNELS] = {"--kernels", NULL, "print how fast each kernel is, and what was chosen by timing"},
    {NULL}};

static dt_status check(dt_config *c, dt_comm *comm, const dt_check_prints *prints) {
    dt_trainer_args a = launch_trainer_args(c, comm);
    dt_field_info fields[DT_MAX_FIELDS];
    int n_fields = 0;
    dt_dataset *none = NULL;
    if (dt_data_exists(c)) return dt_trainer_check(&a, NULL, 0, prints, stdout);
    dt_status st = a.open_data(a.ctx, c, NULL, 1, NULL, NULL, &none);
    if (st != DT_E_DATA) return st; // an error that data would not cure
    dt_warn("%s; the graph is checked without the data", dt_error_message());
    a.open_data = NULL;
    DT_TRY(dt_data_describe_fields(c, NULL, fields, &n_fields));
    return dt_trainer_check(&a, fields, n_fields, prints, stdout);
}

static dt_status run(const launch_words *w) {
    dt_config *c = NULL;
    dt_comm *comm = NULL;
    DT_TRY(launch_load_config(&c, "check", w));
    dt_status st = dt_comm_create_self(&comm);
    const dt_check_prints prints = {.graph = w->options[GRAPH] != NULL,
                                    .kernels = w->options[KERNELS] != NULL};
    if (st == DT_OK) st = check(c, comm, &prints);
    dt_comm_destroy(comm);
    dt_config_destroy(c);
    return st;
}

const launch_command launch_check = {
    .options = options,
    .text =
        "Finds on one machine, in a second, what would otherwise fail after hours in a queue:\n"
        "reads the config, the data set's catalog and a first micro-batch, builds graph and plan,\n"
        "reports parameters and memory. Data that training could not use is exit 3; where no file\n"
        "of data.path is there yet, a warning says so and the rest is checked without.\n\n"
        "  dtrain check configs/fusion.yaml train.micro_batch=8\n"
        "  dtrain check configs/fusion.yaml --graph\n"
        "  dtrain check configs/fusion.yaml --kernels\n",
    .run = run};
