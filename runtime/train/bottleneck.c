// bottleneck.c: turns two readings of counters into shares of the workers' time, and these into a sentence.

#include "train/bottleneck.h"

#include "base/os.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double BLOCKED = 0.1; // share of the workers' time: above it, training is the limit

typedef struct shares {
    double seconds, n;                          // between the readings; samples
    double threads;                             // workers
    double blocked, starved, busy[DT_N_STAGES]; // of the workers' time
    double waited;                              // seconds that get() waited
} shares;

static double bottleneck_part(double x, double of) {
    return of > 0 ? x / of : 0;
}

static shares bottleneck_measure(const dt_source_stats *a, const dt_source_stats *b) {
    // counters grow monotonically: differences belong to the time between the readings
    shares s = {.seconds = b->at_s - a->at_s, .n = (double)(b->n_samples - a->n_samples)};
    s.threads = b->n_workers > 0 ? b->n_workers : 1;
    s.waited = b->wait_s - a->wait_s;
    double all = s.seconds * s.threads; // seconds of all workers together
    s.blocked = bottleneck_part(b->blocked_s - a->blocked_s, all);
    s.starved = bottleneck_part(b->starved_s - a->starved_s, all);
    for (int k = 0; k < DT_N_STAGES; k++) s.busy[k] = bottleneck_part(b->stage[k].busy_s - a->stage[k].busy_s, all);
    // the time of readers is not the workers': what exceeds all of their time is taken off
    double used = s.blocked + s.starved;
    for (int k = 0; k < DT_N_STAGES; k++) used += s.busy[k];
    if (b->reading_ahead && used > 1) s.busy[DT_STAGE_READ] = fmax(s.busy[DT_STAGE_READ] - (used - 1), 0);
    return s;
}

// Whether reads take longer than from the page cache, even on a busy core: then the storage is slow.
static bool reads_block(const dt_source_stats *a, const dt_source_stats *b) {
    const dt_stage_stats *x = &a->stage[DT_STAGE_READ], *y = &b->stage[DT_STAGE_READ];
    double items = (double)(y->items - x->items), bytes = (double)(y->bytes - x->bytes);
    // 200 µs per read and 2 ns per byte (0.5 GB/s): slower than any page cache
    return y->busy_s - x->busy_s > 200e-6 * items + 2e-9 * bytes;
}

static dt_stage costliest(const shares *s, dt_stage first) {
    dt_stage most = first;
    for (int k = first; k < DT_N_STAGES; k++)
        if (s->busy[k] > s->busy[most]) most = (dt_stage)k; // the first of equal ones
    return most;
}

static const char *stage_name(dt_stage k) {
    static const char *const NAMES[DT_N_STAGES] = {"reading", "decoding", "augmentation"};
    return NAMES[k];
}

