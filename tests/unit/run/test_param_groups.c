// train.groups: what is read and refused; gradients of what is trained are those of the whole network, whatever is
// frozen; frozen tensors and batch norms stay as they are; a tensor that thaws is updated as in a run that begins
// there (formulas in double).
#include "small_network.h"
#include "testing.h"

#include "base/core.h"
#include "base/hash.h"
#include "base/rng.h"
#include "config/words.h"
#include "graph/autodiff.h"
#include "run/nets.h"
#include "train/step.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *groups_line(const char *groups) {
    static char line[8192];
    snprintf(line, sizeof line, "  groups: %s", groups ? groups : "[]");
    return line;
}

// ---- what is refused -------------------------------------------------------------------------------

TEST(test_wrong_groups) {
    static const struct {
        const char *groups, *message;
    } cases[] = {
        {"[x]", "t.yaml:7:12: train.groups: a group is 'x'; expected a map"},
        {"[{lr: 0.1}]", "t.yaml:7:12: train.groups: this group has no match"},
        {"[{match: 'a(', lr: 1}]", "t.yaml:7:20: train.groups: 'a(' is not a POSIX extended"},
        {"[{match: a, rate: 1}]", "t.yaml:7:23: unknown key 'rate' in train.groups"},
        {"[{match: a, lr: -1}]", "train.groups: lr is '-1'; expected a factor"},
        {"[{match: a, decay: x}]", "train.groups: decay is 'x'; expected a factor"},
        {"[{match: a, freeze: 3}]", "train.groups: freeze is '3'; expected true or false"},
        {"[{match: a, freeze_until: soon}]", "freeze_until is 'soon'; expected an amount"},
        {"[{match: a, freeze: true, freeze_until: 3 steps}]", "give one of them"},
        {"[{match: [a], lr: 1}]", "train.groups: match is a list; expected a regular"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dt_config *c = parse_small("name: resnet", groups_line(cases[i].groups));
        dt_param_groups g;
        assert_int_equal(dt_param_groups_read(&g, c), DT_E_USAGE);
        assert_message(cases[i].message);
        dt_param_groups_fini(&g);
        dt_config_destroy(c);
    }
}

TEST(test_groups_without_tensors) {
    static const char *const names[] = {"conv1.weight",          "bn1.weight", "bn1.bias", "layer1.0.conv1.weight",
                                        "layer1.1.conv1.weight", "fc.weight"};
    static const struct {
        const char *groups, *message;
    } cases[] = {
        {"[{match: layer1, lr: 0}]",
         "t.yaml:7:12: train.groups: match 'layer1' must match a whole tensor name, and matches "
         "only a part of layer1.0.conv1.weight, layer1.1.conv1.weight; did you mean 'layer1.*'?"},
        {"[{match: 'head.*', lr: 0}]", "whose modules are conv1, bn1, layer1, fc ("},
        {"[{match: 'bn.*', lr: 0}, {match: 'bn1.bias', lr: 0}]",
         "t.yaml:7:36: train.groups: all tensors of match 'bn1.bias' are in groups before it, such "
         "as bn1.bias in 'bn.*'"},
        {"[{match: '.*', freeze_until: 1 epoch}]", "freezes every tensor at the beginning"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dt_config *c = parse_small("name: resnet", groups_line(cases[i].groups));
        dt_param_groups g;
        must(dt_param_groups_read(&g, c));
        assert_int_equal(dt_param_groups_check(&g, names, 6), DT_E_USAGE);
        assert_message(cases[i].message);
        dt_param_groups_fini(&g);
        dt_config_destroy(c);
    }
}

TEST(test_first_match_counts) {
    dt_config *c = parse_small("name: resnet", "  groups: [{match: 'layer1.0.*', lr: 0.5}, {match: '.*bn.*', freeze: "
                                               "true}, {match: 'layer.*|conv1.*', freeze_until: 50%}]");
    dt_param_groups g;
    dt_phase phases[DT_MAX_PHASES];
    const dt_scales scales = {.n = 0};
    must(dt_param_groups_read(&g, c));
    assert_int_equal(dt_phases_list(phases, &g, &scales, 100, 10), 2);
    assert_int_equal(phases[1].begin, 50);
    assert_float_equal(dt_param_groups_of(&g, "layer1.0.bn1.bias")->lr, 0.5, 0);
    assert_int_equal(dt_param_groups_unfreeze(&g, "layer1.0.bn1.bias"), 0);
    assert_true(dt_param_groups_unfreeze(&g, "layer1.1.bn1.bias") == INT64_MAX);
    assert_int_equal(dt_param_groups_unfreeze(&g, "conv1.weight"), 50);
    assert_int_equal(dt_param_groups_unfreeze(&g, "fc.conv1.weight"), 0);
    dt_param_groups_fini(&g);
    dt_config_destroy(c);
}

// ---- gradients -------------------------------------------------------------------------------------

static void run_network(network *n, const char *model, const char *groups) {
    run_targets(n, model, groups_line(groups), 1, DT_F32);
}

static void compare_gradients(const network *all, const network *part) {
    for (int i = 0; i < part->params->n_trained_entries; i++) {
        const dt_param_entry *e = &part->params->entries[i];
        const dt_param_entry *f = &all->params->entries[dt_params_find(all->params, e->name, false)];
        double norm = 0, error = 0;
        for (int64_t k = 0; k < e->count; k++) {
            const double x = (double)all->params->grads[0][f->offset + k];
            norm += x * x;
            error += pow((double)part->params->grads[0][e->offset + k] - x, 2);
        }
        if (!(error <= 1e-8 * norm + 1e-14)) fail_msg("%s: error %g of %g", e->name, sqrt(error), sqrt(norm));
    }
}

// Freezes parameters by a hash of their names; of a batch norm at most the shift, so that it still takes the moments of
// the batch and gradients are those of the whole network.
static char *random_groups(const dt_params *p, uint32_t seed) {
    char *text = dt_xprintf("[{match: 'none");
    for (int i = 0; i < p->n_entries; i++) {
        const char *name = p->entries[i].name;
        const bool scale = strstr(name, "bn") && strstr(name, ".weight");
        if (scale || strstr(name, "downsample.1.weight") || (dt_hash32(name) ^ seed) % 7 < 3) continue;
        char *more = dt_xprintf("%s|%s", text, name);
        free(text);
        text = more;
    }
    char *whole = dt_xprintf("%s', freeze: true}]", text);
    free(text);
    return whole;
}

TEST(test_gradients_of_any_subset) {
    static const char *const models[] = {"name: resnet, depth: 10, width: 8", "name: resnet, depth: 50, width: 4",
                                         "name: vit, patch: 8, dim: 32, heads: 2, blocks: 2",
                                         "name: vit, patch: 8, dim: 32, heads: 2, blocks: 2, gelu: tanh"};
    for (int m = 0; m < 4; m++) {
        network all;
        run_network(&all, models[m], NULL);
        for (uint32_t seed = 0; seed < 6; seed++) {
            char *groups = random_groups(all.params, seed * 2654435761u);
            network part;
            run_network(&part, models[m], groups);
            assert_true(part.graph->n_grads > 0 && part.graph->n_grads < all.graph->n_grads);
            compare_gradients(&all, &part);
            drop_network(&part);
            free(groups);
        }
        drop_network(&all);
    }
}

// In bf16 too, a batch norm is trained whose input nobody differentiates, with and without an addition behind it.
TEST(test_gradients_behind_frozen_bf16) {
    static const char *const models[] = {"name: resnet, depth: 10, width: 8", "name: resnet, depth: 50, width: 4"};
    static const char *const groups[] = {"[{match: 'conv1.*', freeze: true}]",
                                         "[{match: '(conv1|bn1|layer1.0.conv.).*', freeze: true}]"};
    network all, part;
    run_network(&all, models[0], NULL);
    const bool can = all.backend->computes_dtype(all.backend, DT_BF16);
    drop_network(&all);
    if (!can) skip();
    for (int m = 0; m < 2; m++) {
        run_targets(&all, models[m], groups_line(NULL), 1, DT_BF16);
        for (int i = 0; i < 2; i++) {
            run_targets(&part, models[m], groups_line(groups[i]), 1, DT_BF16);
            if (i == 0) compare_gradients(&all, &part);
            drop_network(&part);
        }
        drop_network(&all);
    }
}

static int count_backward(const network *n, const char *prefix) {
    int count = 0;
    for (int i = 0; i < n->graph->n_nodes; i++) {
        const dt_node *node = &n->graph->nodes[i];
        count += !node->dead && node->backward && strncmp(node->name, prefix, strlen(prefix)) == 0;
    }
    return count;
}

// A frozen trunk costs no gradient work, has no moments and no batch statistics.
TEST(test_frozen_trunk) {
    network all, head;
    run_network(&all, "name: resnet, depth: 10, width: 8", NULL);
    run_network(&head, "name: resnet, depth: 10, width: 8", "[{match: '(conv1|bn1|layer[1-3]).*', freeze: true}]");
    assert_true(count_backward(&all, "layer3") > 0 && count_backward(&all, "conv1") > 0);
    assert_int_equal(count_backward(&head, "layer3"), 0);
    assert_int_equal(count_backward(&head, "conv1"), 0);
    assert_true(count_backward(&head, "layer4") > 0);
    assert_true(head.params->n_trained < head.params->n_master);
    assert_int_equal(head.params->n_master, all.params->n_master);
    assert_int_equal(all.params->n_trained, all.params->n_master);
    assert_int_equal(all.graph->n_updates, 2 * 12);
    assert_int_equal(head.graph->n_updates, 2 * 3); // layer4's
    assert_true(dt_params_find_stat(head.params, "layer1.0.bn1.mean") < 0);
    drop_network(&all);
    drop_network(&head);
}

// A gradient passes through batch norms that are frozen: its value along a direction is the slope of the loss, which
// the same network gives.
TEST(test_gradient_through_frozen_norms) {
    network n;
    run_network(&n, "name: resnet, depth: 10, width: 8", "[{match: '.*(bn[12]|downsample.1).*', freeze: true}]");
    assert_int_equal(n.graph->n_updates, 0);
    const dt_param_entry *e = &n.params->entries[dt_params_find(n.params, "conv1.weight", false)];
    double slope = 0;
    float *w = n.params->master + e->offset, *d = dt_xcalloc((size_t)e->count, sizeof *d);
    dt_rng r = {.seed = 9};
    for (int64_t i = 0; i < e->count; i++) {
        d[i] = dt_rng_normal(&r, (uint32_t)i);
        slope += (double)d[i] * (double)n.params->grads[0][e->offset + i];
    }
    const double h = 1e-4;
    for (int64_t i = 0; i < e->count; i++) w[i] += (float)h * d[i];
    const double up = pass_small(&n);
    for (int64_t i = 0; i < e->count; i++) w[i] -= 2 * (float)h * d[i];
    const double down = pass_small(&n);
    assert_true(fabs(slope) > 0.1);
    assert_float_equal((up - down) / (2 * h), slope, 0.03 * fabs(slope));
    free(d);
    drop_network(&n);
}

// ---- thawing ---------------------------------------------------------------------------------------

enum { STEPS = 6, THAW = 3, IN = 3, OUT = 2 };

typedef struct rig {
    dt_batch_source base;
    dt_field_info fields[2];
    float x[STEPS][IN], y[STEPS][OUT], w[1];
    dt_batch batch;
} rig;

static dt_status get(dt_batch_source *b, int64_t step, int micro, const dt_batch **out, double *wait_s) {
    rig *s = b->self;
    s->batch.field[0] = s->x[step];
    s->batch.field[1] = s->y[step];
    *out = &s->batch;
    *wait_s = 0;
    return DT_OK;
}
static void release(dt_batch_source *s, const dt_batch *b) {}

static void fill_rig(rig *s) {
    dt_rng r = {.seed = 1};
    *s = (rig){.w = {1}};
    s->fields[0] = (dt_field_info){.name = "x", .dtype = DT_F32, .sample_shape = dt_shape1(IN)};
    s->fields[1] = (dt_field_info){.name = "y", .dtype = DT_F32, .sample_shape = dt_shape1(OUT)};
    s->base = (dt_batch_source){.self = s, .n_fields = 2, .fields = s->fields, .get = get, .release = release};
    s->batch = (dt_batch){.n = 1, .n_valid = 1, .weight = s->w};
    for (uint32_t t = 0; t < STEPS; t++) {
        for (uint32_t i = 0; i < IN; i++) s->x[t][i] = dt_rng_normal(&r, 10 * t + i);
        for (uint32_t i = 0; i < OUT; i++) s->y[t][i] = dt_rng_normal(&r, 10 * t + 5 + i);
    }
}

static bool thaws_later(const void *ctx, const char *name) {
    return *(const int64_t *)ctx < THAW && strcmp(name, "b") == 0;
}

static dt_graph *two_terms(int64_t step) {
    dt_graph *g = dt_graph_create("terms", true);
    dt_graph_freeze(g, thaws_later, &step);
    dt_value x = dt_input(g, "x", DT_F32, dt_shape2(1, IN));
    dt_value y = dt_input(g, "y", DT_F32, dt_shape2(1, OUT));
    dt_value w = dt_input(g, "weight", DT_F32, dt_shape1(1));
    dt_value a = dt_param(g, "a", dt_shape2(OUT, IN), (dt_init){DT_INIT_UNIFORM, 0.5f}, true);
    dt_value b = dt_param(g, "b", dt_shape1(OUT), (dt_init){DT_INIT_UNIFORM, 0.5f}, true);
    dt_loss(g, DT_LOSS_mse, dt_linear_with(g, "fc", x, a, b), y, w, 0, 0);
    must(dt_graph_differentiate(g));
    return g;
}

typedef struct formula {
    double p[OUT * IN + OUT], m[OUT * IN + OUT], v[OUT * IN + OUT];
} formula;

// PyTorch's formulas, each tensor with a step count of its own.
static void formula_step(formula *f, const rig *s, dt_optimizer_id kind, int t) {
    double e[OUT];
    for (int o = 0; o < OUT; o++) {
        e[o] = f->p[OUT * IN + o] - (double)s->y[t][o];
        for (int i = 0; i < IN; i++) e[o] += f->p[o * IN + i] * (double)s->x[t][i];
    }
    for (int k = 0; k < OUT * IN + OUT; k++) {
        const bool b = k >= OUT * IN;
        const double g = b ? e[k - OUT * IN] : e[k / IN] * (double)s->x[t][k % IN];
        const double lr = 0.01 * (b ? 0.5 : 1), decay = 0.1 * (b ? 0.3 : 1);
        const int n = b ? t - THAW + 1 : t + 1;
        if (n < 1) continue;
        if (kind == DT_OPTIMIZER_sgd) {
            const double d = g + decay * f->p[k];
            f->m[k] = n == 1 ? d : 0.9 * f->m[k] + d;
            f->p[k] -= lr * f->m[k];
        } else {
            f->m[k] = 0.9 * f->m[k] + 0.1 * g;
            f->v[k] = 0.99 * f->v[k] + 0.01 * g * g;
            f->p[k] *= 1 - lr * decay;
            f->p[k] -= lr * (f->m[k] / (1 - pow(0.9, n))) / (sqrt(f->v[k] / (1 - pow(0.99, n))) + 1e-8);
        }
    }
}

static void check_thaw(dt_optimizer_id kind, int resume_at) {
    dt_graph *late = two_terms(THAW), *early = two_terms(0);
    dt_backend *backend;
    dt_comm *comm;
    dt_replica_plan *replicas;
    dt_params *p;
    dt_plan *plans[2];
    dt_stepper *s = NULL;
    rig known;
    fill_rig(&known);
    assert_int_equal(early->n_grads, 1);
    must(dt_backend_create_cpu(&backend, &(dt_backend_opts){.threads = 1}));
    must(dt_comm_create_self(&comm));
    must(dt_replica_plan_create(&replicas, false, 0, 1, 1, 1));
    must(dt_params_create(&p, late, backend, dt_optimizers[kind].n_slots, replicas->n_flats));
    dt_param_entry *b = &p->entries[dt_params_find(p, "b", false)];
    b->thaw = THAW, b->lr_scale = 0.5f, b->decay_scale = 0.3f;
    const dt_plan_opts po = {.threads = 1, .n_replicas = 1};
    must(dt_plan_create(&plans[0], early, p, &po));
    must(dt_plan_create(&plans[1], late, p, &po));
    dt_stepper_opts o = {.comm = comm,
                         .params = p,
                         .replicas = replicas,
                         .replica_threads = 1,
                         .team_threads = 1,
                         .micro_batch = 1,
                         .weight_decay = 0.1f,
                         .optimizer = {.kind = kind, .hyper = {0.9f, 0.99f, 1e-8f}}};
    if (kind == DT_OPTIMIZER_sgd) o.optimizer.hyper[1] = 0;
    dt_params_init(p, 3);
    formula f = {0};
    const float *a = p->master + p->entries[dt_params_find(p, "a", false)].offset;
    for (int k = 0; k < OUT * IN + OUT; k++)
        f.p[k] = (double)(k < OUT * IN ? a[k] : p->master[b->offset + k - OUT * IN]);
    for (int t = 0; t < STEPS; t++) {
        const bool thawed = t >= THAW;
        if (t == resume_at || !s) { // a stepper that begins here, as in a resumed run
            dt_stepper_destroy(s);
            o.graph = thawed ? late : early;
            o.plan = plans[thawed];
            o.first_step = t;
            must(dt_stepper_create(&s, &o));
            dt_params_repack(p);
            must(dt_stepper_set_source(s, &known.base));
        } else if (t == THAW) {
            must(dt_stepper_set_plan(s, late, plans[1], t));
        }
        dt_step_result r;
        must(dt_stepper_run(s, t, 0.01, false, &r));
        formula_step(&f, &known, kind, t);
        for (int k = 0; k < OUT * IN + OUT; k++)
            assert_float_equal(k < OUT * IN ? a[k] : p->master[b->offset + k - OUT * IN], f.p[k], 2e-6);
    }
    dt_stepper_destroy(s);
    dt_params_destroy(p);
    for (int i = 0; i < 2; i++) dt_plan_destroy(plans[i]);
    dt_replica_plan_destroy(replicas);
    dt_comm_destroy(comm);
    backend->destroy(backend);
    dt_graph_destroy(early);
    dt_graph_destroy(late);
}

TEST(test_thaw) {
    for (int resume_at = 0; resume_at < STEPS; resume_at++) {
        check_thaw(DT_OPTIMIZER_adamw, resume_at);
        check_thaw(DT_OPTIMIZER_sgd, resume_at);
    }
}

TEST_MAIN(NULL, NULL)
