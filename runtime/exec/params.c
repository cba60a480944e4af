// params.c: flat buffers, the offset table, initial values and packed copies. See params.h for the
// picture.
//
// Packed copies are kept in a small table of (key, memory, pack function). The function and its
// context belong to the kernel instance that registered the copy first; plans therefore live as long as their params.

#include "exec/params.h"

#include "base/hash.h"
#include "base/rng.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

typedef struct packed_copy {
    uint64_t key;
    size_t n_bytes;
    void *memory;
    int n_params;
    struct {
        bool there, in_buffer;
        int entry; // of entries or buffers
    } from[6];
    const float *dense[6]; // there, once it is placed
    dt_pack_form form;
    bool read_in_step; // a graph with gradients reads it
    bool in_step;      // and a parameter of it is trained: each commit packs it again
    bool taken;        // the optimizer keeps it up to date
    void (*pack)(const void *ctx, const float *const *dense, void *packed, int threads, void *stream);
    const void *ctx;
} packed_copy;

struct dt_params_packs {
    packed_copy *items;
    int n, cap;
    int n_placed;          // of the items, the first ones
    dt_flat_buffer *flats; // one a plan that brought new ones
    int n_flats;
    size_t total_bytes, step_bytes; // of all copies; of those that are in_step
    int64_t step;                   // dt_params_begin
};

static void params_add_entry(dt_params *p, dt_param_entry *list, int *n, int64_t *cursor, const dt_value_info *v) {
    dt_param_entry *e = &list[(*n)++];
    e->name = dt_arena_strdup(&p->arena, v->name);
    e->shape = v->shape;
    e->offset = *cursor;
    e->count = dt_shape_elements(&v->shape);
    e->decay = v->decay;
    e->init = v->init;
    e->data = v->init.kind == DT_INIT_DATA ? v->data : NULL;
    e->lr_scale = e->decay_scale = 1.0f;
    *cursor += dt_flat_extent(e->count); // to the next boundary of vectors and pieces: gaps stay zero
}

// Parameters that nothing trains, and buffers: the network's, or a teacher's.
static void add_untrained(dt_params *p, const dt_graph *g, const bool *done, bool teacher, int *n_entries,
                          int *n_buffers) {
    for (dt_value v = 0; v < g->n_values; v++) {
        const dt_value_info *info = &g->values[v];
        if (info->teacher != teacher) continue;
        if (info->kind == DT_V_PARAM && !done[v]) {
            params_add_entry(p, p->entries, n_entries, &p->n_master, info);
            if (teacher) p->entries[*n_entries - 1].thaw = INT64_MAX;
        }
        if (info->kind == DT_V_BUFFER) params_add_entry(p, p->buffers, n_buffers, &p->n_buffer, info);
    }
}

// Trained parameters in the order in which backward finishes them; parameters that nothing trains
// (inference graphs, frozen ones) follow in graph order.
static void fill_entries(dt_params *p, const dt_graph *g) {
    bool *done = dt_arena_alloc(&p->arena, (size_t)g->n_values + 1);
    p->entries = dt_arena_alloc(&p->arena, sizeof(dt_param_entry) * (size_t)(g->n_values + 1));
    p->buffers = dt_arena_alloc(&p->arena, sizeof(dt_param_entry) * (size_t)(g->n_values + 1));
    p->stats = dt_arena_alloc(&p->arena, sizeof(dt_stat_entry) * (size_t)(g->n_values + 1));
    for (int i = 0; i < g->n_grads; i++) {
        dt_value v = g->values[g->grads[i]].param;
        done[v] = true;
        params_add_entry(p, p->entries, &p->n_entries, &p->n_master, &g->values[v]);
    }
    p->n_trained = p->n_master;
    p->n_trained_entries = p->n_entries;
    add_untrained(p, g, done, false, &p->n_entries, &p->n_buffers);
    int n_entries = p->n_entries, n_buffers = p->n_buffers;
    add_untrained(p, g, done, true, &n_entries, &n_buffers);
    p->n_teacher_entries = n_entries - p->n_entries;
    p->n_teacher_buffers = n_buffers - p->n_buffers;
    p->n_grad = p->n_trained;
    for (dt_value v = 0; v < g->n_values; v++) {
        if (g->values[v].kind != DT_V_STAT) continue;
        dt_stat_entry *s = &p->stats[p->n_stats++];
        s->name = dt_arena_strdup(&p->arena, g->values[v].name);
        s->offset = p->n_grad;
        s->count = dt_shape_elements(&g->values[v].shape);
        p->n_grad += dt_flat_extent(s->count);
    }
}

