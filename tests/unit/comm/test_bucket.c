// test_bucket.c: buckets over a fake comm that records what is started, and over comm_self.
//
// The fake "all-reduce" doubles the data when it is waited for, so a bucket that is started twice,
// never, or before its gradients are there shows in the numbers.
#include "comm/bucket.h"
#include "comm/comm_model.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <pthread.h>

#include "testing.h"

enum { MAX_STARTS = 64, N_GRADS = 20, GRAD = 100, TAIL = 7, N = N_GRADS * GRAD + TAIL, REPLICAS = 4 };

typedef struct fake {
    float *data[MAX_STARTS];
    int64_t n[MAX_STARTS];
    uint16_t *bf16[MAX_STARTS];
    dt_reduce_steps steps[MAX_STARTS];
    int64_t at[MAX_STARTS];
    int n_starts, n_waits;
    atomic_int n_progress;
    dt_status fail_wait;
    _Atomic dt_status fail_progress;
} fake;

static dt_status fake_start(dt_comm *c, const dt_reduction *x, dt_request *r) {
    fake *f = c->self;
    assert_true(f->n_starts < MAX_STARTS);
    f->data[f->n_starts] = x->data;
    f->n[f->n_starts] = x->n;
    f->bf16[f->n_starts] = x->bf16;
    f->steps[f->n_starts] = x->steps;
    f->at[f->n_starts] = x->at;
    r->id = f->n_starts++;
    return DT_OK;
}

static dt_status fake_progress(dt_comm *c) {
    fake *f = c->self;
    f->n_progress++;
    return f->fail_progress == DT_OK ? DT_OK : dt_fail(f->fail_progress, "rank 7 has gone");
}

static dt_status fake_wait(dt_comm *c, dt_request *r) {
    fake *f = c->self;
    assert_int_equal(r->id, f->n_waits);
    if (f->fail_wait != DT_OK) return dt_fail(f->fail_wait, "rank 7 on somewhere is lost");
    for (int64_t i = 0; i < f->n[r->id]; i++) f->data[r->id][i] *= 2;
    f->n_waits++;
    r->id = -1;
    return DT_OK;
}

static dt_comm fake_comm(fake *f) {
    return (dt_comm){.name = "fake",
                     .self = f,
                     .world_size = 2,
                     .reduce_start = fake_start,
                     .progress = fake_progress,
                     .wait = fake_wait};
}

static int64_t ends[N_GRADS];

static dt_buckets *create(dt_comm *c, int n_replicas, int64_t n_elements, bool helper) {
    for (int g = 0; g < N_GRADS; g++) ends[g] = (int64_t)(g + 1) * GRAD;
    dt_buckets_opts o = {.grad_end = ends,
                         .n_grads = N_GRADS,
                         .n_elements = n_elements,
                         .bucket_bytes = 450 * sizeof(float),
                         .n_replicas = n_replicas,
                         .progress_thread = helper};
    dt_buckets *b = NULL;
    assert_int_equal(dt_buckets_create(&b, c, &o), DT_OK);
    return b;
}

// Five gradients each; the last has the tail.
TEST(test_cuts_and_order) {
    static const int64_t begins[] = {0, 500, 1000, 1500};
    fake f = {0};
    dt_comm c = fake_comm(&f);
    float flat[N], *flats[] = {flat};
    for (int i = 0; i < N; i++) flat[i] = (float)i;
    dt_buckets *b = create(&c, 1, N, false);
    dt_buckets_begin(b, flats);
    for (int g = 2; g < N_GRADS; g++) dt_buckets_ready(b, 0, g);
    dt_buckets_poll(b);
    assert_int_equal(f.n_starts, 0); // bucket 1 is ready but bucket 0 is not
    dt_buckets_ready(b, 0, 1);
    dt_buckets_poll(b);
    assert_int_equal(f.n_starts, 0);
    dt_buckets_ready(b, 0, 0);
    dt_buckets_poll(b);
    assert_int_equal(f.n_starts, 3); // the tail keeps the last for finish
    double exposed = -1;
    assert_int_equal(dt_buckets_finish(b, &exposed), DT_OK);
    assert_true(exposed >= 0);
    assert_int_equal(f.n_starts, 4);
    assert_int_equal(f.n_waits, 4);
    for (int k = 0; k < 4; k++) assert_ptr_equal(f.data[k], flat + begins[k]);
    for (int k = 0; k < 4; k++) assert_int_equal(f.n[k], (k < 3 ? begins[k + 1] : N) - begins[k]);
    for (int k = 0; k < 4; k++) assert_int_equal(f.steps[k], DT_ALL_REDUCE);
    for (int i = 0; i < N; i++) assert_float_equal(flat[i], 2 * i, 0);
    dt_buckets_destroy(b);
}

