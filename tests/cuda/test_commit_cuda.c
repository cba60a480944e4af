// test_commit_cuda.c: the end of a step as device work, compared with the CPU backend's flat-buffer arithmetic over
// several steps: optimizer, clipping, packed copies, running statistics; then loss scaling, skipped and halted steps.
#include "backend/cuda/kernels/kernel_math.h"
#include "backend/optimizers/sgd.h"
#include "base/rng.h"
#include "config/words.h"
#include "fake_cuda.h"
#include "testing.h"
#include "unit/whole_optimizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 24 * DT_CHUNK + 4096, TAIL = 64, STAT = N, LOSS = N + 32, GRAD = N + TAIL, BUFFERS = 32 };

static const dt_segment segments[] = {{0, 16, 1, 0.1f, false},
                                      {16, 70000, 1, 0, false},
                                      {70016, 64, 0.5f, 0.2f, true},
                                      {70080, N - 70080, 2, 0.05f, false}};
// Optimizers with norms: one per tensor, tensors with copies included
static const dt_segment tensors[] = {{0, 13, 1, 0.1f, false, true},        {16, 70000, 1, 0, false, false},
                                     {70016, 64, 0.5f, 0.2f, true, true},  {70096, 20000, 2, 0.05f, false, true},
                                     {90096, 12304, 1, 0, false, false},   {102400, 4608 * 9, 2, 0.05f, false, true},
                                     {N - 512, 512, 1, 0.05f, false, true}};
static const dt_commit_rule rules[] = {{0, STAT, 5, 0.1f}, {16, STAT + 16, 9, 0.3f}};

// Copies of parameters: with a gap behind, permuted, frozen, crossing block and chunk borders.
#define COPIES 6
static const dt_commit_copy copies[COPIES] = {{0, 13, NULL, {DT_BF16, 1, 1}},
                                              {32, 40 * 27, NULL, {DT_F16, 3, 9}},
                                              {70016, 64, NULL, {DT_BF16, 1, 1}},
                                              {70096, 20000, NULL, {DT_F16, 20, 1}},
                                              {102400, 4608 * 9, NULL, {DT_F32, 64, 9}},
                                              {N - 512, 512, NULL, {DT_BF16, 1, 4}}};
enum { LONGEST_COPY = 4608 * 9 };

typedef struct rig {
    dt_backend *cpu, *gpu;
    dt_commit_args a;
    dt_commit_copy copies[COPIES];
    void *commit, *stream;
    float *grad;
    dt_device_step *step; // device
    dt_step_numbers *numbers;
    float *flat[4], *buffer, *host_grad; // the CPU's master, moments
    float average[N + BUFFERS];
} rig;

static float *device_floats(dt_backend *b, const float *from, int64_t n) {
    float *p;
    must(b->alloc(b, (void **)&p, (size_t)n * 4, "test"));
    if (from) b->copy_to_device(b, p, from, (size_t)n * 4);
    return p;
}

static void fill(float *x, int64_t n, uint32_t slot) {
    const dt_rng r = {.seed = 3, .slot = slot};
    for (int64_t i = 0; i < n; i++) x[i] = 2 * dt_rng_uniform(&r, (uint32_t)i) - 1;
}

