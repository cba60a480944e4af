// The order as a job sees it: for random sizes, shuffles, weights, numbers of ranks and workers and
// points of resuming, what batches hold is the pure function of (seed, epoch, place) and nothing else.
#include "base/rng.h"
#include "comm/bucket.h"
#include "data/order/view.h"
#include "data/source/source.h"
#include "data_fixture.h"
#include "testing.h"

#include <math.h>

static dt_rng rng = {.seed = 20261121};
static uint32_t draws;

static int below(int n) {
    return (int)dt_rng_below(&rng, draws++, (uint32_t)n);
}

// ---- weights ---------------------------------------------------------------------------------------
static void random_weights(uint64_t *sums, double *share, uint64_t n) {
    uint64_t total = 0;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t w = below(4) == 0 ? 0 : (uint64_t)below(1000000) + 1;
        if (i == n - 1 && total == 0) w = 1;
        share[i] = (double)w;
        sums[i] = total += w << 20;
    }
    for (uint64_t i = 0; i < n; i++) share[i] *= (double)n / ldexp((double)total, -20);
}

// Strata cut a sample's piece of the line at two ends at most.
TEST(weighted_draws_are_shares_give_or_take_two) {
    enum { MOST = 3000 };
    static uint64_t sums[MOST];
    static double share[MOST], drawn[MOST];
    for (int round = 0; round < 40; round++) {
        uint64_t n = 1 + (uint64_t)below(MOST);
        random_weights(sums, share, n);
        memset(drawn, 0, sizeof drawn);
        dt_sampler s = {(dt_shuffle)below(3), (uint64_t)round, n, sums};
        enum { EPOCHS = 3 };
        for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
            static int count[MOST];
            memset(count, 0, sizeof count);
            for (uint64_t i = 0; i < n; i++) {
                uint64_t at = dt_sampler_index(&s, epoch, i);
                assert_true(at < n);
                count[at]++;
            }
            for (uint64_t i = 0; i < n; i++) {
                assert_true(fabs(count[i] - share[i]) < 2);
                if (share[i] == 0) assert_int_equal(count[i], 0);
                drawn[i] += count[i];
            }
        }
    }
}

// Of two samples that share one place an epoch, either comes half of the time.
TEST(rare_samples_take_turns) {
    enum { N = 64, EPOCHS = 400 };
    uint64_t sums[N], total = 0;
    int count[N] = {0};
    for (int i = 0; i < N; i++) sums[i] = total += i < 32 ? 1000 : 3000; // 1/2 and 3/2 an epoch
    dt_sampler s = {DT_SHUFFLE_global, 3, N, sums};
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++)
        for (uint64_t i = 0; i < N; i++) count[dt_sampler_index(&s, epoch, i)]++;
    for (int i = 0; i < N; i++) {
        double expected = EPOCHS * (i < 32 ? 0.5 : 1.5);
        assert_true(fabs(count[i] - expected) < 6 * sqrt(EPOCHS * 0.25));
    }
}

// ---- batches -----------------------------------------------------------------------------------------
static const char *packed;
enum { SUBJECTS = 6, IMPRESSIONS = 7 };

static dt_dataset *open_random(int micro, int n_micro, int workers) {
    static const char *const SHUFFLE[] = {"global", "block", "none"};
    static const char *const WEIGHTS[] = {"", "  balance: gender\n", "  weight: n\n",
                                          "  balance: gender\n  weight: n\n"};
    char *extra = dt_xprintf("  shuffle: %s\n%s  prefetch: %d\n", SHUFFLE[below(3)], WEIGHTS[below(4)], 2 + below(20));
    dt_dataset *d = fixture_open(packed, extra, workers);
    free(extra);
    return d;
}

