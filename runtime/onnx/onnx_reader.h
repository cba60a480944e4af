// onnx_reader.h: what the files that read ONNX share. Not for others.
#ifndef DT_ONNX_ONNX_READER_H
#define DT_ONNX_ONNX_READER_H

#include "onnx_import.h"

#include "base/arena.h"
#include "onnx.pb-c.h"

enum { ONNX_MAX_FOLDED = 1 << 16 };

struct dt_onnx_file {
    char *path;
    Onnx__ModelProto *model;
    const Onnx__GraphProto *graph;
    int64_t opset;
    const Onnx__ValueInfoProto **inputs; // those of the graph that are no initialisers
    int n_inputs;
};

// A small tensor that is known: shapes and numbers.
typedef struct onnx_const {
    bool is_float;
    dt_shape shape;
    int64_t count;
    double *v;
} onnx_const;

// How a value is made of an initialiser: as it is; a matrix transposed; (O,I,K) as (O,I,1,K), a window of an image.
typedef enum onnx_form { ONNX_AS_IS, ONNX_SWAPPED, ONNX_IMAGE } onnx_form;

// A parameter that was made of an initialiser, for the nodes of one layer.
typedef struct onnx_use {
    const void *layer;           // onnx_tensor.c
    const Onnx__NodeProto *last; // that read it
    dt_value v;
    onnx_form form;
    int n_reads;
    struct onnx_use *next;
} onnx_use;

typedef enum onnx_kind { ONNX_ABSENT, ONNX_VALUE, ONNX_CONST, ONNX_WEIGHT } onnx_kind;
// Whatever has a name in the file.
typedef struct onnx_slot {
    const char *name;
    onnx_kind kind;
    dt_value v;                 // VALUE
    onnx_const *c;              // CONST
    const Onnx__TensorProto *t; // WEIGHT
    struct onnx_slot *same;     // WEIGHT: the initialiser that this is another name of, or NULL
    bool swapped;               // WEIGHT: of a matrix, transposed
    onnx_use *uses;             // WEIGHT, of an initialiser: its parameters
    int n_named;                // parameters that have this name, the others with a number
    enum { ONNX_UNASKED, ONNX_FLAT, ONNX_VARIED } values; // FLAT: all are one number
    const Onnx__NodeProto *producer;
    int n_uses;
} onnx_slot;

// Nodes that are one op here; the last of them has this, the others are not built.
typedef enum onnx_group_kind { ONNX_ALONE, ONNX_SAME, ONNX_GELU, ONNX_NORM, ONNX_LINEAR } onnx_group_kind;
typedef struct onnx_group {
    onnx_group_kind kind;
    onnx_slot *x, *weight, *bias;
    double eps;
} onnx_group;

typedef struct onnx_reader {
    const dt_onnx_file *f;
    dt_graph *g;
    onnx_slot *slots; // a hash table
    size_t cap;
    const Onnx__NodeProto *node; // the one that is built
    const onnx_group *group;     // which it ends, or NULL
    bool *needed;                // by node
    onnx_group *groups;          // by node
} onnx_reader;

