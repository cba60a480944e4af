// op_util.h: what the files of ops share: errors with the node's name and shapes, outputs by suffix.
//
// defines: dt_op_fail, dt_op_in_shape, dt_op_in_dtype, dt_op_has_in, dt_op_add_out, dt_op_shaped,
//          dt_op_add_stat, dt_op_same, dt_op_rows, dt_op_window_out, dt_op_window_square, dt_op_add_loss, dt_op_infer_pool,
//          dt_op_print_window, dt_op_print_act, dt_op_no_flops, dt_op_elements
#ifndef DT_GRAPH_OPS_OP_UTIL_H
#define DT_GRAPH_OPS_OP_UTIL_H

#include "graph/autodiff.h"
#include "graph/build.h"
#include "graph/ir.h"

// Records "<op> <node> on <input shapes>: text" as the graph's error; returns DT_E_USAGE.
dt_status dt_op_fail(dt_graph *g, dt_node_id id, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
bool dt_op_has_in(const dt_graph *g, dt_node_id id, int i);
dt_shape dt_op_in_shape(const dt_graph *g, dt_node_id id, int i);
dt_dtype dt_op_in_dtype(const dt_graph *g, dt_node_id id, int i);
// Makes output i as a TEMP named like the node (suffix NULL) or "<node>.<suffix>".
void dt_op_add_out(dt_graph *g, dt_node_id id, int i, const char *suffix, dt_dtype dtype, const dt_shape *shape);
// Output 0 in this shape, of input 0's dtype.
dt_status dt_op_shaped(dt_graph *g, dt_node_id id, const dt_shape *shape);
// Makes output i as a STAT (f32) with this name.
void dt_op_add_stat(dt_graph *g, dt_node_id id, int i, const char *name, const dt_shape *shape);
// Shape inference of elementwise ops: output 0 has the shape and dtype of input 0.
dt_status dt_op_same(dt_graph *g, dt_node_id id);
// The same of ops over the last dimension: x (…,D), at least one dimension.
dt_status dt_op_rows(dt_graph *g, dt_node_id id);
// Output size along dimension d (0 height, 1 width) of a window over n; 0 or less: does not fit.
int64_t dt_op_window_out(const dt_window *w, int d, int64_t n);
// Fills a square window.
dt_window dt_op_window_square(int kernel, int stride, int pad);
// The loss ops: out 0 "loss", out 1 "loss_weight"; checks weight (N) and sets g->loss.
dt_status dt_op_add_loss(dt_graph *g, dt_node_id id);
// For rows of ops: " 3x3/2 pad 1,1,1,1"; " relu", nothing of none; 0 FLOPs, of ops that only move elements.
void dt_op_print_window(const dt_window *w, FILE *out);
void dt_op_print_act(dt_activation act, FILE *out);
double dt_op_no_flops(const dt_graph *g, const dt_node *n);
double dt_op_sum_flops(const dt_graph *g, const dt_node *n);    // input elements for each output element
double dt_op_conv2d_flops(const dt_graph *g, const dt_node *n); // also of conv2d_int8
void dt_op_conv2d_print(const dt_node *n, FILE *out);
static inline double dt_op_elements(const dt_graph *g, dt_value v) {
    return (double)dt_shape_elements(&dt_info_of(g, v)->shape);
}
// (N,C,H,W) through attrs.pool.win: checks the window, leaves (N,C,H',W') in *y.
dt_status dt_op_infer_pool(dt_graph *g, dt_node_id id, dt_shape *y);

#endif
