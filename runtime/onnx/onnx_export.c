// onnx_export.c: walks the graph from the outputs that are wanted back to the inputs, then emits the nodes in between.

#include "onnx_writer.h"

#include "base/io.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { OPSET = 17, IR_VERSION = 8 };             // of ONNX 1.12
static const size_t MAX_BYTES = (size_t)1 << 31; // of a protobuf message

// ---- what is needed --------------------------------------------------------------------------------
static dt_value output_of(const dt_graph *g, const char *name) {
    for (int i = 0; i < g->n_outputs; i++)
        if (strcmp(g->outputs[i].name, name) == 0) return g->outputs[i].value;
    return DT_NONE;
}

static dt_status fail_output(const dt_graph *g, const char *name) {
    char list[512] = "";
    for (int i = 0; i < g->n_outputs; i++) {
        size_t at = strlen(list); // names that do not fit are left out
        snprintf(list + at, sizeof list - at, "%s%s", at ? ", " : "", g->outputs[i].name);
    }
    return dt_fail(DT_E_USAGE, "the network has no output '%s'; it has %s", name, list);
}

// needed: by node. Nodes are in execution order, so one pass backwards finds all.
static dt_status mark_needed(const dt_onnx_writer *w, bool *needed, bool *values) {
    const dt_graph *g = w->g;
    for (int i = 0; i < w->o->n_outputs; i++) {
        dt_value v = output_of(g, w->o->outputs[i].name);
        if (v == DT_NONE) return fail_output(g, w->o->outputs[i].name);
        values[v] = true;
    }
    for (dt_node_id id = g->n_nodes - 1; id >= 0; id--) {
        const dt_node *n = &g->nodes[id];
        if (n->dead) continue; // merged by a pass
        for (int i = 0; i < n->n_out; i++)
            if (n->out[i] != DT_NONE) needed[id] |= values[n->out[i]];
        for (int i = 0; needed[id] && i < n->n_in; i++)
            if (n->in[i] != DT_NONE) values[n->in[i]] = true;
    }
    return DT_OK;
}

// Whether an output of the file is called so.
static bool onnx_export_is_output(const dt_onnx_writer *w, const char *name) {
    int i = 0;
    while (i < w->o->n_outputs && strcmp(w->o->outputs[i].name, name) != 0) i++;
    return i < w->o->n_outputs;
}

// ---- numbers ---------------------------------------------------------------------------------------
static dt_shape shape_of_moments(const dt_onnx_port *p, const dt_shape *shape) {
    dt_shape each = *shape;
    each.d[0] = 1;                                                       // the same for all samples
    for (int i = 1; p->by_channel && i < each.n - 1; i++) each.d[i] = 1; // (1,1,1,C) of an image
    return each;
}

static bool onnx_export_is_wide(const dt_onnx_port *p, const dt_shape *shape) {
    const dt_shape each = shape_of_moments(p, shape);
    for (int64_t i = 0; p->mean && i < dt_shape_elements(&each); i++)
        if (fabs(p->mean[i]) > 4096 * p->std[i]) return true; // 2^-12 of a deviation is f32's 2^-24 of the mean
    return false;
}

static const char *cast(dt_onnx_writer *w, const char *x, Onnx__TensorProto__DataType to) {
    x = DT_ONNX_NODE(w, "Cast", NULL, x);
    dt_onnx_int(w, "to", to);
    return x;
}

// An input of the file in its own unit -> the graph's value.
static const char *normalise(dt_onnx_writer *w, const dt_onnx_port *p, const dt_shape *shape) {
    const bool wide = onnx_export_is_wide(p, shape);
    const dt_shape each = shape_of_moments(p, shape);
    const char *mean = dt_onnx_doubles(w, &each, p->mean, wide);
    const char *std = dt_onnx_doubles(w, &each, p->std, wide);
    // the difference first, in f64 where the mean is large: little is left of the digits otherwise
    const char *x = DT_ONNX_NODE(w, "Sub", NULL, p->name, mean);
    x = DT_ONNX_NODE(w, "Div", NULL, x, std);
    return wide ? cast(w, x, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT) : x;
}

