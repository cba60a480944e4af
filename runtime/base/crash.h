// crash.h: one line of a process that crashes: which rank, on which host, after which step.
//
// What took the signal before goes on then: Open MPI's handler prints a stack, a sanitizer its report, the system ends
// the process. So exit codes stay (139 of a segmentation fault). A handler is the exception to signals.c's rule that no
// computing thread may run one: it comes when nothing can be saved any more.
#ifndef DT_BASE_CRASH_H
#define DT_BASE_CRASH_H

// Once, behind MPI_Init. rank < 0: alone.
void dt_crash_install(int rank);

#endif
