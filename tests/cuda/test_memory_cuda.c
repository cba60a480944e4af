// How often a start asks the device for memory: once a lifetime, whatever the depth of the network. That a
// step asks for none is test_train_cuda.c's test_quiet_steps.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/comm_nccl.h"
#include "fake_cuda.h"
#include "fake_nccl.h"
#include "models/models.h"
#include "train/device_inputs.h"

#include <stdio.h>
#include <string.h>

enum { SIDE = 32, CLASSES = 10, BATCH = 2 };

static const char *const networks[] = {"{name: fusion}", "{name: resnet, depth: 50, width: 8}",
                                       "{name: vit, patch: 8, dim: 32, heads: 4, layers: 12}"};

static dt_graph *make_graph(dt_config *c, bool two_images, bool training) {
    dt_model_field f[3] = {{.name = "left",
                            .sample_shape = dt_shape3(SIDE, SIDE, 3),
                            .dtype = DT_U8,
                            .is_image = true},
                           {.name = "right",
                            .sample_shape = dt_shape3(SIDE, SIDE, 3),
                            .dtype = DT_U8,
                            .is_image = true},
                           {.name = "who", .dtype = DT_I32, .n_classes = CLASSES}};
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 3; k++) f[i].std[k] = 1;
    dt_model_args a = {.config = c,
                       .fields = two_images ? f : f + 1,
                       .n_fields = two_images ? 3 : 2,
                       .batch = BATCH,
                       .training = training};
    dt_graph *g = NULL;
    if (dt_model_graph(&g, &a, DT_BF16) != DT_OK) fail_msg("%s", dt_error_message());
    return g;
}

static int count_allocs(dt_backend *b) {
    return fake_cuda_count(dt_cuda_self(b)->api, "alloc");
}

static void start(const char *model, bool two_images) {
    char yaml[512];
    dt_config *c = NULL;
    const int n_yaml =
        snprintf(yaml, sizeof yaml,
                 "run: {name: memory}\n"
                 "data: {path: none, fields: {left: {kind: image, channels: 3, size: [32, 32]},\n"
                 "  right: {kind: image, channels: 3, size: [32, 32]},\n"
                 "  who: {kind: class, classes: 10}}}\n"
                 "model: %s\ntrain: {global_batch: 2, micro_batch: 2}\n",
                 model);
    assert_int_equal(dt_config_parse(&c, "test", yaml, (size_t)n_yaml, NULL, 0), DT_OK);
    dt_graph *g[2] = {make_graph(c, two_images, true), make_graph(c, two_images, false)};
    const dt_field_info fields[3] = {{.name = "left"}, {.name = "right"}, {.name = "who"}};
    dt_backend *b = NULL;
    dt_params *params = NULL;
    dt_plan *plan[2];
    dt_exec *exec[2];
    dt_device_inputs inputs[3];
    const dt_plan_opts po = {.threads = 1, .n_lanes = 1};
    assert_int_equal(fake_cuda_backend(&b, &(dt_backend_opts){.threads = 1, .untimed = true}),
                     DT_OK);
    assert_int_equal(dt_params_create(&params, g[0], b, 2, 1), DT_OK);
    assert_int_equal(count_allocs(b), 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(dt_plan_create(&plan[i], g[i], params, &po), DT_OK);
        assert_int_equal(dt_exec_create(&exec[i], plan[i], 0), DT_OK);
    }
    assert_int_equal(dt_device_inputs_init(inputs, 2, b, exec[0], fields, 3), DT_OK);
    assert_int_equal(dt_device_inputs_init(&inputs[2], 1, b, exec[1], fields, 3), DT_OK);
    dt_plan_report report;
    dt_plan_report_get(plan[0], &report);
    printf("%s: %d steps, %d allocations\n", model, report.n_steps, count_allocs(b));
    // parameters; packed weights, constants, activations and inputs of training and of evaluation
    assert_in_range(count_allocs(b), 5, 9);
    dt_device_inputs_fini(inputs, 2);
    dt_device_inputs_fini(&inputs[2], 1);
    for (int i = 0; i < 2; i++) dt_exec_destroy(exec[i]);
    dt_params_destroy(params);
    for (int i = 0; i < 2; i++) {
        dt_plan_destroy(plan[i]);
        dt_graph_destroy(g[i]);
    }
    b->destroy(b); // aborts when something was left
    dt_config_destroy(c);
}

static void test_start(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) start(networks[i], i == 0);
}

