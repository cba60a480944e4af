// test_ops_augment_cuda.c: random image augmentation on the fake device. Any list of steps on any size gives the
// loader's bytes, queued and from a captured graph, with threads in either order. Work that a loader leaves to the
// device is what it would have done itself.
#include "config/config.h"
#include "data/augment/augment.h"
#include "device_run.h"
#include "graph/build.h"
#include "testing.h"
#include "unit/data/random_list.h"
#include "unit/data_fixture.h"

enum { N = 3, CANARY = DEVICE_CANARY };

static dt_backend *machine;
static dt_buffer scratch;
static int n_seen[DT_PIXEL_BLUR + 1];

static dt_augment *parse(const char *list) {
    char *text = dt_xprintf("run: {name: t}\n"
                            "data: {path: x, fields: {a: {kind: image, size: [4, 4]}}, augment: {a: %s}}\n"
                            "model: {name: fusion}\ntrain: {global_batch: 8, micro_batch: 2}\n",
                            list);
    dt_config *c;
    dt_augment *a;
    if (dt_config_parse(&c, "t.yaml", text, strlen(text), NULL, 0) != DT_OK ||
        dt_augment_parse(&a, dt_cnode_get(c->data.augment, "a"), "a") != DT_OK)
        fail_msg("%s: %s", list, dt_error_message());
    dt_config_destroy(c);
    free(text);
    return a;
}

static void *with_canary(size_t n) {
    char *p = aligned_alloc(64, (n + CANARY + 63) / 64 * 64);
    memset(p + n, 0xa5, CANARY);
    return p;
}

// Plays n_steps of each of N images of w x h x c on the device.
static void play(const uint8_t *x, const dt_pixel_step *steps, int n_steps, int w, int h, int c, uint8_t *out,
                 const char *what) {
    dt_graph *g = dt_graph_create("augment", true);
    dt_value in = dt_input(g, "x", DT_U8, dt_shape4(N, h, w, c));
    dt_value list = dt_input(g, "x.steps", DT_I32, dt_shape2(N, n_steps * DT_PIXEL_STEP_WORDS));
    if (dt_image_augment(g, in, list) == DT_NONE) fail_msg("%s", dt_error_message());
    dt_layout in_layout[2] = {dt_dense(), dt_dense()}, out_layout[1];
    dt_kernel_instance s = {.graph = g,
                            .node = &g->nodes[0],
                            .backend = machine,
                            .threads = 1,
                            .n_replicas = 1,
                            .in_layout = in_layout,
                            .out_layout = out_layout};
    const dt_kernel *k = machine->kernel(machine, DT_OP_image_augment, false);
    must(k->prepare(&s));
    dt_step_block block = {0};
    void *spare = with_canary(s.scratch_bytes);
    dt_run r = {.in = (const void *[]){x, steps}, .out = (void *[]){out}, .scratch = spare, .step = &block};
    memset(spare, 0xff, s.scratch_bytes);
    const char *wrong = device_run_kernel(machine, k, &s, &r, s.scratch_bytes + CANARY);
    if (wrong) fail_msg("%s on %dx%dx%d: %s", what, w, h, c, wrong);
    for (int i = 0; i < CANARY; i++) {
        assert_int_equal(((uint8_t *)spare)[s.scratch_bytes + (size_t)i], 0xa5);
        assert_int_equal(out[N * w * h * c + i], 0xa5);
    }
    k->destroy(&s);
    dt_graph_destroy(g);
    free(spare);
}

