// test_golden_metrics.c: metrics of classes against scikit-learn's, added up in parts as replicas and ranks do.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "metrics_golden.h"
#include "train/metric.h"

#include <math.h>
#include <string.h>

enum { PARTS = 3, MOST = 1024 };

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
    const dt_metric *m = metric_of(name);
    double sum[PARTS][MOST] = {0};
    int64_t size = m->width, k = CASES[i].n_classes;
    for (int p = 0; p < m->power; p++) size *= k;
    assert_true(size <= MOST && m->counts);
    for (int n = 0; n < CASES[i].n; n++) {
        dt_scored s = {k, CASES[i].label[n], CASES[i].predicted[n], 0, NULL};
        s.rank = s.label != s.predicted;
        m->add(&s, sum[n % PARTS]);
    }
    for (int p = 1; p < PARTS; p++)
        for (int64_t j = 0; j < size; j++) sum[0][j] += sum[p][j];
    dt_eval_result r;
    dt_eval_result_init(&r);
    m->report(
        &(dt_totals){.n_out = k, .weight = CASES[i].n, .sum = sum[0], .class_names = class_names},
        &r);
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
