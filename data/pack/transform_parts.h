// transform_parts.h: the transforms behind transform.c, one for pictures and one for recordings.
#ifndef DT_DATA_TRANSFORM_PARTS_H
#define DT_DATA_TRANSFORM_PARTS_H

#include "data/file/kinds.h"
#include "transform.h"

typedef enum dt_transform_encoding {
    DT_ENCODE_KEEP,
    DT_ENCODE_JPEG,
    DT_ENCODE_PNG
} dt_transform_encoding;

struct dt_transform {
    const dt_pack_opts *o;
    dt_transform_encoding encoding;
    int jpeg_quality;
    char *description;
};

static inline bool dt_transform_changes_pictures(const dt_transform *t) {
    return t->o->resize > 0 || t->encoding != DT_ENCODE_KEEP;
}
static inline bool dt_transform_changes_recordings(const dt_transform *t) {
    return t->o->segment_s > 0 || t->o->rate > 0 || t->o->mono;
}

// Whether a member must decode as what `use` says (kinds.h), by its bytes or its name. Kinds that dtrain cannot read
// (GIF, TIFF) count as pictures, so that they are an error and not silently left as they are.
static inline bool dt_transform_wants(const dt_transform_member *m, unsigned use) {
    const dt_kind *k = dt_kind_of_bytes(m->bytes.data, m->bytes.n_bytes);
    const dt_kind *named = dt_kind_of_name(m->ext);
    if (k && (k->uses & use)) return true;
    if (k && !k->uses) return use == DT_KIND_PICTURE;
    return named && (named->uses & use);
}

// The member becomes these bytes of that kind: "iris.bmp" -> "iris.jpg". Its name is kept in `ext`.
enum { DT_EXT_BYTES = 128 };
void dt_transform_replace(dt_transform_member *m, const dt_buffer *bytes, const char *kind,
                          char ext[DT_EXT_BYTES]);

// ---- pictures (transform_image.c) ------------------------------------------------------------------
typedef struct dt_picture_scratch dt_picture_scratch;
dt_picture_scratch *dt_picture_scratch_create(void);
void dt_picture_scratch_destroy(dt_picture_scratch *s);
// Resizes and encodes every picture among the record's members, and adds the columns of the first. Bytes live in `s`
// until the next call. Other members stay as they are. DT_E_DATA: a picture cannot be decoded.
dt_status dt_transform_pictures(const dt_transform *t, dt_picture_scratch *s,
                                dt_transform_record *r);

// ---- recordings (transform_audio.c) ------------------------------------------------------------------
typedef struct dt_recording_scratch dt_recording_scratch;
dt_recording_scratch *dt_recording_scratch_create(void);
void dt_recording_scratch_destroy(dt_recording_scratch *s);
// Resamples, mixes and cuts the record's first recording, which must exist. Calls emit for each segment (once
// without segments), with the other members as they are.
bool dt_transform_has_recording(const dt_transform_record *r);
dt_status dt_transform_recording(const dt_transform *t, dt_recording_scratch *s,
                                 dt_transform_record *r, dt_transform_emit emit, void *arg);

#endif
