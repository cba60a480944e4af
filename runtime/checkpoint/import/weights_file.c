// weights_file.c: one way to read what two kinds of files hold.

#include "weights_file.h"

#include "torch_pickle.h"

#include "base/bits.h"
#include "base/core.h"
#include "base/io.h"
#include "base/log.h"
#include "base/stated.h"
#include "checkpoint/ckpt_internal.h"
#include "store/blob.h"

#include <errno.h>
#include <minizip/unzip.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- elements --------------------------------------------------------------------------------------
// bytes of the file are little-endian, at any alignment
static float f32_of(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static float get_f32(const uint8_t *p) {
    return f32_of(dt_le32(p));
}

static float get_f64(const uint8_t *p) {
    uint64_t u = dt_le64(p);
    double d;
    memcpy(&d, &u, sizeof d);
    return (float)d; // rounds to nearest
}

static float get_bf16(const uint8_t *p) {
    return f32_of((uint32_t)dt_le16(p) << 16); // upper half of an f32
}

static float get_f16(const uint8_t *p) {
    // sign moved to bit 31, 5 bits of exponent, 10 of mantissa
    uint32_t h = dt_le16(p), sign = (h & 0x8000) << 16, e = h >> 10 & 31, m = h & 1023;
    if (e == 31) return f32_of(sign | 0x7f800000 | m << 13);            // infinity and NaN keep their payload
    if (e == 0) return f32_of(sign | 0x3f800000) * (float)m * 0x1p-24f; // subnormals and zeros: m * 2^-24, exact in f32
    return f32_of(sign | (e + 112) << 23 | m << 13);                    // 112 = 127 - 15, the exponents' biases
}

static float get_i64(const uint8_t *p) {
    return (float)(int64_t)dt_le64(p);
}

static float get_i32(const uint8_t *p) {
    return (float)(int32_t)dt_le32(p);
}

static float get_i16(const uint8_t *p) {
    return (float)(int16_t)dt_le16(p);
}

static float get_i8(const uint8_t *p) {
    return (float)(int8_t)*p;
}

static float get_u8(const uint8_t *p) {
    return (float)*p;
}

typedef struct element {
    const char *name;
    int n_bytes;
    float (*get)(const uint8_t *p);
} element;

// safetensors' words, which torch's storages are mapped to
static const element elements[] = {{"F32", 4, get_f32}, {"F64", 8, get_f64}, {"F16", 2, get_f16}, {"BF16", 2, get_bf16},
                                   {"I64", 8, get_i64}, {"I32", 4, get_i32}, {"I16", 2, get_i16}, {"I8", 1, get_i8},
                                   {"U8", 1, get_u8},   {"BOOL", 1, get_u8}};

static const element *element_of(const char *type) {
    for (size_t i = 0; i < sizeof elements / sizeof *elements; i++)
        if (strcmp(elements[i].name, type) == 0) return &elements[i];
    return NULL;
}

// ---- torch file ---------------------------------------------------------------------------------------------------

// A .pth or .pt file of PyTorch: a zip with a pickle (data.pkl) that describes tensors, and their storages (data/0,
// data/1, …), which are stored as they are. minizip reads the zip and checks its CRCs, torch_pickle.h the pickle. One
// storage is in memory at a time. Refused, with what to do: the format before PyTorch 1.6, which is no zip, and
// TorchScript archives. Every entry lies in one folder of any name: <folder>/data.pkl,
// <folder>/data/<key>, <folder>/byteorder.

enum { MAX_NAME = 1024, MAX_PICKLE_BYTES = 16 << 20, PIECE_BYTES = 64 << 20 };

typedef struct entry {
    const char *name; // without the folder
    unz64_file_pos at;
    uint64_t n_bytes;
    bool stored; // as it is
} entry;         // inflated size as the zip states it

typedef struct torch_file {
    char *path;
    uint64_t n_bytes;
    unzFile zip;
    dt_arena arena;
    char *folder;   // "archive/"
    entry *entries; // by name
    int n_entries;
    dt_torch_tensor *tensors;
    int n;
    const entry *loaded; // what `storage` holds
    void *storage;
} torch_file;

static const uint8_t legacy[] = {0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc}; // pickle of a magic number

bool dt_torch_file_is(const void *head, size_t n_bytes) {
    return n_bytes >= sizeof legacy && (memcmp(head, "PK\3\4", 4) == 0 || memcmp(head, legacy, sizeof legacy) == 0);
}

static int torch_file_by_name(const void *a, const void *b) {
    return strcmp(((const entry *)a)->name, ((const entry *)b)->name);
}

static const entry *torch_file_find(const torch_file *f, const char *name) {
    entry key = {.name = name};
    return f->n_entries ? bsearch(&key, f->entries, (size_t)f->n_entries, sizeof key, torch_file_by_name) : NULL;
}

// ---- the zip ---------------------------------------------------------------------------------------
// a zip64 position: no search by name
static dt_status read_entry(torch_file *f, const entry *e, void *to) {
    char *p = to;
    uint64_t left = e->n_bytes; // the caller allocated that many
    int n = 1;
    if (unzGoToFilePos64(f->zip, &e->at) != UNZ_OK || unzOpenCurrentFile(f->zip) != UNZ_OK)
        return dt_fail(DT_E_CKPT, "%s: cannot read %s%s of the zip", f->path, f->folder, e->name);
    while (left > 0 && n > 0) {
        n = unzReadCurrentFile(f->zip, p, left < PIECE_BYTES ? (unsigned)left : PIECE_BYTES); // 0: end, negative: error
        if (n > 0) p += n, left -= (unsigned)n;
    }
    int closed = unzCloseCurrentFile(f->zip); // minizip compares the CRC here
    if (left > 0 || closed != UNZ_OK)
        return dt_fail(DT_E_CKPT, "%s: %s%s is damaged (%s)", f->path, f->folder, e->name,
                       left > 0 ? "cut off" : "its CRC differs");
    return DT_OK;
}

static dt_status torch_file_add_entry(torch_file *f) {
    char name[MAX_NAME];
    unz_file_info64 info;
    // 0: no extra field, no comment
    if (unzGetCurrentFileInfo64(f->zip, &info, name, sizeof name, NULL, 0, NULL, 0) != UNZ_OK ||
        info.size_filename >= sizeof name)
        return dt_fail(DT_E_CKPT, "%s: the zip's directory is damaged", f->path);
    size_t n = strcspn(name, "/"), there;                             // the first folder is the archive's
    if (!dt_stated_size(info.compressed_size, 1, f->n_bytes, &there)) // no larger than the file: a bomb is refused
        return dt_fail(DT_E_CKPT, "%s: %s states %llu bytes, more than the file has", f->path, name,
                       (unsigned long long)info.compressed_size);
    if (!f->folder) f->folder = dt_arena_printf(&f->arena, "%.*s/", (int)n, name);
    if (strncmp(name, f->folder, strlen(f->folder)) != 0) return DT_OK; // entries elsewhere are ignored
    f->entries = dt_xgrow(f->entries, (size_t)f->n_entries, sizeof *f->entries);
    entry *e = &f->entries[f->n_entries++];
    *e = (entry){.name = dt_arena_strdup(&f->arena, name + strlen(f->folder)), // names end with the arena
                 .n_bytes = info.uncompressed_size,
                 .stored = info.compression_method == 0 && info.compressed_size == info.uncompressed_size};
    unzGetFilePos64(f->zip, &e->at);
    return DT_OK;
}

static dt_status list_entries(torch_file *f) {
    int more = unzGoToFirstFile(f->zip);
    for (; more == UNZ_OK; more = unzGoToNextFile(f->zip)) DT_TRY(torch_file_add_entry(f));
    // a damaged entry, not the end
    if (more != UNZ_END_OF_LIST_OF_FILE) return dt_fail(DT_E_CKPT, "%s: the zip's directory is damaged", f->path);
    if (f->n_entries) qsort(f->entries, (size_t)f->n_entries, sizeof *f->entries, torch_file_by_name);
    return DT_OK;
}

static dt_status torch_file_check_kind(torch_file *f) {
    const entry *order = torch_file_find(f, "byteorder");
    char text[8] = ""; // zeros end the text
    if (!torch_file_find(f, "data.pkl"))
        return dt_fail(DT_E_CKPT, "%s: a zip, but not of torch.save: it has no data.pkl", f->path);
    if (torch_file_find(f, "constants.pkl")) // checked before the pickle, which would be refused with a worse message
        return dt_fail(DT_E_CKPT,
                       "%s: a TorchScript archive, which holds a program. In Python: "
                       "torch.save(torch.jit.load('%s').state_dict(), 'weights.pth')",
                       f->path, f->path);
    if (order && order->n_bytes < sizeof text) DT_TRY(read_entry(f, order, text)); // absent before 2.1: little
    if (order && strcmp(text, "little") != 0) return dt_fail(DT_E_CKPT, "%s: its numbers are big-endian", f->path);
    return DT_OK;
}

// ---- tensors ---------------------------------------------------------------------------------------
static dt_status read_pickle(torch_file *f) {
    const entry *e = torch_file_find(f, "data.pkl");
    // before it is allocated
    if (e->n_bytes > MAX_PICKLE_BYTES) return dt_fail(DT_E_CKPT, "%s: data.pkl is larger than 16 MiB", f->path);
    void *data = dt_xcalloc(1, (size_t)e->n_bytes + 1); // + 1: an empty entry
    dt_status st = read_entry(f, e, data);
    if (st == DT_OK) st = dt_torch_pickle_read(&f->tensors, &f->n, &f->arena, data, (size_t)e->n_bytes, f->path);
    free(data);
    return st;
}

static const entry *storage_of(const torch_file *f, const dt_torch_tensor *t) {
    char name[MAX_NAME + 8]; // a key of MAX_TEXT and "data/"
    snprintf(name, sizeof name, "data/%s", t->storage);
    return torch_file_find(f, name);
}

// Nothing is allocated for a storage before the file is known to have that many bytes.
static dt_status torch_file_check_tensor(const torch_file *f, const dt_torch_tensor *t) {
    const entry *e = storage_of(f, t);
    size_t n_bytes;
    if (!e)
        return dt_fail(DT_E_CKPT, "%s: the storage data/%s of tensor '%.200s' is not there", f->path, t->storage,
                       t->name);
    if (!e->stored)
        return dt_fail(DT_E_CKPT, "%s: data/%s is compressed, which torch.save does not do", f->path, t->storage);
    const element *type = element_of(t->type);
    const int each = type ? type->n_bytes : 0; // 0: not read
    // equal: a storage is exactly its elements
    if (!dt_stated_size((uint64_t)t->storage_elements, (uint64_t)each, e->n_bytes, &n_bytes) || n_bytes != e->n_bytes)
        return dt_fail(DT_E_CKPT, "%s: data/%s has %llu bytes, tensor '%.200s' states %lld elements of %d", f->path,
                       t->storage, (unsigned long long)e->n_bytes, t->name, (long long)t->storage_elements, each);
    return DT_OK;
}

// The storage of tensor i, all of it; valid until the next call.
static dt_status torch_file_storage(torch_file *f, int i, const void **data) {
    const entry *e = storage_of(f, &f->tensors[i]);
    if (f->loaded != e) { // the cache of one storage
        f->loaded = NULL; // invalid while it is replaced
        free(f->storage);
        if (!(f->storage = malloc((size_t)e->n_bytes + 1))) // gigabytes: may fail, needs no zeros
            return dt_fail(DT_E_CKPT, "%s: no memory for the %llu bytes of data/%s", f->path,
                           (unsigned long long)e->n_bytes, e->name);
        DT_TRY(read_entry(f, e, f->storage));
        f->loaded = e;
    }
    *data = f->storage;
    return DT_OK;
}

// ---- the file --------------------------------------------------------------------------------------
static dt_status open_zip(torch_file *f, const char *file) {
    struct stat s;
    f->zip = unzOpen64(file);
    f->n_bytes = stat(file, &s) == 0 ? (uint64_t)s.st_size : 0; // 0: every entry is then refused
    if (f->zip) return DT_OK;
    return dt_fail(DT_E_CKPT,
                   "%s: a zip that is cut off, or the format of PyTorch before 1.6, which this "
                   "converts: python3 -c \"import torch; torch.save(torch.load('%s', "
                   "map_location='cpu'), 'new.pth')\"",
                   f->path, f->path);
}

static void torch_file_close(torch_file *f) {
    if (!f) return;
    if (f->zip) unzClose(f->zip); // minizip has no close for NULL
    free(f->storage);
    free(f->entries);
    dt_arena_fini(&f->arena);
    free(f);
}

// `path` names the file in messages.
static dt_status torch_file_open(torch_file **out, const char *file, const char *path) {
    torch_file *f = dt_xcalloc(1, sizeof *f);
    dt_arena_init(&f->arena);
    f->path = dt_arena_strdup(&f->arena, path);
    dt_status st = open_zip(f, file);
    if (st == DT_OK) st = list_entries(f);
    if (st == DT_OK) st = torch_file_check_kind(f);
    if (st == DT_OK) st = read_pickle(f);
    // all tensors, before one is read
    for (int i = 0; st == DT_OK && i < f->n; i++) st = torch_file_check_tensor(f, &f->tensors[i]);
    if (st != DT_OK) {
        torch_file_close(f);
        f = NULL;
    }
    *out = f;
    return st;
}

// ---- the file --------------------------------------------------------------------------------------
struct dt_weights {
    char *path;
    dt_safetensors *safetensors; // one of the two
    torch_file *torch;
};

// Copies an object into memory: a file whose only name is /proc/self/fd/*fd.
static dt_status weights_file_fetch(int *fd, const dt_blob *b) {
    enum { RANGE_BYTES = 16 << 20 };             // a request is repeated for a minute only (store/http.h)
    uint8_t *range = dt_xcalloc(1, RANGE_BYTES); // 16 MiB: on the heap, not on the stack
    dt_status st = DT_OK;
    dt_info("%s: %.1f MB are fetched", b->path, (double)b->n_bytes / 1e6);
    *fd = memfd_create("weights", MFD_CLOEXEC); // anonymous: nothing is left behind if the process is killed
    if (*fd < 0) st = dt_fail(DT_E_CKPT, "%s: no file in memory: %s", b->path, strerror(errno));
    for (uint64_t at = 0; st == DT_OK && at < b->n_bytes; at += RANGE_BYTES) {
        const uint64_t left = b->n_bytes - at;
        const size_t n = left < RANGE_BYTES ? (size_t)left : RANGE_BYTES;
        st = dt_blob_read(b, at, range, n);
        if (st == DT_OK) st = dt_io_write(*fd, b->path, range, n);
    }
    free(range);
    return st;
}

dt_status dt_weights_open(dt_weights **out, const char *path, uint64_t max_bytes) {
    char head[9] = "", file[32]; // 8 bytes of length and the first of JSON
    int fd = -1;
    dt_blob b;
    dt_weights *w = dt_xcalloc(1, sizeof *w);
    w->path = dt_xstrdup(path);
    dt_status st = dt_blob_open(&b, w->path);
    const size_t n = b.n_bytes < sizeof head ? (size_t)b.n_bytes : sizeof head; // zeros behind a short file
    if (st == DT_OK) st = dt_blob_read(&b, 0, head, n);
    // by content: names end in anything
    const bool torch = dt_torch_file_is(head, n), remote = dt_blob_is_url(path);
    if (st == DT_OK && remote && !torch && head[8] != '{') // before all of it is fetched
        st = dt_fail(DT_E_CKPT, "%s: neither a safetensors file nor PyTorch's (by its first bytes)", path);
    if (st == DT_OK && remote && b.n_bytes > max_bytes) // model.init_max, before the download
        st = dt_fail(DT_E_CKPT, "%s: %.1f MB, more than the %.1f MB that model.init_max lets be fetched", path,
                     (double)b.n_bytes / 1e6, (double)max_bytes / 1e6);
    if (st == DT_OK && remote) st = weights_file_fetch(&fd, &b);
    snprintf(file, sizeof file, "/proc/self/fd/%d", fd); // libraries take a path: the descriptor has one
    const char *from = remote ? file : w->path;          // a local file is opened directly
    if (st == DT_OK)
        st = torch ? torch_file_open(&w->torch, from, path)
                   : dt_safetensors_open_named(&w->safetensors, from, w->path); // messages print the user's path
    if (fd >= 0) close(fd);                                                     // the readers have their own
    dt_blob_close(&b);
    if (st != DT_OK) {
        dt_weights_close(w);
        w = NULL;
    }
    *out = w;
    return st == DT_E_DATA ? DT_E_CKPT : st; // as blobs call what cannot be read
}

void dt_weights_close(dt_weights *w) {
    if (!w) return;
    dt_safetensors_close(w->safetensors);
    torch_file_close(w->torch);
    free(w->path);
    free(w);
}

int dt_weights_count(const dt_weights *w) {
    return w->torch ? w->torch->n : dt_safetensors_count(w->safetensors);
}

const char *dt_weights_name(const dt_weights *w, int i) {
    return w->torch ? w->torch->tensors[i].name : dt_safetensors_name(w->safetensors, i);
}

void dt_weights_shape(const dt_weights *w, int i, dt_shape *out) {
    if (w->torch)
        *out = w->torch->tensors[i].shape;
    else
        dt_safetensors_shape(w->safetensors, i, out);
}

const char *dt_weights_metadata(const dt_weights *w, const char *key) {
    // torch files carry no metadata of ours
    return w->safetensors ? dt_safetensors_metadata(w->safetensors, key) : NULL;
}

static const char *weights_file_type_of(const dt_weights *w, int i) {
    return w->torch ? w->torch->tensors[i].type : dt_safetensors_type(w->safetensors, i);
}

dt_status dt_weights_check(const dt_weights *w, int i) {
    if (element_of(weights_file_type_of(w, i))) return DT_OK;
    return dt_fail(DT_E_CKPT, "%s: tensor '%s' is %s, which is not read", w->path, dt_weights_name(w, i),
                   weights_file_type_of(w, i));
}

// In the order of the logical elements; position is of the innermost.
static void read_strided(float *to, const uint8_t *data, const element *e, const dt_torch_tensor *t) {
    // elements from the storage's begin; row-major order of the result
    int64_t index[DT_MAX_DIMS] = {0}, position = t->offset;
    for (int64_t k = 0, n = dt_shape_elements(&t->shape); k < n; k++) {
        to[k] = e->get(data + position * e->n_bytes);
        for (int d = t->shape.n - 1; d >= 0; d--) { // odometer: the innermost index first
            if (index[d] + 1 < t->shape.d[d]) {
                index[d]++;
                position += t->stride[d];
                break;
            }
            position -= index[d] * t->stride[d]; // back to 0 in this dimension
            index[d] = 0;
        }
    }
}

dt_status dt_weights_read(dt_weights *w, int i, float *to) {
    DT_TRY(dt_weights_check(w, i));
    const element *e = element_of(weights_file_type_of(w, i)); // checked above: not NULL
    const void *data = NULL;
    if (w->torch) {
        DT_TRY(torch_file_storage(w->torch, i, &data));
        read_strided(to, data, e, &w->torch->tensors[i]); // transposed and expanded tensors become dense
        return DT_OK;
    }
    size_t n_bytes; // may lie at any byte
    data = dt_safetensors_data(w->safetensors, i, &n_bytes);
    for (size_t k = 0; k < n_bytes / (size_t)e->n_bytes; k++)
        to[k] = e->get((const uint8_t *)data + k * (size_t)e->n_bytes);
    return DT_OK;
}
