// Two ranks of a host under data.shuffle: block: they take the samples of one rank in the same order, read the runs of
// a window whole, each the ones that are its own, and nothing twice. Reads are seen where they leave the program, and
// wait as a disk's do unless somebody has read the bytes before: the page cache of the host.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "data/data.h"
#include "data/file/tar.h"
#include "data/loader/data_parts.h"
#include "data_fixture.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum {
    FLOATS = 4352, // more bytes than a read goes through as a gap
    RECORD_BYTES = 512 + 4 * FLOATS,
    N = DT_SHUFFLE_WINDOW * 5 / 2,
    RUN = DT_SHUFFLE_BLOCK_SAMPLES,
    N_RUNS = N / RUN,
    LEAVES = 4,
    MICRO = 32,
    STEPS = 60, // within the second window, so that readers go no further than the third
    WAIT_NS = 1500000
};

// ---- the disk ----------------------------------------------------------------------------------------
static bool recording;
static uint8_t cached[N];                 // records that somebody has read
static int whole[2][N_RUNS], small[2][N]; // by rank: reads of runs, of samples
static int n_other, n_late; // reads that are neither; small ones of the disk, of later windows
static int8_t window_of_record[N];

static int rank_of(int fd) {
    char link[40], path[512] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof path - 1) <= 0) return -1;
    const char *name = strstr(path, "rank");
    return name ? name[4] - '0' : -1;
}

static void note(int fd, size_t n_bytes, off_t at) {
    int rank = recording ? rank_of(fd) : -1;
    if (rank < 0) return;
    // the payload of record r begins at r * RECORD_BYTES + 512
    int64_t first = at / RECORD_BYTES, n = (int64_t)(n_bytes + 512) / RECORD_BYTES;
    bool missing = false;
    for (int64_t r = first; r < first + n; r++)
        missing |= !__atomic_exchange_n(&cached[r], 1, __ATOMIC_RELAXED);
    if (at % RECORD_BYTES != 512 || n < 1 || (n > 4 && (n != RUN || first % RUN != 0)))
        __atomic_fetch_add(&n_other, 1, __ATOMIC_RELAXED);
    else if (n == RUN)
        __atomic_fetch_add(&whole[rank][first / RUN], 1, __ATOMIC_RELAXED);
    else
        for (int64_t r = first; r < first + n; r++) {
            __atomic_fetch_add(&small[rank][r], 1, __ATOMIC_RELAXED);
            if (missing && window_of_record[r] > 0)
                __atomic_fetch_add(&n_late, 1, __ATOMIC_RELAXED);
        }
    struct timespec t = {0, WAIT_NS};
    if (missing) nanosleep(&t, NULL);
}

ssize_t pread(int fd, void *to, size_t n, off_t at) {
    note(fd, n, at);
    return syscall(SYS_pread64, fd, to, n, at);
}

ssize_t preadv(int fd, const struct iovec *parts, int n_parts, off_t at) {
    size_t n = 0;
    for (int i = 0; i < n_parts; i++) n += parts[i].iov_len;
    note(fd, n, at);
    return syscall(SYS_preadv, fd, parts, n_parts, at, 0);
}

// ---- ranks -------------------------------------------------------------------------------------------
static void make_set(const char *path) {
    uint8_t head[DT_TAR_MAX_HEADER];
    size_t n_head;
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    for (int i = 0; i < N; i++) {
        char name[32];
        snprintf(name, sizeof name, "%05d.vec", i);
        assert_int_equal(dt_tar_write_header(head, &n_head, name, 4 * FLOATS), DT_OK);
        assert_int_equal(n_head, 512);
        assert_int_equal(pwrite(fd, head, n_head, (off_t)i * RECORD_BYTES), n_head);
    }
    assert_int_equal(ftruncate(fd, (off_t)N * RECORD_BYTES + 1024), 0); // values are holes
    close(fd);
}

typedef struct rank {
    dt_config *config;
    dt_dataset *set;
    dt_batch_source *source;
} rank;

static void open_set(rank *r, const char *path, int readers) {
    char *text = dt_xprintf("run: {name: t}\ndata:\n  path: \"%s\"\n  write_index: false\n"
                            "  fields: {vec: {kind: vector, size: %d}}\n  shuffle: block\n"
                            "  readers: %d\nmodel: {name: fusion}\n"
                            "train: {global_batch: %d, micro_batch: %d}\n",
                            path, FLOATS, readers, LEAVES * MICRO, MICRO);
    if (dt_config_parse(&r->config, "t.yaml", text, strlen(text), NULL, 0) != DT_OK ||
        dt_data_open(&r->set, r->config, NULL, 2, NULL) != DT_OK)
        fail_msg("%s", dt_error_message());
    free(text);
}

