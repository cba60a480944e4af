// conv_algorithm.c: see own_conv.h.
#include "backend/cpu/own_conv.h"

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/cpu_choices.h"
#include "base/core.h"
#include "base/os.h"
#include "base/watch.h"
#include "graph/activation_words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 4, N_DIRECTIONS = 3 }; // runs of each candidate at most
// multiply-adds times two per thread and run, a few ms; slower than the best by a third: out
static const double TIMED_FLOP = 2.5e8, FAR = 1.3;
// pixels of a timed batch, at least; a filter's cost in tiles of Winograd
enum { TIMED_PIXELS = 4096, FILTER_TILES = 48 };

// ---- one kernel ------------------------------------------------------------------------------------
dt_status dt_conv_kernel_create(dt_conv_kernel *k, const dt_dnnl_env *env, dt_dnnl_direction dir,
                                const dt_dnnl_conv *conv, dt_winograd_way way) {
    // decides the number of arguments
    *k = (dt_conv_kernel){.dir = dir, .has_bias = conv->bias.format != DT_DNNL_ABSENT};
    if (!way) return dt_dnnl_op_create_conv(&k->library, env, dir, conv);
    k->winograd = dt_winograd_create(way, dir, conv, env->threads);
    return DT_OK;
}

void dt_conv_kernel_fini(dt_conv_kernel *k) {
    dt_dnnl_op_destroy(k->library);
    dt_winograd_destroy(k->winograd);
    *k = (dt_conv_kernel){.library = NULL}; // zeros: fini may run again
}

size_t dt_conv_kernel_scratch_bytes(const dt_conv_kernel *k) {
    // Winograd: tiles of transformed input and output
    return k->winograd ? dt_winograd_scratch_bytes(k->winograd) : dt_dnnl_op_scratch_bytes(k->library);
}

const char *dt_conv_kernel_name(const dt_conv_kernel *k) {
    return k->winograd ? "winograd" : dt_dnnl_op_impl(k->library);
}

// Of an activation, in the layout that custom kernels want.
static size_t blocked_bytes(const dt_dnnl_tensor *t) {
    const dt_shape shape = dt_shape4(t->d[0], t->d[1], t->d[2], t->d[3]);
    return dt_layout_bytes(dt_blocked(dt_cpu_block()), t->type, &shape); // (N,C,H,W)
}

size_t dt_conv_kernel_bytes(const dt_conv_kernel *k, const dt_dnnl_conv *conv, dt_conv_arg arg) {
    // the library's arguments: src, weights, bias where there is one, dst
    const int in_library = (int)arg + (arg == DT_CONV_DST && k->has_bias);
    if (!k->winograd) return dt_dnnl_md_bytes(dt_dnnl_op_md(k->library, in_library));
    if (arg == DT_CONV_WEIGHTS) return dt_winograd_packed_bytes(k->winograd);
    return blocked_bytes(arg == DT_CONV_SRC ? &conv->src : &conv->dst); // Winograd reads and writes the blocked layout
}

void dt_conv_kernel_run(const dt_conv_kernel *k, int replica, const void *const *ptr, void *scratch) {
    if (!k->winograd)
        dt_dnnl_op_run(k->library, replica, ptr, scratch);
    else if (k->dir == DT_DNNL_FORWARD)
        // arguments: x, w, (bias), y
        dt_winograd_run(k->winograd, ptr[0], ptr[1], k->has_bias ? ptr[2] : NULL, (void *)ptr[2 + k->has_bias],
                        scratch);
    else if (k->dir == DT_DNNL_BACKWARD_DATA)
        dt_winograd_run(k->winograd, ptr[2], ptr[1], NULL, (void *)ptr[0], scratch); // dx, w, dy: dy plays the input
    else
        dt_winograd_run_weights(k->winograd, ptr[0], ptr[2], (void *)ptr[1], false, scratch); // x, dw, dy
}

