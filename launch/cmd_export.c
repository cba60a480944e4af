// cmd_export.c: dtrain export RUN OUT.onnx: a run's network as a file that other programs run, or OUT.safetensors: its
// weights under the names of another library. It needs the run's config and one checkpoint; the data set only where the
// config leaves something to it, such as the range of numbers.

#include "launch.h"

#include "base/core.h"
#include "base/io.h"
#include "base/json.h"
#include "base/log.h"
#include "base/os.h"
#include "base/text.h"
#include "batch/targets.h"
#include "checkpoint/ckpt.h"
#include "data/data.h"
#include "models/models.h"
#include "onnx/onnx_export.h"
#include "run/run_state.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// indices into options; bytes of an output's name
enum { WHICH, PREPROCESS, OUTPUTS, TRITON, NAMES, MAX_OUTPUTS = 16, MAX_NAME = 256 };
static const dt_cli_option options[] = {
    [WHICH] = LAUNCH_WHICH,
    [PREPROCESS] = {"--preprocess", NULL,
                    "inputs are pixels (N,H,W,C) and numbers in their units; the file normalizes them"},
    [OUTPUTS] = {"--outputs", "NAME[,NAME]",
                 "outputs of the file, such as logits,embedding (default: the logits of each target)"},
    [TRITON] = {"--triton", "DIR", "also write the network into DIR, a model repository of Triton Inference Server"},
    [NAMES] = {"--names", "dtrain|torchvision|timm",
               "names of the tensors in OUT.safetensors (default dtrain, as in a checkpoint)"},
    {NULL}};
enum { NAMES_DTRAIN, NAMES_TORCHVISION, NAMES_TIMM }; // in the order of the option's words

typedef struct export {
    dt_config *config;
    dt_safetensors *weights;
    dt_dataset *data; // NULL: the config says all
    dt_field_info fields[DT_MAX_FIELDS];
    int n_fields; // of `fields`
    dt_targets targets;
    char text[DT_MAX_TARGETS][MAX_NAME];                       // behind logits
    const char *logits[DT_MAX_TARGETS];                        // of each target
    double *moments[DT_MAX_FIELDS];                            // of fields: n means, then n deviations; heap
    char *outputs_text;                                        // heap: outputs[].name point into the text
    dt_onnx_port outputs[MAX_OUTPUTS], numbers[DT_MAX_FIELDS]; // numbers: inputs with a normalization of their own
    int n_outputs, n_numbers;
    dt_json normalize, steps; // JSON, of the file's metadata
    char *ports[2];           // heap: inputs and outputs in Triton's words
}
export;

// the exporter's callback: weights of the graph by name; NULL: the exporter reports the missing tensor
static const float *export_tensor(void *ctx, const char *name, const dt_shape *shape) {
    const export *e = ctx;
    const int i = dt_safetensors_find(e->weights, name);
    dt_shape there; // as in the file
    // only fp32 is exported: another dtype counts as missing
    if (i < 0 || dt_safetensors_dtype(e->weights, i) != DT_F32) return NULL;
    // a name alone is not enough: a config with other widths has the same names
    dt_safetensors_shape(e->weights, i, &there);
    // in the mapped file: no copy
    return dt_shape_equal(&there, shape) ? dt_safetensors_data(e->weights, i, NULL) : NULL;
}

// The weights of a checkpoint, and what its numbers are normalised by.
static dt_status open_weights(export *e, const char *which) {
    dt_config *c = e->config;
    char *run = dt_xprintf("%s/%s", c->run.dir, c->run.name); // the run's directory
    char *path = NULL, *file = NULL, *text = NULL;
    int64_t step;
    dt_run_state record;
    dt_run_state_init(&record);
    dt_status st = dt_ckpt_find_in_run(run, which, &step, &path); // verifies hashes
    if (st == DT_OK) st = dt_run_state_read(&record, path, step, &text);
    // normalize: auto: the numbers that training measured, of the run's own config
    if (st == DT_OK) dt_config_take_moments(c, record.config, true);
    if (st == DT_OK) file = dt_xprintf("%s/model.safetensors", path);
    if (st == DT_OK) st = dt_safetensors_open(&e->weights, file); // maps the file
    if (st == DT_OK) dt_info("%s, step %" PRId64, run, step);
    dt_run_state_fini(&record);
    free(text);
    free(file);
    free(path);
    free(run);
    return st;
}

