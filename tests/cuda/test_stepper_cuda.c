// test_stepper_cuda.c: the stepper of devices on the fake device, where test_train_cuda.c and test_ranks_cuda.sh do not
// look: numbers one step late, a refused capture, steps that are given up, the loss scale, and ranks (threads
// of this process, each with its own fake device): resuming, bf16 gradients, one rank that gives a step up, and peers
// that are lost, missing or hanging.
#include "base/log.h"
#include "base/watch.h"
#include "fake_cuda.h"
#include "folder.h"
#include "graph/autodiff.h"
#include "graph/passes/passes.h"
#include "models/models.h"
#include "testing.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static dt_status bench_graph(dt_graph **out, const dt_model_args *a, dt_dtype low);
#define BENCH_GRAPH bench_graph
#include "device_bench.h"

// Small, as what is tested is around the network.
static dt_status bench_graph(dt_graph **out, const dt_model_args *args, dt_dtype low) {
    dt_graph *g = *out = dt_graph_create("small", true);
    dt_value x = dt_model_image(g, args, &args->fields[1]);
    x = dt_conv2d(g, "conv", x, &(dt_conv2d_opts){.out = 8, .kernel = 3, .stride = 2, .pad = 1});
    x = dt_global_pool(g, dt_relu(g, dt_batch_norm(g, "bn", x)));
    DT_TRY(bench_head(g, args, x));
    DT_TRY(dt_pass_fuse(g));
    DT_TRY(dt_graph_differentiate(g));
    return dt_pass_dead_code(g);
}

static dt_status create_device(bench *b, const setting *s) {
    return fake_cuda_backend(&b->b, &(dt_backend_opts){.threads = 1, .deterministic = true});
}

static dt_cuda_api *api_of(const bench *b) {
    return dt_cuda_self(b->b)->api;
}

static void assert_same_weights(const bench *a, const bench *b) {
    const dt_params *p = a->params, *q = b->params;
    const size_t n = sizeof(float) * (size_t)p->n_trained, n_buffer = sizeof(float) * (size_t)p->n_buffer;
    const struct {
        const float *x, *y;
        size_t n_bytes;
    } flats[] = {{p->master, q->master, n}, {p->slots[1], q->slots[1], n}, {p->buffer, q->buffer, n_buffer}};
    for (int i = 0; i < 3; i++) {
        float *x = read_flat(a, flats[i].x, flats[i].n_bytes);
        float *y = read_flat(b, flats[i].y, flats[i].n_bytes);
        assert_memory_equal(x, y, flats[i].n_bytes);
        free(x);
        free(y);
    }
}

// ---- one rank --------------------------------------------------------------------------------------

TEST(test_numbers_are_late) {
    bench b;
    dt_step_result r;
    make_bench(&b, &(setting){0});
    assert_int_equal(dt_stepper_run(b.stepper, 0, RATE, false, &r), DT_OK);
    assert_int_equal(r.step, -1);
    assert_int_equal(dt_stepper_run(b.stepper, 1, RATE, true, &r), DT_OK);
    // the rest is the host's own work
    assert_true(r.idle_s > 0 && r.data_s + r.idle_s <= r.total_s);
    assert_true(r.step == 0 && !r.stop);
    assert_int_equal(dt_stepper_run(b.stepper, 2, RATE, false, &r), DT_OK);
    assert_true(r.step == 1 && r.stop);
    assert_int_equal(dt_stepper_drain(b.stepper, &r), DT_OK);
    assert_true(r.step == 2 && !r.stop && r.finite);
    assert_int_equal(dt_stepper_drain(b.stepper, &r), DT_OK);
    assert_int_equal(r.step, -1);
    drop_bench(&b);
}

