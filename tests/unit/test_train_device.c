// The stepper of devices, on the CPU's kernels dressed up as a device (lazy_device.h): the same bits as the
// CPU's stepper, captured or not, accumulated or not, along the tree, and between ranks over a pretended
// NCCL; numbers one step late; a bad or dropped step stops all behind it; loss scaling; nothing allocated
// and nothing waited for inside a step.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lazy_device.h"

#include "device_bench.h"
#include "thread_nccl.h"

#include "base/clock.h"
#include "base/log.h"

#include <unistd.h>

static dt_status create_rank(dt_backend **b, fake_nccl *f, group *g, int rank) {
    fake_nccl_init(f, g, rank);
    DT_TRY(lazy_backend_create(b, &f->api));
    f->b = *b;
    return DT_OK;
}

static dt_status create_device(bench *b, const setting *s) {
    if (!s->g) return lazy_backend_create(&b->b, NULL);
    b->nccl = dt_xcalloc(1, sizeof(fake_nccl));
    return create_rank(&b->b, b->nccl, s->g, s->rank);
}

static void join_ranks(bench *b, const setting *s) {
    b->comm = dt_xcalloc(1, sizeof *b->comm);
    *b->comm = (dt_comm){.self = s->g,
                         .rank = s->rank,
                         .world_size = s->world_size,
                         .broadcast_bytes = boot_broadcast,
                         .all_reduce_max_i64 = boot_max};
    assert_int_equal(dt_comm_create_nccl(&b->device_comm, b->b, b->comm, !s->uncaptured, 600),
                     DT_OK);
}

// ---- one rank --------------------------------------------------------------------------------------

static void test_bits_of_the_cpu(void **state) {
    for (int k = 0; k < 4; k++) {
        setting s = {.cpu = true, .elastic = k % 2, .one_micro = k / 2, .clip = 0.5f};
        outcome cpu = train(&s);
        s.cpu = false;
        outcome captured = train(&s);
        s.uncaptured = true;
        outcome plain = train(&s);
        assert_same(&cpu, &captured);
        assert_same(&cpu, &plain);
        assert_true(cpu.loss[STEPS - 1] != cpu.loss[0]);
        drop(&cpu);
        drop(&captured);
        drop(&plain);
    }
}

static void test_quiet_steps(void **state) {
    bench b;
    dt_step_result r[20];
    make_bench(&b, &(setting){0});
    run_steps(&b, 0, 3, r);
    lazy_self *l = lazy(b.b);
    int waits = l->n_waits, allocs = l->n_allocs, launches = l->n_launches;
    run_steps(&b, 3, 20, r);
    assert_int_equal(l->n_waits, waits + 2); // draining: the main and the copy stream
    assert_int_equal(l->n_allocs, allocs);
    assert_int_equal(l->n_launches - launches, 17 * N_MICRO);
    drop_bench(&b);
}

// Two micro-batches are read, the first of all; all steps see them, and the loss falls.
static void test_held_input(void **state) {
    bench b;
    dt_step_result r[20];
    make_bench(&b, &(setting){.hold_input = true});
    run_steps(&b, 0, 20, r);
    assert_int_equal(b.source->n_gets, 2);
    assert_true(r[19].loss < r[0].loss);
    drop_bench(&b);
}

// A bad step is replayed from what is held, not from what the source would give now.
static void test_bad_step_of_held_input(void **state) {
    bench b;
    dt_step_result r;
    int micro = -1;
    char name[64];
    make_bench(&b, &(setting){.hold_input = true});
    b.source->bad_step = 0;
    b.source->bad_micro = 1;
    for (int step = 0; step < 2; step++)
        assert_int_equal(dt_stepper_run(b.stepper, step, RATE, false, &r), DT_OK);
    assert_true(r.step == 0 && !r.finite);
    b.source->bad_step = -1;
    assert_int_equal(dt_stepper_find_bad(b.stepper, 0, &micro, name, sizeof name), DT_OK);
    assert_int_equal(micro, 1);
    assert_string_equal(name, "loss");
    assert_int_equal(b.source->n_gets, 2);
    drop_bench(&b);
}

