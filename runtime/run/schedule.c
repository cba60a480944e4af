// schedule.c: the warm-up, and the table of what may follow it.

#include "run/schedule.h"

#include <assert.h>
#include <math.h>

const dt_schedule_rule *const dt_schedules[DT_N_SCHEDULES] = {
#define WORD(id, ...) &dt_schedule_##id,
#include "config/schedules.def"
#undef WORD
};

bool dt_amount_due(int64_t every, int64_t done) {
    return every > 0 && done > 0 && done % every == 0; // not at step 0: nothing has been trained
}

void dt_schedule_init(dt_schedule *s, const dt_config *c, int64_t total_steps, int64_t steps_per_epoch,
                      bool lower_is_better) {
    *s = (dt_schedule){.kind = c->train.schedule.name,
                       .lr = c->train.optimizer.lr,
                       .warmup_steps = dt_amount_steps(c->train.schedule.warmup, total_steps, steps_per_epoch),
                       .total_steps = total_steps,
                       .lower_is_better = lower_is_better};
    const dt_config_key *k;
    // keys that belong to this schedule, in the order of schedules.def
    for (int i = 0; (k = dt_config_owned(c, DT_KEY(train.schedule.name), i)); i++) {
        assert(i < DT_MAX_SCHEDULE_KEYS);
        const dt_amount a = k->kind == DT_T_AMOUNT ? dt_config_amount(c, k->path) : (dt_amount){0};
        if (k->kind != DT_T_AMOUNT)
            dt_config_number(c, k->path, &s->own[i]);
        else if (dt_schedules[s->kind]->keeps_fractions)
            s->own[i] = dt_amount_exact(a, total_steps, steps_per_epoch);
        else
            s->own[i] = (double)dt_amount_steps(a, total_steps, steps_per_epoch);
    }
}

double dt_schedule_lr(const dt_schedule *s, int64_t step, const dt_eval_point *history, int n_history) {
    // reaches lr in the last step of the warm-up; step is 0-based
    if (step < s->warmup_steps) return s->lr * (double)(step + 1) / (double)s->warmup_steps;
    return dt_schedules[s->kind]->rate(s, step, history, n_history);
}

// ---- schedule constant --------------------------------------------------------------------------------------------

// The learning rate stays.

static double schedule_constant_rate(const dt_schedule *s, int64_t step, const dt_eval_point *history, int n) {
    return s->lr;
}

const dt_schedule_rule dt_schedule_constant = {.rate = schedule_constant_rate};

// ---- schedule cosine ----------------------------------------------------------------------------------------------

// Half a cosine from the end of the warm-up to the end of the run.

enum { MIN_LR };

static double schedule_cosine_rate(const dt_schedule *s, int64_t step, const dt_eval_point *history, int n) {
    const double pi = 3.14159265358979323846, min_lr = s->own[MIN_LR]; // own[MIN_LR]: 0 by default
    int64_t length = s->total_steps - s->warmup_steps;
    double x = length > 0 ? (double)(step - s->warmup_steps) / (double)length : 1.0;
    if (x > 1.0) x = 1.0; // past the end, where a run was cut short by max_steps
    return min_lr + (s->lr - min_lr) * 0.5 * (1.0 + cos(pi * x));
}

const dt_schedule_rule dt_schedule_cosine = {.rate = schedule_cosine_rate};

// ---- schedule one cycle -------------------------------------------------------------------------------------------

// Torch.optim.lr_scheduler.OneCycleLR without its cycle of momentum: half a cosine up and half a
// cosine down, whose last step has the lowest rate. As there, the peak may lie between two steps.

enum { RISE, DIV, FINAL_DIV };

static double schedule_one_cycle_between(double from, double to, double x) {
    const double pi = 3.14159265358979323846; // half a cosine; x is clamped
    return to + (from - to) * 0.5 * (1.0 + cos(pi * fmin(fmax(x, 0.0), 1.0)));
}

static double schedule_one_cycle_rate(const dt_schedule *s, int64_t step, const dt_eval_point *history, int n) {
    // own[RISE] steps up; the first is step 0
    const double at = (double)(step - s->warmup_steps), top = s->own[RISE] - 1;
    const double last = (double)(s->total_steps - s->warmup_steps - 1);
    const double first_lr = s->lr / s->own[DIV], last_lr = first_lr / s->own[FINAL_DIV];
    // a rise of one step begins at the top
    if (at <= top) return top > 0 ? schedule_one_cycle_between(first_lr, s->lr, at / top) : s->lr;
    return last > top ? schedule_one_cycle_between(s->lr, last_lr, (at - top) / (last - top)) : last_lr;
}

const dt_schedule_rule dt_schedule_one_cycle = {.rate = schedule_one_cycle_rate, .keeps_fractions = true};

