// ir.c: the bookkeeping of the graph: values, nodes, names, errors, order.
//
// Values and nodes live in arrays in the arena. When an array grows it is copied, so only indices stay valid. One hash
// table holds the names of values and of nodes. A node and its output 0 may share a name; generated names avoid all
// others.
//
// Invariants: nodes[] is in execution order; a value's producer and out_index name the node output that holds it; the
// first error is kept and stops all building.
#include "graph/ir.h"

#include "base/hash.h"

#include <assert.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

// ---- names -----------------------------------------------------------------------------------------
typedef struct name_entry {
    const char *name; // NULL: free slot
    dt_value value;
    dt_node_id node;
    int n_like; // numbers behind the name that are taken: 1 to this
} name_entry;

typedef struct dt_name_table {
    name_entry *slots;
    size_t n, cap; // cap is a power of two
} dt_name_table;

static name_entry *ir_find_slot(const dt_name_table *t, const char *name) {
    size_t i = dt_hash64(name, strlen(name)) & (t->cap - 1);
    while (t->slots[i].name && strcmp(t->slots[i].name, name) != 0) i = (i + 1) & (t->cap - 1);
    return &t->slots[i];
}

// Doubles the table; entries move, names stay where they are.
static void grow_names(dt_graph *g) {
    dt_name_table *t = g->names, old = *t;
    t->cap = old.cap ? old.cap * 2 : 256;
    t->slots = dt_arena_alloc(&g->arena, t->cap * sizeof *t->slots);
    for (size_t i = 0; i < old.cap; i++) {
        if (old.slots[i].name) *ir_find_slot(t, old.slots[i].name) = old.slots[i];
    }
}

// The entry of `name`, created if it is missing. `name` must live as long as the graph.
static name_entry *intern(dt_graph *g, const char *name) {
    if (g->names->n * 2 >= g->names->cap) grow_names(g); // at most half full: probes stay short
    name_entry *e = ir_find_slot(g->names, name);
    if (!e->name) {
        *e = (name_entry){name, DT_NONE, DT_NONE, 0};
        g->names->n++;
    }
    return e;
}

const char *dt_graph_unique_name(dt_graph *g, const char *name) {
    if (!name) name = "node";
    name_entry *known = ir_find_slot(g->names, name);
    if (!known->name) return dt_arena_strdup(&g->arena, name);
    // n_like remembers the last number, so that thousands of "relu" do not search from 1 each time
    char text[512];
    while (snprintf(text, sizeof text, "%s.%d", name, known->n_like + 1), ir_find_slot(g->names, text)->name)
        known->n_like++;
    return dt_arena_strdup(&g->arena, text);
}

dt_value dt_graph_find(const dt_graph *g, const char *name) {
    const name_entry *e = ir_find_slot(g->names, name);
    return e->name ? e->value : DT_NONE;
}

dt_node_id dt_graph_find_node(const dt_graph *g, const char *name) {
    const name_entry *e = ir_find_slot(g->names, name);
    return e->name ? e->node : DT_NONE;
}

// ---- life ------------------------------------------------------------------------------------------
dt_graph *dt_graph_create(const char *name, bool training) {
    dt_graph *g = dt_xcalloc(1, sizeof *g);
    dt_arena_init(&g->arena);
    g->name = dt_arena_strdup(&g->arena, name);
    g->scope = "";
    g->training = g->drops = training;
    g->loss = g->loss_weight = DT_NONE;
    g->names = dt_arena_alloc(&g->arena, sizeof *g->names);
    grow_names(g);
    return g;
}

void dt_graph_freeze(dt_graph *g, bool (*is_frozen)(const void *ctx, const char *name), const void *ctx) {
    g->is_frozen = is_frozen;
    g->frozen_ctx = ctx;
}

void dt_graph_destroy(dt_graph *g) {
    if (!g) return;
    dt_arena_fini(&g->arena);
    free(g);
}

const char *dt_graph_scope(dt_graph *g, const char *prefix) {
    const char *before = g->scope;
    g->scope = dt_arena_strdup(&g->arena, prefix);
    return before;
}

