// series.h: the course of a number over the steps of a run, in bounded memory.
//
// A series holds at most DT_SERIES_POINTS buckets of equal width in steps. Each keeps the least, the greatest and the
// sum of what fell into it; when a new one does not fit, the width doubles and neighbours merge. So 10^6 steps and 10
// take the same memory, and no peak is lost.
#ifndef DT_REPORT_SERIES_H
#define DT_REPORT_SERIES_H

#include <stdint.h>

enum { DT_SERIES_POINTS = 480 };
#define DT_SERIES_MOST 1e200 // sums and ranges of smaller numbers are finite

typedef struct dt_series_point {
    int64_t first, last; // steps, first <= last, whatever comes
    int64_t n;
    double least, most, sum;
} dt_series_point;

typedef struct dt_series {
    dt_series_point *points; // ascending by step; heap
    int n;
    int64_t width;   // steps of a bucket
    double newest;   // the value that was added last
    int64_t n_empty; // values that were not finite, or DT_SERIES_MOST and more: in no bucket
} dt_series;

// A step at or before the newest joins its bucket.
void dt_series_add(dt_series *s, int64_t step, double value);
void dt_series_fini(dt_series *s);

static inline double dt_series_mean(const dt_series_point *p) {
    return p->sum / (double)p->n;
}

#endif
