// phases.h: train.groups and model.scales in a run. A phase is a stretch of steps in which the same parameters are
// trained on the same scales; a new one begins where a group's freeze_until ends or a scale joins. Each phase has its own
// graph, differentiated for these parameters alone, and plan; evaluation has another graph where scales join. All plans
// are made before the first step, on the same dt_params, so what does not fit is told at once.
// Phases are a function of the config and the number of steps an epoch: a resumed run enters the right one by its step.
#ifndef DT_TRAIN_PHASES_H
#define DT_TRAIN_PHASES_H

#include "config/param_groups.h"
#include "config/scale_list.h"
#include "exec/plan.h"

typedef struct dt_phase {
    int64_t begin;                // 0-based step
    bool joins;                   // a scale does; true for the first
    dt_graph *graph, *eval_graph; // eval: NULL where none joins, those of the phase before count
    dt_plan *plan, *eval_plan;
} dt_phase;

enum { DT_MAX_PHASES = DT_MAX_THAWS + DT_MAX_SCALES };

// Sets the groups' steps and lists the phases in order, without graphs and plans. Returns how many.
int dt_phases_list(dt_phase phases[DT_MAX_PHASES], dt_param_groups *g, const dt_scales *scales,
                   int64_t total_steps, int64_t steps_per_epoch);
// The phase of a step.
const dt_phase *dt_phases_at(const dt_phase *phases, int n, int64_t step);
// The phase by whose scales weights are evaluated that `done` steps have made.
const dt_phase *dt_phases_evaluated(const dt_phase *phases, int n, int64_t done);
// dt_param_groups_check with the parameters of a graph.
dt_status dt_phases_check(const dt_param_groups *g, const dt_graph *graph);
// Gives each parameter the factors and the step of its group.
void dt_phases_apply(const dt_param_groups *g, dt_params *p);
// With several phases a line for each: its steps and the memory of a replica's activations. (`dtrain check`)
void dt_phases_print_memory(const dt_phase *phases, int n, int64_t total_steps, FILE *out);
// A line for each group with its tensors and parameters, and one for the rest. (`dtrain check`)
void dt_phases_print(const dt_param_groups *g, const dt_params *p, FILE *out);

#endif
