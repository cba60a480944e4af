// exec.c: the loop over a plan's instructions.
//
// Pointers are resolved once, when the exec is made. Two kinds of pointers are patched later: a batch's inputs when
// they are bound, and gradients when a run gets another buffer than the run before. So a step costs the kernels' calls
// and nothing else.

#include "exec/exec.h"

#include "base/os.h"
#include "base/rank_report.h"
#include "base/trace.h"
#include "base/watch.h"
#include "exec/plan_internal.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct pointer_patch {
    const void **where;
    int64_t offset; // gradient buffer: elements; input: index
} pointer_patch;

typedef struct instruction_pointers {
    const void **in;
    void **out;
    void **packed;
    const float **dense; // by pack: what is packed at use
} instruction_pointers;

struct dt_exec {
    const dt_plan *plan;
    int replica;
    dt_arena arena;
    char *flat;            // shared with the other plans of the parameters, or in `memory`
    dt_flat_buffer memory; // holds the two that are this exec's own
    instruction_pointers *instructions;
    pointer_patch *grad_patches, *input_patches;
    int n_grad_patches, n_input_patches;
    const float *grad;            // the flat buffer that the gradient pointers refer to now
    float *staging;               // dense f32 copy of a graph output
    dt_step_block *device_step;   // device: where args->step is uploaded to, when it differs from
    dt_step_block uploaded;       // what is there: zeros at first
    double forward_s, backward_s; // spent in dt_exec_run since they were taken
};

static const void *exec_resolve(const dt_exec *e, const dt_ref *ref) {
    const dt_plan *p = e->plan;
    switch (ref->place) {
    case DT_P_FLAT:
        return e->flat + p->buffers[ref->buffer].offset;
    case DT_P_MASTER:
        return dt_params_dense(p->params, ref->offset);
    case DT_P_BUFFER:
        return p->params->buffer + ref->offset;
    case DT_P_CONST:
        return p->constant ? p->constant[ref->buffer] : ref->data;
    // patched later: dt_exec_run, dt_exec_bind
    case DT_P_GRAD:
    case DT_P_INPUT:
    case DT_P_NONE:
        return NULL;
    }
    return NULL;
}

static void note_patch(dt_exec *e, const dt_ref *ref, const void **where) {
    if (ref->place == DT_P_GRAD) e->grad_patches[e->n_grad_patches++] = (pointer_patch){where, ref->offset};
    if (ref->place == DT_P_INPUT) e->input_patches[e->n_input_patches++] = (pointer_patch){where, ref->offset};
}

static void place_pack(dt_exec *e, const dt_instruction *s, instruction_pointers *t, int i) {
    const dt_plan *p = e->plan;
    if (s->pack_ids[i] >= 0) {
        t->packed[i] = dt_params_packed(p->params, s->pack_ids[i]); // shared with other plans
        return;
    }
    t->packed[i] = e->flat + p->activation_bytes + s->pack_at[i]; // in scratch, behind the kernel's own
    t->dense[i] = exec_resolve(e, &p->forms[p->form_of[s->instance.packs[i].params[0]]].ref);
}

static void resolve_instructions(dt_exec *e) {
    const dt_plan *p = e->plan;
    size_t n_refs = 1;
    for (int k = 0; k < p->n_instructions; k++) n_refs += (size_t)(p->instructions[k].n_in + p->instructions[k].n_out);
    // at most each reference; the lists are never grown, so `where` stays valid
    e->grad_patches = dt_arena_alloc(&e->arena, sizeof(pointer_patch) * n_refs);
    e->input_patches = dt_arena_alloc(&e->arena, sizeof(pointer_patch) * n_refs);
    e->instructions = dt_arena_alloc(&e->arena, sizeof(instruction_pointers) * (size_t)(p->n_instructions + 1));
    for (int k = 0; k < p->n_instructions; k++) {
        const dt_instruction *s = &p->instructions[k];
        instruction_pointers *t = &e->instructions[k];
        t->in = dt_arena_alloc(&e->arena, sizeof(void *) * (size_t)(s->n_in + 1));
        t->out = dt_arena_alloc(&e->arena, sizeof(void *) * (size_t)(s->n_out + 1));
        t->packed = dt_arena_alloc(&e->arena, sizeof(void *) * (DT_MAX_PACKS + 1));
        t->dense = dt_arena_alloc(&e->arena, sizeof(float *) * (DT_MAX_PACKS + 1));
        for (int i = 0; i < s->n_in; i++) {
            t->in[i] = exec_resolve(e, &s->in[i]);
            note_patch(e, &s->in[i], &t->in[i]);
        }
        for (int i = 0; i < s->n_out; i++) {
            t->out[i] = (void *)exec_resolve(e, &s->out[i]);
            note_patch(e, &s->out[i], (const void **)&t->out[i]);
        }
        for (int i = 0; s->kernel && i < s->instance.n_packs; i++) place_pack(e, s, t, i);
    }
}

