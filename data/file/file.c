// file.c: files of a data set: spans of bytes, kinds by extension, first bytes.

#include "file.h"

#include "base/core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

// ---- bytes --------------------------------------------------------------------------------------------------------

// Buffers that grow. Reserving is for data and may fail. Appending is for lists and aborts if there is no
// memory.

uint8_t *dt_buffer_reserve(dt_buffer *b, size_t n_bytes) {
    if (n_bytes > b->cap_bytes) {
        size_t cap = b->cap_bytes ? b->cap_bytes : 4096;
        while (cap < n_bytes) cap += cap / 2; // by half: later members are a little larger
        uint8_t *p = realloc(b->data, cap);
        if (!p) return NULL;
        b->data = p;
        b->cap_bytes = cap;
    }
    return b->data;
}

void dt_buffer_append(dt_buffer *b, const void *data, size_t n_bytes) {
    if (b->n_bytes + n_bytes > b->cap_bytes) {
        size_t cap = (b->n_bytes + n_bytes) * 3 / 2 + 256; // so that n appends copy O(n) bytes
        b->data = dt_xrealloc(b->data, cap);
        b->cap_bytes = cap;
    }
    if (n_bytes) memcpy(b->data + b->n_bytes, data, n_bytes);
    b->n_bytes += n_bytes;
}

void dt_buffer_fini(dt_buffer *b) {
    free(b->data);
    *b = (dt_buffer){0};
}

// ---- kinds --------------------------------------------------------------------------------------------------------

// What a file is, by the lines of kinds.def.

static const dt_kind KINDS[] = {
#define KIND(name, uses, exts, ...)        {#name, DT_KIND_ID_##name, uses, exts, NULL, false, {__VA_ARGS__}},
#define IMAGE_KIND(name, uses, exts, ...)  {#name, DT_KIND_ID_##name, uses, exts, NULL, true, {__VA_ARGS__}},
#define UNREAD_KIND(name, exts, tool, ...) {#name, DT_KIND_ID_##name, 0, exts, tool, false, {__VA_ARGS__}},
#include "kinds.def"
#undef KIND
#undef IMAGE_KIND
#undef UNREAD_KIND
};

static bool begins_with(const uint8_t *head, size_t n, const char *magic) {
    size_t k = strlen(magic);
    if (n < k) return false;
    for (size_t i = 0; i < k; i++)
        if (magic[i] != '?' && (uint8_t)magic[i] != head[i]) return false; // '?' stands for any byte (RIFF????WEBP)
    return true;
}

// Bytes of a mark of UTF-8 and of blanks, as a page may have them in front.
static size_t count_blank(const uint8_t *head, size_t n) {
    size_t at = n >= 3 && memcmp(head, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    while (at < n && memchr(" \t\r\n", head[at], 4)) at++;
    return at;
}

const dt_kind *dt_kind_of_bytes(const uint8_t *head, size_t n_bytes) {
    const size_t blank = count_blank(head, n_bytes);
    for (int i = 0; i < DT_N_KINDS; i++)
        for (int k = 0; k < DT_KIND_N_MAGIC && KINDS[i].magic[k]; k++) {
            // only pages that stand in for a file have blanks in front
            const size_t at = dt_kind_stands_in(&KINDS[i]) ? blank : 0;
            if (begins_with(head + at, n_bytes - at, KINDS[i].magic[k])) return &KINDS[i];
        }
    return NULL;
}

static bool kinds_has_word(const char *words, const char *word) {
    size_t n = strlen(word);
    for (const char *p = words; n > 0 && *p; p += strspn(p, " ")) {
        size_t k = strcspn(p, " ");
        if (k == n && strncasecmp(p, word, n) == 0) return true;
        p += k;
    }
    return false;
}

const dt_kind *dt_kind_of_ext(const char *ext) {
    for (int i = 0; i < DT_N_KINDS; i++)
        if (kinds_has_word(KINDS[i].exts, ext)) return &KINDS[i];
    return NULL;
}

const dt_kind *dt_kind_of_name(const char *name) {
    const char *dot = strrchr(name, '.');
    return dt_kind_of_ext(dot ? dot + 1 : name); // without a dot the name itself may be an extension
}

const dt_kind *dt_kind_unread(const char *name) {
    char ext[16] = "";
    const size_t n = strlen(name), gz = n > 3 && strcasecmp(name + n - 3, ".gz") == 0 ? 3 : 0;
    size_t begin = n - gz;
    // back to the last dot of the base name
    while (begin > 0 && name[begin - 1] != '.' && name[begin - 1] != '/') begin--;
    if (begin > 0 && name[begin - 1] == '.' && n - gz - begin < sizeof ext) memcpy(ext, name + begin, n - gz - begin);
    const dt_kind *k = dt_kind_of_ext(ext);
    return k && k->tool ? k : NULL; // a tool: what can turn the file into one that is read
}

const char *dt_kind_list_images(char *buf, size_t cap) {
    size_t at = 0;
    buf[0] = '\0';
    for (int i = 0; i < DT_N_KINDS; i++)
        if (KINDS[i].is_image && at < cap)
            at += (size_t)snprintf(buf + at, cap - at, "%s%s", at ? ", " : "", KINDS[i].name);
    return buf;
}

const char *dt_image_extension(const uint8_t *head, size_t n_bytes) {
    const dt_kind *k = dt_kind_of_bytes(head, n_bytes);
    return k ? k->name : NULL;
}

// ---- peek ---------------------------------------------------------------------------------------------------------

// One read of 4 KiB instead of several of a few bytes. Scanning a tar from Python (a PAX header before each
// header) or an LMDB of messages is mostly such reads.

void dt_peek_init(dt_peek *w, const dt_blob *b) {
    w->blob = b;
    w->at = 0;
    w->n = 0;
}

dt_status dt_peek_read(dt_peek *w, uint64_t at, void *dst, size_t n_bytes) {
    const dt_blob *b = w->blob;
    // too large for the window, or outside of the file
    if (n_bytes > sizeof w->bytes || at > b->n_bytes || n_bytes > b->n_bytes - at)
        return dt_blob_read(b, at, dst, n_bytes);    // says what is wrong, if something is
    if (at < w->at || at + n_bytes > w->at + w->n) { // not within the bytes at hand
        uint64_t left = b->n_bytes - at;
        w->n = 0; // a read that fails leaves nothing behind
        w->at = at;
        size_t n = left < sizeof w->bytes ? (size_t)left : sizeof w->bytes;
        DT_TRY(dt_blob_read(b, at, w->bytes, n));
        w->n = n;
    }
    memcpy(dst, w->bytes + (at - w->at), n_bytes);
    return DT_OK;
}
