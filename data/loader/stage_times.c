// stage_times.c: one thread, no ring, no queues: what a sample costs by itself.
//
// The samples of the training split in order, again and again, timed by the counters that loader threads keep
// too (dt_sample_scratch). The first pass brings the bytes into the page cache and is not counted.
#include "stage_times.h"
#include "data_parts.h"

#include "base/arena.h"
#include "base/clock.h"

#include <stdlib.h>

enum { MAX_SAMPLES = 4096, FEW = 16 };

// Makes *n samples. *n 0: as many as fit into `seconds`, and says how many.
static dt_status run_pass(const dt_data *d, dt_sample_scratch *w, void *const *field, double seconds, int *n) {
    double begin = dt_clock_s();
    uint64_t n_split = d->sampler.n;
    int done = 0, most = *n ? *n : MAX_SAMPLES;
    dt_status st = DT_OK;
    for (; done < most; done++) {
        if (!*n && done >= FEW && dt_clock_s() - begin > seconds) break;
        uint64_t i = (uint64_t)done;
        uint64_t at = dt_sampler_index(&d->sampler, i / n_split, i % n_split);
        dt_sample_place to = {
            .sample = d->splits.sample[DT_SPLIT_TRAIN][at], .draw = (uint32_t)i, .augment = true, .field = field};
        dt_bad_sample bad;
        dt_status one = dt_sample_fill(d, w, &to, &bad);
        if (one != DT_OK && one != DT_E_DATA) return one;
        if (one != DT_OK) st = one;
    }
    *n = done;
    return dt_counter_get(&w->n_read) > 0 ? DT_OK : st; // nothing at all could be read
}

dt_status dt_data_time_stages(const dt_dataset *base, double seconds, dt_stage_times *out) {
    const dt_data *d = base->self;
    dt_sample_scratch w;
    void *field[DT_MAX_FIELDS];
    int n = 0;
    *out = (dt_stage_times){0};
    dt_sample_scratch_init(&w);
    for (int i = 0; i < d->fields.n; i++) {
        field[i] = dt_xcalloc(1, d->fields.f[i].sample_bytes + 1);
        out->sample_bytes += (double)d->fields.f[i].sample_bytes;
    }
    dt_status st = run_pass(d, &w, field, seconds, &n);
    uint64_t read = dt_counter_get(&w.read_ns), decode = dt_counter_get(&w.decode_ns);
    uint64_t augment = dt_counter_get(&w.augment_ns), bytes = dt_counter_get(&w.n_bytes);
    if (st == DT_OK) st = run_pass(d, &w, field, seconds, &n);
    if (n == 0) n = 1;
    out->read_s = 1e-9 * (double)(dt_counter_get(&w.read_ns) - read) / n;
    out->decode_s = out->read_s + 1e-9 * (double)(dt_counter_get(&w.decode_ns) - decode) / n;
    out->augment_s = out->decode_s + 1e-9 * (double)(dt_counter_get(&w.augment_ns) - augment) / n;
    out->bytes = (double)(dt_counter_get(&w.n_bytes) - bytes) / n;
    for (int i = 0; i < d->fields.n; i++) free(field[i]);
    dt_sample_scratch_fini(&w);
    return st;
}