// ---- what is timed ---------------------------------------------------------------------------------
static double flop_of(const dt_dnnl_conv *c) {
    const int64_t *y = c->dst.d, *w = c->weights.d;
    return 2.0 * (double)(y[0] * y[1] * y[2] * y[3]) * (double)(w[1] * w[2] * w[3]); // 2 N O P Q * C R S
}

// The convolution that is timed: with fewer images, and without bias, addition and activation.
static dt_dnnl_conv to_time(const dt_dnnl_conv *c, int threads) {
    dt_dnnl_conv t = *c;
    t.bias = (dt_dnnl_tensor){.format = DT_DNNL_ABSENT}; // both candidates add bias and activation at the same price
    t.after = (dt_dnnl_after){.act = DT_ACTIVATION_none};
    const double each = flop_of(c) / (double)c->dst.d[0];
    const int64_t work = (int64_t)(TIMED_FLOP * threads / each) + 1; // images that fill the time
    // small images: enough pixels to fill the tiles
    const int64_t pixels = TIMED_PIXELS / (c->dst.d[2] * c->dst.d[3]) + 1;
    const int64_t n = work > pixels ? work : pixels;
    if (n < t.src.d[0]) t.src.d[0] = t.dst.d[0] = n; // never more than the real batch
    const double most = 16 * TIMED_FLOP * threads;   // one image may take 16 times the usual work
    if (each > most) {                               // keeps the first rows of the image
        const int64_t rows = (int64_t)((double)t.dst.d[2] * most / each) + 1; // output rows
        t.dst.d[2] = rows;
        // input rows that these outputs read
        t.src.d[2] =
            (rows - 1) * t.stride[0] + t.dilation[0] * (t.weights.d[2] - 1) + 1 - t.pad_begin[0] - t.pad_end[0];
    }
    return t;
}

static void conv_algorithm_print(const dt_dnnl_conv *c, const char *what, char *text) {
    const int64_t *x = c->src.d, *w = c->weights.d;
    // the key in the file of choices: everything that the time depends on
    snprintf(text, DT_CHOICE_TEXT,
             "conv2d %s%s %lldx%lldx%lldx%lld to %lld, %lldx%lld stride %lld,%lld "
             "dilation %lld,%lld pad %lld,%lld,%lld,%lld",
             c->src.type == DT_BF16 ? "bf16 " : "", what, (long long)x[0], (long long)x[1], (long long)x[2],
             (long long)x[3], (long long)c->dst.d[1], (long long)w[2], (long long)w[3], (long long)c->stride[0],
             (long long)c->stride[1], (long long)c->dilation[0], (long long)c->dilation[1], (long long)c->pad_begin[0],
             (long long)c->pad_begin[1], (long long)c->pad_end[0], (long long)c->pad_end[1]);
}

// ---- timing ----------------------------------------------------------------------------------------
// A kernel with memory for its arguments, filled with numbers around 0.
typedef struct bench {
    dt_conv_kernel kernel;
    void *ptr[DT_N_CONV_ARGS], *scratch;
} bench;

// A candidate: one or several directions.
typedef struct candidate {
    bench b[N_DIRECTIONS];
    int n;
    const dt_dnnl_conv *reordered; // what comes in and goes out lies in another layout; NULL: it does not
    double least, extra;           // seconds: of a run, and what else counts
} candidate;

static void *conv_algorithm_filled(size_t n_bytes) {
    enum { PERIOD = 64 << 10 }; // 64 KiB repeated: random numbers are slow to make
    void *p = NULL;
    uint32_t x = 1;
    if (posix_memalign(&p, 64, dt_align_up(n_bytes + 1, 64))) abort(); // 64 bytes: a cache line and an AVX-512 vector
    for (size_t i = 0; i < n_bytes / sizeof(float) && i < PERIOD / sizeof(float); i++) {
        x = x * 1664525u + 1013904223u;                 // linear congruential generator (Numerical Recipes)
        ((float *)p)[i] = (float)(int32_t)x * 0x1p-31f; // [-1, 1): no denormals, which would be slow
    }
    for (size_t at = PERIOD; at < n_bytes; at += PERIOD)
        memcpy((char *)p + at, p, n_bytes - at < PERIOD ? n_bytes - at : PERIOD);
    return p;
}

