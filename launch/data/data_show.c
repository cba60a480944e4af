// data_show.c: dtrain data show CONFIG OUT.png: a batch as the network gets it: augmented, mixed, and sounds as the
// features that are made of them.
//
// A cell of the grid is a sample, its images side by side. Bytes are shown as they are; floats between the sample's
// least and largest value. Spectrograms have low frequencies at the bottom; a waveform is drawn as its envelope.
//
// With a table of dtrain predict there are two groups of cells: what the network got wrong, with a red edge, then what
// it got right, with a green one.

#include "launch/launch.h"

#include "base/core.h"
#include "base/io.h"
#include "base/text.h"
#include "config/words.h"
#include "data/data.h"
#include "data/decode/encode.h"
#include "data/loader/data_parts.h"
#include "data/raw/table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N, SPLIT, PREDICTED };
static const dt_cli_option options[] = {
    [N] = {"--n", "N", "number of samples (default 16)"},
    [SPLIT] = {"--split", "train|val|test", "the split; val and test are prepared as for evaluation (default train)"},
    [PREDICTED] = {"--predicted", "TABLE", "a table of dtrain predict: show half wrong, then half right predictions"},
    {NULL}};

enum { LEAST_SIDE = 96, MOST_SIDE = 384, WAVE_HEIGHT = 64, GAP = 4, WHITE = 255, MOST_SAMPLES = 1024 };

// One image field of the samples: what a pixel of the picture shows.
typedef struct panel {
    int field, h, w, c; // of a sample
    bool is_sound, is_wave;
    int out_h, out_w, left; // in the cell
} panel;

typedef struct show {
    const dt_data *d;
    bool training;
    panel panel[DT_MAX_FIELDS];
    int n_panels, cell_h, cell_w, columns, rows, n;
    uint8_t *pixels;            // RGB
    dt_table table;             // of predictions; path NULL: none
    int key, predicted, target; // its columns, and the class field
    size_t row;                 // that was found last
} show;

// ---- layout --------------------------------------------------------------------------------------------
// Whole multiples of small sides; large ones are cut down.
static int shown_side(int side, int longest) {
    if (longest < LEAST_SIDE) return side * ((LEAST_SIDE + longest - 1) / longest);
    if (longest <= MOST_SIDE) return side;
    int shown = (int)((int64_t)side * MOST_SIDE / longest);
    return shown > 0 ? shown : 1;
}

static dt_status data_show_lay_out(show *s) {
    for (int i = 0; i < s->d->fields.n; i++) {
        const dt_field_info *f = &s->d->fields.info[i];
        if (!f->is_image) continue;
        panel *p = &s->panel[s->n_panels++];
        *p = (panel){.field = i,
                     .h = (int)f->sample_shape.d[0],
                     .w = (int)f->sample_shape.d[1],
                     .c = (int)f->sample_shape.d[2],
                     .is_sound = s->d->fields.f[i].kind == DT_FIELD_audio};
        p->is_wave = p->is_sound && p->h == 1;
        int longest = p->is_wave || p->w > p->h ? p->w : p->h;
        p->out_w = shown_side(p->w, longest);
        p->out_h = p->is_wave ? WAVE_HEIGHT : shown_side(p->h, longest);
        p->left = s->cell_w;
        s->cell_w += p->out_w + GAP;
        if (p->out_h + GAP > s->cell_h) s->cell_h = p->out_h + GAP;
    }
    if (s->n_panels == 0) return dt_fail(DT_E_USAGE, "data show: the config has no image or audio field to show");
    s->columns = (int)ceil(sqrt((double)s->n * s->cell_h / s->cell_w));
    if (s->columns < 1) s->columns = 1;
    if (s->columns > s->n) s->columns = s->n;
    s->rows = (s->n + s->columns - 1) / s->columns;
    size_t n_bytes = (size_t)s->rows * (size_t)s->cell_h * (size_t)s->columns * (size_t)s->cell_w * 3;
    s->pixels = dt_xcalloc(n_bytes, 1);
    memset(s->pixels, WHITE, n_bytes);
    return DT_OK;
}

// ---- values --------------------------------------------------------------------------------------------
static double stored(const show *s, const dt_batch *b, const panel *p, int j, size_t at) {
    const size_t n = (size_t)p->h * (size_t)p->w * (size_t)p->c;
    const void *all = b->field[p->field];
    return s->d->fields.info[p->field].dtype == DT_U8 ? ((const uint8_t *)all)[(size_t)j * n + at]
                                                      : ((const float *)all)[(size_t)j * n + at];
}

