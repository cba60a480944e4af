// test_golden_onnx.c: what dtrain export writes. Every network is trained a step, from weights and statistics of a
// formula, and its evaluation form becomes an ONNX file: its nodes are looked at here; test_onnxruntime.sh has
// onnxruntime compute its outputs. The layers of model.layers, with each of their keys, are those of layers.safetensors,
// where test_golden_layers.c misses new ones; files of PyTorch that model.onnx reads are written again; every op of
// onnx_ops.c must be in some network.
//
// test_golden_onnx write DIR: NAME.onnx, NAME.<input> (f32, normalised), NAME.<output> for each network, and
// NAME-pixels.onnx, which has the pixels as inputs, with NAME-pixels.<input> (u8).
#include "config/words.h"
#include "golden_network.h"

#include "base/io.h"
#include "graph/build.h"
#include "onnx.pb-c.h"
#include "onnx/onnx_export.h"
#include "onnx/onnx_import.h"

#include <unistd.h>

enum { BATCH = 3, SIDE = 32, CLASSES = 5, MAX_BYTES = 64 << 20, MAX_CASES = 128 };

typedef struct network_case {
    const char *name, *model;
    bool two_images, numbers;
    const char *loss; // NULL: cross_entropy
    dt_shape image;   // (H,W,C) of the first image; n = 0: SIDE x SIDE x 3
} network_case;

