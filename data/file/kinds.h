// kinds.h: the kinds of files that hold samples. One table (kinds.def) from which packing knows what is
// data, a field knows what is a picture, and a decoder is picked. A new kind is one line there.
#ifndef DT_DATA_KINDS_H
#define DT_DATA_KINDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// What a kind can be used as; none: known only so that a message can name it.
enum { DT_KIND_PICTURE = 1, DT_KIND_AUDIO = 2, DT_KIND_ARRAY = 4 };

#define KIND(name, uses, exts, ...)       DT_KIND_ID_##name,
#define IMAGE_KIND(name, uses, exts, ...) DT_KIND_ID_##name,
#define UNREAD_KIND(name, exts, ...)      DT_KIND_ID_##name,
typedef enum dt_kind_id {
#include "kinds.def"
    DT_N_KINDS
} dt_kind_id;
#undef KIND
#undef IMAGE_KIND
#undef UNREAD_KIND

typedef struct dt_kind {
    const char *name; // its usual extension
    dt_kind_id id;
    unsigned uses;    // bits of the above
    const char *exts; // separated by spaces, lower case
    const char *tool; // of a kind without a use: what makes another of it; else NULL
    bool is_image;    // decodes to pixels (decode.h)
    const char *magic[6];
} dt_kind;

// Whether such a file lies under the name of another one: a Git LFS pointer, a server's page.
static inline bool dt_kind_stands_in(const dt_kind *k) {
    return k && !*k->exts;
}
// By the first bytes (132 are enough), or NULL. The bytes decide what a file is, never its name.
const dt_kind *dt_kind_of_bytes(const uint8_t *head, size_t n_bytes);
// By a file's extension without the dot, in any case, or NULL.
const dt_kind *dt_kind_of_ext(const char *ext);
// By what follows the last dot of a member's extension ("seg.png") or a file's name, or NULL.
const dt_kind *dt_kind_of_name(const char *name);
// Of a file's name, compressed (.nii.gz) or not: the kind, if it is one that cannot be read, else NULL.
const dt_kind *dt_kind_unread(const char *name);
// "JPG, PNG, …": the kinds that decode to images, for messages.
const char *dt_kind_list_images(char *buf, size_t cap);
// "jpg", "png", … by the first bytes, or NULL.
const char *dt_image_extension(const uint8_t *head, size_t n_bytes);

#endif
