// cuda_plans.c: see cuda_plans.h.
//
// If cuDNN says that it has no engine for attention, matmuls do the work (sdpa_cuda.c) and a warning says so. Any other
// error stops the start: otherwise a missing library would only make training slow.
//
// Of the engines on offer we try the favourite and the precompiled ones. Those that compile while their plan is made
// are tried only if there is little else.
//
// Engines compete on time alone and may use as much workspace for it as most_workspace says. If all of them want more,
// the one that wants the least serves.
//
// If there is not enough memory for timing (cuda_plans.h), the library's favourite serves and nothing is remembered.
//
// A convolution that also makes sums saves its batch norm a pass over y, but has fewer engines. It is therefore timed
// once beside the plain one, and taken if it needs no more than the plain one plus a pass over y, for which filling y
// with zeros stands. NOT_WORTH records a no. A batch norm of few pixels (DT_BN_SMALL_PIXELS) makes that pass
// from its cache, so that the sums save nothing.
//
// A convolution that applies the batch norm in front of it (normed) is decided together with its weight gradient,
// which must then do the same. Both are taken if they need no more than the plain two and the pass that reads x and
// writes the batch norm's output, for which filling x with zeros twice stands. Without timing they are not taken. The
// line of the forward description holds the answer, including a no, because a resumed run must not decide again.

#include "backend/cuda/cuda_plans.h"

#include "base/core.h"
#include "base/log.h"
#include "base/os.h"
#include "base/rng.h"
#include "base/watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NOT_WORTH = -1, // the choice of a wish (sums, normed) that does not pay
    ENOUGH = 3      // engines to choose from before others are compiled
};

typedef struct plan_entry {
    dt_choice c; // first: dt_choices makes the entries; the number of an engine, or NOT_WORTH
    bool gemm;
    bool none; // no engine
    dt_cuda_plan plan;
} plan_entry;

struct dt_cuda_plans {
    dt_cuda_api *api;
    dt_choices list; // engines-<machine>.txt
    bool no_timing, uncaptured, warned_attention;
    size_t most_workspace;
    int n_plans, n_timed;
    double seconds;
};

static int cuda_plans_make(dt_cuda_plans *p, const dt_plan_kind *k, int choice, void **plan, size_t *bytes) {
    return k->gemm ? p->api->gemm_plan(p->api, k->mul, choice, plan, bytes)
                   : p->api->dnn_plan(p->api, k->dnn, choice, plan, bytes);
}
static void cuda_plans_drop(dt_cuda_plans *p, bool gemm, void *plan) {
    if (!plan) return;
    if (gemm)
        p->api->gemm_destroy(p->api, plan);
    else
        p->api->dnn_destroy(p->api, plan);
}

static plan_entry *entry_of(dt_cuda_plans *p, const char *text) {
    return (plan_entry *)dt_choices_entry(&p->list, text);
}

// ---- choosing --------------------------------------------------------------------------------------
typedef struct candidate {
    void *plan;
    size_t bytes;
    int choice;
} candidate;

// The failure for an error that is not a refusal.
static dt_status cuda_plans_broken(dt_cuda_plans *p, const dt_plan_kind *k, const char *text, int error) {
    return dt_fail(DT_E_INTERNAL, "%s fails for %s: %s", k->gemm ? "cuBLASLt" : "cuDNN", text,
                   p->api->error_text(p->api, error));
}

// Whether there is another way if the library has no engine for it.
static bool is_wish(const dt_plan_kind *k) {
    return !k->gemm && (k->dnn->sums || k->dnn->normed);
}

