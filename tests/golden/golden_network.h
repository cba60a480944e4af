// golden_network.h: a whole network trained some steps beside PyTorch: weights and images are a formula
// of their position, the same here and in make_*.py, so golden files hold results only.
//
// defines: golden_mixed, golden_u8, golden_labels, golden_image_field, golden_fill_weights, golden_steps,
//          golden_network, golden_network_step
#ifndef DT_TESTS_GOLDEN_NETWORK_H
#define DT_TESTS_GOLDEN_NETWORK_H

#include "golden.h"

#include "models/models.h"
#include "unit/whole_optimizer.h"

// In [0, 1): an integer hash of position and salt.
static inline double golden_mixed(int64_t i, uint64_t salt) {
    uint32_t h = (uint32_t)((uint64_t)i + (salt << 24));
    for (int k = 0; k < 2; k++) h = (h ^ (h >> 16)) * 0x45d9f3bu;
    h ^= h >> 16;
    return (double)h / 4294967296.0;
}

static inline uint8_t *golden_u8(int64_t n, uint64_t salt) {
    uint8_t *x = malloc((size_t)n);
    for (int64_t i = 0; i < n; i++) x[i] = (uint8_t)(golden_mixed(i, salt) * 256);
    return x;
}

// An image field that the network sees as (x / 255 - 0.5) / 0.25.
static inline dt_field_info golden_image_field(const char *name, int h, int w, int c) {
    dt_field_info f = {.name = name, .sample_shape = dt_shape3(h, w, c), .dtype = DT_U8, .is_image = true};
    for (int i = 0; i < 64; i++) {
        f.mean[i] = 0.5f;
        f.std[i] = 0.25f;
    }
    return f;
}

static inline int golden_by_name(const void *a, const void *b) {
    return strcmp((*(dt_param_entry *const *)a)->name, (*(dt_param_entry *const *)b)->name);
}

