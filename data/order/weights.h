// weights.h: how often each sample of the training split is drawn, from columns of the catalog.
#ifndef DT_DATA_WEIGHTS_H
#define DT_DATA_WEIGHTS_H

#include "sampler.h"
#include "view.h"

typedef struct dt_weight_spec {
    int balance;                  // column whose values get equal shares of an epoch, or -1
    int column, real;             // metadata or number column of weights; both -1: equal weights
    const double *set_weight;     // share of an epoch that each dataset gets, or NULL
    const uint32_t *set_of_shard; // by shard of the catalog, with set_weight
    uint32_t n_sets;
} dt_weight_spec;

// Running sums for dt_sampler, (n) on the heap; NULL when the spec asks for nothing. A sample's value is
// that of the first of its records that has one. With `balance` and a weight column, the weights divide
// the share of each value. DT_E_DATA names a record without a value or with a weight below 0; DT_E_USAGE
// when all weights are 0.
dt_status dt_weights_make(uint64_t **out, const dt_catalog *c, const dt_view *v, const uint32_t *samples, uint32_t n,
                          const dt_weight_spec *spec);

// The samples by the value of a column, on the heap (values and its arrays; free with dt_sampler_values_free).
// DT_E_DATA names a record without a value.
dt_status dt_sampler_values_make(dt_sampler_values **out, const dt_catalog *c, const dt_view *v,
                                 const uint32_t *samples, uint32_t n, int column, uint32_t length);
void dt_sampler_values_free(dt_sampler_values *v);

#endif
