// nets.h: the networks of a run, each as a graph and a plan: those that train it, one for each phase, those
// that evaluate it, and those that compute in int8. Made for a run and the shapes of its data; a teacher is part of the
// training graphs. The second of three rooms (run.h).
//
// All networks share one layout of parameters (dt_params), which plans need while they are made; it has no memory until
// dt_state_create takes it. So a network that does not fit is an error before anything large is allocated.
//
// train.groups and model.scales make phases: stretches of steps in which the same parameters are trained on the same
// scales; a new phase begins where a group's freeze_until ends or a scale joins. Each phase has its own graph,
// differentiated for these parameters alone, and plan; evaluation has another graph where scales join. All are made
// before the first step, so what does not fit is known at once. Phases are a function of the config and the number of
// steps an epoch: a resumed run enters the right one by its step.
#ifndef DT_TRAIN_NETS_H
#define DT_TRAIN_NETS_H

#include "metrics/metric.h"
#include "run/infer.h"
#include "run/run.h"

// A network that runs.
typedef struct dt_net {
    dt_graph *graph;
    dt_plan *plan;
} dt_net;

typedef struct dt_phase {
    int64_t begin; // 0-based step
    bool joins;    // a scale does; true for the first
    dt_net train;
    dt_net eval; // empty where no scale joins: that of the phase before evaluates
} dt_phase;

enum { DT_MAX_PHASES = DT_MAX_UNFREEZES + DT_MAX_SCALES };

// Sets the groups' steps and lists the phases in order, without graphs and plans. Returns how many.
int dt_phases_list(dt_phase phases[DT_MAX_PHASES], dt_param_groups *g, const dt_scales *scales, int64_t total_steps,
                   int64_t steps_per_epoch);
// Gives each parameter the factors and the step of its group.
void dt_phases_apply(const dt_param_groups *g, dt_params *p);

typedef struct dt_nets {
    bool training;                  // false: the evaluation's alone
    dt_phase phases[DT_MAX_PHASES]; // a run that is not trained has one, for evaluation
    int n_phases;
    dt_net *int8; // of dt_nets_add_int8
    int n_int8;
    dt_params *params;
    dt_targets targets;       // fields are the run's
    dt_metric_choice metrics; // of evaluations
} dt_nets;

// Makes graphs and plans, and checks that they fit. What only plans can tell is answered in the run on the way: the
// faster precision, how many replicas have room, engines, the metric that chooses the best checkpoint. Rank 0 finds the
// answers, all ranks take them. Collective. dt_nets_drop also after a failure.
dt_status dt_nets_make(dt_nets *n, dt_open_run *r, bool training);
// Frees all of it, the memory of the parameters too: called behind the last use of a network.
void dt_nets_drop(dt_nets *n);
// Answers train.micro_batch: with the stored answer (NULL: there is none), or with the largest divisor of
// train.global_batch that fits train.memory and leaves each replica of each rank one micro-batch; device.replicas may
// become fewer for that. For dt_run_open. Collective. DT_E_USAGE if not even one sample fits.
dt_status dt_nets_choose_micro_batch(dt_open_run *r, const dt_resolved *stored);

// The phase of a step.
const dt_phase *dt_nets_phase_at(const dt_nets *n, int64_t step);
// The network of the last phase, which trains the most.
dt_net dt_nets_trained(const dt_nets *n);
// The network that evaluates weights which `done` steps have made, by the scales of their phase, and the last of them.
dt_net dt_nets_evaluated(const dt_nets *n, int64_t done);
dt_net dt_nets_last_evaluated(const dt_nets *n);
// Adds the last evaluation network with the layers in int8 that q has (with weight scales); lives as long as the others.
dt_status dt_nets_add_int8(dt_nets *n, dt_open_run *r, const dt_int8 *q, dt_net *out);

// For dt_infer_create: a network over the run's data, on the threads of a team of dt_run_team_threads.
dt_infer_opts dt_nets_infer_opts(const dt_nets *n, const dt_open_run *r, dt_net net, dt_team *team);

#endif
