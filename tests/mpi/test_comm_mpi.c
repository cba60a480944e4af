// test_comm_mpi.c: run by test_comm.sh under mpirun; the program itself does not link MPI.
//
//   test_comm_mpi all            every collective, buckets, the tree; exit 0
//   test_comm_mpi stop R         rank R stops itself (SIGSTOP) before an all-reduce
//   test_comm_mpi kill R         rank R kills itself (SIGKILL) before an all-reduce
//   test_comm_mpi reduce N       all-reduces N floats, for who counts bytes on links
//   test_comm_mpi broadcast N    the same with a broadcast from rank 1
//   test_comm_mpi name           prints which comm a process gets
//   test_comm_mpi bench [MS]     all-reduce bandwidth; buckets of ResNet-18 polled and with a helper, nodes of MS ms
//   test_comm_mpi model GBIT MS  the same with a helper, on hosts whose links have GBIT Gbit/s, beside what comm_model.h
//                                predicts
//
// Every rank can compute every other rank's data, so results are compared bit by bit with the sum that comm promises.
#include "backend/step_block.h"
#include "base/os.h"
#include "base/rank_report.h"
#include "base/rng.h"
#include "base/watch.h"
#include "comm/bucket.h"
#include "comm/comm.h"
#include "comm/comm_model.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static dt_comm *comm;

#define CHECK(condition, ...)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "rank %d: %s:%d: %s: ", comm ? comm->rank : -1, __FILE__, __LINE__, #condition);           \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            fprintf(stderr, " (%s)\n", dt_error_message());                                                            \
            if (comm) comm->abort(comm, 1);                                                                            \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

enum { PERIOD = 977, MAX_RANKS = 16 };
static float uniform[PERIOD];

static void fill_uniform(void) {
    dt_rng r = {.seed = 11, .purpose = 3};
    for (uint32_t i = 0; i < PERIOD; i++) uniform[i] = dt_rng_uniform(&r, i) - 0.5f;
}

// Values whose sums round, so that another order of additions gives other bits.
static float value(int rank, int64_t i, int salt) {
    float u = uniform[(i + 131 * rank + 17 * salt) % PERIOD];
    return rank % 2 ? u * 1e4f : u;
}

// The hosts of the ranks by name, in the order of their first ranks.
static int host_of[MAX_RANKS], n_hosts;

static void find_hosts(void) {
    static char hosts[MAX_RANKS][64];
    char mine[64] = "";
    CHECK(comm->world_size <= MAX_RANKS, "%d ranks", comm->world_size);
    gethostname(mine, sizeof mine - 1);
    CHECK(comm->all_gather_bytes(comm, mine, sizeof mine, hosts) == DT_OK, "names");
    for (int r = 0; r < comm->world_size; r++) {
        int first = 0;
        while (strcmp(hosts[first], hosts[r]) != 0) first++;
        host_of[r] = first == r ? n_hosts++ : host_of[first];
    }
}

static float unchanged(float x) {
    return x;
}

// The sum of the hosts' sums; `round` is what leaves a rank or a host.
static float expected_sum(int64_t i, int salt, float (*round)(float)) {
    float sum = 0;
    for (int h = 0; h < n_hosts; h++) {
        float of_host = 0;
        bool first = true;
        for (int r = 0; r < comm->world_size; r++) {
            if (host_of[r] != h) continue;
            const float x = round(value(r, i, salt));
            of_host = first ? x : of_host + x;
            first = false;
        }
        sum = h == 0 ? round(of_host) : sum + round(of_host);
    }
    return round(sum);
}

static float expected(int64_t i, int salt) {
    return expected_sum(i, salt, unchanged);
}

