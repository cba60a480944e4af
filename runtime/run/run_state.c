// run_state.c: the state as JSON and back. 64-bit hashes are hex text, as JSON numbers of other readers
// lose bits beyond 2^53.

#include "run/run_state.h"

#include "base/core.h"
#include "base/formats.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/json.h"
#include "base/log.h"
#include "config/words.h"
#include "metrics/metric.h"
#include "run/agree.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void dt_run_state_init(dt_run_state *s) {
    // step 0; -1 and NaN: none
    *s = (dt_run_state){.best_step = -1, .best_value = NAN, .metrics_offset = -1, .loss = NAN};
}

void dt_run_state_fini(dt_run_state *s) {
    dt_config_destroy(s->config);
    free(s->environment);
    free(s->nccl_algo);
    free(s->engines);
    free(s->version);
    free(s->classes);
    free(s->history);
    dt_run_state_init(s);
}

void dt_run_state_add_eval(dt_run_state *s, int64_t step, double value) {
    s->history = dt_xrealloc(s->history, sizeof *s->history * (size_t)(s->n_history + 1));
    s->history[s->n_history++] = (dt_eval_point){step, value};
}

static const char *text_or_empty(const char *s) {
    return s ? s : "";
}

static void build_resolved(const dt_resolved *r, dt_json *j) {
    dt_json_begin_object(j, "resolved");
    dt_json_int(j, "threads", r->threads);
    dt_json_int(j, "replicas", r->replicas);
    dt_json_int(j, "replica_threads", r->replica_threads);
    dt_json_int(j, "workers", r->workers);
    dt_json_int(j, "micro_batch", r->micro_batch);
    dt_json_string(j, "precision", DT_WORD_OF(DT_PRECISION_WORDS, r->precision));
    dt_json_string(j, "device", DT_WORD_OF(DT_DEVICE_WORDS, r->device));
    dt_json_string(j, "best", dt_metric_name((dt_metric_id)dt_metric_of_best(r->best)));
    dt_json_end_object(j);
}

void dt_run_state_build(const dt_run_state *s, dt_json *j) {
    char hex[17];
    dt_json_reset(j);
    dt_json_begin_object(j, NULL);
    dt_json_int(j, "format", DT_FORMAT_STATE); // checked before anything else
    dt_json_int(j, "networks", DT_NETWORKS);
    dt_json_int(j, "step", s->step);
    dt_json_int(j, "total_steps", s->total_steps);
    dt_json_int(j, "steps_per_epoch", s->steps_per_epoch);
    // 16 hex digits, see the file's head
    dt_hash_hex(s->seed, hex);
    dt_json_string(j, "seed", hex);
    dt_json_int(j, "world_size", s->world_size);
    dt_hash_hex(s->host_layout_hash, hex);
    if (s->host_layout_hash) dt_json_string(j, "spread", hex); // 0: all ranks on one host; older files lack the member
    if (s->nccl_algo) dt_json_string(j, "nccl_algo", s->nccl_algo);
    dt_hash_hex(s->data_fingerprint, hex);
    dt_json_string(j, "data_fingerprint", hex);
    dt_hash_hex(s->teacher, hex);
    if (s->teacher) dt_json_string(j, "teacher", hex);
    dt_json_real(j, "loss", s->loss);
    dt_json_int(j, "metrics_offset", s->metrics_offset);
    build_resolved(&s->resolved, j);
    if (s->loss_scale > 0) { // absent without loss scaling
        dt_json_begin_object(j, "scaler");
        dt_json_real(j, "scale", s->loss_scale);
        dt_json_int(j, "clean_steps", s->clean_steps);
        dt_json_int(j, "skipped", s->n_skipped);
        dt_json_end_object(j);
    }
    dt_json_begin_array(j, "history");
    for (int i = 0; i < s->n_history; i++) {
        dt_json_begin_object(j, NULL);
        dt_json_int(j, "step", s->history[i].step);
        dt_json_real(j, "value", s->history[i].value);
        dt_json_end_object(j);
    }
    dt_json_end_array(j);
    dt_json_int(j, "best_step", s->best_step);
    dt_json_real(j, "best_value", s->best_value);
    dt_json_string(j, "version", text_or_empty(s->version));
    dt_json_raw(j, "classes", s->classes ? s->classes : "{}"); // already JSON
    dt_json_string(j, "environment", text_or_empty(s->environment));
    if (s->engines) dt_json_string(j, "engines", s->engines);
    char *config = s->config ? dt_config_dump(s->config) : NULL;
    dt_json_string(j, "config", text_or_empty(config));
    free(config);
    dt_json_end_object(j);
}

// ---- parsing ---------------------------------------------------------------------------------------

