// test_graph.c: shapes of each op, errors, gradients, passes, on small graphs.
#include "config/words.h"
#include "graph/activation_words.h"
#include "graph/autodiff.h"
#include "graph/build.h"
#include "graph/passes/passes.h"
#include "testing.h"

#include <stdlib.h>
#include <string.h>

static dt_value input(dt_graph *g, const char *name, dt_shape s) {
    return dt_input(g, name, DT_F32, s);
}

#define PARAM(g, name, ...) dt_param(g, name, __VA_ARGS__, (dt_init){DT_INIT_NORMAL, 1.0f}, true)

static void expect_shape(dt_graph *g, dt_value v, const char *expected) {
    char text[96];
    if (v == DT_NONE) fail_msg("wanted %s, got an error: %s", expected, g->error);
    assert_string_equal(dt_shape_print(&g->values[v].shape, text, sizeof text), expected);
}

static dt_value out_of(const dt_graph *g, dt_value v, int i) {
    return g->nodes[g->values[v].producer].out[i];
}

static int count_op(const dt_graph *g, dt_op op, bool backward) {
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        n += !g->nodes[i].dead && g->nodes[i].op == op && g->nodes[i].backward == backward;
    }
    return n;
}

static dt_node *node(dt_graph *g, const char *name) {
    dt_node_id id = dt_graph_find_node(g, name);
    if (id == DT_NONE) fail_msg("no node %s", name);
    return &g->nodes[id];
}

// Sizes whose products are no number of 64 bits, or fall on 0 in it, never become a value.
TEST(shapes_are_checked) {
    static const int64_t far = (int64_t)1 << 32;
    const dt_shape wrong[] = {dt_shape2(far, far),
                              dt_shape4(far, far, far, far),
                              dt_shape1(-1),
                              dt_shape2(INT64_MAX, 2),
                              dt_shape1(DT_MAX_SIZE + 1),
                              dt_shape3(1 << 16, 1 << 15, 1 << 16),
                              dt_shape3(1 << 23, 1 << 23, 1 << 18)};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        dt_graph *g = dt_graph_create("t", true);
        assert_int_equal(input(g, "x", wrong[i]), DT_NONE);
        if (!strstr(g->error, "x: the shape (")) fail_msg("%s", g->error);
        dt_graph_destroy(g);
    }
    dt_graph *g = dt_graph_create("t", true);
    dt_value x = input(g, "x", dt_shape2(1 << 16, DT_MAX_SIZE / 2));
    x = dt_concat(g, (dt_value[]){x, x}, 2, 1);
    expect_shape(g, x, "(65536,1073741824)");
    assert_int_equal(dt_concat(g, (dt_value[]){x, x}, 2, 1), DT_NONE);
    dt_graph_destroy(g);
}

// Generated names are numbered in the order of the calls, also where others took a number by hand.
TEST(names_are_numbered) {
    dt_graph *g = dt_graph_create("t", true);
    dt_value x = input(g, "relu.2", dt_shape2(2, 3));
    static const char *const names[] = {"relu", "relu.1", "relu.3", "relu.4"};
    for (size_t i = 0; i < 4; i++) {
        x = dt_relu(g, x);
        assert_string_equal(g->values[x].name, names[i]);
    }
    const dt_value chosen = PARAM(g, "relu", dt_shape1(3)); // takes the name
    assert_int_equal(dt_graph_find(g, "relu"), chosen);
    assert_string_equal(g->values[node(g, "relu")->out[0]].name, "relu.5");
    dt_graph_scope(g, "block."); // constants are numbered behind it
    for (int i = 0; i < 2; i++) (void)dt_group_norm(g, i ? "b" : "a", x, 1, 1e-5f, true);
    must(dt_graph_check(g));
    dt_graph_destroy(g);
}

