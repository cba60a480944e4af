// sim_net.c: a comm between threads, over a network with delays and partitions; signals. See sim.h.
//
// The n-th collective of every rank is one meeting: each leaves its data there with a time from which the others see
// them, and computes the result from all, in rank order, when it sees all. Like MPI's, a wait ends with the comm's
// deadline and names who is missing.
#include "sim.h"

#include "base/core.h"
#include "base/os.h"
#include "base/watch.h"
#include "comm/comm.h"
#include "run/signals.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MEETINGS = 256 };

typedef struct meeting {
    uint64_t number;
    char *data[SIM_RANKS]; // NULL: not here yet
    double seen_s[SIM_RANKS][SIM_RANKS];
    int n_left;
} meeting;

typedef struct rank_comm {
    uint64_t n_meetings, n_sent[SIM_RANKS], n_received[SIM_RANKS];
    double deadline_s;
    dt_waited silent[SIM_RANKS];
} rank_comm;

typedef struct beat { // from one rank's watch to another's
    bool on_way;
    uint64_t sent, sum; // sum: what has arrived
    double seen_s;
} beat;

static meeting meetings[MEETINGS], mail[SIM_RANKS][SIM_RANKS][MEETINGS];
static beat beats[SIM_RANKS][SIM_RANKS];
static double part_until;
static int part_rank;

void sim_net_part(int rank, double until_s) {
    part_rank = rank;
    part_until = until_s;
}

// When what `from` sends now reaches `to`.
static double arrival(int from, int to) {
    double at = sim_now() + (from == to ? 0 : sim_uniform(2e-5, 1e-3));
    if (sim_random() % 200 == 0) at += sim_uniform(0.2, 1.0); // lost, and sent again
    bool parted = sim_now() < part_until && (from == part_rank) != (to == part_rank);
    return parted ? part_until + at - sim_now() : at;
}

static meeting *meet(meeting *slots, uint64_t number) {
    meeting *m = &slots[number % MEETINGS];
    if (m->number == number + 1) return m;
    for (int r = 0; r < SIM_RANKS; r++) free(m->data[r]);
    *m = (meeting){.number = number + 1};
    return m;
}

static void leave_data(meeting *m, dt_comm *c, const void *data, size_t n) {
    sim_event(false, "a collective");
    m->data[c->rank] = dt_xcalloc(1, n + 1);
    if (n) memcpy(m->data[c->rank], data, n);
    for (int to = 0; to < c->world_size; to++) m->seen_s[c->rank][to] = arrival(c->rank, to);
    sim_wake(m);
}

// Until the data of [first, end) are seen here.
static dt_status await(meeting *m, dt_comm *c, int first, int end, const char *what) {
    const double deadline_s = ((rank_comm *)c->self)->deadline_s, until = sim_now() + deadline_s;
    for (;;) {
        double all = 0;
        int missing = -1;
        for (int r = first; r < end; r++) {
            double at = m->data[r] ? m->seen_s[r][c->rank] : INFINITY;
            if (at > all) all = at, missing = r;
        }
        if (all <= sim_now()) return DT_OK;
        if (sim_now() >= until && dt_watch_quiet_s() >= deadline_s)
            return dt_fail(DT_E_PEER, "rank %d on sim did not take part in %s for %g s: hung, stopped or lost", missing,
                           what, deadline_s);
        double look = sim_now() < until ? until : sim_now() + 1;
        sim_wait(m, all < look ? all : look, what);
    }
}

static dt_status exchange(dt_comm *c, const void *data, size_t n, meeting **out, const char *what) {
    rank_comm *m = c->self;
    *out = meet(meetings, m->n_meetings++);
    leave_data(*out, c, data, n);
    return await(*out, c, 0, c->world_size, what);
}

static dt_status barrier(dt_comm *c) {
    meeting *m;
    return exchange(c, NULL, 0, &m, "the barrier");
}

