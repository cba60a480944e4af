// comm_mpi.c: the comm over MPI, built as a module for each ABI; only comm_mpi*.c use MPI.
//
// Collectives are built from Isend, Irecv and Testsome. MPI's own choose an order of additions by size,
// algorithm and world size, cannot be left when a peer hangs, and cannot be polled in a predictable way.
//
// comm_mpi_reduce.c: the all-reduce; comm_mpi_reduce.c: memory of a host's ranks; comm_mpi_sum.c: additions;
// comm_mpi_heartbeat.c: heartbeats.
//
// A broadcast of much data crosses the boundary of each host once: parts of it go from the root to one rank of each
// host, which exchange them, and then in the same way to the ranks of a host.
//
// Waits poll Testsome: a few hundred CPU pauses, then sched_yield (loader and writer threads want the core
// too), and from 2 ms on short sleeps if there are more ranks than cores or OMP_WAIT_POLICY is passive. The deadline
// ends a wait with DT_E_PEER, unless other ranks make progress (watch.h). Only one thread at a time may call in
// here; the watch, which sends heartbeats, and that thread take turns at MPI with a lock (MPI_THREAD_SERIALIZED).
#include "base/core.h"
#include "base/failpoint.h"
#include "base/hash.h"
#include "base/os.h"
#include "base/rank_report.h"
#include "base/thread.h"
#include "base/watch.h"
#include "comm/comm_mpi_internal.h"

#include <assert.h>
#include <limits.h>
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum {
    TAG_POINT = MPI_TAG_HEARTBEAT + 1, // point to point: MPI keeps the order between two ranks
    TAG_FIRST = 16,                    // collectives count up from here
    SHORT_BROADCAST = 32 * 1024        // up to this, whole messages go down a tree
};

pthread_mutex_t mpi_lock = PTHREAD_MUTEX_INITIALIZER;
#define LOCKED(call) (pthread_mutex_lock(&mpi_lock), unlock_mpi(call))
static int unlock_mpi(int rc) {
    pthread_mutex_unlock(&mpi_lock);
    return rc;
}

// -- messages ------------------------------------------------------------------------------------

dt_status dt_mpi_check(int rc, const char *what) {
    if (rc == MPI_SUCCESS) return DT_OK;
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0; // stays 0 if MPI has no text
    MPI_Error_string(rc, text, &n);
    return dt_fail(DT_E_PEER, "MPI failed in %s: %s; a peer or a link may be gone, run again", what, text);
}

static void comm_mpi_make_room(dt_mpi_messages *m) {
    if (m->n < m->n_cap) return;             // one of each array per message
    m->n_cap = m->n_cap ? 2 * m->n_cap : 64; // doubles: after a few steps nothing allocates any more
    const size_t n = (size_t)m->n_cap;
    m->requests = dt_xrealloc(m->requests, n * sizeof *m->requests);
    m->statuses = dt_xrealloc(m->statuses, n * sizeof *m->statuses);
    m->peers = dt_xrealloc(m->peers, n * sizeof *m->peers);
    m->done = dt_xrealloc(m->done, n * sizeof *m->done);
}

void dt_mpi_messages_free(dt_mpi_messages *m) {
    free(m->requests);
    free(m->statuses);
    free(m->peers);
    free(m->done);
}

static MPI_Datatype comm_mpi_type_of(size_t element_bytes) {
    return element_bytes == 1   ? MPI_BYTE
           : element_bytes == 2 ? MPI_UINT16_T
           : element_bytes == 4 ? MPI_FLOAT    // bf16 bits; MPI has no type for them, and none is added by MPI
                                : MPI_INT64_T; // only moved here, so f64 travels as MPI_INT64_T too
}

dt_status dt_mpi_post_recv(dt_mpi_messages *m, void *to, int64_t n, size_t element_bytes, int peer, int tag) {
    assert(m->n == m->n_recv); // dt_mpi_find_late distinguishes receives from sends by the index
    comm_mpi_make_room(m);
    m->peers[m->n] = peer;
    DT_TRY(dt_mpi_check(
        // n fits an int: callers check or cut
        LOCKED(MPI_Irecv(to, (int)n, comm_mpi_type_of(element_bytes), peer, tag, MPI_COMM_WORLD, &m->requests[m->n])),
        "a receive"));
    m->n_recv = ++m->n;
    m->n_open++; // n_open: messages not yet complete
    return DT_OK;
}

