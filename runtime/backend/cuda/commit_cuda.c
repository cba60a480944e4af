// commit_cuda.c: the optimizer step as device work (see commit.h and commit_kernels.h), and the sum of two flat
// buffers. All memory is allocated when the commit is created. A phase queues one launch, or none; two with norms, four
// to factor second moments.
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/kernels/commit_kernels.h"
#include "base/core.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

typedef struct commit {
    int64_t n, n_chunks; // elements that are trained; pieces of DT_CHUNK
    int64_t n_norms;     // chunks of scaled segments
    int64_t n_rows;      // that are clipped
    int n_rules;
    int64_t n_bands, n_tiles; // of factored tensors
    size_t n_bytes;           // of `memory`
    char *memory;             // partial, segments, rules, norms, ratios, verdict
    double *partial;          // sums of squares per chunk, and one number more (dt_cuda_commit_sums)
    const int32_t *states;    // dt_commit_args, in device memory
    dt_commit_decide_args decide;
    dt_commit_clip_args clip;
    dt_commit_factor_args factor;
    dt_commit_optimize_args optimize;
    dt_commit_buffers_args buffers;
} commit;

static size_t commit_cuda_round_up(size_t n) {
    return dt_align_up(n, 256); // each table begins at an aligned address
}

// The steps at which segments start, each once; first that of the run.
static int list_starts(const dt_commit_args *a, int64_t starts[DT_COMMIT_STARTS]) {
    int n = 1; // entry 0: the run's own start
    starts[0] = 0;
    for (int i = 0; i < a->optimizer.n_segments; i++) {
        const int64_t start = a->optimizer.segments[i].start;
        int at = 0;
        while (at < n && starts[at] != start) at++; // at most DT_COMMIT_STARTS: a linear search
        if (at < n) continue;
        assert(n < DT_COMMIT_STARTS); // checked when the config was read
        starts[n++] = start;
    }
    return n;
}

static dt_commit_segment commit_cuda_part_of(const dt_segment *g, int64_t offset, int64_t end) {
    return (dt_commit_segment){.offset = offset,
                               .length = end - offset,
                               .n_chunks = dt_segment_chunks(offset, end - offset, g->scaled),
                               .lr_scale = g->lr_scale,
                               .decay = g->decay,
                               .frozen = g->frozen};
}

static int index_of(const int64_t *starts, int64_t start) {
    int at = 0; // list_starts lists every start
    while (starts[at] != start) at++;
    return at;
}

// Splits segments so that each parameter with a packed copy is a segment of its own. Such a segment includes the
// gap behind the parameter, up to the next parameter or to the end of the original segment.
static int divide_segments(const dt_commit_args *a, const int64_t *starts, dt_commit_segment *out) {
    int n = 0, at = 0;
    for (int i = 0; i < a->optimizer.n_segments; i++) {
        const dt_segment *g = &a->optimizer.segments[i];
        const int64_t end = g->offset + g->length;
        const int first = n;
        int64_t from = g->offset;
        for (; at < a->n_copies && a->copies[at].offset < end; at++) {
            const dt_commit_copy *c = &a->copies[at]; // copies are sorted by offset
            int64_t behind = c->offset + dt_flat_extent(c->count);
            if (behind > end) behind = end; // padding of the last parameter of a segment
            if (c->offset > from) out[n++] = commit_cuda_part_of(g, from, c->offset); // elements in front of the copy
            out[n] = commit_cuda_part_of(g, c->offset, behind);
            out[n].packed = c->packed;
            out[n].count = c->count;
            out[n].type = c->form.type;
            out[n].n_in = c->form.n_in;
            out[n++].n_taps = c->form.n_taps;
            from = behind; // the gap behind belongs to the parameter
        }
        if (end > from) out[n++] = commit_cuda_part_of(g, from, end);
        // index into the list of starts
        for (int k = first; k < n; k++) out[k].start = index_of(starts, g->start);
    }
    int64_t chunks = 0;
    for (int i = 0; i < n; i++) {
        out[i].first_chunk = chunks;
        chunks += out[i].n_chunks;
    }
    return n;
}

