// comm_mpi.c: the comm over MPI, built as the module dtrain_mpi.so; only comm_mpi*.c use MPI.
//
// Collectives are built from Isend, Irecv and Testall. MPI's own choose an order of additions by size,
// algorithm and world size, cannot be left when a peer hangs, and cannot be polled in a predictable way.
//
// Every exchange is direct: rank s sends to rank r exactly what r needs from s. A large all-reduce walks
// through the buffer in segments that fit the cache. Each segment has two phases: each rank receives its
// chunk from all others and adds the W contributions, then sends the sum to all. Turn t sends the sums of
// segment t - 1 and gathers the contributions to segment t. A small all-reduce has one turn, in which every
// rank sends everything to all. A ring moves the same bytes per rank, but
//   - its order of additions depends on an element's place in the buffer; here every element is
//     ((x0 + x1) + x2) + ... in rank order, whatever the size of the buffer or the bucket;
//   - it needs 2 (W - 1) turns of progress() where a segment here needs 2, and polling between the nodes of
//     a backward pass gives few turns;
//   - in a ring each rank waits for a neighbour that itself waits; here all ranks name the missing one.
// The price is scratch of one segment per reduction in flight and W - 1 messages a phase. With several ranks
// a host, a chain along the hosts would save traffic on the wire. It could be added without changing bits,
// since it adds in the same order.
//
// Several reductions may be in flight. Each is a small state machine (struct reduction) that every call of
// progress(), and every wait, advances. All ranks start them in the same order, so a running number gives
// matching tags.
//
// Waits poll Testall: a few hundred CPU pauses, then sched_yield (loader and writer threads want the core
// too), and short sleeps if there are more ranks than cores. The deadline ends a wait with DT_E_PEER, unless other ranks
// get on with their work (watch.h). Only one thread at a time may call in here; the watch, which beats meanwhile, and
// that thread take turns at MPI with a lock (MPI_THREAD_SERIALIZED). comm_mpi_beats.c: its beats;
// comm_mpi_sum.c: additions.
#include "base/arena.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/thread.h"
#include "base/watch.h"
#include "comm/comm_mpi_internal.h"

#include <assert.h>
#include <limits.h>
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    TAG_POINT = MPI_TAG_BEAT + 1, // point to point: MPI keeps the order between two ranks
    TAG_FIRST = 16,               // collectives count up from here
    SMALL_BYTES = 64 * 1024,      // up to this, world_size * size is exchanged in one phase
    FLAT_BROADCAST = 32 * 1024,   // up to this, the root sends to everybody itself
    SEGMENT = 1 << 20,            // elements reduced at a time
    CHUNK_ELEMENTS = 16,          // chunks begin at cache lines
    BLOCK = 1024,                 // elements added at a time, in L1
    MAX_NAMED = 4                 // lost ranks listed in a message
};

// Messages of one turn: receives first, then sends.
typedef struct messages {
    MPI_Request *requests;
    MPI_Status *statuses;
    int *peers;
    int n, n_recv;
} messages;

typedef struct reduction {
    bool busy;
    mpi_element kind;
    bool small;
    int turn, n_segments;
    uint64_t number;
    char *data;
    int64_t n;
    float *wide;   // bf16: where the sums go as f32 in the end
    char *scratch; // contributions of the others, in order of their ranks
    size_t scratch_bytes;
    messages msgs;
} reduction;

typedef struct mpi_comm {
    int rank, world_size;
    char (*hosts)[MPI_HOST_BYTES];
    uint64_t number; // of collectives so far
    int tag_limit;
    double deadline_s;
    bool oversubscribed;
    messages msgs; // of the blocking collective that runs now
    reduction blocking;
    reduction **reductions; // slots of all_reduce_start, found again by address and size
    int n_reductions;
    mpi_beats *beats;
} mpi_comm;

pthread_mutex_t mpi_lock = PTHREAD_MUTEX_INITIALIZER;
#define LOCKED(call) (pthread_mutex_lock(&mpi_lock), unlock_mpi(call))
static int unlock_mpi(int rc) {
    pthread_mutex_unlock(&mpi_lock);
    return rc;
}

typedef struct waiting {
    int spins;
    dt_waited waited;
} waiting;

// -- messages ------------------------------------------------------------------------------------

