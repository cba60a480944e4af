// fake_memory.c: see fake_memory.h. There are few blocks, so they are a list.
#define _GNU_SOURCE // MADV_HUGEPAGE
#include "fake_memory.h"

#include "base/core.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, CANARY_BYTE = 0xca };

void fake_breach(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "the fake GPU: ");
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, "\n");
    va_end(ap);
    abort();
}

static void set_access(const fake_block *b, int access) {
    mprotect(b->base + PAGE, b->n_mapped - 2 * PAGE, access);
}

static void set_access_of_all(fake_memory *m, int access) {
    for (fake_block *b = m->blocks; b; b = b->next)
        if (!b->pinned) set_access(b, access);
}

void fake_memory_open(fake_memory *m) {
    if (m->open++ == 0) set_access_of_all(m, PROT_READ | PROT_WRITE);
}

void fake_memory_close(fake_memory *m) {
    if (--m->open == 0) set_access_of_all(m, PROT_NONE);
}

fake_block *fake_memory_find(fake_memory *m, const void *p, size_t n) {
    for (fake_block *b = m->blocks; b; b = b->next)
        if ((const char *)p >= b->p && (const char *)p + n <= b->p + b->n_bytes) return b;
    return NULL;
}

fake_block *fake_memory_at(fake_memory *m, const void *p, bool pinned) {
    fake_block *b = m->blocks;
    while (b && !(b->p == p && b->pinned == pinned)) b = b->next;
    return b;
}

fake_block *fake_memory_add(fake_memory *m, size_t n, bool pinned) {
    const size_t rounded = (n + 255) / 256 * 256, pages = (rounded + PAGE - 1) / PAGE * PAGE + 2 * PAGE;
    char *base = mmap(NULL, pages, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return NULL;
    fake_block *b = dt_xcalloc(1, sizeof *b);
    *b = (fake_block){.base = base,
                      .p = base + pages - PAGE - rounded,
                      .n_mapped = pages,
                      .n_bytes = n,
                      .pinned = pinned,
                      .next = m->blocks};
    m->blocks = b;
    set_access(b, PROT_READ | PROT_WRITE);
    madvise(base + PAGE, pages - 2 * PAGE,
            MADV_HUGEPAGE); // a fifth of the time to open and close it
    memset(base + PAGE, CANARY_BYTE, pages - 2 * PAGE);
    memset(b->p, 0xff, n);
    if (!pinned && !m->open) set_access(b, PROT_NONE);
    return b;
}

void fake_memory_drop(fake_memory *m, fake_block *b) {
    set_access(b, PROT_READ | PROT_WRITE);
    for (char *c = b->base + PAGE; c < b->base + b->n_mapped - PAGE; c++) {
        if (c == b->p) c += b->n_bytes;
        if (c < b->base + b->n_mapped - PAGE && (unsigned char)*c != CANARY_BYTE)
            fake_breach("memory of %zu bytes was written outside, at byte %td", b->n_bytes, c - b->p);
    }
    fake_block **at = &m->blocks;
    while (*at != b) at = &(*at)->next;
    *at = b->next;
    munmap(b->base, b->n_mapped);
    free(b);
}
