// test_golden_fusion.c: the whole fusion network, and the MLP, against PyTorch (make_fusion.py): the same weights and
// inputs give the same logits, gradients and, after five AdamW steps, parameters.
//
// Tolerances are relative to the largest golden value of each group and a few times what PyTorch's own
// float32 differs from its float64 (make_fusion.py --float32).

#include "config/words.h"
#include "golden_network.h"

enum { N = 4, CLASSES = 45, STEPS = 5 };

static const char fusion_yaml[] =
    "run: {name: golden}\n"
    "data: {path: none, fields: {fingerprint: {kind: image, channels: 1, size: [26, 24]},\n"
    "  iris: {kind: image, channels: 3, size: [24, 32]}, subject: {kind: class, classes: 45}}}\n"
    "model: {name: fusion}\n"
    "train: {global_batch: 4, micro_batch: 4}\n";
static const char mlp_yaml[] = "run: {name: golden}\n"
                               "data: {path: none, fields: {x: {kind: vector, source: [a, b, c, d, e, f]},\n"
                               "  y: {kind: real}, subject: {kind: class, classes: 45}}}\n"
                               "model: {name: mlp, hidden: 16}\n"
                               "train: {global_batch: 4, micro_batch: 4, targets: {subject: {loss: cross_entropy}}}\n";

static void compare_probes(const dt_safetensors *file, const char *group, const dt_params *p, const float *flat,
                           double factor, double tol) {
    for (int k = 0; k < p->n_entries; k++) {
        const dt_param_entry *e = &p->entries[k];
        const float *want = golden_find(file, group, e->name, NULL);
        if (!want) fail_msg("no golden %s/%s", group, e->name);
        char what[256];
        snprintf(what, sizeof what, "%s of %s", group, e->name);
        golden_compare_probes(what, flat + e->offset, e->count, factor, want, tol);
    }
}

typedef struct tolerances {
    double logits, grad, after, loss;
} tolerances;

typedef struct input {
    dt_field_info field;
    void *values;
} input;

static float *make_numbers(int64_t n, uint64_t salt) {
    float *x = malloc((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = (float)(2 * golden_mixed(i, salt) - 1);
    return x;
}

// `logits`: the output's name.
static void run_network(const char *name, const char *yaml, const char *logits_name, input in[2], dt_dtype type,
                        int threads, tolerances tol) {
    dt_safetensors *file = golden_open("fusion.safetensors");
    const dt_field_info fields[3] = {
        in[0].field, in[1].field, {.name = "subject", .dtype = DT_I32, .n_classes = CLASSES}};
    golden_network n;
    golden_network_create(&n, yaml, fields, 3, N, true, type, threads);
    dt_params *p = n.params;
    golden_fill_weights(p);
    int32_t label[N];
    float weight[N] = {1, 1, 1, 1};
    for (int i = 0; i < N; i++) label[i] = (int32_t)(golden_mixed(i, 3) * CLASSES);
    for (int i = 0; i < 2; i++) assert_true(dt_exec_bind(n.exec, in[i].field.name, in[i].values));
    assert_true(dt_exec_bind(n.exec, "subject", label) && dt_exec_bind(n.exec, "weight", weight));

    const dt_optimizer_args adamw = {.kind = DT_OPTIMIZER_adamw, .lr = 1e-3f, .hyper = {0.9f, 0.999f, 1e-8f}};
    const float *losses = golden_find(file, name, "losses", NULL);
    const int steps = golden_steps(STEPS);
    for (int step = 0; step < steps; step++) {
        float loss = golden_network_step(&n, step, N, adamw);
        golden_compare("loss", &loss, &losses[step], 1, tol.loss);
        if (step == 0) {
            float logits[N * CLASSES];
            assert_int_equal(dt_exec_output(n.exec, logits_name, logits, N * CLASSES), N * CLASSES);
            golden_compare("logits", logits, golden_find(file, name, "logits", NULL), N * CLASSES, tol.logits);
            compare_probes(file, "grad", p, p->grads[0], 1.0 / N, tol.grad);
        }
    }
    if (steps == STEPS) compare_probes(file, "after", p, p->master, 1, tol.after);
    for (int i = 0; i < 2; i++) free(in[i].values);
    golden_network_destroy(&n);
    dt_safetensors_close(file);
}

static void run_fusion(int threads) {
    input in[2] = {{golden_image_field("fingerprint", 26, 24, 1), golden_u8(N * 26 * 24, 1)},
                   {golden_image_field("iris", 24, 32, 3), golden_u8(N * 24 * 32 * 3, 2)}};
    run_network("fusion", fusion_yaml, "logits", in, DT_F32, threads, (tolerances){1e-5, 1e-4, 1e-4, 1e-4});
}

TEST(test_f32_one_thread) {
    run_fusion(1);
}

TEST(test_f32_two_threads) {
    run_fusion(2);
}

TEST(test_mlp) {
    input in[2] = {{{.name = "x", .dtype = DT_F32, .sample_shape = dt_shape1(6)}, make_numbers(N * 6, 4)},
                   {{.name = "y", .dtype = DT_F32}, make_numbers(N, 5)}};
    run_network("mlp", mlp_yaml, "subject.logits", in, DT_F32, 2, (tolerances){1e-5, 1e-4, 1e-4, 1e-4});
}

TEST_MAIN(NULL, NULL)