void dt_graph_share(dt_graph *g, const char *prefix) {
    g->twin = prefix ? dt_arena_strdup(&g->arena, prefix) : NULL;
    g->stage = prefix ? ++g->n_stages : 0;
}

dt_status dt_graph_check(const dt_graph *g) {
    if (g->status == DT_OK) return DT_OK;
    return dt_fail(g->status, "model %s: %s", g->name, g->error);
}

dt_value dt_graph_fail(dt_graph *g, const char *fmt, ...) {
    if (g->status != DT_OK) return DT_NONE;
    va_list args;
    va_start(args, fmt);
    vsnprintf(g->error, sizeof g->error, fmt, args);
    va_end(args);
    g->status = DT_E_USAGE; // from here on builders do nothing
    return DT_NONE;
}

// ---- values and nodes ------------------------------------------------------------------------------
// Makes room for one more item in an arena array.
static void *ir_reserve(dt_graph *g, void *items, int n, int *cap, size_t size) {
    if (n < *cap) return items;
    *cap = *cap ? *cap * 2 : 64;
    void *grown = dt_arena_alloc(&g->arena, (size_t)*cap * size);
    if (n > 0) memcpy(grown, items, (size_t)n * size);
    return grown;
}
#define RESERVE(g, array) (g)->array = ir_reserve(g, (g)->array, (g)->n_##array, &(g)->cap_##array, sizeof *(g)->array)

// Names of these are generated: they give way to chosen ones, which are in checkpoints and data sets.
static bool is_generated(dt_value_kind kind) {
    return kind == DT_V_TEMP || kind == DT_V_CONST;
}

dt_value dt_graph_add_value(dt_graph *g, dt_value_kind kind, const char *name, dt_dtype dtype, const dt_shape *shape) {
    if (g->status != DT_OK) return DT_NONE;
    if (!dt_shape_is_sound(shape)) {
        char text[160];
        return dt_graph_fail(g, "%s: the shape %s is too large", name, dt_shape_print(shape, text, sizeof text));
    }
    // the second use of a network: weights are shared below, statistics are its own
    if (g->twin && (kind == DT_V_BUFFER || kind == DT_V_CONST))
        name = dt_arena_printf(&g->arena, "%s%s", g->twin, name);
    if (*g->scope && (kind == DT_V_PARAM || kind == DT_V_BUFFER || kind == DT_V_CONST))
        name = dt_arena_printf(&g->arena, "%s%s", g->scope, name);
    name_entry *known = ir_find_slot(g->names, name);
    if (g->twin && kind == DT_V_PARAM && known->name && known->value != DT_NONE &&
        g->values[known->value].kind == kind && dt_shape_equal(&g->values[known->value].shape, shape))
        return known->value;
    const dt_value holder = known->name ? known->value : DT_NONE;
    if (holder != DT_NONE && !is_generated(kind)) {
        if (!is_generated(g->values[holder].kind))
            return dt_graph_fail(g, "two tensors are named %s: rename one", name);
        g->values[holder].name = dt_graph_unique_name(g, name); // a generated name gives way
        intern(g, g->values[holder].name)->value = holder;
    }
    name = holder != DT_NONE && is_generated(kind) ? dt_graph_unique_name(g, name) : dt_arena_strdup(&g->arena, name);
    RESERVE(g, values);
    dt_value v = g->n_values++;
    g->values[v] = (dt_value_info){.name = name,
                                   .kind = kind,
                                   .dtype = dtype,
                                   .shape = *shape,
                                   .producer = DT_NONE,
                                   .param = DT_NONE,
                                   .teacher = g->teacher};
    intern(g, name)->value = v;
    return v;
}