static dt_status find_fields(export *e) {
    // JSON of class names by field, as training wrote them
    const char *classes = dt_safetensors_metadata(e->weights, "classes");
    if (dt_data_exists(e->config)) {
        // what the config leaves open, such as ranges of numbers, comes from the catalog
        DT_TRY(dt_data_open_as(&e->data, e->config, NULL, 1, NULL, classes, NULL));
        e->n_fields = e->data->n_fields;
        // a copy: describe_inputs changes moments
        memcpy(e->fields, e->data->fields, (size_t)e->n_fields * sizeof *e->fields);
    } else {
        DT_TRY(dt_data_describe_fields(e->config, classes, e->fields, &e->n_fields));
    }
    return DT_OK;
}

// channels of an image (H,W,C), else numbers of a sample
static int64_t n_moments(const dt_field_info *f) {
    return f->is_image ? f->sample_shape.d[2] : dt_shape_elements(&f->sample_shape);
}

// Of values as they are, which the file gets.
// the loader subtracts origin, a program that runs the file does not
static double export_mean_of(const dt_field_info *f, int64_t i) {
    return dt_field_mean(f, i) + (f->is_image ? f->origin[i] : 0);
}

// The mean and deviation of each of a field's numbers, of each channel of an image; NULL: they are as they are.
static void take_moments(export *e, const dt_field_info *f, dt_onnx_port *p) {
    const int64_t n = n_moments(f);
    double **own = &e->moments[f - e->fields];
    bool plain = true;
    if (!*own) *own = dt_xcalloc((size_t)n, 2 * sizeof **own); // once, also where input and output share a field
    for (int64_t i = 0; i < n; i++) {
        (*own)[i] = export_mean_of(f, i);
        (*own)[n + i] = dt_field_std(f, i); // behind the n means
        // mean 0 and deviation 1: no op is needed
        plain &= (*own)[i] == 0 && (*own)[n + i] == 1;
    }
    if (!plain) p->mean = *own, p->std = *own + n; // borrowed from e->moments
}

static dt_status add_output(export *e, const char *name) {
    if (e->n_outputs == MAX_OUTPUTS) return dt_fail(DT_E_USAGE, "--outputs: more than %d", MAX_OUTPUTS);
    e->outputs[e->n_outputs] = (dt_onnx_port){.name = name}; // no mean: as the graph has the values
    // numbers are learnt in units of their own deviation: the file gives those of the data; classes are not scaled
    for (int t = 0; t < e->targets.n; t++)
        if (strcmp(name, e->logits[t]) == 0 && e->targets.items[t].field->n_classes == 0)
            take_moments(e, e->targets.items[t].field, &e->outputs[e->n_outputs]);
    e->n_outputs++;
    return DT_OK;
}

// "a,b"; NULL: the logits of each target.
static dt_status list_outputs(export *e, const char *text) {
    // names first: add_output compares with them
    char *rest = NULL;
    for (int t = 0; t < e->targets.n; t++)
        e->logits[t] = dt_target_logits(&e->targets, &e->targets.items[t], e->text[t], MAX_NAME);
    for (int t = 0; t < e->targets.n && !text; t++) DT_TRY(add_output(e, e->logits[t])); // only without a list
    if (!text) return DT_OK;
    e->outputs_text = dt_xstrdup(text); // outlives the loop: ports keep pointers
    for (char *name = strtok_r(e->outputs_text, ",", &rest); name; name = strtok_r(NULL, ",", &rest))
        DT_TRY(add_output(e, name));
    return e->n_outputs ? DT_OK : dt_fail(DT_E_USAGE, "--outputs: no name");
}

static bool is_target(const export *e, const dt_field_info *f) {
    int t = 0;
    while (t < e->targets.n && e->targets.items[t].field != f) t++;
    return t < e->targets.n;
}

