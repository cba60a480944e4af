// state.c: see state.h.
#define _GNU_SOURCE // gethostname
#include "run/state.h"

#include "base/core.h"
#include "base/failpoint.h"
#include "base/hash.h"
#include "base/log.h"
#include "run/agree.h"
#include "run/run_state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// A flat buffer of the parameters, and where the host sees it: the same memory, or a copy of a device's.
typedef struct dt_state_flat {
    dt_role role;
    float *flat, *host;
    int64_t n;
    bool sharded; // it has what this rank owns (dt_params.own)
} dt_state_flat;

// ---- slices ----------------------------------------------------------------------------------------

// Adds a buffer of n elements; returns where the host sees it.
static float *state_add_flat(dt_state *s, dt_role role, float *flat, int64_t n, bool sharded) {
    const bool device = s->run->backend->device != NULL;
    // allocated once: saves copy into it without allocating
    float *host = device ? dt_xcalloc((size_t)n + 1, sizeof(float)) : flat;
    s->flats[s->n_flats++] = (dt_state_flat){role, flat, host, n, sharded};
    return host;
}

// A slice of the buffer that was added last.
static void add_slice(dt_state *s, char *name, const char *file, dt_shape shape, int64_t offset) {
    const dt_state_flat *x = &s->flats[s->n_flats - 1];
    s->slices[s->n_slices++] = // sharded: no whole slice on the host
        (dt_state_slice){{name, file, shape, x->sharded ? NULL : x->host + offset}, x->role, s->n_flats - 1, offset};
}

// Owned masters: the weights that are never trained, which every rank has.
static void add_fixed(dt_state *s) {
    const dt_params *p = s->nets->params;
    state_add_flat(s, DT_ROLE_FIXED, p->dense + p->n_dense, p->n_master - p->n_trained, false);
}

static void add_parameters(dt_state *s, bool average, const char *file) {
    const dt_params *p = s->nets->params;
    const bool own = !average && p->own_masters;
    const dt_role roles[2] = {average ? DT_ROLE_AVERAGE : DT_ROLE_WEIGHT,
                              average ? DT_ROLE_AVERAGE_STATISTIC : DT_ROLE_STATISTIC};
    if (own)
        state_add_flat(s, roles[0], p->master, p->n_owned, true);
    else
        state_add_flat(s, roles[0], average ? p->average : p->master, average ? p->n_average : p->n_master,
                       average && p->sharded);
    for (int i = 0; i < p->n_entries; i++) {
        const dt_param_entry *e = &p->entries[i];
        if (own && i == p->n_trained_entries) add_fixed(s);
        add_slice(s, dt_xstrdup(e->name), file, e->shape,
                  e->offset - (own && e->offset >= p->n_trained ? p->n_trained : 0));
    }
    if (own && p->n_entries == p->n_trained_entries) add_fixed(s); // a teacher's
    state_add_flat(s, roles[1], average ? p->buffer_average : p->buffer, p->n_buffer, false);
    for (int i = 0; i < p->n_buffers; i++) {
        const dt_param_entry *e = &p->buffers[i];
        add_slice(s, dt_xstrdup(e->name), file, e->shape, e->offset);
    }
}

static void add_moments(dt_state *s, const char *prefix, int slot) {
    const dt_params *p = s->nets->params;
    state_add_flat(s, DT_ROLE_MOMENT, p->slots[slot], p->n_slot[slot], p->sharded);
    for (int i = 0; i < p->n_trained_entries; i++) {
        const dt_param_entry *e = &p->entries[i];
        const dt_slot_entry *m = &e->slots[slot];
        // no shape: this optimizer keeps no such moment of the tensor
        if (m->shape.n >= 0) add_slice(s, dt_xprintf("%s.%s", prefix, e->name), "optimizer", m->shape, m->offset);
    }
}

static dt_state_flat *flat_of(const dt_state *s, dt_role role) {
    int i = 0;
    while (s->flats[i].role != role) i++;
    return &s->flats[i];
}

// Where the host sees a parameter that is never trained.
static float *fixed_at(const dt_state *s, int64_t offset) {
    const dt_params *p = s->nets->params;
    return p->own_masters ? flat_of(s, DT_ROLE_FIXED)->host + offset - p->n_trained
                          : flat_of(s, DT_ROLE_WEIGHT)->host + offset;
}

