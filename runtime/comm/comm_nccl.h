// comm_nccl.h: a comm for the memory of devices, one rank a device. The table of comm.h, but data is
// device memory and calls queue work on a stream instead of waiting for it:
//   all_reduce_start   on the side stream, behind all that is on the main stream now
//   all_reduce_bf16_start   there too, between two conversions
//   wait               the main stream waits for the side stream; the host waits for nothing
//   all_reduce_f32, broadcast_bytes, send_f32, recv_f32   on the main stream
//   progress           asks NCCL for errors that came later; never blocks
// barrier, all_gather_bytes, all_reduce_f64 and all_reduce_max_i64 are NULL: the host's comm has them.
//
// Sums come out with the same bits on all ranks, and again from run to run for the same world size; they
// are not in rank order. Who needs bits that do not depend on the world size takes the tree of tree.h over
// send and recv.
//
// A failure on any rank, or a wait beyond the deadline, aborts the communicator: kernels that wait for
// a peer end, and every later call gives DT_E_PEER. One thread makes all calls, as the backend demands: nobody
// aborts beside a call that is under way.
#ifndef DT_COMM_COMM_NCCL_H
#define DT_COMM_COMM_NCCL_H

#include "backend/backend.h"
#include "comm/comm.h"

// boot: the host's comm, over which rank 0's id travels. Collective. Ends with a self-test of sums that can
// be predicted exactly, which also opens the connections: nothing may connect while a stream is captured.
// Where `captured` is asked for, one sum is captured and played: all ranks can or none is taken to.
// The backend must have device->nccl: DT_E_USAGE otherwise. Both are borrowed.
dt_status dt_comm_create_nccl(dt_comm **out, dt_backend *b, dt_comm *boot, bool captured,
                              double deadline_s);
// Whether its collectives may be captured; the same on all ranks. A captured collective must be captured on all
// ranks, at the same place of the same piece of work, and those captures be launched together.
bool dt_comm_nccl_captures(const dt_comm *c);
void dt_comm_destroy_nccl(dt_comm *c); // without finalize: aborts
void dt_comm_nccl_set_streams(dt_comm *c, void *main, void *side);
// NCCL aborts no communicator before the graphs that hold its collectives are gone: it would wait for them, for
// ever. So release(ctx) is called in front of the abort, once, in whatever call finds the failure, a captured one
// too: it ends a capture that is under way and destroys the graphs. What has been launched of them ends with the abort.
// NULL: there are none.
void dt_comm_nccl_set_release(dt_comm *c, void (*release)(void *ctx), void *ctx);
// Lets NCCL use this memory where it lies, until finalize or forget; a few pieces. Nothing happens where the
// library cannot, or will not: all works without. Memory is given back after it is forgotten.
dt_status dt_comm_nccl_register(dt_comm *c, void *data, size_t n_bytes);
void dt_comm_nccl_forget(dt_comm *c, void *data);
// While the host waits for the device: late errors, and the deadline after waited_s (dt_clock_waited_s). DT_E_PEER.
dt_status dt_comm_nccl_watch(dt_comm *c, double waited_s);

#endif
