// metrics_file.c: metrics.jsonl: the file, the queue before it, the sink.

#include "metrics_internal.h"

#include "base/core.h"
#include "base/formats.h"
#include "base/io.h"
#include "base/json.h"
#include "base/log.h"
#include "base/os.h"
#include "base/text.h"
#include "base/thread.h"
#include "config/words.h"
#include "observe/run_log.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- metrics file -------------------------------------------------------------------------------------------------

// An append-only file of whole records that may lose records on a failing disk, and nothing
// else.
//
// Records gather in a buffer until the sink's queue is empty. When a write fails, the
// file is cut back to its last whole record, the buffered ones are dropped and counted, one line says so, and the next
// flush tries again: a disk that was full for a while leaves a gap, never half a record.

enum { BUFFER_BYTES = 64 << 10 }; // bytes

dt_status dt_metrics_file_open(dt_metrics_file *f, const char *path, int64_t keep_bytes) {
    struct stat info;
    *f = (dt_metrics_file){.fd = -1, .path = dt_xstrdup(path)};
    DT_TRY(dt_io_open_append(&f->fd, path));        // created where missing
    if (fstat(f->fd, &info) != 0) info.st_size = 0; // unknown: nothing is cut
    // lines behind the checkpoint are written again
    if (info.st_size > keep_bytes) DT_TRY(dt_io_truncate(path, (off_t)keep_bytes));
    f->n_bytes = info.st_size < keep_bytes ? info.st_size : keep_bytes;
    f->buffer = dt_xcalloc(1, BUFFER_BYTES);
    return DT_OK;
}

static void metrics_file_drop(dt_metrics_file *f, int n_records) {
    f->n_dropped += (uint64_t)n_records;
    // once, until a write succeeds
    if (!f->failing) dt_warn("metrics are lost, training continues: %s", dt_error_message());
    f->failing = true;
    // half a record may be there; if cutting fails as well, the next flush tries again
    (void)dt_io_truncate(f->path, (off_t)f->n_bytes);
}

static void write_or_drop(dt_metrics_file *f, const void *data, size_t n_bytes, int n_records) {
    // appends need the file at f->n_bytes: behind half a record all lines would be damaged
    struct stat info;
    if (f->failing && (fstat(f->fd, &info) != 0 || info.st_size != f->n_bytes) &&
        dt_io_truncate(f->path, (off_t)f->n_bytes) != DT_OK) {
        f->n_dropped += (uint64_t)n_records; // still half a record at the end
        return;
    }
    if (dt_io_write(f->fd, f->path, data, n_bytes) != DT_OK) {
        metrics_file_drop(f, n_records);
        return;
    }
    f->n_bytes += (int64_t)n_bytes; // whole records only
    if (f->failing) dt_info("%s: writing again after %" PRIu64 " lost records", f->path, f->n_dropped);
    f->failing = false;
}

// Losing records is no failure of the caller, whose message stays.
// message of the error that is being handled by the caller
static void write_out(dt_metrics_file *f, const void *data, size_t n_bytes, int n_records) {
    const dt_error_kept kept = dt_error_keep();
    write_or_drop(f, data, n_bytes, n_records);
    dt_error_restore(&kept);
}

void dt_metrics_file_flush(dt_metrics_file *f) {
    if (f->n_buffered) write_out(f, f->buffer, f->n_buffered, f->n_records);
    f->n_buffered = 0;
    f->n_records = 0;
}

void dt_metrics_file_put(dt_metrics_file *f, const void *record, size_t n_bytes) {
    if (f->n_buffered + n_bytes > BUFFER_BYTES) dt_metrics_file_flush(f); // in order: buffered records go first
    if (n_bytes > BUFFER_BYTES) {                                         // a large confusion matrix
        write_out(f, record, n_bytes, 1);
        return;
    }
    memcpy(f->buffer + f->n_buffered, record, n_bytes); // copied: the caller uses its line again
    f->n_buffered += n_bytes;
    f->n_records++;
}

void dt_metrics_file_close(dt_metrics_file *f) {
    if (f->buffer) dt_metrics_file_flush(f);
    // errors of delayed writes (NFS, quotas) show here
    if (f->fd >= 0 && dt_io_close(f->fd, f->path) != DT_OK) dt_warn("%s", dt_error_message());
    free(f->buffer);
    free(f->path);
    *f = (dt_metrics_file){.fd = -1};
}

