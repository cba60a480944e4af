// data_show.c: dtrain data show CONFIG OUT.png: a batch as the network gets it: augmented, mixed, and sounds as the
// features that are made of them.
//
// A cell of the grid is a sample, its images side by side, its classes and numbers below. Bytes are shown as they are;
// floats as an evaluation's page shows them (preview.c), each band by itself unless there are three. Waveforms, series and
// long vectors are lines, a lane for each channel.
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

// SIDE: of a picture and of a spectrogram; LANE: height of a channel among several; BANDS: panels or lanes of a field
enum { LEAST_SIDE = 128, LEAST_SOUND_SIDE = 256, MOST_SIDE = 384, WAVE_HEIGHT = 128, LANE_HEIGHT = 48, MOST_BANDS = 8 };
enum { GAP = 4, WHITE = 255, MOST_SAMPLES = 1024, LEAST_SIGNAL = 32, MOST_PANELS = DT_MAX_FIELDS * MOST_BANDS };

// The 6x10 of X11's misc-fixed fonts, which are in the public domain: of each character from ' ' to '~' ten rows, each as
// '0' + six bits, the leftmost the highest.
enum { FONT_W = 6, FONT_H = 10, LINE_H = FONT_H + 2, MOST_LINES = 6 };
static const char FONT[] =
    "000000000008888808000DDD0000000DDnDnDD0008LXL:L8000BZD8DZT000@XX@ZTJ000888000000048@@@84000@84448@00"
    "00RDnDR0000088n88000000000<8@00000n000000000008L8002248@PP0008DRRRD80008HX888n000LR2<@Pn000n24<2RL00"
    "04<DTn44000nP\\b2RL000<@P\\bRL000n2448@@000LRRLRRL000LRVJ24H00008L808L80008L80<8@00248@84200000n0n0000"
    "0@84248@000LR48808000LRVZ\\PL0008DRRnRR000lBBLBBl000LRPPPRL000lBBBBBl000nPPlPPn000nPPlPPP000LRPPVRL00"
    "0RRRnRRR000L88888L000>4444TH000RTX`XTR000PPPPPPn000RRfZRRR000RRbZVRR000LRRRRRL000lRRlPPP000LRRRRZL20"
    "0lRRlXTR000LRPL2RL000n888888000RRRRRRL000RRRDDD8000RRRZZfR000RRD8DRR000RRD8888000n248@Pn000L@@@@@L00"
    "0PP@8422000L44444L0008DR00000000000000n08400000000000L2NRN000PP\\bRb\\00000LRPRL00022JVRVJ00000LRnPL00"
    "0<B@l@@@00000NRRN2RL0PP\\bRRR00080H888L000206222BB<0PPRThTR000H88888L00000dZZZR00000\\bRRR00000LRRRL00"
    "000\\bRb\\PP000JVRVJ22000\\bPPP00000LPL2l000@@l@@B<00000RRRVJ00000RRDD800000RRZZD00000RD8DR00000RRVJ2RL"
    "000n48@n000684H4860008888888000H48684H000BZT000000";

// One field of the samples, or a band of it: what a pixel of the picture shows.
typedef struct panel {
    int field;
    dt_preview v;
    int band, n_lanes;      // band: -1: colours, or the only one; n_lanes: channels of a wave
    int out_h, out_w, left; // in the cell
} panel;

typedef struct show {
    const dt_data *d;
    bool training;
    panel panel[MOST_PANELS];
    bool drawn[DT_MAX_FIELDS];                                        // else its value is text
    double *x;                                                        // values of a sample's field
    int n_panels, n_texts, cell_h, cell_w, caption, columns, rows, n; // caption: where it begins in a cell
    uint8_t *pixels;                                                  // RGB
    dt_table table;                                                   // of predictions; path NULL: none
    int key, predicted, target;                                       // its columns, and the class field
    size_t row;                                                       // that was found last
} show;

