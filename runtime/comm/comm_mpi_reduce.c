// comm_mpi_reduce.c: the all-reduce over MPI.
//
// A buffer is reduced in segments. Every exchange is direct: rank r gets from rank s exactly what r
// needs from s, in a message, or on a host in memory that its ranks share. On one host a segment takes
// two phases: each rank adds the W contributions to its slice (reduce-scatter), then gives the sum to all (all-gather). On
// several hosts each of the two steps takes two phases, so that each element crosses a host's boundary as seldom as it can:
//
//   0 reduce inside   rank (h, c), the c-th of host h, adds slice c of the ranks of its host
//   1 reduce across   it adds part h of slice c of the hosts' sums, from the c-th rank of each host
//   2 gather across   it sends the sum to the c-th rank of each host
//   3 gather inside   it sends slice c to the ranks of its host
//
// So a host sends 2 (H - 1) / H of the buffer, whatever the number of its ranks, and all its ranks share the work. The
// smallest host determines the number of slices; ranks beyond that only give and take. Where all hosts have one rank,
// phases 0 and 3 are left out. The all-reduce of a small buffer has one phase, in which every rank gives everything to all;
// or two, on each host and then across, where ranks share memory and hosts have equally many.
//
// A step alone, of a vector whose chunks (DT_CHUNK) have owners, takes its two phases of the four. Its slices and parts are
// whole chunks; as a segment may have fewer of them than there are ranks, segments take turns in who gets them.
//
// Every element is the sum of the hosts' sums, in the order of their first ranks, each of them ((x0 + x1) + x2) + ... in
// rank order, or both by the fixed tree (comm/tree.c): whatever the size of the buffer or the bucket. bf16 is rounded when it leaves a host, too.
//
// What leaves the host is cut into messages that MPI sends at once. A longer message begins with a question whether the
// receiver is ready, and over TCP the reply waits behind the data that go the same way: links then carried half of
// what they can (64 MiB on two hosts at 400 Mbit/s: 2.8 s; in short ones 1.5; the bytes take 1.4).
//
// Several reductions may be started. Their segments go through slots, in their order; a slot is a small state machine
// with scratch for what one segment gathers, and every call of progress(), and every wait, advances all of them. So
// links are busy while one segment waits for its last message, and a rank that is late is sent no more than the slots
// hold. All ranks start reductions in the same order, so a running number gives matching tags.
//
// Rejected: a ring. It moves the same bytes, but its order of additions depends on an element's place in the buffer, and
// a segment needs 2 (H - 1) turns of progress() instead of 4. A chain along the hosts, which would keep the bits of one
// host: hosts in its middle send twice the buffer.

#include "backend/step_block.h"
#include "base/core.h"
#include "base/log.h"
#include "comm/bucket.h"
#include "comm/comm_mpi_internal.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

// ---- comm mpi host ------------------------------------------------------------------------------------------------

// Memory that the ranks of a host share, so that they reduce a segment without a message.
//
// A rank has some areas, each as long as a segment; the n-th segment that goes this way is in area n % n_areas of every
// rank. In front of the areas stands how far the rank has got in each. MPI_HOST_FULL: its contribution is in the area;
// MPI_HOST_SUMMED: the sum of its slice is (in an all-gather alone, the first stage); MPI_HOST_LEFT: it no longer reads
// this area of any rank. When all ranks have left an area it is written again.
//
// Memory order: a stage is stored with release (mpi_host_reach) and loaded with acquire (mpi_host_all). FULL publishes a
// contribution, SUMMED a sum, and LEFT that the loads from the area are done, before the store that reuses it. What is
// there before the first segment (sizes, the secret) is published by the messages of mpi_host_open.
//
// The memory is a memfd of the host's first rank, which the others open through /proc: no name that a killed job leaves
// behind, and no limit of /dev/shm, which is 64 MiB in many containers.

enum { LINE = 64, PAGE = 4096 };

typedef enum host_stage { MPI_HOST_FULL = 1, MPI_HOST_SUMMED, MPI_HOST_LEFT } host_stage;

struct dt_mpi_host {
    int n, self, n_areas;
    size_t area_bytes, rank_bytes; // PAGE of stages, then the areas
    char *memory;                  // mmap of n * rank_bytes, then a page with the secret
};

// What the first rank of a host sends to the others.
typedef struct offer {
    int pid, fd;
    uint64_t secret; // stands at the end of the memory, too: in another PID namespace the path leads to something else
} offer;

static _Atomic uint64_t *reached(const dt_mpi_host *h, int i, uint64_t turn) {
    // a cache line per area: ranks poll different lines
    return (_Atomic uint64_t *)(h->memory + (size_t)i * h->rank_bytes + turn % (uint64_t)h->n_areas * LINE);
}