static void params_add_flat(dt_params *p, float **flat, int64_t n) {
    if (n == 0) n = dt_flat_extent(1); // a rank that owns nothing of the average has one all the same
    dt_flat_buffer_add(&p->flat, (void **)flat, (size_t)n * sizeof(float));
}

static int64_t n_owned(const dt_params *p) {
    if (p->n_own == 0) return 0;
    const dt_own_range *last = &p->own[p->n_own - 1];
    return last->at + last->end - last->begin;
}

// Slots of as many elements as this rank owns.
static void add_slots(dt_params *p, int n_slots) {
    p->n_slots = n_slots;
    for (int i = 0; i < n_slots; i++) {
        for (int k = 0; k < p->n_trained_entries; k++)
            p->entries[k].slots[i] = (dt_slot_entry){p->entries[k].shape, p->entries[k].offset};
        p->n_slot[i] = n_owned(p);
        params_add_flat(p, &p->slots[i], p->n_slot[i]);
    }
}

void dt_params_add_sharded(dt_params *p, int n_slots, const dt_own_range *own, int n_own) {
    p->sharded = true;
    p->own = dt_arena_alloc(&p->arena, sizeof *own * (size_t)(n_own + 1));
    p->n_own = 0;
    for (int i = 0; i < n_own; i++) {
        const int64_t at = n_owned(p);
        p->own[p->n_own++] = (dt_own_range){own[i].begin, own[i].end, at};
    }
    add_slots(p, n_slots);
}

void dt_params_add_average(dt_params *p) {
    p->n_average = p->sharded ? n_owned(p) : p->n_master;
    params_add_flat(p, &p->average, p->n_average);
    params_add_flat(p, &p->buffer_average, p->n_buffer);
}

static int64_t params_rows_of(const dt_param_entry *e) {
    return e->shape.n > 1 ? e->shape.d[0] : 1;
}

void dt_params_add_factored(dt_params *p) {
    p->n_slots = 2;
    for (int i = 0; i < p->n_trained_entries; i++) {
        dt_param_entry *e = &p->entries[i];
        const bool matrix = e->shape.n > 1;
        const int64_t counts[2] = {matrix ? params_rows_of(e) : e->count, e->count / params_rows_of(e)};
        for (int k = 0; k < 2; k++) {
            e->slots[k] = (dt_slot_entry){{.n = -1}, p->n_slot[k]};
            if (k > 0 && !matrix) continue; // vectors keep a full second moment, in slot 0
            e->slots[k].shape = dt_shape1(counts[k]);
            p->n_slot[k] += dt_flat_extent(counts[k]);
        }
    }
    // Adafactor (Shazeer and Stern, 2018): sums of rows in slot 0, of columns in slot 1
    for (int k = 0; k < 2; k++) params_add_flat(p, &p->slots[k], p->n_slot[k]);
}

// ---- owned masters ---------------------------------------------------------------------------------

// A copy that is one parameter in bf16; and in the order of the flat buffer.
static bool is_rounded(const packed_copy *c) {
    return c->n_params == 1 && c->form.type == DT_BF16;
}
static bool is_in_order(const packed_copy *c) {
    return is_rounded(c) && c->form.n_taps && (c->form.n_in == 1 || c->form.n_taps == 1);
}

// Whether kernels read `working` of a parameter.
static bool is_rounded_entry(const dt_params *p, const dt_param_entry *e) {
    return e < p->entries + p->n_trained_entries && !e->dense;
}
// Whether the copy lies in `working`.
static bool may_be_working(const dt_params *p, const packed_copy *c) {
    return is_in_order(c) && !c->from[0].in_buffer && is_rounded_entry(p, &p->entries[c->from[0].entry]);
}
static bool is_working(const dt_params *p, const packed_copy *c) {
    return p->own_masters && may_be_working(p, c);
}

