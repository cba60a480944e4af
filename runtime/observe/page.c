// page.c: an HTML page: its frame, charts and series.

#include "observe/page.h"

#include "report_assets.h"

#include "base/core.h"
#include "base/os.h"
#include "base/sort.h"
#include "base/text.h"
#include "observe/series.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// ---- page ---------------------------------------------------------------------------------------------------------

// whole: without a limit on the length
// breaks: a line may end behind each dot
static void page_put_text(FILE *out, const char *text, bool whole, bool breaks) {
    if (!text) return;
    const size_t cap = whole ? 4 * strlen(text) + 1 : DT_PAGE_TEXT_BYTES; // 4: \x1b for one byte
    char *clean = dt_xcalloc(cap, 1);
    dt_text_clean(clean, cap, text);
    for (const char *s = clean; *s; s++) {
        // also inside attributes, which are in double quotes
        const char *safe = *s == '<' ? "&lt;" : *s == '>' ? "&gt;" : *s == '&' ? "&amp;" : *s == '"' ? "&quot;" : NULL;
        if (safe)
            fputs(safe, out);
        else
            fputc(*s, out);
        if (breaks && *s == '.') fputs("<wbr>", out);
    }
    // cut: the text was longer than the buffer, and fills it but for a letter
    if (strlen(text) >= cap && strlen(clean) + 8 >= cap) fputs("…", out);
    free(clean);
}

static void put_time(FILE *out, double s) {
    char text[32] = "–";
    struct tm tm;
    // 1e11: the year 5138, whose text fits
    if (s > 0 && s < 1e11 && gmtime_r(&(time_t){(time_t)s}, &tm))
        strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &tm);
    fputs(text, out);
}

static const char *page_number_text(char out[DT_PAGE_NUMBER], double v) {
    char plain[DT_PAGE_NUMBER];
    if (!isfinite(v)) return strcpy(out, "–");
    if (v != 0 && (fabs(v) < 1e-3 || fabs(v) >= 1e15)) { // beyond the digits of a double
        snprintf(out, DT_PAGE_NUMBER, "%.3g", v);
        return out;
    }
    const int whole = v == 0 ? 1 : (int)floor(log10(fabs(v))) + 1; // digits in front of the point
    // four digits in all, at least those in front
    const int decimals = v == rint(v) || whole >= 4 ? 0 : whole > 0 ? 4 - whole : 4;
    snprintf(plain, sizeof plain, "%.*f", decimals, v);
    char *o = out;
    const int n = (int)strcspn(plain, "."); // digits and sign
    for (int i = 0; i < n; i++) {
        *o++ = plain[i];
        if (plain[i] != '-' && i + 1 < n && (n - i - 1) % 3 == 0) *o++ = ','; // 1,234,567
    }
    strcpy(o, plain + n);
    return out;
}

static const char *seconds_text(char out[DT_PAGE_NUMBER], double s) {
    if (!isfinite(s))
        strcpy(out, "–");
    else if (s == 0)
        strcpy(out, "0 s");
    else if (s < 0.9995) // 0.9995 s would be printed as 1000 ms
        // three digits
        snprintf(out, DT_PAGE_NUMBER, s < 0.00995 ? "%.2f ms" : s < 0.0995 ? "%.1f ms" : "%.0f ms", 1e3 * s);
    else if (s < 120)
        snprintf(out, DT_PAGE_NUMBER, "%.3g s", s);
    else if (s < 7200)
        snprintf(out, DT_PAGE_NUMBER, "%d min %d s", (int)s / 60, (int)s % 60);
    else if (s < 2e9) // fits an int
        snprintf(out, DT_PAGE_NUMBER, "%d h %d min", (int)s / 3600, (int)s / 60 % 60);
    else
        snprintf(out, DT_PAGE_NUMBER, "%.2g s", s);
    return out;
}