// Makes plans of the engines, the favourite first, and stores their number in *n_out. If all of them exceed the bound,
// takes the one with the smallest workspace, unless the description is a wish. Fails only if there are none.
static dt_status cuda_plans_list_candidates(dt_cuda_plans *p, const dt_plan_kind *k, const char *text, int n, int most,
                                            candidate *out, int *n_out) {
    const int ready = k->gemm ? n : n - p->api->dnn_compiled(p->api, k->dnn);
    candidate least = {0};
    int count = 0, error = 0;
    *n_out = 0;
    for (int i = 0; i < n && count < most; i++) {
        candidate c = {.choice = i};
        if (i >= ready && count >= ENOUGH) break;
        const int e = cuda_plans_make(p, k, i, &c.plan, &c.bytes);
        if (e && !p->api->is_refusal(p->api, e)) {
            error = e;
            dt_log(DT_LOG_DEBUG, "engine %d of %s: %s", i, text, p->api->error_text(p->api, e));
        }
        if (e) continue;
        if (c.bytes <= p->most_workspace) {
            out[count++] = c;
            continue;
        }
        const bool less = !least.plan || c.bytes < least.bytes;
        cuda_plans_drop(p, k->gemm, less ? least.plan : c.plan);
        if (less) least = c;
    }
    if (!count && least.plan && !is_wish(k))
        out[count++] = least;
    else
        cuda_plans_drop(p, k->gemm, least.plan);
    *n_out = count;
    return count || !error ? DT_OK : cuda_plans_broken(p, k, text, error);
}

// An error while timing: 0 if the device still works, otherwise the error that every call returns from now on.
static int lasting(dt_cuda_plans *p, int error) {
    if (!error || error == DT_CUDA_OUT_OF_MEMORY) return 0;
    return p->api->stream_synchronize(p->api, NULL);
}

// *out: index of the fastest; -1 if they could not be timed.
static dt_status cuda_plans_fastest(dt_cuda_plans *p, const dt_plan_kind *k, const char *text, const candidate *c,
                                    int n, int *out) {
    size_t workspace = 0;
    int best = -1, bad = 0;
    float least = 0;
    dt_plan_bench b;
    for (int i = 0; i < n; i++)
        if (c[i].bytes > workspace) workspace = c[i].bytes;
    const int opened = dt_plan_bench_open(&b, p->api, k, workspace, p->uncaptured);
    int error = lasting(p, opened);
    if (!opened) {
        for (int i = 0; i < n && !error; i++) {
            float ms = 0;
            dt_watch_tick();
            const int e = dt_plan_bench_time(&b, c[i].plan, &ms);
            error = lasting(p, e);
            bad = c[i].choice;
            if (e) continue; // claimed to be supported, but fails
            if (best < 0 || ms < least) {
                best = i;
                least = ms;
            }
        }
    }
    dt_plan_bench_close(&b);
    *out = best;
    return error ? dt_fail(DT_E_INTERNAL,
                           "timing engine %d of %s: %s; device.time_engines: false times "
                           "none",
                           bad, text, p->api->error_text(p->api, error))
                 : DT_OK;
}

// Makes the engine that rank 0, a checkpoint or the file has chosen. c->plan NULL: it no longer exists.
static dt_status make_chosen(dt_cuda_plans *p, plan_entry *e, const dt_plan_kind *k, int n, candidate *c) {
    *c = (candidate){.choice = e->c.choice};
    const int error = e->c.choice < n ? cuda_plans_make(p, k, e->c.choice, &c->plan, &c->bytes) : 0;
    if (error && !p->api->is_refusal(p->api, error)) return cuda_plans_broken(p, k, e->c.text, error);
    if (error || e->c.choice >= n) {
        dt_warn("engine %d, chosen before for %s, is not there: choosing again", e->c.choice, e->c.text);
        c->plan = NULL;
        e->c.choice = DT_CHOICE_NONE;
        e->c.given = false;
    }
    return DT_OK;
}

// *lasts: the choice is worth keeping, which a favourite is not.
static dt_status choose_anew(dt_cuda_plans *p, const plan_entry *e, const dt_plan_kind *k, int n, candidate *c,
                             int *count, int *best, bool *lasts) {
    const double begin = dt_clock_s();
    dt_status st = cuda_plans_list_candidates(p, k, e->c.text, n, p->no_timing ? 1 : DT_PLAN_TRIES, c, count);
    if (*count > 1) {
        if (!p->n_timed++) dt_info("cuda: timing engines, once for these shapes and this machine");
        st = cuda_plans_fastest(p, k, e->c.text, c, *count, best);
    }
    *lasts = st == DT_OK && *count && *best >= 0 && !p->no_timing;
    if (*best < 0) *best = 0;
    p->seconds += dt_clock_s() - begin;
    return st;
}