TEST(shapes_of_images) {
    dt_graph *g = dt_graph_create("t", true);
    float mean[3] = {0}, std[3] = {1, 1, 1};
    dt_value u8 = dt_input(g, "u8", DT_U8, dt_shape4(2, 103, 96, 3));
    dt_value x = dt_image_normalize(g, u8, DT_NONE, mean, std);
    expect_shape(g, x, "(2,3,103,96)");
    dt_value y = dt_conv2d(g, "c", x, &(dt_conv2d_opts){.out = 6, .kernel = 3, .pad = 1});
    expect_shape(g, y, "(2,6,103,96)");
    dt_conv2d_opts grouped = {.out = 8, .kernel = 3, .stride = 2, .dilation = 2, .groups = 2};
    expect_shape(g, dt_conv2d(g, "g", y, &grouped), "(2,8,50,46)");
    expect_shape(g, dt_graph_find(g, "g.weight"), "(8,3,3,3)");
    dt_window w = {{3, 5}, {1, 1}, {1, 1}, {2, 0}, {0, 3}};
    expect_shape(g, dt_conv2d(g, "a", y, &(dt_conv2d_opts){.out = 4, .bias = true, .window = &w}), "(2,4,103,95)");
    expect_shape(g, dt_graph_find(g, "a.bias"), "(4)");
    dt_value bn = dt_batch_norm(g, "bn", y);
    expect_shape(g, bn, "(2,6,103,96)");
    expect_shape(g, out_of(g, bn, 1), "(6)");
    assert_int_equal(out_of(g, bn, 3), DT_NONE);
    assert_int_equal(out_of(g, bn, 4), dt_graph_find(g, "bn.mean"));
    assert_int_equal(g->values[dt_graph_find(g, "bn.var")].kind, DT_V_STAT);
    assert_int_equal(g->values[dt_graph_find(g, "bn.running_var")].init.kind, DT_INIT_CONSTANT);
    assert_int_equal(g->n_updates, 2);
    dt_value pool = dt_max_pool(g, y, 3, 2, 1);
    expect_shape(g, pool, "(2,6,52,48)");
    assert_int_equal(g->values[out_of(g, pool, 1)].dtype, DT_U8);
    expect_shape(g, dt_avg_pool(g, y, 2, 2, 0), "(2,6,51,48)");
    expect_shape(g, dt_global_pool(g, y), "(2,6)");
    must(dt_graph_check(g));
    dt_graph_destroy(g);
}

TEST(shapes_of_tokens) {
    dt_graph *g = dt_graph_create("t", true);
    dt_value x = input(g, "x", dt_shape3(2, 5, 8)), q = input(g, "q", dt_shape4(2, 4, 5, 16)),
             k = input(g, "k", dt_shape4(2, 4, 7, 16)), row = input(g, "row", dt_shape2(5, 8));
    expect_shape(g, dt_linear(g, "l", x, 3, true), "(2,5,3)");
    expect_shape(g, dt_matmul(g, q, k, false, true, 1.0f), "(2,4,5,7)");
    expect_shape(g, dt_matmul(g, q, q, true, false, 1.0f), "(2,4,16,16)");
    dt_value ln = dt_layer_norm(g, "ln", x, 1e-6f);
    expect_shape(g, ln, "(2,5,8)");
    expect_shape(g, out_of(g, ln, 2), "(2,5)");
    dt_value y = dt_sdpa(g, q, k, k, 0.25f);
    expect_shape(g, y, "(2,4,5,16)");
    expect_shape(g, out_of(g, y, 1), "(2,4,5)");
    expect_shape(g, dt_add(g, x, row), "(2,5,8)");
    expect_shape(g, dt_concat(g, (dt_value[]){x, x, x}, 3, 1), "(2,15,8)");
    expect_shape(g, dt_slice(g, x, 1, 2, 4), "(2,2,8)");
    expect_shape(g, dt_transpose(g, x, (int[]){2, 0, 1}), "(8,2,5)");
    expect_shape(g, dt_reshape(g, x, dt_shape2(-1, 20)), "(4,20)");
    expect_shape(g, dt_softmax(g, x), "(2,5,8)");
    expect_shape(g, dt_gelu(g, dt_relu(g, dt_scale(g, x, 2.0f))), "(2,5,8)");
    expect_shape(g, dt_dropout(g, "d", x, 0.5f), "(2,5,8)");
    assert_int_equal(dt_dropout(g, "d", x, 0.0f), x);
    assert_int_equal(g->values[dt_cast(g, x, DT_BF16)].dtype, DT_BF16);
    assert_int_equal(dt_cast(g, x, DT_F32), x);
    must(dt_graph_check(g));
    dt_graph_destroy(g);
}

// ---- errors ----------------------------------------------------------------------------------------
typedef void (*wrong_fn)(dt_graph *g, dt_value image, dt_value matrix);

