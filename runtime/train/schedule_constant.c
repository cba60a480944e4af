// schedule_constant.c: the learning rate stays.

#include "train/schedule.h"

double dt_schedule_constant(const dt_schedule *s, int64_t step, const dt_eval_point *history,
                            int n) {
    return s->lr;
}