static const dt_onnx_port *onnx_export_number_of(const dt_onnx_writer *w, const char *name) {
    for (int i = 0; i < w->o->n_numbers; i++) {
        const dt_onnx_port *p = &w->o->numbers[i];
        // without preprocess the file takes what the network's first layer takes
        if ((p->n_categories || (w->o->preprocess && p->mean)) && strcmp(p->name, name) == 0) return p;
    }
    return NULL;
}

// The number of a class -> its row; any other number is zeros, as pandas' -1. OneHot would count it from the last class.
static const char *one_hot(dt_onnx_writer *w, const dt_onnx_port *p) {
    int64_t *numbers = dt_xcalloc((size_t)p->n_categories, sizeof *numbers), last = -1;
    for (int i = 0; i < p->n_categories; i++) numbers[i] = i;
    const char *x = DT_ONNX_NODE(w, "Unsqueeze", NULL, p->name, dt_onnx_vector(w, &last, 1));
    x = DT_ONNX_NODE(w, "Equal", NULL, x, dt_onnx_vector(w, numbers, p->n_categories));
    free(numbers);
    return cast(w, x, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT);
}

static dt_status add_inputs(dt_onnx_writer *w, const bool *values) {
    for (dt_value v = 0; v < w->g->n_values; v++) {
        const dt_value_info *info = dt_info_of(w->g, v);
        if (info->kind != DT_V_INPUT || !values[v]) continue;
        if (onnx_export_is_output(w, info->name))
            return dt_fail(DT_E_USAGE, "%s is a field and an output: rename the field", info->name);
        dt_value as = v; // what the file's input is
        // behind the normalization: that node then emits nothing (emit_image_normalize)
        for (dt_node_id id = 0; !w->o->preprocess && id < w->g->n_nodes; id++) {
            const dt_node *n = &w->g->nodes[id];
            if (!n->dead && n->op == DT_OP_image_normalize && n->in[0] == v) as = n->out[0];
        }
        const dt_onnx_port *number = onnx_export_number_of(w, info->name);
        const dt_value_info *of = dt_info_of(w->g, as);
        if (number && number->n_categories) {
            const dt_shape samples = dt_shape1(of->shape.d[0]);
            dt_onnx_input(w, info->name, DT_I32, false, &samples);
            w->names[as] = one_hot(w, number);
            continue;
        }
        dt_onnx_input(w, info->name, of->dtype, number && onnx_export_is_wide(number, &of->shape), &of->shape);
        w->names[as] = number ? normalise(w, number, &of->shape) : info->name;
    }
    return DT_OK;
}

// ---- values ----------------------------------------------------------------------------------------
dt_status dt_onnx_weights(dt_onnx_writer *w, dt_value v, const float **data) {
    const dt_value_info *info = dt_info_of(w->g, v);
    // of the checkpoint, which the caller has open: borrowed until the file is written
    *data = w->o->tensor(w->o->ctx, info->name, &info->shape);
    return *data ? DT_OK : dt_fail(DT_E_CKPT, "the checkpoint has no tensor '%s'", info->name);
}

int dt_onnx_samples_at(const dt_onnx_writer *w, dt_value v) {
    const dt_shape *s = &dt_info_of(w->g, v)->shape, *other = &dt_info_of(w->other, v)->shape;
    // the graphs are built for different N: a size that differs is a multiple of N
    int at = s->n == other->n ? -1 : -2;
    for (int i = 0; i < s->n && at > -2; i++)
        if (s->d[i] != other->d[i]) at = at == -1 ? i : -2;
    return at;
}

