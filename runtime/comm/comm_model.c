// comm_model.c: see comm_model.h.
#include "comm/comm_model.h"

#include "base/core.h"
#include "comm/bucket.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// CPU time of a message over TCP on one side, and bytes per second. Sockets alone, loopback of a Zen 3, 2026-11-26: 1.2 us
// a call, 5.5 GB/s to send and 2.75 to receive. Open MPI's copies and matching beside it are assumed.
#define MESSAGE_S   2e-6
#define TCP_BYTES_S 2e9

// phases of comm_mpi_reduce.c, in its order
enum { REDUCE_INSIDE, REDUCE_ACROSS, GATHER_ACROSS, GATHER_INSIDE, PHASES };

typedef struct reduction {
    bool taken; // until the caller has waited
    bool small; // one phase, everything to all
    int first_phase, end_phase;
    int element_bytes;
    // n_entered: segments that have had a slot; n_done: segments that are complete
    int64_t n, n_entered, n_segments, n_done; // n: elements; the rest counts segments
    double done_s;                            // NCCL
} reduction;

typedef struct slot {
    reduction *of;          // NULL: free
    double n_bytes, done_s; // of the segment; done_s: when the current phase ends on the simulated clock
    int phase;
} slot;

typedef struct model {
    dt_fabric f;
    int world_size, n_hosts, ranks; // ranks: of a host
    // slow: factor on CPU work of a rank that computes meanwhile; link_free_s: the host's link is busy until then
    double slow, *now_s, link_free_s;
    int64_t segment; // elements of 4 bytes
    slot slots[DT_REDUCE_SLOTS];
    reduction **reductions;
    int n_reductions;
} model;

static void comm_model_work(model *m, double seconds) {
    *m->now_s += seconds * m->slow; // CPU work delays the caller itself, wire time does not
}

// ---- MPI -------------------------------------------------------------------------------------------

static bool phase_works(const model *m, const slot *s) {
    const bool inside = s->phase == REDUCE_INSIDE || s->phase == GATHER_INSIDE; // through shared memory
    if (s->of->small && s->phase > REDUCE_ACROSS) return false;                 // a small buffer has no all-gather
    return inside ? m->ranks > 1 : m->n_hosts > 1; // a group of one has nothing to exchange
}

// Bytes that this rank sends to other hosts in a phase, and in how many messages.
static double bytes_across(const model *m, const slot *s, double *n_messages) {
    const double peers = m->n_hosts - 1;
    // each peer gets its part of a slice, or all of a small buffer
    const double each = s->of->small ? s->n_bytes : s->n_bytes / m->ranks / m->n_hosts;
    *n_messages = peers * ceil(each / DT_REDUCE_MESSAGE_BYTES);
    return peers * each;
}

static void comm_model_begin_phase(model *m, slot *s) {
    const double e = s->n_bytes, p = m->ranks, copy = m->f.copy_bytes_s;
    double n_messages, sent; // bytes of a segment, ranks of a host
    while (s->phase < s->of->end_phase && !phase_works(m, s)) s->phase++;
    if (s->phase >= s->of->end_phase) s->phase = PHASES;
    switch (s->phase) {
    case REDUCE_INSIDE:
        // copies all slices but its own to shared memory
        comm_model_work(m, (s->of->small ? e : e * (p - 1) / p) / copy);
        s->done_s = *m->now_s;
        break;
    case REDUCE_ACROSS:
    case GATHER_ACROSS:
        sent = bytes_across(m, s, &n_messages);
        comm_model_work(m, sent / m->f.tcp_bytes_s + n_messages * MESSAGE_S);
        // a host's ranks share its link: their bytes queue
        m->link_free_s = fmax(m->link_free_s, *m->now_s) + sent * p / m->f.host_bytes_s;
        s->done_s = m->link_free_s + m->f.latency_s;
        break;
    case GATHER_INSIDE:
        comm_model_work(m, e / p / copy); // gives the slice that it owns
        s->done_s = *m->now_s;
        break;
    case PHASES:
        s->of->n_done++;
        s->of = NULL;
        break;
    }
}

static void end_phase(model *m, const slot *s) {
    const double e = s->n_bytes, p = m->ranks, copy = m->f.copy_bytes_s;
    double n_messages, got;
    switch (s->phase) {
    case REDUCE_INSIDE: // adds its slice of all ranks
        comm_model_work(m, (s->of->small ? e * p : e * (1 + 1 / p)) / copy);
        break;
    case REDUCE_ACROSS:
    case GATHER_ACROSS:
        got = bytes_across(m, s, &n_messages);
        comm_model_work(m, got / m->f.tcp_bytes_s + n_messages * MESSAGE_S);
        if (s->phase == REDUCE_ACROSS) comm_model_work(m, got / copy);
        break;
    case GATHER_INSIDE:
        comm_model_work(m, e * (p - 1) / p / copy); // takes the slices of the other ranks
        break;
    }
}

