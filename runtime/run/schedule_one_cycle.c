// schedule_one_cycle.c: torch.optim.lr_scheduler.OneCycleLR without its cycle of momentum: half a cosine up and half a
// cosine down, whose last step has the lowest rate. As there, the peak may lie between two steps.

#include "run/schedule.h"

#include <math.h>

enum { RISE, DIV, FINAL_DIV };

static double schedule_one_cycle_between(double from, double to, double x) {
    const double pi = 3.14159265358979323846;
    return to + (from - to) * 0.5 * (1.0 + cos(pi * fmin(fmax(x, 0.0), 1.0)));
}

static double schedule_one_cycle_rate(const dt_schedule *s, int64_t step, const dt_eval_point *history, int n) {
    const double at = (double)(step - s->warmup_steps), top = s->own[RISE] - 1;
    const double last = (double)(s->total_steps - s->warmup_steps - 1);
    const double first_lr = s->lr / s->own[DIV], last_lr = first_lr / s->own[FINAL_DIV];
    if (at <= top) return top > 0 ? schedule_one_cycle_between(first_lr, s->lr, at / top) : s->lr;
    return last > top ? schedule_one_cycle_between(s->lr, last_lr, (at - top) / (last - top)) : last_lr;
}

const dt_schedule_rule dt_schedule_one_cycle = {.rate = schedule_one_cycle_rate, .keeps_fractions = true};
