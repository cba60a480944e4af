// metrics.c: derives rates and shares from the step records, keeps the ledger, and hands all to the sinks.
//
// A step copies one record into each sink's queue (metrics_file.c); buffers are made at open.
// Smoothed figures are exponential means with their start-up bias divided out: rates as
// mean(samples) / mean(seconds), so that a slow step counts by its length. The first step makes
// kernels and fills caches; with enough others it is left out of the summary's rates.
//
// The ledger accounts for all time since the process began: `accounted_s` moves on with each step, whose own seconds
// are known, and with each change of what the run does.

#include "metrics_internal.h"

#include "base/core.h"
#include "base/log.h"
#include "base/nvml.h"
#include "base/os.h"
#include "base/rank_report.h"
#include "base/text.h"
#include "base/watch.h"
#include "config/words.h"
#include "observe/goodput.h"
#include "observe/report.h"

#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct { // by DT_SINK_<id>, as both come from sinks.def
    const dt_metrics_sink *sink;
    const char *name;
} sinks[] = {
#define WORD(id, ...) {&dt_sink_##id, #id},
#include "config/sinks.def"
#undef WORD
};

static const double keep_share = 0.98; // of the mean, a step: about 50 steps count

#define GOODPUT_S 10.0 // at most so long apart are lines of it while steps run

typedef struct phase_sums {
    double samples, step_s, data_s, compute_s, comm_s, other_s; // seconds each, but for samples
    double forward_s, backward_s, optimizer_s;
} phase_sums;

struct dt_metrics {
    dt_metrics_opts o;
    void *state[DT_N_SINKS];             // NULL: the sink is not wanted
    dt_metrics_queue *queue[DT_N_SINKS]; // of the sinks that have a queue
    dt_goodput goodput;
    dt_activity activity; // time since accounted_s goes to its part
    dt_cpu_use cpu;       // when the metrics were opened
    double accounted_s,
        goodput_s;                   // times: until when the ledger accounts; of the sinks' newest ledger
    dt_rank_report *ranks;           // NULL: there is one rank
    double *rank_values;             // (DT_N_RANK, world_size)
    phase_sums smooth, first, total; // total: without the first step, which is apart
    double smooth_weight;            // 1 - keep_share^n
    int statm_fd;                    // kept open: dt_rss_bytes() opens a stream, which allocates
    uint64_t rss_bytes;              // of /proc/self/statm
    double rss_s, opened_s;          // clock: rss_bytes was read; the metrics were opened
    double util_sum;                 // of the GPU, over n_util steps that know it
    int64_t n_util;
    int64_t n_steps, n_skipped, n_samples, last_step; // of this attempt
};

// ---- to the sinks ----------------------------------------------------------------------------------

static void metrics_publish(dt_metrics *m, dt_metrics_line *r) {
    r->wall_s = dt_clock_wall_s(); // one time for all sinks
    // in the order of sinks.def
    for (int i = 0; i < DT_N_SINKS; i++) {
        // a copy; where the thread could not be started there is no queue, and the sink is called here
        if (m->queue[i])
            dt_metrics_queue_put(m->queue[i], r);
        else if (m->state[i])
            sinks[i].sink->take(m->state[i], r);
    }
}

static void publish_goodput(dt_metrics *m, dt_metrics_line_kind kind) {
    dt_cpu_use now;
    dt_cpu_use_read(&now);
    m->goodput.cores = dt_cpu_short(&m->cpu, &now, m->o.threads, &m->goodput.cores_got);
    dt_metrics_line r = {.kind = kind, .step = m->last_step, .of.goodput = m->goodput};
    m->goodput_s = dt_clock_s(); // the next is GOODPUT_S from here
    metrics_publish(m, &r);
}

static dt_status open_sinks(dt_metrics *m) {
    for (int i = 0; i < DT_N_SINKS; i++) {
        if (!(m->o.sinks >> i & 1)) continue; // bit of the sink
        DT_TRY(sinks[i].sink->open(&m->state[i], &m->o));
        if (sinks[i].sink->queued) m->queue[i] = dt_metrics_queue_create(sinks[i].sink, m->state[i]);
    }
    return DT_OK;
}