static const dt_param_entry *find_at(const dt_params *p, int64_t offset) {
    const dt_param_entry *e = p->entries;
    while (e->offset != offset) e++;
    return e;
}

void dt_params_read_dense(dt_params *p, int64_t offset) {
    p->entries[find_at(p, offset) - p->entries].dense = true;
}

float *dt_params_dense(const dt_params *p, int64_t offset) {
    if (!p->own_masters) return p->master + offset;
    const dt_param_entry *e = find_at(p, offset);
    return is_rounded_entry(p, e) ? NULL : p->dense + e->dense_at;
}

// What a copy is packed from.
static const float *pack_source(const dt_params *p, const dt_param_entry *e) {
    const float *dense = dt_params_dense(p, e->offset);
    return dense ? dense : p->grads[0] + e->offset;
}

static int64_t dense_elements(const dt_params *p) {
    int64_t n = 0;
    for (int i = 0; i < p->n_trained_entries; i++)
        if (p->entries[i].dense) n += dt_flat_extent(p->entries[i].count);
    return n;
}

size_t dt_params_owned_bytes(const dt_params *p, int n_ranks, size_t *packed) {
    const int64_t n_dense = dense_elements(p), fixed = p->n_master - p->n_trained;
    const int64_t own = p->own_masters ? n_owned(p) : (p->n_trained + n_ranks - 1) / n_ranks;
    *packed = p->packs->total_bytes;
    for (int i = 0; i < p->packs->n; i++)
        if (may_be_working(p, &p->packs->items[i])) *packed -= p->packs->items[i].n_bytes;
    return (size_t)p->n_trained * sizeof *p->working + (size_t)(own + 2 * n_dense + fixed) * sizeof(float);
}

void dt_params_own_masters(dt_params *p, dt_status (*gather)(void *ctx, float *x, int64_t n), void *ctx) {
    p->gather = gather;
    p->gather_ctx = ctx;
    for (dt_param_entry *e = p->entries; e < p->entries + p->n_trained_entries; e++) {
        e->dense_at = p->n_dense;
        if (e->dense) p->n_dense += dt_flat_extent(e->count);
    }
    for (int i = p->n_trained_entries; i < p->n_entries + p->n_teacher_entries; i++)
        p->entries[i].dense_at = p->n_dense + p->entries[i].offset - p->n_trained;
    p->n_owned = n_owned(p);
    params_add_flat(p, &p->master, p->n_owned);
    params_add_flat(p, &p->dense, p->n_dense + p->n_master - p->n_trained);
    params_add_flat(p, &p->own_dense, p->n_dense);
    dt_flat_buffer_add(&p->flat, (void **)&p->working, (size_t)p->n_trained * sizeof *p->working);
}

static void params_write(dt_params *p, float *to, const float *from, int64_t n) {
    if (n > 0) p->backend->copy_to_device(p->backend, to, from, (size_t)n * sizeof *to);
}

// -0 is what a sum leaves as it is, be it 0 or -0.
static void init_own_dense(dt_params *p) {
    float *nothing = dt_xcalloc((size_t)p->n_dense + 1, sizeof *nothing);
    for (int64_t i = 0; i < p->n_dense; i++) nothing[i] = -0.0f;
    params_write(p, p->own_dense, nothing, p->n_dense);
    free(nothing);
}

static void params_convert(dt_params *p, const void *from, dt_dtype type, void *to, dt_dtype to_type, int64_t n,
                           void *stream) {
    const dt_shape shape = dt_shape1(n);
    if (n > 0) p->backend->reorder(p->backend, 1, &shape, from, type, dt_dense(), to, to_type, dt_dense(), stream);
}

// What this rank owns of own_dense.
static void fill_own_dense(dt_params *p, dt_own_range x, void *stream) {
    for (int i = 0; i < p->n_trained_entries; i++) {
        const dt_param_entry *e = &p->entries[i];
        const int64_t from = e->offset > x.begin ? e->offset : x.begin;
        const int64_t to = e->offset + e->count < x.end ? e->offset + e->count : x.end;
        if (e->dense)
            params_convert(p, p->master + x.at + from - x.begin, DT_F32, p->own_dense + e->dense_at + from - e->offset,
                           DT_F32, to - from, stream);
    }
}

