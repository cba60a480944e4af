// small_nets.c: small networks: CNNs of images, sequences and spectrograms, an MLP, a small transformer.

#include "models.h"

// ---- cnn ----------------------------------------------------------------------------------------------------------

// A small convolutional network, numbered as nn.Sequential would:
//   0..15   4 x (conv 3x3 no bias, BN, ReLU, max-pool 2): 32, 64, 128, 256 channels
//   16, 17  global average pool, flatten           (N,256)
//   18..20  linear 384, ReLU, linear 256           (N,256)
// The head of the model is fc.

enum { EMBEDDING = 256, HIDDEN = 384, N_BLOCKS = 4 };

// A submodule's number, as nn.Sequential would give it.
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
        // the submodules of ReLU (4b + 2) and pooling (4b + 3) have numbers, but no parameters
        x = dt_max_pool(g, dt_relu(g, x), 2, 2, 0);
    }
    dt_value y = dt_relu(g, dt_linear(g, cnn_numbered(t, 18), dt_global_pool(g, x), HIDDEN, true));
    return (dt_features){x, dt_linear(g, cnn_numbered(t, 20), y, EMBEDDING, true)};
}

void dt_model_build_cnn(dt_graph *g, const dt_model_args *a) {
    dt_model_classify(g, a, "fc", dt_model_trunk(g, a, dt_trunk_cnn).pooled, NULL);
}

// ---- cnn1d --------------------------------------------------------------------------------------------------------

// A convolutional network along time, after M5 (Dai et al., 2016): for waveforms, (1, samples, channels), and for
// signals that are rows of numbers (kind: vector). Four convolutions of model.width, width, 2 and 4 width channels, each
// with batch norm, ReLU and a max-pool of 4 as long as there is something to pool, then the mean over time. The first
// sees 80 samples, every fourth, where there are 2000 or more (10 ms of 8 kHz), else 9.
//
// Outputs: "logits" (N,K), "embedding" (N, 4 width).

enum { CNN1D_N_BLOCKS = 4, LONG = 2000 }; // samples

dt_features dt_trunk_cnn1d(const dt_trunk *t, dt_value x) {
    dt_graph *g = t->g;
    const int width = (int)t->keys->width;
    if (x != DT_NONE && dt_info_of(g, x)->shape.n == 2) // rows of numbers
        x = dt_reshape(g, x, dt_shape4(t->a->batch, 1, 1, -1));
    // H is 1 for waveforms and rows; spectrograms have more
    if (dt_trunk_dim(t, x, 2) != 1) {
        dt_graph_fail(g, "cnn1d wants a waveform (features: waveform) or a vector");
        return (dt_features){DT_NONE, DT_NONE};
    }
    for (int i = 0; i < CNN1D_N_BLOCKS; i++) {
        const bool coarse = i == 0 && dt_trunk_dim(t, x, 3) >= LONG;
        // M5: 80 samples at stride 4 in front, then 3; short rows of numbers get 9 at stride 1
        const int kernel = coarse ? 80 : i == 0 ? 9 : 3, out = width << (i > 1 ? i - 1 : 0);
        const dt_window w = {.kernel = {1, kernel},
                             .stride = {1, coarse ? 4 : 1},
                             .dilation = {1, 1},
                             // half the kernel on both sides: an odd kernel keeps the length at stride 1
                             .pad_begin = {0, kernel / 2},
                             .pad_end = {0, kernel / 2}};
        const dt_window pool = {.kernel = {1, 4}, .stride = {1, 4}, .dilation = {1, 1}};
        x = dt_conv2d(g, dt_arena_printf(&g->arena, "conv%d", i + 1), x, &(dt_conv2d_opts){.out = out, .window = &w});
        x = dt_relu(g, dt_batch_norm(g, dt_arena_printf(&g->arena, "bn%d", i + 1), x));
        // as long as something is left to pool
        if (dt_trunk_dim(t, x, 3) >= 8) x = dt_max_pool_window(g, x, &pool);
    }
    return (dt_features){x, dt_global_pool(g, x)};
}

