// schedule_step.c: stairs, counted from step 0.

#include "run/schedule.h"

#include <math.h>

enum { EVERY, SCHEDULE_STEP_GAMMA };

static double schedule_step_rate(const dt_schedule *s, int64_t step, const dt_eval_point *history, int n) {
    const int64_t every = (int64_t)s->own[EVERY];
    return every > 0 ? s->lr * pow(s->own[SCHEDULE_STEP_GAMMA], (double)(step / every)) : s->lr;
}

const dt_schedule_rule dt_schedule_step = {.rate = schedule_step_rate};
