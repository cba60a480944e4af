// comm.c: picks the comm of this process: comm_self, or the module dtrain_mpi.so if mpirun or srun started
// it. So the binary itself never needs an MPI library.
//
// The trap is srun without PMI: every task then believes that it is alone, and N copies of the job would
// overwrite each other. So the launcher's count of tasks is compared both before MPI is loaded (no PMI in
// the environment) and after (MPI started as a singleton).
#include "comm/comm.h"

#include "base/launcher.h"
#include "base/module.h"
#include "base/watch.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static dt_status fail_singletons(int world_size, int expected) {
    return dt_fail(DT_E_USAGE,
                   "the launcher started %d processes, but this one sees a world of %d: MPI and the "
                   "launcher do not talk to each other; use 'srun --mpi=pmix' or start with mpirun",
                   expected, world_size);
}

static dt_status load_module(const char *name, dt_comm **out) {
    char path[PATH_MAX + 64], dir[PATH_MAX];
    DT_TRY(dt_module_find(name, path, sizeof path));
    if (!path[0]) {
        DT_TRY(dt_module_exe_dir(dir, sizeof dir));
        return dt_fail(DT_E_USAGE,
                       "started by an MPI launcher, but %s is neither in %s nor in "
                       "%s/../lib/dtrain: install libopenmpi-dev and build again, or run without "
                       "mpirun",
                       name, dir, dir);
    }
    // global: the MPI library's own plug-ins look for its symbols
    void *module = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!module)
        return dt_fail(DT_E_USAGE, "%s does not load: %s; is the MPI library installed here?", path, dlerror());
    dt_status (*create)(dt_comm **) = NULL;
    *(void **)&create = dlsym(module, "dt_comm_module_create");
    if (!create) return dt_fail(DT_E_INTERNAL, "%s has no dt_comm_module_create: rebuild", path);
    dt_watch_begin(NULL, "the start of MPI");
    dt_status st = create(out);
    dt_watch_end();
    return st;
}

dt_status dt_comm_create(dt_comm **out) {
    *out = NULL;
    int expected = dt_launcher_size();
    if (dt_launcher_rank() < 0) {
        if (expected > 1) return fail_singletons(1, expected);
        return dt_comm_create_self(out);
    }
    DT_TRY(load_module("dtrain_mpi.so", out));
    // not finalized: the others may never reach the last barrier, and this process ends now
    if (expected > 0 && expected != (*out)->world_size) return fail_singletons((*out)->world_size, expected);
    return DT_OK;
}

dt_status dt_comm_all_gather_f32(dt_comm *c, float *data, int64_t n) {
    const dt_reduction all = {.steps = DT_ALL_GATHER, .data = data, .n = n};
    dt_request r;
    DT_TRY(c->reduce_start(c, &all, &r));
    return c->wait(c, &r);
}

void dt_comm_destroy(dt_comm *c) {
    if (!c) return;
    dt_watch_set_peers(NULL); // a comm that failed was not finalized
    free(c->self);
    free(c);
}
