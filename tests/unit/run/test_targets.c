// train.targets: a head and a loss for each, weighted and summed; which fields can be targets, and what is refused.
#include "small_network.h"
#include "testing.h"

#include "run/batch_inputs.h"

#include <math.h>

static const char model[] = "name: resnet, depth: 10, width: 8";

// ---- numbers ---------------------------------------------------------------------------------------

static const float *grad_of(const network *n, const char *name, int64_t *count) {
    const int id = dt_params_find(n->params, name, false);
    if (id < 0) fail_msg("no parameter %s", name);
    *count = n->params->entries[id].count;
    return n->params->grads[0] + n->params->entries[id].offset;
}

// The trunk's gradient is the weighted sum of those of the same network with one target each, a head's its own times
// the weight; so is the loss.
TEST(test_weighted_sum) {
    static const float weights[3] = {1, 0.5f, 3};
    static const char *const lines[3] = {"  targets: {label: {loss: focal, focal_gamma: 1}}",
                                         "  targets: {glasses: {loss: bce}}",
                                         "  targets: {mood: {loss: cross_entropy}}"};
    network all, one[3];
    double loss = 0;
    run_targets(&all, model,
                "  targets: {mood: {weight: 3}, glasses: {loss: bce, weight: 0.5}, label: {loss: "
                "focal, focal_gamma: 1}}",
                3, DT_F32);
    for (int i = 0; i < 3; i++) {
        run_targets(&one[i], model, lines[i], 3, DT_F32);
        loss += (double)weights[i] * pass_small(&one[i]);
    }
    assert_float_equal(pass_small(&all), loss, 1e-5 * loss);
    for (int e = 0; e < all.params->n_entries; e++) {
        const char *name = all.params->entries[e].name;
        int64_t n;
        const float *g = grad_of(&all, name, &n);
        double error = 0, norm = 0;
        for (int64_t k = 0; k < n; k++) {
            double want = 0;
            for (int i = 0; i < 3; i++)
                if (dt_params_find(one[i].params, name, false) >= 0)
                    want += (double)weights[i] * (double)grad_of(&one[i], name, &n)[k];
            error += pow((double)g[k] - want, 2);
            norm += want * want;
        }
        assert_true(norm > 0);
        if (!(error <= 1e-9 * norm)) fail_msg("%s: error %g of %g", name, error, norm);
    }
    for (int i = 0; i < 3; i++) drop_network(&one[i]);
    drop_network(&all);
}

TEST(test_heads) {
    network n;
    run_targets(&n, "name: vit, patch: 8, dim: 32, heads: 2, blocks: 1", "  targets: {label: {}, mood: {loss: bce}}", 3,
                DT_F32);
    assert_true(dt_params_find(n.params, "heads.head.label.weight", false) >= 0);
    assert_true(dt_params_find(n.params, "heads.head.mood.bias", false) >= 0);
    assert_true(dt_params_find(n.params, "heads.head.weight", false) < 0);
    assert_int_equal(n.graph->n_outputs, 3); // and the embedding
    assert_true(dt_graph_find(n.graph, "glasses") == DT_NONE);
    drop_network(&n);
    run_targets(&n, model, "  loss: cross_entropy", 1,
                DT_F32); // one target: names as without train.targets
    assert_true(dt_params_find(n.params, "fc.weight", false) >= 0);
    assert_string_equal(n.graph->outputs[n.graph->n_outputs - 1].name, "logits");
    drop_network(&n);
}

// The keys beside a loss are those of its nodes.
static const dt_attrs *attrs_of(const network *n, dt_op op) {
    for (int i = 0; i < n->graph->n_nodes; i++)
        if (n->graph->nodes[i].op == op && !n->graph->nodes[i].backward) return &n->graph->nodes[i].attrs;
    fail_msg("no such node");
    return NULL;
}

TEST(test_keys) {
    network n;
    run_targets(&n, model, "  label_smoothing: 0.25\n  loss: focal\n  focal_gamma: 3", 1, DT_F32);
    assert_float_equal(attrs_of(&n, DT_OP_loss)->loss.smoothing, 0.25, 0);
    assert_float_equal(attrs_of(&n, DT_OP_loss)->loss.param, 3, 0);
    drop_network(&n);
    run_targets(&n, model, "  targets: {mood: {loss: cross_entropy, label_smoothing: 0.5}}", 3, DT_F32);
    assert_float_equal(attrs_of(&n, DT_OP_loss)->loss.smoothing, 0.5, 0);
    drop_network(&n);
    run_targets(&n, model,
                "  loss: arcface\n  arcface_margin: 0.25\n  arcface_scale: 8\n"
                "  triplet_weight: 2\n  triplet_margin: 0.75\n  triplet_semihard: true",
                1, DT_F32);
    assert_float_equal(attrs_of(&n, DT_OP_arc_margin)->arc_margin.margin, 0.25, 0);
    assert_float_equal(attrs_of(&n, DT_OP_arc_margin)->arc_margin.scale, 8, 0);
    assert_float_equal(attrs_of(&n, DT_OP_triplet)->triplet.margin, 0.75, 0);
    assert_float_equal(attrs_of(&n, DT_OP_triplet)->triplet.share, 2, 0);
    assert_true(attrs_of(&n, DT_OP_triplet)->triplet.semihard);
    drop_network(&n);
}

