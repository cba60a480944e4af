// infer.c: see infer.h. A row is a sample: its weight, then the outputs, then the fields, each of 4-byte elements. A
// rank's chunk has n_steps times L batches of E rows. Rank 0 has room for its own, and for a step of another rank.

#include "run/infer.h"

#include "base/core.h"
#include "base/log.h"
#include "run/batch_inputs.h"

#include <assert.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// CHUNK_BYTES: of rows on a rank; WHY_FLOATS: reasons travel as floats, as dt_comm sends f32
enum { CHUNK_BYTES = 4 << 20, CHUNK_STEPS = 8, WHY_FLOATS = 64 };

typedef struct why {
    char text[WHY_FLOATS * sizeof(float)];
} why;

typedef struct infer_replica {
    dt_exec *exec;
    float *output[DT_INFER_OUTPUTS]; // of a batch
    dt_batch_inputs inputs;
    dt_device_inputs copies; // on a device
    const dt_batch *batch;   // under way; NULL: none
    int64_t row;             // of the chunk, where its first sample goes
    dt_error_kept failure;
    dt_status status;
    bool gave_up;
} infer_replica;

struct dt_infer {
    dt_infer_opts o;
    // replicas: by worker of the team, each writes its own
    infer_replica *replicas;
    int64_t size[DT_INFER_OUTPUTS]; // elements a sample
    int64_t row;                    // floats of a row
    // the run in progress
    dt_batch_source *source;
    uint32_t n_runs;        // before
    int64_t n_samples;      // of the split
    int64_t begin, n_range; // samples that are delivered; n_range 0: all
    int64_t end, end_step;  // behind the last one
    int64_t first, n_chunk; // steps of the chunk in progress
    int64_t rank_rows;      // of a rank's chunk, at most
    float *rows;            // of this rank's chunk; rank 0: and a step of another rank
    why *why;               // of the rows with weight 0
};

// ---- a chunk, by this rank -------------------------------------------------------------------------

static void infer_fill_row(const dt_infer *f, const infer_replica *l, int i) {
    const dt_batch *b = l->batch;
    float *row = f->rows + (l->row + i) * f->row; // each replica fills other rows: no lock
    *row++ = b->weight[i];
    for (int k = 0; k < f->o.n_outputs; k++) {
        memcpy(row, l->output[k] + i * f->size[k], sizeof *row * (size_t)f->size[k]);
        row += f->size[k];
    }
    for (int k = 0; k < f->o.n_fields; k++) {
        if (!f->o.wants_field[k]) continue;
        const int64_t n = dt_shape_elements(&f->o.fields[k].sample_shape);
        // 4-byte elements are copied bit for bit: classes are i32
        memcpy(row, (const float *)b->field[k] + i * n, sizeof *row * (size_t)n);
        row += n;
    }
    if (b->weight[i] == 0 && b->why && b->why[i])
        snprintf(f->why[l->row + i].text, sizeof f->why->text, "%s", b->why[i]);
}

static void finish_batch(dt_infer *f, infer_replica *l) {
    if (!l->batch) return;
    // waits for the device, if the batch is still running there
    for (int k = 0; k < f->o.n_outputs; k++)
        dt_exec_output(l->exec, f->o.outputs[k], l->output[k], f->o.batch * f->size[k]);
    for (int i = 0; i < l->batch->n; i++) infer_fill_row(f, l, i);
    f->source->release(f->source, l->batch); // the loader may reuse the slot now
    l->batch = NULL;
}

// dt_exec_run_shown passes one context: the batch comes with it.
typedef struct shown {
    const dt_infer *f;
    const dt_batch *batch;
} shown;

static void infer_show(void *ctx, dt_value v, const float *x) {
    const shown *s = ctx;
    s->f->o.look(s->f->o.look_ctx, s->batch, v, x);
}

