// schedule_plateau.c: lower after evaluations without improvement.
//
// It replays the whole history on every call instead of keeping a counter: a counter would be state, and state
// would have to be saved, restored and shared by all ranks.

#include "run/schedule.h"

#include <math.h>

enum { GAMMA, PATIENCE, SCHEDULE_PLATEAU_MIN_LR };

static double schedule_plateau_rate(const dt_schedule *s, int64_t step, const dt_eval_point *history, int n) {
    double lr = s->lr, best = 0.0;
    int stale = 0;
    bool any = false;
    for (int i = 0; i < n; i++) {
        const double value = history[i].value;
        if (dt_eval_is_better(value, any, best, s->lower_is_better, 0)) {
            best = value;
            any = true;
            stale = 0;
        } else if (++stale >= (int)s->own[PATIENCE]) {
            lr *= s->own[GAMMA];
            stale = 0;
        }
    }
    return fmax(lr, fmin(s->own[SCHEDULE_PLATEAU_MIN_LR], s->lr));
}

const dt_schedule_rule dt_schedule_plateau = {.rate = schedule_plateau_rate, .follows_evaluations = true};
