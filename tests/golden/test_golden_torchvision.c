// test_golden_torchvision.c: ResNets and Vision Transformers beside torchvision's (make_torchvision.py): the
// same weights and images give the same logits, gradients and, after five steps of SGD with momentum or
// AdamW, the same parameters and running statistics; and a state dict that torchvision saved loads.
//
// What a tensor is compared by: its norm, a dot product with a formula, eight elements. Tolerances are
// relative to the norm (norm and dot product) and to the largest of the elements, and a few times what
// PyTorch's own float32 differs from its float64 (make_torchvision.py --float32).
//
// GOLDEN_TORCHVISION=FILE runs the full-size cases of `make_torchvision.py --full FILE` instead.

#include "config/words.h"
#include "golden_network.h"

enum { PROBES = 8, STEPS = 5 };

typedef struct tolerances {
    double logits, loss, sums, elements; // sums: norms and dot products of gradients and of results
} tolerances;

typedef struct network_case {
    const char *name, *model;
    int side;
    tolerances tol;
    dt_optimizer_id optimizer;
    bool once; // logits and gradients of one step
    bool slow; // minutes in an emulator, which leaves it out (GOLDEN_STEPS)
} network_case;

static const network_case small[] = {
    {"resnet18", "name: resnet, depth: 18", 64, {2e-5, 1e-3, 1e-3, 2e-3}, DT_OPTIMIZER_sgd},
    {"resnet50", "name: resnet, depth: 50", 64, {2e-5, 1e-2, 2e-2, 5e-2}, DT_OPTIMIZER_sgd, .slow = true},
    {"vit", "name: vit, patch: 8, dim: 64, heads: 4, blocks: 3", 32, {1e-5, 1e-5, 1e-3, 5e-3}, DT_OPTIMIZER_adamw},
};
static const tolerances ONE_STEP = {2e-5, 1e-4, 1e-3, 2e-3};
static const struct {
    const char *name, *model;
    int side;
    bool slow;
} once[] = {
    {"resnet_d_se", "name: resnet, depth: 10, stem: deep, avg_down: true, se: true", 64},
    {"convnext", "name: convnext", 64, .slow = true},
    {"mobilenet_v3_l", "name: mobilenet_v3", 96},
    {"mobilenet_v3_s", "name: mobilenet_v3, size: s", 96},
    {"efficientnet_b0", "name: efficientnet", 64},
};
static const network_case full[] = {
    {"resnet18_224", "name: resnet, depth: 18", 224, {2e-5, 5e-3, 1e-1, 2e-1}, DT_OPTIMIZER_sgd},
    {"resnet34_224", "name: resnet, depth: 34", 224, {2e-5, 5e-3, 1e-1, 2e-1}, DT_OPTIMIZER_sgd},
    {"resnet50_224", "name: resnet, depth: 50", 224, {2e-5, 5e-3, 1e-1, 2e-1}, DT_OPTIMIZER_sgd},
    {"vit_b_16", "name: vit", 224, {1e-5, 1e-4, 1e-3, 2e-2}, DT_OPTIMIZER_adamw},
};

static dt_optimizer_args optimizer_of(dt_optimizer_id kind) {
    return kind == DT_OPTIMIZER_sgd ? (dt_optimizer_args){.kind = kind, .lr = 2e-3f, .hyper = {0.9f}}
                                    : (dt_optimizer_args){.kind = kind, .lr = 1e-3f, .hyper = {0.9f, 0.999f, 1e-6f}};
}

static void yaml_of(char *text, size_t cap, const char *model, int batch, int side, int classes) {
    snprintf(text, cap,
             "run: {name: golden}\n"
             "data: {path: none, fields: {image: {kind: image, size: [%d, %d]},\n"
             "  class: {kind: class, classes: %d}}}\n"
             "model: {%s}\n"
             "train: {global_batch: %d, micro_batch: %d}\n",
             side, side, classes, model, batch, batch);
}

