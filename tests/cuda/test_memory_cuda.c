// test_memory_cuda.c: how often a start allocates device memory: a fixed number of times, whatever the depth of the
// network, and only after it is known that everything fits. test_train_cuda.c's test_quiet_steps checks that a step
// allocates nothing.
#include "comm/comm_nccl.h"
#include "fake_cuda.h"
#include "fake_nccl.h"
#include "models/models.h"
#include "run/batch_inputs.h"
#include "run/memory_report.h"
#include "testing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 32, CLASSES = 10, BATCH = 2 };

static const char *const networks[] = {"{name: fusion}", "{name: resnet, depth: 50, width: 8}",
                                       "{name: vit, patch: 8, dim: 32, heads: 4, blocks: 12}"};

static const char owned_yaml[] =
    "run: {name: memory}\n"
    "data: {path: none, fields: {right: {kind: image, channels: 3, size: [32, 32]}, who: {kind: class, classes: 10}}}\n"
    "model: {name: vit, patch: 8, dim: 192, heads: 3, blocks: 12}\ntrain: {global_batch: 2, micro_batch: 2}\n";

static dt_graph *make_graph(dt_config *c, bool two_images, bool training) {
    dt_field_info f[3] = {{.name = "left", .sample_shape = dt_shape3(SIDE, SIDE, 3), .dtype = DT_U8, .is_image = true},
                          {.name = "right", .sample_shape = dt_shape3(SIDE, SIDE, 3), .dtype = DT_U8, .is_image = true},
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

// All that a run has before its first step, on a device with `total` bytes.
typedef struct run_parts {
    dt_open_run run;
    dt_nets nets;
    dt_cuda_api *api;
    dt_exec *exec[2];
    dt_device_inputs inputs[3];
} run_parts;

// Up to where everything is known. Nothing is allocated.
static dt_status plan_run(run_parts *r, const char *model, bool two_images, size_t total) {
    char yaml[512];
    *r = (run_parts){.api = fake_cuda_create(&(fake_cuda_opts){.total_bytes = total})};
    dt_open_run *s = &r->run;
    dt_net *train = &r->nets.phases[0].train, *eval = &r->nets.phases[0].eval;
    r->nets.n_phases = r->nets.phases[0].joins = 1;
    const int n_yaml = snprintf(yaml, sizeof yaml,
                                "run: {name: memory}\n"
                                "data: {path: none, fields: {left: {kind: image, channels: 3, size: [32, 32]},\n"
                                "  right: {kind: image, channels: 3, size: [32, 32]},\n"
                                "  who: {kind: class, classes: 10}}}\n"
                                "model: %s\ntrain: {global_batch: 2, micro_batch: 2}\n",
                                model);
    const dt_plan_opts po = {.threads = 1, .n_replicas = 1};
    assert_int_equal(dt_config_parse(&s->config, "test", yaml, (size_t)n_yaml, NULL, 0), DT_OK);
    assert_int_equal(dt_comm_create_self(&s->comm), DT_OK);
    assert_int_equal(dt_replica_plan_create(&s->replicas, false, 0, 1, 1, 1), DT_OK);
    assert_int_equal(dt_cuda_backend_create(&s->backend, r->api, NULL, 0, &(dt_backend_opts){.threads = 1}), DT_OK);
    train->graph = make_graph(s->config, two_images, true);
    eval->graph = make_graph(s->config, two_images, false);
    DT_TRY(dt_params_lay_out(&r->nets.params, train->graph, s->backend, 2, 1, false));
    must(dt_plan_create(&train->plan, train->graph, r->nets.params, &po));
    must(dt_plan_create(&eval->plan, eval->graph, r->nets.params, &po));
    assert_int_equal(count_allocs(s->backend), 0);
    return dt_memory_check(&r->nets, s);
}

static void take_memory(run_parts *r) {
    const dt_field_info fields[3] = {{.name = "left"}, {.name = "right"}, {.name = "who"}};
    dt_open_run *s = &r->run;
    dt_plan *plans[2] = {r->nets.phases[0].train.plan, r->nets.phases[0].eval.plan};
    assert_int_equal(dt_params_take(r->nets.params), DT_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(dt_plan_take(plans[i]), DT_OK);
        assert_int_equal(dt_exec_create(&r->exec[i], plans[i], 0), DT_OK);
    }
    assert_int_equal(dt_device_inputs_init(r->inputs, 2, s->backend, r->exec[0], fields, 3), DT_OK);
    assert_int_equal(dt_device_inputs_init(&r->inputs[2], 1, s->backend, r->exec[1], fields, 3), DT_OK);
}

static void end_run(run_parts *r) {
    dt_open_run *s = &r->run;
    if (r->exec[0]) {
        dt_device_inputs_fini(r->inputs, 2);
        dt_device_inputs_fini(&r->inputs[2], 1);
        for (int i = 0; i < 2; i++) dt_exec_destroy(r->exec[i]);
    }
    dt_nets_drop(&r->nets);
    s->backend->destroy(s->backend);
    assert_int_equal(fake_cuda_destroy(r->api), 0);
    dt_replica_plan_destroy(s->replicas);
    dt_comm_destroy(s->comm);
    dt_config_destroy(s->config);
}

TEST(test_start) {
    for (int i = 0; i < 3; i++) {
        run_parts r;
        assert_int_equal(plan_run(&r, networks[i], i == 0, 0), DT_OK);
        take_memory(&r);
        dt_plan_report report;
        dt_plan_report_get(r.nets.phases[0].train.plan, &report);
        const int n = count_allocs(r.run.backend);
        printf("%s: %d steps, %d allocations\n", networks[i], report.n_instructions, n);
        // parameters; packed weights; activations; constants, outputs and inputs of training and of evaluation
        assert_in_range(n, 6, 9);
        end_run(&r);
    }
}

// What the check says is needed is what is needed: with that much all of it can be taken, and where half of the packed
// weights is missing nothing is.
TEST(test_check_before_anything_is_taken) {
    static const char *const kinds[] = {"weights ", "packed weights ", "optimizer state ", "gradients ",
                                        "batches ", "activations ",    "evaluation "};
    for (int i = 0; i < 3; i++) {
        run_parts r;
        double all = 0;
        assert_int_equal(plan_run(&r, networks[i], i == 0, 0), DT_OK);
        const size_t packed = dt_params_packed_bytes(r.nets.params);
        const size_t parameters = r.nets.params->flat.n_bytes;
        assert_true(packed > 20000);
        end_run(&r);
        assert_int_equal(plan_run(&r, networks[i], i == 0, parameters), DT_E_USAGE);
        const char *at = strstr(dt_error_message(), "not fit the GPU: ");
        assert_true(at && sscanf(at, "not fit the GPU: %lf MiB in all", &all) == 1);
        for (int k = 0; k < 7; k++) assert_non_null(strstr(dt_error_message(), kinds[k]));
        end_run(&r);
        // the reserve is 2 % of what there is, not of `parameters`
        const size_t most = (size_t)(all * 1.05 * 1048576) + 65536;
        const size_t reserve = parameters / 50;
        const size_t need = ((size_t)(all * 1048576) - reserve) * 50 / 49;
        assert_int_equal(plan_run(&r, networks[i], i == 0, need - packed / 2), DT_E_USAGE);
        end_run(&r);
        assert_int_equal(plan_run(&r, networks[i], i == 0, most), DT_OK);
        take_memory(&r);
        end_run(&r);
    }
}

// train.shard in bf16 on W ranks: what AdamW keeps of a parameter is 6 + 12 / W bytes, where a rank that has all masters keeps
// 10 + 8 / W; and the report says what the device gives.
static size_t parameter_bytes(int world_size, bool own_masters) {
    const int64_t most = 4096;
    dt_own_range *own = dt_xcalloc((size_t)most, sizeof *own);
    run_parts r = {0};
    dt_open_run *s = &r.run;
    dt_params *p;
    dt_plan *plans[2];
    dt_graph *graphs[2];
    const dt_plan_opts po = {.threads = 1, .n_replicas = 1};
    int n_own = 0;
    must(dt_config_parse(&s->config, "test", owned_yaml, sizeof owned_yaml - 1, NULL, 0));
    must(dt_cuda_backend_create(&s->backend, fake_cuda_create(NULL), NULL, 0, &(dt_backend_opts){.threads = 1}));
    for (int i = 0; i < 2; i++) graphs[i] = make_graph(s->config, false, i == 0);
    must(dt_params_lay_out(&p, graphs[0], s->backend, 0, 1, own_masters));
    for (int64_t at = 0; at < p->n_trained; at += world_size * DT_CHUNK) { // the last rank's: it has the fewest
        const int64_t begin = at, end = at + DT_CHUNK < p->n_trained ? at + DT_CHUNK : p->n_trained;
        own[n_own++] = (dt_own_range){begin, end, 0};
    }
    dt_params_add_sharded(p, 2, own, n_own);
    for (int i = 0; i < 2; i++) must(dt_plan_create(&plans[i], graphs[i], p, &po));
    size_t packed = dt_params_packed_bytes(p), before = 0, left = 0, total;
    s->backend->device->memory(s->backend, &before, &total);
    if (own_masters) {
        const size_t others = p->flat.n_bytes;
        dt_params_own_masters(p, NULL, NULL);
        const size_t said = dt_params_owned_bytes(p, world_size, &packed);
        assert_in_range(p->flat.n_bytes - others, said, said + 4 * 256); // each of four begins at 256
        assert_true(packed * 20 < (size_t)p->n_trained);                 // folded pixels alone
    }
    must(dt_params_take(p));
    s->backend->device->memory(s->backend, &left, &total);
    const size_t taken = before - left;
    assert_in_range(taken, p->flat.n_bytes + packed, p->flat.n_bytes + packed + (1 << 16));
    printf("%d ranks, %s: %.3f bytes a parameter, of %lld\n", world_size,
           own_masters ? "masters with owners" : "all masters", (double)taken / (double)p->n_trained,
           (long long)p->n_trained);
    const double each = own_masters ? 6 + 12.0 / world_size : 10 + 8.0 / world_size;
    assert_true(fabs((double)taken / (double)p->n_trained - each) < 0.12);
    dt_params_destroy(p);
    for (int i = 0; i < 2; i++) dt_plan_destroy(plans[i]), dt_graph_destroy(graphs[i]);
    dt_cuda_api *api = dt_cuda_self(s->backend)->api;
    s->backend->destroy(s->backend);
    assert_int_equal(fake_cuda_destroy(api), 0);
    dt_config_destroy(s->config);
    free(own);
    return taken;
}

TEST(test_owned_masters) {
    for (int w = 2; w <= 8; w *= 4) assert_true(parameter_bytes(w, true) < parameter_bytes(w, false));
}

// What would fit if another process had not taken the rest is no mistake of the config.
TEST(test_memory_of_others) {
    run_parts r;
    void *theirs;
    assert_int_equal(plan_run(&r, networks[1], false, 0), DT_OK);
    dt_backend *b = r.run.backend;
    must(b->alloc(b, &theirs, (1u << 30) - 1000000, "another process"));
    must_fail(DT_E_INTERNAL, "train.recompute: auto takes less", dt_memory_check(&r.nets, &r.run));
    assert_non_null(strstr(dt_error_message(), "Lower train.micro_batch"));
    assert_true(b->out_of_memory);
    b->free(b, theirs, (1u << 30) - 1000000);
    end_run(&r);
}

// The line that a user sees says which lifetime did not fit.
TEST(test_out_of_memory) {
    dt_backend *b = NULL;
    dt_flat_buffer flat = {0};
    void *p[2];
    assert_int_equal(fake_cuda_backend(&b, &(dt_backend_opts){.threads = 1, .timed = true}), DT_OK);
    dt_flat_buffer_add(&flat, &p[0], 1000);
    dt_flat_buffer_add(&flat, &p[1], 1000);
    fake_cuda_fail(dt_cuda_self(b)->api, "alloc", 0, FAKE_OUT_OF_MEMORY);
    assert_int_not_equal(dt_flat_buffer_alloc(&flat, b, "packed weights"), DT_OK);
    assert_non_null(strstr(dt_error_message(), "for packed weights"));
    assert_null(p[0]);
    dt_flat_buffer_free(&flat);
    b->destroy(b);
}

// Memory is not short where the device is broken: who lowers the batch then is sent the wrong way.
TEST(test_a_broken_device_is_not_short_of_memory) {
    dt_cuda_api *api = fake_cuda_create(NULL);
    dt_backend *b = NULL;
    void *p = NULL;
    assert_int_equal(dt_cuda_backend_create(&b, api, NULL, 0, &(dt_backend_opts){.threads = 1}), DT_OK);
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
    dt_flat_buffer flat = {0};
    float *grad = NULL;
    assert_int_equal(dt_cuda_backend_create(&b, api, nccl, 0, &o), DT_OK);
    assert_int_equal(dt_comm_create_self(&boot), DT_OK);
    enum { BUCKET = 1 << 20 };
    assert_int_equal(dt_comm_create_nccl(&c, b, boot, true, false, BUCKET, 10), DT_OK);
    // every size of sum is met before memory is counted: live, and in a graph
    size_t n = 0, at = 0;
    const fake_cuda_call *log = fake_cuda_log(api, &n);
    int n_sums = 0;
    for (size_t i = 0; i < n; i++) n_sums += strcmp(log[i].call, "all_reduce") == 0 && log[i].n_bytes >= BUCKET;
    assert_int_equal(n_sums, 2);
    fake_cuda_log_clear(api);
    dt_flat_buffer_add(&flat, (void **)&grad, 1000 * sizeof *grad);
    assert_int_equal(dt_flat_buffer_alloc_shared(&flat, b, "gradients"), DT_OK);
    c->device->attach(c, b->device->stream, NULL, NULL, NULL);
    assert_int_equal(c->device->register_memory(c, flat.memory, flat.n_bytes), DT_OK);
    assert_int_equal(c->all_reduce_f32(c, grad, 1000), DT_OK);
    assert_int_equal(b->device->synchronize(b, b->device->stream), DT_OK);
    assert_int_equal(c->finalize(c), DT_OK);
    dt_flat_buffer_free(&flat);
    static const char *const names[] = {"mem_alloc",       "comm_register", "all_reduce",
                                        "comm_deregister", "finalize",      "mem_free"};
    log = fake_cuda_log(api, &n);
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

TEST(test_shared_memory) {
    share(false, 2);
    share(true, 2);
    share(false, 1);
}

TEST_MAIN(NULL, NULL)
