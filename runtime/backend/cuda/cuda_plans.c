// cuda_plans.c: see cuda_plans.h.
//
// The file of choices, FOLDER/engines-<hash of the machine's text>.txt:
//   dtrain engines 1 <XXH3 of everything behind this line, 16 digits>
//   <the machine's text>
//   <choice> <tab> <description>
//   …
// It is a cache: a file that is torn, of another version or of another machine is ignored with one line, and
// written anew. It is replaced as a whole, so that two runs at once leave one of the two.
//
// Timing runs on memory of its own, filled with zeros: engines do the same work whatever the values. Between
// engines nothing else is on the device. Each runs once to warm up and TIMED_RUNS times between two events;
// the least of TIMED_ROUNDS rounds counts. Where memory for that is short, the library's favourite stays and
// nothing is remembered.
#include "backend/cuda/cuda_plans.h"

#include "backend/cuda/cuda_desc.h"
#include "base/arena.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    TIMED_RUNS = 3,
    TIMED_ROUNDS = 3,
    MAX_POINTERS = 11,
    MAX_FILE_BYTES = 16 << 20,
    MAX_WORKSPACE = 1 << 30
};

typedef struct plan_entry {
    struct plan_entry *next;
    char text[DT_DESC_TEXT];
    bool gemm, chosen; // chosen: `choice` is to be obeyed
    int choice;
    bool none; // no engine
    dt_cuda_plan plan;
} plan_entry;

struct dt_cuda_plans {
    dt_cuda_api *api;
    char *machine, *path; // path NULL: no file
    bool no_timing, dirty;
    plan_entry *entries;
    int n_plans, n_timed;
    double seconds;
    char summary[160];
};

// One library's half of the table, so that choosing is written once.
typedef struct plan_kind {
    bool gemm;
    const dt_dnn_desc *dnn;
    const dt_gemm_desc *mul;
} plan_kind;

static int make(dt_cuda_plans *p, const plan_kind *k, int choice, void **plan, size_t *bytes) {
    return k->gemm ? p->api->gemm_plan(p->api, k->mul, choice, plan, bytes)
                   : p->api->dnn_plan(p->api, k->dnn, choice, plan, bytes);
}
static void drop(dt_cuda_plans *p, bool gemm, void *plan) {
    if (!plan) return;
    if (gemm)
        p->api->gemm_destroy(p->api, plan);
    else
        p->api->dnn_destroy(p->api, plan);
}

// ---- timing ----------------------------------------------------------------------------------------
static size_t even(size_t n) {
    return (n + 255) / 256 * 256 + 256;
}

// Bytes of each pointer of a run; returns how many pointers there are.
static int dnn_sizes(const dt_dnn_desc *d, size_t *n) {
    const size_t size = dt_dtype_size(d->type);
    if (d->kind == DT_DNN_SDPA_FWD || d->kind == DT_DNN_SDPA_BWD) {
        const int64_t rows = d->tq > d->tk ? d->tq : d->tk;
        // the strides of packed q, k, v reach over three times a tensor's own elements
        const size_t all = (size_t)(3 * d->n * d->heads * rows * d->d) * size;
        const size_t numbers = (size_t)(d->n * d->heads * d->tq) * sizeof(float);
        for (int i = 0; i < MAX_POINTERS; i++) n[i] = all;
        n[d->kind == DT_DNN_SDPA_FWD ? 4 : 5] = numbers;
        n[9] = numbers * (size_t)d->d;
        n[10] = numbers;
        return d->kind == DT_DNN_SDPA_FWD ? 5 : 11;
    }
    const size_t x = (size_t)(d->n * d->h * d->w * d->c) * size;
    const size_t y = (size_t)(d->n * d->out_h * d->out_w * d->k) * size;
    const size_t w =
        (size_t)(d->k * (d->c / d->groups) * d->win.kernel[0] * d->win.kernel[1]) * size;
    const bool fwd = d->kind == DT_DNN_CONV_FWD, dgrad = d->kind == DT_DNN_CONV_DGRAD;
    n[0] = dgrad ? y : x;
    n[1] = fwd || dgrad ? w : y;
    n[2] = fwd ? y : dgrad ? x : w;
    n[3] = (size_t)d->k * size;
    return d->bias ? 4 : 3;
}

static int gemm_sizes(const dt_gemm_desc *d, size_t *n) {
    const size_t size = dt_dtype_size(d->type), batch = (size_t)(d->batch > 1 ? d->batch : 1);
    n[0] = batch * (size_t)((d->trans_a ? d->k : d->m) * d->lda) * size;
    n[1] = batch * (size_t)((d->trans_b ? d->n : d->k) * d->ldb) * size;
    n[2] = batch * (size_t)(d->m * d->ldd) * dt_dtype_size(d->out_type);
    n[3] = (size_t)d->n * sizeof(float);
    return 4;
}

