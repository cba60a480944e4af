// safetensors.c: reads safetensors files, strictly.
//
// A file is: u64 little-endian header length; a JSON object of that length; then the buffer.
// Each member of the object is a tensor {dtype, shape, data_offsets [begin, end)} with offsets
// relative to the buffer, except "__metadata__", which maps strings to strings. The file is mapped
// read-only. Nothing in it is trusted: sizes must fit shape and dtype, tensors must cover the buffer exactly
// (no hole, no overlap, no tail), names must be unique. This is strict on purpose: a hole may hide data, and
// an overlap may turn a small file into huge tensors.
//
// Tensors are sorted by name. Data may be unaligned in files of other writers, so copy it out.

#include "ckpt_internal.h"

#include "base/bits.h"
#include "base/core.h"
#include "base/stated.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_HEADER_BYTES 100000000ull // as the reference implementation limits it

typedef struct entry {
    const char *name; // owned by the header's JSON
    const char *type;
    dt_dtype dtype;
    dt_shape shape;
    uint64_t begin, end; // bytes [begin, end) of the buffer behind the header
} entry;

struct dt_safetensors {
    const char *where;
    char *path; // owned copy, where points here for files
    void *map;  // NULL for memory
    size_t map_bytes;
    const char *buffer;
    uint64_t buffer_bytes; // size stated by the file, checked against the map
    json_t *header;
    entry *entries; // by name
    int n;
};

// DT_DTYPE_COUNT: dtrain has no such element type; such tensors are listed but cannot be loaded.
static const struct {
    const char *name;
    dt_dtype dtype;
    int n_bytes;
} dtypes[] = {
    {"F32", DT_F32, 4},
    {"BF16", DT_BF16, 2},
    {"F16", DT_F16, 2},
    {"I32", DT_I32, 4},
    {"U8", DT_U8, 1},
    {"I64", DT_DTYPE_COUNT, 8},
    {"F64", DT_DTYPE_COUNT, 8},
    {"U64", DT_DTYPE_COUNT, 8},
    {"U32", DT_DTYPE_COUNT, 4},
    {"I16", DT_DTYPE_COUNT, 2},
    {"U16", DT_DTYPE_COUNT, 2},
    {"I8", DT_DTYPE_COUNT, 1},
    {"BOOL", DT_DTYPE_COUNT, 1},
    {"C64", DT_DTYPE_COUNT, 8},
    {"F8_E4M3", DT_DTYPE_COUNT, 1},
    {"F8_E5M2", DT_DTYPE_COUNT, 1},
};

// names are cut at 200 characters: the file controls them
static dt_status bad_tensor(const dt_safetensors *s, const char *name, const char *what) {
    return dt_fail(DT_E_CKPT, "%s: tensor '%.200s': %s", s->where, name, what);
}

static dt_status safetensors_read_shape(const dt_safetensors *s, entry *e, const json_t *shape, size_t *n_elements) {
    size_t n = json_array_size(shape);
    if (!json_is_array(shape)) return bad_tensor(s, e->name, "shape is not an array");
    if (n > DT_MAX_DIMS) return bad_tensor(s, e->name, "more than 6 dimensions"); // DT_MAX_DIMS
    // the product is checked before each multiplication; a scalar has one element
    e->shape.n = (int)n;
    *n_elements = 1;
    for (size_t i = 0; i < n; i++) {
        const json_t *d = json_array_get(shape, i);
        if (!json_is_integer(d) || json_integer_value(d) < 0)
            return bad_tensor(s, e->name, "a dimension is not a count");
        e->shape.d[i] = json_integer_value(d);
        // UINT64_MAX: no limit but overflow; bytes are compared later
        if (!dt_stated_size(*n_elements, (uint64_t)e->shape.d[i], UINT64_MAX, n_elements))
            return bad_tensor(s, e->name, "shape overflows");
    }
    return DT_OK;
}

