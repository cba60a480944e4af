// The order of samples is a bijection, a pure function, and frozen: changing it breaks every resume.
#include "data/order/view.h"
#include "testing.h"

#include <stdlib.h>
#include <string.h>

static const uint64_t SIZES[] = {1, 2, 3, 5, 16, 17, 255, 256, 257, 1000, 4096, 4097, 9000, 12289};
enum { N_SIZES = sizeof SIZES / sizeof *SIZES };

TEST(every_epoch_is_a_bijection) {
    for (int k = 0; k < N_SIZES; k++)
        for (int shuffle = DT_SHUFFLE_none; shuffle <= DT_SHUFFLE_global; shuffle++)
            for (uint64_t epoch = 0; epoch < 3; epoch++) {
                dt_sampler s = {(dt_shuffle)shuffle, 42, SIZES[k], NULL};
                uint8_t *seen = calloc(SIZES[k], 1);
                for (uint64_t i = 0; i < SIZES[k]; i++) {
                    uint64_t at = dt_sampler_index(&s, epoch, i);
                    assert_true(at < SIZES[k]);
                    assert_int_equal(seen[at]++, 0);
                }
                free(seen);
            }
}

TEST(the_inverse_inverts) {
    for (int k = 0; k < N_SIZES; k++)
        for (uint64_t i = 0; i < SIZES[k]; i += 1 + SIZES[k] / 100)
            assert_int_equal(dt_perm_invert(9, 3, SIZES[k], dt_perm_apply(9, 3, SIZES[k], i)), i);
}

TEST(epochs_and_seeds_differ) {
    dt_sampler a = {DT_SHUFFLE_global, 1, 1000, NULL}, b = {DT_SHUFFLE_global, 2, 1000, NULL};
    int same_epoch = 0, same_seed = 0, fixed = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        same_epoch += dt_sampler_index(&a, 0, i) == dt_sampler_index(&a, 1, i);
        same_seed += dt_sampler_index(&a, 0, i) == dt_sampler_index(&b, 0, i);
        fixed += dt_sampler_index(&a, 0, i) == i;
    }
    assert_true(same_epoch < 10 && same_seed < 10 && fixed < 10);
}

// Correlation of place and index, and of neighbours, over many epochs: |r| ~ 1/sqrt(n).
TEST(places_are_uncorrelated) {
    dt_sampler s = {DT_SHUFFLE_global, 5, 2205, NULL};
    double mid = (2205 - 1) / 2.0, sum = 0, next = 0, norm = 0;
    for (uint64_t epoch = 0; epoch < 20; epoch++)
        for (uint64_t i = 0; i < 2204; i++) {
            double x = (double)dt_sampler_index(&s, epoch, i) - mid;
            double y = (double)dt_sampler_index(&s, epoch, i + 1) - mid;
            sum += x * ((double)i - mid);
            next += x * y;
            norm += x * x;
        }
    assert_true(sum / norm < 0.03 && sum / norm > -0.03);
    assert_true(next / norm < 0.03 && next / norm > -0.03);
}

TEST(blocks_keep_reads_near) {
    enum { N = 100000 };
    dt_sampler s = {DT_SHUFFLE_block, 5, N, NULL};
    uint8_t touched[N / DT_SHUFFLE_BLOCK_SAMPLES + 1];
    int n_window = DT_SHUFFLE_BLOCK_SAMPLES * DT_SHUFFLE_WINDOW_BLOCKS;
    for (int w = 0; w + n_window <= N; w += n_window) {
        int n_blocks = 0, moved = 0;
        memset(touched, 0, sizeof touched);
        for (int i = w; i < w + n_window; i++) {
            uint64_t at = dt_sampler_index(&s, 1, (uint64_t)i);
            n_blocks += !touched[at / DT_SHUFFLE_BLOCK_SAMPLES];
            touched[at / DT_SHUFFLE_BLOCK_SAMPLES] = 1;
            moved += at != (uint64_t)i;
        }
        assert_true(n_blocks <= DT_SHUFFLE_WINDOW_BLOCKS + 2); // the short block shifts the edges
        assert_true(moved > n_window * 9 / 10);
    }
}

