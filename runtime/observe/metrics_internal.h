// metrics_internal.h: what a sink fills in, and the file writer that sinks share. Not for others.
#ifndef DT_METRICS_METRICS_INTERNAL_H
#define DT_METRICS_METRICS_INTERNAL_H

#include "metrics.h"

#include "base/nvml.h"
#include "observe/goodput.h"

// What metrics.c derives from the records, for all sinks.
typedef struct dt_step_stats {
    double samples_per_s;                         // of this step
    double smooth_samples_per_s;                  // exponential mean over about 50 steps
    double data_share, compute_share, comm_share; // of the step, smooth
    double eta_s;                                 // until the last step
    uint64_t rss_bytes;                           // refreshed twice a second
    bool has_gpu;
    double gpu[DT_N_GPU]; // base/nvml.h
    bool epoch_ends;
} dt_step_stats;

typedef struct dt_eval_line {
    const char *split;
    const dt_metric_value *values;
    int n_values;
    const char *extra_json; // may be NULL
} dt_eval_line;

typedef struct dt_slow_rank_line {
    int rank;
    const char *host, *phase;
    double times;
} dt_slow_rank_line;

// What ranks say of themselves (base/rank_report.h).
#define DT_RANK_NUMBERS(N)   N(data_s) N(compute_s) N(rss_bytes)
#define DT_RANK_CONSTANT(id) DT_RANK_##id,
enum { DT_RANK_NUMBERS(DT_RANK_CONSTANT) DT_RANK_GPU, DT_N_RANK = DT_RANK_GPU + DT_N_GPU };
typedef struct dt_ranks_line {
    int n;
    bool has_gpu;         // some rank has one
    const double *values; // (DT_N_RANK, n); NaN where nothing is known
    double imbalance;     // own time of the slowest / mean of all
    int slowest;
} dt_ranks_line;

typedef struct dt_checkpoint_line {
    double seconds;
    bool saved;
} dt_checkpoint_line;

// What a sink hears. What pointers point to is borrowed until `take` returns.
// start: with the ledger as it was then. goodput: now and then, in front of a save, and at the end. verdict: what limits
// the run.
#define DT_LINE_WORDS(W)                                                                                               \
    W(LINE, start)                                                                                                     \
    W(LINE, step)                                                                                                      \
    W(LINE, eval)                                                                                                      \
    W(LINE, slow_rank)                                                                                                 \
    W(LINE, ranks)                                                                                                     \
    W(LINE, activity)                                                                                                  \
    W(LINE, checkpoint) W(LINE, goodput) W(LINE, verdict) W(LINE, end)
typedef enum dt_metrics_line_kind { DT_LINE_WORDS(DT_WORD_CONSTANT) } dt_metrics_line_kind;

typedef struct dt_metrics_line {
    dt_metrics_line_kind kind;
    int64_t step; // done so far
    double wall_s;
    union {
        struct {
            dt_step_line r;
            dt_step_stats s;
        } step;
        dt_eval_line eval;
        dt_slow_rank_line slow_rank;
        dt_ranks_line ranks;
        dt_activity activity;
        dt_checkpoint_line checkpoint;
        dt_goodput goodput;
        const char *verdict;
        dt_run_end end;
    } of;
} dt_metrics_line;

// A sink is a line of config/sinks.def and a file sink_<id>.c that defines dt_sink_<id>. flush and dropped may be NULL.
typedef struct dt_metrics_sink {
    bool queued; // take, flush and close are called by a thread of its own
    dt_status (*open)(void **state, const dt_metrics_opts *o);
    void (*take)(void *state, const dt_metrics_line *r);
    // Writes buffered records to the file; also called a few times a second. Returns the file's size if a resumed run must
    // cut it there (opts.truncate_to), else 0.
    int64_t (*flush)(void *state);
    uint64_t (*dropped)(void *state); // records lost to a failing disk
    void (*close)(void *state);
} dt_metrics_sink;

#define WORD(id, ...) extern const dt_metrics_sink dt_sink_##id;
#include "config/sinks.def"
#undef WORD

// ---- metrics_file.c: a sink's queue and thread ----------------------------------------------------
typedef struct dt_metrics_queue dt_metrics_queue;
// Takes an open sink; NULL: its thread could not be started.
dt_metrics_queue *dt_metrics_queue_create(const dt_metrics_sink *sink, void *state);
// Copies the record with all that it points to, or drops it when the queue is full. Any thread. A step's record allocates
// nothing.
void dt_metrics_queue_put(dt_metrics_queue *q, const dt_metrics_line *r);
int64_t dt_metrics_queue_flush(dt_metrics_queue *q); // waits until the sink has taken and flushed all
uint64_t dt_metrics_queue_dropped(dt_metrics_queue *q);
void dt_metrics_queue_destroy(dt_metrics_queue *q); // the sink takes the rest and is closed

// ---- metrics_file.c: append whole records; a failing disk drops records and never an error ---------
typedef struct dt_metrics_file {
    int fd;
    char *path, *buffer;
    size_t n_buffered;
    int64_t n_bytes; // of whole records that the file holds
    int n_records;   // buffered
    uint64_t n_dropped;
    bool failing;
} dt_metrics_file;

// Opens `path` for appending behind `keep_bytes` (0: anew). DT_E_STORAGE.
dt_status dt_metrics_file_open(dt_metrics_file *f, const char *path, int64_t keep_bytes);
void dt_metrics_file_put(dt_metrics_file *f, const void *record, size_t n_bytes);
void dt_metrics_file_flush(dt_metrics_file *f);
void dt_metrics_file_close(dt_metrics_file *f);

#endif