dt_status dt_mpi_post_send(dt_mpi_messages *m, const void *from, int64_t n, size_t element_bytes, int peer, int tag) {
    comm_mpi_make_room(m);
    m->peers[m->n] = peer;
    DT_TRY(dt_mpi_check(
        LOCKED(MPI_Isend(from, (int)n, comm_mpi_type_of(element_bytes), peer, tag, MPI_COMM_WORLD, &m->requests[m->n])),
        "a send"));
    m->n++;
    m->n_open++;
    return DT_OK;
}

static dt_status fail_test(const dt_mpi_comm *m, const dt_mpi_messages *msgs, int n, int rc) {
    for (int i = 0; rc == MPI_ERR_IN_STATUS && i < n; i++) { // otherwise statuses are undefined
        const int error = msgs->statuses[i].MPI_ERROR, at = msgs->done[i], peer = msgs->peers[at];
        if (error == MPI_SUCCESS || error == MPI_ERR_PENDING) continue; // complete, or not yet known
        return dt_fail_context(dt_mpi_check(error, at < msgs->n_recv ? "a receive" : "a send"), "rank %d on %s", peer,
                               m->hosts[peer]);
    }
    return dt_mpi_check(rc, "a test");
}

// What arrives shows that its sender lives and makes progress, also where heartbeats wait behind it.
static void note_arrivals(const dt_mpi_comm *m, const dt_mpi_messages *msgs, int n) {
    bool any = false;
    for (int i = 0; i < n; i++) {
        if (msgs->done[i] >= msgs->n_recv) continue;
        // relaxed: a counter for the watch thread, no data behind
        atomic_fetch_add_explicit(&m->n_received[msgs->peers[msgs->done[i]]], 1, memory_order_relaxed);
        any = true;
    }
    if (any) dt_watch_tick(); // one tick per test: the watch measures progress, not bytes
}

dt_status dt_mpi_test_messages(const dt_mpi_comm *m, dt_mpi_messages *msgs, bool *done) {
    int n = 1;
    while (msgs->n_open > 0 && n > 0) { // one test reads one part of a message of each peer
        const int rc = LOCKED(MPI_Testsome(msgs->n, msgs->requests, &n, msgs->done, msgs->statuses));
        if (rc != MPI_SUCCESS) return fail_test(m, msgs, n, rc);
        msgs->n_open -= n; // n messages completed in this test
        note_arrivals(m, msgs, n);
    }
    *done = msgs->n_open == 0;
    if (*done) msgs->n = msgs->n_recv = 0; // arrays are reused by the next turn
    return DT_OK;
}

int dt_mpi_peer_to(const dt_mpi_group *g, int i) {
    return (g->self + 1 + i) % g->n;
}
int dt_mpi_peer_from(const dt_mpi_group *g, int i) {
    return (g->self - 1 - i + g->n) % g->n; // + n: C's remainder of a negative number is negative
}

int dt_mpi_next_tag(const dt_mpi_comm *m, uint64_t number, int phase) {
    // 4 phases per number; wraps at MPI_TAG_UB, when messages of the old number are long gone
    return TAG_FIRST + (int)((4 * number + (uint64_t)phase) % (uint64_t)(m->tag_limit - TAG_FIRST));
}

static dt_status check_count(int64_t n) {
    if (n >= 0 && n <= INT_MAX) return DT_OK;
    // MPI counts are int
    return dt_fail(DT_E_INTERNAL, "a message of %lld elements: MPI's limit is %d; use smaller ones", (long long)n,
                   INT_MAX);
}

// -- waiting -------------------------------------------------------------------------------------

int dt_mpi_find_late(const dt_mpi_messages *msgs, int late[MPI_MAX_NAMED]) {
    int n = 0; // a message lists a few ranks, not a thousand
    for (int i = 0; i < msgs->n && n < MPI_MAX_NAMED; i++) {
        int done = 0, peer = msgs->peers[i];
        if (i == msgs->n_recv && n > 0) break; // who sent nothing is to blame, not who takes nothing
        // does not free the request, unlike MPI_Test
        LOCKED(MPI_Request_get_status(msgs->requests[i], &done, MPI_STATUS_IGNORE));
        for (int k = 0; k < n; k++) done |= late[k] == peer; // several messages of one peer: named once
        if (!done) late[n++] = peer;
    }
    return n;
}