static dt_status read_offsets(const dt_safetensors *s, entry *e, const json_t *offsets) {
    const json_t *b = json_array_get(offsets, 0), *f = json_array_get(offsets, 1); // NULL if offsets is no array
    if (json_array_size(offsets) != 2 || !json_is_integer(b) || !json_is_integer(f) || json_integer_value(b) < 0 ||
        json_integer_value(f) < json_integer_value(b))
        return bad_tensor(s, e->name, "data_offsets is not [begin, end]");
    e->begin = (uint64_t)json_integer_value(b);
    e->end = (uint64_t)json_integer_value(f);
    if (e->end > s->buffer_bytes) // also catches truncated downloads
        return dt_fail(DT_E_CKPT, "%s: tensor '%.200s' ends at byte %llu of a buffer of %llu (truncated file?)",
                       s->where, e->name, (unsigned long long)e->end, (unsigned long long)s->buffer_bytes);
    return DT_OK;
}

static dt_status read_tensor(const dt_safetensors *s, entry *e, const json_t *t) {
    const char *dtype = json_string_value(json_object_get(t, "dtype"));
    size_t n_elements = 0, n_bytes;
    // exactly three members: an unknown one may change the meaning
    if (!json_is_object(t) || json_object_size(t) != 3 || !dtype)
        return bad_tensor(s, e->name, "is not {dtype, shape, data_offsets}");
    size_t k = 0;
    while (k < sizeof dtypes / sizeof *dtypes && strcmp(dtypes[k].name, dtype) != 0) k++;
    if (k == sizeof dtypes / sizeof *dtypes)
        return dt_fail(DT_E_CKPT, "%s: tensor '%.200s': unknown dtype '%.20s'", s->where, e->name, dtype);
    e->type = dtypes[k].name;
    e->dtype = dtypes[k].dtype;
    DT_TRY(safetensors_read_shape(s, e, json_object_get(t, "shape"), &n_elements));
    DT_TRY(read_offsets(s, e, json_object_get(t, "data_offsets")));
    // compared with the interval first, so nothing overflows
    if (!dt_stated_size(n_elements, (uint64_t)dtypes[k].n_bytes, e->end - e->begin, &n_bytes) ||
        n_bytes != e->end - e->begin) // equal, not at most: slack could hide data
        return bad_tensor(s, e->name, "data_offsets do not fit shape and dtype");
    return DT_OK;
}

static dt_status check_metadata(const dt_safetensors *s, json_t *metadata) {
    const char *key;
    json_t *value;
    if (!json_is_object(metadata)) return dt_fail(DT_E_CKPT, "%s: __metadata__ is not an object", s->where);
    json_object_foreach(metadata, key, value) {
        if (!json_is_string(value))
            return dt_fail(DT_E_CKPT, "%s: __metadata__ '%.100s' is not a string", s->where, key);
    }
    return DT_OK;
}

static int by_offset(const void *a, const void *b) {
    const entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1; // no subtraction: u64
    return (x->end > y->end) - (x->end < y->end);                  // empty tensors first
}

static int safetensors_by_name(const void *a, const void *b) {
    return strcmp(((const entry *)a)->name, ((const entry *)b)->name);
}

// Tensors must tile the buffer. Leaves the entries sorted by name.
static dt_status check_cover(const dt_safetensors *s) {
    uint64_t at = 0;
    if (s->n) qsort(s->entries, (size_t)s->n, sizeof *s->entries, by_offset);
    for (int i = 0; i < s->n; i++) { // at: end of the tensor before
        if (s->entries[i].begin != at)
            return bad_tensor(s, s->entries[i].name,
                              s->entries[i].begin > at ? "a hole lies before its data"
                                                       : "its data overlap another tensor's");
        at = s->entries[i].end;
    }
    if (at != s->buffer_bytes) // appended data
        return dt_fail(DT_E_CKPT, "%s: %llu bytes after the last tensor", s->where,
                       (unsigned long long)(s->buffer_bytes - at));
    // for bsearch in dt_safetensors_find
    if (s->n) qsort(s->entries, (size_t)s->n, sizeof *s->entries, safetensors_by_name);
    return DT_OK;
}