dt_status mpi_check(int rc, const char *what) {
    if (rc == MPI_SUCCESS) return DT_OK;
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    MPI_Error_string(rc, text, &n);
    return dt_fail(DT_E_PEER, "MPI failed in %s: %s; a peer or a link may be gone, run again", what,
                   text);
}

static void create_messages(messages *m, int world_size) {
    m->requests = dt_xcalloc(4 * (size_t)world_size, sizeof *m->requests);
    m->statuses = dt_xcalloc(4 * (size_t)world_size, sizeof *m->statuses);
    m->peers = dt_xcalloc(4 * (size_t)world_size, sizeof *m->peers);
}

static void free_messages(messages *m) {
    free(m->requests);
    free(m->statuses);
    free(m->peers);
}

static MPI_Datatype type_of(size_t element_bytes) {
    return element_bytes == 1   ? MPI_BYTE
           : element_bytes == 2 ? MPI_UINT16_T
           : element_bytes == 4 ? MPI_FLOAT
                                : MPI_INT64_T;
}

static dt_status post_recv(messages *m, void *to, int64_t n, size_t element_bytes, int peer,
                           int tag) {
    assert(m->n == m->n_recv);
    m->peers[m->n] = peer;
    DT_TRY(mpi_check(LOCKED(MPI_Irecv(to, (int)n, type_of(element_bytes), peer, tag, MPI_COMM_WORLD,
                                      &m->requests[m->n])),
                     "a receive"));
    m->n_recv = ++m->n;
    return DT_OK;
}

static dt_status post_send(messages *m, const void *from, int64_t n, size_t element_bytes, int peer,
                           int tag) {
    m->peers[m->n] = peer;
    DT_TRY(mpi_check(LOCKED(MPI_Isend(from, (int)n, type_of(element_bytes), peer, tag,
                                      MPI_COMM_WORLD, &m->requests[m->n])),
                     "a send"));
    m->n++;
    return DT_OK;
}

// Testall only reports that some request failed; the statuses tell which one.
static dt_status fail_test(const mpi_comm *m, const messages *msgs, int rc) {
    for (int i = 0; rc == MPI_ERR_IN_STATUS && i < msgs->n; i++) {
        int error = msgs->statuses[i].MPI_ERROR, peer = msgs->peers[i];
        if (error == MPI_SUCCESS || error == MPI_ERR_PENDING) continue;
        return dt_fail_context(mpi_check(error, i < msgs->n_recv ? "a receive" : "a send"),
                               "rank %d on %s", peer, m->hosts[peer]);
    }
    return mpi_check(rc, "a test");
}

static dt_status test_messages(const mpi_comm *m, messages *msgs, bool *done) {
    int flag = 1;
    if (msgs->n > 0) {
        int rc = LOCKED(MPI_Testall(msgs->n, msgs->requests, &flag, msgs->statuses));
        if (rc != MPI_SUCCESS) return fail_test(m, msgs, rc);
    }
    *done = flag;
    if (flag) msgs->n = msgs->n_recv = 0;
    return DT_OK;
}

// The i-th partner. Starting after the own rank spreads the load: no rank is everyone's first partner.
static int peer_to(const mpi_comm *m, int i) {
    return (m->rank + 1 + i) % m->world_size;
}
static int peer_from(const mpi_comm *m, int i) {
    return (m->rank - 1 - i + m->world_size) % m->world_size;
}

static int next_tag(const mpi_comm *m, uint64_t number, int phase) {
    return TAG_FIRST + (int)((2 * number + (uint64_t)phase) % (uint64_t)(m->tag_limit - TAG_FIRST));
}

static dt_status check_count(int64_t n) {
    if (n >= 0 && n <= INT_MAX) return DT_OK;
    return dt_fail(DT_E_INTERNAL,
                   "a message of %lld elements: MPI's limit is %d; use smaller pieces",
                   (long long)n, INT_MAX);
}

// -- waiting -------------------------------------------------------------------------------------

