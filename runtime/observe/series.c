// series.c: see series.h.
#include "observe/series.h"

#include "base/arena.h"

#include <math.h>
#include <stdlib.h>

static void series_merge(dt_series_point *into, const dt_series_point *p) {
    if (p->last > into->last) into->last = p->last; // not where a step went back
    into->n += p->n;
    into->sum += p->sum;
    into->least = fmin(into->least, p->least);
    into->most = fmax(into->most, p->most);
}

static void double_width(dt_series *s) {
    int n = 0;
    s->width *= 2;
    for (int i = 0; i < s->n; i++) {
        if (n > 0 && s->points[n - 1].first / s->width == s->points[i].first / s->width)
            series_merge(&s->points[n - 1], &s->points[i]);
        else
            s->points[n++] = s->points[i];
    }
    s->n = n;
}

void dt_series_add(dt_series *s, int64_t step, double value) {
    const dt_series_point p = {step, step, 1, value, value, value};
    s->newest = value;
    if (!(fabs(value) < DT_SERIES_MOST)) {
        s->n_empty++;
        return;
    }
    if (!s->points) {
        s->points = dt_xcalloc(DT_SERIES_POINTS, sizeof *s->points);
        s->width = 1;
    }
    for (;; double_width(s)) {
        dt_series_point *newest = s->n > 0 ? &s->points[s->n - 1] : NULL;
        if (newest && step / s->width <= newest->first / s->width) {
            series_merge(newest, &p);
            return;
        }
        if (s->n < DT_SERIES_POINTS) break;
    }
    s->points[s->n++] = p;
}

void dt_series_fini(dt_series *s) {
    free(s->points);
    *s = (dt_series){0};
}
