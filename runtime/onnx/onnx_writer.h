// onnx_writer.h: what the files of runtime/onnx share: an ONNX graph that grows node by node. Not for others.
//
// A tensor is named by a text; nodes come in execution order, as the graph's do. All of it lies in one arena.
#ifndef DT_ONNX_ONNX_WRITER_H
#define DT_ONNX_ONNX_WRITER_H

#include "onnx_export.h"

#include "base/core.h"
#include "onnx.pb-c.h"

typedef struct dt_onnx_writer {
    const dt_graph *g, *other; // other: of another number of samples
    const dt_onnx_opts *o;
    dt_arena arena;
    const char **names;      // by value of the graph
    const char *batch;       // the tensor [N], once it is made
    Onnx__NodeProto **nodes; // heap, as are the next
    size_t n_nodes;
    Onnx__TensorProto **tensors;
    size_t n_tensors;
    Onnx__ValueInfoProto **inputs;
    size_t n_inputs;
} dt_onnx_writer;

// Appends a node; the names of its inputs end with NULL. `out`: of its first output; NULL: a new name. Returns that.
const char *dt_onnx_node(dt_onnx_writer *w, const char *op, const char *out, const char *const *in);
#define DT_ONNX_NODE(w, op, out, ...) dt_onnx_node(w, op, out, (const char *const[]){__VA_ARGS__, NULL})
// More outputs and attributes of the node that was appended last.
const char *dt_onnx_add_output(dt_onnx_writer *w);
void dt_onnx_int(dt_onnx_writer *w, const char *name, int64_t value);
void dt_onnx_float(dt_onnx_writer *w, const char *name, float value);
void dt_onnx_text(dt_onnx_writer *w, const char *name, const char *value);
void dt_onnx_ints(dt_onnx_writer *w, const char *name, const int64_t *values, int n);
// Tensors. f32 data is borrowed for as long as the writer. name: of an initialiser; NULL: it is a Constant, which
// whoever reads the file does not train.
const char *dt_onnx_tensor(dt_onnx_writer *w, const char *name, const dt_shape *shape, const float *data);
const char *dt_onnx_scalar(dt_onnx_writer *w, float value);
// A Constant of doubles; wide: as f64, else as f32.
const char *dt_onnx_doubles(dt_onnx_writer *w, const dt_shape *shape, const double *data, bool wide);
const char *dt_onnx_vector(dt_onnx_writer *w, const int64_t *values, int n); // i64 (n)
// An input of the file: u8 or f32, wide f64, of N samples of this shape.
void dt_onnx_input(dt_onnx_writer *w, const char *name, dt_dtype type, bool wide, const dt_shape *shape);
Onnx__ValueInfoProto *dt_onnx_info(dt_onnx_writer *w, const char *name, dt_dtype type, bool wide,
                                   const dt_shape *shape);
// The shape as a vector whose first element is N, the number of samples in the first input.
const char *dt_onnx_sample_shape(dt_onnx_writer *w, const dt_shape *shape);

// A graph's value as an input of a node: its name; a weight or constant is added when it is first used. NULL: it cannot
// be had, and the status has the reason.
dt_status dt_onnx_value(dt_onnx_writer *w, dt_value v, const char **name);
// The weights of a PARAM or BUFFER.
dt_status dt_onnx_weights(dt_onnx_writer *w, dt_value v, const float **data);
// The dimension of a value whose size depends on the number of samples; -1: none, -2: several do.
int dt_onnx_samples_at(const dt_onnx_writer *w, dt_value v);
// Appends what a node of the graph computes (onnx_ops.c).
dt_status dt_onnx_emit(dt_onnx_writer *w, const dt_node *n);

#endif
