// schedule.h: the learning rate as a pure function of (step, evaluation history). Nothing to save: a
// resumed run asks the same function with the history that its checkpoint holds.
#ifndef DT_TRAIN_SCHEDULE_H
#define DT_TRAIN_SCHEDULE_H

#include "config/config.h"

typedef enum dt_schedule_kind {
    DT_SCHEDULE_CONSTANT,
    DT_SCHEDULE_COSINE,
    DT_SCHEDULE_STEP,
    DT_SCHEDULE_PLATEAU
} dt_schedule_kind;

typedef struct dt_schedule {
    dt_schedule_kind kind;
    double lr, min_lr, gamma;
    int64_t warmup_steps; // linear, in front of every kind
    int64_t every_steps;  // step
    int64_t total_steps;  // cosine ends here
    int patience;         // plateau: evaluations without improvement
    bool lower_is_better; // plateau: how values of the history compare
} dt_schedule;

// Reads train.schedule and train.optimizer.lr.
void dt_schedule_init(dt_schedule *s, const dt_config *c, int64_t total_steps,
                      int64_t steps_per_epoch, bool lower_is_better);
// Learning rate of 0-based step `step`; history[0..n): values of eval.best so far, oldest first (only
// plateau reads them). O(1) but for plateau, which is O(n).
double dt_schedule_lr(const dt_schedule *s, int64_t step, const double *history, int n_history);

// An amount as steps: percent of total_steps, epochs of steps_per_epoch; 0 only if the amount is,
// as 1% of a short run must not mean never.
int64_t dt_amount_steps(dt_amount a, int64_t total_steps, int64_t steps_per_epoch);
// Whether something that happens every `every` steps is due when `done` steps are done.
bool dt_amount_due(int64_t every, int64_t done);

#endif