dt_status dt_mpi_fail_deadline(dt_mpi_comm *m, const int *late, int n_late, const char *what, int64_t n,
                               uint64_t number, double waited_s) {
    char names[MPI_MAX_NAMED * (MPI_HOST_BYTES + 32)] = ""; // "rank N on HOST, " each
    size_t used = 0;
    for (int i = 0; i < n_late; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%srank %d on %s", used ? ", " : "", late[i],
                                 m->hosts[late[i]]);
    // the culprit may be a rank that nobody here waits for directly
    const int behind = m->heartbeat ? dt_mpi_heartbeat_behind(m->heartbeat, number) : -1;
    bool is_named = behind < 0 || behind == m->rank;
    for (int i = 0; i < n_late; i++) is_named |= late[i] == behind;
    if (!is_named) { // those that are waited for wait themselves
        snprintf(names, sizeof names, "rank %d on %s", behind, m->hosts[behind]);
        n_late = 1;
    }
    if (!*names) snprintf(names, sizeof names, "another rank");
    return dt_fail(DT_E_PEER,
                   "%s%s did not take part in %s (%lld elements, collective %llu) for %.0f s: hung, "
                   "stopped or lost; look at its last lines and its host, then run again (comm.timeout: wait "
                   "longer)",
                   // "perhaps": the list is cut at MPI_MAX_NAMED
                   names, n_late == MPI_MAX_NAMED ? " (and perhaps others)" : "", what, (long long)n,
                   (unsigned long long)number, waited_s);
}

bool dt_mpi_pause(const dt_mpi_comm *m, dt_mpi_waiting *w) {
    if (++w->spins < 256) { // some microseconds: a message between cores takes less
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#endif
        return true;
    }
    // 2 ms without a message: a peer computes, its core is better used elsewhere
    const bool naps = m->oversubscribed && w->waited.sum_s > 2e-3;
    if (!naps) sched_yield();
    if (!naps && w->spins % 16 != 0) return true; // reading the clock costs more than a yield
    double waited_s = dt_clock_waited_s(&w->waited, dt_clock_s());
    if (naps) { // a twentieth of the wait: the cores belong to ranks that compute
        const double nap_s = waited_s / 20 < 2e-3 ? waited_s / 20 : 2e-3;
        nanosleep(&(struct timespec){.tv_nsec = (long)(nap_s * 1e9)}, NULL);
    }
    // progress anywhere, seen by heartbeats, prolongs the wait
    return waited_s < m->deadline_s || dt_watch_quiet_s() < m->deadline_s;
}

static dt_status wait_messages(dt_comm *c, dt_mpi_messages *msgs, const char *what, int64_t n, uint64_t number) {
    dt_mpi_comm *m = c->self;
    dt_mpi_waiting w = {0};
    for (;;) {
        bool done = false;
        DT_TRY(dt_mpi_test_messages(m, msgs, &done));
        if (done) return DT_OK;
        if (w.spins == 0) dt_rank_at("waiting in", what); // once, at the start of the wait: the position for heartbeats
        // a peer may need the next phase of a reduction in flight before it gets here
        DT_TRY(dt_mpi_progress(c));
        if (dt_mpi_pause(m, &w)) continue;
        int late[MPI_MAX_NAMED];
        const int n_late = dt_mpi_find_late(msgs, late);
        return dt_mpi_fail_deadline(m, late, n_late, what, n, number, w.waited.sum_s);
    }
}

// -- other collectives ---------------------------------------------------------------------------

