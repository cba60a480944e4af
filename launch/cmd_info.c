// cmd_info.c: dtrain info: what this build can do on this machine, and what is missing and why.

#include "launch.h"

#include "base/core.h"
#include "base/os.h"
#include "base/thread.h"
#include "onnx/onnx_import.h"

#include "revision.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void print_cpu(void) {
    dt_backend *b = NULL;
    dt_backend_opts o = {.threads = dt_usable_cores(), .deterministic = true};
    // a line instead of an error: info is what users attach to a report
    if (dt_backend_create_cpu(&b, &o) != DT_OK) {
        printf("backend  cpu: %s\n", dt_error_message());
        return;
    }
    // emulated where the CPU has no instructions for bf16
    const char *bf16 = b->computes_dtype(b, DT_BF16) ? "bf16 slow" : "no bf16";
    if (b->supports_dtype(b, DT_BF16)) bf16 = "bf16 native";
    printf("backend  %s; %s\n", b->describe(b), bf16);
    b->destroy(b);
}

static void info_print_line(const char *line) {
    // as dt_backend_print_devices wants a callback
    printf("device   %s\n", line);
}

static void print_module(const char *name, const char *why_missing) {
    char path[PATH_MAX + 64] = "";
    // an empty path: neither beside the program nor in ../lib/dtrain
    if (dt_module_find(name, path, sizeof path) == DT_OK && path[0])
        printf("module   %s\n", path);
    else
        printf("module   %s: not there; %s\n", name, why_missing);
}

enum { ONNX };
static const dt_cli_option options[] = {[ONNX] = {"--onnx", NULL, "list the ONNX ops that model.onnx reads"}, {NULL}};

static dt_status info_run(const dt_cli_words *w) {
    DT_TRY(dt_cli_expect_words(w, "info", 0, 0, "no words"));
    if (w->options[ONNX]) {
        for (const char *p = dt_onnx_import_ops(); *p; p += strcspn(p, " ") + 1) // words separated by blanks
            printf("%.*s\n", (int)strcspn(p, " "), p);
        return DT_OK;
    }
    printf("dtrain   %s%s%s\n", DTRAIN_VERSION, *DTRAIN_REVISION ? ", git " : "", DTRAIN_REVISION);
    // on the machine: affinity or a cgroup may leave fewer
    printf("cores    %d usable of %ld\n", dt_usable_cores(), sysconf(_SC_NPROCESSORS_ONLN));
    print_cpu();
    // no GPU or no driver: says why
    if (dt_backend_print_devices(info_print_line) != DT_OK) info_print_line(dt_error_message());
    print_module("dtrain_cuda.so", "build with -DDTRAIN_CUDA=ON to use GPUs");
    for (int i = 0; i < DT_N_MPI; i++) {
        char *why = dt_xprintf("install %s and build again for ranks of %s", dt_mpis[i].package, dt_mpis[i].name);
        print_module(dt_mpis[i].module, why);
        free(why);
    }
    size_t n;
    const dt_config_key *k = dt_config_keys(&n);
    // models are the words of the key: one owner
    while (strcmp(k->path, "model.name") != 0) k++;
    for (const dt_config_word *m = dt_config_words(k); m->id; m++) printf("model    %-8s %s\n", m->id, m->help);
    return DT_OK;
}

const dt_cli_command dt_cli_info = {
    .options = options,
    .text = "Prints version, usable cores, backends, GPUs and their libraries, modules and models.\n\n"
            "  dtrain info\n"
            "  dtrain info --onnx\n",
    .run = info_run};
