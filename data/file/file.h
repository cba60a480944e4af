// file.h: files of a data set: spans of bytes, kinds by extension, first bytes, names that are kept.
#ifndef DT_DATA_FILE_FILE_H
#define DT_DATA_FILE_FILE_H

#include "store/blob.h"

#include <string.h>

// ---- bytes --------------------------------------------------------------------------------------------------------

// Bytes that are borrowed, and bytes that grow: what everything in data/ hands on.

// Borrowed bytes.
typedef struct dt_span {
    const uint8_t *data;
    size_t n_bytes;
} dt_span;

// Scratch memory that grows and is reused: no allocation in steady state.
typedef struct dt_buffer {
    uint8_t *data;
    size_t n_bytes, cap_bytes;
} dt_buffer;
uint8_t *dt_buffer_reserve(dt_buffer *b, size_t n_bytes); // contents undefined; NULL: out of memory
void dt_buffer_append(dt_buffer *b, const void *data, size_t n_bytes);
void dt_buffer_fini(dt_buffer *b);

// ---- kinds --------------------------------------------------------------------------------------------------------

// The kinds of files that hold samples. One table (kinds.def) from which packing knows what is
// data, a field knows what is a picture, and a decoder is picked. A new kind is one line there.

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

enum { DT_KIND_N_MAGIC = 7 };

typedef struct dt_kind {
    const char *name; // its usual extension
    dt_kind_id id;
    unsigned uses;    // bits of the above
    const char *exts; // separated by spaces, lower case
    const char *tool; // of a kind without a use: what makes another of it; else NULL
    bool is_image;    // decodes to pixels (decode.h)
    const char *magic[DT_KIND_N_MAGIC];
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

// ---- peek ---------------------------------------------------------------------------------------------------------

// Small reads near each other in a file (headers, sizes), few of which reach the file.

enum { DT_PEEK_BYTES = 4096 };

typedef struct dt_peek {
    const dt_blob *blob;
    uint64_t at;
    size_t n;
    uint8_t bytes[DT_PEEK_BYTES];
} dt_peek;

void dt_peek_init(dt_peek *w, const dt_blob *b);
// As dt_blob_read; the bytes after `at` come along.
dt_status dt_peek_read(dt_peek *w, uint64_t at, void *dst, size_t n_bytes);

// ---- kept names ---------------------------------------------------------------------------------------------------

// Names that belong to other tools or the file system, not to data.

// Of a member or a key: "__x__/…" and "__x__.…", what WebDataset's tools keep for themselves.
static inline bool dt_name_is_private(const char *path) {
    size_t n = strcspn(path, "/");
    if (!path[n]) n = strcspn(path, ".");
    return n >= 4 && memcmp(path, "__", 2) == 0 && memcmp(path + n - 2, "__", 2) == 0;
}

// Files and folders that a file system, a server or a desktop keeps for itself: hidden ones; thumbnails, snapshots and
// deleted files under the names of Synology, QNAP, Windows and macOS; "lost+found" at the root of a disk, which only
// root may enter. None is data, so a folder is fine even if these cannot be listed.
static inline bool dt_name_is_hidden(const char *name, bool at_root) {
    static const char *const NAMES[] = {
        "@eaDir", "#recycle", "#snapshot", "@Recycle", "$RECYCLE.BIN", "__MACOSX", "System Volume Information"};
    if (name[0] == '.' || (at_root && strcmp(name, "lost+found") == 0)) return true;
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (strcmp(name, NAMES[i]) == 0) return true;
    return false;
}

#endif
