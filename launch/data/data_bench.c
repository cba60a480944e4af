// data_bench.c: dtrain data bench CONFIG: the input pipeline without training: what each stage can do, how
// full the queues are, what is slow, and which setting would mend it.
//
// First one thread, stage by stage; then the whole pipeline with its threads, batches taken as fast as
// they come, or as slowly as --consume says. The verdict comes from the loader's counters over the second
// half of that, as the trainer's does (runtime/train/bottleneck.h).

#include "launch/launch.h"

#include "base/core.h"
#include "base/json.h"
#include "base/os.h"
#include "base/text.h"
#include "base/thread.h"
#include "data/data.h"
#include "data/loader/data_parts.h"
#include "train/bottleneck.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { SECONDS, CONSUME, TUNE, JSON };
static const dt_cli_option options[] = {
    [SECONDS] = {"--seconds", "N", "duration of the measurement (default 5)"},
    [CONSUME] = {"--consume", "N", "limit the rate to N samples/s, as a training step would"},
    [TUNE] = {"--tune", NULL, "tune the numbers of threads and batches first and print them"},
    [JSON] = {"--json", NULL, "print the result as one JSON object"},
    {NULL}};

enum { MAX_POINTS = 64 };
typedef struct bench {
    dt_dataset *data;
    dt_batch_source *source;
    int global_batch, micro_batch, n_micro, seconds, consume;
    bool tune;
    dt_pipeline_facts facts;
    dt_stage_times times;
    dt_source_stats before, after;
    dt_bottleneck verdict;
    dt_tuner tuner;
    double depth[MAX_POINTS], encoded[MAX_POINTS]; // share of the queue that was full, over time
    int n_points;
    double copy_s; // of a sample's bytes within memory
    // Of the batches that are judged: seconds from one to the next, and that get() waited for one.
    double interval_s, most_interval_s, wait_s, most_wait_s;
    int64_t n_batches;
} bench;

// ---- measuring -------------------------------------------------------------------------------------
static double data_bench_filled(const dt_queue_stats *a, const dt_queue_stats *b, double seconds) {
    return b->capacity > 0 && seconds > 0 ? (b->depth_s - a->depth_s) / seconds / b->capacity : 0;
}

static void note_point(bench *b, dt_source_stats *last) {
    dt_source_stats now;
    b->source->stats(b->source, &now);
    double seconds = now.at_s - last->at_s;
    if (b->n_points < MAX_POINTS) {
        b->depth[b->n_points] = data_bench_filled(&last->batches, &now.batches, seconds);
        b->encoded[b->n_points++] = data_bench_filled(&last->encoded, &now.encoded, seconds);
    }
    *last = now;
}

static void data_bench_sleep_s(double s) {
    struct timespec t = {(time_t)s, (long)((s - (double)(time_t)s) * 1e9)};
    if (s > 0) nanosleep(&t, NULL);
}

static void data_bench_count_batch(bench *b, double begin_s, double end_s, double *last_s) {
    const double wait_s = end_s - begin_s, interval_s = *last_s > 0 ? end_s - *last_s : 0;
    b->n_batches++;
    b->wait_s += wait_s;
    b->most_wait_s = fmax(b->most_wait_s, wait_s);
    b->interval_s += interval_s;
    b->most_interval_s = fmax(b->most_interval_s, interval_s);
    *last_s = end_s;
}

static double data_bench_mean(double sum, int64_t n) {
    return n > 0 ? sum / (double)n : 0;
}

// Takes batches for `seconds`; the first half is not judged.
static dt_status take_batches(bench *b) {
    double begin = dt_clock_s(), point_s = (double)b->seconds / MAX_POINTS, taken = 0, last_s = 0;
    bool half = false;
    dt_source_stats last;
    b->source->stats(b->source, &last);
    b->before = last;
    for (int64_t step = 0;; step++)
        for (int micro = 0; micro < b->n_micro; micro++) {
            const dt_batch *batch;
            double now = dt_clock_s();
            if (now - begin > b->seconds) return DT_OK;
            if (!half && now - begin > b->seconds / 2.0) {
                half = true;
                b->source->stats(b->source, &b->before);
            }
            if (now - last.at_s > point_s) note_point(b, &last);
            if (b->tune) dt_tuner_tick(&b->tuner);
            const double begin_s = dt_clock_s();
            DT_TRY(b->source->get(b->source, step, micro, &batch, NULL));
            if (half) data_bench_count_batch(b, begin_s, dt_clock_s(), &last_s);
            b->source->release(b->source, batch);
            taken += b->micro_batch;
            if (b->consume > 0) data_bench_sleep_s(begin + taken / b->consume - dt_clock_s());
        }
}

