// dataset.c: opens a dataset from the config: files, fields, view, splits, order.
//
// Every rank opens it by itself and gets the same lists, as they are functions of the catalog and the config.
// Opening reads the catalog and no data: a few milliseconds for thousands of records.
#include "data.h"
#include "data/catalog/catalog.h"
#include "data/catalog/select.h"
#include "data/file/file.h"
#include "data/loader/fields.h"

#include "base/core.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/json.h"
#include "base/os.h"
#include "base/text.h"
#include "base/thread.h"
#include "batch/targets.h"
#include "config/words.h"
#include "store/blob.h"
#include "store/s3.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool dt_data_item(const dt_config *c, size_t i, dt_reader_item *out) {
    const dt_cnode *n = c->data.path;
    const bool list = n && dt_cnode_kind(n) == DT_C_LIST;
    *out = (dt_reader_item){.weight = 0};
    if (i >= (list ? dt_cnode_size(n) : n != NULL)) return false;
    if (list) n = dt_cnode_item(n, i);
    const bool map = dt_cnode_kind(n) == DT_C_MAP;
    const dt_cnode *weight = map ? dt_cnode_get(n, "weight") : NULL;
    const dt_cnode *name = map ? dt_cnode_get(n, "name") : NULL;
    out->path = dt_cnode_str(map ? dt_cnode_get(n, "path") : n);
    if (weight) dt_cnode_real(weight, &out->weight);
    if (name) out->name = dt_cnode_str(name);
    return true;
}

static dt_status open_set(dt_data *d, const dt_config *c) {
    if (!c->data.path) return dt_config_fail(c, "data", "data.path is missing");
    dt_reader_options o = {.cache_dir = c->data.cache_dir,
                           .cache_bytes = dt_data_disk_bytes(c),
                           .write_index = c->data.write_index,
                           .lenient = d->skip};
    dt_s3_configure(&(dt_s3_options){c->data.s3.endpoint, c->data.s3.region, c->data.s3.anonymous});
    size_t n = 0;
    for (dt_reader_item item; dt_data_item(c, n, &item);) n++;
    dt_reader_item *items = dt_xcalloc(n + 1, sizeof *items);
    for (size_t i = 0; i < n; i++) dt_data_item(c, i, &items[i]);
    dt_status st = dt_reader_open_items(&d->reader, items, n, &o);
    free(items);
    return st;
}

static bool dataset_is_there(const char *path) {
    dt_names files = {0};
    bool any = dt_blob_is_url(path); // which opening finds out
    if (!any && dt_expand_files(path, &files) != DT_OK) dt_error_clear();
    for (size_t i = 0; i < files.n && !any; i++) any = dt_io_exists(files.name[i]);
    dt_names_fini(&files);
    return any;
}

bool dt_data_exists(const dt_config *c) {
    dt_reader_item item;
    bool any = false;
    for (size_t i = 0; dt_data_item(c, i, &item) && !any; i++) any = item.path && dataset_is_there(item.path);
    return any;
}

dt_status dt_data_select(const dt_data *d, const dt_config *c, const char *key, const char *where, bool *keep,
                         uint32_t *n) {
    const dt_catalog *catalog = d->reader->catalog;
    dt_status st = dt_catalog_select(catalog, where, keep, n);
    if (st == DT_E_USAGE) {
        const dt_error_kept why = dt_error_keep();
        return dt_config_fail(c, key, "%s: %s", key, why.message);
    }
    if (st == DT_OK && *n == 0)
        return dt_config_fail(c, key, "%s: none of the %u records fits %s", key, catalog->n_records, where);
    return st;
}

// data.columns, in their order, so that one may be made of those before. A run's own need not fit another set; a field
// that wants such a column says so.
static dt_status add_columns(dt_data *d, const dt_config *c, bool of_other_set) {
    const dt_cnode *all = c->data.columns;
    for (size_t i = 0; all && i < dt_cnode_size(all); i++) {
        const dt_cnode *item = dt_cnode_item(all, i);
        const char *name = dt_cnode_key(all, i);
        dt_status st = dt_cnode_kind(item) == DT_C_SCALAR
                           ? dt_catalog_derive(d->reader->catalog, name, dt_cnode_str(item))
                           : dt_fail(DT_E_USAGE, "expected an expression such as \"substr(key, 1, 1)\"");
        if (st == DT_E_USAGE && of_other_set) {
            dt_error_clear();
        } else if (st != DT_OK) {
            const dt_error_kept why = dt_error_keep();
            return dt_fail(st, "%s: data.columns.%s: %s", dt_cnode_where(item), name, why.message);
        }
    }
    return DT_OK;
}

