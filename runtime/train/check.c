// check.c: dtrain check: what can be known of a run before it is trained. A run is opened as for training, its networks
// are made and the weights of a file read; no step is made.
#include "train/trainer.h"

#include "base/core.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text.h"
#include "exec/plan_costs.h"
#include "run/batch_inputs.h"
#include "run/memory_report.h"
#include "run/schedule.h"
#include "run/state.h"
#include "train/scaling.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void print_cost(const dt_kernel_cost *c, double all_s, bool floors, FILE *out) {
    const double s = c->seconds > 0 ? c->seconds : 1e-9;
    // floor: the least time that the device's bandwidth or products allow
    if (floors) fprintf(out, "%9.3f ", c->floor_s * 1e3);
    fprintf(out, "%9.3f %5.1f %% %10.4f %7.1f %9.1f %6d  %s\n", c->seconds * 1e3, 100 * c->seconds / all_s,
            c->bytes / 1e9, c->bytes / s / 1e9, c->flop / s / 1e9, c->n, c->kind);
}

// What was chosen by timing, then what the kernels of a micro-batch move, and how long each takes alone.
static dt_status print_kernels(const dt_open_run *r, const dt_plan *plan, FILE *out) {
    const dt_device *d = r->backend->device;
    const bool floors = d && d->rates.bytes_s > 0;
    const int threads = r->resolved.replica_threads;
    dt_kernel_cost *rows, all = {.kind = "all"};
    int n;
    char *table = r->backend->choice_table ? r->backend->choice_table(r->backend) : NULL;
    if (table) fprintf(out, "chosen by timing, GFLOP/s:\n%s", table);
    free(table);
    const dt_status st = dt_plan_costs(plan, NULL, true, &rows, &n); // times every kernel alone
    for (int i = 0; i < n; i++) {
        all.n += rows[i].n;
        all.bytes += rows[i].bytes, all.flop += rows[i].flop;
        all.floor_s += rows[i].floor_s, all.seconds += rows[i].seconds;
    }
    if (st == DT_OK) {
        fprintf(out, "kernels of a micro-batch, each alone");
        if (!d) fprintf(out, " on %d thread%s", threads, threads == 1 ? "" : "s");
        if (floors)
            fprintf(out,
                    "; floor: bytes at %.0f GB/s or products at %.0f TFLOP/s of 16 bits, "
                    "%.0f of TF32, %.0f of fp32",
                    d->rates.bytes_s / 1e9, d->rates.f16_flop_s / 1e12, d->rates.tf32_flop_s / 1e12,
                    d->rates.f32_flop_s / 1e12);
        fprintf(out, "\n%s       ms   share         GB    GB/s   GFLOP/s  times\n", floors ? " floor ms " : "");
        for (int i = 0; i < n; i++) print_cost(&rows[i], all.seconds, floors, out);
        print_cost(&all, all.seconds, floors, out);
    }
    free(rows);
    return st;
}

static void print_group(const dt_param_group *group, FILE *out) {
    if (!group) {
        fprintf(out, "as train.optimizer says");
    } else if (group->freeze) {
        fprintf(out, "frozen");
    } else {
        fprintf(out, "lr x %g, decay x %g", group->lr, group->decay);
        if (group->unfreezes) fprintf(out, ", frozen until step %" PRId64, group->unfreeze_step);
    }
}

// A line for each group with its tensors and parameters, and one for the rest.
static void print_groups(const dt_param_groups *g, const dt_params *p, FILE *out) {
    if (g->n == 0) return;
    fprintf(out, "groups:\n");
    for (int i = 0; i <= g->n; i++) { // the last round: tensors of no group
        const dt_param_group *group = i < g->n ? &g->items[i] : NULL;
        int n_tensors = 0;
        int64_t n = 0;
        for (int k = 0; k < p->n_entries; k++) {
            // the group that decides, not every one that matches
            if (dt_param_groups_of(g, p->entries[k].name) != group) continue;
            n_tensors++;
            n += p->entries[k].count;
        }
        fprintf(out, "  %-28s %4d tensors %11" PRId64 " parameters, ", group ? group->match : "all others", n_tensors,
                n);
        print_group(group, out);
        fprintf(out, "\n");
    }
}