// Mixed as the network mixes it (batch/mix_plan.h).
static double data_show_value(const show *s, const dt_batch *b, const panel *p, int j, int y, int x, int c) {
    const size_t at = ((size_t)y * (size_t)p->w + (size_t)x) * (size_t)p->c + (size_t)c;
    double own = stored(s, b, p, j, at);
    if (!b->mix[p->field]) return own;
    const dt_mix_row *m = &b->mix[p->field][j];
    double next = stored(s, b, p, j + 1 < b->n ? j + 1 : 0, at);
    if (y >= m->y0 && y < m->y1 && x >= m->x0 && x < m->x1) return next;
    return (m->own * own + (DT_MIX_ONE - m->own) * next) / DT_MIX_ONE;
}

static void data_show_put(const show *s, const panel *p, int place, int y, int x, const uint8_t rgb[3]) {
    size_t row = (size_t)(place / s->columns * s->cell_h + y);
    size_t column = (size_t)(place % s->columns * s->cell_w + p->left + x);
    memcpy(s->pixels + (row * (size_t)(s->columns * s->cell_w) + column) * 3, rgb, 3);
}

static void data_show_find_range(const show *s, const dt_batch *b, const panel *p, int j, double *low, double *high) {
    *low = 0, *high = 255;
    if (s->d->fields.info[p->field].dtype == DT_U8) return;
    *low = INFINITY, *high = -INFINITY;
    for (int y = 0; y < p->h; y++)
        for (int x = 0; x < p->w; x++)
            for (int c = 0; c < p->c; c++) {
                double v = data_show_value(s, b, p, j, y, x, c);
                *low = fmin(*low, v);
                *high = fmax(*high, v);
            }
}

static uint8_t data_show_level(double v, double low, double high) {
    double x = high > low ? (v - low) / (high - low) * 255 : 0;
    return (uint8_t)(x < 0 ? 0 : x > 255 ? 255 : x + 0.5);
}

// ---- predictions -----------------------------------------------------------------------------------
static dt_status read_predictions(show *s, const char *path) {
    if (s->training)
        return dt_fail(DT_E_USAGE, "--predicted shows samples as evaluation takes them: --split val or "
                                   "--split test");
    DT_TRY(dt_table_read(&s->table, path));
    s->key = dt_table_find(&s->table, "key");
    for (s->target = 0; s->target < s->d->fields.n; s->target++) {
        const dt_field_info *f = &s->d->fields.info[s->target];
        s->predicted = f->n_classes > 0 ? dt_table_find(&s->table, f->name) : -1;
        if (s->key >= 0 && s->predicted >= 0) return DT_OK;
    }
    return dt_fail(DT_E_USAGE,
                   "%s has no columns key and that of a class of the config: it is to be a table "
                   "of dtrain predict",
                   path);
}

static const char *data_show_cell(const show *s, size_t row, int column) {
    const char *text = dt_table_cell(&s->table, row, column);
    return text ? text : "";
}

// What was predicted of a sample, or NULL. Rows come in the order of the set, so the next is likely.
static const char *prediction_of(show *s, const dt_batch *b, int j) {
    const char *key[DT_MAX_WIDTH];
    if (!s->table.path || dt_data_records_of(&s->d->base, (uint32_t)b->sample[j], key) < 1) return NULL;
    for (size_t i = 0; i < s->table.cells.n_rows; i++) {
        const size_t row = (s->row + 1 + i) % s->table.cells.n_rows;
        if (strcmp(data_show_cell(s, row, s->key), key[0]) != 0) continue;
        s->row = row;
        return data_show_cell(s, row, s->predicted);
    }
    return NULL;
}

static bool is_right(const show *s, const dt_batch *b, int j, const char *predicted) {
    const dt_field_info *f = &s->d->fields.info[s->target];
    const int32_t truth = ((const int32_t *)b->field[s->target])[j];
    const char *name = dt_field_name_of(f, truth);
    return name ? strcmp(name, predicted) == 0 : atoi(predicted) == truth;
}

static void fill_cell(const show *s, int place, const uint8_t rgb[3]) {
    static const panel whole = {.left = 0};
    for (int y = 0; y < s->cell_h; y++)
        for (int x = 0; x < s->cell_w; x++) data_show_put(s, &whole, place, y, x, rgb);
}

