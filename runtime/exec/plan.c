// plan.c: from a graph to a list of instructions with layouts, places and kernels. See plan.h.
//
// One walk over the nodes in execution order. For each node the kernel sees the layouts in which
// its inputs exist and sets those that it needs; where they differ, a reorder instruction makes
// another "form" of the value, which later readers share. Lifetimes follow from the instructions that
// touch a form. Layout choice is greedy and local: convolutions need blocked tensors, everything
// between them takes what comes, so chains stay blocked and reorders appear only at the edges.
//
// Rejected: a global layout search (no gain where one block size serves all), and giving reorders
// nodes in the graph (layouts would leak into the IR).

#include "base/text.h"
#include "base/watch.h"
#include "exec/plan_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

// ---- growing lists ---------------------------------------------------------------------------------

static void *room_for_one(void *list, int n, int *cap, size_t size) {
    if (n < *cap) return list;
    *cap = *cap ? 2 * *cap : 256; // doubled: the time stays linear
    return dt_xrealloc(list, size * (size_t)*cap);
}

static int new_buffer(dt_plan *p, size_t n_bytes, int instruction) {
    p->buffers = room_for_one(p->buffers, p->n_buffers, &p->cap_buffers, sizeof *p->buffers);
    p->buffers[p->n_buffers] = (dt_plan_buffer){.n_bytes = n_bytes, .first = instruction, .last = instruction};
    return p->n_buffers++;
}

static int new_form(dt_plan *p, dt_value v, dt_layout layout, dt_ref ref) {
    p->forms = room_for_one(p->forms, p->n_forms, &p->cap_forms, sizeof *p->forms);
    int id = p->n_forms++;
    p->forms[id] = (dt_form){.layout = layout, .ref = ref, .next = -1};
    // at the end of the list: the first is the one that its producer made
    if (p->form_of[v] < 0) {
        p->form_of[v] = id;
    } else {
        int last = p->form_of[v];
        while (p->forms[last].next >= 0) last = p->forms[last].next;
        p->forms[last].next = id;
    }
    return id;
}

static dt_instruction *new_instruction(dt_plan *p, int n_in, int n_out) {
    p->instructions = room_for_one(p->instructions, p->n_instructions, &p->cap_instructions, sizeof *p->instructions);
    dt_instruction *s = &p->instructions[p->n_instructions++];
    memset(s, 0, sizeof *s); // realloc's memory is not zero
    s->n_in = n_in;
    s->n_out = n_out;
    s->in = dt_arena_alloc(&p->arena, sizeof(dt_ref) * (size_t)(n_in + 1));
    s->out = dt_arena_alloc(&p->arena, sizeof(dt_ref) * (size_t)(n_out + 1));
    return s;
}

// ---- values that exist before the first step -------------------------------------------------------

static size_t dense_bytes(const dt_value_info *v) {
    return (size_t)dt_shape_elements(&v->shape) * dt_dtype_size(v->dtype);
}

// Constants lie in the graph's arena; a device gets copies.
static void list_constants(dt_plan *p) {
    const dt_graph *g = p->graph;
    if (!p->backend->device) return;
    p->constant = dt_arena_alloc(&p->arena, sizeof(void *) * (size_t)(g->n_values + 1));
    for (dt_value v = 0; v < g->n_values; v++)
        if (g->values[v].kind == DT_V_CONST)
            dt_flat_buffer_add(&p->constants, &p->constant[v], dense_bytes(&g->values[v]));
}

dt_status dt_plan_take(dt_plan *p) {
    const dt_graph *g = p->graph;
    dt_backend *b = p->backend;
    if (!p->constant) return DT_OK; // the CPU reads them in the graph
    DT_TRY(dt_flat_buffer_alloc(&p->constants, b, "constants"));
    for (dt_value v = 0; v < g->n_values; v++)
        if (p->constant[v]) b->copy_to_device(b, p->constant[v], g->values[v].data, dense_bytes(&g->values[v]));
    return DT_OK;
}

