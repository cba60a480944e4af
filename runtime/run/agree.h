// agree.h: how ranks exchange errors, and how autos are resolved on all of them.
#ifndef DT_RUN_AGREE_H
#define DT_RUN_AGREE_H

#include "backend/backend.h"
#include "batch/batch_source.h"
#include "comm/comm.h"
#include "config/config.h"
#include "run/run_state.h"

// ---- agree --------------------------------------------------------------------------------------------------------

// What ranks agree on before the first step, so that none goes on alone and none waits for a rank that
// has failed.
//
// A rank that fails alone leaves the others in a collective that it never enters: they time out and report a lost
// peer, which is not what went wrong. Some values only rank 0 can resolve (it reads files, it times engines), others
// differ from host to host (whether there is a GPU). Both are exchanged here, or the failure to give them, so that
// all ranks report the same.
//
// A failure that all ranks return, and know that all do, is marked in the comm (dt_comm.shared_failure): by the
// functions below, and by dt_agree_shared where every rank finds the same failure by itself. Ranks with a shared
// failure leave through the last barrier; any other failure is one rank's, and the launcher ends the job. Where the
// exchange itself fails nothing is marked. A lone rank exchanges nothing.
//
// All ranks call these in the same order, from the thread that made the comm. The caller sets the comm's deadline:
// planning takes minutes, the rest seconds.

// Marks `st`, where it is a failure, as shared: it is a function of what all ranks know. Returns it.
static inline dt_status dt_agree_shared(dt_comm *c, dt_status st) {
    c->shared_failure |= st != DT_OK;
    return st;
}

// Rank 0's outcome on all ranks: its status `st`, with its text or its message. The status that others pass is not
// read. Rank 0's own failure stays what it is when the others cannot be reached.
dt_status dt_agree_result(dt_comm *c, dt_status st, char **text);

// dt_backend_create, and where `kind` is auto one answer for all: the GPU where every rank has one, the CPU
// where none has, else DT_E_USAGE on all ranks, naming the first that has none, its host and why.
dt_status dt_agree_backend(dt_backend **out, dt_comm *c, dt_device_kind kind, const dt_backend_opts *opts);

// `given` is this rank's config. Where a key that changes numbers is not the same on all ranks: DT_E_USAGE on
// all of them, naming the first such rank, the key and both values.
dt_status dt_agree_config(dt_comm *c, const dt_config *given);

// `text` says what a rank's bits depend on besides the config. Where it is not the same on all ranks: DT_E_USAGE if
// `must` (on all of them), else a warning; both name the ranks, their hosts and the texts.
dt_status dt_agree_environment(dt_comm *c, const char *text, bool must);

// Every rank has opened the same data set: records, samples and split. Else DT_E_USAGE on all of them, naming the first
// that has not, and what both have.
dt_status dt_agree_data(dt_comm *c, const dt_dataset *d);

// Every rank has a device of its own, and NCCL: else DT_E_USAGE on all of them, naming the first without.
// b has a device.
dt_status dt_agree_devices(dt_comm *c, const dt_backend *b);

// st: of taking memory, which a device may lack on one rank alone. That failure (dt_backend.out_of_memory) all ranks
// return, naming the first that has it. Another is returned without an exchange.
dt_status dt_agree_memory(dt_comm *c, const dt_backend *b, dt_status st);

// ---- resolve ------------------------------------------------------------------------------------------------------

// What `auto` means in this run. Rank 0 decides, all ranks take its answer, and the checkpoint keeps it.

// Threads, replicas, loader threads. n_micro: micro-batches of a step. `stored`: the values in the run's checkpoint,
// or NULL; stored_world_size: its number of ranks. Collective.
//   elastic      The bits depend on replica_threads: 1, or threads/replicas if the config gives both, or the stored number.
//                Threads and replicas follow the machine.
//   resume, off  Stored values are taken again at the same world size, where the config leaves them open.
dt_status dt_resolve_threads(dt_resolved *out, const dt_config *c, dt_comm *comm, int n_micro,
                             const dt_resolved *stored, int stored_world_size);
// r->threads, among replicas of a rank. Not collective.
void dt_resolve_divide(dt_resolved *r, const dt_config *c, int n_micro, int world_size, const dt_resolved *stored);
// The member of stored values that no run of this config can have given, or NULL.
const char *dt_resolve_find_bad(const dt_resolved *r, const dt_config *c);
// Precision, once the backend is there; it stays auto where the backend chooses it by timing, in dt_nets_make. bf16 of a run
// that goes on, or is evaluated, where nothing computes bf16 becomes fp32 with a warning, unless a training's key asks for
// bf16. Collective.
dt_status dt_resolve_precision(dt_resolved *out, const dt_config *c, dt_comm *comm, const dt_backend *b,
                               const dt_resolved *stored, bool inference);
// DT_E_USAGE for keys of training that this backend does not support. Evaluation does not read them.
dt_status dt_resolve_check_training(const dt_config *c, const dt_backend *b);
dt_dtype dt_resolved_dtype(const dt_resolved *r);
// Replaces the config's autos by the resolved values.
void dt_resolve_write(dt_config *c, const dt_resolved *r);
// Prepares two configs for a comparison: a key that is auto in `old` but not in `given` gets its answer, so that a run can also
// be resumed with its resolved config.yaml. In elastic runs threads and replicas change no bits, so they become auto
// in both.
void dt_resolve_align(dt_config *old, dt_config *given, const dt_resolved *r);

#endif
