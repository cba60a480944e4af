// page.c: see page.h.
#include "observe/page.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/text.h"
#include "report_assets.h" // report.css and report.js as strings

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void page_put_text(FILE *out, const char *text, bool whole) {
    if (!text) return;
    const size_t cap = whole ? 4 * strlen(text) + 1 : DT_PAGE_TEXT_BYTES;
    char *clean = dt_xcalloc(cap, 1);
    dt_text_clean(clean, cap, text);
    for (const char *s = clean; *s; s++) {
        const char *safe = *s == '<' ? "&lt;" : *s == '>' ? "&gt;" : *s == '&' ? "&amp;" : *s == '"' ? "&quot;" : NULL;
        if (safe)
            fputs(safe, out);
        else
            fputc(*s, out);
    }
    if (strlen(text) >= cap && strlen(clean) + 8 >= cap) fputs("…", out);
    free(clean);
}

static void put_time(FILE *out, double s) {
    char text[32] = "–";
    struct tm tm;
    if (s > 0 && s < 1e11 && gmtime_r(&(time_t){(time_t)s}, &tm))
        strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &tm);
    fputs(text, out);
}

static const char *page_number_text(char out[DT_PAGE_NUMBER], double v) {
    char plain[DT_PAGE_NUMBER];
    if (!isfinite(v)) return strcpy(out, "–");
    if (v != 0 && (fabs(v) < 1e-3 || fabs(v) >= 1e15)) {
        snprintf(out, DT_PAGE_NUMBER, "%.3g", v);
        return out;
    }
    const int whole = v == 0 ? 1 : (int)floor(log10(fabs(v))) + 1;
    const int decimals = v == rint(v) || whole >= 4 ? 0 : whole > 0 ? 4 - whole : 4;
    snprintf(plain, sizeof plain, "%.*f", decimals, v);
    char *o = out;
    const int n = (int)strcspn(plain, ".");
    for (int i = 0; i < n; i++) {
        *o++ = plain[i];
        if (plain[i] != '-' && i + 1 < n && (n - i - 1) % 3 == 0) *o++ = ',';
    }
    strcpy(o, plain + n);
    return out;
}

static const char *seconds_text(char out[DT_PAGE_NUMBER], double s) {
    if (!isfinite(s))
        strcpy(out, "–");
    else if (s < 0.9995)
        snprintf(out, DT_PAGE_NUMBER, s < 0.00995 ? "%.2f ms" : s < 0.0995 ? "%.1f ms" : "%.0f ms", 1e3 * s);
    else if (s < 120)
        snprintf(out, DT_PAGE_NUMBER, "%.3g s", s);
    else if (s < 7200)
        snprintf(out, DT_PAGE_NUMBER, "%d min %d s", (int)s / 60, (int)s % 60);
    else if (s < 2e9)
        snprintf(out, DT_PAGE_NUMBER, "%d h %d min", (int)s / 3600, (int)s / 60 % 60);
    else
        snprintf(out, DT_PAGE_NUMBER, "%.2g s", s);
    return out;
}

void dt_page_put(FILE *out, const char *format, ...) {
    char number[DT_PAGE_NUMBER];
    va_list list;
    va_start(list, format);
    for (const char *at = format;; at++) {
        const size_t n = strcspn(at, "$");
        fwrite(at, 1, n, out);
        at += n;
        if (*at == '\0') break;
        switch (*++at) {
        case 't':
        case 'T':
            page_put_text(out, va_arg(list, const char *), *at == 'T');
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
            assert(!"a conversion that is none");
        }
    }
    va_end(list);
}

void dt_page_begin(FILE *out, const char *title) {
    dt_page_put(out,
                "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
                "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
                "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; "
                "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n<title>$t</title>\n<style>\n",
                title);
    fprintf(out, "%s</style></head>\n<body><main>\n", report_css);
}

void dt_page_end(FILE *out) {
    dt_page_put(out,
                "<footer>Made by dtrain on $w from the files of the run directory.</footer>\n</main>"
                "<div id=\"tip\"></div>\n<script>\n",
                dt_clock_wall_s());
    fprintf(out, "%s</script></body></html>\n", report_js);
}

const char *dt_page_style(void) {
    return report_css;
}
