// Caches: what was stored comes back, whole or not at all, within the limit, whoever shares it and
// whoever dies; batches are the same with each of them.
#include "base/failpoint.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/os.h"
#include "data/data.h"
#include "data/loader/data_parts.h"
#include "loader_case.h"
#include "testing.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { N = 300, MAX_ENTRY = 9000 };

static size_t entry_size(uint32_t e) {
    return 1 + (e * 2654435761u >> 8) % MAX_ENTRY;
}

static void make_entry(uint32_t e, uint8_t *out) {
    for (size_t i = 0; i < entry_size(e); i++) out[i] = (uint8_t)(e * 31 + i * 7 + (i >> 8));
}

static bool is_entry(uint32_t e, const uint8_t *p) {
    for (size_t i = 0; i < entry_size(e); i++)
        if (p[i] != (uint8_t)(e * 31 + i * 7 + (i >> 8))) return false;
    return true;
}

static uint64_t total(void) {
    uint64_t sum = 0;
    for (uint32_t e = 0; e < N; e++) sum += entry_size(e);
    return sum;
}

static dt_cache_opts opts(dt_cache_kind kind, uint64_t cap) {
    return (dt_cache_opts){.kind = kind,
                           .key = (uint64_t)getpid() << 20 | 77,
                           .n_entries = N,
                           .total_bytes = total(),
                           .cap_bytes = cap,
                           .n_processes = 1};
}

static dt_cache *open_cache(const dt_cache_opts *o) {
    dt_cache *c;
    must(dt_cache_open(&c, o));
    return c;
}

// What the cache gives for an entry.
static bool get(dt_cache *c, uint32_t e, uint8_t *buf) {
    const uint8_t *p = dt_cache_find(c, e);
    if (p) memcpy(buf, p, entry_size(e));
    return p != NULL;
}

static void store(dt_cache *c, uint32_t e) {
    uint8_t buf[MAX_ENTRY + 1];
    make_entry(e, buf);
    dt_cache_store(c, e, buf, entry_size(e));
}

static const dt_cache_kind KINDS[] = {DT_CACHE_ram, DT_CACHE_shared};

TEST(what_is_stored_comes_back) {
    uint8_t buf[MAX_ENTRY + 1];
    for (int k = 0; k < 2; k++) {
        dt_cache_opts o = opts(KINDS[k], 0);
        dt_cache *c = open_cache(&o);
        for (uint32_t e = 0; e < N; e++) assert_false(dt_cache_has(c, e) || get(c, e, buf));
        for (uint32_t e = 0; e < N; e += 2) store(c, e);
        for (uint32_t e = 0; e < N; e += 2) store(c, e); // no effect
        for (uint32_t e = 0; e < N; e++) {
            assert_int_equal(dt_cache_has(c, e), e % 2 == 0);
            assert_int_equal(get(c, e, buf), e % 2 == 0);
            if (e % 2 == 0) assert_true(is_entry(e, buf));
        }
        dt_cache_stats u;
        dt_cache_get_stats(c, &u);
        assert_int_equal(u.n_entries, N / 2);
        assert_false(u.full);
        dt_cache_close(c);
    }
}

TEST(the_limit_holds) {
    uint8_t buf[MAX_ENTRY + 1];
    const uint64_t cap = 400 << 10;
    for (int k = 0; k < 2; k++) {
        dt_cache_opts o = opts(KINDS[k], cap);
        o.key++;
        dt_cache *c = open_cache(&o);
        for (int round = 0; round < 2; round++)
            for (uint32_t e = 0; e < N; e++) store(c, e);
        uint64_t n = 0, n_bytes = 0;
        for (uint32_t e = 0; e < N; e++)
            if (get(c, e, buf)) {
                assert_true(is_entry(e, buf));
                n++;
                n_bytes += entry_size(e);
            }
        dt_cache_stats u;
        dt_cache_get_stats(c, &u);
        assert_true(u.full);
        assert_int_equal(u.n_entries, n);
        assert_true(n_bytes <= cap);
        if (n_bytes < cap * 7 / 10) fail_msg("%s: only %zu bytes", DT_WORD_OF(DT_CACHE_WORDS, u.kind), (size_t)n_bytes);
        dt_cache_close(c);
    }
}

// ---- many at once ----------------------------------------------------------------------------------
typedef struct crowd {
    dt_cache *c;
    uint32_t first;
} crowd;

static void *fill_and_look(void *arg) {
    crowd *w = arg;
    uint8_t buf[MAX_ENTRY + 1];
    for (int round = 0; round < 4; round++)
        for (uint32_t i = 0; i < N; i++) {
            uint32_t e = (w->first + i * 7) % N;
            if (get(w->c, e, buf)) {
                if (!is_entry(e, buf)) return NULL;
            } else {
                store(w->c, e);
            }
        }
    return w;
}