// A constant of N samples is one row, expanded to the batch.
static dt_status add_constant(dt_onnx_writer *w, dt_value v, const char **name) {
    const dt_value_info *info = dt_info_of(w->g, v);
    dt_shape row = info->shape;
    if (info->dtype != DT_F32)
        return dt_fail(DT_E_USAGE, "constant %s is not f32: it has no ONNX form here", info->name);
    const int at = dt_onnx_samples_at(w, v);
    if (at == -1) {
        *name = dt_onnx_tensor(w, NULL, &row, info->data);
        return DT_OK;
    }
    const int64_t rows = row.d[0]; // of this graph's N
    const size_t n_bytes = (size_t)(dt_shape_elements(&row) / rows) * sizeof(float);
    bool repeats = at == 0 && rows == dt_graph_samples(w->g);
    // rows that differ would be constants of sample 0, 1, …
    for (int64_t i = 1; repeats && i < rows; i++)
        repeats = memcmp(info->data, (const char *)info->data + (size_t)i * n_bytes, n_bytes) == 0;
    if (!repeats) return dt_fail(DT_E_USAGE, "constant %s differs by sample, which has no ONNX form here", info->name);
    row.d[0] = 1; // (1,…), repeated N times by the file
    const char *one = dt_onnx_tensor(w, NULL, &row, info->data);
    *name = DT_ONNX_NODE(w, "Expand", info->name, one, dt_onnx_sample_shape(w, &row));
    return DT_OK;
}

// The graph's name of a value, unless an output of the file has it (a layer may be called logits).
static const char *onnx_export_name_of(dt_onnx_writer *w, dt_value v) {
    const char *name = dt_info_of(w->g, v)->name;
    return onnx_export_is_output(w, name) ? dt_arena_printf(&w->arena, "%s/value", name) : name;
}

dt_status dt_onnx_value(dt_onnx_writer *w, dt_value v, const char **name) {
    const dt_value_info *info = dt_info_of(w->g, v);
    const float *data;
    // initialisers keep the checkpoint's names, for other readers of the file
    if (!w->names[v] && (info->kind == DT_V_PARAM || info->kind == DT_V_BUFFER)) {
        DT_TRY(dt_onnx_weights(w, v, &data));
        w->names[v] = dt_onnx_tensor(w, onnx_export_name_of(w, v), &info->shape, data);
    } else if (!w->names[v] && info->kind == DT_V_CONST) {
        DT_TRY(add_constant(w, v, &w->names[v]));
    } else if (!w->names[v]) {
        w->names[v] = onnx_export_name_of(w, v);
    }
    *name = w->names[v];
    return DT_OK;
}

static dt_status emit_all(dt_onnx_writer *w) {
    const dt_graph *g = w->g;
    bool *needed = dt_arena_alloc(&w->arena, (size_t)g->n_nodes + 1); // arenas give zeros
    bool *values = dt_arena_alloc(&w->arena, (size_t)g->n_values + 1);
    DT_TRY(mark_needed(w, needed, values));
    DT_TRY(add_inputs(w, values)); // inputs that nothing needs (targets, weights) are no inputs of the file
    for (dt_node_id id = 0; id < g->n_nodes; id++) {
        const dt_node *n = &g->nodes[id];
        if (!needed[id]) continue;
        for (int i = 0; i < n->n_out; i++) // an image_normalize that the file leaves out: named by add_inputs
            if (n->out[i] != DT_NONE && !w->names[n->out[i]]) w->names[n->out[i]] = onnx_export_name_of(w, n->out[i]);
        DT_TRY(dt_onnx_emit(w, n));
    }
    return DT_OK;
}

// ---- the file --------------------------------------------------------------------------------------
// An output has its own name, and is scaled back to the units of the data where the export has them.
static void finish_output(dt_onnx_writer *w, const dt_onnx_port *o, dt_value v) {
    const char *x = w->names[v];
    // Identity: a value has one name, and may be two outputs, or an input of nodes before
    if (!o->mean) {
        DT_ONNX_NODE(w, "Identity", o->name, x);
        return;
    }
    const dt_shape each = shape_of_moments(o, &dt_info_of(w->g, v)->shape);
    const bool wide = onnx_export_is_wide(o, &each);
    // before the mean is added: f32 would round it away
    if (wide) x = cast(w, x, ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE);
    x = DT_ONNX_NODE(w, "Mul", NULL, x, dt_onnx_doubles(w, &each, o->std, wide));
    DT_ONNX_NODE(w, "Add", o->name, x, dt_onnx_doubles(w, &each, o->mean, wide));
}