dt_status dt_exec_create(dt_exec **out, const dt_plan *plan, int replica) {
    assert(replica >= 0 && replica < plan->opts.n_replicas); // kernels have library objects for as many
    dt_exec *e = dt_xcalloc(1, sizeof *e);
    dt_arena_init(&e->arena);
    e->plan = plan;
    e->replica = replica;
    size_t staging_bytes = 0; // of the largest output, as f32
    for (int i = 0; i < plan->graph->n_outputs; i++) {
        const dt_value_info *v = &plan->graph->values[plan->graph->outputs[i].value];
        size_t n_bytes = (size_t)dt_shape_elements(&v->shape) * sizeof(float);
        if (n_bytes > staging_bytes) staging_bytes = n_bytes;
    }
    dt_status st = dt_params_take_work(plan->params, plan->flat_bytes, replica, &e->flat);
    if (st == DT_OK && !e->flat) dt_flat_buffer_add(&e->memory, (void **)&e->flat, plan->flat_bytes);
    dt_flat_buffer_add(&e->memory, (void **)&e->staging, staging_bytes);
    dt_flat_buffer_add(&e->memory, (void **)&e->device_step, plan->backend->device ? sizeof *e->device_step : 0);
    // sets staging, device_step
    if (st == DT_OK) st = dt_flat_buffer_alloc(&e->memory, plan->backend, "activations");
    if (st != DT_OK) {
        dt_exec_destroy(e);
        return st;
    }
    resolve_instructions(e);
    *out = e;
    return DT_OK;
}

void dt_exec_destroy(dt_exec *e) {
    if (!e) return;
    dt_flat_buffer_free(&e->memory);
    dt_arena_fini(&e->arena);
    free(e);
}

int dt_exec_input_index(const dt_exec *e, const char *name) {
    for (int i = 0; i < e->plan->n_inputs; i++)
        if (strcmp(e->plan->graph->values[e->plan->inputs[i]].name, name) == 0) return i;
    return -1;
}

void dt_exec_bind_index(dt_exec *e, int index, const void *data) {
    for (int i = 0; i < e->n_input_patches; i++)
        // several nodes may read an input
        if (e->input_patches[i].offset == index) *e->input_patches[i].where = data;
}

size_t dt_exec_input_bytes(const dt_exec *e, int index) {
    const dt_value_info *v = &e->plan->graph->values[e->plan->inputs[index]];
    return (size_t)dt_shape_elements(&v->shape) * dt_dtype_size(v->dtype);
}

bool dt_exec_bind(dt_exec *e, const char *name, const void *data) {
    int i = dt_exec_input_index(e, name);
    if (i >= 0) dt_exec_bind_index(e, i, data);
    return i >= 0;
}

static void use_grad_flat(dt_exec *e, float *grad) {
    if (grad == e->grad) return; // the same buffer as in the run before: nearly always
    for (int i = 0; i < e->n_grad_patches; i++) *e->grad_patches[i].where = grad + e->grad_patches[i].offset;
    e->grad = grad;
}

