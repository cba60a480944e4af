// cuda_desc.h: what nodes request of cuDNN, and descriptions as text. Plans are shared by text, files keep choices by
// text, and messages name plans by it.
#ifndef DT_BACKEND_CUDA_DESC_H
#define DT_BACKEND_CUDA_DESC_H

#include "backend/choices.h"
#include "backend/cuda/cuda_api.h"
#include "graph/ir.h"

enum { DT_DESC_TEXT = DT_CHOICE_TEXT, DT_NODE_DESCS = 2 };

// What the backend demands of every engine.
typedef struct dt_cuda_demands {
    bool deterministic, tf32;
    bool unsummed; // no sums: device.fp16_sums is false
} dt_cuda_demands;

// The descriptions that node n needs: one for a forward conv2d or an sdpa node; for a backward conv2d one for each
// gradient that it makes. Returns how many (0: another op). `sums` is a wish: if there is no engine, the caller asks
// for the same description without it.
int dt_cuda_node_descs(const dt_graph *g, const dt_node *n, dt_cuda_demands demands, dt_dnn_desc out[DT_NODE_DESCS]);
// What the convolution behind a batch norm with ReLU asks for if it is to apply the batch norm as it reads x, so that
// nothing writes the batch norm's output. Only under fp16, without pool or residual, if that output has no other
// reader and the convolution makes sums itself (cuDNN has no other precompiled engines).
// Engines that also begin the batch norm's backward pass in the convolution's dgrad are not used: on an H200 (cuDNN 9.19)
// they gave other sums from run to run, though none has the note.
typedef struct dt_cuda_normed {
    dt_dnn_desc forward, weights;
    bool has_weights;
} dt_cuda_normed;
// A batch norm in training with at most so many pixels runs as one kernel: a block keeps the pixels of its channels in
// its cache for the second pass.
enum { DT_BN_SMALL_PIXELS = 5120 };
bool dt_cuda_normed_of(const dt_graph *g, const dt_node *bn, dt_cuda_demands demands, dt_cuda_normed *out);
static inline bool dt_cuda_is_attention(const dt_dnn_desc *d) {
    return d->kind == DT_DNN_SDPA_FWD || d->kind == DT_DNN_SDPA_BWD;
}
// Why cuDNN is not queried for a node, which is attention in some forms; NULL: cuDNN is queried.
const char *dt_cuda_dnn_refuses(const dt_dnn_desc *d);

// buf of DT_DESC_TEXT; returns buf.
const char *dt_gemm_desc_print(const dt_gemm_desc *d, char *buf);

#endif
