// bench_loader.c: the input pipeline alone: opens the config's data set and takes batches as fast as
// they come.
//
//   bench_loader CONFIG [key=value …]
//
// Prints one JSON line: seconds to open the data set and to the first batch, samples/s over the epochs
// after the first and of the first, CPU time a sample (which other load does not change), and where the workers' time went. data.workers=1 against 2 gives the scaling.
#include "base/os.h"
#include "base/thread.h"
#include "data/data.h"

#include "bench_short.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

enum { MAX_N_MICRO = 65536 };
static const double SECONDS = 3;

static double cpu_s(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static dt_status drain(dt_dataset *d, const dt_source_request *r, double open_s) {
    dt_batch_source *s;
    double begin = dt_clock_s(), first_s = 0, timed_from = 0, cpu = cpu_s(), epoch[2] = {0, 0};
    DT_TRY(d->open(d, r, &s));
    int64_t n_samples = 0;
    dt_status st = DT_OK;
    for (int64_t step = 0; st == DT_OK; step++) {
        double now = dt_clock_s();
        if (step >= s->steps_per_epoch && timed_from == 0) { // the first epoch, with its start
            epoch[0] = (double)n_samples / (now - begin);
            epoch[1] = (cpu_s() - cpu) / (double)n_samples;
            timed_from = now, cpu = cpu_s(), n_samples = 0;
        }
        if (timed_from > 0 && now - timed_from > bench_most(SECONDS, 0.1)) break;
        for (int i = 0; i < r->n_micro && st == DT_OK; i++) {
            const dt_batch *b;
            st = s->get(s, step, i, &b, NULL);
            if (st != DT_OK) break;
            if (first_s == 0) first_s = dt_clock_s() - begin;
            n_samples += b->n;
            s->release(s, b);
        }
    }
    double elapsed = dt_clock_s() - timed_from;
    cpu = cpu_s() - cpu;
    dt_source_stats stats;
    s->stats(s, &stats);
    s->close(s);
    double busy = 0;
    for (int i = 0; i < DT_N_STAGES; i++) busy += stats.stage[i].busy_s;
    DT_TRY(st);
    printf("{\"open_s\": %.6f, \"first_batch_s\": %.6f, \"workers\": %d, \"samples_per_s\": %.0f, "
           "\"cpu_us_per_sample\": %.1f, \"first_epoch_per_s\": %.0f, \"first_epoch_cpu_us\": %.1f, "
           "\"read_share\": %.3f, \"decode_share\": %.3f, \"augment_share\": %.3f, \"ring_bytes\": "
           "%zu, "
           "\"rss_bytes\": %llu}\n",
           open_s, first_s, stats.n_workers, (double)n_samples / elapsed, cpu / (double)n_samples * 1e6, epoch[0],
           epoch[1] * 1e6, stats.stage[DT_STAGE_READ].busy_s / busy, stats.stage[DT_STAGE_DECODE].busy_s / busy,
           stats.stage[DT_STAGE_AUGMENT].busy_s / busy, stats.ring_bytes, (unsigned long long)dt_rss_bytes());
    return DT_OK;
}

static dt_status bench(const char *path, const char *const *overrides, size_t n) {
    dt_config *c;
    dt_dataset *d;
    DT_TRY(dt_config_load(&c, path, overrides, n));
    double begin = dt_clock_s();
    DT_TRY(dt_data_open(&d, c, NULL, dt_usable_cores(), NULL));
    double open_s = dt_clock_s() - begin;
    fprintf(stderr, "%s\n", d->describe(d));
    dt_source_request r = {.split = DT_SPLIT_TRAIN,
                           .augment = true,
                           .global_batch = (int)c->train.global_batch,
                           .micro_batch = (int)dt_answer(c->train.micro_batch),
                           .end_step = -1};
    static int micros[MAX_N_MICRO];
    r.n_micro = r.global_batch / r.micro_batch;
    for (int i = 0; i < r.n_micro && i < MAX_N_MICRO; i++) micros[i] = i;
    r.micros = micros;
    DT_TRY(drain(d, &r, open_s));
    d->close(d);
    dt_config_destroy(c);
    return DT_OK;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: bench_loader CONFIG [key=value ...]\n");
        return 2;
    }
    dt_status st = bench(argv[1], (const char *const *)argv + 2, (size_t)argc - 2);
    if (st != DT_OK) fprintf(stderr, "%s\n", dt_error_message());
    return (int)st;
}