// Bruck's all-gather: in each round a rank passes on what it has gathered, so that it sends log2 W messages. A rank that
// hangs is named by the heartbeats: its neighbours wait for it, and others for them.
static dt_status gather_all(dt_comm *c, char *have, size_t n_bytes, const char *what) {
    dt_mpi_comm *m = c->self; // all ranks call collectives in the same order, so the number is theirs too
    const uint64_t number = m->number++;
    const int W = m->world_size, tag = dt_mpi_next_tag(m, number, 0);
    DT_TRY(check_count((int64_t)n_bytes * ((W + 1) / 2))); // the largest message is half of all blocks
    for (int k = 1; k < W; k *= 2) {                       // doubling distance: after round k a rank has 2k blocks
        const int64_t n = (int64_t)n_bytes * (k < W - k ? k : W - k); // the last round fetches the rest only
        char *to = have ? have + (size_t)k * n_bytes : NULL;          // NULL: a barrier sends nothing
        DT_TRY(dt_mpi_post_recv(&m->msgs, to, n, 1, (m->rank + k) % W, tag));
        DT_TRY(dt_mpi_post_send(&m->msgs, have, n, 1, (m->rank - k + W) % W, tag));
        DT_TRY(wait_messages(c, &m->msgs, what, (int64_t)n_bytes, number)); // a round needs what the one before fetched
    }
    return DT_OK;
}

static dt_status mpi_all_gather_bytes(dt_comm *c, const void *data, size_t n_bytes, void *all) {
    dt_mpi_comm *m = c->self;
    const size_t W = (size_t)m->world_size,
                 first = (size_t)m->rank;  // `gathered` begins with this rank's block
    if (W * n_bytes > m->gathered_bytes) { // grows to the largest block once
        m->gathered_bytes = W * n_bytes;
        m->gathered = dt_xrealloc(m->gathered, m->gathered_bytes);
    }
    if (n_bytes > 0) memcpy(m->gathered, data, n_bytes);
    DT_TRY(gather_all(c, m->gathered, n_bytes, "the all-gather"));
    if (n_bytes == 0) return DT_OK;
    // `gathered` is rotated by the rank: own block first
    memcpy((char *)all + first * n_bytes, m->gathered, (W - first) * n_bytes);
    memcpy(all, m->gathered + (W - first) * n_bytes, first * n_bytes);
    return DT_OK;
}

// Where MPI_Abort or the thread that holds MPI's lock hangs, the launcher ends the job when this rank exits.
static void mpi_abort_ranks(void *ctx, int exit_code) {
    dt_watch_leave(exit_code, DT_WATCH_LEAVE_S); // a second thread ends the process if MPI_Abort hangs
    pthread_mutex_lock(&mpi_lock);
    MPI_Abort(MPI_COMM_WORLD, exit_code);
    _exit(exit_code);
}

static dt_status mpi_heartbeat(void *ctx, uint64_t *ticks) {
    dt_mpi_comm *m = ((dt_comm *)ctx)->self;
    return dt_mpi_heartbeat_exchange(m->heartbeat, ticks, atomic_load(&m->number));
}

static void set_peers(dt_comm *c) {
    // the caller's thread may wait in a collective: heartbeats run in the watch thread
    dt_watch_set_peers(&(dt_watch_peers){mpi_heartbeat, mpi_abort_ranks, c});
}