// {"image": {"mean": […], "std": […]}}: what the inputs are normalised by, of values in 0..1 where they are bytes: of
// images for each channel, of numbers for each of them.
static dt_status describe_inputs(export *e) {
    dt_json *j = &e->normalize;
    // targets first: they are no inputs
    DT_TRY(dt_targets_read(&e->targets, e->config, e->fields, e->n_fields, false));
    dt_json_begin_object(j, NULL); // the exporter copies the text into the metadata
    for (int i = 0; i < e->n_fields; i++) {
        dt_field_info *f = &e->fields[i];
        // indices of classes and targets have no normalization
        if (f->n_classes > 0 || is_target(e, f)) continue;
        dt_onnx_port *p = &e->numbers[e->n_numbers];
        if (f->n_categories > 0) {
            e->numbers[e->n_numbers++] = (dt_onnx_port){.name = f->name, .n_categories = f->n_categories};
            continue;
        }
        const int64_t n = n_moments(f);
        bool is_far = false; // whether an origin is other than 0
        for (int64_t c = 0; c < n && f->is_image; c++) is_far |= f->origin[c] != 0;
        dt_json_begin_object(j, f->name);
        dt_json_begin_array(j, "mean");
        for (int64_t c = 0; c < n; c++) dt_json_real(j, NULL, export_mean_of(f, c));
        dt_json_end_array(j);
        dt_json_begin_array(j, "std");
        for (int64_t c = 0; c < n; c++) dt_json_real(j, NULL, dt_field_std(f, c));
        dt_json_end_array(j);
        dt_json_end_object(j);
        if (f->is_image && !is_far) continue; // the network's own op normalises it
        *p = (dt_onnx_port){.name = f->name, .by_channel = f->is_image};
        take_moments(e, f, p);
        e->n_numbers++;
        // identity in the graph: the file's own op normalizes, in front of it
        for (int64_t c = 0; c < n && is_far; c++) f->mean[c] = 0, f->std[c] = 1;
    }
    dt_json_end_object(j);
    return DT_OK;
}

// ---- Triton ----------------------------------------------------------------------------------------
// DIR/NAME/config.pbtxt, DIR/NAME/1/model.onnx, DIR/NAME/FIELD.txt; NAME is OUT's without its ending.
// https://docs.nvidia.com/deeplearning/triton-inference-server/user-guide/docs/user_guide/model_configuration.html

// A string of protobuf's text format.
static void append_quoted(char **out, const char *text) {
    dt_xappend(out, "\"");
    for (; *text; text++)
        dt_xappend(out, *text == '"' || *text == '\\' || (unsigned char)*text < 0x20 ? "\\%03o" : "%c",
                   (unsigned char)*text);
    dt_xappend(out, "\"");
}

static const dt_target *target_of(const export *e, const char *output) {
    for (int t = 0; t < e->targets.n; t++)
        if (strcmp(e->logits[t], output) == 0 && e->targets.items[t].field->class_names) return &e->targets.items[t];
    return NULL;
}

static void declare_port(void *ctx, const dt_onnx_declared *d) {
    export *e = ctx;
    char **out = &e->ports[d->is_output];
    const dt_target *t = d->is_output ? target_of(e, d->name) : NULL;
    *out = *out ? *out : dt_xstrdup("");
    dt_xappend(out, "%s  { name: ", **out ? ",\n" : "");
    append_quoted(out, d->name);
    dt_xappend(out, " data_type: TYPE_%s dims: [", d->type);
    for (int i = 0; i < d->shape.n; i++) dt_xappend(out, "%s %" PRId64, i ? "," : "", d->shape.d[i]);
    dt_xappend(out, d->shape.n ? " ]" : " 1 ] reshape: { shape: [ ] }"); // dims must not be empty
    if (t) {
        char *file = dt_xprintf("%s.txt", t->field->name);
        dt_xappend(out, " label_filename: ");
        append_quoted(out, file);
        free(file);
    }
    dt_xappend(out, " }");
}

static dt_status write_text(const char *dir, const char *name, const char *text, size_t n) {
    char *path = dt_xprintf("%s/%s", dir, name);
    const dt_status st = dt_io_write_file(path, text, n);
    free(path);
    return st;
}

