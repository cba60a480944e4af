// metrics.h: what happens in a run, to all sinks of config/sinks.def, and the ledger of its seconds (goodput.h).
//
// A sink never slows or fails a run. One that writes has a bounded queue and a thread of its own: a step copies its
// record into the queue and goes on. Where the queue is full, or the disk is, records are dropped, counted, and the
// summary says so. Prometheus's endpoint keeps the newest numbers and answers on its own thread. Only the terminal's
// lines are written by the caller: they stand between those of the log. A sink also hears how the run ended, unless it
// was killed.
//
// docs/reference/metrics.md has the lines of metrics.jsonl. Resume truncates it to the offset in the checkpoint.
// Rank 0 only. One thread at a time, but for dt_metrics_checkpoint.
#ifndef DT_METRICS_METRICS_H
#define DT_METRICS_METRICS_H

#include "base/core.h"
#include "config/config.h"
#include "config/param_groups.h"

typedef struct dt_metrics dt_metrics;

typedef struct dt_metrics_opts {
    const char *run_dir, *run_name; // all texts must outlive the metrics
    unsigned sinks;                 // bit DT_SINK_<id> of each that is wanted
    int every_steps;                // plain lines in a pipe, tfevents; at least 1
    dt_listen listen;               // of the prometheus sink
    const char *listen_text;        // `listen` as the config has it, for messages
    const char *textfile;           // of prometheus: a folder for node_exporter, or NULL
    const char *file_sd;            // of prometheus: a folder of its service discovery, or NULL
    double linger_s;                // of prometheus: how long it answers after the end, until one more scrape
    bool (*is_stopped)(void);       // a signal wants the end of what is still sent after the run; or NULL
    const char *mlflow_uri, *mlflow_experiment; // of the mlflow sink
    bool mlflow_model;
    dt_config *config;          // of mlflow: its params; read at once
    dt_config *given;           // as the user gave it, with its autos; or NULL; read at once
    const char *version;        // of dtrain
    const char *machine, *data; // described in a line; or NULL
    int64_t n_samples[3];       // by dt_split
    const char *chosen_by;      // what the best checkpoint is chosen by, or NULL
    bool lower_is_better;       // whether that number is better when lower
    int world_size;
    int threads;             // that compute on the CPU; 0: a device computes
    int64_t first_step;      // done before this attempt
    int64_t total_steps;     // for bar and ETA
    int64_t steps_per_epoch; // for the epoch bar
    int n_epochs;
    int64_t truncate_to; // metrics.jsonl offset to resume from; < 0: start anew; INT64_MAX: nothing more is trained
} dt_metrics_opts;

typedef struct dt_step_line {
    int64_t step;    // steps committed so far, 1 after the first
    double epoch;    // fractional
    int64_t samples; // seen so far
    double loss, lr, grad_norm;
    double step_s, data_s, compute_s, comm_s, other_s; // seconds of this step, by phase
    double idle_s;                                     // of compute_s: the host waited for its device; 0 without one
    double forward_s, backward_s, optimizer_s;         // of compute_s and other_s; 0: not known (a device)
    int queue, queue_slots;                            // batches that are ready, and that could be; 0 slots: not known
    int64_t global_batch;
    bool skipped;      // overflow or NaN: nothing was committed
    double loss_scale; // of fp16, after this step; 0: losses are not scaled
} dt_step_line;

typedef struct dt_metric_value {
    const char *name;
    double value;
} dt_metric_value;

typedef struct dt_run_end {
    int64_t step;        // steps committed
    dt_status status;    // the exit code of the process
    const char *message; // of a failure
} dt_run_end;

// What the run does now.
#define DT_ACTIVITY_WORDS(W)                                                                                           \
    W(ACTIVITY, starting)                                                                                              \
    W(ACTIVITY, training)                                                                                              \
    W(ACTIVITY, evaluating)                                                                                            \
    W(ACTIVITY, testing) W(ACTIVITY, saving) W(ACTIVITY, waiting) W(ACTIVITY, ending)
typedef enum dt_activity { DT_ACTIVITY_WORDS(DT_WORD_CONSTANT) } dt_activity;
enum { DT_N_ACTIVITIES = DT_ACTIVITY_ending + 1 };

dt_status dt_metrics_open(dt_metrics **out, const dt_metrics_opts *opts);
void dt_metrics_step(dt_metrics *m, const dt_step_line *r); // no allocation in steady state
// extra_json: NULL or raw JSON members to add ("\"confusion\":{…}").
void dt_metrics_eval(dt_metrics *m, const char *split, int64_t step, const dt_metric_value *values, int n_values,
                     const char *extra_json);
// A rank that holds the others up: `times` as long as the median, most of it in `phase`. To metrics.jsonl:
// {"kind":"slow_rank","step":…,"rank":…,"host":…,"phase":…,"times":…}.
void dt_metrics_slow_rank(dt_metrics *m, int64_t step, int rank, const char *host, const char *phase, double times);
// What the run does from now on; it starts with `starting`, and the first step makes that `training`. The terminal's
// live line shows it; time that is not training's goes to the ledger.
// Returns what it did before.
dt_activity dt_metrics_activity(dt_metrics *m, dt_activity what);
// The outcome of a save; from any thread. seconds: from its begin until it was acknowledged.
void dt_metrics_checkpoint(dt_metrics *m, int64_t step, double seconds, bool saved);
int64_t dt_metrics_flush(dt_metrics *m); // waits for the queues; metrics.jsonl's size in bytes, or 0
// The final summary: what ran, rates, shares of data / compute / comm, what limited the run and what
// would help, and the goodput with what would raise it most, to stderr. data_verdict: what to say if data limits the run
// (from the loader's counters), or NULL.
void dt_metrics_summary(dt_metrics *m, const char *data_verdict);
// end: NULL where no run ends.
void dt_metrics_close(dt_metrics *m, const dt_run_end *end);

#endif
