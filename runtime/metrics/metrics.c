// metrics.c: derives rates and shares from the step records and hands both to the sinks.
//
// A step costs some microseconds of formatting and, once a second, one write into the page cache; buffers
// are made at open.
// Smoothed figures are exponential means with their start-up bias divided out: rates as
// mean(samples) / mean(seconds), so that a slow step counts by its length. The first step makes
// kernels and fills caches; with enough others it is left out of the summary's rates.
#define _GNU_SOURCE
#include "metrics_internal.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "config/sink_words.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define WORD(id, ...) &dt_sink_##id,
static const dt_metrics_sink *const sinks[] = {
#include "config/sinks.def"
};
#undef WORD
#define WORD(id, ...) #id,
static const char *const names[] = {
#include "config/sinks.def"
};
#undef WORD

static const double keep_share = 0.98; // of the mean, a step: about 50 steps count
static const double data_limit = 0.10, comm_limit = 0.15; // above: that is what limits the run

typedef struct phase_sums {
    double samples, step_s, data_s, compute_s, comm_s, other_s;
} phase_sums;

struct dt_metrics {
    dt_metrics_opts o;
    void *state[DT_N_SINKS];         // NULL: not wanted
    phase_sums smooth, first, total; // total: without the first step, which is apart
    double smooth_weight;            // 1 - keep_share^n
    int statm_fd;                    // kept open: dt_rss_bytes() opens a stream, which allocates
    uint64_t rss_bytes;
    double rss_s, opened_s;
    int64_t n_steps, n_skipped, n_samples, last_step;
};

dt_status dt_metrics_open(dt_metrics **out, const dt_metrics_opts *opts) {
    dt_metrics *m = dt_xcalloc(1, sizeof *m);
    dt_status st = DT_OK;
    m->o = *opts;
    m->opened_s = dt_clock_s();
    m->rss_s = -1;
    m->statm_fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    for (int i = 0; st == DT_OK && i < DT_N_SINKS; i++)
        if (opts->sinks >> i & 1) st = sinks[i]->open(&m->state[i], opts);
    if (st != DT_OK) {
        dt_metrics_close(m, NULL);
        m = NULL;
    }
    *out = m;
    return st;
}

static void add_sums(phase_sums *s, const dt_step_record *r, double keep, double take) {
    s->samples = keep * s->samples + take * (r->skipped ? 0 : (double)r->global_batch);
    s->step_s = keep * s->step_s + take * r->step_s;
    s->data_s = keep * s->data_s + take * r->data_s;
    s->compute_s = keep * s->compute_s + take * r->compute_s;
    s->comm_s = keep * s->comm_s + take * r->comm_s;
    s->other_s = keep * s->other_s + take * r->other_s;
}

static double ratio(double a, double b) {
    return b > 0 ? a / b : 0;
}

