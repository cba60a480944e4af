// cmd_info.c: dtrain info: what this build can do on this machine, and what is missing and why.

#include "launch.h"

#include "base/thread.h"
#include "models/models.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void print_backend(const char *kind) {
    dt_backend *b = NULL;
    dt_backend_opts o = {.threads = dt_usable_cores(), .deterministic = true};
    if (dt_backend_create(&b, kind, &o) != DT_OK) {
        printf("backend  %s: %s\n", kind, dt_error_message());
        return;
    }
    printf("backend  %s; bf16 %s\n", b->describe(b),
           b->supports_dtype(b, DT_BF16) ? "native" : "not native");
    b->destroy(b);
}

static void print_module(const char *name, const char *why_missing) {
    char path[PATH_MAX + 64] = "";
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);
    path[n > 0 ? n : 0] = 0;
    char *slash = strrchr(path, '/');
    if (slash) snprintf(slash + 1, sizeof path - (size_t)(slash + 1 - path), "%s", name);
    if (access(path, R_OK) == 0)
        printf("module   %s\n", path);
    else
        printf("module   %s: not there; %s\n", name, why_missing);
}

static dt_status run(const launch_words *w) {
    DT_TRY(launch_expect_words(w, "info", 0, 0, "no words"));
    printf("dtrain   %s\n", DTRAIN_VERSION);
    printf("cores    %d usable of %ld\n", dt_usable_cores(), sysconf(_SC_NPROCESSORS_ONLN));
    print_backend("cpu");
    print_backend("cuda");
    print_module("dtrain_mpi.so", "install libopenmpi-dev and build again to use more ranks");
    int n = 0;
    const dt_model *models = dt_models(&n);
    for (int i = 0; i < n; i++) printf("model    %-8s %s\n", models[i].name, models[i].help);
    return DT_OK;
}

const launch_command launch_info = {
    .text =
        "Version, usable cores, backends and their libraries, modules, models.\n\n  dtrain info\n",
    .run = run};
