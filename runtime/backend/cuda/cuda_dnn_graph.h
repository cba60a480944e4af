// cuda_dnn_graph.h: a description as a finished graph of cuDNN's operations. Between cuda_dnn.c, which has engines
// chosen and plans made for it, and cuda_dnn_graph.c, which builds it; for nobody else.
//
// Ids are positions in the caller's pointer array + 1; behind them come the host scalars that go by value. All
// descriptors of a graph live as long as it does. The first failure stays in `status`; what is called after it
// does nothing.
#ifndef DT_BACKEND_CUDA_DNN_GRAPH_H
#define DT_BACKEND_CUDA_DNN_GRAPH_H

#include "backend/cuda/cuda_api.h"

#include <cudnn.h>

enum { DT_DNN_DQ32_ID = 10 }; // SDPA_BWD's scratch, which deterministic graphs lack
enum { DT_DNN_MAX_DESCRIPTORS = 96, DT_DNN_MAX_OPS = 20 };

typedef struct dt_dnn_graph {
    dt_dnn_desc desc;
    cudnnBackendDescriptor_t made[DT_DNN_MAX_DESCRIPTORS]; // everything, to be destroyed in the end
    int n_made;
    cudnnBackendDescriptor_t ops[DT_DNN_MAX_OPS];
    int n_ops;
    cudnnBackendDescriptor_t graph;
    int64_t next_virtual;
    int n_ptr;     // caller's pointers; ids 1 … n_ptr
    int n_scalars; // host scalars, passed by value: ids n_ptr+1 (scale) and n_ptr+2 (one)
    uint64_t hash; // of all that the descriptors were told
    cudnnStatus_t status;
} dt_dnn_graph;

// *g zeroed; handle NULL without a device. Destroyed either way.
cudnnStatus_t dt_dnn_graph_build(dt_dnn_graph *g, const dt_dnn_desc *d, cudnnHandle_t handle);
void dt_dnn_graph_destroy(dt_dnn_graph *g); // what it has made, not g

// Keeps what cuDNN says of a failure, with what was being done, for dt_cudnn_last_error; returns s.
cudnnStatus_t dt_dnn_note(cudnnStatus_t s, const char *doing);
void dt_dnn_note_text(const char *text); // of a failure that is not cuDNN's

#endif