// As with MPI, the root does not wait for the others.
static dt_status broadcast(dt_comm *c, void *data, size_t n, int root) {
    meeting *m = meet(meetings, ((rank_comm *)c->self)->n_meetings++);
    if (c->rank == root) {
        leave_data(m, c, data, n);
        return DT_OK;
    }
    DT_TRY(await(m, c, root, root + 1, "the broadcast"));
    if (n) memcpy(data, m->data[root], n);
    return DT_OK;
}

static dt_status all_gather(dt_comm *c, const void *data, size_t n, void *all) {
    meeting *m;
    DT_TRY(exchange(c, data, n, &m, "the all-gather"));
    for (int r = 0; n && r < c->world_size; r++) memcpy((char *)all + (size_t)r * n, m->data[r], n);
    return DT_OK;
}

#define REDUCE(name, type, combine)                                                                                    \
    static void combine_##name(dt_comm *c, meeting *m, type *data, int64_t n) {                                        \
        for (int r = 0; r < c->world_size; r++) {                                                                      \
            const type *x = (const type *)(void *)m->data[r];                                                          \
            for (int64_t i = 0; i < n; i++) data[i] = r == 0 ? x[i] : combine;                                         \
        }                                                                                                              \
    }                                                                                                                  \
    static dt_status all_reduce_##name(dt_comm *c, type *data, int64_t n) {                                            \
        meeting *m;                                                                                                    \
        DT_TRY(exchange(c, data, (size_t)n * sizeof *data, &m, "the all-reduce"));                                     \
        combine_##name(c, m, data, n);                                                                                 \
        return DT_OK;                                                                                                  \
    }
REDUCE(f32, float, data[i] + x[i])
REDUCE(f64, double, data[i] + x[i])
REDUCE(i64, int64_t, data[i] > x[i] ? data[i] : x[i])

static dt_status reduce_now(dt_comm *c, const dt_reduction *x, dt_request *r) {
    r->id = -1;
    return all_reduce_f32(c, x->data, x->n);
}
static dt_status progress(dt_comm *c) {
    return DT_OK;
}
static dt_status wait_request(dt_comm *c, dt_request *r) {
    return DT_OK;
}

static dt_status send_f32(dt_comm *c, const float *data, int64_t n, int to) {
    rank_comm *self = c->self;
    leave_data(meet(mail[c->rank][to], self->n_sent[to]++), c, data, (size_t)n * sizeof *data);
    return DT_OK;
}

static dt_status recv_f32(dt_comm *c, float *data, int64_t n, int from) {
    rank_comm *self = c->self;
    meeting *m = meet(mail[from][c->rank], self->n_received[from]++);
    DT_TRY(await(m, c, from, from + 1, "a receive"));
    memcpy(data, m->data[from], (size_t)n * sizeof *data);
    return DT_OK;
}

// As comm_mpi.c: all tell rank 0 how much they did, and it tells all the sum.
static dt_status exchange_beats(void *ctx, uint64_t *ticks) {
    dt_comm *c = ctx;
    const uint64_t own = *ticks;
    const int first = c->rank == 0, end = c->rank == 0 ? c->world_size : 1;
    for (int p = first; p < end; p++) {
        beat *b = &beats[p][c->rank];
        dt_waited *silent = &((rank_comm *)c->self)->silent[p];
        if (b->on_way && b->seen_s <= sim_now()) {
            b->on_way = false;
            b->sum = b->sent;
            *silent = (dt_waited){0};
        }
        double silent_s = dt_clock_waited_s(silent, dt_clock_s());
        if (silent_s >= dt_watch_get_limits()->lost_s)
            return dt_fail(DT_E_PEER, "no heartbeat from rank %d on sim for %.0f s", p, silent_s);
        *ticks += b->sum;
    }
    for (int p = first; p < end; p++) {
        beat *b = &beats[c->rank][p];
        if (b->on_way) continue;
        *b = (beat){true, c->rank == 0 ? *ticks : own, b->sum, arrival(c->rank, p)};
    }
    return DT_OK;
}

static void set_deadline(dt_comm *c, double seconds) {
    ((rank_comm *)c->self)->deadline_s = seconds;
}