// data.where: the records that it leaves out do not exist for all that follows. A run's own need not fit another set.
static dt_status apply_where(dt_data *d, const dt_config *c, bool of_other_set) {
    dt_catalog *catalog = d->reader->catalog;
    uint32_t n = 0, n_kept = 0;
    d->n_stored = catalog->n_records;
    if (!c->data.where) return DT_OK;
    bool *keep = dt_xcalloc(catalog->n_records + 1, sizeof *keep);
    dt_status st = dt_data_select(d, c, "data.where", c->data.where, keep, &n);
    if (st == DT_E_USAGE && of_other_set) {
        const dt_error_kept why = dt_error_keep();
        st = dt_fail(st, "%s (data.where=null takes all records)", why.message);
    }
    for (uint32_t r = 0; r < d->n_stored && d->listed && st == DT_OK; r++)
        if (keep[r]) d->listed[n_kept++] = d->listed[r];
    if (st == DT_OK) dt_catalog_keep(catalog, keep);
    free(keep);
    return st;
}

// The name of a class field also stands for its column.
static int dataset_column_of(const dt_data *d, const char *name) {
    int column = dt_catalog_find_column(d->reader->catalog, name);
    int field = dt_fields_find(&d->fields, name);
    const bool has = column >= 0 && d->reader->catalog->table.columns[column].n_values > 0;
    return !has && field >= 0 && d->fields.f[field].column >= 0 ? d->fields.f[field].column : column;
}

// `numbers`: number columns would do as well.
static dt_status no_column(const dt_data *d, const dt_config *c, const char *key, const char *name, bool numbers) {
    const dt_catalog *cat = d->reader->catalog;
    char names[512] = "";
    if (name && !numbers && dt_catalog_find_real(cat, name) >= 0)
        return dt_config_fail(c, key,
                              "%s: column '%s' holds numbers, which name no groups; data.columns "
                              "makes groups of them, such as {%s_group: floor(%s)}",
                              key, name, name, name);
    for (uint32_t i = 0; i < cat->table.n_columns; i++)
        if (numbers || cat->table.columns[i].cell)
            dt_text_list(names, sizeof names, dt_columns_name(&cat->table, (int)i));
    return dt_config_fail(c, key, "%s: the data set has no %scolumn '%s'; it has: %s", key, numbers ? "" : "metadata ",
                          name ? name : "", names[0] ? names : "none");
}

dt_status dt_data_find_column(const dt_data *d, const dt_config *c, const char *key, const char *name, int *out) {
    *out = name ? dataset_column_of(d, name) : -1;
    if (*out < 0) return no_column(d, c, key, name, false);
    if (d->reader->catalog->table.columns[*out].n_values > 0) return DT_OK;
    return dt_config_fail(c, key, "%s: no record%s has a value of column %s", key,
                          c->data.where ? " that data.where keeps" : "", name);
}

// ---- view ----------------------------------------------------------------------------------------
static bool *records_with(const dt_data *d, int part) {
    const dt_catalog *c = d->reader->catalog;
    bool *has = dt_xcalloc(c->n_records + 1, sizeof *has);
    for (uint32_t r = 0; r < c->n_records; r++) {
        has[r] = true;
        for (int i = 0; i < d->fields.n && has[r]; i++)
            if (d->fields.f[i].part == part) has[r] = dt_field_present(&d->fields.f[i], c, r);
    }
    return has;
}

static dt_status make_pairs(dt_data *d, const dt_config *c) {
    const dt_cnode *names = c->data.view.pairs.fields;
    if (!names || dt_cnode_kind(names) != DT_C_LIST || dt_cnode_size(names) != 2)
        return dt_config_fail(c, "data.view.pairs.fields",
                              "data.view.pairs: expected {fields: [a, b], within: column}");
    int field[2], column;
    char known[512] = "";
    for (int i = 0; i < d->fields.n; i++) dt_text_list(known, sizeof known, d->fields.f[i].name);
    for (int k = 0; k < 2; k++) {
        const dt_cnode *name = dt_cnode_item(names, (size_t)k);
        field[k] = dt_fields_find(&d->fields, dt_cnode_str(name));
        if (field[k] < 0)
            return dt_config_fail_name(c, "data.view.pairs.fields", dt_cnode_str(name), "name of data.fields", known);
    }
    DT_TRY(dt_data_find_column(d, c, "data.view.pairs.within", c->data.view.pairs.within, &column));
    d->fields.f[field[1]].part = 1;
    bool *a = records_with(d, 0), *b = records_with(d, 1);
    dt_status st = dt_view_make_pairs(&d->view, d->reader->catalog, a, b, column);
    free(a);
    free(b);
    return st;
}

