// micro_batch.c: see micro_batch.h.

#include "train/micro_batch.h"

#include "base/arena.h"
#include "base/log.h"
#include "base/machine.h"
#include "train/agree.h"

#include <stdlib.h>

static size_t budget_of(const dt_session *s) {
    size_t free_bytes = 0, total_bytes = 0;
    if (!s->config->train.memory.is_auto) return (size_t)dt_answer(s->config->train.memory);
    if (s->backend->device) {
        s->backend->device->memory(s->backend, &free_bytes, &total_bytes);
        return free_bytes / 5 * 4;
    }
    dt_memory m;
    dt_memory_read(&m);
    return (size_t)(m.available_bytes / 5 * 4 / (uint64_t)s->comm->local_size);
}

// Divisors of train.global_batch, ascending, that leave work to all replicas.
static int list_sizes(const dt_session *s, int **out) {
    const int most = s->global_batch / (s->comm->world_size * s->resolved.replicas);
    int n = 0;
    *out = dt_xcalloc((size_t)most + 1, sizeof **out);
    // model.sync_bn: as many on each rank
    const int ranks = s->config->model.sync_bn ? s->comm->world_size : 1;
    for (int d = s->config->data.mix.mixup.has || s->config->data.mix.cutmix.has ? 2 : 1; d <= most;
         d++)
        if (s->global_batch % d == 0 && s->global_batch / d % ranks == 0) (*out)[n++] = d;
    return n;
}

// Rank 0. *chosen 0: none fits; then *least is what the smallest takes.
static dt_status search(dt_session *s, const int *sizes, int n, int *chosen, size_t *least) {
    const dt_field_info *fields = s->data ? s->data->fields : s->described;
    const int n_fields = s->data ? s->data->n_fields : s->n_described;
    const size_t budget = budget_of(s);
    size_t n_bytes = 0;
    int low = 0, high = n; // the first that does not fit is in [low, high]
    DT_TRY(dt_targets_read(&s->targets, s->config, fields, n_fields, true));
    // the largest first: a rank's only micro-batch may take less than a smaller one
    while (low < high) {
        const int middle = high == n ? n - 1 : (low + high) / 2;
        dt_session_set_micro_batch(s, sizes[middle]);
        DT_TRY(dt_session_plan_bytes(s, fields, n_fields, &n_bytes));
        if (n_bytes <= budget)
            low = middle + 1;
        else
            high = middle;
        if (middle == 0) *least = n_bytes;
    }
    *chosen = low ? sizes[low - 1] : 0;
    if (*chosen)
        dt_info("train.micro_batch: %d fits %.0f MiB, train.global_batch is %d of them", *chosen,
                (double)budget / 1048576.0, s->global_batch / *chosen);
    return DT_OK;
}

static dt_status choose(dt_session *s, int *chosen) {
    size_t least = 0;
    int n = 0;
    for (bool more = true; more && !*chosen;) {
        int *sizes;
        n = list_sizes(s, &sizes);
        const dt_status st = n ? search(s, sizes, n, chosen, &least) : DT_OK;
        free(sizes);
        DT_TRY(st);
        more = s->replicas_open && s->resolved.replicas > 1;
        if (!*chosen && more) dt_session_set_replicas(s, s->resolved.replicas / 2);
    }
    if (*chosen) return DT_OK;
    return dt_config_fail(s->config, "train.micro_batch",
                          n ? "train.micro_batch: auto: not even the smallest fits: it takes %.1f "
                              "MiB of the %.1f of train.memory"
                            : "train.micro_batch: auto: no divisor of train.global_batch leaves "
                              "work to all ranks",
                          (double)least / 1048576.0, (double)budget_of(s) / 1048576.0);
}

dt_status dt_micro_batch_choose(dt_session *s, const dt_resolved *stored) {
    int chosen = stored ? stored->micro_batch : 0;
    if (!chosen) {
        const dt_status st = s->comm->rank == 0 ? choose(s, &chosen) : DT_OK;
        char *text = st == DT_OK && s->comm->rank == 0
                         ? dt_xprintf("%d %d", chosen, s->resolved.replicas)
                         : NULL;
        char *rest;
        DT_TRY(dt_agree_result(s->comm, st, &text, &s->told));
        chosen = (int)strtol(text, &rest, 10);
        const int replicas = (int)strtol(rest, NULL, 10);
        free(text);
        if (replicas != s->resolved.replicas) dt_session_set_replicas(s, replicas);
    }
    dt_session_set_micro_batch(s, chosen);
    return DT_OK;
}