void dt_page_put(FILE *out, const char *format, ...) {
    char number[DT_PAGE_NUMBER]; // any of the numbers
    va_list list;
    va_start(list, format);
    // texts go through escapes, format itself is HTML
    for (const char *at = format;; at++) {
        const size_t n = strcspn(at, "$");
        fwrite(at, 1, n, out);
        at += n;
        if (*at == '\0') break; // the end, not a $
        switch (*++at) {
        case 't':
        case 'T':
        case 'k':
            page_put_text(out, va_arg(list, const char *), *at == 'T', *at == 'k');
            break;
        case 'w':
            put_time(out, va_arg(list, double));
            break;
        case 'n':
            fputs(page_number_text(number, va_arg(list, double)), out);
            break;
        case 's':
            fputs(seconds_text(number, va_arg(list, double)), out);
            break;
        case 'p':
            fprintf(out, "%.1f %%", 100 * va_arg(list, double));
            break;
        case 'g':
            fprintf(out, "%.9g", va_arg(list, double));
            break;
        case 'd':
            fprintf(out, "%" PRId64, va_arg(list, int64_t));
            break;
        case 'i':
            fprintf(out, "%d", va_arg(list, int));
            break;
        default:
            assert(!"a conversion that is none"); // a mistake of the program
        }
    }
    va_end(list);
}

void dt_page_begin(FILE *out, const char *title) {
    // nothing is loaded: a page that is mailed shows and sends nothing else; default-src 'none' enforces it
    dt_page_put(out,
                "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
                "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
                "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; "
                "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n<title>$t</title>\n<style>\n",
                title);
    fprintf(out, "%s</style></head>\n<body><main>\n", report_css); // no $: css has its own
}

void dt_page_end(FILE *out) {
    dt_page_put(out,
                "<footer>Made by dtrain on $w from the files of the run directory.</footer>\n</main>"
                "<div id=\"tip\"></div>\n<script>\n",
                dt_clock_wall_s());
    fprintf(out, "%s</script></body></html>\n", report_js);
}

// ---- chart --------------------------------------------------------------------------------------------------------

// Charts of page.h as inline SVG, 480 by 222 units. Colours and type come from report.css; what report.js needs
// to name a value under the pointer stands in data-axes.

// SVG units; the plot between LEFT..RIGHT and TOP..BOTTOM, y downward
enum { WIDTH = 480, HEIGHT = 222, LEFT = 50, RIGHT = 474, TOP = 10, BOTTOM = 182 };

// ranges of values
typedef struct axes {
    double x0, x1, y0, y1;
} axes;

dt_curve *dt_chart_add(dt_chart *c, const char *label, int n_points, int colour) {
    if (c->n == DT_CHART_CURVES || n_points == 0) return NULL; // NULL: the chart is full, or nothing to draw
    dt_curve *k = &c->curves[c->n++];
    // eight colours of the css in three shades
    *k = (dt_curve){label, dt_xcalloc((size_t)n_points, sizeof *k->points), n_points, colour % 24};
    return k;
}

dt_curve *dt_chart_add_series(dt_chart *c, const char *label, const dt_series *s, int colour) {
    dt_curve *k = s ? dt_chart_add(c, label, s->n, colour) : NULL;
    for (int i = 0; k && i < s->n; i++) {
        const dt_series_point *p = &s->points[i];
        // a point that stands for several steps lies in their middle
        k->points[i] = (dt_xy){0.5 * (double)(p->first + p->last), dt_series_mean(p), p->least, p->most};
    }
    return k;
}

void dt_curve_smooth(dt_curve *k) {
    if (!k) return;
    const double sigma = fmax(0.03 * k->n, 1e-3);
    const int reach = (int)(3 * sigma);
    double *means = dt_xcalloc((size_t)k->n, sizeof *means);
    for (int i = 0; i < k->n; i++) {
        double sum = 0, weights = 0;
        for (int d = -reach; d <= reach; d++) {
            if (i + d < 0 || i + d >= k->n) continue;
            const double w = exp(-0.5 * (d / sigma) * (d / sigma));
            sum += w * k->points[i + d].y;
            weights += w;
        }
        means[i] = sum / weights;
    }
    for (int i = 0; i < k->n; i++) k->points[i].y = k->points[i].low = k->points[i].high = means[i];
    free(means);
}

// ---- axes ------------------------------------------------------------------------------------------

// The largest 95th percentile of a curve.
// cut_peaks: a few spikes shall not flatten the curve
static double usual_most(const dt_chart *c) {
    double most = -INFINITY;
    for (const dt_curve *k = c->curves; k < c->curves + c->n; k++) {
        double *y = dt_xcalloc((size_t)k->n, sizeof *y);
        for (int i = 0; i < k->n; i++) y[i] = k->points[i].y;
        qsort(y, (size_t)k->n, sizeof *y, dt_sort_reals);
        most = fmax(most, y[(int)(0.95 * (k->n - 1))]); // nearest rank
        free(y);
    }
    return most;
}

