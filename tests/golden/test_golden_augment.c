// Augmentations as drawn against torchvision and torchaudio (make_augment.py): random_resized_crop, crop, shift,
// zoom, erase, cutout, mixup, CutMix, SpecAugment's masks, time shift and gain. The script computes anew what
// a (seed, epoch, sample) draws and gives that to their deterministic halves, so both the draws and what is made
// of them are held here. test_augment.c does the same for operations whose parameters are given.
//
// One difference is wanted: torchvision cuts a picture and then resizes the piece, Pillow's resize of a box and
// dtrain look at pixels beyond the cut where the filter reaches there. The second is held to the byte, the first where
// the filter does not reach there (and within one: Pillow 13 begins with columns now and then, see resize.c).
#include "golden.h"

#include "batch/mix_plan.h"
#include "data/augment/augment.h"
#include "data/augment/augment_audio.h"
#include "data/augment/mix.h"

enum { H = 12, W = 16, C = 3, N_BYTES = H * W * C, N_MIXED = 3, N_CLASSES = 4 };

static dt_safetensors *goldens;
static dt_buffer scratch;

static const void *golden_at(const char *name, size_t n_bytes) {
    char key[256];
    size_t n;
    snprintf(key, sizeof key, "as drawn/%s", name);
    int i = dt_safetensors_find(goldens, key);
    if (i < 0) fail_msg("no golden '%s'", key);
    const void *data = dt_safetensors_data(goldens, i, &n);
    if (n != n_bytes) fail_msg("%s: %zu bytes, expected %zu", key, n, n_bytes);
    return data;
}

static dt_config *parse(const char *data) {
    dt_config *c;
    char *text = dt_xprintf("run: {name: t, seed: 11}\n"
                            "data: {path: x, fields: {a: {kind: image, size: [12, 16]}}, %s}\n"
                            "model: {name: fusion}\ntrain: {global_batch: 6, micro_batch: 3}\n",
                            data);
    must(dt_config_parse(&c, "t.yaml", text, strlen(text), NULL, 0));
    free(text);
    return c;
}

static dt_config *parse_list(const char *list, const dt_cnode **out) {
    char *text = dt_xprintf("augment: {a: [%s]}", list);
    dt_config *c = parse(text);
    free(text);
    *out = dt_cnode_get(c->data.augment, "a");
    return c;
}

// ---- images --------------------------------------------------------------------------------------------
static void compare(const char *name, const uint8_t *got, const uint8_t *want, bool near) {
    int n_equal = 0, n_near = 0, most = 0;
    for (int i = 0; i < N_BYTES; i++) {
        int d = abs(got[i] - want[i]);
        n_equal += d == 0, n_near += d <= 1;
        most = d > most ? d : most;
    }
    if (near ? n_equal < 0.4 * N_BYTES || n_near < 0.99 * N_BYTES || most > 2 : n_equal < N_BYTES)
        fail_msg("%s: %d of %d equal, %d within one, worst %d", name, n_equal, N_BYTES, n_near, most);
}

static void check_list(const char *list, uint32_t sample, const char *name, bool near) {
    static uint8_t pixels[N_BYTES];
    const dt_cnode *node;
    dt_config *c = parse_list(list, &node);
    dt_augment *a;
    size_t n;
    must(dt_augment_parse(&a, node, "a"));
    memcpy(pixels, dt_safetensors_data(goldens, dt_safetensors_find(goldens, "small"), &n), sizeof pixels);
    dt_image image = {pixels, W, H, C};
    dt_augment_key key = {11, sample, 0};
    must(dt_augment_apply(a, &key, &image, &scratch));
    compare(name, pixels, golden_at(name, N_BYTES), near);
    dt_augment_destroy(a);
    dt_config_destroy(c);
}

TEST(images_are_torchvisions) {
    static const struct {
        const char *list, *golden; // %s: the fill
        const char *fills[2];
        bool near; // bilinear: Pillow drops fractions, we round
    } ROWS[] = {
        {"{crop: {padding: 4, fill: %s}}", "crop", {"33", "edge"}},
        {"{erase: {p: 1, fill: %s}}", "erase", {"7", "mean"}},
        {"{cutout: {size: 0.5, fill: %s}}", "cutout", {"7", "mean"}},
        {"{shift: {by: 0.3, fill: 0}}", "shift", {NULL}, true},
        {"{zoom: {by: 0.5, fill: 0}}", "zoom", {NULL}, true},
    };
    char list[128], name[128];
    for (uint32_t s = 0; s < 3; s++)
        for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++)
            for (int k = 0; k < (ROWS[i].fills[0] ? 2 : 1); k++) {
                const char *fill = ROWS[i].fills[k];
                snprintf(list, sizeof list, ROWS[i].list, fill);
                snprintf(name, sizeof name, "%s %u%s%s", ROWS[i].golden, s, fill ? " " : "", fill ? fill : "");
                check_list(list, s, name, ROWS[i].near);
            }
    check_list("{shift: {by: [0.25, 0.25], fill: 0}}", 0, "shift_whole 0.25 0", false);
    check_list("{shift: {by: [0.25, 0.25]}}", 0, "shift_whole 0.25 edge", false);
    check_list("{shift: {by: [-0.25, -0.25], fill: 0}}", 0, "shift_whole -0.25 0", false);
    check_list("{shift: {by: [-0.25, -0.25]}}", 0, "shift_whole -0.25 edge", false);
}

