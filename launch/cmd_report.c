// cmd_report.c: dtrain report RUN…: report.html of a run, or the comparison of several.
#include "launch.h"

#include "base/core.h"
#include "base/text.h"
#include "observe/report.h"
#include "observe/trace_report.h"

#include <stdio.h>
#include <stdlib.h>

enum { OUT, TRACE };
static const dt_cli_option options[] = {
    [OUT] = {"-o", "FILE.html", "path of the page (default: RUN/report.html, for several runs compare.html)"},
    [TRACE] = {"--trace", NULL, "summarize trace.json (metrics.trace.steps): longest spans, critical path, overlap"},
    {NULL}};

static dt_status report_write(dt_run_log *const *runs, int n, const char *out) {
    // several runs have no directory in common: the working directory
    char *path = out     ? dt_xstrdup(out)
                 : n > 1 ? dt_xstrdup("compare.html")
                         : dt_xprintf("%s/report.html", runs[0]->dir);
    const dt_status st = n > 1 ? dt_report_compare(runs, n, path) : dt_report_write(runs[0], path);
    if (st == DT_OK) puts(path); // the only line on stdout: scripts open the path
    free(path);
    return st;
}

static dt_status report_run(const dt_cli_words *w) {
    if (w->n_words < 1)
        return dt_fail(DT_E_USAGE, "dtrain report expects a run, or several: dtrain report runs/photos");
    // --trace prints text, and writes no page
    if (w->options[TRACE] && (w->n_words > 1 || w->options[OUT]))
        return dt_fail(DT_E_USAGE, "--trace is for one run, and prints: it takes no other run, and "
                                   "no -o");
    if (w->options[TRACE]) return dt_trace_report(w->words[0], stdout);
    if (w->options[OUT] && !dt_text_ends(w->options[OUT], ".html|.htm"))
        // a page under another name would not open in a browser
        return dt_fail(DT_E_USAGE, "-o %s: a report is an HTML page: -o FILE.html", w->options[OUT]);
    dt_run_log **runs;
    int n;
    // opens all, or fails with the first that is no run
    dt_status st = dt_run_log_open_all(&runs, &n, w->words, w->n_words);
    if (st == DT_OK) st = report_write(runs, n, w->options[OUT]);
    dt_run_log_close_all(runs, n);
    return st;
}

const dt_cli_command dt_cli_report = {
    .options = options,
    .text = "Makes RUN/report.html again from the files of the run's directory: curves, results, confusion matrix, the "
            "worst samples, the time budget and the config. Several runs are compared on one page: their curves in one "
            "plot, results, mean and standard deviation over folds and seeds, and the keys that differ. stdout gets "
            "the path of the page.\n\n"
            "  dtrain report runs/photos\n"
            "  dtrain report runs/photos --trace\n"
            "  dtrain report runs/sweep/* -o compare.html\n",
    .run = report_run};
