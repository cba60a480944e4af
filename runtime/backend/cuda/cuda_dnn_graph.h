// cuda_dnn_graph.h: a description as a finished graph of cuDNN operations. Internal to cuda_dnn.c, which finds engines
// and makes plans for it, and cuda_dnn_graph.c, which builds it.
//
// A tensor's id is its position in the caller's pointer array + 1. The ids after those are host scalars, passed by
// value. All descriptors of a graph live as long as the graph. The first failure stays in `status`; later calls do
// nothing.
#ifndef DT_BACKEND_CUDA_DNN_GRAPH_H
#define DT_BACKEND_CUDA_DNN_GRAPH_H

#include "backend/cuda/cuda_api.h"

#include <cudnn.h>

enum { DT_DNN_DQ32_ID = 10 }; // scratch of SDPA_BWD, absent from deterministic graphs
enum { DT_DNN_MAX_DESCRIPTORS = 96, DT_DNN_MAX_OPS = 20 };

typedef struct dt_dnn_graph {
    dt_dnn_desc desc;
    cudnnBackendDescriptor_t made[DT_DNN_MAX_DESCRIPTORS]; // to destroy them
    int n_made;
    cudnnBackendDescriptor_t ops[DT_DNN_MAX_OPS];
    int n_ops;
    cudnnBackendDescriptor_t graph;
    int64_t next_virtual;
    int n_ptr;     // caller's pointers; ids 1 … n_ptr
    int n_scalars; // host scalars, passed by value: ids n_ptr+1 (scale) and n_ptr+2 (one)
    cudnnStatus_t status;
} dt_dnn_graph;

// *g must be zeroed; handle NULL: no device. Call destroy after a failure too.
cudnnStatus_t dt_dnn_graph_build(dt_dnn_graph *g, const dt_dnn_desc *d, cudnnHandle_t handle);
void dt_dnn_graph_destroy(dt_dnn_graph *g); // destroys the descriptors, does not free g

// Keeps cuDNN's text for a failure, with what was being done, for dt_cudnn_last_error. Returns s.
cudnnStatus_t dt_dnn_note(cudnnStatus_t s, const char *doing);
void dt_dnn_note_text(const char *text); // for a failure that is not cuDNN's

#endif
