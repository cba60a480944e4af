// comm.c: picks the comm of this process: comm_self, or the module of the launcher's MPI (dtrain_mpi.so,
// dtrain_mpich.so) if mpirun or srun started it. So the binary itself never needs an MPI library.
//
// The trap is srun without PMI: every task then believes that it is alone, and N copies of the job would
// overwrite each other. So the launcher's count of tasks is compared both before MPI is loaded (no PMI in
// the environment) and after (MPI started as a singleton).

#include "comm/comm.h"

#include "base/core.h"
#include "base/os.h"
#include "base/watch.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static dt_status fail_singletons(int world_size, int expected) {
    return dt_fail(DT_E_USAGE,
                   "the launcher started %d processes, but this one sees a world of %d: MPI and the "
                   "launcher do not talk to each other; use 'srun --mpi=pmix' (MPICH: pmi2) or start with mpirun",
                   expected, world_size);
}

// dtrain_mpich.so has no library of its own: Intel MPI's, and that of an MPICH as it is installed, is libmpi.so.12; then
// the one that the module was built with, as in a folder that only the build knew; then Debian's name.
static bool open_library(dt_mpi mpi) {
    static const char *const libraries[] = {"libmpi.so.12", DTRAIN_MPICH_LIBRARY, "libmpich.so.12"};
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries && mpi == DT_MPI_MPICH; i++)
        if (dlopen(libraries[i], RTLD_NOW | RTLD_GLOBAL)) return true;
    return mpi != DT_MPI_MPICH;
}

static dt_status find_module(dt_mpi mpi, char *path, size_t cap) {
    char dir[PATH_MAX];
    DT_TRY(dt_module_find(dt_mpis[mpi].module, path, cap)); // beside the executable or in ../lib/dtrain
    if (path[0]) return DT_OK;
    DT_TRY(dt_module_exe_dir(dir, sizeof dir));
    return dt_fail(DT_E_USAGE,
                   "started by the launcher of %s, but its module %s is neither in %s nor in %s/../lib/dtrain: "
                   "install %s and build again, or run with the mpirun of another MPI, or without",
                   dt_mpis[mpi].name, dt_mpis[mpi].module, dir, dir, dt_mpis[mpi].package);
}

static dt_status open_module(dt_mpi mpi, void **module) {
    char path[PATH_MAX + 64];
    DT_TRY(find_module(mpi, path, sizeof path));
    // global: the MPI library's own plug-ins look for its symbols
    *module = open_library(mpi) ? dlopen(path, RTLD_NOW | RTLD_GLOBAL) : NULL;
    if (*module) return DT_OK;
    return dt_fail(DT_E_USAGE, "%s does not load: %s; is %s's library installed here?", path, dlerror(),
                   dt_mpis[mpi].name);
}

// The launcher's MPI; where that is not sure, the other one if this one does not load.
static dt_status open_mpi(void **module) {
    bool sure;
    const dt_mpi first = dt_launcher_mpi(&sure);
    const dt_status st = open_module(first, module);
    if (st == DT_OK || sure) return st;
    char *why = dt_xstrdup(dt_error_message());
    for (int k = 0; k < DT_N_MPI && !*module; k++)
        if (k != (int)first) (void)open_module((dt_mpi)k, module);
    dt_error_clear();
    const dt_status left = *module ? DT_OK : dt_fail(st, "%s", why);
    free(why);
    return left;
}

static dt_status create_by_module(dt_comm **out) {
    void *module = NULL;
    dt_status st = open_mpi(&module);
    // all ranks of a host fail alike, and MPICH's mpirun would wait for each of them: one line
    if (st != DT_OK && dt_launcher_rank() > 0 && !dt_launcher_is_first_of_host()) dt_error_clear();
    DT_TRY(st);
    dt_status (*create)(dt_comm **) = NULL;
    // POSIX: dlsym's result is assigned through void **, as ISO C has no cast from object to function pointer
    *(void **)&create = dlsym(module, "dt_comm_module_create");
    if (!create) return dt_fail(DT_E_INTERNAL, "the MPI module has no dt_comm_module_create: rebuild");
    dt_watch_begin(NULL, "the start of MPI"); // MPI_Init waits for all ranks: a deadline names it
    st = create(out);
    dt_watch_end();
    return st;
}

