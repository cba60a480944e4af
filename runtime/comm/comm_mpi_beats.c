// comm_mpi_beats.c: signs of life. Every rank sends rank 0 its count of work done, five times a second, and rank 0 sends
// each rank the sum. Rank 0 finds a rank that does not answer, and all others find rank 0. base/watch.h calls.
// A message also has the number of collectives that its sender has entered. Rank 0 answers which rank has entered the
// fewest: the one to blame, where the ranks that others wait for are themselves waiting. Each rank's report
// (base/rank_report.h) goes along.
#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/rank_report.h"
#include "base/watch.h"
#include "comm/comm_mpi_internal.h"

#include <stdio.h>
#include <stdlib.h>

// Shorter than what Open MPI takes to notice a lost host (launch/mpi_env.sh) and to end all ranks: so the last line
// that is printed names the lost rank.
#define WARNING_S 3.0

typedef struct beat {
    uint64_t sum, entered, rank; // from rank 0: the fewest collectives entered, and by which rank
    dt_rank_report report;
} beat;

typedef struct partner {
    int rank;
    beat to_send, received, last; // last: the last one received whole
    MPI_Request sending, receiving;
    dt_waited silent;
    bool warned; // that the partner is silent
} partner;

struct mpi_beats {
    int rank;
    char (*hosts)[MPI_HOST_BYTES];
    beat behind; // the rank that has entered the fewest collectives
    int n_partners;
    partner partners[];
};

static dt_status listen_to(partner *p) {
    return mpi_check(MPI_Irecv(&p->received, sizeof(beat), MPI_BYTE, p->rank, MPI_TAG_BEAT,
                               MPI_COMM_WORLD, &p->receiving),
                     "a beat");
}

static void warn(const mpi_beats *b, partner *p, double silent_s) {
    char where[48] = "", at[DT_RANK_TEXT];
    const int64_t step = dt_watch_get_step();
    if (step >= 0) snprintf(where, sizeof where, "after step %lld: ", (long long)step);
    dt_log_urgent(DT_LOG_WARN, true,
                  "%srank %d on %s has given no sign of life for %.0f s; waiting up to %.0f s "
                  "(comm.timeout); it was last in %s",
                  where, p->rank, b->hosts[p->rank], silent_s, dt_watch_get_limits()->lost_s,
                  dt_rank_text(at, &p->last.report));
    p->warned = true;
}

static dt_status hear(const mpi_beats *b, partner *p, double now_s) {
    for (int flag = 1; flag;) {
        DT_TRY(mpi_check(MPI_Test(&p->receiving, &flag, MPI_STATUS_IGNORE), "a beat"));
        if (!flag) break;
        p->last = p->received;
        if (b->rank == 0) dt_rank_hear(p->rank, &p->last.report);
        p->silent = (dt_waited){0};
        p->warned = false;
        DT_TRY(listen_to(p));
    }
    double silent_s = dt_clock_waited_s(&p->silent, now_s);
    if (silent_s >= WARNING_S && !p->warned) warn(b, p, silent_s);
    if (silent_s < dt_watch_get_limits()->lost_s) return DT_OK;
    return dt_fail(DT_E_PEER,
                   "rank %d on %s has given no sign of life for %.0f s: stopped, or its host is "
                   "lost; look at that host, then run again (comm.timeout: wait longer)",
                   p->rank, b->hosts[p->rank], silent_s);
}

// Nothing is sent while the beat before this one is still on its way.
static dt_status say(partner *p, const beat *what) {
    int flag = 0;
    DT_TRY(mpi_check(MPI_Test(&p->sending, &flag, MPI_STATUS_IGNORE), "a beat"));
    if (!flag) return DT_OK;
    p->to_send = *what;
    return mpi_check(MPI_Isend(&p->to_send, sizeof(beat), MPI_BYTE, p->rank, MPI_TAG_BEAT,
                               MPI_COMM_WORLD, &p->sending),
                     "a beat");
}

dt_status mpi_beats_exchange(mpi_beats *b, uint64_t *ticks, uint64_t entered) {
    const double now_s = dt_clock_s();
    beat own = {*ticks, entered, (uint64_t)b->rank, {0}};
    dt_rank_own(&own.report);
    dt_status st = DT_OK;
    pthread_mutex_lock(&mpi_lock);
    b->behind = own;
    for (int i = 0; i < b->n_partners && st == DT_OK; i++) {
        const beat *last = &b->partners[i].last;
        st = hear(b, &b->partners[i], now_s);
        *ticks += last->sum;
        if (b->rank != 0 || last->entered < b->behind.entered) b->behind = *last;
    }
    if (b->rank == 0) {
        own.sum = *ticks;
        own.entered = b->behind.entered;
        own.rank = b->behind.rank;
    }
    for (int i = 0; i < b->n_partners && st == DT_OK; i++) st = say(&b->partners[i], &own);
    pthread_mutex_unlock(&mpi_lock);
    return st;
}

int mpi_beats_behind(mpi_beats *b, uint64_t number) {
    pthread_mutex_lock(&mpi_lock);
    const int rank = b->behind.entered <= number ? (int)b->behind.rank : -1;
    pthread_mutex_unlock(&mpi_lock);
    return rank;
}

dt_status mpi_beats_begin(mpi_beats **out, const dt_comm *c, char (*hosts)[MPI_HOST_BYTES]) {
    const int n = c->world_size == 1 ? 0 : c->rank == 0 ? c->world_size - 1 : 1;
    mpi_beats *b = *out = dt_xcalloc(1, sizeof *b + (size_t)n * sizeof *b->partners);
    b->rank = c->rank;
    b->hosts = hosts;
    b->n_partners = n;
    b->behind.entered = UINT64_MAX; // no rank is known yet
    for (int i = 0; i < n; i++) {
        b->partners[i].rank = c->rank == 0 ? i + 1 : 0;
        b->partners[i].sending = MPI_REQUEST_NULL;
        b->partners[i].last = (beat){.entered = UINT64_MAX}; // not known yet
        DT_TRY(listen_to(&b->partners[i]));
    }
    return DT_OK;
}

void mpi_beats_end(mpi_beats *b) {
    for (int i = 0; i < b->n_partners; i++) {
        partner *p = &b->partners[i];
        MPI_Cancel(&p->receiving);
        MPI_Wait(&p->receiving, MPI_STATUS_IGNORE);
        if (p->sending != MPI_REQUEST_NULL) MPI_Request_free(&p->sending);
    }
    free(b);
}
