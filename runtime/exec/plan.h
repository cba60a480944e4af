// plan.h: everything about running a graph that can be decided before the first step.
//
// dt_plan_create walks the nodes in order, lets each kernel choose layouts, inserts reorders,
// assigns every activation an offset in one flat buffer by liveness (first fit over address-ordered gaps;
// in-place where a kernel allows and the input dies there), sizes the shared scratch, registers
// packed parameters. Immutable afterwards; any number of execs run it.
//
// The flat buffer:  [ activations and gradients, by offset ............ | scratch | packed at use ]
#ifndef DT_EXEC_PLAN_H
#define DT_EXEC_PLAN_H

#include "exec/params.h"

typedef struct dt_plan dt_plan;

typedef struct dt_plan_opts {
    int threads;    // OpenMP threads a kernel may use
    int n_replicas; // how many execs will run this plan at once (0 = 1)
    // One exec runs this plan once between two commits: trained weights are packed into scratch in front of each kernel
    // that reads them, and no packed copies of them are kept. The bits are the same.
    bool packs_at_use;
} dt_plan_opts;

// The graph and params are borrowed and must outlive the plan. The backend's passes
// (dt_backend.passes) run on the graph first; running them again changes nothing.
dt_status dt_plan_create(dt_plan **out, dt_graph *g, dt_params *params, const dt_plan_opts *opts);
// Allocates the plan's copies of constants on a device. dt_plan_create calls it where the params have memory; after
// dt_params_lay_out the caller calls it, before the first exec.
dt_status dt_plan_take(dt_plan *p);
void dt_plan_destroy(dt_plan *p);

typedef struct dt_plan_report {
    size_t activation_bytes, scratch_bytes; // one exec's flat buffer
    size_t constant_bytes;                  // on a device
    size_t unshared_bytes;                  // what the activations would take without reuse
    int n_instructions, n_reorders, n_inplace;
} dt_plan_report;
void dt_plan_report_get(const dt_plan *p, dt_plan_report *out);
// "conv2d.bwd iris.0" of instruction k, or "reorder"; borrowed. For profiles: exec's poll is called once an
// instruction, in order.
const char *dt_plan_instruction_name(const dt_plan *p, int k);
// Its node, NULL for a reorder; and the gradients (indices of graph->grads) that are finished behind it: how many,
// borrowed.
const dt_node *dt_plan_instruction_node(const dt_plan *p, int k);
int dt_plan_instruction_grads(const dt_plan *p, int k, const int **grads);
void dt_plan_print(const dt_plan *p, FILE *out); // instructions with layouts, offsets, kernels

#endif
