// readahead.c: reader threads, a byte ring, and the rule that turns them on and off.
//
// The order of samples is a function, so it is known what will be read. A reader takes the next place that
// no worker has reached, reserves room in the ring for its members, reads them, and marks the place READY.
// Places are given back in order, which frees the ring behind them. If the members of the following places
// lie right behind on the disk (data.shuffle: none, members of one record), one call reads them all, up to
// 1 MiB. The catalog has all sizes, so nothing is allocated but the ring.
//
// When. If bytes are in the page cache, handing them from thread to thread costs more than reading them:
// 335 against 315 us of CPU for 100 KB records of 300 us work, 54 against 23 us for 4 KB of 20 us. So
// readers sleep until workers find that reads block: 4 of their last 32 took longer than a copy from memory
// would, and gave up the core (time alone would also blame a busy machine). Readers sleep again when hardly
// any of their own reads block.
//
// How. Threads with pread. The alternatives, on a file system with 3 ms a read and at equal depth: io_uring
// reaches the same rate for the same CPU time (kernel threads do its reads of such files), and many
// containers forbid it. posix_fadvise(WILLNEED) costs 5 % less CPU time, but it is only a hint: it is cut
// to 128 KiB a call, and dropped in silence under memory pressure and by mounts without a page cache.
//
// Rejected: reading the blocks of a block shuffle whole into the page cache, a window ahead. A disk saw a
// quarter of the reads, but that was a second mechanism, and the ranks of a host had to share its work.
//
// One mutex guards places and ring; workers take it once a unit when nobody reads ahead. The loader's
// lock may be held when it is taken, never the other way round. It also publishes the bytes of the ring: READY, set in
// ahead_publish, to dt_ahead_wait; DONE, set in dt_ahead_release, that they may be written again.
#include "data_parts.h"

#include "base/core.h"
#include "base/trace.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    N_ITEMS = 1024, // places between the oldest that is held and the next; a power of two
    MAX_RUN = 32,   // places that one read may serve
    RUN_BYTES = 1 << 20,
    GAP_BYTES = 16384, // read through a gap up to this (tar headers) rather than seek
    ALIGN = 64,
    STACK_BYTES = 256 << 10,
    ON_AFTER = 4,     // slow reads …
    ON_WINDOW = 32,   // … among this many
    OFF_WINDOW = 128, // readers' own reads …
    OFF_SHARE = 16    // … of which less than 1/16 were slow
};

typedef enum item_state { UNUSED, READING, READY, FAILED, DONE } item_state;

typedef struct item {
    int64_t place;
    item_state state;
    uint64_t end;             // ring position behind the run, in its last item; else 0
    size_t at[DT_MAX_FIELDS]; // of each member, within the run's block
    dt_span member[DT_MAX_FIELDS];
} item;

// Bytes of a file that are read by one call.
typedef struct range {
    uint32_t shard, record; // record: for reports
    uint64_t offset;
    size_t n_bytes, at; // at: within the run's block
} range;

// Places that a reader has taken.
typedef struct run {
    range ranges[2 * DT_MAX_FIELDS]; // of a sample, and of another one that is tried behind it
    int n_ranges, n_items;
    int64_t place; // first
    size_t n_bytes;
    uint8_t *block; // in the ring
} run;

typedef struct reader {
    _Alignas(128) struct dt_ahead *ahead;
    pthread_t thread;
    int index;
    dt_counter busy_ns, n_reads;
    dt_counter since_ns; // of the read in progress, or 0
    _Atomic uint32_t record;
    run run;
} reader;

struct dt_ahead {
    dt_ahead_opts o;
    pthread_mutex_t lock;
    pthread_cond_t room, arrived, idle, wanted; // wanted: for readers above n_active
    item items[N_ITEMS];                        // by place % N_ITEMS
    int64_t oldest, next;                       // the first place that is not given back; the one a reader takes next
    uint8_t *ring;
    uint64_t head, tail; // positions that only grow
    _Atomic bool on;
    bool paused, stopping;
    int n_reading, n_waiting,
        n_asleep;        // readers in a read; workers that wait; readers without work
    uint32_t seen, slow; // of readers, since the last decision
    uint32_t worker_seen, worker_slow;
    reader *readers;
    _Atomic int n_active;
    int n_started;
    dt_depth ready;
};