static void comm_model_fill_slots(model *m) {
    for (int k = 0; k < DT_REDUCE_SLOTS; k++) {
        slot *s = &m->slots[k];
        reduction *first = NULL;
        if (s->of) continue;
        // oldest first, as all ranks start reductions in the same order
        for (int i = 0; i < m->n_reductions && !first; i++)
            if (m->reductions[i]->taken && m->reductions[i]->n_entered < m->reductions[i]->n_segments)
                first = m->reductions[i];
        if (!first) return;
        const int64_t left = first->n - first->n_entered++ * m->segment; // the last segment may be shorter
        *s = (slot){.of = first,
                    .phase = first->first_phase,
                    .n_bytes = (double)(left < m->segment ? left : m->segment) * first->element_bytes};
        comm_model_begin_phase(m, s);
    }
}

static dt_status progress(dt_comm *c) {
    model *m = c->self;
    for (int k = 0; k < DT_REDUCE_SLOTS; k++) {
        slot *s = &m->slots[k];
        if (!s->of || s->done_s > *m->now_s) continue; // never blocks: a phase that ends later stays
        end_phase(m, s);
        s->phase++;
        comm_model_begin_phase(m, s);
    }
    comm_model_fill_slots(m);
    return DT_OK;
}

// The clock goes on to what ends next.
static void pass_time(model *m) {
    double next = INFINITY; // INFINITY: no segment is on its way
    for (int k = 0; k < DT_REDUCE_SLOTS; k++)
        if (m->slots[k].of) next = fmin(next, m->slots[k].done_s);
    if (isfinite(next)) *m->now_s = fmax(*m->now_s, next); // the clock never goes back
}

// ---- NCCL ------------------------------------------------------------------------------------------

// Of the protocols LL128 and Simple: NCCL's latencies of a call, of a hop over NVLink, of one over the network; the share
// of the links that payload gets.
typedef struct protocol {
    double base_s, nvlink_s, network_s, share;
} protocol;

// the cheaper of ring and tree, and of both protocols, as NCCL's tuner chooses
static double nccl_seconds(const model *m, double n_bytes) {
    static const protocol ring[] = {{14.0e-6, 1.9e-6, 4.0e-6, 0.92}, {8.4e-6, 3.4e-6, 14.0e-6, 1}};
    static const protocol tree[] = {{14.0e-6, 1.25e-6, 8.5e-6, 0.85}, {8.4e-6, 4.0e-6, 14.0e-6, 0.92}};
    const double w = m->world_size, h = m->n_hosts, p = m->ranks; // ranks, hosts, ranks per host
    const double rate = h == 1   ? m->f.gpu_bytes_s
                        : p == 1 ? m->f.host_bytes_s
                                 : fmin(m->f.gpu_bytes_s, m->f.host_bytes_s);
    double least = INFINITY;
    for (int k = 0; k < 2; k++) {
        const protocol *r = &ring[k], *t = &tree[k];
        // ring: 2 (W - 1) hops, of them 2 (H - 1) over the network
        least = fmin(least, r->base_s + 2 * (w - h) * r->nvlink_s + 2 * (h - 1) * r->network_s +
                                2 * (w - 1) / w * n_bytes / (r->share * rate));
        // double binary tree: depth log2 H across, a chain inside a host
        least = fmin(least, t->base_s + 2 * ((p - 1) * t->nvlink_s + ceil(log2(h)) * t->network_s) +
                                2 * n_bytes / (t->share * rate));
    }
    return least;
}

// ---- of dt_comm --------------------------------------------------------------------------------------

static reduction *comm_model_take(model *m, int *id) {
    for (*id = 0; *id < m->n_reductions; ++*id)
        if (!m->reductions[*id]->taken)
            return m->reductions[*id]; // reuses the entry of a reduction that was waited for
    m->reductions = dt_xgrow(m->reductions, (size_t)m->n_reductions, sizeof *m->reductions);
    m->n_reductions++;
    return m->reductions[*id] = dt_xcalloc(1, sizeof **m->reductions);
}

static void comm_model_start(model *m, dt_reduce_steps steps, int64_t n, int element_bytes, dt_request *request) {
    request->id = -1;
    if (m->world_size == 1 || n == 0) return; // like comm_mpi: complete at once
    reduction *r = comm_model_take(m, &request->id);
    const int64_t n_bytes = n * element_bytes;
    *r = (reduction){.taken = true,
                     .first_phase = steps & DT_REDUCE_SCATTER ? REDUCE_INSIDE : GATHER_ACROSS,
                     .end_phase = steps & DT_ALL_GATHER ? PHASES : GATHER_ACROSS,
                     .n = n,
                     .element_bytes = element_bytes};
    if (m->f.gpus) {
        const double share = steps == DT_ALL_REDUCE ? 1 : 0.5; // a reduce-scatter or all-gather is half an all-reduce
        // calls of one stream run one after another
        m->link_free_s = fmax(m->link_free_s, *m->now_s) + share * nccl_seconds(m, (double)n_bytes);
        r->done_s = m->link_free_s;
        return;
    }
    r->small = steps == DT_ALL_REDUCE && dt_reduce_is_small(n_bytes, m->world_size);
    r->n_segments = (n + m->segment - 1) / m->segment;
    comm_model_fill_slots(m);
}

