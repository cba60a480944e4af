// cuda_backend.c: the CUDA backend's table: memory, copies, streams, capture, and the kernel of each op.
//
// Memory comes directly from the device. Its users (flat buffers, activations, packed copies, slots) allocate a few
// times per run and in large blocks. alloc returns zeroed memory. Copies that wait first wait for the device's own
// stream and for no other. Code that copies out what another stream writes must synchronize with that stream first.
//
// Errors of queued work are remembered (see cuda_backend.h), since CUDA reports them late in any case.
#include "backend/cuda/cuda_backend.h"

#include "backend/cuda/cuda_plans.h"
#include "base/core.h"
#include "graph/passes/passes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void dt_cuda_check(dt_cuda *c, int error, const char *where) {
    if (!error || c->error) return; // the first error is the cause
    c->error = error;
    snprintf(c->error_where, sizeof c->error_where, "%s", where);
}

// Turns the remembered error into a failure with advice. The error stays remembered.
static dt_status cuda_status(dt_cuda *c) {
    if (!c->error) return DT_OK;
    return dt_fail(DT_E_INTERNAL,
                   "cuda device %d (%s): %s: %s; set CUDA_LAUNCH_BLOCKING=1 and run again to see "
                   "which kernel, and look for Xid lines in the kernel's log (dmesg)",
                   c->index, c->info.name, c->error_where, c->api->error_text(c->api, c->error));
}

static bool cuda_backend_supports_dtype(const dt_backend *b, dt_dtype t) {
    return t != DT_BF16 || dt_cuda_self(b)->info.major >= 8; // sm_80: Ampere
}

static const char *cuda_backend_describe(const dt_backend *b) {
    return dt_cuda_self(b)->text;
}

// ---- memory ----------------------------------------------------------------------------------------
static dt_status clear_memory(dt_cuda *c, void *p, size_t n_bytes, const char *what) {
    int e = c->api->zero(c->api, p, n_bytes, NULL);
    if (!e) e = c->api->stream_synchronize(c->api, NULL); // default stream: alloc is synchronous
    dt_cuda_check(c, e, what);
    return cuda_status(c);
}

static dt_status cuda_backend_alloc(dt_backend *b, void **p, size_t n_bytes, const char *what) {
    dt_cuda *c = dt_cuda_self(b);
    *p = NULL;
    const int e = c->api->alloc(c->api, p, n_bytes ? n_bytes : 64); // cudaMalloc(0) returns NULL
    if (e && e != DT_CUDA_OUT_OF_MEMORY) {                          // an earlier failure of queued work surfaces here
        char where[120];
        snprintf(where, sizeof where, "asking for memory (%s)", what);
        dt_cuda_check(c, e, where);
        return cuda_status(c);
    }
    if (e) {
        dt_cuda_device_info now = {{0}};
        c->api->device_info(c->api, c->index, &now); // free bytes for the message
        b->out_of_memory = true;
        return dt_fail(DT_E_INTERNAL,
                       "out of memory on cuda device %d: %.1f MB for %s, %.1f MB free of %.1f (%s); "
                       "train.recompute: auto takes less and gives the same bits, else lower train.micro_batch "
                       "(results change)",
                       c->index, (double)n_bytes / 1e6, what, (double)now.free_bytes / 1e6,
                       (double)now.total_bytes / 1e6, c->api->error_text(c->api, e));
    }
    const dt_status st = clear_memory(c, *p, n_bytes ? n_bytes : 64, what);
    if (st == DT_OK) return DT_OK;
    c->api->free(c->api, *p); // nobody else does after an error
    *p = NULL;
    return st;
}

// Falls back to ordinary memory if NCCL gives none.
static dt_status alloc_shared(dt_backend *b, void **p, size_t n_bytes, const char *what) {
    dt_cuda *c = dt_cuda_self(b);
    const dt_nccl_api *nccl = c->device.nccl;
    void **at = c->shared, **end = at + sizeof c->shared / sizeof *c->shared; // slots for registered memory
    while (at < end && *at) at++;
    // one rank, no NCCL, an old NCCL, no slot: ordinary memory
    if (c->world_size <= 1 || !nccl || !nccl->mem_alloc || at == end || nccl->mem_alloc(nccl, p, n_bytes))
        return cuda_backend_alloc(b, p, n_bytes, what);
    *at = *p;
    return clear_memory(c, *p, n_bytes, what);
}

