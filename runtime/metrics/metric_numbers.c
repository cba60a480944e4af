// metric_numbers.c: metrics of numbers, angles and verification.

#include "base/hash.h"
#include "base/rng.h"
#include "base/sort.h"
#include "batch/rotation.h"
#include "metrics/metric.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- metric errors ------------------------------------------------------------------------------------------------

// Errors of numbers, in the field's unit: the mean absolute error, with that of each number,
// the root of the mean square, over samples and numbers, and the share of the variance that is explained.

static double error(const dt_eval_table *t, int64_t i, int64_t k) { // signed: predicted - true
    return dt_eval_number(t, i, k, true) - dt_eval_number(t, i, k, false);
}

// The mean absolute error, by number too. turn: a full circle of angles, whose error is the shorter way around it;
// infinite for other numbers.
static void add_absolute(const dt_eval_table *t, double turn, const char *name, const char *by_number,
                         dt_eval_result *out) {
    double all = 0;
    if (t->n_out > 1) dt_json_begin_object(&out->extra, by_number); // one number needs no member beside the mean
    for (int64_t k = 0; k < t->n_out; k++) {
        double sum = 0;
        for (int64_t i = 0; i < t->n; i++) {
            const double d = fmod(fabs(error(t, i, k)), turn);
            sum += d > turn / 2 ? turn - d : d;
        }
        all += sum;
        if (t->n_out > 1) dt_json_real(&out->extra, dt_eval_name(t, k, out), sum / (double)t->n);
    }
    if (t->n_out > 1) dt_json_end_object(&out->extra);
    dt_eval_result_add(out, name, all / (double)(t->n * t->n_out));
}

static void report_absolute(const dt_eval_table *t, dt_eval_result *out) {
    add_absolute(t, INFINITY, "mae", "mae_by_number", out);
}

static void report_square(const dt_eval_table *t, dt_eval_result *out) {
    double sum = 0;
    for (int64_t i = 0; i < t->n; i++)
        // over samples and numbers alike: numbers of larger units weigh more
        for (int64_t k = 0; k < t->n_out; k++) sum += error(t, i, k) * error(t, i, k);
    dt_eval_result_add(out, "rmse", sqrt(sum / (double)(t->n * t->n_out)));
}

// The mean over the numbers of 1 - squared errors / squared differences from the mean; a number that is the same in all
// samples gives 1 if it is predicted, else 0 (scikit-learn's r2_score).
static void report_r2(const dt_eval_table *t, dt_eval_result *out) {
    double all = 0;
    for (int64_t k = 0; k < t->n_out; k++) {
        double mean = 0, errors = 0, differences = 0;
        for (int64_t i = 0; i < t->n; i++) mean += dt_eval_number(t, i, k, false);
        mean /= (double)t->n; // of the true values of number k
        for (int64_t i = 0; i < t->n; i++) {
            const double d = dt_eval_number(t, i, k, false) - mean;
            differences += d * d;
            errors += error(t, i, k) * error(t, i, k);
        }
        // constant truth: the quotient is 0/0, which scikit-learn defines
        all += differences > 0 ? 1 - errors / differences : errors == 0 ? 1 : 0;
    }
    dt_eval_result_add(out, "r2", t->n > 1 ? all / (double)t->n_out : NAN); // one sample has no variance
}

const dt_metric dt_metric_mae = {
    .of = DT_OF_NUMBERS, .lower_is_better = true, .by_default = true, .report = report_absolute};
const dt_metric dt_metric_rmse = {
    .of = DT_OF_NUMBERS, .lower_is_better = true, .by_default = true, .report = report_square};
const dt_metric dt_metric_r2 = {.of = DT_OF_NUMBERS, .report = report_r2};

// ---- metric angles ------------------------------------------------------------------------------------------------

// Errors of directions. Angles are about x, y and z (pitch, yaw, roll), as in 300W-LP and in scipy's
// Rotation.from_euler("xyz"); batch/rotation.h says which rotation three or six numbers stand for.

static void report_angles(const dt_eval_table *t, dt_eval_result *out) {
    add_absolute(t, t->radians ? 2 * acos(-1.0) : 360, "angle_mae", "angle_mae_by_number", out);
}

static void report_geodesic(const dt_eval_table *t, dt_eval_result *out) {
    const int n = (int)t->n_out;
    double sum = 0;
    for (int64_t i = 0; i < t->n; i++) {
        float predicted[6], truth[6]; // dt_metric.outs
        for (int k = 0; k < n; k++) {
            predicted[k] = (float)dt_eval_number(t, i, k, true);
            truth[k] = (float)dt_eval_number(t, i, k, false);
        }
        // radians per unit of the numbers; angles in degrees are also reported in degrees
        sum += dt_rotation_loss(predicted, truth, n, t->radians ? 1 : acos(-1.0) / 180, NULL);
    }
    if (!t->radians) sum *= 180 / acos(-1.0);
    dt_eval_result_add(out, "geodesic", sum / (double)t->n);
}