static void list_slices(dt_state *s) {
    const dt_params *p = s->nets->params;
    const char *const *moments = dt_optimizers[s->run->config->train.optimizer.name].slots;
    // upper bound: weights and averages, moments, statistics of both
    const int most = (2 + p->n_slots) * p->n_entries + 2 * p->n_buffers;
    s->slices = dt_xcalloc((size_t)most + 1, sizeof *s->slices);
    s->flats =
        dt_xcalloc((size_t)(5 + p->n_slots), sizeof *s->flats); // three of weights, two of averages, one per slot
    // with EMA the averages evaluate, and are what model.safetensors has
    if (p->average) add_parameters(s, true, "model");
    s->n_model = s->n_slices;
    s->n_model_flats = s->n_flats;
    add_parameters(s, false, p->average || s->run->request.raw ? "raw" : "model");
    if (!p->average) s->n_model = s->n_slices, s->n_model_flats = s->n_flats;
    // what is never trained is its own average
    for (int i = p->n_trained_entries; p->sharded && p->average && i < p->n_entries; i++)
        // frozen tensors: no rank averages them
        s->slices[i].tensor.data = fixed_at(s, p->entries[i].offset);
    for (int i = 0; i < p->n_slots; i++) add_moments(s, moments[i], i);
}

dt_ckpt_tensor *dt_state_view(const dt_state *s, bool all, int *n) {
    *n = all ? s->n_slices : s->n_model;
    dt_ckpt_tensor *list = dt_xcalloc((size_t)*n + 1, sizeof *list);
    for (int i = 0; i < *n; i++) list[i] = s->slices[i].tensor;
    return list;
}

// ---- buffers ---------------------------------------------------------------------------------------

// The buffers of the model come first, those of its weights and of its statistics.
static int n_flats(const dt_state *s, bool all) {
    return all ? s->n_flats : s->n_model_flats;
}

// Brings the device up to date with the host's copies.
static void state_push(dt_state *s, bool all) {
    // the host's copies exist on devices only; on the CPU both are the same memory
    dt_backend *b = s->run->backend;
    for (int i = 0; b->device && i < n_flats(s, all); i++) {
        const dt_state_flat *x = &s->flats[i];
        if (x->n > 0) b->copy_to_device(b, x->flat, x->host, sizeof(float) * (size_t)x->n);
    }
}

// Brings the host's copies up to date with the device; sharded: of what ranks divide among them alone. After an error they
// hold something else.
static dt_status state_pull(dt_state *s, bool sharded) {
    dt_backend *b = s->run->backend;
    for (int i = 0; b->device && i < s->n_flats; i++) {
        const dt_state_flat *x = &s->flats[i];
        // frozen parameters may leave a buffer empty
        if (x->n > 0 && (x->sharded || !sharded)) b->copy_to_host(b, x->host, x->flat, sizeof(float) * (size_t)x->n);
    }
    return b->device ? b->device->synchronize(b, b->device->stream) : DT_OK;
}

// Weights and statistics become their averages on the host, or change places with them.
static void move_averages(dt_state *s, bool swap) {
    const dt_params *p = s->nets->params;
    for (int i = 0; i < 2 && p->average; i++) {
        const dt_state_flat *own = flat_of(s, i ? DT_ROLE_STATISTIC : DT_ROLE_WEIGHT);
        const dt_state_flat *average = flat_of(s, i ? DT_ROLE_AVERAGE_STATISTIC : DT_ROLE_AVERAGE);
        // own.at: where the range lies in the rank's compact buffer
        const dt_own_range all = {0, own->n, 0}, *ranges = average->sharded ? p->own : &all;
        const int n = average->sharded ? p->n_own : 1;
        for (const dt_own_range *r = ranges; r < ranges + n; r++)
            for (int64_t k = r->begin; k < r->end; k++) {
                float *at = average->host + r->at + k - r->begin, x = *at;
                float *mine = own->host + k + (own->sharded ? r->at - r->begin : 0);
                *at = *mine;
                if (swap) *mine = x;
            }
    }
}