// The bands of each factored tensor, and its place among those of all. Returns the number of columns' sums.
static int64_t divide_factored(commit *c, const dt_commit_args *a, const int64_t *starts, dt_commit_factored *out) {
    int64_t n_sums = 0;
    for (int i = 0; i < a->optimizer.n_factored; i++) {
        const dt_factored *f = &a->optimizer.factored[i];
        const int64_t fill = DT_FACTOR_ELEMENTS / f->cols, rows = fill > DT_FACTOR_ROWS ? fill : DT_FACTOR_ROWS;
        const dt_commit_factored g = {
            .f = *f, .band = c->n_bands, .tile = c->n_tiles, .band_rows = rows, .n_bands = (f->rows + rows - 1) / rows};
        out[i] = g;
        out[i].f.sums = n_sums;
        out[i].f.start = f->frozen ? 0 : index_of(starts, f->start); // frozen tensors have no start of their own
        c->n_bands += g.n_bands;
        c->n_tiles += (f->cols + DT_FACTOR_COLUMNS - 1) / DT_FACTOR_COLUMNS;
        n_sums += g.n_bands * f->cols;
    }
    return n_sums;
}

static void fill_args(commit *c, const dt_commit_args *a, const dt_commit_verdict *verdict) {
    const dt_optimizer_args *o = &a->optimizer;
    // arguments that stay for the whole run; pointers to gradients come with each phase
    c->decide = (dt_commit_decide_args){.partial = c->partial,
                                        .n_chunks = c->n_chunks,
                                        .shares = c->states != NULL,
                                        .limits = a->limits,
                                        .clip_value = o->clip_value,
                                        .kind = o->kind,
                                        .step = a->step,
                                        .numbers = a->numbers,
                                        // const elsewhere: this kernel alone writes the verdict
                                        .verdict = (dt_commit_verdict *)verdict};
    c->decide.n_starts = list_starts(a, c->decide.starts); // each start has its own step count and bias correction
    c->optimize.verdict = c->factor.verdict = verdict;
    c->factor.step = a->step;
    c->factor.master = o->master;
    memcpy(c->factor.slots, o->slots, sizeof o->slots);
    c->factor.n_tensors = o->n_factored;
    c->optimize.kind = o->kind;
    c->optimize.step = c->buffers.step = a->step;
    c->optimize.master = o->master;
    c->optimize.own_master = a->own_master;
    c->optimize.average = o->average;
    c->optimize.states = c->states;
    c->optimize.average_rate = c->buffers.average_rate = o->average_rate;
    c->buffers.average = a->buffer_average;
    memcpy(c->optimize.slots, o->slots, sizeof o->slots);
    memcpy(c->decide.hyper, o->hyper, sizeof o->hyper);
    c->clip.verdict = verdict;
    c->clip.master = o->master;
    c->clip.share = o->clip_agc;
    c->clip.n_tensors = o->n_tensors;
    // rows of the last tensor end the list
    if (o->n_tensors) c->n_rows = o->tensors[o->n_tensors - 1].first + o->tensors[o->n_tensors - 1].n;
    c->buffers.verdict = verdict;
    c->buffers.buffer = a->buffer;
    c->buffers.inverse = 1.0f / (float)a->n_micro; // mean over the micro-batches of a step
}

