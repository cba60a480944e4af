// verify.c: every member of every record, by several threads.
//
// Threads take blocks of neighbouring records, so that each reads forward. The findings are sorted at the end and
// do not depend on the threads. A bad member never stops the others. An error that is no fault of the data (no
// descriptor is left) stops all: a list made then would name good records.

#include "verify.h"

#include "base/core.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/log.h"
#include "base/thread.h"
#include "data/decode/audio.h"
#include "data/decode/decode.h"
#include "data/file/json_data.h"
#include "data/source/source_parts.h"

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

// ---- verify shards ------------------------------------------------------------------------------------------------

// Whole shards against the hashes that the list beside them (MDS index.json) has of them.
//
// A set is not asked for the list it was opened by: shards may be named one by one, or by a pattern, and
// their hashes lie beside them all the same. One list is kept at a time, as shards of a folder are neighbours.

enum { BLOCK_BYTES = 1 << 20 };

typedef struct shard_hash {
    char *name, *hex; // heap; NULL: none is stored, or none that is known
} shard_hash;

static void verify_shards_read_list(dt_listing *l, const char *path) {
    bool is_list;
    if (!dt_io_exists(path) || dt_shard_list_read(l, path, &is_list) == DT_OK) return;
    dt_warn("%s: shards are not compared with its hashes", dt_error_message());
    dt_error_clear();
    dt_shard_list_fini(l);
}

// Shards are listed in order as a rule, so the search goes on where the last one was found.
static dt_listed *find_listed(const dt_listing *l, const char *path, size_t *at) {
    for (size_t i = 0; i < l->n; i++) {
        size_t k = (*at + i) % l->n;
        if (strcmp(l->shard[k].path, path) != 0) continue;
        *at = k + 1;
        return &l->shard[k];
    }
    return NULL;
}

static void take_hash(shard_hash *out, dt_listed *from, const char *list, bool *warned) {
    if (from->hash) {
        *out = (shard_hash){from->hash_name, from->hash};
        from->hash_name = from->hash = NULL;
    } else if (from->hash_name && !*warned) {
        dt_info("%s: has hashes of kind %s, which are not compared (those of xxhash are)", list, from->hash_name);
        *warned = true;
    }
}

// The hashes by shard, heap: as many as the catalog has shards. A warning names lists that cannot be read, and hashes
// of other kinds.
static shard_hash *shard_hashes_find(const dt_catalog *c) {
    shard_hash *out = dt_xcalloc(c->n_shards + 1, sizeof *out);
    dt_listing l = {0};
    char *list = NULL;
    bool warned = false;
    size_t at = 0;
    for (uint32_t s = 0; s < c->n_shards; s++) {
        const char *path = c->shards[s].path, *slash = strrchr(path, '/');
        char *here = dt_xprintf("%.*sindex.json", slash ? (int)(slash - path) + 1 : 0, path);
        if (list && strcmp(here, list) == 0) {
            free(here);
        } else {
            dt_shard_list_fini(&l);
            free(list);
            list = here;
            warned = false;
            at = 0;
            verify_shards_read_list(&l, list);
        }
        dt_listed *found = find_listed(&l, path, &at);
        if (found) take_hash(&out[s], found, list, &warned);
    }
    dt_shard_list_fini(&l);
    free(list);
    return out;
}

