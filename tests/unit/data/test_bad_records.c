// Records that cannot be used: named, skipped without moving others, remembered, told.
#include "base/log.h"
#include "base/os.h"
#include "data/source/source.h"
#include "loader_case.h"
#include "testing.h"

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
    dt_reader *s;
    must(dt_reader_open(&s, paths, 1));
    for (uint32_t r = 0; r < s->catalog->n_records; r++)
        if (strcmp(fixture_key(s->catalog, r), key) == 0)
            where = s->catalog->members[s->catalog->records[r].first_member].offset;
    assert_true(where > 0);
    dt_reader_close(s);
    if (zero_all)
        memset(data + where, 0, 500);
    else
        data[where + 100] ^= 1;
    fixture_write(to, data, n);
    fixture_write(index_to, rows, n_index);
    free(data), free(rows), free(file), free(to), free(index), free(index_to);
    return out;
}

TEST(a_bad_record_is_named) {
    const char *bad = damaged_copy("bad.lmdb", "iris/3/3_M_L_3", false);
    dt_dataset *d = fixture_open(bad, "", 2);
    dt_batch_source *s = open_source(d, DT_SPLIT_TRAIN, ALL, N_MICRO, 0);
    dt_status st = DT_OK;
    for (int64_t step = 0; step < 36 && st == DT_OK; step++)
        for (int micro = 0; micro < N_MICRO && st == DT_OK; micro++) {
            const dt_batch *b;
            st = s->get(s, step, micro, &b, NULL);
            if (st == DT_OK) s->release(s, b);
        }
    s->close(s);
    if (st == DT_OK) { // that record is in another part
        s = open_source(d, DT_SPLIT_TEST, ALL, N_MICRO, 0);
        for (int64_t step = 0; step < 3 && st == DT_OK; step++)
            for (int micro = 0; micro < N_MICRO && st == DT_OK; micro++) {
                const dt_batch *b;
                st = s->get(s, step, micro, &b, NULL);
                if (st == DT_OK) s->release(s, b);
            }
        s->close(s);
    }
    must_fail(DT_E_DATA, "bad.lmdb/data.mdb", st);
    assert_non_null(strstr(dt_error_message(), "iris/3/3_M_L_3"));
    assert_non_null(strstr(dt_error_message(), "XXH3"));
    d->close(d);
}

// A replica that met the error takes no more batches; the others fill the ring and must not wait for it.
TEST(an_error_ends_every_replica) {
    const char *bad = damaged_copy("replicas.lmdb", "iris/3/3_M_L_3", false);
    dt_dataset *d = fixture_open(bad, "", 2);
    dt_batch_source *s = open_source(d, DT_SPLIT_TRAIN, ALL, N_MICRO, 0);
    bool ended[N_MICRO] = {false};
    int n_ended = 0;
    double begin = dt_clock_s();
    for (int64_t step = 0; step < 100 && n_ended < N_MICRO; step++)
        for (int micro = 0; micro < N_MICRO; micro++) {
            const dt_batch *b;
            if (ended[micro]) continue;
            dt_status st = s->get(s, step, micro, &b, NULL);
            if (st == DT_OK) {
                s->release(s, b);
                continue;
            }
            must_fail(DT_E_DATA, "iris/3/3_M_L_3", st);
            ended[micro] = true;
            n_ended++;
        }
    assert_int_equal(n_ended, N_MICRO);
    assert_true(dt_clock_s() - begin < 20);
    s->close(s);
    d->close(d);
}

