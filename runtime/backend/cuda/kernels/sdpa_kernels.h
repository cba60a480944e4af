// sdpa_kernels.h: attention for which cuDNN has no engine (fp32, odd head sizes). A block takes one row and goes over
// the other side's rows in chunks, with scores in shared memory:
//
//   sdpa_fwd     a query: running maximum and sum (Milakov and Gimelshein, 2018), y and lse
//   sdpa_rowsum  a query: sum of dy * y
//   sdpa_dq      a query: dq = sum over keys of dS k
//   sdpa_dkv     a key: dk = sum over queries of dS q, dv = sum of P dy
//   with P = exp(scale q k - lse), dS = scale P (dy v - rowsum)
//
// All sums are in f32 in a fixed order. Head sizes up to DT_SDPA_MAX_DIM.
#ifndef DT_SDPA_KERNELS_H
#define DT_SDPA_KERNELS_H

#include "backend/cuda/kernels/kernel_math.h"

enum { DT_SDPA_THREADS = 128, DT_SDPA_CHUNK = 512, DT_SDPA_MAX_DIM = 512 };

// Element (n, head, t, d) of a tensor is at n * stride[0] + head * stride[1] + t * stride[2] + d.
typedef struct dt_sdpa_args {
    const void *q, *k, *v, *y, *dy;
    float *lse, *rowsum; // (n, heads, tq)
    void *out, *out2;    // y; dq; dk and dv
    int64_t n, heads, tq, tk, dim;
    int64_t stride_q[3], stride_k[3], stride_v[3], stride_y[3];
    float scale;
    int type;
} dt_sdpa_args;

DT_FN int64_t dt_sdpa_row(const int64_t *stride, int64_t n, int64_t head, int64_t row) {
    return n * stride[0] + head * stride[1] + row * stride[2];
}
DT_FN float dt_sdpa_dot(const void *a, const void *b, int type, int64_t at_a, int64_t at_b,
                        int64_t n) {
    float s = 0.0f;
    for (int64_t i = 0; i < n; i++) s += dt_get(a, type, at_a + i) * dt_get(b, type, at_b + i);
    return s;
}

// red[0] = sum or maximum of red[t] over all threads.
#define DT_SDPA_REDUCE(red, is_max)                                                                \
    for (int half = DT_SDPA_THREADS / 2; half > 0; half /= 2) {                                    \
        DT_THREADS(t) {                                                                            \
            if (t < half)                                                                          \
                red[t] = (is_max) ? fmaxf(red[t], red[t + half]) : red[t] + red[t + half];         \
        }                                                                                          \
    }

DT_KERNEL(sdpa_fwd, dt_sdpa_args) {
    DT_SHARED(float, s, DT_SDPA_CHUNK);
    DT_SHARED(float, acc, DT_SDPA_MAX_DIM);
    DT_SHARED(float, top, DT_SDPA_THREADS);
    DT_SHARED(float, sum, DT_SDPA_THREADS);
    DT_SHARED(float, run, 3); // maximum so far, sum so far, correction of what was summed
    const int64_t i = DT_BLOCK % a->tq, head = DT_BLOCK / a->tq % a->heads;
    const int64_t n = DT_BLOCK / a->tq / a->heads, q_at = dt_sdpa_row(a->stride_q, n, head, i);
    DT_THREADS(t) {
        for (int64_t e = t; e < a->dim; e += DT_SDPA_THREADS) acc[e] = 0.0f;
        if (t == 0) run[0] = -INFINITY, run[1] = 0.0f;
    }
    for (int64_t at = 0; at < a->tk; at += DT_SDPA_CHUNK) {
        const int64_t m = a->tk - at < DT_SDPA_CHUNK ? a->tk - at : DT_SDPA_CHUNK;
        DT_THREADS(t) {
            top[t] = -INFINITY;
            for (int64_t j = t; j < m; j += DT_SDPA_THREADS) {
                s[j] = a->scale * dt_sdpa_dot(a->q, a->k, a->type, q_at,
                                              dt_sdpa_row(a->stride_k, n, head, at + j), a->dim);
                top[t] = fmaxf(top[t], s[j]);
            }
        }
        DT_SDPA_REDUCE(top, 1)
        DT_THREADS(t) {
            if (t == 0) {
                const float most = fmaxf(run[0], top[0]);
                run[2] = expf(run[0] - most); // 0 at the first chunk
                run[0] = most;
            }
        }
        DT_THREADS(t) {
            sum[t] = 0.0f;
            for (int64_t j = t; j < m; j += DT_SDPA_THREADS) sum[t] += s[j] = expf(s[j] - run[0]);
        }
        DT_SDPA_REDUCE(sum, 0)
        DT_THREADS(t) {
            for (int64_t e = t; e < a->dim; e += DT_SDPA_THREADS) {
                float x = acc[e] * run[2];
                for (int64_t j = 0; j < m; j++)
                    x +=
                        s[j] * dt_get(a->v, a->type, dt_sdpa_row(a->stride_v, n, head, at + j) + e);
                acc[e] = x;
            }
            if (t == 0) run[1] = run[1] * run[2] + sum[0];
        }
    }
    DT_THREADS(t) {
        for (int64_t e = t; e < a->dim; e += DT_SDPA_THREADS)
            dt_put(a->out, a->type, dt_sdpa_row(a->stride_y, n, head, i) + e, acc[e] / run[1]);
        if (t == 0 && a->lse) a->lse[DT_BLOCK] = run[0] + logf(run[1]);
    }
}