dt_status dt_state_swap_average(dt_state *s) {
    dt_params *p = s->nets->params;
    dt_backend *b = s->run->backend;
    dt_comm *c = dt_run_flat_comm(s->run);
    const dt_device *d = b->device;
    const dt_own_range all = {0, p->n_master, 0}, *ranges = p->sharded ? p->own : &all;
    if (!p->average) return DT_OK;
    // this rank's ranges alone; the others' arrive by the all-gather below
    for (const dt_own_range *r = ranges; d && r < ranges + (p->sharded ? p->n_own : 1); r++)
        d->swap(b, p->master + (p->own_masters ? r->at : r->begin), p->average + r->at, r->end - r->begin, d->stream);
    if (d)
        d->swap(b, p->buffer, p->buffer_average, p->n_buffer, d->stream);
    else
        move_averages(s, true);
    if (p->sharded && !p->own_masters) { // else with the copies
        if (d) DT_TRY(d->synchronize(b, d->stream));
        DT_TRY(dt_comm_all_gather_f32(c, p->master, p->n_trained)); // the evaluation reads whole weights
        if (d) DT_TRY(c->device->drain(c, "the exchange of averages"));
    }
    dt_params_repack_step(p); // kernels read packed copies
    return DT_OK;
}

static bool state_is_finite(const float *x, int64_t n) {
    // from the end: the loop needs no second index
    while (n > 0 && isfinite(x[n - 1])) n--;
    return n == 0;
}

// Whether what this rank has of a slice is.
static bool slice_is_finite(const dt_state *s, const dt_state_slice *l) {
    const dt_params *p = s->nets->params;
    const int64_t n = dt_shape_elements(&l->tensor.shape);
    bool finite = true;
    if (l->tensor.data) return state_is_finite(l->tensor.data, n);
    for (const dt_own_range *r = p->own; r < p->own + p->n_own; r++) {
        // intersection of the slice with an owned range
        const int64_t from = l->offset > r->begin ? l->offset : r->begin;
        const int64_t to = l->offset + n < r->end ? l->offset + n : r->end;
        finite &= from >= to || state_is_finite(s->flats[l->flat].host + r->at + from - r->begin, to - from);
    }
    return finite;
}

const char *dt_state_find_bad(dt_state *s) {
    dt_comm *c = s->run->comm;
    int64_t first = 0;
    (void)state_pull(s, false);
    while (first < s->n_slices && slice_is_finite(s, &s->slices[first])) first++;
    // max of the negative is the least: the first bad slice of any rank
    first = -first;
    if (s->owners) (void)c->all_reduce_max_i64(c, &first, 1);                              // of all ranks
    return -first < s->n_slices ? s->slices[-first].tensor.name : "a gap between tensors"; // nobody reads it
}

// ---- what ranks divide among them ------------------------------------------------------------------

// Chunks of one owner.
enum { RUN_CHUNKS = 32 }; // bounds the block of pass_runs
typedef struct run_of_chunks {
    int64_t begin, end; // elements
    int owner;
} run_of_chunks;

static bool next_run(const dt_state *s, run_of_chunks *x) {
    const int64_t n = s->nets->params->n_trained, most = x->end + RUN_CHUNKS * DT_CHUNK;
    if (x->end >= n) return false;
    x->begin = x->end;
    x->owner = (int)s->owners[x->begin / DT_CHUNK]; // int64 for the all-reduce
    while (x->end < n && x->end < most && s->owners[x->end / DT_CHUNK] == x->owner) x->end += DT_CHUNK;
    if (x->end > n) x->end = n;
    return true;
}

// The part of the run that is in tensors, which are those of all slices: from them into values, or back. The gaps between
// tensors are zeros.
static void copy_run(const dt_state *s, int flat, const run_of_chunks *x, const dt_ckpt_tensor *tensors, float *values,
                     bool back) {
    if (!back) memset(values, 0, (size_t)(x->end - x->begin) * sizeof *values);
    for (int i = 0; i < s->n_slices; i++) {
        const dt_state_slice *l = &s->slices[i];
        const int64_t end = l->offset + dt_shape_elements(&l->tensor.shape);
        const int64_t from = l->offset > x->begin ? l->offset : x->begin;
        const int64_t to = end < x->end ? end : x->end;
        if (l->flat != flat || l->tensor.data || from >= to) continue;
        float *a = values + from - x->begin, *b = tensors[i].data + from - l->offset;
        memcpy(back ? b : a, back ? a : b, (size_t)(to - from) * sizeof *a);
    }
}

