// result_file.h: result.json, which a run writes when it is finished.
//
// One object: {"schema": 1, "train": RECORD, "val": RECORD, "test": RECORD, "last": {"val": RECORD, "test": RECORD}}. A
// split's record is that of the best checkpoint; without one, that of the last weights. "last" has the records of the last
// weights where the best are others. A record begins with "split", "weights", "step".
//
// In memory the records are an array in the order in which they were measured: of a split the best weights come last.
#ifndef DT_OBSERVE_RESULT_FILE_H
#define DT_OBSERVE_RESULT_FILE_H

#include "base/core.h"

#include <jansson.h>
#include <stdio.h>

// lines: a JSON object each, as dt_eval_result_write gives them.
json_t *dt_result_of_lines(const char *lines);
dt_status dt_result_write(const char *run_dir, const json_t *records);
// *out: empty where the run has no result.json, or none that is whole; the caller frees the array. DT_E_USAGE: a newer
// dtrain wrote it.
dt_status dt_result_read(json_t **out, const char *run_dir);
// The record of a split that counts; NULL: there is none. Borrowed.
json_t *dt_result_of_split(const json_t *records, const char *split);
// A line for each record, if need be without their confusion matrices, which nobody reads in a terminal.
void dt_result_print(const json_t *records, bool confusion, FILE *out);

#endif