// Reads the shard (unpacked) and compares. DT_E_DATA: the message is the reason. Any thread.
static dt_status shard_hash_check(dt_reader *s, uint32_t shard, const shard_hash *want, dt_buffer *scratch) {
    uint64_t n_bytes = s->catalog->shards[shard].n_bytes;
    char hex[DT_NAMED_HASH_HEX];
    uint8_t *block = dt_buffer_reserve(scratch, BLOCK_BYTES);
    if (!block) return dt_fail(DT_E_INTERNAL, "out of memory");
    dt_named_hash *h = dt_named_hash_create(want->name);
    dt_status st = DT_OK;
    for (uint64_t at = 0; at < n_bytes && st == DT_OK; at += BLOCK_BYTES) {
        size_t n = n_bytes - at < BLOCK_BYTES ? (size_t)(n_bytes - at) : (size_t)BLOCK_BYTES;
        st = dt_reader_read_range(s, shard, at, block, n);
        if (st == DT_OK) dt_named_hash_update(h, block, n);
    }
    dt_named_hash_hex(h, hex);
    dt_named_hash_destroy(h);
    DT_TRY(st);
    if (strcasecmp(hex, want->hex) == 0) return DT_OK;
    return dt_fail(DT_E_DATA, "its bytes are not those that index.json has the hash of (%s %s, not %s)", want->name,
                   hex, want->hex);
}

enum { RUN = 16, AUDIO_BLOCK = 16384 };

typedef struct checker {
    dt_reader *reader;
    const dt_verify_opts *o;
    dt_verify_result *result;
    const shard_hash *hashes; // by shard
    _Atomic uint64_t next;    // record
    _Atomic uint32_t next_shard;
    _Atomic uint64_t n_done;  // bytes
    dt_progress progress;     // thread 0's
    _Atomic dt_status failed; // what ends it all
    char *why;                // of that, heap
    pthread_mutex_t lock;     // result, and the writing of the last two
} checker;

typedef struct worker {
    dt_buffer bytes;
    dt_decoder *decoder;
    dt_audio_file *audio;
    float *samples;
    dt_verify_result counts;
} worker;

// ---- one member ------------------------------------------------------------------------------------
static dt_status check_audio(worker *w, dt_span bytes) {
    dt_audio_info info;
    DT_TRY(dt_audio_file_open(w->audio, bytes, &info));
    for (int64_t at = 0; at < info.n_samples; at += AUDIO_BLOCK) {
        int64_t left = info.n_samples - at, n = left < AUDIO_BLOCK ? left : AUDIO_BLOCK;
        DT_TRY(dt_audio_file_read(w->audio, at, n, 1, w->samples, AUDIO_BLOCK));
    }
    return DT_OK;
}

static dt_status check_json(dt_span bytes) {
    json_error_t e;
    json_t *root = dt_json_load((const char *)bytes.data, bytes.n_bytes, JSON_DECODE_ANY, &e);
    json_decref(root);
    return root ? DT_OK : dt_fail(DT_E_DATA, "not JSON: %s (line %d)", e.text, e.line);
}

// Whether there is something to decode. *kind: NULL for JSON.
static bool is_known(const char *ext, const dt_kind **kind) {
    const char *dot = strrchr(ext, '.'), *name = dot ? dot + 1 : ext;
    *kind = dt_kind_of_ext(name);
    if (strcmp(name, "json") == 0) *kind = NULL;
    return *kind ? (*kind)->is_image || (*kind)->uses & DT_KIND_AUDIO : strcmp(name, "json") == 0;
}

static dt_status check_structure(worker *w, const dt_kind *kind, dt_span bytes) {
    if (!kind) return check_json(bytes);
    return kind->is_image ? dt_decode_check(w->decoder, bytes) : check_audio(w, bytes);
}

// The reason without file, record and member, which the result has by themselves.
static char *reason_of(const dt_reader *s, uint32_t record, uint32_t member, bool has_context) {
    char *text = dt_xstrdup(dt_error_message());
    dt_fail(DT_E_DATA, "%s", "");
    dt_set_context(s, record, member, DT_E_DATA);
    size_t n = strlen(dt_error_message());
    if (has_context && strlen(text) > n) memmove(text, text + n, strlen(text) - n + 1);
    return text;
}

