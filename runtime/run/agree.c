// agree.c: see agree.h. A job with GPUs on some ranks only would be as slow as the slowest, with bits that nobody
// can repeat: that is an error.
#define _GNU_SOURCE // gethostname
#include "run/agree.h"

#include "base/arena.h"
#include "base/log.h"
#include "config/config.h"

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

dt_status dt_agree_result(dt_comm *c, dt_status st, char **text) {
    if (c->world_size == 1) return st;
    int64_t code = st;
    char *message = c->rank == 0 && st != DT_OK ? dt_xstrdup(dt_error_message()) : NULL;
    dt_status sent = c->broadcast_bytes(c, &code, sizeof code, 0);
    if (sent == DT_OK) sent = dt_agree_text(c, code == DT_OK ? text : &message);
    c->shared_failure |= sent == DT_OK && code != DT_OK;
    if ((sent == DT_OK || c->rank == 0) && code != DT_OK)
        sent = dt_fail((dt_status)code, "%s%s", c->rank == 0 ? "" : "rank 0: ", message ? message : "");
    free(message);
    return sent;
}

// ---- device.kind: auto -----------------------------------------------------------------------------
typedef struct gpu_answer {
    bool yes;
    char host[64], why[400];
} gpu_answer;

static gpu_answer agree_ask(dt_backend **out, const dt_backend_opts *opts) {
    static const char prefix[] = "device.kind: cuda: ";
    gpu_answer a = {.yes = dt_backend_create(out, DT_DEVICE_cuda, opts) == DT_OK};
    const char *why = a.yes ? "" : dt_error_message();
    if (strncmp(why, prefix, sizeof prefix - 1) == 0) why += sizeof prefix - 1;
    snprintf(a.why, sizeof a.why, "%s", why);
    gethostname(a.host, sizeof a.host - 1);
    if (!a.yes) dt_error_clear();
    return a;
}

