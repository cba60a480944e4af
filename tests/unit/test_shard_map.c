// Records from a map: the same bytes and the same messages as by reading, whatever is done to the file
// meanwhile; and SIGBUS is left to whom it belongs where it is not the map's.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/guard.h"
#include "base/hash.h"
#include "base/rng.h"
#include "data/source/source.h"
#include "data_fixture.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { SIDE = 128, PIXELS = SIDE * SIDE * 3, N_RECORDS = 50, MAP_BYTES = 65536 };
static const char *packed;
static size_t n_packed;
static uint8_t *original;

// ---- the guard, before anything has used it ----------------------------------------------------------
// Two pages or more of which only the first are there.
static uint8_t *cut_map(size_t left) {
    const char *path = fixture_path("cut");
    char zeros[MAP_BYTES] = {0};
    fixture_write(path, zeros, sizeof zeros);
    int fd = open(path, O_RDWR);
    uint8_t *p = mmap(NULL, MAP_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(p != MAP_FAILED && ftruncate(fd, (off_t)left) == 0);
    close(fd);
    return p;
}

static void touch_last(void *ctx) {
    volatile const uint8_t *p = ctx;
    (void)p[MAP_BYTES - 1];
}

static void say_bus(int sig) {
    _exit(42);
}

static void say_bus_at(int sig, siginfo_t *info, void *context) {
    _exit(info->si_addr ? 43 : 44);
}

typedef enum ending { OUTSIDE, BESIDE, RAISED } ending;

// How a child ends that was there before is `handler`, and in which a guard caught one SIGBUS before.
static int end_of_child(const struct sigaction *handler, ending how) {
    uint8_t *p = cut_map(0);
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        sigaction(SIGBUS, handler, NULL);
        if (!dt_guard_arm() || !dt_guard_arm()) _exit(2);
        if (dt_guard_run(touch_last, p, p, MAP_BYTES)) _exit(1);
        if (how == OUTSIDE) touch_last(p);
        if (how == BESIDE) dt_guard_run(touch_last, p, p, 4096);
        if (how == RAISED) raise(SIGBUS);
        _exit(0);
    }
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
    munmap(p, MAP_BYTES);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static void a_fault_elsewhere_is_not_ours(void **state) {
    static const struct sigaction none = {.sa_handler = SIG_DFL}, ignored = {.sa_handler = SIG_IGN},
                                  short_one = {.sa_handler = say_bus},
                                  long_one = {.sa_sigaction = say_bus_at, .sa_flags = SA_SIGINFO};
    for (ending how = OUTSIDE; how <= RAISED; how++) {
        assert_int_equal(end_of_child(&none, how), -SIGBUS);
        assert_int_equal(end_of_child(&short_one, how), 42);
        assert_int_equal(end_of_child(&ignored, how), how == RAISED ? 0 : -SIGBUS);
    }
    assert_int_equal(end_of_child(&long_one, OUTSIDE), 43);
}

// One that passes on to who was there before it, which is ours.
static struct sigaction found;
static void say_and_pass(int sig, siginfo_t *info, void *context) {
    static int n;
    if (++n > 3) _exit(45);
    if (write(STDOUT_FILENO, "", 0) == 0) found.sa_sigaction(sig, info, context);
}

static void a_later_handler_is_put_below(void **state) {
    static const struct sigaction late = {.sa_sigaction = say_and_pass, .sa_flags = SA_SIGINFO};
    uint8_t *p = cut_map(0);
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGBUS, say_bus);
        if (!dt_guard_arm() || sigaction(SIGBUS, &late, &found) != 0 || !dt_guard_arm()) _exit(1);
        if (dt_guard_run(touch_last, p, p, MAP_BYTES)) _exit(2);
        touch_last(p); // ours, the late one, ours again, the first one
        _exit(3);
    }
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 42);
    munmap(p, MAP_BYTES);
}

// One that was there for one signal and returns: then the instruction is run again.
static void note_once(int sig) {
    static int n;
    if (++n > 1) _exit(46);
}

static void a_handler_for_one_signal_gets_one(void **state) {
    static const struct sigaction once = {.sa_handler = note_once, .sa_flags = SA_RESETHAND};
    assert_int_equal(end_of_child(&once, OUTSIDE), -SIGBUS);
    assert_int_equal(end_of_child(&once, BESIDE), -SIGBUS);
}

// Of broken memory that nobody has touched, no instruction comes that would fault again.
static void word_of_bad_memory_ends_a_process_without_handler(void **state) {
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        siginfo_t info = {.si_signo = SIGBUS, .si_code = BUS_MCEERR_AO};
        signal(SIGBUS, SIG_DFL);
        if (!dt_guard_arm()) _exit(1);
        if (syscall(SYS_rt_sigqueueinfo, getpid(), SIGBUS, &info) != 0) _exit(2);
        _exit(0);
    }
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGBUS);
}