// ---- what to read ----------------------------------------------------------------------------------
// Returns where the member lies in the run's block. It joins the last range if it lies right behind it.
static size_t ahead_add_range(run *r, uint32_t shard, uint32_t record, const dt_member *m) {
    range *last = r->n_ranges ? &r->ranges[r->n_ranges - 1] : NULL;
    uint64_t end = last ? last->offset + last->n_bytes : 0;
    if (last && last->shard == shard && m->offset >= end && m->offset - end <= GAP_BYTES) {
        last->n_bytes = (size_t)(m->offset + m->size - last->offset); // the gap is read, too
    } else {
        size_t at = (r->n_bytes + ALIGN - 1) / ALIGN * ALIGN;
        last = &r->ranges[r->n_ranges++];
        *last = (range){shard, record, m->offset, (size_t)m->size, at};
    }
    r->n_bytes = last->at + last->n_bytes;
    return last->at + (size_t)(m->offset - last->offset);
}

static bool ahead_add_item(dt_ahead *a, run *r, int64_t place) {
    const dt_data *d = a->o.d;
    const dt_catalog *c = d->reader->catalog;
    uint32_t sample;
    // its item still serves an older place
    if (place - a->oldest >= N_ITEMS || !a->o.sample_at(a->o.ctx, place, &sample)) return false;
    const uint32_t *records = d->view.record + (size_t)sample * (size_t)d->view.width;
    item *it = &a->items[place % N_ITEMS];
    *it = (item){.place = place};
    for (int i = 0; i < d->fields.n; i++) {
        uint32_t record = records[d->fields.f[i].part];
        int64_t member = dt_field_member(&d->fields.f[i], c, record);
        if (member < 0 || c->members[member].size == 0) continue; // the worker reports an empty one
        const dt_member *m = &c->members[member];
        if (dt_is_kept(d, i) && dt_cache_has(d->cache.cache, dt_data_cache_entry(d, i, record))) continue;
        if (m->size > a->o.cap_bytes / 4) continue; // the worker reads it
        it->at[i] = ahead_add_range(r, c->records[record].shard, record, m);
        it->member[i].n_bytes = (size_t)m->size;
    }
    r->n_items++;
    return true;
}

// Contiguous bytes of the ring, or NULL. *end: the position behind them.
static uint8_t *ahead_find_room(const dt_ahead *a, size_t n_bytes, uint64_t *end) {
    size_t cap = a->o.cap_bytes, at = (size_t)(a->head % cap);
    // bytes of a run are contiguous: the ring's end is left out
    uint64_t begin = at + n_bytes > cap ? a->head + (cap - at) : a->head;
    *end = begin + n_bytes;
    return *end - a->tail <= cap ? a->ring + begin % cap : NULL;
}

// The next place, and those that lie right behind it on the disk. False: there is none, or no room.
static bool choose_run(dt_ahead *a, run *r, uint64_t *end) {
    *r = (run){.place = a->next};
    while (r->n_items < MAX_RUN) {
        int n_ranges = r->n_ranges;
        size_t n_bytes = r->n_bytes;
        range last = r->ranges[n_ranges ? n_ranges - 1 : 0];
        if (!ahead_add_item(a, r, r->place + r->n_items)) break;
        // the first place may take several ranges, a further one only lengthens the last
        bool joins = r->n_items == 1 || (r->n_ranges == n_ranges && r->n_bytes <= RUN_BYTES);
        if (joins && ahead_find_room(a, r->n_bytes, end)) continue;
        r->n_items--; // the place that does not fit is the next run's first
        r->n_ranges = n_ranges;
        r->n_bytes = n_bytes;
        if (n_ranges) r->ranges[n_ranges - 1] = last;
        break;
    }
    r->block = ahead_find_room(a, r->n_bytes, end);
    return r->n_items > 0;
}

