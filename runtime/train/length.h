// length.h: how long a run is: what ends it early, and whether one that is finished may go on longer.
#ifndef DT_TRAIN_LENGTH_H
#define DT_TRAIN_LENGTH_H

#include "config/config.h"
#include "train/state.h"

// train.early_stop: whether eval.best has not improved by more than min_delta in the last `patience` evaluations, the
// newest of which is of s->step. A function of the history, so a resumed run ends where the undisturbed one does.
bool dt_length_is_enough(const dt_config *c, const dt_train_state *s, bool lower_is_better);

// `old` is the config of the run so far, `given` that of now, of which it takes train.epochs and train.max_steps where
// only one has them. Whether nothing but these two differs, the run becomes longer, and the steps that are done
// would have had the same learning rates.
bool dt_length_may_grow(dt_config *old, dt_config *given, const dt_train_state *s);

#endif