void dt_params_queue_dense(dt_params *p, void *stream) {
    params_convert(p, p->own_dense, DT_F32, p->dense, DT_F32, p->n_dense, stream);
}

void dt_params_queue_expand(dt_params *p, void *stream) {
    for (int i = 0; i < p->n_trained_entries; i++) {
        const dt_param_entry *e = &p->entries[i];
        // the gradient of what is frozen stays zero
        if (e->expands && !e->dense && e->thaw <= p->packs->step)
            params_convert(p, p->working + e->offset, DT_BF16, p->grads[0] + e->offset, DT_F32, e->count, stream);
    }
}

// All masters into the gradient buffer, and from there what kernels read.
static void gather_masters(dt_params *p) {
    void *stream = p->backend->device->stream;
    float *all = p->grads[0];
    for (const dt_own_range *r = p->own; r < p->own + p->n_own; r++) {
        fill_own_dense(p, *r, stream);
        params_convert(p, p->master + r->at, DT_F32, all + r->begin, DT_F32, r->end - r->begin, stream);
    }
    (void)p->gather(p->gather_ctx, all, p->n_trained); // a communicator that fails stays so: the first step reports it
    params_convert(p, all, DT_F32, p->working, DT_BF16, p->n_trained, stream);
    for (const dt_param_entry *e = p->entries; e < p->entries + p->n_trained_entries; e++)
        if (e->dense) params_convert(p, all + e->offset, DT_F32, p->dense + e->dense_at, DT_F32, e->count, stream);
}

// The gradients that no plan writes are zeros again.
static void clear_frozen(dt_params *p) {
    for (const dt_param_entry *e = p->entries; e < p->entries + p->n_trained_entries; e++) {
        if (e->thaw <= p->packs->step) continue;
        float *zeros = dt_xcalloc((size_t)e->count + 1, sizeof *zeros);
        params_write(p, p->grads[0] + e->offset, zeros, e->count);
        free(zeros);
    }
}

// Before memory of a device is allocated: the message names what does not fit, by kind, and what can help.
static dt_status check_memory(const dt_params *p) {
    const double mib = 1.0 / 1048576.0;
    size_t free_bytes = 0, total_bytes = 0;
    if (!p->backend->device) return DT_OK;
    p->backend->device->memory(p->backend, &free_bytes, &total_bytes);
    if (p->flat.n_bytes <= free_bytes) return DT_OK; // activations come later, with the plan
    const double weights = (double)((p->own_masters ? 0 : p->n_master) + p->n_buffer) * sizeof(float) * mib;
    return dt_fail(
        DT_E_USAGE,
        "this network does not fit the GPU: its weights take %.1f MiB, the optimizer state %.1f and gradients %.1f, "
        "together %.1f of which %.1f are free; a smaller micro-batch does not change that. Take a smaller network%s%s",
        weights, (double)(p->n_slot[0] + p->n_slot[1]) * sizeof(float) * mib,
        (double)p->n_grad * p->n_grads * sizeof(float) * mib, (double)p->flat.n_bytes * mib, (double)free_bytes * mib,
        p->n_slots > 1 ? ", an optimizer with less state (train.optimizer.name)" : "",
        p->n_grads > 1 ? ", or run.reproducible=resume (one flat buffer of gradients)" : "");
}

dt_status dt_params_lay_out(dt_params **out, const dt_graph *g, dt_backend *b, int n_slots, int n_grad_buffers,
                            bool own_masters) {
    dt_params *p = dt_xcalloc(1, sizeof *p);
    dt_arena_init(&p->arena);
    p->backend = b;
    p->packs = dt_xcalloc(1, sizeof *p->packs);
    fill_entries(p, g);
    p->own_masters = own_masters;
    if (!own_masters) params_add_flat(p, &p->master, p->n_master);
    params_add_flat(p, &p->buffer, p->n_buffer);
    p->own = dt_arena_alloc(&p->arena, sizeof *p->own);
    p->own[p->n_own++] = (dt_own_range){0, p->n_trained, 0}; // all, until dt_params_add_sharded
    add_slots(p, n_slots);
    p->grads = dt_arena_alloc(&p->arena, sizeof(float *) * (size_t)(n_grad_buffers + 1));
    p->n_grads = n_grad_buffers;
    for (int i = 0; i < n_grad_buffers; i++) params_add_flat(p, &p->grads[i], p->n_grad);
    // sizes are known and nothing is allocated: what does not fit is named before
    const dt_status st = check_memory(p);
    if (st != DT_OK) {
        dt_params_destroy(p);
        return st;
    }
    *out = p;
    return DT_OK;
}

