// onnx_tensor.c: tensors of an ONNX file: numbers that are known, and weights, which become parameters. Their bytes lie
// in raw_data, in a typed list, or in another file of the same folder.
#include "onnx_reader.h"

#include "base/io.h"
#include "base/stated.h"
#include "store/blob.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Bytes of an element in raw_data. 0: a type that is not read (f16, bf16, strings, quantized ones).
static size_t element_size(int type) {
    switch (type) {
    case ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT:
    case ONNX__TENSOR_PROTO__DATA_TYPE__INT32:
        return 4;
    case ONNX__TENSOR_PROTO__DATA_TYPE__INT64:
    case ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE:
        return 8;
    case ONNX__TENSOR_PROTO__DATA_TYPE__BOOL:
        return 1;
    default:
        return 0;
    }
}

static bool is_float(int type) {
    return type == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT || type == ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE;
}

// Elements in the typed list that TensorProto has for the type; int32_data also holds bool.
static size_t typed_count(const Onnx__TensorProto *t) {
    switch (t->data_type) {
    case ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT:
        return t->n_float_data;
    case ONNX__TENSOR_PROTO__DATA_TYPE__INT64:
        return t->n_int64_data;
    case ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE:
        return t->n_double_data;
    default:
        return t->n_int32_data;
    }
}

static const char *onnx_tensor_name_of(const Onnx__TensorProto *t) {
    return t->name && *t->name ? t->name : "(unnamed)";
}

// Sizes are the file's: the product is bounded before bytes are compared with it, so nothing overflows.
int64_t dt_onnx_count(dt_onnx_importer *r, const Onnx__TensorProto *t) {
    size_t count = 1;
    const size_t each = element_size(t->data_type);
    if (each == 0 || t->n_dims > DT_MAX_DIMS) {
        dt_onnx_fail(r, "tensor %.80s has type %d and %zu dimensions: expected floats or integers, at most %d",
                     onnx_tensor_name_of(t), t->data_type, t->n_dims, DT_MAX_DIMS);
        return -1;
    }
    for (size_t i = 0; i < t->n_dims; i++)
        if (t->dims[i] < 0 || !dt_stated_size(count, (uint64_t)t->dims[i], (uint64_t)1 << 40, &count)) {
            dt_onnx_fail(r, "tensor %.80s has an impossible shape", onnx_tensor_name_of(t));
            return -1;
        }
    const bool here = t->data_location == 0; // DEFAULT; 1: EXTERNAL, in another file
    const bool fits = t->has_raw_data ? t->raw_data.len == count * each : typed_count(t) == count;
    if (here && !fits) {
        dt_onnx_fail(r, "tensor %.80s: its shape has %zu elements, the file another number (truncated?)",
                     onnx_tensor_name_of(t), count);
        return -1;
    }
    return (int64_t)count;
}

// ---- bytes in another file -------------------------------------------------------------------------
// external_data is a list of keys and values: location, offset, length, checksum.
static const char *external(const Onnx__TensorProto *t, const char *key) {
    for (size_t i = 0; i < t->n_external_data; i++)
        if (t->external_data[i]->key && strcmp(t->external_data[i]->key, key) == 0) return t->external_data[i]->value;
    return NULL;
}

static char *read_external(dt_onnx_importer *r, const Onnx__TensorProto *t, size_t n_bytes) {
    const char *location = external(t, "location"), *offset = external(t, "offset");
    // a location with a folder, or .., could name any file of the machine
    if (!location || !*location || strchr(location, '/') || strcmp(location, "..") == 0) {
        dt_onnx_fail(r, "tensor %.80s lies in %.80s: only files beside the ONNX file are read", onnx_tensor_name_of(t),
                     location ? location : "no file");
        return NULL;
    }
    char *parent = dt_io_parent(r->f->path), *path = dt_xprintf("%s/%s", parent, location);
    char *data = NULL;
    dt_blob b = {.store = NULL};
    const long long at = offset ? atoll(offset) : 0; // below 0 is behind every end: dt_blob_load fails
    // a link beside the file may lead out of its folder
    dt_status st = dt_io_is_link(path) ? dt_fail(DT_E_DATA, "%s: a link", path) : DT_OK;
    if (st == DT_OK) st = dt_blob_open(&b, path); // no FIFO, nor a device
    if (st == DT_OK) st = dt_blob_load(&data, &b, (uint64_t)at, n_bytes, UINT64_MAX);
    if (st != DT_OK) dt_onnx_fail(r, "tensor %.80s: %s", onnx_tensor_name_of(t), dt_error_message());
    dt_blob_close(&b);
    free(path);
    free(parent);
    return data;
}

