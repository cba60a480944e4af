// param_groups.c: groups of parameters (train.groups), scales, addresses to listen on.

#include "config/param_groups.h"

#include "base/regular.h"
#include "config/config_internal.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- param groups -------------------------------------------------------------------------------------------------

// Reads train.groups and finds the group of a name.

static dt_status param_groups_fail_item(const dt_cnode *n, const char *key, const char *expected) {
    return dt_fail(DT_E_USAGE, "%s: train.groups: %s is %s%s%s; expected %s", dt_cnode_where(n), key,
                   n->kind == DT_C_SCALAR ? "'" : "",
                   n->kind == DT_C_SCALAR ? n->text // the user's text, or what kind of node stands there
                   : n->kind == DT_C_LIST ? "a list"
                                          : "a map",
                   n->kind == DT_C_SCALAR ? "'" : "", expected);
}

static dt_status read_factor(const dt_cnode *n, const char *key, double *out) {
    if (dt_cnode_real(n, out) && *out >= 0 && *out <= 1e6) return DT_OK; // finite: parsing refuses infinity and NaN
    return param_groups_fail_item(n, key, "a factor of at least 0");
}

static dt_status read_match(dt_param_group *g, const dt_cnode *n) {
    if (n->kind != DT_C_SCALAR || dt_config_is_null(n))
        return param_groups_fail_item(n, "match", "a regular expression of tensor names, such as 'layer[1-3].*'");
    char *whole = dt_xprintf("^(%s)$", n->text); // anchored: a pattern must match the whole name
    char why[DT_REGULAR_WHY];
    const bool good = dt_regular_compile(&g->regex, whole, REG_NOSUB, why);
    free(whole);
    if (!good) // `why` explains in words
        return dt_fail(DT_E_USAGE, "%s: train.groups: '%s' is not a POSIX extended regular expression: %s",
                       dt_cnode_where(n), n->text, why);
    g->match = n->text; // borrowed from the tree
    return DT_OK;
}

static dt_status param_groups_read_key(dt_param_group *g, const char *key, const dt_cnode *n) {
    if (strcmp(key, "match") == 0) return read_match(g, n);
    if (strcmp(key, "lr") == 0) return read_factor(n, key, &g->lr);
    if (strcmp(key, "decay") == 0) return read_factor(n, key, &g->decay);
    if (strcmp(key, "freeze") == 0) {
        // yes and no are not YAML 1.2
        if (n->kind == DT_C_SCALAR && dt_config_parse_bool(n->text, &g->freeze)) return DT_OK;
        return param_groups_fail_item(n, key, "true or false");
    }
    if (strcmp(key, "freeze_until") == 0) {
        // checked again below, against freeze
        g->unfreezes = n->kind == DT_C_SCALAR && dt_config_parse_amount(n->text, &g->until);
        if (g->unfreezes) return DT_OK;
        return param_groups_fail_item(n, key, "an amount such as 500 steps, 2 epochs or 10%");
    }
    return dt_fail(DT_E_USAGE,
                   "%s: unknown key '%s' in train.groups; expected match, lr, decay, freeze or "
                   "freeze_until",
                   n->key_where, key);
}

static dt_status read_group(dt_param_group *g, const dt_cnode *n) {
    *g = (dt_param_group){.node = n, .lr = 1, .decay = 1}; // factors of 1: as without a group
    if (n->kind != DT_C_MAP) return param_groups_fail_item(n, "a group", "a map such as {match: 'layer1.*', lr: 0.1}");
    for (size_t i = 0; i < n->n; i++) DT_TRY(param_groups_read_key(g, n->keys[i], n->items[i]));
    // a default would take all tensors
    if (!g->match) return dt_fail(DT_E_USAGE, "%s: train.groups: this group has no match", dt_cnode_where(n));
    if (g->freeze && g->unfreezes)
        return dt_fail(DT_E_USAGE,
                       "%s: train.groups: freeze keeps these tensors as they are for good, "
                       "freeze_until for a while: give one of them",
                       dt_cnode_where(n));
    if (g->freeze || g->unfreezes) g->unfreeze_step = INT64_MAX; // until trainer or check resolves the step
    return DT_OK;
}

dt_status dt_param_groups_read(dt_param_groups *g, const dt_config *c) {
    const dt_cnode *list = c->train.groups;
    int n_unfreeze = 0;
    *g = (dt_param_groups){0};
    if (!list) return DT_OK;
    g->items = dt_xcalloc(list->n + 1, sizeof *g->items); // regexes need a destructor
    for (size_t i = 0; i < list->n; i++) {
        dt_param_group *group = &g->items[i];
        const dt_status st = read_group(group, list->items[i]);
        g->n += group->match != NULL; // only then there is a regex to free
        DT_TRY(st);
        n_unfreeze += group->unfreezes;
    }
    if (n_unfreeze > DT_MAX_UNFREEZES)
        return dt_config_fail(c, "train.groups", "%d groups have a freeze_until, at most %d can", n_unfreeze,
                              DT_MAX_UNFREEZES);
    return DT_OK;
}

