// cnn1d.c: a convolutional network along time, after M5 (Dai et al., 2016): for waveforms, (1, samples, channels), and for
// signals that are rows of numbers (kind: vector). Four convolutions of model.width, width, 2 and 4 width channels, each
// with batch norm, ReLU and a max-pool of 4 as long as there is something to pool, then the mean over time. The first
// sees 80 samples, every fourth, where there are 2000 or more (10 ms of 8 kHz), else 9.
//
// Outputs: "logits" (N,K), "embedding" (N, 4 width).
#include "trunk.h"

enum { CNN1D_N_BLOCKS = 4, LONG = 2000 };

dt_features dt_trunk_cnn1d(const dt_trunk *t, dt_value x) {
    dt_graph *g = t->g;
    const int width = (int)t->keys->width;
    if (x != DT_NONE && dt_info_of(g, x)->shape.n == 2) // rows of numbers
        x = dt_reshape(g, x, dt_shape4(t->a->batch, 1, 1, -1));
    if (dt_trunk_dim(t, x, 2) != 1) {
        dt_graph_fail(g, "cnn1d wants a waveform (features: waveform) or a vector");
        return (dt_features){DT_NONE, DT_NONE};
    }
    for (int i = 0; i < CNN1D_N_BLOCKS; i++) {
        const bool coarse = i == 0 && dt_trunk_dim(t, x, 3) >= LONG;
        const int kernel = coarse ? 80 : i == 0 ? 9 : 3, out = width << (i > 1 ? i - 1 : 0);
        const dt_window w = {.kernel = {1, kernel},
                             .stride = {1, coarse ? 4 : 1},
                             .dilation = {1, 1},
                             .pad_begin = {0, kernel / 2},
                             .pad_end = {0, kernel / 2}};
        const dt_window pool = {.kernel = {1, 4}, .stride = {1, 4}, .dilation = {1, 1}};
        x = dt_conv2d(g, dt_arena_printf(&g->arena, "conv%d", i + 1), x, &(dt_conv2d_opts){.out = out, .window = &w});
        x = dt_relu(g, dt_batch_norm(g, dt_arena_printf(&g->arena, "bn%d", i + 1), x));
        if (dt_trunk_dim(t, x, 3) >= 8) x = dt_max_pool_window(g, x, &pool);
    }
    return (dt_features){x, dt_global_pool(g, x)};
}

void dt_model_build_cnn1d(dt_graph *g, const dt_model_args *a) {
    const dt_trunk t = {g, a, "model", &a->config->model.backbone};
    dt_value x = DT_NONE;
    int n = 0;
    for (int i = 0; i < a->n_fields; i++) {
        const dt_field_info *f = &a->fields[i];
        if (!f->is_image && !dt_model_is_numbers(a, f)) continue;
        if (n++ == 0) x = f->is_image ? dt_model_image(g, a, f) : dt_model_numbers(g, a, f);
    }
    if (n == 1)
        dt_model_classify(g, a, "fc1", dt_trunk_cnn1d(&t, x).pooled, NULL);
    else
        dt_graph_fail(g, "wants one waveform or vector beside its target in data.fields; there are %d", n);
}