static dt_status fail_deadline(mpi_comm *m, const messages *msgs, const char *what, int64_t n,
                               uint64_t number, double waited_s) {
    char names[MAX_NAMED * (MPI_HOST_BYTES + 32)] = "";
    int named[MAX_NAMED], n_named = 0;
    size_t used = 0;
    for (int i = 0; i < msgs->n && n_named < MAX_NAMED; i++) {
        int done = 0, peer = msgs->peers[i];
        // ranks that sent nothing are to blame; unsent messages count only if there are none of those
        if (i == msgs->n_recv && n_named > 0) break;
        LOCKED(MPI_Request_get_status(msgs->requests[i], &done, MPI_STATUS_IGNORE));
        for (int k = 0; k < n_named; k++) done |= named[k] == peer;
        if (done) continue;
        used += (size_t)snprintf(names + used, sizeof names - used, "%srank %d on %s",
                                 used ? ", " : "", peer, m->hosts[peer]);
        named[n_named++] = peer;
    }
    return dt_fail(
        DT_E_PEER,
        "%s%s did not take part in %s (%lld elements, collective %llu) for %.0f s: hung, "
        "stopped or lost; look at its last lines and its host, then run again (comm.timeout: wait "
        "longer)",
        names, n_named == MAX_NAMED ? " (and perhaps others)" : "", what, (long long)n,
        (unsigned long long)number, waited_s);
}

// A pause that grows; false when the deadline has passed, and for as long no rank got on with anything.
static bool pause_waiting(const mpi_comm *m, waiting *w) {
    if (++w->spins < 256) {
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#endif
        return true;
    }
    sched_yield();
    if (w->spins % 16 != 0) return true;
    double waited_s = dt_clock_waited_s(&w->waited, dt_clock_s());
    if (m->oversubscribed && waited_s > 2e-3) {
        struct timespec nap = {.tv_nsec = 50000};
        nanosleep(&nap, NULL);
    }
    return waited_s < m->deadline_s || dt_watch_quiet_s() < m->deadline_s;
}

static dt_status mpi_progress(dt_comm *c);

static dt_status wait_messages(dt_comm *c, messages *msgs, const char *what, int64_t n,
                               uint64_t number) {
    mpi_comm *m = c->self;
    waiting w = {0};
    for (;;) {
        bool done = false;
        DT_TRY(test_messages(m, msgs, &done));
        if (done) return DT_OK;
        // a peer may need the next phase of a reduction in flight before it gets here
        DT_TRY(mpi_progress(c));
        if (!pause_waiting(m, &w)) return fail_deadline(m, msgs, what, n, number, w.waited.sum_s);
    }
}

// -- reductions ----------------------------------------------------------------------------------

static const char *label_of(mpi_element kind) {
    return kind == MPI_ELEMENT_F32    ? "the all-reduce (sum, f32)"
           : kind == MPI_ELEMENT_F64  ? "the all-reduce (sum, f64)"
           : kind == MPI_ELEMENT_BF16 ? "the all-reduce (sum, bf16)"
                                      : "the all-reduce (max, i64)";
}

// Elements [begin, end) of segment `segment` that `rank` adds up. All of them when small.
typedef struct chunk {
    int64_t begin, end;
} chunk;

static chunk chunk_of(const mpi_comm *m, const reduction *r, int segment, int rank) {
    int64_t begin = (int64_t)segment * SEGMENT;
    int64_t n = r->n - begin < SEGMENT ? r->n - begin : SEGMENT;
    if (r->small) return (chunk){0, r->n};
    int64_t each =
        (int64_t)dt_align_up((size_t)((n + m->world_size - 1) / m->world_size), CHUNK_ELEMENTS);
    int64_t from = each * rank < n ? each * rank : n;
    int64_t to = from + each < n ? from + each : n;
    return (chunk){begin + from, begin + to};
}

static char *element_at(const reduction *r, int64_t i) {
    return r->data + (size_t)i * mpi_element_bytes(r->kind);
}

// Scratch for what `rank` contributes to a chunk of n elements.
static char *contribution(const mpi_comm *m, const reduction *r, int rank, int64_t n) {
    int slot = rank < m->rank ? rank : rank - 1;
    return r->scratch + (size_t)slot * (size_t)n * mpi_element_bytes(r->kind);
}

