// data_verify.c: dtrain data verify SET…: reads all of it and lists what is bad.

#include "launch/launch.h"

#include "data/verify.h"

#include "base/json.h"
#include "base/log.h"
#include "base/os.h"
#include "base/text.h"
#include "base/thread.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS, DECODE, JSON };
static const dt_cli_option options[] = {
    [THREADS] = {"--threads", "N", "reading threads (default: usable cores)"},
    [DECODE] = {"--decode", NULL, "decode images, audio and JSON even where the hash is right"},
    [JSON] = {"--json", NULL, "print bad records as JSON objects, one per line"},
    {NULL}};

// What is listed: a member, or (record NULL) a shard as a whole.
typedef struct bad_line {
    const char *file, *record, *member;
    uint64_t offset;
    const char *reason;
} bad_line;

static void data_verify_print_text(const bad_line *b) {
    dt_text_print(stdout, b->file);
    putchar('\t');
    dt_text_print(stdout, b->record ? b->record : "");
    putchar('\t');
    dt_text_print(stdout, b->record ? b->member : "");
    printf("\t%" PRIu64 "\t", b->offset);
    dt_text_print(stdout, b->reason);
    putchar('\n');
}

static void data_verify_print_json(const bad_line *b) {
    dt_json j;
    dt_json_init(&j);
    dt_json_begin_object(&j, NULL);
    dt_json_string(&j, "file", b->file);
    if (b->record) dt_json_string(&j, "record", b->record);
    if (b->record) dt_json_string(&j, "member", b->member);
    if (b->record) dt_json_int(&j, "offset", (int64_t)b->offset);
    dt_json_string(&j, "reason", b->reason);
    dt_json_end_object(&j);
    printf("%s\n", j.data);
    dt_json_fini(&j);
}

static void print_bad(const dt_cli_words *w, const dt_catalog *c, const dt_verify_result *r) {
    void (*print)(const bad_line *) = w->options[JSON] ? data_verify_print_json : data_verify_print_text;
    for (size_t i = 0; i < r->n_bad; i++) {
        const dt_record *rec = &c->records[r->bad[i].record];
        const dt_member *m = &c->members[r->bad[i].member];
        print(&(bad_line){c->shards[rec->shard].path, dt_catalog_str(c, rec->key), dt_catalog_str(c, c->exts[m->ext]),
                          m->offset, r->bad[i].reason});
    }
    for (size_t i = 0; i < r->n_bad_shards; i++)
        print(&(bad_line){.file = c->shards[r->bad_shards[i].shard].path, .reason = r->bad_shards[i].reason});
}

static dt_status data_verify_report(const dt_cli_words *w, const dt_reader *s, const dt_verify_result *r,
                                    double took_s) {
    const dt_catalog *c = s->catalog;
    print_bad(w, c, r);
    char size[DT_SIZE_CHARS], each[DT_SIZE_CHARS];
    dt_info("%u records, %" PRIu64 " members, %s: %" PRIu64 " checked by hash, %" PRIu64 " decoded, %" PRIu64
            " only read, in %.1f s (%s/s)",
            c->n_records, r->n_members, dt_size_text(size, (double)r->n_bytes), r->n_hashed, r->n_decoded, r->n_read,
            took_s, dt_size_text(each, (double)r->n_bytes / took_s));
    if (r->n_shards)
        dt_info("%" PRIu64 " of %u shards compared with the hash in their index.json", r->n_shards, c->n_shards);
    if (r->n_bad_shards)
        return dt_fail(DT_E_DATA, "%zu of %u shards: different from their index.json; %" PRIu64 " of %u records: bad",
                       r->n_bad_shards, c->n_shards, r->n_bad_records, c->n_records);
    if (r->n_bad_records == 0) return DT_OK;
    return dt_fail(DT_E_DATA, "%" PRIu64 " of %u records: bad", r->n_bad_records, c->n_records);
}

// A file that is cut or damaged is an error, but what is before that place is still looked at.
static dt_status open_what_can_be(dt_reader **s, const dt_cli_words *w, char **broken) {
    dt_reader_options lenient = {.lenient = true};
    dt_status st = dt_reader_open(s, w->words, (size_t)w->n_words);
    if (st != DT_E_DATA) return st;
    *broken = strdup(dt_error_message());
    dt_reader_item *items = calloc((size_t)w->n_words, sizeof *items);
    for (int i = 0; i < w->n_words; i++) items[i] = (dt_reader_item){w->words[i], NULL, 1};
    st = dt_reader_open_items(s, items, (size_t)w->n_words, &lenient);
    free(items);
    if (st != DT_OK) free(*broken);
    return st;
}

static dt_status data_verify_run(const dt_cli_words *w) {
    dt_verify_opts o = {.decode = w->options[DECODE] != NULL, .progress = true};
    dt_verify_result r;
    dt_reader *s;
    DT_TRY(dt_cli_expect_words(w, "data verify", 1, 1000000, "SET…"));
    DT_TRY(dt_cli_option_int(w, THREADS, dt_usable_cores(), &o.n_threads));
    char *broken = NULL;
    DT_TRY(open_what_can_be(&s, w, &broken));
    const double begin_s = dt_clock_s();
    dt_status st = dt_reader_verify(s, &o, &r);
    if (st == DT_OK) {
        st = data_verify_report(w, s, &r, dt_clock_s() - begin_s);
        dt_verify_result_fini(&r);
    }
    if (broken) st = dt_fail(DT_E_DATA, "%s", broken);
    free(broken);
    dt_reader_close(s);
    return st;
}

const dt_cli_command dt_cli_data_verify = {
    .options = options,
    .text = "Reads every record and compares its bytes with the hash stored by dtrain pack. Sets without hashes are "
            "decoded completely: images, audio and JSON. Bad members are listed as file, record, member, offset, "
            "reason, separated by tabs, and the exit code is 3. MDS shards are also compared with the xxhash in their "
            "index.json.\n\n"
            "  dtrain data verify datasets/biometric.lmdb\n"
            "  dtrain data verify 'photos-{000000..000003}.tar' --decode > bad.tsv\n",
    .run = data_verify_run};
