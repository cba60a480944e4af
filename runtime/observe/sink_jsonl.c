// sink_jsonl.c: metrics.jsonl, one object a line, every step, every evaluation, and the end.
//
// Members that must repeat when a run is repeated come first (kind, step, epoch, samples, loss, lr, grad_norm);
// times and memory follow: comparing two runs is comparing prefixes of lines. Numbers are the shortest text
// that reads back to the same double; NaN and infinity are null. A resumed run cuts the file to the size noted
// in its checkpoint, so repeated steps appear once. The file was flushed before that checkpoint's manifest; where it
// is damaged all the same, the lines before the damage stay.
#define _GNU_SOURCE // gethostname
#include "metrics_internal.h"

#include "base/arena.h"
#include "base/io.h"
#include "base/json.h"
#include "base/lines.h"
#include "base/log.h"
#include "config/split_names.h"
#include "observe/run_log.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct jsonl {
    dt_metrics_file file;
    dt_json line;
    dt_metrics_opts o;
} jsonl;

// Bytes of the lines at the beginning of the file, within the first `limit` bytes, that are whole objects.
static int64_t good_bytes(const char *path, int64_t limit) {
    dt_lines lines;
    int64_t end = 0;
    size_t n;
    dt_lines_open(&lines, path, 0);
    for (char *line; (line = dt_lines_next(&lines, &n)) && lines.at <= limit; end = lines.at) {
        json_t *object = json_loadb(line, n, 0, NULL);
        json_decref(object);
        if (!object) break;
    }
    dt_lines_close(&lines);
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
    s->o = *o;
    *state = s;
    return st;
}

static void sink_jsonl_put_step(dt_json *j, const dt_step_record *r, const dt_step_stats *stats) {
    dt_json_real(j, "epoch", r->epoch);
    dt_json_int(j, "samples", r->samples);
    dt_json_real(j, "loss", r->loss);
    dt_json_real(j, "lr", r->lr);
    dt_json_real(j, "grad_norm", r->grad_norm);
    if (r->skipped) dt_json_bool(j, "skipped", true);
    if (r->loss_scale > 0) dt_json_real(j, "loss_scale", r->loss_scale);
    dt_json_real(j, "samples_per_s", stats->samples_per_s);
    dt_json_begin_object(j, "seconds");
    dt_json_seconds(j, "step", r->step_s);
    dt_json_seconds(j, "data", r->data_s);
    dt_json_seconds(j, "compute", r->compute_s);
    dt_json_seconds(j, "comm", r->comm_s);
    dt_json_seconds(j, "other", r->other_s);
    if (r->idle_s > 0) dt_json_seconds(j, "idle", r->idle_s);
    dt_json_end_object(j);
    dt_json_int(j, "rss", (int64_t)stats->rss_bytes);
}

static void sink_jsonl_put_eval(dt_json *j, const dt_eval_record *r) {
    for (int i = 0; i < r->n_values; i++) dt_json_real(j, r->values[i].name, r->values[i].value);
    if (r->extra_json && r->extra_json[0]) dt_json_raw(j, NULL, r->extra_json); // members
}

static void put_slow_rank(dt_json *j, const dt_slow_rank_record *r) {
    dt_json_int(j, "rank", r->rank);
    dt_json_string(j, "host", r->host);
    dt_json_string(j, "phase", r->phase);
    dt_json_real(j, "times", r->times);
}

// The words that started this process.
static void put_command(dt_json *j) {
    char *text = NULL;
    size_t n = 0;
    if (dt_io_read_file(&text, &n, "/proc/self/cmdline", 1 << 16, DT_E_INTERNAL) != DT_OK) dt_error_clear();
    for (size_t i = 0; i + 1 < n; i++)
        if (!text[i]) text[i] = ' ';
    if (text) dt_json_string(j, "command", text);
    free(text);
}