static void wrong_conv(dt_graph *g, dt_value image, dt_value matrix) {
    dt_conv2d(g, "big", image, &(dt_conv2d_opts){.out = 4, .kernel = 9});
}
static void wrong_groups(dt_graph *g, dt_value image, dt_value matrix) {
    dt_conv2d(g, "grouped", image, &(dt_conv2d_opts){.out = 4, .kernel = 1, .groups = 2});
}
static void wrong_add(dt_graph *g, dt_value image, dt_value matrix) {
    dt_add(g, image, matrix);
}
static void wrong_matmul(dt_graph *g, dt_value image, dt_value matrix) {
    dt_matmul(g, matrix, matrix, false, false, 1.0f);
}
static void wrong_reshape(dt_graph *g, dt_value image, dt_value matrix) {
    dt_reshape(g, matrix, dt_shape2(4, 4));
}
static void wrong_twice(dt_graph *g, dt_value image, dt_value matrix) {
    dt_linear(g, "same", matrix, 3, true);
    dt_linear(g, "same", matrix, 3, true);
}
static void wrong_target(dt_graph *g, dt_value image, dt_value matrix) {
    dt_value t = dt_input(g, "t", DT_I32, dt_shape1(3)), w = input(g, "w", dt_shape1(2));
    dt_loss(g, DT_LOSS_cross_entropy, matrix, t, w, 0.0f, 0);
}
static void wrong_slice(dt_graph *g, dt_value image, dt_value matrix) {
    dt_slice(g, matrix, 1, 2, 6);
}
static void wrong_later_calls_do_nothing(dt_graph *g, dt_value image, dt_value matrix) {
    dt_value bad = dt_global_pool(g, matrix);
    assert_int_equal(bad, DT_NONE);
    assert_int_equal(dt_relu(g, dt_batch_norm(g, "later", bad)), DT_NONE);
    assert_int_equal(dt_relu(g, matrix), DT_NONE);
}

TEST(errors_are_one_line_with_name_and_shapes) {
    static const struct {
        wrong_fn build;
        const char *parts[3];
    } cases[] = {
        {wrong_conv, {"conv2d big", "(2,3,6,6)", "larger than the padded image"}},
        {wrong_groups, {"conv2d grouped", "(2,3,6,6)", "2 groups"}},
        {wrong_add, {"add", "(2,3,6,6)", "matrix f32(2,5)"}},
        {wrong_matmul, {"matmul", "(2,5)", "inner dimensions 5 and 2"}},
        {wrong_reshape, {"reshape", "(2,5)", "(4,4)"}},
        {wrong_twice, {"same.weight", "two tensors", "rename"}},
        {wrong_target, {"cross_entropy", "t i32(3)", "target i32 (N)"}},
        {wrong_slice, {"slice", "(2,5)", "[2, 6)"}},
        {wrong_later_calls_do_nothing, {"global_pool", "(2,5)", "wants (N,C,H,W)"}},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        dt_graph *g = dt_graph_create("t", true);
        dt_value image = input(g, "image", dt_shape4(2, 3, 6, 6));
        cases[c].build(g, image, input(g, "matrix", dt_shape2(2, 5)));
        assert_int_equal(dt_graph_check(g), DT_E_USAGE);
        const char *text = dt_error_message();
        assert_null(strchr(text, '\n'));
        for (int i = 0; i < 3; i++) {
            if (!strstr(text, cases[c].parts[i])) fail_msg("%s: no \"%s\"", text, cases[c].parts[i]);
        }
        dt_graph_destroy(g);
    }
}

// ---- gradients -------------------------------------------------------------------------------------
static dt_value add_mse(dt_graph *g, dt_value y) {
    dt_shape s = g->values[y].shape;
    dt_value t = dt_input(g, "target", DT_F32, s), w = input(g, "weight", dt_shape1(s.d[0]));
    return dt_loss(g, DT_LOSS_mse, y, t, w, 0, 0);
}

static void differentiate(dt_graph *g) {
    must(dt_graph_differentiate(g));
}

// A parameter in front of every op that has a gradient: each gets one, of its shape.
TEST(every_op_has_a_gradient) {
    dt_graph *g = dt_graph_create("t", true);
    dt_value x = PARAM(g, "image", dt_shape4(2, 4, 8, 8));
    x = dt_conv2d(g, "conv", x, &(dt_conv2d_opts){.out = 4, .kernel = 3, .pad = 1, .bias = true});
    x = dt_relu(g, dt_batch_norm(g, "bn", x));
    x = dt_avg_pool(g, dt_max_pool(g, x, 3, 1, 1), 2, 2, 0); // (2,4,4,4)
    dt_value pooled = dt_global_pool(g, x);
    dt_value q = dt_softmax(g, dt_matmul(g, x, x, false, true, 0.5f));
    q = dt_sdpa(g, q, x, x, 0.5f);
    q = dt_transpose(g, q, (int[]){0, 2, 1, 3});
    q = dt_reshape(g, q, dt_shape3(2, 4, 16));
    q = dt_add(g, q, PARAM(g, "position", dt_shape2(4, 16)));
    q = dt_gelu(g, dt_layer_norm(g, "ln", q, 1e-6f));
    q = dt_dropout(g, "drop", dt_scale(g, q, 3.0f), 0.5f);
    q = dt_concat(g, (dt_value[]){q, dt_reshape(g, pooled, dt_shape3(2, 4, 1))}, 2, 2);
    q = dt_slice(g, q, 2, 0, 17);
    q = dt_cast(g, dt_cast(g, dt_linear(g, "linear", q, 5, true), DT_BF16), DT_F32);
    add_mse(g, q);
    differentiate(g);
    int n_params = 0;
    for (int v = 0; v < g->n_values; v++) n_params += g->values[v].kind == DT_V_PARAM;
    assert_int_equal(g->n_grads, n_params);
    for (int i = 0; i < g->n_grads; i++) {
        const dt_value_info *grad = &g->values[g->grads[i]], *param = &g->values[grad->param];
        assert_true(dt_shape_equal(&grad->shape, &param->shape));
        char name[64];
        snprintf(name, sizeof name, "%s.grad", param->name);
        assert_string_equal(grad->name, name);
    }
    // temporaries have the shape of what they are the gradient of
    for (int i = 0; i < g->n_nodes; i++) {
        const dt_node *n = &g->nodes[i];
        for (int k = 0; n->backward && n->forward != DT_NONE && k < n->n_out; k++) {
            if (n->out[k] == DT_NONE) continue;
            const dt_value_info *in = &g->values[g->nodes[n->forward].in[k]];
            assert_true(dt_shape_equal(&g->values[n->out[k]].shape, &in->shape));
        }
    }
    dt_graph_destroy(g);
}

