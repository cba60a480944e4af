// optimizer.c: see optimizer.h. CMake generates optimizers_all.h, which includes the headers of optimizers.def.
#include "backend/optimizer.h"
#include "config/optimizer_words.h"

#include "optimizers_all.h"

#define WORD(id, ...)                                                                                                  \
    {#id, dt_##id##_n_slots, dt_##id##_slots, dt_##id##_factored, dt_##id##_norms, dt_##id##_begin, dt_##id##_ratio},
const dt_optimizer dt_optimizers[DT_N_OPTIMIZERS] = {
#include "config/optimizers.def"
};
#undef WORD

int64_t dt_optimizer_n_norms(const dt_optimizer_args *a) {
    int64_t n = 0;
    for (int i = 0; i < a->n_segments; i++)
        n += dt_segment_chunks(a->segments[i].offset, a->segments[i].length, a->segments[i].scaled);
    return n;
}

dt_update dt_optimizer_segment(const dt_optimizer_args *a, int i) {
    const dt_segment *g = &a->segments[i];
    const int64_t t = a->t - (g->start ? g->start : a->n_skipped);
    dt_update u = {.grad_scale = a->grad_scale,
                   .clip = dt_optimizers[a->kind].factored // clipped before
                               ? HUGE_VALF
                               : dt_clip_limit(a->clip_value, a->grad_scale),
                   .lr = a->lr * g->lr_scale,
                   .decay = g->decay,
                   .ratio = a->ratios ? a->ratios[i] : 1.0f,
                   .first = t <= 1};
    for (int k = 0; k < DT_MAX_HYPER; k++) u.hyper[k] = a->hyper[k];
    dt_optimizers[a->kind].begin(&u, t);
    return u;
}

void dt_optimizer_find_ratios(const dt_optimizer_args *a) {
    const double *norms = a->norms;
    for (int i = 0; i < a->n_segments; i++) {
        const dt_segment *g = &a->segments[i];
        double weights = 0, direction = 0;
        int64_t n = dt_segment_chunks(g->offset, g->length, g->scaled);
        for (; n > 0; n--, norms += 2) weights += norms[0], direction += norms[1];
        a->ratios[i] = 1.0f;
        const dt_update u = dt_optimizer_segment(a, i);
        if (g->scaled) a->ratios[i] = dt_optimizers[a->kind].ratio(weights, direction, &u);
    }
}
