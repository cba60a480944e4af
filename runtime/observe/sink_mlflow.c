// sink_mlflow.c: a run in MLflow: params, metrics, tags, and files as artifacts, through the REST API of a tracking server.
//
// The spool is metrics.jsonl itself: a thread reads the lines behind those that the server has taken, a few times a
// second, and sends them in batches. Each batch sets a tag of the run that says how far the server is, so that nothing is
// sent twice where an answer did not come or the job was killed. RUN/mlflow.json says which run of MLflow this one is. A
// server that is away, slow or full costs a warning and nothing else: what it missed is sent when it answers again, in
// this attempt, in the next one, or when the command of the finished run is given once more. An attempt goes on in the
// run of those before it, and steps that are done again are not sent again: MLflow keeps every value of a step.
// Of steps every `metrics.every` is sent, as to TensorBoard.
//
// The credentials come from the environment (MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and _PASSWORD) or from
// ~/.mlflow/credentials, as with MLflow's own client, and are never written anywhere.
// https://mlflow.org/docs/latest/rest-api.html
#define _GNU_SOURCE
#include "observe/metrics_internal.h"

#include "base/core.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/log.h"
#include "base/os.h"
#include "base/text.h"
#include "base/thread.h"
#include "base/watch.h"
#include "config/words.h"
#include "observe/run_log.h"
#include "store/http.h"
#include "store/ini.h"
#include "store/s3.h"

#include <ctype.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BATCH = 999, BATCH_PARAMS = 100, MAX_NAME = 250, MAX_VALUE = 500 }; // what the server takes
#define LOOK_S   1.0
#define ANSWER_S 10.0  // for one request
#define LAST_S   15.0  // at the end of the run, for lines, behind the last that the server took
#define KILLED_S 0.8   // for all where the run is stopped: its grace is for what is saved
#define END_S    600.0 // for all else
enum { FILE_S = 30 };  // without a byte of an answer, or of refusals

// How far the server has the lines of metrics.jsonl.
typedef struct place {
    int64_t sent;                // bytes
    int64_t n_more;              // metrics of the line behind them
    int64_t last_step, last_val; // newest step and validation: repeated ones are recognised by them
} place;

typedef struct mlflow {
    dt_metrics_opts o;
    char *jsonl, *state_file; // paths
    json_t *params;           // array of key and value
    json_int_t config;        // hash of params
    char *authorization;      // a header, or NULL
    char *user;               // NAME:PASSWORD, or NULL
    char *experiment_id, *run_id, *artifacts;
    char *create_id; // a tag of the run, from when it was first asked for
    place at;
    bool has_found;           // where in the lines of this attempt the server is
    bool has_asked;           // how far the server is
    bool has_params, has_end; // the server has the params; it knows that the run is finished
    double again_s, pause_s;  // after a failure: the time of the next attempt, the pause before it
    bool away, gave_up;
    char refusal[1024]; // the last one
    dt_status status;   // how the run ended
    int64_t end_step;
    bool ended;
    char missing[256];       // files, or kinds of what it logs, that the server has not got
    bool sends_again;        // the next command sends the files again: the server may take them then
    _Atomic double took_s;   // when it took something last
    atomic_bool sends_files; // no more lines
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop, done;
    atomic_bool late; // requests are given up
} mlflow;

// ---- the server ------------------------------------------------------------------------------------

// One warning for each time that the server goes away.
static void note_failure(mlflow *s, const char *what) {
    // seconds: 2, 4, 8, … up to a minute
    s->pause_s = s->pause_s < 1 ? 2 : s->pause_s < 60 ? 2 * s->pause_s : 60;
    s->again_s = dt_clock_s() + s->pause_s;
    s->has_asked = false; // the server may have taken what it has not answered
    if (!s->away) dt_warn("MLflow: %s; training continues, and the missing data is sent later", what);
    s->away = true;
}

typedef enum answer { DONE, LATER, NEVER } answer; // NEVER: the server will not take it

static const char *sink_mlflow_advice(const mlflow *s, int status) {
    if (status == 401 || status == 403)
        return " (check MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and _PASSWORD)";
    if (status / 100 == 4 && s->run_id)
        return " (if the run was deleted there, restore it, or remove mlflow.json of this run, "
               "which then begins another)";
    return status == 404 ? " (check metrics.mlflow.uri)" : "";
}

