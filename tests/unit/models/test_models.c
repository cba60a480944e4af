// test_models.c: the networks that ship: parameter counts of torchvision's, names, outputs, passes.
#include "graph/activation_words.h"
#include "models/models.h"
#include "testing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *override; // of the config, KEY=VALUE

static dt_config *make_config(const char *model) {
    char text[1024];
    snprintf(text, sizeof text,
             "run: {name: t}\n"
             "data: {path: x.lmdb, fields: {image: {kind: image, size: [224, 224]},"
             " label: {kind: class, classes: 10}}}\n"
             "model: {%s}\n"
             "train: {global_batch: 2, micro_batch: 2}\n",
             model);
    dt_config *c = NULL;
    dt_status st = dt_config_parse(&c, "test.yaml", text, strlen(text), &override, override != NULL);
    must(st);
    return c;
}

static dt_field_info image_field(const char *name, int h, int w, int channels) {
    dt_field_info f = {.name = name, .sample_shape = dt_shape3(h, w, channels), .dtype = DT_U8, .is_image = true};
    for (int i = 0; i < channels; i++) f.std[i] = 1.0f;
    return f;
}

static dt_field_info class_field(const char *name, int classes) {
    return (dt_field_info){.name = name, .sample_shape = dt_shape0(), .dtype = DT_I32, .n_classes = classes};
}

// The graph of a model over these fields; the caller destroys it.
static dt_graph *make(const char *model, const dt_field_info *fields, int n_fields, bool training, dt_dtype low) {
    dt_config *c = make_config(model);
    dt_model_args a = {c, fields, n_fields, 2, training};
    dt_graph *g = NULL;
    dt_status st = dt_model_graph(&g, &a, low);
    dt_config_destroy(c);
    must(st);
    return g;
}

static dt_graph *make_photo(const char *model, int side, int classes, bool training, dt_dtype low) {
    dt_field_info f[2] = {image_field("image", side, side, 3), class_field("label", classes)};
    return make(model, f, 2, training, low);
}

static dt_graph *make_fusion(const char *fusion, bool training, dt_dtype low) {
    char model[64];
    snprintf(model, sizeof model, "name: fusion, fusion: %s, dropout: 0.1", fusion);
    dt_field_info f[3] = {image_field("fingerprint", 103, 96, 1), image_field("iris", 240, 320, 3),
                          class_field("subject", 45)};
    return make(model, f, 3, training, low);
}

static int count_op(const dt_graph *g, dt_op op, bool backward) {
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        n += !g->nodes[i].dead && g->nodes[i].op == op && g->nodes[i].backward == backward;
    }
    return n;
}

static dt_value output(const dt_graph *g, const char *name) {
    for (int i = 0; i < g->n_outputs; i++) {
        if (strcmp(g->outputs[i].name, name) == 0) return g->outputs[i].value;
    }
    return DT_NONE;
}

// What every plan relies on.
static void check_graph(const dt_graph *g) {
    bool *made = calloc((size_t)g->n_values, 1);
    for (int v = 0; v < g->n_values; v++) {
        dt_value_kind k = g->values[v].kind;
        made[v] = k == DT_V_INPUT || k == DT_V_PARAM || k == DT_V_BUFFER || k == DT_V_CONST;
    }
    for (int id = 0; id < g->n_nodes; id++) {
        const dt_node *n = &g->nodes[id];
        for (int i = 0; i < n->n_in && !n->dead; i++) {
            if (n->in[i] != DT_NONE && !made[n->in[i]]) {
                fail_msg("%s reads %s before it is made", n->name, g->values[n->in[i]].name);
            }
        }
        for (int i = 0; i < n->n_out && !n->dead; i++) {
            if (n->out[i] == DT_NONE) continue;
            made[n->out[i]] = true;
            if (g->values[n->out[i]].kind != DT_V_GRAD && n->out[i] != g->loss) { // several losses add
                assert_int_equal(g->values[n->out[i]].producer, id);
                assert_int_equal(g->values[n->out[i]].out_index, i);
            }
        }
        if (n->backward && n->forward != DT_NONE && !n->dead) {
            assert_true(g->nodes[n->forward].op == n->op);
            const int own = n->n_fwd_in + 2 * n->n_fwd_out; // and perhaps what a pass has merged in
            assert_in_range(n->n_in, own, own + 1);
        }
    }
    for (int i = 0; i < g->n_outputs; i++) assert_true(made[g->outputs[i].value]);
    free(made);
    int last = -1;
    for (int i = 0; i < g->n_grads; i++) {
        const dt_value_info *grad = &g->values[g->grads[i]];
        assert_true(dt_shape_equal(&grad->shape, &g->values[grad->param].shape));
        assert_true(grad->producer >= last);
        last = grad->producer;
    }
}

