// kinds.c: the table of file kinds.
//
// A magic is compared with the first bytes; '?' stands for any byte. The first line that fits wins. Kinds
// without a use are there because people have such files: the message can name what it got.
#include "kinds.h"

#include "decode.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static const dt_kind KINDS[] = {
    {"jpg", DT_KIND_PICTURE, "jpg jpeg jpe jfif", &dt_image_jpeg, {"\xff\xd8\xff"}},
    {"png", DT_KIND_PICTURE, "png", &dt_image_png, {"\x89PNG\r\n\x1a\n"}},
    {"bmp", DT_KIND_PICTURE, "bmp dib", &dt_image_bmp, {"BM"}},
    {"ppm",
     DT_KIND_PICTURE,
     "ppm pgm pbm pnm",
     &dt_image_ppm,
     {"P1", "P2", "P3", "P4", "P5", "P6"}},
    {"webp", DT_KIND_PICTURE, "webp", &dt_image_webp, {"RIFF????WEBP"}},
    {"fits", DT_KIND_ARRAY, "fits fit fts fz", &dt_image_fits, {"SIMPLE  ="}},
    {"npy", DT_KIND_ARRAY, "npy", &dt_image_npy, {"\x93NUMPY"}},
    {"mat", DT_KIND_ARRAY, "mat", NULL, {"MATLAB 5.0 MAT-fi"}},
    {"wav", DT_KIND_AUDIO, "wav", NULL, {"RIFF????WAVE", "RIFX????WAVE", "RF64????WAVE"}},
    {"flac", DT_KIND_AUDIO, "flac", NULL, {"fLaC"}},
    {"ogg", DT_KIND_AUDIO, "ogg oga", NULL, {"OggS"}},
    {"mp3",
     DT_KIND_AUDIO,
     "mp3",
     NULL,
     {"ID3", "\xff\xfb", "\xff\xfa", "\xff\xf3", "\xff\xf2"}}, // layer III of MPEG 1 and 2
    {"aiff", DT_KIND_AUDIO, "aiff aif", NULL, {"FORM????AIFF", "FORM????AIFC"}},
    {"au", DT_KIND_AUDIO, "au", NULL, {".snd"}},
    {"caf", DT_KIND_AUDIO, "caf", NULL, {"caff"}},
    {"gif", 0, "gif", NULL, {"GIF8"}},
    {"tif", 0, "tif tiff", NULL, {"II*", "MM?*"}},
    {"datum", DT_KIND_PICTURE, "datum", &dt_image_datum, {"\x08?\x10"}}, // Caffe: fields 1 and 2
};
enum { N_KINDS = sizeof KINDS / sizeof *KINDS, N_MAGIC = 6 };

static bool begins_with(const uint8_t *head, size_t n, const char *magic) {
    size_t k = strlen(magic);
    if (n < k) return false;
    for (size_t i = 0; i < k; i++)
        if (magic[i] != '?' && (uint8_t)magic[i] != head[i]) return false;
    return true;
}

const dt_kind *dt_kind_of_bytes(const uint8_t *head, size_t n_bytes) {
    for (int i = 0; i < N_KINDS; i++)
        for (int k = 0; k < N_MAGIC && KINDS[i].magic[k]; k++)
            if (begins_with(head, n_bytes, KINDS[i].magic[k])) return &KINDS[i];
    return NULL;
}

static bool has_word(const char *words, const char *word) {
    size_t n = strlen(word);
    for (const char *p = words; n > 0 && *p; p += strspn(p, " ")) {
        size_t k = strcspn(p, " ");
        if (k == n && strncasecmp(p, word, n) == 0) return true;
        p += k;
    }
    return false;
}

const dt_kind *dt_kind_of_ext(const char *ext) {
    for (int i = 0; i < N_KINDS; i++)
        if (has_word(KINDS[i].exts, ext)) return &KINDS[i];
    return NULL;
}

const dt_kind *dt_kind_of_name(const char *name) {
    const char *dot = strrchr(name, '.');
    return dt_kind_of_ext(dot ? dot + 1 : name);
}

const char *dt_kind_list_images(char *buf, size_t cap) {
    size_t at = 0;
    buf[0] = '\0';
    for (int i = 0; i < N_KINDS; i++)
        if (KINDS[i].image && at < cap)
            at += (size_t)snprintf(buf + at, cap - at, "%s%s", at ? ", " : "", KINDS[i].name);
    return buf;
}

const char *dt_image_extension(const uint8_t *head, size_t n_bytes) {
    const dt_kind *k = dt_kind_of_bytes(head, n_bytes);
    return k ? k->name : NULL;
}
