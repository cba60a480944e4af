// fuzz_engines.c: any bytes as a list of chosen engines, as it comes out of checkpoints and from other ranks. Lines that are
// none are skipped; what is taken must come out as text that gives the same again. Bytes that begin as the file of choices do
// are that file, also with its checksum made right: what is read, chosen anew and saved must be read as it was saved.
// Parser: runtime/backend/choices.c
#include "backend/cuda/cuda_plans.h"
#include "base/hash.h"
#include "base/log.h"
#include "fuzz_folder.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *taken(const char *text, int *n) {
    const dt_cuda_plans_opts o = {.machine = "any"};
    dt_cuda_plans *p = NULL;
    if (dt_cuda_plans_create(&p, NULL, &o) != DT_OK) abort();
    *n = dt_cuda_plans_take(p, text);
    char *out = dt_cuda_plans_text(p);
    dt_cuda_plans_destroy(p);
    return out;
}

static void check_lines(const char *text) {
    int n_first = 0, n_second = 0, n_lines = 0;
    char *first = taken(text, &n_first), *second = taken(first, &n_second);
    for (const char *c = first; *c; c++) n_lines += *c == '\n';
    if (strcmp(first, second) != 0 || n_second != n_lines || n_lines > n_first) {
        fprintf(stderr, "fuzz_engines: %d taken, %d lines, %d again:\n%s---\n%s", n_first, n_lines, n_second, first,
                second);
        abort();
    }
    free(second);
    free(first);
}

// ---- the file --------------------------------------------------------------------------------------
static const char BEGIN[] = "dtrain fuzz 1 ";

static bool accepts(const dt_choice *line) {
    return line->choice != 13;
}

// Opens the file, uses each choice, or, if `anew`, the next one, and saves; the text of what was used.
static char *use_file(const dt_choices_opts *o, bool anew) {
    dt_choices c = {0};
    size_t n;
    dt_choices_open(&c, o);
    dt_choice **all = dt_choices_sorted(&c, &n);
    for (size_t i = 0; i < n; i++) {
        if (anew) all[i]->choice = all[i]->choice == 12 ? 14 : (all[i]->choice + 1) % 1000;
        all[i]->used = true;
        dt_choices_file(&c, all[i]);
    }
    free(all);
    dt_choices_save(&c);
    char *text = dt_choices_text(&c);
    dt_choices_close(&c, true);
    return text;
}

static void check_file(const char *data, size_t n_bytes) {
    const dt_choices_opts o = {.what = "fuzz 1",
                               .then = "fuzzing goes on",
                               .machine = "any\nmachine",
                               .folder = fuzz_folder(),
                               .entry_bytes = sizeof(dt_choice),
                               .accepts = accepts};
    char *path = dt_choices_path(o.folder, o.what, "any machine");
    fuzz_write(path, data, n_bytes);
    char *first = use_file(&o, true), *second = use_file(&o, false);
    if (strcmp(first, second) != 0) {
        fprintf(stderr, "fuzz_engines: saved:\n%s---\nread:\n%s", first, second);
        abort();
    }
    free(second);
    free(first);
    free(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    const size_t n_begin = sizeof BEGIN - 1, body = n_begin + 16 + 1;
    char hex[17];
    if (n_bytes > 1 << 16) return 0; // look-ups are linear
    dt_log_set_level(DT_LOG_ERROR);
    char *text = malloc(n_bytes + 1);
    if (n_bytes) memcpy(text, data, n_bytes);
    text[n_bytes] = 0;
    check_lines(text);
    if (strncmp(text, BEGIN, 6) == 0) check_file(text, n_bytes);
    if (n_bytes >= body && strncmp(text, BEGIN, n_begin) == 0) {
        dt_hash_hex(dt_hash64(text + body, n_bytes - body), hex);
        memcpy(text + n_begin, hex, 16);
        check_file(text, n_bytes);
    }
    free(text);
    return 0;
}
