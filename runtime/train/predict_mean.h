// predict_mean.h: the mean of several passes over a data set: members of an ensemble, dropout masks, changed images.
//
// For each sample and target it keeps, over the passes with weights w and predictions p (probabilities or numbers):
//
//   mean         p̄ = Σ w p / Σ w           deep ensembles: Lakshminarayanan et al., NeurIPS 2017
//   variance     Σ w p² / Σ w - p̄²         of dropout masks: Gal and Ghahramani, ICML 2016
//   entropy      H(p̄), in nats: all that is uncertain
//   mutual information  H(p̄) - Σ w H(p) / Σ w: the part about which the passes disagree (BALD: Houlsby et al., 2011)
//
// H is that of the classes; where several labels can be true, the sum of theirs. w is 1, or 1 / (H(p) + 0.001), so that
// a pass that is sure of a sample counts more (inverse-uncertainty weights, by sample).
#ifndef DT_TRAIN_PREDICT_MEAN_H
#define DT_TRAIN_PREDICT_MEAN_H

#include "train/predict_write.h"

typedef struct dt_predict_mean dt_predict_mean;

// columns: borrowed.
dt_predict_mean *dt_predict_mean_create(const dt_predict_column *columns, int n_columns,
                                        int64_t n_samples, bool by_uncertainty);
void dt_predict_mean_destroy(dt_predict_mean *m);
// value: of a target of a pass, element k is the column's element map[k].
void dt_predict_mean_add(dt_predict_mean *m, int64_t sample, int column, const double *value,
                         const int32_t *map);
// A pass has no prediction of it: the sample has no mean.
void dt_predict_mean_fail(dt_predict_mean *m, int64_t sample, const char *why);
// Valid until the next one.
dt_predict_row dt_predict_mean_row(dt_predict_mean *m, int64_t sample);

#endif
