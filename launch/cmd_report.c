// cmd_report.c: dtrain report RUN…: report.html of a run, or the comparison of several.
#include "launch.h"

#include "base/arena.h"
#include "metrics/trace_report.h"
#include "report/report.h"

#include <stdio.h>
#include <stdlib.h>

enum { OUT, TRACE };
static const launch_option options[] = {
    [OUT] = {"-o", "FILE.html", "where the comparison of several runs goes (compare.html)"},
    [TRACE] = {"--trace", NULL, "what trace.json says: the longest, the critical path, overlap"},
    {NULL}};

static dt_status write(dt_run_log *const *runs, int n, const char *out) {
    char *path =
        n > 1 ? dt_xstrdup(out ? out : "compare.html") : dt_xprintf("%s/report.html", runs[0]->dir);
    const dt_status st = n > 1 ? dt_report_compare(runs, n, path) : dt_report_write(runs[0]);
    if (st == DT_OK) puts(path);
    free(path);
    return st;
}

static dt_status run(const launch_words *w) {
    if (w->n_words < 1)
        return dt_fail(DT_E_USAGE,
                       "dtrain report wants a run, or several: dtrain report runs/photos");
    if (w->n_words == 1 && w->options[TRACE]) return dt_trace_report(w->words[0], stdout);
    if (w->n_words == 1 && w->options[OUT])
        return dt_fail(
            DT_E_USAGE,
            "-o is for the comparison of several runs: the report of one is its report.html");
    dt_run_log **runs = dt_xcalloc((size_t)w->n_words, sizeof(dt_run_log *));
    dt_status st = DT_OK;
    int n = 0;
    for (; n < w->n_words && st == DT_OK; n++) st = dt_run_log_open(&runs[n], w->words[n]);
    if (st == DT_OK) st = write(runs, n, w->options[OUT]);
    for (int i = 0; i < n; i++) dt_run_log_close(runs[i]);
    free(runs);
    return st;
}

const launch_command launch_report = {
    .options = options,
    .text = "Makes RUN/report.html again, from the files of the run's directory: curves, results,\n"
            "confusion, the worst samples, where the time went, the config. Of several runs it\n"
            "makes one page that compares them: curves over each other, results, mean and\n"
            "deviation over folds and seeds, and what differs in their configs. stdout gets the\n"
            "path of the page.\n\n"
            "  dtrain report runs/photos\n"
            "  dtrain report runs/photos --trace    (metrics.trace.steps)\n"
            "  dtrain report runs/sweep/* -o compare.html\n",
    .run = run};