// Ranges of x and y: all of the curves, and of the bands around them their usual width.
static void find_axes(const dt_chart *c, axes *a) {
    // no values yet: any is smaller, and larger
    *a = c->unit_square ? (axes){0, 1, c->y_from, 1} : (axes){INFINITY, -INFINITY, INFINITY, -INFINITY};
    const bool x_given = c->x_to > c->x_from;
    if (c->unit_square && x_given) a->x0 = c->x_from, a->x1 = c->x_to;
    if (c->unit_square) return;
    for (int k = 0; k < c->n; k++) {
        const dt_curve *curve = &c->curves[k];
        double y0 = INFINITY, y1 = -INFINITY, below = 0, above = 0;
        for (int i = 0; i < curve->n; i++) {
            const dt_xy *p = &curve->points[i];
            a->x0 = fmin(a->x0, p->x);
            a->x1 = fmax(a->x1, p->x);
            y0 = fmin(y0, p->y);
            y1 = fmax(y1, p->y);
            below += fmax(p->y - p->low, 0) / curve->n; // means over the points: one outlier makes no room
            above += fmax(p->high - p->y, 0) / curve->n;
        }
        const bool band = c->kind == DT_CHART_LINES; // areas have no band
        a->y0 = fmin(a->y0, band ? y0 - below : y0);
        a->y1 = fmax(a->y1, band ? y1 + above : y1);
    }
    if (c->cut_peaks) a->y1 = fmin(a->y1, 2 * usual_most(c));              // cut above, never below
    if (c->kind == DT_CHART_AREAS || c->from_zero) a->y0 = fmin(a->y0, 0); // areas stand on 0
    if (x_given) a->x0 = c->x_from, a->x1 = c->x_to;
    if (a->x1 <= a->x0) a->x0 -= 0.5, a->x1 += 0.5; // a single step
    const double whole = a->y1 - a->y0;
    const double span = whole > 1e-12 * fmax(fabs(a->y0), fabs(a->y1)) ? whole : 0; // digits that a tick can add to
    // 5 % above and below, or some where the curve is flat
    const double room = span > 0 ? 0.05 * span : a->y1 != 0 ? 0.1 * fabs(a->y1) : 1;
    a->y1 += room;
    if (a->y0 != 0 || span <= 0) a->y0 -= room; // 0 stays the edge
}

static double x_of(const axes *a, double x) {
    return LEFT + (x - a->x0) / (a->x1 - a->x0) * (RIGHT - LEFT);
}

// at most two plots above and below: SVG coordinates stay small, clipped
static double y_of(const axes *a, double y) {
    return BOTTOM - fmin(fmax((y - a->y0) / (a->y1 - a->y0), -2), 3) * (BOTTOM - TOP);
}

// 1, 2 or 5 times a power of ten: about `n` of them fit.
// span > 0: find_axes makes it so
static double tick_step(double span, int n) {
    const double raw = span / n, power = pow(10, floor(log10(raw))), f = raw / power; // f in 1..10
    return power * (f < 1.5 ? 1 : f < 3.5 ? 2 : f < 7.5 ? 5 : 10);
}

static const char *tick_text(char out[DT_PAGE_NUMBER], double v, double step) { // v in units of G, M or k
    const double size = fabs(v);
    const char *unit = size >= 1e9 ? "G" : size >= 1e6 ? "M" : size >= 1e4 ? "k" : "";
    const double by = size >= 1e9 ? 1e9 : size >= 1e6 ? 1e6 : size >= 1e4 ? 1e3 : 1;
    if (size < 1e-12) return strcpy(out, "0"); // rounding of ceil * step
    if (size < 1e-3 || size >= 1e12) {
        snprintf(out, DT_PAGE_NUMBER, "%.3g", v);
        return out;
    }
    // as many as tell neighbours apart; 1e-9: log10 of 0.1 may be a bit below -1
    const int decimals = step >= by ? 0 : (int)ceil(-log10(step / by) - 1e-9);
    snprintf(out, DT_PAGE_NUMBER, "%.*f%s", decimals < 6 ? decimals : 6, v / by, unit);
    return out;
}

