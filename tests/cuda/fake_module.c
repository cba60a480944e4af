// fake_module.c: a dtrain_cuda.so with the fake device in it, so that the program itself, with its configs,
// launcher, checkpoints and exit codes, runs on it, one process per rank. FAKE_CUDA_DEVICES is the number of devices
// (8), FAKE_CUDA_CORE the core near them, FAKE_NCCL_MISSING a rank without NCCL, and FAKE_CUDA_FAILS = "RANK CALL AFTER
// ERROR [N]" a call that fails once (fake_cuda_fail) on each of the first N devices (1) that a process opens.
// test_ranks_cuda.sh puts it beside a copy of the program, together with an empty driver.
#define _GNU_SOURCE // CPU sets
#include "backend/cuda/device.h"
#include "fake_cuda.h"
#include "fake_nccl.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

static const dt_nccl_api *nccl;
static void (*backend_destroy)(dt_backend *b);

static void destroy(dt_backend *b) {
    dt_cuda_api *api = dt_cuda_self(b)->api;
    backend_destroy(b);
    fake_nccl_destroy(nccl);
    if (fake_cuda_destroy(api)) abort(); // printed
}

static dt_status create(dt_backend **out, const dt_backend_opts *opts) {
    const char *devices = getenv("FAKE_CUDA_DEVICES");
    const fake_cuda_opts o = {.n_devices = devices ? atoi(devices) : 8};
    const char *core = getenv("FAKE_CUDA_CORE");
    int index = 0;
    if (core) { // as near a device
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET((size_t)atoi(core), &set);
        sched_setaffinity(0, sizeof set, &set);
    }
    DT_TRY(
        dt_cuda_choose_device(&index, o.n_devices, opts->local_rank, opts->local_size, getenv("CUDA_VISIBLE_DEVICES")));
    dt_cuda_api *api = fake_cuda_create(&o);
    const char *fails = getenv("FAKE_CUDA_FAILS");
    char call[32];
    static int n_opened;
    int rank, after, error, n = 1;
    if (fails && sscanf(fails, "%d %31s %d %d %d", &rank, call, &after, &error, &n) >= 4 && rank == opts->local_rank &&
        n_opened++ < n)
        fake_cuda_fail(api, call, after, error);
    nccl = fake_nccl_create(api, false);
    const char *without = getenv("FAKE_NCCL_MISSING"); // the rank that has none
    const bool has_nccl = !without || atoi(without) != opts->local_rank;
    DT_TRY(dt_cuda_backend_create(out, api, has_nccl ? nccl : NULL, index, opts));
    backend_destroy = (*out)->destroy;
    (*out)->destroy = destroy;
    return DT_OK;
}

static dt_status print_devices(void (*print)(const char *line)) {
    dt_cuda_api *api = fake_cuda_create(&(fake_cuda_opts){.n_devices = 8});
    dt_cuda_list_devices(api, print);
    fake_cuda_destroy(api);
    return DT_OK;
}

extern const dt_cuda_module dt_cuda_module_table __attribute__((visibility("default")));
const dt_cuda_module dt_cuda_module_table = {
    .abi = DT_CUDA_MODULE_ABI, .create = create, .print_devices = print_devices};
