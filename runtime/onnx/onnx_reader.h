// onnx_reader.h: what the files that read ONNX share. Not for others.
#ifndef DT_ONNX_ONNX_READER_H
#define DT_ONNX_ONNX_READER_H

#include "onnx_import.h"

#include "base/core.h"
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
typedef struct dt_onnx_const {
    bool is_float;
    dt_shape shape;
    int64_t count;
    double *v;
} dt_onnx_const;

// How a value is made of an initialiser: as it is; a matrix transposed; (O,I,K) as (O,I,1,K), a window of an image.
typedef enum dt_onnx_form { ONNX_AS_IS, ONNX_SWAPPED, ONNX_IMAGE } dt_onnx_form;

// A parameter that was made of an initialiser, for the nodes of one layer.
typedef struct dt_onnx_use {
    const void *layer;           // onnx_tensor.c
    const Onnx__NodeProto *last; // that read it
    dt_value v;
    dt_onnx_form form;
    int n_reads;
    struct dt_onnx_use *next;
} dt_onnx_use;

typedef enum dt_onnx_kind { ONNX_ABSENT, ONNX_VALUE, ONNX_CONST, ONNX_WEIGHT } dt_onnx_kind;
// Whatever has a name in the file.
typedef struct dt_onnx_slot {
    const char *name;
    dt_onnx_kind kind;
    dt_value v;                 // VALUE
    dt_onnx_const *c;           // CONST
    const Onnx__TensorProto *t; // WEIGHT
    struct dt_onnx_slot *same;  // WEIGHT: the initialiser that this is another name of, or NULL
    bool swapped;               // WEIGHT: of a matrix, transposed
    dt_onnx_use *uses;          // WEIGHT, of an initialiser: its parameters
    int n_named;                // parameters that have this name, the others with a number
    enum { ONNX_UNREAD, ONNX_FLAT, ONNX_VARIED } values; // FLAT: all are one number
    const Onnx__NodeProto *producer;
    int n_uses;
} dt_onnx_slot;

// Nodes that are one op here; the last of them has this, the others are not built.
typedef enum dt_onnx_group_kind { ONNX_ALONE, ONNX_SAME, ONNX_GELU, ONNX_NORM, ONNX_LINEAR } dt_onnx_group_kind;
typedef struct dt_onnx_group {
    dt_onnx_group_kind kind;
    dt_onnx_slot *x, *weight, *bias;
    double eps;
} dt_onnx_group;

typedef struct dt_onnx_importer {
    const dt_onnx_file *f;
    dt_graph *g;
    dt_onnx_slot *slots; // a hash table
    size_t cap;
    const Onnx__NodeProto *node; // the one that is built
    const dt_onnx_group *group;  // which it ends, or NULL
    bool *needed;                // by node
    dt_onnx_group *groups;       // by node
} dt_onnx_importer;

