// scaling_table.h: dtrain check --ranks: which ranks and fabrics are asked for, and the table and plot of the answer.
#ifndef DT_LAUNCH_SCALING_TABLE_H
#define DT_LAUNCH_SCALING_TABLE_H

#include "cost.h"
#include "train/scaling.h"

// ranks: "8..4096", powers of two, or "1,2,6". fabrics: names in launch/cloud/fabrics.yaml or a file like it; NULL: all
// ranks are on this machine. rates: dt_cli_cost.rates, or NULL.
dt_status dt_cli_read_scaling(dt_scaling *s, const char *ranks, const char *fabrics, const char *rates);
dt_status dt_cli_print_scaling(const dt_scaling *s, const dt_cli_cost *k, const dt_config *c, const char *plot,
                               FILE *out);

#endif