static dt_status cuda_plans_choose(dt_cuda_plans *p, plan_entry *e, const dt_plan_kind *k, int n) {
    candidate c[DT_PLAN_TRIES];
    int best = 0, count = 0;
    bool lasts = false;
    dt_status st = DT_OK;
    if (e->c.choice != DT_CHOICE_NONE) {
        DT_TRY(make_chosen(p, e, k, n, &c[0]));
        count = c[0].plan != NULL;
    }
    if (!count) st = choose_anew(p, e, k, n, c, &count, &best, &lasts);
    for (int i = 0; i < count; i++)
        if (i != best || st != DT_OK) cuda_plans_drop(p, k->gemm, c[i].plan);
    DT_TRY(st);
    e->none = count == 0;
    if (e->none) return DT_OK;
    e->c.choice = c[best].choice;
    if (lasts) dt_choices_file(&p->list, &e->c);
    e->plan = (dt_cuda_plan){c[best].plan, c[best].bytes, e->c.choice, {{0}}};
    if (k->gemm)
        e->plan.does.gemm = *k->mul;
    else
        e->plan.does.dnn = *k->dnn;
    p->n_plans++;
    return DT_OK;
}

static void warn_of_attention(dt_cuda_plans *p, const char *why, const char *text) {
    if (!p->warned_attention)
        dt_warn("attention runs as matmuls with a softmax between them, which works but is slower "
                "than cuDNN's flash attention: %s (%s)",
                why, text);
    p->warned_attention = true;
}

static dt_status plan_of(dt_cuda_plans *p, const dt_plan_kind *k, const char *text, const dt_cuda_plan **out) {
    plan_entry *e = entry_of(p, text);
    *out = NULL;
    e->c.used = true;
    e->none = e->none || e->c.choice == NOT_WORTH;
    if (e->none) return DT_OK;
    e->gemm = k->gemm;
    if (!e->plan.plan) {
        int n = 0;
        const int error = k->gemm ? p->api->gemm_choices(p->api, k->mul, &n) : p->api->dnn_choices(p->api, k->dnn, &n);
        // a description that a library refuses has no engine
        if (error && !p->api->is_refusal(p->api, error)) return cuda_plans_broken(p, k, text, error);
        if (error) dt_log(DT_LOG_DEBUG, "%s: %s", text, p->api->error_text(p->api, error));
        DT_TRY(cuda_plans_choose(p, e, k, error ? 0 : n));
        if (e->none && !k->gemm && dt_cuda_is_attention(k->dnn))
            warn_of_attention(p, error ? p->api->error_text(p->api, error) : "it has no engine", text);
    }
    if (!e->none) *out = &e->plan;
    return DT_OK;
}

// Passes over memory that a batch norm's sums cost.
static int passes_of_sums(int64_t n_images, int64_t height, int64_t width) {
    return n_images * height * width > DT_BN_SMALL_PIXELS;
}

// Compares an engine that makes sums with the plain one and a pass over y. *worth is true if timing fails.
static dt_status worth_its_sums(dt_cuda_plans *p, const dt_plan_kind *k, const dt_cuda_plan *fused,
                                const dt_cuda_plan *plain, bool *worth) {
    float ms[3] = {0};
    dt_plan_bench b;
    const size_t most =
        fused->workspace_bytes > plain->workspace_bytes ? fused->workspace_bytes : plain->workspace_bytes;
    int e = dt_plan_bench_open(&b, p->api, k, most, p->uncaptured);
    if (!e) e = dt_plan_bench_time(&b, fused->plan, &ms[0]);
    if (!e) e = dt_plan_bench_time(&b, plain->plan, &ms[1]);
    const dt_dnn_desc *d = k->dnn;
    if (!e && passes_of_sums(d->n, d->out_h, d->out_w)) e = dt_plan_bench_fill(&b, 2, &ms[2]);
    const int error = lasting(p, e);
    dt_plan_bench_close(&b);
    *worth = e || ms[0] <= ms[1] + ms[2];
    return error ? dt_fail(DT_E_INTERNAL, "timing a convolution's sums: %s", p->api->error_text(p->api, error)) : DT_OK;
}

static void turn_down(dt_cuda_plans *p, plan_entry *e) {
    if (e->plan.plan) cuda_plans_drop(p, false, e->plan.plan);
    e->plan = (dt_cuda_plan){0};
    e->c.choice = NOT_WORTH;
    e->none = true;
}

