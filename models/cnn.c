// cnn.c: a small convolutional network, numbered as nn.Sequential would:
//   0..15   4 x (conv 3x3 no bias, BN, ReLU, max-pool 2): 32, 64, 128, 256 channels
//   16, 17  global average pool, flatten           (N,256)
//   18..20  linear 384, ReLU, linear 256           (N,256)
// The head of the model is fc.
#include "trunk.h"

enum { EMBEDDING = 256, HIDDEN = 384, N_BLOCKS = 4 };

static const char *cnn_numbered(const dt_trunk *t, int i) {
    return dt_arena_printf(&t->g->arena, "%d", i);
}

dt_features dt_trunk_cnn(const dt_trunk *t, dt_value x) {
    static const int channels[N_BLOCKS] = {32, 64, 128, 256};
    dt_graph *g = t->g;
    for (int b = 0; b < N_BLOCKS; b++) {
        const dt_conv2d_opts conv = {.out = channels[b], .kernel = 3, .pad = 1};
        x = dt_conv2d(g, cnn_numbered(t, 4 * b), x, &conv);
        x = dt_batch_norm(g, cnn_numbered(t, 4 * b + 1), x);
        x = dt_max_pool(g, dt_relu(g, x), 2, 2, 0);
    }
    dt_value y = dt_relu(g, dt_linear(g, cnn_numbered(t, 18), dt_global_pool(g, x), HIDDEN, true));
    return (dt_features){x, dt_linear(g, cnn_numbered(t, 20), y, EMBEDDING, true)};
}

void dt_model_build_cnn(dt_graph *g, const dt_model_args *a) {
    dt_model_classify(g, a, "fc", dt_model_trunk(g, a, dt_trunk_cnn).pooled, NULL);
}