static float *filled(int64_t n, int salt) {
    float *x = malloc((size_t)(n ? n : 1) * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = value(comm->rank, i, salt);
    return x;
}

static void check_sum(const float *x, int64_t n, int salt, const char *what) {
    for (int64_t i = 0; i < n; i++) {
        float want = expected(i, salt);
        CHECK(memcmp(&x[i], &want, 4) == 0, "%s of %lld: element %lld is %.9g, not %.9g", what, (long long)n,
              (long long)i, (double)x[i], (double)want);
    }
}

static void test_all_reduce(void) {
    static const int64_t sizes[] = {0, 1, 3, 16, 1000, 4097, 16384, 100003, 1 << 20, 2500007};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int64_t n = sizes[s];
        float *x = filled(n, (int)s);
        CHECK(comm->all_reduce_f32(comm, x, n) == DT_OK, "n = %lld", (long long)n);
        check_sum(x, n, (int)s, "all-reduce");
        free(x);
        double *d = malloc((size_t)(n + 1) * sizeof *d);
        int64_t *m = malloc((size_t)(n + 1) * sizeof *m);
        for (int64_t i = 0; i < n; i++) {
            d[i] = (double)(comm->rank + 1) * (double)i;
            m[i] = (i + 3 * comm->rank) % 7;
        }
        CHECK(comm->all_reduce_f64(comm, d, n) == DT_OK, "n = %lld", (long long)n);
        CHECK(comm->all_reduce_max_i64(comm, m, n) == DT_OK, "n = %lld", (long long)n);
        for (int64_t i = 0; i < n; i++) {
            int64_t most = 0, w = comm->world_size;
            for (int r = 0; r < w; r++) most = (i + 3 * r) % 7 > most ? (i + 3 * r) % 7 : most;
            CHECK(d[i] == (double)(w * (w + 1) / 2) * (double)i, "f64 %lld", (long long)i);
            CHECK(m[i] == most, "max %lld", (long long)i);
        }
        free(d);
        free(m);
    }
}

static void test_broadcast(void) {
    static const size_t sizes[] = {0, 5, 40000, 1000007};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (int root = 0; root < comm->world_size; root++) {
            size_t n = sizes[s];
            unsigned char *x = malloc(n + 1);
            x[n] = 0xee;
            for (size_t i = 0; i < n; i++) x[i] = comm->rank == root ? (unsigned char)(i * 31 + (size_t)root) : 0;
            CHECK(comm->broadcast_bytes(comm, x, n, root) == DT_OK, "n = %zu", n);
            for (size_t i = 0; i < n; i++)
                CHECK(x[i] == (unsigned char)(i * 31 + (size_t)root), "n = %zu, byte %zu", n, i);
            CHECK(x[n] == 0xee, "wrote past the end of %zu bytes", n);
            free(x);
        }
    }
}

static void test_all_gather(void) {
    int w = comm->world_size;
    for (int n = 1; n < 70000; n = n * 7 + 1) {
        char *mine = malloc((size_t)n), *all = malloc((size_t)n * (size_t)w);
        memset(mine, 'a' + comm->rank, (size_t)n);
        CHECK(comm->all_gather_bytes(comm, mine, (size_t)n, all) == DT_OK, "n = %d", n);
        for (int i = 0; i < n * w; i++) CHECK(all[i] == 'a' + i / n, "byte %d of %d", i, n);
        free(mine);
        free(all);
    }
}

// Ranks wait in different orders, and enter a barrier with reductions still in flight: a comm that
// moved only what is waited for would hang here.
static void test_several_in_flight(void) {
    enum { N = 5 };
    int64_t n[N] = {300000, 7, 65536, 1, 123457};
    float *x[N];
    dt_request req[N];
    for (int round = 0; round < 3; round++) {
        for (int k = 0; k < N; k++) {
            x[k] = filled(n[k], 50 + k);
            CHECK(comm->reduce_start(comm, &(dt_reduction){DT_ALL_REDUCE, x[k], n[k], NULL}, &req[k]) == DT_OK,
                  "start %d", k);
        }
        CHECK(comm->progress(comm) == DT_OK, "progress");
        if (comm->rank % 2) CHECK(comm->wait(comm, &req[4]) == DT_OK, "wait");
        CHECK(comm->barrier(comm) == DT_OK, "barrier");
        for (int k = 0; k < N; k++) {
            int which = comm->rank % 2 ? k : N - 1 - k;
            CHECK(comm->wait(comm, &req[which]) == DT_OK, "wait %d", which);
            CHECK(req[which].id < 0, "request %d is not finished", which);
        }
        for (int k = 0; k < N; k++) {
            check_sum(x[k], n[k], 50 + k, "started all-reduce");
            free(x[k]);
        }
    }
}