static const network_case networks[] = {
    {"resnet18", "name: resnet, depth: 18, width: 8"},
    {"resnet50", "name: resnet, depth: 50, width: 4"},
    {"vit", "name: vit, patch: 8, dim: 24, heads: 3, blocks: 2"},
    {"vit_tanh", "name: vit, patch: 8, dim: 24, heads: 3, blocks: 2, gelu: tanh"},
    {"fusion", "name: fusion", true},
    {"attention", "name: fusion, fusion: cross_attention", true},
    {"mobilenet", "name: mobilenet_v3, size: s"},
    {"efficientnet", "name: efficientnet"},
    {"scales", "name: lens_multiscale, depth: 10, width: 8, scales: [24, 32]"},
    {"gated", "name: fusion, fusion: gated", true},
    {"numbers", "name: resnet, depth: 10, width: 8", false, true, "mse"},
    {"cosines", "name: resnet, depth: 10, width: 8", .loss = "arcface"},
    // constants of as many elements as there are samples
    {"threes", "name: layers, layers: [{conv: {out: 6, stride: 4}}, {adaptive_avg_pool: {size: 1}}, "
               "{group_norm: {groups: 2}}, flatten, {linear: 8}]"},
    // layers with the names of outputs
    {"named", "name: layers, layers: [{conv: {out: 4, stride: 4}, name: logits}, {relu: , name: "
              "embedding}, flatten, {linear: 8}]"},
    // pixels at whole steps, of which a step that is a little smaller takes others
    {"sized", "name: layers, layers: [{conv: {out: 4, kernel: 7, stride: 5}}, {upsample: {size: "
              "26}}, flatten, {linear: 8}]"},
// each activation behind a convolution, and behind a linear layer, into which some are fused
#define ACTIVATION(id, op, at_zero, help)                                                                              \
    {"act_" #id,                                                                                                       \
     "name: layers, layers: [{conv: {out: 4, stride: 4}}, " #id ", flatten, {linear: 16}, " #id ", {linear: 8}]"},
#include "graph/activations.def"
#undef ACTIVATION
};
enum { N_NETWORKS = sizeof networks / sizeof *networks };

// files of PyTorch (make_onnx_networks.py) that model.onnx reads, those of images; as both exporters write them
static const char *const imported[] = {"convmixer",  "densenet", "gates", "mixer", "regnet",
                                       "shufflenet", "swin",     "unet",  "vit"};

static network_case cases[MAX_CASES];
static int n_cases;

// The networks, and the layers that make_layers.py wrote.
static int list_cases(void **state) {
    dt_safetensors *file = golden_open("layers.safetensors");
    const int x = dt_safetensors_find(file, "x");
    dt_shape shape;
    dt_safetensors_shape(file, x, &shape);
    memcpy(cases, networks, sizeof networks);
    n_cases = N_NETWORKS;
    for (size_t i = 0; i < 2 * sizeof imported / sizeof *imported; i++) {
        const char *name = dt_xprintf("%s_%s", imported[i / 2], i % 2 ? "dynamo" : "torchscript");
        const char *model =
            dt_xprintf("name: onnx, onnx: %s/tests/golden/onnx_networks/%s.onnx", getenv("SOURCE"), name);
        cases[n_cases++] = (network_case){.name = name, .model = model};
    }
    for (int i = 0; i < dt_safetensors_count(file); i++) {
        const char *key = dt_safetensors_name(file, i), *end = strstr(key, "/layers");
        size_t n_bytes;
        if (!end) continue;
        assert_true(n_cases < MAX_CASES);
        const char *layers = dt_safetensors_data(file, i, &n_bytes);
        cases[n_cases++] = (network_case){.name = dt_xprintf("layer_%.*s", (int)(end - key), key),
                                          .model = dt_xprintf("name: layers, layers: %.*s", (int)n_bytes, layers),
                                          .image = dt_shape3(shape.d[1], shape.d[2], shape.d[3])};
    }
    dt_safetensors_close(file);
    return 0;
}

static const double mean[3] = {10, 20, 30}, deviation[3] = {2, 0.5f, 4}; // of the numbers

static int list_fields(const network_case *c, dt_field_info *fields) {
    int n = 0;
    fields[n++] = golden_image_field("image", SIDE, SIDE, 3);
    if (c->image.n) fields[0].sample_shape = c->image;
    if (c->two_images) fields[n++] = golden_image_field("other", SIDE, SIDE, 1);
    if (c->numbers) {
        fields[n] = (dt_field_info){.name = "pose", .dtype = DT_F32, .sample_shape = dt_shape1(3)};
        memcpy(fields[n].mean, mean, sizeof mean);
        memcpy(fields[n++].std, deviation, sizeof deviation);
    } else {
        fields[n++] = (dt_field_info){.name = "class", .dtype = DT_I32, .n_classes = CLASSES};
    }
    return n;
}

static void fill_buffers(dt_params *p) {
    for (int i = 0; i < p->n_buffers; i++)
        for (int64_t k = 0; k < p->buffers[i].count; k++) {
            double u = golden_mixed(k, 300 + (uint64_t)i);
            p->buffer[p->buffers[i].offset + k] =
                (float)(golden_ends(p->buffers[i].name, "running_var") ? 0.5 + u : u - 0.5);
        }
}

static const float *tensor(void *ctx, const char *name, const dt_shape *shape) {
    const dt_params *p = ctx;
    int i = dt_params_find(p, name, false);
    if (i >= 0) return p->master + p->entries[i].offset;
    i = dt_params_find(p, name, true);
    return i >= 0 ? p->buffer + p->buffers[i].offset : NULL;
}

// A case's network with one micro-batch bound; destroy_case frees it.
typedef struct case_net {
    golden_network net;
    dt_field_info fields[4];
    uint8_t *images[2];
} case_net;

static void build(golden_network *n, const network_case *c, const case_net *of, bool training) {
    static int32_t label[BATCH];
    static float weight[BATCH] = {1, 1, 1}, pose[BATCH * 3];
    char yaml[1024];
    snprintf(yaml, sizeof yaml,
             "{run: {name: golden}, data: {path: /nowhere, fields: {class: {kind: class, classes: 5},\n"
             "image: {kind: image, channels: 3, size: [32, 32]}}}, model: {%s},\n"
             "train: {global_batch: 3, micro_batch: 3, loss: %s}}\n",
             c->model, c->loss ? c->loss : "cross_entropy");
    golden_network_create(n, yaml, of->fields, 2 + c->two_images, BATCH, training, DT_F32, 1);
    for (int i = 0; i <= c->two_images; i++) assert_true(dt_exec_bind(n->exec, of->fields[i].name, of->images[i]));
    assert_true(c->numbers ? dt_exec_bind(n->exec, "pose", pose) : dt_exec_bind(n->exec, "class", label));
    assert_true(dt_exec_bind(n->exec, "weight", weight));
}

static void take(dt_params *p, const dt_params *trained) {
    for (int i = 0; i < p->n_entries + p->n_buffers; i++) {
        const bool buffer = i >= p->n_entries;
        const dt_param_entry *e = buffer ? &p->buffers[i - p->n_entries] : &p->entries[i];
        const float *x = tensor((void *)trained, e->name, &e->shape);
        memcpy((buffer ? p->buffer : p->master) + e->offset, x, (size_t)e->count * sizeof *x);
    }
    dt_params_repack(p);
}

static void create_case(case_net *n, const network_case *c) {
    golden_network training;
    const dt_optimizer_args sgd = {.kind = DT_OPTIMIZER_sgd, .lr = 1e-3f, .hyper = {0.9f}};
    list_fields(c, n->fields);
    for (int i = 0; i <= c->two_images; i++)
        n->images[i] = golden_u8(BATCH * dt_shape_elements(&n->fields[i].sample_shape), 1 + (uint64_t)i);
    build(&training, c, n, true);
    golden_fill_weights(training.params);
    fill_buffers(training.params);
    const float loss = golden_network_step(&training, 0, BATCH, sgd);
    if (!isfinite(loss)) fail_msg("%s: the loss of a step is %g", c->name, (double)loss);
    build(&n->net, c, n, false);
    take(n->net.params, training.params);
    golden_network_destroy(&training);
}

static void destroy_case(case_net *n, const network_case *c) {
    for (int i = 0; i <= c->two_images; i++) free(n->images[i]);
    golden_network_destroy(&n->net);
}

static dt_status export(const case_net *n, const network_case *c, bool pixels, const char *path) {
    const dt_onnx_port outputs[] = {{"logits", c->numbers ? mean : NULL, c->numbers ? deviation : NULL}, {"embedding"}};
    static const char *const metadata[] = {"classes", "{\"class\":[\"a\"]}", NULL};
    dt_onnx_opts o = {.outputs = outputs,
                      .n_outputs = 2,
                      .preprocess = pixels,
                      .metadata = metadata,
                      .version = "0",
                      .tensor = tensor,
                      .ctx = n->net.params};
    dt_graph *g[2]; // a plan changes its own
    for (int i = 0; i < 2; i++) {
        const dt_model_args a = {
            .config = n->net.config, .fields = n->fields, .n_fields = 2 + c->two_images, .batch = BATCH + i};
        must(dt_model_graph(&g[i], &a, DT_F32));
    }
    const dt_status st = dt_onnx_export(g[0], g[1], &o, path);
    for (int i = 0; i < 2; i++) dt_graph_destroy(g[i]);
    return st;
}

// ---- for onnxruntime ---------------------------------------------------------------------------------
static void save(const char *dir, const char *name, const char *end, const void *data, size_t n_bytes) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.%s", dir, name, end);
    must(dt_io_write_file(path, data, n_bytes));
}

