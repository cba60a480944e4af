// bottleneck.h: what limits the input pipeline, and the setting that helps most.
//
// The answer comes from two readings of a source's counters, those of a training run or of `dtrain data bench`. Workers
// read, decode and augment samples; readers may fetch bytes for them.
//   - Workers have no free slot (blocked_s): training is the slower one, and data needs no change.
//   - Workers wait for bytes (starved_s, or reads that block): the disk is slow, or too few reads are in flight.
//   - Otherwise workers compute: more of them help while cores are free, else the costliest stage must get cheaper.
// Predicted rates come from the time that a sample costs in each stage.
#ifndef DT_TRAIN_BOTTLENECK_H
#define DT_TRAIN_BOTTLENECK_H

#include "batch/batch_source.h"

typedef enum dt_limit {
    DT_LIMIT_NONE,     // no sample was delivered between the readings
    DT_LIMIT_TRAINING, // the pipeline waits for training
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

void dt_bottleneck_find(dt_bottleneck *out, const dt_source_stats *before, const dt_source_stats *after,
                        const dt_pipeline_facts *facts);

// ---- tuning while it runs --------------------------------------------------------------------------
// Hill climbing on workers, readers and slots. While get() has to wait, the tuner changes what the bottleneck names
// and measures. A change that made it 3 % faster is undone for a while and must beat that measurement too, because
// other load on the machine comes and goes. Any other change is undone. Batches stay the same.
typedef struct dt_tuner {
    dt_batch_source *source;
    dt_pipeline_facts facts;
    dt_source_stats at;          // counters when the measurement began
    dt_source_tuning tried, old; // the setting on trial, and the one before it
    double old_rate, tried_rate; // tried_rate: 0 until it is measured
    bool settled;                // the last change has taken effect: the measurement counts
    int knob, n_misses[3];       // on trial, or -1; trials of each in a row that did not help
    int n_changes;               // that were kept
} dt_tuner;
void dt_tuner_init(dt_tuner *t, dt_batch_source *s, const dt_pipeline_facts *facts);
// Called after every step: looks at the clock, and every half second at the counters.
void dt_tuner_tick(dt_tuner *t);

#endif