// The gradients of two buckets are frozen: nothing between the last one that is trained and the tail travels.
TEST(test_frozen) {
    static const int64_t begins[] = {0, 500, N - TAIL}, counts[] = {500, 500, TAIL};
    fake f = {0};
    dt_comm c = fake_comm(&f);
    float flat[N] = {0}, *flats[] = {flat};
    for (int g = 0; g < N_GRADS; g++) ends[g] = (int64_t)(g + 1) * GRAD;
    const dt_buckets_opts o = {.grad_end = ends,
                               .n_grads = N_GRADS / 2,
                               .n_elements = N,
                               .sums_at = N - TAIL,
                               .bucket_bytes = 450 * sizeof(float),
                               .n_replicas = 1};
    dt_buckets *b = NULL;
    double exposed;
    assert_int_equal(dt_buckets_create(&b, &c, &o), DT_OK);
    dt_buckets_begin(b, flats);
    for (int g = 0; g < N_GRADS / 2; g++) dt_buckets_ready(b, 0, g);
    dt_buckets_poll(b);
    assert_int_equal(f.n_starts, 2);
    assert_int_equal(dt_buckets_finish(b, &exposed), DT_OK);
    assert_int_equal(f.n_starts, 3);
    for (int k = 0; k < 3; k++) {
        assert_ptr_equal(f.data[k], flat + begins[k]);
        assert_int_equal(f.n[k], counts[k]);
    }
    dt_buckets_destroy(b);
}

// Gradients are summed where their owners are, the tail everywhere.
TEST(test_scatter) {
    static const int64_t begins[] = {0, 500, 1000, 1500, N - TAIL, N};
    fake f = {0};
    dt_comm c = fake_comm(&f);
    float flat[N] = {0}, *flats[] = {flat};
    for (int g = 0; g < N_GRADS; g++) ends[g] = (int64_t)(g + 1) * GRAD;
    const dt_buckets_opts o = {.grad_end = ends,
                               .n_grads = N_GRADS,
                               .n_elements = N,
                               .bucket_bytes = 450 * sizeof(float),
                               .scatter = true,
                               .n_replicas = 1};
    dt_buckets *b = NULL;
    double exposed;
    assert_int_equal(dt_buckets_create(&b, &c, &o), DT_OK);
    dt_buckets_begin(b, flats);
    assert_int_equal(dt_buckets_finish(b, &exposed), DT_OK);
    assert_int_equal(f.n_starts, 5);
    for (int k = 0; k < 5; k++) {
        assert_ptr_equal(f.data[k], flat + begins[k]);
        assert_int_equal(f.n[k], begins[k + 1] - begins[k]);
        assert_int_equal(f.at[k], begins[k]);
        assert_int_equal(f.steps[k], k < 4 ? DT_REDUCE_SCATTER : DT_ALL_REDUCE);
    }
    dt_buckets_destroy(b);
}