// Whether a server that refuses with this status may take the same later: after an outage, or with other credentials.
static bool sink_mlflow_may_pass(int status) {
    return status / 100 != 4 || status == 401 || status == 403 || status == 404;
}

// Sends `body`, which it drops, or asks without one. Only with `out` is a refusal NEVER; nothing is said then but in
// s->refusal.
static answer sink_mlflow_ask(mlflow *s, const char *path, json_t *body, json_t **out) {
    char *url = dt_xprintf("%s/%s", s->o.mlflow_uri, path), *text = NULL;
    // NULL ends the list: without a token no second header
    const char *headers[] = {"Content-Type: application/json", s->authorization, NULL};
    dt_http_reply reply = {0};
    if (body) text = json_dumps(body, JSON_COMPACT);
    const dt_http_request r = {.method = body ? "POST" : "GET",
                               .url = url,
                               .headers = headers,
                               .user = s->user,
                               .body = text,
                               .n_body = text ? strlen(text) : 0,
                               .max_body = 1 << 20,
                               .once = body,
                               .limit_s = ANSWER_S,
                               .stop = &s->late};
    answer a = DONE;
    if (dt_http_do(&reply, &r) != DT_OK) {
        note_failure(s, dt_error_message());
        dt_error_clear();
        a = LATER;
    } else if (reply.status / 100 != 2) {
        json_t *said = reply.body ? json_loads(reply.body, 0, NULL) : NULL;
        const char *message = json_string_value(json_object_get(said, "message"));
        snprintf(s->refusal, sizeof s->refusal, "%s/%s returned %d%s%.300s%s", s->o.mlflow_uri, path, reply.status,
                 message ? ": " : "", message ? message : "", sink_mlflow_advice(s, reply.status));
        a = sink_mlflow_may_pass(reply.status) || !out ? LATER : NEVER;
        if (a == LATER) note_failure(s, s->refusal);
        json_decref(said);
    } else {
        if (s->away) dt_info("MLflow responds again");
        s->away = false;
        s->pause_s = 0;
        snprintf(s->refusal, sizeof s->refusal, "%s/%s returned a response that is not MLflow's", s->o.mlflow_uri,
                 path); // if what is wanted is not in it
        if (out) *out = reply.body ? json_loads(reply.body, 0, NULL) : NULL;
    }
    dt_http_reply_fini(&reply);
    json_decref(body);
    free(url);
    free(text);
    return a;
}

static void set_text(char **to, const char *text) {
    free(*to);
    *to = text ? dt_xstrdup(text) : NULL;
}

static void save_state(const mlflow *s) {
    json_t *j = json_pack("{s:s?, s:s?, s:s?, s:s?, s:I, s:b, s:b}", "experiment_id", s->experiment_id, "create_id",
                          s->create_id, "run_id", s->run_id, "artifact_uri", s->artifacts, "config", s->config,
                          "params", s->has_params, "finished", s->has_end);
    char *text = json_dumps(j, 0);
    if (dt_io_write_file(s->state_file, text, strlen(text)) != DT_OK) dt_error_clear();
    free(text);
    json_decref(j);
}

// A training that begins anew with another config than one that died before its first checkpoint is another run.
static void sink_mlflow_load_state(mlflow *s) {
    json_t *j = json_load_file(s->state_file, 0, NULL);
    if (s->o.truncate_to < 0 && json_integer_value(json_object_get(j, "config")) != s->config) {
        json_decref(j);
        return;
    }
    set_text(&s->experiment_id, json_string_value(json_object_get(j, "experiment_id")));
    set_text(&s->create_id, json_string_value(json_object_get(j, "create_id")));
    set_text(&s->run_id, json_string_value(json_object_get(j, "run_id")));
    set_text(&s->artifacts, json_string_value(json_object_get(j, "artifact_uri")));
    s->has_params = json_is_true(json_object_get(j, "params"));
    s->has_end = json_is_true(json_object_get(j, "finished"));
    json_decref(j);
}

// ---- what is sent ----------------------------------------------------------------------------------