static bool add_kernel(candidate *r, const dt_kernel_instance *s, dt_dnnl_direction dir, const dt_dnnl_conv *conv,
                       dt_winograd_way way) {
    const dt_dnnl_env env = {.threads = s->threads, .n_replicas = 1}; // one memory object: the timing is single
    bench *b = &r->b[r->n];
    if (dt_conv_kernel_create(&b->kernel, &env, dir, conv, way) != DT_OK) {
        dt_error_clear(); // a candidate that does not fit is none
        return false;
    }
    for (int i = 0; i < DT_N_CONV_ARGS; i++) {
        const dt_conv_arg arg = (dt_conv_arg)i;
        const size_t n_bytes = dt_conv_kernel_bytes(&b->kernel, conv, arg);
        // weights are never reordered between layouts
        const size_t blocked = arg == DT_CONV_WEIGHTS ? 0 : blocked_bytes(arg == DT_CONV_SRC ? &conv->src : &conv->dst);
        b->ptr[i] = conv_algorithm_filled(n_bytes > blocked ? n_bytes : blocked); // which reorder() also fills
    }
    b->scratch = conv_algorithm_filled(dt_conv_kernel_scratch_bytes(&b->kernel));
    r->n++;
    return true;
}

static void candidate_fini(candidate *r) {
    for (int k = 0; k < r->n; k++) {
        for (int i = 0; i < DT_N_CONV_ARGS; i++) free(r->b[k].ptr[i]);
        free(r->b[k].scratch);
        dt_conv_kernel_fini(&r->b[k].kernel);
    }
    r->n = 0;
}

// Moves x in and dx out, y out and dy in, where custom kernels want another layout.
static void reorder(const dt_kernel_instance *s, const candidate *r) {
    const dt_dnnl_tensor *t[2] = {&r->reordered->src, &r->reordered->dst};
    for (int i = 0; i < 2; i++) {
        if (t[i]->d[1] % (2 * dt_cpu_block()) == 0) continue; // custom kernels take it as it lies
        const dt_shape shape = dt_shape4(t[i]->d[0], t[i]->d[1], t[i]->d[2], t[i]->d[3]);
        const dt_layout layouts[2] = {t[i]->layout, dt_blocked(dt_cpu_block())};
        // both directions of the product have a tensor of this size
        void *at[2] = {r->b[0].ptr[2 * i], r->b[1].ptr[2 * i]}; // 2 * i: DT_CONV_SRC or DT_CONV_DST
        for (int k = 0; k < 2; k++)                             // there and back: into the layout and out of it
            dt_cpu_reorder(s->backend, s->threads, &shape, at[k], t[i]->type, layouts[k], at[!k], t[i]->type,
                           layouts[!k], NULL);
    }
}

// Times the candidates in turn, so that other load on the machine slows them alike. A candidate that is far behind
// after two rounds runs no more; the first round finds cold caches.
static void race(const dt_kernel_instance *s, candidate *r, int n) {
    double best = 0;
    for (int i = 0; i < n * ROUNDS; i++) { // i / n: the round
        candidate *now = &r[i % n];
        if (!now->n || (i >= 2 * n && now->least > FAR * best)) continue; // two rounds each before anyone drops out
        // work time: CPU time of one thread, so that other load does not count
        const double begin = dt_clock_work_s(s->threads);
        for (int k = 0; k < now->n; k++)
            dt_conv_kernel_run(&now->b[k].kernel, 0, (const void *const *)now->b[k].ptr, now->b[k].scratch);
        if (now->reordered) reorder(s, now);
        const double took = dt_clock_work_s(s->threads) - begin;
        if (i < n || took < now->least) now->least = took; // the first measured round replaces zeros
        if (best == 0 || now->least < best) best = now->least;
        dt_watch_tick(); // progress: timing must not look like a hang
    }
}

