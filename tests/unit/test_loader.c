// Batches: what is in them is a function of the config alone; bad records are named or skipped.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "data/file/tar.h"
#include "data/loader/stage_times.h"
#include "data/source/source.h"
#include "data_fixture.h"

#include <pthread.h>

static const char *packed; // LMDB of 6 subjects x 10 x 10

enum { GLOBAL = 8, MICRO = 2, N_LEAVES = 4 };

static uint64_t batch_hash(const dt_dataset *d, const dt_batch *b) {
    uint64_t h = dt_hash64(b->sample, (size_t)b->n * sizeof *b->sample);
    h = h * 31 + dt_hash64(b->weight, (size_t)b->n * sizeof *b->weight);
    for (int i = 0; i < d->n_fields; i++) {
        const dt_field_info *f = &d->fields[i];
        size_t bytes =
            (size_t)b->n * (size_t)dt_shape_elements(&f->sample_shape) * dt_dtype_size(f->dtype);
        if (f->soft) bytes *= (size_t)f->n_classes; // of training
        h = h * 31 + dt_hash64(b->field[i], bytes);
        if (b->mix[i]) h = h * 31 + dt_hash64(b->mix[i], (size_t)b->n * sizeof *b->mix[i]);
    }
    return h;
}

static dt_batch_source *open_source(dt_dataset *d, dt_split split, const int *leaves, int n_leaves,
                                    int64_t start) {
    dt_source_request r = {.split = split,
                           .augment = split == DT_SPLIT_TRAIN,
                           .global_batch = GLOBAL,
                           .micro_batch = MICRO,
                           .leaves = leaves,
                           .n_leaves = n_leaves,
                           .start_step = start,
                           .end_step = -1};
    dt_batch_source *s = NULL;
    if (d->open(d, &r, &s) != DT_OK) fail_msg("%s", dt_error_message());
    return s;
}

static const int ALL[] = {0, 1, 2, 3};

// Hashes of all leaves of steps [from, to), by step and leaf.
static void hashes(dt_dataset *d, const int *leaves, int n, int64_t from, int64_t to,
                   uint64_t out[][N_LEAVES]) {
    dt_batch_source *s = open_source(d, DT_SPLIT_TRAIN, leaves, n, from);
    for (int64_t step = from; step < to; step++)
        for (int i = 0; i < n; i++) {
            const dt_batch *b;
            double wait;
            if (s->get(s, step, leaves[i], &b, &wait) != DT_OK) fail_msg("%s", dt_error_message());
            assert_int_equal(b->step, step);
            assert_int_equal(b->leaf, leaves[i]);
            assert_int_equal(b->n_valid, MICRO);
            out[step][leaves[i]] = batch_hash(d, b);
            s->release(s, b);
        }
    s->close(s);
}

#define AUGMENT                                                                                    \
    "  augment: {fingerprint: [{rotate: 10}, {shift: 0.05}], iris: [{flip: horizontal}, {noise: "  \
    "0.02}]}\n"

static void batches_do_not_depend_on_workers_or_ranks(void **state) {
    enum { STEPS = 90 }; // more than two epochs
    static uint64_t one[STEPS][N_LEAVES], many[STEPS][N_LEAVES], ranks[STEPS][N_LEAVES];
    dt_dataset *d = fixture_open(packed, AUGMENT, 1);
    assert_int_equal(d->n_samples(d, DT_SPLIT_TRAIN), 7 * 7 * 6);
    hashes(d, ALL, N_LEAVES, 0, STEPS, one);
    d->close(d);
    d = fixture_open(packed, AUGMENT, 4);
    hashes(d, ALL, N_LEAVES, 0, STEPS, many);
    static const int R0[] = {0}, R1[] = {2, 1, 3}; // any division of the leaves
    hashes(d, R0, 1, 0, STEPS, ranks);
    hashes(d, R1, 3, 0, STEPS, ranks);
    assert_memory_equal(one, many, sizeof one);
    assert_memory_equal(one, ranks, sizeof one);
    // resuming in the middle is the same
    memset(many, 0, sizeof many);
    hashes(d, ALL, N_LEAVES, 41, STEPS, many);
    assert_memory_equal(one[41], many[41], sizeof one[0] * (STEPS - 41));
    // and epochs differ, in order and in augmentation
    assert_int_not_equal(one[0][0], one[36][0]);
    d->close(d);
}