typedef struct bytes {
    uint8_t *data;
    size_t n;
} bytes;

static void onnx_export_declare(const dt_onnx_opts *o, const Onnx__ValueInfoProto *info, bool is_output) {
    const Onnx__TypeProto__Tensor *t = info->type->tensor_type;
    dt_onnx_declared d = {.name = info->name,
                          .type = t->elem_type == ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE  ? "FP64"
                                  : t->elem_type == ONNX__TENSOR_PROTO__DATA_TYPE__UINT8 ? "UINT8"
                                  : t->elem_type == ONNX__TENSOR_PROTO__DATA_TYPE__INT64 ? "INT64"
                                                                                         : "FP32",
                          .is_output = is_output};
    for (size_t i = 1; i < t->shape->n_dim; i++) d.shape.d[d.shape.n++] = t->shape->dim[i]->dim_value;
    o->declare(o->ctx, &d);
}

static dt_status pack_model(dt_onnx_writer *w, bytes *out) {
    enum { MAX_METADATA = 64 };
    Onnx__GraphProto graph = ONNX__GRAPH_PROTO__INIT;
    Onnx__ModelProto model = ONNX__MODEL_PROTO__INIT;
    Onnx__OperatorSetIdProto opset = ONNX__OPERATOR_SET_ID_PROTO__INIT, *opsets[] = {&opset};
    // protobuf-c takes arrays of pointers; all live until the message is packed below
    Onnx__ValueInfoProto **outputs = dt_arena_alloc(&w->arena, ((size_t)w->o->n_outputs + 1) * sizeof *outputs);
    Onnx__StringStringEntryProto entries[MAX_METADATA], *metadata[MAX_METADATA];
    graph.output = outputs;
    for (int i = 0; i < w->o->n_outputs; i++) {
        const dt_onnx_port *o = &w->o->outputs[i];
        const dt_value v = output_of(w->g, o->name);
        finish_output(w, o, v); // appends nodes: before the list of them is taken
        const dt_shape *shape = &dt_info_of(w->g, v)->shape;
        outputs[graph.n_output++] = dt_onnx_info(w, o->name, DT_F32, onnx_export_is_wide(o, shape), shape);
    }
    for (int i = 0; w->o->metadata && w->o->metadata[2 * i] && i < MAX_METADATA; i++) {
        onnx__string_string_entry_proto__init(&entries[i]);
        entries[i].key = (char *)w->o->metadata[2 * i];
        entries[i].value = (char *)w->o->metadata[2 * i + 1];
        metadata[model.n_metadata_props++] = &entries[i];
    }
    graph.name = (char *)w->g->name;
    graph.n_node = w->n_nodes, graph.node = w->nodes; // topological order, as ONNX demands
    graph.n_initializer = w->n_tensors, graph.initializer = w->tensors;
    graph.n_input = w->n_inputs, graph.input = w->inputs;
    for (size_t i = 0; w->o->declare && i < w->n_inputs; i++) onnx_export_declare(w->o, w->inputs[i], false);
    for (size_t i = 0; w->o->declare && i < graph.n_output; i++) onnx_export_declare(w->o, outputs[i], true);
    opset.domain = (char *)""; // ONNX's own; the message is only read
    opset.has_version = model.has_ir_version = true;
    opset.version = OPSET;
    model.ir_version = IR_VERSION;
    model.producer_name = (char *)"dtrain";
    model.producer_version = (char *)w->o->version;
    model.graph = &graph;
    model.n_opset_import = 1, model.opset_import = opsets;
    model.metadata_props = metadata;
    out->n = onnx__model_proto__get_packed_size(&model);
    if (out->n >= MAX_BYTES)
        return dt_fail(DT_E_USAGE, "the file would have %zu bytes; an ONNX file has less than 2 GiB", out->n);
    out->data = dt_xcalloc(1, out->n + 1); // all of it in memory, as is the message
    onnx__model_proto__pack(&model, out->data);
    return DT_OK;
}