// The step block as the kernels see it.
static const dt_step_block *step_block(dt_exec *e, const dt_exec_args *a) {
    dt_backend *b = e->plan->backend;
    if (!b->device) return &a->step;
    if (a->device_step) return a->device_step;
    // one copy a change and not one a run: replays of a graph do without
    if (memcmp(&e->uploaded, &a->step, sizeof a->step)) {
        b->copy_to_device(b, e->device_step, &a->step, sizeof a->step);
        e->uploaded = a->step;
    }
    return e->device_step;
}

static void *custom_stream(const dt_exec *e) {
    const dt_device *d = e->plan->backend->device;
    return d ? d->stream : NULL;
}

static void run_instruction(dt_exec *e, int k, const dt_exec_args *a, const dt_step_block *step) {
    const dt_plan *p = e->plan;
    const dt_instruction *s = &p->instructions[k];
    const instruction_pointers *t = &e->instructions[k];
    void *stream = a->stream ? a->stream : custom_stream(e); // NULL on the CPU
    if (!s->kernel) {
        p->backend->reorder(p->backend, p->opts.threads, &p->graph->values[s->value].shape, t->in[0], s->type, s->from,
                            t->out[0], s->type, s->to, stream);
        return;
    }
    dt_run r = {.in = t->in,
                .out = t->out,
                .packed = t->packed,
                .scratch = e->flat + p->activation_bytes, // dead after the instruction, so all share it
                .replica = e->replica,
                .accumulate = a->accumulate ? s->sums : s->adds, // the first micro-batch overwrites
                .step = step,
                .ranks = a->ranks,
                .stream = stream};
    for (int i = 0; i < s->instance.n_packs; i++) {
        const dt_pack_request *pack = &s->instance.packs[i];
        if (s->pack_ids[i] < 0) pack->pack(pack->ctx, &t->dense[i], t->packed[i], s->instance.threads, stream);
    }
    const dt_node *node = s->instance.node;
    dt_rank_at("node", node->name); // for messages of a crash or a hang
    const double traced = dt_trace_begin();
    s->kernel->run(&s->instance, &r);
    dt_trace_end(node->backward ? "backward" : "forward", node->name, traced);
}

static void after_instruction(const dt_exec *e, int k, const dt_exec_args *a) {
    const dt_instruction *s = &e->plan->instructions[k];
    if (a->on_grad)
        for (int i = 0; i < s->n_grads; i++) a->on_grad(a->ctx, s->grads[i]);
    if (a->poll) a->poll(a->ctx); // progress of the all-reduce between kernels
}

void dt_exec_run(dt_exec *e, const dt_exec_args *a) {
    dt_watch_tick(); // progress, for the watchdog
    use_grad_flat(e, a->grad);
    const dt_step_block *step = step_block(e, a);
    const double begin_s = dt_clock_s();
    double backward_s = 0; // when it began
    for (int k = 0; k < e->plan->n_instructions; k++) {
        const dt_instruction *s = &e->plan->instructions[k];
        if (backward_s == 0 && s->kernel && s->instance.node->backward) backward_s = dt_clock_s();
        run_instruction(e, k, a, step);
        after_instruction(e, k, a);
    }
    const double end_s = dt_clock_s();
    e->forward_s += (backward_s > 0 ? backward_s : end_s) - begin_s;
    e->backward_s += backward_s > 0 ? end_s - backward_s : 0;
}

void dt_exec_take_times(dt_exec *e, double *forward_s, double *backward_s) {
    *forward_s += e->forward_s;
    *backward_s += e->backward_s;
    e->forward_s = e->backward_s = 0;
}

// ---- checking --------------------------------------------------------------------------------------

static bool exec_all_finite(const dt_exec *e, const dt_value_info *v, const void *data, size_t n_bytes) {
    if (!dt_dtype_is_float(v->dtype)) return true;
    // slow on purpose: a step that went bad is repeated once, to name the tensor
    void *host = dt_xcalloc(1, n_bytes + 1);
    e->plan->backend->copy_to_host(e->plan->backend, host, data, n_bytes);
    bool finite = true;
    if (v->dtype == DT_F32) {
        const float *x = host;
        for (size_t i = 0; i < n_bytes / 4; i++) finite = finite && isfinite(x[i]);
    } else {
        const uint16_t *x = host; // exponent all ones = infinity or NaN
        const uint16_t ones = v->dtype == DT_BF16 ? 0x7f80 : 0x7c00;
        for (size_t i = 0; i < n_bytes / 2; i++) finite = finite && (x[i] & ones) != ones;
    }
    free(host);
    return finite;
}