// Labels become shares; evaluation keeps them.
static void mixed_batches_do_not_depend_on_workers_or_ranks(void **state) {
    enum { STEPS = 40 };
    static uint64_t one[STEPS][N_LEAVES], many[STEPS][N_LEAVES], ranks[STEPS][N_LEAVES];
    static const char *const MIX = AUGMENT "  mix: {mixup: 0.4, cutmix: 1.0}\n";
    dt_dataset *d = fixture_open(packed, MIX, 1);
    hashes(d, ALL, N_LEAVES, 0, STEPS, one);
    d->close(d);
    d = fixture_open(packed, MIX, 4);
    hashes(d, ALL, N_LEAVES, 0, STEPS, many);
    static const int R0[] = {0}, R1[] = {2, 1, 3};
    hashes(d, R0, 1, 0, STEPS, ranks);
    hashes(d, R1, 3, 0, STEPS, ranks);
    assert_memory_equal(one, many, sizeof one);
    assert_memory_equal(one, ranks, sizeof one);
    memset(many, 0, sizeof many);
    hashes(d, ALL, N_LEAVES, 17, STEPS, many);
    assert_memory_equal(one[17], many[17], sizeof one[0] * (STEPS - 17));

    const dt_batch *b;
    dt_batch_source *s = open_source(d, DT_SPLIT_TRAIN, R0, 1, 0);
    int n_classes = s->fields[2].n_classes, n_soft = 0;
    assert_true(s->fields[2].soft && n_classes > 1);
    assert_true(s->fields[0].mixed && s->fields[1].mixed && !s->fields[2].mixed);
    int n_mixed = 0;
    for (int64_t step = 0; step < 10; step++) {
        assert_int_equal(s->get(s, step, 0, &b, NULL), DT_OK);
        assert_true(b->mix[0] && b->mix[1] && !b->mix[2]);
        for (int i = 0; i < MICRO; i++) {
            const dt_mix_row *m = &b->mix[1][i]; // 8 x 16 pixels
            assert_true(m->own >= 0 && m->own <= DT_MIX_ONE && m->y1 <= 8 && m->x1 <= 16);
            n_mixed += m->own < DT_MIX_ONE || m->y1 > m->y0;
            const float *share = (const float *)b->field[2] + i * n_classes;
            float sum = 0;
            for (int k = 0; k < n_classes; k++) {
                sum += share[k];
                n_soft += share[k] > 0 && share[k] < 1;
            }
            assert_true(sum == 1);
        }
        s->release(s, b);
    }
    assert_true(n_soft > 10 && n_mixed > 10);
    s->close(s);
    s = open_source(d, DT_SPLIT_VAL, R0, 1, 0);
    assert_int_equal(s->get(s, 0, 0, &b, NULL), DT_OK);
    for (int i = 0; i < MICRO; i++)
        assert_in_range(((const int32_t *)b->field[2])[i], 0, n_classes - 1);
    assert_true(!b->mix[0] && !b->mix[1]);
    s->release(s, b);
    s->close(s);
    d->close(d);
}

static void an_epoch_has_each_sample_at_most_once(void **state) {
    dt_dataset *d = fixture_open(packed, "", 2);
    dt_batch_source *s = open_source(d, DT_SPLIT_TRAIN, ALL, N_LEAVES, 0);
    assert_int_equal(s->steps_per_epoch, 7 * 7 * 6 / GLOBAL);
    uint8_t seen[600] = {0};
    for (int64_t step = 0; step < s->steps_per_epoch; step++)
        for (int leaf = 0; leaf < N_LEAVES; leaf++) {
            const dt_batch *b;
            assert_int_equal(s->get(s, step, leaf, &b, NULL), DT_OK);
            for (int j = 0; j < b->n; j++) assert_int_equal(seen[b->sample[j]]++, 0);
            // pixels say which record: key = subject * 10 + impression
            for (int j = 0; j < b->n; j++) {
                int subject = ((const int32_t *)b->field[2])[j] + 1;
                assert_int_equal(((const uint8_t *)b->field[1])[j * 8 * 16 * 3] / 10, subject);
            }
            s->release(s, b);
        }
    s->close(s);
    d->close(d);
}

// The same sample looks different in the next epoch, and the same whenever that epoch is run.
static void augmentation_changes_with_the_epoch(void **state) {
    enum { BYTES = 12 * 10 };
    static uint8_t seen[2][600][BYTES];
    static bool has[2][600];
    dt_dataset *d = fixture_open(packed, AUGMENT, 2);
    dt_batch_source *s = open_source(d, DT_SPLIT_TRAIN, ALL, N_LEAVES, 0);
    for (int64_t step = 0; step < 2 * s->steps_per_epoch; step++)
        for (int leaf = 0; leaf < N_LEAVES; leaf++) {
            const dt_batch *b;
            int epoch = (int)(step / s->steps_per_epoch);
            assert_int_equal(s->get(s, step, leaf, &b, NULL), DT_OK);
            for (int j = 0; j < b->n; j++) {
                memcpy(seen[epoch][b->sample[j]], (const uint8_t *)b->field[0] + j * BYTES, BYTES);
                has[epoch][b->sample[j]] = true;
            }
            s->release(s, b);
        }
    int n_both = 0, n_same = 0;
    for (int i = 0; i < 600; i++) {
        bool both = has[0][i] && has[1][i];
        n_both += both;
        n_same += both && memcmp(seen[0][i], seen[1][i], BYTES) == 0;
    }
    assert_true(n_both > 200);
    assert_true(n_same < n_both / 20);
    s->close(s);
    d->close(d);
}