// Whether MLflow takes the letter in names: Python's \w. Of other scripts than these it takes some letters only, and
// which depends on its Python.
static bool is_letter(uint32_t c) {
    static const uint32_t letters[][2] = {
        {0xC0, 0xD6},     {0xD8, 0xF6},     {0xF8, 0x2C1},    {0x38E, 0x3A1},   {0x3A3, 0x3F5},   {0x3F7, 0x481},
        {0x48A, 0x52F},   {0x5D0, 0x5EA},   {0x620, 0x64A},   {0xE01, 0xE30},   {0x1E00, 0x1F15}, {0x3041, 0x3096},
        {0x30A1, 0x30FA}, {0x30FC, 0x30FF}, {0x3400, 0x4DB5}, {0x4E00, 0x9FEF}, {0xAC00, 0xD7A3}};
    if (c < 128) return isalnum((int)c) || (c && strchr("_-. ", (int)c));
    for (size_t i = 0; i < sizeof letters / sizeof *letters; i++)
        if (c >= letters[i][0] && c <= letters[i][1]) return true;
    return false;
}

// A name that the server takes, and its length, which leaves room for a number; other letters become _. It must be the
// same when it is read as a path: no part of it is empty or begins with a dot.
static size_t clean_name(char out[MAX_NAME + 1], const char *name) {
    enum { MOST = MAX_NAME - 5 };
    size_t n = 0, k;
    for (; *name; name += k) {
        k = dt_text_utf8_length(name);
        // the code point; 0: no UTF-8
        uint32_t c = k == 0 ? 0 : k == 1 ? (uint8_t)*name : (uint8_t)*name & 0xFFu >> (k + 1);
        if (k == 0) k = 1;
        // cut at a letter
        if (n + k > MOST) break;
        for (size_t i = 1; i < k; i++) c = c << 6 | (name[i] & 0x3F);
        const bool begins = n == 0 || out[n - 1] == '/';
        if (c == '/' ? begins : !is_letter(c) || (c == '.' && begins))
            out[n++] = '_';
        else
            for (size_t i = 0; i < k; i++) out[n++] = name[i];
    }
    // a path must not end with an empty part
    if (n > 0 && out[n - 1] == '/') out[n - 1] = '_';
    out[n] = '\0';
    return n;
}

static json_t *sink_mlflow_pair(const char *key, const char *value) {
    char name[MAX_NAME + 1], text[MAX_VALUE + 1];
    clean_name(name, key);
    dt_text_clean(text, sizeof text, value);
    return json_pack("{s:s, s:s}", "key", name, "value", text);
}

static answer find_experiment(mlflow *s) {
    json_t *reply = NULL, *body = json_pack("{s:s}", "name", s->o.mlflow_experiment);
    answer a = sink_mlflow_ask(s, "api/2.0/mlflow/experiments/create", body, &reply);
    set_text(&s->experiment_id, json_string_value(json_object_get(reply, "experiment_id")));
    json_decref(reply);
    reply = NULL;
    if (a == NEVER) { // it is there
        char *name = dt_s3_encode(s->o.mlflow_experiment, true);
        char *path = dt_xprintf("api/2.0/mlflow/experiments/get-by-name?experiment_name=%s", name);
        a = sink_mlflow_ask(s, path, NULL, &reply);
        set_text(&s->experiment_id,
                 json_string_value(json_object_get(json_object_get(reply, "experiment"), "experiment_id")));
        free(name);
        free(path);
        json_decref(reply);
    }
    if (a == DONE && !s->experiment_id) a = NEVER;
    if (a == NEVER && !s->gave_up)
        dt_warn("MLflow: there is no experiment '%s', and it cannot be made: %s: nothing is sent",
                s->o.mlflow_experiment, s->refusal);
    s->gave_up |= a == NEVER;
    return a;
}

static void take_run(mlflow *s, const json_t *run) {
    const json_t *info = json_object_get(run, "info");
    set_text(&s->run_id, json_string_value(json_object_get(info, "run_id")));
    set_text(&s->artifacts, json_string_value(json_object_get(info, "artifact_uri")));
}

// The run that was asked for without an answer, if there is one.
static answer find_run(mlflow *s) {
    char *filter = dt_xprintf("tags.`dtrain.id` = '%s'", s->create_id);
    json_t *reply = NULL, *body = json_pack("{s:[s], s:s}", "experiment_ids", s->experiment_id, "filter", filter);
    const answer a = sink_mlflow_ask(s, "api/2.0/mlflow/runs/search", body, &reply);
    take_run(s, json_array_get(json_object_get(reply, "runs"), 0));
    json_decref(reply);
    free(filter);
    return a;
}