// ---- metrics queue ------------------------------------------------------------------------------------------------

// A ring of records, and a thread that hands them to a sink.
//
// Waking a thread costs a step more than its record does, so a step only puts the record there. The thread looks five
// times a second, and is woken when the ring is half full. A full ring drops the record that comes.

enum { N_SLOTS = 4096 }; // records, some MiB
#define LOOK_S 0.2       // seconds

struct dt_metrics_queue {
    const dt_metrics_sink *sink;
    void *state;
    pthread_t thread;             // of the sink: takes, flushes, closes
    pthread_mutex_t lock;         // protects all below
    pthread_cond_t wake, flushed; // to the thread; from the thread
    int first, n;                 // a ring: n slots from first on
    uint64_t n_dropped;
    bool flush, stop; // set by others, read by the thread
    int64_t n_bytes;  // of the last flush
    dt_metrics_line *slots;
    void **owned; // of each slot: heap, or NULL
};

// What a record points to, on the heap in one block; NULL: it points to nothing.
// records come from the stack of the caller: what they point to ends with the call
static void *own(dt_metrics_line *r) {
    if (r->kind == DT_LINE_ranks) {
        const size_t n = (size_t)r->of.ranks.n;
        double *copy = dt_xcalloc(n, DT_N_RANK * sizeof *copy);
        r->of.ranks.values = memcpy(copy, r->of.ranks.values, DT_N_RANK * n * sizeof *copy);
        return copy;
    }
    const char *texts[2] = {0}; // in the order of places
    const char **places[2] = {0};
    const dt_metric_value *values = NULL;
    int n = 0;
    // these have no pointers
    switch (r->kind) {
    case DT_LINE_start:
    case DT_LINE_step:
    case DT_LINE_ranks:
    case DT_LINE_activity:
    case DT_LINE_checkpoint:
    case DT_LINE_goodput:
        return NULL;
    case DT_LINE_slow_rank:
        places[0] = &r->of.slow_rank.host;
        places[1] = &r->of.slow_rank.phase;
        break;
    case DT_LINE_verdict:
        places[0] = &r->of.verdict;
        break;
    case DT_LINE_end:
        places[0] = &r->of.end.message;
        break;
    case DT_LINE_eval:
        values = r->of.eval.values;
        n = r->of.eval.n_values;
        places[0] = &r->of.eval.split;
        places[1] = &r->of.eval.extra_json;
        break;
    }
    size_t n_bytes = (size_t)n * sizeof *values;                       // values first: they need the alignment
    for (int i = 0; i < n; i++) n_bytes += strlen(values[i].name) + 1; // + 1: with the 0
    for (int i = 0; i < 2 && places[i]; i++) {
        texts[i] = *places[i];
        n_bytes += texts[i] ? strlen(texts[i]) + 1 : 0;
    }
    char *block = dt_xcalloc(n_bytes + 1, 1), *at = block + (size_t)n * sizeof *values; // + 1: none of 0 bytes
    dt_metric_value *copies = (dt_metric_value *)block;
    // names behind the values
    for (int i = 0; i < n; i++) {
        copies[i] = (dt_metric_value){at, values[i].value};
        at = stpcpy(at, values[i].name) + 1;
    }
    if (values) r->of.eval.values = copies;
    for (int i = 0; i < 2 && places[i]; i++) {
        if (!texts[i]) continue;
        *places[i] = at;
        at = stpcpy(at, texts[i]) + 1;
    }
    return block;
}

