// Views and splits: counts of the biometric set, shares of strata, and that file order does not matter.
#include "data/order/split.h"
#include "testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_SUBJECTS = 45, N_EACH = 10, TRAIN = 0, VAL = 1, TEST = 2 };

static void add(dt_catalog *c, int subject, int i, bool iris) {
    char key[64], number[16];
    snprintf(key, sizeof key, "%s/%d/%d", iris ? "iris" : "fingerprint", subject, i);
    snprintf(number, sizeof number, "%d", subject);
    must(dt_catalog_add_record(c, 0, key));
    must(dt_catalog_add_member(c, iris ? "iris.bmp" : "fingerprint.bmp", 0, 1, NULL));
    must(dt_catalog_set(c, "subject", number));
    must(dt_catalog_set(c, "gender", subject <= 34 ? "M" : "F"));
}

static dt_catalog *biometric(bool reversed) {
    dt_catalog *c = dt_catalog_create();
    dt_catalog_add_shard(c, "x", 1);
    int n = N_SUBJECTS * N_EACH * 2;
    for (int k = 0; k < n; k++) {
        int r = reversed ? n - 1 - k : k;
        add(c, r / 20 + 1, r % 10, r % 20 >= 10);
    }
    dt_catalog_finish(c);
    return c;
}

static dt_view pairs(const dt_catalog *c) {
    dt_view v;
    bool *a = calloc(c->n_records, 1), *b = calloc(c->n_records, 1);
    for (uint32_t r = 0; r < c->n_records; r++) {
        a[r] = dt_catalog_str(c, c->records[r].key)[0] == 'f';
        b[r] = !a[r];
    }
    int column = dt_catalog_find_column(c, "subject");
    must(dt_view_make_pairs(&v, c, a, b, column));
    free(a);
    free(b);
    return v;
}

static dt_split_spec by_record(const dt_catalog *c) {
    return (dt_split_spec){
        .unit = DT_BY_record, .stratify = dt_catalog_find_column(c, "subject"), .val = 0.1, .test = 0.2, .seed = 42};
}

TEST(values_are_sorted_as_numbers) {
    dt_catalog *c = biometric(true);
    const dt_column *col = &c->table.columns[dt_catalog_find_column(c, "subject")];
    assert_int_equal(col->n_values, N_SUBJECTS);
    for (int i = 0; i < N_SUBJECTS; i++) assert_int_equal(atoi(dt_catalog_str(c, col->values[i])), i + 1);
    dt_catalog_destroy(c);
}

TEST(pairs_within_a_subject) {
    dt_catalog *c = biometric(false);
    dt_view v = pairs(c);
    int column = dt_catalog_find_column(c, "subject");
    assert_int_equal(v.n, 4500);
    for (uint32_t i = 0; i < v.n; i++) {
        assert_int_equal(dt_catalog_cell(c, column, v.record[2 * i]), dt_catalog_cell(c, column, v.record[2 * i + 1]));
        assert_int_equal(dt_catalog_str(c, c->records[v.record[2 * i]].key)[0], 'f');
        assert_int_equal(dt_catalog_str(c, c->records[v.record[2 * i + 1]].key)[0], 'i');
    }
    dt_view_fini(&v);
    dt_catalog_destroy(c);
}

TEST(no_record_is_in_two_parts) {
    dt_catalog *c = biometric(false);
    dt_view v = pairs(c);
    dt_splits s;
    dt_split_spec spec = by_record(c);
    must(dt_splits_make(&s, c, &v, &spec));
    assert_int_equal(s.n[TRAIN], 7 * 7 * 45);
    assert_int_equal(s.n[VAL], 45);
    assert_int_equal(s.n[TEST], 2 * 2 * 45);
    assert_int_equal(s.n_mixed, 4500 - 2205 - 45 - 180);
    uint8_t *part = calloc(c->n_records, 1);
    for (int p = 0; p < 3; p++)
        for (uint32_t i = 0; i < s.n[p]; i++)
            for (int k = 0; k < 2; k++) part[v.record[2 * s.sample[p][i] + (uint32_t)k]] |= (uint8_t)(1 << p);
    for (uint32_t r = 0; r < c->n_records; r++) assert_true(part[r] == 1 || part[r] == 2 || part[r] == 4);
    free(part);
    dt_splits_fini(&s);
    dt_view_fini(&v);
    dt_catalog_destroy(c);
}