// Between rank 0's tensors and the owners of a buffer's chunks. Every rank calls it.
static dt_status pass_runs(const dt_state *s, int flat, const dt_ckpt_tensor *tensors, bool save) {
    dt_comm *c = s->run->comm;
    const bool root = dt_run_is_root(s->run);
    float *own = s->flats[flat].host; // of this rank's chunks, one behind the other
    // rank 0's room for one run of another rank's chunks
    float *block = dt_xcalloc(root ? RUN_CHUNKS * DT_CHUNK : 1, sizeof *block);
    dt_status st = DT_OK;
    // the same runs in the same order on every rank: sends and receives pair up
    for (run_of_chunks x = {0}; st == DT_OK && next_run(s, &x);) {
        const bool mine = x.owner == c->rank;
        const int64_t n = x.end - x.begin;
        float *values = mine ? own : block;
        // to load: rank 0 cuts the run out of its tensors
        if (root && !save) copy_run(s, flat, &x, tensors, values, false);
        if (root && !mine) st = save ? c->recv_f32(c, values, n, x.owner) : c->send_f32(c, values, n, x.owner);
        if (!root && mine) st = save ? c->send_f32(c, own, n, 0) : c->recv_f32(c, own, n, 0);
        if (root && save) copy_run(s, flat, &x, tensors, values, true);
        if (mine) own += n;
    }
    free(block);
    return st;
}

static dt_status pass_sharded(const dt_state *s, bool all, const dt_ckpt_tensor *tensors, bool save) {
    for (int i = 0; i < n_flats(s, all); i++)
        if (s->flats[i].sharded) DT_TRY(pass_runs(s, i, tensors, save));
    return DT_OK;
}

static dt_status find_owners(dt_state *s) {
    const dt_params *p = s->nets->params;
    dt_comm *c = s->run->comm;
    const int64_t n = (p->n_trained + DT_CHUNK - 1) / DT_CHUNK;
    if (!p->sharded) return DT_OK;
    s->owners = dt_xcalloc((size_t)n + 1, sizeof *s->owners);
    for (const dt_own_range *r = p->own; r < p->own + p->n_own; r++)
        for (int64_t k = r->begin / DT_CHUNK; k * DT_CHUNK < r->end; k++) s->owners[k] = c->rank;
    return c->all_reduce_max_i64(c, s->owners, n); // others have 0
}

// ---- first weights, and those of a checkpoint ------------------------------------------------------

// Rank 0's values on all ranks, packed for the kernels.
static dt_status share(dt_state *s, bool all) {
    dt_comm *c = s->run->comm;
    for (int i = 0; c->world_size > 1 && i < n_flats(s, all); i++) {
        const dt_state_flat *x = &s->flats[i];
        if (x->n > 0 && !x->sharded) DT_TRY(c->broadcast_bytes(c, x->host, sizeof(float) * (size_t)x->n, 0));
    }
    state_push(s, all);
    dt_params_repack_step(s->nets->params);
    return DT_OK;
}

// The modules whose weights give the logits; how many.
static int list_heads(const dt_nets *nets, const char *heads[DT_MAX_TARGETS]) {
    const dt_graph *g = dt_nets_last_evaluated(nets).graph;
    char text[256];
    int n = 0;
    for (int t = 0; t < nets->targets.n; t++) {
        const char *logits = dt_target_logits(&nets->targets, &nets->targets.items[t], text, sizeof text);
        for (int i = 0; i < g->n_outputs; i++) {
            const dt_node_id id = dt_info_of(g, g->outputs[i].value)->producer; // an output without a node is an input
            if (strcmp(g->outputs[i].name, logits) == 0 && id >= 0) heads[n++] = g->nodes[id].name;
        }
    }
    return n;
}

// Rows and columns of patches of a network that cuts its image with a convolution.
static void patch_grid(const dt_graph *g, const char *scope, int grid[2]) {
    char name[256];
    snprintf(name, sizeof name, "%sconv_proj", scope);
    const dt_node_id id = dt_graph_find_node(g, name);
    if (id < 0) return;
    const dt_shape *shape = &dt_info_of(g, g->nodes[id].out[0])->shape;
    for (int i = 0; i < 2; i++) grid[i] = (int)shape->d[2 + i];
}