static dt_status parse_header(dt_safetensors *s, const char *text, size_t n_bytes) {
    json_error_t error;
    const char *key;
    json_t *value;
    if (n_bytes == 0 || text[0] != '{') // the specification: the header begins with {
        return dt_fail(DT_E_CKPT, "%s: not a safetensors file: the header is no JSON object", s->where);
    // a duplicate name would make one tensor unreachable
    s->header = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES, &error);
    if (!s->header)
        // + 8: offset in the file, behind the length
        return dt_fail(DT_E_CKPT, "%s: bad safetensors header at byte %d: %s", s->where, error.position + 8,
                       error.text);
    s->entries = dt_xcalloc(json_object_size(s->header) + 1, sizeof *s->entries);
    json_object_foreach(s->header, key, value) {
        if (strcmp(key, "__metadata__") == 0) {
            DT_TRY(check_metadata(s, value));
            continue;
        }
        entry *e = &s->entries[s->n++];
        e->name = key; // owned by s->header, which lives as long
        DT_TRY(read_tensor(s, e, value));
    }
    return check_cover(s);
}

static dt_status parse_file(dt_safetensors *s, const void *data, size_t n_bytes) {
    const unsigned char *p = data;
    if (n_bytes < 8) return dt_fail(DT_E_CKPT, "%s: not a safetensors file: only %zu bytes", s->where, n_bytes);
    uint64_t n = dt_le64(p);
    if (n > MAX_HEADER_BYTES) // before allocation and parsing
        return dt_fail(DT_E_CKPT, "%s: not a safetensors file: header of %llu bytes", s->where, (unsigned long long)n);
    if (n > n_bytes - 8) // n_bytes >= 8, so no wrap
        return dt_fail(DT_E_CKPT, "%s: truncated: header of %llu bytes in a file of %zu", s->where,
                       (unsigned long long)n, n_bytes);
    s->buffer = (const char *)data + 8 + n;
    s->buffer_bytes = n_bytes - 8 - n;
    return parse_header(s, (const char *)data + 8, (size_t)n);
}

static dt_status open_parsed(dt_safetensors **out, dt_safetensors *s, dt_status st) {
    if (st != DT_OK) {
        dt_safetensors_close(s);
        s = NULL;
    }
    *out = s;
    return st;
}

dt_status dt_safetensors_open_memory(dt_safetensors **out, const void *data, size_t n_bytes, const char *where) {
    dt_safetensors *s = dt_xcalloc(1, sizeof *s);
    s->where = where;
    return open_parsed(out, s, parse_file(s, data, n_bytes));
}

static dt_status safetensors_map_file(dt_safetensors *s) {
    struct stat info;
    dt_status st = DT_OK;
    int fd = open(s->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a FIFO must not block us
    if (fd < 0) return dt_fail(DT_E_CKPT, "%s: cannot open: %s", s->path, strerror(errno));
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) { // FIFOs and devices cannot be mapped
        st = dt_fail(DT_E_CKPT, "%s: not a regular file", s->path);
    } else if (info.st_size < 8) {
        // mmap of 0 bytes fails with a worse message
        st = dt_fail(DT_E_CKPT, "%s: not a safetensors file: only %lld bytes", s->where, (long long)info.st_size);
    } else {
        s->map_bytes = (size_t)info.st_size;
        s->map = mmap(NULL, s->map_bytes, PROT_READ, MAP_PRIVATE, fd, 0); // MAP_PRIVATE: nothing is ever written
        if (s->map == MAP_FAILED) {
            s->map = NULL;
            st = dt_fail(DT_E_CKPT, "%s: cannot map: %s", s->path, strerror(errno));
        }
    }
    close(fd); // the mapping stays
    return st;
}