// It returns when it is done, however slow links are: no heartbeats meanwhile.
static dt_status library_all_reduce_f32(dt_comm *c, float *data, int64_t n) {
    DT_TRY(check_count(n));
    dt_watch_set_peers(NULL); // one thread at a time in MPI, and this call keeps it for its whole length
    const int rc = MPI_Allreduce(MPI_IN_PLACE, data, (int)n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    set_peers(c);
    return dt_mpi_check(rc, "MPI_Allreduce");
}

static dt_status mpi_barrier(dt_comm *c) {
    return gather_all(c, NULL, 0, "the barrier"); // an all-gather of nothing: no rank leaves before all have come
}

// A binomial tree, in which ranks count from the root.
static dt_status broadcast_short(dt_comm *c, char *data, int64_t n, int root, uint64_t number) {
    dt_mpi_comm *m = c->self;
    const int W = m->world_size, tag = dt_mpi_next_tag(m, number, 0), self = (m->rank - root + W) % W;
    int below = 1; // those that hear from this rank are self + below / 2, self + below / 4, …
    while (below < W && !(self & below)) below *= 2; // lowest set bit of the place: the subtree below this rank
    if (self > 0) {
        DT_TRY(dt_mpi_post_recv(&m->msgs, data, n, 1, (m->rank - below + W) % W, tag));
        DT_TRY(wait_messages(c, &m->msgs, "the broadcast", n, number)); // data must be here before they are passed on
    }
    for (int k = below / 2; k > 0; k /= 2) // the largest subtree first: its path is the longest
        if (self + k < W) DT_TRY(dt_mpi_post_send(&m->msgs, data, n, 1, (m->rank + k) % W, tag));
    return wait_messages(c, &m->msgs, "the broadcast", n, number);
}

// Byte range [*from, *to) that the i-th rank of a group gets from the root and passes on; the root has no range.
static void broadcast_part(const dt_mpi_group *g, int64_t n, int root, int i, int64_t *from, int64_t *to) {
    // k counts from the rank behind the root, which has no range itself
    const int64_t k = (i - root - 1 + g->n) % g->n, parts = g->n - 1;
    *from = n * k / parts;
    *to = n * (k + 1) / parts; // products in int64: n is at most 1 GiB, parts an int
}

// The root, a place in the group, sends a different byte range to each rank, and the ranks exchange them. So the
// root's link carries the data only once, however many there are.
static dt_status broadcast_parts(dt_comm *c, const dt_mpi_group *g, char *data, int64_t n, int root, int tag) {
    dt_mpi_comm *m = c->self;
    int64_t from, to;
    if (g->self < 0 || g->n == 1) return DT_OK; // not a member, or nobody to send to
    if (g->self == root) {
        for (int k = 0; k < g->n - 1; k++) {
            const int i = dt_mpi_peer_to(g, k);
            broadcast_part(g, n, root, i, &from, &to);
            DT_TRY(dt_mpi_post_send(&m->msgs, data + from, to - from, 1, g->ranks[i], tag));
        }
        return wait_messages(c, &m->msgs, "the broadcast", n, m->number - 1);
    }
    broadcast_part(g, n, root, g->self, &from, &to); // this rank's own range comes from the root
    DT_TRY(dt_mpi_post_recv(&m->msgs, data + from, to - from, 1, g->ranks[root], tag));
    DT_TRY(wait_messages(c, &m->msgs, "the broadcast", n, m->number - 1));
    for (int k = 0; k < g->n - 1; k++) {
        int64_t begin, end;
        const int i = dt_mpi_peer_from(g, k);
        if (i == root) continue;
        broadcast_part(g, n, root, i, &begin, &end);
        DT_TRY(dt_mpi_post_recv(&m->msgs, data + begin, end - begin, 1, g->ranks[i], tag));
    }
    for (int k = 0; k < g->n - 1; k++) {
        const int i = dt_mpi_peer_to(g, k);
        // the root has everything
        if (i != root) DT_TRY(dt_mpi_post_send(&m->msgs, data + from, to - from, 1, g->ranks[i], tag));
    }
    return wait_messages(c, &m->msgs, "the broadcast", n, m->number - 1);
}

// From the root to one rank of each host, then on each host.
static dt_status broadcast_by_host(dt_comm *c, char *data, int64_t n, int root, uint64_t number) {
    dt_mpi_comm *m = c->self;
    const int root_host = m->host_of[root], host = m->host_of[m->rank];
    int inner_root = 0;
    m->leaders.self = -1; // unless this rank leads its host
    // downwards: the lowest rank of each host stays; on the root's host the root itself
    for (int r = m->world_size - 1; r >= 0; r--)
        if (m->host_of[r] != root_host || r == root) m->leaders.ranks[m->host_of[r]] = r;
    if (m->leaders.ranks[host] == m->rank) m->leaders.self = host;
    // a leader's place among its host's ranks
    while (m->inner.ranks[inner_root] != m->leaders.ranks[host]) inner_root++;
    DT_TRY(broadcast_parts(c, &m->leaders, data, n, root_host, dt_mpi_next_tag(m, number, 0)));
    return broadcast_parts(c, &m->inner, data, n, inner_root, dt_mpi_next_tag(m, number, 1));
}

static dt_status mpi_broadcast_bytes(dt_comm *c, void *data, size_t n_bytes, int root) {
    const size_t most = (size_t)1 << 30; // a part's length must fit an int
    dt_mpi_comm *m = c->self;
    if (root < 0 || root >= m->world_size)
        return dt_fail(DT_E_INTERNAL, "broadcast from rank %d of %d", root, m->world_size);
    if (m->world_size == 1) return DT_OK;
    for (size_t at = 0; at < n_bytes; at += most) {
        int64_t n = (int64_t)(n_bytes - at < most ? n_bytes - at : most);
        uint64_t number = m->number++;
        char *p = (char *)data + at;
        // short: latency counts; long: each host's link carries the data once
        DT_TRY(n <= SHORT_BROADCAST ? broadcast_short(c, p, n, root, number)
                                    : broadcast_by_host(c, p, n, root, number));
    }
    return DT_OK;
}

static dt_status check_peer(const dt_mpi_comm *m, int peer) {
    // a wrong peer would wait until the deadline
    if (peer >= 0 && peer < m->world_size && peer != m->rank) return DT_OK;
    return dt_fail(DT_E_INTERNAL, "rank %d has no partner %d in a world of %d", m->rank, peer, m->world_size);
}

static dt_status mpi_send_f32(dt_comm *c, const float *data, int64_t n, int to) {
    dt_mpi_comm *m = c->self;
    DT_TRY(check_peer(m, to));
    DT_TRY(check_count(n));
    DT_TRY(dt_mpi_post_send(&m->msgs, data, n, 4, to, TAG_POINT));
    return wait_messages(c, &m->msgs, "a send", n, m->number - 1); // number - 1: the last collective, for the message
}

static dt_status mpi_recv_f32(dt_comm *c, float *data, int64_t n, int from) {
    dt_mpi_comm *m = c->self;
    DT_TRY(check_peer(m, from));
    DT_TRY(check_count(n));
    DT_TRY(dt_mpi_post_recv(&m->msgs, data, n, 4, from, TAG_POINT));
    return wait_messages(c, &m->msgs, "a receive", n, m->number - 1);
}

// -- life ----------------------------------------------------------------------------------------

static void mpi_set_deadline(dt_comm *c, double seconds) {
    ((dt_mpi_comm *)c->self)->deadline_s = seconds;
    dt_rank_set_deadline(seconds);
}

static void mpi_abort(dt_comm *c, int exit_code) {
    mpi_abort_ranks(c, exit_code);
}

static dt_status mpi_finalize(dt_comm *c) {
    dt_mpi_comm *m = c->self;
    DT_TRY(mpi_barrier(c));         // no rank may end while a peer still needs it
    (void)dt_failpoint("finalize"); // tests stop here
    dt_watch_begin(NULL, "MPI_Finalize");
    dt_watch_set_peers(NULL); // heartbeats have their own end
    const dt_status st = dt_mpi_heartbeat_end(m->heartbeat);
    const int rc = st == DT_OK ? MPI_Finalize() : MPI_SUCCESS; // a peer that is lost would hang MPI_Finalize
    dt_watch_end();
    DT_TRY(st);
    DT_TRY(dt_mpi_check(rc, "MPI_Finalize"));
    dt_mpi_reductions_free(m);
    dt_mpi_messages_free(&m->msgs);
    free(m->host_of);
    free(m->all.ranks);
    free(m->inner.ranks);
    free(m->across.ranks);
    free(m->leaders.ranks);
    free(m->sources);
    free(m->gathered);
    free(m->n_received);
    free(m->hosts);
    return DT_OK;
}

static int env_or(const char *name, int otherwise) {
    const char *v = getenv(name);
    return v && *v ? atoi(v) : otherwise; // an empty variable counts as unset
}

static dt_status find_local(dt_comm *c) {
    // Open MPI's variables spare a collective; other MPIs split the communicator
    c->local_rank = env_or("OMPI_COMM_WORLD_LOCAL_RANK", -1);
    c->local_size = env_or("OMPI_COMM_WORLD_LOCAL_SIZE", -1);
    if (c->local_rank >= 0 && c->local_size > 0) return DT_OK;
    MPI_Comm local;
    DT_TRY(dt_mpi_check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, c->rank, MPI_INFO_NULL, &local),
                        "finding the ranks of this host"));
    MPI_Comm_rank(local, &c->local_rank);
    MPI_Comm_size(local, &c->local_size);
    MPI_Comm_free(&local);
    return DT_OK;
}