static void save_image(const char *dir, const char *name, const dt_field_info *f, const uint8_t *x) {
    char pixels[64];
    const int64_t c = f->sample_shape.d[2], area = f->sample_shape.d[0] * f->sample_shape.d[1], n = BATCH * area * c;
    float *normal = malloc((size_t)n * sizeof *normal);
    for (int64_t i = 0; i < n; i++) { // (N,H,W,C) to (N,C,H,W)
        int64_t sample = i / (area * c), at = i / c % area, channel = i % c;
        normal[(sample * c + channel) * area + at] = ((float)x[i] / 255 - 0.5f) / 0.25f;
    }
    snprintf(pixels, sizeof pixels, "%s-pixels", name);
    save(dir, name, f->name, normal, (size_t)n * sizeof *normal);
    save(dir, pixels, f->name, x, (size_t)n);
    free(normal);
}

static void save_output(const char *dir, const golden_network *n, const network_case *c, const char *output) {
    float values[BATCH * 2048];
    int64_t count = dt_exec_output(n->exec, output, values, BATCH * 2048);
    assert_true(count > 0);
    for (int64_t i = 0; c->numbers && strcmp(output, "logits") == 0 && i < count; i++)
        values[i] = values[i] * deviation[i % 3] + mean[i % 3];
    save(dir, c->name, output, values, (size_t)count * sizeof *values);
}

