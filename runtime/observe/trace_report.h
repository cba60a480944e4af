// trace_report.h: what RUN/trace.json says, in lines: the ten longest, the critical path, overlap of communication.
#ifndef DT_METRICS_TRACE_REPORT_H
#define DT_METRICS_TRACE_REPORT_H

#include "base/core.h"

#include <stdio.h>

// run: its directory. DT_E_DATA where there is no trace, or one that cannot be read.
dt_status dt_trace_report(const char *run, FILE *out);

#endif