static void add_bad(checker *c, uint32_t record, uint32_t member, bool has_context) {
    dt_bad_member bad = {record, member, reason_of(c->reader, record, member, has_context)};
    pthread_mutex_lock(&c->lock);
    dt_verify_result *r = c->result;
    r->bad = dt_xgrow(r->bad, r->n_bad, sizeof *r->bad);
    r->bad[r->n_bad++] = bad;
    pthread_mutex_unlock(&c->lock);
}

static void add_bad_shard(checker *c, uint32_t shard) {
    dt_bad_shard bad = {shard, dt_xstrdup(dt_error_message())};
    pthread_mutex_lock(&c->lock);
    dt_verify_result *r = c->result;
    r->bad_shards = dt_xgrow(r->bad_shards, r->n_bad_shards, sizeof *r->bad_shards);
    r->bad_shards[r->n_bad_shards++] = bad;
    pthread_mutex_unlock(&c->lock);
}

static bool is_ended(const checker *c) {
    return c->failed != DT_OK;
}

// Whether `st` is the data's fault. If not, the first such error ends it all.
static bool is_of_data(checker *c, dt_status st) {
    if (st == DT_E_DATA) return true;
    pthread_mutex_lock(&c->lock);
    if (!c->why) {
        c->why = dt_xstrdup(dt_error_message());
        c->failed = st;
    }
    pthread_mutex_unlock(&c->lock);
    return false;
}

static void verify_check_member(checker *c, worker *w, uint32_t record, uint32_t member) {
    const dt_catalog *cat = c->reader->catalog;
    const dt_member *m = &cat->members[member];
    dt_span bytes;
    const dt_kind *kind;
    bool known = is_known(dt_catalog_str(cat, cat->exts[m->ext]), &kind);
    w->counts.n_members++;
    w->counts.n_bytes += m->size;
    bool is_blank = m->size == 0 && !known; // a picture must have bytes, a caption need not
    dt_status st = is_blank ? DT_OK : dt_reader_read(c->reader, record, member, true, &w->bytes, &bytes);
    if (st != DT_OK) {
        if (is_of_data(c, st)) add_bad(c, record, member, true);
        return;
    }
    known = known && (c->o->decode || !m->has_hash);
    if (known && check_structure(w, kind, bytes) != DT_OK) add_bad(c, record, member, false);
    w->counts.n_hashed += m->has_hash;
    w->counts.n_decoded += known;
    w->counts.n_read += !m->has_hash && !known;
}

// ---- all of them -----------------------------------------------------------------------------------
static void verify_show(checker *c, int index) {
    if (index != 0) return;
    const uint64_t n = c->next;
    c->progress.n_items = n < c->progress.total_items ? n : c->progress.total_items;
    c->progress.n_bytes = c->n_done;
    dt_progress_tick(&c->progress);
}

static void check_run(checker *c, worker *w, uint32_t first) {
    const dt_catalog *cat = c->reader->catalog;
    uint64_t n_bytes = 0;
    for (uint32_t r = first; r - first < RUN && r < cat->n_records && !is_ended(c); r++) {
        const dt_record *rec = &cat->records[r];
        for (uint32_t i = 0; i < rec->n_members; i++) {
            verify_check_member(c, w, r, rec->first_member + i);
            n_bytes += cat->members[rec->first_member + i].size;
        }
    }
    c->n_done += n_bytes;
}

// After the records, when the shard's pages are likely still in memory.
static void check_shards(checker *c, worker *w, int index) {
    const dt_catalog *cat = c->reader->catalog;
    for (;;) {
        uint32_t s = c->next_shard++;
        if (s >= cat->n_shards || is_ended(c)) return;
        if (!c->hashes[s].hex) continue;
        dt_status st = shard_hash_check(c->reader, s, &c->hashes[s], &w->bytes);
        if (st == DT_E_STORAGE) dt_fail_context(st, "%s", cat->shards[s].path);
        if (st != DT_OK && is_of_data(c, st)) add_bad_shard(c, s);
        w->counts.n_shards++;
        c->n_done += cat->shards[s].n_bytes;
        verify_show(c, index);
    }
}