// The line that a user sees says which lifetime did not fit.
static void test_out_of_memory(void **state) {
    (void)state;
    dt_backend *b = NULL;
    dt_slab slab = {0};
    void *p[2];
    assert_int_equal(fake_cuda_backend(&b, &(dt_backend_opts){.threads = 1}), DT_OK);
    dt_slab_add(&slab, &p[0], 1000);
    dt_slab_add(&slab, &p[1], 1000);
    fake_cuda_fail(dt_cuda_self(b)->api, "alloc", 0, FAKE_OUT_OF_MEMORY);
    assert_int_not_equal(dt_slab_take(&slab, b, "packed weights"), DT_OK);
    assert_non_null(strstr(dt_error_message(), "for packed weights"));
    assert_null(p[0]);
    dt_slab_drop(&slab);
    b->destroy(b);
}

// Memory is not short where the device is broken: who lowers the batch then is sent the wrong way.
static void test_a_broken_device_is_not_short_of_memory(void **state) {
    (void)state;
    dt_cuda_api *api = fake_cuda_create(NULL);
    dt_backend *b = NULL;
    void *p = NULL;
    assert_int_equal(dt_cuda_backend_create(&b, api, NULL, 0, &(dt_backend_opts){.threads = 1}),
                     DT_OK);
    fake_cuda_fail(api, "alloc", 0, FAKE_OUT_OF_MEMORY);
    assert_int_not_equal(b->alloc(b, &p, 1000, "slots"), DT_OK);
    assert_non_null(strstr(dt_error_message(), "lower train.micro_batch"));
    fake_cuda_fail(api, "alloc", 0, FAKE_ILLEGAL_ADDRESS);
    assert_int_not_equal(b->alloc(b, &p, 1000, "slots"), DT_OK);
    assert_null(strstr(dt_error_message(), "micro_batch"));
    assert_non_null(strstr(dt_error_message(), "asking for memory (slots): an illegal memory"));
    b->destroy(b);
    fake_cuda_destroy(api); // a broken device takes nothing back
}

// What ranks exchange is NCCL's memory and registered with the communicator, from before the first use to
// behind the last; nothing of the kind with an older library or a single rank.
static void share(bool old, int world_size) {
    dt_cuda_api *api = fake_cuda_create(NULL);
    const dt_nccl_api *nccl = fake_nccl_create(api, old);
    const dt_backend_opts o = {.threads = 1, .world_size = world_size};
    dt_backend *b = NULL;
    dt_comm *boot = NULL, *c = NULL;
    dt_slab slab = {0};
    float *grad = NULL;
    assert_int_equal(dt_cuda_backend_create(&b, api, nccl, 0, &o), DT_OK);
    assert_int_equal(dt_comm_create_self(&boot), DT_OK);
    assert_int_equal(dt_comm_create_nccl(&c, b, boot, false, 10), DT_OK);
    fake_cuda_log_clear(api);
    dt_slab_add(&slab, (void **)&grad, 1000 * sizeof *grad);
    assert_int_equal(dt_slab_take_shared(&slab, b, "gradients"), DT_OK);
    dt_comm_nccl_set_streams(c, b->device->stream, NULL);
    assert_int_equal(dt_comm_nccl_register(c, slab.memory, slab.n_bytes), DT_OK);
    assert_int_equal(c->all_reduce_f32(c, grad, 1000), DT_OK);
    assert_int_equal(b->device->synchronize(b, b->device->stream), DT_OK);
    assert_int_equal(c->finalize(c), DT_OK);
    dt_slab_drop(&slab);
    static const char *const names[] = {"mem_alloc",       "comm_register", "all_reduce",
                                        "comm_deregister", "finalize",      "mem_free"};
    size_t n = 0, at = 0;
    const fake_cuda_call *log = fake_cuda_log(api, &n);
    const bool shared = !old && world_size > 1;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < 6; k++)
            if (strcmp(log[i].call, names[k]) == 0 && (shared || k == 2 || k == 4 || !old)) {
                if (shared) assert_string_equal(log[i].call, names[at]);
                at++;
            }
    // a single rank's memory is not NCCL's: its registration is refused, and all goes on
    assert_int_equal(at, shared ? 6 : old ? 2 : 3);
    dt_comm_destroy_nccl(c);
    dt_comm_destroy(boot);
    b->destroy(b);
    fake_nccl_destroy(nccl);
    assert_int_equal(fake_cuda_destroy(api), 0);
}

static void test_shared_memory(void **state) {
    (void)state;
    share(false, 2);
    share(true, 2);
    share(false, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_start), cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_a_broken_device_is_not_short_of_memory),
        cmocka_unit_test(test_shared_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
