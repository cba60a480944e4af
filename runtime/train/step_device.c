// step_device.c: a step on a device, queued whole and read one step late.
//
//   copy stream   | batch j -> inputs[j % 2] |   (waits for the computing of j - 2)
//   main stream   | step block | micro-batch j ........ reduce | commit | packing |
//   side stream                     | bucket | bucket |            (between fork and join)
//
// The host runs one micro-batch ahead: it gets a batch, queues its copy, the step block and the work, and fetches
// the next batch while the device computes. It waits in two places, by polling: before each micro-batch for the
// copy stream, because then the buffers of the next copy are free and the last batch may go back to the loader;
// and at the end of a step for the numbers that the commit before wrote to pinned memory. Neither wait empties the
// main stream. Every wait has the deadline.
//
// The numbers arrive one step late, so the device decides on them: a step that is not finite or was given up is
// not committed, and no step behind it is (dt_device_step.halted). The state is then still the one before the bad
// step when the host hears of it. With loss scaling a step that is not finite is only skipped. An update that is not
// finite, of finite gradients, arrives with the numbers of the step behind it, or with drain.
//
// A unit is a micro-batch, perhaps with reduction and commit. It is recorded at its first use and replayed
// as a graph from then on. Units differ in flat buffer, adding or overwriting, input buffer, and commit; all that
// changes from step to step is in the step block, which is copied before the unit. With device.capture: false work is
// queued call by call. Bits are the same either way, except that NCCL may add in another
// order when it is captured, because it then knows that buffers stay: so all steps must be alike, also the first
// of a resumed run. A rehearsal before the first micro-batch loads kernels and opens connections, which must not
// happen inside a capture.
//
// Several ranks: NCCL wants a captured sum to be captured on all ranks, in graphs that are launched together. So a
// unit with sums is the same unit in the same step on all ranks. Where all ranks have as many micro-batches, the
// sums overlap the last one; where not, sums and commit are a unit of their own. A rank that gives a step up still
// plays the last unit, on what its buffer holds.
//
// With train.shard a rank updates the chunks that it owns. Between phases of the commit, in the same unit, ranks add their
// sums of chunks, so that all decide alike, and behind the optimizer all get the weights, of which each then packs all
// copies. What the optimizer spoiled on one rank alone all hear with the sums of the next step, or in drain.
//
// A device divides its own work: one replica a rank.

#include "train/step.h"

#include "base/core.h"
#include "base/log.h"
#include "base/os.h"
#include "base/watch.h"
#include "run/batch_inputs.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    WORDS_RING = 4, // micro-batches whose words a copy may still read
    SPINS = 2000,   // polls before the host sleeps
    NAP_NS = 20000,
};

// What the host writes in front of a micro-batch. Pinned.
typedef struct host_words {
    dt_device_step step;
    float marks[2]; // ranks that want to stop, ranks that gave up: into the flat buffer's spare elements
} host_words;

typedef struct unit {
    int flat;                // -1: no micro-batch, only what follows
    int buffer;              // of the two input buffers: the one that the unit's kernels read
    bool accumulate, commit; // accumulate: adds to the flat buffer; commit: reduction and optimizer follow
} unit;

typedef struct recording {
    unit unit;
    void *graph; // of the device's library (a CUDA graph)
} recording;

struct device_step {
    struct dt_stepper *s;
    dt_backend *b;
    const dt_device *d;
    void *main, *copy, *side; // streams; side: NULL without other ranks
    dt_device_inputs inputs[2];
    const dt_batch *held;     // its copy may be under way
    dt_device_step *step;     // device memory
    host_words *words;        // pinned, WORDS_RING of them
    dt_step_numbers *numbers; // pinned, DT_NUMBERS_RING of them, by step
    void *commit;             // the device's state of the commit
    recording *recordings;
    int n_recordings;
    bool capturing; // a unit is under way into a graph
    bool rehearsed;
    bool sums_apart;  // a unit with sums has no micro-batch, as ranks differ in how many they have
    int64_t n_micro;  // micro-batches queued since the beginning
    int64_t n_inputs; // micro-batches queued or given up; micro-batch k reads input buffer k % 2
    int64_t newest;   // last step queued
    int n_unread;     // steps queued whose numbers nobody has read
    float last_scale; // of the numbers read last
    double wait_s;    // for data, in this step
    double idle_s;    // for the device, in this step
};

