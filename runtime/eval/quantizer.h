// quantizer.h: post-training quantisation (dtrain quantize): a run that computes its convolutions and linear layers in
// 8 bits.
//
//   1. Scales. The network runs over the set in fp32, and its activations are observed (int8_observer.h). Weights get a scale
//      for each output channel: its largest magnitude / 127, batch norm folded in.
//   2. Errors. Each layer alone is computed in int8, on the first samples of the set. Its error is the root mean square
//      of what that changes in the outputs, over that of the outputs. Where it is above the tolerance, the layer stays
//      fp32.
//   3. The report: metrics and speed of the fp32 network and of the int8 one, on the set.
//   4. The new run: config with model.int8, a checkpoint with the same fp32 weights, int8.json (int8_file.h).
//
// One process, on the CPU.
//
// defines: dt_trainer_quantize
#ifndef DT_TRAIN_QUANTIZER_H
#define DT_TRAIN_QUANTIZER_H

#include "eval/int8_observer.h"
#include "run/run.h"

typedef struct dt_quantize_request {
    const char *which;  // checkpoint (dt_ckpt_find)
    const char *out;    // folder of the new run; must not exist
    const char *config; // its config.yaml
    dt_split split;     // of the data that calibrate
    bool own_data;      // dt_run_request
    bool raw;           // with train.ema: the trained weights, not their average
    dt_observe how;
    double percentile, tolerance;
} dt_quantize_request;

dt_status dt_trainer_quantize(const dt_trainer_args *a, const dt_quantize_request *r);

#endif
