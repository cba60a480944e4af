// sink_tensorboard.c: TensorBoard's event files, written without TensorFlow or a protobuf library.
//
// A file is a sequence of records: u64 length, masked CRC32C of the length, an Event message, masked CRC32C of
// it. Of Event we write wall_time (1, double), step (2, varint), file_version (3), summary (5) and session_log
// (7); of Summary repeated value (1) = {tag (1), simple_value (2, float)}. The first event names the version,
// "brain.Event:2". Each start of a run opens its own file and begins it with a session_log START at its first step:
// TensorBoard then drops the steps that are run again, also those of a training that began anew.
// https://github.com/tensorflow/tensorboard: event.proto, summary.proto
#include "metrics_internal.h"

#include "base/core.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/os.h"
#include "base/text.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EVENT_BYTES = 4096, MAX_FILES = 1000 }; // bytes of an event; names that are tried

typedef struct tfevents {
    dt_metrics_file file;
    int every_steps;
    bool begins; // a session start is still to be written
} tfevents;

// protobuf's wire format: no lengths are known in advance, so inner messages are built apart
// A message that is being written.
typedef struct message {
    unsigned char data[EVENT_BYTES];
    size_t n;
} message;

// -- encoding --------------------------------------------------------------------------------------
static void sink_tensorboard_put_bytes(message *m, const void *data, size_t n) {
    assert(m->n + n <= sizeof m->data);
    memcpy(m->data + m->n, data, n);
    m->n += n;
}

static void put_fixed(message *m, uint64_t v, int n_bytes) {
    for (int i = 0; i < n_bytes; i++) {
        unsigned char b = (unsigned char)(v >> 8 * i); // little-endian
        sink_tensorboard_put_bytes(m, &b, 1);
    }
}

static void put_varint(message *m, uint64_t v) {
    do {
        // seven bits a byte, the low ones first; the high bit: more follow
        unsigned char b = (unsigned char)((v & 127) | (v > 127 ? 128 : 0));
        sink_tensorboard_put_bytes(m, &b, 1);
    } while (v >>= 7);
}

typedef enum wire { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 } wire; // protobuf's wire types
static void put_key(message *m, int field, wire type) {
    put_varint(m, (uint64_t)field << 3 | (uint64_t)type); // field number, then 3 bits of type
}

static void sink_tensorboard_put_string(message *m, int field, const void *data, size_t n) {
    put_key(m, field, BYTES);
    put_varint(m, n);
    sink_tensorboard_put_bytes(m, data, n);
}

static void put_double(message *m, int field, double v) {
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    put_key(m, field, FIXED64);
    put_fixed(m, bits, 8);
}

// Adds Summary.Value{tag, simple_value} as field 1 of `summary`; false: it does not fit.
static bool put_scalar(message *summary, const char *tag, double value) {
    float v = (float)value; // simple_value is a float: enough for a plot
    uint32_t bits;
    message one = {.n = 0};
    char clean[201]; // the reader refuses all of a file for one byte that is no UTF-8
    const size_t n_tag = dt_text_clean(clean, sizeof clean, tag);
    // 32: keys and lengths; 64: the event around the summary
    if (summary->n + n_tag + 32 > EVENT_BYTES - 64) return false;
    memcpy(&bits, &v, sizeof bits);
    sink_tensorboard_put_string(&one, 1, clean, n_tag);
    put_key(&one, 2, FIXED32);
    put_fixed(&one, bits, 4); // fixed32: a float
    // length-delimited: its length is known now
    sink_tensorboard_put_string(summary, 1, one.data, one.n);
    return true;
}

static uint32_t masked_crc(const void *data, size_t n) {
    uint32_t crc = dt_crc32c(0, data, n);
    return (crc >> 15 | crc << 17) + 0xa282ead8u; // TFRecord's mask: rotated right by 15 bits, plus a constant
}

// -- events ----------------------------------------------------------------------------------------
static void sink_tensorboard_begin_event(message *event, int64_t step) {
    event->n = 0;
    put_double(event, 1, dt_clock_wall_s()); // field 1, wall_time in seconds
    if (step) {                              // zero is the default
        put_key(event, 2, VARINT);
        put_varint(event, (uint64_t)step); // field 2, a varint
    }
}

static void put_event(tfevents *s, const message *event) {
    // TFRecord: length (u64), its CRC, data, their CRC
    message frame = {.n = 0};
    put_fixed(&frame, event->n, 8); // n is below EVENT_BYTES - 16: put_scalar leaves room
    put_fixed(&frame, masked_crc(frame.data, 8), 4);
    sink_tensorboard_put_bytes(&frame, event->data, event->n);
    put_fixed(&frame, masked_crc(event->data, event->n), 4);
    dt_metrics_file_put(&s->file, frame.data, frame.n); // whole records: a failing disk leaves no half event
}