static void set_up(rig *r, dt_optimizer_args o, float clip, int growth, float scale) {
    memset(r, 0, sizeof *r);
    must(dt_backend_create_cpu(&r->cpu, &(dt_backend_opts){.threads = 1}));
    must(fake_cuda_backend(&r->gpu, &(dt_backend_opts){.threads = 1}));
    for (int i = 0; i < 3; i++) r->flat[i] = calloc(N, 4);
    fill(r->flat[0], N, 1);
    r->buffer = calloc(BUFFERS, 4);
    fill(r->buffer, BUFFERS, 2);
    r->host_grad = calloc(GRAD, 4);
    const bool norms = dt_optimizers[o.kind].norms;
    o.segments = norms ? tensors : segments;
    o.n_segments = norms ? sizeof tensors / sizeof *tensors : sizeof segments / sizeof *segments;
    r->a = (dt_commit_args){.optimizer = o,
                            .n_trained = N,
                            .limits = {LOSS, LOSS + 1, LOSS + 2, LOSS + 3, clip, growth, .least_scale = 1},
                            .rules = rules,
                            .n_rules = 2,
                            .n_micro = 4};
    r->a.optimizer.master = device_floats(r->gpu, r->flat[0], N);
    r->a.optimizer.slots[0] = device_floats(r->gpu, NULL, N);
    r->a.optimizer.slots[1] = device_floats(r->gpu, NULL, N);
    r->a.buffer = device_floats(r->gpu, r->buffer, BUFFERS);
    for (int i = 0; i < N; i++) r->average[i] = r->flat[0][i];
    for (int i = 0; i < BUFFERS; i++) r->average[N + i] = r->buffer[i];
    r->a.optimizer.average = device_floats(r->gpu, r->average, N);
    r->a.optimizer.average_rate = 0.25f;
    r->a.buffer_average = device_floats(r->gpu, r->average + N, BUFFERS);
    r->grad = device_floats(r->gpu, NULL, GRAD);
    const dt_device_step first = {.block = {.seed = 1, .loss_scale = scale}};
    must(r->gpu->alloc(r->gpu, (void **)&r->step, sizeof first, "step"));
    r->gpu->copy_to_device(r->gpu, r->step, &first, sizeof first);
    must(r->gpu->alloc_host(r->gpu, (void **)&r->numbers, DT_NUMBERS_RING * sizeof *r->numbers, "numbers"));
    char *poison = malloc(LONGEST_COPY * 4);
    memset(poison, 0xab, LONGEST_COPY * 4);
    memcpy(r->copies, copies, sizeof copies);
    for (int i = 0; i < COPIES; i++) {
        const size_t n_bytes = (size_t)copies[i].count * dt_dtype_size((dt_dtype)copies[i].form.type);
        must(r->gpu->alloc(r->gpu, &r->copies[i].packed, n_bytes, "copy"));
        r->gpu->copy_to_device(r->gpu, r->copies[i].packed, poison, n_bytes);
    }
    free(poison);
    r->a.copies = r->copies;
    r->a.n_copies = COPIES;
    r->a.step = r->step;
    r->a.numbers = r->numbers;
    must(r->gpu->device->commit_create(r->gpu, &r->a, &r->commit));
    must(r->gpu->device->stream_create(r->gpu, &r->stream, false));
}

static void tear_down(rig *r) {
    dt_backend *g = r->gpu;
    g->device->commit_destroy(g, r->commit);
    g->device->stream_destroy(g, r->stream);
    float *const device[] = {
        r->a.optimizer.master,  r->a.optimizer.slots[0], r->a.optimizer.slots[1], r->a.buffer, r->grad,
        r->a.optimizer.average, r->a.buffer_average};
    for (int i = 0; i < 7; i++) g->free(g, device[i], 0);
    for (int i = 0; i < COPIES; i++) g->free(g, r->copies[i].packed, 0);
    g->free(g, r->step, sizeof *r->step);
    g->free_host(g, r->numbers, 0);
    g->destroy(g);
    r->cpu->destroy(r->cpu);
    for (int i = 0; i < 3; i++) free(r->flat[i]);
    free(r->buffer);
    free(r->host_grad);
}

static const dt_step_numbers *run_step(rig *r, int64_t step, float lr) {
    dt_backend *g = r->gpu;
    dt_device_step host;
    g->copy_to_host(g, &host, r->step, sizeof host);
    host.step = step;
    host.lr = lr;
    g->copy_to_device(g, r->step, &host, DT_HOST_STEP_BYTES);
    g->copy_to_device(g, r->grad, r->host_grad, (size_t)GRAD * 4);
    for (int p = 0; p < DT_N_COMMIT_PHASES; p++)
        g->device->commit_phase(g, r->commit, (dt_commit_phase)p, r->grad, r->stream);
    must(g->device->synchronize(g, r->stream));
    const dt_step_numbers *n = &r->numbers[step % DT_NUMBERS_RING];
    assert_int_equal(n->step, step);
    return n;
}