// A device computes one batch while the host waits for the next.
static dt_status run_batch(dt_infer *f, infer_replica *l, int index, int64_t step, int micro) {
    const dt_batch *b = NULL;
    double wait_s = 0.0;
    // the loader makes the batch while the device still computes the previous one
    DT_TRY(f->source->get(f->source, step, micro, &b, &wait_s));
    finish_batch(f, l);
    const dt_backend *backend = f->o.params->backend;
    if (backend->device) // queued in front of the batch's kernels
        dt_device_inputs_copy(&l->copies, b, backend->device->stream);
    else
        dt_batch_inputs_bind(&l->inputs, l->exec, b);
    // over all ranks: masks of dropout depend on the sample, not on who computes it
    const int64_t batch = step * f->o.comm->world_size * f->o.n_replicas + micro;
    dt_exec_args args = {
        // slot: position of the batch's first sample in the split
        .step = {.seed = f->o.seed, .step = f->n_runs, .slot = (uint32_t)(batch * f->o.batch), .loss_scale = 1.0f},
        .grad = f->o.params->grads[index]};
    if (f->o.look)
        dt_exec_run_shown(l->exec, &args, infer_show, &(shown){f, b});
    else
        dt_exec_run(l->exec, &args);
    l->batch = b;
    l->row = ((step - f->first) * f->o.n_replicas + index) * f->o.batch; // rows are by step, then by replica
    if (!backend->device) finish_batch(f, l);
    return DT_OK;
}

static void infer_run_replica(void *arg, int worker) {
    dt_infer *f = arg;
    if (worker >= f->o.n_replicas) return;
    infer_replica *l = &f->replicas[worker];
    // thread-local: each team thread sets the size of its own OpenMP team
    omp_set_num_threads(f->o.replica_threads);
    l->status = DT_OK;
    const int micro = f->o.comm->rank * f->o.n_replicas + worker; // batches go round robin to the replicas of all ranks
    l->gave_up = false;
    for (int64_t s = f->first; s < f->first + f->n_chunk && l->status == DT_OK; s++) {
        // every replica checks, so that all leave within a batch
        l->gave_up = f->o.give_up && f->o.give_up();
        if (l->gave_up) break;
        l->status = run_batch(f, l, worker, s, micro);
    }
    finish_batch(f, l);                                   // the last batch of the chunk
    if (l->status != DT_OK) l->failure = dt_error_keep(); // error messages belong to a thread
}

static dt_status run_chunk(dt_infer *f) {
    dt_team_run(f->o.team, infer_run_replica, f);
    for (int i = 0; i < f->o.n_replicas; i++) {
        if (f->replicas[i].status == DT_OK) continue;
        // the first failing replica's error counts
        dt_error_restore(&f->replicas[i].failure);
        return f->replicas[i].status;
    }
    int64_t gave_up = 0;
    for (int i = 0; i < f->o.n_replicas; i++) gave_up |= f->replicas[i].gave_up;
    // collective only if every rank has give_up, which is the same on all ranks
    if (f->o.give_up) DT_TRY(f->o.comm->all_reduce_max_i64(f->o.comm, &gave_up, 1));
    return gave_up ? dt_fail(DT_E_PREEMPTED, "an evaluation was given up") : DT_OK;
}

// ---- a chunk, of all ranks -------------------------------------------------------------------------

// Row i of a rank's chunk: which sample of the split.
static int64_t sample_of(const dt_infer *f, int rank, int64_t i) {
    // inverse of the round robin: steps, then ranks, then replicas and samples within
    const int64_t step_rows = (int64_t)f->o.n_replicas * f->o.batch;
    return ((f->first + i / step_rows) * f->o.comm->world_size + rank) * step_rows + i % step_rows;
}

// The rows of a step of another rank, then the reasons of those that could not be read: from it to rank 0, where they take
// the places behind rank 0's own chunk.
static dt_status exchange_step(dt_infer *f, int64_t step, int rank) {
    dt_comm *c = f->o.comm;
    const bool root = c->rank == 0;
    // rank 0's room behind its own chunk
    const int64_t n = (int64_t)f->o.n_replicas * f->o.batch, at = root ? f->rank_rows : step * n;
    float *rows = f->rows + at * f->row;
    DT_TRY(root ? c->recv_f32(c, rows, n * f->row, rank) : c->send_f32(c, rows, n * f->row, 0));
    for (int64_t i = 0; i < n; i++) {
        // readable rows and padding have no reason to send
        if (rows[i * f->row] != 0 || sample_of(f, rank, step * n + i) >= f->n_samples) continue;
        float *text = (float *)(void *)&f->why[at + i];
        DT_TRY(root ? c->recv_f32(c, text, WHY_FLOATS, rank) : c->send_f32(c, text, WHY_FLOATS, 0));
    }
    return DT_OK;
}