// Compares a tensor with its ten golden numbers; keeps the largest errors in worst. Not vectorized: GCC 12 for arm64 ends
// there with an internal error.
__attribute__((optimize("no-tree-vectorize"))) static void compare_tensor(const dt_safetensors *file,
                                                                          const network_case *c, const char *group,
                                                                          const dt_param_entry *e, const float *flat,
                                                                          double factor, tolerances *worst) {
    char prefix[64], what[320];
    snprintf(prefix, sizeof prefix, "%s/%s", c->name, group);
    snprintf(what, sizeof what, "%s of %s (%s)", group, e->name, c->name);
    const float *want = golden_find(file, prefix, e->name, NULL), *x = flat + e->offset;
    if (!want) fail_msg("no golden numbers: %s", what);
    double norm = 0, dot = 0, largest = 1e-12;
    for (int64_t i = 0; i < e->count; i++) {
        double v = (double)x[i] * factor;
        norm += v * v;
        dot += v * (2 * golden_mixed(i, 7) - 1);
    }
    // What is zero but for rounding: shifts before another batch norm.
    if ((double)want[0] < 1e-12 * sqrt((double)e->count) && c->once) {
        if (sqrt(norm / (double)e->count) > 1e-5) fail_msg("%s: %g, golden zero", what, sqrt(norm / (double)e->count));
        return;
    }
    // A gradient that is nothing but rounding (the bias of keys) is compared with its kind's size.
    double scale = fmax((double)want[0], 1e-7 * sqrt((double)e->count));
    double sums = fmax(fabs(sqrt(norm) - (double)want[0]), fabs(dot - (double)want[1])) / scale;
    double elements = 0;
    for (int i = 0; i < PROBES; i++) largest = fmax(largest, fabs((double)want[2 + i]));
    largest = fmax(largest, scale / sqrt((double)e->count));
    for (int i = 0; i < PROBES; i++)
        elements = fmax(elements, fabs((double)x[(e->count / PROBES) * i] * factor - (double)want[2 + i]) / largest);
    worst->sums = fmax(worst->sums, sums);
    worst->elements = fmax(worst->elements, elements);
    if (!(sums <= c->tol.sums) || !(elements <= c->tol.elements))
        fail_msg("%s: norm %g and dot product %g, golden %g and %g (error %.2g, allowed %.2g); "
                 "elements differ by %.2g of the largest, allowed %.2g",
                 what, sqrt(norm), dot, (double)want[0], (double)want[1], sums, c->tol.sums, elements, c->tol.elements);
}

static void compare_logits(const dt_safetensors *file, const network_case *c, const dt_exec *e, tolerances *worst) {
    const dt_shape shape = golden_shape(file, c->name, "logits");
    const int64_t n = dt_shape_elements(&shape);
    float *logits = malloc((size_t)n * sizeof *logits);
    assert_int_equal(dt_exec_output(e, "logits", logits, n), n);
    const float *want = golden_find(file, c->name, "logits", NULL);
    double largest = 0, error = 0;
    for (int64_t i = 0; i < n; i++) {
        largest = fmax(largest, fabs((double)want[i]));
        error = fmax(error, fabs((double)logits[i] - (double)want[i]));
    }
    worst->logits = error / largest;
    golden_compare("logits", logits, want, n, c->tol.logits);
    free(logits);
}

static void run_case(const dt_safetensors *file, const network_case *c, int threads) {
    char yaml[1024];
    const dt_shape out = golden_shape(file, c->name, "logits");
    const int batch = (int)out.d[0], classes = (int)out.d[1];
    yaml_of(yaml, sizeof yaml, c->model, batch, c->side, classes);
    dt_field_info fields[2] = {golden_image_field("image", c->side, c->side, 3),
                               {.name = "class", .dtype = DT_I32, .n_classes = classes}};
    golden_network n;
    golden_network_create(&n, yaml, fields, 2, batch, true, DT_F32, threads);
    dt_params *p = n.params;
    golden_fill_weights(p);
    uint8_t *image = golden_u8((int64_t)batch * c->side * c->side * 3, 1);
    int32_t label[16];
    float weight[16];
    for (int i = 0; i < batch; i++) {
        label[i] = (int32_t)(golden_mixed(i, 3) * classes);
        weight[i] = 1;
    }
    assert_true(dt_exec_bind(n.exec, "image", image) && dt_exec_bind(n.exec, "class", label));
    assert_true(dt_exec_bind(n.exec, "weight", weight));
    const float *losses = golden_find(file, c->name, "losses", NULL);
    if (!losses) fail_msg("no golden losses of %s", c->name);
    tolerances worst = {0}, after = {0};
    for (int step = 0; step < (c->once ? 1 : STEPS); step++) {
        float loss = golden_network_step(&n, step, batch, optimizer_of(c->optimizer));
        worst.loss = fmax(worst.loss, fabs((double)(loss - losses[step])) / (double)losses[step]);
        if (step == 0) {
            compare_logits(file, c, n.exec, &worst);
            for (int i = 0; i < p->n_entries; i++)
                compare_tensor(file, c, "grad", &p->entries[i], p->grads[0], 1.0 / batch, &worst);
        }
        golden_compare("loss", &loss, &losses[step], 1, c->tol.loss);
    }
    for (int i = 0; i < p->n_entries && !c->once; i++)
        compare_tensor(file, c, "after", &p->entries[i], p->master, 1, &after);
    for (int i = 0; i < p->n_buffers && !c->once; i++)
        compare_tensor(file, c, "after", &p->buffers[i], p->buffer, 1, &after);
    print_message("%s: logits %.1e, losses %.1e; gradients: norms %.1e, elements %.1e; after %d "
                  "steps: norms %.1e, elements %.1e\n",
                  c->name, worst.logits, worst.loss, worst.sums, worst.elements, STEPS, after.sums, after.elements);
    free(image);
    golden_network_destroy(&n);
}

