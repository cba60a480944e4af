// simd_optimizer.c: the optimizers of optimizers.def over flat buffers (see simd.h and
// backend/optimizers/optimizer_update.h). One pass: each element is read and written once.
#include "backend/cpu/simd_vec.h"

#define DT_UPDATE_VECTORS // in front of all that includes optimizer_update.h
#include "backend/cpu/simd.h"
#include "config/words.h"
#include "optimizers_all.h"

typedef void update_fn(dt_elements *p, dt_elements *slot, dt_elements g, const dt_update *u);
typedef dt_elements direction_fn(dt_elements p, dt_elements *slot, dt_elements g, const dt_update *u);

// The first `n` elements from p on; constant n = VW is one load.
INLINE vf get(const float *p, int n) {
    return n == VW ? vld(p) : vload_part(p, 0, n, 0);
}
INLINE void put(float *p, int n, vf v) {
    if (n == VW)
        vst(p, v);
    else
        vstore_part(p, 0, n, v, 0);
}

INLINE vf clip(vf g, float limit) {
    const vf most = vset1(limit), least = vset1(-limit); // NaN passes both comparisons
    return vsel(vm_gt(g, most), most, vsel(vm_gt(least, g), least, g));
}

// Zeros if everything that was written is finite, else with a NaN: x - x is 0 of a finite x only.
INLINE vf update_some(update_fn *one, int n_slots, float *p, float *const *slots, const float *g, float *average,
                      float rate, int64_t i, int n, const dt_update *u) {
    vf pv = get(p + i, n), s[DT_MAX_SLOTS];
    for (int k = 0; k < n_slots; k++) s[k] = get(slots[k] + i, n);
    one(&pv, s, clip(get(g + i, n), u->clip), u); // clipped in the scaled gradient's units
    put(p + i, n, pv);
    if (average) {
        const vf a = get(average + i, n);
        put(average + i, n, a + (pv - a) * rate); // EMA: average += rate (p - average)
    }
    for (int k = 0; k < n_slots; k++) put(slots[k] + i, n, s[k]);
    vf bad = pv - pv; // 0 or NaN
    for (int k = 0; k < n_slots; k++) bad += s[k] - s[k];
    return bad;
}

INLINE bool update(update_fn *one, int n_slots, const dt_optimizer_args *a, int64_t at, int64_t n,
                   const dt_update *u_) {
    const dt_update u = *u_; // a copy: no store can alias the constants
    float *p = a->master + at, *slots[DT_MAX_SLOTS];
    const int64_t state = at - a->state_at; // state may be a shard of the flat buffer
    for (int k = 0; k < n_slots; k++) slots[k] = a->slots[k] + state;
    const float *g = a->grad + at, rate = a->average_rate;
    float *average = a->average ? a->average + state : NULL;
    vf bad = {0};
    float sum = 0;
    int64_t i = 0;
    // whole vectors
    for (; i + VW <= n; i += VW) bad += update_some(one, n_slots, p, slots, g, average, rate, i, VW, &u);
    for (int l = 0; l < VW; l++) sum += bad[l];
    const int rest = (int)(n - i);
    if (rest) bad = update_some(one, n_slots, p, slots, g, average, rate, i, rest, &u); // n < VW: a padded copy
    for (int l = 0; l < rest; l++) sum += bad[l]; // what is behind them is nobody's
    return sum == 0;
}

// Sums of squares of weights and direction.
INLINE void measure(direction_fn *direction, int n_slots, const dt_optimizer_args *a, int64_t at, int64_t n,
                    const dt_update *u_, double *sums) {
    const dt_update u = *u_;
    const float *p = a->master + at, *g = a->grad + at;
    vd weights = {0}, directions = {0};
    double tail[2] = {0, 0}; // the last, partial vector
    for (int64_t i = 0; i < n; i += VW) {
        const int part = n - i < VW ? (int)(n - i) : VW;
        vf pv = get(p + i, part), s[DT_MAX_SLOTS];
        // moments as they are before the step
        for (int k = 0; k < n_slots; k++) s[k] = get(a->slots[k] + at - a->state_at + i, part);
        // direction of the update, without learning rate and ratio
        const vd w = vf_to_d(pv), d = vf_to_d(direction(pv, s, clip(get(g + i, part), u.clip), &u));
        if (part == VW)
            weights += w * w, directions += d * d;
        else
            for (int k = 0; k < part; k++) tail[0] += w[k] * w[k], tail[1] += d[k] * d[k];
    }
    sums[0] = vd_sum(weights) + tail[0];
    sums[1] = vd_sum(directions) + tail[1];
}

#define WORD(id, ...)                                                                                                  \
    static bool update_##id(const dt_optimizer_args *a, int64_t at, int64_t n, const dt_update *u) {                   \
        return update(dt_##id##_update, dt_##id##_n_slots, a, at, n, u);                                               \
    }                                                                                                                  \
    static void measure_##id(const dt_optimizer_args *a, int64_t at, int64_t n, const dt_update *u, double *sums) {    \
        measure(dt_##id##_direction, dt_##id##_n_slots, a, at, n, u, sums);                                            \
    }
#include "config/optimizers.def"
#undef WORD

const dt_simd_optimizer DT_SIMD(dt_simd_optimizer)[DT_N_OPTIMIZERS] = {
#define WORD(id, ...) {update_##id, measure_##id},
#include "config/optimizers.def"
#undef WORD
};
