// ir.h: the static graph. Builders (models/) make it, autodiff and passes rewrite it, plans run it.
//
// A graph is a list of values and a list of nodes in execution order. A value is a tensor with a name,
// an element type and a logical shape; a node applies an op to values. Ids are indices and stay valid;
// a removed node is marked dead and skipped. Everything lives in the graph's arena.
//
// Kinds of values
//   INPUT   fed from a batch (u8 images (N,H,W,C), i32 labels (N), f32 weights (N))
//   PARAM   trained unless `frozen`; f32 always (backends keep low-precision packed copies); has `init` and `decay`
//   BUFFER  saved but not trained (batch-norm running statistics); f32
//   CONST   data known at build time
//   TEMP    an activation or its gradient
//   GRAD    gradient of parameter `param`: its node adds into the gradient buffer
//   STAT    a sum over micro-batches (loss, weights, batch statistics): stored after the gradients in
//           the same flat buffer, and accumulated and reduced with them by the same tree
//
// A backward node carries the same op with `backward` set, and positional inputs:
//   in  = [forward inputs (n_fwd_in)] [forward outputs (n_fwd_out)] [gradients of forward outputs]
//   out = gradients of the forward inputs
// with DT_NONE where a tensor is not needed (or has no gradient). So an op has one file here and one in each
// backend. If the gradient of an op consists of other ops (reshape, transpose, concat, …), it emits those.
//
// Building: a failing call records the error (node name, shapes) and returns DT_NONE; later calls do nothing, and
// dt_graph_check returns the first error. So builders read like equations.
//
// Random numbers and initial values depend on names alone, so passes keep the names.
#ifndef DT_GRAPH_IR_H
#define DT_GRAPH_IR_H

#include "base/core.h"
#include "graph/attrs.h"

#include <stdio.h>

typedef int32_t dt_value; // index into graph->values
typedef int32_t dt_node_id;
enum { DT_NONE = -1 };

typedef enum dt_op {
#define OP(id, ...) DT_OP_##id,
#include "graph/ops.def"
#undef OP
    DT_OP_COUNT
} dt_op;

typedef enum dt_value_kind {
    DT_V_INPUT,
    DT_V_PARAM,
    DT_V_BUFFER,
    DT_V_CONST,
    DT_V_TEMP,
    DT_V_GRAD,
    DT_V_STAT
} dt_value_kind;

typedef enum dt_init_kind {
    DT_INIT_ZERO,
    DT_INIT_CONSTANT,
    DT_INIT_NORMAL,
    DT_INIT_UNIFORM,
    DT_INIT_DATA
} dt_init_kind;
// CONSTANT: `scale`. NORMAL: mean 0, standard deviation `scale`. UNIFORM: in [-scale, scale]. DATA: the value's data,
// which inference graphs leave out.
typedef struct dt_init {
    dt_init_kind kind;
    float scale;
} dt_init;

typedef struct dt_value_info {
    const char *name; // unique; PARAM and BUFFER: the checkpoint's tensor name ("iris.0.weight")
    dt_value_kind kind;
    dt_dtype dtype;
    dt_shape shape;
    dt_node_id producer; // DT_NONE for INPUT, PARAM, BUFFER, CONST
    int out_index;       // of producer
    dt_value param;      // GRAD: the PARAM value it is the gradient of
    dt_init init;        // PARAM, BUFFER
    bool decay;          // PARAM: weight decay applies (false: norms, biases)
    bool frozen;         // PARAM: gets no gradient
    bool teacher;        // PARAM, BUFFER: of the network that teaches this one (models/distil.c)
    const void *data;    // CONST, and PARAM and BUFFER whose init is DATA: dense, in the arena
} dt_value_info;

typedef struct dt_node {
    dt_op op;
    bool backward;
    bool dead;
    const char *name; // unique among forward nodes; backward nodes are "<forward>.bwd"
    int n_in, n_out;
    int n_fwd_in, n_fwd_out; // backward nodes: how `in` is divided
    dt_value *in, *out;
    dt_attrs attrs;
    dt_node_id forward; // backward nodes: the forward node, or DT_NONE of one that adds up a parameter's
                        // gradient; copies (passes/recompute.c): what they copy
    int stage;          // of dt_graph_share
} dt_node;

// Commit rule of a BUFFER: buffer = (1 - momentum) * buffer + momentum * stat / n_micro_batches.
typedef struct dt_buffer_update {
    dt_value buffer, stat;
    float momentum;
} dt_buffer_update;

typedef struct dt_named_output {
    const char *name;
    dt_value value;
} dt_named_output;