TEST(grads_are_in_finish_order) {
    dt_graph *g = dt_graph_create("t", true);
    dt_value x = input(g, "x", dt_shape2(4, 6)), shared = PARAM(g, "shared", dt_shape2(6, 6));
    x = dt_linear_with(g, "first", x, shared, DT_NONE);
    x = dt_linear(g, "middle", x, 6, true);
    x = dt_linear_with(g, "last", x, shared, DT_NONE);
    add_mse(g, dt_linear(g, "head", x, 2, true));
    differentiate(g);
    const char *order[] = {"head.weight", "head.bias", "middle.weight", "middle.bias", "shared"};
    assert_int_equal(g->n_grads, 5);
    for (int i = 0; i < 5; i++) {
        assert_string_equal(g->values[g->values[g->grads[i]].param].name, order[i]);
    }
    dt_value grad = dt_graph_find(g, "shared.grad");
    assert_int_equal(node(g, "first.bwd")->out[1], grad);
    assert_int_equal(node(g, "last.bwd")->out[1], grad);
    assert_int_equal(g->values[grad].producer, dt_graph_find_node(g, "first.bwd"));
    assert_int_equal(node(g, "first.bwd")->out[0], DT_NONE); // x is an input
    assert_int_equal(count_op(g, DT_OP_add, false), 0);
    dt_graph_destroy(g);
}

TEST(uses_are_summed_and_positions_bound) {
    dt_graph *g = dt_graph_create("t", true);
    dt_value x = dt_linear(g, "l", input(g, "x", dt_shape2(4, 6)), 6, true);
    dt_value a = dt_relu(g, x), b = dt_gelu(g, x);
    add_mse(g, dt_add(g, a, b));
    int n_forward = g->n_nodes;
    differentiate(g);
    dt_node *gelu = node(g, "gelu.bwd"), *relu = node(g, "relu.bwd"), *linear = node(g, "l.bwd");
    dt_node *sum = &g->nodes[g->values[linear->in[3 + 1]].producer];
    assert_int_equal(sum->op, DT_OP_add);
    assert_int_equal(sum->in[0], gelu->out[0]); // in the order in which they arise
    assert_int_equal(sum->in[1], relu->out[0]);
    // [x] [y] [dy]: gelu reads x, relu reads y
    assert_int_equal(gelu->in[0], x);
    assert_int_equal(gelu->in[1], DT_NONE);
    assert_int_equal(relu->in[0], DT_NONE);
    assert_int_equal(relu->in[1], node(g, "relu")->out[0]);
    assert_int_equal(relu->in[2], gelu->in[2]); // both get the gradient of the sum
    assert_int_equal(relu->forward, dt_graph_find_node(g, "relu"));
    assert_int_equal(node(g, "mse.bwd")->n_in, 3 + 2 + 2);
    assert_true(g->n_nodes > n_forward);
    dt_graph_destroy(g);
}

TEST(differentiation_refuses) {
    dt_graph *g = dt_graph_create("t", true);
    dt_linear(g, "l", input(g, "x", dt_shape2(4, 6)), 6, true);
    must_fail(DT_E_USAGE, "no loss", dt_graph_differentiate(g));
    dt_graph_destroy(g);
    g = dt_graph_create("t", true);
    PARAM(g, "lonely", dt_shape1(3));
    add_mse(g, dt_linear(g, "l", input(g, "x", dt_shape2(4, 6)), 6, true));
    must_fail(DT_E_USAGE, "lonely does not reach the loss", dt_graph_differentiate(g));
    dt_graph_destroy(g);
}

