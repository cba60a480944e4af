// step_internal.h: what step.c (compute, reduce), commit.c and step_device.c share.
#ifndef DT_TRAIN_STEP_INTERNAL_H
#define DT_TRAIN_STEP_INTERNAL_H

#include "base/thread.h"
#include "comm/bucket.h"
#include "train/batch_inputs.h"
#include "train/step.h"

enum { MESSAGE_BYTES = 1024 };

typedef struct step_lane {
    struct dt_stepper *owner;
    int index;
    dt_exec *exec;
    dt_batch_inputs inputs;
    double wait_s;
    dt_status status; // of this step, with its message
    char message[MESSAGE_BYTES];
} step_lane;

struct dt_stepper {
    dt_stepper_opts o;
    dt_backend *backend;
    dt_batch_source *source;
    dt_team *team;
    dt_buckets *buckets; // NULL: elastic, or one lane on one rank
    uint16_t *low;       // device memory through which gradients travel as bf16; NULL: they do not
    step_lane *lanes;
    float **lane_slabs;                           // resume, off: by lane
    int64_t loss_at, weight_at, stop_at, drop_at; // elements of the slab
    double *partial;                              // sum of squares by chunk
    int64_t n_chunks;
    dt_segment *segments;
    dt_commit_rule *rules;
    int n_rules;
    struct device_step *device; // NULL: the CPU
    // the step in flight
    int64_t step;
    bool want_stop;
    dt_status poll_status;
    dt_optimizer_args optimizer;
    float *add_to;
    const float *add_from;
};

size_t dt_step_low_bytes(const struct dt_stepper *s); // of `low`

// step_device.c: the same step, queued on a device's streams. create is called last.
dt_status device_step_create(struct dt_stepper *s);
void device_step_destroy(struct device_step *v);
dt_status device_step_set_source(struct device_step *v, dt_batch_source *source);
dt_status device_step_run(struct device_step *v, int64_t step, double lr, bool want_stop,
                          dt_step_result *out);
dt_status device_step_drain(struct device_step *v, dt_step_result *out);
dt_status device_step_set_scaler(struct device_step *v, const dt_scaler *scaler);
dt_status device_step_find_bad(struct device_step *v, int64_t step, int *leaf, char *name,
                               size_t cap);

// commit.c
dt_status commit_init(struct dt_stepper *s);
void commit_fini(struct dt_stepper *s);
void commit_run(struct dt_stepper *s, double lr, dt_step_result *out);
// slab `to` += slab `from`, divided over the team.
void commit_add_slabs(struct dt_stepper *s, float *to, const float *from);
// The share [begin, end) of n elements, in whole chunks, of worker i of n_workers.
void commit_share(int64_t n, int worker, int n_workers, int64_t *begin, int64_t *end);

#endif
