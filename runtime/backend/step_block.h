// step_block.h: what changes from step to step, and so cannot be part of kernel instances or captured graphs;
// and the numbers that a step leaves behind. Plain C that CUDA C++ can read: GPU kernels read these structs in
// device memory.
#ifndef DT_BACKEND_STEP_BLOCK_H
#define DT_BACKEND_STEP_BLOCK_H

#include <stddef.h>
#include <stdint.h>

enum { DT_CHUNK = 8192 }; // elements; norms and shards are made of whole chunks

typedef struct dt_step_block {
    uint64_t seed;
    uint32_t step;    // optimizer step
    uint32_t slot;    // global-batch slot of this micro-batch's first sample
    float loss_scale; // multiplies the loss gradient (1 without fp16); last: see dt_device_step
} dt_step_block;

// Results of a step, in pinned host memory once its stream has reached that point. A ring: step k writes
// element k % DT_NUMBERS_RING, so the host may read one step's numbers while the next step runs.
enum { DT_NUMBERS_RING = 4 };
typedef struct dt_step_numbers {
    double loss, weight; // sums over the global batch
    double grad_norm;    // after division by weight and loss scale, before clipping
    float loss_scale;    // that this step used
    int32_t finite;      // 0: nothing was committed
    int32_t stop, drop;  // number of ranks that want to stop, and that gave the step up
    // dt_device_step's, after this step
    float next_scale;
    int32_t clean_steps, halted;
    int32_t spoiled; // by the commit before this step's
    int64_t n_skipped;
    int64_t step; // copy of dt_device_step.step, written last, so that it can be polled
} dt_step_numbers;

// In device memory. The host writes the first DT_HOST_STEP_BYTES before every micro-batch. The rest belongs to
// the commit, because the host learns what a step did only when the next one already runs.
//
// halted is sticky. The commit sets it if a rank gave the step up, or if the step is not finite and loss
// scaling cannot help (it is off, or the scale is down to 1). A halted commit changes only the numbers. So
// weights, moments and statistics stay as they were before the failed step, however many steps are queued.
//
// spoiled is sticky too: gradients were finite, but the update was not. It is known once the update is written, so the
// next commit halts and notifies the host. Behind the last step the host reads it here.
typedef struct dt_device_step {
    int64_t step; // 0-based; t of the bias correction is step + 1 - n_skipped
    float lr;
    dt_step_block block; // of the micro-batch that runs
    int32_t clean_steps; // finite steps since the scale last changed
    int32_t halted;
    int64_t n_skipped; // steps that were not finite and committed nothing, in the whole run
    int32_t spoiled;   // a commit wrote something that is not finite
} dt_device_step;
#define DT_HOST_STEP_BYTES (offsetof(dt_device_step, block) + offsetof(dt_step_block, loss_scale))

#endif
