// transform.h: what happens to a record between its source and the packed dataset.
//
// A dt_transform is made once from the options of `dtrain pack` and never changes. Any number of threads apply it,
// each with its own scratch, to one source item at a time. An item becomes no record, one, or several (a recording
// cut into segments). Records have members, and columns that were measured on the way (sizes, lengths, quality).
// Records depend on the item's bytes and the options only.
//
// `dtrain pack` adds metadata from names and tables and the `json` and `cls` members, and drops records by
// --where afterwards.
#ifndef DT_DATA_PACK_TRANSFORM_H
#define DT_DATA_PACK_TRANSFORM_H

#include "pack.h"

#include "data/decode/audio.h"
#include "data/decode/decode.h"
#include "data/file/file.h"

enum { DT_TRANSFORM_MAX_MEMBERS = 64, DT_TRANSFORM_MAX_COLUMNS = 64 };

// `ext` has the field's name in front if there is one ("iris.bmp"). `size` is bytes.n_bytes, except that `bytes` has
// only the beginning of a very large member, which is stored unchanged.
typedef struct dt_transform_member {
    const char *ext;
    dt_span bytes;
    uint64_t size;
} dt_transform_member;

// A number of the catalog. in_json: the number is also in the record's json member, because nobody can measure it from
// the stored bytes again (where a segment began).
typedef struct dt_transform_column {
    const char *name;
    double number;
    bool in_json;
} dt_transform_column;

// Pointers of a record are borrowed for the call of emit.
typedef struct dt_transform_record {
    const char *suffix; // behind the key: "", or "-00000", "-00001", … if the transform divides items
    int n_members;
    dt_transform_member member[DT_TRANSFORM_MAX_MEMBERS];
    int n_columns;
    dt_transform_column column[DT_TRANSFORM_MAX_COLUMNS];
} dt_transform_record;

typedef struct dt_transform dt_transform;
typedef struct dt_transform_scratch dt_transform_scratch;

// The options must outlive it. DT_E_USAGE: contradicting options.
dt_status dt_transform_create(dt_transform **out, const dt_pack_opts *o);
void dt_transform_destroy(dt_transform *t);

// All options that change what is written, as one canonical line ("store as is"): part of a dataset's fingerprint.
// Borrowed.
const char *dt_transform_describe(const dt_transform *t);
// Each item becomes one record, with suffix "" and its members unchanged, and no column is in_json. Large members
// then need not be in memory as a whole.
bool dt_transform_keeps_bytes(const dt_transform *t);
// Records have suffixes of five digits after a '-'.
bool dt_transform_divides(const dt_transform *t);

// Whether records may get this column, which --where may name beside metadata. t NULL: with any options.
bool dt_transform_has_column(const dt_transform *t, const char *name);

dt_transform_scratch *dt_transform_scratch_create(void);
void dt_transform_scratch_destroy(dt_transform_scratch *s);

// r: the item's members without the json member; changed. Calls emit for each record, in order, until one fails.
// DT_E_DATA if the item cannot be read; the caller adds its name.
typedef dt_status (*dt_transform_emit)(void *arg, const dt_transform_record *r);
dt_status dt_transform_apply(const dt_transform *t, dt_transform_scratch *s, dt_transform_record *r,
                             dt_transform_emit emit, void *arg);

// ---- transform parts ----------------------------------------------------------------------------------------------

// The transforms behind transform.c, one for images and one for recordings.

typedef enum dt_transform_encoding { DT_ENCODE_KEEP, DT_ENCODE_JPEG, DT_ENCODE_PNG } dt_transform_encoding;

struct dt_transform {
    const dt_pack_opts *o;
    dt_transform_encoding encoding;
    int jpeg_quality;
    char *description;
};

static inline bool dt_transform_changes_recordings(const dt_transform *t) {
    return t->o->segment_s > 0 || t->o->rate > 0 || t->o->mono;
}