// ---- passes ----------------------------------------------------------------------------------------
// conv - bn - relu - pool - conv - bn - add - relu - pool, then a classifier
static dt_graph *small_net(bool training, bool keep_middle) {
    dt_graph *g = dt_graph_create("t", training);
    float mean[1] = {0.5f}, std[1] = {0.25f};
    dt_value u8 = dt_input(g, "u8", DT_U8, dt_shape4(2, 9, 8, 1));
    dt_value x = dt_image_normalize(g, u8, DT_NONE, mean, std);
    dt_conv2d_opts conv = {.out = 4, .kernel = 3, .pad = 1};
    x = dt_relu(g, dt_batch_norm(g, "bn1", dt_conv2d(g, "conv1", x, &conv)));
    if (keep_middle) dt_output(g, "middle", x);
    x = dt_max_pool(g, x, 2, 2, 0);
    dt_value y = dt_batch_norm(g, "bn2", dt_conv2d(g, "conv2", x, &conv));
    y = dt_max_pool(g, dt_relu(g, dt_add(g, x, y)), 2, 2, 0);
    y = dt_relu(g, dt_linear(g, "fc1", dt_global_pool(g, y), 8, true));
    y = dt_linear(g, "fc2", dt_dropout(g, "drop", y, 0.5f), 3, true);
    dt_output(g, "logits", y);
    dt_value t = dt_input(g, "label", DT_I32, dt_shape1(2)), w = input(g, "weight", dt_shape1(2));
    dt_loss(g, DT_LOSS_cross_entropy, y, t, w, 0.1f, 0);
    must(dt_graph_check(g));
    return g;
}

TEST(fuse_merges_chains) {
    dt_graph *g = small_net(true, false);
    dt_value pooled = node(g, "max_pool")->out[0], argmax = node(g, "max_pool")->out[1];
    dt_value sum = node(g, "relu.1")->out[0];
    for (int twice = 0; twice < 2; twice++) {
        must(dt_pass_fuse(g));
        dt_node *bn1 = node(g, "bn1"), *bn2 = node(g, "bn2");
        assert_true(!bn1->dead && bn1->attrs.batch_norm.relu && bn1->attrs.batch_norm.pool);
        assert_int_equal(bn1->out[0], pooled);
        assert_int_equal(bn1->out[3], argmax);
        assert_string_equal(g->values[pooled].name, "bn1");
        assert_true(bn2->attrs.batch_norm.relu && !bn2->attrs.batch_norm.pool);
        assert_int_equal(bn2->n_in, 6);
        assert_int_equal(bn2->in[5], pooled);
        assert_int_equal(bn2->out[0], sum);
        assert_int_equal(node(g, "fc1")->attrs.linear.act, DT_ACTIVATION_relu);
        assert_int_equal(count_op(g, DT_OP_relu, false), 0);
        assert_int_equal(count_op(g, DT_OP_add, false), 0);
        assert_int_equal(count_op(g, DT_OP_max_pool, false), 1); // behind the residual
        for (int v = 0; v < g->n_values; v++) {
            dt_node_id p = g->values[v].producer;
            if (p != DT_NONE) assert_int_equal(g->nodes[p].out[g->values[v].out_index], v);
        }
    }
    differentiate(g);
    dt_node *b1 = node(g, "bn1.bwd"), *b2 = node(g, "bn2.bwd");
    // [6 or 5 inputs][6 outputs][6 gradients]
    assert_int_equal(b1->in[5 + 0], DT_NONE); // with the pool, argmax knows what ReLU clipped
    assert_int_equal(b1->in[5 + 3], argmax);
    assert_int_equal(b2->in[6 + 0], sum); // the mask of the ReLU
    assert_int_equal(b2->in[6 + 3], DT_NONE);
    assert_true(b2->out[5] != DT_NONE && b2->out[0] != DT_NONE);
    dt_graph_destroy(g);
}

// The gradient of a residual overwrites, and that of a parameter must add.
TEST(fuse_leaves_a_parameter_alone) {
    dt_graph *g = dt_graph_create("t", true);
    const dt_value x = dt_batch_norm(g, "bn", input(g, "x", dt_shape4(1, 4, 3, 3)));
    add_mse(g, dt_global_pool(g, dt_relu(g, dt_add(g, x, PARAM(g, "p", dt_shape4(1, 4, 3, 3))))));
    must(dt_pass_fuse(g));
    assert_int_equal(node(g, "bn")->n_in, 5);
    dt_graph_destroy(g);
}

