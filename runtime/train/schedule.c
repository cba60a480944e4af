// schedule.c: constant, cosine, step and plateau, each behind a linear warm-up.
//
// Plateau replays the whole history on every call instead of keeping a counter: a counter would be
// state, and state would have to be saved, restored and agreed upon.

#include "train/schedule.h"

#include <math.h>
#include <string.h>

int64_t dt_amount_steps(dt_amount a, int64_t total_steps, int64_t steps_per_epoch) {
    double steps = a.value;
    if (a.unit == DT_UNIT_EPOCHS) steps = a.value * (double)steps_per_epoch;
    if (a.unit == DT_UNIT_PERCENT) steps = a.value / 100.0 * (double)total_steps;
    if (!(steps > 0.0)) return 0;
    return steps < 1.0 ? 1 : (int64_t)llround(fmin(steps, 9e18));
}

bool dt_amount_due(int64_t every, int64_t done) {
    return every > 0 && done > 0 && done % every == 0;
}

static dt_schedule_kind kind_of(const char *name) {
    if (strcmp(name, "cosine") == 0) return DT_SCHEDULE_COSINE;
    if (strcmp(name, "step") == 0) return DT_SCHEDULE_STEP;
    if (strcmp(name, "plateau") == 0) return DT_SCHEDULE_PLATEAU;
    return DT_SCHEDULE_CONSTANT;
}

static double real(const dt_config *c, const char *key) { // 0: a key of other schedules
    return dt_config_has(c, key) ? dt_config_real(c, key) : 0.0;
}

void dt_schedule_init(dt_schedule *s, const dt_config *c, int64_t total_steps,
                      int64_t steps_per_epoch, bool lower_is_better) {
    *s = (dt_schedule){.kind = kind_of(dt_config_str(c, "train.schedule.name")),
                       .lr = dt_config_real(c, "train.optimizer.lr"),
                       .min_lr = real(c, "train.schedule.min_lr"),
                       .gamma = real(c, "train.schedule.gamma"),
                       .warmup_steps = dt_amount_steps(dt_config_amount(c, "train.schedule.warmup"),
                                                       total_steps, steps_per_epoch),
                       .total_steps = total_steps,
                       .patience = (int)real(c, "train.schedule.patience"),
                       .lower_is_better = lower_is_better};
    if (s->kind == DT_SCHEDULE_STEP)
        s->every_steps = dt_amount_steps(dt_config_amount(c, "train.schedule.every"), total_steps,
                                         steps_per_epoch);
}

static double cosine(const dt_schedule *s, int64_t step) {
    const double pi = 3.14159265358979323846;
    int64_t length = s->total_steps - s->warmup_steps;
    double x = length > 0 ? (double)(step - s->warmup_steps) / (double)length : 1.0;
    if (x > 1.0) x = 1.0;
    return s->min_lr + (s->lr - s->min_lr) * 0.5 * (1.0 + cos(pi * x));
}

static double plateau(const dt_schedule *s, const double *history, int n) {
    double lr = s->lr, best = 0.0;
    int stale = 0;
    bool any = false;
    for (int i = 0; i < n; i++) {
        bool better = !any || (s->lower_is_better ? history[i] < best : history[i] > best);
        if (better && isfinite(history[i])) {
            best = history[i];
            any = true;
            stale = 0;
        } else if (++stale >= s->patience) {
            lr *= s->gamma;
            stale = 0;
        }
    }
    return fmax(lr, fmin(s->min_lr, s->lr));
}

double dt_schedule_lr(const dt_schedule *s, int64_t step, const double *history, int n_history) {
    if (step < s->warmup_steps) return s->lr * (double)(step + 1) / (double)s->warmup_steps;
    switch (s->kind) {
    case DT_SCHEDULE_COSINE:
        return cosine(s, step);
    case DT_SCHEDULE_STEP:
        return s->every_steps > 0 ? s->lr * pow(s->gamma, (double)(step / s->every_steps)) : s->lr;
    case DT_SCHEDULE_PLATEAU:
        return plateau(s, history, n_history);
    case DT_SCHEDULE_CONSTANT:
        break;
    }
    return s->lr;
}