static void check_params(dt_graph *g, int64_t expected) {
    check_graph(g);
    assert_int_equal(dt_graph_count_params(g), expected);
    int n_params = 0;
    for (int v = 0; v < g->n_values; v++) n_params += g->values[v].kind == DT_V_PARAM;
    if (g->training) assert_int_equal(g->n_grads, n_params);
    dt_graph_destroy(g);
}

TEST(parameter_counts_are_torchvisions) {
    check_params(make_photo("name: resnet, depth: 18", 224, 1000, true, DT_F32), 11689512);
    check_params(make_photo("name: resnet, depth: 34", 224, 1000, true, DT_F32), 21797672);
    check_params(make_photo("name: resnet, depth: 50", 224, 1000, true, DT_F32), 25557032);
    check_params(make_photo("name: resnet, depth: 50", 224, 1000, false, DT_F32), 25557032);
    check_params(make_photo("name: resnet, depth: 101", 224, 1000, false, DT_F32), 44549160);
    check_params(make_photo("name: resnet, depth: 152", 224, 1000, false, DT_F32), 60192808);
    check_params(make_photo("name: resnet, depth: 50, width_per_group: 128", 224, 1000, true, DT_F32), 68883240);
    check_params(make_photo("name: resnet, depth: 50, groups: 32, width_per_group: 4", 224, 1000, true, DT_F32),
                 25028904);
    check_params(make_photo("name: convnext", 224, 1000, true, DT_F32), 28589128);
    check_params(make_photo("name: convnext, size: s", 224, 1000, false, DT_F32), 50223688);
    check_params(make_photo("name: convnext, size: b", 224, 1000, false, DT_F32), 88591464);
    check_params(make_photo("name: mobilenet_v3", 224, 1000, true, DT_F32), 5483032);
    check_params(make_photo("name: mobilenet_v3, size: s", 224, 1000, true, DT_BF16), 2542856);
    check_params(make_photo("name: efficientnet", 224, 1000, true, DT_F32), 5288548);
    check_params(make_photo("name: efficientnet, size: b1", 240, 1000, false, DT_F32), 7794184);
    check_params(make_photo("name: efficientnet, size: b2", 260, 1000, true, DT_F32), 9109994);
    check_params(make_photo("name: vit, size: l", 224, 1000, false, DT_F32), 304326632);
    check_params(make_photo("name: vit, patch: 32", 224, 1000, false, DT_F32), 88224232);
    check_params(make_photo("name: vit, size: ti", 224, 1000, false, DT_F32), 5717416); // timm's
    check_params(make_photo("name: vit, size: s", 224, 1000, false, DT_F32), 22050664);
    check_params(make_photo("name: vit, size: ti, pool: mean", 224, 1000, true, DT_F32),
                 5717416 - 2 * 192); // no class token and its position
    check_params(make_photo("name: vit", 224, 1000, true, DT_F32), 86567656);
    check_params(make_photo("name: vit", 224, 1000, true, DT_BF16), 86567656);
}