// Whether the tensor is of a trunk that a file may have: fusion's own come between it and what is joined.
static bool is_of_trunk(const char *name, const char *scope) {
    const size_t n = strlen(scope);
    if (strncmp(name, scope, n) != 0) return false;
    return n == 0 || (strncmp(name + n, "proj.", 5) != 0 && strncmp(name + n, "embedding.", 10) != 0);
}

// model.init or, of the encoder of `field`, model.encoders.<field>.init, whose name and meaning the message carries.
static dt_status import_weights(dt_state *s, const char *path, const char *field) {
    const dt_config *c = s->run->config;
    const char *heads[DT_MAX_TARGETS], *classes = s->run->record.classes;
    const bool by_itself = dt_config_is_auto(c, DT_KEY(model.init_keep));
    const dt_cnode *keep = c->model.init_keep; // a list of patterns, or one
    const bool list = dt_cnode_kind(keep) == DT_C_LIST;
    char *theirs = NULL; // classes; a head that is taken as it is gives those
    char *key = field ? dt_xprintf("model.encoders.%s.init", field) : dt_xstrdup("model.init");
    char *scope = dt_xprintf("%s%s", field ? field : "", field ? "." : "");
    const size_t skip = strlen(scope);
    dt_ckpt_import_opts o = {.key = key,
                             .scope = scope,
                             .heads = heads,
                             .n_heads = field ? 0 : list_heads(s->nets, heads),
                             .renew_heads = by_itself,
                             .prefix = field ? NULL : c->model.init_prefix,
                             .max_bytes = (uint64_t)c->model.init_max,
                             .graph = dt_nets_last_evaluated(s->nets).graph,
                             .classes = field ? NULL : &theirs};
    const int n_keep = by_itself ? 0 : list ? (int)dt_cnode_size(keep) : 1;
    const char **names = dt_xcalloc((size_t)n_keep + 1, sizeof *names);
    for (int i = 0; i < n_keep; i++) {
        const char *name = dt_cnode_str(list ? dt_cnode_item(keep, (size_t)i) : keep);
        if (is_of_trunk(name, scope)) names[o.n_keep++] = name + skip;
    }
    o.keep = names;
    patch_grid(dt_nets_last_evaluated(s->nets).graph, scope, o.grid);
    int n, n_own = 0, n_taken;
    dt_ckpt_tensor *tensors = dt_state_view(s, true, &n);
    // trained weights are what training starts from; averages follow in move_averages
    dt_ckpt_tensor *own = tensors + (s->nets->params->average ? s->n_model : 0);
    n = s->nets->params->n_entries + s->nets->params->n_buffers;
    for (int i = 0; i < n; i++) {
        if (!is_of_trunk(own[i].name, scope)) continue;
        own[n_own] = own[i];
        own[n_own++].name += skip;
    }
    const dt_status st = dt_ckpt_import(path, &o, own, n_own, &n_taken);
    free(tensors);
    free(names);
    if (theirs && classes) dt_class_names_compare(theirs, classes, path);
    free(theirs);
    if (st != DT_OK) dt_fail_context(st, "%s: %s", dt_config_where(c, DT_KEY(model.init)), key);
    free(key);
    free(scope);
    return st;
}

bool dt_state_has_file(const dt_config *c) {
    bool any = c->model.init != NULL;
    for (int i = 0; i < c->model.n_encoders; i++) any |= c->model.encoders[i].init != NULL;
    return any;
}

// The whole network's file first: an encoder's own goes before it.
static dt_status import_all(dt_state *s) {
    const dt_config *c = s->run->config;
    if (c->model.init) DT_TRY(import_weights(s, c->model.init, NULL));
    for (int i = 0; i < c->model.n_encoders; i++)
        if (c->model.encoders[i].init) DT_TRY(import_weights(s, c->model.encoders[i].init, c->model.encoders[i].id));
    return DT_OK;
}