// fastest() chooses between n ways of the same work; make() creates the kernels of way `which`, false: there is none.
typedef bool (*make_fn)(const dt_kernel_instance *s, dt_dnnl_direction dir, const dt_dnnl_conv *conv, int which,
                        candidate *out);

static int conv_algorithm_fastest(const dt_kernel_instance *s, dt_dnnl_direction dir, const dt_dnnl_conv *conv,
                                  const char *text, int n, make_fn make) {
    dt_cpu_choices *choices = dt_cpu_choices_of(s->backend);
    const int known = dt_cpu_choices_find(choices, text);
    if (known >= 0) return known < n ? known : 0; // a file of another version may name a candidate that is not here
    // no time left at this start: candidate 0, without an entry in the file
    if (dt_cpu_choices_left_s(choices) <= 0) return dt_cpu_choices_add(choices, text, NULL, 0, 0);
    const double begin = dt_clock_work_s(s->threads);
    candidate r[DT_CHOICE_RATES] = {{.n = 0}};
    double rate[DT_CHOICE_RATES] = {0};
    int n_made = 0, choice = 0;
    for (int k = 0; k < n; k++) {
        if (make(s, dir, conv, k, &r[k])) // `choice`: the only one, if one is made
            n_made++, choice = k;
        else
            candidate_fini(&r[k]);
    }
    if (n_made > 1) { // a single candidate needs no timing
        race(s, r, n);
        for (int k = 0; k < n; k++)
            // GFLOP/s; 1e-9: no division by zero
            if (r[k].n) rate[k] = flop_of(conv) * r[k].n / 1e9 / (r[k].least + r[k].extra + 1e-9);
        choice = dt_cpu_choices_add(choices, text, rate, n, dt_clock_work_s(s->threads) - begin);
    }
    for (int k = 0; k < n; k++) candidate_fini(&r[k]);
    return choice;
}

// ---- Winograd --------------------------------------------------------------------------------------
// Multiplications for one pair of channels. Reading a filter, or adding to its gradient, counts as FILTER_TILES tiles.
static int64_t conv_algorithm_cost_of(int tile, const dt_dnnl_tensor *out) {
    // partial tiles cost as whole ones
    const int64_t rows = (out->d[2] + tile - 1) / tile, cols = (out->d[3] + tile - 1) / tile;
    // F(t x t, 3 x 3) multiplies (t + 2)^2 numbers per tile
    return (int64_t)(tile + 2) * (tile + 2) * (out->d[0] * rows * cols + FILTER_TILES);
}

int dt_conv_ways(dt_dnnl_direction dir, const dt_dnnl_conv *c, dt_winograd_way way[DT_CONV_MOST_WAYS]) {
    // what the tiles cover: dx, else y
    const dt_dnnl_tensor *out = dir == DT_DNNL_BACKWARD_DATA ? &c->src : &c->dst;
    way[0] = DT_WINOGRAD_NONE;
    if (!dt_winograd_fits(dir, c)) return 1;
    // the cheaper of tiles 4 and 2 by count; 0 is the direct kernel
    way[1] = conv_algorithm_cost_of(4, out) < conv_algorithm_cost_of(2, out) ? DT_WINOGRAD_4 : DT_WINOGRAD_2;
    way[2] = DT_WINOGRAD_2_BF16;
    return c->src.type == DT_BF16 && dt_cpu_has_bf16() ? 3 : 2; // bf16 only where the CPU multiplies bf16
}

// Seconds of transforming the filters.
static double pack_seconds(const dt_kernel_instance *s, const bench *b, const dt_dnnl_conv *conv) {
    float *dense = conv_algorithm_filled((size_t)(conv->weights.d[0] * conv->weights.d[1] * 9) * sizeof *dense);
    double least = 0;
    for (int i = 0; i < 2; i++) { // the second run finds warm caches
        const double begin = dt_clock_work_s(s->threads);
        dt_winograd_pack(b->kernel.winograd, dense, b->ptr[DT_CONV_WEIGHTS], s->threads);
        const double took = dt_clock_work_s(s->threads) - begin;
        if (i == 0 || took < least) least = took;
    }
    free(dense);
    return least;
}

