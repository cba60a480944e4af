// Batches: which samples are in them is a function of the config alone, not of workers, ranks or history.
#include "base/log.h"
#include "base/os.h"
#include "data/file/tar.h"
#include "data/loader/data_parts.h"
#include "data/source/source.h"
#include "loader_case.h"
#include "testing.h"

#include <pthread.h>

// Hashes of all micro-batches of steps [from, to), by step and micro-batch.
static void hashes(dt_dataset *d, const int *micros, int n, int64_t from, int64_t to, uint64_t out[][N_MICRO]) {
    dt_batch_source *s = open_source(d, DT_SPLIT_TRAIN, micros, n, from);
    for (int64_t step = from; step < to; step++)
        for (int i = 0; i < n; i++) {
            const dt_batch *b;
            double wait;
            must(s->get(s, step, micros[i], &b, &wait));
            assert_int_equal(b->step, step);
            assert_int_equal(b->micro, micros[i]);
            assert_int_equal(b->n_valid, MICRO);
            out[step][micros[i]] = batch_hash(d, b);
            s->release(s, b);
        }
    s->close(s);
}

#define AUGMENT                                                                                                        \
    "  augment: {fingerprint: [{rotate: 10}, {shift: 0.05}], iris: [{flip: horizontal}, {noise: "                      \
    "0.02}]}\n"

TEST(batches_do_not_depend_on_workers_or_ranks) {
    enum { STEPS = 90 }; // more than two epochs
    static uint64_t one[STEPS][N_MICRO], many[STEPS][N_MICRO], ranks[STEPS][N_MICRO];
    dt_dataset *d = fixture_open(packed, AUGMENT, 1);
    assert_int_equal(d->n_samples(d, DT_SPLIT_TRAIN), 7 * 7 * 6);
    hashes(d, ALL, N_MICRO, 0, STEPS, one);
    d->close(d);
    d = fixture_open(packed, AUGMENT, 4);
    hashes(d, ALL, N_MICRO, 0, STEPS, many);
    static const int R0[] = {0}, R1[] = {2, 1, 3}; // any division of the micro-batches
    hashes(d, R0, 1, 0, STEPS, ranks);
    hashes(d, R1, 3, 0, STEPS, ranks);
    assert_memory_equal(one, many, sizeof one);
    assert_memory_equal(one, ranks, sizeof one);
    // resuming in the middle is the same
    memset(many, 0, sizeof many);
    hashes(d, ALL, N_MICRO, 41, STEPS, many);
    assert_memory_equal(one[41], many[41], sizeof one[0] * (STEPS - 41));
    // and epochs differ, in order and in augmentation
    assert_int_not_equal(one[0][0], one[36][0]);
    d->close(d);
}