TEST(test_refused_capture) {
    bench b;
    dt_step_result r;
    make_bench(&b, &(setting){0});
    fake_cuda_fail(api_of(&b), "capture_end", 0, FAKE_NOT_CAPTURABLE);
    assert_int_equal(dt_stepper_run(b.stepper, 0, RATE, false, &r), DT_E_INTERNAL);
    assert_non_null(strstr(dt_error_message(), "cuda: operation not permitted when stream is capturing"));
    assert_non_null(strstr(dt_error_message(), "device.capture: false goes without"));
    drop_bench(&b);
}

// Given up with 0, 1 or 3 of 4 micro-batches done: it and the step behind it change nothing.
TEST(test_dropped_step) {
    for (int k = 0; k < 6; k++) {
        bench b, good;
        dt_step_result r, kept[3];
        setting s = {.elastic = k % 2};
        make_bench(&b, &s);
        make_bench(&good, &s);
        run_steps(&good, 0, 3, kept);
        run_steps(&b, 0, 3, kept);
        micro_left = k / 2 * 3 / 2;
        assert_int_equal(dt_stepper_run(b.stepper, 3, RATE, true, &r), DT_OK);
        micro_left = 1 << 30;
        assert_int_equal(dt_stepper_run(b.stepper, 4, RATE, false, &r), DT_OK);
        assert_true(r.step == 3 && r.dropped && r.stop);
        assert_int_equal(dt_stepper_drain(b.stepper, &r), DT_OK);
        assert_same_weights(&b, &good);
        drop_bench(&b);
        drop_bench(&good);
    }
}

TEST(test_scaling) {
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
    bad_step = 14;
    run_steps(&b, 10, 18, r);
    bad_step = -1;
    assert_true(r[0].scaler.scale == 1024 && r[0].scaler.clean_steps == 1999);
    assert_true(r[1].scaler.scale == 2048 && r[1].scaler.clean_steps == 0);
    assert_true(r[4].skipped && !r[4].finite && r[4].scaler.scale == 1024);
    assert_int_equal(r[4].scaler.n_skipped, 4);
    assert_true(r[5].finite && r[7].finite && r[7].scaler.clean_steps == 3);
    drop_bench(&b);
    drop(&plain);
    drop(&scaled);
}

// ---- ranks -----------------------------------------------------------------------------------------

enum { MAX_RANKS = 3 };

// The host's comm between the threads: only what connecting and capturing need.
static pthread_barrier_t meeting;
static char card[256];
static int64_t votes[MAX_RANKS];

static dt_status boot_broadcast(dt_comm *c, void *data, size_t n_bytes, int root) {
    assert_true(n_bytes <= sizeof card && root == 0);
    if (c->rank == 0) memcpy(card, data, n_bytes);
    pthread_barrier_wait(&meeting);
    memcpy(data, card, n_bytes);
    pthread_barrier_wait(&meeting);
    return DT_OK;
}

static dt_status boot_max(dt_comm *c, int64_t *data, int64_t n) {
    votes[c->rank] = *data;
    pthread_barrier_wait(&meeting);
    for (int r = 0; r < c->world_size; r++) *data = votes[r] > *data ? votes[r] : *data;
    pthread_barrier_wait(&meeting);
    return DT_OK;
}

typedef struct rank_job {
    setting s;
    dt_comm boot;
    outcome o;
} rank_job;

static void run_ranks(rank_job *jobs, int n, const setting *s, void *(*main)(void *)) {
    pthread_t threads[MAX_RANKS];
    pthread_barrier_init(&meeting, NULL, (unsigned)n);
    for (int r = 0; r < n; r++) {
        jobs[r] = (rank_job){
            .s = *s,
            .boot = {.rank = r, .world_size = n, .broadcast_bytes = boot_broadcast, .all_reduce_max_i64 = boot_max}};
        jobs[r].s.ranks = &jobs[r].boot;
        assert_int_equal(pthread_create(&threads[r], NULL, main, &jobs[r]), 0);
    }
    for (int r = 0; r < n; r++) pthread_join(threads[r], NULL);
    for (int r = 1; r < n; r++) assert_same(&jobs[0].o, &jobs[r].o);
    pthread_barrier_destroy(&meeting);
}