static void cuda_backend_release(dt_backend *b, void *p, size_t n_bytes) {
    dt_cuda *c = dt_cuda_self(b);
    const dt_nccl_api *nccl = c->device.nccl;
    for (size_t i = 0; p && i < sizeof c->shared / sizeof *c->shared; i++) {
        if (c->shared[i] != p) continue;
        c->shared[i] = NULL;
        // mem_alloc's memory must go to mem_free
        if (nccl->mem_free(nccl, p)) dt_cuda_check(c, 1, "free of NCCL's memory");
        return;
    }
    if (p) dt_cuda_check(c, c->api->free(c->api, p), "free");
}

static dt_status alloc_host(dt_backend *b, void **p, size_t n_bytes, const char *what) {
    dt_cuda *c = dt_cuda_self(b);
    *p = NULL;
    const int e = c->api->alloc_host(c->api, p, n_bytes ? n_bytes : 64);
    if (e)
        return dt_fail(DT_E_INTERNAL, "no pinned memory: %.1f MB for %s (%s); raise ulimit -l", (double)n_bytes / 1e6,
                       what, c->api->error_text(c->api, e));
    memset(*p, 0, n_bytes ? n_bytes : 64); // touches the pages
    return DT_OK;
}

static void free_host(dt_backend *b, void *p, size_t n_bytes) {
    dt_cuda *c = dt_cuda_self(b);
    if (p) dt_cuda_check(c, c->api->free_host(c->api, p), "free of pinned memory");
}

static void copy_to_device(dt_backend *b, void *dst, const void *src, size_t n_bytes) {
    dt_cuda *c = dt_cuda_self(b);
    if (!n_bytes) return;
    // work that may still use dst
    dt_cuda_check(c, c->api->stream_synchronize(c->api, c->device.stream), "copy to the device");
    // 1: host to device; NULL: waits
    dt_cuda_check(c, c->api->copy(c->api, dst, src, n_bytes, 1, NULL), "copy to the device");
}

static void copy_to_host(dt_backend *b, void *dst, const void *src, size_t n_bytes) {
    dt_cuda *c = dt_cuda_self(b);
    if (!n_bytes) return;
    dt_cuda_check(c, c->api->stream_synchronize(c->api, c->device.stream), "copy to the host");
    dt_cuda_check(c, c->api->copy(c->api, dst, src, n_bytes, 0, NULL), "copy to the host"); // 0: device to host
}

static void memory(dt_backend *b, size_t *free_bytes, size_t *total_bytes) {
    dt_cuda *c = dt_cuda_self(b); // size and name are known already
    dt_cuda_device_info now = c->info;
    dt_cuda_check(c, c->api->device_info(c->api, c->index, &now), "asking for the device");
    *free_bytes = now.free_bytes;
    *total_bytes = now.total_bytes;
}

// ---- streams ---------------------------------------------------------------------------------------
static dt_status stream_create(dt_backend *b, void **stream, bool urgent) {
    dt_cuda *c = dt_cuda_self(b);
    dt_cuda_check(c, c->api->stream_create(c->api, stream, urgent), "creating a stream");
    return cuda_status(c);
}

static void stream_destroy(dt_backend *b, void *stream) {
    dt_cuda *c = dt_cuda_self(b);
    if (stream) dt_cuda_check(c, c->api->stream_destroy(c->api, stream), "destroying a stream");
}

static dt_status synchronize(dt_backend *b, void *stream) {
    dt_cuda *c = dt_cuda_self(b);
    dt_cuda_check(c, c->api->stream_synchronize(c->api, stream), "waiting for the device");
    return cuda_status(c);
}

static bool stream_done(dt_backend *b, void *stream) {
    dt_cuda *c = dt_cuda_self(b);
    bool done = false;
    const int e = c->api->stream_query(c->api, stream, &done);
    dt_cuda_check(c, e, "asking the device");
    return done || e; // synchronize reports the error
}

static void stream_wait(dt_backend *b, void *stream, void *on) {
    dt_cuda *c = dt_cuda_self(b);
    // one event is enough: a wait refers to the state at the time it is queued
    dt_cuda_check(c, c->api->event_record(c->api, c->event, on), "recording an event");
    dt_cuda_check(c, c->api->event_wait(c->api, c->event, stream), "waiting for an event");
}

static void copy_in(dt_backend *b, void *dst, const void *host, size_t n_bytes, void *stream) {
    dt_cuda *c = dt_cuda_self(b);
    // host memory must be pinned, or the copy waits
    if (n_bytes) dt_cuda_check(c, c->api->copy(c->api, dst, host, n_bytes, 1, stream), "queueing a copy in");
}

static void copy_out(dt_backend *b, void *host, const void *src, size_t n_bytes, void *stream) {
    dt_cuda *c = dt_cuda_self(b);
    if (n_bytes) dt_cuda_check(c, c->api->copy(c->api, host, src, n_bytes, 0, stream), "queueing a copy out");
}

