// length.c: see length.h.

#include "train/length.h"

#include "train/schedule.h"

#include <stddef.h>

bool dt_length_is_enough(const dt_config *c, const dt_train_state *s, bool lower_is_better) {
    if (!dt_config_has(c, "train.early_stop.patience")) return false;
    const double delta = dt_config_real(c, "train.early_stop.min_delta");
    int best = -1;
    for (int i = 0; i < s->n_history; i++) {
        const double value = s->history[i].value;
        const double gain = best < 0          ? 0
                            : lower_is_better ? s->history[best].value - value
                                              : value - s->history[best].value;
        if (value == value && (best < 0 || gain > delta)) best = i; // NaN never improves
    }
    const int since = s->n_history - 1 - best;
    return s->n_history > 0 && s->history[s->n_history - 1].step == s->step &&
           since >= dt_config_int(c, "train.early_stop.patience");
}

static int64_t steps_of(const dt_config *c, int64_t steps_per_epoch) {
    const int64_t n = steps_per_epoch * dt_config_int(c, "train.epochs");
    const int64_t most =
        dt_config_has(c, "train.max_steps") ? dt_config_int(c, "train.max_steps") : n;
    return most < n ? most : n;
}

static bool same_rates(const dt_config *old, const dt_config *given, const dt_train_state *s,
                       int64_t total) {
    dt_schedule a, b;
    dt_schedule_init(&a, old, s->total_steps, s->steps_per_epoch, false);
    dt_schedule_init(&b, given, total, s->steps_per_epoch, false);
    for (int64_t i = 0; i < s->step; i++)
        if (dt_schedule_lr(&a, i, s->history, s->n_history) !=
            dt_schedule_lr(&b, i, s->history, s->n_history))
            return false;
    return true;
}

bool dt_length_may_grow(dt_config *old, dt_config *given, const dt_train_state *s) {
    static const char *const keys[] = {"train.epochs", "train.max_steps"};
    const char *was, *is;
    const int64_t total = steps_of(given, s->steps_per_epoch);
    if (total <= s->total_steps || !same_rates(old, given, s, total)) return false;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (dt_config_has(given, keys[i]))
            dt_config_resolve(old, keys[i], dt_config_str(given, keys[i]));
        else if (dt_config_has(old, keys[i]))
            dt_config_resolve(given, keys[i], dt_config_str(old, keys[i]));
    }
    return !dt_config_first_numeric_difference(old, given, &was, &is);
}
