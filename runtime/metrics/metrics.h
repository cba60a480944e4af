// metrics.h: one record a step (or evaluation) to all sinks of config/sinks.def.
// A sink also hears how the run ended, unless it was killed.
//
// metrics.jsonl has one object a line: {"kind":"step","step":…,"epoch":…,"samples":…,"loss":…,"lr":…,
// "grad_norm":…,"samples_per_s":…,"seconds":{"step","data","compute","comm","other"},"rss":…} or
// {"kind":"eval","split":…,"step":…,…metrics}, and at last {"kind":"end","step":…,"status":…,"message":…}. Resume truncates it to the offset in the checkpoint.
// Writing never hurts training: a full disk drops lines and counts them. Rank 0 only.
#ifndef DT_METRICS_METRICS_H
#define DT_METRICS_METRICS_H

#include "base/status.h"
#include "config/listen.h"
#include "config/words.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct dt_metrics dt_metrics;

typedef struct dt_metrics_opts {
    const char *run_dir, *run_name; // must outlive the metrics
    unsigned sinks;                 // bit DT_SINK_<id> of each that is wanted
    int every_steps;                // plain lines in a pipe, tfevents
    dt_listen listen;               // of the prometheus sink
    const char *listen_text;        // as it was given, for messages
    int64_t total_steps;            // for bar and ETA
    int64_t steps_per_epoch;        // for the epoch bar
    int n_epochs;
    int64_t truncate_to; // metrics.jsonl offset to resume from; < 0: start anew
} dt_metrics_opts;

typedef struct dt_step_record {
    int64_t step;    // steps committed so far, 1 after the first
    double epoch;    // fractional
    int64_t samples; // seen so far
    double loss, lr, grad_norm;
    double step_s, data_s, compute_s, comm_s, other_s; // seconds of this step, by phase
    double idle_s; // of compute_s: the host waited for its device; 0 without one
    int64_t global_batch;
    bool skipped;      // overflow or NaN: nothing was committed
    double loss_scale; // of fp16, after this step; 0: losses are not scaled
} dt_step_record;

typedef struct dt_metric_value {
    const char *name;
    double value;
} dt_metric_value;

typedef struct dt_run_end {
    int64_t step;        // steps committed
    dt_status status;    // the exit code of the process
    const char *message; // of a failure
} dt_run_end;

dt_status dt_metrics_open(dt_metrics **out, const dt_metrics_opts *opts);
void dt_metrics_step(dt_metrics *m, const dt_step_record *r); // no allocation in steady state
// extra_json: NULL or raw JSON members to add ("\"confusion\":{…}").
void dt_metrics_eval(dt_metrics *m, const char *split, int64_t step, const dt_metric_value *values,
                     int n_values, const char *extra_json);
// A rank that holds the others up: `times` as long as the median, most of it in `phase`. To metrics.jsonl:
// {"kind":"slow_rank","step":…,"rank":…,"host":…,"phase":…,"times":…}.
void dt_metrics_slow_rank(dt_metrics *m, int64_t step, int rank, const char *host,
                          const char *phase, double times);
// A named phase for the terminal's live line ("evaluating", "saving"); NULL ends it.
void dt_metrics_phase(dt_metrics *m, const char *what);
int64_t dt_metrics_flush(dt_metrics *m); // to the files; metrics.jsonl's size in bytes, or 0
// The final summary: what ran, rates, shares of data / compute / comm, what limited the run and what
// would help. data_verdict: what to say if that is data (from the loader's counters), or NULL. To stderr.
void dt_metrics_summary(dt_metrics *m, const char *data_verdict);
// end: NULL where no run ends.
void dt_metrics_close(dt_metrics *m, const dt_run_end *end);

#endif