static void drop_ranks(rank_job *jobs, int n) {
    for (int r = 0; r < n; r++) drop(&jobs[r].o);
}

static void *train_main(void *arg) {
    rank_job *j = arg;
    j->o = train(&j->s);
    return NULL;
}

// Three steps, and the rest on a new stepper.
static void *resume_main(void *arg) {
    rank_job *j = arg;
    bench a, b;
    dt_step_result r[STEPS];
    make_bench(&a, &j->s);
    run_steps(&a, 0, 3, r);
    make_bench(&b, &j->s);
    take_up(&b, &a);
    run_steps(&b, 3, STEPS, r + 3);
    keep(&j->o, &b, r, STEPS);
    drop_bench(&a);
    drop_bench(&b);
    return NULL;
}

// NCCL adds in another order when it is captured: a resumed run has the bits of one that went on only if each step of
// both is captured. Three ranks: with shares of 1 and 2 of the 4 micro-batches.
TEST(test_resume_of_ranks) {
    rank_job whole[3], parts[3];
    setting s = {.clip = 0.5f};
    run_ranks(whole, 3, &s, train_main);
    run_ranks(parts, 3, &s, resume_main);
    assert_same(&whole[0].o, &parts[0].o);
    drop_ranks(whole, 3);
    drop_ranks(parts, 3);
}

// Gradients as bf16 on their way: near the first steps of fp32; counts and sums of losses stay exact.
TEST(test_bf16_gradients) {
    rank_job plain[2], low[2];
    setting s = {.clip = 0.5f};
    run_ranks(plain, 2, &s, train_main);
    s.bf16_gradients = true;
    run_ranks(low, 2, &s, train_main);
    const outcome *a = &plain[0].o, *b = &low[0].o;
    assert_memory_not_equal(a->master, b->master, a->n_master);
    assert_true(a->loss[0] == b->loss[0]);
    for (int i = 0; i < 3; i++) {
        assert_float_equal(a->loss[i], b->loss[i], 0.01 * a->loss[i]);
        assert_float_equal(a->norm[i], b->norm[i], 0.01 * a->norm[i]);
    }
    drop_ranks(plain, 2);
    drop_ranks(low, 2);
}

// Rank 1 gives step 3 up, summing as the others do: nobody commits it, nor what is behind it.
static void *drop_main(void *arg) {
    rank_job *j = arg;
    bench b;
    dt_step_result r, before[3];
    make_bench(&b, &j->s);
    run_steps(&b, 0, 3, before);
    for (int step = 3; step < 6; step++) {
        if (step == 3 && j->boot.rank == 1) micro_left = 0;
        assert_int_equal(dt_stepper_run(b.stepper, step, RATE, false, &r), DT_OK);
        micro_left = 1 << 30;
        if (step > 3) assert_true(r.step == step - 1 && (r.step > 3 || r.dropped));
    }
    assert_int_equal(dt_stepper_drain(b.stepper, &r), DT_OK);
    keep(&j->o, &b, before, 3);
    drop_bench(&b);
    return NULL;
}

TEST(test_drop_of_one_rank) {
    rank_job good[MAX_RANKS], jobs[MAX_RANKS];
    for (int n = 2; n <= 3; n++) {
        run_ranks(good, n, &(setting){.n_steps = 3}, train_main);
        run_ranks(jobs, n, &(setting){0}, drop_main);
        assert_memory_equal(good[0].o.master, jobs[0].o.master, jobs[0].o.n_master);
        drop_ranks(good, n);
        drop_ranks(jobs, n);
    }
}

// ---- peers that are gone ---------------------------------------------------------------------------

static __thread bool lost, captured,
    failed; // this rank's peer; its last sum; whether that was told