TEST(threads_share_it) {
    for (int k = 0; k < 4; k++) {
        dt_cache_opts o = opts(KINDS[k / 2], k % 2 ? 1 << 20 : 0);
        o.key += 2 + 100 * (uint64_t)k;
        crowd w[4];
        pthread_t t[4];
        dt_cache *c = open_cache(&o);
        for (uint32_t i = 0; i < 4; i++) {
            w[i] = (crowd){c, i * 11};
            pthread_create(&t[i], NULL, fill_and_look, &w[i]);
        }
        for (int i = 0; i < 4; i++) {
            void *ok;
            pthread_join(t[i], &ok);
            assert_non_null(ok);
        }
        uint8_t buf[MAX_ENTRY + 1];
        for (uint32_t e = 0; e < N; e++) {
            bool has = get(c, e, buf);
            assert_true(has ? is_entry(e, buf) : k % 2 == 1);
        }
        dt_cache_close(c);
    }
}

// Of keys that opts() makes.
static int n_segments(void) {
    char **names, prefix[64];
    size_t n;
    int found = 0;
    snprintf(prefix, sizeof prefix, "dtrain-%u-%011x", (unsigned)geteuid(), (unsigned)getpid());
    must(dt_io_list_dir(&names, &n, "/dev/shm", DT_E_STORAGE));
    for (size_t i = 0; i < n; i++) found += strncmp(names[i], prefix, strlen(prefix)) == 0;
    dt_io_free_list(names, n);
    return found;
}

// A child that opens the cache, fills its share, waits until all is there and checks it.
static void be_one_of_four(dt_cache_opts o, int index) {
    dt_cache *c;
    uint8_t buf[MAX_ENTRY + 1];
    if (dt_cache_open(&c, &o) != DT_OK) _exit(10);
    for (uint32_t e = 0; e < N; e++)
        if (e % 4 == (uint32_t)index) store(c, e);
    for (int tries = 0;; tries++) {
        uint32_t n = 0;
        for (uint32_t e = 0; e < N; e++) n += get(c, e, buf) && is_entry(e, buf);
        if (n == N) break;
        if (tries > 20000) _exit(11);
        usleep(1000);
    }
    dt_cache_stats u;
    dt_cache_get_stats(c, &u);
    if (u.n_entries != N) _exit(12); // one copy of each
    dt_cache_close(c);
    _exit(0);
}

TEST(processes_share_it) {
    int before = n_segments();
    dt_cache_opts o = opts(DT_CACHE_shared, 0);
    o.key += 3;
    o.n_processes = 4;
    pid_t pids[4];
    for (int i = 0; i < 4; i++) {
        pids[i] = fork();
        if (pids[i] == 0) be_one_of_four(o, i);
    }
    for (int i = 0; i < 4; i++) {
        int rc;
        assert_int_equal(waitpid(pids[i], &rc, 0), pids[i]);
        assert_int_equal(rc, 0);
    }
    assert_int_equal(n_segments(), before);
}

// A filler that is killed in the middle keeps nobody waiting, and its half-written entry from nobody's
// sight; once all have come, nothing is left to clean up however they end.
TEST(a_killed_filler_blocks_nobody) {
    int before = n_segments();
    dt_cache_opts o = opts(DT_CACHE_shared, 0);
    o.key += 4;
    o.n_processes = 2;
    dt_cache *c = open_cache(&o);
    assert_int_equal(n_segments(), before + 1);
    pid_t pid = fork();
    if (pid == 0) {
        dt_cache *mine;
        if (dt_cache_open(&mine, &o) != DT_OK) _exit(1);
        for (uint32_t round = 0;; round++)
            for (uint32_t e = 0; e < N / 2; e++) store(mine, e);
    }
    while (!dt_cache_has(c, N / 4)) usleep(100);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    assert_int_equal(n_segments(), before); // the name went when the second one came
    uint8_t buf[MAX_ENTRY + 1];
    uint32_t n = 0;
    for (uint32_t e = 0; e < N; e++) store(c, e);
    for (uint32_t e = 0; e < N; e++)
        if (get(c, e, buf)) {
            assert_true(is_entry(e, buf));
            n++;
        }
    assert_true(n >= N - 1);
    dt_cache_close(c);
}