// Takes a run for the reader. Under the lock.
static bool ahead_take(dt_ahead *a, reader *w) {
    run *r = &w->run;
    uint64_t end;
    if (!choose_run(a, r, &end)) return false;
    for (int k = 0; k < r->n_items; k++) {
        item *it = &a->items[(r->place + k) % N_ITEMS];
        it->state = READING;
        it->end = k == r->n_items - 1 ? end : 0; // the last item that is given back frees the block
        for (int i = 0; i < DT_MAX_FIELDS; i++)
            if (it->member[i].n_bytes) it->member[i].data = r->block + it->at[i];
    }
    a->head = end;
    a->next += r->n_items;
    return true;
}

// ---- readers ---------------------------------------------------------------------------------------
static dt_status ahead_read_range(reader *w, const range *g, uint64_t *waits, bool *slow) {
    const dt_data *d = w->ahead->o.d;
    uint8_t *to = w->run.block + g->at;
    double begin = dt_clock_s();
    const int64_t traced = dt_trace_open("loader", "read");
    w->record = g->record;
    dt_counter_set(&w->since_ns, (uint64_t)(begin * 1e9));
    const dt_status st = dt_reader_read_range(d->reader, g->shard, g->offset, to, g->n_bytes);
    double s = dt_clock_s() - begin;
    dt_trace_close(traced);
    dt_counter_set(&w->since_ns, 0);
    dt_counter_add(&w->n_reads, 1);
    dt_counter_add(&w->busy_ns, (uint64_t)(s * 1e9));
    *slow = dt_read_is_slow(s, g->n_bytes, waits);
    return st;
}

static dt_status ahead_read_run(reader *w, uint32_t *n_slow) {
    dt_status st = DT_OK;
    uint64_t waits = dt_thread_waits();
    for (int i = 0; i < w->run.n_ranges && st == DT_OK; i++) {
        bool slow;
        st = ahead_read_range(w, &w->run.ranges[i], &waits, &slow);
        *n_slow += slow;
    }
    return st;
}

static void ahead_publish(dt_ahead *a, const run *r, dt_status st, uint32_t n_slow) {
    for (int k = 0; k < r->n_items; k++) a->items[(r->place + k) % N_ITEMS].state = st == DT_OK ? READY : FAILED;
    dt_depth_add(&a->ready, r->n_items);
    if (a->n_waiting > 0) pthread_cond_broadcast(&a->arrived); // nobody waits in the usual case: no call of the system
    a->seen += (uint32_t)r->n_ranges;
    a->slow += n_slow;
    if (a->seen < OFF_WINDOW) return; // too few to decide
    if (a->slow * OFF_SHARE < a->seen && !a->o.always) a->on = false;
    a->seen = a->slow = 0;
}

// Reads one run, if there is any. The lock is open meanwhile.
static bool do_some(dt_ahead *a, reader *w) {
    // under the lock, as what is taken is in the order of places
    if (!a->on || a->paused || a->stopping || !ahead_take(a, w)) return false;
    a->n_reading++;
    if (a->n_asleep > 0) pthread_cond_signal(&a->room); // there may be work for one more
    pthread_mutex_unlock(&a->lock);
    uint32_t n_slow = 0;
    dt_status st = ahead_read_run(w, &n_slow);
    pthread_mutex_lock(&a->lock);
    ahead_publish(a, &w->run, st, n_slow);
    if (--a->n_reading == 0) pthread_cond_broadcast(&a->idle);
    return true;
}

