// fuzz_torch.c: any bytes as a .pth or safetensors file: opening refuses, or each tensor whose size its storage bounds can
// be read.
// libFuzzer mostly changes one member of the zip, whose sizes and CRC are then made right: else it would not come far.
// Parser: runtime/checkpoint/import/weights_file.c!weights_file_fetch
#define _GNU_SOURCE
#include "checkpoint/import/weights_file.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

enum { LOCAL = 30, CENTRAL = 46, END = 22, MAX_MEMBERS = 16 };

__attribute__((weak)) size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[64];
    dt_weights *w = NULL;
    int fd = memfd_create("fuzz", 0);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (dt_weights_open(&w, path, 0) == DT_OK) {
        const char *format = dt_weights_metadata(w, "format");
        if (format && strlen(format) > size) abort();
        for (int i = 0; i < dt_weights_count(w); i++) {
            dt_shape shape;
            if (strlen(dt_weights_name(w, i)) > size) abort();
            dt_weights_shape(w, i, &shape);
            int64_t n = dt_shape_elements(&shape);
            if (n > 1 << 20) continue; // a view may repeat an element as often as it likes
            float *values = malloc((size_t)(n + 1) * sizeof *values);
            if (dt_weights_read(w, i, values) != DT_OK) n = 0;
            free(values);
        }
        dt_weights_close(w);
    }
    close(fd);
    return 0;
}

// ---- the mutator -----------------------------------------------------------------------------------
typedef struct member {
    const uint8_t *name, *data;
    uint32_t n_name, n_bytes;
} member;

static uint32_t get(const uint8_t *p, int n) {
    return n ? p[0] | get(p + 1, n - 1) << 8 : 0;
}

static uint8_t *put(uint8_t *p, uint32_t v, int n) {
    for (int i = 0; i < n; i++) p[i] = (uint8_t)(v >> 8 * i);
    return p + n;
}

static int list_members(member *m, const uint8_t *data, size_t size) {
    int n = 0;
    for (size_t at = 0; n < MAX_MEMBERS && at + LOCAL < size && !memcmp(data + at, "PK\3\4", 4);) {
        const uint8_t *p = data + at;
        m[n] = (member){.name = p + LOCAL, .n_name = get(p + 26, 2), .n_bytes = get(p + 18, 4)};
        m[n].data = m[n].name + m[n].n_name + get(p + 28, 2);
        if (m[n].data > data + size || m[n].n_bytes > (size_t)(data + size - m[n].data)) break;
        at = (size_t)(m[n].data - data) + m[n].n_bytes;
        n++;
    }
    return n;
}

// What the headers in front of a member and in the directory have in common; then the name.
static uint8_t *put_header(uint8_t *p, const member *m, size_t more) {
    p = put(p, 20, 4);
    memset(p, 0, 6);
    p = put(p + 6, (uint32_t)crc32(0, m->data, m->n_bytes), 4);
    p = put(put(p, m->n_bytes, 4), m->n_bytes, 4);
    p = put(p, m->n_name, 4);
    memset(p, 0, more);
    memcpy(p + more, m->name, m->n_name);
    return p + more + m->n_name;
}

static size_t put_zip(uint8_t *to, const member *m, int n) {
    uint8_t *p = to, *directory;
    uint32_t at[MAX_MEMBERS];
    for (int i = 0; i < n; i++) {
        at[i] = (uint32_t)(p - to);
        p = put_header(put(p, 0x04034b50, 4), &m[i], 0);
        memcpy(p, m[i].data, m[i].n_bytes);
        p += m[i].n_bytes;
    }
    directory = p;
    for (int i = 0; i < n; i++) {
        p = put_header(put(put(p, 0x02014b50, 4), 20, 2), &m[i], CENTRAL - LOCAL - 2);
        put(p - m[i].n_name - 4, at[i], 4);
    }
    const uint32_t n_bytes = (uint32_t)(p - directory);
    p = put(put(p, 0x06054b50, 4), 0, 4);
    p = put(put(put(p, (uint32_t)n, 2), (uint32_t)n, 2), n_bytes, 4);
    return (size_t)(put(put(p, (uint32_t)(directory - to), 4), 0, 2) - to);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
    member m[MAX_MEMBERS];
    const int n = seed % 8 ? list_members(m, data, size) : 0;
    if (!n) return LLVMFuzzerMutate(data, size, max_size);
    member *chosen = &m[seed / 8 % (unsigned)n];
    size_t rest = END;
    for (int i = 0; i < n; i++) rest += LOCAL + CENTRAL + 2 * m[i].n_name + m[i].n_bytes;
    rest -= chosen->n_bytes;
    if (rest + chosen->n_bytes > max_size) return LLVMFuzzerMutate(data, size, max_size);
    uint8_t *changed = malloc(max_size), *zip = malloc(max_size);
    memcpy(changed, chosen->data, chosen->n_bytes);
    chosen->n_bytes = (uint32_t)LLVMFuzzerMutate(changed, chosen->n_bytes, max_size - rest);
    chosen->data = changed;
    size = put_zip(zip, m, n);
    memcpy(data, zip, size);
    free(changed);
    free(zip);
    return size;
}