// Whether the filter of output i of n stays within [low, high).
static bool is_within(double low, double high, int i, int n) {
    double scale = (high - low) / n, reach = scale < 1 ? 1 : scale, at = low + (i + 0.5) * scale;
    return at - reach >= low && at + reach <= high;
}

TEST(a_resized_crop_is_torchvisions) {
    static uint8_t src[30 * 22 * C], got[N_BYTES];
    const dt_cnode *node;
    dt_config *c = parse_list("random_resized_crop", &node);
    dt_augment *a;
    dt_resizer *r = dt_resizer_create();
    size_t n;
    int n_compared = 0, n_equal = 0;
    must(dt_augment_parse(&a, node, "a"));
    memcpy(src, dt_safetensors_data(goldens, dt_safetensors_find(goldens, "src3"), &n), sizeof src);
    for (uint32_t s = 0; s < 4; s++) {
        char name[64];
        double box[4];
        dt_image image = {src, 30, 22, C};
        dt_augment_key key = {11, s, 0};
        assert_true(dt_augment_box(a, &key, 30, 22, box));
        must(dt_resize(r, &image, box, got, H, W));
        snprintf(name, sizeof name, "resized_box %u", s);
        compare(name, got, golden_at(name, N_BYTES), false);
        snprintf(name, sizeof name, "resized_crop %u", s);
        const uint8_t *want = golden_at(name, N_BYTES);
        for (int i = 0; i < N_BYTES; i++) {
            int x = i / C % W, y = i / C / W;
            if (abs(got[i] - want[i]) > 6) fail_msg("%s: byte %d is %d", name, i, got[i]);
            if (!is_within(box[0], box[2], x, W) || !is_within(box[1], box[3], y, H)) continue;
            if (abs(got[i] - want[i]) > 1) fail_msg("%s: byte %d is %d, expected %d", name, i, got[i], want[i]);
            n_equal += got[i] == want[i];
            n_compared++;
        }
    }
    assert_true(n_compared > 4 * N_BYTES / 2 && n_equal > 0.9 * n_compared);
    dt_resizer_destroy(r);
    dt_augment_destroy(a);
    dt_config_destroy(c);
}

// ---- mixing --------------------------------------------------------------------------------------------
// The pixels as the network mixes them: std 1/255 of x/255 micro-batches levels.
static void mix_pixels(const uint8_t *x, const dt_mix_row *plan, float *y) {
    const float mean[C] = {0}, std[C] = {1 / 255.0f, 1 / 255.0f, 1 / 255.0f};
    dt_graph *g = dt_graph_create("mix", false);
    dt_value in = dt_constant(g, "x", DT_U8, (dt_shape){.n = 4, .d = {N_MIXED, H, W, C}}, x);
    dt_value rows = dt_constant(g, "plan", DT_I32, dt_shape2(N_MIXED, DT_MIX_COLUMNS), (const int32_t *)plan);
    dt_output(g, "y", dt_image_normalize(g, in, rows, mean, std));
    must(dt_graph_check(g));
    must(dt_pass_amp(g, DT_F32));
    dt_backend *b;
    dt_params *p;
    dt_plan *steps;
    dt_exec *e;
    must(dt_backend_create(&b, DT_DEVICE_cpu, &(dt_backend_opts){.threads = 1}));
    must(dt_params_create(&p, g, b, 0, 1));
    must(dt_plan_create(&steps, g, p, &(dt_plan_opts){.threads = 1, .n_replicas = 1}));
    must(dt_exec_create(&e, steps, 0));
    dt_exec_run(e, &(dt_exec_args){.step = {.seed = 1}});
    assert_int_equal(dt_exec_output(e, "y", y, N_MIXED * N_BYTES), N_MIXED * N_BYTES);
    dt_exec_destroy(e);
    dt_plan_destroy(steps);
    dt_params_destroy(p);
    b->destroy(b);
    dt_graph_destroy(g);
}