// ---- capture ---------------------------------------------------------------------------------------
static dt_status capture_begin(dt_backend *b, void *stream) {
    dt_cuda *c = dt_cuda_self(b);
    DT_TRY(cuda_status(c)); // an error from before the capture is not the capture's
    const int e = c->api->capture_begin(c->api, stream);
    return e ? dt_fail(DT_E_INTERNAL, "cuda: capture does not begin: %s", c->api->error_text(c->api, e)) : DT_OK;
}

static dt_status capture_end(dt_backend *b, void *stream, void **graph) {
    dt_cuda *c = dt_cuda_self(b);
    const int e = c->api->capture_end(c->api, stream, graph);
    dt_status st = cuda_status(c); // of the calls in it, which are nearer to the cause
    if (st == DT_OK && e) st = dt_fail(DT_E_INTERNAL, "cuda: %s", c->api->error_text(c->api, e));
    return st == DT_OK ? st : dt_fail_context(st, "a captured step (device.capture: false goes without)");
}

static void graph_launch(dt_backend *b, void *graph, void *stream) {
    dt_cuda *c = dt_cuda_self(b);
    dt_cuda_check(c, c->api->graph_launch(c->api, graph, stream), "launching a captured step");
}

static void graph_destroy(dt_backend *b, void *graph) {
    dt_cuda *c = dt_cuda_self(b);
    if (graph) dt_cuda_check(c, c->api->graph_destroy(c->api, graph), "destroying a graph");
}

// ---- kernels ---------------------------------------------------------------------------------------
static const dt_kernel_pair kernels[DT_OP_COUNT] = {
#define OP(id, min_in, max_in, n_out, amp, cpu, cuda) {DT_KERNEL_PAIR_##cuda(dt_cuda_##id)},
#include "graph/ops.def"
#undef OP
};

static const dt_kernel *cuda_backend_kernel(const dt_backend *b, dt_op op, bool backward) {
    return backward ? kernels[op].backward : kernels[op].forward;
}

// ---- chosen engines --------------------------------------------------------------------------------
static char *cuda_backend_choices(dt_backend *b) {
    dt_cuda *c = dt_cuda_self(b);
    dt_cuda_plans_save(c->plans);
    return dt_cuda_plans_text(c->plans);
}

static void cuda_backend_take_choices(dt_backend *b, const char *text) {
    dt_cuda_plans_take(dt_cuda_self(b)->plans, text);
}

// All engines share the largest workspace.
static size_t most_workspace(const dt_cuda *c) {
    const size_t share = c->info.total_bytes / 32; // a 32nd of the device, at most DT_PLAN_WORKSPACE
    return share < DT_PLAN_WORKSPACE ? share : DT_PLAN_WORKSPACE;
}

static dt_status size_only(dt_backend *b, bool on) {
    dt_cuda *c = dt_cuda_self(b);
    const dt_cuda_plans_opts o = {
        .machine = "", .no_timing = true, .size_only = true, .most_workspace = most_workspace(c)};
    if (on) { // size_only: plans for `dtrain check`, without timing
        c->timed_plans = c->plans;
        return dt_cuda_plans_create(&c->plans, c->api, &o);
    }
    dt_cuda_plans_destroy(c->plans);
    c->plans = c->timed_plans;
    c->timed_plans = NULL;
    return DT_OK;
}

static dt_status cuda_backend_make_plans(dt_cuda *c, const dt_backend_opts *opts) {
    char machine[512];
    snprintf(machine, sizeof machine, "%s, sm_%d%d, %d SMs, driver %s for %d, %s", c->info.name, c->info.major,
             // everything that the time or the existence of an engine depends on
             c->info.minor, c->info.n_sm, c->info.driver_version, c->info.driver, c->api->versions(c->api));
    const dt_cuda_plans_opts o = {.machine = machine,
                                  .folder = opts->cache_folder,
                                  .no_timing = !opts->timed,
                                  .uncaptured = opts->uncaptured,
                                  .most_workspace = most_workspace(c)};
    return dt_cuda_plans_create(&c->plans, c->api, &o);
}

// ---- life ------------------------------------------------------------------------------------------
static void close_device(dt_cuda *c) {
    dt_cuda_plans_destroy(c->plans); // also half-made: destroy takes NULL
    dt_cuda_plans_destroy(c->timed_plans);
    if (c->device.stream) c->api->stream_destroy(c->api, c->device.stream);
    if (c->event) c->api->event_destroy(c->api, c->event);
    free(c);
}

static void cuda_backend_destroy(dt_backend *b) {
    close_device(dt_cuda_self(b));
    free(b);
}