static __thread struct {
    dt_nccl_api nccl;
    dt_cuda_api *cuda;
} real;

static int failing_state(const dt_nccl_api *a, void *comm, int *state) {
    const int e = real.nccl.async_error(a, comm, state);
    failed |= lost && captured;
    if (lost && captured) *state = 6;
    return e;
}

static int watched_sum(const dt_nccl_api *a, void *comm, void *data, int64_t n, dt_dtype type, void *stream) {
    captured = fake_cuda_capture(real.cuda, stream) != 0;
    return real.nccl.all_reduce(a, comm, data, n, type, stream);
}

// A peer is lost between steps that are captured, or while the first is. The graphs go, then the communicator, once, as
// fake_nccl.c demands; what comes later is refused, and all of it can be given back.
static void *lose_main(void *arg) {
    rank_job *j = arg;
    bench b;
    dt_step_result r[STEPS];
    const bool while_captured = j->s.n_steps == 0;
    make_bench(&b, &j->s);
    dt_nccl_api *nccl = fake_cuda_nccl(b.b);
    real.nccl = *nccl;
    real.cuda = api_of(&b);
    nccl->all_reduce = watched_sum;
    nccl->async_error = failing_state;
    run_steps(&b, 0, j->s.n_steps, r);
    lost = while_captured;
    if (!while_captured) b.device_comm->set_deadline(b.device_comm, 0.5);
    const dt_status st =
        while_captured ? dt_stepper_run(b.stepper, 0, RATE, false, r) : b.device_comm->device->watch(b.device_comm, 1);
    assert_int_equal(st, DT_E_PEER);
    assert_non_null(strstr(dt_error_message(), while_captured ? "remote process exited" : "another rank is gone"));
    assert_true(failed == while_captured);
    assert_int_equal(fake_cuda_count(real.cuda, "abort"), 1);
    lost = failed = false;
    assert_int_equal(b.device_comm->device->watch(b.device_comm, 0), DT_E_PEER);
    assert_int_equal(dt_stepper_run(b.stepper, STEPS, RATE, false, r), DT_E_PEER);
    keep(&j->o, &b, r, 0);
    drop_bench(&b);
    return NULL;
}

TEST(test_lost_peer) {
    rank_job jobs[2];
    for (int n_steps = 0; n_steps <= 4; n_steps += 4) {
        run_ranks(jobs, 2, &(setting){.n_steps = n_steps}, lose_main);
        drop_ranks(jobs, 2);
    }
}

// The device waits for a peer that is gone, until the communicator is aborted: a wait without a deadline would hang.
static __thread dt_device device;
static bool is_gone(dt_backend *b) {
    return fake_cuda_count(dt_cuda_self(b)->api, "abort") == 0;
}
static bool done_when_aborted(dt_backend *b, void *stream) {
    return !is_gone(b) && device.stream_done(b, stream);
}
static dt_status ends_when_aborted(dt_backend *b, void *stream) {
    if (is_gone(b)) abort();
    return device.synchronize(b, stream);
}
static void hang(dt_backend *b) {
    device = dt_cuda_self(b)->device;
    dt_cuda_self(b)->device.stream_done = done_when_aborted;
    dt_cuda_self(b)->device.synchronize = ends_when_aborted;
}