static uint64_t comm_mpi_host_value_of(uint64_t turn, host_stage stage) {
    return 4 * turn + (uint64_t)stage; // grows with turn and stage, so one comparison covers both
}

static void mpi_host_reach(const dt_mpi_host *h, uint64_t turn, host_stage stage) {
    // release: contributions before the stage
    atomic_store_explicit(reached(h, h->self, turn), comm_mpi_host_value_of(turn, stage), memory_order_release);
}

// Whether all ranks of the host have reached the stage; else *n_there is the first that has not.
static bool mpi_host_all(const dt_mpi_host *h, uint64_t turn, host_stage stage, int *n_there) {
    for (; *n_there < h->n; ++*n_there)
        // acquire: pairs with mpi_host_reach
        if (atomic_load_explicit(reached(h, *n_there, turn), memory_order_acquire) <
            comm_mpi_host_value_of(turn, stage))
            return false;
    return true;
}

// n_there: begins at 0, kept between calls
static bool mpi_host_may_enter(const dt_mpi_host *h, uint64_t turn, int *n_there) {
    const uint64_t n = (uint64_t)h->n_areas;
    return turn < n || mpi_host_all(h, turn - n, MPI_HOST_LEFT, n_there); // the first round finds all areas free
}

// -- life ------------------------------------------------------------------------------------------

static uint64_t *secret_of(const dt_mpi_host *h) {
    return (uint64_t *)(h->memory + (size_t)h->n * h->rank_bytes); // the page behind all ranks' memory
}

static bool comm_mpi_host_map(dt_mpi_host *h, int fd) {
    // lazily committed: areas that no segment uses cost nothing
    h->memory = mmap(NULL, (size_t)h->n * h->rank_bytes + PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (h->memory == MAP_FAILED) h->memory = NULL; // NULL is what callers test
    return h->memory != NULL;
}

static offer make_memory(dt_mpi_host *h) {
    struct timespec now;
    offer o = {.pid = (int)getpid(), .fd = memfd_create("dtrain", MFD_CLOEXEC)};
    clock_gettime(CLOCK_MONOTONIC, &now);
    // a time is secret enough: it only distinguishes two memories
    o.secret = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    // zeros: stages start at 0
    if (o.fd >= 0 && ftruncate(o.fd, (off_t)((size_t)h->n * h->rank_bytes + PAGE)) == 0 && comm_mpi_host_map(h, o.fd))
        *secret_of(h) = o.secret;
    return o;
}

static void open_memory(dt_mpi_host *h, const offer *o) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", o->pid, o->fd);
    // fails where this process may not trace the other (proc(5)): ranks then exchange messages
    const int fd = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) return; // another PID or mount namespace: ranks exchange messages
    const off_t size = lseek(fd, 0, SEEK_END);
    // size first: a read beyond the file would be SIGBUS
    if (size == (off_t)((size_t)h->n * h->rank_bytes + PAGE) && comm_mpi_host_map(h, fd) &&
        *secret_of(h) != o->secret) {
        munmap(h->memory, (size_t)size);
        h->memory = NULL;
    }
    close(fd);
}

// NULL is nothing
static void mpi_host_close(dt_mpi_host *h) {
    if (h && h->memory) munmap(h->memory, (size_t)h->n * h->rank_bytes + PAGE);
    free(h);
}

// Collective over all ranks. NULL without a failure: this rank is alone on its host, or *apart, the same on all ranks:
// ranks of some host share no memory.
static dt_status mpi_host_open(dt_mpi_host **out, bool *apart, dt_comm *c, const dt_mpi_group *ranks, int n_areas,
                               size_t area_bytes) {
    dt_mpi_host *h = dt_xcalloc(1, sizeof *h);
    offer own = {.fd = -1}, *all = dt_xcalloc((size_t)c->world_size, sizeof *all);
    *h = (dt_mpi_host){.n = ranks->n, .self = ranks->self, .n_areas = n_areas, .area_bytes = area_bytes};
    h->rank_bytes = PAGE + (size_t)n_areas * area_bytes;
    if (h->self == 0 && h->n > 1) own = make_memory(h); // own.fd stays -1 on the others
    dt_status st = c->all_gather_bytes(c, &own, sizeof own, all);
    if (st == DT_OK && h->self > 0) open_memory(h, &all[ranks->ranks[0]]);
    int64_t missing = h->n > 1 && !h->memory; // one rank without it, and all go without
    if (st == DT_OK) st = c->all_reduce_max_i64(c, &missing, 1);
    if (own.fd >= 0) close(own.fd); // the mapping holds the memory
    free(all);
    *out = h;
    *apart = missing; // the maximum: the same on all ranks
    if (st != DT_OK || missing || h->n == 1) {
        mpi_host_close(h);
        *out = NULL;
    }
    return st;
}

