// quantizer.c: see quantizer.h. All networks that are tried share one copy of the parameters, so their plans live as long
// as it does.
#include "train/quantizer.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "base/progress.h"
#include "train/batch_inputs.h"
#include "train/session.h"
#include "train/signals.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ERROR_SAMPLES = 16, ROUNDS = 7 };

typedef struct network {
    dt_graph *g;
    dt_plan *plan;
} network;

typedef struct quantizer {
    dt_session s;
    const dt_quantize_request *r;
    dt_params *params;
    network *networks; // that were tried; the first is fp32
    int n_networks;
    dt_int8 q;
    float **weight; // scales of each layer, in int8 or not
    double *errors; // of each layer
    // outputs of the network that runs, sample by sample, and of the fp32 one
    int n_outputs;
    int64_t size[DT_INFER_OUTPUTS], width, at;
    float *outputs;
    double noise, signal;
} quantizer;

// ---- networks --------------------------------------------------------------------------------------

static dt_status add_network(quantizer *q, const dt_int8 *layers, network **out) {
    dt_session *s = &q->s;
    const dt_plan_opts opts = {.threads = s->resolved.replica_threads,
                               .n_replicas = s->replicas->n_replicas};
    network *n = &q->networks[q->n_networks++];
    DT_TRY(dt_session_eval_graph(s, s->data->fields, s->data->n_fields,
                                 s->phases[s->n_phases - 1].begin, layers, &n->g));
    *out = n;
    return dt_plan_create(&n->plan, n->g, q->params, &opts);
}

static dt_status infer_opts(quantizer *q, const network *n, const char *progress,
                            dt_infer_opts *o) {
    DT_TRY(dt_session_infer_opts(&q->s, progress, o));
    o->graph = n->g;
    o->plan = n->plan;
    o->params = q->params;
    return DT_OK;
}

static dt_status copy_params(quantizer *q) {
    const dt_params *from = q->s.params;
    DT_TRY(dt_params_create(&q->params, q->s.eval_graph, q->s.backend, 0, q->s.replicas->n_flats));
    memcpy(q->params->master, from->master, (size_t)from->n_master * sizeof(float));
    memcpy(q->params->buffer, from->buffer, (size_t)from->n_buffer * sizeof(float));
    return DT_OK;
}

// ---- scales ----------------------------------------------------------------------------------------

static void list_layers(quantizer *q, const dt_graph *g) {
    const size_t n = (size_t)g->n_nodes + 1;
    q->q.layers = dt_xcalloc(n, sizeof *q->q.layers);
    q->weight = dt_xcalloc(n, sizeof *q->weight);
    q->errors = dt_xcalloc(n, sizeof *q->errors);
    for (int i = 0; i < g->n_nodes; i++) {
        const dt_node *node = &g->nodes[i];
        if (!dt_int8_is_layer(g, node) || g->values[node->in[0]].kind != DT_V_TEMP) continue;
        dt_int8_layer *l = &q->q.layers[q->q.n_layers];
        l->name = node->name;
        l->n = g->values[node->in[1]].shape.d[0];
        q->weight[q->q.n_layers++] = dt_observe_weights(q->params, g, node);
    }
}

static dt_status drop(void *ctx, const dt_infer_sample *s) {
    (void)ctx;
    (void)s;
    return DT_OK;
}

static dt_status observe(quantizer *q, const network *n) {
    dt_infer_opts o;
    dt_infer *f = NULL;
    DT_TRY(infer_opts(q, n, "calibrate", &o));
    dt_observer *seen = dt_observer_create(n->g);
    o.look = dt_observer_look;
    o.look_ctx = seen;
    dt_status st = dt_infer_create(&f, &o);
    for (int run = 0; run < 2 && st == DT_OK; run++) {
        st = dt_infer_run(f, q->s.data, DT_SPLIT_TEST, drop, NULL);
        if (st == DT_OK && run == 0) st = dt_observer_begin_bins(seen);
    }
    if (st == DT_OK)
        q->q.n_values = dt_observer_scales(seen, q->r->how, q->r->percentile, &q->q.values);
    dt_infer_destroy(f);
    dt_observer_destroy(seen);
    return st;
}

// ---- errors ----------------------------------------------------------------------------------------