static void test_numbers_are_late(void **state) {
    bench b;
    dt_step_result r;
    make_bench(&b, &(setting){0});
    assert_int_equal(dt_stepper_run(b.stepper, 0, 0.01, false, &r), DT_OK);
    assert_int_equal(r.step, -1);
    assert_int_equal(dt_stepper_run(b.stepper, 1, 0.01, true, &r), DT_OK);
    assert_true(r.idle_s > 0 &&
                r.data_s + r.idle_s <= r.total_s); // the rest is the host's own work
    assert_true(r.step == 0 && !r.stop);
    assert_int_equal(dt_stepper_run(b.stepper, 2, 0.01, false, &r), DT_OK);
    assert_true(r.step == 1 && r.stop);
    assert_int_equal(dt_stepper_drain(b.stepper, &r), DT_OK);
    assert_true(r.step == 2 && !r.stop && r.finite);
    assert_int_equal(dt_stepper_drain(b.stepper, &r), DT_OK);
    assert_int_equal(r.step, -1);
    drop_bench(&b);
}

static void test_refused_capture(void **state) {
    setting s = {.clip = 0.5f};
    outcome captured = train(&s), o;
    bench b;
    dt_step_result r[STEPS];
    make_bench(&b, &s);
    lazy(b.b)->refuses_capture = true;
    dt_log_set_level(DT_LOG_ERROR);
    run_steps(&b, 0, STEPS, r);
    assert_int_equal(lazy(b.b)->n_launches, 0);
    keep(&o, &b, r, STEPS);
    assert_same(&captured, &o);
    drop_bench(&b);
    drop(&captured);
    drop(&o);
}

static void test_bad_step(void **state) {
    bench b, good;
    dt_step_result r, kept[3];
    make_bench(&b, &(setting){0});
    make_bench(&good, &(setting){0});
    run_steps(&good, 0, 3, kept);
    b.source->bad_step = 3;
    for (int step = 0; step < 4; step++)
        assert_int_equal(dt_stepper_run(b.stepper, step, 0.003, false, &r), DT_OK);
    assert_true(r.step == 2 && r.finite);
    assert_int_equal(dt_stepper_run(b.stepper, 4, 0.003, false, &r), DT_OK);
    assert_true(r.step == 3 && !r.finite && !r.skipped && !r.dropped);
    int micro = -1;
    char name[64];
    assert_int_equal(dt_stepper_find_bad(b.stepper, 3, &micro, name, sizeof name), DT_OK);
    assert_int_equal(micro, 2);
    assert_string_equal(name, "loss");
    size_t n = sizeof(float) * (size_t)b.params->n_trained;
    assert_memory_equal(b.params->master, good.params->master, n);
    assert_memory_equal(b.params->slots[1], good.params->slots[1], n);
    assert_memory_equal(b.params->buffer, good.params->buffer,
                        sizeof(float) * (size_t)b.params->n_buffer);
    drop_bench(&b);
    drop_bench(&good);
}

// The update of step 2 is not finite: told with the numbers of step 3, which commits nothing, or by draining.
static void test_spoiled_step(void **state) {
    for (int drains = 0; drains < 2; drains++) {
        bench b;
        dt_step_result r;
        make_bench(&b, &(setting){0});
        for (int step = 0; step < 3; step++)
            assert_int_equal(dt_stepper_run(b.stepper, step, step < 2 ? 0.003 : 3e38, false, &r),
                             DT_OK);
        assert_true(r.step == 1 && r.finite);
        if (!drains) {
            assert_int_equal(dt_stepper_run(b.stepper, 3, 0.003, false, &r), DT_OK);
            assert_true(r.step == 2 && isfinite(r.loss));
            assert_int_equal(dt_stepper_run(b.stepper, 4, 0.003, false, &r), DT_OK);
        } else {
            assert_int_equal(dt_stepper_drain(b.stepper, &r), DT_OK);
        }
        assert_true(r.step == 2 && r.spoiled && !r.finite && !r.skipped && !r.dropped);
        drop_bench(&b);
    }
}

