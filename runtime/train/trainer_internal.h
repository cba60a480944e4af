// trainer_internal.h: what trainer.c and saving.c share. Not for others.
#ifndef DT_TRAIN_TRAINER_INTERNAL_H
#define DT_TRAIN_TRAINER_INTERNAL_H

#include "metrics/metrics.h"
#include "train/bottleneck.h"
#include "train/schedule.h"
#include "train/session.h"
#include "train/slow_rank.h"
#include "train/timeline.h"

typedef struct trainer {
    dt_session s;
    bool *agreed; // see dt_trainer_train
    char *run_dir, *checkpoint_dir;
    char *metrics_path;  // metrics.jsonl; NULL: that sink is not wanted
    dt_ckpt *ckpt;       // rank 0
    dt_metrics *metrics; // rank 0
    dt_batch_source *source;
    dt_tuner tuner;
    dt_source_stats first; // counters after the first step, so that the start does not count
    int64_t n_steps;       // that this process has done
    dt_train_state state;
    bool save_is_open;    // rank 0: its outcome is not known yet
    bool resumed, forced; // forced: resumed although numeric keys differ
    char *resume_path;    // rank 0
    dt_schedule schedule;
    int64_t eval_every, save_every, verify_every, stop_at, saved_step;
    int n_epochs, failed_saves;
    double slowest_step_s;
    dt_slow_rank slow;
    dt_timeline timeline;
    dt_json json, results;
    dt_eval_result last; // of the validation, at step last_step; < 0: none yet
    int64_t last_step;
} trainer;

static inline bool trainer_is_root(const trainer *t) {
    return t->s.comm->rank == 0;
}

// On all ranks. Where ranks no longer hold the same weights, the run ends (run.verify_every).
dt_status trainer_verify(trainer *t);

// ---- saving.c --------------------------------------------------------------------------------------

dt_status trainer_save(trainer *t, bool best);
// Waits for the save under way, if there is one. must_hold: one that failed is an error, else a warning.
dt_status trainer_settle_save(trainer *t, bool must_hold);
// Rank 0: the best is the best checkpoint that is on disk and intact. Says so where the state knows of a later one.
void trainer_take_best(trainer *t);
// The validation split. Its result goes to the history, to the metrics, and decides which checkpoint is the best.
dt_status trainer_evaluate(trainer *t, bool *is_best);
// The first lines of the results: of the training, and of the validation with the last weights.
dt_status trainer_report(trainer *t);
// The test split; `weights` is their name in the results.
dt_status trainer_test(trainer *t, const char *weights, int64_t step);

#endif