static void comm_mpi_join(dt_mpi_group *g, const dt_mpi_comm *m, int rank) {
    if (rank == m->rank) g->self = g->n; // before n grows: the place that this rank takes
    g->ranks[g->n++] = rank;
}

static void create_groups(dt_mpi_comm *m) {
    const size_t n = (size_t)m->world_size;
    dt_mpi_group *groups[] = {&m->all, &m->inner, &m->across, &m->leaders};
    for (int i = 0; i < 4; i++) *groups[i] = (dt_mpi_group){.self = -1, .ranks = dt_xcalloc(n, sizeof(int))};
    m->host_of = dt_xcalloc(n, sizeof *m->host_of);
    m->sources =
        dt_xcalloc(2 * n, sizeof *m->sources); // two lists: the hosts' sums, then one host's contributions (add_small)
    for (int r = 0; r < m->world_size; r++) comm_mpi_join(&m->all, m, r);
}

// Ranks whose hosts have the same name count as ranks of one host. Where two hosts share a name the sums are still
// right, and the link between them carries more.
static void find_hosts(dt_mpi_comm *m) {
    int *size = dt_xcalloc((size_t)m->world_size, sizeof *size); // by host
    int column = 0;
    for (int r = 0; r < m->world_size; r++) {
        int first = 0;
        while (strcmp(m->hosts[first], m->hosts[r]) != 0) first++;     // W^2 at worst, once, on names of 64 bytes
        m->host_of[r] = first == r ? m->n_hosts++ : m->host_of[first]; // hosts are numbered by their first rank
        if (r == m->rank) column = size[m->host_of[r]];                // this rank's place on its host
        size[m->host_of[r]]++;
    }
    m->n_columns = m->world_size; // minimum over hosts: every column has a rank on each
    for (int h = 0; h < m->n_hosts; h++) {
        if (size[h] < m->n_columns) m->n_columns = size[h];
        if (size[h] > m->most_ranks) m->most_ranks = size[h];
    }
    m->leaders.n = m->across.n = m->n_hosts;
    // surplus ranks of larger hosts belong to no column
    if (column < m->n_columns) m->across.self = m->host_of[m->rank];
    memset(size, 0, (size_t)m->n_hosts * sizeof *size); // counts again: a rank's column is its place on its host
    for (int r = 0; r < m->world_size; r++) {
        const int h = m->host_of[r];
        if (size[h]++ == column) m->across.ranks[h] = r;
        if (h == m->host_of[m->rank]) comm_mpi_join(&m->inner, m, r);
    }
    free(size);
}

