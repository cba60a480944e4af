// EER and AUC on scores small enough to count by hand.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "train/verification.h"

#include <math.h>

static void test_separated(void **state) {
    float genuine[] = {0.9f, 0.8f}, impostor[] = {0.1f, 0.3f, 0.2f};
    dt_verification v;
    dt_verify_scores(genuine, 2, impostor, 3, &v);
    assert_float_equal(v.auc, 1.0, 1e-12);
    assert_float_equal(v.eer, 0.0, 1e-12);
}

static void test_reversed_and_equal(void **state) {
    float low[] = {0.1f, 0.2f}, high[] = {0.8f, 0.9f}, same[] = {0.5f, 0.5f, 0.5f},
          too[] = {0.5f, 0.5f};
    dt_verification v;
    dt_verify_scores(low, 2, high, 2, &v);
    assert_float_equal(v.auc, 0.0, 1e-12);
    assert_float_equal(v.eer, 1.0, 1e-12);
    dt_verify_scores(same, 3, too, 2, &v);
    assert_float_equal(v.auc, 0.5, 1e-12);
    assert_float_equal(v.eer, 0.5, 1e-12);
}

static void test_mixed(void **state) {
    // pairs won: 4 of 4 by .9, 4 by .7, 3 by .5, 1 by .3  ->  12 of 16
    float genuine[] = {0.3f, 0.9f, 0.5f, 0.7f}, impostor[] = {0.6f, 0.2f, 0.4f, 0.35f};
    dt_verification v;
    dt_verify_scores(genuine, 4, impostor, 4, &v);
    assert_float_equal(v.auc, 12.0 / 16.0, 1e-12);
    assert_float_equal(v.eer, 0.25, 1e-12); // threshold between .4 and .5: one of four on each side
    dt_verify_scores(genuine, 4, impostor, 0, &v);
    assert_true(isnan(v.auc) && isnan(v.eer));
}

static void test_embeddings(void **state) {
    // two people; length does not matter, direction does
    const float x[] = {1, 0, 10, 1, 0, 2, 0.1f, 3};
    const int32_t labels[] = {7, 7, 9, 9};
    dt_verification v;
    dt_verify_embeddings(x, labels, 4, 2, &v);
    assert_int_equal(v.n_genuine, 2);
    assert_int_equal(v.n_impostor, 4);
    assert_float_equal(v.auc, 1.0, 1e-12);
    const int32_t swapped[] = {7, 9, 7, 9};
    dt_verify_embeddings(x, swapped, 4, 2, &v);
    assert_true(v.auc < 0.5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_separated), cmocka_unit_test(test_reversed_and_equal),
        cmocka_unit_test(test_mixed), cmocka_unit_test(test_embeddings)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