static dt_status data_bench_measure(bench *b) {
    int *micros = dt_xcalloc((size_t)b->n_micro, sizeof *micros);
    for (int i = 0; i < b->n_micro; i++) micros[i] = i;
    dt_source_request r = {.split = DT_SPLIT_TRAIN,
                           .augment = true,
                           .global_batch = b->global_batch,
                           .micro_batch = b->micro_batch,
                           .micros = micros,
                           .n_micro = b->n_micro,
                           .end_step = -1};
    b->data->facts(b->data, &b->facts);
    b->facts.copy_byte_s = dt_memory_time_copy();
    dt_status st = dt_data_time_stages(b->data, b->seconds < 4 ? b->seconds / 4.0 : 1, &b->times);
    if (st == DT_OK) st = b->data->open(b->data, &r, &b->source);
    free(micros);
    DT_TRY(st);
    b->copy_s = b->facts.copy_byte_s * b->times.sample_bytes;
    dt_tuner_init(&b->tuner, b->source, &b->facts);
    DT_TRY(take_batches(b));
    b->source->stats(b->source, &b->after);
    dt_bottleneck_find(&b->verdict, &b->before, &b->after, &b->facts);
    return DT_OK;
}

// ---- saying it ---------------------------------------------------------------------------------------
static double each(double seconds) {
    return seconds > 0 ? 1 / seconds : 0;
}

// Decimals of a rate: images of many megapixels come slower than one a second.
static int decimals(double rate) {
    return rate < 10 ? 2 : 0;
}

static void print_stage(const bench *b, const char *name, dt_stage k, double alone_s) {
    const dt_stage_stats *x = &b->before.stage[k], *y = &b->after.stage[k];
    double seconds = b->after.at_s - b->before.at_s, threads = y->threads > 0 ? y->threads : 1;
    printf("%-9s %10.*f %10.1f %9d %8.0f %%\n", name, decimals(each(alone_s)), each(alone_s), alone_s * 1e6, y->threads,
           100 * (y->busy_s - x->busy_s) / (seconds * threads));
}

