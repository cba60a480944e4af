// onnx_writer.c: nodes, attributes and tensors of an ONNX graph as protobuf-c's structs.
#include "onnx_writer.h"

#include <string.h>

// A text of the arena where the message wants one that it may change.
static char *onnx_writer_text(dt_onnx_writer *w, const char *s) {
    return dt_arena_strdup(&w->arena, s);
}

static void *new_message(dt_onnx_writer *w, size_t n_bytes, void (*init)(void *)) {
    void *m = dt_arena_alloc(&w->arena, n_bytes);
    init(m);
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
    char *name = dt_arena_printf(&w->arena, "%s/%zu", n->name, n->n_output);
    onnx_writer_append(w, &n->output, &n->n_output, name);
    return name;
}

const char *dt_onnx_node(dt_onnx_writer *w, const char *op, const char *out, const char *const *in) {
    Onnx__NodeProto *n = NEW(w, Onnx__NodeProto, onnx__node_proto__init);
    w->nodes = dt_xgrow(w->nodes, w->n_nodes, sizeof *w->nodes);
    w->nodes[w->n_nodes++] = n;
    n->op_type = onnx_writer_text(w, op);
    n->name = dt_arena_printf(&w->arena, "%s/%zu", op, w->n_nodes);
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
    a->has_type = true;
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
    a->f = value;
}

void dt_onnx_text(dt_onnx_writer *w, const char *name, const char *value) {
    Onnx__AttributeProto *a = add_attribute(w, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING);
    a->has_s = true;
    a->s = (ProtobufCBinaryData){strlen(value), (uint8_t *)onnx_writer_text(w, value)};
}

void dt_onnx_ints(dt_onnx_writer *w, const char *name, const int64_t *values, int n) {
    Onnx__AttributeProto *a = add_attribute(w, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS);
    a->n_ints = (size_t)n;
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
    t->dims = dt_arena_alloc(&w->arena, (t->n_dims + 1) * sizeof *t->dims);
    memcpy(t->dims, shape->d, t->n_dims * sizeof *t->dims);
    t->raw_data = (ProtobufCBinaryData){n_bytes, (uint8_t *)data}; // it is read only
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
    for (size_t i = 0; i < n; i++) narrow[i] = (float)data[i];
    return dt_onnx_tensor(w, NULL, shape, narrow);
}

const char *dt_onnx_scalar(dt_onnx_writer *w, float value) {
    const dt_shape shape = dt_shape0();
    float *data = dt_arena_alloc(&w->arena, sizeof *data);
    *data = value;
    return dt_onnx_tensor(w, NULL, &shape, data);
}

const char *dt_onnx_vector(dt_onnx_writer *w, const int64_t *values, int n) {
    const dt_shape shape = dt_shape1(n);
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
            d->dim_param = onnx_writer_text(w, "N");
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
    t->elem_type = wide            ? ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE
                   : type == DT_U8 ? ONNX__TENSOR_PROTO__DATA_TYPE__UINT8
                                   : ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT;
    t->shape = sample_shape(w, shape);
    return info;
}

void dt_onnx_input(dt_onnx_writer *w, const char *name, dt_dtype type, bool wide, const dt_shape *shape) {
    onnx_writer_append(w, &w->inputs, &w->n_inputs, dt_onnx_info(w, name, type, wide, shape));
}

const char *dt_onnx_sample_shape(dt_onnx_writer *w, const dt_shape *shape) {
    const char *rest = dt_onnx_vector(w, shape->d + 1, shape->n - 1);
    if (!w->batch) {
        w->batch = DT_ONNX_NODE(w, "Shape", NULL, w->inputs[0]->name);
        dt_onnx_int(w, "start", 0);
        dt_onnx_int(w, "end", 1);
    }
    const char *all = DT_ONNX_NODE(w, "Concat", NULL, w->batch, rest);
    dt_onnx_int(w, "axis", 0);
    return all;
}