enum { MAX_STATE_BYTES = 256 << 20 }; // 256 MiB: a longer file is no state.json

typedef struct reader {
    const json_t *object;
    const char *bad; // first member that is missing or of another type
} reader;

static int64_t run_state_read_int(reader *r, const char *key) {
    const json_t *v = json_object_get(r->object, key);
    if (!json_is_integer(v) && !r->bad) r->bad = key;
    return json_integer_value(v);
}

// Reads a number between low and high, so that a forged file cannot choose any.
static int64_t read_within(reader *r, const char *key, int64_t low, int64_t high) {
    const int64_t v = run_state_read_int(r, key);
    if ((v < low || v > high) && !r->bad) r->bad = key;
    return v;
}

// Reads the answer to a key.
static int read_answer(reader *r, const char *name, dt_key key) {
    const int64_t v = run_state_read_int(r, name);
    // the key's own range bounds the answer
    if (!dt_config_in_range(key, (double)v) && !r->bad) r->bad = name;
    return (int)v;
}

static double run_state_read_real(reader *r, const char *key) {
    const json_t *v = json_object_get(r->object, key);
    if (json_is_null(v)) return NAN; // JSON writes NaN as null
    if (!json_is_number(v) && !r->bad) r->bad = key;
    return json_number_value(v);
}

static const char *run_state_read_text(reader *r, const char *key) {
    const json_t *v = json_object_get(r->object, key);
    if (!json_is_string(v) && !r->bad) r->bad = key;
    // never NULL: callers compare and copy without a check
    return text_or_empty(json_string_value(v));
}

static int run_state_read_word(reader *r, const char *key, const char *words) {
    const int i = dt_word_index(words, run_state_read_text(r, key));
    if (i < 0 && !r->bad) r->bad = key;
    return i < 0 ? 0 : i;
}

static uint64_t read_hex(reader *r, const char *key) {
    return strtoull(run_state_read_text(r, key), NULL, 16);
}

static void read_resolved(reader *r, dt_resolved *out) {
    // its own bad: names of inner members are reported as they are
    reader inner = {json_object_get(r->object, "resolved"), NULL};
    out->threads = read_answer(&inner, "threads", DT_KEY(device.threads));
    out->replicas = read_answer(&inner, "replicas", DT_KEY(device.replicas));
    out->replica_threads = read_answer(&inner, "replica_threads", DT_KEY(device.threads));
    out->workers = read_answer(&inner, "workers", DT_KEY(data.workers));
    out->micro_batch = read_answer(&inner, "micro_batch", DT_KEY(train.micro_batch));
    out->precision = (dt_precision)run_state_read_word(&inner, "precision", DT_WORDS(DT_PRECISION_WORDS));
    out->device = (dt_device_kind)run_state_read_word(&inner, "device", DT_WORDS(DT_DEVICE_WORDS));
    int id = DT_N_METRICS - 1; // from the end, so that -1 means none
    const char *best = dt_config_renamed_word(DT_KEY_NAME(eval.best), run_state_read_text(&inner, "best"));
    while (id >= 0 && strcmp(dt_metric_name((dt_metric_id)id), best) != 0) id--;
    if (id < 0 && !inner.bad) inner.bad = "best";
    out->best = dt_best_of_metric((dt_metric_id)id);
    if (inner.bad && !r->bad) r->bad = inner.bad;
}

// The scaler is missing without loss scaling.
static void read_scaler(reader *r, dt_run_state *s) {
    reader inner = {json_object_get(r->object, "scaler"), NULL};
    if (!inner.object) return;
    s->loss_scale = run_state_read_real(&inner, "scale");
    if (!(s->loss_scale > 0 && s->loss_scale <= 0x1p24)) inner.bad = "scale";
    s->clean_steps = read_within(&inner, "clean_steps", 0, INT32_MAX);
    s->n_skipped = read_within(&inner, "skipped", 0, s->step);
    if (inner.bad && !r->bad) r->bad = inner.bad;
}

static void read_history(reader *r, dt_run_state *s) {
    const json_t *list = json_object_get(r->object, "history");
    if (!json_is_array(list) && !r->bad) r->bad = "history";
    for (size_t i = 0; i < json_array_size(list); i++) {
        reader point = {json_array_get(list, i), NULL};
        int64_t step = read_within(&point, "step", 0, s->step); // no evaluation lies beyond the checkpoint's step
        dt_run_state_add_eval(s, step, run_state_read_real(&point, "value"));
        if (point.bad && !r->bad) r->bad = "history";
    }
}

