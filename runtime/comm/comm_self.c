// comm_self.c: the comm of a single process. A sum over one rank is the data itself, so collectives return
// at once and MPI is never loaded. Point-to-point calls have no partner. They report an error rather than
// assert, because the caller's rank arithmetic may come from a config.
#include "base/arena.h"
#include "comm/comm.h"

#include <stdlib.h>
#include <string.h>

static dt_status self_barrier(dt_comm *c) {
    return DT_OK;
}

static dt_status self_broadcast_bytes(dt_comm *c, void *data, size_t n_bytes, int root) {
    return root == 0 ? DT_OK : dt_fail(DT_E_INTERNAL, "broadcast from rank %d of 1", root);
}

static dt_status self_all_gather_bytes(dt_comm *c, const void *data, size_t n_bytes, void *all) {
    if (n_bytes > 0) memmove(all, data, n_bytes);
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
    r->id = -1;
    return DT_OK;
}

static bool self_own_part(const dt_comm *c, int64_t n, int k, int64_t *begin, int64_t *end) {
    *begin = 0;
    *end = n;
    return k == 0;
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