dt_status dt_comm_create(dt_comm **out) {
    *out = NULL;
    int expected = dt_launcher_size();                         // tasks that mpirun or srun announces; 0: no launcher
    if (dt_launcher_rank() < 0) {                              // no PMI rank in the environment
        if (expected > 1) return fail_singletons(1, expected); // each task would run the whole job
        return dt_comm_create_self(out);
    }
    DT_TRY(create_by_module(out));
    // not finalized: the others may never reach the last barrier, and this process ends now
    if (expected > 0 && expected != (*out)->world_size) return fail_singletons((*out)->world_size, expected);
    return DT_OK;
}

static dt_status all_gather(dt_comm *c, const dt_reduction *x) {
    dt_request r;
    DT_TRY(c->reduce_start(c, x, &r));
    return c->wait(c, &r);
}

// in place: each rank's slices are already summed at the owner
dt_status dt_comm_all_gather_f32(dt_comm *c, float *data, int64_t n) {
    return all_gather(c, &(dt_reduction){.steps = DT_ALL_GATHER, .data = data, .n = n});
}
dt_status dt_comm_all_gather_bf16(dt_comm *c, uint16_t *data, int64_t n) {
    return all_gather(c, &(dt_reduction){.steps = DT_ALL_GATHER, .bf16 = data, .n = n});
}

void dt_comm_destroy(dt_comm *c) {
    if (!c) return;
    dt_watch_set_peers(NULL); // a comm that failed was not finalized
    free(c->self);
    free(c);
}

// ---- comm self ----------------------------------------------------------------------------------------------------

// The comm of a single process. A sum over one rank is the data itself, so collectives return
// at once and MPI is never loaded. Point-to-point calls have no partner. They report an error rather than
// assert, because the caller's rank arithmetic may come from a config.

static dt_status self_barrier(dt_comm *c) {
    return DT_OK;
}

static dt_status self_broadcast_bytes(dt_comm *c, void *data, size_t n_bytes, int root) {
    return root == 0 ? DT_OK : dt_fail(DT_E_INTERNAL, "broadcast from rank %d of 1", root);
}

static dt_status self_all_gather_bytes(dt_comm *c, const void *data, size_t n_bytes, void *all) {
    if (n_bytes > 0) memmove(all, data, n_bytes); // memmove: `data` may be `all`
    return DT_OK;
}

static dt_status self_all_reduce_f32(dt_comm *c, float *data, int64_t n) {
    return DT_OK;
}
static dt_status self_all_reduce_f64(dt_comm *c, double *data, int64_t n) {
    return DT_OK;
}
static dt_status self_all_reduce_max_i64(dt_comm *c, int64_t *data, int64_t n) {
    return DT_OK;
}

static dt_status self_reduce_start(dt_comm *c, const dt_reduction *x, dt_request *r) {
    r->id = -1; // complete on return
    return DT_OK;
}

static bool self_own_part(const dt_comm *c, int64_t n, int k, int64_t *begin, int64_t *end) {
    *begin = 0;
    *end = n;
    return k == 0; // range 0 is everything, no further range
}

static dt_status self_progress(dt_comm *c) {
    return DT_OK;
}
static dt_status self_wait(dt_comm *c, dt_request *r) {
    return DT_OK;
}

static dt_status self_send_f32(dt_comm *c, const float *data, int64_t n, int to) {
    return dt_fail(DT_E_INTERNAL, "send to rank %d: this process is alone", to);
}

static dt_status self_recv_f32(dt_comm *c, float *data, int64_t n, int from) {
    return dt_fail(DT_E_INTERNAL, "receive from rank %d: this process is alone", from);
}

static void self_set_deadline(dt_comm *c, double seconds) {}
static void self_abort(dt_comm *c, int exit_code) {}
static dt_status self_finalize(dt_comm *c) {
    return DT_OK;
}

dt_status dt_comm_create_self(dt_comm **out) {
    dt_comm *c = dt_xcalloc(1, sizeof *c);
    *c = (dt_comm){.name = "self",
                   .rank = 0,
                   .world_size = 1,
                   .local_rank = 0,
                   .local_size = 1,
                   .barrier = self_barrier,
                   .broadcast_bytes = self_broadcast_bytes,
                   .all_gather_bytes = self_all_gather_bytes,
                   .all_reduce_f32 = self_all_reduce_f32,
                   .all_reduce_f64 = self_all_reduce_f64,
                   .all_reduce_max_i64 = self_all_reduce_max_i64,
                   .reduce_start = self_reduce_start,
                   .own_part = self_own_part,
                   .progress = self_progress,
                   .wait = self_wait,
                   .send_f32 = self_send_f32,
                   .recv_f32 = self_recv_f32,
                   .set_deadline = self_set_deadline,
                   .abort = self_abort,
                   .finalize = self_finalize};
    *out = c;
    return DT_OK;
}
