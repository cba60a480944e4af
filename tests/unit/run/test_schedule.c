// Learning rates at the points where their definitions say what they must be.
#include "base/core.h"
#include "config/words.h"
#include "run/schedule.h"
#include "testing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

TEST(test_constant_with_warmup) {
    dt_schedule s = {.kind = DT_SCHEDULE_constant, .lr = 0.5, .warmup_steps = 4};
    assert_float_equal(dt_schedule_lr(&s, 0, NULL, 0), 0.125, 1e-12);
    assert_float_equal(dt_schedule_lr(&s, 3, NULL, 0), 0.5, 1e-12);
    assert_float_equal(dt_schedule_lr(&s, 1000, NULL, 0), 0.5, 1e-12);
}

TEST(test_cosine) {
    dt_schedule s = {.kind = DT_SCHEDULE_cosine, .lr = 1.0, .own = {0.2}, .warmup_steps = 10, .total_steps = 110};
    assert_float_equal(dt_schedule_lr(&s, 10, NULL, 0), 1.0, 1e-12);
    assert_float_equal(dt_schedule_lr(&s, 60, NULL, 0), 0.6, 1e-12);
    assert_float_equal(dt_schedule_lr(&s, 110, NULL, 0), 0.2, 1e-12);
    assert_float_equal(dt_schedule_lr(&s, 500, NULL, 0), 0.2, 1e-12);
    for (int64_t i = 11; i < 110; i++) assert_true(dt_schedule_lr(&s, i, NULL, 0) < dt_schedule_lr(&s, i - 1, NULL, 0));
}

TEST(test_wsd) {
    dt_schedule s = {.kind = DT_SCHEDULE_wsd, .lr = 1.0, .own = {20, 0.2}, .warmup_steps = 10, .total_steps = 110};
    assert_float_equal(dt_schedule_lr(&s, 4, NULL, 0), 0.5, 1e-12);
    assert_float_equal(dt_schedule_lr(&s, 10, NULL, 0), 1.0, 1e-12);
    assert_float_equal(dt_schedule_lr(&s, 90, NULL, 0), 1.0, 1e-12);
    assert_float_equal(dt_schedule_lr(&s, 100, NULL, 0), 0.6, 1e-12);
    assert_float_equal(dt_schedule_lr(&s, 109, NULL, 0), 0.24, 1e-12);
    assert_float_equal(dt_schedule_lr(&s, 500, NULL, 0), 0.2, 1e-12);
    s.own[0] = 0; // no decay at all
    assert_float_equal(dt_schedule_lr(&s, 109, NULL, 0), 1.0, 1e-12);
    s.own[0] = 300; // longer than the run: it begins behind the warm-up
    assert_float_equal(dt_schedule_lr(&s, 9, NULL, 0), 1.0, 1e-12);
    assert_float_equal(dt_schedule_lr(&s, 60, NULL, 0), 0.2 + 0.8 * 50 / 300, 1e-12);
}

TEST(test_step) {
    dt_schedule s = {.kind = DT_SCHEDULE_step, .lr = 1.0, .own = {30, 0.1}};
    assert_float_equal(dt_schedule_lr(&s, 29, NULL, 0), 1.0, 1e-12);
    assert_float_equal(dt_schedule_lr(&s, 30, NULL, 0), 0.1, 1e-12);
    assert_float_equal(dt_schedule_lr(&s, 90, NULL, 0), 0.001, 1e-12);
}

TEST(test_plateau) {
    dt_schedule s = {.kind = DT_SCHEDULE_plateau, .lr = 1.0, .own = {0.1, 2, 0.05}, .lower_is_better = true};
    const double values[] = {3.0, 2.0, 2.0, 2.5, 1.9, NAN, 2.0, 2.0, 2.0};
    dt_eval_point history[9];
    for (int i = 0; i < 9; i++) history[i] = (dt_eval_point){i, values[i]};
    assert_float_equal(dt_schedule_lr(&s, 0, history, 0), 1.0, 1e-12);
    assert_float_equal(dt_schedule_lr(&s, 0, history, 3), 1.0, 1e-12);  // one stale
    assert_float_equal(dt_schedule_lr(&s, 0, history, 4), 0.1, 1e-12);  // two stale
    assert_float_equal(dt_schedule_lr(&s, 0, history, 6), 0.1, 1e-12);  // better, then a NaN: stale
    assert_float_equal(dt_schedule_lr(&s, 0, history, 9), 0.05, 1e-12); // floor
    s.lower_is_better = false;
    assert_float_equal(dt_schedule_lr(&s, 0, history, 3), 0.1, 1e-12); // falling is stale now
}

