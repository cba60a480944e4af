// EER and AUC on scores small enough to count by hand.
#include "config/words.h"
#include "metrics/metric.h"
#include "testing.h"

#include <math.h>
#include <string.h>

TEST(test_separated) {
    float genuine[] = {0.9f, 0.8f}, impostor[] = {0.1f, 0.3f, 0.2f};
    dt_verification v;
    dt_verify_scores(genuine, 2, impostor, 3, &v);
    assert_float_equal(v.auc, 1.0, 1e-12);
    assert_float_equal(v.eer, 0.0, 1e-12);
}

TEST(test_reversed_and_equal) {
    float low[] = {0.1f, 0.2f}, high[] = {0.8f, 0.9f}, same[] = {0.5f, 0.5f, 0.5f}, too[] = {0.5f, 0.5f};
    dt_verification v;
    dt_verify_scores(low, 2, high, 2, &v);
    assert_float_equal(v.auc, 0.0, 1e-12);
    assert_float_equal(v.eer, 1.0, 1e-12);
    dt_verify_scores(same, 3, too, 2, &v);
    assert_float_equal(v.auc, 0.5, 1e-12);
    assert_float_equal(v.eer, 0.5, 1e-12);
}

TEST(test_mixed) {
    // pairs won: 4 of 4 by .9, 4 by .7, 3 by .5, 1 by .3  ->  12 of 16
    float genuine[] = {0.3f, 0.9f, 0.5f, 0.7f}, impostor[] = {0.6f, 0.2f, 0.4f, 0.35f};
    dt_verification v;
    dt_verify_scores(genuine, 4, impostor, 4, &v);
    assert_float_equal(v.auc, 12.0 / 16.0, 1e-12);
    assert_float_equal(v.eer, 0.25, 1e-12); // threshold between .4 and .5: one of four on each side
    dt_verify_scores(genuine, 4, impostor, 0, &v);
    assert_true(isnan(v.auc) && isnan(v.eer));
}

TEST(test_embeddings) {
    // two people; length does not matter, direction does
    const float x[] = {1, 0, 10, 1, 0, 2, 0.1f, 3};
    const int32_t labels[] = {7, 7, 9, 9};
    dt_verification v;
    dt_verify_embeddings(x, labels, NULL, 0, 4, 2, &v);
    assert_int_equal(v.n_genuine, 2);
    assert_int_equal(v.n_impostor, 4);
    assert_float_equal(v.auc, 1.0, 1e-12);
    const int32_t swapped[] = {7, 9, 7, 9};
    dt_verify_embeddings(x, swapped, NULL, 0, 4, 2, &v);
    assert_true(v.auc < 0.5);
}

// Samples of two records: 0 and 1 share the first one, 0 and 2 the second; 0 and 3 share nothing.
TEST(test_shared_records) {
    const float x[] = {1, 0, 1, 0, 1, 0, 0, 1, 1, 0.1f, 1, 0.2f};
    const int32_t labels[] = {7, 7, 7, 7, 9, 9};
    const uint32_t records[] = {10, 20, 10, 21, 11, 20, 11, 21, 12, 22, 12, 22};
    dt_verification v;
    dt_verify_embeddings(x, labels, NULL, 0, 6, 2, &v);
    assert_int_equal(v.n_genuine, 7);
    assert_int_equal(v.n_impostor, 8);
    dt_verify_embeddings(x, labels, records, 2, 6, 2, &v);
    assert_int_equal(v.n_genuine, 2); // 0 with 3, 1 with 2
    assert_int_equal(v.n_impostor, 8);
    // scores: 0 and 1 against six impostors of about 1 and two of about 0.1 and 0.2
    assert_float_equal(v.auc, 8.0 / 16.0, 1e-12);
}

// 5000 samples stored class by class: the first 4096 would all be of the first. Those of the second are compared,
// too, and which is the same every time.
TEST(test_subset) {
    enum { N = 5000 };
    static float x[2 * N];
    static int32_t labels[N];
    static uint32_t records[N];
    double auc[2];
    for (int i = 0; i < N; i++) {
        labels[i] = i >= 4500;
        records[i] = (uint32_t)i;
        x[2 * i] = 1;
        x[2 * i + 1] = (float)(i * 7 % 100) / 100 + (float)labels[i];
    }
    for (int k = 0; k < 2; k++) {
        dt_verification pairs = {.n_samples = -1};
        const dt_eval_table t = {.n = N,
                                 .labels = labels,
                                 .embeddings = x,
                                 .n_embedding = 2,
                                 .records = records,
                                 .width = 1,
                                 .pairs = &pairs};
        dt_eval_result r;
        dt_eval_result_init(&r);
        dt_metrics_table[DT_METRIC_pair_auc]->report(&t, &r);
        dt_metrics_table[DT_METRIC_eer]->report(&t, &r);
        auc[k] = dt_eval_result_get(&r, "pair_auc");
        assert_true(isfinite(auc[k]) && isfinite(dt_eval_result_get(&r, "eer")));
        assert_int_equal(pairs.n_samples, 4096);
        assert_int_equal(pairs.n_genuine + pairs.n_impostor, 4096 * 4095 / 2);
        assert_non_null(strstr(dt_eval_result_members(&r), "\"pairs\":{\"samples\":4096,"));
        assert_null(strstr(strstr(dt_eval_result_members(&r), "pairs") + 1, "pairs")); // once
        dt_eval_result_fini(&r);
    }
    assert_true(auc[0] == auc[1]);
}

TEST_MAIN(NULL, NULL)