// An affinity mask of one core means that the launcher gave each rank its own core (mpirun does unless there
// are more ranks than cores). Otherwise the ranks of a host share the cores that this one may use. OMP_WAIT_POLICY=passive
// means that others need the cores, as in OpenMP.
static bool is_oversubscribed(const dt_comm *c) {
    const char *policy = getenv("OMP_WAIT_POLICY");
    if (policy && strcasecmp(policy, "passive") == 0) return true;
    // mpirun --bind-to core: one core each
    int cores = dt_usable_cores();
    if (cores == 1) cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    return c->local_size > cores;
}

// Whether a host's ranks are a node of the tree over all ranks.
static bool hosts_are_nodes(const dt_mpi_comm *m) {
    const int n = m->n_columns;
    // a power of two: a block of that many leaves is one node
    bool yes = m->world_size == n * m->n_hosts && (n & (n - 1)) == 0;
    // blocks of consecutive ranks: block placement, not round-robin
    for (int r = 0; r < m->world_size; r++) yes &= m->host_of[r] == r / n;
    return yes || m->n_hosts == 1;
}

static rlim_t raise_descriptor_limit(void) {
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) != 0) return RLIM_INFINITY;
    l.rlim_cur = l.rlim_max; // the hard limit needs no privilege
    (void)setrlimit(RLIMIT_NOFILE, &l);
    return l.rlim_max;
}

// Over TCP a peer on another host takes a descriptor; rank 0, to which all send scores and what train.shard divides, has
// the most. Files, libraries and what a launcher hands down took about 20.
static dt_status check_descriptors(const dt_mpi_comm *m) {
    const int needed = m->world_size - m->inner.n + 64; // peers on other hosts, and 64 for files and libraries
    const rlim_t limit = raise_descriptor_limit();
    if (m->n_hosts == 1 || limit >= (rlim_t)needed) return DT_OK; // shared memory takes no descriptor per peer
    return dt_fail(DT_E_USAGE,
                   "%d ranks on %d hosts need up to %d file descriptors each, and the hard limit here is "
                   "%llu; raise it on every host (ulimit -Hn, LimitNOFILE)",
                   m->world_size, m->n_hosts, needed, (unsigned long long)limit);
}