typedef struct bench {
    void *memory, *workspace, *stream, *event[2];
    void *ptr[MAX_POINTERS];
} bench;

static int bench_open(dt_cuda_plans *p, const plan_kind *k, size_t workspace, bench *b) {
    size_t n[MAX_POINTERS], total = 0;
    const int count = k->gemm ? gemm_sizes(k->mul, n) : dnn_sizes(k->dnn, n);
    *b = (bench){0};
    for (int i = 0; i < count; i++) total += even(n[i]);
    int e = p->api->alloc(p->api, &b->memory, total + even(workspace));
    if (e) {
        b->memory = NULL;
        return e;
    }
    char *at = b->memory;
    for (int i = 0; i < count; i++) {
        b->ptr[i] = at;
        at += even(n[i]);
    }
    b->workspace = at;
    e = p->api->stream_create(p->api, &b->stream);
    if (!e) e = p->api->event_create(p->api, &b->event[0], true);
    if (!e) e = p->api->event_create(p->api, &b->event[1], true);
    if (!e) e = p->api->zero(p->api, b->memory, total + even(workspace), b->stream);
    return e;
}

static void bench_close(dt_cuda_plans *p, bench *b) {
    for (int i = 0; i < 2; i++)
        if (b->event[i]) p->api->event_destroy(p->api, b->event[i]);
    if (b->stream) p->api->stream_destroy(p->api, b->stream);
    if (b->memory) p->api->free(p->api, b->memory);
}

static int run(dt_cuda_plans *p, const plan_kind *k, void *plan, const bench *b) {
    return k->gemm ? p->api->gemm_run(p->api, plan, b->ptr[0], b->ptr[1], b->ptr[2],
                                      k->mul->epilogue == DT_GEMM_NONE ? NULL : b->ptr[3],
                                      b->workspace, b->stream)
                   : p->api->dnn_run(p->api, plan, b->ptr, b->workspace, b->stream);
}

static int time_plan(dt_cuda_plans *p, const plan_kind *k, void *plan, const bench *b, float *ms) {
    int e = run(p, k, plan, b);
    *ms = 0;
    for (int round = 0; !e && round < TIMED_ROUNDS; round++) {
        float now = 0;
        e = p->api->event_record(p->api, b->event[0], b->stream);
        for (int i = 0; !e && i < TIMED_RUNS; i++) e = run(p, k, plan, b);
        if (!e) e = p->api->event_record(p->api, b->event[1], b->stream);
        if (!e) e = p->api->stream_synchronize(p->api, b->stream);
        if (!e) e = p->api->event_ms(p->api, b->event[0], b->event[1], &now);
        if (round == 0 || now < *ms) *ms = now;
    }
    return e;
}

// ---- choosing --------------------------------------------------------------------------------------
typedef struct candidate {
    void *plan;
    size_t bytes;
    int choice;
} candidate;

// The engines that can be made, the favourite first; returns how many.
static int list_candidates(dt_cuda_plans *p, const plan_kind *k, int n, int most, candidate *out) {
    int count = 0;
    for (int i = 0; i < n && count < most; i++) {
        candidate c = {.choice = i};
        if (make(p, k, i, &c.plan, &c.bytes)) continue;
        if (c.bytes > MAX_WORKSPACE) {
            drop(p, k->gemm, c.plan);
            continue;
        }
        out[count++] = c;
    }
    return count;
}

