// page.h: writing an HTML page: text made safe, numbers for people, charts as SVG.
//
// Rejected: a library for charts. Of Debian 12's, Chart.js (200 KB) and d3 (242 KB) would be larger than all else of a
// page, and dygraphs (131 KB) draws lines alone. Each draws by script, so a page would be blank without scripts, as in a
// mail's preview. The script here (6 KB) only moves what C has drawn: another axis, values under the pointer, the order of
// a table.
//
// Every text that is not a constant of this program goes in by $t of dt_page_put: it may be anybody's (a class, a key,
// the message of an error). Nothing is loaded from elsewhere.
#ifndef DT_REPORT_PAGE_H
#define DT_REPORT_PAGE_H

#include "observe/series.h"

#include <stdbool.h>
#include <stdio.h>

// As printf, with what a page needs instead of its conversions:
//   $t  const char *  text, escaped for HTML, in text and in attributes within double quotes: control characters become
//                     \n, \x1b and so on, and more than DT_PAGE_TEXT_BYTES are cut. NULL: nothing
//   $n  double        a number for people: 4 digits, groups of thousands, "0.9134", "12,000", "1.2e-05"; "–" for what is
//                     not finite
//   $s  double        seconds for people: "3 min 20 s"
//   $p  double        a share as per cent                     $g  double  for programs
//   $T  const char *  the same, as long as it is               $k  const char *  a key: lines break behind its dots
//   $d  int64_t       $i  int       $w  double  seconds since the epoch, as a date and time in UTC
enum { DT_PAGE_TEXT_BYTES = 240 };
void dt_page_put(FILE *out, const char *format, ...);
enum { DT_PAGE_NUMBER = 40 }; // bytes of a number as text
// A name beside its colour, as in the legends of charts.
void dt_page_put_key(FILE *out, int colour, const char *label);
// The beginning of a page, up to <main>, and its end.
void dt_page_begin(FILE *out, const char *title);
void dt_page_end(FILE *out);

// ---- charts ----------------------------------------------------------------------------------------
typedef struct dt_xy {
    double x, y, low, high; // a line has a band from low to high; an area reaches from low to y
} dt_xy;

typedef struct dt_curve {
    const char *label;
    dt_xy *points; // heap; by x
    int n;
    int colour; // 0..23: eight hues, then two shades of each
    int run;    // of several runs on a page: whose steps these are
    // FAINT lies beneath a smoothed line; GUIDE is no data, such as a diagonal. Neither is in the legend.
    enum { DT_CURVE_LINE, DT_CURVE_FAINT, DT_CURVE_DOTS, DT_CURVE_GUIDE } look;
} dt_curve;

enum { DT_CHART_CURVES = 24, DT_CHART_MARKS = 64 };
typedef struct dt_chart {
    const char *title, *x; // x: the name of that axis, "step"
    enum { DT_CHART_LINES, DT_CHART_AREAS } kind;
    bool bare;               // without names of curves
    bool from_zero, seconds; // y begins at 0; y is in seconds
    bool cut_peaks;          // rare peaks may leave the chart
    bool unit_square;        // both axes 0..1, as of a ROC curve, but for x_from and y_from
    bool powers;             // x is the binary logarithm of what its axis shows
    double x_from, x_to;     // the x axis, where x_to > x_from: charts beside each other share theirs
    double y_from;           // of a unit_square
    dt_curve curves[DT_CHART_CURVES];
    int n;
    struct {
        double x;
        bool restart;
    } marks[DT_CHART_MARKS]; // thin vertical lines
    int n_marks;
} dt_chart;

// Adds a series as a curve of means with a band from minimum to maximum. NULL or empty: no curve, and NULL.
dt_curve *dt_chart_add_series(dt_chart *c, const char *label, const dt_series *s, int colour);
// Makes the curve a mean of its neighbours, weighted by a Gaussian of 3 % of the points: it lags behind neither way.
void dt_curve_smooth(dt_curve *k);
dt_curve *dt_chart_add(dt_chart *c, const char *label, int n_points, int colour);
// Writes a <figure> unless there is no curve, and frees the curves.
void dt_chart_write(FILE *out, dt_chart *c);
// The same as an SVG file of its own.
void dt_chart_write_file(FILE *out, dt_chart *c);

// A value with the ends of its interval, NaN where it has none.
typedef struct dt_whisker {
    const char *label;
    double value, low, high;
} dt_whisker;
// Writes a <figure> of dots with whiskers, a row each, on one axis. Values are finite.
void dt_chart_write_whiskers(FILE *out, const char *title, const dt_whisker *rows, int n);

#endif
