// exec.h: runs a plan. Owns the activations and the pointers of one micro-batch in flight.
//
// Each replica of the trainer owns one exec per plan. dt_exec_run allocates nothing, takes no lock and
// writes only its own memory and the gradient buffer it is given.
//
// On a device a run only queues work on its stream, so it may fill a captured stream. All memory is the
// device's: inputs, flat buffers, and the step block, which the caller keeps there and changes from step to
// step (device_step). Without one the exec uploads args->step and waits for that copy.
#ifndef DT_EXEC_EXEC_H
#define DT_EXEC_EXEC_H

#include "exec/plan.h"

typedef struct dt_exec dt_exec;

// replica: 0 … n_replicas-1 of the plan's options; no two execs that run at once may share one. What a run leaves is valid
// until another exec of the same parameters and replica runs: they share the activations' memory.
dt_status dt_exec_create(dt_exec **out, const dt_plan *plan, int replica);
void dt_exec_destroy(dt_exec *e);

// Binds graph input `name` to memory (dense, the input's dtype; device memory on CUDA). Zero copy:
// the pointer must stay valid until dt_exec_run returns. Returns false when the graph has no such
// input.
bool dt_exec_bind(dt_exec *e, const char *name, const void *data);
int dt_exec_input_index(const dt_exec *e,
                        const char *name); // for dt_exec_bind_index; -1: there is no such input
void dt_exec_bind_index(dt_exec *e, int index, const void *data);
size_t dt_exec_input_bytes(const dt_exec *e, int index);

typedef struct dt_exec_args {
    dt_step_block step;
    const dt_step_block *device_step; // device only: the step block in its memory, or NULL
    void *stream;                     // device only; NULL: the device's own
    float *grad;                      // gradient buffer; NULL for inference graphs with neither GRAD nor STAT
    bool accumulate;                  // add to the flat buffer (false: the first micro-batch overwrites it)
    // Called after the node that finishes gradient i of graph->grads: all of its producers have
    // run. NULL: not called.
    void (*on_grad)(void *ctx, int grad_index);
    // Called between nodes, to advance communication. NULL: not called.
    void (*poll)(void *ctx);
    void *ctx;
    const dt_run_ranks *ranks; // of nodes that are collectives (sync_batch_norm); NULL: this rank is alone
} dt_exec_args;

void dt_exec_run(dt_exec *e, const dt_exec_args *args);
// Adds the seconds of the runs since the last call, as the host sees them: until the first gradient node, and from it on.
void dt_exec_take_times(dt_exec *e, double *forward_s, double *backward_s);
// dt_exec_run that checks every result: returns the name of the first value that is not finite (borrowed
// from the graph), or NULL. Slow, and waits for a device; for replaying a bad step.
const char *dt_exec_run_checked(dt_exec *e, const dt_exec_args *args);

// dt_exec_run that passes to look() each forward node's first result where that is f32: its elements, dense, valid
// during the call. Slow. CPU only.
void dt_exec_run_shown(dt_exec *e, const dt_exec_args *args, void (*look)(void *ctx, dt_value v, const float *x),
                       void *ctx);

// Copies a named graph output, dense f32, into out (cap elements, the host's); returns its element
// count or -1. On a device the run must have been on the device's own stream.
int64_t dt_exec_output(const dt_exec *e, const char *name, float *out, int64_t cap);

#endif