static dt_status weigh_sums(dt_cuda_plans *p, const dt_plan_kind *k, plan_entry *e, const dt_cuda_plan **out) {
    const dt_cuda_plan *plain = NULL;
    dt_dnn_desc d = *k->dnn;
    const double spent = p->seconds, begin = dt_clock_s(); // includes the plain one
    bool worth = true;
    d.sums = false;
    DT_TRY(dt_cuda_plan_dnn(p, &d, &plain));
    if (!plain) return DT_OK;
    DT_TRY(worth_its_sums(p, k, &e->plan, plain, &worth));
    if (!worth) {
        turn_down(p, e);
        *out = NULL;
    }
    dt_choices_file(&p->list, &e->c);
    p->seconds = spent + dt_clock_s() - begin;
    return DT_OK;
}

dt_status dt_cuda_plan_dnn(dt_cuda_plans *p, const dt_dnn_desc *d, const dt_cuda_plan **out) {
    char text[DT_DESC_TEXT];
    const dt_plan_kind k = {.dnn = d};
    *out = NULL;
    const char *unserved = dt_cuda_dnn_refuses(d);
    dt_dnn_desc_print(d, text);
    if (unserved) {
        if (d->tq * d->tk > 1) warn_of_attention(p, unserved, text);
        return DT_OK;
    }
    plan_entry *e = entry_of(p, text);
    const bool settled = e->c.choice != DT_CHOICE_NONE || e->none;
    DT_TRY(plan_of(p, &k, text, out));
    if (!d->sums || settled || p->no_timing || !*out) return DT_OK;
    return weigh_sums(p, &k, e, out);
}

// Adds to *ms one run of d's plan and the given passes over its first pointer and its output.
static int add_time(dt_cuda_plans *p, const dt_dnn_desc *d, const dt_cuda_plan *plan, int over_x, int over_y,
                    float *ms) {
    const dt_plan_kind k = {.dnn = d};
    const int passes[2] = {over_x, over_y};
    float now = 0;
    dt_plan_bench b;
    int e = dt_plan_bench_open(&b, p->api, &k, plan->workspace_bytes, p->uncaptured);
    if (!e) e = dt_plan_bench_time(&b, plan->plan, &now);
    *ms += now;
    for (int i = 0; i < 2 && !e; i++) {
        if (!passes[i]) continue;
        e = dt_plan_bench_fill(&b, 2 * i, &now);
        *ms += (float)passes[i] * now;
    }
    const int lasts = lasting(p, e);
    dt_plan_bench_close(&b);
    return lasts ? lasts : e;
}

// The plan for d without the batch norm, with sums if they pay. NULL: there is none.
static dt_status plain_of(dt_cuda_plans *p, dt_dnn_desc *d, const dt_cuda_plan **out) {
    d->normed = false;
    DT_TRY(dt_cuda_plan_dnn(p, d, out));
    if (*out || !d->sums) return DT_OK;
    d->sums = false;
    return dt_cuda_plan_dnn(p, d, out);
}

// Decides whether the fused plans pay. If they cannot be timed, *worth is false and *known too.
static dt_status worth_its_norm(dt_cuda_plans *p, const dt_dnn_desc *const *d, const dt_cuda_plan *const *fused, int n,
                                bool *worth, bool *known) {
    float with = 0, without = 0;
    int e = 0;
    *worth = *known = true;
    for (int i = 0; i < n && !e; i++) {
        const dt_cuda_plan *plain = NULL;
        dt_dnn_desc q = *d[i];
        DT_TRY(plain_of(p, &q, &plain));
        if (!plain) return DT_OK; // nothing can replace it
        e = add_time(p, d[i], fused[i], 0, 0, &with);
        // the batch norm's pass touches x and y, and the sums cost a pass if the plain convolution does not make them
        const int over_y = d[i]->sums && !q.sums ? passes_of_sums(q.n, q.out_h, q.out_w) : 0;
        if (!e) e = add_time(p, &q, plain, i == 0 ? 2 : 0, over_y, &without);
    }
    *known = !e;
    *worth = !e && with <= without;
    const int error = e ? lasting(p, e) : 0;
    return error ? dt_fail(DT_E_INTERNAL, "timing a convolution beside a batch norm: %s",
                           p->api->error_text(p->api, error))
                 : DT_OK;
}