static answer create_run(mlflow *s) {
    char host[256] = "";
    json_t *reply = NULL, *tags;
    answer a = s->experiment_id ? DONE : find_experiment(s);
    if (a != DONE) return a;
    // a request for this run was sent before, and its answer may have been lost
    if (s->create_id && ((a = find_run(s)) == LATER || s->run_id)) return a;
    gethostname(host, sizeof host - 1);
    // host, process and time: no other run has the text
    if (!s->create_id) s->create_id = dt_xprintf("%s %d %.3f", host, (int)getpid(), dt_clock_wall_s());
    // before the request: after a kill the next attempt looks for the run by the tag
    save_state(s);
    tags = json_array();
    // MLflow has no idempotent create: the tag is what find_run searches
    json_array_append_new(tags, sink_mlflow_pair("dtrain.id", s->create_id));
    json_array_append_new(tags, sink_mlflow_pair("mlflow.source.name", "dtrain"));
    json_array_append_new(tags, sink_mlflow_pair("mlflow.source.type", "JOB"));
    json_array_append_new(tags, sink_mlflow_pair("dtrain.version", s->o.version));
    json_array_append_new(tags, sink_mlflow_pair("dtrain.run_dir", s->o.run_dir));
    json_array_append_new(tags, sink_mlflow_pair("dtrain.host", host));
    json_t *body = json_pack("{s:s, s:s, s:I, s:o}", "experiment_id", s->experiment_id, "run_name", s->o.run_name,
                             // milliseconds since 1970
                             "start_time", (json_int_t)(1000 * dt_clock_wall_s()), "tags", tags);
    a = sink_mlflow_ask(s, "api/2.0/mlflow/runs/create", body, &reply);
    take_run(s, json_object_get(reply, "run"));
    if (a == DONE && !s->run_id) a = NEVER;
    if (a == NEVER) {
        dt_warn("MLflow: %s: nothing is sent", s->refusal);
        s->gave_up = true; // for this attempt
    }
    json_decref(reply);
    if (a == DONE) save_state(s); // with the run's id
    return a;
}

static answer update_run(mlflow *s, const char *status, bool end) {
    json_t *body = json_pack("{s:s, s:s}", "run_id", s->run_id, "status", status);
    // milliseconds since 1970
    if (end) json_object_set_new(body, "end_time", json_integer((json_int_t)(1000 * dt_clock_wall_s())));
    return sink_mlflow_ask(s, "api/2.0/mlflow/runs/update", body, NULL);
}

// bytes, newest step, newest validation, metrics of the line behind: as `place`
static const char place_tag[] = "dtrain.sent", place_format[] = "%lld %lld %lld %lld";

// Without metrics a run is of use to nobody, so they wait until the server takes them. next: behind them; or NULL.
static answer log_batch(mlflow *s, const char *kind, json_t *items, const place *next) {
    if (json_array_size(items) == 0) return DONE;
    json_t *reply = NULL, *body = json_pack("{s:s, s:O}", "run_id", s->run_id, kind, items);
    if (next) {
        char *text = dt_xprintf(place_format, (long long)next->sent, (long long)next->last_step,
                                (long long)next->last_val, (long long)next->n_more);
        // in the same request as the metrics: the server counts what it takes
        json_object_set_new(body, "tags", json_pack("[o]", sink_mlflow_pair(place_tag, text)));
        free(text);
    }
    // with `next` a refusal is LATER: sink_mlflow_ask without out
    const answer a = sink_mlflow_ask(s, "api/2.0/mlflow/runs/log-batch", body, next ? NULL : &reply);
    if (a == NEVER) {
        dt_warn("MLflow: %s: these %s are left out", s->refusal, kind);
        if (!strstr(s->missing, kind)) dt_text_list(s->missing, sizeof s->missing, kind);
    }
    // read by close_mlflow, on the training's thread
    if (a == DONE) s->took_s = dt_clock_s();
    json_decref(reply);
    return a;
}

static void add_param(void *params, const char *path, const char *value, const char *usual, bool is_default) {
    json_array_append_new(params, sink_mlflow_pair(path, value));
}