static void put_summary(tfevents *s, int64_t step, const message *summary) {
    message event;
    sink_tensorboard_begin_event(&event, step);
    sink_tensorboard_put_string(&event, 5, summary->data, summary->n); // summary
    put_event(s, &event);
}

static void start_session(tfevents *s, int64_t step) {
    static const unsigned char start[] = {1 << 3 | VARINT, 1}; // SessionLog{status: START}
    message event;
    if (!s->begins) return; // once in a file, at the first step that is written
    s->begins = false;
    sink_tensorboard_begin_event(&event, step);
    sink_tensorboard_put_string(&event, 7, start, sizeof start); // session_log
    put_event(s, &event);
}

static dt_status open_tfevents(void **state, const dt_metrics_opts *o) {
    tfevents *s = dt_xcalloc(1, sizeof *s);
    char host[HOST_NAME_MAX + 1] = "localhost", *path = NULL;
    message event;
    s->every_steps = o->every_steps;
    s->begins = true;
    gethostname(host, sizeof host - 1); // - 1: ended by 0 whatever the length
    for (int i = 0; i < MAX_FILES; i++) {
        free(path);
        // TensorBoard finds files by ".tfevents."
        path = dt_xprintf("%s/events.out.tfevents.%" PRId64 ".%s.%d.%d", o->run_dir, (int64_t)dt_clock_wall_s(), host,
                          (int)getpid(), i);
        if (!dt_io_exists(path)) break; // a run that is restarted within a second, with the same PID in a container
    }
    dt_status st = dt_metrics_file_open(&s->file, path, 0); // 0: a new file, never appended to
    free(path);
    *state = s;
    if (st != DT_OK) return st;
    sink_tensorboard_begin_event(&event, 0);
    sink_tensorboard_put_string(&event, 3, "brain.Event:2", 13); // field 3; the version that TensorBoard expects
    put_event(s, &event);
    return DT_OK;
}

static void sink_tensorboard_put_step(tfevents *s, const dt_step_line *r, const dt_step_stats *stats) {
    start_session(s, r->step);
    if (r->skipped || (r->step % s->every_steps != 0 && !stats->epoch_ends)) return; // a skipped step's loss may be NaN
    message m = {.n = 0};
    put_scalar(&m, "train/loss", r->loss);
    put_scalar(&m, "train/lr", r->lr);
    put_scalar(&m, "train/grad_norm", r->grad_norm);
    put_scalar(&m, "train/epoch", r->epoch);
    put_scalar(&m, "train/samples_per_s", stats->smooth_samples_per_s); // smooth: one step is noise
    put_scalar(&m, "time/step", r->step_s);
    put_scalar(&m, "time/data", r->data_s);
    put_scalar(&m, "time/compute", r->compute_s);
    put_scalar(&m, "time/comm", r->comm_s);
    put_scalar(&m, "time/other", r->other_s);
    put_scalar(&m, "memory/rss_bytes", (double)stats->rss_bytes);
    put_summary(s, r->step, &m);
}

static void sink_tensorboard_put_eval(tfevents *s, const dt_eval_line *r, int64_t step) {
    message m = {.n = 0};
    char tag[256];
    start_session(s, step);
    for (int i = 0; i < r->n_values; i++) {
        snprintf(tag, sizeof tag, "eval/%s/%s", r->split, r->values[i].name); // folders of tags: a chart for each split
        if (put_scalar(&m, tag, r->values[i].value)) continue;
        put_summary(s, step, &m); // one event is full
        m.n = 0;                  // a second event of the same step
        put_scalar(&m, tag, r->values[i].value);
    }
    put_summary(s, step, &m);
}

static void sink_tensorboard_take(void *state, const dt_metrics_line *r) {
    if (r->kind == DT_LINE_step) sink_tensorboard_put_step(state, &r->of.step.r, &r->of.step.s);
    if (r->kind == DT_LINE_eval) sink_tensorboard_put_eval(state, &r->of.eval, r->step);
}

static int64_t sink_tensorboard_flush(void *state) {
    dt_metrics_file_flush(&((tfevents *)state)->file);
    return 0; // a resumed run opens a file of its own
}

static uint64_t sink_tensorboard_dropped(void *state) {
    return ((tfevents *)state)->file.n_dropped;
}

static void close_tfevents(void *state) {
    tfevents *s = state;
    dt_metrics_file_close(&s->file);
    free(s);
}

const dt_metrics_sink dt_sink_tensorboard = {
    .queued = true,
    .open = open_tfevents,
    .take = sink_tensorboard_take,
    .flush = sink_tensorboard_flush,
    .dropped = sink_tensorboard_dropped,
    .close = close_tfevents,
};