dt_status dt_cuda_plan_fused(dt_cuda_plans *p, const dt_dnn_desc *first, const dt_dnn_desc *second, bool *take) {
    const dt_dnn_desc *const d[2] = {first, second};
    const int n = second ? 2 : 1;
    const dt_cuda_plan *plan[2] = {NULL, NULL};
    char text[DT_DESC_TEXT];
    plan_entry *e = entry_of(p, dt_dnn_desc_print(first, text));
    *take = false;
    const bool given = e->c.choice != DT_CHOICE_NONE || e->c.used;
    e->c.used = true;
    if (e->none || e->c.choice == NOT_WORTH) return DT_OK;
    if (!given && p->no_timing) {
        turn_down(p, e);
        return DT_OK;
    }
    for (int i = 0; i < n; i++) {
        const dt_plan_kind k = {.dnn = d[i]};
        DT_TRY(plan_of(p, &k, dt_dnn_desc_print(d[i], text), &plan[i]));
        if (plan[i]) continue;
        if (i && !given) { // given: another pair uses it
            turn_down(p, e);
            dt_choices_file(&p->list, &e->c);
        }
        return DT_OK;
    }
    *take = true;
    if (given) return DT_OK;
    const double spent = p->seconds, begin = dt_clock_s(); // includes the plain ones
    bool known = false;
    DT_TRY(worth_its_norm(p, d, plan, n, take, &known));
    if (!*take) turn_down(p, e);
    if (known)
        dt_choices_file(&p->list, &e->c);
    else
        e->c.filed = DT_CHOICE_NONE;
    p->seconds = spent + dt_clock_s() - begin;
    return DT_OK;
}

dt_status dt_cuda_plan_gemm(dt_cuda_plans *p, const dt_gemm_desc *d, const dt_cuda_plan **out) {
    char text[DT_DESC_TEXT];
    const dt_plan_kind k = {.gemm = true, .mul = d};
    return plan_of(p, &k, dt_gemm_desc_print(d, text), out);
}

const dt_cuda_plan *dt_cuda_plan_find(const dt_cuda_plans *p, const void *plan) {
    const dt_choice *c = p->list.first;
    while (((const plan_entry *)c)->plan.plan != plan) c = c->next;
    return &((const plan_entry *)c)->plan;
}

// ---- life ------------------------------------------------------------------------------------------
// Only wishes can be turned down: all other descriptions need an engine.
static bool cuda_plans_accepts(const dt_choice *line) {
    return line->choice != NOT_WORTH || strstr(line->text, " sums") || strstr(line->text, " normed");
}

dt_status dt_cuda_plans_create(dt_cuda_plans **out, dt_cuda_api *api, const dt_cuda_plans_opts *opts) {
    dt_cuda_plans *p = dt_xcalloc(1, sizeof *p);
    p->api = api;
    p->no_timing = opts->no_timing;
    p->uncaptured = opts->uncaptured;
    p->most_workspace = opts->most_workspace ? opts->most_workspace : DT_PLAN_WORKSPACE;
    p->warned_attention = opts->size_only;
    dt_choices_open(&p->list, &(dt_choices_opts){.what = "engines " DT_PLAN_CHOICES,
                                                 .then = "engines are chosen anew",
                                                 .machine = opts->machine,
                                                 .folder = p->no_timing ? NULL : opts->folder,
                                                 .entry_bytes = sizeof(plan_entry),
                                                 .accepts = cuda_plans_accepts});
    *out = p;
    return DT_OK;
}

void dt_cuda_plans_destroy(dt_cuda_plans *p) {
    if (!p) return;
    dt_cuda_plans_save(p);
    for (dt_choice *c = p->list.first; c; c = c->next)
        cuda_plans_drop(p, ((plan_entry *)c)->gemm, ((plan_entry *)c)->plan.plan);
    dt_choices_close(&p->list, true);
    free(p);
}

char *dt_cuda_plans_text(const dt_cuda_plans *p) {
    return dt_choices_text(&p->list);
}

int dt_cuda_plans_take(dt_cuda_plans *p, const char *text) {
    return dt_choices_take(&p->list, text);
}

void dt_cuda_plans_save(dt_cuda_plans *p) {
    if (dt_choices_save(&p->list))
        dt_info("cuda: %d plans: %d timed in %.1f s, %d as chosen before", p->n_plans, p->n_timed, p->seconds,
                p->n_plans - p->n_timed);
}

