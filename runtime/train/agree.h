// agree.h: what ranks agree on before the first step, so that none goes on alone and none waits for a rank that
// has failed.
//
// A rank that fails alone leaves the others in a collective that it never enters: they time out and report a lost
// peer, which is not what went wrong. Some answers only rank 0 can give (it reads files, it times engines), others
// differ from host to host (whether there is a GPU). Both are exchanged here, or the failure to give them, so that
// all ranks report the same.
//
// All ranks call these in the same order, before the first step, from the thread that made the comm. `told` becomes
// true when all ranks know of a failure and return it; where the exchange itself fails it stays as it is, and the
// launcher ends the job. A lone rank exchanges nothing. The caller sets the comm's deadline: planning takes minutes,
// the rest seconds.
#ifndef DT_TRAIN_AGREE_H
#define DT_TRAIN_AGREE_H

#include "backend/backend.h"
#include "comm/comm.h"

// Rank 0's text on all ranks; *text is replaced on the others. NULL stays NULL.
dt_status dt_agree_text(dt_comm *c, char **text);

// Rank 0's outcome on all ranks: its status `st`, with its text or its message. The others' `st` is not read.
// Rank 0's own failure stays what it is when the others cannot be told.
dt_status dt_agree_result(dt_comm *c, dt_status st, char **text, bool *told);

// dt_backend_create, and where `kind` is auto one answer for all: the GPU where every rank has one, the CPU
// where none has, else DT_E_USAGE on all ranks, naming the first that has none, its host and why.
dt_status dt_agree_backend(dt_backend **out, dt_comm *c, dt_device_kind kind,
                           const dt_backend_opts *opts, bool *told);

// `given` is this rank's config as text. Where a key that changes numbers is not the same on all ranks: DT_E_USAGE on
// all of them, naming the first such rank, the key and both values.
dt_status dt_agree_config(dt_comm *c, const char *given, bool *told);

// `text` says what a rank's bits depend on besides the config. Where it is not the same on all ranks: DT_E_USAGE if
// `must` (on all of them), else a warning; both name the ranks, their hosts and the texts.
dt_status dt_agree_environment(dt_comm *c, const char *text, bool must, bool *told);

// Every rank has a device of its own, and NCCL: else DT_E_USAGE on all of them, naming the first without.
// b has a device.
dt_status dt_agree_devices(dt_comm *c, const dt_backend *b, bool *told);

#endif