// What torchvision's constructors leave in their tensors.
TEST(initial_values_are_torchvisions) {
    static const struct {
        const char *model, *name;
        dt_init init;
    } cases[] = {
        {"name: mobilenet_v3", "features.0.0.weight", {DT_INIT_NORMAL, 0.117851f}}, // 2 / (16 x 9)
        {"name: mobilenet_v3", "features.4.block.2.fc1.bias", {DT_INIT_ZERO, 0}},
        {"name: mobilenet_v3", "features.4.block.2.fc2.bias", {DT_INIT_ZERO, 0}},
        {"name: mobilenet_v3", "classifier.0.weight", {DT_INIT_NORMAL, 0.01f}},
        {"name: mobilenet_v3", "classifier.0.bias", {DT_INIT_ZERO, 0}},
        {"name: mobilenet_v3", "classifier.3.weight", {DT_INIT_NORMAL, 0.01f}},
        {"name: mobilenet_v3", "classifier.3.bias", {DT_INIT_ZERO, 0}},
        {"name: efficientnet", "features.2.0.block.2.fc2.bias", {DT_INIT_ZERO, 0}},
        {"name: efficientnet", "classifier.1.weight", {DT_INIT_UNIFORM, 0.1f}}, // 1 / 100
        {"name: efficientnet", "classifier.1.bias", {DT_INIT_ZERO, 0}},
        {"name: convnext", "features.1.0.layer_scale", {DT_INIT_CONSTANT, 1e-6f}},
        {"name: convnext", "features.1.0.block.5.weight", {DT_INIT_NORMAL, 0.02f}},
        {"name: convnext", "classifier.2.weight", {DT_INIT_NORMAL, 0.02f}},
        {"name: convnext", "classifier.2.bias", {DT_INIT_ZERO, 0}},
        {"name: resnet", "fc.weight", {DT_INIT_UNIFORM, 0.0441942f}}, // 1 / 512
        {"name: resnet", "fc.bias", {DT_INIT_UNIFORM, 0.0441942f}},
        {"name: vit", "heads.head.weight", {DT_INIT_ZERO, 0}},
        {"name: vit", "encoder.pos_embedding", {DT_INIT_NORMAL, 0.02f}},
    };
    dt_graph *g = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (i == 0 || cases[i].model != cases[i - 1].model) {
            dt_graph_destroy(g);
            g = make_photo(cases[i].model, 224, 100, true, DT_F32);
        }
        const dt_value v = dt_graph_find(g, cases[i].name);
        assert_int_not_equal(v, DT_NONE);
        const dt_init init = g->values[v].init, want = cases[i].init;
        if (init.kind != want.kind || (want.kind != DT_INIT_ZERO && fabsf(init.scale / want.scale - 1) > 1e-4f))
            fail_msg("%s: kind %d, %g", cases[i].name, (int)init.kind, (double)init.scale);
    }
    dt_graph_destroy(g);
}

TEST(fusion_counts) {
    // encoders 585,568 and 586,144, head 142,893
    check_params(make_fusion("concat", true, DT_F32), 585568 + 586144 + 142893);
    check_params(make_fusion("concat", false, DT_F32), 585568 + 586144 + 142893);
    // q, k, v, out of each modality and a layer norm
    int64_t attention = 4 * (256 * 256 + 256) + 2 * 256;
    check_params(make_fusion("cross_attention", true, DT_BF16), 585568 + 586144 + 142893 + 2 * attention);
}

TEST(fusion_is_fused) {
    dt_graph *g = make_fusion("concat", true, DT_F32);
    assert_int_equal(count_op(g, DT_OP_max_pool, false), 0);
    assert_int_equal(count_op(g, DT_OP_relu, false), 0);
    assert_int_equal(count_op(g, DT_OP_batch_norm, false), 8);
    assert_int_equal(count_op(g, DT_OP_batch_norm, true), 8);
    assert_int_equal(g->n_updates, 16);
    const char *names[] = {"fingerprint.0.weight", "fingerprint.1.weight", "iris.13.running_var", "iris.18.bias",
                           "iris.20.weight",       "head.0.weight",        "head.3.bias"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (dt_graph_find(g, names[i]) == DT_NONE) fail_msg("no %s", names[i]);
    }
    dt_value e = output(g, "embedding"), logits = output(g, "logits");
    dt_shape pair = dt_shape2(2, 512), classes = dt_shape2(2, 45);
    assert_true(dt_shape_equal(&g->values[e].shape, &pair));
    assert_true(dt_shape_equal(&g->values[logits].shape, &classes));
    assert_int_equal(count_op(g, DT_OP_dropout, false), 1);
    assert_true(dt_graph_find_node(g, "head.2") != DT_NONE);
    // no gradient of an image is made
    dt_node_id conv = dt_graph_find_node(g, "iris.0.bwd");
    assert_true(conv != DT_NONE && g->nodes[conv].out[0] == DT_NONE);
    assert_true(g->nodes[conv].out[1] != DT_NONE);
    dt_graph_destroy(g);
}

