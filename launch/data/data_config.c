// data_config.c: dtrain data config SET…: a config to begin with, made of what is in the set.
//
// Three looks. The catalog: which members records have, which columns can be the target, group records or weigh classes.
// Some members of each kind: sizes, rates, channels. Last the loader itself, on the config so far: mean and standard
// deviation of what the network gets. Each line says why; what cannot be known from the data is said so ("undecided"),
// and the likelier choice is taken. Words that people use for columns are lists here, and no rule reads a class name
// except to find letters and digits.

#include "base/core.h"
#include "base/sort.h"
#include "base/text.h"
#include "data/catalog/select.h"
#include "data/data.h"
#include "data/decode/array.h"
#include "data/decode/audio.h"
#include "data/decode/decode.h"
#include "data/pack/transform.h"
#include "launch/launch.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DATA_CONFIG_INPUTS = 6, LOOKED_AT = 200, VALUES_OF_EACH = 2000, LINE = 118, MANY = 20000 };

// Columns by the names that people give them.
static const char LABELS[] = "label|class|cls|target|y|category|diagnosis|outcome|species",
                  NUMBERS_TO_PREDICT[] = "price|age|score|rating|value|cost|yield|dose",
                  NEITHER[] = "id|index|idx|n|no|nr|num|number|name|file|filename|path|key|uuid|date|time|timestamp|"
                              "seed|hz|fs|sample_rate|duplicate_of",
                  GROUPS[] = "subject|patient|person|participant|volunteer|user|speaker|singer|animal|site|place|"
                             "location|hospital|center|centre|station|camera|device|machine|engine|bearing|pipe|video|"
                             "movie|clip|scene|session|recording|visit|study|series|slide|plate|subject_id|patient_id|"
                             "person_id|user_id|speaker_id|video_id|session_id|study_id",
                  PARTS[] = "split|part|subset|partition|set", MASKS[] = "mask|seg|segmentation|annotation";

typedef enum data_config_form {
    LAUNCH_PICTURE,
    LAUNCH_PLANES,
    LAUNCH_SOUND,
    LAUNCH_SERIES,
    LAUNCH_NUMBERS
} data_config_form;

// Members of one kind and one name, which become a field.
typedef struct input {
    const char *name, *source; // source NULL: the name finds the members
    data_config_form form;
    bool is_ext[DT_MAX_EXTENSIONS];
    uint32_t n; // records that have it
    // of the members looked at, medians
    bool shapes_differ, grey, f32, chw, is_fits;
    int height, width, size[2], channels;
    double rate;            // samples/s; 0: unknown
    double low, high;       // all but the darkest and brightest thousandth
    double length, seconds; // samples; long enough for nine of ten
    const char *normalize;  // the value, once measured
} input;

typedef struct column {
    const char *name;
    int id;
    uint32_t n_values, least, most; // records of a value
    bool is_class, is_number, is_group, is_part;
    bool is_whole; // a class, by few values, that are whole numbers
} column;

typedef struct plan {
    dt_arena arena;
    dt_reader *reader;
    const dt_catalog *c;
    const dt_cli_words *words;
    input in[DATA_CONFIG_INPUTS];
    int n_in;
    const char *left_out;
    int n_named; // extensions with a name in front, such as left.png
    bool alone;  // one kind of members, without names
    bool *used;  // records of the first input
    uint32_t n_used;
    column col[3 * DT_MAX_COLUMNS + 1];
    int n_col;
    const column *pairs, *target, *unit; // target NULL: the numbers below
    const column *numbers[DT_MAX_NORMALIZE];
    int n_numbers;             // with target NULL: to predict; else inputs
    int64_t n_train, measured; // samples, once measured
    FILE *out;
} plan;

#define TEXT(...)        dt_arena_printf(&p->arena, __VA_ARGS__)
#define SAY(indent, ...) say(p->out, indent, __VA_ARGS__)

// ---- small things --------------------------------------------------------------------------------------
static bool data_config_is_one_of(const char *words, const char *name) {
    char low[64];
    size_t n = 0;
    for (; name[n] && n < sizeof low - 1; n++) low[n] = (char)tolower((unsigned char)name[n]);
    low[n] = 0;
    return dt_word_index(words, low) >= 0;
}

// As YAML takes it anywhere: as it is, or in quotes.
static const char *yaml_text(plan *p, const char *text) {
    bool plain = isalpha((unsigned char)*text) && !data_config_is_one_of("null|true|false|yes|no|on|off|y|n", text);
    for (const char *s = text; *s && plain; s++) plain = isalnum((unsigned char)*s) || strchr("_-./", *s);
    if (plain) return text;
    char *word = dt_cli_override("", text);
    const char *quoted = dt_arena_strdup(&p->arena, word + 1); // behind the =
    free(word);
    return quoted;
}

// A name for a field: letters, digits and _.
static const char *field_name(plan *p, const char *text) {
    char *name = dt_arena_strdup(&p->arena, text);
    for (char *s = name; *s; s++)
        if (!isalnum((unsigned char)*s)) *s = '_';
    return isalpha((unsigned char)*name) ? name : TEXT("x%s", name);
}

// Sorts them.
static double quantile_of(double *v, size_t n, double share) {
    qsort(v, n, sizeof *v, dt_sort_reals);
    return n ? v[(size_t)(share * (double)(n - 1) + 0.5)] : 0;
}

// usual: in rising order, ended by 0.
static double nearest(const double *usual, double v) {
    while (usual[1] > 0 && v * v > usual[0] * usual[1]) usual++;
    return *usual;
}