static dt_status place_fixed_value(dt_plan *p, dt_value v) {
    const dt_value_info *info = &p->graph->values[v];
    dt_ref ref = {.place = DT_P_NONE};
    int id = 0;
    switch (info->kind) {
    case DT_V_TEMP: // placed when its node is
        return DT_OK;
    case DT_V_INPUT:
        ref.place = DT_P_INPUT;
        ref.offset = p->n_inputs;
        p->inputs[p->n_inputs++] = v;
        break;
    case DT_V_CONST:
        ref.place = DT_P_CONST;
        ref.data = info->data;
        ref.buffer = v;
        break;
    case DT_V_PARAM:
    case DT_V_BUFFER:
        id = dt_params_find(p->params, info->name, info->kind == DT_V_BUFFER);
        if (id < 0)
            return dt_fail(DT_E_INTERNAL, "graph '%s': parameter '%s' is not among the parameters of the model",
                           p->graph->name, info->name);
        ref.place = info->kind == DT_V_BUFFER ? DT_P_BUFFER : DT_P_MASTER;
        ref.offset = info->kind == DT_V_BUFFER ? p->params->buffers[id].offset : p->params->entries[id].offset;
        break;
    case DT_V_GRAD:
        id = dt_params_find(p->params, p->graph->values[info->param].name, false);
        // autodiff makes GRAD values of trained parameters only
        assert(id >= 0);
        ref.place = DT_P_GRAD;
        ref.offset = p->params->entries[id].offset;
        break;
    case DT_V_STAT:
        id = dt_params_find_stat(p->params, info->name);
        if (id < 0)
            return dt_fail(DT_E_INTERNAL, "graph '%s': statistic '%s' has no place in the gradient buffer",
                           p->graph->name, info->name);
        ref.place = DT_P_GRAD;
        ref.offset = p->params->stats[id].offset;
        break;
    }
    new_form(p, v, dt_dense(), ref);
    return DT_OK;
}

static void find_last_reads(dt_plan *p) {
    const dt_graph *g = p->graph;
    for (dt_value v = 0; v < g->n_values; v++) p->last_read[v] = -1;
    for (int n = 0; n < g->n_nodes; n++) {
        if (g->nodes[n].dead) continue;
        for (int i = 0; i < g->nodes[n].n_in; i++)
            if (g->nodes[n].in[i] != DT_NONE) p->last_read[g->nodes[n].in[i]] = n;
    }
    for (int i = 0; i < g->n_outputs; i++) p->last_read[g->outputs[i].value] = g->n_nodes; // read after the run
}

// ---- one node --------------------------------------------------------------------------------------

static void touch(dt_plan *p, const dt_ref *ref, int instruction) {
    if (ref->place == DT_P_FLAT && p->buffers[ref->buffer].last < instruction)
        p->buffers[ref->buffer].last = instruction;
}

// A form of value v in `layout`: an existing one, or a new one behind a reorder instruction.
static int require_form(dt_plan *p, dt_value v, dt_layout layout) {
    for (int f = p->form_of[v]; f >= 0; f = p->forms[f].next)
        if (dt_layout_equal(p->forms[f].layout, layout)) return f;
    const dt_value_info *info = &p->graph->values[v];
    dt_instruction *s = new_instruction(p, 1, 1);
    int instruction = p->n_instructions - 1;
    s->value = v;
    s->type = info->dtype;
    s->from = p->forms[p->form_of[v]].layout;
    s->to = layout;
    s->in[0] = p->forms[p->form_of[v]].ref;
    touch(p, &s->in[0], instruction); // the source lives until here
    int buffer = new_buffer(p, dt_layout_bytes(layout, info->dtype, &info->shape), instruction);
    s->out[0] = (dt_ref){.place = DT_P_FLAT, .buffer = buffer};
    p->n_reorders++;
    return new_form(p, v, layout, s->out[0]);
}

static dt_status prepare_instance(dt_plan *p, const dt_node *n, dt_kernel_instance *instance,
                                  const dt_kernel **kernel) {
    *kernel = p->backend->kernel(p->backend, n->op, n->backward);
    instance->graph = p->graph;
    instance->node = n;
    instance->backend = p->backend;
    instance->threads = p->opts.threads;
    instance->n_replicas = p->opts.n_replicas;
    instance->inplace_in = -1; // none, unless the kernel names one
    instance->in_layout = dt_arena_alloc(&p->arena, sizeof(dt_layout) * (size_t)(n->n_in + 1));
    instance->out_layout = dt_arena_alloc(&p->arena, sizeof(dt_layout) * (size_t)(n->n_out + 1));
    // what the kernel is offered: the form that the producer left
    for (int i = 0; i < n->n_in; i++) {
        if (n->in[i] == DT_NONE) continue;
        assert(p->form_of[n->in[i]] >= 0);
        instance->in_layout[i] = p->forms[p->form_of[n->in[i]]].layout;
    }
    if (!*kernel)
        return dt_instance_fail(instance, "backend '%s' has no %s kernel for this op", p->backend->name,
                                n->backward ? "backward" : "forward");
    return (*kernel)->prepare(instance);
}

