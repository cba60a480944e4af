// memory_report.h: what a rank's memory goes to, by kind, and which setting changes it. dtrain check prints
// it; training compares it with what the device, host or container has before anything large is taken, so that a
// network that does not fit is one line in front of step 0 and not a failure somewhere later.
#ifndef DT_TRAIN_MEMORY_REPORT_H
#define DT_TRAIN_MEMORY_REPORT_H

#include "train/session.h"

// After graphs, parameters and plans are made.
void dt_memory_print(const dt_session *s, FILE *out);
// What this rank may use: the device's free memory, or its share of the host's, or of the container's limit.
size_t dt_memory_free_bytes(const dt_session *s);
// Whether the check will pass.
bool dt_memory_fits(const dt_session *s);
// Of a graph without a plan, by its values (passes/recompute.c).
bool dt_memory_may_fit(const dt_session *s, dt_graph *g);
// Before execs and steppers are made. DT_E_USAGE with every kind in one line.
dt_status dt_memory_check(const dt_session *s);

// Of all kinds together.
size_t dt_memory_bytes(const dt_session *s);

#endif