// To nearest, ties to even, by arithmetic.
static float rounded_to_bf16(float x) {
    int e;
    if (x == 0) return x;
    frexpf(x, &e);
    return ldexpf(nearbyintf(ldexpf(x, 8 - e)), e - 8);
}

static void test_bf16(void) {
    static const int64_t sizes[] = {1, 1000, 100003, 2500007};
    if (comm->world_size == 1) return;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        const int64_t n = sizes[s];
        dt_request r;
        float *x = filled(n, (int)s);
        uint16_t *low = malloc((size_t)n * sizeof *low);
        CHECK(comm->reduce_start(comm, &(dt_reduction){DT_ALL_REDUCE, x, n, low}, &r) == DT_OK, "start");
        CHECK(comm->wait(comm, &r) == DT_OK, "wait");
        for (int64_t i = 0; i < n; i++) {
            const float sum = expected_sum(i, (int)s, rounded_to_bf16);
            CHECK(memcmp(&sum, &x[i], 4) == 0, "bf16 %lld of %lld: %.9g, not %.9g", (long long)i, (long long)n,
                  (double)x[i], (double)sum);
        }
        free(x);
        free(low);
    }
}

// Steps alone, of a vector cut in pieces: a reduce-scatter leaves the all-reduce's bits with the owners of whole chunks;
// each element has one owner, who owns it however the vector is cut; after an all-gather everybody has them.
static void run_steps(dt_reduce_steps steps, float *x, int64_t n, int64_t cut) {
    for (int64_t at = 0; at < n; at += cut) {
        const dt_reduction part = {.steps = steps, .data = x + at, .n = n - at < cut ? n - at : cut, .at = at};
        dt_request r;
        CHECK(comm->reduce_start(comm, &part, &r) == DT_OK && comm->wait(comm, &r) == DT_OK, "step");
    }
}

static void test_steps(void) {
    static const int64_t sizes[] = {1, 1000, 600007}, cuts[] = {1, 300, 77777};
    int64_t n_own = 0;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        const int64_t n = sizes[s];
        float *x = filled(n, (int)s), *whole = filled(n, (int)s);
        double *owners = calloc((size_t)n, sizeof *owners);
        int64_t begin, end;
        n_own = 0;
        run_steps(DT_REDUCE_SCATTER, x, n, cuts[s]);
        CHECK(comm->all_reduce_f32(comm, whole, n) == DT_OK, "all-reduce");
        for (int k = 0; comm->own_part(comm, n, k, &begin, &end); k++) {
            CHECK(begin == end || (begin % DT_CHUNK == 0 && (end % DT_CHUNK == 0 || end == n)), "[%lld, %lld) of %lld",
                  (long long)begin, (long long)end, (long long)n);
            for (int64_t i = begin; i < end; i++) {
                CHECK(memcmp(&x[i], &whole[i], 4) == 0, "own element %lld", (long long)i);
                owners[i]++;
            }
            n_own += end - begin;
        }
        for (int64_t i = 0; i < n; i++) x[i] = owners[i] > 0 ? x[i] : -1;
        run_steps(DT_ALL_GATHER, x, n, n);
        CHECK(memcmp(x, whole, (size_t)n * 4) == 0, "all-gather of %lld", (long long)n);
        CHECK(comm->all_reduce_f64(comm, owners, n) == DT_OK, "all-reduce");
        for (int64_t i = 0; i < n; i++) CHECK(owners[i] == 1, "element %lld has %g owners", (long long)i, owners[i]);
        free(x);
        free(whole);
        free(owners);
    }
    const int64_t fair = 600007 / comm->world_size; // ranks of one host have about as much
    CHECK(comm->host_layout_hash || llabs((long long)(n_own - fair)) < 0.4 * (double)fair,
          "%lld elements, not about %lld", (long long)n_own, (long long)fair);
}

static float tree_of_ranks(int lo, int hi, int64_t i, int salt) {
    if (hi - lo == 1) return value(lo, i, salt);
    const int mid = lo + dt_tree_split(hi - lo);
    const float a = tree_of_ranks(lo, mid, i, salt), b = tree_of_ranks(mid, hi, i, salt);
    return a + b;
}