// data = ((x0 + x1) + x2) + ... in rank order, a block at a time.
static void sum_contributions(const mpi_comm *m, const reduction *r, int segment) {
    chunk mine = chunk_of(m, r, segment, m->rank);
    int64_t n = mine.end - mine.begin;
    size_t size = mpi_element_bytes(r->kind);
    char *own = element_at(r, mine.begin);
    if (m->world_size == 2 && r->kind != MPI_ELEMENT_BF16) { // a + b has the bits of b + a
        mpi_sum_add(r->kind, own, contribution(m, r, 1 - m->rank, n), n);
        return;
    }
    double acc[BLOCK];
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t len = n - at < BLOCK ? n - at : BLOCK;
        for (int s = 0; s < m->world_size; s++) {
            const char *x = (s == m->rank ? own : contribution(m, r, s, n)) + (size_t)at * size;
            (s == 0 ? mpi_sum_begin : mpi_sum_add)(r->kind, acc, x, len);
        }
        mpi_sum_end(r->kind, own + (size_t)at * size, acc, len);
    }
}

// The receives of a turn: sums of the segment before, contributions to this one.
static dt_status post_turn_recvs(mpi_comm *m, reduction *r) {
    size_t size = mpi_element_bytes(r->kind);
    chunk mine = chunk_of(m, r, r->turn, m->rank);
    for (int i = 0; i < m->world_size - 1; i++) {
        int peer = peer_from(m, i);
        if (r->turn > 0) {
            chunk sums = chunk_of(m, r, r->turn - 1, peer);
            DT_TRY(post_recv(&r->msgs, element_at(r, sums.begin), sums.end - sums.begin, size, peer,
                             next_tag(m, r->number, 1)));
        }
        if (r->turn < r->n_segments) {
            int64_t n = mine.end - mine.begin;
            DT_TRY(post_recv(&r->msgs, contribution(m, r, peer, n), n, size, peer,
                             next_tag(m, r->number, 0)));
        }
    }
    return DT_OK;
}

static dt_status post_turn_sends(mpi_comm *m, reduction *r) {
    size_t size = mpi_element_bytes(r->kind);
    for (int i = 0; i < m->world_size - 1; i++) {
        int peer = peer_to(m, i);
        if (r->turn > 0) {
            chunk sums = chunk_of(m, r, r->turn - 1, m->rank);
            DT_TRY(post_send(&r->msgs, element_at(r, sums.begin), sums.end - sums.begin, size, peer,
                             next_tag(m, r->number, 1)));
        }
        if (r->turn < r->n_segments) {
            chunk theirs = chunk_of(m, r, r->turn, peer);
            DT_TRY(post_send(&r->msgs, element_at(r, theirs.begin), theirs.end - theirs.begin, size,
                             peer, next_tag(m, r->number, 0)));
        }
    }
    return DT_OK;
}

static dt_status post_turn(mpi_comm *m, reduction *r) {
    DT_TRY(post_turn_recvs(m, r));
    return post_turn_sends(m, r);
}

static dt_status start_reduction(mpi_comm *m, reduction *r, mpi_element kind, void *data,
                                 int64_t n) {
    r->kind = kind;
    r->data = data;
    r->n = n;
    r->number = m->number++;
    r->turn = 0;
    r->small = (size_t)n * mpi_element_bytes(kind) * (size_t)m->world_size <= SMALL_BYTES;
    r->n_segments = (int)((n + SEGMENT - 1) / SEGMENT);
    chunk mine = chunk_of(m, r, 0, m->rank);
    size_t need =
        (size_t)(mine.end - mine.begin) * mpi_element_bytes(kind) * (size_t)(m->world_size - 1);
    if (need > r->scratch_bytes) {
        r->scratch = dt_xrealloc(r->scratch, need);
        r->scratch_bytes = need;
    }
    if (!r->msgs.requests) create_messages(&r->msgs, m->world_size);
    DT_TRY(post_turn(m, r));
    r->busy = true;
    return DT_OK;
}

// One turn of the state machine; never blocks.
static dt_status advance_reduction(mpi_comm *m, reduction *r) {
    bool done = false;
    DT_TRY(test_messages(m, &r->msgs, &done));
    if (!done) return DT_OK;
    if (r->turn < r->n_segments) sum_contributions(m, r, r->turn);
    if (r->small || r->turn == r->n_segments) {
        r->busy = false;
        if (r->kind == MPI_ELEMENT_BF16) mpi_sum_widen(r->wide, (const uint16_t *)r->data, r->n);
        return DT_OK;
    }
    r->turn++;
    return post_turn(m, r);
}

