// test_golden_fusion.c: the whole fusion network against PyTorch (make_fusion.py): the same weights and
// images give the same logits, gradients and, after five AdamW steps, parameters.
//
// Tolerances are relative to the largest golden value of each group and a few times what PyTorch's own
// float32 differs from its float64 (make_fusion.py --float32).

#include "golden.h"

#include "models/models.h"

enum { N = 4, CLASSES = 45, PROBES = 8, STEPS = 5 };

static double mixed(int64_t i, uint64_t salt) {
    uint32_t h = (uint32_t)((uint64_t)i + (salt << 24));
    for (int k = 0; k < 2; k++) h = (h ^ (h >> 16)) * 0x45d9f3bu;
    h ^= h >> 16;
    return (double)h / 4294967296.0;
}

static const char yaml[] =
    "run: {name: golden}\n"
    "data: {path: none, fields: {fingerprint: {kind: image, channels: 1, size: [26, 24]},\n"
    "  iris: {kind: image, channels: 3, size: [24, 32]}, subject: {kind: class, classes: 45}}}\n"
    "model: {name: fusion}\n"
    "train: {global_batch: 4, micro_batch: 4}\n";

static dt_model_field image_field(const char *name, int h, int w, int c) {
    dt_model_field f = {
        .name = name, .sample_shape = dt_shape3(h, w, c), .dtype = DT_U8, .is_image = true};
    for (int i = 0; i < 64; i++) {
        f.mean[i] = 0.5f;
        f.std[i] = 0.25f;
    }
    return f;
}

static uint8_t *image(int64_t n, uint64_t salt) {
    uint8_t *x = malloc((size_t)n);
    for (int64_t i = 0; i < n; i++) x[i] = (uint8_t)(mixed(i, salt) * 256);
    return x;
}

static int by_name(const void *a, const void *b) {
    return strcmp((*(dt_param_entry *const *)a)->name, (*(dt_param_entry *const *)b)->name);
}

// Weights by position, parameters numbered in the order of their names.
static void fill_weights(dt_params *p) {
    dt_param_entry *sorted[512];
    for (int i = 0; i < p->n_entries; i++) sorted[i] = &p->entries[i];
    qsort(sorted, (size_t)p->n_entries, sizeof *sorted, by_name);
    for (int k = 0; k < p->n_entries; k++) {
        const dt_param_entry *e = sorted[k];
        double scale = sqrt(3.0 / (double)(e->count / e->shape.d[0]));
        const char *dot = strrchr(e->name, '.');
        for (int64_t i = 0; i < e->count; i++) {
            double u = 2 * mixed(i, 100 + (uint64_t)k) - 1;
            double w = e->shape.n > 1                ? u * scale
                       : strcmp(dot, ".weight") == 0 ? 1 + 0.1 * u
                                                     : 0.1 * u;
            p->master[e->offset + i] = (float)w;
        }
    }
}

static void compare_probes(const dt_safetensors *file, const char *group, const dt_params *p,
                           const float *slab, double factor, double tol) {
    for (int k = 0; k < p->n_entries; k++) {
        const dt_param_entry *e = &p->entries[k];
        const float *want = golden_find(file, group, e->name, NULL);
        if (!want) fail_msg("no golden %s/%s", group, e->name);
        float got[1 + PROBES];
        double sum = 0;
        for (int64_t i = 0; i < e->count; i++) sum += pow(slab[e->offset + i] * factor, 2);
        got[0] = (float)sqrt(sum);
        for (int i = 0; i < PROBES; i++)
            got[1 + i] = (float)(slab[e->offset + (e->count / PROBES) * i] * factor);
        char what[256];
        snprintf(what, sizeof what, "%s of %s", group, e->name);
        golden_compare(what, got, want, 1 + PROBES, tol);
    }
}

typedef struct tolerances {
    double logits, grad, after, loss;
} tolerances;

