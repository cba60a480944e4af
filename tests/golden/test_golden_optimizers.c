// Optimizers and schedules against torch and timm: make_optimizers.py says how the numbers were made.
#include "config/words.h"
#include "golden.h"
#include "run/schedule.h"
#include "testing.h"
#include "unit/whole_optimizer.h"

enum { STEPS = 3, ROWS = 5, COLS = 7, M = ROWS * COLS, B = 9, AT = 48, N = AT + 16 };

typedef struct golden_case {
    const char *name; // of the tensor
    dt_optimizer_id kind;
    float hyper[DT_MAX_HYPER];
    float clip_value, clip_agc;
    bool plain, always; // without decay; train.optimizer.always_adapt
} golden_case;

static const golden_case CASES[] = {
    {"adamw", DT_OPTIMIZER_adamw, {0.8f, 0.95f, 1e-6f}},
    {"adam", DT_OPTIMIZER_adam, {0.8f, 0.95f, 1e-6f}},
    {"sgd", DT_OPTIMIZER_sgd, {0.9f, 0}},
    {"nesterov", DT_OPTIMIZER_sgd, {0.9f, 1}},
    {"lamb", DT_OPTIMIZER_lamb, {0.8f, 0.95f, 1e-6f}},
    {"lion", DT_OPTIMIZER_lion, {0.8f, 0.95f}},
    {"lars", DT_OPTIMIZER_lars, {0.9f, 0, 0.02f}},
    {"lars_nesterov", DT_OPTIMIZER_lars, {0.9f, 1, 0.02f}},
    {"lamb_plain", DT_OPTIMIZER_lamb, {0.8f, 0.95f, 1e-6f}, .plain = true},
    {"lamb_always", DT_OPTIMIZER_lamb, {0.8f, 0.95f, 1e-6f}, .always = true},
    {"lars_plain", DT_OPTIMIZER_lars, {0.9f, 0, 0.02f}, .plain = true},
    {"lars_always", DT_OPTIMIZER_lars, {0.9f, 0, 0.02f}, .always = true},
    {"adafactor", DT_OPTIMIZER_adafactor, {0}},
    {"clip_value", DT_OPTIMIZER_sgd, {0.9f, 0}, 0.3f, 0},
    {"clip_agc", DT_OPTIMIZER_sgd, {0.9f, 0}, 0, 0.1f},
};

static dt_safetensors *golden;

static const float *numbers(const char *prefix, const char *name, int64_t n) {
    char key[64];
    size_t n_bytes;
    snprintf(key, sizeof key, "%s%s", prefix, name);
    const int i = dt_safetensors_find(golden, key);
    if (i < 0) fail_msg("no tensor %s", key);
    const float *x = dt_safetensors_data(golden, i, &n_bytes);
    assert_int_equal(n_bytes, sizeof *x * (size_t)n);
    return x;
}

