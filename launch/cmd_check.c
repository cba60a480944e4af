// cmd_check.c: dtrain check CONFIG: checks data, graph, plan and memory without training. A config may be checked
// before its data exists. Once any file of data.path exists, a fault in the data is an error.

#include "cost.h"
#include "launch.h"
#include "scaling_table.h"

#include "base/log.h"
#include "data/data.h"
#include "run/signals.h"

#include <stdio.h>
#include <stdlib.h>

// indices into options; read_cost relies on the order: RATE..PRICES and FABRIC..PLOT are ranges
enum { GRAPH, DOT, KERNELS, COST, RATE, MACHINES, PRICES, RANKS, FABRIC, PLOT, UPGRADE };
static const dt_cli_option options[] = {
    [GRAPH] = {"--graph", NULL, "print shape, parameters, FLOPs and bytes of each layer, the graph and the plan"},
    [DOT] = {"--dot", "FILE", "write the graph for Graphviz"},
    [KERNELS] = {"--kernels", NULL,
                 "time every kernel and print its time, its bytes and the implementation chosen by timing"},
    [COST] = {"--cost", NULL, "estimate hours of the whole run and their price on rented machines"},
    [RATE] = {"--rate", "R|DEVICE=R,…",
              "with --cost: samples/s of each device, or a run that measured them, such as "
              "A100:8=7000,cpu:32=runs/probe (default: measured by this run); with --ranks: samples/s of one rank, or "
              "of N GPUs as in H100:8=20000 (default: measured here)"},
    [MACHINES] =
        {"--machines", "N",
         "with --cost: machines that train together; a rate without a device is the rate of all of them (default 1)"},
    [PRICES] = {"--prices", "FILE", "with --cost and --ranks: your own copy of launch/cloud/prices.csv"},
    [RANKS] = {"--ranks", "A..B|A,B,…", "predict step time, memory, startup time and cost at these numbers of ranks"},
    [FABRIC] = {"--fabric", "NAME|FILE,…",
                "with --ranks: networks from launch/cloud/fabrics.yaml, or a file of the same form (default: all ranks "
                "on this machine)"},
    [PLOT] = {"--plot", "FILE", "with --ranks: plot scaling efficiency by ranks as SVG"},
    [UPGRADE] = {"--upgrade", NULL,
                 "only print CONFIG with keys and words of earlier releases in their new spelling; comments stay"},
    {NULL}};

static dt_status check_and_print(dt_config *c, dt_comm *comm, const dt_check_prints *prints, FILE *out,
                                 dt_run_length *length) {
    dt_cli_source data = {.comm = comm}; // no use of fields: targets have to be there, as for training
    dt_trainer_args a = dt_cli_trainer_args(c, &data);
    dt_field_info fields[DT_MAX_FIELDS];
    int n_fields = 0;
    dt_dataset *none = NULL; // stays NULL: without files the call fails
    if (dt_data_exists(c)) return dt_trainer_check(&a, NULL, 0, prints, out, length);
    // fails and leaves a message that names the missing files
    dt_status st = a.open_data(a.ctx, c, NULL, 1, NULL, NULL, &none);
    if (st != DT_E_DATA) return st; // an error that data would not cure
    dt_warn("%s; the graph is checked without the data", dt_error_message());
    a.open_data = NULL; // dt_trainer_check then takes the fields below
    // NULL, no class names: a number of classes comes from the config alone
    DT_TRY(dt_data_describe_fields(c, NULL, fields, &n_fields));
    // no batch is read: shapes, plan and memory only
    return dt_trainer_check(&a, fields, n_fields, prints, out, length);
}

// also for dtrain launch: the check ahead of a job
dt_status dt_cli_check_config(dt_config *c, const dt_check_prints *prints, FILE *out, dt_run_length *length) {
    dt_comm *comm = NULL;
    // a world of one rank: the check needs no launcher
    dt_status st = dt_comm_create_self(&comm);
    if (st == DT_OK) st = check_and_print(c, comm, prints, out, length);
    dt_comm_destroy(comm);
    return st;
}