TEST(skipping_changes_no_other_place) {
    const char *bad = damaged_copy("skip.lmdb", "iris/3/3_M_L_3", true);
    const char *log = fixture_path("skipped.jsonl");
    static int64_t order[2][40 * GLOBAL];
    for (int k = 0; k < 2; k++) {
        dt_config *c = fixture_config(k ? bad : packed, "  on_error: skip\n");
        dt_dataset *d;
        must(dt_data_open(&d, c, NULL, 3, log));
        dt_batch_source *s = open_source(d, DT_SPLIT_TRAIN, ALL, N_MICRO, 0);
        for (int64_t step = 0; step < 40; step++)
            for (int micro = 0; micro < N_MICRO; micro++) {
                const dt_batch *b;
                must(s->get(s, step, micro, &b, NULL));
                for (int j = 0; j < b->n; j++) {
                    order[k][step * GLOBAL + micro * MICRO + j] = b->sample[j];
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
    }
}

// Of a part in its order each sample is there once; the one that cannot be read says why, and is zeros.
TEST(in_order_a_bad_record_says_why) {
    const char *bad = damaged_copy("why.lmdb", "iris/3/3_M_L_3", true);
    dt_config *c = fixture_config(bad, "  on_error: skip\n  balance: subject\n");
    dt_dataset *d;
    must(dt_data_open(&d, c, NULL, 3, NULL));
    const int64_t n = d->n_samples(d, DT_SPLIT_TRAIN), n_steps = (n + GLOBAL - 1) / GLOBAL;
    dt_source_request r = {.split = DT_SPLIT_TRAIN,
                           .in_order = true,
                           .global_batch = GLOBAL,
                           .micro_batch = MICRO,
                           .micros = ALL,
                           .n_micro = N_MICRO,
                           .end_step = n_steps};
    uint8_t *seen = dt_xcalloc(100000, 1);
    int64_t n_bad = 0, n_once = 0;
    for (int k = 0; k < 2; k++) { // the second time the slots are used again
        dt_batch_source *s = NULL;
        must(d->open(d, &r, &s));
        for (int64_t i = 0; i < n_steps * N_MICRO; i++) {
            const dt_batch *b;
            must(s->get(s, i / N_MICRO, (int)(i % N_MICRO), &b, NULL));
            for (int j = 0; j < b->n && i * MICRO + j < n; j++) {
                n_once += seen[b->sample[j]]++ == k;
                assert_int_equal(b->why[j] != NULL, b->weight[j] == 0);
                if (!b->why[j]) continue;
                n_bad++;
                assert_non_null(strstr(b->why[j], "iris/3/3_M_L_3"));
                for (int f = 0; f < s->n_fields; f++) {
                    const size_t size =
                        (size_t)dt_shape_elements(&s->fields[f].sample_shape) * dt_dtype_size(s->fields[f].dtype);
                    for (size_t at = 0; at < size; at++)
                        assert_int_equal(((uint8_t *)b->field[f])[(size_t)j * size + at], 0);
                }
            }
            s->release(s, b);
        }
        s->close(s);
    }
    assert_int_equal(n_once, 2 * n);
    assert_true(n_bad > 0 && n_bad < n / 4);
    free(seen);
    d->close(d);
}

// Training under `skip` on a set whose file was replaced by another one, before or while it is open: it ends.
static void expect_other_file(const char *name, bool while_open, const char *want) {
    const char *set = fixture_path(name);
    char *file = dt_xprintf("%s/data.mdb", set), *from = dt_xprintf("%s/data.mdb", packed);
    char *index = dt_xprintf("%s.index", from), *index_to = dt_xprintf("%s.index", file);
    size_t n, n_index;
    uint8_t *data = fixture_read(from, &n);
    void *rows = fixture_read(index, &n_index);
    fixture_write(file, data, n);
    fixture_write(index_to, rows, n_index);
    dt_dataset *d;
    for (size_t i = 8000; i < n; i++) data[i] ^= 1; // it is still an LMDB
    if (!while_open) fixture_write(file, data, n);
    must(dt_data_open(&d, fixture_config(set, "  on_error: skip\n"), NULL, 1, NULL));
    if (while_open) fixture_write(file, data, n);
    dt_batch_source *s = open_source(d, DT_SPLIT_TRAIN, ALL, N_MICRO, 0);
    const dt_batch *b;
    dt_status st = DT_OK;
    for (int micro = 0; micro < N_MICRO && st == DT_OK; micro++) {
        st = s->get(s, 0, micro, &b, NULL);
        if (st == DT_OK) s->release(s, b);
    }
    must_fail(DT_E_STORAGE, want, st);
    s->close(s);
    d->close(d);
    free(data), free(rows), free(file), free(from), free(index), free(index_to);
}

TEST(another_file_is_no_bad_record) {
    expect_other_file("other.lmdb", true, "other.lmdb/data.mdb: is another file than when it was opened");
    expect_other_file("packed.lmdb", false, "data.mdb.index describes");
}

enum { Q_STEPS = 40 };

// The samples of Q_STEPS steps, and how many were replaced.
static uint64_t order_of(const char *path, const char *log, int64_t *out) {
    dt_config *c = fixture_config(path, "  on_error: quarantine\n");
    dt_dataset *d;
    must(dt_data_open(&d, c, NULL, 3, log));
    dt_batch_source *s = open_source(d, DT_SPLIT_TRAIN, ALL, N_MICRO, 0);
    for (int64_t step = 0; step < Q_STEPS; step++)
        for (int micro = 0; micro < N_MICRO; micro++) {
            const dt_batch *b;
            must(s->get(s, step, micro, &b, NULL));
            for (int j = 0; j < b->n; j++) out[step * GLOBAL + micro * MICRO + j] = b->sample[j];
            s->release(s, b);
        }
    dt_source_stats stats;
    s->stats(s, &stats);
    s->close(s);
    d->close(d);
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

TEST(quarantine_is_remembered) {
    const char *bad = damaged_copy("q.lmdb", "iris/3/3_M_L_3", true);
    const char *log = fixture_path("run/skipped.rank0");
    static int64_t order[4][Q_STEPS * GLOBAL];
    must(dt_io_mkdir_all(fixture_path("run")));
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
TEST(records_without_a_sample_are_told) {
    const char *log = fixture_path("told.log"), *list = fixture_path("told/skipped.rank0");
    const char *raw = fixture_path("told_raw");
    uint8_t bmp[4096];
    size_t n = fixture_bmp(bmp, 16, 8, 24, 1);
    fixture_biometric(raw, 4, 2);
    fixture_write(fixture_path("told_raw/iris/99/99_M_L_1.bmp"), bmp, n);
    fixture_pack(raw, fixture_path("told.lmdb"));
    must(dt_io_mkdir_all(fixture_path("told")));
    must(dt_log_open(log));
    for (int k = 0; k < 3; k++) { // records, again (the list is there), pairs
        dt_config *c =
            fixture_parse("  path: \"%s\"\n  on_error: quarantine\n  fields:\n    iris: {kind: image, size: [8, "
                          "16]}\n%s    subject: {kind: class}\n%s",
                          fixture_path("told.lmdb"), k < 2 ? "" : "    fingerprint: {kind: image, size: 8}\n",
                          k < 2 ? "" : "  view: {pairs: {fields: [fingerprint, iris], within: subject}}\n");
        dt_dataset *d;
        must(dt_data_open(&d, c, NULL, 1, list));
        d->close(d);
    }
    dt_log_close();
    n_lines(log, "8 of 17 records have nothing for field 'iris' and are left out; the first is "
                 "fingerprint/1/");
    assert_int_equal(n_lines(log, "1 of 17 records have no partner for a pair and are left out; the "
                                  "first is iris/99/99_M_L_1 (it has .iris.bmp"),
                     3);
    assert_int_equal(n_lines(list, "\"reason\":\"nothing for field 'iris'\""), 8);
}

TEST_MAIN(loader_set_up, fixture_tear_down)