// Gradients travel as bf16 through their place in `low`, the tail alone as f32.
TEST(test_low) {
    static const int64_t begins[] = {0, 500, 1000, 1500, N - TAIL, N};
    fake f = {0};
    dt_comm c = fake_comm(&f);
    float flat[N] = {0}, *flats[] = {flat};
    uint16_t low[N - TAIL];
    for (int g = 0; g < N_GRADS; g++) ends[g] = (int64_t)(g + 1) * GRAD;
    const dt_buckets_opts o = {.grad_end = ends,
                               .n_grads = N_GRADS,
                               .n_elements = N,
                               .bucket_bytes = 450 * sizeof(float),
                               .bf16 = low,
                               .n_replicas = 1};
    dt_buckets *b = NULL;
    assert_int_equal(dt_buckets_create(&b, &c, &o), DT_OK);
    dt_buckets_begin(b, flats);
    for (int g = 0; g < N_GRADS; g++) dt_buckets_ready(b, 0, g);
    dt_buckets_poll(b);
    assert_int_equal(f.n_starts, 4); // all but the tail
    double exposed;
    assert_int_equal(dt_buckets_finish(b, &exposed), DT_OK);
    assert_int_equal(f.n_starts, 5);
    for (int k = 0; k < 5; k++) {
        assert_ptr_equal(f.data[k], flat + begins[k]);
        assert_int_equal(f.n[k], begins[k + 1] - begins[k]);
        assert_ptr_equal(f.bf16[k], k < 4 ? low + begins[k] : NULL);
    }
    dt_buckets_destroy(b);
}

// Without a tail the last bucket need not wait for finish, and steps repeat.
TEST(test_no_tail_and_repeat) {
    fake f = {0};
    dt_comm c = fake_comm(&f);
    float flat[N], *flats[] = {flat};
    dt_buckets *b = create(&c, 1, N - TAIL, false);
    for (int step = 0; step < 3; step++) {
        double exposed;
        f.n_starts = f.n_waits = 0;
        for (int i = 0; i < N; i++) flat[i] = 1;
        dt_buckets_begin(b, flats);
        for (int g = 0; g < N_GRADS; g++) dt_buckets_ready(b, 0, g);
        dt_buckets_poll(b);
        assert_int_equal(f.n_starts, 4);
        assert_int_equal(dt_buckets_finish(b, &exposed), DT_OK);
        for (int i = 0; i < N; i++) assert_float_equal(flat[i], i < N - TAIL ? 2 : 1, 0);
    }
    dt_buckets_destroy(b);
}

// Gradients that nobody reports (nothing flows into them) are reduced all the same.
TEST(test_silent_gradients) {
    fake f = {0};
    dt_comm c = fake_comm(&f);
    float flat[N], *flats[] = {flat};
    for (int i = 0; i < N; i++) flat[i] = 3;
    dt_buckets *b = create(&c, 1, N, false);
    double exposed;
    dt_buckets_begin(b, flats);
    dt_buckets_ready(b, 0, 5);
    dt_buckets_poll(b);
    assert_int_equal(dt_buckets_finish(b, &exposed), DT_OK);
    for (int i = 0; i < N; i++) assert_float_equal(flat[i], 6, 0);
    dt_buckets_destroy(b);
}

typedef struct worker {
    dt_buckets *b;
    int replica;
    float *flat;
} worker;

static void *run_replica(void *arg) {
    worker *w = arg;
    for (int g = 0; g < N_GRADS; g++) {
        for (int i = g * GRAD; i < (g + 1) * GRAD; i++) w->flat[i] = (float)(i + w->replica);
        dt_buckets_ready(w->b, w->replica, g);
        if (w->replica == 0) dt_buckets_poll(w->b);
    }
    for (int i = N_GRADS * GRAD; i < N; i++) w->flat[i] = (float)(i + w->replica);
    return NULL;
}

static void run_replicas(dt_comm *c, bool helper, float times) {
    static float flat[REPLICAS][N];
    float *flats[REPLICAS];
    worker w[REPLICAS];
    pthread_t t[REPLICAS];
    dt_buckets *b = create(c, REPLICAS, N, helper);
    for (int step = 0; step < 20; step++) {
        if (times == 2) ((fake *)c->self)->n_starts = ((fake *)c->self)->n_waits = 0;
        for (int l = 0; l < REPLICAS; l++) flats[l] = flat[l];
        dt_buckets_begin(b, flats);
        for (int l = 0; l < REPLICAS; l++) w[l] = (worker){b, l, flat[l]};
        for (int l = 1; l < REPLICAS; l++) pthread_create(&t[l], NULL, run_replica, &w[l]);
        run_replica(&w[0]);
        for (int l = 1; l < REPLICAS; l++) pthread_join(t[l], NULL);
        double exposed;
        assert_int_equal(dt_buckets_finish(b, &exposed), DT_OK);
        for (int i = 0; i < N; i++)
            assert_float_equal(flat[0][i], times * (float)(REPLICAS * i + REPLICAS * (REPLICAS - 1) / 2), 0);
    }
    dt_buckets_destroy(b);
}