static dt_status dataset_make_view(dt_data *d, const dt_config *c) {
    const bool pairs = c->data.view.pairs.fields || c->data.view.pairs.within;
    if (pairs) {
        DT_TRY(make_pairs(d, c));
    } else {
        bool *keep = records_with(d, 0);
        dt_status st = dt_view_make_records(&d->view, d->reader->catalog, keep);
        free(keep);
        DT_TRY(st);
    }
    if (d->view.n > 0) return DT_OK;
    const dt_catalog *cat = d->reader->catalog;
    char missing[256] = "";
    for (int i = 0; i < d->fields.n; i++) {
        uint32_t r = 0;
        while (r < cat->n_records && !dt_field_present(&d->fields.f[i], cat, r)) r++;
        if (r == cat->n_records) dt_text_list(missing, sizeof missing, d->fields.f[i].name);
    }
    return dt_config_fail(c, "data.fields", "no record of %s has all fields%s%s%s", cat->shards[0].path,
                          pairs ? " of a pair" : "", *missing ? "; none has a value of " : "", missing);
}

// ---- order ---------------------------------------------------------------------------------------
// data.m_per_class: runs of that many samples of one value, in which a micro-batch begins and ends with one.
static dt_status make_runs(dt_data *d, const dt_config *c) {
    static const char key[] = "data.m_per_class";
    int column;
    const int64_t m = c->data.m_per_class.value;
    if (c->data.weight || d->reader->is_weighted || c->data.shuffle != DT_SHUFFLE_global)
        return dt_config_fail(c, key,
                              "%s gives every class equally many samples in random order: leave "
                              "out data.weight, weights in data.path, and data.shuffle",
                              key);
    if (c->train.micro_batch.is_auto || dt_answer(c->train.micro_batch) % m != 0)
        return dt_config_fail(c, key, "%s needs a train.micro_batch that is a multiple of %lld%s", key, (long long)m,
                              c->train.micro_batch.is_auto ? ", not auto" : "");
    DT_TRY(dt_data_find_column(d, c, "data.balance", c->data.balance, &column));
    const dt_status st =
        dt_sampler_values_make(&d->values, d->reader->catalog, &d->view, d->splits.sample[DT_SPLIT_TRAIN],
                               d->splits.n[DT_SPLIT_TRAIN], column, (uint32_t)m);
    d->sampler.values = d->values;
    return st;
}

static dt_status dataset_make_order(dt_data *d, const dt_config *c) {
    const dt_catalog *catalog = d->reader->catalog;
    dt_weight_spec s = {.balance = -1, .column = -1};
    bool balance = c->data.balance, weight = c->data.weight;
    if (balance) DT_TRY(dt_data_find_column(d, c, "data.balance", c->data.balance, &s.balance));
    if (weight) s.column = dt_catalog_find_real(catalog, c->data.weight);
    if (weight && s.column < 0) s.column = dataset_column_of(d, c->data.weight);
    if (weight && s.column < 0) return no_column(d, c, "data.weight", c->data.weight, true);
    const uint32_t *samples = d->splits.sample[DT_SPLIT_TRAIN];
    uint32_t n = d->splits.n[DT_SPLIT_TRAIN], *set_of = NULL;
    if (d->reader->is_weighted) {
        set_of = dt_xcalloc(catalog->n_shards + 1, sizeof *set_of);
        for (uint32_t i = 0; i < catalog->n_shards; i++) set_of[i] = catalog->shards[i].set;
        s.set_weight = d->reader->weight;
        s.set_of_shard = set_of;
        s.n_sets = d->reader->n_items;
    }
    dt_status st = dt_weights_make(&d->weights, catalog, &d->view, samples, n, &s);
    free(set_of);
    if (st == DT_E_DATA) { // the set may be what it should be; the column that was chosen does not fit
        char *why = dt_xstrdup(dt_error_message());
        st = dt_config_fail(c, weight ? "data.weight" : "data.balance", "%s", why);
        free(why);
    }
    DT_TRY(st);
    d->sampler.seed = d->seed;
    d->sampler.n = n;
    d->sampler.cumulative = d->weights;
    return n && c->data.m_per_class.has ? make_runs(d, c) : DT_OK;
}

uint32_t dt_data_sample_at(const dt_dataset *base, uint64_t epoch, uint64_t i) {
    const dt_data *d = base->self;
    return d->splits.sample[DT_SPLIT_TRAIN][dt_sampler_index(&d->sampler, epoch, i)];
}

