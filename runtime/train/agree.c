// agree.c: see agree.h. Some ranks on GPUs and some without would train as slowly as the slowest, in bits that
// nobody can repeat: that is a start in the wrong place, not something to make the best of.
#define _GNU_SOURCE // gethostname
#include "train/agree.h"

#include "base/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

dt_status dt_agree_text(dt_comm *c, char **text) {
    if (c->world_size == 1) return DT_OK;
    int64_t n = c->rank == 0 && *text ? (int64_t)strlen(*text) : -1;
    DT_TRY(c->broadcast_bytes(c, &n, sizeof n, 0));
    if (n < 0) return DT_OK;
    if (c->rank != 0) {
        free(*text);
        *text = dt_xcalloc((size_t)n + 1, 1);
    }
    return n > 0 ? c->broadcast_bytes(c, *text, (size_t)n, 0) : DT_OK;
}

dt_status dt_agree_result(dt_comm *c, dt_status st, char **text, bool *told) {
    if (c->world_size == 1) return st;
    int64_t code = st;
    char *message = c->rank == 0 && st != DT_OK ? dt_xstrdup(dt_error_message()) : NULL;
    dt_status sent = c->broadcast_bytes(c, &code, sizeof code, 0);
    if (sent == DT_OK) sent = dt_agree_text(c, code == DT_OK ? text : &message);
    if (sent == DT_OK && code != DT_OK) {
        *told = true;
        sent = dt_fail((dt_status)code, "%s%s",
                       c->rank == 0 ? "" : "rank 0: ", message ? message : "");
    }
    free(message);
    return sent;
}

// ---- device.kind: auto -----------------------------------------------------------------------------
typedef struct gpu_answer {
    bool yes;
    char host[64], why[400];
} gpu_answer;

static gpu_answer ask(dt_backend **out, const dt_backend_opts *opts) {
    static const char prefix[] = "device.kind: cuda: ";
    gpu_answer a = {.yes = dt_backend_create(out, "cuda", opts) == DT_OK};
    const char *why = a.yes ? "" : dt_error_message();
    if (strncmp(why, prefix, sizeof prefix - 1) == 0) why += sizeof prefix - 1;
    snprintf(a.why, sizeof a.why, "%s", why);
    gethostname(a.host, sizeof a.host - 1);
    if (!a.yes) dt_error_clear();
    return a;
}

dt_status dt_agree_backend(dt_backend **out, dt_comm *c, const char *kind,
                           const dt_backend_opts *opts, bool *told) {
    *out = NULL;
    if (c->world_size == 1 || strcmp(kind, "auto") != 0) return dt_backend_create(out, kind, opts);
    dt_backend *mine = NULL;
    const gpu_answer answer = ask(&mine, opts);
    gpu_answer *all = dt_xcalloc((size_t)c->world_size, sizeof *all);
    dt_status st = c->all_gather_bytes(c, &answer, sizeof answer, all);
    int n = 0, without = 0;
    for (int r = 0; r < c->world_size; r++) n += all[r].yes;
    if (st == DT_OK && n > 0 && n < c->world_size) {
        *told = true;
        while (all[without].yes) without++;
        st = dt_fail(DT_E_USAGE,
                     "device.kind: auto: %d of %d ranks have a GPU; rank %d on %s has none: %s. "
                     "Start ranks only where GPUs are, or use device.kind=cpu",
                     n, c->world_size, without, all[without].host, all[without].why);
    }
    free(all);
    if (st == DT_OK && n == c->world_size) {
        *out = mine;
        return DT_OK;
    }
    if (mine) mine->destroy(mine);
    DT_TRY(st);
    return dt_backend_create(out, kind, opts); // says why a driver is not used
}
