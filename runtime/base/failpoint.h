// failpoint.h: failures on purpose, for tests.
//
// DTRAIN_FAILPOINT="io:N:ACTION" (or dt_failpoint_set) makes the N-th counted I/O call
// from now (1-based, over open, write, fsync, rename, unlink, mkdir, truncate, close) do ACTION:
//   eio | enospc   fail with that errno          short   write half, then ENOSPC
//   kill           raise SIGKILL before the call  count   do nothing, only count
//   stop           raise SIGSTOP; SIGCONT continues   hang   block this thread for ever
//   slow           wait seven seconds, then go on
//   nap            wait a tenth of a second, at each call from the N-th on
// A scope may stand for "io" ("ckpt:3:eio"): then only calls between dt_io_scope_push("ckpt") and pop on
// the same thread count. Points that are not I/O have a name: dt_failpoint("name") is true on its N-th visit
// under "name:N:ACTION". "step" is visited after each training step, "choices", "evaluate" and "finalize" when
// a rank comes to these, and "s3" before each request to a bucket that no blob makes, so that a test can act in the
// middle of a run on a machine of any speed.
#ifndef DT_BASE_FAILPOINT_H
#define DT_BASE_FAILPOINT_H

#include "base/core.h"

dt_status dt_failpoint_set(const char *spec); // NULL or "" clears; several joined by ','
bool dt_failpoint(const char *name);          // a named point: true if it fires now
uint64_t dt_failpoint_count(void);            // I/O calls counted in the watched scope so far
void dt_io_scope_push(const char *name);
void dt_io_scope_pop(void);

// io.c calls this before each counted call. 0: continue. > 0: fail with this errno. FAILPOINT_SHORT: write
// half, then fail with ENOSPC. `kill` does not return.
enum { FAILPOINT_SHORT = -1 };
int dt_failpoint_visit_io(void);

#endif