// ---- waiting ---------------------------------------------------------------------------------------

// The step's numbers are a struct that CUDA C++ reads as well, so that its fields cannot be _Atomic.
static int64_t read_counter(const int64_t *p) {
    return atomic_load_explicit((const _Atomic int64_t *)p, memory_order_acquire);
}

// Polls until *counter is `value` or, counter NULL, until the stream is empty. Watches the peers.
static dt_status poll_until(struct device_step *v, void *stream, const int64_t *counter, int64_t value) {
    dt_waited waited = {0};
    for (int i = 0;; i++) {
        if (counter && read_counter(counter) == value) return DT_OK;
        // the stream is empty: the counter has its final value, or the device has failed
        if (v->d->stream_done(v->b, stream)) {
            if (!counter || read_counter(counter) == value) return DT_OK;
            DT_TRY(v->d->synchronize(v->b, stream)); // the device's error
            return dt_fail(DT_E_INTERNAL, "the device finished step %lld without its numbers", (long long)value);
        }
        if (i < SPINS) continue; // polling first: a nap costs more than a short wait
        dt_comm *c = v->s->o.device_comm;
        if (c) DT_TRY(c->device->watch(c, dt_clock_waited_s(&waited, dt_clock_s())));
        const struct timespec nap = {.tv_nsec = NAP_NS};
        nanosleep(&nap, NULL);
    }
}

static dt_status wait_until(struct device_step *v, void *stream, const int64_t *counter, int64_t value) {
    const double begin = dt_clock_s();
    const dt_status st = poll_until(v, stream, counter, value);
    v->idle_s += dt_clock_s() - begin;
    return st;
}

// Waits until all streams are empty. The deadline ends the wait for a peer that is gone: it aborts the communicator and
// the work that waits for it, which must be over before memory is freed. The first failure counts.
static dt_status come_to_rest(struct device_step *v) {
    void *const streams[] = {v->main, v->copy, v->side}; // the side's work may not have been joined
    dt_status first = DT_OK;
    dt_error_kept why = {""};
    // each stream twice: with a deadline first, then for its error
    for (int i = 0; i < 6; i++) {
        void *stream = streams[i / 2];
        if (!stream) continue;
        // behind a deadline the device may hang although the communicator was aborted: then the watch ends the process
        if (i % 2) dt_watch_begin(NULL, "the device's end of a step");
        const dt_status st = i % 2 ? v->d->synchronize(v->b, stream) : wait_until(v, stream, NULL, 0);
        if (i % 2) dt_watch_end();
        if (st == DT_OK || first != DT_OK) continue;
        first = st;
        why = dt_error_keep();
    }
    if (first != DT_OK) dt_error_restore(&why);
    return first;
}

static void release_held(struct device_step *v) {
    if (v->held) v->s->source->release(v->s->source, v->held);
    v->held = NULL;
}

// ---- units ----------------------------------------------------------------------------------------

// Whether the unit has collectives.
static bool has_sums(const struct device_step *v, const unit *p) {
    return (p->commit && v->s->buckets) || (p->flat >= 0 && v->s->o.sync_bn && v->s->o.device_comm);
}

