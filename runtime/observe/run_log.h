// run_log.h: what a run directory says of its run: metrics.jsonl, decimated as it is read, and result.json.
//
// The run may be finished or still write, on any machine that sees the directory. metrics.jsonl is
// read once, line by line; dt_run_log_read_on reads what was added since, and all of it again where a resumed run has
// cut the file. Lines of steps, of which there are millions, are scanned for the numbers that are wanted; the others
// are parsed by jansson. A line that is no whole record is counted and left out; so is a kind of record that this
// version does not know. Memory does not grow with the number of steps.
#ifndef DT_REPORT_RUN_LOG_H
#define DT_REPORT_RUN_LOG_H

#include "base/core.h"
#include "observe/result_file.h"
#include "observe/series.h"

#include <jansson.h>
#include <sys/types.h>

// Numbers of a step that are kept. The seconds of its phases are the last.
typedef enum dt_run_number {
    DT_RUN_LOSS,
    DT_RUN_LR,
    DT_RUN_GRAD_NORM,
    DT_RUN_RATE, // samples a second
    DT_RUN_RSS,
    DT_RUN_QUEUE,
    DT_RUN_QUEUE_SLOTS,
    DT_RUN_STEP_S,
    DT_RUN_DATA_S,
    DT_RUN_COMPUTE_S,
    DT_RUN_COMM_S,
    DT_RUN_OTHER_S,
    DT_RUN_FORWARD_S, // of compute and other; empty on a device
    DT_RUN_BACKWARD_S,
    DT_RUN_OPTIMIZER_S,
    DT_RUN_GPU_UTIL, // of rank 0's GPU (metrics.h), empty without one
    DT_RUN_GPU_POWER,
    DT_RUN_GPU_TEMP,
    DT_RUN_GPU_MEM,
    DT_RUN_GPU_CLOCK,
    DT_RUN_N_NUMBERS
} dt_run_number;

// A metric of an evaluation.
typedef struct dt_run_metric {
    char *split, *name;
    dt_series series;
    int64_t step; // of the newest value
} dt_run_metric;

// A record that is neither a step nor an evaluation.
typedef struct dt_run_event {
    int64_t step;
    json_t *record;
} dt_run_event;

enum { DT_RUN_METRICS = 4096, DT_RUN_EVENTS = 256 }; // more are left out

typedef struct dt_run_log {
    char *dir, *name; // name: the last part of its path, or all of it where several runs have that
    int64_t step;     // of the newest record of a step; 0: none
    double epoch;
    int64_t samples;
    dt_series numbers[DT_RUN_N_NUMBERS];
    double phase_s[DT_RUN_N_NUMBERS]; // sums without the first step, of the numbers from STEP_S on
    int64_t n_steps, n_skipped;
    dt_run_metric *metrics;
    int n_metrics;
    json_t **evals; // the newest record of each split
    int n_evals;
    dt_run_event *events;
    int n_events;
    json_t *end;      // the last record, if it says how the run ended; borrowed from events
    json_t *results;  // array: the records of result.json; empty where the run is not finished
    double written_s; // when metrics.jsonl was written to, seconds since the epoch
    int64_t n_bad;    // lines that are no records
    // of the reader:
    ino_t inode;
    off_t at; // behind the last whole line that was read
    int hint; // the metric that was found last
    double phase_first_s[DT_RUN_N_NUMBERS];
} dt_run_log;

// Opens a run directory and reads its files. DT_E_USAGE: `dir` is no run with metrics.jsonl, or a newer dtrain wrote it.
// Close *out in any case.
dt_status dt_run_log_open(dt_run_log **out, const char *dir);
// Every attempt begins with a record that has the version of its lines: DT_E_USAGE where `record` is one of a newer dtrain.
dt_status dt_run_log_check_record(const char *path, const json_t *record);
// Opens those of n paths that are runs with metrics.jsonl, so that runs/sweep/* may be given, and those in folders that
// are none, such as runs/sweep: *n_open of them, in *out (heap). DT_E_USAGE: a path does not exist, or none is such a run. Close and free them in any case.
dt_status dt_run_log_open_all(dt_run_log ***out, int *n_open, const char *const *paths, int n);
// The same of those that are not among *runs yet, behind which they come: a sweep begins one run after the other.
dt_status dt_run_log_open_new(dt_run_log ***runs, int *n_runs, const char *const *paths, int n);
void dt_run_log_close_all(dt_run_log **runs, int n);
// Reads what was written since the last call. True: there was something.
bool dt_run_log_read_on(dt_run_log *r);
void dt_run_log_close(dt_run_log *r);

// Whether a member of a record of an evaluation is one of its metrics.
bool dt_run_is_metric(const char *name, const json_t *value);
// Whether a metric is of a single class, such as "recall.cat" beside "recall", or a count of samples: tables and screens
// leave those out.
bool dt_run_is_detail(const dt_run_log *r, const char *name);
// The newest record of an evaluation of this split, or NULL.
json_t *dt_run_log_eval(const dt_run_log *r, const char *split);
const dt_run_metric *dt_run_log_metric(const dt_run_log *r, const char *split, const char *name);
// The newest event of a kind, or NULL.
json_t *dt_run_log_event(const dt_run_log *r, const char *kind);
// Rank i's own seconds of a step, by the arrays of a record `ranks`: what others may have waited for.
double dt_run_own_s(const json_t *data_s, const json_t *compute_s, int i);
// What the best checkpoint is chosen by; NULL: not known.
const char *dt_run_log_chosen_by(const dt_run_log *r);
// Whether the metric that chooses the run's best checkpoint is better when lower; NULL: the run does not say.
const json_t *dt_run_log_is_lower(const dt_run_log *r);
// The best validation value of a metric so far (lower: whether less is better; of NULL the newest), and its step.
double dt_run_log_best_value(const dt_run_log *r, const char *name, const json_t *lower, int64_t *step);
// Steps of the whole run, or 0: not known.
int64_t dt_run_log_total_steps(const dt_run_log *r);

typedef enum dt_run_status {
    DT_RUN_GOES_ON,
    DT_RUN_SILENT,
    DT_RUN_FINISHED,
    DT_RUN_STOPPED,
    DT_RUN_FAILED
} dt_run_status;
// How the run stands, with a line for people. STOPPED: also without a last record, where nobody holds the run's lock and
// nothing was written for 10 s. SILENT: nothing was written for longer than a run is ever silent.
dt_run_status dt_run_log_state(const dt_run_log *r, char *text, size_t cap);

#endif
