// augment_case.h: lists of augmentations as the config has them, applied to pixels.
#ifndef DT_TESTS_AUGMENT_CASE_H
#define DT_TESTS_AUGMENT_CASE_H

#include "base/core.h"
#include "base/hash.h"
#include "base/rng.h"
#include "config/config.h"
#include "data/augment/augment.h"
#include "testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static dt_config *config;
static dt_buffer scratch;

static inline dt_status parse(const char *list, dt_augment **out) {
    char *text = dt_xprintf("run: {name: t}\n"
                            "data: {path: x, fields: {a: {kind: image, size: [4, 4]}}, augment: {a: %s}}\n"
                            "model: {name: fusion}\ntrain: {global_batch: 8, micro_batch: 2}\n",
                            list);
    *out = NULL;
    dt_config_destroy(config);
    config = NULL;
    dt_status st = dt_config_parse(&config, "t.yaml", text, strlen(text), NULL, 0);
    free(text);
    if (st != DT_OK) return st;
    return dt_augment_parse(out, dt_cnode_get(config->data.augment, "a"), "a");
}

static inline dt_augment *parse_good(const char *list) {
    dt_augment *a;
    if (parse(list, &a) != DT_OK) fail_msg("%s: %s", list, dt_error_message());
    return a;
}

static inline void apply(const char *list, uint32_t sample, uint32_t epoch, uint8_t *pixels, int w, int h, int c) {
    dt_augment *a = parse_good(list);
    for (int i = 0; i < w * h * c; i++) pixels[i] = (uint8_t)(i * 7);
    dt_image image = {pixels, w, h, c};
    dt_augment_key key = {11, sample, epoch};
    must(dt_augment_apply(a, &key, &image, &scratch));
    dt_augment_destroy(a);
}

// The generator of the operation at place `at` of field a, as augment.c makes it.
static inline dt_rng rng_at(int at, uint32_t sample, uint32_t epoch) {
    char purpose[32];
    snprintf(purpose, sizeof purpose, "augment.a.%d", at);
    return (dt_rng){.seed = 11, .slot = sample, .step = epoch, .purpose = dt_hash32(purpose)};
}

static inline int augment_tear_down(void **state) {
    dt_config_destroy(config);
    dt_buffer_fini(&scratch);
    return 0;
}

#endif