static void open_rank(rank *r, const int *leaves, int n_leaves) {
    dt_source_request q = {.split = DT_SPLIT_TRAIN,
                           .global_batch = LEAVES * MICRO,
                           .micro_batch = MICRO,
                           .leaves = leaves,
                           .n_leaves = n_leaves,
                           .end_step = STEPS};
    dt_data_set_processes(r->set, LEAVES / n_leaves);
    if (r->set->open(r->set, &q, &r->source) != DT_OK) fail_msg("%s", dt_error_message());
}

static void close_rank(rank *r) {
    if (r->source) r->source->close(r->source);
    r->set->close(r->set);
    dt_config_destroy(r->config);
}

static void take(rank *r, int64_t step, int leaf, int64_t out[MICRO]) {
    const dt_batch *b;
    if (r->source->get(r->source, step, leaf, &b, NULL) != DT_OK)
        fail_msg("%s", dt_error_message());
    memcpy(out, b->sample, MICRO * sizeof *out);
    r->source->release(r->source, b);
}

// The first `n` runs of the order are in the page cache, whoever is late.
static void wait_for_runs(const dt_data *d, uint64_t n) {
    double end = dt_clock_s() + 60;
    uint64_t k = 0;
    while (k < n && dt_clock_s() < end) {
        uint64_t run = dt_sampler_in_blocks(&d->sampler, 0, k * RUN) / RUN;
        if (__atomic_load_n(&whole[0][run], __ATOMIC_RELAXED) ||
            __atomic_load_n(&whole[1][run], __ATOMIC_RELAXED))
            k++;
        else
            usleep(2000);
    }
    assert_int_equal(k, n);
}

// Readers that get no core are passed by the workers, and read no run of a window that is behind: so before the first
// batch is taken they have both windows. Places are not so far ahead then that one is of the second.
static void ranks_share_the_runs_of_a_window(void **state) {
    static const int LEAF[LEAVES] = {0, 1, 2, 3};
    static int64_t want[STEPS][LEAVES][MICRO], got[MICRO];
    const char *path[2] = {fixture_path("rank0.tar"), fixture_path("rank1.tar")};
    rank one = {0}, two[2] = {{0}};
    make_set(path[0]);
    assert_int_equal(link(path[0], path[1]), 0);
    open_set(&one, path[0], 0);
    const dt_data *d = one.set->self;
    assert_int_equal(d->view.n, N);
    for (uint64_t i = 0; i < N; i++)
        window_of_record[dt_sampler_in_blocks(&d->sampler, 0, i)] = (int8_t)(i / DT_SHUFFLE_WINDOW);
    open_rank(&one, LEAF, LEAVES);
    for (int64_t step = 0; step < STEPS; step++)
        for (int leaf = 0; leaf < LEAVES; leaf++) take(&one, step, leaf, want[step][leaf]);
    for (int k = 0; k < 2; k++) open_set(&two[k], path[k], 4);
    recording = true;
    for (int k = 0; k < 2; k++) open_rank(&two[k], LEAF + 2 * k, 2);
    wait_for_runs(d, 2 * DT_SHUFFLE_WINDOW_BLOCKS);
    for (int64_t step = 0; step < STEPS; step++)
        for (int leaf = 0; leaf < LEAVES; leaf++) {
            take(&two[leaf / 2], step, leaf, got);
            assert_memory_equal(got, want[step][leaf], sizeof got);
        }
    wait_for_runs(d, N_RUNS);
    for (int k = 0; k < 2; k++) {
        close_rank(&two[k]);
        for (int r = 0; r < N; r++) assert_in_range(small[k][r], 0, 1);
    }
    recording = false;
    assert_int_equal(n_other, 0);
    for (int k = 0; k < N_RUNS; k++) { // by run of the order, not of the file
        uint64_t first = dt_sampler_in_blocks(&d->sampler, 0, (uint64_t)k * RUN);
        int owner = k % DT_SHUFFLE_WINDOW_BLOCKS % LEAVES / 2;
        assert_int_equal(first % RUN, 0);
        assert_int_equal(whole[owner][first / RUN], 1);
        assert_int_equal(whole[1 - owner][first / RUN], 0);
    }
    assert_int_equal(n_late, 0); // samples of the second window come from the page cache
    close_rank(&one);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranks_share_the_runs_of_a_window)};
    return cmocka_run_group_tests(tests, fixture_set_up, fixture_tear_down);
}
