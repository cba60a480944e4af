// test_mutate.c: damaged files through the whole reader.
//
//   test_mutate [RECORDS [PROCESSES [FOLDER]]]      default: 20000 2 /dev/shm; with FULL=1 a million
//   test_mutate --only ROW GROUP                    one group again, with what it did and what came of it
//
// Makes sets of 64 pictures (PPM and JPEG, 24 x 24, four classes): an LMDB and a tar as `dtrain pack` writes them,
// with indexes and hashes, and an MDS shard, which stores no hashes. Each process has its own
// copies. A group is: damage in one file of a set (bit flips, runs of zeros, ones or noise, swapped
// blocks, now and then a cut at a random place), the set is opened as training opens it, all records
// are read into batches, and the file is restored. Even groups read record by record under data.on_error: fail and look at
// the message, odd ones through the loader's threads and ring under `skip` and look at the list of skipped
// records. A record whose stored bytes differ from what was packed, or that lies behind a cut, is damaged.
// Each is counted once:
//
//   right     its pixels and label are those of the whole set all the same
//   refused   an error that names the file and the record (the file, if the set was refused as a whole)
//   wrong     neither: silently wrong. Must be 0 where a hash is stored
//
// Records that were not touched count as wrong when they come out otherwise, and never as right. Where
// the index is damaged, every record of the set counts, as all depend on it. A process that dies is a crash,
// and one that takes 20 s for a group hangs; it is started again behind that group.
//
// Exit status 1 when anything was silently wrong where a hash is stored, a message named no file or record,
// or a process died. Builds with sanitizers do the same work.
#include "base/core.h"
#include "base/io.h"
#include "base/log.h"
#include "base/os.h"
#include "config/config.h"
#include "data/data.h"
#include "data/loader/data_parts.h"
#include "data/pack/pack.h"

#include <fcntl.h>
#include <jpeglib.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 64, SIDE = 24, PIXELS = SIDE * SIDE * 3, BATCH = 8, MAX_PROCESSES = 64, LIMIT_S = 20 };

static void die(const char *what) {
    fprintf(stderr, "test_mutate: %s: %s\n", what, dt_error_message());
    exit(2);
}