// Index of the fastest; -1 when they could not be timed.
static int fastest(dt_cuda_plans *p, const plan_kind *k, const candidate *c, int n) {
    size_t workspace = 0;
    int best = -1;
    float least = 0;
    bench b;
    for (int i = 0; i < n; i++)
        if (c[i].bytes > workspace) workspace = c[i].bytes;
    if (bench_open(p, k, workspace, &b) == 0) {
        for (int i = 0; i < n; i++) {
            float ms = 0;
            if (time_plan(p, k, c[i].plan, &b, &ms)) continue; // it says it can, and cannot
            if (best < 0 || ms < least) {
                best = i;
                least = ms;
            }
        }
    }
    bench_close(p, &b);
    return best;
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void choose(dt_cuda_plans *p, plan_entry *e, const plan_kind *k, int n) {
    candidate c[DT_PLAN_TRIES];
    int best = 0, count = 0;
    if (e->chosen) { // by rank 0, a checkpoint or the file
        if (e->choice < n && make(p, k, e->choice, &c[0].plan, &c[0].bytes) == 0) {
            c[0].choice = e->choice;
            count = 1;
        } else {
            dt_warn("engine %d, chosen before for %s, is not there: choosing again", e->choice,
                    e->text);
            e->chosen = false;
        }
    }
    if (!count) {
        const double begin = now_s();
        count = list_candidates(p, k, n, p->no_timing ? 1 : DT_PLAN_TRIES, c);
        if (count > 1) {
            best = fastest(p, k, c, count);
            if (best >= 0) {
                e->chosen = p->dirty = true;
                p->n_timed++;
            } else {
                best = 0;
            }
        }
        p->seconds += now_s() - begin;
    }
    for (int i = 0; i < count; i++)
        if (i != best) drop(p, k->gemm, c[i].plan);
    e->none = count == 0;
    if (e->none) return;
    e->choice = c[best].choice;
    e->plan = (dt_cuda_plan){c[best].plan, c[best].bytes, e->choice, n};
    p->n_plans++;
}

static plan_entry *find(dt_cuda_plans *p, const char *text) {
    for (plan_entry *e = p->entries; e; e = e->next)
        if (strcmp(e->text, text) == 0) return e;
    return NULL;
}

static plan_entry *add(dt_cuda_plans *p, const char *text) {
    plan_entry *e = dt_xcalloc(1, sizeof *e);
    snprintf(e->text, sizeof e->text, "%s", text);
    e->next = p->entries;
    p->entries = e;
    return e;
}

static dt_status plan_of(dt_cuda_plans *p, const plan_kind *k, const char *text,
                         const dt_cuda_plan **out) {
    plan_entry *e = find(p, text);
    *out = NULL;
    if (e && e->none) return DT_OK;
    if (!e || !e->plan.plan) {
        int n = 0;
        const int error = k->gemm ? p->api->gemm_choices(p->api, k->mul, &n)
                                  : p->api->dnn_choices(p->api, k->dnn, &n);
        // what a library refuses to describe it has no engine for
        if (error) dt_log(DT_LOG_DEBUG, "%s: %s", text, p->api->error_text(p->api, error));
        if (!e) e = add(p, text);
        e->gemm = k->gemm;
        choose(p, e, k, error ? 0 : n);
    }
    if (!e->none) *out = &e->plan;
    return DT_OK;
}

dt_status dt_cuda_plan_dnn(dt_cuda_plans *p, const dt_dnn_desc *d, const dt_cuda_plan **out) {
    char text[DT_DESC_TEXT];
    const plan_kind k = {.dnn = d};
    *out = NULL;
    if (!dt_cuda_dnn_serves(d)) return DT_OK;
    return plan_of(p, &k, dt_dnn_desc_print(d, text), out);
}

dt_status dt_cuda_plan_gemm(dt_cuda_plans *p, const dt_gemm_desc *d, const dt_cuda_plan **out) {
    char text[DT_DESC_TEXT];
    const plan_kind k = {.gemm = true, .mul = d};
    return plan_of(p, &k, dt_gemm_desc_print(d, text), out);
}

// ---- choices as text -------------------------------------------------------------------------------
static int by_text(const void *a, const void *b) {
    return strcmp((*(plan_entry *const *)a)->text, (*(plan_entry *const *)b)->text);
}

// chosen_only: without favourites that were never timed.
static char *lines_of(const dt_cuda_plans *p, bool chosen_only) {
    size_t n = 0, at = 0;
    for (const plan_entry *e = p->entries; e; e = e->next) n++;
    const plan_entry **list = dt_xcalloc(n + 1, sizeof *list);
    n = 0;
    for (const plan_entry *e = p->entries; e; e = e->next)
        if (e->chosen || (!chosen_only && e->plan.plan)) list[n++] = e;
    qsort(list, n, sizeof *list, by_text);
    char *text = dt_xcalloc(n + 1, DT_DESC_TEXT + 16);
    for (size_t i = 0; i < n; i++)
        at += (size_t)sprintf(text + at, "%d\t%s\n", list[i]->choice, list[i]->text);
    free(list);
    return text;
}

char *dt_cuda_plans_text(const dt_cuda_plans *p) {
    return lines_of(p, false);
}

int dt_cuda_plans_take(dt_cuda_plans *p, const char *text) {
    int taken = 0;
    for (const char *line = text; line && *line;) {
        const char *end = strchr(line, '\n');
        const size_t n = end ? (size_t)(end - line) : strlen(line);
        char *tab = NULL;
        const long choice = strtol(line, &tab, 10);
        if (tab > line && *tab == '\t' && choice >= 0 && choice < 1000 && tab < line + n &&
            n - (size_t)(tab + 1 - line) < DT_DESC_TEXT) {
            char desc[DT_DESC_TEXT];
            snprintf(desc, sizeof desc, "%.*s", (int)(n - (size_t)(tab + 1 - line)), tab + 1);
            plan_entry *e = find(p, desc);
            if (!e) e = add(p, desc);
            if (!e->plan.plan && !e->none) {
                e->choice = (int)choice;
                e->chosen = true;
                taken++;
            }
        }
        line = end ? end + 1 : NULL;
    }
    return taken;
}

// ---- the file --------------------------------------------------------------------------------------
static const char file_head[] = "dtrain engines 1 ";

// The lines of choices in a file's bytes; NULL with a reason.
static const char *check_file(const dt_cuda_plans *p, const char *data, size_t n,
                              const char **why) {
    const size_t head = sizeof file_head - 1, body = head + 16 + 1;
    char hex[17];
    *why = "it is not complete";
    if (n < body || data[body - 1] != '\n' || memchr(data, 0, n)) return NULL;
    if (strncmp(data, file_head, head) != 0) {
        *why = "it is of another version";
        return NULL;
    }
    dt_hash_hex(dt_hash64(data + body, n - body), hex);
    if (strncmp(data + head, hex, 16) != 0) {
        *why = "its checksum is wrong";
        return NULL;
    }
    const size_t machine = strlen(p->machine);
    *why = "it is of another machine";
    if (n - body <= machine || strncmp(data + body, p->machine, machine) != 0 ||
        data[body + machine] != '\n')
        return NULL;
    return data + body + machine + 1;
}

static void read_file(dt_cuda_plans *p) {
    char *data = NULL;
    size_t n = 0;
    const char *why = NULL;
    if (!dt_io_exists(p->path)) return;
    if (dt_io_read_file(&data, &n, p->path, MAX_FILE_BYTES, DT_E_STORAGE) != DT_OK) {
        dt_warn("engines chosen before are ignored: %s", dt_error_message());
        dt_error_clear();
        return;
    }
    const char *lines = check_file(p, data, n, &why);
    if (lines)
        dt_cuda_plans_take(p, lines);
    else
        dt_warn("%s: ignored, %s; engines are chosen anew", p->path, why);
    free(data);
}

void dt_cuda_plans_save(dt_cuda_plans *p) {
    if (!p->path || !p->dirty) return;
    char *lines = lines_of(p, true);
    char *body = dt_xprintf("%s\n%s", p->machine, lines), hex[17];
    dt_hash_hex(dt_hash64(body, strlen(body)), hex);
    char *all = dt_xprintf("%s%s\n%s", file_head, hex, body);
    char *folder = dt_xprintf("%.*s", (int)(strrchr(p->path, '/') - p->path), p->path);
    dt_status st = dt_io_mkdir_all(folder);
    if (st == DT_OK) st = dt_io_write_file(p->path, all, strlen(all));
    if (st != DT_OK) {
        dt_warn("chosen engines are not kept for the next run: %s", dt_error_message());
        dt_error_clear();
    }
    p->dirty = false; // not again and again
    free(folder);
    free(all);
    free(body);
    free(lines);
}

// ---- life ------------------------------------------------------------------------------------------
dt_status dt_cuda_plans_create(dt_cuda_plans **out, dt_cuda_api *api,
                               const dt_cuda_plans_opts *opts) {
    dt_cuda_plans *p = dt_xcalloc(1, sizeof *p);
    p->api = api;
    p->no_timing = opts->no_timing;
    p->machine = dt_xstrdup(opts->machine);
    for (char *c = p->machine; *c; c++)
        if (*c == '\n') *c = ' ';
    if (opts->folder && !opts->no_timing) {
        char hex[17];
        dt_hash_hex(dt_hash64(p->machine, strlen(p->machine)), hex);
        p->path = dt_xprintf("%s/engines-%s.txt", opts->folder, hex);
        read_file(p);
    }
    *out = p;
    return DT_OK;
}

void dt_cuda_plans_destroy(dt_cuda_plans *p) {
    if (!p) return;
    dt_cuda_plans_save(p);
    while (p->entries) {
        plan_entry *e = p->entries;
        p->entries = e->next;
        drop(p, e->gemm, e->plan.plan);
        free(e);
    }
    free(p->machine);
    free(p->path);
    free(p);
}

const char *dt_cuda_plans_summary(dt_cuda_plans *p) {
    snprintf(p->summary, sizeof p->summary, "%d plans: %d timed in %.1f s, %d as chosen before",
             p->n_plans, p->n_timed, p->seconds, p->n_plans - p->n_timed);
    return p->summary;
}
