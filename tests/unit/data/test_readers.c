// Reading ahead and tuning: batches stay the same whoever reads the bytes and however often threads and
// slots are changed; the byte ring wraps; readers begin and stop by what reads cost.
#include "base/os.h"
#include "data/loader/data_parts.h"
#include "loader_case.h"
#include "testing.h"

#include <malloc.h>
#include <pthread.h>

enum { STEPS = 80 };
enum { TIMEOUT_S = 60 }; // for threads that get no core, or whose reads seem to be a disk's

static void all_steps(const char *extra, int64_t from, uint64_t out[STEPS]) {
    dt_dataset *d = fixture_open(packed, extra, 3);
    dt_batch_source *s = open_train(d, from, STEPS);
    for (int64_t step = from; step < STEPS; step++) out[step] = take_step(d, s, step);
    s->close(s);
    d->close(d);
}

#define AUGMENT "  augment: {iris: [{flip: horizontal}, {noise: 0.02}]}\n"

TEST(batches_do_not_depend_on_readers) {
    static const char *const SHUFFLES[] = {"global", "block", "none"};
    for (int k = 0; k < 3; k++) {
        uint64_t want[STEPS], got[STEPS];
        char *plain = dt_xprintf(AUGMENT "  shuffle: %s\n  readers: 0\n", SHUFFLES[k]);
        char *ahead = dt_xprintf(AUGMENT "  shuffle: %s\n  readers: 4\n", SHUFFLES[k]);
        all_steps(plain, 0, want);
        all_steps(ahead, 0, got);
        assert_memory_equal(want, got, sizeof want);
        all_steps(ahead, 37, got);
        assert_memory_equal(want + 37, got + 37, sizeof want - 37 * sizeof *want);
        free(plain), free(ahead);
    }
}

TEST(readers_read_what_workers_use) {
    dt_dataset *d = fixture_open(packed, "  readers: 2\n", 2);
    dt_batch_source *s = open_train(d, 0, -1);
    dt_source_stats t;
    double end = dt_clock_s() + TIMEOUT_S;
    int64_t step = 0;
    do { // until readers were there in time once
        take_step(d, s, step++);
        s->stats(s, &t);
    } while (step < STEPS || (t.encoded.depth_s == 0 && dt_clock_s() < end));
    assert_true(t.reading_ahead);
    assert_int_equal(t.n_readers, 2);
    assert_int_equal(t.encoded.capacity, 1024);
    assert_true(t.encoded.depth_s > 0);
    assert_true(t.stage[DT_STAGE_READ].items >= STEPS * GLOBAL * 2);
    assert_true(t.batches.depth_s > 0);
    s->close(s);
    d->close(d);
}

TEST(seeks_among_readers) {
    static const int64_t TO[] = {5, 0, 61, 3, 3, 79, 20, 21, 2};
    uint64_t want[STEPS];
    all_steps(AUGMENT, 0, want);
    dt_dataset *d = fixture_open(packed, AUGMENT "  readers: 3\n", 3);
    dt_batch_source *s = open_train(d, 0, -1);
    for (int round = 0; round < 20; round++)
        for (size_t i = 0; i < sizeof TO / sizeof *TO; i++) {
            must(s->seek(s, TO[i]));
            assert_true(take_step(d, s, TO[i]) == want[TO[i]]);
            if (TO[i] + 1 < STEPS) assert_true(take_step(d, s, TO[i] + 1) == want[TO[i] + 1]);
        }
    s->close(s);
    d->close(d);
}

typedef struct tuner {
    dt_batch_source *s;
    bool stop;
} tuner;

static void *keep_tuning(void *arg) {
    tuner *t = arg;
    static const dt_source_tuning TO[] = {{1, 1, 2}, {9, 5, 9}, {2, 200, 3}, {0, 0, 6}, {3, 2, 1}};
    for (int i = 0; !__atomic_load_n(&t->stop, __ATOMIC_RELAXED); i++) {
        dt_source_stats now;
        t->s->tune(t->s, &TO[i % 5]);
        t->s->stats(t->s, &now);
        if (now.n_workers < 1 || now.n_workers > now.max_workers) return NULL;
        if (now.ring_slots < 2 || now.ring_slots > now.max_slots) return NULL;
        usleep(300);
    }
    return t;
}

