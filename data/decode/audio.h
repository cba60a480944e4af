// audio.h: bytes of a sound file or of a series -> a segment of samples at the wanted rate -> features.
//
//   dt_features_begin -> dt_clipper_run -> (augment) -> dt_features_run
//
// Samples are f32, full scale -1..1, one channel after the other: (channels, n). If one channel is wanted, a
// file's channels are averaged; if several are wanted, a single channel is repeated. Features are (H,W,C), as
// images are: (1, samples, C) for a waveform, (bins, frames, C) for a spectrogram. All numbers are the same on
// every ISA (base/bits.h).
#ifndef DT_DATA_AUDIO_H
#define DT_DATA_AUDIO_H

#include "array.h"

#include "base/core.h"
#include "config/words.h"

enum {
    DT_AUDIO_MAX_SAMPLES = 64 << 20, // of a segment, over its channels
    DT_AUDIO_MAX_CHANNELS = 64,
    DT_AUDIO_MAX_RATE = 768000
};

// ---- files (audio_file.c) --------------------------------------------------------------------------
// A worker's open file. The usual WAV allocates nothing; libsndfile, for the rest, a few blocks a file.
typedef struct dt_audio_file dt_audio_file;
dt_audio_file *dt_audio_file_create(void);
void dt_audio_file_destroy(dt_audio_file *f);

typedef struct dt_audio_info {
    int rate, channels;
    int64_t n_samples; // of a channel; at least 1
} dt_audio_info;

// Bytes of samples in a WAV's chunk `data`, which states `n` of them; `left` bytes follow from `at` on, and `riff` is the
// size in the RIFF header. A writer to a pipe knows neither size: 2 GiB or more mean the rest of the file, and so does 0
// where the RIFF header ends before the samples. More than `left`: the file is cut.
static inline uint64_t dt_wav_data_bytes(uint32_t riff, uint32_t n, uint64_t at, uint64_t left) {
    enum { PIPE = 0x7fff0000 };
    if (n == 0 && (riff >= PIPE || riff + UINT64_C(8) <= at)) return left;
    return n >= PIPE && n > left ? left : n;
}
// Reads the header. The bytes must stay as long as the file is read from. DT_E_DATA says what is wrong:
// garbage, a cut file, no samples, a rate or number of channels beyond the limits.
dt_status dt_audio_file_open(dt_audio_file *f, dt_span bytes, dt_audio_info *out);
// The same of a series (array.h): values as they are less `origin` of their channel; rate 0 if it is want's, or neither the
// file nor want states one.
struct dt_audio_clip;
dt_status dt_audio_file_open_series(dt_audio_file *f, dt_span bytes, const struct dt_audio_clip *want,
                                    dt_audio_info *out);
// n samples from `begin` of each channel, as `channels` channels: out[c * stride + i]. Decodes those, and before them what
// their codec needs. DT_E_DATA: the file ends early, has NaN, or its channels cannot be converted to so many;
// a series must have just these.
dt_status dt_audio_file_read(dt_audio_file *f, int64_t begin, int64_t n, int channels, float *out, size_t stride);

// ---- segments (audio_resample.c) ----------------------------------------------------------------------
typedef struct dt_audio_clip {
    double rate; // in steps of 0.001 Hz; a series has it
    int channels;
    int64_t n_samples;                    // of a channel
    dt_audio_pad pad;                     // after the end of a file that is shorter
    double origin[DT_AUDIO_MAX_CHANNELS]; // of a series, by channel: subtracted before values are rounded to f32
    dt_series_names names;                // of a series
    double stated_rate;                   // of a series that states none itself; 0: it has `rate`
} dt_audio_clip;

// One a worker: the open file, and tables for the rates that the worker has met.
typedef struct dt_clipper dt_clipper;
dt_clipper *dt_clipper_create(void);
void dt_clipper_destroy(dt_clipper *s);
// The file or series in `bytes`, resampled to the rate and cut to n_samples. `at` is the place: 0 .. 2^32-1 stand for the
// first to the last place where the segment fits; DT_CLIP_CENTRE is the middle. Decodes only what is needed.
// out[c * stride + i]. DT_E_DATA: as for the file, or it has too many samples, or its rate cannot be converted
// to the wanted one.
#define DT_CLIP_CENTRE UINT64_MAX
dt_status dt_clipper_run(dt_clipper *s, dt_span bytes, const dt_audio_clip *want, uint64_t at, float *out,
                         size_t stride);

// ---- rates (audio_resample.c) ------------------------------------------------------------------------
// Band-limited interpolation by a Hann-windowed sinc of six zero crossings, cut at 0.99 of the lower
// Nyquist frequency: what torchaudio.functional.resample computes by default. Immutable.
typedef struct dt_resampler dt_resampler;
// NULL when the ratio needs a table of more than 8 MiB (both rates large, without common divisor).
dt_resampler *dt_resampler_create(int from_rate, int to_rate);
void dt_resampler_destroy(dt_resampler *r);
// Output samples that `n` input samples make: ceil(n * to / from).
int64_t dt_resampler_length(const dt_resampler *r, int64_t n);
// Input samples [*begin, *end) that outputs [first, first + n) need. They may reach beyond the file, where
// samples are 0.
void dt_resampler_window(const dt_resampler *r, int64_t first, int64_t n, int64_t *begin, int64_t *end);
// out[i] = output first + i; src[0] is input sample *begin of the window.
void dt_resampler_run(const dt_resampler *r, const float *src, int64_t first, int64_t n, float *out);

// ---- features (audio_features.c) -----------------------------------------------------------------------
typedef struct dt_feature_opts {
    dt_feature_kind kind;
    double rate;
    int channels;
    int64_t n_samples;      // of a channel
    int n_fft, window, hop; // samples; the periodic Hann window is centred in n_fft
    bool center, reflect;   // frames around multiples of hop; beyond the edges: mirrored, else 0
    int power;              // 2: |X|^2, 1: |X|
    int n_mels;
    double f_min, f_max; // Hz
    bool htk,
        slaney_norm;      // mel scale HTK, else Slaney's; triangles of unit area, else of unit height
    bool decibel;         // 10 log10 (power 1: 20 log10) of max(x, floor), else ln(x + floor)
    double floor, top_db; // decibel: nothing is more than top_db below the largest; 0: no limit
    int n_mfcc;
} dt_feature_opts;

// Window, transform, filter bank. Immutable: shared by workers.
typedef struct dt_features dt_features;
// DT_E_USAGE with what does not fit together (without the place in the config).
dt_status dt_features_create(dt_features **out, const dt_feature_opts *o);
void dt_features_destroy(dt_features *f);
void dt_features_shape(const dt_features *f, int64_t *rows, int64_t *columns);
// The frequency at a share of the rows, 0 the lowest and 1 the highest; NaN where rows are none (waveform, MFCCs).
double dt_features_hz(const dt_features *f, double share);
// Bands of the filter bank in which no frequency lies: they are always 0.
int dt_features_empty_bands(const dt_features *f);
// Where the segment must be written before run: n_samples of `channels` rows, *stride apart, with room around
// each for mirrored edges. DT_E_INTERNAL: out of memory.
typedef struct dt_feature_scratch {
    dt_buffer signal, work, plane;
    float *rows; // in signal, since begin
} dt_feature_scratch;
dt_status dt_features_begin(const dt_features *f, dt_feature_scratch *w, float **signal, size_t *stride);
// dst: (rows, columns, channels).
dt_status dt_features_run(const dt_features *f, dt_feature_scratch *w, float *dst);
void dt_feature_scratch_fini(dt_feature_scratch *w);

#endif