int dt_data_records_of(const dt_dataset *base, uint32_t sample, const char *key[DT_MAX_WIDTH]) {
    const dt_data *d = base->self;
    const dt_catalog *c = d->reader->catalog;
    for (int k = 0; k < d->view.width; k++) {
        uint32_t r = d->view.record[(size_t)sample * (size_t)d->view.width + (size_t)k];
        key[k] = dt_catalog_str(c, c->records[r].key);
    }
    return d->view.width;
}

void dt_data_set_processes(dt_dataset *base, int n) {
    dt_data *d = base->self;
    d->cache.n_processes = n;
}

dt_status dt_data_describe_fields(const dt_config *c, const char *classes, dt_field_info *out, int *n) {
    dt_fields f;
    DT_TRY(dt_fields_resolve(&f, c, NULL, classes, NULL));
    *n = f.n;
    memcpy(out, f.info, (size_t)f.n * sizeof *out);
    dt_fields_fini(&f);
    return DT_OK;
}

// ---- normalize: auto -------------------------------------------------------------------------------
// The numbers of a member of a record. DT_E_DATA is the record's fault.
static dt_status dataset_read_member(dt_data *d, int field, uint32_t record, dt_buffer bytes[2], double *x) {
    const int64_t n = dt_shape_elements(&d->fields.info[field].sample_shape),
                  m = dt_field_member(&d->fields.f[field], d->reader->catalog, record);
    dt_span span;
    dt_status st = dt_reader_read(d->reader, record, (uint32_t)m, d->verify, &bytes[0], &span);
    if (st == DT_OK) {
        st = dt_decode_numbers(span, n, x, &bytes[1]);
        for (int64_t i = 0; i < n && st == DT_OK; i++)
            if (!isfinite(x[i])) st = dt_sample_not_finite(i, x[i]);
        if (st != DT_OK) st = dt_set_context(d->reader, record, (uint32_t)m, st);
    }
    return st == DT_E_DATA && d->skip ? dt_reader_blame(d->reader, record) : st;
}

// The numbers of a member are read once. Under data.on_error: skip, damaged records are left out.
static dt_status measure_member(dt_data *d, int field, const uint32_t *records, uint32_t n) {
    dt_field_info *info = &d->fields.info[field];
    const int64_t n_each = dt_shape_elements(&info->sample_shape);
    double mean[DT_MAX_NORMALIZE] = {0}, squares[DT_MAX_NORMALIZE] = {0}; // Welford's
    double x[DT_MAX_NORMALIZE];
    dt_buffer bytes[2] = {0};
    uint32_t n_read = 0;
    dt_status st = DT_OK;
    for (uint32_t i = 0; i < n && st == DT_OK; i++) {
        const dt_status one = dataset_read_member(d, field, records[i], bytes, x);
        if (one != DT_E_DATA || !d->skip) st = one;
        n_read += one == DT_OK;
        for (int64_t k = 0; k < n_each && one == DT_OK; k++) {
            const double from = x[k] - mean[k];
            mean[k] += from / n_read;
            squares[k] += from * (x[k] - mean[k]);
        }
    }
    if (st == DT_OK && n_read == 0) st = DT_E_DATA; // of the last one
    if (st == DT_OK) dt_error_clear();
    for (int64_t k = 0; k < n_each && n_read > 0; k++) {
        info->mean[k] = mean[k];
        info->std[k] = squares[k] > 0 ? sqrt(squares[k] / n_read) : 1;
    }
    for (int i = 0; i < 2; i++) dt_buffer_fini(&bytes[i]);
    return st;
}

// The training part's numbers; those of a pair lie in one of its records.
static dt_status measure_numbers(dt_data *d, const dt_config *c) {
    const dt_view *v = &d->view;
    const uint32_t n = d->splits.n[DT_SPLIT_TRAIN];
    uint32_t *records = dt_xcalloc((size_t)n + 1, sizeof *records);
    dt_status st = DT_OK;
    for (int i = 0; i < d->fields.n && st == DT_OK; i++) {
        const dt_field *f = &d->fields.f[i];
        const bool is_auto = d->fields.info[i].normalize_auto;
        if (f->absent || (f->n_numbers == 0 && !is_auto)) continue;
        for (uint32_t k = 0; k < n; k++)
            records[k] = v->record[(size_t)d->splits.sample[DT_SPLIT_TRAIN][k] * (size_t)v->width + (size_t)f->part];
        dt_field_keys keys = {c, &c->data.fields[i], ""};
        if (n == 0 && is_auto)
            st = dt_config_fail(c, dt_key_of(&keys, "normalize"),
                                "data.fields.%s.normalize: auto is of the training split, and there is none here: take "
                                "the numbers from the run's config.yaml",
                                f->name);
        else if (f->n_numbers == 0)
            st = measure_member(d, i, records, n);
        else
            dt_fields_measure(&d->fields, i, d->reader->catalog, records, n);
    }
    free(records);
    return st;
}