dt_node *dt_graph_add_node(dt_graph *g, dt_op op, const char *name, const dt_value *in, int n_in, int n_out,
                           const dt_attrs *attrs) {
    RESERVE(g, nodes);
    dt_node_id id = g->n_nodes++;
    dt_node *n = &g->nodes[id];
    *n = (dt_node){.op = op,
                   .name = dt_graph_unique_name(g, name ? name : dt_op_name(op)),
                   .n_in = n_in,
                   .n_out = n_out,
                   .forward = DT_NONE,
                   .stage = g->stage};
    // one piece for both lists
    n->in = dt_arena_alloc(&g->arena, (size_t)(n_in + n_out) * sizeof *n->in);
    n->out = n->in + n_in;
    memcpy(n->in, in, (size_t)n_in * sizeof *in);
    for (int i = 0; i < n_out; i++) n->out[i] = DT_NONE;
    if (attrs) n->attrs = *attrs;
    intern(g, n->name)->node = id;
    return n;
}

void dt_graph_set_out(dt_graph *g, dt_node *n, int i, dt_value v) {
    if (v == DT_NONE) return;
    n->out[i] = v;
    g->values[v].producer = (dt_node_id)(n - g->nodes);
    g->values[v].out_index = i;
}

dt_value dt_graph_apply(dt_graph *g, dt_op op, const char *name, const dt_value *in, int n_in, const dt_attrs *attrs) {
    if (g->status != DT_OK) return DT_NONE;
    const dt_op_def *def = dt_op_get(op);
    const char *shown = name ? name : def->name;
    if (n_in < def->min_in || n_in > def->max_in) {
        return dt_graph_fail(g, "%s %s: has %d inputs, takes %d to %d", def->name, shown, n_in, def->min_in,
                             def->max_in);
    }
    for (int i = 0; i < def->min_in; i++) {
        if (in[i] == DT_NONE) {
            return dt_graph_fail(g, "%s %s: input %d is missing", def->name, shown, i);
        }
    }
    if (*g->scope) name = dt_arena_printf(&g->arena, "%s%s", g->scope, shown); // "iris.conv1"
    dt_graph_add_node(g, op, name, in, n_in, def->n_out, attrs);
    dt_node_id id = g->n_nodes - 1; // by index: inference may add values, and nodes move when the array grows
    if (def->rules->infer(g, id) != DT_OK) return DT_NONE;
    return g->nodes[id].out[0];
}

void dt_graph_add_update(dt_graph *g, dt_value buffer, dt_value stat, float momentum) {
    RESERVE(g, updates);
    g->updates[g->n_updates++] = (dt_buffer_update){buffer, stat, momentum};
}

void dt_graph_add_grad(dt_graph *g, dt_value grad) {
    RESERVE(g, grads);
    g->grads[g->n_grads++] = grad;
}

void dt_graph_add_output(dt_graph *g, const char *name, dt_value v) {
    RESERVE(g, outputs);
    g->outputs[g->n_outputs++] = (dt_named_output){dt_arena_strdup(&g->arena, name), v};
}

// ---- names of timm ---------------------------------------------------------------------------------
void dt_graph_alias(dt_graph *g, const char *ours, const char *timms, const dt_shape *shape) {
    RESERVE(g, aliases);
    g->aliases[g->n_aliases++] = (dt_alias){.ours = dt_arena_printf(&g->arena, "%s%s", g->scope, ours),
                                            .timms = dt_arena_printf(&g->arena, "%s%s", g->scope, timms),
                                            .shape = shape ? *shape : (dt_shape){.n = -1},
                                            .scoped = *g->scope != 0};
}

bool dt_graph_is_timms(const dt_graph *g) {
    for (int i = 0; i < g->n_aliases; i++)
        if (!g->aliases[i].scoped) return true;
    return false;
}

const char *dt_graph_timms_name(const dt_graph *g, const char *name, char *buf, size_t cap, dt_shape *shape) {
    const dt_alias *best = NULL;
    size_t n_best = 0;
    for (int i = 0; i < g->n_aliases; i++) {
        const dt_alias *a = &g->aliases[i];
        const size_t n = strlen(a->ours);
        if (strncmp(name, a->ours, n) != 0 || (name[n] && name[n] != '.')) continue;
        if (shape && a->shape.n >= 0) *shape = a->shape;
        if (n >= n_best) best = a, n_best = n; // "" is an alias of length 0: the whole network
    }
    snprintf(buf, cap, "%s%s", best ? best->timms : "", name + n_best);
    return buf;
}