// A run that ends, behind a failure of its own or not, when a peer is gone: every wait has the deadline. The source is
// taken away first (k = 1) or the stepper goes with it; numbers may be under way.
TEST(test_end_beside_a_lost_peer) {
    for (int k = 0; k < 2; k++) {
        bench b;
        dt_comm *alone;
        dt_step_result r[STEPS];
        assert_int_equal(dt_comm_create_self(&alone), DT_OK);
        make_bench(&b, &(setting){.ranks = alone});
        run_steps(&b, 0, 3, r);
        size_t n;
        int urgent = 0; // NCCL's stream alone
        const fake_cuda_call *calls = fake_cuda_log(api_of(&b), &n);
        for (size_t i = 0; i < n; i++) urgent += strcmp(calls[i].what, "urgent") == 0;
        assert_int_equal(urgent, 1);
        b.device_comm->set_deadline(b.device_comm, 0.1);
        hang(b.b);
        if (k) {
            assert_int_equal(dt_stepper_set_source(b.stepper, NULL), DT_E_PEER);
            assert_non_null(strstr(dt_error_message(), "another rank is gone"));
        } else {
            dt_stepper_destroy(b.stepper);
            b.stepper = NULL;
        }
        assert_int_equal(fake_cuda_count(api_of(&b), "abort"), 1);
        drop_bench(&b);
        dt_comm_destroy(alone);
    }
}

// ---- communicators ---------------------------------------------------------------------------------

static dt_status keep_card(dt_comm *c, void *data, size_t n_bytes, int root) {
    return DT_OK;
}

// The other rank connects, and then does nothing.
static dt_status bring_peer(dt_comm *c, void *data, size_t n_bytes, int root) {
    char path[256];
    snprintf(path, sizeof path, "%s/here.1", (char *)data + sizeof(int)); // behind the error
    fclose(fopen(path, "wb"));
    return DT_OK;
}

static void open_rank(dt_backend **b, dt_nccl_api **nccl) {
    assert_int_equal(fake_cuda_backend(b, &(dt_backend_opts){.threads = 1}), DT_OK);
    *nccl = fake_cuda_nccl(*b);
    real.nccl = **nccl;
}

// The peer never comes (hangs = 0), or comes and then does not take part: an error after the deadline, and no hang.
TEST(test_missing_peer) {
    for (int hangs = 0; hangs < 2; hangs++) {
        dt_backend *b;
        dt_nccl_api *nccl;
        dt_comm *c = NULL, boot = {.world_size = 2, .broadcast_bytes = hangs ? bring_peer : keep_card};
        open_rank(&b, &nccl);
        hang(b);
        assert_int_equal(dt_comm_create_nccl(&c, b, &boot, false, false, 1 << 14, 0.2), DT_E_PEER);
        assert_non_null(strstr(dt_error_message(),
                               hangs ? "the test of NCCL did not finish within" : "init did not finish within"));
        b->destroy(b);
    }
}

// NCCL's abort (k = 0) or destroy never returns: the watch ends the process.
static int stay(const dt_nccl_api *a, void *comm) {
    while (getppid()) pause();
    return 0;
}
TEST(test_stuck_nccl) {
    for (int k = 0; k < 2; k++) {
        int status;
        const pid_t child = fork();
        if (child == 0) {
            dt_backend *b;
            dt_nccl_api *nccl;
            dt_comm *c = NULL, boot = {.world_size = 2 - k, .broadcast_bytes = keep_card};
            alarm(60);
            dt_watch_start(&(dt_watch_limits){60, 0.5, 60});
            open_rank(&b, &nccl);
            if (k == 0) hang(b);
            *(k ? &nccl->destroy : &nccl->abort) = stay;
            if (dt_comm_create_nccl(&c, b, &boot, false, false, 1 << 14, 0.2) == DT_OK) c->finalize(c);
            _exit(1);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), DT_E_PEER);
    }
}

// The same where the device hangs although the communicator was aborted.
static bool never_done(dt_backend *b, void *stream) {
    return false;
}
static dt_status stay_on_device(dt_backend *b, void *stream) {
    return stay(NULL, NULL) ? DT_E_INTERNAL : DT_OK;
}
TEST(test_stuck_device) {
    int status;
    const pid_t child = fork();
    if (child == 0) {
        bench b;
        dt_comm *alone;
        dt_step_result r[STEPS];
        alarm(60);
        must(dt_comm_create_self(&alone));
        make_bench(&b, &(setting){.ranks = alone});
        run_steps(&b, 0, 3, r);
        b.device_comm->set_deadline(b.device_comm, 0.1);
        dt_watch_start(&(dt_watch_limits){60, 0.5, 60});
        dt_cuda_self(b.b)->device.stream_done = never_done;
        dt_cuda_self(b.b)->device.synchronize = stay_on_device;
        dt_stepper_destroy(b.stepper);
        _exit(1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), DT_E_PEER);
}