// ---- onnx_import.c ---------------------------------------------------------------------------------
// Fails the graph with the file and the node in front; false.
bool onnx_fail(onnx_reader *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
onnx_slot *onnx_find(onnx_reader *r, const char *name);
void onnx_alias(onnx_slot *to, onnx_slot *from); // another name of the same
// Input i of the node; NULL where it is left out. Output i likewise.
onnx_slot *onnx_in(onnx_reader *r, int i);
onnx_slot *onnx_out(onnx_reader *r, int i);
void onnx_give(onnx_reader *r, int i, dt_value v); // the node's output i
const Onnx__AttributeProto *onnx_attribute(const Onnx__NodeProto *n, const char *name);
int64_t onnx_int(const onnx_reader *r, const char *name, int64_t unset);
float onnx_float(const onnx_reader *r, const char *name, float unset);
const char *onnx_text(onnx_reader *r, const char *name, const char *unset);

// ---- onnx_tensor.c ---------------------------------------------------------------------------------
// Elements of a tensor that the file has; -1: it is malformed, and the graph has failed.
int64_t onnx_count(onnx_reader *r, const Onnx__TensorProto *t);
// Of a tensor that onnx_count has seen.
dt_shape onnx_tensor_shape(const Onnx__TensorProto *t);
// A small tensor of the file; NULL: it is too large or malformed.
onnx_const *onnx_read_const(onnx_reader *r, const Onnx__TensorProto *t);
onnx_const *onnx_new_const(onnx_reader *r, bool is_float, const dt_shape *shape);
// The slot as a known tensor; NULL: it is none, quietly.
const onnx_const *onnx_as_const(onnx_reader *r, onnx_slot *s);
// The slot as a value: a parameter is made of a weight, in this form. Each input of a node is asked
// once. Layers that share an initialiser share the parameter, unless all its values are one number: exporters merge
// tensors that happen to be equal, as those of fresh norms are, and then each layer gets a parameter of its own.
dt_value onnx_as_value(onnx_reader *r, onnx_slot *s, onnx_form form);
// The same as a buffer (running statistics).
dt_value onnx_as_buffer(onnx_reader *r, onnx_slot *s);
// Says in the graph's note which initialisers of the file were divided, and which are tied.
void onnx_note_shared(onnx_reader *r);

// ---- onnx_shapes.c: of a false result the graph has failed -----------------------------------------
int64_t onnx_axis(onnx_reader *r, int64_t axis, int n);
// Integers of input i or, before it became one, of an attribute, at most DT_MAX_DIMS. Returns how many, -1: not given.
int onnx_integers(onnx_reader *r, int i, const char *attribute, int64_t *out);
// The shape that a and b have together, as numpy broadcasts.
bool onnx_broadcast(onnx_reader *r, const dt_shape *a, const dt_shape *b, dt_shape *out);
// What the node makes of the shape x: Expand; Reshape, Flatten, Squeeze and Unsqueeze; Transpose of n dimensions, of
// which the result's i-th is x's order[i]; Slice, whose element at is x's begin + at step.
bool onnx_expanded(onnx_reader *r, const dt_shape *x, dt_shape *y);
bool onnx_reshaped(onnx_reader *r, const dt_shape *x, dt_shape *y);
bool onnx_order(onnx_reader *r, int n, int *order);
bool onnx_sliced(onnx_reader *r, const dt_shape *x, int64_t *begin, int64_t *step, dt_shape *y);

// ---- onnx_fold.c -----------------------------------------------------------------------------------
// Computes the node where its inputs are known. True: done (or failed); false: it is to be built.
bool onnx_fold(onnx_reader *r);
// ---- onnx_groups.c ---------------------------------------------------------------------------------
// Whether node i ends a group; then *g, and its x, weight and bias are all that is read.
bool onnx_find_group(onnx_reader *r, const Onnx__NodeProto *n, onnx_group *g);
// ---- onnx_import_ops.c: for the readers of nodes ---------------------------------------------------
dt_value onnx_value(onnx_reader *r, int i); // input i
dt_shape onnx_shape(const onnx_reader *r, dt_value v);
const char *onnx_name(const onnx_reader *r); // the node's, made unique, or NULL
#define IMPORT_OP(op) void onnx_read_##op(onnx_reader *r);
#define IMPORT_AS(op, like)
#define FOLD_OP(op)
#include "onnx_import_ops.def"
#undef IMPORT_OP
#undef IMPORT_AS
#undef FOLD_OP
// ---- onnx_import_ops.c -----------------------------------------------------------------------------
typedef void (*onnx_op_fn)(onnx_reader *r);
onnx_op_fn onnx_op_of(const char *type); // NULL: not supported
void onnx_build_group(onnx_reader *r, const onnx_group *g);

#endif
