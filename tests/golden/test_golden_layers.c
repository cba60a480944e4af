// test_golden_layers.c: each layer of model.layers, at its defaults and with each key, computes what PyTorch's does
// (make_layers.py has the cases); every layer and key of layer_types.def is in one.
#include "golden_network.h"

enum { MAX_OUT = 8192 };

static char *text_of(const dt_safetensors *file, const char *name) {
    size_t n = 0;
    char key[128];
    snprintf(key, sizeof key, "%s/layers", name);
    const void *data = dt_safetensors_data(file, dt_safetensors_find(file, key), &n);
    return dt_xprintf("%.*s", (int)n, (const char *)data);
}

static char *yaml_of(const dt_safetensors *file, const char *name) {
    char *layers = text_of(file, name);
    char *yaml = dt_xprintf("run: {name: golden}\n"
                            "data: {path: none, fields: {image: {kind: image, size: 8}, y: {kind: "
                            "class, classes: 2}}}\n"
                            "model: {name: layers, layers: %s}\n"
                            "train: {global_batch: 2, micro_batch: 2}\n",
                            layers);
    free(layers);
    return yaml;
}

// Copies the case's tensors into the network's, which must be the same ones.
static void take_weights(const dt_safetensors *file, const char *name, dt_params *p) {
    char prefix[128];
    int n_taken = 0, n_there = 0;
    snprintf(prefix, sizeof prefix, "%s/param", name);
    for (int i = 0; i < p->n_entries + p->n_buffers; i++) {
        const bool buffer = i >= p->n_entries;
        const dt_param_entry *e = buffer ? &p->buffers[i - p->n_entries] : &p->entries[i];
        int64_t n = 0;
        const float *x = golden_find(file, prefix, e->name, &n);
        if (!x && strncmp(e->name, "head.", 5) == 0) continue;
        if (!x || n != e->count) fail_msg("%s: no tensor %s of that size", name, e->name);
        memcpy((buffer ? p->buffer : p->master) + e->offset, x, (size_t)n * sizeof *x);
        n_taken++;
    }
    for (int i = 0; i < dt_safetensors_count(file); i++)
        n_there += strncmp(dt_safetensors_name(file, i), prefix, strlen(prefix)) == 0;
    assert_int_equal(n_taken, n_there);
}

static void compare_attribute(const dt_safetensors *file, const char *name, const char *attribute, float got) {
    char key[64];
    snprintf(key, sizeof key, "attribute/%s", attribute);
    const float *want = golden_find(file, name, key, NULL);
    if (want && *want != got) fail_msg("%s: %s is %g, PyTorch's is %g", name, attribute, got, *want);
}

// What only training shows.
static void compare_attributes(const dt_safetensors *file, const char *name, const dt_field_info *fields,
                               const char *yaml) {
    dt_config *c;
    dt_graph *g;
    must(dt_config_parse(&c, "golden", yaml, strlen(yaml), NULL, 0));
    dt_model_args a = {.config = c, .fields = fields, .n_fields = 2, .batch = 2, .training = true};
    must(dt_model_graph(&g, &a, DT_F32));
    for (int i = 0; i < g->n_nodes; i++) {
        const dt_node *n = &g->nodes[i];
        if (n->dead || n->backward) continue;
        if (n->op == DT_OP_dropout) compare_attribute(file, name, "p", n->attrs.dropout.p);
        if (n->op != DT_OP_batch_norm) continue;
        compare_attribute(file, name, "eps", n->attrs.batch_norm.eps);
        compare_attribute(file, name, "momentum", n->attrs.batch_norm.momentum);
    }
    dt_graph_destroy(g);
    dt_config_destroy(c);
}

static void run_case(const dt_safetensors *file, const char *name) {
    const dt_shape shape = golden_shape(file, name, "out");
    const int64_t n_out = dt_shape_elements(&shape);
    char *yaml = yaml_of(file, name);
    dt_field_info image = {.name = "image", .dtype = DT_F32, .is_image = true};
    for (int i = 0; i < 64; i++) image.mean[i] = 0, image.std[i] = 1;
    int i = dt_safetensors_find(file, "x");
    dt_shape x;
    dt_safetensors_shape(file, i, &x);
    image.sample_shape = dt_shape3(x.d[1], x.d[2], x.d[3]);
    const dt_field_info fields[2] = {image, {.name = "y", .dtype = DT_I32, .n_classes = 2}};
    golden_network net;
    golden_network_create(&net, yaml, fields, 2, 2, false, DT_F32, 2);
    take_weights(file, name, net.params);
    dt_params_repack(net.params);
    float got[MAX_OUT];
    assert_true(n_out <= MAX_OUT);
    size_t n_bytes;
    assert_true(dt_exec_bind(net.exec, "image", dt_safetensors_data(file, i, &n_bytes)));
    int32_t y[2] = {0, 1};
    float weight[2] = {1, 1};
    dt_exec_bind(net.exec, "y", y);
    dt_exec_bind(net.exec, "weight", weight);
    dt_exec_run(net.exec, &(dt_exec_args){.step = {.loss_scale = 1}, .grad = net.params->grads[0]});
    if (dt_exec_output(net.exec, "embedding", got, n_out) != n_out) fail_msg("%s: another shape than PyTorch's", name);
    golden_compare(name, got, golden_find(file, name, "out", NULL), n_out, 2e-5);
    golden_network_destroy(&net);
    compare_attributes(file, name, fields, yaml);
    free(yaml);
}

TEST(layers_are_pytorchs) {
    dt_safetensors *file = golden_open("layers.safetensors");
    int n = 0;
    for (int i = 0; i < dt_safetensors_count(file); i++) {
        const char *key = dt_safetensors_name(file, i), *end = strstr(key, "/layers");
        if (!end) continue;
        char *name = dt_xprintf("%.*s", (int)(end - key), key);
        run_case(file, name);
        free(name);
        n++;
    }
    assert_true(n > 40);
    dt_safetensors_close(file);
}

// Whether `text` has the word in front of one of `ends`.
static bool has_word(const char *text, const char *word, const char *ends) {
    for (const char *p = text; (p = strstr(p, word)); p++)
        if (p > text && strchr("[{ ", p[-1]) && strchr(ends, p[strlen(word)])) return true;
    return false;
}

TEST(every_key_has_a_case) {
    dt_safetensors *file = golden_open("layers.safetensors");
    const char *type, *keys, *help;
    for (size_t k = 0; dt_model_describe_layer(k, &type, &keys, &help); k++) {
        char list[128], *rest = list;
        snprintf(list, sizeof list, "%s", *keys ? keys : type);
        for (char *key; (key = strtok_r(rest, " ", &rest));) {
            key[strcspn(key, "=")] = 0;
            const bool first = key == list;
            bool found = false;
            for (int i = 0; i < dt_safetensors_count(file) && !found; i++) {
                char *name = dt_xstrdup(dt_safetensors_name(file, i)), *end = strstr(name, "/layers");
                if (end) {
                    *end = 0;
                    char *text = text_of(file, name);
                    found = has_word(text, type, first ? ":,]" : ":") && (first || has_word(text, key, ":"));
                    free(text);
                }
                free(name);
            }
            if (!found) fail_msg("make_layers.py has no case of %s with %s", type, key);
        }
    }
    dt_safetensors_close(file);
}

TEST_MAIN(NULL, NULL)