static void *hand_on(void *arg) {
    dt_metrics_queue *q = arg;
    dt_thread_name("metrics");
    pthread_mutex_lock(&q->lock);
    for (;;) {
        bool flush = q->n > 0; // records were taken: their sink writes them out
        while (q->n > 0) {
            const dt_metrics_line r = q->slots[q->first]; // copies: the slot may be used again
            void *owned = q->owned[q->first];
            q->first = (q->first + 1) % N_SLOTS;
            q->n--;
            pthread_mutex_unlock(&q->lock); // sinks may wait for a disk or a network
            q->sink->take(q->state, &r);
            free(owned);
            pthread_mutex_lock(&q->lock);
        }
        q->first = 0; // the memory in use stays small
        if (q->flush || flush) {
            flush = q->flush; // somebody waits for the flush
            pthread_mutex_unlock(&q->lock);
            const int64_t n_bytes = q->sink->flush ? q->sink->flush(q->state) : 0;
            pthread_mutex_lock(&q->lock);
            if (!flush || q->n > 0) continue; // records that came meanwhile are flushed, too
            q->n_bytes = n_bytes;
            q->flush = false;
            pthread_cond_broadcast(&q->flushed); // all that wait: one flush serves them
            // stop is looked at last: all records were taken
        } else if (q->stop) {
            break;
        } else {
            // a step does not signal: LOOK_S bounds the delay
            dt_thread_wait(&q->wake, &q->lock, dt_clock_s() + LOOK_S);
        }
    }
    pthread_mutex_unlock(&q->lock);
    q->sink->close(q->state); // on this thread, as all calls of the sink
    return NULL;
}

dt_metrics_queue *dt_metrics_queue_create(const dt_metrics_sink *sink, void *state) {
    dt_metrics_queue *q = dt_xcalloc(1, sizeof *q);
    q->sink = sink;
    q->state = state;
    q->slots = dt_xcalloc(N_SLOTS, sizeof *q->slots);
    q->owned = dt_xcalloc(N_SLOTS, sizeof *q->owned);
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->wake, NULL);
    pthread_cond_init(&q->flushed, NULL);
    // without a thread the sink is called by the training's own
    if (pthread_create(&q->thread, NULL, hand_on, q) == 0) return q;
    free(q->slots);
    free(q->owned);
    free(q);
    return NULL;
}

void dt_metrics_queue_put(dt_metrics_queue *q, const dt_metrics_line *r) {
    dt_metrics_line copy = *r;
    void *owned = own(&copy); // outside the lock: allocates
    pthread_mutex_lock(&q->lock);
    const bool full = q->n == N_SLOTS;
    if (full) {
        q->n_dropped++; // the newest is lost: the ring keeps an unbroken past
    } else {
        const int at = (q->first + q->n) % N_SLOTS;
        q->slots[at] = copy;
        q->owned[at] = owned;
        // once, at the half: signalling costs a system call
        if (++q->n == N_SLOTS / 2) pthread_cond_signal(&q->wake);
    }
    pthread_mutex_unlock(&q->lock);
    if (full) free(owned);
}

int64_t dt_metrics_queue_flush(dt_metrics_queue *q) {
    pthread_mutex_lock(&q->lock);
    q->flush = true;
    pthread_cond_signal(&q->wake); // without waiting for LOOK_S
    while (q->flush) pthread_cond_wait(&q->flushed, &q->lock);
    const int64_t n_bytes = q->n_bytes;
    pthread_mutex_unlock(&q->lock);
    return n_bytes;
}

uint64_t dt_metrics_queue_dropped(dt_metrics_queue *q) {
    pthread_mutex_lock(&q->lock);
    const uint64_t n = q->n_dropped;
    pthread_mutex_unlock(&q->lock);
    return n;
}

void dt_metrics_queue_destroy(dt_metrics_queue *q) {
    pthread_mutex_lock(&q->lock);
    q->stop = true;
    pthread_cond_signal(&q->wake);
    pthread_mutex_unlock(&q->lock);
    pthread_join(q->thread, NULL); // the sink is closed then
    pthread_cond_destroy(&q->wake);
    pthread_cond_destroy(&q->flushed);
    pthread_mutex_destroy(&q->lock);
    free(q->slots);
    free(q->owned);
    free(q);
}

// ---- sink jsonl ---------------------------------------------------------------------------------------------------

// Metrics.jsonl, one object a line, every step, every evaluation, and the end.
//
// Members that must repeat when a run is repeated come first (kind, step, epoch, samples, loss, lr, grad_norm);
// times and memory follow: comparing two runs is comparing prefixes of lines. Numbers are the shortest text
// that reads back to the same double; NaN and infinity are null. A resumed run cuts the file to the size noted
// in its checkpoint, so repeated steps appear once. The file was flushed before that checkpoint's manifest; where it
// is damaged all the same, the lines before the damage stay.