static void limited_by_reads(dt_bottleneck *b, const shares *s, const dt_source_stats *after,
                             const dt_pipeline_facts *f) {
    // samples/s if workers only had to decode and augment
    const double busy = s->busy[DT_STAGE_DECODE] + s->busy[DT_STAGE_AUGMENT];
    const double cpu = busy > 0.01 ? b->rate / busy : 100 * b->rate;
    b->limit = DT_LIMIT_READ;
    b->bound = "I/O bound";
    snprintf(b->what, sizeof b->what, "storage: workers wait %.0f %% of their time for bytes; reads block",
             100 * (s->starved + s->busy[DT_STAGE_READ]));
    // a cache that is full keeps evicting what the next epoch reads
    if (after->cache.kind == DT_CACHE_disk && after->cache.full && f->set_bytes > 0) {
        b->predicted = cpu;
        snprintf(b->advice, sizeof b->advice,
                 "the set (%.1f GB) is larger than its cache: with room for all of it nothing is "
                 "fetched after the first epoch",
                 (double)f->set_bytes / 1e9);
        // 10 % room
        snprintf(b->change, sizeof b->change, "data.cache_size=%.0fMiB", ceil(1.1 * (double)f->set_bytes / 1048576.0));
        return;
    }
    // at most half of the free memory
    bool fits = f->set_bytes > 0 && f->set_bytes < f->free_bytes / 2 && after->cache.kind == DT_CACHE_none;
    if (fits) {
        b->predicted = cpu;
        snprintf(b->advice, sizeof b->advice, "the set (%.1f GB) fits in memory: after the first epoch nothing is read",
                 (double)f->set_bytes / 1e9);
        snprintf(b->change, sizeof b->change, "data.cache=ram");
        return;
    }
    // without readers the workers read by themselves
    int now = after->n_readers > 0 ? after->n_readers : after->n_workers, more = now * 2;
    if (more > after->max_readers && after->max_readers > 0) more = after->max_readers;
    if (more > now) {
        b->predicted = fmin(2 * b->rate, cpu); // as many reads again at most
        snprintf(b->advice, sizeof b->advice, "more reads in flight, if the storage can take them");
        snprintf(b->change, sizeof b->change, "data.readers=%d", more);
        return;
    }
    static const char *const SMALLER[] = {[DT_MEMBERS_IMAGES] = " (dtrain pack --resize)",
                                          [DT_MEMBERS_AUDIO] = " (dtrain pack --rate)",
                                          [DT_MEMBERS_ARRAYS] = ""};
    if (after->cache.kind == DT_CACHE_disk)
        snprintf(b->advice, sizeof b->advice, "a faster network; later epochs read this host's cache");
    else
        snprintf(b->advice, sizeof b->advice, "a faster disk or network, smaller files%s, or data.cache=disk",
                 SMALLER[f->members]);
}

// Whether memory can keep the pixels of all pictures. Then workers only copy and augment them, besides the time that
// no stage explains (taking samples, delivering batches, waiting for a core).
static bool advise_decoded(dt_bottleneck *b, const shares *s, const dt_source_stats *after,
                           const dt_pipeline_facts *f) {
    int n = f->n_processes > 1 ? f->n_processes : 1;
    if (f->decoded_bytes == 0 || f->decoded_bytes >= f->free_bytes / 2 || after->cache.kind == DT_CACHE_disk)
        return false;
    // per sample: one copy of its decoded pixels
    double copy_s = f->copy_byte_s * (double)f->decoded_sample_bytes, rest = 1 - s->starved;
    for (int k = 0; k < DT_N_STAGES; k++) rest -= s->busy[k]; // what is neither a stage nor waiting stays
    if (rest < 0) rest = 0;
    b->predicted = b->rate / (s->busy[DT_STAGE_AUGMENT] + rest + b->rate * copy_s / after->n_workers);
    snprintf(b->advice, sizeof b->advice,
             "the decoded set (%.2f GB) fits in memory: after the first epoch nothing is decoded",
             (double)f->decoded_bytes / 1e9);
    snprintf(b->change, sizeof b->change, "data.cache=%s data.cache_form=decoded", n > 1 ? "shared" : "ram");
    return true;
}

