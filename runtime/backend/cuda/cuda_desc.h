// cuda_desc.h: what nodes ask of cuDNN, and descriptions as text. Text is how plans are shared, how choices
// are kept in files, and how messages name a plan.
#ifndef DT_BACKEND_CUDA_DESC_H
#define DT_BACKEND_CUDA_DESC_H

#include "backend/cuda/cuda_api.h"
#include "graph/ir.h"

enum { DT_DESC_TEXT = 320, DT_NODE_DESCS = 2 };

// What the kernels demand of every engine.
typedef struct dt_cuda_demands {
    bool deterministic, tf32;
} dt_cuda_demands;

// The convolutions that node n (conv2d, forward or backward) needs: forward one, backward those of the
// gradients it makes. With DT_DNN_SDPA_* those of an sdpa node. Returns how many (0: another op).
// `sums` is a wish: without an engine the same description without it is asked for.
int dt_cuda_node_descs(const dt_graph *g, const dt_node *n, dt_cuda_demands demands,
                       dt_dnn_desc out[DT_NODE_DESCS]);
// What the one convolution behind a batch norm with ReLU would ask for if it applied the batch norm to x as it reads
// it, so that nobody writes what the batch norm gives: under fp16, where that has no other reader, no pool, no
// residual, and where the convolution makes sums itself (cuDNN has no other engines that are precompiled).
// `data` is a wish on top of that: the convolution's dgrad begins the batch norm's own backward, where nothing else
// reads what it gives.
typedef struct dt_cuda_normed {
    dt_dnn_desc forward, weights, data;
    bool has_weights, has_data;
} dt_cuda_normed;
// So many pixels of a batch norm in training are held by a block, which then does both passes in one kernel and reads
// them the second time from its cache.
enum { DT_BN_SMALL_PIXELS = 5120 };
bool dt_cuda_normed_of(const dt_graph *g, const dt_node *bn, dt_cuda_demands demands,
                       dt_cuda_normed *out);
// False for what cuDNN is not asked to do: the own kernels serve it.
bool dt_cuda_dnn_serves(const dt_dnn_desc *d);

// buf of DT_DESC_TEXT; returns buf.
const char *dt_gemm_desc_print(const dt_gemm_desc *d, char *buf);

#endif
