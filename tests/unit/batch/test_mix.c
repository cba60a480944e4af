// Mixup and CutMix: shares are those of the distribution, pixels and labels say the same, and nothing
// depends on which part of the batch is made where.
#include "base/core.h"
#include "base/hash.h"
#include "config/config.h"
#include "data/augment/mix.h"
#include "testing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { H = 12, W = 16, C = 3, K = 4, N = 6 };

static dt_config *config;
static dt_field_info fields[5];

static dt_status create(const char *mix, int micro_batch, dt_mix **out) {
    char *text = dt_xprintf("run: {name: t}\n"
                            "data: {path: x, fields: {photo: {kind: image, size: [12, 16]}}, mix: {%s}}\n"
                            "model: {name: fusion}\ntrain: {global_batch: 12, micro_batch: %d}\n",
                            mix, micro_batch);
    *out = NULL;
    dt_config_destroy(config);
    config = NULL;
    dt_status st = dt_config_parse(&config, "t.yaml", text, strlen(text), NULL, 0);
    free(text);
    if (st != DT_OK) return st;
    for (int i = 0; i < 5; i++) fields[i].mixed = fields[i].is_image && dt_mix_takes(config, fields[i].name);
    return dt_mix_create(out, config, fields, 5);
}

static dt_mix *create_good(const char *mix) {
    dt_mix *m;
    if (create(mix, N, &m) != DT_OK) fail_msg("%s: %s", mix, dt_error_message());
    return m;
}

typedef struct batch {
    uint8_t photo[N][H][W][C];
    float sound[N][5][3][1];
    float angle[N][2];
    float shares[N][K];
    uint8_t small[N][4][4][1];
    int32_t label[N];
} batch;

static void fill(batch *b, int first) {
    for (int j = 0; j < N; j++) {
        int v = (first + j) * 37 % 256;
        for (int i = 0; i < H * W * C; i++) (&b->photo[j][0][0][0])[i] = (uint8_t)(v + i * 7);
        for (int i = 0; i < 15; i++) (&b->sound[j][0][0][0])[i] = (float)(v * 15 + i);
        for (int i = 0; i < 16; i++) (&b->small[j][0][0][0])[i] = (uint8_t)(255 - v);
        b->angle[j][0] = (float)v;
        b->angle[j][1] = -1;
        b->label[j] = (first + j) % K;
        for (int k = 0; k < K; k++) b->shares[j][k] = 77;
    }
}

// What the plan says, as it was before the network did it: in place, sample 0 kept for the last one.
static void mix_bytes(uint8_t *x, int h, int w, int c, const dt_mix_row *plan, int n) {
    const size_t size = (size_t)h * (size_t)w * (size_t)c;
    uint8_t first[H * W * C];
    memcpy(first, x, size);
    for (int j = 0; j < n; j++) {
        uint8_t *a = x + (size_t)j * size;
        const uint8_t *b = j + 1 < n ? a + size : first;
        const uint32_t own = (uint32_t)plan[j].own;
        assert_in_range(own, 0, 65536);
        for (size_t i = 0; i < size && own < 65536; i++)
            a[i] = (uint8_t)((a[i] * own + b[i] * (65536 - own) + 32768) >> 16);
        assert_true(plan[j].y0 >= 0 && plan[j].y1 <= h && plan[j].x0 >= 0 && plan[j].x1 <= w);
        for (int y = plan[j].y0; y < plan[j].y1; y++) {
            size_t at = (size_t)(y * w + plan[j].x0) * (size_t)c;
            memcpy(a + at, b + at, (size_t)(plan[j].x1 - plan[j].x0) * (size_t)c);
        }
    }
}

static void mix_reals(float x[][5][3][1], const dt_mix_row *plan, int n) {
    float first[5][3][1];
    memcpy(first, x[0], sizeof first);
    for (int j = 0; j < n; j++)
        for (int i = 0; i < 15; i++) {
            const dt_mix_row *m = &plan[j];
            const int row = i / 3, col = i % 3;
            const float b = j + 1 < n ? x[j + 1][row][col][0] : first[row][col][0];
            const float own = (float)m->own / 65536, a = x[j][row][col][0];
            const bool in = row >= m->y0 && row < m->y1 && col >= m->x0 && col < m->x1;
            x[j][row][col][0] = in ? b : a * own + b * (1 - own);
        }
}

static void run(const dt_mix *m, batch *b, int64_t step, int64_t first, int n) {
    static dt_mix_row rows[3][N];
    static float angle[N][2];
    memset(rows, 0x7f, sizeof rows);
    memcpy(angle, b->angle, sizeof angle);
    const void *in[5] = {NULL, NULL, angle, b->label, NULL};
    void *out[5] = {NULL, NULL, b->angle, b->shares, NULL};
    dt_mix_row *plan[5] = {NULL};
    for (int i = 0, k = 0; i < 5; i++)
        if (fields[i].mixed) plan[i] = rows[k++];
    dt_mix_batch mb = {step, first, n, in, out, plan};
    dt_mix_run(m, &mb);
    if (plan[0]) mix_bytes(&b->photo[0][0][0][0], H, W, C, plan[0], n);
    if (plan[1]) mix_reals(b->sound, plan[1], n);
    if (plan[4]) mix_bytes(&b->small[0][0][0][0], 4, 4, 1, plan[4], n);
}