TEST(batches_do_not_depend_on_tuning) {
    uint64_t want[STEPS];
    all_steps(AUGMENT, 0, want);
    for (int k = 0; k < 2; k++) {
        dt_dataset *d = fixture_open(packed, k ? AUGMENT "  readers: 2\n" : AUGMENT, 2);
        dt_batch_source *s = open_train(d, 0, -1);
        tuner t = {.s = s};
        pthread_t thread;
        void *ok;
        pthread_create(&thread, NULL, keep_tuning, &t);
        for (int round = 0; round < 6; round++) {
            if (round) must(s->seek(s, 0));
            for (int64_t step = 0; step < STEPS; step++) assert_true(take_step(d, s, step) == want[step]);
        }
        __atomic_store_n(&t.stop, true, __ATOMIC_RELAXED);
        pthread_join(thread, &ok);
        assert_non_null(ok);
        s->close(s);
        d->close(d);
    }
}

TEST(slots_and_workers_change) {
    dt_dataset *d = fixture_open(packed, "", 1);
    dt_batch_source *s = open_train(d, 0, -1);
    dt_source_stats before, after;
    s->stats(s, &before);
    assert_int_equal(before.n_workers, 1);
    assert_true(before.max_slots > before.ring_slots);
    s->tune(s, &(dt_source_tuning){.workers = 1000, .slots = before.ring_slots + 1});
    s->stats(s, &after);
    assert_int_equal(after.n_workers, after.max_workers);
    assert_int_equal(after.ring_slots, before.ring_slots + 1);
    // a consumer that takes nothing blocks the workers, and all slots fill
    double end = dt_clock_s() + 20;
    do {
        usleep(1000);
        s->stats(s, &after);
    } while (after.batches.depth < after.ring_slots && dt_clock_s() < end);
    assert_int_equal(after.batches.depth, after.ring_slots);
    assert_true(after.ring_bytes > before.ring_bytes);
    // it counts when it ends, for those that were asleep by then
    end = dt_clock_s() + 20;
    for (int64_t step = 0; after.blocked_s == 0 && dt_clock_s() < end; step++) {
        take_step(d, s, step);
        usleep(1000);
        s->stats(s, &after);
    }
    assert_true(after.blocked_s > 0);
    s->close(s);
    d->close(d);
}

// ---- memory of the ring ------------------------------------------------------------------------------
static int n_host_blocks, max_host_blocks;

static dt_status count_alloc(void *owner, void **p, size_t n_bytes, const char *what) {
    if (n_host_blocks == max_host_blocks) return dt_fail(DT_E_INTERNAL, "no pinned memory");
    n_host_blocks++;
    *p = aligned_alloc(64, n_bytes);
    return DT_OK;
}

static void count_free(void *owner, void *p, size_t n_bytes) {
    n_host_blocks--;
    free(p);
}

// The ring's memory is that of dt_batch_memory, all of it is given back, and the ring grows as far as there is memory.
TEST(a_backend_gives_the_memory) {
    const dt_batch_memory memory = {.alloc = count_alloc, .free = count_free};
    dt_config *c = fixture_config(packed, "");
    dt_dataset *d;
    dt_source_stats t;
    n_host_blocks = 0;
    max_host_blocks = 1000;
    must(dt_data_open(&d, c, &memory, 2, NULL));
    dt_batch_source *train = open_train(d, 0, -1);
    train->stats(train, &t);
    assert_int_equal(n_host_blocks, t.ring_slots);
    max_host_blocks = t.ring_slots + 2;
    train->tune(train, &(dt_source_tuning){.slots = t.ring_slots + 3});
    train->stats(train, &t);
    assert_int_equal(t.ring_slots, max_host_blocks);
    for (int64_t step = 0; step < STEPS; step++) take_step(d, train, step);
    train->close(train);
    assert_int_equal(n_host_blocks, 0);
    d->close(d);
}

