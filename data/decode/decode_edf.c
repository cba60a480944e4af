// decode_edf.c: EDF, EDF+ and BDF, files of EEG, ECG and sleep, as series.
//
// A header of ASCII fields (256 bytes, then 256 for each signal), then data records: for each signal its samples of one
// record's duration, 16 bits (BDF: 24), little-endian. Values are in the physical unit of the header. Signals are taken by
// label, by default all but annotations; they must have one rate. EDF+D, whose records have gaps, is refused.
// Formats: Kemp et al. 1992; Kemp and Olivan 2003 (EDF+); BioSemi's page on BDF.
#include "array.h"
#include "audio.h"

#include "base/stated.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HEAD = 256, MAX_BYTES = 1 << 30 };

typedef struct edf_signal {
    char label[17];
    int64_t at, n; // in a record: bytes before, samples
    double gain, offset;
} edf_signal;

static double edf_number(const uint8_t *p, size_t n) {
    char text[9] = "", *end;
    memcpy(text, p, n);
    const double v = strtod(text, &end);
    return end > text && end[strspn(end, " ")] == '\0' ? v : (double)NAN;
}

// A text of numbers may begin with the same eight bytes: the size of the header must be right, too.
bool dt_edf_is(dt_span s) {
    return s.n_bytes >= HEAD &&
           (memcmp(s.data, "0       ", 8) == 0 || (s.data[0] == 0xff && memcmp(s.data + 1, "BIOSEMI", 7) == 0)) &&
           edf_number(s.data + 184, 8) == HEAD * (1 + edf_number(s.data + 252, 4));
}

// Signal i of n_signals; the header has each field for all of them, then the next field.
static dt_status edf_read_signal(const uint8_t *head, int n_signals, int i, edf_signal *out) {
    const uint8_t *p = head + HEAD;
    double v[5]; // physical minimum and maximum, digital ones, samples a record
    for (int k = 0; k < 5; k++) v[k] = edf_number(p + (k < 4 ? 104 + 8 * k : 216) * n_signals + 8 * i, 8);
    memcpy(out->label, p + 16 * i, 16);
    out->label[16] = '\0';
    for (int k = 15; k >= 0 && out->label[k] == ' '; k--) out->label[k] = '\0';
    if (!(v[4] >= 1 && v[4] <= 1e8 && v[3] - v[2] >= 1 && fabs(v[0]) < 1e30 && fabs(v[1]) < 1e30))
        return dt_fail(DT_E_DATA, "EDF: signal '%s' has no range or no number of samples", out->label);
    out->n = (int64_t)v[4];
    out->gain = (v[1] - v[0]) / (v[3] - v[2]);
    out->offset = v[0] - v[2] * out->gain;
    return DT_OK;
}

// Its channel, or -1.
static int edf_channel_of(const edf_signal *s, const dt_series_names *names, int n_so_far) {
    if (names->n == 0) return strstr(s->label, "DF Annotations") ? -1 : n_so_far;
    for (int k = 0; k < names->n; k++)
        if (strcmp(names->name[k], s->label) == 0) return k;
    return -1;
}

dt_status dt_edf_read(dt_span s, const dt_series_names *names, dt_npy *out, double *rate, dt_buffer *scratch) {
    const int64_t size = s.data[0] == 0xff ? 3 : 2;
    const double n_signals = edf_number(s.data + 252, 4), stated = edf_number(s.data + 236, 8),
                 duration = edf_number(s.data + 244, 8);
    edf_signal taken[DT_AUDIO_MAX_CHANNELS] = {{""}}, signal = {""};
    int64_t record = 0;
    int n = 0;
    size_t n_bytes;
    if (!(n_signals >= 1) || HEAD * (1 + n_signals) > (double)s.n_bytes || !(duration > 0))
        return dt_fail(DT_E_DATA, "EDF: cut in its header, or damaged");
    if (memcmp(s.data + 192, "EDF+D", 5) == 0 || memcmp(s.data + 192, "BDF+D", 5) == 0)
        return dt_fail(DT_E_DATA, "EDF: its records have gaps (EDF+D)");
    for (int i = 0; i < (int)n_signals; i++, record += signal.n * size) {
        DT_TRY(edf_read_signal(s.data, (int)n_signals, i, &signal));
        const int c = edf_channel_of(&signal, names, n);
        if (c < 0) continue;
        if (c >= DT_AUDIO_MAX_CHANNELS) return dt_fail(DT_E_DATA, "EDF: more than %d signals", DT_AUDIO_MAX_CHANNELS);
        signal.at = record;
        taken[c] = signal;
        n += names->n == 0;
    }
    if (names->n) n = names->n;
    for (int c = 0; c < n; c++) {
        if (taken[c].n == 0)
            return dt_fail(DT_E_DATA, "EDF: no signal '%s'; the last one is '%s'", names->name[c], signal.label);
        if (taken[c].n != taken[0].n)
            return dt_fail(DT_E_DATA, "EDF: '%s' has %g Hz, '%s' %g Hz: choose signals of one rate (variable)",
                           taken[0].label, (double)taken[0].n / duration, taken[c].label,
                           (double)taken[c].n / duration);
    }
    const size_t head = (size_t)(HEAD * (1 + n_signals)), left = s.n_bytes - head;
    const int64_t n_records = stated == -1                  ? (int64_t)left / record
                              : stated >= 1 && stated < 1e9 ? (int64_t)stated
                                                            : 0; // -1: unknown
    if (n == 0 || n_records < 1 || !dt_stated_size((uint64_t)n_records, (uint64_t)record, left, &n_bytes))
        return dt_fail(DT_E_DATA, n ? "EDF: cut: its %.0f records are not all there" : "EDF: no signals", stated);
    const int64_t all = n_records * taken[0].n;
    if (!dt_stated_size((uint64_t)all, (uint64_t)n * sizeof(float), MAX_BYTES, &n_bytes))
        return dt_fail(DT_E_DATA, "EDF: more than %d MiB of values", MAX_BYTES >> 20);
    float *v = (float *)(void *)dt_buffer_reserve(scratch, n_bytes);
    if (!v) return dt_fail(DT_E_INTERNAL, "out of memory for a series");
    for (int c = 0; c < n; c++)
        for (int64_t i = 0; i < all; i++) {
            const uint8_t *p = s.data + head + i / taken[c].n * record + taken[c].at + i % taken[c].n * size;
            const uint32_t bits = (uint32_t)p[0] << 8 | (uint32_t)p[1] << 16 | (size == 3 ? (uint32_t)p[2] << 24 : 0);
            const int32_t digital = size == 3 ? (int32_t)bits >> 8 : (int16_t)(bits >> 8);
            v[i * n + c] = (float)(digital * taken[c].gain + taken[c].offset);
        }
    *rate = (double)taken[0].n / duration;
    *out = (dt_npy){
        .kind = 'f', .size = 4, .n_axes = 2, .shape = {all, n}, .stride = {n, 1}, .n = all * n, .data = (uint8_t *)v};
    return DT_OK;
}
