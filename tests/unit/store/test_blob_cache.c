// The host's cache of objects: what is read through it are the object's bytes, each block is fetched once by all threads and
// processes, and neither kills, damage, other objects nor a full disk change a byte.
#include "base/core.h"
#include "base/failpoint.h"
#include "base/hash.h"
#include "base/io.h"
#include "data_fixture.h"
#include "store/blob_cache.h"
#include "testing.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MB = 1 << 20, OBJECT_BYTES = 5 * MB + 12345, BLOCKS = 6 };

// ---- an object that counts what is fetched of it -----------------------------------------------------
typedef struct shared {
    _Atomic uint64_t n_bytes, n_reads;
    _Atomic int dies_in; // reads, then the reader is killed; 0: never
    _Atomic bool lies;   // sends other bytes
} shared;
static shared *server; // of all processes
static uint8_t *truth;

static dt_status serve(const dt_blob *b, uint64_t at, void *dst, size_t n_bytes) {
    if (server->dies_in > 0 && --server->dies_in == 0) raise(SIGKILL);
    server->n_reads++;
    server->n_bytes += n_bytes;
    usleep(2000); // so that others come meanwhile
    memcpy(dst, truth + at, n_bytes);
    if (server->lies) ((uint8_t *)dst)[n_bytes / 2] ^= 1;
    return DT_OK;
}

static void leave(dt_blob *b) {}

static const dt_blob_store SERVER = {serve, leave, true};

static dt_blob open_object(dt_blob_cache *c, const char *name, uint64_t version) {
    dt_blob b = {.store = &SERVER, .path = name, .n_bytes = OBJECT_BYTES, .version = version};
    dt_blob_keep(&b, c, 7);
    return b;
}

static dt_blob_cache *open_cache(uint64_t max_bytes) {
    dt_blob_cache *c;
    must(dt_blob_cache_open(&c, fixture_path("cache"), max_bytes));
    return c;
}

static void begin(void) {
    must(dt_io_remove_tree(fixture_path("cache")));
    server->n_bytes = server->n_reads = 0;
    server->dies_in = 0;
    server->lies = false;
}

// Ranges of all lengths, many across the blocks' edges. false: bytes are wrong.
static bool reads_right(const dt_blob *b, uint64_t seed, int n) {
    uint8_t *got = malloc(2 * MB);
    bool right = true;
    for (int i = 0; i < n && right; i++) {
        const uint64_t x = dt_hash64(&(uint64_t[2]){seed, (uint64_t)i}, 16);
        const size_t size = x % 3 ? x % 50000 + 1 : x % (2 * MB) + 1;
        const uint64_t at = (x >> 24) % (OBJECT_BYTES - size);
        right = dt_blob_read(b, at, got, size) == DT_OK && memcmp(got, truth + at, size) == 0;
    }
    free(got);
    return right;
}

static bool reads_all(const dt_blob *b) {
    uint8_t *got = malloc(OBJECT_BYTES);
    const bool right = dt_blob_read(b, 0, got, OBJECT_BYTES) == DT_OK && memcmp(got, truth, OBJECT_BYTES) == 0;
    free(got);
    return right;
}

static uint64_t on_disk(void) {
    dt_used_file *f = NULL;
    size_t n = 0;
    uint64_t sum = 0;
    must(dt_used_files_add(&f, &n, fixture_path("cache/objects")));
    for (size_t i = 0; i < n; i++) sum += f[i].n_bytes;
    dt_used_files_free(f, n);
    return sum;
}

