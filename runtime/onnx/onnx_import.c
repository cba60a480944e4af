// onnx_import.c: opens an ONNX file and walks its graph (how: onnx_import.h).
#include "onnx_reader.h"

#include "base/hash.h"
#include "base/io.h"
#include "base/sort.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t MAX_BYTES = (size_t)1 << 31; // of a protobuf message

// ---- the file --------------------------------------------------------------------------------------
// protobuf-c leaves an optional text that is missing NULL; from here on names and types are there.
static bool has_nulls(const Onnx__GraphProto *g) {
    for (size_t i = 0; i < g->n_node; i++)
        if (!g->node[i]->op_type) return true;
    for (size_t i = 0; i < g->n_initializer; i++)
        if (!g->initializer[i]->name) return true;
    for (size_t i = 0; i < g->n_input; i++)
        if (!g->input[i]->name) return true;
    return g->n_output == 0 || !g->output[0]->name; // others are not read
}

// Until IR version 4 initialisers were listed among the inputs, too: those are no inputs of the network.
static void list_inputs(dt_onnx_file *f) {
    const Onnx__GraphProto *g = f->graph;
    const char **taken = dt_xcalloc(g->n_initializer + 1, sizeof *taken);
    for (size_t i = 0; i < g->n_initializer; i++) taken[i] = g->initializer[i]->name;
    qsort(taken, g->n_initializer, sizeof *taken, dt_sort_strings);
    f->inputs = dt_xcalloc(g->n_input + 1, sizeof(const Onnx__ValueInfoProto *));
    for (size_t i = 0; i < g->n_input; i++)
        if (!bsearch(&g->input[i]->name, taken, g->n_initializer, sizeof *taken, dt_sort_strings))
            f->inputs[f->n_inputs++] = g->input[i];
    free(taken); // names belong to the message
}

dt_status dt_onnx_open(dt_onnx_file **out, const char *path) {
    char *data = NULL;
    size_t n_bytes = 0;
    *out = NULL;
    DT_TRY(dt_io_read_file(&data, &n_bytes, path, MAX_BYTES, DT_E_CKPT));
    const dt_status st = dt_onnx_open_bytes(out, path, data, n_bytes);
    free(data); // the message has copies
    return st;
}

dt_status dt_onnx_open_bytes(dt_onnx_file **out, const char *path, const void *data, size_t n_bytes) {
    Onnx__ModelProto *m = onnx__model_proto__unpack(NULL, n_bytes, data);
    *out = NULL;
    if (!m || !m->graph || has_nulls(m->graph)) {
        if (m) onnx__model_proto__free_unpacked(m, NULL);
        return dt_fail(DT_E_CKPT, "%s is not an ONNX file, or truncated", path);
    }
    dt_onnx_file *f = dt_xcalloc(1, sizeof *f);
    *f = (dt_onnx_file){.path = dt_xstrdup(path), .model = m, .graph = m->graph};
    for (size_t i = 0; i < m->n_opset_import; i++) {
        const char *domain = m->opset_import[i]->domain;
        // the others are sets of vendors (ai.onnx.ml, com.microsoft)
        if (!domain || !*domain || strcmp(domain, "ai.onnx") == 0) f->opset = m->opset_import[i]->version;
    }
    if (f->opset < 13 || f->opset > 23) { // 13: axes of Squeeze and ReduceSum became inputs; 23: the last looked at
        const long long opset = f->opset;
        dt_onnx_close(f);
        return dt_fail(DT_E_CKPT, "%s has operator set %lld; 13 to 23 are read", path, opset);
    }
    list_inputs(f);
    *out = f;
    return DT_OK;
}

void dt_onnx_close(dt_onnx_file *f) {
    if (!f) return;
    onnx__model_proto__free_unpacked(f->model, NULL); // the graph is part of it
    free(f->inputs);
    free(f->path);
    free(f);
}

const char *dt_onnx_input_name(const dt_onnx_file *f, int i) {
    return f->inputs[i]->name;
}

int dt_onnx_n_inputs(const dt_onnx_file *f) {
    return f->n_inputs;
}

int64_t dt_onnx_n_outputs(const dt_onnx_file *f) {
    const Onnx__TypeProto *t = f->graph->output[0]->type;
    const Onnx__TensorShapeProto *s =
        t && t->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE ? t->tensor_type->shape : NULL;
    const bool known =
        s && s->n_dim == 2 && s->dim[1]->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
    return known ? s->dim[1]->dim_value : -1; // of (N,classes)
}