const char *dt_exec_run_checked(dt_exec *e, const dt_exec_args *a) {
    const dt_graph *g = e->plan->graph;
    use_grad_flat(e, a->grad);
    const char *bad = NULL;
    dt_backend *b = e->plan->backend;
    const dt_step_block *step = step_block(e, a);
    for (int k = 0; k < e->plan->n_instructions; k++) {
        run_instruction(e, k, a, step);
        after_instruction(e, k, a);
        if (a->stream) b->device->synchronize(b, a->stream); // outputs are read below
        const dt_instruction *s = &e->plan->instructions[k];
        for (int i = 0; !bad && s->kernel && i < s->n_out; i++) { // the first in execution order is the cause
            dt_value v = s->instance.node->out[i];
            if (v == DT_NONE) continue;
            const dt_value_info *info = &g->values[v];
            const dt_layout l = info->kind == DT_V_TEMP ? s->instance.out_layout[i] : dt_dense(); // else f32, dense
            size_t n_bytes = (size_t)dt_layout_elements(l, &info->shape) * dt_dtype_size(info->dtype);
            if (!exec_all_finite(e, info, e->instructions[k].out[i], n_bytes)) bad = info->name;
        }
    }
    return bad;
}

void dt_exec_run_shown(dt_exec *e, const dt_exec_args *a, void (*look)(void *ctx, dt_value v, const float *x),
                       void *ctx) {
    const dt_plan *p = e->plan;
    dt_backend *b = p->backend;
    int64_t most = 0; // elements of the largest activation
    for (dt_value v = 0; v < p->graph->n_values; v++) {
        const int64_t n = dt_shape_elements(&p->graph->values[v].shape);
        if (p->graph->values[v].kind == DT_V_TEMP && n > most) most = n;
    }
    float *dense = dt_xcalloc((size_t)most + 1, sizeof *dense);
    use_grad_flat(e, a->grad);
    const dt_step_block *step = step_block(e, a);
    for (int k = 0; k < p->n_instructions; k++) {
        const dt_instruction *s = &p->instructions[k];
        run_instruction(e, k, a, step);
        if (!s->kernel || s->instance.node->backward) continue;
        const dt_value v = s->instance.node->out[0];
        const dt_value_info *info = &p->graph->values[v];
        // statistics lie elsewhere; int8 calibration looks at f32 activations only
        if (info->kind != DT_V_TEMP || info->dtype != DT_F32) continue;
        b->reorder(b, p->opts.threads, &info->shape, e->instructions[k].out[0], DT_F32, s->instance.out_layout[0],
                   dense, DT_F32, dt_dense(), NULL);
        look(ctx, v, dense);
    }
    free(dense);
}

int64_t dt_exec_output(const dt_exec *e, const char *name, float *out, int64_t cap) {
    const dt_plan *p = e->plan;
    const dt_graph *g = p->graph;
    for (int i = 0; i < g->n_outputs; i++) {
        if (strcmp(g->outputs[i].name, name) != 0) continue;
        dt_value v = g->outputs[i].value;
        const dt_value_info *info = &g->values[v];
        int64_t n = dt_shape_elements(&info->shape);
        if (n > cap) return -1; // the caller's array is too small
        const dt_form *f = &p->forms[p->form_of[v]];
        const void *data = exec_resolve(e, &f->ref);
        if (!data) return -1; // an input is itself an output: its memory is the caller's
        p->backend->reorder(p->backend, 1, &info->shape, data, info->dtype, f->layout, e->staging, DT_F32, dt_dense(),
                            custom_stream(e));
        p->backend->copy_to_host(p->backend, out, e->staging, (size_t)n * sizeof(float));
        return n;
    }
    return -1;
}