TEST(what_the_dead_left_is_removed) {
    dt_cache_opts o = opts(DT_CACHE_shared, 0);
    o.key += 5;
    o.n_processes = 9; // more than will come
    int before = n_segments();
    pid_t pid = fork();
    if (pid == 0) {
        dt_cache *mine;
        if (dt_cache_open(&mine, &o) != DT_OK) _exit(1);
        for (uint32_t e = 0; e < N; e++) store(mine, e);
        kill(getpid(), SIGKILL);
    }
    waitpid(pid, NULL, 0);
    assert_int_equal(n_segments(), before + 1);
    // one that lives is left alone
    o.key++;
    dt_cache *alive = open_cache(&o); // removes the dead one
    assert_int_equal(n_segments(), before + 1);
    o.key++;
    dt_cache_close(open_cache(&o)); // nor does the next one touch it
    assert_int_equal(n_segments(), before + 1);
    store(alive, 3);
    assert_true(dt_cache_has(alive, 3));
    dt_cache_close(alive);
    assert_int_equal(n_segments(), before);
}

static char *segment_path(uint64_t key) {
    char hex[17];
    dt_hash_hex(key, hex);
    return dt_xprintf("/dev/shm/dtrain-%u-%s", (unsigned)geteuid(), hex);
}

// A maker that died before it had finished: an empty file, and one without its head.
TEST(an_unfinished_segment_is_made_again) {
    dt_cache_opts o = opts(DT_CACHE_shared, 0);
    o.key += 20;
    o.n_processes = 3;
    char *path = segment_path(o.key);
    for (int k = 0; k < 2; k++) {
        int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
        assert_true(fd >= 0);
        if (k) assert_int_equal(ftruncate(fd, 1 << 20), 0);
        close(fd);
        dt_cache *a = open_cache(&o);
        store(a, 7);
        dt_cache *b = open_cache(&o);
        assert_true(dt_cache_has(b, 7));
        dt_cache_close(a);
        assert_int_equal(access(path, F_OK), 0); // the other one has it
        dt_cache_close(b);
        assert_int_not_equal(access(path, F_OK), 0);
    }
    // a file that others can write is not ours
    dt_cache *c;
    close(open(path, O_RDWR | O_CREAT | O_EXCL, 0600));
    assert_int_equal(chmod(path, 0666), 0);
    assert_int_equal(dt_cache_open(&c, &o), DT_E_STORAGE);
    assert_int_equal(unlink(path), 0);
    free(path);
}

TEST(a_link_is_no_segment) {
    dt_cache_opts o = opts(DT_CACHE_shared, 0);
    o.key += 30;
    char *path = segment_path(o.key), *victim = dt_xstrdup(fixture_path("victim"));
    assert_int_equal(symlink(victim, path), 0);
    dt_cache *c;
    assert_int_equal(dt_cache_open(&c, &o), DT_E_STORAGE);
    assert_false(dt_io_exists(victim));
    assert_int_equal(unlink(path), 0);
    free(victim);
    free(path);
}

TEST(a_full_file_system_is_no_crash) {
    uint8_t buf[MAX_ENTRY + 1];
    dt_cache_opts o = opts(DT_CACHE_shared, 0);
    o.key += 10;
    dt_cache *c = open_cache(&o);
    must(dt_failpoint_set("io:1:enospc"));
    for (uint32_t e = 0; e < N; e++) store(c, e);
    must(dt_failpoint_set(NULL));
    dt_cache_stats u;
    dt_cache_get_stats(c, &u);
    assert_true(u.full);
    for (uint32_t e = 0; e < N; e++)
        if (get(c, e, buf)) assert_true(is_entry(e, buf));
    dt_cache_close(c);
}

// ---- batches ---------------------------------------------------------------------------------------
enum { STEPS = 110 }; // three epochs of 36

static void run_steps(const char *path, const char *extra, uint64_t out[STEPS], dt_source_stats *stats) {
    dt_dataset *d = fixture_open(path, extra, 3);
    dt_batch_source *s = open_train(d, 0, STEPS);
    for (int64_t step = 0; step < STEPS; step++) out[step] = take_step(d, s, step);
    s->stats(s, stats);
    s->close(s);
    d->close(d);
}

#define AUGMENT "  augment: {fingerprint: [{rotate: 10}], iris: [random_resized_crop]}\n"