static bool make_algorithm(const dt_kernel_instance *s, dt_dnnl_direction dir, const dt_dnnl_conv *conv, int which,
                           candidate *out) {
    dt_winograd_way way[DT_CONV_MOST_WAYS];
    dt_conv_ways(dir, conv, way);
    if (!add_kernel(out, s, dir, conv, way[which])) return false;
    // filters are transformed once per step in training, never in inference
    if (which && dir != DT_DNNL_BACKWARD_WEIGHTS && s->graph->training) out->extra = pack_seconds(s, &out->b[0], conv);
    return true;
}

dt_winograd_way dt_conv_chosen_way(const dt_kernel_instance *s, dt_dnnl_direction dir, const dt_dnnl_conv *conv) {
    static const char *const directions[] = {"forward", "data gradient", "weight gradient"};
    char text[DT_CHOICE_TEXT];
    dt_winograd_way way[DT_CONV_MOST_WAYS];
    const dt_dnnl_conv timed = to_time(conv, s->threads);
    const int n = dt_conv_ways(dir, &timed, way);
    // directions differ in cost, so each has a key
    if (!dt_winograd_fits(dir, conv) || !dt_cpu_allows_winograd(s->backend)) return DT_WINOGRAD_NONE;
    conv_algorithm_print(&timed, s->graph->training ? directions[dir] : "evaluation", text);
    return way[conv_algorithm_fastest(s, dir, &timed, text, n, make_algorithm)];
}

// ---- NHWC ------------------------------------------------------------------------------------------
// which 0: NHWC with AMX kernels; 1: the blocked layout
static bool make_layout(const dt_kernel_instance *s, dt_dnnl_direction dir, const dt_dnnl_conv *conv, int which,
                        candidate *out) {
    dt_dnnl_conv c = *conv;
    if (which) {
        c.src.layout = dt_cpu_conv_layout(c.src.d[1]); // as create_ops would choose
        c.dst.layout = dt_blocked(dt_cpu_block());
    }
    out->reordered = which ? NULL : conv;
    for (int k = 0; k < N_DIRECTIONS; k++) { // all three directions: they share the layout
        if (k == DT_DNNL_BACKWARD_DATA && dt_cpu_conv_layout(c.src.d[1]).kind == DT_DENSE)
            continue;                                                         // nobody wants an image's gradient
        c.weights.type = k == DT_DNNL_BACKWARD_WEIGHTS ? DT_F32 : c.src.type; // dw in f32
        const dt_dnnl_direction dir_k = (dt_dnnl_direction)k;
        const dt_winograd_way way = which ? dt_conv_chosen_way(s, dir_k, &c) : DT_WINOGRAD_NONE;
        if (!add_kernel(out, s, dir_k, &c, way)) return false;
        // a reference implementation in NHWC is no candidate
        if (!which && dt_dnnl_op_is_slow(out->b[out->n - 1].kernel.library)) return false;
    } // with its own choice, timed before
    return true;
}

bool dt_conv_wants_nhwc(const dt_kernel_instance *s, const dt_dnnl_conv *conv) {
    char text[DT_CHOICE_TEXT];
    // only AMX prefers NHWC; groups are not timed
    if (!dt_cpu_has_amx() || conv->src.type != DT_BF16 || conv->weights.n != 4) return false;
    dt_dnnl_conv timed = to_time(conv, s->threads);
    timed.src.layout = timed.dst.layout = (dt_layout){.kind = DT_NHWC};
    conv_algorithm_print(&timed, "layout", text);
    return conv_algorithm_fastest(s, DT_DNNL_FORWARD, &timed, text, 2, make_layout) == 0; // the first candidate won
}
