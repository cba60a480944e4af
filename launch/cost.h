// cost.h: hours and money of a run, for dtrain check --cost.
//
// Hours are samples over a rate: what the caller gives, or what the run's metrics.jsonl has (the median of its last steps).
// A sample that is evaluated counts a third: it has no backward pass. Prices are a table that people replace
// (launch/cloud/prices.csv says its columns, date and source). A row with a rate of its own has its own hours.
#ifndef DT_LAUNCH_COST_H
#define DT_LAUNCH_COST_H

#include "launch.h"

typedef struct launch_cost {
    double rate;    // samples a second of all machines together; 0: what the run measured
    int n_machines; // that give this rate
    const char *prices;
    dt_run_length length;
} launch_cost;

dt_status launch_print_cost(const launch_cost *k, const dt_config *c, FILE *out);

#endif