static dt_status deliver_row(dt_infer *f, int64_t at, int64_t index,
                             dt_status (*take)(void *ctx, const dt_infer_sample *s), void *ctx) {
    const float *row = f->rows + at * f->row;
    dt_infer_sample s = {.index = index};
    if (*row++ == 0) {
        s.why = f->why[at].text;
        return take(ctx, &s);
    }
    for (int k = 0; k < f->o.n_outputs; k++) {
        s.output[k] = row;
        row += f->size[k];
    }
    for (int k = 0; k < f->o.n_fields; k++) {
        if (!f->o.wants_field[k]) continue;
        s.field[k] = row;
        row += dt_shape_elements(&f->o.fields[k].sample_shape);
    }
    return take(ctx, &s);
}

// Sends this rank's chunk to rank 0, which hands all rows to the caller in the order of the split: step by step and rank by
// rank, as they come.
static dt_status deliver(dt_infer *f, dt_progress *p, dt_status (*take)(void *ctx, const dt_infer_sample *s),
                         void *ctx) {
    const int self = f->o.comm->rank, W = f->o.comm->world_size;
    const int64_t step_rows = (int64_t)f->o.n_replicas * f->o.batch;
    for (int64_t step = 0; step < f->n_chunk; step++)
        for (int r = 0; r < W; r++) {
            if (self != 0 && self != r) continue;
            if (r != 0) DT_TRY(exchange_step(f, step, r));
            // rank 0 handles one step of one rank at a time, in the order of the split
            for (int64_t i = 0; i < step_rows && self == 0; i++) {
                const int64_t index = sample_of(f, r, step * step_rows + i);
                if (index < f->begin || index >= f->end) continue; // also padding of the last batch
                const int64_t at = r == 0 ? step * step_rows + i : f->rank_rows + i;
                DT_TRY(deliver_row(f, at, index, take, ctx));
                p->n_items++;
            }
        }
    dt_progress_tick(p);
    return DT_OK;
}

// ---- a split ---------------------------------------------------------------------------------------

static dt_status open_source(dt_infer *f, dt_dataset *data, dt_split split) {
    const int n_micro = f->o.comm->world_size * f->o.n_replicas;
    int *micros = dt_xcalloc((size_t)f->o.n_replicas, sizeof *micros);
    for (int l = 0; l < f->o.n_replicas; l++) micros[l] = f->o.comm->rank * f->o.n_replicas + l;
    f->n_samples = data->n_samples(data, split);
    if (f->o.limit > 0 && f->n_samples > f->o.limit) f->n_samples = f->o.limit; // limit: the first samples
    const int64_t global = (int64_t)n_micro * f->o.batch;
    f->end = f->n_range > 0 && f->begin + f->n_range < f->n_samples ? f->begin + f->n_range : f->n_samples;
    f->end_step = (f->end + global - 1) / global; // rounded up: the last step is padded
    f->first = f->begin / global;
    dt_source_request r = {.split = split,
                           .in_order = true,
                           .augment = f->o.augment,
                           .global_batch = (int)global,
                           .micro_batch = f->o.batch,
                           .micros = micros, // the numbers of this rank's batches within a step
                           .n_micro = f->o.n_replicas,
                           .start_step = f->first,
                           .end_step = f->end_step};
    dt_status st = data->open(data, &r, &f->source);
    free(micros);
    return st;
}

// Returns the steps of a chunk.
static int64_t infer_make_rows(dt_infer *f) {
    const int64_t step_rows = (int64_t)f->o.n_replicas * f->o.batch;
    int64_t n = CHUNK_BYTES / (step_rows * f->row * (int64_t)sizeof(float));
    // between one step and CHUNK_STEPS
    n = n < 1 ? 1 : n > CHUNK_STEPS ? CHUNK_STEPS : n; // more would hide how far it is
    f->rank_rows = n * step_rows;
    const int64_t n_rows = f->rank_rows + (f->o.comm->rank == 0 ? step_rows : 0);
    f->rows = dt_xcalloc((size_t)(n_rows * f->row) + 1, sizeof *f->rows);
    f->why = dt_xcalloc((size_t)n_rows + 1, sizeof *f->why);
    return n;
}

