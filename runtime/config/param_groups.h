// param_groups.h: groups of parameters (train.groups), and two more lists of a config: scales, addresses to listen on.
#ifndef DT_CONFIG_PARAM_GROUPS_H
#define DT_CONFIG_PARAM_GROUPS_H

#include "config/config.h"

#include <netinet/in.h>
#include <regex.h>

// ---- param groups -------------------------------------------------------------------------------------------------

// train.groups: how the parameters that match a pattern are trained.
//
// A group names parameters by a POSIX extended regular expression that must match the whole name. The first group that
// matches counts, as in a rule list of optax or big_vision, so special cases stand in front of general ones; parameters
// of no group are trained with train.optimizer. lr and decay are factors of train.optimizer.lr and .weight_decay.
// A frozen parameter is unfrozen at a step: 0 = trained from the beginning, INT64_MAX = never.
//
// The config is borrowed and must outlive the groups. Threads: read-only once the steps are set.

typedef struct dt_param_group {
    const dt_cnode *node; // its place in the file
    const char *match;
    regex_t regex;
    double lr, decay;
    bool freeze; // for good
    bool unfreezes;
    dt_amount until;       // unfreezes: when
    int64_t unfreeze_step; // the caller sets those of groups that unfreeze, once it knows the run's length
} dt_param_group;

typedef struct dt_param_groups {
    dt_param_group *items;
    int n;
} dt_param_groups;

// The most groups that may have a freeze_until.
enum { DT_MAX_UNFREEZES = 15 };

// DT_E_USAGE with the place of what is wrong. No train.groups: n = 0.
dt_status dt_param_groups_read(dt_param_groups *g, const dt_config *c);
void dt_param_groups_fini(dt_param_groups *g);
// The group of a parameter, or NULL.
const dt_param_group *dt_param_groups_of(const dt_param_groups *g, const char *name);
// The step from which a parameter is trained. g may be NULL.
int64_t dt_param_groups_unfreeze(const dt_param_groups *g, const char *name);
// DT_E_USAGE if a group has none of the parameters (the message lists all), or if none is trained at step 0.
dt_status dt_param_groups_check(const dt_param_groups *g, const char *const *names, int n);

// ---- scale list ---------------------------------------------------------------------------------------------------

// Model.scales, the sizes at which a network sees each image, and from when on.
//
//   scales: [64, 112, 224]
//   scales: [64, {side: 112, from: 30%}, {side: 224, from: 60%}]
//
// The config is borrowed and must outlive the list.

enum { DT_MAX_SCALES = 8 };

typedef struct dt_scale_item {
    int side;       // pixels of the shorter side
    bool joins;     // not there from the beginning
    dt_amount from; // 0 of those that are
} dt_scale_item;

typedef struct dt_scales {
    dt_scale_item items[DT_MAX_SCALES]; // the largest first
    int n;
} dt_scales;

// DT_E_USAGE with the place of what is wrong. No model.scales: n = 0.
dt_status dt_scales_read(dt_scales *s, const dt_config *c);

// ---- listen -------------------------------------------------------------------------------------------------------

// Metrics.listen, an address to listen on: "127.0.0.1:9464", "[::1]:9464". 0.0.0.0 and [::] are all of the host's
// addresses, [::] those of IPv6 and IPv4.

typedef union dt_listen {
    struct sockaddr any; // its sa_family selects the member
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
} dt_listen;

// DT_E_USAGE with the place of what is wrong; loading a config calls this.
dt_status dt_listen_read(dt_listen *out, const dt_config *c);
int dt_listen_port(const dt_listen *l);

#endif
