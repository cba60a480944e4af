// metrics_internal.h: what a sink fills in, and the file writer that sinks share. Not for others.
#ifndef DT_METRICS_METRICS_INTERNAL_H
#define DT_METRICS_METRICS_INTERNAL_H

#include "metrics.h"

#include <stddef.h>

// What metrics.c derives from the records, for all sinks.
typedef struct dt_step_stats {
    double samples_per_s;                         // of this step
    double smooth_samples_per_s;                  // exponential mean over about 50 steps
    double data_share, compute_share, comm_share; // of the step, smooth
    double eta_s;                                 // until the last step
    uint64_t rss_bytes;                           // refreshed twice a second
    bool epoch_ends;
} dt_step_stats;

typedef struct dt_eval_record {
    const char *split;
    int64_t step;
    const dt_metric_value *values;
    int n_values;
    const char *extra_json; // may be NULL
} dt_eval_record;

typedef struct dt_slow_rank_record {
    int64_t step;
    int rank;
    const char *host, *phase;
    double times;
} dt_slow_rank_record;

// A sink is a line of config/sinks.def and a file sink_<id>.c that defines dt_sink_<id>. Members may be
// NULL except open and close.
typedef struct dt_metrics_sink {
    dt_status (*open)(void **state, const dt_metrics_opts *o);
    void (*step)(void *state, const dt_step_record *r, const dt_step_stats *s);
    void (*eval)(void *state, const dt_eval_record *r);
    void (*slow_rank)(void *state, const dt_slow_rank_record *r);
    void (*phase)(void *state, const char *what);
    // To the file; its size if a resumed run must cut it there (opts.truncate_to), else 0.
    int64_t (*flush)(void *state);
    uint64_t (*dropped)(void *state);              // records lost to a failing disk
    void (*end)(void *state, const dt_run_end *r); // the last that it hears before close
    void (*close)(void *state);
} dt_metrics_sink;

#define WORD(id, ...) extern const dt_metrics_sink dt_sink_##id;
#include "config/sinks.def"
#undef WORD

// ---- metrics_file.c: append whole records; a failing disk drops records and never an error ---------
typedef struct dt_metrics_file {
    int fd;
    char *path, *buffer;
    size_t n_buffered;
    int64_t n_bytes; // of whole records that the file holds
    int n_records;   // buffered
    uint64_t n_dropped;
    double flushed_s;
    bool failing;
} dt_metrics_file;

// Opens `path` for appending behind `keep_bytes` (0: anew). DT_E_STORAGE.
dt_status dt_metrics_file_open(dt_metrics_file *f, const char *path, int64_t keep_bytes);
void dt_metrics_file_put(dt_metrics_file *f, const void *record, size_t n_bytes);
void dt_metrics_file_flush(dt_metrics_file *f);
void dt_metrics_file_close(dt_metrics_file *f);

#endif