// What ranks exchange behind a phase of the commit (train.shard).
static dt_status queue_exchange(struct device_step *v, dt_commit_phase phase) {
    dt_params *p = v->s->o.params;
    dt_comm *c = v->s->o.device_comm;
    int64_t n;
    if (!p->sharded) return DT_OK;
    // sums of chunks between phases, then the weights behind the optimizer
    double *sums = v->d->commit_sums(v->b, v->commit, phase, &n);
    if (sums) return c->all_reduce_f64(c, sums, n);
    if (phase != DT_COMMIT_OPTIMIZE) return DT_OK;
    if (!p->own_masters) return dt_comm_all_gather_f32(c, p->master, p->n_trained);
    DT_TRY(dt_comm_all_gather_bf16(c, p->working, p->n_trained));
    dt_params_queue_dense(p, v->main);
    if (p->n_dense) DT_TRY(c->all_reduce_f32(c, p->dense, p->n_dense));
    dt_params_queue_expand(p, v->main);
    return DT_OK;
}

static dt_status queue_unit(struct device_step *v, const unit *p) {
    struct dt_stepper *s = v->s;
    dt_step_replica *l = &s->replicas[0];
    // collectives of nodes and of buckets must not mix
    const bool reduces = p->commit && s->buckets, overlaps = reduces && !s->o.sync_bn;
    // before the plan: gradients become ready while it runs
    if (reduces) dt_buckets_begin(s->buckets, s->replica_grads);
    if (p->flat >= 0) {
        dt_exec_args args = {.device_step = &v->step->block,
                             .stream = v->main,
                             .grad = s->o.params->grads[p->flat],
                             .accumulate = p->accumulate,
                             .on_grad = overlaps ? dt_step_on_grad : NULL,
                             .poll = overlaps ? dt_step_poll_buckets : NULL,
                             .ctx = l,
                             .ranks = dt_step_ranks(l)};
        dt_device_inputs_bind(&v->inputs[p->buffer], l->exec);
        dt_exec_run(l->exec, &args);
        DT_TRY(l->node_status);
    }
    for (int i = 0; reduces && !overlaps && i < s->o.graph->n_grads; i++) dt_step_on_grad(l, i);
    if (!p->commit) return DT_OK;
    double exposed_s = 0;
    if (reduces) DT_TRY(dt_buckets_finish(s->buckets, &exposed_s)); // finish also runs what could not overlap
    return dt_commit_run(s);
}

static bool queue_phase(struct dt_stepper *s, dt_commit_phase phase) {
    struct device_step *v = s->device;
    // queued only: the host reads no number here
    v->d->commit_phase(v->b, v->commit, phase, s->o.params->grads[0], v->main);
    if (phase == DT_COMMIT_PACK) dt_params_repack_queue(s->o.params, v->main); // packed copies belong to the last phase
    s->commit_status = queue_exchange(v, phase);
    return s->commit_status == DT_OK;
}

static recording *find_recording(struct device_step *v, const unit *p) {
    for (int i = 0; i < v->n_recordings; i++) {
        const unit *q = &v->recordings[i].unit;
        if (q->flat == p->flat && q->buffer == p->buffer && q->accumulate == p->accumulate && q->commit == p->commit)
            return &v->recordings[i];
    }
    return NULL;
}

static dt_status step_device_end_capture(struct device_step *v, void **graph) {
    if (!v->capturing) return DT_OK; // release_graphs has
    v->capturing = false;
    return v->d->capture_end(v->b, v->main, graph);
}

static void forget_recordings(struct device_step *v) {
    // their graphs refer to buffers that are about to go
    for (int i = 0; i < v->n_recordings; i++) v->d->graph_destroy(v->b, v->recordings[i].graph);
    v->n_recordings = 0;
}

// Called before the communicator is aborted: the abort would wait for ever for graphs that were captured.
static void release_graphs(void *ctx) {
    struct device_step *v = ctx;
    void *graph = NULL;
    step_device_end_capture(v, &graph);
    v->d->graph_destroy(v->b, graph);
    forget_recordings(v);
}