typedef struct jsonl {
    dt_metrics_file file;
    dt_json line, given; // given: what the user set, an object
    dt_metrics_opts o;
} jsonl;

// Bytes of the lines at the beginning of the file, within the first `limit` bytes, that are whole objects. The last line
// may lack its break. DT_E_USAGE: a newer dtrain wrote some.
static dt_status find_good_bytes(const char *path, int64_t limit, int64_t *end) {
    dt_lines lines;
    dt_status st = DT_OK;
    size_t n;
    dt_lines_open(&lines, path, 0);
    // a line that crosses the limit does not count
    for (char *line; st == DT_OK && (line = dt_lines_next(&lines, &n)) && lines.at <= limit; *end = lines.at) {
        json_t *object = json_loadb(line, n, 0, NULL);
        if (!object) break; // damaged: nothing behind it is trusted
        st = dt_run_log_check_record(path, object);
        json_decref(object);
    }
    dt_lines_close(&lines);
    return st;
}

static dt_status find_bytes_to_keep(const char *path, int64_t truncate_to, int64_t *keep) {
    *keep = 0;
    if (truncate_to <= 0) return DT_OK;               // a new run, or none of it was in the checkpoint
    DT_TRY(find_good_bytes(path, truncate_to, keep)); // usually all
    if (*keep != truncate_to)
        dt_warn("%s: only the first %" PRId64 " of the %" PRId64
                " bytes that the checkpoint knows are whole lines: later metrics are missing",
                path, *keep, truncate_to);
    return DT_OK;
}

static void put_given(void *j, const char *path, const char *value, const char *usual, bool is_default) {
    if (!is_default) dt_json_string(j, path, value);
}

static dt_status open_jsonl(void **state, const dt_metrics_opts *o) {
    jsonl *s = dt_xcalloc(1, sizeof *s);
    char *path = dt_xprintf("%s/metrics.jsonl", o->run_dir);
    int64_t keep;
    s->file.fd = -1;
    dt_status st = find_bytes_to_keep(path, o->truncate_to, &keep);
    if (st == DT_OK) st = dt_metrics_file_open(&s->file, path, keep);
    free(path);
    dt_json_init(&s->line); // one buffer for all lines
    dt_json_init(&s->given);
    dt_json_begin_object(&s->given, NULL);
    if (o->given) dt_config_each(o->given, put_given, &s->given);
    dt_json_end_object(&s->given);
    s->o = *o;
    *state = s;
    return st;
}

#define QUOTED(id)     #id,
#define GPU_QUOTED(id) "gpu_" #id,
static void sink_jsonl_put_step(dt_json *j, const dt_step_line *r, const dt_step_stats *stats) {
    static const char *const gpu_names[] = {DT_GPU_NUMBERS(QUOTED)};
    dt_json_real(j, "epoch", r->epoch);
    dt_json_int(j, "samples", r->samples);
    dt_json_real(j, "loss", r->loss);
    dt_json_real(j, "lr", r->lr);
    dt_json_real(j, "grad_norm", r->grad_norm);
    if (r->skipped) dt_json_bool(j, "skipped", true); // a member that is there only when true
    if (r->loss_scale > 0) dt_json_real(j, "loss_scale", r->loss_scale);
    dt_json_real(j, "samples_per_s", stats->samples_per_s);
    dt_json_begin_object(j, "seconds");
    dt_json_seconds(j, "step", r->step_s);
    dt_json_seconds(j, "data", r->data_s);
    dt_json_seconds(j, "compute", r->compute_s);
    dt_json_seconds(j, "comm", r->comm_s);
    dt_json_seconds(j, "other", r->other_s);
    if (r->idle_s > 0) dt_json_seconds(j, "idle", r->idle_s);
    if (r->forward_s > 0) {
        dt_json_seconds(j, "forward", r->forward_s);
        dt_json_seconds(j, "backward", r->backward_s);
        dt_json_seconds(j, "optimizer", r->optimizer_s);
    }
    dt_json_end_object(j);
    dt_json_int(j, "rss", (int64_t)stats->rss_bytes);
    if (r->queue_slots > 0) {
        dt_json_int(j, "queue", r->queue);
        dt_json_int(j, "queue_slots", r->queue_slots);
    }
    if (!stats->has_gpu) return;
    dt_json_begin_object(j, "gpu");
    for (int k = 0; k < DT_N_GPU; k++) dt_json_real(j, gpu_names[k], stats->gpu[k]);
    dt_json_end_object(j);
}