static void verify_work(void *arg, int index) {
    checker *c = arg;
    worker w = {.decoder = dt_decoder_create(),
                .audio = dt_audio_file_create(),
                .samples = dt_xcalloc(AUDIO_BLOCK, sizeof(float))};
    for (;;) {
        uint64_t first = atomic_fetch_add(&c->next, RUN);
        if (first >= c->reader->catalog->n_records || is_ended(c)) break;
        check_run(c, &w, (uint32_t)first);
        verify_show(c, index);
    }
    check_shards(c, &w, index);
    pthread_mutex_lock(&c->lock);
    c->result->n_members += w.counts.n_members;
    c->result->n_bytes += w.counts.n_bytes;
    c->result->n_hashed += w.counts.n_hashed;
    c->result->n_decoded += w.counts.n_decoded;
    c->result->n_read += w.counts.n_read;
    c->result->n_shards += w.counts.n_shards;
    pthread_mutex_unlock(&c->lock);
    dt_decoder_destroy(w.decoder);
    dt_audio_file_destroy(w.audio);
    dt_buffer_fini(&w.bytes);
    free(w.samples);
}

static int compare_bad(const void *pa, const void *pb) {
    const dt_bad_member *a = pa, *b = pb;
    return a->member < b->member ? -1 : a->member > b->member; // ascending with the record
}

static int compare_bad_shards(const void *pa, const void *pb) {
    const dt_bad_shard *a = pa, *b = pb;
    return a->shard < b->shard ? -1 : a->shard > b->shard;
}

dt_status dt_reader_verify(dt_reader *s, const dt_verify_opts *o, dt_verify_result *out) {
    *out = (dt_verify_result){0};
    checker c = {.reader = s, .o = o, .result = out};
    dt_team *team = NULL;
    c.progress =
        (dt_progress){.on = o->progress, .what = "verify", .items = "records", .total_items = s->catalog->n_records};
    for (uint32_t m = 0; m < s->catalog->n_members; m++) c.progress.total_bytes += s->catalog->members[m].size;
    dt_progress_begin(&c.progress);
    DT_TRY(dt_team_create(&team, o->n_threads, "dt-verify"));
    shard_hash *hashes = shard_hashes_find(s->catalog);
    c.hashes = hashes;
    for (uint32_t i = 0; i < s->catalog->n_shards; i++)
        if (hashes[i].hex) c.progress.total_bytes += s->catalog->shards[i].n_bytes;
    pthread_mutex_init(&c.lock, NULL);
    dt_team_run(team, verify_work, &c);
    dt_team_destroy(team);
    verify_show(&c, 0);
    dt_progress_end(&c.progress);
    pthread_mutex_destroy(&c.lock);
    for (uint32_t i = 0; i < s->catalog->n_shards; i++) {
        free(hashes[i].name);
        free(hashes[i].hex);
    }
    free(hashes);
    if (out->n_bad_shards > 1) qsort(out->bad_shards, out->n_bad_shards, sizeof *out->bad_shards, compare_bad_shards);
    if (out->n_bad > 1) qsort(out->bad, out->n_bad, sizeof *out->bad, compare_bad);
    for (size_t i = 0; i < out->n_bad; i++)
        out->n_bad_records += i == 0 || out->bad[i].record != out->bad[i - 1].record;
    dt_error_clear();
    if (c.failed == DT_OK) return DT_OK;
    dt_status st = dt_fail(c.failed, "%s", c.why);
    free(c.why);
    dt_verify_result_fini(out);
    return st;
}

void dt_verify_result_fini(dt_verify_result *r) {
    for (size_t i = 0; i < r->n_bad; i++) free(r->bad[i].reason);
    free(r->bad);
    for (size_t i = 0; i < r->n_bad_shards; i++) free(r->bad_shards[i].reason);
    free(r->bad_shards);
    *r = (dt_verify_result){0};
}
