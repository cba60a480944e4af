// mix.h: mixup (Zhang et al., "mixup: beyond empirical risk minimization", ICLR 2018) and CutMix (Yun et al.,
// ICCV 2019) on a micro-batch of training samples. Who is mixed with whom, how, and by how much is a
// function of (seed, step, slot in the global batch), never of thread or rank: the micro-batch is what
// the config makes it.
#ifndef DT_DATA_MIX_H
#define DT_DATA_MIX_H

#include "data/record.h"

#include "config/config.h"
#include "train/batch_source.h"

typedef struct dt_mix dt_mix; // immutable: shared by workers

// Whether the config asks for it: then class fields of training batches hold shares of the classes, f32
// (n, n_classes), which dt_field_info.soft says.
bool dt_mix_wanted(const dt_config *c);
// *out NULL: nothing to mix. Fields are borrowed. DT_E_USAGE naming the key.
dt_status dt_mix_create(dt_mix **out, const dt_config *c, const dt_field_info *fields,
                        int n_fields);
void dt_mix_destroy(dt_mix *m);

typedef struct dt_mix_batch {
    int64_t step, first; // slot of sample 0 in the global batch
    int n;
    // By field. Images u8 or f32 (n,H,W,C) and numbers f32 (n,...): mixed in place. Classes: shares
    // f32 (n, n_classes), written from `label` i32 (n).
    void *const *field;
    const int32_t *const *label;
} dt_mix_batch;

// DT_E_INTERNAL: out of memory for `scratch`, which grows to one sample.
dt_status dt_mix_run(const dt_mix *m, const dt_mix_batch *b, dt_buffer *scratch);

#endif
