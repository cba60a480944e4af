// session_weights.c: the weights, averages and moments of a session as tensors with names (session.h): from the seed, a
// file or a checkpoint to all ranks and devices, and back to the host.
#include "base/log.h"
#include "train/class_names.h"
#include "train/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- tensors ---------------------------------------------------------------------------------------

static void add_flat(dt_session *s, float *flat, int64_t n) {
    float *host = s->backend->device ? dt_xcalloc((size_t)n + 1, sizeof(float)) : flat;
    s->flats[s->n_flats++] = (dt_session_flat){flat, host, n};
}

static void add_tensors(dt_session *s, const char *file, const dt_param_entry *e, int n,
                        float *host) {
    for (int i = 0; i < n; i++)
        s->tensors[s->n_tensors++] =
            (dt_ckpt_tensor){dt_xstrdup(e[i].name), file, e[i].shape, host + e[i].offset};
}

// The optimizer's slot i.
static void add_slot(dt_session *s, const char *prefix, int i) {
    const dt_params *p = s->params;
    add_flat(s, p->slots[i], p->n_slot[i]);
    for (int k = 0; k < p->n_trained_entries; k++) {
        const dt_param_entry *e = &p->entries[k];
        const dt_slot_entry *slot = &e->slots[i];
        if (slot->shape.n < 0) continue;
        s->tensors[s->n_tensors++] =
            (dt_ckpt_tensor){dt_xprintf("%s.%s", prefix, e->name), "optimizer", slot->shape,
                             s->flats[s->n_flats - 1].host + slot->offset};
    }
}

static void add_weights(dt_session *s, float *master, float *buffer, const char *file) {
    const dt_params *p = s->params;
    add_flat(s, master, p->n_master);
    add_tensors(s, file, p->entries, p->n_entries, s->flats[s->n_flats - 1].host);
    add_flat(s, buffer, p->n_buffer);
    add_tensors(s, file, p->buffers, p->n_buffers, s->flats[s->n_flats - 1].host);
}

void dt_session_list_tensors(dt_session *s) {
    const dt_params *p = s->params;
    const char *const *names = dt_optimizers[s->config->train.optimizer.name].slots;
    s->tensors = dt_xcalloc((size_t)((2 + p->n_slots) * p->n_entries + 2 * p->n_buffers) + 1,
                            sizeof *s->tensors);
    if (p->average) add_weights(s, p->average, p->buffer_average, "model");
    s->n_model_tensors = s->n_tensors;
    add_weights(s, p->master, p->buffer, p->average || s->raw ? "raw" : "model");
    if (!p->average) s->n_model_tensors = s->n_tensors;
    for (int i = 0; i < p->n_slots; i++) add_slot(s, names[i], i);
}

// The flats 0 and 1 are the averages of 2 and 3.
static void copy_average(dt_session *s, bool to_weights) {
    for (int i = 0; i < 2; i++) {
        const dt_session_flat *average = &s->flats[i], *weights = &s->flats[2 + i];
        memcpy((to_weights ? weights : average)->host, (to_weights ? average : weights)->host,
               sizeof(float) * (size_t)average->n);
    }
}

// The flat buffers of the model's tensors, and with_optimizer all.
static int n_flats(const dt_session *s, bool with_optimizer) {
    return with_optimizer ? s->n_flats : 2;
}

static void copy_flats(dt_session *s, bool with_optimizer, bool to_device) {
    dt_backend *b = s->backend;
    for (int i = 0; b->device && i < n_flats(s, with_optimizer); i++) {
        const dt_session_flat *x = &s->flats[i];
        const size_t n_bytes = sizeof(float) * (size_t)x->n;
        if (n_bytes && to_device) b->copy_to_device(b, x->flat, x->host, n_bytes);
        if (n_bytes && !to_device) b->copy_to_host(b, x->host, x->flat, n_bytes);
    }
}

void dt_session_pull(dt_session *s) {
    copy_flats(s, true, false);
}

void dt_session_swap_average(dt_session *s) {
    if (!s->params->average) return;
    dt_session_pull(s);
    for (int i = 0; i < 2; i++) {
        float *a = s->flats[i].host, *b = s->flats[2 + i].host;
        for (int64_t k = 0; k < s->flats[i].n; k++) {
            const float x = a[k];
            a[k] = b[k];
            b[k] = x;
        }
    }
    copy_flats(s, true, true);
    dt_params_repack_step(s->params);
}

const char *dt_session_find_bad(dt_session *s) {
    dt_session_pull(s);
    for (int i = 0; i < s->n_tensors; i++) {
        const dt_ckpt_tensor *t = &s->tensors[i];
        for (int64_t k = 0; k < dt_shape_elements(&t->shape); k++)
            if (!isfinite(t->data[k])) return t->name;
    }
    return "a gap between tensors"; // nobody reads it
}

void dt_session_free_tensors(dt_session *s) {
    for (int i = 0; i < s->n_tensors; i++) free((char *)s->tensors[i].name);
    free(s->tensors);
    if (!s->backend || !s->backend->device) return;
    for (int i = 0; i < s->n_flats; i++) free(s->flats[i].host);
}

