// plan_bench.c: see plan_bench.h.
#include "backend/cuda/plan_bench.h"

#include "base/rng.h"

enum { MOST_RUNS = 20, REPLAYS = 2 };
#define REPLAY_MS 0.5f

static size_t even(size_t n) {
    return (n + 255) / 256 * 256 + 256;
}

// The size in bytes of each pointer that a run takes.
static void dnn_sizes(const dt_dnn_desc *d, size_t *n) {
    const size_t size = dt_dtype_size(d->type);
    if (d->kind == DT_DNN_SDPA_FWD || d->kind == DT_DNN_SDPA_BWD) {
        const int64_t rows = d->tq > d->tk ? d->tq : d->tk;
        // packed q, k and v have strides over three times a tensor's own elements
        const size_t all = (size_t)(3 * d->n * d->heads * rows * d->d) * size;
        const size_t numbers = (size_t)(d->n * d->heads * d->tq) * sizeof(float);
        for (int i = 0; i < dt_dnn_pointers(d); i++) n[i] = all;
        n[d->kind == DT_DNN_SDPA_FWD ? 4 : 5] = numbers;
        if (d->kind == DT_DNN_SDPA_FWD) return;
        n[9] = numbers * (size_t)d->d;
        n[10] = numbers;
        return;
    }
    const size_t x = (size_t)(d->n * d->h * d->w * d->c) * size;
    const size_t y = (size_t)(d->n * d->out_h * d->out_w * d->k) * size;
    const size_t w = (size_t)(d->k * (d->c / d->groups) * d->win.kernel[0] * d->win.kernel[1]) * size;
    const bool fwd = d->kind == DT_DNN_CONV_FWD, dgrad = d->kind == DT_DNN_CONV_DGRAD;
    n[0] = dgrad ? y : x;
    n[1] = fwd || dgrad ? w : y;
    n[2] = fwd ? y : dgrad ? x : w;
    for (int i = 3; i < dt_dnn_pointers(d); i++) n[i] = (size_t)d->c * sizeof(float);
    if (d->sums || d->bias) n[3] = (size_t)d->k * sizeof(float);
    if (d->sums) n[4] = n[3];
}

static void gemm_sizes(const dt_gemm_desc *d, size_t *n) {
    const size_t size = dt_dtype_size(d->type);
    const int64_t more = d->batch > 1 ? d->batch - 1 : 0;
    n[0] = (size_t)(more * d->stride_a + (d->trans_a ? d->k : d->m) * d->lda) * size;
    n[1] = (size_t)(more * d->stride_b + (d->trans_b ? d->n : d->k) * d->ldb) * size;
    n[2] = (size_t)(more * d->stride_d + d->m * d->ldd) * dt_dtype_size(d->out_type);
    n[3] = (size_t)(d->n > d->m ? d->n : d->m) * sizeof(float);
    n[4] = dt_gemm_has_aux(d->epilogue) ? n[2] : 0;
}

// Pairs of 16-bit words with random signs and last ten bits. As f16 a word is ±1 to 2. As bf16 a word, and as f32 a
// pair, is ±2^-7 to 2. The number of pairs is prime, so that rows are not alike.
static int plan_bench_fill_random(const dt_plan_bench *b, size_t total) {
    enum { PAIRS = 16381 };
    uint32_t pairs[(PAIRS + 3) / 4][4];
    for (uint32_t i = 0; i < (PAIRS + 3) / 4; i++) {
        dt_philox4x32(0, (uint32_t[4]){i}, pairs[i]);
        for (int k = 0; k < 4; k++) pairs[i][k] = (pairs[i][k] & 0x83ff83ff) | 0x3c003c00;
    }
    size_t done = PAIRS * sizeof(uint32_t) < total ? PAIRS * sizeof(uint32_t) : total;
    int e = b->api->copy(b->api, b->memory, pairs, done, 1, NULL);
    for (size_t n; !e && done < total; done += n) {
        n = done < total - done ? done : total - done;
        e = b->api->copy(b->api, (char *)b->memory + done, b->memory, n, 2, b->stream);
    }
    return e;
}