// Output 0 may take over an input's memory when nothing reads that input later.
static bool can_run_in_place(const dt_plan *p, const dt_node *n, int node_index, const dt_instruction *s,
                             size_t n_bytes) {
    int i = s->instance.inplace_in;
    if (i < 0 || n->in[i] == DT_NONE || s->in[i].place != DT_P_FLAT) return false;
    const dt_plan_buffer *b = &p->buffers[s->in[i].buffer];
    // the input dies here, and so does all that shares its memory
    if (p->last_read[n->in[i]] != node_index || b->read_until > node_index || b->n_bytes != n_bytes) return false;
    // another operand in the same bytes would be overwritten while it is read
    for (int j = 0; j < n->n_in; j++)
        if (j != i && s->in[j].place == DT_P_FLAT && s->in[j].buffer == s->in[i].buffer) return false;
    return true;
}

// Output 0 shares input 0's memory for good: the buffer lives until the last node that reads either.
static dt_ref share_memory(dt_plan *p, const dt_node *n, const dt_instruction *s) {
    assert(s->in[0].place == DT_P_FLAT);
    dt_plan_buffer *b = &p->buffers[s->in[0].buffer];
    const dt_value both[2] = {n->in[0], n->out[0]};
    for (int k = 0; k < 2; k++)
        if (p->last_read[both[k]] > b->read_until) b->read_until = p->last_read[both[k]];
    return s->in[0];
}

static void place_output(dt_plan *p, const dt_node *n, int node_index, int instruction_index, int i) {
    dt_instruction *s = &p->instructions[instruction_index];
    dt_value v = n->out[i];
    const dt_value_info *info = &p->graph->values[v];
    if (info->kind != DT_V_TEMP) { // GRAD, STAT: a place in the gradient buffer
        s->out[i] = p->forms[p->form_of[v]].ref;
        return;
    }
    size_t n_bytes = dt_layout_bytes(s->instance.out_layout[i], info->dtype, &info->shape);
    dt_ref ref = {.place = DT_P_FLAT};
    if (i == 0 && s->instance.same_memory) {
        s->out[i] = share_memory(p, n, s);
        new_form(p, v, s->instance.out_layout[i], s->out[i]);
        return;
    }
    p->unshared_bytes += n_bytes; // for the report: without reuse
    if (i == 0 && can_run_in_place(p, n, node_index, s, n_bytes)) {
        ref.buffer = s->in[s->instance.inplace_in].buffer;
        p->n_inplace++;
    } else {
        ref.buffer = new_buffer(p, n_bytes, instruction_index);
    }
    s->out[i] = ref;
    new_form(p, v, s->instance.out_layout[i], ref);
}

static dt_status place_packs(dt_plan *p, dt_instruction *s) {
    size_t scratch = dt_align_up(s->instance.scratch_bytes, 64); // kernel's own first, then packs
    for (int k = 0; k < s->instance.n_packs; k++) {
        const dt_pack_request *r = &s->instance.packs[k];
        bool at_use = p->opts.packs_at_use && r->n_params == 1;
        if (at_use) { // a weight that no commit changes is packed once
            const dt_value_info *v = &p->graph->values[r->params[0]];
            const int id = dt_params_find(p->params, v->name, v->kind == DT_V_BUFFER);
            at_use = v->kind == DT_V_PARAM && id >= 0 && id < p->params->n_trained_entries;
        }
        if (!at_use) {
            DT_TRY(dt_params_register_pack(p->params, p->graph, r, &s->pack_ids[k]));
            continue;
        }
        s->pack_ids[k] = -1;
        s->pack_at[k] = scratch;
        scratch += dt_align_up(r->n_bytes, 64);
    }
    if (scratch > p->scratch_bytes) p->scratch_bytes = scratch; // instructions run one by one: the largest is enough
    return DT_OK;
}

static dt_status add_node(dt_plan *p, int node_index) {
    const dt_node *n = &p->graph->nodes[node_index];
    dt_kernel_instance instance = {0};
    const dt_kernel *kernel = NULL;
    // the kernel sets the layouts that it needs; reorders come in front of its instruction
    DT_TRY(prepare_instance(p, n, &instance, &kernel));
    int *forms = dt_arena_alloc(&p->arena, sizeof(int) * (size_t)(n->n_in + 1));
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i] != DT_NONE) forms[i] = require_form(p, n->in[i], instance.in_layout[i]);
    dt_instruction *s = new_instruction(p, n->n_in, n->n_out);
    int instruction_index = p->n_instructions - 1; // the list may move: kept by index
    s->kernel = kernel;
    s->instance = instance;
    s->value = DT_NONE;
    s->label = dt_arena_printf(&p->arena, "%s%s %s", dt_op_name(n->op), n->backward ? ".bwd" : "", n->name);
    for (int i = 0; i < n->n_in; i++) {
        if (n->in[i] == DT_NONE) continue;
        s->in[i] = p->forms[forms[i]].ref;
        touch(p, &s->in[i], instruction_index);
    }
    for (int i = 0; i < n->n_out; i++)
        if (n->out[i] != DT_NONE) place_output(p, n, node_index, instruction_index, i);
    for (int i = 0; i < n->n_in; i++) touch(p, &s->in[i], instruction_index);
    return place_packs(p, s);
}