// ---- names -----------------------------------------------------------------------------------------
bool dt_onnx_fail(dt_onnx_importer *r, const char *fmt, ...) {
    char text[320];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (!r->node) { // before or behind the walk: the file as a whole
        dt_graph_fail(r->g, "%s: %s", r->f->path, text);
        return false;
    }
    const char *name = r->node->name && *r->node->name ? r->node->name : "(unnamed)";
    dt_graph_fail(r->g, "%s: node %.120s (%.40s): %s", r->f->path, name, r->node->op_type, text);
    return false;
}

dt_onnx_slot *dt_onnx_find(dt_onnx_importer *r, const char *name) {
    // open addressing; cap is a power of two
    size_t i = dt_hash64(name, strlen(name)) & (r->cap - 1);
    while (r->slots[i].name && strcmp(r->slots[i].name, name) != 0) i = (i + 1) & (r->cap - 1);
    if (!r->slots[i].name) r->slots[i] = (dt_onnx_slot){.name = name, .v = DT_NONE};
    return &r->slots[i];
}

dt_onnx_slot *dt_onnx_in(dt_onnx_importer *r, int i) {
    if (i >= (int)r->node->n_input || !*r->node->input[i]) return NULL; // "": an optional input that is left out
    return dt_onnx_find(r, r->node->input[i]);
}
dt_onnx_slot *dt_onnx_out(dt_onnx_importer *r, int i) {
    if (i >= (int)r->node->n_output || !*r->node->output[i]) return NULL;
    return dt_onnx_find(r, r->node->output[i]);
}
void dt_onnx_give(dt_onnx_importer *r, int i, dt_value v) {
    dt_onnx_slot *s = dt_onnx_out(r, i);
    if (!s || v == DT_NONE) return; // an output without a name, or a failed node
    s->kind = ONNX_VALUE;
    s->v = v;
}

const Onnx__AttributeProto *dt_onnx_attribute(const Onnx__NodeProto *n, const char *name) {
    for (size_t i = 0; i < n->n_attribute; i++)
        if (n->attribute[i]->name && strcmp(n->attribute[i]->name, name) == 0) return n->attribute[i];
    return NULL;
}
int64_t dt_onnx_read_int(const dt_onnx_importer *r, const char *name, int64_t unset) {
    const Onnx__AttributeProto *a = dt_onnx_attribute(r->node, name);
    return a ? a->i : unset;
}
float dt_onnx_read_float(const dt_onnx_importer *r, const char *name, float unset) {
    const Onnx__AttributeProto *a = dt_onnx_attribute(r->node, name);
    return a ? a->f : unset;
}

const char *dt_onnx_read_text(dt_onnx_importer *r, const char *name, const char *unset) {
    const Onnx__AttributeProto *a = dt_onnx_attribute(r->node, name);
    const int n = a && a->s.len < 256 ? (int)a->s.len : 255; // the file's bytes have no NUL at their end
    return a && a->s.data ? dt_arena_printf(&r->g->arena, "%.*s", n, (const char *)a->s.data) : unset;
}

// ---- what there is ---------------------------------------------------------------------------------
void dt_onnx_alias(dt_onnx_slot *to, dt_onnx_slot *from) {
    to->kind = from->kind, to->c = from->c, to->t = from->t, to->v = from->v;
    to->swapped = from->swapped;
    // the root, so that chains of aliases stay one step long
    to->same = from->same ? from->same : from->kind == ONNX_WEIGHT ? from : NULL;
}

// Another name of an initialiser, or of the transpose of a matrix.
static void list_alias(dt_onnx_importer *r, const Onnx__NodeProto *n) {
    const bool identity = strcmp(n->op_type, "Identity") == 0;
    const bool transpose = strcmp(n->op_type, "Transpose") == 0;
    if ((!identity && !transpose) || n->n_input != 1 || n->n_output != 1) return;
    dt_onnx_slot *from = dt_onnx_find(r, n->input[0]), *to = dt_onnx_find(r, n->output[0]);
    // of more dimensions a transpose is computed
    if (from->kind != ONNX_WEIGHT || (transpose && from->t->n_dims != 2)) return;
    const Onnx__AttributeProto *perm = dt_onnx_attribute(n, "perm");
    dt_onnx_alias(to, from);
    // a perm of (0,1) changes nothing
    if (transpose && (!perm || (perm->n_ints == 2 && perm->ints[0] == 1))) to->swapped = !from->swapped;
}