// ---- the ring itself -------------------------------------------------------------------------------
typedef struct walk {
    const dt_data *d;
    int64_t end;
} walk;

static bool walk_at(const void *ctx, int64_t place, uint32_t *sample) {
    const walk *w = ctx;
    if (place >= w->end) return false;
    *sample = (uint32_t)(place % w->d->view.n);
    return true;
}

// Until readers have something ready.
static void wait_for_readers(dt_ahead *a) {
    dt_ahead_stats t;
    double end = dt_clock_s() + TIMEOUT_S;
    do dt_ahead_get_stats(a, &t);
    while (t.n_ready == 0 && dt_clock_s() < end);
}

static void check_place(const dt_data *d, int64_t place, const dt_span *given, size_t limit) {
    const uint32_t *records = d->view.record + (place % d->view.n) * d->view.width;
    dt_buffer scratch = {0};
    for (int i = 0; i < d->fields.n; i++) {
        uint32_t record = records[d->fields.f[i].part];
        int64_t member = dt_field_member(&d->fields.f[i], d->reader->catalog, record);
        bool small = member >= 0 && d->reader->catalog->members[member].size <= limit;
        assert_int_equal(given[i].data != NULL, small);
        if (!small) continue;
        dt_span want;
        must(dt_reader_read(d->reader, record, (uint32_t)member, true, &scratch, &want));
        assert_int_equal(want.n_bytes, given[i].n_bytes);
        assert_memory_equal(want.data, given[i].data, want.n_bytes);
    }
    dt_buffer_fini(&scratch);
}

// Workers that go on in order, hold several places and give them back in another order.
TEST(the_ring_wraps) {
    dt_dataset *set = fixture_open(packed, "  shuffle: none\n", 1);
    const dt_data *d = set->self;
    // 4 KiB: a few samples; 1700: no fingerprint (534 bytes) is read ahead, every iris (438) is
    static const size_t CAPS[] = {4096, 1 << 20, 1800};
    for (int k = 0; k < 3; k++) {
        walk w = {d, 900};
        dt_ahead_opts o = {.d = d,
                           .sample_at = walk_at,
                           .ctx = &w,
                           .n_readers = 3,
                           .max_readers = 3,
                           .always = true,
                           .cap_bytes = CAPS[k]};
        dt_ahead *a;
        dt_ahead_stats t;
        int64_t n_given = 0;
        must(dt_ahead_create(&a, &o));
        for (int64_t at = 0; at < 900; at += 3) {
            dt_counter wait = 0;
            if (at % 60 == 0) wait_for_readers(a);
            int64_t own = dt_ahead_begin(a, at, at + 3);
            for (int64_t p = at; p < own; p++) check_place(d, p, dt_ahead_wait(a, p, &wait), CAPS[k] / 4);
            for (int64_t p = own - 1; p >= at; p--) dt_ahead_release(a, p);
            n_given += own - at;
        }
        dt_ahead_get_stats(a, &t);
        assert_true(n_given > 10);
        assert_int_equal(t.n_ready, 0);
        assert_true(t.n_reads > 0);
        dt_ahead_destroy(a);
    }
    set->close(set);
}

// Readers over a set of irises of its own: a tar, in stored order.
typedef struct irises {
    dt_dataset *set;
    walk w;
    dt_ahead *a;
} irises;

// Places up to `end`; 0: each sample once. o: readers and what they follow; the rest is filled in here.
static void begin_irises(irises *r, const char *name, int64_t end, dt_ahead_opts o) {
    const char *tar = fixture_path(name);
    fixture_pack(fixture_path("raw/iris"), tar);
    dt_config *c = fixture_parse("  path: \"%s\"\n  fields:\n    iris: {kind: image, size: [8, 16]}\n  "
                                 "shuffle: none\n",
                                 tar);
    *r = (irises){.set = fixture_open_config(c, 1)};
    const dt_data *d = r->set->self;
    r->w = (walk){d, end ? end : d->view.n};
    o.d = d, o.ctx = &r->w;
    o.max_readers = o.n_readers, o.always = true, o.cap_bytes = 1 << 20;
    must(dt_ahead_create(&r->a, &o));
}