static dt_status step_device_record(struct device_step *v, const unit *p, recording **out) {
    dt_error_kept why = {""};
    void *graph = NULL;
    DT_TRY(v->d->capture_begin(v->b, v->main));
    v->capturing = true;
    dt_status st = queue_unit(v, p);
    if (st != DT_OK) why = dt_error_keep();
    // a unit that failed while capturing must still end the capture
    const dt_status ended = step_device_end_capture(v, &graph);
    if (st != DT_OK)
        dt_error_restore(&why);
    else
        st = ended;
    if (st != DT_OK) {
        v->d->graph_destroy(v->b, graph);
        return st;
    }
    v->recordings = dt_xrealloc(v->recordings, sizeof *v->recordings * (size_t)(v->n_recordings + 1));
    *out = &v->recordings[v->n_recordings++];
    **out = (recording){*p, graph};
    return DT_OK;
}

static dt_status run_unit(struct device_step *v, const unit *p) {
    struct dt_stepper *s = v->s;
    // the tree's units differ over the ranks, and so their sums are not captured
    if (s->o.uncaptured || (s->o.replicas->elastic && has_sums(v, p))) return queue_unit(v, p);
    recording *r = find_recording(v, p);
    if (!r) DT_TRY(step_device_record(v, p, &r));
    v->d->graph_launch(v->b, r->graph, v->main);
    return DT_OK;
}

// Runs the plan once, in the first step of all ranks, on whatever the input buffer holds. Where a step adds gradients of
// several micro-batches it runs again, adding, because a matmul that adds is another kernel. The step overwrites the results.
static dt_status rehearse(struct device_step *v, int flat, int buffer) {
    struct dt_stepper *s = v->s;
    if (s->o.uncaptured || v->rehearsed) return DT_OK; // once per stepper
    v->rehearsed = true;
    dt_exec_args args = {.device_step = &v->step->block,
                         .stream = v->main,
                         .grad = s->o.params->grads[flat],
                         .ranks = dt_step_ranks(&s->replicas[0])};
    dt_device_inputs_bind(&v->inputs[buffer], s->replicas[0].exec);
    const bool adds = !s->o.replicas->elastic && s->o.replicas->n_rank_micros > 1;
    for (int i = 0; i <= adds; i++) {
        args.accumulate = i > 0;
        dt_exec_run(s->replicas[0].exec, &args);
        DT_TRY(s->replicas[0].node_status);
    }
    if (!s->buckets) return DT_OK; // a lone rank opens no connections
    double exposed_s = 0;
    dt_buckets_begin(s->buckets, s->replica_grads);
    DT_TRY(dt_buckets_finish(s->buckets, &exposed_s));
    // connections of each collective are opened outside of any capture
    for (int i = 0; i < DT_N_COMMIT_PHASES; i++) DT_TRY(queue_exchange(v, (dt_commit_phase)i));
    return DT_OK;
}

// ---- a micro-batch ---------------------------------------------------------------------------------

static host_words *next_words(struct device_step *v) {
    return &v->words[v->n_micro % WORDS_RING];
}

static void queue_marks(struct device_step *v, host_words *w, int flat, float stop, float drop) {
    w->marks[0] = stop;
    w->marks[1] = drop;
    // stop_at and drop_at lie side by side: one copy
    float *at = v->s->o.params->grads[flat] + v->s->commit.limits.stop_at;
    v->d->copy_in(v->b, at, w->marks, sizeof w->marks, v->main);
}

// Waits until the input buffer that micro-batch k will fill is no longer read by k - 2; k - 1 may still be computing.
static dt_status step_device_make_room(struct device_step *v) {
    DT_TRY(wait_until(v, v->copy, NULL, 0)); // the previous copy has ended
    release_held(v);                         // which the loader may overwrite now
    return DT_OK;
}

