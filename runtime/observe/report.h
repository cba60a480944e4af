// report.h: report.html of one run, and the comparison of several.
//
// Both pages are made from the files of run directories alone (run_log.h), of finished runs and of runs that still
// write. A page answers in the order in which people ask: did it work, how well, what went wrong, where did the time
// go, how was it made. It is one file without anything from elsewhere, and its text is safe whatever names hold.
//
// Besides metrics.jsonl, result.json and config.yaml a report reads `log` (its warnings) and evaluation-<split>.json,
// which the run writes at its evaluations (metrics/eval_report.h): curves, errors, and the worst samples with their
// pictures.
#ifndef DT_REPORT_REPORT_H
#define DT_REPORT_REPORT_H

#include "config/words.h"
#include "observe/run_log.h"

#include <stdio.h>

enum { DT_REPORT_CURVES = 8 }; // classes with a ROC curve at most, of an evaluation

// Writes the page of the run to `path`. DT_E_STORAGE.
dt_status dt_report_write(const dt_run_log *r, const char *path);
// Writes the comparison of n runs to `path`. DT_E_STORAGE.
dt_status dt_report_compare(dt_run_log *const *runs, int n, const char *path);

// What limits steps. Shares are of their time. host: data and communication keep up, and yet the GPU is busy for gpu_util
// (NaN: unknown) of the time, which is less than DT_GPU_BUSY.
#define DT_GPU_BUSY       0.7
#define DT_BOUND_WORDS(W) W(BOUND, data) W(BOUND, communication) W(BOUND, host) W(BOUND, compute)
typedef enum dt_bound { DT_BOUND_WORDS(DT_WORD_CONSTANT) } dt_bound;
dt_bound dt_report_bound(double data_share, double comm_share, double gpu_util);
// The same and what would help, as one sentence. data_verdict: what the loader's counters say if data is the limit, or NULL.
void dt_report_verdict(char *text, size_t cap, double data_share, double comm_share, double gpu_util,
                       const char *data_verdict);

#endif