// Fills the table: kinds, producers and numbers of uses, before anything is built.
static void list_names(dt_onnx_importer *r) {
    const Onnx__GraphProto *g = r->f->graph;
    for (size_t i = 0; i < g->n_initializer; i++) {
        dt_onnx_slot *s = dt_onnx_find(r, g->initializer[i]->name);
        s->kind = ONNX_WEIGHT;
        s->t = g->initializer[i];
    }
    for (size_t i = 0; i < g->n_node; i++) {
        const Onnx__NodeProto *n = g->node[i];
        for (size_t k = 0; k < n->n_output; k++) {
            if (!*n->output[k]) continue;
            dt_onnx_slot *s = dt_onnx_find(r, n->output[k]);
            if (s->producer || s->kind != ONNX_ABSENT) dt_onnx_fail(r, "%.80s is made twice", n->output[k]);
            s->producer = n; // a file is in SSA form: a name has one
        }
        list_alias(r, n); // nodes come in topological order: the initialiser is known here
        for (size_t k = 0; k < n->n_input; k++)
            if (*n->input[k]) dt_onnx_find(r, n->input[k])->n_uses++;
    }
    dt_onnx_find(r, g->output[0]->name)->n_uses += 2; // an output is no part of a group
}

// From the output back: which nodes are needed, in which groups. used: by slot.
static void onnx_import_find_needed(dt_onnx_importer *r, bool *used) {
    const Onnx__GraphProto *g = r->f->graph;
    used[dt_onnx_find(r, g->output[0]->name) - r->slots] = true; // only output 0 is read
    // a node comes behind those that it reads, so one pass backwards sees readers first
    for (size_t k = g->n_node; k-- > 0 && r->g->status == DT_OK;) {
        const Onnx__NodeProto *n = g->node[k];
        for (size_t i = 0; i < n->n_output; i++)
            if (*n->output[i]) r->needed[k] |= used[dt_onnx_find(r, n->output[i]) - r->slots];
        if (!r->needed[k]) continue;
        dt_onnx_group *group = &r->groups[k];
        if (dt_onnx_find_group(r, n, group)) { // its other nodes stay unneeded, unless something else reads them
            used[group->x - r->slots] = true;
            if (group->weight) used[group->weight - r->slots] = true;
            if (group->bias) used[group->bias - r->slots] = true;
            continue;
        }
        for (size_t i = 0; i < n->n_input; i++)
            if (*n->input[i]) used[dt_onnx_find(r, n->input[i]) - r->slots] = true;
    }
}

// ---- building --------------------------------------------------------------------------------------
static void build_node(dt_onnx_importer *r, size_t k) {
    const dt_onnx_group *group = &r->groups[k];
    r->group = group->kind == ONNX_ALONE ? NULL : group;
    const char *domain = r->node->domain; // "" and "ai.onnx": ONNX's own; others have ops of the same names
    const bool foreign = domain && *domain && strcmp(domain, "ai.onnx") != 0;
    const onnx_op_fn fn = foreign ? NULL : dt_onnx_op_of(r->node->op_type);
    // If, Loop and Scan hold subgraphs, whatever their inputs are
    for (size_t i = 0; i < r->node->n_attribute; i++)
        if (r->node->attribute[i]->type == ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH) {
            dt_onnx_fail(r, "holds a graph of its own: loops and branches are not read");
            return;
        }
    if (group->kind != ONNX_ALONE) {
        if (group->x->kind == ONNX_ABSENT)
            dt_onnx_fail(r, "reads %.80s, which no node before it makes (a cycle?)", group->x->name);
        else
            dt_onnx_build_group(r, group);
        return;
    }
    if (!fn) {
        dt_onnx_fail(r, "this op is not read; `dtrain info --onnx` lists those that are");
        return;
    }
    for (size_t i = 0; i < r->node->n_input; i++) {
        const dt_onnx_slot *s = dt_onnx_in(r, (int)i);
        if (s && s->kind == ONNX_ABSENT) {
            dt_onnx_fail(r, "reads %.80s, which no node before it makes (a cycle?)", s->name);
            return;
        }
    }
    if (!dt_onnx_fold(r)) fn(r); // known inputs give a constant and no node of the graph
}

