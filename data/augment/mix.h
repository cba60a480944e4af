// mix.h: mixup (Zhang et al., "mixup: beyond empirical risk minimization", ICLR 2018) and CutMix (Yun et al.,
// ICCV 2019) of a micro-batch of training samples. Who is mixed with whom, how, and by how much is a
// function of (seed, step, slot in the global batch), never of thread or rank: the micro-batch is what
// the config makes it. Pixels are not touched here: images get a plan, which the network carries out
// (batch/mix_plan.h).
#ifndef DT_DATA_MIX_H
#define DT_DATA_MIX_H

#include "batch/batch_source.h"
#include "config/config.h"

typedef struct dt_mix dt_mix; // immutable: shared by workers

// Whether the config asks for it: then class fields of training batches hold shares of the classes, f32
// (n, n_classes), which dt_field_info.soft says.
bool dt_mix_wanted(const dt_config *c);
// Whether this image field is mixed then, which dt_field_info.mixed says.
bool dt_mix_takes(const dt_config *c, const char *field);
// *out NULL: nothing to mix. Fields are borrowed. DT_E_USAGE naming the key.
dt_status dt_mix_create(dt_mix **out, const dt_config *c, const dt_field_info *fields,
                        int n_fields);
void dt_mix_destroy(dt_mix *m);

// By field; what a field is not mixed by is not looked at.
typedef struct dt_mix_batch {
    int64_t step, first; // slot of sample 0 in the global batch
    int n;
    const void *const *in;   // classes: labels i32 (n); numbers: f32 (n,...)
    void *const *out;        // classes: their shares f32 (n, n_classes); numbers, mixed; never `in`
    dt_mix_row *const *plan; // images that are mixed: (n)
} dt_mix_batch;

void dt_mix_run(const dt_mix *m, const dt_mix_batch *b);

#endif
