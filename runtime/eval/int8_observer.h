// int8_observer.h: how large a network's activations are, for the scales of int8.
//
// Two runs over the samples: the first finds each value's largest magnitude and whether anything is negative, the
// second counts magnitudes in bins up to that. From the bins follows where a value is cut off:
//
//   minmax      nowhere: its largest magnitude
//   percentile  so that this share of the elements is not cut
//   mse         where the mean squared error of rounding and cutting is the least
//
// Counts are integers, so the scales do not depend on replicas. Samples that pad a batch, or could not be read, do not
// count.
#ifndef DT_EVAL_INT8_OBSERVER_H
#define DT_EVAL_INT8_OBSERVER_H

#include "batch/batch_source.h"
#include "config/words.h"
#include "exec/params.h"
#include "graph/passes/passes.h"

#define DT_OBSERVE_WORDS(W) W(OBSERVE, mse) W(OBSERVE, minmax) W(OBSERVE, percentile)
typedef enum dt_observe { DT_OBSERVE_WORDS(DT_WORD_CONSTANT) } dt_observe;

typedef struct dt_observer dt_observer;

// An observer of the values that int8 layers of the graph read and write. g is borrowed.
dt_observer *dt_observer_create(const dt_graph *g);
void dt_observer_destroy(dt_observer *o);
// dt_infer_opts.look; from several threads.
void dt_observer_look(void *o, const dt_batch *b, dt_value v, const float *x);
// Between the runs. DT_E_DATA naming a value that is not finite.
dt_status dt_observer_begin_bins(dt_observer *o);
// percentile: of 100. Returns how many; *out on the heap, names borrowed from the graph.
int dt_observer_scales(const dt_observer *o, dt_observe how, double percentile, dt_int8_value **out);

// Scales of a layer's weight, one for each output channel: its largest magnitude / 127, batch norm folded in. Heap.
float *dt_observe_weights(const dt_params *p, const dt_graph *g, const dt_node *layer);

#endif
