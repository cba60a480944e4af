// The verdict about counters that are made up, and the tuner on a pipeline that is a formula.
#include "base/os.h"
#include "testing.h"
#include "train/bottleneck.h"

#include <math.h>
#include <string.h>
#include <time.h>

// A pipeline as numbers: what a sample costs a thread, in microseconds.
typedef struct model {
    double read_us, wait_us, decode_us, augment_us; // wait: of a read that blocks
    double rest_us;                                 // that no stage counts
    double consumer;                                // samples/s that training takes at most; 0: all
    int workers, readers, slots, cores;
    bool ahead; // readers are at work
    dt_source_stats now;
} model;

static double rate_of(const model *m) {
    double cpu_us = m->decode_us + m->augment_us + m->read_us + m->rest_us;
    int running = m->workers < m->cores ? m->workers : m->cores;
    double rate = running * 1e6 / cpu_us;
    if (m->ahead && m->wait_us > 0 && m->readers * 1e6 / m->wait_us < rate) rate = m->readers * 1e6 / m->wait_us;
    if (m->slots < 4) rate *= 0.7; // too little slack
    return m->consumer > 0 && m->consumer < rate ? m->consumer : rate;
}

// Lets it run for s seconds.
static void run_model(model *m, double s) {
    double rate = rate_of(m), n = rate * s, all = m->workers * s;
    double cpu_us = m->decode_us + m->augment_us + m->read_us + m->rest_us;
    dt_source_stats *x = &m->now;
    x->at_s += s;
    x->n_samples += (uint64_t)n;
    x->stage[DT_STAGE_READ].items += (uint64_t)n;
    x->stage[DT_STAGE_READ].bytes += (uint64_t)n * 100000;
    x->stage[DT_STAGE_READ].busy_s += n * (m->read_us + m->wait_us) * 1e-6;
    x->stage[DT_STAGE_DECODE].busy_s += n * m->decode_us * 1e-6;
    x->stage[DT_STAGE_AUGMENT].busy_s += n * m->augment_us * 1e-6;
    double idle = all - n * cpu_us * 1e-6;
    if (m->consumer > 0 && m->consumer <= rate)
        x->blocked_s += idle;
    else {
        if (m->ahead) x->starved_s += idle;
        x->wait_s += 0.5 * s;
    }
    x->n_workers = m->workers;
    x->max_workers = 16;
    x->n_readers = m->readers;
    x->max_readers = 64;
    x->reading_ahead = m->ahead;
    x->ring_slots = m->slots;
    x->max_slots = 32;
}

static dt_bottleneck judge(model m, const dt_pipeline_facts *f) {
    dt_bottleneck b;
    run_model(&m, 1);
    dt_source_stats before = m.now;
    run_model(&m, 2);
    dt_bottleneck_find(&b, &before, &m.now, f);
    return b;
}

static const dt_pipeline_facts FACTS = {.cores = 4, .set_bytes = 1000 << 20, .free_bytes = 1 << 30};
static const model PHOTOS = {
    .read_us = 20, .decode_us = 900, .augment_us = 80, .workers = 4, .readers = 8, .slots = 8, .cores = 4};

TEST(training_is_the_limit) {
    model m = PHOTOS;
    m.consumer = 300;
    dt_bottleneck b = judge(m, &FACTS);
    assert_int_equal(b.limit, DT_LIMIT_TRAINING);
    assert_true(fabs(b.rate - 300) < 2 && fabs(b.capacity - 4000) < 50); // 4 threads of 1000 us
    assert_string_equal(b.change, "");
}

TEST(costly_stages_are_named) {
    model m = PHOTOS;
    assert_int_equal(judge(m, &FACTS).limit, DT_LIMIT_DECODE);
    m.augment_us = 2000;
    dt_bottleneck b = judge(m, &FACTS);
    assert_int_equal(b.limit, DT_LIMIT_AUGMENT);
    assert_true(fabs(b.predicted - 4e6 / 920) < 50); // without it
    m = PHOTOS;
    m.read_us = 300;
    m.decode_us = m.augment_us = 50;
    dt_pipeline_facts folder = FACTS;
    folder.is_folder = true;
    b = judge(m, &folder);
    assert_int_equal(b.limit, DT_LIMIT_FILES);
    assert_non_null(strstr(b.change, "dtrain pack"));
}

