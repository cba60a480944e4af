// scale_list.h: model.scales, the sizes at which a network sees each image, and from when on.
//
//   scales: [64, 112, 224]
//   scales: [64, {side: 112, from: 30%}, {side: 224, from: 60%}]
//
// The config is borrowed and must outlive the list.
#ifndef DT_CONFIG_SCALE_LIST_H
#define DT_CONFIG_SCALE_LIST_H

#include "config/config.h"

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

#endif
