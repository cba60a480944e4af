// onnx_import.h: an ONNX file as a trainable graph (model.onnx). Initialisers become parameters and buffers with their
// names and, in training graphs, their values; integers that give shapes are computed once, with the micro-batch as N.
//
// The file is read as protobuf-c reads it and then walked twice: from the outputs back, which finds what is needed and
// groups of nodes that are one op here (GELU of Erf, a layer norm or linear layer in parts), and forward, which builds.
// Each kind of node has a function (onnx_import_ops.def). Refused, with file and node: other ops, graphs within nodes
// (loops, branches), quantised and sparse tensors, external data outside the file's folder, tensors without their
// bytes.
#ifndef DT_ONNX_ONNX_IMPORT_H
#define DT_ONNX_ONNX_IMPORT_H

#include "graph/build.h"

typedef struct dt_onnx_file dt_onnx_file;

// DT_E_CKPT: it cannot be read, or is no ONNX.
dt_status dt_onnx_open(dt_onnx_file **out, const char *path);
// The same from bytes of which `path` is the name.
dt_status dt_onnx_open_bytes(dt_onnx_file **out, const char *path, const void *data, size_t n_bytes);
void dt_onnx_close(dt_onnx_file *f);
// Inputs that are no initialisers. They are named and fed in this order.
int dt_onnx_n_inputs(const dt_onnx_file *f);
const char *dt_onnx_input_name(const dt_onnx_file *f, int i);
// Numbers a sample of the first output, (N,K), as stated in the file; -1: not stated.
int64_t dt_onnx_n_outputs(const dt_onnx_file *f);
// Builds the first output of inputs (N,…). *features: what the last linear layer reads, if that gives the output;
// with drop_head that layer is left out and the result is DT_NONE. Errors: the graph's.
dt_value dt_onnx_build(const dt_onnx_file *f, dt_graph *g, const dt_value *inputs, bool drop_head, dt_value *features);
// The ops that can be read, separated by blanks; one string for ever.
const char *dt_onnx_import_ops(void);

#endif