static dt_status step_device_run_micro(struct device_step *v, unit *p, int micro, double lr) {
    struct dt_stepper *s = v->s;
    double wait_s = 0;
    DT_TRY(step_device_make_room(v));
    DT_TRY(s->source->get(s->source, s->step, micro, &v->held, &wait_s));
    DT_TRY(dt_batch_check_targets(v->held, s->o.targets));
    v->wait_s += wait_s;
    p->buffer = (int)(v->n_inputs++ % 2);
    host_words *w = next_words(v);
    w->step = (dt_device_step){
        .step = s->step,
        .lr = (float)lr,
        .block = {.seed = s->o.seed, .step = (uint32_t)s->step, .slot = (uint32_t)micro * (uint32_t)s->o.micro_batch}};
    dt_device_inputs_copy(&v->inputs[p->buffer], v->held, v->copy);
    // the host's part of the block alone: the rest belongs to the commit
    v->d->copy_in(v->b, v->step, &w->step, DT_HOST_STEP_BYTES, v->main);
    // the unit starts when its batch has arrived
    v->d->stream_wait(v->b, v->main, v->copy);
    DT_TRY(rehearse(v, p->flat, p->buffer));
    if (!p->accumulate) queue_marks(v, w, p->flat, dt_step_stop_mark(s, micro), 0.0f);
    v->d->stream_wait(v->b, v->copy, v->main); // the copy of micro-batch k + 2 writes what k reads
    v->n_micro++;
    return run_unit(v, p);
}

// Takes the place of a micro-batch that is given up: the flat buffer says that its content is void, and is reduced all the same. The step
// block must say which step this is, as no micro-batch may have.
static dt_status step_device_give_up(struct device_step *v, int flat) {
    DT_TRY(step_device_make_room(v));
    host_words *w = next_words(v);
    w->step = (dt_device_step){.step = v->s->step};
    v->d->copy_in(v->b, v->step, &w->step, DT_HOST_STEP_BYTES, v->main);
    DT_TRY(rehearse(v, flat, 0));
    queue_marks(v, w, flat, 1.0f, 1.0f);
    v->d->stream_wait(v->b, v->copy, v->main);
    v->n_micro++;
    return DT_OK;
}

static bool wants_to_give_up(const struct device_step *v) {
    return v->s->o.give_up && v->s->o.give_up();
}

// ---- a step ----------------------------------------------------------------------------------------

static dt_status step_device_run_micros(struct device_step *v, double lr) {
    const dt_replica_share *share = &v->s->o.replicas->replicas[0];
    const int flat = share->first_flat;
    const unit sums = {.flat = -1, .commit = true};
    unit last = {.flat = flat, .accumulate = share->micro_end - share->micro_begin > 1, .commit = true};
    if (v->sums_apart) last = sums;
    for (int micro = share->micro_begin; micro < share->micro_end; micro++) {
        if (wants_to_give_up(v)) {
            DT_TRY(step_device_give_up(v, flat));
            // their input buffers count as used, so that the parity stays the same on all ranks
            v->n_inputs += share->micro_end - micro;
            // the unit that was captured for this place in the step
            if (!v->sums_apart) last.buffer = (int)((v->n_inputs - 1) % 2);
            return run_unit(v, &last);
        }
        unit p = {.flat = flat,
                  .accumulate = micro > share->micro_begin,
                  .commit = !v->sums_apart && micro + 1 == share->micro_end};
        DT_TRY(step_device_run_micro(v, &p, micro, lr));
    }
    return v->sums_apart ? run_unit(v, &sums) : DT_OK;
}

static void add_flats(struct dt_stepper *s, float *to, const float *from) {
    const struct device_step *v = s->device;
    v->d->add(v->b, to, from, s->o.params->n_grad, v->main); // on the main stream, in order with the work
}

static dt_status step_device_run_actions(struct device_step *v, double lr) {
    const dt_replica_share *share = &v->s->o.replicas->replicas[0];
    float **flats = v->s->o.params->grads + share->first_flat;
    for (int i = 0; i < share->n_actions; i++) {
        const dt_tree_action *a = &share->actions[i];
        if (a->kind != DT_TREE_LEAF) {
            add_flats(v->s, flats[a->a], flats[a->b]);
        } else if (wants_to_give_up(v)) {
            DT_TRY(step_device_give_up(v, share->first_flat + a->a));
        } else {
            unit p = {.flat = share->first_flat + a->a};
            DT_TRY(step_device_run_micro(v, &p, a->micro, lr));
        }
    }
    DT_TRY(dt_step_run_transfers(v->s, v->s->o.device_comm, add_flats));
    return run_unit(v, &(unit){.flat = -1, .commit = true});
}