// ---- plan bench ---------------------------------------------------------------------------------------------------

enum { MOST_RUNS = 20, REPLAYS = 2 };
#define REPLAY_MS 0.5f

static size_t even(size_t n) {
    return (n + 255) / 256 * 256 + 256;
}

// The size in bytes of each pointer that a run takes.
static void dnn_sizes(const dt_dnn_desc *d, size_t *n) {
    const size_t size = dt_dtype_size(d->type);
    if (d->kind == DT_DNN_SDPA_FWD || d->kind == DT_DNN_SDPA_BWD) {
        const int64_t rows = d->tq > d->tk ? d->tq : d->tk;
        // packed q, k and v have strides over three times a tensor's own elements
        const size_t all = (size_t)(3 * d->n * d->heads * rows * d->d) * size;
        const size_t numbers = (size_t)(d->n * d->heads * d->tq) * sizeof(float);
        for (int i = 0; i < dt_dnn_pointers(d); i++) n[i] = all;
        n[d->kind == DT_DNN_SDPA_FWD ? 4 : 5] = numbers;
        if (d->kind == DT_DNN_SDPA_FWD) return;
        n[9] = numbers * (size_t)d->d;
        n[10] = numbers;
        return;
    }
    const size_t x = (size_t)(d->n * d->h * d->w * d->c) * size;
    const size_t y = (size_t)(d->n * d->out_h * d->out_w * d->k) * size;
    const size_t w = (size_t)(d->k * (d->c / d->groups) * d->win.kernel[0] * d->win.kernel[1]) * size;
    const bool fwd = d->kind == DT_DNN_CONV_FWD, dgrad = d->kind == DT_DNN_CONV_DGRAD;
    n[0] = dgrad ? y : x;
    n[1] = fwd || dgrad ? w : y;
    n[2] = fwd ? y : dgrad ? x : w;
    for (int i = 3; i < dt_dnn_pointers(d); i++) n[i] = (size_t)d->c * sizeof(float);
    if (d->sums || d->bias) n[3] = (size_t)d->k * sizeof(float);
    if (d->sums) n[4] = n[3];
}

static void gemm_sizes(const dt_gemm_desc *d, size_t *n) {
    const size_t size = dt_dtype_size(d->type);
    const int64_t more = d->batch > 1 ? d->batch - 1 : 0;
    n[0] = (size_t)(more * d->stride_a + (d->trans_a ? d->k : d->m) * d->lda) * size;
    n[1] = (size_t)(more * d->stride_b + (d->trans_b ? d->n : d->k) * d->ldb) * size;
    n[2] = (size_t)(more * d->stride_d + d->m * d->ldd) * dt_dtype_size(d->out_type);
    n[3] = (size_t)(d->n > d->m ? d->n : d->m) * sizeof(float);
    n[4] = dt_gemm_has_aux(d->epilogue) ? n[2] : 0;
}

// Pairs of 16-bit words with random signs and last ten bits. As f16 a word is ±1 to 2. As bf16 a word, and as f32 a
// pair, is ±2^-7 to 2. The number of pairs is prime, so that rows are not alike.
static int plan_bench_fill_random(const dt_plan_bench *b, size_t total) {
    enum { PAIRS = 16381 };
    uint32_t pairs[(PAIRS + 3) / 4][4];
    for (uint32_t i = 0; i < (PAIRS + 3) / 4; i++) {
        dt_philox4x32(0, (uint32_t[4]){i}, pairs[i]);
        for (int k = 0; k < 4; k++) pairs[i][k] = (pairs[i][k] & 0x83ff83ff) | 0x3c003c00;
    }
    size_t done = PAIRS * sizeof(uint32_t) < total ? PAIRS * sizeof(uint32_t) : total;
    int e = b->api->copy(b->api, b->memory, pairs, done, 1, NULL);
    for (size_t n; !e && done < total; done += n) {
        n = done < total - done ? done : total - done;
        e = b->api->copy(b->api, (char *)b->memory + done, b->memory, n, 2, b->stream);
    }
    return e;
}

