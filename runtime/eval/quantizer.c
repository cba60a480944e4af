// quantizer.c: see quantizer.h. All networks that are tried share the parameters of the run.
#include "eval/quantizer.h"

#include "base/core.h"
#include "base/io.h"
#include "base/log.h"
#include "base/os.h"
#include "base/text.h"
#include "eval/evaluate.h"
#include "run/agree.h"
#include "run/batch_inputs.h"
#include "run/signals.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// ERROR_SAMPLES: that one layer in int8 is compared on; ROUNDS: of timing
enum { ERROR_SAMPLES = 16, ROUNDS = 7 };

typedef struct quantizer {
    dt_session session;
    const dt_quantize_request *r;
    dt_net fp32;
    dt_int8 q;
    float **weight; // scales of each layer, in int8 or not
    double *errors; // of each layer
    // outputs of the network that runs, sample by sample, and of the fp32 one
    int n_outputs;
    bool first;                                // the fp32 network runs, which leaves its outputs
    int64_t size[DT_INFER_OUTPUTS], width, at; // size: numbers per output; width: their sum; at: next row
    float *outputs;                            // (ERROR_SAMPLES, width) of the fp32 network
    double noise, signal;                      // sums of squares
} quantizer;

// ---- scales ----------------------------------------------------------------------------------------

static void list_layers(quantizer *q) {
    const dt_graph *g = q->fp32.graph;
    const size_t n = (size_t)g->n_nodes + 1;
    q->q.layers = dt_xcalloc(n, sizeof *q->q.layers);
    q->weight = dt_xcalloc(n, sizeof *q->weight);
    q->errors = dt_xcalloc(n, sizeof *q->errors);
    for (int i = 0; i < g->n_nodes; i++) {
        const dt_node *node = &g->nodes[i];
        // the input of a layer must be an activation: constants have no scale
        if (!dt_int8_is_layer(g, node) || g->values[node->in[0]].kind != DT_V_TEMP) continue;
        dt_int8_layer *l = &q->q.layers[q->q.n_layers];
        l->name = node->name;
        l->n = g->values[node->in[1]].shape.d[0]; // output channels
        q->weight[q->q.n_layers++] = dt_observe_weights(q->session.nets.params, g, node);
    }
}

// Observation wants the activations, not the outputs.
static dt_status quantizer_drop(void *ctx, const dt_infer_sample *s) {
    (void)ctx;
    (void)s;
    return DT_OK;
}

static dt_status observe(quantizer *q) {
    dt_infer_opts o = dt_session_infer_opts(&q->session, &q->fp32, "calibrate");
    dt_infer *f = NULL;
    dt_observer *seen = dt_observer_create(q->fp32.graph);
    o.look = dt_observer_look;
    o.look_ctx = seen;
    dt_status st = dt_infer_create(&f, &o);
    // range first, then histogram (int8_observer.h)
    for (int run = 0; run < 2 && st == DT_OK; run++) {
        st = dt_infer_run(f, q->session.run.data, q->r->split, quantizer_drop, NULL);
        if (st == DT_OK && run == 0) st = dt_observer_begin_bins(seen);
    }
    if (st == DT_OK) q->q.n_values = dt_observer_scales(seen, q->r->how, q->r->percentile, &q->q.values);
    dt_infer_destroy(f);
    dt_observer_destroy(seen);
    return st;
}

// ---- errors ----------------------------------------------------------------------------------------