// A line for each of several phases: its steps and the memory of a replica's activations.
static void print_phases(const dt_phase *phases, int n, int64_t total_steps, FILE *out) {
    for (int i = 0; i < n && n > 1; i++) {
        const int64_t end = i + 1 < n ? phases[i + 1].begin : total_steps;
        dt_plan_report r;
        dt_plan_report_get(phases[i].train.plan, &r);
        // phases of no step are left out
        if (phases[i].begin < end)
            fprintf(out, "  steps %" PRId64 " to %" PRId64 ": %.1f MiB of activations per worker group\n",
                    phases[i].begin, end - 1, (double)r.activation_bytes / 1048576.0);
    }
}

static void check_print_report(const dt_open_run *r, const dt_nets *nets, FILE *out) {
    const dt_params *p = nets->params;
    const dt_graph *g = dt_nets_trained(nets).graph;
    const dt_resolved *a = &r->resolved;
    int64_t n = 0;
    for (int i = 0; i < p->n_entries; i++) n += p->entries[i].count;
    dt_plan_report train;
    dt_plan_report_get(dt_nets_trained(nets).plan, &train);
    fprintf(out, "model %s: %lld parameters in %d tensors, %d buffers\n", g->name, (long long)n, p->n_entries,
            p->n_buffers);
    if (g->note) dt_text_printf(out, "%s\n", g->note);
    print_groups(&r->groups, p, out);
    fprintf(out, "step: %d samples = %d micro-batch%s of %d; %d worker group%s of %d thread%s, %s, %s\n",
            dt_run_global_batch(r), dt_run_n_micro(r), dt_run_n_micro(r) == 1 ? "" : "es", a->micro_batch,
            r->replicas->n_replicas, r->replicas->n_replicas == 1 ? "" : "s", a->replica_threads,
            a->replica_threads == 1 ? "" : "s", DT_WORD_OF(DT_PRECISION_WORDS, a->precision),
            r->backend->describe(r->backend));
    if (g->recompute.bytes_before)
        fprintf(out, "recompute: activations of about %.1f MiB instead of %.1f, %.2f times the work\n",
                (double)g->recompute.bytes_after / 1048576.0, (double)g->recompute.bytes_before / 1048576.0,
                g->recompute.compute);
    fprintf(out, "plan: %d kernels, %d reorders, %d in place\n", train.n_instructions, train.n_reorders,
            train.n_inplace);
    dt_memory_print(nets, r, out);
    print_phases(nets->phases, nets->n_phases, r->record.total_steps, out);
}

// A network's first layers expect values around 1. Says so of a field whose values, after normalisation, are far from
// that: no loss falls then, and nothing else would tell.
static void check_field_range(const dt_field_info *f, const float *x, int n_samples) {
    enum { FAR = 1000000 };
    const int64_t n_each = dt_shape_elements(&f->sample_shape), n = n_samples * n_each;
    double least = INFINITY, most = -INFINITY, mean = 0, variance = 0;
    // two passes: the variance needs the mean first
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < n; i++) {
            // images (N,H,W,C): k is the channel
            const int64_t k = f->is_image ? i % f->sample_shape.d[2] : i % n_each;
            const double m = dt_field_mean(f, k), std = dt_field_std(f, k);
            // vectors come normalised already: back to the field's unit
            const double own = f->is_image ? x[i] : x[i] * std + m; // images: the network normalises
            least = fmin(least, (own - m) / std);
            most = fmax(most, (own - m) / std);
            if (pass == 0) mean += own / (double)n;
            if (pass == 1) variance += (own - mean) * (own - mean) / (double)n;
        }
    // a width of 0 is a constant field: nothing to compare with
    if (fmax(fabs(least), fabs(most)) <= FAR && (most == least || (most - least) * FAR >= 1)) return;
    dt_warn("data.fields.%s: the network gets values of %.3g to %.3g (first micro-batch), where it "
            "expects about -3 to 3; give normalize: {mean: [%.3g], std: [%.3g]}",
            f->name, least, most, mean, variance > 0 ? sqrt(variance) : 1);
}

