// stage_times.h: what a sample costs, stage by stage.
#ifndef DT_DATA_STAGE_TIMES_H
#define DT_DATA_STAGE_TIMES_H

#include "batch/batch_source.h"

// How long one thread takes for a sample of the training split up to and including a stage: reading its
// members, decoding them, augmenting them. Runs for about `seconds` a stage, in training order. Records
// that cannot be read are left out. DT_E_DATA when none can.
typedef struct dt_stage_times {
    double read_s, decode_s, augment_s; // a sample; each includes the stages before it
    double bytes;                       // read for a sample
    double sample_bytes;                // that a sample takes in a batch
} dt_stage_times;
dt_status dt_data_time_stages(const dt_dataset *d, double seconds, dt_stage_times *out);

#endif