static dt_status mpi_progress(dt_comm *c) {
    mpi_comm *m = c->self;
    for (int i = 0; i < m->n_reductions; i++)
        if (m->reductions[i]->busy) DT_TRY(advance_reduction(m, m->reductions[i]));
    return DT_OK;
}

static dt_status finish_reduction(dt_comm *c, reduction *r) {
    mpi_comm *m = c->self;
    waiting w = {0};
    while (r->busy) {
        if (r == &m->blocking) DT_TRY(advance_reduction(m, r));
        DT_TRY(mpi_progress(c));
        if (r->busy && !pause_waiting(m, &w))
            return fail_deadline(m, &r->msgs, label_of(r->kind), r->n, r->number, w.waited.sum_s);
    }
    return DT_OK;
}

static dt_status reduce_blocking(dt_comm *c, mpi_element kind, void *data, int64_t n) {
    mpi_comm *m = c->self;
    if (m->world_size == 1 || n == 0) return DT_OK;
    DT_TRY(start_reduction(m, &m->blocking, kind, data, n));
    return finish_reduction(c, &m->blocking);
}

static dt_status mpi_all_reduce_f32(dt_comm *c, float *data, int64_t n) {
    return reduce_blocking(c, MPI_ELEMENT_F32, data, n);
}
static dt_status library_all_reduce_f32(dt_comm *c, float *data, int64_t n) {
    DT_TRY(check_count(n));
    return mpi_check(
        LOCKED(MPI_Allreduce(MPI_IN_PLACE, data, (int)n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD)),
        "MPI_Allreduce");
}
static dt_status mpi_all_reduce_f64(dt_comm *c, double *data, int64_t n) {
    return reduce_blocking(c, MPI_ELEMENT_F64, data, n);
}
static dt_status mpi_all_reduce_max_i64(dt_comm *c, int64_t *data, int64_t n) {
    return reduce_blocking(c, MPI_ELEMENT_MAX_I64, data, n);
}

// The slot that last reduced this buffer already has its scratch. A new buffer gets a new slot, or beyond
// MAX_KEPT (for callers with ever new addresses) any free one. So slots depend on what is reduced, not on
// timing, and the second step allocates nothing.
static int find_slot(mpi_comm *m, const void *data, int64_t n) {
    enum { MAX_KEPT = 4096 };
    int free_slot = -1;
    for (int i = 0; i < m->n_reductions; i++) {
        const reduction *r = m->reductions[i];
        if (r->busy) continue;
        if (r->data == data && r->n == n) return i;
        free_slot = i;
    }
    if (m->n_reductions >= MAX_KEPT && free_slot >= 0) return free_slot;
    m->reductions =
        dt_xrealloc(m->reductions, (size_t)(m->n_reductions + 1) * sizeof *m->reductions);
    m->reductions[m->n_reductions] = dt_xcalloc(1, sizeof **m->reductions);
    return m->n_reductions++;
}

static dt_status mpi_all_reduce_start(dt_comm *c, float *data, int64_t n, dt_request *r) {
    mpi_comm *m = c->self;
    r->id = -1;
    if (m->world_size == 1 || n == 0) return DT_OK;
    int slot = find_slot(m, data, n);
    DT_TRY(start_reduction(m, m->reductions[slot], MPI_ELEMENT_F32, data, n));
    r->id = slot;
    return DT_OK;
}

static dt_status mpi_all_reduce_bf16_start(dt_comm *c, float *data, uint16_t *low, int64_t n,
                                           dt_request *r) {
    mpi_comm *m = c->self;
    r->id = -1;
    if (m->world_size == 1 || n == 0) return DT_OK;
    int slot = find_slot(m, low, n);
    mpi_sum_narrow(low, data, n);
    m->reductions[slot]->wide = data;
    DT_TRY(start_reduction(m, m->reductions[slot], MPI_ELEMENT_BF16, low, n));
    r->id = slot;
    return DT_OK;
}

static dt_status mpi_wait(dt_comm *c, dt_request *r) {
    mpi_comm *m = c->self;
    if (r->id < 0) return DT_OK;
    dt_status st = finish_reduction(c, m->reductions[r->id]);
    r->id = -1;
    return st;
}