// ---- the whole -------------------------------------------------------------------------------------
static uint64_t fingerprint(const dt_data *d) {
    uint64_t parts[2 + 3 + 2] = {dt_catalog_hash(d->reader->catalog), 0};
    parts[1] = dt_hash64(d->view.record, (size_t)d->view.n * (size_t)d->view.width * sizeof *d->view.record);
    for (int k = 0; k < 3; k++) parts[2 + k] = dt_hash64(d->splits.sample[k], d->splits.n[k] * sizeof(uint32_t));
    parts[5] = d->seed;
    parts[6] = d->sampler.shuffle;
    return dt_hash64(parts, sizeof parts);
}

static bool has_hashes(const dt_catalog *c) {
    bool all = true;
    for (uint32_t i = 0; i < c->n_members && all; i++) all = c->members[i].has_hash || c->members[i].size == 0;
    return all;
}

static void dataset_read_options(dt_data *d, const dt_config *c, int rank_workers) {
    d->sampler.shuffle = c->data.shuffle;
    d->seed = (uint64_t)c->run.seed;
    d->skip = c->data.on_error != DT_ON_ERROR_fail;
    d->skips.quarantine = c->data.on_error == DT_ON_ERROR_quarantine;
    d->verify = c->data.verify;
    d->n_workers = c->data.workers.is_auto ? rank_workers : (int)dt_answer(c->data.workers);
    if (d->n_workers < 1) d->n_workers = 1;
    d->n_readers = c->data.readers.is_auto ? -1 : (int)dt_answer(c->data.readers);
    d->n_prefetch = c->data.prefetch.is_auto ? 0 : (int)dt_answer(c->data.prefetch);
    d->facts.fix_workers = !c->data.workers.is_auto;
    d->facts.fix_readers = !c->data.readers.is_auto;
    d->facts.fix_slots = !c->data.prefetch.is_auto;
}

// Pixels, and what a decoder holds beside them: 16-bit samples of a PNG, more than the coefficients of a progressive JPEG;
// of arrays floats, a plane of them and the file's values.
static size_t dataset_decode_bytes(const dt_data *d) {
    enum { OF_PICTURE = 3 + 8, OF_ARRAY = 4 + 8 };
    const dt_catalog *c = d->reader->catalog;
    const dt_columns *table = &c->table;
    const int w = dt_columns_find(table, "width", DT_NUMBER_COLUMN),
              h = dt_columns_find(table, "height", DT_NUMBER_COLUMN);
    size_t most = 0;
    bool is_image[DT_MAX_EXTENSIONS];
    for (uint32_t e = 0; e < c->n_exts; e++) {
        const dt_kind *k = dt_kind_of_name(dt_catalog_str(c, c->exts[e]));
        is_image[e] = k && k->is_image;
    }
    for (int i = 0; i < d->fields.n; i++) {
        const dt_field *f = &d->fields.f[i];
        if (f->kind != DT_FIELD_image || f->absent) continue;
        const double limit = f->max_pixels ? (double)f->max_pixels : DT_MAX_PIXELS;
        const size_t channels = (size_t)d->fields.info[i].sample_shape.d[2];
        double pixels = w < 0 || h < 0 ? limit : 1;
        for (uint32_t r = 0; r < c->n_records && pixels < limit; r++) {
            const dt_member *m = c->members + c->records[r].first_member;
            int n_images = 0;
            for (uint32_t k = 0; k < c->records[r].n_members; k++) n_images += is_image[m[k].ext];
            const double known = table->columns[w].number[r] * table->columns[h].number[r]; // of the first image
            if (dt_field_member(f, c, r) >= 0) pixels = isnan(known) || n_images > 1 ? limit : fmax(pixels, known);
        }
        const size_t n = (size_t)fmin(pixels, limit) * (f->array.f32 ? OF_ARRAY + 4 * channels : OF_PICTURE);
        most = n > most ? n : most;
    }
    return most * (size_t)d->n_workers;
}

static int64_t n_samples(const dt_dataset *base, dt_split split) {
    const dt_data *d = base->self;
    return d->splits.n[split];
}

static int records(const dt_dataset *base, dt_split split, int64_t i, uint32_t out[DT_MAX_WIDTH]) {
    const dt_data *d = base->self;
    const uint32_t *r = d->view.record + (size_t)d->splits.sample[split][i] * (size_t)d->view.width;
    for (int k = 0; k < d->view.width; k++) out[k] = r[k];
    return d->view.width;
}

