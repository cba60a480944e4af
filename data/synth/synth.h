// synth.h: invented data sets, as raw files.
#ifndef DT_DATA_SYNTH_H
#define DT_DATA_SYNTH_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// dtrain synth KIND OUT. DT_E_USAGE / DT_E_STORAGE.
typedef struct dt_synth_opts {
    const char *kind, *out;
    int n,
        impressions; // items (biometric: subjects, and images of each kind a subject); 0 = default
    uint64_t seed;
    bool progress;
} dt_synth_opts;
dt_status dt_data_synth(const dt_synth_opts *o);

// A kind of data. Any thread makes an item; what it writes depends on the job (synth_kinds.h) and the item only.
struct dt_synth_job;
typedef struct dt_synth_kind {
    const char *name, *help, *unit;
    uint32_t default_n;
    bool of_people; // items are subjects, of each of whom there are n_impressions
    dt_status (*make)(const struct dt_synth_job *j, uint32_t item);
    const char *table, *header; // a CSV in OUT, whose first line is the header; NULL: none
    void (*row)(const struct dt_synth_job *j, uint32_t item, char *text, size_t cap); // its line
} dt_synth_kind;
// What can be made: i = 0, 1, … until NULL.
const dt_synth_kind *dt_data_synth_kind(int i);

#endif
