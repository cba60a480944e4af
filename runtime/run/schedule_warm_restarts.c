// schedule_warm_restarts.c: SGDR (Loshchilov and Hutter 2017), as torch's CosineAnnealingWarmRestarts: cycles of half a
// cosine, from the end of the warm-up.

#include "run/schedule.h"

#include <math.h>

enum { SCHEDULE_WARM_RESTARTS_EVERY, GROWTH, SCHEDULE_WARM_RESTARTS_MIN_LR };

static double schedule_warm_restarts_rate(const dt_schedule *s, int64_t step, const dt_eval_point *history, int n) {
    const double pi = 3.14159265358979323846, min_lr = s->own[SCHEDULE_WARM_RESTARTS_MIN_LR];
    double at = (double)(step - s->warmup_steps), length = fmax(s->own[SCHEDULE_WARM_RESTARTS_EVERY], 1.0);
    if (s->own[GROWTH] == 1.0) at = fmod(at, length);
    while (at >= length) at -= length, length *= s->own[GROWTH];
    return min_lr + (s->lr - min_lr) * 0.5 * (1.0 + cos(pi * at / length));
}

const dt_schedule_rule dt_schedule_warm_restarts = {.rate = schedule_warm_restarts_rate};