static void sink_jsonl_put_eval(dt_json *j, const dt_eval_line *r) {
    for (int i = 0; i < r->n_values; i++) dt_json_real(j, r->values[i].name, r->values[i].value);
    if (r->extra_json && r->extra_json[0]) dt_json_raw(j, NULL, r->extra_json); // members
}

static void put_slow_rank(dt_json *j, const dt_slow_rank_line *r) {
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

static void put_start(dt_json *j, const dt_metrics_opts *o, double wall_s) {
    char host[256] = "", cpu[128];
    dt_memory memory;
    gethostname(host, sizeof host - 1);
    dt_cpu_name(cpu, sizeof cpu);
    dt_memory_read(&memory);
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
    dt_json_string(j, "cpu", cpu);
    dt_json_int(j, "cores", dt_usable_cores());
    dt_json_int(j, "memory_bytes", (int64_t)memory.total_bytes);
    if (o->data) dt_json_string(j, "data", o->data);
    put_command(j);
    dt_json_seconds(j, "began", wall_s - dt_clock_process_s());
}

static void sink_jsonl_put_ranks(dt_json *j, const dt_ranks_line *r) {
    static const char *const members[] = {DT_RANK_NUMBERS(QUOTED) DT_GPU_NUMBERS(GPU_QUOTED)};
    dt_json_real(j, "imbalance", r->imbalance);
    dt_json_int(j, "slowest", r->slowest);
    for (int k = 0; k < (r->has_gpu ? DT_N_RANK : DT_RANK_GPU); k++) {
        dt_json_begin_array(j, members[k]);
        for (int i = 0; i < r->n; i++) dt_json_seconds(j, NULL, r->values[k * r->n + i]);
        dt_json_end_array(j);
    }
}

static void sink_jsonl_take(void *state, const dt_metrics_line *r) {
    static const char *const kinds[] = {DT_LINE_WORDS(DT_WORD_QUOTED)};
    jsonl *s = state;
    dt_json *j = &s->line;
    if (r->kind == DT_LINE_activity) return; // begins and ends too often
    dt_json_reset(j);
    dt_json_begin_object(j, NULL);
    dt_json_string(j, "kind", kinds[r->kind]);
    if (r->kind == DT_LINE_eval) dt_json_string(j, "split", r->of.eval.split);
    // a line with a step says that it was done
    dt_json_int(j, r->kind == DT_LINE_start ? "from_step" : "step", r->step);
    switch (r->kind) {
    case DT_LINE_start:
        dt_json_int(j, "schema", DT_FORMAT_METRICS);
        put_start(j, &s->o, r->wall_s);
        dt_json_raw(j, "given", s->given.data);
        dt_goodput_write(&r->of.goodput, j);
        break;
    case DT_LINE_step:
        sink_jsonl_put_step(j, &r->of.step.r, &r->of.step.s);
        break;
    case DT_LINE_eval:
        sink_jsonl_put_eval(j, &r->of.eval);
        break;
    case DT_LINE_slow_rank:
        put_slow_rank(j, &r->of.slow_rank);
        break;
    case DT_LINE_ranks:
        sink_jsonl_put_ranks(j, &r->of.ranks);
        break;
    case DT_LINE_activity:
        break;
    case DT_LINE_checkpoint:
        dt_json_real(j, "save_s", r->of.checkpoint.seconds);
        dt_json_bool(j, "saved", r->of.checkpoint.saved);
        break;
    case DT_LINE_goodput:
        dt_goodput_write(&r->of.goodput, j);
        break;
    case DT_LINE_verdict:
        dt_json_string(j, "text", r->of.verdict);
        break;
    case DT_LINE_end:
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
    dt_json_fini(&s->given);
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