int dt_plan_bench_open(dt_plan_bench *b, dt_cuda_api *api, const dt_plan_kind *k, size_t workspace_bytes,
                       bool uncaptured) {
    *b = (dt_plan_bench){.api = api, .kind = k, .uncaptured = uncaptured};
    const int count = k->gemm ? 5 : dt_dnn_pointers(k->dnn);
    if (k->gemm)
        gemm_sizes(k->mul, b->n_bytes);
    else
        dnn_sizes(k->dnn, b->n_bytes);
    size_t total = even(workspace_bytes);
    for (int i = 0; i < count; i++) total += even(b->n_bytes[i]);
    int e = api->alloc(api, &b->memory, total);
    if (e) {
        b->memory = NULL;
        return e;
    }
    char *at = b->memory;
    for (int i = 0; i < count; i++) {
        b->ptr[i] = at;
        at += even(b->n_bytes[i]);
    }
    b->workspace = at;
    e = api->stream_create(api, &b->stream);
    if (!e) e = api->event_create(api, &b->event[0], true);
    if (!e) e = api->event_create(api, &b->event[1], true);
    if (!e) e = plan_bench_fill_random(b, total);
    return e;
}

void dt_plan_bench_close(dt_plan_bench *b) {
    for (int i = 0; i < 2; i++)
        if (b->event[i]) b->api->event_destroy(b->api, b->event[i]);
    if (b->stream) b->api->stream_destroy(b->api, b->stream);
    if (b->memory) b->api->free(b->api, b->memory);
}

// Runs the plan; without one, fills pointer `at` with zeros.
static int plan_bench_run(const dt_plan_bench *b, void *plan, int at) {
    const dt_plan_kind *k = b->kind;
    if (!plan) return b->api->zero(b->api, b->ptr[at], b->n_bytes[at], b->stream);
    return k->gemm ? b->api->gemm_run(b->api, plan, b->ptr[0], b->ptr[1], b->ptr[2], false,
                                      dt_gemm_has_bias(k->mul->epilogue) ? b->ptr[3] : NULL,
                                      dt_gemm_has_aux(k->mul->epilogue) ? b->ptr[4] : NULL, b->workspace, b->stream)
                   : b->api->dnn_run(b->api, plan, b->ptr, b->workspace, b->stream);
}

static int plan_bench_record(const dt_plan_bench *b, void *plan, int at, int n, void **graph) {
    int e = b->api->capture_begin(b->api, b->stream);
    if (e) return e;
    for (int i = 0; !e && i < n; i++) e = plan_bench_run(b, plan, at);
    const int ended = b->api->capture_end(b->api, b->stream, graph);
    return e ? e : ended;
}

// *ms: of a replay of the graph; if it is NULL, of n runs.
static int time_runs(const dt_plan_bench *b, void *plan, int at, int n, void *graph, float *ms) {
    dt_cuda_api *api = b->api;
    int e = api->event_record(api, b->event[0], b->stream);
    if (!e && graph) e = api->graph_launch(api, graph, b->stream);
    for (int i = 0; !e && !graph && i < n; i++) e = plan_bench_run(b, plan, at);
    if (!e) e = api->event_record(api, b->event[1], b->stream);
    if (!e) e = api->stream_synchronize(api, b->stream);
    return e ? e : api->event_ms(api, b->event[0], b->event[1], ms);
}

static int repeat(const dt_plan_bench *b, void *plan, int at, float *ms) {
    void *graph = NULL;
    float one = 0, now = 0;
    int e = plan_bench_run(b, plan, at);
    if (!e) e = time_runs(b, plan, at, 1, NULL, &one);
    int n = one * MOST_RUNS > REPLAY_MS ? (int)(REPLAY_MS / one) : MOST_RUNS;
    if (n < 1) n = 1;
    if (!e && !b->uncaptured) e = plan_bench_record(b, plan, at, n, &graph);
    for (int i = 0; !e && i < REPLAYS; i++) {
        e = time_runs(b, plan, at, n, graph, &now);
        if (i == 0 || now < *ms * (float)n) *ms = now / (float)n;
    }
    if (graph) b->api->graph_destroy(b->api, graph);
    return e;
}

int dt_plan_bench_time(const dt_plan_bench *b, void *plan, float *ms) {
    return repeat(b, plan, 0, ms);
}

int dt_plan_bench_fill(const dt_plan_bench *b, int at, float *ms) {
    return repeat(b, NULL, at, ms);
}