static void end_irises(irises *r) {
    dt_ahead_destroy(r->a);
    r->set->close(r->set);
}

// Records that lie one behind the other in a tar, taken in stored order, share a read.
TEST(neighbours_share_a_read) {
    irises r;
    begin_irises(&r, "set-000000.tar", 0, (dt_ahead_opts){.sample_at = walk_at, .n_readers = 1});
    const dt_data *d = r.w.d;
    dt_ahead_stats t;
    dt_counter wait = 0;
    double end = dt_clock_s() + TIMEOUT_S;
    do dt_ahead_get_stats(r.a, &t);
    while (t.n_ready < (int)d->view.n && dt_clock_s() < end);
    assert_int_equal(dt_ahead_begin(r.a, 0, d->view.n), d->view.n);
    for (int64_t p = 0; p < d->view.n; p++) {
        check_place(d, p, dt_ahead_wait(r.a, p, &wait), SIZE_MAX);
        dt_ahead_release(r.a, p);
    }
    assert_int_equal(d->view.n, 60);
    assert_int_equal(t.n_reads, 2); // 32 places at most
    end_irises(&r);
}

// As many fields as may be, all of one member: a read each.
TEST(all_fields_are_members) {
    char fields[2048] = "", *tar = dt_xstrdup(fixture_path("fields-000000.tar"));
    for (int i = 0; i < DT_MAX_FIELDS; i++)
        sprintf(fields + strlen(fields), "    f%d: {kind: image, source: bmp, size: [8, 16]}\n", i);
    fixture_pack(fixture_path("raw/iris"), tar);
    dt_config *c = fixture_parse("  path: \"%s\"\n  fields:\n%s  shuffle: none\n", tar, fields);
    dt_dataset *set = fixture_open_config(c, 1);
    walk w = {set->self, 60};
    dt_ahead_opts o = {.d = set->self,
                       .sample_at = walk_at,
                       .ctx = &w,
                       .n_readers = 2,
                       .max_readers = 2,
                       .always = true,
                       .cap_bytes = 1 << 20};
    dt_ahead *a;
    dt_counter wait = 0;
    must(dt_ahead_create(&a, &o));
    wait_for_readers(a);
    const int64_t n = dt_ahead_begin(a, 0, 60);
    assert_true(n > 0);
    for (int64_t p = 0; p < n; p++) {
        check_place(set->self, p, dt_ahead_wait(a, p, &wait), SIZE_MAX);
        dt_ahead_release(a, p);
    }
    dt_ahead_destroy(a);
    set->close(set);
    free(tar);
}

TEST(reading_ahead_begins_and_ends) {
    dt_dataset *set = fixture_open(packed, "", 1);
    walk w = {set->self, INT64_MAX};
    dt_ahead_opts o = {
        .d = set->self, .sample_at = walk_at, .ctx = &w, .n_readers = 2, .max_readers = 2, .cap_bytes = 1 << 20};
    dt_ahead *a;
    dt_ahead_stats t;
    must(dt_ahead_create(&a, &o));
    for (int i = 0; i < 20; i++) dt_ahead_note(a, 32, 3); // preempted now and then
    dt_ahead_get_stats(a, &t);
    assert_false(t.on);
    assert_int_equal(dt_ahead_begin(a, 0, 10), 0); // all its own
    dt_ahead_note(a, 4, 4);
    int64_t at = 10;
    double end = dt_clock_s() + TIMEOUT_S;
    do { // these reads come from memory, and soon the readers know it
        dt_counter wait = 0;
        usleep(500);
        int64_t own = dt_ahead_begin(a, at, at + 2);
        for (int64_t p = at; p < own; p++) {
            dt_ahead_wait(a, p, &wait);
            dt_ahead_release(a, p);
        }
        at += 2;
        dt_ahead_get_stats(a, &t);
    } while ((t.on || t.n_reads == 0) && dt_clock_s() < end);
    assert_false(t.on);
    assert_true(t.n_reads >= 128);
    dt_ahead_seek(a, 0);
    dt_ahead_destroy(a);
    set->close(set);
}