static answer send_params(mlflow *s) {
    const size_t n = json_array_size(s->params);
    json_t *batch = json_array(); // at most BATCH_PARAMS
    answer a = DONE;
    for (size_t i = 0; i < n && a != LATER; i++) {
        json_array_append(batch, json_array_get(s->params, i));
        if (json_array_size(batch) < BATCH_PARAMS && i + 1 < n) continue; // a full batch, or the last
        a = log_batch(s, "params", batch, NULL);
        json_array_clear(batch);
    }
    json_decref(batch);
    // NEVER: refused params are left out, and the run goes on
    if (a == LATER) return a;
    s->has_params = true;
    save_state(s);
    return DONE;
}

// Names that become the same are numbered.
static void add_metric(json_t *metrics, const char *prefix, const char *name, const json_t *value, int64_t step,
                       double at_s) {
    if (!json_is_number(value)) return; // null: NaN and infinity
    char *whole = dt_xprintf("%s/%s", prefix, name), clean[MAX_NAME + 1];
    const size_t n = clean_name(clean, whole);
    // MAX_NAME - 5 bytes at most before: room for "_999"
    for (int i = 2; json_object_get(metrics, clean); i++) snprintf(clean + n, sizeof clean - n, "_%d", i);
    json_object_set_new(metrics, clean,
                        json_pack("{s:s, s:f, s:I, s:I}", "key", clean, "value", json_number_value(value), "timestamp",
                                  (json_int_t)(1000 * at_s), "step", (json_int_t)step)); // milliseconds
    free(whole);
}

// Adds what a line of metrics.jsonl says by name, and notes in `at` that it was.
static void add_line(const mlflow *s, place *at, json_t *metrics, const json_t *line) {
    static const char *const of_step[] = {"loss", "lr", "grad_norm", "epoch", "samples_per_s", "rss"};
    const json_t *time = json_object_get(line, "time");
    // a line without a time counts as of now
    const double at_s = time ? json_number_value(time) : dt_clock_wall_s();
    const char *kind = json_string_value(json_object_get(line, "kind")), *name;
    const char *split = json_string_value(json_object_get(line, "split"));
    const int64_t step = json_integer_value(json_object_get(line, "step"));
    json_t *value;
    if (!kind) return;
    // steps that are done again after a resume were sent before
    if (strcmp(kind, "step") == 0 && step > at->last_step) {
        at->last_step = step;
        // as to TensorBoard; the last step of an epoch always
        if (step % s->o.every_steps != 0 && step % s->o.steps_per_epoch != 0) return;
        for (int i = 0; i < 6; i++)
            add_metric(metrics, dt_split_name(DT_SPLIT_TRAIN), of_step[i], json_object_get(line, of_step[i]), step,
                       at_s);
        json_object_foreach(json_object_get(line, "seconds"), name, value)
            add_metric(metrics, "time", name, value, step, at_s);
    } else if (strcmp(kind, "eval") == 0 && split) {
        const bool val = strcmp(split, dt_split_name(DT_SPLIT_VAL)) == 0;
        // an evaluation that is repeated
        if (val && step <= at->last_val) return;
        if (val) at->last_val = step;
        json_object_foreach((json_t *)line, name, value) if (dt_run_is_metric(name, value))
            add_metric(metrics, split, name, value, step, at_s);
    } else if (strcmp(kind, "goodput") == 0 && step > 0) {
        add_metric(metrics, "run", "goodput", json_object_get(line, "goodput"), step, at_s);
    }
}

// A resumed run writes lines again, of other lengths, so what the server has are steps and not bytes: goes on at the first
// line that has something new, at most as far as the server says.
static void sink_mlflow_find_place(mlflow *s) {
    dt_lines lines;
    char *line;
    size_t n;
    off_t begin = 0;
    bool is_new = false;
    dt_lines_open(&lines, s->jsonl, 0);
    // lines.at: behind the line
    while (!is_new && (line = dt_lines_next(&lines, &n)) && lines.at <= s->at.sent) {
        json_t *object = json_loadb(line, n, 0, NULL), *metrics = json_object();
        place after = s->at;
        add_line(s, &after, metrics, object);
        is_new = after.last_step != s->at.last_step || after.last_val != s->at.last_val;
        if (!is_new) begin = lines.at;
        json_decref(metrics);
        json_decref(object);
    }
    dt_lines_close(&lines);
    // another line than the server meant: from its first metric
    if (begin != s->at.sent) s->at.n_more = 0;
    s->at.sent = begin;
    s->has_found = true;
}