// Bits for the ReLU behind a residual alone, and then its gradient does not read y.
TEST(relu_bits_replace_y) {
    dt_graph *g = small_net(true, false);
    must(dt_pass_fuse(g));
    differentiate(g);
    dt_node *b1 = node(g, "bn1"), *b2 = node(g, "bn2"), *d2 = node(g, "bn2.bwd");
    const dt_value argmax = b1->out[3];
    for (int twice = 0; twice < 2; twice++) {
        must(dt_pass_relu_bits(g));
        const dt_value bits = b2->out[3];
        const dt_value_info *v = dt_info_of(g, bits);
        assert_int_equal(b1->out[3], argmax);
        assert_int_equal(v->dtype, DT_U8);
        // (2,4,4,4): 32 pixels of 4 channels
        assert_true(v->shape.n == 2 && v->shape.d[0] == 2 * 4 * 4 && v->shape.d[1] == 1);
        assert_true(&g->nodes[v->producer] == b2 && v->out_index == 3);
        assert_int_equal(d2->in[6 + 0], DT_NONE);
        assert_int_equal(d2->in[6 + 3], bits);
    }
    dt_graph_destroy(g);
}

// Where the block's sum has two readers, its gradient's addition goes into the batch norm, which has one more input.
TEST(relu_bits_take_two_gradients) {
    dt_graph *g = dt_graph_create("t", true);
    dt_value x = input(g, "x", dt_shape4(2, 4, 4, 4));
    const dt_conv2d_opts same = {.out = 4, .kernel = 3, .pad = 1};
    x = dt_conv2d(g, "first", x, &same);
    dt_value y = dt_add(g, dt_batch_norm(g, "bn", dt_conv2d(g, "conv", x, &same)), x);
    y = dt_relu(g, y);
    y = dt_add(g, dt_conv2d(g, "a", y, &same), dt_conv2d(g, "b", y, &same));
    add_mse(g, dt_global_pool(g, y));
    must(dt_pass_fuse(g));
    differentiate(g);
    dt_node *d = node(g, "bn.bwd");
    const int n_in = d->n_in, n_add = count_op(g, DT_OP_add, false);
    const dt_node add = g->nodes[g->values[d->in[6 + 6]].producer];
    for (int twice = 0; twice < 2; twice++) {
        must(dt_pass_relu_bits(g));
        assert_int_equal(d->n_in, n_in + 1);
        assert_int_equal(d->in[6 + 6], add.in[0]);
        assert_int_equal(d->in[n_in], add.in[1]);
        assert_int_equal(count_op(g, DT_OP_add, false), n_add - 1);
    }
    dt_graph_destroy(g);
}

TEST(fuse_leaves_what_others_read) {
    dt_graph *g = small_net(true, true);
    must(dt_pass_fuse(g));
    assert_true(node(g, "bn1")->attrs.batch_norm.relu);
    assert_false(node(g, "bn1")->attrs.batch_norm.pool); // "middle" is an output
    assert_int_equal(g->outputs[0].value, node(g, "bn1")->out[0]);
    dt_graph_destroy(g);
    g = dt_graph_create("t", true); // windows that do not tile stay; so does a GELU in training
    static const int windows[4][3] = {{3, 2, 0}, {2, 1, 0}, {2, 2, 1}, {3, 3, 0}};
    dt_value x = input(g, "x", dt_shape4(2, 3, 9, 9));
    for (int i = 0; i < 4; i++) {
        dt_value y = dt_relu(g, dt_batch_norm(g, NULL, x));
        dt_max_pool(g, y, windows[i][0], windows[i][1], windows[i][2]);
    }
    dt_gelu(g, dt_linear(g, "l", input(g, "m", dt_shape2(2, 3)), 3, true));
    must(dt_pass_fuse(g));
    assert_int_equal(count_op(g, DT_OP_max_pool, false), 4);
    assert_int_equal(count_op(g, DT_OP_gelu, false), 1);
    dt_graph_destroy(g);
}

TEST(fuse_keeps_the_form_of_gelu) {
    for (int tanh = 0; tanh < 2; tanh++) {
        dt_graph *g = dt_graph_create("t", false);
        dt_value z = dt_linear(g, "l", input(g, "x", dt_shape2(2, 3)), 3, true);
        dt_output(g, "y", tanh ? dt_gelu_tanh(g, z) : dt_gelu(g, z));
        must(dt_pass_fuse(g));
        assert_int_equal(node(g, "l")->attrs.linear.act, tanh ? DT_ACTIVATION_gelu_tanh : DT_ACTIVATION_gelu);
        assert_int_equal(count_op(g, DT_OP_gelu, false), 0);
        dt_graph_destroy(g);
    }
}