// by the step: ticks of an axis have one unit
static void seconds_tick(char out[DT_PAGE_NUMBER], double v, double step) {
    char text[DT_PAGE_NUMBER];
    const double by = step < 1e-3 ? 1e6 : step < 1 ? 1e3 : 1;
    snprintf(out, DT_PAGE_NUMBER, "%.24s %s", tick_text(text, v * by, step * by),
             by > 1e3 ? "µs"
             : by > 1 ? "ms"
                      : "s");
}

static void write_y_axis(FILE *out, const dt_chart *c, const axes *a) {
    char text[DT_PAGE_NUMBER];
    const double step = tick_step(a->y1 - a->y0, 4); // four ticks
    // 1e-9: ticks at the edges in spite of rounding
    for (double v = ceil(a->y0 / step - 1e-9) * step; v <= a->y1 + 1e-9 * step; v += step) {
        const double y = y_of(a, v);
        if (c->seconds && fabs(v) > 1e-12)
            seconds_tick(text, v, step);
        else
            tick_text(text, v, step);
        fprintf(out,
                // the number right-aligned, 7 units left of the plot; 4: half a letter's height
                "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>"
                "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
                LEFT, RIGHT, y, y, LEFT - 7, y + 4, text);
    }
}

static void write_x_axis(FILE *out, const dt_chart *c, const axes *a) {
    char text[DT_PAGE_NUMBER];
    double step = tick_step(a->x1 - a->x0, 5);
    fputs("<g class=\"x\">", out);                                    // report.js writes it anew for another axis
    if (strcmp(c->x, "step") == 0 || c->powers) step = fmax(step, 1); // steps and powers are whole
    for (double v = ceil(a->x0 / step - 1e-9) * step; v <= a->x1 + 1e-9 * step; v += step) {
        const double x = x_of(a, v);
        const char *anchor = x > RIGHT - 16 ? "end" : x < LEFT + 8 ? "start" : "middle"; // no label leaves the drawing
        if (c->powers)
            snprintf(text, sizeof text, "%.0f", exp2(v)); // the axis has exponents of 2
        else
            tick_text(text, v, step);
        fprintf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">%s</text>\n", x, BOTTOM + 19, anchor, text);
    }
    fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", (LEFT + RIGHT) / 2, BOTTOM + 35, c->x);
    fprintf(out, "</g><line class=\"base\" x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/>\n", LEFT, RIGHT, BOTTOM, BOTTOM);
}

// ---- curves ----------------------------------------------------------------------------------------

typedef enum edge { THE_LINE, UPPER, LOWER } edge; // UPPER and LOWER of a band; LOWER is written backwards

static void write_points(FILE *out, const dt_curve *k, const axes *a, edge e) {
    for (int i = 0; i < k->n; i++) {
        const dt_xy *p = &k->points[e == LOWER ? k->n - 1 - i : i]; // backwards: a polygon runs around its area
        // one decimal: a tenth of a unit
        fprintf(out, "%.1f,%.1f ", x_of(a, p->x), y_of(a, e == THE_LINE ? p->y : e == UPPER ? p->high : p->low));
    }
}

// a curve of single steps has none
static bool has_band(const dt_curve *k) {
    for (int i = 0; i < k->n; i++)
        if (k->points[i].high > k->points[i].low) return true;
    return false;
}

// An element of a colour, without its end; more: further classes.
static void write_colour(FILE *out, const char *element, int colour, const char *more) {
    fprintf(out, "%s class=\"k%d s%d%s\"", element, colour % 8, colour / 8, more);
}

static void write_curve(FILE *out, const dt_chart *c, const dt_curve *k, const axes *a) {
    static const char *const looks[] = {[DT_CURVE_FAINT] = " faint", [DT_CURVE_GUIDE] = " guide"};
    const bool area = c->kind == DT_CHART_AREAS, dots = k->look == DT_CURVE_DOTS;
    write_colour(out, "<g", k->colour, k->look == DT_CURVE_FAINT || k->look == DT_CURVE_GUIDE ? looks[k->look] : "");
    dt_page_put(out, " data-run=\"$i\">", k->run);
    // areas: from the line to `low`; a band around the line below it
    if (area || has_band(k)) {
        if (area)
            dt_page_put(out, "<polygon class=\"area\" data-low=\"1\" data-label=\"$t\" points=\"", k->label);
        else
            fputs("<polygon class=\"band\" points=\"", out);
        write_points(out, k, a, area ? THE_LINE : UPPER);
        write_points(out, k, a, LOWER);
        fputs("\"/>", out);
    }
    if (!area && !dots) { // an area has its label, line and colour
        dt_page_put(out, k->look == DT_CURVE_GUIDE ? "<polyline points=\"" : "<polyline data-label=\"$t\" points=\"",
                    k->label);
        write_points(out, k, a, THE_LINE);
        fputs("\"/>", out);
    }
    // few points, and not one at each step: the line alone would hide where values are
    const bool apart = c->powers || k->n == 1 || k->points[k->n - 1].x - k->points[0].x > k->n - 1;
    if (dots || (!area && k->n <= 24 && apart && !c->unit_square && k->look == DT_CURVE_LINE))
        for (int i = 0; i < k->n; i++)
            fprintf(out, "<circle class=\"dot\" r=\"2.6\" cx=\"%.1f\" cy=\"%.1f\"/>", x_of(a, k->points[i].x),
                    y_of(a, k->points[i].y));
    fputs("</g>\n", out);
}