// Owned masters: rank 0 has all weights while it reads files.
static dt_status import_owned(dt_state *s) {
    const bool root = dt_run_is_root(s->run);
    const int flat = (int)(flat_of(s, DT_ROLE_WEIGHT) - s->flats);
    int n;
    dt_ckpt_tensor *tensors = dt_state_view(s, true, &n);
    float *all = root ? dt_xcalloc((size_t)s->nets->params->n_trained + 1, sizeof *all) : NULL;
    for (int i = 0; i < n && root; i++)
        if (s->slices[i].flat == flat) tensors[i].data = all + s->slices[i].offset;
    dt_status st = pass_runs(s, flat, tensors, true);
    if (root && st == DT_OK) {
        for (int i = 0; i < n; i++) s->slices[i].tensor.data = tensors[i].data;
        st = import_all(s);
        for (int i = 0; i < n; i++)
            if (s->slices[i].flat == flat) s->slices[i].tensor.data = NULL;
    }
    if (st == DT_OK) st = pass_runs(s, flat, tensors, false);
    free(all);
    free(tensors);
    return st;
}

dt_status dt_state_init(dt_state *s) {
    dt_params *p = s->nets->params;
    const bool root = dt_run_is_root(s->run);
    dt_params_init(p, (uint64_t)s->run->config->run.seed);
    DT_TRY(state_pull(s, false)); // what a file leaves as it is
    if (dt_state_has_file(s->run->config)) {
        if (p->own_masters)
            DT_TRY(import_owned(s));
        else if (root)
            DT_TRY(import_all(s));
        DT_TRY(share(s, p->average != NULL));
        move_averages(s, false);
        if (p->average) state_push(s, true); // both are on the host: the device gets them
        return DT_OK;
    }
    move_averages(s, false); // averages begin as the weights
    if (p->n_trained_entries < p->n_entries && root)
        dt_warn("train.groups freezes %d tensors, and there is no model.init: they stay random",
                p->n_entries - p->n_trained_entries);
    if (p->average) state_push(s, true);
    dt_params_repack_step(p);
    return DT_OK;
}

typedef struct loading {
    dt_state *s;
    bool all;
    dt_ckpt_tensor *tensors;
    int n;
} loading;

// Rank 0: the values of a file.
static dt_status take_values(void *ctx, const float *const *values) {
    loading *l = ctx;
    for (int i = 0; i < l->n; i++) {
        dt_ckpt_tensor *t = &l->tensors[i];
        const size_t n_bytes = (size_t)dt_shape_elements(&t->shape) * sizeof *t->data;
        if (t->data && n_bytes) memcpy(t->data, values[i], n_bytes); // whole slices of this rank
        if (!t->data) t->data = (float *)(uintptr_t)values[i];       // sharded: read from the mapped file by pass_runs
    }
    return pass_sharded(l->s, l->all, l->tensors, false);
}

dt_status dt_state_load(dt_state *s, const char *folder, bool all) {
    loading l = {.s = s, .all = all};
    l.tensors = dt_state_view(s, all, &l.n);
    const dt_status st = dt_run_is_root(s->run) ? dt_ckpt_load_with(folder, l.tensors, l.n, take_values, &l)
                                                : pass_sharded(s, all, NULL, false);
    free(l.tensors);
    return st == DT_OK ? share(s, all) : st;
}

dt_status dt_state_save(dt_state *s, dt_ckpt *ckpt, bool best) {
    const dt_run_state *record = &s->run->record;
    dt_json j;
    int n;
    if (!dt_run_is_root(s->run)) {
        if (s->owners) DT_TRY(state_pull(s, true)); // the owned chunks have to be on the host
        return pass_sharded(s, true, NULL, true);
    }
    DT_TRY(state_pull(s, false));
    dt_json_init(&j);
    dt_run_state_build(record, &j);
    dt_ckpt_tensor *tensors = dt_state_view(s, true, &n);
    // room: the checkpoint's buffers, which the owners' chunks fill directly
    const dt_ckpt_tensor *room = NULL;
    dt_status st = s->owners ? dt_ckpt_save_room(ckpt, tensors, n, &room) : DT_OK;
    if (st == DT_OK) st = pass_sharded(s, true, room, true);
    if (st == DT_OK) st = dt_ckpt_save_begin(ckpt, record->step, tensors, n, j.data, best);
    free(tensors);
    dt_json_fini(&j);
    return st;
}

