// predict.c: see the header.
#include "train/predict.h"

#include "base/arena.h"
#include "base/log.h"
#include "train/agree.h"
#include "train/predict_write.h"
#include "train/session.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- what is predicted -----------------------------------------------------------------------------

typedef struct predicted {
    const dt_target *t;
    int output;     // its logits
    char text[128]; // the output's name
    dt_predicts kind;
    char **names;  // of classes, labels or numbers
    double *value; // of the row in progress
    float *logits; // the same, numbers in their unit
} predicted;

typedef struct predictor {
    dt_session *s;
    const dt_predict_request *r;
    dt_infer *infer;
    int n, embedding; // output; -1: not asked for
    predicted each[DT_MAX_TARGETS];
    dt_predict_column columns[DT_MAX_TARGETS];
    dt_predict_writer *writer; // rank 0
    int64_t n_bad;
} predictor;

static dt_predicts kind_of(const dt_target *t) {
    const dt_loss_row *loss = &dt_losses[t->loss];
    return loss->softmax         ? DT_PREDICTS_CLASSES
           : loss->gives_numbers ? DT_PREDICTS_NUMBERS
                                 : DT_PREDICTS_LABELS;
}

// A class's own name; of an element the column that it comes from; else its number.
static char *name_of(const dt_session *s, const dt_target *t, int64_t k) {
    const dt_field_info *f = t->field;
    char key[256];
    snprintf(key, sizeof key, "data.fields.%s.source", f->name);
    const dt_cnode *source = f->n_classes ? NULL : dt_config_node(s->config, key);
    if (f->n_classes && f->class_names && f->class_names[k]) return dt_xstrdup(f->class_names[k]);
    if (source && dt_cnode_kind(source) == DT_C_LIST && k < (int64_t)dt_cnode_size(source))
        return dt_xstrdup(dt_cnode_str(dt_cnode_item(source, (size_t)k)));
    return dt_xprintf("%lld", (long long)k);
}

static void describe(predictor *p, int i) {
    predicted *e = &p->each[i];
    const int64_t n = dt_target_n_out(e->t);
    const bool one = n == 1 && e->t->field->n_classes == 0;
    e->kind = kind_of(e->t);
    e->names = dt_xcalloc((size_t)n, sizeof *e->names);
    e->value = dt_xcalloc((size_t)n, sizeof *e->value);
    e->logits = dt_xcalloc((size_t)n, sizeof *e->logits);
    for (int64_t k = 0; k < n; k++) e->names[k] = name_of(p->s, e->t, k);
    p->columns[i] = (dt_predict_column){.field = e->t->field->name,
                                        .kind = e->kind,
                                        .n = n,
                                        .name = one ? NULL : (const char *const *)e->names};
}

static void softmax(const float *x, int64_t n, double *out) {
    double max = -INFINITY, sum = 0;
    for (int64_t k = 0; k < n; k++) max = (double)x[k] > max ? (double)x[k] : max;
    for (int64_t k = 0; k < n; k++) sum += out[k] = exp((double)x[k] - max);
    for (int64_t k = 0; k < n; k++) out[k] /= sum;
}

static void take_target(predicted *e, const float *x) {
    const int64_t n = dt_target_n_out(e->t);
    const dt_field_info *f = e->t->field;
    memcpy(e->logits, x, (size_t)n * sizeof *x);
    if (e->kind == DT_PREDICTS_CLASSES) softmax(x, n, e->value);
    for (int64_t k = 0; e->kind == DT_PREDICTS_LABELS && k < n; k++)
        e->value[k] = 1 / (1 + exp(-(double)x[k]));
    for (int64_t k = 0; e->kind == DT_PREDICTS_NUMBERS && k < n; k++)
        e->logits[k] =
            (float)(e->value[k] = (double)(x[k] * dt_field_std(f, k) + dt_field_mean(f, k)));
}

static dt_status take(void *ctx, const dt_infer_sample *s) {
    predictor *p = ctx;
    dt_predict_row row = {.index = s->index, .why = s->why};
    p->n_bad += s->why != NULL;
    for (int i = 0; i < p->n && !s->why; i++) {
        take_target(&p->each[i], s->output[p->each[i].output]);
        row.value[i] = p->each[i].value;
        row.logits[i] = p->each[i].logits;
    }
    if (p->embedding >= 0 && !s->why) row.embedding = s->output[p->embedding];
    return dt_predict_writer_put(p->writer, &row);
}

// ---- the run ---------------------------------------------------------------------------------------

static dt_status make_infer(predictor *p) {
    dt_session *s = p->s;
    dt_infer_opts o;
    DT_TRY(dt_session_infer_opts(s, "predict", &o));
    p->n = s->targets.n;
    for (int i = 0; i < p->n; i++) {
        predicted *e = &p->each[i];
        e->t = &s->targets.items[i];
        e->output = o.n_outputs;
        o.outputs[o.n_outputs++] = dt_target_logits(&s->targets, e->t, e->text, sizeof e->text);
        describe(p, i);
    }
    p->embedding = p->r->embeddings ? o.n_outputs : -1;
    if (p->embedding >= 0) o.outputs[o.n_outputs++] = "embedding";
    return dt_infer_create(&p->infer, &o);
}

static dt_status open_writer(predictor *p) {
    const dt_predict_format f = {
        .path = p->r->out,
        .results = p->s->a.results,
        .columns = p->columns,
        .n_columns = p->n,
        .top = p->r->top,
        .logits = p->r->logits,
        .n_embedding = p->embedding >= 0 ? dt_infer_output_size(p->infer, p->embedding) : 0,
        .data = p->s->data,
        .n_samples = p->s->data->n_samples(p->s->data, DT_SPLIT_TEST)};
    dt_status st = p->s->comm->rank == 0 ? dt_predict_writer_open(&p->writer, &f) : DT_OK;
    char *nothing = NULL;
    return dt_agree_result(p->s->comm, st, &nothing, &p->s->told);
}

static dt_status predict(predictor *p) {
    int64_t step;
    dt_session *s = p->s;
    DT_TRY(dt_session_open_run(s, p->r->which, DT_SPLIT_TEST, &step));
    dt_status st = dt_predict_check(p->r->out, s->targets.n, p->r->logits, p->r->embeddings);
    s->told |= st != DT_OK; // a function of what all ranks know
    DT_TRY(st);
    DT_TRY(make_infer(p));
    DT_TRY(open_writer(p));
    return dt_infer_run(p->infer, s->data, DT_SPLIT_TEST, take, p);
}

static void fini(predictor *p) {
    dt_infer_destroy(p->infer);
    for (int i = 0; i < p->n; i++) {
        for (int64_t k = 0; p->each[i].names && k < p->columns[i].n; k++) free(p->each[i].names[k]);
        free(p->each[i].names);
        free(p->each[i].value);
        free(p->each[i].logits);
    }
}

dt_status dt_trainer_predict(const dt_trainer_args *a, const dt_predict_request *r, bool *agreed) {
    dt_session s;
    predictor p = {.s = &s, .r = r};
    *agreed = false;
    dt_status st = dt_session_init(&s, a);
    if (st == DT_OK) st = predict(&p);
    st = dt_predict_writer_close(p.writer, st);
    if (st == DT_OK && p.n_bad > 0)
        dt_warn("%lld sample%s could not be read: the rows say why", (long long)p.n_bad,
                p.n_bad == 1 ? "" : "s");
    fini(&p);
    *agreed = st == DT_OK || s.told;
    dt_session_close(&s);
    return st;
}