dt_status dt_cuda_commit_create(dt_backend *b, const dt_commit_args *a, void **out) {
    commit *c = dt_xcalloc(1, sizeof *c);
    c->n = a->n_trained;
    c->n_chunks = (c->n + DT_CHUNK - 1) / DT_CHUNK;
    c->n_rules = a->n_rules;
    // + 1: a sum that all ranks add to
    const size_t sums_bytes = commit_cuda_round_up((size_t)(c->n_chunks + 1) * sizeof(double));
    const size_t state_bytes = a->states ? (size_t)c->n_chunks * sizeof *a->states : 0;
    const size_t partial_bytes = sums_bytes + commit_cuda_round_up(state_bytes);
    const size_t segment_bytes = // a copy may split a segment in three
        commit_cuda_round_up((size_t)(a->optimizer.n_segments + 2 * a->n_copies) * sizeof(dt_commit_segment));
    const size_t rule_bytes = commit_cuda_round_up((size_t)a->n_rules * sizeof(dt_commit_buffer));
    c->n_norms = dt_optimizer_n_norms(&a->optimizer);
    const size_t norm_bytes = commit_cuda_round_up((size_t)c->n_norms * 2 * sizeof(double));
    const size_t ratio_bytes =
        c->n_norms ? commit_cuda_round_up((size_t)(a->optimizer.n_segments + 2 * a->n_copies) * sizeof(float)) : 0;
    const size_t tensor_bytes = commit_cuda_round_up((size_t)a->optimizer.n_tensors * sizeof(dt_clip_tensor));
    int64_t starts[DT_COMMIT_STARTS];
    list_starts(a, starts);
    const size_t n_factored = (size_t)a->optimizer.n_factored;
    dt_commit_factored *factored = dt_xcalloc(n_factored + 1, sizeof *factored);
    const size_t column_bytes = (size_t)divide_factored(c, a, starts, factored) * sizeof(double);
    const size_t table_bytes = n_factored * sizeof *factored, total_bytes = n_factored * 2 * sizeof(double);
    const size_t factor_bytes = // table, columns' sums, bands' sums, totals
        commit_cuda_round_up(table_bytes + column_bytes + (size_t)c->n_bands * 2 * sizeof(double) + total_bytes);
    c->n_bytes = partial_bytes + tensor_bytes + factor_bytes + segment_bytes + rule_bytes + norm_bytes + ratio_bytes +
                 commit_cuda_round_up(sizeof(dt_commit_verdict));
    // one allocation, before the first step
    const dt_status status = b->alloc(b, (void **)&c->memory, c->n_bytes, "the optimizer's tables");
    if (status != DT_OK) {
        free(factored);
        free(c);
        return status;
    }
    char *host = dt_xcalloc(1, c->n_bytes), *segments = c->memory + partial_bytes; // filled on the host, copied once
    char *rules = segments + segment_bytes;
    if (state_bytes) memcpy(host + sums_bytes, a->states, state_bytes);
    c->optimize.n_segments = divide_segments(a, starts, (dt_commit_segment *)(host + partial_bytes));
    for (int i = 0; i < a->n_rules; i++) {
        const dt_commit_rule *r = &a->rules[i];
        ((dt_commit_buffer *)(host + partial_bytes + segment_bytes))[i] =
            (dt_commit_buffer){.buffer = r->buffer, .stat = r->stat, .count = r->count, .momentum = r->momentum};
    }
    char *tensors = c->memory + c->n_bytes - tensor_bytes; // tables at the end: tensors, and factored ones before them
    if (tensor_bytes)
        memcpy(host + c->n_bytes - tensor_bytes, a->optimizer.tensors,
               (size_t)a->optimizer.n_tensors * sizeof(dt_clip_tensor));
    const size_t factored_at = c->n_bytes - tensor_bytes - factor_bytes;
    memcpy(host + factored_at, factored, table_bytes);
    free(factored);
    b->copy_to_device(b, c->memory, host, c->n_bytes); // synchronous
    free(host);
    c->factor.tensors = (const dt_commit_factored *)(c->memory + factored_at);
    c->factor.columns = (double *)(c->memory + factored_at + table_bytes);
    c->factor.bands = c->factor.columns + column_bytes / sizeof(double);
    c->factor.totals = c->factor.bands + 2 * c->n_bands;
    c->clip.tensors = (const dt_clip_tensor *)tensors;
    c->partial = (double *)c->memory;
    if (state_bytes) c->states = (const int32_t *)(c->memory + sums_bytes);
    c->optimize.segments = (const dt_commit_segment *)segments;
    c->buffers.rules = (const dt_commit_buffer *)rules;
    char *norms = rules + rule_bytes, *ratios = norms + norm_bytes;
    if (c->n_norms) { // only for optimizers that scale by norms
        c->optimize.norms = (double *)norms;
        c->optimize.ratios = (float *)ratios;
    }
    fill_args(c, a, (const dt_commit_verdict *)(ratios + ratio_bytes));
    *out = c;
    return DT_OK;
}

static void commit_cuda_launch(dt_cuda *cuda, dt_cuda_kernel k, int64_t blocks, const void *args, void *stream) {
    const dt_cuda_grid g = {.blocks = blocks, .threads = DT_COMMIT_THREADS};
    if (blocks) dt_cuda_launch(cuda, k, g, args, stream); // 0 blocks: the phase has nothing to do
}