static void test_dropped_step(void **state) {
    for (int k = 0; k < 6; k++) {
        bench b, good;
        dt_step_result r, kept[3];
        setting s = {.elastic = k % 2};
        make_bench(&b, &s);
        make_bench(&good, &s);
        run_steps(&good, 0, 3, kept);
        run_steps(&b, 0, 3, kept);
        micro_left = k / 2 * 3 / 2; // 0, 1, 3 of the 4 micro-batches
        assert_int_equal(dt_stepper_run(b.stepper, 3, 0.003, true, &r), DT_OK);
        micro_left = 1 << 30;
        assert_int_equal(dt_stepper_run(b.stepper, 4, 0.003, false, &r), DT_OK);
        assert_true(r.step == 3 && r.dropped && r.stop);
        assert_int_equal(dt_stepper_drain(b.stepper, &r), DT_OK);
        assert_memory_equal(b.params->master, good.params->master,
                            sizeof(float) * (size_t)b.params->n_trained);
        drop_bench(&b);
        drop_bench(&good);
    }
}

// ---- loss scaling ----------------------------------------------------------------------------------

static void test_scaling(void **state) {
    bench b;
    dt_step_result r[8];
    setting s = {.clip = 0.5f};
    outcome plain = train(&s), scaled;
    s.scaled = true;
    scaled = train(&s); // a power of two changes no bit while nothing overflows
    assert_same(&plain, &scaled);
    make_bench(&b, &s);
    dt_scaler at = {.scale = 1024, .clean_steps = 1998, .n_skipped = 3};
    assert_int_equal(dt_stepper_set_scaler(b.stepper, &at), DT_OK);
    b.source->bad_step = 14;
    run_steps(&b, 10, 18, r);
    assert_true(r[0].scaler.scale == 1024 && r[0].scaler.clean_steps == 1999);
    assert_true(r[1].scaler.scale == 2048 && r[1].scaler.clean_steps == 0);
    assert_true(r[4].skipped && !r[4].finite && r[4].scaler.scale == 1024);
    assert_int_equal(r[4].scaler.n_skipped, 4);
    assert_true(r[5].finite && r[7].finite && r[7].scaler.clean_steps == 3);
    drop_bench(&b);
    make_bench(&b, &s); // it cannot go below 1: then the step is bad
    at.scale = 1;
    assert_int_equal(dt_stepper_set_scaler(b.stepper, &at), DT_OK);
    b.source->bad_step = 0;
    run_steps(&b, 0, 1, r);
    assert_true(!r[0].finite && !r[0].skipped);
    drop_bench(&b);
    drop(&plain);
    drop(&scaled);
}

// Three steps, and the rest on a new stepper.
static outcome train_in_two(const setting *s) {
    bench a, b;
    outcome o = {0};
    dt_step_result r[STEPS];
    make_bench(&a, s);
    run_steps(&a, 0, 3, r);
    make_bench(&b, s);
    size_t n = sizeof(float) * (size_t)a.params->n_trained;
    memcpy(b.params->master, a.params->master, n);
    memcpy(b.params->slots[0], a.params->slots[0], n);
    memcpy(b.params->slots[1], a.params->slots[1], n);
    memcpy(b.params->buffer, a.params->buffer, sizeof(float) * (size_t)a.params->n_buffer);
    dt_params_repack(b.params);
    if (s->scaled) assert_int_equal(dt_stepper_set_scaler(b.stepper, &r[2].scaler), DT_OK);
    run_steps(&b, 3, STEPS, r + 3);
    keep(&o, &b, r, STEPS);
    drop_bench(&a);
    drop_bench(&b);
    return o;
}