// ---- layout --------------------------------------------------------------------------------------------
// Whole multiples of small sides; large ones are cut down.
static int shown_side(int side, int longest, int least) {
    if (longest < least) return side * ((least + longest - 1) / longest);
    if (longest <= MOST_SIDE) return side;
    int shown = (int)((int64_t)side * MOST_SIDE / longest);
    return shown > 0 ? shown : 1;
}

static void add_panel(show *s, panel p) {
    const int h = p.v.h, w = p.v.w, longest = p.v.is_line || w > h ? w : h;
    const int least = p.v.is_line ? MOST_SIDE : p.v.is_sound ? LEAST_SOUND_SIDE : LEAST_SIDE;
    p.out_w = shown_side(w, longest, least);
    p.out_h = !p.v.is_line ? shown_side(h, longest, least) : p.n_lanes > 1 ? p.n_lanes * LANE_HEIGHT : WAVE_HEIGHT;
    p.left = s->cell_w;
    s->cell_w += p.out_w + GAP;
    if (p.out_h + GAP > s->caption) s->caption = p.out_h + GAP;
    s->panel[s->n_panels++] = p;
    s->drawn[p.field] = true;
}

static dt_status data_show_lay_out(show *s, bool predicted) {
    size_t n_most = 0;
    for (int i = 0; i < s->d->fields.n; i++) {
        panel p = {.field = i, .band = -1, .n_lanes = 1};
        if (!dt_preview_of(&s->d->fields, i, LEAST_SIGNAL, &p.v)) {
            s->n_texts++;
            continue;
        }
        const int bands = p.v.c < MOST_BANDS ? p.v.c : MOST_BANDS;
        const size_t n = (size_t)p.v.h * (size_t)p.v.w * (size_t)p.v.c;
        if (n > n_most) n_most = n;
        if (p.v.is_line) p.n_lanes = bands;
        for (int k = 0; k < bands && !p.v.is_line && p.v.c != 1 && p.v.c != 3; k++) p.band = k, add_panel(s, p);
        if (p.band < 0) add_panel(s, p);
    }
    if (s->n_panels > 1) s->cell_w += 2 * GAP; // panels of a sample stand together
    s->x = dt_xcalloc(n_most + 1, sizeof *s->x);
    if (s->cell_w < LEAST_SIDE + GAP) s->cell_w = LEAST_SIDE + GAP;
    const int n_lines = s->n_texts + predicted < MOST_LINES ? s->n_texts + predicted : MOST_LINES;
    s->cell_h = s->caption + (n_lines + (s->n_panels > 1)) * LINE_H;
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
// Of sample j, mixed as the network mixes them (batch/mix_plan.h).
static void take_values(const show *s, const dt_batch *b, const panel *p, int j) {
    const dt_field_info *f = &s->d->fields.info[p->field];
    const int64_t row = (int64_t)p->v.w * p->v.c, n = p->v.h * row, next = j + 1 < b->n ? j + 1 : 0;
    const dt_mix_row *m = b->mix[p->field] ? &b->mix[p->field][j] : NULL;
    for (int64_t at = 0; at < n; at++) {
        const int64_t y = at / row, x = at % row / p->v.c;
        const double own = dt_preview_stored(f, b->field[p->field], j * n + at),
                     other = m ? dt_preview_stored(f, b->field[p->field], next * n + at) : own;
        const bool pasted = m && y >= m->y0 && y < m->y1 && x >= m->x0 && x < m->x1;
        s->x[at] = !m ? own : pasted ? other : (m->own * own + (DT_MIX_ONE - m->own) * other) / DT_MIX_ONE;
    }
}

static void data_show_put(const show *s, const panel *p, int place, int y, int x, const uint8_t rgb[3]) {
    size_t row = (size_t)(place / s->columns * s->cell_h + y);
    size_t column = (size_t)(place % s->columns * s->cell_w + p->left + x);
    memcpy(s->pixels + (row * (size_t)(s->columns * s->cell_w) + column) * 3, rgb, 3);
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
// Three channels are colours.
static void draw_image(const show *s, const panel *p, int place) {
    const int first = p->band < 0 ? 0 : p->band;
    const dt_preview_range r = dt_preview_find_range(&p->v, first, p->band < 0 ? p->v.c : 1);
    for (int y = 0; y < p->out_h; y++)
        for (int x = 0; x < p->out_w; x++) {
            uint8_t rgb[3];
            for (int c = 0; c < 3; c++) {
                const int channel = p->band < 0 && p->v.c == 3 ? c : first;
                rgb[c] = dt_preview_level(&r, dt_preview_mean(&p->v, p->out_h, p->out_w, y, x, channel));
            }
            data_show_put(s, p, place, y, x, rgb);
        }
}

// A line through the samples, or their envelope where several share a column.
static void draw_lane(const show *s, const panel *p, int place, int lane) {
    static const uint8_t INK[3] = {0, 0, 0};
    const int height = p->out_h / p->n_lanes;
    const dt_preview_range r = dt_preview_find_range(&p->v, lane, 1);
    for (int x = 0, last = -1; x < p->out_w; x++) {
        int begin = (int)((int64_t)x * p->v.w / p->out_w), end = (int)((int64_t)(x + 1) * p->v.w / p->out_w);
        int top = height - 1, bottom = 0;
        if (last >= 0) top = bottom = last; // joins the column before
        for (int i = begin; i < end || i == begin; i++) {
            last = (255 - dt_preview_level(&r, p->v.x[(int64_t)i * p->v.c + lane])) * (height - 3) / 255 + 1;
            if (last < top) top = last;
            if (last > bottom) bottom = last;
        }
        for (int y = top; y <= bottom; y++) data_show_put(s, p, place, lane * height + y, x, INK);
    }
}

static void draw_wave(const show *s, const panel *p, int place) {
    static const uint8_t PAPER[3] = {WHITE, WHITE, WHITE};
    for (int y = 0; y < p->out_h; y++)
        for (int x = 0; x < p->out_w; x++) data_show_put(s, p, place, y, x, PAPER); // over the colour of a cell
    for (int lane = 0; lane < p->n_lanes; lane++) draw_lane(s, p, place, lane);
}

// What does not fit is cut. Characters outside ASCII are boxes.
static void draw_text(const show *s, int place, int top, int left, int width, const char *text, bool on_colour) {
    const uint8_t level = on_colour ? WHITE : 0, ink[3] = {level, level, level};
    const panel at = {.left = left};
    for (int x = 0; *text && x + FONT_W <= width; x += FONT_W) {
        const size_t n = dt_text_utf8_length(text);
        const bool known = *text >= ' ' && *text <= '~';
        const char *glyph = FONT + (known ? *text - ' ' : 0) * FONT_H;
        for (int k = 0; k < FONT_W * FONT_H; k++) {
            const int row = k / FONT_W, column = k % FONT_W;
            const bool box =
                (row == 1 || row == 7 || column == 0 || column == 4) && row >= 1 && row <= 7 && column <= 4;
            if (known ? (glyph[row] - '0') >> (FONT_W - 1 - column) & 1 : box)
                data_show_put(s, &at, place, top + row, x + column, ink);
        }
        text += n ? n : 1;
    }
}

static void print_class(FILE *out, const show *s, const dt_batch *b, int field, int j) {
    const dt_field_info *f = &s->d->fields.info[field];
    const bool soft = (f->soft && s->training) || f->n_categories > 0;
    const int n = f->n_classes + f->n_categories; // one of both is 0
    const float *shares = (const float *)b->field[field] + (size_t)j * (size_t)n;
    bool first = true;
    for (int k = 0; k < n; k++) {
        double share = soft ? shares[k] : ((const int32_t *)b->field[field])[j] == k;
        if (share <= 0) continue;
        const char *name = dt_field_name_of(f, k);
        fprintf(out, "%s", first ? "" : " + ");
        if (share < 1) fprintf(out, "%.2f ", share);
        if (name)
            dt_text_print(out, name);
        else
            fprintf(out, "%d", k);
        first = false;
    }
}

static void print_field(FILE *out, const show *s, const dt_batch *b, int field, int j, bool named) {
    const dt_field_info *f = &s->d->fields.info[field];
    if (named) dt_text_printf(out, "%s=", f->name);
    if (f->n_classes + f->n_categories > 0) {
        print_class(out, s, b, field, j);
        return;
    }
    int64_t n_values = dt_shape_elements(&f->sample_shape);
    for (int64_t k = 0; k < n_values; k++)
        fprintf(out, "%s%.*g", k ? " " : "", dt_field_digits(f, k, 6),
                dt_field_value(f, k, (double)((const float *)b->field[field])[j * n_values + k]));
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
        if (s->d->fields.info[i].is_image) continue;
        putchar('\t');
        print_field(stdout, s, b, i, j, true);
    }
    if (predicted) {
        printf("\tpredicted=");
        dt_text_print(stdout, predicted);
    }
    putchar('\n');
}

static void draw_caption(const show *s, const dt_batch *b, int j, int place, const char *predicted) {
    int top = s->caption;
    for (int k = 0; k < s->n_panels && s->n_panels > 1; k++) {
        const panel *p = &s->panel[k];
        char name[128];
        snprintf(name, sizeof name, p->band < 0 ? "%s" : "%s:%d", s->d->fields.info[p->field].name, p->band);
        draw_text(s, place, top, p->left, p->out_w, name, predicted != NULL);
    }
    if (s->n_panels > 1) top += LINE_H;
    for (int i = 0; i <= s->d->fields.n && top + LINE_H <= s->cell_h; i++) {
        char *text = NULL;
        size_t n = 0;
        if (i < s->d->fields.n ? s->drawn[i] : !predicted) continue;
        FILE *out = open_memstream(&text, &n);
        if (!out) return;
        if (i < s->d->fields.n)
            // a lone value needs no name, and a prediction stands below its class
            print_field(out, s, b, i, j, s->n_texts > 1 && !(predicted && i == s->target));
        else
            dt_text_printf(out, "-> %s", predicted);
        fclose(out);
        draw_text(s, place, top, 0, s->cell_w - GAP, text, predicted != NULL);
        free(text);
        top += LINE_H;
    }
}

// ---- the verb ------------------------------------------------------------------------------------------
static void draw_sample(show *s, const dt_batch *b, int j, int place, const char *predicted) {
    static const uint8_t colours[2][3] = {{210, 30, 30}, {30, 160, 60}}; // wrong, right
    if (predicted) fill_cell(s, place, colours[is_right(s, b, j, predicted)]);
    for (int k = 0; k < s->n_panels; k++) {
        panel p = s->panel[k];
        p.v.x = s->x;
        take_values(s, b, &p, j);
        (p.v.is_line ? draw_wave : draw_image)(s, &p, place);
    }
    draw_caption(s, b, j, place, predicted);
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
    dt_status st = s.n > 0 ? data_show_lay_out(&s, w->options[PREDICTED] != NULL)
                           : dt_fail(DT_E_USAGE, "the %s split has no samples", dt_split_name(split));
    if (st == DT_OK && w->options[PREDICTED]) st = read_predictions(&s, w->options[PREDICTED]);
    int place = 0;
    if (st == DT_OK && s.table.path) st = data_show_draw(&s, data, c, (dt_split)split, false, &place, s.n / 2);
    if (st == DT_OK) st = data_show_draw(&s, data, c, (dt_split)split, true, &place, s.n);
    if (st == DT_OK && place == 0)
        st = dt_fail(DT_E_USAGE, "%s has no row for a sample of the %s split", s.table.path, dt_split_name(split));
    if (st == DT_OK) st = data_show_save(&s, out);
    free(s.pixels);
    free(s.x);
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
            "spectrograms, series as lines, bands side by side (floats by asinh), classes and numbers below. Prints a "
            "line per sample: "
            "row and column, records, class.\n\n"
            "  dtrain data show configs/photos.yaml batch.png\n"
            "  dtrain data show configs/acoustic.yaml val.png --split val --n 25\n"
            "  dtrain data show runs/photos hits.png --split test --predicted predicted.csv\n",
    .run = data_show_run};