// ---- reductions ---------------------------------------------------------------------------------------------------

enum {
    HOST_AREAS = 1 << 26, // on any hosts: a segment times the ranks of the largest and each rank's areas
    PART_ELEMENTS = 16    // slices and parts begin at cache lines
};

enum { REDUCE_INSIDE, REDUCE_ACROSS, GATHER_ACROSS, GATHER_INSIDE, PHASES };

// Elements [begin, end).
typedef struct part {
    int64_t begin, end;
} part;

struct dt_mpi_reduction {
    bool taken; // until dt_mpi_wait has returned
    dt_mpi_element kind;
    bool small, tree;
    int first_phase, end_phase;        // phases [first_phase, end_phase)
    int n_segments, n_entered, n_done; // entered: segments that have got a slot
    uint64_t number;                   // of its first segment
    uint64_t turn;                     // of its first segment in the host's memory
    int64_t segment;                   // elements
    char *data;
    int64_t n;
    bool owned; // a step alone: parts are whole chunks, of segments of the vector in which data begin at `at`
    int64_t at;
    float *wide; // bf16: the f32 buffer that gets the sums
};

struct dt_mpi_slot {
    dt_mpi_reduction *of; // whose segment is in the slot; NULL: the slot is free
    part segment;
    uint64_t number;
    int phase;
    uint64_t turn;                    // in the host's memory
    bool has_given;                   // in a phase in the host's memory: this rank has put there what it has to give
    int n_there;                      // see mpi_host_all
    char *scratch[REDUCE_ACROSS + 1]; // contributions of the others, in the order of their group
    size_t scratch_bytes[REDUCE_ACROSS + 1];
    dt_mpi_messages msgs;
};

// The i-th of `count` equal parts of whole units; the last ones may be empty.
static part comm_mpi_reduce_part_of(part whole, int count, int i, int64_t unit) {
    const int64_t n = whole.end - whole.begin;
    // rounded up: earlier parts are longer, the last may be empty
    const int64_t each = (int64_t)dt_align_up((size_t)((n + count - 1) / count), (size_t)unit);
    const int64_t from = each * i < n ? each * i : n;
    const int64_t to = from + each < n ? from + each : n;
    return (part){whole.begin + from, whole.begin + to};
}

static char *element_at(const dt_mpi_reduction *r, int64_t i) { // `data` has elements of the kind's size
    return r->data + (size_t)i * dt_mpi_element_bytes(r->kind);
}

// -- phases ----------------------------------------------------------------------------------------

static const dt_mpi_group *comm_mpi_reduce_group_of(const dt_mpi_comm *m, const dt_mpi_slot *slot) {
    if (slot->of->small && !m->small_by_host) return &m->all; // small on separate networks: all to all, in one phase
    return slot->phase == REDUCE_INSIDE || slot->phase == GATHER_INSIDE ? &m->inner : &m->across;
}

static int64_t comm_mpi_reduce_between(int64_t least, int64_t x, int64_t most) {
    return x < least ? least : x > most ? most : x;
}

// What the ranks of a column, or that of host `host` (-1: all), own of a segment, which data have at `at` of a vector. Cut
// are the vector's own segments; who gets the first parts takes turns, as there may be fewer chunks than ranks.
static part owned_part(const dt_mpi_comm *m, int64_t at, part segment, int column, int host) {
    // a vector's segment number, counted from its beginning
    const int64_t turn = (at + segment.begin) / m->segment, begin = turn * m->segment - at;
    const int in_turn = (int)((column + turn) % m->n_columns);
    part p = comm_mpi_reduce_part_of((part){begin, begin + m->segment}, m->n_columns, in_turn, DT_CHUNK);
    if (host >= 0)
        p = comm_mpi_reduce_part_of(p, m->n_hosts, (int)((host + turn / m->n_columns) % m->n_hosts), DT_CHUNK);
    // the bucket covers [0, n) of the vector at `at`: parts are cut to the segment in it
    return (part){comm_mpi_reduce_between(segment.begin, p.begin, segment.end),
                  comm_mpi_reduce_between(segment.begin, p.end, segment.end)};
}

