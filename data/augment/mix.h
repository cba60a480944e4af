// mix.h: mixup (Zhang et al., "mixup: beyond empirical risk minimization", ICLR 2018) and CutMix (Yun et al.,
// ICCV 2019) of a micro-batch of training samples. What is mixed, how and by how much is a function of (seed,
// step, slot in the global batch), never of thread or rank. Pixels are not touched here: images get a plan that
// the network carries out (batch/mix_plan.h).
#ifndef DT_DATA_MIX_H
#define DT_DATA_MIX_H

#include "batch/batch_source.h"
#include "config/config.h"

typedef struct dt_mix dt_mix; // immutable: shared by workers

// Whether the config asks for it. Then class fields of training batches hold shares of the classes, f32 (n,
// n_classes); dt_field_info.soft says so.
bool dt_mix_wanted(const dt_config *c);
// Whether this image field is mixed then; dt_field_info.mixed says so.
bool dt_mix_takes(const dt_config *c, const char *field);
// *out NULL: nothing to mix. Fields are borrowed. DT_E_USAGE naming the key.
dt_status dt_mix_create(dt_mix **out, const dt_config *c, const dt_field_info *fields, int n_fields);
void dt_mix_destroy(dt_mix *m);

// Arrays by field; entries that a field does not need are not read.
typedef struct dt_mix_batch {
    int64_t step, first; // slot of sample 0 in the global batch
    int n;
    const void *const *in;   // classes: labels i32 (n); numbers: f32 (n,...)
    void *const *out;        // classes: their shares f32 (n, n_classes); numbers, mixed; never `in`
    dt_mix_row *const *plan; // images that are mixed: (n)
} dt_mix_batch;

void dt_mix_run(const dt_mix *m, const dt_mix_batch *b);

#endif