int dt_plan_bench_open(dt_plan_bench *b, dt_cuda_api *api, const dt_plan_kind *k, size_t workspace_bytes,
                       bool uncaptured) {
    *b = (dt_plan_bench){.api = api, .kind = k, .uncaptured = uncaptured};
    const int count = k->gemm ? 5 : dt_dnn_pointers(k->dnn);
    if (k->gemm)
        gemm_sizes(k->mul, b->n_bytes);
    else
        dnn_sizes(k->dnn, b->n_bytes);
    size_t total = even(workspace_bytes);
    for (int i = 0; i < count; i++) total += even(b->n_bytes[i]);
    int e = api->alloc(api, &b->memory, total);
    if (e) {
        b->memory = NULL;
        return e;
    }
    char *at = b->memory;
    for (int i = 0; i < count; i++) {
        b->ptr[i] = at;
        at += even(b->n_bytes[i]);
    }
    b->workspace = at;
    e = api->stream_create(api, &b->stream, false);
    if (!e) e = api->event_create(api, &b->event[0], true);
    if (!e) e = api->event_create(api, &b->event[1], true);
    if (!e) e = plan_bench_fill_random(b, total);
    return e;
}

void dt_plan_bench_close(dt_plan_bench *b) {
    for (int i = 0; i < 2; i++)
        if (b->event[i]) b->api->event_destroy(b->api, b->event[i]);
    if (b->stream) b->api->stream_destroy(b->api, b->stream);
    if (b->memory) b->api->free(b->api, b->memory);
}

// Runs the plan; without one, fills pointer `at` with zeros.
static int plan_bench_run(const dt_plan_bench *b, void *plan, int at) {
    const dt_plan_kind *k = b->kind;
    if (!plan) return b->api->zero(b->api, b->ptr[at], b->n_bytes[at], b->stream);
    return k->gemm ? b->api->gemm_run(b->api, plan, b->ptr[0], b->ptr[1], b->ptr[2], false,
                                      dt_gemm_has_bias(k->mul->epilogue) ? b->ptr[3] : NULL,
                                      dt_gemm_has_aux(k->mul->epilogue) ? b->ptr[4] : NULL, b->workspace, b->stream)
                   : b->api->dnn_run(b->api, plan, b->ptr, b->workspace, b->stream);
}

static int plan_bench_record(const dt_plan_bench *b, void *plan, int at, int n, void **graph) {
    int e = b->api->capture_begin(b->api, b->stream);
    if (e) return e;
    for (int i = 0; !e && i < n; i++) e = plan_bench_run(b, plan, at);
    const int ended = b->api->capture_end(b->api, b->stream, graph);
    return e ? e : ended;
}

// *ms: of a replay of the graph; if it is NULL, of n runs.
static int time_runs(const dt_plan_bench *b, void *plan, int at, int n, void *graph, float *ms) {
    dt_cuda_api *api = b->api;
    int e = api->event_record(api, b->event[0], b->stream);
    if (!e && graph) e = api->graph_launch(api, graph, b->stream);
    for (int i = 0; !e && !graph && i < n; i++) e = plan_bench_run(b, plan, at);
    if (!e) e = api->event_record(api, b->event[1], b->stream);
    if (!e) e = api->stream_synchronize(api, b->stream);
    return e ? e : api->event_ms(api, b->event[0], b->event[1], ms);
}

static int repeat(const dt_plan_bench *b, void *plan, int at, float *ms) {
    void *graph = NULL;
    float one = 0, now = 0;
    int e = plan_bench_run(b, plan, at);
    if (!e) e = time_runs(b, plan, at, 1, NULL, &one);
    int n = one * MOST_RUNS > REPLAY_MS ? (int)(REPLAY_MS / one) : MOST_RUNS;
    if (n < 1) n = 1;
    if (!e && !b->uncaptured) e = plan_bench_record(b, plan, at, n, &graph);
    for (int i = 0; !e && i < REPLAYS; i++) {
        e = time_runs(b, plan, at, n, graph, &now);
        if (i == 0 || now < *ms * (float)n) *ms = now / (float)n;
    }
    if (graph) b->api->graph_destroy(b->api, graph);
    return e;
}

int dt_plan_bench_time(const dt_plan_bench *b, void *plan, float *ms) {
    return repeat(b, plan, 0, ms);
}

int dt_plan_bench_fill(const dt_plan_bench *b, int at, float *ms) {
    return repeat(b, NULL, at, ms);
}