// Whether the i-th of the phase's group adds a part of the segment, and which.
static bool comm_mpi_reduce_has_part(const dt_mpi_comm *m, const dt_mpi_slot *slot, int i, part *out) {
    const dt_mpi_group *g = comm_mpi_reduce_group_of(m, slot);
    *out = slot->segment;
    if (slot->of->small) return true;
    if (g == &m->inner && i >= m->n_columns) return false; // surplus ranks of a larger host add nothing
    // -1: the whole slice, before parts go across hosts
    const int column = g == &m->inner ? i : m->inner.self, host = g == &m->inner ? -1 : i;
    if (slot->of->owned) {
        *out = owned_part(m, slot->of->at, slot->segment, column, host);
        return true;
    }
    *out = comm_mpi_reduce_part_of(slot->segment, m->n_columns, column, PART_ELEMENTS);
    if (host >= 0) *out = comm_mpi_reduce_part_of(*out, m->n_hosts, host, PART_ELEMENTS);
    return true;
}

// Scratch for what the i-th of the group contributes to n elements.
static char *contribution(const dt_mpi_comm *m, const dt_mpi_slot *slot, int i, int64_t n) {
    const dt_mpi_group *g = comm_mpi_reduce_group_of(m, slot);
    const int place = i < g->self ? i : i - 1; // no place for this rank's own contribution
    return slot->scratch[slot->phase] + (size_t)place * (size_t)n * dt_mpi_element_bytes(slot->of->kind);
}

typedef dt_status post_fn(dt_mpi_messages *m, void *data, int64_t n, size_t element_bytes, int peer, int tag);

static dt_status send_data(dt_mpi_messages *m, void *data, int64_t n, size_t element_bytes, int peer, int tag) {
    return dt_mpi_post_send(m, data, n, element_bytes, peer, tag);
}

static dt_status post(const dt_mpi_comm *m, dt_mpi_slot *slot, post_fn *fn, char *data, int64_t n, int peer) {
    const size_t size = dt_mpi_element_bytes(slot->of->kind);
    const bool leaves = m->host_of[peer] != m->host_of[m->rank]; // Open MPI's eager limit matters between hosts only
    const int64_t most = leaves ? DT_REDUCE_MESSAGE_BYTES / (int64_t)size : n;
    for (int64_t at = 0; at < n; at += most)
        DT_TRY(fn(&slot->msgs, data + (size_t)at * size, n - at < most ? n - at : most, size, peer,
                  // one tag for all pieces: MPI keeps the order of a pair
                  dt_mpi_next_tag(m, slot->number, slot->phase)));
    return DT_OK;
}

// In a reduce-scatter the owner of a part receives it from all, in an all-gather all receive it from the owner.
static dt_status post_recvs(const dt_mpi_comm *m, dt_mpi_slot *slot) {
    const dt_mpi_group *g = comm_mpi_reduce_group_of(m, slot);
    const bool reduces = slot->phase <= REDUCE_ACROSS;
    part p;
    // starts behind itself: ranks do not all begin with the same peer
    for (int k = 0; k < g->n - 1; k++) {
        const int i = dt_mpi_peer_from(g, k);
        if (!comm_mpi_reduce_has_part(m, slot, reduces ? g->self : i, &p)) continue;
        const int64_t n = p.end - p.begin;
        // an all-gather receives into place
        char *to = reduces ? contribution(m, slot, i, n) : element_at(slot->of, p.begin);
        DT_TRY(post(m, slot, dt_mpi_post_recv, to, n, g->ranks[i]));
    }
    return DT_OK;
}

static dt_status post_sends(const dt_mpi_comm *m, dt_mpi_slot *slot) {
    const dt_mpi_group *g = comm_mpi_reduce_group_of(m, slot);
    const bool reduces = slot->phase <= REDUCE_ACROSS;
    part p;
    for (int k = 0; k < g->n - 1; k++) {
        const int i = dt_mpi_peer_to(g, k);
        if (!comm_mpi_reduce_has_part(m, slot, reduces ? i : g->self, &p)) continue;
        // sends read the buffer in place: nobody writes it until the phase ends
        DT_TRY(post(m, slot, send_data, element_at(slot->of, p.begin), p.end - p.begin, g->ranks[i]));
    }
    return DT_OK;
}

// Whether the phase goes through the host's memory.
static bool is_in_memory(const dt_mpi_comm *m, const dt_mpi_slot *slot) {
    return m->host && comm_mpi_reduce_group_of(m, slot) == &m->inner; // across hosts always messages
}

// Where the i-th of the host has part p of the segment.
static char *shared_at(const dt_mpi_comm *m, const dt_mpi_slot *slot, int i, part p) {
    const dt_mpi_host *h = m->host;
    return h->memory + (size_t)i * h->rank_bytes + PAGE + slot->turn % (uint64_t)h->n_areas * h->area_bytes +
           // offset in the segment's area
           (size_t)(p.begin - slot->segment.begin) * dt_mpi_element_bytes(slot->of->kind);
}