TEST(advice_is_for_the_kind_of_members) {
    dt_pipeline_facts f = FACTS;
    assert_non_null(strstr(judge(PHOTOS, &f).advice, "jpeg"));
    for (f.members = DT_MEMBERS_AUDIO; f.members <= DT_MEMBERS_ARRAYS; f.members++) {
        const dt_bottleneck b = judge(PHOTOS, &f);
        assert_int_equal(b.limit, DT_LIMIT_DECODE);
        assert_null(strstr(b.advice, "jpeg"));
        assert_null(strstr(b.advice, "picture"));
    }
}

TEST(pixels_are_kept_where_they_fit) {
    dt_pipeline_facts f = FACTS;
    f.decoded_bytes = 400 << 20;
    f.decoded_sample_bytes = 100000;
    f.copy_byte_s = 0.2e-9;
    dt_bottleneck b = judge(PHOTOS, &f);
    assert_int_equal(b.limit, DT_LIMIT_DECODE);
    assert_string_equal(b.change, "data.cache=ram data.cache_form=decoded");
    assert_true(fabs(b.predicted - 4e6 / (80 + 20)) < 500); // augmentation is left, and copies
    model busy = PHOTOS;
    busy.rest_us = 100; // what was no stage's time stays
    assert_true(fabs(judge(busy, &f).predicted - 4e6 / (80 + 20 + 100)) < 500);
    f.n_processes = 8;
    assert_string_equal(judge(PHOTOS, &f).change, "data.cache=shared data.cache_form=decoded");
    model light = PHOTOS;
    light.augment_us = 0; // pixels are to be copied still
    assert_true(fabs(judge(light, &f).predicted - 4e6 / 20) < 3000);
    f.decoded_bytes = 600 << 20; // more than half of what is free
    assert_null(strstr(judge(PHOTOS, &f).change, "decoded"));
    f.decoded_bytes = 0; // it is kept already, or is not the same in every epoch
    assert_null(strstr(judge(PHOTOS, &f).change, "decoded"));
}

TEST(threads_are_asked_for_while_cores_are_free) {
    model m = PHOTOS;
    m.workers = 1;
    dt_bottleneck b = judge(m, &FACTS);
    assert_int_equal(b.limit, DT_LIMIT_WORKERS);
    assert_string_equal(b.change, "data.workers=4");
    assert_true(fabs(b.predicted / b.rate - 4) < 0.01);
}

TEST(slow_storage_is_named) {
    model m = PHOTOS;
    m.ahead = true;
    m.wait_us = 10000; // 8 readers: 800 samples/s of 4000
    dt_bottleneck b = judge(m, &FACTS);
    assert_int_equal(b.limit, DT_LIMIT_READ);
    assert_string_equal(b.bound, "I/O bound");
    assert_string_equal(b.change,
                        "data.readers=16"); // the set does not fit into half of the memory
    dt_pipeline_facts small = FACTS;
    small.set_bytes = 100 << 20;
    b = judge(m, &small);
    assert_string_equal(b.change, "data.cache=ram");
    assert_true(b.predicted > 3500 && b.predicted < 4500); // what decoding alone allows
    model far = m;
    far.now.cache = (dt_cache_stats){.kind = DT_CACHE_disk, .full = true};
    assert_string_equal(judge(far, &FACTS).change, "data.cache_size=1100MiB");
    m.readers = 64; // as many as there may be
    b = judge(m, &FACTS);
    assert_true(b.limit != DT_LIMIT_READ || !*b.change);
}

TEST(no_batches_is_no_verdict) {
    dt_source_stats none = {.at_s = 1};
    dt_bottleneck b;
    dt_bottleneck_find(&b, &none, &none, &FACTS);
    assert_int_equal(b.limit, DT_LIMIT_NONE);
    assert_true(strlen(b.what) > 0);
}

// ---- the tuner ---------------------------------------------------------------------------------------
static void model_stats(dt_batch_source *s, dt_source_stats *out) {
    *out = ((model *)s->self)->now;
}