// A step without its commit, uncaptured where ranks are summed.
static dt_status step_device_compute(struct dt_stepper *s) {
    struct device_step *v = s->device;
    const dt_replica_share *share = &s->o.replicas->replicas[0];
    const bool elastic = s->o.replicas->elastic;
    float **flats = s->o.params->grads + share->first_flat;
    const int n = elastic ? share->n_actions : share->micro_end - share->micro_begin;
    for (int i = 0; i < n; i++) {
        const dt_tree_action *a = elastic ? &share->actions[i] : NULL;
        unit p = {.flat = share->first_flat + (a ? a->a : 0), .accumulate = !a && i > 0};
        // a LEAF computes, an ADD merges two buffers
        if (a && a->kind != DT_TREE_LEAF)
            add_flats(s, flats[a->a], flats[a->b]);
        else if (wants_to_give_up(v))
            DT_TRY(step_device_give_up(v, p.flat));
        else
            DT_TRY(step_device_run_micro(v, &p, a ? a->micro : share->micro_begin + i, 0));
    }
    double exposed_s;
    if (elastic) DT_TRY(dt_step_run_transfers(s, s->o.device_comm, add_flats));
    if (s->buckets) {
        dt_buckets_begin(s->buckets, s->replica_grads);
        DT_TRY(dt_buckets_finish(s->buckets, &exposed_s));
    }
    DT_TRY(come_to_rest(v)); // statistics are read by the host next
    release_held(v);
    return DT_OK;
}

static dt_status step_device_read_numbers(struct device_step *v, dt_step_result *out) {
    int64_t step = v->newest - v->n_unread + 1;
    // a ring by step
    const dt_step_numbers *n = &v->numbers[step % DT_NUMBERS_RING];
    DT_TRY(wait_until(v, v->main, &n->step, step)); // the commit writes the step's number last
    v->n_unread--;
    v->last_scale = n->loss_scale;
    *out = dt_commit_result(v->s, n);
    out->step = step - n->spoiled; // spoiled: by the commit in front of this step's
    return DT_OK;
}

static dt_status step_device_run(struct dt_stepper *s, double lr, dt_step_result *out) {
    double begin = dt_clock_s();
    struct device_step *v = s->device;
    const int64_t step = s->step;
    *out = (dt_step_result){.step = -1};
    assert(v->n_unread == 0 || step == v->newest + 1);
    v->wait_s = v->idle_s = 0;
    // before anything is queued: an old number of the slot must not be taken for the new one
    atomic_store_explicit((_Atomic int64_t *)&v->numbers[step % DT_NUMBERS_RING].step, -1, memory_order_release);
    DT_TRY(s->o.replicas->elastic ? step_device_run_actions(v, lr) : step_device_run_micros(v, lr));
    v->newest = step;
    v->n_unread++;
    // the step in front; this one's numbers come with the next call
    if (v->n_unread > 1) DT_TRY(step_device_read_numbers(v, out));
    out->total_s = dt_clock_s() - begin;
    out->data_s = v->wait_s;
    out->compute_s = out->total_s - out->data_s;
    out->idle_s = v->idle_s;
    return DT_OK;
}

static dt_status step_device_drain(struct dt_stepper *s, dt_step_result *out) {
    double begin = dt_clock_s();
    struct device_step *v = s->device;
    if (v->n_unread == 0) return DT_OK; // nothing is under way
    int32_t word;
    DT_TRY(step_device_read_numbers(v, out));
    DT_TRY(come_to_rest(v)); // the optimizer may follow the numbers
    release_held(v);
    v->b->copy_to_host(v->b, &word, &v->step->spoiled, sizeof word);
    int64_t spoiled = word;
    // an owner's update alone is not finite: all ranks end
    if (s->o.params->sharded) DT_TRY(s->o.comm->all_reduce_max_i64(s->o.comm, &spoiled, 1));
    if (spoiled) {
        out->spoiled = true;
        out->finite = out->skipped = false;
    }
    out->total_s = out->compute_s = dt_clock_s() - begin;
    return DT_OK;
}

