// length.c: see length.h.

#include "train/length.h"

#include "train/phases.h"
#include "train/schedule.h"

#include <stddef.h>

bool dt_length_is_enough(const dt_config *c, const dt_train_state *s, bool lower_is_better) {
    if (!c->train.early_stop.patience.has) return false;
    const double delta = c->train.early_stop.min_delta;
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
           since >= c->train.early_stop.patience.value;
}

static int64_t steps_of(const dt_config *c, int64_t steps_per_epoch) {
    const int64_t n = steps_per_epoch * c->train.epochs;
    const int64_t most = c->train.max_steps.has ? c->train.max_steps.value : n;
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

// Whether the steps so far trained what they would have trained in the longer run: a phase may begin at a share of it.
static bool same_phases(const dt_config *c, const dt_train_state *s, int64_t total) {
    dt_phase was[DT_MAX_PHASES], is[DT_MAX_PHASES];
    dt_param_groups groups;
    dt_scales scales;
    bool same = dt_param_groups_read(&groups, c) == DT_OK && dt_scales_read(&scales, c) == DT_OK;
    const int64_t spe = s->steps_per_epoch;
    const int n = same ? dt_phases_list(was, &groups, &scales, s->total_steps, spe) : 0;
    const int m = same ? dt_phases_list(is, &groups, &scales, total, spe) : 0;
    for (int i = 0; i < n || i < m; i++) {
        const int64_t a = i < n ? was[i].begin : INT64_MAX, b = i < m ? is[i].begin : INT64_MAX;
        same &= a == b || (a >= s->step && b >= s->step);
    }
    dt_param_groups_fini(&groups);
    return same;
}

bool dt_length_may_grow(dt_config *old, dt_config *given, const dt_train_state *s) {
    const dt_key keys[] = {DT_KEY(train.epochs), DT_KEY(train.max_steps)};
    const char *was, *is;
    const int64_t total = steps_of(given, s->steps_per_epoch);
    if (total <= s->total_steps || !same_rates(old, given, s, total) ||
        !same_phases(given, s, total))
        return false;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (dt_config_text(given, keys[i]))
            dt_config_set_same(old, keys[i], given);
        else
            dt_config_set_same(given, keys[i], old);
    }
    return !dt_config_first_numeric_difference(old, given, &was, &is);
}