dt_status dt_run_state_parse(dt_run_state *s, const char *where, const char *text) {
    json_error_t error;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (!root) return dt_fail(DT_E_CKPT, "%s: not JSON (line %d: %s)", where, error.line, error.text);
    reader r = {root, NULL};
    dt_run_state_init(s);
    int64_t format = run_state_read_int(&r, "format");
    if (!r.bad && format < 1) r.bad = "format";
    const char *writer = json_string_value(json_object_get(root, "version"));
    dt_status st = dt_format_check(where, format, DT_FORMAT_STATE, writer);
    if (st != DT_OK) {
        json_decref(root);
        return st;
    }
    // absent in checkpoints from before DT_NETWORKS: 0
    if (json_object_get(root, "networks")) s->networks = (int)read_within(&r, "networks", 0, INT32_MAX);
    const dt_status networks = dt_format_check(where, s->networks, DT_NETWORKS, writer);
    if (networks != DT_OK) {
        json_decref(root);
        return networks;
    }
    s->step = read_within(&r, "step", 0, INT64_MAX / 2);
    s->total_steps = read_within(&r, "total_steps", 0, INT64_MAX / 2);
    s->steps_per_epoch = read_within(&r, "steps_per_epoch", 1, INT64_MAX / 2);
    s->seed = read_hex(&r, "seed");
    s->world_size = (int)read_within(&r, "world_size", 1, INT32_MAX);
    if (json_object_get(root, "spread")) s->host_layout_hash = read_hex(&r, "spread");
    if (json_object_get(root, "nccl_algo")) s->nccl_algo = dt_xstrdup(run_state_read_text(&r, "nccl_algo"));
    s->data_fingerprint = read_hex(&r, "data_fingerprint");
    if (json_object_get(root, "teacher")) s->teacher = read_hex(&r, "teacher");
    s->loss = run_state_read_real(&r, "loss");
    s->metrics_offset = read_within(&r, "metrics_offset", -1, INT64_MAX / 2);
    read_resolved(&r, &s->resolved);
    read_scaler(&r, s);
    read_history(&r, s);
    s->best_step = read_within(&r, "best_step", -1, s->step);
    s->best_value = run_state_read_real(&r, "best_value");
    s->version = dt_xstrdup(run_state_read_text(&r, "version"));
    s->classes = json_dumps(json_object_get(root, "classes"), JSON_COMPACT);
    if (!s->classes && !r.bad) r.bad = "classes";
    s->environment = dt_xstrdup(run_state_read_text(&r, "environment"));
    if (json_object_get(root, "engines")) s->engines = dt_xstrdup(run_state_read_text(&r, "engines"));
    const char *config = run_state_read_text(&r, "config");
    if (r.bad)
        st = dt_fail(DT_E_CKPT, "%s: member '%s' is missing, of another type or out of range", where, r.bad);
    else if (dt_config_parse(&s->config, where, config, strlen(config), NULL, 0) != DT_OK)
        // a newer dtrain may have keys that this one lacks
        st = *s->version <= '9' && strverscmp(s->version, dt_version) > 0
                 ? dt_fail_context(DT_E_USAGE, "%s: written by dtrain %.40s, and this is %s: member 'config'", where,
                                   s->version, dt_version)
                 : dt_fail_context(DT_E_CKPT, "%s: member 'config'", where);
    json_decref(root);
    if (st != DT_OK) dt_run_state_fini(s); // a half-read record is never returned
    return st;
}

// The counts must be what its own config asks for, and the config must mean the network that it did.
static dt_status check_config(const dt_run_state *s, const char *where) {
    // counts that no run can have give a division by 0 later
    const char *bad = dt_resolve_find_bad(&s->resolved, s->config);
    if (s->networks < DT_NETWORKS && s->config->model.layers)
        return dt_fail(DT_E_CKPT,
                       "%s: model.layers meant another network when this run began: conv padded "
                       "by default, avg_pool left padding out. Train it anew, with `pad: same` and "
                       "`count_include_pad: false` where that matters; model.init takes weights",
                       where);
    return bad ? dt_fail(DT_E_CKPT, "%s: member '%s' does not fit the others and the config", where, bad) : DT_OK;
}

dt_status dt_run_state_read(dt_run_state *s, const char *folder, int64_t step, char **text) {
    char *path = dt_xprintf("%s/state.json", folder);
    size_t n = 0;
    *text = NULL;
    dt_status st = dt_io_read_own(text, &n, path, MAX_STATE_BYTES, DT_E_CKPT);
    if (st == DT_OK) st = dt_run_state_parse(s, path, *text);
    if (st == DT_OK && s->step != step) // a checkpoint copied to another step's folder
        st = dt_fail(DT_E_CKPT, "%s: member 'step' is %lld, its checkpoint is of step %lld", path, (long long)s->step,
                     (long long)step);
    if (st == DT_OK) st = check_config(s, path);
    if (st != DT_OK) dt_run_state_fini(s);
    free(path);
    return st;
}