static bool bind_inputs(dt_onnx_importer *r, const dt_value *inputs) {
    char a[96];
    for (int i = 0; i < dt_onnx_n_inputs(r->f); i++) {
        const char *name = dt_onnx_input_name(r->f, i);
        dt_onnx_slot *s = dt_onnx_find(r, name);
        if (inputs[i] == DT_NONE) return false; // its builder has failed already
        s->kind = ONNX_VALUE;
        s->v = inputs[i];
        const Onnx__TypeProto *type = r->f->inputs[i]->type;
        const Onnx__TensorShapeProto *want =
            type && type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE ? type->tensor_type->shape : NULL;
        const dt_shape *have = &dt_info_of(r->g, s->v)->shape;
        bool fits = !want || (int)want->n_dim == have->n;
        for (int d = 1; want && fits && d < have->n; d++) // the first is N, of any size
            fits = want->dim[d]->value_case != ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE ||
                   want->dim[d]->dim_value == have->d[d];
        if (fits) continue; // a name in place of a number (dim_param) fits any size
        char text[160] = "";
        // "N,3,224,224"
        for (size_t d = 0; d < want->n_dim && strlen(text) < 120; d++) {
            const Onnx__TensorShapeProto__Dimension *dim = want->dim[d];
            const bool known = dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
            const size_t at = strlen(text);
            if (known)
                snprintf(text + at, sizeof text - at, "%s%lld", d ? "," : "", (long long)dim->dim_value);
            else
                snprintf(text + at, sizeof text - at, "%sN", d ? "," : "");
        }
        return dt_onnx_fail(r, "input %.60s expects (%s), the field gives %s", name, text,
                            dt_shape_print(have, a, sizeof a));
    }
    return true;
}

// The last layer, if it is linear: what it reads.
static const dt_onnx_slot *read_by_head(dt_onnx_importer *r, size_t *node) {
    const Onnx__GraphProto *g = r->f->graph;
    const dt_onnx_slot *out = dt_onnx_find(r, g->output[0]->name);
    for (*node = 0; *node < g->n_node && g->node[*node] != out->producer;) ++*node;
    if (*node == g->n_node) return NULL;
    if (r->groups[*node].kind == ONNX_LINEAR) return r->groups[*node].x;
    // a head of a group (MatMul + Add), or one node
    const bool gemm = strcmp(g->node[*node]->op_type, "Gemm") == 0;
    return gemm && g->node[*node]->n_input > 0 ? dt_onnx_find(r, g->node[*node]->input[0]) : NULL;
}

static dt_value onnx_import_build(dt_onnx_importer *r, const dt_value *inputs, bool drop_head, dt_value *features) {
    const Onnx__GraphProto *g = r->f->graph;
    bool *used = dt_xcalloc(r->cap, sizeof *used);
    size_t head = 0; // number of the last layer's node
    list_names(r);   // the table first: binding and groups look names up
    if (bind_inputs(r, inputs)) onnx_import_find_needed(r, used);
    free(used);
    const dt_onnx_slot *before = r->g->status == DT_OK ? read_by_head(r, &head) : NULL;
    for (size_t k = 0; k < g->n_node && r->g->status == DT_OK; k++) {
        // a fresh head of other classes takes the place of the file's
        if (!r->needed[k] || (drop_head && before && k == head)) continue;
        r->node = g->node[k];
        build_node(r, k);
    }
    r->node = NULL; // messages are of the file again
    if (r->g->status != DT_OK) return DT_NONE;
    dt_onnx_note_shared(r);
    *features = before && before->kind == ONNX_VALUE ? before->v : DT_NONE;
    const dt_onnx_slot *out = dt_onnx_find(r, g->output[0]->name);
    if (drop_head && *features != DT_NONE) return DT_NONE; // the caller builds on the features
    if (out->kind != ONNX_VALUE) dt_onnx_fail(r, "its output %.80s is not made of its inputs", out->name);
    return out->v;
}

dt_value dt_onnx_build(const dt_onnx_file *f, dt_graph *g, const dt_value *inputs, bool drop_head, dt_value *features) {
    dt_onnx_importer r = {.f = f, .g = g, .cap = 64};
    const Onnx__GraphProto *from = f->graph;
    size_t n_names = from->n_initializer + from->n_input + from->n_output;
    *features = DT_NONE;
    for (size_t i = 0; i < from->n_node; i++) n_names += from->node[i]->n_input + from->node[i]->n_output;
    while (r.cap < 2 * n_names + 2)
        r.cap *= 2; // at most half full: dt_onnx_find always ends, and never grows the table
    r.slots = dt_xcalloc(r.cap, sizeof *r.slots);
    r.needed = dt_xcalloc(f->graph->n_node + 1, sizeof *r.needed);
    r.groups = dt_xcalloc(f->graph->n_node + 1, sizeof *r.groups);
    const dt_value v = g->status == DT_OK ? onnx_import_build(&r, inputs, drop_head, features) : DT_NONE;
    free(r.groups);
    free(r.needed);
    free(r.slots);
    return v;
}