static inline bool golden_ends(const char *name, const char *end) {
    size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

// Parameters numbered in the order of their names.
static inline void golden_fill_weights(dt_params *p) {
    dt_param_entry *sorted[512];
    for (int i = 0; i < p->n_entries; i++) sorted[i] = &p->entries[i];
    qsort(sorted, (size_t)p->n_entries, sizeof *sorted, golden_by_name);
    for (int k = 0; k < p->n_entries; k++) {
        const dt_param_entry *e = sorted[k];
        double scale = sqrt(3.0 / (double)(e->count / e->shape.d[0]));
        double one = golden_ends(e->name, "bn3.weight") ? 0.25 : golden_ends(e->name, "weight");
        for (int64_t i = 0; i < e->count; i++) {
            double u = 2 * golden_mixed(i, 100 + (uint64_t)k) - 1;
            p->master[e->offset + i] = (float)(e->shape.n > 1 ? u * scale : one > 0 ? one * (1 + 0.1 * u) : 0.1 * u);
        }
    }
}

// At most `most` steps of training, fewer where an emulator is too slow for so many (GOLDEN_STEPS).
static inline int golden_steps(int most) {
    const char *steps = getenv("GOLDEN_STEPS");
    return steps && atoi(steps) < most ? atoi(steps) : most;
}

// A network that can run: everything from the config on.
typedef struct golden_network {
    dt_config *config;
    dt_graph *graph;
    dt_backend *backend;
    dt_params *params;
    dt_plan *plan;
    dt_exec *exec;
    int threads;
} golden_network;

static inline void golden_network_create(golden_network *n, const char *yaml, const dt_field_info *fields, int n_fields,
                                         int batch, bool training, dt_dtype type, int threads) {
    *n = (golden_network){.threads = threads};
    must(dt_config_parse(&n->config, "golden", yaml, strlen(yaml), NULL, 0));
    dt_model_args args = {
        .config = n->config, .fields = fields, .n_fields = n_fields, .batch = batch, .training = training};
    must(dt_model_graph(&n->graph, &args, type));
    must(dt_backend_create(&n->backend, DT_DEVICE_cpu, &(dt_backend_opts){.threads = threads, .deterministic = true}));
    must(dt_params_create(&n->params, n->graph, n->backend, training ? 2 : 0, 1));
    dt_params_init(n->params, 1);
    must(dt_plan_create(&n->plan, n->graph, n->params, &(dt_plan_opts){.threads = threads, .n_replicas = 1}));
    must(dt_exec_create(&n->exec, n->plan, 0));
}

// One step of one micro-batch: forward, backward, optimizer, running statistics. The gradient, summed
// over the batch, stays in params->grads[0]. Returns the mean loss.
static inline float golden_network_step(golden_network *n, int step, int batch, dt_optimizer_args o) {
    dt_params *p = n->params;
    int n_segments = 0;
    dt_segment *segments = dt_params_segments(p, 0, 0.01f, dt_optimizers[o.kind].norms, false, &n_segments);
    dt_params_repack(p);
    dt_exec_args a = {.step = {.seed = 1, .step = (uint32_t)step, .loss_scale = 1}, .grad = p->grads[0]};
    dt_exec_run(n->exec, &a);
    o.segments = segments;
    o.n_segments = n_segments;
    o.master = p->master;
    for (int i = 0; i < p->n_slots; i++) o.slots[i] = p->slots[i];
    o.grad = p->grads[0];
    o.grad_scale = 1.0f / (float)batch;
    o.t = step + 1;
    whole_optimizer(n->backend, o, p->n_trained);
    for (int i = 0; i < n->graph->n_updates; i++) {
        const dt_buffer_update *u = &n->graph->updates[i];
        const dt_param_entry *b = &p->buffers[dt_params_find(p, n->graph->values[u->buffer].name, true)];
        const float *stat = p->grads[0] + p->stats[dt_params_find_stat(p, n->graph->values[u->stat].name)].offset;
        for (int64_t k = 0; k < b->count; k++)
            p->buffer[b->offset + k] = (1 - u->momentum) * p->buffer[b->offset + k] + u->momentum * stat[k];
    }
    free(segments);
    return p->grads[0][p->stats[dt_params_find_stat(p, "loss")].offset] / (float)batch;
}

// Forward, and backward in training, of `batch` samples of class i % n_classes; labels: the field's name. Logits are
// compared with "<name>/logits".
static inline void golden_network_check(golden_network *n, const dt_safetensors *file, const char *name,
                                        const char *labels, double tol) {
    const dt_shape shape = golden_shape(file, name, "logits");
    const int64_t n_logits = dt_shape_elements(&shape);
    int32_t y[16];
    float weight[16], *logits = malloc((size_t)n_logits * sizeof *logits);
    for (int i = 0; i < shape.d[0]; i++) y[i] = i % (int)shape.d[1], weight[i] = 1;
    assert_true(dt_exec_bind(n->exec, labels, y) && dt_exec_bind(n->exec, "weight", weight));
    dt_exec_run(n->exec, &(dt_exec_args){.step = {.loss_scale = 1}, .grad = n->params->grads[0]});
    assert_int_equal(dt_exec_output(n->exec, "logits", logits, n_logits), n_logits);
    golden_compare(name, logits, golden_find(file, name, "logits", NULL), n_logits, tol);
    free(logits);
}

enum { GOLDEN_PROBES = 8 };

// A tensor by its norm and some elements.
static inline void golden_compare_probes(const char *what, const float *x, int64_t n, double factor, const float *want,
                                         double tol) {
    float got[1 + GOLDEN_PROBES];
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += pow((double)x[i] * factor, 2);
    got[0] = (float)sqrt(sum);
    for (int i = 0; i < GOLDEN_PROBES; i++) got[1 + i] = (float)((double)x[n / GOLDEN_PROBES * i] * factor);
    golden_compare(what, got, want, 1 + GOLDEN_PROBES, tol);
}

// All tensors of a network, as files of weights are read into them.
static inline int golden_tensors(dt_params *p, dt_ckpt_tensor *tensors) {
    int n = 0;
    for (int i = 0; i < p->n_entries; i++)
        tensors[n++] =
            (dt_ckpt_tensor){p->entries[i].name, "model", p->entries[i].shape, p->master + p->entries[i].offset};
    for (int i = 0; i < p->n_buffers; i++)
        tensors[n++] =
            (dt_ckpt_tensor){p->buffers[i].name, "model", p->buffers[i].shape, p->buffer + p->buffers[i].offset};
    return n;
}

static inline void golden_network_destroy(golden_network *n) {
    dt_exec_destroy(n->exec);
    dt_params_destroy(n->params);
    dt_plan_destroy(n->plan);
    n->backend->destroy(n->backend);
    dt_graph_destroy(n->graph);
    dt_config_destroy(n->config);
}

#endif