// ---- for passes ------------------------------------------------------------------------------------
void dt_graph_rename_node(dt_graph *g, dt_node_id id, const char *name) {
    intern(g, g->nodes[id].name)->node = DT_NONE; // the old name is free
    g->nodes[id].name = name;
    intern(g, name)->node = id;
}

void dt_graph_swap_value_names(dt_graph *g, dt_value a, dt_value b) {
    const char *name = g->values[a].name;
    g->values[a].name = g->values[b].name;
    g->values[b].name = name;
    intern(g, g->values[a].name)->value = a;
    intern(g, g->values[b].name)->value = b;
}

void dt_graph_permute_nodes(dt_graph *g, const dt_node_id *order) {
    size_t n = (size_t)g->n_nodes;
    dt_node *moved = dt_xcalloc(n + 1, sizeof *moved);
    dt_node_id *new_id = dt_xcalloc(n + 1, sizeof *new_id);
    for (size_t i = 0; i < n; i++) {
        moved[i] = g->nodes[order[i]];
        new_id[order[i]] = (dt_node_id)i;
    }
    memcpy(g->nodes, moved, n * sizeof *moved);
    for (size_t i = 0; i < n; i++) {
        dt_node *node = &g->nodes[i];
        if (node->forward != DT_NONE) node->forward = new_id[node->forward];
        if (!node->dead) intern(g, node->name)->node = (dt_node_id)i; // a dead node may share its name with a live one
    }
    for (int v = 0; v < g->n_values; v++) {
        dt_node_id *producer = &g->values[v].producer;
        if (*producer != DT_NONE) *producer = new_id[*producer];
    }
    free(moved);
    free(new_id);
}

dt_node_id *dt_graph_sole_readers(const dt_graph *g) {
    enum { SEVERAL = -2 };
    dt_node_id *reader = dt_xcalloc((size_t)g->n_values + 1, sizeof *reader);
    for (int v = 0; v < g->n_values; v++) reader[v] = DT_NONE;
    for (dt_node_id id = 0; id < g->n_nodes; id++) {
        const dt_node *n = &g->nodes[id];
        for (int i = 0; i < n->n_in && !n->dead; i++) {
            dt_value v = n->in[i];
            if (v != DT_NONE) reader[v] = reader[v] == DT_NONE ? id : SEVERAL;
        }
    }
    for (int i = 0; i < g->n_outputs; i++) reader[g->outputs[i].value] = SEVERAL; // read after the run
    for (int v = 0; v < g->n_values; v++) {
        if (reader[v] == SEVERAL) reader[v] = DT_NONE;
    }
    return reader;
}

bool dt_graph_adds_alike(const dt_graph *g, const dt_node *n) {
    if (n->dead || n->backward || n->op != DT_OP_add) return false;
    const dt_value_info *y = &g->values[n->out[0]];
    for (int i = 0; i < 2; i++) {
        const dt_value_info *x = &g->values[n->in[i]];
        if ((x->kind != DT_V_TEMP && x->kind != DT_V_INPUT) || x->dtype != y->dtype ||
            !dt_shape_equal(&x->shape, &y->shape))
            return false;
    }
    return true;
}

dt_node *dt_graph_reader(dt_graph *g, const dt_node_id *readers, dt_value v, dt_op op) {
    if (readers[v] == DT_NONE) return NULL;
    dt_node *n = &g->nodes[readers[v]];
    return !n->dead && !n->backward && n->op == op ? n : NULL;
}

// ---- ops.def as a table ----------------------------------------------------------------------------
#define OP(id, ...) extern const dt_op_rules dt_op_rules_##id;
#include "graph/ops.def"
#undef OP

static const dt_op_def defs[DT_OP_COUNT] = {
#define OP(id, min_in, max_in, n_out, amp, cpu, cuda) {#id, min_in, max_in, n_out, DT_AMP_##amp, &dt_op_rules_##id},
#include "graph/ops.def"
#undef OP
};

const dt_op_def *dt_op_get(dt_op op) {
    return &defs[op];
}

const char *dt_op_name(dt_op op) {
    return defs[op].name;
}