TEST(networks_are_torchvisions) {
    dt_safetensors *file = golden_open("torchvision.safetensors");
    const bool few = golden_steps(STEPS) < STEPS;
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        network_case c = small[i];
        c.once = few;
        if (!few || !c.slow) run_case(file, &c, 2);
    }
    for (size_t i = 0; i < sizeof once / sizeof *once; i++)
        if (!few || !once[i].slow)
            run_case(file, &(network_case){once[i].name, once[i].model, once[i].side, ONE_STEP, DT_OPTIMIZER_sgd, true},
                     2);
    dt_safetensors_close(file);
}

static void full_size(void **state) {
    dt_safetensors *file = NULL;
    must(dt_safetensors_open(&file, getenv("GOLDEN_TORCHVISION")));
    for (size_t i = 0; i < sizeof full / sizeof *full; i++) run_case(file, &full[i], 2);
    dt_safetensors_close(file);
}

// ---- a state dict of torchvision -------------------------------------------------------------------
enum { NARROW_BATCH = 3, NARROW_SIDE = 32, NARROW_CLASSES = 7, MAX_TENSORS = 128 };

static void narrow_create(golden_network *n, int classes) {
    char yaml[1024];
    yaml_of(yaml, sizeof yaml, "name: resnet, depth: 10, width: 4", NARROW_BATCH, NARROW_SIDE, classes);
    dt_field_info fields[2] = {golden_image_field("image", NARROW_SIDE, NARROW_SIDE, 3),
                               {.name = "class", .dtype = DT_I32, .n_classes = classes}};
    golden_network_create(n, yaml, fields, 2, NARROW_BATCH, false, DT_F32, 1);
}

static dt_status import(golden_network *n, const char *keep, int *n_taken) {
    char path[4096];
    const char *source = getenv("SOURCE");
    dt_ckpt_tensor tensors[MAX_TENSORS];
    snprintf(path, sizeof path, "%s/tests/golden/resnet_small.safetensors", source ? source : ".");
    return dt_ckpt_import(path, &(dt_ckpt_import_opts){.keep = &keep, .n_keep = keep != NULL}, tensors,
                          golden_tensors(n->params, tensors), n_taken);
}

TEST(a_state_dict_loads) {
    golden_network n;
    int n_taken = 0;
    narrow_create(&n, NARROW_CLASSES);
    must(import(&n, NULL, &n_taken));
    assert_int_equal(n_taken, n.params->n_entries + n.params->n_buffers);
    dt_params_repack(n.params);
    uint8_t *image = golden_u8(NARROW_BATCH * NARROW_SIDE * NARROW_SIDE * 3, 1);
    assert_true(dt_exec_bind(n.exec, "image", image));
    dt_safetensors *file = golden_open("torchvision.safetensors");
    golden_network_check(&n, file, "narrow", "class", 1e-5);
    dt_safetensors_close(file);
    free(image);
    golden_network_destroy(&n);
}

TEST(other_classes_want_a_word) {
    golden_network n;
    int n_taken = 0;
    narrow_create(&n, 5);
    const dt_param_entry *fc = &n.params->entries[dt_params_find(n.params, "fc.weight", false)];
    const dt_param_entry *conv = &n.params->entries[dt_params_find(n.params, "conv1.weight", false)];
    float head = n.params->master[fc->offset], stem = n.params->master[conv->offset];
    must_fail(DT_E_CKPT, "'fc.weight' is (7,32), this model expects (5,32)", import(&n, NULL, &n_taken));
    assert_non_null(strstr(dt_error_message(), "model.init_keep=fc"));
    assert_true(n.params->master[conv->offset] == stem); // nothing was changed
    must_fail(DT_E_USAGE, "head", import(&n, "head", &n_taken));
    must(import(&n, "fc", &n_taken));
    assert_int_equal(n_taken, n.params->n_entries + n.params->n_buffers - 2);
    assert_true(n.params->master[fc->offset] == head);
    assert_true(n.params->master[conv->offset] != stem);
    golden_network_destroy(&n);
}

TEST(another_depth_is_told) {
    char yaml[1024];
    dt_field_info fields[2] = {golden_image_field("image", NARROW_SIDE, NARROW_SIDE, 3),
                               {.name = "class", .dtype = DT_I32, .n_classes = NARROW_CLASSES}};
    golden_network n;
    int n_taken = 0;
    yaml_of(yaml, sizeof yaml, "name: resnet, depth: 18, width: 4", NARROW_BATCH, NARROW_SIDE, NARROW_CLASSES);
    golden_network_create(&n, yaml, fields, 2, NARROW_BATCH, false, DT_F32, 1);
    must_fail(DT_E_CKPT, "looks like model.depth 10, the config says 18", import(&n, NULL, &n_taken));
    golden_network_destroy(&n);
}

int main(void) {
    const struct CMUnitTest by_hand[] = {cmocka_unit_test(full_size)};
    if (getenv("GOLDEN_TORCHVISION")) return cmocka_run_group_tests(by_hand, NULL, NULL);
    return run_all_tests(NULL, NULL);
}