// ---- gradients: which outputs add, which are finished where ----------------------------------------

static void find_finished_grads(dt_plan *p) {
    const dt_graph *g = p->graph;
    bool *written = dt_arena_alloc(&p->arena, (size_t)g->n_values + 1);
    int *finish = dt_arena_alloc(&p->arena, sizeof(int) * (size_t)(g->n_values + 1));
    for (int k = 0; k < p->n_instructions; k++) {
        dt_instruction *s = &p->instructions[k];
        if (!s->kernel) continue;
        const dt_node *n = s->instance.node;
        for (int i = 0; i < n->n_out; i++) {
            if (n->out[i] == DT_NONE) continue;
            dt_value_kind kind = g->values[n->out[i]].kind;
            if (kind != DT_V_GRAD && kind != DT_V_STAT) continue; // activations are overwritten, always
            s->sums |= 1ull << i;
            if (written[n->out[i]]) s->adds |= 1ull << i; // a parameter that is used twice
            written[n->out[i]] = true;
            finish[n->out[i]] = k; // the last one wins
        }
    }
    for (int i = 0; i < g->n_grads; i++) {
        dt_instruction *s = &p->instructions[finish[g->grads[i]]];
        // an instruction finishes two or three (weight, bias): copies are cheap
        int *longer = dt_arena_alloc(&p->arena, sizeof(int) * (size_t)(s->n_grads + 1));
        if (s->n_grads) memcpy(longer, s->grads, sizeof(int) * (size_t)s->n_grads);
        longer[s->n_grads++] = i;
        s->grads = longer;
    }
}

// A kernel that packs a parameter does not read it besides.
static bool packs_it(const dt_plan *p, const dt_instruction *s, int64_t offset) {
    for (int i = 0; s->kernel && i < s->instance.n_packs; i++)
        for (int k = 0; k < s->instance.packs[i].n_params; k++) {
            const dt_value v = s->instance.packs[i].params[k];
            const dt_ref *ref = v == DT_NONE ? NULL : &p->forms[p->form_of[v]].ref;
            if (ref && ref->place == DT_P_MASTER && ref->offset == offset) return true;
        }
    return false;
}

static void note_dense_reads(dt_plan *p) {
    for (int k = 0; k < p->n_instructions; k++) {
        const dt_instruction *s = &p->instructions[k];
        for (int i = 0; i < s->n_in; i++)
            if (s->in[i].place == DT_P_MASTER && !packs_it(p, s, s->in[i].offset))
                dt_params_read_dense(p->params, s->in[i].offset);
    }
}

// ---- public ----------------------------------------------------------------------------------------

static dt_status fill_plan(dt_plan *p) {
    const dt_graph *g = p->graph;
    for (dt_value v = 0; v < g->n_values; v++) p->form_of[v] = -1;
    list_constants(p);
    for (dt_value v = 0; v < g->n_values; v++) DT_TRY(place_fixed_value(p, v));
    find_last_reads(p);
    for (int n = 0; n < g->n_nodes; n++)
        if (!g->nodes[n].dead) {
            DT_TRY(add_node(p, n));
            dt_watch_tick(); // a device's engines take long to choose
        }
    for (int i = 0; i < g->n_outputs; i++) {
        dt_ref ref = p->forms[p->form_of[g->outputs[i].value]].ref;
        touch(p, &ref, p->n_instructions); // outputs live to the end
    }
    find_finished_grads(p);
    p->activation_bytes = dt_memory_assign(p->buffers, p->n_buffers); // all lifetimes are known now
    p->flat_bytes = p->activation_bytes + p->scratch_bytes + 64;      // vector loads may read behind the last row
    note_dense_reads(p);
    dt_params_plan_work(p->params, p->flat_bytes, p->opts.n_replicas);
    DT_TRY(dt_params_place_packs(p->params));
    return p->params->taken ? dt_plan_take(p) : DT_OK;
}