static void *read_ahead(void *arg) {
    reader *w = arg;
    dt_ahead *a = w->ahead;
    dt_thread_name("dt-read");
    pthread_mutex_lock(&a->lock);
    while (!a->stopping) {
        if (w->index >= a->n_active) { // the tuner has taken this reader away
            pthread_cond_wait(&a->wanted, &a->lock);
            continue;
        }
        if (do_some(a, w)) continue;
        a->n_asleep++;
        pthread_cond_wait(&a->room, &a->lock);
        a->n_asleep--;
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

// Under the lock. If a thread cannot be started, there are fewer readers.
static void start_readers(dt_ahead *a) {
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES); // a reader only reads: 128 of them take 32 MiB of addresses
    while (a->n_started < a->n_active) {
        reader *w = &a->readers[a->n_started];
        w->ahead = a;
        w->index = a->n_started;
        if (pthread_create(&w->thread, &attr, read_ahead, w) != 0) break;
        a->n_started++;
    }
    pthread_attr_destroy(&attr);
}

static void turn_on(dt_ahead *a) {
    a->on = true;
    start_readers(a);
    pthread_cond_broadcast(&a->room);
}

// ---- workers ---------------------------------------------------------------------------------------
// Skips places that are given back and those that readers never took. Returns whether the ring has more room.
static bool free_oldest(dt_ahead *a) {
    uint64_t tail = a->tail;
    for (; a->oldest < a->next; a->oldest++) {
        item *it = &a->items[a->oldest % N_ITEMS];
        if (it->place != a->oldest || it->state == UNUSED) continue;
        if (it->state != DONE) break;
        if (it->end) a->tail = it->end;
        it->state = UNUSED;
    }
    return a->tail != tail;
}

int64_t dt_ahead_begin(dt_ahead *a, int64_t begin, int64_t end) {
    pthread_mutex_lock(&a->lock);
    int64_t own = a->next < begin ? begin : a->next < end ? a->next : end; // places from a->next on have no reader
    if (a->next < end) a->next = end;                                      // readers go on behind the worker's places
    free_oldest(a);
    // The readers may have stopped at a sample that is larger than the ring: it is behind them now. Readers
    // that are turned off stay asleep: waking one costs the worker more than reading a small record.
    if (a->on && a->oldest == a->next && a->n_asleep > 0) pthread_cond_signal(&a->room);
    pthread_mutex_unlock(&a->lock);
    return own;
}

const dt_span *dt_ahead_wait(dt_ahead *a, int64_t place, dt_counter *wait_ns) {
    item *it = &a->items[place % N_ITEMS];
    pthread_mutex_lock(&a->lock);
    assert(it->place == place && it->state != UNUSED && it->state != DONE);
    if (it->state == READING) {
        uint64_t begin = dt_now_ns();
        a->n_waiting++;
        while (it->state == READING) pthread_cond_wait(&a->arrived, &a->lock);
        a->n_waiting--;
        dt_counter_add(wait_ns, dt_now_ns() - begin);
    }
    bool ready = it->state == READY;
    dt_depth_add(&a->ready, -1); // a failed place counts, too, until here
    pthread_mutex_unlock(&a->lock);
    return ready ? it->member : NULL;
}

void dt_ahead_release(dt_ahead *a, int64_t place) {
    pthread_mutex_lock(&a->lock);
    a->items[place % N_ITEMS].state = DONE; // places come back out of order; the ring is freed in order
    int64_t oldest = a->oldest;
    free_oldest(a);
    if (a->oldest != oldest && a->n_asleep > 0) pthread_cond_signal(&a->room);
    pthread_mutex_unlock(&a->lock);
}

void dt_ahead_note(dt_ahead *a, uint32_t n_reads, uint32_t n_slow) {
    pthread_mutex_lock(&a->lock);
    a->worker_seen += n_reads;
    a->worker_slow += n_slow;
    // a few slow reads may be chance, or a cold page cache
    if (a->worker_slow >= ON_AFTER && !a->on && a->n_active > 0) turn_on(a);
    if (a->worker_seen >= ON_WINDOW) a->worker_seen = a->worker_slow = 0;
    pthread_mutex_unlock(&a->lock);
}

// ---- the loader ------------------------------------------------------------------------------------
void dt_ahead_seek(dt_ahead *a, int64_t place) {
    pthread_mutex_lock(&a->lock);
    a->paused = true;
    while (a->n_reading > 0) pthread_cond_wait(&a->idle, &a->lock); // they write into the ring
    for (int i = 0; i < N_ITEMS; i++) a->items[i].state = UNUSED;
    dt_depth_add(&a->ready, -a->ready.n);
    a->head = a->tail = 0;
    a->oldest = a->next = place;
    a->paused = false;
    pthread_cond_broadcast(&a->room);
    pthread_mutex_unlock(&a->lock);
}

void dt_ahead_set_readers(dt_ahead *a, int n) {
    pthread_mutex_lock(&a->lock);
    a->n_active = n < a->o.max_readers ? n : a->o.max_readers;
    if (a->on) start_readers(a);
    pthread_cond_broadcast(&a->wanted);
    pthread_cond_broadcast(&a->room);
    pthread_mutex_unlock(&a->lock);
}

void dt_ahead_get_stats(const dt_ahead *a, dt_ahead_stats *out) {
    *out = (dt_ahead_stats){.n_readers = a->n_active,
                            .max_readers = a->o.max_readers,
                            .n_ready = a->ready.n,
                            .depth_s = dt_depth_s(&a->ready),
                            .capacity = N_ITEMS,
                            .on = a->on};
    uint64_t oldest = UINT64_MAX;
    for (int i = 0; i < a->o.max_readers; i++) {
        const reader *w = &a->readers[i];
        out->busy_ns += dt_counter_get(&w->busy_ns);
        out->n_reads += dt_counter_get(&w->n_reads);
        uint64_t since = dt_counter_get(&w->since_ns);
        if (since == 0 || since >= oldest) continue; // no read in progress, or a younger one
        oldest = since;
        out->record = w->record;
    }
    if (oldest != UINT64_MAX) out->since_s = (double)oldest * 1e-9;
}

dt_status dt_ahead_create(dt_ahead **out, const dt_ahead_opts *o) {
    dt_ahead *a = aligned_alloc(128, (sizeof *a + 127) / 128 * 128);
    size_t n_readers = (size_t)o->max_readers + 1;
    *out = NULL;
    if (!a) return dt_fail(DT_E_INTERNAL, "out of memory");
    memset(a, 0, sizeof *a);
    a->o = *o;
    a->oldest = a->next = o->start;
    a->n_active = o->n_readers;
    // two cache lines each: counters of one do not slow another
    a->readers = aligned_alloc(128, n_readers * sizeof *a->readers);
    a->ring = mmap(NULL, o->cap_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                   0); // touched when it is used
    if (a->ring == MAP_FAILED || !a->readers) {
        if (a->ring != MAP_FAILED) munmap(a->ring, o->cap_bytes);
        free(a->readers);
        free(a);
        return dt_fail(DT_E_INTERNAL, "out of memory for %zu bytes of read-ahead", o->cap_bytes);
    }
    memset(a->readers, 0, n_readers * sizeof *a->readers);
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->room, NULL);
    pthread_cond_init(&a->arrived, NULL);
    pthread_cond_init(&a->idle, NULL);
    pthread_cond_init(&a->wanted, NULL);
    if ((o->always || o->at_once) && o->n_readers > 0) {
        pthread_mutex_lock(&a->lock);
        turn_on(a);
        pthread_mutex_unlock(&a->lock);
    }
    *out = a;
    return DT_OK;
}

void dt_ahead_destroy(dt_ahead *a) {
    if (!a) return;
    pthread_mutex_lock(&a->lock);
    a->stopping = true;
    pthread_cond_broadcast(&a->room);
    pthread_cond_broadcast(&a->wanted);
    pthread_mutex_unlock(&a->lock);
    for (int i = 0; i < a->n_started; i++) pthread_join(a->readers[i].thread, NULL);
    munmap(a->ring, a->o.cap_bytes);
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->room);
    pthread_cond_destroy(&a->arrived);
    pthread_cond_destroy(&a->idle);
    pthread_cond_destroy(&a->wanted);
    free(a->readers);
    free(a);
}
