// configs/acoustic.yaml on sounds that this program makes: three classes of hums in noise, at three sample
// rates and of different lengths, in a tar of WAVs. Must learn to tell them apart.
#include "testing.h"
#include "unit/data_fixture.h"

#include <math.h>

enum { PER_CLASS = 36, MAX_SAMPLES = 16000 };

static uint32_t next_random(uint32_t *state) {
    return (*state = *state * 1664525u + 1013904223u) >> 8;
}

// A hum of its class's pitch with two overtones; other phases, levels and noise each time.
static size_t make_sound(uint8_t *wav, int label, uint32_t *random) {
    static const uint32_t RATES[] = {8000, 11025, 16000};
    static int16_t x[MAX_SAMPLES];
    uint32_t rate = RATES[next_random(random) % 3];
    size_t n = rate / 4 + next_random(random) % (rate / 2);
    double pitch = 200.0 * (1 + label) * (1 + next_random(random) % 100 * 0.001),
           level = 2000 + next_random(random) % 4000;
    double phase = next_random(random) % 628 * 0.01;
    for (size_t i = 0; i < n; i++) {
        double t = 2 * acos(-1.0) * pitch * (double)i / rate + phase;
        x[i] = (int16_t)(level * (sin(t) + 0.5 * sin(2 * t) + 0.3 * sin(3 * t)) + (double)(next_random(random) % 2000) -
                         1000);
    }
    return fixture_wav(wav, rate, x, n);
}

static void run(const char *what, const char *options) {
    char *command = dt_xprintf("%s %s >'%s/out' 2>'%s/log' || { tail -20 '%s/log' >&2; exit 1; }", getenv("DTRAIN"),
                               options, folder_path, folder_path, folder_path);
    if (system(command) != 0) fail_msg("%s: %s", what, command);
    free(command);
}

// The number after "key": in the output's last line.
static double last_value(const char *key) {
    char *path = dt_xprintf("%s/out", folder_path), *name = dt_xprintf("\"%s\":", key);
    size_t n;
    char *text = fixture_read(path, &n), *at = NULL;
    for (char *p = text; (p = strstr(p, name)); p++) at = p;
    double v = at ? strtod(at + strlen(name), NULL) : -1;
    free(text), free(name), free(path);
    return v;
}

TEST(learns_hums) {
    static const char *const LABELS[] = {"high", "low", "middle"};
    static const int PITCH[] = {2, 0, 1};
    static uint8_t wav[44 + 2 * MAX_SAMPLES];
    uint32_t random = 7;
    for (int label = 0; label < 3; label++)
        for (int i = 0; i < PER_CLASS; i++) {
            size_t n = make_sound(wav, PITCH[label], &random);
            const char *path = in_folder("raw/%s/%d.wav", LABELS[label], i);
            fixture_write(path, wav, n);
        }
    char *pack = dt_xprintf("pack %s/raw '%s/hums.tar'", folder_path, folder_path);
    run("pack", pack);
    char *train = dt_xprintf("%s/configs/acoustic.yaml run.dir=%s/runs data.path=%s/hums.tar "
                             "data.fields.label.source=label "
                             "data.fields.label.classes=3 data.split.unit=record data.split.stratify=label "
                             "data.fields.sound.rate=8000 data.fields.sound.n_fft=256 data.fields.sound.hop=80 "
                             "data.fields.sound.n_mels=40 "
                             "data.fields.sound.seconds=0.4 "
                             "model.width=8 train.precision=fp32 device.threads=1 eval.metrics='[accuracy, loss]'",
                             getenv("SOURCE"), folder_path, folder_path);
    char *whole = dt_xprintf("%s run.name=whole train.epochs=14", train);
    run("train", whole);
    double accuracy = last_value("accuracy"), loss = last_value("loss");
    printf("hums: accuracy %.3f, loss %.4f\n", accuracy, loss);
    assert_true(accuracy >= 0.85);
    free(pack), free(train), free(whole);
}

TEST_MAIN(folder_make, fixture_tear_down)
