// rotation.h: the angle between two rotations and its gradient, for the loss `geodesic`; compiled for the CPU's kernels, a
// GPU's and the tests' host.
//
// Six numbers are the first two columns of a matrix, made orthonormal (Zhou et al., "On the continuity of rotation
// representations", CVPR 2019); three are angles about x, y and z, which stand for Rz Ry Rx. So has the metric of the same
// name. For R = P^T T the sine comes from what is not symmetric in R, so that small angles are exact.
#ifndef DT_GRAPH_ROTATION_H
#define DT_GRAPH_ROTATION_H

#include <math.h>

#ifdef __CUDACC__
#define DT_ROTATION_FN static __device__ __forceinline__
#else
#define DT_ROTATION_FN static inline __attribute__((unused))
#endif

typedef struct dt_rotation {
    double m[3][3]; // columns: m[k] is column k
} dt_rotation;

DT_ROTATION_FN double dt_dot3(const double *a, const double *b) {
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}
DT_ROTATION_FN void dt_cross3(double *out, const double *a, const double *b) {
    out[0] = a[1] * b[2] - a[2] * b[1];
    out[1] = a[2] * b[0] - a[0] * b[2];
    out[2] = a[0] * b[1] - a[1] * b[0];
}
// Length of v, which becomes 1.
DT_ROTATION_FN double dt_make_unit3(double *v) {
    const double n = sqrt(dt_dot3(v, v));
    for (int i = 0; i < 3; i++) v[i] /= n;
    return n;
}

DT_ROTATION_FN dt_rotation dt_rotation_of(const float *x, int n, double unit) {
    dt_rotation r;
    if (n == 6) {
        for (int i = 0; i < 3; i++) r.m[0][i] = (double)x[i], r.m[1][i] = (double)x[3 + i];
        dt_make_unit3(r.m[0]);
        const double along = dt_dot3(r.m[0], r.m[1]);
        for (int i = 0; i < 3; i++) r.m[1][i] -= along * r.m[0][i];
        dt_make_unit3(r.m[1]);
        dt_cross3(r.m[2], r.m[0], r.m[1]);
        return r;
    }
    const double a = (double)x[0] * unit, b = (double)x[1] * unit, c = (double)x[2] * unit;
    const double ca = cos(a), sa = sin(a), cb = cos(b), sb = sin(b), cc = cos(c), sc = sin(c);
    r.m[0][0] = cc * cb, r.m[0][1] = sc * cb, r.m[0][2] = -sb;
    r.m[1][0] = cc * sb * sa - sc * ca, r.m[1][1] = sc * sb * sa + cc * ca, r.m[1][2] = cb * sa;
    r.m[2][0] = cc * sb * ca + sc * sa, r.m[2][1] = sc * sb * ca - cc * sa, r.m[2][2] = cb * ca;
    return r;
}

// Whether six numbers have a rotation: two columns that are neither zero nor parallel.
DT_ROTATION_FN int dt_is_rotation(const float *x) {
    double a[3] = {(double)x[0], (double)x[1], (double)x[2]}, across[3];
    double b[3] = {(double)x[3], (double)x[4], (double)x[5]};
    dt_make_unit3(a);
    dt_make_unit3(b);
    dt_cross3(across, a, b);
    return dt_dot3(across, across) > 1e-12; // not of NaN
}

// The angle, in radians. grad: its gradient by the columns of p.
DT_ROTATION_FN double dt_rotation_between(const dt_rotation *p, const dt_rotation *t, double grad[3][3]) {
    double r[3][3];
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++) r[i][k] = dt_dot3(p->m[i], t->m[k]);
    const double x = r[2][1] - r[1][2], y = r[0][2] - r[2][0], z = r[1][0] - r[0][1];
    const double sine = sqrt(x * x + y * y + z * z) / 2;
    const double by = -1 / (2 * (sine > 1e-6 ? sine : 1e-6));
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++) grad[i][k] = by * t->m[i][k];
    return atan2(sine, (r[0][0] + r[1][1] + r[2][2] - 1) / 2);
}

// Through the two columns that were made orthonormal.
DT_ROTATION_FN void dt_rotation_back_columns(const float *x, const dt_rotation *p, double grad[3][3], double *dx) {
    const double *a = p->m[0], *b = p->m[1];
    double first[3], second[3], ga[3], gb[3], u[3];
    dt_cross3(ga, b, grad[2]);
    dt_cross3(gb, grad[2], a);
    for (int i = 0; i < 3; i++) {
        first[i] = (double)x[i], second[i] = (double)x[3 + i];
        ga[i] += grad[0][i], gb[i] += grad[1][i];
    }
    const double along = dt_dot3(a, second), length = sqrt(dt_dot3(first, first));
    for (int i = 0; i < 3; i++) u[i] = second[i] - along * a[i];
    const double across = sqrt(dt_dot3(u, u)), bg = dt_dot3(b, gb);
    for (int i = 0; i < 3; i++) gb[i] = (gb[i] - bg * b[i]) / across; // of u
    const double agb = dt_dot3(a, gb);
    for (int i = 0; i < 3; i++) ga[i] -= along * gb[i] + agb * second[i];
    const double aga = dt_dot3(a, ga);
    for (int i = 0; i < 3; i++) {
        dx[i] = (ga[i] - aga * a[i]) / length;
        dx[3 + i] = gb[i] - agb * a[i];
    }
}

// Through the angles: a turn about an axis w changes each column c by w x c.
DT_ROTATION_FN void dt_rotation_back_angles(const float *x, const dt_rotation *p, double grad[3][3], double unit,
                                            double *dx) {
    const double b = (double)x[1] * unit, c = (double)x[2] * unit;
    const double axes[3][3] = {{cos(c) * cos(b), sin(c) * cos(b), -sin(b)}, {-sin(c), cos(c), 0}, {0, 0, 1}};
    for (int k = 0; k < 3; k++) {
        double change[3];
        dx[k] = 0;
        for (int i = 0; i < 3; i++) {
            dt_cross3(change, axes[k], p->m[i]);
            dx[k] += dt_dot3(change, grad[i]) * unit;
        }
    }
}

// The angle between what x and t, n = 6 or 3 numbers, stand for, in radians. dx (n): its gradient by x, or NULL. unit:
// radians of a unit of three angles.
DT_ROTATION_FN double dt_rotation_loss(const float *x, const float *t, int n, double unit, double *dx) {
    double grad[3][3];
    const dt_rotation p = dt_rotation_of(x, n, unit), q = dt_rotation_of(t, n, unit);
    const double angle = dt_rotation_between(&p, &q, grad);
    if (dx && n == 6) dt_rotation_back_columns(x, &p, grad, dx);
    if (dx && n == 3) dt_rotation_back_angles(x, &p, grad, unit, dx);
    return angle;
}

#endif
