// sink_jsonl.c: metrics.jsonl, one object a line, every step, every evaluation, and the end.
//
// Members that must repeat when a run is repeated come first (kind, step, epoch, samples, loss, lr, grad_norm);
// times and memory follow: comparing two runs is comparing prefixes of lines. Numbers are the shortest text
// that reads back to the same double; NaN and infinity are null. A resumed run cuts the file to the size noted
// in its checkpoint, so repeated steps appear once. The file was flushed before that checkpoint's manifest; where it
// is damaged all the same, the lines before the damage stay.
#include "metrics_internal.h"

#include "base/arena.h"
#include "base/json.h"
#include "base/log.h"

#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 2048 };

typedef struct jsonl {
    dt_metrics_file file;
    dt_json line;
} jsonl;

// Bytes of the lines at the beginning of the file, within the first `limit` bytes, that are whole objects.
static int64_t good_bytes(const char *path, int64_t limit) {
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    int64_t end = 0;
    // as it is opened for writing (base/io.c): through no link, and a pipe must not hang
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    FILE *f = fd >= 0 ? fdopen(fd, "r") : NULL;
    while (f && end < limit && (n = getline(&line, &cap, f)) > 0 && end + n <= limit) {
        json_t *object = line[n - 1] == '\n' ? json_loadb(line, (size_t)n, 0, NULL) : NULL;
        json_decref(object);
        if (!object) break;
        end += n;
    }
    free(line);
    if (f) fclose(f);
    return end;
}

static int64_t bytes_to_keep(const char *path, int64_t truncate_to) {
    if (truncate_to <= 0) return 0;
    int64_t keep = good_bytes(path, truncate_to);
    if (keep != truncate_to)
        dt_warn("%s: only the first %" PRId64 " of the %" PRId64
                " bytes that the checkpoint knows are whole lines: later metrics are missing",
                path, keep, truncate_to);
    return keep;
}

static dt_status open_jsonl(void **state, const dt_metrics_opts *o) {
    jsonl *s = dt_xcalloc(1, sizeof *s);
    char *path = dt_xprintf("%s/metrics.jsonl", o->run_dir);
    dt_status st = dt_metrics_file_open(&s->file, path, bytes_to_keep(path, o->truncate_to));
    free(path);
    dt_json_init(&s->line);
    char *wide = dt_xcalloc(1, LINE_BYTES); // grow the buffer now, never in a step
    memset(wide, ' ', LINE_BYTES - 1);
    dt_json_raw(&s->line, NULL, wide);
    free(wide);
    *state = s;
    return st;
}

static dt_json *begin_line(jsonl *s, const char *kind, int64_t step) {
    dt_json *j = &s->line;
    dt_json_reset(j);
    dt_json_begin_object(j, NULL);
    dt_json_string(j, "kind", kind);
    dt_json_int(j, "step", step);
    return j;
}

static void put_line(jsonl *s) {
    dt_json_end_object(&s->line);
    dt_json_newline(&s->line);
    dt_metrics_file_put(&s->file, s->line.data, s->line.n_bytes);
}

static void step(void *state, const dt_step_record *r, const dt_step_stats *stats) {
    jsonl *s = state;
    dt_json *j = begin_line(s, "step", r->step);
    dt_json_real(j, "epoch", r->epoch);
    dt_json_int(j, "samples", r->samples);
    dt_json_real(j, "loss", r->loss);
    dt_json_real(j, "lr", r->lr);
    dt_json_real(j, "grad_norm", r->grad_norm);
    if (r->skipped) dt_json_bool(j, "skipped", true);
    if (r->loss_scale > 0) dt_json_real(j, "loss_scale", r->loss_scale);
    dt_json_real(j, "samples_per_s", stats->samples_per_s);
    dt_json_begin_object(j, "seconds");
    dt_json_real(j, "step", r->step_s);
    dt_json_real(j, "data", r->data_s);
    dt_json_real(j, "compute", r->compute_s);
    dt_json_real(j, "comm", r->comm_s);
    dt_json_real(j, "other", r->other_s);
    if (r->idle_s > 0) dt_json_real(j, "idle", r->idle_s);
    dt_json_end_object(j);
    dt_json_int(j, "rss", (int64_t)stats->rss_bytes);
    put_line(s);
}

static void eval(void *state, const dt_eval_record *r) {
    jsonl *s = state;
    dt_json *j = &s->line;
    dt_json_reset(j);
    dt_json_begin_object(j, NULL);
    dt_json_string(j, "kind", "eval");
    dt_json_string(j, "split", r->split);
    dt_json_int(j, "step", r->step);
    for (int i = 0; i < r->n_values; i++) dt_json_real(j, r->values[i].name, r->values[i].value);
    if (r->extra_json && r->extra_json[0]) dt_json_raw(j, NULL, r->extra_json); // members
    put_line(s);
}

static void slow_rank(void *state, const dt_slow_rank_record *r) {
    jsonl *s = state;
    dt_json *j = begin_line(s, "slow_rank", r->step);
    dt_json_int(j, "rank", r->rank);
    dt_json_string(j, "host", r->host);
    dt_json_string(j, "phase", r->phase);
    dt_json_real(j, "times", r->times);
    put_line(s);
}

static void end(void *state, const dt_run_end *r) {
    jsonl *s = state;
    dt_json *j = begin_line(s, "end", r->step);
    dt_json_int(j, "status", r->status);
    if (r->status != DT_OK) dt_json_string(j, "message", r->message);
    put_line(s);
}

static int64_t flush(void *state) {
    jsonl *s = state;
    dt_metrics_file_flush(&s->file);
    return s->file.n_bytes;
}

static uint64_t dropped(void *state) {
    return ((jsonl *)state)->file.n_dropped;
}

static void close_jsonl(void *state) {
    jsonl *s = state;
    dt_metrics_file_close(&s->file);
    dt_json_fini(&s->line);
    free(s);
}

const dt_metrics_sink dt_sink_jsonl = {
    .open = open_jsonl,
    .step = step,
    .eval = eval,
    .slow_rank = slow_rank,
    .end = end,
    .flush = flush,
    .dropped = dropped,
    .close = close_jsonl,
};
