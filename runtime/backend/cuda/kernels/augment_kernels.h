// augment_kernels.h: random changes to u8 images (batch/pixel_steps.h), with the same bits as the loader: both use
// batch/pixel_math.h, and sums over an image are integer sums.
//
// A block takes a sample and applies its list of steps. Between steps the image lies in `out`, which fits into the L2
// cache (256 images of 224x224x3 are 38 MB). Consecutive steps that change each value by itself share a pass, in which
// a thread takes twelve values at a multiple of twelve, that is, whole pixels of one or three channels. A step that
// needs the image's mean or histogram begins a new pass. Geometry and sharpness read one of two buffers and write the
// other. A blur keeps row sums in between.
//
// Rejected: several blocks per sample. They would need a launch for each step, and the host would have to know the
// longest list. A few very large images leave multiprocessors idle here; the loader handles those well.
//
// Moves n bytes in and n out per pass.
#ifndef DT_AUGMENT_KERNELS_H
#define DT_AUGMENT_KERNELS_H

#include "backend/cuda/kernels/kernel_math.h"
#include "batch/pixel_math.h"

enum { DT_AUGMENT_THREADS = 512 };

typedef struct dt_augment_args {
    const uint8_t *x;           // u8, NHWC
    uint8_t *out, *spare;       // spare: as much memory as out
    uint16_t *rows;             // as many values, for a blur
    const dt_pixel_step *steps; // n_steps per sample
    int n_steps;                // of each sample; DT_PIXEL_END ends a shorter list
    int width, height, channels;
    int64_t sample; // values of one
} dt_augment_args;

// What a step knows about its image: mean luma, the channels' means, or tables.
typedef struct dt_augment_known {
    int mean[3];          // per channel, or luma's in all three
    const uint8_t *table; // 256 bytes per channel
} dt_augment_known;

// Returns whether a step changes each value by itself, given at most the image's sums or counts.
DT_FN int dt_augment_is_value(int kind) {
    switch (kind) {
#define BYTE(id, reads_mean, e) case DT_PIXEL_##id:
#define LUMA(id, e)             case DT_PIXEL_##id:
#define RGB(id, e)              case DT_PIXEL_##id:
#define TABLE(id, f)            case DT_PIXEL_##id:
#include "batch/pixel_steps.def"
    case DT_PIXEL_PATCH:
        return 1;
    }
    return 0;
}
DT_FN int dt_augment_needs_sum(const dt_pixel_step *s) {
    switch (s->kind) {
#define BYTE(id, reads_mean, e)                                                                                        \
    case DT_PIXEL_##id:                                                                                                \
        return reads_mean;
#include "batch/pixel_steps.def"
    case DT_PIXEL_PATCH:
        return s->as.patch.with == DT_PATCH_MEAN;
    }
    return 0;
}
DT_FN int dt_augment_needs_count(const dt_pixel_step *s) {
    switch (s->kind) {
#define TABLE(id, f) case DT_PIXEL_##id:
#include "batch/pixel_steps.def"
        return 1;
    }
    return 0;
}
DT_FN void dt_augment_make_table(int kind, const uint32_t *count, uint8_t *table) {
    switch (kind) {
#define TABLE(id, f)                                                                                                   \
    case DT_PIXEL_##id:                                                                                                \
        f(count, table);                                                                                               \
        break;
#include "batch/pixel_steps.def"
    }
}

