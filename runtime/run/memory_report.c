// memory_report.c: one list of kinds, for the report and for the check.
//
// The check runs when parameters are laid out and plans are made, before anything is allocated. (dt_params_lay_out
// checks weights, moments and gradients alone, before engines are timed.) The reserve is for what cannot be known
// beforehand: graphs, tables, what libraries and the driver allocate.

#include "run/memory_report.h"

#include "base/core.h"
#include "base/log.h"
#include "base/os.h"
#include "graph/passes/passes.h"

#include <string.h>

enum { MAX_ROWS = 14 }; // of the list below

typedef struct memory_row {
    const char *kind;
    size_t n_bytes;
} memory_row;

static size_t input_bytes(const dt_graph *g) {
    size_t sum = 0;
    for (dt_value v = 0; g && v < g->n_values; v++)
        if (g->values[v].kind == DT_V_INPUT)
            sum += (size_t)dt_shape_elements(&g->values[v].shape) * dt_dtype_size(g->values[v].dtype);
    return sum;
}

size_t dt_memory_reserve_bytes(dt_backend *b) {
    size_t free_bytes = 0, total_bytes = 0;
    if (!b->device) return 0;
    b->device->memory(b, &free_bytes, &total_bytes);
    const size_t share = total_bytes / 50; // 2 %
    return share < (size_t)256 << 20 ? share : (size_t)256 << 20;
}

// What rank 0 keeps of each sample while training evaluates, in the memory of its host.
static size_t prediction_bytes(const dt_nets *nets, const dt_open_run *r) {
    const bool report = dt_words_have(&r->config->metrics.sinks, DT_SINK_report);
    int64_t n = 0;
    if (!r->data || r->request.use == DT_RUN_INFERENCE) return 0; // predict keeps none
    for (int split = DT_SPLIT_VAL; split <= DT_SPLIT_TEST; split++)
        if (r->data->n_samples(r->data, (dt_split)split) > n) n = r->data->n_samples(r->data, (dt_split)split);
    return (size_t)n * dt_eval_sample_bytes(&nets->metrics, &nets->targets, dt_nets_last_evaluated(nets).graph, report);
}

static int memory_report_list_rows(const dt_nets *nets, const dt_open_run *r, size_t replicas, int n_ranks,
                                   memory_row rows[MAX_ROWS]) {
    const dt_params *p = nets->params;
    const dt_net trained = dt_nets_trained(nets), evaluated = dt_nets_last_evaluated(nets);
    dt_plan_report train = {0}, eval = {0};
    if (trained.plan) dt_plan_report_get(trained.plan, &train);
    if (evaluated.plan) dt_plan_report_get(evaluated.plan, &eval);
    // elastic: the tree has more
    // buffers that the tree adds to those of the replicas stay
    const size_t grads = (size_t)p->n_grads - (size_t)r->replicas->n_replicas + replicas;
    // estimated for n_ranks: the layout is not sharded yet
    const bool divides = r->config->train.shard == DT_SHARD_optimizer && !p->sharded;
    const size_t parts = divides ? (size_t)n_ranks : 1;
    int n = 0;
    const size_t trains = (size_t)p->n_trained * 4; // bytes
    size_t weights = (size_t)p->n_master * 4, packed = dt_params_packed_bytes(p);
    const int n_owners = p->own_masters ? r->comm->world_size : n_ranks;
    if (dt_run_owns_masters(r, n_owners)) weights = dt_params_owned_bytes(p, n_owners, &packed);
    rows[n++] = (memory_row){"weights", weights + (size_t)p->n_buffer * 4};
    rows[n++] = (memory_row){"packed weights", packed};
    rows[n++] = (memory_row){"optimizer state", (size_t)(p->n_slot[0] + p->n_slot[1]) * 4 / parts}; // moments of f32
    if (p->n_average)
        // averages of batch-norm statistics are never sharded
        rows[n++] = (memory_row){"EMA of the weights", (size_t)p->n_average * 4 / parts + (size_t)p->n_buffer * 4};
    rows[n++] = (memory_row){"gradients", grads * (size_t)p->n_grad * 4};
    if (dt_run_has_bf16_gradients(r)) rows[n++] = (memory_row){"gradients in bf16", trains / 2};
    rows[n++] = (memory_row){"activations", replicas * train.activation_bytes};
    rows[n++] = (memory_row){"scratch", replicas * train.scratch_bytes};
    // in the memory of the training's, where they fit
    const size_t trains_in = train.activation_bytes + train.scratch_bytes;
    const size_t evaluates_in = eval.activation_bytes + eval.scratch_bytes;
    rows[n++] = (memory_row){"evaluation", replicas * (evaluates_in > trains_in ? evaluates_in - trains_in : 0)};
    if (!r->backend->device) rows[n++] = (memory_row){"predictions", prediction_bytes(nets, r)};
    if (!r->backend->device) return n;
    rows[n++] = (memory_row){"constants", train.constant_bytes + eval.constant_bytes};
    // two of the training's, one of the evaluation's
    // inputs of the next batch are copied while the current one is computed
    rows[n++] = (memory_row){"batches", 2 * input_bytes(trained.graph) + input_bytes(evaluated.graph)};
    rows[n++] = (memory_row){"reserve", dt_memory_reserve_bytes(r->backend)};
    return n;
}