static void put_start(dt_json *j, const dt_metrics_opts *o) {
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    dt_json_string(j, "version", o->version ? o->version : "");
    dt_json_int(j, "world_size", o->world_size);
    dt_json_int(j, "total_steps", o->total_steps);
    dt_json_int(j, "steps_per_epoch", o->steps_per_epoch);
    dt_json_begin_object(j, "samples");
    for (int split = DT_SPLIT_TRAIN; split <= DT_SPLIT_TEST; split++)
        dt_json_int(j, dt_split_name(split), o->n_samples[split]);
    dt_json_end_object(j);
    if (o->chosen_by) dt_json_string(j, "chosen_by", o->chosen_by);
    if (o->chosen_by) dt_json_bool(j, "lower_is_better", o->lower_is_better);
    dt_json_string(j, "host", host);
    if (o->machine) dt_json_string(j, "machine", o->machine);
    if (o->data) dt_json_string(j, "data", o->data);
    put_command(j);
}

static void sink_jsonl_put_ranks(dt_json *j, const dt_ranks_record *r) {
    const struct {
        const char *name;
        const double *of;
    } members[] = {{"data_s", r->data_s}, {"compute_s", r->compute_s}, {"rss_bytes", r->rss_bytes}};
    dt_json_real(j, "imbalance", r->imbalance);
    dt_json_int(j, "slowest", r->slowest);
    for (int k = 0; k < 3; k++) {
        dt_json_begin_array(j, members[k].name);
        for (int i = 0; i < r->n; i++) dt_json_seconds(j, NULL, members[k].of[i]);
        dt_json_end_array(j);
    }
}

static void sink_jsonl_take(void *state, const dt_record *r) {
    static const char *const kinds[] = {DT_RECORD_WORDS(DT_WORD_QUOTED)};
    jsonl *s = state;
    dt_json *j = &s->line;
    if (r->kind == DT_RECORD_activity) return; // begins and ends too often
    dt_json_reset(j);
    dt_json_begin_object(j, NULL);
    dt_json_string(j, "kind", kinds[r->kind]);
    if (r->kind == DT_RECORD_eval) dt_json_string(j, "split", r->of.eval.split);
    // a line with a step says that it was done
    dt_json_int(j, r->kind == DT_RECORD_start ? "from_step" : "step", r->step);
    switch (r->kind) {
    case DT_RECORD_start:
        dt_json_int(j, "schema", DT_RUN_SCHEMA);
        put_start(j, &s->o);
        dt_goodput_write(&r->of.goodput, j);
        break;
    case DT_RECORD_step:
        sink_jsonl_put_step(j, &r->of.step.r, &r->of.step.s);
        break;
    case DT_RECORD_eval:
        sink_jsonl_put_eval(j, &r->of.eval);
        break;
    case DT_RECORD_slow_rank:
        put_slow_rank(j, &r->of.slow_rank);
        break;
    case DT_RECORD_ranks:
        sink_jsonl_put_ranks(j, &r->of.ranks);
        break;
    case DT_RECORD_activity:
        break;
    case DT_RECORD_checkpoint:
        dt_json_real(j, "save_s", r->of.checkpoint.seconds);
        dt_json_bool(j, "saved", r->of.checkpoint.saved);
        break;
    case DT_RECORD_goodput:
        dt_goodput_write(&r->of.goodput, j);
        break;
    case DT_RECORD_verdict:
        dt_json_string(j, "text", r->of.verdict);
        break;
    case DT_RECORD_end:
        dt_json_int(j, "status", r->of.end.status);
        if (r->of.end.status != DT_OK) dt_json_string(j, "message", r->of.end.message);
        break;
    }
    dt_json_real(j, "time", rint(1e3 * r->wall_s) / 1e3);
    dt_json_end_object(j);
    dt_json_newline(j);
    dt_metrics_file_put(&s->file, j->data, j->n_bytes);
}

static int64_t sink_jsonl_flush(void *state) {
    jsonl *s = state;
    dt_metrics_file_flush(&s->file);
    return s->file.n_bytes;
}

static uint64_t sink_jsonl_dropped(void *state) {
    return ((jsonl *)state)->file.n_dropped;
}

static void close_jsonl(void *state) {
    jsonl *s = state;
    dt_metrics_file_close(&s->file);
    dt_json_fini(&s->line);
    free(s);
}

const dt_metrics_sink dt_sink_jsonl = {
    .queued = true,
    .open = open_jsonl,
    .take = sink_jsonl_take,
    .flush = sink_jsonl_flush,
    .dropped = sink_jsonl_dropped,
    .close = close_jsonl,
};