dt_status dt_infer_run(dt_infer *f, dt_dataset *data, dt_split split,
                       dt_status (*take)(void *ctx, const dt_infer_sample *s), void *ctx) {
    DT_TRY(open_source(f, data, split));
    dt_params_repack(f->o.params); // weights may have changed since the last run
    for (int i = 0; i < f->o.n_replicas; i++)
        // another data set may have its fields in other places
        dt_batch_inputs_find(&f->replicas[i].inputs, f->replicas[i].exec, f->source->fields, f->source->n_fields);
    const int64_t most = infer_make_rows(f);
    dt_progress progress = {.on = f->o.progress && f->o.comm->rank == 0,
                            .what = f->o.progress,
                            .items = "samples",
                            .total_items = (uint64_t)(f->end - f->begin)};
    dt_status st = DT_OK;
    dt_progress_begin(&progress);
    for (; f->first < f->end_step && st == DT_OK; f->first += most) {
        f->n_chunk = f->end_step - f->first < most ? f->end_step - f->first : most;
        st = run_chunk(f);
        if (st == DT_OK) st = deliver(f, &progress, take, ctx);
    }
    dt_progress_end(&progress); // the progress line ends, after a failure too
    f->n_runs++;
    f->source->close(f->source);
    free(f->rows);
    free(f->why);
    f->source = NULL;
    return st;
}

// ---- life ------------------------------------------------------------------------------------------

void dt_infer_set_range(dt_infer *f, int64_t begin, int64_t n) {
    f->begin = begin;
    f->n_range = n;
}

int64_t dt_infer_output_size(const dt_infer *f, int output) {
    return f->size[output];
}

static dt_status lay_out_row(dt_infer *f) {
    const dt_graph *g = f->o.graph;
    f->row = 1; // the weight
    for (int k = 0; k < f->o.n_outputs; k++) {
        for (int i = 0; i < g->n_outputs; i++)
            if (strcmp(g->outputs[i].name, f->o.outputs[k]) == 0)
                // elements per sample: the output's leading axis is the batch
                f->size[k] = dt_shape_elements(&g->values[g->outputs[i].value].shape) / f->o.batch;
        if (f->size[k] == 0) return dt_fail(DT_E_USAGE, "model '%s' has no output '%s'", g->name, f->o.outputs[k]);
        f->row += f->size[k];
    }
    for (int k = 0; k < f->o.n_fields; k++) {
        if (!f->o.wants_field[k]) continue;
        assert(dt_dtype_size(f->o.fields[k].dtype) == sizeof(float));
        f->row += dt_shape_elements(&f->o.fields[k].sample_shape);
    }
    return DT_OK;
}

static dt_status create_replica(dt_infer *f, int i) {
    infer_replica *l = &f->replicas[i];
    for (int k = 0; k < f->o.n_outputs; k++)
        l->output[k] = dt_xcalloc((size_t)(f->o.batch * f->size[k]), sizeof(float));
    DT_TRY(dt_exec_create(&l->exec, f->o.plan, i));
    dt_backend *b = f->o.params->backend;
    if (!b->device) return DT_OK; // the CPU reads batches where the loader left them
    DT_TRY(dt_device_inputs_init(&l->copies, 1, b, l->exec, f->o.fields, f->o.n_fields));
    dt_device_inputs_bind(&l->copies, l->exec);
    return DT_OK;
}

dt_status dt_infer_create(dt_infer **out, const dt_infer_opts *opts) {
    dt_infer *f = dt_xcalloc(1, sizeof *f);
    f->o = *opts;
    f->replicas = dt_xcalloc((size_t)opts->n_replicas, sizeof *f->replicas);
    dt_status st = lay_out_row(f);
    for (int i = 0; i < opts->n_replicas && st == DT_OK; i++) st = create_replica(f, i);
    if (st == DT_OK)
        *out = f;
    else
        dt_infer_destroy(f);
    return st;
}

void dt_infer_destroy(dt_infer *f) {
    if (!f) return;
    for (int i = 0; i < f->o.n_replicas; i++) {
        dt_device_inputs_fini(&f->replicas[i].copies, 1);
        dt_exec_destroy(f->replicas[i].exec);
        for (int k = 0; k < f->o.n_outputs; k++) free(f->replicas[i].output[k]);
    }
    free(f->replicas);
    free(f);
}