static dt_status write_labels(const dt_target *t, const char *dir) {
    char *file = dt_xprintf("%s.txt", t->field->name), *text = dt_xstrdup("");
    for (int k = 0; k < t->field->n_classes; k++) {
        const char *name = t->field->class_names[k];
        dt_xappend(&text, "%.*s\n", name ? (int)strcspn(name, "\r\n") : 0, name ? name : "");
    }
    const dt_status st = write_text(dir, file, text, strlen(text));
    free(text);
    free(file);
    return st;
}

static dt_status write_triton(const export *e, const char *onnx, const char *repository) {
    enum { MAX_BATCH = 64 };
    const char *base = dt_path_base(onnx), *end = strrchr(base, '.');
    char *name = dt_xprintf("%.*s", end && end > base ? (int)(end - base) : (int)strlen(base), base), *bytes = NULL;
    char *dir = dt_xprintf("%s/%s", repository, name), *version = dt_xprintf("%s/1", dir), *text = dt_xstrdup("name: ");
    size_t n = 0;
    append_quoted(&text, name);
    dt_xappend(&text,
               "\nbackend: \"onnxruntime\"\nmax_batch_size: %d\ninput [\n%s\n]\noutput [\n%s\n]\n"
               "dynamic_batching { max_queue_delay_microseconds: 1000 }\n",
               MAX_BATCH, e->ports[0], e->ports[1]);
    dt_status st = dt_io_mkdir_all(version);
    if (st == DT_OK) st = dt_io_read_file(&bytes, &n, onnx, 0, DT_E_STORAGE);
    if (st == DT_OK) st = write_text(version, "model.onnx", bytes, n);
    for (int i = 0; i < e->n_outputs && st == DT_OK; i++) {
        const dt_target *t = target_of(e, e->outputs[i].name);
        if (t) st = write_labels(t, dir);
    }
    if (st == DT_OK) st = write_text(dir, "config.pbtxt", text, strlen(text)); // last: the model is whole
    if (st == DT_OK) dt_info("%s: a model for tritonserver --model-repository=%s", dir, repository);
    free(bytes);
    free(text);
    free(version);
    free(dir);
    free(name);
    return st;
}

// ---- the file --------------------------------------------------------------------------------------
// A list of YAML's words, "[yaw, pitch]".
static void put_words(dt_json *j, const char *key, const char *list) {
    char *copy = dt_xstrdup(list + 1), *rest = NULL;
    dt_json_begin_array(j, key);
    for (char *word = strtok_r(copy, ",]", &rest); word; word = strtok_r(NULL, ",]", &rest)) {
        word += strspn(word, " \"");
        word[strcspn(word, "\"")] = '\0';
        dt_json_string(j, NULL, word);
    }
    dt_json_end_array(j);
    free(copy);
}

// The field's keys of a config, of inputs: "fields": {"image": {"kind": "image", "size": [96, 128], …}, …}. Numbers and
// lists are JSON's, other values words.
static void describe_steps(void *ctx, const char *path, const char *value, const char *default_text, bool is_default) {
    export *e = ctx;
    static const char section[] = "data.fields.";
    const char *leaf = strrchr(path, '.');
    if (strncmp(path, section, sizeof section - 1) != 0 || strcmp(leaf, ".normalize") == 0) return;
    const size_t n = (size_t)(leaf - path) - (sizeof section - 1);
    for (int i = 0; i < e->n_fields; i++) {
        const dt_field_info *f = &e->fields[i];
        if (strlen(f->name) != n || strncmp(f->name, path + sizeof section - 1, n) != 0) continue;
        if (f->n_classes > 0 || is_target(e, f)) return;
        json_t *v = json_loads(value, JSON_DECODE_ANY, NULL);
        if (strcmp(leaf, ".kind") == 0) { // the first key of each field
            if (e->steps.depth > 1) dt_json_end_object(&e->steps);
            dt_json_begin_object(&e->steps, f->name);
        }
        if (f->is_image && strcmp(leaf, ".channels") == 0) // auto, resolved
            dt_json_int(&e->steps, "channels", f->sample_shape.d[2]);
        else if (v && !json_is_string(v))
            dt_json_raw(&e->steps, leaf + 1, value);
        else if (!v && *value == '[')
            put_words(&e->steps, leaf + 1, value);
        else
            dt_json_string(&e->steps, leaf + 1, v ? json_string_value(v) : value);
        json_decref(v);
    }
}