static void test_tree_sum(void) {
    static const int64_t sizes[] = {1, 1000, 600007};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes && comm->sums_by_tree; s++) {
        float *x = filled(sizes[s], (int)s);
        const dt_reduction tree = {.steps = DT_ALL_REDUCE, .data = x, .n = sizes[s], .tree = true};
        dt_request r;
        CHECK(comm->reduce_start(comm, &tree, &r) == DT_OK && comm->wait(comm, &r) == DT_OK, "tree");
        for (int64_t i = 0; i < sizes[s]; i++) {
            const float want = tree_of_ranks(0, comm->world_size, i, (int)s);
            CHECK(memcmp(&x[i], &want, 4) == 0, "element %lld of a tree", (long long)i);
        }
        free(x);
    }
}

static float micro_value(int micro, int64_t i) {
    return value(micro, i, 99);
}

static float tree_reference(int lo, int hi, int64_t i) {
    if (hi - lo == 1) return micro_value(lo, i);
    int left = 1;
    while (left * 2 < hi - lo) left *= 2;
    float a = tree_reference(lo, lo + left, i), b = tree_reference(lo + left, hi, i);
    return a + b;
}

static void test_tree_over_ranks(void) {
    enum { N_MICRO = 13, N = 50001 };
    dt_tree_action *act;
    int n_act, n_flats;
    CHECK(dt_tree_plan(&act, &n_act, &n_flats, comm->rank, comm->world_size, N_MICRO) == DT_OK, "plan");
    float **flat = calloc((size_t)n_flats, sizeof *flat);
    for (int s = 0; s < n_flats; s++) flat[s] = calloc(N, sizeof **flat);
    for (int k = 0; k < n_act; k++) {
        float *a = flat[act[k].a], *b = act[k].b >= 0 ? flat[act[k].b] : NULL;
        if (act[k].kind == DT_TREE_LEAF)
            for (int64_t i = 0; i < N; i++) a[i] = micro_value(act[k].micro, i);
        if (act[k].kind == DT_TREE_SEND) CHECK(comm->send_f32(comm, a, N, act[k].peer) == DT_OK, "send");
        if (act[k].kind == DT_TREE_RECV) CHECK(comm->recv_f32(comm, b, N, act[k].peer) == DT_OK, "receive");
        if (act[k].kind == DT_TREE_RECV || act[k].kind == DT_TREE_ADD)
            for (int64_t i = 0; i < N; i++) a[i] += b[i];
    }
    CHECK(comm->broadcast_bytes(comm, flat[0], N * sizeof(float), 0) == DT_OK, "broadcast");
    for (int64_t i = 0; i < N; i++) {
        float want = tree_reference(0, N_MICRO, i);
        CHECK(memcmp(&flat[0][i], &want, 4) == 0, "element %lld", (long long)i);
    }
    for (int s = 0; s < n_flats; s++) free(flat[s]);
    free(flat);
    free(act);
}

// -- buckets -------------------------------------------------------------------------------------

enum { N_GRADS = 24, GRAD = 54000, TAIL = 33, MAX_REPLICAS = 3 };

typedef struct backward {
    dt_buckets *b;
    int replica, n_replicas, step;
    float *flat;
} backward;

// Exactly representable, so that replicas and ranks may be added in any grouping.
static float grad_value(int rank, int replica, int step, int64_t i) {
    return (float)((rank * 7 + replica * 3 + step + (int)(i % 101)) % 64);
}

static void *run_backward(void *arg) {
    backward *w = arg;
    for (int g = 0; g < N_GRADS; g++) {
        for (int64_t i = (int64_t)g * GRAD; i < (int64_t)(g + 1) * GRAD; i++)
            w->flat[i] = grad_value(comm->rank, w->replica, w->step, i);
        dt_buckets_ready(w->b, w->replica, g);
        if (w->n_replicas == 1) dt_buckets_poll(w->b);
    }
    for (int64_t i = (int64_t)N_GRADS * GRAD; i < (int64_t)N_GRADS * GRAD + TAIL; i++)
        w->flat[i] = grad_value(comm->rank, w->replica, w->step, i);
    return NULL;
}

static void check_buckets_sum(const float *flat, int n_replicas, int step) {
    for (int64_t i = 0; i < (int64_t)N_GRADS * GRAD + TAIL; i++) {
        float want = 0;
        for (int r = 0; r < comm->world_size; r++)
            for (int l = 0; l < n_replicas; l++) want += grad_value(r, l, step, i);
        CHECK(flat[i] == want, "replicas %d, step %d, element %lld: %g, not %g", n_replicas, step, (long long)i,
              (double)flat[i], (double)want);
    }
}