// The share of sample j itself, by its label; its neighbour's class differs.
static double custom_share(const batch *b, int j, int n) {
    double sum = 0;
    for (int k = 0; k < K; k++) sum += b->shares[j][k];
    assert_true(sum == 1);
    double own = b->shares[j][b->label[j]];
    assert_true(own >= 0 && own <= 1);
    assert_true(own + b->shares[j][b->label[(j + 1) % n]] == 1);
    return own;
}

TEST(mixup_blends_all_fields_alike) {
    dt_mix *m = create_good("mixup: 1.0");
    batch b, was;
    for (int64_t step = 0; step < 50; step++) {
        fill(&b, (int)step);
        was = b;
        run(m, &b, step, 0, N);
        for (int j = 0; j < N; j++) {
            int next = (j + 1) % N;
            double own = custom_share(&b, j, N);
            uint32_t w = (uint32_t)lround(own * 65536);
            for (int i = 0; i < H * W * C; i++) {
                uint32_t a = (&was.photo[j][0][0][0])[i], o = (&was.photo[next][0][0][0])[i];
                assert_int_equal((&b.photo[j][0][0][0])[i], (a * w + o * (65536 - w) + 32768) >> 16);
            }
            for (int i = 0; i < 15; i++) {
                float a = (&was.sound[j][0][0][0])[i], o = (&was.sound[next][0][0][0])[i];
                assert_true(fabs((&b.sound[j][0][0][0])[i] - (own * a + (1 - own) * o)) < 1e-2);
            }
            double angle = own * was.angle[j][0] + (1 - own) * was.angle[next][0];
            assert_true(fabs(b.angle[j][0] - angle) < 1e-3 && fabs(b.angle[j][1] + 1) < 1e-6);
        }
    }
    dt_mix_destroy(m);
}

// Every pixel is its own or the neighbour's, those in a rectangle, and the label counts them.
TEST(cutmix_pastes_a_rectangle) {
    dt_mix *m = create_good("cutmix: 1.0, fields: photo");
    batch b, was;
    int n_cut = 0;
    for (int64_t step = 0; step < 200; step++) {
        fill(&b, (int)step);
        was = b;
        run(m, &b, step, 0, N);
        assert_memory_equal(b.sound, was.sound, sizeof b.sound);
        assert_memory_equal(b.small, was.small, sizeof b.small);
        for (int j = 0; j < N; j++) {
            int next = (j + 1) % N, n = 0, x0 = W, x1 = -1, y0 = H, y1 = -1;
            for (int y = 0; y < H; y++)
                for (int x = 0; x < W; x++) {
                    const uint8_t *p = b.photo[j][y][x];
                    bool own = memcmp(p, was.photo[j][y][x], C) == 0;
                    if (!own) assert_memory_equal(p, was.photo[next][y][x], C);
                    if (own) continue;
                    n++;
                    x0 = x < x0 ? x : x0, x1 = x > x1 ? x : x1;
                    y0 = y < y0 ? y : y0, y1 = y > y1 ? y : y1;
                }
            if (n) assert_int_equal(n, (x1 - x0 + 1) * (y1 - y0 + 1));
            assert_true(fabs(custom_share(&b, j, N) - (1 - n / (double)(H * W))) < 1e-5);
            n_cut += n > 0;
        }
    }
    assert_true(n_cut > 1000);
    dt_mix_destroy(m);
}

// Beta(a, a): mean 1/2, variance 1 / (4 (2 a + 1)).
TEST(shares_have_the_moments_of_beta) {
    static const double A[] = {0.01, 0.2, 1, 5};
    for (size_t i = 0; i < sizeof A / sizeof *A; i++) {
        char text[32];
        snprintf(text, sizeof text, "mixup: %g", A[i]);
        dt_mix *m = create_good(text);
        double sum = 0, squares = 0;
        int n = 0;
        for (int64_t step = 0; step < 1000; step++) {
            batch b;
            fill(&b, 0);
            run(m, &b, step, 0, N);
            for (int j = 0; j < N; j++, n++) {
                double d = custom_share(&b, j, N) - 0.5;
                sum += d;
                squares += d * d;
            }
        }
        double want = 1 / (4 * (2 * A[i] + 1));
        if (fabs(sum / n) > 0.025 || fabs(squares / n / want - 1) > 0.06)
            fail_msg("Beta(%g): mean %g, variance %g, expected %g", A[i], 0.5 + sum / n, squares / n, want);
        dt_mix_destroy(m);
    }
}