// Stopped after three steps and taken up by another stepper: as if nothing had been.
static void test_resume(void **state) {
    setting s = {.scaled = true};
    outcome whole = train(&s), o = train_in_two(&s);
    assert_same(&whole, &o);
    drop(&whole);
    drop(&o);
}

// ---- ranks -----------------------------------------------------------------------------------------

typedef struct rank_job {
    setting s;
    outcome o;
} rank_job;

static void *rank_main(void *arg) {
    rank_job *j = arg;
    j->o = train(&j->s);
    return NULL;
}

static void run_ranks(rank_job *jobs, int n, const setting *s, void *(*main)(void *)) {
    group g = {
        .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .world_size = n};
    pthread_t threads[MAX_RANKS];
    for (int r = 0; r < n; r++) {
        jobs[r].s = *s;
        jobs[r].s.g = &g;
        jobs[r].s.rank = r;
        jobs[r].s.world_size = n;
        assert_int_equal(pthread_create(&threads[r], NULL, main, &jobs[r]), 0);
    }
    for (int r = 0; r < n; r++) pthread_join(threads[r], NULL);
    for (int r = 1; r < n; r++) assert_same(&jobs[0].o, &jobs[r].o);
}

// Where NCCL adds in another order when it is captured, a resumed run still has the bits of one that went on: each step
// of both is captured.
static void *resume_main(void *arg) {
    rank_job *j = arg;
    ((group *)j->s.g)->other_order = true;
    outcome whole = train(&j->s);
    j->o = train_in_two(&j->s);
    assert_same(&whole, &j->o);
    drop(&whole);
    return NULL;
}

static void test_resume_of_ranks(void **state) {
    rank_job jobs[4];
    for (int n = 3; n <= 4; n++) {
        run_ranks(jobs, n, &(setting){0}, resume_main);
        for (int r = 0; r < n; r++) drop(&jobs[r].o);
    }
}

static void test_ranks(void **state) {
    rank_job jobs[MAX_RANKS], again[MAX_RANKS];
    for (int elastic = 0; elastic < 2; elastic++) {
        setting s = {.elastic = elastic, .clip = 0.5f};
        outcome alone = train(&s);
        for (int n = 2; n <= 4; n++) { // 3: ranks with 1 and 2 of the 4 micro-batches
            run_ranks(jobs, n, &s, rank_main);
            s.uncaptured = true;
            run_ranks(again, n, &s, rank_main);
            s.uncaptured = false;
            assert_same(&jobs[0].o, &again[0].o);
            if (elastic) assert_same(&alone, &jobs[0].o);
            for (int i = 0; i < STEPS; i++)
                assert_float_equal(jobs[0].o.loss[i], alone.loss[i], 1e-4 * alone.loss[i]);
            for (int r = 0; r < n; r++) {
                drop(&jobs[r].o);
                drop(&again[r].o);
            }
        }
        drop(&alone);
    }
}

// Rank 1 gives step 3 up, summing as the others do: nobody commits it, nor what is behind it.
static void *drop_main(void *arg) {
    rank_job *j = arg;
    bench b;
    dt_step_result r, before[3];
    make_bench(&b, &j->s);
    run_steps(&b, 0, 3, before);
    for (int step = 3; step < 6; step++) {
        if (step == 3 && j->s.rank == 1) micro_left = 0;
        assert_int_equal(dt_stepper_run(b.stepper, step, 0.003, false, &r), DT_OK);
        micro_left = 1 << 30;
        if (step > 3) assert_true(r.step == step - 1 && (r.step > 3 || r.dropped));
    }
    assert_int_equal(dt_stepper_drain(b.stepper, &r), DT_OK);
    j->o = (outcome){{0}};
    keep(&j->o, &b, before, 3);
    drop_bench(&b);
    return NULL;
}

