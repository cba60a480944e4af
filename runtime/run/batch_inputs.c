// batch_inputs.c: see the header. The graph decides: a training graph takes plans, steps and shares of classes, an
// evaluation graph of the same fields does not, and is bound to nothing that it has no input for.

#include "run/batch_inputs.h"

#include "base/core.h"
#include "base/log.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

void dt_batch_inputs_find(dt_batch_inputs *in, const dt_exec *e, const dt_field_info *fields, int n_fields) {
    for (int i = 0; i < DT_BATCH_INPUTS; i++) in->index[i] = -1; // -1: the graph has no such input
    for (int f = 0; f < n_fields; f++) {
        char plan[256], steps[256]; // names by which models/models.c adds inputs
        snprintf(plan, sizeof plan, "%s.mix", fields[f].name);
        snprintf(steps, sizeof steps, "%s.steps", fields[f].name);
        // by group: fields, mixing plans, pixel steps, then the weight
        in->index[f] = dt_exec_input_index(e, fields[f].name);
        in->index[DT_MAX_FIELDS + f] = dt_exec_input_index(e, plan);
        in->index[2 * DT_MAX_FIELDS + f] = dt_exec_input_index(e, steps);
    }
    in->index[3 * DT_MAX_FIELDS] = dt_exec_input_index(e, "weight");
}

// The batch's own memory; NULL where it has none.
static const void *input_data(const dt_batch *b, int i) {
    return i < DT_MAX_FIELDS       ? b->field[i]
           : i < 2 * DT_MAX_FIELDS ? (const void *)b->mix[i - DT_MAX_FIELDS]
           : i < 3 * DT_MAX_FIELDS ? (const void *)b->steps[i - 2 * DT_MAX_FIELDS]
                                   : (const void *)b->weight;
}

void dt_batch_inputs_bind(const dt_batch_inputs *in, dt_exec *e, const dt_batch *b) {
    for (int i = 0; i < DT_BATCH_INPUTS; i++)
        // an index per input: binding allocates and looks up nothing
        if (in->index[i] >= 0) dt_exec_bind_index(e, in->index[i], input_data(b, i));
}

// ---- on a device -----------------------------------------------------------------------------------
// Sizes come from the graph's inputs and not from the fields, as a class field is one number a sample or a share of
// every class, whichever the graph was built for.

dt_status dt_device_inputs_init(dt_device_inputs *sets, int n_sets, dt_backend *b, const dt_exec *e,
                                const dt_field_info *fields, int n_fields) {
    for (int k = 0; k < n_sets; k++) sets[k] = (dt_device_inputs){.backend = b};
    for (int k = 0; k < n_sets; k++) {
        dt_device_inputs *d = &sets[k];
        dt_batch_inputs_find(&d->inputs, e, fields, n_fields);
        for (int i = 0; i < DT_BATCH_INPUTS; i++) {
            if (d->inputs.index[i] < 0) continue; // not an input of this graph
            d->n_bytes[i] = dt_exec_input_bytes(e, d->inputs.index[i]);
            dt_flat_buffer_add(&sets->flat, &d->data[i], d->n_bytes[i]); // sizes first: one allocation for all sets
        }
    }
    return dt_flat_buffer_alloc(&sets->flat, b, "batches");
}

void dt_device_inputs_fini(dt_device_inputs *sets, int n_sets) {
    dt_flat_buffer_free(&sets->flat);
    for (int k = 0; k < n_sets; k++) sets[k] = (dt_device_inputs){0};
}

void dt_device_inputs_bind(const dt_device_inputs *d, dt_exec *e) {
    for (int i = 0; i < DT_BATCH_INPUTS; i++)
        // data is NULL exactly where the graph lacks the input
        if (d->data[i]) dt_exec_bind_index(e, d->inputs.index[i], d->data[i]);
}

void dt_device_inputs_copy(const dt_device_inputs *d, const dt_batch *batch, void *stream) {
    dt_backend *b = d->backend;
    for (int i = 0; i < DT_BATCH_INPUTS; i++) {
        if (!d->data[i]) continue;
        const void *from = input_data(batch, i);
        // queued behind the copies of the batch before; the host buffer stays until the stream has passed
        if (stream)
            b->device->copy_in(b, d->data[i], from, d->n_bytes[i], stream);
        else
            b->copy_to_device(b, d->data[i], from, d->n_bytes[i]);
    }
}

// ---- numbers to predict ----------------------------------------------------------------------------

// A sum of f32 shares that were written with three digits is this far from 1.
static const double SUM_TOLERANCE = 2e-3;