#define CHECK(expr)                                                                                                    \
    do {                                                                                                               \
        if ((expr) != DT_OK) die(#expr);                                                                               \
    } while (0)

// ---- what is measured ------------------------------------------------------------------------------
typedef enum set_kind { SET_LMDB, SET_TAR, SET_MDS, N_SETS } set_kind;
typedef enum target { T_DATA, T_INDEX, N_TARGETS } target;

static const char *const SET_PATH[] = {"a.lmdb", "a.tar", "mds"};
static const char *const FILE_NAME[N_SETS][N_TARGETS] = {
    {"a.lmdb/data.mdb", "a.lmdb/data.mdb.index"},
    {"a.tar", "a.tar.index"},
    {"mds/shard.00000.mds", "mds/shard.00000.mds.index"},
};

typedef struct row {
    const char *what;
    set_kind set;
    target target;
    bool without_index; // the file is scanned
    bool hashed;        // every byte that is asked for has a stored hash
    double share;       // of the records
} row;

static const row ROWS[] = {
    {"LMDB, data", SET_LMDB, T_DATA, false, true, 0.3},
    {"tar, data", SET_TAR, T_DATA, false, true, 0.3},
    {"MDS, data", SET_MDS, T_DATA, false, false, 0.1},
    {"LMDB without index, data", SET_LMDB, T_DATA, true, false, 0.05},
    {"tar without index, data", SET_TAR, T_DATA, true, false, 0.05},
    {"MDS without index, data", SET_MDS, T_DATA, true, false, 0.05},
    {"LMDB, index", SET_LMDB, T_INDEX, false, true, 0.03},
    {"tar, index", SET_TAR, T_INDEX, false, true, 0.03},
    {"MDS, index", SET_MDS, T_INDEX, false, true, 0.03},
};
enum { N_ROWS = sizeof ROWS / sizeof *ROWS };

typedef struct tally {
    atomic_ullong groups, damaged, right, refused, wrong, unclear, crashes;
    atomic_ullong first_wrong, first_unclear, first_crash; // group + 1
} tally;

// A process's place, for whoever starts it again.
typedef struct seat {
    atomic_int row;
    atomic_ullong group; // being read
} seat;

typedef struct shared {
    tally rows[N_ROWS];
    seat seats[MAX_PROCESSES];
} shared;

static shared *told;
static bool verbose, leaked;
static char folder[256];

static void count(atomic_ullong *c, uint64_t n) {
    atomic_fetch_add_explicit(c, n, memory_order_relaxed);
}

static void count_at(atomic_ullong *c, atomic_ullong *first, uint64_t group) {
    unsigned long long none = 0;
    count(c, 1);
    atomic_compare_exchange_strong(first, &none, group + 1);
}

// ---- the sets --------------------------------------------------------------------------------------
static uint8_t *put_jpeg(const uint8_t *pixels, size_t *n) {
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr e;
    unsigned char *out = NULL;
    unsigned long n_out = 0;
    c.err = jpeg_std_error(&e);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &out, &n_out);
    c.image_width = c.image_height = SIDE;
    c.input_components = 3;
    c.in_color_space = JCS_RGB;
    jpeg_set_defaults(&c);
    jpeg_start_compress(&c, TRUE);
    while (c.next_scanline < SIDE) {
        JSAMPROW line = (JSAMPROW)(uintptr_t)(pixels + (size_t)c.next_scanline * SIDE * 3);
        jpeg_write_scanlines(&c, &line, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    *n = n_out;
    return out;
}

static uint64_t mix64(uint64_t x) { // splitmix64
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

// Picture i, as a file; every third is a JPEG.
static uint8_t *make_picture(int i, size_t *n) {
    uint8_t pixels[PIXELS], *out;
    for (int k = 0; k < PIXELS; k++)
        pixels[k] = (uint8_t)(8 * i + 3 * k + (int)(mix64((uint64_t)(i * PIXELS + k)) % 16));
    if (i % 3 == 2) return put_jpeg(pixels, n);
    out = dt_xcalloc(PIXELS + 32, 1);
    int head = snprintf((char *)out, 32, "P6\n%d %d\n255\n", SIDE, SIDE);
    memcpy(out + head, pixels, PIXELS);
    *n = (size_t)head + PIXELS;
    return out;
}

static void write_mds(const char *root) {
    static const char columns[] = "{\"column_encodings\":[\"bytes\",\"int\"],\"column_names\":[\"image\",\"label\"],"
                                  "\"column_sizes\":[null,8],\"compression\":null,\"format\":\"mds\",\"hashes\":[],"
                                  "\"size_limit\":67108864,\"version\":2}";
    dt_buffer b = {0};
    uint32_t offset[N + 2] = {N}, at = (uint32_t)(sizeof offset + sizeof columns - 1);
    dt_buffer_append(&b, offset, sizeof offset);
    dt_buffer_append(&b, columns, sizeof columns - 1);
    for (int i = 0; i < N; i++) {
        size_t n;
        uint8_t *data = make_picture(i, &n);
        uint32_t size = (uint32_t)n;
        int64_t label = i % 4;
        offset[1 + i] = at;
        dt_buffer_append(&b, &size, 4);
        dt_buffer_append(&b, data, n);
        dt_buffer_append(&b, &label, 8);
        at += 12 + size;
        free(data);
    }
    offset[1 + N] = at;
    memcpy(b.data, offset, sizeof offset);
    char *dir = dt_xprintf("%s/mds", root), *path = dt_xprintf("%s/shard.00000.mds", dir);
    char *list = dt_xprintf("%s/index.json", dir);
    char *text = dt_xprintf("{\"version\":2,\"shards\":[{\"column_encodings\":[\"bytes\",\"int\"],"
                            "\"column_names\":[\"image\",\"label\"],\"column_sizes\":[null,8],"
                            "\"compression\":null,\"format\":\"mds\",\"hashes\":[],\"raw_data\":"
                            "{\"basename\":\"shard.00000.mds\",\"bytes\":%zu,\"hashes\":{}},"
                            "\"samples\":%d,\"size_limit\":67108864,\"version\":2,"
                            "\"zip_data\":null}]}",
                            b.n_bytes, N);
    CHECK(dt_io_mkdir_all(dir));
    CHECK(dt_io_write_file(path, b.data, b.n_bytes));
    CHECK(dt_io_write_file(list, text, strlen(text)));
    free(text), free(list), free(path), free(dir);
    dt_buffer_fini(&b);
}

static void write_sets(const char *root) {
    char *raw = dt_xprintf("%s/raw", root);
    for (int i = 0; i < N; i++) {
        size_t n;
        uint8_t *data = make_picture(i, &n);
        char *dir = dt_xprintf("%s/c%d", raw, i % 4);
        char *path = dt_xprintf("%s/%06d.%s", dir, i, i % 3 == 2 ? "jpg" : "ppm");
        CHECK(dt_io_mkdir_all(dir));
        CHECK(dt_io_write_file(path, data, n));
        free(path), free(dir), free(data);
    }
    for (int s = SET_LMDB; s <= SET_TAR; s++) {
        char *out = dt_xprintf("%s/%s", root, SET_PATH[s]);
        dt_pack_opts o = {.source = raw, .out = out};
        CHECK(dt_data_pack(&o));
        free(out);
    }
    CHECK(dt_io_remove_tree(raw));
    free(raw);
    write_mds(root);
}

// ---- files that are damaged and restored -----------------------------------------------------------
typedef struct file {
    char *path;
    uint8_t *good, *map; // good: NULL when there is no such file
    size_t n;
    bool cut;
} file;

static void file_load(file *f, const char *root, const char *name) {
    char *data;
    *f = (file){.path = dt_xprintf("%s/%s", root, name)};
    CHECK(dt_io_read_file(&data, &f->n, f->path, 0, DT_E_DATA));
    f->good = (uint8_t *)data;
    int fd = open(f->path, O_RDWR | O_CLOEXEC);
    f->map = mmap(NULL, f->n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd < 0 || f->map == MAP_FAILED) die(f->path);
    close(fd);
}

static void file_restore(file *f) {
    if (f->cut && truncate(f->path, (off_t)f->n) != 0) die(f->path);
    memcpy(f->map, f->good, f->n);
    f->cut = false;
}

static void file_close(file *f) {
    if (f->map) munmap(f->map, f->n);
    free(f->good), free(f->path);
    *f = (file){0};
}

typedef struct random_numbers {
    uint64_t key, at;
} random_numbers;

static uint64_t below(random_numbers *r, uint64_t n) {
    return mix64(r->key ^ mix64(r->at++)) % n;
}

static void flip_bits(file *f, random_numbers *r) {
    for (uint64_t k = 1 + below(r, 8); k > 0; k--) f->map[below(r, f->n)] ^= (uint8_t)(1u << below(r, 8));
}

static void put_run(file *f, random_numbers *r) {
    size_t most = (size_t)1 << (1 + below(r, 12)), at = below(r, f->n), n = 1 + below(r, most);
    uint64_t how = below(r, 3);
    if (n > f->n - at) n = f->n - at;
    for (size_t i = 0; i < n; i++) f->map[at + i] = how == 0 ? 0 : how == 1 ? 0xff : (uint8_t)below(r, 256);
}

static void swap_blocks(file *f, random_numbers *r) {
    static const size_t SIZES[] = {64, 512, 4096};
    size_t size = SIZES[below(r, 3)], n = f->n / size;
    uint8_t block[4096];
    if (n < 2) return;
    uint8_t *a = f->map + size * below(r, n), *b = f->map + size * below(r, n);
    memcpy(block, a, size);
    memmove(a, b, size);
    memcpy(b, block, size);
}

// Returns the bytes that are left.
static size_t damage(file *f, random_numbers *r) {
    for (uint64_t k = 1 + below(r, 16); k > 0; k--) {
        uint64_t how = below(r, 4);
        (how == 0 ? swap_blocks : how == 1 ? put_run : flip_bits)(f, r);
    }
    if (below(r, 24) != 0) return f->n;
    size_t n = below(r, f->n);
    if (truncate(f->path, (off_t)n) != 0) die(f->path);
    f->cut = true;
    return n;
}

// ---- reading ---------------------------------------------------------------------------------------
// What the whole set gives.
typedef struct known {
    char key[64];
    uint64_t offset, size; // of the picture
    uint8_t pixels[PIXELS];
    int32_t label;
} known;

typedef struct reader {
    const row *row;
    known known[N];
    file file;         // that is damaged
    char *skips;       // list of skipped records
    dt_config *cfg[2]; // fail, skip
    dt_sample_scratch scratch;
    bool touched[N];
    // of this group
    uint64_t group;
    tally *tally;
    bool done[N];
} reader;

static dt_config *make_config(const char *root, const row *r, bool skip) {
    char *text = dt_xprintf("run: {name: t}\n"
                            "data:\n"
                            "  path: \"%s/%s\"\n"
                            "  cache_dir: %s/cache\n"
                            "  write_index: false\n"
                            "  shuffle: none\n"
                            "  on_error: %s\n"
                            "  fields: {image: {kind: image, size: [%d, %d]}, label: {kind: class}}\n"
                            "model: {name: resnet}\n"
                            "train: {global_batch: %d, micro_batch: %d}\n",
                            root, SET_PATH[r->set], root, skip ? "skip" : "fail", SIDE, SIDE, BATCH, BATCH);
    dt_config *c;
    CHECK(dt_config_parse(&c, "bench", text, strlen(text), NULL, 0));
    free(text);
    return c;
}

static dt_data *data_of(dt_dataset *d) {
    return d->self;
}

static known *known_of(reader *r, const char *key, uint32_t hint) {
    if (hint < N && strcmp(r->known[hint].key, key) == 0) return &r->known[hint];
    for (int i = 0; i < N; i++)
        if (strcmp(r->known[i].key, key) == 0) return &r->known[i];
    return NULL;
}

static dt_status fill(reader *r, const dt_data *data, uint32_t sample, void *const *field) {
    dt_sample_place to = {.sample = sample, .field = field};
    dt_bad_sample bad;
    return dt_sample_fill(data, &r->scratch, &to, &bad);
}

static void learn(reader *r, dt_dataset *d) {
    dt_data *data = data_of(d);
    const dt_catalog *c = data->reader->catalog;
    void *field[DT_MAX_FIELDS] = {0};
    if (c->n_records != N) die("a set of other records");
    for (uint32_t i = 0; i < data->view.n; i++) {
        const dt_record *rec = &c->records[i];
        known *k = &r->known[i];
        snprintf(k->key, sizeof k->key, "%s", dt_catalog_str(c, rec->key));
        for (uint32_t m = rec->first_member; m < rec->first_member + rec->n_members; m++)
            if (c->members[m].size > k->size) {
                k->offset = c->members[m].offset;
                k->size = c->members[m].size;
            }
        field[0] = k->pixels, field[1] = &k->label;
        CHECK(fill(r, data, i, field));
    }
}

static bool is_same(const known *k, const uint8_t *pixels, int32_t label) {
    return label == k->label && memcmp(pixels, k->pixels, PIXELS) == 0;
}

static void tell(const reader *r, const known *k, const char *what) {
    if (verbose)
        printf("  %s%s: %s%s%s\n", k->key, r->touched[k - r->known] ? " (damaged)" : "", what,
               *dt_error_message() ? ": " : "", dt_error_message());
}

static void found_wrong(reader *r, const known *k) {
    tell(r, k, "WRONG");
    count_at(&r->tally->wrong, &r->tally->first_wrong, r->group);
}

static void found_right(reader *r, const known *k) {
    if (!r->touched[k - r->known]) return;
    tell(r, k, "right");
    count(&r->tally->right, 1);
}

static void found_refused(reader *r, const known *k, bool clear) {
    bool touched = r->touched[k - r->known];
    if (touched) tell(r, k, "refused");
    if (touched) count(&r->tally->refused, 1);
    if (!clear) count_at(&r->tally->unclear, &r->tally->first_unclear, r->group);
}

static bool names(const char *text, const char *a, const char *b) {
    return strstr(text, a) && strstr(text, b);
}

// The name of the file that is damaged, without its folders.
static const char *file_name(const reader *r, target t) {
    const char *name = FILE_NAME[r->row->set][t], *slash = strrchr(name, '/');
    return slash ? slash + 1 : name;
}

// The set was refused as a whole.
static void refuse_all(reader *r) {
    bool clear = strstr(dt_error_message(), file_name(r, r->row->target)) != NULL;
    if (verbose) printf("  the set is refused: %s\n", dt_error_message());
    for (int i = 0; i < N; i++)
        if (!r->done[i]) found_refused(r, &r->known[i], clear);
}

static void one_by_one(reader *r, dt_dataset *d) {
    dt_data *data = data_of(d);
    static uint8_t pixels[PIXELS];
    int32_t label;
    void *field[DT_MAX_FIELDS] = {pixels, &label};
    for (uint32_t i = 0; i < data->view.n; i++) {
        const char *key[DT_MAX_WIDTH];
        dt_data_records_of(d, i, key);
        known *k = known_of(r, key[0], i);
        dt_error_clear();
        dt_status st = fill(r, data, i, field);
        if (!k || (st != DT_OK && st != DT_E_DATA)) {
            count_at(&r->tally->unclear, &r->tally->first_unclear,
                     r->group); // a name that nobody gave
            continue;
        }
        r->done[k - r->known] = true;
        if (st == DT_E_DATA)
            found_refused(r, k, names(dt_error_message(), file_name(r, T_DATA), k->key));
        else if (is_same(k, pixels, label))
            found_right(r, k);
        else
            found_wrong(r, k);
    }
}

// A record whose place has another one must be in the list of skipped records.
static void look_at_place(reader *r, dt_dataset *d, const dt_batch *b, int j, uint32_t i, const char *list) {
    const char *key[DT_MAX_WIDTH], *there[DT_MAX_WIDTH];
    char quoted[80];
    dt_data_records_of(d, i, key);
    dt_data_records_of(d, (uint32_t)b->sample[j], there);
    known *k = known_of(r, key[0], i), *got = known_of(r, there[0], (uint32_t)b->sample[j]);
    const uint8_t *pixels = (const uint8_t *)b->field[0] + (size_t)j * PIXELS;
    if (!k || !got) {
        count_at(&r->tally->unclear, &r->tally->first_unclear, r->group);
        return;
    }
    r->done[k - r->known] = true;
    bool same = is_same(got, pixels, ((const int32_t *)b->field[1])[j]);
    snprintf(quoted, sizeof quoted, "\"%s\"", k->key);
    if (got != k) found_refused(r, k, names(list, file_name(r, T_DATA), quoted));
    if (!same)
        found_wrong(r, got);
    else if (got == k)
        found_right(r, k);
}

static void through_loader(reader *r, dt_dataset *d) {
    static const int N_MICRO[] = {0};
    dt_batch_source *s;
    dt_source_request q = {.split = DT_SPLIT_TRAIN,
                           .micros = N_MICRO,
                           .n_micro = 1,
                           .global_batch = BATCH,
                           .micro_batch = BATCH,
                           .end_step = -1};
    int64_t n_steps = data_of(d)->view.n / BATCH;
    if (n_steps == 0) {
        one_by_one(r, d); // a set of which little is left
        return;
    }
    q.end_step = n_steps;
    CHECK(d->open(d, &q, &s));
    for (int64_t step = 0; step < n_steps; step++) {
        const dt_batch *b;
        char *list = NULL;
        size_t n;
        dt_status st = s->get(s, step, 0, &b, NULL);
        if (st != DT_OK) break; // too few records are left to replace the others with
        if (access(r->skips, F_OK) == 0) CHECK(dt_io_read_file(&list, &n, r->skips, 0, DT_E_DATA));
        for (int j = 0; j < b->n; j++) look_at_place(r, d, b, j, (uint32_t)(step * BATCH + j), list ? list : "");
        free(list);
        s->release(s, b);
    }
    s->close(s);
    unlink(r->skips);
}

static void read_damaged(reader *r) {
    bool ring = r->group % 2 == 1;
    dt_dataset *d;
    dt_error_clear();
    dt_status st = dt_data_open(&d, r->cfg[ring], NULL, 2, ring ? r->skips : NULL);
    if (st != DT_OK) {
        refuse_all(r);
        return;
    }
    (ring ? through_loader : one_by_one)(r, d);
    // what the set no longer has, or what nothing was left to replace it with
    dt_error_clear();
    for (int i = 0; i < N; i++) {
        if (!r->touched[i] || r->done[i]) continue;
        if (ring)
            found_refused(r, &r->known[i], true);
        else
            found_wrong(r, &r->known[i]);
    }
    d->close(d);
}

// ---- groups ----------------------------------------------------------------------------------------
static void mark_touched(reader *r, size_t n_left) {
    uint64_t n = 0;
    for (int i = 0; i < N; i++) {
        const known *k = &r->known[i];
        r->done[i] = false;
        r->touched[i] = r->row->target != T_DATA || k->offset + k->size > n_left ||
                        memcmp(r->file.map + k->offset, r->file.good + k->offset, k->size) != 0;
        n += r->touched[i];
    }
    count(&r->tally->damaged, n);
}

static void run_group(reader *r, uint64_t group) {
    random_numbers numbers = {mix64((uint64_t)(r->row - ROWS) << 48 | group), 0};
    r->group = group;
    size_t n_left = damage(&r->file, &numbers);
    mark_touched(r, n_left);
    count(&r->tally->groups, 1);
    read_damaged(r);
    file_restore(&r->file);
}

static void reader_open(reader *r, const row *which, const char *root) {
    dt_dataset *d;
    char *index = dt_xprintf("%s/%s", root, FILE_NAME[which->set][T_INDEX]);
    *r = (reader){.row = which, .skips = dt_xprintf("%s/skipped.rank0", root)};
    r->tally = &told->rows[which - ROWS];
    dt_sample_scratch_init(&r->scratch);
    if (which->without_index && access(index, F_OK) == 0) CHECK(dt_io_unlink(index));
    for (int i = 0; i < 2; i++) r->cfg[i] = make_config(root, which, i == 1);
    if (which->set == SET_MDS && !which->without_index) { // there is none yet
        const char *path = SET_PATH[SET_MDS];
        char *set = dt_xprintf("%s/%s", root, path);
        const char *paths[] = {set};
        dt_reader *s;
        CHECK(dt_reader_open(&s, paths, 1));
        dt_reader_close(s);
        free(set);
    }
    CHECK(dt_data_open(&d, r->cfg[0], NULL, 2, NULL));
    learn(r, d);
    d->close(d);
    file_load(&r->file, root, FILE_NAME[which->set][which->target]);
    free(index);
}

static void reader_close(reader *r) {
    file_close(&r->file);
    free(r->skips);
    for (int i = 0; i < 2; i++) dt_config_destroy(r->cfg[i]);
    dt_sample_scratch_fini(&r->scratch);
}

static void make_folder(const char *root) {
    if (access(root, F_OK) == 0) CHECK(dt_io_remove_tree(root));
    CHECK(dt_io_mkdir_all(root));
    write_sets(root);
}

// Process `p` of `n`: its share of every row, from where its seat says.
static void work(int p, int n, uint64_t n_records) {
    seat *s = &told->seats[p];
    char *root = dt_xprintf("%s/%d", folder, p);
    dt_log_set_level(DT_LOG_ERROR);
    for (int i = s->row; i < N_ROWS; i++) {
        reader *r = dt_xcalloc(1, sizeof *r);
        uint64_t want = (uint64_t)((double)n_records * ROWS[i].share);
        s->row = i;
        make_folder(root);
        reader_open(r, &ROWS[i], root);
        while (r->tally->damaged < want) {
            alarm(LIMIT_S);
            run_group(r, s->group * (uint64_t)n + (uint64_t)p);
            alarm(0);
            s->group++;
        }
        s->group = 0;
        reader_close(r);
        free(r);
    }
    s->row = N_ROWS;
    CHECK(dt_io_remove_tree(root));
    free(root);
}

static pid_t start(int p, int n, uint64_t n_records) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        work(p, n, n_records);
        exit(0);
    }
    return pid;
}

static void crashed(int p, int n) {
    seat *s = &told->seats[p];
    tally *t = &told->rows[s->row];
    count_at(&t->crashes, &t->first_crash, s->group * (uint64_t)n + (uint64_t)p);
    s->group++;
}

static void run_all(int n, uint64_t n_records) {
    pid_t pid[MAX_PROCESSES];
    int n_running = n, status;
    for (int p = 0; p < n; p++) pid[p] = start(p, n, n_records);
    while (n_running > 0) {
        pid_t ended = wait(&status);
        int p = 0;
        while (p < n && pid[p] != ended) p++;
        if (p == n) continue;
        if (told->seats[p].row == N_ROWS) { // a sanitizer ends it with another status
            leaked = leaked || status != 0;
            n_running--;
            continue;
        }
        if (WIFEXITED(status) && WEXITSTATUS(status) == 2) exit(2); // the test itself
        crashed(p, n);
        pid[p] = start(p, n, n_records);
    }
}

// ---- the table -------------------------------------------------------------------------------------
static bool print_row(const char *what, const tally *t, bool hashed) {
    printf("%-26s %8llu %9llu %9llu %9llu %9llu%s %6llu %6llu\n", what, t->groups, t->damaged, t->right, t->refused,
           t->wrong, hashed ? " " : "*", t->unclear, t->crashes);
    if (t->first_wrong && hashed) printf("    first wrong: group %llu\n", t->first_wrong - 1);
    if (t->first_unclear) printf("    first unclear: group %llu\n", t->first_unclear - 1);
    if (t->first_crash) printf("    first crash: group %llu\n", t->first_crash - 1);
    return (hashed && t->wrong) || t->unclear || t->crashes;
}

static bool print_table(void) {
    bool bad = false;
    tally sum = {0};
    printf("%-26s %8s %9s %9s %9s %9s  %6s %6s\n", "damaged", "groups", "records", "right", "refused", "wrong",
           "no name", "crashes");
    for (int i = 0; i < N_ROWS; i++) {
        const tally *t = &told->rows[i];
        if (t->groups == 0) continue;
        bad = print_row(ROWS[i].what, t, ROWS[i].hashed) || bad;
        sum.groups += t->groups;
        sum.damaged += t->damaged;
        sum.right += t->right;
        sum.refused += t->refused;
        sum.unclear += t->unclear;
        sum.crashes += t->crashes;
        sum.wrong += ROWS[i].hashed ? t->wrong : 0;
    }
    print_row("all; wrong with a hash", &sum, true);
    printf("* no hash is stored\n");
    return bad;
}

static void run_one(int i, uint64_t group) {
    reader *r = dt_xcalloc(1, sizeof *r);
    if (i < 0 || i >= N_ROWS) exit(2);
    printf("%s, group %llu\n", ROWS[i].what, (unsigned long long)group);
    verbose = true;
    make_folder(folder);
    reader_open(r, &ROWS[i], folder);
    run_group(r, group);
    reader_close(r);
    free(r);
    CHECK(dt_io_remove_tree(folder));
}

int main(int argc, char **argv) {
    bool only = argc == 4 && strcmp(argv[1], "--only") == 0;
    uint64_t n_records = getenv("FULL") ? 1000000 : 20000;
    if (argc > 1 && !only) n_records = strtoull(argv[1], NULL, 10);
    int n = argc > 2 && !only ? atoi(argv[2]) : 2;
    snprintf(folder, sizeof folder, "%s/dtrain-mutate-XXXXXX", argc > 3 && !only ? argv[3] : "/dev/shm");
    if (n < 1 || n > MAX_PROCESSES || n_records < 1 || !mkdtemp(folder)) return 2;
    told = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (told == MAP_FAILED) return 2;
    if (only) {
        run_one(atoi(argv[2]), strtoull(argv[3], NULL, 10));
        return print_table();
    }
    double begin = dt_clock_s();
    run_all(n, n_records);
    CHECK(dt_io_remove_tree(folder));
    bool bad = print_table() || leaked;
    printf("%.0f s, %d processes\n", dt_clock_s() - begin, n);
    return bad;
}