// One rank of a world takes its micro-batches from `start` on; every batch must be the function's.
static void check_rank(dt_dataset *d, int rank, int world, int micro, int n_micro, int64_t start, int64_t end,
                       uint8_t *taken) {
    int first = dt_micro_begin(rank, world, n_micro), last = dt_micro_begin(rank + 1, world, n_micro);
    int micros[64];
    for (int i = first; i < last; i++) micros[i - first] = i;
    dt_source_request r = {.split = DT_SPLIT_TRAIN,
                           .global_batch = micro * n_micro,
                           .micro_batch = micro,
                           .micros = micros,
                           .n_micro = last - first,
                           .start_step = start,
                           .end_step = end};
    dt_batch_source *s = NULL;
    must(d->open(d, &r, &s));
    for (int64_t step = start; step < end; step++)
        for (int i = 0; i < last - first; i++) {
            const dt_batch *b;
            must(s->get(s, step, micros[i], &b, NULL));
            for (int j = 0; j < micro; j++) {
                int place = micros[i] * micro + j;
                uint64_t epoch = (uint64_t)(step / s->steps_per_epoch);
                uint64_t at = (uint64_t)(step % s->steps_per_epoch * r.global_batch + place);
                assert_int_equal(b->sample[j], dt_data_sample_at(d, epoch, at));
                taken[(step - start) * r.global_batch + place]++;
            }
            s->release(s, b);
        }
    s->close(s);
}

TEST(batches_are_the_function_for_any_job) {
    int rounds = getenv("STEPS") ? 6 : 40; // fewer under a sanitizer
    for (int round = 0; round < rounds; round++) {
        int micro = 1 + below(5), n_micro = 1 + below(8), world = 1 + below(n_micro);
        dt_dataset *d = open_random(micro, n_micro, 1 + below(4));
        int64_t n = d->n_samples(d, DT_SPLIT_TRAIN), per_epoch = n / (micro * n_micro);
        assert_true(per_epoch > 0);
        int64_t start = below((int)(3 * per_epoch)), end = start + 1 + below(6);
        uint8_t taken[6 * 40] = {0};
        for (int rank = 0; rank < world; rank++) check_rank(d, rank, world, micro, n_micro, start, end, taken);
        for (int i = 0; i < (int)(end - start) * micro * n_micro; i++)
            assert_int_equal(taken[i], 1); // each place by one rank
        d->close(d);
        dt_config_destroy(fixture_opened[--fixture_n_opened]);
    }
}

// ---- columns -----------------------------------------------------------------------------------------
TEST(classes_get_equal_shares) {
    dt_dataset *d = fixture_open(packed, "  balance: gender\n", 1); // one subject in six is F
    int64_t n = d->n_samples(d, DT_SPLIT_TRAIN);
    int n_f = 0, n_all = 0;
    for (uint64_t epoch = 0; epoch < 10; epoch++)
        for (int64_t i = 0; i < n; i++) {
            const char *key[DT_MAX_WIDTH];
            dt_data_records_of(d, dt_data_sample_at(d, epoch, (uint64_t)i), key);
            n_f += strstr(key[0], "_F_") != NULL;
            n_all++;
        }
    assert_true(abs(2 * n_f - n_all) <= 2 * 10); // half, give or take one an epoch
    d->close(d);
}

TEST(bad_weights_are_named) {
    static const struct {
        const char *extra, *says;
    } CASES[] = {{"  weight: hand\n", "in column hand, the sampling weight: a weight"},
                 {"  weight: nothing\n", "no column 'nothing'"},
                 {"  weight: nothing\n", "width, "}, // columns of numbers too
                 {"  balance: nothing\n", "no metadata column 'nothing'"}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        dt_config *c = fixture_config(packed, CASES[i].extra);
        dt_dataset *d = NULL;
        assert_int_equal(dt_data_open(&d, c, NULL, 1, NULL), DT_E_USAGE); // so that check fails
        assert_non_null(strstr(dt_error_message(), CASES[i].says));
    }
}

static int set_up(void **state) {
    folder_make(state);
    packed = fixture_packed(SUBJECTS, IMPRESSIONS);
    return 0;
}

TEST_MAIN(set_up, fixture_tear_down)