static dt_status write_graph(const dt_graph *g, const dt_graph *other, const dt_onnx_opts *o, bytes *out) {
    dt_onnx_writer w = {.g = g, .other = other, .o = o}; // a writer for each graph
    dt_arena_init(&w.arena);
    w.names = dt_arena_alloc(&w.arena, ((size_t)g->n_values + 1) * sizeof *w.names);
    dt_status st = emit_all(&w);
    if (st == DT_OK) st = pack_model(&w, out);
    free(w.nodes); // the arrays; messages lie in the arena
    free(w.tensors);
    dt_arena_fini(&w.arena);
    return st;
}

dt_status dt_onnx_export(const dt_graph *g, const dt_graph *other, const dt_onnx_opts *o, const char *path) {
    bytes file = {NULL, 0}, again = {NULL, 0};
    // both graphs by value id: dt_onnx_samples_at compares them
    const bool alike = g->n_values == other->n_values && g->n_nodes == other->n_nodes;
    dt_onnx_opts silent = *o;
    silent.declare = NULL; // once is enough
    dt_status st = alike ? write_graph(g, other, o, &file) : DT_OK;
    if (alike && st == DT_OK)
        st = write_graph(other, g, &silent, &again); // a size that was frozen shows as other bytes
    if (st == DT_OK && (!alike || file.n != again.n || memcmp(file.data, again.data, file.n) != 0))
        st = dt_fail(DT_E_USAGE,
                     "%s computes something else of %lld samples than of %lld, which has no ONNX "
                     "form",
                     g->name, (long long)dt_graph_samples(g), (long long)dt_graph_samples(other));
    if (st == DT_OK) st = dt_io_write_file(path, file.data, file.n); // whole or not at all
    free(file.data);
    free(again.data);
    return st;
}

// ---- onnx writer --------------------------------------------------------------------------------------------------

// Nodes, attributes and tensors of an ONNX graph as protobuf-c's structs.

// A copy in the arena: the message's text is not const.
static char *onnx_writer_text(dt_onnx_writer *w, const char *s) {
    return dt_arena_strdup(&w->arena, s);
}

static void *new_message(dt_onnx_writer *w, size_t n_bytes, void (*init)(void *)) {
    void *m = dt_arena_alloc(&w->arena, n_bytes);
    init(m); // protobuf-c's defaults, and its descriptor
    return m;
}
#define NEW(w, type, init) ((type *)new_message(w, sizeof(type), (void (*)(void *))(init)))

// ---- nodes -----------------------------------------------------------------------------------------
static Onnx__NodeProto *last(const dt_onnx_writer *w) {
    return w->nodes[w->n_nodes - 1];
}

// Lists of pointers grow in the arena, where what they outgrow stays: they are short.
static void onnx_writer_append(dt_onnx_writer *w, void *list, size_t *n, void *item) {
    void **grown = dt_arena_alloc(&w->arena, (*n + 1) * sizeof *grown), ***to = list;
    if (*n) memcpy(grown, *to, *n * sizeof *grown);
    grown[(*n)++] = item;
    *to = grown;
}

const char *dt_onnx_add_output(dt_onnx_writer *w) {
    Onnx__NodeProto *n = last(w);
    char *name = dt_arena_printf(&w->arena, "%s/%zu", n->name, n->n_output); // "Conv/12/0"
    onnx_writer_append(w, &n->output, &n->n_output, name);
    return name;
}

