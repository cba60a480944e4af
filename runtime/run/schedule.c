// schedule.c: the warm-up, and the table of what may follow it.

#include "run/schedule.h"

#include <assert.h>

const dt_schedule_rule *const dt_schedules[DT_N_SCHEDULES] = {
#define WORD(id, ...) &dt_schedule_##id,
#include "config/schedules.def"
#undef WORD
};

bool dt_amount_due(int64_t every, int64_t done) {
    return every > 0 && done > 0 && done % every == 0;
}

void dt_schedule_init(dt_schedule *s, const dt_config *c, int64_t total_steps, int64_t steps_per_epoch,
                      bool lower_is_better) {
    *s = (dt_schedule){.kind = c->train.schedule.name,
                       .lr = c->train.optimizer.lr,
                       .warmup_steps = dt_amount_steps(c->train.schedule.warmup, total_steps, steps_per_epoch),
                       .total_steps = total_steps,
                       .lower_is_better = lower_is_better};
    const dt_config_key *k;
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
    if (step < s->warmup_steps) return s->lr * (double)(step + 1) / (double)s->warmup_steps;
    return dt_schedules[s->kind]->rate(s, step, history, n_history);
}
