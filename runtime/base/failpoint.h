// failpoint.h: what io.c asks before each counted call. Private to base.
#ifndef DT_BASE_FAILPOINT_H
#define DT_BASE_FAILPOINT_H

// 0: go on. >0: fail with this errno. FAILPOINT_SHORT: write half, then fail with ENOSPC.
// A `kill` failpoint does not return.
enum { FAILPOINT_SHORT = -1 };
int failpoint_visit_io(void);

#endif