static void test_buckets(int n_replicas, bool helper) {
    int64_t ends[N_GRADS], n = (int64_t)N_GRADS * GRAD + TAIL;
    for (int g = 0; g < N_GRADS; g++) ends[g] = (int64_t)(g + 1) * GRAD;
    dt_buckets_opts o = {.grad_end = ends,
                         .n_grads = N_GRADS,
                         .n_elements = n,
                         .bucket_bytes = 1000000,
                         .n_replicas = n_replicas,
                         .progress_thread = helper};
    backward work[MAX_REPLICAS];
    float *flats[MAX_REPLICAS];
    pthread_t threads[MAX_REPLICAS];
    dt_buckets *b;
    CHECK(dt_buckets_create(&b, comm, &o) == DT_OK, "create");
    for (int l = 0; l < n_replicas; l++) flats[l] = malloc((size_t)n * sizeof **flats);
    for (int step = 0; step < 3; step++) {
        dt_buckets_begin(b, flats);
        for (int l = 0; l < n_replicas; l++) work[l] = (backward){b, l, n_replicas, step, flats[l]};
        for (int l = 1; l < n_replicas; l++) pthread_create(&threads[l], NULL, run_backward, &work[l]);
        run_backward(&work[0]);
        for (int l = 1; l < n_replicas; l++) pthread_join(threads[l], NULL);
        double exposed = -1;
        CHECK(dt_buckets_finish(b, &exposed) == DT_OK, "finish");
        CHECK(exposed >= 0, "exposed %g", exposed);
        check_buckets_sum(flats[0], n_replicas, step);
        CHECK(comm->barrier(comm) == DT_OK, "the comm is free between steps");
    }
    for (int l = 0; l < n_replicas; l++) free(flats[l]);
    dt_buckets_destroy(b);
}

static int run_all(void) {
    CHECK(strcmp(comm->name, "mpi") == 0, "got '%s'", comm->name);
    int n_here = 0, n_before = 0;
    for (int r = 0; r < comm->world_size; r++) {
        const bool here = host_of[r] == host_of[comm->rank];
        n_here += here;
        n_before += here && r < comm->rank;
    }
    CHECK(comm->local_size == n_here && comm->local_rank == n_before, "%d of %d", comm->local_rank, comm->local_size);
    test_all_reduce();
    test_broadcast();
    test_all_gather();
    test_several_in_flight();
    test_bf16();
    test_steps();
    test_tree_sum();
    test_tree_over_ranks();
    for (int replicas = 1; replicas <= MAX_REPLICAS; replicas += 2) {
        test_buckets(replicas, false);
        test_buckets(replicas, true);
    }
    if (comm->rank == 0)
        printf("all collectives agree on %d ranks of %d host%s\n", comm->world_size, n_hosts, n_hosts == 1 ? "" : "s");
    return 0;
}

// What the links carry is counted outside.
static int run_move(int64_t n, bool broadcast) {
    float *x = filled(n, 0);
    CHECK(comm->barrier(comm) == DT_OK, "barrier");
    const double begin = dt_clock_s();
    if (broadcast)
        CHECK(comm->broadcast_bytes(comm, x, (size_t)n * sizeof *x, 1) == DT_OK, "broadcast");
    else
        CHECK(comm->all_reduce_f32(comm, x, n) == DT_OK, "all-reduce");
    if (comm->rank == 0) printf("%.3f s\n", dt_clock_s() - begin);
    free(x);
    return 0;
}

// -- failures ------------------------------------------------------------------------------------

static int run_lost(int victim, int sig) {
    enum { N = 100000 };
    float *x = filled(N, 0);
    CHECK(comm->all_reduce_f32(comm, x, N) == DT_OK, "before");
    comm->set_deadline(comm, 3);
    if (comm->rank == victim) raise(sig);
    dt_request r;
    dt_status st = comm->reduce_start(comm, &(dt_reduction){DT_ALL_REDUCE, x, N, NULL}, &r);
    if (st == DT_OK) st = comm->wait(comm, &r);
    if (st == DT_OK) return 1; // nobody noticed
    fprintf(stderr, "rank %d: %s\n", comm->rank, dt_error_message());
    comm->abort(comm, (int)st);
    return 1;
}