void dt_model_build_cnn1d(dt_graph *g, const dt_model_args *a) {
    // not dt_model_trunk: the input may be numbers as well as a waveform
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

// ---- mlp ----------------------------------------------------------------------------------------------------------

// A multilayer perceptron: fields of numbers that are not targets, side by side, then two hidden layers.

dt_features dt_trunk_mlp(const dt_trunk *t, dt_value x) {
    const int64_t hidden = t->keys->hidden;
    x = dt_relu(t->g, dt_linear(t->g, "fc1", x, hidden, true));
    x = dt_relu(t->g, dt_linear(t->g, "fc2", x, hidden, true)); // the last hidden layer is the embedding
    return (dt_features){DT_NONE, x};
}

void dt_model_build_mlp(dt_graph *g, const dt_model_args *a) {
    const dt_trunk t = {g, a, "model", &a->config->model.backbone};
    dt_value parts[DT_MAX_FIELDS];
    int n = 0;
    for (int i = 0; i < a->n_fields; i++)
        if (dt_model_is_numbers(a, &a->fields[i])) parts[n++] = dt_model_numbers(g, a, &a->fields[i]);
    if (n == 0) {
        dt_graph_fail(g,
                      "wants fields of numbers (kind: vector or real) in data.fields beside its "
                      "target, %s; there are none. To predict a class of them, add it: label: "
                      "{kind: class}",
                      a->targets->items[0].field->name);
        return;
    }
    const dt_features f = dt_trunk_mlp(&t, n > 1 ? dt_concat(g, parts, n, 1) : parts[0]);
    dt_model_classify(g, a, "fc3", f.pooled, NULL);
}

// ---- audio cnn ----------------------------------------------------------------------------------------------------

// Cnn10 of PANNs (Kong et al., 2020) on spectrograms, with its names: a batch norm of frequencies, four blocks
// of two 3x3 convolutions and an average pool, the mean over frequencies, the sum of the largest and the mean over
// time, a hidden layer. Spectrograms are (frequency, time) here and (time, frequency) there: turned first.
//
// Outputs: "logits" (N,K), "embedding" (N,512): the hidden layer.

// Convolution without bias, batch norm, ReLU: half of a PANNs ConvBlock.
static dt_value conv_norm(const dt_trunk *t, const char *module, int i, dt_value x, int out) {
    const dt_conv2d_opts conv = {.out = out, .kernel = 3, .pad = 1};
    x = dt_conv2d(t->g, dt_arena_printf(&t->g->arena, "%s.conv%d", module, i), x, &conv);
    return dt_relu(t->g, dt_batch_norm(t->g, dt_arena_printf(&t->g->arena, "%s.bn%d", module, i), x));
}

// (N,C,T,F) -> (N,C): mean over F, then max + mean over T
static dt_value audio_cnn_pool(const dt_trunk *t, dt_value x) {
    if (x == DT_NONE) return DT_NONE;
    const dt_shape s = dt_info_of(t->g, x)->shape;
    const dt_window across = {.kernel = {1, (int)s.d[3]}, .stride = {1, 1}, .dilation = {1, 1}}; // all of F
    const dt_window along = {.kernel = {(int)s.d[2], 1}, .stride = {1, 1}, .dilation = {1, 1}};  // all of T
    x = dt_avg_pool_window(t->g, x, &across, false);
    // (N,C,1,1)
    const dt_value largest = dt_adaptive_pool(t->g, x, 1, 1, true);
    x = dt_add(t->g, largest, dt_avg_pool_window(t->g, x, &along, false));
    return dt_reshape(t->g, x, dt_shape2(s.d[0], s.d[1]));
}

dt_features dt_trunk_audio_cnn(const dt_trunk *t, dt_value x) {
    static const int turned[4] = {0, 1, 3, 2}, by_frequency[4] = {0, 3, 2, 1}; // each is its own inverse
    dt_graph *g = t->g;
    if (dt_trunk_dim(t, x, 1) != 1) {
        dt_graph_fail(g, "audio_cnn needs audio of one channel");
        return (dt_features){DT_NONE, DT_NONE};
    }
    // bn0 normalises by frequency, which has to be the channel
    x = dt_transpose(g, dt_transpose(g, x, turned), by_frequency); // (N,F,T,1)
    x = dt_transpose(g, dt_batch_norm(g, "bn0", x), by_frequency);
    for (int i = 1; i <= 4; i++) {
        const char *module = dt_arena_printf(&g->arena, "conv_block%d", i);
        x = conv_norm(t, module, 1, x, 32 << i); // 64, 128, 256, 512 channels
        x = dt_avg_pool(g, conv_norm(t, module, 2, x, 32 << i), 2, 2, 0);
    }
    return (dt_features){x, dt_relu(g, dt_linear(g, "fc1", audio_cnn_pool(t, x), 512, true))};
}

void dt_model_build_audio_cnn(dt_graph *g, const dt_model_args *a) {
    // PANNs' name of its head
    dt_model_classify(g, a, "fc_audioset", dt_model_trunk(g, a, dt_trunk_audio_cnn).pooled, NULL);
}

// ---- ast tiny -----------------------------------------------------------------------------------------------------

// The Audio Spectrogram Transformer (Gong et al., 2021), tiny: a ViT-Ti on a spectrogram of one channel, with
// patches of 16x16 that overlap by 6. What the last places of a side leave over is not seen.
//
// Outputs: "logits" (N,K), "embedding" (N,192).

dt_features dt_trunk_ast_tiny(const dt_trunk *t, dt_value x) {
    const dt_vit_form form = {.dim = 192,
                              .heads = 3,
                              .blocks = 12,
                              .patch = 16,
                              .stride = (int)dt_answer_or(t->keys->patch_stride, 10),
                              .mean = t->keys->pool == DT_POOL_mean};
    return dt_vit_features(t, x, &form);
}

void dt_model_build_ast_tiny(dt_graph *g, const dt_model_args *a) {
    dt_model_classify(g, a, "heads.head", dt_model_trunk(g, a, dt_trunk_ast_tiny).pooled, &(dt_init){DT_INIT_ZERO, 0});
}
