// replay_main.c: runs a fuzz target over the files of its corpus, so that what fuzzing has found stays
// found in every build, without libFuzzer; each also cut to its half and its eighth. Arguments: files or directories.
#include "base/io.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static int replay_file(const char *path) {
    char *data;
    size_t n;
    if (dt_io_read_file(&data, &n, path, 0, DT_E_DATA) != DT_OK) {
        fprintf(stderr, "%s\n", dt_error_message());
        return -1;
    }
    const size_t lengths[] = {n, n / 2, n / 8};
    for (int k = 0; k < 3; k++) {
        // an exact copy, so that the address sanitizer sees a read behind the end
        uint8_t *exact = malloc(lengths[k] ? lengths[k] : 1);
        for (size_t i = 0; i < lengths[k]; i++) exact[i] = (uint8_t)data[i];
        LLVMFuzzerTestOneInput(exact, lengths[k]);
        free(exact);
    }
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
