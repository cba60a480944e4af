// comm_mpi_heartbeat.c: heartbeats, up and down a tree: below rank r are ranks 8 r + 1 to 8 r + 8. Five times a second
// each rank sends the one above the count of work done by itself and by all below, and those below the sum of all
// ranks. So no rank has more than nine partners, whatever the world size, and news take a fifth of a second per level. A
// rank that does not respond is found by its partners. base/watch.h calls.
// A message also names the rank that has entered the fewest collectives: upwards of the sender and those below,
// downwards of all. That is the one to blame, where the ranks that others wait for are themselves waiting. Reports
// (base/rank_report.h) go along, upwards also those of the ranks below, in turn where they are more than a message
// holds.
#include "base/core.h"
#include "base/log.h"
#include "base/os.h"
#include "base/rank_report.h"
#include "base/watch.h"
#include "comm/comm_mpi_internal.h"

#include <stdio.h>
#include <stdlib.h>

// Shorter than what Open MPI takes to notice a lost host (launch/mpi_env.sh) and to end all ranks: so the last line
// that is printed names the lost rank.
#define WARNING_S 3.0

enum { BELOW = 8, REPORTS = 64 }; // REPORTS: in a message

typedef struct heartbeat {
    uint64_t sum, entered, rank; // the fewest collectives entered, and by which rank
    dt_rank_report report;
} heartbeat;

typedef struct partner {
    int rank;
    // The first is the sender's. Of those behind it `rank` is whose report it is, which is heard_s old.
    heartbeat to_send[REPORTS], received[REPORTS]; // to_send stays untouched until MPI_Isend has completed
    heartbeat last;                                // the sender's of the last message
    MPI_Request sending, receiving;
    dt_waited silent;    // seconds without any message
    unsigned n_received; // messages of collectives from the partner until the last exchange
    bool warned;         // that the partner is silent
} partner;

struct dt_mpi_heartbeat {
    int rank, world_size; // hosts: borrowed
    char (*hosts)[MPI_HOST_BYTES];
    const atomic_uint *n_received; // see dt_mpi_comm
    heartbeat behind;              // the rank that has entered the fewest collectives
    // By rank, of those below, on ranks between them and rank 0, which has them elsewhere; heard_s 0: none has come.
    dt_rank_report *reports;
    int next; // whose report is the next to be passed on
    int n_partners;
    partner partners[]; // the one above comes first
};

static dt_status listen_to(partner *p) {
    return dt_mpi_check(
        MPI_Irecv(p->received, sizeof p->received, MPI_BYTE, p->rank, MPI_TAG_HEARTBEAT, MPI_COMM_WORLD, &p->receiving),
        "a heartbeat");
}

static void warn(const dt_mpi_heartbeat *b, partner *p, double silent_s) {
    char where[48] = "", at[DT_RANK_TEXT];
    const int64_t step = dt_watch_get_step(); // -1: before the first step
    if (step >= 0) snprintf(where, sizeof where, "after step %lld: ", (long long)step);
    dt_log_urgent(
        DT_LOG_WARN, true,
        "%sno heartbeat from rank %d on %s for %.0f s; waiting up to %.0f s (comm.timeout); last position: %s", where,
        p->rank, b->hosts[p->rank], silent_s, dt_watch_get_limits()->lost_s, dt_rank_text(at, &p->last.report));
    p->warned = true; // once per silence; a message resets
}

static void keep_report(dt_mpi_heartbeat *b, int rank, const dt_rank_report *r, double now_s) {
    if (b->rank == 0) { // rank 0 keeps the reports of all ranks
        dt_rank_hear(rank, r);
    } else if (rank > b->rank) { // ranks below have higher numbers
        b->reports[rank] = *r;
        b->reports[rank].heard_s = now_s - r->heard_s; // ages are sent, since clocks of hosts differ
    }
}

static dt_status receive(dt_mpi_heartbeat *b, partner *p, double now_s) {
    for (int flag = 1, n = 0; flag;) { // takes all that have arrived, so that old ones do not queue
        MPI_Status status;
        DT_TRY(dt_mpi_check(MPI_Test(&p->receiving, &flag, &status), "a heartbeat"));
        if (!flag) break;
        MPI_Get_count(&status, MPI_BYTE, &n);
        n /= (int)sizeof(heartbeat); // entries in the message, the sender's first
        p->last = p->received[0];
        keep_report(b, p->rank, &p->last.report, now_s);
        for (int i = 1; i < n; i++) keep_report(b, (int)p->received[i].rank, &p->received[i].report, now_s);
        p->silent = (dt_waited){0};
        p->warned = false;
        DT_TRY(listen_to(p)); // the buffer is free: the next receive
    }
    // over a slow link its heartbeats wait behind data, whose arrival shows as well that it lives
    const unsigned n_received = atomic_load(&b->n_received[p->rank]); // a counter: no data behind
    if (n_received != p->n_received) p->silent = (dt_waited){0};
    p->n_received = n_received;
    double silent_s = dt_clock_waited_s(&p->silent, now_s);
    if (silent_s >= WARNING_S && !p->warned) warn(b, p, silent_s);
    if (silent_s < dt_watch_get_limits()->lost_s) return DT_OK; // comm.timeout
    return dt_fail(DT_E_PEER,
                   "no heartbeat from rank %d on %s for %.0f s: the process is stopped or its host is lost; check that "
                   "host, then run again (comm.timeout: wait longer)",
                   p->rank, b->hosts[p->rank], silent_s);
}