static void check_list(const char *list, uint32_t round, int w, int h, int c) {
    const size_t n = (size_t)(w * h * c);
    dt_augment *a = parse(list);
    const int n_steps = dt_augment_device_steps(a);
    uint8_t *want = with_canary(N * n), *x = with_canary(N * n), *out = with_canary(N * n);
    dt_pixel_step *steps = with_canary((size_t)(N * n_steps) * sizeof *steps);
    dt_rng r = {.seed = 8, .slot = round, .purpose = 2};
    for (size_t i = 0; i < N * n; i++)
        want[i] = x[i] = (uint8_t)(dt_rng_u32(&r, (uint32_t)i) % (round % 2 ? 256 : 100));
    for (uint32_t i = 0; i < N; i++) {
        dt_augment_key key = {5, 7 * round + i, 1};
        dt_image here = {want + i * n, w, h, c}, there = {x + i * n, w, h, c};
        must(dt_augment_apply(a, &key, &here, &scratch));
        must(dt_augment_split(a, &key, &there, &scratch, steps + (int)i * n_steps));
        for (int k = 0; k < n_steps; k++) n_seen[steps[(int)i * n_steps + k].kind]++;
    }
    if (n_steps > 0) {
        play(x, steps, n_steps, w, h, c, out, list);
        for (size_t i = 0; i < N * n; i++)
            if (out[i] != want[i])
                fail_msg("%s on %dx%dx%d, byte %zu of image %zu: %d, not %d", list, w, h, c, i % n, i / n, out[i],
                         want[i]);
    }
    dt_augment_destroy(a);
    free(want);
    free(x);
    free(out);
    free(steps);
}

// Each operation by itself, on images of more than a block's turn, and all sorts of lists.
TEST(test_lists) {
    static const char *const LISTS[] = {
        "[{flip: both}, {crop: 4}]",
        "[{rotate: 30}]",
        "[{affine: {degrees: 10, translate: 0.1, scale: [0.9, 1.1], shear: 5, fill: 7}}]",
        "[{perspective: {p: 1}}]",
        "[{perspective: {p: 1, fill: 9, interpolation: nearest}}]",
        "[{color_jitter: {brightness: 0.4, contrast: 0.4, saturation: 0.4, hue: 0.1}}, "
        "{grayscale: 0.3}, {erase: {p: 1, fill: random}}]",
        "[{sharpness: [2, 2]}, {sharpness: [0, 2]}, {flip: {axis: vertical, p: 1}}]",
        "[{blur: {kernel: 23, p: 1}}, {blur: {kernel: 5, p: 1}}]",
        "[{blur: {kernel: 151, p: 1}}, {noise: 0.1}, {erase: {p: 1}}]",
        "[{equalize: 1}, {invert: 1}, {autocontrast: 1}, {solarize: {p: 1}}, {posterize: {bits: "
        "3, p: 1}}]",
        "[{rand_augment: {n: 4, magnitude: 15}}, trivial_augment, auto_augment]"};
    for (size_t i = 0; i < sizeof LISTS / sizeof *LISTS; i++)
        for (uint32_t round = 0; round < 3; round++)
            check_list(LISTS[i], round, round == 1 ? 301 : 96, 64, round == 2 ? 1 : 3);
}

TEST(test_random_lists) {
    static const int SIZES[] = {1, 2, 3, 4, 5, 7, 16, 31, 64};
    for (uint32_t round = 0; round < 300; round++) {
        dt_rng r = {.seed = 98, .slot = round, .purpose = 1};
        uint32_t e = 0;
        char list[4096];
        random_list(&r, &e, list, sizeof list);
        const int w = SIZES[dt_rng_below(&r, e, 9)], h = SIZES[dt_rng_below(&r, e + 1, 9)];
        check_list(list, round, w, h, dt_rng_below(&r, e + 2, 2) ? 3 : 1);
    }
    for (int k = 0; k <= DT_PIXEL_BLUR; k++)
        if (n_seen[k] < 5) fail_msg("step %d was hardly seen", k);
}

// ---- what a loader leaves ----------------------------------------------------------------------------
enum { MICRO = 4, BATCHES = 40 };

static dt_dataset *open_set(const char *packed, const char *extra, dt_backend *b) {
    dt_dataset *d;
    dt_config *c = fixture_config(packed, extra);
    const dt_batch_memory memory = b ? dt_backend_batch_memory(b) : (dt_batch_memory){0};
    must(dt_data_open(&d, c, b ? &memory : NULL, 2, NULL));
    return d;
}

