// metric_angles.c: errors of directions. Three numbers are angles about x, y and z (pitch, yaw, roll) and stand for the
// rotation Rz Ry Rx, as in 300W-LP and in scipy's Rotation.from_euler("xyz"); six are the first two columns of a
// rotation matrix, made orthonormal (Zhou et al., "On the continuity of rotation representations", CVPR 2019).
#include "train/metric.h"

#include <math.h>

static double turn(const dt_eval_table *t) {
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
            sum += angle_between((double)t->logits[i * t->n_out + k],
                                 (double)t->targets[i * t->n_out + k], turn(t));
        all += sum;
        if (t->n_out > 1) dt_json_real(&out->extra, dt_eval_name(t, k, out), sum / (double)t->n);
    }
    if (t->n_out > 1) dt_json_end_object(&out->extra);
    dt_eval_result_add(out, "angle_mae", all / (double)(t->n * t->n_out));
}

// ---- rotations ------------------------------------------------------------------------------------

typedef double matrix[3][3];

static void from_euler(const float *angle, double unit, matrix r) {
    const double x = (double)angle[0] * unit, y = (double)angle[1] * unit,
                 z = (double)angle[2] * unit;
    const double cx = cos(x), sx = sin(x), cy = cos(y), sy = sin(y), cz = cos(z), sz = sin(z);
    const matrix m = {{cz * cy, cz * sy * sx - sz * cx, cz * sy * cx + sz * sx},
                      {sz * cy, sz * sy * sx + cz * cx, sz * sy * cx - cz * sx},
                      {-sy, cy * sx, cy * cx}};
    for (int i = 0; i < 9; i++) r[i / 3][i % 3] = m[i / 3][i % 3];
}

static void make_unit(double *v) {
    const double n = sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
    for (int i = 0; i < 3; i++) v[i] /= n;
}

static void from_columns(const float *x, matrix r) {
    double a[3] = {x[0], x[1], x[2]}, b[3] = {x[3], x[4], x[5]};
    make_unit(a);
    const double along = a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
    for (int i = 0; i < 3; i++) b[i] -= along * a[i];
    make_unit(b);
    for (int i = 0; i < 3; i++) {
        const int j = (i + 1) % 3, k = (i + 2) % 3;
        r[i][0] = a[i];
        r[i][1] = b[i];
        r[i][2] = a[j] * b[k] - a[k] * b[j];
    }
}

static void to_matrix(const dt_eval_table *t, const float *x, matrix r) {
    if (t->n_out == 3)
        from_euler(x, t->radians ? 1 : acos(-1.0) / 180, r);
    else
        from_columns(x, r);
}

// The angle of A^T B. Its sine is exact where the trace hardly changes.
static double rotation_between(const matrix a, const matrix b) {
    matrix m;
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++)
            m[i][k] = a[0][i] * b[0][k] + a[1][i] * b[1][k] + a[2][i] * b[2][k];
    const double x = m[2][1] - m[1][2], y = m[0][2] - m[2][0], z = m[1][0] - m[0][1];
    return atan2(sqrt(x * x + y * y + z * z), m[0][0] + m[1][1] + m[2][2] - 1);
}

static void report_geodesic(const dt_eval_table *t, dt_eval_result *out) {
    double sum = 0;
    for (int64_t i = 0; i < t->n; i++) {
        matrix predicted, truth;
        to_matrix(t, t->logits + i * t->n_out, predicted);
        to_matrix(t, t->targets + i * t->n_out, truth);
        sum += rotation_between(predicted, truth);
    }
    if (!t->radians) sum *= 180 / acos(-1.0);
    dt_eval_result_add(out, "geodesic", sum / (double)t->n);
}

const dt_metric dt_metric_angle_mae = {
    .of = DT_OF_NUMBERS, .lower_is_better = true, .report = report_angles};
const dt_metric dt_metric_geodesic = {
    .of = DT_OF_NUMBERS, .lower_is_better = true, .outs = {3, 6}, .report = report_geodesic};