void dt_param_groups_fini(dt_param_groups *g) {
    for (int i = 0; i < g->n; i++) regfree(&g->items[i].regex);
    free(g->items);
    *g = (dt_param_groups){0};
}

const dt_param_group *dt_param_groups_of(const dt_param_groups *g, const char *name) {
    for (int i = 0; g && i < g->n; i++)
        if (regexec(&g->items[i].regex, name, 0, NULL, 0) == 0) return &g->items[i]; // the first match counts
    return NULL;                                                                     // NULL: no group
}

int64_t dt_param_groups_unfreeze(const dt_param_groups *g, const char *name) {
    const dt_param_group *group = dt_param_groups_of(g, name);
    return group ? group->unfreeze_step : 0; // 0: trains from the beginning
}

// The names' modules, each once and in order: "conv1, bn1, layer1, …".
static void list_modules(const char *const *names, int n, char *text, size_t cap) {
    size_t at = 0;
    for (int i = 0; i < n; i++) {
        const int length = (int)strcspn(names[i], ".");
        // neighbours only: names come in the network's order
        const bool again = i > 0 && strncmp(names[i], names[i - 1], (size_t)length + 1) == 0;
        if (again || at + (size_t)length + 8 > cap) continue; // 8: separator and NUL
        at += (size_t)snprintf(text + at, cap - at, "%s%.*s", at ? ", " : "", length, names[i]);
    }
}

// The names that only part of the pattern is in: "layer1" is in "layer1.0.conv1.weight".
static void list_near(const dt_param_group *g, const char *const *names, int n, char *text, size_t cap) {
    regex_t part;
    size_t at = 0;
    int n_near = 0;
    char why[DT_REGULAR_WHY];
    if (!dt_regular_compile(&part, g->match, REG_NOSUB, why)) return; // compiled once already, anchored
    for (int i = 0; i < n; i++) {
        if (regexec(&part, names[i], 0, NULL, 0) != 0 || n_near++ >= 3) continue; // counts all, prints three
        at += (size_t)snprintf(text + at, cap - at, "%s%.100s", at ? ", " : "", names[i]);
    }
    if (n_near > 3) snprintf(text + at, cap - at, " and %d more", n_near - 3);
    regfree(&part);
}

static dt_status fail_empty(const dt_param_groups *all, const dt_param_group *g, const char *const *names, int n) {
    char near[512] = "", modules[512] = "";
    for (int i = 0; i < n; i++) {
        if (regexec(&g->regex, names[i], 0, NULL, 0) != 0) continue; // the group matches something: another was first
        const dt_param_group *first = dt_param_groups_of(all, names[i]);
        return dt_fail(DT_E_USAGE,
                       "%s: train.groups: all tensors of match '%s' are in groups before it, such "
                       "as %s in '%s' (the first match counts): put it in front of that one",
                       dt_cnode_where(g->node), g->match, names[i], first->match);
    }
    list_near(g, names, n, near, sizeof near); // nothing matches whole names
    if (*near)
        return dt_fail(DT_E_USAGE,
                       "%s: train.groups: match '%s' must match a whole tensor name, and matches "
                       "only a part of %s; did you mean '%s.*'?",
                       dt_cnode_where(g->node), g->match, near, g->match);
    list_modules(names, n, modules, sizeof modules);
    return dt_fail(DT_E_USAGE,
                   "%s: train.groups: match '%s' matches no tensor of this network, whose modules "
                   "are %s (dtrain check CONFIG --graph lists all tensors)",
                   dt_cnode_where(g->node), g->match, modules);
}

dt_status dt_param_groups_check(const dt_param_groups *g, const char *const *names, int n) {
    bool *found = dt_xcalloc((size_t)g->n + 1, sizeof *found); // by group
    bool trains = false;
    dt_status st = DT_OK;
    for (int i = 0; i < n; i++) {
        const dt_param_group *group = dt_param_groups_of(g, names[i]);
        if (group) found[group - g->items] = true;     // index by difference
        trains |= !group || group->unfreeze_step == 0; // at least one tensor trains at step 0
    }
    for (int i = 0; i < g->n && st == DT_OK; i++)
        if (!found[i]) st = fail_empty(g, &g->items[i], names, n); // a group without tensors is a typo
    free(found);
    if (st == DT_OK && !trains)
        st = dt_fail(DT_E_USAGE,
                     "%s: train.groups freezes every tensor at the beginning: leave out at least "
                     "the head",
                     dt_cnode_where(g->items[0].node));
    return st;
}

// ---- scale list ---------------------------------------------------------------------------------------------------

enum { MAX_SIDE = 16384 }; // pixels

