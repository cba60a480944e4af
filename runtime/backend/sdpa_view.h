// sdpa_view.h: where the elements of an sdpa node's tensors lie, for kernels of all backends. It hides whether
// q, k and v are separate tensors (N,H,T,D) or slices of one (N,T,3*H*D). dy lies like y; dq, dk and dv lie like
// q, k and v.
//
// defines: dt_sdpa_place, dt_sdpa_view, dt_sdpa_view_of, dt_sdpa_at
#ifndef DT_BACKEND_SDPA_VIEW_H
#define DT_BACKEND_SDPA_VIEW_H

#include "backend/backend.h"

// Element (n, h, t, d) is at begin + n * batch + h * head + t * row + d. In elements.
typedef struct dt_sdpa_place {
    int64_t begin, batch, head, row;
} dt_sdpa_place;

typedef struct dt_sdpa_view {
    bool packed; // q, k, v are all in input 0, their gradients all in output 0
    int64_t n, heads, tq, tk, dim;
    dt_sdpa_place part[3], y; // q, k, v
} dt_sdpa_view;

// Of a forward or backward node whose first inputs are q, k, v (or qkv).
static inline dt_sdpa_view dt_sdpa_view_of(const dt_graph *g, const dt_node *node) {
    const dt_shape *q = &g->values[node->in[0]].shape;
    if (node->attrs.sdpa.heads > 0) {
        const int64_t heads = node->attrs.sdpa.heads, t = q->d[1], row = q->d[2], all = row / 3;
        const int64_t dim = all / heads;
        return (dt_sdpa_view){true,
                              q->d[0],
                              heads,
                              t,
                              t,
                              dim,
                              {{0, t * row, dim, row}, {all, t * row, dim, row}, {2 * all, t * row, dim, row}},
                              {0, t * all, dim, all}};
    }
    const int64_t heads = q->d[1], tq = q->d[2], dim = q->d[3];
    const int64_t tk = g->values[node->in[1]].shape.d[2];
    const dt_sdpa_place rows_q = {0, heads * tq * dim, tq * dim, dim};
    const dt_sdpa_place rows_k = {0, heads * tk * dim, tk * dim, dim};
    return (dt_sdpa_view){false, q->d[0], heads, tq, tk, dim, {rows_q, rows_k, rows_k}, rows_q};
}

// Where the rows of head `i` of all (n, h) begin.
static inline int64_t dt_sdpa_at(const dt_sdpa_view *v, const dt_sdpa_place *p, int64_t i) {
    return p->begin + i / v->heads * p->batch + i % v->heads * p->head;
}

#endif