static const dt_device device_table = {.alloc_shared = alloc_shared,
                                       .memory = memory,
                                       .stream_create = stream_create,
                                       .stream_destroy = stream_destroy,
                                       .synchronize = synchronize,
                                       .stream_done = stream_done,
                                       .stream_wait = stream_wait,
                                       .copy_in = copy_in,
                                       .copy_out = copy_out,
                                       .capture_begin = capture_begin,
                                       .capture_end = capture_end,
                                       .graph_launch = graph_launch,
                                       .graph_destroy = graph_destroy,
                                       .size_only = size_only,
                                       .count = dt_cuda_count,
                                       .add = dt_cuda_flat_add,
                                       .swap = dt_cuda_flat_swap,
                                       .commit_create = dt_cuda_commit_create,
                                       .commit_phase = dt_cuda_commit_phase,
                                       .commit_sums = dt_cuda_commit_sums,
                                       .commit_destroy = dt_cuda_commit_destroy};

static const dt_pass passes[] = {dt_pass_relu_bits, dt_pass_fuse_norm_act, NULL};

dt_status dt_cuda_backend_create(dt_backend **out, dt_cuda_api *api, const dt_nccl_api *nccl, int index,
                                 const dt_backend_opts *opts) {
    *out = NULL;
    dt_cuda *c = dt_xcalloc(1, sizeof *c);
    *c = (dt_cuda){.api = api,
                   .index = index,
                   .deterministic = opts->deterministic,
                   .tf32 = opts->tf32,
                   .unsummed = opts->unsummed,
                   .world_size = opts->world_size,
                   .attention_bytes = DT_ATTENTION_BYTES};
    const int used = api->device_use(api, index); // before any other call on the device
    if (used) {
        free(c);
        // no kernel has run yet, and the device's name is not known here
        const bool busy = used == DT_CUDA_DEVICE_BUSY || used == DT_CUDA_DEVICE_IN_USE;
        return dt_fail(busy ? DT_E_USAGE : DT_E_INTERNAL, "device.kind: cuda: device %d does not start: %s%s", index,
                       api->error_text(api, used),
                       busy ? ": it is in exclusive-process mode and another process has it, or in prohibited "
                              "mode (nvidia-smi -q -d COMPUTE). Wait for the other (nvidia-smi names it), take "
                              "another device (CUDA_VISIBLE_DEVICES), or allow sharing (nvidia-smi -c DEFAULT)"
                            : "; nvidia-smi and the kernel's log (dmesg, lines with Xid) may have details");
    }
    // not after an error
    if (!c->error) dt_cuda_check(c, api->device_info(api, index, &c->info), "asking for the device");
    if (!c->error) dt_cuda_check(c, api->event_create(api, &c->event, false), "creating an event");
    c->device = device_table;
    c->device.index = index;
    c->device.bus = c->info.pci;
    c->device.rates = dt_cuda_rates(&c->info);
    c->device.nccl = nccl;
    if (!c->error) dt_cuda_check(c, api->stream_create(api, &c->device.stream, false), "creating a stream");
    dt_status status = cuda_status(c);
    if (status == DT_OK) status = cuda_backend_make_plans(c, opts);
    if (status != DT_OK) {
        close_device(c);
        return status;
    }
    // dt_run_state_environment keeps the part of this text that engine choices depend on
    snprintf(c->text, sizeof c->text,
             "cuda: %s, sm_%d%d, %.0f GB, driver %s, %s, choices " DT_PLAN_CHOICES ", device %d", c->info.name,
             c->info.major, c->info.minor, (double)c->info.total_bytes / 1e9,
             c->info.driver_version[0] ? c->info.driver_version : "unknown", api->versions(api), index);
    dt_backend *b = dt_xcalloc(1, sizeof *b);
    *b = (dt_backend){.name = "cuda",
                      .device = &c->device,
                      .self = c,
                      .threads = opts->threads < 1 ? 1 : opts->threads,
                      .passes = passes,
                      .supports_dtype = cuda_backend_supports_dtype,
                      .computes_dtype = cuda_backend_supports_dtype,
                      .describe = cuda_backend_describe,
                      .alloc = cuda_backend_alloc,
                      .free = cuda_backend_release,
                      .alloc_host = alloc_host,
                      .free_host = free_host,
                      .copy_to_device = copy_to_device,
                      .copy_to_host = copy_to_host,
                      .choices = cuda_backend_choices,
                      .take_choices = cuda_backend_take_choices,
                      .kernel = cuda_backend_kernel,
                      .reorder = dt_cuda_reorder,
                      .destroy = cuda_backend_destroy};
    *out = b;
    return DT_OK;
}
