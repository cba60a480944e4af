// trainer_internal.h: what trainer.c and saving.c share. Not for others.
#ifndef DT_TRAIN_TRAINER_INTERNAL_H
#define DT_TRAIN_TRAINER_INTERNAL_H

#include "eval/evaluate.h"
#include "observe/metrics.h"
#include "run/schedule.h"
#include "run/state.h"
#include "train/bottleneck.h"
#include "train/slow_rank.h"
#include "train/step.h"
#include "train/timeline.h"
#include "train/trainer.h"

typedef struct trainer {
    dt_open_run run;
    dt_nets nets;
    dt_state *state;
    dt_stepper *stepper;
    dt_evaluator *evaluator; // made when it is first needed
    dt_net evaluated;        // the network that the evaluator runs
    dt_metrics *metrics;     // rank 0
    dt_batch_source *source;
    dt_tuner tuner;
    dt_source_stats first; // counters after the first step, so that the start does not count
    int64_t n_steps;       // that this process has done
    bool save_is_open;     // rank 0: the outcome of the newest save is not known yet
    dt_schedule schedule;
    int64_t eval_every, save_every, verify_every,
        saved_step; // saved_step: of the newest save; -1: none
    int failed_saves;
    double slowest_step_s;
    size_t free_bytes; // of a device before memory was taken; 0: the plan has been compared with what is free
    dt_slow_rank slow;
    dt_timeline timeline;
    dt_json results;     // the records of result.json, a line each
    dt_eval_result last; // of the validation, at step last_step; < 0: there was none yet
    int64_t last_step;
} trainer;

static inline bool trainer_is_root(const trainer *t) {
    return dt_run_is_root(&t->run);
}

// Ends the run where ranks no longer hold the same weights (run.verify_every). Collective.
dt_status dt_trainer_verify(trainer *t);

// The stepper of the run's replicas and phase, and the training's source, which becomes the stepper's.
dt_status dt_trainer_make_stepper(trainer *t);
dt_status dt_trainer_open_source(trainer *t);

// ---- saving.c --------------------------------------------------------------------------------------

dt_status dt_trainer_save(trainer *t, bool best);
// Waits for the save under way, if there is one. must_hold: one that failed is an error, else a warning.
dt_status dt_trainer_settle_save(trainer *t, bool must_hold);
// The evaluator of weights that `done` steps have made. On a device its memory is taken before step 0.
dt_status dt_trainer_make_evaluator(trainer *t, int64_t done);
// The validation split. Its result goes to the history, to the metrics, and decides which checkpoint is the best.
dt_status dt_trainer_evaluate(trainer *t, bool *is_best);
// The first lines of the results: of the training, and of the validation with the last weights.
dt_status dt_trainer_report(trainer *t);
// Evaluates the test split. name: of the evaluation, in metrics.jsonl; weights: what result.json calls its weights.
dt_status dt_trainer_test(trainer *t, const char *name, const char *weights, int64_t step);

#endif