dt_status dt_run_state_check(const char *folder, int64_t step) {
    dt_run_state s;
    char *text;
    dt_run_state_init(&s);
    dt_status st = dt_run_state_read(&s, folder, step, &text);
    dt_run_state_fini(&s);
    free(text);
    return st;
}

char *dt_run_state_environment(const char *described) {
    char *text = dt_xstrdup(described);
    // a description ends in ", N threads" or ", device N", which change no bits
    char *comma = strrchr(text, ',');
    if (comma && (strstr(comma, "thread") || strstr(comma, "device"))) *comma = 0;
    // what changes oneDNN's bits and its ISA does not show
    static const char *const NAMES[] = {"ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE",
                                        "ONEDNN_CPU_ISA_HINTS", "DNNL_CPU_ISA_HINTS"};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        const char *value = getenv(NAMES[i]);
        if (!value) continue;
        char *more = dt_xprintf("%s, %s=%s", text, NAMES[i], value);
        free(text);
        text = more;
    }
    return text;
}

bool dt_run_state_same_environment(const dt_run_state *s, const char *described) {
    char *now = dt_run_state_environment(described);
    const bool same = s->environment && strcmp(s->environment, now) == 0;
    free(now);
    return same;
}

// ---- class names --------------------------------------------------------------------------------------------------

char *dt_class_names_text(const dt_field_info *fields, int n_fields) {
    dt_json j;
    dt_json_init(&j);
    dt_json_begin_object(&j, NULL);
    for (int i = 0; i < n_fields; i++) {
        const dt_field_info *f = &fields[i];
        const int n = f->n_classes + f->n_categories; // one of both is 0
        // values of the data are the numbers
        if (n > 0 && !f->class_names) dt_json_int(&j, f->name, n);
        if (n == 0 || !f->class_names) continue;
        dt_json_begin_array(&j, f->name);
        for (int k = 0; k < n; k++)
            f->class_names[k] ? dt_json_string(&j, NULL, f->class_names[k]) : dt_json_null(&j, NULL);
        dt_json_end_array(&j);
    }
    dt_json_end_object(&j);
    char *text = strdup(j.data);
    dt_json_fini(&j);
    return text;
}

static size_t n_classes(const json_t *classes) {
    // an array of names, or their number
    return json_is_array(classes) ? json_array_size(classes) : (size_t)json_integer_value(classes);
}

// Class k: its name, or its number where it has none.
static const char *class_names_name_of(const json_t *classes, size_t k, char buf[32]) {
    const char *name = json_string_value(json_array_get(classes, k));
    snprintf(buf, 32, "%zu", k);
    return name ? name : buf;
}

void dt_class_names_compare(const char *theirs, const char *ours, const char *from) {
    json_t *a = json_loads(theirs, 0, NULL), *b = json_loads(ours, 0, NULL), *there;
    const char *field;
    json_object_foreach(a, field, there) { // fields that both have
        const json_t *here = json_object_get(b, field);
        char was[32], is[32];
        size_t k = 0, n = n_classes(there);
        if (n != n_classes(here)) continue; // other sizes are an error elsewhere: the head does not fit
        while (k < n && strcmp(class_names_name_of(there, k, was), class_names_name_of(here, k, is)) == 0) k++;
        if (k < n)
            dt_warn("%s: class %zu of %s was '%s' there and is '%s' here: name the head in "
                    "model.init_keep, so that it starts anew",
                    from, k, field, class_names_name_of(there, k, was), class_names_name_of(here, k, is));
    }
    json_decref(a);
    json_decref(b);
}

dt_status dt_class_names_check(const char *theirs, const char *ours, const char *field) {
    json_t *a = json_loads(theirs, 0, NULL), *b = json_loads(ours, 0, NULL);
    const json_t *there = json_object_get(a, field), *here = json_object_get(b, field);
    const size_t n = n_classes(there);
    char was[32], is[32];
    dt_status st = DT_OK;
    if (n != n_classes(here))
        st = dt_fail(DT_E_USAGE,
                     "train.teacher knows %zu classes of %s, and there are %zu here: they must be "
                     "the same",
                     n, field, n_classes(here));
    for (size_t k = 0; k < n && st == DT_OK; k++)
        if (strcmp(class_names_name_of(there, k, was), class_names_name_of(here, k, is)) != 0)
            st = dt_fail(DT_E_USAGE,
                         "train.teacher: class %zu of %s is '%s' there and '%s' here: they must be "
                         "the same",
                         k, field, class_names_name_of(there, k, was), class_names_name_of(here, k, is));
    json_decref(a);
    json_decref(b);
    return st;
}