// ---- twelve values ---------------------------------------------------------------------------------
DT_FN void dt_augment_load(const uint8_t *p, int whole, int64_t i, int64_t n, uint8_t v[12]) {
    if (whole && i + 12 <= n) {
        // 4-byte loads: i is a multiple of 12, and images begin at multiples of 4
        const uint32_t *w = (const uint32_t *)(p + i);
        for (int k = 0; k < 3; k++) {
            const uint32_t word = w[k];
            for (int b = 0; b < 4; b++) v[4 * k + b] = (uint8_t)(word >> (8 * b)); // little-endian
        }
    } else { // unaligned images, and the end
        for (int k = 0; k < 12; k++) v[k] = i + k < n ? p[i + k] : 0;
    }
}
DT_FN void dt_augment_store(uint8_t *p, int whole, int64_t i, int64_t n, const uint8_t v[12]) {
    if (whole && i + 12 <= n) {
        for (int k = 0; k < 3; k++)
            ((uint32_t *)(p + i))[k] =
                v[4 * k] | (uint32_t)v[4 * k + 1] << 8 | (uint32_t)v[4 * k + 2] << 16 | (uint32_t)v[4 * k + 3] << 24;
    } else {
        for (int k = 0; k < 12 && i + k < n; k++) p[i + k] = v[k];
    }
}

// Values of the rectangle. Random bytes are numbered within it, and each row has its own Philox block.
DT_FN void dt_augment_patch(const dt_augment_args *a, const dt_pixel_step *s, const dt_augment_known *known, int64_t i,
                            uint8_t v[12]) {
    const int c = a->channels, x0 = s->as.patch.x, y0 = s->as.patch.y, with = s->as.patch.with;
    const int row_bytes = s->as.patch.w * c, row_blocks = (row_bytes + 15) / 16;
    // 12 values are whole pixels: c is 1 or 3
    int64_t pixel = i / c;
    int y = (int)(pixel / a->width), x = (int)(pixel - (int64_t)y * a->width);
    uint32_t word[4] = {0, 0, 0, 0}, have = 0; // have: the block in `word`, and 1
    for (int k = 0; k < 12; k++) {
        const int channel = c == 1 ? 0 : k % 3;
        if (x >= x0 && x < x0 + s->as.patch.w && y >= y0 && y < y0 + s->as.patch.h) {
            if (with == DT_PATCH_RANDOM) {
                const int at = (x - x0) * c + channel;
                const uint32_t block = (uint32_t)((y - y0) * row_blocks + at / 16);
                // a thread's bytes of a row mostly share a block of 16
                if (have != block + 1) {
                    const dt_rng *r = &s->as.patch.r;
                    dt_philox(r->seed, DT_PATCH_FIRST_BLOCK + block, r->slot, r->step, r->purpose, word);
                    have = block + 1;
                }
                const uint32_t pick = (uint32_t)at % 16 / 4;
                // no index: an array with a computed index would lie in local memory
                const uint32_t w = pick == 0 ? word[0] : pick == 1 ? word[1] : pick == 2 ? word[2] : word[3];
                v[k] = (uint8_t)(w >> (8 * (at % 4)));
            } else {
                v[k] = (uint8_t)(with == DT_PATCH_MEAN ? known->mean[channel] : with);
            }
        }
        if (channel + 1 < c) continue;   // the pixel has further channels
        if (++x == a->width) x = 0, y++; // the next row begins
    }
}