static void test_drop_of_one_rank(void **state) {
    for (int n = 2; n <= 4; n++) {
        rank_job good[MAX_RANKS], jobs[MAX_RANKS];
        setting s = {.n_steps = 3};
        run_ranks(good, n, &s, rank_main);
        run_ranks(jobs, n, &s, drop_main);
        assert_memory_equal(good[0].o.master, jobs[0].o.master, jobs[0].o.n_master);
        for (int r = 0; r < n; r++) {
            drop(&good[r].o);
            drop(&jobs[r].o);
        }
    }
}

// One rank cannot capture the pieces with sums: none does, and all bits are the same.
static void *refuse_main(void *arg) {
    rank_job *j = arg;
    bench b;
    dt_step_result r[STEPS];
    make_bench(&b, &j->s);
    lazy(b.b)->refuses_capture = j->s.rank == 2;
    run_steps(&b, 0, STEPS, r);
    keep(&j->o, &b, r, STEPS);
    drop_bench(&b);
    return NULL;
}

static void test_refusal_of_one_rank(void **state) {
    rank_job plain[MAX_RANKS], jobs[MAX_RANKS];
    setting s = {.uncaptured = true};
    run_ranks(plain, 3, &s, rank_main);
    s.uncaptured = false;
    dt_log_set_level(DT_LOG_ERROR);
    run_ranks(jobs, 3, &s, refuse_main);
    assert_same(&plain[0].o, &jobs[0].o);
    for (int r = 0; r < 3; r++) {
        drop(&plain[r].o);
        drop(&jobs[r].o);
    }
}

// Gradients as bf16 on their way: near the first steps of fp32, the same bits on all ranks, captured or not; counts and
// sums of losses stay exact.
static void test_bf16_gradients(void **state) {
    rank_job plain[MAX_RANKS], low[MAX_RANKS], again[MAX_RANKS];
    setting s = {.clip = 0.5f};
    run_ranks(plain, 2, &s, rank_main);
    s.bf16_gradients = true;
    run_ranks(low, 2, &s, rank_main);
    s.uncaptured = true;
    run_ranks(again, 2, &s, rank_main);
    assert_same(&low[0].o, &again[0].o);
    assert_memory_not_equal(low[0].o.master, plain[0].o.master, low[0].o.n_master);
    assert_true(low[0].o.loss[0] == plain[0].o.loss[0]);
    for (int i = 0; i < 3;
         i++) { // later steps amplify whatever differs, as two orders of summing do
        assert_float_equal(low[0].o.loss[i], plain[0].o.loss[i], 0.01 * plain[0].o.loss[i]);
        assert_float_equal(low[0].o.norm[i], plain[0].o.norm[i], 0.01 * plain[0].o.norm[i]);
    }
    for (int r = 0; r < 2; r++) {
        drop(&plain[r].o);
        drop(&low[r].o);
        drop(&again[r].o);
    }
}

// A peer is lost, between steps that are captured and in front of the capture of one: the graphs go, then the
// communicator, once; what comes later is refused, and all of it can be given back.
static void *lose_main(void *arg) {
    rank_job *j = arg;
    bench b;
    dt_step_result r[STEPS];
    make_bench(&b, &j->s);
    fake_nccl *f = b.nccl;
    const bool while_captured = j->s.n_steps == 0;
    run_steps(&b, 0, j->s.n_steps, r);
    assert_true((lazy(b.b)->n_graphs > 0) == !while_captured);
    f->fails_captured = while_captured;
    if (!while_captured) b.device_comm->set_deadline(b.device_comm, 0.5);
    const dt_status st = while_captured ? dt_stepper_run(b.stepper, 0, 0.003, false, r)
                                        : dt_comm_nccl_watch(b.device_comm, 1);
    assert_int_equal(st, DT_E_PEER);
    assert_non_null(
        strstr(dt_error_message(), while_captured ? "pretended error" : "another rank is gone"));
    assert_true(f->aborted && f->n_failures == while_captured && lazy(b.b)->n_graphs == 0);
    f->fails_captured = false;
    assert_int_equal(dt_comm_nccl_watch(b.device_comm, 0), DT_E_PEER);
    assert_int_equal(dt_stepper_run(b.stepper, STEPS, 0.003, false, r), DT_E_PEER);
    keep(&j->o, &b, r, 0);
    drop_bench(&b);
    return NULL;
}