TEST(test_replicas) {
    for (int helper = 0; helper < 2; helper++) {
        fake f = {0};
        dt_comm c = fake_comm(&f);
        run_replicas(&c, helper, 2);
        dt_comm *alone;
        assert_int_equal(dt_comm_create_self(&alone), DT_OK);
        run_replicas(alone, helper, 1);
        dt_comm_destroy(alone);
    }
}

TEST(test_error_names_bucket) {
    for (int helper = 0; helper < 2; helper++) {
        fake f = {.fail_wait = DT_E_PEER};
        dt_comm c = fake_comm(&f);
        float flat[N] = {0}, *flats[] = {flat};
        dt_buckets *b = create(&c, 1, N, helper);
        double exposed;
        dt_buckets_begin(b, flats);
        assert_int_equal(dt_buckets_finish(b, &exposed), DT_E_PEER);
        assert_string_equal(dt_error_message(), "gradient bucket 1 of 4: rank 7 on somewhere is lost");
        dt_buckets_destroy(b);
    }
}

// 64 gradients of 64 KiB in buckets of 1.5 MiB: the first has 1 MiB.
TEST(test_first_is_small) {
    enum { COUNT = 64, EACH = 16384 };
    static float flat[COUNT * EACH];
    int64_t grad_end[COUNT];
    for (int g = 0; g < COUNT; g++) grad_end[g] = (int64_t)(g + 1) * EACH;
    fake f = {0};
    dt_comm c = fake_comm(&f);
    dt_buckets_opts o = {
        .grad_end = grad_end, .n_grads = COUNT, .n_elements = COUNT * EACH, .bucket_bytes = 3 << 19, .n_replicas = 1};
    float *flats[] = {flat};
    double exposed;
    dt_buckets *b = NULL;
    assert_int_equal(dt_buckets_create(&b, &c, &o), DT_OK);
    dt_buckets_begin(b, flats);
    assert_int_equal(dt_buckets_finish(b, &exposed), DT_OK);
    assert_int_equal(f.n_starts, 3);
    for (int k = 0; k < 3; k++) assert_int_equal(f.n[k], (k == 0 ? 16 : 24) * EACH);
    dt_buckets_destroy(b);
}

// Between two polls, while a node takes long, the helper moves what has started; finish reports what it met.
TEST(test_helper_moves) {
    for (int fails = 0; fails < 2; fails++) {
        fake f = {0};
        dt_comm c = fake_comm(&f);
        float flat[N] = {0}, *flats[] = {flat};
        double exposed;
        dt_buckets *b = create(&c, 1, N, true);
        for (int step = 0; step < 2; step++) {
            f.n_starts = f.n_waits = f.n_progress = 0;
            dt_buckets_begin(b, flats);
            for (int g = 0; g < 5; g++) dt_buckets_ready(b, 0, g);
            f.fail_progress = DT_OK;
            dt_buckets_poll(b);
            f.fail_progress = fails ? DT_E_PEER : DT_OK;
            const int before = f.n_progress;
            while (f.n_progress < before + (fails ? 1 : 3)) usleep(1000);
            assert_int_equal(dt_buckets_finish(b, &exposed), fails ? DT_E_PEER : DT_OK);
            if (fails) assert_non_null(strstr(dt_error_message(), "rank 7 has gone"));
        }
        dt_buckets_destroy(b);
    }
}

// A helper in the middle of a step must not keep destroy waiting.
TEST(test_destroy_in_step) {
    fake f = {0};
    dt_comm c = fake_comm(&f);
    float flat[N] = {0}, *flats[] = {flat};
    dt_buckets *b = create(&c, 1, N, true);
    dt_buckets_begin(b, flats);
    for (int g = 0; g < 5; g++) dt_buckets_ready(b, 0, g);
    dt_buckets_poll(b);
    dt_buckets_destroy(b);
}

