// data_order.c: dtrain data order CONFIG|SET: which sample lies where in a step, as training takes it; or which samples
// a part of the split has.
//
// The verb walks rank by rank as a job of --world ranks would, puts what each takes into its place of the step,
// and prints places: so that no rank takes another's place, and that the order is the same for any
// number of ranks, is seen and not assumed.

#include "launch/launch.h"

#include "base/core.h"
#include "base/hash.h"
#include "base/text.h"
#include "comm/bucket.h"
#include "config/words.h"
#include "data/data.h"
#include "data/source/source.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { SPLIT, WORLD, EPOCH, FROM, STEPS, BATCH, MICRO, HASH };
static const dt_cli_option options[] = {
    [SPLIT] = {"--split", "train|val|test",
               "with a config: list the samples of this split after its counts per class and stratum"},
    [WORLD] = {"--world", "W", "world size: number of ranks (default 1)"},
    [EPOCH] = {"--epoch", "E", "epoch, from 1 (default 1)"},
    [FROM] = {"--from", "STEP", "first step of the epoch to print, from 1 (default 1)"},
    [STEPS] = {"--steps", "N", "number of steps (default: to the end of the epoch)"},
    [BATCH] = {"--batch", "B", "with a SET: global batch size (default 32)"},
    [MICRO] = {"--micro", "M", "with a SET: micro-batch size (default 1)"},
    [HASH] = {"--hash", NULL, "print only the order's XXH3 hash"},
    {NULL}};

typedef struct order {
    int world, epoch, from, steps, batch, micro;
    bool only_hash;
    // a config's data set, or a set with its records as samples
    dt_dataset *data;
    dt_reader *reader;
    dt_sampler sampler;
    uint64_t n;
    // of a step, by place
    uint32_t *sample;
    int *rank;
} order;

static uint32_t data_order_sample_at(const order *o, uint64_t i) {
    uint64_t epoch = (uint64_t)o->epoch - 1;
    return o->data ? dt_data_sample_at(o->data, epoch, i) : (uint32_t)dt_sampler_index(&o->sampler, epoch, i);
}

// What every rank takes of a step. Each place exactly once, or it is a bug.
static dt_status data_order_take_step(order *o, uint64_t step) {
    int n_micro = o->batch / o->micro;
    for (int i = 0; i < o->batch; i++) o->rank[i] = -1;
    for (int rank = 0; rank < o->world; rank++) {
        int end = dt_micro_begin(rank + 1, o->world, n_micro);
        for (int micro = dt_micro_begin(rank, o->world, n_micro); micro < end; micro++)
            for (int j = 0; j < o->micro; j++) {
                int place = micro * o->micro + j;
                if (o->rank[place] >= 0) return dt_fail(DT_E_INTERNAL, "place %d taken twice", place);
                o->rank[place] = rank;
                o->sample[place] = data_order_sample_at(o, step * (uint64_t)o->batch + (uint64_t)place);
            }
    }
    for (int i = 0; i < o->batch; i++)
        if (o->rank[i] < 0) return dt_fail(DT_E_INTERNAL, "place %d taken by no rank", i);
    return DT_OK;
}

static void print_step(const order *o, uint64_t step) {
    for (int i = 0; i < o->batch; i++) {
        const char *key[DT_MAX_WIDTH];
        int n = 1;
        if (o->data)
            n = dt_data_records_of(o->data, o->sample[i], key);
        else
            key[0] = dt_catalog_str(o->reader->catalog, o->reader->catalog->records[o->sample[i]].key);
        printf("%" PRIu64 "\t%d\t%d\t%d\t%u", step + 1, o->rank[i], i / o->micro, i, o->sample[i]);
        for (int k = 0; k < n; k++) {
            putchar('\t');
            dt_text_print(stdout, key[k]);
        }
        putchar('\n');
    }
}