// Labels become shares; evaluation keeps them.
TEST(mixed_batches_do_not_depend_on_workers_or_ranks) {
    enum { STEPS = 40 };
    static uint64_t one[STEPS][N_MICRO], many[STEPS][N_MICRO], ranks[STEPS][N_MICRO];
    static const char *const MIX = AUGMENT "  mix: {mixup: 0.4, cutmix: 1.0}\n";
    dt_dataset *d = fixture_open(packed, MIX, 1);
    hashes(d, ALL, N_MICRO, 0, STEPS, one);
    d->close(d);
    d = fixture_open(packed, MIX, 4);
    hashes(d, ALL, N_MICRO, 0, STEPS, many);
    static const int R0[] = {0}, R1[] = {2, 1, 3};
    hashes(d, R0, 1, 0, STEPS, ranks);
    hashes(d, R1, 3, 0, STEPS, ranks);
    assert_memory_equal(one, many, sizeof one);
    assert_memory_equal(one, ranks, sizeof one);
    memset(many, 0, sizeof many);
    hashes(d, ALL, N_MICRO, 17, STEPS, many);
    assert_memory_equal(one[17], many[17], sizeof one[0] * (STEPS - 17));

    const dt_batch *b;
    dt_batch_source *s = open_source(d, DT_SPLIT_TRAIN, R0, 1, 0);
    int n_classes = s->fields[2].n_classes, n_soft = 0;
    assert_true(s->fields[2].soft && n_classes > 1);
    assert_true(s->fields[0].mixed && s->fields[1].mixed && !s->fields[2].mixed);
    int n_mixed = 0;
    for (int64_t step = 0; step < 10; step++) {
        must(s->get(s, step, 0, &b, NULL));
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
    must(s->get(s, 0, 0, &b, NULL));
    for (int i = 0; i < MICRO; i++) assert_in_range(((const int32_t *)b->field[2])[i], 0, n_classes - 1);
    assert_true(!b->mix[0] && !b->mix[1]);
    s->release(s, b);
    s->close(s);
    d->close(d);
}

TEST(an_epoch_has_each_sample_at_most_once) {
    dt_dataset *d = fixture_open(packed, "", 2);
    dt_batch_source *s = open_source(d, DT_SPLIT_TRAIN, ALL, N_MICRO, 0);
    assert_int_equal(s->steps_per_epoch, 7 * 7 * 6 / GLOBAL);
    uint8_t seen[600] = {0};
    for (int64_t step = 0; step < s->steps_per_epoch; step++)
        for (int micro = 0; micro < N_MICRO; micro++) {
            const dt_batch *b;
            must(s->get(s, step, micro, &b, NULL));
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
TEST(augmentation_changes_with_the_epoch) {
    enum { BYTES = 12 * 10 };
    static uint8_t seen[2][600][BYTES];
    static bool has[2][600];
    dt_dataset *d = fixture_open(packed, AUGMENT, 2);
    dt_batch_source *s = open_source(d, DT_SPLIT_TRAIN, ALL, N_MICRO, 0);
    for (int64_t step = 0; step < 2 * s->steps_per_epoch; step++)
        for (int micro = 0; micro < N_MICRO; micro++) {
            const dt_batch *b;
            int epoch = (int)(step / s->steps_per_epoch);
            must(s->get(s, step, micro, &b, NULL));
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

// A sample that is drawn several times in an epoch looks different each time, in the same way on every run.
TEST(augmentation_changes_with_the_draw) {
    enum { BYTES = 12 * 10, N = 600, DRAWS = 16 };
    static const char *const KEYS[] = {"  balance: gender\n", "  balance: gender\n  m_per_class: 2\n"};
    static uint8_t seen[N][DRAWS][BYTES];
    for (int k = 0; k < 2; k++) {
        char *extra = dt_xprintf("%s%s", AUGMENT, KEYS[k]);
        dt_dataset *d = fixture_open(packed, extra, 2);
        dt_batch_source *s = open_source(d, DT_SPLIT_TRAIN, ALL, N_MICRO, 0);
        int drawn[N] = {0}, n_pairs = 0, n_same = 0;
        for (int64_t at = 0; at < s->steps_per_epoch * N_MICRO; at++) {
            const dt_batch *b;
            must(s->get(s, at / N_MICRO, (int)(at % N_MICRO), &b, NULL));
            for (int j = 0; j < b->n; j++) {
                const int64_t i = b->sample[j];
                assert_true(drawn[i] < DRAWS);
                uint8_t *mine = seen[i][drawn[i]++];
                memcpy(mine, (const uint8_t *)b->field[0] + j * BYTES, BYTES);
                for (int n = 0; n < drawn[i] - 1; n++, n_pairs++) n_same += memcmp(seen[i][n], mine, BYTES) == 0;
            }
            s->release(s, b);
        }
        assert_true(n_pairs > 50);
        assert_true(n_same < n_pairs / 20);
        s->close(s);
        d->close(d);
        free(extra);
    }
}

TEST(seek_goes_anywhere) {
    static uint64_t want[20][N_MICRO], got[20][N_MICRO];
    dt_dataset *d = fixture_open(packed, AUGMENT, 2);
    hashes(d, ALL, N_MICRO, 0, 20, want);
    dt_batch_source *s = open_source(d, DT_SPLIT_TRAIN, ALL, N_MICRO, 0);
    static const int64_t TO[] = {5, 0, 17, 3, 3, 19};
    const dt_batch *held, *b;
    must(s->get(s, 0, 0, &held, NULL)); // stays valid over seeks
    for (size_t i = 0; i < sizeof TO / sizeof *TO; i++) {
        must(s->seek(s, TO[i]));
        for (int micro = 0; micro < N_MICRO; micro++) {
            must(s->get(s, TO[i], micro, &b, NULL));
            got[TO[i]][micro] = batch_hash(d, b);
            assert_int_equal(got[TO[i]][micro], want[TO[i]][micro]);
            s->release(s, b);
        }
    }
    assert_int_equal(batch_hash(d, held), want[0][0]);
    s->release(s, held);
    // what was given out already must be sought, not waited for
    must_fail(DT_E_INTERNAL, "seek", s->get(s, 2, 0, &b, NULL));
    s->close(s);
    d->close(d);
}

typedef struct replica {
    dt_batch_source *s;
    const dt_dataset *d;
    int micro;
    uint64_t hash[30];
} replica;

static void *run_replica(void *arg) {
    replica *l = arg;
    for (int64_t step = 0; step < 30; step++) {
        const dt_batch *b;
        double wait;
        if (l->s->get(l->s, step, l->micro, &b, &wait) != DT_OK) return NULL;
        l->hash[step] = batch_hash(l->d, b);
        if ((step + l->micro) % 5 == 0) usleep(500);
        l->s->release(l->s, b);
    }
    return l;
}

TEST(several_replicas_at_once) {
    static uint64_t want[30][N_MICRO];
    dt_dataset *d = fixture_open(packed, AUGMENT "  prefetch: 5\n", 2);
    hashes(d, ALL, N_MICRO, 0, 30, want);
    dt_batch_source *s = open_source(d, DT_SPLIT_TRAIN, ALL, N_MICRO, 0);
    replica replicas[N_MICRO];
    pthread_t threads[N_MICRO];
    for (int i = 0; i < N_MICRO; i++) {
        replicas[i] = (replica){.s = s, .d = d, .micro = i};
        pthread_create(&threads[i], NULL, run_replica, &replicas[i]);
    }
    for (int i = 0; i < N_MICRO; i++) {
        void *ok;
        pthread_join(threads[i], &ok);
        assert_non_null(ok);
        for (int step = 0; step < 30; step++) assert_int_equal(replicas[i].hash[step], want[step][i]);
    }
    dt_source_stats stats;
    s->stats(s, &stats);
    assert_int_equal(stats.ring_slots, 5);
    assert_int_equal(stats.n_batches, 30 * N_MICRO);
    assert_true(stats.stage[DT_STAGE_READ].bytes > 0 && stats.stage[DT_STAGE_DECODE].busy_s > 0);
    assert_true(stats.stage[DT_STAGE_AUGMENT].items > 0);
    s->close(s);
    d->close(d);
}

TEST(evaluation_pads_with_weight_zero) {
    dt_dataset *d = fixture_open(packed, AUGMENT, 2);
    static const dt_split SPLITS[] = {DT_SPLIT_VAL, DT_SPLIT_TEST};
    for (int k = 0; k < 2; k++) {
        dt_batch_source *s = open_source(d, SPLITS[k], ALL, N_MICRO, 0);
        int64_t n = d->n_samples(d, SPLITS[k]), seen = 0, last = -1;
        assert_int_equal(n, k ? 24 : 6);
        assert_int_equal(s->n_samples, n);
        assert_int_equal(s->steps_per_epoch, (n + GLOBAL - 1) / GLOBAL);
        for (int64_t step = 0; step < s->steps_per_epoch; step++)
            for (int micro = 0; micro < N_MICRO; micro++) {
                const dt_batch *b;
                must(s->get(s, step, micro, &b, NULL));
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

// Each includes those before, so no stage's own time is below 0, however busy the machine.
TEST(times_of_stages_add_up) {
    dt_config *c = fixture_parse("  path: \"%s\"\n  fields:\n    iris: {kind: image, size: 8}\n    "
                                 "subject: {kind: class}\n",
                                 packed);
    dt_dataset *d = fixture_open_config(c, 1);
    for (int i = 0; i < 20; i++) { // nothing is augmented: one of the passes is the faster by chance
        dt_stage_times t;
        must(dt_data_time_stages(d, 0.001, &t));
        assert_true(t.read_s > 0 && t.read_s <= t.decode_s && t.decode_s <= t.augment_s);
    }
    d->close(d);
}

TEST(wrong_configs_are_named) {
    dt_config *c = fixture_parse("  path: \"%s\"\n  fields:\n    iris: {kind: image, size: [8, 16]}\n"
                                 "    who: {kind: class}\n",
                                 packed);
    dt_dataset *d;
    must_fail(DT_E_USAGE, "t.yaml:", dt_data_open(&d, c, NULL, 1, NULL));
    assert_non_null(strstr(dt_error_message(), "subject")); // says what there is
}

TEST_MAIN(loader_set_up, fixture_tear_down)