// The watch ends the process: the ledger is the main thread's, which hangs.
// on the watch's thread: the ledger is not touched, the queues have locks
static void end_at_once(void *ctx, dt_status st, const char *message) {
    dt_metrics *m = ctx;
    const int64_t step = dt_watch_get_step();
    dt_metrics_line r = {.kind = DT_LINE_end, .step = step, .of.end = {step, st, message}};
    metrics_publish(m, &r);
    for (int i = 0; i < DT_N_SINKS; i++)
        if (m->queue[i]) dt_metrics_queue_flush(m->queue[i]); // the process ends next: lines must be in the file
}

dt_status dt_metrics_open(dt_metrics **out, const dt_metrics_opts *opts) {
    dt_metrics *m = dt_xcalloc(1, sizeof *m);
    const double age_s = dt_clock_process_s(); // the program may have run for seconds: loading, connecting
    m->o = *opts;
    dt_cpu_use_read(&m->cpu);
    m->opened_s = m->accounted_s = dt_clock_s(); // clock of this attempt
    m->rss_s = -1;                               // < 0: never read
    m->last_step = opts->first_step;
    m->statm_fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (opts->world_size > 1) {
        m->ranks = dt_xcalloc((size_t)opts->world_size, sizeof *m->ranks);
        m->rank_values = dt_xcalloc((size_t)opts->world_size, DT_N_RANK * sizeof *m->rank_values);
    }
    // without the jsonl sink an earlier attempt left no ledger
    char *path = dt_xprintf("%s/metrics.jsonl", opts->run_dir);
    // before open_sinks, which cuts the file
    dt_goodput_resume(&m->goodput, opts->sinks >> DT_SINK_jsonl & 1 ? path : "", opts->truncate_to,
                      dt_clock_wall_s() - age_s);
    free(path);
    m->goodput.seconds[DT_GOODPUT_startup] += age_s; // this attempt's time before the ledger
    const dt_status st = open_sinks(m);
    if (st != DT_OK) {
        dt_metrics_close(m, NULL);
        m = NULL;
    } else {
        publish_goodput(m, DT_LINE_start);   // the first line of an attempt
        dt_watch_set_on_end(end_at_once, m); // last: the callback uses the sinks
    }
    *out = m;
    return st;
}

// ---- the ledger ------------------------------------------------------------------------------------

// Where time goes that no step accounts for.
static dt_goodput_part metrics_part_of(dt_activity a) {
    switch (a) {
    case DT_ACTIVITY_starting:
        return DT_GOODPUT_startup;
    case DT_ACTIVITY_evaluating:
    case DT_ACTIVITY_testing:
        return DT_GOODPUT_evaluation;
    // the training's thread waits for a save, or copies into one
    case DT_ACTIVITY_saving:
    case DT_ACTIVITY_waiting:
        return DT_GOODPUT_checkpoint;
    case DT_ACTIVITY_training:
    case DT_ACTIVITY_ending:
        break;
    }
    return DT_GOODPUT_other;
}

static double unaccounted_s(dt_metrics *m) {
    const double now = dt_clock_s(), s = now - m->accounted_s; // since the last call
    m->accounted_s = now;
    return s > 0 ? s : 0;
}

static void account_step(dt_metrics *m, const dt_step_line *r) {
    double *s = m->goodput.seconds;
    const double rest = unaccounted_s(m) - r->step_s; // time between steps
    if (r->skipped) {
        s[DT_GOODPUT_lost] += r->step_s; // a skipped step moves nothing forward
    } else {
        s[DT_GOODPUT_data] += r->data_s;
        s[DT_GOODPUT_comm] += r->comm_s;
        // the rest of the step: computing, committing
        s[DT_GOODPUT_steps] += fmax(r->step_s - r->data_s - r->comm_s, 0);
    }
    if (rest > 0) s[metrics_part_of(m->activity)] += rest;
}