dt_status dt_safetensors_open(dt_safetensors **out, const char *path) {
    return dt_safetensors_open_named(out, path, NULL);
}

dt_status dt_safetensors_open_named(dt_safetensors **out, const char *path, const char *where) {
    dt_safetensors *s = dt_xcalloc(1, sizeof *s);
    s->path = dt_xstrdup(path);
    s->where = where ? where : s->path;
    dt_status st = safetensors_map_file(s);
    if (st == DT_OK) st = parse_file(s, s->map, s->map_bytes);
    return open_parsed(out, s, st);
}

void dt_safetensors_close(dt_safetensors *s) {
    if (!s) return;
    if (s->map) munmap(s->map, s->map_bytes);
    json_decref(s->header);
    free(s->entries);
    free(s->path);
    free(s);
}

int dt_safetensors_count(const dt_safetensors *s) {
    return s->n;
}

const char *dt_safetensors_name(const dt_safetensors *s, int i) {
    return s->entries[i].name;
}

dt_dtype dt_safetensors_dtype(const dt_safetensors *s, int i) {
    return s->entries[i].dtype;
}

const char *dt_safetensors_type(const dt_safetensors *s, int i) {
    return s->entries[i].type;
}

void dt_safetensors_shape(const dt_safetensors *s, int i, dt_shape *out) {
    *out = s->entries[i].shape;
}

const void *dt_safetensors_data(const dt_safetensors *s, int i, size_t *n_bytes) {
    if (n_bytes) *n_bytes = (size_t)(s->entries[i].end - s->entries[i].begin);
    return s->buffer + s->entries[i].begin; // inside the map, checked by read_offsets
}

const char *dt_safetensors_metadata(const dt_safetensors *s, const char *key) {
    return json_string_value(json_object_get(json_object_get(s->header, "__metadata__"), key));
}

int dt_safetensors_find(const dt_safetensors *s, const char *name) {
    entry key = {.name = name};
    // names are unique
    const entry *e = s->n ? bsearch(&key, s->entries, (size_t)s->n, sizeof *s->entries, safetensors_by_name) : NULL;
    return e ? (int)(e - s->entries) : -1;
}

// ---- safetensors write --------------------------------------------------------------------------------------------

// Writes safetensors files of f32 tensors.
//
// Tensors are sorted by name, and the header is padded with spaces so that the data start at a multiple of
// 64 bytes. So a file's bytes depend on its tensors alone. A checkpoint builds order and header (the layout)
// at its first save and keeps them.

enum { DATA_ALIGN = 64 };

static int safetensors_write_by_name(const void *a, const void *b) {
    return strcmp((*(const dt_ckpt_tensor *const *)a)->name, (*(const dt_ckpt_tensor *const *)b)->name);
}

static size_t tensor_bytes(const dt_ckpt_tensor *t) {
    return (size_t)dt_shape_elements(&t->shape) * sizeof(float);
}

static void print_header(dt_json *j, const dt_safetensors_layout *l, const char *const *metadata) {
    int64_t at = 0; // offset in the buffer
    dt_json_begin_object(j, NULL);
    if (metadata && metadata[0]) {
        dt_json_begin_object(j, "__metadata__");
        for (int i = 0; metadata[i]; i += 2) dt_json_string(j, metadata[i], metadata[i + 1]); // name and value in turn
        dt_json_end_object(j);
    }
    for (int i = 0; i < l->n; i++) {
        const dt_ckpt_tensor *t = l->sorted[i];
        dt_json_begin_object(j, t->name);
        dt_json_string(j, "dtype", "F32");
        dt_json_begin_array(j, "shape");
        for (int k = 0; k < t->shape.n; k++) dt_json_int(j, NULL, t->shape.d[k]);
        dt_json_end_array(j);
        dt_json_begin_array(j, "data_offsets");
        dt_json_int(j, NULL, at);
        dt_json_int(j, NULL, at += (int64_t)tensor_bytes(t)); // begin, then end
        dt_json_end_array(j);
        dt_json_end_object(j);
    }
    dt_json_end_object(j);
}

