// test_golden_onnx_import.c: model.onnx with networks that PyTorch exported (make_onnx.py): logits are onnxruntime's within
// 1e-4, gradients PyTorch's; and what is wrong with other files is said in a line with file and node.
//
// GOLDEN_ONNX=DIR runs the full-size networks of `make_onnx.py --full DIR` instead.
#include "golden_network.h"

#include "base/io.h"
#include "onnx.pb-c.h"

#include <dirent.h>
#include <sys/stat.h>

static char folder[4096];
static double head_dropout; // model.dropout

static void yaml_of(char *text, size_t cap, const char *name, int n, int classes) {
    snprintf(text, cap,
             "run: {name: golden}\n"
             "data: {path: none, fields: {image: {kind: image, size: 32}, y: {kind: class, classes: "
             "%d}}}\n"
             "model: {onnx: %s/%s.onnx, dropout: %g}\n"
             "train: {global_batch: %d, micro_batch: %d}\n",
             classes, folder, name, head_dropout, n, n);
}

static dt_field_info float_image(int side) {
    dt_field_info f = golden_image_field("image", side, side, 3);
    f.dtype = DT_F32;
    for (int i = 0; i < 3; i++) f.mean[i] = 0, f.std[i] = 1;
    return f;
}

// How many of the network's gradients have golden numbers; each that has must agree.
static int compare_gradients(const dt_safetensors *file, const char *name, const dt_params *p, int n) {
    int n_compared = 0;
    for (int i = 0; i < p->n_entries; i++) {
        char key[128];
        const dt_param_entry *e = &p->entries[i];
        snprintf(key, sizeof key, "%s/grad", name);
        const float *want = golden_find(file, key, e->name, NULL), *x = p->grads[0] + e->offset;
        if (!want) continue;
        if (want[0] > 1e-6f) golden_compare_probes(e->name, x, e->count, 1.0 / n, want, 2e-3);
        n_compared++;
    }
    return n_compared;
}

