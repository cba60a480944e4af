// int8_observer.c: see int8_observer.h.
#include "eval/int8_observer.h"

#include "base/core.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

enum { N_BINS = 2048, N_TRIES = 100 }; // N_TRIES: cuts that mse tries between 0 and the largest magnitude
static const float LEAST = 1e-30f;     // what stays below counts as 0: the inverse of its scale is no float

typedef struct observed {
    bool wanted, negative, bad; // wanted: an int8 layer reads or writes the value; bad: an element was not finite
    float most;                 // the largest magnitude
    int64_t *bins;              // of magnitudes; NULL in the first run
} observed;

struct dt_observer {
    const dt_graph *g;
    observed *values;      // by value
    pthread_mutex_t mutex; // of all values: plans' threads look at several at a time
};

dt_observer *dt_observer_create(const dt_graph *g) {
    dt_observer *o = dt_xcalloc(1, sizeof *o);
    o->g = g;
    o->values = dt_xcalloc((size_t)g->n_values + 1, sizeof *o->values);
    pthread_mutex_init(&o->mutex, NULL);
    for (int i = 0; i < g->n_nodes; i++) {
        const dt_node *n = &g->nodes[i];
        if (!dt_int8_is_layer(g, n)) continue;
        o->values[n->in[0]].wanted = o->values[n->out[0]].wanted = true;
        // the value that a fused residual adds (dt_pass_fuse_residual)
        if (n->n_in > 3) o->values[n->in[3]].wanted = true;
    }
    return o;
}

void dt_observer_destroy(dt_observer *o) {
    if (!o) return;
    for (int v = 0; v < o->g->n_values; v++) free(o->values[v].bins);
    pthread_mutex_destroy(&o->mutex);
    free(o->values);
    free(o);
}

static void observe_find_range(observed *s, const float *x, int64_t n) {
    float low = 0, high = 0;
    bool bad = false;
    for (int64_t i = 0; i < n; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
        bad |= !(fabsf(x[i]) <= 3e38f); // false of NaN, too
    }
    s->negative |= low < 0; // values that are never negative get the whole range 0..255
    s->most = fmaxf(s->most, fmaxf(-low, high));
    s->bad |= bad;
}

static void observe_count(observed *s, const float *x, int64_t n) {
    // 0: everything falls into the first bin
    const float by = s->most > LEAST ? N_BINS / s->most : 0;
    for (int64_t i = 0; i < n; i++) {
        const int k = (int)(fabsf(x[i]) * by);
        s->bins[k < N_BINS ? k : N_BINS - 1]++;
    }
}

void dt_observer_look(void *ctx, const dt_batch *b, dt_value v, const float *x) {
    dt_observer *o = ctx;
    observed *s = &o->values[v];
    if (!s->wanted) return;
    const int64_t each = dt_shape_elements(&o->g->values[v].shape) / b->n; // elements per sample
    pthread_mutex_lock(&o->mutex);
    for (int i = 0; i < b->n; i++) {
        if (b->weight[i] == 0) continue; // a place that pads the last batch, or a bad record
        if (s->bins)
            observe_count(s, x + i * each, each);
        else
            observe_find_range(s, x + i * each, each);
    }
    pthread_mutex_unlock(&o->mutex);
}

dt_status dt_observer_begin_bins(dt_observer *o) {
    for (int v = 0; v < o->g->n_values; v++) {
        observed *s = &o->values[v];
        if (s->bad) return dt_fail(DT_E_DATA, "'%s' is not finite: there are no scales for int8", o->g->values[v].name);
        // a value without bins is not counted in the second run
        if (s->wanted) s->bins = dt_xcalloc(N_BINS, sizeof *s->bins);
    }
    return DT_OK;
}

static double cut_percentile(const observed *s, double percentile) {
    int64_t all = 0, below = 0;
    for (int k = 0; k < N_BINS; k++) all += s->bins[k];
    // the upper end of the first bin at which the share is reached
    for (int k = 0; k < N_BINS; k++) {
        below += s->bins[k];
        if ((double)below >= (double)all * percentile / 100) return (double)s->most * (k + 1) / N_BINS;
    }
    return (double)s->most;
}

// levels: steps from 0 to the largest stored number
static double error_of(const observed *s, double cut, double levels) {
    const double step = cut / levels, width = (double)s->most / N_BINS;
    double sum = 0;
    for (int k = 0; k < N_BINS; k++) {
        // the bin's middle stands for its elements; y: rounded to a step and cut off, as int8 stores it
        const double x = (k + 0.5) * width, y = fmin(rint(x / step) * step, cut);
        sum += (double)s->bins[k] * (x - y) * (x - y);
    }
    return sum;
}

static double cut_mse(const observed *s, double levels) {
    double best = (double)s->most, least = INFINITY;
    // from no cut down: of equal errors the least cut stays
    for (int i = N_TRIES; i > 0; i--) {
        const double cut = (double)s->most * i / N_TRIES, e = error_of(s, cut, levels);
        if (e < least) best = cut, least = e;
    }
    return best;
}

int dt_observer_scales(const dt_observer *o, dt_observe how, double percentile, dt_int8_value **out) {
    int n = 0;
    *out = dt_xcalloc((size_t)o->g->n_values + 1, sizeof **out);
    for (int v = 0; v < o->g->n_values; v++) {
        const observed *s = &o->values[v];
        if (!s->wanted) continue;
        const double levels = s->negative ? 127 : 255;             // int8, or uint8 where nothing is negative
        const double cut = s->most <= LEAST               ? levels // scale 1: every element is 0
                           : how == DT_OBSERVE_minmax     ? (double)s->most
                           : how == DT_OBSERVE_percentile ? cut_percentile(s, percentile)
                                                          : cut_mse(s, levels);
        (*out)[n++] =
            (dt_int8_value){.name = o->g->values[v].name, .scale = (float)(cut / levels), .negative = s->negative};
    }
    return n;
}

// ---- weights ---------------------------------------------------------------------------------------

static const float *observe_find(const dt_params *p, const dt_graph *g, dt_value v) {
    const bool buffer = g->values[v].kind == DT_V_BUFFER; // running statistics are buffers, weights are parameters
    const int i = dt_params_find(p, g->values[v].name, buffer);
    return buffer ? p->buffer + p->buffers[i].offset : p->master + p->entries[i].offset;
}

float *dt_observe_weights(const dt_params *p, const dt_graph *g, const dt_node *layer) {
    // (out, in/groups, R, S) or (out, in)
    const dt_shape *shape = &g->values[layer->in[1]].shape;
    const float *w = observe_find(p, g, layer->in[1]);
    const dt_attrs *a = &layer->attrs;
    // the int8 plan folds the batch norm, so the scale is that of the folded weight
    const bool fold = layer->op == DT_OP_conv2d && a->conv2d.fold_bn;
    const int64_t n_out = shape->d[0], each = dt_shape_elements(shape) / n_out;
    float *scales = dt_xcalloc((size_t)n_out, sizeof *scales);
    for (int64_t o = 0; o < n_out; o++) {
        float most = 0, gain = 1;
        for (int64_t i = 0; i < each; i++) most = fmaxf(most, fabsf(w[o * each + i]));
        if (fold)
            gain = observe_find(p, g, a->conv2d.bn_scale)[o] /
                   sqrtf(observe_find(p, g, a->conv2d.bn_var)[o] + a->conv2d.bn_eps);
        most *= fabsf(gain);
        scales[o] = most > 1e-30f ? most / 127 : 1; // a channel of zeros
    }
    return scales;
}
