// trainer_tools.c: what needs a session but no training loop: dtrain eval and dtrain check.

#include "train/trainer.h"

#include "backend/time_nodes.h"
#include "base/arena.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text.h"
#include "train/agree.h"
#include "train/batch_inputs.h"
#include "train/memory_report.h"
#include "train/resolve.h"
#include "train/schedule.h"
#include "train/session.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- dtrain eval -----------------------------------------------------------------------------------

static const char *split_name(dt_split split) {
    return split == DT_SPLIT_TRAIN ? "train" : split == DT_SPLIT_VAL ? "val" : "test";
}

static dt_status find_checkpoint(const dt_config *c, const char *which, int64_t *step,
                                 char **path) {
    char *dir = dt_xprintf("%s/%s/checkpoints", c->run.dir, c->run.name);
    dt_ckpt_opts o = {.dir = dir, .usable = dt_state_check};
    dt_ckpt *k = NULL;
    dt_status st = dt_ckpt_open(&k, &o, true);
    if (st == DT_OK) st = dt_ckpt_find(k, which, step, path);
    if (st == DT_OK && *step < 0)
        st = dt_fail(DT_E_CKPT, "%s has no checkpoint yet: train first", dir);
    if (k) dt_ckpt_close(k);
    free(dir);
    return st;
}

// A training that runs beside may remove what was found: then there is a newer one.
static dt_status find_state(const dt_config *c, const char *which, char **path, char **text,
                            dt_train_state *state) {
    dt_status st;
    int64_t step;
    do {
        free(*path);
        free(*text);
        *path = *text = NULL;
        dt_state_fini(state);
        DT_TRY(find_checkpoint(c, which, &step, path));
        st = dt_state_read(state, *path, step, text);
    } while (st != DT_OK && !dt_io_exists(*path));
    return st;
}

// Rank 0 finds and reads it; the others get its state, but not its path.
static dt_status open_checkpoint(dt_session *s, const char *which, char **path,
                                 dt_train_state *state) {
    char *text = NULL;
    dt_status st = DT_OK;
    if (s->comm->rank == 0) st = find_state(s->config, which, path, &text, state);
    st = dt_agree_result(s->comm, st, &text, &s->told);
    if (st == DT_OK && s->comm->rank > 0) st = dt_state_parse(state, "state.json", text);
    if (st == DT_OK) s->classes = dt_xstrdup(state->classes);
    if (st == DT_OK && s->config->train.micro_batch.is_auto) {
        char number[16];
        snprintf(number, sizeof number, "%d", state->resolved.micro_batch);
        dt_config_set_text(s->config, DT_KEY(train.micro_batch), number);
        dt_session_set_micro_batch(s, state->resolved.micro_batch);
    }
    free(text);
    return st;
}

static dt_status load_checkpoint(dt_session *s, const char *which, char **path,
                                 dt_train_state *state) {
    dt_status st;
    while ((st = dt_session_load(s, *path, false)) == DT_E_CKPT && *path && !dt_io_exists(*path)) {
        char *text = NULL;
        st = find_state(s->config, which, path, &text, state);
        free(text);
        DT_TRY(st);
    }
    return st;
}

// A row for each number, by its path in the JSON: "by.camera.left.accuracy,0.5".
static void flatten(json_t *v, const char *path, FILE *out) {
    const char *key;
    json_t *item;
    size_t i;
    if (json_is_number(v) || json_is_null(v)) dt_text_print_cell(out, path);
    if (json_is_number(v)) fprintf(out, ",%.17g\n", json_number_value(v));
    if (json_is_null(v)) fputs(",\n", out);
    json_object_foreach(v, key, item) {
        char *inner = dt_xprintf("%s%s%s", path, *path ? "." : "", key);
        flatten(item, inner, out);
        free(inner);
    }
    json_array_foreach(v, i, item) {
        char *inner = dt_xprintf("%s.%zu", path, i);
        flatten(item, inner, out);
        free(inner);
    }
}