// Sum over samples of a hash of their keys: equal sets, whatever the order.
static uint64_t set_hash(const dt_catalog *c, const dt_view *v, const dt_splits *s, int part) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < s->n[part]; i++) {
        uint64_t h = 0;
        for (int k = 0; k < v->width; k++)
            h = h * 31 + c->records[v->record[s->sample[part][i] * (uint32_t)v->width + (uint32_t)k]].key_hash;
        sum += h;
    }
    return sum;
}

TEST(file_order_does_not_matter) {
    static const dt_split_unit UNITS[] = {DT_BY_sample, DT_BY_record, DT_BY_column};
    for (int u = 0; u < 3; u++) {
        uint64_t hash[2][3];
        for (int reversed = 0; reversed < 2; reversed++) {
            dt_catalog *c = biometric(reversed);
            dt_view v = pairs(c);
            dt_splits s;
            dt_split_spec spec = by_record(c);
            spec.unit = UNITS[u];
            spec.unit_columns[0] = dt_catalog_find_column(c, "subject");
            spec.n_unit_columns = 1;
            if (u == 2) spec.stratify = dt_catalog_find_column(c, "gender");
            must(dt_splits_make(&s, c, &v, &spec));
            for (int p = 0; p < 3; p++) {
                assert_true(s.n[p] > 0);
                hash[reversed][p] = set_hash(c, &v, &s, p);
            }
            dt_splits_fini(&s);
            dt_view_fini(&v);
            dt_catalog_destroy(c);
        }
        assert_memory_equal(hash[0], hash[1], sizeof hash[0]);
    }
}

TEST(subjects_are_disjoint_and_stratified) {
    dt_catalog *c = biometric(false);
    dt_view v = pairs(c);
    dt_splits s;
    int subject = dt_catalog_find_column(c, "subject"), gender = dt_catalog_find_column(c, "gender");
    dt_split_spec spec = by_record(c);
    spec.unit = DT_BY_column;
    spec.unit_columns[0] = subject;
    spec.n_unit_columns = 1;
    spec.stratify = gender;
    must(dt_splits_make(&s, c, &v, &spec));
    assert_int_equal(s.n_mixed, 0);
    int part_of[N_SUBJECTS] = {0}, n_women[3] = {0}, n_all[3] = {0};
    for (int p = 0; p < 3; p++)
        for (uint32_t i = 0; i < s.n[p]; i++) {
            uint32_t who = dt_catalog_cell(c, subject, v.record[2 * s.sample[p][i]]);
            assert_true(part_of[who] == 0 || part_of[who] == p + 1);
            part_of[who] = p + 1;
        }
    for (int i = 0; i < N_SUBJECTS; i++) {
        assert_true(part_of[i] > 0);
        n_all[part_of[i] - 1]++;
        n_women[part_of[i] - 1] += i >= 34;
    }
    assert_int_equal(n_all[TEST], 9);
    assert_true(n_all[VAL] == 4 || n_all[VAL] == 5);
    assert_true(n_women[TEST] == 2 || n_women[TEST] == 3);
    assert_int_equal(n_women[VAL], 1);
    dt_splits_fini(&s);
    dt_view_fini(&v);
    dt_catalog_destroy(c);
}

TEST(folds_cover_each_sample_once) {
    dt_catalog *c = biometric(false);
    dt_view v;
    bool *keep = malloc(c->n_records);
    memset(keep, 1, c->n_records);
    must(dt_view_make_records(&v, c, keep));
    uint8_t *tested = calloc(v.n, 1);
    for (int fold = 0; fold < 5; fold++) {
        dt_splits s;
        dt_split_spec spec = by_record(c);
        spec.folds = 5;
        spec.fold = fold;
        must(dt_splits_make(&s, c, &v, &spec));
        assert_int_equal(s.n[TEST], 180);
        assert_int_equal(s.n[VAL], 72);
        assert_int_equal(s.n[TRAIN] + s.n[VAL] + s.n[TEST], v.n);
        for (uint32_t i = 0; i < s.n[TEST]; i++) assert_int_equal(tested[s.sample[TEST][i]]++, 0);
        dt_splits_fini(&s);
    }
    free(tested);
    free(keep);
    dt_view_fini(&v);
    dt_catalog_destroy(c);
}