static void change_activity(dt_metrics *m, dt_activity what) {
    m->goodput.seconds[metrics_part_of(m->activity)] += unaccounted_s(m); // up to now the run did what it did before
    m->activity = what;
    dt_metrics_line r = {.kind = DT_LINE_activity, .step = m->last_step, .of.activity = what};
    metrics_publish(m, &r);
}

dt_activity dt_metrics_activity(dt_metrics *m, dt_activity what) {
    const dt_activity before = m->activity;
    if (what != before) change_activity(m, what);
    return before;
}

// any thread: queues and Prometheus's numbers have locks, and the terminal ignores checkpoints
void dt_metrics_checkpoint(dt_metrics *m, int64_t step, double seconds, bool saved) {
    dt_metrics_line r = {.kind = DT_LINE_checkpoint, .step = step, .of.checkpoint = {seconds, saved}};
    metrics_publish(m, &r);
}

// ---- steps -----------------------------------------------------------------------------------------

// keep + take = 1: an exponential mean; 1, 1: sums
static void add_sums(phase_sums *s, const dt_step_line *r, double keep, double take) {
    // a skipped step takes time and commits no samples
    s->samples = keep * s->samples + take * (r->skipped ? 0 : (double)r->global_batch);
    s->step_s = keep * s->step_s + take * r->step_s;
    s->data_s = keep * s->data_s + take * r->data_s;
    s->compute_s = keep * s->compute_s + take * r->compute_s;
    s->comm_s = keep * s->comm_s + take * r->comm_s;
    s->other_s = keep * s->other_s + take * r->other_s;
    s->forward_s = keep * s->forward_s + take * r->forward_s;
    s->backward_s = keep * s->backward_s + take * r->backward_s;
    s->optimizer_s = keep * s->optimizer_s + take * r->optimizer_s;
}

static double ratio(double a, double b) { // 0 at the start, where nothing was measured
    return b > 0 ? a / b : 0;
}