DT_FN void dt_augment_values(const dt_augment_args *a, const dt_pixel_step *s, const dt_augment_known *known, int64_t i,
                             uint8_t v[12]) {
    switch (s->kind) {
#define BYTE(id, reads_mean, e)                                                                                        \
    case DT_PIXEL_##id:                                                                                                \
        for (int k = 0; k < 12; k++) v[k] = dt_step_##id(s, known->mean[0], v[k]);                                     \
        break;
#define LUMA(id, e)                                                                                                    \
    case DT_PIXEL_##id:                                                                                                \
        for (int k = 0; k < 12 && a->channels == 3; k += 3) {                                                          \
            const uint8_t luma = dt_luma(v[k], v[k + 1], v[k + 2]);                                                    \
            for (int j = k; j < k + 3; j++) v[j] = dt_step_##id(s, luma, v[j]);                                        \
        }                                                                                                              \
        break;
#define RGB(id, e)                                                                                                     \
    case DT_PIXEL_##id:                                                                                                \
        for (int k = 0; k < 12 && a->channels == 3; k += 3) dt_step_##id(s, v + k);                                    \
        break;
#define TABLE(id, f) case DT_PIXEL_##id:
#include "batch/pixel_steps.def"
        // table of channel c begins at 256 c
        for (int k = 0; k < 12; k++) v[k] = known->table[(a->channels == 1 ? 0 : k % 3 * 256) + v[k]];
        break;
    default:
        dt_augment_patch(a, s, known, i, v);
    }
}
// Thread t's share of consecutive steps.
DT_FN void dt_augment_value_thread(const dt_augment_args *a, const dt_pixel_step *s, int n_steps,
                                   const dt_augment_known *known, const uint8_t *from, uint8_t *to, int t,
                                   int n_threads) {
    const int whole = a->sample % 4 == 0; // 4-byte loads and stores
    for (int64_t i = (int64_t)t * 12; i < a->sample; i += (int64_t)n_threads * 12) {
        uint8_t v[12];
        dt_augment_load(from, whole, i, a->sample, v);
        // values stay in registers between steps
        for (int k = 0; k < n_steps; k++) dt_augment_values(a, s + k, known, i, v);
        dt_augment_store(to, whole, i, a->sample, v);
    }
}

// The sum of a thread's share fits into 32 bits: 2^31 values of 255, divided by 512.
DT_FN void dt_augment_sum_thread(const dt_augment_args *a, int luma, const uint8_t *from, uint64_t *sum, int t,
                                 int n_threads) {
    const int whole = a->sample % 4 == 0, c = a->channels;
    uint32_t mine[3] = {0, 0, 0};
    for (int64_t i = (int64_t)t * 12; i < a->sample; i += (int64_t)n_threads * 12) {
        uint8_t v[12];
        dt_augment_load(from, whole, i, a->sample, v); // zeros beyond the end
        if (luma && c == 3)
            for (int k = 0; k < 12; k += 3) mine[0] += dt_luma(v[k], v[k + 1], v[k + 2]);
        else
            for (int k = 0; k < 12; k++) mine[c == 1 ? 0 : k % 3] += v[k];
    }
    // integer sums: the same in any order
    for (int k = 0; k < 3; k++) dt_add_whole64(sum + k, mine[k]);
}
DT_FN void dt_augment_count_thread(const dt_augment_args *a, const uint8_t *from, uint32_t *count, int t,
                                   int n_threads) {
    for (int64_t i = t; i < a->sample; i += n_threads)
        // shared memory: 256 counters per channel
        dt_add_whole32(count + (a->channels == 1 ? 0 : (int)(i % 3) * 256) + from[i], 1);
}