dt_status dt_target_check(const dt_target *t, const float *x, int64_t sample) {
    const int64_t n = dt_target_n_out(t);
    // any: every finite number is allowed
    const bool sums = dt_losses[t->loss].softmax, any = dt_losses[t->loss].gives_numbers;
    double sum = 0;
    for (int64_t k = 0; k < n && any; k++)
        if (!isfinite(x[k]))
            return dt_fail(DT_E_DATA,
                           "field %s of sample %lld has %g, and a number to predict is finite: "
                           "correct it, or leave the record out with data.where",
                           t->field->name, (long long)sample, (double)x[k]);
    for (int64_t k = 0; k < n && dt_losses[t->loss].exponent; k++)
        if (x[k] < 0)
            return dt_fail(DT_E_DATA, "field %s of sample %lld has %g, and %s expects counts from 0", t->field->name,
                           (long long)sample, (double)x[k], dt_losses[t->loss].id);
    for (int64_t k = 0; k < n && !any; k++) { // bce and cross-entropy: probabilities
        sum += (double)x[k];
        if (x[k] >= 0 && x[k] <= 1) continue;
        return dt_fail(
            DT_E_DATA,
            "field %s of sample %lld has %g, and %s expects %s of 0..1: take mse or smooth_l1 for other numbers",
            t->field->name, (long long)sample, (double)x[k], dt_losses[t->loss].id,
            sums ? "shares of classes" : "numbers");
    }
    // shares are written with few digits, so their sum is not exactly 1
    if (!sums || fabs(sum - 1) <= SUM_TOLERANCE) return DT_OK;
    return dt_fail(DT_E_DATA,
                   "field %s of sample %lld adds up to %g, and %s expects shares of classes whose sum is 1; use bce "
                   "for multi-label targets",
                   t->field->name, (long long)sample, sum, dt_losses[t->loss].id);
}

dt_status dt_batch_check_targets(const dt_batch *b, const dt_targets *targets) {
    for (int i = 0; targets && i < targets->n; i++) {
        const dt_target *t = &targets->items[i];
        const bool numbers = t->kind == DT_TARGET_VECTOR || t->kind == DT_TARGET_NUMBER;
        const int64_t n = dt_target_n_out(t);
        for (int k = 0; k < b->n && numbers; k++) // classes are whole numbers, and checked where they are decoded
            if (b->weight[k] != 0)                // padding and bad records have weight 0
                DT_TRY(dt_target_check(t, (const float *)b->field[t->index] + k * n, b->sample ? b->sample[k] : k));
    }
    return DT_OK;
}

void dt_targets_check_range(const dt_targets *targets) {
    enum { MOST = 10 };
    for (int i = 0; i < targets->n; i++) {
        const dt_field_info *f = targets->items[i].field;
        if (f->n_classes == 0 && f->mean_or_std > MOST)
            dt_warn("data.fields.%s: the training split's mean or deviation is %.3g, and a network begins near 0: add  "
                    "normalize: auto  to the field",
                    f->name, f->mean_or_std);
    }
}

// ---- replica plan -------------------------------------------------------------------------------------------------

// Which micro-batches a replica takes, and the order of a rank's transfers.
//
// The merges across replicas of all ranks have one order, that of the tree (comm/tree.c). A rank carries out those that
// touch its replicas in that order. So both ranks of the first transfer that is not done yet are waiting for it, and sends
// that block cannot deadlock.

static int by_order(const void *x, const void *y) {
    // SEND and RECV of one merge have the same order; kind makes the sort stable
    const dt_tree_action *a = x, *b = y;
    return a->order != b->order ? (a->order > b->order) - (a->order < b->order) : (int)a->kind - (int)b->kind;
}

// The actions of one replica. Those up to its last micro-batch are its own; the others become transfers of the rank.
static dt_status plan_replica(dt_replica_plan *p, int replica) {
    dt_replica_share *share = &p->replicas[replica];
    int n = 0, n_flats = 0;
    DT_TRY(dt_tree_plan(&share->actions, &n, &n_flats, p->rank * p->n_replicas + replica, p->world_size * p->n_replicas,
                        p->n_micro));
    share->first_flat = p->n_flats; // buffers of replicas lie one behind the other
    p->n_flats += n_flats;
    p->transfers = dt_xrealloc(p->transfers, sizeof(dt_tree_action) * (size_t)(p->n_transfers + n));
    for (int i = 0; i < n; i++) {
        dt_tree_action a = share->actions[i];
        if (a.order == 0) { // order 0: within the replica, before any transfer
            share->n_actions = i + 1;
            continue;
        }
        // from the replica's numbering to the rank's
        a.a += share->first_flat;
        a.b += share->first_flat;
        p->transfers[p->n_transfers++] = a;
    }
    return DT_OK;
}

static dt_status plan_tree(dt_replica_plan *p) {
    for (int l = 0; l < p->n_replicas; l++) DT_TRY(plan_replica(p, l));
    qsort(p->transfers, (size_t)p->n_transfers, sizeof *p->transfers, by_order);
    int n = 0;
    for (int i = 0; i < p->n_transfers; i++) {
        dt_tree_action a = p->transfers[i];
        const dt_tree_action *next = i + 1 < p->n_transfers ? &p->transfers[i + 1] : NULL;
        a.peer /= p->n_replicas;              // the tree's peers are replicas; messages go between ranks
        if (next && next->order == a.order) { // send and receive between replicas of this rank
            a = (dt_tree_action){DT_TREE_ADD, -1, next->a, a.a, -1, a.order};
            i++;
        }
        p->transfers[n++] = a;
    }
    p->n_transfers = n;
    return DT_OK;
}