static dt_status take_outputs(void *ctx, const dt_infer_sample *s) {
    quantizer *q = ctx;
    // rows in the order of the set: sample n of every network is compared with row n
    float *row = q->outputs + q->at++ * q->width, *to = row;
    if (s->why) return DT_OK;
    // first pass: the row is filled, then compared with itself: noise 0
    for (int k = 0; k < q->n_outputs && q->first; to += q->size[k++])
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
static dt_status quantizer_compare(quantizer *q, dt_net net, double *error) {
    const dt_targets *targets = &q->session.nets.targets;
    dt_infer_opts o = dt_session_infer_opts(&q->session, &net, NULL);
    dt_infer *f = NULL;
    char names[DT_MAX_TARGETS][256];
    o.limit = ERROR_SAMPLES; // the first samples: the error is an estimate, once per layer
    // the first call is the fp32 network's: it allocates the rows
    q->first = net.graph == q->fp32.graph;
    for (int t = 0; t < targets->n; t++)
        o.outputs[o.n_outputs++] = dt_target_logits(targets, &targets->items[t], names[t], sizeof names[t]);
    q->n_outputs = o.n_outputs;
    q->at = 0;
    q->noise = q->signal = 0;
    DT_TRY(dt_infer_create(&f, &o));
    for (int k = 0; k < o.n_outputs && !q->outputs; k++) q->width += q->size[k] = dt_infer_output_size(f, k);
    if (!q->outputs) q->outputs = dt_xcalloc((size_t)(ERROR_SAMPLES * q->width) + 1, sizeof *q->outputs);
    const dt_status st = dt_infer_run(f, q->session.run.data, q->r->split, take_outputs, q);
    dt_infer_destroy(f);
    *error = q->signal > 0 ? sqrt(q->noise / q->signal) : 0; // all outputs 0: nothing can be lost
    return st;
}

// Each layer alone in int8; those above the tolerance stay fp32 from then on.
static dt_status find_errors(quantizer *q) {
    // a graph and a plan for each layer: this takes the longest
    dt_progress p = {.on = true, .what = "layers", .items = "layers", .total_items = (uint64_t)q->q.n_layers};
    dt_status st = DT_OK;
    dt_net net;
    dt_progress_begin(&p);
    for (int i = 0; i < q->q.n_layers && st == DT_OK; i++) {
        dt_int8_layer *l = &q->q.layers[i];
        l->weight = q->weight[i]; // this layer in int8, the others fp32
        // the nets own the graph: it lives until the run is closed
        st = dt_nets_add_int8(&q->session.nets, &q->session.run, &q->q, &net);
        if (st == DT_OK) st = quantizer_compare(q, net, &q->errors[i]);
        l->weight = NULL; // back, before the next layer is tried
        p.n_items++;
        dt_progress_tick(&p);
    }
    dt_progress_end(&p);
    for (int i = 0; i < q->q.n_layers; i++)
        if (q->errors[i] <= q->r->tolerance) q->q.layers[i].weight = q->weight[i];
    return st;
}

// ---- the report ------------------------------------------------------------------------------------

static dt_status quantizer_evaluate(quantizer *q, dt_net net, const char *progress, dt_eval_result *out) {
    dt_evaluator *e;
    DT_TRY(dt_session_evaluator(&q->session, &net, progress, &e)); // no eval.by, no eval.bootstrap
    const dt_status st = dt_evaluator_run(e, q->session.run.data, q->r->split, false, out);
    dt_evaluator_destroy(e);
    return st;
}

// An exec of zeros: how fast it is does not depend on what is in it.
typedef struct timed {
    dt_exec *exec;
    void *inputs[DT_BATCH_INPUTS]; // inputs[i]: heap
    double least;
} timed;

static dt_status begin_timing(dt_net net, timed *t) {
    DT_TRY(dt_exec_create(&t->exec, net.plan, 0));
    int i = 0;
    for (dt_value v = 0; v < net.graph->n_values && i < DT_BATCH_INPUTS; v++) {
        const dt_value_info *info = &net.graph->values[v];
        if (info->kind != DT_V_INPUT) continue;
        // 4 bytes hold any dtype of an input
        t->inputs[i] = dt_xcalloc((size_t)dt_shape_elements(&info->shape) + 16, 4);
        dt_exec_bind(t->exec, info->name, t->inputs[i++]);
    }
    return DT_OK;
}

// Times a batch of one replica on both networks, in turn; the least time of each counts.
// in turn, so that a change of the clock rate meets both
static dt_status time_both(quantizer *q, dt_net int8, double rate[2]) {
    timed t[2] = {{.least = INFINITY}, {.least = INFINITY}};
    dt_exec_args args = {.step = {.loss_scale = 1}, .grad = q->session.nets.params->grads[0]};
    dt_status st = begin_timing(q->fp32, &t[0]);
    if (st == DT_OK) st = begin_timing(int8, &t[1]);
    for (int i = 0; i < 2 * ROUNDS && st == DT_OK; i++) {
        const double begin = dt_clock_s();
        dt_exec_run(t[i & 1].exec, &args);
        t[i & 1].least = fmin(t[i & 1].least, dt_clock_s() - begin);
    }
    for (int i = 0; i < 2; i++) {
        rate[i] = dt_run_eval_batch(&q->session.run) / t[i].least; // samples/s
        dt_exec_destroy(t[i].exec);
        for (int k = 0; k < DT_BATCH_INPUTS; k++) free(t[i].inputs[k]);
    }
    return st;
}

static void quantizer_print_report(const quantizer *q, const dt_eval_result r[2], const double rate[2], double error,
                                   FILE *out) {
    const int batch = dt_run_eval_batch(&q->session.run);
    const int threads = q->session.run.resolved.replica_threads;
    int n_int8 = 0;
    // layers that stay fp32 have no scales
    for (int i = 0; i < q->q.n_layers; i++) n_int8 += q->q.layers[i].weight != NULL;
    fprintf(out, "%d of %d layers in int8; scales: %s, on %" PRId64 " samples\n", n_int8, q->q.n_layers,
            DT_WORD_OF(DT_OBSERVE_WORDS, q->r->how), r[0].n_samples);
    fprintf(out, "%-24s %12s %12s\n", "", "fp32", "int8");
    for (int i = 0; i < r[0].n_values; i++)
        dt_text_printf(out, "%-24s %12.5g %12.5g\n", r[0].values[i].name, r[0].values[i].value,
                       dt_eval_result_get(&r[1], r[0].values[i].name));
    fprintf(out, "%-24s %12.4g %12.4g  %.2f times, batches of %d on %d thread%s\n", "samples/s", rate[0], rate[1],
            rate[1] / rate[0], batch, threads, threads == 1 ? "" : "s");
    fprintf(out, "%-24s %12s %12.3g\n", "error of the outputs", "", error);
    if (n_int8 < q->q.n_layers)
        // with the errors, from which a user chooses another tolerance
        fprintf(out, "kept in fp32, as the error of each alone is above %g:\n", q->r->tolerance);
    for (int i = 0; i < q->q.n_layers; i++)
        if (!q->q.layers[i].weight) dt_text_printf(out, "  %-40s %.3g\n", q->q.layers[i].name, q->errors[i]);
}

// ---- the new run -----------------------------------------------------------------------------------

static dt_status quantizer_write_text(const char *folder, const char *name, const char *text) {
    char *path = dt_xprintf("%s/%s", folder, name);
    const dt_status st = dt_io_write_file(path, text, strlen(text));
    free(path);
    return st;
}

static dt_status save_weights(const quantizer *q, const char *out, const char *from) {
    const dt_run_state *record = &q->session.run.record;
    char *dir = dt_xprintf("%s/checkpoints", out), *path = dt_xprintf("%s/state.json", from);
    char *state = NULL;
    size_t n = 0;
    int n_tensors;
    dt_ckpt *k = NULL;
    const dt_ckpt_opts o = {.dir = dir, .keep = 1}; // one checkpoint, without retention
    dt_ckpt_tensor *tensors = dt_state_view(q->session.state, false, &n_tensors);
    // one file, model.safetensors
    for (int i = 0; i < n_tensors; i++) tensors[i].file = "model";
    // the state.json of the source checkpoint is taken over as it is
    dt_status st = dt_io_read_own(&state, &n, path, 0, DT_E_CKPT);
    if (st == DT_OK) st = dt_ckpt_open(&k, &o, false);
    if (st == DT_OK && record->classes) dt_ckpt_set_classes(k, record->classes);
    if (st == DT_OK) st = dt_ckpt_save_begin(k, record->step, tensors, n_tensors, state, true);
    if (st == DT_OK) st = dt_ckpt_save_wait(k, NULL);
    if (k) dt_ckpt_close(k);
    free(tensors);
    free(state);
    free(path);
    free(dir);
    return st;
}

// Beside the new run, which gets its name when it is whole.
static dt_status write_run(const quantizer *q) {
    const dt_open_run *r = &q->session.run;
    const int64_t step = r->record.step;
    char *out = NULL, *from = NULL;
    int64_t there;
    dt_json j;
    // a process id and a counter: another quantize of the same run gets another folder
    for (unsigned i = (unsigned)getpid(); !out || dt_io_exists(out); i++) { // what is there stays
        free(out);
        out = dt_xprintf("%s.tmp.%u", q->r->out, i);
    }
    dt_json_init(&j);
    dt_int8_build(&q->q, q->errors, step, &j);
    // which may name "last" or "best", and these move
    dt_status st = dt_ckpt_find_in_run(r->dir, q->r->which, &there, &from);
    if (st == DT_OK && there != step)
        st = dt_fail(DT_E_CKPT, "%s: another checkpoint became the %s meanwhile: try again", r->dir, dt_run_which(r));
    // whole before the rename: no half-written run under the final name
    if (st == DT_OK) st = dt_io_mkdir_all(out);
    if (st == DT_OK) st = quantizer_write_text(out, "config.yaml", q->r->config);
    if (st == DT_OK) st = quantizer_write_text(out, "int8.json", j.data);
    if (st == DT_OK) st = save_weights(q, out, from);
    if (st == DT_OK) st = dt_io_rename_noreplace(out, q->r->out);
    if (st != DT_OK) {
        const dt_error_kept first = dt_error_keep(); // cleaning up must not replace the error that matters
        if (dt_io_remove_tree(out) != DT_OK) dt_warn("%s is left", out);
        dt_error_restore(&first);
    }
    dt_json_fini(&j);
    free(from);
    free(out);
    return st;
}

// ---- all -------------------------------------------------------------------------------------------

static dt_status check_request(const dt_trainer_args *a) {
    // the comparison of outputs needs them in one process
    if (a->comm->world_size > 1) return dt_fail(DT_E_USAGE, "dtrain quantize is one process: without mpirun");
    if (a->config->model.int8)
        return dt_fail(DT_E_USAGE, "run %s is quantised already: take the run that it was made of",
                       a->config->run.name);
    return DT_OK;
}

static dt_status quantizer_find_layers(quantizer *q) {
    const dt_open_run *r = &q->session.run;
    double nothing;
    if (r->backend->device)
        // no int8 kernels on devices
        return dt_config_fail(r->config, "device.kind", "int8 is computed on the CPU only: use device.kind=cpu");
    q->fp32 = dt_nets_last_evaluated(&q->session.nets);
    list_layers(q);
    if (q->q.n_layers == 0) return dt_fail(DT_E_USAGE, "the network has no convolution or linear layer");
    // before any int8 graph: scales come from the fp32 network
    DT_TRY(observe(q));
    return quantizer_compare(q, q->fp32, &nothing);
}

static dt_status quantize(quantizer *q) {
    dt_net int8;
    dt_eval_result r[2];
    double rate[2], error; // [0] fp32, [1] int8
    DT_TRY(quantizer_find_layers(q));
    DT_TRY(find_errors(q));
    // all layers within the tolerance together
    DT_TRY(dt_nets_add_int8(&q->session.nets, &q->session.run, &q->q, &int8));
    DT_TRY(quantizer_compare(q, int8, &error));
    // the whole set, unlike the comparison
    DT_TRY(quantizer_evaluate(q, q->fp32, "fp32", &r[0]));
    dt_status st = quantizer_evaluate(q, int8, "int8", &r[1]);
    if (st != DT_OK) {
        dt_eval_result_fini(&r[0]);
        return st;
    }
    st = time_both(q, int8, rate);
    dt_signals_started(); // what is left takes a moment: signals no longer end it
    if (st == DT_OK) st = write_run(q);
    if (st == DT_OK) quantizer_print_report(q, r, rate, error, q->session.run.args.results);
    if (st == DT_OK)
        dt_info("%s: a run of %d layers in %.1f s", q->r->out, q->q.n_layers, dt_clock_s() - q->session.begin_s);
    if (st == DT_OK && rate[1] < rate[0])
        dt_warn("on this CPU int8 is slower than fp32 (%.4g samples/s beside %.4g): it pays on "
                "CPUs with VNNI and for wide layers; else keep the run that it was made of",
                rate[1], rate[0]);
    for (int i = 0; i < 2; i++) dt_eval_result_fini(&r[i]);
    return st;
}

dt_status dt_trainer_quantize(const dt_trainer_args *a, const dt_quantize_request *r) {
    const dt_run_request request = {.which = r->which, .split = r->split, .own_data = r->own_data, .raw = r->raw};
    quantizer q = {.r = r};
    DT_TRY(dt_agree_shared(a->comm, check_request(a)));
    dt_status st = dt_session_open(&q.session, a, &request);
    if (st == DT_OK) st = quantize(&q);
    for (int i = 0; i < q.q.n_layers; i++) free(q.weight[i]);
    free(q.q.layers);
    free(q.q.values);
    free(q.weight);
    free(q.errors);
    free(q.outputs);
    dt_session_close(&q.session, st);
    return st;
}
