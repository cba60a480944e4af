// audio_cnn.c: Cnn10 of PANNs (Kong et al., 2020) on spectrograms, with its names: a batch norm of frequencies, four blocks
// of two 3x3 convolutions and an average pool, the mean over frequencies, the sum of the largest and the mean over
// time, a hidden layer. Spectrograms are (frequency, time) here and (time, frequency) there: turned first.
//
// Outputs: "logits" (N,K), "embedding" (N,512): the hidden layer.
#include "trunk.h"

static dt_value conv_norm(const dt_trunk *t, const char *module, int i, dt_value x, int out) {
    const dt_conv2d_opts conv = {.out = out, .kernel = 3, .pad = 1};
    x = dt_conv2d(t->g, dt_arena_printf(&t->g->arena, "%s.conv%d", module, i), x, &conv);
    return dt_relu(t->g, dt_batch_norm(t->g, dt_arena_printf(&t->g->arena, "%s.bn%d", module, i), x));
}

// (N,C,T,F) -> (N,C): mean over F, then max + mean over T
static dt_value audio_cnn_pool(const dt_trunk *t, dt_value x) {
    if (x == DT_NONE) return DT_NONE;
    const dt_shape s = dt_info_of(t->g, x)->shape;
    const dt_window across = {.kernel = {1, (int)s.d[3]}, .stride = {1, 1}, .dilation = {1, 1}};
    const dt_window along = {.kernel = {(int)s.d[2], 1}, .stride = {1, 1}, .dilation = {1, 1}};
    x = dt_avg_pool_window(t->g, x, &across, false);
    const dt_value largest = dt_adaptive_pool(t->g, x, 1, 1, true);
    x = dt_add(t->g, largest, dt_avg_pool_window(t->g, x, &along, false));
    return dt_reshape(t->g, x, dt_shape2(s.d[0], s.d[1]));
}

dt_features dt_trunk_audio_cnn(const dt_trunk *t, dt_value x) {
    static const int turned[4] = {0, 1, 3, 2}, by_frequency[4] = {0, 3, 2, 1};
    dt_graph *g = t->g;
    if (dt_trunk_dim(t, x, 1) != 1) {
        dt_graph_fail(g, "audio_cnn wants sounds of one channel");
        return (dt_features){DT_NONE, DT_NONE};
    }
    x = dt_transpose(g, dt_transpose(g, x, turned), by_frequency); // (N,F,T,1)
    x = dt_transpose(g, dt_batch_norm(g, "bn0", x), by_frequency);
    for (int i = 1; i <= 4; i++) {
        const char *module = dt_arena_printf(&g->arena, "conv_block%d", i);
        x = conv_norm(t, module, 1, x, 32 << i);
        x = dt_avg_pool(g, conv_norm(t, module, 2, x, 32 << i), 2, 2, 0);
    }
    return (dt_features){x, dt_relu(g, dt_linear(g, "fc1", audio_cnn_pool(t, x), 512, true))};
}

void dt_model_build_audio_cnn(dt_graph *g, const dt_model_args *a) {
    dt_model_classify(g, a, "fc_audioset", dt_model_trunk(g, a, dt_trunk_audio_cnn).pooled, NULL);
}