// ---- elements --------------------------------------------------------------------------------------
static double raw_element(int type, const void *p, int64_t i) {
    // memcpy: raw_data may begin at any byte, and ONNX has it little-endian, as all machines here are
    double d;
    float f;
    int64_t l;
    int32_t s;
    switch (type) {
    case ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT:
        memcpy(&f, (const char *)p + 4 * i, 4);
        return (double)f;
    case ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE:
        memcpy(&d, (const char *)p + 8 * i, 8);
        return d;
    case ONNX__TENSOR_PROTO__DATA_TYPE__INT64:
        memcpy(&l, (const char *)p + 8 * i, 8);
        return (double)l;
    case ONNX__TENSOR_PROTO__DATA_TYPE__INT32:
        memcpy(&s, (const char *)p + 4 * i, 4);
        return s;
    default:
        return ((const uint8_t *)p)[i]; // bool: a byte each
    }
}

static double typed_element(const Onnx__TensorProto *t, int64_t i) {
    switch (t->data_type) {
    case ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT:
        return (double)t->float_data[i];
    case ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE:
        return t->double_data[i];
    case ONNX__TENSOR_PROTO__DATA_TYPE__INT64:
        return (double)t->int64_data[i];
    default:
        return t->int32_data[i]; // and bool
    }
}

typedef struct elements {
    const Onnx__TensorProto *t;
    const void *raw;
    char *owned; // heap, of another file; NULL: `raw` is the message's
    int64_t count;
} elements;

static bool open_elements(dt_onnx_importer *r, const Onnx__TensorProto *t, elements *e) {
    *e = (elements){.t = t, .raw = t->has_raw_data ? t->raw_data.data : NULL};
    e->count = dt_onnx_count(r, t);
    if (e->count < 0) return false;
    if (t->data_location == 0) return true;
    // dt_onnx_count has bounded the product
    e->raw = e->owned = read_external(r, t, (size_t)e->count * element_size(t->data_type));
    return e->owned != NULL;
}
static double onnx_tensor_element(const elements *e, int64_t i) {
    return e->raw ? raw_element(e->t->data_type, e->raw, i) : typed_element(e->t, i);
}

// ---- known tensors ---------------------------------------------------------------------------------
dt_shape dt_onnx_tensor_shape(const Onnx__TensorProto *t) {
    dt_shape s = {.n = (int)t->n_dims};
    for (int i = 0; i < s.n; i++) s.d[i] = t->dims[i];
    return s;
}

dt_onnx_const *dt_onnx_new_const(dt_onnx_importer *r, bool is_float, const dt_shape *shape) {
    dt_onnx_const *c = dt_arena_alloc(&r->g->arena, sizeof *c);
    int64_t most = 1; // without the dimensions of 0: folding multiplies any of the others
    *c = (dt_onnx_const){.is_float = is_float, .shape = *shape, .count = 1};
    for (int i = 0; i < shape->n; i++) {
        if (shape->d[i] < 0 || (shape->d[i] > 0 && most > ONNX_MAX_FOLDED / shape->d[i])) {
            dt_onnx_fail(r, "a constant of more than %d elements", ONNX_MAX_FOLDED);
            return NULL;
        }
        most *= shape->d[i] > 0 ? shape->d[i] : 1;
        c->count *= shape->d[i];
    }
    c->v = dt_arena_alloc(&r->g->arena, ((size_t)c->count + 1) * sizeof *c->v); // doubles: exact for f32 and indices
    return c;
}

dt_onnx_const *dt_onnx_read_const(dt_onnx_importer *r, const Onnx__TensorProto *t) {
    elements e;
    if (!open_elements(r, t, &e)) return NULL;
    const dt_shape shape = dt_onnx_tensor_shape(t);
    dt_onnx_const *c = dt_onnx_new_const(r, is_float(t->data_type), &shape);
    for (int64_t i = 0; c && i < c->count; i++) c->v[i] = onnx_tensor_element(&e, i); // c NULL: too large, and failed
    free(e.owned);
    return c;
}

const dt_onnx_const *dt_onnx_as_const(dt_onnx_importer *r, dt_onnx_slot *s) {
    if (!s || s->kind == ONNX_ABSENT || s->kind == ONNX_VALUE || s->swapped) return NULL;
    if (s->kind == ONNX_CONST || s->c) return s->c; // a small initialiser is read once
    const int64_t count = dt_onnx_count(r, s->t);
    if (count < 0 || count > ONNX_MAX_FOLDED) return NULL;
    return s->c = dt_onnx_read_const(r, s->t);
}

