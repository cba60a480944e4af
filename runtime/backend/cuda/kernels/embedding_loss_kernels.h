// embedding_loss_kernels.h: l2_normalize, arc_margin and triplet (graph/ops), in f32 over DENSE rows; the contract is that
// of cpu/embedding_loss_cpu.c.
//
//   l2_rows            a group of threads shares a row; with dy the gradient
//   arc_rows           elements; that of the sample's class has the margin; with dy the gradient
//   triplet_rows       a group shares a sample and divides the others -> its hardest two and its weighted loss, in scratch;
//                      loss_finish (loss_kernels.h) adds the losses up
//   triplet_bwd        a thread has an element of dx, and walks the samples in order
#ifndef DT_EMBEDDING_LOSS_KERNELS_H
#define DT_EMBEDDING_LOSS_KERNELS_H

#include "backend/cuda/kernels/loss_kernels.h"
#include "graph/arc_margin.h"

typedef struct dt_l2_args {
    dt_rows r;
    const float *x, *dy;
    float *out;
} dt_l2_args;
typedef struct dt_l2_sums {
    float xx, xd;
} dt_l2_sums;

DT_FN void dt_l2_take(const dt_l2_args *a, const dt_rows_share *s, dt_l2_sums *m) {
    m->xx = m->xd = 0.0f;
    for (int64_t i = s->lane; s->row >= 0 && i < a->r.n; i += a->r.group) {
        const float x = a->x[s->row * a->r.n + i];
        m->xx += x * x;
        if (a->dy) m->xd += x * a->dy[s->row * a->r.n + i];
    }
}
DT_FN void dt_l2_join(dt_l2_sums *m, const dt_l2_sums *o) {
    m->xx += o->xx, m->xd += o->xd;
}
DT_FN void dt_l2_write(const dt_l2_args *a, const dt_rows_share *s, const dt_l2_sums *m) {
    const float by = 1.0f / fmaxf(sqrtf(m->xx), 1e-12f);
    const float along = m->xx > 1e-24f ? m->xd / m->xx : 0.0f;
    for (int64_t i = s->lane; s->row >= 0 && i < a->r.n; i += a->r.group) {
        const int64_t at = s->row * a->r.n + i;
        const float x = a->x[at];
        a->out[at] = a->dy ? (a->dy[at] - x * along) * by : x * by;
    }
}
DT_KERNEL(l2_rows, dt_l2_args) {
    DT_SHARED(dt_l2_sums, sums, 256);
    DT_THREADS(t) {
        const dt_rows_share s = dt_rows_of(&a->r, DT_BLOCK, DT_BLOCK_DIM, t);
        dt_l2_take(a, &s, &sums[t]);
    }
    DT_TREE(t, half, a->r.group, 1, dt_l2_join(&sums[t], &sums[t + half]));
    DT_THREADS(t) {
        const dt_rows_share s = dt_rows_of(&a->r, DT_BLOCK, DT_BLOCK_DIM, t);
        dt_l2_write(a, &s, &sums[t - s.lane]);
    }
}

typedef struct dt_arc_args {
    dt_rows r;
    const float *x, *dy; // forward: dy is NULL
    const int32_t *target;
    float *out;
    float margin, scale;
} dt_arc_args;

DT_KERNEL(arc_rows, dt_arc_args) {
    DT_THREADS(t) {
        const dt_rows_share s = dt_rows_of(&a->r, DT_BLOCK, DT_BLOCK_DIM, t);
        for (int64_t i = s.lane; s.row >= 0 && i < a->r.n; i += a->r.group) {
            const int64_t at = s.row * a->r.n + i;
            float slope = 1.0f, y = a->x[at];
            if (i == a->target[s.row]) y = dt_arc_margin_of(y, a->margin, a->scale, &slope);
            a->out[at] = a->dy ? a->dy[at] * slope : y;
        }
    }
}

typedef struct dt_hardest {
    int64_t positive, negative; // -1: none
    float far, near;
    int active; // its loss is above 0
} dt_hardest;
typedef struct dt_triplet_args {
    dt_rows r; // of rows candidates
    int64_t n; // elements of an embedding
    const float *x, *weight;
    const int32_t *target;
    const dt_step_block *step;
    dt_hardest *hardest;
    double *losses;
    float *dx;
    float margin, share;
    int semihard;
} dt_triplet_args;

