// resolve.h: what `auto` means in this run. Rank 0 decides, all ranks take its answer, and the checkpoint keeps it.
#ifndef DT_TRAIN_RESOLVE_H
#define DT_TRAIN_RESOLVE_H

#include "backend/backend.h"
#include "comm/comm.h"
#include "config/config.h"
#include "run/run_record.h"

// Threads, replicas, loader threads. n_micro: micro-batches of a step. `stored`: the answers in the run's checkpoint,
// or NULL; stored_world_size: its number of ranks. Collective.
//   elastic      The bits depend on replica_threads: 1, or threads/replicas if the config gives both, or the stored number.
//                Threads and replicas follow the machine.
//   resume, off  Stored answers are taken again at the same world size, where the config leaves them open.
dt_status dt_resolve_threads(dt_resolved *out, const dt_config *c, dt_comm *comm, int n_micro,
                             const dt_resolved *stored, int stored_world_size);
// r->threads, among replicas of a rank. Not collective.
void dt_resolve_divide(dt_resolved *r, const dt_config *c, int n_micro, int world_size, const dt_resolved *stored);
// The member of stored answers that no run of this config can have given, or NULL.
const char *dt_resolve_find_bad(const dt_resolved *r, const dt_config *c);
// Precision, once the backend is there; it stays auto where the backend chooses it by timing, in dt_nets_make. Collective.
dt_status dt_resolve_precision(dt_resolved *out, const dt_config *c, dt_comm *comm, const dt_backend *b,
                               const dt_resolved *stored);
// DT_E_USAGE for keys of training that this backend does not support. Evaluation does not read them.
dt_status dt_resolve_check_training(const dt_config *c, const dt_backend *b);
dt_dtype dt_resolved_dtype(const dt_resolved *r);
// Replaces the config's autos by the answers.
void dt_resolve_write(dt_config *c, const dt_resolved *r);
// Prepares two configs for a comparison: a key that is auto in `old` but not in `given` gets its answer, so that a run can also
// be resumed with its resolved config.yaml. In elastic runs threads and replicas change no bits, so they become auto
// in both.
void dt_resolve_align(dt_config *old, dt_config *given, const dt_resolved *r);

#endif