// ---- parameters ------------------------------------------------------------------------------------
static dt_value onnx_tensor_make(dt_onnx_importer *r, const dt_onnx_slot *s, const char *name, dt_value_kind kind,
                                 dt_onnx_form form) {
    const Onnx__TensorProto *t = s->t;
    // the element at (i,j) of what is made lies at (j,i) of the file
    const bool swapped = form == ONNX_SWAPPED;
    elements e;
    const int64_t count = dt_onnx_count(r, t);
    if (count < 0) return DT_NONE;
    if (!is_float(t->data_type) || count == 0 || (swapped && t->n_dims != 2) ||
        (form == ONNX_IMAGE && t->n_dims != 3)) {
        dt_onnx_fail(r, "tensor %.80s cannot be a weight here", s->name);
        return DT_NONE;
    }
    dt_shape shape = dt_onnx_tensor_shape(t);
    const int64_t rows = shape.d[0], cols = shape.d[1]; // of a matrix
    if (swapped) shape = dt_shape2(cols, rows);
    if (form == ONNX_IMAGE) shape = dt_shape4(shape.d[0], shape.d[1], 1, shape.d[2]);
    const dt_init init = {DT_INIT_DATA, 0};
    // matrices and kernels decay, vectors (biases, norms) do not
    dt_value v = kind == DT_V_PARAM ? dt_param(r->g, name, shape, init, t->n_dims > 1)
                                    : dt_graph_add_value(r->g, kind, name, DT_F32, &shape);
    if (v == DT_NONE) return v;
    r->g->values[v].init = init;   // of a buffer, too
    if (!r->g->training) return v; // the checkpoint has its values
    if (!open_elements(r, t, &e)) return DT_NONE;
    float *x = dt_arena_alloc(&r->g->arena, (size_t)count * sizeof *x);
    for (int64_t i = 0; i < count; i++) {
        // i counts in the made order: row i / rows, column i % rows
        const double value = onnx_tensor_element(&e, swapped ? i % rows * cols + i / rows : i);
        if (value != value) { // a NaN would spread into every result and look like divergence
            dt_onnx_fail(r, "tensor %.80s holds NaN", s->name);
            break;
        }
        x[i] = (float)value;
    }
    free(e.owned);
    r->g->values[v].data = x;
    return v;
}

// Whether all values of an initialiser that several nodes read are one number.
static bool is_flat(dt_onnx_importer *r, dt_onnx_slot *s) {
    elements e;
    // only of shared ones: reading a large weight takes long
    if (s->values == ONNX_UNREAD && s->n_uses > 1 && open_elements(r, s->t, &e)) {
        int64_t i = 1;
        while (i < e.count && onnx_tensor_element(&e, i) == onnx_tensor_element(&e, 0)) i++;
        s->values = i >= e.count ? ONNX_FLAT : ONNX_VARIED;
        free(e.owned);
    }
    return s->values == ONNX_FLAT;
}

static dt_onnx_slot *initialiser(dt_onnx_slot *s) {
    return s && s->kind == ONNX_WEIGHT ? (s->same ? s->same : s) : NULL;
}

// The identity of a layer: nodes that share a weight of different values are one layer, applied several times; else
// each node is one.
static const void *layer_of(dt_onnx_importer *r) {
    // a group's weight and bias are inputs of nodes that are not built
    dt_onnx_slot *of_group[] = {r->group ? r->group->weight : NULL, r->group ? r->group->bias : NULL};
    for (int i = 0; i < (int)r->node->n_input + 2; i++) {
        dt_onnx_slot *s = initialiser(i < 2 ? of_group[i] : dt_onnx_in(r, i - 2));
        if (s && s->n_uses > 1 && is_float(s->t->data_type) && !is_flat(r, s)) return s;
    }
    return r->node;
}

static dt_onnx_use *add_use(dt_onnx_importer *r, dt_onnx_slot *root, dt_onnx_slot *known_as, const void *layer,
                            dt_value_kind kind, dt_onnx_form form) {
    dt_onnx_use *u = dt_arena_alloc(&r->g->arena, sizeof *u);
    const char *name = known_as->name;
    // "name@2" in the checkpoint: each layer has a parameter of its own
    if (known_as->n_named++ > 0) name = dt_arena_printf(&r->g->arena, "%s@%d", name, known_as->n_named);
    *u = (dt_onnx_use){.layer = layer, .form = form, .next = root->uses};
    u->v = onnx_tensor_make(r, root, name, kind, form);
    return root->uses = u;
}

