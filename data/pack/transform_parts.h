// transform_parts.h: the transforms behind transform.c, one for pictures and one for recordings.
#ifndef DT_DATA_TRANSFORM_PARTS_H
#define DT_DATA_TRANSFORM_PARTS_H

#include "data/decode/audio.h"
#include "data/decode/decode.h"
#include "transform.h"

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

// Whether a member must decode as what `use` says (kinds.h), by its bytes or its name. Kinds that dtrain cannot read
// (GIF, TIFF) count as pictures, so that they are an error and not silently left as they are.
static inline bool dt_transform_wants(const dt_transform_member *m, unsigned use) {
    const dt_kind *k = dt_kind_of_bytes(m->bytes.data, m->bytes.n_bytes);
    const dt_kind *named = dt_kind_of_name(m->ext);
    if (k && (k->uses & use)) return true;
    if (k && !k->uses && !dt_kind_stands_in(k)) return use == DT_KIND_PICTURE;
    return named && (named->uses & use);
}

// What a thread reuses from one item to the next.
struct dt_transform_scratch {
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

// Member i becomes s->encoded[i] of that kind: "iris.bmp" -> "iris.jpg".
void dt_transform_replace(dt_transform_scratch *s, dt_transform_record *r, int i, const char *kind);

// ---- pictures (transform_image.c) ------------------------------------------------------------------
// Resizes and encodes every picture among the record's members, and adds the columns of the first. Bytes live in `s`
// until the next call. Other members stay as they are. DT_E_DATA: a picture cannot be decoded.
dt_status dt_transform_pictures(const dt_transform *t, dt_transform_scratch *s, dt_transform_record *r);

// ---- recordings (transform_audio.c) ------------------------------------------------------------------
// The first recording of a record, or -1.
int dt_transform_find_recording(const dt_transform_record *r);
// Resamples, mixes and cuts the recording `member`. Calls emit for each segment (once where there are no segments); the
// other members stay unchanged.
dt_status dt_transform_recording(const dt_transform *t, dt_transform_scratch *s, dt_transform_record *r, int member,
                                 dt_transform_emit emit, void *arg);

#endif