static dt_status write_csv(const char *path, const char *json) {
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    if (!out) return dt_fail(DT_E_INTERNAL, "out of memory");
    json_t *all = json_loads(json, 0, NULL);
    fputs("metric,value\n", out);
    flatten(all, "", out);
    json_decref(all);
    fclose(out);
    dt_status st = dt_io_write_file(path, text, n);
    free(text);
    return st;
}

static dt_status print_result(const dt_session *s, const dt_eval_request *q, int64_t step,
                              const dt_eval_result *r) {
    dt_json j;
    dt_status st = DT_OK;
    dt_json_init(&j);
    dt_eval_result_write(r, split_name(q->split), s->weights, step, &j);
    fputs(j.data, s->a.results);
    fflush(s->a.results);
    if (q->csv) st = write_csv(q->csv, j.data);
    dt_json_fini(&j);
    return st;
}

// Rank 0 reads it.
static dt_status read_int8(dt_session *s, int64_t step) {
    char *text = NULL, *path = dt_int8_path(s->config);
    size_t n = 0;
    dt_status st = s->comm->rank == 0 ? dt_io_read_own(&text, &n, path, 0, DT_E_CKPT) : DT_OK;
    st = dt_agree_result(s->comm, st, &text, &s->told);
    if (st == DT_OK) {
        st = dt_int8_parse(&s->int8, path, text, step);
        s->told |= st != DT_OK; // a function of what all ranks know
    }
    free(text);
    free(path);
    return st;
}

dt_status dt_session_open_run(dt_session *s, const char *which, dt_split split, int64_t *step) {
    char *path = NULL;
    dt_train_state state;
    dt_state_init(&state);
    if (s->n_micro < s->comm->world_size) s->n_micro = s->comm->world_size; // there are no steps
    dt_status st = open_checkpoint(s, which, &path, &state);
    s->origin = &state;
    if (st == DT_OK && s->config->model.int8) st = read_int8(s, state.step);
    if (st == DT_OK) st = dt_session_open(s, NULL, NULL);
    if (st == DT_OK && s->data->n_samples(s->data, split) == 0)
        st = dt_fail(DT_E_USAGE, "the %s split has no samples: see data.split", split_name(split));
    if (st == DT_OK) st = dt_session_build(s, s->data->fields, s->data->n_fields, false);
    if (st == DT_OK) st = load_checkpoint(s, which, &path, &state);
    *step = state.step;
    s->weights = which ? which : state.best_step == state.step ? "best" : "latest";
    s->origin = NULL;
    free(path);
    dt_state_fini(&state);
    return st;
}

static dt_status evaluate(dt_session *s, const dt_eval_request *q) {
    int64_t step;
    dt_status st = dt_session_open_run(s, q->which, q->split, &step);
    if (st == DT_OK) st = dt_session_make_evaluator(s, step);
    DT_TRY(st);
    dt_eval_result r;
    DT_TRY(dt_evaluator_run(s->evaluator, s->data, q->split, true, &r));
    if (s->comm->rank == 0) st = print_result(s, q, step, &r);
    dt_eval_result_fini(&r);
    return st;
}

dt_status dt_trainer_eval(const dt_trainer_args *a, const dt_eval_request *r, bool *agreed) {
    dt_session s;
    *agreed = false;
    dt_status st = dt_session_init(&s, a);
    s.raw = r->raw;
    if (st == DT_OK) st = evaluate(&s, r);
    *agreed = st == DT_OK || s.told;
    dt_session_close(&s);
    return st;
}

// ---- dtrain check ----------------------------------------------------------------------------------