static dt_status data_order_walk(order *o) {
    uint64_t n_steps = o->n / (uint64_t)o->batch, first = (uint64_t)o->from - 1;
    if (o->world > o->batch / o->micro)
        return dt_fail(DT_E_USAGE, "--world %d: a step has %d micro-batches, so at most that many ranks", o->world,
                       o->batch / o->micro);
    if (n_steps == 0 || first >= n_steps)
        return dt_fail(DT_E_USAGE, "an epoch of %" PRIu64 " samples has %" PRIu64 " steps of %d", o->n, n_steps,
                       o->batch);
    uint64_t end = first + (uint64_t)o->steps < n_steps ? first + (uint64_t)o->steps : n_steps;
    o->sample = dt_xcalloc((size_t)o->batch, sizeof *o->sample);
    o->rank = dt_xcalloc((size_t)o->batch, sizeof *o->rank);
    dt_hash_stream *h = dt_hash_stream_create();
    dt_status st = DT_OK;
    if (!o->only_hash) printf("step\trank\tmicro_batch\tplace\tsample\trecord\n");
    for (uint64_t step = first; step < end && st == DT_OK; step++) {
        st = data_order_take_step(o, step);
        dt_hash_stream_update(h, o->sample, (size_t)o->batch * sizeof *o->sample);
        if (st == DT_OK && !o->only_hash) print_step(o, step);
    }
    char hex[17];
    dt_hash_hex(dt_hash_stream_digest(h), hex);
    if (st == DT_OK && o->only_hash)
        printf("%s  epoch %d, steps %" PRIu64 "-%" PRIu64 ", %d samples per step\n", hex, o->epoch, first + 1, end,
               o->batch);
    dt_hash_stream_destroy(h);
    free(o->sample);
    free(o->rank);
    return st;
}

// ---- a part of the split -------------------------------------------------------------------------------
enum { MAX_SHOWN = DT_MAX_FIELDS + 1 };
typedef struct shown {
    int column[MAX_SHOWN], record[MAX_SHOWN]; // of the catalog; which record of a sample has it
    const char *name[MAX_SHOWN];
    int n;
} shown;

static void data_order_show(shown *s, int column, int record, const char *name) {
    for (int i = 0; i < s->n; i++)
        if (s->column[i] == column) return;
    s->column[s->n] = column;
    s->record[s->n] = record;
    s->name[s->n++] = name;
}

// Classes, and the column that the split is stratified by.
static dt_status find_shown(shown *s, const dt_data *d, const dt_config *c) {
    static const char STRATIFY[] = "data.split.stratify";
    int column;
    for (int i = 0; i < d->fields.n; i++)
        if (d->fields.f[i].kind == DT_FIELD_class)
            data_order_show(s, d->fields.f[i].column, d->fields.f[i].part, d->fields.f[i].name);
    if (!c->data.split.stratify) return DT_OK;
    DT_TRY(dt_data_find_column(d, c, STRATIFY, c->data.split.stratify, &column));
    data_order_show(s, column, 0, c->data.split.stratify);
    return DT_OK;
}

static uint32_t cell_of(const shown *s, int k, const dt_data *d, uint32_t sample) {
    uint32_t r = d->view.record[(size_t)sample * (size_t)d->view.width + (size_t)s->record[k]];
    return dt_catalog_cell(d->reader->catalog, s->column[k], r);
}

static void data_order_print_counts(const shown *s, int k, const dt_data *d, dt_split part) {
    const dt_catalog *c = d->reader->catalog;
    const dt_column *col = &c->table.columns[s->column[k]];
    uint32_t *n = dt_xcalloc((size_t)col->n_values + 1, sizeof *n);
    for (uint32_t i = 0; i < d->splits.n[part]; i++) {
        uint32_t v = cell_of(s, k, d, d->splits.sample[part][i]);
        n[v == DT_NO_VALUE ? col->n_values : v]++;
    }
    for (uint32_t v = 0; v <= col->n_values; v++) {
        if (v == col->n_values && n[v] == 0) continue;
        dt_text_printf(stdout, "# %s\t", s->name[k]);
        dt_text_print(stdout, v < col->n_values ? dt_catalog_str(c, col->values[v]) : "(no value)");
        printf("\t%u\n", n[v]);
    }
    free(n);
}

