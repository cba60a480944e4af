// slow_rank.c: see slow_rank.h.
#define _GNU_SOURCE // gethostname
#include "train/slow_rank.h"

#include "base/core.h"
#include "base/sort.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SLOW_TIMES 1.3
#define LEAST_S    1e-3 // less than that behind the median is noise

static double lower_median(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, dt_sort_reals);
    return values[(n - 1) / 2];
}

// The slowest of n ranks that was not named yet.
static void slow_rank_find(const dt_own_times *all, const bool *named, int n, dt_slow_finding *out) {
    double *sums = dt_xcalloc((size_t)n, 3 * sizeof *sums), *data = sums + n, *compute = data + n;
    *out = (dt_slow_finding){.rank = -1};
    for (int r = 0; r < n; r++) {
        data[r] = all[r].data_s;
        compute[r] = all[r].compute_s;
        sums[r] = data[r] + compute[r];
    }
    const double usual = lower_median(sums, n), usual_data = lower_median(data, n),
                 usual_compute = lower_median(compute, n);
    // both bounds: relative for long steps, absolute for short ones
    double most = usual * SLOW_TIMES > usual + LEAST_S ? usual * SLOW_TIMES : usual + LEAST_S;
    for (int r = 0; r < n; r++) {
        const dt_own_times *t = &all[r];
        const double sum = t->data_s + t->compute_s;
        if (named[r] || sum <= most) continue;
        most = sum; // the slowest is named
        // the part that exceeds its own median most
        const bool by_data = t->data_s - usual_data > t->compute_s - usual_compute;
        *out = (dt_slow_finding){r, sum / usual, by_data ? "data" : "compute", t->host};
    }
    free(sums);
}

dt_status dt_slow_rank_step(dt_slow_rank *s, dt_comm *c, double data_s, double compute_s, bool *ask,
                            dt_slow_finding *out) {
    out->rank = -1;
    if (c->world_size == 1) return DT_OK;
    s->asks |= *ask; // kept until the next exchange
    *ask = false;
    s->data_s[s->n] = data_s;
    s->compute_s[s->n] = compute_s;
    if (++s->n < DT_SLOW_STEPS) return DT_OK;
    s->n = 0;
    // allocated at the first exchange: a lone rank needs none
    if (!s->all) {
        s->all = dt_xcalloc((size_t)c->world_size, sizeof *s->all);
        s->named = dt_xcalloc((size_t)c->world_size, sizeof *s->named);
    }
    // medians of this rank's steps, so that one long step does not count
    dt_own_times mine = {.data_s = lower_median(s->data_s, DT_SLOW_STEPS),
                         .compute_s = lower_median(s->compute_s, DT_SLOW_STEPS)};
    mine.asks = s->asks;
    s->asks = false;
    gethostname(mine.host, sizeof mine.host - 1);
    DT_TRY(c->all_gather_bytes(c, &mine, sizeof mine, s->all));
    // at the same step on every rank: each may start a timeline then
    for (int r = 0; r < c->world_size; r++) *ask |= s->all[r].asks;
    slow_rank_find(s->all, s->named, c->world_size, out);
    if (out->rank >= 0) s->named[out->rank] = true; // once a run
    return DT_OK;
}

void dt_slow_rank_fini(dt_slow_rank *s) {
    free(s->all);
    free(s->named);
    *s = (dt_slow_rank){0};
}