const char *dt_onnx_node(dt_onnx_writer *w, const char *op, const char *out, const char *const *in) {
    Onnx__NodeProto *n = NEW(w, Onnx__NodeProto, onnx__node_proto__init);
    w->nodes = dt_xgrow(w->nodes, w->n_nodes, sizeof *w->nodes);
    w->nodes[w->n_nodes++] = n;
    n->op_type = onnx_writer_text(w, op);
    n->name = dt_arena_printf(&w->arena, "%s/%zu", op, w->n_nodes); // unique: nodes are only appended
    // "" keeps the place of an input that is left out
    for (int i = 0; in[i]; i++) onnx_writer_append(w, &n->input, &n->n_input, onnx_writer_text(w, in[i]));
    if (!out) return dt_onnx_add_output(w);
    onnx_writer_append(w, &n->output, &n->n_output, onnx_writer_text(w, out));
    return out;
}

static Onnx__AttributeProto *add_attribute(dt_onnx_writer *w, const char *name,
                                           Onnx__AttributeProto__AttributeType type) {
    Onnx__NodeProto *n = last(w);
    Onnx__AttributeProto *a = NEW(w, Onnx__AttributeProto, onnx__attribute_proto__init);
    a->name = onnx_writer_text(w, name);
    a->has_type = true; // proto2: an optional field without its flag is not written
    a->type = type;
    onnx_writer_append(w, &n->attribute, &n->n_attribute, a);
    return a;
}

void dt_onnx_int(dt_onnx_writer *w, const char *name, int64_t value) {
    Onnx__AttributeProto *a = add_attribute(w, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT);
    a->has_i = true;
    a->i = value;
}

void dt_onnx_float(dt_onnx_writer *w, const char *name, float value) {
    Onnx__AttributeProto *a = add_attribute(w, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT);
    a->has_f = true;
    a->f = value; // f32 in the file
}

void dt_onnx_text(dt_onnx_writer *w, const char *name, const char *value) {
    Onnx__AttributeProto *a = add_attribute(w, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING);
    a->has_s = true;
    // bytes with a length: no NUL in the file
    a->s = (ProtobufCBinaryData){strlen(value), (uint8_t *)onnx_writer_text(w, value)};
}

void dt_onnx_ints(dt_onnx_writer *w, const char *name, const int64_t *values, int n) {
    Onnx__AttributeProto *a = add_attribute(w, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS);
    a->n_ints = (size_t)n;
    // a copy: callers give arrays of the stack
    a->ints = dt_arena_alloc(&w->arena, (size_t)n * sizeof *a->ints);
    memcpy(a->ints, values, (size_t)n * sizeof *a->ints);
}

// ---- tensors ---------------------------------------------------------------------------------------
static const char *add_tensor(dt_onnx_writer *w, const char *name, Onnx__TensorProto__DataType type,
                              const dt_shape *shape, const void *data, size_t n_bytes) {
    Onnx__TensorProto *t = NEW(w, Onnx__TensorProto, onnx__tensor_proto__init);
    t->has_data_type = t->has_raw_data = true;
    t->data_type = type;
    t->n_dims = (size_t)shape->n;
    t->dims = dt_arena_alloc(&w->arena, (t->n_dims + 1) * sizeof *t->dims); // a scalar has none
    memcpy(t->dims, shape->d, t->n_dims * sizeof *t->dims);
    t->raw_data = (ProtobufCBinaryData){n_bytes, (uint8_t *)data}; // it is read only
    // a Constant node: initialisers are what the reader may train
    if (!name) {
        name = dt_onnx_node(w, "Constant", NULL, (const char *const[]){NULL});
        add_attribute(w, "value", ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR)->t = t;
        return name;
    }
    w->tensors = dt_xgrow(w->tensors, w->n_tensors, sizeof *w->tensors);
    w->tensors[w->n_tensors++] = t;
    return t->name = onnx_writer_text(w, name);
}

const char *dt_onnx_tensor(dt_onnx_writer *w, const char *name, const dt_shape *shape, const float *data) {
    return add_tensor(w, name, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, shape, data,
                      (size_t)dt_shape_elements(shape) * sizeof *data);
}

