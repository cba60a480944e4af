// transform_image.c: resizes pictures to a short side, encodes them, and measures their quality.
//
// Smaller files decode faster: photographs of 500 x 375 packed with --resize 256 --encode jpeg:90 load about twice
// as fast. The long side is scaled by the same factor and rounded down, as torchvision's Resize does. Without
// --encode, a picture that is resized stays JPEG (quality 95) or PNG, and any other kind becomes PNG. A picture that
// is small enough and of the right kind keeps its bytes. Quality is measured on the resized pixels, before encoding.
#include "transform_parts.h"

#include "data/decode/encode.h"
#include "media_info.h"
#include "quality.h"

#include "base/log.h"

#include <stdatomic.h>
#include <string.h>

enum { DEFAULT_QUALITY = 95 };

static dt_status shrink(const dt_transform *t, dt_transform_scratch *s, dt_image *m) {
    int shorter = m->width < m->height ? m->width : m->height;
    if (t->o->resize == 0 || shorter <= t->o->resize) return DT_OK;
    int w = (int)((int64_t)m->width * t->o->resize / shorter);
    int h = (int)((int64_t)m->height * t->o->resize / shorter);
    uint8_t *p = dt_buffer_reserve(&s->small, (size_t)w * (size_t)h * (size_t)m->channels);
    if (!p) return dt_fail(DT_E_INTERNAL, "out of memory for a picture");
    DT_TRY(dt_resize(s->resizer, m, NULL, p, h, w));
    *m = (dt_image){.data = p, .width = w, .height = h, .channels = m->channels};
    return DT_OK;
}

static dt_status transform_image_encode(const dt_transform *t, const char *kind, const dt_image *m, dt_buffer *out,
                                        const char **new_kind) {
    bool jpeg = t->encoding == DT_ENCODE_JPEG || (t->encoding == DT_ENCODE_KEEP && strcmp(kind, "jpg") == 0);
    *new_kind = jpeg ? "jpg" : "png";
    if (!jpeg) return dt_encode_png(out, m);
    return dt_encode_jpeg(out, m, t->encoding == DT_ENCODE_JPEG ? t->jpeg_quality : DEFAULT_QUALITY);
}

static dt_status transform_image_add_quality(dt_transform_scratch *s, dt_transform_record *r, const dt_image *m) {
    dt_image_quality q;
    DT_TRY(dt_quality_of_image(&q, m, &s->luma));
    dt_transform_add_number(r, "brightness", q.brightness);
    dt_transform_add_number(r, "contrast", q.contrast);
    dt_transform_add_number(r, "sharpness", q.sharpness);
    dt_transform_add_number(r, "entropy", q.entropy);
    dt_transform_add_number(r, "clipping", q.clipping);
    dt_transform_add_number(r, "snr", q.snr);
    dt_transform_add_number(r, "quality", q.quality);
    return DT_OK;
}

static bool same_kind(const dt_transform *t, const char *kind) {
    if (t->encoding == DT_ENCODE_KEEP) return true;
    return strcmp(kind, t->encoding == DT_ENCODE_JPEG ? "jpg" : "png") == 0;
}

// Once a pack.
static void transform_image_warn_of_bytes(const dt_transform_record *r, int i, const dt_image *m) {
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    if (atomic_flag_test_and_set(&warned)) return;
    dt_warn("values of %g to %g (a member %s) are stored as 8 bits; without --resize and --encode "
            "such pictures stay as "
            "they are",
            m->least, m->greatest, r->member[i].ext);
}

static dt_status transform(const dt_transform *t, dt_transform_scratch *s, dt_transform_record *r, int i,
                           const char *kind, bool is_first) {
    dt_image m;
    dt_media_info info;
    bool known = dt_media_info_read(&info, r->member[i].bytes, r->member[i].size);
    int channels = known && info.channels == 1 ? 1 : 3;
    DT_TRY(dt_decode_image(s->decoder, r->member[i].bytes, channels, 0, 0, NULL, &m));
    uint8_t *as_decoded = m.data;
    const dt_image whole = m;
    DT_TRY(shrink(t, s, &m));
    if (is_first) {
        dt_transform_add_number(r, "width", m.width);
        dt_transform_add_number(r, "height", m.height);
        dt_transform_add_number(r, "channels", channels);
        if (t->o->quality) DT_TRY(transform_image_add_quality(s, r, &m));
    }
    if (m.data == as_decoded && same_kind(t, kind)) return DT_OK; // nothing to change
    if (whole.greatest > whole.least) transform_image_warn_of_bytes(r, i, &whole);
    const char *new_kind;
    DT_TRY(transform_image_encode(t, kind, &m, &s->encoded[i], &new_kind));
    dt_transform_replace(s, r, i, new_kind);
    return DT_OK;
}

dt_status dt_transform_pictures(const dt_transform *t, dt_transform_scratch *s, dt_transform_record *r) {
    bool is_first = true;
    for (int i = 0; i < r->n_members; i++) {
        if (!dt_transform_wants(&r->member[i], DT_KIND_PICTURE)) continue;
        const dt_kind *kind = dt_kind_of_bytes(r->member[i].bytes.data, r->member[i].bytes.n_bytes);
        dt_status st = transform(t, s, r, i, kind ? kind->name : "", is_first);
        if (st != DT_OK) return dt_fail_context(st, "member %s", r->member[i].ext);
        is_first = false;
    }
    return DT_OK;
}
