// nets.c: see nets.h. Order: precision -> evaluation graphs -> training graphs -> layout of parameters -> plans ->
// whether they fit, else fewer replicas or smaller engines, and plans again.
#include "run/nets.h"

#include "base/core.h"
#include "base/log.h"
#include "base/os.h"
#include "run/agree.h"
#include "run/memory_report.h"
#include "run/schedule.h"

#include <stdlib.h>
#include <string.h>

// ---- phases ----------------------------------------------------------------------------------------

static int by_begin(const void *a, const void *b) {
    const dt_phase *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

static int nets_add_phase(dt_phase *phases, int n, int64_t begin, bool joins) {
    int at = 0;
    while (at < n && phases[at].begin != begin) at++; // one phase per step, however many groups and scales begin there
    if (at == n) phases[n++] = (dt_phase){.begin = begin};
    phases[at].joins |= joins;
    return n;
}

int dt_phases_list(dt_phase phases[DT_MAX_PHASES], dt_param_groups *g, const dt_scales *scales, int64_t total_steps,
                   int64_t steps_per_epoch) {
    int n = nets_add_phase(phases, 0, 0, true);
    for (int i = 0; i < g->n; i++) {
        dt_param_group *group = &g->items[i];
        if (!group->unfreezes) continue; // never frozen
        group->unfreeze_step = dt_amount_steps(group->until, total_steps, steps_per_epoch);
        n = nets_add_phase(phases, n, group->unfreeze_step, false);
    }
    for (int i = 0; i < scales->n; i++) // joins: only a scale's begin changes the evaluation graph
        n = nets_add_phase(phases, n, dt_amount_steps(scales->items[i].from, total_steps, steps_per_epoch), true);
    qsort(phases, (size_t)n, sizeof *phases, by_begin);
    return n;
}

// dt_param_groups_check with the parameters of a graph.
static dt_status check_groups(const dt_param_groups *g, const dt_graph *graph) {
    const char **names = dt_xcalloc((size_t)graph->n_values + 1, sizeof *names);
    int n = 0;
    for (dt_value v = 0; v < graph->n_values; v++)
        // with frozen ones: a pattern must match some parameter
        if (graph->values[v].kind == DT_V_PARAM) names[n++] = graph->values[v].name;
    const dt_status st = dt_param_groups_check(g, names, n);
    free(names);
    return st;
}

void dt_phases_apply(const dt_param_groups *g, dt_params *p) {
    for (int i = 0; i < p->n_entries; i++) {
        dt_param_entry *e = &p->entries[i];
        // the last group whose pattern matches
        const dt_param_group *group = dt_param_groups_of(g, e->name);
        if (!group) continue;
        e->lr_scale = (float)group->lr;
        e->decay_scale = (float)group->decay;
        e->thaw = group->unfreeze_step;
    }
}

// ---- graphs ----------------------------------------------------------------------------------------

// The graph of the parameters that are trained at `step`, and of the scales that have joined then.
static dt_status build_graph(const dt_open_run *r, bool training, int64_t step, dt_graph **out) {
    const dt_teacher *t = &r->teacher;
    const dt_model_args teacher = {
        .config = t->config, .step = t->step, .total_steps = t->total_steps, .steps_per_epoch = t->steps_per_epoch};
    const dt_model_args a = {.config = r->config,
                             .fields = r->fields,
                             .n_fields = r->n_fields,
                             .batch = training ? r->resolved.micro_batch : dt_run_eval_batch(r),
                             .training = training,
                             .drops = r->request.drops,
                             .adds_branches = r->backend->kernel(r->backend, DT_OP_add_branch, false) != NULL,
                             .teacher = training && t->config ? &teacher : NULL, // evaluation graphs have no teacher
                             .groups = &r->groups,
                             .step = step,
                             .total_steps = r->record.total_steps,
                             .steps_per_epoch = r->record.steps_per_epoch};
    return r->args.build_graph(out, &a, dt_resolved_dtype(&r->resolved));
}

// The graph that evaluates; q: the layers that it has in int8, NULL: none.
static dt_status build_eval_graph(const dt_open_run *r, int64_t step, const dt_int8 *q, dt_graph **out) {
    dt_graph *g = NULL;
    if (q && r->backend->device)
        return dt_config_fail(r->config, "model.int8",
                              "model.int8 is for the CPU: use "
                              "device.kind=cpu, or model.int8=false");
    if (q && r->resolved.precision != DT_PRECISION_fp32)
        return dt_config_fail(r->config, "model.int8",
                              "with model.int8 the other layers are fp32: use train.precision=fp32");
    DT_TRY(build_graph(r, false, step, &g));
    // first: int8 kernels add the residual themselves
    dt_status st = q ? dt_pass_fuse_residual(g) : DT_OK;
    if (st == DT_OK && q) st = dt_pass_int8(g, q);
    if (st == DT_OK)
        *out = g;
    else
        dt_graph_destroy(g);
    return st == DT_OK ? DT_OK : dt_fail_context(st, "int8.json"); // the context is added to int8's errors
}

static dt_status choose_metrics(dt_nets *n, dt_open_run *r) {
    dt_classes classes[DT_MAX_TARGETS] = {DT_CLASSES_EVEN};
    const dt_graph *g = dt_nets_last_evaluated(n).graph;
    for (int i = 0; r->data && r->data->classes && i < n->targets.n; i++)
        // how the classes are divided between training and evaluation: decides eval.best
        if (n->targets.items[i].field->n_classes > 0) classes[i] = r->data->classes(r->data, n->targets.items[i].index);
    DT_TRY(dt_metric_choose(&n->metrics, r->config, g, &n->targets, classes));
    if (r->data) DT_TRY(dt_metric_choose_positive(&n->metrics, r->config, &n->targets));
    r->resolved.best = dt_best_of_metric(n->metrics.best); // written into the config with the other resolved values
    dt_run_answer(r);
    return n->training ? check_groups(&r->groups, g) : DT_OK; // groups name parameters, which exist only now
}

// ---- plans -----------------------------------------------------------------------------------------

// train.shard: slots for what this rank owns of the trained parameters, in the comm's chunks.
static void shard(dt_params *p, const dt_open_run *r, int n_slots) {
    const dt_comm *c = dt_run_flat_comm(r);
    const int64_t most = (p->n_trained + DT_CHUNK - 1) / DT_CHUNK; // chunks of the trained parameters, rounded up
    dt_own_range *own = dt_xcalloc((size_t)most + 1, sizeof *own), x = {0};
    int n = 0;
    for (int k = 0; c->own_part(c, p->n_trained, k, &x.begin, &x.end); k++) {
        // neighbouring chunks become one range: fewer copies
        if (n && own[n - 1].end == x.begin)
            own[n - 1].end = x.end;
        else if (x.begin < x.end)
            own[n++] = x;
    }
    dt_params_add_sharded(p, n_slots, own, n);
    free(own);
}

// dt_params.gather
static dt_status gather_masters(void *ctx, float *x, int64_t n) {
    const dt_open_run *r = ctx;
    const dt_device *d = r->backend->device;
    dt_comm *c = r->device_comm;
    DT_TRY(d->synchronize(r->backend, d->stream));
    DT_TRY(dt_comm_all_gather_f32(c, x, n));
    return c->device->drain(c, "the exchange of weights");
}

static dt_status nets_lay_out(dt_nets *n, dt_open_run *r) {
    const dt_config *c = r->config;
    const dt_optimizer *o = &dt_optimizers[c->train.optimizer.name];
    const bool averages = c->train.ema.has && c->train.ema.value > 0;
    const bool shards = n->training && dt_run_shards(r);
    const dt_net net = n->training ? dt_nets_trained(n) : dt_nets_last_evaluated(n);
    // with ZeRO-1 slots come from dt_params_add_sharded, for the owned ranges alone
    DT_TRY(dt_params_lay_out(&n->params, net.graph, r->backend, n->training && !shards ? o->n_slots : 0,
                             r->replicas->n_flats, shards && dt_run_owns_masters(r, r->comm->world_size)));
    if (shards) shard(n->params, r, o->n_slots);
    if (n->training && averages) dt_params_add_average(n->params);
    if (n->training && o->factored) dt_params_add_factored(n->params);
    dt_phases_apply(&r->groups, n->params);
    // --raw evaluates the trained weights, which only a run with EMA keeps apart
    if (!r->request.raw || averages) return DT_OK;
    return dt_fail(DT_E_USAGE, "--raw is for a run with train.ema: this one has its trained "
                               "weights and no average of them");
}

static dt_plan_opts plan_opts(const dt_open_run *r) {
    return (dt_plan_opts){.threads = r->resolved.replica_threads, .n_replicas = r->replicas->n_replicas};
}

static dt_status nets_build_graphs(dt_nets *n, dt_open_run *r) {
    const dt_run_state *s = &r->record;
    // an inference session: the phase that made its weights; those of step s come from the phase of step s - 1
    const bool inference = r->request.use == DT_RUN_INFERENCE;
    n->n_phases = 1;
    n->phases[0] = (dt_phase){.joins = true, .begin = inference && s->step > 0 ? s->step - 1 : 0};
    if (n->training)
        n->n_phases = dt_phases_list(n->phases, &r->groups, &r->scales, s->total_steps, s->steps_per_epoch);
    for (int i = 0; i < n->n_phases; i++) {
        dt_phase *p = &n->phases[i];
        // evaluation differs only where scales join
        if (p->joins) DT_TRY(build_eval_graph(r, p->begin, r->int8, &p->eval.graph));
    }
    // after the evaluation graphs: metrics need their outputs
    DT_TRY(dt_agree_shared(r->comm, choose_metrics(n, r)));
    for (int i = 0; i < n->n_phases && n->training; i++)
        DT_TRY(build_graph(r, true, n->phases[i].begin, &n->phases[i].train.graph));
    return DT_OK;
}

static dt_status nets_make_plans(dt_nets *n, dt_open_run *r) {
    if (!r->backend->device) DT_TRY(dt_memory_room_for_kernels());
    DT_TRY(nets_lay_out(n, r));
    const dt_plan_opts opts = plan_opts(r);
    dt_plan_opts train = opts;
    // one micro-batch between two optimizer steps: each packed copy would be read once
    train.packs_at_use = !r->backend->device && r->replicas->n_rank_micros == 1 && n->n_phases == 1;
    for (int i = 0; i < n->n_phases && n->training; i++) {
        dt_net *net = &n->phases[i].train;
        DT_TRY(dt_plan_create(&net->plan, net->graph, n->params, &train));
    }
    for (int i = 0; i < n->n_phases; i++) {
        dt_net *net = &n->phases[i].eval;
        if (net->graph) DT_TRY(dt_plan_create(&net->plan, net->graph, n->params, &opts));
    }
    if (n->params->own_masters) dt_params_own_masters(n->params, gather_masters, r);
    return DT_OK;
}

static void drop_net(dt_net *net) {
    dt_plan_destroy(net->plan);
    dt_graph_destroy(net->graph);
    *net = (dt_net){0};
}

void dt_nets_drop(dt_nets *n) {
    dt_params_destroy(n->params); // before the plans, which have the recipes of packed copies
    n->params = NULL;
    for (int i = 0; i < n->n_phases; i++) {
        drop_net(&n->phases[i].train);
        drop_net(&n->phases[i].eval);
    }
    for (int i = 0; i < n->n_int8; i++) drop_net(&n->int8[i]);
    free(n->int8);
    n->int8 = NULL;
    n->n_phases = n->n_int8 = 0;
}

static dt_status plan_again(dt_nets *n, dt_open_run *r, int n_replicas) {
    dt_nets_drop(n);
    if (n_replicas != r->replicas->n_replicas) {
        DT_TRY(dt_run_set_replicas(r, n_replicas)); // elastic keeps replica_threads, resume divides the threads again
        dt_run_answer(r);
    }
    DT_TRY(nets_build_graphs(n, r));
    return nets_make_plans(n, r);
}

// Plans that fit. device.replicas: auto is a replica a thread, as it is the fastest, but no more than have room, which
// is `room` bytes on the rank that has the least.
static dt_status make_fitting(dt_nets *n, dt_open_run *r, size_t room) {
    DT_TRY(nets_build_graphs(n, r));
    if (n->training) DT_TRY(dt_memory_check_activations(r, dt_nets_trained(n).graph));
    DT_TRY(nets_make_plans(n, r));
    const int most = r->replicas->n_replicas;
    const bool saves = n->training && r->config->checkpoint.async;
    // halved until it fits: plans are made again each time
    while (r->replicas_open && r->replicas->n_replicas > 1 &&
           dt_memory_bytes(n, r) + dt_memory_outside_bytes(n, r, saves) > room)
        DT_TRY(plan_again(n, r, r->replicas->n_replicas / 2));
    if (r->replicas->n_replicas < most && dt_memory_fits(n, r))
        dt_info("device.replicas: auto: %d of %d threads: %d would take more memory than there is",
                r->replicas->n_replicas, r->resolved.replica_threads, most);
    r->replicas_open = false;
    return dt_memory_check(n, r);
}

// Engines are chosen while plans are made. Engines differ in the order of their sums, so all ranks take rank 0's:
// it makes its plans while the others wait, then broadcasts its choices, or its failure.
static dt_status make_after_root(dt_nets *n, dt_open_run *r, size_t room) {
    char *text = NULL;
    dt_status st = dt_run_is_root(r) ? make_fitting(n, r, room) : DT_OK;
    // heap; NULL: the backend has nothing to choose
    if (dt_run_is_root(r) && st == DT_OK) text = r->backend->choices(r->backend);
    st = dt_agree_result(r->comm, st, &text);
    // ranks plan with rank 0's number, which may have shrunk there
    int replicas = r->resolved.replicas;
    if (st == DT_OK) st = r->comm->broadcast_bytes(r->comm, &replicas, sizeof replicas, 0);
    if (st == DT_OK && replicas != r->resolved.replicas) {
        st = dt_run_set_replicas(r, replicas);
        dt_run_answer(r);
    }
    r->replicas_open = false;
    if (st == DT_OK && !dt_run_is_root(r)) {
        if (text) r->backend->take_choices(r->backend, text); // so that every rank sums in the same order
        st = make_fitting(n, r, room);
    }
    free(text);
    return st;
}

// ---- what only plans can answer --------------------------------------------------------------------

// The least memory that any rank may use.
static dt_status find_least_room(const dt_open_run *r, size_t *least) {
    size_t *all = dt_xcalloc((size_t)r->comm->world_size, sizeof *all);
    const size_t mine = dt_memory_free_bytes(r);
    const dt_status st = r->comm->all_gather_bytes(r->comm, &mine, sizeof mine, all);
    *least = mine;
    for (int i = 0; i < r->comm->world_size && st == DT_OK; i++)
        if (all[i] < *least) *least = all[i];
    free(all);
    return st;
}

// train.precision: auto where a backend measures it. Rank 0 does, on the graph that will run; what does not fit in fp32
// takes bf16.
static dt_status choose_precision(dt_open_run *r, bool training) {
    static const dt_precision precisions[2] = {DT_PRECISION_fp32, DT_PRECISION_bf16};
    dt_graph *g[2] = {NULL, NULL};
    const bool root = dt_run_is_root(r);
    char *word = NULL;
    int faster = 1;
    dt_status st = DT_OK;
    for (int i = 0; root && i < 2 && st == DT_OK; i++) { // rank 0 measures, the others wait in dt_agree_result
        r->resolved.precision = precisions[i];
        // the graph of the last step: every group unfrozen, every scale joined
        st = build_graph(r, training, r->record.total_steps, &g[i]);
    }
    if (root && st == DT_OK && dt_memory_may_fit(r, g[0])) // in fp32; what does not fit takes bf16, faster = 1
        st = r->backend->choose_precision(r->backend, g[0], g[1], r->replicas->n_replicas, &faster);
    for (int i = 0; i < 2; i++)
        if (g[i]) dt_graph_destroy(g[i]);
    // a word travels as text with the outcome
    if (root && st == DT_OK) word = dt_xstrdup(DT_WORD_OF(DT_PRECISION_WORDS, precisions[faster]));
    st = dt_agree_result(r->comm, st, &word);
    if (st == DT_OK) {
        r->resolved.precision = (dt_precision)dt_word_index(DT_WORDS(DT_PRECISION_WORDS), word);
        dt_run_answer(r);
    }
    free(word);
    return st;
}

// model.sync_bn: the batch norms of a micro-batch wait for those of the other ranks.
static dt_status check_sync_bn(const dt_open_run *r) {
    static const char key[] = "model.sync_bn";
    const int n_micro = dt_run_n_micro(r);
    if (!r->config->model.sync_bn) return DT_OK;
    if (dt_run_is_elastic(r))
        return dt_config_fail(r->config, key,
                              "%s makes results depend on the number of ranks, and run.reproducible "
                              "is elastic: take a larger train.micro_batch, or "
                              "run.reproducible=resume",
                              key);
    if (r->replicas->n_replicas > 1)
        return dt_config_fail(r->config, key, "%s needs one worker group per rank: leave device.replicas out", key);
    if (n_micro % r->comm->world_size) // each rank exchanges statistics once per micro-batch: numbers must match
        return dt_config_fail(
            r->config, key,
            "%s needs the same number of micro-batches on each rank: %d ranks do not divide the step's %d", key,
            r->comm->world_size, n_micro);
    return DT_OK;
}

// ---- what trains, but not as it was meant ------------------------------------------------------------

// Whether the field is a target, a node in front of an output reads it, or a teacher does.
static bool is_read(const dt_nets *n, bool teacher, const dt_field_info *f) {
    const dt_graph *g = dt_nets_last_evaluated(n).graph, *trained = dt_nets_trained(n).graph;
    // by value: an output depends on it
    bool *needed = dt_xcalloc((size_t)g->n_values + 1, sizeof *needed), found = false;
    for (int k = 0; k < n->targets.n; k++) found |= n->targets.items[k].field == f;
    for (int k = 0; k < g->n_outputs; k++) needed[g->outputs[k].value] = true;
    // backward over the nodes: inputs of a needed node are needed
    for (dt_node_id id = g->n_nodes - 1; id >= 0; id--) {
        const dt_node *x = &g->nodes[id];
        bool wanted = false;
        for (int k = 0; k < x->n_out && !x->dead; k++) wanted |= x->out[k] != DT_NONE && needed[x->out[k]];
        for (int k = 0; k < x->n_in && wanted; k++)
            if (x->in[k] != DT_NONE) needed[x->in[k]] = true;
    }
    for (dt_value v = 0; v < g->n_values && !found; v++)
        found = needed[v] && g->values[v].kind == DT_V_INPUT && strcmp(g->values[v].name, f->name) == 0;
    free(needed);
    // a teacher reads inputs that are in the training graph alone
    const dt_value own = teacher ? dt_graph_find(trained, f->name) : DT_NONE;
    for (dt_node_id id = 0; id < trained->n_nodes && own != DT_NONE; id++)
        for (int k = 0; k < trained->nodes[id].n_in; k++) found |= trained->nodes[id].in[k] == own;
    return found;
}

static void warn_of_fields(const dt_nets *n, const dt_open_run *r) {
    for (int i = 0; i < r->n_fields; i++)
        if (!is_read(n, r->teacher.config != NULL, &r->fields[i]))
            dt_warn_alike("data.fields.%s: nothing reads it: model %s does not, and it is no "
                          "target; leave it out, or predict it by train.targets",
                          r->fields[i].name, dt_config_text(r->config, DT_KEY(model.name)));
    char names[512];
    for (int i = 0; r->data && r->data->unvalidated && i < n->targets.n; i++) { // names: room for those of the message
        const dt_field_info *f = n->targets.items[i].field;
        const int without =
            f->n_classes > 0 ? r->data->unvalidated(r->data, n->targets.items[i].index, names, sizeof names) : 0;
        if (without > 0)
            dt_warn_alike("field %s: %d of %d classes have no sample in the validation split (%s): no metric there "
                          "sees them; data.split.stratify: COLUMN divides each class in proportion",
                          f->name, without, f->n_classes, names);
    }
}

static void warn_of_training(const dt_nets *n, const dt_open_run *r) {
    const dt_config *c = r->config;
    const dt_graph *g = dt_nets_trained(n).graph;
    const int64_t total = r->record.total_steps;
    const int64_t warmup = dt_amount_steps(c->train.schedule.warmup, total, r->record.steps_per_epoch); // in steps
    double bytes;
    warn_of_fields(n, r);
    if (r->data && warmup > total)
        dt_warn_alike("train.schedule.warmup: %lld steps, and the run has %lld: the learning rate "
                      "ends at %.3g, below train.optimizer.lr",
                      (long long)warmup, (long long)total, c->train.optimizer.lr * (double)total / (double)warmup);
    // only the form of train.recompute with a limit can miss it
    if (g->recompute.bytes_before && dt_cnode_size(c->train.recompute) == 1 &&
        dt_config_parse_bytes(dt_cnode_str(dt_cnode_item(c->train.recompute, 0)), &bytes) &&
        (double)g->recompute.bytes_after > bytes)
        dt_warn_alike("train.recompute: %s: the activations of a micro-batch take about %.1f MiB "
                      "at least (%.1f MiB without): lower train.micro_batch",
                      dt_cnode_str(dt_cnode_item(c->train.recompute, 0)), (double)g->recompute.bytes_after / 1048576.0,
                      (double)g->recompute.bytes_before / 1048576.0);
}

dt_status dt_nets_make(dt_nets *n, dt_open_run *r, bool training) {
    const dt_config *c = r->config;
    size_t room = SIZE_MAX;
    *n = (dt_nets){.training = training};
    if (training) DT_TRY(dt_resolve_check_training(c, r->backend));
    if (training && c->model.int8)
        return dt_config_fail(c, "model.int8",
                              "model.int8 is set by dtrain quantize, of a run that was trained without");
    if (training) DT_TRY(dt_agree_shared(r->comm, check_sync_bn(r)));
    DT_TRY(dt_agree_shared(r->comm, dt_targets_read(&n->targets, c, r->fields, r->n_fields, training)));
    if (r->resolved.precision == DT_PRECISION_auto && r->backend->choose_precision)
        DT_TRY(choose_precision(r, training));
    // before plans are made: the number of replicas that fits depends on it
    if (r->replicas_open) DT_TRY(find_least_room(r, &room));
    const bool after_root = r->backend->choices && r->comm->world_size > 1; // timed choices: rank 0 plans first
    DT_TRY(dt_agree_memory(r->comm, r->backend, (after_root ? make_after_root : make_fitting)(n, r, room)));
    if (training) warn_of_training(n, r);
    return DT_OK;
}

// ---- train.micro_batch: auto ------------------------------------------------------------------------
// The largest micro-batch whose plan fits the memory. train.global_batch stays, so neither the learning rate nor the
// number of steps changes. Nothing is tried out: plans know their sizes before they take memory.

// What training takes of this rank's memory with the values that the run has now: plans are made and dropped, unless
// the activations alone are far too large.
static dt_status nets_measure(dt_open_run *r, size_t *n_bytes) {
    dt_nets n = {.training = true};
    DT_TRY(dt_run_set_replicas(r, r->resolved.replicas)); // of the size under test
    DT_TRY(dt_targets_read(&n.targets, r->config, r->fields, r->n_fields, true));
    dt_status st = nets_build_graphs(&n, r);
    *n_bytes = st == DT_OK ? dt_memory_excess_bytes(r, dt_nets_trained(&n).graph) : 0;
    if (st == DT_OK && !*n_bytes) {
        st = nets_make_plans(&n, r);
        if (st == DT_OK) *n_bytes = dt_memory_bytes(&n, r);
    }
    dt_nets_drop(&n);
    return st;
}

static size_t budget_of(const dt_open_run *r) {
    size_t free_bytes = 0, total_bytes = 0;
    if (!r->config->train.memory.is_auto) return (size_t)dt_answer(r->config->train.memory); // bytes per rank
    if (r->backend->device) {
        r->backend->device->memory(r->backend, &free_bytes, &total_bytes);
        return free_bytes / 5 * 4; // a fifth is left to other processes and to what is allocated later
    }
    dt_memory m;
    dt_memory_read(&m);
    return (size_t)(m.available_bytes / 5 * 4 / (uint64_t)r->comm->local_size);
}

// Divisors of train.global_batch, ascending, that leave work to all replicas.
static int list_sizes(const dt_open_run *r, int **out) {
    const dt_config *c = r->config;
    const int global = dt_run_global_batch(r);
    // micro-batches per step at most: one per replica
    const int most = global / (r->comm->world_size * r->resolved.replicas);
    const int ranks = c->model.sync_bn ? r->comm->world_size : 1; // as many on each rank
    int n = 0;
    *out = dt_xcalloc((size_t)most + 1, sizeof **out);
    // mixing needs a second sample in the micro-batch
    for (int d = c->data.mix.mixup.has || c->data.mix.cutmix.has ? 2 : 1; d <= most; d++)
        if (global % d == 0 && global / d % ranks == 0) (*out)[n++] = d;
    return n;
}

// Rank 0. *chosen 0: none of the sizes fits; then *least is what the smallest takes.
static dt_status search_sizes(dt_open_run *r, const int *sizes, int n, int *chosen, size_t *least) {
    const size_t budget = budget_of(r);
    size_t n_bytes = 0;
    int begin = 0, end = n; // the first that does not fit is in [begin, end]
    // the largest first: a rank's only micro-batch may take less than a smaller one
    while (begin < end) {
        const int middle = end == n ? n - 1 : (begin + end) / 2; // first probe: the largest
        r->resolved.micro_batch = sizes[middle];
        DT_TRY(nets_measure(r, &n_bytes));
        // train.memory bounds what training takes, not what is kept free beside it
        if (!r->config->train.memory.is_auto) n_bytes -= dt_memory_reserve_bytes(r->backend);
        if (n_bytes <= budget)
            begin = middle + 1;
        else
            end = middle;
        if (middle == 0) *least = n_bytes; // of the smallest size, for the message
    }
    *chosen = begin ? sizes[begin - 1] : 0;
    if (*chosen)
        dt_info("train.micro_batch: auto: %d fits in %.0f MiB; micro-batches per step: %d", *chosen,
                (double)budget / 1048576.0, dt_run_global_batch(r) / *chosen);
    return DT_OK;
}

// Without timing engines for sizes that are not taken.
static dt_status search_untimed(dt_open_run *r, const int *sizes, int n, int *chosen, size_t *least) {
    const dt_device *d = r->backend->device;
    // the backend plans without timing: sizes are all that is compared
    if (d && d->size_only) DT_TRY(d->size_only(r->backend, true));
    const dt_status st = search_sizes(r, sizes, n, chosen, least);
    if (d && d->size_only) d->size_only(r->backend, false);
    return st;
}

// Rank 0: the micro-batch, of fewer replicas where none fits.
static dt_status choose_micro_batch(dt_open_run *r, int *chosen) {
    size_t least = 0;
    int n = 0;
    for (bool more = true; more && !*chosen;) {
        int *sizes;
        n = list_sizes(r, &sizes);
        const dt_status st = n ? search_untimed(r, sizes, n, chosen, &least) : DT_OK;
        free(sizes);
        DT_TRY(st);
        more = r->replicas_open && r->resolved.replicas > 1; // fewer replicas leave more memory to each
        if (!*chosen && more) DT_TRY(dt_run_set_replicas(r, r->resolved.replicas / 2));
    }
    if (*chosen) return DT_OK;
    return dt_config_fail(r->config, "train.micro_batch",
                          n ? "train.micro_batch: auto: not even the smallest fits: it takes %.1f "
                              "MiB of the %.1f of train.memory"
                            : "train.micro_batch: auto: no divisor of train.global_batch leaves "
                              "work to all ranks",
                          (double)least / 1048576.0, (double)budget_of(r) / 1048576.0);
}

dt_status dt_nets_choose_micro_batch(dt_open_run *r, const dt_resolved *stored) {
    int answer[2] = {stored ? stored->micro_batch : 0, r->resolved.replicas}; // stored: no search, on any rank
    if (!stored) {
        char *nothing = NULL;
        dt_status st = dt_run_is_root(r) ? choose_micro_batch(r, &answer[0]) : DT_OK;
        answer[1] = r->resolved.replicas;
        DT_TRY(dt_agree_result(r->comm, st, &nothing));
        DT_TRY(r->comm->broadcast_bytes(r->comm, answer, sizeof answer, 0));
        if (answer[1] != r->resolved.replicas) DT_TRY(dt_run_set_replicas(r, answer[1]));
    }
    r->resolved.micro_batch = answer[0];
    return DT_OK;
}

// ---- use -------------------------------------------------------------------------------------------

dt_net dt_nets_trained(const dt_nets *n) {
    // none where a failure came before the phases were listed
    return n->n_phases ? n->phases[n->n_phases - 1].train : (dt_net){0};
}

const dt_phase *dt_nets_phase_at(const dt_nets *n, int64_t step) {
    // phases are in order of begin; the first begins at 0
    const dt_phase *p = &n->phases[n->n_phases - 1];
    while (p > n->phases && p->begin > step) p--;
    return p;
}

dt_net dt_nets_evaluated(const dt_nets *n, int64_t done) {
    const dt_phase *p = dt_nets_phase_at(n, done > 0 ? done - 1 : 0);
    // the evaluation network of a phase without a joining scale is that of an earlier one
    while (!p->joins) p--;
    return p->eval;
}

dt_net dt_nets_last_evaluated(const dt_nets *n) {
    return dt_nets_evaluated(n, INT64_MAX);
}

dt_status dt_nets_add_int8(dt_nets *n, dt_open_run *r, const dt_int8 *q, dt_net *out) {
    const dt_plan_opts opts = plan_opts(r);
    n->int8 = dt_xrealloc(n->int8, sizeof *n->int8 * (size_t)(n->n_int8 + 1)); // the array moves: out is a copy
    dt_net *net = &n->int8[n->n_int8++];
    *net = (dt_net){0};
    DT_TRY(build_eval_graph(r, n->phases[n->n_phases - 1].begin, q, &net->graph));
    DT_TRY(dt_plan_create(&net->plan, net->graph, n->params, &opts));
    *out = *net;
    return DT_OK;
}

dt_infer_opts dt_nets_infer_opts(const dt_nets *n, const dt_open_run *r, dt_net net, dt_team *team) {
    return (dt_infer_opts){.comm = r->comm,
                           .graph = net.graph,
                           .plan = net.plan,
                           .params = n->params,
                           .team = team,
                           .n_replicas = r->replicas->n_replicas,
                           .replica_threads = r->resolved.replica_threads,
                           .batch = dt_run_eval_batch(r),
                           .fields = r->fields,
                           .n_fields = r->n_fields};
}
