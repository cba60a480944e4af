// test_golden_onnx_networks.c: eleven networks of different kinds as both exporters of PyTorch write them
// (make_onnx_networks.py). Their loss and, after a step of SGD, weights are PyTorch's within 1e-5; and those of
// the first exporter train. Statistics are not compared: an exporter that runs the network in training mode moves them.
#include "golden_network.h"

#include "config/words.h"

enum { BATCH = 4, STEPS = 50 };
static char folder[4096];

static void bind_inputs(golden_network *n, const float *x) {
    static int32_t y[BATCH];
    static float weight[BATCH];
    for (int i = 0; i < BATCH; i++) y[i] = i % 5, weight[i] = 1;
    assert_true(dt_exec_bind(n->exec, "image", x) && dt_exec_bind(n->exec, "y", y) &&
                dt_exec_bind(n->exec, "weight", weight));
}

// Every tensor that PyTorch has, by its name.
static int compare_after(const dt_safetensors *file, const char *name, dt_params *p) {
    char prefix[128];
    int n = 0;
    snprintf(prefix, sizeof prefix, "%s/after/", name);
    for (int i = 0; i < dt_safetensors_count(file); i++) {
        const char *key = dt_safetensors_name(file, i);
        if (strncmp(key, prefix, strlen(prefix)) != 0) continue;
        const char *tensor = key + strlen(prefix);
        const int at = dt_params_find(p, tensor, false);
        if (at < 0) fail_msg("%s: no tensor %s", name, tensor);
        golden_compare_probes(tensor, p->master + p->entries[at].offset, p->entries[at].count, 1,
                              golden_find(file, name, key + strlen(name) + 1, NULL), 1e-5);
        n++;
    }
    return n;
}

static void run_file(const dt_safetensors *file, const char *name, const char *exporter) {
    char yaml[8192];
    const float *x = golden_find(file, name, "x", NULL), *loss = golden_find(file, name, "loss", NULL);
    const dt_shape shape = golden_shape(file, name, "x");
    dt_field_info fields[2] = {{.name = "image", .dtype = DT_F32, .is_image = shape.n == 4},
                               {.name = "y", .dtype = DT_I32, .n_classes = 5}};
    fields[0].sample_shape = shape.n == 4 ? dt_shape3(shape.d[1], shape.d[2], shape.d[3]) : dt_shape1(shape.d[1]);
    for (int i = 0; i < 64; i++) fields[0].std[i] = 1;
    snprintf(yaml, sizeof yaml,
             "run: {name: golden}\n"
             "data: {path: none, fields: {image: {%s}, y: {kind: class, classes: 5}}}\n"
             "model: {onnx: %s/%s_%s.onnx}\n"
             "train: {global_batch: %d, micro_batch: %d%s}\n",
             shape.n == 4 ? "kind: image, size: 32" : "kind: vector, size: 48", folder, name, exporter, BATCH, BATCH,
             shape.n == 4 ? "" : ", targets: {y: {loss: cross_entropy}}");
    golden_network net;
    golden_network_create(&net, yaml, fields, 2, BATCH, true, DT_F32, 2);
    bind_inputs(&net, x);
    const dt_optimizer_args sgd = {.kind = DT_OPTIMIZER_sgd, .lr = 0.1f};
    const float first = golden_network_step(&net, 0, BATCH, sgd);
    golden_compare("loss", &first, loss, 1, 1e-5);
    const int n = compare_after(file, name, net.params);
    assert_true(n > 0);
    const int steps = strcmp(exporter, "dynamo") == 0 ? 1 : golden_steps(STEPS);
    float last = first;
    for (int i = 1; i < steps; i++) last = golden_network_step(&net, i, BATCH, sgd);
    print_message("%s_%s: %d tensors as PyTorch's after a step; loss %.4f, after %d steps %.4f\n", name, exporter, n,
                  (double)first, steps, (double)last);
    assert_true(steps == 1 || last < 0.9f * first);
    golden_network_destroy(&net);
}

TEST(networks_of_both_exporters) {
    dt_safetensors *file = golden_open("onnx_networks.safetensors");
    const char *only = getenv("NETWORK");
    int n = 0;
    for (int i = 0; i < dt_safetensors_count(file); i++) {
        const char *key = dt_safetensors_name(file, i), *end = strstr(key, "/loss");
        if (!end || end[5]) continue;
        char *name = dt_xprintf("%.*s", (int)(end - key), key);
        if (!only || strcmp(only, name) == 0) {
            run_file(file, name, "torchscript");
            run_file(file, name, "dynamo");
        }
        free(name);
        n++;
    }
    assert_int_equal(n, 11);
    dt_safetensors_close(file);
}

int main(void) {
    const char *source = getenv("SOURCE");
    snprintf(folder, sizeof folder, "%s/tests/golden/onnx_networks", source ? source : ".");
    return run_all_tests(NULL, NULL);
}