static const char *key(const dt_dataset *base, uint32_t record, const char **path) {
    const dt_data *d = base->self;
    const dt_catalog *c = d->reader->catalog;
    *path = c->shards[c->records[record].shard].path;
    return dt_catalog_str(c, c->records[record].key);
}

// The value of the first record of the sample that has one.
static const char *dataset_value(const dt_dataset *base, const char *column, dt_split split, int64_t i) {
    const dt_data *d = base->self;
    const int at = dataset_column_of(d, column);
    const char *text = NULL;
    uint32_t r[DT_MAX_WIDTH];
    const int n = records(base, split, i, r);
    for (int k = 0; k < n && at >= 0 && !text; k++) text = dt_catalog_value(d->reader->catalog, at, r[k]);
    return text;
}

static dt_status dataset_cell(const dt_dataset *base, const char *column, dt_split split, int64_t i, char **text,
                              bool *number) {
    const dt_data *d = base->self;
    const dt_catalog *c = d->reader->catalog;
    const int at = dt_columns_find(&c->table, column, DT_TEXT_COLUMN | DT_NUMBER_COLUMN | DT_JSON_COLUMN);
    uint32_t r[DT_MAX_WIDTH];
    char digits[DT_REAL_CHARS];
    *text = NULL;
    if (at < 0 && dt_catalog_find_name(c, column) < 0) return DT_E_USAGE; // names those that there are
    if (at < 0) return dt_fail(DT_E_USAGE, "%s is of every record, and no column of the set", column);
    *number = c->table.columns[at].kind == DT_NUMBER_COLUMN;
    const int n = records(base, split, i, r);
    for (int k = 0; k < n && !*text; k++) // of the first record that has one
        if (dt_columns_has(&c->table, at, r[k]))
            *text = dt_xstrdup(*number ? dt_real_text(digits, c->table.columns[at].number[r[k]])
                                       : dt_columns_text(&c->table, at, r[k]));
    return DT_OK;
}

static dt_status check_by(const dt_data *d, const dt_config *c) {
    const dt_cnode *by = c->eval.by;
    int column;
    for (size_t i = 0; by && i < dt_cnode_size(by); i++)
        DT_TRY(dt_data_find_column(d, c, "eval.by", dt_cnode_str(dt_cnode_item(by, i)), &column));
    return c->eval.bootstrap_unit ? dt_data_find_column(d, c, "eval.bootstrap_unit", c->eval.bootstrap_unit, &column)
                                  : DT_OK;
}

static void dataset_count_classes(const dt_data *d, const dt_field *f, dt_split split, uint32_t *out) {
    for (uint32_t i = 0; i < d->splits.n[split]; i++) out[dt_data_class(d, f, split, i)]++;
}

static dt_classes classes(const dt_dataset *base, int field) {
    enum { MOST_RATIO = 3 };
    const dt_data *d = base->self;
    const dt_field_info *info = &d->fields.info[field];
    if (d->fields.f[field].absent) return DT_CLASSES_EVEN;
    if (info->n_strangers > 0) return DT_CLASSES_UNSEEN;
    const size_t n = (size_t)info->n_classes;
    uint32_t *trained = dt_xcalloc(2 * n + 1, sizeof *trained), *there = trained + n;
    uint64_t most = 0, least = UINT32_MAX;
    bool shared = false;
    const dt_split part = d->splits.n[DT_SPLIT_VAL] > 0 ? DT_SPLIT_VAL : DT_SPLIT_TEST;
    dataset_count_classes(d, &d->fields.f[field], DT_SPLIT_TRAIN, trained);
    dataset_count_classes(d, &d->fields.f[field], part, there);
    for (size_t k = 0; k < n; k++) {
        shared |= trained[k] && there[k];
        if (trained[k] > most) most = trained[k];
        if (trained[k] && trained[k] < least) least = trained[k];
    }
    free(trained);
    if (d->splits.n[DT_SPLIT_TRAIN] == 0) return DT_CLASSES_EVEN;
    return !shared && d->splits.n[part] > 0 ? DT_CLASSES_UNSEEN
           : most > MOST_RATIO * least      ? DT_CLASSES_UNEVEN
                                            : DT_CLASSES_EVEN;
}