// This rank's part becomes the sum.
static void comm_mpi_reduce_add_part(dt_mpi_comm *m, const dt_mpi_slot *slot) {
    const dt_mpi_group *g = comm_mpi_reduce_group_of(m, slot);
    const bool in_memory = is_in_memory(m, slot);
    part p;
    if (g->n == 1 || !comm_mpi_reduce_has_part(m, slot, g->self, &p)) return; // nothing to add, or no part of this rank
    const int64_t n = p.end - p.begin;
    char *own = element_at(slot->of, p.begin);
    for (int i = 0; i < g->n; i++)
        // in rank order: the fixed order of additions
        m->sources[i] = i == g->self ? own : in_memory ? shared_at(m, slot, i, p) : contribution(m, slot, i, n);
    dt_mpi_sum(slot->of->kind, slot->of->tree, own, m->sources, g->n, n); // `own` may be both source and result
}

static void comm_mpi_reduce_give(const dt_mpi_comm *m, const dt_mpi_slot *slot, part p) {
    // this host's ranks read it after MPI_HOST_FULL is published
    memcpy(shared_at(m, slot, m->inner.self, p), element_at(slot->of, p.begin),
           (size_t)(p.end - p.begin) * dt_mpi_element_bytes(slot->of->kind));
}

static host_stage stage_of(const dt_mpi_slot *slot) {
    return slot->phase == REDUCE_INSIDE ? MPI_HOST_FULL : MPI_HOST_SUMMED;
}

// Whether the host's ranks, from the *n_there-th on, have done what this rank waits for; else *n_there is one that has not.
static bool comm_mpi_reduce_is_there(const dt_mpi_comm *m, const dt_mpi_slot *slot, int *n_there) {
    return slot->has_given ? mpi_host_all(m->host, slot->turn, stage_of(slot), n_there)
                           // before giving: whether the area is free again
                           : mpi_host_may_enter(m->host, slot->turn, n_there);
}

// A phase in the host's memory: gives when there is room, takes when all have given. Whether it is over; never blocks.
static bool exchange_in_memory(dt_mpi_comm *m, dt_mpi_slot *slot) {
    const dt_mpi_reduction *r = slot->of;
    const size_t size = dt_mpi_element_bytes(r->kind);
    const bool reduces = slot->phase == REDUCE_INSIDE;
    part p = slot->segment;
    if (!slot->has_given) {
        // an all-gather behind a reduce-scatter uses the area that it has already
        const bool enters = slot->phase == REDUCE_INSIDE || r->first_phase != REDUCE_INSIDE;
        if (enters && !comm_mpi_reduce_is_there(m, slot, &slot->n_there)) return false;
        part own = {p.end, p.end};
        const bool adds = comm_mpi_reduce_has_part(m, slot, m->inner.self, &own) && !r->small;
        if (reduces) {
            // all but its own part, which it adds itself
            comm_mpi_reduce_give(m, slot, (part){p.begin, adds ? own.begin : p.end});
            if (adds) comm_mpi_reduce_give(m, slot, (part){own.end, p.end});
        } else if (adds) {
            comm_mpi_reduce_give(m, slot, own); // its sum, for the others to read
        }
        mpi_host_reach(m->host, slot->turn, stage_of(slot)); // release: the copy is visible before the stage
        slot->has_given = true;
        slot->n_there = 0; // waits for another stage: counts from the first rank again
    }
    if (!comm_mpi_reduce_is_there(m, slot, &slot->n_there)) return false; // acquire: contributions are complete
    if (reduces) comm_mpi_reduce_add_part(m, slot);
    for (int i = 0; i < m->inner.n && !reduces; i++)
        if (i != m->inner.self && comm_mpi_reduce_has_part(m, slot, i, &p))
            // each owner's sum
            memcpy(element_at(r, p.begin), shared_at(m, slot, i, p), (size_t)(p.end - p.begin) * size);
    // no later phase of this segment uses the area
    if (!reduces || r->small || r->end_phase <= GATHER_INSIDE) mpi_host_reach(m->host, slot->turn, MPI_HOST_LEFT);
    return true;
}