dt_status dt_params_take(dt_params *p) {
    DT_TRY(dt_flat_buffer_alloc_shared(&p->flat, p->backend, "weights, optimizer state and gradients"));
    p->taken = true;
    init_own_dense(p);
    return dt_params_place_packs(p);
}

dt_status dt_params_create(dt_params **out, const dt_graph *g, dt_backend *b, int n_slots, int n_grad_buffers) {
    dt_params *p = NULL;
    DT_TRY(dt_params_lay_out(&p, g, b, n_slots, n_grad_buffers, false));
    const dt_status st = dt_params_take(p);
    if (st != DT_OK) {
        dt_params_destroy(p);
        return st;
    }
    *out = p;
    return DT_OK;
}

void dt_params_plan_work(dt_params *p, size_t n_bytes, int n_replicas) {
    if (n_bytes > p->work_bytes) p->work_bytes = n_bytes;
    if (n_replicas <= p->n_work) return;
    p->work = dt_xrealloc(p->work, sizeof *p->work * (size_t)n_replicas);
    memset(p->work + p->n_work, 0, sizeof *p->work * (size_t)(n_replicas - p->n_work));
    p->n_work = n_replicas;
}

dt_status dt_params_take_work(dt_params *p, size_t n_bytes, int replica, char **out) {
    dt_flat_buffer *w = &p->work[replica];
    void *memory; // set by the allocation, and again below
    *out = NULL;
    if (!w->memory) {
        dt_flat_buffer_add(w, &memory, p->work_bytes);
        DT_TRY(dt_flat_buffer_alloc(w, p->backend, "activations"));
    }
    if (n_bytes <= w->n_bytes) *out = w->memory;
    return DT_OK;
}

void dt_params_destroy(dt_params *p) {
    if (!p) return;
    for (int i = 0; i < p->n_work; i++) dt_flat_buffer_free(&p->work[i]);
    free(p->work);
    for (int i = 0; i < p->packs->n_flats; i++) dt_flat_buffer_free(&p->packs->flats[i]);
    free(p->packs->flats);
    free(p->packs->items);
    free(p->packs);
    dt_flat_buffer_free(&p->flat);
    dt_arena_fini(&p->arena);
    free(p);
}

static void init_entry(const dt_param_entry *e, uint64_t seed, float *x) {
    const dt_rng r = {seed, 0, 0, dt_hash32(e->name)}; // by name: the same in any order of layers, on any backend
    const float s = e->init.scale;
    const size_t n = (size_t)e->count;
    switch (e->init.kind) {
    case DT_INIT_DATA:
        if (e->data) memcpy(x, e->data, n * sizeof *x); // none in inference: a checkpoint follows
        break;
    case DT_INIT_ZERO:
        break;
    case DT_INIT_CONSTANT:
        for (size_t i = 0; i < n; i++) x[i] = s;
        break;
    case DT_INIT_NORMAL:
        dt_rng_normals(&r, x, n);
        for (size_t i = 0; i < n; i++) x[i] *= s;
        break;
    case DT_INIT_UNIFORM:
        dt_rng_uniforms(&r, x, n);
        for (size_t i = 0; i < n; i++) x[i] = s * (2.0f * x[i] - 1.0f); // [0, 1) to [-s, s)
        break;
    }
}

// `flat` is zeroed memory.
static void init_flat(dt_params *p, const dt_param_entry *entries, int n, uint64_t seed, float *flat,
                      int64_t n_elements) {
    const bool device = p->backend->device != NULL;
    // computed on the host, so that a GPU begins with the same bits
    float *host = device ? dt_xcalloc((size_t)n_elements + 1, sizeof(float)) : flat;
    for (int i = 0; i < n; i++) init_entry(&entries[i], seed, host + entries[i].offset);
    if (!device) return;
    p->backend->copy_to_device(p->backend, flat, host, (size_t)n_elements * sizeof(float));
    free(host);
}