// ---- schedule plateau ---------------------------------------------------------------------------------------------

// Lower after evaluations without improvement.
//
// It replays the whole history on every call instead of keeping a counter: a counter would be state, and state
// would have to be saved, restored and shared by all ranks.

enum { GAMMA, PATIENCE, SCHEDULE_PLATEAU_MIN_LR };

static double schedule_plateau_rate(const dt_schedule *s, int64_t step, const dt_eval_point *history, int n) {
    double lr = s->lr, best = 0.0; // rate and best value so far
    int stale = 0;
    bool any = false;
    for (int i = 0; i < n; i++) {
        const double value = history[i].value;
        if (dt_eval_is_better(value, any, best, s->lower_is_better, 0)) {
            best = value;
            any = true;
            stale = 0;
        } else if (++stale >= (int)s->own[PATIENCE]) { // stale: evaluations since the best or since the last cut
            lr *= s->own[GAMMA];
            stale = 0;
        }
    }
    return fmax(lr, fmin(s->own[SCHEDULE_PLATEAU_MIN_LR], s->lr)); // min_lr above lr never raises the rate
}

const dt_schedule_rule dt_schedule_plateau = {.rate = schedule_plateau_rate, .follows_evaluations = true};

// ---- schedule polynomial ------------------------------------------------------------------------------------------

// A power of the share of steps that are left, from the end of the warm-up to that of the run.

enum { POWER, SCHEDULE_POLYNOMIAL_MIN_LR };

static double schedule_polynomial_rate(const dt_schedule *s, int64_t step, const dt_eval_point *history, int n) {
    const double length = (double)(s->total_steps - s->warmup_steps);
    const double left = length > 0 ? (double)(s->total_steps - step) / length : 0.0;
    return s->own[SCHEDULE_POLYNOMIAL_MIN_LR] +
           (s->lr - s->own[SCHEDULE_POLYNOMIAL_MIN_LR]) * pow(fmax(left, 0.0), s->own[POWER]);
}

const dt_schedule_rule dt_schedule_polynomial = {.rate = schedule_polynomial_rate};

// ---- schedule step ------------------------------------------------------------------------------------------------

// Stairs, counted from step 0.

enum { EVERY, SCHEDULE_STEP_GAMMA };

static double schedule_step_rate(const dt_schedule *s, int64_t step, const dt_eval_point *history, int n) {
    const int64_t every = (int64_t)s->own[EVERY]; // whole steps
    return every > 0 ? s->lr * pow(s->own[SCHEDULE_STEP_GAMMA], (double)(step / every)) : s->lr;
}

const dt_schedule_rule dt_schedule_step = {.rate = schedule_step_rate};

// ---- schedule warm restarts ---------------------------------------------------------------------------------------

// SGDR (Loshchilov and Hutter 2017), as torch's CosineAnnealingWarmRestarts: cycles of half a
// cosine, from the end of the warm-up.

enum { SCHEDULE_WARM_RESTARTS_EVERY, GROWTH, SCHEDULE_WARM_RESTARTS_MIN_LR };

static double schedule_warm_restarts_rate(const dt_schedule *s, int64_t step, const dt_eval_point *history, int n) {
    const double pi = 3.14159265358979323846, min_lr = s->own[SCHEDULE_WARM_RESTARTS_MIN_LR];
    double at = (double)(step - s->warmup_steps), length = fmax(s->own[SCHEDULE_WARM_RESTARTS_EVERY], 1.0);
    // equal cycles: one division instead of a loop over all past ones
    if (s->own[GROWTH] == 1.0) at = fmod(at, length);
    while (at >= length) at -= length, length *= s->own[GROWTH]; // cycles grow by GROWTH: O(log steps)
    return min_lr + (s->lr - min_lr) * 0.5 * (1.0 + cos(pi * at / length));
}

const dt_schedule_rule dt_schedule_warm_restarts = {.rate = schedule_warm_restarts_rate};

// ---- schedule wsd -------------------------------------------------------------------------------------------------

// Warm-up, stable, decay: the peak rate until the last `decay` steps of the run, in which it
// falls on a line to min_lr.

enum { DECAY, SCHEDULE_WSD_MIN_LR };

static double schedule_wsd_rate(const dt_schedule *s, int64_t step, const dt_eval_point *history, int n) {
    const double left = (double)(s->total_steps - step), min_lr = s->own[SCHEDULE_WSD_MIN_LR];
    if (left >= s->own[DECAY]) return s->lr; // stable until `decay` steps are left
    return left > 0 ? min_lr + (s->lr - min_lr) * left / s->own[DECAY] : min_lr;
}

const dt_schedule_rule dt_schedule_wsd = {.rate = schedule_wsd_rate};