// The same step by the CPU's functions, as train/commit.c does it.
static double cpu_step(rig *r, int64_t step, float lr, float scale) {
    double partial[N / DT_CHUNK + 1], sum = 0;
    r->cpu->flat_sum_squares(r->cpu, r->host_grad, N, partial, 0, N / DT_CHUNK + 1);
    for (int i = 0; i < N / DT_CHUNK + 1; i++) sum += partial[i];
    const double weight = (double)r->host_grad[LOSS + 1] * (double)scale;
    const double norm = sqrt(sum) / weight;
    double clip = 1;
    const double most = (double)r->a.limits.clip_norm;
    if (most > 0 && norm > most) clip = most / (norm + 1e-6);
    dt_optimizer_args o = r->a.optimizer;
    o.master = r->flat[0], o.slots[0] = r->flat[1], o.slots[1] = r->flat[2];
    o.average = r->average;
    o.grad = r->host_grad;
    o.grad_scale = (float)(clip / weight);
    o.lr = lr;
    o.t = step + 1;
    double column_sums[1024];
    o.column_sums = column_sums;
    if (o.n_tensors) r->cpu->flat_clip_agc(r->cpu, &o, 0, 6);
    whole_optimizer(r->cpu, o, N);
    for (int i = 0; i < 2; i++)
        for (int64_t k = 0; k < rules[i].count; k++) {
            float *b = &r->buffer[rules[i].buffer + k];
            *b = (1 - rules[i].momentum) * *b + rules[i].momentum * (r->host_grad[rules[i].stat + k] * 0.25f);
            float *m = &r->average[N + rules[i].buffer + k];
            *m += (*b - *m) * 0.25f;
        }
    return norm;
}

static void compare(dt_backend *b, const float *device, const float *want, int64_t n, double tolerance) {
    float *got = malloc((size_t)n * 4);
    b->copy_to_host(b, got, device, (size_t)n * 4);
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - (double)want[i]) <= tolerance * (1 + fabs((double)want[i]))))
            fail_msg("element %ld: %.9g, not %.9g", (long)i, (double)got[i], (double)want[i]);
    free(got);
}

// Each copy must have the bits of the master, converted and permuted. Copies of frozen parameters, and all copies if
// nothing was committed yet, must keep their old bits.
static void compare_copies(rig *r, bool committed) {
    static float master[N];
    static char got[LONGEST_COPY * 4], want[LONGEST_COPY * 4];
    r->gpu->copy_to_host(r->gpu, master, r->a.optimizer.master, sizeof master);
    for (int i = 0; i < COPIES; i++) {
        const dt_commit_copy *c = &r->copies[i];
        const uint32_t per_out = c->form.n_in * c->form.n_taps;
        const size_t n_bytes = (size_t)c->count * dt_dtype_size((dt_dtype)c->form.type);
        memset(want, 0xab, n_bytes);
        for (int64_t k = 0; committed && c->offset != 70016 && k < c->count; k++) {
            const int64_t out = k / per_out, in = k % per_out / c->form.n_taps;
            const int64_t tap = k % c->form.n_taps;
            dt_put(want, c->form.type, out * per_out + tap * c->form.n_in + in, master[c->offset + k]);
        }
        r->gpu->copy_to_host(r->gpu, got, c->packed, n_bytes);
        if (memcmp(got, want, n_bytes)) fail_msg("copy %d", i);
    }
}

static void check_optimizer(dt_optimizer_args o, float clip, float scale) {
    rig r;
    set_up(&r, o, clip, 0, scale);
    for (int64_t step = 0; step < 4; step++) {
        fill(r.host_grad, GRAD, 10 + (uint32_t)step);
        for (int64_t i = 0; i < N; i++) r.host_grad[i] *= scale;
        r.host_grad[LOSS] = 96;
        r.host_grad[LOSS + 1] = 32;
        r.host_grad[LOSS + 2] = step == 2 ? 3 : 0;
        r.host_grad[LOSS + 3] = 0;
        const float lr = 0.01f / (float)(step + 1);
        const dt_step_numbers *n = run_step(&r, step, lr);
        const double norm = cpu_step(&r, step, lr, scale);
        assert_true(fabs(n->grad_norm - norm) < 1e-12 * norm);
        assert_true(n->loss == 96 && n->weight == 32 && n->finite && !n->halted);
        assert_int_equal(n->stop, step == 2 ? 3 : 0);
        compare(r.gpu, r.a.optimizer.master, r.flat[0], N, 1e-6);
        compare(r.gpu, r.a.optimizer.slots[0], r.flat[1], N, 1e-6);
        compare(r.gpu, r.a.optimizer.slots[1], r.flat[2], N, 1e-6);
        compare(r.gpu, r.a.buffer, r.buffer, BUFFERS, 1e-6);
        compare(r.gpu, r.a.optimizer.average, r.average, N, 1e-6);
        compare(r.gpu, r.a.buffer_average, r.average + N, BUFFERS, 1e-6);
        compare_copies(&r, true);
    }
    tear_down(&r);
}