static answer ask_place(mlflow *s) {
    char *path = dt_xprintf("api/2.0/mlflow/runs/get?run_id=%s", s->run_id);
    json_t *reply = NULL, *tag;
    long long sent = 0, step = 0, val = 0, n_more = 0;
    size_t i;
    answer a = sink_mlflow_ask(s, path, NULL, &reply);
    if (a == NEVER) a = LATER, note_failure(s, s->refusal);
    const json_t *data = json_object_get(json_object_get(reply, "run"), "data");
    json_array_foreach(json_object_get(data, "tags"), i, tag) {
        const char *key = json_string_value(json_object_get(tag, "key"));
        const char *value = json_string_value(json_object_get(tag, "value"));
        if (key && value && strcmp(key, place_tag) == 0) (void)sscanf(value, place_format, &sent, &step, &val, &n_more);
    }
    if (a == DONE) s->at = (place){sent, n_more, step, val};
    if (a == DONE && !s->has_found) sink_mlflow_find_place(s);
    json_decref(reply);
    free(path);
    s->has_asked = a == DONE;
    return a;
}

// Sends the next lines, as many as a batch takes. *more: there may be others.
static answer send_lines(mlflow *s, bool *more) {
    place next = s->at;
    json_t *metrics = json_array();
    dt_lines lines;
    char *line;
    size_t n;
    *more = false;
    dt_lines_open(&lines, s->jsonl, next.sent);
    while (!*more && (line = dt_lines_next(&lines, &n))) {
        json_t *object = json_loadb(line, n, 0, NULL), *of_line = json_object(), *metric;
        const char *name;
        place after = next;
        int64_t i = 0;
        add_line(s, &after, of_line, object);
        json_decref(object);
        json_object_foreach(of_line, name, metric) {
            // metrics of the line that the server has
            if (i++ < next.n_more) continue;
            // full: the rest of the line goes with the next batch
            *more = json_array_size(metrics) == BATCH;
            if (*more) break;
            json_array_append(metrics, metric);
        }
        json_decref(of_line);
        after.sent = lines.at;
        after.n_more = 0;
        if (*more)
            next.n_more = i - 1;
        else
            next = after;
    }
    dt_lines_close(&lines);
    const bool any = *more || next.sent > s->at.sent;
    const answer a = any ? log_batch(s, "metrics", metrics, &next) : DONE;
    json_decref(metrics);
    if (a == DONE) s->at = next;
    return a;
}

// Sends all lines that are there, as far as the server takes them.
static answer sink_mlflow_send_all(mlflow *s, double until_s) {
    bool more = true;
    answer a = DONE;
    if (s->gave_up) return NEVER;
    if (!s->run_id && (a = create_run(s)) != DONE) return a;
    if (!s->has_asked && (a = ask_place(s)) != DONE) return a;
    if (!s->has_params && (a = send_params(s)) == LATER) return a;
    while (more && a != LATER && dt_clock_s() < until_s) a = send_lines(s, &more);
    return more ? LATER : a;
}

// ---- artifacts -------------------------------------------------------------------------------------