static void abort_ranks(void *ctx, int code) { // as MPI_Abort: does not return
    sim_job_over(code, "abort");
    sim_bury(((dt_comm *)ctx)->rank);
}
static void abort_comm(dt_comm *c, int code) {
    abort_ranks(c, code);
}

static dt_status finalize(dt_comm *c) {
    DT_TRY(barrier(c));
    dt_watch_begin(NULL, "MPI_Finalize"); // which waits without a deadline
    dt_watch_set_peers(NULL);
    set_deadline(c, INFINITY);
    dt_status st = barrier(c);
    dt_watch_end();
    return st;
}

struct dt_comm *sim_comm_create(int rank, int world_size) {
    dt_comm *c = dt_xcalloc(1, sizeof *c);
    rank_comm *self = dt_xcalloc(1, sizeof *self);
    self->deadline_s = SIM_TIMEOUT_S;
    *c = (dt_comm){.name = "sim",
                   .self = self,
                   .rank = rank,
                   .world_size = world_size,
                   .local_rank = rank,
                   .local_size = world_size,
                   .barrier = barrier,
                   .broadcast_bytes = broadcast,
                   .all_gather_bytes = all_gather,
                   .all_reduce_f32 = all_reduce_f32,
                   .all_reduce_f64 = all_reduce_f64,
                   .all_reduce_max_i64 = all_reduce_i64,
                   .reduce_start = reduce_now,
                   .progress = progress,
                   .wait = wait_request,
                   .send_f32 = send_f32,
                   .recv_f32 = recv_f32,
                   .set_deadline = set_deadline,
                   .abort = abort_comm,
                   .finalize = finalize};
    dt_watch_set_peers(&(dt_watch_peers){exchange_beats, abort_ranks, c});
    return c;
}

// ---- the watch: of a process, so each rank has a copy of watch.c --------------------------------------
#define COPIES(result, name, parameters, arguments, otherwise)                                                         \
    result sim_watch_##name##_0 parameters;                                                                            \
    result sim_watch_##name##_1 parameters;                                                                            \
    result sim_watch_##name##_2 parameters;                                                                            \
    result sim_watch_##name##_3 parameters;                                                                            \
    result dt_watch_##name parameters {                                                                                \
        result(*const copies[])                                                                                        \
            parameters = {sim_watch_##name##_0, sim_watch_##name##_1, sim_watch_##name##_2, sim_watch_##name##_3};     \
        if (sim_rank() < 0 || sim_rank() >= SIM_RANKS) return otherwise;                                               \
        return copies[sim_rank()] arguments;                                                                           \
    }
COPIES(void, start, (const dt_watch_limits *l), (l), (void)0)
COPIES(void, begin, (const char *path, const char *operation), (path, operation), (void)0)
COPIES(void, end, (void), (), (void)0)
COPIES(void, tick, (void), (), (void)0)
COPIES(void, set_step, (int64_t step), (step), (void)0)
COPIES(int64_t, get_step, (void), (), -1)
COPIES(void, set_peers, (const dt_watch_peers *p), (p), (void)0)
COPIES(void, set_on_end, (dt_watch_on_end * call, void *ctx), (call, ctx), (void)0)
COPIES(void, leave, (int code, double within_s), (code, within_s), (void)0)
COPIES(double, quiet_s, (void), (), INFINITY)
COPIES(const dt_watch_limits *, get_limits, (void), (), NULL)

// ---- signals: those of the product are of a process, and here a rank is a thread ----------------------
static double signalled_s = INFINITY;

void sim_signal_all(void) {
    if (isinf(signalled_s)) signalled_s = sim_now();
}
void dt_signals_install(void) {}
bool dt_signals_pending(void) {
    return sim_rank() >= 0 && signalled_s <= sim_now();
}
static double grace_s; // the same in all ranks
void dt_signals_set_grace(double seconds) {
    grace_s = seconds;
}
bool dt_signals_grace_is_over(void) {
    return dt_signals_pending() && sim_now() - signalled_s > grace_s;
}
void dt_signals_starting(void) {}
void dt_signals_started(void) {}
const char *dt_signals_name(void) {
    return dt_signals_pending() ? "SIGUSR1" : "";
}