void dt_page_put_key(FILE *out, int colour, const char *label) {
    write_colour(out, "<span", colour, " key");
    dt_page_put(out, ">$t</span>", label);
}

static void write_caption(FILE *out, const dt_chart *c) {
    // one curve that is called as the chart needs no key
    const bool says = !c->bare && (c->n > 1 || strcmp(c->curves[0].label, c->title) != 0);
    dt_page_put(out, "<figure><figcaption><b>$t</b>", c->title);
    for (int i = 0; i < c->n && says; i++) {
        const dt_curve *k = &c->curves[i];
        if (k->look != DT_CURVE_FAINT && k->look != DT_CURVE_GUIDE) dt_page_put_key(out, k->colour, k->label);
    }
    fputs("</figcaption>", out);
}

// What is within <svg>; frees the curves.
static void write_inside(FILE *out, dt_chart *c, const axes *axes_of) {
    static int n_clips; // ids in a page differ
    const axes a = *axes_of;
    // two reports may be written at once
    const int clip = __atomic_fetch_add(&n_clips, 1, __ATOMIC_RELAXED);
    // 4 units more: lines and dots at the edges are whole
    fprintf(out, "<clipPath id=\"clip%d\"><rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/></clipPath>\n", clip,
            LEFT, TOP - 4, RIGHT - LEFT + 4, BOTTOM - TOP + 4);
    write_y_axis(out, c, &a);
    fprintf(out, "<g clip-path=\"url(#clip%d)\">", clip);
    for (int i = c->n - 1; i >= 0; i--) write_curve(out, c, &c->curves[i], &a); // the first curve on top
    for (int i = 0; i < c->n_marks; i++)
        fprintf(out, "<line class=\"mark%s\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>",
                c->marks[i].restart ? " restart" : "", x_of(&a, c->marks[i].x), x_of(&a, c->marks[i].x), TOP, BOTTOM);
    fputs("</g>\n", out);
    write_x_axis(out, c, &a);
    for (int i = 0; i < c->n; i++) free(c->curves[i].points); // charts are written once
    c->n = 0;
}

void dt_chart_write(FILE *out, dt_chart *c) {
    axes a;
    if (c->n == 0) return;
    find_axes(c, &a);
    write_caption(out, c);
    fprintf(out,
            // data-axes: pixel range, then value range, for the pointer (report.js)
            "<svg viewBox=\"0 0 %d %d\" role=\"img\" data-x=\"%s\" data-axes=\"%d %d %d %d %g %g "
            "%g %g\">\n",
            WIDTH, HEIGHT, c->x, LEFT, RIGHT, TOP, BOTTOM, a.x0, a.x1, a.y0, a.y1);
    write_inside(out, c, &a);
    fprintf(out, "<line class=\"cursor\" y1=\"%d\" y2=\"%d\"/></svg></figure>\n", TOP, BOTTOM); // moved by report.js
}

