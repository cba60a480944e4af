// time_nodes.h: how fast a backend's kernels are on the convolutions and linear layers of a graph, each alone on memory
// of its own, for choosing a precision. On the CPU.
#ifndef DT_BACKEND_TIME_NODES_H
#define DT_BACKEND_TIME_NODES_H

#include "backend/backend.h"

// Nodes with the same work.
typedef struct dt_node_group {
    const dt_node *node; // one of them
    int count;
    double flop; // of each
    char text[320];
} dt_node_group;

// Groups of conv2d and linear nodes, forward and backward, the most work first. Returns how many; *out on the heap.
int dt_node_groups(dt_node_group **out, const dt_graph *g);
// "conv2d gradients (2,32,12,16) x (64,32,3,3) to (2,64,12,16), stride 1 pad 1,1", "softmax backward (8,10)"
void dt_node_describe(const dt_graph *g, const dt_node *n, char *text, size_t cap);
// *out: seconds of the node's kernel while n_replicas of it run at once: the lesser of two runs after a first, each the
// mean of the replicas.
dt_status dt_time_node(const dt_graph *g, const dt_node *n, dt_backend *b, int threads, int n_replicas, double *out);

#endif
