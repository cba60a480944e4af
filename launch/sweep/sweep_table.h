// sweep_table.h: the runs of a sweep (sweep_runs.c), and their results as a table (sweep_table.c).
#ifndef DT_LAUNCH_SWEEP_TABLE_H
#define DT_LAUNCH_SWEEP_TABLE_H

#include "launch/launch.h"

#include "config/words.h"

#include <jansson.h>
#include <stdio.h>

// A key of the command line and its values; one that has a single value does not vary.
typedef struct dt_sweep_variable {
    char *key;
    const char *name; // short; within key
    char **values;
    int n;
    bool drawn; // log(a,b,n) or uniform(a,b,n)
    int with;   // drawn: the first drawn variable, with which this one varies; else this variable
} dt_sweep_variable;

typedef struct dt_sweep_run {
    char *name; // the name of the run's directory
    enum { SWEEP_WAITS, SWEEP_RUNS, SWEEP_ENDED } phase;
    int code;         // exit code
    int64_t stop_at;  // --early-stop: the step at which the run pauses; 0: none
    bool dropped;     // --early-stop: the run does not go on
    double begin_s;   // clock
    int64_t old_step; // of the newest validation when the run was started; -1: none
    json_t *lines[3]; // results of the run's best checkpoint, by dt_split; NULL: none
    json_t *pooled;   // in the first run of a configuration: the pooled results of its folds
    char *best;       // the name of the number that the best checkpoint was chosen by; NULL: no result
} dt_sweep_run;

typedef struct sweep {
    const char *config;
    char *dir;    // of the sweep: run.dir/run.name
    char *mirror; // checkpoint.mirror with run.name below; NULL: none
    dt_sweep_variable *variables;
    int n_variables;
    dt_sweep_run *runs;
    int n_runs;
    // The metric that orders the table, and the part it is measured on; NULL: the one that chose the best checkpoints.
    const char *metric;
    dt_split metric_part;
    bool metric_is_there; // a validation of this sweep has it
    int top;              // rows of the printed table; 0: all
    int lock_fd;          // DIR/sweep.lock: a byte for each run that some sweep trains; -1: not open
} sweep;

// "CONFIG key=a,b,c …" -> the runs; each run's config is checked, so that a mistake in any is found before the first
// begins. Call fini after a failure, too.
dt_status dt_sweep_read(sweep *s, const dt_cli_words *w);
void dt_sweep_fini(sweep *s);
// The words behind `dtrain` that make the run: train CONFIG key=value … run.dir=… run.name=… Heap, ended by NULL.
char **dt_sweep_run_words(const sweep *s, int run);
void dt_sweep_free_words(char **words);
// The run's config, as dtrain train loads it.
dt_status dt_sweep_load_config(const sweep *s, int run, dt_config **out);
// The value of variable i in a run; the last variable changes fastest.
const char *dt_sweep_value(const sweep *s, int run, int i);
// From the run's result.json: the lines that count. Without one the run has no result.
dt_status dt_sweep_read_result(sweep *s, int run);
// The record of the validation at a step, or the newest if step < 0, from the run's metrics.jsonl; NULL: there is none.
// The caller frees it.
json_t *dt_sweep_validation_at(const sweep *s, int run, int64_t step);
int64_t dt_sweep_step_of(const json_t *record);  // -1 of NULL
bool dt_sweep_has_result(const dt_sweep_run *r); // dt_sweep_read_result found one
// Whether the variable is a fold or a seed: such runs repeat a configuration.
bool dt_sweep_is_repeat(const dt_sweep_variable *v);
bool dt_sweep_is_fold(const dt_sweep_variable *v);
bool dt_sweep_same_configuration(const sweep *s, int a, int b);
// Whether data.split.fold varies. dt_sweep_pool then writes the pooled results of each configuration whose folds are all
// done: predictions.csv (predictions,lr=1e-3.csv of several configurations) and pooled.json, by child processes.
struct dt_cli_jobs;
bool dt_sweep_has_folds(const sweep *s);
dt_status dt_sweep_pool(sweep *s, struct dt_cli_jobs *jobs);
bool dt_sweep_is_first(const sweep *s, int run); // whether the run is the first of its configuration
// DT_E_USAGE: no run has --metric; `other` is a record of results that lacks it, or NULL.
dt_status dt_sweep_fail_metric(const sweep *s, const json_t *other);
// Whether less is better, by the last part of the name.
bool dt_sweep_metric_is_lower(const char *metric);
// Writes DIR/sweep.csv (a row for each configuration), DIR/runs.csv (for each run), and the first as text to out. The
// order is that of the validation; without one it is the test's, with a warning.
dt_status dt_sweep_write_table(const sweep *s, FILE *out);

#endif