// -- other collectives ---------------------------------------------------------------------------

static dt_status mpi_all_gather_bytes(dt_comm *c, const void *data, size_t n_bytes, void *all) {
    mpi_comm *m = c->self;
    DT_TRY(check_count((int64_t)n_bytes));
    uint64_t number = m->number++;
    int tag = next_tag(m, number, 0);
    char *to = all;
    if (n_bytes > 0) memmove(to + (size_t)m->rank * n_bytes, data, n_bytes);
    const char *own = to + (size_t)m->rank * n_bytes;
    for (int i = 0; i < m->world_size - 1; i++) {
        int peer = peer_from(m, i);
        DT_TRY(post_recv(&m->msgs, to + (size_t)peer * n_bytes, (int64_t)n_bytes, 1, peer, tag));
    }
    for (int i = 0; i < m->world_size - 1; i++)
        DT_TRY(post_send(&m->msgs, own, (int64_t)n_bytes, 1, peer_to(m, i), tag));
    return wait_messages(c, &m->msgs, "the all-gather", (int64_t)n_bytes, number);
}

// All-to-all: more messages than a tree, but every rank can name the missing one.
static dt_status mpi_barrier(dt_comm *c) {
    mpi_comm *m = c->self;
    uint64_t number = m->number++;
    int tag = next_tag(m, number, 0);
    for (int i = 0; i < m->world_size - 1; i++)
        DT_TRY(post_recv(&m->msgs, NULL, 0, 1, peer_from(m, i), tag));
    for (int i = 0; i < m->world_size - 1; i++)
        DT_TRY(post_send(&m->msgs, NULL, 0, 1, peer_to(m, i), tag));
    return wait_messages(c, &m->msgs, "the barrier", 0, number);
}

static dt_status broadcast_flat(dt_comm *c, char *data, int64_t n, int root, uint64_t number) {
    mpi_comm *m = c->self;
    int tag = next_tag(m, number, 0);
    if (m->rank != root) DT_TRY(post_recv(&m->msgs, data, n, 1, root, tag));
    for (int i = 0; m->rank == root && i < m->world_size - 1; i++)
        DT_TRY(post_send(&m->msgs, data, n, 1, peer_to(m, i), tag));
    return wait_messages(c, &m->msgs, "the broadcast", n, number);
}

// Byte range [*from, *to) that `rank` gets from the root and passes on; the root has none.
static void broadcast_piece(const mpi_comm *m, int64_t n, int root, int rank, int64_t *from,
                            int64_t *to) {
    int64_t i = (rank - root - 1 + m->world_size) % m->world_size, pieces = m->world_size - 1;
    *from = n * i / pieces;
    *to = n * (i + 1) / pieces;
}

// The root sends a different byte range to each rank, and the ranks exchange them. So the root's link carries
// the data only once, whatever the world size.
static dt_status broadcast_pieces(dt_comm *c, char *data, int64_t n, int root, uint64_t number) {
    mpi_comm *m = c->self;
    int tag0 = next_tag(m, number, 0), tag1 = next_tag(m, number, 1);
    int64_t from, to;
    if (m->rank == root) {
        for (int i = 0; i < m->world_size - 1; i++) {
            broadcast_piece(m, n, root, peer_to(m, i), &from, &to);
            DT_TRY(post_send(&m->msgs, data + from, to - from, 1, peer_to(m, i), tag0));
        }
        return wait_messages(c, &m->msgs, "the broadcast", n, number);
    }
    broadcast_piece(m, n, root, m->rank, &from, &to);
    DT_TRY(post_recv(&m->msgs, data + from, to - from, 1, root, tag0));
    DT_TRY(wait_messages(c, &m->msgs, "the broadcast", n, number));
    for (int i = 0; i < m->world_size - 1; i++) {
        int64_t begin, end;
        if (peer_from(m, i) == root) continue;
        broadcast_piece(m, n, root, peer_from(m, i), &begin, &end);
        DT_TRY(post_recv(&m->msgs, data + begin, end - begin, 1, peer_from(m, i), tag1));
    }
    for (int i = 0; i < m->world_size - 1; i++)
        if (peer_to(m, i) != root)
            DT_TRY(post_send(&m->msgs, data + from, to - from, 1, peer_to(m, i), tag1));
    return wait_messages(c, &m->msgs, "the broadcast", n, number);
}