void dt_memory_print(const dt_nets *nets, const dt_open_run *r, FILE *out) {
    memory_row rows[MAX_ROWS];
    int n = memory_report_list_rows(nets, r, (size_t)r->replicas->n_replicas, 1, rows);
    fprintf(out, "memory of a rank:\n");
    if (r->backend->device) rows[n++] = (memory_row){"predictions, on the host", prediction_bytes(nets, r)};
    if (r->data && r->data->decode_bytes) rows[n++] = (memory_row){"decoding, at most", r->data->decode_bytes};
    for (int i = 0; i < n; i++) fprintf(out, "  %-28s %9.1f MiB\n", rows[i].kind, (double)rows[i].n_bytes / 1048576.0);
}

size_t dt_memory_bytes_of(const dt_nets *nets, const dt_open_run *r, int n_replicas, int n_ranks) {
    memory_row rows[MAX_ROWS];
    size_t sum = 0;
    for (int i = 0, n = memory_report_list_rows(nets, r, (size_t)n_replicas, n_ranks, rows); i < n; i++)
        sum += rows[i].n_bytes;
    return sum;
}

size_t dt_memory_bytes(const dt_nets *nets, const dt_open_run *r) {
    return dt_memory_bytes_of(nets, r, r->replicas->n_replicas, 1);
}

// All memory of a host counts as free, since what others hold now may be free when it is needed.
static void memory_report_find_room(const dt_open_run *r, size_t *free_bytes, size_t *total_bytes) {
    dt_memory m;
    if (r->backend->device) {
        r->backend->device->memory(r->backend, free_bytes, total_bytes);
        return;
    }
    dt_memory_read(&m);
    *total_bytes = m.total_bytes > 0 ? (size_t)m.total_bytes : SIZE_MAX;
    *free_bytes = *total_bytes / (size_t)r->comm->local_size; // ranks of a host share its memory
}

size_t dt_memory_free_bytes(const dt_open_run *r) {
    size_t free_bytes = 0, total_bytes = 0;
    memory_report_find_room(r, &free_bytes, &total_bytes);
    return free_bytes;
}

bool dt_memory_fits(const dt_nets *nets, const dt_open_run *r) {
    return dt_memory_bytes(nets, r) <= dt_memory_free_bytes(r);
}

static size_t memory_report_activation_bytes(const dt_open_run *r, dt_graph *g) {
    const size_t replicas = r->replicas_open ? 1 : (size_t)r->replicas->n_replicas; // replicas_open: one replica may do
    const __typeof__(g->recompute) configured = g->recompute;
    dt_status st = DT_OK;
    if (!configured.bytes_before) st = dt_pass_recompute(g, &(dt_recompute_opts){.limit = SIZE_MAX}); // only counts
    const size_t n_bytes =
        st == DT_OK ? g->recompute.bytes_after * replicas : 0; // a broken graph fails where it is planned
    g->recompute = configured;
    return n_bytes;
}

bool dt_memory_may_fit(const dt_open_run *r, dt_graph *g) {
    return memory_report_activation_bytes(r, g) <= dt_memory_free_bytes(r);
}

size_t dt_memory_excess_bytes(const dt_open_run *r, dt_graph *g) {
    const size_t n_bytes = r->backend->device ? 0 : memory_report_activation_bytes(r, g);
    return n_bytes / 2 > dt_memory_free_bytes(r) ? n_bytes : 0;
}

// Room for the code that a library generates, and for what else a library allocates.
enum { LIBRARY_MIB = 64 };

// Elements of a checkpoint's copy, which has all slices, whoever owns them.
static int64_t n_copied(const dt_params *p) {
    if (!p->sharded) return p->n_master + p->n_average + p->n_slot[0] + p->n_slot[1]; // all of it is on this rank
    // whole slices, put together from all ranks' chunks on rank 0
    return p->n_master * (p->average ? 2 : 1) + p->n_slots * p->n_trained;
}

// What fits by itself may not beside what the process and its libraries have: then the kernel kills a rank.
static void warn_little_room(const dt_nets *nets, const dt_open_run *r) {
    const double plan = (double)dt_memory_bytes(nets, r), room = (double)dt_memory_free_bytes(r),
                 copy = r->config->checkpoint.async ? 4 * (double)n_copied(nets->params) : 0, mib = 1048576,
                 other = (double)dt_rss_bytes() + LIBRARY_MIB * mib;
    // one rank per host warns
    if (r->backend->device || r->request.use != DT_RUN_TRAINED || r->comm->local_rank > 0 ||
        plan + copy + other <= room)
        return;
    dt_warn("a rank needs about %.0f MiB (network %.0f, a checkpoint's copy %.0f, libraries and data "
            "%.0f), and its share of this host's or container's memory is %.0f MiB: the kernel may "
            "kill it. " DT_MEMORY_ADVICE,
            (plan + copy + other) / mib, plan / mib, copy / mib, other / mib, room / mib);
}

