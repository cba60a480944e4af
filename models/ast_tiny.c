// ast_tiny.c: the Audio Spectrogram Transformer (Gong et al., 2021), tiny: a ViT-Ti on a spectrogram of one channel, with
// patches of 16x16 that overlap by 6. What the last places of a side leave over is not seen.
//
// Outputs: "logits" (N,K), "embedding" (N,192).
#include "trunk.h"

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