static dt_status mpi_broadcast_bytes(dt_comm *c, void *data, size_t n_bytes, int root) {
    const size_t most = (size_t)1 << 30; // a piece's length must fit an int
    mpi_comm *m = c->self;
    if (root < 0 || root >= m->world_size)
        return dt_fail(DT_E_INTERNAL, "broadcast from rank %d of %d", root, m->world_size);
    if (m->world_size == 1) return DT_OK;
    for (size_t at = 0; at < n_bytes; at += most) {
        int64_t n = (int64_t)(n_bytes - at < most ? n_bytes - at : most);
        uint64_t number = m->number++;
        char *p = (char *)data + at;
        DT_TRY(n <= FLAT_BROADCAST ? broadcast_flat(c, p, n, root, number)
                                   : broadcast_pieces(c, p, n, root, number));
    }
    return DT_OK;
}

static dt_status check_peer(const mpi_comm *m, int peer) {
    if (peer >= 0 && peer < m->world_size && peer != m->rank) return DT_OK;
    return dt_fail(DT_E_INTERNAL, "rank %d has no partner %d in a world of %d", m->rank, peer,
                   m->world_size);
}

static dt_status mpi_send_f32(dt_comm *c, const float *data, int64_t n, int to) {
    mpi_comm *m = c->self;
    DT_TRY(check_peer(m, to));
    DT_TRY(check_count(n));
    DT_TRY(post_send(&m->msgs, data, n, 4, to, TAG_POINT));
    return wait_messages(c, &m->msgs, "a send", n, m->number);
}

static dt_status mpi_recv_f32(dt_comm *c, float *data, int64_t n, int from) {
    mpi_comm *m = c->self;
    DT_TRY(check_peer(m, from));
    DT_TRY(check_count(n));
    DT_TRY(post_recv(&m->msgs, data, n, 4, from, TAG_POINT));
    return wait_messages(c, &m->msgs, "a receive", n, m->number);
}

// -- life ----------------------------------------------------------------------------------------

static void mpi_set_deadline(dt_comm *c, double seconds) {
    ((mpi_comm *)c->self)->deadline_s = seconds;
}

// A thread that does not give MPI back is what hangs: then the launcher ends the job because this rank has gone.
static void mpi_abort_ranks(void *ctx, int exit_code) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec++;
    if (pthread_mutex_timedlock(&mpi_lock, &until) == 0) MPI_Abort(MPI_COMM_WORLD, exit_code);
    _exit(exit_code);
}

static dt_status mpi_beat(void *ctx, uint64_t *ticks) {
    return mpi_beats_exchange(((mpi_comm *)((dt_comm *)ctx)->self)->beats, ticks);
}

static void mpi_abort(dt_comm *c, int exit_code) {
    mpi_abort_ranks(c, exit_code);
}

static dt_status mpi_finalize(dt_comm *c) {
    mpi_comm *m = c->self;
    DT_TRY(mpi_barrier(c));
    (void)dt_failpoint("finalize");
    dt_watch_begin(NULL, "MPI_Finalize");
    dt_watch_set_peers(NULL);
    mpi_beats_end(m->beats);
    int rc = MPI_Finalize();
    dt_watch_end();
    DT_TRY(mpi_check(rc, "MPI_Finalize"));
    for (int i = 0; i < m->n_reductions; i++) {
        free(m->reductions[i]->scratch);
        free_messages(&m->reductions[i]->msgs);
        free(m->reductions[i]);
    }
    free(m->reductions);
    free(m->blocking.scratch);
    free_messages(&m->blocking.msgs);
    free_messages(&m->msgs);
    free(m->hosts);
    return DT_OK;
}

static int env_or(const char *name, int otherwise) {
    const char *v = getenv(name);
    return v && *v ? atoi(v) : otherwise;
}