TEST(inference_folds) {
    dt_graph *g = make_fusion("cross_attention", false, DT_BF16);
    assert_int_equal(count_op(g, DT_OP_batch_norm, false), 0);
    assert_int_equal(count_op(g, DT_OP_relu, false), 0);
    assert_int_equal(count_op(g, DT_OP_dropout, false), 0);
    dt_node_id conv = dt_graph_find_node(g, "iris.0");
    assert_true(g->nodes[conv].attrs.conv2d.fold_bn);
    assert_int_equal(g->nodes[conv].attrs.conv2d.act, DT_ACTIVATION_relu);
    assert_int_equal(g->nodes[conv].attrs.conv2d.bn_var, dt_graph_find(g, "iris.1.running_var"));
    assert_true(g->loss != DT_NONE && g->n_grads == 0);
    dt_graph_destroy(g);
    g = make_photo("name: resnet, depth: 50", 64, 10, false, DT_F32);
    assert_int_equal(count_op(g, DT_OP_batch_norm, false), 0);
    dt_graph_destroy(g);
}

TEST(resnet_fuses_residuals) {
    dt_graph *g = make_photo("name: resnet, depth: 18", 64, 10, true, DT_F32);
    int n_residual = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const dt_node *n = &g->nodes[i];
        n_residual += !n->dead && n->op == DT_OP_batch_norm && !n->backward && n->n_in == 6;
    }
    assert_int_equal(n_residual, 8);
    assert_int_equal(count_op(g, DT_OP_relu, false), 0);
    assert_int_equal(count_op(g, DT_OP_batch_norm, false), 20);
    assert_true(dt_graph_find(g, "layer2.0.downsample.1.running_mean") != DT_NONE);
    dt_graph_destroy(g);
}

// Nothing is cut, transposed or joined between the projections of an attention.
TEST(attention_is_packed) {
    dt_graph *g = make_photo("name: vit, blocks: 3", 32, 10, true, DT_F32);
    assert_int_equal(count_op(g, DT_OP_sdpa, false), 3);
    assert_int_equal(count_op(g, DT_OP_sdpa, true), 3);
    assert_int_equal(count_op(g, DT_OP_transpose, false), 2); // patches to tokens, their gradient
    assert_int_equal(count_op(g, DT_OP_slice, false), 3);     // class token; gradients of the concat
    const dt_node *n = &g->nodes[dt_graph_find_node(g, "encoder.layers.encoder_layer_1.self_attention.sdpa")];
    dt_shape qkv = dt_shape3(2, 5, 3 * 768), y = dt_shape3(2, 5, 768), lse = dt_shape3(2, 12, 5);
    assert_int_equal(n->n_in, 1);
    assert_true(dt_shape_equal(&g->values[n->in[0]].shape, &qkv));
    assert_true(dt_shape_equal(&g->values[n->out[0]].shape, &y));
    assert_true(dt_shape_equal(&g->values[n->out[1]].shape, &lse));
    dt_graph_destroy(g);
}

// The tanh form of GELU goes into the linear layers on both sides of it, exact GELU stays; for evaluation both go in.
TEST(gelu_goes_into_products) {
    for (int k = 0; k < 8; k++) {
        const bool tanh = k & 1, training = k & 2;
        dt_graph *g = make_photo(tanh ? "name: vit, blocks: 3, gelu: tanh" : "name: vit, blocks: 3", 32, 10, training,
                                 k & 4 ? DT_BF16 : DT_F32);
        const int n_apart = training && !tanh ? 3 : 0;
        assert_int_equal(count_op(g, DT_OP_gelu, false), n_apart);
        assert_int_equal(count_op(g, DT_OP_gelu, true), n_apart);
        const int first = dt_graph_find_node(g, "encoder.layers.encoder_layer_1.mlp.0");
        const dt_activation act = g->nodes[first].attrs.linear.act;
        assert_int_equal(act, tanh ? DT_ACTIVATION_gelu_tanh : training ? DT_ACTIVATION_none : DT_ACTIVATION_gelu);
        int n_dgelu = 0;
        for (int i = 0; i < g->n_nodes; i++) {
            const dt_node *n = &g->nodes[i];
            n_dgelu += !n->dead && n->op == DT_OP_linear && n->attrs.linear.dgelu;
        }
        assert_int_equal(n_dgelu, tanh && training ? 3 : 0);
        check_graph(g);
        dt_graph_destroy(g);
    }
}

