// fetch.c: where a worker gets a member's bytes from.
//
// What readers fetched ahead is taken as it is; otherwise the worker reads, and notes how long that
// took: reads that block are what turns reading ahead on. Either way the hash is checked here, on the
// thread that decodes next, so that the bytes come into its cache once.
#include "ahead.h"

#include "base/clock.h"

static dt_status read_now(const dt_data *d, dt_sample_scratch *w, uint32_t record, uint32_t member,
                          double begin, dt_span *out) {
    const dt_member *m = &d->set->catalog->members[member];
    if (w->n_reads == 0) w->n_waits = dt_thread_waits();
    __atomic_store_n(&w->since_ns, (uint64_t)(begin * 1e9), __ATOMIC_RELAXED);
    dt_status st = dt_set_read(d->set, record, member, d->verify, &w->bytes, out);
    __atomic_store_n(&w->since_ns, 0, __ATOMIC_RELAXED);
    w->n_reads++;
    w->n_slow += dt_ahead_is_slow(dt_clock_s() - begin, (size_t)m->size, &w->n_waits);
    return st;
}

dt_status dt_fetch(const dt_data *d, dt_sample_scratch *w, int field, uint32_t record,
                   uint32_t member, dt_span *out) {
    double begin = dt_clock_s();
    dt_status st;
    if (w->given && w->given[field].data) {
        *out = w->given[field];
        st = dt_set_check(d->set, record, member, d->verify, *out);
    } else {
        st = read_now(d, w, record, member, begin, out);
    }
    if (st != DT_OK) return st;
    dt_counter_add(&w->read_ns, (uint64_t)((dt_clock_s() - begin) * 1e9));
    dt_counter_add(&w->n_read, 1);
    dt_counter_add(&w->n_bytes, out->n_bytes);
    return DT_OK;
}
