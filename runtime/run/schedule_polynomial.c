// schedule_polynomial.c: a power of the share of steps that are left, from the end of the warm-up to that of the run.

#include "run/schedule.h"

#include <math.h>

enum { POWER, SCHEDULE_POLYNOMIAL_MIN_LR };

static double schedule_polynomial_rate(const dt_schedule *s, int64_t step, const dt_eval_point *history, int n) {
    const double length = (double)(s->total_steps - s->warmup_steps);
    const double left = length > 0 ? (double)(s->total_steps - step) / length : 0.0;
    return s->own[SCHEDULE_POLYNOMIAL_MIN_LR] +
           (s->lr - s->own[SCHEDULE_POLYNOMIAL_MIN_LR]) * pow(fmax(left, 0.0), s->own[POWER]);
}

const dt_schedule_rule dt_schedule_polynomial = {.rate = schedule_polynomial_rate};