// ---- replaying a bad step --------------------------------------------------------------------------

static dt_status rest(struct dt_stepper *s) {
    struct device_step *v = s->device;
    DT_TRY(come_to_rest(v));
    release_held(v);
    v->n_unread = 0; // what was queued behind the bad step did nothing
    return DT_OK;
}

// Batch norms have this rank's statistics alone, also under sync_bn: a bad value is named where it arises.
static dt_status step_device_replay(struct dt_stepper *s, int micro, const char **bad) {
    struct device_step *v = s->device;
    const dt_batch *batch;
    double wait_s = 0;
    DT_TRY(s->source->get(s->source, s->step, micro, &batch, &wait_s));
    dt_device_inputs_copy(&v->inputs[0], batch, NULL);
    dt_device_inputs_bind(&v->inputs[0], s->replicas[0].exec);
    dt_exec_args args = {.step = {.seed = s->o.seed,
                                  .step = (uint32_t)s->step,
                                  .slot = (uint32_t)micro * (uint32_t)s->o.micro_batch,
                                  .loss_scale = v->last_scale},
                         .grad = s->o.params->grads[0]};
    *bad = dt_exec_run_checked(s->replicas[0].exec, &args);
    s->source->release(s->source, batch);
    return DT_OK;
}

// ---- life ------------------------------------------------------------------------------------------

static dt_status step_device_set_scaler(struct dt_stepper *s, const dt_scaler *scaler) {
    struct device_step *v = s->device;
    dt_device_step first = {
        .block = {.loss_scale = scaler->scale}, .clean_steps = scaler->clean_steps, .n_skipped = scaler->n_skipped};
    if (first.block.loss_scale == 0) first.block.loss_scale = dt_commit_first_scale(s); // a new run
    v->last_scale = first.block.loss_scale;
    v->b->copy_to_device(v->b, v->step, &first, sizeof first); // the whole block, the device's half too
    return DT_OK;
}

// NULL takes the source away: its batches are given back, nothing reads its memory any more.
static dt_status step_device_set_source(struct dt_stepper *s, dt_batch_source *source) {
    struct device_step *v = s->device;
    const dt_status st = come_to_rest(v); // after a failure batches go back all the same
    release_held(v);
    s->source = source;
    if (!source) return st;
    DT_TRY(st);
    forget_recordings(v); // graphs have the addresses of the old input buffers
    dt_device_inputs_fini(v->inputs, 2);
    return dt_device_inputs_init(v->inputs, 2, v->b, s->replicas[0].exec, source->fields, source->n_fields);
}

// dt_commit_args.states
// of the commit's kernels: chunk -> compact position of its state
static int32_t *list_states(const dt_params *p, int64_t n_chunks) {
    int32_t *states = dt_xcalloc((size_t)n_chunks + 1, sizeof *states);
    for (int64_t k = 0; k < n_chunks; k++) states[k] = -1;
    for (const dt_own_range *r = p->own; r < p->own + p->n_own; r++)
        for (int64_t at = r->begin; at < r->end; at += DT_CHUNK)
            states[at / DT_CHUNK] = (int32_t)((r->at + at - r->begin) / DT_CHUNK);
    return states;
}

static dt_status create_commit(struct device_step *v) {
    const struct dt_stepper *s = v->s;
    const bool sharded = s->o.params->sharded; // then copies wait for the weights of other ranks
    dt_commit_args a = s->commit;
    const bool writes = !sharded || s->o.params->own_masters;
    dt_commit_copy *copies = writes ? dt_params_take_copies(s->o.params, &a.n_copies) : NULL;
    int32_t *states = sharded ? list_states(s->o.params, s->n_chunks) : NULL;
    a.copies = copies;
    a.states = states;
    a.own_master = s->o.params->own_masters;
    a.step = v->step;
    a.numbers = v->numbers;
    const dt_status status = v->d->commit_create(v->b, &a, &v->commit);
    free(copies);
    free(states);
    return status;
}