// How fast each kernel is alone, on one replica's threads.
static dt_status print_kernels(const dt_session *s, FILE *out) {
    dt_node_group *list = NULL;
    double total = 0;
    char *table = s->backend->choice_table ? s->backend->choice_table(s->backend) : NULL;
    if (table) fprintf(out, "chosen by timing, GFLOP/s:\n%s", table);
    free(table);
    if (s->backend->device) return DT_OK;
    const int n = dt_node_groups(&list, s->graph);
    double *seconds = dt_xcalloc((size_t)n + 1, sizeof *seconds);
    dt_status st = DT_OK;
    for (int i = 0; i < n && st == DT_OK; i++) {
        st = dt_time_node(s->graph, list[i].node, s->backend, s->resolved.replica_threads, 1, 0.05,
                          &seconds[i]);
        total += seconds[i] * list[i].count;
    }
    if (st == DT_OK)
        fprintf(out, "kernels of a micro-batch, each alone on %d thread%s, GFLOP/s, share:\n",
                s->resolved.replica_threads, s->resolved.replica_threads == 1 ? "" : "s");
    for (int i = 0; i < n && st == DT_OK; i++)
        fprintf(out, "  %7.1f %4.1f %%  %s, %d of them\n", list[i].flop / seconds[i] / 1e9,
                100 * seconds[i] * list[i].count / total, list[i].text, list[i].count);
    free(seconds);
    free(list);
    return st;
}

static void print_report(const dt_session *s, FILE *out) {
    const dt_params *p = s->params;
    int64_t n = 0;
    for (int i = 0; i < p->n_entries; i++) n += p->entries[i].count;
    dt_plan_report train;
    dt_plan_report_get(s->plan, &train);
    fprintf(out, "model %s: %lld parameters in %d tensors, %d buffers\n", s->graph->name,
            (long long)n, p->n_entries, p->n_buffers);
    if (s->graph->note) fprintf(out, "%s\n", s->graph->note);
    dt_phases_print(&s->groups, p, out);
    fprintf(out, "step: %d samples = %d micro-batches of %d; %d replica%s of %d thread%s, %s, %s\n",
            s->global_batch, s->n_micro, s->micro_batch, s->replicas->n_replicas,
            s->replicas->n_replicas == 1 ? "" : "s", s->resolved.replica_threads,
            s->resolved.replica_threads == 1 ? "" : "s",
            DT_WORD_OF(DT_PRECISION_WORDS, s->resolved.precision),
            s->backend->describe(s->backend));
    if (s->graph->recompute.bytes_before)
        fprintf(out,
                "recompute: activations of about %.1f MiB instead of %.1f, %.2f times the work\n",
                (double)s->graph->recompute.bytes_after / 1048576.0,
                (double)s->graph->recompute.bytes_before / 1048576.0, s->graph->recompute.compute);
    fprintf(out, "plan: %d kernels, %d reorders, %d in place\n", train.n_instructions,
            train.n_reorders, train.n_inplace);
    dt_memory_print(s, out);
    dt_phases_print_memory(s->phases, s->n_phases, s->total_steps, out);
}

// A network's first layers expect values around 1. Says so of a field whose values, after normalisation, are far from
// that: no loss falls then, and nothing else would tell.
static void judge_width(const dt_field_info *f, const float *x, int n_samples) {
    enum { MOST = 1000000 };
    const int64_t n_each = dt_shape_elements(&f->sample_shape), n = n_samples * n_each;
    double low = INFINITY, high = -INFINITY, mean = 0, variance = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < n; i++) {
            const int64_t k = f->is_image ? i % f->sample_shape.d[2] : i % n_each;
            const double m = dt_field_mean(f, k), std = dt_field_std(f, k);
            const double own =
                f->is_image ? x[i] : x[i] * std + m; // images: the network normalises
            low = fmin(low, (own - m) / std);
            high = fmax(high, (own - m) / std);
            if (pass == 0) mean += own / (double)n;
            if (pass == 1) variance += (own - mean) * (own - mean) / (double)n;
        }
    if (fmax(fabs(low), fabs(high)) <= MOST && (high == low || (high - low) * MOST >= 1)) return;
    dt_warn("data.fields.%s: the network gets values of %.3g to %.3g (first micro-batch), where it "
            "expects about -3 to 3; give normalize: {mean: [%.3g], std: [%.3g]}",
            f->name, low, high, mean, variance > 0 ? sqrt(variance) : 1);
}