static void run_file(const dt_safetensors *file, const char *name) {
    char yaml[8192];
    const dt_shape out = golden_shape(file, name, "logits");
    const int n = (int)out.d[0], side = getenv("GOLDEN_ONNX") ? 224 : 32, classes = (int)out.d[1];
    const char *sized = side == 224 ? "224" : "32";
    dt_field_info fields[2] = {float_image(side), {.name = "y", .dtype = DT_I32, .n_classes = classes}};
    golden_network net;
    yaml_of(yaml, sizeof yaml, name, n, classes);
    golden_network_create(&net, yaml, fields, 2, n, true, DT_F32, 2);
    dt_params_repack(net.params);
    assert_true(dt_exec_bind(net.exec, "image", golden_find(file, sized, "x", NULL)));
    golden_network_check(&net, file, name, "y", 1e-4);
    const int n_gradients = compare_gradients(file, name, net.params, n);
    const float *count = golden_find(file, name, "count", NULL);
    int64_t have = 0;
    for (int i = 0; i < net.params->n_entries; i++) have += net.params->entries[i].count;
    if (count) assert_int_equal(have, (int64_t)*count);
    print_message("%s: %d tensors, %d gradients compared\n", name, net.params->n_entries, n_gradients);
    golden_network_destroy(&net);
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void run_folder(dt_safetensors *file) {
    char **names = NULL;
    size_t n = 0, n_run = 0;
    must(dt_io_list_dir(&names, &n, folder, DT_E_DATA));
    qsort(names, n, sizeof *names, by_name);
    for (size_t i = 0; i < n; i++) {
        char *end = strstr(names[i], ".onnx");
        if (!end || end[5]) continue;
        *end = 0;
        run_file(file, names[i]);
        n_run++;
    }
    assert_true(n_run > 0);
    dt_io_free_list(names, n);
    dt_safetensors_close(file);
}

TEST(networks_are_onnxruntimes) {
    run_folder(golden_open("onnx_import.safetensors"));
}

static void full_size(void **state) {
    char path[5000];
    dt_safetensors *file = NULL;
    snprintf(path, sizeof path, "%s/onnx_import.safetensors", folder);
    must(dt_safetensors_open(&file, path));
    run_folder(file);
}

// ---- what is refused -------------------------------------------------------------------------------
static char bad_folder[sizeof "/tmp/dt_onnx_XXXXXX"]; // the folder of the changed file

// The graph of a file of tests/golden, which `change` has changed, of 5 classes.
static dt_status changed(const char *name, void (*change)(Onnx__ModelProto *m), bool training, dt_graph **g) {
    char yaml[8192], from[5000], keep[4096], *data;
    size_t n_bytes;
    memcpy(bad_folder, "/tmp/dt_onnx_XXXXXX", sizeof bad_folder);
    assert_non_null(mkdtemp(bad_folder));
    snprintf(from, sizeof from, "%s/%s.onnx", folder, name);
    must(dt_io_read_file(&data, &n_bytes, from, 0, DT_E_DATA));
    Onnx__ModelProto *m = onnx__model_proto__unpack(NULL, n_bytes, (const uint8_t *)data);
    assert_non_null(m);
    free(data);
    change(m);
    n_bytes = onnx__model_proto__get_packed_size(m);
    data = malloc(n_bytes + 1);
    onnx__model_proto__pack(m, (uint8_t *)data);
    snprintf(from, sizeof from, "%s/bad.onnx", bad_folder);
    must(dt_io_write_file(from, data, n_bytes));
    free(data);
    onnx__model_proto__free_unpacked(m, NULL);
    memcpy(keep, folder, sizeof keep);
    snprintf(folder, sizeof folder, "%s", bad_folder);
    yaml_of(yaml, sizeof yaml, "bad", 2, 5);
    memcpy(folder, keep, sizeof keep);
    dt_field_info fields[2] = {float_image(32), {.name = "y", .dtype = DT_I32, .n_classes = 5}};
    dt_config *c;
    must(dt_config_parse(&c, "golden", yaml, strlen(yaml), NULL, 0));
    dt_model_args a = {.config = c, .fields = fields, .n_fields = 2, .batch = 2, .training = training};
    const dt_status st = dt_model_graph(g, &a, DT_F32);
    dt_config_destroy(c);
    must(dt_io_remove_tree(bad_folder));
    return st;
}

// Fails with this text in one line.
static void refused_of(const char *name, void (*change)(Onnx__ModelProto *m), const char *text) {
    dt_graph *g = NULL;
    assert_int_equal(changed(name, change, true, &g), DT_E_USAGE);
    if (!strstr(dt_error_message(), text)) fail_msg("expected '%s': %s", text, dt_error_message());
    assert_null(strchr(dt_error_message(), '\n'));
}
static void refused(void (*change)(Onnx__ModelProto *m), const char *text) {
    refused_of("resnet_13", change, text);
}

static Onnx__NodeProto *node_of(Onnx__ModelProto *m, const char *op) {
    size_t i = 0;
    while (strcmp(m->graph->node[i]->op_type, op) != 0) assert_true(++i < m->graph->n_node);
    return m->graph->node[i];
}
static void set(char **text, const char *to) {
    free(*text);
    *text = strdup(to);
}
static void other_op(Onnx__ModelProto *m) {
    set(&m->graph->node[1]->op_type, "NonMaxSuppression");
}
static void a_loop(Onnx__ModelProto *m) {
    m->graph->node[0]->attribute[0]->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH;
}
static void a_cycle(Onnx__ModelProto *m) {
    set(&m->graph->node[0]->input[0], m->graph->node[3]->output[0]);
}
static void truncated(Onnx__ModelProto *m) {
    m->graph->initializer[0]->raw_data.len -= 4;
}
static void huge(Onnx__ModelProto *m) {
    m->graph->initializer[0]->dims[0] = 1000000000;
}
static void overflowing(Onnx__ModelProto *m) {
    for (size_t i = 0; i < m->graph->initializer[0]->n_dims; i++) m->graph->initializer[0]->dims[i] = INT64_MAX / 2;
}
static void not_a_number(Onnx__ModelProto *m) {
    Onnx__TensorProto *t = m->graph->initializer[0];
    memset(t->raw_data.data, 0xff, t->raw_data.len);
}
static void old(Onnx__ModelProto *m) {
    m->opset_import[0]->version = 9;
}
static void elsewhere(Onnx__ModelProto *m, const char *file) {
    Onnx__TensorProto *t = m->graph->initializer[0];
    t->has_data_location = t->data_location = 1;
    t->external_data = malloc(sizeof *t->external_data);
    t->external_data[0] = malloc(sizeof **t->external_data);
    onnx__string_string_entry_proto__init(t->external_data[0]);
    t->external_data[0]->key = strdup("location");
    t->external_data[0]->value = strdup(file);
    t->n_external_data = 1;
}
static void outside(Onnx__ModelProto *m) {
    elsewhere(m, "../secret");
}
static void in_a_pipe(Onnx__ModelProto *m) {
    char path[64];
    snprintf(path, sizeof path, "%s/pipe", bad_folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    elsewhere(m, "pipe");
}
static void huge_elsewhere(Onnx__ModelProto *m) {
    char path[64];
    snprintf(path, sizeof path, "%s/few", bad_folder);
    must(dt_io_write_file(path, "few", 3));
    huge(m);
    elsewhere(m, "few");
}
static void hollow(Onnx__ModelProto *m) { // no element, of dimensions whose product is no int64
    Onnx__TensorProto *t = node_of(m, "Constant")->attribute[0]->t;
    const int64_t dims[3] = {0, (int64_t)1 << 49, (int64_t)1 << 49};
    t->dims = realloc(t->dims, sizeof dims);
    t->n_dims = 3;
    memcpy(t->dims, dims, sizeof dims);
    t->raw_data.len = 0;
}
static void other_size(Onnx__ModelProto *m) {
    m->graph->input[0]->type->tensor_type->shape->dim[2]->dim_value = 64;
}

// 20,000 inputs that are initialisers, too, as older exporters list them, are none; without their values they are.
static void add_inputs(Onnx__ModelProto *m, bool with_values) {
    enum { N = 20000 };
    Onnx__GraphProto *g = m->graph;
    g->input = realloc(g->input, (g->n_input + N) * sizeof *g->input);
    g->initializer = realloc(g->initializer, (g->n_initializer + N) * sizeof *g->initializer);
    for (int i = 0; i < N; i++) {
        char name[32];
        snprintf(name, sizeof name, "input.%d", i * 7919 % N);
        Onnx__ValueInfoProto *v = g->input[g->n_input++] = malloc(sizeof *v);
        onnx__value_info_proto__init(v);
        v->name = strdup(name);
        if (!with_values) continue;
        Onnx__TensorProto *t = g->initializer[g->n_initializer++] = malloc(sizeof *t);
        onnx__tensor_proto__init(t);
        t->name = strdup(name);
    }
}
static void many_inputs(Onnx__ModelProto *m) {
    add_inputs(m, false);
}
static void many_initialisers(Onnx__ModelProto *m) {
    add_inputs(m, true);
    other_size(m);
}

TEST(errors_name_the_node) {
    refused(other_op, "(NonMaxSuppression): this op is not read; `dtrain info --onnx` lists");
    refused(a_loop, "(Conv): holds a graph of its own: loops and branches are not read");
    refused(a_cycle, "which no node before it makes (a cycle?)");
    refused(truncated, "the file another number (truncated?)");
    refused(huge, "the file another number (truncated?)");
    refused(overflowing, "has an impossible shape");
    refused(not_a_number, "holds NaN");
    refused(old, "has operator set 9; 13 to 23 are read");
    refused(outside, "lies in ../secret: only files beside the ONNX file are read");
    refused(in_a_pipe, "/pipe: not a regular file");
    refused(huge_elsewhere, "bytes wanted at offset 0, but the file ends at 3");
    refused(many_inputs, "the file has 20001 inputs; 1 to 16 are read");
    refused(many_initialisers, "input image expects (N,3,64,32), the field gives (2,3,32,32)");
    refused(other_size, "expects (N,3,64,32), the field gives (2,3,32,32)");
    refused_of("vit_14", hollow, "a constant of more than 65536 elements");
}

// ---- what is read otherwise -------------------------------------------------------------------------
static void set_text(Onnx__NodeProto *n, const char *attribute, const char *to) {
    for (size_t i = 0; i < n->n_attribute; i++) {
        if (strcmp(n->attribute[i]->name, attribute) != 0) continue;
        ProtobufCBinaryData *s = &n->attribute[i]->s;
        free(s->data);
        *s = (ProtobufCBinaryData){strlen(to), (uint8_t *)strdup(to)};
        return;
    }
    fail_msg("%s has no %s", n->name, attribute);
}
static void other_aspect(Onnx__ModelProto *m) {
    set_text(node_of(m, "Resize"), "keep_aspect_ratio_policy", "not_larger");
}
static void nearest(Onnx__ModelProto *m) { // of half pixels, the next of two
    set_text(node_of(m, "Resize"), "mode", "nearest");
    set_text(node_of(m, "Resize"), "nearest_mode", "round_prefer_ceil");
}
static void nearest_before(Onnx__ModelProto *m) { // 10 to 7: the fourth lies between two
    nearest(m);
    set_text(node_of(m, "Resize"), "nearest_mode", "round_prefer_floor");
}
static void nearest_floor(Onnx__ModelProto *m) {
    nearest(m);
    set_text(node_of(m, "Resize"), "nearest_mode", "floor");
}
static void probabilities(Onnx__ModelProto *m) { // a Softmax behind the last node
    Onnx__GraphProto *g = m->graph;
    Onnx__NodeProto *n = malloc(sizeof *n);
    onnx__node_proto__init(n);
    n->op_type = strdup("Softmax");
    n->input = malloc(sizeof *n->input), n->output = malloc(sizeof *n->output);
    n->n_input = n->n_output = 1;
    n->input[0] = strdup(g->output[0]->name), n->output[0] = strdup("p");
    set(&g->output[0]->name, "p");
    g->node = realloc(g->node, (g->n_node + 1) * sizeof *g->node);
    g->node[g->n_node++] = n;
}
static void unchanged(Onnx__ModelProto *m) {}
static void quarter(Onnx__ModelProto *m) { // is dropped
    const char *ratio = node_of(m, "Dropout")->input[1];
    for (size_t i = 0; i < m->graph->n_node; i++)
        if (strcmp(m->graph->node[i]->output[0], ratio) == 0)
            memcpy(m->graph->node[i]->attribute[0]->t->raw_data.data, &(float){0.25f}, 4);
}

TEST(sizes_and_ends_that_are_others) {
    dt_graph *g;
    must(changed("odd_20", nearest, true, &g));
    dt_graph_destroy(g);
    refused_of("odd_20", nearest_before, "only nn.Upsample's modes nearest, nearest-exact");
    refused_of("odd_20", nearest_floor, "only nn.Upsample's modes nearest, nearest-exact");
    refused_of("odd_20", other_aspect, "stretched to a size that is known");
    refused(probabilities, "bad.onnx ends in Softmax, and its loss takes logits: export it without");
    head_dropout = 0.5;
    refused(unchanged, "bad.onnx keeps its own head, which model.dropout does not reach");
    head_dropout = 0;
}

TEST(dropout_of_the_file_drops_in_training) {
    for (int training = 0; training < 2; training++) {
        dt_graph *g;
        int n = 0;
        must(changed("../onnx_networks/convmixer_torchscript", quarter, training, &g));
        for (int i = 0; i < g->n_nodes; i++) {
            if (g->nodes[i].op != DT_OP_dropout || g->nodes[i].backward) continue;
            assert_true(g->nodes[i].attrs.dropout.p == 0.25f);
            n++;
        }
        assert_int_equal(n, training);
        dt_graph_destroy(g);
    }
}

static Onnx__NodeProto *reader_of(Onnx__ModelProto *m, const char *name) {
    for (size_t i = 0; i < m->graph->n_node; i++)
        for (size_t k = 0; k < m->graph->node[i]->n_input; k++)
            if (strcmp(m->graph->node[i]->input[k], name) == 0) return m->graph->node[i];
    fail_msg("nothing reads %s", name);
    return NULL;
}
// GELU(x) in parts, of three factors, becomes GELU(x) x: its last product is what a fourth one reads.
static void gated(Onnx__ModelProto *m) {
    Onnx__GraphProto *g = m->graph;
    Onnx__NodeProto *erf = node_of(m, "Erf"), *scale = g->node[0], *last = erf, *n = malloc(sizeof *n);
    for (size_t i = 0; strcmp(scale->output[0], erf->input[0]) != 0; i++) scale = g->node[i];
    for (int i = 0; i < 3; i++) last = reader_of(m, last->output[0]); // an Add, two Muls
    assert_string_equal(last->op_type, "Mul");
    onnx__node_proto__init(n);
    n->op_type = strdup("Mul");
    n->input = malloc(2 * sizeof *n->input), n->output = malloc(sizeof *n->output);
    n->n_input = 2, n->n_output = 1;
    n->input[0] = strdup("gelu"), n->input[1] = strdup(scale->input[0]);
    n->output[0] = last->output[0], last->output[0] = strdup("gelu");
    size_t at = 0;
    while (g->node[at++] != last) {
    }
    g->node = realloc(g->node, (g->n_node + 1) * sizeof *g->node);
    memmove(g->node + at + 1, g->node + at, (g->n_node++ - at) * sizeof *g->node);
    g->node[at] = n;
}

TEST(a_product_with_a_gelu_stays) {
    for (int gates = 0; gates < 2; gates++) {
        dt_graph *g;
        int n = 0;
        must(changed("vit_14", gates ? gated : unchanged, false, &g));
        for (int i = 0; i < g->n_nodes; i++) n += g->nodes[i].op == DT_OP_mul;
        assert_int_equal(n, gates);
        dt_graph_destroy(g);
    }
}

int main(void) {
    const struct CMUnitTest by_hand[] = {cmocka_unit_test(full_size)};
    const char *source = getenv("SOURCE");
    if (getenv("GOLDEN_ONNX")) {
        snprintf(folder, sizeof folder, "%s", getenv("GOLDEN_ONNX"));
        return cmocka_run_group_tests(by_hand, NULL, NULL);
    }
    snprintf(folder, sizeof folder, "%s/tests/golden/onnx", source ? source : ".");
    return run_all_tests(NULL, NULL);
}