// Reads the first micro-batch of training. So what no catalog knows of the data (bytes that cannot be decoded, another
// number of bands) is reported as training would report it.
static dt_status take_batch(const dt_open_run *r, const dt_targets *targets) {
    static const int first[] = {0};
    const dt_batch *b;
    dt_batch_source *source = NULL;
    double wait_s;
    const dt_source_request q = {.split = DT_SPLIT_TRAIN, // random augmentation included, as a step would see it
                                 .augment = true,
                                 .global_batch = dt_run_global_batch(r),
                                 .micro_batch = r->resolved.micro_batch,
                                 .micros = first,
                                 .n_micro = 1,
                                 .end_step = 1};
    DT_TRY(r->data->open(r->data, &q, &source));
    dt_status st = source->get(source, 0, 0, &b, &wait_s); // decodes; fails as a training step would
    if (st == DT_OK) {
        for (int i = 0; i < source->n_fields; i++)
            if (source->fields[i].dtype == DT_F32) check_field_range(&source->fields[i], b->field[i], b->n);
        st = dt_batch_check_targets(b, targets);
        source->release(source, b);
    }
    source->close(source);
    return st;
}

static dt_run_length measure_length(const dt_open_run *r) {
    const int64_t total = r->record.total_steps;
    const int64_t every = dt_amount_steps(r->config->eval.every, total, r->record.steps_per_epoch);
    const int64_t n_val = r->data->n_samples(r->data, DT_SPLIT_VAL);
    const int64_t n_test = r->data->n_samples(r->data, DT_SPLIT_TEST);
    const int64_t evaluations = every > 0 ? (total + every - 1) / every : 0; // the last one at the end
    const int64_t tests = evaluations > 1 ? 2 : 1; // with the last weights, and with the best where those are others
    return (dt_run_length){.n_trained = total * dt_run_global_batch(r),
                           .n_evaluated = evaluations * n_val + tests * n_test};
}

static dt_status write_dot(const dt_graph *g, const char *path) {
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *f = open_memstream(&text, &n_bytes); // in memory first: the file appears whole
    if (!f) return dt_fail(DT_E_INTERNAL, "%s: %s", path, strerror(errno));
    dt_graph_write_dot(g, f);
    fclose(f);
    const dt_status st = dt_io_write_file(path, text, n_bytes);
    free(text);
    return st;
}

static dt_status check_opened_run(dt_open_run *r, dt_nets *nets, dt_state **state, const dt_check_prints *prints,
                                  FILE *out, dt_run_length *length) {
    uint64_t teacher;
    if (r->data) {
        fputs("data: ", out); // the description names files: control characters are escaped
        dt_text_print(out, r->data->describe(r->data));
        fputc('\n', out);
    }
    DT_TRY(dt_nets_make(nets, r, true));
    const dt_net net = dt_nets_trained(nets);
    DT_TRY(dt_state_create(state, r, nets));
    if (r->data) *length = measure_length(r);
    if (r->data) DT_TRY(take_batch(r, &nets->targets));
    dt_targets_check_range(&nets->targets);
    // What can fail or warn: a file that does not fit, tensors frozen at random values. Random weights of a large network
    // take a second to make, and nobody looks at them.
    const dt_params *p = nets->params;
    if (dt_state_has_file(r->config) || p->n_trained_entries < p->n_entries) DT_TRY(dt_state_init(*state));
    DT_TRY(dt_state_load_teacher(*state, &teacher));
    if (prints->graph) {
        dt_graph_print_costs(net.graph, out);
        dt_graph_print(net.graph, out);
        dt_plan_print(net.plan, out);
    }
    if (prints->dot) DT_TRY(write_dot(net.graph, prints->dot));
    length->rank_bytes = dt_memory_bytes(nets, r) + (r->data ? r->data->decode_bytes : 0);
    check_print_report(r, nets, out);
    if (prints->kernels) DT_TRY(print_kernels(r, net.plan, out));
    return prints->scaling ? dt_scaling_predict(prints->scaling, r, nets, *state) : DT_OK;
}

dt_status dt_trainer_check(const dt_trainer_args *a, const dt_field_info *fields, int n_fields,
                           const dt_check_prints *prints, FILE *out, dt_run_length *length) {
    dt_open_run r;
    dt_nets nets = {0};
    dt_state *state = NULL;
    *length = (dt_run_length){0};
    // checked: the run's folder is neither read nor written
    dt_status st = dt_run_open(&r, a, &(dt_run_request){.use = DT_RUN_CHECKED, .fields = fields, .n_fields = n_fields});
    if (st == DT_OK) st = check_opened_run(&r, &nets, &state, prints, out, length);
    dt_state_destroy(state);
    dt_nets_drop(&nets);
    dt_run_close(&r, st);
    return st;
}