const dt_metric dt_metric_angle_mae = {.of = DT_OF_NUMBERS, .lower_is_better = true, .report = report_angles};
const dt_metric dt_metric_geodesic = {
    .of = DT_OF_NUMBERS, .lower_is_better = true, .outs = {3, 6}, .report = report_geodesic};

// ---- metric verification ------------------------------------------------------------------------------------------

// Equal error rate and area under the ROC curve, of genuine and impostor scores: both are
// sorted and walked together.
//
// Sums run in index order and in double, so the result is a function of the embeddings alone. The number of pairs
// grows with the square of that of samples, so of many samples a random subset is compared: always the same one, of
// any classes, however the samples are stored.

enum { PAIR_SAMPLES = 4096 }; // pairs: at most 4096 * 4095 / 2 scores, 32 MB

// The rank-sum statistic (Mann-Whitney U) over both sorted lists.
static double area(const float *genuine, int64_t n_genuine, const float *impostor, int64_t n_impostor) {
    // both pointers only move forward: O(genuine + impostor) after sorting
    int64_t below = 0, not_above = 0;
    double wins = 0.0;
    for (int64_t i = 0; i < n_genuine; i++) {
        while (below < n_impostor && impostor[below] < genuine[i]) below++;
        while (not_above < n_impostor && impostor[not_above] <= genuine[i]) not_above++;
        wins += 0.5 * ((double)below + (double)not_above); // a tie counts half
    }
    return wins / ((double)n_genuine * (double)n_impostor);
}

// Walks thresholds upward: false rejects grow, false accepts fall; the crossing is interpolated linearly.
static double equal_error(const float *genuine, int64_t n_genuine, const float *impostor, int64_t n_impostor) {
    int64_t g = 0, m = 0;
    double frr = 0.0, far = 1.0; // at a threshold below all scores: everything is accepted
    while (g < n_genuine || m < n_impostor) {
        // the next score of either list; both move past all that are equal to it
        float t = g < n_genuine && (m >= n_impostor || genuine[g] <= impostor[m]) ? genuine[g] : impostor[m];
        while (g < n_genuine && genuine[g] <= t) g++;
        while (m < n_impostor && impostor[m] <= t) m++;
        double frr_next = (double)g / (double)n_genuine; // rejected: genuine pairs not above the threshold
        double far_next = 1.0 - (double)m / (double)n_impostor;
        // crossed within this step: linear between both ends
        if (frr_next >= far_next) {
            double gap = far - frr, gap_next = frr_next - far_next;
            double x = gap + gap_next > 0.0 ? gap / (gap + gap_next) : 0.5;
            return frr + x * (frr_next - frr);
        }
        frr = frr_next;
        far = far_next;
    }
    return frr;
}

void dt_verify_scores(float *genuine, int64_t n_genuine, float *impostor, int64_t n_impostor, dt_verification *out) {
    *out = (dt_verification){.auc = NAN, .eer = NAN, .n_genuine = n_genuine, .n_impostor = n_impostor};
    if (n_genuine == 0 || n_impostor == 0) return; // no pair of one kind: NaN
    qsort(genuine, (size_t)n_genuine, sizeof *genuine, dt_sort_floats);
    qsort(impostor, (size_t)n_impostor, sizeof *impostor, dt_sort_floats);
    out->auc = area(genuine, n_genuine, impostor, n_impostor);
    out->eer = equal_error(genuine, n_genuine, impostor, n_impostor);
}

// Rows of length 1: their dot product is the cosine. Rows of zeros stay zeros, with a cosine of 0 to any other.
static void normalize_rows(float *dst, const float *src, int64_t n, int64_t d) {
    for (int64_t i = 0; i < n; i++) {
        double sum = 0.0;
        // double: squares of large embeddings overflow a float
        for (int64_t k = 0; k < d; k++) sum += (double)src[i * d + k] * (double)src[i * d + k];
        float scale = sum > 0.0 ? (float)(1.0 / sqrt(sum)) : 0.0f;
        for (int64_t k = 0; k < d; k++) dst[i * d + k] = src[i * d + k] * scale;
    }
}

static float metric_verification_dot(const float *a, const float *b, int64_t d) {
    // eight independent sums in a fixed order: the compiler vectorizes them without changing the result
    float replica[8] = {0};
    int64_t k = 0;
    for (; k + 8 <= d; k += 8)
        for (int j = 0; j < 8; j++) replica[j] += a[k + j] * b[k + j];
    float rest = 0.0f;
    for (; k < d; k++) rest += a[k] * b[k];
    return ((replica[0] + replica[1]) + (replica[2] + replica[3])) +
           ((replica[4] + replica[5]) + (replica[6] + replica[7])) + rest;
}