// Whether a member must decode as what `use` says (file.h), by its bytes or its name. Kinds that dtrain cannot read
// (HEIC, JPEG XL) count as images, so that they are an error and not silently left as they are.
static inline bool dt_transform_wants(const dt_transform_member *m, unsigned use) {
    const dt_kind *k = dt_kind_of_bytes(m->bytes.data, m->bytes.n_bytes);
    const dt_kind *named = dt_kind_of_name(m->ext);
    if (k && (k->uses & use)) return true;
    if (k && !k->uses && !dt_kind_stands_in(k)) return use == DT_KIND_PICTURE;
    return named && (named->uses & use);
}

// What a thread reuses from one item to the next.
struct dt_transform_scratch {
    double decode_s, encode_s; // spent on it so far (encode: resampling and resizing are with decode)
    dt_decoder *decoder;
    dt_resizer *resizer;
    dt_audio_file *file;
    dt_resampler *resampler;
    int from_rate, to_rate; // of the resampler
    dt_buffer small, luma, decoded, resampled, segment, power;
    // of members that have changed: their bytes and their names
    dt_buffer encoded[DT_TRANSFORM_MAX_MEMBERS];
    char ext[DT_TRANSFORM_MAX_MEMBERS][128];
};

// ---- media info ---------------------------------------------------------------------------------------------------

// The shape of an image or a recording from its header, without decoding.

typedef struct dt_media_info { // NaN: does not apply, or the header does not say
    double width, height, channels, samples, rate;
} dt_media_info;

// JPEG, PNG, WebP, BMP, PBM/PGM/PPM, WAV, FLAC, Ogg (Vorbis, Opus), FITS and TIFF, known by their first bytes. `head`: the
// member or its beginning; `size`: of the whole member. False: another format, or a cut header. Any bytes are safe.
bool dt_media_info_read(dt_media_info *out, dt_span head, uint64_t size);

// ---- quality ------------------------------------------------------------------------------------------------------

// How good an image or a recording is, as numbers for the catalog: `data.where: quality > 0.4` leaves
// out what is blurred, flat or silent.
//
// Pictures, of the luma Y (0..255) of (H,W,C) bytes:
//   brightness  mean of Y / 255
//   contrast    standard deviation of Y / 255 (RMS contrast)
//   sharpness   variance of the 4-neighbour Laplacian of Y, inside (Pech-Pacheco et al., 2000); images
//               out of focus have less than about 100
//   entropy     bits of the histogram of Y, 0..8
//   clipping    share of pixels that are 0 or 255
//   snr         20 log10(standard deviation of Y / noise) in dB, noise by Immerkaer's estimate (1996),
//               at most 99
//   quality     0..1: fourth root of sharpness/(sharpness+100) * min(1, contrast/0.25) * entropy/8 *
//               (1 - clipping)
// Recordings, of samples in -1..1:
//   level       RMS in dB below full scale, not below -99
//   peak        largest absolute sample
//   clipping    share of samples of at least 0.999
//   silence     share of 20 ms frames below -60 dB; all of it when it is shorter than one
//   snr         10 log10 of the 95th over the 10th percentile of the frames' power, 0..99 dB
//   quality     0..1: cube root of (1 - silence) * (1 - clipping) * snr/(snr+10)

typedef struct dt_image_quality {
    double brightness, contrast, sharpness, entropy, clipping, snr, quality;
} dt_image_quality;
// Bytes, 1 or 3 channels, at least 3 x 3 for sharpness and snr (else 0). `scratch` takes Y.
dt_status dt_quality_of_image(dt_image_quality *out, const dt_image *image, dt_buffer *scratch);

typedef struct dt_audio_quality {
    double level, peak, clipping, silence, snr, quality;
} dt_audio_quality;
// (channels, n), a channel after the other; frames count over all. `scratch` takes the frames' power.
dt_status dt_quality_of_audio(dt_audio_quality *out, const float *x, int channels, int64_t n, int rate,
                              dt_buffer *scratch);

#endif
