// bottleneck.h: what holds the input pipeline back, and the setting that helps most.
//
// The trainer (from its live counters) and `dtrain data bench` (which runs the pipeline alone) say the
// same, as both come here with two readings of a source's counters. The model is a line of stages with
// threads: workers read, decode and augment a sample; readers may fetch bytes for them.
//   - Workers that had no free slot (blocked_s): training is slower than the pipeline. Its capacity is
//     rate / (1 - blocked share), and nothing about data needs mending.
//   - Workers that waited for bytes (starved_s, or reads that block): the disk, or too few reads in flight.
//   - Otherwise workers compute: more of them while cores are free, else the costliest stage.
// Predicted rates come from the same counters: time a sample costs in each stage, divided by threads.
#ifndef DT_TRAIN_BOTTLENECK_H
#define DT_TRAIN_BOTTLENECK_H

#include "batch/batch_source.h"

typedef enum dt_limit {
    DT_LIMIT_NONE,     // nothing was done between the readings
    DT_LIMIT_TRAINING, // the pipeline waits for whoever takes its batches
    DT_LIMIT_READ,     // storage: reads block
    DT_LIMIT_FILES,    // opening and reading many small files
    DT_LIMIT_WORKERS,  // fewer threads than cores
    DT_LIMIT_DECODE,
    DT_LIMIT_AUGMENT
} dt_limit;

typedef struct dt_bottleneck {
    dt_limit limit;
    const char *bound;     // "I/O bound", "CPU bound", "compute bound"
    double rate, capacity; // samples/s between the readings; what the pipeline could give
    double predicted;      // samples/s of the pipeline after the change; 0: none is named
    char what[192];        // one sentence
    char advice[192];      // what to do, or ""
    char change[96];       // "data.workers=4", or ""
} dt_bottleneck;

void dt_bottleneck_find(dt_bottleneck *out, const dt_source_stats *before,
                        const dt_source_stats *after, const dt_pipeline_facts *facts);

// ---- tuning while it runs --------------------------------------------------------------------------
// Hill climbing on workers, readers and slots: while get() has to wait, change what the bottleneck names and
// measure; what made it 3 % faster is taken back for a window and must be faster than that one, too, as other load
// on the machine comes and goes. The rest is taken back for good. Never changes what is in a batch.
typedef struct dt_tuner {
    dt_batch_source *source;
    dt_pipeline_facts facts;
    dt_source_stats at;          // beginning of the window
    dt_source_tuning tried, old; // what the window tries; what was before
    double old_rate, tried_rate; // tried: 0 while it is being measured
    bool settled;                // the window began a moment after the last change
    int knob, n_misses[3];       // being tried, or -1; in a row
    int n_changes;               // that were kept
} dt_tuner;
void dt_tuner_init(dt_tuner *t, dt_batch_source *s, const dt_pipeline_facts *facts);
// Call it often (once a step): looks at the clock, and every half second at the counters.
void dt_tuner_tick(dt_tuner *t);

#endif