// ---- weights ---------------------------------------------------------------------------------------

// Rank 0's weights on all ranks, packed for the kernels.
static dt_status share_weights(dt_session *s, bool with_optimizer) {
    dt_comm *c = s->comm;
    for (int i = 0; c->world_size > 1 && i < n_flats(s, with_optimizer); i++)
        if (s->flats[i].n > 0)
            DT_TRY(
                c->broadcast_bytes(c, s->flats[i].host, sizeof(float) * (size_t)s->flats[i].n, 0));
    copy_flats(s, with_optimizer, true);
    dt_params_repack_step(s->params);
    return DT_OK;
}

// The modules whose weights give the logits; how many.
static int list_heads(const dt_session *s, const char *heads[DT_MAX_TARGETS]) {
    const dt_graph *g = s->eval_graph;
    char text[256];
    int n = 0;
    for (int t = 0; t < s->targets.n; t++) {
        const char *logits = dt_target_logits(&s->targets, &s->targets.items[t], text, sizeof text);
        for (int i = 0; i < g->n_outputs; i++) {
            const dt_node_id id = dt_info_of(g, g->outputs[i].value)->producer;
            if (strcmp(g->outputs[i].name, logits) == 0 && id >= 0) heads[n++] = g->nodes[id].name;
        }
    }
    return n;
}

// Rows and columns of patches of a network that cuts its image with a convolution.
static void patch_grid(const dt_session *s, int grid[2]) {
    const dt_node_id id = dt_graph_find_node(s->eval_graph, "conv_proj");
    if (id < 0) return;
    const dt_shape *shape = &dt_info_of(s->eval_graph, s->eval_graph->nodes[id].out[0])->shape;
    for (int i = 0; i < 2; i++) grid[i] = (int)shape->d[2 + i];
}

// model.init, whose name and meaning the message carries.
static dt_status import_weights(dt_session *s) {
    const dt_config *c = s->config;
    const char *heads[DT_MAX_TARGETS];
    const bool by_itself = dt_config_is_auto(c, DT_KEY(model.init_keep));
    const dt_cnode *keep = c->model.init_keep;
    const bool list = dt_cnode_kind(keep) == DT_C_LIST;
    char *theirs = NULL; // classes; a head that is taken as it is gives those
    dt_ckpt_import_opts o = {.heads = heads,
                             .n_heads = list_heads(s, heads),
                             .renew_heads = by_itself,
                             .classes = &theirs};
    o.n_keep = by_itself ? 0 : list ? (int)dt_cnode_size(keep) : 1;
    const char **names = dt_xcalloc((size_t)o.n_keep + 1, sizeof *names);
    for (int i = 0; i < o.n_keep; i++)
        names[i] = dt_cnode_str(list ? dt_cnode_item(keep, (size_t)i) : keep);
    o.keep = names;
    if (c->model.init_prefix) o.prefix = c->model.init_prefix;
    patch_grid(s, o.grid);
    int n_taken;
    dt_status st = dt_ckpt_import(c->model.init, &o, s->tensors, s->n_model_tensors, &n_taken);
    free(names);
    if (theirs && s->classes) dt_class_names_compare(theirs, s->classes, c->model.init);
    free(theirs);
    if (st == DT_OK) return st;
    return dt_fail_context(st, "%s: model.init", dt_config_where(c, DT_KEY(model.init)));
}

dt_status dt_session_init_weights(dt_session *s) {
    dt_params_init(s->params, (uint64_t)s->config->run.seed);
    if (s->params->average) {
        dt_session_pull(s);
        copy_average(s, false);
        copy_flats(s, true, true);
    }
    if (!s->config->model.init) {
        if (s->params->n_trained_entries < s->params->n_entries && s->comm->rank == 0)
            dt_warn("train.groups freezes %d tensors, and there is no model.init: they stay random",
                    s->params->n_entries - s->params->n_trained_entries);
        dt_params_repack_step(s->params);
        return DT_OK;
    }
    copy_flats(s, false, false); // the host's copy has what the file leaves as it is
    if (s->comm->rank == 0) DT_TRY(import_weights(s));
    if (s->params->average) copy_average(s, true);
    return share_weights(s, s->params->average != NULL);
}

dt_status dt_session_load(dt_session *s, const char *path, bool with_optimizer) {
    char *state = NULL;
    if (s->comm->rank == 0)
        DT_TRY(dt_ckpt_load(path, s->tensors, with_optimizer ? s->n_tensors : s->n_model_tensors,
                            &state));
    free(state);
    return share_weights(s, with_optimizer);
}

dt_status dt_session_load_teacher(dt_session *s, uint64_t *hash) {
    const int first = s->params->average ? 2 : 0; // of the weights, behind their averages
    *hash = 0;
    if (!s->teacher.config) return DT_OK;
    dt_session_pull(s);
    if (s->comm->rank == 0)
        DT_TRY(dt_teacher_read(&s->teacher, s->params, &s->targets, s->classes,
                               s->flats[first].host, s->flats[first + 1].host));
    DT_TRY(share_weights(s, true));
    *hash = dt_teacher_hash(s->params, s->flats[first].host, s->flats[first + 1].host);
    return DT_OK;
}