static int unvalidated(const dt_dataset *base, int field, char *names, size_t cap) {
    enum { MOST_NAMED = 10 };
    const dt_data *d = base->self;
    const dt_field_info *info = &d->fields.info[field];
    const size_t n = (size_t)info->n_classes;
    if (d->splits.n[DT_SPLIT_VAL] == 0 || classes(base, field) == DT_CLASSES_UNSEEN) return 0;
    uint32_t *trained = dt_xcalloc(2 * n + 1, sizeof *trained), *there = trained + n;
    int n_without = 0;
    *names = 0;
    dataset_count_classes(d, &d->fields.f[field], DT_SPLIT_TRAIN, trained);
    dataset_count_classes(d, &d->fields.f[field], DT_SPLIT_VAL, there);
    for (size_t k = 0; k < n; k++) {
        char number[24];
        const char *name = dt_field_name_of(info, (int64_t)k);
        if (!trained[k] || there[k]) continue;
        snprintf(number, sizeof number, "%zu", k);
        if (n_without++ <= MOST_NAMED) dt_text_list(names, cap, n_without > MOST_NAMED ? "…" : name ? name : number);
    }
    free(trained);
    return n_without;
}

static dt_status open_split(dt_dataset *base, const dt_source_request *r, dt_batch_source **out) {
    return dt_loader_open(out, base->self, r);
}

static const char *dataset_describe(const dt_dataset *base) {
    const dt_data *d = base->self;
    return d->description;
}

static void facts(const dt_dataset *base, dt_pipeline_facts *out) {
    const dt_data *d = base->self;
    const dt_catalog *c = d->reader->catalog;
    uint64_t n_members = 0;
    *out = d->facts;
    out->cores = dt_usable_cores();
    dt_memory memory;
    dt_memory_read(&memory);
    out->free_bytes = memory.available_bytes;
    out->decoded_bytes = dt_data_decoded_bytes(d);
    for (int i = 0; i < d->fields.n && out->decoded_bytes > 0; i++)
        if (d->fields.f[i].kind == DT_FIELD_image) out->decoded_sample_bytes += dt_data_pixel_bytes(d, i);
    out->n_processes = d->cache.n_processes;
    uint64_t bytes_of[DT_MEMBERS_ARRAYS + 1] = {0};
    out->is_folder = c->n_shards > c->n_records / 2; // a file a record
    for (uint32_t r = 0; r < c->n_records; r++)
        for (int i = 0; i < d->fields.n; i++) {
            int64_t m = dt_field_member(&d->fields.f[i], c, r);
            if (m < 0) continue;
            n_members++;
            out->set_bytes += c->members[m].size;
            const dt_kind *kind = dt_kind_of_name(dt_catalog_str(c, c->exts[c->members[m].ext]));
            bytes_of[!kind || kind->uses & DT_KIND_ARRAY ? DT_MEMBERS_ARRAYS
                     : kind->uses & DT_KIND_AUDIO        ? DT_MEMBERS_AUDIO
                                                         : DT_MEMBERS_IMAGES] += c->members[m].size;
        }
    for (int i = 1; i <= DT_MEMBERS_ARRAYS; i++)
        if (bytes_of[i] > bytes_of[out->members]) out->members = (dt_members)i;
    out->member_bytes = n_members ? out->set_bytes / n_members : 0;
}

static void close_data(dt_dataset *base) {
    dt_data *d = base->self;
    free(d->weights);
    dt_sampler_values_free(d->values);
    for (int i = 0; i < DT_MAX_FIELDS; i++) free(d->class_weights[i]);
    dt_data_cache_close(d);
    dt_splits_fini(&d->splits);
    free(d->listed);
    dt_view_fini(&d->view);
    dt_mix_destroy(d->mix);
    dt_fields_fini(&d->fields);
    dt_reader_close(d->reader);
    dt_skips_close(d);
    free(d->description);
    free(d);
}

static void make_description(dt_data *d) {
    const dt_catalog *c = d->reader->catalog;
    char left_out[240], stored[40] = "", shards[40] = "";
    if (d->n_stored != c->n_records) snprintf(stored, sizeof stored, " of %u (data.where)", d->n_stored);
    if (c->n_shards > 1) snprintf(shards, sizeof shards, " … (%u files)", c->n_shards);
    dt_splits_left_out(&d->splits, left_out, sizeof left_out);
    d->description =
        dt_xprintf("%s %s%s: %u records%s, %u samples: train %u, val %u, test %u%s", d->reader->kind, c->shards[0].path,
                   shards, c->n_records, stored, d->view.n, d->splits.n[0], d->splits.n[1], d->splits.n[2], left_out);
}

// A device plays the last steps of the augmentation of byte images. It uses one block for an image, so large images
// stay with the loader.
enum { MOST_DEVICE_BYTES = 1 << 20 };

