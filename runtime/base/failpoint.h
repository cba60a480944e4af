// failpoint.h: making things fail on purpose.
//
// DTRAIN_FAILPOINT="io:N:ACTION" (or dt_failpoint_set) makes the N-th counted I/O call
// from now (1-based, over open, write, fsync, rename, unlink, mkdir, truncate, close) do ACTION:
//   eio | enospc   fail with that errno          short   write half, then ENOSPC
//   kill           raise SIGKILL before the call  count   do nothing, only count
//   stop           raise SIGSTOP: the process goes on at SIGCONT    hang   this thread goes no further
// A scope may be named instead of "io" ("ckpt:3:eio"): only calls between dt_io_scope_push("ckpt")
// and pop on that thread count. Named points that are not I/O use dt_failpoint("name"):
// "name:N:ACTION" -> true on its N-th visit. "step" is visited after each step of training: what a test does to a run
// that has stopped there comes in the middle, on a machine of any speed.
#ifndef DT_BASE_FAILPOINT_H
#define DT_BASE_FAILPOINT_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

dt_status dt_failpoint_set(const char *spec); // NULL or "" clears; several joined by ','
bool dt_failpoint(const char *name);          // named point: true when it should fire now
uint64_t dt_failpoint_count(void);            // I/O calls counted in the watched scope so far
void dt_io_scope_push(const char *name);
void dt_io_scope_pop(void);

// What io.c asks before each counted call. 0: go on. >0: fail with this errno. FAILPOINT_SHORT: write half,
// then fail with ENOSPC. A `kill` failpoint does not return.
enum { FAILPOINT_SHORT = -1 };
int failpoint_visit_io(void);

#endif
