// guard.h: reading memory that may go away: pages of a mapped file that is cut, or whose disk or server
// fails, while they are read.
#ifndef DT_BASE_GUARD_H
#define DT_BASE_GUARD_H

#include <stdbool.h>
#include <stddef.h>

// Sees to it that SIGBUS comes here first: before the first guard, and again where somebody may have installed
// a handler since (that one is then passed what is not ours). False: it cannot, and guards do not work. Any
// thread.
bool dt_guard_arm(void);

// Calls run(ctx). False: it was left in the middle, at an access to a page of [at, at + n_bytes) that
// could not be had. `run` takes no lock, allocates nothing and calls nothing that does: it may be left at any
// access to the range. Any thread, not nested.
bool dt_guard_run(void (*run)(void *ctx), void *ctx, const void *at, size_t n_bytes);

#endif