static dt_status export_write_file(export *e, bool preprocess, const char *path) {
    const char *classes = dt_safetensors_metadata(e->weights, "classes");
    // name, text, …; the first NULL name ends the list
    const char *metadata[] = {
        "normalize", e->normalize.data, "fields", e->steps.data, classes ? "classes" : NULL, classes, NULL};
    dt_model_args a = {.config = e->config, .fields = e->fields, .n_fields = e->n_fields};
    dt_onnx_opts o = {.outputs = e->outputs,
                      .n_outputs = e->n_outputs,
                      .numbers = e->numbers,
                      .n_numbers = e->n_numbers,
                      .preprocess = preprocess,
                      .metadata = metadata,
                      .version = DTRAIN_VERSION,
                      .tensor = export_tensor,
                      .declare = declare_port,
                      .ctx = e};
    dt_graph *g[2] = {NULL}; // graphs of batch 2 and 3
    dt_status st = DT_OK;
    // what differs between the two shapes is the batch dimension, which becomes symbolic
    for (int i = 0; i < 2 && st == DT_OK; i++) {
        // not 1: a dimension of 1 may mean broadcasting
        a.batch = 2 + i;
        st = dt_model_graph(&g[i], &a, DT_F32);
    }
    if (st == DT_OK) st = dt_onnx_export(g[0], g[1], &o, path);
    for (int i = 0; i < 2; i++) dt_graph_destroy(g[i]);
    return st;
}

// ---- weights ---------------------------------------------------------------------------------------
// The names of our tensors are torchvision's wherever it has the network.
static bool is_torchvisions(const export *e, const dt_graph *g) {
    // timm has more variants of ResNet than torchvision: deep stem, average pooling in shortcuts,
    // squeeze-and-excitation
    const dt_config_backbone *b = &e->config->model.backbone;
    return dt_graph_is_timms(g) && b->stem != DT_STEM_deep && !b->avg_down && !b->se;
}

static dt_status write_tensors(const export *e, const dt_graph *g, int names, const char *path) {
    const char *classes = dt_safetensors_metadata(e->weights, "classes");
    // "pt": what transformers and timm look for
    const char *metadata[] = {"format", "pt", "normalize", e->normalize.data, classes ? "classes" : NULL,
                              classes,  NULL};
    const int n = dt_safetensors_count(e->weights);
    dt_ckpt_tensor *tensors = dt_xcalloc((size_t)n + 1, sizeof *tensors); // + 1: none of 0 bytes
    for (int i = 0; i < n; i++) {
        dt_ckpt_tensor *t = &tensors[i];
        char name[2 * MAX_NAME]; // timm's names may be longer
        snprintf(name, sizeof name, "%s", dt_safetensors_name(e->weights, i));
        dt_safetensors_shape(e->weights, i, &t->shape);
        // may also change the shape: timm's own, of the same elements
        if (names == NAMES_TIMM)
            dt_graph_timms_name(g, dt_safetensors_name(e->weights, i), name, sizeof name, &t->shape);
        t->name = dt_xstrdup(name);
        t->data = (float *)dt_safetensors_data(e->weights, i, NULL); // is read only
    }
    const dt_status st = dt_safetensors_write(path, tensors, n, metadata);
    for (int i = 0; i < n; i++) free((char *)tensors[i].name);
    free(tensors);
    return st;
}

static dt_status write_weights(export *e, int names, const char *path) {
    const dt_model_args a = {.config = e->config, .fields = e->fields, .n_fields = e->n_fields, .batch = 1};
    dt_graph *g = NULL;
    DT_TRY(dt_model_graph(&g, &a, DT_F32));
    dt_status st = DT_OK;
    // the network decides, not its weights: a graph of batch 1 is built for it
    if (names == NAMES_TIMM ? !dt_graph_is_timms(g) : names == NAMES_TORCHVISION && !is_torchvisions(e, g))
        st = dt_fail(DT_E_USAGE, "--names: %s has no network such as this run's; dtrain is the default",
                     names == NAMES_TIMM ? "timm" : "torchvision");
    if (st == DT_OK) st = write_tensors(e, g, names, path);
    dt_graph_destroy(g);
    return st;
}