static void seek_goes_anywhere(void **state) {
    static uint64_t want[20][N_LEAVES], got[20][N_LEAVES];
    dt_dataset *d = fixture_open(packed, AUGMENT, 2);
    hashes(d, ALL, N_LEAVES, 0, 20, want);
    dt_batch_source *s = open_source(d, DT_SPLIT_TRAIN, ALL, N_LEAVES, 0);
    static const int64_t TO[] = {5, 0, 17, 3, 3, 19};
    const dt_batch *held, *b;
    assert_int_equal(s->get(s, 0, 0, &held, NULL), DT_OK); // stays valid over seeks
    for (size_t i = 0; i < sizeof TO / sizeof *TO; i++) {
        assert_int_equal(s->seek(s, TO[i]), DT_OK);
        for (int leaf = 0; leaf < N_LEAVES; leaf++) {
            assert_int_equal(s->get(s, TO[i], leaf, &b, NULL), DT_OK);
            got[TO[i]][leaf] = batch_hash(d, b);
            assert_int_equal(got[TO[i]][leaf], want[TO[i]][leaf]);
            s->release(s, b);
        }
    }
    assert_int_equal(batch_hash(d, held), want[0][0]);
    s->release(s, held);
    // what was given out already must be sought, not waited for
    assert_int_equal(s->get(s, 2, 0, &b, NULL), DT_E_INTERNAL);
    assert_non_null(strstr(dt_error_message(), "seek"));
    s->close(s);
    d->close(d);
}

typedef struct lane {
    dt_batch_source *s;
    const dt_dataset *d;
    int leaf;
    uint64_t hash[30];
} lane;

static void *run_lane(void *arg) {
    lane *l = arg;
    for (int64_t step = 0; step < 30; step++) {
        const dt_batch *b;
        double wait;
        if (l->s->get(l->s, step, l->leaf, &b, &wait) != DT_OK) return NULL;
        l->hash[step] = batch_hash(l->d, b);
        if ((step + l->leaf) % 5 == 0) usleep(500);
        l->s->release(l->s, b);
    }
    return l;
}

static void several_lanes_at_once(void **state) {
    static uint64_t want[30][N_LEAVES];
    dt_dataset *d = fixture_open(packed, AUGMENT "  prefetch: 5\n", 2);
    hashes(d, ALL, N_LEAVES, 0, 30, want);
    dt_batch_source *s = open_source(d, DT_SPLIT_TRAIN, ALL, N_LEAVES, 0);
    lane lanes[N_LEAVES];
    pthread_t threads[N_LEAVES];
    for (int i = 0; i < N_LEAVES; i++) {
        lanes[i] = (lane){.s = s, .d = d, .leaf = i};
        pthread_create(&threads[i], NULL, run_lane, &lanes[i]);
    }
    for (int i = 0; i < N_LEAVES; i++) {
        void *ok;
        pthread_join(threads[i], &ok);
        assert_non_null(ok);
        for (int step = 0; step < 30; step++) assert_int_equal(lanes[i].hash[step], want[step][i]);
    }
    dt_source_stats stats;
    s->stats(s, &stats);
    assert_int_equal(stats.ring_slots, 5);
    assert_int_equal(stats.n_batches, 30 * N_LEAVES);
    assert_true(stats.stage[DT_STAGE_READ].bytes > 0 && stats.stage[DT_STAGE_DECODE].busy_s > 0);
    assert_true(stats.stage[DT_STAGE_AUGMENT].items > 0);
    s->close(s);
    d->close(d);
}

static void evaluation_pads_with_weight_zero(void **state) {
    dt_dataset *d = fixture_open(packed, AUGMENT, 2);
    static const dt_split SPLITS[] = {DT_SPLIT_VAL, DT_SPLIT_TEST};
    for (int k = 0; k < 2; k++) {
        dt_batch_source *s = open_source(d, SPLITS[k], ALL, N_LEAVES, 0);
        int64_t n = d->n_samples(d, SPLITS[k]), seen = 0, last = -1;
        assert_int_equal(n, k ? 24 : 6);
        assert_int_equal(s->n_samples, n);
        assert_int_equal(s->steps_per_epoch, (n + GLOBAL - 1) / GLOBAL);
        for (int64_t step = 0; step < s->steps_per_epoch; step++)
            for (int leaf = 0; leaf < N_LEAVES; leaf++) {
                const dt_batch *b;
                if (s->get(s, step, leaf, &b, NULL) != DT_OK) fail_msg("%s", dt_error_message());
                for (int j = 0; j < b->n; j++) {
                    bool valid = seen < n;
                    assert_true(b->weight[j] == (valid ? 1.0f : 0.0f));
                    assert_true(valid ? b->sample[j] > last : b->sample[j] == last);
                    last = b->sample[j];
                    seen += valid;
                }
                s->release(s, b);
            }
        assert_int_equal(seen, n);
        s->close(s);
    }
    d->close(d);
}

