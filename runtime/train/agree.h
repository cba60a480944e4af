// agree.h: what ranks decide together before the first step, so that none goes on alone and none waits for
// another that has given up.
//
// A rank that fails alone leaves the others in a collective that it will never enter: they wait until the
// deadline, and then say that a peer was lost, which is not what went wrong. Some answers only rank 0 can give
// (it reads files, it times engines), and some differ from host to host (whether there is a GPU). Both
// are exchanged here together with the failure to give them, so that each rank says the same of it.
//
// All ranks enter these in the same order. `told` becomes true when a failure is known to all of them: each
// returns it, and nobody need end the job by force. It stays as it is where the exchange itself fails: then
// who else knows is not known, and the launcher ends the job. One rank alone exchanges nothing.
//
// Called between a session's beginning and its first step, by the thread that made the comm; the comm's
// deadline is the caller's to set, as planning takes minutes and the rest seconds.
#ifndef DT_TRAIN_AGREE_H
#define DT_TRAIN_AGREE_H

#include "backend/backend.h"
#include "comm/comm.h"

// Rank 0's text on all ranks; *text is replaced on the others. NULL stays NULL.
dt_status dt_agree_text(dt_comm *c, char **text);

// Rank 0's outcome on all ranks: its status `st`, and its text where that is DT_OK, else its message. The
// others' `st` is not read. Rank 0's own failure stays what it is when the others cannot be told.
dt_status dt_agree_result(dt_comm *c, dt_status st, char **text, bool *told);

// dt_backend_create, and where `kind` is auto one answer for all: the GPU where every rank has one, the CPU
// where none has, else DT_E_USAGE on all ranks, naming the first that has none, its host and why.
dt_status dt_agree_backend(dt_backend **out, dt_comm *c, dt_device_kind kind,
                           const dt_backend_opts *opts, bool *told);

// Every rank has a device of its own, and NCCL: else DT_E_USAGE on all of them, naming the first without.
// b has a device.
dt_status dt_agree_devices(dt_comm *c, const dt_backend *b, bool *told);

#endif