static void leave_steps(dt_data *d, const dt_config *c) {
    if (!d->memory.augments) return;
    if (c->data.augment_on == DT_AUGMENT_ON_host) return;
    for (int i = 0; i < d->fields.n; i++) {
        const dt_field *f = &d->fields.f[i];
        if (f->augment && !f->array.f32 && f->sample_bytes <= MOST_DEVICE_BYTES)
            d->fields.info[i].n_steps = dt_augment_device_steps(f->augment);
    }
}

dt_status dt_data_open(dt_dataset **out, const dt_config *c, const dt_batch_memory *memory, int rank_workers,
                       const char *skip_log) {
    return dt_data_open_as(out, c, memory, rank_workers, skip_log, NULL, NULL);
}

static dt_status alloc_plain(void *owner, void **p, size_t n_bytes, const char *what) {
    *p = aligned_alloc(64, (n_bytes + 63) / 64 * 64);
    return *p ? DT_OK : dt_fail(DT_E_INTERNAL, "out of memory: %zu bytes for %s", n_bytes, what);
}
static void free_plain(void *owner, void *p, size_t n_bytes) {
    free(p);
}

// Numbers of three angles are a rotation always.
static dt_status mark_rotations(dt_data *d, const dt_config *c) {
    dt_targets targets;
    bool any = dt_losses[c->train.loss].rotation;
    for (int i = 0; i < c->train.n_targets; i++) any |= dt_losses[c->train.targets[i].loss].rotation;
    if (!any) return DT_OK;
    DT_TRY(dt_targets_read(&targets, c, d->fields.info, d->fields.n, false));
    for (int i = 0; i < targets.n; i++)
        d->fields.f[targets.items[i].index].rotation =
            dt_losses[targets.items[i].loss].rotation && dt_target_n_out(&targets.items[i]) == 6;
    return DT_OK;
}

dt_status dt_data_open_as(dt_dataset **out, const dt_config *c, const dt_batch_memory *memory, int rank_workers,
                          const char *skip_log, const char *names, const dt_field_use *uses) {
    dt_data *d = dt_xcalloc(1, sizeof *d);
    dt_status st = DT_OK;
    *out = NULL;
    d->base.self = d;
    d->memory = memory ? *memory : (dt_batch_memory){.alloc = alloc_plain, .free = free_plain};
    d->skips.log_path = skip_log ? dt_xstrdup(skip_log) : NULL;
    pthread_mutex_init(&d->skips.lock, NULL);
    dataset_read_options(d, c, rank_workers);
    DT_TRY_GOTO(st, open_set(d, c), out);
    DT_TRY_GOTO(st, add_columns(d, c, uses != NULL), out);
    DT_TRY_GOTO(st, dt_split_read_file(d, c), out);
    DT_TRY_GOTO(st, apply_where(d, c, uses != NULL), out);
    DT_TRY_GOTO(st, dt_fields_resolve(&d->fields, c, d->reader->catalog, names, uses), out);
    leave_steps(d, c);
    DT_TRY_GOTO(st, dt_mix_create(&d->mix, c, d->fields.info, d->fields.n), out);
    DT_TRY_GOTO(st, dataset_make_view(d, c), out);
    DT_TRY_GOTO(st, dt_split_open(d, c), out);
    if (!uses) dt_split_warn_copies(d);
    DT_TRY_GOTO(st, measure_numbers(d, c), out);
    DT_TRY_GOTO(st, dataset_make_order(d, c), out);
    DT_TRY_GOTO(st, dt_class_weights_read(d, c), out);
    DT_TRY_GOTO(st, mark_rotations(d, c), out);
    DT_TRY_GOTO(st, check_by(d, c), out);
    DT_TRY_GOTO(st, dt_skips_open(d), out);
    DT_TRY_GOTO(st, dt_data_cache_configure(d, c), out);
    make_description(d);
    d->base = (dt_dataset){.self = d,
                           .n_fields = d->fields.n,
                           .fields = d->fields.info,
                           .fingerprint = fingerprint(d),
                           .hashed = has_hashes(d->reader->catalog),
                           .n_left_out = d->base.n_left_out,
                           .decode_bytes = dataset_decode_bytes(d),
                           .n_samples = n_samples,
                           .records = records,
                           .picture = dt_data_picture,
                           .key = key,
                           .value = dataset_value,
                           .cell = dataset_cell,
                           .classes = classes,
                           .unvalidated = unvalidated,
                           .open = open_split,
                           .describe = dataset_describe,
                           .write_split = dt_split_write,
                           .facts = facts,
                           .close = close_data};
    *out = &d->base;
    return DT_OK;
out:
    close_data(&d->base);
    return st;
}
