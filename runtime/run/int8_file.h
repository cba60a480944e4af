// int8_file.h: int8.json in the folder of a run that computes in int8 (model.int8): what dtrain quantize found out.
//
//   {"format":1, "step":120,
//    "values": {"layer1.0.conv1": {"scale":0.0131, "negative":false}, …},     activations, by name
//    "layers": {"conv1": {"error":0.004, "weight":[0.0021,…]},                in int8: a scale an output channel
//               "fc": {"error":0.31, "weight":null}, …}}                      stays fp32
//
// Scales are real value / stored value. The weights themselves are in the checkpoint, in fp32.
#ifndef DT_TRAIN_INT8_FILE_H
#define DT_TRAIN_INT8_FILE_H

#include "base/json.h"
#include "config/config.h"
#include "graph/passes/passes.h"

// Path of the file in the config's run; heap.
char *dt_int8_path(const dt_config *c);
// errors: of each layer. Resets j.
void dt_int8_build(const dt_int8 *q, const double *errors, int64_t step, dt_json *j);
// Heap, freed by dt_int8_destroy. DT_E_CKPT naming `where` and what is wrong, also that it is of another step.
dt_status dt_int8_parse(dt_int8 **out, const char *where, const char *text, int64_t step);
void dt_int8_destroy(dt_int8 *q); // NULL is fine

#endif