// A line of YAML; its reason follows a tab, and stands above the line where both are too long for one.
static void say(FILE *out, int indent, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void say(FILE *out, int indent, const char *format, ...) {
    char *text;
    va_list args;
    va_start(args, format);
    const int n = vasprintf(&text, format, args);
    va_end(args);
    if (n < 0) return;
    const char *line = strtok(text, "\t"), *why = strtok(NULL, ""), *gap = why ? " # " : "";
    if (n + indent + 2 > LINE && why) fprintf(out, "%*s# %s\n", indent, "", why);
    if (n + indent + 2 > LINE) why = gap = "";
    fprintf(out, "%*s%s%s%s\n", indent, "", line, gap, why ? why : "");
    free(text);
}

static int64_t member_of(const dt_catalog *c, const input *in, uint32_t r) {
    const dt_record *rec = &c->records[r];
    for (uint32_t m = rec->first_member; m < rec->first_member + rec->n_members; m++)
        if (in->is_ext[c->members[m].ext]) return m;
    return -1;
}

// ---- members -------------------------------------------------------------------------------------------
static void add_extension(plan *p, uint32_t e) {
    static const char *const usual[] = {"image", "image", "sound", "signal", "numbers"};
    const char *ext = dt_catalog_str(p->c, p->c->exts[e]), *dot = strrchr(ext, '.');
    const dt_kind *kind = dt_kind_of_name(ext);
    const bool text = dt_text_ends(ext, "csv|tsv");
    const char *prefix = dot ? TEXT("%.*s", (int)strcspn(ext, "."), ext) : "";
    if ((!kind || !kind->uses) && !text) return;
    p->n_named += *prefix != 0;
    if (data_config_is_one_of(MASKS, prefix)) {
        p->left_out = "masks are left out, as no network here predicts them";
        return;
    }
    data_config_form form = text || kind->uses == DT_KIND_ARRAY ? LAUNCH_SERIES : LAUNCH_PICTURE;
    if (kind && kind->is_image && form == LAUNCH_SERIES) form = LAUNCH_PLANES;
    if (kind && kind->uses == DT_KIND_AUDIO) form = LAUNCH_SOUND;
    const char *name = *prefix ? field_name(p, prefix) : usual[form];
    int i = 0;
    while (i < p->n_in && (p->in[i].form != form || strcmp(p->in[i].name, name) != 0)) i++;
    if (i == DATA_CONFIG_INPUTS) return;
    input *in = &p->in[i];
    const char *source = *prefix ? strcmp(name, prefix) != 0 ? prefix : NULL : ext;
    if (i == p->n_in)
        *in = (input){.name = name, .form = form, .source = source}, p->n_in++;
    else if (!*prefix)
        in->source = NULL; // several extensions: any picture, any sound
    in->is_ext[e] = true;
    in->is_fits |= kind && kind->id == DT_KIND_ID_fits;
}

// The most frequent comes first.
static void find_inputs(plan *p) {
    for (uint32_t e = 0; e < p->c->n_exts; e++) add_extension(p, e);
    for (int i = 0; i < p->n_in; i++) {
        for (uint32_t r = 0; r < p->c->n_records; r++) p->in[i].n += member_of(p->c, &p->in[i], r) >= 0;
        const input first = p->in[0];
        if (p->in[i].n <= first.n) continue;
        p->in[0] = p->in[i];
        p->in[i] = first;
    }
}

typedef struct looks {
    dt_decoder *decoder;
    dt_resizer *resizer;
    dt_audio_file *audio;
    double height[LOOKED_AT], width[LOOKED_AT], length[LOOKED_AT], rate[LOOKED_AT];
    double value[LOOKED_AT * VALUES_OF_EACH];
    size_t n, n_values;
    bool uneven, fine; // lengths differ; values are not whole and 0..255
} looks;

static void look_at_pixels(looks *l, input *in, const dt_image *m) {
    const size_t n = (size_t)m->width * (size_t)m->height * (size_t)m->channels, step = n / VALUES_OF_EACH + 1;
    for (size_t i = 0; m->real && i < n; i += step) {
        const double v = m->real[i];
        l->fine |= v != floor(v) || v < 0 || v > 255;
        l->value[l->n_values++] = v;
    }
    for (size_t i = 0; !m->real && in->grey && i < n; i += 3)
        in->grey = m->data[i] == m->data[i + 1] && m->data[i] == m->data[i + 2];
    in->f32 |= m->real || m->greatest > m->least;
    in->channels = m->real ? m->channels : in->grey ? 1 : 3;
    l->height[l->n] = m->full_height;
    l->width[l->n] = m->full_width;
}

// What NPY arrays are is in their shape.
static void look_at_shape(input *in, dt_span bytes) {
    dt_npy a;
    if (in->form != LAUNCH_PLANES || !dt_npy_is(bytes) || dt_npy_read(bytes, &a) != DT_OK) return;
    if (a.n_axes == 1) in->form = LAUNCH_NUMBERS;
    if (a.n_axes == 2 && a.shape[1] <= 16 && a.shape[0] >= 4 * a.shape[1]) in->form = LAUNCH_SERIES;
    in->chw = a.n_axes == 3 && a.shape[0] < a.shape[2] && a.shape[0] <= 16;
    if (in->form != LAUNCH_PLANES && strcmp(in->name, "image") == 0)
        in->name = in->form == LAUNCH_NUMBERS ? "numbers" : "signal";
}

static dt_status look_at_member(looks *l, input *in, dt_span bytes) {
    if (l->n == 0) look_at_shape(in, bytes);
    if (in->form <= LAUNCH_PLANES) {
        const dt_array_spec spec = {.f32 = true, .chw = in->chw, .softening = 0.1};
        const dt_image_want planes = {.array = &spec}, picture = {.channels = 3, .rows_above = DT_MAX_PIXELS};
        dt_image m;
        DT_TRY(dt_decode_image_part(l->decoder, bytes, in->form == LAUNCH_PLANES ? &planes : &picture, &m));
        static uint8_t small[64 * 64 * 3];
        if (m.next) { // larger than what is looked at whole
            DT_TRY(dt_resize(l->resizer, &m, NULL, small, 64, 64));
            m.data = small, m.width = m.height = 64;
        }
        look_at_pixels(l, in, &m);
    } else {
        static const dt_audio_clip as_it_is;
        const bool sound = in->form == LAUNCH_SOUND;
        dt_audio_info info;
        DT_TRY(sound ? dt_audio_file_open(l->audio, bytes, &info)
                     : dt_audio_file_open_series(l->audio, bytes, &as_it_is, &info));
        in->channels = sound ? 1 : info.channels;
        l->rate[l->n] = info.rate;
        l->length[l->n] = (double)info.n_samples;
        l->uneven |= l->length[l->n] != l->length[0];
    }
    l->n++;
    return DT_OK;
}

static void conclude_image(looks *l, input *in) {
    static const double usual[] = {8,   16,  24,  32,  40,  48,  56,  64,  80,  96,  112, 128,
                                   160, 192, 224, 256, 288, 320, 384, 448, 512, 640, 0};
    double *aspect = l->length;
    for (size_t i = 0; i < l->n; i++) aspect[i] = l->width[i] / l->height[i];
    in->shapes_differ = quantile_of(aspect, l->n, 0.95) > 1.1 * quantile_of(aspect, l->n, 0.05);
    in->height = (int)quantile_of(l->height, l->n, 0.5);
    in->width = (int)quantile_of(l->width, l->n, 0.5);
    // the shorter side at most so long; small pictures twice their size, as networks begin with two halvings
    double scale = fmin(1, (in->n < MANY ? 128.0 : 224.0) / fmin(in->height, in->width));
    if (in->form == LAUNCH_PICTURE && in->height <= 40 && in->width <= 40) scale = 2;
    in->size[0] = (int)nearest(usual, in->height * scale);
    in->size[1] = (int)nearest(usual, in->width * scale);
    if (in->form == LAUNCH_PLANES) in->f32 = l->fine || (in->channels != 1 && in->channels != 3);
    in->high = quantile_of(l->value, l->n_values, 0.999);
    in->low = l->value[l->n_values / 1000]; // sorted now
}

static void conclude_sound(looks *l, input *in) {
    static const double rates[] = {1000, 2000, 4000, 8000, 11025, 16000, 0}, lengths[] = {10, 5, 3, 2, 1, 0.5, 0.25, 0};
    double *seconds = l->height;
    for (size_t i = 0; i < l->n; i++) seconds[i] = l->length[i] / fmax(l->rate[i], 1);
    const double most = quantile_of(seconds, l->n, 0.9), rate = quantile_of(l->rate, l->n, 0.5);
    for (int i = 0; lengths[i] > 0 && (i == 0 || lengths[i] >= most * 0.99); i++) in->seconds = lengths[i];
    in->rate = rate >= 1000 && in->form == LAUNCH_SOUND ? nearest(rates, rate) : rate;
    // all as long, as --segment cuts them
    if (in->form == LAUNCH_SERIES && most <= *lengths && quantile_of(seconds, l->n, 0) == most) in->seconds = most;
    in->length = quantile_of(l->length, l->n, 0.5);
    if (in->form == LAUNCH_NUMBERS && l->uneven) in->form = LAUNCH_SERIES;
}

// Some members, evenly spread over the set.
static dt_status look_at_input(plan *p, input *in) {
    looks *l = dt_xcalloc(1, sizeof *l);
    l->decoder = dt_decoder_create();
    l->resizer = dt_resizer_create();
    l->audio = dt_audio_file_create();
    in->grey = true;
    dt_buffer bytes = {0};
    const uint32_t step = (in->n + LOOKED_AT - 1) / LOOKED_AT;
    const int rate = dt_columns_find(&p->c->table, "rate", DT_NUMBER_COLUMN);
    dt_status st = DT_OK;
    for (uint32_t r = 0, i = 0; r < p->c->n_records && (st == DT_OK || st == DT_E_DATA); r++) {
        const int64_t m = member_of(p->c, in, r);
        dt_span span;
        if (m < 0 || i++ % step != 0) continue;
        st = dt_reader_read(p->reader, r, (uint32_t)m, true, &bytes, &span);
        if (st == DT_OK && look_at_member(l, in, span) != DT_OK)
            st = dt_set_context(p->reader, r, (uint32_t)m, DT_E_DATA);
        // of a series that pack cut
        if (l->n > 0 && rate >= 0 && l->rate[l->n - 1] == 0) l->rate[l->n - 1] = p->c->table.columns[rate].number[r];
    }
    if (l->n > 0 && st == DT_E_DATA) st = DT_OK; // the loader says what becomes of bad records
    if (st == DT_OK) (in->form <= LAUNCH_PLANES ? conclude_image : conclude_sound)(l, in);
    dt_buffer_fini(&bytes);
    dt_decoder_destroy(l->decoder);
    dt_resizer_destroy(l->resizer);
    dt_audio_file_destroy(l->audio);
    free(l);
    return st;
}

// ---- columns -------------------------------------------------------------------------------------------
static void add_column(plan *p, int k) {
    const dt_catalog *c = p->c;
    const dt_column *t = &c->table.columns[k];
    column *col = &p->col[p->n_col];
    *col = (column){.name = dt_columns_name(&c->table, k), .id = k, .least = UINT32_MAX};
    if (t->kind == DT_JSON_COLUMN || dt_transform_has_column(NULL, col->name)) return; // or measured by pack
    uint32_t *n = dt_xcalloc((size_t)t->n_values + 1, sizeof *n), n_with = 0;
    for (uint32_t r = 0; r < c->n_records; r++) {
        const bool has = p->used[r] && dt_columns_has(&c->table, k, r);
        n_with += has;
        if (has && !t->number) n[t->cell[r]]++;
    }
    for (uint32_t v = 0; v < t->n_values && !t->number; v++) {
        col->n_values += n[v] > 0;
        if (n[v] > col->most) col->most = n[v];
        if (n[v] && n[v] < col->least) col->least = n[v];
    }
    free(n);
    dt_column_accessor a;
    dt_column_accessor_init(&a, c, DT_N_FIXED_COLUMNS + k);
    const bool neither = data_config_is_one_of(NEITHER, col->name), several = col->n_values > 1;
    const double most = data_config_is_one_of(NUMBERS_TO_PREDICT, col->name) ? 10 : fmax(50, n_with / 20.0);
    const bool is_real = a.is_number && (t->number || col->n_values > most); // more values than classes have
    dt_column_accessor_fini(&a);
    col->is_number = is_real && !neither;
    col->is_part = data_config_is_one_of(PARTS, col->name);
    col->is_group = several && col->n_values * 2 <= n_with && data_config_is_one_of(GROUPS, col->name);
    col->is_class = several && col->n_values * 4 <= n_with && !neither && !is_real && !col->is_part;
    col->is_whole = col->is_class && a.is_number;
    p->n_col += n_with * 10ull >= p->n_used * 9ull; // few records lack it
}

// The other kinds of members: those of the same records are further inputs; those of records of their own make pairs.
static void combine_inputs(plan *p) {
    const dt_catalog *c = p->c;
    p->used = dt_xcalloc((size_t)c->n_records + 1, sizeof *p->used);
    uint32_t both[DATA_CONFIG_INPUTS] = {0};
    for (uint32_t r = 0; r < c->n_records; r++) {
        p->n_used += p->used[r] = member_of(c, &p->in[0], r) >= 0;
        for (int i = 1; i < p->n_in; i++) both[i] += p->used[r] && member_of(c, &p->in[i], r) >= 0;
    }
    for (uint32_t k = 0; k < c->table.n_columns; k++) add_column(p, (int)k);
    int n = 1;
    for (int i = 1; i < p->n_in; i++)
        if (both[i] * 10ull >= p->n_used * 9ull) p->in[n++] = p->in[i];
    for (int k = 0; n == 1 && p->n_in > 1 && both[1] == 0 && k < p->n_col; k++) {
        const column *col = &p->col[k], *best = p->pairs;
        uint32_t n_with = 0;
        for (uint32_t r = 0; r < c->n_records; r++)
            n_with += member_of(c, &p->in[1], r) >= 0 && dt_columns_has(&c->table, col->id, r);
        if ((!col->is_class && !col->is_group) || n_with * 10ull < p->in[1].n * 9ull) continue;
        const bool better = !best || col->is_group > best->is_group ||
                            (col->is_group == best->is_group && col->n_values > best->n_values);
        if (better && !data_config_is_one_of(LABELS, col->name)) p->pairs = col;
    }
    if (p->pairs) n = 2;
    if (n < p->n_in) p->left_out = TEXT("other records, with %s of another kind, are left out", p->in[n].name);
    p->n_in = n;
}

// How likely a column is the target; 0: it is none.
static int likelihood(const plan *p, const column *c, const char *wanted) {
    if (!c->is_class && !c->is_number) return 0;
    if (wanted) return strcmp(c->name, wanted) == 0;
    if (c == p->pairs) return 6;
    if (data_config_is_one_of(LABELS, c->name)) return c->is_class ? 5 : 4;
    if (c->is_number) return data_config_is_one_of(NUMBERS_TO_PREDICT, c->name) ? 3 : 0;
    return c->is_group ? 1 : 2;
}

// Beside a number to predict: numbers, and whole ones of few values (rooms), but no identity.
static bool is_number_input(const plan *p, const column *c) {
    const bool counts =
        p->target && c->is_whole && !c->is_group && c != p->pairs && !data_config_is_one_of(LABELS, c->name);
    return c != p->target && (c->is_number || counts);
}

static dt_status choose_target(plan *p, const char *wanted) {
    int best = 0;
    for (int k = 0; k < p->n_col; k++) {
        const int now = likelihood(p, &p->col[k], wanted);
        p->n_numbers += p->col[k].is_number;
        if (now > best) p->target = &p->col[k], best = now;
    }
    if (best == 1 && !wanted && p->n_numbers > 0) p->target = NULL; // numbers rather than a group
    if (!p->target && (wanted || p->n_numbers == 0))
        return dt_fail(DT_E_USAGE,
                       "%s%scolumn can be the target: most records have its value, and classes are two and more, of "
                       "several records each. Pack again with a folder per class, --pattern or --join",
                       wanted ? wanted : "", wanted ? ": no such " : "no ");
    // the numbers beside a number are inputs; without another target they are the target
    p->n_numbers = 0;
    for (int k = 0; k < p->n_col && (!p->target || p->target->is_number) && p->n_numbers < DT_MAX_NORMALIZE; k++)
        if (is_number_input(p, &p->col[k])) p->numbers[p->n_numbers++] = &p->col[k];
    if (!p->target && p->n_numbers == 1) p->target = p->numbers[--p->n_numbers];
    return DT_OK;
}

static bool is_class_target(const plan *p) {
    return p->target && !p->target->is_number;
}

// A class beside a number to predict, which new samples may have: no identity, and not what the set is of.
static bool is_class_input(const plan *p, const column *c) {
    return p->target && p->target->is_number && c->is_class && !c->is_whole && !c->is_group && c != p->pairs &&
           !data_config_is_one_of(LABELS, c->name);
}

static void choose_unit(plan *p) {
    enum { FEW = 8 };
    for (int k = 0; k < p->n_col && !p->pairs; k++) {
        const column *col = &p->col[k];
        if (col == p->target || col->n_values < FEW || !col->is_group) continue;
        if (!p->unit || col->n_values < p->unit->n_values) p->unit = col;
    }
}

// ---- the config ----------------------------------------------------------------------------------------
static bool is_waveform(const input *in) {
    return in->form == LAUNCH_SERIES || (in->form == LAUNCH_SOUND && in->rate < 1000);
}

// "0" to "9", "a" to "z": characters, which no flip leaves as they are.
static bool has_characters(const plan *p) {
    bool all = p->target->n_values >= 5;
    for (uint32_t v = 0; all && v < p->c->table.columns[p->target->id].n_values; v++) {
        const char *value = dt_catalog_str(p->c, p->c->table.columns[p->target->id].values[v]);
        all = dt_text_utf8_length(value) == strlen(value); // that of its first character
    }
    return all;
}

// Columns that could be the target as well, as a comment names them.
static const char *list_others(plan *p) {
    const char *list = "";
    for (int k = 0, n = 0; k < p->n_col; k++) {
        const column *c = &p->col[k];
        const bool other = c != p->target && (c->is_class || (c->is_number && p->target));
        if (other && ++n <= 6) list = TEXT("%s%s%s", list, n > 1 ? ", " : "", yaml_text(p, c->name));
        if (other && n == 7) list = TEXT("%s, ...", list);
    }
    return list;
}

// A field's name for a column, which no input has.
static const char *column_field(plan *p, const char *column_name, const char *role) {
    const char *name = field_name(p, column_name);
    for (int i = 0; i < p->n_in; i++)
        if (strcmp(p->in[i].name, name) == 0) return TEXT("%s_%s", name, role);
    return name;
}

static const char *target_name(plan *p) {
    return column_field(p, p->target ? p->target->name : "target", "target");
}

static void write_image(plan *p, const input *in) {
    const char *why =
        in->size[0] * 2 <= in->height ? "larger sizes show more and take longer" : "the nearest usual size";
    if (in->size[0] > in->height * 3 / 2) why = "twice that, as networks begin with two halvings";
    SAY(6, "channels: %d\t%s", in->channels, in->f32 ? "bands" : in->channels == 1 ? "files are grey" : "colour");
    SAY(6, "size: [%d, %d]\tthe median is %d x %d; %s", in->size[0], in->size[1], in->height, in->width, why);
    if (in->shapes_differ) SAY(6, "fit: crop\tshapes differ: the centre is cut out, nothing is squeezed");
    if (in->chw) SAY(6, "layout: chw\tbands come first in the files");
    if (in->f32) SAY(6, "dtype: f32\tvalues as they are; bytes would keep too little of them");
    if (!in->is_fits || !in->f32) return;
    SAY(6, "stretch: asinh\tkeeps faint structure beside bright sources");
    SAY(6, "range: [%.3g, %.3g]\tall but the darkest and brightest thousandth, for all bands", in->low, in->high);
}

static void write_sound(plan *p, const input *in) {
    const bool series = in->form == LAUNCH_SERIES;
    if (series) SAY(6, "channels: %d\tcolumns of a series", in->channels);
    if (in->rate == 0) {
        SAY(6, "rate: 1\tundecided: files do not state it: write the sensor's rate in Hz, and seconds to match");
        SAY(6, "seconds: %.0f\tthe median length in samples; training takes random windows", fmin(in->length, 4096));
    } else {
        SAY(6, "rate: %.6g\t%s", in->rate, series ? "that of the files" : "the nearest usual one, at most 16000");
        SAY(6, "seconds: %.6g\tholds nine of ten files; shorter ones end in zeros", in->seconds);
    }
    if (is_waveform(in)) {
        SAY(6, "features: waveform\tthe values themselves, for a network along time");
        return;
    }
    SAY(6, "features: logmel\tan image of the sound");
    SAY(6, "hop: %.0f\t10 ms", floor(in->rate / 100));
    SAY(6, "n_mels: %d\tusual for this rate", in->rate > 8000 ? 64 : 40);
}

static void write_input(plan *p, const input *in) {
    const bool is_auto = in->form == LAUNCH_NUMBERS && in->length <= DT_MAX_NORMALIZE;
    SAY(4, "%s:", in->name);
    SAY(6, "kind: %s", in->form <= LAUNCH_PLANES ? "image" : in->form == LAUNCH_NUMBERS ? "vector" : "audio");
    // an only input is found by its kind: photographs to predict may be PNG where these are JPEG
    if (in->source && (!p->alone || in->form == LAUNCH_NUMBERS))
        SAY(6, "source: %s\t%u records have it", yaml_text(p, in->source), in->n);
    if (in->form <= LAUNCH_PLANES) write_image(p, in);
    if (in->form == LAUNCH_SOUND || in->form == LAUNCH_SERIES) write_sound(p, in);
    if (in->form == LAUNCH_NUMBERS) SAY(6, "size: %.0f\tnumbers of a record", in->length);
    if (is_auto) SAY(6, "normalize: auto\tmean and standard deviation of the training split");
    if (!is_auto && in->normalize)
        SAY(6, "normalize: %s\tmeasured on %lld samples", in->normalize, (long long)p->measured);
}

static void write_target(plan *p) {
    const char *name = target_name(p), *others = list_others(p), *list = "";
    const column *t = p->target;
    for (int i = 0; i < p->n_numbers; i++)
        list = TEXT("%s%s%s", list, i ? ", " : "", yaml_text(p, p->numbers[i]->name));
    if (*others) SAY(4, "# undecided: %s could be the target as well: --target NAME takes one", others);
    if (is_class_target(p))
        SAY(4, "%s: {kind: class, source: %s, classes: %u}\tthe target: %u to %u records of each", name,
            yaml_text(p, t->name), p->c->table.columns[t->id].n_values, t->least, t->most);
    else if (t)
        SAY(4, "%s: {kind: real, source: %s, normalize: auto}\tthe target", name, yaml_text(p, t->name));
    if (p->n_numbers > 0)
        SAY(4, "%s: {kind: vector, source: [%s], normalize: auto}\t%s", t ? "columns" : name, list,
            t ? "undecided: inputs, if new samples have them" : "the target: all numbers, which weigh alike");
    for (int k = 0; k < p->n_col; k++)
        if (is_class_input(p, &p->col[k]))
            SAY(4, "%s: {kind: class, source: %s, input: embedding}\tundecided: an input, if new samples have it",
                column_field(p, p->col[k].name, "class"), yaml_text(p, p->col[k].name));
}

// "split = 'test'" in quotes, of a column whose values name the parts or end in such a name; else the share.
static const char *part_of(plan *p, const char *words, const char *share) {
    for (int k = 0; k < p->n_col; k++) {
        const dt_column *t = &p->c->table.columns[p->col[k].id];
        for (uint32_t v = 0; v < t->n_values && p->col[k].is_part; v++) {
            const char *value = dt_catalog_str(p->c, t->values[v]), *word = value + strlen(value);
            while (word > value && isalpha((unsigned char)word[-1])) word--;
            if (!data_config_is_one_of(words, word) || strpbrk(value, "'\"\\")) continue;
            return TEXT("\"%s = '%s'\"", p->col[k].name, value);
        }
    }
    return share;
}

static void write_split(plan *p) {
    const char *test = part_of(p, "test|testing", "0.2"), *why = "no column groups records (subject, site, video)";
    const column *unit = p->unit;
    const bool stratify = is_class_target(p) && !unit;
    const bool few = unit ? unit->n_values < 20 : p->n_used < 100 || (p->pairs && p->pairs->least < 10);
    for (int k = 0; k < p->n_col; k++)
        if (p->col[k].is_group && &p->col[k] != p->target)
            why = TEXT("undecided: unit: %s is stricter, but has only %u values", p->col[k].name, p->col[k].n_values);
    if (p->pairs) why = TEXT("no file is in two splits; unit: %s tests on others than in training", p->pairs->name);
    if (unit) why = TEXT("tests on other values of %s than in training; there are %u", unit->name, unit->n_values);
    if (*test == '"') why = "the set names its test split";
    SAY(2, "split: {unit: %s%s%s, val: %s, test: %s}\t%s", unit ? yaml_text(p, unit->name) : "record",
        stratify ? ", stratify: " : "", stratify ? yaml_text(p, p->target->name) : "",
        part_of(p, "val|valid|validation|dev", few ? "0.2" : "0.1"), test, why);
}

// What leaves the target as it is; a tab and why follow. NULL: nothing is known to.
static const char *augment_of(plan *p, const input *in) {
    const int mask = in->seconds > 0.2 ? (int)(in->seconds * 10) : 2; // frames
    if (in->form == LAUNCH_SOUND && !is_waveform(in))
        return TEXT("[{noise: [10, 50]}, {gain: 6}, {time_shift: 0.05}, {freq_mask: %d}, {time_mask: %d}]\tno flips: "
                    "up is high, right is late",
                    in->rate > 8000 ? 6 : 4, mask);
    if (in->is_fits) return "[{flip: both}, {rotate: 180}]\tthe sky has no up and no left";
    if (in->form != LAUNCH_PICTURE || strstr(in->name, "spec")) return NULL;
    if (!is_class_target(p))
        return "[{brightness: 0.2}, {contrast: 0.2}]\ta flip may change the numbers; see `mirror` of a field";
    if (p->pairs || p->target->is_group) return "[{rotate: 5}, {shift: 0.03}]\tno flips: left and right differ";
    if (has_characters(p)) return "[{rotate: 10}, {shift: 0.08}]\tno flips: the classes are letters or digits";
    if (in->channels == 1) return "[{rotate: 10}, {shift: 0.08}]\tno flips: scans have a left and a right";
    return "[{flip: horizontal}, {shift: 0.05}]\tphotographs may be mirrored; text may not";
}

static void write_augment(plan *p) {
    bool any = false;
    for (int i = 0; i < p->n_in; i++) {
        const char *steps = augment_of(p, &p->in[i]);
        if (steps && !any) SAY(2, "augment:");
        if (steps) SAY(4, "%s: %s", p->in[i].name, steps);
        any |= steps != NULL;
    }
}

static bool is_fusion(const plan *p) {
    bool beside = p->target && p->n_numbers > 0;
    // numbers and classes are inputs of mlp as well
    for (int k = 0; k < p->n_col && p->in[0].form != LAUNCH_NUMBERS; k++) beside |= is_class_input(p, &p->col[k]);
    return p->n_in > 1 || beside;
}

static void write_model(plan *p) {
    const input *in = &p->in[0];
    const bool many = p->n_used >= MANY;
    SAY(0, "model:");
    if (is_fusion(p)) SAY(2, "name: fusion\tan encoder for each field and a joint head");
    for (int i = 0, n = 0; is_fusion(p) && i < p->n_in; i++) {
        if (is_waveform(&p->in[i]) && n++ == 0) SAY(2, "encoders:");
        if (is_waveform(&p->in[i])) SAY(4, "%s: {name: cnn1d}\ta network along time", p->in[i].name);
    }
    if (is_fusion(p)) return;
    if (in->form == LAUNCH_NUMBERS || is_waveform(in)) {
        SAY(2, is_waveform(in) ? "name: cnn1d\tconvolutions along time" : "name: mlp\ttwo hidden layers");
        return;
    }
    const int width = many ? 64 : in->form == LAUNCH_SOUND ? 16 : 32;
    SAY(2, "name: resnet");
    SAY(2, "depth: %d\tfor %lld training samples; 34 and 50 suit more", many ? 18 : 10, (long long)p->n_train);
    SAY(2, "width: %d\tchannels of the first stage; 64 is usual for large sets", width);
    if (in->form == LAUNCH_PICTURE && in->channels == 3)
        SAY(2, "# init: resnet18.pth\ttorchvision's weights, with depth: 18, width: 64, normalize: imagenet");
}

static void write_train(plan *p) {
    enum { STEPS = 1200, LEAST = 3, MOST = 40 }; // what a small network needs, whatever the size of the set
    int batch = p->n_train < 500 ? 16 : p->n_train < 5000 ? 32 : 64;
    while (batch > 1 && batch > p->n_train) batch /= 2;
    // pairs show each record several times in an epoch
    const double n = fmax(1, (double)p->n_train), times = p->pairs ? sqrt(fmax(1, n / p->n_used)) : 1;
    const int epochs = (int)fmax(LEAST, fmin(MOST, STEPS * (double)batch / n / times));
    const bool class = is_class_target(p), numbers = p->in[p->n_in - 1].form == LAUNCH_NUMBERS;
    const column *t = p->target;
    const bool uneven = class && t->most > 3 * t->least;
    SAY(0, "train:");
    SAY(2, "epochs: %d\t%.0f steps; more as long as validation improves", epochs, epochs * floor(n / batch));
    SAY(2, "global_batch: %d\tusual for a set of this size", batch);
    // a class beside numbers alone is the target by itself
    if ((t && p->n_numbers > 0) || (numbers && (!class || p->n_in > 1)))
        SAY(2, "targets: {%s: {loss: %s%s}}\tnamed, as several fields could be the target", target_name(p),
            class ? "cross_entropy" : "smooth_l1", uneven ? ", class_weights: balanced" : "");
    else if (!class)
        SAY(2, "loss: smooth_l1\tfor numbers; outliers weigh less than in mse");
    else if (uneven)
        SAY(2, "class_weights: balanced\tclasses are uneven: %u to %u records", t->least, t->most);
    SAY(2, "optimizer: {name: adamw, lr: 2.0e-3, weight_decay: 0.02}\tfor small networks; lr: 1.0e-4 with init");
    SAY(2, "schedule: {name: cosine, warmup: 5%%}\tbegins gently and ends near 0");
    if (!class || is_fusion(p)) SAY(2, "clip_norm: 1.0\tagainst single large gradients");
    SAY(0, "eval: {metrics: [%s%sloss%s]}\tafter each epoch, on the validation split",
        class ? "accuracy, " : "mae, rmse, ", class && t->n_values == 2 ? "roc_auc, " : "",
        class && t->n_values <= 50 ? ", confusion" : "");
}

static char *config_text(plan *p) {
    const dt_cli_words *w = p->words;
    const char *paths = "";
    char *text = NULL;
    size_t n = 0;
    p->out = open_memstream(&text, &n);
    for (int i = 0; i < w->n_words; i++) paths = TEXT("%s%s%s", paths, i ? ", " : "", yaml_text(p, w->words[i]));
    SAY(0, "# A config to begin with, by `dtrain data config`, of %u records. Change what you know better:", p->n_used);
    SAY(0, "# lines with \"undecided\" are guesses. The run is named after this file.\ndata:");
    SAY(2, w->n_words > 1 ? "path: [%s]" : "path: %s", paths);
    if (p->left_out) SAY(2, "# undecided: %s", p->left_out);
    if (p->pairs)
        SAY(2, "view: {pairs: {fields: [%s, %s], within: %s}}\tno record has both: a sample is one of each",
            p->in[0].name, p->in[1].name, yaml_text(p, p->pairs->name));
    SAY(2, "fields:");
    for (int i = 0; i < p->n_in; i++) write_input(p, &p->in[i]);
    write_target(p);
    write_split(p);
    write_augment(p);
    write_model(p);
    write_train(p);
    fclose(p->out);
    return text;
}

// ---- mean and deviation --------------------------------------------------------------------------------
typedef struct moments {
    long double sum[DT_MAX_NORMALIZE], square[DT_MAX_NORMALIZE]; // by channel
    uint64_t n;
} moments;

static void add_sample(moments *m, const dt_field_info *f, const void *x) {
    const int64_t n = dt_shape_elements(&f->sample_shape), channels = f->is_image ? f->sample_shape.d[2] : 1;
    for (int64_t i = 0; i < n; i++) {
        const long double v = f->dtype == DT_U8 ? ((const uint8_t *)x)[i] / 255.0 : (double)((const float *)x)[i];
        m->sum[i % channels] += v;
        m->square[i % channels] += v * v;
    }
    m->n += (uint64_t)(n / channels);
}

static const char *print_moments(plan *p, const dt_field_info *f, const moments *m) {
    const int64_t channels = f->is_image ? f->sample_shape.d[2] : 1;
    const char *means = "", *stds = "";
    for (int64_t c = 0; c < channels; c++) {
        const long double mean = m->sum[c] / m->n, var = m->square[c] / m->n - mean * mean;
        const dt_field_info at = {.mean = {(double)mean}, .std = {var > 0 ? sqrt((double)var) : 1}};
        means = TEXT("%s%s%.*g", means, c ? ", " : "", dt_field_digits(&at, 0, 3), at.mean[0]);
        stds = TEXT("%s%s%.3g", stds, c ? ", " : "", at.std[0]);
    }
    return TEXT("{mean: [%s], std: [%s]}", means, stds);
}

static dt_status measure_samples(plan *p, dt_dataset *data) {
    static const int micros[] = {0};
    const dt_source_request r = {
        .split = DT_SPLIT_TRAIN, .global_batch = 1, .micro_batch = 1, .micros = micros, .n_micro = 1, .end_step = -1};
    const dt_fields *fields = &((const dt_data *)data->self)->fields;
    moments *m = dt_xcalloc(DATA_CONFIG_INPUTS, sizeof *m);
    dt_batch_source *source = NULL;
    dt_status st = data->open(data, &r, &source);
    if (st == DT_OK) p->n_train = source->n_samples;
    p->measured = p->n_train < LOOKED_AT ? p->n_train : LOOKED_AT;
    for (int64_t i = 0; i < p->measured && st == DT_OK; i++) {
        const dt_batch *b;
        st = source->get(source, i, 0, &b, NULL);
        for (int k = 0; k < p->n_in && st == DT_OK; k++) {
            const int f = dt_fields_find(fields, p->in[k].name);
            add_sample(&m[k], &fields->info[f], b->field[f]);
            if (i == p->measured - 1) p->in[k].normalize = print_moments(p, &fields->info[f], &m[k]);
        }
        if (st == DT_OK) source->release(source, b);
    }
    if (source) source->close(source);
    free(m);
    return st;
}

// Opens the data as the config so far says, which checks it as well.
static dt_status measure_inputs(plan *p) {
    static const char *const name[] = {"run.name=config"};
    char *text = config_text(p);
    dt_config *c = NULL;
    dt_dataset *data = NULL;
    dt_status st = dt_config_parse(&c, "data config", text, strlen(text), name, 1);
    if (st == DT_OK) st = dt_data_open(&data, c, NULL, 1, NULL);
    if (st == DT_OK) st = measure_samples(p, data);
    if (data) data->close(data);
    dt_config_destroy(c);
    free(text);
    return st;
}

// ---- the verb ------------------------------------------------------------------------------------------
enum { TARGET };
static const dt_cli_option options[] = {
    [TARGET] = {"--target", "COLUMN", "the column to predict (default: the likeliest)"}, {NULL}};

static dt_status make_config(plan *p, const char *target) {
    find_inputs(p);
    if (p->n_in == 0)
        return dt_fail(DT_E_DATA, "no image, sound, series or numbers: dtrain data stat lists the members");
    p->alone = p->n_in == 1 && p->n_named == 0;
    combine_inputs(p);
    for (int i = 0; i < p->n_in; i++) DT_TRY(look_at_input(p, &p->in[i]));
    DT_TRY(choose_target(p, target));
    choose_unit(p);
    DT_TRY(measure_inputs(p));
    char *text = config_text(p);
    const bool written = fputs(text, stdout) >= 0 && fflush(stdout) == 0;
    free(text);
    return written ? DT_OK : dt_fail(DT_E_STORAGE, "cannot write the config");
}

static dt_status data_config_run(const dt_cli_words *w) {
    DT_TRY(dt_cli_expect_words(w, "data config", 1, 1000000, "SET…"));
    plan *p = dt_xcalloc(1, sizeof *p);
    dt_arena_init(&p->arena);
    p->words = w;
    dt_status st = dt_reader_open(&p->reader, w->words, (size_t)w->n_words);
    if (st == DT_OK) {
        p->c = p->reader->catalog;
        st = make_config(p, w->options[TARGET]);
        dt_reader_close(p->reader);
    }
    free(p->used);
    dt_arena_fini(&p->arena);
    free(p);
    return st;
}

const dt_cli_command dt_cli_data_config = {
    .options = options,
    .text =
        "Looks at a data set and prints a config to begin with: fields with kind, channels, size, mean and standard "
        "deviation, the target, the split, augmentation, a network and its training. A comment on each line says "
        "why; where the data leave a choice open, the comment says \"undecided\" and the likelier one is taken. Reads "
        "the catalog and 200 samples.\n\n"
        "  dtrain pack photos photos.tar\n"
        "  dtrain data config photos.tar > photos.yaml\n"
        "  dtrain photos.yaml\n"
        "  dtrain data config xrays.lmdb --target finding > xrays.yaml\n",
    .run = data_config_run};