// Flips a byte of the member of `key` in a copy of the set.
static const char *damaged_copy(const char *name, const char *key, bool zero_all) {
    const char *out = fixture_path(name);
    char *file = dt_xprintf("%s/data.mdb", packed), *to = dt_xprintf("%s/data.mdb", out);
    size_t n, n_index;
    uint8_t *data = fixture_read(file, &n);
    uint64_t where = 0;
    char *index = dt_xprintf("%s.index", file), *index_to = dt_xprintf("%s.index", to);
    void *rows = fixture_read(index, &n_index);
    const char *paths[] = {packed};
    dt_set *s;
    assert_int_equal(dt_set_open(&s, paths, 1), DT_OK);
    for (uint32_t r = 0; r < s->catalog->n_records; r++)
        if (strcmp(dt_catalog_str(s->catalog, s->catalog->records[r].key), key) == 0)
            where = s->catalog->members[s->catalog->records[r].first_member].offset;
    assert_true(where > 0);
    dt_set_close(s);
    if (zero_all)
        memset(data + where, 0, 500);
    else
        data[where + 100] ^= 1;
    fixture_write(to, data, n);
    fixture_write(index_to, rows, n_index);
    free(data), free(rows), free(file), free(to), free(index), free(index_to);
    return out;
}

static void a_bad_record_is_named(void **state) {
    const char *bad = damaged_copy("bad.lmdb", "iris/3/3_M_L_3", false);
    dt_dataset *d = fixture_open(bad, "", 2);
    dt_batch_source *s = open_source(d, DT_SPLIT_TRAIN, ALL, N_LEAVES, 0);
    dt_status st = DT_OK;
    for (int64_t step = 0; step < 36 && st == DT_OK; step++)
        for (int leaf = 0; leaf < N_LEAVES && st == DT_OK; leaf++) {
            const dt_batch *b;
            st = s->get(s, step, leaf, &b, NULL);
            if (st == DT_OK) s->release(s, b);
        }
    s->close(s);
    if (st == DT_OK) { // that record is in another part
        s = open_source(d, DT_SPLIT_TEST, ALL, N_LEAVES, 0);
        for (int64_t step = 0; step < 3 && st == DT_OK; step++)
            for (int leaf = 0; leaf < N_LEAVES && st == DT_OK; leaf++) {
                const dt_batch *b;
                st = s->get(s, step, leaf, &b, NULL);
                if (st == DT_OK) s->release(s, b);
            }
        s->close(s);
    }
    assert_int_equal(st, DT_E_DATA);
    assert_non_null(strstr(dt_error_message(), "bad.lmdb/data.mdb"));
    assert_non_null(strstr(dt_error_message(), "iris/3/3_M_L_3"));
    assert_non_null(strstr(dt_error_message(), "XXH3"));
    d->close(d);
}

// A lane that met the error takes no more batches; the others fill the ring and must not wait for it.
static void an_error_ends_every_lane(void **state) {
    const char *bad = damaged_copy("lanes.lmdb", "iris/3/3_M_L_3", false);
    dt_dataset *d = fixture_open(bad, "", 2);
    dt_batch_source *s = open_source(d, DT_SPLIT_TRAIN, ALL, N_LEAVES, 0);
    bool ended[N_LEAVES] = {false};
    int n_ended = 0;
    double begin = dt_clock_s();
    for (int64_t step = 0; step < 100 && n_ended < N_LEAVES; step++)
        for (int leaf = 0; leaf < N_LEAVES; leaf++) {
            const dt_batch *b;
            if (ended[leaf]) continue;
            dt_status st = s->get(s, step, leaf, &b, NULL);
            if (st == DT_OK) {
                s->release(s, b);
                continue;
            }
            assert_int_equal(st, DT_E_DATA);
            assert_non_null(strstr(dt_error_message(), "iris/3/3_M_L_3"));
            ended[leaf] = true;
            n_ended++;
        }
    assert_int_equal(n_ended, N_LEAVES);
    assert_true(dt_clock_s() - begin < 20);
    s->close(s);
    d->close(d);
}

