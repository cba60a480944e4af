// asked.c: see asked.h. Here is dtrain eval, too.
#include "eval/asked.h"

#include "base/arena.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text.h"
#include "eval/calibrate.h"
#include "eval/predict.h"
#include "run/agree.h"
#include "run/memory_report.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>

// The weights, of the checkpoint that is there: a training beside may have removed the one that was found.
static dt_status asked_load(dt_asked *a) {
    dt_open_run *r = &a->run;
    dt_status st;
    while ((st = dt_state_load(a->state, r->checkpoint, false)) == DT_E_CKPT && r->checkpoint &&
           !dt_io_exists(r->checkpoint))
        DT_TRY(dt_run_find_again(r));
    return st;
}

dt_status dt_asked_open(dt_asked *a, const dt_trainer_args *args, const dt_run_request *q) {
    dt_run_request request = *q;
    request.use = DT_RUN_ASKED;
    *a = (dt_asked){0};
    DT_TRY(dt_run_open(&a->run, args, &request));
    if (request.own_data && a->run.record.data_fingerprint != a->run.data->fingerprint)
        dt_warn_alike("data, columns or split are not those of the training: the %s part may hold "
                      "samples that trained",
                      dt_split_name(request.split));
    DT_TRY(dt_nets_make(&a->nets, &a->run, false));
    DT_TRY(dt_state_create(&a->state, &a->run, &a->nets));
    DT_TRY(asked_load(a));
    DT_TRY(dt_memory_check_room(&a->nets, &a->run));
    return dt_team_create(&a->team, dt_run_team_threads(&a->run), "replica");
}

void dt_asked_close(dt_asked *a, dt_status st) {
    dt_team_destroy(a->team);
    dt_state_destroy(a->state);
    dt_nets_drop(&a->nets);
    dt_run_close(&a->run, st);
}

dt_infer_opts dt_asked_infer_opts(const dt_asked *a, const dt_net *of, const char *progress) {
    const dt_net net = of ? *of : dt_nets_last_evaluated(&a->nets);
    dt_infer_opts o = dt_nets_infer_opts(&a->nets, &a->run, net, a->team);
    o.progress = progress;
    return o;
}

// The thresholds of calibration.json are of calibrated probabilities; the evaluator compares uncalibrated ones.
static dt_status give_thresholds(const dt_asked *a, dt_evaluator *e) {
    dt_status st = DT_OK;
    for (int k = 0; k < a->nets.targets.n && st == DT_OK; k++) {
        const dt_target *t = &a->nets.targets.items[k];
        const int64_t n = dt_target_n_out(t);
        if (!dt_losses[t->loss].gives_labels) continue;
        double temperature, *v = dt_xcalloc((size_t)n, sizeof *v);
        st = dt_calibration_read(a->run.config, a->run.record.step, t, &temperature, v);
        for (int64_t i = 0; i < n; i++) v[i] = dt_eval_sigmoid(temperature * log(v[i] / (1 - v[i])));
        dt_evaluator_set_thresholds(e, k, v);
        free(v);
    }
    return st;
}

dt_status dt_asked_evaluator(const dt_asked *a, const dt_net *net, const char *progress, dt_evaluator **out) {
    const dt_dataset *data = a->run.data;
    const dt_infer_opts o = dt_asked_infer_opts(a, net, progress);
    dt_status st = DT_OK;
    char *nothing = NULL;
    DT_TRY(dt_evaluator_create(out, &o, &a->nets.targets, &a->nets.metrics));
    if (!a->nets.metrics.threshold.is_auto || data->n_samples(data, DT_SPLIT_VAL) > 0) return DT_OK;
    if (dt_run_is_root(&a->run)) st = give_thresholds(a, *out);
    st = dt_agree_result(a->run.comm, st, &nothing);
    if (st != DT_OK) {
        dt_evaluator_destroy(*out);
        *out = NULL;
    }
    return st;
}

// ---- dtrain eval -----------------------------------------------------------------------------------

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

dt_status dt_asked_print(const dt_asked *a, const char *csv, const dt_eval_result *result) {
    const dt_open_run *r = &a->run;
    dt_json j;
    if (!dt_run_is_root(r)) return DT_OK;
    dt_json_init(&j);
    dt_eval_result_write(result, dt_split_name(r->request.split), dt_run_which(r), r->record.step, &j);
    fputs(j.data, r->args.results);
    fflush(r->args.results);
    const dt_status st = csv ? write_csv(csv, j.data) : DT_OK;
    dt_json_fini(&j);
    return st;
}

dt_status dt_trainer_eval(const dt_trainer_args *args, const dt_eval_request *q) {
    dt_asked a;
    dt_evaluator *e = NULL;
    dt_eval_result result;
    if (q->n_members > 1) return dt_predict_evaluate(q);
    dt_status st = dt_asked_open(
        &a, args, &(dt_run_request){.which = q->which, .split = q->split, .raw = q->raw, .own_data = q->own_data});
    if (st == DT_OK) st = dt_asked_evaluator(&a, NULL, "eval", &e);
    if (st == DT_OK) st = dt_evaluator_run(e, a.run.data, q->split, true, &result);
    if (st == DT_OK) {
        st = dt_asked_print(&a, q->csv, &result);
        dt_eval_result_fini(&result);
    }
    dt_evaluator_destroy(e);
    dt_asked_close(&a, st);
    return st;
}