// The victim, of which rank 0 hears by another, comes late to the last barrier: all name it, and destroy their comms, of which
// the watch must know nothing then.
static int run_late(int victim) {
    comm->set_deadline(comm, 60);
    for (bool heard = false; comm->rank == 0 && !heard; usleep(10000)) {
        dt_rank_report all[MAX_RANKS];
        dt_rank_list(all, comm->world_size);
        heard = true;
        for (int r = 0; r < comm->world_size; r++) heard &= all[r].step >= 0 && *all[r].host;
    }
    CHECK(comm->barrier(comm) == DT_OK, "rank 0 has not heard of all");
    comm->set_deadline(comm, 5);
    if (comm->rank == victim) return sleep(60) != 0;
    if (comm->finalize(comm) == DT_OK) return 1;
    const int rank = comm->rank;
    dt_comm_destroy(comm);
    for (size_t n = 16; n < 4096; n += 8) memset(malloc(n), 0x7f, n); // what was freed
    sleep(1);                                                         // five beats
    fprintf(stderr, "rank %d: %s; destroyed\n", rank, dt_error_message());
    _exit(DT_E_PEER);
}

// -- bench ---------------------------------------------------------------------------------------

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void bench_bandwidth(int64_t n) {
    enum { REPS = 15 };
    double t[REPS];
    float *x = calloc((size_t)n, sizeof *x);
    for (int i = 0; i < REPS; i++) {
        comm->barrier(comm);
        double begin = dt_clock_s();
        CHECK(comm->all_reduce_f32(comm, x, n) == DT_OK, "all-reduce");
        t[i] = dt_clock_s() - begin;
    }
    qsort(t, REPS, sizeof *t, compare_doubles);
    double alg = (double)n * 4 / t[REPS / 4] * 1e-9, w = comm->world_size;
    if (comm->rank == 0)
        printf("all-reduce %9lld floats: %8.3f ms  algbw %6.2f GB/s  busbw %6.2f GB/s\n", (long long)n,
               t[REPS / 4] * 1e3, alg, alg * 2 * (w - 1) / w);
    free(x);
}

// The gradients of ResNet-18's convolutions, as backward finishes them, in nodes that take node_ms each: asleep, so that
// only what the links and the waiting take counts, whatever else this machine does.
enum { REPS = 5, GRADS = 20 };

// A step on a fabric that is not there: seconds.
static double model_step(const dt_buckets_opts *o, double gbit, double node_s) {
    const dt_fabric f = {
        .ranks_per_host = comm->local_size, .host_bytes_s = gbit * 1e9 / 8, .copy_bytes_s = 5e9, .latency_s = 3e-5};
    double now_s = 0, unused_s;
    float none = 0, *x = &none; // the model moves no data
    dt_comm *c;
    dt_buckets *b;
    dt_buckets_opts alone = *o;
    alone.progress_thread = false;
    CHECK(dt_comm_create_model(&c, &f, comm->world_size, 1, &now_s) == DT_OK, "model");
    CHECK(dt_buckets_create(&b, c, &alone) == DT_OK, "create");
    dt_buckets_begin(b, &x);
    for (int g = 0; g < GRADS; g++) {
        const double end_s = now_s + node_s;
        while (now_s + DT_BUCKETS_PROGRESS_S < end_s) {
            now_s += DT_BUCKETS_PROGRESS_S;
            c->progress(c);
        }
        now_s = fmax(now_s, end_s); // the helper's work is another core's here
        dt_buckets_ready(b, 0, g);
        dt_buckets_poll(b);
    }
    CHECK(dt_buckets_finish(b, &unused_s) == DT_OK, "finish");
    dt_buckets_destroy(b);
    c->finalize(c);
    dt_comm_destroy(c);
    return now_s;
}

