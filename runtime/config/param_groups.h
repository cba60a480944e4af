// param_groups.h: train.groups, how the parameters that match a pattern are trained.
//
// A group names parameters by a POSIX extended regular expression that must match the whole name. The first group that
// matches counts, as in a rule list of optax or big_vision, so special cases stand in front of general ones; parameters
// of no group are trained as train.optimizer says. lr and decay are factors of train.optimizer.lr and .weight_decay.
// A frozen parameter is thawed at a step: 0 = trained from the beginning, INT64_MAX = never.
//
// The config is borrowed and must outlive the groups. Threads: read-only once the steps are set.
#ifndef DT_CONFIG_PARAM_GROUPS_H
#define DT_CONFIG_PARAM_GROUPS_H

#include "config/config.h"

#include <regex.h>

typedef struct dt_param_group {
    const dt_cnode *node; // its place in the file
    const char *match;
    regex_t regex;
    double lr, decay;
    bool freeze; // for good
    bool thaws;
    dt_amount until; // thaws: when
    int64_t thaw;    // its step; the caller sets those of groups that thaw, once it knows the run's length
} dt_param_group;

typedef struct dt_param_groups {
    dt_param_group *items;
    int n;
} dt_param_groups;

// The most groups that may have a freeze_until.
enum { DT_MAX_THAWS = 15 };

// DT_E_USAGE with the place of what is wrong. No train.groups: n = 0.
dt_status dt_param_groups_read(dt_param_groups *g, const dt_config *c);
void dt_param_groups_fini(dt_param_groups *g);
// The group of a parameter, or NULL.
const dt_param_group *dt_param_groups_of(const dt_param_groups *g, const char *name);
// The step from which a parameter is trained. g may be NULL.
int64_t dt_param_groups_thaw(const dt_param_groups *g, const char *name);
// DT_E_USAGE if a group has none of the parameters (it says which there are), or if no parameter is trained at step 0.
dt_status dt_param_groups_check(const dt_param_groups *g, const char *const *names, int n);

#endif