static void skipping_changes_no_other_place(void **state) {
    const char *bad = damaged_copy("skip.lmdb", "iris/3/3_M_L_3", true);
    const char *log = fixture_path("skipped.jsonl");
    static int64_t order[2][40 * GLOBAL];
    for (int k = 0; k < 2; k++) {
        dt_config *c = fixture_config(k ? bad : packed, "  on_error: skip\n");
        dt_dataset *d;
        assert_int_equal(dt_data_open(&d, c, NULL, 3, log), DT_OK);
        dt_batch_source *s = open_source(d, DT_SPLIT_TRAIN, ALL, N_LEAVES, 0);
        for (int64_t step = 0; step < 40; step++)
            for (int leaf = 0; leaf < N_LEAVES; leaf++) {
                const dt_batch *b;
                if (s->get(s, step, leaf, &b, NULL) != DT_OK) fail_msg("%s", dt_error_message());
                for (int j = 0; j < b->n; j++) {
                    order[k][step * GLOBAL + leaf * MICRO + j] = b->sample[j];
                    assert_true(b->weight[j] == 1);
                }
                s->release(s, b);
            }
        dt_source_stats stats;
        s->stats(s, &stats);
        int n_changed = 0;
        for (int i = 0; i < 40 * GLOBAL && k; i++) n_changed += order[0][i] != order[1][i];
        if (k == 0) assert_int_equal(stats.n_skipped, 0);
        // 7 pairs of each epoch hold that record if it trains; a place is replaced, others stay
        if (k == 1) {
            assert_true(n_changed <= 14);
            assert_true(stats.n_skipped >= (uint64_t)n_changed);
            assert_true(n_changed > 0); // choose another record if this one does not train
            {
                size_t n;
                char *text = fixture_read(log, &n);
                assert_non_null(strstr(text, "iris/3/3_M_L_3"));
                int n_lines = 0;
                for (size_t i = 0; i < n; i++) n_lines += text[i] == '\n';
                assert_int_equal(n_lines, 1);
                free(text);
            }
        }
        s->close(s);
        d->close(d);
        dt_config_destroy(c);
    }
}

enum { Q_STEPS = 40 };

// The samples of Q_STEPS steps, and how many were replaced.
static uint64_t order_of(const char *path, const char *log, int64_t *out) {
    dt_config *c = fixture_config(path, "  on_error: quarantine\n");
    dt_dataset *d;
    if (dt_data_open(&d, c, NULL, 3, log) != DT_OK) fail_msg("%s", dt_error_message());
    dt_batch_source *s = open_source(d, DT_SPLIT_TRAIN, ALL, N_LEAVES, 0);
    for (int64_t step = 0; step < Q_STEPS; step++)
        for (int leaf = 0; leaf < N_LEAVES; leaf++) {
            const dt_batch *b;
            if (s->get(s, step, leaf, &b, NULL) != DT_OK) fail_msg("%s", dt_error_message());
            for (int j = 0; j < b->n; j++) out[step * GLOBAL + leaf * MICRO + j] = b->sample[j];
            s->release(s, b);
        }
    dt_source_stats stats;
    s->stats(s, &stats);
    s->close(s);
    d->close(d);
    dt_config_destroy(c);
    return stats.n_skipped;
}

static int n_lines(const char *path, const char *words) {
    size_t n;
    char *text = fixture_read(path, &n);
    int lines = 0;
    for (size_t i = 0; i < n; i++) lines += text[i] == '\n';
    if (!strstr(text, words)) fail_msg("no %s in %s", words, text);
    free(text);
    return lines;
}

static void quarantine_is_remembered(void **state) {
    const char *bad = damaged_copy("q.lmdb", "iris/3/3_M_L_3", true);
    const char *log = fixture_path("run/skipped.rank0");
    static int64_t order[4][Q_STEPS * GLOBAL];
    assert_int_equal(dt_io_mkdir_all(fixture_path("run")), DT_OK);
    assert_int_equal(order_of(packed, fixture_path("none/skipped.rank0"), order[0]), 0);
    assert_true(order_of(bad, log, order[1]) > 0);
    assert_int_equal(n_lines(log, "\"offset\":"), 1);
    assert_memory_not_equal(order[0], order[1], sizeof order[0]);
    // another rank's list counts too; the record is whole again and still not tried
    char *good = dt_xprintf("%s/data.mdb", packed), *to = dt_xprintf("%s/data.mdb", bad);
    size_t n;
    void *data = fixture_read(good, &n);
    fixture_write(to, data, n);
    assert_true(order_of(bad, fixture_path("run/skipped.rank1"), order[2]) > 0);
    assert_memory_equal(order[1], order[2], sizeof order[1]);
    assert_int_equal(n_lines(log, "iris/3/3_M_L_3"), 1);
    assert_false(dt_io_exists(fixture_path("run/skipped.rank1")));
    // the list removed: tried again. A line that is cut is no line
    fixture_write(log, "{\"file\": \"x", 11);
    assert_int_equal(order_of(bad, log, order[3]), 0);
    assert_memory_equal(order[0], order[3], sizeof order[0]);
    free(good), free(to), free(data);
}