// Each call of NCCL fails once, on one of two ranks: with a line and DT_E_PEER where it matters, on the other rank too,
// which hears of it as the library would tell it; and nobody waits for ever.
static struct {
    const char *call;
    int rank, after, error;
} failing;
static _Atomic bool gone; // the rank whose call failed

typedef struct ending {
    dt_comm boot;
    dt_status status;
    bool called;
    char said[400];
} ending;

static int peers_state(const dt_nccl_api *a, void *comm, int *state) {
    const int e = real.nccl.async_error(a, comm, state);
    if (gone) *state = 6;
    return e;
}

enum { RUN = 32 * DT_CHUNK, SUMS_BYTES = (RUN + 300) * 4 }; // what two ranks divide, and a part of a run

static dt_status use_comm(dt_comm *c, dt_backend *b, void *memory, void *const streams[2]) {
    static const dt_reduce_steps steps[] = {DT_ALL_REDUCE, DT_REDUCE_SCATTER, DT_ALL_GATHER};
    const bool whole = strstr("reduce_scatter all_gather", failing.call) != NULL; // of runs alone
    dt_request r;
    c->device->attach(c, streams[0], streams[1], NULL, NULL);
    DT_TRY(c->device->register_memory(c, memory, SUMS_BYTES));
    for (int i = 0; i < 3; i++) {
        const dt_reduction x = {.steps = steps[i], .data = memory, .n = whole ? RUN + 300 : 300};
        DT_TRY(c->reduce_start(c, &x, &r));
        DT_TRY(c->wait(c, &r));
    }
    DT_TRY(c->all_reduce_f64(c, memory, 300));
    return c->device->drain(c, "the test");
}

static void *end_main(void *arg) {
    ending *j = arg;
    dt_backend *b;
    dt_comm *c = NULL;
    void *memory = NULL, *streams[2];
    must(fake_cuda_backend(&b, &(dt_backend_opts){.threads = 1, .world_size = 2}));
    dt_cuda_api *api = dt_cuda_self(b)->api;
    real.nccl = *fake_cuda_nccl(b);
    fake_cuda_nccl(b)->async_error = peers_state;
    for (int i = 0; i < 2; i++) must(b->device->stream_create(b, &streams[i], false));
    const bool fails = j->boot.rank == failing.rank;
    if (fails) fake_cuda_fail(api, failing.call, failing.after, failing.error);
    dt_status st = dt_comm_create_nccl(&c, b, &j->boot, true, true, 1 << 14, 600);
    if (st == DT_OK) must(b->device->alloc_shared(b, &memory, SUMS_BYTES, "sums"));
    if (st == DT_OK) st = use_comm(c, b, memory, streams);
    if (memory) c->device->deregister_memory(c, memory);
    if (st == DT_OK) st = c->finalize(c);
    j->status = st;
    snprintf(j->said, sizeof j->said, "%s", st == DT_OK ? "" : dt_error_message());
    if (st != DT_OK && fails) gone = true;
    dt_comm_destroy_nccl(c);
    b->free(b, memory, SUMS_BYTES);
    for (int i = 0; i < 2; i++) b->device->stream_destroy(b, streams[i]);
    j->called = fake_cuda_count(api, failing.call) > failing.after;
    b->destroy(b);
    return NULL;
}

static const struct {
    int code;
    const char *text;
} nccl_errors[] = {{6, "remote process exited"}, {2, "system error"}, {1, "unhandled cuda error"}};

