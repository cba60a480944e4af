// synth.h: invented data sets, as raw files.
#ifndef DT_DATA_SYNTH_H
#define DT_DATA_SYNTH_H

#include "base/status.h"

#include <stdbool.h>
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

// What can be made: i = 0, 1, … until false.
typedef struct dt_synth_kind_info {
    const char *name, *help, *unit;
    int default_n;
    bool of_people; // subjects, of each of whom there are impressions
} dt_synth_kind_info;
bool dt_data_synth_kind(int i, dt_synth_kind_info *out);

#endif