dt_status dt_agree_backend(dt_backend **out, dt_comm *c, dt_device_kind kind, const dt_backend_opts *opts) {
    *out = NULL;
    if (c->world_size == 1 || kind != DT_DEVICE_auto) return dt_backend_create(out, kind, opts);
    dt_backend *mine = NULL;
    const gpu_answer answer = agree_ask(&mine, opts);
    gpu_answer *all = dt_xcalloc((size_t)c->world_size, sizeof *all);
    dt_status st = c->all_gather_bytes(c, &answer, sizeof answer, all);
    int n = 0, without = 0;
    for (int r = 0; r < c->world_size; r++) n += all[r].yes;
    if (st == DT_OK && n > 0 && n < c->world_size) {
        while (all[without].yes) without++;
        c->shared_failure = true;
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
    if (dt_backend_has_driver())
        dt_warn("device.kind: auto: the CPU is used, though there is an NVIDIA driver: %s", answer.why);
    return dt_backend_create(out, DT_DEVICE_cpu, opts);
}

// ---- equal configs ---------------------------------------------------------------------------------
typedef struct config_answer {
    dt_status st;
    char host[64], key[128], mine[128], root[128];
} config_answer;

// Compares this rank's config with rank 0's config, whose text is `root`.
static dt_status agree_compare_config(config_answer *a, const char *root, const dt_config *given) {
    dt_config *x = NULL;
    DT_TRY(dt_config_parse(&x, "rank 0's config", root, strlen(root), NULL, 0));
    const char *of_root = "", *of_mine = "";
    const int flags = DT_KEY_NUMERIC | DT_KEY_EXCHANGED;
    const char *key = dt_config_first_difference(x, given, flags, &of_root, &of_mine);
    if (!key) // a key that is auto in the second config never differs
        key = dt_config_first_difference(given, x, flags, &of_mine, &of_root);
    // rank 0 reads the teacher, and its path may be another here; whether there is one decides what ranks exchange
    if (!key && !x->train.teacher != !given->train.teacher) {
        key = "train.teacher";
        of_root = x->train.teacher ? x->train.teacher : "none";
        of_mine = given->train.teacher ? given->train.teacher : "none";
    }
    snprintf(a->key, sizeof a->key, "%s", key ? key : "");
    snprintf(a->mine, sizeof a->mine, "%s", of_mine);
    snprintf(a->root, sizeof a->root, "%s", of_root);
    dt_config_destroy(x);
    return DT_OK;
}

dt_status dt_agree_config(dt_comm *c, const dt_config *given) {
    if (c->world_size == 1) return DT_OK;
    config_answer mine = {0}, *all = dt_xcalloc((size_t)c->world_size, sizeof *all);
    char *root = c->rank == 0 ? dt_config_dump(given) : NULL;
    gethostname(mine.host, sizeof mine.host - 1);
    dt_status st = dt_agree_text(c, &root);
    if (st == DT_OK) mine.st = agree_compare_config(&mine, root, given);
    if (st == DT_OK) st = c->all_gather_bytes(c, &mine, sizeof mine, all);
    for (int r = 1; st == DT_OK && r < c->world_size; r++) {
        if (all[r].st == DT_OK && !all[r].key[0]) continue;
        c->shared_failure = true;
        st = all[r].key[0] ? dt_fail(DT_E_USAGE,
                                     "%s is %s on rank %d (%s) and %s on rank 0: start all ranks with the "
                                     "same config and the same data",
                                     all[r].key, all[r].mine, r, all[r].host, all[r].root)
                           : dt_fail(all[r].st, "rank %d (%s) cannot read rank 0's config", r, all[r].host);
    }
    free(root);
    free(all);
    return st;
}

// ---- equal bits ------------------------------------------------------------------------------------
typedef struct surroundings {
    char host[64], text[512];
} surroundings;

static dt_status compare_surroundings(dt_comm *c, const surroundings *all, bool must) {
    const int n = c->world_size;
    char ranks[256] = "";
    size_t used = 0;
    int first = 0; // that differs from rank 0, and those like it
    for (int r = 1; r < n; r++) {
        const bool like_first = strcmp(all[r].text, all[first].text) == 0;
        if (like_first == (first == 0)) continue;
        if (!first) first = r;
        if (used < sizeof ranks - 90)
            used += (size_t)snprintf(ranks + used, sizeof ranks - used, "%srank %d on %s", used ? ", " : "", r,
                                     all[r].host);
    }
    if (!first) return DT_OK;
    if (!must) {
        dt_warn_alike("rank 0 on %s computes with '%s', but %s with '%s': bits depend on which "
                      "rank computes what",
                      all[0].host, all[0].text, ranks, all[first].text);
        return DT_OK;
    }
    c->shared_failure = true;
    return dt_fail(DT_E_USAGE,
                   "rank 0 on %s computes with '%s', but %s with '%s', and "
                   "run.reproducible=elastic promises equal bits on any ranks: start all ranks "
                   "with the same build, libraries and instruction set (ONEDNN_MAX_CPU_ISA), or "
                   "use run.reproducible=resume",
                   all[0].host, all[0].text, ranks, all[first].text);
}

dt_status dt_agree_environment(dt_comm *c, const char *text, bool must) {
    surroundings mine = {0}, *all = dt_xcalloc((size_t)c->world_size, sizeof *all);
    gethostname(mine.host, sizeof mine.host - 1);
    snprintf(mine.text, sizeof mine.text, "%s", text);
    dt_status st = c->all_gather_bytes(c, &mine, sizeof mine, all);
    if (st == DT_OK) st = compare_surroundings(c, all, must);
    free(all);
    return st;
}

// ---- equal data ------------------------------------------------------------------------------------
typedef struct data_card {
    uint64_t fingerprint;
    char host[64], text[512];
} data_card;

static dt_status compare_data(const data_card *all, int n) {
    int r = 1;
    while (r < n && all[r].fingerprint == all[0].fingerprint) r++;
    if (r == n) return DT_OK;
    const bool alike = strcmp(all[r].text, all[0].text) == 0;
    return dt_fail(DT_E_USAGE,
                   "rank %d on %s has other data than rank 0 on %s: %s%s%s: copy the data set to "
                   "every host, or share its folder",
                   r, all[r].host, all[0].host, all[r].text,
                   alike ? "" : "; rank 0: ", alike ? ", but records of other names, sizes or contents" : all[0].text);
}

dt_status dt_agree_data(dt_comm *c, const dt_dataset *d) {
    if (c->world_size == 1) return DT_OK;
    data_card mine = {.fingerprint = d->fingerprint}, *all;
    all = dt_xcalloc((size_t)c->world_size, sizeof *all);
    gethostname(mine.host, sizeof mine.host - 1);
    snprintf(mine.text, sizeof mine.text, "%s", d->describe(d));
    dt_status st = c->all_gather_bytes(c, &mine, sizeof mine, all);
    if (st == DT_OK) st = dt_agree_shared(c, compare_data(all, c->world_size));
    free(all);
    return st;
}

// ---- one device a rank -----------------------------------------------------------------------------
typedef struct device_card {
    char machine[64]; // this boot of it: containers of one machine have other host names
    char host[64], bus[32], visible[64];
    bool nccl;
} device_card;

static device_card make_card(const dt_backend *b) {
    device_card card = {.nccl = b->device->nccl != NULL};
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    gethostname(card.host, sizeof card.host - 1);
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (!f || !fgets(card.machine, sizeof card.machine, f)) memcpy(card.machine, card.host, sizeof card.machine);
    if (f) fclose(f);
    snprintf(card.bus, sizeof card.bus, "%s", b->device->bus ? b->device->bus : "");
    snprintf(card.visible, sizeof card.visible, "%s%s", visible ? " CUDA_VISIBLE_DEVICES=" : "",
             visible ? visible : "");
    return card;
}

static bool same_device(const device_card *a, const device_card *b) {
    return a->bus[0] && strcmp(a->bus, b->bus) == 0 && strcmp(a->machine, b->machine) == 0;
}

static dt_status check_cards(const device_card *all, int n) {
    for (int r = 0; r < n; r++) {
        if (!all[r].nccl)
            return dt_fail(DT_E_USAGE,
                           "%d ranks with a GPU each need NCCL, and libnccl.so.2 does not load for "
                           "rank %d on %s: install libnccl2 or put its folder into "
                           "LD_LIBRARY_PATH, or run one rank",
                           n, r, all[r].host);
        for (int q = 0; q < r; q++)
            if (same_device(&all[q], &all[r]))
                return dt_fail(DT_E_USAGE,
                               "ranks %d and %d on %s have the same GPU (PCI %s)%s%s: start one "
                               "rank a GPU, and let each see all of them or its own only (NCCL does not "
                               "join MIG instances of one GPU)",
                               q, r, all[r].host, all[r].bus, all[r].visible[0] ? ";" : "", all[r].visible);
    }
    return DT_OK;
}

dt_status dt_agree_devices(dt_comm *c, const dt_backend *b) {
    const device_card mine = make_card(b);
    device_card *all = dt_xcalloc((size_t)c->world_size, sizeof *all);
    dt_status st = c->all_gather_bytes(c, &mine, sizeof mine, all);
    if (st == DT_OK) st = dt_agree_shared(c, check_cards(all, c->world_size));
    free(all);
    return st;
}