static dt_status scale_list_fail_item(const dt_cnode *n, const char *expected) {
    return dt_fail(DT_E_USAGE, "%s: model.scales: expected %s", dt_cnode_where(n), expected);
}

static dt_status read_side(dt_scale_item *s, const dt_cnode *n) {
    int64_t side;
    // below 1 or absurdly large
    if (n->kind != DT_C_SCALAR || !dt_config_parse_int(n->text, &side) || side < 1 || side > MAX_SIDE)
        return scale_list_fail_item(n, "a side in pixels, or a map such as {side: 112, from: 2 epochs}");
    s->side = (int)side;
    return DT_OK;
}

static dt_status scale_list_read_key(dt_scale_item *s, const char *key, const dt_cnode *n) {
    if (strcmp(key, "side") == 0) return read_side(s, n);
    if (strcmp(key, "from") != 0)
        return dt_fail(DT_E_USAGE, "%s: unknown key '%s' in model.scales; expected side or from", n->key_where, key);
    // joins later; else from the beginning
    s->joins = n->kind == DT_C_SCALAR && dt_config_parse_amount(n->text, &s->from);
    return s->joins ? DT_OK : scale_list_fail_item(n, "an amount such as 500 steps, 2 epochs or 30%");
}

static dt_status scale_list_read_one(dt_scale_item *s, const dt_cnode *n) {
    *s = (dt_scale_item){0};
    if (n->kind != DT_C_MAP) return read_side(s, n); // a number alone
    for (size_t i = 0; i < n->n; i++) DT_TRY(scale_list_read_key(s, n->keys[i], n->items[i]));
    return s->side ? DT_OK : scale_list_fail_item(n, "a side, as in {side: 112, from: 2 epochs}"); // 0: not given
}

dt_status dt_scales_read(dt_scales *s, const dt_config *c) {
    const dt_cnode *list = c->model.scales;
    bool begins = false;
    s->n = 0;
    if (!list) return DT_OK;
    if (list->n < 1 || list->n > DT_MAX_SCALES)
        return dt_config_fail(c, "model.scales", "model.scales: expected 1 to %d scales, found %d", DT_MAX_SCALES,
                              (int)list->n);
    for (size_t i = 0; i < list->n; i++) {
        dt_scale_item x;
        DT_TRY(scale_list_read_one(&x, list->items[i]));
        int at = s->n++; // insertion, the largest side first
        for (; at > 0 && s->items[at - 1].side <= x.side; at--) {
            // equal sides would be one network twice
            if (s->items[at - 1].side == x.side) return scale_list_fail_item(list->items[i], "each side once");
            s->items[at] = s->items[at - 1];
        }
        s->items[at] = x;
        begins |= !x.joins;
    }
    if (begins) return DT_OK; // some scale trains at step 0
    return dt_config_fail(c, "model.scales", "every scale joins later: leave out `from` of the one that begins");
}

// ---- listen -------------------------------------------------------------------------------------------------------

static bool read_port(const char *text, in_port_t *out) {
    char *end;
    const long port = strtol(text, &end, 10);
    *out = htons((uint16_t)port); // network byte order
    // digits alone: strtol would take blanks and signs
    return *text >= '0' && *text <= '9' && !*end && port >= 1 && port <= 65535;
}

dt_status dt_listen_read(dt_listen *out, const dt_config *c) {
    const char *text = c->metrics.listen, *colon = strrchr(text, ':'); // the last colon: IPv6 has others
    char host[INET6_ADDRSTRLEN + 2] = "";                              // brackets included
    const size_t n = colon ? (size_t)(colon - text) : sizeof host;     // no colon: too long on purpose
    *out = (dt_listen){0};
    if (n < sizeof host) memcpy(host, text, n); // stays terminated: host is zeroed
    if (n < sizeof host && n > 2 && host[0] == '[' && host[n - 1] == ']') {
        host[n - 1] = 0; // drops the bracket
        out->v6.sin6_family = AF_INET6;
        if (inet_pton(AF_INET6, host + 1, &out->v6.sin6_addr) == 1 && read_port(colon + 1, &out->v6.sin6_port))
            return DT_OK;
    } else if (inet_pton(AF_INET, host, &out->v4.sin_addr) == 1) {
        out->v4.sin_family = AF_INET;
        if (read_port(colon + 1, &out->v4.sin_port)) return DT_OK;
    }
    return dt_config_fail(c, "metrics.listen",
                          "metrics.listen is '%s'; expected ADDRESS:PORT, as in 127.0.0.1:9464 "
                          "(this host), 0.0.0.0:9464 or \"[::]:9464\" (all that reach it)",
                          text);
}

int dt_listen_port(const dt_listen *l) {
    return ntohs(l->any.sa_family == AF_INET6 ? l->v6.sin6_port : l->v4.sin_port); // family is the union's first member
}
