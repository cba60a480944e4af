// Optimizers and schedules against torch and timm: make_optimizers.py says how the numbers were made.
#include "../unit/whole_optimizer.h"
#include "config/optimizers.h"
#include "testing.h"
#include "train/schedule.h"

#include "optimizers_golden.h"

#include <math.h>
#include <string.h>

enum { M = sizeof MATRIX / sizeof *MATRIX, B = sizeof BIAS / sizeof *BIAS, AT = 48, N = AT + 16 };

typedef struct golden_case {
    const char *name;
    dt_optimizer_id kind;
    const float *hyper, *trained;
    float clip_value, clip_agc;
} golden_case;

static void check_optimizer(dt_backend *cpu, const golden_case *c) {
    static const dt_clip_tensor tensors[] = {{0, 7, 0, 5}, {AT, B, 5, 1}};
    static const dt_factored factored[] = {
        {.rows = 5, .cols = 7, .lr_scale = 1},
        {.offset = AT, .rows = 1, .cols = B, .at = {16}, .sums = 7, .vector = true, .lr_scale = 1}};
    double sums[7 + B];
    const dt_segment segments[] = {{0, M, 1, GOLDEN_DECAY, false, true}, {AT, B, 1, 0}};
    float p[N] = {0}, slots[DT_MAX_SLOTS][N] = {{0}}, g[N] = {0};
    memcpy(p, MATRIX, sizeof MATRIX);
    memcpy(p + AT, BIAS, sizeof BIAS);
    for (int t = 1; t <= GOLDEN_STEPS; t++) {
        for (int i = 0; i < M; i++) g[i] = 4 * MATRIX_GRADS[t - 1][i];
        for (int i = 0; i < B; i++) g[AT + i] = 4 * BIAS_GRADS[t - 1][i];
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
                               .lr = GOLDEN_LR,
                               .t = t};
        if (dt_optimizers[c->kind].factored)
            o.factored = factored, o.n_factored = 2, o.column_sums = sums;
        memcpy(o.hyper, c->hyper, sizeof o.hyper);
        if (c->clip_agc > 0) cpu->flat_clip(cpu, &o, 0, 3), cpu->flat_clip(cpu, &o, 3, 6);
        assert_true(whole_optimizer(cpu, o, N));
    }
    for (int i = 0; i < M + B; i++) {
        const float got = p[i < M ? i : AT + i - M], want = c->trained[i];
        if (!(fabsf(got - want) <= 2e-6f * (1 + fabsf(want))))
            fail_msg("%s, element %d: %.9g, not %.9g", c->name, i, (double)got, (double)want);
    }
}

TEST(test_optimizers) {
    dt_backend *cpu;
    bool seen[DT_N_OPTIMIZERS] = {false};
    assert_int_equal(dt_backend_create_cpu(&cpu, &(dt_backend_opts){.threads = 1}), DT_OK);
    for (size_t k = 0; k < sizeof OPTIMIZERS / sizeof *OPTIMIZERS; k++) {
        check_optimizer(cpu,
                        &(golden_case){dt_optimizers[OPTIMIZERS[k].kind].id, OPTIMIZERS[k].kind,
                                       OPTIMIZERS[k].hyper, OPTIMIZERS[k].trained});
        seen[OPTIMIZERS[k].kind] = true;
    }
    for (int i = 0; i < DT_N_OPTIMIZERS; i++) // one without a case here is nobody's
        if (!seen[i]) fail_msg("%s has no golden numbers", dt_optimizers[i].id);
    cpu->destroy(cpu);
}

TEST(test_clipping) {
    dt_backend *cpu;
    assert_int_equal(dt_backend_create_cpu(&cpu, &(dt_backend_opts){.threads = 1}), DT_OK);
    const float hyper[DT_MAX_HYPER] = {0.9f};
    for (size_t k = 0; k < sizeof CLIPS / sizeof *CLIPS; k++)
        check_optimizer(cpu, &(golden_case){k ? "clip_agc" : "clip_value", DT_OPTIMIZER_sgd, hyper,
                                            CLIPS[k].trained, CLIPS[k].value, CLIPS[k].agc});
    cpu->destroy(cpu);
}

TEST(test_schedules) {
    for (size_t k = 0; k < sizeof SCHEDULES / sizeof *SCHEDULES; k++) {
        dt_schedule s = {.kind = SCHEDULES[k].kind, .lr = 0.5, .total_steps = 30};
        memcpy(s.own, SCHEDULES[k].own, sizeof s.own);
        for (int i = 0; i < 30; i++) {
            const double want = (double)SCHEDULES[k].rates[i], got = dt_schedule_lr(&s, i, NULL, 0);
            if (!(fabs(got - want) <= 1e-6 * want))
                fail_msg("schedule %d, step %d: %.9g, not %.9g", (int)s.kind, i, got, want);
            s.warmup_steps = 7; // moves all of it, if the run is as much longer
            s.total_steps = 37;
            assert_true(fabs(dt_schedule_lr(&s, i + 7, NULL, 0) - want) <= 1e-6 * want);
            s.warmup_steps = 0;
            s.total_steps = 30;
        }
    }
}

TEST_MAIN(NULL, NULL)
