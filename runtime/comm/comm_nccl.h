// comm_nccl.h: a comm over GPU memory, one rank a GPU. The table of comm.h, but data are in device memory and
// calls queue work on a stream instead of waiting for it:
//   reduce_start       on the side stream, after everything now queued on the main stream; bf16 between two conversions
//   wait               the main stream waits for the side stream; the host waits for nothing
//   all_reduce_f32, all_reduce_f64, broadcast_bytes, send_f32, recv_f32   on the main stream
//   progress           checks for asynchronous errors; never blocks
// barrier, all_gather_bytes and all_reduce_max_i64 are NULL: the host's comm has them.
//
// Sums have the same bits on all ranks, and from run to run for the same world size (dt_nccl_repeats), but are not in
// rank order. Bits that do not depend on the world size need the tree of bucket.h over send and recv.
//
// A failure on any rank, or a wait beyond the deadline, aborts the communicator: kernels that wait for a peer
// end, and every later call returns DT_E_PEER. One thread makes all calls, as the backend demands, so no abort
// runs beside another call.
#ifndef DT_COMM_COMM_NCCL_H
#define DT_COMM_COMM_NCCL_H

#include "backend/backend.h"
#include "comm/comm.h"

// Collective. boot: the host's comm, which sends rank 0's id. Ends with a self-test of sums that are
// predictable exactly. It also opens the connections, which must not happen during a stream capture, and takes NCCL's
// buffers. Which NCCL needs depends on the size of a sum: sum_bytes is that of a step's largest.
// captured: one sum is captured and replayed, too; DT_E_PEER on a rank where that fails. All ranks must capture a
// collective at the same place of the same work, and launch those graphs together.
// in_steps: a sum is made in two steps, too, which will be started alone.
// DT_E_USAGE if the backend has no device->nccl. Borrows b and boot.
dt_status dt_comm_create_nccl(dt_comm **out, dt_backend *b, dt_comm *boot, bool captured, bool in_steps,
                              int64_t sum_bytes, double deadline_s);
void dt_comm_destroy_nccl(dt_comm *c); // without finalize: aborts

// NVLink SHARP ("NVLS": switches add), NCCL's choice for large sums where a host has NVSwitches, gives other bits from
// call to call (NVIDIA/nccl#1497, #2360). PyTorch's deterministic mode rules it out by the same variable. NCCL reads the
// environment when its first communicator is made.
#define DT_NCCL_REPEATING "^NVLS,NVLSTree" // a value of NCCL_ALGO
// NCCL_SOCKET_IFNAME for Open MPI's btl_tcp_if_include: names of interfaces, or networks ("10.1.0.0/16") and
// the names that they have on this host. False: none of them is here, or the text does not fit.
bool dt_nccl_interfaces(const char *include, char *out, size_t cap);

// Whether NCCL_ALGO or NCCL_NVLS_ENABLE rule NVLS out.
bool dt_nccl_repeats(void);

#endif