static void test_lost_peer(void **state) {
    for (int n_steps = 0; n_steps <= 4; n_steps += 4) {
        rank_job jobs[2];
        setting s = {.n_steps = n_steps};
        memset(jobs, 0, sizeof jobs);
        run_ranks(jobs, 2, &s, lose_main);
        for (int r = 0; r < 2; r++) drop(&jobs[r].o);
    }
}

// The one rank of a group that there is.
typedef struct lone_rank {
    group g;
    fake_nccl f;
    dt_backend *b;
    dt_comm boot;
} lone_rank;

static void begin_lone(lone_rank *l, int world_size, bool silent) {
    *l = (lone_rank){.g = {.lock = PTHREAD_MUTEX_INITIALIZER,
                           .changed = PTHREAD_COND_INITIALIZER,
                           .world_size = world_size,
                           .silent = silent}};
    l->boot = (dt_comm){.self = &l->g, .world_size = world_size, .broadcast_bytes = boot_broadcast};
    assert_int_equal(create_rank(&l->b, &l->f, &l->g, 0), DT_OK);
}

// A peer that never comes: an error after the deadline, and no hang.
static void test_missing_peer(void **state) {
    lone_rank l;
    dt_comm *c = NULL;
    begin_lone(&l, 2, true);
    double begin = dt_clock_s();
    assert_int_equal(dt_comm_create_nccl(&c, l.b, &l.boot, false, 0.2), DT_E_PEER);
    assert_true(l.f.aborted && dt_clock_s() - begin < 60);
    assert_non_null(strstr(dt_error_message(), "did not finish within"));
    l.b->destroy(l.b);
}

static bool never_done(dt_backend *b, void *stream) {
    return false;
}
static dt_status hangs(dt_backend *b, void *stream) {
    abort();
}

// A peer that comes and then does not take part: the device waits for ever, the host until the deadline.
static void test_hanging_peer(void **state) {
    lone_rank l;
    dt_comm *c = NULL;
    begin_lone(&l, 2, false);
    const dt_device *device = l.b->device;
    dt_device hanging = *device;
    hanging.stream_done = never_done;
    hanging.synchronize = hangs;
    l.b->device = &hanging;
    assert_int_equal(dt_comm_create_nccl(&c, l.b, &l.boot, false, 0.2), DT_E_PEER);
    assert_true(l.f.aborted);
    assert_non_null(strstr(dt_error_message(), "the test of NCCL did not finish within"));
    l.b->device = device;
    l.b->destroy(l.b);
}

// What NCCL answers at a communicator's end: finalize is asked about until it is through, a failure of it aborts; one of
// destroy is the caller's, one of an abort, which nobody waits for, is a line.
static void end_comm(int finalize, int destroy, int abort, dt_status expected) {
    lone_rank l;
    dt_comm *c = NULL;
    begin_lone(&l, 1, false);
    assert_int_equal(dt_comm_create_nccl(&c, l.b, &l.boot, false, 30), DT_OK);
    l.f.finalize_answer = finalize;
    l.f.destroy_answer = destroy;
    l.f.abort_answer = abort;
    assert_int_equal(c->finalize(c), expected);
    assert_int_equal(l.f.n_busy, 0);
    assert_int_equal(l.f.aborted, finalize == 6);
    dt_comm_destroy_nccl(c);
    l.b->destroy(l.b);
}