void dt_cuda_commit_phase(dt_backend *b, void *commit_, dt_commit_phase phase, const float *grad, void *stream) {
    dt_cuda *cuda = dt_cuda_self(b);
    commit *c = commit_;
    const dt_flat_squares_args squares = {
        .x = grad, .n = c->n, .partial = c->partial, .states = c->states, .step = c->decide.step};
    c->decide.flat = c->buffers.flat = c->optimize.grad = grad; // the buffer of this step
    // const in the interface: only clipping and Adafactor write gradients
    c->clip.grad = c->factor.grad = (float *)(uintptr_t)grad;
    switch (phase) {
    case DT_COMMIT_NORM:
        commit_cuda_launch(cuda, DT_K_flat_squares, c->n_chunks, &squares, stream);
        break;
    case DT_COMMIT_DECIDE:
        commit_cuda_launch(cuda, DT_K_commit_decide, 1, &c->decide, stream); // one block
        break;
    case DT_COMMIT_CLIP_AGC:
        commit_cuda_launch(cuda, DT_K_commit_clip, c->n_rows, &c->clip, stream);
        break;
    case DT_COMMIT_MEASURE:
        commit_cuda_launch(cuda, DT_K_commit_factor_rows, c->n_bands, &c->factor, stream);
        commit_cuda_launch(cuda, DT_K_commit_factor_columns, c->n_tiles, &c->factor, stream);
        commit_cuda_launch(cuda, DT_K_commit_factor_step, c->n_bands, &c->factor, stream);
        commit_cuda_launch(cuda, DT_K_commit_factor_scale, c->n_bands, &c->factor, stream);
        commit_cuda_launch(cuda, DT_K_commit_norms, c->n_norms, &c->optimize, stream);
        break;
    case DT_COMMIT_OPTIMIZE:
        if (c->n_norms)
            commit_cuda_launch(cuda, DT_K_commit_ratios,
                               (c->optimize.n_segments + DT_COMMIT_THREADS - 1) / DT_COMMIT_THREADS, &c->optimize,
                               stream);
        // elements per block
        commit_cuda_launch(cuda, DT_K_commit_optimize, (c->n + DT_COMMIT_CHUNK - 1) / DT_COMMIT_CHUNK, &c->optimize,
                           stream);
        break;
    case DT_COMMIT_STATISTICS:
        commit_cuda_launch(cuda, DT_K_commit_buffers, c->n_rules, &c->buffers, stream);
        break;
    case DT_COMMIT_PACK: // optimize wrote what has a plain form; the owner of the others packs them
        break;
    }
}

double *dt_cuda_commit_sums(dt_backend *b, void *commit_, dt_commit_phase phase, int64_t *n) {
    const commit *c = commit_;
    const bool norm = phase == DT_COMMIT_NORM;
    *n = norm ? c->n_chunks + 1 : 2 * c->n_norms; // of the phase's sums over ranks
    // NULL: this phase exchanges nothing
    return norm ? c->partial : phase == DT_COMMIT_MEASURE && c->n_norms ? c->optimize.norms : NULL;
}

void dt_cuda_commit_destroy(dt_backend *b, void *commit_) {
    commit *c = commit_;
    if (!c) return;
    b->free(b, c->memory, c->n_bytes);
    free(c);
}

void dt_cuda_flat_swap(dt_backend *b, float *x, float *y, int64_t n, void *stream) {
    dt_cuda *c = dt_cuda_self(b);
    const dt_flat_swap_args a = {.x = x, .y = y, .n = n};
    if (n) dt_cuda_launch(c, DT_K_flat_swap, dt_cuda_grid_flat(c, n), &a, stream);
}

void dt_cuda_flat_add(dt_backend *b, float *dst, const float *src, int64_t n, void *stream) {
    dt_cuda *c = dt_cuda_self(b);
    const dt_flat_add_args a = {.dst = dst, .src = src, .n = n};
    if (n) dt_cuda_launch(c, DT_K_flat_add, dt_cuda_grid_flat(c, n), &a, stream);
}