// A record that lacks a field, or has no partner, is not left out without a word.
static void records_without_a_sample_are_told(void **state) {
    const char *log = fixture_path("told.log"), *list = fixture_path("told/skipped.rank0");
    const char *raw = fixture_path("told_raw");
    uint8_t bmp[4096];
    size_t n = fixture_bmp(bmp, 16, 8, 24, 1);
    fixture_biometric(raw, 4, 2);
    fixture_write(fixture_path("told_raw/iris/99/99_M_L_1.bmp"), bmp, n);
    fixture_pack(raw, fixture_path("told.lmdb"));
    assert_int_equal(dt_io_mkdir_all(fixture_path("told")), DT_OK);
    assert_int_equal(dt_log_open(log), DT_OK);
    for (int k = 0; k < 3; k++) { // records, again (the list is there), pairs
        char *text = dt_xprintf(
            "run: {name: t}\ndata:\n  path: \"%s\"\n  on_error: quarantine\n  fields:\n    iris: "
            "{kind: image, size: [8, 16]}\n    fingerprint: {kind: image, size: 8}\n    subject: "
            "{kind: class}\n%smodel: {name: fusion}\ntrain: {global_batch: 2, micro_batch: 2}\n",
            fixture_path("told.lmdb"),
            k < 2 ? "" : "  view: {pairs: {fields: [fingerprint, iris], within: subject}}\n");
        if (k < 2) *strstr(text, "    fingerprint:") = '#';
        dt_config *c;
        dt_dataset *d;
        assert_int_equal(dt_config_parse(&c, "t.yaml", text, strlen(text), NULL, 0), DT_OK);
        if (dt_data_open(&d, c, NULL, 1, list) != DT_OK) fail_msg("%s", dt_error_message());
        d->close(d);
        dt_config_destroy(c);
        free(text);
    }
    dt_log_close();
    n_lines(log, "8 of 17 records have nothing for field 'iris' and are left out; the first is "
                 "fingerprint/1/");
    assert_int_equal(n_lines(log,
                             "1 of 17 records have no partner for a pair and are left out; the "
                             "first is iris/99/99_M_L_1 (it has .iris.bmp"),
                     3);
    assert_int_equal(n_lines(list, "\"reason\":\"nothing for field 'iris'\""), 8);
}

static void an_f32_image_holds_the_same_values(void **state) {
    const dt_batch *b[2];
    dt_batch_source *s[2];
    dt_dataset *d[2];
    dt_config *c[2];
    for (int k = 0; k < 2; k++) {
        char *text =
            dt_xprintf("run: {name: t}\ndata:\n  path: \"%s\"\n  fields:\n    iris: {kind: image, "
                       "size: [8, 16], "
                       "dtype: %s}\n    subject: {kind: class}\n  augment: {iris: [{rotate: 10}]}\n"
                       "model: {name: fusion}\ntrain: {global_batch: 8, micro_batch: 2}\n",
                       packed, k ? "f32" : "u8");
        assert_int_equal(dt_config_parse(&c[k], "t.yaml", text, strlen(text), NULL, 0), DT_OK);
        free(text);
        if (dt_data_open(&d[k], c[k], NULL, 1, NULL) != DT_OK) fail_msg("%s", dt_error_message());
        s[k] = open_source(d[k], DT_SPLIT_TRAIN, ALL, N_LEAVES, 0);
        assert_int_equal(s[k]->get(s[k], 0, 0, &b[k], NULL), DT_OK);
    }
    assert_int_equal(d[1]->fields[0].dtype, DT_F32);
    const uint8_t *bytes = b[0]->field[0];
    const float *values = b[1]->field[0];
    for (int i = 0; i < MICRO * 8 * 16 * 3; i++) assert_true(values[i] == (float)bytes[i]);
    for (int k = 0; k < 2; k++) {
        s[k]->release(s[k], b[k]);
        s[k]->close(s[k]);
        d[k]->close(d[k]);
        dt_config_destroy(c[k]);
    }
}

// Each includes those before, so no stage's own time is below 0, however busy the machine.
static void times_of_stages_add_up(void **state) {
    dt_config *c;
    dt_dataset *d;
    char *text = dt_xprintf("run: {name: t}\ndata:\n  path: \"%s\"\n  fields:\n    iris: {kind: "
                            "image, size: 8}\n    subject: {kind: class}\nmodel: {name: fusion}\n"
                            "train: {global_batch: 8, micro_batch: 2}\n",
                            packed);
    assert_int_equal(dt_config_parse(&c, "t.yaml", text, strlen(text), NULL, 0), DT_OK);
    free(text);
    if (dt_data_open(&d, c, NULL, 1, NULL) != DT_OK) fail_msg("%s", dt_error_message());
    for (int i = 0; i < 20;
         i++) { // nothing is augmented: one of the passes is the faster by chance
        dt_stage_times t;
        assert_int_equal(dt_data_time_stages(d, 0.001, &t), DT_OK);
        assert_true(t.read_s > 0 && t.read_s <= t.decode_s && t.decode_s <= t.augment_s);
    }
    d->close(d);
    dt_config_destroy(c);
}