static void bench_overlap(int helper, int kib, int node_ms, double gbit) {
    static const int64_t sizes[GRADS] = {2359296, 2359296, 131072, 2359296, 1179648, 589824, 589824,
                                         32768,   589824,  294912, 147456,  147456,  8192,   147456,
                                         73728,   36864,   36864,  36864,   36864,   9408};
    int64_t n = 0, ends[GRADS];
    for (int g = 0; g < GRADS; g++) ends[g] = n += (sizes[g] + 15) / 16 * 16;
    dt_buckets_opts o = {.grad_end = ends,
                         .n_grads = GRADS,
                         .n_elements = n,
                         .n_replicas = 1,
                         .bucket_bytes = kib * 1024,
                         .progress_thread = helper};
    dt_buckets *b;
    CHECK(dt_buckets_create(&b, comm, &o) == DT_OK, "create");
    float *x = calloc((size_t)n, sizeof *x);
    double total[REPS], exposed[REPS];
    for (int i = 0; i < REPS; i++) {
        comm->barrier(comm);
        double begin = dt_clock_s();
        dt_buckets_begin(b, &x);
        for (int g = 0; g < GRADS; g++) {
            usleep((useconds_t)node_ms * 1000);
            dt_buckets_ready(b, 0, g);
            dt_buckets_poll(b);
        }
        CHECK(dt_buckets_finish(b, &exposed[i]) == DT_OK, "finish");
        total[i] = dt_clock_s() - begin;
    }
    qsort(total, REPS, sizeof *total, compare_doubles);
    qsort(exposed, REPS, sizeof *exposed, compare_doubles);
    if (comm->rank == 0)
        printf("%d nodes of %3d ms, %-6s buckets of %5d KiB: %7.2f ms, exposed %7.2f ms\n", GRADS, node_ms,
               helper ? "helped" : "polled", kib, total[REPS / 2] * 1e3, exposed[REPS / 2] * 1e3);
    if (comm->rank == 0 && gbit > 0) {
        const double predicted = model_step(&o, gbit, node_ms * 1e-3);
        printf("predicted %7.2f ms: %+.1f %% (of the fastest: %+.1f %%)\n", predicted * 1e3,
               100 * (predicted / total[REPS / 2] - 1), 100 * (predicted / total[0] - 1));
    }
    fflush(stdout);
    free(x);
    dt_buckets_destroy(b);
}

static int run_bench(int node_ms, int only_kib) {
    for (int64_t n = 1024; n <= 4194304 && !only_kib; n *= 4) bench_bandwidth(n);
    for (int kib = only_kib ? only_kib : 512; kib <= 8192; kib *= only_kib ? 8192 : 4)
        for (int helper = 0; helper < 2; helper++) bench_overlap(helper, kib, node_ms, 0);
    return 0;
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "all";
    fill_uniform();
    if (strcmp(mode, "late") == 0) dt_watch_start(&(dt_watch_limits){.io_s = 600, .start_s = 600, .lost_s = 600});
    dt_status st = dt_comm_create(&comm);
    if (st != DT_OK) {
        fprintf(stderr, "%s\n", dt_error_message());
        return (int)st;
    }
    find_hosts();
    int rc = 1;
    if (strcmp(mode, "name") == 0)
        rc = 0 * printf("%s %d\n", comm->name, comm->world_size);
    else if (strcmp(mode, "stop") == 0 && argc > 2)
        rc = run_lost(atoi(argv[2]), SIGSTOP);
    else if (strcmp(mode, "kill") == 0 && argc > 2)
        rc = run_lost(atoi(argv[2]), SIGKILL);
    else if (strcmp(mode, "late") == 0 && argc > 2)
        rc = run_late(atoi(argv[2]));
    else if (strcmp(mode, "bench") == 0)
        rc = run_bench(argc > 2 ? atoi(argv[2]) : 50, argc > 3 ? atoi(argv[3]) : 0);
    else if (strcmp(mode, "model") == 0 && argc > 3) {
        bench_overlap(1, 1024, atoi(argv[3]), atof(argv[2]));
        rc = 0;
    } else if (strcmp(mode, "reduce") == 0 && argc > 2)
        rc = run_move(atoll(argv[2]), false);
    else if (strcmp(mode, "broadcast") == 0 && argc > 2)
        rc = run_move(atoll(argv[2]), true);
    else if (strcmp(mode, "all") == 0)
        rc = run_all();
    CHECK(comm->finalize(comm) == DT_OK, "finalize");
    dt_comm_destroy(comm);
    return rc;
}
