// count_cuda.c: dt_device.count: what each launch moves and computes, the least time that it needs, and how long it takes.
// While it counts, the functions of the table that queue work are those of this file.
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_plans.h"
#include "backend/cuda/kernels/all_kernels.h"

#include <stdio.h>
#include <string.h>

enum { REPEATS = 10, ROW_BYTES = 1 << 18 }; // launches per timing; bytes of a tensor's row at most

// sizes of the argument structs, by kernel
static const size_t args_bytes[] = {
#define CUDA_CUSTOM_KERNEL(name, args_t) sizeof(args_t),
#include "backend/cuda/cuda_custom_kernels.def"
#undef CUDA_CUSTOM_KERNEL
};

// A process has one table, and one backend that counts.
static dt_cost_counter *counter; // NULL: none does
static dt_cuda *counted;
static dt_cuda_api real; // what the table has otherwise
static void *events[2];

// Flop of a multiprocessor in a clock, from NVIDIA's rates of its devices: of tensor cores with 16-bit factors (half as many
// with TF32), and of the rest in fp32. 0: unknown, of tensor cores.
static double flop_a_clock(const dt_cuda_device_info *d, bool tensor) {
    const bool a100 = d->major == 8 && d->minor == 0;
    if (!tensor) return a100 ? 128 : 256; // A100 (sm_80) differs from the other sm_8x
    if (d->major == 8) return a100 ? 2048 : 1024;
    // sm_90: H100; sm_100: B100; sm_120: RTX 50
    return d->major == 9 ? 4096 : d->major == 10 ? 8192 : d->major == 12 ? 1024 : 0;
}

dt_device_rates dt_cuda_rates(const dt_cuda_device_info *d) {
    // clocks per second of all multiprocessors
    const double clocks = d->n_sm * d->clock_hz, tensor = flop_a_clock(d, true) * clocks;
    return (dt_device_rates){.bytes_s = d->bytes_s,
                             .f32_flop_s = flop_a_clock(d, false) * clocks,
                             .tf32_flop_s = tensor / 2,
                             .f16_flop_s = tensor};
}

// ---- timing ----------------------------------------------------------------------------------------
typedef struct timing {
    double seconds;
    int error;
} timing;

// The graph once, then timed.
static void play(timing *t, void *graph, void *stream) { // twice: the first launch of a graph uploads it
    float ms = 0;
    int e = 0;
    for (int i = 0; i < 2 && !e; i++) {
        e = real.event_record(&real, events[0], stream);
        if (!e) e = real.graph_launch(&real, graph, stream);
        if (!e) e = real.event_record(&real, events[1], stream);
        if (!e) e = real.stream_synchronize(&real, stream);
        if (!e) e = real.event_ms(&real, events[0], events[1], &ms);
    }
    t->seconds = ms / 1e3 / REPEATS; // of the second
    t->error = e;
}

// Whether a launch is made in this turn of a loop: the first turn only loads it, the others are recorded.
static bool again(timing *t, int turn, void *stream) {
    void *graph = NULL;
    if (!counter->timed || (t->error && turn < 2)) return false; // a failed first launch is not repeated
    if (turn == 1) t->error = real.capture_begin(&real, stream); // from turn 1 on launches are recorded
    if (turn <= REPEATS) return !t->error || turn > 1;           // turns 1 … REPEATS
    const int e = real.capture_end(&real, stream, &graph);
    if (!t->error) t->error = e;
    if (!t->error) play(t, graph, stream);
    if (graph) real.graph_destroy(&real, graph);
    return false;
}

#define TIME(t, stream, call)                                                                                          \
    for (int turn = 0; again(&t, turn, stream); turn++) {                                                              \
        const int e = call;                                                                                            \
        if (!t.error) t.error = e;                                                                                     \
    }

// ---- launches --------------------------------------------------------------------------------------
static int count_cuda_bytes(const timing *t, const char *kind, double bytes, double flop, double flop_s) {
    const dt_device_rates *r = &counter->rates;
    dt_kernel_cost one = {.n = 1, .bytes = bytes, .flop = flop, .seconds = t->seconds}; // seconds 0: not timed
    const double by_memory = r->bytes_s > 0 ? bytes / r->bytes_s : 0, by_math = flop_s > 0 ? flop / flop_s : 0;
    one.floor_s = by_memory > by_math ? by_memory : by_math; // bytes and math overlap: the longer one is the floor
    snprintf(one.kind, sizeof one.kind, "%s", kind);
    counter->add(counter, &one);
    return t->error;
}

static double count_cuda_rate_of(dt_dtype type, bool tf32) {
    const dt_device_rates *r = &counter->rates;
    return type != DT_F32 ? r->f16_flop_s : tf32 ? r->tf32_flop_s : r->f32_flop_s; // 16-bit factors run on tensor cores
}

// Whether it only ends sums, of which it shares the arguments: it reads at most a row of a tensor.
static bool ends_sums(dt_cuda_kernel k) {
    return k == DT_K_bn_finish || k == DT_K_bn_bwd_finish || k == DT_K_ln_bwd_finish || k == DT_K_loss_finish ||
           k == DT_K_sum_chunks || k == DT_K_column_sum;
}