// ---- steps that look elsewhere ---------------------------------------------------------------------
DT_FN void dt_augment_move_thread(const dt_augment_args *a, const dt_pixel_step *s, const uint8_t *from, uint8_t *to,
                                  int t, int n_threads) {
    const int c = a->channels, w = a->width, kind = s->kind;
    const int64_t n = (int64_t)w * a->height;
    dt_pixel_source src;
    src.data = from, src.width = w, src.height = a->height, src.channels = c;
    src.fill = kind == DT_PIXEL_MOVE   ? s->as.move.fill
               : kind == DT_PIXEL_WARP ? s->as.warp.fill
                                       : s->as.perspective.fill;
    src.nearest = kind == DT_PIXEL_WARP ? s->as.warp.nearest : s->as.perspective.nearest;
    for (int64_t i = t; i < n; i += n_threads) {
        const int y = (int)(i / w), x = (int)(i - (int64_t)y * w);
        if (kind == DT_PIXEL_MOVE) {
            dt_take_pixel(&src, (int64_t)s->as.move.sign_x * x + s->as.move.from_x,
                          // integer places: flips and shifts move whole pixels
                          (int64_t)s->as.move.sign_y * y + s->as.move.from_y, to + i * c);
        } else if (kind == DT_PIXEL_WARP) {
            const int64_t *m = s->as.warp.m;
            // m: inverse map, 16.16 fixed point
            dt_sample_pixel(&src, m[0] * x + m[1] * y + m[2], m[3] * x + m[4] * y + m[5], to + i * c);
        } else {
            int32_t fx, fy;
            dt_perspective_place(s->as.perspective.m, x, y, &fx, &fy);
            dt_sample_pixel(&src, fx, fy, to + i * c);
        }
    }
}
DT_FN void dt_augment_sharpen_thread(const dt_augment_args *a, float factor, const uint8_t *from, uint8_t *to, int t,
                                     int n_threads) {
    const int c = a->channels, stride = a->width * c;
    for (int64_t i = t; i < a->sample; i += n_threads) {
        const int y = (int)(i / stride), at = (int)(i - (int64_t)y * stride);
        const uint8_t *row = from + (int64_t)y * stride;
        // the border stays as it is
        const int inside = y > 0 && y < a->height - 1 && at >= c && at < stride - c;
        to[i] = inside ? dt_sharpen(row - stride, row, row + stride, at, c, factor) : row[at];
    }
}
DT_FN void dt_augment_blur_rows(const dt_augment_args *a, const dt_pixel_step *s, const uint8_t *from, uint16_t *rows,
                                int t, int n_threads) {
    const int c = a->channels, stride = a->width * c;
    for (int64_t i = t; i < a->sample; i += n_threads) {
        const int y = (int)(i / stride), at = (int)(i - (int64_t)y * stride);
        const int x = at / c, channel = at - x * c;
        const uint8_t *row = from + (int64_t)y * stride + channel;
        uint32_t sum = DT_BLUR_ROW_HALF + s->as.blur.weight[0] * row[x * c];
        // borders are mirrored
        for (int k = 1; k <= s->as.blur.half; k++)
            sum += s->as.blur.weight[k] *
                   ((uint32_t)row[dt_mirror_index(x - k, a->width) * c] + row[dt_mirror_index(x + k, a->width) * c]);
        rows[i] = dt_blur_row_end(sum); // 16 bits: the columns' sums start from these
    }
}
DT_FN void dt_augment_blur_columns(const dt_augment_args *a, const dt_pixel_step *s, const uint16_t *rows, uint8_t *to,
                                   int t, int n_threads) {
    const int stride = a->width * a->channels;
    for (int64_t i = t; i < a->sample; i += n_threads) {
        const int y = (int)(i / stride), at = (int)(i - (int64_t)y * stride);
        uint32_t sum = DT_BLUR_COLUMN_HALF + s->as.blur.weight[0] * rows[i];
        for (int k = 1; k <= s->as.blur.half; k++) {
            const int64_t up = dt_mirror_index(y - k, a->height);
            const int64_t down = dt_mirror_index(y + k, a->height);
            sum += s->as.blur.weight[k] * ((uint32_t)rows[up * stride + at] + rows[down * stride + at]);
        }
        to[i] = dt_blur_column_end(sum);
    }
}
// A Philox block serves eight values: a byte for the quantile, and the next byte's top bit for the sign.
DT_FN void dt_augment_noise_thread(const dt_augment_args *a, const dt_pixel_step *s, const int16_t *level,
                                   const uint8_t *from, uint8_t *to, int t, int n_threads) {
    const dt_rng *r = &s->as.noise.r;
    for (int64_t i = (int64_t)t * 8; i < a->sample; i += (int64_t)n_threads * 8) {
        uint32_t word[4];
        dt_philox(r->seed, (uint32_t)(i / 8), r->slot, r->step, r->purpose, word);
        for (int k = 0; k < 8 && i + k < a->sample; k++) {
            const uint32_t bits = word[k / 2] >> (16 * (k % 2));
            const int by = level[bits & 255];
            to[i + k] = dt_clamp_byte(from[i + k] + (bits >> 15 & 1 ? -by : by));
        }
    }
}