static dt_status take_outputs(void *ctx, const dt_infer_sample *s) {
    quantizer *q = ctx;
    float *row = q->outputs + q->at++ * q->width, *to = row;
    if (s->why) return DT_OK;
    for (int k = 0; k < q->n_outputs && q->n_networks == 1; to += q->size[k++])
        memcpy(to, s->output[k], (size_t)q->size[k] * sizeof *to);
    if (!dt_infer_all_finite(row, q->width)) return DT_OK; // nothing to compare with
    to = row;
    for (int k = 0; k < q->n_outputs; k++)
        for (int64_t i = 0; i < q->size[k]; i++, to++) {
            const double x = (double)s->output[k][i];
            q->noise += (x - (double)*to) * (x - (double)*to);
            q->signal += (double)*to * (double)*to;
        }
    return DT_OK;
}

// Runs over the first samples: the first network leaves its outputs, others are compared with them.
static dt_status compare(quantizer *q, const network *n, double *error) {
    dt_infer_opts o;
    dt_infer *f = NULL;
    char names[DT_MAX_TARGETS][256];
    DT_TRY(infer_opts(q, n, NULL, &o));
    o.limit = ERROR_SAMPLES;
    for (int t = 0; t < q->s.targets.n; t++)
        o.outputs[o.n_outputs++] =
            dt_target_logits(&q->s.targets, &q->s.targets.items[t], names[t], sizeof names[t]);
    q->n_outputs = o.n_outputs;
    q->at = 0;
    q->noise = q->signal = 0;
    DT_TRY(dt_infer_create(&f, &o));
    for (int k = 0; k < o.n_outputs && !q->outputs; k++)
        q->width += q->size[k] = dt_infer_output_size(f, k);
    if (!q->outputs)
        q->outputs = dt_xcalloc((size_t)(ERROR_SAMPLES * q->width) + 1, sizeof *q->outputs);
    const dt_status st = dt_infer_run(f, q->s.data, DT_SPLIT_TEST, take_outputs, q);
    dt_infer_destroy(f);
    *error = q->signal > 0 ? sqrt(q->noise / q->signal) : 0;
    return st;
}

// Each layer alone in int8; those above the tolerance stay fp32 from then on.
static dt_status find_errors(quantizer *q) {
    dt_progress p = {
        .on = true, .what = "layers", .items = "layers", .total_items = (uint64_t)q->q.n_layers};
    dt_status st = DT_OK;
    network *n;
    dt_progress_begin(&p);
    for (int i = 0; i < q->q.n_layers && st == DT_OK; i++) {
        dt_int8_layer *l = &q->q.layers[i];
        l->weight = q->weight[i];
        st = add_network(q, &q->q, &n);
        if (st == DT_OK) st = compare(q, n, &q->errors[i]);
        l->weight = NULL;
        p.n_items++;
        dt_progress_tick(&p);
    }
    dt_progress_end(&p);
    for (int i = 0; i < q->q.n_layers; i++)
        if (q->errors[i] <= q->r->tolerance) q->q.layers[i].weight = q->weight[i];
    return st;
}

// ---- the report ------------------------------------------------------------------------------------

static dt_status evaluate(quantizer *q, const network *n, const char *progress,
                          dt_eval_result *out) {
    dt_infer_opts o;
    dt_evaluator *e = NULL;
    DT_TRY(infer_opts(q, n, progress, &o));
    DT_TRY(dt_evaluator_create(&e, &o, &q->s.targets, &q->s.metrics));
    const dt_status st = dt_evaluator_run(e, q->s.data, DT_SPLIT_TEST, false, out);
    dt_evaluator_destroy(e);
    return st;
}

// An exec of zeros: how fast it is does not depend on what is in it.
typedef struct timed {
    dt_exec *exec;
    void *inputs[DT_BATCH_INPUTS];
    double least;
} timed;

static dt_status begin_timing(const network *n, timed *t) {
    DT_TRY(dt_exec_create(&t->exec, n->plan, 0));
    int i = 0;
    for (dt_value v = 0; v < n->g->n_values && i < DT_BATCH_INPUTS; v++) {
        const dt_value_info *info = &n->g->values[v];
        if (info->kind != DT_V_INPUT) continue;
        t->inputs[i] = dt_xcalloc((size_t)dt_shape_elements(&info->shape) + 16, 4);
        dt_exec_bind(t->exec, info->name, t->inputs[i++]);
    }
    return DT_OK;
}

