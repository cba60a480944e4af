// fuzz_manifest.c: any bytes as a checkpoint's manifest and, behind a zero byte, as what each of its files holds. What is
// accepted must name plain files only, those of a checkpoint among them, with ranges inside them, and print to a manifest
// that is accepted again. Then its files are verified. A copy has the manifest's own hash made right.
// Parser: runtime/checkpoint/ckpt_manifest.c
#define _GNU_SOURCE
#include "base/hash.h"
#include "checkpoint/ckpt_internal.h"
#include "fuzz_folder.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char TAIL[] = ",\"manifest_xxh3\":\"0123456789abcdef\"}\n";
enum { HASH_AT = sizeof TAIL - 1 - 16 - 3, MAX_FILE_BYTES = 1 << 16 };

static void check(const dt_ckpt_manifest *m) {
    if (m->n_files > 16 || !dt_ckpt_manifest_find(m, "model.safetensors")) abort();
    for (int i = 0; i < m->n_files; i++) {
        const dt_ckpt_file *f = &m->files[i];
        if (strchr(f->name, '/') || f->name[0] == '.' || f->name[0] == '\0') abort();
        for (int k = 0; k < f->n_ranges; k++)
            if (f->ranges[k].offset + f->ranges[k].n_bytes > f->n_bytes) abort();
    }
}

static void check_print(const dt_ckpt_manifest *m) {
    dt_ckpt_manifest again;
    dt_json j;
    dt_json_init(&j);
    dt_ckpt_manifest_print(m, &j);
    if (dt_ckpt_manifest_parse(&again, j.data, j.n_bytes, "again") != DT_OK) abort();
    dt_ckpt_manifest_fini(&again);
    dt_json_fini(&j);
}

// In a folder of its step, or of the next one, which must be refused.
static void verify(const dt_ckpt_manifest *m, const char *text, size_t n_text, const char *file, size_t n_file) {
    char folder[64], path[400];
    const int64_t step = m->step < INT32_MAX ? m->step + (int64_t)(n_file % 8 == 7) : m->step;
    dt_ckpt_manifest found;
    bool best = false;
    snprintf(folder, sizeof folder, "%s/step-%08" PRId64, fuzz_folder(), step);
    if (mkdir(folder, 0700) != 0) abort();
    for (int i = 0; i < m->n_files; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, m->files[i].name);
        fuzz_write(path, file, n_file);
    }
    snprintf(path, sizeof path, "%s/manifest.json", folder);
    fuzz_write(path, text, n_text);
    const dt_status sizes = dt_ckpt_verify(folder, DT_CKPT_SIZES, &best);
    const dt_status bytes = dt_ckpt_read_verified(&found, folder, DT_CKPT_FROM_DISK);
    if ((sizes != DT_OK && sizes != DT_E_CKPT) || (bytes != DT_OK && bytes != DT_E_CKPT)) abort();
    if (bytes == DT_OK && (sizes != DT_OK || best != m->best || step != m->step)) abort();
    dt_ckpt_manifest_fini(&found);
    if (dt_io_remove_tree(folder) != DT_OK) abort();
}

static void parse(const char *text, size_t n_text, const char *file, size_t n_file) {
    dt_ckpt_manifest m;
    if (dt_ckpt_manifest_parse(&m, text, n_text, "fuzz") != DT_OK) return;
    check(&m);
    check_print(&m);
    verify(&m, text, n_text, file, n_file);
    dt_ckpt_manifest_fini(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *text = (const char *)data, *end = size ? memchr(data, 0, size) : NULL,
               *file = end ? end + 1 : text + size;
    const size_t n_text = end ? (size_t)(end - text) : size, n_file = (size_t)(text + size - file),
                 n_tail = sizeof TAIL - 1;
    char hex[17];
    if (n_file > MAX_FILE_BYTES) return 0;
    parse(text, n_text, file, n_file);
    if (n_text < n_tail || memcmp(text + n_text - n_tail, TAIL, HASH_AT) != 0) return 0;
    char *copy = malloc(n_text);
    memcpy(copy, text, n_text);
    dt_hash_hex(dt_hash64(text, n_text - n_tail), hex);
    memcpy(copy + n_text - n_tail + HASH_AT, hex, 16);
    if (memcmp(copy, text, n_text) != 0) parse(copy, n_text, file, n_file);
    free(copy);
    return 0;
}
