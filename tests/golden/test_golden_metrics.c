// test_golden_metrics.c: metrics of classes against scikit-learn's.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "metrics_golden.h"
#include "train/metric.h"

#include <math.h>
#include <string.h>

enum { MOST = 1024 };

// The metric that gives the value: "recall.3" is of recall.
static const dt_metric *metric_of(const char *name) {
    for (int i = 0; i < DT_N_METRICS; i++) {
        const char *id = dt_metric_name((dt_metric_id)i);
        size_t n = strlen(id);
        if (strncmp(id, name, n) == 0 && (name[n] == '\0' || name[n] == '.'))
            return dt_metrics_table[i];
    }
    fail_msg("no metric gives %s", name);
    return NULL;
}

static double value_of(int i, const char *name, const char *const *class_names) {
    const int64_t n = CASES[i].n, k = CASES[i].n_classes;
    float logits[MOST] = {0};
    int32_t labels[MOST];
    assert_true(n * k <= MOST);
    for (int64_t j = 0; j < n; j++) {
        labels[j] = CASES[i].label[j];
        logits[j * k + CASES[i].predicted[j]] = 1;
    }
    const dt_eval_table t = {
        .n = n, .n_out = k, .logits = logits, .labels = labels, .class_names = class_names};
    dt_eval_result r;
    dt_eval_result_init(&r);
    metric_of(name)->report(&t, &r);
    double v = dt_eval_result_get(&r, name);
    dt_eval_result_fini(&r);
    return v;
}

static void test_values(void **state) {
    for (int i = 0; i < (int)(sizeof CASES / sizeof *CASES); i++)
        for (const golden_value *v = CASES[i].values; v->name; v++) {
            double got = value_of(i, v->name, NULL);
            if (!(fabs(got - v->value) < 1e-12))
                fail_msg("case %d: %s is %.17g, not %.17g", i, v->name, got, v->value);
        }
}

static void test_class_names(void **state) {
    static const char *const names[] = {"cat", NULL}; // the second has none
    assert_true(value_of(0, "recall.cat", names) == value_of(0, "recall.0", NULL));
    assert_true(value_of(0, "recall.1", names) == value_of(0, "recall.1", NULL));
    assert_true(isnan(value_of(0, "recall.0", names)));
    assert_true(isnan(value_of(5, "recall.1", NULL))); // no sample of it
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values),
                                       cmocka_unit_test(test_class_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