// Owned masters: what this rank has of all initial values.
static void init_owned(dt_params *p, uint64_t seed) {
    float *all = dt_xcalloc((size_t)p->n_master + 1, sizeof *all);
    for (int i = 0; i < p->n_entries + p->n_teacher_entries; i++)
        init_entry(&p->entries[i], seed, all + p->entries[i].offset);
    for (const dt_own_range *r = p->own; r < p->own + p->n_own; r++)
        params_write(p, p->master + r->at, all + r->begin, r->end - r->begin);
    params_write(p, p->dense + p->n_dense, all + p->n_trained, p->n_master - p->n_trained);
    free(all);
}

void dt_params_init(dt_params *p, uint64_t seed) {
    if (p->own_masters)
        init_owned(p, seed);
    else
        init_flat(p, p->entries, p->n_entries + p->n_teacher_entries, seed, p->master, p->n_master);
    init_flat(p, p->buffers, p->n_buffers + p->n_teacher_buffers, seed, p->buffer, p->n_buffer);
}

int dt_params_find(const dt_params *p, const char *name, bool buffer) {
    const dt_param_entry *list = buffer ? p->buffers : p->entries;
    int n = buffer ? p->n_buffers + p->n_teacher_buffers : p->n_entries + p->n_teacher_entries;
    for (int i = 0; i < n; i++)
        if (strcmp(list[i].name, name) == 0) return i;
    return -1;
}

int dt_params_find_stat(const dt_params *p, const char *name) {
    for (int i = 0; i < p->n_stats; i++)
        if (strcmp(p->stats[i].name, name) == 0) return i;
    return -1;
}

// Whether one of the parameters in a copy is trained at the step of dt_params_begin.
static bool changes(const dt_params *p, const packed_copy *c) {
    for (int i = 0; i < c->n_params; i++) {
        const int entry = c->from[i].entry;
        if (!c->from[i].there) continue;
        if (c->from[i].in_buffer) return true; // running statistics move with each commit
        if (entry < p->n_trained_entries && p->entries[entry].thaw <= p->packs->step) return true;
    }
    return false;
}

static void note_step_copy(dt_param_entry *e, const packed_copy *c) {
    e->dense |= !is_rounded(c);
    e->expands |= !is_in_order(c);
}

static void read_in_step(dt_params *p, int id, const dt_graph *g) {
    packed_copy *c = &p->packs->items[id];
    // an evaluation graph's copies are packed before evaluations, not in each step
    if (g->n_grads > 0) c->read_in_step = true;
    for (int i = 0; c->read_in_step && i < c->n_params; i++)
        if (c->from[i].there && !c->from[i].in_buffer) note_step_copy(&p->entries[c->from[i].entry], c);
    if (!c->read_in_step || c->in_step || !changes(p, c)) return;
    c->in_step = true;
    p->packs->step_bytes += c->n_bytes;
}

void dt_params_begin(dt_params *p, int64_t step) {
    struct dt_params_packs *packs = p->packs;
    packs->step = step;
    packs->step_bytes = 0; // thawed parameters join: counted anew
    for (int i = 0; i < packs->n; i++) {
        packed_copy *c = &packs->items[i];
        c->in_step = c->read_in_step && changes(p, c);
        if (c->in_step) packs->step_bytes += c->n_bytes;
    }
}

