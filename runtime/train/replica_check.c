// replica_check.c: see replica_check.h.
#define _GNU_SOURCE // gethostname
#include "train/replica_check.h"

#include "base/arena.h"
#include "base/failpoint.h"
#include "base/hash.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void hash_tensors(const dt_session *s, uint64_t *hashes) {
    for (int i = 0; i < s->n_tensors; i++) {
        const dt_ckpt_tensor *t = &s->tensors[i];
        hashes[i] = dt_hash64(t->data, (size_t)dt_shape_elements(&t->shape) * sizeof *t->data);
    }
}

static int n_equal(const uint64_t *all, int world_size, int stride, int i, int rank) {
    int n = 0;
    for (int r = 0; r < world_size; r++) n += all[r * stride + i] == all[rank * stride + i];
    return n;
}

// The rank that fewest others agree with on tensor i; of two ranks, the later one.
static int odd_rank(const uint64_t *all, int world_size, int stride, int i) {
    int odd = 0;
    for (int r = 1; r < world_size; r++)
        if (n_equal(all, world_size, stride, i, r) <= n_equal(all, world_size, stride, i, odd))
            odd = r;
    return odd;
}

static dt_status name_difference(dt_session *s, const uint64_t *mine, bool *told) {
    dt_comm *c = s->comm;
    const int n = s->n_tensors, w = c->world_size;
    uint64_t *all = dt_xcalloc((size_t)w * (size_t)n, sizeof *all);
    char(*hosts)[64] = dt_xcalloc((size_t)w, sizeof *hosts), host[64] = "";
    gethostname(host, sizeof host - 1);
    dt_status st = c->all_gather_bytes(c, mine, (size_t)n * sizeof *mine, all);
    if (st == DT_OK) st = c->all_gather_bytes(c, host, sizeof host, hosts);
    for (int i = 0; i < n && st == DT_OK; i++) {
        if (n_equal(all, w, n, i, 0) == w) continue;
        const int odd = odd_rank(all, w, n, i);
        *told = true;
        st = dt_fail(DT_E_INTERNAL,
                     "run.verify_every: rank %d on %s holds other values in '%s' than %s (%d of %d "
                     "ranks agree with it): memory, CPU or GPU of that host may be broken. Nothing "
                     "was saved; test that host, then run again from the last checkpoint",
                     odd, hosts[odd], s->tensors[i].name, w == 2 ? "rank 0" : "most others",
                     n_equal(all, w, n, i, odd) - 1, w - 1);
    }
    free(all);
    free(hosts);
    return st;
}

dt_status dt_verify_ranks(dt_session *s, bool *told) {
    if (s->comm->world_size == 1) return DT_OK;
    dt_session_pull(s);
    if (dt_failpoint("flip")) {
        uint32_t bits;
        memcpy(&bits, s->tensors[0].data, sizeof bits);
        bits ^= 1;
        memcpy(s->tensors[0].data, &bits, sizeof bits);
    }
    uint64_t *hashes = dt_xcalloc((size_t)s->n_tensors, sizeof *hashes);
    hash_tensors(s, hashes);
    const int64_t sum = (int64_t)(dt_hash64(hashes, (size_t)s->n_tensors * sizeof *hashes) >>
                                  1); // both signs exist
    int64_t ends[2] = {sum, -sum};
    dt_status st = s->comm->all_reduce_max_i64(s->comm, ends, 2);
    if (st == DT_OK && ends[0] != -ends[1]) st = name_difference(s, hashes, told);
    free(hashes);
    return st;
}