dt_status dt_plan_create(dt_plan **out, dt_graph *g, dt_params *params, const dt_plan_opts *opts) {
    DT_TRY(dt_graph_check(g));
    for (const dt_pass *pass = params->backend->passes; *pass; pass++) DT_TRY((*pass)(g));
    dt_plan *p = dt_xcalloc(1, sizeof *p);
    dt_arena_init(&p->arena);
    p->graph = g;
    p->params = params;
    p->backend = params->backend;
    p->opts = *opts;
    if (p->opts.n_replicas < 1) p->opts.n_replicas = 1;
    if (p->opts.threads < 1) p->opts.threads = 1;
    p->form_of = dt_arena_alloc(&p->arena, sizeof(int) * (size_t)(g->n_values + 1));
    p->last_read = dt_arena_alloc(&p->arena, sizeof(int) * (size_t)(g->n_values + 1));
    p->inputs = dt_arena_alloc(&p->arena, sizeof(dt_value) * (size_t)(g->n_values + 1));
    dt_status st = fill_plan(p);
    if (st != DT_OK) {
        dt_plan_destroy(p);
        return st;
    }
    *out = p;
    return DT_OK;
}

void dt_plan_destroy(dt_plan *p) {
    if (!p) return;
    // a plan that failed halfway has instructions of prepared kernels only
    for (int k = 0; k < p->n_instructions; k++)
        if (p->instructions[k].kernel && p->instructions[k].kernel->destroy)
            p->instructions[k].kernel->destroy(&p->instructions[k].instance);
    dt_flat_buffer_free(&p->constants);
    free(p->instructions);
    free(p->buffers);
    free(p->forms);
    dt_arena_fini(&p->arena);
    free(p);
}

void dt_plan_report_get(const dt_plan *p, dt_plan_report *out) {
    *out = (dt_plan_report){.activation_bytes = p->activation_bytes,
                            .scratch_bytes = p->scratch_bytes,
                            .constant_bytes = p->constants.n_bytes,
                            .unshared_bytes = p->unshared_bytes,
                            .n_instructions = p->n_instructions,
                            .n_reorders = p->n_reorders,
                            .n_inplace = p->n_inplace};
}

const char *dt_plan_instruction_name(const dt_plan *p, int k) {
    const dt_instruction *s = &p->instructions[k];
    if (!s->kernel) return "reorder";
    return s->label;
}

const dt_node *dt_plan_instruction_node(const dt_plan *p, int k) {
    return p->instructions[k].kernel ? p->instructions[k].instance.node : NULL;
}

int dt_plan_instruction_grads(const dt_plan *p, int k, const int **grads) {
    *grads = p->instructions[k].grads;
    return p->instructions[k].n_grads;
}

static void print_tensor(const dt_plan *p, dt_value v, dt_layout l, const dt_ref *ref, FILE *out) {
    char shape[128];
    const dt_value_info *info = &p->graph->values[v];
    dt_text_printf(out, " %s%s:%s/%s", info->name, dt_shape_print(&info->shape, shape, sizeof shape),
                   dt_dtype_name(info->dtype), dt_layout_name(l));
    if (ref->place == DT_P_FLAT) fprintf(out, "@%zu", p->buffers[ref->buffer].offset);
}

void dt_plan_print(const dt_plan *p, FILE *out) {
    for (int k = 0; k < p->n_instructions; k++) {
        const dt_instruction *s = &p->instructions[k];
        if (!s->kernel) {
            fprintf(out, "%4d reorder", k);
            print_tensor(p, s->value, s->from, &s->in[0], out);
            fprintf(out, " ->");
            print_tensor(p, s->value, s->to, &s->out[0], out);
            fprintf(out, "\n");
            continue;
        }
        const dt_node *n = s->instance.node;
        dt_text_printf(out, "%4d %s", k, s->label);
        for (int i = 0; i < n->n_in; i++)
            if (n->in[i] != DT_NONE) print_tensor(p, n->in[i], s->instance.in_layout[i], &s->in[i], out);
        fprintf(out, " ->");
        for (int i = 0; i < n->n_out; i++)
            if (n->out[i] != DT_NONE) print_tensor(p, n->out[i], s->instance.out_layout[i], &s->out[i], out);
        fprintf(out, "\n");
    }
    fprintf(out,
            "%d instructions, %d reorders, %d in place; activations %.1f MiB (%.1f without reuse), "
            "scratch %.1f MiB\n",
            p->n_instructions, p->n_reorders, p->n_inplace, (double)p->activation_bytes / 1048576,
            (double)p->unshared_bytes / 1048576, (double)p->scratch_bytes / 1048576);
}