// Of one replica's batch, in turn; the least of each counts.
static dt_status time_both(quantizer *q, const network *fp32, const network *int8, double rate[2]) {
    timed t[2] = {{.least = INFINITY}, {.least = INFINITY}};
    dt_exec_args args = {.step = {.loss_scale = 1}, .grad = q->params->grads[0]};
    dt_status st = begin_timing(fp32, &t[0]);
    if (st == DT_OK) st = begin_timing(int8, &t[1]);
    for (int i = 0; i < 2 * ROUNDS && st == DT_OK; i++) {
        const double begin = dt_clock_s();
        dt_exec_run(t[i & 1].exec, &args);
        t[i & 1].least = fmin(t[i & 1].least, dt_clock_s() - begin);
    }
    for (int i = 0; i < 2; i++) {
        rate[i] = q->s.eval_batch / t[i].least;
        dt_exec_destroy(t[i].exec);
        for (int k = 0; k < DT_BATCH_INPUTS; k++) free(t[i].inputs[k]);
    }
    return st;
}

static void print_report(const quantizer *q, const dt_eval_result r[2], const double rate[2],
                         double error, FILE *out) {
    int n_int8 = 0;
    for (int i = 0; i < q->q.n_layers; i++) n_int8 += q->q.layers[i].weight != NULL;
    fprintf(out, "%d of %d layers in int8; scales: %s, on %" PRId64 " samples\n", n_int8,
            q->q.n_layers, DT_WORD_OF(DT_OBSERVE_WORDS, q->r->how), r[0].n_samples);
    fprintf(out, "%-24s %12s %12s\n", "", "fp32", "int8");
    for (int i = 0; i < r[0].n_values; i++)
        fprintf(out, "%-24s %12.5g %12.5g\n", r[0].values[i].name, r[0].values[i].value,
                dt_eval_result_get(&r[1], r[0].values[i].name));
    fprintf(out, "%-24s %12.4g %12.4g  %.2f times, batches of %d on %d thread%s\n", "samples/s",
            rate[0], rate[1], rate[1] / rate[0], q->s.eval_batch, q->s.resolved.replica_threads,
            q->s.resolved.replica_threads == 1 ? "" : "s");
    fprintf(out, "%-24s %12s %12.3g\n", "error of the outputs", "", error);
    if (n_int8 < q->q.n_layers)
        fprintf(out, "kept in fp32, as the error of each alone is above %g:\n", q->r->tolerance);
    for (int i = 0; i < q->q.n_layers; i++)
        if (!q->q.layers[i].weight)
            fprintf(out, "  %-40s %.3g\n", q->q.layers[i].name, q->errors[i]);
}

// ---- the new run -----------------------------------------------------------------------------------

static dt_status write_text(const char *folder, const char *name, const char *text) {
    char *path = dt_xprintf("%s/%s", folder, name);
    const dt_status st = dt_io_write_file(path, text, strlen(text));
    free(path);
    return st;
}

static dt_status save_weights(quantizer *q, const char *out, const char *from, int64_t step) {
    char *dir = dt_xprintf("%s/checkpoints", out), *path = dt_xprintf("%s/state.json", from);
    char *state = NULL;
    size_t n = 0;
    dt_ckpt *k = NULL;
    const dt_ckpt_opts o = {.dir = dir, .keep = 1};
    dt_ckpt_tensor *tensors = dt_xcalloc((size_t)q->s.n_model_tensors + 1, sizeof *tensors);
    for (int i = 0; i < q->s.n_model_tensors; i++) {
        tensors[i] = q->s.tensors[i];
        tensors[i].file = "model";
    }
    dt_status st = dt_io_read_own(&state, &n, path, 0, DT_E_CKPT);
    if (st == DT_OK) st = dt_ckpt_open(&k, &o, false);
    if (st == DT_OK && q->s.classes) dt_ckpt_set_classes(k, q->s.classes);
    if (st == DT_OK) st = dt_ckpt_save_begin(k, step, tensors, q->s.n_model_tensors, state, true);
    if (st == DT_OK) st = dt_ckpt_save_wait(k, NULL);
    if (k) dt_ckpt_close(k);
    free(tensors);
    free(state);
    free(path);
    free(dir);
    return st;
}

