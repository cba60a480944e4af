// schedule.h: the learning rate as a pure function of (step, evaluation history). Nothing to save: a
// resumed run asks the same function with the history that its checkpoint holds.
//
// A schedule is a line of config/schedules.def and a file schedule_<id>.c with dt_schedule_<id>. The values of the
// line's keys are in `own`, in their order.
#ifndef DT_TRAIN_SCHEDULE_H
#define DT_TRAIN_SCHEDULE_H

#include "config/config.h"
#include "config/words.h"
#include "run/run_state.h"

enum { DT_MAX_SCHEDULE_KEYS = 4 };

typedef struct dt_schedule {
    dt_schedule_id kind;
    double lr;
    double own[DT_MAX_SCHEDULE_KEYS]; // amounts in steps
    int64_t warmup_steps;             // linear, in front of every kind
    int64_t total_steps;
    bool lower_is_better; // how values of the history compare
} dt_schedule;

typedef struct dt_schedule_rule {
    // The rate behind the warm-up. step, history: as for dt_schedule_lr.
    double (*rate)(const dt_schedule *s, int64_t step, const dt_eval_point *history, int n);
    bool follows_evaluations; // reads the history
    bool keeps_fractions;     // of its own amounts; else they are whole steps
} dt_schedule_rule;
#define WORD(id, ...) extern const dt_schedule_rule dt_schedule_##id;
#include "config/schedules.def"
#undef WORD
extern const dt_schedule_rule *const dt_schedules[DT_N_SCHEDULES];

// Reads train.schedule and train.optimizer.lr.
void dt_schedule_init(dt_schedule *s, const dt_config *c, int64_t total_steps, int64_t steps_per_epoch,
                      bool lower_is_better);
// Learning rate of 0-based step `step`; history[0..n): eval.best so far, oldest first.
double dt_schedule_lr(const dt_schedule *s, int64_t step, const dt_eval_point *history, int n_history);

// Whether something that happens every `every` steps is due when `done` steps are done.
bool dt_amount_due(int64_t every, int64_t done);

#endif