// ---- what is refused -------------------------------------------------------------------------------

TEST(test_refused) {
    static const struct {
        const char *train;
        int n_targets;
        const char *message;
    } cases[] = {
        {"", 0, "t.yaml:2:25: there is nothing to predict"},
        {"", 2, "2 fields could be the target: label (class), glasses (number). Keep"},
        {"", 2, "t.yaml:2:107: "},
        {"", 3,
         "3 fields could be the target: label (class), glasses (number), mood (vector). Keep "
         "one of them (data.balance, data.split and data.where name columns, which need no field), "
         "or name those to predict, each with its loss: train.targets: {label: {loss: "
         "cross_entropy}, …}"},
        {"  loss: mse", 1,
         "t.yaml:7:9: train.loss mse does not fit: field label is a class, which "
         "these take: cross_entropy, focal"},
        {"  targets: {mod: {loss: mse}}", 3,
         "t.yaml:7:18: train.targets.mod: 'mod' is no class, number or vector of data.fields; did "
         "you mean 'mood'?"},
        {"  targets: {image: {loss: mse}}", 3,
         "'image' is no class, number or vector of data.fields; expected one of label, glasses, "
         "mood"},
        {"  targets: {label: {}, glasses: {loss: focal}}", 3,
         "t.yaml:7:40: train.targets.glasses.loss focal does not fit: field glasses is a number"},
        {"  loss: bce\n  targets: {glasses: {loss: bce}}", 3, "t.yaml:7:9: train.loss is for a single target"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dt_config *c = parse_small(model, cases[i].train);
        dt_targets t;
        assert_int_equal(dt_targets_read(&t, c, small_fields, 1 + cases[i].n_targets, true), DT_E_USAGE);
        assert_message(cases[i].message);
        dt_config_destroy(c);
    }
}

// A class beside numbers, without an image, is the target: no network reads a class.
TEST(test_class_of_numbers) {
    dt_config *c = parse_small(model, "");
    dt_targets t;
    must(dt_targets_read(&t, c, small_fields + 1, 2, true));
    assert_true(t.n == 1 && !t.named && t.items[0].field == &small_fields[1]);
    must_fail(DT_E_USAGE, "3 fields could be the target", dt_targets_read(&t, c, small_fields + 1, 3, true));
    must_fail(DT_E_USAGE, "2 fields could be the target: glasses (number), mood (vector)",
              dt_targets_read(&t, c, small_fields + 2, 2, true));
    dt_config_destroy(c);
}

// ---- shares ----------------------------------------------------------------------------------------

static dt_status check_shares(const char *train, int n_targets, const float *x, float weight) {
    dt_config *c = parse_small(model, train);
    dt_targets t;
    int64_t sample = 17;
    must(dt_targets_read(&t, c, small_fields, 1 + n_targets, true));
    dt_batch b = {.n = 1, .n_valid = 1, .weight = &weight, .sample = &sample};
    b.field[t.items[0].index] = (void *)x;
    const dt_status st = dt_batch_check_targets(&b, &t);
    dt_config_destroy(c);
    return st;
}

TEST(test_shares) {
    const char *shares = "  targets: {mood: {loss: cross_entropy}}", *labels = "  targets: {mood: {loss: bce}}";
    const float good[] = {0.333f, 0.333f, 0.333f}, more[] = {1, 1, 0}, negative[] = {1.5f, -0.5f, 0};
    const float nan[] = {NAN, 0, 1};
    must(check_shares(shares, 3, good, 1));
    must(check_shares(labels, 3, more, 1));
    must(check_shares("  targets: {mood: {loss: mse}}", 3, negative, 1));
    assert_int_equal(check_shares("  targets: {mood: {loss: mse}}", 3, nan, 1), DT_E_DATA);
    assert_message("field mood of sample 17 has nan, and a number to predict is finite");
    must(check_shares(shares, 3, more, 0)); // a skipped record
    assert_int_equal(check_shares(shares, 3, more, 1), DT_E_DATA);
    assert_message("field mood of sample 17 adds up to 2, and cross_entropy expects shares");
    assert_int_equal(check_shares(shares, 3, negative, 1), DT_E_DATA);
    assert_message("field mood of sample 17 has 1.5, and cross_entropy expects shares of classes of 0..1");
    assert_int_equal(check_shares(labels, 3, nan, 1), DT_E_DATA);
    assert_int_equal(check_shares("  targets: {glasses: {loss: bce}}", 3, negative, 1), DT_E_DATA);
    assert_message("field glasses of sample 17 has 1.5, and bce expects numbers of 0..1");
}

TEST_MAIN(NULL, NULL)
