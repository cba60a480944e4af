// report_internal.h: what the files of reports share. Not for others.
#ifndef DT_REPORT_INTERNAL_H
#define DT_REPORT_INTERNAL_H

#include "config/config.h"
#include "config/words.h"
#include "observe/page.h"
#include "observe/report.h"

const char *dt_report_text(const json_t *object, const char *name); // a member; "" if it is no text
double dt_report_real(const json_t *object, const char *name);      // NaN if it is no number
// Parts of a table that a click sorts: its beginning up to the heads of its columns, and its end.
void dt_report_begin_table(FILE *out, const char *classes, const char *first_head);
void dt_report_begin_rows(FILE *out);
void dt_report_end_table(FILE *out);
// The switch between axes of the charts of steps, of several runs: epochs, samples or seconds.
void dt_report_write_axes(FILE *out, const dt_run_log *const *runs, int n);
// The chart of a number of the steps up to x_to, still without curves.
dt_chart dt_report_chart(dt_run_number number, double x_to);
void dt_report_cell(FILE *out, double value); // <td>, empty if the value is not finite
void dt_report_state(FILE *out, const dt_run_log *r);
double dt_report_wall_s(const dt_run_log *r);        // since the first start, with pauses between attempts
double dt_report_samples_per_s(const dt_run_log *r); // over all steps but the first; NaN: too few steps
// The run's config, or NULL where this version cannot read it; *text: config.yaml as it is, heap, or NULL.
dt_config *dt_report_config(const dt_run_log *r, char **text);
dt_status dt_report_save(char *text, size_t n, const char *path); // frees text
// report_eval.c: what the last evaluation of each part showed.
void dt_report_evaluations(FILE *out, const dt_run_log *r);

#endif