DT_FN float dt_triplet_distance(const dt_triplet_args *a, int64_t i, int64_t k) {
    float sum = 0.0f;
    for (int64_t e = 0; e < a->n; e++) {
        const float d = a->x[i * a->n + e] - a->x[k * a->n + e];
        sum += d * d;
    }
    return sqrtf(sum);
}
// Of two equal ones the first.
DT_FN void dt_take_positive(dt_hardest *h, int64_t k, float d) {
    if (k < 0) return;
    if (h->positive < 0 || d > h->far || (d == h->far && k < h->positive)) h->positive = k, h->far = d;
}
DT_FN void dt_take_negative(dt_hardest *h, int64_t k, float d) {
    if (k < 0) return;
    if (h->negative < 0 || d < h->near || (d == h->near && k < h->negative)) h->negative = k, h->near = d;
}
// Of the samples of its class, or (other) of those of other classes that are further than `beyond`.
DT_FN void dt_triplet_take(const dt_triplet_args *a, const dt_rows_share *s, dt_hardest *h, int other, float beyond) {
    if (s->row < 0 || a->weight[s->row] == 0.0f) return;
    for (int64_t k = s->lane; k < a->r.rows; k += a->r.group) {
        if (k == s->row || a->weight[k] == 0.0f) continue;
        if ((a->target[k] != a->target[s->row]) != other) continue;
        const float d = dt_triplet_distance(a, s->row, k);
        if (!other)
            dt_take_positive(h, k, d);
        else if (d > beyond)
            dt_take_negative(h, k, d);
    }
}
DT_FN void dt_triplet_join(dt_hardest *h, const dt_hardest *o) {
    dt_take_positive(h, o->positive, o->far);
    dt_take_negative(h, o->negative, o->near);
}
DT_KERNEL(triplet_rows, dt_triplet_args) {
    DT_SHARED(dt_hardest, all, 256);
    DT_THREADS(t) {
        const dt_rows_share s = dt_rows_of(&a->r, DT_BLOCK, DT_BLOCK_DIM, t);
        const dt_hardest none = {-1, -1, 0.0f, 0.0f, 0};
        all[t] = none;
        dt_triplet_take(a, &s, &all[t], 0, 0.0f);
    }
    DT_TREE(t, half, a->r.group, 1, dt_triplet_join(&all[t], &all[t + half]));
    DT_THREADS(t) {
        const dt_rows_share s = dt_rows_of(&a->r, DT_BLOCK, DT_BLOCK_DIM, t);
        dt_triplet_take(a, &s, &all[t], 1, a->semihard ? all[t - s.lane].far : -1.0f);
    }
    DT_TREE(t, half, a->r.group, 1, dt_triplet_join(&all[t], &all[t + half]));
    DT_THREADS(t) {
        const dt_rows_share s = dt_rows_of(&a->r, DT_BLOCK, DT_BLOCK_DIM, t);
        if (s.lane == 0 && s.row >= 0) {
            dt_hardest h = all[t];
            float loss = a->margin + h.far - h.near;
            if (h.positive < 0 || h.negative < 0 || loss < 0.0f) loss = 0.0f;
            h.active = loss != 0.0f;
            a->hardest[s.row] = h;
            a->losses[s.row] = (double)a->weight[s.row] * (double)loss;
        }
    }
}

// How dx of sample i at element e changes with the distance between samples i and k.
DT_FN float dt_triplet_pull(const dt_triplet_args *a, int64_t i, int64_t k, int64_t e, float d) {
    return d > 0.0f ? (a->x[i * a->n + e] - a->x[k * a->n + e]) / d : 0.0f;
}
DT_KERNEL(triplet_bwd, dt_triplet_args) {
    DT_THREADS(t) {
        const int64_t at = (int64_t)DT_BLOCK * DT_BLOCK_DIM + t;
        const int64_t i = at / a->n, e = at % a->n;
        float sum = 0.0f;
        for (int64_t s = 0; s < a->r.rows && i < a->r.rows; s++) {
            const dt_hardest *h = &a->hardest[s];
            const float w = a->weight[s];
            if (!h->active) continue;
            if (i == s)
                sum += w *
                       (dt_triplet_pull(a, i, h->positive, e, h->far) - dt_triplet_pull(a, i, h->negative, e, h->near));
            if (i == h->positive) sum += w * dt_triplet_pull(a, i, s, e, h->far);
            if (i == h->negative) sum -= w * dt_triplet_pull(a, i, s, e, h->near);
        }
        if (i < a->r.rows) a->dx[at] = sum * a->share * a->step->loss_scale;
    }
}

#endif