static void run_network(dt_dtype type, int threads, tolerances tol) {
    dt_safetensors *file = golden_open("fusion.safetensors");
    dt_config *c = NULL;
    golden_ok(dt_config_parse(&c, "golden", yaml, sizeof yaml - 1, NULL, 0));
    dt_model_field fields[3] = {image_field("fingerprint", 26, 24, 1),
                                image_field("iris", 24, 32, 3),
                                {.name = "subject", .dtype = DT_I32, .n_classes = CLASSES}};
    dt_model_args args = {
        .config = c, .fields = fields, .n_fields = 3, .batch = N, .training = true};
    dt_graph *g = NULL;
    golden_ok(dt_model_graph(&g, &args, type));
    dt_backend *b = NULL;
    golden_ok(dt_backend_create(&b, "cpu",
                                &(dt_backend_opts){.threads = threads, .deterministic = true}));
    dt_params *p = NULL;
    golden_ok(dt_params_create(&p, g, b, 2, 1));
    dt_params_init(p, 1);
    fill_weights(p);
    dt_plan *plan = NULL;
    golden_ok(dt_plan_create(&plan, g, p, &(dt_plan_opts){.threads = threads, .n_lanes = 1}));
    dt_exec *e = NULL;
    golden_ok(dt_exec_create(&e, plan, 0));

    uint8_t *fingerprint = image(N * 26 * 24, 1), *iris = image(N * 24 * 32 * 3, 2);
    int32_t label[N];
    float weight[N] = {1, 1, 1, 1};
    for (int i = 0; i < N; i++) label[i] = (int32_t)(mixed(i, 3) * CLASSES);
    assert_true(dt_exec_bind(e, "fingerprint", fingerprint) && dt_exec_bind(e, "iris", iris));
    assert_true(dt_exec_bind(e, "subject", label) && dt_exec_bind(e, "weight", weight));

    int n_segments = 0;
    dt_segment *segments = dt_params_segments(p, 0.01f, &n_segments);
    const float *losses = golden_find(file, "fusion", "losses", NULL);
    for (int step = 0; step < STEPS; step++) {
        dt_params_repack(p, threads);
        dt_exec_args a = {.step = {.seed = 1, .step = (uint32_t)step, .loss_scale = 1},
                          .grad = p->grads[0]};
        dt_exec_run(e, &a);
        float loss = p->grads[0][p->stats[dt_params_find_stat(p, "loss")].offset] / N;
        golden_compare("loss", &loss, &losses[step], 1, tol.loss);
        if (step == 0) {
            float logits[N * CLASSES];
            assert_int_equal(dt_exec_output(e, "logits", logits, N * CLASSES), N * CLASSES);
            golden_compare("logits", logits, golden_find(file, "fusion", "logits", NULL),
                           N * CLASSES, tol.logits);
            compare_probes(file, "grad", p, p->grads[0], 1.0 / N, tol.grad);
        }
        dt_optimizer_args o = {.kind = DT_OPTIMIZER_ADAMW,
                               .segments = segments,
                               .n_segments = n_segments,
                               .master = p->master,
                               .moment1 = p->moment1,
                               .moment2 = p->moment2,
                               .grad = p->grads[0],
                               .grad_scale = 1.0f / N,
                               .lr = 1e-3f,
                               .beta1 = 0.9f,
                               .beta2 = 0.999f,
                               .eps = 1e-8f,
                               .t = step + 1};
        b->slab_optimize(b, &o, 0, p->n_trained);
    }
    compare_probes(file, "after", p, p->master, 1, tol.after);
    free(segments);
    free(fingerprint);
    free(iris);
    dt_exec_destroy(e);
    dt_plan_destroy(plan);
    dt_params_destroy(p);
    b->destroy(b);
    dt_graph_destroy(g);
    dt_config_destroy(c);
    dt_safetensors_close(file);
}

static void test_f32_one_thread(void **state) {
    (void)state;
    run_network(DT_F32, 1, (tolerances){1e-5, 1e-4, 1e-4, 1e-4});
}

static void test_f32_two_threads(void **state) {
    (void)state;
    run_network(DT_F32, 2, (tolerances){1e-5, 1e-4, 1e-4, 1e-4});
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_f32_one_thread),
                                       cmocka_unit_test(test_f32_two_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
