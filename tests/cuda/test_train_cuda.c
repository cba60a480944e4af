// test_train_cuda.c: training on the fake device. The fusion network at a small size gives the CPU's curve in fp32 and a
// curve near it in bf16 and fp16. The bits are the same from run to run, captured or not, after a resume, along the
// tree, and whether the network or the loader changes the pixels. A step allocates nothing, waits for nothing and
// copies only the bytes of a batch (one of its two images is mixed on the device), a step block and two marks. The
// optimizer writes the packed copies.
#include "exec/plan_internal.h"
#include "fake_cuda.h"
#include "folder.h"

#define STEPS   8
#define MICRO   4
#define N_MICRO 2
#define RATE    0.001
#include "device_bench.h"

static dt_status create_device(bench *b, const setting *s) {
    // engines are timed by the first bench of a network; the others have its choices and its plans, unless they
    // have other engines
    const char *kept = getenv("FAKE_CUDA_NO_SUMS") ? NULL : folder_path;
    return fake_cuda_backend(
        &b->b, &(dt_backend_opts){.threads = 1, .deterministic = true, .timed = true, .cache_folder = kept});
}

enum { SHORT = 4 };

static void compare_curves(const outcome *a, const outcome *b, int n, double tolerance) {
    for (int i = 0; i < n; i++)
        if (!(fabs(a->loss[i] - b->loss[i]) <= tolerance)) fail_msg("step %d: %.9g, %.9g", i, a->loss[i], b->loss[i]);
}

TEST(test_curve_of_the_cpu) {
    setting s = {.cpu = true, .clip = 0.5f};
    outcome cpu = train(&s);
    s.cpu = false;
    outcome device = train(&s);
    compare_curves(&cpu, &device, STEPS, 1e-3);
    drop(&cpu);
    drop(&device);
}

// Captured, not captured, along the tree: f32, bf16, and f16 with a scaled loss.
TEST(test_bits_and_precision) {
    setting s = {.clip = 0.5f, .n_steps = SHORT};
    outcome full = train(&s);
    s.uncaptured = true;
    outcome plain = train(&s);
    assert_same(&full, &plain);
    s.uncaptured = false;
    s.elastic = true; // two micro-batches: ((a) + (b)) either way
    outcome tree = train(&s);
    assert_same(&full, &tree);
    s.elastic = false;
    s.low = DT_BF16;
    outcome bf16 = train(&s);
    compare_curves(&full, &bf16, SHORT, 0.05);
    s.low = DT_F16;
    s.scaled = true;
    outcome fp16 = train(&s);
    compare_curves(&full, &fp16, SHORT, 0.02);
    drop(&full);
    drop(&plain);
    drop(&tree);
    drop(&bf16);
    drop(&fp16);
}

// Parts are frozen for good and for some steps: the CPU's curve in fp32, the same bits captured or not, and in fp16
// with its loss scale kept over the change of plans.
TEST(test_groups) {
    setting s = {.clip = 0.5f,
                 .n_steps = 7,
                 .groups = "train.groups=[{match: 'left.[0-5][.].*', freeze: true}, {match: "
                           "'right.[0-9][.].*', freeze_until: 5 steps}, {match: 'right.*', "
                           "freeze_until: 2 steps, lr: 0.5}]"};
    outcome full = train(&s), o;
    s.cpu = true;
    o = train(&s);
    compare_curves(&full, &o, s.n_steps, 1e-3);
    drop(&o);
    s.cpu = false;
    s.uncaptured = true;
    o = train(&s);
    assert_same(&full, &o);
    drop(&o);
    s.uncaptured = false;
    s.low = DT_F16;
    s.scaled = true;
    o = train(&s);
    compare_curves(&full, &o, s.n_steps, 0.02);
    drop(&o);
    drop(&full);
}

// Random changes to pixels by the network: as if the images had come so, captured or not.
TEST(test_changed_pixels) {
    setting s = {.n_steps = SHORT, .one_micro = true, .changes = CHANGED_BY_SOURCE};
    outcome source = train(&s);
    s.changes = CHANGED_BY_NETWORK;
    outcome network = train(&s);
    assert_same(&source, &network);
    s.uncaptured = true;
    outcome plain = train(&s);
    assert_same(&source, &plain);
    s.changes = UNCHANGED;
    outcome without = train(&s);
    assert_memory_not_equal(source.loss, without.loss, sizeof source.loss);
    drop(&source);
    drop(&network);
    drop(&plain);
    drop(&without);
}

// Stopped after two steps and taken up on another machine: as if nothing had been.
TEST(test_resume) {
    setting s = {.low = DT_F16, .scaled = true, .n_steps = 4};
    outcome whole = train(&s), o = {0};
    bench a, b;
    dt_step_result r[4];
    make_bench(&a, &s);
    make_bench(&b, &s);
    run_steps(&a, 0, 2, r);
    take_up(&b, &a);
    assert_int_equal(dt_stepper_set_scaler(b.stepper, &r[1].scaler), DT_OK);
    run_steps(&b, 2, 4, r + 2);
    keep(&o, &b, r, 4);
    assert_same(&whole, &o);
    drop_bench(&a);
    drop_bench(&b);
    drop(&whole);
    drop(&o);
}