static dt_status start_mpi(void) {
    int provided = 0, here = env_or("OMPI_COMM_WORLD_LOCAL_SIZE", -1);
    // all ranks on this host: Open MPI's TCP, the fallback of shared memory, is restricted to IPv4, as Open MPI 5 warns
    // for each pair of ranks that IPv4 and IPv6 interfaces cannot reach each other. 0: keeps the user's choice
    if (here >= 2 && here == env_or("OMPI_COMM_WORLD_SIZE", -1)) setenv("OMPI_MCA_btl_tcp_disable_family", "6", 0);
    (void)raise_descriptor_limit();
    // serialized, not funneled: while a node takes long, the progress thread of bucket.c calls MPI
    DT_TRY(dt_mpi_check(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided), "MPI_Init"));
    if (provided < MPI_THREAD_SERIALIZED) // MPI may return less than requested
        return dt_fail(DT_E_INTERNAL, "this MPI library was built without thread support; "
                                      "MPI_THREAD_SERIALIZED is needed");
    // the default handler aborts without a line of ours
    return dt_mpi_check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "setting the error handler");
}

dt_status dt_comm_module_create(dt_comm **out);

dt_status dt_comm_module_create(dt_comm **out) {
    DT_TRY(start_mpi());
    dt_comm *c = dt_xcalloc(1, sizeof *c);
    dt_mpi_comm *m = dt_xcalloc(1, sizeof *m); // not freed where the start fails: the process ends
    *c = (dt_comm){.name = "mpi",
                   .self = m,
                   .barrier = mpi_barrier,
                   .broadcast_bytes = mpi_broadcast_bytes,
                   .all_gather_bytes = mpi_all_gather_bytes,
                   .all_reduce_f32 = dt_mpi_all_reduce_f32,
                   .all_reduce_f64 = dt_mpi_all_reduce_f64,
                   .all_reduce_max_i64 = dt_mpi_all_reduce_max_i64,
                   .library_all_reduce_f32 = library_all_reduce_f32,
                   .reduce_start = dt_mpi_reduce_start,
                   .own_part = dt_mpi_own_part,
                   .progress = dt_mpi_progress,
                   .wait = dt_mpi_wait,
                   .send_f32 = mpi_send_f32,
                   .recv_f32 = mpi_recv_f32,
                   .set_deadline = mpi_set_deadline,
                   .abort = mpi_abort,
                   .finalize = mpi_finalize};
    MPI_Comm_rank(MPI_COMM_WORLD, &c->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &c->world_size);
    m->rank = c->rank;
    m->world_size = c->world_size;
    mpi_set_deadline(c, dt_watch_get_limits()->start_s); // until the run sets comm.timeout
    int *limit = NULL, found = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &limit, &found);
    m->tag_limit = found ? *limit : 32767; // MPI's guaranteed minimum
    m->n_received = dt_xcalloc((size_t)m->world_size, sizeof *m->n_received);
    create_groups(m);
    dt_mpi_reductions_create(m);
    m->hosts = dt_xcalloc((size_t)m->world_size, sizeof *m->hosts);
    dt_status st = find_local(c);
    if (st != DT_OK) return st;
    m->oversubscribed = is_oversubscribed(c);
    char host[MPI_HOST_BYTES] = "";
    gethostname(host, sizeof host - 1);
    DT_TRY(mpi_all_gather_bytes(c, host, sizeof host, m->hosts)); // needs no groups: all ranks exchange directly
    find_hosts(m);
    c->sums_by_tree = hosts_are_nodes(m);
    DT_TRY(check_descriptors(m));
    // reductions add by host: a resume on another layout changes bits
    if (m->n_hosts > 1) c->host_layout_hash = dt_hash64(m->host_of, (size_t)m->world_size * sizeof *m->host_of);
    DT_TRY(dt_mpi_heartbeat_begin(&m->heartbeat, c));
    set_peers(c); // after find_hosts: messages print host names
    DT_TRY(dt_mpi_reductions_fit(c));
    *out = c;
    return DT_OK;
}