// Nothing is sent while the heartbeat before this one is still on its way.
static dt_status comm_mpi_heartbeat_send(dt_mpi_heartbeat *b, partner *p, const heartbeat *what, double now_s) {
    int flag = 0, n = 1;
    DT_TRY(dt_mpi_check(MPI_Test(&p->sending, &flag, MPI_STATUS_IGNORE), "a heartbeat"));
    if (!flag) return DT_OK; // to_send is still MPI's
    p->to_send[0] = *what;
    // upwards only; a full turn through the table at most
    for (int i = 0; b->reports && p->rank < b->rank && i < b->world_size && n < REPORTS; i++) {
        const dt_rank_report *r = &b->reports[b->next];
        if (r->heard_s != 0) { // a rank whose report came
            p->to_send[n] = (heartbeat){.rank = (uint64_t)b->next, .report = *r};
            p->to_send[n++].report.heard_s = now_s - r->heard_s;
        }
        b->next = (b->next + 1) % b->world_size;
    }
    return dt_mpi_check( // the message holds n entries, the rest of the buffer is not sent
        MPI_Isend(p->to_send, n * (int)sizeof(heartbeat), MPI_BYTE, p->rank, MPI_TAG_HEARTBEAT, MPI_COMM_WORLD,
                  &p->sending),
        "a heartbeat");
}

dt_status dt_mpi_heartbeat_exchange(dt_mpi_heartbeat *b, uint64_t *ticks, uint64_t entered) {
    const double now_s = dt_clock_s();                        // monotonic, local
    heartbeat up = {*ticks, entered, (uint64_t)b->rank, {0}}; // own count, then the subtree's minimum and sum
    dt_rank_own(&up.report);
    dt_status st = DT_OK;
    pthread_mutex_lock(&mpi_lock); // comm_mpi.c's calls wait meanwhile: microseconds
    for (int i = 0; i < b->n_partners && st == DT_OK; i++) {
        const partner *p = &b->partners[i];
        st = receive(b, &b->partners[i], now_s);
        if (p->rank < b->rank) continue; // the one above has no share in the subtree's sum
        up.sum += p->last.sum;
        if (p->last.entered < up.entered) {
            up.entered = p->last.entered;
            up.rank = p->last.rank;
        }
    }
    heartbeat down = b->rank == 0 ? up : b->partners[0].last; // rank 0 is the root and knows all
    down.report = up.report;
    b->behind = down;
    // counts the subtree twice, but grows only when some rank makes progress
    *ticks = b->rank == 0 ? up.sum : up.sum + down.sum;
    for (int i = 0; i < b->n_partners && st == DT_OK; i++) {
        partner *p = &b->partners[i];
        st = comm_mpi_heartbeat_send(b, p, p->rank < b->rank ? &up : &down, now_s);
    }
    pthread_mutex_unlock(&mpi_lock);
    return st;
}

int dt_mpi_heartbeat_behind(dt_mpi_heartbeat *b, uint64_t number) {
    pthread_mutex_lock(&mpi_lock);
    const int rank = b->behind.entered <= number ? (int)b->behind.rank : -1; // -1: all have entered `number`
    pthread_mutex_unlock(&mpi_lock);
    return rank;
}

dt_status dt_mpi_heartbeat_begin(dt_mpi_heartbeat **out, const dt_comm *c) {
    const dt_mpi_comm *m = c->self;
    const int above = c->rank > 0, first = BELOW * c->rank + 1;
    // children that exist
    const int n_below = first >= c->world_size ? 0 : first + BELOW > c->world_size ? c->world_size - first : BELOW;
    const int n = above + n_below;
    dt_mpi_heartbeat *b = *out = dt_xcalloc(1, sizeof *b + (size_t)n * sizeof *b->partners);
    b->rank = c->rank;
    b->world_size = c->world_size;
    b->hosts = m->hosts;
    b->n_received = m->n_received;
    b->n_partners = n;
    b->behind.entered = UINT64_MAX; // no rank is known yet
    // inner nodes only: leaves have nothing to pass on
    if (above && n_below > 0) b->reports = dt_xcalloc((size_t)c->world_size, sizeof *b->reports);
    for (int i = 0; i < n; i++) {
        b->partners[i].rank = i < above ? (c->rank - 1) / BELOW : first + i - above;
        b->partners[i].sending = MPI_REQUEST_NULL;
        b->partners[i].last = (heartbeat){.entered = UINT64_MAX, .report.step = -1}; // not known yet
        DT_TRY(listen_to(&b->partners[i]));
    }
    return DT_OK;
}

dt_status dt_mpi_heartbeat_end(dt_mpi_heartbeat *b) {
    MPI_Request ended = MPI_REQUEST_NULL;
    for (int all_ended = 0; !all_ended;) { // a long message is sent when it is received
        int all_sent = 1;
        for (int i = 0; i < b->n_partners; i++) {
            int sent = 0;
            DT_TRY(receive(b, &b->partners[i], dt_clock_s()));
            DT_TRY(dt_mpi_check(MPI_Test(&b->partners[i].sending, &sent, MPI_STATUS_IGNORE), "a heartbeat"));
            all_sent &= sent;
        }
        if (ended != MPI_REQUEST_NULL)
            DT_TRY(dt_mpi_check(MPI_Test(&ended, &all_ended, MPI_STATUS_IGNORE), "the last heartbeats"));
        else if (all_sent) // a barrier that can be tested, so heartbeats are still received
            DT_TRY(dt_mpi_check(MPI_Ibarrier(MPI_COMM_WORLD, &ended), "the last heartbeats"));
    }
    for (int i = 0; i < b->n_partners; i++) {
        MPI_Cancel(&b->partners[i].receiving); // the last posted receive has no sender any more
        MPI_Wait(&b->partners[i].receiving, MPI_STATUS_IGNORE);
    }
    free(b->reports);
    free(b);
    return DT_OK;
}