static dt_status reduce_start(dt_comm *c, const dt_reduction *x, dt_request *r) {
    comm_model_start(c->self, x->steps, x->n, x->bf16 ? 2 : 4, r);
    return DT_OK;
}

static dt_status wait_for(dt_comm *c, dt_request *request) {
    model *m = c->self;
    if (request->id < 0) return DT_OK;
    reduction *r = m->reductions[request->id];
    if (m->f.gpus) *m->now_s = fmax(*m->now_s, r->done_s);
    while (!m->f.gpus && r->n_done < r->n_segments) {
        pass_time(m);
        progress(c); // cannot fail: no peer, no allocation
    }
    r->taken = false;
    request->id = -1;
    return DT_OK;
}

static dt_status all_reduce_f64(dt_comm *c, double *data, int64_t n) {
    dt_request r;
    comm_model_start(c->self, DT_ALL_REDUCE, n, 8, &r); // 8 bytes per element
    return wait_for(c, &r);
}

// A blocking message to or from a rank: of the elastic tree.
static dt_status exchange(dt_comm *c, int64_t n, int peer) {
    model *m = c->self;
    const double n_bytes = 4.0 * (double)n;
    if (peer / m->ranks == 0) {                              // rank 0's host: shared memory
        comm_model_work(m, 2 * n_bytes / m->f.copy_bytes_s); // one copy in, one out
    } else {
        comm_model_work(m, n_bytes / m->f.tcp_bytes_s); // CPU of the TCP stack, then the wire
        *m->now_s += n_bytes / m->f.host_bytes_s + m->f.latency_s;
    }
    return DT_OK;
}

static dt_status send_f32(dt_comm *c, const float *data, int64_t n, int to) {
    return exchange(c, n, to);
}
static dt_status recv_f32(dt_comm *c, float *data, int64_t n, int from) {
    return exchange(c, n, from);
}

// Parts go from the root to a rank of each host, which exchange them, and then in the same way on each host.
static dt_status broadcast_bytes(dt_comm *c, void *data, size_t n_bytes, int root) {
    model *m = c->self;
    const double n = (double)n_bytes;
    if (m->n_hosts > 1) *m->now_s += 2 * (n / m->f.host_bytes_s + m->f.latency_s); // a scatter, then an all-gather
    if (m->n_hosts > 1 && !m->f.gpus) comm_model_work(m, 2 * n / m->f.tcp_bytes_s);
    if (m->ranks > 1) comm_model_work(m, 2 * n / m->f.copy_bytes_s);
    return DT_OK;
}

static dt_status finalize(dt_comm *c) {
    model *m = c->self;
    for (int i = 0; i < m->n_reductions; i++) free(m->reductions[i]);
    free(m->reductions);
    return DT_OK;
}

dt_status dt_comm_create_model(dt_comm **out, const dt_fabric *f, int world_size, double slow, double *now_s) {
    dt_comm *c = dt_xcalloc(1, sizeof *c);
    model *m = dt_xcalloc(1, sizeof *m);
    m->f = *f;
    if (m->f.tcp_bytes_s <= 0) m->f.tcp_bytes_s = TCP_BYTES_S;
    // as find_hosts of comm_mpi.c counts them
    m->world_size = world_size;
    m->ranks = f->ranks_per_host > 0 && f->ranks_per_host < world_size ? f->ranks_per_host : world_size;
    m->n_hosts = (world_size + m->ranks - 1) / m->ranks;
    m->slow = slow;
    m->now_s = now_s;
    m->segment = dt_reduce_segment(m->n_hosts, m->ranks, m->ranks);
    *c = (dt_comm){.name = "model",
                   .self = m,
                   .world_size = world_size,
                   .local_size = m->ranks,
                   // the same condition as in comm_mpi.c: hosts are subtrees of the fixed tree
                   .sums_by_tree = !f->gpus && (m->n_hosts == 1 || ((m->ranks & (m->ranks - 1)) == 0 &&
                                                                    m->ranks * m->n_hosts == world_size)),
                   .broadcast_bytes = broadcast_bytes,
                   .all_reduce_f64 = all_reduce_f64,
                   .reduce_start = reduce_start,
                   .progress = progress,
                   .wait = wait_for,
                   .send_f32 = send_f32,
                   .recv_f32 = recv_f32,
                   .finalize = finalize};
    *out = c;
    return DT_OK;
}
