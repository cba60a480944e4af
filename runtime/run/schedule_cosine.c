// schedule_cosine.c: half a cosine from the end of the warm-up to the end of the run.

#include "run/schedule.h"

#include <math.h>

enum { MIN_LR };

static double schedule_cosine_rate(const dt_schedule *s, int64_t step, const dt_eval_point *history, int n) {
    const double pi = 3.14159265358979323846, min_lr = s->own[MIN_LR];
    int64_t length = s->total_steps - s->warmup_steps;
    double x = length > 0 ? (double)(step - s->warmup_steps) / (double)length : 1.0;
    if (x > 1.0) x = 1.0;
    return min_lr + (s->lr - min_lr) * 0.5 * (1.0 + cos(pi * x));
}

const dt_schedule_rule dt_schedule_cosine = {.rate = schedule_cosine_rate};