// Twice a second at most; stays 0 where there is no /proc.
static void refresh_rss(dt_metrics *m) {
    char text[128];
    unsigned long long pages;
    double now = dt_clock_s();
    if (m->rss_s >= 0 && now - m->rss_s < 0.5) return;
    m->rss_s = now;
    ssize_t n = m->statm_fd < 0 ? -1 : pread(m->statm_fd, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    if (sscanf(text, "%*u %llu", &pages) == 1)
        m->rss_bytes = pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void make_stats(dt_metrics *m, const dt_step_record *r, dt_step_stats *s) {
    const phase_sums *e = &m->smooth;
    refresh_rss(m);
    *s = (dt_step_stats){
        .samples_per_s = ratio(r->skipped ? 0 : (double)r->global_batch, r->step_s),
        .smooth_samples_per_s = ratio(e->samples, e->step_s),
        .data_share = ratio(e->data_s, e->step_s),
        .compute_share = ratio(e->compute_s, e->step_s),
        .comm_share = ratio(e->comm_s, e->step_s),
        .rss_bytes = m->rss_bytes,
        .epoch_ends = r->step % m->o.steps_per_epoch == 0,
        .eta_s = (double)(m->o.total_steps - r->step) * ratio(e->step_s, m->smooth_weight),
    };
}

void dt_metrics_step(dt_metrics *m, const dt_step_record *r) {
    dt_step_stats s;
    // the first step is slower than any other: the means start with the second
    if (m->n_steps == 1) {
        m->smooth = (phase_sums){0};
        m->smooth_weight = 0;
        m->first = m->total;
        m->total = (phase_sums){0};
    }
    m->n_steps++;
    m->n_skipped += r->skipped;
    m->n_samples += r->skipped ? 0 : r->global_batch;
    m->last_step = r->step;
    add_sums(&m->smooth, r, keep_share, 1 - keep_share);
    m->smooth_weight = keep_share * m->smooth_weight + (1 - keep_share);
    add_sums(&m->total, r, 1, 1);
    make_stats(m, r, &s);
    for (int i = 0; i < DT_N_SINKS; i++)
        if (m->state[i] && sinks[i]->step) sinks[i]->step(m->state[i], r, &s);
}

void dt_metrics_eval(dt_metrics *m, const char *split, int64_t step, const dt_metric_value *values,
                     int n_values, const char *extra_json) {
    dt_eval_record r = {split, step, values, n_values, extra_json};
    for (int i = 0; i < DT_N_SINKS; i++)
        if (m->state[i] && sinks[i]->eval) sinks[i]->eval(m->state[i], &r);
}

void dt_metrics_slow_rank(dt_metrics *m, int64_t step, int rank, const char *host,
                          const char *phase, double times) {
    dt_slow_rank_record r = {step, rank, host, phase, times};
    for (int i = 0; i < DT_N_SINKS; i++)
        if (m->state[i] && sinks[i]->slow_rank) sinks[i]->slow_rank(m->state[i], &r);
}

void dt_metrics_phase(dt_metrics *m, const char *what) {
    for (int i = 0; i < DT_N_SINKS; i++)
        if (m->state[i] && sinks[i]->phase) sinks[i]->phase(m->state[i], what);
}

int64_t dt_metrics_flush(dt_metrics *m) {
    int64_t n_bytes = 0;
    for (int i = 0; i < DT_N_SINKS; i++)
        if (m->state[i] && sinks[i]->flush) n_bytes += sinks[i]->flush(m->state[i]);
    return n_bytes;
}

// -- the summary ---------------------------------------------------------------------------------
static void log_verdict(const phase_sums *t, const char *data_verdict) {
    double data = ratio(t->data_s, t->step_s), comm = ratio(t->comm_s, t->step_s);
    if (data > data_limit && data - data_limit >= comm - comm_limit)
        dt_info("limited by data: the step waited %.0f%% of its time for input; %s", 100 * data,
                data_verdict ? data_verdict
                             : "more data.workers, faster storage or smaller images (dtrain pack) "
                               "would help");
    else if (comm > comm_limit)
        dt_info("limited by communication: %.0f%% of the step was exposed all-reduce; a larger "
                "train.global_batch, fewer ranks or a faster network would help",
                100 * comm);
    else
        dt_info("limited by compute: data and communication keep up; more cores or hosts would "
                "help, and bf16 on a CPU that has it");
}

static void log_lost(const dt_metrics *m) {
    for (int i = 0; i < DT_N_SINKS; i++) {
        uint64_t n = m->state[i] && sinks[i]->dropped ? sinks[i]->dropped(m->state[i]) : 0;
        if (n)
            dt_warn("%" PRIu64 " records of the %s sink were lost to a failing disk", n, names[i]);
    }
}

void dt_metrics_summary(dt_metrics *m, const char *data_verdict) {
    const phase_sums *t = &m->total;
    if (m->n_steps == 0) return;
    dt_metrics_phase(m, NULL);
    dt_info("%s: %" PRId64 " steps to step %" PRId64 ", %" PRId64
            " samples in %.1f s, %.1f samples/s in steps, %.1f without the first, peak memory "
            "%.0f MiB",
            m->o.run_name, m->n_steps, m->last_step, m->n_samples, dt_clock_s() - m->opened_s,
            ratio(t->samples + m->first.samples, t->step_s + m->first.step_s),
            ratio(t->samples, t->step_s), (double)dt_rss_peak_bytes() / 1048576.0);
    dt_info("time in a step: data %.1f%%, compute %.1f%%, communication %.1f%%, other %.1f%%",
            100 * ratio(t->data_s, t->step_s), 100 * ratio(t->compute_s, t->step_s),
            100 * ratio(t->comm_s, t->step_s), 100 * ratio(t->other_s, t->step_s));
    if (m->n_skipped) dt_info("%" PRId64 " steps were skipped (overflow)", m->n_skipped);
    log_lost(m);
    log_verdict(t, data_verdict);
}

void dt_metrics_close(dt_metrics *m, const dt_run_end *end) {
    if (!m) return;
    for (int i = 0; i < DT_N_SINKS; i++) {
        if (m->state[i] && sinks[i]->end && end) sinks[i]->end(m->state[i], end);
        if (m->state[i]) sinks[i]->close(m->state[i]);
    }
    if (m->statm_fd >= 0) close(m->statm_fd);
    free(m);
}