TEST(fold_takes_batch_norms_in) {
    dt_graph *g = small_net(false, false);
    for (int twice = 0; twice < 2; twice++) {
        must(dt_pass_fold_bn(g));
        dt_node *c1 = node(g, "conv1"), *c2 = node(g, "conv2");
        assert_true(c1->attrs.conv2d.fold_bn && c2->attrs.conv2d.fold_bn);
        assert_int_equal(c1->attrs.conv2d.act, DT_ACTIVATION_relu);
        assert_int_equal(c2->attrs.conv2d.act, DT_ACTIVATION_none); // an add comes first
        assert_int_equal(c2->attrs.conv2d.bn_scale, dt_graph_find(g, "bn2.weight"));
        assert_int_equal(c2->attrs.conv2d.bn_mean, dt_graph_find(g, "bn2.running_mean"));
        assert_int_equal(count_op(g, DT_OP_batch_norm, false), 0);
        assert_int_equal(node(g, "max_pool")->in[0], c1->out[0]);
    }
    must(dt_pass_fuse(g));
    assert_int_equal(node(g, "fc1")->attrs.linear.act, DT_ACTIVATION_relu);
    dt_graph_destroy(g);
}

// Constants in the place of a scale, a shift or a bias are not packed.
TEST(fold_and_int8_leave_constants) {
    for (int i = 0; i < 4; i++) {
        dt_graph *g = dt_graph_create("t", false);
        const dt_conv2d_opts conv = {.out = 3, .kernel = 1, .bias = true};
        dt_value x = dt_conv2d(g, "conv", input(g, "x", dt_shape4(2, 6, 4, 4)), &conv);
        dt_output(g, "y", dt_batch_norm(g, "bn", x));
        dt_node *changed = node(g, i == 2 ? "conv" : "bn");
        if (i < 3) changed->in[i < 2 ? i + 1 : 2] = dt_full(g, dt_shape1(3), 1);
        assert_int_equal(dt_int8_is_layer(g, node(g, "conv")), i != 2);
        must(dt_pass_fold_bn(g));
        assert_int_equal(node(g, "conv")->attrs.conv2d.fold_bn, i == 3);
        dt_graph_destroy(g);
    }
}

static void check_low(const dt_graph *g, dt_dtype low) {
    for (int i = 0; i < g->n_nodes; i++) {
        const dt_node *n = &g->nodes[i];
        bool full = dt_op_get(n->op)->amp == DT_AMP_FULL;
        if (n->dead || n->op == DT_OP_cast) continue;
        for (int k = 0; k < n->n_in; k++) {
            if (n->in[k] == DT_NONE) continue;
            const dt_value_info *v = &g->values[n->in[k]];
            bool aux = v->producer != DT_NONE && !g->nodes[v->producer].backward && v->out_index > 0;
            if (v->kind == DT_V_TEMP && !aux) assert_int_equal(v->dtype, full ? DT_F32 : low);
            if (v->producer != DT_NONE) assert_true(v->producer < i);
        }
    }
    for (int v = 0; v < g->n_values; v++) {
        dt_value_kind k = g->values[v].kind;
        if (k == DT_V_PARAM || k == DT_V_BUFFER || k == DT_V_GRAD || k == DT_V_STAT) {
            assert_int_equal(g->values[v].dtype, DT_F32);
        }
    }
}

// Values of an instrument reach the network as f32 and are lowered once they are normalised.
TEST(amp_keeps_f32_images_until_normalised) {
    float mean[1] = {1e4f}, std[1] = {3};
    dt_graph *g = dt_graph_create("t", false);
    dt_value x = dt_input(g, "x", DT_F32, dt_shape4(2, 8, 8, 1));
    dt_output(g, "y", dt_relu(g, dt_image_normalize(g, x, DT_NONE, mean, std)));
    must(dt_pass_amp(g, DT_BF16));
    assert_int_equal(count_op(g, DT_OP_cast, false), 0);
    assert_int_equal(g->values[x].dtype, DT_F32);
    assert_int_equal(g->values[node(g, "image_normalize")->out[0]].dtype, DT_BF16);
    dt_graph_destroy(g);
}

TEST(amp_lowers_activations) {
    dt_graph *g = small_net(true, false);
    must(dt_pass_fuse(g));
    differentiate(g);
    int n_nodes = g->n_nodes;
    must(dt_pass_amp(g, DT_F32));
    assert_int_equal(g->n_nodes, n_nodes);
    for (int twice = 0; twice < 2; twice++) {
        must(dt_pass_amp(g, DT_BF16));
        check_low(g, DT_BF16);
        assert_int_equal(count_op(g, DT_OP_cast, false), 2);
    }
    assert_int_equal(g->values[node(g, "image_normalize")->out[0]].dtype, DT_BF16);
    assert_int_equal(g->values[node(g, "bn1")->out[1]].dtype, DT_F32);
    assert_int_equal(g->values[node(g, "bn1")->out[3]].dtype, DT_U8);
    dt_node *loss = node(g, "cross_entropy.bwd");
    assert_int_equal(loss->in[0], node(g, "fc2.cast")->out[0]);
    assert_int_equal(loss->forward, dt_graph_find_node(g, "cross_entropy"));
    dt_graph_destroy(g);
}