// What was read ahead belongs to the sample that was meant, never to the one that replaces it: with hashes
// that would be refused, without them another record's pixels would come under this one's label.
TEST(a_replacement_has_bytes_of_its_own) {
    enum { EVERY = 7 };
    const char *raw = fixture_path("raw/iris"), *tar = fixture_path("holes.tar");
    fixture_pack(raw, tar);
    const char *paths[] = {tar};
    dt_reader *reader;
    size_t n;
    must(dt_reader_open(&reader, paths, 1));
    uint8_t *data = fixture_read(tar, &n);
    for (uint32_t r = 3; r < reader->catalog->n_records; r += EVERY)
        memset(data + reader->catalog->members[reader->catalog->records[r].first_member].offset, 0, 54);
    dt_reader_close(reader);
    for (int hashed = 1; hashed >= 0; hashed--) {
        const char *copy = fixture_path(hashed ? "hashed.tar" : "plain.tar");
        fixture_write(copy, data, n);
        if (hashed) {
            char *from = dt_xprintf("%s.index", tar), *to = dt_xprintf("%s.index", copy);
            size_t n_index;
            void *index = fixture_read(from, &n_index);
            fixture_write(to, index, n_index);
            free(index), free(from), free(to);
        }
        uint64_t hash[2][STEPS] = {{0}};
        for (int readers = 0; readers < 2; readers++) {
            dt_config *c = fixture_parse("  path: \"%s\"\n  write_index: false\n  on_error: skip\n  readers: %d\n"
                                         "  fields:\n    iris: {kind: image, size: [8, 16]}\n",
                                         copy, readers * 4);
            dt_dataset *d = fixture_open_config(c, 2);
            dt_batch_source *s = open_train(d, 0, STEPS);
            dt_source_stats t;
            for (int64_t step = 0; step < STEPS; step++) hash[readers][step] = take_step(d, s, step);
            s->stats(s, &t);
            assert_true(t.n_skipped > 20);
            s->close(s);
            d->close(d);
        }
        assert_memory_equal(hash[0], hash[1], sizeof hash[0]);
    }
    free(data);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { MEMORY_IS_OURS = 0 }; // a sanitizer keeps what is freed
#else
enum { MEMORY_IS_OURS = 1 };
#endif

static size_t heap_bytes(void) {
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

// Twenty epochs with readers and a cache: nothing is added after the first two, but the scratch of threads that got no
// core by then. What is allocated counts, as the kernel takes pages away and gives them back when it likes.
TEST(memory_is_flat_over_epochs) {
    enum { SCRATCH = 64 << 10 };
    if (!MEMORY_IS_OURS) skip();
    dt_dataset *d = fixture_open(packed, AUGMENT "  readers: 3\n  cache: ram\n", 3);
    dt_batch_source *s = open_train(d, 0, -1);
    int64_t step = 0, epoch = s->steps_per_epoch;
    while (step < 2 * epoch) take_step(d, s, step++);
    size_t before = heap_bytes();
    while (step < 20 * epoch) take_step(d, s, step++);
    assert_in_range(heap_bytes(), 0, before + SCRATCH);
    s->close(s);
    d->close(d);
}

// The very next sample, wherever training stopped in an epoch, and nothing before it is made again.
TEST(resuming_makes_nothing_twice) {
    uint64_t want[STEPS];
    all_steps(AUGMENT, 0, want);
    for (int64_t from = 1; from < STEPS; from += 13) {
        dt_dataset *d = fixture_open(packed, AUGMENT, 2);
        dt_batch_source *s = open_train(d, from, from + 1);
        dt_source_stats t;
        assert_true(take_step(d, s, from) == want[from]);
        s->stats(s, &t);
        assert_int_equal(t.stage[DT_STAGE_DECODE].items, GLOBAL * 2); // two members a sample
        s->close(s);
        d->close(d);
    }
}

TEST_MAIN(loader_set_up, fixture_tear_down)