static void test_answers_at_the_end(void **state) {
    char log[] = "/tmp/train_device.XXXXXX", text[400] = "";
    close(mkstemp(log));
    assert_int_equal(dt_log_open(log), DT_OK);
    dt_log_set_level(DT_LOG_WARN);
    end_comm(DT_NCCL_OK, DT_NCCL_OK, DT_NCCL_OK, DT_OK);
    end_comm(DT_NCCL_BUSY, DT_NCCL_OK, DT_NCCL_OK, DT_OK);
    end_comm(DT_NCCL_BUSY, 6, DT_NCCL_OK, DT_E_PEER);
    assert_non_null(strstr(dt_error_message(), "NCCL destroy failed: pretended error"));
    end_comm(6, DT_NCCL_OK, 6, DT_E_PEER);
    assert_non_null(strstr(dt_error_message(), "NCCL finalize failed: pretended error"));
    dt_log_close();
    FILE *said = fopen(log, "r");
    assert_true(said && fgets(text, sizeof text, said));
    assert_non_null(strstr(text, "NCCL abort failed: pretended error"));
    assert_null(fgets(text, sizeof text, said));
    fclose(said);
    unlink(log);
}

// The device waits for a peer that is gone: until the communicator is aborted. A wait without a deadline would hang.
static __thread const fake_nccl *gone;
static bool done_when_aborted(dt_backend *b, void *stream) {
    return gone->aborted && lazy_stream_done(b, stream);
}
static dt_status ends_when_aborted(dt_backend *b, void *stream) {
    if (!gone->aborted) abort();
    return lazy_synchronize(b, stream);
}

// A run that ends, behind a failure of its own or not, when a peer is gone: every wait has the deadline. The source is
// taken away first or the stepper goes with it; numbers may be under way.
static void *leave_main(void *arg) {
    rank_job *j = arg;
    bench b;
    dt_step_result r[STEPS];
    make_bench(&b, &j->s);
    gone = b.nccl;
    run_steps(&b, 0, 3, r);
    keep(&j->o, &b, r, 3);
    b.device_comm->set_deadline(b.device_comm, 0.1);
    lazy(b.b)->device.stream_done = done_when_aborted;
    lazy(b.b)->device.synchronize = ends_when_aborted;
    if (j->s.one_micro) {
        assert_int_equal(dt_stepper_set_source(b.stepper, NULL), DT_E_PEER);
        assert_non_null(strstr(dt_error_message(), "another rank is gone"));
    } else {
        dt_stepper_destroy(b.stepper);
        b.stepper = NULL;
    }
    assert_true(gone->aborted && lazy(b.b)->n_graphs == 0);
    drop_bench(&b);
    return NULL;
}

static void test_end_beside_a_lost_peer(void **state) {
    for (int k = 0; k < 2; k++) {
        rank_job jobs[1];
        run_ranks(jobs, 1, &(setting){.one_micro = k}, leave_main);
        drop(&jobs[0].o);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bits_of_the_cpu),
                                       cmocka_unit_test(test_quiet_steps),
                                       cmocka_unit_test(test_held_input),
                                       cmocka_unit_test(test_numbers_are_late),
                                       cmocka_unit_test(test_refused_capture),
                                       cmocka_unit_test(test_bad_step),
                                       cmocka_unit_test(test_bad_step_of_held_input),
                                       cmocka_unit_test(test_spoiled_step),
                                       cmocka_unit_test(test_dropped_step),
                                       cmocka_unit_test(test_scaling),
                                       cmocka_unit_test(test_resume),
                                       cmocka_unit_test(test_ranks),
                                       cmocka_unit_test(test_resume_of_ranks),
                                       cmocka_unit_test(test_drop_of_one_rank),
                                       cmocka_unit_test(test_refusal_of_one_rank),
                                       cmocka_unit_test(test_bf16_gradients),
                                       cmocka_unit_test(test_lost_peer),
                                       cmocka_unit_test(test_missing_peer),
                                       cmocka_unit_test(test_hanging_peer),
                                       cmocka_unit_test(test_answers_at_the_end),
                                       cmocka_unit_test(test_end_beside_a_lost_peer)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