static dt_value weight_value(dt_onnx_importer *r, dt_onnx_slot *s, dt_onnx_form form) {
    dt_onnx_slot *root = initialiser(s);
    // a transpose of a transpose is the initialiser itself
    if (s->swapped && form != ONNX_IMAGE) form = form == ONNX_SWAPPED ? ONNX_AS_IS : ONNX_SWAPPED;
    const bool flat = root->n_uses > 1 && is_flat(r, root);
    const void *layer = flat ? layer_of(r) : NULL; // different values: one parameter for all readers
    dt_onnx_use *u = root->uses;
    while (flat && u && (u->layer != layer || u->last == r->node)) u = u->next; // read twice by one node: two weights
    if (r->g->status != DT_OK) return DT_NONE;
    if (!u)
        u = add_use(r, root, flat && !s->swapped ? s : root, layer, DT_V_PARAM, form);
    else if (u->form != form)
        dt_onnx_fail(r, "weight %.80s is used in two forms", s->name);
    u->last = r->node;
    u->n_reads++; // for the note: more than one is a tied weight
    return u->v;
}

dt_value dt_onnx_as_value(dt_onnx_importer *r, dt_onnx_slot *s, dt_onnx_form form) {
    const bool plain = form == ONNX_AS_IS;
    if (!s) {
        dt_onnx_fail(r, "lacks an input");
        return DT_NONE;
    }
    if (s->kind == ONNX_WEIGHT) return weight_value(r, s, form);
    // integers are shapes and indices, which no kernel reads
    if (s->kind == ONNX_CONST && s->c->is_float && plain) {
        float *x = dt_arena_alloc(&r->g->arena, ((size_t)s->c->count + 1) * sizeof *x);
        for (int64_t i = 0; i < s->c->count; i++) x[i] = (float)s->c->v[i];
        return dt_constant(r->g, NULL, DT_F32, s->c->shape, x);
    }
    if (s->kind != ONNX_VALUE || !plain) {
        dt_onnx_fail(r, "%.80s cannot be used so here", s->name);
        return DT_NONE;
    }
    return s->v;
}

dt_value dt_onnx_as_buffer(dt_onnx_importer *r, dt_onnx_slot *s) {
    dt_onnx_slot *root = initialiser(s);
    // moments move with each use, so norms cannot share them; equal ones that an exporter merged are divided
    if (!root || (root->uses && !is_flat(r, root))) {
        dt_onnx_fail(r, "running statistics must be initialisers of their own");
        return DT_NONE;
    }
    return add_use(r, root, s, NULL, DT_V_BUFFER, ONNX_AS_IS)->v;
}

// ", name (n)" for the first few.
static void onnx_tensor_list_name(char *text, size_t cap, int *n_listed, const char *name, int n) {
    const size_t at = strlen(text); // eight names, then an ellipsis
    if (++*n_listed <= 8)
        snprintf(text + at, cap - at, "%s%.60s (%d)", *n_listed > 1 ? ", " : "", name, n);
    else if (*n_listed == 9)
        snprintf(text + at, cap - at, ", …");
}

void dt_onnx_note_shared(dt_onnx_importer *r) {
    char divided[640] = "", tied[640] = "";
    int n_divided = 0, n_tied = 0;
    for (size_t i = 0; i < r->f->graph->n_initializer; i++) {
        const dt_onnx_slot *s = dt_onnx_find(r, r->f->graph->initializer[i]->name);
        int n = 0;
        for (const dt_onnx_use *u = s->uses; u; u = u->next) n++; // parameters that were made of it
        if (n > 1) onnx_tensor_list_name(divided, sizeof divided, &n_divided, s->name, n);
        if (n == 1 && s->uses->n_reads > 1)
            onnx_tensor_list_name(tied, sizeof tied, &n_tied, s->name, s->uses->n_reads);
    }
    if (n_divided + n_tied == 0) return;
    r->g->note =
        dt_arena_printf(&r->g->arena, "%s: %s%s%s%s%s", r->f->path,
                        n_divided ? "layers that share a tensor whose values are all equal get one each: " : "",
                        divided, n_divided && n_tied ? "; " : "", n_tied ? "tied weights, read so often: " : "", tied);
}