// A small buffer's sum, in the same order: each host's sum takes the place of the contribution of its first rank.
static void add_small(dt_mpi_comm *m, const dt_mpi_slot *slot) {
    const dt_mpi_reduction *r = slot->of;
    for (int h = 0; h < m->n_hosts; h++) {
        char *first = NULL;
        int n = 0;
        for (int s = 0; s < m->world_size; s++) {
            if (m->host_of[s] != h) continue;
            char *x = s == m->rank ? r->data : contribution(m, slot, s, r->n); // in the order of the group
            if (n == 0) first = x;
            m->sources[m->n_hosts + n++] = x; // behind the hosts' sums, which stand at [0, n_hosts)
        }
        // in place of the first contribution
        if (n > 1) dt_mpi_sum(r->kind, r->tree, first, m->sources + m->n_hosts, n, r->n);
        m->sources[h] = first;
    }
    dt_mpi_sum(r->kind, r->tree, r->data, m->sources, m->n_hosts, r->n); // the result replaces `data`
}

// -- slots -----------------------------------------------------------------------------------------

// Scratch for a whole segment, so that it never grows again; pages that a short segment does not use stay untouched.
static void take_scratch(const dt_mpi_comm *m, dt_mpi_slot *slot) {
    const dt_mpi_group *g = comm_mpi_reduce_group_of(m, slot);
    const int parts = g == &m->inner ? m->n_columns : m->n_columns * m->n_hosts;
    const int64_t unit = slot->of->owned ? DT_CHUNK : PART_ELEMENTS;
    // parts are rounded up to whole units
    const int64_t each = slot->of->small ? slot->of->n : slot->of->segment / parts + 2 * unit;
    const size_t need = (size_t)(each * (g->n - 1)) * dt_mpi_element_bytes(slot->of->kind);
    if (need <= slot->scratch_bytes[slot->phase]) return; // never shrinks
    slot->scratch[slot->phase] = dt_xrealloc(slot->scratch[slot->phase], need);
    slot->scratch_bytes[slot->phase] = need;
}

// Whether the phase has work for this rank, that is, whether the rank is in a group of several.
static bool works(const dt_mpi_comm *m, const dt_mpi_slot *slot) {
    if (slot->of->small && slot->phase > (m->small_by_host ? REDUCE_ACROSS : REDUCE_INSIDE)) return false;
    // -1: a surplus rank in the phases across
    return comm_mpi_reduce_group_of(m, slot)->self >= 0 && comm_mpi_reduce_group_of(m, slot)->n > 1;
}

// Begins the next phase, from slot->phase on, that has work for this rank; after the last one the slot is free.
static dt_status comm_mpi_reduce_begin_phase(dt_mpi_comm *m, dt_mpi_slot *slot) {
    // the same phases on all ranks of a group
    while (slot->phase < slot->of->end_phase && !works(m, slot)) slot->phase++;
    if (slot->phase == slot->of->end_phase) { // the segment is done, the slot free
        dt_mpi_reduction *r = slot->of;
        const part p = slot->segment;
        if (r->kind == MPI_ELEMENT_BF16)
            // the f32 gradients get the rounded sum
            dt_mpi_sum_widen(r->wide + p.begin, (const uint16_t *)element_at(r, p.begin), p.end - p.begin);
        r->n_done++;
        slot->of = NULL;
        return DT_OK;
    }
    slot->has_given = false;
    slot->n_there = 0;
    if (is_in_memory(m, slot)) return DT_OK; // no messages: exchange_in_memory is polled
    if (slot->phase <= REDUCE_ACROSS) take_scratch(m, slot);
    DT_TRY(post_recvs(m, slot)); // receives first: fewer messages arrive unexpected
    return post_sends(m, slot);
}

// Free slots go to waiting segments, the oldest first.
static dt_status comm_mpi_reduce_fill_slots(dt_mpi_comm *m) {
    for (int k = 0; k < DT_REDUCE_SLOTS; k++) {
        dt_mpi_reduction *first = NULL;
        if (m->slots[k].of) continue;
        for (int i = 0; i < m->n_reductions; i++) { // ids are reused, so the list is in no order
            dt_mpi_reduction *r = m->reductions[i];
            if (r->n_entered < r->n_segments && (!first || r->number < first->number)) first = r;
        }
        if (!first) return DT_OK;
        dt_mpi_slot *slot = &m->slots[k];
        // the first segment may begin inside the vector's segment
        const int64_t begin = (first->at / first->segment + first->n_entered) * first->segment - first->at;
        slot->of = first;
        slot->segment = (part){comm_mpi_reduce_between(0, begin, first->n),
                               comm_mpi_reduce_between(0, begin + first->segment, first->n)};
        slot->turn = first->turn + (uint64_t)first->n_entered;
        slot->number = first->number + (uint64_t)first->n_entered++;
        slot->phase = first->first_phase; // REDUCE_INSIDE or GATHER_ACROSS
        DT_TRY(comm_mpi_reduce_begin_phase(m, slot));
    }
    return DT_OK;
}