static void limited_by_cpu(dt_bottleneck *b, const shares *s, const dt_source_stats *after,
                           const dt_pipeline_facts *f) {
    // by stage
    static const dt_limit LIMITS[DT_N_STAGES] = {DT_LIMIT_FILES, DT_LIMIT_DECODE, DT_LIMIT_AUGMENT};
    dt_stage most = costliest(s, DT_STAGE_READ);
    b->bound = "CPU bound";
    // free cores first: the change costs nothing
    if (f->cores > after->n_workers && after->n_workers < after->max_workers) {
        int n = f->cores < after->max_workers ? f->cores : after->max_workers;
        b->limit = DT_LIMIT_WORKERS;
        b->predicted = b->rate * n / after->n_workers;
        snprintf(b->what, sizeof b->what, "%d loader thread%s for %d cores: %s takes most of their time",
                 after->n_workers, after->n_workers == 1 ? "" : "s", f->cores, stage_name(most));
        snprintf(b->advice, sizeof b->advice, "a thread a core");
        snprintf(b->change, sizeof b->change, "data.workers=%d", n);
        return;
    }
    b->limit = LIMITS[most];
    snprintf(b->what, sizeof b->what, "%s takes %.0f %% of the time of %d threads on %d cores", stage_name(most),
             100 * s->busy[most], after->n_workers, f->cores);
    // the stage's share taken out; 0.05: never a rate beyond 20 times today's
    double without = b->rate / fmax(1 - s->busy[most], 0.05);
    if (most == DT_STAGE_READ && f->is_folder) {
        b->predicted = without;
        snprintf(b->advice, sizeof b->advice, "a file is opened for each record (%.0f KB): pack them into shards",
                 (double)f->member_bytes / 1e3);
        snprintf(b->change, sizeof b->change, "dtrain pack FOLDER 'set-{000000..000015}.tar'");
    } else if (most == DT_STAGE_READ) {
        b->predicted = without;
        snprintf(b->advice, sizeof b->advice,
                 "reading and checking hashes is most of the work: larger batches of it per core, or "
                 "no check");
        snprintf(b->change, sizeof b->change, "data.verify=false");
    } else if (most == DT_STAGE_DECODE) {
        if (advise_decoded(b, s, after, f)) return;
        static const char *const STORE[] = {
            [DT_MEMBERS_IMAGES] =
                "store smaller images (dtrain pack --resize 256 --encode jpeg:90 halves decoding), or add cores",
            [DT_MEMBERS_AUDIO] = ("store audio at the field's rate and in parts of its length (dtrain pack --rate HZ "
                                  "--segment S), or add cores"),
            [DT_MEMBERS_ARRAYS] =
                "store arrays of the field's size and bands, uncompressed and not as text, or add cores"};
        // the advice halves decoding
        b->predicted = b->rate / (1 - 0.5 * s->busy[most]);
        snprintf(b->advice, sizeof b->advice, "%s", STORE[f->members]);
    } else {
        b->predicted = without;
        snprintf(b->advice, sizeof b->advice, "%s is the costliest part: leave out its dearest operation, or add cores",
                 stage_name(most));
    }
}

void dt_bottleneck_find(dt_bottleneck *out, const dt_source_stats *before, const dt_source_stats *after,
                        const dt_pipeline_facts *facts) {
    shares s = bottleneck_measure(before, after);
    *out = (dt_bottleneck){.limit = DT_LIMIT_NONE, .bound = "idle"};
    if (s.seconds <= 0 || s.n <= 0) {
        snprintf(out->what, sizeof out->what, "no batch was taken");
        return;
    }
    out->rate = s.n / s.seconds;
    double working = 1 - s.blocked;
    out->capacity = out->rate / fmin(fmax(working, 0.02), 1); // at most 50 times the measured rate
    // get() hardly waits while workers do: training is the slower side
    if (s.blocked > BLOCKED && s.waited < 0.05 * s.seconds) {
        out->limit = DT_LIMIT_TRAINING;
        out->bound = "compute bound";
        snprintf(out->what, sizeof out->what,
                 "training takes %.0f samples/s; the pipeline could give %.0f and waits %.0f %% of "
                 "the time",
                 out->rate, out->capacity, 100 * s.blocked);
        return;
    }
    // from here on: shares of the time in which workers were not blocked
    // training's back pressure hides no share of what the workers do
    for (int k = 0; k < DT_N_STAGES; k++) s.busy[k] = bottleneck_part(s.busy[k], working);
    s.starved = bottleneck_part(s.starved, working);
    double cpu = s.busy[DT_STAGE_DECODE] + s.busy[DT_STAGE_AUGMENT];
    double reading = s.starved + s.busy[DT_STAGE_READ];
    if (reads_block(before, after) && reading > 0.5 * cpu)
        limited_by_reads(out, &s, after, facts);
    else
        limited_by_cpu(out, &s, after, facts);
}

// ---- tuning ----------------------------------------------------------------------------------------
enum { WORKERS, READERS, SLOTS, N_KNOBS, NO_KNOB = -1 };         // in the order of n_misses
static const double WINDOW_S = 0.5, SETTLE_S = 0.1, GAIN = 1.03; // GAIN: below 3 % noise decides