static void end_with(const char *call, int rank, int after, int which) {
    static const char *const spared[] = {"mem_alloc", "mem_free", "comm_register", "comm_deregister"};
    ending jobs[2];
    pthread_t threads[2];
    failing.call = call, failing.rank = rank, failing.after = after;
    failing.error = nccl_errors[which].code;
    gone = false;
    pthread_barrier_init(&meeting, NULL, 2);
    for (int r = 0; r < 2; r++) {
        jobs[r] = (ending){.boot = {.rank = r, .world_size = 2, .broadcast_bytes = boot_broadcast}};
        assert_int_equal(pthread_create(&threads[r], NULL, end_main, &jobs[r]), 0);
    }
    for (int r = 0; r < 2; r++) pthread_join(threads[r], NULL);
    pthread_barrier_destroy(&meeting);
    bool matters = jobs[rank].called;
    for (size_t i = 0; i < sizeof spared / sizeof *spared; i++) matters &= strcmp(call, spared[i]) != 0;
    for (int r = 0; r < 2; r++) {
        const ending *j = &jobs[r];
        const bool told = strstr(j->said, nccl_errors[which].text) && !strchr(j->said, '\n') && j->status == DT_E_PEER;
        if (r == rank && j->status == DT_OK ? matters : j->status != DT_OK && !matters)
            fail_msg("%s %d of rank %d: %d: %d %s", call, after, rank, r, j->status, j->said);
        if (r == rank && matters && !told) fail_msg("%s %d of rank %d: %s", call, after, rank, j->said);
        if (j->status != DT_OK && j->status != DT_E_PEER) fail_msg("%s %d: %d %s", call, after, j->status, j->said);
    }
}

TEST(test_each_call_fails_once) {
    static const char *const calls[] = {"unique_id",      "init",          "async_error",    "all_reduce",  "broadcast",
                                        "reduce_scatter", "reduce",        "all_gather",     "group_start", "group_end",
                                        "send",           "recv",          "finalize",       "destroy",     "mem_alloc",
                                        "mem_free",       "comm_register", "comm_deregister"};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        for (int k = 0; k < 12; k++) // the rank, which of its calls, the error
            end_with(calls[i], k & 1, k & 2, k / 4);
}

// An abort that fails behind another failure is a line, not the error.
static int abort_comm(const dt_nccl_api *a, void *comm) {
    real.nccl.abort(a, comm);
    return 6;
}
TEST(test_abort_that_fails) {
    char text[400] = "";
    dt_backend *b;
    dt_nccl_api *nccl;
    dt_comm *c = NULL, *boot;
    const char *log = in_folder("log");
    must(dt_log_open(log));
    dt_log_set_level(DT_LOG_WARN);
    must(dt_comm_create_self(&boot));
    open_rank(&b, &nccl);
    nccl->abort = abort_comm;
    must(dt_comm_create_nccl(&c, b, boot, false, false, 1 << 14, 600));
    fake_cuda_fail(dt_cuda_self(b)->api, "finalize", 0, 6);
    assert_int_equal(c->finalize(c), DT_E_PEER);
    assert_non_null(strstr(dt_error_message(), "NCCL finalize failed: remote process exited"));
    dt_comm_destroy_nccl(c);
    dt_comm_destroy(boot);
    b->destroy(b);
    dt_log_close();
    dt_log_set_level(DT_LOG_ERROR);
    FILE *said = fopen(log, "r");
    assert_true(said && fgets(text, sizeof text, said));
    assert_non_null(strstr(text, "NCCL abort failed: remote process exited"));
    assert_null(fgets(text, sizeof text, said));
    fclose(said);
}

static int set_up(void **state) {
    dt_log_set_level(DT_LOG_ERROR);
    return folder_make(state) || setenv("FAKE_NCCL_DIR", folder_path, 1);
}

TEST_MAIN(set_up, folder_remove)