// Round j: the j-th micro-batch of each replica.
static void order_micros(dt_replica_plan *p) {
    int first = p->replicas[0].micro_begin, last = p->replicas[p->n_replicas - 1].micro_end;
    p->micros = dt_xcalloc((size_t)(last - first) + 1, sizeof(int));
    // rounds end when every micro-batch is listed: shares differ by at most one
    for (int j = 0; p->n_rank_micros < last - first; j++)
        for (int l = 0; l < p->n_replicas; l++)
            if (p->replicas[l].micro_begin + j < p->replicas[l].micro_end)
                p->micros[p->n_rank_micros++] = p->replicas[l].micro_begin + j;
}

dt_status dt_replica_plan_check_ranks(int64_t world_size, int64_t n_micro) {
    if (world_size <= n_micro) return DT_OK;
    return dt_fail(DT_E_USAGE,
                   "%lld ranks cannot share the %lld micro-batches of a step (train.global_batch / "
                   "train.micro_batch): start at most %lld ranks, lower train.micro_batch if it is above 1, or raise "
                   "train.global_batch",
                   (long long)world_size, (long long)n_micro, (long long)n_micro);
}

dt_status dt_replica_plan_create(dt_replica_plan **out, bool elastic, int rank, int world_size, int n_replicas,
                                 int n_micro) {
    DT_TRY(dt_replica_plan_check_ranks(world_size, n_micro));
    // n_micro / world_size: each replica has work in every step
    if (n_replicas > n_micro / world_size) n_replicas = n_micro / world_size;
    if (n_replicas < 1) n_replicas = 1;
    dt_replica_plan *p = dt_xcalloc(1, sizeof *p);
    *p = (dt_replica_plan){
        .elastic = elastic, .rank = rank, .world_size = world_size, .n_replicas = n_replicas, .n_micro = n_micro};
    p->replicas = dt_xcalloc((size_t)n_replicas, sizeof *p->replicas);
    for (int l = 0; l < n_replicas; l++) {
        int replica = rank * n_replicas + l; // number among all replicas of all ranks
        p->replicas[l].micro_begin = dt_micro_begin(replica, world_size * n_replicas, n_micro);
        p->replicas[l].micro_end = dt_micro_begin(replica + 1, world_size * n_replicas, n_micro);
        p->replicas[l].first_flat = l;
    }
    dt_status st = DT_OK;
    if (elastic)
        st = plan_tree(p);
    else
        p->n_flats = n_replicas; // resume, off: one gradient buffer per replica
    order_micros(p);
    if (st != DT_OK) {
        dt_replica_plan_destroy(p);
        return st;
    }
    *out = p;
    return DT_OK;
}

bool dt_replica_plan_has_buckets(const dt_replica_plan *p, bool tree) {
    const int each = p->n_micro / p->world_size;          // micro-batches per rank
    if (p->world_size * p->n_replicas == 1) return false; // nothing to sum between buffers
    // a rank's micro-batches are a node of the binary tree if their number is a power of two and divides evenly
    return !p->elastic || (tree && p->world_size > 1 && p->n_micro % p->world_size == 0 && (each & (each - 1)) == 0 &&
                           each % p->n_replicas == 0);
}

int dt_replica_plan_merges(const dt_replica_plan *p, dt_tree_merge **out) {
    int n = 0;
    *out = dt_xcalloc((size_t)(p->n_flats + 1), sizeof **out);
    for (int l = 0; l < p->n_replicas; l++) {
        const dt_replica_share *share = &p->replicas[l];
        int i = share->n_actions;
        // the ADDs behind the replica's last LEAF
        while (share->actions[i - 1].kind == DT_TREE_ADD) i--;
        for (; i < share->n_actions; i++)
            (*out)[n++] =
                (dt_tree_merge){share->first_flat + share->actions[i].a, share->first_flat + share->actions[i].b};
    }
    // then pairs of replicas, pairs of pairs: the order of the tree above a replica
    for (int k = 1; k < p->n_replicas; k *= 2)
        for (int l = 0; l < p->n_replicas; l += 2 * k)
            (*out)[n++] = (dt_tree_merge){p->replicas[l].first_flat, p->replicas[l + k].first_flat};
    return n;
}

void dt_replica_plan_destroy(dt_replica_plan *p) {
    if (!p) return;
    for (int l = 0; l < p->n_replicas; l++) free(p->replicas[l].actions);
    free(p->replicas);
    free(p->transfers);
    free(p->micros);
    free(p);
}