static void write_case(const char *dir, const network_case *c) {
    case_net n;
    char path[4096];
    create_case(&n, c);
    for (int i = 0; i <= c->two_images; i++) save_image(dir, c->name, &n.fields[i], n.images[i]);
    dt_exec_run(n.net.exec, &(dt_exec_args){.step = {.loss_scale = 1}, .grad = n.net.params->grads[0]});
    save_output(dir, &n.net, c, "logits");
    save_output(dir, &n.net, c, "embedding");
    snprintf(path, sizeof path, "%s/%s.onnx", dir, c->name);
    must(export(&n, c, false, path));
    snprintf(path, sizeof path, "%s/%s-pixels.onnx", dir, c->name);
    must(export(&n, c, true, path));
    destroy_case(&n, c);
}

// ---- by itself ---------------------------------------------------------------------------------------
static Onnx__ModelProto *read_model(const char *path) {
    char *data;
    size_t n_bytes;
    must(dt_io_read_file(&data, &n_bytes, path, MAX_BYTES, DT_E_STORAGE));
    Onnx__ModelProto *m = onnx__model_proto__unpack(NULL, n_bytes, (const uint8_t *)data);
    assert_non_null(m);
    free(data);
    return m;
}

static int count_nodes(const Onnx__GraphProto *g, const char *op) {
    int n = 0;
    for (size_t i = 0; i < g->n_node; i++) n += strcmp(g->node[i]->op_type, op) == 0;
    return n;
}

// Every input of a node is an input of the file, a tensor, an output of a node before it, or left out (no name). No
// output is made twice.
static void check_order(const Onnx__GraphProto *g) {
    for (size_t i = 0; i < g->n_node; i++)
        for (size_t j = 0; j < i; j++)
            if (strcmp(g->node[i]->output[0], g->node[j]->output[0]) == 0)
                fail_msg("%s and %s make %s", g->node[j]->name, g->node[i]->name, g->node[i]->output[0]);
    for (size_t i = 0; i < g->n_node; i++)
        for (size_t k = 0; k < g->node[i]->n_input; k++) {
            const char *name = g->node[i]->input[k];
            bool known = !*name;
            for (size_t j = 0; j < g->n_input; j++) known |= !strcmp(g->input[j]->name, name);
            for (size_t j = 0; j < g->n_initializer; j++) known |= !strcmp(g->initializer[j]->name, name);
            for (size_t j = 0; j < i; j++)
                for (size_t o = 0; o < g->node[j]->n_output; o++) known |= !strcmp(g->node[j]->output[o], name);
            if (!known) fail_msg("%s reads %s, which nothing gives", g->node[i]->name, name);
        }
}

// `pixels`: the file's inputs are.
static void check_model(const network_case *c, bool pixels, const Onnx__ModelProto *m) {
    check_order(m->graph);
    // folded into what is in front of them
    if (c < cases + N_NETWORKS) assert_int_equal(count_nodes(m->graph, "BatchNormalization"), 0);
    assert_int_equal(m->opset_import[0]->version, 17);
    assert_int_equal(m->graph->n_input, 1 + c->two_images);
    const Onnx__TypeProto__Tensor *t = m->graph->input[0]->type->tensor_type;
    assert_string_equal(t->shape->dim[0]->dim_param, "N");
    assert_int_equal(t->shape->dim[pixels ? 3 : 1]->dim_value, c->image.n ? c->image.d[2] : 3);
    assert_int_equal(t->elem_type,
                     pixels ? ONNX__TENSOR_PROTO__DATA_TYPE__UINT8 : ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT);
    assert_string_equal(m->graph->output[0]->name, "logits");
    assert_string_equal(m->metadata_props[0]->value, "{\"class\":[\"a\"]}");
}