DT_KERNEL(sdpa_rowsum, dt_sdpa_args) {
    DT_THREADS(t) {
        const int64_t total = a->n * a->heads * a->tq;
        for (int64_t i = DT_BLOCK * DT_BLOCK_DIM + t; i < total; i += DT_GRID * DT_BLOCK_DIM) {
            const int64_t at =
                dt_sdpa_row(a->stride_y, i / a->tq / a->heads, i / a->tq % a->heads, i % a->tq);
            a->rowsum[i] = dt_sdpa_dot(a->dy, a->y, a->type, at, at, a->dim);
        }
    }
}

// P and dS of query i and key j.
DT_FN float dt_sdpa_p(const dt_sdpa_args *a, int64_t n, int64_t head, int64_t i, int64_t j) {
    const float s = dt_sdpa_dot(a->q, a->k, a->type, dt_sdpa_row(a->stride_q, n, head, i),
                                dt_sdpa_row(a->stride_k, n, head, j), a->dim);
    return expf(s * a->scale - a->lse[(n * a->heads + head) * a->tq + i]);
}
DT_FN float dt_sdpa_ds(const dt_sdpa_args *a, int64_t n, int64_t head, int64_t i, int64_t j,
                       float p) {
    const float dp = dt_sdpa_dot(a->dy, a->v, a->type, dt_sdpa_row(a->stride_y, n, head, i),
                                 dt_sdpa_row(a->stride_v, n, head, j), a->dim);
    return a->scale * p * (dp - a->rowsum[(n * a->heads + head) * a->tq + i]);
}

DT_KERNEL(sdpa_dq, dt_sdpa_args) {
    DT_SHARED(float, ds, DT_SDPA_CHUNK);
    DT_SHARED(float, acc, DT_SDPA_MAX_DIM);
    const int64_t i = DT_BLOCK % a->tq, head = DT_BLOCK / a->tq % a->heads;
    const int64_t n = DT_BLOCK / a->tq / a->heads;
    DT_THREADS(t) {
        for (int64_t e = t; e < a->dim; e += DT_SDPA_THREADS) acc[e] = 0.0f;
    }
    for (int64_t at = 0; at < a->tk; at += DT_SDPA_CHUNK) {
        const int64_t m = a->tk - at < DT_SDPA_CHUNK ? a->tk - at : DT_SDPA_CHUNK;
        DT_THREADS(t) {
            for (int64_t j = t; j < m; j += DT_SDPA_THREADS)
                ds[j] = dt_sdpa_ds(a, n, head, i, at + j, dt_sdpa_p(a, n, head, i, at + j));
        }
        DT_THREADS(t) {
            for (int64_t e = t; e < a->dim; e += DT_SDPA_THREADS)
                for (int64_t j = 0; j < m; j++)
                    acc[e] += ds[j] *
                              dt_get(a->k, a->type, dt_sdpa_row(a->stride_k, n, head, at + j) + e);
        }
    }
    DT_THREADS(t) {
        for (int64_t e = t; e < a->dim; e += DT_SDPA_THREADS)
            dt_put(a->out, a->type, dt_sdpa_row(a->stride_q, n, head, i) + e, acc[e]);
    }
}

// out: dk, out2: dv; either may be NULL.
DT_KERNEL(sdpa_dkv, dt_sdpa_args) {
    DT_SHARED(float, p, DT_SDPA_CHUNK);
    DT_SHARED(float, ds, DT_SDPA_CHUNK);
    DT_SHARED(float, dk, DT_SDPA_MAX_DIM);
    DT_SHARED(float, dv, DT_SDPA_MAX_DIM);
    const int64_t j = DT_BLOCK % a->tk, head = DT_BLOCK / a->tk % a->heads;
    const int64_t n = DT_BLOCK / a->tk / a->heads;
    DT_THREADS(t) {
        for (int64_t e = t; e < a->dim; e += DT_SDPA_THREADS) dk[e] = dv[e] = 0.0f;
    }
    for (int64_t at = 0; at < a->tq; at += DT_SDPA_CHUNK) {
        const int64_t m = a->tq - at < DT_SDPA_CHUNK ? a->tq - at : DT_SDPA_CHUNK;
        DT_THREADS(t) {
            for (int64_t i = t; i < m; i += DT_SDPA_THREADS) {
                p[i] = dt_sdpa_p(a, n, head, at + i, j);
                ds[i] = dt_sdpa_ds(a, n, head, at + i, j, p[i]);
            }
        }
        DT_THREADS(t) {
            for (int64_t e = t; e < a->dim; e += DT_SDPA_THREADS) {
                for (int64_t i = 0; i < m; i++) {
                    dk[e] += ds[i] *
                             dt_get(a->q, a->type, dt_sdpa_row(a->stride_q, n, head, at + i) + e);
                    dv[e] += p[i] *
                             dt_get(a->dy, a->type, dt_sdpa_row(a->stride_y, n, head, at + i) + e);
                }
            }
        }
    }
    DT_THREADS(t) {
        for (int64_t e = t; e < a->dim; e += DT_SDPA_THREADS) {
            if (a->out) dt_put(a->out, a->type, dt_sdpa_row(a->stride_k, n, head, j) + e, dk[e]);
            if (a->out2) dt_put(a->out2, a->type, dt_sdpa_row(a->stride_v, n, head, j) + e, dv[e]);
        }
    }
}

#endif