void dt_tuner_init(dt_tuner *t, dt_batch_source *s, const dt_pipeline_facts *facts) {
    *t = (dt_tuner){.source = s, .facts = *facts, .knob = NO_KNOB};
    s->stats(s, &t->at);
}

// The knob that the bottleneck names if it can be turned further, else the next one that can.
static int bottleneck_choose(const dt_tuner *t, const dt_source_stats *now, const dt_bottleneck *b) {
    bool may[N_KNOBS] = {!t->facts.fix_workers && now->n_workers < now->max_workers && now->n_workers < t->facts.cores,
                         !t->facts.fix_readers && now->reading_ahead && now->n_readers < now->max_readers,
                         !t->facts.fix_slots && now->ring_slots < now->max_slots};
    // readers help where bytes are waited for, workers elsewhere
    int first = b->limit == DT_LIMIT_READ ? READERS : WORKERS;
    for (int i = 0; i < N_KNOBS; i++) {
        int k = (first + i) % N_KNOBS;
        // two trials in a row without effect: left alone until another knob helps
        if (may[k] && t->n_misses[k] < 2) return k;
    }
    return NO_KNOB;
}

static void bottleneck_turn(dt_tuner *t, const dt_source_tuning *to) {
    t->source->tune(t->source, to);
    t->settled = false; // workers need a moment to start or to end
}

// Decides, once the setting on trial is measured, or the old setting for the second time.
static void bottleneck_decide(dt_tuner *t, double rate) {
    bool again = t->tried_rate > 0; // again: the old setting is measured for the second time
    bool faster = again ? t->tried_rate >= GAIN * rate : rate >= GAIN * t->old_rate;
    // a trial always returns to the old setting first, which is measured again
    if (!again) bottleneck_turn(t, &t->old);
    if (!again && faster) {
        t->tried_rate = rate;
        return;
    }
    t->n_misses[t->knob]++;
    t->n_changes += faster; // faster: kept
    if (faster) {
        bottleneck_turn(t, &t->tried);
        memset(t->n_misses, 0, sizeof t->n_misses); // what did not help before may help now
    }
    t->knob = NO_KNOB;
}

static void try_knob(dt_tuner *t, const dt_source_stats *now, int knob, double rate) {
    t->old = t->tried = (dt_source_tuning){now->n_workers, now->n_readers, now->ring_slots};
    t->old_rate = rate;
    t->tried_rate = 0;
    t->knob = knob;
    if (knob == WORKERS) { // twice as many, then one more
        t->tried.workers += t->n_misses[knob] ? 1 : now->n_workers;
        if (t->tried.workers > t->facts.cores) t->tried.workers = t->facts.cores;
    }
    // doubled: readers only wait for bytes
    if (knob == READERS) t->tried.readers = now->n_readers * 2;
    if (knob == SLOTS) t->tried.slots = now->ring_slots * 2;
    bottleneck_turn(t, &t->tried);
}

void dt_tuner_tick(dt_tuner *t) {
    double passed = dt_clock_s() - t->at.at_s;
    // SETTLE_S after a change, WINDOW_S for a measurement
    if (passed < (t->settled ? WINDOW_S : SETTLE_S)) return;
    dt_source_stats now;
    dt_bottleneck b;
    t->source->stats(t->source, &now);
    dt_bottleneck_find(&b, &t->at, &now, &t->facts);
    double waited = now.wait_s - t->at.wait_s, seconds = now.at_s - t->at.at_s;
    t->at = now;
    if (!t->settled) {
        t->settled = true; // the reading after the change is where the measurement begins
        return;
    }
    if (b.limit == DT_LIMIT_NONE) return;
    if (t->knob != NO_KNOB) {
        bottleneck_decide(t, b.rate);
        if (!t->settled) return; // a trial goes on
    }
    if (waited < 0.02 * seconds) { // nobody waits: later trials begin anew
        memset(t->n_misses, 0, sizeof t->n_misses);
        return;
    }
    int knob = bottleneck_choose(t, &now, &b);
    if (knob != NO_KNOB) try_knob(t, &now, knob, b.rate);
}