static dt_status export_write(export *e, const dt_cli_words *w) {
    // the ending chooses: a network or weights alone
    const char *path = w->words[1], *end = strrchr(path, '.');
    const bool weights = end && strcmp(end, ".safetensors") == 0;
    int names;
    DT_TRY(dt_cli_option_word(w, NAMES, NAMES_DTRAIN, &names));
    if (!weights && w->options[NAMES]) return dt_fail(DT_E_USAGE, "--names is for weights: OUT.safetensors");
    // refused instead of ignored
    if (weights && (w->options[PREPROCESS] || w->options[OUTPUTS] || w->options[TRITON]))
        return dt_fail(DT_E_USAGE, "--preprocess, --outputs and --triton are for a network: OUT.onnx");
    if (weights) return write_weights(e, names, path);
    DT_TRY(list_outputs(e, w->options[OUTPUTS])); // after describe_inputs, which reads the targets
    dt_json_begin_object(&e->steps, NULL);
    dt_config_each(e->config, describe_steps, e);
    while (e->steps.depth > 0) dt_json_end_object(&e->steps);
    DT_TRY(export_write_file(e, w->options[PREPROCESS] != NULL, path));
    return w->options[TRITON] ? write_triton(e, path, w->options[TRITON]) : DT_OK;
}

static dt_status export_run(const dt_cli_words *w) {
    // 0: all is freed at the end, whatever failed
    export e = {0};
    const double begin_s = dt_clock_s();
    const char *words[64]; // as many as dt_cli_expect_words lets through
    dt_cli_words config = {.words = words};
    DT_TRY(dt_cli_expect_words(w, "export", 2, 64, "RUN OUT.onnx|OUT.safetensors [key=value …]"));
    // RUN and overrides without OUT: what dt_cli_load_config expects
    words[config.n_words++] = w->words[0];
    for (int i = 2; i < w->n_words; i++) words[config.n_words++] = w->words[i];
    DT_TRY(dt_cli_load_config(&e.config, "export", &config));
    dt_json_init(&e.normalize);
    dt_json_init(&e.steps);
    dt_status st = open_weights(&e, w->options[WHICH]);
    if (st == DT_OK) st = find_fields(&e);
    if (st == DT_OK) st = describe_inputs(&e);
    if (st == DT_OK) st = export_write(&e, w);
    if (st == DT_OK) {
        char size[DT_SIZE_CHARS];
        struct stat s = {0};
        stat(w->words[1], &s);
        dt_info("%s: written from %d tensors, %s in %.1f s", w->words[1], dt_safetensors_count(e.weights),
                dt_size_text(size, (double)s.st_size), dt_clock_s() - begin_s);
    }
    if (e.data) e.data->close(e.data); // NULL without data
    dt_safetensors_close(e.weights);
    dt_json_fini(&e.normalize);
    dt_json_fini(&e.steps);
    for (int i = 0; i < 2; i++) free(e.ports[i]);
    free(e.outputs_text);
    for (int i = 0; i < DT_MAX_FIELDS; i++) free(e.moments[i]);
    dt_config_destroy(e.config);
    return st;
}

const dt_cli_command dt_cli_export = {
    .options = options,
    .text = "OUT.onnx gets the network in inference form: ONNX opset 17, any batch size, batch norms folded into "
            "convolutions. The file's metadata holds class names, normalization and the keys of the input fields. "
            "Inputs are normalized tensors: "
            "images (N,C,H,W), numbers (N,D), classes that are inputs (N), by number. With --preprocess inputs are "
            "pixels (N,H,W,C) and numbers in the field's "
            "unit, and the file normalizes them. The file does not resize images.\n\n"
            "OUT.safetensors gets the weights alone. With --names torchvision or timm their network loads the file by "
            "load_state_dict(strict=True).\n\n"
            "  dtrain export runs/resnet50 resnet50.onnx\n"
            "  dtrain export runs/fusion fusion.onnx --which latest --preprocess --outputs embedding\n"
            "  dtrain export runs/resnet50 resnet50.onnx --triton models\n"
            "  dtrain export runs/resnet50 resnet50.safetensors --names timm\n",
    .run = export_run};