dt_status dt_params_register_pack(dt_params *p, const dt_graph *g, const dt_pack_request *r, int *id) {
    struct dt_params_packs *packs = p->packs;
    for (int i = 0; i < packs->n; i++) {
        // training and evaluation share what they read in the same form
        if (packs->items[i].key == r->key && packs->items[i].n_bytes == r->n_bytes) {
            *id = i;
            read_in_step(p, i, g);
            return DT_OK;
        }
    }
    packed_copy c = {
        .key = r->key, .n_bytes = r->n_bytes, .n_params = r->n_params, .form = r->form, .pack = r->pack, .ctx = r->ctx};
    assert(r->n_params <= (int)(sizeof c.dense / sizeof c.dense[0]));
    for (int i = 0; i < r->n_params; i++) {
        if (r->params[i] == DT_NONE) continue; // a bias that the layer lacks
        const dt_value_info *v = &g->values[r->params[i]];
        c.from[i].there = true;
        c.from[i].in_buffer = v->kind == DT_V_BUFFER;
        c.from[i].entry = dt_params_find(p, v->name, c.from[i].in_buffer);
        if (c.from[i].entry < 0)
            return dt_fail(DT_E_INTERNAL, "parameter '%s' of the plan is not in the parameters", v->name);
    }
    if (packs->n == packs->cap) {
        packs->cap = packs->cap ? packs->cap * 2 : 64;
        packs->items = dt_xrealloc(packs->items, sizeof(packed_copy) * (size_t)packs->cap);
    }
    packs->total_bytes += r->n_bytes;
    packs->items[packs->n] = c;
    *id = packs->n++;
    read_in_step(p, *id, g);
    return DT_OK;
}

dt_status dt_params_place_packs(dt_params *p) {
    struct dt_params_packs *packs = p->packs;
    if (!p->taken || packs->n_placed == packs->n) return DT_OK;
    // a flat buffer for what this plan brought: earlier copies do not move, execs hold their addresses
    packs->flats = dt_xrealloc(packs->flats, sizeof *packs->flats * (size_t)(packs->n_flats + 1));
    dt_flat_buffer *flat = &packs->flats[packs->n_flats++];
    *flat = (dt_flat_buffer){0};
    for (; packs->n_placed < packs->n; packs->n_placed++) {
        packed_copy *c = &packs->items[packs->n_placed];
        if (is_working(p, c))
            c->memory = p->working + p->entries[c->from[0].entry].offset;
        else
            dt_flat_buffer_add(flat, &c->memory, c->n_bytes);
        for (int i = 0; i < c->n_params; i++)
            if (c->from[i].there)
                c->dense[i] = c->from[i].in_buffer ? p->buffer + p->buffers[c->from[i].entry].offset
                                                   : pack_source(p, &p->entries[c->from[i].entry]);
    }
    return dt_flat_buffer_alloc(flat, p->backend, "packed weights");
}

void *dt_params_packed(const dt_params *p, int id) {
    return p->packs->items[id].memory;
}

void dt_params_repack_part(dt_params *p, int part, int n_parts) {
    // Copies are divided by bytes: copy i belongs to the part in which its middle byte falls.
    size_t before = 0;
    for (int i = 0; i < p->packs->n; i++) {
        const packed_copy *c = &p->packs->items[i];
        if (!c->in_step) continue;
        size_t middle = before + c->n_bytes / 2;
        before += c->n_bytes;
        int owner = (int)((double)middle / (double)p->packs->step_bytes * n_parts); // threads of a rank
        if (owner >= n_parts) owner = n_parts - 1;
        if (owner == part) c->pack(c->ctx, c->dense, c->memory, 1, NULL); // on this thread alone
    }
}

static void repack(dt_params *p, bool all) {
    const dt_device *d = p->backend->device;
    if (p->own_masters) gather_masters(p);
    for (int i = 0; i < p->packs->n; i++) {
        const packed_copy *c = &p->packs->items[i];
        if ((all || c->read_in_step) && !is_working(p, c))
            c->pack(c->ctx, c->dense, c->memory, 1, d ? d->stream : NULL);
    }
    if (d) d->synchronize(p->backend, d->stream); // an error stays with it: the first step reports it
    if (p->own_masters) clear_frozen(p);
}

void dt_params_repack(dt_params *p) {
    repack(p, true);
}

void dt_params_repack_step(dt_params *p) {
    repack(p, false);
}

void dt_params_repack_queue(dt_params *p, void *stream) {
    for (int i = 0; i < p->packs->n; i++) {
        const packed_copy *c = &p->packs->items[i];
        // behind the optimizer, on its stream
        if (c->in_step && !c->taken && !is_working(p, c)) c->pack(c->ctx, c->dense, c->memory, 1, stream);
    }
}