static void model_tune(dt_batch_source *s, const dt_source_tuning *t) {
    model *m = s->self;
    if (t->workers) m->workers = t->workers;
    if (t->readers) m->readers = t->readers < 64 ? t->readers : 64;
    if (t->slots) m->slots = t->slots < 32 ? t->slots : 32;
    run_model(m, 0);
}

// Rate after so many seconds, which the test does not wait for: the tuner's clock is moved.
static double tuned_rate(model *m, const dt_pipeline_facts *f, double seconds) {
    dt_batch_source s = {.self = m, .stats = model_stats, .tune = model_tune};
    dt_tuner t;
    m->now.at_s = dt_clock_s() - 1e6;
    run_model(m, 0);
    dt_tuner_init(&t, &s, f);
    while (seconds > 0) {
        double window_s = t.settled ? 0.5 : 0.1; // what the tuner looks at
        run_model(m, window_s);
        seconds -= window_s;
        dt_tuner_tick(&t);
    }
    return rate_of(m);
}

static double grid_best(model m) {
    double best = 0;
    for (m.workers = 1; m.workers <= m.cores; m.workers++)
        for (m.readers = 1; m.readers <= 64; m.readers++)
            for (m.slots = 2; m.slots <= 32; m.slots++)
                if (rate_of(&m) > best) best = rate_of(&m);
    return best;
}

TEST(the_tuner_finds_the_best) {
    static const struct {
        double read, wait, decode, augment;
        int workers, readers, slots, cores;
        bool ahead;
    } CASES[] = {
        {20, 0, 900, 80, 1, 8, 8, 4, false},    {20, 5000, 900, 80, 4, 2, 8, 4, true},
        {20, 20000, 300, 20, 1, 1, 8, 8, true}, {20, 0, 200, 2000, 2, 4, 2, 8, false},
        {50, 1000, 100, 0, 1, 1, 2, 2, true},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        model m = {.read_us = CASES[i].read,
                   .wait_us = CASES[i].wait,
                   .decode_us = CASES[i].decode,
                   .augment_us = CASES[i].augment,
                   .workers = CASES[i].workers,
                   .readers = CASES[i].readers,
                   .slots = CASES[i].slots,
                   .cores = CASES[i].cores,
                   .ahead = CASES[i].ahead};
        dt_pipeline_facts f = FACTS;
        f.cores = m.cores;
        double best = grid_best(m), got = tuned_rate(&m, &f, 60);
        if (got < 0.95 * best) fail_msg("case %zu: %.0f of %.0f samples/s", i, got, best);
    }
}

// Other load that lasts for a window or two now and then does not make a useless setting look good.
TEST(passing_load_is_no_gain) {
    for (uint32_t seed = 1; seed <= 20; seed++) {
        model m = PHOTOS;
        m.readers = 64, m.ahead = true, m.wait_us = 1000; // the best there is already
        dt_batch_source s = {.self = &m, .stats = model_stats, .tune = model_tune};
        dt_tuner t;
        uint32_t x = seed;
        m.now.at_s = dt_clock_s() - 1e6;
        run_model(&m, 0);
        dt_tuner_init(&t, &s, &FACTS);
        for (int i = 0; i < 100; i++) {
            model slow = m;
            x = x * 1664525u + 1013904223u;
            slow.decode_us *= x >> 30 == 0 ? 1.5 : 1; // a quarter of the windows
            run_model(&slow, t.settled ? 0.5 : 0.1);
            m.now = slow.now;
            dt_tuner_tick(&t);
        }
        assert_true(t.n_changes <= 2);
    }
}

TEST(what_the_config_fixes_stays) {
    model m = PHOTOS;
    m.workers = 1;
    m.slots = 2;
    dt_pipeline_facts f = FACTS;
    f.fix_workers = f.fix_slots = true;
    tuned_rate(&m, &f, 20);
    assert_int_equal(m.workers, 1);
    assert_int_equal(m.slots, 2);
}

TEST(nothing_is_changed_while_nobody_waits) {
    model m = PHOTOS;
    m.workers = 2;
    m.consumer = 300;
    tuned_rate(&m, &FACTS, 20);
    assert_int_equal(m.workers, 2);
}

TEST_MAIN(NULL, NULL)