// Rank 0: the teacher's weights into the host's buffers, behind ours. DT_E_USAGE where its classes are not ours.
static dt_status read_teacher(dt_state *s, float *statistics) {
    static const char prefix[] = "teacher:"; // of names in the graph
    const dt_params *p = s->nets->params;
    const dt_teacher *t = &s->run->teacher;
    const dt_targets *targets = &s->nets->targets;
    const char *classes = s->run->record.classes;
    const int n = p->n_teacher_entries + p->n_teacher_buffers;
    dt_ckpt_tensor *list = dt_xcalloc((size_t)n + 1, sizeof *list);
    char *text = NULL;
    for (int i = 0; i < n; i++) {
        // parameters first, then statistics
        const int k = i - p->n_teacher_entries;
        const dt_param_entry *e = k < 0 ? &p->entries[p->n_entries + i] : &p->buffers[p->n_buffers + k];
        list[i] = (dt_ckpt_tensor){e->name + strlen(prefix), "model", e->shape,
                                   k < 0 ? fixed_at(s, e->offset) : statistics + e->offset};
    }
    dt_status st = DT_OK;
    for (int i = 0; i < targets->n && st == DT_OK && classes; i++)
        st = dt_class_names_check(t->classes, classes, targets->items[i].field->name);
    // a checkpoint that fails here is the teacher's: DT_E_CKPT
    if (st == DT_OK && dt_ckpt_load(t->folder, list, n, &text) != DT_OK)
        st = dt_fail_context(DT_E_CKPT, "train.teacher");
    free(text);
    free(list);
    return st;
}

dt_status dt_state_load_teacher(dt_state *s, uint64_t *hash) {
    const dt_params *p = s->nets->params;
    const dt_state_flat *flats[2] = {flat_of(s, p->own_masters ? DT_ROLE_FIXED : DT_ROLE_WEIGHT),
                                     flat_of(s, DT_ROLE_STATISTIC)};
    const int64_t begins[2] = {(p->n_teacher_entries ? p->entries[p->n_entries].offset : p->n_master) -
                                   (p->own_masters ? p->n_trained : 0),
                               p->n_teacher_buffers ? p->buffers[p->n_buffers].offset : p->n_buffer};
    uint64_t parts[2] = {0, 0};
    *hash = 0;
    if (!s->run->teacher.config) return DT_OK;
    DT_TRY(state_pull(s, false));
    if (dt_run_is_root(s->run)) DT_TRY(read_teacher(s, flats[1]->host));
    // the teacher's weights are the same everywhere, as ours
    DT_TRY(share(s, true));
    for (int i = 0; i < 2; i++) {
        const int64_t n = flats[i]->n - begins[i];
        if (n > 0) parts[i] = dt_hash64(flats[i]->host + begins[i], sizeof(float) * (size_t)n);
    }
    *hash = dt_hash64(parts, sizeof parts);
    return DT_OK;
}

// ---- equal on all ranks ----------------------------------------------------------------------------

static int n_equal(const uint64_t *all, int world_size, int stride, int i, int rank) {
    int n = 0;
    for (int r = 0; r < world_size; r++) n += all[r * stride + i] == all[rank * stride + i];
    return n;
}

// The rank that fewest others agree with on tensor i; of two ranks, the later one.
static int odd_rank(const uint64_t *all, int world_size, int stride, int i) {
    int odd = 0;
    for (int r = 1; r < world_size; r++)
        // <=: of two ranks the later one
        if (n_equal(all, world_size, stride, i, r) <= n_equal(all, world_size, stride, i, odd)) odd = r;
    return odd;
}

// All ranks: which slice differs, and on which rank.
static dt_status name_difference(const dt_state *s, const uint64_t *mine) {
    dt_comm *c = s->run->comm;
    const int n = s->n_slices, w = c->world_size;
    uint64_t *all = dt_xcalloc((size_t)w * (size_t)n, sizeof *all);
    char(*hosts)[64] = dt_xcalloc((size_t)w, sizeof *hosts), host[64] = "";
    gethostname(host, sizeof host - 1);
    dt_status st = c->all_gather_bytes(c, mine, (size_t)n * sizeof *mine, all);
    if (st == DT_OK) st = c->all_gather_bytes(c, host, sizeof host, hosts);
    for (int i = 0; i < n && st == DT_OK; i++) {
        if (n_equal(all, w, n, i, 0) == w) continue;
        const int odd = odd_rank(all, w, n, i);
        c->shared_failure = true;
        st = dt_fail(DT_E_INTERNAL,
                     "run.verify_every: rank %d on %s holds other values in '%s' than %s (%d of %d ranks have its "
                     "values): memory, CPU or GPU of that host may be broken. Nothing was saved; test that host, then "
                     "run again from the last checkpoint",
                     odd, hosts[odd], s->slices[i].tensor.name, w == 2 ? "rank 0" : "most others",
                     n_equal(all, w, n, i, odd) - 1, w - 1);
    }
    free(all);
    free(hosts);
    return st;
}