// The same bits with any C library, compiler and ISA: shares of 65536, hashed, as they were when this was written.
TEST(shares_have_fixed_bits) {
    static const double A[] = {0.01, 0.2, 1, 5};
    uint64_t h[2] = {0};
    for (size_t i = 0; i < sizeof A / sizeof *A; i++) {
        char text[32];
        snprintf(text, sizeof text, "mixup: %g", A[i]);
        dt_mix *m = create_good(text);
        for (int64_t step = 0; step < 1000; step++) {
            batch b;
            fill(&b, 0);
            run(m, &b, step, 0, N);
            for (int j = 0; j < N; j++) {
                h[1] = (uint64_t)(custom_share(&b, j, N) * 65536);
                h[0] = dt_hash64(h, sizeof h);
            }
        }
        dt_mix_destroy(m);
    }
    if (h[0] != 0xd1e8c50703d890a0u) fail_msg("%016llx", (unsigned long long)h[0]);
}

TEST(p_and_switch_are_how_often) {
    dt_mix *m = create_good("mixup: 5.0, cutmix: 1.0, p: 0.6, switch: 0.25");
    int n_none = 0, n_blend = 0, n = 0;
    for (int64_t step = 0; step < 500; step++) {
        batch b, was;
        fill(&b, 0);
        was = b;
        run(m, &b, step, 0, N);
        for (int j = 0; j < N; j++, n++) {
            bool same = memcmp(b.photo[j], was.photo[j], sizeof b.photo[j]) == 0;
            n_none += same;
            // blended: values that neither had
            n_blend +=
                b.small[j][0][0][0] != was.small[j][0][0][0] && b.small[j][0][0][0] != was.small[(j + 1) % N][0][0][0];
        }
    }
    assert_in_range(n_none, n * 38 / 100, n * 45 / 100); // and rectangles of no pixel
    assert_in_range(n_blend, n * 42 / 100, n * 48 / 100);
    dt_mix_destroy(m);
}

// A sample's part in the global batch decides, not the micro-batch's place in memory or time.
TEST(it_depends_on_step_and_slot_alone) {
    dt_mix *m = create_good("mixup: 0.4, cutmix: 1.0");
    batch a, b;
    fill(&a, 0);
    fill(&b, 0);
    run(m, &a, 7, 6, N);
    run(m, &b, 7, 6, N);
    assert_memory_equal(&a, &b, sizeof a);
    fill(&b, 0);
    run(m, &b, 8, 6, N);
    assert_memory_not_equal(&a, &b, sizeof a);
    fill(&b, 0);
    run(m, &b, 7, 12, N);
    assert_memory_not_equal(&a, &b, sizeof a);
    fill(&b, 0); // alone: itself
    batch was = b;
    run(m, &b, 7, 6, 1);
    assert_memory_equal(b.photo, was.photo, sizeof b.photo);
    assert_true(b.shares[0][b.label[0]] == 1);
    dt_mix_destroy(m);
}

TEST(wrong_mixes_are_named) {
    static const struct {
        const char *mix;
        int micro_batch;
        const char *message;
    } BAD[] = {{"mixup: -1", 6, "mixup"},
               {"mixup: 1.0", 1, "train.micro_batch"},
               {"mixup: 1.0, fields: [photo, angle]", 6, "'angle' is no image"},
               {"mixup: 1.0, fields: iris", 6, "'iris' is no image"},
               {"mixup: 1.0, with: 3", 6, "data.mix.with"}};
    dt_mix *m;
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        assert_int_equal(create(BAD[i].mix, BAD[i].micro_batch, &m), DT_E_USAGE);
        if (!strstr(dt_error_message(), BAD[i].message)) fail_msg("%s", dt_error_message());
    }
    must(create("p: 0.5", 1, &m));
    assert_null(m);
}

static int set_up(void **state) {
    fields[0] = (dt_field_info){.name = "photo", .dtype = DT_U8, .sample_shape = dt_shape3(H, W, C), .is_image = true};
    fields[1] = (dt_field_info){.name = "sound", .dtype = DT_F32, .sample_shape = dt_shape3(5, 3, 1), .is_image = true};
    fields[2] = (dt_field_info){.name = "angle", .dtype = DT_F32, .sample_shape = dt_shape1(2)};
    fields[3] =
        (dt_field_info){.name = "kind", .dtype = DT_I32, .sample_shape = dt_shape0(), .n_classes = K, .soft = true};
    fields[4] = (dt_field_info){.name = "small", .dtype = DT_U8, .sample_shape = dt_shape3(4, 4, 1), .is_image = true};
    return 0;
}

static int tear_down(void **state) {
    dt_config_destroy(config);
    return 0;
}

TEST_MAIN(set_up, tear_down)