// Irises are 16 x 8 with pixel (x, y) = (key, x, y): what lies where tells the part.
static void check_fit(const char *field, bool is_real, int w, int first, const int bar[3]) {
    dt_config *c;
    dt_dataset *d;
    const dt_batch *b;
    char *text = dt_xprintf(
        "run: {name: t}\ndata:\n  path: \"%s\"\n  fields:\n    iris: {kind: image, %s}\n    "
        "subject: {kind: class}\nmodel: {name: fusion}\ntrain: {global_batch: 8, micro_batch: 2}\n",
        packed, field);
    assert_int_equal(dt_config_parse(&c, "t.yaml", text, strlen(text), NULL, 0), DT_OK);
    free(text);
    if (dt_data_open(&d, c, NULL, 1, NULL) != DT_OK) fail_msg("%s", dt_error_message());
    static const int R0[] = {0};
    dt_batch_source *s = open_source(d, DT_SPLIT_TRAIN, R0, 1, 0);
    assert_int_equal(s->get(s, 0, 0, &b, NULL), DT_OK);
    for (int i = 0; i < MICRO * 8 * w * 3; i++) {
        int x = i / 3 % w + first, y = i / 3 / w % 8, k = i % 3;
        float got =
            is_real ? ((const float *)b->field[0])[i] : (float)((const uint8_t *)b->field[0])[i];
        if (x < 0 || x >= 16)
            assert_true(got == (float)bar[k]);
        else if (k > 0)
            assert_true(got == (float)(k == 1 ? x : y));
    }
    s->release(s, b);
    s->close(s);
    d->close(d);
    dt_config_destroy(c);
}

static void a_picture_of_another_shape_is_made_to_fit(void **state) {
    check_fit("size: [8, 8], fit: crop", false, 8, 4, NULL);
    check_fit("size: [8, 10], fit: crop, short_side: 10", false, 0, 0, NULL); // resized: opens
    check_fit("size: [8, 8], fit: crop, short_side: 8", false, 8, 4, NULL);
    check_fit("size: [8, 16], fit: crop", false, 16, 0, NULL);
    check_fit("size: [8, 24], fit: pad, normalize: {mean: [0.5, 0.2, 0.1]}", false, 24, -4,
              (const int[3]){128, 51, 26});
    check_fit("size: [8, 24], fit: pad, dtype: f32, normalize: {mean: [9, 8, 7]}", true, 24, -4,
              (const int[3]){9, 8, 7});
}

// ---- uncompressed records --------------------------------------------------------------------------
enum { RAW_W = 9, RAW_H = 7, RAW_BYTES = RAW_W * RAW_H * 3, RAW_N = 24, VEC_N = 50 };

static void tar_member(FILE *f, const char *name, const void *data, size_t n) {
    uint8_t head[DT_TAR_MAX_HEADER], zeros[512] = {0};
    size_t n_head;
    assert_int_equal(dt_tar_write_header(head, &n_head, name, n), DT_OK);
    assert_int_equal(fwrite(head, 1, n_head, f), n_head);
    assert_int_equal(fwrite(data, 1, n, f), n);
    fwrite(zeros, 1, (512 - n % 512) % 512, f);
}

static size_t npy_head(char *out, const char *descr, const char *shape) {
    char text[119];
    int n = snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }",
                     descr, shape);
    memcpy(out, "\x93NUMPY\x01\x00\x76\x00", 10);
    memset(out + 10, ' ', 118);
    memcpy(out + 10, text, (size_t)n);
    out[127] = '\n';
    return 128;
}

// Pictures that lie in their file as in the batch, and others of about that size that only look so; vectors
// raw, as NPY, and as text that is as long as raw would be.
static const char *make_raw_tar(void) {
    static const char *const HEADS[] = {"P6\n9 7\n255\n", "P6 # a comment\n9\n7 255 ",
                                        "P5\n27 7\n255\n", "P6\n7 9\n255\n", "P6\n9 7\n254\n"};
    const char *path = fixture_path("raw.tar");
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (int i = 0; i < RAW_N; i++) {
        char name[32], picture[RAW_BYTES + 256], vec[VEC_N * 4 + 256];
        size_t n = 0, n_vec = 0;
        if (i % 6 == 5)
            n = npy_head(picture, "|u1", "(7, 9, 3)");
        else
            n = (size_t)sprintf(picture, "%s", HEADS[i % 6]);
        for (int k = 0; k < RAW_BYTES; k++) picture[n++] = (char)((i * 37 + k * 11) % 250);
        if (i % 3 == 0) n_vec = npy_head(vec, "<f4", i % 2 ? "(50,)" : "(5, 10)");
        for (int k = 0; k < VEC_N; k++) {
            float v = (float)(i * 100 + k) / 7;
            if (i % 3 == 2)
                n_vec += (size_t)sprintf(vec + n_vec, "%03d ", (i * 7 + k) % 1000);
            else
                memcpy(vec + n_vec, &v, 4), n_vec += 4;
        }
        snprintf(name, sizeof name, "%02d.ppm", i); // told by its bytes
        tar_member(f, name, picture, n);
        snprintf(name, sizeof name, "%02d.vec", i);
        tar_member(f, name, vec, n_vec);
    }
    static const char END[1024];
    fwrite(END, 1, sizeof END, f);
    assert_int_equal(fclose(f), 0);
    return path;
}

