// resize_mode.h: how the op resize finds the pixels of a new one: nn.Upsample's modes, and bilinear with align_corners.
#ifndef DT_GRAPH_RESIZE_MODE_H
#define DT_GRAPH_RESIZE_MODE_H

typedef enum dt_resize_mode {
    DT_RESIZE_NEAREST,
    DT_RESIZE_NEAREST_EXACT,
    DT_RESIZE_BILINEAR,
    DT_RESIZE_BILINEAR_CORNERS
} dt_resize_mode;

#endif
