// schedule_wsd.c: warm-up, stable, decay: the peak rate until the last `decay` steps of the run, in which it
// falls on a line to min_lr.

#include "run/schedule.h"

enum { DECAY, SCHEDULE_WSD_MIN_LR };

static double schedule_wsd_rate(const dt_schedule *s, int64_t step, const dt_eval_point *history, int n) {
    const double left = (double)(s->total_steps - step), min_lr = s->own[SCHEDULE_WSD_MIN_LR];
    if (left >= s->own[DECAY]) return s->lr;
    return left > 0 ? min_lr + (s->lr - min_lr) * left / s->own[DECAY] : min_lr;
}

const dt_schedule_rule dt_schedule_wsd = {.rate = schedule_wsd_rate};