// ---- drawing -------------------------------------------------------------------------------------------
// Three channels are colours; of others the first is shown.
static void draw_image(const show *s, const dt_batch *b, const panel *p, int j, int place) {
    double low, high;
    data_show_find_range(s, b, p, j, &low, &high);
    for (int y = 0; y < p->out_h; y++)
        for (int x = 0; x < p->out_w; x++) {
            int from_y = (int)((int64_t)y * p->h / p->out_h);
            int from_x = (int)((int64_t)x * p->w / p->out_w);
            if (p->is_sound) from_y = p->h - 1 - from_y;
            uint8_t rgb[3];
            for (int c = 0; c < 3; c++)
                rgb[c] = data_show_level(data_show_value(s, b, p, j, from_y, from_x, p->c == 3 ? c : 0), low, high);
            data_show_put(s, p, place, y, x, rgb);
        }
}

static void draw_wave(const show *s, const dt_batch *b, const panel *p, int j, int place) {
    static const uint8_t INK[3] = {0, 0, 0};
    double low, high;
    data_show_find_range(s, b, p, j, &low, &high);
    for (int x = 0; x < p->out_w; x++) {
        int begin = (int)((int64_t)x * p->w / p->out_w), end = (int)((int64_t)(x + 1) * p->w / p->out_w);
        int top = p->out_h - 1, bottom = 0;
        for (int i = begin; i < end || i == begin; i++) {
            int y = (255 - data_show_level(data_show_value(s, b, p, j, 0, i, 0), low, high)) * (p->out_h - 1) / 255;
            if (y < top) top = y;
            if (y > bottom) bottom = y;
        }
        for (int y = top; y <= bottom; y++) data_show_put(s, p, place, y, x, INK);
    }
}

static void print_class(const show *s, const dt_batch *b, int field, int j) {
    const dt_field_info *f = &s->d->fields.info[field];
    const bool soft = (f->soft && s->training) || f->n_categories > 0;
    const int n = f->n_classes + f->n_categories; // one of both is 0
    const float *shares = (const float *)b->field[field] + (size_t)j * (size_t)n;
    bool first = true;
    for (int k = 0; k < n; k++) {
        double share = soft ? shares[k] : ((const int32_t *)b->field[field])[j] == k;
        if (share <= 0) continue;
        const char *name = dt_field_name_of(f, k);
        printf("%s", first ? "" : " + ");
        if (share < 1) printf("%.2f ", share);
        if (name)
            dt_text_print(stdout, name);
        else
            printf("%d", k);
        first = false;
    }
}

static void data_show_print_row(const show *s, const dt_batch *b, int j, int place, const char *predicted) {
    const char *key[DT_MAX_WIDTH];
    int n = dt_data_records_of(&s->d->base, (uint32_t)b->sample[j], key);
    dt_text_printf(stdout, "%d,%d", place / s->columns + 1, place % s->columns + 1);
    for (int k = 0; k < n; k++) {
        putchar('\t');
        dt_text_print(stdout, key[k]);
    }
    for (int i = 0; i < s->d->fields.n; i++) {
        const dt_field_info *f = &s->d->fields.info[i];
        if (f->is_image) continue;
        dt_text_printf(stdout, "\t%s=", f->name);
        if (f->n_classes + f->n_categories > 0) {
            print_class(s, b, i, j);
            continue;
        }
        int64_t n_values = dt_shape_elements(&f->sample_shape);
        for (int64_t k = 0; k < n_values; k++)
            printf("%s%.*g", k ? " " : "", dt_field_digits(f, k, 6),
                   dt_field_value(f, k, (double)((const float *)b->field[i])[j * n_values + k]));
    }
    if (predicted) {
        printf("\tpredicted=");
        dt_text_print(stdout, predicted);
    }
    putchar('\n');
}

// ---- the verb ------------------------------------------------------------------------------------------
static void draw_sample(show *s, const dt_batch *b, int j, int place, const char *predicted) {
    static const uint8_t colours[2][3] = {{210, 30, 30}, {30, 160, 60}}; // wrong, right
    if (predicted) fill_cell(s, place, colours[is_right(s, b, j, predicted)]);
    for (int k = 0; k < s->n_panels; k++) (s->panel[k].is_wave ? draw_wave : draw_image)(s, b, &s->panel[k], j, place);
    data_show_print_row(s, b, j, place, predicted);
}