// All of the stream's additions are a layer norm's, and all of its gradient's. Left are the position's and the class token's.
TEST(additions_go_into_norms) {
    for (int k = 0; k < 4; k++) {
        const bool training = k & 1;
        dt_graph *g = make_photo("name: vit, blocks: 3", 32, 10, training, k & 2 ? DT_BF16 : DT_F32);
        int n_forward = 0, n_backward = 0;
        for (int i = 0; i < g->n_nodes; i++) {
            const dt_node *n = &g->nodes[i];
            if (n->dead || n->op != DT_OP_layer_norm) continue;
            n_forward += !n->backward && n->n_in == 4 && n->n_out == 4;
            n_backward += n->backward && n->n_in == n->n_fwd_in + 2 * n->n_fwd_out + 1;
        }
        assert_int_equal(n_forward, 2 * 3);
        assert_int_equal(n_backward, training ? 2 * 3 : 0);
        assert_int_equal(count_op(g, DT_OP_add, false), 2);
        dt_graph_destroy(g);
    }
}

TEST(low_precision_reaches_the_ends) {
    dt_graph *g = make_fusion("cross_attention", true, DT_BF16);
    for (int i = 0; i < g->n_nodes; i++) {
        const dt_node *n = &g->nodes[i];
        if (n->dead || n->op != DT_OP_conv2d) continue;
        for (int k = 0; k < n->n_in; k++) {
            if (n->in[k] == DT_NONE) continue;
            const dt_value_info *v = &g->values[n->in[k]];
            assert_int_equal(v->dtype, v->kind == DT_V_PARAM ? DT_F32 : DT_BF16);
        }
    }
    // one cast before the loss, one behind it
    assert_int_equal(count_op(g, DT_OP_cast, false), 2);
    dt_graph_destroy(g);
}

static void check_drop_path(const char *model, const char *node, double p) {
    dt_graph *g = make_photo(model, 64, 10, true, DT_F32);
    const dt_node_id id = dt_graph_find_node(g, node);
    if (p > 0) {
        assert_true(id != DT_NONE && g->nodes[id].op == DT_OP_dropout);
        assert_true(g->nodes[id].attrs.dropout.whole);
        assert_float_equal(g->nodes[id].attrs.dropout.p, p, 1e-6);
    } else {
        assert_int_equal(id, DT_NONE);
    }
    dt_graph_destroy(g);
}

// Of drop_path 0.2, as timm.create_model(…, drop_path_rate=0.2) has them in blocks[i][k].drop_path.drop_prob.
TEST(stochastic_depth_grows_as_timms) {
    check_drop_path("name: efficientnet, drop_path: 0.2", "features.2.1.drop_path", 0.025);
    check_drop_path("name: efficientnet, drop_path: 0.2", "features.6.3.drop_path", 0.175);
    check_drop_path("name: efficientnet, drop_path: 0.2", "features.7.0.drop_path", 0);
    check_drop_path("name: mobilenet_v3, drop_path: 0.2", "features.3.drop_path", 0.025);
    check_drop_path("name: mobilenet_v3, drop_path: 0.2", "features.15.drop_path", 0.175);
    check_drop_path("name: mobilenet_v3", "features.15.drop_path", 0);
    check_drop_path("name: resnet, depth: 18, drop_path: 0.2", "layer1.0.drop_path", 0);
    check_drop_path("name: resnet, depth: 18, drop_path: 0.2", "layer2.0.drop_path", 0.2 * 2 / 7);
    check_drop_path("name: resnet, depth: 50, drop_path: 0.2", "layer4.2.drop_path", 0.2);
    check_drop_path("name: vit, size: ti, drop_path: 0.2", "encoder.layers.encoder_layer_0.drop_path2", 0);
    check_drop_path("name: vit, size: ti, drop_path: 0.2", "encoder.layers.encoder_layer_5.drop_path1", 0.2 * 5 / 11);
    check_drop_path("name: vit, size: ti, drop_path: 0.2", "encoder.layers.encoder_layer_11.drop_path2", 0.2);
    check_drop_path("name: convnext, drop_path: 0.2", "features.3.0.drop_path", 0.2 * 3 / 17);
    check_drop_path("name: convnext, drop_path: 0.2", "features.7.2.drop_path", 0.2);
}

static void expect_error(const char *model, const dt_field_info *f, int n, const char *text) {
    dt_config *c = make_config(model);
    dt_model_args a = {c, f, n, 2, true};
    dt_graph *g = NULL;
    assert_int_equal(dt_model_graph(&g, &a, DT_F32), DT_E_USAGE);
    if (!strstr(dt_error_message(), text)) fail_msg("got: %s", dt_error_message());
    assert_null(strchr(dt_error_message(), '\n'));
    assert_null(g);
    dt_config_destroy(c);
}