// ---- the walk --------------------------------------------------------------------------------------
DT_KERNEL_BOUND(augment, dt_augment_args, DT_AUGMENT_THREADS, 2) {
    DT_SHARED(uint64_t, sum, 3);
    DT_SHARED(uint32_t, count, 768);
    DT_SHARED(uint8_t, table, 768);
    DT_SHARED(int16_t, level, 256);
    const dt_pixel_step *steps = a->steps + DT_BLOCK * a->n_steps;
    const uint8_t *at = a->x + DT_BLOCK * a->sample; // where the image currently is
    uint8_t *out = a->out + DT_BLOCK * a->sample, *spare = a->spare + DT_BLOCK * a->sample;
    uint16_t *rows = a->rows + DT_BLOCK * a->sample;
    for (int k = 0; k < a->n_steps && steps[k].kind != DT_PIXEL_END;) {
        const dt_pixel_step *s = steps + k++;
        uint8_t *to = out;
        dt_augment_known known = {{0, 0, 0}, table};
        if (dt_augment_needs_sum(s)) {
            const int luma = s->kind != DT_PIXEL_PATCH;
            DT_THREADS(t) {
                if (t < 3) sum[t] = 0;
            }
            DT_THREADS(t) dt_augment_sum_thread(a, luma, at, sum, t, DT_BLOCK_DIM);
            const uint64_t n = (uint64_t)a->width * (uint64_t)a->height;
            for (int c = 0; c < 3; c++) known.mean[c] = luma ? dt_mean_level(sum[0], n) : (int)dt_mean_byte(sum[c], n);
        }
        if (dt_augment_needs_count(s)) {
            DT_THREADS(t) {
                for (int v = t; v < 768; v += DT_BLOCK_DIM) count[v] = 0;
            }
            DT_THREADS(t) dt_augment_count_thread(a, at, count, t, DT_BLOCK_DIM);
            DT_THREADS(t) {
                if (t % 32 != 0 || t / 32 >= a->channels) continue; // of different warps
                dt_augment_make_table(s->kind, count + t / 32 * 256, table + t / 32 * 256);
            }
        }
        if (dt_augment_is_value(s->kind)) {
            int n = 1;
            while (k < a->n_steps && dt_augment_is_value(steps[k].kind) && !dt_augment_needs_sum(steps + k) &&
                   !dt_augment_needs_count(steps + k))
                k++, n++;
            DT_THREADS(t) dt_augment_value_thread(a, s, n, &known, at, to, t, DT_BLOCK_DIM);
        } else if (s->kind == DT_PIXEL_NOISE) {
            DT_THREADS(t) {
                for (int v = t; v < 256; v += DT_BLOCK_DIM)
                    level[v] = (int16_t)dt_noise_level(v, s->as.noise.deviation);
            }
            DT_THREADS(t) dt_augment_noise_thread(a, s, level, at, to, t, DT_BLOCK_DIM);
        } else if (s->kind == DT_PIXEL_BLUR) {
            DT_THREADS(t) dt_augment_blur_rows(a, s, at, rows, t, DT_BLOCK_DIM);
            DT_THREADS(t) dt_augment_blur_columns(a, s, rows, to, t, DT_BLOCK_DIM);
        } else {
            to = at == out ? spare : out;
            if (s->kind == DT_PIXEL_SHARPNESS)
                DT_THREADS(t) dt_augment_sharpen_thread(a, s->as.factor, at, to, t, DT_BLOCK_DIM);
            else
                DT_THREADS(t) dt_augment_move_thread(a, s, at, to, t, DT_BLOCK_DIM);
        }
        at = to;
    }
    if (at != out) DT_THREADS(t) {
            dt_augment_value_thread(a, steps, 0, (const dt_augment_known *)0, at, out, t, DT_BLOCK_DIM);
        }
}

#endif
