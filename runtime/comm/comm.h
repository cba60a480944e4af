// comm.h: the table of communication between ranks. comm_self: one process, no MPI call at all.
// comm_mpi: the module dtrain_mpi.so (Open MPI) or dtrain_mpich.so, loaded if a launcher started this process.
// comm_nccl: GPU memory.
//
// One thread at a time calls a comm (the one that created it, unless documented otherwise). All ranks enter
// collectives in the same order with equal sizes. Sums have a fixed order: ranks of a host first, then the hosts, unless
// a tree is requested. So bits depend on the number of ranks and their hosts alone. Nothing is allocated after
// the first call of a size. Every wait notices a peer's abort and has a deadline (set_deadline), which does not end it
// while ranks make progress (base/watch.h). DT_E_PEER names the collective, the missing rank and its host.
// Counts are elements, never bytes, unless the name contains bytes.
#ifndef DT_COMM_COMM_H
#define DT_COMM_COMM_H

#include "base/core.h"

// comm.timeout: auto, until the first step, and for a rank without heartbeat
enum { DT_START_TIMEOUT_S = 120, DT_LOST_TIMEOUT_S = 20 };

typedef struct dt_comm dt_comm;
typedef struct dt_request {
    int id; // internal; < 0 when finished
} dt_request;

// An all-reduce is two steps, each of which may be started alone: a reduce-scatter leaves the sum of each element with
// its owner (dt_comm.own_part) and the other elements undefined, but 0 where all ranks have 0; an all-gather sends what
// every rank owns to all.
typedef enum dt_reduce_steps {
    DT_REDUCE_SCATTER = 1,
    DT_ALL_GATHER = 2,
    DT_ALL_REDUCE = DT_REDUCE_SCATTER | DT_ALL_GATHER
} dt_reduce_steps;
typedef struct dt_reduction {
    dt_reduce_steps steps;
    float *data; // in place; must stay until it is waited for
    int64_t n;
    // Room for n elements, through which data are sent as bf16; NULL: they are sent as they are. Over MPI each rank
    // rounds its data, their sums are taken in f32, and rounded, on each host and then over hosts. data NULL: an all-gather
    // of bf16 as it is (a device's).
    uint16_t *bf16;
    // A step alone: data are elements [at, at + n) of the vector whose chunks have owners. However the vector is cut into
    // reductions, sums have the same bits and owners.
    int64_t at;
    // Of an all-reduce in f32: the order is that of the fixed tree (comm/tree.c), where each rank is a leaf. See dt_comm.sums_by_tree.
    bool tree;
} dt_reduction;

// What a comm over a device's memory does besides (comm_nccl.h). Streams are the device's.
typedef struct dt_comm_device {
    // Collectives are queued on `main`, those that are started on `side`. release(ctx) is called once, before an abort,
    // in whichever call finds the failure (also a captured one). It must end a running capture and destroy all graphs
    // with collectives of this communicator, for which the abort would wait for ever. Graphs that were launched end with
    // the abort. release NULL: there are none.
    void (*attach)(dt_comm *c, void *main, void *side, void (*release)(void *ctx), void *ctx);
    // Memory that is exchanged without copies, until finalize or deregister_memory; a few buffers. An optimisation: does
    // nothing where the library does not support it. Deregister memory before freeing it.
    dt_status (*register_memory)(dt_comm *c, void *data, size_t n_bytes);
    void (*deregister_memory)(dt_comm *c, void *data);
    // To call while the host waits for the device: DT_E_PEER on asynchronous errors, or if waited_s
    // (dt_clock_waited_s) exceeds the deadline.
    dt_status (*watch)(dt_comm *c, double waited_s);
    // The host waits until `main` is empty, and watches meanwhile. `what` is for the message.
    dt_status (*drain)(dt_comm *c, const char *what);
} dt_comm_device;

struct dt_comm {
    const char *name;             // "self", "mpi", "nccl"
    const dt_comm_device *device; // NULL: the host's memory
    void *self;
    int rank, world_size;
    int local_rank, local_size; // on this host
    uint64_t host_layout_hash;  // of which ranks share a host; 0: all do
    bool sums_by_tree;          // can do so: over MPI, if the ranks of each host are a node of the tree
    // Every rank returns the failure that this rank is about to return, and knows that the others do: set by the
    // functions of run/agree.h. Ranks then end together, without an abort.
    bool shared_failure;

    dt_status (*barrier)(dt_comm *c);
    dt_status (*broadcast_bytes)(dt_comm *c, void *data, size_t n_bytes, int root);
    // all: the data of every rank in rank order (world_size * n_bytes)
    dt_status (*all_gather_bytes)(dt_comm *c, const void *data, size_t n_bytes, void *all);
    dt_status (*all_reduce_f32)(dt_comm *c, float *data, int64_t n);  // sum, fixed order
    dt_status (*all_reduce_f64)(dt_comm *c, double *data, int64_t n); // sum, fixed order
    dt_status (*all_reduce_max_i64)(dt_comm *c, int64_t *data, int64_t n);
    // The library's own, to be measured beside ours: its bits depend on more than ours. NULL: there is none.
    dt_status (*library_all_reduce_f32)(dt_comm *c, float *data, int64_t n);
    // Starts a sum. progress() advances all that have started; wait() finishes one.
    dt_status (*reduce_start)(dt_comm *c, const dt_reduction *x, dt_request *r);
    // The k-th range of a vector of n elements that this rank owns; false: there are fewer. Ranges ascend, begin at whole
    // chunks (DT_CHUNK) and end there or with the vector; those of all ranks are disjoint and cover everything; a range
    // may be empty. NULL: steps cannot be started alone.
    bool (*own_part)(const dt_comm *c, int64_t n, int k, int64_t *begin, int64_t *end);
    dt_status (*progress)(dt_comm *c); // never blocks
    dt_status (*wait)(dt_comm *c, dt_request *r);
    // Point to point, blocking; for the reduction tree.
    dt_status (*send_f32)(dt_comm *c, const float *data, int64_t n, int to);
    dt_status (*recv_f32)(dt_comm *c, float *data, int64_t n, int from);

    void (*set_deadline)(dt_comm *c, double seconds);
    void (*abort)(dt_comm *c, int exit_code); // ends the job by the launcher; does not return for "mpi"
    dt_status (*finalize)(dt_comm *c);        // last barrier; nothing may be called afterwards
};

// comm_mpi if a launcher started this process (base/os.h), else comm_self. Checks the world size against the
// launcher's.
dt_status dt_comm_create(dt_comm **out);
dt_status dt_comm_create_self(dt_comm **out);
// What each rank owns of n elements to all, and waits for it.
dt_status dt_comm_all_gather_f32(dt_comm *c, float *data, int64_t n);
dt_status dt_comm_all_gather_bf16(dt_comm *c, uint16_t *data, int64_t n);
// Frees after finalize.
void dt_comm_destroy(dt_comm *c);

// What a module exports: `dt_status dt_comm_module_create(dt_comm **out)`.

#endif