// ---- tests -----------------------------------------------------------------------------------------
TEST(bytes_are_right_and_fetched_once) {
    begin();
    for (int run = 0; run < 3; run++) {
        dt_blob_cache *c = open_cache(0);
        dt_blob b = open_object(c, "http://h/o", 1);
        assert_true(reads_right(&b, (uint64_t)run, 400));
        assert_true(reads_all(&b));
        assert_int_equal(server->n_bytes, OBJECT_BYTES);
        dt_blob_cache_stats s;
        dt_blob_cache_get_stats(c, &s);
        assert_int_equal(s.n_blocks, BLOCKS);
        assert_int_equal(s.n_bytes, OBJECT_BYTES);
        assert_int_equal(s.n_hits + s.n_misses, 401);
        assert_true(run == 0 ? s.n_misses > 0 && s.n_misses <= BLOCKS : s.n_misses == 0);
        dt_blob_close(&b);
        dt_blob_cache_close(c);
    }
    // of another version, size or name it is another object
    dt_blob_cache *c = open_cache(0);
    dt_blob b = open_object(c, "http://h/o", 2);
    assert_true(reads_all(&b));
    assert_int_equal(server->n_bytes, 2 * OBJECT_BYTES);
    dt_blob_close(&b);
    dt_blob_cache_close(c);
}

// Adjacent blocks that one read lacks come by one request.
TEST(adjacent_blocks_come_together) {
    begin();
    dt_blob_cache *c = open_cache(0);
    dt_blob b = open_object(c, "http://h/o", 1);
    assert_true(reads_all(&b));
    assert_int_equal(server->n_reads, 1);
    dt_blob_close(&b);
    dt_blob_cache_close(c);
}

typedef struct reading {
    const dt_blob *b;
    uint64_t seed;
    bool right;
} reading;

static void *read_some(void *arg) {
    reading *r = arg;
    r->right = reads_right(r->b, r->seed, 60);
    return NULL;
}

// Exits with 0 if four threads got the right bytes.
static void be_a_rank(uint64_t seed) {
    dt_blob_cache *c = open_cache(0);
    dt_blob b = open_object(c, "http://h/o", 1);
    reading r[4];
    pthread_t t[4];
    bool right = true;
    for (uint64_t i = 0; i < 4; i++) {
        r[i] = (reading){&b, seed * 4 + i, false};
        pthread_create(&t[i], NULL, read_some, &r[i]);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(t[i], NULL);
        right = right && r[i].right;
    }
    _exit(!right);
}

static bool children_succeed(const pid_t *pid, int n) {
    bool all = true;
    for (int i = 0; i < n; i++) {
        int status = 1;
        assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
        all = all && status == 0;
    }
    return all;
}

TEST(ranks_fetch_each_block_once) {
    begin();
    pid_t pid[4];
    for (uint64_t i = 0; i < 4; i++)
        if ((pid[i] = fork()) == 0) be_a_rank(i);
    assert_true(children_succeed(pid, 4));
    assert_true(server->n_bytes > OBJECT_BYTES / 2 && server->n_bytes <= OBJECT_BYTES);
}