// Twice a second at most; stays 0 where there is no /proc.
static void refresh_rss(dt_metrics *m) {
    char text[128];
    unsigned long long pages;
    double now = dt_clock_s();
    if (m->rss_s >= 0 && now - m->rss_s < 0.5) return;
    m->rss_s = now;
    // at offset 0 the kernel makes the text anew
    ssize_t n = m->statm_fd < 0 ? -1 : pread(m->statm_fd, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    // second number: resident pages
    if (sscanf(text, "%*u %llu", &pages) == 1) m->rss_bytes = pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void make_stats(dt_metrics *m, const dt_step_line *r, dt_step_stats *s) {
    const phase_sums *e = &m->smooth;
    refresh_rss(m);
    *s = (dt_step_stats){
        // this step's own
        .samples_per_s = ratio(r->skipped ? 0 : (double)r->global_batch, r->step_s),
        .smooth_samples_per_s = ratio(e->samples, e->step_s),
        .data_share = ratio(e->data_s, e->step_s),
        .compute_share = ratio(e->compute_s, e->step_s),
        .comm_share = ratio(e->comm_s, e->step_s),
        .rss_bytes = m->rss_bytes,
        .epoch_ends = r->step % m->o.steps_per_epoch == 0, // step counts from 1
        // seconds left: steps left times the unbiased mean
        .eta_s = (double)(m->o.total_steps - r->step) * ratio(e->step_s, m->smooth_weight),
    };
    s->has_gpu = dt_gpu_latest(s->gpu);
    if (!s->has_gpu || isnan(s->gpu[DT_GPU_util])) return;
    m->util_sum += s->gpu[DT_GPU_util];
    m->n_util++;
}

// Reads what the ranks' beats have brought by now, without asking or waiting for a rank.
static void publish_ranks(dt_metrics *m) {
    const int n = m->o.world_size;
    double *values = m->rank_values, sum = 0, most = -1; // most < 0: no rank is known
    dt_metrics_line r = {.kind = DT_LINE_ranks, .step = m->last_step, .of.ranks = {.n = n, .values = values}};
    int n_known = 0;
    dt_rank_list(m->ranks, n); // copies under the lock of the beats
    for (int i = 0; i < n; i++) {
        const dt_rank_report *one = &m->ranks[i];
        const bool known = one->step > 0; // a rank that has sent nothing yet
        const double own_s = one->data_s + one->compute_s;
        values[DT_RANK_data_s * n + i] = known ? one->data_s : NAN; // NAN: null in the file
        values[DT_RANK_compute_s * n + i] = known ? one->compute_s : NAN;
        values[DT_RANK_rss_bytes * n + i] = known ? (double)one->rss_bytes : NAN;
        for (int k = 0; k < DT_N_GPU; k++)
            values[(DT_RANK_GPU + k) * n + i] = known && one->has_gpu ? one->gpu[k] : NAN;
        r.of.ranks.has_gpu |= known && one->has_gpu;
        if (!known) continue;
        n_known++;
        sum += own_s;
        if (own_s > most) most = own_s, r.of.ranks.slowest = i;
    }
    r.of.ranks.imbalance = ratio(most, sum / (n_known ? n_known : 1)); // 1: all ranks take the same time
    if (n_known > 0) metrics_publish(m, &r);
}

void dt_metrics_step(dt_metrics *m, const dt_step_line *r) {
    dt_metrics_line record = {.kind = DT_LINE_step, .step = r->step, .of.step.r = *r};
    // the first step is slower than any other: the means start with the second
    if (m->n_steps == 1) {
        m->smooth = (phase_sums){0};
        m->smooth_weight = 0;
        m->first = m->total; // for the summary's rate with the first step
        m->total = (phase_sums){0};
    }
    m->n_steps++;
    m->n_skipped += r->skipped;
    m->n_samples += r->skipped ? 0 : r->global_batch; // skipped steps commit no samples
    m->last_step = r->step;
    account_step(m, r);
    dt_metrics_activity(m, DT_ACTIVITY_training); // after account_step: time before the first step is startup's
    add_sums(&m->smooth, r, keep_share, 1 - keep_share);
    m->smooth_weight = keep_share * m->smooth_weight + (1 - keep_share); // the bias correction of Adam's means
    add_sums(&m->total, r, 1, 1);
    make_stats(m, r, &record.of.step.s);
    metrics_publish(m, &record);
    if (m->ranks && r->step % m->o.every_steps == 0) publish_ranks(m); // not collective: rank 0 alone
    if (m->accounted_s - m->goodput_s >= GOODPUT_S) publish_goodput(m, DT_LINE_goodput);
}

void dt_metrics_eval(dt_metrics *m, const char *split, int64_t step, const dt_metric_value *values, int n_values,
                     const char *extra_json) {
    dt_metrics_line r = {.kind = DT_LINE_eval, .step = step, .of.eval = {split, values, n_values, extra_json}};
    metrics_publish(m, &r);
}

void dt_metrics_slow_rank(dt_metrics *m, int64_t step, int rank, const char *host, const char *phase, double times) {
    dt_metrics_line r = {.kind = DT_LINE_slow_rank, .step = step, .of.slow_rank = {rank, host, phase, times}};
    metrics_publish(m, &r);
}

// the checkpoint stores metrics.jsonl's size: called ahead of its manifest
int64_t dt_metrics_flush(dt_metrics *m) {
    int64_t n_bytes = 0;
    if (m->n_steps > 0) publish_goodput(m, DT_LINE_goodput);
    for (int i = 0; i < DT_N_SINKS; i++)
        // the jsonl sink alone returns bytes
        if (m->queue[i])
            n_bytes += dt_metrics_queue_flush(m->queue[i]);
        else if (m->state[i] && sinks[i].sink->flush)
            n_bytes += sinks[i].sink->flush(m->state[i]);
    return n_bytes;
}

// -- the summary ---------------------------------------------------------------------------------
static void log_verdict(dt_metrics *m, const char *data_verdict) {
    const phase_sums *t = &m->total;
    char text[1024] = "";
    // by the ledger, which dt_metrics_flush has just published
    if (m->goodput.cores)
        snprintf(text, sizeof text, "the machine is busy: this process got %.1f of %d core%s; ", m->goodput.cores_got,
                 m->goodput.cores, m->goodput.cores == 1 ? "" : "s");
    const size_t at = strlen(text);
    dt_report_verdict(text + at, sizeof text - at, ratio(t->data_s, t->step_s), ratio(t->comm_s, t->step_s),
                      m->n_util ? m->util_sum / (double)m->n_util : NAN, data_verdict);
    dt_info("%s", text); // also in the run's log
    dt_metrics_line r = {.kind = DT_LINE_verdict, .step = m->last_step, .of.verdict = text};
    metrics_publish(m, &r);
}

static void log_lost(const dt_metrics *m) {
    for (int i = 0; i < DT_N_SINKS; i++) {
        // of a failing disk
        uint64_t n = m->state[i] && sinks[i].sink->dropped ? sinks[i].sink->dropped(m->state[i]) : 0;
        if (n) dt_warn("%" PRIu64 " records of the %s sink were lost to a failing disk", n, sinks[i].name);
        n = m->queue[i] ? dt_metrics_queue_dropped(m->queue[i]) : 0; // of a full queue
        if (n) dt_warn("%" PRIu64 " records of the %s sink were dropped: it could not keep up", n, sinks[i].name);
    }
}

static void log_goodput(const dt_metrics *m) {
    const dt_goodput *g = &m->goodput;
    const dt_goodput_part worst = dt_goodput_worst(g);
    double total = 0;
    for (int i = 0; i < DT_N_GOODPUT; i++) total += g->seconds[i];
    dt_info("goodput %.1f%%: %.1f s of optimizer steps in %.1f s since the run first started; "
            "attempt %" PRId64 ", %" PRId64 " steps repeated after restarts",
            100 * dt_goodput_ratio(g), g->seconds[DT_GOODPUT_steps], total, g->attempts, g->lost_steps);
    if (total > 0 && g->seconds[worst] >= 0.01 * total) // below 1 % nothing is worth advice
        dt_info("most time lost: %.1f%% in %s (%s); to reduce it: %s", 100 * g->seconds[worst] / total,
                dt_goodput_parts[worst].name, dt_goodput_parts[worst].what, dt_goodput_parts[worst].advice);
}

void dt_metrics_summary(dt_metrics *m, const char *data_verdict) {
    const phase_sums *t = &m->total;
    if (m->n_steps == 0) return;            // e.g. only an evaluation
    change_activity(m, DT_ACTIVITY_ending); // time since the last step counts up to here
    dt_metrics_flush(m);                    // from here on the number of dropped records is final
    dt_info("%s: %" PRId64 " steps to step %" PRId64 ", %" PRId64
            " samples in %.1f s, %.1f samples/s in steps, %.1f without the first, peak memory "
            "%.0f MiB",
            m->o.run_name, m->n_steps, m->last_step, m->n_samples, dt_clock_s() - m->opened_s,
            // with the first step, which compiles kernels
            ratio(t->samples + m->first.samples, t->step_s + m->first.step_s), ratio(t->samples, t->step_s),
            (double)dt_rss_peak_bytes() / 1048576.0);
    char parts[2][64] = {"", ""};
    if (t->forward_s > 0) {
        snprintf(parts[0], sizeof parts[0], " (forward %.1f%%, backward %.1f%%)", 100 * ratio(t->forward_s, t->step_s),
                 100 * ratio(t->backward_s, t->step_s));
        snprintf(parts[1], sizeof parts[1], " (optimizer %.1f%%)", 100 * ratio(t->optimizer_s, t->step_s));
    }
    dt_info("time in a step: data %.1f%%, compute %.1f%%%s, communication %.1f%%, other %.1f%%%s",
            100 * ratio(t->data_s, t->step_s), 100 * ratio(t->compute_s, t->step_s), parts[0],
            100 * ratio(t->comm_s, t->step_s), 100 * ratio(t->other_s, t->step_s), parts[1]);
    if (m->n_skipped) dt_info("%" PRId64 " steps were skipped (overflow)", m->n_skipped);
    log_lost(m);
    log_goodput(m);
    log_verdict(m, data_verdict);
}

void dt_metrics_close(dt_metrics *m, const dt_run_end *end) {
    if (!m) return;
    dt_watch_set_on_end(NULL, NULL); // before sinks go: the watch would use them
    if (end) {                       // a run that begins and fails leaves an end, an evaluation does not
        dt_metrics_line r = {.kind = DT_LINE_end, .step = end->step, .of.end = *end};
        if (m->activity != DT_ACTIVITY_ending) { // else the summary's ledger is the last
            change_activity(m, DT_ACTIVITY_ending);
            publish_goodput(m, DT_LINE_goodput);
        }
        metrics_publish(m, &r);
    }
    for (int i = 0; i < DT_N_SINKS; i++)
        // the queue's thread takes the rest, then closes the sink
        if (m->queue[i])
            dt_metrics_queue_destroy(m->queue[i]);
        else if (m->state[i])
            sinks[i].sink->close(m->state[i]);
    if (m->statm_fd >= 0) close(m->statm_fd);
    free(m->ranks);
    free(m->rank_values);
    free(m);
}

// ---- goodput ------------------------------------------------------------------------------------------------------

const dt_goodput_info dt_goodput_parts[DT_N_GOODPUT] = {
#define GOODPUT(id, what, advice) {#id, what, advice},
#include "observe/goodput.def"
#undef GOODPUT
};

static double total_s(const dt_goodput *g) {
    double sum = 0;
    for (int i = 0; i < DT_N_GOODPUT; i++) sum += g->seconds[i];
    return sum;
}

double dt_goodput_ratio(const dt_goodput *g) {
    const double total = total_s(g); // 0: no time has passed
    return total > 0 ? g->seconds[DT_GOODPUT_steps] / total : 0;
}

dt_goodput_part dt_goodput_worst(const dt_goodput *g) {
    // steps are what counts: not among the parts to reduce
    int worst = DT_GOODPUT_steps + 1;
    for (int i = worst; i < DT_N_GOODPUT; i++)
        if (g->seconds[i] > g->seconds[worst]) worst = i;
    return (dt_goodput_part)worst;
}

void dt_goodput_write(const dt_goodput *g, dt_json *j) {
    dt_json_int(j, "attempt", g->attempts);
    dt_json_real(j, "goodput", dt_goodput_ratio(g));
    dt_json_int(j, "lost_steps", g->lost_steps);
    if (g->cores) dt_json_real(j, "cores_got", g->cores_got);
    if (g->cores) dt_json_int(j, "cores_usable", g->cores);
    dt_json_string(j, "raise", dt_goodput_parts[dt_goodput_worst(g)].name);
    dt_json_begin_object(j, "seconds");
    for (int i = 0; i < DT_N_GOODPUT; i++) dt_json_seconds(j, dt_goodput_parts[i].name, g->seconds[i]);
    dt_json_end_object(j);
}

// ---- of earlier attempts ---------------------------------------------------------------------------

static double member(const json_t *object, const char *name) {
    const double v = json_number_value(json_object_get(object, name));
    return isfinite(v) && v > 0 ? v : 0; // a damaged line adds nothing
}

static bool is_kind(const char *line, const char *kind) {
    const size_t n = strlen(kind);
    // a prefix of bytes: most lines need not be parsed
    return strncmp(line, "{\"kind\":\"", 9) == 0 && strncmp(line + 9, kind, n) == 0 && line[9 + n] == '"';
}

static bool has_ledger(const char *line) {
    return is_kind(line, "goodput") || is_kind(line, "start");
}

static void take_ledger(dt_goodput *g, const json_t *line) {
    const json_t *seconds = json_object_get(line, "seconds");
    // sums of all attempts up to that line
    for (int i = 0; i < DT_N_GOODPUT; i++) g->seconds[i] = member(seconds, dt_goodput_parts[i].name);
    g->attempts = (int64_t)member(line, "attempt");
    g->lost_steps = (int64_t)member(line, "lost_steps");
}

// as account_step, from the numbers of the file
// Whether the step of a line counted.
static bool add_step(dt_goodput *g, const json_t *line) {
    const json_t *seconds = json_object_get(line, "seconds");
    const double step = member(seconds, "step"), data = member(seconds, "data"), comm = member(seconds, "comm");
    const bool skipped = json_is_true(json_object_get(line, "skipped"));
    g->seconds[skipped ? DT_GOODPUT_lost : DT_GOODPUT_steps] += skipped ? step : fmax(step - data - comm, 0);
    g->seconds[DT_GOODPUT_data] += skipped ? 0 : data;
    g->seconds[DT_GOODPUT_comm] += skipped ? 0 : comm;
    return !skipped;
}

// Offset of the last line that has a ledger; -1: there is none.
static off_t find_ledger(const char *path) {
    dt_lines lines;
    off_t found = -1;
    size_t n;
    dt_lines_open(&lines, path, 0);
    // of several the last: later ledgers contain earlier ones
    for (char *line; (line = dt_lines_next(&lines, &n));)
        if (has_ledger(line)) found = lines.at - (off_t)n - 1; // the line's begin: lines.at is behind its line break
    dt_lines_close(&lines);
    return found;
}

// The ledger has the sums as of its line; steps behind it are added, and steps behind keep_bytes, which will be done
// again, are moved to lost.
// Returns whether a run that had ended goes on. *last_s: when a line was written last.
static bool read_steps(dt_goodput *g, const char *path, off_t ledger, int64_t keep_bytes, double *last_s) {
    dt_lines lines;
    struct stat info;
    size_t n;
    bool finished = false;
    dt_goodput lost = {0}; // steps behind keep_bytes, whichever side of the ledger they are on
    // the earlier of both
    if (dt_lines_open(&lines, path, keep_bytes < ledger ? keep_bytes : ledger) && fstat(lines.fd, &info) == 0)
        // file's time: a killed run wrote no end
        *last_s = (double)info.st_mtim.tv_sec + 1e-9 * (double)info.st_mtim.tv_nsec;
    for (char *line; (line = dt_lines_next(&lines, &n));) {
        const off_t at = lines.at - (off_t)n - 1;
        const bool is_step = is_kind(line, "step"), is_end = is_kind(line, "end");
        // evaluations and others take no part
        if (!is_step && !is_end && at != ledger) continue;
        json_t *object = json_loadb(line, n, 0, NULL);
        if (at == ledger) {
            take_ledger(g, object);
            *last_s = fmax(*last_s, member(object, "time")); // the wall clock of the line
        }
        // already in the ledger where before it
        if (is_step && at > ledger) add_step(g, object);
        if (is_step && at >= keep_bytes) lost.lost_steps += add_step(&lost, object);
        // of the last line of these kinds
        finished = is_end && json_integer_value(json_object_get(object, "status")) == DT_OK;
        json_decref(object);
    }
    dt_lines_close(&lines);
    // 0..comm are the parts that steps have
    for (int i = 0; i <= DT_GOODPUT_comm; i++) {
        g->seconds[i] = fmax(g->seconds[i] - lost.seconds[i], 0); // rounding may leave a little below 0
        g->seconds[DT_GOODPUT_lost] += lost.seconds[i];
    }
    g->lost_steps += lost.lost_steps;
    return finished;
}

// started_s: wall clock when this process began
void dt_goodput_resume(dt_goodput *g, const char *path, int64_t keep_bytes, double started_s) {
    double last_s = started_s;
    *g = (dt_goodput){0};
    const off_t ledger = find_ledger(path);
    // waiting in a queue, or down, counts between attempts
    // a run that had ended and goes on longer was not waiting
    if (ledger >= 0 && !read_steps(g, path, ledger, keep_bytes > 0 ? keep_bytes : 0, &last_s))
        g->seconds[DT_GOODPUT_waiting] += fmax(started_s - last_s, 0);
    g->attempts++; // 1 for a run that never ran
}