// Owned masters: of what kernels read of a weight, which every rank has.
static uint64_t hash_working(const dt_state *s, const dt_state_slice *l, bool flips) {
    const dt_params *p = s->nets->params;
    dt_backend *b = s->run->backend;
    const float *dense = dt_params_dense(p, l->offset);
    const void *from = dense ? (const void *)dense : p->working + l->offset;
    const size_t n_bytes = (size_t)dt_shape_elements(&l->tensor.shape) * (dense ? sizeof *dense : sizeof *p->working);
    char *host = dt_xcalloc(n_bytes + 1, 1);
    b->copy_to_host(b, host, from, n_bytes);
    host[0] ^= (char)flips;
    const uint64_t hash = dt_hash64(host, n_bytes);
    free(host);
    return hash;
}

dt_status dt_state_compare_ranks(dt_state *s) {
    dt_comm *c = s->run->comm;
    // nothing to compare with
    if (c->world_size == 1) return DT_OK;
    DT_TRY(state_pull(s, false));
    bool flips = dt_failpoint("flip");
    if (flips) {
        uint32_t bits;
        float *first = flat_of(s, DT_ROLE_WEIGHT)->host;
        memcpy(&bits, first, sizeof bits);
        bits ^= 1; // of the first weight, for the test
        memcpy(first, &bits, sizeof bits);
    }
    uint64_t *hashes = dt_xcalloc((size_t)s->n_slices, sizeof *hashes);
    for (int i = 0; i < s->n_slices; i++) {
        const dt_ckpt_tensor *t = &s->slices[i].tensor;
        if (t->data) // else no two ranks have it
            hashes[i] = dt_hash64(t->data, (size_t)dt_shape_elements(&t->shape) * sizeof *t->data);
        else if (s->slices[i].role == DT_ROLE_WEIGHT)
            hashes[i] = hash_working(s, &s->slices[i], flips), flips = false;
    }
    // all equal if the largest hash is the smallest: max(h) = -max(-h)
    const int64_t sum = (int64_t)(dt_hash64(hashes, (size_t)s->n_slices * sizeof *hashes) >> 1); // both signs exist
    int64_t ends[2] = {sum, -sum};
    dt_status st = c->all_reduce_max_i64(c, ends, 2);
    if (st == DT_OK && ends[0] != -ends[1]) st = name_difference(s, hashes);
    free(hashes);
    return st;
}

// ---- life ------------------------------------------------------------------------------------------

static dt_status take_memory(dt_nets *n) {
    DT_TRY(dt_params_take(n->params));
    for (int i = 0; i < n->n_phases; i++) {
        const dt_phase *p = &n->phases[i];
        if (p->train.plan) DT_TRY(dt_plan_take(p->train.plan));
        if (p->eval.plan) DT_TRY(dt_plan_take(p->eval.plan));
    }
    return DT_OK;
}

dt_status dt_state_create(dt_state **out, dt_open_run *run, dt_nets *nets) {
    char *nothing = NULL;
    // on rank 0 first: an allocation that fails there ends all ranks
    dt_status st = dt_run_is_root(run) ? take_memory(nets) : DT_OK;
    st = dt_agree_result(run->comm, st, &nothing);
    if (st == DT_OK && !dt_run_is_root(run)) st = take_memory(nets);
    DT_TRY(dt_agree_memory(run->comm, run->backend, st));
    dt_state *s = *out = dt_xcalloc(1, sizeof *s);
    s->run = run;
    s->nets = nets;
    list_slices(s);
    return find_owners(s);
}

void dt_state_destroy(dt_state *s) {
    if (!s) return;
    for (int i = 0; i < s->n_slices; i++) free((char *)(uintptr_t)s->slices[i].tensor.name);
    for (int i = 0; i < s->n_flats && s->run->backend->device; i++) free(s->flats[i].host);
    free(s->flats);
    free(s->slices);
    free(s->owners);
    free(s);
}
