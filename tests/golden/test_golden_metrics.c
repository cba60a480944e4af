// test_golden_metrics.c: metrics against scikit-learn's.
#include "config/words.h"
#include "golden.h"

#include "metrics/metric.h"

#include <jansson.h>

// Tensors of case i are "i/logits", "i/labels" or "i/targets", and "i/values/NAME" of one element.
static dt_safetensors *golden;
enum { MOST_OUT = 12 };

static double setting(const char *name) {
    size_t n;
    const int i = dt_safetensors_find(golden, name);
    assert_true(i >= 0);
    return *(const double *)dt_safetensors_data(golden, i, &n);
}

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

static dt_eval_table table_of(int i, const dt_field_info *field, double thresholds[MOST_OUT]) {
    char prefix[16];
    snprintf(prefix, sizeof prefix, "%d", i);
    const dt_shape shape = golden_shape(golden, prefix, "logits");
    assert_true(shape.d[1] <= MOST_OUT);
    for (int k = 0; k < MOST_OUT; k++) thresholds[k] = setting("threshold");
    return (dt_eval_table){.n = (int)shape.d[0],
                           .n_out = (int)shape.d[1],
                           .logits = golden_find(golden, prefix, "logits", NULL),
                           .labels = (const int *)golden_find(golden, prefix, "labels", NULL),
                           .targets = golden_find(golden, prefix, "targets", NULL),
                           .field = field,
                           .positive = *(const int *)golden_find(golden, prefix, "positive", NULL),
                           .top_k = (int)setting("top_k"),
                           .thresholds = thresholds};
}

static double value_of(int i, const char *name, const char *const *class_names) {
    double thresholds[MOST_OUT];
    dt_field_info field = {.class_names = class_names};
    const dt_eval_table t = table_of(i, &field, thresholds);
    field.n_classes = (int)t.n_out;
    for (int k = 0; k < DT_MAX_NORMALIZE; k++) field.std[k] = 1;
    dt_eval_result r;
    dt_eval_result_init(&r);
    metric_of(name)->report(&t, &r);
    double v = strchr(name, '/') ? extra_value(&r, name) : dt_eval_result_get(&r, name);
    dt_eval_result_fini(&r);
    return v;
}

TEST(test_values) {
    int n_values = 0;
    for (int k = 0; k < dt_safetensors_count(golden); k++) {
        size_t n;
        char name[128];
        int i;
        if (sscanf(dt_safetensors_name(golden, k), "%d/values/%127s", &i, name) != 2) continue;
        const double want = *(const double *)dt_safetensors_data(golden, k, &n);
        const double got = value_of(i, name, NULL);
        if (!(fabs(got - want) < 1e-6 * (1 + fabs(want))) && !(isnan(got) && isnan(want)))
            fail_msg("case %d: %s is %.17g, not %.17g", i, name, got, want);
        n_values++;
    }
    assert_true(n_values > 0);
}

// What needs only which class was predicted, its rank and its probability has the same bits without the logits.
TEST(test_without_logits) {
    static const dt_metric_id ids[] = {DT_METRIC_accuracy,  DT_METRIC_top_k,       DT_METRIC_confusion,
                                       DT_METRIC_precision, DT_METRIC_recall,      DT_METRIC_balanced_accuracy,
                                       DT_METRIC_macro_f1,  DT_METRIC_weighted_f1, DT_METRIC_report,
                                       DT_METRIC_ece,       DT_METRIC_brier};
    int n_cases = 0;
    char name[64];
    for (int i = 0; snprintf(name, sizeof name, "%d/logits", i) && dt_safetensors_find(golden, name) >= 0; i++) {
        double thresholds[MOST_OUT];
        dt_eval_table t = table_of(i, NULL, thresholds);
        dt_eval_class classes[512];
        if (!t.labels) continue;
        assert_true(t.n <= 512);
        for (int64_t k = 0; k < t.n; k++) classes[k] = dt_eval_class_of(&t, k);
        dt_eval_table without = t;
        without.logits = NULL;
        without.classes = classes;
        for (size_t m = 0; m < sizeof ids / sizeof *ids; m++) {
            dt_eval_result a, b;
            dt_eval_result_init(&a);
            dt_eval_result_init(&b);
            dt_metrics_table[ids[m]]->report(&t, &a);
            dt_metrics_table[ids[m]]->report(&without, &b);
            assert_int_equal(a.n_values, b.n_values);
            for (int v = 0; v < a.n_values; v++)
                assert_memory_equal(&a.values[v].value, &b.values[v].value, sizeof(double));
            assert_string_equal(dt_eval_result_members(&a), dt_eval_result_members(&b));
            dt_eval_result_fini(&a);
            dt_eval_result_fini(&b);
        }
        n_cases++;
    }
    assert_true(n_cases > 2);
}

// eval.threshold: f1.
TEST(test_thresholds) {
    int n_cases = 0;
    for (int i = 0; i < dt_safetensors_count(golden); i++) {
        double thresholds[MOST_OUT];
        char name[64];
        size_t n;
        snprintf(name, sizeof name, "%d/thresholds", i);
        const int at = dt_safetensors_find(golden, name);
        if (at < 0) continue;
        const dt_eval_table t = table_of(i, NULL, thresholds);
        const double *want = dt_safetensors_data(golden, at, &n);
        dt_eval_choose_thresholds(&t, thresholds);
        for (int64_t k = 0; k < t.n_out; k++) assert_float_equal(thresholds[k], want[k], 1e-12);
        n_cases++;
    }
    assert_int_equal(n_cases, 5);
}

TEST(test_class_names) {
    static const char *const names[] = {"cat", NULL}; // the second has none
    assert_true(value_of(0, "recall.cat", names) == value_of(0, "recall.0", NULL));
    assert_true(value_of(0, "recall.1", names) == value_of(0, "recall.1", NULL));
    assert_true(isnan(value_of(0, "recall.0", names)));
    assert_true(isnan(value_of(5, "recall.1", NULL))); // no sample of it
}

static int set_up(void **state) {
    golden = golden_open("metrics.safetensors");
    return 0;
}

static int tear_down(void **state) {
    dt_safetensors_close(golden);
    return 0;
}

TEST_MAIN(set_up, tear_down)