// Beside the new run, which gets its name when it is whole.
static dt_status write_run(quantizer *q, int64_t step) {
    const dt_config *c = q->s.config;
    char *run = dt_xprintf("%s/%s", c->run.dir, c->run.name);
    char *out = dt_xprintf("%s.tmp.%d", q->r->out, (int)getpid()), *from = NULL;
    int64_t there;
    dt_json j;
    dt_json_init(&j);
    dt_int8_build(&q->q, q->errors, step, &j);
    dt_status st = dt_ckpt_find_in_run(run, q->r->which, &there, &from);
    if (st == DT_OK && there != step)
        st = dt_fail(DT_E_CKPT, "%s: another checkpoint became the %s meanwhile: try again", run,
                     q->s.weights);
    if (st == DT_OK) st = dt_io_remove_tree(out); // left by a kill
    if (st == DT_OK) st = dt_io_mkdir_all(out);
    if (st == DT_OK) st = write_text(out, "config.yaml", q->r->config);
    if (st == DT_OK) st = write_text(out, "int8.json", j.data);
    if (st == DT_OK) st = save_weights(q, out, from, step);
    if (st == DT_OK) st = dt_io_rename_noreplace(out, q->r->out);
    if (st != DT_OK) {
        const dt_error_kept first = dt_error_keep();
        if (dt_io_remove_tree(out) != DT_OK) dt_warn("%s is left", out);
        dt_error_restore(&first);
    }
    dt_json_fini(&j);
    free(from);
    free(out);
    free(run);
    return st;
}

// ---- all -------------------------------------------------------------------------------------------

static dt_status check_request(const quantizer *q) {
    const dt_config *c = q->s.config;
    if (q->s.comm->world_size > 1)
        return dt_fail(DT_E_USAGE, "dtrain quantize is one process: without mpirun");
    if (c->model.int8)
        return dt_fail(DT_E_USAGE, "run %s is quantised already: take the run that it was made of",
                       c->run.name);
    return DT_OK;
}

static dt_status find_layers(quantizer *q, network **fp32) {
    dt_session *s = &q->s;
    double nothing;
    if (s->backend->device)
        return dt_config_fail(s->config, "device.kind",
                              "int8 is computed on the CPU only: use device.kind=cpu");
    DT_TRY(copy_params(q));
    q->networks = dt_xcalloc((size_t)s->eval_graph->n_nodes + 3, sizeof *q->networks);
    q->networks->g = NULL;
    DT_TRY(add_network(q, NULL, fp32));
    list_layers(q, (*fp32)->g);
    if (q->q.n_layers == 0)
        return dt_fail(DT_E_USAGE, "the network has no convolution or linear layer");
    DT_TRY(observe(q, *fp32));
    return compare(q, *fp32, &nothing);
}

static dt_status quantize(quantizer *q) {
    network *fp32 = NULL, *int8 = NULL;
    dt_eval_result r[2];
    int64_t step;
    double rate[2], error;
    q->s.raw = q->r->raw;
    DT_TRY(dt_session_open_run(&q->s, q->r->which, DT_SPLIT_TEST, &step));
    DT_TRY(find_layers(q, &fp32));
    DT_TRY(find_errors(q));
    DT_TRY(add_network(q, &q->q, &int8));
    DT_TRY(compare(q, int8, &error));
    DT_TRY(evaluate(q, fp32, "fp32", &r[0]));
    dt_status st = evaluate(q, int8, "int8", &r[1]);
    if (st != DT_OK) {
        dt_eval_result_fini(&r[0]);
        return st;
    }
    st = time_both(q, fp32, int8, rate);
    dt_signals_started(); // what is left takes a moment: signals no longer end it
    if (st == DT_OK) st = write_run(q, step);
    if (st == DT_OK) print_report(q, r, rate, error, q->s.a.results);
    for (int i = 0; i < 2; i++) dt_eval_result_fini(&r[i]);
    return st;
}

static void close_all(quantizer *q) {
    dt_params_destroy(q->params); // packed copies belong to params, their recipes to plans
    for (int i = 0; i < q->n_networks; i++) {
        dt_plan_destroy(q->networks[i].plan);
        if (q->networks[i].g) dt_graph_destroy(q->networks[i].g);
    }
    for (int i = 0; i < q->q.n_layers; i++) free(q->weight[i]);
    free(q->networks);
    free(q->q.layers);
    free(q->q.values);
    free(q->weight);
    free(q->errors);
    free(q->outputs);
    dt_session_close(&q->s);
}

dt_status dt_trainer_quantize(const dt_trainer_args *a, const dt_quantize_request *r,
                              bool *agreed) {
    quantizer q = {.r = r};
    *agreed = false;
    dt_status st = dt_session_init(&q.s, a);
    if (st == DT_OK) st = check_request(&q);
    q.s.told |= st != DT_OK; // all ranks say the same
    if (st == DT_OK) st = quantize(&q);
    *agreed = st == DT_OK || q.s.told;
    close_all(&q);
    return st;
}