// Reads the first micro-batch of training. So what no catalog knows of the data (bytes that cannot be decoded, another
// number of bands) is reported as training would report it.
static dt_status take_batch(const dt_session *s) {
    static const int first[] = {0};
    const dt_batch *b;
    dt_batch_source *source = NULL;
    double wait_s;
    dt_source_request r = {.split = DT_SPLIT_TRAIN,
                           .augment = true,
                           .global_batch = s->global_batch,
                           .micro_batch = s->micro_batch,
                           .micros = first,
                           .n_micro = 1,
                           .end_step = 1};
    DT_TRY(s->data->open(s->data, &r, &source));
    dt_status st = source->get(source, 0, 0, &b, &wait_s);
    if (st == DT_OK) {
        dt_targets targets;
        for (int i = 0; i < source->n_fields; i++)
            if (source->fields[i].dtype == DT_F32)
                judge_width(&source->fields[i], b->field[i], b->n);
        st = dt_targets_read(&targets, s->config, s->data->fields, s->data->n_fields, true);
        if (st == DT_OK) st = dt_batch_check_targets(b, &targets);
        source->release(source, b);
    }
    source->close(source);
    return st;
}

static dt_run_length measure_length(const dt_session *s) {
    const int64_t every =
        dt_amount_steps(s->config->eval.every, s->total_steps, s->steps_per_epoch);
    const int64_t n_val = s->data->n_samples(s->data, DT_SPLIT_VAL);
    return (dt_run_length){.n_trained = s->total_steps * s->global_batch,
                           .n_evaluated = (every > 0 ? s->total_steps / every : 0) * n_val +
                                          s->data->n_samples(s->data, DT_SPLIT_TEST)};
}

static dt_status write_dot(const dt_graph *g, const char *path) {
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *f = open_memstream(&text, &n_bytes);
    if (!f) return dt_fail(DT_E_INTERNAL, "%s: %s", path, strerror(errno));
    dt_graph_write_dot(g, f);
    fclose(f);
    const dt_status st = dt_io_write_file(path, text, n_bytes);
    free(text);
    return st;
}

dt_status dt_trainer_check(const dt_trainer_args *a, const dt_field_info *fields, int n_fields,
                           const dt_check_prints *prints, FILE *out, dt_run_length *length) {
    dt_session s;
    *length = (dt_run_length){0};
    dt_status st = dt_session_init(&s, a);
    s.described = fields;
    s.n_described = n_fields;
    if (st == DT_OK) st = dt_session_open(&s, NULL, NULL);
    if (st == DT_OK && s.data) {
        fields = s.data->fields;
        n_fields = s.data->n_fields;
        fputs("data: ", out);
        dt_text_print(out, s.data->describe(s.data));
        fputc('\n', out);
    }
    if (st == DT_OK && s.data) st = dt_session_measure(&s);
    if (st == DT_OK) st = dt_session_build(&s, fields, n_fields, true);
    if (st == DT_OK && s.data) *length = measure_length(&s);
    if (st == DT_OK && s.data) st = take_batch(&s);
    if (st == DT_OK) st = dt_session_init_weights(&s); // an error if model.init does not fit
    uint64_t teacher;
    if (st == DT_OK) st = dt_session_load_teacher(&s, &teacher);
    if (st == DT_OK && prints->graph) {
        dt_graph_print_costs(s.graph, out);
        dt_graph_print(s.graph, out);
        dt_plan_print(s.plan, out);
    }
    if (st == DT_OK && prints->dot) st = write_dot(s.graph, prints->dot);
    length->rank_bytes = st == DT_OK ? dt_memory_bytes(&s) : 0;
    if (st == DT_OK) print_report(&s, out);
    if (st == DT_OK && prints->kernels) st = print_kernels(&s, out);
    dt_session_close(&s);
    return st;
}