static void check_optimizer(dt_backend *cpu, const golden_case *c) {
    static const dt_clip_tensor tensors[] = {{0, COLS, 0, ROWS}, {AT, B, ROWS, 1}};
    static const dt_factored factored[] = {
        {.rows = ROWS, .cols = COLS, .lr_scale = 1},
        {.offset = AT, .rows = 1, .cols = B, .at = {16}, .sums = COLS, .vector = true, .lr_scale = 1}};
    double sums[COLS + B];
    const float decay = c->plain ? 0.0f : 0.1f;
    const dt_segment segments[] = {{0, M, 1, decay, false, dt_optimizer_scales(decay, c->always)},
                                   {AT, B, 1, 0, false, dt_optimizer_scales(0, c->always)}};
    float p[N] = {0}, slots[DT_MAX_SLOTS][N] = {{0}}, g[N] = {0};
    const float *matrix_grad = numbers("", "matrix_grad", STEPS * M);
    const float *bias_grad = numbers("", "bias_grad", STEPS * B);
    const float *trained = numbers("trained/", c->name, M + B);
    memcpy(p, numbers("", "matrix", M), M * sizeof *p);
    memcpy(p + AT, numbers("", "bias", B), B * sizeof *p);
    for (int t = 1; t <= STEPS; t++) {
        for (int i = 0; i < M; i++) g[i] = 4 * matrix_grad[(t - 1) * M + i];
        for (int i = 0; i < B; i++) g[AT + i] = 4 * bias_grad[(t - 1) * B + i];
        dt_optimizer_args o = {.kind = c->kind,
                               .segments = segments,
                               .n_segments = 2,
                               .master = p,
                               .slots = {slots[0], slots[1]},
                               .grad = g,
                               .grad_scale = 0.25f,
                               .clip_value = c->clip_value,
                               .clip_agc = c->clip_agc,
                               .tensors = tensors,
                               .n_tensors = 2,
                               .lr = 0.05f,
                               .t = t};
        if (dt_optimizers[c->kind].factored) o.factored = factored, o.n_factored = 2, o.column_sums = sums;
        memcpy(o.hyper, c->hyper, sizeof o.hyper);
        if (c->clip_agc > 0) cpu->flat_clip_agc(cpu, &o, 0, 3), cpu->flat_clip_agc(cpu, &o, 3, 6);
        assert_true(whole_optimizer(cpu, o, N));
    }
    for (int i = 0; i < M + B; i++) {
        const float got = p[i < M ? i : AT + i - M], want = trained[i];
        if (!(fabsf(got - want) <= 2e-6f * (1 + fabsf(want))))
            fail_msg("%s, element %d: %.9g, not %.9g", c->name, i, (double)got, (double)want);
    }
}

TEST(test_optimizers) {
    dt_backend *cpu;
    bool seen[DT_N_OPTIMIZERS] = {false};
    must(dt_backend_create_cpu(&cpu, &(dt_backend_opts){.threads = 1}));
    for (size_t k = 0; k < sizeof CASES / sizeof *CASES; k++) {
        check_optimizer(cpu, &CASES[k]);
        seen[CASES[k].kind] = true;
    }
    for (int i = 0; i < DT_N_OPTIMIZERS; i++) // one without a case here is nobody's
        if (!seen[i]) fail_msg("%s has no golden numbers", dt_optimizers[i].id);
    cpu->destroy(cpu);
}

TEST(test_schedules) {
    static const struct {
        const char *name;
        dt_schedule_id kind;
        double own[DT_MAX_SCHEDULE_KEYS];
    } SCHEDULES[] = {{"one_cycle", DT_SCHEDULE_one_cycle, {9, 10, 100}},
                     {"polynomial", DT_SCHEDULE_polynomial, {1.5, 0}},
                     {"warm_restarts", DT_SCHEDULE_warm_restarts, {4, 2, 0.05}}};
    for (size_t k = 0; k < sizeof SCHEDULES / sizeof *SCHEDULES; k++) {
        dt_schedule s = {.kind = SCHEDULES[k].kind, .lr = 0.5, .total_steps = 30};
        memcpy(s.own, SCHEDULES[k].own, sizeof s.own);
        const float *rates = numbers("rates/", SCHEDULES[k].name, 30);
        for (int i = 0; i < 30; i++) {
            const double want = (double)rates[i], got = dt_schedule_lr(&s, i, NULL, 0);
            if (!(fabs(got - want) <= 1e-6 * want))
                fail_msg("%s, step %d: %.9g, not %.9g", SCHEDULES[k].name, i, got, want);
            s.warmup_steps = 7; // moves all of it, if the run is as much longer
            s.total_steps = 37;
            assert_true(fabs(dt_schedule_lr(&s, i + 7, NULL, 0) - want) <= 1e-6 * want);
            s.warmup_steps = 0;
            s.total_steps = 30;
        }
    }
}

static int set_up(void **state) {
    golden = golden_open("optimizers.safetensors");
    return 0;
}

static int tear_down(void **state) {
    dt_safetensors_close(golden);
    return 0;
}

TEST_MAIN(set_up, tear_down)