static void check_mix(const char *kind) {
    static float mixed[N_MIXED * N_BYTES];
    char text[64], name[64];
    snprintf(text, sizeof text, "mix: {%s: 1.0}", kind);
    dt_config *c = parse(text);
    dt_field_info fields[2] = {{.name = "a", .dtype = DT_U8, .sample_shape = dt_shape3(H, W, C), .is_image = true},
                               {.name = "label", .dtype = DT_I32, .sample_shape = dt_shape0(), .n_classes = N_CLASSES}};
    fields[0].mixed = fields[1].soft = true;
    dt_mix *m;
    must(dt_mix_create(&m, c, fields, 2));
    const int32_t label[N_MIXED] = {0, 2, 1};
    float shares[N_MIXED][N_CLASSES];
    dt_mix_row rows[N_MIXED];
    const void *in[2] = {NULL, label};
    void *out[2] = {NULL, shares};
    dt_mix_row *plan[2] = {rows, NULL};
    dt_mix_run(m, &(dt_mix_batch){3, 0, N_MIXED, in, out, plan});
    snprintf(name, sizeof name, "%s plan", kind);
    const int32_t *want_plan = golden_at(name, sizeof rows);
    if (memcmp(rows, want_plan, sizeof rows) != 0)
        for (int j = 0; j < N_MIXED; j++)
            printf("%s: sample %d draws [%d, %d, %d, %d, %d]\n", name, j, rows[j].own, rows[j].y0, rows[j].y1,
                   rows[j].x0, rows[j].x1);
    assert_memory_equal(rows, want_plan, sizeof rows);
    snprintf(name, sizeof name, "%s shares", kind);
    const float *want_shares = golden_at(name, sizeof shares);
    for (int i = 0; i < N_MIXED * N_CLASSES; i++) // whole 65536ths
        if (fabs((double)shares[i / N_CLASSES][i % N_CLASSES] - (double)want_shares[i]) > 1e-5)
            fail_msg("%s: %d is %g, golden %g", name, i, (double)shares[i / N_CLASSES][i % N_CLASSES],
                     (double)want_shares[i]);
    snprintf(name, sizeof name, "%s pixels", kind);
    const uint8_t *want = golden_at(name, sizeof mixed / sizeof *mixed);
    mix_pixels(golden_at("batch", N_MIXED * N_BYTES), rows, mixed);
    for (int i = 0; i < N_MIXED * N_BYTES; i++) { // (N,C,H,W) beside (N,H,W,C)
        int at = i / N_BYTES * N_BYTES + i % C * H * W + i % N_BYTES / C;
        if (fabs((double)mixed[at] - want[i]) > 1e-3)
            fail_msg("%s: %d is %g, golden %d", name, i, (double)mixed[at], want[i]);
    }
    dt_mix_destroy(m);
    dt_config_destroy(c);
}

TEST(mixing_is_torchvisions) {
    check_mix("cutmix");
    check_mix("mixup");
}

// ---- sounds --------------------------------------------------------------------------------------------
TEST(sounds_are_torchaudios) {
    enum { N_SOUND = 900, BANDS = 9, FRAMES = 12 };
    static const struct {
        const char *list, *golden;
        bool features;
    } ROWS[] = {
        {"{freq_mask: 5}", "freq_mask", true},
        {"{time_mask: 8}", "time_mask", true},
        {"{time_shift: 0.4}", "time_shift"},
        {"{gain: 6}", "gain"},
    };
    static float x[N_SOUND];
    for (uint32_t s = 0; s < 3; s++)
        for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
            char name[64];
            const dt_cnode *node;
            dt_config *c = parse_list(ROWS[i].list, &node);
            dt_augment *a;
            dt_augment_key key = {11, s, 0};
            int n = ROWS[i].features ? BANDS * FRAMES : N_SOUND;
            size_t n_bytes = (size_t)n * sizeof *x;
            must(dt_audio_augment_parse(&a, node, "a", true));
            memcpy(x, golden_at(ROWS[i].features ? "features" : "sound", n_bytes), n_bytes);
            if (ROWS[i].features)
                dt_audio_augment_features(a, &key, x, BANDS, FRAMES, 1);
            else
                must(dt_audio_augment_samples(a, &key, x, N_SOUND, 1, N_SOUND, &scratch));
            snprintf(name, sizeof name, "%s %u", ROWS[i].golden, s);
            golden_compare(name, x, golden_at(name, n_bytes), n, 1e-6);
            dt_augment_destroy(a);
            dt_config_destroy(c);
        }
}

int main(void) {
    goldens = golden_open("augment.safetensors");
    int rc = run_all_tests(NULL, NULL);
    dt_safetensors_close(goldens);
    dt_buffer_fini(&scratch);
    return rc;
}