// What timm calls a module, or a tensor, of this network.
typedef struct dt_alias {
    const char *ours, *timms;
    dt_shape shape; // of a tensor, where timm's has dimensions of 1 more or less; n < 0: the same
    bool scoped;    // in dt_graph_scope: of an encoder
} dt_alias;

typedef struct dt_graph {
    dt_arena arena;
    const char *name;
    bool training;
    bool drops;         // dropout is active: in training, and where passes are samples (dtrain predict --mc)
    bool sync_bn;       // batch norms take the statistics of all ranks; before building
    bool adds_branches; // dt_add_branch makes one node; before building
    bool (*is_frozen)(const void *ctx, const char *name); // of dt_graph_freeze
    const void *frozen_ctx;
    dt_value_info *values;
    int n_values, cap_values;
    dt_node *nodes; // execution order
    int n_nodes, cap_nodes;
    dt_buffer_update *updates;
    int n_updates, cap_updates;
    dt_named_output *outputs; // what evaluation and inference read ("logits", "embedding")
    int n_outputs, cap_outputs;
    dt_alias *aliases;
    int n_aliases, cap_aliases;
    dt_value loss, loss_weight; // STAT scalars, DT_NONE before a loss is added
    dt_value *grads;            // GRAD values in the order in which backward finishes them
    int n_grads, cap_grads;
    const char *note;  // a line of its builder for who trains it, or NULL
    const char *scope; // of dt_graph_scope
    struct {
        size_t bytes_before,
            bytes_after; // the most that live at once, as the pass counts; 0: it did not run
        double compute;  // multiple of the work
    } recompute;
    const char *twin;            // of dt_graph_share
    int stage, n_stages;         // of what is being built; begun so far
    bool teacher;                // what is being built is a teacher's network
    struct dt_name_table *names; // value and node names (internal)
    dt_status status;            // first build error
    char error[512];
} dt_graph;