const char *dt_onnx_doubles(dt_onnx_writer *w, const dt_shape *shape, const double *data, bool wide) {
    const size_t n = (size_t)dt_shape_elements(shape);
    if (wide) return add_tensor(w, NULL, ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE, shape, data, n * sizeof *data);
    float *narrow = dt_arena_alloc(&w->arena, n * sizeof *narrow);
    for (size_t i = 0; i < n; i++) narrow[i] = (float)data[i]; // rounded once
    return dt_onnx_tensor(w, NULL, shape, narrow);
}

const char *dt_onnx_scalar(dt_onnx_writer *w, float value) {
    const dt_shape shape = dt_shape0();                    // no dimensions: broadcasts to anything
    float *data = dt_arena_alloc(&w->arena, sizeof *data); // borrowed by the tensor
    *data = value;
    return dt_onnx_tensor(w, NULL, &shape, data);
}

const char *dt_onnx_vector(dt_onnx_writer *w, const int64_t *values, int n) {
    const dt_shape shape = dt_shape1(n);
    // the tensor borrows its bytes, so they must live as long as the writer
    int64_t *data = dt_arena_alloc(&w->arena, (size_t)n * sizeof *data);
    memcpy(data, values, (size_t)n * sizeof *data);
    return add_tensor(w, NULL, ONNX__TENSOR_PROTO__DATA_TYPE__INT64, &shape, data, (size_t)n * sizeof *data);
}

// ---- inputs and outputs ----------------------------------------------------------------------------
static Onnx__TensorShapeProto *sample_shape(dt_onnx_writer *w, const dt_shape *shape) {
    Onnx__TensorShapeProto *s = NEW(w, Onnx__TensorShapeProto, onnx__tensor_shape_proto__init);
    for (int i = 0; i < shape->n; i++) {
        Onnx__TensorShapeProto__Dimension *d =
            NEW(w, Onnx__TensorShapeProto__Dimension, onnx__tensor_shape_proto__dimension__init);
        if (i == 0) {
            d->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
            d->dim_param = onnx_writer_text(w, "N"); // a name: any number of samples, the same for all inputs
        } else {
            d->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
            d->dim_value = shape->d[i];
        }
        onnx_writer_append(w, &s->dim, &s->n_dim, d);
    }
    return s;
}

Onnx__ValueInfoProto *dt_onnx_info(dt_onnx_writer *w, const char *name, dt_dtype type, bool wide,
                                   const dt_shape *shape) {
    Onnx__ValueInfoProto *info = NEW(w, Onnx__ValueInfoProto, onnx__value_info_proto__init);
    Onnx__TypeProto__Tensor *t = NEW(w, Onnx__TypeProto__Tensor, onnx__type_proto__tensor__init);
    info->name = onnx_writer_text(w, name);
    info->type = NEW(w, Onnx__TypeProto, onnx__type_proto__init);
    info->type->value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    info->type->tensor_type = t;
    t->has_elem_type = true;
    // bytes of images stay bytes: the file converts them
    t->elem_type = wide             ? ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE
                   : type == DT_U8  ? ONNX__TENSOR_PROTO__DATA_TYPE__UINT8
                   : type == DT_I32 ? ONNX__TENSOR_PROTO__DATA_TYPE__INT64 // as ONNX's operators take indices
                                    : ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT;
    t->shape = sample_shape(w, shape);
    return info;
}

void dt_onnx_input(dt_onnx_writer *w, const char *name, dt_dtype type, bool wide, const dt_shape *shape) {
    onnx_writer_append(w, &w->inputs, &w->n_inputs, dt_onnx_info(w, name, type, wide, shape));
}

const char *dt_onnx_sample_shape(dt_onnx_writer *w, const dt_shape *shape) {
    const char *rest = dt_onnx_vector(w, shape->d + 1, shape->n - 1);
    // once a file: the number of samples, from the first input
    if (!w->batch) {
        w->batch = DT_ONNX_NODE(w, "Shape", NULL, w->inputs[0]->name);
        dt_onnx_int(w, "start", 0);
        dt_onnx_int(w, "end", 1);
    }
    const char *all = DT_ONNX_NODE(w, "Concat", NULL, w->batch, rest);
    dt_onnx_int(w, "axis", 0);
    return all;
}