TEST(errors_name_what_lacks) {
    dt_field_info photo[2] = {image_field("image", 64, 64, 3), class_field("label", 10)};
    expect_error("name: fusion", photo, 2, "two or more fields");
    expect_error("name: resnet, groups: 32", photo, 2, "depth 50 or more");
    expect_error("name: convnext, size: l", photo, 2, "ti, s and b");
    expect_error("name: efficientnet, size: s", photo, 2, "b0, b1 and b2");
    expect_error("name: mobilenet_v3, size: b", photo, 2, "sizes s and l");
    expect_error("name: resnet", photo, 1, "nothing to predict");
    expect_error("name: vit, patch: 15", photo, 2, "do not tile the image's 64");
    expect_error("name: vit, dim: 100", photo, 2, "multiple of model.heads");
    dt_field_info tiny[3] = {image_field("a", 12, 12, 1), image_field("b", 64, 64, 1), photo[1]};
    expect_error("name: fusion", tiny, 3, "larger than the image");
}

static void check_graph_of(const char *model, const dt_field_info *f, int n) {
    dt_graph *g = make(model, f, n, true, DT_BF16);
    check_graph(g);
    dt_graph_destroy(g);
}

TEST(sounds_and_signals) {
    dt_field_info f[3] = {image_field("sound", 64, 128, 1), class_field("label", 10)};
    check_params(make("name: audio_cnn", f, 2, true, DT_F32),
                 5219279 - 513 * (527 - 10)); // PANNs: 527 classes
    f[0] = image_field("sound", 16, 4096 + 16, 1);
    dt_graph_destroy(make("name: audio_cnn", f, 2, true, DT_F32));
    f[0] = image_field("sound", 64, 128, 1);
    check_params(make("name: ast_tiny", f, 2, true, DT_BF16),
                 5717416 - 768 * 192 + 256 * 192 - 990 * 193 + (5 * 12 + 1 - 197) * 192);
    f[0] = image_field("sound", 1, 8000, 1);
    check_params(make("name: cnn1d, width: 32", f, 2, true, DT_F32),
                 80 * 32 + 3 * 32 * (32 + 64) + 3 * 64 * 128 + 2 * (32 + 32 + 64 + 128) + 1290);
    override = "train.targets={label: {loss: cross_entropy}}";
    f[0] = (dt_field_info){.name = "signal", .sample_shape = dt_shape1(100), .dtype = DT_F32};
    check_graph_of("name: cnn1d", f, 2);
    f[2] = f[1], f[1] = image_field("image", 64, 64, 3);
    check_graph_of("name: fusion, fusion: gated, encoders: {signal: {name: cnn1d}, image: {name: "
                   "efficientnet}}",
                   f, 3);
    check_graph_of("name: fusion, fusion: cross_attention, encoders: {image: {name: vit, size: ti}}", f, 3);
    expect_error("name: fusion, encoders: {image: {name: mlp}}", f, 3, "model.encoders.image.name is mlp");
    override = NULL;
}

// A head begins at 0, but not that of a rotation: six zeros are none.
TEST(rotations_begin_somewhere) {
    dt_field_info f[2] = {image_field("image", 32, 32, 3),
                          {.name = "pose", .sample_shape = dt_shape1(6), .dtype = DT_F32}};
    for (int i = 0; i < 6; i++) f[1].std[i] = 1;
    for (int geodesic = 0; geodesic < 2; geodesic++) {
        override = geodesic ? "train.loss=geodesic" : "train.loss=mse";
        dt_graph *g = make("name: vit, size: ti, blocks: 1, patch: 16", f, 2, true, DT_F32);
        const dt_value weight = dt_graph_find(g, "heads.head.weight");
        assert_true((g->values[weight].init.kind == DT_INIT_ZERO) == !geodesic);
        dt_graph_destroy(g);
    }
    override = NULL;
}

