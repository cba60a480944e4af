// resolve.h: answers to every `auto` that changes numbers, given once: rank 0 decides, all obey, the
// checkpoint remembers.
#ifndef DT_TRAIN_RESOLVE_H
#define DT_TRAIN_RESOLVE_H

#include "backend/backend.h"
#include "comm/comm.h"
#include "config/config.h"
#include "train/state.h"

// Threads, lanes, loader threads. n_leaves: micro-batches of a step. `stored`: what a checkpoint of
// this run says, or NULL; stored_world_size: where it said so. Collective.
//   elastic      leaf_threads is what bits hang on: 1, or threads/lanes where the config states both;
//                a stored one is reused, threads and lanes follow the machine.
//   resume, off  a stored answer is reused at the same world size.
dt_status dt_resolve_threads(dt_resolved *out, const dt_config *c, dt_comm *comm, int n_leaves,
                             const dt_resolved *stored, int stored_world_size);
// Precision, once the backend is there. Collective.
dt_status dt_resolve_precision(dt_resolved *out, const dt_config *c, dt_comm *comm,
                               const dt_backend *b, const dt_resolved *stored);
// Keys of training alone that this backend cannot do: DT_E_USAGE. A run that only evaluates never asks.
dt_status dt_resolve_check_training(const dt_config *c, const dt_backend *b);
dt_dtype dt_resolved_dtype(const dt_resolved *r);
// Writes the answers over the config's autos.
void dt_resolve_write(dt_config *c, const dt_resolved *r);
// Before comparing: what was auto in `old` and is stated in `given` gets its answer, so that the
// resolved config.yaml of a run resumes it too; in elastic, threads and lanes change no bits (the
// threads of a leaf are stored) and never differ.
void dt_resolve_align(dt_config *old, dt_config *given, const dt_resolved *r);

#endif
