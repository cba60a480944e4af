// comm.h: the table for communication between ranks. comm_self: one process, no MPI call at all.
// comm_mpi: the module dtrain_mpi.so, loaded when a launcher started us. comm_nccl: with CUDA.
//
// Rules: one thread talks to a comm at a time (the thread that created it, unless said otherwise).
// Every collective is entered by all ranks in the same order with equal sizes. Sums are in a fixed
// order: the bits depend on the world size and on nothing else. No allocation inside after the first
// call of a size. Every wait has a deadline and watches for a peer's abort: DT_E_PEER naming the
// collective, the missing rank and its host.
// Counts are elements, never bytes, unless the name says bytes.
#ifndef DT_COMM_COMM_H
#define DT_COMM_COMM_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct dt_comm dt_comm;
typedef struct dt_request {
    int id; // internal; < 0 when finished
} dt_request;

struct dt_comm {
    const char *name; // "self", "mpi"
    void *self;
    int rank, world_size;
    int local_rank, local_size; // on this host

    dt_status (*barrier)(dt_comm *c);
    dt_status (*broadcast_bytes)(dt_comm *c, void *data, size_t n_bytes, int root);
    // data of every rank, concatenated in rank order into `all` (world_size * n_bytes)
    dt_status (*all_gather_bytes)(dt_comm *c, const void *data, size_t n_bytes, void *all);
    dt_status (*all_reduce_f32)(dt_comm *c, float *data, int64_t n);  // sum, fixed order
    dt_status (*all_reduce_f64)(dt_comm *c, double *data, int64_t n); // sum, fixed order
    dt_status (*all_reduce_max_i64)(dt_comm *c, int64_t *data, int64_t n);
    // Starts a sum all-reduce in place; progress() moves all started ones; wait() finishes one.
    dt_status (*all_reduce_start)(dt_comm *c, float *data, int64_t n, dt_request *r);
    // The same with what travels rounded to bf16: `low` has room for n of them. NULL: only NCCL has it.
    dt_status (*all_reduce_bf16_start)(dt_comm *c, float *data, uint16_t *low, int64_t n,
                                       dt_request *r);
    dt_status (*progress)(dt_comm *c); // never blocks
    dt_status (*wait)(dt_comm *c, dt_request *r);
    // Point to point, blocking, for the tree.
    dt_status (*send_f32)(dt_comm *c, const float *data, int64_t n, int to);
    dt_status (*recv_f32)(dt_comm *c, float *data, int64_t n, int from);

    void (*set_deadline)(dt_comm *c, double seconds);
    void (*abort)(dt_comm *c, int exit_code); // tells the launcher; does not return for "mpi"
    dt_status (*finalize)(dt_comm *c);        // last barrier; nothing may be called afterwards
};

// Whether a launcher (mpirun, srun with PMI) started this process, from its environment.
bool dt_comm_launched(void);
// self or mpi by the environment. The module is looked for beside the executable, then in
// ../lib/dtrain. Checks the world size against the launcher's (SLURM_NTASKS).
dt_status dt_comm_create(dt_comm **out);
dt_status dt_comm_create_self(dt_comm **out);
// Frees after finalize.
void dt_comm_destroy(dt_comm *c);

// What dtrain_mpi.so exports: `dt_status dt_comm_module_create(dt_comm **out)`.

#endif