static dt_status list_split(const dt_dataset *base, const dt_config *c, int part) {
    const dt_data *d = base->self;
    const dt_catalog *cat = d->reader->catalog;
    shown s = {0};
    DT_TRY(find_shown(&s, d, c));
    printf("# %s: %u of %u samples\n", dt_split_name(part), d->splits.n[part], d->view.n);
    for (int k = 0; k < s.n; k++) data_order_print_counts(&s, k, d, (dt_split)part);
    printf("sample\trecord%s", d->view.width > 1 ? "\trecord2" : "");
    for (int k = 0; k < s.n; k++) dt_text_printf(stdout, "\t%s", s.name[k]);
    putchar('\n');
    for (uint32_t i = 0; i < d->splits.n[part]; i++) {
        const uint32_t sample = d->splits.sample[part][i];
        const char *key[DT_MAX_WIDTH];
        int n = dt_data_records_of(base, sample, key);
        printf("%u", sample);
        for (int k = 0; k < n; k++) {
            putchar('\t');
            dt_text_print(stdout, key[k]);
        }
        for (int k = 0; k < s.n; k++) {
            uint32_t v = cell_of(&s, k, d, sample);
            putchar('\t');
            if (v != DT_NO_VALUE) dt_text_print(stdout, dt_catalog_str(cat, cat->table.columns[s.column[k]].values[v]));
        }
        putchar('\n');
    }
    return DT_OK;
}

// ---- the verb ------------------------------------------------------------------------------------------
static dt_status walk_config(order *o, const dt_cli_words *w) {
    dt_config *c = NULL;
    DT_TRY(dt_cli_load_config(&c, "data order", w));
    o->batch = (int)c->train.global_batch;
    o->micro = dt_cli_micro_batch(c);
    dt_status st = dt_data_open(&o->data, c, NULL, 1, NULL);
    if (st == DT_OK && o->batch % o->micro != 0)
        st = dt_config_fail(c, "train.global_batch", "%d is not a multiple of train.micro_batch (%d)", o->batch,
                            o->micro);
    int part = 0;
    if (st == DT_OK) st = dt_cli_option_word(w, SPLIT, DT_SPLIT_TRAIN, &part);
    if (st == DT_OK && w->options[SPLIT]) {
        st = list_split(o->data, c, part);
    } else if (st == DT_OK) {
        o->n = (uint64_t)o->data->n_samples(o->data, DT_SPLIT_TRAIN);
        st = data_order_walk(o);
    }
    if (o->data) o->data->close(o->data);
    dt_config_destroy(c);
    return st;
}

static dt_status walk_set(order *o, const dt_cli_words *w) {
    if (o->batch % o->micro != 0)
        return dt_fail(DT_E_USAGE, "--batch %d is not a multiple of --micro %d", o->batch, o->micro);
    DT_TRY(dt_reader_open(&o->reader, w->words, (size_t)w->n_words));
    o->n = o->reader->catalog->n_records;
    o->sampler = (dt_sampler){.shuffle = DT_SHUFFLE_global, .seed = 42, .n = o->n};
    dt_status st = data_order_walk(o);
    dt_reader_close(o->reader);
    return st;
}

static dt_status data_order_run(const dt_cli_words *w) {
    order o = {.only_hash = w->options[HASH] != NULL};
    DT_TRY(dt_cli_expect_words(w, "data order", 1, 1000000, "CONFIG.yaml or SET"));
    DT_TRY(dt_cli_option_int(w, WORLD, 1, &o.world));
    DT_TRY(dt_cli_option_int(w, EPOCH, 1, &o.epoch));
    DT_TRY(dt_cli_option_int(w, FROM, 1, &o.from));
    DT_TRY(dt_cli_option_int(w, STEPS, 1000000000, &o.steps));
    DT_TRY(dt_cli_option_int(w, BATCH, 32, &o.batch));
    DT_TRY(dt_cli_option_int(w, MICRO, 1, &o.micro));
    if (w->options[SPLIT] || dt_text_ends(w->words[0], ".yaml|.yml")) return walk_config(&o, w);
    return walk_set(&o, w);
}

const dt_cli_command dt_cli_data_order = {
    .options = options,
    .text = "Prints which samples each training step takes on which rank: step, rank, micro-batch, position, sample, "
            "records. The order is a function of seed, epoch and position: except for the rank, all columns and the "
            "value of --hash are the same for every --world. --split lists the samples of a split: sample, records, "
            "classes. The same list of all splits is split.csv in a run's directory.\n\n"
            "  dtrain data order configs/fusion.yaml --world 7 --steps 1\n"
            "  dtrain data order configs/fusion.yaml data.shuffle=block --world 8 --hash\n"
            "  dtrain data order configs/fusion.yaml --split test\n"
            "  dtrain data order datasets/biometric.lmdb --world 3 --batch 30 --hash\n",
    .run = data_order_run};