// kinds: of memory, with MiB; taken: other processes have what is missing.
static dt_status refuse(const dt_open_run *r, size_t n_bytes, const char *kinds, bool taken) {
    size_t free_bytes = 0, total_bytes = 0;
    memory_report_find_room(r, &free_bytes, &total_bytes);
    return dt_fail(
        taken ? DT_E_INTERNAL : DT_E_USAGE,
        "this network does not fit %s: %.1f MiB in all (%s) of %.1f MiB, of which %.1f are %s. %s"
        "Lower train.micro_batch (activations, scratch, batches; results change)%s or eval.batch "
        "(evaluation)%s",
        r->backend->device ? "the GPU" : "the memory of this host or container", (double)n_bytes / 1048576.0, kinds,
        (double)total_bytes / 1048576.0, (double)free_bytes / 1048576.0, r->backend->device ? "free" : "this rank's",
        taken ? "Other processes have the rest. train.recompute: auto takes less and gives the same bits. " : "",
        r->replicas->n_replicas == 1 ? "" : ", device.replicas (gradients, activations)",
        dt_run_is_elastic(r) ? ", or take run.reproducible=resume (one flat buffer of gradients)" : "");
}

dt_status dt_memory_check_activations(const dt_open_run *r, dt_graph *g) {
    const size_t n_bytes = dt_memory_excess_bytes(r, g);
    return n_bytes ? refuse(r, n_bytes, "activations alone", false) : DT_OK;
}

dt_status dt_memory_check(const dt_nets *nets, const dt_open_run *r) {
    memory_row rows[MAX_ROWS];
    size_t free_bytes = 0, total_bytes = 0, sum = 0;
    if (dt_memory_fits(nets, r)) {
        warn_little_room(nets, r);
        return DT_OK;
    }
    memory_report_find_room(r, &free_bytes, &total_bytes);
    char text[512] = "";
    for (int i = 0, n = memory_report_list_rows(nets, r, (size_t)r->replicas->n_replicas, 1, rows); i < n; i++) {
        sum += rows[i].n_bytes;
        size_t at = strlen(text);
        snprintf(text + at, sizeof text - at, "%s%s %.1f", i ? ", " : "", rows[i].kind,
                 (double)rows[i].n_bytes / 1048576.0);
    }
    // what other processes have may be free again
    r->backend->out_of_memory = r->backend->device && sum <= total_bytes;
    return refuse(r, sum, text, r->backend->out_of_memory);
}

void dt_memory_compare(const dt_nets *nets, const dt_open_run *r, size_t free_bytes) {
    const double mib = 1048576, reserve = (double)dt_memory_reserve_bytes(r->backend) / mib;
    const double taken = ((double)free_bytes - (double)dt_memory_free_bytes(r)) / mib;
    const double planned = (double)dt_memory_bytes(nets, r) / mib - reserve;
    if (dt_run_is_root(r))
        dt_info("GPU memory: %.1f MiB taken, %.1f planned, %.1f kept back for libraries", taken, planned, reserve);
    if (taken > planned + reserve)
        dt_warn(
            "rank %d: the first steps took %.1f MiB of the GPU's memory more than was planned, and %.1f are kept back "
            "for libraries (or another process takes some): lower train.memory or train.micro_batch if it runs out",
            r->comm->rank, taken - planned, reserve);
}

// ---- beside the report -----------------------------------------------------------------------------

dt_status dt_memory_room_for_kernels(void) {
    return dt_memory_room((uint64_t)LIBRARY_MIB << 20, "kernels");
}

uint64_t dt_memory_outside_bytes(const dt_nets *nets, const dt_open_run *r, bool saves) {
    const dt_params *p = nets->params;
    const uint64_t n_threads = (uint64_t)(r->replicas->n_replicas * r->resolved.replica_threads) + 2; // disk, data
    return ((uint64_t)LIBRARY_MIB << 20) + n_threads * dt_memory_stack_bytes() +
           (saves ? 4 * (uint64_t)n_copied(p) : 0);
}

dt_status dt_memory_check_room(const dt_nets *nets, const dt_open_run *r) {
    if (r->backend->device) return DT_OK;
    const bool saves = r->ckpt && r->config->checkpoint.async;
    return dt_memory_room(dt_memory_outside_bytes(nets, r, saves),
                          saves ? "kernels, the stacks of threads and a checkpoint's copy"
                                : "kernels and the stacks of threads");
}