static dt_status read_cost(const dt_cli_words *w, dt_cli_cost *k) {
    // --rate and --prices are for --ranks too, --machines is for --cost alone
    for (int i = RATE; i <= PRICES; i++)
        if (w->options[i] && !w->options[COST] && (i == MACHINES || !w->options[RANKS]))
            return dt_fail(DT_E_USAGE, "%s is for --cost", options[i].name);
    for (int i = FABRIC; i <= PLOT; i++)
        if (w->options[i] && !w->options[RANKS]) return dt_fail(DT_E_USAGE, "%s is for --ranks", options[i].name);
    *k = (dt_cli_cost){.rates = w->options[RATE], .prices = w->options[PRICES]};
    return dt_cli_option_int(w, MACHINES, 1, &k->n_machines); // length comes from the check
}

static dt_status print_upgraded(const dt_cli_words *w) {
    char *text;
    for (int i = 0; i < UPGRADE; i++)
        if (w->options[i]) return dt_fail(DT_E_USAGE, "--upgrade and %s exclude each other", options[i].name);
    if (w->n_words != 1) return dt_fail(DT_E_USAGE, "dtrain check --upgrade expects a config file, and nothing else");
    DT_TRY(dt_config_upgrade(&text, w->words[0]));
    fputs(text, stdout);
    free(text);
    return DT_OK;
}

static dt_status cmd_check_run(const dt_cli_words *w) {
    dt_config *c = NULL;
    dt_cli_cost cost;
    dt_scaling scaling;
    if (w->options[UPGRADE]) return print_upgraded(w);
    // options and --fabric's file first: mistakes there are reported before data are opened
    DT_TRY(read_cost(w, &cost));
    if (w->options[RANKS])
        DT_TRY(dt_cli_read_scaling(&scaling, w->options[RANKS], w->options[FABRIC], w->options[RATE]));
    DT_TRY(dt_cli_load_config(&c, "check", w));
    const dt_check_prints prints = {.graph = w->options[GRAPH] != NULL,
                                    .kernels = w->options[KERNELS] != NULL,
                                    .dot = w->options[DOT],
                                    .scaling = w->options[RANKS] ? &scaling : NULL};
    // the data may lie on a slow store: a signal ends the process with 75 at any time
    dt_signals_starting();
    dt_signals_install();
    // fills in scaling's rows and cost's length
    dt_status st = dt_cli_check_config(c, &prints, stdout, &cost.length);
    // the rows' hours are of the same length
    if (st == DT_OK && w->options[RANKS]) st = dt_cli_print_scaling(&scaling, &cost, c, w->options[PLOT], stdout);
    if (st == DT_OK && w->options[COST]) st = dt_cli_print_cost(&cost, c, stdout);
    dt_config_destroy(c);
    return st;
}

const dt_cli_command dt_cli_check = {
    .options = options,
    .text =
        "A dry run. In seconds and on one machine, `check` finds errors that would otherwise show up after hours in "
        "a queue. It reads the config, the data set's catalog and one micro-batch, builds the graph and the "
        "execution plan, and reports parameters and memory. If the data cannot be used for training, the exit code "
        "is 3. If no file of data.path exists yet, `check` warns and checks the rest.\n\n"
        "  dtrain check configs/fusion.yaml train.micro_batch=8\n"
        "  dtrain check configs/fusion.yaml --graph\n"
        "  dtrain check configs/vit.yaml --dot vit.dot && dot -Tsvg -O vit.dot\n"
        "  dtrain check configs/fusion.yaml --kernels\n"
        "  dtrain check configs/fusion.yaml --cost --rate A100:8=7000,cpu:32=60\n"
        "  dtrain check configs/fusion.yaml --ranks 1..8\n"
        "  dtrain check configs/resnet50.yaml --ranks 8..4096 --fabric 8x400g-nvlink4 \\\n"
        "      --rate H100:8=20000 --plot scaling.svg\n"
        "  dtrain check old.yaml --upgrade > new.yaml\n",
    .run = cmd_check_run};