static void *touch_guarded(void *p) {
    return dt_guard_run(touch_last, p, p, MAP_BYTES) ? p : NULL;
}

// As the threads of a team have them.
static void signals_may_be_blocked(void **state) {
    uint8_t *p = cut_map(0);
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        sigset_t all;
        pthread_t t;
        void *end = p;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, NULL);
        if (!dt_guard_arm() || pthread_create(&t, NULL, touch_guarded, p) != 0) _exit(1);
        pthread_join(t, &end);
        _exit(end || touch_guarded(p) || touch_guarded(p) ? 2 : 0);
    }
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
    munmap(p, MAP_BYTES);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void a_guard_ends_at_the_fault(void **state) {
    uint8_t *p = cut_map(0);
    uint8_t *whole = mmap(NULL, MAP_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(dt_guard_arm());
    for (int i = 0; i < 1000; i++) {
        assert_false(dt_guard_run(touch_last, p, p, MAP_BYTES));
        assert_true(dt_guard_run(touch_last, whole, whole, MAP_BYTES));
    }
    munmap(p, MAP_BYTES);
    munmap(whole, MAP_BYTES);
}

// ---- copying and hashing -----------------------------------------------------------------------------
static void a_copy_has_the_hash_of_its_bytes(void **state) {
    static const size_t SIZES[] = {0,    1,    63,   64,   240,  241,  1023, 1024, 1025,
                                   2047, 2048, 2049, 3071, 3072, 4096, 4111, 9000, 50000};
    static const size_t HEADS[] = {0, 1, 15, 63, 64, 1000, 1024, 1500, 2048, 4000};
    enum { CAP = 60000, EDGE = 64 };
    if (!dt_hash_can_copy()) skip();
    uint8_t *src = malloc(CAP), *dst = malloc(CAP), *head = malloc(CAP);
    dt_rng rng = {.seed = 5};
    for (uint32_t i = 0; i < CAP; i++) src[i] = (uint8_t)dt_rng_below(&rng, i, 256);
    for (size_t k = 0; k < sizeof SIZES / sizeof *SIZES; k++)
        for (size_t h = 0; h < sizeof HEADS / sizeof *HEADS; h++)
            for (size_t shift = 0; shift < 70; shift += 23) {
                size_t n = SIZES[k], n_head = HEADS[h];
                const uint8_t *from = src + shift / 3;
                uint8_t *to = dst + EDGE + shift;
                memset(dst, 7, CAP);
                memset(head, 7, CAP);
                assert_true(dt_hash_copy(from, head + EDGE, n_head, to, n) ==
                            dt_hash64(from, n_head + n));
                assert_memory_equal(head + EDGE, from, n_head);
                assert_memory_equal(to, from + n_head, n);
                assert_true(to[-1] == 7 && to[n] == 7 && head[EDGE - 1] == 7 &&
                            head[EDGE + n_head] == 7);
            }
    free(src), free(dst), free(head);
}

// ---- a set -------------------------------------------------------------------------------------------
static size_t make_picture(uint8_t *out, uint32_t key) {
    dt_rng rng = {.seed = 9, .step = key};
    size_t n = (size_t)sprintf((char *)out, "P6\n%d %d\n255\n", SIDE, SIDE);
    for (uint32_t i = 0; i < PIXELS; i++) out[n + i] = (uint8_t)dt_rng_below(&rng, i, 256);
    return n + PIXELS;
}

static int set_up(void **state) {
    static uint8_t picture[PIXELS + 64];
    fixture_begin();
    for (uint32_t i = 0; i < N_RECORDS; i++) {
        char name[32];
        snprintf(name, sizeof name, "raw/a/%03u.ppm", i);
        fixture_write(fixture_path(name), picture, make_picture(picture, i));
    }
    packed = fixture_path("set.tar");
    fixture_pack(fixture_path("raw"), packed);
    original = fixture_read(packed, &n_packed);
    return 0;
}

typedef struct place {
    uint8_t head[64];
    _Alignas(64) uint8_t pixels[PIXELS];
    dt_hash_stream *hash;
} place;

static dt_set *open_set(void) {
    dt_set *s;
    if (dt_set_open(&s, &packed, 1) != DT_OK) fail_msg("%s", dt_error_message());
    return s;
}

// The picture among the record's members.
static uint32_t member_of(const dt_set *s, uint32_t r) {
    uint32_t m = s->catalog->records[r].first_member;
    while (s->catalog->members[m].size < PIXELS) m++;
    return m;
}

static dt_status read_one(dt_set *s, uint32_t r, bool cached, place *p) {
    memset(p->head, 0, sizeof p->head);
    memset(p->pixels, 0, PIXELS);
    return dt_set_read_apart(s, r, member_of(s, r), true, cached, p->hash, p->head, p->pixels,
                             PIXELS);
}

static bool is_right(const dt_set *s, uint32_t r, const place *p) {
    const dt_member *m = &s->catalog->members[member_of(s, r)];
    size_t n_head = (size_t)m->size - PIXELS;
    return memcmp(p->head, original + m->offset, n_head) == 0 &&
           memcmp(p->pixels, original + m->offset + n_head, PIXELS) == 0;
}

// Where nothing is ever mapped (no AVX2, another file system, an old kernel) the rest holds as well.
static void check_mapped(const dt_set *s) {
    if (dt_shard_maps_bytes(s->maps) == 0) print_message("maps are not used on this machine\n");
}

static void a_map_gives_what_a_read_gives(void **state) {
    dt_set *s = open_set();
    place p = {.hash = dt_hash_stream_create()};
    for (int cached = 0; cached < 2; cached++) {
        for (uint32_t r = 0; r < N_RECORDS; r++) {
            assert_int_equal(read_one(s, r, cached, &p), DT_OK);
            assert_true(is_right(s, r, &p));
        }
        uint64_t mapped = dt_shard_maps_bytes(s->maps);
        assert_true(cached ? mapped <= n_packed : mapped == 0);
    }
    check_mapped(s);
    dt_hash_stream_destroy(p.hash);
    dt_set_close(s);
}

static bool give_fd(void *ctx, uint32_t shard, int *fd, bool *keep) {
    *fd = open(packed, O_RDONLY | O_CLOEXEC);
    *keep = false;
    return *fd >= 0;
}

static void no_more_is_mapped_than_may_be(void **state) {
    enum { LIMIT = 2 << 20 }; // one piece, and there is more
    dt_shard_maps *m = dt_shard_maps_create(1, LIMIT);
    static uint8_t to[65536];
    size_t n = 0, n_tried = 0;
    uint64_t hash;
    for (size_t at = 0; at + sizeof to <= n_packed; at += 100000, n_tried++) {
        if (!dt_shard_maps_copy(m, 0, at, NULL, 0, to, sizeof to, &hash, give_fd, NULL)) continue;
        assert_true(hash == dt_hash64(original + at, sizeof to));
        n++;
    }
    assert_true(dt_shard_maps_bytes(m) <= LIMIT && n < n_tried);
    assert_true(n == 0 || dt_shard_maps_bytes(m) == LIMIT);
    // nor what lies behind the end, or is small
    assert_false(
        dt_shard_maps_copy(m, 0, n_packed - 100, NULL, 0, to, sizeof to, &hash, give_fd, NULL));
    assert_false(
        dt_shard_maps_copy(m, 0, UINT64_MAX - 5, NULL, 0, to, sizeof to, &hash, give_fd, NULL));
    assert_false(dt_shard_maps_copy(m, 0, 0, NULL, 0, to, 100, &hash, give_fd, NULL));
    dt_shard_maps_destroy(m);
}

static bool copies_by_map(void) {
    static uint8_t to[65536];
    uint64_t hash;
    dt_shard_maps *m = dt_shard_maps_create(1, 64 << 20);
    bool ok = dt_shard_maps_copy(m, 0, 0, NULL, 0, to, sizeof to, &hash, give_fd, NULL);
    dt_shard_maps_destroy(m);
    return ok;
}

static void limited_addresses_are_left_alone(void **state) {
    struct rlimit was, limit;
    assert_int_equal(getrlimit(RLIMIT_AS, &was), 0);
    if (was.rlim_cur != RLIM_INFINITY || !copies_by_map()) return;
    limit = was;
    limit.rlim_cur = RLIM_INFINITY / 4;
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
    bool mapped = copies_by_map();
    assert_int_equal(setrlimit(RLIMIT_AS, &was), 0);
    assert_false(mapped);
}

static void write_at(uint64_t at, const void *data, size_t n) {
    int fd = open(packed, O_WRONLY);
    assert_int_equal(pwrite(fd, data, n, (off_t)at), n);
    close(fd);
}

static void a_changed_byte_is_told_alike(void **state) {
    dt_set *s = open_set();
    place p = {.hash = dt_hash_stream_create()};
    const dt_member *m = &s->catalog->members[member_of(s, 7)];
    char want[1024];
    assert_int_equal(read_one(s, 6, true, &p), DT_OK);
    for (uint64_t at = m->offset + 3; at < m->offset + m->size; at += 10007) {
        uint8_t other = (uint8_t)~original[at];
        write_at(at, &other, 1);
        assert_int_equal(read_one(s, 7, false, &p), DT_E_DATA);
        snprintf(want, sizeof want, "%s", dt_error_message());
        assert_non_null(strstr(want, "XXH3 differs"));
        assert_int_equal(read_one(s, 7, true, &p), DT_E_DATA);
        assert_string_equal(dt_error_message(), want);
        write_at(at, &original[at], 1);
        assert_int_equal(read_one(s, 7, true, &p), DT_OK);
    }
    dt_hash_stream_destroy(p.hash);
    dt_set_close(s);
}

// ---- cut while it is read ------------------------------------------------------------------------------
typedef struct cutting {
    dt_set *s;
    bool stop;
    uint64_t n_right, n_wrong, n_cut, n_other;
} cutting;

static void *keep_reading(void *arg) {
    cutting *c = arg;
    place *p = aligned_alloc(64, (sizeof *p + 63) / 64 * 64);
    p->hash = dt_hash_stream_create();
    for (uint32_t i = 0; !__atomic_load_n(&c->stop, __ATOMIC_RELAXED); i++) {
        uint32_t r = i * 7 % N_RECORDS;
        dt_status st = read_one(c->s, r, true, p);
        uint64_t *n =
            st == DT_OK ? is_right(c->s, r, p) ? &c->n_right : &c->n_wrong
            : strstr(dt_error_message(), "truncated") || strstr(dt_error_message(), "XXH3 differs")
                ? &c->n_cut // or zeros, while it is written again
                : &c->n_other;
        __atomic_fetch_add(n, 1, __ATOMIC_RELAXED);
    }
    dt_hash_stream_destroy(p->hash);
    free(p);
    return NULL;
}

static bool has_read_both(const cutting *c) {
    return __atomic_load_n(&c->n_right, __ATOMIC_RELAXED) > 100 &&
           __atomic_load_n(&c->n_cut, __ATOMIC_RELAXED) > 10;
}

static void a_file_that_is_cut_is_an_error(void **state) {
    enum { N_THREADS = 3, N_CUTS = 80 };
    cutting c = {.s = open_set()};
    pthread_t t[N_THREADS];
    dt_rng rng = {.seed = 3};
    int fd = open(packed, O_WRONLY);
    for (int i = 0; i < N_THREADS; i++) pthread_create(&t[i], NULL, keep_reading, &c);
    double end = dt_clock_s() + 20; // readers that get no core meanwhile see no cut
    for (uint32_t i = 0; i < N_CUTS || (!has_read_both(&c) && dt_clock_s() < end); i++) {
        size_t to = dt_rng_below(&rng, i, (uint32_t)n_packed);
        assert_int_equal(ftruncate(fd, (off_t)to), 0);
        if (i % 3 == 0) usleep(1000);
        assert_int_equal(pwrite(fd, original + to, n_packed - to, (off_t)to), n_packed - to);
        usleep(1000);
    }
    __atomic_store_n(&c.stop, true, __ATOMIC_RELAXED);
    for (int i = 0; i < N_THREADS; i++) pthread_join(t[i], NULL);
    close(fd);
    check_mapped(c.s);
    assert_int_equal(c.n_wrong, 0);
    assert_int_equal(c.n_other, 0);
    assert_true(has_read_both(&c));
    // and it is as it was
    place p = {.hash = dt_hash_stream_create()};
    for (uint32_t r = 0; r < N_RECORDS; r++)
        assert_true(read_one(c.s, r, true, &p) == DT_OK && is_right(c.s, r, &p));
    dt_hash_stream_destroy(p.hash);
    dt_set_close(c.s);
}

static int tear_down(void **state) {
    free(original);
    fixture_end();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fault_elsewhere_is_not_ours),
        cmocka_unit_test(a_later_handler_is_put_below),
        cmocka_unit_test(a_handler_for_one_signal_gets_one),
        cmocka_unit_test(word_of_bad_memory_ends_a_process_without_handler),
        cmocka_unit_test(signals_may_be_blocked),
        cmocka_unit_test(a_guard_ends_at_the_fault),
        cmocka_unit_test(a_copy_has_the_hash_of_its_bytes),
        cmocka_unit_test(a_map_gives_what_a_read_gives),
        cmocka_unit_test(no_more_is_mapped_than_may_be),
        cmocka_unit_test(limited_addresses_are_left_alone),
        cmocka_unit_test(a_changed_byte_is_told_alike),
        cmocka_unit_test(a_file_that_is_cut_is_an_error),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