// From the third step on: one graph a micro-batch; no allocation, no wait, no launch outside a graph.
TEST(test_quiet_steps) {
    bench b;
    dt_step_result r;
    make_bench(&b, &(setting){0});
    dt_cuda_api *api = dt_cuda_self(b.b)->api;
    for (int step = 0; step < 3; step++) assert_int_equal(dt_stepper_run(b.stepper, step, RATE, false, &r), DT_OK);
    fake_cuda_log_clear(api);
    for (int step = 3; step < 6; step++) assert_int_equal(dt_stepper_run(b.stepper, step, RATE, false, &r), DT_OK);
    size_t n = 0, n_bytes = 0;
    int n_graphs = 0;
    const fake_cuda_call *log = fake_cuda_log(api, &n);
    for (size_t i = 0; i < n; i++) {
        static const char *const allowed[] = {"copy", "graph_launch", "event_record", "event_wait", "stream_query"};
        bool known = false;
        for (size_t k = 0; k < sizeof allowed / sizeof *allowed; k++) known |= strcmp(log[i].call, allowed[k]) == 0;
        if (!known) fail_msg("%s %s inside a step", log[i].call, log[i].what);
        n_graphs += strcmp(log[i].call, "graph_launch") == 0;
        if (strcmp(log[i].call, "copy") == 0) n_bytes += log[i].n_bytes;
    }
    size_t batch = MICRO * (H * W * 4 + sizeof(int32_t) + sizeof(float) + sizeof(dt_mix_row));
    assert_int_equal(n_graphs, 3 * N_MICRO);
    assert_int_equal(n_bytes, 3 * (N_MICRO * (batch + DT_HOST_STEP_BYTES) + 2 * sizeof(float)));
    assert_int_equal(dt_stepper_drain(b.stepper, &r), DT_OK);
    drop_bench(&b);
}

// Every packed copy, one behind the other.
static char *read_copies(const bench *b, size_t *n) {
    char *all = NULL;
    *n = 0;
    for (int i = 0; i < b->plan->n_instructions; i++) {
        const dt_instruction *s = &b->plan->instructions[i];
        for (int k = 0; s->kernel && k < s->instance.n_packs; k++) {
            const size_t n_bytes = s->instance.packs[k].n_bytes;
            all = dt_xrealloc(all, *n + n_bytes);
            b->b->copy_to_host(b->b, all + *n, dt_params_packed(b->params, s->pack_ids[k]), n_bytes);
            *n += n_bytes;
        }
    }
    return all;
}

// The optimizer writes the packed copies: the step has no pack kernels, and packing once more changes nothing.
TEST(test_copies_of_the_optimizer) {
    bench b;
    dt_step_result r[3];
    make_bench(&b, &(setting){.low = DT_BF16});
    dt_cuda_api *api = dt_cuda_self(b.b)->api;
    size_t n = 0, n_first = 0, n_copies = 0, n_again = 0;
    char *first = read_copies(&b, &n_first);
    fake_cuda_log_clear(api);
    run_steps(&b, 0, 3, r);
    const fake_cuda_call *log = fake_cuda_log(api, &n);
    for (size_t i = 0; i < n; i++)
        if (strncmp(log[i].what, "pack_", 5) == 0) fail_msg("%s inside a step", log[i].what);
    char *copies = read_copies(&b, &n_copies);
    dt_params_repack(b.params);
    char *again = read_copies(&b, &n_again);
    assert_true(n_first > 100000 && n_copies == n_first && n_again == n_first);
    assert_memory_not_equal(first, copies, n_first);
    assert_memory_equal(copies, again, n_first);
    free(first);
    free(copies);
    free(again);
    drop_bench(&b);
}

// Launches of kernels whose names begin so, and runs of cuDNN, in one micro-batch.
typedef struct launches {
    int own, dnn;
} launches;
static launches count_launches(const setting *s, const char *kernel) {
    bench b;
    dt_step_result r;
    launches count = {0, 0};
    size_t n = 0;
    make_bench(&b, s);
    dt_cuda_api *api = dt_cuda_self(b.b)->api;
    fake_cuda_log_clear(api);
    assert_int_equal(dt_stepper_run(b.stepper, 0, RATE, false, &r), DT_OK);
    const fake_cuda_call *log = fake_cuda_log(api, &n);
    for (size_t i = 0; i < n; i++) {
        count.own += strcmp(log[i].call, "launch") == 0 && strncmp(log[i].what, kernel, strlen(kernel)) == 0;
        count.dnn += strcmp(log[i].call, "dnn_run") == 0;
    }
    assert_int_equal(dt_stepper_drain(b.stepper, &r), DT_OK);
    drop_bench(&b);
    return count;
}

// Under fp16 the convolutions make their batch norms' sums: none of these makes its own, and cuDNN runs as often. Not
// under bf16; not where cuDNN has no engine, and there the curve is the same but for rounding.
TEST(test_sums_by_convolutions) {
    setting s = {.low = DT_BF16, .one_micro = true, .uncaptured = true, .n_steps = 2};
    const launches bf16 = count_launches(&s, "bn_small"), all = count_launches(&s, "bn_");
    s.low = DT_F16;
    s.scaled = true;
    const launches fp16 = count_launches(&s, "bn_small");
    assert_int_equal(bf16.own, 8);
    assert_int_equal(all.own, 2 * 8); // small images: one kernel a direction
    assert_int_equal(fp16.own, 0);
    assert_int_equal(bf16.dnn, fp16.dnn);
    outcome fused = train(&s); // that the bits repeat: test_resume
    assert_int_equal(setenv("FAKE_CUDA_NO_SUMS", "1", 1), 0);
    const launches none = count_launches(&s, "bn_small");
    outcome apart = train(&s);
    assert_int_equal(unsetenv("FAKE_CUDA_NO_SUMS"), 0);
    assert_int_equal(none.own, 8);
    assert_int_equal(none.dnn, fp16.dnn);
    compare_curves(&fused, &apart, 2, 5e-3);
    drop(&fused);
    drop(&apart);
}

TEST_MAIN(folder_make, folder_remove)