// Samples from place *place to before `end`; with predictions those that were right, or wrong.
static dt_status data_show_draw(show *s, dt_dataset *data, const dt_config *c, dt_split split, bool right, int *place,
                                int end) {
    const int micro = dt_cli_micro_batch(c);
    const int n_micro = split == DT_SPLIT_TRAIN ? (int)c->train.global_batch / micro : 1;
    int *micros = dt_xcalloc((size_t)n_micro, sizeof *micros);
    for (int i = 0; i < n_micro; i++) micros[i] = i;
    dt_source_request r = {.split = split,
                           .augment = split == DT_SPLIT_TRAIN,
                           .global_batch = n_micro * micro,
                           .micro_batch = micro,
                           .micros = micros,
                           .n_micro = n_micro,
                           .end_step = -1};
    dt_batch_source *source = NULL;
    const dt_batch *b;
    dt_status st = data->open(data, &r, &source);
    const int64_t n_batches = ((int64_t)s->d->splits.n[split] + micro - 1) / micro;
    for (int at = 0; st == DT_OK && *place < end && (!s->table.path || at < n_batches); at++) {
        st = source->get(source, at / n_micro, at % n_micro, &b, NULL);
        if (st != DT_OK) break;
        for (int j = 0; j < b->n_valid && *place < end; j++) {
            const char *predicted = prediction_of(s, b, j);
            if (s->table.path && (!predicted || is_right(s, b, j, predicted) != right)) continue;
            draw_sample(s, b, j, (*place)++, predicted);
        }
        source->release(source, b);
    }
    if (source) source->close(source);
    free(micros);
    return st;
}

static dt_status data_show_save(const show *s, const char *out) {
    dt_image m = {.data = s->pixels, .width = s->columns * s->cell_w, .height = s->rows * s->cell_h, .channels = 3};
    dt_buffer png = {0};
    dt_status st = dt_encode_png(&png, &m);
    if (st == DT_OK) st = dt_io_write_file(out, png.data, png.n_bytes);
    dt_buffer_fini(&png);
    return st;
}

static dt_status show_config(const dt_config *c, const dt_cli_words *w, const char *out) {
    show s = {0};
    dt_dataset *data = NULL;
    int split;
    DT_TRY(dt_cli_option_word(w, SPLIT, DT_SPLIT_TRAIN, &split));
    DT_TRY(dt_cli_option_int(w, N, 16, &s.n));
    DT_TRY(dt_data_open(&data, c, NULL, 1, NULL));
    s.d = data->self;
    s.training = split == DT_SPLIT_TRAIN;
    if (s.n > MOST_SAMPLES) s.n = MOST_SAMPLES;
    if (s.n > (int)s.d->splits.n[split]) s.n = (int)s.d->splits.n[split];
    dt_status st =
        s.n > 0 ? data_show_lay_out(&s) : dt_fail(DT_E_USAGE, "the %s split has no samples", dt_split_name(split));
    if (st == DT_OK && w->options[PREDICTED]) st = read_predictions(&s, w->options[PREDICTED]);
    int place = 0;
    if (st == DT_OK && s.table.path) st = data_show_draw(&s, data, c, (dt_split)split, false, &place, s.n / 2);
    if (st == DT_OK) st = data_show_draw(&s, data, c, (dt_split)split, true, &place, s.n);
    if (st == DT_OK && place == 0)
        st = dt_fail(DT_E_USAGE, "%s has no row for a sample of the %s split", s.table.path, dt_split_name(split));
    if (st == DT_OK) st = data_show_save(&s, out);
    free(s.pixels);
    if (s.table.path) dt_table_fini(&s.table);
    data->close(data);
    return st;
}

static dt_status data_show_run(const dt_cli_words *w) {
    const char **words = dt_xcalloc((size_t)w->n_words + 1, sizeof *words), *out = NULL;
    dt_cli_words config = {.words = words};
    for (int i = 0; i < w->n_words; i++) { // OUT.png may stand before or behind the overrides
        if (i > 0 && !out && !strchr(w->words[i], '='))
            out = w->words[i];
        else
            words[config.n_words++] = w->words[i];
    }
    dt_config *c = NULL;
    dt_status st = out && dt_text_ends(out, ".png")
                       ? dt_cli_load_config(&c, "data show", &config)
                       : dt_fail(DT_E_USAGE, "dtrain data show expects CONFIG.yaml OUT.png");
    free(words);
    if (st == DT_OK) st = show_config(c, w, out);
    dt_config_destroy(c);
    return st;
}

const dt_cli_command dt_cli_data_show = {
    .options = options,
    .text = "Draws the first training samples as the network gets them: augmented, resized and mixed, audio as "
            "spectrograms. Prints a line per sample: row and column, records, class.\n\n"
            "  dtrain data show configs/photos.yaml batch.png\n"
            "  dtrain data show configs/acoustic.yaml val.png --split val --n 25\n"
            "  dtrain data show runs/photos hits.png --split test --predicted predicted.csv\n",
    .run = data_show_run};
