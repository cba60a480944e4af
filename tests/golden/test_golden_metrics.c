// test_golden_metrics.c: metrics against scikit-learn's.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "metrics_golden.h"
#include "train/metric.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

// The metric that gives the value: "recall.3" is of recall, "report/macro/f1" of report.
static const dt_metric *metric_of(const char *name) {
    const dt_metric *found = NULL;
    size_t longest = 0;
    for (int i = 0; i < DT_N_METRICS; i++) {
        const char *id = dt_metric_name((dt_metric_id)i);
        size_t n = strlen(id);
        if (n <= longest || strncmp(id, name, n) != 0 || !strchr("./", name[n])) continue;
        found = dt_metrics_table[i];
        longest = n;
    }
    if (!found) fail_msg("no metric gives %s", name);
    return found;
}

// A number in what is no single number: the path of its members.
static double extra_value(const dt_eval_result *r, const char *path) {
    char text[65536], word[64];
    snprintf(text, sizeof text, "{%s}", dt_eval_result_members(r));
    json_t *root = json_loads(text, 0, NULL), *at = root;
    assert_non_null(root);
    while (at && *path) {
        size_t n = strcspn(path, "/");
        snprintf(word, sizeof word, "%.*s", (int)n, path);
        at = json_object_get(at, word);
        path += n + (path[n] == '/');
    }
    assert_true(json_is_number(at));
    double v = json_number_value(at);
    json_decref(root);
    return v;
}

static double value_of(int i, const char *name, const char *const *class_names) {
    const dt_eval_table t = {.n = CASES[i].n,
                             .n_out = CASES[i].n_out,
                             .logits = CASES[i].logits,
                             .labels = CASES[i].labels,
                             .targets = CASES[i].targets,
                             .class_names = class_names,
                             .top_k = TOP_K,
                             .threshold = THRESHOLD};
    dt_eval_result r;
    dt_eval_result_init(&r);
    metric_of(name)->report(&t, &r);
    double v = strchr(name, '/') ? extra_value(&r, name) : dt_eval_result_get(&r, name);
    dt_eval_result_fini(&r);
    return v;
}

static void test_values(void **state) {
    for (int i = 0; i < (int)(sizeof CASES / sizeof *CASES); i++)
        for (const golden_value *v = CASES[i].values; v->name; v++) {
            double got = value_of(i, v->name, NULL);
            if (!(fabs(got - v->value) < 1e-6 * (1 + fabs(v->value))) &&
                !(isnan(got) && isnan(v->value)))
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