static int count_cuda_launch(dt_cuda_api *a, dt_cuda_kernel k, dt_cuda_grid g, const void *args, void *st) {
    const dt_operands *o = &counter->operands;
    bool seen[sizeof o->list / sizeof *o->list] = {false}; // each operand counts once per launch
    double bytes = 0;
    timing t = {0};
    const size_t most = ends_sums(k) ? ROW_BYTES : SIZE_MAX;
    // any pointer-sized word of the arguments may be a pointer
    for (size_t i = 0; i + sizeof(uintptr_t) <= args_bytes[k]; i += sizeof(uintptr_t)) {
        uintptr_t p;
        memcpy(&p, (const char *)args + i, sizeof p);
        for (int j = 0; j < o->n; j++) {
            if (seen[j] || o->list[j].n_bytes > most || p < o->list[j].at || p >= o->list[j].at + o->list[j].n_bytes)
                continue; // not an operand, or too large for a kernel that only ends sums
            seen[j] = true;
            bytes += (double)o->list[j].n_bytes; // a whole operand, wherever in it the pointer lies
        }
    }
    TIME(t, st, real.launch(&real, k, g, args, st))
    return count_cuda_bytes(&t, dt_cuda_kernel_names[k], bytes, 0, 0); // custom kernels are bound by memory
}

static int dnn_run(dt_cuda_api *a, void *plan, void *const *ptr, void *workspace, void *st) {
    static const char *const kinds[] = {
        [DT_DNN_CONV_FWD] = "convolution",
        [DT_DNN_CONV_DGRAD] = "convolution, data gradient",
        [DT_DNN_CONV_WGRAD] = "convolution, weight gradient",
        [DT_DNN_SDPA_FWD] = "attention",
        [DT_DNN_SDPA_BWD] = "attention, gradients",
    };
    const dt_dnn_desc *d = &dt_cuda_plan_find(counted->plans, plan)->does.dnn;
    const double size = (double)dt_dtype_size(d->type), flop_s = count_cuda_rate_of(d->type, d->tf32);
    timing t = {0};
    TIME(t, st, real.dnn_run(&real, plan, ptr, workspace, st))
    if (dt_cuda_is_attention(d)) {
        const bool back = d->kind == DT_DNN_SDPA_BWD;
        const double rows = (double)(d->n * d->heads * d->d); // elements of q, per row
        return count_cuda_bytes(&t, kinds[d->kind], (back ? 4 : 2) * rows * (double)(d->tq + d->tk) * size,
                                // multiply-adds times two: two products forward, five backward
                                (back ? 10 : 4) * rows * (double)(d->tq * d->tk), flop_s);
    }
    const double taps = (double)(d->win.kernel[0] * d->win.kernel[1] * (d->c / d->groups));
    const double y = (double)(d->n * d->out_h * d->out_w * d->k); // elements of y
    return count_cuda_bytes(&t, kinds[d->kind], ((double)(d->n * d->h * d->w * d->c) + (double)d->k * taps + y) * size,
                            2 * y * taps, flop_s); // 2: multiply and add
}

static int gemm_run(dt_cuda_api *a, void *plan, const void *A, const void *B, void *D, bool add, void *bias, void *aux,
                    void *workspace, void *st) {
    const dt_gemm_desc *d = &dt_cuda_plan_find(counted->plans, plan)->does.gemm;
    const double size = (double)dt_dtype_size(d->type), out = (double)dt_dtype_size(d->out_type);
    const double n = d->batch > 1 ? (double)d->batch : 1;
    const double m_k = (double)(d->m * d->k), k_n = (double)(d->k * d->n), m_n = (double)(d->m * d->n);
    timing t = {0};
    TIME(t, st, real.gemm_run(&real, plan, A, B, D, add, bias, aux, workspace, st))
    // add reads the destination, aux is one more matrix
    return count_cuda_bytes(&t, "matmul", n * ((m_k + k_n) * size + m_n * out * (1 + add + (aux != NULL))),
                            2 * n * m_n * (double)d->k, count_cuda_rate_of(d->type, d->tf32));
}

static int zero(dt_cuda_api *a, void *dst, size_t n, void *st) {
    timing t = {0};
    TIME(t, st, real.zero(&real, dst, n, st))
    return count_cuda_bytes(&t, "zeros", (double)n, 0, 0);
}

static int count_cuda_copy(dt_cuda_api *a, void *dst, const void *src, size_t n, int direction, void *st) {
    timing t = {0};
    TIME(t, st, real.copy(&real, dst, src, n, direction, st))
    return count_cuda_bytes(&t, "copy", 2 * (double)n, 0, 0); // read and write
}

void dt_cuda_count(dt_backend *b, dt_cost_counter *c) {
    dt_cuda *self = dt_cuda_self(b);
    dt_cuda_api *api = self->api;
    int e = 0;
    if (!counter && c) {
        real = *api; // the table is shared: its functions are replaced
        for (int i = 0; i < 2 && !e && c->timed; i++) e = real.event_create(&real, &events[i], true);
        api->launch = count_cuda_launch, api->dnn_run = dnn_run, api->gemm_run = gemm_run;
        api->zero = zero, api->copy = count_cuda_copy;
    } else if (counter && !c) {
        *api = real; // restores all
        for (int i = 0; i < 2; i++) {
            if (events[i] && !e) e = real.event_destroy(&real, events[i]);
            events[i] = NULL;
        }
    }
    counter = c;
    counted = self;
    // pages exist, and no NaN slows a kernel
    if (c && c->timed && !e) e = real.zero(&real, (void *)c->operands.base, c->operands.n_bytes, self->device.stream);
    dt_cuda_check(self, e, "timing kernels");
}