// Killed in a request, or in front of any call that changes a file: who comes next reads right bytes, and the bytes of whole
// blocks are not fetched again.
TEST(kills_take_no_bytes_and_no_locks) {
    for (int n = 1;; n++) {
        begin();
        const bool in_request = n % 2;
        char spec[32];
        snprintf(spec, sizeof spec, "io:%d:kill", n / 2);
        pid_t pid = fork();
        if (pid == 0) {
            if (in_request)
                server->dies_in = (n + 1) / 2;
            else
                must(dt_failpoint_set(spec));
            dt_blob_cache *c = open_cache(0);
            dt_blob b = open_object(c, "http://h/o", 1);
            _exit(!reads_right(&b, 5, 40));
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        server->dies_in = 0;
        const uint64_t before = server->n_bytes;
        dt_blob_cache *c = open_cache(0);
        dt_blob b = open_object(c, "http://h/o", 1);
        assert_true(reads_right(&b, 6, 40) && reads_all(&b));
        assert_true(server->n_bytes <= before + OBJECT_BYTES);
        if (status == 0) assert_int_equal(server->n_bytes, OBJECT_BYTES);
        dt_blob_close(&b);
        dt_blob_cache_close(c);
        if (status == 0 && !in_request) break; // it came to its end
        assert_true(n < 200);
    }
}

// Bits turn on the disk, or all of a file is zero: found at the next start, fetched again.
TEST(damage_is_found_and_fetched_again) {
    for (int kind = 0; kind < 3; kind++) {
        begin();
        dt_blob_cache *c = open_cache(0);
        dt_blob b = open_object(c, "http://h/o", 1);
        assert_true(reads_all(&b));
        dt_blob_close(&b);
        dt_used_file *f = NULL;
        size_t n = 0;
        must(dt_used_files_add(&f, &n, fixture_path("cache/objects")));
        for (size_t i = 0; i < n; i++) {
            struct stat s;
            int fd = open(f[i].path, O_RDWR);
            assert_int_equal(fstat(fd, &s), 0);
            uint8_t x = 0;
            if (s.st_size > 0 && kind == 0) { // a byte of the third block
                assert_int_equal(pread(fd, &x, 1, 4096 + 2 * MB + 77), 1);
                x ^= 8;
                assert_int_equal(pwrite(fd, &x, 1, 4096 + 2 * MB + 77), 1);
            } else if (s.st_size > 0 && kind == 1) { // a row
                assert_int_equal(pwrite(fd, &x, 1, 16 * 2 + 3), 1);
            } else if (s.st_size > 0) {
                assert_int_equal(ftruncate(fd, 4096 + 2 * MB + 500), 0);
            }
            close(fd);
        }
        dt_used_files_free(f, n);
        server->n_bytes = 0;
        b = open_object(c, "http://h/o", 1);
        assert_true(reads_right(&b, 1, 100) && reads_all(&b));
        assert_int_equal(server->n_bytes, kind == 2 ? OBJECT_BYTES - 2 * MB : MB);
        dt_blob_close(&b);
        dt_blob_cache_close(c);
    }
}

// What came wrong over the network is forgotten by who sees it (a record's hash), and fetched again.
TEST(forgotten_bytes_are_fetched_again) {
    begin();
    dt_blob_cache *c = open_cache(0);
    dt_blob b = open_object(c, "http://h/o", 1);
    server->lies = true;
    uint8_t got[100];
    must(dt_blob_read(&b, MB + MB / 2 - 50, got, sizeof got));
    assert_memory_not_equal(got, truth + MB + MB / 2 - 50, sizeof got);
    server->lies = false;
    assert_true(dt_blob_forget(&b, MB + MB / 2 - 50, sizeof got));
    must(dt_blob_read(&b, MB + MB / 2 - 50, got, sizeof got));
    assert_memory_equal(got, truth + MB + MB / 2 - 50, sizeof got);
    dt_blob_close(&b);
    dt_blob_cache_close(c);
    dt_blob plain;
    dt_blob_from_memory(&plain, "m", truth, OBJECT_BYTES);
    assert_false(dt_blob_forget(&plain, 0, 1));
}

TEST(the_limit_holds) {
    begin();
    const uint64_t max = 3 * MB + MB / 2;
    dt_blob_cache *c = open_cache(max);
    for (int round = 0; round < 2; round++) {
        server->n_bytes = 0;
        dt_blob b = open_object(c, "http://h/o", 1);
        uint8_t *got = malloc(100000);
        for (uint64_t at = 0; at + 100000 <= OBJECT_BYTES; at += 100000) {
            must(dt_blob_read(&b, at, got, 100000));
            assert_memory_equal(got, truth + at, 100000);
        }
        free(got);
        dt_blob_cache_stats s;
        dt_blob_cache_get_stats(c, &s);
        assert_true(s.full && s.n_blocks >= 2 && on_disk() <= max);
        // what has no room is read by its ranges: nothing is fetched beside what is asked for
        assert_true(server->n_bytes <= OBJECT_BYTES - (round ? s.n_blocks * MB : 0) + MB);
        dt_blob_close(&b);
        dt_blob_cache_close(c);
        c = open_cache(max);
    }
    dt_blob_cache_close(c);
}

// Threads that fetch at a time do not all find the same room.
TEST(the_limit_holds_for_many) {
    begin();
    dt_blob_cache *c = open_cache(2 * MB + MB / 2);
    dt_blob b = open_object(c, "http://h/o", 1);
    reading r[6];
    pthread_t t[6];
    for (uint64_t i = 0; i < 6; i++) {
        r[i] = (reading){&b, i, false};
        pthread_create(&t[i], NULL, read_some, &r[i]);
    }
    for (int i = 0; i < 6; i++) {
        pthread_join(t[i], NULL);
        assert_true(r[i].right);
    }
    assert_true(on_disk() <= 2 * MB + MB / 2);
    dt_blob_close(&b);
    dt_blob_cache_close(c);
}

// The longest unused goes; what a process reads stays.
TEST(unused_objects_make_room) {
    begin();
    const uint64_t max = 13 * MB; // two objects
    dt_blob_cache *c = open_cache(max), *other = open_cache(max);
    const char *const names[] = {"http://h/a", "http://h/b", "http://h/c", "http://h/d"};
    dt_blob held = open_object(other, names[0], 1);
    assert_true(reads_all(&held));
    for (int i = 1; i < 4; i++) {
        dt_blob b = open_object(c, names[i], 1);
        assert_true(reads_all(&b));
        dt_blob_close(&b);
        assert_true(on_disk() <= max);
    }
    server->n_bytes = 0;
    assert_true(reads_all(&held));
    dt_blob_close(&held);
    for (int i = 0; i < 4; i += 3) { // the first was held, the last came last
        dt_blob b = open_object(c, names[i], 1);
        assert_true(reads_all(&b));
        assert_int_equal(server->n_bytes, 0);
        dt_blob_close(&b);
    }
    dt_blob b = open_object(c, names[1], 1); // had to go
    assert_true(reads_all(&b));
    assert_int_equal(server->n_bytes, OBJECT_BYTES);
    dt_blob_close(&b);
    dt_blob_cache_close(c);
    dt_blob_cache_close(other);
}

// A disk that is full, or has no place at all.
TEST(a_full_disk_costs_nothing_but_time) {
    for (int n = 1; n < 6; n++) {
        begin();
        char spec[32];
        snprintf(spec, sizeof spec, "io:%d:%s", n, n % 2 ? "enospc" : "short");
        dt_blob_cache *c = open_cache(0);
        dt_blob b = open_object(c, "http://h/o", 1);
        must(dt_failpoint_set(spec));
        assert_true(reads_right(&b, 3, 60) && reads_all(&b));
        must(dt_failpoint_set(NULL));
        dt_blob_close(&b);
        dt_blob_cache_close(c);
        c = open_cache(0);
        b = open_object(c, "http://h/o", 1);
        assert_true(reads_right(&b, 3, 60) && reads_all(&b));
        dt_blob_close(&b);
        dt_blob_cache_close(c);
    }
    begin();
    dt_blob_cache *c = open_cache(0);
    must(dt_io_remove_tree(fixture_path("cache/objects")));
    dt_blob b = open_object(c, "http://h/o", 1);
    assert_ptr_equal(b.store, &SERVER);
    assert_true(reads_right(&b, 3, 10));
    dt_blob_close(&b);
    dt_blob_cache_close(c);
}

// In place of the object's file, and of the lock.
TEST(links_are_not_followed) {
    dt_used_file *f = NULL;
    size_t n = 0;
    char *victim = dt_xstrdup(fixture_path("victim"));
    for (size_t i = 0; i <= n; i++) { // first without a link, to learn the names
        begin();
        dt_blob_cache *c = open_cache(0);
        if (i > 0) unlink(f[i - 1].path);
        if (i > 0) assert_int_equal(symlink(victim, f[i - 1].path), 0);
        dt_blob b = open_object(c, "http://h/o", 1);
        assert_true(reads_all(&b));
        assert_false(dt_io_exists(victim));
        dt_blob_close(&b);
        dt_blob_cache_close(c);
        if (i == 0) must(dt_used_files_add(&f, &n, fixture_path("cache/objects")));
    }
    assert_int_equal(n, 2);
    dt_used_files_free(f, n);
    free(victim);
}

static int set_up(void **state) {
    server = mmap(NULL, sizeof *server, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    truth = malloc(OBJECT_BYTES);
    for (size_t i = 0; i < OBJECT_BYTES; i++) truth[i] = (uint8_t)(i * 2654435761u >> 13);
    return folder_make(state);
}

static int tear_down(void **state) {
    free(truth);
    return fixture_tear_down(state);
}

TEST_MAIN(set_up, tear_down)