dt_status dt_safetensors_layout_build(dt_safetensors_layout *l, const dt_ckpt_tensor *tensors, int n_tensors,
                                      const char *file, const char *const *metadata) {
    *l = (dt_safetensors_layout){0};
    l->sorted = dt_xcalloc((size_t)n_tensors + 1, sizeof *l->sorted);
    for (int i = 0; i < n_tensors; i++)
        // pointers into the caller's array, which outlives the layout
        if (!file || strcmp(tensors[i].file, file) == 0) l->sorted[l->n++] = &tensors[i];
    if (l->n) qsort(l->sorted, (size_t)l->n, sizeof *l->sorted, safetensors_write_by_name);
    for (int i = 1; i < l->n; i++) // the reader would refuse the file
        if (strcmp(l->sorted[i - 1]->name, l->sorted[i]->name) == 0)
            return dt_fail(DT_E_INTERNAL, "two tensors named '%s' in one checkpoint file", l->sorted[i]->name);

    dt_json j;
    dt_json_init(&j);
    print_header(&j, l, metadata);
    size_t n = dt_align_up(8 + j.n_bytes, DATA_ALIGN) - 8; // length of the JSON with its padding
    l->head_bytes = 8 + n;
    l->head = dt_xcalloc(1, l->head_bytes);
    for (int i = 0; i < 8; i++) l->head[i] = (char)(n >> 8 * i); // little-endian u64
    memset(l->head + 8, ' ', n);                                 // spaces are valid JSON padding
    memcpy(l->head + 8, j.data, j.n_bytes);
    dt_json_fini(&j);
    return DT_OK;
}

void dt_safetensors_layout_fini(dt_safetensors_layout *l) {
    free(l->head);
    free(l->sorted);
    *l = (dt_safetensors_layout){0};
}

static dt_status put_tensors(dt_ckpt_writer *w, const dt_safetensors_layout *l, dt_ckpt_file *file) {
    DT_TRY(dt_ckpt_writer_put(w, l->head, l->head_bytes)); // length, JSON, padding
    for (int i = 0; i < l->n; i++) {
        const dt_ckpt_tensor *t = l->sorted[i];
        size_t n_bytes = tensor_bytes(t);
        if (file)
            // offset in the file, header included, as the manifest states
            file->ranges[file->n_ranges++] =
                (dt_ckpt_range){dt_xstrdup(t->name), w->n_bytes, n_bytes, dt_hash64(t->data, n_bytes)};
        DT_TRY(dt_ckpt_writer_put(w, t->data, n_bytes));
    }
    return DT_OK;
}

dt_status dt_safetensors_layout_write(const dt_safetensors_layout *l, const char *path, dt_ckpt_file *file) {
    dt_ckpt_writer w;
    uint64_t hash = 0;
    DT_TRY(dt_ckpt_writer_open(&w, path));
    if (file) file->ranges = dt_xcalloc((size_t)l->n + 1, sizeof *file->ranges); // + 1: no calloc of 0
    dt_status st = dt_ckpt_writer_finish(&w, put_tensors(&w, l, file), &hash);
    if (file) {
        file->n_bytes = w.n_bytes;
        file->hash = hash;
    }
    return st;
}

dt_status dt_safetensors_write(const char *path, const dt_ckpt_tensor *tensors, int n_tensors,
                               const char *const *metadata) {
    dt_safetensors_layout l;
    dt_status st = dt_safetensors_layout_build(&l, tensors, n_tensors, NULL, metadata);
    if (st == DT_OK) st = dt_safetensors_layout_write(&l, path, NULL);
    dt_safetensors_layout_fini(&l);
    return st;
}