static bool share_a_record(const uint32_t *a, const uint32_t *b, int width) {
    // width, the records per sample, is small: no set needed
    for (int i = 0; i < width; i++)
        for (int k = 0; k < width; k++)
            if (a[i] == b[k]) return true;
    return false;
}

void dt_verify_embeddings(const float *embeddings, const int32_t *labels, const uint32_t *records, int width, int64_t n,
                          int64_t d, dt_verification *out) {
    size_t n_pairs = n > 1 ? (size_t)n * (size_t)(n - 1) / 2 : 0;
    float *x = dt_xcalloc((size_t)(n * d) + 1, sizeof *x);
    // one array for both kinds: together they are at most n_pairs
    float *scores = dt_xcalloc(n_pairs + 1, sizeof *scores); // genuine from the front, impostor behind
    normalize_rows(x, embeddings, n, d);
    int64_t n_genuine = 0, n_impostor = 0;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = i + 1; j < n; j++) {
            // a shared record makes pairs trivially alike
            if (records && share_a_record(records + i * width, records + j * width, width)) continue;
            float s = metric_verification_dot(x + i * d, x + j * d, d);
            if (labels[i] == labels[j])
                scores[n_genuine++] = s;
            else
                scores[n_pairs - (size_t)++n_impostor] = s;
        }
    }
    // impostor scores are the last n_impostor
    dt_verify_scores(scores, n_genuine, scores + n_pairs - n_impostor, n_impostor, out);
    free(scores);
    free(x);
}

// Which samples are compared, ascending; how many. Knuth's selection sampling (TAOCP 2, 3.4.2, algorithm S).
static int64_t metric_verification_choose(int64_t n, int64_t *chosen) {
    // no seed: every evaluation of a data set compares the same samples
    const dt_rng rng = {0, 0, 0, dt_hash32("eval.pairs")};
    int64_t n_chosen = 0, want = n < PAIR_SAMPLES ? n : PAIR_SAMPLES;
    // sample i is taken with probability (still wanted) / (still to come)
    for (int64_t i = 0; i < n && n_chosen < want; i++)
        if (dt_rng_below(&rng, (uint32_t)i, (uint32_t)(n - i)) < want - n_chosen) chosen[n_chosen++] = i;
    return n_chosen;
}

static void verify_table(const dt_eval_table *t, dt_verification *out) {
    const int64_t d = t->n_embedding, w = t->records ? t->width : 0; // w: 0 without records
    int64_t *chosen = dt_xcalloc(PAIR_SAMPLES, sizeof *chosen), n = metric_verification_choose(t->n, chosen);
    float *x = dt_xcalloc((size_t)(n * d) + 1, sizeof *x);
    int32_t *labels = dt_xcalloc((size_t)n + 1, sizeof *labels);
    uint32_t *records = dt_xcalloc((size_t)(n * w) + 1, sizeof *records);
    for (int64_t i = 0; i < n; i++) {
        // the chosen rows close up, in the order of the split
        memcpy(x + i * d, t->embeddings + chosen[i] * d, (size_t)d * sizeof *x);
        labels[i] = t->labels[chosen[i]];
        if (w) memcpy(records + i * w, t->records + chosen[i] * w, (size_t)w * sizeof *records);
    }
    dt_verify_embeddings(x, labels, w ? records : NULL, (int)w, n, d, out); // no record numbers: no pair is left out
    out->n_samples = n;
    free(chosen);
    free(x);
    free(labels);
    free(records);
}

static double metric_verification_compare(const dt_eval_table *t, dt_eval_result *out, bool eer) {
    dt_verification *v = t->pairs;
    if (v->n_samples < 0) { // eer and pair_auc share one comparison, whichever comes first
        verify_table(t, v);
        // beside the metrics: how many pairs they rest on
        dt_json_begin_object(&out->extra, "pairs");
        dt_json_int(&out->extra, "samples", v->n_samples);
        dt_json_int(&out->extra, "genuine", v->n_genuine);
        dt_json_int(&out->extra, "impostor", v->n_impostor);
        dt_json_end_object(&out->extra);
    }
    return eer ? v->eer : v->auc;
}

static void report_eer(const dt_eval_table *t, dt_eval_result *out) {
    dt_eval_result_add(out, "eer", metric_verification_compare(t, out, true));
}

static void report_pair_auc(const dt_eval_table *t, dt_eval_result *out) {
    dt_eval_result_add(out, "pair_auc", metric_verification_compare(t, out, false));
}

const dt_metric dt_metric_eer = {.of = DT_OF_PAIRS, .lower_is_better = true, .report = report_eer};
const dt_metric dt_metric_pair_auc = {.of = DT_OF_PAIRS, .report = report_pair_auc};
