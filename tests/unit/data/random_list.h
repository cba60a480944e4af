// random_list.h: lists of augmentations at random, each operation with some of its parameters given, as the config
// has them: for tests that take any list on any image.
#ifndef DT_TESTS_RANDOM_LIST_H
#define DT_TESTS_RANDOM_LIST_H

#include "base/rng.h"
#include "data/augment/augment.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// Draws from *e on.
static size_t random_list(const dt_rng *r, uint32_t *e, char *list, size_t cap) {
    int n_kinds = 0;
    while (dt_augment_kinds[n_kinds].name) n_kinds++;
    int n = 1 + (int)dt_rng_below(r, (*e)++, 5);
    size_t at = (size_t)snprintf(list, cap, "[");
    for (int i = 0; i < n; i++) {
        const dt_augment_kind *k = &dt_augment_kinds[dt_rng_below(r, (*e)++, (uint32_t)n_kinds)];
        if (!k->run && i > 0) continue;
        at += (size_t)snprintf(list + at, cap - at, "{%s: {p: %g", k->name, (double)dt_rng_below(r, (*e)++, 3) / 2);
        for (const dt_augment_param *p = k->params; p->type != DT_AUGMENT_NONE; p++) {
            double u = (double)dt_rng_uniform(r, (*e)++);
            double v = p->low + (p->high - p->low) * u;
            if (!isnan(p->from) && dt_rng_below(r, (*e)++, 2)) continue;
            if (p->type == DT_AUGMENT_WORD && p->high > 0 && u > 0.5)
                at += (size_t)snprintf(list + at, cap - at, ", %s: %d", p->name, (int)v);
            else if (p->type == DT_AUGMENT_WORD)
                at +=
                    (size_t)snprintf(list + at, cap - at, ", %s: %.*s", p->name, (int)strcspn(p->words, "|"), p->words);
            else if (p->type == DT_AUGMENT_WHOLE || p->type == DT_AUGMENT_ODD)
                at += (size_t)snprintf(list + at, cap - at, ", %s: %d", p->name, (int)v | 1);
            else
                at += (size_t)snprintf(list + at, cap - at, ", %s: [%.9g, %.9g]", p->name, v, v);
            if (p->type == DT_AUGMENT_REAL) // numbers are no lists
                at = (size_t)(strrchr(list, '[') - list), at += (size_t)snprintf(list + at, cap - at, "%.9g", v);
        }
        at += (size_t)snprintf(list + at, cap - at, "}}, ");
    }
    return at + (size_t)snprintf(list + at, cap - at, "]");
}

#endif