// How well blocks mix, by how many runs of stored neighbours a batch of 256 of 100,000 samples draws
// from: docs/explanation/data.md has the figures.
static double runs_in_a_batch(dt_shuffle shuffle) {
    enum { N = 100000, BATCH = 256 };
    dt_sampler s = {shuffle, 5, N, NULL};
    uint64_t n_runs = 0, n_batches = 0;
    for (uint64_t i = 0; i + BATCH <= N; i += BATCH, n_batches++) {
        uint8_t touched[N / DT_SHUFFLE_BLOCK_SAMPLES + 1] = {0};
        for (uint64_t j = i; j < i + BATCH; j++) {
            uint64_t run = dt_sampler_index(&s, 0, j) / DT_SHUFFLE_BLOCK_SAMPLES;
            n_runs += !touched[run];
            touched[run] = 1;
        }
    }
    return (double)n_runs / (double)n_batches;
}

TEST(blocks_mix) {
    double global = runs_in_a_batch(DT_SHUFFLE_global), block = runs_in_a_batch(DT_SHUFFLE_block);
    print_message("a batch of 256 of 100,000: %.0f runs of 32 when global, %.0f in blocks\n", global, block);
    assert_true(global > 240 && block > 105 && block < 118);
}

TEST(the_order_is_frozen) {
    dt_sampler global = {DT_SHUFFLE_global, 42, 2205, NULL}, block = {DT_SHUFFLE_block, 42, 2205, NULL};
    static const uint64_t GLOBAL[] = {213, 1264, 690, 792, 1241, 1872}, BLOCK[] = {778, 1283, 2199, 1579, 209, 1482};
    for (uint64_t i = 0; i < 6; i++) {
        assert_int_equal(dt_sampler_index(&global, 3, i), GLOBAL[i]);
        assert_int_equal(dt_sampler_index(&block, 3, i), BLOCK[i]);
    }
}

// 7 values of 3 to 21 samples, in runs of 4: as many runs of each, one or less apart; a run has no sample twice unless
// the value has too few; epochs differ.
TEST(runs_are_of_one_value) {
    enum { N_VALUES = 7, LENGTH = 4 };
    uint32_t begin[N_VALUES + 1] = {0}, items[84], value_of[84], n = 0;
    for (uint32_t k = 0; k < N_VALUES; k++) {
        for (uint32_t i = 0; i < 3 * (k + 1); i++, n++) {
            items[n] = (n * 25) % 84;
            value_of[items[n]] = k;
        }
        begin[k + 1] = n;
    }
    const dt_sampler_values values = {N_VALUES, LENGTH, begin, items};
    const dt_sampler s = {DT_SHUFFLE_global, 9, n, NULL, &values};
    int moved = 0;
    for (uint64_t epoch = 0; epoch < 5; epoch++) {
        int runs[N_VALUES] = {0}, drawn[84] = {0};
        for (uint64_t i = 0; i < n; i++) {
            const uint64_t at = dt_sampler_index(&s, epoch, i);
            const uint32_t k = value_of[at];
            assert_int_equal(k, value_of[dt_sampler_index(&s, epoch, i / LENGTH * LENGTH)]);
            runs[k] += i % LENGTH == 0;
            drawn[at]++;
            moved += at != dt_sampler_index(&s, epoch + 1, i);
        }
        for (int k = 0; k < N_VALUES; k++) assert_int_equal(runs[k], 3);
        for (int i = 0; i < 84; i++) { // 12 draws of 3 (k + 1) samples
            const int size = 3 * ((int)value_of[i] + 1), least = 12 / size;
            assert_in_range(drawn[i], least, least + (12 % size != 0));
        }
    }
    assert_true(moved > 5 * 84 / 2);
}

// 10 values of 3 samples make 8 runs of 4: the values that an epoch leaves out are in the next.
TEST(values_take_turns_over_epochs) {
    enum { N_VALUES = 10, SIZE = 3, N = N_VALUES * SIZE, LENGTH = 4 };
    uint32_t begin[N_VALUES + 1], items[N];
    for (uint32_t k = 0; k <= N_VALUES; k++) begin[k] = SIZE * k;
    for (uint32_t i = 0; i < N; i++) items[i] = i;
    const dt_sampler_values values = {N_VALUES, LENGTH, begin, items};
    const dt_sampler s = {DT_SHUFFLE_global, 9, N, NULL, &values};
    int runs[N_VALUES] = {0};
    for (uint64_t epoch = 0; epoch < 12; epoch++) {
        for (uint64_t i = 0; i < N; i += LENGTH) runs[dt_sampler_index(&s, epoch, i) / SIZE]++;
        const int least = (int)(epoch + 1) * 8 / N_VALUES;
        for (int k = 0; k < N_VALUES; k++) assert_in_range(runs[k], least, least + 1);
    }
}

TEST_MAIN(NULL, NULL)
