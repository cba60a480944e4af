// calibrate.h: temperature scaling (Guo et al., "On calibration of modern neural networks", ICML 2017): logits are
// divided by a temperature T that makes the validation part most likely, so that probabilities mean what they say. The
// order of classes, and so the accuracy, stays. T stays 1 unless it lowers the nll of samples that did not choose it: each
// half of the part (every second sample) is measured with the T of the other.
//
// RUN/calibration.json: {"step": 450, "flags": {"temperature": 1.7, "thresholds": {"odd": 0.31, …}}}, of classes and of
// labels (bce); thresholds, of calibrated probabilities, of labels with eval.threshold: f1. It belongs to the checkpoint
// of that step. dtrain predict applies it.
#ifndef DT_TRAIN_CALIBRATE_H
#define DT_TRAIN_CALIBRATE_H

#include "run/run.h"

// Fits T on the validation part and writes calibration.json; prints a JSON line with the calibration error (ece) and
// the mean negative log-likelihood (nll) before and after: of each half with the T of the other. Collective.
dt_status dt_trainer_calibrate(const dt_trainer_args *a, const char *which);

// The temperature of a target for the checkpoint of `step`; 1 where there is none, with a warning where it is of another
// step. thresholds (n_out), or NULL: from which a calibrated probability counts as predicted; DT_E_USAGE where
// eval.threshold is f1 and there is none for that checkpoint.
dt_status dt_calibration_read(const dt_config *c, int64_t step, const dt_target *t, double *temperature,
                              double *thresholds);

#endif