// Never blocks.
static dt_status advance_slot(dt_mpi_comm *m, dt_mpi_slot *slot) {
    const bool in_memory = is_in_memory(m, slot);
    bool done = false;
    if (in_memory) // read before the phase moves on
        done = exchange_in_memory(m, slot);
    else
        DT_TRY(dt_mpi_test_messages(m, &slot->msgs, &done));
    if (!done) return DT_OK;
    if (comm_mpi_reduce_group_of(m, slot) == &m->all) // one phase: everything has arrived
        add_small(m, slot);
    else if (!in_memory && slot->phase <= REDUCE_ACROSS)
        comm_mpi_reduce_add_part(m, slot);
    slot->phase++;
    DT_TRY(comm_mpi_reduce_begin_phase(m, slot));
    return slot->of ? DT_OK : comm_mpi_reduce_fill_slots(m); // a freed slot goes to the next segment at once
}

dt_status dt_mpi_progress(dt_comm *c) {
    dt_mpi_comm *m = c->self;
    for (int k = 0; k < DT_REDUCE_SLOTS; k++)
        if (m->slots[k].of) DT_TRY(advance_slot(m, &m->slots[k]));
    return DT_OK;
}

// -- reductions --------------------------------------------------------------------------------------

static int find_free(dt_mpi_comm *m) {
    for (int i = 0; i < m->n_reductions; i++)
        if (!m->reductions[i]->taken) return i;
    m->reductions = dt_xgrow(m->reductions, (size_t)m->n_reductions, sizeof *m->reductions);
    m->reductions[m->n_reductions] = dt_xcalloc(1, sizeof **m->reductions);
    return m->n_reductions++;
}

static dt_status comm_mpi_reduce_start(dt_mpi_comm *m, dt_mpi_element kind, const dt_reduction *x, void *data,
                                       dt_request *request) {
    request->id = -1;
    if (m->world_size == 1 || x->n == 0) return DT_OK;
    const size_t size = dt_mpi_element_bytes(kind);
    const bool owned = x->steps != DT_ALL_REDUCE;
    const bool small = !owned && dt_reduce_is_small(x->n * (int64_t)size, m->world_size);
    // 8-byte elements: as many bytes per segment
    const int64_t segment = size <= sizeof(float) ? m->segment : m->segment / 2;
    const int64_t at = owned ? x->at : 0;
    const int id = find_free(m);
    // segments of the vector that [at, at + n) touches
    const int n_segments = (int)((at + x->n + segment - 1) / segment - at / segment);
    *m->reductions[id] = (dt_mpi_reduction){.taken = true,
                                            .kind = kind,
                                            .small = small,
                                            .tree = x->tree,
                                            .first_phase = x->steps & DT_REDUCE_SCATTER ? REDUCE_INSIDE : GATHER_ACROSS,
                                            .end_phase = x->steps & DT_ALL_GATHER ? PHASES : GATHER_ACROSS,
                                            .n_segments = n_segments,
                                            .number = m->number,
                                            .turn = m->host_turn,
                                            .segment = segment,
                                            .data = data,
                                            .n = x->n,
                                            .owned = owned,
                                            .at = at,
                                            .wide = x->bf16 ? x->data : NULL};
    m->number += (uint64_t)n_segments; // each segment takes a number, so tags of two never meet
    // the same on all ranks: the condition is
    if (m->host && (!small || m->small_by_host)) m->host_turn += (uint64_t)n_segments;
    request->id = id;
    return comm_mpi_reduce_fill_slots(m);
}

// The message names the rank that the oldest segment in a slot waits for.
static dt_status fail_reduction(dt_mpi_comm *m, double waited_s) {
    const dt_mpi_slot *first = NULL;
    for (const dt_mpi_slot *slot = m->slots; slot < m->slots + DT_REDUCE_SLOTS; slot++)
        if (slot->of && (!first || slot->number < first->number)) first = slot;
    int late[MPI_MAX_NAMED], n_late = 0;
    if (!is_in_memory(m, first)) n_late = dt_mpi_find_late(&first->msgs, late);
    // in shared memory nobody sends: stages show who is late
    for (int i = first->n_there; is_in_memory(m, first) && i < m->inner.n && n_late < MPI_MAX_NAMED; i++) {
        int at = i;
        comm_mpi_reduce_is_there(m, first, &at); // tests rank i alone
        if (at == i) late[n_late++] = m->inner.ranks[i];
    }
    const dt_mpi_element kind = first->of->kind;
    const char *label = kind == MPI_ELEMENT_F32    ? "the all-reduce (sum, f32)"
                        : kind == MPI_ELEMENT_F64  ? "the all-reduce (sum, f64)"
                        : kind == MPI_ELEMENT_BF16 ? "the all-reduce (sum, bf16)"
                                                   : "the all-reduce (max, i64)"; // maxima of errors and flags
    return dt_mpi_fail_deadline(m, late, n_late, label, first->of->n, first->of->number, waited_s);
}

