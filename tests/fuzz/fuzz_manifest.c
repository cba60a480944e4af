// fuzz_manifest.c: any bytes as a checkpoint's manifest. What is accepted must name plain files only, those of a
// checkpoint among them, with ranges inside them, and print to a manifest that is accepted again.
// Parser: runtime/checkpoint/ckpt_manifest.c
#include "checkpoint/ckpt_internal.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void check(const dt_ckpt_manifest *m) {
    if (m->n_files > 16 || !dt_ckpt_manifest_find(m, "model.safetensors")) abort();
    for (int i = 0; i < m->n_files; i++) {
        const dt_ckpt_file *f = &m->files[i];
        if (strchr(f->name, '/') || f->name[0] == '.' || f->name[0] == '\0') abort();
        for (int k = 0; k < f->n_ranges; k++)
            if (f->ranges[k].offset + f->ranges[k].n_bytes > f->n_bytes) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    dt_ckpt_manifest m, again;
    if (dt_ckpt_manifest_parse(&m, (const char *)data, size, "fuzz") != DT_OK) return 0;
    check(&m);
    dt_json j;
    dt_json_init(&j);
    dt_ckpt_manifest_print(&m, &j);
    if (dt_ckpt_manifest_parse(&again, j.data, j.n_bytes, "again") != DT_OK) abort();
    dt_ckpt_manifest_fini(&again);
    dt_ckpt_manifest_fini(&m);
    dt_json_fini(&j);
    return 0;
}