// Weights are shared, statistics are not; evaluation has one loss and mean logits.
TEST(scales_share_weights) {
    dt_field_info f[2] = {image_field("image", 64, 64, 3), class_field("label", 10)};
    dt_graph *one = make("name: resnet, depth: 10, width: 8", f, 2, true, DT_F32);
    dt_graph *g = make("name: lens_multiscale, depth: 10, width: 8, scales: [16, 64, 32]", f, 2, true, DT_F32);
    check_graph(g);
    assert_int_equal(dt_graph_count_params(g), dt_graph_count_params(one));
    assert_int_equal(count_op(g, DT_OP_loss, false), 3 + 2);
    assert_int_equal(g->n_updates, 3 * one->n_updates);
    assert_int_not_equal(dt_graph_find(g, "s16.bn1.running_mean"), DT_NONE);
    dt_graph_destroy(g);
    dt_graph_destroy(one);
    g = make("name: lens_multiscale, depth: 10, width: 8, scales: [16, 64, 32]", f, 2, false, DT_F32);
    assert_int_equal(count_op(g, DT_OP_loss, false), 1);
    check_graph(g);
    dt_graph_destroy(g);
    expect_error("name: lens_multiscale, scales: [64, 48, 64]", f, 2, "each side once");
    expect_error("name: lens_multiscale, scales: [{side: 64, from: 1 epoch}]", f, 2, "every scale joins later");
    expect_error("name: lens_multiscale, scales: [64, {side: 48, until: 1 epoch}]", f, 2, "unknown key 'until'");
}

// Each scale's backward stands in front of the next scale's forward. A scale that joins later is not trained before;
// evaluation has its tensors, and does not compute it.
TEST(scales_one_after_another) {
    dt_field_info f[2] = {image_field("image", 40, 60, 3), class_field("label", 10)};
    const char *model = "name: lens_multiscale, depth: 10, width: 8, scales: [24, 40, {side: 33, "
                        "from: 5 steps}]";
    dt_config *c = make_config(model);
    for (int step = 4; step < 6; step++)
        for (int training = 0; training < 2; training++) {
            dt_model_args a = {.config = c, .fields = f, .n_fields = 2, .batch = 2, .training = training};
            dt_graph *g = NULL;
            a.step = step;
            must(dt_model_graph(&g, &a, DT_F32));
            check_graph(g);
            assert_int_equal(dt_graph_find(g, "s33.bn1.running_mean") != DT_NONE, !training || step == 5);
            if (training) {
                assert_int_equal(count_op(g, DT_OP_loss, false), step == 5 ? 3 + 2 : 2 + 1);
                assert_true(dt_graph_find_node(g, "conv1.bwd") < dt_graph_find_node(g, "conv1.1"));
                assert_true(step == 4 || dt_graph_find_node(g, "conv1.1.bwd") < dt_graph_find_node(g, "conv1.2"));
                assert_true(dt_graph_find_node(g, "fc.1") < dt_graph_find_node(g, "conv1.1.bwd"));
            } else {
                assert_int_equal(count_op(g, DT_OP_global_pool, false), step == 5 ? 3 : 2);
            }
            const dt_value columns = dt_graph_find(g, "s24.resize.columns");
            assert_true(dt_shape_equal(&g->values[columns].shape, &(dt_shape){2, {60, 36}}));
            dt_graph_destroy(g);
        }
    dt_config_destroy(c);
}

// By the weights of torch.nn.functional.interpolate(mode="bilinear", antialias=True): 5 rows to 3, 3 columns to 5.
TEST(resizes_as_torch) {
    static const float rows[15] = {4.0f / 7, 0, 0,        3.0f / 7, 2.0f / 9, 0, 0,       5.0f / 9,
                                   0,        0, 2.0f / 9, 3.0f / 7, 0,        0, 4.0f / 7};
    static const float columns[15] = {1, 0.6f, 0, 0, 0, 0, 0.4f, 1, 0.4f, 0, 0, 0, 0, 0.6f, 1};
    dt_graph *g = dt_graph_create("resize", false);
    const dt_shape shape = {4, {2, 7, 5, 3}}, want = {4, {2, 7, 3, 5}};
    dt_value y = dt_block_resize(g, dt_input(g, "x", DT_F32, shape), 3, 5);
    must(dt_graph_check(g));
    assert_true(dt_shape_equal(&g->values[y].shape, &want));
    const float *r = g->values[dt_graph_find(g, "resize.rows")].data;
    const float *c = g->values[dt_graph_find(g, "resize.columns")].data;
    for (int i = 0; i < 15; i++) {
        assert_float_equal(r[i], rows[i], 1e-6);
        assert_float_equal(c[i], columns[i], 1e-6);
    }
    dt_graph_destroy(g);
}

