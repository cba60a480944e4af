// commit.h: the optimizer step, the only moment at which weights, moments, statistics and the loss scale change: its
// phases, in their order, and its decision. Both are written once: train/commit.c runs the phases, on the CPU as loops
// over flat buffers that threads divide, on a device as launches that are queued (dt_device.commit_phase). Plain C that
// CUDA C++ can read.
//
// A phase works on whole chunks (DT_CHUNK) of the flat buffers, whoever has them, so its bits depend on no division.
// The phase that optimizes also moves the EMA of the weights, and the phase of the statistics moves their average: the
// values are in registers then, and a pass of its own would read them again.
#ifndef DT_BACKEND_COMMIT_H
#define DT_BACKEND_COMMIT_H

#include "backend/optimizer.h"

typedef enum dt_commit_phase {
    DT_COMMIT_NORM,       // sums of squares of the gradient, by chunk
    DT_COMMIT_DECIDE,     // dt_commit_decide: whether the phases below run; the factor of train.clip_norm; numbers
    DT_COMMIT_CLIP_AGC,   // adaptive clipping (train.clip_agc), in the gradient
    DT_COMMIT_MEASURE,    // each tensor's ratio (optimizers with norms), its step (factored ones)
    DT_COMMIT_OPTIMIZE,   // weights, moments, average; the gradient is read times the factor of DECIDE
    DT_COMMIT_STATISTICS, // running statistics and their average
    DT_COMMIT_PACK        // the kernels' copies of the weights
} dt_commit_phase;
enum { DT_N_COMMIT_PHASES = DT_COMMIT_PACK + 1 };

typedef struct dt_commit_rule {
    int64_t buffer, stat, count; // buffer = (1 - momentum) buffer + momentum * stat / n_micro
    float momentum;
} dt_commit_rule;

// A packed parameter that is one parameter in another type, and perhaps transposed from (n_out, n_in, n_taps) to
// (n_out, n_taps, n_in). A GPU's optimizer writes it in the pass that updates the parameter.
typedef struct dt_pack_form {
    int type;              // dt_dtype
    uint32_t n_in, n_taps; // n_taps 0: the copy is something else
} dt_pack_form;
typedef struct dt_commit_copy {
    int64_t offset, count; // of the parameter in its flat buffer
    void *packed;
    dt_pack_form form;
} dt_commit_copy;

// What the decision reads, here and on a device. Offsets are in elements of the flat gradient buffer.
typedef struct dt_commit_limits {
    int64_t loss_at, weight_at, stop_at, drop_at;
    float clip_norm; // 0: none
    // fp16: the loss scale doubles after growth_interval finite steps (up to 2^24). A step that is not finite is
    // skipped and halves it; at least_scale it halts (step_block.h). 0: no scaling; such a step halts.
    int growth_interval;
    float least_scale;
} dt_commit_limits;

// What a commit works on.
typedef struct dt_commit_args {
    dt_optimizer_args optimizer; // of a device lr, t, grad_scale stay 0: it has its own (dt_device_step)
    int64_t n_trained;
    dt_commit_limits limits;
    const dt_commit_rule *rules;
    int n_rules;
    float *buffer;         // flat buffer of running statistics
    float *buffer_average; // their average; NULL: none
    int n_micro;           // M
    // A device alone:
    const dt_commit_copy *copies; // packed copies to write; ascending, at most one per parameter
    int n_copies;
    // With train.shard, by chunk: which chunk of slots and average is its state; -1: another rank's. NULL: its own number.
    const int32_t *states;
    bool own_master;          // they say the same of the masters (dt_params.own_masters)
    dt_device_step *step;     // device memory
    dt_step_numbers *numbers; // pinned host memory: DT_NUMBERS_RING of them
} dt_commit_args;

DT_UPDATE_FN int dt_commit_finite(double x) {
    return x - x == 0;
}

// Whether the step is committed, and by which factor its gradient is multiplied then: 1/weight, 1/loss scale, clipping.
// flat: the gradient buffer; squares: the gradient's sum of squares, chunk by chunk. Fills in the step's numbers but for
// `step`, and moves the loss scale, or halts.
DT_UPDATE_FN int dt_commit_decide(const dt_commit_limits *a, const float *flat, double squares, dt_device_step *s,
                                  dt_step_numbers *out, double *factor) {
    const double weight = (double)flat[a->weight_at], scale = (double)s->block.loss_scale;
    const double norm = sqrt(squares) / (weight * scale), most = (double)a->clip_norm;
    if (s->spoiled) s->halted = 1;
    out->loss = (double)flat[a->loss_at];
    out->weight = weight;
    out->grad_norm = norm;
    out->loss_scale = s->block.loss_scale;
    out->finite = dt_commit_finite(out->loss / weight) && dt_commit_finite(norm);
    out->stop = (int)flat[a->stop_at];
    out->drop = (int)flat[a->drop_at];
    *factor = (most > 0 && norm > most ? most / (norm + 1e-6) : 1.0) / (weight * scale);
    const int commit = !s->halted && !out->drop && out->finite;
    if (commit && a->growth_interval > 0 && ++s->clean_steps >= a->growth_interval) {
        s->clean_steps = 0;
        if (s->block.loss_scale < 16777216.0f) s->block.loss_scale *= 2.0f;
    }
    if (!out->finite && !out->drop && !s->halted && a->growth_interval > 0 && s->block.loss_scale > a->least_scale) {
        s->block.loss_scale *= 0.5f;
        s->clean_steps = 0;
        s->n_skipped++;
    } else if (!commit) {
        s->halted = 1;
    }
    out->next_scale = s->block.loss_scale;
    out->clean_steps = s->clean_steps;
    out->halted = s->halted;
    out->spoiled = s->spoiled;
    out->n_skipped = s->n_skipped;
    return commit;
}

#endif