// ---- the model of a fabric ---------------------------------------------------------------------------

enum { LAYERS = 20, LAYER = 1 << 18 }; // 20 gradients of 1 MiB

static const dt_fabric links = {
    .ranks_per_host = 1, .cores = 1, .host_bytes_s = 1e7, .copy_bytes_s = 1e12, .tcp_bytes_s = 1e12, .latency_s = 1e-4};

// Seconds behind the last of 20 nodes of node_s, each of which finishes a gradient, until all are reduced.
static double exposed(const dt_fabric *f, int world_size, int64_t bucket_bytes, double node_s) {
    int64_t layer_ends[LAYERS];
    float none = 0, *flat = &none; // the model moves no data
    double now_s = 0, unused_s;
    dt_comm *c;
    dt_buckets *b;
    for (int i = 0; i < LAYERS; i++) layer_ends[i] = (int64_t)(i + 1) * LAYER;
    const dt_buckets_opts o = {.grad_end = layer_ends,
                               .n_grads = LAYERS,
                               .n_elements = (int64_t)LAYERS * LAYER,
                               .bucket_bytes = bucket_bytes,
                               .n_replicas = 1};
    must(dt_comm_create_model(&c, f, world_size, 1, &now_s));
    must(dt_buckets_create(&b, c, &o));
    dt_buckets_begin(b, &flat);
    for (int i = 0; i < LAYERS; i++) {
        for (int k = 0; k < 50; k++) { // the helper calls meanwhile
            now_s += node_s / 50;
            must(c->progress(c));
        }
        dt_buckets_ready(b, 0, i);
        dt_buckets_poll(b);
    }
    must(dt_buckets_finish(b, &unused_s));
    dt_buckets_destroy(b);
    must(c->finalize(c));
    dt_comm_destroy(c);
    return now_s - LAYERS * node_s;
}

#define NEAR(x, want) assert_true(fabs((x) - (want)) < 0.1 * (want))

// On four hosts each host sends 2 * 3/4 of a buffer: 157 ms a MiB over 10 MB/s.
TEST(test_model_of_links) {
    const double mib_s = 1.5 * 1048576 / 1e7;
    NEAR(exposed(&links, 4, 1 << 20, 0), LAYERS * mib_s);     // nothing to hide behind
    NEAR(exposed(&links, 4, 1 << 20, 1), mib_s);              // all but the last bucket
    NEAR(exposed(&links, 4, 32 << 20, 1), 19 * mib_s);        // the first has 1 MiB, the other all
    NEAR(exposed(&links, 4, 4 << 20, 1), 3 * mib_s);          // 1, 4, 4, 4, 4 and 3 MiB
    NEAR(exposed(&links, 4, 1 << 20, mib_s / 2), 10 * mib_s); // links are slower than nodes
    dt_fabric two = links;
    two.ranks_per_host = 2; // the same bytes, by two
    NEAR(exposed(&two, 8, 1 << 20, 0), LAYERS * mib_s);
    assert_true(exposed(&two, 2, 1 << 20, 0) < 1e-3);
}

// On GPUs sums run by themselves, one behind the other.
TEST(test_model_of_gpus) {
    const dt_fabric f = {.gpus = true, .ranks_per_host = 8, .host_bytes_s = 1e9, .gpu_bytes_s = 300e9};
    const double mib_s = 2 * 1048576 / 1e9;
    NEAR(exposed(&f, 1024, 32 << 20, 0), LAYERS * mib_s);
    NEAR(exposed(&f, 1024, 32 << 20, 0.1), 19 * mib_s);
    assert_true(exposed(&f, 1024, 4 << 20, 0) > LAYERS * mib_s); // six of them
    assert_true(exposed(&f, 8, 32 << 20, 0) < 0.02 * exposed(&f, 16, 32 << 20, 0));
}

TEST_MAIN(NULL, NULL)