static dt_status create_parts(struct device_step *v) {
    dt_backend *b = v->b;
    DT_TRY(v->d->stream_create(b, &v->main, false));
    DT_TRY(v->d->stream_create(b, &v->copy, false));
    DT_TRY(b->alloc(b, (void **)&v->step, sizeof *v->step, "step block"));
    DT_TRY(b->alloc_host(b, (void **)&v->words, sizeof *v->words * WORDS_RING, "step blocks"));
    DT_TRY(b->alloc_host(b, (void **)&v->numbers, sizeof *v->numbers * DT_NUMBERS_RING, "numbers"));
    dt_comm *c = v->s->o.device_comm;
    if (c) {
        DT_TRY(v->d->stream_create(b, &v->side, true)); // a sum that waits for a layer's blocks is late
        // the communicator queues on these streams, and calls release_graphs before an abort
        c->device->attach(c, v->main, v->side, release_graphs, v);
        const dt_flat_buffer *flat = &v->s->o.params->flat;
        DT_TRY(c->device->register_memory(c, flat->memory, flat->n_bytes));
        if (v->s->bf16) DT_TRY(c->device->register_memory(c, v->s->bf16, dt_step_bf16_bytes(v->s)));
    }
    DT_TRY(step_device_set_scaler(v->s, &(dt_scaler){0})); // zeros: the first scale
    return create_commit(v);
}

static dt_status step_device_create(struct dt_stepper *s) {
    assert(s->o.replicas->n_replicas == 1);
    if (s->o.comm->world_size > 1 && !s->o.device_comm)
        return dt_fail(DT_E_USAGE, "several ranks on '%s' need NCCL, which is not there", s->backend->name);
    struct device_step *v = s->device = dt_xcalloc(1, sizeof *v);
    v->s = s;
    v->b = s->backend;
    v->d = s->backend->device;
    // ranks with other numbers of micro-batches reduce in different units otherwise
    v->sums_apart = !s->o.uncaptured && !s->o.replicas->elastic && s->buckets &&
                    s->o.replicas->n_micro % s->o.replicas->world_size != 0;
    return create_parts(v);
}

static void step_device_destroy(struct dt_stepper *s) {
    struct device_step *v = s->device;
    if (!v) return;
    dt_backend *b = v->b;
    const dt_error_kept why = dt_error_keep();
    come_to_rest(v);
    dt_error_restore(&why);
    forget_recordings(v); // before the communicators that they use
    s->device = NULL;
    dt_comm *c = s->o.device_comm;
    if (c) {
        c->device->attach(c, NULL, NULL, NULL, NULL);
        c->device->deregister_memory(c, s->o.params->flat.memory);
    }
    free(v->recordings);
    if (v->commit) v->d->commit_destroy(b, v->commit);
    dt_device_inputs_fini(v->inputs, 2);
    if (v->step) b->free(b, v->step, sizeof *v->step);
    if (v->words) b->free_host(b, v->words, sizeof *v->words * WORDS_RING);
    if (v->numbers) b->free_host(b, v->numbers, sizeof *v->numbers * DT_NUMBERS_RING);
    if (v->main) v->d->stream_destroy(b, v->main);
    if (v->copy) v->d->stream_destroy(b, v->copy);
    if (v->side) v->d->stream_destroy(b, v->side);
    free(v);
}

const dt_step_engine step_device = {.create = step_device_create,
                                    .destroy = step_device_destroy,
                                    .set_source = step_device_set_source,
                                    .set_scaler = step_device_set_scaler,
                                    .compute = step_device_compute,
                                    .run = step_device_run,
                                    .phase = queue_phase,
                                    .drain = step_device_drain,
                                    .rest = rest,
                                    .replay = step_device_replay};