// ---- onnx_import.c ---------------------------------------------------------------------------------
// Fails the graph with the file and the node in front; false.
bool dt_onnx_fail(dt_onnx_importer *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
dt_onnx_slot *dt_onnx_find(dt_onnx_importer *r, const char *name);
void dt_onnx_alias(dt_onnx_slot *to, dt_onnx_slot *from); // another name of the same
// Input i of the node; NULL where it is left out. Output i likewise.
dt_onnx_slot *dt_onnx_in(dt_onnx_importer *r, int i);
dt_onnx_slot *dt_onnx_out(dt_onnx_importer *r, int i);
void dt_onnx_give(dt_onnx_importer *r, int i, dt_value v); // the node's output i
const Onnx__AttributeProto *dt_onnx_attribute(const Onnx__NodeProto *n, const char *name);
int64_t dt_onnx_read_int(const dt_onnx_importer *r, const char *name, int64_t unset);
float dt_onnx_read_float(const dt_onnx_importer *r, const char *name, float unset);
const char *dt_onnx_read_text(dt_onnx_importer *r, const char *name, const char *unset);

// ---- onnx_tensor.c ---------------------------------------------------------------------------------
// Elements of a tensor that the file has; -1: it is malformed, and the graph has failed.
int64_t dt_onnx_count(dt_onnx_importer *r, const Onnx__TensorProto *t);
// Of a tensor that dt_onnx_count has seen.
dt_shape dt_onnx_tensor_shape(const Onnx__TensorProto *t);
// A small tensor of the file; NULL: it is too large or malformed.
dt_onnx_const *dt_onnx_read_const(dt_onnx_importer *r, const Onnx__TensorProto *t);
dt_onnx_const *dt_onnx_new_const(dt_onnx_importer *r, bool is_float, const dt_shape *shape);
// The slot as a known tensor; NULL: it is none, quietly.
const dt_onnx_const *dt_onnx_as_const(dt_onnx_importer *r, dt_onnx_slot *s);
// The slot as a value: a parameter is made of a weight, in this form. Each input of a node is taken
// once. Layers that share an initialiser share the parameter, unless all its values are one number: exporters merge
// tensors that happen to be equal, as those of fresh norms are, and then each layer gets a parameter of its own.
dt_value dt_onnx_as_value(dt_onnx_importer *r, dt_onnx_slot *s, dt_onnx_form form);
// The same as a buffer (running statistics).
dt_value dt_onnx_as_buffer(dt_onnx_importer *r, dt_onnx_slot *s);
// Says in the graph's note which initialisers of the file were divided, and which are tied.
void dt_onnx_note_shared(dt_onnx_importer *r);

// ---- onnx_fold.c: of a false result the graph has failed -----------------------------------------
int64_t dt_onnx_axis(dt_onnx_importer *r, int64_t axis, int n);
// Integers of input i or, before it became one, of an attribute, at most DT_MAX_DIMS. Returns how many, -1: not given.
int dt_onnx_integers(dt_onnx_importer *r, int i, const char *attribute, int64_t *out);
// The shape that a and b have together, as numpy broadcasts.
bool dt_onnx_broadcast(dt_onnx_importer *r, const dt_shape *a, const dt_shape *b, dt_shape *out);
// What the node makes of the shape x: Expand; Reshape, Flatten, Squeeze and Unsqueeze; Transpose of n dimensions, of
// which the result's i-th is x's order[i]; Slice, whose element at is x's begin + at step.
bool dt_onnx_expanded(dt_onnx_importer *r, const dt_shape *x, dt_shape *y);
bool dt_onnx_reshaped(dt_onnx_importer *r, const dt_shape *x, dt_shape *y);
bool dt_onnx_order(dt_onnx_importer *r, int n, int *order);
bool dt_onnx_sliced(dt_onnx_importer *r, const dt_shape *x, int64_t *begin, int64_t *step, dt_shape *y);

// Computes the node where its inputs are known. True: done (or failed); false: it is to be built.
bool dt_onnx_fold(dt_onnx_importer *r);
// Whether node i ends a group; then *g, and its x, weight and bias are all that is read.
bool dt_onnx_find_group(dt_onnx_importer *r, const Onnx__NodeProto *n, dt_onnx_group *g);
// ---- onnx_import_ops.c: for the readers of nodes ---------------------------------------------------
dt_value dt_onnx_input_value(dt_onnx_importer *r, int i); // input i
dt_shape dt_onnx_shape(const dt_onnx_importer *r, dt_value v);
const char *dt_onnx_name(const dt_onnx_importer *r); // the node's, made unique, or NULL
#define IMPORT_OP(op) void dt_onnx_read_##op(dt_onnx_importer *r);
#define IMPORT_AS(op, like)
#define FOLD_OP(op)
#include "onnx_import_ops.def"
#undef IMPORT_OP
#undef IMPORT_AS
#undef FOLD_OP
// ---- onnx_import_ops.c -----------------------------------------------------------------------------
typedef void (*onnx_op_fn)(dt_onnx_importer *r);
onnx_op_fn dt_onnx_op_of(const char *type); // NULL: not supported
void dt_onnx_build_group(dt_onnx_importer *r, const dt_onnx_group *g);

#endif