TEST(batches_do_not_depend_on_the_cache) {
    static const char *const CACHES[] = {
        "  cache: ram\n",
        "  cache: ram\n  cache_form: decoded\n",
        "  cache: shared\n",
        "  cache: shared\n  cache_form: decoded\n  readers: 2\n",
        "  cache: shared\n  cache_size: 16KiB\n  readers: 2\n",
        "  cache: disk\n",
        "  cache: disk\n  readers: 3\n",
        "  cache: ram\n  cache_size: 8KiB\n  cache_form: decoded\n  shuffle: global\n",
    };
    uint64_t want[STEPS], got[STEPS];
    dt_source_stats t;
    must(dt_io_remove_tree(fixture_path("disk")));
    run_steps(packed, AUGMENT, want, &t);
    assert_int_equal(t.cache.kind, DT_CACHE_none);
    for (size_t k = 0; k < sizeof CACHES / sizeof *CACHES; k++) {
        char *extra = dt_xprintf("%s%s  cache_dir: \"%s\"\n", AUGMENT, CACHES[k], fixture_path("disk"));
        run_steps(packed, extra, got, &t);
        assert_memory_equal(want, got, sizeof want);
        bool small = strstr(CACHES[k], "KiB");
        if (t.cache.kind == DT_CACHE_disk) { // a set of less than a block, of an earlier run at last
            assert_true(t.cache.n_entries == 1 && !t.cache.full);
            assert_true(t.cache.n_misses <= (k == 5 ? 4 : 0) && t.cache.n_hits > 100);
            free(extra);
            continue;
        }
        assert_int_equal(t.cache.full, small);
        assert_true(t.cache.n_entries > 0 && t.cache.n_bytes > 0);
        assert_int_equal(t.cache.n_hits + t.cache.n_misses, t.stage[DT_STAGE_DECODE].items);
        // 42 records of each kind train: read once, not in each epoch, and some by several workers at a time
        if (!small) assert_in_range(t.cache.n_misses, 84, 3 * 84 - 1);
        if (small) assert_true(t.cache.n_hits > 20 && t.cache.n_misses > 500);
        free(extra);
    }
}

// What does not match its hash never comes into a cache.
TEST(a_bad_record_is_not_kept) {
    const char *bad = fixture_path("bad.lmdb");
    char *from = dt_xprintf("%s/data.mdb", packed), *to = dt_xprintf("%s/data.mdb", bad);
    char *from_index = dt_xprintf("%s.index", from), *to_index = dt_xprintf("%s.index", to);
    size_t n, n_index;
    uint8_t *data = fixture_read(from, &n);
    void *index = fixture_read(from_index, &n_index);
    dt_dataset *set = fixture_open(packed, "", 1);
    const dt_data *d = set->self;
    uint32_t bad_record = d->view.record[(size_t)d->splits.sample[0][5] * 2 + 1];
    const dt_record *r = &d->reader->catalog->records[bad_record];
    data[d->reader->catalog->members[r->first_member].offset + 80] ^= 4;
    set->close(set);
    fixture_write(to, data, n);
    fixture_write(to_index, index, n_index);
    uint64_t want[STEPS], got[STEPS];
    dt_source_stats plain, cached;
    run_steps(bad, "  on_error: skip\n", want, &plain);
    assert_true(plain.n_skipped > 10);
    static const char *const CACHES[] = {"ram", "shared", "disk"};
    for (int k = 0; k < 3; k++) {
        char *extra =
            dt_xprintf("  on_error: skip\n  cache: %s\n  cache_dir: \"%s\"\n", CACHES[k], fixture_path("disk2"));
        run_steps(bad, extra, got, &cached);
        assert_memory_equal(want, got, sizeof want);
        assert_int_equal(cached.n_skipped, plain.n_skipped);
        free(extra);
    }
    free(data), free(index), free(from), free(to), free(from_index), free(to_index);
}

TEST(wrong_wishes_are_named) {
    dt_config *c = fixture_config(packed, "  cache: disk\n  cache_form: decoded\n");
    dt_dataset *d;
    must_fail(DT_E_USAGE, "t.yaml:", dt_data_open(&d, c, NULL, 1, NULL));
    assert_non_null(strstr(dt_error_message(), "ram or shared"));
}

TEST(what_pixels_would_take_is_known) {
    static const struct {
        const char *extra;
        bool can;
    } CASES[] = {{"", true},
                 {"  cache: ram\n", true},
                 {"  cache: ram\n  cache_form: decoded\n", false}, // they are kept already
                 {AUGMENT, false}};                                // one differs by epoch
    for (size_t k = 0; k < sizeof CASES / sizeof *CASES; k++) {
        dt_dataset *d = fixture_open(packed, CASES[k].extra, 1);
        const dt_data *data = d->self;
        dt_pipeline_facts f;
        uint64_t want = 0;
        d->facts(d, &f);
        for (int i = 0; i < 2; i++) // half of the records have the one, half the other
            want += data->reader->catalog->n_records / 2 * (uint64_t)dt_shape_elements(&d->fields[i].sample_shape);
        assert_int_equal(f.decoded_bytes, CASES[k].can ? want : 0);
        assert_true(f.free_bytes > 0 && f.n_processes == 1);
        d->close(d);
    }
}

TEST(memory_is_known) {
    dt_memory m;
    dt_memory_read(&m);
    assert_true(m.total_bytes > 64 << 20);
    assert_true(m.available_bytes > 0 && m.available_bytes <= m.total_bytes);
}

TEST_MAIN(loader_set_up, fixture_tear_down)