// ---- life ------------------------------------------------------------------------------------------
dt_graph *dt_graph_create(const char *name, bool training);
void dt_graph_destroy(dt_graph *g);
// Before building: parameters for which this is true get no gradient. A batch norm whose scale and shift are frozen
// normalises with its running statistics, in training too, and leaves them as they are.
void dt_graph_freeze(dt_graph *g, bool (*is_frozen)(const void *ctx, const char *name), const void *ctx);
// While building: what names of parameters, buffers, constants and nodes begin with from here on ("iris."; "":
// nothing). Returns what it was.
const char *dt_graph_scope(dt_graph *g, const char *prefix);
// While building: timm's name of the module or tensor `ours`, in the present scope, and of a tensor timm's shape (NULL:
// the same). "" for both: timm's network of this kind has the same names.
void dt_graph_alias(dt_graph *g, const char *ours, const char *timms, const dt_shape *shape);
// timm's name of a parameter or buffer, in buf; by the longest alias that it begins with, so often its own. *shape:
// that in timm where it differs, else untouched; may be NULL.
const char *dt_graph_timms_name(const dt_graph *g, const char *name, char *buf, size_t cap, dt_shape *shape);
// Whether timm has the whole network, and not only an encoder of it.
bool dt_graph_is_timms(const dt_graph *g);
// While building, until it is NULL: a parameter that exists is taken again instead of made, and buffers and constants
// get this prefix: the same weights are used twice, with running statistics of each use. Each use is a stage: its
// backward comes right behind its forward, in front of the next use's (autodiff.c), so that activations of one use live
// at a time.
void dt_graph_share(dt_graph *g, const char *prefix);
dt_status dt_graph_check(const dt_graph *g); // first build error, as DT_E_USAGE
// Records a build error (keeps the first) and returns DT_NONE.
dt_value dt_graph_fail(dt_graph *g, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
// Readable text: a line a node with shapes and dtypes; parameters and outputs. (`check --graph`)
void dt_graph_print(const dt_graph *g, FILE *out);
// A line a forward node: shape, parameters, and for a sample FLOPs and bytes of results; then their sums.
void dt_graph_print_costs(const dt_graph *g, FILE *out);
// FLOPs of a node: two for a multiplication with its addition, about one an element elsewhere; backward the same again
// for each gradient, of data and of weights.
double dt_node_flops(const dt_graph *g, const dt_node *n);
void dt_graph_write_dot(const dt_graph *g, FILE *out); // forward, for Graphviz
int64_t dt_graph_samples(const dt_graph *g);           // the first dimension of its inputs; without any 1
int64_t dt_graph_count_params(const dt_graph *g);      // elements of all PARAM values

// ---- the low level, for ops and passes -------------------------------------------------------------
dt_value dt_graph_add_value(dt_graph *g, dt_value_kind kind, const char *name, dt_dtype dtype, const dt_shape *shape);
// Makes v output i of the node; v DT_NONE: nothing.
void dt_graph_set_out(dt_graph *g, dt_node *n, int i, dt_value v);
// Appends a node with room for n_in inputs (copied) and n_out outputs (DT_NONE). Runs no inference.
dt_node *dt_graph_add_node(dt_graph *g, dt_op op, const char *name, const dt_value *in, int n_in, int n_out,
                           const dt_attrs *attrs);
// Forward node through its op's inference; returns out[0] (others through the producer).
dt_value dt_graph_apply(dt_graph *g, dt_op op, const char *name, const dt_value *in, int n_in, const dt_attrs *attrs);
// `name` made unique in the graph ("relu", "relu.1", …); NULL: from the op.
const char *dt_graph_unique_name(dt_graph *g, const char *name);
// Gives a node another name and frees the old one for other nodes. For passes that move nodes.
void dt_graph_rename_node(dt_graph *g, dt_node_id id, const char *name);
// Exchanges the names of two values: the result of a merged node has the name of the chain's first node.
void dt_graph_swap_value_names(dt_graph *g, dt_value a, dt_value b);
void dt_graph_add_update(dt_graph *g, dt_value buffer, dt_value stat, float momentum);
void dt_graph_add_grad(dt_graph *g, dt_value grad); // appends to g->grads
void dt_graph_add_output(dt_graph *g, const char *name, dt_value v);
// New execution order: order[i] is the node that comes i-th. Node ids change (the graph's own
// references follow); value ids do not. For passes that add nodes in the middle.
void dt_graph_permute_nodes(dt_graph *g, const dt_node_id *order);
// Readers of each value: live nodes' inputs plus graph outputs. reader[v] = the only reading node, or
// DT_NONE when there is none, several, or v is a graph output. Heap array of n_values, caller frees.
dt_node_id *dt_graph_sole_readers(const dt_graph *g);
// The only reader of v if it is a live forward node of this op, else NULL. `readers`: dt_graph_sole_readers.
dt_node *dt_graph_reader(dt_graph *g, const dt_node_id *readers, dt_value v, dt_op op);
// Whether the node is a live addition of two activations of one shape and type.
bool dt_graph_adds_alike(const dt_graph *g, const dt_node *n);
dt_value dt_graph_find(const dt_graph *g, const char *name);        // by value name, or DT_NONE
dt_node_id dt_graph_find_node(const dt_graph *g, const char *name); // live or dead, or DT_NONE
// The node as it was built, whose name random numbers depend on: that of a backward node or of a copy.
static inline const dt_node *dt_graph_origin(const dt_graph *g, const dt_node *n) {
    while (n->forward != DT_NONE) n = &g->nodes[n->forward];
    return n;
}
static inline const dt_value_info *dt_info_of(const dt_graph *g, dt_value v) {
    return &g->values[v];
}

typedef dt_status (*dt_pass)(dt_graph *g); // a rewrite of the graph (passes/passes.h)

// ---- ops as data -----------------------------------------------------------------------------------
typedef enum dt_amp { DT_AMP_LOW, DT_AMP_LOW_OUT, DT_AMP_FOLLOW, DT_AMP_FULL } dt_amp;
struct dt_grad_ctx;
// What an op is beyond its line of ops.def: a row beside its functions in graph/ops/, through DT_OP_DEFINE.
typedef struct dt_op_rules {
    // Checks inputs, creates the outputs of node `id` (indices: the node array may move).
    // On error calls dt_graph_fail and returns its status.
    dt_status (*infer)(dt_graph *g, dt_node_id id);
    // Emits backward nodes (see autodiff.h). NULL: no gradient.
    dt_status (*grad)(struct dt_grad_ctx *ctx, dt_node_id id);
    // Of dt_grad_saved, bit i for input or output i: tensors that the backward node reads, inputs that get no gradient.
    uint32_t save_in, save_out, no_grad;
    // FLOPs of an element of output 0. NULL: 1.
    double (*flops)(const dt_graph *g, const dt_node *n);
    double backward_flops; // FLOPs of backward, in those of forward; 0: 1 for each gradient, of data and of weights
    // Prints " word" for each attribute that is not at its default. NULL: the op has none to show.
    void (*print)(const dt_node *n, FILE *out);
} dt_op_rules;
#define DT_OP_DEFINE(id, ...) const dt_op_rules dt_op_rules_##id = {__VA_ARGS__}
// A line of ops.def.
typedef struct dt_op_def {
    const char *name;
    int min_in, max_in, n_out;
    dt_amp amp;
    const dt_op_rules *rules;
} dt_op_def;
const dt_op_def *dt_op_get(dt_op op);
const char *dt_op_name(dt_op op);

#endif