dt_commit_copy *dt_params_take_copies(dt_params *p, int *n) {
    dt_commit_copy *copies = dt_xcalloc((size_t)p->n_entries + 1, sizeof *copies);
    *n = 0;
    for (int i = 0; p->own_masters && i < p->n_trained_entries; i++) {
        const dt_param_entry *e = &p->entries[i];
        void *to = e->dense ? (void *)(p->own_dense + e->dense_at) : p->working + e->offset;
        copies[(*n)++] = (dt_commit_copy){e->offset, e->count, to, {e->dense ? DT_F32 : DT_BF16, 1, 1}};
    }
    for (int i = 0; !p->own_masters && i < p->n_entries; i++) {
        const dt_param_entry *e = &p->entries[i];
        packed_copy *c = p->packs->items, *end = c + p->packs->n;
        // a form that the optimizer's kernel can write (n_taps), of exactly this entry
        while (c < end && !(c->form.n_taps && c->dense[0] == p->master + e->offset)) c++;
        if (c == end) continue;
        c->taken = true; // dt_params_repack_queue leaves the copy alone
        copies[(*n)++] = (dt_commit_copy){e->offset, e->count, c->memory, c->form};
    }
    return copies;
}

dt_segment *dt_params_segments(const dt_params *p, int64_t step, float weight_decay, bool norms, bool always, int *n) {
    dt_segment *s = dt_xcalloc((size_t)p->n_trained_entries + 1, sizeof *s);
    *n = 0;
    for (int i = 0; i < p->n_trained_entries; i++) {
        const dt_param_entry *e = &p->entries[i];
        // norms and biases do not decay
        const float decay = e->decay ? weight_decay * e->decay_scale : 0.0f;
        const bool frozen = e->thaw > step; // unfreezes at step `thaw`
        const bool scaled = norms && !frozen && dt_optimizer_scales(decay, always);
        // a segment may cover the gap behind an entry, which stays zero, but a norm may not count the gap's elements
        const dt_segment one = {.offset = e->offset,
                                .length = scaled ? e->count : dt_flat_extent(e->count),
                                .lr_scale = e->lr_scale,
                                .decay = decay,
                                .start = e->thaw,
                                .frozen = frozen,
                                .scaled = scaled};
        dt_segment *last = *n > 0 ? &s[*n - 1] : NULL;
        if (last && !last->scaled && !scaled && last->lr_scale == one.lr_scale && last->decay == decay &&
            last->start == one.start && last->frozen == frozen)
            last->length += one.length; // fewer, longer segments: an optimizer's loop runs over each
        else
            s[(*n)++] = one;
    }
    return s;
}

dt_factored *dt_params_factored(const dt_params *p, int64_t step, int *n, int64_t *n_sums) {
    dt_factored *t = dt_xcalloc((size_t)p->n_trained_entries + 1, sizeof *t);
    *n = p->n_trained_entries;
    *n_sums = 0;
    for (int i = 0; i < *n; i++) {
        const dt_param_entry *e = &p->entries[i];
        t[i] = (dt_factored){.offset = e->offset,
                             .rows = params_rows_of(e),
                             .cols = e->count / params_rows_of(e),
                             .at = {e->slots[0].offset, e->slots[1].offset},
                             .vector = e->shape.n <= 1,
                             .sums = *n_sums,
                             .lr_scale = e->lr_scale,
                             .frozen = e->thaw > step,
                             .start = e->thaw};
        *n_sums += t[i].cols; // a sum for each column of all tensors
    }
    return t;
}

dt_clip_tensor *dt_params_clip_tensors(const dt_params *p, int *n) {
    dt_clip_tensor *t = dt_xcalloc((size_t)p->n_trained_entries + 1, sizeof *t);
    int64_t first = 0; // row of all tensors, numbered through
    *n = p->n_trained_entries;
    for (int i = 0; i < *n; i++) {
        const dt_param_entry *e = &p->entries[i];
        const int64_t rows = params_rows_of(e);
        t[i] = (dt_clip_tensor){e->offset, e->count / rows, first, rows};
        first += rows;
    }
    return t;
}

size_t dt_params_packed_bytes(const dt_params *p) {
    return p->packs->total_bytes;
}