void dt_chart_write_file(FILE *out, dt_chart *c) {
    enum { ABOVE = 24, ROW = 16 }; // SVG units: the title's, a label's line
    axes a;
    if (c->n == 0) return;
    find_axes(c, &a);
    const int above = ABOVE + ROW * c->n;
    // negative y: the legend stands above the plot, whose coordinates stay
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 %d %d %d\" "
            "font-family=\"sans-serif\">\n<style>%s</style>\n"
            "<rect y=\"%d\" width=\"%d\" height=\"%d\" fill=\"var(--paper)\"/>\n",
            -above, WIDTH, HEIGHT + above, report_css, -above, WIDTH, HEIGHT + above);
    dt_page_put(out, "<text x=\"$i\" y=\"$i\" font-weight=\"bold\">$t</text>\n", LEFT, ROW - above, c->title);
    for (int i = 0; i < c->n; i++) {
        const int y = ABOVE + ROW * i - above + 8; // from the top downward
        write_colour(out, "<g", c->curves[i].colour, "");
        dt_page_put(out, "><polyline points=\"$i,$i $i,$i\"/></g>", LEFT, y - 4, LEFT + 18, y - 4);
        dt_page_put(out, "<text x=\"$i\" y=\"$i\">$t</text>\n", LEFT + 24, y, c->curves[i].label);
    }
    write_inside(out, c, &a);
    fputs("</svg>\n", out);
}

void dt_chart_write_whiskers(FILE *out, const char *title, const dt_whisker *rows, int n) {
    char text[DT_PAGE_NUMBER];
    double low = INFINITY, high = -INFINITY;
    for (const dt_whisker *w = rows; w < rows + n; w++) {
        low = fmin(low, fmin(w->value, w->low)); // fmin ignores NaN
        high = fmax(high, fmax(w->value, w->high));
    }
    const double room = high > low ? 0.04 * (high - low) : high != 0 ? 0.1 * fabs(high) : 1;
    const double from = low - room, span = high - low + 2 * room, by = 100 / span, step = tick_step(span, 4);
    dt_page_put(out, "<figure><figcaption><b>$t</b></figcaption><div class=\"whiskers\">\n", title);
    for (const dt_whisker *w = rows; w < rows + n; w++) {
        dt_page_put(out, "<span title=\"$t\">$t</span><div class=\"k0\">", w->label, w->label);
        if (isfinite(w->low) && isfinite(w->high))
            fprintf(out, "<i style=\"left:%.2f%%;width:%.2f%%\"></i>", (w->low - from) * by, (w->high - w->low) * by);
        fprintf(out, "<b style=\"left:%.2f%%\"></b></div>", (w->value - from) * by);
        dt_page_put(out, "<span>$n</span>\n", w->value);
    }
    fprintf(out, "<div class=\"ticks\" style=\"--rows:%d\">", n + 1); // lines reach up through all rows
    for (double v = ceil(from / step) * step; v <= from + span; v += step)
        fprintf(out, "<i style=\"left:%.2f%%\">%s</i>", (v - from) * by, tick_text(text, v, step));
    fputs("</div></div></figure>\n", out);
}

// ---- series -------------------------------------------------------------------------------------------------------

static void series_merge(dt_series_point *into, const dt_series_point *p) {
    if (p->last > into->last) into->last = p->last; // not where a step went back
    into->n += p->n;
    into->sum += p->sum;
    into->least = fmin(into->least, p->least);
    into->most = fmax(into->most, p->most);
}

// halves the points: memory is bounded whatever the number of steps
static void double_width(dt_series *s) {
    int n = 0;
    s->width *= 2;
    for (int i = 0; i < s->n; i++) {
        // first / width: number of the bin
        if (n > 0 && s->points[n - 1].first / s->width == s->points[i].first / s->width)
            series_merge(&s->points[n - 1], &s->points[i]);
        else
            s->points[n++] = s->points[i];
    }
    s->n = n;
}

void dt_series_add(dt_series *s, int64_t step, double value) {
    const dt_series_point p = {step, step, 1, value, value, value}; // one value: sum, least and most are the same
    s->newest = value;
    if (!(fabs(value) < DT_SERIES_MOST)) { // NaN, infinity, and what would overflow a sum; counted
        s->n_empty++;
        return;
    }
    if (!s->points) {
        s->points = dt_xcalloc(DT_SERIES_POINTS, sizeof *s->points);
        s->width = 1;
    }
    for (;; double_width(s)) {
        dt_series_point *newest = s->n > 0 ? &s->points[s->n - 1] : NULL;
        // same bin, or a step that went back after a resume
        if (newest && step / s->width <= newest->first / s->width) {
            series_merge(newest, &p);
            return;
        }
        if (s->n < DT_SERIES_POINTS) break; // full: twice the width, then again
    }
    s->points[s->n++] = p;
}

void dt_series_fini(dt_series *s) {
    free(s->points);
    *s = (dt_series){0};
}