// Artifacts go through the server, which stores them. Where they lie elsewhere (file:, s3:) dtrain does not write. Behind
// one that the server may take later none is tried.
static void sink_mlflow_send_file(mlflow *s, const char *path, const char *name) {
    static const char begin[] = "mlflow-artifacts:/";
    const char *folder = s->artifacts ? s->artifacts : "";
    const char *headers[] = {"Content-Type: application/octet-stream", s->authorization, NULL};
    struct stat info;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const bool any =
        fd >= 0 && fstat(fd, &info) == 0 && info.st_size > 0 && strncmp(folder, begin, sizeof begin - 1) == 0;
    if (any && s->sends_again) dt_text_list(s->missing, sizeof s->missing, name);
    if (!any || s->sends_again) {
        if (fd >= 0) close(fd);
        return;
    }
    folder += sizeof begin - 1;
    // "mlflow-artifacts:/5/ab12/artifacts" and with "//" alike
    while (*folder == '/') folder++;
    // mapped: weights may have gigabytes
    void *data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    char *url = dt_xprintf("%s/api/2.0/mlflow-artifacts/artifacts/%s/%s", s->o.mlflow_uri, folder, name);
    const dt_http_request r = {.method = "PUT",
                               .url = url,
                               .headers = headers,
                               .user = s->user,
                               .body = data,
                               .n_body = (size_t)info.st_size,
                               .max_body = 1 << 20,
                               .stall_s = FILE_S,
                               .limit_s = FILE_S,
                               .stop = &s->late};
    dt_http_reply reply = {0};
    const bool answers = data != MAP_FAILED && dt_http_do(&reply, &r) == DT_OK;
    if (!answers)
        dt_warn("MLflow: %s", dt_error_message());
    else if (reply.status / 100 != 2)
        dt_warn("MLflow: %s refuses %s of this run with status %d", s->o.mlflow_uri, name, reply.status);
    if (!answers || reply.status / 100 != 2) {
        dt_text_list(s->missing, sizeof s->missing, name);
        s->sends_again = !answers || sink_mlflow_may_pass(reply.status);
    }
    dt_error_clear();
    dt_http_reply_fini(&reply);
    if (data != MAP_FAILED) munmap(data, (size_t)info.st_size);
    close(fd);
    free(url);
}

// Uploads the weights of the best checkpoint, or of the last.
static void send_model(mlflow *s) {
    char *path = dt_xprintf("%s/checkpoints/best.json", s->o.run_dir);
    json_t *best = json_load_file(path, 0, NULL);
    const json_t *step = json_object_get(best, "step");
    free(path);
    path = dt_xprintf("%s/checkpoints/step-%08" PRId64 "/model.safetensors", s->o.run_dir,
                      step ? (int64_t)json_integer_value(step) : s->end_step);
    sink_mlflow_send_file(s, path, "model.safetensors");
    free(path);
    json_decref(best);
}

static void sink_mlflow_send_files(mlflow *s) {
    static const char *const names[] = {"config.yaml", "result.json", "report.html", "split.csv"};
    for (int i = 0; i < 4; i++) {
        char *path = dt_xprintf("%s/%s", s->o.run_dir, names[i]);
        sink_mlflow_send_file(s, path, names[i]);
        free(path);
    }
    if (s->o.mlflow_model) send_model(s);
}

// The jsonl sink has closed its file: the lines are all there.
static void send_end(mlflow *s) {
    if (!s->ended) return;
    const double until_s = dt_clock_s() + (s->away ? 1 : END_S);
    answer a;
    while ((a = sink_mlflow_send_all(s, until_s)) == LATER && !s->late && dt_clock_s() < until_s)
        nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
    if (a == DONE && s->has_end && s->status == DT_OK) return; // all of it was there before
    if (a == DONE && s->run_id) {
        const char *status = s->status == DT_OK ? "FINISHED" : s->status == DT_E_PREEMPTED ? "KILLED" : "FAILED";
        json_t *tags = json_array();
        char code[16];
        // the exit code of the process
        snprintf(code, sizeof code, "%d", s->status);
        json_array_append_new(tags, sink_mlflow_pair("dtrain.exit_status", code));
        (void)log_batch(s, "tags", tags, NULL);
        json_decref(tags);
        s->sends_files = true;
        if (s->status == DT_OK) sink_mlflow_send_files(s);
        s->has_end = update_run(s, status, true) == DONE && !s->sends_again && s->status == DT_OK;
        save_state(s);
    } else if (!s->gave_up) {
        snprintf(s->missing, sizeof s->missing, "all behind step %" PRId64, s->at.last_step);
        s->sends_again = true;
    }
    if (*s->missing || (a == DONE && s->away))
        dt_warn("MLflow has not got all of this run (%s): %s", *s->missing ? s->missing : "its status",
                s->sends_again || s->away ? "the same command again sends the rest" : "the server refuses the rest");
}

