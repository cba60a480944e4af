// time_nodes.h: how fast a backend's kernels are on the convolutions and linear layers of a graph, each alone on memory
// of its own. For choosing a precision, `dtrain check --kernels` and benches. On the CPU.
#ifndef DT_BACKEND_TIME_NODES_H
#define DT_BACKEND_TIME_NODES_H

#include "backend/backend.h"

// Nodes that ask for the same work.
typedef struct dt_node_group {
    const dt_node *node; // one of them
    int count;
    double flop; // of each
    char text[320];
} dt_node_group;

// Groups of conv2d and linear nodes, forward and backward, the most work first. Returns how many; *out on the heap.
int dt_node_groups(dt_node_group **out, const dt_graph *g);
// *out: seconds of the node's kernel while n_replicas of it run at once: the least of several runs, each the mean of the
// replicas. There are at least two runs after the first, more while they take less than `seconds` together.
dt_status dt_time_node(const dt_graph *g, const dt_node *n, dt_backend *b, int threads,
                       int n_replicas, double seconds, double *out);

#endif
