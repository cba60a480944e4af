// schedule_constant.c: the learning rate stays.

#include "run/schedule.h"

static double schedule_constant_rate(const dt_schedule *s, int64_t step, const dt_eval_point *history, int n) {
    return s->lr;
}

const dt_schedule_rule dt_schedule_constant = {.rate = schedule_constant_rate};