static dt_batch_source *open_source(dt_dataset *d, dt_split split) {
    static const int micro = 0;
    dt_source_request r = {.split = split,
                           .augment = split == DT_SPLIT_TRAIN,
                           .global_batch = MICRO,
                           .micro_batch = MICRO,
                           .micros = &micro,
                           .n_micro = 1,
                           .end_step = -1};
    dt_batch_source *s;
    must(d->open(d, &r, &s));
    return s;
}

// What batch `b` has of field f, its steps played, is what batch `whole` has.
static int compare_field(const dt_batch *b, const dt_batch *whole, const dt_field_info *f, int i) {
    const int64_t *size = f->sample_shape.d;
    const size_t n = (size_t)(size[0] * size[1] * size[2]);
    int n_played = 0;
    for (int j = 0; j < b->n; j++) {
        dt_image image = {(uint8_t *)b->field[i] + (size_t)j * n, (int)size[1], (int)size[0], (int)size[2]};
        for (int k = 0; k < f->n_steps; k++) {
            const dt_pixel_step *s = &b->steps[i][j * f->n_steps + k];
            n_played += s->kind != DT_PIXEL_END;
            must(dt_pixels_play(&image, s, &scratch));
        }
        assert_memory_equal(image.data, (const uint8_t *)whole->field[i] + (size_t)j * n, n);
    }
    return n_played;
}

// One field is left to the device from the middle of its list on, the other as a whole; with mixing beside it. Under
// data.augment_on: host, without a device and in evaluation nothing is.
TEST(test_loader) {
#define LISTS                                                                                                          \
    "  augment: {fingerprint: [{rotate: 20}, {blur: {kernel: 91, p: 0.5}}, {rotate: 10}], "                            \
    "iris: [{flip: horizontal}, {color_jitter: {brightness: 0.4, hue: 0.1}}]}\n"                                       \
    "  mix: {mixup: 0.4}\n"
    folder_make(state);
    const char *set = fixture_packed(4, 10);
    dt_dataset *d[3] = {open_set(set, LISTS, machine), open_set(set, LISTS "  augment_on: host\n", machine),
                        open_set(set, LISTS, NULL)};
    dt_batch_source *s[3];
    int n_played[2] = {0, 0};
    for (int i = 0; i < 3; i++) s[i] = open_source(d[i], DT_SPLIT_TRAIN);
    assert_int_equal(d[0]->fields[0].n_steps, 2); // a map of the host's may wait
    assert_int_equal(d[0]->fields[1].n_steps, 5);
    for (int64_t step = 0; step < BATCHES; step++) {
        const dt_batch *b[3];
        for (int i = 0; i < 3; i++) must(s[i]->get(s[i], step, 0, &b[i], NULL));
        for (int f = 0; f < 2; f++) {
            assert_true(b[0]->steps[f] && !b[1]->steps[f] && !b[2]->steps[f]);
            n_played[f] += compare_field(b[0], b[1], &d[0]->fields[f], f);
            compare_field(b[2], b[1], &d[2]->fields[f], f);
            assert_memory_equal(b[0]->mix[f], b[1]->mix[f], MICRO * sizeof(dt_mix_row));
        }
        for (int i = 0; i < 3; i++) s[i]->release(s[i], b[i]);
    }
    assert_true(n_played[0] >= BATCHES * MICRO && n_played[1] > 2 * BATCHES * MICRO);
    for (int i = 0; i < 3; i++) s[i]->close(s[i]);
    s[0] = open_source(d[0], DT_SPLIT_VAL);
    const dt_batch *b;
    must(s[0]->get(s[0], 0, 0, &b, NULL));
    assert_true(!b->steps[0] && !b->steps[1]);
    s[0]->release(s[0], b);
    s[0]->close(s[0]);
    for (int i = 0; i < 3; i++) d[i]->close(d[i]);
    fixture_tear_down(state);
}

static int open_machine(void **state) {
    return device_backend(&machine) == DT_OK ? 0 : -1;
}

static int close_machine(void **state) {
    dt_buffer_fini(&scratch);
    device_close();
    return 0;
}

TEST_MAIN(open_machine, close_machine)
