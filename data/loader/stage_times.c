// stage_times.c: one thread, no ring, no queues: what a sample costs by itself.
//
// Three passes over the same samples in training order, each with one stage more, so that their differences
// are the stages. A pass before them, which is not counted, brings the bytes into the page cache.
#include "stage_times.h"
#include "data_parts.h"

#include "base/arena.h"
#include "base/clock.h"

#include <stdlib.h>

enum { MAX_SAMPLES = 4096, FEW = 16 };

typedef struct pass {
    const dt_data *d;
    dt_sample_scratch scratch;
    void *field[DT_MAX_FIELDS];
    int n; // samples of a pass
} pass;

static dt_status read_sample(pass *p, uint32_t sample) {
    const dt_data *d = p->d;
    for (int i = 0; i < d->fields.n; i++) {
        const dt_field *f = &d->fields.f[i];
        uint32_t record = d->view.record[(size_t)sample * (size_t)d->view.width + (size_t)f->part];
        if (f->column >= 0 || f->numbers) continue;
        dt_fetch want = {.field = i,
                         .record = record,
                         .member = (uint32_t)dt_field_member(f, d->set->catalog, record)};
        DT_TRY(dt_fetch_member(d, &p->scratch, &want));
    }
    return DT_OK;
}

typedef enum up_to { UP_TO_READ, UP_TO_DECODE, UP_TO_AUGMENT } up_to;

// Seconds a sample. n 0: as many as fit into `seconds`, and then that is how many.
static dt_status run_pass(pass *p, up_to what, double seconds, double *out) {
    double begin = dt_clock_s(), now = begin;
    uint64_t n_split = p->d->sampler.n;
    int done = 0, most = p->n ? p->n : MAX_SAMPLES;
    dt_status st = DT_OK;
    for (int i = 0; i < most; i++) {
        if (!p->n && i >= FEW && now - begin > seconds) break;
        uint64_t at =
            dt_sampler_index(&p->d->sampler, (uint64_t)i / n_split, (uint64_t)i % n_split);
        uint32_t sample = p->d->splits.sample[DT_SPLIT_TRAIN][at];
        dt_sample_place to = {
            .sample = sample, .augment = what == UP_TO_AUGMENT, .field = p->field};
        dt_bad_sample bad;
        dt_status one = what == UP_TO_READ ? read_sample(p, sample)
                                           : dt_sample_fill(p->d, &p->scratch, &to, &bad);
        if (one != DT_OK && one != DT_E_DATA) return one;
        if (one != DT_OK) st = one;
        done++;
        now = dt_clock_s();
    }
    if (!p->n) p->n = done;
    *out = (now - begin) / done;
    return p->scratch.n_read > 0 ? DT_OK : st; // nothing at all could be read
}

dt_status dt_data_time_stages(const dt_dataset *base, double seconds, dt_stage_times *out) {
    pass *p = dt_xcalloc(1, sizeof *p);
    *out = (dt_stage_times){0};
    p->d = base->self;
    dt_sample_scratch_init(&p->scratch);
    for (int i = 0; i < p->d->fields.n; i++) {
        p->field[i] = dt_xcalloc(1, p->d->fields.f[i].sample_bytes + 1);
        out->sample_bytes += (double)p->d->fields.f[i].sample_bytes;
    }
    double cold;
    dt_status st = run_pass(p, UP_TO_AUGMENT, seconds, &cold);
    uint64_t before = p->scratch.n_bytes;
    if (st == DT_OK) st = run_pass(p, UP_TO_READ, seconds, &out->read_s);
    out->bytes = p->n ? (double)(p->scratch.n_bytes - before) / p->n : 0;
    if (st == DT_OK) st = run_pass(p, UP_TO_DECODE, seconds, &out->decode_s);
    if (st == DT_OK) st = run_pass(p, UP_TO_AUGMENT, seconds, &out->augment_s);
    // a pass that took less than one that does less: the machine was busy during that one
    if (out->decode_s > out->augment_s) out->decode_s = out->augment_s;
    if (out->read_s > out->decode_s) out->read_s = out->decode_s;
    for (int i = 0; i < p->d->fields.n; i++) free(p->field[i]);
    dt_sample_scratch_fini(&p->scratch);
    free(p);
    return st;
}