static void raw_records_are_read_to_their_place(void **state) {
    const char *tar = make_raw_tar();
    static const char *const HOW[] = {"readers: 0", "readers: 2", "cache: ram",
                                      "augment: {image: [{flip: horizontal}]}"};
    static uint8_t pictures[4][RAW_N][RAW_BYTES];
    static float vectors[4][RAW_N][VEC_N];
    for (int k = 0; k < 4; k++) {
        dt_config *c;
        dt_dataset *d;
        char *text = dt_xprintf(
            "run: {name: t}\ndata:\n  path: \"%s\"\n  shuffle: none\n  write_index: false\n  "
            "fields:\n"
            "    image: {kind: image, size: [7, 9]}\n    vec: {kind: vector, size: 50}\n  %s\n"
            "model: {name: fusion}\ntrain: {global_batch: 8, micro_batch: 2}\n",
            tar, HOW[k]);
        if (dt_config_parse(&c, "t.yaml", text, strlen(text), NULL, 0) != DT_OK ||
            dt_data_open(&d, c, NULL, 2, NULL) != DT_OK)
            fail_msg("%s", dt_error_message());
        free(text);
        dt_batch_source *s = open_source(d, DT_SPLIT_TRAIN, ALL, N_LEAVES, 0);
        for (int64_t step = 0; step < RAW_N / GLOBAL; step++)
            for (int leaf = 0; leaf < N_LEAVES; leaf++) {
                const dt_batch *b;
                if (s->get(s, step, leaf, &b, NULL) != DT_OK) fail_msg("%s", dt_error_message());
                for (int j = 0; j < MICRO; j++) {
                    memcpy(pictures[k][b->sample[j]], (uint8_t *)b->field[0] + j * RAW_BYTES,
                           RAW_BYTES);
                    memcpy(vectors[k][b->sample[j]], (float *)b->field[1] + j * VEC_N, VEC_N * 4);
                }
                s->release(s, b);
            }
        s->close(s);
        d->close(d);
        dt_config_destroy(c);
    }
    assert_memory_equal(pictures[0], pictures[1], sizeof pictures[0]);
    assert_memory_equal(pictures[0], pictures[2], sizeof pictures[0]);
    for (int k = 1; k < 4; k++) assert_memory_equal(vectors[0], vectors[k], sizeof vectors[0]);
    int n_mirrored = 0;
    for (int i = 0; i < RAW_N; i++) {
        for (int k = 0; k < RAW_BYTES && i % 6 % 4 < 2 && i % 6 != 4; k++)
            assert_int_equal(pictures[0][i][k], (i * 37 + k * 11) % 250);
        for (int k = 0; k < VEC_N; k++)
            assert_true(vectors[0][i][k] ==
                        (i % 3 == 2 ? (float)((i * 7 + k) % 1000) : (float)(i * 100 + k) / 7));
        n_mirrored += memcmp(pictures[0][i], pictures[3][i], RAW_BYTES) != 0;
    }
    assert_true(n_mirrored > 4 && n_mirrored < 20);
}

static void wrong_configs_are_named(void **state) {
    dt_config *c = NULL;
    char *text = dt_xprintf(
        "run: {name: t}\ndata:\n  path: \"%s\"\n  fields:\n    iris: {kind: image, size: [8, "
        "16]}\n    who: {kind: class}\nmodel: {name: fusion}\ntrain: {global_batch: 8, "
        "micro_batch: 2}\n",
        packed);
    assert_int_equal(dt_config_parse(&c, "t.yaml", text, strlen(text), NULL, 0), DT_OK);
    dt_dataset *d;
    assert_int_equal(dt_data_open(&d, c, NULL, 1, NULL), DT_E_USAGE);
    assert_non_null(strstr(dt_error_message(), "t.yaml:"));
    assert_non_null(strstr(dt_error_message(), "subject")); // says what there is
    dt_config_destroy(c);
    free(text);
}

static int set_up(void **state) {
    fixture_begin();
    packed = fixture_packed(6, 10);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_do_not_depend_on_workers_or_ranks),
        cmocka_unit_test(mixed_batches_do_not_depend_on_workers_or_ranks),
        cmocka_unit_test(an_epoch_has_each_sample_at_most_once),
        cmocka_unit_test(augmentation_changes_with_the_epoch),
        cmocka_unit_test(seek_goes_anywhere),
        cmocka_unit_test(several_lanes_at_once),
        cmocka_unit_test(evaluation_pads_with_weight_zero),
        cmocka_unit_test(a_bad_record_is_named),
        cmocka_unit_test(an_error_ends_every_lane),
        cmocka_unit_test(skipping_changes_no_other_place),
        cmocka_unit_test(quarantine_is_remembered),
        cmocka_unit_test(records_without_a_sample_are_told),
        cmocka_unit_test(an_f32_image_holds_the_same_values),
        cmocka_unit_test(a_picture_of_another_shape_is_made_to_fit),
        cmocka_unit_test(raw_records_are_read_to_their_place),
        cmocka_unit_test(times_of_stages_add_up),
        cmocka_unit_test(wrong_configs_are_named),
    };
    return cmocka_run_group_tests(tests, set_up, fixture_tear_down);
}