TEST(test_optimizers) {
    const dt_optimizer_args adamw = {.kind = DT_OPTIMIZER_adamw, .hyper = {0.9f, 0.999f, 1e-8f}};
    check_optimizer(adamw, 0, 1);
    check_optimizer(adamw, 0.5f, 1024);
    dt_optimizer_args sgd = {.kind = DT_OPTIMIZER_sgd, .hyper = {0.9f}};
    check_optimizer(sgd, 0, 1);
    sgd.hyper[DT_SGD_NESTEROV] = 1;
    check_optimizer(sgd, 1, 1);
    sgd.hyper[DT_SGD_MOMENTUM] = 0;
    check_optimizer(sgd, 0, 1);
    dt_optimizer_args lamb = adamw;
    lamb.kind = DT_OPTIMIZER_lamb;
    check_optimizer(lamb, 0, 1);
    check_optimizer(lamb, 0.5f, 1024);
    dt_optimizer_args adam = adamw;
    adam.kind = DT_OPTIMIZER_adam;
    check_optimizer(adam, 0.5f, 1024);
    check_optimizer((dt_optimizer_args){.kind = DT_OPTIMIZER_lion, .hyper = {0.9f, 0.99f}}, 0, 8);
    const dt_optimizer_args lars = {.kind = DT_OPTIMIZER_lars, .hyper = {0.9f, 1, 0.02f}};
    check_optimizer(lars, 0.5f, 1024);
    static const dt_clip_tensor rows[] = {{0, 10, 0, 5}, {70096, 20, 5, 1}};
    dt_optimizer_args clipped = adamw;
    clipped.clip_value = 0.01f;
    check_optimizer(clipped, 0, 1024);
    clipped.kind = DT_OPTIMIZER_lamb; // its norms are of what is clipped
    check_optimizer(clipped, 0, 1024);
    clipped = sgd;
    clipped.clip_agc = 0.01f;
    clipped.tensors = rows;
    clipped.n_tensors = 2;
    check_optimizer(clipped, 0, 8);
}

// A vector, and matrices of several bands: tall, wide, frozen, of few columns.
TEST(test_factored) {
    static const dt_factored factored[] = {{0, 1, 16, {0, 0}, 0, 1, .vector = true},
                                           {16, 1000, 70, {32, 32}, 16, 1},
                                           {70016, 1, 64, {2048, 0}, 86, 1, .vector = true, .frozen = true},
                                           {70080, 404, 80, {2112, 128}, 150, 2},
                                           {102400, 4608, 9, {3072, 640}, 230, 0.5f},
                                           {143872, (N - 143872) / 512, 512, {8192, 1024}, 239, 1}};
    dt_optimizer_args o = {.kind = DT_OPTIMIZER_adafactor, .factored = factored, .n_factored = 6};
    check_optimizer(o, 0.5f, 1024);
    o.clip_value = 0.5f;
    check_optimizer(o, 0, 1);
}

static void gradients(rig *r, float first, float drop) {
    fill(r->host_grad, GRAD, 5);
    r->host_grad[7] = first;
    r->host_grad[LOSS] = 1;
    r->host_grad[LOSS + 1] = 1;
    r->host_grad[LOSS + 2] = 0;
    r->host_grad[LOSS + 3] = drop;
}