// The small network of cnn.c, written as layers with a block, and what is wrong with others.
TEST(layers_make_networks) {
    dt_field_info photo[2] = {image_field("image", 64, 64, 3), class_field("label", 10)};
    // in a list, too, $words are those of where the list stands: the kernel's is the outer 3, the pool's the inner 2
    dt_graph *g =
        make("define: {unit: [{conv: {out: $out, kernel: $size, bias: false, pad: same}}, batch_norm, relu, "
             "{max_pool: [$k, 2]}], square: [{unit: {out: $out, size: [$k, 3], k: 2}}]},\n"
             " layers: [{square: {out: 32, k: 3}}, {square: {out: 64, k: 3}}, {unit: {out: 128, size: 3, k: 2}},\n"
             "  {unit: {out: 256, size: [3, 3], k: 2}, name: map}, global_pool, {linear: 384}, relu, {linear: 256}]",
             photo, 2, true, DT_BF16);
    dt_graph *same = make_photo("name: cnn", 64, 10, true, DT_BF16);
    assert_int_equal(dt_graph_count_params(g), dt_graph_count_params(same));
    assert_int_not_equal(dt_graph_find(g, "map.0.weight"), DT_NONE);
    check_graph(g);
    dt_graph_destroy(g);
    dt_graph_destroy(same);
    g = make("name: layers, layers: [{conv: {out: 16, kernel: 8, stride: 8}}, tokens, "
             "{positions: },\n"
             " {repeat: 3, name: encoder, layers: [layer_norm, {attention: 4, name: attn}, {add: "
             "input},\n"
             "  {layers: [layer_norm, {linear: 64}, gelu, {linear: 16}, {add: input}], name: mlp}]},\n"
             " {transpose: [0, 2, 1]}, {reshape: [16, 8, 8], name: x}, {squeeze_excite: 4}, {mul: x},\n"
             " {concat: x}, layer_norm, silu, {avg_pool: {kernel: [2, 4]}}, flatten, {dropout: 0.1}]",
             photo, 2, true, DT_F32);
    assert_int_not_equal(dt_graph_find(g, "encoder.2.mlp.3.weight"), DT_NONE);
    check_graph(g);
    dt_graph_destroy(g);
}

TEST(layers_name_the_line) {
    dt_field_info photo[2] = {image_field("image", 64, 64, 3), class_field("label", 10)};
    static const struct {
        const char *layers, *error;
    } wrong[] = {
        {"layers: [{conv: 8},\n {conv: {out: 8, kernel: 99}}]", "test.yaml:4:2: conv2d 1 on 0 f32(2,8,62,62)"},
        {"layers: [{conv: 8},\n relu, global_pool, {linear: 8}, {add: a}]",
         "test.yaml:4:40: no layer before this one and no field is named a"},
        {"layers: [convolution]", "test.yaml:3:18: unknown layer convolution; expected one of conv, "},
        {"layers: [{conv: {size: 3}}]", "test.yaml:3:32: conv has no key size; it has out kernel"},
        {"layers: [{conv: {kernel: 3}}]", "test.yaml:3:18: conv wants out"},
        {"layers: [{conv: 8, relu: }]", "conv and relu in one item"},
        {"layers: [{conv: 8}]", "the last layer gives (2,8,62,62), the head wants (N,D)"},
        {"layers: [{conv: x}]", "test.yaml:3:25: out of conv: expected a number in 1..1e9"},
        {"layers: [{u: {n: 1}}], define: {u: [{conv: $out}]}", "the block was not given $out"},
        {"layers: [u], define: {u: [relu, u]}", "a block may not contain itself"},
        {"layers: []", "expected a list of layers"},
        {"layers: [{repeat: 0, layers: [relu]}]", "repeat: expected a whole number in 1..1000"},
        {"layers: [{global_pool: }, {linear: 4}, {reshape: [3]}]", "reshape"},
        {"layers: [{repeat: 60, layers: [{concat: input}]}, global_pool]", "is too large"},
        {"layers: [{conv: {out: 4, pad: 1000000000}}, global_pool]",
         "0: the shape (2,4,2000000062,2000000062) is too large"},
        {"layers: [{conv: {out: 1000000000, kernel: 1000000000, pad: 1000000000}}, global_pool]", "is too large"},
        {"layers: [{avg_pool: {kernel: 1000000000, pad: 1000000000}}, global_pool]",
         "padding must be at most half of the window"},
        {"layers: [{max_pool: {kernel: 16}}, global_pool]", "at most 255 places"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) expect_error(wrong[i].layers, photo, 2, wrong[i].error);
}

TEST_MAIN(NULL, NULL)