static dt_status find_local(dt_comm *c) {
    c->local_rank = env_or("OMPI_COMM_WORLD_LOCAL_RANK", -1);
    c->local_size = env_or("OMPI_COMM_WORLD_LOCAL_SIZE", -1);
    if (c->local_rank >= 0 && c->local_size > 0) return DT_OK;
    MPI_Comm local;
    DT_TRY(mpi_check(
        MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, c->rank, MPI_INFO_NULL, &local),
        "finding the ranks of this host"));
    MPI_Comm_rank(local, &c->local_rank);
    MPI_Comm_size(local, &c->local_size);
    MPI_Comm_free(&local);
    return DT_OK;
}

// An affinity mask of one core means that the launcher gave each rank its own core (mpirun does unless there
// are more ranks than cores). Otherwise the ranks of a host share the cores that this one may use.
static bool is_oversubscribed(const dt_comm *c) {
    int cores = dt_usable_cores();
    if (cores == 1) cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    return c->local_size > cores;
}

// Restricts Open MPI's TCP, the fallback of shared memory, to IPv4 if all ranks are on this host. Otherwise
// Open MPI 5 warns, for each pair of ranks, that IPv4 and IPv6 interfaces cannot reach each other. Of the
// parameters that prevent it, this one conflicts with no other in a user's settings.
static void keep_to_one_family(void) {
    int here = env_or("OMPI_COMM_WORLD_LOCAL_SIZE", -1);
    if (here < 2 || here != env_or("OMPI_COMM_WORLD_SIZE", -1)) return;
    setenv("OMPI_MCA_btl_tcp_disable_family", "6", 0); // keeps the user's choice
}

static dt_status start_mpi(void) {
    int provided = 0;
    keep_to_one_family();
    // serialized, not funneled: with comm.progress=thread another thread talks during a step
    DT_TRY(mpi_check(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided), "MPI_Init"));
    if (provided < MPI_THREAD_SERIALIZED)
        return dt_fail(DT_E_INTERNAL, "this MPI library was built without thread support; "
                                      "MPI_THREAD_SERIALIZED is needed");
    return mpi_check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN),
                     "setting the error handler");
}

dt_status dt_comm_module_create(dt_comm **out);

dt_status dt_comm_module_create(dt_comm **out) {
    DT_TRY(start_mpi());
    dt_comm *c = dt_xcalloc(1, sizeof *c);
    mpi_comm *m = dt_xcalloc(1, sizeof *m);
    *c = (dt_comm){.name = "mpi",
                   .self = m,
                   .barrier = mpi_barrier,
                   .broadcast_bytes = mpi_broadcast_bytes,
                   .all_gather_bytes = mpi_all_gather_bytes,
                   .all_reduce_f32 = mpi_all_reduce_f32,
                   .all_reduce_f64 = mpi_all_reduce_f64,
                   .all_reduce_max_i64 = mpi_all_reduce_max_i64,
                   .library_all_reduce_f32 = library_all_reduce_f32,
                   .all_reduce_start = mpi_all_reduce_start,
                   .all_reduce_bf16_start = mpi_all_reduce_bf16_start,
                   .progress = mpi_progress,
                   .wait = mpi_wait,
                   .send_f32 = mpi_send_f32,
                   .recv_f32 = mpi_recv_f32,
                   .set_deadline = mpi_set_deadline,
                   .abort = mpi_abort,
                   .finalize = mpi_finalize};
    MPI_Comm_rank(MPI_COMM_WORLD, &c->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &c->world_size);
    m->rank = c->rank;
    m->world_size = c->world_size;
    m->deadline_s = dt_watch_get_limits()->start_s;
    int *limit = NULL, found = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &limit, &found);
    m->tag_limit = found ? *limit : 32767;
    create_messages(&m->msgs, m->world_size);
    m->hosts = dt_xcalloc((size_t)m->world_size, sizeof *m->hosts);
    dt_status st = find_local(c);
    if (st != DT_OK) return st;
    m->oversubscribed = is_oversubscribed(c);
    char host[MPI_HOST_BYTES] = "";
    gethostname(host, sizeof host - 1);
    DT_TRY(mpi_all_gather_bytes(c, host, sizeof host, m->hosts));
    DT_TRY(mpi_beats_begin(&m->beats, c, m->hosts));
    dt_watch_set_peers(&(dt_watch_peers){mpi_beat, mpi_abort_ranks, c});
    *out = c;
    return DT_OK;
}
