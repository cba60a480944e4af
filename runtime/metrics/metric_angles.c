// metric_angles.c: errors of directions. Angles are about x, y and z (pitch, yaw, roll), as in 300W-LP and in scipy's
// Rotation.from_euler("xyz"); batch/rotation.h says which rotation three or six numbers stand for.
#include "metrics/metric.h"

#include "batch/rotation.h"

#include <math.h>

static double metric_angles_turn(const dt_eval_table *t) {
    return t->radians ? 2 * acos(-1.0) : 360;
}

// ---- each number ----------------------------------------------------------------------------------

// The way round the circle that is shorter.
static double angle_between(double a, double b, double turn) {
    const double d = fmod(fabs(a - b), turn);
    return d > turn / 2 ? turn - d : d;
}

static void report_angles(const dt_eval_table *t, dt_eval_result *out) {
    double all = 0;
    if (t->n_out > 1) dt_json_begin_object(&out->extra, "angle_mae_by_number");
    for (int64_t k = 0; k < t->n_out; k++) {
        double sum = 0;
        for (int64_t i = 0; i < t->n; i++)
            sum += angle_between(dt_eval_number(t, i, k, true), dt_eval_number(t, i, k, false), metric_angles_turn(t));
        all += sum;
        if (t->n_out > 1) dt_json_real(&out->extra, dt_eval_name(t, k, out), sum / (double)t->n);
    }
    if (t->n_out > 1) dt_json_end_object(&out->extra);
    dt_eval_result_add(out, "angle_mae", all / (double)(t->n * t->n_out));
}

// ---- rotations ------------------------------------------------------------------------------------

static void report_geodesic(const dt_eval_table *t, dt_eval_result *out) {
    const int n = (int)t->n_out;
    double sum = 0;
    for (int64_t i = 0; i < t->n; i++) {
        float said[6], truth[6]; // dt_metric.outs
        for (int k = 0; k < n; k++) {
            said[k] = (float)dt_eval_number(t, i, k, true);
            truth[k] = (float)dt_eval_number(t, i, k, false);
        }
        sum += dt_rotation_loss(said, truth, n, t->radians ? 1 : acos(-1.0) / 180, NULL);
    }
    if (!t->radians) sum *= 180 / acos(-1.0);
    dt_eval_result_add(out, "geodesic", sum / (double)t->n);
}

const dt_metric dt_metric_angle_mae = {.of = DT_OF_NUMBERS, .lower_is_better = true, .report = report_angles};
const dt_metric dt_metric_geodesic = {
    .of = DT_OF_NUMBERS, .lower_is_better = true, .outs = {3, 6}, .report = report_geodesic};
