// metrics_queue.c: a ring of records, and a thread that hands them to a sink.
//
// Waking a thread costs a step more than its record does, so a step only puts the record there. The thread looks five
// times a second, and is woken when the ring is half full. A full ring drops the record that comes.
#include "observe/metrics_internal.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/thread.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { N_SLOTS = 4096 };
#define LOOK_S 0.2

struct dt_metrics_queue {
    const dt_metrics_sink *sink;
    void *state;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake, flushed;
    int first, n;
    uint64_t n_dropped;
    bool flush, stop;
    int64_t n_bytes;
    dt_record *slots;
    void **owned; // of each slot: heap, or NULL
};

// What a record points to, on the heap in one block; NULL: it points to nothing.
static void *own(dt_record *r) {
    if (r->kind == DT_RECORD_ranks) {
        dt_ranks_record *ranks = &r->of.ranks;
        const size_t n = (size_t)ranks->n;
        double *copy = dt_xcalloc(n, 3 * sizeof *copy);
        memcpy(copy, ranks->data_s, 3 * n * sizeof *copy);
        ranks->data_s = copy;
        ranks->compute_s = copy + n;
        ranks->rss_bytes = copy + 2 * n;
        return copy;
    }
    const char *texts[2] = {0};
    const char **places[2] = {0};
    const dt_metric_value *values = NULL;
    int n = 0;
    switch (r->kind) {
    case DT_RECORD_start:
    case DT_RECORD_step:
    case DT_RECORD_ranks:
    case DT_RECORD_activity:
    case DT_RECORD_checkpoint:
    case DT_RECORD_goodput:
        return NULL;
    case DT_RECORD_slow_rank:
        places[0] = &r->of.slow_rank.host;
        places[1] = &r->of.slow_rank.phase;
        break;
    case DT_RECORD_verdict:
        places[0] = &r->of.verdict;
        break;
    case DT_RECORD_end:
        places[0] = &r->of.end.message;
        break;
    case DT_RECORD_eval:
        values = r->of.eval.values;
        n = r->of.eval.n_values;
        places[0] = &r->of.eval.split;
        places[1] = &r->of.eval.extra_json;
        break;
    }
    size_t n_bytes = (size_t)n * sizeof *values;
    for (int i = 0; i < n; i++) n_bytes += strlen(values[i].name) + 1;
    for (int i = 0; i < 2 && places[i]; i++) {
        texts[i] = *places[i];
        n_bytes += texts[i] ? strlen(texts[i]) + 1 : 0;
    }
    char *block = dt_xcalloc(n_bytes + 1, 1), *at = block + (size_t)n * sizeof *values;
    dt_metric_value *copies = (dt_metric_value *)block;
    for (int i = 0; i < n; i++) {
        copies[i] = (dt_metric_value){at, values[i].value};
        at = stpcpy(at, values[i].name) + 1;
    }
    if (values) r->of.eval.values = copies;
    for (int i = 0; i < 2 && places[i]; i++) {
        if (!texts[i]) continue;
        *places[i] = at;
        at = stpcpy(at, texts[i]) + 1;
    }
    return block;
}

static void *hand_on(void *arg) {
    dt_metrics_queue *q = arg;
    dt_thread_name("metrics");
    pthread_mutex_lock(&q->lock);
    for (;;) {
        bool flush = q->n > 0;
        while (q->n > 0) {
            const dt_record r = q->slots[q->first];
            void *owned = q->owned[q->first];
            q->first = (q->first + 1) % N_SLOTS;
            q->n--;
            pthread_mutex_unlock(&q->lock);
            q->sink->take(q->state, &r);
            free(owned);
            pthread_mutex_lock(&q->lock);
        }
        q->first = 0; // the memory in use stays small
        if (q->flush || flush) {
            flush = q->flush;
            pthread_mutex_unlock(&q->lock);
            const int64_t n_bytes = q->sink->flush ? q->sink->flush(q->state) : 0;
            pthread_mutex_lock(&q->lock);
            if (!flush || q->n > 0) continue; // records that came meanwhile are flushed, too
            q->n_bytes = n_bytes;
            q->flush = false;
            pthread_cond_broadcast(&q->flushed);
        } else if (q->stop) {
            break;
        } else {
            dt_thread_wait(&q->wake, &q->lock, dt_clock_s() + LOOK_S);
        }
    }
    pthread_mutex_unlock(&q->lock);
    q->sink->close(q->state);
    return NULL;
}

dt_metrics_queue *dt_metrics_queue_create(const dt_metrics_sink *sink, void *state) {
    dt_metrics_queue *q = dt_xcalloc(1, sizeof *q);
    q->sink = sink;
    q->state = state;
    q->slots = dt_xcalloc(N_SLOTS, sizeof *q->slots);
    q->owned = dt_xcalloc(N_SLOTS, sizeof *q->owned);
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->wake, NULL);
    pthread_cond_init(&q->flushed, NULL);
    if (pthread_create(&q->thread, NULL, hand_on, q) == 0) return q;
    free(q->slots);
    free(q->owned);
    free(q);
    return NULL;
}

void dt_metrics_queue_put(dt_metrics_queue *q, const dt_record *r) {
    dt_record copy = *r;
    void *owned = own(&copy);
    pthread_mutex_lock(&q->lock);
    const bool full = q->n == N_SLOTS;
    if (full) {
        q->n_dropped++;
    } else {
        const int at = (q->first + q->n) % N_SLOTS;
        q->slots[at] = copy;
        q->owned[at] = owned;
        if (++q->n == N_SLOTS / 2) pthread_cond_signal(&q->wake);
    }
    pthread_mutex_unlock(&q->lock);
    if (full) free(owned);
}

int64_t dt_metrics_queue_flush(dt_metrics_queue *q) {
    pthread_mutex_lock(&q->lock);
    q->flush = true;
    pthread_cond_signal(&q->wake);
    while (q->flush) pthread_cond_wait(&q->flushed, &q->lock);
    const int64_t n_bytes = q->n_bytes;
    pthread_mutex_unlock(&q->lock);
    return n_bytes;
}

uint64_t dt_metrics_queue_dropped(dt_metrics_queue *q) {
    pthread_mutex_lock(&q->lock);
    const uint64_t n = q->n_dropped;
    pthread_mutex_unlock(&q->lock);
    return n;
}

void dt_metrics_queue_destroy(dt_metrics_queue *q) {
    pthread_mutex_lock(&q->lock);
    q->stop = true;
    pthread_cond_signal(&q->wake);
    pthread_mutex_unlock(&q->lock);
    pthread_join(q->thread, NULL);
    pthread_cond_destroy(&q->wake);
    pthread_cond_destroy(&q->flushed);
    pthread_mutex_destroy(&q->lock);
    free(q->slots);
    free(q->owned);
    free(q);
}
