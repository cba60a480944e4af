// relu_bits.c: training graphs, for backends whose kernels support it (dt_backend.relu_bits). The gradient of
// batch_norm + residual + ReLU needs to know where y is above zero: one bit for each element, not the 16 or 32 of y.
//
//   batch_norm -> y;  batch_norm.bwd(…, y, …)   =>   batch_norm -> y, bits;  batch_norm.bwd(…, bits, …)
//
// and where y has two readers, their gradients' addition:
//
//   add(a, b) -> dy;  batch_norm.bwd(…, dy) -> …, dresidual   =>   batch_norm.bwd(…, a, b) -> …, dresidual
//
// with the bits of two kernels: dy is rounded to its type. Then y lives only as long as its other readers need it. Without a residual the kernel recomputes the mask from x, which
// it reads anyway, and with a pool the argmax holds it. The pass comes after mixed precision, which would keep a further
// output in f32, and after dead code.
#include "graph/passes/passes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { X = 0, RELU_BITS_RESIDUAL = 5, Y = 0, BITS = 3 };

static bool wants_bits(const dt_node *n) {
    return !n->dead && !n->backward && n->op == DT_OP_batch_norm && n->attrs.batch_norm.relu &&
           !n->attrs.batch_norm.pool && n->n_in > RELU_BITS_RESIDUAL && n->in[RELU_BITS_RESIDUAL] != DT_NONE &&
           n->n_out > BITS && n->out[BITS] == DT_NONE;
}

static dt_node *relu_bits_gradient_of(dt_graph *g, dt_node_id id) {
    for (dt_node_id k = id + 1; k < g->n_nodes; k++) {
        dt_node *n = &g->nodes[k];
        if (!n->dead && n->backward && n->forward == id) return n;
    }
    return NULL;
}

// The addition goes into the only reader of its sum, which writes the masked sum as the residual's gradient.
static void take_both(dt_graph *g, const dt_node_id *readers, dt_node *bwd) {
    const int at = bwd->n_fwd_in + bwd->n_fwd_out;
    const dt_value dy = bwd->in[at];
    if (dy == DT_NONE || readers[dy] != bwd - g->nodes || bwd->out[RELU_BITS_RESIDUAL] == DT_NONE) return;
    const dt_node_id made = g->values[dy].producer;
    dt_node *add = made == DT_NONE ? NULL : &g->nodes[made];
    if (!add || !dt_graph_adds_alike(g, add)) return;
    dt_value *in = dt_arena_alloc(&g->arena, (size_t)(bwd->n_in + 1) * sizeof *in);
    memcpy(in, bwd->in, (size_t)bwd->n_in * sizeof *in);
    in[at] = add->in[0];
    in[bwd->n_in++] = add->in[1];
    bwd->in = in;
    add->dead = true;
}

dt_status dt_pass_relu_bits(dt_graph *g) {
    DT_TRY(dt_graph_check(g));
    dt_node_id *readers = dt_graph_sole_readers(g);
    for (dt_node_id id = 0; id < g->n_nodes && g->status == DT_OK; id++) {
        dt_node *n = &g->nodes[id], *bwd = wants_bits(n) ? relu_bits_gradient_of(g, id) : NULL;
        if (!bwd || bwd->in[bwd->n_fwd_in + Y] == DT_NONE) continue;
        char name[512];
        snprintf(name, sizeof name, "%s.bits", n->name);
        const dt_shape *x = &g->values[n->in[X]].shape;
        const dt_shape s = dt_shape2(dt_shape_elements(x) / x->d[1], (x->d[1] + 7) / 8);
        const dt_value bits = dt_graph_add_value(g, DT_V_TEMP, name, DT_U8, &s);
        if (bits == DT_NONE) break;
        dt_graph_set_out(g, n, BITS, bits);
        bwd->in[bwd->n_fwd_in + Y] = DT_NONE;
        bwd->in[bwd->n_fwd_in + BITS] = bits;
        take_both(g, readers, bwd);
    }
    free(readers);
    return dt_graph_check(g);
}