// The i-th resize of a graph, or NULL.
static const dt_node *resize_of(const dt_graph *g, int i) {
    dt_node_id id = 0;
    while (id < g->n_nodes && (g->nodes[id].op != DT_OP_resize || g->nodes[id].dead || i-- > 0)) id++;
    return id < g->n_nodes ? &g->nodes[id] : NULL;
}
// model.onnx reads what was written, takes the same pixels, and trains no more than the network did.
static void check_read(const network_case *c, const case_net *n, const char *path) {
    dt_onnx_file *f;
    dt_value in[2], features;
    int64_t count = 0, had = 0;
    dt_graph *g = dt_graph_create(c->name, true);
    must(dt_onnx_open(&f, path));
    for (int i = 0; i < dt_onnx_n_inputs(f); i++) {
        const dt_shape *s = &n->fields[i].sample_shape;
        in[i] = dt_input(g, dt_onnx_input_name(f, i), DT_F32, dt_shape4(BATCH, s->d[2], s->d[0], s->d[1]));
    }
    dt_onnx_build(f, g, in, false, &features);
    must(dt_graph_check(g));
    for (dt_value v = 0; v < g->n_values; v++)
        if (g->values[v].kind == DT_V_PARAM) count += dt_shape_elements(&g->values[v].shape);
    for (int i = 0; i < n->net.params->n_entries; i++) had += n->net.params->entries[i].count;
    const dt_node *one, *other;
    for (int i = 0; (one = resize_of(n->net.graph, i)) && (other = resize_of(g, i)); i++)
        for (int d = 0; d < 2; d++)
            if (one->attrs.resize.step[d] != other->attrs.resize.step[d] ||
                one->attrs.resize.size[d] != other->attrs.resize.size[d])
                fail_msg("%s: a resize has other steps: %.9g, %.9g", c->name, (double)one->attrs.resize.step[d],
                         (double)other->attrs.resize.step[d]);
    if (count > had && n->net.graph->n_stages == 0) // each scale has statistics in its weights
        fail_msg("%s trains %d numbers, not %d", c->name, (int)count, (int)had);
    dt_onnx_close(f);
    dt_graph_destroy(g);
}

TEST(every_network_is_written_and_has_every_op) {
    char path[] = "/tmp/dtrain-onnx-XXXXXX";
    bool has[DT_OP_COUNT] = {0};
    close(mkstemp(path));
    for (int i = 0; i < n_cases; i++) {
        case_net n;
        create_case(&n, &cases[i]);
        for (int k = 0; k < n.net.graph->n_nodes; k++) has[n.net.graph->nodes[k].op] |= !n.net.graph->nodes[k].dead;
        for (int pixels = 0; pixels < 2; pixels++) {
            must(export(&n, &cases[i], pixels, path));
            Onnx__ModelProto *m = read_model(path);
            check_model(&cases[i], pixels, m);
            onnx__model_proto__free_unpacked(m, NULL);
            if (!pixels && strcmp(cases[i].name, "cosines") != 0) // LpNormalization is not read
                check_read(&cases[i], &n, path);
        }
        destroy_case(&n, &cases[i]);
    }
    unlink(path);
    for (int op = 0; op < DT_OP_COUNT; op++)
        if (dt_onnx_has_form((dt_op)op) && !has[op]) fail_msg("no network has op %s", dt_op_name((dt_op)op));
}