TEST(test_loss_scale) {
    rig r;
    const dt_optimizer_args sgd = {.kind = DT_OPTIMIZER_sgd};
    set_up(&r, sgd, 0, 2, 4);
    gradients(&r, INFINITY, 0);
    const dt_step_numbers *n = run_step(&r, 0, 0.1f); // skipped
    assert_true(!n->finite && !n->halted && n->loss_scale == 4 && n->next_scale == 2);
    assert_int_equal(n->n_skipped, 1);
    compare(r.gpu, r.a.optimizer.master, r.flat[0], N, 0);
    compare(r.gpu, r.a.buffer, r.buffer, BUFFERS, 0);
    compare_copies(&r, false);
    gradients(&r, 1, 0);
    n = run_step(&r, 1, 0.1f);
    assert_true(n->finite && n->next_scale == 2 && n->clean_steps == 1);
    n = run_step(&r, 2, 0.1f);
    assert_true(n->finite && n->next_scale == 4 && n->clean_steps == 0);
    gradients(&r, NAN, 0);
    for (int64_t step = 3; step < 5; step++) n = run_step(&r, step, 0.1f);
    assert_true(n->next_scale == 1 && !n->halted);
    n = run_step(&r, 5, 0.1f); // scaling cannot help
    assert_true(n->halted && n->n_skipped == 3);
    float *before = malloc((size_t)N * 4);
    r.gpu->copy_to_host(r.gpu, before, r.a.optimizer.master, (size_t)N * 4);
    gradients(&r, 1, 0);
    n = run_step(&r, 6, 0.1f); // sticky
    assert_true(n->halted && n->finite);
    compare(r.gpu, r.a.optimizer.master, before, N, 0);
    compare_copies(&r, true);
    free(before);
    tear_down(&r);
}

TEST(test_halt) {
    rig r;
    const dt_optimizer_args sgd = {.kind = DT_OPTIMIZER_sgd};
    set_up(&r, sgd, 0, 0, 1);
    gradients(&r, 1, 2); // two ranks gave the step up
    const dt_step_numbers *n = run_step(&r, 0, 0.1f);
    assert_true(n->halted && n->drop == 2 && n->finite);
    compare(r.gpu, r.a.optimizer.master, r.flat[0], N, 0);
    tear_down(&r);
    set_up(&r, sgd, 0, 0, 1);
    gradients(&r, NAN, 0);
    n = run_step(&r, 0, 0.1f); // no scaling: halts at once
    assert_true(n->halted && !n->finite && n->n_skipped == 0);
    compare(r.gpu, r.a.optimizer.master, r.flat[0], N, 0);
    tear_down(&r);
}

// Weights, a moment and statistics that a commit leaves not finite: the next one says so and changes nothing.
TEST(test_spoiled) {
    const dt_optimizer_args sgd = {.kind = DT_OPTIMIZER_sgd};
    const dt_optimizer_args adamw = {.kind = DT_OPTIMIZER_adamw, .hyper = {0.9f, 0.999f, 1e-8f}};
    for (int k = 0; k < 4; k++) {
        rig r;
        set_up(&r, k == 1 ? adamw : sgd, 0, 2, 1);
        gradients(&r, 1, 0);
        if (k == 0) r.host_grad[N - 1] = 3e38f; // times lr
        if (k == 1) r.host_grad[70096] = 1e25f; // squared
        if (k == 2) r.host_grad[STAT + 16 + 8] = INFINITY;
        const dt_step_numbers *n = run_step(&r, 0, 10);
        assert_true(n->finite && !n->halted && !n->spoiled);
        float *before = malloc((size_t)N * 4);
        r.gpu->copy_to_host(r.gpu, before, r.a.optimizer.master, (size_t)N * 4);
        if (k == 0) before[N - 1] = 0;
        gradients(&r, 1, 0);
        n = run_step(&r, 1, 10);
        assert_true(n->spoiled == (k < 3) && n->halted == (k < 3));
        float *after = malloc((size_t)N * 4);
        r.gpu->copy_to_host(r.gpu, after, r.a.optimizer.master, (size_t)N * 4);
        if (k == 0) after[N - 1] = 0;
        assert_true((memcmp(before, after, (size_t)N * 4) == 0) == (k < 3));
        free(before);
        free(after);
        tear_down(&r);
    }
}

TEST(test_add_and_swap) {
    rig r;
    set_up(&r, (dt_optimizer_args){.kind = DT_OPTIMIZER_sgd}, 0, 0, 1);
    float *master = r.a.optimizer.master, *const *slots = r.a.optimizer.slots;
    for (int i = 0; i < 3; i++) r.gpu->device->swap(r.gpu, master, slots[1], N, r.stream);
    r.gpu->device->add(r.gpu, slots[0], slots[1], N - 3, r.stream);
    must(r.gpu->device->synchronize(r.gpu, r.stream));
    compare(r.gpu, master, r.flat[1], N, 0);
    compare(r.gpu, slots[1], r.flat[0], N, 0);
    memset(r.flat[0] + N - 3, 0, 12);
    compare(r.gpu, slots[0], r.flat[0], N, 0);
    tear_down(&r);
}

TEST_MAIN(fake_cuda_race, NULL)
