// cmd_check.c: dtrain check CONFIG: checks data, graph, plan and memory without training. A config may be checked
// before its data exists. Once any file of data.path exists, a fault in the data is an error.

#include "launch.h"

#include "base/log.h"
#include "data/data.h"

#include <stdio.h>

enum { GRAPH, DOT };
static const launch_option options[] = {
    [GRAPH] = {"--graph", NULL, "print costs of layers, graph and plan"},
    [DOT] = {"--dot", "FILE", "write the graph for Graphviz"},
    {NULL}};

static dt_status check(dt_config *c, dt_comm *comm, bool print_graph, const char *dot, FILE *out) {
    dt_trainer_args a = launch_trainer_args(c, comm);
    dt_field_info fields[DT_MAX_FIELDS];
    int n_fields = 0;
    dt_dataset *none = NULL;
    if (dt_data_exists(c)) return dt_trainer_check(&a, NULL, 0, print_graph, dot, out);
    dt_status st = a.open_data(a.ctx, c, NULL, 1, NULL, NULL, &none);
    if (st != DT_E_DATA) return st; // an error that data would not cure
    dt_warn("%s; the graph is checked without the data", dt_error_message());
    a.open_data = NULL;
    DT_TRY(dt_data_describe_fields(c, NULL, fields, &n_fields));
    return dt_trainer_check(&a, fields, n_fields, print_graph, dot, out);
}

dt_status launch_check_config(dt_config *c, bool print_graph, const char *dot, FILE *out) {
    dt_comm *comm = NULL;
    dt_status st = dt_comm_create_self(&comm);
    if (st == DT_OK) st = check(c, comm, print_graph, dot, out);
    dt_comm_destroy(comm);
    return st;
}

static dt_status run(const launch_words *w) {
    dt_config *c = NULL;
    DT_TRY(launch_load_config(&c, "check", w));
    dt_status st = launch_check_config(c, w->options[GRAPH] != NULL, w->options[DOT], stdout);
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
        "  dtrain check configs/vit.yaml --dot vit.dot && dot -Tsvg -O vit.dot\n",
    .run = run};