TEST(small_strata_keep_their_share) {
    dt_catalog *c = dt_catalog_create();
    dt_catalog_add_shard(c, "x", 1);
    for (int i = 0; i < 300; i++) { // 100 strata of three
        char key[16], value[16];
        snprintf(key, sizeof key, "k%d", i);
        snprintf(value, sizeof value, "v%d", i / 3);
        must(dt_catalog_add_record(c, 0, key));
        must(dt_catalog_set(c, "group", value));
    }
    dt_catalog_finish(c);
    bool keep[300];
    memset(keep, 1, sizeof keep);
    dt_view v;
    dt_splits s;
    must(dt_view_make_records(&v, c, keep));
    dt_split_spec spec = {.unit = DT_BY_record, .stratify = 0, .val = 0.1, .test = 0.1, .seed = 1};
    must(dt_splits_make(&s, c, &v, &spec));
    assert_int_equal(s.n[TEST], 30);
    assert_int_equal(s.n[VAL], 30);
    dt_splits_fini(&s);
    dt_view_fini(&v);
    dt_catalog_destroy(c);
}

// 20 subjects of two records, divided by subject.
static void divide_subjects(int per_stratum, uint64_t seed, dt_splits *s, uint32_t *first_tested) {
    dt_catalog *c = dt_catalog_create();
    dt_catalog_add_shard(c, "x", 1);
    for (int i = 0; i < 40; i++) {
        char key[16], value[16];
        snprintf(key, sizeof key, "k%02d", i);
        must(dt_catalog_add_record(c, 0, key));
        snprintf(value, sizeof value, "s%02d", i / 2);
        must(dt_catalog_set(c, "subject", value));
        snprintf(value, sizeof value, "g%02d", i / 2 / per_stratum);
        must(dt_catalog_set(c, "group", value));
    }
    dt_catalog_finish(c);
    bool keep[40];
    memset(keep, 1, sizeof keep);
    dt_view v;
    must(dt_view_make_records(&v, c, keep));
    dt_split_spec spec = {.unit = DT_BY_column,
                          .unit_columns = {0},
                          .n_unit_columns = 1,
                          .stratify = 1,
                          .val = 0.2,
                          .test = 0.2,
                          .seed = seed};
    must(dt_splits_make(s, c, &v, &spec));
    *first_tested = s->n[TEST] ? s->sample[TEST][0] : 0;
    dt_view_fini(&v);
    dt_catalog_destroy(c);
}

// Equal shares come due at the same unit: one part must not take it from the other for ever.
TEST(strata_of_one_or_two_units) {
    bool moves = false;
    uint32_t before = 0, at;
    for (int per_stratum = 1; per_stratum <= 2; per_stratum++)
        for (uint64_t seed = 0; seed < 8; seed++) {
            dt_splits s;
            divide_subjects(per_stratum, seed, &s, &at);
            assert_int_equal(s.n[TEST], 8);
            assert_int_equal(s.n[VAL], 8);
            assert_int_equal(s.n[TRAIN], 24);
            moves |= seed > 0 && at != before; // who is tested is drawn, not every fifth one
            before = at;
            dt_splits_fini(&s);
            if (seed == 7) assert_true(moves);
        }
}

TEST(copies_of_a_record_stay_together) {
    enum { N = 34 };
    dt_catalog *c = dt_catalog_create();
    dt_catalog_add_shard(c, "x", 1);
    for (int i = 0; i < 2 * N; i++) { // as if one shard were given twice
        char key[16];
        snprintf(key, sizeof key, "k%02d", i % N);
        must(dt_catalog_add_record(c, 0, key));
    }
    dt_catalog_finish(c);
    bool keep[2 * N];
    memset(keep, 1, sizeof keep);
    dt_view v;
    must(dt_view_make_records(&v, c, keep));
    for (int folds = 0; folds <= 4; folds += 2) {
        dt_splits s;
        dt_split_spec spec = {.unit = DT_BY_record, .stratify = -1, .val = 0.1, .test = 0.1, .folds = folds, .seed = 3};
        must(dt_splits_make(&s, c, &v, &spec));
        int part_of[2 * N];
        for (int p = 0; p < 3; p++) {
            assert_true(s.n[p] >= 4 && s.n[p] < 2 * N - 4);
            for (uint32_t i = 0; i < s.n[p]; i++) part_of[s.sample[p][i]] = p;
        }
        for (int i = 0; i < N; i++) assert_int_equal(part_of[i], part_of[i + N]);
        dt_splits_fini(&s);
    }
    dt_view_fini(&v);
    dt_catalog_destroy(c);
}

TEST_MAIN(NULL, NULL)
