// sweep_table.h: the runs of a sweep (sweep_runs.c), and their results as a table (sweep_table.c).
#ifndef DT_LAUNCH_SWEEP_TABLE_H
#define DT_LAUNCH_SWEEP_TABLE_H

#include "launch.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

// A key of the command line and its values; one that has a single value does not vary.
typedef struct sweep_variable {
    char *key;
    const char *name; // short; within key
    char **values;
    int n;
    bool drawn; // log(a,b,n) or uniform(a,b,n)
    int with;   // drawn: the first drawn variable, in whose steps it goes; else itself
} sweep_variable;

typedef enum sweep_part { SWEEP_VAL, SWEEP_TEST } sweep_part;

typedef struct sweep_run {
    char *name; // of its directory
    enum { SWEEP_WAITS, SWEEP_RUNS, SWEEP_ENDED } phase;
    int code;         // exit code
    int64_t stop_at;  // --early-stop: the step at which it pauses; 0: none
    bool dropped;     // --early-stop: it does not go on
    double begin_s;   // clock
    json_t *lines[2]; // of its best checkpoint, by sweep_part; NULL: none
    json_t *pooled;   // what its configuration's folds say together, if it is the first of them
    char *best; // the name of the number that the best checkpoint was chosen by; NULL: no result
} sweep_run;

typedef struct sweep {
    const char *config;
    char *dir; // of the sweep: run.dir/run.name
    sweep_variable *variables;
    int n_variables;
    sweep_run *runs;
    int n_runs;
    const char *metric; // "val.accuracy": what orders; NULL: what chose the best checkpoints
    int top;            // so many rows as text; 0: all
    int lock_fd;        // DIR/sweep.lock: a byte for each run that some sweep trains; -1: not open
} sweep;

// "CONFIG key=a,b,c …" -> the runs; each is checked, so that a mistake in any is found before the first begins. Fini
// also what failed.
dt_status sweep_read(sweep *s, const launch_words *w);
void sweep_fini(sweep *s);
// The words behind `dtrain` that make the run: train CONFIG key=value … run.dir=… run.name=… Heap, ended by NULL.
char **sweep_run_words(const sweep *s, int run);
void sweep_free_words(char **words);
// The value of variable i in a run; the last variable changes fastest.
const char *sweep_value(const sweep *s, int run, int i);
// From the run's result.json: the lines that count. Without one the run has no result.
void sweep_read_result(sweep *s, int run);
// What the validation at a step measured, from the run's metrics.jsonl; NULL: there was none. The caller's.
json_t *sweep_validation_at(const sweep *s, int run, int64_t step);
bool sweep_has_result(const sweep_run *r); // sweep_read_result found one
// Folds and seeds repeat a configuration.
bool sweep_is_repeat(const sweep_variable *v);
bool sweep_same_configuration(const sweep *s, int a, int b);
// Whether data.split.fold varies, and then what the folds of each configuration that is whole say together:
// predictions.csv (…,lr=1e-3.csv of several configurations) and pooled.json, from child processes.
struct launch_jobs;
bool sweep_has_folds(const sweep *s);
dt_status sweep_pool(sweep *s, struct launch_jobs *jobs);
bool sweep_is_first(const sweep *s, int run);   // of its configuration
bool sweep_metric_is_lower(const char *metric); // whether less is better; by its last name
// --early-stop halving: trains as far as it is worth it. train: all runs that wait, each to its stop_at or its end.
dt_status sweep_check_halving(const sweep *s);
bool sweep_is_at_rung(const sweep *s, int run);
dt_status sweep_halve(sweep *s, dt_status (*train)(sweep *s, void *ctx), void *ctx);
// Writes DIR/sweep.csv (a row for each configuration), DIR/runs.csv (for each run), and the first as text to out. The
// order is that of the validation; without one it is the test's, with a warning.
dt_status sweep_write_table(const sweep *s, FILE *out);

#endif