// ---- graphs by hand ----------------------------------------------------------------------------------
static dt_value threes(dt_graph *g, dt_value x) {
    static const float same[12] = {0};
    return dt_add(g, x, dt_constant(g, "same", DT_F32, dt_shape2(3, 4), same));
}
static dt_value rows(dt_graph *g, dt_value x) { // each of the three rows of a sample is by itself
    x = dt_reshape(g, x, dt_shape2(-1, 4));
    return dt_reshape(g, dt_softmax(g, x), dt_shape3(dt_graph_samples(g), 3, 4));
}
static dt_value second(dt_graph *g,
                       dt_value x) { // samples are the second dimension, as in attention
    static const int swap[3] = {1, 0, 2};
    x = dt_reshape(g, dt_transpose(g, x, swap), dt_shape3(3, 2 * dt_graph_samples(g), 2));
    x = dt_reshape(g, dt_softmax(g, x), dt_shape3(3, -1, 4));
    return dt_transpose(g, x, swap);
}
static dt_value in_bf16(dt_graph *g, dt_value x) {
    return dt_cast(g, x, DT_BF16);
}
static dt_value apart(dt_graph *g, dt_value x) {
    return dt_reshape(g, x, dt_shape1(-1));
}
static dt_value swapped(dt_graph *g, dt_value x) { // of three samples sizes are the same
    static const int perm[3] = {1, 0, 2};
    return dt_reshape(g, dt_transpose(g, x, perm), dt_shape3(-1, 3, 4));
}
static dt_value summed(dt_graph *g, dt_value x) {
    return dt_sum(g, x, dt_shape3(1, 3, 4));
}
static dt_value numbered(dt_graph *g, dt_value x) {
    const int64_t n = dt_graph_samples(g);
    float *each = dt_arena_alloc(&g->arena, (size_t)(12 * n) * sizeof *each);
    for (int64_t i = 0; i < 12 * n; i++) each[i] = (float)i;
    return dt_add(g, x, dt_constant(g, "number", DT_F32, dt_shape3(n, 3, 4), each));
}
static dt_value divided(dt_graph *g, dt_value x) {
    return dt_scale(g, x, 1.0f / (float)dt_graph_samples(g));
}
static dt_value its_input(dt_graph *g, dt_value x) {
    dt_output(g, "x", x);
    return x;
}
static dt_value branching(dt_graph *g, dt_value x) {
    return dt_graph_samples(g) > 3 ? dt_relu(g, x) : x;
}

// Of x (N,3,4), built for 3 samples and for 4.
static dt_status export_of(dt_value (*network)(dt_graph *g, dt_value x), const char *output, const char *path) {
    const dt_onnx_port outputs = {.name = output};
    const dt_onnx_opts o = {.outputs = &outputs, .n_outputs = 1, .version = "0", .tensor = tensor};
    dt_graph *g[2];
    for (int i = 0; i < 2; i++) {
        g[i] = dt_graph_create("net", false);
        dt_value x = dt_input(g[i], "x", DT_F32, dt_shape3(3 + i, 3, 4));
        dt_output(g[i], "logits", dt_relu(g[i], network(g[i], x)));
        must(dt_graph_check(g[i]));
    }
    const dt_status st = dt_onnx_export(g[0], g[1], &o, path);
    for (int i = 0; i < 2; i++) dt_graph_destroy(g[i]);
    return st;
}

TEST(samples_may_be_any_number) {
    char path[] = "/tmp/dtrain-onnx-XXXXXX";
    close(mkstemp(path));
    must(export_of(rows, "logits", path));
    must(export_of(second, "logits", path));
    must(export_of(threes, "logits", path));
    Onnx__ModelProto *m = read_model(path);
    assert_int_equal(count_nodes(m->graph, "Expand"), 0);
    assert_int_equal(m->graph->node[0]->attribute[0]->t->dims[0], 3);
    onnx__model_proto__free_unpacked(m, NULL);
    unlink(path);
}

TEST(what_has_no_form_is_named) {
    static const struct {
        dt_value (*build)(dt_graph *g, dt_value x);
        const char *output, *why;
    } refused[] = {{in_bf16, "logits", "op cast of cast has no ONNX form"},
                   {threes, "scores", "no output 'scores'; it has logits"},
                   {its_input, "x", "x is a field and an output: rename the field"},
                   {apart, "logits", "mixes samples"},
                   {swapped, "logits", "op reshape of reshape mixes samples"},
                   {summed, "logits", "op sum of sum mixes samples"},
                   {numbered, "logits", "constant number differs by sample"},
                   {divided, "logits", "net computes something else of 3 samples than of 4"},
                   {branching, "logits", "net computes something else of 3 samples than of 4"}};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        must_fail(DT_E_USAGE, refused[i].why, export_of(refused[i].build, refused[i].output, "/nowhere/x.onnx"));
}

int main(int argc, char **argv) {
    if (argc < 3) return run_all_tests(list_cases, NULL);
    list_cases(NULL);
    for (int i = 0; i < n_cases; i++) write_case(argv[2], &cases[i]);
    printf("%d\n", n_cases);
    return 0;
}
