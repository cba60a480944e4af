// replay_main.c: runs a fuzz target over the files of its corpus, so that what fuzzing has found stays
// found in every build, without libFuzzer; each also cut to its half and its eighth, and with hostile sizes in the places of
// numbers: binary ones at each of its first bytes, of both byte orders, and as text for each run of digits. Nothing
// may be allocated for them that goes beyond the largest image. Arguments: files or directories.
#include "base/core.h"
#include "base/io.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

enum { FIRST_BYTES = 160, MOST_RUNS = 24, TEXT_BYTES = 4096, MOST_BYTES = 64 << 10 };
#if defined(__SANITIZE_ADDRESS__)
const char *__asan_default_options(void);
const char *__asan_default_options(void) {
    return "max_allocation_size_mb=1536";
}
#endif

// an exact copy, so that the address sanitizer sees a read behind the end
static void replay_bytes(const void *data, size_t n) {
    uint8_t *exact = malloc(n ? n : 1);
    if (n) memcpy(exact, data, n);
    LLVMFuzzerTestOneInput(exact, n);
    free(exact);
}

// The sizes at one place: of 64 bits in both byte orders, of 32 bits in this machine's.
static void replay_sizes_at(char *copy, const char *data, size_t n, size_t at) {
    static const uint64_t SIZES[] = {UINT64_MAX, UINT64_MAX - 7, INT64_MAX, UINT64_C(1) << 40};
    static const uint32_t SHORT[] = {UINT32_MAX, INT32_MAX, 1u << 31, 1u << 24};
    for (int k = 0; k < 12; k++) {
        uint64_t v = k < 4 ? SIZES[k] : k < 8 ? __builtin_bswap64(SIZES[k - 4]) : SHORT[k - 8];
        const size_t n_v = k < 8 ? 8 : 4;
        if (at + n_v > n) continue;
        memcpy(copy, data, n);
        memcpy(copy + at, &v, n_v);
        replay_bytes(copy, n);
    }
}

// Those that stand as text at a run of digits, which ends at `end`.
static void replay_texts_at(char *copy, const char *data, size_t n, size_t at, size_t end) {
    static const char *const TEXTS[] = {"18446744073709551615", "9223372036854775807", "4294967295", "1099511627776",
                                        "-1"};
    for (size_t k = 0; k < sizeof TEXTS / sizeof *TEXTS; k++) {
        const size_t n_text = strlen(TEXTS[k]);
        memcpy(copy, data, at);
        memcpy(copy + at, TEXTS[k], n_text);
        memcpy(copy + at + n_text, data + end, n - end);
        replay_bytes(copy, at + n_text + n - end);
    }
}

static void replay_sizes(const char *data, size_t n) {
    char *copy = dt_xcalloc(n + 32, 1);
    for (size_t at = 0; at < n && at < FIRST_BYTES; at += at < FIRST_BYTES / 3 ? 1 : 4)
        replay_sizes_at(copy, data, n, at);
    int n_runs = 0;
    for (size_t at = 0; at < n && at < TEXT_BYTES && n_runs < MOST_RUNS; n_runs++) {
        while (at < n && !isdigit((unsigned char)data[at])) at++;
        size_t end = at;
        while (end < n && isdigit((unsigned char)data[end])) end++;
        if (end > at) replay_texts_at(copy, data, n, at, end);
        at = end;
    }
    free(copy);
}

static int replay_file(const char *path) {
    char *data;
    size_t n;
    if (dt_io_read_file(&data, &n, path, 0, DT_E_DATA) != DT_OK) {
        fprintf(stderr, "%s\n", dt_error_message());
        return -1;
    }
    const size_t lengths[] = {n, n / 2, n / 8};
    for (int k = 0; k < 3; k++) replay_bytes(data, lengths[k]);
    if (n <= MOST_BYTES) replay_sizes(data, n);
    free(data);
    return 1;
}

static int replay(const char *path) {
    char **names;
    size_t n;
    if (!dt_io_is_dir(path)) return replay_file(path);
    if (dt_io_list_dir(&names, &n, path, DT_E_DATA) != DT_OK) return -1;
    int done = 0;
    for (size_t i = 0; i < n && done >= 0; i++) {
        char file[4096];
        snprintf(file, sizeof file, "%s/%s", path, names[i]);
        int one = replay_file(file);
        done = one < 0 ? -1 : done + one;
    }
    dt_io_free_list(names, n);
    return done;
}

int main(int argc, char **argv) {
    int total = 0;
    for (int i = 1; i < argc; i++) {
        int n = replay(argv[i]);
        if (n < 0) return 1;
        total += n;
    }
    printf("%d inputs replayed\n", total);
    return total > 0 ? 0 : 1; // an empty corpus tests nothing
}
