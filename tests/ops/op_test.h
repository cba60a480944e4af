// op_test.h: a row tests one op on the CPU backend through the graph's own builder.
//
// The row builds one forward node; the harness adds its backward node as ir.h describes it (all inputs
// and outputs saved, every gradient wanted), prepares both kernels, and runs them without plan or exec:
//   - forward against the row's fp64 reference;
//   - gradients against central differences of that same reference, at sampled elements;
//   - gradients of parameters overwriting, then adding;
//   - two replicas at once in two threads against one alone: the same bits;
//   - canaries behind outputs, packed copies and scratch; zero padding channels of BLOCKED outputs.
// Each in f32 and, where the ISA has it, bf16, with 1 and 2 threads.
#ifndef DT_TESTS_OPS_OP_TEST_H
#define DT_TESTS_OPS_OP_TEST_H

#include "backend/backend.h"
#include "graph/build.h"

// The reference's view: data[v] is value v of the graph, dense; it fills the node's outputs.
typedef struct op_data {
    const dt_graph *g;
    const dt_node *node;
    double **data;
} op_data;
static inline double *op_in(const op_data *d, int i) {
    return i < d->node->n_in && d->node->in[i] != DT_NONE ? d->data[d->node->in[i]] : NULL;
}
static inline double *op_out(const op_data *d, int i) {
    return d->data[d->node->out[i]];
}
static inline const dt_shape *op_in_shape(const op_data *d, int i) {
    return &d->g->values[d->node->in[i]].shape;
}
static inline const dt_shape *op_out_shape(const op_data *d, int i) {
    return &d->g->values[d->node->out[i]].shape;
}

typedef struct op_row {
    const char *name;
    const void *arg; // the row's own: sizes and attributes
    // Builds the node and returns its first output; activations come as inputs of type t.
    dt_value (*build)(dt_graph *g, dt_dtype t, const void *arg);
    void (*reference)(const op_data *d);
    bool forward_only;
    bool training;            // of the graph
    unsigned frozen;          // bits of inputs whose gradient nobody wants
    bool winograd;            // convolutions that can, do: with products in their type
    double tol_f32, tol_bf16; // of the largest magnitude of a tensor; 0: 2e-5, 1e-2
} op_row;

// Fails the running cmocka test on a difference, naming row, type, threads and tensor.
void op_row_check(const op_row *row);

#endif