TEST(dead_code_goes) {
    dt_graph *g = small_net(true, false);
    dt_relu(g, dt_graph_find(g, "fc2"));
    dt_global_pool(g, dt_scale(g, dt_graph_find(g, "conv1"), 2.0f));
    differentiate(g);
    int n_live = 0;
    for (int twice = 0; twice < 2; twice++) {
        must(dt_pass_dead_code(g));
        int n = 0;
        for (int i = 0; i < g->n_nodes; i++) n += !g->nodes[i].dead;
        if (twice) assert_int_equal(n, n_live);
        n_live = n;
    }
    assert_int_equal(count_op(g, DT_OP_scale, false), 0);
    assert_int_equal(count_op(g, DT_OP_global_pool, false), 1);
    assert_int_equal(count_op(g, DT_OP_batch_norm, false), 2);
    assert_true(!node(g, "conv1.bwd")->dead && !node(g, "cross_entropy")->dead);
    assert_true(node(g, "relu.3")->dead);
    dt_graph_destroy(g);
}

static bool has_name(const dt_graph *g, const char *name) {
    for (int v = 0; v < g->n_values; v++) {
        if (strcmp(g->values[v].name, name) == 0) return dt_graph_find(g, name) == v;
    }
    return false;
}

TEST(passes_lose_no_name) {
    dt_graph *before = small_net(true, false), *g = small_net(true, false);
    must(dt_pass_fuse(g));
    differentiate(g);
    must(dt_pass_amp(g, DT_BF16));
    must(dt_pass_dead_code(g));
    for (int v = 0; v < before->n_values; v++) {
        if (!has_name(g, before->values[v].name)) fail_msg("lost %s", before->values[v].name);
    }
    const char *kept[] = {"conv1", "bn1", "conv2", "bn2", "fc1", "drop", "fc2", "cross_entropy"};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        assert_false(node(g, kept[i])->dead);
        assert_string_equal(node(g, kept[i])->name, kept[i]);
    }
    assert_string_equal(g->nodes[node(g, "drop.bwd")->forward].name, "drop");
    dt_graph_destroy(before);
    dt_graph_destroy(g);
}

TEST(print_has_a_line_a_node) {
    dt_graph *g = small_net(true, false);
    must(dt_pass_fuse(g));
    differentiate(g);
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *f = open_memstream(&text, &n_bytes);
    dt_graph_print(g, f);
    fclose(f);
    int n_live = 0, n_lines = 0;
    for (int i = 0; i < g->n_nodes; i++) n_live += !g->nodes[i].dead;
    for (size_t i = 0; i < n_bytes; i++) n_lines += text[i] == '\n';
    assert_int_equal(n_lines, n_live + 3);
    assert_non_null(strstr(text, "relu pool 2x2/2"));
    assert_non_null(strstr(text, "conv1.weight (4,1,3,3)f32"));
    assert_non_null(strstr(text, "output logits: fc2 (2,3)f32"));
    char count[64];
    snprintf(count, sizeof count, "parameters: %d in 10 tensors", 36 + 8 + 144 + 8 + 40 + 27);
    assert_non_null(strstr(text, count));
    free(text);
    dt_graph_destroy(g);
}

TEST(costs_add_up) {
    dt_graph *g = small_net(true, false);
    char *text = NULL, *last, want[64];
    size_t n_bytes = 0;
    FILE *f = open_memstream(&text, &n_bytes);
    dt_graph_print_costs(g, f);
    dt_graph_write_dot(g, f);
    fclose(f);
    last = strstr(text, "all, a sample");
    snprintf(want, sizeof want, " %d ", 36 + 8 + 144 + 8 + 40 + 27);
    assert_non_null(last);
    assert_true(strstr(last, want) != NULL && strstr(last, want) < strchr(last, '\n'));
    // conv1: (2,4,h,w), 9 multiplications an element and sample
    const dt_shape *s = &dt_info_of(g, node(g, "conv1")->out[0])->shape;
    snprintf(want, sizeof want, "%.3f", (double)(s->d[1] * s->d[2] * s->d[3]) * 18 / 1e6);
    assert_non_null(strstr(strstr(text, "conv1"), want));
    assert_non_null(strstr(text, "digraph"));
    int n_boxes = 0, n_forward = 0;
    for (const char *p = text; (p = strstr(p, "xlabel")); p++) n_boxes++;
    for (int i = 0; i < g->n_nodes; i++) n_forward += g->nodes[i].out[0] != DT_NONE;
    assert_int_equal(n_boxes, n_forward);
    free(text);
    dt_graph_destroy(g);
}

TEST_MAIN(NULL, NULL)