// Until the end of the run.
static void *send_along(void *state) {
    mlflow *s = state;
    dt_thread_name("mlflow");
    if (s->run_id && !s->has_end) (void)update_run(s, "RUNNING", false);
    pthread_mutex_lock(&s->lock);
    while (!s->stop) {
        pthread_mutex_unlock(&s->lock);
        // 60 s: stop is looked at in between
        if (dt_clock_s() >= s->again_s) (void)sink_mlflow_send_all(s, dt_clock_s() + 60);
        pthread_mutex_lock(&s->lock);
        if (!s->stop) dt_thread_wait(&s->wake, &s->lock, dt_clock_s() + LOOK_S);
    }
    pthread_mutex_unlock(&s->lock);
    send_end(s);
    pthread_mutex_lock(&s->lock);
    s->done = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

// ---- credentials ---------------------------------------------------------------------------------------

// Of the environment, or else of ~/.mlflow/credentials; heap, NULL: there is none.
static char *credential(const char *variable, const char *name) {
    const char *value = getenv(variable), *home = getenv("HOME");
    if (value && *value) return dt_xstrdup(value);
    char *path = dt_xprintf("%s/.mlflow/credentials", home ? home : "");
    // section [mlflow]
    char *found = dt_ini_get(path, "mlflow", name);
    free(path);
    return found;
}

// As with MLflow's client a name and password go before the token.
static void read_credentials(mlflow *s) {
    const char *token = getenv("MLFLOW_TRACKING_TOKEN");
    char *name = credential("MLFLOW_TRACKING_USERNAME", "mlflow_tracking_username");
    char *password = credential("MLFLOW_TRACKING_PASSWORD", "mlflow_tracking_password");
    if (name && password)
        s->user = dt_xprintf("%s:%s", name, password);
    else if (token && *token)
        s->authorization = dt_xprintf("Authorization: Bearer %s", token);
    free(name);
    free(password);
}

// ---- the sink --------------------------------------------------------------------------------------

static dt_status open_mlflow(void **state, const dt_metrics_opts *o) {
    mlflow *s = dt_xcalloc(1, sizeof *s);
    s->o = *o;
    // a divisor below
    if (s->o.steps_per_epoch < 1) s->o.steps_per_epoch = 1;
    s->params = json_array();
    if (o->config) dt_config_each(o->config, add_param, s->params);
    s->jsonl = dt_xprintf("%s/metrics.jsonl", o->run_dir);
    s->state_file = dt_xprintf("%s/mlflow.json", o->run_dir);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake, NULL);
    read_credentials(s);
    char *config = json_dumps(s->params, 0);
    // params tell whether a run is the same one
    s->config = (json_int_t)dt_hash64(config, strlen(config));
    free(config);
    sink_mlflow_load_state(s);
    if (o->truncate_to != INT64_MAX) s->has_end = false; // this one goes on
    *state = s;
    s->has_thread = pthread_create(&s->thread, NULL, send_along, s) == 0;
    if (!s->has_thread) dt_warn("MLflow: no thread to send by: the same command again sends all");
    return DT_OK;
}

static void sink_mlflow_take(void *state, const dt_metrics_line *r) {
    mlflow *s = state;
    if (r->kind != DT_LINE_end) return; // all else is in metrics.jsonl
    s->status = r->of.end.status;
    s->end_step = r->of.end.step;
    s->ended = true;
}

static void close_mlflow(void *state) {
    mlflow *s = state;
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    const double begin = dt_clock_s();
    s->took_s = begin;
    pthread_mutex_lock(&s->lock);
    while (s->has_thread && !s->done) {
        const double now = dt_clock_s();
        const bool stopped = s->status == DT_E_PREEMPTED || (s->o.is_stopped && s->o.is_stopped());
        // stops requests that are in flight
        s->late = now - begin > (stopped ? KILLED_S : END_S) || (!s->sends_files && now - s->took_s > LAST_S);
        dt_watch_tick(); // the other ranks wait at the end of the run
        dt_thread_wait(&s->wake, &s->lock, dt_clock_s() + 0.1);
    }
    pthread_mutex_unlock(&s->lock);
    if (s->has_thread) pthread_join(s->thread, NULL);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->wake);
    free(s->jsonl);
    json_decref(s->params);
    free(s->state_file);
    free(s->authorization);
    free(s->user);
    free(s->experiment_id);
    free(s->create_id);
    free(s->run_id);
    free(s->artifacts);
    free(s);
}

const dt_metrics_sink dt_sink_mlflow = {
    .open = open_mlflow,
    .take = sink_mlflow_take,
    .close = close_mlflow,
};
