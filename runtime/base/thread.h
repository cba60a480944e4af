// thread.h: what the loader, the checkpoint writer, the replicas and the watch share about threads. All waits use
// condition variables; none spins.
#ifndef DT_BASE_THREAD_H
#define DT_BASE_THREAD_H

#include "core.h"

#include <pthread.h>
#include <stdatomic.h>

// A team of n worker threads. dt_team_run(fn, arg) calls fn(arg, i) for i in 0..n-1, with i = 0 on the
// calling thread, and returns when all are done. It allocates nothing. Workers keep their thread-local
// state (OpenMP pools) between calls.
typedef struct dt_team dt_team;
dt_status dt_team_create(dt_team **out, int n_workers, const char *name);
void dt_team_run(dt_team *t, void (*fn)(void *arg, int worker), void *arg);
int dt_team_size(const dt_team *t);
void dt_team_destroy(dt_team *t);

// Cores this process may use: affinity mask, bounded by the cgroup's CPU quota (v1 and v2). >= 1.
int dt_usable_cores(void);
// Voluntary context switches of this thread: how often it gave up its core to wait. A system call.
uint64_t dt_thread_waits(void);
// pthread_cond_wait until dt_clock_s() is `until_s`, which nobody can set back; false: it is.
bool dt_thread_wait(pthread_cond_t *c, pthread_mutex_t *m, double until_s);
// Locks `m`, or gives up after `seconds`. false: not locked.
bool dt_thread_lock(pthread_mutex_t *m, double seconds);
void dt_thread_name(const char *name); // for the calling thread, at most 15 characters shown

// A text of `cap` bytes that one thread sets (longer ones are cut) while another copies it, without a lock. A copy may mix
// the old text and the new one: a count that the writer changes, read before and after, says whether it does.
void dt_thread_set_text(_Atomic char *to, size_t cap, const char *text);
void dt_thread_get_text(char *out, const _Atomic char *from, size_t cap);

#endif
