// goodput.c: see goodput.h.
#include "observe/goodput.h"

#include "base/lines.h"
#include "observe/metrics_internal.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

const dt_goodput_info dt_goodput_parts[DT_N_GOODPUT] = {
#define GOODPUT(id, what, advice) {#id, what, advice},
#include "observe/goodput.def"
#undef GOODPUT
};

static double total_s(const dt_goodput *g) {
    double sum = 0;
    for (int i = 0; i < DT_N_GOODPUT; i++) sum += g->seconds[i];
    return sum;
}

double dt_goodput_ratio(const dt_goodput *g) {
    const double total = total_s(g);
    return total > 0 ? g->seconds[DT_GOODPUT_steps] / total : 0;
}

dt_goodput_part dt_goodput_worst(const dt_goodput *g) {
    int worst = DT_GOODPUT_steps + 1;
    for (int i = worst; i < DT_N_GOODPUT; i++)
        if (g->seconds[i] > g->seconds[worst]) worst = i;
    return (dt_goodput_part)worst;
}

void dt_goodput_write(const dt_goodput *g, dt_json *j) {
    dt_json_int(j, "attempt", g->attempts);
    dt_json_real(j, "goodput", dt_goodput_ratio(g));
    dt_json_int(j, "lost_steps", g->lost_steps);
    dt_json_string(j, "raise", dt_goodput_parts[dt_goodput_worst(g)].name);
    dt_json_begin_object(j, "seconds");
    for (int i = 0; i < DT_N_GOODPUT; i++) dt_json_seconds(j, dt_goodput_parts[i].name, g->seconds[i]);
    dt_json_end_object(j);
}

// ---- of earlier attempts ---------------------------------------------------------------------------

static double member(const json_t *object, const char *name) {
    const double v = json_number_value(json_object_get(object, name));
    return isfinite(v) && v > 0 ? v : 0;
}

static bool is_kind(const char *line, const char *kind) {
    const size_t n = strlen(kind);
    return strncmp(line, "{\"kind\":\"", 9) == 0 && strncmp(line + 9, kind, n) == 0 && line[9 + n] == '"';
}

static bool has_ledger(const char *line) {
    return is_kind(line, "goodput") || is_kind(line, "start");
}

static void take_ledger(dt_goodput *g, const json_t *line) {
    const json_t *seconds = json_object_get(line, "seconds");
    for (int i = 0; i < DT_N_GOODPUT; i++) g->seconds[i] = member(seconds, dt_goodput_parts[i].name);
    g->attempts = (int64_t)member(line, "attempt");
    g->lost_steps = (int64_t)member(line, "lost_steps");
}

// Whether the step of a line counted.
static bool add_step(dt_goodput *g, const json_t *line) {
    const json_t *seconds = json_object_get(line, "seconds");
    const double step = member(seconds, "step"), data = member(seconds, "data"), comm = member(seconds, "comm");
    const bool skipped = json_is_true(json_object_get(line, "skipped"));
    g->seconds[skipped ? DT_GOODPUT_lost : DT_GOODPUT_steps] += skipped ? step : fmax(step - data - comm, 0);
    g->seconds[DT_GOODPUT_data] += skipped ? 0 : data;
    g->seconds[DT_GOODPUT_comm] += skipped ? 0 : comm;
    return !skipped;
}

// Offset of the last line that has a ledger; -1: there is none.
static off_t find_ledger(const char *path) {
    dt_lines lines;
    off_t found = -1;
    size_t n;
    dt_lines_open(&lines, path, 0);
    for (char *line; (line = dt_lines_next(&lines, &n));)
        if (has_ledger(line)) found = lines.at - (off_t)n - 1;
    dt_lines_close(&lines);
    return found;
}

// Returns whether a run that had ended goes on. *last_s: when a line was written last.
static bool read_steps(dt_goodput *g, const char *path, off_t ledger, int64_t keep_bytes, double *last_s) {
    dt_lines lines;
    struct stat info;
    size_t n;
    bool finished = false;
    dt_goodput lost = {0}; // steps behind keep_bytes, whichever side of the ledger they are on
    if (dt_lines_open(&lines, path, keep_bytes < ledger ? keep_bytes : ledger) && fstat(lines.fd, &info) == 0)
        *last_s = (double)info.st_mtim.tv_sec + 1e-9 * (double)info.st_mtim.tv_nsec;
    for (char *line; (line = dt_lines_next(&lines, &n));) {
        const off_t at = lines.at - (off_t)n - 1;
        const bool is_step = is_kind(line, "step"), is_end = is_kind(line, "end");
        if (!is_step && !is_end && at != ledger) continue;
        json_t *object = json_loadb(line, n, 0, NULL);
        if (at == ledger) {
            take_ledger(g, object);
            *last_s = fmax(*last_s, member(object, "time"));
        }
        if (is_step && at > ledger) add_step(g, object);
        if (is_step && at >= keep_bytes) lost.lost_steps += add_step(&lost, object);
        finished = is_end && json_integer_value(json_object_get(object, "status")) == DT_OK;
        json_decref(object);
    }
    dt_lines_close(&lines);
    for (int i = 0; i <= DT_GOODPUT_comm; i++) {
        g->seconds[i] = fmax(g->seconds[i] - lost.seconds[i], 0);
        g->seconds[DT_GOODPUT_lost] += lost.seconds[i];
    }
    g->lost_steps += lost.lost_steps;
    return finished;
}

void dt_goodput_resume(dt_goodput *g, const char *path, int64_t keep_bytes, double started_s) {
    double last_s = started_s;
    *g = (dt_goodput){0};
    const off_t ledger = find_ledger(path);
    // a run that had ended and goes on longer was not waiting
    if (ledger >= 0 && !read_steps(g, path, ledger, keep_bytes > 0 ? keep_bytes : 0, &last_s))
        g->seconds[DT_GOODPUT_waiting] += fmax(started_s - last_s, 0);
    g->attempts++;
}