TEST(test_amounts) {
    assert_int_equal(dt_amount_steps((dt_amount){5, DT_UNIT_PERCENT}, 200, 50), 10);
    assert_int_equal(dt_amount_steps((dt_amount){1.5, DT_UNIT_EPOCHS}, 200, 50), 75);
    assert_int_equal(dt_amount_steps((dt_amount){7, DT_UNIT_STEPS}, 200, 50), 7);
    assert_int_equal(dt_amount_steps((dt_amount){7, DT_UNIT_NONE}, 200, 50), 7);
    assert_int_equal(dt_amount_steps((dt_amount){1, DT_UNIT_PERCENT}, 40, 50), 1);
    assert_int_equal(dt_amount_steps((dt_amount){0, DT_UNIT_PERCENT}, 40, 50), 0);
    assert_false(dt_amount_due(0, 10));
    assert_false(dt_amount_due(5, 0));
    assert_true(dt_amount_due(5, 10));
    assert_false(dt_amount_due(5, 11));
}

TEST(test_from_config) {
    static const char text[] = "run: {name: x}\ndata: {path: y}\nmodel: {name: fusion}\n"
                               "train: {global_batch: 8, micro_batch: 4, optimizer: {lr: 0.25},\n"
                               "        schedule: {name: step, every: 2 epochs, gamma: 0.5, warmup: 10%}}\n";
    dt_config *c = NULL;
    must(dt_config_parse(&c, "t.yaml", text, sizeof text - 1, NULL, 0));
    dt_schedule s;
    dt_schedule_init(&s, c, 100, 20, false);
    assert_int_equal(s.kind, DT_SCHEDULE_step);
    assert_int_equal(s.warmup_steps, 10);
    assert_float_equal(s.own[0], 40, 1e-12);
    assert_float_equal(s.lr, 0.25, 1e-12);
    assert_float_equal(s.own[1], 0.5, 1e-12);
    dt_config_destroy(c);
}

// OneCycleLR(max_lr=0.5, total_steps=30, pct_start=0.25, div_factor=10, final_div_factor=100): its phases meet at
// float(0.25 * 30) - 1 = 6.5.
TEST(test_one_cycle_peaks_between_steps) {
    static const char text[] = "run: {name: x}\ndata: {path: y}\nmodel: {name: fusion}\n"
                               "train: {global_batch: 8, micro_batch: 4, optimizer: {lr: 0.5},\n"
                               "        schedule: {name: one_cycle, rise: %s, div: 10, final_div: 100, warmup: 0}}\n";
    static const double want[] = {0.05,         0.0757723942, 0.1471854320, 0.2478792469, 0.3547860996,
                                  0.4434149183, 0.4934619089, 0.4993916216, 0.4945423633};
    static const char *const rises[] = {"25%", "0.75 epochs"};
    for (int k = 0; k < 2; k++) {
        char *whole = dt_xprintf(text, rises[k]);
        dt_config *c = NULL;
        dt_schedule s;
        must(dt_config_parse(&c, "t.yaml", whole, strlen(whole), NULL, 0));
        dt_schedule_init(&s, c, 30, 10, false);
        for (int i = 0; i < 9; i++) assert_float_equal(dt_schedule_lr(&s, i, NULL, 0), want[i], 1e-9);
        assert_float_equal(dt_schedule_lr(&s, 29, NULL, 0), 0.0005, 1e-12);
        dt_config_destroy(c);
        free(whole);
    }
}

TEST_MAIN(NULL, NULL)
