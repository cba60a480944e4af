// cost.h: hours and money of a run, for dtrain check --cost.
//
// Hours are samples over a rate. Rates are those of devices: --rate A100:8=7000,cpu:32=60 or, instead of a number, a run that
// measured it (the median of its last steps, in metrics.jsonl). They scale with the number of GPUs of that name, or of
// vCPUs; such a run's path has no comma. One number, or what the config's own run measured, is the rate of machines with the kind of device that the
// config trains on, whatever their size; the others get none. A sample that is evaluated counts a third: it has no
// backward pass. Prices are a table that people replace (launch/cloud/prices.csv says its columns, date and source);
// the cheapest comes first. A row with a rate of its own has its own hours.
#ifndef DT_LAUNCH_COST_H
#define DT_LAUNCH_COST_H

#include "launch.h"

typedef struct dt_cli_cost {
    const char *rates; // --rate; NULL: what the run measured
    int n_machines;    // a number, or the run's own rate, is that of so many together
    const char *prices;
    dt_run_length length;
} dt_cli_cost;

double dt_cli_cost_work(const dt_run_length *l); // samples that are trained on, and a third of those evaluated
// Of --rate for a prediction of more ranks: samples a second of one rank, which is a GPU of the first device named, or a
// host's cores ("cpu:32=60"); and the name and count of that device, "" where there is a number alone.
dt_status dt_cli_rank_rate(const char *rates, double *samples_s, char device[64], double *count);
// Dollars an hour of `count` such devices, on the cheapest machine that has them; NAN: no row has.
dt_status dt_cli_device_price(const dt_cli_cost *k, const char *device, double count, double *usd);
dt_status dt_cli_print_cost(const dt_cli_cost *k, const dt_config *c, FILE *out);

#endif
