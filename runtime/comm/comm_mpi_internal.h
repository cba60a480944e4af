// comm_mpi_internal.h: what the files of the MPI modules share.
#ifndef DT_COMM_COMM_MPI_INTERNAL_H
#define DT_COMM_COMM_MPI_INTERNAL_H

#include "base/os.h"
#include "comm/comm.h"

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>

enum {
    MPI_HOST_BYTES = 64, // of a host's name
    MPI_TAG_HEARTBEAT = 1
};

// Messages of one turn: receives first, then sends.
typedef struct dt_mpi_messages {
    MPI_Request *requests;
    MPI_Status *statuses;
    int *peers, *done; // done: of one test
    int n, n_recv, n_cap, n_open;
} dt_mpi_messages;

// Ranks that exchange with each other, in the order in which their contributions are added.
typedef struct dt_mpi_group {
    int n, self; // self: this rank's place; -1: it is not among them
    int *ranks;
} dt_mpi_group;

typedef struct dt_mpi_waiting {
    int spins;
    dt_waited waited;
} dt_mpi_waiting;

typedef struct dt_mpi_reduction dt_mpi_reduction;
typedef struct dt_mpi_slot dt_mpi_slot;
typedef struct dt_mpi_heartbeat dt_mpi_heartbeat;
typedef struct dt_mpi_host dt_mpi_host;

typedef struct dt_mpi_comm {
    int rank, world_size;
    char (*hosts)[MPI_HOST_BYTES];      // by rank
    int *host_of;                       // by rank: hosts are counted in the order of their first ranks
    int n_hosts, n_columns, most_ranks; // ranks of the smallest host, and of the largest
    dt_mpi_group all, inner,
        across;           // inner: of this host; across: the c-th rank of each host, as this one is on its own
    dt_mpi_group leaders; // of the broadcast in progress: one rank of each host
    dt_mpi_host *host;    // NULL: this rank is alone on its host, or ranks exchange messages there, too
    bool small_by_host;   // a small buffer is reduced on each host, then across, and not all to all
    int64_t segment;      // f32 elements reduced at a time
    uint64_t host_turn;   // of the next segment in the host's memory
    const char **sources; // what an addition adds up
    char *gathered;       // scratch of the all-gather
    size_t gathered_bytes;
    _Atomic uint64_t number; // of collectives so far; a segment of a reduction is one
    int tag_limit;
    atomic_uint *n_received; // by rank: messages of collectives that have arrived
    double deadline_s;
    bool oversubscribed;
    dt_mpi_messages msgs;          // of the blocking collective that runs now
    dt_mpi_reduction **reductions; // by request id
    int n_reductions;
    dt_mpi_slot *slots;
    dt_mpi_heartbeat *heartbeat;
} dt_mpi_comm;

// comm_mpi.c
extern pthread_mutex_t mpi_lock; // around each call of MPI: the watch makes some too
dt_status dt_mpi_check(int rc, const char *what);
void dt_mpi_messages_free(dt_mpi_messages *m);
dt_status dt_mpi_post_recv(dt_mpi_messages *m, void *to, int64_t n, size_t element_bytes, int peer, int tag);
dt_status dt_mpi_post_send(dt_mpi_messages *m, const void *from, int64_t n, size_t element_bytes, int peer, int tag);
// Takes all messages that have arrived; never blocks.
dt_status dt_mpi_test_messages(const dt_mpi_comm *m, dt_mpi_messages *msgs, bool *done);
int dt_mpi_next_tag(const dt_mpi_comm *m, uint64_t number, int phase); // phase: 0 … 3
// The i-th partner of this rank in a group. Each rank starts behind itself, so no rank is everyone's first partner.
int dt_mpi_peer_to(const dt_mpi_group *g, int i);
int dt_mpi_peer_from(const dt_mpi_group *g, int i);
// A pause that grows; false when the deadline has passed and no rank has got on with its work for as long.
bool dt_mpi_pause(const dt_mpi_comm *m, dt_mpi_waiting *w);
// late: ranks that are waited for, at most MPI_MAX_NAMED
dt_status dt_mpi_fail_deadline(dt_mpi_comm *m, const int *late, int n_late, const char *what, int64_t n,
                               uint64_t number, double waited_s);
enum { MPI_MAX_NAMED = 4 }; // late ranks listed in a message
// Writes ranks whose messages have not come to `late`, or where all have, ranks that have not taken theirs. How many.
int dt_mpi_find_late(const dt_mpi_messages *msgs, int late[MPI_MAX_NAMED]);

// comm_mpi_reduce.c: of dt_comm
void dt_mpi_reductions_create(dt_mpi_comm *m);
dt_status dt_mpi_reductions_fit(dt_comm *c); // to the groups, when they are known; collective
dt_status dt_mpi_progress(dt_comm *c);
dt_status dt_mpi_wait(dt_comm *c, dt_request *r);
dt_status dt_mpi_all_reduce_f32(dt_comm *c, float *data, int64_t n);
dt_status dt_mpi_all_reduce_f64(dt_comm *c, double *data, int64_t n);
dt_status dt_mpi_all_reduce_max_i64(dt_comm *c, int64_t *data, int64_t n);
dt_status dt_mpi_reduce_start(dt_comm *c, const dt_reduction *x, dt_request *r);
bool dt_mpi_own_part(const dt_comm *c, int64_t n, int k, int64_t *begin, int64_t *end);
void dt_mpi_reductions_free(dt_mpi_comm *m);

// comm_mpi_sum.c: the types that are added. A sum is begun, added to and ended in an accumulator, which is f32 for bf16
// and of the elements' own type otherwise.
typedef enum dt_mpi_element { MPI_ELEMENT_F32, MPI_ELEMENT_F64, MPI_ELEMENT_MAX_I64, MPI_ELEMENT_BF16 } dt_mpi_element;
size_t dt_mpi_element_bytes(dt_mpi_element kind); // of an element in a message
// out = ((x0 + x1) + x2) + … of n elements; tree: by the fixed tree (dt_tree_split) instead. out may be one of the sources. bf16: summed as
// f32, then rounded.
void dt_mpi_sum(dt_mpi_element kind, bool tree, void *out, const char *const *x, int n_x, int64_t n);
void dt_mpi_sum_narrow(uint16_t *to, const float *from, int64_t n); // to nearest, ties to even
void dt_mpi_sum_widen(float *to, const uint16_t *from, int64_t n);

// comm_mpi_heartbeat.c. The comm's dt_mpi_comm and its hosts must stay.
dt_status dt_mpi_heartbeat_begin(dt_mpi_heartbeat **out, const dt_comm *c);
// dt_watch_peers.heartbeat; entered: how many collectives this rank has entered
dt_status dt_mpi_heartbeat_exchange(dt_mpi_heartbeat *b, uint64_t *ticks, uint64_t entered);
// The rank that has entered the fewest collectives, if fewer than `number`; -1: none has, or it is not known.
int dt_mpi_heartbeat_behind(dt_mpi_heartbeat *b, uint64_t number);
dt_status dt_mpi_heartbeat_end(dt_mpi_heartbeat *b); // collective, behind the last exchange; frees

#endif