dt_status dt_mpi_wait(dt_comm *c, dt_request *request) {
    dt_mpi_comm *m = c->self;
    dt_mpi_waiting w = {0};
    if (request->id < 0) return DT_OK;
    dt_mpi_reduction *r = m->reductions[request->id];
    while (r->n_done < r->n_segments) {
        DT_TRY(dt_mpi_progress(c));
        // deadline only if this call itself did not complete the sum
        if (r->n_done < r->n_segments && !dt_mpi_pause(m, &w)) return fail_reduction(m, w.waited.sum_s);
    }
    r->taken = false;
    request->id = -1;
    return DT_OK;
}

static dt_status reduce_blocking(dt_comm *c, dt_mpi_element kind, void *data, int64_t n) {
    dt_request r;
    // blocking sums are of replicated data: no owner, no tree
    DT_TRY(comm_mpi_reduce_start(c->self, kind, &(dt_reduction){.steps = DT_ALL_REDUCE, .n = n}, data, &r));
    return dt_mpi_wait(c, &r);
}

dt_status dt_mpi_all_reduce_f32(dt_comm *c, float *data, int64_t n) {
    return reduce_blocking(c, MPI_ELEMENT_F32, data, n);
}
dt_status dt_mpi_all_reduce_f64(dt_comm *c, double *data, int64_t n) {
    return reduce_blocking(c, MPI_ELEMENT_F64, data, n);
}
dt_status dt_mpi_all_reduce_max_i64(dt_comm *c, int64_t *data, int64_t n) {
    return reduce_blocking(c, MPI_ELEMENT_MAX_I64, data, n);
}

dt_status dt_mpi_reduce_start(dt_comm *c, const dt_reduction *x, dt_request *r) {
    if (!x->bf16) return comm_mpi_reduce_start(c->self, MPI_ELEMENT_F32, x, x->data, r);
    // rounds before leaving; nothing is sent in a world of one
    if (c->world_size > 1) dt_mpi_sum_narrow(x->bf16, x->data, x->n);
    return comm_mpi_reduce_start(c->self, MPI_ELEMENT_BF16, x, x->bf16, r);
}

// Range k is of segment k.
bool dt_mpi_own_part(const dt_comm *c, int64_t n, int k, int64_t *begin, int64_t *end) {
    const dt_mpi_comm *m = c->self;
    const int64_t from = (int64_t)k * m->segment;
    if (from >= n || m->inner.self >= m->n_columns) return false; // past the end, or a surplus rank
    const part segment = {from, n - from < m->segment ? n : from + m->segment};
    const part own = owned_part(m, 0, segment, m->inner.self, m->across.self);
    *begin = own.begin;
    *end = own.end;
    return true;
}

void dt_mpi_reductions_create(dt_mpi_comm *m) {
    m->slots = dt_xcalloc(DT_REDUCE_SLOTS, sizeof *m->slots);
}

dt_status dt_mpi_reductions_fit(dt_comm *c) {
    dt_mpi_comm *m = c->self;
    m->segment = dt_reduce_segment(m->n_hosts, m->n_columns, m->most_ranks);
    dt_mpi_host *host;
    bool apart;
    // areas times ranks stay below HOST_AREAS elements (256 MiB)
    const int n_areas = (int)comm_mpi_reduce_between(1, HOST_AREAS / (m->segment * m->most_ranks), DT_REDUCE_SLOTS);
    DT_TRY(mpi_host_open(&host, &apart, c, &m->inner, n_areas, (size_t)m->segment * sizeof(float)));
    m->host = host; // not before all ranks know
    m->small_by_host = host && m->world_size == m->n_columns * m->n_hosts;
    if (apart && m->n_hosts == 1) m->segment = DT_REDUCE_SEGMENT; // messages need no short segments
    if (apart && c->rank == 0)
        dt_info("ranks of a host share no memory (containers of their own?): they exchange messages");
    return DT_OK;
}

void dt_mpi_reductions_free(dt_mpi_comm *m) {
    for (int k = 0; k < DT_REDUCE_SLOTS; k++) {
        for (int i = 0; i <= REDUCE_ACROSS; i++) free(m->slots[k].scratch[i]);
        dt_mpi_messages_free(&m->slots[k].msgs); // empty where nothing was sent
    }
    for (int i = 0; i < m->n_reductions; i++) free(m->reductions[i]);
    free(m->reductions);
    free(m->slots);
    mpi_host_close(m->host);
}
