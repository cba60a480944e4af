// onnx_export.h: an evaluation graph and its weights as an ONNX file (operator set 17).
//
// The file computes what the graph computes, in f32, for any number of samples: the first dimension of inputs and
// outputs is "N". Batch norms that the graph has folded into convolutions are folded into their weights. Other weights
// keep their names and shapes. Nodes that the outputs do not need (the loss) are left out. An op without a
// form in ONNX (the list in onnx_ops.c) is an error that names the op.
//
// The network is built for two numbers of samples: a size that depends on it differs between the graphs. A file is made
// of each, and both must have the same bytes. A value may have its samples in any one dimension, an output in the
// first.
#ifndef DT_ONNX_ONNX_EXPORT_H
#define DT_ONNX_ONNX_EXPORT_H

#include "graph/ir.h"

// An input or output of the graph. mean and std, by element of a sample: the file's value is the graph's times std,
// plus mean; f64 where f32 would lose more than 1/4000 of a deviation. NULL: the file's value is the graph's.
typedef struct dt_onnx_port {
    const char *name;
    const double *mean, *std;
    bool by_channel;  // they are of the last axis, else of each element
    int n_categories; // an input that is a class: i64 (N) in the file, a row of so many numbers in the graph; else 0
} dt_onnx_port;

// An input or output as the file declares it: type is FP32, FP64, UINT8 or INT64; shape is that of a sample, which N precede.
typedef struct dt_onnx_declared {
    const char *name, *type;
    bool is_output;
    dt_shape shape;
} dt_onnx_declared;

typedef struct dt_onnx_opts {
    const dt_onnx_port *outputs;
    int n_outputs;
    const dt_onnx_port *numbers; // inputs that are numbers or classes, or images of far values
    int n_numbers;
    // Inputs are the fields' own values, images (N,H,W,C), as bytes where they are, and the file normalises them; else
    // what the first layer reads, images (N,C,H,W).
    bool preprocess;
    const char *const *metadata; // key, value, …, NULL
    const char *version;         // of dtrain
    // The value of a PARAM or BUFFER, dense, for as long as the call; NULL: there is none.
    const float *(*tensor)(void *ctx, const char *name, const dt_shape *shape);
    void (*declare)(void *ctx, const dt_onnx_declared *d); // each input, then each output; may be NULL
    void *ctx;
} dt_onnx_opts;

// g, other: the same network for evaluation, f32, built for different numbers of samples, before a plan changes it. The
// file is written whole or not at all. DT_E_USAGE for what cannot be exported, DT_E_CKPT for a tensor that is missing.
dt_status dt_onnx_export(const dt_graph *g, const dt_graph *other, const dt_onnx_opts *o, const char *path);
bool dt_onnx_has_form(dt_op op);

#endif