static void data_bench_print_line(const char *name, const double *x, int n, const dt_queue_stats *q) {
    static const char *const BARS[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    double sum = 0, most = 0;
    printf("%-9s |", name);
    for (int i = 0; i < n; i++) {
        most = fmax(most, x[i]);
        int level = (int)(x[i] * 8 + 0.5);
        printf("%s", BARS[level < 0 ? 0 : level > 8 ? 8 : level]);
        sum += x[i];
    }
    printf("| mean %.0f %%, max %.0f %% of %d\n", n ? 100 * sum / n : 0, 100 * most, q->capacity);
}

static void data_bench_print_text(const bench *b) {
    const dt_bottleneck *v = &b->verdict;
    const dt_stage_times *t = &b->times;
    dt_text_printf(stdout, "%s\n\n", b->data->describe(b->data));
    printf("stage     one thread:       µs a   whole:\n");
    printf("           samples/s     sample   threads      busy\n");
    print_stage(b, "read", DT_STAGE_READ, t->read_s);
    print_stage(b, "decode", DT_STAGE_DECODE, t->decode_s - t->read_s);
    print_stage(b, "augment", DT_STAGE_AUGMENT, t->augment_s - t->decode_s);
    const double alone = each(t->augment_s);
    printf("%-9s %10.*f %10.1f\n", "together", decimals(alone), alone, t->augment_s * 1e6);
    printf("%-9s %10.0f %10.1f   (a sample of %.0f KB within memory)\n\n", "copy", each(b->copy_s), b->copy_s * 1e6,
           t->sample_bytes / 1e3);
    printf("queues over %d s\n", b->seconds);
    data_bench_print_line("batches", b->depth, b->n_points, &b->after.batches);
    if (b->after.reading_ahead) data_bench_print_line("encoded", b->encoded, b->n_points, &b->after.encoded);
    printf("\nbatch     %d samples every %.2f ms, max %.2f ms; waited for %.2f ms, max %.2f ms\n", b->micro_batch,
           1e3 * data_bench_mean(b->interval_s, b->n_batches - 1), 1e3 * b->most_interval_s,
           1e3 * data_bench_mean(b->wait_s, b->n_batches), 1e3 * b->most_wait_s);
    printf("pipeline  %.*f %s/s, %.1f MB/s read; %d workers, %d readers%s, %d batches in "
           "the ring; "
           "cache %s\n",
           decimals(v->rate), v->rate, b->facts.members == DT_MEMBERS_AUDIO ? "segments" : "samples",
           v->rate * t->bytes / 1e6, b->after.n_workers, b->after.n_readers,
           b->after.reading_ahead ? "" : " (unused: reads do not wait for the disk)", b->after.ring_slots,
           DT_WORD_OF(DT_CACHE_WORDS, b->after.cache.kind));
    printf("limit     one thread x %d cores %.*f samples/s\n", b->facts.cores, decimals(alone), b->facts.cores * alone);
    dt_text_printf(stdout, "verdict   %s: %s\n", v->bound, v->what);
    if (*v->advice) printf("advice    %s\n", v->advice);
    if (*v->change)
        printf("change    %s   (predicted %.*f samples/s, %.2f x)\n", v->change, decimals(v->predicted), v->predicted,
               v->predicted / v->rate);
    if (b->tune)
        printf("tuned     %d changes kept: data.workers=%d data.readers=%d data.prefetch=%d\n", b->tuner.n_changes,
               b->after.n_workers, b->after.n_readers, b->after.ring_slots);
}

static void data_bench_print_json(const bench *b) {
    static const char *const limits[] = {"none", "training", "read", "files", "workers", "decode", "augment"};
    const dt_bottleneck *v = &b->verdict;
    dt_json j;
    dt_json_init(&j);
    dt_json_begin_object(&j, NULL);
    dt_json_real(&j, "samples_per_s", v->rate);
    dt_json_real(&j, "capacity", v->capacity);
    dt_json_real(&j, "read_us", b->times.read_s * 1e6);
    dt_json_real(&j, "decode_us", (b->times.decode_s - b->times.read_s) * 1e6);
    dt_json_real(&j, "augment_us", (b->times.augment_s - b->times.decode_s) * 1e6);
    dt_json_real(&j, "copy_us", b->copy_s * 1e6);
    dt_json_real(&j, "bytes", b->times.bytes);
    dt_json_real(&j, "batch_ms", 1e3 * data_bench_mean(b->interval_s, b->n_batches - 1));
    dt_json_real(&j, "batch_max_ms", 1e3 * b->most_interval_s);
    dt_json_real(&j, "wait_ms", 1e3 * data_bench_mean(b->wait_s, b->n_batches));
    dt_json_real(&j, "wait_max_ms", 1e3 * b->most_wait_s);
    double sum = 0, most = 0;
    for (int i = 0; i < b->n_points; i++) sum += b->depth[i], most = fmax(most, b->depth[i]);
    dt_json_real(&j, "queue", data_bench_mean(sum, b->n_points));
    dt_json_real(&j, "queue_max", most);
    dt_json_int(&j, "workers", b->after.n_workers);
    dt_json_int(&j, "readers", b->after.reading_ahead ? b->after.n_readers : 0);
    dt_json_int(&j, "slots", b->after.ring_slots);
    dt_json_string(&j, "bound", v->bound);
    dt_json_string(&j, "limit", limits[v->limit]);
    dt_json_string(&j, "what", v->what);
    dt_json_string(&j, "advice", v->advice);
    dt_json_string(&j, "change", v->change);
    dt_json_real(&j, "predicted", v->predicted);
    dt_json_end_object(&j);
    puts(j.data);
    dt_json_fini(&j);
}

static dt_status data_bench_run(const dt_cli_words *w) {
    dt_config *c = NULL;
    bench b = {.tune = w->options[TUNE] != NULL};
    DT_TRY(dt_cli_option_int(w, SECONDS, 5, &b.seconds));
    DT_TRY(dt_cli_option_int(w, CONSUME, 0, &b.consume));
    DT_TRY(dt_cli_load_config(&c, "data bench", w));
    b.global_batch = (int)c->train.global_batch;
    b.micro_batch = dt_cli_micro_batch(c);
    b.n_micro = b.global_batch / b.micro_batch;
    dt_status st = dt_data_open(&b.data, c, NULL, dt_usable_cores(), NULL);
    if (st == DT_OK && b.global_batch % b.micro_batch != 0)
        st = dt_config_fail(c, "train.global_batch", "is not a multiple of train.micro_batch (%d)", b.micro_batch);
    if (st == DT_OK) st = data_bench_measure(&b);
    if (st == DT_OK && w->options[JSON])
        data_bench_print_json(&b);
    else if (st == DT_OK)
        data_bench_print_text(&b);
    if (b.source) b.source->close(b.source);
    if (b.data) b.data->close(b.data);
    dt_config_destroy(c);
    return st;
}

const dt_cli_command dt_cli_data_bench = {
    .options = options,
    .text = "Runs the input pipeline of a config without training. Prints the rate of one thread in each stage, how "
            "full the queues are, whether storage or cores are the bottleneck, and the one change that would help most "
            "with its expected rate.\n\n"
            "  dtrain data bench configs/photos.yaml\n"
            "  dtrain data bench configs/photos.yaml data.workers=1\n"
            "  dtrain data bench configs/photos.yaml --consume 500     as if training took 500 samples/s\n"
            "  dtrain data bench configs/photos.yaml --tune --seconds 20\n",
    .run = data_bench_run};
